"""What the demo's processes leave in files, and what can be read off it; it knows neither locks nor masters."""

from __future__ import annotations

import os
from collections import Counter, deque
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

GUARDED, UNGUARDED, JOURNAL = "guarded", "unguarded", "journal"

WINDOW = 1.0
"""Seconds over which hand-overs are counted."""


class Tally:
    """A number in a file, which is read and written in two steps that do not know of each other."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)

    def read(self) -> int:
        """What it says now."""
        return int(os.pread(self._file, 32, 0) or b"0")

    def write(self, number: int) -> None:
        """Say something else, whatever it said before."""
        # Of one width and in one call, so that updates are lost, but no reader finds half a number.
        os.pwrite(self._file, b"%020d\n" % number, 0)

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._file)


class Hold(NamedTuple):
    """One process had the lock once. The times are CLOCK_MONOTONIC's, which all processes share."""

    fence: int
    process: int
    since: float
    until: float

    def line(self) -> bytes:
        """As it stands in the journal."""
        return f"{self.fence} {self.process} {self.since:.6f} {self.until:.6f}\n".encode()

    @classmethod
    def of(cls, line: bytes) -> Hold:
        """A line of the journal."""
        fence, process, since, until = line.split()
        return cls(int(fence), int(process), float(since), float(until))


class Journal:
    """The holds in the order in which the lock was held, since each holder adds its own while it still holds it."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        self._offset = 0
        self._rest = b""

    def add(self, hold: Hold) -> None:
        """Append one."""
        os.write(self._file, hold.line())

    def read(self) -> list[Hold]:
        """Those that came since the last time."""
        data = os.pread(self._file, 1 << 24, self._offset)
        self._offset += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [Hold.of(line) for line in lines]

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._file)


class Record:
    """Both counters and the journal, and what they amount to."""

    def __init__(self, folder: Path) -> None:
        self._guarded = Tally(folder / GUARDED)
        self._unguarded = Tally(folder / UNGUARDED)
        self._journal = Journal(folder / JOURNAL)
        self.guarded = 0
        self.unguarded = 0
        self.holds = 0
        self.by_process: Counter[int] = Counter()
        self.last: Hold | None = None
        self.handed_over = 0
        """How often the lock passed from one process to another."""
        self.longest_gap = 0.0
        """Seconds between one holder's last act and the next one's first."""
        self.inversion: tuple[Hold, Hold] | None = None
        """The first two of which the later has no greater fence."""
        self._lately: deque[float] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for file in (self._guarded, self._unguarded, self._journal):
            file.close()

    def read(self) -> None:
        """Take note of what came since the last time."""
        self.guarded, self.unguarded = self._guarded.read(), self._unguarded.read()
        for hold in self._journal.read():
            if self.last is not None:
                self._follows(self.last, hold)
            self.last = hold
            self.holds += 1
            self.by_process[hold.process] += 1

    def _follows(self, before: Hold, after: Hold) -> None:
        self.longest_gap = max(self.longest_gap, after.since - before.until)
        if after.process != before.process:
            self.handed_over += 1
            self._lately.append(after.since)
        if after.fence <= before.fence and self.inversion is None:
            self.inversion = before, after

    def hand_over_rate(self, now: float) -> float:
        """How often that happened lately, a second."""
        while self._lately and self._lately[0] < now - WINDOW:
            self._lately.popleft()
        return len(self._lately) / WINDOW

    def forget_unguarded(self) -> None:
        """Begin that counter anew."""
        self._unguarded.write(0)
