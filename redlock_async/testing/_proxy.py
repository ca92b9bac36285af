"""A TCP proxy on the running loop with fault injection. It does not interpret the bytes it forwards.

It uses plain sockets instead of asyncio's transports, because a fault must be in effect when the call returns:
`transport.abort()` closes the socket only one loop iteration later.
"""

import asyncio
import errno
import socket
import struct
from collections import deque
from typing import Final

from redlock_async.testing._servers import HOST

_CHUNK: Final = 65_536
_BACKLOG: Final = 1_024
_CLOSE_WITH_RESET: Final = struct.pack("ii", 1, 0)  # SO_LINGER on with time 0: close() sends RST


class FaultProxy:
    """Listens on a loopback port and forwards each connection to the server's port."""

    def __init__(self, loop: asyncio.AbstractEventLoop, port: int, server_port: int) -> None:
        self.loop = loop
        self.port = port
        self.server_port = server_port
        self.lag = 0.0
        self.swallows_requests = False
        self.swallows_replies = False
        self.resets_next_reply = False
        self._refuses = False
        self._links: set[_Link] = set()
        self._listener = socket.create_server((HOST, port), backlog=_BACKLOG)
        self._listener.settimeout(0)
        loop.add_reader(self._listener, self._accept)

    def cut(self) -> None:
        """Reset every connection, and every new one, until `heal`. Bytes in transit are lost."""
        self._refuses = True
        self._accept()
        for link in tuple(self._links):
            link.reset()

    def black_hole(self) -> None:
        """Swallow all bytes and ends of stream in both directions. Connections stay open and new ones succeed."""
        self._swallow(requests=True, replies=True)

    def drop_requests(self) -> None:
        """Swallow requests, on old and new connections. Replies and pushes still arrive."""
        self._swallow(requests=True)

    def drop_replies(self) -> None:
        """Swallow replies, on old and new connections. The server still executes requests."""
        self._swallow(replies=True)

    def _swallow(self, *, requests: bool = False, replies: bool = False) -> None:
        self._accept()
        self.swallows_requests |= requests
        self.swallows_replies |= replies
        for link in self._links:
            link.swallow()

    def stall_requests(self) -> None:
        """Hold back requests on the connections open now. New connections are not affected."""
        self._accept()
        for link in self._links:
            link.up.stalled = True

    def stall_replies(self) -> None:
        """Hold back replies on the connections open now. The server still executes requests."""
        self._accept()
        for link in self._links:
            link.down.stalled = True

    def delay(self, seconds: float) -> None:
        """Delay each byte that arrives from now on, in each direction."""
        self.lag = seconds

    def reset_mid_reply(self) -> None:
        """Deliver half of the next reply and then reset its connection. This happens once."""
        self.resets_next_reply = True

    def heal(self) -> None:
        """End every fault and deliver the bytes that were held back or delayed.

        A connection that lost bytes is reset: after a gap, replies would be matched with the wrong commands.
        """
        for link in tuple(self._links):
            link.read_pending()
        self._refuses = self.resets_next_reply = False
        self.swallows_requests = self.swallows_replies = False
        self.lag = 0.0
        for link in tuple(self._links):
            link.heal()

    def close(self) -> None:
        if not self.loop.is_closed():
            self.loop.remove_reader(self._listener)
        self._listener.close()
        for link in tuple(self._links):
            link.reset()

    def forget(self, link: "_Link") -> None:
        self._links.discard(link)

    def _accept(self) -> None:
        """Accept waiting connections. Faults call this first, to apply to all that a client sees as connected."""
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:  # none is waiting, or the client has given up
                return
            client.settimeout(0)
            if self._refuses:
                _reset(client)
                continue
            self._links.add(link := _Link(self, client))
            link.connect()


class _Link:
    """A client's connection and the matching connection to the server."""

    def __init__(self, proxy: FaultProxy, client: socket.socket) -> None:
        self.proxy = proxy
        self.loop = proxy.loop
        self.client = client
        self.server = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self.server.settimeout(0)
        for end in (client, self.server):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.connected = False
        self.lost_bytes = False
        self.up = _Stream(self, client, self.server)
        self.down = _Stream(self, self.server, client)

    def connect(self) -> None:
        self.loop.add_reader(self.client, self.up.read)
        if self.proxy.swallows_requests and self.proxy.swallows_replies:
            self.lost_bytes = True  # this connection never reaches the server, and `heal` resets it
            return
        error_code = self.server.connect_ex((HOST, self.proxy.server_port))
        if error_code not in {0, errno.EINPROGRESS}:
            self.reset()
            return
        self.loop.add_writer(self.server, self._on_connected)

    def _on_connected(self) -> None:
        self.loop.remove_writer(self.server)
        if self.server.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self.reset()
            return
        self.connected = True
        self.loop.add_reader(self.server, self.down.read)
        self.up.pump()

    def read_pending(self) -> None:
        """Read the bytes that have arrived, so that a new fault applies only to later ones."""
        self.up.read()
        if self.connected:
            self.down.read()

    def swallow(self) -> None:
        self.read_pending()
        for stream in (self.up, self.down):
            if stream.queue and stream.swallowed:
                self.lost_bytes = True
                stream.queue.clear()

    def heal(self) -> None:
        if self.lost_bytes:
            self.reset()
            return
        self.up.deliver_now()
        self.down.deliver_now()

    def close_when_done(self) -> None:
        """Close both sockets if both directions have ended."""
        if self.up.delivered_end and self.down.delivered_end:
            self._close()

    def reset(self) -> None:
        """Reset both connections, so that client and server see a reset by the peer."""
        for end in (self.client, self.server):
            _reset(end, self.loop)
        self._close()

    def _close(self) -> None:
        self.connected = False
        self.up.stop()
        self.down.stop()
        for end in (self.client, self.server):
            _close(end, self.loop)
        self.proxy.forget(self)


class _Stream:
    """One direction of a connection, with a queue of the bytes that may not be written yet."""

    def __init__(self, link: _Link, source: socket.socket, target: socket.socket) -> None:
        self.queue: deque[tuple[float, bytes]] = deque()  # (when it is due, data); empty data is the end
        self.stalled = False
        self.delivered_end = False
        self._link = link
        self._source = source
        self._target = target
        self._source_ended = False
        self._target_gone = False
        self._timer: asyncio.TimerHandle | None = None

    @property
    def swallowed(self) -> bool:
        """Whether a fault swallows this direction now."""
        proxy = self._link.proxy
        return proxy.swallows_requests if self is self._link.up else proxy.swallows_replies

    def read(self) -> None:
        while not self._source_ended and self._source.fileno() >= 0:
            try:
                data = self._source.recv(_CHUNK)
            except (BlockingIOError, InterruptedError):
                break
            except OSError:  # a reset also ends the stream; earlier bytes are still delivered
                data = b""
            if not data:
                self._source_ended = True
                self._link.loop.remove_reader(self._source)
            self._arrived(data)
        self.pump()

    def _arrived(self, data: bytes) -> None:
        link = self._link
        if self.swallowed:
            link.lost_bytes = True
            return
        if data and self is link.down and link.proxy.resets_next_reply:
            link.proxy.resets_next_reply = False
            self.queue.append((0.0, data[: len(data) // 2]))
            self.pump()
            link.reset()
            return
        self.queue.append((link.loop.time() + link.proxy.lag, data))

    def pump(self) -> None:
        """Write the bytes that are due, in order."""
        while self.queue and not self.stalled and self._link.connected:
            due, data = self.queue[0]
            if due > self._link.loop.time():
                if self._timer is None:
                    self._timer = self._link.loop.call_at(due, self._on_due)
                return
            sent = self._write(data)
            if sent < len(data):
                if self.queue:  # the socket is full: continue when it has room
                    self.queue[0] = (due, data[sent:])
                    self._link.loop.add_writer(self._target, self._on_room)
                return
            if self.queue:
                self.queue.popleft()
            if not data:
                self.delivered_end = True
                self._link.close_when_done()

    def _write(self, data: bytes) -> int:
        if self._target_gone:
            return len(data)
        try:
            if data:
                return self._target.send(data)
            self._target.shutdown(socket.SHUT_WR)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError:
            # The receiver has gone. The other direction may still hold bytes that it sent before: the last command of
            # a client must reach the server even then.
            self._target_gone = True
            return len(data)
        return 0

    def _on_due(self) -> None:
        self._timer = None
        self.pump()

    def _on_room(self) -> None:
        self._link.loop.remove_writer(self._target)
        self.pump()

    def deliver_now(self) -> None:
        self.stalled = False
        self.queue = deque((0.0, data) for _, data in self.queue)
        self.stop()
        self.pump()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _reset(end: socket.socket, loop: asyncio.AbstractEventLoop | None = None) -> None:
    if end.fileno() >= 0:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _CLOSE_WITH_RESET)
        _close(end, loop)


def _close(end: socket.socket, loop: asyncio.AbstractEventLoop | None) -> None:
    if end.fileno() < 0:
        return
    if loop is not None and not loop.is_closed():
        loop.remove_reader(end)
        loop.remove_writer(end)
    end.close()
