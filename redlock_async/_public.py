"""The public names, gathered from where they are made: `redlock_async` has them from here when one is first used."""

from __future__ import annotations

from ._errors import (
    ConfigurationError,
    KeyConflict,
    LockLost,
    LockTimeout,
    NotHeld,
    QuorumUnavailable,
    RedlockError,
)
from ._health import Health
from ._operators import Holder, NodeStatus
from ._permits import SemaphoreStatus
from ._records import LockRecord
from ._settings import HoldOptions, LockOptions
from .client import DefaultRedlock, Redlock
from .events import Answer, Event, Statistics
from .fair import FairLock
from .latch import Latch
from .lease import Lease
from .lock import Lock
from .once import Once
from .rwlock import ReadLock, WriteLease, WriteLock
from .semaphore import Semaphore

__all__ = [
    "Answer",
    "ConfigurationError",
    "Event",
    "FairLock",
    "Health",
    "HoldOptions",
    "Holder",
    "KeyConflict",
    "Latch",
    "Lease",
    "Lock",
    "LockLost",
    "LockOptions",
    "LockRecord",
    "LockTimeout",
    "NodeStatus",
    "NotHeld",
    "Once",
    "QuorumUnavailable",
    "ReadLock",
    "Redlock",
    "RedlockError",
    "Semaphore",
    "SemaphoreStatus",
    "Statistics",
    "WriteLease",
    "WriteLock",
    "redlock",
]

redlock: Redlock = DefaultRedlock()
"""A client from REDLOCK_NODES and the other REDLOCK_... variables, made at its first use."""
