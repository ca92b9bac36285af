"""What a latch has counted on the nodes: read from a majority, and stored by a majority before anybody is told.

It neither waits nor wakes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TypeVar, cast

from ._engine import Engine
from ._errors import ConfigurationError
from ._quorum import Verdict
from ._round import Round, until_decided
from ._scripts import Call

U = TypeVar("U", bound="Use")


@dataclass(frozen=True, slots=True)
class Count:
    """One latch on the nodes."""

    name: str
    keys: tuple[bytes, bytes]
    of: int
    """How many events open it."""
    retention_ms: int

    async def look(self, engine: Engine, seen: Seen, deadline: float | None) -> int:
        """Add what a majority has counted to what was seen; returns how many are missing.

        What is reported is stored by a majority first, so that nobody is told less later.
        """
        look = await self._majority(engine, deadline, lambda: Look(engine, self, seen))
        # As of now: what late answers add meanwhile is not stored by a majority.
        complete, ids = self.complete(seen), frozenset(seen.ids)
        look.told = (complete, len(ids))
        if look.lacking:
            await self._majority(engine, deadline, lambda: Write(engine, self, ids, opening=complete))
        return 0 if complete else self.of - len(ids)

    def complete(self, seen: Seen) -> bool:
        """Whether that is enough to be open."""
        return seen.open or len(seen.ids) >= self.of

    async def add(self, engine: Engine, event: bytes, deadline: float | None) -> None:
        """Have a majority count that event."""
        await self._majority(engine, deadline, lambda: Write(engine, self, [event]))

    async def _majority(self, engine: Engine, deadline: float | None, ask: Callable[[], U]) -> U:
        """Ask until a majority has done it."""
        round_ = await until_decided(engine, ask, deadline, "could not use the latch", self.name)
        if round_.outcome.result() is Verdict.REFUSED:
            raise ConfigurationError(
                f"the latch {self.name!r} is in use with count={round_.other}, and this was to be count={self.of}: "
                "all who use it give the same, and another generation may have another"
            )
        return round_


class Seen:
    """What one who looks has seen so far. Events never become unhappened, so all that any node ever said counts."""

    __slots__ = ("ids", "open")

    def __init__(self) -> None:
        self.ids: set[bytes] = set()
        self.open = False


class Use(Round):
    """Any command to a latch: refused where it is known with another count."""

    __slots__ = ("other",)

    operation = "latch"

    def __init__(self, engine: Engine, command: Call) -> None:
        super().__init__(engine, command, engine.node_timeout)
        self.other = 0
        """The count it has on a node that refused."""

    def read(self, node: int, reply: object) -> bool:  # noqa: ARG002 - Round's signature
        if isinstance(reply, bytes):
            self.other = int(reply)
            return False
        self._take(reply)
        return True

    def _take(self, reply: object) -> None:
        """Take in what a node says that has the same count, or none yet."""
        raise NotImplementedError


class Look(Use):
    """What a majority has counted; a node that answers later and lacks something is told afterwards."""

    __slots__ = ("_count", "_engine", "_replies", "_seen", "told")

    def __init__(self, engine: Engine, count: Count, seen: Seen) -> None:
        super().__init__(engine, Call("latch_look", 2, *count.keys, count.of, count.retention_ms))
        self._engine = engine
        self._count = count
        self._seen = seen
        self._replies: list[tuple[int, int]] = []
        """Of each node that answered: whether it is open there, and how many events it has."""
        self.told: tuple[bool, int] | None = None
        """Whether it is open, and how many events there are: as the caller was told, once a majority stores it."""

    def may_send_again(self, bit: int) -> bool:  # noqa: ARG002 - Round's signature
        # Late it does no harm, and has one node more report what changes there.
        return True

    def _take(self, reply: object) -> None:
        opened, *ids = cast("list[object]", reply)
        if type(opened) is not int or opened not in {0, 1} or not {*map(type, ids)} <= {bytes}:
            raise TypeError
        self._seen.ids.update(cast("list[bytes]", ids))
        self._seen.open |= bool(opened)
        self._replies.append((opened, len(ids)))

    @property
    def lacking(self) -> bool:
        """Whether some node lacks what others have."""
        least = (int(self._count.complete(self._seen)), len(self._seen.ids))
        return any(opened < least[0] or number < least[1] for opened, number in self._replies)

    def concluded(self) -> None:
        if self.told is None:
            return
        complete = self._count.complete(self._seen)
        if self.lacking:
            Write(self._engine, self._count, self._seen.ids, opening=complete).ask_all()
        if (complete, len(self._seen.ids)) > self.told:
            # A late answer had news. No node reports it to us: there it was read, and here we write it ourselves.
            self._engine.own_change(self._count.keys[0])


class Write(Use):
    """Have a majority store those events, and perhaps that it is open."""

    __slots__ = ()

    def __init__(self, engine: Engine, count: Count, ids: Collection[bytes], *, opening: bool = False) -> None:
        super().__init__(engine, Call("latch_count", 2, *count.keys, count.of, count.retention_ms, int(opening), *ids))

    def _take(self, reply: object) -> None:
        if type(reply) is not int or reply != 1:
            raise TypeError
