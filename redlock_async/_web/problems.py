"""The responses of a web service to requests that failed because of a lock, by RFC 9457, for any framework.

They contain nothing of the errors' own texts, which name nodes, holders and locks that callers should not see.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from redlock_async.errors import (
    ConfigurationError,
    HoldUnconfirmed,
    LockLost,
    LockTimeout,
    QuorumUnavailable,
    RedlockError,
    StaleFence,
    short_repr,
)

MEDIA_TYPE = "application/problem+json"

ERRORS: tuple[type[RedlockError], ...] = (LockTimeout, QuorumUnavailable, LockLost, StaleFence)
"""The errors that become problem responses. All others are mistakes in the service, and pass unchanged."""

LONGEST_RETRY = 3600
"""The largest `Retry-After`, in seconds, because another program's key under the lock's name may last for years."""

HELD = "This resource is locked by another request. Try again later."
UNAVAILABLE = "Locking is temporarily unavailable. Try again later."
LOST = "The request was interrupted because its lock was lost. The operation may be partially complete."
STALE = "A later request has taken the place of this one, whose changes were rejected. You may send it again."
DONE = (
    "The operation is complete. Do not repeat the request: the protection against repeated runs could not be confirmed."
)


SCHEMA: dict[str, Any] = {
    "title": "RedlockProblem",
    "description": "Why a request failed because of a lock (RFC 9457).",
    "type": "object",
    "required": ["type", "title", "status", "detail", "reason"],
    "properties": {
        "type": {"type": "string", "format": "uri-reference", "default": "about:blank"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "reason": {"type": "string", "enum": ["held", "unavailable", "lost", "hold_unconfirmed", "stale"]},
    },
}
"""The body of a problem response, as JSON Schema."""

RETRY_AFTER: dict[str, Any] = {"description": "Whole seconds.", "schema": {"type": "integer", "minimum": 1}}


@dataclass(frozen=True, slots=True)
class Problem:
    """A response to a request that failed."""

    status: int
    headers: Mapping[str, str]
    body: str


class Problems:
    """Turns errors into responses, with a status for each kind of error."""

    def __init__(self, *, held: int, unavailable: int, lost: int, stale: int) -> None:
        statuses = {"held": held, "unavailable": unavailable, "lost": lost, "stale": stale}
        for option, status in statuses.items():
            if isinstance(status, bool) or not isinstance(status, int) or not 400 <= status <= 599:  # noqa: PLR2004 - HTTP
                raise ConfigurationError(f"{option} must be an HTTP status from 400 to 599, got {short_repr(status)}")
        self._held = held
        self._unavailable = unavailable
        self._lost = lost
        self._stale = stale

    def of(self, error: Exception) -> Problem:
        """Return the response to a request that ended with one of `ERRORS`."""
        if isinstance(error, LockTimeout):
            # Rounded up, so that the holder's lease has expired by then. If that time is unknown, or the lock is free,
            # a second is the best estimate.
            seconds = math.ceil(min(max(error.retry_after or 0, 1), LONGEST_RETRY))
            return _problem(self._held, "held", HELD, {"Retry-After": str(seconds)})
        if isinstance(error, LockLost):
            return _problem(self._lost, "lost", LOST)
        if isinstance(error, StaleFence):
            return _problem(self._stale, "stale", STALE)
        if isinstance(error, HoldUnconfirmed):
            return _problem(self._lost, "hold_unconfirmed", DONE)
        return _problem(self._unavailable, "unavailable", UNAVAILABLE)

    def responses(self, schema: str) -> dict[str, dict[str, Any]]:
        """Return the responses as OpenAPI objects, by status; `schema` is the reference to `SCHEMA`."""
        described: dict[int, list[str]] = {}
        for status, detail in (
            (self._held, HELD),
            (self._unavailable, UNAVAILABLE),
            (self._lost, LOST),
            (self._stale, STALE),
        ):
            described.setdefault(status, []).append(detail)
        content = {MEDIA_TYPE: {"schema": {"$ref": schema}}}
        found: dict[str, dict[str, Any]] = {
            str(status): {"description": " Or: ".join(details), "content": content}
            for status, details in described.items()
        }
        found[str(self._held)]["headers"] = {"Retry-After": RETRY_AFTER}
        return found


def refused(status: int, detail: str) -> Problem:
    """Return the response to a request whose values cannot be part of a lock's name."""
    return _problem(status, "name", detail)


def _problem(status: int, reason: str, detail: str, headers: Mapping[str, str] | None = None) -> Problem:
    title = HTTPStatus(status).phrase if status in set(HTTPStatus) else "Error"
    members = {"type": "about:blank", "title": title, "status": status, "detail": detail, "reason": reason}
    return Problem(status, headers or {}, json.dumps(members))
