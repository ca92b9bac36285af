"""Locks, leases and latches for threads: each wraps one of the asyncio API, and runs its calls on the portal's loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Generic, ParamSpec, Self, TypeVar

from redlock_async._rules.settings import DEFAULT, Default, Duration, positive
from redlock_async._runtime.block import raise_or_note, release_after_block
from redlock_async._runtime.lease_state import LeaseState
from redlock_async.errors import LockTimeout, RedlockError
from redlock_async.latch import Latch as AsyncLatch
from redlock_async.lease import Lease as AsyncLease
from redlock_async.locks import BaseLock
from redlock_async.locks import Semaphore as AsyncSemaphore
from redlock_async.locks import WriteLease as AsyncWriteLease

from .portal import run, run_or_undo, run_uninterrupted

P = ParamSpec("P")
R = TypeVar("R")


async def now(function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """Call a function on the loop, because only the loop's thread may touch the state of a lease."""
    return function(*args, **kwargs)


class Lease(LeaseState):
    """A lock that a thread holds, until it is released or lost. Any thread may use it.

    Guarantee: while `valid`, no other client of the same nodes has a valid lease on the name.
    What can break it: as for the asyncio lease; and nothing stops a block whose lease is lost. The block must check
    `lost` and pass `fencing_token` to the resource. Renewal needs the interpreter: code that keeps the GIL for seconds
    delays it.
    Cost: as for the asyncio lease, and two thread switches for each call; `valid`, `remaining` and `lost` need none.
    Cancellation: a signal that interrupts `extend` leaves the lease unchanged; a `release` that is interrupted
    completes.
    """

    __slots__ = ("_held", "_lease")

    def __init__(self, lease: AsyncLease) -> None:
        self._lease = lease
        self._held = lease._held  # noqa: SLF001 - the asyncio half of this lease

    def __repr__(self) -> str:
        return repr(self._lease)

    def raise_if_lost(self) -> None:
        """Raise LockLost if the lease was lost, or NotHeld if it was released.

        Call it before each step that needs the lock.
        """
        if self._lease.lost or not self._lease.valid or self._held.context.inherited:
            run(now, self._lease.raise_if_lost)

    def wait_until_lost(self, timeout: Duration | None = None) -> bool:
        """Wait until the lease ends: return True if it was lost, False if it was released or after `timeout` seconds.

        Call it in a second thread that stops the work of the block, by closing its connection or killing its process.
        """
        return run(self._until_lost, None if timeout is None else positive("timeout", timeout))

    async def _until_lost(self, limit: float | None) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(limit):
                await self._lease.wait_until_lost()
        return self.lost

    def extend(self, ttl: Duration | None = None) -> None:
        """Extend the lease to `ttl` seconds from now; never shorten it.

        Raises LockLost if no quorum confirms it before the current deadline.
        """
        run(self._lease.extend, ttl)

    def release(self) -> None:
        """Release the lock. Raises NotHeld if it was released before, LockLost if it was lost."""
        run_uninterrupted(self._lease.release)

    def detach(self) -> str:
        """Stop renewing the lease here and serialize it for `attach`, of this API or the asyncio one.

        It expires after `remaining` seconds unless a client attaches it. The text is a secret; see the asyncio
        `detach`.
        """
        return run_uninterrupted(now, self._lease.detach)

    def __enter__(self) -> Self:
        run(self._enter)
        return self

    async def _enter(self) -> None:
        await self._lease._verify()  # noqa: SLF001 - the asyncio half of this lease
        self._lease._begin()  # noqa: SLF001 - as above

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        run_uninterrupted(self._leave, exc)

    async def _leave(self, exc: BaseException | None) -> None:
        if exc is not None:
            self._held.on_block_failure()
        await release_after_block(self._lease._release_after_block, exc)  # noqa: SLF001 - the asyncio half


async def _undo(lease: Lease) -> None:
    """Release a lease whose thread was interrupted before it got it."""
    with suppress(RedlockError):  # reported as an event
        await lease._lease.release()  # noqa: SLF001 - the asyncio half of this lease


class WriteLease(Lease):
    """A writer's lease, which `downgrade` turns into a reader's without a gap. Otherwise like `Lease`."""

    __slots__ = ()

    _lease: AsyncWriteLease

    def downgrade(self) -> Lease:
        """Let readers in: return a read lease with the same fencing token, to enter or to release, and end this lease.

        Raises LockLost or QuorumUnavailable if no quorum confirms it; then neither lease is held.
        """
        return run_or_undo(_undo, self._downgrade)

    async def _downgrade(self) -> Lease:
        return Lease(await self._lease.downgrade())


L = TypeVar("L", bound=Lease)


class Lock(Generic[L]):
    """A lock of any kind on some names: plain, fair, read, or write (whose leases are of type WriteLease).

    Guarantee: as for the asyncio lock of its kind, with threads instead of tasks: threads of one process are served
    first come, first served, and with `reentrant=True` the same thread may enter again.
    What can break it: see `Lease`.
    Cost: as for its kind, and two thread switches for each call.
    Cancellation: a signal that interrupts a waiting thread (KeyboardInterrupt, a soft time limit) leaves nothing
    behind. If it arrives after the lease was granted and before the block begins, the lease ends with its ttl.

    A lock object is cheap, holds no lease, and threads may share it. Exception: blocks that begin in one thread and end
    in another, such as generators that a web framework runs in threads. They need a lock object each, because
    nothing else identifies the block that ends.
    """

    __slots__ = ("_entered", "_kind", "_lock")

    def __init__(self, lock: BaseLock[Any], kind: Callable[[Any], L]) -> None:
        self._lock = lock
        self._kind = kind
        self._entered: dict[int, list[L]] = {}

    def __repr__(self) -> str:
        return repr(self._lock)

    @property
    def names(self) -> tuple[str, ...]:
        """The names to lock."""
        return self._lock.names

    def acquire(self, *, wait: Duration | Default | None = DEFAULT) -> L:
        """Acquire the lock and return its lease.

        Raises LockTimeout after `wait`, or QuorumUnavailable if too few nodes answered until then.
        """
        return run_or_undo(_undo, self._acquire, wait)

    # The lease is wrapped on the loop: after that, an interruption of the thread can no longer lose it.
    async def _acquire(self, wait: Duration | Default | None) -> L:
        return self._kind(await self._lock.acquire(wait=wait))

    async def _acquire_for_block(self) -> L:
        lease = await self._acquire(DEFAULT)
        lease._lease._begin()  # noqa: SLF001 - the asyncio half of this lease
        return lease

    def try_acquire(self) -> L | None:
        """Try once: return a lease, or None if another client holds the lock. Raises QuorumUnavailable in an outage."""
        try:
            return self.acquire(wait=0)
        except LockTimeout:
            return None

    def __enter__(self) -> L:
        lease = run_or_undo(_undo, self._acquire_for_block)
        try:
            self._entered.setdefault(threading.get_ident(), []).append(lease)
            return lease  # noqa: TRY300 - a signal may interrupt the return as well
        except BaseException:  # interrupted before `with` began, so `__exit__` will not be called
            run_uninterrupted(_undo, lease)
            raise

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        thread = threading.get_ident()
        if thread not in self._entered:
            # Entered in another thread, as dependencies of some web frameworks are: unambiguous with one entry only.
            if len(self._entered) != 1:
                raise_or_note(
                    RedlockError(f"{self!r} was left by a thread that did not enter it", names=self.names),
                    exc,
                )
                return
            thread = next(iter(self._entered))
        leases = self._entered[thread]
        lease = leases.pop()
        if not leases:
            del self._entered[thread]
        lease.__exit__(exc_type, exc, traceback)


class Semaphore(Lock[Lease]):
    """At most `permits` slots of one name at a time. Otherwise like `Lock`, and the asyncio `Semaphore`."""

    __slots__ = ()

    _lock: AsyncSemaphore

    @property
    def permits(self) -> int:
        """The number of slots."""
        return self._lock.permits

    def acquire(self, *, wait: Duration | Default | None = DEFAULT, count: int | None = None) -> Lease:
        """Acquire `count` slots at once, all or nothing, and return one lease; by default the semaphore's `count`.

        Raises LockTimeout after `wait`, or QuorumUnavailable if too few nodes answered until then.
        """
        return run_or_undo(_undo, self._acquire_slots, wait, count)

    async def _acquire_slots(self, wait: Duration | Default | None, count: int | None) -> Lease:
        return Lease(await self._lock.acquire(wait=wait, count=count))

    def try_acquire(self, *, count: int | None = None) -> Lease | None:
        """Try once: return one lease on `count` slots, or None if too few are free.

        Raises QuorumUnavailable in an outage.
        """
        try:
            return self.acquire(wait=0, count=count)
        except LockTimeout:
            return None


class Latch:
    """A latch that opens once `count` different events were counted down: the asyncio `Latch`, for threads."""

    __slots__ = ("_latch",)

    def __init__(self, latch: AsyncLatch) -> None:
        self._latch = latch

    def __repr__(self) -> str:
        return repr(self._latch)

    @property
    def name(self) -> str:
        """The latch's name, including its generation."""
        return self._latch.name

    @property
    def count(self) -> int:
        """The number of events that open the latch."""
        return self._latch.count

    def count_down(self, event: str) -> None:
        """Count an event; counting it again has no effect.

        Raises QuorumUnavailable if too few nodes stored it within the client's `wait`.
        """
        run(self._latch.count_down, event)

    def remaining(self) -> int:
        """Return the number of missing events; 0 once the latch is open."""
        return run(self._latch.remaining)

    def wait(self, timeout: Duration | Default | None = DEFAULT) -> None:
        """Wait until the latch is open.

        Raises LockTimeout after `timeout` seconds: None waits forever, 0 checks once, the default is the client's
        `wait`.
        """
        run(self._latch.wait, timeout)
