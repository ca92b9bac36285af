"""The base of all scenarios. It sends requests to contenders' processes (worker.py) and measures nothing itself."""

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
"""Contenders that get every round; a few rounds are enough for the other libraries."""

FLOOR_AND_OURS = frozenset({"floor", "ours"})
OURS = frozenset({"ours"})

PEER_ROUNDS = 3


class Unmeasured(Exception):  # noqa: N818 - a state, like Missing
    """A contender ran, but yielded no figure. The message says why."""


class Process(Protocol):
    """A contender in its own process."""

    async def ask(self, **request: object) -> Sample:
        """Send a request and return its measurements."""
        ...


class Faults(Protocol):
    """Faults for nodes that the runner has started."""

    def pause(self, i: int, /) -> object:
        """Freeze that node."""
        ...

    def resume(self, i: int, /) -> object:
        """Resume the node; it processes the requests sent in the meantime."""
        ...

    def kill(self, i: int, /) -> object:
        """Kill the node; its data is lost."""
        ...

    def restart(self, i: int, /) -> object:
        """Restart the node without data."""
        ...


@dataclass(frozen=True, slots=True)
class Setting:
    """The nodes that a scenario needs."""

    nodes: int | None = None
    """Number of nodes to start for it; None uses the given ones."""
    round_trip_ms: float = 0.0
    """The network round trip."""
    faults: bool = False
    """Whether faults are injected."""
    alone: bool = False
    """Whether one contender must have the nodes exclusively, because their commands are counted."""

    @property
    def own(self) -> bool:
        """Whether the scenario needs its own nodes."""
        return self.nodes is not None


@dataclass(frozen=True, slots=True)
class Stage:
    """The resources of a scenario for one contender's round."""

    processes: Sequence[Process]
    urls: Sequence[str]
    cluster: Faults | None = None
    """Only set in a setting with faults."""

    @property
    def faults(self) -> Faults:
        """The cluster of a setting with faults."""
        assert self.cluster is not None  # noqa: S101 - a setting with faults has one
        return self.cluster


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of a scenario."""

    key: str
    label: str
    unit: str
    faster_is_more: bool = False


P50 = Figure("p50", "p50", "µs")
P99 = Figure("p99", "p99", "µs")
RATE = Figure("rate", "rate", "pairs/s", faster_is_more=True)


class Scenario(ABC):
    """One task, the same for every contender."""

    name: str
    title: str
    figures: tuple[Figure, ...]
    setting = Setting()
    group: str | None = None
    """The group of scenarios that differ in one number only."""
    at: float | None = None
    """The number that differs."""
    needs: str | None = None
    """The ability that a contender needs beyond acquire and release."""
    processes = 1
    """Number of processes per contender."""
    least = 0.0
    """Minimum seconds of a meaningful round."""
    most_rounds: int | None = None
    """Maximum number of rounds, if a round takes seconds."""
    peer_rounds = PEER_ROUNDS
    usual: frozenset[str] | None = None
    """The contenders it runs with unless contenders are named; None means all."""

    def fits(self, entry: Entry) -> bool:
        """Return whether that contender has the needed ability."""
        return self.needs is None or self.needs in entry.can

    def rounds(self, entry: Entry, wanted: int, *, named: bool) -> int:
        """Return the number of rounds for that contender; a contender chosen by name gets as many as ours."""
        most = min(wanted, self.most_rounds or wanted)
        return most if named or entry.name in US else min(most, self.peer_rounds)

    @abstractmethod
    async def measure(self, stage: Stage, seconds: float) -> Sample:
        """Measure one round of one contender."""


_numbers = count()


def fresh(what: str) -> str:
    """Return an unused name, so that rounds do not affect each other."""
    return f"bench:{what}:{time.time_ns():x}:{next(_numbers)}"
