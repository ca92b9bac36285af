"""aioredlock 0.7.3, in its own environment, because it needs the old aioredis 1.

Used as in its README: one lock manager with its defaults, which are three attempts with a random pause of 0.1 to 0.3 s
between them, and then `LockError`. It cannot wait without a limit, so the call is repeated, as its users do. Raising
`retry_count` instead does not work: between its attempts it keeps and extends its votes on a minority of the nodes, so
processes that contend for one name can block each other permanently. `internal_lock_timeout` has its default, which is
the length of all leases here; `lock()` also extends the lock automatically, as in normal use.
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
        library = import_module("aioredlock")  # only installed in its own environment
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
