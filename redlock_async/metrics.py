"""What is measured of a client, for every exporter alike: names, units, buckets, and what each event adds to which.

It knows no metrics library. Names are OpenTelemetry's; an exporter to another system spells them in that system's way.
No label is ever a lock's name: names are without bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, Protocol, get_args

from redlock_async import ConfigurationError, Event, Statistics
from redlock_async.events import Listener, Reason

WAITS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
HOLDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
ANSWERS_TAKE = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)
RATIOS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


@dataclass(frozen=True, slots=True, eq=False)
class Measure:
    """One metric."""

    name: str
    kind: Literal["counter", "histogram", "gauge"]
    unit: str
    """By UCUM: 's', '1' for a ratio; what is counted in braces."""
    description: str
    labels: tuple[str, ...] = ()
    """Besides `client`, which every metric has."""
    buckets: tuple[float, ...] = ()


ACQUIRE = Measure(
    "redlock.acquire.duration",
    "histogram",
    "s",
    "How long acquiring took, by how it ended.",
    ("lock", "outcome"),
    WAITS,
)
HOLD = Measure(
    "redlock.hold.duration", "histogram", "s", "How long a lease was held, by how it ended.", ("lock", "outcome"), HOLDS
)
LEFT = Measure(
    "redlock.lease.left_ratio",
    "histogram",
    "1",
    "How much of its ttl a lease had left when it was renewed or released: near 0 it was nearly lost.",
    ("lock",),
    RATIOS,
)
REFUSALS = Measure("redlock.refusals", "counter", "{attempt}", "Attempts that found the lock held.", ("lock",))
RENEWALS = Measure(
    "redlock.renewals", "counter", "{renewal}", "Renewals, by whether enough masters confirmed.", ("lock", "outcome")
)
LOSSES = Measure("redlock.losses", "counter", "{lease}", "Leases that ended while held.", ("lock", "reason"))
UNCONFIRMED = Measure(
    "redlock.releases.unconfirmed",
    "counter",
    "{release}",
    "Releases that too few masters confirmed: keys may stay until their ttl.",
    ("lock",),
)
REPAIRS = Measure("redlock.node.repairs", "counter", "{key}", "Keys of held leases that a node had lost.", ("node",))
OUTAGES = Measure("redlock.node.outages", "counter", "{outage}", "How often a node was given up.", ("node",))
HOLD_OUTS = Measure(
    "redlock.node.hold_outs", "counter", "{hold_out}", "How often a node came back without its data.", ("node",)
)
ANSWERS = Measure(
    "redlock.node.answers", "counter", "{answer}", "What nodes said to commands.", ("node", "operation", "verdict")
)
ANSWER_TIME = Measure(
    "redlock.node.answer.duration",
    "histogram",
    "s",
    "How long a node took to answer, or until it was given up.",
    ("node", "operation", "error"),
    ANSWERS_TAKE,
)

HELD = Measure("redlock.leases.held", "gauge", "{lease}", "Leases held now.")
WAITERS = Measure("redlock.waiters", "gauge", "{task}", "Tasks that wait for a lock now.")
NODES = Measure("redlock.nodes.configured", "gauge", "{node}", "Masters the client was given.")
NEEDED = Measure("redlock.nodes.needed", "gauge", "{node}", "Masters that must be up: the quorum.")
NODES_UP = Measure("redlock.nodes.up", "gauge", "{node}", "Masters that are connected and may vote.")
NODE_UP = Measure("redlock.node.up", "gauge", "{node}", "Whether that node is connected and may vote.", ("node",))
NODE_HELD_OUT = Measure(
    "redlock.node.held_out",
    "gauge",
    "{node}",
    "Whether that node is held out of the vote: it lost its data.",
    ("node",),
)

MEASURES = (
    *(ACQUIRE, HOLD, LEFT, REFUSALS, RENEWALS, LOSSES, UNCONFIRMED),
    *(REPAIRS, OUTAGES, HOLD_OUTS, ANSWERS, ANSWER_TIME),
    *(HELD, WAITERS, NODES, NEEDED, NODES_UP, NODE_UP, NODE_HELD_OUT),
)

Reading = tuple[Measure, float, tuple[str, ...]]
"""What to add to a metric, and its labels besides `client`."""

ENDS_OF_ACQUIRE = frozenset({"acquired", "timeout", "unavailable", "cancelled", "failed"})
COUNTED = {
    "refused": (REFUSALS, ()),
    "extended": (RENEWALS, ("extended",)),
    "extend_failed": (RENEWALS, ("failed",)),
    "release_unconfirmed": (UNCONFIRMED, ()),
}
COUNTED_BY_NODE = {"repaired": REPAIRS, "node_down": OUTAGES, "node_held_out": HOLD_OUTS}


def readings(event: Event) -> Iterator[Reading]:
    """What an event adds."""
    if event.kind == "answered":
        return _of_answers(event)
    return _of_lease(event) if event.node is None else _of_node(event, event.node)


def _of_answers(event: Event) -> Iterator[Reading]:
    operation = event.operation or ""
    for node, verdict, seconds in event.answers:
        yield ANSWERS, 1, (node, operation, verdict)
        if seconds is not None:
            yield ANSWER_TIME, seconds, (node, operation, verdict if verdict in {"failed", "timed_out"} else "")


def _of_node(event: Event, node: str) -> Iterator[Reading]:
    if event.kind in COUNTED_BY_NODE:
        yield COUNTED_BY_NODE[event.kind], 1, (node,)
    else:  # it is up: from here on it counts
        for measure in COUNTED_BY_NODE.values():
            yield measure, 0, (node,)


def _of_lease(event: Event) -> Iterator[Reading]:
    kind, lock = event.kind, event.lock or ""
    if kind in ENDS_OF_ACQUIRE:
        yield ACQUIRE, event.seconds or 0.0, (lock, kind)
    elif kind in COUNTED:
        measure, outcome = COUNTED[kind]
        yield measure, 1, (lock, *outcome)
    elif kind == "lost":
        yield LOSSES, 1, (lock, event.reason or "")
    if kind == "released" or (kind == "lost" and event.reason != "gone"):  # that one had been reported as released
        yield HOLD, event.seconds or 0.0, (lock, kind)
    if event.left is not None and event.ttl:
        yield LEFT, event.left / event.ttl, (lock,)


def begun(measure: Measure, labels: tuple[str, ...]) -> Iterator[tuple[Measure, tuple[str, ...]]]:
    """What counts from 0 as soon as there is a first reading of that.

    A series that begins with its first loss is, to whoever looks for increases, one that never increased.
    """
    if measure is ACQUIRE:
        lock = labels[0]
        yield REFUSALS, (lock,)
        yield UNCONFIRMED, (lock,)
        for outcome in ("extended", "failed"):
            yield RENEWALS, (lock, outcome)
        for reason in get_args(Reason):
            yield LOSSES, (lock, reason)


def gauges(statistics: Statistics) -> Iterator[Reading]:
    """What is so at this moment. Nothing is said of the nodes of a client that is not in use: nobody has asked them."""
    yield HELD, statistics.held, ()
    yield WAITERS, statistics.waiting, ()
    yield NODES, statistics.nodes, ()
    yield NEEDED, statistics.needed, ()
    if statistics.states:
        yield NODES_UP, statistics.nodes_up, ()
    for node, state in statistics.states.items():
        yield NODE_UP, int(state == "up"), (node,)
        yield NODE_HELD_OUT, int(state == "held_out"), (node,)


class Observed(Protocol):
    """A client, be it for coroutines or for threads."""

    def on_event(self, callback: Listener, *, answers: bool) -> Callable[[], None]:
        """Call that with every event."""
        ...

    def statistics(self) -> Statistics:
        """Counters and gauges."""
        ...


class Exporter:
    """What exporters have in common: the clients they are told of, each under a name of its own."""

    def __init__(self, *, nodes: bool) -> None:
        self._nodes = nodes
        self._closed = False
        self._clients: dict[str, tuple[Observed, Callable[[], None]]] = {}

    def add(self, redlock: Observed, client: str = "default") -> None:
        """Export that one's metrics, with `client` as a label that tells it from the others of this process."""
        if self._closed:
            raise ConfigurationError("this exporter was closed: make another one")
        if client in self._clients:
            raise ConfigurationError(f"a client is exported as {client!r} already: give each a name of its own")
        end = redlock.on_event(self._listener(client), answers=self._nodes)
        self._clients[client] = (redlock, end)

    def remove(self, client: str = "default") -> None:
        """Stop exporting that one; what was counted stays until `close`."""
        if client not in self._clients:
            raise ConfigurationError(f"no client is exported as {client!r}")
        _, end = self._clients.pop(client)
        end()

    def close(self) -> None:
        """Stop exporting all of them, for good."""
        self._closed = True
        for client in tuple(self._clients):
            self.remove(client)

    def _listener(self, client: str) -> Callable[[Event], object]:
        """What is called with that client's events."""
        raise NotImplementedError

    def _gauges(self) -> Iterator[tuple[str, Reading]]:
        """Every client's gauges; may be called in any thread."""
        for client, (redlock, _) in tuple(self._clients.items()):
            for reading in gauges(redlock.statistics()):
                yield client, reading
