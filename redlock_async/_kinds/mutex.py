"""The plain lock on one or several names: its commands, and what the replies mean."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar
from zlib import crc32

from redlock_async._rounds.context import Context
from redlock_async._rules.keys import Keys
from redlock_async._transport.commands import Call, Command, DeleteIfEqual, SetIfAbsent

from .kind import Attempt, LockKind, Refusal


class Exclusive(LockKind):
    """One or several names with one holder at a time, whose token is in the lock's key."""

    __slots__ = ("fence_keys", "fenced", "keys", "local_queue_keys", "names", "probe_hash", "watched_keys")

    def __init__(self, keys: Keys, names: Iterable[str], *, fenced: bool) -> None:
        # Sorted, so that all clients ask for the names they share in the same order, and cannot deadlock.
        by_name = {name: keys.lock(name) for name in names}
        self.names = tuple(sorted(by_name))
        self.keys = self.local_queue_keys = self.watched_keys = tuple(map(by_name.__getitem__, self.names))
        self.fenced = fenced
        self.fence_keys = tuple(dict.fromkeys(map(keys.fence, self.keys))) if fenced else ()
        self.probe_hash = crc32(self.keys[0])

    def held_by(self, token: bytes) -> tuple[bytes, ...]:  # noqa: ARG002 - a key has one holder
        return self.keys

    @property
    def state_count(self) -> int:
        return len(self.keys)

    def release(self, token: bytes) -> Command:
        if len(self.keys) == 1:
            return DeleteIfEqual(self.keys[0], token)
        return Call("mutex_release", len(self.keys), *self.keys, token, 0)

    def release_after(self, token: bytes, ms: int) -> Command:
        return Call("mutex_release", len(self.keys), *self.keys, token, ms)

    def reassert(self, token: bytes, fence: int | None, ttl_ms: int) -> Command:
        locks = len(self.keys)
        if fence is None:
            return Call("mutex_reassert", locks, *self.keys, locks, token, ttl_ms)
        keys = (*self.keys, *self.fence_keys)
        return Call("mutex_reassert", len(keys), *keys, locks, token, ttl_ms, fence)

    @classmethod
    def extend(cls, held: Sequence[tuple[LockKind, bytes, int]]) -> Command:
        keys: list[bytes] = []
        arguments: list[bytes | int] = []
        for kind, token, ttl_ms in held:
            for key in kind.held_by(token):
                keys.append(key)
                arguments += (token, ttl_ms)
        return Call("mutex_extend", len(keys), *keys, *arguments)


class Mutex(Exclusive, Attempt):
    """The plain lock: one or several names, all or none."""

    __slots__ = ()

    label: ClassVar[str] = "lock"
    stateful: ClassVar[bool] = False

    def start(self, context: Context) -> Attempt:  # noqa: ARG002 - LockKind's signature
        return self

    def granted_kind(self) -> LockKind:
        return self

    def first_command(self, token: bytes, ttl_ms: int, candidate: int) -> Command:
        if not self.fenced and len(self.keys) == 1:
            return SetIfAbsent(self.keys[0], token, ttl_ms)
        return self.retry_command(token, ttl_ms, candidate)

    def retry_command(self, token: bytes, ttl_ms: int, candidate: int) -> Command:
        locks = len(self.keys)
        if self.fenced:
            number = locks + len(self.fence_keys)
            return Call("mutex_acquire", number, *self.keys, *self.fence_keys, locks, token, ttl_ms, candidate)
        return Call("mutex_acquire", locks, *self.keys, locks, token, ttl_ms)

    def refusal(self, reply: object) -> Refusal:
        if isinstance(reply, list):
            _, holder, ttl_ms = reply
            return Refusal(holder, seconds(ttl_ms))
        return Refusal(None, None)


def seconds(ms: int) -> float | None:
    """Convert a PTTL; None if the key does not expire."""
    return ms / 1000 if ms >= 0 else None
