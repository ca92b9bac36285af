"""What is shown of the demo, live on a terminal and as plain lines elsewhere; it changes nothing that it shows."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from typing import Protocol, TextIO

from ._demo_masters import Master, Masters
from ._demo_record import Record
from ._terminal import Line, Screen, Span, bar

WIDEST = 110
NEWS = 4
PROGRESS_EVERY = 1.0
STATE_STYLES = {"up": "green", "down": "alarm", "held out": "yellow"}
DEED_STYLES = {"KILLED": "alarm", "FROZEN": "cyan"}


@dataclass(slots=True)
class Stage:
    """All there is to see."""

    processes: int
    increments: int
    masters: Masters
    record: Record
    began_at: float = field(default_factory=time.monotonic)
    title: str = ""
    unguarded_over: bool = False
    over: bool = False

    @property
    def total(self) -> int:
        """What a counter should say at the end."""
        return self.processes * self.increments

    @property
    def unguarded_lost(self) -> int:
        """How much less the unguarded counter says."""
        return self.total - self.record.unguarded

    @property
    def elapsed(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self.began_at


class View(Protocol):
    """A way to show it."""

    def deed(self, text: str) -> None:
        """The demo did something."""

    def news(self, text: str) -> None:
        """The library reported something."""

    def show(self) -> None:
        """Some time has passed."""


class PlainView:
    """Lines, one below the other."""

    def __init__(self, out: TextIO | None, stage: Stage) -> None:
        self._out = out
        self._stage = stage
        self._due_at = 0.0

    def deed(self, text: str) -> None:
        """The demo did something."""
        self._line(text)

    def news(self, text: str) -> None:
        """The library reported something."""
        self._line(f"  library: {text}")

    def show(self) -> None:
        """Some time has passed."""
        stage, now = self._stage, time.monotonic()
        if now < self._due_at or stage.record.last is None:
            return
        self._due_at = now + PROGRESS_EVERY
        last, rate = stage.record.last, stage.record.hand_over_rate(now)
        self._line(
            f"  {stage.record.guarded} of {stage.total}, held by process {last.process}, fence {last.fence}, "
            f"{rate:.0f} hand-overs/s, {stage.masters.voting} of {len(stage.masters.all)} masters vote"
        )

    def _line(self, text: str) -> None:
        print(f"{self._stage.elapsed:5.1f} s  {text}", file=self._out, flush=True)


class LiveView:
    """A frame that is drawn again and again."""

    def __init__(self, screen: Screen, stage: Stage) -> None:
        self._screen = screen
        self._stage = stage
        self._news: deque[Line] = deque(maxlen=NEWS)

    def deed(self, text: str) -> None:
        """The demo did something."""
        self._stage.title = text
        self._report(Span("demo     ", "bold"), text)

    def news(self, text: str) -> None:
        """The library reported something."""
        self._report(Span("library  ", "cyan"), text)

    def _report(self, who: Span, text: str) -> None:
        self._news.append((Span(f"{self._stage.elapsed:5.1f} s  ", "dim"), who, Span(text)))
        self.show()

    def show(self) -> None:
        """Draw it."""
        columns, rows = self._screen.size
        self._screen.draw(self._frame(min(columns - 1, WIDEST), rows - 1))

    def _frame(self, width: int, height: int) -> list[Line]:
        stage = self._stage
        head: list[Line] = [self._heading(width), (Span(f"  {stage.title}", "yellow"),), ()]
        masters = self._masters()
        counters: list[Line] = [
            self._counter("without the lock", stage.record.unguarded, width, self._lost()),
            self._counter("with the lock", stage.record.guarded, width, self._pace()),
            self._holder(),
        ]
        room = height - len(head) - len(masters) - len(counters) - 2
        # What a low terminal has no room for goes, the least telling first.
        processes = self._processes(width)
        if len(processes) > room:
            processes = [*processes[: max(room - 1, 0)], (Span("  ...", "dim"),)][: max(room, 0)]
        frame = [*head, *masters, (), *processes, (), *counters]
        # At the end the room is for what comes below.
        return frame if stage.over or len(frame) + NEWS + 1 > height else [*frame, (), *self._news]

    def _heading(self, width: int) -> Line:
        stage = self._stage
        text = f"redlock_async: {stage.processes} processes, one lock, {len(stage.masters.all)} masters"
        clock = f"{stage.elapsed:.1f} s"
        return Span(text, "bold"), Span(clock.rjust(max(width - len(text), 0)), "dim")

    def _masters(self) -> list[Line]:
        heading = Span(f"  {'master':21}{'the demo':12}{'the library says'}", "dim")
        return [(heading,), *map(self._master, self._stage.masters.all)]

    @staticmethod
    def _master(master: Master) -> Line:
        return (
            Span(f"  {master.number}  {master.address:18}"),
            Span(f"{master.deed:12}", DEED_STYLES.get(master.deed, "")),
            Span(f"{master.state:10}", STATE_STYLES.get(master.state, "")),
            Span(master.detail, "dim"),
        )

    def _processes(self, width: int) -> list[Line]:
        stage = self._stage
        last = stage.record.last
        lines: list[Line] = []
        for number in range(1, stage.processes + 1):
            done = stage.record.by_process[number]
            holds = last is not None and last.process == number and not stage.over
            lines.append((
                Span(f"  process {number:<10}"),
                Span(self._bar(done, stage.increments, width), "cyan"),
                Span(f"  {done:>5} of {stage.increments:<6}"),
                Span("holds it" if holds else "", "bold"),
            ))  # fmt: skip
        return lines

    def _counter(self, name: str, value: int, width: int, remark: Span) -> Line:
        return (
            Span(f"  {name:18}"),
            Span(self._bar(value, self._stage.total, width), "red" if remark.style == "alarm" else "green"),
            Span(f"  {value:>5} of {self._stage.total:<6}", "bold"),
            remark,
        )

    def _bar(self, value: int, of: int, width: int) -> str:
        return bar(value / of, max(width - 54, 8), plain=self._screen.plain)

    def _pace(self) -> Span:
        record = self._stage.record
        if self._stage.over:
            return Span(f"{record.handed_over} hand-overs")
        return Span(f"{record.hand_over_rate(time.monotonic()):.0f} hand-overs/s" if record.last is not None else "")

    def _lost(self) -> Span:
        return Span(f"{self._stage.unguarded_lost} lost" if self._stage.unguarded_over else "", "alarm")

    def _holder(self) -> Line:
        record = self._stage.record
        if record.last is None:
            return ()
        last = "last " if self._stage.over else ""
        return (
            Span(f"  {last}held by process {record.last.process}, fence {record.last.fence}"),
            Span(f", longest gap {record.longest_gap * 1000:.0f} ms"),
        )
