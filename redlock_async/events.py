"""Events for logging, tracing and metrics. Listeners must never change what happens."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, NamedTuple

logger = logging.getLogger("redlock_async")

Kind = Literal[
    "acquired",  # a lease was granted; seconds: duration of the acquire
    "contended",  # an attempt found the lock held; seconds: duration of the attempt; holder, if known
    "timeout",  # the wait ended without the lock; seconds: duration of the wait
    "busy",  # the lock was held and the call did not wait (wait=0, try_acquire, once); holder, if known
    "unavailable",  # too few nodes answered during the wait
    "cancelled",  # a waiting task was cancelled; seconds: duration of its wait
    "failed",  # acquiring raised another error
    "released",  # a lease was released; seconds: how long it was held; remaining: time left until its deadline
    "release_unconfirmed",  # too few nodes confirmed a release: keys may stay until their ttl
    "hold_unconfirmed",  # too few nodes stored that a name stays locked: work may be repeated within the period
    "extended",  # a lease has a new deadline; remaining: time that was left until the old one
    "extend_failed",  # too few nodes confirmed a renewal; it is retried while there is time
    "lost",  # a lease ended while held; seconds: how long it was held; error and reason: why
    "repaired",  # a node that had lost the key of a lease stores it again
    "node_up",
    "node_down",  # error: why
    "node_quarantined",  # the node's vote does not count; seconds: for how long; error: why
    "node_votes_again",  # the quarantine is over
    "node_replies",  # a command to the nodes is over; node_replies: each node's reply; only for listeners that ask
]

Reason = Literal[
    "unconfirmed",  # no quorum confirmed a renewal in time
    "taken",  # its key was deleted or replaced on a majority of nodes: force-release, eviction, flush
    "expired",  # its ttl ended, with renew=False or before it was attached
    "max_hold",  # it reached max_hold
    "blocked",  # its deadline passed while the event loop was blocked or the machine was paused
    "closed",  # the client was closed
    "downgrade",  # too few nodes confirmed the downgrade from writer to reader
    "missing_at_release",  # the release, already reported as "released", found the keys gone
]
"""Why a lease was lost."""

NodeState = Literal["up", "quarantined", "down"]
ReplyOutcome = Literal["granted", "refused", "failed", "timed_out"]

_LEVELS = {
    "lost": logging.WARNING,
    "release_unconfirmed": logging.WARNING,
    "hold_unconfirmed": logging.WARNING,
    "unavailable": logging.WARNING,
    "node_down": logging.WARNING,
    "node_quarantined": logging.WARNING,
    "node_up": logging.INFO,
    "node_votes_again": logging.INFO,
    # Every lease and attempt emits one, and node_down has warned already.
    "extend_failed": logging.INFO,
    "failed": logging.INFO,
}


_OF_AN_OUTAGE = frozenset({"unavailable", "release_unconfirmed"})
"""The kinds that every call emits during an outage: the first is logged as a warning, the others are counted."""

_ENDS: Mapping[Kind, Kind] = {"node_up": "node_down", "node_votes_again": "node_quarantined"}

QUIET = 10.0
"""The least number of seconds between two warnings about outages, because some names may fail and others succeed."""


class NodeReply(NamedTuple):
    """The reply of one node to a command."""

    node: str
    outcome: ReplyOutcome
    seconds: float | None
    """From sending the command to the reply or the timeout; None if the node was down and got no command."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event. Fields that do not apply to its kind are empty."""

    kind: Kind
    names: tuple[str, ...] = ()
    node: str | None = None
    seconds: float | None = None
    error: BaseException | None = None
    lock_kind: str | None = None
    """The kind of lock: 'lock', 'fair', 'read', 'write' or 'semaphore'."""
    holder: str | None = None
    """The owner label of the holder."""
    reason: Reason | None = None
    ttl: float | None = None
    """The length of the lease, together with `remaining`."""
    remaining: float | None = None
    """Seconds that were left until the deadline of the lease."""
    operation: str | None = None
    """The command: 'acquire', 'fence', 'release', 'extend', 'repair', 'downgrade', 'queue' or 'latch'."""
    node_replies: tuple[NodeReply, ...] = ()

    def details(self) -> Iterator[tuple[str, Any]]:
        """Iterate over the names and values of the fields that are not empty."""
        for attribute in fields(self):
            value = getattr(self, attribute.name)
            if value is not None and value != ():
                yield attribute.name, value


@dataclass(slots=True)
class Counters:
    """The running totals of a client; `Statistics` describes them."""

    acquired: int = 0
    timeouts: int = 0
    busy: int = 0
    unavailable: int = 0
    released: int = 0
    extended: int = 0
    lost: int = 0
    repaired: int = 0
    attempts: int = 0
    refused: int = 0
    cancelled: int = 0
    failed: int = 0
    failed_renewals: int = 0
    unconfirmed_releases: int = 0

    def in_vain(self, wait: float | None) -> Kind:
        """Count an acquire that did not get the lock because it was held; return the kind of its event."""
        if wait == 0:
            self.busy += 1
            return "busy"
        self.timeouts += 1
        return "timeout"


@dataclass(frozen=True, slots=True)
class Statistics:
    """The counters since the client was created, and the current gauges."""

    acquired: int
    timeouts: int
    """Acquires whose wait ended without the lock."""
    busy: int
    """Acquires that did not wait (`wait=0`, `try_acquire`, `once`) and found the lock held."""
    unavailable: int
    released: int
    extended: int
    lost: int
    repaired: int
    attempts: int
    refused: int
    """Attempts that found the lock held; one acquire may make several."""
    cancelled: int
    failed: int
    failed_renewals: int
    """Renewals that too few nodes confirmed."""
    unconfirmed_releases: int
    """Releases that too few nodes confirmed."""
    held: int
    """Leases that are held now."""
    waiting: int
    """Tasks of this process that are waiting now."""
    nodes_up: int
    """Nodes that are connected and can vote."""
    nodes: int
    quorum: int
    """The number of votes that a lock needs."""
    node_states: Mapping[str, NodeState]
    """The state of each node by its label; empty until the client is used."""


Listener = Callable[[Event], object]


@dataclass(slots=True)
class Events:
    """The listeners of one client, its counters and its log."""

    counters: Counters = field(default_factory=Counters)
    listeners: list[Listener] = field(default_factory=list)
    reply_listeners: list[Listener] = field(default_factory=list)
    """The listeners that also get "node_replies"."""
    failing: int = 0
    """Consecutive calls that failed without a quorum."""
    _since: float = -math.inf
    """When the last warning about an outage was logged."""
    _warned: bool = False
    _troubles: set[tuple[Kind, str | None]] = field(default_factory=set)
    """The nodes that are down or quarantined according to the log."""

    def listen(self, listener: Listener, *, node_replies: bool) -> Callable[[], None]:
        """Add a listener; return a function that removes it."""
        lists: tuple[list[Listener], ...] = (
            (self.listeners, self.reply_listeners) if node_replies else (self.listeners,)
        )
        for listeners in lists:
            listeners.append(listener)

        def unsubscribe() -> None:
            nonlocal lists
            for listeners in lists:
                listeners.remove(listener)
            lists = ()

        return unsubscribe

    def emit(self, kind: Kind, **details: Any) -> None:
        """Report an event to the log and to every listener."""
        level = self._note(kind, details.get("node"))
        logged = logger.isEnabledFor(level)
        if not self.listeners and not logged:
            return
        event = Event(kind, **details)
        if logged:
            logger.log(level, "redlock: %s", _Line(event), extra=_extra(event))
        _call(self.listeners, event)

    def _note(self, kind: Kind, node: str | None) -> int:
        """Keep track of outages and return the log level of the event, so that each change of state is logged once."""
        if kind in _OF_AN_OUTAGE:
            self.failing += 1
            now = time.monotonic()
            if self.failing > 1 or now < self._since + QUIET:
                return logging.DEBUG
            self._since, self._warned = now, True
        elif kind == "acquired" and self.failing:
            self._recovered()
        elif kind in {"node_down", "node_quarantined"}:
            self._troubles.add((kind, node))
        elif kind in _ENDS and (_ENDS[kind], node) in self._troubles:
            # A log of warnings only must also show that the node recovered.
            self._troubles.discard((_ENDS[kind], node))
            return logging.WARNING
        return _LEVELS.get(kind, logging.DEBUG)

    def _recovered(self) -> None:
        failed, self.failing = self.failing, 0
        if self._warned:
            self._warned = False
            lasted = time.monotonic() - self._since
            logger.warning("redlock: there is a quorum again after %.1f s in which %d calls failed", lasted, failed)

    def emit_node_replies(self, operation: str, replies: tuple[NodeReply, ...]) -> None:
        """Report the replies to the listeners that asked for them, but not to the log, which they would fill."""
        _call(self.reply_listeners, Event("node_replies", operation=operation, node_replies=replies))


def _call(listeners: list[Listener], event: Event) -> None:
    for listener in tuple(listeners):
        try:
            listener(event)
        except (Exception, asyncio.CancelledError, SystemExit):
            # The caller is in the middle of a release or a loss, and must finish it: the next waiter depends on that.
            logger.exception("redlock: an on_event callback failed on %s", _Line(event))


def _extra(event: Event) -> dict[str, Any]:
    """Return the event and its details as flat fields, for formatters that write JSON."""
    flat = {f"redlock_{name}": value for name, value in event.details()}
    if event.error is not None:
        flat["redlock_error"] = str(event.error)
    return {"redlock": event, **flat}


class _Line:
    """An event as a log line, formatted only if a handler writes it."""

    def __init__(self, event: Event) -> None:
        self.event = event

    def __str__(self) -> str:
        parts = [self.event.kind.replace("_", " ")]
        parts += [repr(name) for name in self.event.names]
        parts += [self.event.node] if self.event.node else []
        parts += [f"{self.event.seconds:.3f} s"] if self.event.seconds is not None else []
        return " ".join(parts) + (f": {self.event.error}" if self.event.error else "")


def statistics(counters: Counters, **gauges: Any) -> Statistics:
    """Combine the counters and the gauges into a frozen record."""
    return Statistics(**{f.name: getattr(counters, f.name) for f in fields(counters)}, **gauges)
