"""A whole Redis or Valkey Cluster as one node: which shards it has, and where a command for a slot goes.

The cluster's servers know which of them owns which slots, and reply MOVED or ASK for a slot of another one. This module
asks them again after such a reply, when a connection breaks, and every few seconds. Each shard has a connection, a
record and a quarantine of its own: it is a `Node`. The shards of a cluster have one vote together, since each slot has
one owner.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import Protocol, cast

from redlock_async._rules.keys import Keys, slot_of
from redlock_async._rules.slot_map import Redirection, Shard, contains, parse_slots, redirection
from redlock_async.errors import NodeRefused, RedlockError

from .commands import Command
from .connection import Connection, Receiver, pack
from .handshake import parse_info
from .node import Address, Node, NodeOwner
from .receivers import Ignored
from .side_connection import SideConnection

REFRESH = 2.0
"""Seconds after which the servers are asked again although nothing seems to have changed."""

SHORTEST_PAUSE = 0.05
"""Minimum seconds between two questions."""

LONGEST_PAUSE = 1.0
"""Maximum seconds between two questions while no server answers."""

SLOTS, INFO, ASKING = pack(("CLUSTER", "SLOTS")), pack(("CLUSTER", "INFO")), pack(("ASKING",))

SEARCHING = ConnectionError("no server of the cluster has answered yet")


class ClusterAddress(Address, Protocol):
    """The addresses of a cluster."""

    seeds: tuple[tuple[str, int], ...]
    """The servers to ask first, by host and port."""

    def at(self, host: str, port: int) -> Address:
        """Return the address of one of the servers, with the same settings."""
        ...


class Owner(NodeOwner, Protocol):
    """The client that a cluster belongs to."""

    def shards_changed(self) -> None:
        """The shards of a cluster have changed, or their slots."""


class Cluster:
    """A cluster, which is one node."""

    def __init__(self, index: int, address: ClusterAddress, owner: Owner, keys: Keys) -> None:
        self.index = index
        self.label = address.label
        self._address = address
        self._owner = owner
        self._keys = keys
        self.unowned = Node(index, address, owner, keys.node, router=self)
        """Stands for the slots of which no owner is known. It is never connected."""
        self.unowned.explain(SEARCHING)
        self.shards: dict[str, Node] = {}
        """The shards by the ids of their primaries."""
        self._orphans: list[tuple[float, Command]] = []
        """Releases for slots of which no owner is known."""
        self._retired: list[Connection] = []
        self._wanted = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.known = False
        """Whether the shards are known."""
        self.settled = False
        """Whether the first attempt to find them has ended."""

    # Owners of slots

    def owner_of(self, slot: int) -> Node:
        """Return the shard that owns a slot, as far as is known."""
        for node in self.shards.values():
            if node.shard is not None and contains(node.shard.ranges, slot):
                return node
        return self.unowned

    def redirect(self, message: str, host: str, packed: bytes | None, receiver: Receiver) -> bool:
        """Send a command, if there is one, to the shard that a reply names; return whether it was sent."""
        self.look()
        to = redirection(message)
        connection = None if to is None else self._connection_to(to, host)
        if to is None or connection is None or packed is None:
            return False
        if to.asking:
            connection.send(ASKING, Ignored(self._owner.now()))
        connection.send(packed, receiver)
        return True

    def _connection_to(self, to: Redirection, host: str) -> Connection | None:
        place = to.host or host, to.port
        for node in self.shards.values():
            if node.shard is not None and (node.shard.host, node.shard.port) == place:
                return node.live
        return None

    def send_durably(self, command: Command, until: float) -> None:
        """Send a release to the shard that owns its slot now; keep it while none does."""
        owner = self.owner_of(slot_of(command.key))
        if owner is self.unowned or owner.closed:
            self._orphans.append((until, command))
        else:
            owner.send_durably(command, until)

    # Finding the shards

    def open(self) -> None:
        """Start finding and connecting the shards in the background."""
        if self._task is None:
            self._task = self._owner.loop.create_task(self._run(), name=f"redlock {self.label}", context=Context())

    def look(self) -> None:
        """Ask soon which shard owns what: something indicates that it has changed."""
        self._wanted.set()

    async def _run(self) -> None:
        pause = SHORTEST_PAUSE
        while True:
            self._wanted.clear()
            try:
                found = await self._find()
            except Exception as exc:  # noqa: BLE001 - any error is reported as the node's fault, and retried
                self._failed(exc)
                await asyncio.sleep(pause * self._owner.random.uniform(0.5, 1.0))
                pause = min(2 * pause, LONGEST_PAUSE)
                continue
            pause = SHORTEST_PAUSE
            self._apply(found)
            await asyncio.sleep(SHORTEST_PAUSE)
            timer = self._owner.loop.call_later(REFRESH, self._wanted.set, context=Context())
            await self._wanted.wait()
            timer.cancel()

    async def _find(self) -> tuple[Shard, ...]:
        """Return the shards, as the server says that knows most; raise if none answers."""
        live = [node for node in self.shards.values() if node.live is not None]
        asks = [self._ask(node.ask, node.shard.host) for node in live if node.shard is not None]
        views = [view for view in await asyncio.gather(*asks, return_exceptions=True) if isinstance(view, tuple)]
        if not views:
            views = [await self._ask_any()]
        return max(views, key=lambda view: view[:2])[2]

    async def _ask_any(self) -> tuple[bool, int, tuple[Shard, ...]]:
        """Ask one server after another of those that are configured or were shards."""
        known = [(node.shard.host, node.shard.port) for node in self.shards.values() if node.shard is not None]
        why: Exception = SEARCHING
        for host, port in dict.fromkeys((*self._address.seeds, *known)):
            connection = SideConnection(self._owner, self.index, self._address.at(host, port))
            try:
                await connection.open()
                return await self._ask(connection.ask, host)
            except (OSError, RedlockError) as exc:
                why = exc
            finally:
                connection.close()
        raise why

    async def _ask(self, ask: Callable[..., object], host: str) -> tuple[bool, int, tuple[Shard, ...]]:
        """Return whether a server finds the cluster in order, the latest change that it knows, and the shards."""
        asked = cast("Callable[..., asyncio.Future[tuple[bool, int]]]", ask)
        state, epoch = await asked(INFO, _read_info)
        shards = await cast("Callable[..., asyncio.Future[tuple[Shard, ...]]]", ask)(
            SLOTS, lambda reply: parse_slots(reply, host)
        )
        if not shards:
            raise NodeRefused("it belongs to a cluster in which no slots are assigned")
        return state, epoch, shards

    def _failed(self, cause: Exception) -> None:
        self.settled = True
        if not self.known:
            self.unowned.explain(cause)
        self._owner.changed(self.unowned)

    def _apply(self, found: tuple[Shard, ...]) -> None:
        """Connect to new shards, note the slots of the others, and end those that own no slot any more."""
        self.settled = self.known = True
        self.unowned.explain(NodeRefused("no server of the cluster owns the slot"))
        before = {name: node.shard for name, node in self.shards.items()}
        for shard in found:
            node = self.shards.get(shard.id)
            if (
                node is not None
                and node.shard is not None
                and (node.shard.host, node.shard.port) == (shard.host, shard.port)
            ):
                node.move(shard, self._keys.shard(shard.home))
            else:
                self._retire(shard.id)
                self.shards[shard.id] = self._shard(shard)
        for gone in self.shards.keys() - {shard.id for shard in found}:
            self._retire(gone)
        if before == {name: node.shard for name, node in self.shards.items()}:
            self._ask_again()
            return
        self._owner.shards_changed()
        for node in self.shards.values():
            node.connect()
            node.record.reported(doubt=False)  # it is to note which slots have come, and which have gone
        orphans, self._orphans = self._orphans, []
        for until, command in orphans:
            if until > self._owner.now():
                self.send_durably(command, until)

    def _ask_again(self) -> None:
        """Read the records of shards that have not noted yet what they own: they may have learned of it only now."""
        for node in self.shards.values():
            record, shard = node.record.last, node.shard
            if record is not None and shard is not None and not {*shard.ranges} <= {*record.slots}:
                node.record.reported(doubt=False)

    def _shard(self, shard: Shard) -> Node:
        address = self._address.at(shard.host, shard.port)
        keys = self._keys.shard(shard.home)
        return Node(self.index, address, self._owner, keys, place=self.label, shard=shard, router=self)

    def _retire(self, shard_id: str) -> None:
        node = self.shards.pop(shard_id, None)
        if node is not None and (connection := node.retire()) is not None:
            self._retired.append(connection)

    # Ending

    def close(self) -> list[Connection]:
        """Close all connections; return those that are still closing."""
        if self._task is not None:
            self._task.cancel()
        closing = [connection for node in self.shards.values() if (connection := node.close()) is not None]
        return [*closing, *(connection for connection in self._retired if connection.pending_count)]


def _read_info(reply: object) -> tuple[bool, int]:
    info = parse_info(reply)
    return info.get("cluster_state") == "ok", int(info.get("cluster_current_epoch", "0"))
