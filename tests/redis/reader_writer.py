"""One of several processes that read- and write-lock one name: prints its leases and their tokens as JSON."""

import asyncio
import json
import sys
from random import Random

from redlock_async import Redlock
from redlock_async._transport.clock import now


async def main(readers, writers, leases, urls):
    held, chance = [], Random()
    async with Redlock(urls, wait=60) as redlock:
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)

        async def worker(kind):
            for number in range(leases):
                lock = (redlock.read_lock if kind == "read" else redlock.write_lock)("contended")
                async with lock as lease:
                    entered = now()
                    await asyncio.sleep(chance.uniform(0, 0.002))
                    held.append((entered, now(), kind, lease.fencing_token))
                    if kind == "write" and number % 4 == 0:
                        read = await lease.downgrade()
                        entered = now()
                        await asyncio.sleep(chance.uniform(0, 0.002))
                        held.append((entered, now(), "downgraded", read.fencing_token))
                        await read.release()

        await asyncio.gather(*[worker("read") for _ in range(readers)], *[worker("write") for _ in range(writers)])
        result = {"held": held, "attempts": redlock.statistics().attempts}
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]))
