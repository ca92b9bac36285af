"""The caller's block under a lease: cancelled when the lease is lost, and the lease given back when it ends.

A bare cancel scope, never a task group: that would turn the caller's ValueError into an ExceptionGroup. The only module
that imports anyio.
"""

from __future__ import annotations

import asyncio
import math
from types import TracebackType
from typing import TypeGuard

import anyio

from ._errors import LockLost, QuorumUnavailable, RedlockError
from ._holding import Holding
from ._lease import Phase


class Body:
    """One block."""

    __slots__ = ("_cancelling", "_holding", "_scope", "_task")

    def __init__(self, holding: Holding) -> None:
        self._holding = holding
        self._scope = anyio.CancelScope()
        self._task: asyncio.Task[object] | None = None
        self._cancelling = 0
        """Cancellations that were under way when the block began."""

    def enter(self) -> None:
        """The block begins."""
        self._task = asyncio.current_task()
        self._cancelling = self._task.cancelling() if self._task is not None else 0
        self._scope.__enter__()
        self._holding.on_loss(self._scope.cancel)

    async def leave(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """The block has ended. A cancellation of our own never gets out of here: LockLost replaces it."""
        holding = self._holding
        holding.no_longer(self._scope.cancel)
        if exc_type is not None:
            holding.failed()
        if asyncio.current_task() is not self._task:
            await self._misused(
                "was entered in one task and left in another: keep `async with` within one task (an async generator "
                "can be closed by another)",
                exc,
            )
            return
        try:
            cancelled_by_us = self._scope.__exit__(exc_type, exc, traceback) is True
        except RuntimeError:
            # Nothing tells any more whether a cancellation was our own, which must not get out.
            unclear = isinstance(exc, asyncio.CancelledError) and self._scope.cancel_called
            await self._misused(
                "was left before one that was entered later: leave blocks in reverse order, or use acquire() and "
                "release()",
                None if unclear else exc,
            )
            return
        # Whatever else is in an ExceptionGroup beside our cancellation is the body's own, and wins.
        ours = isinstance(exc, asyncio.CancelledError) and (cancelled_by_us or self._nobody_else_cancelled())
        await give_back(holding, None if ours else exc)

    async def _misused(self, what: str, exc: BaseException | None) -> None:
        """Give the lock back all the same, and say what was wrong with the block."""
        misuse = RedlockError(f"the block under the lock on {self._holding.shown} {what}")
        await give_back(self._holding, exc if wins(exc) else misuse)
        tell(misuse, exc)

    def _nobody_else_cancelled(self) -> bool:
        """Whether a cancellation that came out of the block, and that the scope does not know, can only be its own.

        The scope knows it by its message, which does not outlive what raises another in its place: so does a gather
        with return_exceptions=True, when the last of what it gathers is done.
        """
        assert self._task is not None  # noqa: S101 - a block is entered in one
        if not self._scope.cancel_called or self._task.cancelling() > self._cancelling:
            return False
        return anyio.current_effective_deadline() > -math.inf  # else a scope around us is cancelled, too


def wins(exc: BaseException | None) -> TypeGuard[BaseException]:
    """Whether the body raised that by itself. A generator that is closed did not, and nobody would see a note on it."""
    return exc is not None and not isinstance(exc, GeneratorExit)


def tell(misuse: RedlockError, exc: BaseException | None) -> None:
    """Raise what is wrong with a block, or put it beside what the body raised by itself."""
    if not wins(exc):
        raise misuse
    exc.add_note(f"and the block: {type(misuse).__name__}: {misuse}")


async def give_back(holding: Holding, exc: BaseException | None) -> None:
    """The body is done, and raised that by itself: release, and raise what is to be said of the lock beside that."""
    problem: RedlockError | None = None
    try:
        await _end(holding)
    except RedlockError as error:
        problem = error
    if exc is not None:
        if problem is not None and not isinstance(exc, LockLost):
            exc.add_note(f"and the lock: {type(problem).__name__}: {problem}")
        return
    if isinstance(problem, QuorumUnavailable):
        # The body's work is done, and was done under a valid lease: failing it now would undo nothing. The event has
        # been reported, and what is left of the lock expires by itself.
        return
    if problem is not None:
        raise problem


async def _end(holding: Holding) -> None:
    holding.check()
    if holding.phase is Phase.LOST:
        holding.over()
        holding.require_held("release")
    if holding.phase is Phase.HELD:
        await holding.release()
