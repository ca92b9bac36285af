"""Format locks as text for people and as JSON for programs; this module sends no commands."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict

import redlock_async

from ._table import Column, Row, paragraph, table
from ._terminal import Line, Span, sanitize

COLUMNS = (
    Column("name", min_width=12),
    Column("kind"),
    Column("state"),
    Column("holder", min_width=10),
    Column("votes", right=True),
    Column("left", right=True),
    Column("waiting", right=True, drop=1),
    Column("fence", right=True, drop=2),
)
STYLES = {
    "held": "green",
    "expired": "warning",
    "partial": "warning",
    "orphan": "red",
    "waiting": "warning",
    "open": "green",
    "closed": "",
    "malformed": "red",
}
DAY, HOUR, MINUTE = 86_400, 3_600, 60
TITLE_WIDTH = 12
"""Columns before each fact about a lock."""


def lock_table(records: Sequence[redlock_async.LockRecord], width: int | None) -> Iterator[Line]:
    """Return the lines of a table with a row for each record."""
    return table(COLUMNS, [_row(record) for record in records], width)


def lock_details(records: Sequence[redlock_async.LockRecord], width: int | None) -> Iterator[Line]:
    """Yield the details of the records of one name."""
    for number, record in enumerate(records):
        if number:
            yield [Span("")]
        yield [
            Span(sanitize(record.name), "bold"),
            Span(f"  {kind(record)}  "),
            Span(record.state, STYLES[record.state]),
        ]
        for title, text in _facts(record):
            (_, start), *others = paragraph(text, "", TITLE_WIDTH, width)
            yield [Span(f"  {title:<{TITLE_WIDTH - 2}}"), start]
            yield from others


def _facts(record: redlock_async.LockRecord) -> Iterator[tuple[str, str]]:
    if record.kind != "latch" and record.token is not None:
        yield "holder", holder(record)
        yield "token", sanitize(record.token)
    if record.events_remaining is not None:
        yield "missing", f"{record.events_remaining} events"
    if record.votes:
        yield "votes", f"{votes(record)}, {record.quorum} are needed: {', '.join(record.node_labels)}"
    if record.remaining is not None:
        yield (
            "left",
            "no expiry: stays until it is force-released" if math.isinf(record.remaining) else _left(record),
        )
    if record.fence is not None:
        yield "fence", str(record.fence)
    if len(record.names) > 1:
        yield "with", ", ".join(sanitize(name) for name in record.names if name != record.name)
    if record.waiting:
        yield "waiting", ", ".join(map(_label, record.waiting))


def _left(record: redlock_async.LockRecord) -> str:
    if record.state == "expired":
        return f"nobody holds it any more; it can be taken in {time_left(record)} (takeover_delay)"
    return time_left(record)


def _row(record: redlock_async.LockRecord) -> Row:
    return (
        Span(sanitize(record.name)),
        Span(kind(record)),
        Span(
            record.state if record.events_remaining in {None, 0} else f"{record.events_remaining} missing",
            STYLES[record.state],
        ),
        Span("" if record.token is None else holder(record)),
        Span(votes(record)),
        Span("" if record.remaining is None else time_left(record)),
        Span(str(len(record.waiting)) if record.waiting else ""),
        Span("" if record.fence is None else str(record.fence)),
    )


def kind(record: redlock_async.LockRecord) -> str:
    """Return the kind in a word or two."""
    if record.kind == "semaphore":
        return f"slot {record.slot}" if record.permits is None else f"slot {record.slot} of {record.permits}"
    return f"{len(record.names)} names" if len(record.names) > 1 else record.kind


def holder(record: redlock_async.LockRecord) -> str:
    """Return the label of the holder."""
    return _label(record.owner)


def _label(owner: str | None) -> str:
    return "(another library)" if owner is None else sanitize(owner)


def votes(record: redlock_async.LockRecord) -> str:
    """Return the votes, out of all nodes."""
    return f"{record.votes}/{record.node_count}"


def time_left(record: redlock_async.LockRecord) -> str:
    """Return the time until the lock expires."""
    return "" if record.remaining is None else format_seconds(record.remaining)


def format_seconds(seconds: float) -> str:
    """Return a duration in the most readable unit."""
    if math.isinf(seconds):
        return "never"
    for unit, size in (("d", DAY), ("h", HOUR), ("min", MINUTE)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.1f} s"


def as_json(record: redlock_async.LockRecord) -> dict[str, object]:
    """Return all fields; durations are in seconds."""
    never_expires = record.remaining is not None and math.isinf(record.remaining)
    return {**asdict(record), "remaining": None if never_expires else record.remaining, "expires": not never_expires}
