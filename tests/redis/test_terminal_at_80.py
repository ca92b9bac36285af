"""The output of `demo`, `status --watch` and `bench` on a terminal of 80 columns and 24 rows, and its colours."""

import asyncio
import contextlib
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time

import pytest

from redlock_async import Redlock
from redlock_async.cli._bench_load import Latencies
from redlock_async.cli._bench_view import Text, placed
from redlock_async.cli._table import wrap
from redlock_async.cli._terminal import STYLES

pytestmark = pytest.mark.thorough

COLUMNS, ROWS = 80, 24
PIECE = re.compile(r"\x1b\[(\?25[lh]|\d*[A-Za-z]|[0-9;]*m)|\r|\n|[^\x1b\r\n]+")


class Emulator:
    """A terminal that knows what these programs send, and every state of its screen after a frame."""

    def __init__(self):
        self.lines = [""] * ROWS
        self.row = self.column = 0
        self.frames = []

    def feed(self, text):
        """Process the output of a program."""
        for found in PIECE.finditer(text):
            piece = found[0]
            if piece == "\r":
                self.column = 0
            elif piece == "\n":
                self._line_feed()
            elif piece.startswith("\x1b"):
                self._obey(found[1])
            else:
                self._write(piece)

    def _line_feed(self):
        self.row += 1
        if self.row == ROWS:
            self.lines = [*self.lines[1:], ""]
            self.row -= 1

    def _obey(self, sequence):
        if sequence.endswith("A"):
            self.row = max(self.row - int(sequence[:-1] or 1), 0)
        elif sequence == "K":
            self.lines[self.row] = self.lines[self.row][: self.column]
        elif sequence == "J":
            self.lines[self.row :] = [self.lines[self.row][: self.column], *[""] * (ROWS - self.row - 1)]
            self.frames.append(list(self.lines))
        else:
            assert sequence.endswith(("m", "?25l", "?25h")), sequence

    def _write(self, text):
        assert self.column + len(text) <= COLUMNS, text
        line = self.lines[self.row].ljust(self.column)
        self.lines[self.row] = line[: self.column] + text + line[self.column + len(text) :]
        self.column += len(text)


@contextlib.contextmanager
def terminal(*arguments, urls=()):
    """The program on a terminal, and a function that returns what it has written by the time a condition holds."""
    primary, secondary = pty.openpty()
    settings = termios.tcgetattr(secondary)
    settings[1] &= ~termios.OPOST
    termios.tcsetattr(secondary, termios.TCSANOW, settings)
    fcntl.ioctl(secondary, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("REDLOCK_", "COLUMNS", "LINES"))}
    process = subprocess.Popen(
        [sys.executable, "-m", "redlock_async", *arguments],
        stdin=secondary, stdout=secondary, stderr=secondary,
        env={**kept, "REDLOCK_NODES": ",".join(urls), "TERM": "xterm-256color", "PYTHONUTF8": "1", "NO_COLOR": "1"},
    )  # fmt: skip
    os.close(secondary)
    shown = Emulator()

    def until(condition, within=60.0):
        give_up_at = time.monotonic() + within
        while not condition(shown):
            assert select.select([primary], [], [], give_up_at - time.monotonic())[0], shown.lines
            try:
                data = os.read(primary, 65_536)
            except OSError:  # how Linux reports that the other end is closed
                return shown
            shown.feed(data.replace(b"\n", b"\r\n").decode(errors="replace"))
        return shown

    with process:
        try:
            yield until
        finally:
            process.kill()
            os.close(primary)


# -- demo --------------------------------------------------------------------------------------------------------------

STATE = re.compile(r"  (\d)  127\.0\.0\.1:\d+ +(?:KILLED|FROZEN|resumed|restarted|) +(up|down|quarantined)\b")
NEWS = re.compile(r" s  library  node (\d) is (up|down|quarantined)")


@pytest.mark.redis
@pytest.mark.usefixtures("embedded")
def test_the_demo_never_shows_a_node_down_in_the_table_and_up_in_the_list():
    """Nor the other way round, in any frame; and the last screen has the list, the counters and the verdict."""
    with terminal("demo", "--processes", "2", "--increments", "10") as until:
        shown = until(lambda _: False)
    told = 0
    for frame in shown.frames:
        text = "\n".join(frame)
        table = dict(STATE.findall(text))
        for number, state in dict(NEWS.findall(text)).items():  # the last of each
            told += 1
            assert (table[number] == "down") is (state == "down"), text
    assert told > 10
    last = "\n".join(shown.lines)
    assert last.startswith("redlock_async: 2 processes"), last
    for text in ("demo     the processes are done", "library  node 2 is up", "with the lock", "unguarded counter: "):
        assert text in last, last


# -- status --watch ----------------------------------------------------------------------------------------------------

UNITS = ("s", "ms", "min", "h", "d")
QUARANTINED = (
    "127.0.0.1:31790: it restarted without its data: it votes again in 179.9 s, when every lease it may have forgotten "
    "is over; the longest ttl in use is 180 s"
)


@pytest.mark.redis
def test_the_watch_does_not_break_a_line_between_a_number_and_its_unit(cluster):
    """A node that lost its data, and a ttl of 180 s: it was "180" at the end of a line, and "s" on the next."""

    async def lock():
        noticed = asyncio.Event()
        async with Redlock(cluster.urls, ttl=180) as redlock, redlock("x"):
            redlock.on_event(lambda event: event.kind == "node_quarantined" and noticed.set())
            cluster.kill(0)
            cluster.restart(0)
            await noticed.wait()

    asyncio.run(lock())
    with terminal("status", "--watch", urls=cluster.urls) as until:
        shown = until(lambda shown: any("ttl in use" in line for line in shown.lines) and shown.frames, 20)
        lines = shown.frames[-1]
    assert any("180 s" in line for line in lines), lines
    assert not any(line.split()[:1] and line.split()[0].rstrip(".,;") in UNITS for line in lines), lines


@pytest.mark.parametrize("width", range(24, 120))
def test_a_paragraph_keeps_numbers_and_units_together_at_any_width(width):
    """And every word of it."""
    lines = wrap(QUARANTINED, width)
    assert " ".join(lines) == QUARANTINED
    assert max(map(len, lines)) <= width
    assert not any(line.split()[0].rstrip(".,;") in UNITS for line in lines)


def test_a_paragraph_of_nothing_is_a_line():
    """And what is to be typed is broken nowhere but at a blank."""
    assert wrap("", 30) == [""]
    assert wrap("set --conflict-exit-code in the crontab", 24) == ["set --conflict-exit-code", "in the crontab"]


# -- bench -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "values",
    [
        [0.0002, *[0.00021] * 98, 0.01],
        [0.0002, *[0.0099] * 98, 0.01],
        [0.001 + 0.00001 * n for n in range(300)],
        [0.001] * 50,
    ],
    ids=["p50 beside the least", "p50 beside the most", "even", "all the same"],
)
def test_a_histogram_of_bench_has_all_four_labels_in_80_columns(values):
    """In the order of what they stand for, with a blank between two."""
    *_, labels = Text(COLUMNS, plain=False, colours=False).latencies("title", "pairs", Latencies.of(values))
    assert re.fullmatch(r" +[\d.]+ ms +p50 [\d.]+ ms +p99 [\d.]+ ms +[\d.]+ ms", labels), labels
    assert len(labels) < COLUMNS


def test_labels_move_aside_and_the_last_go_where_there_is_no_room():
    """Each as near to its column as the others let it."""
    assert placed(20, [(0, "abc"), (19, "xyz"), (2, "mid")]) == "abc mid          xyz"
    assert placed(20, [(0, "abc"), (20, "xyz"), (19, "mid")]) == "abc          mid xyz"
    assert placed(9, [(0, "abc"), (8, "xyz"), (4, "mid")]) == "abc   xyz"


# -- colours -----------------------------------------------------------------------------------------------------------

PALETTES = {
    "xterm": {"31": (205, 0, 0), "33": (205, 205, 0), "35": (205, 0, 205)},
    "VGA": {"31": (170, 0, 0), "33": (170, 85, 0), "35": (170, 0, 170)},
    "Tango": {"31": (204, 0, 0), "33": (196, 160, 0), "35": (117, 80, 123)},
}
DARK, LIGHT = (0, 0, 0), (255, 255, 255)
LEGIBLE = 3.0
"""The least contrast that WCAG asks for text that is large, and for signs."""


def contrast(one, other):
    """By WCAG 2: from 1 to 21."""

    def luminance(colour):
        channels = [c / 255 / 12.92 if c <= 10 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in colour]
        return sum(weight * channel for weight, channel in zip((0.2126, 0.7152, 0.0722), channels, strict=True))

    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("palette", PALETTES)
@pytest.mark.parametrize("background", [DARK, LIGHT], ids=["dark", "light"])
def test_a_warning_can_be_read_on_a_dark_and_on_a_light_terminal(palette, background):
    """Yellow cannot on a light one, and is no style any more."""
    (code,) = re.findall(r"3\d", STYLES["warning"])
    assert contrast(PALETTES[palette][code], background) >= LEGIBLE
    assert not any("33m" in each or "93m" in each for each in STYLES.values())
