"""A second connection to a node for an operator's long reads: they neither wait for lock commands nor delay them.

A cluster's servers are also asked on one which shards there are, while none is connected.

It has no client tracking. The server remembers every key that is read on a tracked connection: reading a million keys
would fill its table and evict the entries that wake waiters. So it has no name either, and speaks RESP2: both would be
more to ask of a proxy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from .connection import Connection, ErrorReply, Receiver
from .node import Address, NodeOwner
from .receivers import SingleReply, decode

T = TypeVar("T")


class SideConnection:
    """A connection of its own to one server, for the duration of one command."""

    def __init__(self, client: NodeOwner, index: int, address: Address) -> None:
        self.index = index
        self.label = address.label
        self._client = client
        self._address = address
        self._connection = Connection(self, client.batcher, address.redact)

    async def open(self) -> None:
        """Connect to the server."""
        await self._address.open(self._connection, self._client.connect_timeout, hello=False)

    async def ask(self, packed: bytes, read: Callable[[object], T]) -> T:
        """Send one command and return its reply as parsed by `read`.

        Raise the reason if the connection has ended, TimeoutError, and the exceptions of `decode`.
        """
        if self._connection.ended is not None:
            raise self._connection.ended.with_traceback(None)
        answer = SingleReply(self._client.loop, self._client.now())
        self._connection.send(packed, answer)
        limit = self._client.node_timeout
        try:
            async with asyncio.timeout(limit):
                reply = await answer.future
        except TimeoutError:
            msg = f"no answer within {limit:g} s"
            raise TimeoutError(msg) from None
        return decode(reply, read, packed, self._address.redact)

    def close(self) -> None:
        """Start closing the connection, without waiting for outstanding replies."""
        self._connection.close(ConnectionResetError("the connection is no longer needed"))

    async def closed(self) -> None:
        """Wait, after `close`, until the connection has ended; abort it after one node timeout."""
        try:
            async with asyncio.timeout(self._client.node_timeout):
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
