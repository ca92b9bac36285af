"""Fit tables and paragraphs into a width: first drop the optional columns, then shorten the others."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ._terminal import Line, Span, display_width, truncate

GAP = 2
MIN_WIDTH = 24
SPACE_BEFORE_UNIT = re.compile(r"(?<=\d) (?=(?:s|ms|min|h|d)\b)")


class Column(NamedTuple):
    """How a column is shown."""

    title: str
    right: bool = False
    min_width: int | None = None
    """Its cells may be shortened to this width; None: they are never shortened."""
    drop: int = 0
    """Columns with larger numbers are dropped first if the table is too wide; 0: never dropped."""


Row = Sequence[Span]


def table(columns: Sequence[Column], rows: Sequence[Row], width: int | None) -> Iterator[Line]:
    """Yield a line of titles and a line for each row, fitted into the width if there is one."""
    natural = [
        max(display_width(text) for text in (column.title, *(row[number].text for row in rows)))
        for number, column in enumerate(columns)
    ]
    shown = [number for number in range(len(columns)) if any(row[number].text for row in rows)]
    if width is not None:
        shown = _without_optional(columns, natural, shown, width)
        natural = _shorten(columns, natural, shown, width)
    heads = [Span(columns[number].title, "bold") for number in shown]
    yield _line(columns, natural, shown, heads)
    for row in rows:
        yield _line(columns, natural, shown, [row[number] for number in shown])


def paragraph(text: str, style: str, indent: int, width: int | None) -> Iterator[Line]:
    """Yield the lines of an indented paragraph; without a width it is one line."""
    room = None if width is None else max(width - indent, MIN_WIDTH)
    for line in [text] if room is None else wrap(text, room):
        yield [Span(" " * indent), Span(line, style)]


def wrap(text: str, width: int) -> list[str]:
    """Break a paragraph into lines between words.

    Never break at a hyphen, because commands and options contain them, or between a number and its unit.
    """
    lines = textwrap.wrap(SPACE_BEFORE_UNIT.sub("\N{NO-BREAK SPACE}", text), width, break_on_hyphens=False)
    return [line.replace("\N{NO-BREAK SPACE}", " ") for line in lines] or [""]


def _total(widths: Sequence[int], shown: Sequence[int]) -> int:
    return sum(widths[number] for number in shown) + GAP * (len(shown) - 1)


def _without_optional(columns: Sequence[Column], natural: Sequence[int], shown: list[int], width: int) -> list[int]:
    """Drop optional columns until the others fit at their minimum widths."""
    minimum = [
        size if column.min_width is None else min(size, max(column.min_width, len(column.title)))
        for column, size in zip(columns, natural, strict=True)
    ]
    for number in sorted(shown, key=lambda number: -columns[number].drop):
        if _total(minimum, shown) <= width or not columns[number].drop:
            break
        shown = [other for other in shown if other != number]
    return shown


def _shorten(columns: Sequence[Column], natural: Sequence[int], shown: Sequence[int], width: int) -> list[int]:
    """Reduce the widths to fit, always the widest column first."""
    widths = list(natural)
    while _total(widths, shown) > width:
        wide = [number for number in shown if _can_shrink(columns[number], widths[number])]
        if not wide:
            break
        widths[max(wide, key=lambda number: widths[number])] -= 1
    return widths


def _can_shrink(column: Column, width: int) -> bool:
    return column.min_width is not None and width > max(column.min_width, len(column.title))


def _line(columns: Sequence[Column], widths: Sequence[int], shown: Sequence[int], cells: Sequence[Span]) -> Line:
    line: list[Span] = []
    for number, cell in zip(shown, cells, strict=True):
        size = widths[number]
        text = cell.text if display_width(cell.text) <= size else truncate(cell.text, size - 1) + "~"
        space = " " * (size - display_width(text))
        padded = space + text if columns[number].right else text + space
        line += [Span(" " * GAP if line else ""), Span(padded, cell.style)]
    return line
