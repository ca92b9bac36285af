"""Some slots of a counting semaphore: the words for the nodes, and which slots to ask for. No I/O.

Each of the `permits` slots is a Redlock of its own, and votes count only for the same slots: never more than `permits`
are held, each with a quorum. To let each node count its holders would be wrong: with 5 nodes and 2 permits there are 10
places, and 3 holders that have a majority of the nodes each need only 9.

Who wants several takes them on each node all or none, as a lock on several names does: nobody waits for some while it
has others, so that those who want many cannot deadlock.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import chain, islice
from typing import ClassVar, Self
from zlib import crc32

from ._claim import HINT_MS, REFRESH, Claim, Ground, Held
from ._errors import ConfigurationError, shown
from ._keys import Keys
from ._scripts import Call, Command, DeleteIfEqual

MOST_PERMITS = 1000
"""Who finds a slot taken reads them all, in one script that no other client of the server can interrupt. Known to
semaphore_acquire.lua too."""

RACES = 3
"""Slots in a row that seemed free and were lost to others, after which it is better to wait a moment."""

PATIENCE = 16
"""Waits in vain after which one who wants several slots holds back those who want fewer: they would pass it for ever,
taking each slot as it is freed, before there are enough."""

LONGEST_PATIENCE = 3.0
"""Seconds after which it does so at the latest, behind holders that keep their slots for long."""

PAUSE = 2 * REFRESH
"""Seconds after one was held back itself until it holds back others. It is so again at each refresh, and that leaves
those who want few a moment between two who want many: else they would wait for as long as there are any of these."""


@dataclass(frozen=True, slots=True)
class Taken(Held):
    """A refusal: who holds a slot that was wanted, when so many will have expired that there are enough, and which are
    free."""

    free: tuple[int, ...] = ()
    bound: int = 0
    """The number of permits that node remembers, when it must see as many slots before it can forget it."""
    enough_in: float | None = None
    """Seconds until then, where `expires_in` is sooner: when to hold others back."""

    @property
    def ends_in(self) -> float | None:
        return self.enough_in


@dataclass(frozen=True, slots=True)
class Ahead(Taken):
    """A refusal: somebody waits who comes first. Who wants more does, and of those who want as many one does."""

    ahead: ClassVar[bool] = True


class Slots(Claim):
    """So many of a semaphore's slots, whichever they are, until some are won; then those."""

    __slots__ = (
        "_bound", "_candidates", "_free", "_hint", "_hint_at", "_keys", "_mark", "_not_before", "_now", "_races",
        "_seen", "_waits", "count", "exclusive", "fenced", "lost_races", "names", "permits", "preference", "slots",
        "turns", "watched",
    )  # fmt: skip

    kind: ClassVar[str] = "semaphore"

    def __init__(self, keys: Keys, name: str, permits: int, *, fenced: bool, slots: tuple[int, ...] = (0,)) -> None:
        check_permits(permits)
        self.names = (name,)
        self.permits = permits
        self.fenced = fenced
        self._keys = keys
        self._bound, self._hint = keys.semaphore(name)
        self._seen = tuple(b"%s:%d" % (self._bound, number) for number in range(permits))
        self.watched = (*self._seen, self._hint, self._bound)
        self.preference = crc32(self._bound)
        self._want(slots)

    def _want(self, slots: tuple[int, ...]) -> None:
        self.slots = slots
        self.count = len(slots)
        self.exclusive = self.count == self.permits  # then there is none left for the others of the process
        # Who wants fewer need not wait for those who want many, nor one under a new number for those under the old one.
        self.turns = (b"%s %d of %d" % (self._bound, self.count, self.permits),)
        self._start()

    def wanting(self, count: int) -> Slots:
        """The same for so many slots."""
        if isinstance(count, bool) or not isinstance(count, int):
            raise ConfigurationError(f"count is a whole number, not {shown(count)}")
        if not 1 <= count <= self.permits:
            raise ConfigurationError(
                f"count must be from 1 to the semaphore's {self.permits} permits, not {shown(count)}"
            )
        if count == self.count:
            return self
        other = copy(self)
        other._want(tuple(range(count)))  # noqa: SLF001 - a copy of ourselves
        return other

    def _start(self) -> None:
        self._candidates: Sequence[int] = range(self.permits)
        """Where to try next."""
        self._free: dict[int, tuple[int, ...]] = {}
        """Which slots each node has said to be free since the last wait."""
        self._races = 0
        self.lost_races = False
        self._waits = 0
        self._mark = b""
        """What our hint holds, once we have left one."""
        self._hint_at = math.inf
        """When to leave it, or to keep it alive."""
        self._not_before = -math.inf
        """When that is due: until then those who want fewer have their moment."""

    def begin(self, ground: Ground) -> Self:
        mine = copy(self)
        mine._begin(ground.now)  # noqa: SLF001 - a copy of ourselves
        return mine

    def _begin(self, now: Callable[[], float]) -> None:
        self._start()
        self._now = now
        if self.count > 1:
            self._hint_at = now() + LONGEST_PATIENCE

    @property
    def probes(self) -> bool:
        # An attempt that leaves a hint is wanted on all nodes.
        return self._now() < self._hint_due

    @property
    def _hint_due(self) -> float:
        return max(self._hint_at, self._not_before)

    def held_by(self, token: bytes) -> tuple[bytes, ...]:  # noqa: ARG002 - one holder a slot
        return tuple(self.watched[slot] for slot in self.slots)

    # Which slots

    def _choose(self, token: bytes) -> None:
        # The token is random, and so the choice is: contenders spread.
        likely, number = self._candidates, crc32(token)
        self._candidates = range(self.permits)
        start = number % len(likely)
        if self.count == 1:
            self.slots = (likely[start],)
            return
        wanted = dict.fromkeys((*likely[start:], *likely[:start]))
        start = number % self.permits
        wanted.update(dict.fromkeys((*range(start, self.permits), *range(start))))
        self.slots = tuple(islice(wanted, self.count))

    def again(self, refusals: Mapping[int, Held], spare: int) -> bool:
        told = {node: held for node, held in refusals.items() if isinstance(held, Taken)}
        bound = max((held.bound for held in told.values()), default=0)
        if bound > len(self._seen):
            self._seen = tuple(b"%s:%d" % (self._bound, number) for number in range(bound))
            return True
        self._free.update((node, held.free) for node, held in told.items())
        votes = Counter(chain.from_iterable(self._free.values()))
        # Taken on no more of those that told than a quorum can do without: some of them may only have been left behind.
        likely = [slot for slot, count in votes.items() if len(self._free) - count <= spare]
        if len(likely) >= self.count and self._races < RACES:
            self._races += 1
            most = max(votes.values())
            best = [slot for slot in likely if votes[slot] == most]
            self._candidates = best if len(best) >= self.count else likely
            return True
        if self.count > 1:
            self._waits += 1
            if self._waits == PATIENCE:
                self._hint_at = min(self._hint_at, self._now())
            if likely:
                self._candidates = likely  # and those that are freed meanwhile
        self.lost_races = len(likely) >= self.count
        self._races = 0
        self._free.clear()
        return False

    def changed(self, key: bytes) -> None:
        if key in {self._hint, self._bound}:
            return
        slot = int(key.rpartition(b":")[2])
        if isinstance(self._candidates, range):
            self._candidates = [slot]
        elif slot not in self._candidates:
            self._candidates = [*self._candidates, slot]

    # Words for the nodes

    def acquire(self, token: bytes, ttl_ms: int, candidate: int) -> Command:
        return self._ask(token, ttl_ms, candidate)

    def contend(self, token: bytes, ttl_ms: int, candidate: int) -> Command:
        now = self._now()
        if now < self._hint_due:
            return self._ask(token, ttl_ms, candidate)
        self._hint_at = now + REFRESH
        self._mark = self._mark or b"%d:%b" % (self.count, token)
        return self._ask(token, ttl_ms, candidate, HINT_MS)

    def _ask(self, token: bytes, ttl_ms: int, candidate: int, hint_ms: int = 0) -> Command:
        self._choose(token)
        seen = self._seen
        keys = (self._bound, self._hint, *seen, *self._registers()) if self.fenced else (self._bound, self._hint, *seen)
        words = (self.permits, len(seen), token, ttl_ms, candidate, self._mark, hint_ms)
        return Call("semaphore_acquire", len(keys), *keys, *words, *self.slots)

    def _registers(self) -> tuple[bytes, ...]:
        return tuple(self._keys.fence(self.watched[slot]) for slot in self.slots)

    def release(self, token: bytes) -> Command:
        if self.count == 1:
            return DeleteIfEqual(self.watched[self.slots[0]], token)
        return Call("mutex_release", self.count, *self.held_by(token), token, 0)

    def retain(self, token: bytes, ms: int) -> Command:
        keys = (self._bound, *self.held_by(token))
        return Call("semaphore_retain", len(keys), *keys, token, ms, self.permits)

    def secure(self, token: bytes, fence: int | None, ttl_ms: int) -> Command:
        keys, words = (self._bound, *self.held_by(token)), (self.count, token, ttl_ms, self.permits)
        if fence is None:
            return Call("semaphore_secure", len(keys), *keys, *words)
        return Call("semaphore_secure", len(keys) + self.count, *keys, *self._registers(), *words, fence)

    @classmethod
    def extend(cls, held: Sequence[tuple[Claim, bytes, int]]) -> Command:
        keys: list[bytes] = []
        arguments: list[bytes | int] = []
        for claim, token, ttl_ms in held:
            assert isinstance(claim, Slots)  # noqa: S101 - those of one kind go together
            for key in claim.held_by(token):
                keys += (key, claim._bound)  # noqa: SLF001 - of this very class
                arguments += (token, ttl_ms, claim.permits)
        return Call("semaphore_extend", len(keys), *keys, *arguments)

    def withdraw(self) -> Command | None:
        return DeleteIfEqual(self._hint, self._mark) if self._mark else None

    def details(self) -> dict[str, object]:
        return {"permits": self.permits, "slots": list(self.slots)}

    # What they answer

    @property
    def width(self) -> int:
        return self.count

    def refusal(self, reply: object) -> Held:
        assert isinstance(reply, list)  # noqa: S101 - semaphore_acquire.lua
        if len(reply) == 1:
            (bound,) = reply
            if type(bound) is not int or not 1 <= bound <= MOST_PERMITS:
                raise ValueError
            return Taken(None, None, bound=bound)
        holder, ttl_ms, *free = reply
        ahead = type(holder) is int
        if ahead:
            # When that one is in, others have a moment before the next is.
            self._not_before = self._now() + PAUSE
        expires_in = ends_in = ttl_ms / 1000 if ttl_ms >= 0 else None
        if expires_in is not None:
            expires_in = min(expires_in, max(self._hint_due - self._now(), 0.0))
        if ahead:
            (hint,) = free
            return Ahead(hint.partition(b":")[2], expires_in, enough_in=ends_in)
        numbers = {*map(type, free)} <= {int} and (not free or 0 <= min(free) <= max(free) < self.permits)
        if holder is None or not numbers:
            raise ValueError
        return Taken(holder, expires_in, enough_in=ends_in, free=tuple(free))


def check_permits(permits: object) -> None:
    """Raise unless a semaphore can have so many."""
    if isinstance(permits, bool) or not isinstance(permits, int):
        raise ConfigurationError(f"permits is a whole number, not {shown(permits)}")
    if not 1 <= permits <= MOST_PERMITS:
        raise ConfigurationError(f"permits must be from 1 to {MOST_PERMITS}, not {shown(permits)}")


def detached(keys: Keys, names: Sequence[str], details: Mapping[str, object], *, fenced: bool) -> Slots:
    """The claim of a lease that was handed on."""
    permits, taken = details.get("permits"), details.get("slots")
    if not (
        isinstance(permits, int)
        and isinstance(taken, list)
        and taken
        and all(type(slot) is int and 0 <= slot < permits for slot in taken)
        and len({*taken}) == len(taken)
    ):
        raise ConfigurationError(f"not what Lease.detach() says of a semaphore's slots: {shown(details)}")
    return Slots(keys, names[0], permits, fenced=fenced, slots=tuple(taken))
