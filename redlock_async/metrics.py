"""The metrics of a client, for every exporter: names, units, buckets, and the samples that each event adds.

It must not import a metrics library. Names are in OpenTelemetry's form; other exporters convert them. No label is a
lock's name, because the number of names is unbounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, Protocol, get_args

from redlock_async import ConfigurationError, Event, Statistics
from redlock_async.events import Listener, Reason

WAITS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
HOLDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
REPLY_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)
RATIOS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


@dataclass(frozen=True, slots=True, eq=False)
class Metric:
    """One metric."""

    name: str
    kind: Literal["counter", "histogram", "gauge"]
    unit: str
    """In UCUM: 's', '1' for a ratio, or the counted thing in braces."""
    description: str
    labels: tuple[str, ...] = ()
    """The labels, without `client`, which every metric has."""
    buckets: tuple[float, ...] = ()


ACQUIRE = Metric(
    "redlock.acquire.duration",
    "histogram",
    "s",
    "Duration of acquires, by outcome.",
    ("lock", "outcome"),
    WAITS,
)
HOLD = Metric("redlock.hold.duration", "histogram", "s", "Duration of leases, by outcome.", ("lock", "outcome"), HOLDS)
LEFT = Metric(
    "redlock.lease.remaining_ratio",
    "histogram",
    "1",
    "Part of the ttl that was left when a lease was renewed or released. Near 0: it was almost lost.",
    ("lock",),
    RATIOS,
)
REFUSALS = Metric("redlock.refusals", "counter", "{attempt}", "Attempts that found the lock held.", ("lock",))
RENEWALS = Metric(
    "redlock.renewals", "counter", "{renewal}", "Renewals, by whether a quorum confirmed them.", ("lock", "outcome")
)
LOSSES = Metric("redlock.losses", "counter", "{lease}", "Leases that ended while held, by reason.", ("lock", "reason"))
UNCONFIRMED = Metric(
    "redlock.releases.unconfirmed",
    "counter",
    "{release}",
    "Releases that too few nodes confirmed: keys may stay until their ttl.",
    ("lock",),
)
REPAIRS = Metric(
    "redlock.node.repairs", "counter", "{key}", "Keys of held leases that a node had lost and stores again.", ("node",)
)
OUTAGES = Metric("redlock.node.outages", "counter", "{outage}", "Times that a node went down.", ("node",))
QUARANTINES = Metric(
    "redlock.node.quarantines",
    "counter",
    "{quarantine}",
    "Times that a node was quarantined because it may have forgotten leases.",
    ("node",),
)
REPLIES = Metric(
    "redlock.node.replies",
    "counter",
    "{reply}",
    "Replies of nodes to commands, by outcome.",
    ("node", "operation", "outcome"),
)
REPLY_TIME = Metric(
    "redlock.node.reply.duration",
    "histogram",
    "s",
    "Time until a node replied or timed out.",
    ("node", "operation", "error"),
    REPLY_BUCKETS,
)

HELD = Metric("redlock.leases.held", "gauge", "{lease}", "Leases that are held now.")
WAITERS = Metric("redlock.waiters", "gauge", "{task}", "Tasks that are waiting for a lock now.")
NODES = Metric("redlock.nodes.configured", "gauge", "{node}", "Nodes that the client is configured with.")
QUORUM = Metric("redlock.nodes.quorum", "gauge", "{node}", "Votes that a lock needs.")
NODES_UP = Metric("redlock.nodes.up", "gauge", "{node}", "Nodes that are connected and can vote.")
NODE_UP = Metric("redlock.node.up", "gauge", "{node}", "Whether the node is connected and can vote.", ("node",))
NODE_QUARANTINED = Metric(
    "redlock.node.quarantined",
    "gauge",
    "{node}",
    "Whether the node is quarantined: it lost its data, and its vote does not count yet.",
    ("node",),
)

METRICS = (
    *(ACQUIRE, HOLD, LEFT, REFUSALS, RENEWALS, LOSSES, UNCONFIRMED),
    *(REPAIRS, OUTAGES, QUARANTINES, REPLIES, REPLY_TIME),
    *(HELD, WAITERS, NODES, QUORUM, NODES_UP, NODE_UP, NODE_QUARANTINED),
)

Sample = tuple[Metric, float, tuple[str, ...]]
"""A metric, the amount to add to it, and its labels without `client`."""

ENDS_OF_ACQUIRE = frozenset({"acquired", "timeout", "busy", "unavailable", "cancelled", "failed"})
COUNTED = {
    "contended": (REFUSALS, ()),
    "extended": (RENEWALS, ("extended",)),
    "extend_failed": (RENEWALS, ("failed",)),
    "release_unconfirmed": (UNCONFIRMED, ()),
    "hold_unconfirmed": (UNCONFIRMED, ()),
}
COUNTED_BY_NODE = {"repaired": REPAIRS, "node_down": OUTAGES, "node_quarantined": QUARANTINES}


def samples(event: Event) -> Iterator[Sample]:
    """Iterate over the samples that an event adds."""
    if event.kind == "node_replies":
        return _of_replies(event)
    return _of_lease(event) if event.node is None else _of_node(event, event.node)


def _of_replies(event: Event) -> Iterator[Sample]:
    operation = event.operation or ""
    for node, outcome, seconds in event.node_replies:
        yield REPLIES, 1, (node, operation, outcome)
        if seconds is not None:
            yield REPLY_TIME, seconds, (node, operation, outcome if outcome in {"failed", "timed_out"} else "")


def _of_node(event: Event, node: str) -> Iterator[Sample]:
    if event.kind in COUNTED_BY_NODE:
        yield COUNTED_BY_NODE[event.kind], 1, (node,)
    else:  # the node is up: start its counters at 0
        for metric in COUNTED_BY_NODE.values():
            yield metric, 0, (node,)


def _of_lease(event: Event) -> Iterator[Sample]:
    kind, lock = event.kind, event.lock_kind or ""
    if kind in ENDS_OF_ACQUIRE:
        yield ACQUIRE, event.seconds or 0.0, (lock, kind)
    elif kind in COUNTED:
        metric, outcome = COUNTED[kind]
        yield metric, 1, (lock, *outcome)
    elif kind == "lost":
        yield LOSSES, 1, (lock, event.reason or "")
    # A lease whose loss shows at its release has been counted as released already.
    if kind == "released" or (kind == "lost" and event.reason != "missing_at_release"):
        yield HOLD, event.seconds or 0.0, (lock, kind)
    if event.remaining is not None and event.ttl:
        yield LEFT, event.remaining / event.ttl, (lock,)


def zero_series(metric: Metric, labels: tuple[str, ...]) -> Iterator[tuple[Metric, tuple[str, ...]]]:
    """Iterate over the counters that start at 0 with the first sample of `metric`.

    If a series began with its first loss, a query for increases would not see that loss.
    """
    if metric is ACQUIRE:
        lock = labels[0]
        yield REFUSALS, (lock,)
        yield UNCONFIRMED, (lock,)
        for outcome in ("extended", "failed"):
            yield RENEWALS, (lock, outcome)
        for reason in get_args(Reason):
            yield LOSSES, (lock, reason)


def gauges(statistics: Statistics) -> Iterator[Sample]:
    """Iterate over the current gauges; without the nodes' while the client is unused."""
    yield HELD, statistics.held, ()
    yield WAITERS, statistics.waiting, ()
    yield NODES, statistics.nodes, ()
    yield QUORUM, statistics.quorum, ()
    if statistics.node_states:
        yield NODES_UP, statistics.nodes_up, ()
    for node, state in statistics.node_states.items():
        yield NODE_UP, int(state == "up"), (node,)
        yield NODE_QUARANTINED, int(state == "quarantined"), (node,)


class Observed(Protocol):
    """A client, for coroutines or for threads."""

    def on_event(self, callback: Listener, *, node_replies: bool) -> Callable[[], None]:
        """Call a function with every event."""
        ...

    def statistics(self) -> Statistics:
        """Return the counters and the gauges."""
        ...


class Exporter:
    """The base of all exporters: it keeps the clients, each under a unique name."""

    def __init__(self, *, per_node: bool) -> None:
        self._per_node = per_node
        self._closed = False
        self._clients: dict[str, tuple[Observed, Callable[[], None]]] = {}

    def add(self, redlock: Observed, client: str = "default") -> None:
        """Export the metrics of a client, labelled with the name `client`, which must be unique in this exporter.

        Raises ConfigurationError if the name is taken, or the exporter is closed.
        """
        if self._closed:
            raise ConfigurationError("cannot add a client to a closed exporter: create another exporter")
        if client in self._clients:
            raise ConfigurationError(f"a client is already exported as {client!r}: pass another name as `client`")
        unsubscribe = redlock.on_event(self._listener(client), node_replies=self._per_node)
        self._clients[client] = (redlock, unsubscribe)

    def remove(self, client: str = "default") -> None:
        """Stop listening to a client; its totals stay until `close`. Raises ConfigurationError if it is unknown."""
        if client not in self._clients:
            raise ConfigurationError(f"no client is exported as {client!r}")
        _, unsubscribe = self._clients.pop(client)
        unsubscribe()

    def close(self) -> None:
        """Stop exporting all clients. A closed exporter cannot be used again."""
        self._closed = True
        for client in tuple(self._clients):
            self.remove(client)

    def _listener(self, client: str) -> Callable[[Event], object]:
        """Return the callback for the events of a client."""
        raise NotImplementedError

    def _gauges(self) -> Iterator[tuple[str, Sample]]:
        """Iterate over the gauges of every client; any thread may call it."""
        for client, (redlock, _) in tuple(self._clients.items()):
            for sample in gauges(redlock.statistics()):
                yield client, sample
