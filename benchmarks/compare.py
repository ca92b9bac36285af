"""`python -m benchmarks compare A B`: show the changes between two runs that exceed their spread."""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NoReturn

from .report import Cell, Report, Spread, brief, short
from .scenarios import Figure
from .store import NoRun, Record, Run, read

WIDTH = 79
ENOUGH = 3
"""Minimum number of rounds for a meaningful spread."""

SMALL = 0.1
"""Below this value, three decimals fit."""

SAME = {
    "machine": "machine",
    "cpus": "CPUs",
    "system": "system",
    "server": "server",
    "python": "Python",
    "libraries": "libraries",
    "cluster": "cluster",
    "nodes": "nodes",
    "seconds": "seconds of a round",
}
"""Properties that should be equal in two runs for their figures to be comparable."""


class Parser(argparse.ArgumentParser):
    """A parser that prints errors on one line."""

    def error(self, message: str) -> NoReturn:
        """Print the message and exit with status 2."""
        print(f"benchmarks: compare: {message}", file=sys.stderr)
        sys.exit(2)


def arguments() -> Parser:
    """Build the parser."""
    parser = Parser(
        prog="python -m benchmarks compare",
        description="Show the changes from run A to run B. Each is a file written by --json, or a directory written by "
        "--report. A figure is marked as better or worse only if every round of one run lies beyond every round of the "
        f"other, with at least {ENOUGH} rounds. 'x floor' is the figure divided by the bare protocol's in the same "
        "round; it stays comparable on another machine.",
    )
    parser.add_argument("a", metavar="A", help="the run before")
    parser.add_argument("b", metavar="B", help="the run after")
    parser.add_argument("--scenario", action="append", metavar="NAME", help="only this one; may be repeated")
    parser.add_argument("--contender", action="append", metavar="NAME", help="only this one; may be repeated")
    parser.add_argument(
        "--fail-above", type=_factor, metavar="FACTOR",
        help="exit with 1 when a figure's 'x floor' has become dearer by more than this factor (1.3: by 30 %%; for a "
        "rate, the floor divided by it) and lies beyond both spreads; also when a contender that was measured in A "
        "has failed in B. Without this option a difference is no failure",
    )  # fmt: skip
    return parser


def _factor(text: str) -> float:
    try:
        factor = float(text)
    except ValueError:
        factor = 0.0
    if not 1 <= factor < float("inf"):
        raise argparse.ArgumentTypeError(f"a factor of at least 1 is needed, as in 1.3, not {text!r}")
    return factor


@dataclass(frozen=True, slots=True)
class Change:
    """A change from A to B, of a figure or of its ratio to the floor."""

    a: Spread
    b: Spread
    more_is_better: bool

    @property
    def ratio(self) -> float | None:
        """B divided by A; None if A is zero."""
        return self.b.median / self.a.median if self.a.median else None

    @property
    def dearer(self) -> float | None:
        """By what factor B is worse: the ratio, inverted for figures that should be high."""
        if not self.more_is_better:
            return self.ratio
        return self.a.median / self.b.median if self.b.median else None

    @property
    def judged(self) -> bool:
        """Whether there are enough rounds to distinguish a difference from chance."""
        return min(self.a.rounds, self.b.rounds) >= ENOUGH

    @property
    def mark(self) -> str:
        """Return "better" or "worse" only if the difference exceeds both spreads."""
        apart = self.a.lowest > self.b.highest or self.b.lowest > self.a.highest
        if not (self.judged and apart):
            return ""
        return "better" if (self.b.median > self.a.median) == self.more_is_better else "worse"


@dataclass(frozen=True, slots=True)
class Row:
    """One figure of one contender in one scenario, in both runs."""

    a: Record
    b: Record
    figure: Figure
    change: Change
    floor: Change | None
    """The change of its ratio to the floor; None for the floor itself, and without a floor."""


def rows(a: Report, b: Report) -> Iterator[Row]:
    """Yield the figures that both runs have, in the order of the second."""
    for after in b.run.records:
        before = a.find(after.scenario, after.contender)
        if before is None:
            continue
        cells = {cell.figure.key: cell for cell in a.cells(before)}
        for cell in b.cells(after):
            if cell.figure.key in cells:
                yield _row(before, after, cells[cell.figure.key], cell)


def _row(before: Record, after: Record, a: Cell, b: Cell) -> Row:
    more = b.figure.faster_is_more
    floor = None
    if a.ratio is not None and b.ratio is not None and after.contender != after.floor == before.floor:
        floor = Change(a.ratio, b.ratio, more)
    return Row(before, after, b.figure, Change(a.spread, b.spread, more), floor)


def warnings(before: Run, after: Run) -> Iterator[str]:
    """Yield other differences between the runs that could be the cause."""
    a, b = before.about, after.about
    for key, what in SAME.items():
        one, other = a.get(key), b.get(key)
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            yield from _differing(one, other)
        elif one != other:
            yield f"{what} differs: {one} in A, {other} in B"
    titles = [{record.contender: record.contender_title for record in run.records} for run in (before, after)]
    yield from _differing(*({name: each[name] for name in titles[0].keys() & titles[1].keys()} for each in titles))
    for name, about in (("A", a), ("B", b)):
        if about.get("interrupted"):
            yield f"{name} was interrupted"


def _differing(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[str]:
    for name in sorted({*a, *b}):
        if a.get(name) != b.get(name):
            yield f"{name} differs: {a.get(name, 'none')} in A, {b.get(name, 'none')} in B"


def too_dear(found: Sequence[Row], factor: float) -> Iterator[str]:
    """Yield the contenders that are worse by more than that factor."""
    for row in found:
        change = row.floor
        if change is not None and change.mark == "worse" and (change.dearer is None or change.dearer > factor):
            much = "infinitely" if change.dearer is None else f"{change.dearer:.2f} times as"
            yield (
                f"{row.b.contender} in {row.b.scenario}, {row.figure.key}: {much} dear, "
                f"{short(change.a.median)} -> {short(change.b.median)} x {row.b.floor}"
            )


def lost(a: Report, b: Report) -> Iterator[str]:
    """Yield the contenders that were measured in A and failed in B."""
    for after in b.run.records:
        before = a.find(after.scenario, after.contender)
        if before is not None and before.missing is None and before.rounds and after.missing is not None:
            yield f"{after.contender} in {after.scenario} was measured in A and has failed in B: {after.missing}"


def chosen_of(run: Run, chosen: argparse.Namespace) -> Report:
    """Return the chosen records and the floors they are divided by."""
    wanted = [
        record
        for record in run.records
        if record.scenario in (chosen.scenario or [record.scenario])
        and record.contender in (chosen.contender or [record.contender])
    ]
    keys = {(record.scenario, name) for record in wanted for name in (record.contender, record.floor)}
    return Report(Run(run.about, [record for record in run.records if (record.scenario, record.contender) in keys]))


def main(given: Sequence[str]) -> int:
    """Print the comparison."""
    parser = arguments()
    chosen = parser.parse_args(given)
    try:
        a, b = (chosen_of(read(each), chosen) for each in (chosen.a, chosen.b))
    except NoRun as exc:
        parser.error(str(exc))
    found = list(rows(a, b))
    if not found:
        parser.error("the chosen parts of these two runs have no figure in common")
    print("\n".join(table(a, b, found)))
    if chosen.fail_above is None:
        return 0
    if not any(row.floor is not None and row.floor.judged for row in found):
        parser.error(
            f"--fail-above has nothing to go by: both runs need a contender with its floor, in {ENOUGH} rounds or more"
        )
    failures = [*too_dear(found, chosen.fail_above), *lost(a, b)]
    for failure in failures:
        print(f"benchmarks: compare: {failure}", file=sys.stderr)
    return 1 if failures else 0


# The output has at most 80 columns.


def table(a: Report, b: Report, found: Sequence[Row]) -> Iterator[str]:
    """Yield the differences between the runs, then every figure of both."""
    for name, report in (("A", a), ("B", b)):
        about = report.run.about
        yield f"{name}: {about.get('date', 'at some time')}, commit {about.get('commit', 'unknown')}"
    differences = list(warnings(a.run, b.run))
    for warning in differences:
        yield from textwrap.wrap(f"warning: {warning}", WIDTH, subsequent_indent="  ")
    for title, of_title in groupby(found, lambda row: row.b.title):
        yield from ("", *textwrap.wrap(title, WIDTH))
        yield f"  {'contender':<12} {'figure':<9} {'A':<19} {'B':<19} {'B / A':>6}"
        who = ""
        for row in of_title:
            name = row.b.contender if row.b.contender != who else ""
            who = row.b.contender
            yield _line(name, row.figure.key, row.change)
            if row.floor is not None:
                yield _line("", "  x floor", row.floor)
    marked = sum(row.change.mark != "" for row in found)
    yield ""
    judged = sum(row.change.judged for row in found)
    yield f"Median (lowest-highest round). {marked} of {len(found)} figures differ beyond both spreads."
    if judged < len(found):
        yield f"{len(found) - judged} are not judged: they have fewer than {ENOUGH} rounds."
    if differences:
        yield "The runs differ in more than the code: compare 'x floor'."


def _line(who: str, what: str, change: Change) -> str:
    ratio = "" if change.ratio is None else f"{change.ratio:.2f}"
    return f"  {who:<12} {what:<9} {_spread(change.a):<19} {_spread(change.b):<19} {ratio:>6} {change.mark}".rstrip()


def _spread(spread: Spread) -> str:
    return f"{_fitting(spread.median)} ({_fitting(spread.lowest)}-{_fitting(spread.highest)})"


def _fitting(value: float) -> str:
    """Format a value so that three of them fit into a column."""
    return f"{value:.3f}" if 0 < abs(value) < SMALL else brief(value, 1e4)
