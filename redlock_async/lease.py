"""A held lock, and the `async with` block of a lock."""

from __future__ import annotations

import asyncio
import math
import warnings
from collections.abc import Awaitable
from types import TracebackType
from typing import Generic, Self, TypeVar
from weakref import WeakKeyDictionary

from redlock_async._rules.detached import Detached
from redlock_async._rules.lease_timing import HELD, Phase
from redlock_async._rules.quorum import WON
from redlock_async._rules.settings import Duration, checked_ttl
from redlock_async._runtime.block import GuardedBlock, raise_or_note
from redlock_async._runtime.held_lease import HeldLease, caller
from redlock_async._runtime.lease_state import LeaseState
from redlock_async._runtime.session import Session

from .errors import NotHeld, RedlockError
from .events import logger

LOG_PAUSE = 60.0
"""Seconds between two log lines about dropped leases: a service may drop one with each request."""

_dropped: WeakKeyDictionary[Session, tuple[float, int]] = WeakKeyDictionary()
"""For each client when the last line was logged, and how many leases were dropped since."""


class Lease(LeaseState):
    """A held lock, until it is released or lost.

    Guarantee: while `valid`, no other client of the same nodes has a valid lease on the name.
    What can break it: clocks whose *rates* differ by more than `drift_factor`; a majority of nodes that lose their data
    at once. A process that is paused at the wrong moment may still write late: pass `fencing_token` to the resource.
    Cost: `extend` and `release` are one round trip; renewal is one command per node every third of the ttl, shared by
    all leases that are due.
    Cancellation: cancelling `extend` leaves the lease as it was; cancelling `release` does not stop the release.
    """

    __slots__ = ("__weakref__", "_block", "_entered", "_held", "_released", "_session", "_unverified")

    def __init__(self, session: Session, held: HeldLease, *, unverified: bool = False) -> None:
        self._session = session
        self._held = held
        self._unverified = unverified
        """Whether only the text of a detached lease says that it is held: that text may have been used before."""
        self._released = False
        """Whether it was released while the task holds the lock still, because it had entered it again."""
        self._entered = False
        self._block: GuardedBlock | None = None

    def __repr__(self) -> str:
        state = f"{self.remaining:.3f} s left" if self.valid else self._held.phase.value
        return f"<Lease on {self._held.names_repr}: {state}>"

    def __del__(self) -> None:
        held = getattr(self, "_held", None)
        if held is None or held.phase is not HELD or self._released:
            return
        loop = held.context.loop
        if loop.is_closed() or held.context.inherited or not held.confirmed:
            return
        # The collector may run in any thread, and while a lock of the logging handlers is held.
        loop.call_soon_threadsafe(self._session.registry.abandon, held)
        if held.renews:
            what = (
                f"the lease on {held.names_repr} was garbage-collected without release(): renewal stopped and it will "
                "expire"
                if held.depth == 1
                else f"a lease on {held.names_repr}, entered {held.depth} times, was garbage-collected without "
                "release()"
            )
            loop.call_soon_threadsafe(_log_dropped, self._session, what)
            warnings.warn(what, ResourceWarning, source=self, stacklevel=2)

    async def extend(self, ttl: Duration | None = None) -> None:
        """Set a new deadline, `ttl` from now; never shortens the current one.

        Raise LockLost if no quorum confirms it before the current deadline, NotHeld after a release. A failed `extend`
        leaves the old deadline.
        """
        held = self._held
        self._require_own("extend")
        await self._extend(held.ttl if ttl is None else checked_ttl(ttl, held.drift_factor, held.takeover_delay))

    async def _extend(self, ttl: float) -> None:
        await self._session.registry.extend(self._held, ttl)
        if self._unverified:
            self._unverified = False
            self._session.registry.set_owner(self._held, caller())

    async def release(self) -> None:
        """Release the lock.

        Raise NotHeld the second time, LockLost if it was lost, QuorumUnavailable if too few nodes confirm the release.
        """
        if self._released:
            self._require_own("release")
        if self._unverified:
            await self._session.registry.connect(self._held)
        # The last one of several is the held lease's own business, and a lost one stays LockLost.
        held, registry = self._held, self._session.registry
        self._released = held.depth > 1 and held.valid
        if (round_ := registry.release(held)) is not None:
            try:
                if await round_.outcome is not WON:
                    raise registry.release_error(held, round_)
            finally:
                held.wake_watchers()

    def _require_own(self, verb: str) -> None:
        if self._released:
            raise NotHeld(
                f"cannot {verb} the lock on {self._held.names_repr}: this lease was already released", names=self.names
            )

    async def wait_until_lost(self) -> bool:
        """Wait until the lease ends: return True if it was lost, False if it was released.

        A lock that its task has entered several times ends with the outermost lease.
        """
        if self._released:
            return False
        self._session.registry.check(self._held)
        if self._held.phase is HELD or self._held.ending:
            await self._held.ended()
        return self._held.phase is Phase.LOST

    def raise_if_lost(self) -> None:
        """Raise LockLost if the lease was lost, or NotHeld if it was released or belongs to the parent process.

        A lease that was attached and never confirmed here is neither: call `extend()` first.
        """
        self._require_own("continue under")
        self._session.registry.require_held(self._held, "continue under")

    def detach(self) -> str:
        """Stop renewing the lease here, and return a text that `Redlock.attach` turns into a lease, here or elsewhere.

        It is not renewed until it is attached, and expires after what `remaining` was. What is left of `max_hold` and
        `min_hold` goes with it, as of now. Raise LockLost or NotHeld if it is not held, RedlockError if its task has
        entered it several times.

        The text is a secret: it contains the lock's token, and any client that has it can release the lock. Its
        checksum detects accidents, not forgery. There is no signature, because clients share no key.
        """
        held = self._held
        self._require_own("detach")
        self._session.registry.require_held(held, "detach")
        if held.depth > 1:
            raise RedlockError(
                f"cannot detach the lock on {held.names_repr}: it was entered {held.depth} times, and the outer blocks "
                "would continue without it. Detach the outermost lease"
            )
        context = held.context
        now = context.now()
        detached = Detached(
            namespace=context.settings.namespace,
            kind=held.kind.label,
            details=held.kind.details(),
            names=list(held.kind.names),
            token=held.token.decode(),
            fence=held.fence,
            ttl=held.ttl,
            renew=held.renews,
            max_hold=held.cap_left(now),
            min_hold=held.min_hold_left(now),
            takeover_delay=held.takeover_delay,
            retry_failed=held.retry_failed,
            # A lease that came from elsewhere and was never confirmed here has no deadline that could be read.
            until=held.until if held.confirmed else 0.0,
            clock=context.environment.clock() if held.confirmed else None,
        )
        self._session.registry.detach(held)
        return detached.write()

    # The block

    async def __aenter__(self) -> Self:
        await self._verify()
        self._begin()
        self._block = GuardedBlock(self._held)
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._leave(exc)

    async def _verify(self) -> None:
        """Ask the nodes whether a lease that came from elsewhere is still held, before a block under it."""
        if self._unverified:
            held = self._held
            # If it is not renewed, it ends when it would have ended: it is only checked, if its end is known here.
            await self._extend(0.0 if held.confirmed and not held.renews else held.ttl)

    def _enter_new(self) -> asyncio.Task[object] | None:
        """Begin the one block under a lease that was acquired just now; return its task."""
        self._entered = True
        self._block = block = GuardedBlock(self._held)
        return block.task

    def _leave(self, exc: BaseException | None) -> Awaitable[None]:
        """End the block; return what releases the lease."""
        assert self._block is not None  # noqa: S101 - it was entered
        return self._block.leave(exc, self._release_after_block)

    def _begin(self) -> None:
        """Begin the one block under the lease."""
        self._require_own("enter")
        self._session.registry.require_held(self._held, "enter")
        if self._entered:
            # The end of either block would release the lock, and leave the other without it.
            raise RedlockError(
                f"this lease on {self._held.names_repr} was already entered. Acquire a new one for each `async with`"
            )
        self._entered = True

    def _release_after_block(self) -> Awaitable[None] | None:
        """Release, unless it was released within the block; raise LockLost if it was lost."""
        held, registry = self._held, self._session.registry
        if held.phase is HELD and not self._released:
            return self.release()
        registry.check(held)
        if held.phase is Phase.LOST:
            registry.invalidate(held)
            registry.require_held(held, "release")
        return None


L = TypeVar("L", bound=Lease)


class Acquirable(Generic[L]):
    """The `async with` block of a lock, which one task or several may enter, each with a lease of its own."""

    __slots__ = ("_entered",)

    _entered: dict[asyncio.Task[object] | None, list[L]]

    async def acquire(self) -> L:
        """Return a lease."""
        raise NotImplementedError

    async def __aenter__(self) -> L:
        lease = await self.acquire()
        task = lease._enter_new()  # noqa: SLF001 - the two halves of one block
        self._entered.setdefault(task, []).append(lease)
        return lease

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        lease = self._left()
        if lease is None:
            raise_or_note(RedlockError(f"{self!r} was left by a task that did not enter it"), exc)
        else:
            await lease._leave(exc)  # noqa: SLF001 - the two halves of one block

    def _left(self) -> L | None:
        """Return the lease whose block is being left: this task's last one; None if that is unknown."""
        if len(self._entered) == 1:
            (task,) = self._entered  # if another task than this one has entered it, the block reports the misuse
        else:
            task = asyncio.current_task()
            if task not in self._entered:
                return None
        leases = self._entered[task]
        lease = leases.pop()
        if not leases:
            del self._entered[task]
        return lease


def _log_dropped(session: Session, what: str) -> None:
    """Log a dropped lease, because Python hides ResourceWarning by default: one line a minute for each client."""
    now = session.context.now()
    last, unlogged = _dropped.get(session, (-math.inf, 0))
    if now - last < LOG_PAUSE:
        _dropped[session] = last, unlogged + 1
        return
    _dropped[session] = now, 0
    more = f" ({unlogged} more since the last such line)" if unlogged else ""
    logger.warning(
        "redlock: %s. Keep the lease as long as you need the lock, as in `lease = await lock.try_acquire()`, or use "
        "`async with`%s",
        what,
        more,
    )
