"""One command that extends a batch of leases: what it asks for, how each node has replied, and what it repairs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from redlock_async._rounds.context import Context, resolve
from redlock_async._rounds.round import Round
from redlock_async._rules.lease_timing import Phase

from .held_lease import HeldLease, OnLost


class Request:
    """One lease within an extension: what is asked for, and how the nodes have replied."""

    __slots__ = (
        "_decided", "between", "gone", "lease", "missing", "ours", "repair_ms", "ttl", "ttl_ms",
    )  # fmt: skip

    def __init__(self, lease: HeldLease, ttl: float, ttl_ms: int, sent_at: float, *, between: bool = False) -> None:
        self.lease = lease
        self.ttl = ttl
        self.ttl_ms = ttl_ms
        """The requested ttl; 0 only checks."""
        self.between = between
        """Whether it is a check between two renewals, which are due in their time regardless of its result."""
        self.repair_ms = lease.left_ms(sent_at) if between else ttl_ms
        """How long the lease lasts where it is set again; 0: it is not."""
        self.ours = 0
        """Bit mask of the nodes that hold the lease."""
        self.gone = 0
        """Bit mask of the nodes that do not."""
        self.missing = 0
        """Bit mask of the nodes where it is to be set again."""
        self._decided: asyncio.Future[bool] | None = None

    def decide_later(self, context: Context) -> asyncio.Future[bool]:
        """Return a future for whether the lease stands."""
        self._decided = context.loop.create_future()
        return self._decided

    def decide(self, *, held: bool) -> None:
        """It is known whether the lease stands."""
        if self._decided is not None:
            resolve(self._decided, result=held)


class Extension(Round):
    """Extend a batch of leases. A node counts for a lease if it holds our token after the command."""

    __slots__ = ("_on_confirmed", "_on_lost", "_requests", "_timeout")

    operation = "extend"

    def __init__(
        self,
        context: Context,
        requests: Sequence[Request],
        timeout: float,
        *,
        on_lost: OnLost,
        on_confirmed: Callable[[HeldLease], None],
    ) -> None:
        batch = [(request.lease.kind, request.lease.token, request.ttl_ms) for request in requests]
        super().__init__(context, batch[0][0].extend(batch), timeout)
        self._requests = requests
        self._timeout = timeout
        self._on_lost = on_lost
        self._on_confirmed = on_confirmed

    def may_send_again(self, bit: int) -> bool:  # noqa: ARG002 - Round's signature
        # It only touches what is ours, so it does no harm late.
        return True

    def read(self, node: int, reply: object) -> bool:
        assert isinstance(reply, list)  # noqa: S101 - mutex_extend.lua
        position = 0
        for request in self._requests:
            states = reply[position : position + request.lease.kind.state_count]
            position += len(states)
            self._count(request, 1 << node, min(states))
        return True

    def _count(self, request: Request, bit: int, state: int) -> None:
        lease, spare = request.lease, self._context.spare
        if lease.phase is not Phase.HELD:
            return
        if state == 1:
            self._confirm(request, bit)
            return
        request.gone |= bit
        lease.on_vote_lost(bit)
        if state == 0:
            request.missing |= bit
        if request.gone.bit_count() > spare:
            # Not one node's mishap: it was freed, and a renewal must not undo that.
            why = "its key was deleted or replaced on a majority of nodes (force-release, eviction or flush)"
            self._on_lost(lease, why, "taken", at_once=True)
            request.decide(held=False)
        elif request.ours.bit_count() >= self._context.quorum:
            self._repair(request)

    def _confirm(self, request: Request, bit: int) -> None:
        """Count a node that holds the lease. A quorum of them before the old deadline confirms the new one."""
        context, lease = self._context, request.lease
        request.ours |= bit
        lease.on_vote(bit)
        if request.ours.bit_count() != context.quorum:
            return
        now, sent_at = context.now(), self.started_at
        if not lease.confirmed:
            held = lease.confirm(sent_at, now, request.ttl)
            self._on_confirmed(lease)
        elif request.between:
            held = now < lease.until
        elif request.ttl_ms == 0:
            held = lease.on_confirmed(sent_at, now)
        else:
            left, ttl = lease.until - now, lease.ttl
            held = lease.extended(sent_at, now, request.ttl)
            context.counters.extended += held
            if held and context.observed:
                context.report("extended", lease.kind.names, lease.kind.label, ttl=ttl, remaining=left)
        request.decide(held=held)
        if held:
            self._repair(request)

    def concluded(self) -> None:
        for request in self._requests:
            # Only nodes that said so just now: a node that is silent may have it or not.
            request.lease.set_votes(request.ours)
            if self._is_settled(request):
                request.decide(held=request.lease.phase is Phase.HELD)
            elif not self._repair(request):
                self._unconfirmed(request)

    def _is_settled(self, request: Request) -> bool:
        return request.ours.bit_count() >= self._context.quorum or request.lease.phase is not Phase.HELD

    def _unconfirmed(self, request: Request) -> None:
        """Too few nodes hold it, for now."""
        if request.ttl_ms:
            lease, context = request.lease, self._context
            context.counters.failed_renewals += 1
            if context.observed:
                what = f"could not extend the lock on {lease.names_repr}"
                error = self.unavailable(what, lease.kind.names, "confirmed it")
                context.report("extend_failed", lease.kind.names, lease.kind.label, error=error)
        request.decide(held=False)

    # Nodes that have lost it

    def _repair(self, request: Request) -> bool:
        """Set it again on nodes that have lost it."""
        lease, missing = request.lease, request.missing
        request.missing = 0
        if not missing or lease.phase is not Phase.HELD or not lease.confirmed or request.repair_ms == 0:
            return False
        repair = RepairRound(
            self._context,
            lease,
            request.repair_ms,
            self._timeout,
            on_repaired=lambda node: self._on_repaired(request, node),
            on_over=lambda: self._on_repairs_over(request),
        )
        repair.ask_mask(missing)
        return True

    def _on_repaired(self, request: Request, node: int) -> None:
        self._confirm(request, 1 << node)

    def _on_repairs_over(self, request: Request) -> None:
        """Every node that was to be repaired has replied or failed."""
        if self._is_settled(request):
            request.decide(held=request.lease.phase is Phase.HELD)
        else:
            self._unconfirmed(request)


class RepairRound(Round):
    """Set one lease again on nodes that said it was missing."""

    __slots__ = ("_lease", "_on_over", "_on_repaired")

    operation = "repair"

    def __init__(
        self,
        context: Context,
        lease: HeldLease,
        ms: int,
        timeout: float,
        *,
        on_repaired: Callable[[int], None],
        on_over: Callable[[], None],
    ) -> None:
        super().__init__(context, lease.kind.reassert(lease.token, lease.fence, ms), timeout)
        self._lease = lease
        self._on_repaired = on_repaired
        self._on_over = on_over

    def ask_mask(self, mask: int) -> None:
        """Ask those nodes (a bit mask)."""
        nodes = [node for node in self.nodes if mask & node.bit]
        self.asked = self.quorum = len(nodes)
        self._lease.on_sent(mask)
        for node in nodes:
            self.ask(node)

    def may_send_again(self, bit: int) -> bool:
        return super().may_send_again(bit) and self._lease.phase is Phase.HELD

    def read(self, node: int, reply: object) -> bool:
        if reply == 1 and self._lease.phase is Phase.HELD:
            context, kind = self._context, self._lease.kind
            context.counters.repaired += 1
            context.report("repaired", kind.names, kind.label, node=self.nodes[node].label)
            self._on_repaired(node)
        return reply == 1

    def concluded(self) -> None:
        self._on_over()
