"""The process that holds the lock while another process runs the command; each notices the end of the other.

The lock has a process of its own for two reasons: it is renewed while the job is suspended (Ctrl-Z), and the command is
stopped before the lease ends even if the process that runs it is killed or stopped.
"""

from __future__ import annotations

import asyncio
import json
import socket
import time
from contextlib import suppress
from functools import partial
from typing import Any

import redlock_async

from ._lock_options import LOST, AnyLock
from ._messages import summarize
from ._nodes import NO_QUORUM
from ._run_group import KILL_TIMEOUT, POLL_INTERVAL, Group

START_TIMEOUT = 10.0
"""Seconds after which the lock is released if no command was started, because the process that starts it is stopped."""

KILL_GRACE = 0.25
"""Seconds from SIGTERM to SIGKILL when another client may already hold the lock."""

ORPHAN_KILL_GRACE = 1.5
"""Seconds from SIGTERM to SIGKILL when the lock is still held, but the process that ran the command is gone."""

GROUP, DONE, FAILED = "group ", "done", "failed"
"""Messages from the process that runs the command: its process group, its end with status 0, any other end."""

# The clock of leases: it continues while the machine is suspended, and is the same in all processes.
now = partial(time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Holder:
    """Acquires one lock, holds it and releases it, and reports every change over a socket to the other process."""

    def __init__(
        self,
        redlock: redlock_async.Redlock,
        lock: AnyLock,
        busy: int,
        *,
        quiet: bool = False,
        retry_failed: bool = False,
    ) -> None:
        self._redlock = redlock
        self._lock = lock
        self._busy = busy
        self._quiet = quiet
        """Whether to say nothing when another client holds the lock. Every other error is still reported."""
        self._retry_failed = retry_failed
        """Whether a command that fails releases the name immediately, despite `min_hold`."""
        self._lease: redlock_async.Lease | None = None
        self._lost = asyncio.Event()

    async def hold(self, link: socket.socket) -> None:
        """Hold the lock until the command has ended, and report the outcome."""
        self._reader, self._writer = await asyncio.open_connection(sock=link)
        self._redlock.on_event(self._on_event)
        status, message = 0, ""
        try:
            await self._hold()
        except redlock_async.RedlockError as error:
            status = self._status(error)
            message = "" if self._quiet and isinstance(error, redlock_async.LockTimeout) else summarize(error)
        finally:
            await self._redlock.aclose()
        self._send(ended=status, message=message)
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()

    def _status(self, error: redlock_async.RedlockError) -> int:
        if isinstance(error, redlock_async.LockTimeout):
            return self._busy
        if isinstance(error, redlock_async.LockLost):
            return LOST
        if isinstance(error, redlock_async.QuorumUnavailable):
            # If the release fails, the command has still run under the lock, and the rest of the lock expires. Only an
            # unconfirmed `min_hold` matters: the name may be free too soon, and the next run may come too early.
            return NO_QUORUM if self._lease is None or isinstance(error, redlock_async.HoldUnconfirmed) else 0
        return 2 if isinstance(error, redlock_async.ConfigurationError) else 1

    async def _hold(self) -> None:
        message = asyncio.ensure_future(self._receive())
        self._lease = lease = await self._acquire(message)
        if lease is None:
            return
        self._send(granted=lease.token, fence=lease.fencing_token, slots=list(lease.slots), until=self._until(lease))
        await asyncio.wait({message}, timeout=START_TIMEOUT)
        succeeded = False
        if message.done() and message.result().startswith(GROUP):
            succeeded = await self._until_done(lease, Group(int(message.result().removeprefix(GROUP))))
        if self._retry_failed and not succeeded:
            lease._held.drop_min_hold()  # noqa: SLF001 - only `once` has a public option for this
        await lease.release()
        if not message.done():
            message.cancel()
            raise redlock_async.LockLost(
                f"the lock on {lease.name!r} was released because no command was started within {START_TIMEOUT:g} s"
            )

    async def _acquire(self, message: asyncio.Future[str]) -> redlock_async.Lease | None:
        """Return the lease, or None if the other process ended while it waited."""
        acquiring = asyncio.ensure_future(self._lock.acquire())
        either: list[asyncio.Future[Any]] = [acquiring, message]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not message.done():
            return acquiring.result()
        acquiring.cancel()
        with suppress(asyncio.CancelledError):
            await (await acquiring).release()
        return None

    async def _until_done(self, lease: redlock_async.Lease, group: Group) -> bool:
        """Hold the lock while the command runs, and return whether the command succeeded.

        The process that runs the command stops it when the lock is lost. This process does so if the other one cannot.
        """
        done = asyncio.ensure_future(self._receive())
        lost = asyncio.ensure_future(self._lost.wait())
        either: list[asyncio.Future[Any]] = [done, lost]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        lost.cancel()
        if not done.done():
            await asyncio.wait({done}, timeout=0 if lease.valid else KILL_GRACE)
            if not done.done():
                group.kill()
        if (outcome := await done) not in {DONE, FAILED}:
            await self._stop(group)
        return outcome == DONE

    async def _stop(self, group: Group) -> None:
        """Stop the command of a process that has died."""
        group.terminate()
        await self._wait_until_gone(group, ORPHAN_KILL_GRACE)
        group.kill()
        await self._wait_until_gone(group, KILL_TIMEOUT)

    async def _wait_until_gone(self, group: Group, seconds: float) -> None:
        """Wait until the group has ended, the time is over, or the lock is lost."""
        end = now() + seconds
        while group.exists and now() < end and not self._lost.is_set():  # noqa: ASYNC110 - a group has no event
            await asyncio.sleep(POLL_INTERVAL)

    def _on_event(self, event: redlock_async.Event) -> None:
        if event.kind == "lost":
            self._lost.set()
            self._send(lost=str(event.error))
        elif event.kind == "extended" and self._lease is not None:
            self._send(until=self._until(self._lease))

    @staticmethod
    def _until(lease: redlock_async.Lease) -> float:
        before = now()  # read first: time that passes between the two readings makes the result earlier, not later
        return before + lease.remaining

    def _send(self, **message: float | str | list[int] | None) -> None:
        if not self._writer.is_closing():
            self._writer.write(json.dumps(message).encode() + b"\n")

    async def _receive(self) -> str:
        """Return the next message of the other process; empty when that process has ended."""
        try:
            return (await self._reader.readline()).decode().strip()
        except ConnectionError:
            return ""
