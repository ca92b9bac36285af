"""One lease as the engine keeps it: its deadline, where it is held, and whom to tell when it ends."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable
from contextvars import ContextVar
from copy import copy
from typing import TYPE_CHECKING, Protocol
from weakref import WeakKeyDictionary, ref

from ._errors import LockLost, NotHeld, QuorumUnavailable
from ._lease import Phase, Term
from ._quorum import Verdict
from ._settings import GRACE, Options, Settings
from ._world import World
from .events import Reason

if TYPE_CHECKING:
    from ._acquire import Released
    from ._claim import Claim


OVER = {
    Phase.RELEASED: "was released before",
    Phase.DETACHED: "was handed on by detach()",
    Phase.DOWNGRADED: "was turned into a read lease by downgrade()",
}
"""Why a lease is not held any more that was not lost."""


EVERYWHERE = (1 << 63) - 1
"""For a lease that came from elsewhere, of which nobody knows where it may be held."""

acting_for: ContextVar[threading.Thread | None] = ContextVar("redlock_acting_for", default=None)
"""The thread a task of ours acts for: then it is the thread, which no loop knows, that has what the task acquires."""

Caller = asyncio.Task[object] | threading.Thread


def caller() -> Caller | None:
    """Who holds what is acquired now."""
    return acting_for.get() or asyncio.current_task()


def kind_of(who: Caller | None) -> str:
    """What it is, for a message."""
    return "thread" if isinstance(who, threading.Thread) else "task"


class Keeper(Protocol):
    """What a holding needs of the client it is for."""

    loop: asyncio.AbstractEventLoop
    world: World
    now: Callable[[], float]
    settings: Settings
    drift_factor: float
    needed: int
    reading: WeakKeyDictionary[Caller, dict[Holding, None]]
    inherited: bool
    """Whether this process was forked since, and the lease is its parent's."""

    def end(self, holding: Holding, *, until: float = -math.inf, retain_ms: int = 0) -> Released:
        """Send its release, and forget it. `until` is what its deadline was."""
        ...

    def forget(self, holding: Holding) -> None:
        """Stop keeping it, and let the next in this process have its turn."""

    def lost(self, holding: Holding, error: LockLost, reason: Reason) -> None:
        """Report the loss."""

    def unconfirmed(self, holding: Holding, error: QuorumUnavailable) -> None:
        """Report a release that too few masters confirmed."""

    async def extend(self, holding: Holding, ttl: float) -> None:
        """Confirm it on a quorum with that ttl, or raise LockLost."""


class Holding(Term):
    """A lease that stands, or stood."""

    __slots__ = (
        "_caller",
        "_on_loss",
        "_watchers",
        "acquired_at",
        "claim",
        "depth",
        "fence",
        "hold_at_least",
        "keeper",
        "kept",
        "lost_by",
        "owned_turn",
        "reached",
        "reentrant",
        "retry_failed",
        "token",
        "votes",
    )  # fmt: skip

    def __init__(
        self,
        keeper: Keeper,
        claim: Claim,
        token: bytes,
        fence: int | None,
        options: Options,
        granted_at: float,
        *,
        reached: int = EVERYWHERE,
        votes: int = 0,
    ) -> None:
        super().__init__(
            granted_at, options.ttl, keeper.drift_factor, renews=options.renew, most=options.max_hold, grace=GRACE
        )
        self.keeper = keeper
        self.claim = claim
        self.token = token
        self.fence = fence
        self.acquired_at = granted_at
        self.hold_at_least = options.hold_at_least
        self.retry_failed = options.retry_failed
        self.votes = votes
        """Bit mask of the nodes known to hold it."""
        self.reached = reached
        """Bit mask of the nodes that must be told to release it."""
        self.owned_turn = False
        self.kept = False
        """Whether its keeper sees to it."""
        self.depth = 1
        self.reentrant = options.reentrant
        self._caller: ref[Caller] | None = None
        """Who took it: weakly, for a lease may outlive its task by far."""
        self.lost_by: LockLost | None = None
        self._on_loss: list[Callable[[], None]] | None = None
        self._watchers: list[asyncio.Future[None]] | None = None

    def taken_by(self, who: Caller | None) -> None:
        """That one has acquired it, or nobody any more."""
        if self.claim.shared:
            reading, before = self.keeper.reading, None if self._caller is None else self._caller()
            if before is not None and (own := reading.get(before)) is not None:
                own.pop(self, None)
                if not own:
                    del reading[before]
            if who is not None:
                reading.setdefault(who, {})[self] = None
        self._caller = None if who is None else ref(who)

    def belongs_to(self, who: Caller | None) -> bool:
        """Whether that one has acquired it."""
        return who is not None and self._caller is not None and self._caller() is who

    def also_held_by(self, node: int) -> None:
        """That one, by its bit, has granted it as well."""
        self.votes |= node

    @property
    def margin(self) -> int:
        """Nodes held beyond the quorum."""
        return max(self.votes.bit_count() - self.keeper.needed, 0)

    @property
    def valid(self) -> bool:
        """Whether nobody else can hold it now."""
        return self.keeper.now() < self.until

    @property
    def lost(self) -> bool:
        """Whether it ended without a release."""
        return self.phase is Phase.LOST or (self.phase is Phase.HELD and not self.valid and self.confirmed)

    @property
    def shown(self) -> str:
        """Its names as they stand in a message."""
        return ", ".join(map(repr, self.claim.names))

    # Loss

    def on_loss(self, callback: Callable[[], None]) -> None:
        """Call that once when the lease is lost."""
        if self._on_loss is None:
            self._on_loss = []
        self._on_loss.append(callback)

    def no_longer(self, callback: Callable[[], None]) -> None:
        """Take back `on_loss`."""
        if self._on_loss is not None and callback in self._on_loss:
            self._on_loss.remove(callback)

    def lose(self, why: str, reason: Reason, *, at_once: bool) -> None:
        """The lease ends without a release. Not at once: its time is nearly up, and what is left is for cleanup."""
        if self.phase is not Phase.HELD:
            return
        self.phase = Phase.LOST
        self.lost_by = LockLost(f"the lock on {self.shown} was lost: {why}", names=self.claim.names)
        if at_once or not self.valid:
            self.over()
        self.keeper.lost(self, self.lost_by, reason)
        callbacks, self._on_loss = self._on_loss, None
        for callback in callbacks or ():
            callback()
        watchers, self._watchers = self._watchers, None
        for watcher in watchers or ():
            if not watcher.done():
                watcher.set_result(None)

    def over(self) -> None:
        """A lost lease is not valid any more: free what may be left of it."""
        if self.until != -math.inf:
            # What max_hold has ended, or a ttl that is not renewed, is a body that was long enough, not a lock that
            # somebody else may have by now.
            kept_ms = self._kept_ms() if self.capped or not self.renews else 0
            self.until = -math.inf
            self.keeper.end(self, retain_ms=kept_ms)

    def failed(self) -> None:
        """The body raised, or was cancelled."""
        if self.retry_failed:
            self.hold_at_least = 0.0

    def kept_for(self, now: float) -> float:
        """Seconds for which the name is to stay locked after an end at that time, for `hold_at_least`."""
        return max(self.hold_at_least - (now - self.acquired_at), 0.0) if self.hold_at_least else 0.0

    def _kept_ms(self) -> int:
        return math.ceil(self.kept_for(self.keeper.now()) * 1000)

    def check(self) -> None:
        """Notice a deadline that passed while nobody looked."""
        if self.phase is Phase.HELD and self.confirmed and not self.valid and not self.keeper.inherited:
            why = "its deadline passed while the event loop was blocked or the machine was paused"
            self.lose(why, "blocked", at_once=True)

    async def wait_lost(self) -> None:
        """Return when it is lost; for ever if it is released before."""
        self.check()
        if self.phase is Phase.LOST:
            return
        watcher: asyncio.Future[None] = self.keeper.loop.create_future()
        if self._watchers is None:
            self._watchers = []
        self._watchers.append(watcher)
        try:
            await watcher
        finally:
            if self._watchers is not None and watcher in self._watchers:
                self._watchers.remove(watcher)

    # Release and extension

    def require_held(self, verb: str) -> None:
        """Raise LockLost or NotHeld unless it is held."""
        if self.phase is Phase.HELD and not self.keeper.inherited and self.keeper.now() < self.until:
            return
        if self.keeper.inherited:
            raise NotHeld(
                f"cannot {verb} the lock on {self.shown}: this lease is the parent process's; detach() hands one on",
                names=self.claim.names,
            )
        self.check()
        if self.phase is Phase.LOST:
            assert self.lost_by is not None  # noqa: S101 - set with the phase
            raise LockLost(*self.lost_by.args, names=self.claim.names)
        if self.phase is not Phase.HELD:
            state = OVER[self.phase]
            raise NotHeld(f"cannot {verb} the lock on {self.shown}: this lease {state}", names=self.claim.names)

    async def release(self) -> None:
        """Give it back on every node."""
        self.require_held("release")
        if self.depth > 1:
            self.depth -= 1
            return
        keeper = self.keeper
        self.phase = Phase.RELEASED
        until, self.until = self.until, -math.inf
        round_ = keeper.end(self, until=until, retain_ms=self._kept_ms())
        if await round_.outcome is Verdict.WON:
            return
        if round_.refused > round_.spare:
            self.phase = Phase.LOST
            self.lost_by = LockLost(
                f"the lock on {self.shown} was not held by a quorum any more when it was released: "
                "it was deleted, overwritten or evicted on the nodes",
                names=self.claim.names,
            )
            keeper.lost(self, self.lost_by, "gone")
            raise self.lost_by
        error = round_.unavailable(
            f"the release of {self.shown} was sent, and what is left of it expires within the ttl",
            self.claim.names,
            "confirmed it",
        )
        keeper.unconfirmed(self, error)
        raise error

    def abandon(self) -> None:
        """A lease of it was dropped. If it was the last: stop renewing it, and let it run out on the nodes."""
        if self.depth > 1:
            self.depth -= 1
        elif self.phase is Phase.HELD:
            self.phase = Phase.RELEASED
            self.until = -math.inf
            self.keeper.forget(self)

    def hand_on(self) -> None:
        """Somebody else sees to it from here on; the nodes are not told."""
        self.require_held("detach")
        self.phase = Phase.DETACHED
        self.until = -math.inf
        self.keeper.forget(self)

    def turned_into(self, claim: Claim) -> Holding:
        """The same hold as another kind of lock, not kept yet; this one ends, and the nodes are not told."""
        self.require_held("downgrade")
        other = copy(self)
        other.claim, other.owned_turn, other.kept = claim, False, False
        other.votes, other.reached = 0, EVERYWHERE
        other._on_loss = other._watchers = None  # noqa: SLF001 - it is one of ours
        self.phase = Phase.DOWNGRADED
        self.until = -math.inf
        self.keeper.forget(self)
        return other

    async def extend(self, ttl: float) -> None:
        """Set a new deadline; with 0 seconds, confirm the old one."""
        self.require_held("extend")
        await self.keeper.extend(self, ttl)
