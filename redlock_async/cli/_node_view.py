"""Format nodes as text for people and as JSON for programs; this module sends no commands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict

import redlock_async
from redlock_async._rules.quorum import minority
from redlock_async._rules.voting import FAILOVER_GRACE

from ._lock_view import format_seconds
from ._messages import short_cause
from ._table import GAP, Column, Row, paragraph, table
from ._terminal import Line, Span, display_width, sanitize

COLUMNS = (
    Column("node", min_width=15),
    Column("state"),
    Column("latency", right=True),
    Column("age", right=True, drop=2),
    Column("clock", right=True, drop=3),
    Column("version", min_width=9, drop=4),
    Column("persistence", drop=5),
    Column("eviction", min_width=9, drop=6),
    Column("wakes", drop=7),
)
LEVELS = " ▁▂▃▄▅▆▇█"
PLAIN_LEVELS = " .,-=+*#@"
HISTORY = "latency history"
MIN_SCALE = 0.002
"""Seconds that the highest bar of a history stands for, at least."""

History = Mapping[str, Sequence[float | None]]


def by_node(nodes: Sequence[redlock_async.NodeStatus]) -> dict[str, list[redlock_async.NodeStatus]]:
    """Return the servers by the node that they are: all shards of a cluster are one."""
    found: dict[str, list[redlock_async.NodeStatus]] = {}
    for node in nodes:
        found.setdefault(node.cluster or node.label, []).append(node)
    return found


def agreed_quorum(nodes: Sequence[redlock_async.NodeStatus], configured: int) -> int:
    """Return the quorum on which the clients agree, or the configured one if too few nodes remember any."""
    servers = by_node(nodes)
    known = Counter(quorum for each in servers.values() for quorum in {node.quorum for node in each} - {None})
    quorum, count = known.most_common(1)[0] if known else (configured, 0)
    return quorum if quorum is not None and count > minority(len(servers)) else configured


def count_votes(nodes: Sequence[redlock_async.NodeStatus], configured: int) -> tuple[int, int]:
    """Return how many nodes can vote now, with all their shards, and how many votes a quorum needs."""
    votes = sum(all(node.can_vote for node in servers) for servers in by_node(nodes).values())
    return votes, agreed_quorum(nodes, configured)


def state(node: redlock_async.NodeStatus) -> Span:
    """Return the state in a word or two."""
    if node.can_vote:
        return Span("votes", "green")
    return Span("no vote", "warning") if node.up else Span("down", "red")


def vote_problem(node: redlock_async.NodeStatus) -> str:
    """Return briefly why the node does not vote."""
    return sanitize(short_cause(node.error or "")) or ("does not vote" if node.up else "does not answer")


def replica_problem(node: redlock_async.NodeStatus) -> str | None:
    """Return why a failover of this node may make two holders; None if it may not, or if the server does not tell."""
    if not node.replicas or node.replica_timeout is None or 0 < node.replica_timeout <= FAILOVER_GRACE:
        return None
    has = f"has {node.replicas} replica{'' if node.replicas == 1 else 's'}, and"
    if not node.replica_timeout:
        return f"{has} never stops accepting writes without them (min-replicas-to-write)"
    return f"{has} accepts writes for {node.replica_timeout} s without them (min-replicas-max-lag)"


def node_table(nodes: Sequence[redlock_async.NodeStatus], width: int | None) -> Iterator[Line]:
    """Yield a table with a row for each node, and below it what is wrong with them."""
    yield from table(*_shown(nodes), width)
    yield from _problems(nodes, width)


def node_table_with_history(
    nodes: Sequence[redlock_async.NodeStatus], width: int, history: History, *, plain: bool
) -> Iterator[Line]:
    """Yield the same table with a last column that plots past latencies in the remaining width."""
    rows = list(table(*_shown(nodes), width - len(HISTORY) - GAP))
    room = width - sum(display_width(span.text) for span in rows[0]) - GAP
    shown = [history.get(node.label, ())[-max(room, 0) :] for node in nodes] if room >= len(HISTORY) else []
    # All nodes share one scale, so a slow node stands out; MIN_SCALE keeps fast ones low.
    highest = max([MIN_SCALE, *(value for values in shown for value in values if value is not None)])
    drawn = [Span(HISTORY, "bold"), *(Span(sparkline(values, highest, plain=plain), "cyan") for values in shown)]
    for number, row in enumerate(rows):
        yield [*row, Span(" " * GAP), drawn[number]] if shown else row
    yield from _problems(nodes, width)


def _problems(nodes: Sequence[redlock_async.NodeStatus], width: int | None) -> Iterator[Line]:
    for node in nodes:
        if not node.can_vote:
            yield from paragraph(f"{node.label}: {vote_problem(node)}", state(node).style, GAP, width)
        if (problem := replica_problem(node)) is not None:
            yield from paragraph(f"{node.label}: {problem}", "warning", GAP, width)


def _shown(nodes: Sequence[redlock_async.NodeStatus]) -> tuple[Sequence[Column], list[Row]]:
    """Return the columns and a row for each server: with what it is a shard of, if some are."""
    rows = [_row(node) for node in nodes]
    if not any(node.cluster for node in nodes):
        return COLUMNS, rows
    first, *others = COLUMNS
    columns = (first, Column("shard of", min_width=15, drop=8), Column("slots", right=True, drop=9), *others)
    shards = [
        (Span(sanitize(node.cluster or "")), Span("" if node.slots is None else str(node.slots))) for node in nodes
    ]
    return columns, [(name, *shard, *rest) for (name, *rest), shard in zip(rows, shards, strict=True)]


def _row(node: redlock_async.NodeStatus) -> Row:
    return (
        Span(sanitize(node.label)),
        state(node),
        Span("" if node.latency is None else f"{node.latency * 1000:.1f} ms"),
        Span("" if node.data_age is None else format_seconds(node.data_age)),
        Span("" if node.clock_offset is None else offset(node.clock_offset)),
        Span(sanitize(node.version or "")),
        Span(sanitize(node.persistence or "")),
        Span(sanitize(node.eviction or "")),
        Span("" if not node.up else "pushes" if node.tracking else "polled"),
    )


def offset(seconds: float) -> str:
    """Return the offset of a clock from ours."""
    milliseconds = round(seconds * 1000)
    if not milliseconds:
        return "0 ms"
    return f"{milliseconds:+} ms" if abs(milliseconds) < 1000 else f"{seconds:+.1f} s"  # noqa: PLR2004 - a second


def summary(nodes: Sequence[redlock_async.NodeStatus], configured: int) -> Line:
    """Return whether there is a quorum, and how many more nodes may fail."""
    votes, quorum = count_votes(nodes, configured)
    total = len(by_node(nodes))
    text = f"{votes} of {total} nodes vote, {quorum} are needed"
    if votes < quorum:
        return [Span(f"{text}: no lock can be acquired or renewed", "alarm")]
    spare = votes - quorum
    style = "green" if votes == total else "warning"
    more = "no more may fail" if not spare else f"{spare} more may fail"
    return [Span(f"{text}: {more}", style)]


def sparkline(values: Sequence[float | None], highest: float, *, plain: bool) -> str:
    """Plot each value in one column, in proportion to the highest; x for a missing value."""
    levels = PLAIN_LEVELS if plain else LEVELS
    full = len(levels) - 1
    return "".join("x" if value is None else levels[max(round(value / highest * full), 1)] for value in values)


def as_json(nodes: Sequence[redlock_async.NodeStatus], configured: int) -> dict[str, object]:
    """Return all fields; durations are in seconds."""
    votes, quorum = count_votes(nodes, configured)
    return {
        "nodes": [asdict(node) for node in nodes],
        "voting": votes,
        "quorum": quorum,
        "has_quorum": votes >= quorum,
    }
