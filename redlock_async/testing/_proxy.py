"""A TCP proxy on the running loop that can fail on demand; it knows nothing about the bytes it carries.

It works on bare sockets rather than on asyncio's transports, because a fault must have happened when the call that
asks for it returns: `transport.abort()` only closes the socket a loop iteration later.
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
_CLOSE_WITH_RESET: Final = struct.pack("ii", 1, 0)  # SO_LINGER on, for no time: close() sends RST


class FaultProxy:
    """Listens on a loopback port and carries each connection to the server's, until told otherwise."""

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
        """Reset every connection, and every new one, until `heal`; what was under way is lost."""
        self._refuses = True
        self._accept()
        for link in tuple(self._links):
            link.reset()

    def black_hole(self) -> None:
        """Swallow all bytes both ways, ends of stream too, while connections stay open and new ones succeed."""
        self._swallow(requests=True, replies=True)

    def drop_requests(self) -> None:
        """Swallow what clients send, on old and new connections; what the server still has to say arrives."""
        self._swallow(requests=True)

    def drop_replies(self) -> None:
        """Swallow what the server answers, on old and new connections; it still does what it is sent."""
        self._swallow(replies=True)

    def _swallow(self, *, requests: bool = False, replies: bool = False) -> None:
        self._accept()
        self.swallows_requests |= requests
        self.swallows_replies |= replies
        for link in self._links:
            link.swallow()

    def hold(self) -> None:
        """Withhold what clients send on the connections there are; new connections are not affected."""
        self._accept()
        for link in self._links:
            link.up.held = True

    def hold_replies(self) -> None:
        """Withhold what the server answers on the connections there are; it still does what it is sent."""
        self._accept()
        for link in self._links:
            link.down.held = True

    def delay(self, seconds: float) -> None:
        """Carry each byte that comes from now on this much later, in each direction."""
        self.lag = seconds

    def reset_mid_reply(self) -> None:
        """Pass half of the next reply, then reset its connection; once."""
        self.resets_next_reply = True

    def heal(self) -> None:
        """End every fault and deliver what was withheld or delayed.

        A connection that lost bytes is reset: with a gap in it, replies would be taken for those of other commands.
        """
        for link in tuple(self._links):
            link.take_in()
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
        """Take in what waits; faults call it first, so that "existing" means what a client sees as connected."""
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:  # none is waiting, or the client gave up before we came to it
                return
            client.settimeout(0)
            if self._refuses:
                _reset(client)
                continue
            self._links.add(link := _Link(self, client))
            link.connect()


class _Link:
    """One client's connection and the one to the server that belongs to it."""

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
            self.lost_bytes = True  # never reaches the server; reset when healed
            return
        problem = self.server.connect_ex((HOST, self.proxy.server_port))
        if problem not in {0, errno.EINPROGRESS}:
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

    def take_in(self) -> None:
        """Read what has arrived, so that a change of rules applies to what comes after it."""
        self.up.read()
        if self.connected:
            self.down.read()

    def swallow(self) -> None:
        self.take_in()
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
        """Both directions have ended: nothing is left to carry."""
        if self.up.delivered_end and self.down.delivered_end:
            self._close()

    def reset(self) -> None:
        """Both ends see their connection reset by the peer."""
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
    """One direction of a connection: what was read waits here until it may be written."""

    def __init__(self, link: _Link, source: socket.socket, target: socket.socket) -> None:
        self.queue: deque[tuple[float, bytes]] = deque()  # (when it is due, data); empty data is the end
        self.held = False
        self.delivered_end = False
        self._link = link
        self._source = source
        self._target = target
        self._source_ended = False
        self._target_gone = False
        self._timer: asyncio.TimerHandle | None = None

    @property
    def swallowed(self) -> bool:
        """Whether nothing of it arrives at present."""
        proxy = self._link.proxy
        return proxy.swallows_requests if self is self._link.up else proxy.swallows_replies

    def read(self) -> None:
        while not self._source_ended and self._source.fileno() >= 0:
            try:
                data = self._source.recv(_CHUNK)
            except (BlockingIOError, InterruptedError):
                break
            except OSError:  # a reset ends the stream too; what came before it is still carried
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
        """Write what is due, in order."""
        while self.queue and not self.held and self._link.connected:
            due, data = self.queue[0]
            if due > self._link.loop.time():
                if self._timer is None:
                    self._timer = self._link.loop.call_at(due, self._on_due)
                return
            sent = self._write(data)
            if sent < len(data):
                if self.queue:  # it is full: go on when it has room
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
            # Whoever should read this has gone. The other direction may still hold what it sent before: a client's
            # last command must reach the server all the same.
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
        self.held = False
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
