"""Elections: one leader at a time, and observers that learn who it is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import TypeVar

from redlock_async._admin.leader import Leader, Reading, Terms, read_term
from redlock_async._kinds.mutex import Mutex
from redlock_async._rounds.context import Context
from redlock_async._rules.keys import Keys
from redlock_async._rules.settings import DEFAULT, Default, Duration, Options
from redlock_async._runtime.change_signal import BATCH_WINDOW, POLL_INTERVAL, ChangeSignal
from redlock_async._runtime.session import Session
from redlock_async._transport.calm import RATE_LIMIT

from .errors import LockLost, QuorumUnavailable, RedlockError
from .lease import Lease
from .locks import Lock

T = TypeVar("T")

MARGIN = 0.005
"""Seconds after the end of a term until observers look."""


class TermLock(Lock):
    """The lock of an election: observers in the same client learn of its leases."""

    __slots__ = ()

    async def acquire(self, *, wait: Duration | Default | None = DEFAULT) -> Lease:
        term = await super().acquire(wait=wait)
        # The nodes report to a client what others change, and not what it changes itself.
        self._session().context.wakeups.local_change(self._kind.watched_keys[0])
        return term


class Election:
    """One leader at a time for a name; a term is the plain lock on that name.

    Guarantee: as for `Lock`: while the lease of a term is valid, no other client of the same nodes has a valid one. The
    fencing tokens of terms increase. `changes` never reports an earlier term after a later one.
    What can break it: see `Lease`. An observer learns of a change after it: the one that `leader` returns may have
    been deposed since. A leader that was paused may still write late, so pass the fencing token to the resource.
    Cost: as for `Lock`. `leader` asks each node once. An observer asks each node once per change, which includes each
    renewal of the leader, a third of its ttl apart; without client tracking, a few times a second.
    Cancellation: cancelling `run`, or leaving a term in any way, frees the office at once.
    """

    __slots__ = ("_keys", "_kind", "_options", "_session")

    def __init__(self, session: Callable[[], Session], keys: Keys, name: str, options: Options) -> None:
        self._session = session
        self._keys = keys
        self._kind = Mutex(keys, (name,), fenced=True)
        self._options = options

    def __repr__(self) -> str:
        return f"<Election {self.name!r}>"

    @property
    def name(self) -> str:
        """The name of the election, which is the name of the lock."""
        return self._kind.names[0]

    def term(self, *, wait: Duration | Default | None = None) -> Lock:
        """Return the lock whose lease is a term: `async with election.term() as term` waits until elected.

        The block is cancelled when the leader is deposed. `wait` limits the wait; by default there is no limit.
        """
        return TermLock(self._session, self._kind, self._options.waiting(wait))

    async def run(self, serve: Callable[[Lease], Awaitable[T]]) -> T:
        """Call `serve(term)` in each term, until it returns; return its result.

        `serve` is cancelled when the leader is deposed, and called again when it is elected again. An exception that
        it raises ends `run`.
        """
        while True:
            term = await self.term().acquire()
            try:
                async with term:
                    return await serve(term)
            except LockLost:
                if not term.lost or term._held.context.closed:  # noqa: SLF001 - a term of our own
                    raise

    async def leader(self) -> Leader | None:
        """Return the current leader, or None. Raise QuorumUnavailable if too few nodes reply."""
        term = (await self._read(self._session().context)).term
        return None if term is None else term.leader

    async def changes(self) -> AsyncGenerator[Leader | None]:
        """Yield the leader now, and again on every change; None while there is no leader.

        Of changes that follow one another faster than they are consumed, only the last one is reported. While too few
        nodes reply, nothing is known and nothing is reported. Raises RedlockError when the client is closed.
        """
        context, terms = self._session().context, Terms()
        signal = ChangeSignal(context)
        context.wakeups.watch(self._kind.keys, signal)
        try:
            while True:
                signal.looking()
                pause = POLL_INTERVAL if signal.armed else context.retry_delay
                try:
                    reading = await self._read(context, terms.known)
                except QuorumUnavailable:
                    pause = context.retry_delay
                else:
                    term = reading.term
                    signal.looked(reading.others)
                    if term is not None:
                        # If its number is not stored on a quorum yet, nothing but another look will show that it is.
                        ends = RATE_LIMIT / 2 if terms.is_late(term) else term.leader.expires_in + MARGIN
                        pause = min(pause, ends)
                    if terms.is_new(term):
                        yield None if term is None else term.leader
                if context.closed:
                    raise RedlockError(f"cannot observe the election {self.name!r}: the client was closed")
                await signal.wait(pause)
                await asyncio.sleep(BATCH_WINDOW)
        finally:
            context.wakeups.unwatch(self._kind.keys, signal)

    async def _read(self, context: Context, known: bytes | None = None) -> Reading:
        key = self._kind.keys[0]
        return await read_term(context, self.name, key, self._keys.fence(key), known)
