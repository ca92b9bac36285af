"""aioredlock 0.7.3, in an environment of its own, for its aioredis 1 is as old as it is.

As its README has it: one lock manager with its defaults, which is three attempts with a random pause of 0.1 to 0.3 s
between them, and then `LockError`. It has no word for waiting as long as it takes, so it is asked again, as its users
do. Raising `retry_count` instead would not do: between its attempts it keeps and prolongs what it got on a minority of
the nodes, so several processes that want one name can wait for each other for ever. `internal_lock_timeout` is the
length of all leases here, and its default; `lock()` also extends the lock by itself, as its users have it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib import import_module
from typing import Any

from . import TTL


class Peer:
    """One lock manager."""

    async def open(self, urls: Sequence[str]) -> None:
        library = import_module("aioredlock")  # only there in its own environment
        self._refused = library.LockError
        self._manager = library.Aioredlock(list(urls), internal_lock_timeout=TTL)

    async def close(self) -> None:
        await self._manager.destroy()

    async def acquire(self, name: str) -> Any:
        while True:
            try:
                return await self._manager.lock(name)
            except self._refused:
                continue

    async def release(self, lock: Any) -> None:
        await self._manager.unlock(lock)

    def block(self, name: str) -> AbstractAsyncContextManager[object]:
        @asynccontextmanager
        async def entered() -> AsyncGenerator[object]:
            async with await self.acquire(name) as lock:
                yield lock

        return entered()
