"""Elections for threads: the asyncio `Election`, whose calls run on the portal's loop."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator
from typing import TypeVar

from redlock_async._admin.leader import Leader
from redlock_async._rules.settings import Default, Duration
from redlock_async.election import Election as AsyncElection
from redlock_async.errors import LockLost

from .leases import Lease, Lock
from .portal import run, run_uninterrupted

T = TypeVar("T")


class Election:
    """One leader at a time for a name. Otherwise as the asyncio `Election`.

    Guarantee, what can break it, cost: as for the asyncio election; and nothing stops the work of a leader that was
    deposed. It must check `term.lost`, and pass `term.fencing_token` to the resource.
    Cancellation: a signal that interrupts the wait for a term leaves nothing behind.
    """

    __slots__ = ("_election",)

    def __init__(self, election: AsyncElection) -> None:
        self._election = election

    def __repr__(self) -> str:
        return repr(self._election)

    @property
    def name(self) -> str:
        """The name of the election, which is the name of the lock."""
        return self._election.name

    def term(self, *, wait: Duration | Default | None = None) -> Lock[Lease]:
        """Return the lock whose lease is a term: `with election.term() as term` waits until elected."""
        return Lock(self._election.term(wait=wait), Lease)

    def run(self, serve: Callable[[Lease], T]) -> T:
        """Call `serve(term)` in each term, until it returns while it leads; return its result.

        A deposed leader is not stopped: `serve` should return soon, or raise with `term.raise_if_lost()`. Then it is
        called again in the next term.
        """
        while True:
            term = self.term().acquire()
            try:
                with term:
                    return serve(term)
            except LockLost:
                if not term.lost or term._held.context.closed:  # noqa: SLF001 - a term of our own
                    raise

    def leader(self) -> Leader | None:
        """Return the current leader, or None. Raise QuorumUnavailable if too few nodes reply."""
        return run(self._election.leader)

    def changes(self) -> Iterator[Leader | None]:
        """Yield the leader now, and again on every change; None while there is no leader."""
        changes = self._election.changes()
        try:
            while True:
                yield run(_next, changes)
        finally:
            run_uninterrupted(changes.aclose)


async def _next(changes: AsyncGenerator[Leader | None]) -> Leader | None:
    return await anext(changes)
