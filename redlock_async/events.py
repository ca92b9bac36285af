"""What happened, for logging, tracing and metrics alike; observing must never change what happens."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, Literal

logger = logging.getLogger("redlock_async")

Kind = Literal[
    "acquired",  # a lease was granted; seconds: how long acquire took
    "timeout",  # the wait was over; seconds: how long it was
    "unavailable",  # too few masters answered for as long as we waited
    "released",  # a lease was given back; seconds: how long it was held
    "release_unconfirmed",  # too few masters confirmed a release: keys may stay until their ttl
    "extended",  # a lease has a new deadline
    "lost",  # a lease ended while held; error: why
    "repaired",  # a node that had lost the key of a lease has it again
    "node_up",
    "node_down",  # error: why
    "node_held_out",  # it lost its data, and does not vote; seconds: for how long
]

_LEVELS = {
    "lost": logging.WARNING,
    "release_unconfirmed": logging.WARNING,
    "unavailable": logging.WARNING,
    "node_down": logging.WARNING,
    "node_held_out": logging.WARNING,
    "node_up": logging.INFO,
}


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened."""

    kind: Kind
    names: tuple[str, ...] = ()
    node: str | None = None
    seconds: float | None = None
    error: BaseException | None = None


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
    held: int
    """Leases held now."""
    waiting: int
    """Tasks of this process that are waiting now."""
    nodes_up: int
    """Masters that are connected and may vote."""
    nodes: int


Listener = Callable[[Event], object]


@dataclass(slots=True)
class Events:
    """The listeners of one client, and its log."""

    counters: Counters = field(default_factory=Counters)
    listeners: list[Listener] = field(default_factory=list)

    @property
    def heard(self) -> bool:
        """Whether anybody wants to know what goes well; asked before an event of the common path is put together."""
        return bool(self.listeners) or logger.isEnabledFor(logging.DEBUG)

    def tell(self, kind: Kind, **details: Any) -> None:
        """Report to the log and to every listener."""
        level = _LEVELS.get(kind, logging.DEBUG)
        if not self.listeners and not logger.isEnabledFor(level):
            return
        event = Event(kind, **details)
        logger.log(level, "%s", _Line(event), extra={"redlock": event})
        for listener in tuple(self.listeners):
            try:
                listener(event)
            except Exception:
                logger.exception("an on_event callback failed on %s", _Line(event))


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


def statistics(counters: Counters, **gauges: int) -> Statistics:
    """The counters with the gauges, frozen."""
    return Statistics(**{f.name: getattr(counters, f.name) for f in fields(counters)}, **gauges)
