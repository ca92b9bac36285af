"""Plots as SVG text. The page styles them through classes, so that they work in light and dark mode.

All plots are narrow, so that their text stays readable on a phone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import count

Point = tuple[float, float]

WIDTH, HEIGHT = 360, 250
LEFT, RIGHT, TOP, BOTTOM = 60, 14, 12, 40
LABELS = 90
"""Space to the right for labels at the ends of lines."""

LINE = 12
"""Height of a line of text."""

DASHES = ("2 2.5", "", "7 3", "8 3 2 3", "12 3", "4 2", "1 3", "10 3 2 3 2 3", "5 1.5 1 1.5", "15 3")
MARKERS = 10
"""Kinds of markers that `marker` can draw."""

MOST_POINTS = 240
"""Maximum number of points of a line, more than a screen shows."""

MOST_STEPS = 6
"""Maximum number of steps of a linear axis."""

MOST_TICKS = 5
DENSEST = (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8)
DENSITIES = (DENSEST, (1, 2, 3, 5), (1, 2, 5), (1, 3), (1,))
"""Positions of ticks within a power of ten, from sparse to dense or the reverse."""

_numbers = count()


@dataclass(frozen=True, slots=True)
class Style:
    """How one contender differs from another: colour, and without colour, dash and marker."""

    colour: str
    """A CSS class of the page."""
    dash: int
    mark: int


@dataclass(frozen=True, slots=True)
class Line:
    """One contender in a plot."""

    name: str
    style: Style
    points: Sequence[Point]
    spread: Sequence[Point] = ()
    """The lowest and highest round for each point, if they are shown."""


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis with its ends and ticks."""

    label: str
    low: float
    high: float
    log: bool
    ticks: Sequence[float]
    show: Callable[[float], str]

    def part(self, value: float) -> float:
        """Return the position of that value, clamped to 0 to 1."""
        if self.log:
            low, high, value = math.log10(self.low), math.log10(self.high), math.log10(max(value, self.low))
        else:
            low, high = self.low, self.high
        return min(max((value - low) / (high - low), 0.0), 1.0)


def axis(
    label: str, values: Sequence[float], show: Callable[[float], str], *, log: bool = False, at: Sequence[float] = ()
) -> Axis:
    """Build an axis for those values. A linear axis starts at zero. `at` are the ticks, if known."""
    if log:
        return _log_axis(label, [value for value in values if value > 0] or [1.0], show, at)
    high = max([*values, *at], default=0.0) or 1.0
    step = _step(high)
    last = math.ceil(high / step - 1e-9) * step
    ticks = at or [i * step for i in range(round(last / step) + 1)]
    return Axis(label, 0.0, last, log=False, ticks=ticks, show=show)


def _step(high: float) -> float:
    """Return a round number that divides the range into about five steps."""
    power = 10.0 ** math.floor(math.log10(high / 5))
    return next((factor * power for factor in (1, 2, 5) if high / (factor * power) <= MOST_STEPS), 10 * power)


def _log_axis(label: str, values: Sequence[float], show: Callable[[float], str], at: Sequence[float]) -> Axis:
    """Build an axis from the step below the lowest value to the step above the highest, with as many ticks as fit."""
    steps = _steps(DENSEST)
    low = max((step for step in steps if step <= min(values) * 1.001), default=steps[0])
    high = min((step for step in steps if step >= max(values) * 0.999), default=steps[-1])
    high = max(high, low * 2)
    choices = ([step for step in _steps(of) if low * 0.999 <= step <= high * 1.001] for of in DENSITIES)
    ticks = at or next((choice for choice in choices if 1 < len(choice) <= MOST_TICKS), [low, high])
    return Axis(label, low, high, log=True, ticks=ticks, show=show)


def _steps(factors: Sequence[float]) -> list[float]:
    return [factor * 10.0**power for power in range(-9, 13) for factor in factors]


def lines(
    drawn: Sequence[Line],
    x: Axis,
    y: Axis,
    *,
    title: str,
    desc: str,
    labelled: bool = False,
    marks: int | None = None,
    events: Sequence[tuple[float, str]] = (),
) -> str:
    """Draw a line for each contender.

    `labelled`: write the name at its end; `marks`: number of markers, or one at each point; `events`: labels on the
    x axis.
    """
    canvas = _Canvas(title, desc, right=LABELS if labelled else RIGHT, top=TOP + LINE if events else TOP)
    canvas.axes(x, y)
    canvas.events(x, events)
    for line in drawn:
        canvas.line(line, x, y, marks)
    if labelled:
        canvas.labels([(line, canvas.y(y, line.points[-1][1])) for line in drawn if line.points])
    return canvas.finish()


@dataclass(frozen=True, slots=True)
class Range:
    """One contender in a plot of ranges: two values, the second one worse."""

    name: str
    style: Style
    first: float
    second: float
    words: str
    """The values as text."""


def ranges(rows: Sequence[Range], x: Axis, *, title: str, desc: str) -> str:
    """Draw a row for each contender, with its two values joined."""
    row_height = 26
    canvas = _Canvas(title, desc, left=LABELS, height=TOP + BOTTOM + row_height * len(rows))
    canvas.vertical_grid(x)
    for number, row in enumerate(rows):
        y = TOP + row_height * (number + 0.5)
        left, right = canvas.x(x, row.first), canvas.x(x, row.second)
        canvas.add(f'<g class="{row.style.colour}"><title>{escape(f"{row.name}: {row.words}")}</title>')
        canvas.add(f'<path class="line" d="M{left:.1f} {y:.1f}H{right:.1f}"/>')
        canvas.add(marker(row.style.mark, left, y, 4.5))
        canvas.add(f'<path class="line" d="M{right:.1f} {y - 5:.1f}v10"/></g>')
        canvas.text(LABELS - 8, y + 4, row.name, "end")
    return canvas.finish()


def sample(style: Style) -> str:
    """Draw a sample of that line for a legend."""
    dash = _dash(style)
    return (
        f'<svg class="sample {style.colour}" viewBox="0 0 34 12" width="34" height="12" aria-hidden="true">'
        f'<path class="line"{dash} d="M1 6H33"/>{marker(style.mark, 17, 6, 4)}</svg>'
    )


def marker(kind: int, x: float, y: float, r: float) -> str:
    """Draw one of ten shapes around that point."""
    if kind % MARKERS in {0, 1}:
        return f'<circle class="{_fill(kind % 2 == 0)}" cx="{x:.1f}" cy="{y:.1f}" r="{r * 0.9:.1f}"/>'
    shapes: dict[int, list[Point]] = {
        2: [(-1, -1), (1, -1), (1, 1), (-1, 1)],
        3: [(-1, -1), (1, -1), (1, 1), (-1, 1)],
        4: [(0, -1.2), (1.1, 0.9), (-1.1, 0.9)],
        5: [(0, -1.2), (1.1, 0.9), (-1.1, 0.9)],
        6: [(0, -1.3), (1.3, 0), (0, 1.3), (-1.3, 0)],
        7: [(0, -1.3), (1.3, 0), (0, 1.3), (-1.3, 0)],
        8: [(0, 1.2), (1.1, -0.9), (-1.1, -0.9)],
        9: [(0, 1.2), (1.1, -0.9), (-1.1, -0.9)],
    }
    size = r * 0.85
    corners = " ".join(f"{x + dx * size:.1f},{y + dy * size:.1f}" for dx, dy in shapes[kind % MARKERS])
    return f'<polygon class="{_fill(kind % 2 == 0)}" points="{corners}"/>'


def _fill(full: bool) -> str:  # noqa: FBT001 - a private choice of two
    return "full" if full else "hollow"


def _dash(style: Style) -> str:
    dash = DASHES[style.dash % len(DASHES)]
    return f' stroke-dasharray="{dash}"' if dash else ""


def spaced(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Move the positions as little as possible so that they keep that distance and stay between the ends."""
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    placed = list(wanted)
    below = low - gap
    for i in order:
        below = placed[i] = max(wanted[i], below + gap)
    above = high + gap
    for i in reversed(order):
        above = placed[i] = min(placed[i], above - gap)
    return placed


def thinned(points: Sequence[Point], most: int = MOST_POINTS) -> list[Point]:
    """Reduce the number of points, keeping the lowest and the highest of each section."""
    if len(points) <= most:
        return list(points)
    stretch = math.ceil(len(points) / (most / 2))
    kept: list[Point] = []
    for start in range(0, len(points), stretch):
        part = points[start : start + stretch]
        kept += sorted({min(part, key=lambda point: point[1]), max(part, key=lambda point: point[1])})
    return kept


class _Canvas:
    """Builds the SVG text."""

    def __init__(
        self,
        title: str,
        desc: str,
        *,
        left: float = LEFT,
        right: float = RIGHT,
        top: float = TOP,
        height: float = HEIGHT,
    ) -> None:
        self._left, self._right = left, WIDTH - right
        self._top, self._bottom = top, height - BOTTOM
        name = f"plot{next(_numbers)}"
        self._parts = [
            f'<svg class="plot" viewBox="0 0 {WIDTH} {height:g}" role="img" aria-labelledby="{name} {name}d">',
            f'<title id="{name}">{escape(title)}</title><desc id="{name}d">{escape(desc)}</desc>',
        ]

    def add(self, part: str) -> None:
        self._parts.append(part)

    def text(self, x: float, y: float, text: str, anchor: str, more: str = "") -> None:
        self.add(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{escape(text)}</text>')

    def finish(self) -> str:
        return "".join([*self._parts, "</svg>"])

    def x(self, axis: Axis, value: float) -> float:
        return self._left + axis.part(value) * (self._right - self._left)

    def y(self, axis: Axis, value: float) -> float:
        return self._bottom - axis.part(value) * (self._bottom - self._top)

    def axes(self, x: Axis, y: Axis) -> None:
        self.vertical_grid(x)
        for tick in y.ticks:
            at = self.y(y, tick)
            self.add(f'<path class="grid" d="M{self._left} {at:.1f}H{self._right}"/>')
            self.text(self._left - 6, at + 4, y.show(tick), "end")
        middle = (self._top + self._bottom) / 2
        self.text(10, middle, y.label, "middle", f' transform="rotate(-90 10 {middle:.1f})"')

    def vertical_grid(self, x: Axis) -> None:
        for tick in x.ticks:
            at = self.x(x, tick)
            self.add(f'<path class="grid" d="M{at:.1f} {self._top}V{self._bottom}"/>')
            # The outermost labels would be cut off at the edge of the picture.
            anchor = "end" if at > WIDTH - RIGHT - 1 else "middle"
            self.text(at + (RIGHT - 2 if anchor == "end" else 0), self._bottom + 15, x.show(tick), anchor)
        self.text((self._left + self._right) / 2, self._bottom + 33, x.label, "middle")

    def events(self, x: Axis, events: Sequence[tuple[float, str]]) -> None:
        for at, what in events:
            place = self.x(x, at)
            self.add(f'<path class="event" d="M{place:.1f} {self._top}V{self._bottom}"/>')
            self.text(place, self._top - 4, what, "middle")

    def line(self, line: Line, x: Axis, y: Axis, marks: int | None) -> None:
        places = [(self.x(x, a), self.y(y, b)) for a, b in line.points]
        if not places:
            return
        self.add(f'<g class="{line.style.colour}"><title>{escape(line.name)}</title>')
        for (at, _), (low, high) in zip(places, line.spread, strict=False):
            self.add(f'<path class="spread" d="M{at:.1f} {self.y(y, low):.1f}V{self.y(y, high):.1f}"/>')
        path = "L".join(f"{a:.1f} {b:.1f}" for a, b in places)
        self.add(f'<path class="line"{_dash(line.style)} d="M{path}"/>')
        for number in _some(len(places), marks, line.style.mark):
            self.add(marker(line.style.mark, *places[number], 3.5))
        self.add("</g>")

    def labels(self, ends: Sequence[tuple[Line, float]]) -> None:
        """Write names at the lines' ends, moved apart, with a marker where a name is away from its line."""
        placed = spaced([y for _, y in ends], LINE, self._top + 2, self._bottom)
        for (line, _), y in zip(ends, placed, strict=True):
            self.add(f'<g class="{line.style.colour}">{marker(line.style.mark, self._right + 9, y, 3.2)}</g>')
            self.text(self._right + 16, y + 4, line.name, "start")


def _some(points: int, marks: int | None, offset: int) -> Iterator[int]:
    """Yield the points of a line that get a marker, at different places on each line."""
    if marks is None or points <= marks:
        yield from range(points)
        return
    for number in range(marks):
        yield min(int(points * (number + 0.3 + 0.05 * (offset % MARKERS)) / marks), points - 1)
