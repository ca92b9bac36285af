"""One of several processes that contend for names in all shards of clusters: prints what it held as JSON."""

import asyncio
import json
import sys

from redlock_async import Redlock
from redlock_async._transport.clock import now


async def main(leases, names, urls):
    held = []
    async with Redlock(urls, wait=60) as redlock:
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)

        async def worker(name):
            for _ in range(leases):
                async with redlock(name) as lease:
                    entered = now()
                    await asyncio.sleep(0.001)
                    held.append((name, entered, now(), lease.fencing_token))

        await asyncio.gather(*(worker(name) for name in names))
        print(json.dumps(held), flush=True)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2].split(","), sys.argv[3:]))
