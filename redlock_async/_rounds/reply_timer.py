"""How long each node takes to reply, measured only while something listens; it changes nothing about a round."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from redlock_async._transport.broadcast import NodeGroup
from redlock_async._transport.node import Node
from redlock_async.events import NodeReply

from .context import Context

NODE_TIMED_OUT = TimeoutError("no answer in time")
"""The failure of a node that did not reply within the timeout."""


class Measured(Protocol):
    """A round, as far as its replies are measured."""

    started_at: float
    refused: int

    @property
    def nodes(self) -> NodeGroup:
        """The nodes that are asked."""
        ...

    @property
    def causes(self) -> Mapping[int, Exception]:
        """Why nodes failed, by their index."""
        ...

    def deliver(self, node: int, reply: object) -> None:
        """Take the reply of a node."""

    def dropped(self, node: int, cause: Exception) -> None:
        """The connection ended before the reply."""


class ReplyTimer:
    """Receives the replies in place of a round, notes the time, and passes them on.

    So a round to which nothing listens need not check that at each reply.
    """

    __slots__ = (
        "_asked", "_at", "_context", "_first", "_last", "_others_at", "_refused", "_refusers", "_round", "started_at",
    )  # fmt: skip

    def __init__(self, context: Context, round_: Measured) -> None:
        self._context = context
        self._round = round_
        self.started_at = round_.started_at
        self._at: dict[int, float] = {}
        """When each node replied."""
        self._last = self._refused = self._refusers = 0
        self._asked = -1
        """Bit mask of the nodes that were asked; -1 for all."""
        self._first = -1
        """Bit mask of the nodes that were asked before the others."""
        self._others_at = 0.0

    def only(self, nodes: int) -> None:
        """Note that only those nodes (a bit mask) are asked."""
        self._asked = nodes

    def others_follow(self, first: int) -> None:
        """Note that all nodes but those in the bit mask `first` are asked only now."""
        self._first, self._others_at = first, self._context.now()

    def deliver(self, node: int, reply: object) -> None:
        """Note when the node replied, and pass the reply on."""
        self._at[node] = self._context.now()
        self._last = node
        self._round.deliver(node, reply)
        self._count_refusals()

    def dropped(self, node: int, cause: Exception) -> None:
        """Note when the connection ended, and pass that on."""
        self._at[node] = self._context.now()
        self._round.dropped(node, cause)

    def _count_refusals(self) -> None:
        """Find out which nodes refused: a round only counts them."""
        if self._round.refused > self._refused:
            self._refused = self._round.refused
            self._refusers |= 1 << self._last

    def over(self, operation: str) -> None:
        """Report the replies: every node has replied or failed."""
        self._count_refusals()  # for the last reply, which is still being delivered
        replies = (self._reply(node) for node in self._round.nodes if self._asked & node.bit)
        self._context.events.emit_node_replies(operation, tuple(reply for reply in replies if reply is not None))

    def _reply(self, node: Node) -> NodeReply | None:
        """The reply of that node; None if it was not asked."""
        cause, at = self._round.causes.get(node.index), self._at.get(node.index)
        sent_at = self.started_at if self._first & node.bit else self._others_at
        if cause is NODE_TIMED_OUT:
            return NodeReply(node.label, "timed_out", self._context.now() - sent_at)
        seconds = None if at is None else at - sent_at
        if cause is not None:
            return NodeReply(node.label, "failed", seconds)
        if at is None:
            return None
        return NodeReply(node.label, "refused" if self._refusers & node.bit else "granted", seconds)


def timed(round_: Measured, context: Context) -> ReplyTimer:
    """Return the receiver that measures the replies to `round_`."""
    return ReplyTimer(context, round_)
