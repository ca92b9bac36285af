"""A lease goes with its job through a queue: who hands the job out acquires, a worker of another process releases.

    python examples/handover_worker.py            # masters, a dispatcher and two workers, until all jobs are done

or each by itself, with REDLOCK_NODES in its environment, and killed as one likes:

    python examples/handover_worker.py dispatch   # in one shell
    python examples/handover_worker.py work       # in others

From the moment a job is handed out nobody else can work on its video, and what tells that its worker died is the lock
itself: it can be acquired again.
"""

import argparse
import asyncio
import os
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext

from redlock_async import LockLost, redlock  # the masters: REDLOCK_NODES
from redlock_async.testing import LocalCluster

TTL = 1.5  # seconds a ticket may lie in the queue, and after which the job of a dead worker is handed out again


class Queue:
    """The jobs: a table that all processes open. A broker would do that delivers a message at most once.

    At most once, because two who attach one ticket hold one lease, with one fence, and nothing tells them apart.
    """

    def __init__(self, path: str) -> None:
        self._table = sqlite3.connect(path, timeout=5, isolation_level=None)
        self._table.execute(
            "CREATE TABLE IF NOT EXISTS jobs (video TEXT UNIQUE, ticket TEXT, fence INTEGER, done TEXT)"
        )

    def add(self, video: str) -> None:
        """Something to do, also again; what is under way already stays so."""
        self._table.execute(
            "INSERT INTO jobs VALUES (?, NULL, 0, NULL)"
            " ON CONFLICT DO UPDATE SET ticket = NULL, fence = 0, done = NULL WHERE done IS NOT NULL",
            (video,),
        )

    def open_jobs(self) -> list[str]:
        """What is not done."""
        return [video for (video,) in self._table.execute("SELECT video FROM jobs WHERE done IS NULL")]

    def offer(self, video: str, ticket: str, fence: int) -> None:
        """Hand it out, with the lease it is to be done under."""
        self._table.execute("UPDATE jobs SET ticket = ?, fence = ? WHERE video = ?", (ticket, fence, video))

    def take(self) -> tuple[str, str] | None:
        """A job for one worker, and its ticket."""
        with self._transaction():
            taken: tuple[str, str] | None = self._table.execute(
                "SELECT video, ticket FROM jobs WHERE ticket IS NOT NULL AND done IS NULL LIMIT 1"
            ).fetchone()
            if taken is not None:
                self._table.execute("UPDATE jobs SET ticket = NULL WHERE video = ?", taken[:1])
        return taken

    def finish(self, video: str, fence: int, result: str) -> bool:
        """Store what came of it, unless it was handed out again since: a worker that stood still may come late."""
        stored = self._table.execute(
            "UPDATE jobs SET done = ? WHERE video = ? AND fence = ? AND done IS NULL", (result, video, fence)
        )
        return stored.rowcount == 1

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._table.execute("BEGIN IMMEDIATE")
        try:
            yield
        finally:
            self._table.execute("COMMIT")

    def close(self) -> None:
        """Close the file."""
        self._table.close()


async def dispatch(queue: Queue) -> None:
    """Hand out what is not done and not locked, until all is done.

    Whatever dies, and whenever: the lease runs out, and the next look finds the job free. Between `acquire` and
    `detach` it is ours, and nobody renews it after that; if we die before `offer`, nobody has a ticket.
    """
    while videos := queue.open_jobs():
        for video in videos:
            lease = await redlock(f"video:{video}", ttl=TTL).try_acquire()
            if lease is None:
                continue  # its ticket is on the way, or somebody works on it
            assert lease.fencing_token is not None  # there is one unless REDLOCK_FENCING is off
            fence = lease.fencing_token
            if video not in queue.open_jobs():
                await lease.release()  # done in the meantime
                continue
            queue.offer(video, lease.detach(), fence)
            print(f"dispatcher: {video} with fence {fence}", flush=True)
        await asyncio.sleep(0.1)


async def work(me: str, queue: Queue, seconds: float) -> None:
    """Take jobs, each under the lease that came with it, until we are told to stop."""
    while True:
        taken = queue.take()
        if taken is None:
            await asyncio.sleep(0.05)
            continue
        video, ticket = taken
        try:
            async with redlock.attach(ticket) as lease:  # renewed again from here on, and released at the end
                assert lease.fencing_token is not None
                print(f"{me}: works on {video} with fence {lease.fencing_token}", flush=True)
                await asyncio.sleep(seconds)  # the work
                if queue.finish(video, lease.fencing_token, f"by {me}"):
                    print(f"{me}: {video} is done", flush=True)
        except LockLost as loss:
            # The ticket had lain too long, or the lock was taken from us: the dispatcher hands the job out again.
            print(f"{me}: gives {video} up: {loss}", flush=True)


async def main(role: str, me: str, path: str, jobs: int, seconds: float) -> None:
    """One role; without one, two workers beside a dispatcher."""
    with closing(Queue(path)) as queue:
        for number in range(jobs):
            queue.add(f"{number}.mp4")
        workers = [
            await asyncio.create_subprocess_exec(
                sys.executable, __file__, "work", f"--me={name}", f"--queue={path}", f"--seconds={seconds}"
            )
            for name in (("anna", "bert") if role == "all" else ())
        ]
        try:
            await (work(me, queue, seconds) if role == "work" else dispatch(queue))
        finally:
            await redlock.aclose()
            for worker in workers:
                worker.terminate()
                await worker.wait()
    print("all is done")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("role", nargs="?", default="all", choices=["all", "dispatch", "work"])
    parser.add_argument("--me", default=f"worker {os.getpid()}", help="a name for this process")
    parser.add_argument("--queue", default="queue.sqlite", help="the file with the jobs")
    parser.add_argument("--jobs", type=int, default=6, help="how many the dispatcher adds")
    parser.add_argument("--seconds", type=float, default=0.3, help="how long a job takes")
    options = parser.parse_args()
    # Five masters of this machine's own, where there are no others.
    with nullcontext() if os.environ.get("REDLOCK_NODES") else LocalCluster() as cluster:
        if cluster is not None:
            os.environ["REDLOCK_NODES"] = ",".join(cluster.urls)
            print(f"export REDLOCK_NODES={os.environ['REDLOCK_NODES']}", flush=True)
        jobs = 0 if options.role == "work" else options.jobs
        asyncio.run(main(options.role, options.me, options.queue, jobs, options.seconds))
