"""When a refused acquisition tries again, and which node it asks first: decisions only, it never waits itself."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from redlock_async._kinds.kind import LockKind
from redlock_async._rounds.context import Context
from redlock_async._transport.node import Node

from .acquire_round import AcquireRound

PROBE_AFTER_LOST_RACES = 2
"""Lost races after which one node is asked before the others."""

PROBE_STALL_DELAYS = 5
"""Retry delays after which a contender that asks one node first asks them all again: the first may hold a leftover."""

SPREAD_AFTER_FAILED_WAKEUPS = 16
"""Attempts in a row that a report prompted in vain, until contenders for a semaphore's slots spread out. Two slots that
are each free on another node look free together: contenders could take those nodes from each other as fast as they
reply, and keep the holders from being set again there."""


@dataclass(frozen=True, slots=True)
class RetryPlan:
    """When to try again."""

    seconds: float
    armed: bool = False
    """Whether the nodes will report earlier that the lock may be free."""
    race: bool = False
    """Whether others will try at about the same time."""


class Retries:
    """An acquisition's knowledge about the other contenders, from its attempts."""

    def __init__(self, context: Context, kind: LockKind) -> None:
        self._context = context
        self._kind = kind
        self._lost_races = 0
        self._failed_wakeups = 0
        self._slot_holders: deque[bytes] = deque(maxlen=len(kind.watched_keys))
        """The tokens of the last known holders of a semaphore's slots."""
        self._holder: bytes | None = None
        """The token of the holder at the last attempt."""
        self._raced = False
        """Whether the attempt under way follows a change that others saw too."""
        self._probed = False
        """Whether it asked one node before the others."""

    def plan(self, round_: AcquireRound, *, failed: bool) -> RetryPlan:
        """Decide when to try again after that attempt, which failed or was refused."""
        context = self._context
        jittered = context.retry_delay * context.random.uniform(0.25, 1.0)
        if failed:
            return RetryPlan(jittered)
        token, votes = round_.holder()
        if self._probed and not round_.only_first_asked:
            # The first node granted it, and a contender still won that does not begin with that node.
            self._lost_races = 0
        else:
            # A holder that still holds it has won no race: the nodes report a renewal as they report a release.
            self._lost_races += self._raced and self._kind.unordered and token != self._holder
        self._holder = token
        if self.is_split(round_, votes):
            # The contender that comes back first should find the others still away.
            return RetryPlan(context.random.uniform(0, self._spread()), race=True)
        expires = round_.free_in()
        # Reports of an expiry can be late by seconds, so a timer is always set; the jitter spreads the contenders.
        soonest = jittered if expires is None else expires + context.random.uniform(0.001, 0.02)
        if not all(round_.nodes[index].tracking for index in round_.refusals):
            return RetryPlan(min(soonest, jittered))
        if round_.only_first_asked:
            soonest = min(soonest, PROBE_STALL_DELAYS * context.retry_delay)
        return RetryPlan(soonest, armed=True)

    def is_split(self, round_: AcquireRound, votes: int) -> bool:
        """Whether no client can have won, if the one that most nodes named was named by `votes`."""
        unknown = len(round_.nodes) - len(round_.refusals) - len(round_.fences)
        return self._kind.unordered and not round_.only_first_asked and votes + unknown < self._context.quorum

    def split_vote_pause(self) -> float:
        """Seconds until those that try once try again: long enough for nodes that have not replied yet."""
        return self._context.round_trip + self._context.random.uniform(0, self._spread())

    def on_lost_race(self) -> None:
        """Another contender has won, or none has."""
        self._lost_races += 1

    def on_other_question(self) -> None:
        """The next attempt asks for something else at once, and is no race."""
        self._raced = False

    def _spread(self) -> float:
        """Seconds over which contenders that split the votes come back."""
        return min(self._context.retry_delay, self._context.round_trip * (1 << min(self._lost_races, 10)))

    def slot_spread(self, round_: AcquireRound, *, woken: bool) -> float:
        """Seconds over which contenders for a semaphore's slots spread out after many attempts in vain.

        An attempt that finds a holder it did not know was not in vain: that holder was merely faster. Counting it
        would make a slow client slower each time. An attempt that a single node refused took no slot from anyone.
        """
        kind, context = self._kind, self._context
        if round_.only_first_asked:
            return 0.0
        token, _ = round_.holder()
        if not woken or not kind.slots or kind.keeps_local_turn:
            self._failed_wakeups = 0
        elif token is not None and round_.has_known_holder and token not in self._slot_holders:
            self._slot_holders.append(token)
            self._failed_wakeups = 0
        else:
            self._failed_wakeups += 1
        excess = self._failed_wakeups - SPREAD_AFTER_FAILED_WAKEUPS
        return min(context.retry_delay, context.round_trip * (1 << min(excess, 10))) if excess > 0 else 0.0

    def first_choice(self, *, raced: bool, may_probe: bool) -> Node | None:
        """Return the node to ask before the others at the next attempt, if one is to be."""
        self._raced = raced
        self._probed = raced and self._lost_races >= PROBE_AFTER_LOST_RACES and may_probe
        if not self._probed:
            return None
        # All contenders choose the same one, regardless of the order in which they know the nodes. A node whose vote
        # does not count would only take a round trip, and with it the race.
        nodes = self._context.group_of(self._kind.watched_keys[0])
        up = [node for node in nodes if node.ready and nodes.objection(node) is None]
        return min(up, key=lambda node: node.rank(self._kind.probe_hash), default=None)
