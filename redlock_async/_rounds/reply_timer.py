"""How long each node takes to answer, noted only while somebody wants to know; it changes nothing of a round."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ._fleet import Fleet
from ._node import Node
from .events import Answer, Events

MISSED = TimeoutError("no answer in time")
"""The failure of a node that ran out of time."""


class Watched(Protocol):
    """A round, as far as it is watched."""

    started_at: float
    refused: int
    causes: dict[int, Exception]

    def deliver(self, node: int, reply: object) -> None:
        """Take the reply of that node."""

    def dropped(self, node: int, cause: Exception) -> None:
        """The connection ended first."""


class Watch:
    """Takes the answers in the place of a round, and passes them on with the time noted.

    So a round that nobody watches is not asked with each answer whether it is.
    """

    __slots__ = (
        "_at",
        "_events",
        "_first",
        "_last",
        "_nodes",
        "_now",
        "_others_at",
        "_refused",
        "_refusers",
        "_round",
        "asked",
        "started_at",
    )

    def __init__(self, events: Events, nodes: Fleet, now: Callable[[], float], round_: Watched) -> None:
        self._events = events
        self._nodes = nodes
        self._now = now
        self._round = round_
        self.started_at = round_.started_at
        self._at: dict[int, float] = {}
        """When each node answered."""
        self._last = self._refused = self._refusers = 0
        self.asked = -1
        """Bit mask of the nodes that it is about, where it is not about all."""
        self._first = -1
        """Bit mask of those that were asked before the others."""
        self._others_at = 0.0

    def others_follow(self, first: int) -> None:
        """All but those are asked only now."""
        self._first, self._others_at = first, self._now()

    def deliver(self, node: int, reply: object) -> None:
        self._at[node] = self._now()
        self._last = node
        self._round.deliver(node, reply)
        self._tell_refusals()

    def dropped(self, node: int, cause: Exception) -> None:
        self._at[node] = self._now()
        self._round.dropped(node, cause)

    def _tell_refusals(self) -> None:
        """A round counts its refusals, and does not keep whose they were."""
        if self._round.refused > self._refused:
            self._refused = self._round.refused
            self._refusers |= 1 << self._last

    def over(self, operation: str) -> None:
        """Every node has answered or failed: report it."""
        self._tell_refusals()  # of the last answer, which is still being delivered
        each = (self._answer(node) for node in self._nodes if self.asked & node.bit)
        self._events.tell_answers(operation, tuple(answer for answer in each if answer is not None))

    def _answer(self, node: Node) -> Answer | None:
        """What that node said; None if it was not asked."""
        cause, at = self._round.causes.get(node.index), self._at.get(node.index)
        sent_at = self.started_at if self._first & node.bit else self._others_at
        if cause is MISSED:
            return Answer(node.label, "timed_out", self._now() - sent_at)
        seconds = None if at is None else at - sent_at
        if cause is not None:
            return Answer(node.label, "failed", seconds)
        if at is None:
            return None
        return Answer(node.label, "refused" if self._refusers & node.bit else "granted", seconds)
