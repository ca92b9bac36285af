"""The network between processes and nodes: connections whose bytes arrive late or never.

As with TCP, bytes arrive in order on one connection, and in any order across connections. A blocked message waits, as a
kernel would resend it, until the fault ends or the connection is closed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from ._resp import RESP2, RESP3
from ._time import Timeline

if TYPE_CHECKING:
    from ._machine import Machine
    from ._process import Process
    from ._server import Session

_Message = tuple[Callable[..., object], tuple[object, ...]]

UP, DOWN = 0, 1
"""The two directions of a connection: to the node, and from it."""

PRUNE_INTERVAL = 256
"""New connections after which closed ones are removed: clients dial a node that is down again and again."""

_MASK = (1 << 64) - 1


def chance(seed: int, connection: int, number: int) -> float:
    """A uniform number that depends only on the arguments: removing a fault from a schedule changes no other delay."""
    x = (seed * 0x9E3779B97F4A7C15 + connection * 0xBF58476D1CE4E5B9 + number * 0x94D049BB133111EB + 1) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return (x ^ (x >> 31)) / 2**64


class ByteReceiver(Protocol):
    """The receiver of the bytes in the process: an asyncio.BufferedProtocol."""

    def connection_made(self, transport: Any) -> None:
        """Called when connected."""

    def connection_lost(self, exc: Exception | None) -> None:
        """Called when disconnected."""

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer for the next bytes."""
        ...

    def buffer_updated(self, nbytes: int) -> None:
        """Called when the buffer was filled."""


class Network:
    """All connections, and the faults between processes and nodes."""

    def __init__(self, timeline: Timeline, seed: int, latency: Callable[[float], float]) -> None:
        self.timeline = timeline
        self.seed = seed
        self.latency = latency
        """Maps a uniform number in [0, 1) to the seconds that a message takes."""
        self.links: list[Link] = []
        self._prune_at = PRUNE_INTERVAL
        self.extra_delays: dict[tuple[Process | None, Machine], float] = {}
        """Additional seconds between a process, or all, and a node."""
        self._blocked: set[tuple[Process, Machine, int]] = set()

    def blocked(self, link: Link, way: int) -> bool:
        """Whether that direction of the connection is blocked."""
        return bool(self._blocked) and (link.process, link.machine, way) in self._blocked

    def block(self, process: Process, machine: Machine, *ways: int) -> None:
        """Block new messages. Those in transit still arrive."""
        self._blocked.update((process, machine, way) for way in ways)

    def unblock(self, machine: Machine) -> None:
        """End the block and send the messages that waited."""
        self._blocked = {blocked for blocked in self._blocked if blocked[1] is not machine}
        for link in self.to(machine):
            link.resume()

    def extra_delay(self, link: Link) -> float:
        """Seconds that a message takes in addition to the latency."""
        delays = self.extra_delays
        if not delays:
            return 0.0
        return delays.get((None, link.machine), 0.0) + delays.get((link.process, link.machine), 0.0)

    def clear_delays(self, machine: Machine) -> None:
        """End all additional delays to and from that node."""
        self.extra_delays = {pair: delay for pair, delay in self.extra_delays.items() if pair[1] is not machine}

    def to(self, machine: Machine) -> list[Link]:
        """The connections to that node that are open at one end at least."""
        return [link for link in self.links if link.machine is machine and not link.ended]

    def add(self, link: Link) -> None:
        """Add a connection, and sometimes remove those that are closed at both ends."""
        self.links.append(link)
        if len(self.links) >= self._prune_at:
            self.links = [link for link in self.links if not link.ended]
            self._prune_at = 2 * len(self.links) + PRUNE_INTERVAL


class Address:
    """The address of a simulated node, for one simulated process."""

    __slots__ = ("_machine", "_network", "_process", "label")

    client_name = None
    redact = str
    """There are no secrets in a simulation."""

    def __init__(self, network: Network, process: Process, machine: Machine, label: str) -> None:
        self.label = label
        self._network = network
        self._process = process
        self._machine = machine

    async def open(self, protocol: ByteReceiver, within: float, *, hello: bool) -> bool:
        """Connect in one round trip, with `hello` for RESP3. Return whether the server supports push messages."""
        link = Link(self._network, self._process, self._machine)
        try:
            async with asyncio.timeout(within):
                pushes = await link.dial(hello=hello)
        except BaseException as exc:
            link.abort()
            if isinstance(exc, TimeoutError):
                msg = f"no connection within {within:g} s"
                raise TimeoutError(msg) from None
            raise
        link.protocol = protocol
        protocol.connection_made(link)
        return pushes


class Link:
    """One connection. For the process it is an asyncio transport."""

    def __init__(self, network: Network, process: Process, machine: Machine) -> None:
        self._network = network
        self._number = process.next_number()
        self.process = process
        self.machine = machine
        self.protocol: ByteReceiver | None = None
        self.session: Session | None = None
        """The server's end; None until it is accepted and after it is closed."""
        self.server = machine.server
        """The server that accepted it."""
        self.reset_in = -1
        """The number of arrivals until it is reset; negative if it is not."""
        self.closed = False
        """Whether the process's end is closed."""
        self._dialled: asyncio.Future[bool] = process.loop.create_future()
        self._sent = [0, 0]
        self._last = [0.0, 0.0]
        self._waiting: tuple[deque[_Message], deque[_Message]] = (deque(), deque())
        network.add(self)

    @property
    def ended(self) -> bool:
        """Whether both ends are closed."""
        return self.closed and self.session is None

    def send(self, way: int, arrive: Callable[..., object], *arguments: object) -> None:
        """Call `arrive` at the other end, after all earlier messages in that direction."""
        network = self._network
        if self._waiting[way] or network.blocked(self, way):
            self._waiting[way].append((arrive, arguments))
            return
        sent = self._sent[way]
        self._sent[way] = sent + 1
        seconds = network.latency(chance(network.seed, 2 * self._number + way, sent))
        at = network.timeline.now + seconds + network.extra_delay(self)
        if at < self._last[way]:
            at = self._last[way]
        else:
            self._last[way] = at
        network.timeline.at(at, arrive, *arguments)

    def resume(self) -> None:
        """Send the messages that were blocked."""
        for way in (UP, DOWN):
            waiting = list(self._waiting[way])
            self._waiting[way].clear()
            for arrive, arguments in waiting:
                self.send(way, arrive, *arguments)

    def stall(self, way: int, seconds: float) -> None:
        """Let messages sent from now on arrive no earlier than in `seconds`."""
        self._last[way] = max(self._last[way], self._network.timeline.now + seconds)

    def sever(self, *, both_ends: bool) -> None:
        """End the connection and lose messages in transit; requests still arrive if only the process sees the end."""
        if both_ends:
            self.machine.disconnect(self)
        self._break(ConnectionResetError(f"the connection to {self.machine.label} was reset"))

    # The process's end

    async def dial(self, *, hello: bool) -> bool:
        """Connect. Return whether the server supports push messages."""
        self.send(UP, self.machine.accept, self, RESP3 if hello else RESP2)
        return await self._dialled

    def write(self, data: bytes) -> None:
        if not self.closed:
            self.send(UP, self.machine.receive, self, data)

    def close(self) -> None:
        """Close the connection. Bytes written before still arrive."""
        if self.closed:
            return
        self.closed = True
        self.send(UP, self.machine.disconnect, self)
        if self.protocol is not None and not self.process.dead:
            self.process.call(self.protocol.connection_lost, None)

    def abort(self) -> None:
        """Close the connection and drop blocked requests."""
        self._waiting[UP].clear()
        self.close()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Do nothing: there is no write buffer."""

    # The server's end

    def accepted(self, *, pushes: bool) -> None:
        """Send the server's acceptance."""
        self.send(DOWN, self._on_accepted, pushes)

    def deliver(self, data: bytes) -> None:
        """Send bytes from the server."""
        self.send(DOWN, self._on_bytes, data)

    def peer_closed(self, cause: Exception) -> None:
        """Close the server's end and notify the process."""
        self.session = None
        self.send(DOWN, self._break, cause)

    # Arrivals at the process

    def _on_accepted(self, pushes: bool) -> None:  # noqa: FBT001 - passed on positionally
        if not self.closed and not self._dialled.done():
            self.process.call(_resolve_dial, self._dialled, pushes)

    def _on_bytes(self, data: bytes) -> None:
        if not self.closed:
            self.process.call(self._take, data)

    def _take(self, data: bytes) -> None:
        if self.closed or self.protocol is None:
            return
        view = memoryview(data)
        while view and not self.closed:
            buffer = self.protocol.get_buffer(-1)
            size = min(len(buffer), len(view))
            buffer[:size] = view[:size]
            view = view[size:]
            self.protocol.buffer_updated(size)

    def _break(self, cause: Exception) -> None:
        if not self.closed:
            self.process.call(self._broken, cause)

    def _broken(self, cause: Exception) -> None:
        if self.closed:
            return
        self.closed = True
        if self.protocol is not None:
            self.protocol.connection_lost(cause)
        elif not self._dialled.done():
            self._dialled.set_exception(cause)


def _resolve_dial(dialled: asyncio.Future[bool], pushes: bool) -> None:  # noqa: FBT001 - as above
    if not dialled.done():
        dialled.set_result(pushes)
