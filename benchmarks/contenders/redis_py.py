"""A hand-written Redlock: one redis-py client per node, SET NX PX with gather, a script to release.

Typical for code that follows the algorithm's description: redis-py's defaults, a new token for each attempt, a release
on all nodes after a failed attempt, and a random pause of up to 0.2 s, as in the reference implementation.
"""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import Sequence
from typing import NamedTuple

from redis.asyncio import Redis

from . import TTL

RETRY_DELAY = 0.2
"""Maximum pause between attempts, as in the reference implementation."""

RELEASE = """
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0
"""


class Held(NamedTuple):
    """The argument for `release`."""

    name: str
    token: str


class Gathered:
    """Sends every command to all clients at once and waits for the slowest."""

    async def open(self, urls: Sequence[str]) -> None:
        self._clients = [Redis.from_url(url) for url in urls]
        self._release = self._clients[0].register_script(RELEASE)
        self._needed = len(urls) // 2 + 1

    async def close(self) -> None:
        for client in self._clients:
            await client.aclose()

    async def acquire(self, name: str) -> Held:
        while True:
            held = Held(name, secrets.token_hex(16))
            sets = (client.set(name, held.token, nx=True, px=round(TTL * 1000)) for client in self._clients)
            if sum(map(bool, await asyncio.gather(*sets))) >= self._needed:
                return held
            await self.release(held)
            await asyncio.sleep(random.uniform(RETRY_DELAY / 4, RETRY_DELAY))  # noqa: S311 - jitter

    async def release(self, held: Held) -> None:
        releases = (self._release(keys=[held.name], args=[held.token], client=client) for client in self._clients)
        await asyncio.gather(*releases)
