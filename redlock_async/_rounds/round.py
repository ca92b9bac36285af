"""A command that goes to the nodes, and the count of their replies. Replies that follow the verdict still count.

A round decides nothing about locks: its subclasses read what a reply is worth.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, TypeVar

from redlock_async._rules.fencing import AHEAD
from redlock_async._rules.quorum import Tally, Verdict
from redlock_async._rules.replies import missing_script
from redlock_async._transport.commands import Command, failure_of
from redlock_async._transport.connection import ErrorReply
from redlock_async._transport.node import Node
from redlock_async.errors import (
    ConfigurationError,
    NodeDenied,
    NodeNeedsOthers,
    NodeRefused,
    QuorumUnavailable,
    RedlockError,
    WrongKeyType,
    by_node,
)

from .context import Context
from .reply_timer import NODE_TIMED_OUT, timed

NOT_YET = TimeoutError("no reply yet")
"""The reason of a node that had not replied when the error was raised."""

POLL_INTERVAL = 0.01
"""Seconds between two looks at whether the last node has replied."""

NONE_FAILED: Mapping[int, Exception] = {}
"""The causes of most rounds."""


class Round(Tally):
    """A command, the nodes that it went to, and the count of their replies."""

    __slots__ = (
        "_command", "_context", "_decided", "_open", "_reply_timer", "causes", "granted_mask", "outcome", "over",
        "sent_mask", "started_at",
    )  # fmt: skip

    elects: ClassVar[bool] = False
    """Whether the round makes a new holder. Then nodes that may have forgotten the old one do not count. A holder that
    continues needs no such care: any other client would need the vote of a node that remembers it."""

    operation: ClassVar[str]
    """The name of the operation in `node_replies` events."""

    def __init__(self, context: Context, command: Command, timeout: float) -> None:
        self.asked, self.quorum = len(context.nodes), context.quorum
        self.granted = self.refused = self.failed = 0
        self._context = context
        self._command = command
        self._decided = False
        self._open = 0
        """Bit mask of the nodes that have been asked and have not replied."""
        self.sent_mask = 0
        """Bit mask of the nodes that may have executed the command."""
        self.granted_mask = 0
        """Bit mask of the nodes that granted."""
        self.causes: Mapping[int, Exception] = NONE_FAILED
        """Why nodes failed, by their index."""
        self.over = False
        """Whether every node has replied or failed."""
        self.outcome: asyncio.Future[Verdict] = context.loop.create_future()
        """The verdict, as soon as no outstanding reply can change it."""
        self.started_at = context.now()
        self._reply_timer = timed(self, context) if context.events.reply_listeners else None
        context.timeouts.add(self, timeout)

    # Sending

    def ask_all(self) -> None:
        """Send to every node that has not been asked yet."""
        asked, nodes = self.sent_mask | self._open, self._context.nodes
        if not asked and nodes.dialect is not None:
            nodes.batcher.send_all(self._command.pack(nodes.dialect), self._reply_timer or self)
            self.sent_mask, self._open = nodes.up, nodes.all
            if nodes.up != nodes.all:
                self._fail_others(nodes.up)
            return
        for node in nodes:
            if not asked & node.bit:
                self.ask(node)

    def _fail_others(self, asked: int) -> None:
        """Count the nodes that are not asked, because they are down or have nothing to release, as failed."""
        for node in self._context.nodes:
            if not asked & node.bit:
                self._fail(node.index, node.cause)

    def ask(self, node: Node) -> None:
        """Send to one node, which fails at once if it is down."""
        self._open |= node.bit
        if node.live is None:
            self._fail(node.index, node.cause)
        else:
            self.sent_mask |= node.bit
            node.live.send(self._command.pack(node.compare_and_delete), self._reply_timer or self)

    def abandon(self) -> None:
        """Send nothing more: the verdict is not needed any more, and the release of what was granted is on its way."""
        self._decided = True

    # Replies

    def read(self, node: int, reply: object) -> bool:
        """Return whether the reply is a grant. Raise NodeRefused if it is well-formed but cannot be true."""
        raise NotImplementedError

    def may_send_again(self, bit: int) -> bool:
        """Whether a node that has forgotten the script may be sent its source."""
        # Only while the round is undecided: afterwards its release may be on its way already.
        return bool(self._open & bit) and not self._decided

    def late(self, node: int, reply: object) -> None:
        """Handle a reply that came after the timeout."""

    def concluded(self) -> None:
        """Every node has replied, failed or timed out."""

    def deliver(self, node: int, reply: object) -> None:
        """Take the reply of a node."""
        bit = 1 << node
        try:
            if type(reply) is ErrorReply:
                self._failed_with(node, str(reply))
            elif not self._open & bit:
                self.late(node, reply)
            elif self.elects and self._context.nodes.abstaining & bit:
                why = self._context.nodes[node].abstains
                assert why is not None  # noqa: S101 - a node that abstains has a reason
                self._fail(node, why)
            elif self.read(node, reply):
                self.granted_mask |= bit
                self.granted += 1
                self._answered(bit)
            else:
                self.refused += 1
                self._answered(bit)
        except NodeRefused as why:
            self._fail(node, why)

    def _require_credible(self, number: int, what: str) -> None:
        """Raise NodeRefused for a number that no correct node returns."""
        if not 0 < number <= AHEAD and not 0 < number <= self._context.membership.highest_credible():
            raise NodeRefused(f"its {what} {number} is out of range: its clock, its data or its reply is wrong")

    def _failed_with(self, node: int, message: str) -> None:
        again = missing_script(message) and self.may_send_again(1 << node)
        if again and self._context.nodes[node].send_source(self._command, self._reply_timer or self):
            return
        # An error can come from the middle of a script, after its SET, so the node still needs a release.
        self._fail(node, failure_of(message, self._command))

    def dropped(self, node: int, cause: Exception) -> None:
        """The connection ended before the reply."""
        self._fail(node, cause)

    def _fail(self, node: int, cause: Exception) -> None:
        bit = 1 << node
        if self._open & bit:
            self.causes = {**self.causes, node: cause}
            self.failed += 1
            self._answered(bit)

    def _answered(self, bit: int) -> None:
        self._open &= ~bit
        if not self._decided and (verdict := self.verdict) is not Verdict.PENDING:
            self._decide(verdict)
        if not self._open:
            self._all_answered()

    def _all_answered(self) -> None:
        """Conclude, unless more nodes are asked later: while the command is being sent, or one node is asked first."""
        if self.granted + self.refused + self.failed >= self.asked:
            self.over = True
            self.concluded()
            if self._reply_timer is not None:
                timer, self._reply_timer = self._reply_timer, None
                timer.over(self.operation)

    def _decide(self, verdict: Verdict) -> None:
        self._decided = True
        if not self.outcome.done():
            self.outcome.set_result(verdict)

    def expire(self) -> None:
        """Count the nodes that have not replied as failed."""
        late = [node for node in self._context.nodes if self._open & node.bit]
        for node in late:
            self._fail(node.index, NODE_TIMED_OUT)
        for node in late:
            node.overdue()

    # Reporting

    @property
    def may_be_unreachable(self) -> bool:
        """Whether a quorum would be impossible if all nodes that have not replied yet failed."""
        return self._unreachable + self._open.bit_count() > self.spare

    @property
    def is_outage(self) -> bool:
        """Whether failures alone rule out a quorum, including those that became known after the verdict."""
        return self._unreachable > self.spare

    @property
    def _unreachable(self) -> int:
        # A node that has forgotten the script is not sent it again after the verdict, but it has replied.
        return sum(not missing_script(str(cause)) for cause in self.causes.values())

    @property
    def has_heard_all(self) -> bool:
        """Whether every node that was asked has replied, failed or timed out."""
        return not self._open

    async def hear_all(self) -> None:
        """Wait until it has, so that an error can give each node's reason."""
        give_up_at = self._context.now() + self._context.node_timeout
        while self._open and self._context.now() < give_up_at:  # noqa: ASYNC110 - an event would cost every round
            await asyncio.sleep(POLL_INTERVAL)

    def unavailable(self, what: str, names: Sequence[str], did: str = "could vote") -> QuorumUnavailable:
        """Return the failures of this round as one error that names each node; `did` is what too few nodes did."""
        causes = {}
        for node in self._context.nodes:
            cause = NOT_YET if self._open & node.bit else self.causes.get(node.index)
            if cause is not None:
                causes[node.label] = cause
        number = self.granted
        if did == "could vote":
            causes = _without_able(causes, self.spare)
            number = self.asked - len(causes)
        why = no_quorum_reason(number, self.asked, self.quorum, causes, did)
        return QuorumUnavailable(f"{what}: {why}", names=names, nodes=causes)

    def fatal_error(self, names: Sequence[str], *, last: bool = False) -> Exception | None:
        """Return the error to raise at once if another attempt cannot help; `last` if there is no time for one."""
        spare = self.spare
        # A node that is down can end the round before all nodes with a conflict have replied. With time left, the next
        # attempt hears from the others; without, those that replied decide.
        pending = self._open.bit_count() if last and not self.granted + self.refused else 0
        for kind in (WrongKeyType, ConfigurationError):
            conflicts = [cause for cause in self.causes.values() if isinstance(cause, kind)]
            if len(conflicts) + pending > spare and 2 * len(conflicts) > self.failed:
                return kind(f"cannot lock {quoted(names)}: {conflicts[0]}", names=names)
        if sum(isinstance(cause, NodeDenied) for cause in self.causes.values()) > spare:
            what = f"cannot lock {quoted(names)}: too many nodes deny access, and trying again will not help"
            return self.unavailable(what, names)
        return None


def _without_able(causes: dict[str, Exception], spare: int) -> dict[str, Exception]:
    """Return the causes without those of nodes that could vote, if the others alone rule out a quorum."""
    able = {
        label for label, cause in causes.items() if missing_script(str(cause)) and not isinstance(cause, NodeDenied)
    }
    waiting = {label for label, cause in causes.items() if isinstance(cause, NodeNeedsOthers)}
    for left_out in (able, waiting):
        if len(causes.keys() - left_out) > spare:
            causes = {label: cause for label, cause in causes.items() if label not in left_out}
    return causes


def quoted(names: Sequence[str]) -> str:
    """Return lock names as they appear in messages."""
    return ", ".join(map(repr, names))


def no_quorum_reason(
    number: int, asked: int, quorum: int, causes: Mapping[str, Exception], did: str = "could vote"
) -> str:
    """Return why there is no quorum, as it appears in messages."""
    return f"only {number} of {asked} nodes {did} and {quorum} are needed ({by_node(causes)})"


R = TypeVar("R", bound=Round)


async def until_decided(context: Context, start: Callable[[], R], deadline: float | None, what: str, name: str) -> R:
    """Run rounds until a majority has granted or refused one; raise QuorumUnavailable if none has by the deadline."""
    while True:
        round_ = start()
        round_.ask_all()
        try:
            verdict = await round_.outcome
        finally:
            round_.abandon()
        if verdict is not Verdict.UNREACHABLE:
            return round_
        if context.closed:
            raise RedlockError(f"{what} {name!r}: the client was closed")
        left = math.inf if deadline is None else deadline - context.now()
        if error := round_.fatal_error((name,), last=left <= 0):
            raise error
        if left <= 0:
            await round_.hear_all()
            raise round_.unavailable(f"{what} {name!r}", (name,))
        await asyncio.sleep(min(left, context.retry_delay * context.random.uniform(0.25, 1.0)))
