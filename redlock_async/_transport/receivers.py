"""Who takes the replies of commands that are no round: one that is awaited, and one that is not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from ._errors import NodeRefused
from ._replies import failure, missing_script
from ._wire import MISREAD, ErrorReply, Receiver, unreadable

T = TypeVar("T")


def understood(reply: object, read: Callable[[object], T]) -> T:
    """A reply as `read` reads it; an error reply, and one that cannot be read, as an exception."""
    if isinstance(reply, ErrorReply):
        raise failure(str(reply))
    try:
        return read(reply)
    except MISREAD as exc:
        raise NodeRefused(*unreadable(reply, exc).args) from exc


class Ask:
    """One command whose reply is awaited by itself."""

    __slots__ = ("future", "started_at")

    def __init__(self, loop: asyncio.AbstractEventLoop, now: float) -> None:
        self.future: asyncio.Future[object] = loop.create_future()
        self.started_at = now

    def deliver(self, node: int, reply: object) -> None:  # noqa: ARG002 - one node only
        if not self.future.done():
            self.future.set_result(reply)

    def dropped(self, node: int, cause: Exception) -> None:  # noqa: ARG002 - one node only
        if not self.future.done():
            self.future.set_exception(cause)
            self.future.exception()  # may be dropped unread: the caller can have been cancelled


class Asks:
    """Several commands whose replies are awaited together."""

    __slots__ = ("_left", "_replies", "future", "started_at")

    def __init__(self, loop: asyncio.AbstractEventLoop, now: float, number: int) -> None:
        self.future: asyncio.Future[list[object]] = loop.create_future()
        self.started_at = now
        self._left = number
        self._replies: list[object] = []

    def deliver(self, node: int, reply: object) -> None:  # noqa: ARG002 - one node only
        self._replies.append(reply)
        self._left -= 1
        if not self._left and not self.future.done():
            self.future.set_result(self._replies)

    def dropped(self, node: int, cause: Exception) -> None:  # noqa: ARG002 - one node only
        if not self.future.done():
            self.future.set_exception(cause)
            self.future.exception()  # as above


class Resent:
    """Stands in for whoever is sent a script's source: a server that then asks for the source again is in error."""

    __slots__ = ("_receiver", "started_at")

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self.started_at = receiver.started_at

    def deliver(self, node: int, reply: object) -> None:
        if isinstance(reply, ErrorReply) and missing_script(str(reply)):
            reply = ErrorReply(f"ERR it was sent the script, and answered {reply}")
        self._receiver.deliver(node, reply)

    def dropped(self, node: int, cause: Exception) -> None:
        self._receiver.dropped(node, cause)


class End:
    """Takes the answer to the request to end an old connection: it has ended, or there is no such."""

    __slots__ = ("_client_id", "_left", "started_at")

    def __init__(self, left: set[int], client_id: int, now: float) -> None:
        self._left = left
        self._client_id = client_id
        self.started_at = now

    def deliver(self, node: int, reply: object) -> None:  # noqa: ARG002 - one node only
        """An error (no such client, no right) is an answer as well: asking again would not change it."""
        self._left.discard(self._client_id)

    def dropped(self, node: int, cause: Exception) -> None:
        """The next connection asks again."""
