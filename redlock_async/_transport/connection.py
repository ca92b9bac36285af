"""One multiplexed RESP connection: commands leave in one write a tick, replies come back in order.

It knows bytes and order, nothing of locks, nodes or retries. The only module that imports hiredis.
"""

from __future__ import annotations

import asyncio
import logging
import reprlib
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol, cast

import hiredis

pack = cast("Callable[[tuple[bytes | str | int, ...]], bytes]", hiredis.pack_command)
"""The bytes of a command."""

READ_SIZE = 64 * 1024
MOST_QUEUED = 16 * 1024 * 1024
"""Bytes that may wait for a server to read them; beyond, it is treated as not answering."""

_INCOMPLETE = object()

MISREAD = (ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError, TypeError, ValueError)
"""What reading a reply of another shape than was asked for ends with."""


def unreadable(reply: object, why: Exception) -> ConnectionError:
    """The error for a reply that cannot be the answer to what was asked; logged, for it may also be our own mistake."""
    logging.getLogger("redlock_async").warning("a reply could not be read: %s", reprlib.repr(reply), exc_info=why)
    error = ConnectionError(f"the server's reply makes no sense here: {reprlib.repr(reply)}")
    error.__cause__ = why
    return error


class Receiver(Protocol):
    """Whoever waits for a reply."""

    started_at: float

    def deliver(self, node: int, reply: object) -> None:
        """Take the reply of that node; an error reply comes as an `ErrorReply`."""

    def dropped(self, node: int, cause: Exception) -> None:
        """The connection ended first: whether the command was carried out is unknown."""


ErrorReply = hiredis.ReplyError


class Owner(Protocol):
    """Whoever the connection belongs to."""

    index: int

    def pushed(self, message: list[object]) -> None:
        """The server sent something unasked."""

    def revived(self, wire: Wire) -> None:
        """A connection that was given up as hung has answered."""

    def congested(self, wire: Wire, *, full: bool) -> None:
        """The queue to the server is full, or has room again."""

    def refused_at_last(self, receiver: Receiver, error: hiredis.ReplyError) -> None:
        """While it drains: an error reply to a command whose receiver was told before that it is dropped."""

    def lost(self, wire: Wire, cause: Exception) -> None:
        """The connection has ended."""


class Outbox:
    """Collects what the connections of one client have to send, and writes it once a tick.

    Most of it goes to all of them, and is then kept and joined once. As soon as one of them is sent something by itself
    it is handed out, so that on each connection all stays in order: of the two queues here, one is always empty.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._all: Sequence[Wire] = ()
        self._for_all: list[bytes] = []
        self._waiting: list[Wire] = []
        """Connections with a queue of their own."""

    def connect(self, wires: Sequence[Wire]) -> None:
        """From here on `send_all` goes to those."""
        self.hand_out()
        self._all = wires

    def send_all(self, packed: bytes, receiver: Receiver) -> None:
        """Queue a command on every connection. Synchronous, as `Wire.send` is."""
        if self._waiting:
            for wire in self._all:
                wire.send(packed, receiver)
            return
        for wire in self._all:
            wire.pending.append(receiver)
        if not self._for_all:
            self._loop.call_soon(self._flush)
        self._for_all.append(packed)

    def add(self, wire: Wire) -> None:
        """That connection is about to have a queue of its own."""
        self.hand_out()
        if wire.queue:
            return
        if not self._waiting:
            self._loop.call_soon(self._flush)
        self._waiting.append(wire)

    def hand_out(self) -> None:
        """Give each connection what is for all of them."""
        if self._for_all:
            for wire in self._all:
                wire.queue += self._for_all
            self._waiting += self._all
            self._for_all.clear()

    def _flush(self) -> None:
        if self._for_all:
            packed = b"".join(self._for_all)
            self._for_all.clear()
            for wire in self._all:
                wire.write(packed)
        waiting, self._waiting = self._waiting, []
        for wire in waiting:
            wire.flush()


class Wire(asyncio.BufferedProtocol):
    """A connection. A buffered protocol: the plain one allocates a quarter of a megabyte for each read."""

    def __init__(self, owner: Owner, outbox: Outbox) -> None:
        self._owner = owner
        self._outbox = outbox
        self._reader = hiredis.Reader(notEnoughData=_INCOMPLETE)
        self._gets = self._reader.gets
        self._feed = cast("Callable[[bytearray, int, int], None]", self._reader.feed)
        self._bytes = bytearray(READ_SIZE)
        self._buffer = memoryview(self._bytes)
        self._transport: asyncio.Transport | None = None
        self.queue: list[bytes] = []
        """What is to be written at the end of this tick, to this connection alone."""
        self._closing: Exception | None = None
        self._gone: asyncio.Future[None] | None = None
        self.pending: deque[Receiver] = deque()
        self.hung = False
        self.keep_alive: object = None
        """Whatever must live exactly as long as the connection (the stream that opened it)."""

    @property
    def ended(self) -> Exception | None:
        """Why it is over, if it is."""
        return self._closing

    @property
    def owed(self) -> int:
        """Replies that are still to come."""
        return len(self.pending)

    def send(self, packed: bytes, receiver: Receiver) -> None:
        """Queue a command. Synchronous, so that what is sent later can never arrive earlier."""
        self.pending.append(receiver)
        if not self.queue:
            self._outbox.add(self)
        self.queue.append(packed)

    def flush(self) -> None:
        """Hand everything queued to the transport, in one write."""
        queue, self.queue = self.queue, []
        if queue:
            self.write(b"".join(queue))

    def write(self, packed: bytes) -> None:
        """Hand that to the transport."""
        if self._transport is not None:
            self._transport.write(packed)

    def close(self, cause: Exception) -> None:
        """End the connection after what is queued: a hung server must still find releases behind their acquires."""
        if self._closing is not None:
            return
        self._closing = cause
        self._outbox.hand_out()
        self.flush()
        if self._transport is not None:
            self._transport.close()
        self._drop(cause)

    def drain(self, cause: Exception) -> None:
        """End the connection when the server has answered all it was sent.

        Closed before, with replies unread, it would be reset, and the server would drop what it has not read yet: the
        very releases that were sent last.
        """
        if self._closing is not None:
            return
        if self.hung or not self.pending:
            self.close(cause)
            return
        self._closing = cause
        self._outbox.hand_out()
        self.flush()
        # Nobody waits for the answers any more. But a server can have forgotten the script of a release.
        for receiver in tuple(self.pending):
            receiver.dropped(self._owner.index, cause)

    async def wait_closed(self) -> None:
        """After `close`: return when the last byte has left and the connection has ended."""
        if self._transport is not None:
            self._gone = asyncio.get_running_loop().create_future()
            await self._gone

    def abort(self) -> None:
        """End it at once."""
        if self._transport is not None:
            self._transport.abort()

    def _drop(self, cause: Exception) -> None:
        pending, self.pending = self.pending, deque()
        for receiver in pending:
            receiver.dropped(self._owner.index, cause)

    # asyncio.BufferedProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=MOST_QUEUED)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self._closing is not None:
            self._count_down(nbytes)
            return
        if self.hung:
            self.hung = False
            self._owner.revived(self)
        self._feed(self._bytes, 0, nbytes)
        gets, pending, index, push = self._gets, self.pending, self._owner.index, hiredis.PushNotification
        reply: object = None
        receiver: Receiver | None = None
        try:
            while (reply := gets()) is not _INCOMPLETE:
                if type(reply) is push:
                    self._owner.pushed(reply)
                elif pending:
                    receiver = pending.popleft()
                    receiver.deliver(index, reply)
                    receiver = None
                else:
                    self._fail(ConnectionError(f"the server sent a reply that nobody asked for: {reprlib.repr(reply)}"))
                    return
                if self._closing is not None:
                    self._count_down(0)
                    return
        except hiredis.ProtocolError as exc:
            self._fail(ConnectionError(f"the server does not speak RESP: {exc}"))
        except MISREAD as exc:
            # Whatever follows may belong to another question: nothing on this connection can be trusted any more.
            cause = unreadable(reply, exc)
            if receiver is not None:
                receiver.dropped(index, cause)
            self._fail(cause)

    def _count_down(self, nbytes: int) -> None:
        """While draining: the answers matter by their number, and where they are errors."""
        self._feed(self._bytes, 0, nbytes)
        pending = self.pending
        try:
            while pending and (reply := self._gets()) is not _INCOMPLETE:
                if type(reply) is hiredis.PushNotification:
                    continue
                receiver = pending.popleft()
                if isinstance(reply, ErrorReply):
                    self._owner.refused_at_last(receiver, reply)
        except (hiredis.ProtocolError, *MISREAD):
            pending.clear()
        if not pending and self._transport is not None:
            self._transport.close()

    def _fail(self, cause: Exception) -> None:
        self.abort()
        self.connection_lost(cause)

    def pause_writing(self) -> None:
        self._report(full=True)

    def resume_writing(self) -> None:
        self._report(full=False)

    def _report(self, *, full: bool) -> None:
        # Not from within a write: whoever hears of it may send or close, and other connections are not written yet.
        asyncio.get_running_loop().call_soon(partial(self._owner.congested, self, full=full))

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is None:
            return
        self._transport = self.keep_alive = None
        if self._gone is not None and not self._gone.done():
            self._gone.set_result(None)
        if self._closing is not None:
            return
        cause = exc or ConnectionResetError("the server closed the connection")
        self._closing = cause
        self._owner.lost(self, cause)  # first: whoever hears of a dropped command may send the next one
        self._drop(cause)
