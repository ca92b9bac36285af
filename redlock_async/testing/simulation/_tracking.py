"""Client tracking: who has read which key, and whom to tell that it changed. No commands, no expiry."""

from __future__ import annotations

from collections.abc import Iterable

from ._resp import FLUSHED, RESP3, invalidation
from ._session import Session


class Tracking:
    """The table of one master, in the server's default mode: only keys that a session has read, each told once."""

    __slots__ = ("_pending", "_readers", "current")

    def __init__(self) -> None:
        self._readers: dict[bytes, dict[Session, None]] = {}
        self.current: Session | None = None
        """The session whose command is being carried out."""
        self._pending: list[bytes] = []

    def remember(self, session: Session, keys: Iterable[bytes]) -> None:
        """That session has read these keys, whether they exist or not."""
        readers = self._readers
        for key in keys:
            if key in readers:
                readers[key][session] = None
            else:
                readers[key] = {session: None}

    def changed(self, key: bytes) -> None:
        """Tell those who have read it, and forget that they have."""
        if (readers := self._readers.pop(key, None)) is None:
            return
        for session in readers:
            # NOLOOP holds for the key that expires under the session's own access, too.
            if session.tracking and not (session.noloop and session is self.current):
                self._tell(session, invalidation(key))

    def flushed(self, sessions: Iterable[Session]) -> None:
        """Tell all, NOLOOP or not, that every key is gone."""
        self._readers.clear()
        for session in sessions:
            if session.tracking:
                self._tell(session, FLUSHED)

    def _tell(self, session: Session, message: bytes) -> None:
        if session.resp != RESP3:
            return  # there are no pushes in RESP2
        if session is self.current:
            self._pending.append(message)
        else:
            session.push(session, message)

    def due(self) -> bytes:
        """What the current session is to be told of its own command, after its reply."""
        if not self._pending:
            return b""
        due = b"".join(self._pending)
        self._pending.clear()
        return due

    def forget(self) -> None:
        """The server has restarted."""
        self._readers.clear()
