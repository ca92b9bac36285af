"""What a web service answers when a request could not be done under its lock: RFC 9457, for any framework.

Nothing of the errors' own texts is in it: they name masters, holders and locks, which are no business of strangers.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus

from ._errors import ConfigurationError, LockLost, LockTimeout, QuorumUnavailable, RedlockError, shown

MEDIA_TYPE = "application/problem+json"

ERRORS: tuple[type[RedlockError], ...] = (LockTimeout, QuorumUnavailable, LockLost)
"""The errors that a client is told of. All others are mistakes in the service, and stay what they are."""

HELD = "Somebody else is at it."
UNAVAILABLE = "Locks cannot be had at the moment."
LOST = "The lock was lost before this was finished: it may have been done in part."


@dataclass(frozen=True, slots=True)
class Problem:
    """An answer."""

    status: int
    headers: Mapping[str, str]
    body: str


class Problems:
    """Which status stands for which error."""

    def __init__(self, *, held: int, unavailable: int, lost: int) -> None:
        for option, status in (("held", held), ("unavailable", unavailable), ("lost", lost)):
            if isinstance(status, bool) or not isinstance(status, int) or not 400 <= status <= 599:  # noqa: PLR2004 - HTTP
                raise ConfigurationError(f"{option} is the status of an error, from 400 to 599, not {shown(status)}")
        self._held = held
        self._unavailable = unavailable
        self._lost = lost

    def of(self, error: Exception) -> Problem:
        """The answer to a request that ended with one of `ERRORS`."""
        if isinstance(error, LockTimeout):
            # Rounded up, for by then what is in the way must have run out. Where that is not known, or nobody has it,
            # soon is the best that can be said.
            seconds = max(math.ceil(error.retry_after or 0), 1)
            return _problem(self._held, "held", HELD, {"Retry-After": str(seconds)})
        if isinstance(error, LockLost):
            return _problem(self._lost, "lost", LOST)
        return _problem(self._unavailable, "unavailable", UNAVAILABLE)


def refused(status: int, detail: str) -> Problem:
    """The answer to a request whose values cannot be part of a lock's name."""
    return _problem(status, "name", detail)


def _problem(status: int, reason: str, detail: str, headers: Mapping[str, str] | None = None) -> Problem:
    known = {each.value for each in HTTPStatus}
    title = HTTPStatus(status).phrase if status in known else "Error"
    said = {"type": "about:blank", "title": title, "status": status, "detail": detail, "reason": reason}
    return Problem(status, headers or {}, json.dumps(said))
