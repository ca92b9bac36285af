"""Somebody else, as far as the masters can tell: a client of its own, on an event loop in a thread of its own.

A test without a loop can use it, and one whose loop is blocked meanwhile; it must not touch the test's own client.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from typing import Any, TypeVar

from anyio.from_thread import start_blocking_portal

from redlock_async import Redlock

OWNER = "somebody else"

T = TypeVar("T")


class Outside:
    """Begins its thread when it is made, and ends it with `close`; its client is configured as the service's is."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._portal = self._stack.enter_context(start_blocking_portal())

    def client(self) -> Redlock:
        """A client that `close` closes."""
        client = Redlock.from_env({**os.environ, "REDLOCK_OWNER": OWNER})
        self._stack.callback(self.wait_for, client.aclose)
        return client

    def wait_for(self, function: Callable[..., Awaitable[T]], *arguments: Any) -> T:
        """Run that coroutine function there, and return what it returns."""
        return self._portal.call(function, *arguments)

    def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call that there, on the running loop."""
        return self._portal.call(function, *arguments)

    def close(self) -> None:
        """End the clients, the loop and the thread."""
        self._stack.close()
