"""One of several processes leads; the others follow, and take over when it dies, is cut off or steps down.

    python examples/leader_election.py anna       # with masters of its own; it prints REDLOCK_NODES=...
    export REDLOCK_NODES=...                      # in other shells, then, in each of them:
    python examples/leader_election.py bert

Then stop the one that leads: with Ctrl-C another leads at once, with `kill -9` within the ttl. (The first takes its
masters along: `redlock-async up` in a shell of its own has some that stay.) What they wrote is in journal.sqlite.
"""

import argparse
import asyncio
import os
import signal
import sqlite3
from contextlib import closing, nullcontext

from redlock_async import LockLost, Redlock
from redlock_async.testing import LocalCluster


class DeposedError(Exception):
    """A later leader has written already."""


class Journal:
    """What the leader writes: here a table, in earnest whatever must not be written by two.

    It compares fences. The lease alone cannot keep a leader from writing late that was stopped in the middle of a
    write: it is this that makes the election safe.
    """

    def __init__(self, path: str) -> None:
        self._table = sqlite3.connect(path, timeout=5, isolation_level=None)
        self._table.execute("CREATE TABLE IF NOT EXISTS journal (fence INTEGER, leader TEXT, entry TEXT)")

    def write(self, leader: str, fence: int, entry: str) -> None:
        """Add an entry, unless a later leader has."""
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
    """What only the leader does. It is cancelled, at its next `await`, before the lease ends."""
    number = 0
    while True:
        number += 1
        journal.write(me, fence, f"entry {number}")
        await asyncio.sleep(0.05)


async def campaign(me: str, redlock: Redlock, ttl: float, journal: Journal) -> None:
    """Follow until it is our turn, lead for as long as we can, and follow again."""
    while True:
        try:
            # For ever, because followers have nothing else to do; masters that are down are waited for as well.
            async with redlock("leader", ttl=ttl, wait=None) as lease:
                assert lease.fencing_token is not None  # there is one unless the client has fencing=False
                print(f"{me} leads with fence {lease.fencing_token}", flush=True)
                await lead(me, lease.fencing_token, journal)
        except LockLost as loss:
            print(f"{me} steps down: {loss}", flush=True)
        except DeposedError:
            print(f"{me} steps down: a later leader has written", flush=True)


async def main(me: str, path: str, ttl: float) -> None:
    """Run until we are told to stop; whoever leads then releases, and another takes over at once."""
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
    # Five masters of this machine's own, where there are no others.
    with nullcontext() if os.environ.get("REDLOCK_NODES") else LocalCluster() as cluster:
        if cluster is not None:
            os.environ["REDLOCK_NODES"] = ",".join(cluster.urls)
            print(f"export REDLOCK_NODES={os.environ['REDLOCK_NODES']}", flush=True)
        asyncio.run(main(options.me, options.journal, options.ttl))
