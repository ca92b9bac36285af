"""An event loop in a thread of its own, for the proxies and for a client that plays another process.

It works for a test without a loop and for one whose loop is blocked. It must not touch the test's own client.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from typing import Any, TypeVar

from anyio.from_thread import start_blocking_portal

from redlock_async import Redlock

OWNER = "another client"

T = TypeVar("T")


class BackgroundLoop:
    """Starts its thread when it is created and ends it in `close`."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._portal = self._stack.enter_context(start_blocking_portal())

    def client(self) -> Redlock:
        """Return a client with the environment's configuration; `close` closes it."""
        client = Redlock.from_env({**os.environ, "REDLOCK_OWNER": OWNER})
        self._stack.callback(self.wait_for, client.aclose)
        return client

    def wait_for(self, function: Callable[..., Awaitable[T]], *arguments: Any) -> T:
        """Run that coroutine function on the loop and return its result."""
        return self._portal.call(function, *arguments)

    def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call that function on the running loop and return its result."""
        return self._portal.call(function, *arguments)

    def close(self) -> None:
        """Close the clients, the loop and the thread."""
        self._stack.close()
