"""What every kind of lock offers: acquire, try_acquire, and a block under a lease. It knows no kind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Generic, TypeVar

from ._body import tell
from ._claim import Claim
from ._engine import Engine
from ._errors import LockTimeout, RedlockError
from ._holding import caller
from ._settings import DEFAULT, Default, Duration, Options
from .lease import Lease

L = TypeVar("L", bound=Lease)


class Primitive(Generic[L]):
    """One kind of lock on some names; its leases are of type L."""

    __slots__ = ("_claim", "_engine", "_entered", "_options")

    _lease: type[L]

    def __init__(self, engine: Callable[[], Engine], claim: Claim, options: Options) -> None:
        self._engine = engine
        self._claim = claim
        self._options = options
        self._entered: dict[asyncio.Task[object] | None, list[L]] = {}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {', '.join(map(repr, self._claim.names))}>"

    @property
    def names(self) -> tuple[str, ...]:
        """What it locks."""
        return self._claim.names

    async def acquire(self, wait: Duration | Default | None = DEFAULT) -> L:
        """A lease, or LockTimeout after `wait`, or QuorumUnavailable if too few masters could be asked until then."""
        return await self._acquire(self._claim, wait)

    async def _acquire(self, claim: Claim, wait: Duration | Default | None) -> L:
        engine, options = self._engine(), self._options
        if wait is not DEFAULT:
            options = options.waiting(wait)
        who = caller()
        if options.reentrant and (holding := engine.entered_by(claim, who)) is not None:
            holding.depth += 1
            return self._lease(holding, owns=False)
        holding = await engine.acquire(claim, options)
        holding.taken_by(who)
        return self._lease(holding)

    async def try_acquire(self) -> L | None:
        """A lease, or None while somebody else holds it. An outage is never None: it raises QuorumUnavailable."""
        try:
            return await self.acquire(0)
        except LockTimeout:
            return None

    async def __aenter__(self) -> L:
        lease = await self.acquire()
        lease._enter()  # noqa: SLF001 - the two halves of one thing
        self._entered.setdefault(asyncio.current_task(), []).append(lease)
        return lease

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        lease = self._left()
        if lease is None:
            tell(RedlockError(f"{self!r} was left by a task that did not enter it"), exc)
        else:
            await lease.__aexit__(exc_type, exc, traceback)

    def _left(self) -> L | None:
        """The lease whose block is being left: this task's last; None if nobody can say."""
        task = asyncio.current_task()
        if task not in self._entered:
            # Left by another task than entered it: only sure when there is just one. `leave` then says what is wrong.
            if len(self._entered) != 1:
                return None
            task = next(iter(self._entered))
        leases = self._entered[task]
        lease = leases.pop()
        if not leases:
            del self._entered[task]
        return lease
