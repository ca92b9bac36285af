"""Which fencing token a set of register values yields. No clock, no I/O, no randomness.

Each node raises its register with every grant: v = max(stored + 1, candidate). Let S be a quorum with reply <= t and
stored >= t while we own the lock there. Two holders' S share a node, on which their ownerships are disjoint in time;
the later one's reply there is greater than what the earlier had stored, so its token is greater. Taking the largest
reply without making a quorum store it, or storing it on nodes we no longer own, breaks this.
"""

from __future__ import annotations

from collections.abc import Collection


def choose(replies: Collection[int], needed: int) -> tuple[int, bool]:
    """The token for these replies, and whether a quorum stores it already.

    When it does not, the caller must raise the registers to the token on nodes it still owns, and have `needed`
    nodes that either returned it or acknowledged it, before the lease may be used.
    """
    if len(replies) >= needed and len({*replies}) == 1:
        return next(iter(replies)), True  # as nearly always
    counts: dict[int, int] = {}
    for value in replies:
        count = counts.get(value, 0) + 1
        if count == needed:
            return value, True
        counts[value] = count
    return max(replies), False
