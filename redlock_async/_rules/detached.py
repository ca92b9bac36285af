"""The text of a detached lease: what `Lease.detach` writes and `Redlock.attach` reads."""

from __future__ import annotations

import base64
import json
import math
from dataclasses import asdict, dataclass
from zlib import crc32

from redlock_async.errors import ConfigurationError, short_repr

from .fencing import LIMIT

FORMAT = "redlock1."

CHECKSUM = 8
"""Hexadecimal digits behind that: a CRC-32 of what follows."""

NUMBER = frozenset({int, float})
TYPES = {
    "kind": frozenset({str}),
    "names": frozenset({list}),
    "details": frozenset({dict}),
    "token": frozenset({str}),
    "fence": frozenset({int, type(None)}),
    "ttl": NUMBER,
    "renew": frozenset({bool}),
    "max_hold": NUMBER | {type(None)},
    "min_hold": NUMBER,
    "takeover_delay": NUMBER,
    "retry_failed": frozenset({bool}),
    "namespace": frozenset({str}),
    "until": NUMBER,
}
"""The types that the fields may have. Those of `clock` do not matter: it is only compared."""


@dataclass(frozen=True, slots=True)
class Detached:
    """A lease that no process renews until it is attached."""

    kind: str
    names: list[str]
    details: dict[str, object]
    token: str
    fence: int | None
    ttl: float
    renew: bool
    max_hold: float | None
    min_hold: float
    """How much is left of the option; 0 if it was over when the text was written. So it is with `max_hold`."""
    takeover_delay: float
    retry_failed: bool
    namespace: str
    until: float
    """The deadline, on the clock that is named."""
    clock: str | None

    def __post_init__(self) -> None:
        if wrong := [name for name, types in TYPES.items() if type(getattr(self, name)) not in types]:
            raise TypeError(f"wrong type of {', '.join(wrong)}")
        if not self.names or any(type(name) is not str for name in self.names):
            raise TypeError("names must be a list of strings")
        if self.fence is not None and not 0 < self.fence < LIMIT:
            raise TypeError("fence is out of range")
        if not math.isfinite(self.until):
            raise TypeError("until must be finite")
        self.token.encode()

    def readable(self, clock: str | None) -> bool:
        """Whether the deadline can be read on that clock."""
        return self.clock is not None and self.clock == clock

    def write(self) -> str:
        """Return the text, which is one word."""
        payload = json.dumps(asdict(self)).encode()
        return FORMAT + checksum(payload) + base64.urlsafe_b64encode(payload).decode()


def read_detached(text: str) -> Detached:
    """Return what `Lease.detach` wrote, or raise ConfigurationError."""
    if not isinstance(text, str) or not text.startswith(FORMAT):
        raise ConfigurationError(f"not a text that Lease.detach() returned: {short_repr(text)}")
    crc, body = text[len(FORMAT) :][:CHECKSUM], text[len(FORMAT) + CHECKSUM :]
    try:
        payload = base64.urlsafe_b64decode(body)
    except ValueError:
        payload = b""
    # Encoded again, because Python 3.15 also reads a text whose end was cut off, if that was only padding.
    if not payload or checksum(payload) != crc or base64.urlsafe_b64encode(payload).decode() != body:
        # Without the text, because a client that has it can release the lock.
        raise ConfigurationError(
            "not a text that Lease.detach() returned: its checksum is wrong, so it was changed or truncated. "
            "Attach exactly what Lease.detach() returned"
        )
    try:
        return Detached(**json.loads(payload))
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
        raise ConfigurationError("not a text that Lease.detach() returned: its content is not a lease") from None


def checksum(payload: bytes) -> str:
    """Detect accidents such as a truncated text. Anyone can compute it: it is no signature."""
    return f"{crc32(payload):08x}"
