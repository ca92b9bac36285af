"""Where the tasks of one process wait for each other: who of them asks the nodes, and what the others are told."""

from __future__ import annotations

from copy import copy
from typing import Protocol

from ._board import Board
from ._claim import Claim, Ground
from ._contest import Contest, owner_of, timed_out
from ._holding import Holding
from ._settings import Options
from ._waiting import Turn, Turns


class House(Ground, Protocol):
    """What it needs of the client it is for."""

    held: dict[bytes, Holding]
    board: Board
    round_trip: float

    def advice(self, claim: Claim) -> str:
        """What to say to one who has waited for itself."""
        ...


class Anteroom:
    """The turns on all names, and the rules by which tasks take them."""

    def __init__(self, house: House) -> None:
        self._house = house
        self.turns = Turns(house.loop)

    async def enter(self, claim: Claim, options: Options, deadline: float | None) -> int:
        """The turn on every name, in the names' order; returns how many leases this process took in a row."""
        turns, taken, run = self.turns, 0, 0
        try:
            for key in claim.turns:
                if not turns.take(key):
                    await self._queue(claim, key, options, deadline)
                    turn = turns.get(key)
                    run = max(run, turn.run if turn is not None else 0)
                taken += 1
        except BaseException:
            for key in claim.turns[:taken]:
                turns.leave(key)
            raise
        return run

    async def queue_up(self, claim: Claim, options: Options, deadline: float | None, contest: Contest) -> bool:
        """One that shares, and was refused or finds others who were, waits as all do: one of them asks for all."""
        if not claim.queues:
            return False
        turns, (key,) = self.turns, claim.turns
        turn = turns.get(key)
        if turn is not None:
            board = self._house.board
            board.unwatch(claim.watched, contest)  # it asks nobody meanwhile
            try:
                await self._queue(claim, key, options, deadline)
            finally:
                board.watch(claim.watched, contest)
        if turns.take(key) if turn is None else turns.get(key) is turn:
            contest.queue_up = None
            turns.begin(claim.turns, contest)
        return turn is not None

    def refused(self, contest: Contest, claim: Claim) -> None:
        """That one has been refused: so are those who try once, if it has the turn they wait for."""
        for key in claim.turns:
            if (turn := self.turns.get(key)) is not None and turn.contest is contest:
                self.turns.answered(key)

    def leave(self, claim: Claim, contest: Contest, *, pass_on: bool, won: bool = False) -> None:
        """That one asks no more: it has its lease, or the error that says why not."""
        if contest.queue_up is not None:
            return  # it never had the turn
        for key in claim.turns:
            if won and claim.shared:
                self.turns.open(key)
            elif pass_on:
                self.turns.leave(key)
            elif (turn := self.turns.get(key)) is not None:
                turn.contest = None
                if turn.once:
                    self.turns.answered(key)

    async def _queue(self, claim: Claim, key: bytes, options: Options, deadline: float | None) -> None:
        """Wait behind the others that want that name."""
        left = None if deadline is None else deadline - self._house.now()
        once = left is not None and left <= 0 and not self._knows(claim, key)
        if once:
            left = self._house.node_timeout  # somebody else asks, just now: that will tell
        turn = self.turns.get(key)  # over by then, where all who are in it give up at once
        if not await self.turns.wait(key, left, once=once):
            raise self._not_my_turn(claim, key, options, turn)

    def _knows(self, claim: Claim, key: bytes) -> bool:
        turn = self.turns.get(key)
        if turn is not None and turn.contest is not None:
            return turn.contest.asked
        # Nobody asks: whoever has the turn is a holder, or has just got it from one that passed it on.
        return turn is None or claim.exclusive

    def _not_my_turn(self, claim: Claim, key: bytes, options: Options, turn: Turn | None) -> Exception:
        if turn is not None and (contest := turn.contest) is not None:
            error = contest.last_error
            return contest.timed_out(claim, options.wait) if error is None else copy(error)
        house = self._house
        # All the slots of a semaphore queue under no key of their own.
        holding = next((house.held[each] for each in (key, *claim.watched) if each in house.held), None)
        if holding is None:
            return timed_out(claim.names, options.wait, None, "", retry_after=None)
        ends_in = max(holding.runs_out_at + house.round_trip - house.now(), 0.0)
        return timed_out(claim.names, options.wait, owner_of(holding.token), house.advice(claim), retry_after=ends_in)
