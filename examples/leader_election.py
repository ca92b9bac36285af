"""Leader election: one process leads, and another takes over when it dies, is cut off or steps down.

    python examples/leader_election.py anna       # starts its own nodes and prints an export line
    export REDLOCK_NODES=...                      # that line, in each other shell; then:
    python examples/leader_election.py bert

Then stop the leader. After Ctrl-C another process leads immediately, after `kill -9` within the ttl. (The nodes stop
with the process that started them. To keep them, run `redlock-async up` in a separate shell.) Leaders write to
journal.sqlite.
"""

import argparse
import asyncio
import os
import signal
import sqlite3
from contextlib import closing, nullcontext

from redlock_async import Lease, Redlock
from redlock_async.testing import LocalCluster


class DeposedError(Exception):
    """A later leader has already written."""


class Journal:
    """The resource that only one leader may write: a table here, your resource in production.

    It compares fences, because the lease alone cannot prevent a late write by a leader that was paused. The comparison
    makes the election safe.
    """

    def __init__(self, path: str) -> None:
        self._table = sqlite3.connect(path, timeout=5, isolation_level=None)
        self._table.execute("CREATE TABLE IF NOT EXISTS journal (fence INTEGER, leader TEXT, entry TEXT)")

    def write(self, leader: str, fence: int, entry: str) -> None:
        """Add an entry, unless a later leader has already written."""
        added = self._table.execute(
            "INSERT INTO journal SELECT ?, ?, ? WHERE NOT EXISTS (SELECT 1 FROM journal WHERE fence > ?)",
            (fence, leader, entry, fence),
        )
        if not added.rowcount:
            raise DeposedError

    def close(self) -> None:
        """Close the file."""
        self._table.close()


async def lead(me: str, fence: int, journal: Journal) -> None:
    """Do the leader's work. It is cancelled at an `await` before the lease ends."""
    number = 0
    while True:
        number += 1
        journal.write(me, fence, f"entry {number}")
        await asyncio.sleep(0.05)


async def campaign(me: str, redlock: Redlock, ttl: float, journal: Journal) -> None:
    """Follow until elected, lead as long as possible, and follow again."""

    async def serve(term: Lease) -> None:
        assert term.fencing_token is not None  # the terms of an election always have one
        print(f"{me} leads with fence {term.fencing_token}", flush=True)
        try:
            await lead(me, term.fencing_token, journal)
        except DeposedError:
            print(f"{me} steps down: a later leader has written", flush=True)
        finally:
            if term.lost:
                print(f"{me} steps down: the term was lost", flush=True)

    # `run` calls `serve` in each term. It waits without a time limit, also while nodes are down.
    election = redlock.election("leader", value=me, ttl=ttl)
    while True:
        await election.run(serve)


async def main(me: str, path: str, ttl: float) -> None:
    """Run until stopped. A leader that is stopped releases, and another takes over immediately."""
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    with closing(Journal(path)) as journal:
        async with Redlock.from_env() as redlock:
            try:
                await campaign(me, redlock, ttl, journal)
            except asyncio.CancelledError:
                print(f"{me} stops", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("me", help="a name for this process")
    parser.add_argument("--journal", default="journal.sqlite", help="the file that leaders write to")
    parser.add_argument("--ttl", type=float, default=5.0, help="seconds after which a dead leader is replaced")
    options = parser.parse_args()
    # Without REDLOCK_NODES, start five local nodes.
    with nullcontext() if os.environ.get("REDLOCK_NODES") else LocalCluster() as cluster:
        if cluster is not None:
            os.environ["REDLOCK_NODES"] = ",".join(cluster.urls)
            print(f"export REDLOCK_NODES={os.environ['REDLOCK_NODES']}", flush=True)
        asyncio.run(main(options.me, options.journal, options.ttl))
