"""Renews all leases of a client with one timer: those that are due together go out in one command per node.

Leases are also checked between two renewals: once soon after they are acquired, and whenever a node reports that their
key changed. Nothing runs for long while no lease is held.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush
from itertools import count

from redlock_async._kinds.kind import LockKind
from redlock_async._rounds.context import Context
from redlock_async._rules.lease_timing import Phase, Step
from redlock_async._transport.calm import RATE_LIMIT, is_believed
from redlock_async.errors import QuorumUnavailable, by_node
from redlock_async.events import Reason

from .extension import Extension, Request
from .held_lease import HeldLease, OnLost

BATCH = 100
"""Leases in one command: more would keep a server from its other clients for longer than a millisecond."""

CHECK_DELAY = 0.001
"""Seconds from the first report that a held key changed to the check: the other nodes' reports arrive meanwhile."""

LONGEST_SLEEP = 0.5
"""Seconds until the clock is read again while leases are held: timers stop while a machine is suspended, leases do not.
Linux has no timer for asyncio that continues, so a loss may be noticed that much late after a resume."""

IMMEDIATE_CHECKS = 5
"""Checks of a lease right after a report, until it is checked only once in `RATE_LIMIT` seconds. If contenders take and
release a node that the lease lacks, the lease is set again there only if it is checked between two of them."""


class Renewals:
    """All leases of a client, by when each is due."""

    def __init__(
        self,
        context: Context,
        *,
        check_deadline: Callable[[HeldLease], None],
        on_lost: OnLost,
        on_expired: Callable[[HeldLease], None],
        on_confirmed: Callable[[HeldLease], None],
        held: Callable[[], int],
    ) -> None:
        self._context = context
        self._held = held
        """How many leases are held. Those that have ended stay here until they come up."""
        self._check_deadline = check_deadline
        self._on_lost = on_lost
        self._on_expired = on_expired
        self._on_confirmed = on_confirmed
        self._heap: list[tuple[float, int, HeldLease]] = []
        self._number = count()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._scheduled: dict[HeldLease, None] = {}
        """Those that are checked in a moment, because a node reported a change."""
        self._resting: dict[HeldLease, int] = {}
        """Those that were checked less than `RATE_LIMIT` ago, each with the nodes that have reported a change since."""
        self.checks: dict[HeldLease, int] = {}
        """How often each was checked after a report, since it rested last."""

    def add(self, lease: HeldLease) -> None:
        """Renew a lease from now on, when it is due."""
        heappush(self._heap, (at := lease.due_at(), next(self._number), lease))
        if len(self._heap) > 2 * self._held() + 64:
            # Leases that ended stay in the heap until they come up; with many short ones they would be most of it.
            self._heap = [entry for entry in self._heap if entry[2].until != -math.inf]
            heapify(self._heap)
        if self._timer is None or at < self._timer_at:
            self._arm(at)

    def check_new(self, leases: Sequence[HeldLease]) -> None:
        """Renew these leases from now on; those that are due are due for their initial check, not for a renewal."""
        now, due = self._context.now(), []
        for lease in leases:
            if lease.next_at <= now:
                lease.on_first_check()
                due.append(lease)
            self.add(lease)
        if self._timer is not None and self._timer_at <= now:
            # In this very iteration: a lease whose deadline passed while the loop was blocked has waited long enough.
            self._timer.cancel()
            self._run()
        self._check([lease for lease in due if lease.phase is Phase.HELD])

    # Renewing in time

    def _arm(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        # Loop time and lease time are different clocks: only the difference carries over.
        now = self._context.now()
        self._timer_at = min(at, now + LONGEST_SLEEP)
        self._timer = self._context.call_later(self._timer_at - now, self._run)

    def _run(self) -> None:
        self._timer = None
        if not self._held():
            self._heap.clear()
            return
        now = self._context.now()
        due: list[HeldLease] = []
        again: list[HeldLease] = []
        while self._heap and self._heap[0][0] <= now + self._heap[0][2].early:
            lease = heappop(self._heap)[2]
            step = lease.step(now)
            if step is Step.NOTHING:
                continue
            if step is Step.LOSE:
                self._lose(lease)
            elif step is Step.END:
                self._on_expired(lease)
                continue
            elif step is Step.RENEW or (lease.phase is Phase.HELD and lease.next_at <= now + lease.early):
                due.append(lease)  # otherwise it was renewed by hand meanwhile, or is lost and has a moment left
            again.append(lease)
        self.send(due)
        for lease in again:
            if lease.until != -math.inf:
                self.add(lease)
        # Not only if there is no timer: the leases above may have armed it for later than another that is due before.
        if self._heap and (self._timer is None or self._heap[0][0] < self._timer_at):
            self._arm(self._heap[0][0])

    def _lose(self, lease: HeldLease) -> None:
        if lease.renews and not lease.capped:
            self._check_deadline(lease)  # nothing has checked it for longer than any renewal could have taken
        self._on_lost(lease, *_why(lease), at_once=False)

    def send(self, leases: Sequence[HeldLease]) -> None:
        """Ask the nodes to extend these leases."""
        now = self._context.now()
        requests = []
        for lease in leases:
            lease.on_renewal_sent(now)
            requests.append(Request(lease, lease.ttl, lease.renewal_ms(), now))
        self._ask(requests)
        if leases:
            # Behind the extension: a clock that was stepped before may be stepped again, and end what was set by it.
            self._compare_clocks(leases, 0.5)

    def _compare_clocks(self, leases: Sequence[HeldLease], part: float) -> None:
        """Compare the clocks of the nodes that hold these leases, unless that was done just now."""
        context = self._context
        groups = [context.nodes]
        if context.clustered:
            groups = [context.group_of(lease.kind.watched_keys[0]) for lease in leases]
        for clocks in {context.clocks_of(group) for group in groups}:
            clocks.refresh_if_older(part, holding=True)

    def _ask(self, requests: Sequence[Request]) -> None:
        """Send requests in as few commands as are kind to the nodes."""
        # A cluster executes only commands about one slot.
        size = 1 if self._context.clustered else BATCH
        by_kind: dict[type[LockKind], list[Request]] = {}
        for request in requests:
            by_kind.setdefault(type(request.lease.kind), []).append(request)
        for alike in by_kind.values():
            for start in range(0, len(alike), size):
                batch = alike[start : start + size]
                timeout = min(self._context.node_timeout, min(request.lease.ttl for request in batch) / 4)
                Extension(
                    self._context, batch, timeout, on_lost=self._on_lost, on_confirmed=self._on_confirmed
                ).ask_all()

    # Extending by hand

    async def extend(self, lease: HeldLease, ttl: float, require_held: Callable[[], None]) -> None:
        """Ask until a quorum has confirmed, or the lease is lost; with 0 seconds only whether it stands."""
        context = self._context
        # A lease from another machine has no deadline here yet; it cannot be longer than its ttl.
        give_up_at = math.inf if lease.confirmed else context.now() + lease.ttl
        while True:
            request = Request(lease, ttl, lease.key_ms(ttl), context.now())
            # Before it is asked, because with every node down it is decided at once.
            decided = request.decide_later(context)
            lease.on_renewal_sent(context.now())
            self._ask([request])
            if await decided:
                return
            require_held()
            if context.now() >= give_up_at:
                raise self._unconfirmed(lease)
            left = max(lease.lose_at - context.now(), 0.0) if lease.confirmed else math.inf
            await asyncio.sleep(min(context.node_timeout / 4, left))
            require_held()

    def _unconfirmed(self, lease: HeldLease) -> QuorumUnavailable:
        nodes = self._context.group_of(lease.kind.watched_keys[0])
        causes = {node.label: node.cause for node in nodes if not node.ready}
        return QuorumUnavailable(
            f"too few nodes confirmed the lease on {lease.names_repr} within its ttl ({by_node(causes)})",
            names=lease.kind.names,
            nodes=causes,
        )

    # Checking between two renewals

    def schedule_check(self, lease: HeldLease, nodes: int) -> None:
        """Check a lease in a moment: those nodes (a bit mask) report that its key changed; -1 if we changed it.

        After `IMMEDIATE_CHECKS` of them, check it only once in `RATE_LIMIT` seconds, and once more when enough nodes
        report a change for the lock to have been freed: a minority that reports changes without end must not keep the
        client and the other nodes busy.
        """
        if (before := self._resting.get(lease)) is not None:
            self._resting[lease] = now = before | nodes
            wrong = self._context.minority
            if is_believed(before, wrong) or not is_believed(now, wrong):
                return
        if not self._scheduled:
            self._context.call_later(CHECK_DELAY, self._run_checks)
        self._scheduled[lease] = None

    def _run_checks(self) -> None:
        due = [lease for lease in self._scheduled if lease.phase is Phase.HELD and lease.confirmed]
        self._scheduled = {}
        for lease in due:
            self.checks[lease] = self.checks.get(lease, 0) + 1
        if resting := [lease for lease in due if lease not in self._resting and self.checks[lease] > IMMEDIATE_CHECKS]:
            self._resting.update(dict.fromkeys(resting, 0))
            self._context.call_later(RATE_LIMIT, self._on_rest_over, resting)
        self._check(due)
        if due:
            # A key that changed may have expired early because the clock was stepped, perhaps only for a moment.
            self._compare_clocks(due, 0.02)

    def _on_rest_over(self, rested: Sequence[HeldLease]) -> None:
        """Check the leases for which a change was reported meanwhile."""
        for lease in rested:
            if self._resting.pop(lease):
                self._scheduled[lease] = None
            else:
                self.checks.pop(lease, None)
        self._run_checks()

    def _check(self, leases: Sequence[HeldLease]) -> None:
        """Ask whether these leases still stand; set them again on nodes that have lost them.

        Nothing else is changed there. Renewing a lease would wake all who wait for it; some of them would be granted a
        node that the lease has not got, and release that, which is reported here and checked again: a circle.
        """
        now = self._context.now()
        self._ask([Request(lease, lease.ttl, 0, now, between=True) for lease in leases])

    def close(self) -> None:
        """Stop renewing."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._heap.clear()


def _why(lease: HeldLease) -> tuple[str, Reason]:
    if lease.capped:
        return "max_hold was reached", "max_hold"
    if not lease.renews:
        return f"its ttl of {lease.ttl:g} s expired (renew=False)", "expired"
    return f"no majority of the nodes confirmed a renewal within its ttl of {lease.ttl:g} s", "unconfirmed"
