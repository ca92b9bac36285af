"""The rounds of one attempt to acquire: asking for the votes, and having the fencing token stored."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from enum import Enum
from typing import cast

from redlock_async._kinds.kind import Attempt, Refusal
from redlock_async._rounds.context import Context
from redlock_async._rounds.round import Round
from redlock_async._rules.fencing import choose
from redlock_async._rules.quorum import WON, Verdict
from redlock_async._transport.commands import Command, SetIfAbsent
from redlock_async._transport.node import Node

MIN_HEDGE_DELAY = 0.01
"""Seconds that a contended attempt grants a silent node at least, before it releases the votes it has."""


NONE_REFUSED: Mapping[int, Refusal] = {}
"""The refusals of most attempts."""

GRANT = 2
"""How many numbers are in a grant of a token that was not proposed: the token, and the node's clock."""


class Mode(Enum):
    """How an attempt differs from asking all nodes and waiting for their replies."""

    PROBING = "one node is asked first; the others when it grants, fails or stays silent"
    GAVE_UP_EARLY = "it was given up while a node that could have decided it was silent"


class AcquireRound(Round):
    """Ask the nodes for a lock; knows which nodes refused, and which of them have been freed since."""

    __slots__ = (
        "_attempt", "_candidate", "_freed", "_hedge_timer", "_longest_hedge_delay", "_mode",
        "_on_late_grant", "_sample", "_sent_us", "clocks", "fences", "refusals",
    )  # fmt: skip

    elects = True
    operation = "acquire"

    def __init__(self, context: Context, attempt: Attempt, command: Command, timeout: float, candidate: int) -> None:
        Round.__init__(self, context, command, timeout)  # as super() does, at a third of its cost
        self._attempt = attempt
        self._candidate = candidate
        """The fencing token that was proposed."""
        self.clocks = context.clocks_of(self.nodes) if context.clustered else context.clocks
        self._sent_us = int(self.started_at * 1e6)
        self._sample = self.clocks.sample() if type(command) is SetIfAbsent else None
        self._longest_hedge_delay = timeout / 2
        self._hedge_timer: asyncio.TimerHandle | None = None
        self._mode: Mode | None = None
        self._freed = 0
        """Bit mask of the nodes on which the lock has changed."""
        self.fences: dict[int, int] = {}
        """The fencing tokens of the grants, by node."""
        self.refusals: Mapping[int, Refusal] = NONE_REFUSED
        """The refusals, by node."""
        self._on_late_grant: Callable[[int], None] | None = None

    def when_granted_late(self, callback: Callable[[int], None]) -> None:
        """Call back with the bit of each node that grants after the outcome of the attempt was known."""
        self._on_late_grant = callback

    def probe(self, node: Node) -> None:
        """Ask that node alone, and the others only when it grants, or does not reply soon.

        Contenders that all start at the same node do not split the votes, and each lost race costs one command.
        """
        self._mode = Mode.PROBING
        self.asked = self.quorum = 1
        self._start_hedge_timer()
        self.ask(node)

    def _ask_the_others(self) -> None:
        self._mode = None
        self.asked, self.quorum = len(self.nodes), self._context.quorum
        if not self._decided:
            if self._reply_timer is not None:
                self._reply_timer.others_follow(self.sent_mask | self._open)
            self.ask_all()

    def _start_hedge_timer(self) -> None:
        """Wait only so long for a silent node: a contender that holds votes for longer keeps all others out."""
        # Nodes that have not replied may be farther away than those that have: allow a few of their own round trips.
        silent = [4 * node.latency for node in self.nodes if self._open & node.bit and node.ready]
        delay = min(max(MIN_HEDGE_DELAY, 4 * self._context.round_trip, *silent), self._longest_hedge_delay)
        self._hedge_timer = self._context.call_later(delay, self._on_hedge_delay)

    def _on_hedge_delay(self) -> None:
        self._hedge_timer = None
        if self._decided:
            return
        if self._mode is Mode.PROBING:
            self._ask_the_others()
        elif self.refused:
            # Another client is there, and the node that could decide is silent: release the votes we have.
            self._mode = Mode.GAVE_UP_EARLY
            self._decide(Verdict.REFUSED)

    def concluded(self) -> None:
        if self._hedge_timer is not None:
            self._hedge_timer.cancel()

    def call_off(self) -> None:
        """Stop, because the client is closed: nodes that have not been asked never will be."""
        self._decide(Verdict.UNREACHABLE)

    # Replies

    def deliver(self, node: int, reply: object) -> None:
        # This and ReleaseRound.deliver are the most frequent work of the library. Nearly always it is a plain grant of
        # the token that was proposed, by a node whose clock is right.
        bit = 1 << node
        if (
            type(reply) is not int
            or not self.clocks.low[node] <= -reply - self._sent_us <= self.clocks.high[node]
            or not self._open & bit
            or self.nodes.abstaining
            or self._mode is not None
        ):
            self._deliver_slowly(node, reply)
            return
        self.fences[node] = self._candidate
        self.granted_mask |= bit
        self._open = left = self._open ^ bit
        self.granted = granted = self.granted + 1
        if granted == self.quorum and not self._decided:
            self._decide(WON)
        elif self._on_late_grant is not None:
            self._on_late_grant(bit)
        if not left:
            self._all_answered()

    def _deliver_slowly(self, node: int, reply: object) -> None:
        bit = 1 << node
        if self._sample is not None and self._open & bit and type(reply) is bytes and reply == self._command.grant:
            self._sample.hold(self, node)  # it comes back as a grant with the time
            return
        if self._open & bit and not self.nodes.abstaining & bit and (time := _node_time(reply)) is not None:
            ahead = time - self._sent_us
            if not self.clocks.accepts(node, ahead, self.started_at):
                self.clocks.defer(self, node, reply, ahead)
                return
        super().deliver(node, reply)

    def compared(self, node: int, reply: object, objection: Exception | None) -> None:
        """Count a grant, or not if there is an objection, after the nodes' clocks have been compared."""
        if objection is None:
            super().deliver(node, reply)
        else:
            self._fail(node, objection)

    def read(self, node: int, reply: object) -> bool:
        if self._mode is Mode.GAVE_UP_EARLY:
            # The node was only far away: the next attempt will wait for it.
            self.nodes[node].observe_latency(self._context.now() - self.started_at)
        if (fence := self._granted(reply)) is None:
            self._refused(node, self._attempt.refusal(reply))
            return False
        self._require_credible(fence, "fencing token")
        if self._mode is Mode.PROBING:
            self._ask_the_others()
        self.fences[node] = fence
        if self._on_late_grant is not None:
            self._on_late_grant(1 << node)
        return True

    def _granted(self, reply: object) -> int | None:
        """The fencing token in a grant, or the one that was proposed if there is none; None if it is no grant."""
        if _node_time(reply) is not None:
            return self._candidate if type(reply) is int else cast("list[int]", reply)[0]
        return self._candidate if type(reply) is bytes and reply == self._command.grant else None

    def _refused(self, node: int, refusal: Refusal) -> None:
        if refusal.token is None and type(refusal) is Refusal and not isinstance(self._command, SetIfAbsent):
            # Asked again to find out who holds it, it would be asked forever.
            raise TypeError("a script that refuses names the holder")
        self._attempt.on_refusal(refusal)
        self.refusals = {**self.refusals, node: refusal}
        if self._hedge_timer is None:
            self._start_hedge_timer()

    def _fail(self, node: int, cause: Exception) -> None:
        if self._mode is Mode.PROBING:
            self._ask_the_others()
        super()._fail(node, cause)

    def late(self, node: int, reply: object) -> None:
        if (fence := self._granted(reply)) is not None:
            self._require_credible(fence, "fencing token")
            self.fences[node] = fence
            self.granted_mask |= 1 << node
            if self._on_late_grant is not None:
                # That node only: what the others said then, a renewal may have heard otherwise since.
                self._on_late_grant(1 << node)

    # Conclusions from the refusals

    def on_freed(self, node: int) -> None:
        """The lock has changed on that node. This may be reported before the node's refusal arrives."""
        self._freed |= 1 << node

    @property
    def could_win(self) -> bool:
        """Whether the lock has changed on enough of the nodes that refused for a quorum to be possible."""
        blocked = sum(1 for index in self.refusals if not self._freed >> index & 1)
        return self.any_freed and blocked <= self.spare

    @property
    def any_freed(self) -> bool:
        """Whether the lock has changed on any node that refused. On other nodes it was not in the way."""
        return any(self._freed >> index & 1 for index in self.refusals)

    @property
    def only_first_asked(self) -> bool:
        """Whether only the first node has been asked so far."""
        return self.asked < len(self.nodes)

    def holder(self) -> tuple[bytes | None, int]:
        """The token that most refusals named, and how many did."""
        votes: dict[bytes | None, int] = {}
        for refusal in self.refusals.values():
            votes[refusal.token] = votes.get(refusal.token, 0) + 1
        return max(votes.items(), key=lambda vote: (vote[0] is not None, vote[1]), default=(None, 0))

    @property
    def has_known_holder(self) -> bool:
        """Whether a majority named the same holder, which therefore holds the lock."""
        token, votes = self.holder()
        return token is not None and votes >= self._context.quorum

    def blocking_refusal(self) -> Refusal | None:
        """One of the refusals that named the client most in the way."""
        token, _ = self.holder()
        return next((refusal for refusal in self.refusals.values() if refusal.token == token), None)

    def free_in(self) -> float | None:
        """Seconds until enough refusals have expired for a quorum to be possible; None if unknown."""
        times = sorted(refusal.expires_in for refusal in self.refusals.values() if refusal.expires_in is not None)
        if len(times) < len(self.refusals):
            return None
        index = len(times) - self.spare - 1
        return times[index] if 0 <= index < len(times) else None

    def ends_in(self) -> float | None:
        """Seconds until what is in the way has expired, unless it is renewed; None if unknown."""
        ends = [math.inf if refusal.ends_in is None else refusal.ends_in for refusal in self.refusals.values()]
        # That many of the nodes that refused are needed. Silent nodes are not counted on, unlike in `free_in`.
        wanted = max(self._context.quorum - len(self.fences), 1)
        end = sorted(ends)[min(wanted, len(ends)) - 1] if ends else math.inf
        return end if end < math.inf else None

    def fence(self) -> tuple[int, bool]:
        """The fencing token of these grants, and whether a quorum stores it already."""
        fences = [*self.fences.values()]
        if fences.count(fences[0]) == len(fences):
            return fences[0], True  # as nearly always
        return choose(fences, self.quorum)


def _node_time(reply: object) -> int | None:
    """The node's clock in µs, in a grant as in limits.lua; None if the reply is something else."""
    if type(reply) is int and reply < 0:
        return -reply
    if type(reply) is list and len(reply) == GRANT and type(reply[0]) is type(reply[1]) is int:
        return reply[1]
    return None


class FenceRound(Round):
    """Have a quorum store the fencing token, on nodes where the lock is ours."""

    __slots__ = ()

    elects = True
    operation = "fence"

    def read(self, node: int, reply: object) -> bool:  # noqa: ARG002 - Round's signature
        return reply == 1
