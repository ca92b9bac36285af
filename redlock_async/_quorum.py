"""Votes, verdicts and validity: what a set of answers is worth. No clock, no I/O, no randomness."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum


class Verdict(Enum):
    """What the answers so far amount to."""

    PENDING = "pending"
    WON = "won"
    REFUSED = "refused"  # contention: worth retrying
    UNREACHABLE = "unreachable"  # failures alone rule a quorum out


def majority(nodes: int) -> int:
    """Votes needed out of the *configured* nodes: counting only the reachable ones would elect two holders."""
    return nodes // 2 + 1


@dataclass(slots=True, eq=False)
class Tally:
    """The running count of one round."""

    asked: int
    needed: int
    granted: int = 0
    refused: int = 0
    failed: int = 0

    @property
    def spare(self) -> int:
        """How many may refuse or fail."""
        return self.asked - self.needed

    @property
    def verdict(self) -> Verdict:
        """WON as soon as it is certain, a loss as soon as a quorum has become impossible."""
        # Counting what we can still afford to lose, rather than waiting for a majority of noes, is what settles
        # an even split (2-2 of 4).
        spare = self.spare
        if self.granted >= self.needed:
            return Verdict.WON
        if self.failed > spare:
            return Verdict.UNREACHABLE
        if self.refused + self.failed > spare:
            return Verdict.REFUSED
        return Verdict.PENDING


def validity(ttl: float, drift_factor: float) -> float:
    """How long after its first send a granted lease may be relied on.

    The constant covers the servers' millisecond expiry and one rounding at each end.
    """
    return ttl - (ttl * drift_factor + 0.002)


SAME_BIRTH = 0.01
"""Nodes are marked in one write each, one after the other: born within this many seconds is born together."""


def held_out(
    ages: Sequence[float | None],
    needed: int,
    longest_ttl: float,
    late: Sequence[bool],
    founded: float = 0.0,
    *,
    strict: bool,
    forgot: Sequence[bool] = (),
) -> list[float]:
    """For each node, the seconds until it may vote; 0 when it may now.

    `ages` is how long each node has kept its data, None where that is not known; `late` says which of them began
    after a majority was first there to grant anything, as far as they have been told, and `founded` for how long at
    least that has been so, as far as any node can tell; `forgot` says which of them we have seen with older data
    before. A node whose data is younger than the longest ttl in use may have forgotten a lease that still stands, and
    its vote could make a second holder.

    What tells such a node from one of a fresh cluster is the others: the data of a fresh cluster is equally young
    everywhere. So a node is trusted when it kept its data for as long as a majority existed to grant anything: when
    it is no younger than the `needed`-th oldest and than the founding. The first alone would not do: where some
    masters were down at first, they are as young as one that has just lost its data. A node we know nothing of is
    taken for old, because guessing the other way could elect twice, while this costs at most one ttl. When all have
    lost their data at once they cannot be told from a fresh cluster by anybody who comes new, so those who saw it
    treat it alike.
    """
    ranked = sorted((math.inf if age is None else age for age in ages), reverse=True)
    founding = ranked[needed - 1]
    if founding == math.inf:  # a majority is unknown: judge by the oldest that is known
        founding = max((age for age in ages if age is not None), default=0.0)
    founding = max(founding, founded)
    seen_to_forget = forgot if 0 < sum(forgot) < needed else [False] * len(ages)
    return [
        longest_ttl - age
        if age is not None and age < longest_ttl and (strict or forgetful or joined_late or age < founding - SAME_BIRTH)
        else 0.0
        for age, forgetful, joined_late in zip(ages, seen_to_forget, late, strict=True)
    ]
