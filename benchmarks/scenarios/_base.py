"""What every scenario has. It drives contenders' processes by their verbs (worker.py) and measures nothing itself."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Protocol

from benchmarks.contenders import Entry
from benchmarks.timing import Sample

__all__ = [
    "FLOOR_AND_OURS", "OURS", "P50", "P99", "RATE", "US", "Faults", "Figure", "Process", "Sample", "Scenario",
    "Setting", "Stage", "Unmeasured", "fresh",
]  # fmt: skip

US = frozenset({"floor", "ours", "floor-plain", "ours-plain"})
"""Who gets every round; the peers are measured to know where they stand, which a few rounds tell."""

FLOOR_AND_OURS = frozenset({"floor", "ours"})
OURS = frozenset({"ours"})

PEER_ROUNDS = 3


class Unmeasured(Exception):  # noqa: N818 - a state of affairs, as Missing
    """A contender did what it was asked to, and there is nothing to tell of it; says why."""


class Process(Protocol):
    """A contender in a process of its own."""

    async def ask(self, **request: object) -> Sample:
        """Have it do something; returns what it measured."""
        ...


class Faults(Protocol):
    """What can be done to masters that the runner has started itself."""

    def pause(self, i: int, /) -> object:
        """From now on that one does not answer."""
        ...

    def resume(self, i: int, /) -> object:
        """It goes on with what it was sent meanwhile."""
        ...

    def kill(self, i: int, /) -> object:
        """It ends, and its data with it."""
        ...

    def restart(self, i: int, /) -> object:
        """It is there again, empty."""
        ...


@dataclass(frozen=True, slots=True)
class Setting:
    """The masters that a scenario needs."""

    nodes: int | None = None
    """How many, started for it alone; None: those that are given."""
    round_trip_ms: float = 0.0
    """How far away."""
    faults: bool = False
    """Whether they are to be hurt."""
    alone: bool = False
    """Whether one contender must have them to itself, for what they do is counted."""

    @property
    def own(self) -> bool:
        """Whether the given ones will not do."""
        return self.nodes is not None


@dataclass(frozen=True, slots=True)
class Stage:
    """What a scenario has for one contender's round."""

    processes: Sequence[Process]
    urls: Sequence[str]
    cluster: Faults | None = None
    """Only in a setting with faults."""

    @property
    def faults(self) -> Faults:
        """The same, where it must be there."""
        assert self.cluster is not None  # noqa: S101 - such a setting has one
        return self.cluster


@dataclass(frozen=True, slots=True)
class Figure:
    """A number that a scenario yields."""

    key: str
    label: str
    unit: str
    faster_is_more: bool = False


P50 = Figure("p50", "p50", "µs")
P99 = Figure("p99", "p99", "µs")
RATE = Figure("rate", "rate", "pairs/s", faster_is_more=True)


class Scenario(ABC):
    """One thing to do, the same for every contender."""

    name: str
    title: str
    figures: tuple[Figure, ...]
    setting = Setting()
    group: str | None = None
    """Of the scenarios that differ in one number only."""
    at: float | None = None
    """That number."""
    needs: str | None = None
    """What a contender must be able to do beyond acquire and release."""
    processes = 1
    """How many of one contender take part."""
    least = 0.0
    """Seconds a round must have to say anything."""
    most_rounds: int | None = None
    """Where a round takes seconds."""
    peer_rounds = PEER_ROUNDS
    usual: frozenset[str] | None = None
    """Whom it is run with unless contenders are named; None: with all."""

    def fits(self, entry: Entry) -> bool:
        """Whether that contender has what it takes."""
        return self.needs is None or self.needs in entry.can

    def rounds(self, entry: Entry, wanted: int, *, named: bool) -> int:
        """How many of that contender, of so many that are wanted; of one asked for by name no fewer than of ours."""
        most = min(wanted, self.most_rounds or wanted)
        return most if named or entry.name in US else min(most, self.peer_rounds)

    @abstractmethod
    async def measure(self, stage: Stage, seconds: float) -> Sample:
        """One round of one contender."""


_numbers = count()


def fresh(what: str) -> str:
    """A name nobody holds: no round inherits from another."""
    return f"bench:{what}:{time.time_ns():x}:{next(_numbers)}"
