"""First come, first served among the tasks of one process: only the head of a queue talks to the nodes."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from typing import Protocol

from ._claim import Claim
from ._errors import LockTimeout

LONGEST_RUN = 32
"""Leases in a row that the tasks of one process may take of a name while others of them wait. A hand-over inside the
process takes a single write, so other processes would never get in between without an end to it."""


class Contender(Protocol):
    """The one task of this process that asks the nodes for a name."""

    @property
    def last_error(self) -> Exception | None:
        """What its last attempt failed with, if it failed for other reasons than a holder."""

    @property
    def asked(self) -> bool:
        """Whether it has had an answer at all."""
        ...

    def timed_out(self, claim: Claim, wait: float | None) -> LockTimeout:
        """The error for one who has waited behind it for that long."""
        ...


class Turn:
    """The tasks of this process that want one name, of which one has the turn."""

    __slots__ = ("contest", "once", "queue", "run")

    def __init__(self) -> None:
        # Made when somebody queues; ordered and keyed, so that one of thousands can give up without a search.
        self.queue: OrderedDict[asyncio.Future[bool], None] | None = None
        self.once: dict[asyncio.Future[bool], None] = {}
        """Those of them that try once: what the nodes answer the one whose turn it is, is their answer too."""
        self.contest: Contender | None = None
        """The attempt under way of the task whose turn it is, unless it holds the lock already."""
        self.run = 0


class Turns:
    """The queues of all names that are wanted."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._turns: dict[bytes, Turn] = {}
        self.waiting = 0

    def get(self, key: bytes) -> Turn | None:
        """The queue of that name, if anybody wants it."""
        return self._turns.get(key)

    def begin(self, keys: Sequence[bytes], contest: Contender) -> None:
        """The one who has the turn on those names asks the nodes."""
        for key in keys:
            self._turns[key].contest = contest

    def rest(self, keys: Sequence[bytes]) -> None:
        """The one who has the turn on those names lets other processes in before."""
        for key in keys:
            self._turns[key].run = 0

    def take(self, key: bytes) -> bool:
        """Take the turn if nobody has it."""
        if key in self._turns:
            return False
        self._turns[key] = Turn()
        return True

    async def wait(self, key: bytes, seconds: float | None, *, once: bool = False) -> bool:
        """Queue for the turn; False when the time was up. A waiter that is cancelled passes a turn it just got on.

        `once` waits only until it is known whether whoever has the turn gets the lock, and never behind its lease.
        """
        turn = self._turns[key]
        if turn.queue is None:
            turn.queue = OrderedDict()
        queue = turn.queue
        place: asyncio.Future[bool] = self._loop.create_future()
        queue[place] = None
        if once:
            turn.once[place] = None
        timer = None if seconds is None else self._loop.call_later(seconds, _give_up, place)
        self.waiting += 1
        try:
            served = await place
        except asyncio.CancelledError:
            if place.cancelled() or not place.result():
                queue.pop(place, None)
            elif self._turns.get(key) is turn:
                self.leave(key)
            raise
        finally:
            self.waiting -= 1
            turn.once.pop(place, None)
            if timer is not None:
                timer.cancel()
        if not served:
            queue.pop(place, None)
        return served

    def answered(self, key: bytes) -> None:
        """The one who has the turn has got the lock, or waits for it: nobody who tries once can get it now."""
        for place in self._turns[key].once:
            _give_up(place)

    def leave(self, key: bytes) -> None:
        """Give the turn to the next in the queue."""
        turn = self._turns[key]
        while turn.queue:
            place, _ = turn.queue.popitem(last=False)
            if not place.done():
                turn.contest = None
                turn.run += 1
                place.set_result(True)
                return
        del self._turns[key]

    def open(self, key: bytes) -> None:
        """End the queue: all who are in it may ask at once, and nobody has the turn."""
        queue = self._turns.pop(key).queue
        for place in queue or ():
            if not place.done():
                place.set_result(True)


def _give_up(place: asyncio.Future[bool]) -> None:
    if not place.done():
        place.set_result(False)
