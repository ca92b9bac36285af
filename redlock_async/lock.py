"""The lock on one or several names."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType

from ._body import Body
from ._engine import Engine
from ._errors import LockTimeout, RedlockError
from ._mutex import Mutex
from ._settings import DEFAULT, Default, Duration, Options
from .lease import Lease


class Lock:
    """Mutual exclusion on one name, or on several taken all or none.

    Guarantee: while a lease is valid, no other client of the same masters has one on any of its names.
    What can break it: see `Lease`.
    Cost: one round trip to take it (a second when nodes disagree on the fence, which a restarted one causes once), one
    to release it; waiting costs the nodes next to nothing, however many tasks wait.
    Cancellation: cancelling `acquire` is prompt and leaves no key behind on any node.

    A lock object is cheap, holds no lease, and may be shared by tasks: what belongs to a holder lives on its `Lease`.
    """

    __slots__ = ("_engine", "_entered", "_mutex", "_options")

    def __init__(self, engine: Callable[[], Engine], mutex: Mutex, options: Options) -> None:
        self._engine = engine
        self._mutex = mutex
        self._options = options
        self._entered: dict[asyncio.Task[object] | None, list[Body]] = {}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {', '.join(map(repr, self._mutex.names))}>"

    @property
    def names(self) -> tuple[str, ...]:
        """What it locks."""
        return self._mutex.names

    async def acquire(self, wait: Duration | Default | None = DEFAULT) -> Lease:
        """A lease, or LockTimeout after `wait`, or QuorumUnavailable if too few masters could be asked until then."""
        engine, options = self._engine(), self._options
        if wait is not DEFAULT:
            options = options.waiting(wait)
        task = asyncio.current_task()
        if options.reentrant and (holding := engine.entered_by(self._mutex, task)) is not None:
            holding.depth += 1
            return Lease(holding, owns=False)
        holding = await engine.acquire(self._mutex, options)
        holding.task = task
        return Lease(holding)

    async def try_acquire(self) -> Lease | None:
        """A lease, or None while somebody else holds it. An outage is never None: it raises QuorumUnavailable."""
        try:
            return await self.acquire(0)
        except LockTimeout:
            return None

    async def __aenter__(self) -> Lease:
        lease = await self.acquire()
        body = Body(lease._holding)  # noqa: SLF001 - the two halves of one thing
        body.lease = lease
        body.enter()
        self._entered.setdefault(asyncio.current_task(), []).append(body)
        return lease

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._body().leave(exc_type, exc, traceback)

    def _body(self) -> Body:
        """The block that is being left: this task's last."""
        task = asyncio.current_task()
        if task not in self._entered:
            # Left by another task than entered it: only sure when there is just one. `leave` then says what is wrong.
            if len(self._entered) != 1:
                raise RedlockError(f"{self!r} was left by a task that did not enter it")
            task = next(iter(self._entered))
        bodies = self._entered[task]
        body = bodies.pop()
        if not bodies:
            del self._entered[task]
        return body
