"""One timer for all the leases of a client, and one for its newest: those due together go out in one command a node.

Nothing runs for long while no lease is held.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from itertools import count

from ._claim import Claim
from ._errors import QuorumUnavailable, by_node
from ._extension import Clients, Extension, Request
from ._holding import Holding
from ._lease import FIRST_LOOK, Phase, Step
from .events import Reason

BATCH = 100
"""Leases in one command: more would keep a server from its other clients for longer than a millisecond."""

SUSPICION = 0.001
"""Seconds from the first report that a held key changed to the look at it: the other nodes' reports come meanwhile."""

UNHURRIED = 20 * FIRST_LOOK
"""Seconds of ttl from which on a first look may be late by its own delay."""


class Renewals:
    """All leases of a client, by when each must be seen to."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._new: dict[Holding, None] = {}
        """Those that wait for their first look, apart from the others, because most are over before it."""
        self._awaits_new = False
        self._heap: list[tuple[float, int, Holding]] = []
        self._number = count()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._suspects: dict[Holding, None] = {}
        self.live = 0

    def add(self, holding: Holding) -> None:
        """See to that lease from now on."""
        self.live += 1
        if holding.ttl < UNHURRIED or holding.until - self._clients.now() < holding.ttl / 2:
            self._push(holding)
            return
        if not self._awaits_new:
            self._awaits_new = True
            self._clients.loop.call_later(FIRST_LOOK, self._look_at_new)
        self._new[holding] = None

    def _look_at_new(self) -> None:
        """Those that still stand are seen to now, and from now on with the others."""
        now = self._clients.now()
        # Who has been looked at already, extended by hand or downgraded say, is due much later, as the others are.
        leaving = [holding for holding in self._new if not now < holding.next_at <= now + FIRST_LOOK]
        looked = []
        for holding in leaving:
            del self._new[holding]
            if holding.next_at <= now:
                holding.looked()
                looked.append(holding)
            self._push(holding)
        self._awaits_new = bool(self._new)
        if self._awaits_new:
            self._clients.loop.call_later(FIRST_LOOK / 2, self._look_at_new)
        if self._timer is not None and self._timer_at <= now:
            # In this very step: one whose deadline passed while the loop was blocked has waited long enough.
            self._timer.cancel()
            self._run()
        self._look_at([holding for holding in looked if holding.phase is Phase.HELD])

    def remove(self, holding: Holding) -> None:
        """That lease has ended."""
        self.live -= 1
        self._new.pop(holding, None)

    def _push(self, holding: Holding) -> None:
        at = holding.due_at()
        heappush(self._heap, (at, next(self._number), holding))
        if len(self._heap) > 2 * self.live + 64:
            # Leases that ended stay in the heap until they come up; with many short ones that would be most of it.
            self._heap = [entry for entry in self._heap if entry[2].until != -math.inf]
            heapify(self._heap)
        if self._timer is None or at < self._timer_at:
            self._arm(at)

    def _arm(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        # Loop time and lease time are different clocks: only the difference carries over.
        self._timer = self._clients.loop.call_later(at - self._clients.now(), self._run)

    def _run(self) -> None:
        self._timer = None
        now = self._clients.now()
        due: list[Holding] = []
        again: list[Holding] = []
        while self._heap and self._heap[0][0] <= now + self._heap[0][2].early:
            holding = heappop(self._heap)[2]
            step = holding.step(now)
            if step is Step.NOTHING:
                continue
            if step is Step.LOSE:
                holding.lose(*_why(holding), at_once=False)
            elif step is Step.END:
                holding.over()
                continue
            elif step is Step.RENEW or (holding.phase is Phase.HELD and holding.next_at <= now + holding.early):
                due.append(holding)  # else it was renewed by hand meanwhile, or is lost and has a moment left
            again.append(holding)
        self.send(due)
        for holding in again:
            if holding.until != -math.inf:
                self._push(holding)
        # Not only if there is no timer: the leases above may have armed it for later than another that is due before.
        if self._heap and (self._timer is None or self._heap[0][0] < self._timer_at):
            self._arm(self._heap[0][0])

    def send(self, holdings: Sequence[Holding]) -> None:
        """Ask the nodes to extend those leases."""
        now = self._clients.now()
        requests = []
        for holding in holdings:
            holding.asked(now)
            requests.append(Request(holding, holding.ttl, holding.renewal_ms(), now))
        self._ask(requests)

    def _ask(self, requests: Sequence[Request]) -> None:
        """In as few commands as is kind to the nodes."""
        by_kind: dict[type[Claim], list[Request]] = {}
        for request in requests:
            by_kind.setdefault(type(request.holding.claim), []).append(request)
        for alike in by_kind.values():
            for start in range(0, len(alike), BATCH):
                batch = alike[start : start + BATCH]
                timeout = min(self._clients.node_timeout, min(request.holding.ttl for request in batch) / 4)
                Extension(self._clients, batch, timeout).ask_all()

    async def extend(self, holding: Holding, ttl: float) -> None:
        """Ask until a quorum has confirmed, or the lease is lost; for 0 seconds only whether it stands."""
        clients = self._clients
        # A lease from another machine has no deadline here yet; it cannot be longer than its ttl.
        give_up_at = math.inf if holding.confirmed else clients.now() + holding.ttl
        while True:
            request = Request(holding, ttl, round(ttl * 1000), clients.now())
            # Before it is asked: with every node down it is decided at once.
            request.decided = decided = clients.loop.create_future()
            holding.asked(clients.now())
            self._ask([request])
            if await decided:
                return
            holding.require_held("extend")
            if clients.now() >= give_up_at:
                raise self._unconfirmed(holding)
            left = max(holding.lose_at - clients.now(), 0.0) if holding.confirmed else math.inf
            await asyncio.sleep(min(clients.node_timeout / 4, left))
            holding.require_held("extend")

    def _unconfirmed(self, holding: Holding) -> QuorumUnavailable:
        causes = {node.label: node.cause for node in self._clients.nodes if not node.ready}
        return QuorumUnavailable(
            f"too few masters confirmed the lease on {holding.shown} within its ttl ({by_node(causes)})",
            names=holding.claim.names,
            nodes=causes,
        )

    def suspect(self, holding: Holding) -> None:
        """A node reports that somebody changed its key: look at once."""
        if not self._suspects:
            self._clients.loop.call_later(SUSPICION, self._look)
        self._suspects[holding] = None

    def _look(self) -> None:
        suspects, self._suspects = self._suspects, {}
        self._look_at([holding for holding in suspects if holding.phase is Phase.HELD and holding.confirmed])

    def _look_at(self, holdings: Sequence[Holding]) -> None:
        """See whether those leases still stand, between two renewals; where a node has lost one it is set again.

        Nothing else is changed there: to renew a lease would wake all who wait for it. Some of them would be granted a
        node that it has not got, and give that back, which is reported here and looked at again: a circle.
        """
        now = self._clients.now()
        self._ask([Request(holding, holding.ttl, 0, now, between=True) for holding in holdings])

    def close(self) -> None:
        """Stop."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._heap.clear()
        self._new.clear()


def _why(holding: Holding) -> tuple[str, Reason]:
    if holding.capped:
        return "max_hold is over", "max_hold"
    if not holding.renews:
        return f"its ttl of {holding.ttl:g} s is over and renew=False", "expired"
    return f"no majority of the masters confirmed a renewal within its ttl of {holding.ttl:g} s", "unconfirmed"
