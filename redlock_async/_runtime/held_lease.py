"""One hold of a lock as the client keeps it: its deadline and state, where it is held, and the callbacks for its end.

It only knows its own state. `LeaseRegistry` releases it, renews it, and decides when it is lost.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable
from contextvars import ContextVar
from copy import copy
from typing import Protocol
from weakref import ref

from redlock_async._kinds.kind import LockKind
from redlock_async._rounds.context import Context
from redlock_async._rounds.round import quoted
from redlock_async._rules.lease_timing import HELD, LeaseTiming, Phase
from redlock_async._rules.settings import GRACE, Options
from redlock_async.errors import LockLost, NotHeld
from redlock_async.events import Reason

END_STATES = {
    Phase.RELEASED: "this lease was already released",
    Phase.DETACHED: "this lease was handed over with detach()",
    Phase.DOWNGRADED: "this lease was turned into a read lease by downgrade()",
}
"""Why a lease is not held any more that was not lost."""

EVERYWHERE = 1 << 63
"""A bit besides the bits of the nodes that we sent the lock to: it came from elsewhere, and any node may hold it."""

acting_for: ContextVar[threading.Thread | None] = ContextVar("redlock_acting_for", default=None)
"""The thread that a task of the blocking API acts for. The thread owns what the task acquires."""

Caller = asyncio.Task[object] | threading.Thread


def caller(loop: asyncio.AbstractEventLoop | None = None) -> Caller | None:
    """Return the task or thread that owns what is acquired now, on the running loop; faster if that is given."""
    return acting_for.get() or asyncio.current_task(loop)


def kind_of(who: Caller | None) -> str:
    """Return what the caller is, for a message."""
    return "thread" if isinstance(who, threading.Thread) else "task"


class HeldLease(LeaseTiming):
    """A lease that is held, or was."""

    __slots__ = (
        "_loss_callbacks", "_owner", "_watchers", "acquired_at", "context", "depth", "ending", "fence", "freed", "kind",
        "lost_by", "min_hold", "owns_local_turn", "reentrant", "registered", "retry_failed", "sent_mask", "token",
        "votes",
    )  # fmt: skip

    def __init__(
        self,
        context: Context,
        kind: LockKind,
        token: bytes,
        fence: int | None,
        options: Options,
        granted_at: float,
    ) -> None:
        LeaseTiming.__init__(  # as super() does, at a third of its cost
            self,
            granted_at,
            options.ttl,
            context.drift_factor,
            renews=options.renew,
            most=options.max_hold,
            grace=GRACE,
            takeover_delay=options.takeover_delay,
        )
        self.context = context
        self.kind = kind
        self.token = token
        self.fence = fence
        self.acquired_at = granted_at
        self.min_hold = options.min_hold
        self.retry_failed = options.retry_failed
        self.votes = 0
        """Bit mask of the nodes known to hold it."""
        self.sent_mask = EVERYWHERE
        """Bit mask of the nodes that need a release, perhaps with EVERYWHERE."""
        self.owns_local_turn = False
        """Whether other tasks of the process that want the lock wait for the end of this lease."""
        self.registered = False
        """Whether the registry renews it."""
        self.depth = 1
        """How often its owner has entered it."""
        self.reentrant = options.reentrant
        self._owner: ref[Caller] | None = None
        """Weak, because a lease may outlive its task by far."""
        self.lost_by: LockLost | None = None
        self.freed = False
        """Whether it was lost because a majority of the nodes has been freed of it, by force."""
        self.ending = False
        """Whether it has ended here, and the nodes have not confirmed that yet: it may turn out to be lost."""
        self._loss_callbacks: list[Callable[[], None]] | None = None
        self._watchers: list[asyncio.Future[None]] | None = None

    def on_acquired(self, owner: Caller | None, sent: int, granted: int, *, owns_local_turn: bool) -> None:
        """It was acquired here: sent to the nodes in one bit mask, and granted by those in the other."""
        self.sent_mask, self.votes, self.owns_local_turn = sent, granted, owns_local_turn
        if owner is not None:
            self._owner = ref(owner)

    # Owner and votes

    @property
    def owner(self) -> Caller | None:
        """The task or thread that acquired it, while that exists."""
        return None if self._owner is None else self._owner()

    def set_owner(self, who: Caller | None) -> None:
        """Note who acquired it; None if it has no owner any more."""
        self._owner = None if who is None else ref(who)

    def belongs_to(self, who: Caller | None) -> bool:
        """Whether that task or thread acquired it."""
        return who is not None and self._owner is not None and self._owner() is who

    def on_vote(self, bit: int) -> None:
        """A node, by its bit, holds it."""
        self.votes |= bit

    def on_vote_lost(self, bit: int) -> None:
        """A node, by its bit, does not hold it any more."""
        self.votes &= ~bit

    def set_votes(self, nodes: int) -> None:
        """Exactly those nodes (a bit mask) hold it."""
        self.votes = nodes

    def on_sent(self, nodes: int) -> None:
        """It was sent to those nodes (a bit mask), which need a release."""
        self.sent_mask |= nodes

    @property
    def spare_votes(self) -> int:
        """How many nodes beyond the quorum hold it."""
        return max(self.votes.bit_count() - self.context.quorum, 0)

    @property
    def valid(self) -> bool:
        """Whether no other client can hold the lock now."""
        return self.context.now() < self.until

    @property
    def lost(self) -> bool:
        """Whether it ended without a release."""
        return self.phase is Phase.LOST or (self.phase is HELD and not self.valid and self.confirmed)

    @property
    def names_repr(self) -> str:
        """Its names as they appear in messages."""
        return quoted(self.kind.names)

    def min_hold_left(self, now: float) -> float:
        """Seconds for which the name stays locked if the lease ends at that time, because of `min_hold`."""
        return max(self.min_hold - (now - self.acquired_at), 0.0) if self.min_hold else 0.0

    def min_hold_ms(self) -> int:
        """The same in milliseconds, if the lease ends now."""
        return math.ceil(self.min_hold_left(self.context.now()) * 1000) if self.min_hold else 0

    def on_block_failure(self) -> None:
        """The block under it raised, or was cancelled."""
        if self.retry_failed:
            self.drop_min_hold()

    def drop_min_hold(self) -> None:
        """Let the name be free as soon as the lease is released."""
        self.min_hold = 0.0

    # The end

    def error_unless_held(self, verb: str) -> NotHeld | LockLost | None:
        """Return why `verb` is not possible; None if the lease is held, or its end is only due."""
        if self.context.inherited:
            return NotHeld(
                f"cannot {verb} the lock on {self.names_repr} in a forked child: the parent process owns this lease. "
                "Use detach() to transfer one",
                names=self.kind.names,
            )
        if self.phase is Phase.LOST:
            assert self.lost_by is not None  # noqa: S101 - set with the phase
            return LockLost(*self.lost_by.args, names=self.kind.names)
        if self.phase is not HELD:
            state = END_STATES[self.phase]
            return NotHeld(f"cannot {verb} the lock on {self.names_repr}: {state}", names=self.kind.names)
        return None

    def end(self, phase: Phase) -> float:
        """End it in that way, without a loss; return what its deadline was."""
        self.phase = phase
        self.ending = True
        until, self.until = self.until, -math.inf
        return until

    def reopen(self, until: float) -> None:
        """Hold it again until then: the downgrade that ended it has failed."""
        self.phase, self.until = HELD, until

    def invalidate(self) -> None:
        """Let its validity end, which was left to the cleanup of its block."""
        self.until = -math.inf

    def mark_lost(self, error: LockLost, reason: Reason) -> None:
        """Note that it was lost, and by what."""
        self.phase = Phase.LOST
        self.lost_by = error
        self.freed = reason in {"taken", "missing_at_release"}

    def add_loss_callback(self, callback: Callable[[], None]) -> None:
        """Call back once when the lease is lost."""
        if self._loss_callbacks is None:
            self._loss_callbacks = []
        self._loss_callbacks.append(callback)

    def remove_loss_callback(self, callback: Callable[[], None]) -> None:
        """Undo `add_loss_callback`."""
        if self._loss_callbacks is not None and callback in self._loss_callbacks:
            self._loss_callbacks.remove(callback)

    def notify_loss(self) -> None:
        """Call everything that is to be called when the lease is lost."""
        callbacks, self._loss_callbacks = self._loss_callbacks, None
        for callback in callbacks or ():
            callback()
        self.wake_watchers()

    def wake_watchers(self) -> None:
        """Wake the tasks that wait for the end of the lease: it is final."""
        self.ending = False
        if self._watchers is not None:
            watchers, self._watchers = self._watchers, None
            for watcher in watchers:
                if not watcher.done():
                    watcher.set_result(None)

    async def ended(self) -> None:
        """Wait for the end of the lease."""
        watcher: asyncio.Future[None] = self.context.loop.create_future()
        if self._watchers is None:
            self._watchers = []
        self._watchers.append(watcher)
        try:
            await watcher
        finally:
            if self._watchers is not None and watcher in self._watchers:
                self._watchers.remove(watcher)

    # Changing hands

    def on_registered(self) -> None:
        """The registry renews it from now on."""
        self.registered = True

    def on_forgotten(self) -> None:
        """The registry does not renew it any more, and has passed on its turn."""
        self.registered = self.owns_local_turn = False

    def unconfirm(self) -> None:
        """It came from another machine: it has no deadline here until a quorum has confirmed it."""
        self.confirmed = False
        self.until = -math.inf

    def resume(self, until: float) -> None:
        """It was detached on this machine: it is held until then, at most, and due for a renewal."""
        self.until = min(until, self.until)
        self.next_at = self.context.now()

    def as_kind(self, kind: LockKind) -> HeldLease:
        """Return the same hold as another kind of lock, which is not registered yet."""
        other = copy(self)
        other._become(kind)  # noqa: SLF001 - a copy of ourselves
        return other

    def _become(self, kind: LockKind) -> None:
        self.kind = kind
        self.owns_local_turn = self.registered = False
        self.votes = 0
        self._loss_callbacks = self._watchers = None
        self._owner = None

    def enter_again(self) -> None:
        """Its owner has entered it once more."""
        self.depth += 1

    def leave_once(self) -> None:
        """Its owner has left it once, and holds it still."""
        self.depth -= 1


class OnLost(Protocol):
    """Ends a lease without a release."""

    def __call__(self, lease: HeldLease, why: str, reason: Reason, *, at_once: bool) -> None:
        """End it because of `why`. If not at once, its deadline is near, and the rest is left to cleanup."""
