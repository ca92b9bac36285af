"""One of several processes that queue for one name: starts waiters on request and prints their leases as JSON."""

import asyncio
import json
import sys

from tickets import DRAWN, drawn

from redlock_async import Redlock
from redlock_async._kinds.fair import FairAttempt
from redlock_async._transport.clock import now


async def main(hold, leases, urls):
    async with Redlock(urls, wait=60) as redlock:

        async def waiter(number):
            for _ in range(leases):
                asked = now()
                async with redlock.fair_lock("queued") as lease:
                    entered = now()
                    await asyncio.sleep(hold)
                    ticket = DRAWN.pop(asyncio.current_task(), None)
                    held = [number, ticket, asked, entered, now(), lease.fencing_token]
                    print(json.dumps(held), flush=True)

        print("ready", flush=True)
        async with asyncio.TaskGroup() as waiters:
            while line := await asyncio.to_thread(sys.stdin.readline):
                for number in line.split():
                    waiters.create_task(waiter(int(number)))


if __name__ == "__main__":
    FairAttempt._draw_ticket = drawn
    asyncio.run(main(float(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))
