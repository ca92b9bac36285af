"""Turn a writer's lease into a reader's, with no moment between them in which another writer could come in."""

from __future__ import annotations

from collections.abc import Callable

from redlock_async._kinds.rwlock import Write
from redlock_async._rounds.context import Context
from redlock_async._rounds.round import Round
from redlock_async._rules.lease_timing import Phase
from redlock_async._rules.quorum import Verdict
from redlock_async._transport.commands import Command
from redlock_async.errors import LockLost

from .held_lease import EVERYWHERE, HeldLease, caller
from .lease_registry import give_back
from .session import Session


class DowngradeRound(Round):
    """Turn a writer into a reader on every node that has it. Until the outcome is known, no registry keeps either."""

    operation = "downgrade"
    waiting = 0

    def __init__(self, context: Context, command: Command, timeout: float, on_closed: Callable[[], None]) -> None:
        super().__init__(context, command, timeout)
        self._on_closed = on_closed

    def read(self, node: int, reply: object) -> bool:  # noqa: ARG002 - Round's signature
        return reply == 1

    # As a `Waiter`, to learn that the client is closed

    def on_remote_change(self, node: int, key: bytes | None) -> None:
        """The replies say what has changed."""

    def wake(self, key: bytes | None = None) -> None:
        """The replies say what has changed."""

    def close(self) -> None:
        """The client is closed."""
        self._on_closed()


async def downgrade(session: Session, writing: HeldLease) -> HeldLease:
    """Return the read lease; raise LockLost or QuorumUnavailable, and release both, if no majority has made it."""
    context, registry, kind = session.context, session.registry, writing.kind
    registry.require_held(writing, "downgrade")
    await registry.connect(writing)
    registry.require_held(writing, "downgrade")
    assert isinstance(kind, Write)  # noqa: S101 - what WriteLock makes
    # Nothing runs between this and the sending: a task that gets the turn now asks the nodes after it.
    reading = registry.convert(writing, kind.as_reader())

    def release_reader() -> None:
        give_back(context, reading.kind, reading.token, reading.sent_mask)

    def release_both() -> None:
        if writing.takeover_delay:
            return  # this is a loss
        # Behind the command that turns one into the other.
        release_reader()
        give_back(context, kind, writing.token, writing.sent_mask)

    command = kind.downgrade(writing.token, writing.fence, writing.key_ms(writing.ttl))
    round_ = DowngradeRound(context, command, min(context.node_timeout, writing.ttl / 4), release_both)
    context.wakeups.watch(kind.watched_keys, round_)
    round_.ask_all()
    try:
        verdict = await round_.outcome
    except BaseException:
        round_.abandon()
        release_reader()
        writing.end(Phase.RELEASED)
        registry.discard(writing)
        writing.wake_watchers()
        raise
    finally:
        context.wakeups.unwatch(kind.watched_keys, round_)
    if verdict is Verdict.WON and not context.closed and reading.confirm(round_.started_at, context.now(), reading.ttl):
        reading.set_votes(round_.granted_mask)
        registry.add(reading)
        registry.set_owner(reading, caller())
        # Readers of this process were woken when the writer was forgotten. A node that had to be sent the script lets
        # them in only now.
        session.own_change(kind.keys[0])
        # Where the lock still stands as a writer's, it would be in its own way, and nothing would release it.
        elsewhere = 0 if writing.sent_mask & EVERYWHERE else ~writing.sent_mask
        context.send_to_all(
            kind.release(writing.token), writing.ttl + writing.takeover_delay, but=round_.granted_mask | elsewhere
        )
        writing.wake_watchers()
        return reading
    if not writing.takeover_delay:
        release_reader()
    writing.reopen(context.now())
    why = "the client was closed" if context.closed else "too few nodes still held it, in time,"
    registry.lose(writing, f"{why} when it was downgraded", "downgrade", at_once=True)
    if verdict is Verdict.UNREACHABLE and not context.closed:
        raise round_.unavailable(f"could not downgrade the lock on {writing.names_repr}", kind.names)
    assert writing.lost_by is not None  # noqa: S101 - just set
    raise LockLost(*writing.lost_by.args, names=kind.names)
