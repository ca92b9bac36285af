"""A table made to fit a width: what can be missed goes first, then what can be cut. It knows no contents."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ._terminal import Line, Span, columns_of, cut

GAP = 2
NARROWEST = 24


class Column(NamedTuple):
    """How the cells below a title are shown."""

    title: str
    right: bool = False
    least: int | None = None
    """To how many columns of the terminal it may be cut; None: to none."""
    spare: int = 0
    """Of those that may be left out, the ones with the largest number are left out first; 0: never."""


Row = Sequence[Span]


def table(columns: Sequence[Column], rows: Sequence[Row], width: int | None) -> Iterator[Line]:
    """A line for the titles and one for each row; with a width, at least the most important columns within it."""
    natural = [
        max(columns_of(text) for text in (column.title, *(row[number].text for row in rows)))
        for number, column in enumerate(columns)
    ]
    shown = [number for number in range(len(columns)) if any(row[number].text for row in rows)]
    if width is not None:
        shown = _most(columns, natural, shown, width)
        natural = _cut(columns, natural, shown, width)
    heads = [Span(columns[number].title, "bold") for number in shown]
    yield _line(columns, natural, shown, heads)
    for row in rows:
        yield _line(columns, natural, shown, [row[number] for number in shown])


def wrapped(text: str, style: str, indent: int, width: int | None) -> Iterator[Line]:
    """A paragraph below a row; in a pipe it is one line."""
    room = None if width is None else max(width - indent, NARROWEST)
    # Not at hyphens: what is to be typed has them.
    for line in [text] if room is None else textwrap.wrap(text, room, break_on_hyphens=False) or [""]:
        yield [Span(" " * indent), Span(line, style)]


def _needed(widths: Sequence[int], shown: Sequence[int]) -> int:
    return sum(widths[number] for number in shown) + GAP * (len(shown) - 1)


def _most(columns: Sequence[Column], natural: Sequence[int], shown: list[int], width: int) -> list[int]:
    """As many columns as fit when those that may be cut are."""
    least = [
        size if column.least is None else min(size, max(column.least, len(column.title)))
        for column, size in zip(columns, natural, strict=True)
    ]
    for number in sorted(shown, key=lambda number: -columns[number].spare):
        if _needed(least, shown) <= width or not columns[number].spare:
            break
        shown = [other for other in shown if other != number]
    return shown


def _cut(columns: Sequence[Column], natural: Sequence[int], shown: Sequence[int], width: int) -> list[int]:
    """The widths, the widest cut first."""
    widths = list(natural)
    while _needed(widths, shown) > width:
        wide = [
            number for number in shown
            if (least := columns[number].least) is not None and widths[number] > max(least, len(columns[number].title))
        ]  # fmt: skip
        if not wide:
            break
        widths[max(wide, key=lambda number: widths[number])] -= 1
    return widths


def _line(columns: Sequence[Column], widths: Sequence[int], shown: Sequence[int], cells: Sequence[Span]) -> Line:
    line: list[Span] = []
    for number, cell in zip(shown, cells, strict=True):
        size = widths[number]
        text = cell.text if columns_of(cell.text) <= size else cut(cell.text, size - 1) + "~"
        space = " " * (size - columns_of(text))
        padded = space + text if columns[number].right else text + space
        line += [Span(" " * GAP if line else ""), Span(padded, cell.style)]
    return line
