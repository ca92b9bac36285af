"""A worker with pottery's AIORedlock, which puts `redlock:` before each name."""

import asyncio

from pottery import AIORedlock
from redis.asyncio import Redis
from worker import Worker, serve


class Client:
    """A lock object for each holder: the token lives on it, and the next attempt with it would overwrite that."""

    async def open(self, urls):
        self.masters = frozenset(Redis.from_url(url) for url in urls)

    async def close(self):
        for master in self.masters:
            await master.aclose()

    async def take(self, name, ttl):
        lock = AIORedlock(key=name, masters=self.masters, auto_release_time=ttl)
        return lock if await lock.acquire(blocking=False) else None

    async def release(self, lock):
        await lock.release()

    async def extend(self, lock, _ttl):
        await lock.extend()


if __name__ == "__main__":
    asyncio.run(serve(Worker(Client())))
