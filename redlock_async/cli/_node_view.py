"""Masters as text for people and as JSON for programs; it asks none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict

from redlock_async import NodeStatus

from ._lock_view import span_of
from ._table import Column, Row, table, wrapped
from ._terminal import Line, Span, harmless

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
    Column("latency before", spare=1),
)
LEVELS = " ▁▂▃▄▅▆▇█"
PLAIN_LEVELS = " .,-=+*#@"
INDENT = 4
FEWEST = 8
"""Columns of a history below which it shows nothing."""

History = Mapping[str, Sequence[float | None]]


def needed(nodes: Sequence[NodeStatus]) -> int:
    """A majority of all."""
    return len(nodes) // 2 + 1


def voting(nodes: Sequence[NodeStatus]) -> int:
    """Those whose votes count now."""
    return sum(node.votes for node in nodes)


def state(node: NodeStatus) -> Span:
    """In a word or two."""
    if node.votes:
        return Span("votes", "green")
    return Span("no vote", "yellow") if node.up else Span("down", "red")


def why_not(node: NodeStatus) -> str:
    """What keeps that master from voting, in few words."""
    error = node.error or ""
    if "Connect call failed" in error or "Connection refused" in error:  # asyncio's own words are longer
        return "cannot be reached"
    return harmless(error) or ("does not vote" if node.up else "does not answer")


def masters(
    nodes: Sequence[NodeStatus], width: int | None, *, history: History | None = None, plain: bool = False
) -> Iterator[Line]:
    """A row each, and below the table what is wrong with those that do not vote."""
    rows = [_row(node) for node in nodes]
    drawn = [""] * len(nodes)
    if history is not None and width is not None:
        (head, *_) = table(COLUMNS, rows, width)
        room = width - sum(len(span.text) for span in head) - 2
        if room >= max(FEWEST, len(COLUMNS[-1].title)):
            drawn = [sparkline(history.get(node.label, ())[-room:], plain=plain).ljust(room) for node in nodes]
    rows = [(*row[:-1], Span(text, "cyan")) for row, text in zip(rows, drawn, strict=True)]
    yield from table(COLUMNS, rows, width)
    for node in nodes:
        if not node.votes:
            yield from wrapped(f"{node.label}: {why_not(node)}", state(node).style, 2, width)


def _row(node: NodeStatus) -> Row:
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
        Span(""),
    )


def offset(seconds: float) -> str:
    """A clock's, against ours."""
    milliseconds = round(seconds * 1000)
    if not milliseconds:
        return "0 ms"
    return f"{milliseconds:+} ms" if abs(milliseconds) < 1000 else f"{seconds:+.1f} s"  # noqa: PLR2004 - a second


def summary(nodes: Sequence[NodeStatus]) -> Line:
    """Whether there is a quorum, and how far it is from being lost."""
    votes, need = voting(nodes), needed(nodes)
    text = f"{votes} of {len(nodes)} masters vote, {need} are needed"
    if votes < need:
        return [Span(f"{text}: no lock can be taken or renewed", "alarm")]
    spare = votes - need
    style = "green" if votes == len(nodes) else "yellow"
    more = "no more may fail" if not spare else f"{spare} more may fail"
    return [Span(f"{text}: {more}", style)]


def sparkline(values: Sequence[float | None], *, plain: bool) -> str:
    """One column each, in proportion to the largest; x where there is none."""
    levels = PLAIN_LEVELS if plain else LEVELS
    most = max((value for value in values if value is not None), default=0.0)
    full = len(levels) - 1
    return "".join(
        "x" if value is None else levels[max(round(value / most * full), 1) if most else 1] for value in values
    )


def as_json(nodes: Sequence[NodeStatus]) -> dict[str, object]:
    """All of it; durations are seconds."""
    return {
        "nodes": [asdict(node) for node in nodes],
        "voting": voting(nodes),
        "needed": needed(nodes),
        "quorum": voting(nodes) >= needed(nodes),
    }
