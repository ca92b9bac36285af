"""The public names, gathered from their modules; `redlock_async` imports them from here on first use."""

from __future__ import annotations

from redlock_async._admin.health import Health
from redlock_async._admin.leader import Leader
from redlock_async._admin.permits import SemaphoreStatus
from redlock_async._admin.records import LockRecord
from redlock_async._admin.status import Holder, NodeStatus
from redlock_async._rules.settings import HoldOptions, LockOptions

from .client import DefaultRedlock, Redlock
from .election import Election
from .errors import (
    ConfigurationError,
    HoldUnconfirmed,
    LockLost,
    LockTimeout,
    NotHeld,
    QuorumUnavailable,
    RedlockError,
    StaleFence,
    WrongKeyType,
)
from .events import Event, NodeReply, Statistics
from .latch import Latch
from .lease import Lease
from .locks import FairLock, Lock, ReadLock, Semaphore, WriteLease, WriteLock
from .once import Once

__all__ = [
    "ConfigurationError",
    "Election",
    "Event",
    "FairLock",
    "Health",
    "HoldOptions",
    "HoldUnconfirmed",
    "Holder",
    "Latch",
    "Leader",
    "Lease",
    "Lock",
    "LockLost",
    "LockOptions",
    "LockRecord",
    "LockTimeout",
    "NodeReply",
    "NodeStatus",
    "NotHeld",
    "Once",
    "QuorumUnavailable",
    "ReadLock",
    "Redlock",
    "RedlockError",
    "Semaphore",
    "SemaphoreStatus",
    "StaleFence",
    "Statistics",
    "WriteLease",
    "WriteLock",
    "WrongKeyType",
    "redlock",
]

redlock: Redlock = DefaultRedlock()
"""A client that reads REDLOCK_NODES and the other REDLOCK_... variables on first use."""
