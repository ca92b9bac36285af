"""A scheduler in every process: one leads and runs the jobs, and each due job runs once, even when the leader changes.

    python examples/scheduler.py anna             # starts its own nodes and prints an export line
    export REDLOCK_NODES=...                      # that line, in each other shell; then:
    python examples/scheduler.py bert

runs.sqlite records each run and its leader. A process prints only when it starts or stops leading.

If any process may run a job, you need no leader: see examples/nightly_report.py. Use a leader for schedules that
change, or for jobs that depend on each other.
"""

import argparse
import asyncio
import os
import sqlite3
import time
from collections.abc import Awaitable, Callable
from contextlib import closing, nullcontext, suppress

from redlock_async import LockLost, redlock  # the nodes: REDLOCK_NODES
from redlock_async.testing import LocalCluster


async def collect() -> None:
    """Run one job."""
    await asyncio.sleep(0.02)


async def report() -> None:
    """Run another job."""
    await asyncio.sleep(0.05)


SCHEDULE: dict[float, Callable[[], Awaitable[None]]] = {0.2: collect, 0.5: report}
"""Jobs by period in seconds. Periods follow the wall clock, so that all processes use the same moments."""


class DeposedError(Exception):
    """A later leader has already run a job."""


class Runs:
    """The runs of each job: a table that all processes open, and that compares fences."""

    def __init__(self, path: str) -> None:
        self._table = sqlite3.connect(path, timeout=5, isolation_level=None)
        self._table.execute("CREATE TABLE IF NOT EXISTS runs (job TEXT, due INTEGER, fence INTEGER, leader TEXT)")

    def begin(self, job: str, due: int, fence: int, leader: str) -> bool:
        """Return whether to run the job now. Raises DeposedError if a later leader has taken over.

        The run is recorded before it starts, so if the leader dies during the job, it does not run again: at most
        once. Record it afterwards for at least once.
        """
        if self._table.execute("SELECT 1 FROM runs WHERE fence > ?", (fence,)).fetchone():
            raise DeposedError
        recorded = self._table.execute(
            "INSERT INTO runs SELECT ?, ?, ?, ? WHERE NOT EXISTS"
            " (SELECT 1 FROM runs WHERE fence > ? OR (job = ? AND due >= ?))",
            (job, due, fence, leader, fence, job, due),
        )
        return recorded.rowcount == 1

    def close(self) -> None:
        """Close the file."""
        self._table.close()


async def schedule(me: str, fence: int, runs: Runs) -> None:
    """Run due jobs as the leader. It is cancelled, including its jobs, before the lease ends."""
    while True:
        for every, job in SCHEDULE.items():
            if runs.begin(job.__name__, int(time.time() / every), fence, me):
                await job()
        now = time.time()
        await asyncio.sleep(min(every - now % every for every in SCHEDULE))


async def main(me: str, path: str, ttl: float) -> None:
    """Wait until elected, lead as long as possible, and wait again. After Ctrl-C another process leads immediately."""
    with closing(Runs(path)) as runs:
        try:
            while True:
                with suppress(DeposedError, LockLost):
                    async with redlock.election("scheduler", value=me, ttl=ttl).term() as term:
                        assert term.fencing_token is not None  # the terms of an election always have one
                        print(f"{me} schedules with fence {term.fencing_token}", flush=True)
                        await schedule(me, term.fencing_token, runs)
                print(f"{me} no longer leads", flush=True)
        finally:
            await redlock.aclose()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("me", nargs="?", default=f"process {os.getpid()}", help="a name for this process")
    parser.add_argument("--runs", default="runs.sqlite", help="the file that records runs")
    parser.add_argument("--ttl", type=float, default=5.0, help="seconds after which a dead leader is replaced")
    options = parser.parse_args()
    # Without REDLOCK_NODES, start five local nodes.
    with nullcontext() if os.environ.get("REDLOCK_NODES") else LocalCluster() as cluster, suppress(KeyboardInterrupt):
        if cluster is not None:
            os.environ["REDLOCK_NODES"] = ",".join(cluster.urls)
            print(f"export REDLOCK_NODES={os.environ['REDLOCK_NODES']}", flush=True)
        asyncio.run(main(options.me, options.runs, options.ttl))
