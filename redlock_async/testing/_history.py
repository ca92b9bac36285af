"""What was held when, and whether that can be: the judge of simulated and of real runs alike. No I/O, no clock."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

SHARED = {"read"}
"""Kinds of lock that several may hold at once, while nobody holds another kind."""


@dataclass(frozen=True, slots=True)
class Hold:
    """One lease on one name, from the moment its holder knew of it to the moment it stopped being valid.

    A lease on several slots of a semaphore is as many of these.

    All times are on one clock, the observer's.
    """

    name: str
    holder: str
    start: float
    end: float
    fence: int | None = None
    kind: str = "lock"
    """`lock`, `fair`, `read`, `write` or `semaphore`."""
    slot: int | None = None
    """Of a semaphore: which of its slots it is."""
    permits: int = 1
    """Of a semaphore: how many may hold it."""

    def __str__(self) -> str:
        slot = "" if self.slot is None else f" slot {self.slot}"
        fence = "" if self.fence is None else f" fence {self.fence}"
        return f"{self.holder} held {self.kind} {self.name!r}{slot} from {self.start:.6f} to {self.end:.6f}{fence}"


@dataclass(frozen=True, slots=True)
class Violation:
    """A promise that was broken, and by whom."""

    promise: str
    """`exclusion`, `fence`, `orphan`, `body`, `liveness`, `order`, `latch` or `period`."""
    what: str

    def __str__(self) -> str:
        return f"{self.promise}: {self.what}"


def judge(holds: Iterable[Hold]) -> list[Violation]:
    """Every overlap and every fence out of order among those holds."""
    found: list[Violation] = []
    for _, of_name in groupby(sorted(holds, key=attrgetter("name", "start", "end")), key=attrgetter("name")):
        alike = list(of_name)
        found += overlaps(alike)
        found += inversions(alike)
    return found


def overlaps(holds: Iterable[Hold]) -> Iterator[Violation]:
    """Holds of one name, in the order of their start, that cannot have been valid together."""
    standing: list[Hold] = []
    for hold in holds:
        standing = [other for other in standing if other.end > hold.start]
        if hold.end <= hold.start:
            continue  # over before anybody could rely on it
        for other in standing:
            if _exclude(hold, other):
                yield Violation("exclusion", f"{other}; meanwhile {hold}")
        standing.append(hold)
        slots = [other for other in standing if other.kind == "semaphore"]
        # While an operator changes the number, some hold under the old one and some under the new.
        permits = max((other.permits for other in slots), default=1)
        if hold.kind == "semaphore" and len(slots) > permits:
            yield Violation("exclusion", f"{len(slots)} hold {permits} permits: {'; '.join(map(str, standing))}")


def _exclude(one: Hold, other: Hold) -> bool:
    if one.kind == "semaphore" or other.kind == "semaphore":
        return one.kind == other.kind and one.slot is not None and one.slot == other.slot
    return not (one.kind in SHARED and other.kind in SHARED)


def inversions(holds: Iterable[Hold]) -> Iterator[Violation]:
    """Holds of one name, in the order of their start, whose fences do not grow as they must."""
    highest: dict[tuple[bool, int | None], Hold] = {}
    for hold in holds:
        if hold.fence is None:
            continue
        shared = hold.kind in SHARED
        # A reader's orders it against writers; among themselves readers may come in any order, and tie.
        for others in (False,) if shared else (False, True):
            before = highest.get((others, hold.slot))
            if before is not None and before.end <= hold.start and hold.fence <= (before.fence or 0):
                yield Violation("fence", f"{before}; after it {hold}")
        before = highest.get((shared, hold.slot))
        if before is None or hold.fence > (before.fence or 0):
            highest[shared, hold.slot] = hold
