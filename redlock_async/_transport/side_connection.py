"""A second connection to a node for an operator's long reads: they neither wait for lock commands nor delay them.

It has no client tracking. The server remembers every key that is read on a tracked connection: reading a million keys
would fill its table and evict the entries that wake waiters. So it has no name either, and speaks RESP2: both would be
more to ask of a proxy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from .connection import Connection, ErrorReply, Receiver
from .membership import Membership
from .node import Node
from .receivers import SingleReply, decode

T = TypeVar("T")


class SideConnection:
    """A connection of its own to one node, for the duration of one operator command."""

    def __init__(self, membership: Membership, node: Node) -> None:
        self.index = node.index
        self.label = node.label
        self._membership = membership
        self._node = node
        self._connection = Connection(self, membership.batcher, node.redact)

    async def open(self) -> None:
        """Connect to the node; raise its fault if it is down."""
        membership, node = self._membership, self._node
        if node.live is None:
            raise node.cause.with_traceback(None)
        await node.address.open(self._connection, membership.connect_timeout, hello=False)

    async def ask(self, packed: bytes, read: Callable[[object], T]) -> T:
        """Send one command and return its reply as parsed by `read`.

        Raise the reason if the connection has ended, TimeoutError, and the exceptions of `decode`.
        """
        if self._connection.ended is not None:
            raise self._connection.ended.with_traceback(None)
        answer = SingleReply(self._membership.loop, self._membership.now())
        self._connection.send(packed, answer)
        limit = self._membership.node_timeout
        try:
            async with asyncio.timeout(limit):
                reply = await answer.future
        except TimeoutError:
            msg = f"no answer within {limit:g} s"
            raise TimeoutError(msg) from None
        return decode(reply, read, packed, self._node.redact)

    def close(self) -> None:
        """Start closing the connection, without waiting for outstanding replies."""
        self._connection.close(ConnectionResetError("the connection is no longer needed"))

    async def closed(self) -> None:
        """Wait, after `close`, until the connection has ended; abort it after one node timeout."""
        try:
            async with asyncio.timeout(self._membership.node_timeout):
                await self._connection.wait_closed()
        except TimeoutError:
            self._connection.abort()

    # Reports of the connection; no command on it outlives it

    def pushed(self, message: list[object]) -> None:
        """Ignored: nothing is tracked on this connection."""

    def revived(self, connection: Connection) -> None:
        """Never called: it is never given up as hung."""

    def congested(self, connection: Connection, *, full: bool) -> None:
        """Ignored: one command at a time does not fill the write buffer."""

    def error_while_draining(self, receiver: Receiver, error: ErrorReply) -> None:
        """Never called: it is closed, never drained."""

    def lost(self, connection: Connection, cause: Exception) -> None:
        """Ignored: the next command raises the reason."""
