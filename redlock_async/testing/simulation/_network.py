"""The network between processes and masters: connections whose bytes arrive late, in order, or not at all.

As with TCP, what arrives on one connection arrives in the order it was sent; across connections there is no order. What
cannot get through waits, as a kernel would send it again, until the fault is over or the connection is given up.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from ._time import Timeline

if TYPE_CHECKING:
    from ._machine import Machine
    from ._master import Session
    from ._process import Process

_Message = tuple[Callable[..., object], tuple[object, ...]]

UP, DOWN = 0, 1
"""The two ways of a connection: to the master, and from it."""

FEW = 256
"""Connections after which those that have ended are looked for: a master that is down is dialled as long as it is."""

_MASK = (1 << 64) - 1


def chance(seed: int, connection: int, number: int) -> float:
    """A uniform number that depends on these three only: leaving one fault out of a schedule changes no other delay."""
    x = (seed * 0x9E3779B97F4A7C15 + connection * 0xBF58476D1CE4E5B9 + number * 0x94D049BB133111EB + 1) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return (x ^ (x >> 31)) / 2**64


class Taker(Protocol):
    """What takes the bytes in the process: an asyncio.BufferedProtocol."""

    def connection_made(self, transport: Any) -> None:
        """Connected."""

    def connection_lost(self, exc: Exception | None) -> None:
        """Not any more."""

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where to put bytes."""
        ...

    def buffer_updated(self, nbytes: int) -> None:
        """They are there."""


class Network:
    """All connections, and what is wrong between whom."""

    def __init__(self, timeline: Timeline, seed: int, latency: Callable[[float], float]) -> None:
        self.timeline = timeline
        self.seed = seed
        self.latency = latency
        """Seconds on the way, from a uniform number in [0, 1)."""
        self.links: list[Link] = []
        self._prune_at = FEW
        self.slow: dict[tuple[Process | None, Machine], float] = {}
        """Seconds more between a process, or all, and a master."""
        self._blocked: set[tuple[Process, Machine, int]] = set()

    def blocked(self, link: Link, way: int) -> bool:
        """Whether nothing gets through there."""
        return bool(self._blocked) and (link.process, link.machine, way) in self._blocked

    def block(self, process: Process, machine: Machine, *ways: int) -> None:
        """From now on nothing gets through; what is on its way already does."""
        self._blocked.update((process, machine, way) for way in ways)

    def unblock(self, machine: Machine) -> None:
        """Whatever has waited goes on its way."""
        self._blocked = {blocked for blocked in self._blocked if blocked[1] is not machine}
        for link in self.to(machine):
            link.resume()

    def lag(self, link: Link) -> float:
        """Seconds that a message takes there beyond the latency."""
        slow = self.slow
        if not slow:
            return 0.0
        return slow.get((None, link.machine), 0.0) + slow.get((link.process, link.machine), 0.0)

    def hurry(self, machine: Machine) -> None:
        """The end of every lag to and from it."""
        self.slow = {between: lag for between, lag in self.slow.items() if between[1] is not machine}

    def to(self, machine: Machine) -> list[Link]:
        """The connections to that master that have not ended at both ends."""
        return [link for link in self.links if link.machine is machine and not link.over]

    def add(self, link: Link) -> None:
        """One more; those that have ended at both ends are forgotten now and then."""
        self.links.append(link)
        if len(self.links) >= self._prune_at:
            self.links = [link for link in self.links if not link.over]
            self._prune_at = 2 * len(self.links) + FEW


class Address:
    """Where a simulated process finds a simulated master."""

    __slots__ = ("_machine", "_network", "_process", "label")

    def __init__(self, network: Network, process: Process, machine: Machine) -> None:
        self.label = machine.label
        self._network = network
        self._process = process
        self._machine = machine

    async def open(self, protocol: Taker, client_name: str, within: float) -> bool:
        """Connect and shake hands, in one round trip; returns whether the server pushes."""
        link = Link(self._network, self._process, self._machine)
        try:
            async with asyncio.timeout(within):
                pushes = await link.dial(client_name)
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
    """One connection: on the side of the process, an asyncio transport."""

    def __init__(self, network: Network, process: Process, machine: Machine) -> None:
        self._network = network
        self._number = process.next_number()
        self.process = process
        self.machine = machine
        self.protocol: Taker | None = None
        self.session: Session | None = None
        """The master's end; None before it was accepted and after it has ended."""
        self.closed = False
        """Whether the end of the process has ended."""
        self._dialled: asyncio.Future[bool] = process.loop.create_future()
        self._sent = [0, 0]
        self._last = [0.0, 0.0]
        self._held: tuple[deque[_Message], deque[_Message]] = (deque(), deque())
        network.add(self)

    @property
    def over(self) -> bool:
        """Whether both ends have ended."""
        return self.closed and self.session is None

    def send(self, way: int, arrive: Callable[..., object], *arguments: object) -> None:
        """Have that happen at the other end, after everything that was sent that way before."""
        network = self._network
        if self._held[way] or network.blocked(self, way):
            self._held[way].append((arrive, arguments))
            return
        sent = self._sent[way]
        self._sent[way] = sent + 1
        took = network.latency(chance(network.seed, 2 * self._number + way, sent))
        at = network.timeline.now + took + network.lag(self)
        if at < self._last[way]:
            at = self._last[way]
        else:
            self._last[way] = at
        network.timeline.at(at, arrive, *arguments)

    def resume(self) -> None:
        """Send again what could not get through."""
        for way in (UP, DOWN):
            held = list(self._held[way])
            self._held[way].clear()
            for arrive, arguments in held:
                self.send(way, arrive, *arguments)

    def stall(self, way: int, seconds: float) -> None:
        """Whatever is sent that way from now on arrives no earlier than that."""
        self._last[way] = max(self._last[way], self._network.timeline.now + seconds)

    def sever(self, *, both_ends: bool) -> None:
        """End it at once: what is on its way is lost; or, if only the process sees it end, its requests arrive."""
        if both_ends:
            self.machine.hang_up(self)
        self._break(ConnectionResetError(f"the connection to {self.machine.label} was reset"))

    # The end of the process

    async def dial(self, client_name: str) -> bool:
        """Be accepted, or refused."""
        self.send(UP, self.machine.accept, self, client_name)
        return await self._dialled

    def write(self, data: bytes) -> None:
        if not self.closed:
            self.send(UP, self.machine.hear, self, data)

    def close(self) -> None:
        """What was written before still arrives."""
        if self.closed:
            return
        self.closed = True
        self.send(UP, self.machine.hang_up, self)
        if self.protocol is not None and not self.process.dead:
            self.process.call(self.protocol.connection_lost, None)

    def abort(self) -> None:
        """What has not left yet never does."""
        self._held[UP].clear()
        self.close()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing is ever buffered here."""

    # The end of the master

    def accepted(self, *, pushes: bool) -> None:
        """The answer to the first bytes."""
        self.send(DOWN, self._answer_dial, pushes)

    def say(self, data: bytes) -> None:
        """Bytes from the master."""
        self.send(DOWN, self._arrive, data)

    def hung_up(self, cause: Exception) -> None:
        """The master's end is gone, and says so."""
        self.session = None
        self.send(DOWN, self._break, cause)

    # What arrives at the process

    def _answer_dial(self, pushes: bool) -> None:  # noqa: FBT001 - carried as a plain value
        if not self.closed and not self._dialled.done():
            self.process.call(_answer, self._dialled, pushes)

    def _arrive(self, data: bytes) -> None:
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


def _answer(dialled: asyncio.Future[bool], pushes: bool) -> None:  # noqa: FBT001 - as above
    if not dialled.done():
        dialled.set_result(pushes)
