"""The rounds of one attempt to acquire, and the release that follows whatever went wrong."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from enum import Enum

from ._claim import Claim, Held
from ._fencing import choose
from ._node import Node
from ._quorum import Verdict
from ._round import Round, Voters
from ._scripts import Command, SetIfAbsent
from ._wire import Receiver

SILENCE = 0.01
"""Seconds a contended attempt grants a silent node at least, before it lets go of the votes it has."""


class Manner(Enum):
    """Where an attempt departs from the usual."""

    ONE_FIRST = "one node has been asked, and the others may be"
    DECIDED_BEFORE = "it was given up while a node that could have decided it was silent"


class Acquire(Round):
    """Ask the nodes for a lock; knows who refused, and which of those have been freed since."""

    __slots__ = (
        "_claim",
        "_freed",
        "_hedge",
        "_manner",
        "_most_patience",
        "fences",
        "granted_late",
        "holding",
    )

    elects = True
    operation = "acquire"

    def __init__(self, voters: Voters, claim: Claim, command: Command, timeout: float) -> None:
        super().__init__(voters, command, timeout)
        self._claim = claim
        self._most_patience = timeout / 2
        self._hedge: asyncio.TimerHandle | None = None
        self._manner: Manner | None = None
        """How it goes on, where that is not to ask all of them and to hear what they say."""
        self._freed = 0
        self.fences: dict[int, int] = {}
        self.holding: dict[int, Held] = {}
        self.granted_late: Callable[[int], None] | None = None
        """Told of each node that grants, by its bit, after it was known what came of the attempt."""

    def ask_first(self, node: Node) -> None:
        """Ask that node alone, and the others only when it grants, or does not answer soon.

        Contenders who all start at the same node do not split the vote, and each lost race costs one command.
        """
        self._manner = Manner.ONE_FIRST
        self.asked = self.needed = 1
        self._wait_no_longer_than_patience()
        self.ask(node)

    def _ask_the_others(self) -> None:
        self._manner = None
        self.asked, self.needed = len(self._voters.nodes), self._voters.needed
        if not self._settled:
            if self._watch is not None:
                self._watch.others_follow(self.reached | self._open)
            self.ask_all()

    def _wait_no_longer_than_patience(self) -> None:
        """Contention waits only so long for a silent node: whoever holds votes for longer keeps everybody out."""
        # Those who have not answered may be farther away than those who have: a few of their own round trips.
        silent = [4 * node.latency for node in self._voters.nodes if self._open & node.bit and node.ready]
        patience = min(max(SILENCE, 4 * self._voters.round_trip, *silent), self._most_patience)
        self._hedge = self._voters.loop.call_later(patience, self._out_of_patience)

    def _out_of_patience(self) -> None:
        self._hedge = None
        if self._settled:
            return
        if self._manner is Manner.ONE_FIRST:
            self._ask_the_others()
        elif self.refused:
            # Somebody else is there, and the node that could decide is silent: let go of the votes we have.
            self._manner = Manner.DECIDED_BEFORE
            self._settle(Verdict.REFUSED)

    def _settle(self, verdict: Verdict) -> None:
        super()._settle(verdict)
        if self._hedge is not None:
            self._hedge.cancel()

    def call_off(self) -> None:
        """The client is closed: those who are not asked yet never will be, for its release is on its way."""
        self._settle(Verdict.UNREACHABLE)

    def deliver(self, node: int, reply: object) -> None:
        # With the release's below, the most frequent thing that the library does: nearly always it is a plain grant.
        bit = 1 << node
        fence = reply if type(reply) is int else self._granted(reply)
        if fence is None or not self._open & bit or self._voters.nodes.abstaining or self._manner is not None:
            super().deliver(node, reply)
            return
        self.fences[node] = fence
        self.holders |= bit
        self._open = left = self._open ^ bit
        self.granted = granted = self.granted + 1
        if granted == self.needed:
            self._win()
        elif self.granted_late is not None:
            self.granted_late(bit)
        if not left:
            self._all_answered()

    def read(self, node: int, reply: object) -> bool:
        if self._manner is Manner.DECIDED_BEFORE:
            # It was only far away: the next attempt will wait for it.
            far, took = self._voters.nodes[node], self._voters.now() - self.started_at
            far.latency = max(far.latency, took)
        if (fence := self._granted(reply)) is None:
            self._refused(node, self._claim.refusal(reply))
            return False
        if self._manner is Manner.ONE_FIRST:
            self._ask_the_others()
        self.fences[node] = fence
        if self.granted_late is not None:
            self.granted_late(1 << node)
        return True

    def _granted(self, reply: object) -> int | None:
        """The fence in a grant, or 0 when there is none; None if it is no grant."""
        if type(reply) is int:
            return reply
        return 0 if type(reply) is bytes and reply == self._command.grant else None

    def _refused(self, node: int, held: Held) -> None:
        if held.token is None and type(held) is Held and not isinstance(self._command, SetIfAbsent):
            raise TypeError  # a script that refuses says who holds it: asked again for that, it would be asked for ever
        self.holding[node] = held
        if self._hedge is None:
            self._wait_no_longer_than_patience()

    def _fail(self, node: int, cause: Exception) -> None:
        if self._manner is Manner.ONE_FIRST:
            self._ask_the_others()
        super()._fail(node, cause)

    def late(self, node: int, reply: object) -> None:
        if (fence := self._granted(reply)) is not None:
            self.fences[node] = fence
            self.holders |= 1 << node
            if self.granted_late is not None:
                # Of that node only: what the others said then, a renewal may have heard otherwise since.
                self.granted_late(1 << node)

    def freed(self, node: int) -> None:
        """The lock has changed on that node. It may be heard of before its refusal is."""
        self._freed |= 1 << node

    @property
    def could_win(self) -> bool:
        """Whether it has changed on so many of those that refused that a quorum is possible."""
        blocked = sum(1 for index in self.holding if not self._freed >> index & 1)
        return self.any_freed and blocked <= self.spare

    @property
    def any_freed(self) -> bool:
        """Whether it has changed on any that refused. Elsewhere it was not in the way."""
        return any(self._freed >> index & 1 for index in self.holding)

    @property
    def one_only(self) -> bool:
        """Whether the first node refused and the others were not asked."""
        return self.asked < len(self._voters.nodes)

    def holder(self) -> tuple[bytes | None, int]:
        """The token most refusals named, and by how many."""
        votes: dict[bytes | None, int] = {}
        for held in self.holding.values():
            votes[held.token] = votes.get(held.token, 0) + 1
        return max(votes.items(), key=lambda vote: (vote[0] is not None, vote[1]), default=(None, 0))

    @property
    def named(self) -> bool:
        """Whether a majority named the same holder: that one has it."""
        token, votes = self.holder()
        return token is not None and votes >= self._voters.needed

    def in_front(self) -> Held | None:
        """One of the refusals that named who is most in the way."""
        token, _ = self.holder()
        return next((held for held in self.holding.values() if held.token == token), None)

    def free_in(self) -> float | None:
        """Seconds until so many refusals have expired that a quorum is possible; None if unknown."""
        times = sorted(held.expires_in for held in self.holding.values() if held.expires_in is not None)
        if len(times) < len(self.holding):
            return None
        index = len(times) - self.spare - 1
        return times[index] if 0 <= index < len(times) else None

    def ends_in(self) -> float | None:
        """Seconds until what is in the way has run out, unless it is renewed; None if unknown."""
        times = sorted(math.inf if held.ends_in is None else held.ends_in for held in self.holding.values())
        # So many of those that refused are wanted. Of who has not answered nothing is hoped for, unlike in `free_in`.
        wanted = max(self._voters.needed - len(self.fences), 1)
        ends = times[min(wanted, len(times)) - 1] if times else math.inf
        return ends if ends < math.inf else None

    def fence(self) -> tuple[int, bool]:
        """The fencing token of these grants, and whether a quorum stores it already."""
        return choose(self.fences.values(), self.needed)


class Level(Round):
    """Have a quorum store the token, on nodes where the lock is ours."""

    __slots__ = ()

    elects = True
    operation = "fence"

    def read(self, node: int, reply: object) -> bool:  # noqa: ARG002 - Round's signature
        return reply == 1


class Released(Round):
    """Give a lock back on every node it may be held on. What cannot be delivered now is delivered on reconnecting."""

    __slots__ = ("_whole",)

    operation = "release"

    def __init__(self, voters: Voters, claim: Claim, command: Command, timeout: float) -> None:
        super().__init__(voters, command, timeout)
        self._whole = claim.width

    def send(self, reached: int) -> None:
        """Send to those nodes; the others never heard of the lock."""
        command, nodes = self._command, self._voters.nodes
        receiver: Receiver = self._watch or self
        if reached.bit_count() >= len(nodes) and (every := nodes.send_all(command, receiver)):
            self._open = every
            return
        if self._watch is not None:
            self._watch.asked = reached
        for node in nodes:
            bit = node.bit
            self._open |= bit
            if not reached & bit:
                self._fail(node.index, node.cause)
            elif (wire := node.wire) is None:
                node.clean_later(command)
                self._fail(node.index, node.cause)
            else:
                wire.send(command.pack(node.dialect), receiver)

    def deliver(self, node: int, reply: object) -> None:
        bit = 1 << node
        if reply != self._whole or not self._open & bit:
            super().deliver(node, reply)
            return
        self._open = left = self._open ^ bit
        self.granted = granted = self.granted + 1
        if granted == self.needed:
            self._win()
        if not left:
            self._all_answered()

    def read(self, node: int, reply: object) -> bool:  # noqa: ARG002 - Round's signature
        return reply == self._whole

    def may_send_again(self, bit: int) -> bool:  # noqa: ARG002 - Round's signature
        # A release is the last word on its token: sent again it can only do the same.
        return True

    def dropped(self, node: int, cause: Exception) -> None:
        self._voters.nodes[node].clean_later(self._command)
        super().dropped(node, cause)
