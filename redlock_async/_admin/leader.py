"""The leader of an election, according to a quorum of nodes, and the order of terms. Nothing here waits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from redlock_async._rounds.context import Context
from redlock_async._rules.token import label_in, takeover_delay_of
from redlock_async._transport.commands import Call
from redlock_async._transport.node import Node
from redlock_async.errors import QuorumUnavailable

from .listing import read_locks
from .records import StoredKey
from .status import ask_all


@dataclass(frozen=True, slots=True)
class Leader:
    """The leader of an election."""

    value: str
    """The text that the leader passed as `value`; by default its owner label. Any client can store any text."""
    fencing_token: int
    """A number that increases from leader to leader: the leader's own fencing token, unless the nodes are still storing
    that, or another name that shares the fence register was locked since."""
    expires_in: float
    """Seconds until the term ends if it is not renewed."""


@dataclass(frozen=True, slots=True)
class Term:
    """A leader, and the token of its lease, which no other term has."""

    token: bytes
    leader: Leader


@dataclass(frozen=True, slots=True)
class Reading:
    """The result of asking all nodes once."""

    term: Term | None
    others: int
    """Bit mask of the nodes that did not report that term: a later change may already have reached them."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The reply of one node."""

    bit: int
    votes: bool
    """Whether its vote counts. The key of an attempt that counts on other votes may be stored without it."""
    stored: StoredKey | None


async def read_term(context: Context, name: str, key: bytes, register: bytes, known: bytes | None = None) -> Reading:
    """Return the current term, or None without a leader. Raise QuorumUnavailable if too few nodes reply to tell.

    `known` is the token of the term that was read before, if there was one.
    """
    command, total, quorum = (
        Call("locks_inspect", 2, key, register).pack_with_source(),
        len(context.nodes),
        context.quorum,
    )

    group = context.group_of(key)

    async def ask(node: Node) -> Reply:
        (stored,) = await node.ask(command, read_locks)
        return Reply(node.bit, group.objection(node) is None, stored)

    def decided(replies: Sequence[Reply]) -> bool:
        possible = term_of(replies, max(quorum - (total - len(replies)), 1), known)
        return len(replies) >= quorum and (possible is None or term_of(replies, quorum, known) is not None)

    replies = await ask_all(context, name, key, ask, enough=decided)
    if not decided(replies):
        raise QuorumUnavailable(
            f"cannot tell who leads {name!r}: {total - len(replies)} of {total} nodes do not reply, and they decide",
            names=(name,),
        )
    term = term_of(replies, quorum, known)
    token = None if term is None else term.token
    same = sum(reply.bit for reply in replies if (reply.stored and reply.stored.value) == token)
    return Reading(term, (1 << total) - 1 & ~same)


def term_of(replies: Sequence[Reply], quorum: int, known: bytes | None = None) -> Term | None:
    """Return the term that a quorum of the nodes report, if it is not over.

    A term begins with the votes of a quorum. It continues while a quorum stores its key, with a vote or without one.

    The fencing token is the largest number that a quorum's registers have reached, as read while they held the key. A
    later leader is granted by another quorum. Both share a node, where the later number is larger than the register
    was before. So the numbers of terms increase, as they are read here, also if another name raises the register.
    """
    for value in {reply.stored.value for reply in replies if reply.stored is not None}:
        held = [
            reply.stored
            for reply in replies
            if reply.stored is not None and reply.stored.value == value and (reply.votes or value == known)
        ]
        fences = sorted((stored.fence for stored in held if stored.fence is not None), reverse=True)
        label = label_in(value)
        if value is None or label is None or len(fences) < quorum:
            continue
        left = sorted((stored.left for stored in held), reverse=True)[quorum - 1] - takeover_delay_of(value)
        if left > 0:
            return Term(value, Leader(label.decode("utf-8", "replace"), fences[quorum - 1], left))
    return None


class Terms:
    """The terms that an observer has seen. It never reports an earlier one after a later one."""

    def __init__(self) -> None:
        self._reported: bytes | bool | None = False
        """The token of the last term that was reported, None if nobody led; False before the first report."""
        self._last: bytes | None = None
        """The token of the last term."""
        self._latest = 0
        """The largest number that was read of any term."""

    @property
    def known(self) -> bytes | None:
        """The token of the last term."""
        return self._last

    def is_late(self, term: Term) -> bool:
        """Whether its number is no larger than an earlier term's.

        The reading is late then, or so early that a quorum has not stored the number of the new term yet.
        """
        return term.token != self._last and term.leader.fencing_token <= self._latest

    def is_new(self, term: Term | None) -> bool:
        """Whether that reading is to be reported: a change of the leader, or the end of the last term."""
        token = None if term is None else term.token
        if term is not None:
            if self.is_late(term):
                return False
            self._last, self._latest = token, max(self._latest, term.leader.fencing_token)
        if token == self._reported:
            return False
        self._reported = token
        return True
