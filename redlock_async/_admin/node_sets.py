"""Which nodes there are, as the nodes remember it, and how operators change it while clients hold locks.

A change goes through three steps:

1. The operator claims the change: the nodes record the current set again, under a new epoch.
2. They record the current and the next set, of which every quorum of one overlaps with every quorum of the other.
   Clients with either may take locks.
3. When no client uses the old set any more, they record the next set alone.

Each step needs a quorum of the current set. A node takes part only if it still has the charter that the operator has
read there, and each epoch is above all that were read. So of several operators who want different sets at once, at most
one claims the change, and a change that was interrupted can only be continued: a client with a set that was recorded on
a few nodes may already take locks.

The next change must wait until every lease has expired that a client with the old set could have held when a quorum had
recorded the last step: the quorums of the old set need not overlap with those of the set after the next.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

from redlock_async._rounds.context import Context
from redlock_async._rules.charter import LARGEST_EPOCH, NAMED, Charter, NodeSet
from redlock_async._rules.quorum import minority
from redlock_async._rules.settings import LONGEST_TTL
from redlock_async._transport.commands import Call
from redlock_async._transport.connection import pack
from redlock_async._transport.node import Node
from redlock_async.errors import ConfigurationError, QuorumUnavailable, RedlockError, by_node

CLAIM = 10
"""By how much the epoch of a claim is at least larger than all others: an earlier change may still use the next two."""


@dataclass(frozen=True, slots=True)
class Connected:
    """A client's connection to one node."""

    number: str
    """The server's number for it."""
    name: str
    """See `connection_name`."""

    @property
    def owner(self) -> str:
        """The owner of the client."""
        return self.name.removeprefix(NAMED).rpartition("#")[0]

    @property
    def counts(self) -> str:
        """The `NodeSet.counts` of its nodes."""
        return self.name.rpartition("#")[2]


@dataclass(frozen=True, slots=True)
class NodeCharter:
    """What one node remembers, and who is connected to it."""

    label: str
    error: str | None = None
    """Why it cannot be asked."""
    charter: Charter | None = None
    age: float = 0.0
    """Seconds since it recorded that."""
    longest_ttl: float = 0.0
    connected: tuple[Connected, ...] | None = None
    """The clients' connections; None if the server does not tell."""
    epochs: tuple[int, ...] = ()
    """The epochs of what it remembers, -1 for nothing: several if it is a cluster, for its shards."""

    def agrees_on(self, charter: Charter, current: NodeSet) -> bool:
        """Whether it belongs to the current set, and has recorded the sets of this charter."""
        return self.label in current.labels and self.charter is not None and self.charter.sets == charter.sets


@dataclass(frozen=True, slots=True)
class NodeSets:
    """What the nodes remember together."""

    nodes: tuple[NodeCharter, ...]
    charter: Charter | None
    """The latest that any of them has recorded."""

    @property
    def latest(self) -> int:
        """The largest epoch that any of them has recorded."""
        return max((epoch for node in self.nodes for epoch in node.epochs), default=-1)

    @property
    def wait(self) -> float:
        """Seconds until every lease has expired that a client with an earlier set may hold; without end if the last
        step was not recorded by a quorum.
        """
        if self.charter is None or not self.charter.epoch:
            return 0.0
        current = self.charter.sets[0]
        ages = sorted((node.age for node in self.nodes if node.agrees_on(self.charter, current)), reverse=True)
        if len(ages) < current.quorum:
            return math.inf
        longest = min(max(node.longest_ttl for node in self.nodes), LONGEST_TTL)
        return max(longest * 1.02 - ages[current.quorum - 1], 0.0)

    def of_old_set(self) -> set[str] | None:
        """Return the owners of clients that still use the current set and not the next; None if that is unknown."""
        if self.charter is None or len(self.charter.sets) == 1:
            return set()
        current, following = self.charter.sets
        asked = [node for node in self.nodes if node.connected is not None]
        # A client that takes locks is connected to a quorum of its nodes.
        unasked = {*current.labels} - {node.label for node in asked}
        if len(unasked) >= current.quorum or current.counts == following.counts:
            return None
        return {each.owner for node in asked for each in node.connected or () if each.counts != following.counts}

    def owners(self) -> set[str] | None:
        """Return the owners of all clients that are connected; None if that is unknown."""
        if any(node.connected is None for node in self.nodes):
            return None
        return {each.owner for node in self.nodes for each in node.connected or ()}


class Records:
    """What the nodes of one client remember; it takes no locks."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def read(self) -> NodeSets:
        """Ask all nodes; raise QuorumUnavailable if too few answer."""
        membership = self._context.membership
        await membership.look(self._context.settings.options.wait)
        await membership.settled()
        nodes = await asyncio.gather(*(self._read_all(index) for index in range(len(self._context.nodes))))
        errors: dict[str, Exception] = {
            node.label: ConnectionError(node.error) for node in nodes if node.error is not None
        }
        if len(errors) > minority(len(nodes)):
            message = f"could not read the set of nodes: too few nodes replied ({by_node(errors)})"
            raise QuorumUnavailable(message, nodes=errors)
        known = Counter(node.charter for node in nodes if node.charter is not None)
        charter = max(known, key=lambda each: (each.epoch, known[each]), default=None)
        return NodeSets(tuple(nodes), charter)

    async def _read_all(self, index: int, charter: Charter | None = None, read: Sequence[int] = ()) -> NodeCharter:
        """Ask one node; of a cluster, all shards: it remembers what each of them does."""
        servers = self._context.membership.servers_of(index)
        if charter is not None and len(read) != len(servers):
            return NodeCharter(servers[0].place, "its shards have changed: repeat the command")
        found = await asyncio.gather(
            *(
                self._read(node, charter, read=epoch)
                for node, epoch in zip(servers, read or [-1] * len(servers), strict=True)
            )
        )
        errors = [each.error for each in found if each.error is not None]
        if errors:
            return NodeCharter(servers[0].place, errors[0])
        known = [each.connected for each in found]
        charters = sorted({each.charter for each in found if each.charter is not None}, key=lambda each: each.epoch)
        return NodeCharter(
            servers[0].place,
            charter=charters[0] if charters and all(each.charter is not None for each in found) else None,
            age=min(each.age for each in found),
            longest_ttl=max(each.longest_ttl for each in found),
            connected=None if None in known else tuple(each for of_one in known for each in of_one or ()),
            epochs=tuple(-1 if each.charter is None else each.charter.epoch for each in found),
        )

    async def _read(self, node: Node, charter: Charter | None = None, *, read: int = -1) -> NodeCharter:
        membership = self._context.membership
        text = "" if charter is None else replace(charter, place=node.place).encode()
        try:
            command = Call("node_charter", 1, node.keys.record, text, read).pack_with_source()
            found = await node.ask(command, _decode)
        except (OSError, RedlockError) as exc:
            return NodeCharter(node.label, str(exc))
        try:
            connected = await node.ask(pack(("CLIENT", "LIST")), read_connected)
            connected = tuple(each for each in connected if each.name != membership.client_name)
            if charter is not None and found.charter == charter:
                await self._expel(node, connected, charter)
        except (OSError, RedlockError):
            connected = None
        return replace(found, label=node.label, connected=connected)

    @staticmethod
    async def _expel(node: Node, connected: Sequence[Connected], charter: Charter) -> None:
        """Have clients with other sets connect again: one that was stopped may not know yet that it is refused."""
        allowed = {each.counts for each in charter.sets}
        for each in connected:
            if each.counts not in allowed:
                await node.ask(pack(("CLIENT", "KILL", "ID", each.number)), bool)

    async def begin(self, found: NodeSets, current: NodeSet, following: NodeSet) -> NodeSets:
        """Claim a change, and let clients use both sets from now on."""
        claim = Charter(found.latest + CLAIM + self._context.membership.random.getrandbits(32), (current,))
        claimed = await self.record(found, claim, (current,))
        return await self.record(claimed, Charter(claim.epoch + 1, (current, following)), (current, following))

    async def record(self, found: NodeSets, charter: Charter, sets: Sequence[NodeSet]) -> NodeSets:
        """Have all nodes record a charter, except those that have changed; raise unless a quorum of each set did."""
        if charter.epoch >= LARGEST_EPOCH:
            wrong = next(node.label for node in found.nodes if found.latest in node.epochs)
            raise ConfigurationError(f"{wrong} has recorded the epoch {found.latest}, the last one: stop it")
        nodes = await asyncio.gather(
            *(self._read_all(index, charter, node.epochs) for index, node in enumerate(found.nodes))
        )
        done = {node.label for node in nodes if node.charter == charter}
        for each in sets:
            if len(done.intersection(each.labels)) < each.quorum:
                errors: dict[str, Exception] = {
                    node.label: ConnectionError(node.error or "it has recorded something else meanwhile")
                    for node in nodes
                    if node.label not in done
                }
                message = (
                    f"the change needs {each.quorum} of {', '.join(each.labels)}, and was recorded on "
                    f"{', '.join(sorted(done)) or 'none'} ({by_node(errors)}). Repeat the command when all are up"
                )
                raise QuorumUnavailable(message, nodes=errors)
        return NodeSets(tuple(nodes), charter)

    async def join(self) -> None:
        """Begin as a client that takes locks, so that nodes without data learn of the others and vote later."""
        await self._context.membership.start(self._context.settings.options.wait)


def _decode(reply: object) -> NodeCharter:
    now, charter, since, ttl_ms = cast("list[object]", reply)
    if not (isinstance(now, int) and isinstance(since, int) and isinstance(ttl_ms, int) and isinstance(charter, bytes)):
        raise TypeError("numbers and a string are needed")
    stored = Charter.decode(charter.decode("ascii")) if charter else None
    return NodeCharter("", charter=stored, age=max(now - since, 0) / 1e6, longest_ttl=ttl_ms / 1e3)


def read_connected(reply: object) -> tuple[Connected, ...]:
    """Parse the reply to CLIENT LIST: the connections of the library's clients."""
    if isinstance(reply, tuple):  # a verbatim string
        reply = reply[-1]
    if not isinstance(reply, bytes | str):
        raise TypeError("a string is needed")
    found: list[Connected] = []
    for line in (reply if isinstance(reply, str) else reply.decode(errors="replace")).splitlines():
        words: dict[str, str] = dict(word.split("=", 1) for word in line.split(" ") if "=" in word)
        if words.get("name", "").startswith(NAMED):
            found.append(Connected(words.get("id", ""), words["name"]))
    return tuple(found)
