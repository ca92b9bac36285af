"""Redlock for asyncio over N independent Redis or Valkey masters.

Modules whose names begin with an underscore are internal; everything public is listed in `__all__`.
"""

from __future__ import annotations

from typing import Any

from ._errors import (
    ConfigurationError,
    KeyConflict,
    LockLost,
    LockTimeout,
    NotHeld,
    QuorumUnavailable,
    RedlockError,
)
from ._operators import Holder, NodeStatus
from .client import DefaultRedlock, Redlock
from .events import Event, Statistics
from .lease import Lease
from .lock import Lock

__all__ = [
    "ConfigurationError",
    "Event",
    "Holder",
    "KeyConflict",
    "Lease",
    "Lock",
    "LockLost",
    "LockTimeout",
    "NodeStatus",
    "NotHeld",
    "QuorumUnavailable",
    "Redlock",
    "RedlockError",
    "Statistics",
    "redlock",
]

redlock: Redlock = DefaultRedlock()
"""A client from REDLOCK_NODES and the other REDLOCK_... variables, made at its first use."""


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version  # noqa: PLC0415 - read only when asked for

        return version("redlock-async")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
