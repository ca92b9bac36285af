"""The block under a lease: cancelled when the lease is lost. The lease is released after the block.

The block runs in no task group, which would wrap its exceptions in an ExceptionGroup, and in no anyio scope, which
would cancel every `await` of its cleanup. This is the only module that imports anyio.
"""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import Awaitable, Callable
from typing import Any, TypeGuard

import anyio
import anyio.lowlevel

from redlock_async.errors import HoldUnconfirmed, LockLost, QuorumUnavailable, RedlockError

from .held_lease import HeldLease

ReleaseCallback = Callable[[], Awaitable[None] | None]
"""Releases the lease of a block, unless that has ended otherwise; raises what went wrong, or what it returns does."""

FINAL_CANCEL_FRACTION = 0.9
"""Fraction of the remaining validity that is left to the block's cleanup before the block is cancelled again."""

SHORTEST_PAUSE = 0.005
"""Seconds between two cancellations of a block that continues after the final one; doubled each time."""

LONGEST_PAUSE = 0.08

LOOP_ITERATIONS = 2
"""Iterations of the loop before the block is cancelled again. If the block is in an async generator that has just been
dropped, the loop closes it meanwhile, in another task. uvloop calls timers before everything else that is due."""


class GuardedBlock:
    """One block, which begins in the running task.

    It is cancelled when the lease is lost, once, so that its cleanup can await, and so can the cleanup of a task that
    it awaits. If it still runs shortly before the lease ends, it is cancelled again, and again with growing pauses:
    it may have swallowed a cancellation. A block that is being cancelled by others, or is inside a shielded scope of
    anyio's, is cancelled only after that.
    """

    __slots__ = ("_before", "_cancels", "_final_cancel_at", "_lease", "_pause", "_scope", "_timer", "task")

    def __init__(self, lease: HeldLease) -> None:
        self._lease = lease
        self.task = task = asyncio.current_task(lease.context.loop)
        self._before = 0 if task is None else task.cancelling()
        """Cancellations of the task that were requested before the block began."""
        self._scope = _scope_of(task)
        """The anyio scope around the block."""
        self._cancels = 0
        """How often we have cancelled the task."""
        self._timer: asyncio.Handle | None = None
        self._final_cancel_at = math.inf
        self._pause = SHORTEST_PAUSE
        if task is not None:
            lease.add_loss_callback(self._on_loss)

    # Cancelling

    def _on_loss(self) -> None:
        """Cancel the block: now, or in the next iteration of the loop if a task is running, which may be this one.

        A task that is cancelled while it runs may leave the block first, and be cancelled behind it.
        """
        context = self._lease.context
        now = context.now()
        self._final_cancel_at = now + FINAL_CANCEL_FRACTION * max(self._lease.until - now, 0.0)
        if asyncio.current_task(context.loop) is None:
            self._cancel()
        else:
            self._timer = context.loop.call_soon(self._cancel)

    def _cancel(self) -> None:
        task, context, lost_by = self.task, self._lease.context, self._lease.lost_by
        assert task is not None  # noqa: S101 - a block without a task has no loss callback
        assert lost_by is not None  # noqa: S101 - set before the callbacks are called
        if task.done():
            return  # an async generator that was dropped: its block is left by another task
        left = self._final_cancel_at - context.now()
        if (left <= 0 or (not self._cancels and task.cancelling() <= self._before)) and not self._shielded():
            if not self._cancels:
                self._pause = SHORTEST_PAUSE
            self._cancels += 1
            task.cancel(str(lost_by))
        delay = self._pause
        if left > 0 and (self._cancels or left < delay):
            delay = left
        else:
            self._pause = min(2 * delay, LONGEST_PAUSE)
        self._timer = context.loop.call_later(delay, self._cancel_after, LOOP_ITERATIONS)

    def _cancel_after(self, iterations: int) -> None:
        if iterations:
            self._timer = self._lease.context.loop.call_soon(self._cancel_after, iterations - 1)
        else:
            self._cancel()

    def _shielded(self) -> bool:
        """Whether the task is inside a shielded anyio scope that it has entered within the block."""
        scope = _scope_of(self.task)
        while scope is not None and scope is not self._scope:
            if scope.shield:
                return True
            scope = getattr(scope, "_parent_scope", None)
        return False

    # Leaving

    def leave(self, exc: BaseException | None, release: ReleaseCallback) -> Awaitable[None]:
        """End the block; return what releases the lease, to be awaited at once.

        A cancellation of ours never leaves the block: LockLost replaces it.
        """
        lease, task = self._lease, self.task
        lease.remove_loss_callback(self._on_loss)
        if exc is not None:
            lease.on_block_failure()
        only_ours = self._take_back_cancellations()
        if asyncio.current_task(lease.context.loop) is not task:
            return self._release_elsewhere(exc, release)
        if self._cancels and isinstance(exc, asyncio.CancelledError) and _cancelled_by_anyio(task):
            return self._release_in_cancelled_scope(exc, release)
        # An ExceptionGroup contains more than our cancellation. The code around a generator cannot tell whose the
        # cancellation was; GeneratorExit is all that the block sees of it.
        if exc is None or (only_ours and isinstance(exc, asyncio.CancelledError | GeneratorExit)):
            return release_after_block(release, None)
        return self._release(exc, release)

    async def _release_elsewhere(self, exc: BaseException | None, release: ReleaseCallback) -> None:
        """Release in another task than the block's, and report the misuse."""
        misuse = RedlockError(
            f"the block under the lock on {self._lease.names_repr} was entered in one task and left in another: keep "
            "`async with` within one task (an async generator can be closed by another: use contextlib.aclosing)"
        )
        await release_after_block(release, exc if takes_precedence(exc) else misuse)
        raise_or_note(misuse, exc)

    async def _release_in_cancelled_scope(self, exc: BaseException, release: ReleaseCallback) -> None:
        """Release when a scope around the block was cancelled as well. It only knows cancellations of its own."""
        await self._release(exc, release)
        await anyio.lowlevel.checkpoint_if_cancelled()

    def _take_back_cancellations(self) -> bool:
        """Stop cancelling the task; return whether nothing else has cancelled it since the block began."""
        if self._timer is not None:
            self._timer.cancel()
        if not self._cancels:
            return False
        assert self.task is not None  # noqa: S101 - it was cancelled
        for _ in range(self._cancels):
            self.task.uncancel()
        return self.task.cancelling() <= self._before

    async def _release(self, exc: BaseException, release: ReleaseCallback) -> None:
        """Release. The block's own exception wins over a cancellation that comes while the nodes are replying.

        The release has been sent by then.
        """
        task = self.task
        requests = 0 if task is None else task.cancelling()
        try:
            await release_after_block(release, exc)
        except asyncio.CancelledError as cancelled:
            if task is None or isinstance(exc, asyncio.CancelledError) or task.cancelling() == requests:
                return
            if not _cancelled_by_anyio(task):  # otherwise anyio repeats it
                self._lease.context.loop.call_soon(_cancel_again, task, task.cancelling(), cancelled.args)


def _scope_of(task: asyncio.Task[object] | None) -> Any:
    """The innermost anyio scope that the task is in.

    anyio has no public way to ask that about a task that is not running. Without the attributes used here, a shield
    counts for nothing, as with asyncio.timeout.
    """
    states = getattr(sys.modules.get("anyio._backends._asyncio"), "_task_states", None)
    return None if states is None else getattr(states.get(task), "cancel_scope", None)


def _cancelled_by_anyio(task: asyncio.Task[object] | None) -> bool:
    """Whether an anyio scope around the running task is cancelled, which then cancels its every `await`."""
    return _scope_of(task) is not None and anyio.current_effective_deadline() == -math.inf


def _cancel_again(task: asyncio.Task[object], requests: int, message: tuple[object, ...]) -> None:
    """Deliver a cancellation that arrived when the block's own exception was on its way, unless it was taken back."""
    if not task.done() and task.cancelling() == requests:
        task.uncancel()
        task.cancel(*message)


def takes_precedence(exc: BaseException | None) -> TypeGuard[BaseException]:
    """Whether the block raised `exc` itself. A generator that is closed did not, and no user would see a note on it."""
    return exc is not None and not isinstance(exc, GeneratorExit)


def raise_or_note(misuse: RedlockError, exc: BaseException | None) -> None:
    """Raise what is wrong with the use of a block, or add it as a note to what the block raised itself."""
    if not takes_precedence(exc):
        raise misuse
    exc.add_note(f"and the block: {type(misuse).__name__}: {misuse}")


async def release_after_block(release: ReleaseCallback, exc: BaseException | None) -> None:
    """Release after a block that raised `exc`, or nothing; raise what went wrong, or add it to `exc` as a note."""
    problem: RedlockError | None = None
    try:
        if (released := release()) is not None:
            await released
    except RedlockError as error:
        problem = error
    if exc is not None:
        if problem is not None and not isinstance(exc, LockLost):
            exc.add_note(f"and the lock: {type(problem).__name__}: {problem}")
        return
    if isinstance(problem, QuorumUnavailable) and not isinstance(problem, HoldUnconfirmed):
        # The work is done, and was done under a valid lease: failing it now would undo nothing. The event has been
        # reported, and what is left of the lock expires. But a period that may not be kept must be known.
        return
    if problem is not None:
        raise problem
