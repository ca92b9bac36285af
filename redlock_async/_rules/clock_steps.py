"""Whose wall clock was stepped: the nodes' clocks are compared with one another. No clock, no I/O, no randomness.

A node measures the ttl of a key with its wall clock. If that is set forward, leases end early there, as if the node had
lost them. So a clock that was stepped counts as a loss of data, and the node has to tell others of it.

One clock alone does not show a step. A client therefore reads the clocks of all nodes at once, and compares what it
finds with the nodes' notes: each node remembers by how much the clock of every other node was ahead of its own, and
when. The client's own clock cancels out, so it may be stepped, suspended or wrong. Which notes are old and which clock
is wrong by hours does not matter: only changes do, beyond what drift and the time for the reply allow.

Let M be the largest minority. Two clocks *contradict* each other if a note about them is no longer true, and *agree* if
there are notes and all are true.

- A clock is **steady** if no other one contradicts it, or if M others agree with it: at least one of these is right.
- A clock was **stepped** if it is not steady, and contradicts one with which M others agree.
- Otherwise it is **in doubt**: too few nodes answer to tell which of the clocks was stepped.

Only nodes that vote count as others: one that is quarantined, perhaps because of its clock, says nothing about them.

A frozen clock, or one that runs too fast, counts as stepped as soon as it is off by as much. Clocks of which there is
no note yet do not contradict each other: notes are made when a client first reaches both nodes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import Enum
from statistics import median

RESOLUTION = 0.005
"""Seconds by which a clock may be off beyond what is measured: servers read their clock only now and then."""

LONGEST_INTERVAL = 5.0
"""Maximum seconds for which a comparison of the clocks is relied on."""


def interval(ttl: float) -> float:
    """Return for how many seconds a comparison of the clocks is relied on, with leases of that ttl.

    What drift allows in that time goes unnoticed, and must be small against the drift that a lease's validity allows.
    """
    return min(ttl / 2, LONGEST_INTERVAL)


@dataclass(frozen=True, slots=True)
class Reading:
    """A node's clock as read by a client."""

    time: float
    """What the node's clock showed, in seconds."""
    low: float
    """By how much it is ahead of the client's clock, at least: if it was read when the reply arrived."""
    high: float
    """By how much it is ahead of the client's clock, at most: if it was read when the command was sent."""

    @property
    def took(self) -> float:
        """The seconds from the command to the reply."""
        return self.high - self.low


@dataclass(frozen=True, slots=True)
class Note:
    """What a node has noted of another node's clock."""

    time: float
    """When, on the clock of the node that made the note."""
    ahead: float
    """By how many seconds the other clock was ahead."""
    error: float
    """By how much that may be wrong."""

    def tolerance(self, now: float, drift: float) -> float:
        """Return by how many seconds the note may be wrong at that time on the clock of the node that made it."""
        return self.error + drift * max(now - self.time, 0.0)

    def moved(self, own: Reading, other: Reading, drift: float) -> float:
        """Return by how many seconds the other clock has moved since, beyond drift and error; 0.0 if it has not."""
        allowed = self.tolerance(own.time, drift) + drift * max(own.took, other.took) + RESOLUTION
        low, high = other.low - own.high - self.ahead, other.high - own.low - self.ahead
        return (low + high) / 2 if low > allowed or high < -allowed else 0.0


def noted(own: Reading, other: Reading, drift: float) -> Note:
    """Return what a node is to note of another clock."""
    low, high = other.low - own.high, other.high - own.low
    return Note(own.time, (low + high) / 2, (high - low) / 2 + drift * max(own.took, other.took))


class Finding(Enum):
    """What the comparison says about a clock."""

    STEADY = "steady"
    STEPPED = "stepped"
    IN_DOUBT = "in doubt"


@dataclass(frozen=True, slots=True)
class Comparison:
    """The outcome for all clocks, by node."""

    findings: Mapping[int, Finding]
    confirmed: frozenset[int]
    """The nodes of which no reply that is still outstanding can change the finding: M others agree with them."""
    steps: Mapping[int, float]
    """By how many seconds clocks that are not steady were stepped, as far as can be told."""


def compare(
    readings: Mapping[int, Reading],
    notes: Mapping[int, Mapping[int, Note]],
    voting: AbstractSet[int],
    drift: float,
    wrong: int,
) -> Comparison:
    """Compare the clocks of the nodes that have answered.

    - `notes`: for each node, what it has noted of others.
    - `voting`: the nodes that vote.
    - `drift`: by which part clocks may be fast or slow.
    - `wrong`: as many nodes may be wrong without being believed.
    """
    agree = dict.fromkeys(readings, 0)
    moves: dict[int, dict[int, float]] = {node: {} for node in readings}
    for one in readings:
        for other in readings:
            if one >= other:
                continue
            found = [
                sign * note.moved(readings[by], readings[of], drift)
                for by, of, sign in ((one, other, 1.0), (other, one, -1.0))
                if (note := notes.get(by, {}).get(of)) is not None
            ]
            move = max(found, key=abs, default=0.0)
            for node, by, signed in ((other, one, move), (one, other, -move)):
                if by in voting and move:
                    moves[node][by] = signed
                elif by in voting and found:
                    agree[node] += 1
    confirmed = frozenset(node for node, others in agree.items() if others >= wrong)
    findings: dict[int, Finding] = {}
    steps: dict[int, float] = {}
    for node, moved in moves.items():
        if not moved or node in confirmed:
            findings[node] = Finding.STEADY
            continue
        sure = [move for other, move in moved.items() if other in confirmed]
        findings[node] = Finding.STEPPED if sure else Finding.IN_DOUBT
        steps[node] = median(sure or moved.values())
    return Comparison(findings, confirmed, steps)


def notes_to_make(
    readings: Mapping[int, Reading],
    notes: Mapping[int, Mapping[int, Note]],
    comparison: Comparison,
    drift: float,
    older_than: float,
) -> dict[int, dict[int, Note]]:
    """Return what each node is to note of others: of steady clocks only, and unless a note is recent or better."""
    steady = [node for node in readings if comparison.findings[node] is Finding.STEADY]
    made: dict[int, dict[int, Note]] = {}
    for node in steady:
        own = readings[node]
        for other in steady:
            note = notes.get(node, {}).get(other)
            better = noted(own, readings[other], drift)
            age = math.inf if note is None else own.time - note.time
            is_good = note is not None and note.tolerance(own.time, drift) < better.error
            if other != node and age >= older_than and not is_good:
                made.setdefault(node, {})[other] = better
    return made
