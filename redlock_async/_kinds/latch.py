"""The count of a latch on the nodes: read from a majority, and stored by a majority before it is reported.

Nothing here waits for a latch to open; see `redlock_async.latch`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TypeVar, cast

from redlock_async._rounds.context import Context
from redlock_async._rounds.round import Round, until_decided
from redlock_async._rules.quorum import Verdict
from redlock_async._transport.commands import Call
from redlock_async.errors import ConfigurationError

U = TypeVar("U", bound="LatchRound")


@dataclass(frozen=True, slots=True)
class LatchCount:
    """One latch on the nodes."""

    name: str
    keys: tuple[bytes, bytes]
    of: int
    """How many events open it."""
    retention_ms: int

    async def look(self, context: Context, state: LatchState, deadline: float | None) -> int:
        """Add what a majority has counted to `state`, and return how many events are missing.

        What is returned has been stored by a majority, so that no later call returns more missing events.
        """
        read = await self._majority(context, deadline, lambda: LatchRead(context, self, state))
        # As of now: what late replies add meanwhile is not stored by a majority.
        complete, ids = self.complete(state), frozenset(state.ids)
        read.report(complete=complete, count=len(ids))
        if read.lacking:
            await self._majority(context, deadline, lambda: LatchWrite(context, self, ids, opening=complete))
        return 0 if complete else self.of - len(ids)

    def complete(self, state: LatchState) -> bool:
        """Whether the latch is open: all events are known, or more nodes say so than may be wrong."""
        return len(state.ids) >= self.of or state.opened_on.bit_count() > state.minority

    async def add(self, context: Context, event: bytes, deadline: float | None) -> None:
        """Have a majority count an event."""
        await self._majority(context, deadline, lambda: LatchWrite(context, self, [event]))

    async def _majority(self, context: Context, deadline: float | None, start: Callable[[], U]) -> U:
        """Run rounds until a majority has executed one."""
        round_ = await until_decided(context, start, deadline, "could not use the latch", self.name)
        if round_.outcome.result() is Verdict.REFUSED:
            raise ConfigurationError(
                f"count mismatch for the latch {self.name!r}: it is in use with count={round_.other}, and count="
                f"{self.of} was requested. All clients must pass the same count; another generation may have another"
            )
        return round_


class LatchState:
    """All that one reader of a latch has seen. Counted events stay counted, so all that any node ever said counts.

    One node's word is not enough to say that the latch is open: what opens it is stored on a majority with all its
    events.
    """

    __slots__ = ("ids", "minority", "opened_on")

    def __init__(self, minority: int) -> None:
        self.ids: set[bytes] = set()
        self.opened_on = 0
        """Bit mask of the nodes that said it is open."""
        self.minority = minority
        """How many nodes may be wrong."""


class LatchRound(Round):
    """Any command to a latch: refused where the latch is known with another count."""

    operation = "latch"

    def __init__(self, context: Context, command: Call) -> None:
        super().__init__(context, command, context.node_timeout)
        self.other = 0
        """The count that a node which refused knows."""

    def read(self, node: int, reply: object) -> bool:
        if isinstance(reply, bytes):
            self.other = int(reply)
            return False
        self._take(node, reply)
        return True

    def _take(self, node: int, reply: object) -> None:
        """Take the reply of a node that knows the same count, or none yet."""
        raise NotImplementedError


class LatchRead(LatchRound):
    """Read what a majority has counted. A node that replies later and lacks something is updated afterwards."""

    def __init__(self, context: Context, count: LatchCount, state: LatchState) -> None:
        super().__init__(context, Call("latch_look", 2, *count.keys, count.of, count.retention_ms))
        self._count = count
        self._state = state
        self._replies: list[tuple[int, int]] = []
        """For each node that replied: whether the latch is open there, and how many events it has."""
        self._reported: tuple[bool, int] | None = None
        """Whether the latch is open, and how many events there are, as reported to the caller."""

    def report(self, *, complete: bool, count: int) -> None:
        """Note what the caller reports once a majority stores it."""
        self._reported = (complete, count)

    def may_send_again(self, bit: int) -> bool:  # noqa: ARG002 - Round's signature
        # A late read does no harm, and has one more node report what changes there.
        return True

    def _take(self, node: int, reply: object) -> None:
        opened, *ids = cast("list[object]", reply)
        if type(opened) is not int or opened not in {0, 1} or not {*map(type, ids)} <= {bytes}:
            raise TypeError("0 or 1 and event ids are needed")
        self._state.ids.update(cast("list[bytes]", ids))
        self._state.opened_on |= opened << node
        self._replies.append((opened, len(ids)))

    @property
    def lacking(self) -> bool:
        """Whether some node lacks what others have."""
        complete, number = int(self._count.complete(self._state)), len(self._state.ids)
        return any(opened < complete or counted < number for opened, counted in self._replies)

    def concluded(self) -> None:
        if self._reported is None:
            return
        context, count, state = self._context, self._count, self._state
        complete = count.complete(state)
        if self.lacking:
            LatchWrite(context, count, state.ids, opening=complete).ask_all()
        if (complete, len(state.ids)) > self._reported:
            # A late reply had news. No node reports it to us: where it was stored we read it, and here we write it.
            context.wakeups.local_change(count.keys[0])


class LatchWrite(LatchRound):
    """Have a majority store these events, and perhaps that the latch is open."""

    def __init__(self, context: Context, count: LatchCount, ids: Collection[bytes], *, opening: bool = False) -> None:
        super().__init__(context, Call("latch_count", 2, *count.keys, count.of, count.retention_ms, int(opening), *ids))

    def _take(self, node: int, reply: object) -> None:  # noqa: ARG002 - LatchRound's signature
        if type(reply) is not int or reply != 1:
            raise TypeError("1 is needed")
