"""The read-write lock: commands and replies of readers, who share a name, and of writers, who hold it alone.

On each node the readers are a sorted set, token by expiry, so that each of them expires separately; a writer is the
plain lock's key. While there are readers that key holds `READERS`: to any other Redlock client the name is locked, and
the key changes when the last reader has left. If the lock key is lost or freed, all readers of that node end, as any
holder would.

**Fences.** A writer raises the register, as every lock does. So does a reader that finds no other reader on the node; a
reader that joins others takes what the register holds. Hence, as long as a node has readers, its register stays above
all it held before the first of them, and no writer gets in to raise it. A reader's token t is, as always, the one value
a quorum returned; or else the largest, which a second round stores on a quorum where it still reads. So there are Q
nodes with reply <= t and stored >= t while it read there. A writer's Q nodes share one with them. On that node the
writer came before or after the reader, because there they exclude each other:

- An earlier writer, with token w, had stored >= w on that node before the first of these readers came. So the reply to
  any of them was above w, and so is t.
- A later writer's reply there is above what is stored, which is at least t.

Readers that hold at the same time may tie, and as they share what is stored, many of them need no second round.
A repair and a downgrade can also make a first reader on a node. Both keep the rule: they leave the register above what
it held. A downgraded writer needs that because readers that join it are later than its time as a writer.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from typing import ClassVar, Self
from zlib import crc32

from redlock_async._rounds.context import Context
from redlock_async._rules.keys import Keys
from redlock_async._transport.commands import Call, Command, DeleteIfEqual

from .kind import RESERVATION_MS, RESERVATION_REFRESH, Attempt, LockKind, QueuedAhead, Refusal
from .mutex import Exclusive, seconds

READERS = b"0" * 32 + b":readers"
"""The value of the plain lock's key while there are readers: a token like any other, with its owner label."""

WAITING_WRITER = b"0" * 32 + b":a waiting writer"
"""The holder that readers are shown while a writer waits that has not acquired the lock yet."""


@dataclass(frozen=True, slots=True)
class ReadersPresent(Refusal):
    """Readers hold the name."""

    leave_in: float = 0.0
    """Seconds until the last of them has expired."""

    @property
    def ends_in(self) -> float:
        return self.leave_in


class Read(LockKind, Attempt):
    """One name, shared with other readers."""

    __slots__ = (
        "_fence_key",
        "_readers",
        "_reservation",
        "fenced",
        "joins_queue",
        "key",
        "local_queue_keys",
        "names",
        "outer_token",
        "probe_hash",
        "revocation_keys",
        "watched_keys",
    )  # fmt: skip

    label: ClassVar[str] = "read"
    stateful: ClassVar[bool] = False
    keeps_local_turn = False
    shared: ClassVar[bool] = True

    def __init__(self, keys: Keys, name: str, *, fenced: bool) -> None:
        self.names = (name,)
        self.key = keys.lock(name)
        self._readers = keys.readers(name)
        self._reservation = keys.waiting_writer(name)
        self.revocation_keys = (keys.freed_readers(name),)
        self._fence_key = keys.fence(self.key)
        self.fenced = fenced
        self.local_queue_keys = (self._readers,)
        # Not the readers' key: other readers are not in the way of a reader.
        self.watched_keys = (self.key, self._reservation)
        self.probe_hash = crc32(self.key)
        self.outer_token = b""
        """The token of a read lease that the same task holds."""
        self.joins_queue = True

    def nested_in(self, token: bytes) -> Self:
        """Return the kind for a task that holds a read lease with that token: a waiting writer must not stop it."""
        nested = copy(self)
        nested.outer_token = token
        nested.joins_queue = False
        return nested

    def start(self, context: Context) -> Attempt:  # noqa: ARG002 - LockKind's signature
        return self

    def granted_kind(self) -> LockKind:
        return self

    def held_by(self, token: bytes) -> tuple[bytes, ...]:
        # Not a key of the nodes: a report about the lock key only says that other readers stayed. A force-release
        # changes the revocation key.
        return (self.key + b"\0" + token,)

    @property
    def written_keys(self) -> tuple[bytes, ...]:
        return (self.key,)

    def first_command(self, token: bytes, ttl_ms: int, candidate: int) -> Command:
        keys = (self.key, self._readers, self._reservation, self._fence_key)
        return Call("read_acquire", len(keys), *keys, token, ttl_ms, READERS, candidate, self.outer_token)

    retry_command = first_command

    def release(self, token: bytes) -> Command:
        return self.release_after(token, 0)

    def release_after(self, token: bytes, ms: int) -> Command:
        return Call("read_release", 2, self.key, self._readers, token, ms, READERS)

    def reassert(self, token: bytes, fence: int | None, ttl_ms: int) -> Command:
        return Call("read_reassert", 3, self.key, self._readers, self._fence_key, token, ttl_ms, READERS, fence or 0)

    @classmethod
    def extend(cls, held: Sequence[tuple[LockKind, bytes, int]]) -> Command:
        keys: list[bytes] = []
        arguments: list[bytes | int] = []
        for kind, token, ttl_ms in held:
            assert isinstance(kind, Read)  # noqa: S101 - a batch is of one kind
            keys += (kind.key, kind._readers, *kind.revocation_keys)  # noqa: SLF001 - of this very class
            arguments += (token, ttl_ms)
        return Call("read_extend", len(keys), *keys, READERS, *arguments)

    def refusal(self, reply: object) -> Refusal:
        assert isinstance(reply, list)  # noqa: S101 - read_acquire.lua
        holder, ms = reply
        return QueuedAhead(WAITING_WRITER, seconds(ms)) if holder is None else Refusal(holder, seconds(ms))


class Write(Exclusive):
    """One name, held alone: the plain lock, which also waits for readers to leave and keeps new ones out meanwhile."""

    __slots__ = ("_all_keys", "readers", "reservation")

    label: ClassVar[str] = "write"

    def __init__(self, keys: Keys, name: str, *, fenced: bool) -> None:
        super().__init__(keys, (name,), fenced=fenced)
        self._all_keys = keys
        self.readers = keys.readers(name)
        self.reservation = keys.waiting_writer(name)

    def start(self, context: Context) -> Attempt:  # noqa: ARG002 - LockKind's signature
        return WriteAttempt(self)

    def as_reader(self) -> Read:
        """Return the kind that shares the same name."""
        return Read(self._all_keys, self.names[0], fenced=self.fenced)

    def downgrade(self, token: bytes, fence: int | None, ttl_ms: int) -> Command:
        """Turn the lock into a reader's where it is ours."""
        register, revocation = self._all_keys.fence(self.keys[0]), self._all_keys.freed_readers(self.names[0])
        keys = (*self.keys, self.readers, register, revocation)
        return Call("write_downgrade", len(keys), *keys, token, ttl_ms, READERS, fence or 0)


class WriteAttempt(Attempt):
    """One acquire of a writer, which leaves a reservation once readers have made it wait."""

    __slots__ = ("_kind", "_mark", "_readers_present", "watched_keys")

    def __init__(self, kind: Write) -> None:
        self._kind = kind
        self.watched_keys = kind.watched_keys
        self._mark = b""
        """The value of our reservation, once there is one."""
        self._readers_present = False
        """Whether readers were in the way of the last attempt."""

    def granted_kind(self) -> LockKind:
        return self._kind

    @property
    def may_probe(self) -> bool:
        # An attempt that readers refuse refreshes the reservation, which is wanted on all nodes.
        return not self._readers_present

    def first_command(self, token: bytes, ttl_ms: int, candidate: int) -> Command:
        self._readers_present = False
        kind = self._kind
        keys = (*kind.keys, kind.readers, kind.reservation, *kind.fence_keys)
        return Call("write_acquire", len(keys), *keys, token, ttl_ms, READERS, self._mark, RESERVATION_MS, candidate)

    def retry_command(self, token: bytes, ttl_ms: int, candidate: int) -> Command:
        # Only a writer that waits keeps readers out; one that tries once must not.
        if self._readers_present and not self._mark:
            self._mark = token
        return self.first_command(token, ttl_ms, candidate)

    def refusal(self, reply: object) -> Refusal:
        assert isinstance(reply, list)  # noqa: S101 - write_acquire.lua
        holder, ms = reply
        if holder != READERS:
            return Refusal(holder, seconds(ms))
        # Without a reservation yet, the next attempt is worth it at once, because it leaves one.
        return ReadersPresent(READERS, min(ms / 1000, RESERVATION_REFRESH) if self._mark else 0.0, leave_in=ms / 1000)

    def on_refusal(self, refusal: Refusal) -> None:
        self._readers_present = self._readers_present or isinstance(refusal, ReadersPresent)

    def cleanup(self) -> Command | None:
        # Also with the lock: a grant removes the reservation, but not on nodes where a reader is left.
        return DeleteIfEqual(self._kind.reservation, self._mark) if self._mark else None
