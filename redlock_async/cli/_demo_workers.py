"""The demo's processes as the demo sees them: started, told what to do, ended; what they do is not known here."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

PATIENCE = 2.0
"""Seconds that a process gets to end by itself."""


class WorkerError(Exception):
    """A process of the demo ended by itself, or could not begin."""


class Crew:
    """Some processes that do the same at the same time."""

    def __init__(
        self, size: int, *, increments: int, pause: float, folder: Path, urls: Sequence[str], ttl: float
    ) -> None:
        self._size = size
        self._arguments = (str(increments), str(pause), str(folder))
        self._urls = urls
        self._ttl = ttl
        self._processes: list[Process] = []

    async def __aenter__(self) -> Self:
        try:
            for number in range(1, self._size + 1):
                self._processes.append(await self._start(number))
            await self._all_answer("ready")
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._end()

    async def do(self, word: str) -> None:
        """Have all of them do that, and wait until all have done it."""
        for process in self._processes:
            assert process.stdin is not None  # noqa: S101 - we asked for a pipe
            process.stdin.write(f"{word}\n".encode())
        await self._all_answer(word)

    async def _start(self, number: int) -> Process:
        # What the caller's own locks are configured with is not for these.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("REDLOCK_")}
        environment["REDLOCK_NODES"] = ",".join(self._urls)
        environment["REDLOCK_TTL"] = str(self._ttl)
        environment["REDLOCK_WAIT"] = "20"
        environment["REDLOCK_OWNER"] = f"process {number}"
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "redlock_async.cli._demo_worker", str(number), *self._arguments),
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            env=environment,
            start_new_session=True,  # Ctrl-C is for us, and they end when their stdin does
        )

    async def _all_answer(self, word: str) -> None:
        """Wait for that word from each; the first that fails ends the waiting."""
        answers = [asyncio.ensure_future(self._answers(n, p, word)) for n, p in enumerate(self._processes, 1)]
        try:
            await asyncio.gather(*answers)
        finally:
            for answer in answers:
                answer.cancel()

    @staticmethod
    async def _answers(number: int, process: Process, word: str) -> None:
        assert process.stdout is not None  # noqa: S101 - we asked for pipes
        assert process.stderr is not None  # noqa: S101 - it was asked for
        if (await process.stdout.readline()).decode().strip() == word:
            return
        said = (await process.stderr.read()).decode(errors="replace").strip()
        status = await process.wait()
        how = f"was ended by signal {-status}" if status < 0 else f"ended with exit status {status}"
        raise WorkerError(f"process {number} {how}" + (f": {said}" if said else ""))

    async def _end(self) -> None:
        for process in self._processes:
            assert process.stdin is not None  # noqa: S101 - we asked for a pipe
            process.stdin.close()
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(PATIENCE):
                    await asyncio.gather(*(process.wait() for process in self._processes))
        finally:
            for process in self._processes:
                if process.returncode is None:
                    process.kill()
