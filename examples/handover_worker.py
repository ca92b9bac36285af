"""Hand a lease over with its job: the dispatcher acquires it, and a worker in another process releases it.

    python examples/handover_worker.py            # nodes, a dispatcher and two workers, until all jobs are done

You can also start each role separately with REDLOCK_NODES in its environment, and kill any of them at any time:

    python examples/handover_worker.py dispatch   # in one shell
    python examples/handover_worker.py work       # in other shells

From the moment a job is offered, no other process can work on its video. If its worker dies, the lock can be acquired
again, and the dispatcher offers the job again.
"""

import argparse
import asyncio
import os
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext

from redlock_async import LockLost, redlock  # the nodes: REDLOCK_NODES
from redlock_async.testing import LocalCluster

TTL = 1.5  # how many seconds a ticket may wait in the queue, and a dead worker delays its job


class Queue:
    """The jobs: a table that all processes open. A broker that delivers at most once works as well.

    At most once, because two workers that attach the same ticket hold one lease with one fence, and nothing
    distinguishes them.
    """

    def __init__(self, path: str) -> None:
        self._table = sqlite3.connect(path, timeout=5, isolation_level=None)
        self._table.execute(
            "CREATE TABLE IF NOT EXISTS jobs (video TEXT UNIQUE, ticket TEXT, fence INTEGER, done TEXT)"
        )

    def add(self, video: str) -> None:
        """Add a job, or reopen a finished one. A job in progress stays as it is."""
        self._table.execute(
            "INSERT INTO jobs VALUES (?, NULL, 0, NULL)"
            " ON CONFLICT DO UPDATE SET ticket = NULL, fence = 0, done = NULL WHERE done IS NOT NULL",
            (video,),
        )

    def open_jobs(self) -> list[str]:
        """Return the videos of all unfinished jobs."""
        return [video for (video,) in self._table.execute("SELECT video FROM jobs WHERE done IS NULL")]

    def offer(self, video: str, ticket: str, fence: int) -> None:
        """Offer a job to workers, with the ticket of its lease."""
        self._table.execute("UPDATE jobs SET ticket = ?, fence = ? WHERE video = ?", (ticket, fence, video))

    def take(self) -> tuple[str, str] | None:
        """Take one job and its ticket."""
        with self._transaction():
            taken: tuple[str, str] | None = self._table.execute(
                "SELECT video, ticket FROM jobs WHERE ticket IS NOT NULL AND done IS NULL LIMIT 1"
            ).fetchone()
            if taken is not None:
                self._table.execute("UPDATE jobs SET ticket = NULL WHERE video = ?", taken[:1])
        return taken

    def finish(self, video: str, fence: int, result: str) -> bool:
        """Store the result, unless the job was offered again since: a paused worker may be late."""
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
    """Offer all jobs that are neither finished nor locked, until all are finished.

    If any process dies at any time, its lease expires and the next iteration finds the job free. Between `try_acquire`
    and `detach` this process renews the lease; after that no process does until a worker attaches it.
    """
    while videos := queue.open_jobs():
        for video in videos:
            lease = await redlock(f"video:{video}", ttl=TTL).try_acquire()
            if lease is None:
                continue  # its ticket is in the queue, or a worker is processing it
            assert lease.fencing_token is not None  # None only if REDLOCK_FENCING is off
            fence = lease.fencing_token
            if video not in queue.open_jobs():
                await lease.release()  # done in the meantime
                continue
            queue.offer(video, lease.detach(), fence)
            print(f"dispatcher: {video} with fence {fence}", flush=True)
        await asyncio.sleep(0.1)


async def work(me: str, queue: Queue, seconds: float) -> None:
    """Process jobs, each under the lease that came with it, until the process is stopped."""
    while True:
        taken = queue.take()
        if taken is None:
            await asyncio.sleep(0.05)
            continue
        video, ticket = taken
        try:
            async with redlock.attach(ticket) as lease:  # renewed again, and released at the end
                assert lease.fencing_token is not None
                print(f"{me}: works on {video} with fence {lease.fencing_token}", flush=True)
                await asyncio.sleep(seconds)  # the work
                if queue.finish(video, lease.fencing_token, f"by {me}"):
                    print(f"{me}: {video} is done", flush=True)
        except LockLost as exc:
            # The ticket expired, or the lock was lost: the dispatcher offers the job again.
            print(f"{me}: gives up {video}: {exc}", flush=True)


async def main(role: str, me: str, path: str, jobs: int, seconds: float) -> None:
    """Run one role, or a dispatcher and two workers."""
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
    print("all jobs are done")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("role", nargs="?", default="all", choices=["all", "dispatch", "work"])
    parser.add_argument("--me", default=f"worker {os.getpid()}", help="a name for this process")
    parser.add_argument("--queue", default="queue.sqlite", help="the file with the jobs")
    parser.add_argument("--jobs", type=int, default=6, help="how many the dispatcher adds")
    parser.add_argument("--seconds", type=float, default=0.3, help="how long a job takes")
    options = parser.parse_args()
    # Without REDLOCK_NODES, start five local nodes.
    with nullcontext() if os.environ.get("REDLOCK_NODES") else LocalCluster() as cluster:
        if cluster is not None:
            os.environ["REDLOCK_NODES"] = ",".join(cluster.urls)
            print(f"export REDLOCK_NODES={os.environ['REDLOCK_NODES']}", flush=True)
        jobs = 0 if options.role == "work" else options.jobs
        asyncio.run(main(options.role, options.me, options.queue, jobs, options.seconds))
