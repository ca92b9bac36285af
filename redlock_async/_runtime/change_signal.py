"""Tells a task that looks at keys when to look again: on a report of the nodes, or after a pause."""

from __future__ import annotations

import asyncio
import math

from redlock_async._rounds.context import Context
from redlock_async._transport.calm import RATE_LIMIT, is_believed

BATCH_WINDOW = 0.002
"""Seconds from the first report of a change to the next look: the other nodes' reports arrive meanwhile."""

POLL_INTERVAL = 5.0
"""Seconds after which to look anyway, in case a report was lost."""


class ChangeSignal:
    """A `Waiter` for one task that looks again and again."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._changed = asyncio.Event()
        self._reported = 0
        """Bit mask of the nodes that have reported a change since the last look."""
        self._others = 0
        """Bit mask of the nodes on which the last look has missed what the others report."""
        self._looked_at = -math.inf

    @property
    def waiting(self) -> int:
        """How many tasks wait."""
        return 1

    @property
    def armed(self) -> bool:
        """Whether all nodes that are up report changes."""
        return all(node.tracking for node in self._context.membership.servers if node.ready)

    def looking(self) -> None:
        """The task looks now: changes that were reported before need no other look."""
        self._changed.clear()
        self._reported, self._looked_at = 0, self._context.loop.time()

    def looked(self, others: int) -> None:
        """The look is over; a change may already have reached the nodes in the bit mask `others`."""
        self._others = others
        if self._reported and self._is_believed():
            self._changed.set()

    async def wait(self, seconds: float) -> None:
        """Wait for a change, or about that long."""
        timer = self._context.call_later(seconds, self._changed.set)
        try:
            await self._changed.wait()
        finally:
            timer.cancel()

    def on_remote_change(self, node: int, key: bytes | None) -> None:  # noqa: ARG002 - any change is worth a look
        """Look soon, but at most once in `RATE_LIMIT` seconds for what only a minority of the nodes reports.

        A change needs more nodes than that. Each of them reports it, or had it already when the task looked.
        """
        context, reported = self._context, self._reported
        self._reported |= 1 << node
        rest = self._looked_at + RATE_LIMIT - context.loop.time()
        if rest <= 0 or self._is_believed():
            self._changed.set()
        elif not reported:
            context.call_later(rest, self._changed.set)

    def _is_believed(self) -> bool:
        return is_believed(self._reported | self._others, self._context.minority)

    def wake(self, key: bytes | None = None) -> None:  # noqa: ARG002 - a Waiter's signature
        """Look at once: this client changed it, or a node came back."""
        self._changed.set()

    def close(self) -> None:
        """The client is closed: the next look raises. Nothing on the nodes is ours."""
        self._changed.set()
