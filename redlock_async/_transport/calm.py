"""A limit on how often a client reacts to a node's reports: a node that reports endless changes costs little CPU."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context

RATE_LIMIT = 0.05
"""Minimum seconds between two reactions, where only a minority of the nodes reports a change."""


def is_believed(nodes: int, minority: int) -> bool:
    """Return whether enough nodes (a bit mask; -1: ourselves) report a change, so that not all of them can be wrong."""
    return nodes < 0 or nodes.bit_count() > minority


class RateLimited:
    """Calls a function at most once in `RATE_LIMIT` seconds: immediately, or when they have passed."""

    __slots__ = ("_call", "_loop", "_next_at", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
        self._loop = loop
        self._call = call
        self._next_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def __call__(self) -> None:
        """Call the function now, or as soon as the limit allows."""
        if self._timer is not None:
            return
        if self._loop.time() < self._next_at:
            self._timer = self._loop.call_at(self._next_at, self._run, context=Context())
        else:
            self._run()

    def _run(self) -> None:
        self._timer = None
        self._next_at = self._loop.time() + RATE_LIMIT
        self._call()
