"""Client tracking: which session has read which key, and whom to notify of a change. No commands, no expiry."""

from __future__ import annotations

from collections.abc import Iterable

from ._resp import FLUSHED, RESP3, invalidation
from ._session import Session


class Tracking:
    """The tracking table of one server, in the default mode: a session is notified once of each key it has read."""

    __slots__ = ("_pending", "_readers", "current", "noloop")

    def __init__(self) -> None:
        self._readers: dict[bytes, dict[Session, None]] = {}
        self.current: Session | None = None
        """The session whose command is being executed."""
        self.noloop = True
        """Whether the option NOLOOP is heeded."""
        self._pending: list[bytes] = []

    def remember(self, session: Session, keys: Iterable[bytes]) -> None:
        """Record that the session has read these keys, whether they exist or not."""
        readers = self._readers
        for key in keys:
            if key in readers:
                readers[key][session] = None
            else:
                readers[key] = {session: None}

    def changed(self, key: bytes) -> None:
        """Notify the sessions that have read the key, and forget them."""
        if (readers := self._readers.pop(key, None)) is None:
            return
        for session in readers:
            # NOLOOP also applies to a key that expires during the session's own access.
            if session.tracking and not (self.noloop and session.noloop and session is self.current):
                self._notify(session, invalidation(key))

    def flushed(self, sessions: Iterable[Session]) -> None:
        """Notify all sessions, even with NOLOOP, that every key is gone."""
        self._readers.clear()
        for session in sessions:
            if session.tracking:
                self._notify(session, FLUSHED)

    def _notify(self, session: Session, message: bytes) -> None:
        if session.resp != RESP3:
            return  # there are no pushes in RESP2
        if session is self.current:
            self._pending.append(message)
        else:
            session.push(session, message)

    def take_pending(self) -> bytes:
        """Return the pushes caused by the current session's own command, which follow its reply."""
        if not self._pending:
            return b""
        pending = b"".join(self._pending)
        self._pending.clear()
        return pending

    def reset(self) -> None:
        """Forget everything: the server has restarted."""
        self._readers.clear()
