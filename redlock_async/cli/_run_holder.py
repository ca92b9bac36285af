"""The process that holds the lock while another one runs the command: neither is to outlive the other unnoticed.

It is a process of its own so that the lock is renewed while the job is suspended (Ctrl-Z), and so that the command is
stopped before the lease ends even when the process that runs it was killed or is stopped itself.
"""

from __future__ import annotations

import asyncio
import json
import socket
import time
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

import redlock_async

from ._nodes import NO_QUORUM
from ._run_group import GONE, LOOK, Group
from ._words import in_short

LOST = 70
"""The exit status when the lock was lost while the command ran: EX_SOFTWARE of sysexits.h."""

START = 10.0
"""Seconds after which a lock is given back when no command was started under it: whoever should is stopped."""

PARTING = 0.25
"""Seconds from SIGTERM to SIGKILL when the lock is somebody else's already, or may be."""

FAREWELL = 1.5
"""The same when the lock still stands, but nobody is there any more who waits for the command."""

GROUP, DONE = "group ", "done"
"""What the other side says: the number of the group that the lock is for, and that it has ended."""

# The clock of leases: it goes on while the machine is suspended, and is the same in all of its processes.
now = partial(time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class AnyLock(Protocol):
    """A lock of any kind."""

    async def acquire(self) -> redlock_async.Lease:
        """Wait for it."""
        ...


class Holder:
    """One lock, from asking for it to giving it back; all that happens is told to the other side of that socket."""

    def __init__(self, redlock: redlock_async.Redlock, lock: AnyLock, busy: int) -> None:
        self._redlock = redlock
        self._lock = lock
        self._busy = busy
        self._lease: redlock_async.Lease | None = None
        self._lost = asyncio.Event()

    async def hold(self, link: socket.socket) -> None:
        """Do it."""
        self._reader, self._writer = await asyncio.open_connection(sock=link)
        self._redlock.on_event(self._happened)
        status, said = 0, ""
        try:
            await self._hold()
        except redlock_async.RedlockError as error:
            status, said = self._status(error), in_short(error)
        finally:
            await self._redlock.aclose()
        self._tell(ended=status, said=said)
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()

    def _status(self, error: redlock_async.RedlockError) -> int:
        if isinstance(error, redlock_async.LockTimeout):
            return self._busy
        if isinstance(error, redlock_async.LockLost):
            return LOST
        if isinstance(error, redlock_async.QuorumUnavailable):
            # Of a release: the work was done under the lock, and what is left of it expires by itself.
            return NO_QUORUM if self._lease is None else 0
        return 2 if isinstance(error, redlock_async.ConfigurationError) else 1

    async def _hold(self) -> None:
        word = asyncio.ensure_future(self._hear())
        self._lease = lease = await self._acquire(word)
        if lease is None:
            return
        self._tell(granted=lease.token, fence=lease.fencing_token, slots=list(lease.slots), until=self._until(lease))
        await asyncio.wait({word}, timeout=START)
        if word.done() and word.result().startswith(GROUP):
            await self._until_done(lease, Group(int(word.result().removeprefix(GROUP))))
        await lease.release()
        if not word.done():
            word.cancel()
            raise redlock_async.LockLost(
                f"the lock on {lease.name!r} was given back: no command was started for {START:g} s"
            )

    async def _acquire(self, word: asyncio.Future[str]) -> redlock_async.Lease | None:
        """The lease, or None if nobody wants it any more."""
        acquiring = asyncio.ensure_future(self._lock.acquire())
        either: list[asyncio.Future[Any]] = [acquiring, word]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not word.done():
            return acquiring.result()
        acquiring.cancel()
        with suppress(asyncio.CancelledError):
            await (await acquiring).release()
        return None

    async def _until_done(self, lease: redlock_async.Lease, group: Group) -> None:
        """Hold it while the command runs. Stopping that is up to who runs it, if they can."""
        done = asyncio.ensure_future(self._hear())
        lost = asyncio.ensure_future(self._lost.wait())
        either: list[asyncio.Future[Any]] = [done, lost]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        lost.cancel()
        if not done.done():
            await asyncio.wait({done}, timeout=0 if lease.valid else PARTING)
            if not done.done():
                group.kill()
        if await done != DONE:
            await self._stop(group)

    async def _stop(self, group: Group) -> None:
        """Whoever ran it is dead."""
        group.terminate()
        await self._gone(group, FAREWELL)
        group.kill()
        await self._gone(group, GONE)

    async def _gone(self, group: Group, seconds: float) -> None:
        """Wait for it, but not longer than that, nor than the lock stands."""
        end = now() + seconds
        while group.exists and now() < end and not self._lost.is_set():  # noqa: ASYNC110 - no event tells of a group
            await asyncio.sleep(LOOK)

    def _happened(self, event: redlock_async.Event) -> None:
        if event.kind == "lost":
            self._lost.set()
            self._tell(lost=str(event.error))
        elif event.kind == "extended" and self._lease is not None:
            self._tell(until=self._until(self._lease))

    @staticmethod
    def _until(lease: redlock_async.Lease) -> float:
        before = now()  # so that what passes between the two looks makes it earlier, not later
        return before + lease.remaining

    def _tell(self, **news: float | str | list[int] | None) -> None:
        if not self._writer.is_closing():
            self._writer.write(json.dumps(news).encode() + b"\n")

    async def _hear(self) -> str:
        """The next word of the other side; empty when there is nobody any more."""
        try:
            return (await self._reader.readline()).decode().strip()
        except ConnectionError:
            return ""
