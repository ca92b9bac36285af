"""The leases of a client: registered by key, renewed, released and lost, and the releases that follow.

One direction: the registry acts on `HeldLease`, which knows only its own state.
"""

from __future__ import annotations

import math
from weakref import WeakKeyDictionary

from redlock_async._kinds.kind import LockKind
from redlock_async._rounds.context import Context
from redlock_async._rounds.round import Round
from redlock_async._rules.lease_timing import FIRST_CHECK, HELD, RELEASED, Phase
from redlock_async._rules.quorum import WON, Verdict
from redlock_async._transport.commands import Command
from redlock_async._transport.connection import Receiver
from redlock_async._transport.node import PRUNE_AT, Node
from redlock_async.errors import HoldUnconfirmed, LockLost, QuorumUnavailable
from redlock_async.events import Reason

from .held_lease import EVERYWHERE, Caller, HeldLease
from .local_queues import MAX_CONSECUTIVE_LEASES, LocalQueues
from .renewal import Renewals
from .retention import Retention

MIN_TTL_FOR_LAZY_CHECK = 20 * FIRST_CHECK
"""Seconds of ttl from which on an initial check may be late by its own delay."""


class LeaseRegistry:
    """The leases of one client on one event loop."""

    def __init__(self, context: Context, queues: LocalQueues) -> None:
        self._context = context
        self._queues = queues
        self._by_key: dict[bytes, HeldLease] = {}
        """The registered leases, by the keys whose change puts them in doubt."""
        self.sharing: dict[bytes, dict[HeldLease, None]] = {}
        """The shared ones, by the keys whose change puts all of them in doubt."""
        self._reading: WeakKeyDictionary[Caller, dict[HeldLease, None]] = WeakKeyDictionary()
        """The shared ones, by owner."""
        self._new: dict[HeldLease, None] = {}
        """Those that wait for their initial check, apart from those that are renewed: most end before it."""
        self._awaits_check = False
        self.count = 0
        """How many leases are held."""
        self._retentions: dict[Retention, None] = {}
        """Holds after a lease that some node has not confirmed yet."""
        self._prune_at = PRUNE_AT
        self._renewals = Renewals(
            context,
            check_deadline=self.check,
            on_lost=self.lose,
            on_expired=self.invalidate,
            on_confirmed=self.add,
            held=lambda: self.count,
        )

    # Registering

    def add(self, lease: HeldLease) -> None:
        """Register a lease, and renew it from now on."""
        lease.on_registered()
        kind, ttl = lease.kind, lease.ttl
        for key in kind.held_by(lease.token):
            self._by_key[key] = lease
        if kind.shared:
            for key in kind.revocation_keys:
                self.sharing.setdefault(key, {})[lease] = None
            self._note_owner(lease)
        self.count += 1
        if ttl < MIN_TTL_FOR_LAZY_CHECK or lease.until - self._context.now() < ttl / 2:
            self._renewals.add(lease)
            return
        self._new[lease] = None
        if not self._awaits_check:
            self._awaits_check = True
            self._context.call_later(FIRST_CHECK, self._check_new)

    def _check_new(self) -> None:
        """Check and renew the leases that are still held when their initial check is due."""
        now = self._context.now()
        # A lease that was checked already, because it was extended by hand or downgraded, is due much later.
        due = [lease for lease in self._new if not now < lease.next_at <= now + FIRST_CHECK]
        for lease in due:
            del self._new[lease]
        self._awaits_check = bool(self._new)
        if self._awaits_check:
            self._context.call_later(FIRST_CHECK / 2, self._check_new)
        self._renewals.check_new(due)

    def attach(self, lease: HeldLease, until: float | None) -> None:
        """Take over a lease that was detached; `until` is None if its deadline cannot be read on our clock."""
        if until is None:
            lease.unconfirm()
            return
        if until <= self._context.now():
            # Nothing is freed: another client may have attached it in time, and hold it still.
            lease.invalidate()
            self.lose(lease, "its time was over before it was attached", "expired", at_once=True)
            return
        # The text can say anything. A lease cannot stand for longer than after a renewal just now.
        lease.resume(until)
        self._context.membership.open()
        self.add(lease)

    def set_owner(self, lease: HeldLease, who: Caller | None) -> None:
        """Note who acquired a lease; None if it has no owner any more."""
        if lease.kind.shared and (before := lease.owner) is not None:
            own = self._reading.get(before)
            if own is not None and lease in own:
                del own[lease]
                if not own:
                    del self._reading[before]
        lease.set_owner(who)
        if lease.kind.shared:
            self._note_owner(lease)

    def _note_owner(self, lease: HeldLease) -> None:
        if (owner := lease.owner) is not None:
            self._reading.setdefault(owner, {})[lease] = None

    def forget(self, lease: HeldLease) -> None:
        """Stop renewing a lease, and give the turn to the next task of this process."""
        kind = lease.kind
        freed = kind.held_by(lease.token)
        by_key = self._by_key
        for key in freed:
            if by_key.get(key) is lease:
                del by_key[key]
        if lease.registered:
            self.count -= 1
            self._new.pop(lease, None)
            self._renewals.checks.pop(lease, None)
            if kind.shared:
                self._forget_shared(lease)
        if lease.owns_local_turn:
            for key in kind.local_queue_keys:
                self._queues.leave(key)
        lease.on_forgotten()
        # The nodes report our own changes to other clients only. The task that has just got the turn begins after this.
        context = self._context
        if kind.keeps_local_turn or context.random.random() * MAX_CONSECUTIVE_LEASES >= 1:
            context.wakeups.retry_local(kind.watched_keys, freed)
        else:
            # The next task of this process waits for the nodes already, and would always be first: see
            # MAX_CONSECUTIVE_LEASES.
            later = context.random.uniform(2, 3) * context.round_trip
            context.call_later(later, context.wakeups.retry_local, kind.watched_keys, freed)

    def _forget_shared(self, lease: HeldLease) -> None:
        self.set_owner(lease, None)
        for key in lease.kind.revocation_keys:
            sharing = self.sharing[key]
            del sharing[lease]
            if not sharing:
                del self.sharing[key]

    # Looking up

    def get(self, key: bytes) -> HeldLease | None:
        """The lease that is registered under a key."""
        return self._by_key.get(key)

    def __len__(self) -> int:
        return len(self._by_key)

    def shared_leases_of(self, who: Caller | None) -> list[HeldLease]:
        """The shared leases of that task or thread."""
        return list(self._reading.get(who, ())) if who is not None else []

    def entered_by(self, kind: LockKind, who: Caller | None) -> HeldLease | None:
        """The lease on exactly these names that this task or thread may enter again."""
        lease = self._by_key.get(kind.held_by(b"")[0])
        if lease is None or not lease.reentrant or not lease.belongs_to(who) or lease.kind.names != kind.names:
            return None
        self.check(lease)
        return lease if lease.phase is HELD else None

    def key_changed(self, key: bytes | None, nodes: int) -> None:
        """Check the leases that depend on a key, which changed on those nodes (a bit mask, -1: we changed it).

        None stands for all keys.
        """
        if key is None:
            leases = list(self._by_key.values())
        else:
            leases = [self._by_key[key]] if key in self._by_key else list(self.sharing.get(key, ()))
        for lease in leases:
            self._renewals.schedule_check(lease, nodes)

    # Extending

    async def extend(self, lease: HeldLease, ttl: float) -> None:
        """Confirm a lease on a quorum with that ttl, or raise LockLost; with 0 seconds, confirm the old deadline."""
        self.require_held(lease, "extend")
        await self.connect(lease)
        self._context.membership.use_ttl(ttl + lease.takeover_delay)
        await self._renewals.extend(lease, ttl, lambda: self.require_held(lease, "extend"))

    async def connect(self, lease: HeldLease) -> None:
        """Wait for the first connections, if that lease is what the client is used for first."""
        if not self._context.membership.usable:
            await self._context.membership.start(lease.ttl)

    # Losing

    def check(self, lease: HeldLease) -> None:
        """Notice a deadline that passed while nothing checked it."""
        if lease.phase is HELD and lease.confirmed and not lease.valid and not self._context.inherited:
            why = "its deadline passed while the event loop was blocked or the machine was paused"
            self.lose(lease, why, "blocked", at_once=True)

    def require_held(self, lease: HeldLease, verb: str) -> None:
        """Raise LockLost or NotHeld unless the lease is held."""
        context = self._context
        if lease.phase is HELD and context.now() < lease.until and not context.inherited:
            return
        self.check(lease)
        if error := lease.error_unless_held(verb):
            raise error

    def lose(self, lease: HeldLease, why: str, reason: Reason, *, at_once: bool) -> None:
        """End a lease without a release; if not at once, its deadline is near, and what is left is for cleanup."""
        if lease.phase is not HELD:
            return
        error = LockLost(f"the lock on {lease.names_repr} was lost: {why}", names=lease.kind.names)
        lease.mark_lost(error, reason)
        if at_once or not lease.valid:
            self.invalidate(lease)
        self._report_loss(lease, error, reason)
        lease.notify_loss()

    def invalidate(self, lease: HeldLease) -> None:
        """Free what may be left of a lost lease, which is not valid any more, or keep it for `takeover_delay`."""
        if lease.until == -math.inf:
            return
        # If max_hold ended it, or a ttl that is not renewed, the block was long enough for `min_hold`. Any other loss
        # means that another client may have the lock by now.
        hold_ms = lease.min_hold_ms() if lease.capped or not lease.renews else 0
        keeps = lease.takeover_delay > 0 and not lease.freed
        if keeps and (hold_ms or lease.capped):
            hold_ms = max(hold_ms, math.ceil(lease.takeover_delay * 1000))
        lease.invalidate()
        if keeps and not hold_ms:
            # A quorum has it for the delay after its deadline, since the last renewal. A client that is gone could not
            # do more either.
            self.forget(lease)
        else:
            self._end(lease, until=-math.inf, hold_ms=hold_ms)

    def _report_loss(self, lease: HeldLease, error: LockLost, reason: Reason) -> None:
        context = self._context
        context.counters.lost += 1
        held_for = context.now() - lease.acquired_at
        context.report("lost", lease.kind.names, lease.kind.label, seconds=held_for, error=error, reason=reason)

    # Releasing

    def release(self, lease: HeldLease) -> ReleaseRound | Retention | None:
        """Send the release of a lease to every node; return the round, or None if its task has entered it again.

        `check_released` is due when the round has its outcome. Raise LockLost or NotHeld if the lease is not held.
        """
        self.require_held(lease, "release")
        if lease.depth > 1:
            lease.leave_once()
            return None
        until = lease.end(RELEASED)
        return self._end(lease, until=until, hold_ms=lease.min_hold_ms() if lease.min_hold else 0)

    def check_released(self, lease: HeldLease, round_: ReleaseRound | Retention, verdict: Verdict) -> None:
        """Raise LockLost, or QuorumUnavailable if too few nodes have confirmed the release."""
        if verdict is not WON:
            raise self._release_error(lease, round_)

    def _release_error(self, lease: HeldLease, round_: ReleaseRound | Retention) -> LockLost | QuorumUnavailable:
        if round_.refused > round_.spare:
            error = LockLost(
                f"the lock on {lease.names_repr} was lost before its release: its key was deleted or replaced on a "
                "majority of nodes (force-release, eviction or flush)",
                names=lease.kind.names,
            )
            lease.mark_lost(error, "missing_at_release")
            self._report_loss(lease, error, "missing_at_release")
            return error
        if isinstance(round_, Retention):
            assert round_.error is not None  # noqa: S101 - set with the verdict
            return round_.error  # it has been reported
        what = f"the release of {lease.names_repr} is unconfirmed, and it expires within its ttl at the latest"
        unconfirmed = round_.unavailable(what, lease.kind.names, "confirmed it")
        self._report_unconfirmed(lease, unconfirmed)
        return unconfirmed

    def _report_unconfirmed(self, lease: HeldLease, error: QuorumUnavailable) -> None:
        """Report a release, or a hold after it, that too few nodes confirmed."""
        self._context.counters.unconfirmed_releases += 1
        hold = isinstance(error, HoldUnconfirmed)
        kind = lease.kind
        self._context.report("hold_unconfirmed" if hold else "release_unconfirmed", kind.names, kind.label, error=error)

    def discard(self, lease: HeldLease) -> None:
        """Send the release of a lease that was ended otherwise, without waiting for it."""
        self._end(lease, until=-math.inf, hold_ms=0)

    def _end(self, lease: HeldLease, *, until: float, hold_ms: int) -> ReleaseRound | Retention:
        """Send the release and forget the lease. `until` was its deadline; the name stays locked for `hold_ms`."""
        context, kind = self._context, lease.kind
        if lease.phase is RELEASED:
            context.counters.released += 1
            if context.observed:
                now = context.now()
                remaining, held_for = max(until - now, 0.0), now - lease.acquired_at
                context.report("released", kind.names, kind.label, seconds=held_for, ttl=lease.ttl, remaining=remaining)
        # The task that gets the turn begins in the next iteration of the loop, right behind this release, and in the
        # same write.
        self.forget(lease)
        if hold_ms:
            return self._retain(lease, hold_ms, until - context.now())
        return give_back(context, kind, lease.token, lease.sent_mask, lease.ttl + lease.takeover_delay)

    def abandon(self, lease: HeldLease) -> None:
        """Stop renewing a lease that was dropped; it expires on the nodes."""
        if lease.depth > 1:
            lease.leave_once()
        elif lease.phase is HELD:
            self._end_here(lease, RELEASED)

    def detach(self, lease: HeldLease) -> None:
        """Stop renewing a lease here, without telling the nodes: another process continues it."""
        self._end_here(lease, Phase.DETACHED)

    def convert(self, lease: HeldLease, kind: LockKind) -> HeldLease:
        """End a lease, without telling the nodes, and return the same hold as another kind of lock, unregistered."""
        other = lease.as_kind(kind)
        lease.end(Phase.DOWNGRADED)
        self.forget(lease)
        return other  # tasks that wait for the end of the lease learn of it when the nodes have confirmed that

    def _end_here(self, lease: HeldLease, phase: Phase) -> None:
        lease.end(phase)
        self.forget(lease)
        lease.wake_watchers()

    # Keeping a name locked after its lease, for `min_hold`

    def _retain(self, lease: HeldLease, hold_ms: int, left: float) -> Retention:
        """Keep the name locked; `left` is for how long the lease would have stood."""
        context = self._context
        if len(self._retentions) >= self._prune_at:
            self.resume_retentions(before=context.now())
            self._prune_at = max(2 * len(self._retentions), PRUNE_AT)
        retention = Retention(
            context,
            lease.kind,
            lease.token,
            lease.sent_mask,
            hold_ms,
            left=left,
            on_unconfirmed=lambda error: self._report_unconfirmed(lease, error),
            on_freed=lambda sent_mask: give_back(context, lease.kind, lease.token, sent_mask),
            on_over=lambda over: self._retentions.pop(over, None),
        )
        self._retentions[retention] = None
        retention.start()
        return retention

    def resume_retentions(self, *, before: float = math.inf) -> None:
        """Ask nodes that have not confirmed a hold again, because one is back; only for holds that end before then."""
        now = self._context.now()
        for retention in [retention for retention in self._retentions if retention.until <= before]:
            retention.resume(now)

    # Closing

    def close(self) -> None:
        """Lose every lease, and send their releases."""
        for lease in tuple(self._by_key.values()):
            self.lose(lease, "the client was closed", "closed", at_once=True)
        self._new.clear()
        self._renewals.close()

    def end_retentions(self) -> None:
        """Stop asking nodes to confirm holds: the client is closed."""
        for retention in tuple(self._retentions):
            retention.close()


class ReleaseRound(Round):
    """Release a lock on every node it may be held on. Undeliverable releases are sent on reconnecting."""

    __slots__ = ("_state_count",)

    operation = "release"

    def __init__(self, context: Context, kind: LockKind, command: Command, timeout: float) -> None:
        Round.__init__(self, context, command, timeout)  # as super() does, at a third of its cost
        self._state_count = kind.state_count

    def send(self, nodes: int) -> None:
        """Send to those nodes (a bit mask); the others never received the lock."""
        every, command = self._context.nodes, self._command
        receiver: Receiver = self._reply_timer or self
        if self._reply_timer is not None:
            self._reply_timer.only(nodes)
        if every.dialect is not None and nodes & every.all == every.up:
            every.batcher.send_all(command.pack(every.dialect), receiver)
            self._open = every.all
            if every.up != every.all:
                self._fail_others(every.up)
            return
        for node in every:
            self._open |= node.bit
            if not nodes & node.bit:
                self._fail(node.index, node.cause)
            elif node.connection is None:
                self._queue(node)
                self._fail(node.index, node.cause)
            else:
                node.connection.send(command.pack(node.compare_and_delete), receiver)

    def deliver(self, node: int, reply: object) -> None:
        # This and AcquireRound.deliver are the most frequent work of the library. Nearly always it was ours.
        bit = 1 << node
        if reply != self._state_count or not self._open & bit:
            super().deliver(node, reply)
            return
        self._open = left = self._open ^ bit
        self.granted = granted = self.granted + 1
        if granted == self.quorum and not self._decided:
            self._decide(WON)
        if not left:
            self._all_answered()

    def read(self, node: int, reply: object) -> bool:  # noqa: ARG002 - Round's signature
        return reply == self._state_count

    def may_send_again(self, bit: int) -> bool:  # noqa: ARG002 - Round's signature
        # Nothing follows a release of that token, so sending it again can only do the same.
        return True

    def dropped(self, node: int, cause: Exception) -> None:
        self._queue(self._context.nodes[node])
        super().dropped(node, cause)

    def _queue(self, node: Node) -> None:
        """Send it to that node on its next connection."""
        node.queue_release(self._command)


class ReleaseEverywhereRound(ReleaseRound):
    """Release a lock that another process acquired, and that any node may hold. The nodes keep it for its ttl at most.

    Where we have set the lock ourselves, that command may still be executed, so its release is kept without a limit.
    """

    __slots__ = ("_left", "_set_by_us")

    def __init__(self, context: Context, kind: LockKind, command: Command, timeout: float, ttl: float) -> None:
        super().__init__(context, kind, command, timeout)
        # Twice, because a renewal that is under way may start the ttl once more, where the key is still there.
        self._left = 2 * ttl
        self._set_by_us = 0

    def send(self, nodes: int) -> None:
        self._set_by_us = nodes
        super().send((1 << len(self._context.nodes)) - 1)

    def _queue(self, node: Node) -> None:
        node.queue_release(self._command, math.inf if self._set_by_us & node.bit else self.started_at + self._left)


def give_back(context: Context, kind: LockKind, token: bytes, nodes: int, ttl: float = math.inf) -> ReleaseRound:
    """Send releases to those nodes (a bit mask). Synchronous: they are on their way before anything else can happen.

    `ttl` limits a lock that another process may have acquired: a node that we have not sent it to forgets it then.
    """
    command = kind.release(token)
    if nodes & EVERYWHERE:
        round_: ReleaseRound = ReleaseEverywhereRound(context, kind, command, context.node_timeout, ttl)
    else:
        round_ = ReleaseRound(context, kind, command, context.node_timeout)
    round_.send(nodes)
    return round_
