"""A worker with redlock-py, which blocks: nothing else runs in this process."""

import asyncio

from redlock import Redlock
from worker import Worker, serve


class Client:
    """Its lock is a tuple, or False."""

    async def open(self, urls):
        # It sleeps after its last attempt, too, and takes a delay of 0 for the default.
        self.manager = Redlock(urls, retry_count=1, retry_delay=1e-6)

    async def close(self):
        for server in self.manager.servers:
            server.close()

    async def take(self, name, ttl):
        return self.manager.lock(name, round(ttl * 1000)) or None

    async def release(self, lock):
        self.manager.unlock(lock)


if __name__ == "__main__":
    asyncio.run(serve(Worker(Client())))
