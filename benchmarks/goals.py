"""What this library is to reach, as ratios within one run, and whether a run has reached it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .report import Report, Spread, brief

WIDTH = 79


@dataclass(frozen=True, slots=True)
class Goal:
    """One number to reach."""

    what: str
    scenario: str
    contender: str
    figure: str
    bound: float
    unit: str
    """What the bound is in; with `against`, the contender that stands in the denominator."""
    against: str | None = None
    """Whose figure it is divided by, round by round: what disturbs a round disturbs both."""
    at_least: bool = False
    """The bound is the least that will do, not the most."""
    always: bool = False
    """Every round has to reach it, not only the median."""

    @property
    def text(self) -> str:
        """The bound, in words."""
        return f"{'≥' if self.at_least else '≤'} {self.bound:,g} {self.unit}".rstrip()

    def reached_by(self, spread: Spread) -> bool:
        """Whether that will do."""
        if self.at_least:
            return (spread.lowest if self.always else spread.median) >= self.bound
        return (spread.highest if self.always else spread.median) <= self.bound


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a run says of a goal."""

    goal: Goal
    spread: Spread | None
    why_not: str = ""
    """Why nothing was measured."""

    @property
    def reached(self) -> bool | None:
        """None: not measured."""
        return None if self.spread is None else self.goal.reached_by(self.spread)

    @property
    def word(self) -> str:
        """The same, to be read."""
        return {True: "reached", False: "missed", None: "not measured"}[self.reached]


FLOOR, PLAIN_FLOOR, PEER = "floor", "floor-plain", "aioredlock"

# The rows for a frozen master are net of what the floor suffers in the same run: its factor is divided by the floor's.
GOALS = (
    Goal("one task, p50, fenced", "one", "ours", "p50", 1.25, "x floor", FLOOR),
    Goal("one task, p50, plain", "one", "ours-plain", "p50", 1.25, "x floor", PLAIN_FLOOR),
    Goal("one task, p50, fenced", "one", "ours", "p50", 0.6, "x aioredlock", PEER),
    Goal("100 tasks, pairs/s, fenced", "tasks-100", "ours", "rate", 0.75, "x floor", FLOOR, at_least=True),
    Goal("100 tasks, pairs/s, plain", "tasks-100", "ours-plain", "rate", 0.6, "x floor", PLAIN_FLOOR, at_least=True),
    Goal("100 tasks, pairs/s, fenced", "tasks-100", "ours", "rate", 12, "x aioredlock", PEER, at_least=True),
    Goal("async with, beside acquire and release", "block", "ours", "factor", 1.15, "x"),
    Goal("one hot name, one process, pairs/s", "hot", "ours", "rate", 20, "x aioredlock", PEER, at_least=True),
    Goal("one hot name, 4 processes, hand-overs/s", "hot-processes", "ours", "rate", 1000, "/s", at_least=True),
    Goal("the same with fair: p99 wait over p50", "fair-processes", "ours", "spread", 3, "x"),
    Goal("hand-over to another process, 20 ms away", "handover-20ms", "ours", "trips", 2.1, "round trips"),
    Goal("hand-over to another process, loopback", "handover", "ours", "p50", 1.5, "x floor", FLOOR),
    Goal("one master frozen: p50 over healthy", "frozen-1", "ours", "factor50", 1.2, "x floor's", FLOOR),
    Goal("one master frozen: p99 over healthy", "frozen-1", "ours", "factor99", 2, "x floor's", FLOOR),
    Goal("two masters frozen: p50 over healthy", "frozen-2", "ours", "factor50", 1.2, "x floor's", FLOOR),
    Goal("two masters frozen: p99 over healthy", "frozen-2", "ours", "factor99", 2, "x floor's", FLOOR),
    Goal("1,000 wait on one name: each node", "waiters", "ours", "commands", 10, "commands/s"),
    Goal("10,000 leases renewed: CPU", "renewals", "ours", "cpu", 10, "% of a core"),
    Goal("10,000 leases renewed: memory of each", "renewals", "ours", "memory", 2, "KB"),
    Goal("loss, until the body is cancelled", "loss", "ours", "p50", 50, "ms"),
    Goal("the same: validity left, always", "loss", "ours", "left", 0, "s", at_least=True, always=True),
)


def judge(report: Report, goals: Sequence[Goal] = GOALS) -> list[Verdict]:
    """Every goal, whether or not this run says anything of it."""
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
    """All of them in one sentence."""
    reached = sum(verdict.reached is True for verdict in verdicts)
    measured = sum(verdict.reached is not None for verdict in verdicts)
    silent = len(verdicts) - measured
    return f"{reached} of {measured} goals reached" + (f", {silent} not measured" if silent else "")


def as_table(verdicts: Sequence[Verdict]) -> str:
    """At most 80 columns."""
    return "\n".join(_lines(verdicts))


def _lines(verdicts: Sequence[Verdict]) -> Iterator[str]:
    yield f"\ngoals: {summary(verdicts)}"
    yield f"  {'what':<41} {'goal':<19} {'median':>6}"
    for verdict in verdicts:
        measured = "-" if verdict.spread is None else brief(verdict.spread.median)
        mark = {True: "", False: " missed", None: ""}[verdict.reached]
        yield f"  {verdict.goal.what:<41} {verdict.goal.text:<19} {measured:>6}{mark}"
