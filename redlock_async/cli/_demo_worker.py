"""One worker process of the demo: increments counters with and without the lock, as it is commanded on stdin."""

# ruff: noqa: T201 - it replies on stdout

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from redlock_async import RedlockError, redlock

from ._demo_record import GUARDED, JOURNAL, UNGUARDED, FileCounter, HeldInterval, Journal

LOCK = "demo-counter"


class Worker:
    """Reads a counter, pauses, and writes it back plus 1; without a lock, concurrent increments are lost."""

    def __init__(self, number: int, increments: int, pause: float, folder: Path) -> None:
        self._number = number
        self._increments = increments
        self._pause = pause
        self._folder = folder

    async def unguarded(self) -> None:
        """Increment a counter without the lock."""
        with closing(FileCounter(self._folder / UNGUARDED)) as counter:
            for _ in range(self._increments):
                await self._increment(counter)

    async def guarded(self) -> None:
        """Increment another counter under the lock."""
        with (
            closing(FileCounter(self._folder / GUARDED)) as counter,
            closing(Journal(self._folder / JOURNAL)) as journal,
        ):
            for _ in range(self._increments):
                async with redlock(LOCK) as lease:
                    since = time.monotonic()
                    await self._increment(counter)
                    journal.add(HeldInterval(lease.fencing_token or 0, self._number, since, time.monotonic()))

    async def _increment(self, counter: FileCounter) -> None:
        number = counter.read()
        await asyncio.sleep(self._pause)
        counter.write(number + 1)


class Commands(asyncio.Protocol):
    """The commands from stdin. When stdin closes, the demo has ended, and the worker's task is cancelled."""

    def __init__(self, task: asyncio.Task[Any] | None) -> None:
        self._task = task
        self.queue: asyncio.Queue[str] = asyncio.Queue()

    def data_received(self, data: bytes) -> None:
        """Queue the commands."""
        for command in data.decode().split():
            self.queue.put_nowait(command)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        """Cancel the worker."""
        if self._task is not None:
            self._task.cancel()


async def serve(worker: Worker) -> None:
    """Execute commands, and reply to each with its name when it is done."""
    commands = Commands(asyncio.current_task())
    await asyncio.get_running_loop().connect_read_pipe(lambda: commands, sys.stdin)
    actions = {"unguarded": worker.unguarded, "guarded": worker.guarded}
    async with redlock:
        print("ready", flush=True)
        while True:
            command = await commands.queue.get()
            await actions[command]()
            print(command, flush=True)


def main() -> None:
    """Run worker NUMBER until stdin closes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("number", type=int)
    parser.add_argument("increments", type=int)
    parser.add_argument("pause", type=float)
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    logging.getLogger("redlock_async").addHandler(logging.NullHandler())  # nodes fail here on purpose
    try:
        with suppress(asyncio.CancelledError):
            asyncio.run(serve(Worker(**vars(arguments))))
    except RedlockError as error:
        sys.exit(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
