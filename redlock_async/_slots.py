"""One slot of a counting semaphore: its words for the nodes, and which slot to ask for. No I/O.

Each of the `permits` slots is a Redlock of its own, and votes count only for the same slot: never more than `permits`
hold, each with a quorum. To let each node count its holders would be wrong: with 5 nodes and 2 permits there are 10
places, and 3 holders that have a majority of the nodes each need only 9.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import chain
from typing import ClassVar, Self
from zlib import crc32

from ._claim import Claim, Ground, Held
from ._errors import ConfigurationError, shown
from ._keys import Keys
from ._scripts import Call, Command, DeleteIfEqual

MOST_PERMITS = 1000
"""Who finds a slot taken reads them all, in one script that no other client of the server can interrupt. Known to
semaphore_acquire.lua too."""

RACES = 3
"""Slots in a row that seemed free and were lost to others, after which it is better to wait a moment."""


@dataclass(frozen=True, slots=True)
class Taken(Held):
    """A refusal: who holds the slot that was wanted, when the first of those taken expires, and which are free."""

    free: tuple[int, ...] = ()
    bound: int = 0
    """The number of permits that node remembers, when it must see as many slots before it can forget it."""


class Slots(Claim):
    """Any one of a semaphore's slots, until one is won; then that one."""

    __slots__ = (
        "_bound", "_candidates", "_free", "_keys", "_races", "_seen", "fenced", "names", "permits", "preference",
        "slot", "turns", "watched",
    )  # fmt: skip

    kind: ClassVar[str] = "semaphore"
    exclusive: ClassVar[bool] = False

    def __init__(self, keys: Keys, name: str, permits: int, *, fenced: bool, slot: int = 0) -> None:
        if isinstance(permits, bool) or not isinstance(permits, int):
            raise ConfigurationError(f"permits is a whole number, not {shown(permits)}")
        if not 1 <= permits <= MOST_PERMITS:
            raise ConfigurationError(f"permits must be from 1 to {MOST_PERMITS}, not {shown(permits)}")
        self.names = (name,)
        self.permits = permits
        self.fenced = fenced
        self._keys = keys
        self._bound = keys.semaphore(name)
        self.turns = (self._bound,)
        self.watched = self._seen = tuple(b"%s:%d" % (self._bound, number) for number in range(permits))
        self.preference = crc32(self._bound)
        self.slot = slot
        self._start()

    def _start(self) -> None:
        self._candidates: Sequence[int] = range(self.permits)
        """Where to try next."""
        self._free: dict[int, tuple[int, ...]] = {}
        """Which slots each node has said to be free since the last wait."""
        self._races = 0

    def begin(self, ground: Ground) -> Self:  # noqa: ARG002 - Claim's signature
        mine = copy(self)
        mine._start()  # noqa: SLF001 - a copy of ourselves
        return mine

    @property
    def _key(self) -> bytes:
        return self.watched[self.slot]

    def held_by(self, token: bytes) -> tuple[bytes, ...]:  # noqa: ARG002 - one holder a slot
        return (self._key,)

    # Which slot

    def _choose(self, token: bytes) -> None:
        # The token is random, and so the choice is: contenders spread.
        self.slot = self._candidates[crc32(token) % len(self._candidates)]
        self._candidates = range(self.permits)

    def again(self, refusals: Mapping[int, Held], needed: int) -> bool:  # noqa: ARG002 - most of those that told will do
        told = {node: held for node, held in refusals.items() if isinstance(held, Taken)}
        bound = max((held.bound for held in told.values()), default=0)
        if bound > len(self._seen):
            self._seen = tuple(b"%s:%d" % (self._bound, number) for number in range(bound))
            return True
        self._free.update((node, held.free) for node, held in told.items())
        votes = Counter(chain.from_iterable(self._free.values()))
        most = max(votes.values(), default=0)
        if 2 * most > len(self._free) and self._races < RACES:
            self._races += 1
            self._candidates = [slot for slot, count in votes.items() if count == most]
            return True
        self._races = 0
        self._free.clear()
        return False

    def changed(self, key: bytes) -> None:
        slot = int(key.rpartition(b":")[2])
        if isinstance(self._candidates, range):
            self._candidates = [slot]
        elif slot not in self._candidates:
            self._candidates = [*self._candidates, slot]

    # Words for the nodes

    def acquire(self, token: bytes, ttl_ms: int, candidate: int) -> Command:
        return self.contend(token, ttl_ms, candidate)

    def contend(self, token: bytes, ttl_ms: int, candidate: int) -> Command:
        self._choose(token)
        keys = (self._bound, *self._seen)
        words = (self.permits, len(self._seen), self.slot, token, ttl_ms)
        if self.fenced:
            register = self._keys.fence(self._key)
            return Call("semaphore_acquire", len(keys) + 1, *keys, register, *words, candidate)
        return Call("semaphore_acquire", len(keys), *keys, *words)

    def release(self, token: bytes) -> Command:
        return DeleteIfEqual(self._key, token)

    def retain(self, token: bytes, ms: int) -> Command:
        return Call("semaphore_retain", 2, self._key, self._bound, token, ms, self.permits)

    def secure(self, token: bytes, fence: int | None, ttl_ms: int) -> Command:
        keys = (self._key, self._bound)
        if fence is None:
            return Call("semaphore_secure", 2, *keys, token, ttl_ms, self.permits)
        return Call("semaphore_secure", 3, *keys, self._keys.fence(self._key), token, ttl_ms, self.permits, fence)

    @classmethod
    def extend(cls, held: Sequence[tuple[Claim, bytes, int]]) -> Command:
        keys: list[bytes] = []
        arguments: list[bytes | int] = []
        for claim, token, ttl_ms in held:
            assert isinstance(claim, Slots)  # noqa: S101 - those of one kind go together
            keys += (claim._key, claim._bound)  # noqa: SLF001 - of this very class
            arguments += (token, ttl_ms, claim.permits)
        return Call("semaphore_extend", len(keys), *keys, *arguments)

    def details(self) -> dict[str, object]:
        return {"permits": self.permits, "slot": self.slot}

    # What they answer

    def refusal(self, reply: object) -> Held:
        assert isinstance(reply, list)  # noqa: S101 - semaphore_acquire.lua
        if len(reply) == 1:
            (bound,) = reply
            if type(bound) is not int or not 1 <= bound <= MOST_PERMITS:
                raise ValueError
            return Taken(None, None, bound=bound)
        holder, ttl_ms, *free = reply
        numbers = {*map(type, free)} <= {int} and (not free or 0 <= min(free) <= max(free) < self.permits)
        if holder is None or not numbers:
            raise ValueError
        return Taken(holder, ttl_ms / 1000 if ttl_ms >= 0 else None, free=tuple(free))


class OnlySlot(Slots):
    """The slot of a semaphore that has one: whoever holds it keeps the others of its process waiting, as for a lock."""

    __slots__ = ()

    exclusive: ClassVar[bool] = True


def slots(keys: Keys, name: str, permits: int, *, fenced: bool, slot: int = 0) -> Slots:
    """The claim on a semaphore."""
    return (OnlySlot if type(permits) is int and permits == 1 else Slots)(keys, name, permits, fenced=fenced, slot=slot)


def detached(keys: Keys, names: Sequence[str], details: Mapping[str, object], *, fenced: bool) -> Slots:
    """The claim of a lease that was handed on."""
    permits, slot = details.get("permits"), details.get("slot")
    if not isinstance(permits, int) or not isinstance(slot, int) or not 0 <= slot < permits:
        raise ConfigurationError(f"not what Lease.detach() says of a semaphore's slot: {shown(details)}")
    return slots(keys, names[0], permits, fenced=fenced, slot=slot)
