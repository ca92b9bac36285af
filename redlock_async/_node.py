"""One master: connected, identified, given up when it hangs, and connected again. It counts no votes.

Order is the invariant everything else leans on: *per client and node, commands are carried out in the order they were
sent, or not at all*. On one connection TCP gives that. Across a reconnect it would not hold by itself: a SET still on
its way on the old connection could arrive after its own release on the new one, and leave a key nobody owns. So the
first thing a new connection does is to have the server end the old one (CLIENT KILL), and the second is to send the
releases whose fate is unknown.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Protocol, TypeVar, cast
from zlib import crc32

from ._errors import NodeRefused
from ._identity import Identity, identify, questions
from ._memory import Client, Memory
from ._receivers import Ask, Asks, End, Resent, understood
from ._replies import missing_script
from ._scripts import Command, Dialect, script
from ._wire import ErrorReply, Outbox, Receiver, Wire, pack

T = TypeVar("T")

RETRY_FROM, RETRY_UPTO = 0.05, 1.0
"""Seconds between attempts to connect: doubling, jittered, never on anybody's critical path."""

FEW = 1024
"""What is kept for a node that is down before the list is looked through for what time has settled."""

PRELOADED = (
    "mutex_acquire", "mutex_extend", "mutex_secure", "mutex_release",
    "semaphore_acquire", "semaphore_extend", "semaphore_secure", "semaphore_retain", "read_release", "fair_leave",
)  # fmt: skip
"""Scripts each server is given on connecting: those of the usual path, and those that clean up, so that a client that
closes right behind a release seldom has to wait for the server to be sent its source."""


class State(Enum):
    """Where a node stands in the client's first look at its cluster."""

    CONNECTING = "connecting"
    IDENTIFIED = "identified"
    SETTLED = "settled"


class Cluster(Client, Protocol):
    """What a node needs of the client it belongs to."""

    outbox: Outbox
    client_name: str
    node_timeout: float
    probe_key: bytes

    @property
    def connect_timeout(self) -> float:
        """How long opening a connection may take in all."""
        ...

    async def gathered(self, node: Node) -> None:
        """Wait until all nodes of a first look can be marked at once."""

    def claim(self, node: Node, identity: Identity) -> None:
        """Raise ConfigurationError if that server cannot be this node."""

    def changed(self, node: Node) -> None:
        """The node's state, mark or cause is another now."""

    def rewired(self) -> None:
        """A node's `live` connection is another now."""

    def invalidated(self, node: Node, keys: Sequence[bytes] | None) -> None:
        """These keys of ours were changed by somebody else; None: all."""


class Address(Protocol):
    """Where a node is, and how to open a connection to it."""

    @property
    def label(self) -> str:
        """What it is called."""
        ...

    async def open(self, protocol: Wire, client_name: str, within: float) -> bool:
        """Connect `protocol` within so many seconds; returns whether the server pushes."""
        ...


class Node:
    """A master and the one connection to it."""

    def __init__(self, index: int, address: Address, cluster: Cluster) -> None:
        self.index = index
        self.address = address
        self.label = address.label
        self._cluster = cluster
        self.wire: Wire | None = None
        """The connection, also one that hangs. Releases are sent there too: a server that carries on finds them right
        behind their acquires."""
        self._draining: Wire | None = None
        """The last connection, after the client was closed."""
        self._task: asyncio.Task[None] | None = None
        self._orphans: list[tuple[float, Command]] = []
        self._prune_at = FEW
        self._short_lived = RETRY_FROM
        """The pause after a connection that did not last."""
        self._adopted_at = -math.inf
        """When a connection was last taken into use."""
        self.closed = False
        self.state = State.CONNECTING
        self.bit = 1 << index
        self.live: Wire | None = None
        """The connection, while commands may be sent on it."""
        self.cause: Exception = ConnectionError("not connected yet")
        """Why it is not ready."""
        self.identity: Identity | None = None
        """What the server said of itself when we connected last."""
        self.seen: Identity | None = None
        """What the server said last, be it fit as a node or not."""
        self._adopted: Identity | None = None
        """The same of the last connection that was taken into use."""
        self._to_end: set[int] = set()
        """Ids of our older connections that the server may not have ended yet."""
        self._adopting = False
        self.latency = 0.0
        """The shortest round trip seen on connecting, in seconds."""
        self.memory = Memory(self, cluster)
        """Whether it still has its data."""
        self.dialect = Dialect.PLAIN

    def __repr__(self) -> str:
        return f"<Node {self.label} {'ready' if self.ready else self.cause!r}>"

    @property
    def ready(self) -> bool:
        """Whether commands may be sent."""
        return self.live is not None

    @property
    def abstains(self) -> Exception | None:
        """Why its votes do not count although it answers, if so."""
        return self.memory.abstains

    @property
    def tracking(self) -> bool:
        """Whether the server reports changes of keys we read."""
        return self.identity is not None and self.identity.tracking

    def rank(self, preference: int) -> int:
        """Orders the nodes differently for each name, and equally for every client."""
        run_id = self.identity.run_id if self.identity is not None else None
        return crc32((run_id or self.label).encode(), preference)

    # Sending

    def send_source(self, command: Command, receiver: Receiver) -> bool:
        """The same command with the source of its script, for a server that has forgotten it."""
        wire = self.wire or self._draining
        if wire is None:
            return False
        wire.send(command.pack_with_source(), Resent(receiver))
        return True

    def tell(self, command: Command, until: float) -> None:
        """Send what must arrive by then, at the latest on the next connection."""
        wire, now = self.wire, self._cluster.now()
        if wire is None or wire.hung:
            self.clean_later(command, until)
        else:
            wire.send(command.pack(self.dialect), Release(self, command, until, now))

    def clean_later(self, command: Command, until: float = math.inf) -> None:
        """Keep a release whose fate is unknown for the next connection.

        For however long: its acquire may wait in the buffers of a server that is stopped, and be carried out only then.
        """
        self._orphans.append((until, command))
        if len(self._orphans) >= self._prune_at:
            now = self._cluster.now()
            self._orphans = [orphan for orphan in self._orphans if orphan[0] > now]
            self._prune_at = max(2 * len(self._orphans), FEW)

    def overdue(self) -> None:
        """A command on this node has timed out: is it hung?"""
        wire = self.wire
        if wire is None or wire.hung or self._adopting or not wire.pending:
            return
        silent = self._cluster.now() - wire.pending[0].started_at
        if silent < self._cluster.node_timeout * 0.9:
            return
        # The connection stays open, for a server that only paused will carry on with what it was sent, releases
        # included. Meanwhile nothing more is asked of it, and another connection is tried.
        wire.hung = True
        self._down(TimeoutError(f"no answer for {silent:.3f} s"))
        self.connect()

    # Connecting

    def connect(self) -> None:
        """Start connecting in the background, unless that is under way."""
        if self.closed or (self._task is not None and not self._task.done()):
            return
        self._task = self._cluster.loop.create_task(self._connect(), name=f"redlock connect {self.label}")

    async def _connect(self) -> None:
        pause = RETRY_FROM
        if self._cluster.now() - self._adopted_at < RETRY_UPTO:
            # A server that ends each connection as soon as it is made is not to be asked for ever.
            await self._rest(self._short_lived)
            self._short_lived = min(2 * self._short_lived, RETRY_UPTO)
        else:
            self._short_lived = RETRY_FROM
        while not self.closed:
            try:
                await self._connect_once()
            except Exception as exc:  # noqa: BLE001 - whatever it is, it is shown as the node's fault, and tried again
                self._settle(exc)
            else:
                self._adopted_at = self._cluster.now()
                return
            await self._rest(pause)
            pause = min(2 * pause, RETRY_UPTO)

    async def _rest(self, pause: float) -> None:
        """The pause between two attempts."""
        await asyncio.sleep(pause * self._cluster.random.uniform(0.5, 1.0))

    async def _connect_once(self) -> None:
        cluster = self._cluster
        wire = Wire(self, cluster.outbox)
        try:
            async with asyncio.timeout(cluster.connect_timeout) as limit:
                pushes = await self.address.open(wire, cluster.client_name, cluster.connect_timeout)
                identity = await self._identify(wire, pushes=pushes)
                self.seen = identity
                cluster.claim(self, identity)
                if self.state is State.CONNECTING:
                    self.state = State.IDENTIFIED
                    limit.reschedule(None)
                    await cluster.gathered(self)
                    limit.reschedule(cluster.loop.time() + cluster.connect_timeout)
                await self._adopt(wire, identity)
        except BaseException as exc:
            if wire is self.wire:
                self.wire = None
                self._use(None)
            wire.close(ConnectionResetError("not taken into use"))
            if isinstance(exc, TimeoutError) and not str(exc):
                msg = f"connected, but no answer within {cluster.connect_timeout:g} s"
                raise TimeoutError(msg) from exc
            raise

    async def _identify(self, wire: Wire, *, pushes: bool) -> Identity:
        loads = [("SCRIPT", "LOAD", script(name).source) for name in PRELOADED]
        all_words = (*questions(self._cluster.probe_key, pushes=pushes), *loads)
        asks = Asks(self._cluster.loop, self._cluster.now(), len(all_words))
        for words in all_words:
            wire.send(pack(words), asks)
        return identify(await asks.future, pushes=pushes)

    def _ask(self, wire: Wire, packed: bytes) -> Ask:
        ask = Ask(self._cluster.loop, self._cluster.now())
        wire.send(packed, ask)
        return ask

    async def _adopt(self, wire: Wire, identity: Identity) -> None:
        """Make that connection the node's, and settle what the last one left open."""
        _check_alive(wire)  # while it waited for the others nothing was under way that would have told
        self._end_old_connections(wire, identity)
        self.wire, self.identity, self.dialect = wire, identity, identity.dialect
        # Until it is done, a silence of this connection is the business of whoever adopts it.
        self._adopting = True
        try:
            self._send_orphans(wire)
            await self._read_mark()
        finally:
            self._adopting = False
        _check_alive(wire)  # it can end in the very step of the loop that brought the last answer
        self._use(wire)
        self._settle(None)

    def _send_orphans(self, wire: Wire) -> None:
        """The releases whose fate is unknown."""
        now = self._cluster.now()
        orphans, self._orphans = self._orphans, []
        for until, command in orphans:
            if until > now:
                wire.send(command.pack(self.dialect), Release(self, command, until, now))

    def _end_old_connections(self, wire: Wire, identity: Identity) -> None:
        old, before = self.wire, self._adopted
        self.wire, self._adopted = None, identity
        if old is not None:
            old.close(ConnectionResetError("replaced by a new connection"))
            old.abort()
        # Ids start again when a server does: without proof that it is the same run, the id may be a stranger's.
        if before is None or not before.run_id or before.run_id != identity.run_id:
            self._to_end.clear()
        elif before.client_id is not None:
            self._to_end.add(before.client_id)
        # Each until the server has confirmed it: this connection, too, may break before its first command arrives.
        for client_id in self._to_end:
            wire.send(pack(("CLIENT", "KILL", "ID", client_id)), End(self._to_end, client_id, self._cluster.now()))

    async def _read_mark(self) -> None:
        """Learn how old the node's data is; it does not vote until that is known."""
        ask = self.memory.ask()
        reply = await ask.future
        took = self._cluster.now() - ask.started_at
        self.latency = min(took, self.latency) if self.latency else took
        self.memory.learn(ask.started_at, reply)

    def remembered(self) -> None:
        """What its memory tells of itself is another now."""
        self._cluster.changed(self)

    async def ask(self, packed: bytes, read: Callable[[object], T]) -> T:
        """One command on this node by itself, for operators, and its reply as `read` reads it.

        An error reply, and one that cannot be read, come back as an exception.
        """
        if self.live is None:
            raise self.cause.with_traceback(None)
        ask = self._ask(self.live, packed)
        try:
            async with asyncio.timeout(self._cluster.node_timeout):
                reply = await ask.future
        except TimeoutError:
            self.overdue()
            msg = f"no answer within {self._cluster.node_timeout:g} s"
            raise TimeoutError(msg) from None
        return understood(reply, read)

    def _settle(self, cause: Exception | None) -> None:
        """The end of an attempt to connect."""
        self.state = State.SETTLED
        if cause is not None and not self.ready:
            self.cause = cause
        self._cluster.changed(self)

    def _down(self, cause: Exception) -> None:
        self._use(None)
        self.cause = cause
        self._cluster.changed(self)

    def _use(self, wire: Wire | None) -> None:
        self.live = wire
        self._cluster.rewired()

    def close(self) -> Wire | None:
        """End the connection and every attempt to get another; returns the connection that is closing."""
        self.closed = True
        self._use(None)
        self.cause = ConnectionError("the client is closed")
        if self._task is not None:
            self._task.cancel()
        wire, self.wire = self.wire, None
        self._draining = wire
        if wire is not None:
            wire.drain(self.cause)
        return wire

    # What the wire reports

    def pushed(self, message: list[object]) -> None:
        if message[0] == b"invalidate":
            self._cluster.invalidated(self, cast("Sequence[bytes] | None", message[1]))

    def revived(self, wire: Wire) -> None:
        if wire is not self.wire:
            return
        if self._adopting:
            return
        if self._task is not None:
            self._task.cancel()
            self._task = None
        self._use(wire)
        self._send_orphans(wire)
        self._cluster.changed(self)

    def congested(self, wire: Wire, *, full: bool) -> None:
        if wire is not self.wire or wire.hung:
            return
        if full:
            self._down(NodeRefused("its queue is full: it reads more slowly than we send"))
        else:
            self._use(wire)
            self._cluster.changed(self)

    def refused_at_last(self, receiver: Receiver, error: ErrorReply) -> None:
        # There is no next connection: what is not released now stays for its ttl. Only releases are sent again by then,
        # and renewals, which touch nothing that is not ours.
        if missing_script(str(error)):
            receiver.deliver(self.index, error)

    def lost(self, wire: Wire, cause: Exception) -> None:
        if wire is not self.wire:
            return
        self.wire = None
        self._down(cause)
        self.connect()


def _check_alive(wire: Wire) -> None:
    if wire.ended is not None:
        raise wire.ended


class Release:
    """A release under way on one node: kept for the next connection if this one ends before it is answered."""

    __slots__ = ("_command", "_node", "_until", "started_at")

    def __init__(self, node: Node, command: Command, until: float, now: float) -> None:
        self._node = node
        self._command = command
        self._until = until
        self.started_at = now

    def deliver(self, node: int, reply: object) -> None:  # noqa: ARG002 - one node only
        """Released, or not ours: either is what we wanted; a server without the script gets its source."""
        if isinstance(reply, ErrorReply) and missing_script(str(reply)):
            self._node.send_source(self._command, self)

    def dropped(self, node: int, cause: Exception) -> None:  # noqa: ARG002 - one node only
        self._node.clean_later(self._command, self._until)
