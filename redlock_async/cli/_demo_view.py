"""Show the demo: live on a terminal, as plain lines elsewhere. This module only reads the demo's state."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from typing import Protocol, TextIO

from ._demo_nodes import DemoNode, DemoNodes
from ._demo_record import Record
from ._terminal import Line, Screen, Span, bar

MAX_WIDTH = 110
MESSAGES = 4
LINES_BELOW = 5
"""Lines that are printed below the last frame, including the shell's prompt."""

PROGRESS_EVERY = 1.0
STATE_STYLES = {"up": "green", "down": "alarm", "quarantined": "warning"}
ACTION_STYLES = {"KILLED": "alarm", "FROZEN": "cyan"}


@dataclass(slots=True)
class DemoState:
    """Everything that a view shows."""

    processes: int
    increments: int
    nodes: DemoNodes
    record: Record
    started_at: float = field(default_factory=time.monotonic)
    title: str = ""
    unguarded_done: bool = False
    done: bool = False

    @property
    def total(self) -> int:
        """The correct final value of each counter."""
        return self.processes * self.increments

    @property
    def unguarded_lost(self) -> int:
        """How many unguarded increments were lost."""
        return self.total - self.record.unguarded

    @property
    def elapsed(self) -> float:
        """Seconds since the demo started."""
        return time.monotonic() - self.started_at


class View(Protocol):
    """A way to show the demo."""

    def action(self, text: str) -> None:
        """Show what the demo did."""

    def report(self, text: str) -> None:
        """Show what the library reported."""

    def show(self) -> None:
        """Show the current state; called at regular intervals."""


class PlainView:
    """Appends lines."""

    def __init__(self, out: TextIO | None, state: DemoState) -> None:
        self._out = out
        self._state = state
        self._due_at = 0.0

    def action(self, text: str) -> None:
        """Show what the demo did."""
        self._line(text)

    def report(self, text: str) -> None:
        """Show what the library reported."""
        self._line(f"  library: {text}")

    def show(self) -> None:
        """Show the current state; called at regular intervals."""
        state, now = self._state, time.monotonic()
        if now < self._due_at or state.record.last is None:
            return
        self._due_at = now + PROGRESS_EVERY
        last, rate = state.record.last, state.record.hand_over_rate(now)
        self._line(
            f"  {state.record.guarded} of {state.total}, held by process {last.process}, fence {last.fence}, "
            f"{rate:.0f} hand-overs/s, {state.nodes.voting} of {len(state.nodes.all)} nodes vote"
        )

    def _line(self, text: str) -> None:
        print(f"{self._state.elapsed:5.1f} s  {text}", file=self._out, flush=True)


class LiveView:
    """Redraws a frame in place."""

    def __init__(self, screen: Screen, state: DemoState) -> None:
        self._screen = screen
        self._state = state
        self._messages: deque[Line] = deque(maxlen=MESSAGES)

    def action(self, text: str) -> None:
        """Show what the demo did."""
        self._state.title = text
        self._add(Span("demo     ", "bold"), text)

    def report(self, text: str) -> None:
        """Show what the library reported."""
        self._add(Span("library  ", "cyan"), text)

    def _add(self, source: Span, text: str) -> None:
        self._messages.append((Span(f"{self._state.elapsed:5.1f} s  ", "dim"), source, Span(text)))
        self.show()

    def show(self) -> None:
        """Draw the current frame."""
        columns, rows = self._screen.size
        self._screen.draw(self._frame(min(columns - 1, MAX_WIDTH), rows - 1))

    def _frame(self, width: int, height: int) -> list[Line]:
        state = self._state
        head: list[Line] = [self._heading(width), (Span(f"  {state.title}", "bold"),), ()]
        nodes = self._nodes()
        counters: list[Line] = [
            self._counter("without the lock", state.record.unguarded, width, self._lost()),
            self._counter("with the lock", state.record.guarded, width, self._pace()),
            self._holder(),
        ]
        # Drop what does not fit the height of the terminal, the least important first.
        processes = [*self._processes(width), ()]
        room = height - len(head) - len(nodes) - len(counters) - 1
        messages = [(), *self._messages]
        if state.done:
            # All processes are done, so their bars are equal; the messages and the lines below the frame matter more.
            if room < len(processes) + len(messages) + LINES_BELOW:
                processes = []
            if room < len(messages):
                messages = []
        else:
            if len(processes) > room:
                processes = [*processes[: max(room - 2, 0)], (Span("  ...", "dim"),), ()][: max(room, 0)]
            if room < len(processes) + MESSAGES + 1:
                messages = []
        return [*head, *nodes, (), *processes, *counters, *messages]

    def _heading(self, width: int) -> Line:
        state = self._state
        text = f"redlock_async: {state.processes} processes, one lock, {len(state.nodes.all)} nodes"
        clock = f"{state.elapsed:.1f} s"
        return Span(text, "bold"), Span(clock.rjust(max(width - len(text), 0)), "dim")

    def _nodes(self) -> list[Line]:
        heading = Span(f"  {'node':21}{'the demo':12}{'the library'}", "dim")
        return [(heading,), *map(self._node, self._state.nodes.all)]

    @staticmethod
    def _node(node: DemoNode) -> Line:
        return (
            Span(f"  {node.number}  {node.address:18}"),
            Span(f"{node.action:12}", ACTION_STYLES.get(node.action, "")),
            Span(f"{node.state:13}", STATE_STYLES.get(node.state, "")),
            Span(node.detail, "dim"),
        )

    def _processes(self, width: int) -> list[Line]:
        state = self._state
        last = state.record.last
        lines: list[Line] = []
        for number in range(1, state.processes + 1):
            done = state.record.by_process[number]
            holds = last is not None and last.process == number and not state.done
            lines.append((
                Span(f"  process {number:<10}"),
                Span(self._bar(done, state.increments, width), "cyan"),
                Span(f"  {done:>5} of {state.increments:<6}"),
                Span("holds the lock" if holds else "", "bold"),
            ))  # fmt: skip
        return lines

    def _counter(self, name: str, value: int, width: int, remark: Span) -> Line:
        return (
            Span(f"  {name:18}"),
            Span(self._bar(value, self._state.total, width), "red" if remark.style == "alarm" else "green"),
            Span(f"  {value:>5} of {self._state.total:<6}", "bold"),
            remark,
        )

    def _bar(self, value: int, of: int, width: int) -> str:
        return bar(value / of, max(width - 54, 8), plain=self._screen.plain)

    def _pace(self) -> Span:
        record = self._state.record
        if self._state.done:
            return Span(f"{record.hand_overs} hand-overs")
        return Span(f"{record.hand_over_rate(time.monotonic()):.0f} hand-overs/s" if record.last is not None else "")

    def _lost(self) -> Span:
        return Span(f"{self._state.unguarded_lost} lost" if self._state.unguarded_done else "", "alarm")

    def _holder(self) -> Line:
        record = self._state.record
        if record.last is None:
            return ()
        last = "last " if self._state.done else ""
        return (
            Span(f"  {last}held by process {record.last.process}, fence {record.last.fence}"),
            Span(f", longest gap {record.longest_gap * 1000:.0f} ms"),
        )
