"""One command to every node until the verdict is in; what comes later is still accounted for.

It decides nothing about locks: what a reply is worth is read by the subclasses.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from random import Random
from typing import ClassVar, Protocol, TypeVar

from ._deadlines import Deadlines
from ._errors import ConfigurationError, KeyConflict, NodeDenied, QuorumUnavailable, RedlockError, by_node
from ._fleet import Fleet
from ._node import Node
from ._quorum import Tally, Verdict
from ._replies import failure, missing_script
from ._scripts import Command
from ._watch import MISSED, Watch
from ._wire import ErrorReply, Receiver
from .events import Events


class Voters(Protocol):
    """What a round needs of the client it is for."""

    loop: asyncio.AbstractEventLoop
    nodes: Fleet
    needed: int
    now: Callable[[], float]
    deadlines: Deadlines
    events: Events
    round_trip: float
    """Smoothed duration of a round."""


class Patient(Voters, Protocol):
    """What asking again and again needs of the client it is for."""

    random: Random
    retry_delay: float
    closed: bool


class Round(Tally):
    """A command, the nodes it went to, and the count of their answers."""

    __slots__ = (
        "_command", "_open", "_settled", "_voters", "_watch", "causes", "holders", "outcome", "over", "reached",
        "started_at",
    )  # fmt: skip

    elects: ClassVar[bool] = False
    """Whether it makes a new holder: then nodes that may have forgotten the old one do not count. A holder that goes on
    needs no such care: whoever else wanted a quorum would need one of the nodes that remember it."""

    operation: ClassVar[str]
    """What those who watch the answers call it."""

    def __init__(self, voters: Voters, command: Command, timeout: float) -> None:
        self.asked, self.needed = len(voters.nodes), voters.needed
        self.granted = self.refused = self.failed = 0
        self._voters = voters
        self._command = command
        self._settled = False
        self._open = 0
        """Bit mask of the nodes that still owe an answer."""
        self.reached = 0
        """Bit mask of the nodes the command may have been carried out on."""
        self.holders = 0
        """Bit mask of the nodes that granted."""
        self.causes: dict[int, Exception] = {}
        self.over = False
        """Whether every node has answered or failed."""
        self.outcome: asyncio.Future[Verdict] = voters.loop.create_future()
        """The verdict, as soon as no outstanding answer can change it."""
        self.started_at = voters.now()
        self._watch = Watch(voters.events, voters.nodes, voters.now, self) if voters.events.watchers else None
        voters.deadlines.add(self, timeout)

    # Sending

    def ask_all(self) -> None:
        """Send to every node that is not asked yet."""
        asked, command = self.reached | self._open, self._command
        receiver: Receiver = self._watch or self
        if not asked and (every := self._voters.nodes.send_all(command, receiver)):
            self.reached = self._open = every
            return
        for node in self._voters.nodes:
            bit = node.bit
            if asked & bit:
                continue
            self._open |= bit
            wire = node.live
            if wire is None:
                self._fail(node.index, node.cause)
                continue
            self.reached |= bit
            wire.send(command.pack(node.dialect), receiver)

    def ask(self, node: Node) -> None:
        """Send to one node; a node that is down has failed at once."""
        self._open |= node.bit
        if node.live is None:
            self._fail(node.index, node.cause)
        else:
            self.reached |= node.bit
            node.live.send(self._command.pack(node.dialect), self._watch or self)

    def abandon(self) -> None:
        """Nobody waits for the verdict any more: from here on it sends nothing, because its release is on its way."""
        self._settled = True

    # Answers

    def read(self, node: int, reply: object) -> bool:
        """Whether that reply is a grant."""
        raise NotImplementedError

    def may_send_again(self, bit: int) -> bool:
        """Whether a node that had forgotten the script may be sent its source."""
        # Only while the round is undecided: afterwards its release may be on the way already.
        return bool(self._open & bit) and not self._settled

    def late(self, node: int, reply: object) -> None:
        """An answer after its time was up."""

    def concluded(self) -> None:
        """Every node has answered, failed, or run out of time."""

    def deliver(self, node: int, reply: object) -> None:
        bit = 1 << node
        if type(reply) is ErrorReply:
            self._failed_with(node, str(reply))
        elif not self._open & bit:
            self.late(node, reply)
        elif self.elects and self._voters.nodes.abstaining & bit:
            why = self._voters.nodes[node].abstains
            assert why is not None  # noqa: S101 - that is what abstaining means
            self._fail(node, why)
        elif self.read(node, reply):
            self.holders |= bit
            self.granted += 1
            self._answered(bit)
        else:
            self.refused += 1
            self._answered(bit)

    def _failed_with(self, node: int, message: str) -> None:
        again = missing_script(message) and self.may_send_again(1 << node)
        if again and self._voters.nodes[node].send_source(self._command, self._watch or self):
            return
        # An error can come from the middle of a script, after its SET: the node stays one that is to be released.
        self._fail(node, failure(message))

    def dropped(self, node: int, cause: Exception) -> None:
        self._fail(node, cause)

    def _fail(self, node: int, cause: Exception) -> None:
        bit = 1 << node
        if self._open & bit:
            self.causes[node] = cause
            self.failed += 1
            self._answered(bit)

    def _answered(self, bit: int) -> None:
        self._open &= ~bit
        if not self._settled and (verdict := self.verdict) is not Verdict.PENDING:
            self._settle(verdict)
        if not self._open:
            self._all_answered()

    def _all_answered(self) -> None:
        """All that were asked until now; while it is being sent, or goes to one node first, others follow."""
        if self.granted + self.refused + self.failed >= self.asked:
            self.over = True
            self.concluded()
            if self._watch is not None:
                watch, self._watch = self._watch, None
                watch.over(self.operation)

    def _win(self) -> None:
        """The grant just counted made a quorum."""
        if not self._settled:
            self._settle(Verdict.WON)

    def _settle(self, verdict: Verdict) -> None:
        self._settled = True
        if not self.outcome.done():
            self.outcome.set_result(verdict)

    def expire(self) -> None:
        """Whoever has not answered by now has failed."""
        late, nodes = self._open, self._voters.nodes
        for node in nodes:
            if late & (1 << node.index):
                self._fail(node.index, MISSED)
        for node in nodes:
            if late & (1 << node.index):
                node.overdue()

    # Reporting

    def unavailable(self, what: str, names: Sequence[str], did: str = "could vote") -> QuorumUnavailable:
        """The failures of this round as one error that names each node; `did` is what too few masters did."""
        nodes = self._voters.nodes
        causes = {nodes[index].label: cause for index, cause in sorted(self.causes.items())}
        number = self.asked - self.failed if did == "could vote" else self.granted
        return QuorumUnavailable(
            f"{what}: only {number} of {self.asked} masters {did} and {self.needed} are needed ({by_node(causes)})",
            names=names,
            nodes=causes,
        )

    def hopeless(self, names: Sequence[str], *, last: bool = False) -> Exception | None:
        """The error to raise at once when trying again cannot help; `last` when there is no time to try again."""
        spare = self.spare
        # A node that is down can have ended the round before all that conflict had answered. Whoever can wait learns
        # what the others say; whoever cannot is told what those who answered agree on.
        pending = self._open.bit_count() if last and not self.granted + self.refused else 0
        for kind in (KeyConflict, ConfigurationError):
            conflicts = [cause for cause in self.causes.values() if isinstance(cause, kind)]
            if len(conflicts) + pending > spare and 2 * len(conflicts) > self.failed:
                shown = ", ".join(map(repr, names))
                return kind(f"cannot lock {shown}: {conflicts[0]}", names=names)
        if sum(isinstance(cause, NodeDenied) for cause in self.causes.values()) > spare:
            return self.unavailable("refused for good", names)
        return None


R = TypeVar("R", bound=Round)


async def until_decided(voters: Patient, ask: Callable[[], R], deadline: float | None, what: str, name: str) -> R:
    """Ask until a majority has done it or refused it; QuorumUnavailable when that is not known by the deadline."""
    while True:
        round_ = ask()
        round_.ask_all()
        try:
            verdict = await round_.outcome
        finally:
            round_.abandon()
        if verdict is not Verdict.UNREACHABLE:
            return round_
        if voters.closed:
            raise RedlockError(f"{what} {name!r}: the client was closed")
        left = math.inf if deadline is None else deadline - voters.now()
        if error := round_.hopeless((name,), last=left <= 0):
            raise error
        if left <= 0:
            raise round_.unavailable(f"{what} {name!r}", (name,))
        await asyncio.sleep(min(left, voters.retry_delay * voters.random.uniform(0.25, 1.0)))
