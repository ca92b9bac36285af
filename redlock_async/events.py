"""What happened, for logging, tracing and metrics alike; observing must never change what happens."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, NamedTuple

logger = logging.getLogger("redlock_async")

Kind = Literal[
    "acquired",  # a lease was granted; seconds: how long acquire took
    "refused",  # an attempt found it held; seconds: how long it took; holder: by whom, where that is known
    "timeout",  # the wait was over; seconds: how long it was
    "unavailable",  # too few masters answered for as long as we waited
    "cancelled",  # whoever waited was cancelled; seconds: how long it had waited
    "failed",  # acquiring raised another error than those
    "released",  # a lease was given back; seconds: how long it was held; left: what was left of its ttl
    "release_unconfirmed",  # too few masters confirmed a release: keys may stay until their ttl
    "extended",  # a lease has a new deadline; left: what was left of the old one
    "extend_failed",  # too few masters confirmed a renewal; it is tried again while there is time
    "lost",  # a lease ended while held; seconds: how long it was; error and reason: why
    "repaired",  # a node that had lost the key of a lease has it again
    "node_up",
    "node_down",  # error: why
    "node_held_out",  # it lost its data, and does not vote; seconds: for how long
    "answered",  # a command that went to the nodes is over; answers: what each said, and when. Only to who asks for it
]

Reason = Literal[
    "unconfirmed",  # no majority confirmed a renewal in time
    "taken",  # its key is gone or somebody else's on a majority: freed by force, evicted, overwritten
    "expired",  # its ttl is over, with renew=False or before it was attached
    "max_hold",  # max_hold is over
    "blocked",  # its deadline passed while the loop was blocked or the machine was paused
    "closed",  # the client was closed
    "downgrade",  # too few masters made a reader of the writer
    "gone",  # found at its release, which had been reported as such
]
"""Why a lease was lost, in one word."""

NodeState = Literal["up", "held_out", "down"]
Verdict = Literal["granted", "refused", "failed", "timed_out"]

_LEVELS = {
    "lost": logging.WARNING,
    "release_unconfirmed": logging.WARNING,
    "unavailable": logging.WARNING,
    "node_down": logging.WARNING,
    "node_held_out": logging.WARNING,
    "node_up": logging.INFO,
    # One for each lease and try, where node_down has warned once.
    "extend_failed": logging.INFO,
    "failed": logging.INFO,
}


class Answer(NamedTuple):
    """What one node said to a command."""

    node: str
    verdict: Verdict
    seconds: float | None
    """From sending to the answer, or to when it was given up; None where it was down and not asked at all."""


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened."""

    kind: Kind
    names: tuple[str, ...] = ()
    node: str | None = None
    seconds: float | None = None
    error: BaseException | None = None
    lock: str | None = None
    """The kind of lock it is about: 'lock', 'fair', 'read', 'write' or 'semaphore'."""
    holder: str | None = None
    """The owner label of whoever has it."""
    reason: Reason | None = None
    ttl: float | None = None
    """Of a lease, with `left`."""
    left: float | None = None
    """Seconds that were left until its deadline."""
    operation: str | None = None
    """What was asked of the nodes: 'acquire', 'fence', 'release', 'extend', 'repair', 'downgrade', 'queue', 'latch'."""
    answers: tuple[Answer, ...] = ()

    def details(self) -> Iterator[tuple[str, Any]]:
        """What is known of it, by field."""
        for each in fields(self):
            value = getattr(self, each.name)
            if value is not None and value != ():
                yield each.name, value


@dataclass(slots=True)
class Counters:
    """What a client did since it was made."""

    acquired: int = 0
    timeouts: int = 0
    unavailable: int = 0
    released: int = 0
    extended: int = 0
    lost: int = 0
    repaired: int = 0
    attempts: int = 0
    refused: int = 0
    cancelled: int = 0
    failed: int = 0
    unextended: int = 0
    unconfirmed: int = 0


@dataclass(frozen=True, slots=True)
class Statistics:
    """Counters since the client was made, and gauges of this moment."""

    acquired: int
    timeouts: int
    unavailable: int
    released: int
    extended: int
    lost: int
    repaired: int
    attempts: int
    refused: int
    """Attempts that found it held."""
    cancelled: int
    failed: int
    unextended: int
    """Renewals that too few masters confirmed."""
    unconfirmed: int
    """Releases that too few masters confirmed."""
    held: int
    """Leases held now."""
    waiting: int
    """Tasks of this process that are waiting now."""
    nodes_up: int
    """Masters that are connected and may vote."""
    nodes: int
    needed: int
    """Masters that must be up: the quorum."""
    states: Mapping[str, NodeState]
    """Each master by its label; empty until the client is used."""


Listener = Callable[[Event], object]


@dataclass(slots=True)
class Events:
    """The listeners of one client, and its log."""

    counters: Counters = field(default_factory=Counters)
    listeners: list[Listener] = field(default_factory=list)
    watchers: list[Listener] = field(default_factory=list)
    """Those of the listeners who want to know of every answer, too."""

    @property
    def heard(self) -> bool:
        """Whether anybody wants to know what goes well; asked before an event of the common path is put together."""
        return bool(self.listeners) or logger.isEnabledFor(logging.DEBUG)

    def listen(self, listener: Listener, *, answers: bool) -> Callable[[], None]:
        """Tell that one from now on; returns a function that ends it."""
        lists: tuple[list[Listener], ...] = (self.listeners, self.watchers) if answers else (self.listeners,)
        for each in lists:
            each.append(listener)

        def end() -> None:
            nonlocal lists
            for each in lists:
                each.remove(listener)
            lists = ()

        return end

    def tell(self, kind: Kind, **details: Any) -> None:
        """Report to the log and to every listener."""
        level = _LEVELS.get(kind, logging.DEBUG)
        logged = logger.isEnabledFor(level)
        if not self.listeners and not logged:
            return
        event = Event(kind, **details)
        if logged:
            logger.log(level, "%s", _Line(event), extra=_extra(event))
        _call(self.listeners, event)

    def tell_answers(self, operation: str, answers: tuple[Answer, ...]) -> None:
        """Report what each node said to those who asked for that. Not to the log: it would be the most of it."""
        _call(self.watchers, Event("answered", operation=operation, answers=answers))


def _call(listeners: list[Listener], event: Event) -> None:
    for listener in tuple(listeners):
        try:
            listener(event)
        except (Exception, asyncio.CancelledError, SystemExit):
            # The rest of a release or a loss is still to be done, and whoever has the turn next waits for that.
            logger.exception("an on_event callback failed on %s", _Line(event))


def _extra(event: Event) -> dict[str, Any]:
    """The event, and what is known of it in flat fields, as formatters that write JSON want them."""
    flat = {f"redlock_{name}": value for name, value in event.details()}
    if event.error is not None:
        flat["redlock_error"] = str(event.error)
    return {"redlock": event, **flat}


class _Line:
    """An event as a line of log, put together only if somebody reads it."""

    def __init__(self, event: Event) -> None:
        self.event = event

    def __str__(self) -> str:
        parts = [self.event.kind.replace("_", " ")]
        parts += [repr(name) for name in self.event.names]
        parts += [self.event.node] if self.event.node else []
        parts += [f"{self.event.seconds:.3f} s"] if self.event.seconds is not None else []
        return " ".join(parts) + (f": {self.event.error}" if self.event.error else "")


def statistics(counters: Counters, **gauges: Any) -> Statistics:
    """The counters with the gauges, frozen."""
    return Statistics(**{f.name: getattr(counters, f.name) for f in fields(counters)}, **gauges)
