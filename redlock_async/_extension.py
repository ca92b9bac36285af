"""One command that lengthens a batch of leases: what it asks for, how each node has answered, and what it repairs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from ._holding import Holding
from ._lease import Phase
from ._round import Round, Voters
from .events import Counters, Events


class Clients(Voters, Protocol):
    """What renewals need of the client they are for."""

    node_timeout: float
    counters: Counters
    events: Events

    def adopt(self, holding: Holding) -> None:
        """Keep a lease that came from elsewhere and has just been confirmed."""


class Request:
    """One lease within an extension: what it asks for, and how the nodes have answered."""

    __slots__ = (
        "between",
        "decided",
        "gone",
        "holding",
        "missing",
        "ours",
        "repair_ms",
        "sent_at",
        "ttl",
        "ttl_ms",
    )  # fmt: skip

    def __init__(self, holding: Holding, ttl: float, ttl_ms: int, sent_at: float, *, between: bool = False) -> None:
        self.holding = holding
        self.ttl = ttl
        self.ttl_ms = ttl_ms
        """What is asked for; 0 only looks."""
        self.sent_at = sent_at
        self.between = between
        """Whether it is a look between two renewals, which are due in their time whatever is seen now."""
        self.repair_ms = holding.left_ms(sent_at) if between else ttl_ms
        """How long it lasts where it is set again; 0: it is not."""
        self.ours = 0
        self.gone = 0
        self.missing = 0
        self.decided: asyncio.Future[bool] | None = None


class Extension(Round):
    """Lengthen a batch of leases. A node counts for a lease if it holds our token after the command."""

    __slots__ = ("_clients", "_requests", "_timeout")

    operation = "extend"

    def __init__(self, clients: Clients, requests: Sequence[Request], timeout: float) -> None:
        batch = [(r.holding.claim, r.holding.token, r.ttl_ms) for r in requests]
        super().__init__(clients, batch[0][0].extend(batch), timeout)
        self._clients = clients
        self._requests = requests
        self._timeout = timeout
        for request in requests:
            request.sent_at = self.started_at

    def may_send_again(self, bit: int) -> bool:  # noqa: ARG002 - Round's signature
        # It only touches what is ours: late, it can do no harm.
        return True

    def read(self, node: int, reply: object) -> bool:
        assert isinstance(reply, list)  # noqa: S101 - mutex_extend.lua
        position = 0
        for request in self._requests:
            states = reply[position : position + request.holding.claim.width]
            position += len(states)
            self._count(request, 1 << node, min(states))
        return True

    def _count(self, request: Request, bit: int, state: int) -> None:
        holding, spare = request.holding, len(self._clients.nodes) - self._clients.needed
        if holding.phase is not Phase.HELD:
            return
        if state == 1:
            self.confirm(request, bit)
        else:
            request.gone |= bit
            holding.votes &= ~bit
            if state == 0:
                request.missing |= bit
            if request.gone.bit_count() > spare:
                # Not one node's mishap: somebody freed it, and a renewal must not undo that.
                holding.lose("its key is gone or somebody else's on a majority of the nodes", "taken", at_once=True)
                self._decide(request, held=False)
            elif request.ours.bit_count() >= self._clients.needed:
                self._repair(request)

    def confirm(self, request: Request, bit: int) -> None:
        """A node holds it. With a quorum of those, before the old deadline, the new one stands."""
        clients, holding = self._clients, request.holding
        request.ours |= bit
        holding.votes |= bit
        if request.ours.bit_count() != clients.needed:
            return
        now = clients.now()
        if not holding.confirmed:
            held = holding.confirm(request.sent_at, now)
            clients.adopt(holding)
        elif request.between:
            held = now < holding.until
        elif request.ttl_ms == 0:
            held = holding.seen(request.sent_at, now)
        else:
            left, ttl = holding.until - now, holding.ttl
            held = holding.extended(request.sent_at, now, request.ttl)
            clients.counters.extended += held
            if held and clients.events.heard:
                claim = holding.claim
                clients.events.tell("extended", names=claim.names, lock=claim.kind, ttl=ttl, left=left)
        self._decide(request, held=held)
        if held:
            self._repair(request)

    def concluded(self) -> None:
        for request in self._requests:
            # Only those that said so just now: a node that is silent may have it or not.
            request.holding.votes = request.ours
            if request.ours.bit_count() >= self._clients.needed or request.holding.phase is not Phase.HELD:
                self._decide(request, held=request.holding.phase is Phase.HELD)
            elif not self._repair(request):
                self._unconfirmed(request)

    def _repair(self, request: Request) -> bool:
        """Set it again on nodes that lost it."""
        holding, missing = request.holding, request.missing
        request.missing = 0
        if not missing or holding.phase is not Phase.HELD or not holding.confirmed or request.repair_ms == 0:
            return False
        Repair(self._clients, self, request, self._timeout).ask_mask(missing)
        return True

    def repaired(self, request: Request) -> None:
        """Every node that `_repair` asked has answered or failed."""
        if request.ours.bit_count() >= self._clients.needed or request.holding.phase is not Phase.HELD:
            self._decide(request, held=request.holding.phase is Phase.HELD)
        else:
            self._unconfirmed(request)

    def _unconfirmed(self, request: Request) -> None:
        """Too few masters have it, for now."""
        if request.ttl_ms:
            claim, clients = request.holding.claim, self._clients
            clients.counters.unextended += 1
            if clients.events.heard:
                shown = request.holding.shown
                error = self.unavailable(f"could not extend the lock on {shown}", claim.names, "confirmed it")
                clients.events.tell("extend_failed", names=claim.names, lock=claim.kind, error=error)
        self._decide(request, held=False)

    def _decide(self, request: Request, *, held: bool) -> None:
        if request.decided is not None and not request.decided.done():
            request.decided.set_result(held)


class Repair(Round):
    """Set one lease again on nodes that said it was missing."""

    __slots__ = ("_clients", "_extension", "_request")

    operation = "repair"

    def __init__(self, clients: Clients, extension: Extension, request: Request, timeout: float) -> None:
        holding = request.holding
        command = holding.claim.secure(holding.token, holding.fence, request.repair_ms)
        super().__init__(clients, command, timeout)
        self._clients = clients
        self._extension = extension
        self._request = request

    def ask_mask(self, mask: int) -> None:
        """Ask those nodes."""
        nodes = [node for node in self._clients.nodes if mask & (1 << node.index)]
        self.asked = self.needed = len(nodes)
        self._request.holding.reached |= mask
        for node in nodes:
            self.ask(node)

    def may_send_again(self, bit: int) -> bool:
        return super().may_send_again(bit) and self._request.holding.phase is Phase.HELD

    def read(self, node: int, reply: object) -> bool:
        if reply == 1 and self._request.holding.phase is Phase.HELD:
            clients = self._clients
            clients.counters.repaired += 1
            claim, label = self._request.holding.claim, clients.nodes[node].label
            clients.events.tell("repaired", names=claim.names, node=label, lock=claim.kind)
            self._extension.confirm(self._request, 1 << node)
        return reply == 1

    def concluded(self) -> None:
        self._extension.repaired(self._request)
