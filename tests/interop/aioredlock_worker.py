"""A worker with aioredlock."""

import asyncio
import logging

from aioredlock import Aioredlock, LockError
from worker import Worker, serve


class Client:
    """One attempt at a time: between its own attempts it would keep what it got on a minority of the nodes."""

    async def open(self, urls):
        self.manager = Aioredlock(urls, retry_count=1)

    async def close(self):
        await self.manager.destroy()

    async def take(self, name, ttl):
        try:
            # With its length given there is no watchdog that extends it.
            return await self.manager.lock(name, lock_timeout=ttl)
        except LockError:
            return None

    async def release(self, lock):
        await self.manager.unlock(lock)

    async def extend(self, lock, ttl):
        await self.manager.extend(lock, lock_timeout=ttl)


if __name__ == "__main__":
    logging.disable(logging.ERROR)  # it logs each refusal
    asyncio.run(serve(Worker(Client())))
