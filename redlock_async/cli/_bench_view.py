"""What `bench` has measured, as text for people; it measures nothing and prints nothing."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence

from ._bench_load import Latencies, NodeTrips, Rate
from ._node_view import why_not
from ._terminal import RESET, STYLES, bar

MARGIN = 2
NARROWEST, WIDEST = 24, 160
ROWS = 5
LEVELS = " ▁▂▃▄▅▆▇█"
PLAIN_LEVELS = " ...:::##"  # as many, in ASCII
EACH_BIN = 4
"""Values for each column of a histogram, on average: with fewer there is no shape to see."""

FEWEST_BINS = 8


class Text:
    """Sections of lines, made to fit."""

    def __init__(self, width: int, *, plain: bool, colours: bool) -> None:
        self._width = min(max(width - 1, NARROWEST), WIDEST)
        self._plain = plain
        self._colours = colours

    def nodes(self, found: Sequence[NodeTrips]) -> Iterator[str]:
        """One line a master."""
        label = max([len(node.status.label) for node in found] + [len("master")])
        version = max([len(node.status.version or "") for node in found] + [len("version")])
        yield self._style("bold", f"{'master':<{label}}  {'version':<{version}}  {'round trip p50':>14}  {'p99':>8}")
        for node in found:
            yield from self._node(node, label, version)

    def _node(self, node: NodeTrips, label: int, version: int) -> Iterator[str]:
        status = node.status
        start = f"{status.label:<{label}}  {status.version or '':<{version}}  "
        trips = Latencies.of(node.took) if node.took else None
        p50, p99 = ("-", "-") if trips is None else (duration(trips.at(0.5)), duration(trips.at(0.99)))
        start += f"{p50:>14}  {p99:>8}"
        if status.votes:
            yield start.rstrip()
            return
        yield f"{start}  {self._style('red', 'no vote' if status.up else 'down')}"
        for line in textwrap.wrap(why_not(status), self._width - 2 * MARGIN):
            yield " " * 2 * MARGIN + self._style("red", line)

    def latencies(self, title: str, what: str, latencies: Latencies) -> Iterator[str]:
        """A line of figures, and their histogram."""
        figures = f"p50 {duration(latencies.at(0.5))}   p99 {duration(latencies.at(0.99))}"
        yield ""
        yield f"{self._style('bold', title)}   {figures}   ({len(latencies.ranked):,} {what})"
        yield from self._histogram(latencies)

    def tasks(self, rates: Sequence[Rate]) -> Iterator[str]:
        """A bar for each number of tasks."""
        yield ""
        yield self._style("bold", "tasks    pairs/s   acquire and release, each task on a name of its own")
        most = max(rate.per_second for rate in rates)
        for rate in rates:
            part = rate.per_second / most
            drawn = self._bar(part, self._width - 18)
            yield f"{rate.tasks:>5}  {rate.per_second:>9,.0f}  {self._style('cyan', drawn)}"

    def hot(self, rate: Rate) -> Iterator[str]:
        """One figure."""
        yield ""
        title = self._style("bold", f"one name, {rate.tasks} tasks of one client")
        yield f"{title}   {rate.per_second:,.0f} hand-overs/s"

    def _bar(self, part: float, width: int) -> str:
        if self._plain:
            return bar(part, max(width, 1), plain=True).rstrip(".")
        eighths = max(round(part * max(width, 1) * 8), 1)
        return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()

    def _histogram(self, latencies: Latencies) -> Iterator[str]:
        width = self._width - 2 * MARGIN
        bins = min(max(len(latencies.ranked) // EACH_BIN, FEWEST_BINS), width)
        each = width // bins
        scale = Scale(latencies.at(0.0), latencies.at(1.0), bins)
        counts = [0] * bins
        for value in latencies.ranked:
            counts[scale.bin(value)] += 1
        for line in columns(counts, ROWS, PLAIN_LEVELS if self._plain else LEVELS):
            drawn = "".join(level * each for level in line).rstrip()
            yield " " * MARGIN + self._style("cyan", drawn)
        marks = [0, bins * each - 1, *(scale.bin(latencies.at(part)) * each + each // 2 for part in (0.5, 0.99))]
        yield " " * MARGIN + self._axis(bins * each, marks)
        texts = [
            duration(latencies.at(0.0)),
            duration(latencies.at(1.0)),
            f"p50 {duration(latencies.at(0.5))}",
            f"p99 {duration(latencies.at(0.99))}",
        ]
        yield " " * MARGIN + placed(bins * each, list(zip(marks, texts, strict=True)))

    def _axis(self, width: int, marks: Sequence[int]) -> str:
        rule, mark = ("-", "+") if self._plain else ("─", "┴")
        return "".join(mark if column in marks else rule for column in range(width))

    def _style(self, style: str, text: str) -> str:
        if self._plain:
            text = text.encode("ascii", "replace").decode()
        return f"{STYLES[style]}{text}{RESET}" if self._colours and text.strip() else text


class Scale:
    """Logarithmic bins: what is slow is many times what is quick."""

    def __init__(self, lowest: float, highest: float, bins: int) -> None:
        self._low = math.log(max(lowest, 1e-9))
        self._span = max(math.log(max(highest, 1e-9)) - self._low, 1e-6)
        self._bins = bins

    def bin(self, value: float) -> int:
        """The number of the bin that it is in."""
        part = (math.log(max(value, 1e-9)) - self._low) / self._span
        return min(max(int(part * self._bins), 0), self._bins - 1)


def columns(counts: Sequence[int], rows: int, levels: str) -> Iterator[str]:
    """The counts as columns of that many rows, topmost first; what is not 0 is never invisible."""
    full = len(levels) - 1
    most = max(counts)
    heights = [max(round(count / most * rows * full), 1) if count else 0 for count in counts]
    for row in range(rows - 1, -1, -1):
        yield "".join(levels[min(max(height - row * full, 0), full)] for height in heights)


def placed(width: int, texts: Sequence[tuple[int, str]]) -> str:
    """Each text at its column, as near as the edges let it; what would touch an earlier one is left out."""
    line = [" "] * width
    for column, text in texts:
        start = min(max(column - len(text) // 2, 0), width - len(text))
        around = line[max(start - 1, 0) : start + len(text) + 1]
        if start >= 0 and not "".join(around).strip():
            line[start : start + len(text)] = text
    return "".join(line).rstrip()


def duration(seconds: float) -> str:
    """Three digits are more than repeat."""
    if seconds >= 1:
        return f"{seconds:.3g} s" if seconds < 1000 else f"{seconds:,.0f} s"  # noqa: PLR2004 - as three digits go
    milliseconds = seconds * 1000
    if milliseconds >= 100:  # noqa: PLR2004 - as three digits go
        return f"{milliseconds:.0f} ms"
    return f"{milliseconds:.2f} ms" if milliseconds < 10 else f"{milliseconds:.1f} ms"  # noqa: PLR2004 - the same


def as_json(found: Mapping[str, object]) -> dict[str, object]:
    """All of it, for programs; durations are in seconds."""
    return {key: _json(value) for key, value in found.items()}


def _json(value: object) -> object:
    if isinstance(value, Latencies):
        parts = {"min": 0.0, "p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
        return {"n": len(value.ranked)} | {key: value.at(part) for key, part in parts.items()}
    if isinstance(value, Rate):
        return {"tasks": value.tasks, "pairs": value.pairs, "pairs_per_second": value.per_second}
    if isinstance(value, NodeTrips):
        status = value.status
        trips = _json(Latencies.of(value.took)) if value.took else None
        about = {key: getattr(status, key) for key in ("label", "version", "up", "votes", "error")}
        return {**about, "round_trip": trips}
    return [_json(each) for each in value] if isinstance(value, list) else value
