"""Format the results of `bench` as text and JSON; this module measures and prints nothing."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from ._bench_load import Latencies, NodeTrips, Rate
from ._node_view import vote_problem
from ._table import MIN_WIDTH, wrap
from ._terminal import Span, bar, render

MARGIN = 2
MAX_WIDTH = 160
ROWS = 5
LEVELS = " ▁▂▃▄▅▆▇█"
PLAIN_LEVELS = " ...:::##"  # the same number of levels in ASCII
VALUES_PER_BIN = 4
"""Average number of values in a column of a histogram: with fewer, no shape is visible."""

MIN_BINS = 8


class Text:
    """Formats sections of lines for a width."""

    def __init__(self, width: int, *, plain: bool, colours: bool) -> None:
        self._width = min(max(width - 1, MIN_WIDTH), MAX_WIDTH)
        self._plain = plain
        self._colours = colours

    def nodes(self, found: Sequence[NodeTrips]) -> Iterator[str]:
        """Yield a line for each node."""
        label = max([len(node.status.label) for node in found] + [len("node")])
        version = max([len(node.status.version or "") for node in found] + [len("version")])
        yield self._style("bold", f"{'node':<{label}}  {'version':<{version}}  {'round trip p50':>14}  {'p99':>8}")
        for node in found:
            yield from self._node(node, label, version)

    def _node(self, node: NodeTrips, label: int, version: int) -> Iterator[str]:
        status = node.status
        start = f"{status.label:<{label}}  {status.version or '':<{version}}  "
        trips = Latencies.of(node.durations) if node.durations else None
        p50, p99 = ("-", "-") if trips is None else (duration(trips.at(0.5)), duration(trips.at(0.99)))
        start += f"{p50:>14}  {p99:>8}"
        if status.can_vote:
            yield start.rstrip()
            return
        yield f"{start}  {self._style('red', 'no vote' if status.up else 'down')}"
        for line in wrap(vote_problem(status), self._width - 2 * MARGIN):
            yield " " * 2 * MARGIN + self._style("red", line)

    def latencies(self, title: str, unit: str, latencies: Latencies) -> Iterator[str]:
        """Yield a line of figures and a histogram."""
        figures = f"p50 {duration(latencies.at(0.5))}   p99 {duration(latencies.at(0.99))}"
        yield ""
        yield f"{self._style('bold', title)}   {figures}   ({len(latencies.ranked):,} {unit})"
        yield from self._histogram(latencies)

    def tasks(self, rates: Sequence[Rate]) -> Iterator[str]:
        """Yield a bar for each number of tasks."""
        yield ""
        yield self._style("bold", "tasks    pairs/s   acquire and release, each task on a name of its own")
        highest = max(rate.per_second for rate in rates)
        for rate in rates:
            part = rate.per_second / highest
            drawn = self._bar(part, self._width - 18)
            yield f"{rate.tasks:>5}  {rate.per_second:>9,.0f}  {self._style('cyan', drawn)}"

    def hot(self, rate: Rate) -> Iterator[str]:
        """Yield the rate on one name."""
        yield ""
        title = self._style("bold", f"one name, {rate.tasks} tasks of one client")
        yield f"{title}   {rate.per_second:,.0f} hand-overs/s"

    def _bar(self, part: float, width: int) -> str:
        if self._plain:
            return bar(part, max(width, 1), plain=True).rstrip(".")
        eighths = max(round(part * max(width, 1) * 8), 1)
        return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()

    def _histogram(self, latencies: Latencies) -> Iterator[str]:
        width = self._width - 2 * MARGIN
        bins = min(max(len(latencies.ranked) // VALUES_PER_BIN, MIN_BINS), width)
        bin_width = width // bins
        scale = Scale(latencies.at(0.0), latencies.at(1.0), bins)
        counts = [0] * bins
        for value in latencies.ranked:
            counts[scale.bin(value)] += 1
        for line in columns(counts, ROWS, PLAIN_LEVELS if self._plain else LEVELS):
            drawn = "".join(level * bin_width for level in line).rstrip()
            yield " " * MARGIN + self._style("cyan", drawn)
        drawn_width = bins * bin_width
        middle, tail = (scale.bin(latencies.at(part)) * bin_width + bin_width // 2 for part in (0.5, 0.99))
        yield " " * MARGIN + self._axis(drawn_width, [0, middle, tail, drawn_width - 1])
        labels = [
            (0, duration(latencies.at(0.0))),
            (drawn_width, duration(latencies.at(1.0))),  # after p99, even where that is in the last column
            (middle, f"p50 {duration(latencies.at(0.5))}"),
            (tail, f"p99 {duration(latencies.at(0.99))}"),
        ]
        yield " " * MARGIN + placed(drawn_width, labels)

    def _axis(self, width: int, marks: Sequence[int]) -> str:
        rule, mark = ("-", "+") if self._plain else ("─", "┴")
        return "".join(mark if column in marks else rule for column in range(width))

    def _style(self, style: str, text: str) -> str:
        return render([Span(text, style)], None, colours=self._colours, plain=self._plain)


class Scale:
    """Logarithmic bins, because slow values are many times the fast ones."""

    def __init__(self, lowest: float, highest: float, bins: int) -> None:
        self._low = math.log(max(lowest, 1e-9))
        self._span = max(math.log(max(highest, 1e-9)) - self._low, 1e-6)
        self._bins = bins

    def bin(self, value: float) -> int:
        """Return the number of the bin for a value."""
        part = (math.log(max(value, 1e-9)) - self._low) / self._span
        return min(max(int(part * self._bins), 0), self._bins - 1)


def columns(counts: Sequence[int], rows: int, levels: str) -> Iterator[str]:
    """Yield the rows of a column chart, topmost first; every count above 0 is visible."""
    full = len(levels) - 1
    highest = max(counts)
    heights = [max(round(count / highest * rows * full), 1) if count else 0 for count in counts]
    for row in range(rows - 1, -1, -1):
        yield "".join(levels[min(max(height - row * full, 0), full)] for height in heights)


def placed(width: int, texts: Sequence[tuple[int, str]]) -> str:
    """Place each text below its column, or beside it if its neighbours need the room, in the order of the columns.

    If not all texts fit, the last ones given are left out.
    """
    kept = list(texts)
    while kept and sum(len(text) + 1 for _, text in kept) - 1 > width:
        kept.pop()
    kept.sort(key=lambda item: item[0])
    line, free = "", 0
    for number, (column, text) in enumerate(kept):
        behind = sum(len(other) + 1 for _, other in kept[number + 1 :])
        start = min(max(column - len(text) // 2, free), width - len(text) - behind)
        line = line.ljust(start) + text
        free = len(line) + 1
    return line


def duration(seconds: float) -> str:
    """Return a duration with three digits: repeated measurements differ by more."""
    if seconds >= 1:
        return f"{seconds:.3g} s" if seconds < 1000 else f"{seconds:,.0f} s"  # noqa: PLR2004 - three digits
    milliseconds = seconds * 1000
    if milliseconds >= 100:  # noqa: PLR2004 - three digits
        return f"{milliseconds:.0f} ms"
    return f"{milliseconds:.2f} ms" if milliseconds < 10 else f"{milliseconds:.1f} ms"  # noqa: PLR2004 - three digits


def as_json(found: Mapping[str, object]) -> dict[str, object]:
    """Return the results for programs; durations are in seconds."""
    return {key: _json(value) for key, value in found.items()}


def _json(value: object) -> object:
    if isinstance(value, Latencies):
        parts = {"min": 0.0, "p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
        return {"n": len(value.ranked)} | {key: value.at(part) for key, part in parts.items()}
    if isinstance(value, Rate):
        return {"tasks": value.tasks, "pairs": value.pairs, "pairs_per_second": value.per_second}
    if isinstance(value, NodeTrips):
        status = value.status
        trips = _json(Latencies.of(value.durations)) if value.durations else None
        about = {key: getattr(status, key) for key in ("label", "version", "up", "can_vote", "error")}
        return {**about, "round_trip": trips}
    return [_json(item) for item in value] if isinstance(value, list) else value
