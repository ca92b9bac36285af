"""The plots of a run: their data, axes and texts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import groupby
from statistics import median

from . import plots
from .report import Report, Spread, short
from .scenarios import Figure
from .store import Record
from .timing import DISTRIBUTION

COLOURS = 9
"""Colours in the style sheet: the first for the floor, the second, with a broader line, for this library."""

TWINS = ("-plain", "-uvloop")
"""Suffixes of contenders that share another contender's colour but have their own line style."""

WIDE = 30.0
"""Ratio of the largest to the smallest value above which the axis is logarithmic."""

MICROSECONDS = "µs"

Words = Mapping[str, str]
"""For each contender, a description of the plot for readers who cannot see it."""


def styles(names: Sequence[str]) -> dict[str, plots.Style]:
    """One style per contender for all plots; styles differ even without colours."""
    families = {"floor": 0, "ours": 1}
    found: dict[str, plots.Style] = {}
    for name in dict.fromkeys(names):
        family = next((name.removesuffix(twin) for twin in TWINS if name.endswith(twin)), name)
        colour = families.setdefault(family, 1 + (len(families) - 1) % (COLOURS - 1))
        found[name] = plots.Style(f"k{colour}", len(found), len(found))
    return found


class Charts:
    """The plots of a run, each as a `figure` of the page."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._records = report.run.records
        self.styles = styles([record.contender for record in self._records])

    def distributions(self) -> Iterator[str]:
        """Plot the latencies of each scenario that has them."""
        for title, records in self._scenarios():
            drawn = [(record, told) for record in records if (told := distribution(record))]
            # By median, the order in which the lines appear from the left.
            drawn.sort(key=lambda pair: pair[1][50])
            if not drawn:
                continue
            every = [value for _, told in drawn for value in (told[0], told[-1])]
            x = plots.axis("latency, log scale", every, tick, log=True)
            y = plots.axis("part of all", [1.0], lambda part: f"{part:.0%}", at=(0, 0.25, 0.5, 0.75, 1))
            lines = [self._line(record.contender, list(zip(told, DISTRIBUTION, strict=True))) for record, told in drawn]
            words = {record.contender: f"{duration(told[50])}, p99 {duration(told[99])}" for record, told in drawn}
            picture = plots.lines(lines, x, y, title=f"Latency: {title}", desc=f"Medians: {_spoken(words)}", marks=3)
            yield _figure(title, picture, self._legend(words))

    def sweeps(self, group: str, unit: str, *, log: bool) -> Iterator[str]:
        """Plot every figure of a group of scenarios against the number in which they differ."""
        records = [record for record in self._records if record.group == group]
        figures = {figure.key: figure for record in records for figure in record.figures}
        for figure in figures.values():
            points: dict[str, dict[float, Spread]] = {}
            for record in records:
                spread = Spread.of(record.values(figure.key))
                if spread is not None and record.at is not None:
                    points.setdefault(record.contender, {})[record.at] = spread
            ats = sorted({at for of_one in points.values() for at in of_one})
            if len(ats) > 1:
                x = plots.axis(unit, ats, short_count, log=log, at=ats)
                yield self._sweep(f"{figure.label} against {group}", figure, points, x)

    def _sweep(self, title: str, figure: Figure, points: Mapping[str, Mapping[float, Spread]], x: plots.Axis) -> str:
        every = [end for of_one in points.values() for each in of_one.values() for end in (each.lowest, each.highest)]
        y = _y_axis(figure, every)
        lines = [
            self._line(
                name,
                [(at, spread.median) for at, spread in sorted(of_one.items())],
                [(spread.lowest, spread.highest) for _, spread in sorted(of_one.items())],
            )
            for name, of_one in points.items()
        ]
        words = {
            name: "; ".join(f"{_in_words(figure, spread.median)} at {at:g}" for at, spread in sorted(of_one.items()))
            for name, of_one in points.items()
        }
        return _figure(title, plots.lines(lines, x, y, title=title, desc=_spoken(words), labelled=True))

    def ranges(self, prefix: str) -> Iterator[str]:
        """Plot p50 to p99 of the scenarios whose names start with that prefix."""
        for title, records in self._scenarios():
            both = [row for record in records if record.scenario.startswith(prefix) for row in self._range(record)]
            if both:
                both.sort(key=lambda row: row.first)
                ends = [end for row in both for end in (row.first, row.second)]
                x = plots.axis("latency, log scale", ends, tick, log=True)
                words = {row.name: row.words for row in both}
                yield _figure(title, plots.ranges(both, x, title=title, desc=f"Medians: {_spoken(words)}"))

    def _range(self, record: Record) -> Iterator[plots.Range]:
        p50, p99 = (Spread.of(record.values(key)) for key in ("p50", "p99"))
        if p50 is not None and p99 is not None:
            words = f"{duration(p50.median)}, p99 {duration(p99.median)}"
            yield plots.Range(record.contender, self.styles[record.contender], p50.median, p99.median, words)

    def series(self) -> Iterator[str]:
        """Plot a scenario's first figure over time, for each contender that has it."""
        for title, records in self._scenarios():
            drawn = {record.contender: points for record in records if (points := series(record))}
            if not drawn:
                continue
            figure = records[0].figures[0]
            x = plots.axis("seconds", [at for points in drawn.values() for at, _ in points], short_count)
            y = _y_axis(figure, [value for points in drawn.values() for _, value in points])
            lines = [self._line(name, plots.thinned(points)) for name, points in drawn.items()]
            words = {name: _in_words(figure, median(value for _, value in points)) for name, points in drawn.items()}
            happened = marks(next(record for record in records if record.contender in drawn))
            desc = "; ".join(f"{word} at {at:.2g} s" for at, word in happened)
            picture = plots.lines(
                lines, x, y, title=title, desc=f"{desc}. Medians: {_spoken(words)}", marks=4, events=happened
            )
            yield _figure(title, picture, self._legend(dict.fromkeys(drawn, "")))

    def _scenarios(self) -> Iterator[tuple[str, list[Record]]]:
        """Yield each scenario's title with the contenders that have figures."""
        for _, records in groupby(self._records, lambda record: record.scenario):
            measured = [record for record in records if record.rounds]
            if measured:
                yield measured[0].title, measured

    def _line(self, name: str, points: Sequence[plots.Point], spread: Sequence[plots.Point] = ()) -> plots.Line:
        return plots.Line(name, self.styles[name], points, spread)

    def _legend(self, words: Words) -> str:
        items = "".join(
            f'<li>{plots.sample(self.styles[name])}{escape(name)} <span class="soft">{escape(text)}</span></li>'
            for name, text in words.items()
        )
        return f'<ul class="legend">{items}</ul>'


def distribution(record: Record) -> list[float]:
    """Return the latency at each fraction, as the median of the rounds; empty if not measured."""
    rounds = [told for sample in record.rounds if _numbers(told := sample.get("latencies"), len(DISTRIBUTION))]
    return [median(column) for column in zip(*rounds, strict=True)]


def series(record: Record) -> list[plots.Point]:
    """Return the series of the first round; empty if there is none."""
    points = record.rounds[0].get("series") if record.rounds else None
    if not isinstance(points, list) or not all(_numbers(point, 2) for point in points):
        return []
    return [(point[0], point[1]) for point in points]


def marks(record: Record) -> list[tuple[float, str]]:
    """Return the faults injected in that round, with their times."""
    told = record.rounds[0].get("marks", [])
    return [(float(at), str(what)) for at, what in told]


def _numbers(values: object, length: int) -> bool:
    return isinstance(values, list) and len(values) == length and all(isinstance(each, int | float) for each in values)


def _y_axis(figure: Figure, values: Sequence[float]) -> plots.Axis:
    log = min(values) > 0 and max(values) / min(values) > WIDE
    is_time = figure.unit == MICROSECONDS
    what = figure.label if is_time or figure.unit in figure.label else f"{figure.label}, {figure.unit}"
    return plots.axis(f"{what}, log scale" if log else what, values, tick if is_time else short_count, log=log)


def _in_words(figure: Figure, value: float) -> str:
    return duration(value) if figure.unit == MICROSECONDS else f"{short(value)} {figure.unit}"


def duration(microseconds: float) -> str:
    """Format a duration in the best unit."""
    size, unit = _unit(microseconds)
    return f"{short(microseconds / size)} {unit}"


def tick(microseconds: float) -> str:
    """Format a duration for an axis, where values are round."""
    size, unit = _unit(microseconds)
    return f"{microseconds / size:g} {unit}"


def _unit(microseconds: float) -> tuple[float, str]:
    units = ((1e6, "s"), (1e3, "ms"), (1.0, "µs"))
    return next(((size, unit) for size, unit in units if microseconds >= size * 0.9995), units[-1])


def short_count(value: float) -> str:
    """Format a number for an axis, where space is limited."""
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{float(f'{value / size:.3g}'):g}{unit}"
    return f"{float(f'{value:.3g}'):g}"


def _spoken(words: Words) -> str:
    return "; ".join(f"{name} {text}" for name, text in words.items()) + "."


def _figure(title: str, picture: str, legend: str = "") -> str:
    return f"<figure><figcaption><h3>{escape(title)}</h3></figcaption>{picture}{legend}</figure>\n"
