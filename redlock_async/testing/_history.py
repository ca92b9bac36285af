"""Histories of held leases, and a check of them for simulated and real runs. No I/O, no clock."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

SHARED = {"read"}
"""Kinds of lock that several holders may share, as long as no other kind is held."""


@dataclass(frozen=True, slots=True)
class HeldInterval:
    """One lease on one name, from the moment its holder knew of it to the moment it stopped being valid.

    A lease on several slots of a semaphore has one interval per slot. All times are on the observer's clock.
    """

    name: str
    holder: str
    start: float
    end: float
    fence: int | None = None
    kind: str = "lock"
    """`lock`, `fair`, `read`, `write` or `semaphore`."""
    slot: int | None = None
    """The slot, for a semaphore."""
    permits: int = 1
    """The number of slots, for a semaphore."""

    def __str__(self) -> str:
        slot = "" if self.slot is None else f" slot {self.slot}"
        fence = "" if self.fence is None else f" fence {self.fence}"
        return f"{self.holder} held {self.kind} {self.name!r}{slot} from {self.start:.6f} to {self.end:.6f}{fence}"


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken invariant, and the leases that broke it."""

    invariant: str
    """`exclusion`, `fence`, `orphan`, `body`, `liveness`, `order`, `latch`, `period` or `error`."""
    what: str

    def __str__(self) -> str:
        return f"{self.invariant}: {self.what}"


def check_history(holds: Iterable[HeldInterval]) -> list[Violation]:
    """Return every overlap of exclusive leases and every fencing token out of order."""
    found: list[Violation] = []
    for _, group in groupby(sorted(holds, key=attrgetter("name", "start", "end")), key=attrgetter("name")):
        same_name = list(group)
        found += overlaps(same_name)
        found += inversions(same_name)
    return found


def overlaps(holds: Iterable[HeldInterval]) -> Iterator[Violation]:
    """Overlaps that must not occur among holds of one name, given in the order of their start."""
    active: list[HeldInterval] = []
    for hold in holds:
        active = [other for other in active if other.end > hold.start]
        if hold.end <= hold.start:
            continue  # it had ended before its holder could rely on it
        for other in active:
            if _exclude(hold, other):
                yield Violation("exclusion", f"{other}; meanwhile {hold}")
        active.append(hold)
        slots = [other for other in active if other.kind == "semaphore"]
        # While an operator changes the number of permits, some leases count under the old one and some under the new.
        permits = max((other.permits for other in slots), default=1)
        if hold.kind == "semaphore" and len(slots) > permits:
            yield Violation("exclusion", f"{len(slots)} hold {permits} permits: {'; '.join(map(str, active))}")


def _exclude(one: HeldInterval, other: HeldInterval) -> bool:
    if one.kind == "semaphore" or other.kind == "semaphore":
        return one.kind == other.kind and one.slot is not None and one.slot == other.slot
    return not (one.kind in SHARED and other.kind in SHARED)


def inversions(holds: Iterable[HeldInterval]) -> Iterator[Violation]:
    """Fencing tokens that do not increase among holds of one name, given in the order of their start."""
    highest: dict[tuple[bool, int | None], HeldInterval] = {}
    for hold in holds:
        if hold.fence is None:
            continue
        shared = hold.kind in SHARED
        # A reader's token is ordered against writers only: readers may have equal tokens, in any order.
        for others in (False,) if shared else (False, True):
            before = highest.get((others, hold.slot))
            if before is not None and before.end <= hold.start and hold.fence <= (before.fence or 0):
                yield Violation("fence", f"{before}; after it {hold}")
        before = highest.get((shared, hold.slot))
        if before is None or hold.fence > (before.fence or 0):
            highest[shared, hold.slot] = hold
