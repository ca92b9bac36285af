"""Lock tokens: 32 hexadecimal digits, a colon and the holder's owner label. No clock, no I/O, no randomness.

If the lock has a takeover delay, a plus sign and the delay in ms stand before the colon, for clients that are refused:
they can tell that only the delay is left of the lease.
"""

from __future__ import annotations

import math

from redlock_async.errors import label_of

LONGEST_OWNER = 200
"""Bytes of an owner label: a node that refuses a lock returns at most 300 bytes of the holder's token."""

RANDOM_DIGITS = 32
"""Hexadecimal digits at the beginning: 128 random bits."""

MOST_DIGITS = 8
"""Digits of a takeover delay: 24 hours in ms have eight."""


def owner_of(token: bytes | None) -> str | None:
    """Return the owner label in a token of this library, or None for another library's token."""
    _, label = _parts(token)
    return None if label is None else label_of(label, LONGEST_OWNER)


def label_in(token: bytes | None) -> bytes | None:
    """Return the label in a token of this library as it is stored, or None for another library's token."""
    return _parts(token)[1]


def takeover_delay_of(token: bytes | None) -> float:
    """Return the seconds for which the name stays locked after this lease, unless it is released; 0 if unknown."""
    delay, _ = _parts(token)
    return int(delay) / 1000 if delay.isdigit() and len(delay) <= MOST_DIGITS else 0.0


def is_expired(token: bytes | None, left: float | None) -> bool:
    """Whether a lease is over, and only its takeover delay keeps the name locked, for that many seconds."""
    return left is not None and left <= takeover_delay_of(token) > 0


def token_label(owner: str, takeover_delay: float) -> bytes:
    """Return what stands behind the random digits."""
    return (f"+{math.ceil(takeover_delay * 1000)}:{owner}" if takeover_delay else f":{owner}").encode()


def _parts(token: bytes | None) -> tuple[bytes, bytes | None]:
    """Return the delay of a token, or nothing, and its label, or None for another library's token."""
    front, colon, label = (token or b"").partition(b":")
    random, _, delay = front.partition(b"+")
    return (delay, label) if colon and len(random) == RANDOM_DIGITS else (b"", None)
