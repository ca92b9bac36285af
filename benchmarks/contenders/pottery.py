"""pottery 3.0.1, in its own environment, with the same redis-py and hiredis as this library.

Used as in its README: one set of redis-py clients, and an `AIORedlock` for each use. It waits without a limit (its
default, with a random pause of up to 0.2 s between attempts). Only `auto_release_time` is set, because all leases here
have the same length. It prefixes its keys with `redlock:`, which makes no difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from importlib import import_module
from typing import Any

from redis.asyncio import Redis

from . import TTL


class Peer:
    """Use a new lock object for each acquire: a shared one would forget its first holder's token."""

    async def open(self, urls: Sequence[str]) -> None:
        self._lock = import_module("pottery").AIORedlock  # only installed in its own environment
        self._masters = frozenset(Redis.from_url(url) for url in urls)

    async def close(self) -> None:
        for master in self._masters:
            await master.aclose()

    async def acquire(self, name: str) -> Any:
        lock = self._new(name)
        await lock.acquire()
        return lock

    async def release(self, lock: Any) -> None:
        await lock.release()

    def block(self, name: str) -> AbstractAsyncContextManager[object]:
        entered: AbstractAsyncContextManager[object] = self._new(name)
        return entered

    def _new(self, name: str) -> Any:
        return self._lock(key=name, masters=self._masters, auto_release_time=TTL)
