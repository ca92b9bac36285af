"""redis-py's own asyncio Lock, on the first node only: the cost of a lock that does not survive the loss of its server.

Used as documented: `client.lock(name, timeout=...)` for each use, with its defaults. It waits without a limit and polls
every 0.1 s. It asks one server instead of all, so the comparison shows the price of the quorum.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

from redis.asyncio import Redis

from . import TTL


class OneNode:
    """Not a Redlock."""

    async def open(self, urls: Sequence[str]) -> None:
        self._client = Redis.from_url(urls[0])

    async def close(self) -> None:
        await self._client.aclose()

    async def acquire(self, name: str) -> Any:
        lock = self._client.lock(name, timeout=TTL)
        await lock.acquire()
        return lock

    async def release(self, lock: Any) -> None:
        await lock.release()

    def block(self, name: str) -> AbstractAsyncContextManager[object]:
        return self._client.lock(name, timeout=TTL)
