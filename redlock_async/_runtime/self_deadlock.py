"""Errors and warnings for a task that waits for a lock it holds itself: such a wait never ends."""

from __future__ import annotations

from redlock_async._kinds.kind import LockKind
from redlock_async._rounds.round import quoted
from redlock_async.errors import ConfigurationError
from redlock_async.events import logger

from .held_lease import HeldLease, caller, kind_of
from .lease_registry import LeaseRegistry


def own_read_leases(registry: LeaseRegistry, kind: LockKind) -> list[HeldLease]:
    """Return the caller's own shared leases on names that `kind` wants."""
    leases = registry.shared_leases_of(caller())
    return [lease for lease in leases if lease.kind.watched_keys[0] in kind.watched_keys and lease.valid]


def reject_self_deadlock(registry: LeaseRegistry, kind: LockKind) -> None:
    """Raise ConfigurationError for a caller that holds a read lease on a name and wants an exclusive lock on it."""
    if own := own_read_leases(registry, kind):
        raise ConfigurationError(
            f"cannot lock {quoted(kind.names)}: this {kind_of(caller())} already holds a read lease on "
            f"{own[0].names_repr}, which cannot be upgraded, so it would wait for itself (deadlock). Release it first, "
            "or start with write_lock() and downgrade()",
            names=kind.names,
        )


def warn_self_deadlock(registry: LeaseRegistry, kind: LockKind) -> None:
    """Log a warning for a caller that waits without a limit, and will never get an error.

    It is no error yet: another task may be about to release the lease.
    """
    others_may_leave = kind.label == "semaphore" and not kind.keeps_local_turn
    if not others_may_leave and (why := advice(registry, kind)):
        logger.warning("redlock: waiting forever (wait=None) for %s%s", quoted(kind.names), why)


def advice(registry: LeaseRegistry, kind: LockKind) -> str:
    """Return what to add to an error about a wait, if the caller waited for itself."""
    taken = [lease for key in kind.watched_keys if (lease := registry.get(key)) is not None]
    who = caller() if taken else None
    own = [lease for lease in taken if lease.belongs_to(who)]
    if not own:
        return ""
    task, lease = kind_of(who), own[0]
    if kind.label == "semaphore":
        return f"; this {task} holds {len(own)} of its slots itself"
    held = f", which this {task} already holds (self-deadlock)"
    if kind.label == lease.kind.label == "lock":
        if kind.names == lease.kind.names:
            return f"{held}. Pass reentrant=True to both locks to let a {task} enter again"
        return f"{held}. reentrant=True only covers a lock on the same names"
    if kind.label == "read" and lease.kind.label == "write":
        return f"{held}. downgrade() turns a write lease into a read lease"
    return held
