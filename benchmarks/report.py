"""Medians, their spread, and how many times the floor: as a table for people, as JSON for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from .runner import Result
from .scenarios import Figure


@dataclass(frozen=True, slots=True)
class Cell:
    """One figure of one contender in one scenario, over the rounds."""

    figure: Figure
    median: float
    lowest: float
    highest: float
    ratio: float | None
    """Times its floor: the median of the rounds' own ratios, for what disturbs a round disturbs both."""


class Report:
    """What a run has found."""

    def __init__(self, results: Sequence[Result]) -> None:
        self.results = results
        self._by_name = {(result.scenario.name, result.entry.name): result for result in results}

    def cells(self, result: Result) -> list[Cell]:
        """The figures of that result, in the scenario's order."""
        if not result.rounds:
            return []
        return [self._cell(result, figure) for figure in result.scenario.figures]

    def _cell(self, result: Result, figure: Figure) -> Cell:
        values = [sample[figure.key] for sample in result.rounds]
        return Cell(figure, median(values), min(values), max(values), self._ratio(result, figure))

    def _ratio(self, result: Result, figure: Figure) -> float | None:
        floor = self._by_name.get((result.scenario.name, result.entry.floor))
        if floor is None or not floor.rounds:
            return None
        both = zip(result.rounds, floor.rounds, strict=False)
        ratios: list[float] = [ours[figure.key] / theirs[figure.key] for ours, theirs in both]
        return median(ratios)

    def as_json(self) -> list[dict[str, Any]]:
        """One record for each scenario and contender."""
        return [
            {
                "scenario": result.scenario.name,
                "contender": result.entry.name,
                "floor": result.entry.floor,
                "missing": result.missing,
                "rounds": result.rounds,
                "figures": {
                    cell.figure.key: {
                        "unit": cell.figure.unit,
                        "median": cell.median,
                        "min": cell.lowest,
                        "max": cell.highest,
                        "times_floor": cell.ratio,
                    }
                    for cell in self.cells(result)
                },
            }
            for result in self.results
        ]

    def as_table(self) -> str:
        """At most 80 columns."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        title = None
        for result in self.results:
            if result.scenario.title != title:
                title = result.scenario.title
                yield f"\n{title}"
                yield f"  {'contender':<12} {'figure':<8} {'median':>10}   {'spread':<19} {'n':>7}   {'x floor':>8}"
            yield from self._rows(result)
        floors = {result.entry.name: result.entry.floor for result in self.results}
        yield "\nx floor: the median of the rounds' own ratios to the bare protocol with the same kind of commands."
        yield "  " + ", ".join(f"{name} / {floor}" for name, floor in floors.items() if name != floor)

    def _rows(self, result: Result) -> Iterator[str]:
        n = round(sum(sample["n"] for sample in result.rounds))
        for first, cell in zip([True, *[False] * 9], self.cells(result), strict=False):
            who, out_of = (result.entry.name, f"{n:,}") if first else ("", "")
            spread = f"{_short(cell.lowest)} .. {_short(cell.highest)}"
            unit = {"pairs/s": "/s"}.get(cell.figure.unit, cell.figure.unit)
            ratio = f"{cell.ratio:.2f}" if cell.ratio is not None else ""
            yield (
                f"  {who:<12} {cell.figure.key:<8} {_short(cell.median):>7} {unit:<2}   {spread:<19} {out_of:>7}"
                f"   {ratio:>8}"
            )
        if result.missing is not None:
            yield f"  {result.entry.name:<12} missing: {result.missing[:62]}"


def _short(value: float) -> str:
    """Three digits are more than repeat."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"  # noqa: PLR2004
