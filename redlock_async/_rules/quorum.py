"""Votes, verdicts and validity: what a set of replies is worth. No clock, no I/O, no randomness."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Verdict(Enum):
    """The outcome of the replies so far."""

    PENDING = "pending"
    WON = "won"
    REFUSED = "refused"  # contention: worth retrying
    UNREACHABLE = "unreachable"  # failures alone rule a quorum out


WON = Verdict.WON
"""The usual one. In Python 3.11 it takes ten times as long to look up as an attribute of the enum."""


def majority(nodes: int) -> int:
    """Return the votes needed, out of the *configured* nodes: counting only reachable ones would elect two holders."""
    return nodes // 2 + 1


def minority(nodes: int) -> int:
    """Return how many nodes may be wrong without being believed. A larger quorum changes nothing about that."""
    return nodes - majority(nodes)


@dataclass(eq=False)
class Tally:
    """The running count of one round."""

    asked: int
    quorum: int
    granted: int = 0
    refused: int = 0
    failed: int = 0

    @property
    def spare(self) -> int:
        """How many nodes may refuse or fail."""
        return self.asked - self.quorum

    @property
    def verdict(self) -> Verdict:
        """WON as soon as it is certain; REFUSED or UNREACHABLE as soon as a quorum has become impossible."""
        # It counts the nodes that may still be lost instead of waiting for a majority of refusals, which an even split
        # (2-2 of 4) never has.
        spare = self.spare
        if self.granted >= self.quorum:
            return Verdict.WON
        if self.failed > spare:
            return Verdict.UNREACHABLE
        if self.refused + self.failed > spare:
            return Verdict.REFUSED
        return Verdict.PENDING
