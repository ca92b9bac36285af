"""One connection to a simulated server, as the server sees it. No commands."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import hiredis

INCOMPLETE = object()


class Session:
    """The state that the server keeps per connection."""

    __slots__ = ("closed", "feed", "id", "name", "next_command", "noloop", "open", "push", "resp", "tracking")

    def __init__(
        self,
        number: int,
        push: Callable[[Session, bytes], None],
        closed: Callable[[Session], None] | None,
        resp: int,
    ) -> None:
        reader = hiredis.Reader(notEnoughData=INCOMPLETE)
        self.feed = reader.feed
        self.next_command = cast("Callable[[], list[bytes]]", reader.gets)
        """The next complete command, or INCOMPLETE."""
        self.id = number
        self.push = push
        """Called with the server's push messages."""
        self.closed = closed
        """Called when the server ends the session."""
        self.resp = resp
        self.name = b""
        self.open = True
        self.tracking = False
        self.noloop = False

    def __repr__(self) -> str:
        return f"<Session {self.id} {self.name.decode()!r}{'' if self.open else ' closed'}>"

    def end(self) -> None:
        """Close the session: no more commands, replies or pushes."""
        self.open = self.tracking = False
