"""Masters as text for people and as JSON for programs; it asks none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict

import redlock_async

from ._lock_view import span_of
from ._table import GAP, Column, Row, table, wrapped
from ._terminal import Line, Span, columns_of, harmless
from ._words import trouble

COLUMNS = (
    Column("master", least=15),
    Column("state"),
    Column("latency", right=True),
    Column("age", right=True, spare=2),
    Column("clock", right=True, spare=3),
    Column("version", least=9, spare=4),
    Column("persistence", spare=5),
    Column("eviction", least=9, spare=6),
    Column("wakes", spare=7),
)
LEVELS = " ▁▂▃▄▅▆▇█"
PLAIN_LEVELS = " .,-=+*#@"
HISTORY = "latency before"
SCALE = 0.002
"""Seconds that the highest bar of a history stands for, at least."""

History = Mapping[str, Sequence[float | None]]


def needed(nodes: Sequence[redlock_async.NodeStatus]) -> int:
    """A majority of all."""
    return len(nodes) // 2 + 1


def voting(nodes: Sequence[redlock_async.NodeStatus]) -> int:
    """Those whose votes count now."""
    return sum(node.votes for node in nodes)


def state(node: redlock_async.NodeStatus) -> Span:
    """In a word or two."""
    if node.votes:
        return Span("votes", "green")
    return Span("no vote", "yellow") if node.up else Span("down", "red")


def why_not(node: redlock_async.NodeStatus) -> str:
    """What keeps that master from voting, in few words."""
    return harmless(trouble(node.error or "")) or ("does not vote" if node.up else "does not answer")


def masters(nodes: Sequence[redlock_async.NodeStatus], width: int | None) -> Iterator[Line]:
    """A row each, and below the table what is wrong with those that do not vote."""
    yield from table(COLUMNS, [_row(node) for node in nodes], width)
    yield from _wrong(nodes, width)


def with_history(
    nodes: Sequence[redlock_async.NodeStatus], width: int, history: History, *, plain: bool
) -> Iterator[Line]:
    """The same with what latencies were, in the room that is left, of which some is kept for them."""
    rows = list(table(COLUMNS, [_row(node) for node in nodes], width - len(HISTORY) - GAP))
    room = width - sum(columns_of(span.text) for span in rows[0]) - GAP
    shown = [history.get(node.label, ())[-max(room, 0) :] for node in nodes] if room >= len(HISTORY) else []
    # One scale for all: the one that is slow stands out, and what is quick enough for anybody stays low.
    most = max([SCALE, *(value for values in shown for value in values if value is not None)])
    drawn = [Span(HISTORY, "bold"), *(Span(sparkline(values, most, plain=plain), "cyan") for values in shown)]
    for number, row in enumerate(rows):
        yield [*row, Span(" " * GAP), drawn[number]] if shown else row
    yield from _wrong(nodes, width)


def _wrong(nodes: Sequence[redlock_async.NodeStatus], width: int | None) -> Iterator[Line]:
    for node in nodes:
        if not node.votes:
            yield from wrapped(f"{node.label}: {why_not(node)}", state(node).style, GAP, width)


def _row(node: redlock_async.NodeStatus) -> Row:
    return (
        Span(harmless(node.label)),
        state(node),
        Span("" if node.latency is None else f"{node.latency * 1000:.1f} ms"),
        Span("" if node.age is None else span_of(node.age)),
        Span("" if node.clock_offset is None else offset(node.clock_offset)),
        Span(harmless(node.version or "")),
        Span(harmless(node.persistence or "")),
        Span(harmless(node.eviction or "")),
        Span("" if not node.up else "pushes" if node.tracking else "polled"),
    )


def offset(seconds: float) -> str:
    """A clock's, against ours."""
    milliseconds = round(seconds * 1000)
    if not milliseconds:
        return "0 ms"
    return f"{milliseconds:+} ms" if abs(milliseconds) < 1000 else f"{seconds:+.1f} s"  # noqa: PLR2004 - a second


def summary(nodes: Sequence[redlock_async.NodeStatus]) -> Line:
    """Whether there is a quorum, and how far it is from being lost."""
    votes, need = voting(nodes), needed(nodes)
    text = f"{votes} of {len(nodes)} masters vote, {need} are needed"
    if votes < need:
        return [Span(f"{text}: no lock can be taken or renewed", "alarm")]
    spare = votes - need
    style = "green" if votes == len(nodes) else "yellow"
    more = "no more may fail" if not spare else f"{spare} more may fail"
    return [Span(f"{text}: {more}", style)]


def sparkline(values: Sequence[float | None], most: float, *, plain: bool) -> str:
    """One column each, in proportion to the most there can be; x where there is none."""
    levels = PLAIN_LEVELS if plain else LEVELS
    full = len(levels) - 1
    return "".join("x" if value is None else levels[max(round(value / most * full), 1)] for value in values)


def as_json(nodes: Sequence[redlock_async.NodeStatus]) -> dict[str, object]:
    """All of it; durations are seconds."""
    return {
        "nodes": [asdict(node) for node in nodes],
        "voting": voting(nodes),
        "needed": needed(nodes),
        "quorum": voting(nodes) >= needed(nodes),
    }
