"""Locks as text for people and as JSON for programs; it asks nobody."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict

import redlock_async

from ._table import Column, Row, table, wrapped
from ._terminal import Line, Span, harmless

COLUMNS = (
    Column("name", least=12),
    Column("kind"),
    Column("state"),
    Column("holder", least=10),
    Column("votes", right=True),
    Column("left", right=True),
    Column("waiting", right=True, spare=1),
    Column("fence", right=True, spare=2),
)
STYLES = {"held": "green", "partial": "yellow", "orphan": "red", "waiting": "yellow", "open": "green", "closed": ""}
DAY, HOUR, MINUTE = 86_400, 3_600, 60
TITLE = 12
"""Columns before each thing that is said of a lock."""


def listed(records: Sequence[redlock_async.LockRecord], width: int | None) -> Iterator[Line]:
    """A row each."""
    return table(COLUMNS, [_row(each) for each in records], width)


def explained(records: Sequence[redlock_async.LockRecord], width: int | None) -> Iterator[Line]:
    """All there is to say of one name."""
    for number, each in enumerate(records):
        if number:
            yield [Span("")]
        yield [Span(harmless(each.name), "bold"), Span(f"  {kind(each)}  "), Span(each.state, STYLES[each.state])]
        for title, text in _facts(each):
            (_, start), *others = wrapped(text, "", TITLE, width)
            yield [Span(f"  {title:<{TITLE - 2}}"), start]
            yield from others


def _facts(each: redlock_async.LockRecord) -> Iterator[tuple[str, str]]:
    if each.kind != "latch" and each.token is not None:
        yield "holder", holder(each)
        yield "token", harmless(each.token)
    if each.missing is not None:
        yield "missing", f"{each.missing} events"
    if each.votes:
        yield "votes", f"{votes(each)}, {each.needed} are needed: {', '.join(each.on)}"
    if each.remaining is not None:
        yield "left", "it has no expiry, and stays until it is freed" if math.isinf(each.remaining) else left(each)
    if each.fence is not None:
        yield "fence", str(each.fence)
    if len(each.names) > 1:
        yield "with", ", ".join(harmless(name) for name in each.names if name != each.name)
    if each.waiting:
        yield "waiting", ", ".join(map(_label, each.waiting))


def _row(each: redlock_async.LockRecord) -> Row:
    return (
        Span(harmless(each.name)),
        Span(kind(each)),
        Span(each.state if each.missing in {None, 0} else f"{each.missing} missing", STYLES[each.state]),
        Span("" if each.token is None else holder(each)),
        Span(votes(each)),
        Span("" if each.remaining is None else left(each)),
        Span(str(len(each.waiting)) if each.waiting else ""),
        Span("" if each.fence is None else str(each.fence)),
    )


def kind(each: redlock_async.LockRecord) -> str:
    """In a word or two."""
    if each.kind == "semaphore":
        return f"slot {each.slot}" if each.permits is None else f"slot {each.slot} of {each.permits}"
    return f"{len(each.names)} names" if len(each.names) > 1 else each.kind


def holder(each: redlock_async.LockRecord) -> str:
    """Whose it is."""
    return _label(each.owner)


def _label(owner: str | None) -> str:
    return "(another library)" if owner is None else harmless(owner)


def votes(each: redlock_async.LockRecord) -> str:
    """Of all nodes."""
    return f"{each.votes}/{each.nodes}"


def left(each: redlock_async.LockRecord) -> str:
    """Until it runs out."""
    return "" if each.remaining is None else span_of(each.remaining)


def span_of(seconds: float) -> str:
    """In the unit that suits it."""
    if math.isinf(seconds):
        return "never"
    for unit, size in (("d", DAY), ("h", HOUR), ("min", MINUTE)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.1f} s"


def as_json(each: redlock_async.LockRecord) -> dict[str, object]:
    """All of it; durations are seconds."""
    endless = each.remaining is not None and math.isinf(each.remaining)
    return {**asdict(each), "remaining": None if endless else each.remaining, "expires": not endless}
