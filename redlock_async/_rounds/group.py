"""Group commit: the plain acquires and releases of one iteration of the loop, in one command per node.

The first of an iteration is sent as it is, so that a single one costs what it always did; the others are collected.
Each member of a group is a round with its own token, votes, verdict and errors; only the command and its replies are
shared. While every reply grants everything, the replies are counted once for the whole group.

The order of commands is kept: what is sent otherwise stands behind all members that were collected before it. Only
releases overtake acquires of the same iteration. An acquire that is called off before its group is sent is not sent at
all, so its release cannot overtake it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from redlock_async._rules.replies import missing_script
from redlock_async._transport.broadcast import NodeGroup
from redlock_async._transport.clock_watch import ClockWatch
from redlock_async._transport.commands import LINE, Command, DeleteEachIfEqual, acquire_many, failure_of
from redlock_async._transport.connection import Connection, ErrorReply, Receiver
from redlock_async._transport.node import Node

Replies = Sequence[tuple[int, object]]
"""Nodes, and what they replied."""


class Member(Protocol):
    """A round, as far as its group is concerned."""

    started_at: float
    timeout: float
    command: Any
    """What it sends if it is sent alone: an AcquireOne or a DeleteIfEqual."""

    @property
    def measured(self) -> bool:
        """Whether every reply must reach its receiver."""
        ...

    @property
    def receiver(self) -> Receiver:
        """What takes its replies."""
        ...

    @property
    def wanted(self) -> bool:
        """Whether it is still to be sent."""
        ...

    def send_alone(self) -> None:
        """Send its command to its nodes."""

    def sent_in(self, group: Group, asked: int, reached: int) -> None:
        """It is for the nodes in one bit mask, and the group's command goes to those in the other."""

    def unsent(self, node: Node, *, asked: bool) -> None:
        """The group's command does not go to that node; `asked`: although it is for it."""

    def may_send_again(self, bit: int) -> bool:
        """Whether a node, by its bit, may be sent the command again."""
        ...

    def won_together(self, nodes: int, tokens: dict[int, int]) -> None:
        """A quorum, the nodes in a bit mask, granted everything; locks that are acquired got these tokens, by node."""

    def granted_late(self, bit: int) -> None:
        """So did one more node, by its bit."""

    def count_grants(self, nodes: int, replies: Replies) -> None:
        """Count what those nodes granted, which was counted for the group only."""

    def sent_again(self) -> None:
        """It was sent again, behind what was sent since."""

    def failed_on(self, node: int, cause: Exception) -> None:
        """That node has failed."""

    def expire(self) -> None:
        """Count the nodes that have not replied as failed."""


class Group:
    """Some members with one command, and the replies that were counted for all of them at once."""

    __slots__ = (
        "_apart", "_clocks", "_command", "_mask", "_members", "_nodes", "_on_rejected", "_open", "_quorum",
        "_replies", "_tokens", "started_at",
    )  # fmt: skip

    def __init__(
        self,
        nodes: NodeGroup,
        quorum: int,
        clocks: ClockWatch,
        members: Sequence[Member],
        *,
        on_rejected: Callable[[], None],
        apart: bool = False,
    ) -> None:
        self._nodes = nodes
        self._quorum = quorum
        self._clocks = clocks
        self._members: Sequence[Member] = members
        self._on_rejected = on_rejected
        self._command = self._join([member.command for member in members])
        self.started_at = members[0].started_at
        self._apart = apart or any(member.measured for member in members)
        """Whether each member counts for itself."""
        self._replies: list[tuple[int, object]] = []
        """The replies that were counted for all at once."""
        self._tokens: dict[int, int] = {}
        """The fencing tokens in them, by node."""
        self._mask = 0
        """The nodes that they came from, as a bit mask."""
        self._open = 0
        """The nodes that have not replied, as a bit mask."""

    # Sending

    @staticmethod
    def _join(commands: Sequence[Any]) -> Command:
        """Return one command for all of these."""
        raise NotImplementedError

    def send(self, asked: int) -> None:
        """Send the command to those nodes (a bit mask)."""
        nodes, members = self._nodes, self._members
        if nodes.dialect is not None and asked == nodes.all:
            self._open = asked
            for member in members:
                member.sent_in(self, asked, asked)
            nodes.batcher.send_all(self._command.pack(nodes.dialect), self)
            return
        connections = [self._connection_to(node) if asked & node.bit else None for node in nodes]
        self._open = sum(node.bit for node in nodes if connections[node.index] is not None)
        for member in members:
            member.sent_in(self, asked, self._open)
        for node in nodes:
            if (connection := connections[node.index]) is not None:
                connection.send(self._command.pack(node.compare_and_delete), self)
                continue
            for member in members:
                member.unsent(node, asked=bool(asked & node.bit))

    def _connection_to(self, node: Node) -> Connection | None:
        """Return the connection on which the command may be sent to that node."""
        raise NotImplementedError

    # Replies

    def _grants_all(self, node: int, reply: object) -> bool:
        """Whether a reply grants everything to each member."""
        raise NotImplementedError

    def deliver(self, node: int, reply: object) -> None:
        """Take the reply of a node."""
        bit = 1 << node
        self._open &= ~bit
        if not self._apart and self._grants_all(node, reply):
            self._replies.append((node, reply))
            self._mask |= bit
            self._count(node)
            if not self._open:
                self._members = ()  # they refer to the group: such a circle would wait for the garbage collector
            return
        self.hand_out()
        if type(reply) is ErrorReply:
            self._rejected(node, str(reply))
            return
        for member, part in zip(self._members, self._parts(reply), strict=True):
            member.receiver.deliver(node, part)

    def _count(self, node: int) -> None:
        """One more node granted everything."""
        number, quorum = len(self._replies), self._quorum
        if number == quorum:
            for member in self._members:
                member.won_together(self._mask, self._tokens)
        elif number > quorum:
            for member in self._members:
                member.granted_late(1 << node)

    def _parts(self, reply: object) -> Sequence[object]:
        """The replies to the members."""
        raise NotImplementedError

    def hand_out(self, wanted_by: Member | None = None) -> None:
        """Let each member count for itself, from the first reply on; once all have replied, only that one."""
        if self._apart:
            return
        if self._members:
            self._apart = True
        if self._replies:
            for member in self._members or filter(None, (wanted_by,)):
                member.count_grants(self._mask, self._replies)

    def dropped(self, node: int, cause: Exception) -> None:
        """The connection ended before the reply."""
        self.hand_out()
        self._open &= ~(1 << node)
        for member in self._members:
            member.receiver.dropped(node, cause)

    # Errors that are not one member's

    def _rejected(self, index: int, message: str) -> None:
        node = self._nodes[index]
        again = [member for member in self._members if member.may_send_again(node.bit)]
        if missing_script(message):
            sent = bool(again) and self._send_source(node, again)
        elif LINE.search(message):
            sent = False  # the script failed, perhaps halfway
        else:
            # Nothing was executed: a user may not lock one of the names, perhaps.
            self._on_rejected()
            sent = self._send_each(node, again)
        if sent:
            self._open |= node.bit
        cause = failure_of(message, self._command)
        for member in self._members:
            if sent and member in again:
                member.sent_again()
            else:
                member.failed_on(index, cause)

    def _send_source(self, node: Node, members: Sequence[Member]) -> bool:
        """Send the script's source to a node that has forgotten it; return whether it was sent."""
        group = type(self)(self._nodes, self._quorum, self._clocks, members, on_rejected=self._on_rejected, apart=True)
        return node.send_source(group._command, group)  # noqa: SLF001 - of the same class

    def _send_each(self, node: Node, members: Sequence[Member]) -> bool:
        """Send each member's own command; return whether they were sent."""
        connection = self._connection_to(node)
        if connection is not None:
            for member in members:
                connection.send(member.command.pack(node.compare_and_delete), member.receiver)
        return connection is not None

    # Time

    @property
    def over(self) -> bool:
        """Whether every node has replied or failed."""
        return not self._open

    def expire(self) -> None:
        """Count the nodes that have not replied as failed."""
        self.hand_out()
        for member in self._members:
            member.expire()


class AcquireGroup(Group):
    """Locks to acquire, with the same ttl and the same proposed token."""

    __slots__ = ()

    @staticmethod
    def _join(commands: Sequence[Any]) -> Command:
        return acquire_many(commands)

    def _connection_to(self, node: Node) -> Connection | None:
        return node.live

    def _grants_all(self, node: int, reply: object) -> bool:
        if type(reply) is not int:
            return False
        first_us, last_us = self.started_at * 1e6, self._members[-1].started_at * 1e6
        right = self._clocks.low[node] <= -reply - last_us and -reply - first_us <= self._clocks.high[node]
        return right and not self._nodes.abstaining

    def _count(self, node: int) -> None:
        self._tokens[node] = self._members[0].command.candidate
        super()._count(node)

    def _parts(self, reply: object) -> Sequence[object]:
        return reply if isinstance(reply, list) else [reply] * len(self._members)


class ReleaseGroup(Group):
    """Locks to release."""

    __slots__ = ()

    @staticmethod
    def _join(commands: Sequence[Any]) -> Command:
        return DeleteEachIfEqual(commands)

    def _connection_to(self, node: Node) -> Connection | None:
        return node.connection

    def _grants_all(self, node: int, reply: object) -> bool:  # noqa: ARG002 - Group's signature
        return type(reply) is int and reply == len(self._members)

    def _parts(self, reply: object) -> Sequence[object]:
        if isinstance(reply, list):
            return reply
        if reply != len(self._members):
            raise TypeError("a list is needed")
        return [1] * len(self._members)
