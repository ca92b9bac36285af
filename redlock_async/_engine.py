"""A client on one event loop: its masters, the leases it keeps, and who waits for what."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from . import _forks
from ._acquire import Released
from ._anteroom import Anteroom
from ._board import Board
from ._claim import Claim
from ._contest import Contest
from ._deadlines import Deadlines
from ._errors import ConfigurationError, LockLost, LockTimeout, QuorumUnavailable, RedlockError
from ._holding import Caller, Holding
from ._keys import Keys
from ._lease import Phase
from ._masters import Masters
from ._node import Address, Node
from ._own import advice, refuse_to_wait_for_oneself, warn_of_waiting_for_oneself
from ._renewal import Renewals
from ._scripts import Command
from ._settings import Options, Settings
from ._waiting import LONGEST_RUN
from ._wire import Wire
from ._world import around
from .events import Events, Kind, Reason

PER_REPLY = 0.0002
"""Seconds more to wait for the end of a connection, for each reply that is still to come."""

FIRST_LOOK_LIMIT = 2
"""Node timeouts a caller waits for the first connections, where its own wait is shorter."""


class Engine:
    """Everything that lives on the loop."""

    def __init__(
        self,
        targets: Sequence[Address],
        settings: Settings,
        keys: Keys,
        events: Events,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.inherited = False
        """Whether this process was forked since: then sockets and loop are the parent's."""
        _forks.watch(self)
        self.world = world = around(self.loop)
        self.now = now = world.now
        self.wall_us = world.wall_us
        self.random = world.luck()
        self.events = events
        self.counters = events.counters
        self.deadlines = Deadlines(self.loop, now)
        self.settings = settings
        self.drift_factor = settings.drift_factor
        self.node_timeout = settings.node_timeout
        self.retry_delay = settings.retry_delay
        self._nonces = world.nonces()
        self._label = f":{settings.owner}".encode()
        self.round_trip = 0.001
        """Smoothed duration of a round."""
        addresses = [world.reach(target) for target in targets]
        self.masters = Masters(addresses, settings, keys, events, self, now, self.random)
        self.nodes = self.masters.nodes
        self.needed = self.masters.needed
        self.board = Board(self.loop)
        """Who waits for which key to change: those who ask the nodes, mostly."""
        self.anteroom = Anteroom(self)
        self.turns = self.anteroom.turns
        self.renewals = Renewals(self)
        self.held: dict[bytes, Holding] = {}
        """The leases that are kept, by the keys whose change puts them in doubt."""
        self._sharing: dict[bytes, dict[Holding, None]] = {}
        """The same of those that others may share."""
        self.reading: WeakKeyDictionary[Caller, dict[Holding, None]] = WeakKeyDictionary()
        """Those of them that others may share, by who has them."""
        self.shared: dict[bytes, object] = {}
        """What the tasks that wait for the same do once for all of them, by a key of it."""
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
            await self._drained()

    async def look(self) -> None:
        """The first connections, those of far nodes too, without an error for what they found."""
        with suppress(ConfigurationError):
            await self.start(self.settings.options.wait)
        await self.masters.settled()

    @property
    def waiting(self) -> int:
        """Tasks that wait for a lock, or for a latch."""
        return self.turns.waiting + self.board.waiting

    async def closed_connections(self) -> None:
        """After `close`: wait until the connections have ended."""
        if self._at_loop_end is not None:
            await self._at_loop_end.aclose()
        await self._drained()

    async def _drained(self) -> None:
        """Wait until the servers have answered what was sent last; one that does not answer is not waited for long."""
        ending, self._ending = self._ending, []
        owed = max((wire.owed for wire in ending), default=0)
        try:
            async with asyncio.timeout(self.node_timeout + owed * PER_REPLY):
                for wire in ending:
                    await wire.wait_closed()
        except TimeoutError:
            for wire in ending:
                wire.abort()

    def close(self) -> None:
        """End everything at once. Leases that are held are lost; their releases are sent."""
        if self.closed:
            return
        self.closed = True
        for holding in tuple(self.held.values()):
            holding.lose("the client was closed", "closed", at_once=True)
        for waiting in self.board.watching(None):
            self._tell(waiting.close(), self.settings.options)
        self.renewals.close()
        self._ending = self.masters.close()

    # Acquiring

    def fresh_token(self) -> bytes:
        """A value for the nodes that nobody had before: 128 random bits, and whose they are."""
        if self.inherited:
            raise RedlockError("this client was in use when the process was forked, and is the parent's")
        return next(self._nonces) + self._label

    async def acquire(self, claim: Claim, options: Options) -> Holding:
        """A lease, or the error that says why not."""
        if self.reading and not claim.shared:
            refuse_to_wait_for_oneself(self, claim)
        started = self.now()
        deadline = None if options.wait is None else started + options.wait
        if deadline is None and self.held:
            warn_of_waiting_for_oneself(self, claim)
        try:
            if not self.masters.usable:
                await self.start(options.wait)
            if options.ttl > self.masters.longest_ttl:
                self.masters.use_ttl(options.ttl)
            # The turn on the only name, when it is free, without a coroutine: the common case.
            alone = claim.shared or (len(claim.turns) == 1 and self.turns.take(claim.turns[0]))
            run = 0 if alone else await self.anteroom.enter(claim, options, deadline)
            holding = await self._contend(claim, options, deadline, run)
        except LockTimeout as exc:
            self.counters.timeouts += 1
            self._tell_of(claim, "timeout", started, holder=exc.holder)
            raise
        except QuorumUnavailable as exc:
            self.counters.unavailable += 1
            self._tell_of(claim, "unavailable", started, error=exc)
            raise
        except asyncio.CancelledError:
            self.counters.cancelled += 1
            self._tell_of(claim, "cancelled", started)
            raise
        except Exception as exc:
            self.counters.failed += 1
            self._tell_of(claim, "failed", started, error=exc)
            raise
        self.counters.acquired += 1
        if self.events.heard:
            self._tell_of(claim, "acquired", started)
        return holding

    def _tell_of(self, claim: Claim, kind: Kind, since: float, **details: Any) -> None:
        """Report what began at `since`."""
        self.events.tell(kind, names=claim.names, lock=claim.kind, seconds=self.now() - since, **details)

    def refused(self, contest: Contest, claim: Claim) -> None:
        """That one has been refused: so are those of this process who try once."""
        self.anteroom.refused(contest, claim)

    def advice(self, claim: Claim) -> str:
        """What to say to one who has waited for itself."""
        return advice(self, claim)

    async def _contend(self, claim: Claim, options: Options, deadline: float | None, run: int) -> Holding:
        claim = claim.begin(self)
        contest = Contest(self, claim, options, deadline)
        if claim.shared:
            contest.queue_up = partial(self.anteroom.queue_up, claim, options, deadline)
        else:
            self.turns.begin(claim.turns, contest)
        self.board.watch(claim.watched, contest)
        try:
            if contest.queue_up is not None and self.turns.get(claim.turns[0]) is not None:
                await contest.queue_up(contest)
            if run >= LONGEST_RUN:
                self.turns.rest(claim.turns)
                # Other processes have been told that it is free, and are two trips behind us.
                await asyncio.sleep(self.random.uniform(2, 3) * self.round_trip)
            won = await contest.win()
        except BaseException:
            self.board.unwatch(claim.watched, contest)
            self.anteroom.leave(claim, contest, pass_on=True)
            self._tell(claim.withdraw(), options)
            self.board.look_again(claim.watched, ())
            raise
        withdrawn = claim.withdraw()
        self._tell(withdrawn, options)
        round_ = won.round
        holding = Holding(
            self, claim, won.token, won.fence, options, round_.started_at, reached=round_.reached, votes=round_.holders
        )
        round_.granted_late = holding.also_held_by
        holding.owned_turn = claim.exclusive
        self.board.unwatch(claim.watched, contest)
        self.anteroom.leave(claim, contest, pass_on=not claim.exclusive, won=True)
        if withdrawn is not None and not claim.exclusive:
            self.board.look_again(claim.watched, ())  # the nodes report it to others, not to us
        self.adopt(holding)
        return holding

    def _tell(self, command: Command | None, options: Options) -> None:
        if command is not None:
            self.tell_all(command, options.ttl)

    def entered_by(self, claim: Claim, who: Caller | None) -> Holding | None:
        """The lease on exactly these names that this one may enter again."""
        holding = self.held.get(claim.held_by(b"")[0])
        if holding is None or not holding.reentrant or not holding.belongs_to(who):
            return None
        if holding.claim.names != claim.names:
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
        if until <= self.now():
            holding.until = -math.inf  # nothing is freed: who attached it in time goes on with it, perhaps
            holding.lose("its time was over before it was attached", "expired", at_once=True)
            return
        holding.until = until
        holding.next_at = self.now()
        self.masters.open()
        self.adopt(holding)

    def adopt(self, holding: Holding) -> None:
        """Keep a lease that came from elsewhere."""
        holding.kept = True
        for key in holding.claim.held_by(holding.token):
            self.held[key] = holding
        for key in holding.claim.alarms:
            self._sharing.setdefault(key, {})[holding] = None
        self.renewals.add(holding)

    async def extend(self, holding: Holding, ttl: float) -> None:
        """Confirm it on a quorum with that ttl, or raise LockLost."""
        if not self.masters.usable:
            await self.start(holding.ttl)
        if ttl > self.masters.longest_ttl:
            self.masters.use_ttl(ttl)
        await self.renewals.extend(holding, ttl)

    def end(self, holding: Holding, *, until: float = -math.inf, retain_ms: int = 0) -> Released:
        """Send its release, and forget it. `until` is what its deadline was."""
        claim = holding.claim
        if holding.phase is Phase.RELEASED:
            self.counters.released += 1
            if self.events.heard:
                left = max(until - self.now(), 0.0)
                self._tell_of(claim, "released", holding.acquired_at, ttl=holding.ttl, left=left)
        # Whoever gets the turn begins in the next step of the loop, right behind this release, and in the same write.
        self.forget(holding)
        return self.give_back(claim, holding.token, holding.reached, retain_ms)

    def forget(self, holding: Holding) -> None:
        """Stop keeping it, and let the next in this process have its turn."""
        claim = holding.claim
        freed = claim.held_by(holding.token)
        for key in freed:
            if self.held.get(key) is holding:
                del self.held[key]
        if holding.kept:
            holding.kept = False
            self.renewals.remove(holding)
            if claim.shared:
                holding.taken_by(None)
            for key in claim.alarms:
                sharing = self._sharing[key]
                del sharing[holding]
                if not sharing:
                    del self._sharing[key]
        if holding.owned_turn:
            holding.owned_turn = False
            for key in claim.turns:
                self.turns.leave(key)
        # The nodes report to others what we change, not to us. Whoever has just got the turn begins after this.
        if claim.exclusive or self.random.random() * LONGEST_RUN >= 1:
            self.board.look_again(claim.watched, freed)
        else:
            # The next in this process waits at the nodes already, and would always be first: as for LONGEST_RUN above.
            later = self.random.uniform(2, 3) * self.round_trip
            self.loop.call_later(later, self.board.look_again, claim.watched, freed)

    def give_back(self, claim: Claim, token: bytes, reached: int, retain_ms: int = 0) -> Released:
        """Send releases to those nodes. Synchronous: they are on their way before anything else can happen."""
        command = claim.retain(token, retain_ms) if retain_ms else claim.release(token)
        round_ = Released(self, claim, command, self.node_timeout)
        round_.send(reached)
        return round_

    def tell_all(self, command: Command, keep: float, but: int = 0) -> None:
        """Send every node something that must arrive, at the latest on its next connection, within `keep` seconds.

        `but` is a bit mask of nodes that need not be told.
        """
        until = self.now() + keep
        for node in self.nodes:
            if not but & node.bit:
                node.tell(command, until)

    def lost(self, holding: Holding, error: LockLost, reason: Reason) -> None:
        """Report a loss."""
        self.counters.lost += 1
        self._tell_of(holding.claim, "lost", holding.acquired_at, error=error, reason=reason)

    def unconfirmed(self, holding: Holding, error: QuorumUnavailable) -> None:
        """Report a release that too few masters confirmed."""
        self.counters.unconfirmed += 1
        self.events.tell("release_unconfirmed", names=holding.claim.names, lock=holding.claim.kind, error=error)

    # What the nodes report

    def key_changed(self, node: Node, key: bytes | None) -> None:
        """Somebody else changed that key there; None: all keys."""
        for holding in self._held(key):
            self.renewals.suspect(holding)
        self.board.reported(node.index, key)

    def own_change(self, key: bytes) -> None:
        """We changed that key ourselves, which the nodes do not report to us."""
        for holding in self._held(key):
            self.renewals.suspect(holding)
        self.board.changed(key)

    def _held(self, key: bytes | None) -> list[Holding]:
        if key is None:
            return list(self.held.values())
        return [self.held[key]] if key in self.held else list(self._sharing.get(key, ()))

    def node_up(self) -> None:
        """One more node may vote: waiters may have a chance, and what its old connection had to tell them is lost."""
        self.board.changed(None)
