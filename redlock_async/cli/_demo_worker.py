"""One process of the demo: adds to counters with and without the lock, as it is told; it judges nothing."""

# ruff: noqa: T201 - printing is what it is for

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

from ._demo_record import GUARDED, JOURNAL, UNGUARDED, Hold, Journal, Tally

LOCK = "demo-counter"


class Worker:
    """Reads, pauses and writes: whoever writes in that pause is overwritten."""

    def __init__(self, number: int, increments: int, pause: float, folder: Path) -> None:
        self._number = number
        self._increments = increments
        self._pause = pause
        self._folder = folder

    async def unguarded(self) -> None:
        """Without the lock."""
        with closing(Tally(self._folder / UNGUARDED)) as tally:
            for _ in range(self._increments):
                await self._increment(tally)

    async def guarded(self) -> None:
        """The same under the lock."""
        with closing(Tally(self._folder / GUARDED)) as tally, closing(Journal(self._folder / JOURNAL)) as journal:
            for _ in range(self._increments):
                async with redlock(LOCK) as lease:
                    since = time.monotonic()
                    await self._increment(tally)
                    journal.add(Hold(lease.fencing_token or 0, self._number, since, time.monotonic()))

    async def _increment(self, tally: Tally) -> None:
        number = tally.read()
        await asyncio.sleep(self._pause)
        tally.write(number + 1)


class Orders(asyncio.Protocol):
    """What comes on stdin: words to obey, and an end when the demo ends, however it ends."""

    def __init__(self, task: asyncio.Task[Any] | None) -> None:
        self._task = task
        self.words: asyncio.Queue[str] = asyncio.Queue()

    def data_received(self, data: bytes) -> None:
        """One word or more."""
        for word in data.decode().split():
            self.words.put_nowait(word)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        """Nobody is there any more."""
        if self._task is not None:
            self._task.cancel()


async def obey(worker: Worker) -> None:
    """Do what it is told, answering each word with itself when it is done."""
    orders = Orders(asyncio.current_task())
    await asyncio.get_running_loop().connect_read_pipe(lambda: orders, sys.stdin)
    works = {"unguarded": worker.unguarded, "guarded": worker.guarded}
    async with redlock:
        print("ready", flush=True)
        while True:
            word = await orders.words.get()
            await works[word]()
            print(word, flush=True)


def main() -> None:
    """Be worker NUMBER."""
    parser = argparse.ArgumentParser()
    parser.add_argument("number", type=int)
    parser.add_argument("increments", type=int)
    parser.add_argument("pause", type=float)
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    logging.getLogger("redlock_async").addHandler(logging.NullHandler())  # masters fail here all the time
    try:
        with suppress(asyncio.CancelledError):
            asyncio.run(obey(Worker(**vars(arguments))))
    except RedlockError as error:
        sys.exit(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
