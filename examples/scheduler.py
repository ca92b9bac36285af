"""A scheduler in every process, of which one runs the jobs; each is run once when it is due, whoever leads then.

    python examples/scheduler.py anna             # with masters of its own; it prints REDLOCK_NODES=...
    export REDLOCK_NODES=...                      # in other shells, then, in each of them:
    python examples/scheduler.py bert

What was run, and by whom, is in runs.sqlite: a process says only when it leads.

Jobs that any process may run, each time another one, need no leader: examples/nightly_report.py. A leader is for
schedules that change, or that know of each other.
"""

import argparse
import asyncio
import os
import sqlite3
import time
from collections.abc import Awaitable, Callable
from contextlib import closing, nullcontext, suppress

from redlock_async import LockLost, redlock  # the masters: REDLOCK_NODES
from redlock_async.testing import LocalCluster


async def collect() -> None:
    """A job."""
    await asyncio.sleep(0.02)


async def report() -> None:
    """Another one."""
    await asyncio.sleep(0.05)


SCHEDULE: dict[float, Callable[[], Awaitable[None]]] = {0.2: collect, 0.5: report}
"""Every so many seconds, by the wall clock, so that all processes mean the same moments."""


class DeposedError(Exception):
    """A later leader has run a job already."""


class Runs:
    """Which job was run when: a table that all processes open, and that compares fences."""

    def __init__(self, path: str) -> None:
        self._table = sqlite3.connect(path, timeout=5, isolation_level=None)
        self._table.execute("CREATE TABLE IF NOT EXISTS runs (job TEXT, due INTEGER, fence INTEGER, leader TEXT)")

    def begin(self, job: str, due: int, fence: int, leader: str) -> bool:
        """Whether it is to be run now; a leader that stood still, and was followed by another, is told so.

        It is noted before it is run: a job whose leader dies in it is not run again. Note it afterwards, and it is run
        at least once instead of at most once.
        """
        if self._table.execute("SELECT 1 FROM runs WHERE fence > ?", (fence,)).fetchone():
            raise DeposedError
        noted = self._table.execute(
            "INSERT INTO runs SELECT ?, ?, ?, ? WHERE NOT EXISTS"
            " (SELECT 1 FROM runs WHERE fence > ? OR (job = ? AND due >= ?))",
            (job, due, fence, leader, fence, job, due),
        )
        return noted.rowcount == 1

    def close(self) -> None:
        """Close the file."""
        self._table.close()


async def schedule(me: str, fence: int, runs: Runs) -> None:
    """What only the leader does: run what is due. It is cancelled, jobs and all, before the lease ends."""
    while True:
        for every, job in SCHEDULE.items():
            if runs.begin(job.__name__, int(time.time() / every), fence, me):
                await job()
        now = time.time()
        await asyncio.sleep(min(every - now % every for every in SCHEDULE))


async def main(me: str, path: str, ttl: float) -> None:
    """Wait for our turn, lead as long as we can, and wait again; Ctrl-C lets another lead at once."""
    with closing(Runs(path)) as runs:
        try:
            while True:
                with suppress(DeposedError, LockLost):
                    async with redlock("scheduler", ttl=ttl, wait=None) as lease:
                        assert lease.fencing_token is not None  # there is one unless REDLOCK_FENCING is off
                        print(f"{me} schedules with fence {lease.fencing_token}", flush=True)
                        await schedule(me, lease.fencing_token, runs)
                print(f"{me} does not lead any more", flush=True)
        finally:
            await redlock.aclose()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("me", nargs="?", default=f"process {os.getpid()}", help="a name for this process")
    parser.add_argument("--runs", default="runs.sqlite", help="the file in which runs are noted")
    parser.add_argument("--ttl", type=float, default=5.0, help="seconds after which a dead leader is replaced")
    options = parser.parse_args()
    # Five masters of this machine's own, where there are no others.
    with nullcontext() if os.environ.get("REDLOCK_NODES") else LocalCluster() as cluster, suppress(KeyboardInterrupt):
        if cluster is not None:
            os.environ["REDLOCK_NODES"] = ",".join(cluster.urls)
            print(f"export REDLOCK_NODES={os.environ['REDLOCK_NODES']}", flush=True)
        asyncio.run(main(options.me, options.runs, options.ttl))
