"""A client on one event loop: what it consists of, how it starts and ends, and where the nodes' reports go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress

from redlock_async._rounds.context import Context
from redlock_async._rules.keys import Keys
from redlock_async._rules.settings import Settings
from redlock_async._transport.connection import Connection
from redlock_async._transport.node import Address, Node
from redlock_async.errors import ConfigurationError
from redlock_async.events import Events

from .lease_registry import LeaseRegistry
from .local_queues import LocalQueues

PER_REPLY = 0.0002
"""Seconds more to wait for the end of a connection, for each reply that is still to come."""


class Session:
    """Everything of one client that lives on the loop."""

    def __init__(self, targets: Sequence[Address], settings: Settings, keys: Keys, events: Events) -> None:
        self.context = Context(
            targets,
            settings,
            keys,
            events,
            on_key_changed=self.key_changed,
            on_node_up=self.node_up,
            on_quorum_lost=self.quorum_lost,
        )
        self.queues = LocalQueues(self.context)
        self.registry = LeaseRegistry(self.context, self.queues)
        self._ending: list[Connection] = []
        # asyncio closes every async generator before it closes a loop. This is the one hook that lets a client that is
        # never closed end its connections in time. A generator counts once it has run up to its first `yield`.
        self._at_loop_end = self._until_loop_ends()
        with suppress(StopIteration):
            self._at_loop_end.asend(None).send(None)

    async def _until_loop_ends(self) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            self.close()
            await self._drained()

    async def look(self) -> None:
        """Wait for the first connections, also to far nodes, without an error for what they found."""
        membership = self.context.membership
        with suppress(ConfigurationError):
            await membership.look(self.context.settings.options.wait)
        await membership.settled()

    @property
    def waiting(self) -> int:
        """How many tasks wait for a lock or a latch."""
        return self.queues.waiting + self.context.wakeups.waiting

    # Reports of the nodes

    def key_changed(self, node: Node, key: bytes | None) -> None:
        """Another client changed a key on that node; None stands for all keys."""
        self.registry.key_changed(key, node.bit)
        self.context.wakeups.remote_change(node.index, key)

    def own_change(self, key: bytes) -> None:
        """This client changed a key, which the nodes do not report to it."""
        self.registry.key_changed(key, -1)
        self.context.wakeups.local_change(key)

    def node_up(self) -> None:
        """One more node may vote: waiters may succeed now, and what its old connection had to report is lost."""
        self.context.wakeups.local_change(None)
        self.registry.resume_retentions()

    def quorum_lost(self) -> None:
        """Too few nodes may vote: what waiters know of a holder is old, and no node will report that it has gone."""
        self.context.wakeups.local_change(None)

    # Ending

    def close(self) -> None:
        """End everything at once. Leases that are held are lost; their releases are sent."""
        context = self.context
        if context.closed:
            return
        context.close()
        self.registry.close()
        for waiter in context.wakeups.watching(None):
            if (command := waiter.close()) is not None:
                context.send_to_all(command, context.settings.options.ttl)
        context.groups.send()  # releases, for which there will be no connections
        self._ending = context.membership.close()
        self.registry.end_retentions()

    async def closed_connections(self) -> None:
        """Wait until the connections have ended, after `close`."""
        await self._at_loop_end.aclose()
        await self._drained()

    async def _drained(self) -> None:
        """Wait until the servers have answered what was sent last, but not long for one that does not answer."""
        ending, self._ending = self._ending, []
        pending = max((connection.pending_count for connection in ending), default=0)
        try:
            async with asyncio.timeout(self.context.node_timeout + pending * PER_REPLY):
                for connection in ending:
                    await connection.wait_closed()
        except TimeoutError:
            for connection in ending:
                connection.abort()
