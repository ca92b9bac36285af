"""One process of many that want one semaphore for a time: prints, as JSON, when each of its leases was held."""

import asyncio
import json
import random
import sys

from redlock_async import Redlock
from redlock_async._clock import now


async def main(permits, tasks, seconds, hold, urls):
    held = []
    async with Redlock(urls, wait=60) as redlock:
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        until = now() + seconds
        make = (lambda: redlock.semaphore("contended", permits=permits)) if permits else (lambda: redlock("contended"))

        async def worker():
            while now() < until:
                async with make() as lease:
                    entered = now()
                    await asyncio.sleep(hold * random.uniform(0.5, 1.5))
                    held.append((entered, now(), lease._holding.claim.held_by(b"")[0].decode(), lease.fencing_token))

        await asyncio.gather(*(worker() for _ in range(tasks)))
        print(json.dumps({"held": held, "attempts": redlock.statistics().attempts}), flush=True)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4]), sys.argv[5:]))
