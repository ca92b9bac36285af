"""The counting semaphore: its commands and replies, and which slots to ask for.

Each of the `permits` slots is a Redlock of its own, and votes count only for the same slots: never more than `permits`
are held, each with a quorum. Letting each node count its holders would be wrong: with 5 nodes and 2 permits there are
10 places, and 3 holders that have a majority of the nodes each need only 9.

A client that wants several slots takes them on each node all or none, as a lock on several names does. It never waits
for some slots while it holds others, so clients that want many cannot deadlock.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import chain, islice
from typing import ClassVar
from zlib import crc32

from redlock_async._rounds.context import Context
from redlock_async._rules.keys import Keys
from redlock_async._transport.commands import Call, Command, DeleteIfEqual
from redlock_async.errors import ConfigurationError, short_repr

from .kind import RESERVATION_MS, RESERVATION_REFRESH, Attempt, LockKind, Refusal
from .mutex import seconds

MOST_PERMITS = 1000
"""A client that finds a slot taken reads all of them, in one script that no other client can interrupt. Known to
semaphore_acquire.lua too."""

MAX_LOST_RACES = 3
"""Slots in a row that seemed free and were lost to others, after which it is better to wait a moment."""

WAITS_BEFORE_RESERVATION = 16
"""Failed waits after which a waiter for several slots holds back those that want fewer. They would overtake it forever,
taking each slot as it is freed, before there are enough."""

LONGEST_WAIT_BEFORE_RESERVATION = 3.0
"""Seconds after which it does so at the latest, behind holders that keep their slots for long."""

RESERVATION_PAUSE = 2 * RESERVATION_REFRESH
"""Seconds from when a waiter was held back itself until it holds back others. Each refresh holds it back again, so
waiters for few slots have a moment between two that want many; otherwise they would wait while there are any."""


@dataclass(frozen=True, slots=True)
class SlotsTaken(Refusal):
    """A slot that was wanted is taken: its holder, when enough slots will have expired, and which slots are free."""

    free: tuple[int, ...] = ()
    bound: int = 0
    """The number of permits that the node remembers, if it must see as many slots before it can forget that."""
    enough_in: float | None = None
    """Seconds until enough slots have expired; `expires_in` is sooner if others are to be held back before."""

    @property
    def ends_in(self) -> float | None:
        return self.enough_in


@dataclass(frozen=True, slots=True)
class ReservedAhead(SlotsTaken):
    """Another waiter comes first: one that wants more, or the first to reserve of the waiters that want as many."""

    ahead: ClassVar[bool] = True


class Slots(LockKind):
    """Slots of a semaphore: how many are wanted, and of a lease which ones they are."""

    __slots__ = (
        "count",
        "fenced",
        "keeps_local_turn",
        "keys",
        "local_queue_keys",
        "names",
        "permits",
        "permits_key",
        "probe_hash",
        "reservation",
        "slots",
        "watched_keys",
    )  # fmt: skip

    label: ClassVar[str] = "semaphore"

    def __init__(self, keys: Keys, name: str, permits: int, *, fenced: bool, slots: tuple[int, ...] = (0,)) -> None:
        check_permits(permits)
        self.names = (name,)
        self.permits = permits
        self.fenced = fenced
        self.keys = keys
        self.permits_key, self.reservation = keys.semaphore(name)
        self.watched_keys = (*self.slot_keys(permits), self.reservation, self.permits_key)
        self.probe_hash = crc32(self.permits_key)
        self._want(slots)

    def _want(self, slots: tuple[int, ...]) -> None:
        self.slots = slots
        self.count = len(slots)
        self.keeps_local_turn = self.count == self.permits  # then none is left for the other tasks of the process
        # A waiter for few slots need not wait behind one for many, nor one with a new number of permits behind those
        # with the old one.
        self.local_queue_keys = (b"%s %d of %d" % (self.permits_key, self.count, self.permits),)

    def with_count(self, count: int) -> Slots:
        """Return the kind that wants `count` slots."""
        if isinstance(count, bool) or not isinstance(count, int):
            raise ConfigurationError(f"count must be a whole number, got {short_repr(count)}")
        if not 1 <= count <= self.permits:
            raise ConfigurationError(
                f"count must be from 1 to the semaphore's {self.permits} permits, got {short_repr(count)}"
            )
        return self if count == self.count else self.with_slots(tuple(range(count)))

    def with_slots(self, slots: tuple[int, ...]) -> Slots:
        """Return the kind of a lease on these slots."""
        other = copy(self)
        other._want(slots)  # noqa: SLF001 - a copy of ourselves
        return other

    def slot_keys(self, number: int) -> tuple[bytes, ...]:
        """Return the keys of the first `number` slots."""
        return tuple(b"%s:%d" % (self.permits_key, slot) for slot in range(number))

    def start(self, context: Context) -> Attempt:
        return SlotsAttempt(self, context.now)

    def held_by(self, token: bytes) -> tuple[bytes, ...]:  # noqa: ARG002 - a slot has one holder
        return tuple(self.watched_keys[slot] for slot in self.slots)

    @property
    def fence_keys(self) -> tuple[bytes, ...]:
        """The fence register of all slots, unless the lock is not fenced."""
        return (self.keys.fence(self.permits_key),) if self.fenced else ()

    @property
    def state_count(self) -> int:
        return self.count

    def release(self, token: bytes) -> Command:
        keys = self.held_by(token)
        return DeleteIfEqual(keys[0], token) if self.count == 1 else Call("mutex_release", self.count, *keys, token, 0)

    def release_after(self, token: bytes, ms: int) -> Command:
        keys = (self.permits_key, *self.held_by(token))
        return Call("semaphore_retain", len(keys), *keys, token, ms, self.permits)

    def reassert(self, token: bytes, fence: int | None, ttl_ms: int) -> Command:
        keys, arguments = (self.permits_key, *self.held_by(token)), (self.count, token, ttl_ms, self.permits)
        if fence is None:
            return Call("semaphore_reassert", len(keys), *keys, *arguments)
        return Call("semaphore_reassert", len(keys) + 1, *keys, *self.fence_keys, *arguments, fence)

    @classmethod
    def extend(cls, held: Sequence[tuple[LockKind, bytes, int]]) -> Command:
        keys: list[bytes] = []
        arguments: list[bytes | int] = []
        for kind, token, ttl_ms in held:
            assert isinstance(kind, Slots)  # noqa: S101 - a batch is of one kind
            for key in kind.held_by(token):
                keys += (key, kind.permits_key)
                arguments += (token, ttl_ms, kind.permits)
        return Call("semaphore_extend", len(keys), *keys, *arguments)

    def details(self) -> dict[str, object]:
        return {"permits": self.permits, "slots": list(self.slots)}


class SlotsAttempt(Attempt):
    """One acquire of slots: which to ask for, and when to hold back clients that want fewer."""

    __slots__ = (
        "_candidates", "_free", "_kind", "_known", "_mark", "_not_before", "_now", "_races", "_reserve_at", "_slots",
        "_waits", "lost_races", "watched_keys",
    )  # fmt: skip

    def __init__(self, kind: Slots, now: Callable[[], float]) -> None:
        self._kind = kind
        self.watched_keys = kind.watched_keys
        self._now = now
        self._slots = kind.slots
        """The slots that were asked for last."""
        self._known = kind.slot_keys(kind.permits)
        """The keys of all slots that a node must see before it can forget a larger number of permits."""
        self._candidates: Sequence[int] = range(kind.permits)
        """Which slots to try next."""
        self._free: dict[int, tuple[int, ...]] = {}
        """Which slots each node has said to be free since the last wait."""
        self._races = 0
        self.lost_races = False
        self._waits = 0
        self._mark = b""
        """The value of our reservation, once there is one."""
        self._reserve_at = now() + LONGEST_WAIT_BEFORE_RESERVATION if kind.count > 1 else math.inf
        """When to leave the reservation, or to refresh it."""
        self._not_before = -math.inf
        """Until when others may take slots before a reservation of ours, which is due by then, stops them."""

    def granted_kind(self) -> LockKind:
        return self._kind.with_slots(self._slots)

    @property
    def may_probe(self) -> bool:
        # An attempt that leaves a reservation is wanted on all nodes.
        return self._now() < self._reservation_due

    @property
    def _reservation_due(self) -> float:
        return max(self._reserve_at, self._not_before)

    # Which slots

    def _choose(self, token: bytes) -> tuple[int, ...]:
        # The token is random, and so is the choice, which spreads the contenders.
        kind, likely, number = self._kind, self._candidates, crc32(token)
        self._candidates = range(kind.permits)
        start = number % len(likely)
        if kind.count == 1:
            return (likely[start],)
        wanted = dict.fromkeys((*likely[start:], *likely[:start]))
        start = number % kind.permits
        wanted.update(dict.fromkeys((*range(start, kind.permits), *range(start))))
        return tuple(islice(wanted, kind.count))

    def retry_now(self, refusals: Mapping[int, Refusal], spare: int) -> bool:
        taken = {node: refusal for node, refusal in refusals.items() if isinstance(refusal, SlotsTaken)}
        bound = max((refusal.bound for refusal in taken.values()), default=0)
        if bound > len(self._known):
            self._known = self._kind.slot_keys(bound)
            return True
        self._free.update((node, refusal.free) for node, refusal in taken.items())
        votes = Counter(chain.from_iterable(self._free.values()))
        # Taken on no more of the nodes that replied than a quorum can spare: what some of them hold may be leftovers.
        likely = [slot for slot, count in votes.items() if len(self._free) - count <= spare]
        wanted = self._kind.count
        if len(likely) >= wanted and self._races < MAX_LOST_RACES:
            self._races += 1
            most = max(votes.values())
            best = [slot for slot in likely if votes[slot] == most]
            self._candidates = best if len(best) >= wanted else likely
            return True
        if wanted > 1:
            self._waits += 1
            if self._waits == WAITS_BEFORE_RESERVATION:
                self._reserve_at = min(self._reserve_at, self._now())
            if likely:
                self._candidates = likely  # and those that are freed meanwhile
        self.lost_races = len(likely) >= wanted
        self._races = 0
        self._free.clear()
        return False

    def key_changed(self, key: bytes) -> None:
        if key in {self._kind.reservation, self._kind.permits_key}:
            return
        slot = int(key.rpartition(b":")[2])
        if isinstance(self._candidates, range):
            self._candidates = [slot]
        elif slot not in self._candidates:
            self._candidates = [*self._candidates, slot]

    # Commands and replies

    def first_command(self, token: bytes, ttl_ms: int, candidate: int) -> Command:
        return self._ask(token, ttl_ms, candidate)

    def retry_command(self, token: bytes, ttl_ms: int, candidate: int) -> Command:
        now = self._now()
        if now < self._reservation_due:
            return self._ask(token, ttl_ms, candidate)
        self._reserve_at = now + RESERVATION_REFRESH
        self._mark = self._mark or b"%d:%b" % (self._kind.count, token)
        return self._ask(token, ttl_ms, candidate, RESERVATION_MS)

    def _ask(self, token: bytes, ttl_ms: int, candidate: int, reserve_ms: int = 0) -> Command:
        kind, known = self._kind, self._known
        self._slots = slots = self._choose(token)
        keys = (kind.permits_key, kind.reservation, *known, *kind.fence_keys)
        arguments = (kind.permits, len(known), token, ttl_ms, candidate, self._mark, reserve_ms)
        return Call("semaphore_acquire", len(keys), *keys, *arguments, *slots)

    def refusal(self, reply: object) -> Refusal:
        assert isinstance(reply, list)  # noqa: S101 - semaphore_acquire.lua
        if len(reply) == 1:
            (bound,) = reply
            if type(bound) is not int or not 1 <= bound <= MOST_PERMITS:
                raise ValueError(f"permits must be from 1 to {MOST_PERMITS}")
            return SlotsTaken(None, None, bound=bound)
        holder, ttl_ms, *free = reply
        ahead = type(holder) is int
        expires_in = ends_in = seconds(ttl_ms)
        if expires_in is not None:
            now = self._now()
            due = max(self._reservation_due, now + RESERVATION_PAUSE) if ahead else self._reservation_due
            expires_in = min(expires_in, max(due - now, 0.0))
        if ahead:
            (mark,) = free
            return ReservedAhead(mark.partition(b":")[2], expires_in, enough_in=ends_in)
        in_range = {*map(type, free)} <= {int} and (not free or 0 <= min(free) <= max(free) < self._kind.permits)
        if holder is None or not in_range:
            raise ValueError("a holder and free slots are needed")
        return SlotsTaken(holder, expires_in, enough_in=ends_in, free=tuple(free))

    def on_refusal(self, refusal: Refusal) -> None:
        if isinstance(refusal, ReservedAhead):
            # When that waiter is in, others have a moment before the next one reserves.
            self._not_before = self._now() + RESERVATION_PAUSE

    def cleanup(self) -> Command | None:
        return DeleteIfEqual(self._kind.reservation, self._mark) if self._mark else None


def check_permits(permits: object) -> None:
    """Raise ConfigurationError unless a semaphore can have that many permits."""
    if isinstance(permits, bool) or not isinstance(permits, int):
        raise ConfigurationError(f"permits must be a whole number, got {short_repr(permits)}")
    if not 1 <= permits <= MOST_PERMITS:
        raise ConfigurationError(f"permits must be from 1 to {MOST_PERMITS}, got {short_repr(permits)}")


def from_details(keys: Keys, names: Sequence[str], details: Mapping[str, object], *, fenced: bool) -> Slots:
    """Return the kind of a detached lease."""
    permits, slots = details.get("permits"), details.get("slots")
    if not (
        isinstance(permits, int)
        and isinstance(slots, list)
        and slots
        and all(type(slot) is int and 0 <= slot < permits for slot in slots)
        and len({*slots}) == len(slots)
    ):
        raise ConfigurationError(f"not what Lease.detach() stores of a semaphore: {short_repr(details)}")
    return Slots(keys, names[0], permits, fenced=fenced, slots=tuple(slots))
