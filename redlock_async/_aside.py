"""A second connection to a master, for an operator's long reads: it neither waits for locks nor makes them wait.

The server does not track it. What is read on the usual connection is remembered for it, key by key: a look at a
million keys would fill the server's table and push out the entries that wake waiters.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from ._masters import Masters
from ._node import Node
from ._receivers import Ask, understood
from ._wire import ErrorReply, Receiver, Wire

T = TypeVar("T")


class Aside:
    """One of them, for as long as a question takes."""

    def __init__(self, masters: Masters, node: Node) -> None:
        self.index = node.index
        self.label = node.label
        self._masters = masters
        self._node = node
        self._wire = Wire(self, masters.outbox)

    async def open(self) -> None:
        """Connect to a master that is there."""
        masters, node = self._masters, self._node
        if node.live is None:
            raise node.cause.with_traceback(None)
        await node.address.open(self._wire, masters.client_name, masters.connect_timeout)

    async def ask(self, packed: bytes, read: Callable[[object], T]) -> T:
        """One command, and its reply as `read` reads it."""
        if self._wire.ended is not None:
            raise self._wire.ended.with_traceback(None)
        ask = Ask(self._masters.loop, self._masters.now())
        self._wire.send(packed, ask)
        limit = self._masters.node_timeout
        try:
            async with asyncio.timeout(limit):
                reply = await ask.future
        except TimeoutError:
            msg = f"no answer within {limit:g} s"
            raise TimeoutError(msg) from None
        return understood(reply, read)

    def close(self) -> None:
        """End it; what was asked and not answered is not waited for."""
        self._wire.close(ConnectionResetError("not needed any more"))

    async def closed(self) -> None:
        """After `close`: return when it has ended, or has had the time to."""
        try:
            async with asyncio.timeout(self._masters.node_timeout):
                await self._wire.wait_closed()
        except TimeoutError:
            self._wire.abort()

    # What the wire reports: it was asked for nothing that outlives it

    def pushed(self, message: list[object]) -> None:
        """Nothing is tracked here."""

    def revived(self, wire: Wire) -> None:
        """It is never given up as hung."""

    def congested(self, wire: Wire, *, full: bool) -> None:
        """One command at a time does not fill a queue."""

    def refused_at_last(self, receiver: Receiver, error: ErrorReply) -> None:
        """It is closed, and never drained."""

    def lost(self, wire: Wire, cause: Exception) -> None:
        """Whoever asks next is told."""
