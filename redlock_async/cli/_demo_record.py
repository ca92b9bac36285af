"""The files that the demo's processes write, and the results read from them; this module knows no locks or nodes."""

from __future__ import annotations

import os
from collections import Counter, deque
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

GUARDED, UNGUARDED, JOURNAL = "guarded", "unguarded", "journal"

WINDOW = 1.0
"""Seconds over which the rate of hand-overs is measured."""


class FileCounter:
    """A number in a file. Reading and writing are separate steps, so concurrent increments can be lost."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)

    def read(self) -> int:
        """Return the current number."""
        return int(os.pread(self._file, 32, 0) or b"0")

    def write(self, number: int) -> None:
        """Overwrite the number."""
        # A fixed width and a single call: an update can be lost, but a reader never sees a partial number.
        os.pwrite(self._file, b"%020d\n" % number, 0)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


class HeldInterval(NamedTuple):
    """One hold of the lock by a process. The times are from CLOCK_MONOTONIC, which all processes share."""

    fence: int
    process: int
    since: float
    until: float

    def line(self) -> bytes:
        """Return the line for the journal."""
        return f"{self.fence} {self.process} {self.since:.6f} {self.until:.6f}\n".encode()

    @classmethod
    def parse(cls, line: bytes) -> HeldInterval:
        """Return the interval of a line of the journal."""
        fence, process, since, until = line.split()
        return cls(int(fence), int(process), float(since), float(until))


class Journal:
    """The intervals in the order in which the lock was held: each holder appends its own while it holds the lock."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        self._offset = 0
        self._rest = b""

    def add(self, interval: HeldInterval) -> None:
        """Append an interval."""
        os.write(self._file, interval.line())

    def read(self) -> list[HeldInterval]:
        """Return the intervals that were appended since the last call."""
        data = os.pread(self._file, 1 << 24, self._offset)
        self._offset += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [HeldInterval.parse(line) for line in lines]

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


class Record:
    """Both counters, the journal, and the statistics derived from them."""

    def __init__(self, folder: Path) -> None:
        self._guarded = FileCounter(folder / GUARDED)
        self._unguarded = FileCounter(folder / UNGUARDED)
        self._journal = Journal(folder / JOURNAL)
        self.guarded = 0
        self.unguarded = 0
        self.intervals = 0
        self.by_process: Counter[int] = Counter()
        self.last: HeldInterval | None = None
        self.hand_overs = 0
        """How often the lock passed from one process to another."""
        self.longest_gap = 0.0
        """Seconds between the last action of one holder and the first action of the next."""
        self.inversion: tuple[HeldInterval, HeldInterval] | None = None
        """The first two successive intervals of which the later has no greater fence."""
        self._recent: deque[float] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for file in (self._guarded, self._unguarded, self._journal):
            file.close()

    def read(self) -> None:
        """Read the counters and the new lines of the journal."""
        self.guarded, self.unguarded = self._guarded.read(), self._unguarded.read()
        for interval in self._journal.read():
            if self.last is not None:
                self._compare(self.last, interval)
            self.last = interval
            self.intervals += 1
            self.by_process[interval.process] += 1

    def _compare(self, before: HeldInterval, after: HeldInterval) -> None:
        self.longest_gap = max(self.longest_gap, after.since - before.until)
        if after.process != before.process:
            self.hand_overs += 1
            self._recent.append(after.since)
        if after.fence <= before.fence and self.inversion is None:
            self.inversion = before, after

    def hand_over_rate(self, now: float) -> float:
        """Return the recent number of hand-overs per second."""
        while self._recent and self._recent[0] < now - WINDOW:
            self._recent.popleft()
        return len(self._recent) / WINDOW

    def reset_unguarded(self) -> None:
        """Set the unguarded counter to 0."""
        self._unguarded.write(0)
