"""Receivers of replies outside rounds: awaited replies, script sources and the end of old connections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from redlock_async._rules.replies import missing_script
from redlock_async.errors import NodeRefused

from .commands import failure_of
from .connection import DECODE_ERRORS, ErrorReply, Receiver, Redact, malformed_reply

T = TypeVar("T")


def decode(reply: object, read: Callable[[object], T], sent: bytes, redact: Redact) -> T:
    """Return a reply as parsed by `read`; raise for an error reply and, as NodeRefused, for a malformed one."""
    if isinstance(reply, ErrorReply):
        raise failure_of(str(reply), sent)
    try:
        return read(reply)
    except DECODE_ERRORS as exc:
        raise NodeRefused(*malformed_reply(reply, exc, redact).args) from exc


class SingleReply:
    """Takes the awaited reply to one command."""

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
            self.future.exception()  # marks it as retrieved: the caller may have been cancelled


class ReplyBatch:
    """Takes the replies to several commands, which are awaited together."""

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
            self.future.exception()  # marks it as retrieved: the caller may have been cancelled


class Ignored:
    """Takes a reply that nothing waits for."""

    __slots__ = ("started_at",)

    def __init__(self, now: float) -> None:
        self.started_at = now

    def deliver(self, node: int, reply: object) -> None:
        """Nothing waits for it."""

    def dropped(self, node: int, cause: Exception) -> None:
        """Nothing waits for it."""


class SourceRetry:
    """Takes the reply to a command with its script's source: a server that still lacks the script is in error."""

    __slots__ = ("_receiver", "started_at")

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self.started_at = receiver.started_at

    def deliver(self, node: int, reply: object) -> None:
        if isinstance(reply, ErrorReply) and missing_script(str(reply)):
            reply = ErrorReply(f"ERR the server was sent the script's source and still replied {reply}")
        self._receiver.deliver(node, reply)

    def dropped(self, node: int, cause: Exception) -> None:
        self._receiver.dropped(node, cause)


class KillReply:
    """Takes the reply to CLIENT KILL for an old connection: the server has closed it, or has no such connection."""

    __slots__ = ("_client_id", "_left", "started_at")

    def __init__(self, left: set[int], client_id: int, now: float) -> None:
        self._left = left
        self._client_id = client_id
        self.started_at = now

    def deliver(self, node: int, reply: object) -> None:  # noqa: ARG002 - one node only
        """Forget the id, also on an error (no such client, no permission): another attempt would not change it."""
        self._left.discard(self._client_id)

    def dropped(self, node: int, cause: Exception) -> None:
        """Keep the id: the next connection sends the command again."""
