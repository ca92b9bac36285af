"""The errors a caller can meet; this module decides nothing.

RedlockError(Exception)
├── LockTimeout(RedlockError, TimeoutError)             another client held the lock for the whole wait
├── QuorumUnavailable(RedlockError, ConnectionError)    too few nodes can vote
│   └── HoldUnconfirmed                                 the work is done, but too few nodes stored its min_hold
├── LockLost(RedlockError)                              the lease ended while it was held
├── NotHeld(RedlockError)                               release or extend of something not held
├── WrongKeyType(RedlockError)                          the key holds another type of value
├── StaleFence(RedlockError)                            a resource has seen a later holder of the lock
└── ConfigurationError(RedlockError, ValueError)        a bad argument, or a server that is unfit as a node
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar

_TROUBLESHOOTING = "docs/troubleshooting.md"
"""The page that errors point to, in a note, which tracebacks show."""

_NO_NODES: Mapping[str, Exception] = MappingProxyType({})


def one_line(text: str, most: int) -> str:
    """Make foreign text safe for a message: one printable line of limited length."""
    text = text[:most]
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)


def label_of(stored: bytes, most: int) -> str:
    """Make bytes from a server safe for a message: anyone with write access may have stored them."""
    return one_line(stored[: 4 * most].decode("utf-8", "replace"), most)


def short_repr(value: object) -> str:
    """Return the repr of a wrong argument, safe for a message."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - a number of 5000 digits raises, and so may a faulty __repr__
        text = f"<{type(value).__name__}>"
    return one_line(text, 80) if len(text) <= 80 else one_line(text, 77) + "..."  # noqa: PLR2004 - characters that fit into a message


def by_node(causes: Mapping[str, Exception]) -> str:
    """Format what each node answered instead of a vote, for a message."""
    return "; ".join(f"{label}: {cause}" for label, cause in causes.items())


class RedlockError(Exception):
    """Base class of every error that this library raises."""

    _section: ClassVar[str] = ""
    """The section of the troubleshooting page with the causes."""

    def __init__(self, message: str, *, names: Sequence[str] = ()) -> None:
        super().__init__(message)
        if self._section:
            self.add_note(f"causes and remedies: {_TROUBLESHOOTING}, {self._section!r}")
        self.names = tuple(names)
        """The names of the locks that the error is about, if any."""

    # Exception.__reduce__ calls cls(*args) and then restores __dict__. Every subclass can be created from its message
    # alone, and so all of them can be pickled for process pools.


class LockTimeout(RedlockError, TimeoutError):
    """The wait is over and another client still holds the lock."""

    _section = "A lock cannot be acquired"

    def __init__(
        self,
        message: str,
        *,
        names: Sequence[str] = (),
        holder: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message, names=names)
        self.holder = holder
        """The owner label of the holder, if a node reported it."""
        self.retry_after = retry_after
        """Seconds until the holder's lease expires, unless it is renewed; 0.0 if contenders blocked one another and
        none holds the lock; None if unknown or without an end. A live holder may release the lock much earlier."""


class QuorumUnavailable(RedlockError, ConnectionError):
    """Too few of the configured nodes could vote."""

    _section = "A node cannot be used"

    def __init__(self, message: str, *, names: Sequence[str] = (), nodes: Mapping[str, Exception] = _NO_NODES) -> None:
        super().__init__(message, names=names)
        self.nodes = dict(nodes)
        """The error of each node that did not vote, by its label."""


class HoldUnconfirmed(QuorumUnavailable):
    """The work under the lock is done, but too few nodes stored that the name stays locked (`min_hold`, `once`).

    Another client may lock the name before that time is over. Do not retry: a retry would repeat the work.
    """


class LockLost(RedlockError):
    """The lease ended while it was held: it was not renewed in time, was force-released, or reached `max_hold`."""

    _section = "A lock was lost"


class NotHeld(RedlockError):
    """A release or extension of a lease that is no longer held here."""


class WrongKeyType(RedlockError):
    """The lock's key holds a value of another type, which must not be mistaken for a free lock."""


class StaleFence(RedlockError):
    """A later holder of the lock has been at the resource, so it rejected this write. See `redlock_async.fenced`."""

    _section = "A lock was lost"

    def __init__(
        self, message: str, *, names: Sequence[str] = (), token: int | None = None, latest: int | None = None
    ) -> None:
        super().__init__(message, names=names)
        self.token = token
        """The fencing token that was rejected."""
        self.latest = latest
        """The largest fencing token that the resource has seen for the name."""


class ConfigurationError(RedlockError, ValueError):
    """An argument that cannot work, or a server that cannot be an independent node."""


class NodeRefused(ConnectionError):
    """A node answered with an error instead of a vote; found only in `QuorumUnavailable.nodes`."""


class NodeNeedsOthers(NodeRefused):
    """A node could vote, but not before enough other nodes have answered."""


class WrongClock(NodeRefused):
    """The wall clock of a node is beyond the year 2200, and would use up the range of the fencing tokens."""

    def __init__(self, message: str, clock: float = 0.0) -> None:
        super().__init__(message)
        self.clock = clock
        """The node's time, in seconds since 1970."""


class NodeDenied(NodeRefused):
    """A node rejected the credentials or permissions of the client, so retrying cannot help."""
