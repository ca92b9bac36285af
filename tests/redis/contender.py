"""One of several processes that contend for one name: prints as JSON when it held each lease, and with which token."""

import asyncio
import json
import sys

from redlock_async import Redlock
from redlock_async._transport.clock import now


async def main(tasks, leases, urls):
    held = []
    async with Redlock(urls, wait=60) as redlock:
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)

        async def worker():
            for _ in range(leases):
                async with redlock("contended") as lease:
                    entered = now()
                    await asyncio.sleep(0)
                    held.append((entered, now(), lease.fencing_token))

        await asyncio.gather(*(worker() for _ in range(tasks)))
        print(json.dumps({"held": held, "attempts": redlock.statistics().attempts}), flush=True)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))
