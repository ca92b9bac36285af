"""The errors a caller can meet; this module decides nothing.

RedlockError(Exception)
├── LockTimeout(RedlockError, TimeoutError)             somebody else held it for as long as we waited
├── QuorumUnavailable(RedlockError, ConnectionError)    too few masters answer
├── LockLost(RedlockError)                              the lease ended while it was held
├── NotHeld(RedlockError)                               release or extend of something not held
├── KeyConflict(RedlockError)                           the key holds another type of value
└── ConfigurationError(RedlockError, ValueError)        a bad argument, or a server that is unfit as a node
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

_NO_NODES: Mapping[str, Exception] = MappingProxyType({})


def line(text: str, most: int) -> str:
    """What others wrote, as it may stand in a message of ours: on one line, and not without end."""
    return "".join(c if c.isprintable() else "?" for c in text[:most])


def shown(value: object) -> str:
    """A wrong argument, as it may stand in a message."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - a number of 5000 digits is one reason, a faulty __repr__ another
        text = f"<{type(value).__name__}>"
    return line(text, 80) if len(text) <= 80 else line(text, 77) + "..."  # noqa: PLR2004 - as much as is looked at


def by_node(causes: Mapping[str, Exception]) -> str:
    """What each node answered instead of a vote, as it stands in a message."""
    return "; ".join(f"{label}: {cause}" for label, cause in causes.items())


class RedlockError(Exception):
    """Root of everything this library raises."""

    def __init__(self, message: str, *, names: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.names = tuple(names)
        """The locks this is about, where there are any."""

    # Exception's own __reduce__ calls cls(*args) and then restores __dict__, so every subclass must be
    # constructible from its message alone; that keeps all of them picklable across process pools.


class LockTimeout(RedlockError, TimeoutError):
    """The wait is over and somebody else still holds the lock."""

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
        """The owner label of the holder, when it was seen."""
        self.retry_after = retry_after
        """Seconds until what was in the way has run out, unless it is renewed; 0.0 when contenders kept one another out
        and nobody has it; None where it is not known, or has no end. A holder that lives may well be done before."""


class QuorumUnavailable(RedlockError, ConnectionError):
    """Fewer than a majority of the configured masters could vote."""

    def __init__(self, message: str, *, names: Sequence[str] = (), nodes: Mapping[str, Exception] = _NO_NODES) -> None:
        super().__init__(message, names=names)
        self.nodes = dict(nodes)
        """What each master that did not vote answered instead, by its label."""


class LockLost(RedlockError):
    """The lease ended while it was held: expired unrenewed, force-released, or its time was up."""


class NotHeld(RedlockError):
    """Release or extend of a lease that is not held here any more."""


class KeyConflict(RedlockError):
    """The lock's key holds another type of value, which must never be read as 'free'."""


class ConfigurationError(RedlockError, ValueError):
    """An argument that cannot work, or a server that cannot be an independent master."""


class NodeRefused(ConnectionError):
    """One master answered with an error instead of a vote; seen only inside `QuorumUnavailable.nodes`."""


class NodeDenied(NodeRefused):
    """One master refused our credentials or our rights: asking again cannot help."""
