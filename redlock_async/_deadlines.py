"""When rounds run out of time: one timer for all that have the same patience, not one for each.

Rounds of equal patience run out in the order they began, so a queue is enough; and almost all are over long before.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol


class Expiring(Protocol):
    """What may run out of time."""

    started_at: float
    over: bool
    """Whether it needs no deadline any more."""

    def expire(self) -> None:
        """The time is up."""


class Deadlines:
    """The deadlines of one client."""

    def __init__(self, loop: asyncio.AbstractEventLoop, now: Callable[[], float]) -> None:
        self._loop = loop
        self._now = now
        self._queues: dict[float, deque[Expiring]] = {}

    def add(self, round_: Expiring, patience: float) -> None:
        """Expire that round `patience` seconds after it began, unless it is over by then."""
        queue = self._queues.get(patience)
        if queue is None:
            queue = self._queues[patience] = deque()
            self._loop.call_later(patience, self._run, patience, self._now() + patience)
        while queue and queue[0].over:
            queue.popleft()
        queue.append(round_)

    def _run(self, patience: float, planned: float) -> None:
        queue, now = self._queues[patience], self._now()
        if now - planned > patience / 2:
            # The loop was blocked, and perhaps before anything was sent: it is not the nodes that are late.
            self._loop.call_later(patience / 2, self._run, patience, now + patience / 2)
            return
        while queue and (queue[0].over or queue[0].started_at + patience <= now):
            first = queue.popleft()
            if not first.over:
                first.expire()
        if queue:
            due = queue[0].started_at + patience
            self._loop.call_later(due - now, self._run, patience, due)
        else:
            del self._queues[patience]
