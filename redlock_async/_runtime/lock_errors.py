"""The errors of an acquire that has waited in vain, as users read them."""

from __future__ import annotations

from collections.abc import Sequence

from redlock_async._kinds.kind import LockKind
from redlock_async._rounds.context import Context
from redlock_async._rounds.round import no_quorum_reason, quoted
from redlock_async._rules.token import is_expired, owner_of
from redlock_async.errors import LockTimeout, QuorumUnavailable

from .held_lease import HeldLease


def could_not_lock(names: Sequence[str], wait: float | None = None) -> str:
    """Begin the message of an acquire that failed after `wait` seconds."""
    return f"could not lock {quoted(names)}" + (f" after waiting {wait:g} s" if wait else "")


def timed_out(
    names: Sequence[str],
    wait: float | None,
    token: bytes | None,
    advice: str,
    *,
    ahead: bool = False,
    retry_after: float | None,
) -> LockTimeout:
    """The wait is over; `token` is the holder's, or a waiter's who is `ahead`."""
    holder = owner_of(token)
    if not ahead and retry_after is not None and is_expired(token, retry_after):
        message = (
            f"{could_not_lock(names, wait)}: nobody holds it any more, but it stays locked for another "
            f"{retry_after:.1f} s after its last holder, {holder or 'another client'} (takeover_delay)"
        )
        return LockTimeout(message, names=names, retry_after=retry_after)
    by = f"{'behind' if ahead else 'held by'} {holder or 'another client'}"
    message = f"{could_not_lock(names, wait)}: {by}{advice}"
    return LockTimeout(message, names=names, holder=holder, retry_after=retry_after)


def held_here(context: Context, kind: LockKind, wait: float | None, lease: HeldLease, advice: str) -> LockTimeout:
    """The wait is over, and this process holds the lock."""
    ends_in = max(lease.runs_out_at + context.round_trip - context.now(), 0.0)
    return timed_out(kind.names, wait, lease.token, advice, retry_after=ends_in)


def queued_in_vain(context: Context, kind: LockKind, wait: float | None) -> Exception:
    """The wait is over, and none of the tasks of this process that queued in front knows why."""
    nodes, what = context.group_of(kind.watched_keys[0]), could_not_lock(kind.names, wait)
    causes = {
        node.label: why for node in nodes if (why := nodes.objection(node) if node.ready else node.cause) is not None
    }
    voters = len(nodes) - len(causes)
    if voters >= context.quorum:
        return LockTimeout(f"{what}: queued behind another task of this process", names=kind.names)
    why_not = no_quorum_reason(voters, len(nodes), context.quorum, causes)
    return QuorumUnavailable(f"{what}: {why_not}", names=kind.names, nodes=causes)


def queued_behind(kind: LockKind, wait: float | None, names: Sequence[str]) -> str:
    """The message for a task that queued behind one of its process that waits for other names as well."""
    together = " together" if len(names) > 1 else ""
    behind = f"queued behind another task in this process that is waiting to lock {quoted(names)}{together}"
    return f"{could_not_lock(kind.names, wait)}: {behind}"
