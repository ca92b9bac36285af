"""One of several processes that contend for a semaphore: prints as JSON when it held each lease.

Each of its tasks wants as many slots as it is told.
"""

import asyncio
import json
import random
import sys

from redlock_async import Redlock
from redlock_async._transport.clock import now


async def main(permits, counts, seconds, hold, urls):
    held = []
    waits = dict.fromkeys(counts, 0.0)
    async with Redlock(urls, wait=60) as redlock:
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        until = now() + seconds

        def acquire(count):
            if permits:
                return redlock.semaphore("contended", permits=permits).acquire(count=count)
            return redlock("contended").acquire()

        async def worker(count):
            while (asked := now()) < until:
                async with await acquire(count) as lease:
                    entered = now()
                    waits[count] = max(waits[count], entered - asked)
                    await asyncio.sleep(hold * random.uniform(0.5, 1.5))
                    slots = [key.decode() for key in lease._held.kind.held_by(b"")]
                    held.append((entered, now(), slots, lease.fencing_token))

        await asyncio.gather(*(worker(count) for count in counts))
        result = {"held": held, "attempts": redlock.statistics().attempts, "waits": waits}
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    permits, counts, seconds, hold, *nodes = sys.argv[1:]
    asyncio.run(main(int(permits), json.loads(counts), float(seconds), float(hold), nodes))
