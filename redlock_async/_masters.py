"""The masters of one client: the first look at all of them together, who they are, and who of them may vote."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Protocol

from ._errors import ConfigurationError, NodeRefused
from ._fleet import Fleet
from ._identity import Identity, unfit
from ._keys import Keys
from ._node import Address, Node, State
from ._quorum import held_out, majority
from ._scripts import Call
from ._settings import Settings
from ._wire import Outbox, Wire
from .events import Events, NodeState, logger

PATIENCE = 0.005
"""Seconds the first look waits at least, once a quorum is there, for the others: a full house is a better start."""

LONG_TTL = 3600.0
"""Seconds of a ttl from which on it is most likely a mistake: milliseconds, or the length of a body."""


class Watcher(Protocol):
    """Who wants to know what happens on the nodes."""

    def key_changed(self, node: Node, key: bytes | None) -> None:
        """Somebody else changed that key there; None: all keys."""

    def node_up(self) -> None:
        """One more node may vote."""


class Masters:
    """N independent masters, of which a majority decides."""

    def __init__(
        self,
        addresses: Sequence[Address],
        settings: Settings,
        keys: Keys,
        events: Events,
        watcher: Watcher,
        now: Callable[[], float],
        random: Random,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.outbox = Outbox(self.loop)
        self.now = now
        self.random = random
        self.node_timeout = settings.node_timeout
        self.client_name = "redlock:" + "".join(c if "!" <= c <= "~" else "_" for c in settings.owner)
        self.probe_key = keys.probe
        self._keys = keys
        self._strict = settings.strict_restart
        self._drift_factor = settings.drift_factor
        self._events = events
        self._watcher = watcher
        self.longest_ttl = settings.options.ttl
        """The longest lease this client has asked for."""
        self._warn_of_a_long_ttl()
        self._together = asyncio.Event()
        self._started = asyncio.Event()
        self._settled = asyncio.Event()
        self._opened_at: float | None = None
        self._reassess_timer: asyncio.TimerHandle | None = None
        self._unfit: dict[int, ConfigurationError] = {}
        self._fresh_warned = False
        self._up = 0
        self._reported = 0
        self.nodes = Fleet((Node(index, address, self) for index, address in enumerate(addresses)), self.outbox)
        self.rewired = self.nodes.regroup
        self.reconsidered = self.nodes.recount
        self.needed = majority(len(self.nodes))

    def _warn_of_a_long_ttl(self) -> None:
        if self.longest_ttl >= LONG_TTL:
            logger.warning(
                "a ttl of %g s is used: a master that restarts without its data cannot vote for as long, whatever was "
                "locked, and the masters remember it. Durations are seconds; and a lease that is held is renewed, so "
                "that it needs no ttl as long as its body",
                self.longest_ttl,
            )

    @property
    def connect_timeout(self) -> float:
        """A connect is several round trips, with TLS and AUTH up to eight."""
        return max(8 * self.node_timeout, 1.0)

    # The first look

    @property
    def usable(self) -> bool:
        """Whether the first look is over and found no server that cannot be a node."""
        return self._started.is_set() and not self._unfit

    def open(self) -> None:
        """Begin to connect, in the background."""
        if self._opened_at is None:
            self._opened_at = self.loop.time()
            for node in self.nodes:
                node.connect()

    async def start(self, limit: float | None) -> None:
        """Wait for the first look to end; after `limit` go on with what is there."""
        self.open()
        if not self._started.is_set():
            try:
                async with asyncio.timeout(limit):
                    await self._started.wait()
            except TimeoutError:
                return
        if self._unfit:
            raise ConfigurationError(*next(iter(self._unfit.values())).args)

    async def settled(self) -> None:
        """Wait until no node is being connected for the first time: whoever asks each of them wants them all."""
        await self._settled.wait()

    async def gathered(self, node: Node) -> None:
        """Hold a node that is connected until all that will be are: they are marked at once, hence of one age."""
        self._look(node)
        await self._together.wait()

    def _look(self, _node: Node) -> None:
        if self._started.is_set():
            return
        if not self._together.is_set():
            connecting = sum(node.state is State.CONNECTING for node in self.nodes)
            identified = sum(node.state is State.IDENTIFIED for node in self.nodes)
            if not connecting:
                self._together.set()
            elif identified == self.needed and self._opened_at is not None:
                took = self.loop.time() - self._opened_at
                self.loop.call_later(max(PATIENCE, took), self._together.set)
        # Whoever was identified in time is being marked now; the stragglers do not hold anybody up.
        if self._together.is_set() and not any(node.state is State.IDENTIFIED for node in self.nodes):
            self._started.set()

    def claim(self, node: Node, identity: Identity) -> None:
        """Refuse a server that cannot be an independent master."""
        why = unfit(identity)
        if why is None and identity.run_id is not None:
            twins = [
                other.label
                for other in self.nodes
                if other is not node and other.identity is not None and other.identity.run_id == identity.run_id
            ]
            if twins:
                why = f"it is the same server as {twins[0]}: two names of one server are one vote, not two"
        if why is None:
            # Known at once, before it is adopted, so that two twins that connect together see each other.
            node.identity = identity
            self._unfit.pop(node.index, None)
            return
        error = ConfigurationError(f"node {node.label} cannot be used: {why}")
        # Raised to callers only if it is so from the start. Later it is a fault of one node, and the others go on.
        if not self._started.is_set():
            self._unfit[node.index] = error
        raise error

    # Who may vote

    def mark_command(self) -> Call:
        """Reads a node's age, and tells it the longest ttl we use and since when leases may stand."""
        founded_at = self._founded_at
        return self._mark(-1 if founded_at is None else round((self.now() - founded_at) * 1e6))

    def _mark(self, since: int, *, anew: bool = False) -> Call:
        keys = (self._keys.born, self._keys.longest_ttl, self._keys.founded)
        return Call("node_mark", len(keys), *keys, round(self.longest_ttl * 1000), since, int(anew))

    def use_ttl(self, ttl: float) -> None:
        """Before the first lease of that length: a restarted node must stay out of the vote for as long."""
        if ttl > self.longest_ttl:
            self.longest_ttl = ttl
            self._warn_of_a_long_ttl()
            for node in self.nodes:
                node.memory.ask_again(doubt=False)
            self._reassess()

    def changed(self, node: Node) -> None:
        """A node came, went, or was marked."""
        self._look(node)
        if all(each.state is State.SETTLED for each in self.nodes):
            self._settled.set()
        self._reassess()
        bit = 1 << node.index
        if node.ready and not self._up & bit:
            self._up |= bit
            self._events.tell("node_up", node=node.label)
            self._watcher.node_up()
        elif not node.ready and (self._up & bit or (node.state is State.SETTLED and not self._reported & bit)):
            self._up &= ~bit
            self._reported |= bit
            self._events.tell("node_down", node=node.label, error=node.cause)

    def _reassess(self) -> None:
        now = self.now()
        marks = [node.memory.mark for node in self.nodes]
        longest = max([self.longest_ttl, *(mark.longest_ttl for mark in marks if mark is not None)])
        ages = [None if mark is None else mark.age + (now - mark.read_at) for mark in marks]
        for node, age in zip(self.nodes, ages, strict=True):
            if age is not None and age >= longest:
                node.memory.forgot = False  # whatever it has forgotten is over
        forgot = [node.memory.forgot for node in self.nodes]
        nobody_saw_it = self._nobody_saw_the_founding
        late = [mark is not None and mark.late and not nobody_saw_it for mark in marks]
        founded_at = self._founded_at
        # Told by another node's clock than the ages that it is compared with.
        founded = 0.0 if founded_at is None else (now - founded_at) * (1 - 2 * self._drift_factor)
        holds = held_out(ages, self.needed, longest, late, founded, strict=self._strict, forgot=forgot)
        for node, hold in zip(self.nodes, holds, strict=True):
            if hold > 0 and node.abstains is None:
                self._events.tell("node_held_out", node=node.label, seconds=hold)
            why = "its data is new, and strict_restart=True" if self._strict else "it restarted without its data"
            until = f"it votes again in {hold:.1f} s, when every lease it may have forgotten is over"
            longest_in_use = f"the longest ttl in use is {longest:g} s"
            node.memory.hold_out(NodeRefused(f"{why}: {until}; {longest_in_use}") if hold > 0 else None)
        if self._reassess_timer is not None:
            self._reassess_timer.cancel()
            self._reassess_timer = None
        if waits := [hold for hold in holds if hold > 0]:
            self._reassess_timer = self.loop.call_later(min(waits) + 0.001, self._hold_is_over)
        self._found(holds)
        young = sum(age is not None and age < longest and not hold for age, hold in zip(ages, holds, strict=True))
        if young and not self._fresh_warned and self._started.is_set():
            self._fresh_warned = True
            logger.warning(
                "%d of %d masters keep their data for less than the longest ttl (%g s): taken for a fresh cluster. "
                "If they lost their data instead, leases may overlap once; strict_restart=True would wait it out",
                young, len(self.nodes), longest,
            )  # fmt: skip

    @property
    def _founded_at(self) -> float | None:
        """Since when, by our clock, leases may stand; None if no node that we know has kept its data since then.

        Told by when the answers came: it is for nodes that began later, and must not make them look older.
        """
        marks = [mark for node in self.nodes if (mark := node.memory.mark) is not None and mark.witness]
        return min((mark.answered_at - mark.founded for mark in marks if mark.founded is not None), default=None)

    @property
    def _nobody_saw_the_founding(self) -> bool:
        """Whether all nodes are known, and none has kept its data since the founding: it means nothing any more."""
        return all((mark := node.memory.mark) is not None and not mark.witness for node in self.nodes)

    def _found(self, holds: Sequence[float]) -> None:
        """A majority is there: have every node remember since when, before it grants anything.

        On each connection that stands before our first acquire: no lease is granted by a node that was not told.
        """
        if not self._started.is_set():
            return  # somebody who knows better may be among those that are still being asked
        now, founded_at = self.now(), self._founded_at
        marks = [node.memory.mark for node in self.nodes]
        there = sum(mark is not None and not hold for mark, hold in zip(marks, holds, strict=True))
        first = not any(mark is not None and mark.founded is not None for mark in marks)
        anew = founded_at is None and (first or self._nobody_saw_the_founding)
        founding = now if anew else founded_at
        if founding is None or (anew and there < self.needed):
            return
        for node, mark in zip(self.nodes, marks, strict=True):
            if mark is None or (mark.founded is not None and not anew):
                continue
            # Not again at once when it refuses to remember (OOM): it will refuse to grant, too.
            memory = node.memory
            if memory.told_at + 1.0 <= now:
                memory.told_at = now
                memory.mark = replace(mark, founded=mark.answered_at - founding)
                memory.tell(self._mark(round((now - founding) * 1e6), anew=anew))

    def _hold_is_over(self) -> None:
        self._reassess_timer = None
        self._reassess()
        self._watcher.node_up()

    def invalidated(self, node: Node, keys: Sequence[bytes] | None) -> None:
        """The server reports keys that somebody else changed, or (None) that it was flushed."""
        if keys is None or not {self._keys.born, self._keys.longest_ttl, self._keys.founded}.isdisjoint(keys):
            node.memory.ask_again(doubt=keys is None or self._keys.born in keys)
        for key in (None,) if keys is None else keys:
            self._watcher.key_changed(node, key)

    @property
    def voters_up(self) -> int:
        """Nodes that may vote now."""
        return sum(node.ready and node.abstains is None for node in self.nodes)

    def states(self) -> dict[str, NodeState]:
        """How each node stands, by its label."""
        return {
            node.label: "down" if not node.ready else "up" if node.abstains is None else "held_out"
            for node in self.nodes
        }

    def close(self) -> list[Wire]:
        """End all connections; returns those that are closing."""
        self._started.set()  # whoever waits for the first look waits for nothing
        self._settled.set()
        if self._reassess_timer is not None:
            self._reassess_timer.cancel()
        return [wire for node in self.nodes if (wire := node.close()) is not None]
