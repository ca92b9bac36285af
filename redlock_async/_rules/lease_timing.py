"""A holder's deadline and state: given the time, what is to be done. No clock, no I/O, no randomness."""

from __future__ import annotations

import math
from enum import Enum

from ._quorum import validity


class Phase(Enum):
    """How far a lease has come."""

    HELD = "held"
    RELEASED = "released"
    LOST = "lost"
    DETACHED = "detached"
    DOWNGRADED = "downgraded"


class Step(Enum):
    """What is to be done about a lease now."""

    WAIT = "wait"
    RENEW = "renew"
    LOSE = "lose"
    END = "end"
    NOTHING = "nothing"


RENEWALS = 3
"""Renewals a ttl: two may fail before a third decides."""

TOGETHER = 0.1
"""Fraction of the interval by which a renewal may be early."""

CLEANUP = 0.05
"""Fraction of a ttl, or of max_hold, that is left to a body for its cleanup, where the longest grace is not less."""

FIRST_LOOK = 0.02
"""Seconds after which a lease is looked at for the first time. Most are over by then and pay nothing; for the others
it arms client tracking, so that a lease deleted under its holder is noticed at once instead of at the next renewal."""


class Term:
    """The time a lease stands, and when to see to it."""

    __slots__ = (
        "_cap",
        "_interval",
        "_longest_grace",
        "confirmed",
        "drift_factor",
        "next_at",
        "phase",
        "renews",
        "ttl",
        "until",
    )

    def __init__(
        self, granted_at: float, ttl: float, drift_factor: float, *, renews: bool, most: float | None, grace: float
    ) -> None:
        self.ttl = ttl
        self.drift_factor = drift_factor
        self.renews = renews
        self.phase = Phase.HELD
        self._cap = None if most is None else granted_at + most
        self._longest_grace = grace if most is None else min(grace, most * CLEANUP)
        self.until = self._capped(granted_at + validity(ttl, drift_factor))
        """The end of validity, on the client's clock."""
        self._interval = min(FIRST_LOOK, ttl / RENEWALS)
        self.next_at = granted_at + self._interval
        self.confirmed = True
        """False for a lease that came from another machine, until a quorum has confirmed it here."""

    def _capped(self, until: float) -> float:
        return until if self._cap is None else min(until, self._cap)

    @property
    def runs_out_at(self) -> float:
        """When the nodes forget it if nobody renews it, but for the time that a command is under way."""
        return self.until + self.ttl - validity(self.ttl, self.drift_factor)

    @property
    def lose_at(self) -> float:
        """When a body is cancelled: early enough for its cleanup to run inside validity."""
        return self.until - min(self._longest_grace, self.ttl * CLEANUP)

    @property
    def early(self) -> float:
        """By how much it may be renewed before it is due, to go out together with others."""
        return self._interval * TOGETHER if self.phase is Phase.HELD and self.next_at < self.lose_at else 0.0

    @property
    def capped(self) -> bool:
        """Whether max_hold, not the ttl, sets the end."""
        return self._cap is not None and self.until >= self._cap

    def cap_left(self, now: float) -> float | None:
        """Seconds until max_hold is over; None without one."""
        return None if self._cap is None else self._cap - now

    def step(self, now: float) -> Step:
        """What is to be done now."""
        if self.phase is Phase.LOST:
            # Its validity is left to the body's cleanup; then nothing is.
            return Step.NOTHING if self.until == -math.inf else Step.END if now >= self.until else Step.WAIT
        if self.phase is not Phase.HELD:
            return Step.NOTHING
        if now >= self.lose_at:
            return Step.LOSE
        return Step.RENEW if now >= self.next_at else Step.WAIT

    def due_at(self) -> float:
        """When `step` will have something to do."""
        return min(self.next_at, self.lose_at) if self.phase is Phase.HELD else self.until

    def renewal_ms(self) -> int:
        """What to ask the nodes for at a renewal: 0 only looks whether the lease still stands."""
        return round(self.ttl * 1000) if not self.confirmed or (self.renews and not self.capped) else 0

    def left_ms(self, now: float) -> int:
        """For how long a node is to keep it where it has lost it between two renewals: 0 where it is not renewed."""
        return max(round((self.runs_out_at - now) * 1000), 0) if self.renews and not self.capped else 0

    def looked(self) -> None:
        """It was looked at for the first time: from here on it is renewed at the usual times."""
        self.next_at += self.ttl / RENEWALS - self._interval
        self._interval = self.ttl / RENEWALS

    def asked(self, now: float) -> None:
        """A renewal was sent: the next is due at the usual time, or sooner if what is left is short."""
        left = max(self.lose_at - now, 0.0)
        self._interval = min(self.ttl / RENEWALS, max(left / RENEWALS, self.ttl / 50))
        self.next_at = now + self._interval

    def extended(self, sent_at: float, now: float, ttl: float) -> bool:
        """A quorum confirmed, at `now`, what was sent at `sent_at`; False if the old deadline had passed by then."""
        if self.phase is not Phase.HELD or now >= self.until:
            return False
        self.ttl = ttl
        # Never shortens: what was promised before stands.
        self.until = max(self.until, self._capped(sent_at + validity(ttl, self.drift_factor)))
        return self.seen(sent_at, now)

    def seen(self, sent_at: float, now: float) -> bool:
        """A quorum said, at `now`, that it still holds what was sent at `sent_at`."""
        self._interval = self.ttl / RENEWALS
        self.next_at = sent_at + self._interval
        return now < self.until

    def confirm(self, sent_at: float, now: float) -> bool:
        """The first confirmation of a lease that came from elsewhere: its deadline starts here."""
        self.confirmed = True
        self.until = self._capped(sent_at + validity(self.ttl, self.drift_factor))
        return self.seen(sent_at, now)
