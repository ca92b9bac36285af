"""One node: connected, identified, given up when it hangs, and reconnected. It counts no votes.

Everything else relies on one invariant, the order: *per client and node, commands are carried out in the order they
were sent, or not at all*. On one connection TCP guarantees that. Across a reconnect it needs help: a SET that is still
under way on the old connection could arrive after its own release on the new one, and leave a key without an owner. So
a new connection first has the server close the old one (CLIENT KILL), and then sends the releases whose outcome is
unknown.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from contextvars import Context
from enum import Enum
from typing import Protocol, TypeVar, cast
from zlib import crc32

from redlock_async._rules.keys import NodeKeys
from redlock_async._rules.replies import missing_script
from redlock_async._rules.slot_map import ELSEWHERE, Shard
from redlock_async.errors import NodeRefused

from .commands import Command, CompareAndDelete, clock_command, script
from .connection import Connection, ErrorReply, Receiver, Redact, WriteBatcher, pack
from .handshake import UNASKED, Identity, Manners, identify, questions
from .node_record import Client, NodeRecord
from .receivers import Ignored, KillReply, ReplyBatch, SingleReply, SourceRetry, decode

T = TypeVar("T")

RETRY_FROM, RETRY_UPTO = 0.05, 1.0
"""Seconds between attempts to connect, doubling and jittered. No acquire waits for them."""

CONFIRMATIONS = 3
"""How often in a row a proxy must close the connection on a question until it is asked less."""

PRUNE_AT = 1024
"""How many releases are kept for a node that is down before expired ones are removed from the list."""

LONGEST_FOLLOW = 60.0
"""Maximum seconds for which a release follows a slot that no shard serves."""

PRELOADED = (
    "mutex_acquire", "mutex_extend", "mutex_reassert", "mutex_release", "node_clocks",
    "semaphore_acquire", "semaphore_extend", "semaphore_reassert", "semaphore_retain", "read_release", "fair_leave",
)  # fmt: skip
"""Scripts that are loaded into each server on connecting: for the usual path, and for cleaning up, so that a
client that closes right after a release seldom has to send a script's source first."""


class State(Enum):
    """How far a node is in the startup of its client."""

    CONNECTING = "connecting"
    SETTLED = "settled"


class NodeOwner(Client, Protocol):
    """The client that a node belongs to."""

    batcher: WriteBatcher
    client_name: str
    node_timeout: float

    @property
    def connect_timeout(self) -> float:
        """Seconds that opening a connection may take in total."""
        ...

    def check_fit(self, node: Node, identity: Identity) -> None:
        """Raise ConfigurationError if that server cannot be this node."""

    def changed(self, node: Node) -> None:
        """The node's state, mark or cause has changed."""

    def connection_changed(self) -> None:
        """A node's `live` connection has changed."""

    def invalidated(self, node: Node, keys: Sequence[bytes] | None) -> None:
        """Another client changed these keys, which we have read; None: all keys."""


class Address(Protocol):
    """The address of a node, and how to open a connection to it."""

    @property
    def label(self) -> str:
        """The name of the node in messages."""
        ...

    @property
    def client_name(self) -> str | None:
        """The user's name for the connections; None for the library's own."""
        ...

    @property
    def redact(self) -> Redact:
        """A function that removes the node's secrets from a text."""
        ...

    async def open(self, protocol: Connection, within: float, *, hello: bool) -> bool | None:
        """Connect `protocol` within that many seconds; return whether the server pushes, None if it was not asked."""
        ...


class Router(Protocol):
    """The cluster of which a node is a shard."""

    def redirect(self, message: str, host: str, packed: bytes | None, receiver: Receiver) -> bool:
        """Send a command, if there is one, to the shard that a reply names; return whether it was sent."""
        ...

    def send_durably(self, command: Command, until: float) -> None:
        """Send a release to the shard that owns its slot now."""


class Node:
    """A node and the one connection to it. Of a cluster, which is one node, each shard is such an object."""

    def __init__(
        self,
        index: int,
        address: Address,
        cluster: NodeOwner,
        keys: NodeKeys,
        *,
        place: str | None = None,
        shard: Shard | None = None,
        router: Router | None = None,
    ) -> None:
        self.index = index
        self.address = address
        self.label = address.label
        self.place = place or address.label
        """The name of the node in the set of nodes: of all shards of a cluster, that of the cluster."""
        self.redact = address.redact
        self._cluster = cluster
        self.keys = keys
        self.shard = shard
        """The shard that it is, of a cluster; None for a node that is one server."""
        self._router = router
        self.connection: Connection | None = None
        """The connection, even while it hangs. Releases are sent to a hung one too: a server that resumes finds them
        right behind their acquires."""
        self._draining: Connection | None = None
        """The last connection, once the client is closed."""
        self._task: asyncio.Task[None] | None = None
        self._pending_releases: list[tuple[float, Command]] = []
        self._prune_at = PRUNE_AT
        self._short_pause = RETRY_FROM
        """The pause after a connection that was lost soon after it was adopted."""
        self._adopted_at = -math.inf
        """When a connection was last adopted."""
        self.closed = False
        self.state = State.CONNECTING
        self.bit = 1 << index
        self.live: Connection | None = None
        """The connection, while commands may be sent on it."""
        self.cause: Exception = ConnectionError("not connected yet")
        """Why it is not ready."""
        self.identity: Identity | None = None
        """The identity of the server, if it was fit to be this node when we last connected."""
        self.met: str | None = None
        """The run id of the server that we are connected to, or are about to be."""
        self.seen: Identity | None = None
        """The identity that a server last reported, whether it was fit to be this node or not."""
        self._adopted: Identity | None = None
        """The identity that the server reported on the last connection that was adopted."""
        self._stale_client_ids: set[int] = set()
        """Ids of our older connections that the server may not have closed yet."""
        self._adopting = False
        self.latency = 0.0
        """The shortest round trip measured on connecting, in seconds."""
        self.record = NodeRecord(self, cluster)
        self.compare_and_delete = CompareAndDelete.PLAIN

    def __repr__(self) -> str:
        return f"<Node {self.label} {'ready' if self.ready else self.cause!r}>"

    def explain(self, cause: Exception) -> None:
        """Note why it is not ready."""
        self.cause = cause

    @property
    def ready(self) -> bool:
        """Whether commands can be sent."""
        return self.live is not None

    @property
    def abstains(self) -> Exception | None:
        """Why its votes do not count although it answers; None if they count."""
        return self.record.abstains

    @property
    def tracking(self) -> bool:
        """Whether the server reports changes of keys that we have read."""
        return self.identity is not None and self.identity.tracking

    def rank(self, preference: int) -> int:
        """Return a sort key that orders the nodes differently for each name and identically for every client."""
        run_id = self.identity.run_id if self.identity is not None else None
        return crc32((run_id or self.label).encode(), preference)

    def identify_as(self, identity: Identity) -> None:
        """Note what the server said about itself, which is fit as this node."""
        self.identity, self.met = identity, identity.run_id

    def observe_latency(self, seconds: float) -> None:
        """A reply took that long, longer perhaps than the node was known to take."""
        self.latency = max(self.latency, seconds)

    # Sending

    def send_source(self, command: Command, receiver: Receiver) -> bool:
        """Send a command again with its script's source, which the server has forgotten; return whether it was sent."""
        connection = self.connection or self._draining
        if connection is None:
            return False
        connection.send(command.pack_with_source(), SourceRetry(receiver))
        return True

    def send_durably(self, command: Command, until: float) -> None:
        """Send a release now, and again on the next connection if its outcome is unknown and `until` is not over."""
        connection, now = self.connection, self._cluster.now()
        if connection is None or connection.hung:
            self.queue_release(command, until)
        else:
            connection.send(command.pack(self.compare_and_delete), PendingRelease(self, command, until, now))

    def redirect(self, message: str, packed: bytes | None, receiver: Receiver) -> bool:
        """React to a reply that the slot is elsewhere: send the command there, if there is one and the shard is known.

        Return whether it was sent.
        """
        if self._router is None or self.shard is None:
            return False
        return self._router.redirect(message, self.shard.host, packed, receiver)

    def queue_release(self, command: Command, until: float = math.inf) -> None:
        """Keep a release whose outcome is unknown for the next connection.

        It has no time limit by default: a stopped server may keep its acquire in a buffer and carry it out much later.
        """
        if self.closed and self._router is not None:
            self._router.send_durably(command, until)
            return
        self._pending_releases.append((until, command))
        if len(self._pending_releases) >= self._prune_at:
            now = self._cluster.now()
            self._pending_releases = [release for release in self._pending_releases if release[0] > now]
            self._prune_at = max(2 * len(self._pending_releases), PRUNE_AT)

    def overdue(self) -> None:
        """Check whether the node hangs, because a command on it has timed out; if it does, reconnect."""
        connection = self.connection
        if connection is None or connection.hung or self._adopting or not connection.pending:
            return
        silent = self._cluster.now() - connection.pending[0].started_at
        if silent < self._cluster.node_timeout * 0.9:
            return
        # The connection stays open: a server that only paused will carry out what it was sent, releases included.
        # Meanwhile no more commands are sent on it, and another connection is tried.
        connection.give_up()
        self._down(TimeoutError(f"no answer for {silent:.3f} s"))
        self.connect()

    # Connecting

    def connect(self) -> None:
        """Start connecting in the background, unless it is already under way."""
        if self.closed or (self._task is not None and not self._task.done()):
            return
        self._task = self._cluster.loop.create_task(
            self._connect(), name=f"redlock connect {self.label}", context=Context()
        )

    async def _connect(self) -> None:
        pause = RETRY_FROM
        if self._cluster.now() - self._adopted_at < RETRY_UPTO:
            # A server that closes every connection as soon as it is adopted must not cause endless reconnects.
            await self._backoff(self._short_pause)
            self._short_pause = min(2 * self._short_pause, RETRY_UPTO)
        else:
            self._short_pause = RETRY_FROM
        while not self.closed:
            try:
                await self._connect_once()
            except Exception as exc:  # noqa: BLE001 - any error is reported as the node's fault, and retried
                self._settle(exc)
            else:
                self._adopted_at = self._cluster.now()
                return
            await self._backoff(pause)
            pause = min(2 * pause, RETRY_UPTO)

    async def _backoff(self, pause: float) -> None:
        """Pause between two attempts."""
        await asyncio.sleep(pause * self._cluster.random.uniform(0.5, 1.0))

    async def _connect_once(self) -> None:
        cluster = self._cluster
        connection: Connection | None = None
        try:
            async with asyncio.timeout(cluster.connect_timeout):
                connection, identity = await self._meet()
                self.seen = identity
                cluster.check_fit(self, identity)
                await self._adopt(connection, identity)
        except BaseException as exc:
            if connection is not None:
                if connection is self.connection:
                    self.connection = None
                    self._use(None)
                if self.connection is None:
                    self.met = None
                connection.close(ConnectionResetError("the connection was not adopted"))
            if isinstance(exc, TimeoutError) and not str(exc):
                msg = f"connected, but no answer within {cluster.connect_timeout:g} s"
                raise TimeoutError(msg) from exc
            raise

    async def _meet(self) -> tuple[Connection, Identity]:
        """Connect, and ask the server for its identity and abilities.

        Some proxies close the connection when they are sent a command that they do not know. They are connected to
        again and asked less. Without client tracking a flush is not noticed, so a fault must not be taken for such a
        proxy: it has to close the connection repeatedly, and to answer in between when it is asked less. A node that
        has once answered is always asked everything: there, the end of a connection is a fault.
        """
        if self.seen is not None:
            return await self._meet_with(Manners.ALL)
        confirmations = 0
        while True:
            try:
                return await self._meet_with(Manners.ALL)
            except ConnectionResetError:
                connection, identity = await self._meet_with_less()
            confirmations += 1
            if confirmations == CONFIRMATIONS:
                return connection, identity
            connection.close(ConnectionResetError("it is asked everything once more"))
            await asyncio.sleep(RETRY_FROM)

    async def _meet_with_less(self) -> tuple[Connection, Identity]:
        try:
            return await self._meet_with(Manners.NO_HELLO)
        except ConnectionResetError:
            connection, identity = await self._meet_with(Manners.SILENT)
        answer = SingleReply(self._cluster.loop, self._cluster.now())
        connection.send(clock_command(self.keys.probe), answer)
        try:
            await answer.future
        except BaseException:
            connection.close(ConnectionResetError("the connection was not adopted"))
            raise
        return connection, identity

    async def _meet_with(self, manners: Manners) -> tuple[Connection, Identity]:
        cluster, hello = self._cluster, manners is Manners.ALL
        connection = Connection(self, cluster.batcher, self.redact)
        try:
            pushes = await self.address.open(connection, cluster.connect_timeout, hello=hello)
            if manners is Manners.SILENT:
                return connection, UNASKED
            return connection, await self._identify(connection, pushes=pushes if hello else False)
        except BaseException:
            connection.close(ConnectionResetError("the connection was not adopted"))
            raise

    async def _identify(self, connection: Connection, *, pushes: bool | None) -> Identity:
        name = self.address.client_name or self._cluster.client_name
        asked = questions(self.keys.probe, name, pushes=pushes is True)
        asked += [("SCRIPT LOAD", ("SCRIPT", "LOAD", script(each).source)) for each in PRELOADED]
        replies = ReplyBatch(self._cluster.loop, self._cluster.now(), len(asked))
        for _, words in asked:
            connection.send(pack(words), replies)
        return identify([label for label, _ in asked], await replies.future, pushes=pushes)

    async def _adopt(self, connection: Connection, identity: Identity) -> None:
        """Use that connection from now on: end the old one, send pending releases, read its record."""
        _check_alive(connection)  # nothing was sent while it waited for the other nodes, so nothing reported its end
        self._end_old_connections(connection, identity)
        self.connection, self.identity, self.compare_and_delete = connection, identity, identity.dialect
        # Until this is done, a silence of this connection is handled by `_connect_once`, not by `overdue`.
        self._adopting = True
        try:
            self._send_pending_releases(connection)
            await self._read_record()
        finally:
            self._adopting = False
        _check_alive(connection)  # it can end in the very iteration of the loop that delivered the last reply
        self._use(connection)
        self._settle(None)

    def _send_pending_releases(self, connection: Connection) -> None:
        """Send the releases whose outcome is unknown."""
        now = self._cluster.now()
        releases, self._pending_releases = self._pending_releases, []
        for until, command in releases:
            if until > now:
                connection.send(command.pack(self.compare_and_delete), PendingRelease(self, command, until, now))

    def _end_old_connections(self, connection: Connection, identity: Identity) -> None:
        old, before = self.connection, self._adopted
        self.connection, self._adopted = None, identity
        if old is not None:
            old.close(ConnectionResetError("replaced by a new connection"))
            old.abort()
        # Ids start again when a server restarts: unless it is the same run, the id may be another client's.
        if before is None or not before.run_id or before.run_id != identity.run_id:
            self._stale_client_ids.clear()
        elif before.client_id is not None:
            self._stale_client_ids.add(before.client_id)
        # An id is kept until the server has confirmed it: this connection may also break before its first command
        # arrives.
        for client_id in self._stale_client_ids:
            connection.send(
                pack(("CLIENT", "KILL", "ID", client_id)),
                KillReply(self._stale_client_ids, client_id, self._cluster.now()),
            )

    def release_later(self, command: Command, until: float = math.inf) -> None:
        """Send a release to the shard that owns its slot, in a moment: no shard takes it now."""
        now = self._cluster.now()
        if self._router is not None and now < until:
            until = min(until, now + LONGEST_FOLLOW)
            self._cluster.loop.call_later(RETRY_FROM, self._router.send_durably, command, until, context=Context())

    def move(self, shard: Shard, keys: NodeKeys) -> None:
        """Note which slots the shard has now. If it keeps its record in another one, read that."""
        self.shard = shard
        if keys == self.keys:
            return
        if self.connection is not None:
            # Nothing may mistake the old record for the present one if the home moves back.
            self.connection.send(pack(("DEL", self.keys.record)), Ignored(self._cluster.now()))
        self.keys = keys
        self.record.reported(doubt=True)

    def retire(self) -> Connection | None:
        """Close it for good, because it owns no slot any more, and pass on the releases that it has not confirmed."""
        connection = self.close()
        releases, self._pending_releases = self._pending_releases, []
        for until, command in releases:
            self.queue_release(command, until)
        return connection

    async def _read_record(self) -> None:
        """Read what the node has recorded; it does not vote until that is known."""
        answer = self.record.ask()
        reply = await answer.future
        took = self._cluster.now() - answer.started_at
        self.latency = min(took, self.latency) if self.latency else took
        self.record.update(answer.started_at, reply)

    def on_record(self) -> None:
        """React to a change of `record`."""
        if not self.closed:
            self._cluster.changed(self)

    async def ask(self, packed: bytes, read: Callable[[object], T]) -> T:
        """Send one command to this node for an operator, and return its reply as parsed by `read`.

        Raise the node's fault while it is down, TimeoutError, and the exceptions of `decode`.
        """
        if self.live is None:
            raise self.cause.with_traceback(None)
        answer = SingleReply(self._cluster.loop, self._cluster.now())
        self.live.send(packed, answer)
        try:
            async with asyncio.timeout(self._cluster.node_timeout):
                reply = await answer.future
                if isinstance(reply, ErrorReply) and str(reply).startswith(ELSEWHERE):
                    again = SingleReply(self._cluster.loop, self._cluster.now())
                    if self.redirect(str(reply), packed, again):
                        reply = await again.future
        except TimeoutError:
            self.overdue()
            msg = f"no answer within {self._cluster.node_timeout:g} s"
            raise TimeoutError(msg) from None
        return decode(reply, read, packed, self.redact)

    def _settle(self, cause: Exception | None) -> None:
        """Record the end of an attempt to connect."""
        self.state = State.SETTLED
        if cause is not None and not self.ready:
            self.cause = cause
        self._cluster.changed(self)

    def _down(self, cause: Exception) -> None:
        self._use(None)
        self.cause = cause
        self._cluster.changed(self)

    def _use(self, connection: Connection | None) -> None:
        self.live = connection
        self._cluster.connection_changed()

    def close(self) -> Connection | None:
        """Close the connection and stop reconnecting; return the connection while it is still closing."""
        self.closed = True
        self._use(None)
        self.cause = ConnectionError("the client is closed")
        if self._task is not None:
            self._task.cancel()
        connection, self.connection = self.connection, None
        self._draining = connection
        if connection is not None:
            connection.drain(self.cause)
        return connection

    # Reports of the connection

    def pushed(self, message: list[object]) -> None:
        if message[0] == b"invalidate":
            self._cluster.invalidated(self, cast("Sequence[bytes] | None", message[1]))

    def revived(self, connection: Connection) -> None:
        if connection is not self.connection:
            return
        if self._adopting:
            return
        if self._task is not None:
            self._task.cancel()
            self._task = None
        self._use(connection)
        self._send_pending_releases(connection)
        self._cluster.changed(self)

    def congested(self, connection: Connection, *, full: bool) -> None:
        if connection is not self.connection or connection.hung:
            return
        if full:
            self._down(NodeRefused("its write buffer is full: the server reads more slowly than this client sends"))
        else:
            self._use(connection)
            self._cluster.changed(self)

    def error_while_draining(self, receiver: Receiver, error: ErrorReply) -> None:
        # There is no next connection: a lock that is not released now stays for its ttl. At this point only releases
        # are sent again, and renewals, which never change another client's lock.
        if missing_script(str(error)):
            receiver.deliver(self.index, error)

    def lost(self, connection: Connection, cause: Exception) -> None:
        if connection is not self.connection:
            return
        self.connection = self.met = None
        self._down(cause)
        self.connect()


def _check_alive(connection: Connection) -> None:
    if connection.ended is not None:
        raise connection.ended


class PendingRelease:
    """A release under way on one node: queued for the next connection if this one ends before the reply arrives."""

    __slots__ = ("_command", "_node", "_until", "started_at")

    def __init__(self, node: Node, command: Command, until: float, now: float) -> None:
        self._node = node
        self._command = command
        self._until = until
        self.started_at = now

    def deliver(self, node: int, reply: object) -> None:  # noqa: ARG002 - one node only
        """Accept any reply, released or not ours, but send the script's source to a server without it."""
        if isinstance(reply, ErrorReply) and missing_script(str(reply)):
            self._node.send_source(self._command, self)
        elif isinstance(reply, ErrorReply) and str(reply).startswith(ELSEWHERE):
            self._node.redirect(str(reply), None, self)
            self._node.release_later(self._command, self._until)

    def dropped(self, node: int, cause: Exception) -> None:  # noqa: ARG002 - one node only
        self._node.queue_release(self._command, self._until)
