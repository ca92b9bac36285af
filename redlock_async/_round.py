"""One command to every node until the verdict is in; what comes later is still accounted for.

It decides nothing about locks: what a reply is worth is read by the subclasses.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import ClassVar, Protocol

from ._deadlines import Deadlines
from ._errors import ConfigurationError, KeyConflict, NodeDenied, QuorumUnavailable
from ._node import Node
from ._quorum import Tally, Verdict
from ._replies import failure, missing_script
from ._scripts import Command
from ._wire import ErrorReply

MISSED = TimeoutError("no answer in time")


class Voters(Protocol):
    """What a round needs of the client it is for."""

    loop: asyncio.AbstractEventLoop
    nodes: Sequence[Node]
    needed: int
    now: Callable[[], float]
    deadlines: Deadlines


class Round:
    """A command, the nodes it went to, and the count of their answers."""

    __slots__ = (
        "_command", "_future", "_open", "_settled", "_voters", "causes", "holders", "over", "reached", "started_at",
        "tally",
    )  # fmt: skip

    elects: ClassVar[bool] = False
    """Whether it makes a new holder: then nodes that may have forgotten the old one do not count. A holder that goes on
    needs no such care: whoever else wanted a quorum would need one of the nodes that remember it."""

    def __init__(self, voters: Voters, command: Command, timeout: float) -> None:
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
        self.tally = Tally(len(voters.nodes), voters.needed)
        self.over = False
        """Whether every node has answered or failed."""
        self._future: asyncio.Future[Verdict] = voters.loop.create_future()
        self.started_at = voters.now()
        voters.deadlines.add(self, timeout)

    # Sending

    def ask_all(self) -> None:
        """Send to every node that is not asked yet."""
        asked, command = self.reached | self._open, self._command
        dialect, packed = None, b""
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
            if node.dialect is not dialect:  # nodes are mostly of one kind, and then the bytes are the same
                dialect = node.dialect
                packed = command.pack(dialect)
            wire.send(packed, self)

    def ask(self, node: Node) -> None:
        """Send to one node; a node that is down has failed at once."""
        self._open |= node.bit
        if node.live is None:
            self._fail(node.index, node.cause)
        else:
            self.reached |= node.bit
            node.live.send(self._command.pack(node.dialect), self)

    def verdict(self) -> asyncio.Future[Verdict]:
        """The verdict, as soon as no outstanding answer can change it."""
        return self._future

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
        if isinstance(reply, ErrorReply):
            message = str(reply)
            again = missing_script(message) and self.may_send_again(bit)
            if again and self._voters.nodes[node].send_source(self._command, self):
                return
            # An error can come from the middle of a script, after its SET: the node stays one that is to be released.
            self._fail(node, failure(message))
            return
        if not self._open & bit:
            self.late(node, reply)
            return
        if self.elects and (abstains := self._voters.nodes[node].abstains) is not None:
            self._fail(node, abstains)
            return
        if self.read(node, reply):
            self.holders |= bit
            self.tally.granted += 1
        else:
            self.tally.refused += 1
        self._answered(bit)

    def dropped(self, node: int, cause: Exception) -> None:
        self._fail(node, cause)

    def _fail(self, node: int, cause: Exception) -> None:
        bit = 1 << node
        if self._open & bit:
            self.causes[node] = cause
            self.tally.failed += 1
            self._answered(bit)

    def _answered(self, bit: int) -> None:
        self._open &= ~bit
        tally = self.tally
        if not self._settled:
            if tally.granted >= tally.needed:
                self._settle(Verdict.WON)
            elif (tally.refused or tally.failed) and (verdict := tally.verdict) is not Verdict.PENDING:
                self._settle(verdict)
        if not self._open and tally.granted + tally.refused + tally.failed >= tally.nodes:
            self.over = True
            self.concluded()

    def _settle(self, verdict: Verdict) -> None:
        self._settled = True
        if not self._future.done():
            self._future.set_result(verdict)

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
        nodes, tally = self._voters.nodes, self.tally
        causes = {nodes[index].label: cause for index, cause in sorted(self.causes.items())}
        each = "; ".join(f"{label}: {cause}" for label, cause in causes.items())
        number = tally.nodes - tally.failed if did == "could vote" else tally.granted
        return QuorumUnavailable(
            f"{what}: only {number} of {tally.nodes} masters {did} and {tally.needed} are needed ({each})",
            names=names,
            nodes=causes,
        )

    def hopeless(self, names: Sequence[str], *, last: bool = False) -> Exception | None:
        """The error to raise at once when trying again cannot help; `last` when there is no time to try again."""
        spare = self.tally.nodes - self.tally.needed
        # A node that is down can have ended the round before all that conflict had answered. Whoever can wait learns
        # what the others say; whoever cannot is told what those who answered agree on.
        pending = self._open.bit_count() if last and not self.tally.granted + self.tally.refused else 0
        for kind in (KeyConflict, ConfigurationError):
            conflicts = [cause for cause in self.causes.values() if isinstance(cause, kind)]
            if len(conflicts) + pending > spare and 2 * len(conflicts) > self.tally.failed:
                shown = ", ".join(map(repr, names))
                return kind(f"cannot lock {shown}: {conflicts[0]}", names=names)
        if sum(isinstance(cause, NodeDenied) for cause in self.causes.values()) > spare:
            return self.unavailable("refused for good", names)
        return None
