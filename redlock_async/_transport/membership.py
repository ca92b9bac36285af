"""The nodes of one client: their startup, whether their servers are fit, and which of them may vote."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import Context
from functools import partial
from random import Random

from redlock_async._rules.charter import connection_name
from redlock_async._rules.keys import Keys
from redlock_async._rules.quorum import minority
from redlock_async._rules.settings import Settings
from redlock_async.errors import ConfigurationError
from redlock_async.events import Events, NodeState

from .broadcast import NodeGroup
from .calm import RateLimited
from .clock_watch import ClockWatch
from .commands import Call
from .connection import Connection, WriteBatcher
from .electorate import Electorate
from .handshake import Identity, unfit
from .node import Address, Node, State

STARTUP_GRACE = 0.005
"""Minimum seconds that startup waits for the other nodes once a quorum is connected, so that most clients start with
all nodes."""

FIRST_LOOK_LIMIT = 2
"""Node timeouts that a caller waits for the first connections, if its own wait is shorter."""


class Membership:
    """The N independent nodes of one client, of which a majority decides."""

    def __init__(
        self,
        addresses: Sequence[Address],
        settings: Settings,
        keys: Keys,
        events: Events,
        now: Callable[[], float],
        random: Random,
        *,
        on_key_changed: Callable[[Node, bytes | None], None],
        on_node_up: Callable[[], None],
        on_quorum_lost: Callable[[], None],
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.batcher = WriteBatcher(self.loop)
        self.now = now
        self.random = random
        self.node_timeout = settings.node_timeout
        self.probe_key = keys.probe
        self.record_key = keys.record
        self._events = events
        self._on_key_changed = on_key_changed
        self._on_node_up = on_node_up
        self._on_quorum_lost = on_quorum_lost
        self.longest_ttl = settings.options.ttl
        """The longest lease this client has asked for."""
        self._grace_timer: asyncio.TimerHandle | None = None
        self._grace_over = False
        self._connected = asyncio.Event()
        self._changed = asyncio.Event()
        self._started = asyncio.Event()
        self.usable = False
        """Whether locks can be taken: startup is over, and the servers are fit to be nodes."""
        self._settled = asyncio.Event()
        self._opened_at: float | None = None
        self._unfit: dict[int, ConfigurationError] = {}
        self._duplicate: ConfigurationError | None = None
        self._up = 0
        self._down_reported = 0
        self.nodes = NodeGroup((Node(index, address, self) for index, address in enumerate(addresses)), self.batcher)
        self._flushed = [RateLimited(self.loop, partial(on_key_changed, node, None)) for node in self.nodes]
        """For each node, the reaction to its report that it was flushed."""
        self.connection_changed = self.nodes.update_broadcast
        self.abstention_changed = self.nodes.update_abstaining
        self.quorum = settings.quorum_of(len(self.nodes))
        self.minority = minority(len(self.nodes))
        self.electorate = Electorate(
            self.nodes, self.quorum, settings, keys, events, now, random, on_node_up=on_node_up
        )
        self.client_name = connection_name(settings.owner, self.electorate.configured)
        self.clocks = ClockWatch(self.nodes, self.quorum, settings, keys.clocks, now, self.electorate.report_step)

    @property
    def connect_timeout(self) -> float:
        """Seconds to open a connection: several round trips, up to eight with TLS and AUTH."""
        return max(8 * self.node_timeout, 1.0)

    # Startup

    def open(self) -> None:
        """Start connecting to all nodes in the background."""
        if self._opened_at is None:
            self._opened_at = self.loop.time()
            for node in self.nodes:
                node.connect()

    async def start(self, wait: float | None) -> None:
        """Begin to take locks, and wait until startup is over; after `wait` seconds, continue with what there is."""
        if not self.electorate.joined:
            self.open()
            known = self._connected.is_set() and _have_voted(self.nodes) >= self.quorum
            self.electorate.join()
            if known:
                # Each node is asked once more, in front of the first lock's command: until then its vote is in doubt.
                self._end_startup()
            self._check_startup()
        await self._wait(self._started, wait)
        if self.electorate.conflict is not None:
            raise ConfigurationError(*self.electorate.conflict.args)

    async def look(self, wait: float | None) -> None:
        """Wait likewise, for a command that takes no lock: it leaves no trace on the nodes."""
        self.open()
        await self._wait(self._connected, wait)

    async def _wait(self, event: asyncio.Event, wait: float | None) -> None:
        limit = None if wait is None else max(wait, FIRST_LOOK_LIMIT * self.node_timeout)
        if not event.is_set():
            try:
                async with asyncio.timeout(None) as until:
                    if limit is not None:
                        Context().run(until.reschedule, self.loop.time() + limit)
                    await event.wait()
            except TimeoutError:
                return
        if self._unusable is not None:
            raise ConfigurationError(*self._unusable.args)

    async def settled(self) -> None:
        """Wait until the first attempt to connect to each node has ended, for commands that ask all nodes."""
        await self._settled.wait()

    async def records_read(self) -> None:
        """Wait until it is clear which nodes vote, for as long as replies about that are under way."""
        with suppress(TimeoutError):
            async with asyncio.timeout(None) as limit:
                Context().run(limit.reschedule, self.loop.time() + self.node_timeout)
                while self.electorate.is_unsettled:
                    self._changed.clear()
                    await self._changed.wait()

    def _check_startup(self) -> None:
        """End startup when a quorum may vote and the other nodes had a moment to connect, or when no node is left."""
        connecting = any(node.state is State.CONNECTING for node in self.nodes)
        if connecting and self._grace_timer is None and sum(node.ready for node in self.nodes) >= self.quorum:
            took = self.loop.time() - (self._opened_at or 0.0)
            self._grace_timer = self.loop.call_later(max(STARTUP_GRACE, took), self._end_grace, context=Context())
        if (not connecting or self._grace_over) and not self._connected.is_set():
            self._connected.set()
            self.electorate.report()
        if self._started.is_set() or not self.electorate.joined or not self._connected.is_set():
            return
        if self.voters_up >= self.quorum or not self.electorate.is_unsettled:
            self._end_startup()

    def _end_grace(self) -> None:
        self._grace_over = True
        self._check_startup()

    def _end_startup(self) -> None:
        self._connected.set()
        self._started.set()
        self._update_usable()
        self.electorate.report()

    def _update_usable(self) -> None:
        self.usable = self._started.is_set() and self._unusable is None and self.electorate.conflict is None

    @property
    def answers(self) -> bool:
        """Whether the first connections were made, to servers that are fit to be nodes."""
        return self._connected.is_set() and self._unusable is None

    @property
    def _unusable(self) -> ConfigurationError | None:
        """Why no lock can be taken with these servers, if so many cannot be nodes."""
        errors = list(self._unfit.values())
        return errors[0] if len(errors) > len(self.nodes) - self.quorum or self._duplicate in errors else None

    def check_fit(self, node: Node, identity: Identity) -> None:
        """Raise ConfigurationError if that server cannot be this node: a replica, a cluster node or a duplicate."""
        why = unfit(identity)
        duplicate = None
        if why is None and identity.run_id is not None:
            duplicate = next((o.label for o in self.nodes if o is not node and o.met == identity.run_id), None)
        if duplicate is not None:
            why = f"it is the same server as {duplicate}. Each server has one vote, so list it once"
        if why is None:
            # Set before the connection is adopted, so that two duplicates that connect together see each other.
            node.identify_as(identity)
            self._unfit.pop(node.index, None)
            self._update_usable()
            return
        error = ConfigurationError(f"node {node.label} cannot be used: {why}")
        # Callers see it only during startup. Later it is a fault of one node, and the other nodes continue without it.
        if not self._connected.is_set():
            self._unfit[node.index] = error
            if duplicate is not None:
                self._duplicate = error
        raise error

    # Which nodes may vote

    def record_command(self, index: int) -> Call:
        """Return the command that reads a node's record, and creates it if this client takes locks."""
        return self.electorate.command(index)

    def use_ttl(self, ttl: float) -> None:
        """Announce a ttl before its first lease."""
        if ttl > self.longest_ttl:
            self.longest_ttl = ttl
            self.electorate.use_ttl(ttl)

    def changed(self, node: Node) -> None:
        """React to a node that connected, disconnected or reported its record."""
        self.electorate.reassess()
        self._changed.set()
        self._update_usable()
        self._check_startup()
        if all(each.state is State.SETTLED for each in self.nodes):
            self._settled.set()
        newly_down = self._up & node.bit or (node.state is State.SETTLED and not self._down_reported & node.bit)
        if node.ready and not self._up & node.bit:
            self._up |= node.bit
            self._events.emit("node_up", node=node.label)
            self._on_node_up()
        elif not node.ready and newly_down:
            self._up &= ~node.bit
            self._down_reported |= node.bit
            self._events.emit("node_down", node=node.label, error=node.cause)
            if self.voters_up < self.quorum:
                self._on_quorum_lost()

    def invalidated(self, node: Node, keys: Sequence[bytes] | None) -> None:
        """React to the server's report that other clients changed these keys, or (None) that it was flushed."""
        if keys is None:
            node.record.reported(doubt=True)
            self._flushed[node.index]()
            return
        if self.record_key in keys:
            node.record.reported(doubt=False)
        for key in keys:
            self._on_key_changed(node, key)

    def highest_credible(self) -> int:
        """Return the largest fencing token or ticket that is accepted from a single node."""
        return self.electorate.highest_credible()

    @property
    def voters_up(self) -> int:
        """How many nodes may vote now."""
        return sum(node.ready and node.abstains is None for node in self.nodes)

    def node_states(self) -> dict[str, NodeState]:
        """Return the state of each node by its label."""
        return {
            node.label: "down" if not node.ready else "up" if node.abstains is None else "quarantined"
            for node in self.nodes
        }

    def close(self) -> list[Connection]:
        """Close all connections; return those that are still closing."""
        self._end_startup()  # release callers that wait for it
        self._settled.set()
        self.electorate.close()
        if self._grace_timer is not None:
            self._grace_timer.cancel()
        return [connection for node in self.nodes if (connection := node.close()) is not None]


def _have_voted(nodes: NodeGroup) -> int:
    """How many of these nodes may vote, and have voted before."""
    records = [node.record.last for node in nodes if node.ready and node.abstains is None]
    return sum(record is not None and record.has_voted for record in records)
