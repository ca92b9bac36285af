"""The fencing token that results from the nodes' register values. No clock, no I/O, no randomness.

Each node raises its register with every grant: v = max(stored + 1, candidate). Let S be a quorum with reply <= t and
stored >= t while we own the lock there. The quorums S of two holders share a node, on which their ownerships are
disjoint in time; the later holder's reply there is greater than the earlier one's stored value, and so is its token.
Taking the largest reply without making a quorum store it, or storing it on nodes we no longer own, breaks this.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

LIMIT = 1 << 53
"""Every token and ticket is smaller: numbers in Lua and JSON are exact below it. limits.lua has the same limit."""

AHEAD = 1 << 52
"""How many µs a token or ticket may be ahead of the nodes' clocks (142 years); limits.lua allows a year more."""

LATEST_CLOCK = 7_258_118_400_000_000
"""The year 2200 in µs: a node with a later wall clock is not used. limits.lua has the same limit."""


def highest_credible(clocks: Iterable[float], wrong: int) -> int:
    """Return the largest token or ticket to accept from a node with these wall clocks, if at most `wrong` nodes lie.

    A larger one would be stored on all nodes, and every later holder's token would be larger still: one lying node
    could use up the range. At least one of the `wrong + 1` nodes with the fastest clocks is honest, so a lying node
    cannot move the limit beyond an honest node's. The limit grows with time faster than registers count: after a lying
    node has raised the registers to the limit, the tokens of honest nodes are soon below it again.
    """
    fastest = sorted(clocks, reverse=True)
    clock = fastest[wrong] if wrong < len(fastest) else 0.0
    return min(AHEAD + max(int(clock * 1e6), 0), LIMIT - 1)


def choose(replies: Collection[int], quorum: int) -> tuple[int, bool]:
    """Return the token for these replies, and whether a quorum already stores it.

    If not, the caller must raise the registers to the token on nodes where it still owns the lock, until `quorum`
    nodes have returned or acknowledged it, before it uses the lease.
    """
    if len(replies) >= quorum and len({*replies}) == 1:
        return next(iter(replies)), True  # the usual case
    counts: dict[int, int] = {}
    for value in replies:
        count = counts.get(value, 0) + 1
        if count == quorum:
            return value, True
        counts[value] = count
    return max(replies), False
