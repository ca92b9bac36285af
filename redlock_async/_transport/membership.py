"""The nodes of one client: their startup, whether their servers are fit, and which of them may vote.

A node is one server, or a whole cluster. A cluster votes for a name with the shard that owns the name's slot. So for
each slot there are N servers that vote together, a `NodeGroup`. Without clusters there is one group, for all slots.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextvars import Context
from functools import partial
from random import Random
from typing import TypeGuard

from redlock_async._rules.charter import connection_name
from redlock_async._rules.keys import SLOTS, Keys, slot_of
from redlock_async._rules.quorum import minority
from redlock_async._rules.settings import Settings
from redlock_async._rules.slot_map import contains
from redlock_async._rules.voting import Move
from redlock_async.errors import ConfigurationError
from redlock_async.events import Events, NodeState

from .broadcast import UNNOTED, NodeGroup
from .calm import RateLimited
from .clock_watch import ClockWatch
from .cluster import Cluster, ClusterAddress
from .commands import Call, Command
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
        self._settings = settings
        self._events = events
        self._on_key_changed = on_key_changed
        self._on_node_up = on_node_up
        self._on_quorum_lost = on_quorum_lost
        self.longest_ttl = settings.options.ttl
        """The longest lease this client has asked for."""
        self._grace_timer: asyncio.TimerHandle | None = None
        self._grace_over = False
        self._connected = asyncio.Event()
        self._started = asyncio.Event()
        self.usable = False
        """Whether locks can be taken: startup is over, and the servers are fit to be nodes."""
        self._settled = asyncio.Event()
        self._opened_at: float | None = None
        self._unfit: dict[Node, ConfigurationError] = {}
        self._duplicate: ConfigurationError | None = None
        self._up: set[Node] = set()
        self._down_reported: set[Node] = set()
        self._flushed: dict[Node, RateLimited] = {}
        """For each node, the reaction to its report that it was flushed."""
        self.quorum = settings.quorum_of(len(addresses))
        self.minority = minority(len(addresses))
        self.electorate = Electorate(
            [address.label for address in addresses], self.quorum, settings, events, now, random, on_node_up=on_node_up
        )
        self.client_name = connection_name(settings.owner, self.electorate.configured)
        self.clusters: list[Cluster] = []
        self._members: list[Node | Cluster] = []
        for index, address in enumerate(addresses):
            if is_cluster(address):
                self.clusters.append(Cluster(index, address, self, keys))
                self._members.append(self.clusters[-1])
            else:
                self._members.append(Node(index, address, self, keys.node))
        self.groups: list[NodeGroup] = []
        """The servers that vote together, in the order of their slots. One group may have several ranges of slots."""
        self._starts: list[int] = []
        """The first slot of each of the groups."""
        self._clocks: dict[int, ClockWatch] = {}
        self._noted: dict[Node, object] = {}
        """What shards had noted about their slots when the groups were made."""
        self._regroup()
        self.nodes = self.groups[0]
        """The nodes; if there are clusters, those that vote for the first slot."""
        # Without clusters a command for all nodes is queued and written once.
        self.connection_changed = self._no_broadcast if self.clusters else self.nodes.update_broadcast
        self.abstention_changed = self._update_abstaining if self.clusters else self.nodes.update_abstaining

    @property
    def connect_timeout(self) -> float:
        """Seconds to open a connection: several round trips, up to eight with TLS and AUTH."""
        return max(8 * self.node_timeout, 1.0)

    # Groups

    @property
    def servers(self) -> Iterator[Node]:
        """All servers: of a cluster, all shards."""
        for member in self._members:
            if isinstance(member, Node):
                yield member
            else:
                yield from member.shards.values()

    @property
    def shown(self) -> list[Node]:
        """The servers as operators see them: a cluster that does not answer is one of them."""
        return [node for index in range(len(self._members)) for node in self.servers_of(index)]

    def servers_of(self, index: int) -> list[Node]:
        """Return the servers of one node: itself, or the shards of a cluster."""
        member = self._members[index]
        return [member] if isinstance(member, Node) else [*member.shards.values()] or [member.unowned]

    def group(self, command: Command) -> NodeGroup:
        """Return the nodes that vote for the name that a command is about."""
        return self.group_of(command.key) if self.clusters else self.nodes

    def group_of(self, key: bytes) -> NodeGroup:
        """Return the nodes that vote for the name that a key belongs to."""
        if not self.clusters:
            return self.nodes
        return self.groups[bisect_right(self._starts, slot_of(key)) - 1]

    def clocks_of(self, group: NodeGroup) -> ClockWatch:
        """Return the comparison of the clocks of nodes that vote together."""
        return self._clocks[id(group)]

    def shards_changed(self) -> None:
        """The shards of a cluster have changed, or their slots."""
        self._regroup()
        self.nodes = self.groups[0]
        for gone in {*self._up, *self._down_reported, *self._noted, *self._flushed}.difference(self.servers):
            self._up.discard(gone)
            self._down_reported.discard(gone)
            self._noted.pop(gone, None)
            self._flushed.pop(gone, None)
        self._on_node_up()  # waiters may succeed now

    def _regroup(self) -> None:
        """Find out again which servers vote together for which slots."""
        starts = {0}
        for node in self.servers:
            record = node.record.last
            noted = () if record is None else (record.slots, *(move.slots for move in record.arrived))
            owned = () if node.shard is None else node.shard.ranges
            for ranges in (owned, *noted):
                starts.update(slot for first, last in ranges for slot in (first, last + 1) if slot < SLOTS)
        self._starts = sorted(starts)
        known = {
            (*map(id, group), *sorted((at, each.since) for at, each in group.moves.items())): group
            for group in self.groups
        }
        found: dict[tuple[object, ...], NodeGroup] = {}
        self.groups = []
        for slot in self._starts:
            nodes = [each if isinstance(each, Node) else each.owner_of(slot) for each in self._members]
            moves = {node.index: move for node in nodes if (move := self._move_of(node, slot)) is not None}
            key = (*map(id, nodes), *sorted((index, move.since) for index, move in moves.items()))
            group = found.get(key) or known.get(key) or NodeGroup(nodes, self.batcher, moves)
            found[key] = group
            self.groups.append(group)
        groups = list(found.values())
        self._clocks = {id(group): self._clocks.get(id(group)) or self._watch(group) for group in groups}
        complete = all(cluster.known for cluster in self.clusters)
        self.electorate.regroup(groups, list(self.servers), complete=complete)
        self._update_abstaining()

    def _move_of(self, node: Node, slot: int) -> Move | None:
        """Return the move by which a shard has got that slot, if it may have to wait until it votes for it."""
        record = node.record.last
        if node.shard is None or record is None or not self.electorate.joined:
            return None
        if not contains(record.slots, slot):
            return UNNOTED
        return next((move for move in record.arrived if contains(move.slots, slot)), None)

    def _watch(self, group: NodeGroup) -> ClockWatch:
        return ClockWatch(group, self.quorum, self._settings, self.now, self.electorate.report_step)

    def _no_broadcast(self) -> None:
        """A connection has changed. Commands are sent one by one, because shards are in several groups."""

    def _update_abstaining(self) -> None:
        for group in self.groups:
            group.update_abstaining()

    # Startup

    def open(self) -> None:
        """Start connecting to all nodes in the background."""
        if self._opened_at is None:
            self._opened_at = self.loop.time()
            for member in self._members:
                if isinstance(member, Node):
                    member.connect()
                else:
                    member.open()

    async def start(self, wait: float | None) -> None:
        """Begin to take locks, and wait until startup is over; after `wait` seconds, continue with what there is."""
        if not self.electorate.joined:
            self.open()
            known = self._connected.is_set() and min(map(_have_voted, self.groups)) >= self.quorum
            self.electorate.join()
            self._regroup()
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

    def _check_startup(self) -> None:
        """End startup when a quorum may vote and the other nodes had a moment to connect, or when no node is left."""
        connecting = self._connecting
        if connecting and self._grace_timer is None and self._ready >= self.quorum:
            took = self.loop.time() - (self._opened_at or 0.0)
            self._grace_timer = self.loop.call_later(max(STARTUP_GRACE, took), self._end_grace, context=Context())
        if (not connecting or self._grace_over) and not self._connected.is_set():
            self._connected.set()
            self.electorate.report()
        if self._started.is_set() or not self.electorate.joined or not self._connected.is_set():
            return
        busy = self.electorate.founding or any(node.ready and node.record.updating for node in self.servers)
        if self.voters_up >= self.quorum or not (busy or connecting):
            self._end_startup()

    @property
    def _connecting(self) -> bool:
        """Whether the first attempt to connect to some server is still under way."""
        searching = any(not cluster.settled for cluster in self.clusters)
        return searching or any(node.state is State.CONNECTING for node in self.servers)

    @property
    def _ready(self) -> int:
        """How many nodes are connected."""
        return min(sum(node.ready for node in group) for group in self.groups)

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
        unfit = {node.index for node in self._unfit}
        return errors[0] if len(unfit) > len(self.nodes) - self.quorum or self._duplicate in errors else None

    def check_fit(self, node: Node, identity: Identity) -> None:
        """Raise ConfigurationError if that server cannot be this node: a replica, a cluster node or a duplicate."""
        why = unfit(identity, shard=node.shard is not None)
        duplicate = None
        if why is None and identity.run_id is not None:
            duplicate = next((o.label for o in self.servers if o is not node and o.met == identity.run_id), None)
        if duplicate is not None:
            why = f"it is the same server as {duplicate}. Each server has one vote, so list it once"
        if why is None:
            # Set before the connection is adopted, so that two duplicates that connect together see each other.
            node.identify_as(identity)
            self._unfit.pop(node, None)
            self._update_usable()
            return
        error = ConfigurationError(f"node {node.label} cannot be used: {why}")
        # Callers see it only during startup. Later it is a fault of one node, and the other nodes continue without it.
        if not self._connected.is_set():
            self._unfit[node] = error
            if duplicate is not None:
                self._duplicate = error
        raise error

    # Which nodes may vote

    def record_command(self, node: Node) -> Call:
        """Return the command that reads a node's record, and creates it if this client takes locks."""
        return self.electorate.command(node)

    def use_ttl(self, ttl: float) -> None:
        """Announce a ttl before its first lease."""
        if ttl > self.longest_ttl:
            self.longest_ttl = ttl
            self.electorate.use_ttl(ttl)

    def changed(self, node: Node) -> None:
        """React to a node that connected, disconnected or reported its record."""
        if self.clusters:
            self._shard_changed(node)
        self.electorate.reassess()
        self._update_usable()
        self._check_startup()
        if not self._connecting:
            self._settled.set()
        newly_down = node in self._up or (node.state is State.SETTLED and node not in self._down_reported)
        if node.ready and node not in self._up:
            self._up.add(node)
            self._events.emit("node_up", node=node.label)
            self._on_node_up()
        elif not node.ready and newly_down:
            self._up.discard(node)
            self._down_reported.add(node)
            self._events.emit("node_down", node=node.label, error=node.cause)
            if self.voters_up < self.quorum:
                self._on_quorum_lost()

    def _shard_changed(self, node: Node) -> None:
        """A shard that is not ready may have another primary. One that has got slots may not vote for these yet."""
        if not node.ready:
            for cluster in self.clusters:
                if cluster.index == node.index and node.shard is not None:
                    cluster.look()
        record = node.record.last
        noted = None if record is None else (record.slots, tuple(move.since for move in record.arrived))
        if self._noted.get(node) != noted:
            self._noted[node] = noted
            self._regroup()

    def invalidated(self, node: Node, keys: Sequence[bytes] | None) -> None:
        """React to the server's report that other clients changed these keys, or (None) that it was flushed."""
        if keys is None:
            node.record.reported(doubt=True)
            if node not in self._flushed:
                self._flushed[node] = RateLimited(self.loop, partial(self._on_key_changed, node, None))
            self._flushed[node]()
            return
        if node.keys.record in keys:
            node.record.reported(doubt=False)
        for key in keys:
            self._on_key_changed(node, key)

    def highest_credible(self) -> int:
        """Return the largest fencing token or ticket that is accepted from a single node."""
        return self.electorate.highest_credible()

    @property
    def voters_up(self) -> int:
        """How many nodes may vote now."""
        return min(group.voters_up for group in self.groups)

    def node_states(self) -> dict[str, NodeState]:
        """Return the state of each node by its label."""
        return {
            node.label: "down" if not node.ready else "up" if node.abstains is None else "quarantined"
            for node in self.shown
        }

    def close(self) -> list[Connection]:
        """Close all connections; return those that are still closing."""
        self._end_startup()  # release callers that wait for it
        self._settled.set()
        self.electorate.close()
        if self._grace_timer is not None:
            self._grace_timer.cancel()
        closing: list[Connection] = []
        for member in self._members:
            if isinstance(member, Cluster):
                closing += member.close()
            elif (connection := member.close()) is not None:
                closing.append(connection)
        return closing


def _have_voted(group: NodeGroup) -> int:
    """How many of these nodes may vote, and have voted before."""
    records = [node.record.last for node in group if node.ready and group.objection(node) is None]
    return sum(record is not None and record.has_voted for record in records)


def is_cluster(address: Address) -> TypeGuard[ClusterAddress]:
    """Whether an address is that of a whole cluster."""
    return bool(getattr(address, "seeds", ()))
