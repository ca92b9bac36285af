"""Who takes the replies of commands that are no round: one that is awaited, and ones that nobody waits for."""

from __future__ import annotations

import asyncio


class Ask:
    """One command whose reply is awaited by itself."""

    __slots__ = ("future", "started_at")

    def __init__(self, loop: asyncio.AbstractEventLoop, now: float) -> None:
        self.future: asyncio.Future[object] = loop.create_future()
        self.started_at = now

    def deliver(self, node: int, reply: object) -> None:  # noqa: ARG002 - one node only
        if not self.future.done():
            self.future.set_result(reply)

    def dropped(self, node: int, cause: Exception) -> None:  # noqa: ARG002
        if not self.future.done():
            self.future.set_exception(cause)
            self.future.exception()  # may be dropped unread: the caller can have been cancelled


class Unread:
    """Takes the reply of a command that nobody waits for."""

    __slots__ = ("started_at",)

    def __init__(self, now: float) -> None:
        self.started_at = now

    def deliver(self, node: int, reply: object) -> None:
        """Nothing depends on it."""

    def dropped(self, node: int, cause: Exception) -> None:
        """Nothing depends on it."""
