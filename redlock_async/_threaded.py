"""What threads have in hand: locks and leases of asyncio's, each of whose calls is carried out on the portal's loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Generic, ParamSpec, Self, TypeVar

from ._body import give_back, tell
from ._errors import LockTimeout, RedlockError
from ._lease import Phase
from ._portal import finish, obtain, run
from ._primitive import Primitive
from ._settings import DEFAULT, Default, Duration, positive
from .latch import Latch as AsyncLatch
from .lease import Lease as AsyncLease
from .rwlock import WriteLease as AsyncWriteLease
from .semaphore import Semaphore as AsyncSemaphore

P = ParamSpec("P")
R = TypeVar("R")


async def now(function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """Call that on the loop, where what it touches lives."""
    return function(*args, **kwargs)


class Lease:
    """A lock that a thread holds, until it is released or lost. Any thread may use it.

    Guarantee: while `valid`, no other client of the same masters has a valid lease on the name.
    What can break it: as for asyncio's; and nothing stops a body whose lease is lost. It must look itself, and hand
    `fencing_token` to the resource. Renewal needs the interpreter: code that keeps the GIL for seconds keeps it out.
    Cost: as asyncio's, and two switches of threads a call; `valid`, `remaining` and `lost` cost none.
    Cancellation: a thread interrupted by a signal in `extend` leaves the lease as it was; in `release`, it is released.
    """

    __slots__ = ("_holding", "_lease", "_watching")

    def __init__(self, lease: AsyncLease) -> None:
        self._lease = lease
        self._holding = lease._holding  # noqa: SLF001 - the two halves of one thing
        self._watching: set[asyncio.Task[object]] = set()

    def __repr__(self) -> str:
        return repr(self._lease)

    @property
    def name(self) -> str:
        """What is held; the first, where several are."""
        return self._lease.name

    @property
    def names(self) -> tuple[str, ...]:
        """All that is held."""
        return self._lease.names

    @property
    def token(self) -> str:
        """The random value stored on the nodes."""
        return self._lease.token

    @property
    def fencing_token(self) -> int | None:
        """Larger than that of every earlier holder of the name; None with `fencing=False`."""
        return self._lease.fencing_token

    @property
    def slots(self) -> tuple[int, ...]:
        """Of a semaphore: which of its slots these are, from 0; nobody else has them. Empty for all other kinds."""
        return self._lease.slots

    @property
    def valid(self) -> bool:
        """Whether nobody else can hold it now: compares clocks, not a flag."""
        return self._lease.valid

    @property
    def remaining(self) -> float:
        """Seconds it stays valid if it is not renewed; never negative."""
        return self._lease.remaining

    @property
    def lost(self) -> bool:
        """Whether it ended, or is about to, without a release; never false again once it was true."""
        return self._lease.lost

    @property
    def margin(self) -> int:
        """Nodes held beyond the quorum: how many may fail now without the lease being in danger."""
        return self._lease.margin

    def raise_if_lost(self) -> None:
        """LockLost if it was lost, NotHeld if it was given back: for a body to call before each step that matters."""
        if self._lease.lost or not self._lease.valid:
            run(now, self._holding.require_held, "go on under")

    def wait_lost(self, timeout: Duration | None = None) -> bool:
        """Wait until it is lost, and return True; or False when it was given back, or after `timeout` seconds.

        For a thread beside the body, that ends what the body waits for: kills its process, or closes its connection.
        """
        return run(self._until_lost, None if timeout is None else positive("timeout", timeout))

    async def _until_lost(self, limit: float | None) -> bool:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine runs in one
        if self._holding.phase is Phase.HELD:
            self._watching.add(task)
            with suppress(TimeoutError):
                try:
                    async with asyncio.timeout(limit):
                        await self._lease.wait_lost()
                except asyncio.CancelledError:
                    if self._holding.phase is Phase.HELD:
                        raise  # not because it was given back
                finally:
                    self._watching.discard(task)
        return self.lost

    def _given_back(self) -> None:
        if self._holding.phase is not Phase.HELD:
            for task in self._watching:
                task.cancel()

    def extend(self, ttl: Duration | None = None) -> None:
        """Set a new deadline, now plus `ttl`; raises LockLost if that fails until the old one. Never shortens."""
        run(self._lease.extend, ttl)

    def release(self) -> None:
        """Give it back. Raises NotHeld the second time, LockLost if it was lost before."""
        finish(self._release)

    async def _release(self) -> None:
        try:
            await self._lease.release()
        finally:
            self._given_back()

    async def unwanted(self) -> None:
        """The thread that asked for it was interrupted, and never got it."""
        with suppress(RedlockError):  # reported as an event
            await self._lease.release()

    def detach(self) -> str:
        """Stop seeing to it here, and return a text that `attach` turns into a lease, here or elsewhere, async or not.

        It is not renewed until somebody attaches it, and runs out after what `remaining` was.
        """
        return finish(self._detach)

    async def _detach(self) -> str:
        text = self._lease.detach()
        self._given_back()
        return text

    def __enter__(self) -> Self:
        run(self._enter)
        return self

    async def _enter(self) -> None:
        if not self._holding.confirmed:
            await self._lease.extend()
        self._lease._begin()  # noqa: SLF001 - the two halves of one thing

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        finish(self._leave, exc)

    async def _leave(self, exc: BaseException | None) -> None:
        if exc is not None:
            self._holding.failed()
        try:
            await give_back(self._holding, exc)
        finally:
            self._given_back()


class WriteLease(Lease):
    """A writer's lease, which can become a reader's without a gap. All else is as for `Lease`."""

    __slots__ = ()

    _lease: AsyncWriteLease

    def downgrade(self) -> Lease:
        """Let readers in: returns a read lease with the same fence, to release or to enter; this lease is over."""
        return obtain(Lease.unwanted, self._downgrade)

    async def _downgrade(self) -> Lease:
        try:
            return Lease(await self._lease.downgrade())
        finally:
            self._given_back()


L = TypeVar("L", bound=Lease)


class Lock(Generic[L]):
    """A lock of any kind on some names: a plain one, `fair`, `read`, or `write`, whose leases are of type WriteLease.

    Guarantee: that of its kind in asyncio, where they are described, with threads in the place of tasks: those of one
    process wait first come, first served, and with `reentrant=True` the same thread may enter again.
    What can break it: see `Lease`.
    Cost: that of its kind, and two switches of threads a call.
    Cancellation: a thread that is interrupted by a signal while it waits (KeyboardInterrupt, a soft time limit) leaves
    nothing behind. Where the lease is its own already, but not yet in its block, the ttl is what ends it.

    A lock object is cheap, holds no lease, and may be shared by threads. But not for blocks that begin in one thread
    and end in another, as those of generators do that web frameworks run in threads: these need a lock object each, for
    nothing else tells whose block it is that ends.
    """

    __slots__ = ("_entered", "_kind", "_lock")

    def __init__(self, lock: Primitive[Any], kind: Callable[[Any], L]) -> None:
        self._lock = lock
        self._kind = kind
        self._entered: dict[int, list[L]] = {}

    def __repr__(self) -> str:
        return repr(self._lock)

    @property
    def names(self) -> tuple[str, ...]:
        """What it locks."""
        return self._lock.names

    def acquire(self, wait: Duration | Default | None = DEFAULT) -> L:
        """A lease, or LockTimeout after `wait`, or QuorumUnavailable if too few masters could be asked until then."""
        return obtain(Lease.unwanted, self._acquire, wait)

    # On the loop, so that nothing is left to do when it has come, where an interruption could lose it.
    async def _acquire(self, wait: Duration | Default | None) -> L:
        return self._kind(await self._lock.acquire(wait))

    async def _acquire_for_block(self) -> L:
        lease = await self._acquire(DEFAULT)
        lease._lease._begin()  # noqa: SLF001 - the two halves of one thing
        return lease

    def try_acquire(self) -> L | None:
        """A lease, or None while somebody else holds it. An outage is never None: it raises QuorumUnavailable."""
        try:
            return self.acquire(0)
        except LockTimeout:
            return None

    def __enter__(self) -> L:
        lease = obtain(Lease.unwanted, self._acquire_for_block)
        try:
            self._entered.setdefault(threading.get_ident(), []).append(lease)
            return lease  # noqa: TRY300 - on its way out it may be interrupted as well
        except BaseException:  # interrupted just now: `with` has not begun, and will not leave
            finish(lease.unwanted)
            raise

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        thread = threading.get_ident()
        if thread not in self._entered:
            # Entered in another thread, as the dependencies of some web frameworks are: only sure when it is one.
            if len(self._entered) != 1:
                tell(RedlockError(f"{self!r} was left by a thread that did not enter it", names=self.names), exc)
                return
            thread = next(iter(self._entered))
        leases = self._entered[thread]
        lease = leases.pop()
        if not leases:
            del self._entered[thread]
        lease.__exit__(exc_type, exc, traceback)


class Semaphore(Lock[Lease]):
    """At most `permits` slots of one name at the same time; all else is as for `Lock` and asyncio's `Semaphore`."""

    __slots__ = ()

    _lock: AsyncSemaphore

    @property
    def permits(self) -> int:
        """How many slots there are."""
        return self._lock.permits

    def acquire(self, wait: Duration | Default | None = DEFAULT, *, count: int | None = None) -> Lease:
        """One lease on `count` slots, or as many as the semaphore was made for, all or nothing; else as any lock."""
        return obtain(Lease.unwanted, self._acquire_slots, wait, count)

    async def _acquire_slots(self, wait: Duration | Default | None, count: int | None) -> Lease:
        return Lease(await self._lock.acquire(wait, count=count))

    def try_acquire(self, *, count: int | None = None) -> Lease | None:
        """One lease on so many slots, or None while they are not to be had. An outage raises QuorumUnavailable."""
        try:
            return self.acquire(0, count=count)
        except LockTimeout:
            return None


class Latch:
    """Opens when `count` different events have been counted down, for all processes: asyncio's, for threads."""

    __slots__ = ("_latch",)

    def __init__(self, latch: AsyncLatch) -> None:
        self._latch = latch

    def __repr__(self) -> str:
        return repr(self._latch)

    @property
    def name(self) -> str:
        """What it is called."""
        return self._latch.name

    @property
    def count(self) -> int:
        """How many events open it."""
        return self._latch.count

    def count_down(self, event: str) -> None:
        """Count that event, once. QuorumUnavailable if too few masters could store it within the client's `wait`."""
        run(self._latch.count_down, event)

    def remaining(self) -> int:
        """How many events are missing; 0 once it is open."""
        return run(self._latch.remaining)

    def wait(self, timeout: Duration | Default | None = DEFAULT) -> None:
        """Return when it is open; LockTimeout after `timeout` (None: never; 0: look once; not given: the client's)."""
        run(self._latch.wait, timeout)
