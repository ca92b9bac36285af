"""The jobs of a taskiq worker, as on docs/workers.md, and a journal of who was inside when."""

import asyncio
import os
import signal
from pathlib import Path

from taskiq import TaskiqEvents, TaskiqState
from taskiq_redis import ListQueueBroker, RedisAsyncResultBackend

from redlock_async import LockLost, redlock

URL = os.environ["BROKER"]
JOURNAL = Path(os.environ["JOURNAL"])
DOOR = JOURNAL.with_name("door")

# Without a timeout: a worker waits in one command until a job comes, and redis-py 8 gives up after 5 s by default.
broker = ListQueueBroker(URL, socket_timeout=None).with_result_backend(RedisAsyncResultBackend(URL))


def note(what):
    """One line, by this process."""
    with JOURNAL.open("a") as journal:
        journal.write(f"{what} {os.getpid()}\n")


@broker.on_event(TaskiqEvents.WORKER_STARTUP)
async def started(_: TaskiqState) -> None:
    """The worker begins, or was restarted.

    An idle event loop does not notice taskiq's own handler of SIGTERM before the next job. Any handler of the loop's
    own makes signals wake it.
    """
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, note, "woken")
    note("started")


@broker.on_event(TaskiqEvents.WORKER_SHUTDOWN)
async def close(_: TaskiqState) -> None:
    """The worker ends."""
    await redlock.aclose()


@broker.task
@redlock.locked("import:{user}", wait=30)
async def import_user(user: int) -> int:
    """One at a time for each user."""
    note(f"begin {user}")
    await asyncio.sleep(0.02)
    note(f"end {user}")
    return os.getpid()


@broker.task
@redlock.locked("rebuild", on_conflict="skip")
async def rebuild() -> str | None:
    """It goes on until the door is open."""
    while not DOOR.exists():  # noqa: ASYNC110 - the test opens it from another process
        await asyncio.sleep(0.01)
    return "rebuilt"


@broker.task
@redlock.locked("rebuild", on_conflict="raise")
async def must_rebuild() -> str:
    """Somebody else's rebuilding is an error of this job."""
    return "rebuilt"


@broker.task
async def encode(video: str, ticket: str) -> int | None:
    """Work under a lease that whoever sent the job has acquired."""
    try:
        async with redlock.attach(ticket) as lease:
            note(f"encode {video}")
            return lease.fencing_token
    except LockLost:
        return None
