"""The fair lock's claim: a ticket from a majority, a place in the queue on every node, and its words for the nodes.

Order is by (ticket, id). A ticket is the largest of a majority's next ones, and a majority stores it together with the
place, so whoever comes after that gets a larger one; and two waiters stand in the same order on every node that knows
both. A place stays until its waiter has the lock or leaves, whatever nodes grant it meanwhile: where it is known nobody
behind it ever gets a vote. Every place is sent to every node again and again, so the first of all is the first on a
majority, whatever was lost in between: no deadlock, unlike with each node's own order of arrival.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from typing import ClassVar, Self, cast

from ._claim import Ahead, Ground, Held
from ._keys import Keys
from ._line import REGISTER_MS, Draw, Hall, Line, next_ticket
from ._mutex import Mutex
from ._round import until_decided
from ._scripts import Call, Command

SHORTEST_PLACE = 1.5
"""Seconds a place in the queue is kept without a sign of life: what a waiter that dies at its head costs the others."""

TIMEOUTS = 6
"""The same in node timeouts, where those are long: a slow network must not cost a waiter its place."""


def place_kept(node_timeout: float) -> float:
    """Seconds a place is kept without a sign of life."""
    return max(SHORTEST_PLACE, TIMEOUTS * node_timeout)


class Fair(Mutex):
    """One name, first come, first served; each acquire has a copy of its own, which has the place in the queue."""

    __slots__ = ("_line", "_patient", "id", "place_ms", "places", "ticket", "wakes")

    kind: ClassVar[str] = "fair"
    prepares: ClassVar[bool] = True
    races: ClassVar[bool] = False

    def __init__(self, keys: Keys, names: Iterable[str], *, fenced: bool, place: float = SHORTEST_PLACE) -> None:
        super().__init__(keys, names, fenced=fenced)
        self.places = keys.queue(self.names[0])
        self.place_ms = round(place * 1000)
        self.wakes = self.places[0] + b":"
        """What the key begins with that each waiter reads, to be told when it is the first."""
        self.turns = ()  # who of this process asks the nodes is a matter of tickets
        self.id = b""
        self.ticket: int | None = None
        self._line: Line | None = None
        self._patient: bool | None = None
        """Whether there is time to queue; None until the first attempt."""

    def begin(self, ground: Ground) -> Self:
        new = copy(self)
        new.id = ground.fresh_token()
        new.watched = (*self.keys, self.wakes + new.id)
        return new

    @property
    def rank(self) -> tuple[int, bytes]:
        """Its place: the smallest is first."""
        return self.ticket or 0, self.id

    # Waiting

    async def prepare(self, ground: Ground, deadline: float | None) -> bool:
        hall = cast("Hall", ground)
        if self._patient is None:
            self._patient = deadline is None or deadline > hall.now()
            if self.places[0] not in hall.shared:
                return True  # it may be free, with nobody waiting: one round trip tells
        if not self._patient:
            return True
        if self._line is None:
            self.ticket = await self._draw(hall, deadline)
            line = hall.shared.setdefault(self.places[0], Line(hall, self.places, self.wakes, self.place_ms))
            self._line = cast("Line", line)
            self._line.join(self)
        return await self._line.turn(self, deadline)

    def again(self, refusals: Mapping[int, Held], spare: int) -> bool:  # noqa: ARG002 - it is enough that there are any
        return self._line is None and self._patient is True

    async def _draw(self, hall: Hall, deadline: float | None) -> int:
        """A ticket, larger than all that a majority stores."""
        command = next_ticket(self.places)
        draw = await until_decided(
            hall, lambda: Draw(hall, command, hall.node_timeout), deadline, "could not queue for", self.names[0]
        )
        return draw.ticket

    def in_front(self) -> Held | None:
        return self._line.front_of(self) if self._line is not None else None

    def withdraw(self) -> Command | None:
        if self._line is None:
            return None
        self._line.leave(self)
        self._line = None
        # With the lock as well: a grant alone does not end the place, because it may have to be given back.
        return Call("fair_leave", 2, *self.places[:2], self.wakes, self.id, self.place_ms)

    # Words for the nodes

    def acquire(self, token: bytes, ttl_ms: int, candidate: int) -> Command:
        return self.contend(token, ttl_ms, candidate)

    def contend(self, token: bytes, ttl_ms: int, candidate: int) -> Command:
        keys = (*self.keys, *self.places, *self._fences)
        # Without its place where too few nodes are heard of to get the lock: there it would only be in the way.
        kept = self.ticket is not None and (self._line is None or self._line.heard)
        place = (self.id, self.ticket or 0) if kept else (b"", 0)
        return Call(
            "fair_acquire", len(keys), *keys, token, ttl_ms, candidate, self.wakes, *place, self.place_ms, REGISTER_MS
        )  # fmt: skip

    def refusal(self, reply: object) -> Held:
        token, ms, ahead = cast("tuple[bytes, int, int]", reply)
        held = (Ahead if ahead else Held)(token, ms / 1000 if ms >= 0 else None)
        if self._line is not None:
            self._line.refused(held)
        return held
