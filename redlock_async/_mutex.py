"""The commands of the plain lock over one or several names, and what their replies mean. No I/O."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from zlib import crc32

from ._keys import Keys
from ._scripts import Call, Command, DeleteIfEqual, SetIfAbsent


@dataclass(frozen=True, slots=True)
class Held:
    """A refusal: who holds the lock on that node, and for how long at most (None where that was not said)."""

    token: bytes | None
    expires_in: float | None


class Mutex:
    """One or several names, taken all or none."""

    __slots__ = ("_fences", "_keys", "fenced", "keys", "names", "preference")

    def __init__(self, keys: Keys, names: Iterable[str], *, fenced: bool) -> None:
        # Sorted, so that whoever wants some of the same names asks for them in the same order: no deadlock.
        self.names = tuple(sorted(set(names)))
        self.keys = tuple(keys.lock(name) for name in self.names)
        self._keys = keys
        self.fenced = fenced
        self._fences = tuple(keys.fence(key) for key in self.keys) if fenced else ()
        self.preference = crc32(self.keys[0])
        """Decides which node contenders for this lock try first when they race."""

    def acquire(self, token: bytes, ttl_ms: int, candidate: int) -> Command:
        """Take it if it is free."""
        if self.fenced:
            locks = len(self.keys)
            return Call("mutex_acquire", 2 * locks, *self.keys, *self._fences, locks, token, ttl_ms, candidate)
        if len(self.keys) == 1:
            return SetIfAbsent(self.keys[0], token, ttl_ms)
        return self.contend(token, ttl_ms, candidate)

    def contend(self, token: bytes, ttl_ms: int, candidate: int) -> Command:
        """Take it if it is free, or else learn who holds it and be told when that ends."""
        if self.fenced:
            return self.acquire(token, ttl_ms, candidate)
        locks = len(self.keys)
        return Call("mutex_acquire", locks, *self.keys, locks, token, ttl_ms)

    def grant(self, reply: object) -> int | Held:
        """The fence a node gave (0: none), or who holds the lock there."""
        if type(reply) is int:
            return reply if self.fenced else 0
        if reply == b"OK":
            return 0
        if isinstance(reply, list):
            _, holder, ttl_ms = reply
            return Held(holder, ttl_ms / 1000 if ttl_ms >= 0 else None)
        return Held(None, None)

    def release(self, token: bytes) -> Command:
        """Delete what is ours."""
        if len(self.keys) == 1:
            return DeleteIfEqual(self.keys[0], token)
        return Call("mutex_release", len(self.keys), *self.keys, token, 0)

    def retain(self, token: bytes, ms: int) -> Command:
        """Let what is ours run out after that many ms."""
        return Call("mutex_release", len(self.keys), *self.keys, token, ms)

    def released(self, reply: object) -> bool:
        """Whether all of it was ours until then."""
        return reply == len(self.keys)

    def secure(self, token: bytes, fence: int | None, ttl_ms: int) -> Command:
        """Raise the registers where the lock is ours; with a ttl, set again what a node has lost."""
        locks = len(self.keys)
        if fence is None:
            return Call("mutex_secure", locks, *self.keys, locks, token, ttl_ms)
        return Call("mutex_secure", 2 * locks, *self.keys, *self._fences, locks, token, ttl_ms, fence)


def extend(held: Iterable[tuple[Mutex, bytes, int]]) -> Command:
    """Lengthen many locks in one command: (what, token, ms; 0 ms only looks)."""
    keys: list[bytes] = []
    arguments: list[bytes | int] = []
    for mutex, token, ttl_ms in held:
        for key in mutex.keys:
            keys.append(key)
            arguments += (token, ttl_ms)
    return Call("mutex_extend", len(keys), *keys, *arguments)
