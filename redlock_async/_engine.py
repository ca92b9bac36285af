"""A client on one event loop: its masters, the leases it keeps, and who waits for what."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from random import Random

from . import _clock
from ._acquire import Released
from ._contest import Contest, owner_of, timed_out
from ._errors import ConfigurationError, LockLost, LockTimeout, QuorumUnavailable
from ._holding import Holding
from ._keys import Keys
from ._lease import Phase
from ._masters import Masters
from ._mutex import Mutex
from ._node import Address, Node
from ._renewal import Renewals
from ._settings import Options, Settings
from ._waiting import LONGEST_RUN, Turns
from ._wire import Wire
from .events import Events

FIRST_LOOK_LIMIT = 2
"""Node timeouts a caller waits for the first connections, where its own wait is shorter."""


class Engine:
    """Everything that lives on the loop."""

    def __init__(
        self,
        addresses: Sequence[Address],
        settings: Settings,
        keys: Keys,
        events: Events,
        *,
        forks: int = 0,
        now: Callable[[], float] = _clock.now,
        wall_us: Callable[[], int] = lambda: time.time_ns() // 1000,
        random: Random | None = None,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.forks = forks
        """How many forks this process had behind it when the engine began."""
        self.now = now
        self.wall_us = wall_us
        self.random = random or Random()  # noqa: S311 - jitter, not secrets
        self.events = events
        self.counters = events.counters
        self.settings = settings
        self.drift_factor = settings.drift_factor
        self.node_timeout = settings.node_timeout
        self.retry_delay = settings.retry_delay
        self.owner = settings.owner.encode()
        self.round_trip = 0.001
        """Smoothed duration of a round."""
        self.masters = Masters(addresses, settings, keys, events, self, now, self.random)
        self.nodes: Sequence[Node] = self.masters.nodes
        self.needed = self.masters.needed
        self.turns = Turns(self.loop)
        self.renewals = Renewals(self)
        self.held: dict[bytes, Holding] = {}
        self.closed = False
        self._ending: list[Wire] = []
        self._at_loop_end: AsyncGenerator[None] | None = None

    # Starting and ending

    async def start(self, wait: float | None) -> None:
        """The first connections; returns at once when they are made."""
        if self._at_loop_end is None:
            # asyncio closes every async generator before it closes a loop: the one hook that lets a client that
            # nobody closed end its connections in time.
            self._at_loop_end = self._until_loop_ends()
            await anext(self._at_loop_end)
        limit = None if wait is None else max(wait, FIRST_LOOK_LIMIT * self.node_timeout)
        await self.masters.start(limit)

    async def _until_loop_ends(self) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            self.close()

    async def look(self) -> None:
        """The first connections, without an error for what they found."""
        try:
            await self.start(self.settings.options.wait)
        except ConfigurationError:
            return

    @property
    def waiting(self) -> int:
        """Tasks that wait for a lock."""
        return self.turns.waiting + len(self.turns.contests())

    async def closed_connections(self) -> None:
        """After `close`: wait until what was sent last has left. A server that does not read is not waited for."""
        try:
            async with asyncio.timeout(self.node_timeout):
                for wire in self._ending:
                    await wire.wait_closed()
        except TimeoutError:
            for wire in self._ending:
                wire.abort()
        if self._at_loop_end is not None:
            await self._at_loop_end.aclose()

    def close(self) -> None:
        """End everything at once. Leases that are held are lost; their releases are sent."""
        if self.closed:
            return
        self.closed = True
        for holding in tuple(self.held.values()):
            holding.lose("the client was closed", at_once=True)
        for contest in self.turns.contests():
            contest.wake()
        self.renewals.close()
        self._ending = self.masters.close()

    # Acquiring

    async def acquire(self, mutex: Mutex, options: Options) -> Holding:
        """A lease, or the error that says why not."""
        started = self.now()
        deadline = None if options.wait is None else started + options.wait
        try:
            if not self.masters.usable:
                await self.start(options.wait)
            if options.ttl > self.masters.longest_ttl:
                self.masters.use_ttl(options.ttl)
            run = await self._enter(mutex, options, deadline)
            holding = await self._contend(mutex, options, deadline, run)
        except LockTimeout:
            self.counters.timeouts += 1
            self.events.tell("timeout", names=mutex.names, seconds=self.now() - started)
            raise
        except QuorumUnavailable as exc:
            self.counters.unavailable += 1
            self.events.tell("unavailable", names=mutex.names, seconds=self.now() - started, error=exc)
            raise
        self.counters.acquired += 1
        self.events.tell("acquired", names=mutex.names, seconds=self.now() - started)
        return holding

    async def _enter(self, mutex: Mutex, options: Options, deadline: float | None) -> int:
        """The turn on every name, in the names' order; returns how many leases this process took in a row."""
        turns, taken, run = self.turns, 0, 0
        try:
            for key in mutex.keys:
                if not turns.take(key):
                    left = None if deadline is None else deadline - self.now()
                    if left is not None and left <= 0 and not self._knows(key):
                        left = self.node_timeout  # tried once, by somebody else, just now: that will tell
                    if not await turns.wait(key, left):
                        raise self._not_my_turn(mutex, key, options)
                    turn = turns.get(key)
                    run = max(run, turn.run if turn is not None else 0)
                taken += 1
        except BaseException:
            for key in mutex.keys[:taken]:
                turns.leave(key)
            raise
        return run

    def _knows(self, key: bytes) -> bool:
        turn = self.turns.get(key)
        return turn is None or turn.contest is None or turn.contest.asked

    def _not_my_turn(self, mutex: Mutex, key: bytes, options: Options) -> Exception:
        turn = self.turns.get(key)
        if turn is not None and turn.contest is not None and turn.contest.last_error is not None:
            return turn.contest.last_error
        holding, hint = self.held.get(key), ""
        if holding is not None and holding.task is asyncio.current_task():
            hint = ", in this very task: reentrant=True lets a task enter again"
        holder = owner_of(holding.token) if holding is not None else None
        return timed_out(mutex.names, options.wait, holder, hint)

    async def _contend(self, mutex: Mutex, options: Options, deadline: float | None, run: int) -> Holding:
        contest = Contest(self, mutex, options, deadline)
        try:
            for key in mutex.keys:
                turn = self.turns.get(key)
                assert turn is not None  # noqa: S101 - entered above
                turn.contest = contest
                if run >= LONGEST_RUN:
                    turn.run = 0
            if run >= LONGEST_RUN:
                # Other processes have been told that it is free, and are two trips behind us.
                await asyncio.sleep(self.random.uniform(2, 3) * self.round_trip)
            won = await contest.win()
        except BaseException:
            for key in mutex.keys:
                self.turns.leave(key)
            raise
        holding = Holding(self, mutex, won.token, won.fence, options, won.granted_at, won.round)
        for key in mutex.keys:
            self.turns.holds(key)
            self.held[key] = holding
        self.renewals.add(holding)
        return holding

    def entered_by(self, mutex: Mutex, task: asyncio.Task[object] | None) -> Holding | None:
        """The lease on exactly these names that this task may enter again."""
        holding = self.held.get(mutex.keys[0])
        if holding is None or holding.task is not task or not holding.reentrant or holding.mutex.keys != mutex.keys:
            return None
        holding.check()
        return holding if holding.phase is Phase.HELD else None

    # Keeping

    def attach(self, holding: Holding, until: float | None) -> None:
        """Take over a lease that was detached; `until` is None when its deadline cannot be read on our clock."""
        if until is None:
            holding.confirmed = False
            holding.until = -math.inf
            return
        holding.until = until
        holding.next_at = self.now()
        self.masters.open()
        self.adopt(holding)

    def adopt(self, holding: Holding) -> None:
        """Keep a lease that came from elsewhere."""
        for key in holding.mutex.keys:
            self.held[key] = holding
        self.renewals.add(holding)

    async def extend(self, holding: Holding, ttl: float) -> None:
        """Confirm it on a quorum with that ttl, or raise LockLost."""
        if not self.masters.usable:
            await self.start(holding.ttl)
        if ttl > self.masters.longest_ttl:
            self.masters.use_ttl(ttl)
        await self.renewals.extend(holding, ttl)

    def end(self, holding: Holding, *, retain_ms: int = 0) -> Released:
        """Send its release, and forget it."""
        mutex = holding.mutex
        round_ = self.give_back(mutex, holding.token, holding.reached, holding.ttl, retain_ms)
        if holding.phase is Phase.RELEASED:
            self.counters.released += 1
            self.events.tell("released", names=mutex.names, seconds=self.now() - holding.acquired_at)
        self.forget(holding)
        return round_

    def forget(self, holding: Holding) -> None:
        """Stop keeping it, and let the next in this process have its turn."""
        kept = False
        for key in holding.mutex.keys:
            if self.held.get(key) is holding:
                del self.held[key]
                kept = True
            if holding.owned_turn:
                self.turns.leave(key)
            elif (turn := self.turns.get(key)) is not None and turn.contest is not None:
                turn.contest.wake()  # the nodes do not report our own changes to us
        if kept:
            self.renewals.remove()
        holding.owned_turn = False

    def give_back(self, mutex: Mutex, token: bytes, reached: int, ttl: float, retain_ms: int = 0) -> Released:
        """Send releases to those nodes. Synchronous: they are on their way before anything else can happen."""
        command = mutex.retain(token, retain_ms) if retain_ms else mutex.release(token)
        keep_until = self.now() + max(ttl, retain_ms / 1000)
        round_ = Released(self, mutex, command, self.node_timeout, keep_until)
        round_.send(reached)
        return round_

    def lost(self, holding: Holding, error: LockLost) -> None:
        """Report a loss."""
        self.counters.lost += 1
        self.events.tell("lost", names=holding.mutex.names, seconds=self.now() - holding.acquired_at, error=error)

    def unconfirmed(self, holding: Holding, error: QuorumUnavailable) -> None:
        """Report a release that too few masters confirmed."""
        self.events.tell("release_unconfirmed", names=holding.mutex.names, error=error)

    # What the nodes report

    def key_changed(self, node: Node, key: bytes | None) -> None:
        """Somebody else changed that key there; None: all keys."""
        if key is None:
            for holding in tuple(self.held.values()):
                self.renewals.suspect(holding)
            for contest in self.turns.contests():
                contest.freed(node.index)
            return
        if (changed := self.held.get(key)) is not None:
            self.renewals.suspect(changed)
        if (turn := self.turns.get(key)) is not None and turn.contest is not None:
            turn.contest.freed(node.index)

    def node_up(self) -> None:
        """One more node may vote: whoever waits for a chance may have one, and its watch on the old connection ended."""
        for contest in self.turns.contests():
            contest.wake()
