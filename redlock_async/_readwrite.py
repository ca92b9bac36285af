"""The read-write lock: its words for the nodes, for those who share and for those who are alone. No I/O.

On each node the readers are a sorted set, token by expiry, so that each one ends by itself; a writer is the plain
lock's key. While there are readers that key holds `READERS`: to any other Redlock client the name is locked, and it
changes when the last of them has left. A lost or freed lock key ends all the readers of that node, as it would any
holder.

**Fences.** Writers raise the register as every lock does. So does a reader that finds no other reader on the node; one
that joins others takes what the register holds. Hence, as long as a node has readers, its register stays above all it
held before the first of them, and no writer gets in to raise it. A reader's token t is as ever the one value a quorum
returned, or the largest, levelled on a quorum where it still reads: Q nodes with reply <= t and stored >= t while it
read there. A writer's Q nodes share one with them, where it came before or after, for there they exclude each other:

- An earlier writer, with token w, had stored >= w on that node before the first of these readers came. So the reply to
  any of them was above w, and so is t.
- A later writer's reply there is above what is stored, which is at least t.

Readers that hold at the same time may tie, and as they share what is stored, a crowd of them needs no second round.
Whatever else makes a first reader on a node keeps the rule: a repair, and a downgrade, leave the register above what it
held, for a reader that joins is later than the writer it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from typing import ClassVar, Self
from zlib import crc32

from ._claim import HINT_MS, REFRESH, Ahead, Claim, Ground, Held
from ._keys import Keys
from ._mutex import Mutex
from ._scripts import Call, Command, DeleteIfEqual

READERS = b"0" * 32 + b":readers"
"""What the plain lock's key holds while there are readers: a token like any other, with its owner label."""

WAITING = b"0" * 32 + b":a waiting writer"
"""Who is named when readers are held out for a writer that is not in yet."""


@dataclass(frozen=True, slots=True)
class Reading(Held):
    """A refusal: readers are in."""

    leave_in: float = 0.0
    """Seconds until the last of them has run out."""

    @property
    def ends_in(self) -> float:
        return self.leave_in


class Read(Claim):
    """One name, shared with other readers."""

    __slots__ = (
        "_fence", "_hint", "_readers", "alarms", "fenced", "key", "names", "preference", "turns", "watched", "within",
    )  # fmt: skip

    kind: ClassVar[str] = "read"
    exclusive = False
    shared: ClassVar[bool] = True

    def __init__(self, keys: Keys, name: str, *, fenced: bool) -> None:
        self.names = (name,)
        self.key = keys.lock(name)
        self._readers = keys.readers(name)
        self._hint = keys.waiting_writer(name)
        self.alarms = (keys.freed_readers(name),)
        self._fence = keys.fence(self.key)
        self.fenced = fenced
        self.turns = (self._readers,)
        # Not the readers: they are none of a reader's business.
        self.watched = (self.key, self._hint)
        self.preference = crc32(self.key)
        self.within = b""
        """The token of a read lease that the same caller has."""

    def beside(self, token: bytes) -> Self:
        """The same for one who reads already, with that token: a writer that waits for it must not hold it out."""
        again = copy(self)
        again.within = token
        return again

    @property
    def queues(self) -> bool:
        return not self.within

    def held_by(self, token: bytes) -> tuple[bytes, ...]:
        # No key of the nodes: what they report of the lock key is that some reader stayed on, which is nobody's loss.
        # Of a force-release the alarm tells.
        return (self.key + b"\0" + token,)

    @property
    def written(self) -> tuple[bytes, ...]:
        return (self.key,)

    def acquire(self, token: bytes, ttl_ms: int, candidate: int) -> Command:
        keys = (self.key, self._readers, self._hint, self._fence)
        return Call("read_acquire", len(keys), *keys, token, ttl_ms, READERS, candidate, self.within)

    contend = acquire

    def release(self, token: bytes) -> Command:
        return self.retain(token, 0)

    def retain(self, token: bytes, ms: int) -> Command:
        return Call("read_release", 2, self.key, self._readers, token, ms, READERS)

    def secure(self, token: bytes, fence: int | None, ttl_ms: int) -> Command:
        return Call("read_secure", 3, self.key, self._readers, self._fence, token, ttl_ms, READERS, fence or 0)

    @classmethod
    def extend(cls, held: Sequence[tuple[Claim, bytes, int]]) -> Command:
        keys: list[bytes] = []
        arguments: list[bytes | int] = []
        for claim, token, ttl_ms in held:
            assert isinstance(claim, Read)  # noqa: S101 - the batch is of one kind
            keys += (claim.key, claim._readers, *claim.alarms)  # noqa: SLF001 - it is one of ours
            arguments += (token, ttl_ms)
        return Call("read_extend", len(keys), *keys, READERS, *arguments)

    def refusal(self, reply: object) -> Held:
        assert isinstance(reply, list)  # noqa: S101 - read_acquire.lua
        holder, ms = reply
        left = ms / 1000 if ms >= 0 else None
        return Ahead(WAITING, left) if holder is None else Held(holder, left)


class Write(Mutex):
    """One name, alone: the plain lock, which also waits for readers to leave and lets no more of them in meanwhile."""

    __slots__ = ("_blocked", "_hint", "_mark", "_readers", "_sharing")

    kind: ClassVar[str] = "write"

    def __init__(self, keys: Keys, name: str, *, fenced: bool) -> None:
        super().__init__(keys, (name,), fenced=fenced)
        self._sharing = keys
        self._readers = keys.readers(name)
        self._hint = keys.waiting_writer(name)
        self._mark = b""
        """What our hint holds, once readers have made us wait."""
        self._blocked = False
        """Whether readers were in the way of the last attempt."""

    def begin(self, ground: Ground) -> Self:  # noqa: ARG002 - Claim's signature
        return copy(self)

    @property
    def probes(self) -> bool:
        # An attempt that readers stop keeps the hint alive: that is wanted on all nodes.
        return not self._blocked

    def acquire(self, token: bytes, ttl_ms: int, candidate: int) -> Command:
        self._blocked = False
        keys = (*self.keys, self._readers, self._hint, *self._fences)
        return Call("write_acquire", len(keys), *keys, token, ttl_ms, READERS, self._mark, HINT_MS, candidate)

    def contend(self, token: bytes, ttl_ms: int, candidate: int) -> Command:
        # Only a writer that waits holds readers out; trying once must not.
        if self._blocked and not self._mark:
            self._mark = token
        return self.acquire(token, ttl_ms, candidate)

    def withdraw(self) -> Command | None:
        # With the lock as well: a grant takes the hint away, but not on nodes where a reader is left.
        return DeleteIfEqual(self._hint, self._mark) if self._mark else None

    def refusal(self, reply: object) -> Held:
        assert isinstance(reply, list)  # noqa: S101 - write_acquire.lua
        holder, ms = reply
        if holder != READERS:
            return Held(holder, ms / 1000 if ms >= 0 else None)
        self._blocked = True
        # Without a hint yet, the next attempt is worth it at once: it leaves one.
        return Reading(READERS, min(ms / 1000, REFRESH) if self._mark else 0.0, leave_in=ms / 1000)

    def reading(self) -> Read:
        """The same name, shared."""
        return Read(self._sharing, self.names[0], fenced=self.fenced)

    def downgrade(self, token: bytes, fence: int | None, ttl_ms: int) -> Command:
        """Make it a reader's where it is ours."""
        register, alarm = self._sharing.fence(self.keys[0]), self._sharing.freed_readers(self.names[0])
        keys = (*self.keys, self._readers, register, alarm)
        return Call("write_downgrade", len(keys), *keys, token, ttl_ms, READERS, fence or 0)
