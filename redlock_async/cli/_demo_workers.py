"""The demo's worker processes, seen from the demo: start them, send them commands, stop them."""

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

EXIT_TIMEOUT = 2.0
"""Seconds that a worker gets to exit before it is killed."""


class WorkerError(Exception):
    """A worker ended unexpectedly, or could not start."""


class Workers:
    """Several worker processes that execute the same commands at the same time."""

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
            await self._wait_for_all("ready")
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._stop()

    async def execute(self, command: str) -> None:
        """Send a command to all workers, and wait until all have executed it; raise WorkerError if one ends."""
        for process in self._processes:
            assert process.stdin is not None  # noqa: S101 - opened as a pipe
            process.stdin.write(f"{command}\n".encode())
        await self._wait_for_all(command)

    async def _start(self, number: int) -> Process:
        # The settings of the caller's own locks must not affect the workers.
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
            start_new_session=True,  # so that Ctrl-C reaches only the demo; workers end when their stdin closes
        )

    async def _wait_for_all(self, reply: str) -> None:
        """Wait for that reply from every worker; the first worker that ends instead ends the wait."""
        waits = [asyncio.ensure_future(self._wait_for(n, p, reply)) for n, p in enumerate(self._processes, 1)]
        try:
            await asyncio.gather(*waits)
        finally:
            for wait in waits:
                wait.cancel()

    @staticmethod
    async def _wait_for(number: int, process: Process, reply: str) -> None:
        assert process.stdout is not None  # noqa: S101 - opened as a pipe
        assert process.stderr is not None  # noqa: S101 - opened as a pipe
        if (await process.stdout.readline()).decode().strip() == reply:
            return
        errors = (await process.stderr.read()).decode(errors="replace").strip()
        status = await process.wait()
        outcome = f"was ended by signal {-status}" if status < 0 else f"ended with exit status {status}"
        raise WorkerError(f"process {number} {outcome}" + (f": {errors}" if errors else ""))

    async def _stop(self) -> None:
        for process in self._processes:
            assert process.stdin is not None  # noqa: S101 - opened as a pipe
            process.stdin.close()
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(EXIT_TIMEOUT):
                    await asyncio.gather(*(process.wait() for process in self._processes))
        finally:
            for process in self._processes:
                if process.returncode is None:
                    process.kill()
