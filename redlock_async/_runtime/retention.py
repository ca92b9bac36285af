"""Keep a name locked after its lease has ended, for `min_hold`: on every node, for as long as that lasts.

A lease may be held on a bare quorum, and some of its nodes may be unreachable when it ends. So every node is asked to
keep the key, and it is set where it is missing. A lease that was freed by force must not come back that way. As with a
renewal, more nodes without the key than a quorum can spare mean that it was freed; then nothing is set. This counts
only for as long as the lease itself would have stood: after that, its keys have expired where the hold was not stored.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

from redlock_async._kinds.kind import LockKind
from redlock_async._rounds.context import Context
from redlock_async._rounds.reply_timer import NODE_TIMED_OUT, timed
from redlock_async._rounds.round import quoted
from redlock_async._rules.quorum import Verdict
from redlock_async._rules.replies import missing_script
from redlock_async._transport.commands import Command, failure_of
from redlock_async._transport.connection import ErrorReply, Receiver
from redlock_async._transport.node import Node
from redlock_async.errors import HoldUnconfirmed, by_node

LONGEST_WAIT = 5.0
"""Seconds that a release waits at most for a quorum to store the hold: a node that comes back is connected by then."""

MAX_TRIES = 4
"""Attempts to set the key where another client has the name, with growing pauses, once it is known how it ended."""


class Retention:
    """One hold, until every node has stored it, another client has the name there, or its time is over.

    A node that was unreachable is asked again when it is back, for what is left of the hold by then. A node that has
    confirmed is not asked again, so that a later `force_release` stands.
    """

    __slots__ = (
        "_asked", "_command", "_context", "_gone", "_kind", "_left", "_missing", "_on_freed", "_on_over",
        "_on_unconfirmed", "_open", "_ours", "_reply_timer", "_sent_mask", "_settable", "_timer", "_token", "_tries",
        "_verdict", "causes", "error", "outcome", "over", "refused", "spare", "started_at", "until",
    )  # fmt: skip

    def __init__(
        self,
        context: Context,
        kind: LockKind,
        token: bytes,
        sent_mask: int,
        ms: int,
        *,
        left: float,
        on_unconfirmed: Callable[[HoldUnconfirmed], None],
        on_freed: Callable[[int], object],
        on_over: Callable[[Retention], object],
    ) -> None:
        self._context = context
        self._kind = kind
        self._token = token
        self._sent_mask = sent_mask
        """Bit mask of the nodes that may hold the key because of what we sent."""
        self._left = left
        """Seconds for which the lease would have stood: for that long a quorum holds the name anyway."""
        self._on_unconfirmed = on_unconfirmed
        self._on_freed = on_freed
        self._on_over = on_over
        self.started_at = context.now()
        self.until = self.started_at + ms / 1000
        """The end of the hold."""
        self._command = kind.release_after(token, ms)
        self.spare = context.spare
        self._open = (1 << len(context.nodes)) - 1
        """Bit mask of the nodes that are yet to store it."""
        self._asked = 0
        """Bit mask of the nodes that have been asked and have not replied."""
        self._ours = 0
        """Bit mask of the nodes that have stored it."""
        self._gone = 0
        """Bit mask of the nodes that did not hold the key although the lease would have stood."""
        self.refused = 0
        """How many they are."""
        self.over = False
        """Whether every node has stored it, or is not to store it any more."""
        self._missing = 0
        """Bit mask of the nodes where it is to be set."""
        self._settable = False
        """Whether it is known well enough that the lease was not freed by force."""
        self._tries = 0
        """How often it could not be set because another client had the name there."""
        self._verdict: Verdict | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.causes: dict[int, Exception] = {}
        self.error: HoldUnconfirmed | None = None
        self.outcome: asyncio.Future[Verdict] = context.loop.create_future()
        """WON: a quorum has stored it. REFUSED: the lease had been freed. UNREACHABLE: `error` says why."""
        self._reply_timer = timed(self, context) if context.events.reply_listeners else None

    @property
    def _covered(self) -> bool:
        """Whether the lease would have stood for as long as the hold."""
        return self.started_at + self._left >= self.until

    def start(self) -> None:
        """Ask every node. Synchronous, as a release is."""
        context = self._context
        limit = context.node_timeout if self._covered else min(max(self._left, context.node_timeout), LONGEST_WAIT)
        self._timer = context.call_later(limit, self._give_up)
        context.timeouts.add(self, context.node_timeout)
        for node in context.nodes:
            if node.live is None:
                self.causes[node.index] = node.cause
            else:
                self._asked |= node.bit
                node.live.send(self._command.pack(node.compare_and_delete), self._reply_timer or self)
        self._proceed()

    # Replies to the first command

    def deliver(self, node: int, reply: object) -> None:
        """Take the reply of a node."""
        self.take(self._context.nodes[node], reply, self._command, self, sets=False)

    def dropped(self, node: int, cause: Exception) -> None:
        """The connection ended before the reply: the node is asked again on the next one."""
        self.fail(self._context.nodes[node], cause)

    # Replies

    def take(self, node: Node, reply: object, command: Command, receiver: Receiver, *, sets: bool) -> None:
        """Take a reply to a command that sets the key where it is missing, or does not."""
        if isinstance(reply, ErrorReply):
            if not (missing_script(str(reply)) and node.send_source(command, receiver)):
                self.fail(node, failure_of(str(reply), command))
            return
        if type(reply) is not int:
            raise TypeError("an integer is needed")
        self._asked &= ~node.bit
        if reply == (1 if sets else self._kind.state_count):
            self._stored(node)
            if self._context.now() - receiver.started_at > self._context.node_timeout:
                # It may have been executed as late as it was answered, and the key would stay for longer.
                self._ask(node)
        elif sets:
            self._taken(node)
        else:
            self._missing |= node.bit
            if self._context.now() < self.started_at + self._left:
                self._gone |= node.bit
                self.refused = self._gone.bit_count()
                if self.refused > self.spare and self._verdict is not Verdict.WON:
                    self._freed()
        self._proceed()

    def fail(self, node: Node, cause: Exception) -> None:
        """That node has not stored it, for now."""
        self._asked &= ~node.bit
        self.causes[node.index] = cause
        self._proceed()

    def _stored(self, node: Node) -> None:
        self.causes.pop(node.index, None)
        self._open &= ~node.bit
        self._ours |= node.bit
        if self._ours.bit_count() >= self._context.quorum:
            self._decide(Verdict.WON)
            self._settable = True

    def _taken(self, node: Node) -> None:
        """Another client has it there: one that tries and is about to release it, or a new holder."""
        if self._verdict is not None and self._tries >= MAX_TRIES:
            self._open &= ~node.bit
            return
        context, pause = self._context, self._context.retry_delay * 2 ** min(self._tries, MAX_TRIES)
        self._tries += 1
        context.call_later(pause * context.random.uniform(0.5, 1.0), self._try_again, node)

    def _try_again(self, node: Node) -> None:
        self._missing |= node.bit
        self._proceed()

    def _freed(self) -> None:
        """The name was freed by force: take back what was stored before that was known."""
        self._decide(Verdict.REFUSED)
        self._open = 0
        self._on_freed(self._sent_mask | self._ours)

    def _proceed(self) -> None:
        """Set the key where it is missing, once no more replies are expected."""
        if not self._asked:
            self._settable = True
            self._first_replies_are_in()
        if self._settable:
            for node in self._context.nodes:
                if self._missing & self._open & ~self._asked & node.bit:
                    self._ask(node, sets=True)
        if not self._open:
            self.over = True
            self._on_over(self)

    def _ask(self, node: Node, *, sets: bool = False) -> None:
        ms = math.ceil((self.until - self._context.now()) * 1000)
        if ms <= 0:
            self._end(node)
        elif node.live is not None:
            self._asked |= node.bit
            if sets:
                self._missing &= ~node.bit
                self._sent_mask |= node.bit
            kind, token = self._kind, self._token
            command = kind.reassert(token, None, ms) if sets else kind.release_after(token, ms)
            receiver = RetentionReply(node, command, self._context.now(), self.take, self.fail, sets=sets)
            node.live.send(command.pack(node.compare_and_delete), receiver)

    # Time

    def expire(self) -> None:
        """Stop waiting for the nodes that have not replied."""
        late = [node for node in self._context.nodes if self._asked & node.bit]
        for node in late:
            self.causes[node.index] = NODE_TIMED_OUT
        self._first_replies_are_in()
        for node in late:
            node.overdue()
        self._settable = True
        self._proceed()

    def _first_replies_are_in(self) -> None:
        if self._reply_timer is not None:
            timer, self._reply_timer = self._reply_timer, None
            timer.over("release")

    def _give_up(self) -> None:
        if self._covered:
            self._decide(Verdict.WON)
        elif self._verdict is None:
            self._on_unconfirmed(self._unconfirmed())

    def _unconfirmed(self) -> HoldUnconfirmed:
        nodes = self._context.nodes
        causes = {nodes[index].label: cause for index, cause in sorted(self.causes.items())}
        self.error = HoldUnconfirmed(
            f"the work under the lock on {quoted(self._kind.names)} is done, but too few nodes stored that the name "
            f"stays locked for another {max(self.until - self._context.now(), 0):.0f} s: only "
            f"{self._ours.bit_count()} of {len(nodes)} confirmed it and {self._context.quorum} are needed "
            f"({by_node(causes)}). Do not retry the work: another client may start it again before that time is over",
            names=self._kind.names,
            nodes=causes,
        )
        self._decide(Verdict.UNREACHABLE)
        return self.error

    def _decide(self, verdict: Verdict) -> None:
        if self._verdict is None:
            self._verdict = verdict
            if self._timer is not None:
                self._timer.cancel()
            if not self.outcome.done():
                self.outcome.set_result(verdict)
        elif verdict is Verdict.WON:
            self._verdict = verdict  # later than the release waited for

    # Events of the client

    def resume(self, now: float) -> None:
        """Ask again, or end: a node has come up, or it is time to see which holds are over."""
        for node in self._context.nodes:
            if now >= self.until:
                self._end(node)
            elif self._open & ~self._asked & node.bit:
                self._ask(node)
        self._proceed()

    def _end(self, node: Node) -> None:
        """The hold is over. A command that we sent may still be executed on a node that is stopped."""
        if self._open & self._sent_mask & node.bit:
            node.send_durably(self._kind.release(self._token), math.inf)
        self._open &= ~node.bit

    def close(self) -> None:
        """Stop, because the client is closed: nothing more is sent."""
        if self._verdict is None:
            self._unconfirmed()


class RetentionReply:
    """Receives the reply of one node to a further command of a retention."""

    __slots__ = ("_command", "_fail", "_node", "_sets", "_take", "started_at")

    def __init__(
        self,
        node: Node,
        command: Command,
        now: float,
        take: Callable[..., None],
        fail: Callable[[Node, Exception], None],
        *,
        sets: bool,
    ) -> None:
        self._node = node
        self._command = command
        self._take = take
        self._fail = fail
        self._sets = sets
        self.started_at = now

    def deliver(self, node: int, reply: object) -> None:  # noqa: ARG002 - one node only
        """Take the reply."""
        self._take(self._node, reply, self._command, self, sets=self._sets)

    def dropped(self, node: int, cause: Exception) -> None:  # noqa: ARG002 - one node only
        """The connection ended before the reply."""
        self._fail(self._node, cause)
