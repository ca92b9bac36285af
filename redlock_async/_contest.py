"""One task of this process against all other processes: attempts, and the waits between them."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from ._acquire import Acquire, Level
from ._board import Board
from ._claim import Claim, Ground, Held
from ._errors import LockTimeout, QuorumUnavailable, RedlockError
from ._node import Node
from ._quorum import Verdict, validity
from ._round import Patient
from ._scripts import Command
from ._settings import Options
from .events import Counters

RACES = 2
"""Lost races after which one node is asked before the others."""

STALLED = 5
"""Pauses after which a contender that asks one node first asks them all again: that one may hold an orphan."""


class Arena(Ground, Patient, Protocol):
    """What a contest needs of the client it is for."""

    drift_factor: float
    counters: Counters
    board: Board

    def give_back(self, claim: Claim, token: bytes, reached: int) -> object:
        """Send releases to those nodes."""

    def advice(self, claim: Claim) -> str:
        """What to say to one who has waited for itself."""
        ...

    def refused(self, contest: Contest, claim: Claim) -> None:
        """That one has been refused: so are those of its process who try once."""


@dataclass(frozen=True, slots=True)
class Chance:
    """When to try again."""

    seconds: float
    armed: bool = False
    """Whether the nodes will report earlier that the lock may be free."""
    race: bool = False
    """Whether others will try at about the same time."""


class Won:
    """A quorum's grant."""

    __slots__ = ("fence", "round", "token", "unstored")

    def __init__(self, round_: Acquire, token: bytes, fence: int | None, *, unstored: bool) -> None:
        self.round = round_
        self.token = token
        self.fence = fence
        self.unstored = unstored
        """Whether a quorum does not store the fencing token yet."""


class Contest:
    """Attempts until one wins or the wait is over."""

    # Most are won by the first attempt, and change nothing of this.
    _round: Acquire | None = None
    _refused_at = 0.0
    _wake: asyncio.Future[bool] | None = None
    _backup: asyncio.TimerHandle | None = None
    _lost_races = 0
    _seen: bytes | None = None
    """Who held it when it was asked last."""
    _missed = False
    """Whether we were woken while an attempt was under way."""
    _raced = False
    """Whether the attempt under way follows a chance that others saw too."""
    _probed = False
    """Whether it asked one node before the others."""
    last_error: Exception | None = None
    """What the last attempt failed with, if not with a holder."""
    asked = False
    waiting = 1
    queue_up: Callable[[Contest], Awaitable[bool]] | None = None
    """Of one that asks without having the turn: takes it, and returns whether that took a while."""

    def __init__(self, ground: Arena, claim: Claim, options: Options, deadline: float | None) -> None:
        self._ground = ground
        self._claim = claim
        self._options = options
        self._deadline = deadline
        self._token = b""
        """The last attempt's."""

    async def win(self) -> Won:
        """The grant, or the error that ended the wait."""
        claim, probe, first = self._claim, None, True
        while True:
            if claim.prepares and not await claim.prepare(self._ground, self._deadline):
                raise self._over()
            round_ = self._ask(probe, plain=first)
            try:
                won = self._judge(round_, await round_.outcome)
                if won is not None and won.unstored:
                    won = await self._store(won)
            except BaseException:
                # Sent before anything else can run: on each connection it stands right behind its acquire.
                round_.abandon()
                self._give_back(round_)
                raise
            if won is not None:
                return won
            self._give_back(round_)
            first = False
            probe = await self._pause()

    def close(self) -> Command | None:
        """The client is closed: take back what the attempt under way may get. Returns what every node is to be told."""
        if self._round is not None:
            self._round.call_off()
            # Behind its acquire on every connection; soon there is none. After an attempt that is over it does no harm.
            self._give_back(self._round)
        self.wake()
        return self._claim.withdraw()

    # One attempt

    def _ask(self, probe: Node | None, *, plain: bool) -> Acquire:
        """Send the acquires of an attempt."""
        ground, claim, ttl = self._ground, self._claim, self._options.ttl
        ground.counters.attempts += 1
        self._missed = False
        # Fresh for each attempt: with a reused one, the late release of this attempt would delete the next one's key.
        self._token = token = ground.fresh_token()
        words = claim.acquire if plain else claim.contend
        command = words(token, round(ttl * 1000), ground.wall_us())
        self._round = round_ = Acquire(ground, claim, command, min(ground.node_timeout, ttl / 4))
        if probe is None:
            round_.ask_all()
        else:
            round_.ask_first(probe)
        return round_

    def _judge(self, round_: Acquire, verdict: Verdict) -> Won | None:
        """What the answers are worth, now."""
        claim = self._claim
        self.last_error = None
        if verdict is Verdict.UNREACHABLE:
            self.last_error = round_.unavailable(f"could not lock {quoted(claim.names)}", claim.names)
        if verdict is not Verdict.WON or not self._in_time(round_):
            return None
        fence, stored = round_.fence() if claim.fenced else (None, True)
        ground = self._ground
        ground.round_trip += (ground.now() - round_.started_at - ground.round_trip) / 8
        return Won(round_, self._token, fence, unstored=not stored)

    async def _store(self, won: Won) -> Won | None:
        """Have a quorum store the fencing token, where it does not yet."""
        ground, claim = self._ground, self._claim
        assert won.fence is not None  # noqa: S101 - there is something to store
        level = Level(ground, claim.secure(won.token, won.fence, 0), min(ground.node_timeout, self._options.ttl / 4))
        level.ask_all()
        if await level.outcome is not Verdict.WON:
            self.last_error = level.unavailable(f"could not fence {quoted(claim.names)}", claim.names)
            return None
        return won if self._in_time(won.round) else None

    def _in_time(self, round_: Acquire) -> bool:
        """Whether a lease granted by that round is valid still."""
        ground, ttl = self._ground, self._options.ttl
        if ground.now() < round_.started_at + validity(ttl, ground.drift_factor):
            return not ground.closed
        late = f"the grants took longer than the lease is valid (ttl={ttl:g} s): raise ttl"
        self.last_error = QuorumUnavailable(
            f"could not lock {quoted(self._claim.names)}: {late}", names=self._claim.names
        )
        return False

    def _give_back(self, round_: Acquire) -> None:
        ground, claim = self._ground, self._claim
        ground.give_back(claim, self._token, round_.reached)
        ground.board.gave_up(claim.written, round_.holders)
        # Where we do not know yet that it was granted, that has stopped others of this process as well.
        round_.granted_late = partial(ground.board.gave_up_late, claim.written)

    # Between attempts

    async def _pause(self) -> Node | None:
        """Wait for a chance; returns the node to ask first, if one is to be."""
        ground, round_ = self._ground, self._round
        assert round_ is not None  # noqa: S101 - an attempt came before
        if ground.closed:
            raise RedlockError(f"the client was closed while waiting for {quoted(self._claim.names)}")
        self._refused_at = ground.now()
        left = math.inf if self._deadline is None else self._deadline - self._refused_at
        if error := round_.hopeless(self._claim.names, last=left <= 0):
            raise error
        if self.last_error is None and self._claim.again(round_.holding, len(ground.nodes) - ground.needed):
            self._raced = False
            return None  # even with no time left: one try is as many questions as it takes
        if self.last_error is None and round_.holder()[0] is None:
            return None  # a plain SET does not tell who holds it, nor whether it is a lock: ask in the form that does
        self.asked = True
        if self.last_error is None:
            self._refused(round_, left)
        if left <= 0:
            await self._second_thought(round_, left)
            return None
        if self.queue_up is not None and await self.queue_up(self):
            return None  # what was answered before is old
        chance = self._chance(round_)
        woken = chance.seconds > 0 and await self._sleep(round_, min(chance.seconds, left), armed=chance.armed)
        last = chance.seconds >= left and not woken
        if self.last_error is not None and (error := round_.hopeless(self._claim.names, last=last)):
            raise error  # only now that the others have answered as well
        if last:
            raise self._over()
        self._raced = woken or chance.race
        self._probed = self._raced and self._lost_races >= RACES and self._claim.probes
        return self._first_choice() if self._probed else None

    def _refused(self, round_: Acquire, left: float) -> None:
        """Report an attempt that found it held."""
        ground, claim = self._ground, self._claim
        # One that gives up itself, and wanted several names, does not know of each of them.
        if left > 0 or (len(claim.turns) == 1 and self._taken(round_)):
            ground.refused(self, claim)
        ground.counters.refused += 1
        if ground.events.heard:
            took, holder = ground.now() - round_.started_at, owner_of(round_.holder()[0])
            ground.events.tell("refused", names=claim.names, lock=claim.kind, seconds=took, holder=holder)

    async def _second_thought(self, round_: Acquire, left: float) -> None:
        """With no time to wait: give up if somebody has it, and return if it may be that nobody does.

        Contenders that try once, at the same moment, can split the votes. If each took the others for a holder, nobody
        would have it: a job that all machines start by the same cron would be skipped by all of them.
        """
        ground, claim = self._ground, self._claim
        once = self._options.wait == 0 and not claim.shared
        if not once or self.last_error is not None or self._taken(round_) or left + ground.node_timeout <= 0:
            raise self._over()
        # Long enough for those who have not answered yet, too: they may name the same.
        await asyncio.sleep(ground.round_trip + ground.random.uniform(0, self._spread()))
        if self._taken(round_):
            raise self._over()
        self._lost_races += 1

    def _taken(self, round_: Acquire) -> bool:
        """Whether somebody has it, or comes first."""
        ahead = any(held.ahead for held in round_.holding.values())
        return ahead or (round_.named and not self._claim.lost_races)

    def _spread(self) -> float:
        """Seconds over which contenders that split the votes come back."""
        return min(self._ground.retry_delay, self._ground.round_trip * (1 << min(self._lost_races, 10)))

    def _chance(self, round_: Acquire) -> Chance:
        """When another attempt is worth it."""
        ground = self._ground
        jittered = ground.retry_delay * ground.random.uniform(0.25, 1.0)
        if self.last_error is not None:
            return Chance(jittered)
        token, votes = round_.holder()
        if self._probed and not round_.one_only:
            # The first node granted it, and somebody won all the same who does not begin with that one.
            self._lost_races = 0
        else:
            # Whoever holds it still has won nothing: the nodes report a renewal as they report a release.
            self._lost_races += self._raced and self._claim.races and token != self._seen
        self._seen = token
        if self._split(round_, votes):
            # Whoever comes back first should find the others still away.
            return Chance(ground.random.uniform(0, self._spread()), race=True)
        expires = round_.free_in()
        # Reports of an expiry can be late by seconds, so a timer is always set; the jitter spreads those who see it.
        soonest = jittered if expires is None else expires + ground.random.uniform(0.001, 0.02)
        if not all(ground.nodes[index].tracking for index in round_.holding):
            return Chance(min(soonest, jittered))
        if round_.one_only:
            soonest = min(soonest, STALLED * ground.retry_delay)
        return Chance(soonest, armed=True)

    def _split(self, round_: Acquire, votes: int) -> bool:
        """Whether nobody can have won, where whoever was named by most was named by so many."""
        unknown = len(self._ground.nodes) - len(round_.holding) - len(round_.fences)
        return self._claim.races and not round_.one_only and votes + unknown < self._ground.needed

    def _first_choice(self) -> Node | None:
        """The node that all contenders for this lock try first, whatever order they know the nodes in."""
        # One whose vote does not count would only take a round trip, and with it the race.
        up = [node for node in self._ground.nodes if node.ready and node.abstains is None]
        return min(up, key=lambda node: node.rank(self._claim.preference), default=None)

    async def _sleep(self, round_: Acquire, seconds: float, *, armed: bool) -> bool:
        """Wait; returns whether a node's report ended it."""
        ground = self._ground
        if self._missed or (armed and round_.could_win):
            return True
        self._wake = ground.loop.create_future()
        timer = ground.loop.call_later(seconds, _time_is_up, self._wake)
        if armed and round_.any_freed:
            self._arm_backup()
        try:
            return await self._wake
        finally:
            timer.cancel()
            if self._backup is not None:
                self._backup.cancel()
                self._backup = None
            self._wake = None

    def freed(self, node: int, key: bytes | None) -> None:
        """A node reports the lock changed there. A quorum of such reports, or a moment without more, wakes us."""
        if key is not None:
            self._claim.changed(key)
        if self._round is None or node in self._round.fences:
            return  # nothing there is in the way: it was granted
        round_ = self._round
        round_.freed(node)
        if self._wake is not None and round_.any_freed:
            if round_.could_win:
                _chance_seen(self._wake)
            elif self._backup is None:
                self._arm_backup()

    def _arm_backup(self) -> None:
        ground, round_ = self._ground, self._round
        assert round_ is not None  # noqa: S101 - a node reports what an attempt has read
        if self._claim.exclusive and round_.named:
            return  # somebody has it on a majority, which has not changed: no other node can help
        if self._wake is not None:
            self._backup = ground.loop.call_later(0.001 + 3 * ground.round_trip, _chance_seen, self._wake)

    def wake(self, key: bytes | None = None) -> None:
        """Something changed, perhaps that key, that makes another attempt worthwhile."""
        if key is not None:
            self._claim.changed(key)
        self._missed = True
        if self._wake is not None:
            _chance_seen(self._wake)

    # Giving up

    def _over(self) -> Exception:
        if self.last_error is not None:
            return self.last_error
        return self.timed_out(self._claim, self._options.wait)

    def timed_out(self, claim: Claim, wait: float | None) -> LockTimeout:
        """The error for whoever has waited for it as we have, or behind us."""
        if claim.names != self._claim.names:
            behind = f"behind a task of this process that waits for {quoted(self._claim.names)} together"
            return LockTimeout(f"could not lock {quoted(claim.names)}{_after(wait)}: {behind}", names=claim.names)
        held = self._in_front()
        holder = owner_of(held.token) if held is not None else None
        waits = held is not None and held.ahead
        return timed_out(claim.names, wait, holder, self._ground.advice(claim), waits=waits, retry_after=self.ends_in())

    def _in_front(self) -> Held | None:
        told = self._claim.in_front()
        return told if told is not None or self._round is None else self._round.in_front()

    def ends_in(self) -> float | None:
        """Seconds until what is in the way has run out, unless it is renewed; 0.0 if nobody has it, None if unknown."""
        round_, told = self._round, self._claim.in_front()
        if round_ is None or told is not None:
            return told.ends_in if told is not None else None
        if self._claim.exclusive and self._split(round_, round_.holder()[1]):
            return 0.0
        ends = round_.ends_in()
        return None if ends is None else max(ends - (self._ground.now() - self._refused_at), 0.0)


def quoted(names: Sequence[str]) -> str:
    """Lock names as they stand in a message."""
    return ", ".join(map(repr, names))


def timed_out(
    names: Sequence[str],
    wait: float | None,
    holder: str | None,
    advice: str,
    *,
    waits: bool = False,
    retry_after: float | None,
) -> LockTimeout:
    """The wait is over; `waits` when whoever is in the way only waits as well."""
    by = f"{'behind' if waits else 'held by'} {holder or 'another client'}"
    message = f"could not lock {quoted(names)}{_after(wait)}: {by}{advice}"
    return LockTimeout(message, names=names, holder=holder, retry_after=retry_after)


def _after(wait: float | None) -> str:
    return f" after waiting {wait:g} s" if wait else ""


def owner_of(token: bytes | None) -> str | None:
    """The owner label in a token of ours; another library's token has none."""
    random, colon, label = (token or b"").partition(b":")
    return label.decode("utf-8", "replace") if colon and len(random) == 32 else None  # noqa: PLR2004 - 128 bits in hex


def _chance_seen(sleeper: asyncio.Future[bool]) -> None:
    if not sleeper.done():
        sleeper.set_result(True)


def _time_is_up(sleeper: asyncio.Future[bool]) -> None:
    if not sleeper.done():
        sleeper.set_result(False)
