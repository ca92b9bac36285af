"""The plain lock over one or several names: its words for the nodes. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar
from zlib import crc32

from ._claim import Claim, Held
from ._keys import Keys
from ._scripts import Call, Command, DeleteIfEqual, SetIfAbsent


class Mutex(Claim):
    """One or several names, taken all or none."""

    __slots__ = ("_fences", "fenced", "keys", "names", "preference", "turns", "watched")

    kind: ClassVar[str] = "lock"

    def __init__(self, keys: Keys, names: Iterable[str], *, fenced: bool) -> None:
        # Sorted, so that whoever wants some of the same names asks for them in the same order: no deadlock.
        by_name = {name: keys.lock(name) for name in names}
        self.names = tuple(by_name) if len(by_name) == 1 else tuple(sorted(by_name))
        self.keys = self.turns = self.watched = tuple(by_name[name] for name in self.names)
        self.fenced = fenced
        self._fences = tuple(keys.fence(key) for key in self.keys) if fenced else ()
        self.preference = crc32(self.keys[0])

    def held_by(self, token: bytes) -> tuple[bytes, ...]:  # noqa: ARG002 - one holder a key
        return self.keys

    def acquire(self, token: bytes, ttl_ms: int, candidate: int) -> Command:
        if not self.fenced and len(self.keys) == 1:
            return SetIfAbsent(self.keys[0], token, ttl_ms)
        return self.contend(token, ttl_ms, candidate)

    def contend(self, token: bytes, ttl_ms: int, candidate: int) -> Command:
        locks = len(self.keys)
        if self.fenced:
            return Call("mutex_acquire", 2 * locks, *self.keys, *self._fences, locks, token, ttl_ms, candidate)
        return Call("mutex_acquire", locks, *self.keys, locks, token, ttl_ms)

    def release(self, token: bytes) -> Command:
        if len(self.keys) == 1:
            return DeleteIfEqual(self.keys[0], token)
        return Call("mutex_release", len(self.keys), *self.keys, token, 0)

    def retain(self, token: bytes, ms: int) -> Command:
        return Call("mutex_release", len(self.keys), *self.keys, token, ms)

    def secure(self, token: bytes, fence: int | None, ttl_ms: int) -> Command:
        locks = len(self.keys)
        if fence is None:
            return Call("mutex_secure", locks, *self.keys, locks, token, ttl_ms)
        return Call("mutex_secure", 2 * locks, *self.keys, *self._fences, locks, token, ttl_ms, fence)

    @classmethod
    def extend(cls, held: Sequence[tuple[Claim, bytes, int]]) -> Command:
        keys: list[bytes] = []
        arguments: list[bytes | int] = []
        for claim, token, ttl_ms in held:
            for key in claim.held_by(token):
                keys.append(key)
                arguments += (token, ttl_ms)
        return Call("mutex_extend", len(keys), *keys, *arguments)

    @property
    def width(self) -> int:
        return len(self.keys)

    def refusal(self, reply: object) -> Held:
        if isinstance(reply, list):
            _, holder, ttl_ms = reply
            return Held(holder, ttl_ms / 1000 if ttl_ms >= 0 else None)
        return Held(None, None)
