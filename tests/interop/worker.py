"""What the workers in Python share: orders come as lines of JSON, one answer goes back for each.

Only the standard library, for most of them run where nothing of ours is installed.
"""

import asyncio
import json
import random
import sys
import time
from pathlib import Path

HOLD = 0.001
"""Seconds between reading the counter and writing it: what makes unguarded increments get lost."""

PAUSE = 0.004
"""Seconds between two increments, at most."""

RETRY = (0.002, 0.01)
"""Seconds between two attempts of a client that can only try again."""


PATIENCE = 60.0
"""Seconds anybody waits for the lock, at most: whoever starves fails."""


class Worker:
    """Carries out orders with a client, which has `open`, `close`, `take`, `release` and `extend`.

    `take` is one attempt and returns what is held, or None. What counts for all workers is the monotonic clock.
    """

    def __init__(self, client):
        self.client = client
        self.held = None

    async def open(self, urls):
        """Connect."""
        await self.client.open(urls)

    async def close(self):
        """End the connections."""
        await self.client.close()
        self.held = None

    async def take(self, name, ttl):
        """Try once."""
        began = time.monotonic()
        self.held = await self.client.take(name, ttl)
        return {"held": self.held is not None, "began": began}

    async def release(self):
        """Give back what the last `take` took."""
        began = time.monotonic()
        await self.client.release(self.held)
        return {"began": began}

    async def extend(self, ttl):
        """Hold it for that long from now."""
        await self.client.extend(self.held, ttl)

    async def increment(self, name, counter, count, ttl):
        """Add one to a number in a file, that many times, each time under the lock; `name` None: without a lock."""
        holds = []
        for _ in range(count):
            held = None if name is None else await self._taken(name, ttl)
            start = time.monotonic()
            await add_one(counter)
            holds.append({"start": start, "end": time.monotonic()})
            if name is not None:
                await self.client.release(held)
            await asyncio.sleep(random.uniform(0, PAUSE))
        return {"holds": holds}

    async def _taken(self, name, ttl):
        """What is held, after as many attempts as it takes."""
        async with asyncio.timeout(PATIENCE):
            while (held := await self.client.take(name, ttl)) is None:  # noqa: ASYNC110 - all these clients can do
                await asyncio.sleep(random.uniform(*RETRY))
            return held


async def add_one(counter):
    """Read, wait, write: whoever does the same meanwhile undoes it."""
    number = read(counter)
    await asyncio.sleep(HOLD)
    Path(counter).write_text(str(number + 1), "ascii")  # noqa: ASYNC240 - short, and nothing else runs here


def read(counter):
    """The number; 0 while somebody else is writing it, which only happens without a lock."""
    return int(Path(counter).read_text("ascii") or 0)


async def serve(worker):
    """Carry out orders until there are no more; an error ends it, and is seen by whoever gave the order."""
    while line := await asyncio.to_thread(sys.stdin.readline):
        order = json.loads(line)
        answer = await getattr(worker, order.pop("do"))(**order)
        print(json.dumps(answer), flush=True)
