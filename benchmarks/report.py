"""Medians, their spread, and ratios to the floor: as a table for people, as JSON for programs."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import median
from typing import Any

from .scenarios import Figure
from .store import Record, Run, number

WIDTH = 79
LONGEST = 160

THREE_DIGITS = 100
"""From this value on, three significant digits need no decimals."""


@dataclass(frozen=True, slots=True)
class Spread:
    """A figure over all rounds, never a single number."""

    median: float
    lowest: float
    highest: float
    rounds: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread | None:
        """Return the spread, or None without values."""
        return cls(median(values), min(values), max(values), len(values)) if values else None


@dataclass(frozen=True, slots=True)
class Cell:
    """One figure of one contender in one scenario."""

    figure: Figure
    spread: Spread
    ratio: Spread | None
    """The ratio to its floor, computed per round: a disturbance affects both."""


class Report:
    """The results of a run."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._by_name = {(record.scenario, record.contender): record for record in run.records}

    def find(self, scenario: str, contender: str) -> Record | None:
        """Return the record of that contender in that scenario."""
        return self._by_name.get((scenario, contender))

    def cells(self, record: Record) -> list[Cell]:
        """Return the figures of that record, in the scenario's order."""
        spreads = ((figure, Spread.of(record.values(figure.key))) for figure in record.figures)
        return [
            Cell(figure, spread, Spread.of(self.ratios(record, figure.key, record.floor)))
            for figure, spread in spreads
            if spread is not None
        ]

    def ratios(self, record: Record, key: str, against: str) -> list[float]:
        """Return that figure of each round, divided by the other contender's in the same round."""
        other = self.find(record.scenario, against)
        if other is None:
            return []
        both = (
            (number(ours, key), number(theirs, key)) for ours, theirs in zip(record.rounds, other.rounds, strict=False)
        )
        return [ours / theirs for ours, theirs in both if ours is not None and theirs]

    def as_json(self) -> str:
        """Return the run as JSON for `store.read`, with one line per record to keep the file readable."""
        about = json.dumps(dict(self.run.about), indent=1)
        results = ",\n".join(json.dumps(self._as_json(record)) for record in self.run.records)
        return f'{{"about": {about},\n"results": [\n{results}\n]}}\n'

    def _as_json(self, record: Record) -> dict[str, Any]:
        cells = {cell.figure.key: cell for cell in self.cells(record)}
        return {
            "scenario": record.scenario,
            "title": record.title,
            "group": record.group,
            "at": record.at,
            "contender": record.contender,
            "contender_title": record.contender_title,
            "floor": record.floor,
            "missing": record.missing,
            "figures": {figure.key: _figure_as_json(figure, cells.get(figure.key)) for figure in record.figures},
            "rounds": [dict(sample) for sample in record.rounds],
        }

    def as_table(self) -> str:
        """Return the results as a table of at most 80 columns."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        for (_, title), records in groupby(self.run.records, lambda record: (record.scenario, record.title)):
            yield from ("", *textwrap.wrap(title, WIDTH, break_on_hyphens=False))
            of_this = list(records)
            if any(record.rounds for record in of_this):
                yield f"  {'contender':<12} {'figure':<9} {'median':>7}{'':<9} {'spread':<19} {'n':>7} {'x floor':>8}"
            for record in of_this:
                yield from self._rows(record)
            yield from missing(of_this)
        yield "\nx floor: the median of the rounds' own ratios to the bare protocol's figures, by"
        floors: dict[str, list[str]] = {}
        for name, floor in {record.contender: record.floor for record in self.run.records}.items():
            if name != floor:
                floors.setdefault(floor, []).append(name)
        for floor, names in floors.items():
            yield from wrapped(f"{floor} for {', '.join(names)}")

    def _rows(self, record: Record) -> Iterator[str]:
        n = round(sum(record.values("n")))
        for position, cell in enumerate(self.cells(record)):
            who, out_of = (record.contender, f"{n:,}") if position == 0 else ("", "")
            spread = f"{brief(cell.spread.lowest)} .. {brief(cell.spread.highest)}"
            ratio = brief(cell.ratio.median) if cell.ratio is not None else ""
            yield (
                f"  {who:<12} {cell.figure.key:<9} {brief(cell.spread.median):>7} {cell.figure.unit:<8.8} "
                f"{spread:<19} {out_of:>7} {ratio:>8}"
            ).rstrip()


def missing(records: Sequence[Record]) -> Iterator[str]:
    """Yield the contenders with missing figures and the reasons, one line per reason."""
    reasons: dict[str, list[str]] = {}
    for record in records:
        if record.missing is not None:
            reasons.setdefault(why(record.missing), []).append(record.contender)
    for reason, names in reasons.items():
        yield from wrapped(f"missing: {', '.join(names)}: {reason}")


def why(reason: str) -> str:
    """Shorten an error: some libraries' errors are pages long."""
    words = " ".join(reason.split())
    return words if len(words) <= LONGEST else f"{words[: LONGEST - 4]} ..."


def wrapped(text: str) -> list[str]:
    """Wrap text, indented like the rows of a table, without breaking names."""
    return textwrap.wrap(text, WIDTH, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False)


def short(value: float) -> str:
    """Format with three significant digits; more are not reproducible."""
    if value == 0:
        return "0"
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.0f}" if abs(rounded) >= THREE_DIGITS else f"{rounded:#.3g}".rstrip(".")


def brief(value: float, beyond: float = 1e6) -> str:
    """Format like `short`, with a letter for thousands of long numbers."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= max(size, beyond):
            return short(value / size) + letter
    return short(value)


def _figure_as_json(figure: Figure, cell: Cell | None) -> dict[str, Any]:
    known = {"label": figure.label, "unit": figure.unit, "faster_is_more": figure.faster_is_more}
    if cell is None:
        return known
    ratio = cell.ratio.median if cell.ratio is not None else None
    spread = {"median": cell.spread.median, "min": cell.spread.lowest, "max": cell.spread.highest}
    return known | spread | {"times_floor": ratio}
