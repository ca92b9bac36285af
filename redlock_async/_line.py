"""The waiters of one process for one fair lock: the first of them asks the nodes, and the places of all are kept there.

It hands out no lock: who may have it is decided by the nodes.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol, cast

from ._claim import Ground, Held
from ._node import Node
from ._quorum import Verdict
from ._round import Patient, Round
from ._scripts import Call, Command

SIGNS = 3
"""Signs of life in that time."""

REGISTER_MS = 3_600_000
"""How long a ticket register outlives its last use. A new one starts at the node's time, ahead of the old one."""

BATCH = 100
"""Waiters of one process in one sign of life."""


class Hall(Ground, Patient, Protocol):
    """What waiting in line needs of the client it is for."""

    shared: dict[bytes, object]

    def key_changed(self, node: Node, key: bytes) -> None:
        """That key was changed there."""


class Waiter(Protocol):
    """Who stands in a line."""

    id: bytes
    ticket: int | None

    @property
    def rank(self) -> tuple[int, bytes]:
        """Its place: the smallest is first."""
        raise NotImplementedError


class Line:
    """The waiters of one process for one fair lock. The first of them asks the nodes; the places of all are kept."""

    def __init__(self, hall: Hall, places: tuple[bytes, bytes, bytes], wakes: bytes, place_ms: int) -> None:
        self.hall = hall
        self._places = places
        self.wakes = wakes
        self._place_ms = place_ms
        self._waiting: list[Waiter] = []
        self._called: dict[bytes, asyncio.Future[bool]] = {}
        """Those who are not the first, until they are called."""
        self._timer: asyncio.TimerHandle | None = None
        self._front: Held | None = None
        """Why the first was refused."""
        self._front_at = 0.0
        self._heard_at = hall.now()
        """When a majority was last asked something that it has answered."""

    def join(self, claim: Waiter) -> None:
        """Take the place that its ticket gives it."""
        insort(self._waiting, claim, key=_rank)
        if self._waiting[0] is not claim:
            self.keep([claim])  # the first brings its place with its attempts
        if self._timer is None:
            self._sign_in(self._place_ms / 1000 / SIGNS)

    @property
    def heard(self) -> bool:
        """Whether a majority has answered for as long as a place is kept.

        If not, its own places have run out there, and it cannot get the lock. Were they kept by the rest, nobody else
        could, either, as soon as one more node is down.
        """
        return self.hall.now() < self._heard_at + self._place_ms / 1000

    def heard_of(self, asked_at: float) -> None:
        """A majority has answered what it was asked then."""
        self._heard_at = max(self._heard_at, asked_at)

    def refused(self, held: Held) -> None:
        """That is in the way of the first."""
        self._front, self._front_at = held, self.hall.now()

    def front_of(self, claim: Waiter) -> Held | None:
        """What is in the way of one that is not the first, who knows that better, as of now."""
        held = self._front
        if held is None or (claim in self and self._waiting[0] is claim):
            return None
        if held.expires_in is None:
            return held
        return replace(held, expires_in=max(held.expires_in - (self.hall.now() - self._front_at), 0.0))

    def leave(self, claim: Waiter) -> None:
        """Give up the place here; the nodes are to be told as well."""
        position = bisect_left(self._waiting, claim.rank, key=_rank)
        if position == len(self._waiting) or self._waiting[position] is not claim:
            return
        del self._waiting[position]
        self._call(claim)
        if self._waiting:
            self._call(self._waiting[0])
        else:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            self.hall.shared.pop(self._places[0], None)

    async def turn(self, claim: Waiter, deadline: float | None) -> bool:
        """Wait to be the first; False when the time was up."""
        hall = self.hall
        while claim in self and self._waiting[0] is not claim:
            called: asyncio.Future[bool] = hall.loop.create_future()
            timer = None if deadline is None else hall.loop.call_later(deadline - hall.now(), _time_is_up, called)
            self._called[claim.id] = called
            try:
                if not await called:
                    return False
            finally:
                del self._called[claim.id]
                if timer is not None:
                    timer.cancel()
        return True

    def __contains__(self, claim: Waiter) -> bool:
        position = bisect_left(self._waiting, claim.rank, key=_rank)
        return position < len(self._waiting) and self._waiting[position] is claim

    def _call(self, claim: Waiter) -> None:
        if (called := self._called.get(claim.id)) is not None:
            _call(called)

    def _sign(self) -> None:
        """Tell the nodes that all who wait here are alive."""
        self._sign_in(self._place_ms / 1000 / SIGNS)
        if not self.heard:
            Keep(self.hall, self, (), next_ticket(self._places)).ask_all()
            return
        for start in range(0, len(self._waiting), BATCH):
            self.keep(self._waiting[start : start + BATCH])

    def _sign_in(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.hall.loop.call_later(seconds, self._sign)

    def first_is_kept(self, seconds: float) -> None:
        """On some node for so long: if that is over before our next sign of life, it is dead, and ours is due then."""
        if self._timer is not None and self.hall.loop.time() + seconds < self._timer.when():
            self._sign_in(seconds + self.hall.random.uniform(0.01, 0.03))

    def keep(self, claims: Sequence[Waiter]) -> None:
        """Have the nodes keep the places of those, and put back what they lack."""
        places: list[int | bytes] = []
        for claim in claims:
            places += (claim.ticket or 0, claim.id)
        command = Call("fair_wait", 3, *self._places, self.wakes, self._place_ms, REGISTER_MS, *places)
        Keep(self.hall, self, claims, command).ask_all()


def next_ticket(places: tuple[bytes, bytes, bytes]) -> Command:
    """The words for one: larger than all that a node has given or keeps a place for."""
    queue, _, register = places
    return Call("fair_ticket", 2, register, queue, REGISTER_MS)


class Draw(Round):
    """A ticket from a majority."""

    __slots__ = ("ticket",)

    elects = True
    operation = "queue"

    def __init__(self, hall: Hall, command: Command, timeout: float) -> None:
        super().__init__(hall, command, timeout)
        self.ticket = 0

    def read(self, node: int, reply: object) -> bool:  # noqa: ARG002 - Round's signature
        if type(reply) is not int:
            raise TypeError
        if not self._settled:
            self.ticket = max(self.ticket, reply)
        return True


class Keep(Round):
    """A sign of life of some who wait, or what nodes answer that keeps nothing there: a ticket that nobody uses."""

    __slots__ = ("_claims", "_line")

    operation = "queue"

    def __init__(self, hall: Hall, line: Line, claims: Sequence[Waiter], command: Command) -> None:
        super().__init__(hall, command, hall.node_timeout)
        self._line = line
        self._claims = claims

    def read(self, node: int, reply: object) -> bool:
        if type(reply) is bytes:
            hall = cast("Hall", self._voters)
            hall.key_changed(hall.nodes[node], self._line.wakes + reply)
            return True
        if type(reply) is not int:
            return False
        if self._claims:
            self._line.first_is_kept(reply / 1000)
        return True

    def _settle(self, verdict: Verdict) -> None:
        super()._settle(verdict)
        if verdict is Verdict.WON:
            self._line.heard_of(self.started_at)

    def may_send_again(self, bit: int) -> bool:
        # Not behind the back of one who has left meanwhile.
        return bool(self._open & bit) and all(claim in self._line for claim in self._claims)


def _rank(claim: Waiter) -> tuple[int, bytes]:
    return claim.rank


def _call(called: asyncio.Future[bool]) -> None:
    if not called.done():
        called.set_result(True)


def _time_is_up(called: asyncio.Future[bool]) -> None:
    if not called.done():
        called.set_result(False)
