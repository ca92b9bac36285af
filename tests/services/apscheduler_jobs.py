"""Two schedulers as on docs/workers.md, and a journal of who ran what: `leader NAME` or `once NAME`."""

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

from apscheduler.schedulers.asyncio import AsyncIOScheduler

from redlock_async import LockLost, redlock

JOURNAL = Path(os.environ["JOURNAL"])
EVERY = 0.1
PERIOD = 1.0


def note(what):
    """One line."""
    with JOURNAL.open("a") as journal:
        journal.write(f"{what}\n")


async def tick(me):
    """A job that is cancelled with its scheduler notes no end."""
    note(f"begin {me}")
    await asyncio.sleep(EVERY / 2)
    note(f"end {me}")


async def lead(me):
    """Schedule as long as we lead, and again when we lead again."""
    while True:
        try:
            async with redlock("scheduler", ttl=1.5, wait=None):
                scheduler = AsyncIOScheduler()
                scheduler.add_job(tick, "interval", seconds=EVERY, args=[me])
                scheduler.start()
                try:
                    await asyncio.Event().wait()
                finally:
                    scheduler.shutdown(wait=False)  # cancels the jobs that run
                    await asyncio.sleep(0)  # in the loop's next turn, until which it may begin another
        except LockLost:
            note(f"lost {me}")


@redlock.once("report", every=PERIOD)
async def report(me):
    """Every process is told to, at about the same time; one does."""
    note(f"report {me} {time.monotonic()}")


async def everywhere(me):
    """Schedule in every process what one of them does."""
    scheduler = AsyncIOScheduler()
    scheduler.add_job(report, "interval", seconds=PERIOD, args=[me])
    scheduler.start()
    note(f"ready {me}")
    try:
        await asyncio.Event().wait()
    finally:
        scheduler.shutdown(wait=False)


async def main(how, me):
    """Until we are told to stop."""
    task = asyncio.current_task()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        await {"leader": lead, "once": everywhere}[how](me)
    except asyncio.CancelledError:
        await redlock.aclose()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
