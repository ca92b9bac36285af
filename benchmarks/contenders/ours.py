"""redlock_async, through its public surface."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from contextlib import AbstractAsyncContextManager

from redlock_async import Lease, Redlock

from . import TTL


class Ours:
    """One client, as in a service."""

    def __init__(self, *, fencing: bool) -> None:
        self._fencing = fencing

    async def open(self, urls: Sequence[str]) -> None:
        self._redlock = Redlock(urls, ttl=TTL, wait=None, fencing=self._fencing)
        await self._redlock.__aenter__()

    async def close(self) -> None:
        await self._redlock.aclose()

    # Return the library's coroutines directly, so that only the library is measured.

    def acquire(self, name: str) -> Awaitable[Lease]:
        return self._redlock(name).acquire()

    def release(self, lease: Lease) -> Awaitable[None]:
        return lease.release()

    keep = acquire
    """Acquire; the lease is renewed until the release."""

    def block(self, name: str) -> AbstractAsyncContextManager[Lease]:
        return self._redlock(name)

    def fair(self, name: str) -> Awaitable[Lease]:
        return self._redlock.fair_lock(name).acquire()

    def force(self, name: str) -> Awaitable[bool]:
        return self._redlock.force_release(name)

    def left(self, lease: Lease) -> float:
        return lease.remaining


class Fenced(Ours):
    """The library with its default settings."""

    def __init__(self) -> None:
        super().__init__(fencing=True)


class Plain(Ours):
    """Without fencing tokens: the commands any Redlock client sends."""

    def __init__(self) -> None:
        super().__init__(fencing=False)
