"""One multiplexed RESP connection: commands are written once per iteration of the loop, replies arrive in order.

It handles bytes and order, and knows nothing of locks, nodes or retries. It is the only module that imports hiredis.
"""

from __future__ import annotations

import asyncio
import logging
import reprlib
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import Context
from functools import partial
from typing import Protocol, cast

import hiredis

from redlock_async._rules.redaction import scrub

pack = cast("Callable[[tuple[bytes | str | int, ...]], bytes]", hiredis.pack_command)
"""Encodes a command."""

READ_SIZE = 64 * 1024
MOST_QUEUED = 16 * 1024 * 1024
"""Maximum bytes that wait for a server to read them; with more, the server counts as not answering."""

LARGEST_REPLY = 16 * 1024 * 1024
"""Maximum bytes of an incomplete reply; with more, the connection is closed.

The largest replies that the library asks for are the portions of `list_locks()`: 1,000 keys of up to 4 KiB, or 32 names
with 2,000 tokens of up to 250 bytes each. 100 renewals, 1,000 slots of a semaphore and INFO stay below 1 MiB.
"""

_INCOMPLETE = object()

Redact = Callable[[str], str]
"""Removes a node's secrets from a text of its server."""

DECODE_ERRORS = (ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError, TypeError, ValueError)
"""The exceptions that a reply of an unexpected shape can raise while it is parsed."""


def malformed_reply(reply: object, why: Exception, redact: Redact) -> ConnectionError:
    """Return the error for a reply that does not fit its command, and log it, because it may be our own bug."""
    quoted = redact(reprlib.repr(reply))
    scrub(why, redact)  # it quotes the reply, too
    logging.getLogger("redlock_async").warning("malformed reply: %s", quoted, exc_info=why)
    error = ConnectionError(f"malformed reply: {quoted}")
    error.__cause__ = why
    return error


class Receiver(Protocol):
    """Takes the reply to a command."""

    started_at: float

    def deliver(self, node: int, reply: object) -> None:
        """Take the reply of that node; an error reply is an `ErrorReply`."""

    def dropped(self, node: int, cause: Exception) -> None:
        """The connection ended before the reply: whether the command was carried out is unknown."""


ErrorReply = hiredis.ReplyError
Push = hiredis.PushNotification


def _discard(packed: bytes) -> None:
    """Write to a connection that has ended."""


class Owner(Protocol):
    """The node that the connection belongs to."""

    index: int

    def pushed(self, message: list[object]) -> None:
        """The server has sent a push message."""

    def revived(self, connection: Connection) -> None:
        """A connection that was given up as hung has delivered a complete reply."""

    def congested(self, connection: Connection, *, full: bool) -> None:
        """The write buffer to the server is full, or has room again."""

    def error_while_draining(self, receiver: Receiver, error: hiredis.ReplyError) -> None:
        """While draining, an error reply has arrived for a receiver whose `dropped` was already called."""

    def lost(self, connection: Connection, cause: Exception) -> None:
        """The connection has ended."""


class WriteBatcher:
    """Collects the commands for all connections of one client and writes them once per iteration of the loop.

    Most commands go to all connections; these are stored and joined once. As soon as a command goes to a single
    connection, the common ones are moved to each connection's own queue, which keeps the order on every connection:
    the common queue and the list of connections with a queue of their own are never both in use.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._context = Context()
        """An empty context: a write serves many requests, and its consequences may outlive all of them."""
        self._all: Sequence[Connection] = ()
        self._expect: list[Callable[[Receiver], None]] = []
        """For each of them, what adds a receiver to those that wait for a reply."""
        self._for_all: list[bytes] = []
        self._waiting: list[Connection] = []
        """Connections with a queue of their own."""
        self._before_write: Callable[[], None] | None = None
        self.collected: Callable[[], None] | None = None
        """Queues what was collected, before anything else is queued or written."""
        self.scheduled = False
        """Whether something will be written in this iteration of the loop."""

    def connect(self, connections: Sequence[Connection]) -> None:
        """Set the connections that `send_all` writes to."""
        self.split()
        self._all = connections
        self._expect = [connection.pending.append for connection in connections]

    def send_all(self, packed: bytes, receiver: Receiver) -> None:
        """Queue a command on every connection. It is synchronous, like `Connection.send`."""
        if self.collected is not None:
            self.send_collected()
        if self._waiting:
            for connection in self._all:
                connection.send(packed, receiver)
            return
        for expect in self._expect:
            expect(receiver)
        if not self.scheduled:
            self.scheduled = True  # as _schedule does, which would be one more call for each lock
            self._loop.call_soon(self._flush, context=self._context)
        self._for_all.append(packed)

    def _schedule(self) -> None:
        self.scheduled = True
        self._loop.call_soon(self._flush, context=self._context)

    def before_next(self, callback: Callable[[], None]) -> None:
        """Call back before anything else is queued or written, to queue what was collected until then."""
        self.collected = callback
        if not self.scheduled:
            self._schedule()

    def send_collected(self) -> None:
        """Do so now."""
        if self.collected is not None:
            before_next, self.collected = self.collected, None
            before_next()

    def before_write(self, callback: Callable[[], None]) -> None:
        """Call back once before the next write, to send something behind all commands of this iteration of the loop."""
        self._before_write = callback

    def add(self, connection: Connection) -> None:
        """Register a connection that is about to have a queue of its own."""
        self.split()
        if connection.queue:
            return
        if not self.scheduled:
            self._schedule()
        self._waiting.append(connection)

    def split(self) -> None:
        """Move the commands for all connections to each connection's own queue."""
        if self._for_all:
            for connection in self._all:
                connection.queue += self._for_all
            self._waiting += self._all
            self._for_all.clear()

    def _flush(self) -> None:
        if self.collected is not None:
            self.send_collected()
        if self._before_write is not None:
            before_write, self._before_write = self._before_write, None
            before_write()
        self.scheduled = False
        if self._for_all:
            packed = b"".join(self._for_all)
            self._for_all.clear()
            for connection in self._all:
                connection.write(packed)
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            for connection in waiting:
                connection.flush()


class Connection(asyncio.BufferedProtocol):
    """A connection to a server. It is a buffered protocol: the plain one allocates 256 KiB for each read."""

    def __init__(self, owner: Owner, batcher: WriteBatcher, redact: Redact = str) -> None:
        self._owner = owner
        self._index = owner.index
        self._batcher = batcher
        self._redact = redact
        """Removes secrets from a text of the server's."""
        self._reader = hiredis.Reader(notEnoughData=_INCOMPLETE, replyError=self._error_reply)
        self._gets: Callable[[], object] = self._reader.gets
        self._feed = cast("Callable[[bytearray, int, int], None]", self._reader.feed)
        self._bytes = bytearray(READ_SIZE)
        self._buffer = memoryview(self._bytes)
        self._transport: asyncio.Transport | None = None
        self.write: Callable[[bytes], None] = _discard
        """Passes bytes to the transport."""
        self.queue: list[bytes] = []
        """Commands to write in this iteration of the loop, to this connection only."""
        self._partial = 0
        """Bytes that have arrived since the last complete reply or push."""
        self._closing: Exception | None = None
        self._lost_at_end: asyncio.Future[None] | None = None
        self.pending: deque[Receiver] = deque()
        self.hung = False
        self._stream_ref: object = None
        """An object that must live as long as the connection: the stream that opened it."""

    @property
    def ended(self) -> Exception | None:
        """Why the connection has ended; None while it is open."""
        return self._closing

    @property
    def pending_count(self) -> int:
        """How many replies are outstanding."""
        return len(self.pending)

    def keep(self, stream: object) -> None:
        """Keep an object for as long as the connection lasts."""
        self._stream_ref = stream

    def send(self, packed: bytes, receiver: Receiver) -> None:
        """Queue a command. It is synchronous, so that a command sent later can never arrive earlier."""
        if self._batcher.collected is not None:
            self._batcher.send_collected()
        self.pending.append(receiver)
        if not self.queue:
            self._batcher.add(self)
        self.queue.append(packed)

    def flush(self) -> None:
        """Pass all queued commands to the transport in one write."""
        queue, self.queue = self.queue, []
        if queue:
            self.write(b"".join(queue))

    def close(self, cause: Exception) -> None:
        """Write the queue and close: a hung server must still find releases behind their acquires."""
        if self._closing is not None:
            return
        self._closing = cause
        self._batcher.split()
        self.flush()
        if self._transport is not None:
            self._transport.close()
        self._drop(cause)

    def drain(self, cause: Exception) -> None:
        """Close the connection when the server has replied to all commands.

        Closing it earlier, with replies unread, would reset it, and the server would drop the commands that it has not
        read yet: the very releases that were sent last.
        """
        if self._closing is not None:
            return
        if self.hung or not self.pending:
            self.close(cause)
            return
        self._closing = cause
        self._batcher.split()
        self.flush()
        # No caller waits for the replies any more, but a server may have forgotten the script of a release.
        for receiver in tuple(self.pending):
            receiver.dropped(self._index, cause)

    def give_up(self) -> None:
        """Mark the connection as hung; `Owner.revived` is called when a complete reply arrives."""
        self.hung = True
        self._gets = self._first_reply

    async def wait_closed(self) -> None:
        """Wait, after `close`, until the last byte was sent and the connection has ended."""
        if self._transport is not None:
            self._lost_at_end = asyncio.get_running_loop().create_future()
            await self._lost_at_end

    def abort(self) -> None:
        """Abort the connection immediately."""
        if self._transport is not None:
            self._transport.abort()

    def _drop(self, cause: Exception) -> None:
        pending = tuple(self.pending)
        self.pending.clear()
        for receiver in pending:
            receiver.dropped(self._index, cause)

    # asyncio.BufferedProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=MOST_QUEUED)
        self.write = self._transport.write

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self._closing is not None:
            self._drain_replies(nbytes)
            return
        self._feed(self._bytes, 0, nbytes)
        gets, pending = self._gets, self.pending
        reply: object = None
        receiver: Receiver | None = None
        try:
            if (reply := gets()) is _INCOMPLETE:
                self._count_partial(nbytes)
                return
            self._partial = 0
            while reply is not _INCOMPLETE:
                if type(reply) is Push:
                    self._owner.pushed(reply)
                elif pending:
                    receiver = pending.popleft()
                    receiver.deliver(self._index, reply)
                else:
                    quoted = self._redact(reprlib.repr(reply))
                    self._fail(ConnectionError(f"the server sent an unexpected reply: {quoted}"))
                    return
                if self._closing is not None:
                    self._drain_replies(0)
                    return
                reply = gets()
        except hiredis.ProtocolError as exc:
            self._fail(ConnectionError(f"the server does not speak RESP: {self._redact(str(exc))}"))
        except DECODE_ERRORS as exc:
            self._malformed(reply, receiver, exc)

    def _error_reply(self, message: str) -> ErrorReply:
        """Create the reply for a server's error: here, and nowhere else, a server's words enter the library."""
        return ErrorReply(self._redact(message))

    def _malformed(self, reply: object, receiver: Receiver | None, why: Exception) -> None:
        """Abort the connection, because its next replies may belong to other commands."""
        cause = malformed_reply(reply, why, self._redact)
        if receiver is not None:  # if it is not the one that raised, it has its reply, and this tells it nothing
            receiver.dropped(self._owner.index, cause)
        self._fail(cause)

    def _first_reply(self) -> object:
        """Replace `_gets` while the connection is hung: only a complete reply revives it, a part or a push does not."""
        reply = self._reader.gets()
        if self.hung and reply is not _INCOMPLETE and type(reply) is not Push:
            self.hung = False
            self._gets = self._reader.gets
            self._owner.revived(self)
        return reply

    def _count_partial(self, nbytes: int) -> None:
        """Count the bytes of an incomplete reply, and abort the connection if it is longer than any valid reply."""
        self._partial += nbytes
        if self._partial > LARGEST_REPLY:
            self._fail(ConnectionError(f"the server's reply is longer than {LARGEST_REPLY} bytes"))

    def _drain_replies(self, nbytes: int) -> None:
        """Count the replies while draining, and pass error replies on."""
        self._feed(self._bytes, 0, nbytes)
        pending = self.pending
        self._partial += nbytes
        try:
            while pending and (reply := self._reader.gets()) is not _INCOMPLETE:
                self._partial = 0
                if type(reply) is Push:
                    continue
                receiver = pending.popleft()
                if isinstance(reply, ErrorReply):
                    self._owner.error_while_draining(receiver, reply)
        except (hiredis.ProtocolError, *DECODE_ERRORS):
            pending.clear()
        if self._partial > LARGEST_REPLY:
            self.abort()
        elif not pending and self._transport is not None:
            self._transport.close()

    def _fail(self, cause: Exception) -> None:
        self.abort()
        self.connection_lost(cause)

    def pause_writing(self) -> None:
        self._report(full=True)

    def resume_writing(self) -> None:
        self._report(full=False)

    def _report(self, *, full: bool) -> None:
        # Not from within a write: the owner may send or close, and other connections are not written yet.
        report = partial(self._owner.congested, self, full=full)
        asyncio.get_running_loop().call_soon(report, context=Context())

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is None:
            return
        self._transport = self._stream_ref = None
        self.write = _discard
        if self._lost_at_end is not None and not self._lost_at_end.done():
            self._lost_at_end.set_result(None)
        if self._closing is not None:
            return
        cause = exc or ConnectionResetError("the server closed the connection")
        self._closing = cause
        self._owner.lost(self, cause)  # first, because the receiver of a dropped command may send the next one
        self._drop(cause)
