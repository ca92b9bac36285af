"""The deadline and state of a lease: given the time, what to do about it. No clock, no I/O, no randomness."""

from __future__ import annotations

import math
from enum import Enum


class Phase(Enum):
    """The state of a lease."""

    HELD = "held"
    RELEASED = "released"
    LOST = "lost"
    DETACHED = "detached"
    DOWNGRADED = "downgraded"


HELD, RELEASED = Phase.HELD, Phase.RELEASED
"""The phases of every lease. In Python 3.11 they take ten times as long to look up as attributes of the enum."""


class Step(Enum):
    """The next action for a lease."""

    WAIT = "wait"
    RENEW = "renew"
    LOSE = "lose"
    END = "end"
    NOTHING = "nothing"


RENEWALS = 3
"""Renewals per ttl: two may fail before the third decides."""

BATCH_WINDOW = 0.1
"""Fraction of the interval by which a renewal may be early, so that several leases are renewed in one command."""

CLEANUP_FRACTION = 0.05
"""Maximum fraction of a ttl, or of max_hold, that is reserved for the cleanup of the block."""

FIRST_CHECK = 0.02
"""Seconds until the first check of a lease. Most leases are released by then and cost nothing. For the others the check
arms client tracking, so that a deleted lease is noticed at once instead of at the next renewal."""


class LeaseTiming:
    """The deadline of a lease, and when to renew or end it."""

    __slots__ = (
        "_cap",
        "_interval",
        "_longest_grace",
        "confirmed",
        "drift_factor",
        "next_at",
        "phase",
        "renews",
        "takeover_delay",
        "ttl",
        "until",
    )

    def __init__(
        self,
        granted_at: float,
        ttl: float,
        drift_factor: float,
        *,
        renews: bool,
        most: float | None,
        grace: float,
        takeover_delay: float = 0.0,
    ) -> None:
        self.ttl = ttl
        self.takeover_delay = takeover_delay
        """For how much longer than the ttl the nodes keep it. No deadline of the lease depends on it."""
        self.drift_factor = drift_factor
        self.renews = renews
        self.phase = HELD
        self._cap = None if most is None else granted_at + most
        self._longest_grace = grace if most is None else min(grace, most * CLEANUP_FRACTION)
        until = granted_at + validity(ttl, drift_factor)
        self.until = until if most is None else self._capped(until)
        """The end of its validity, on the client's clock."""
        self._interval = FIRST_CHECK if ttl > FIRST_CHECK * RENEWALS else ttl / RENEWALS
        self.next_at = granted_at + self._interval
        self.confirmed = True
        """False for a lease that was attached from another machine, until a quorum has confirmed it here."""

    def _capped(self, until: float) -> float:
        return until if self._cap is None else min(until, self._cap)

    @property
    def runs_out_at(self) -> float:
        """When the nodes let it expire unless it is renewed, apart from the time that a command is under way."""
        return self.until + self.ttl - validity(self.ttl, self.drift_factor) + self.takeover_delay

    @property
    def lose_at(self) -> float:
        """When the block is cancelled: early enough for its cleanup to run inside the lease's validity."""
        return self.until - min(self._longest_grace, self.ttl * CLEANUP_FRACTION)

    @property
    def early(self) -> float:
        """How many seconds before it is due it may be renewed, together with other leases."""
        return self._interval * BATCH_WINDOW if self.phase is HELD and self.next_at < self.lose_at else 0.0

    @property
    def capped(self) -> bool:
        """Whether max_hold, not the ttl, determines the end."""
        return self._cap is not None and self.until >= self._cap

    def cap_left(self, now: float) -> float | None:
        """Return the seconds until max_hold is reached; None without max_hold."""
        return None if self._cap is None else self._cap - now

    def step(self, now: float) -> Step:
        """Return what to do now."""
        if self.phase is Phase.LOST:
            # The rest of its validity is left to the cleanup of the block.
            return Step.NOTHING if self.until == -math.inf else Step.END if now >= self.until else Step.WAIT
        if self.phase is not HELD:
            return Step.NOTHING
        if now >= self.lose_at:
            return Step.LOSE
        return Step.RENEW if now >= self.next_at else Step.WAIT

    def due_at(self) -> float:
        """Return when to call `step` again."""
        return min(self.next_at, self.lose_at) if self.phase is HELD else self.until

    def renewal_ms(self) -> int:
        """Return the ttl to request at a renewal; 0 only checks that the lease is still held."""
        return self.key_ms(self.ttl) if not self.confirmed or (self.renews and not self.capped) else 0

    def key_ms(self, ttl: float) -> int:
        """Return for how long the nodes keep a lease of that ttl; 0 if it is only checked."""
        return round((ttl + self.takeover_delay) * 1000) if ttl else 0

    def left_ms(self, now: float) -> int:
        """Return the ttl for a node that has lost the lease between two renewals; 0 if it is not renewed."""
        return max(round((self.runs_out_at - now) * 1000), 0) if self.renews and not self.capped else 0

    def on_first_check(self) -> None:
        """Schedule the next renewal at the usual time, after the first check."""
        self.next_at += self.ttl / RENEWALS - self._interval
        self._interval = self.ttl / RENEWALS

    def on_renewal_sent(self, now: float) -> None:
        """Schedule the next renewal at the usual time, or sooner if little time is left."""
        left = max(self.lose_at - now, 0.0)
        self._interval = min(self.ttl / RENEWALS, max(left / RENEWALS, self.ttl / 50))
        self.next_at = now + self._interval

    def extended(self, sent_at: float, now: float, ttl: float) -> bool:
        """Move the deadline for a renewal sent at `sent_at` that a quorum confirmed at `now`.

        Return False if the old deadline had passed by then.
        """
        if self.phase is not HELD or now >= self.until:
            return False
        self.ttl = ttl
        # An extension never shortens the validity that was promised before.
        self.until = max(self.until, self._capped(sent_at + validity(ttl, self.drift_factor)))
        return self.on_confirmed(sent_at, now)

    def on_confirmed(self, sent_at: float, now: float) -> bool:
        """Schedule the next renewal after a quorum confirmed the lease; return whether it is still valid."""
        self._interval = self.ttl / RENEWALS
        self.next_at = sent_at + self._interval
        return now < self.until

    def confirm(self, sent_at: float, now: float, ttl: float) -> bool:
        """Set the deadline of an attached lease at its first confirmation; return whether it is still valid."""
        self.confirmed = True
        self.ttl = ttl
        self.until = self._capped(sent_at + validity(ttl, self.drift_factor))
        return self.on_confirmed(sent_at, now)


def validity(ttl: float, drift_factor: float) -> float:
    """Return for how many seconds after its first send a granted lease is valid.

    The constant covers the nodes' expiry, which is exact to a millisecond, and one rounding at each end.
    """
    return ttl - (ttl * drift_factor + 0.002)
