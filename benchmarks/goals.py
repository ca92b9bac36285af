"""The goals of this library, as ratios within one run, and whether a run reached them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .report import Report, Spread, brief

WIDTH = 79


@dataclass(frozen=True, slots=True)
class Goal:
    """One goal."""

    what: str
    scenario: str
    contender: str
    figure: str
    bound: float
    unit: str
    """Unit of the bound; with `against`, names the contender in the denominator."""
    against: str | None = None
    """The contender whose figure is the divisor, per round: a disturbance affects both."""
    at_least: bool = False
    """The bound is a minimum, not a maximum."""
    always: bool = False
    """Every round must reach the bound, not only the median."""

    @property
    def text(self) -> str:
        """The bound as text."""
        return f"{'≥' if self.at_least else '≤'} {self.bound:,g} {self.unit}".rstrip()

    def reached_by(self, spread: Spread) -> bool:
        """Return whether the spread reaches the bound."""
        if self.at_least:
            return (spread.lowest if self.always else spread.median) >= self.bound
        return (spread.highest if self.always else spread.median) <= self.bound


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a run for one goal."""

    goal: Goal
    spread: Spread | None
    why_not: str = ""
    """Why nothing was measured."""

    @property
    def reached(self) -> bool | None:
        """Whether the goal was reached; None if it was not measured."""
        return None if self.spread is None else self.goal.reached_by(self.spread)

    @property
    def word(self) -> str:
        """The result as a word."""
        return {True: "reached", False: "missed", None: "not measured"}[self.reached]


FLOOR, PLAIN_FLOOR, PEER = "floor", "floor-plain", "aioredlock"

# The factors for frozen nodes are divided by the floor's factors in the same run.
GOALS = (
    Goal("one task, p50, fenced", "one", "ours", "p50", 1.2, "x floor", FLOOR),
    Goal("one task, p50, plain", "one", "ours-plain", "p50", 1.2, "x floor", PLAIN_FLOOR),
    Goal("one task, p50, fenced", "one", "ours", "p50", 0.55, "x aioredlock", PEER),
    Goal("100 tasks, pairs/s, fenced", "tasks-100", "ours", "rate", 1.1, "x floor", FLOOR, at_least=True),
    Goal("100 tasks, pairs/s, plain", "tasks-100", "ours-plain", "rate", 0.7, "x floor", PLAIN_FLOOR, at_least=True),
    Goal("100 tasks, pairs/s, fenced", "tasks-100", "ours", "rate", 20, "x aioredlock", PEER, at_least=True),
    Goal("async with, over acquire and release", "block", "ours", "factor", 1.1, "x"),
    Goal("the same with 100 tasks", "block-100", "ours", "factor", 1.1, "x"),
    Goal("one contended name, 1 process, pairs/s", "hot", "ours", "rate", 30, "x aioredlock", PEER, at_least=True),
    Goal("one contended name, 4 processes, per s", "hot-processes", "ours", "rate", 2500, "/s", at_least=True),
    Goal("the same with fair: p99 wait over p50", "fair-processes", "ours", "spread", 2, "x"),
    Goal("hand-over to another process, 20 ms away", "handover-20ms", "ours", "trips", 2.1, "round trips"),
    Goal("hand-over to another process, loopback", "handover", "ours", "p50", 1.2, "x floor", FLOOR),
    Goal("one node frozen: p50 over healthy", "frozen-1", "ours", "factor50", 1.1, "x floor's", FLOOR),
    Goal("one node frozen: p99 over healthy", "frozen-1", "ours", "factor99", 1.5, "x floor's", FLOOR),
    Goal("two nodes frozen: p50 over healthy", "frozen-2", "ours", "factor50", 1.1, "x floor's", FLOOR),
    Goal("two nodes frozen: p99 over healthy", "frozen-2", "ours", "factor99", 1.5, "x floor's", FLOOR),
    Goal("1,000 tasks wait for one name: each node", "waiters", "ours", "commands", 5, "commands/s"),
    Goal("10,000 leases renewed: CPU", "renewals", "ours", "cpu", 3, "% of a core"),
    Goal("10,000 leases renewed: memory of each", "renewals", "ours", "memory", 1.4, "KB"),
    Goal("loss to cancelled block", "loss", "ours", "p50", 25, "ms"),
    Goal("the same: validity left, always", "loss", "ours", "left", 0, "s", at_least=True, always=True),
)


def judge(report: Report, goals: Sequence[Goal] = GOALS) -> list[Verdict]:
    """Return a verdict for every goal, including goals that this run did not measure."""
    return [_judge(report, goal) for goal in goals]


def _judge(report: Report, goal: Goal) -> Verdict:
    record = report.find(goal.scenario, goal.contender)
    if record is None:
        return Verdict(goal, None, f"{goal.scenario} with {goal.contender} was not run")
    if goal.against is None:
        spread, needed = Spread.of(record.values(goal.figure)), goal.figure
    else:
        spread = Spread.of(report.ratios(record, goal.figure, goal.against))
        needed = f"{goal.figure} of both {goal.contender} and {goal.against}"
    if spread is None:
        return Verdict(goal, None, record.missing or f"no round of {goal.scenario} has {needed}")
    return Verdict(goal, spread)


def summary(verdicts: Sequence[Verdict]) -> str:
    """Summarise the verdicts in one sentence."""
    reached = sum(verdict.reached is True for verdict in verdicts)
    measured = sum(verdict.reached is not None for verdict in verdicts)
    silent = len(verdicts) - measured
    return f"{reached} of {measured} goals reached" + (f", {silent} not measured" if silent else "")


def as_table(verdicts: Sequence[Verdict]) -> str:
    """Return the verdicts as a table of at most 80 columns."""
    return "\n".join(_lines(verdicts))


def _lines(verdicts: Sequence[Verdict]) -> Iterator[str]:
    yield f"\ngoals: {summary(verdicts)}"
    yield f"  {'what':<41} {'goal':<19} {'median':>6}"
    for verdict in verdicts:
        measured = "-" if verdict.spread is None else brief(verdict.spread.median)
        mark = {True: "", False: " missed", None: ""}[verdict.reached]
        yield f"  {verdict.goal.what:<41} {verdict.goal.text:<19} {measured:>6}{mark}"
