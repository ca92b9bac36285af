"""Print styled text to a terminal or a pipe, cut to the width where necessary. This module knows no content."""

from __future__ import annotations

import os
import shutil
import signal
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from types import FrameType, TracebackType
from typing import NamedTuple, Self, TextIO

RESET = "\x1b[0m"
STYLES = {
    "": "",
    "bold": "\x1b[1m",
    "dim": "\x1b[2m",
    "red": "\x1b[31m",
    "green": "\x1b[32m",
    "cyan": "\x1b[36m",
    "warning": "\x1b[35m",  # magenta: yellow cannot be read on a light background
    "alarm": "\x1b[1;31m",
}
HIDE_CURSOR, SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"
TO_LINE_END, TO_SCREEN_END = "\x1b[K", "\x1b[J"


class Span(NamedTuple):
    """Text in one style."""

    text: str
    style: str = ""


Line = Sequence[Span]


def display_width(text: str) -> int:
    """Return the width in terminal columns: East Asian characters and emoji take two, combining characters none."""
    return len(text) if text.isascii() else sum(map(_character_width, text))


def _character_width(character: str) -> int:
    if unicodedata.category(character) in {"Mn", "Me"}:
        return 0
    return 2 if unicodedata.east_asian_width(character) in {"W", "F"} else 1


def truncate(text: str, width: int) -> str:
    """Return the longest beginning that fits into that many columns."""
    if text.isascii():
        return text[:width]
    ends = accumulate(map(_character_width, text))
    return text[: sum(end <= width for end in ends)]


def is_live(out: TextIO | None, environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether a frame can be redrawn in place; None is an output that our caller closed."""
    return out is not None and out.isatty() and environ.get("TERM", "dumb") != "dumb"


def is_plain(out: TextIO | None) -> bool:
    """Return whether the output is limited to ASCII."""
    return out is None or not (out.encoding or "").lower().startswith("utf")


def wants_colours(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether the user allows colours."""
    return not environ.get("NO_COLOR")


def bar(part: float, width: int, *, plain: bool = False) -> str:
    """Return a bar of that width, of which `part` is filled."""
    full = round(min(max(part, 0.0), 1.0) * width)
    return ("#" * full).ljust(width, ".") if plain else ("━" * full).ljust(width, "╌")


def render(line: Line, width: int | None, *, colours: bool, plain: bool) -> str:
    """Return a line with its escape sequences, truncated to that width."""
    parts: list[str] = []
    for span in line:
        text = span.text if width is None else truncate(span.text, width)
        if width is not None:
            width -= display_width(text)
        if plain:
            text = text.encode("ascii", "replace").decode()
        code = STYLES[span.style] if colours else ""
        parts.append(f"{code}{text}{RESET}" if code and text else text)
    return "".join(parts)


def sanitize(text: str) -> str:
    """Return text of others with a ? for each character that could control the terminal."""
    return "".join(char if char.isprintable() else "?" for char in text)


class Printer:
    """Append lines to a terminal or a pipe; None is an output that our caller closed."""

    def __init__(self, out: TextIO | None, environ: Mapping[str, str] = os.environ) -> None:
        self._out = out
        self.live = is_live(out, environ)
        """Whether this is a terminal that can be redrawn."""
        self.width = shutil.get_terminal_size().columns - 1 if self.live else None
        """Columns to use; None: unlimited."""
        self._colours = self.live and wants_colours(environ)
        self.plain = is_plain(out)
        """Whether the output is limited to ASCII."""

    def write(self, lines: Iterable[Line]) -> None:
        """Print the lines."""
        shown = (render(line, None, colours=self._colours, plain=self.plain).rstrip() for line in lines)
        text = "".join(line + "\n" for line in shown)
        if self._out is not None:
            self._out.write(text)
            self._out.flush()


class Screen:
    """Redraw a frame in place, with the cursor hidden."""

    def __init__(self, out: TextIO, environ: Mapping[str, str] = os.environ) -> None:
        self._out = out
        self._colours = wants_colours(environ)
        self._drawn = 0
        self._size = shutil.get_terminal_size()
        self.plain = is_plain(out)
        """Whether the output is limited to ASCII."""

    @property
    def size(self) -> os.terminal_size:
        """The current number of columns and rows."""
        return shutil.get_terminal_size()

    def __enter__(self) -> Self:
        self._out.write(HIDE_CURSOR)
        self._out.flush()
        self._suspending = signal.getsignal(signal.SIGTSTP)
        if self._suspending is signal.SIG_DFL:
            signal.signal(signal.SIGTSTP, self._suspend)
        return self

    def _suspend(self, number: int, _frame: FrameType | None) -> None:
        """Handle Ctrl-Z: show the cursor to the shell meanwhile, and afterwards draw below its output."""
        # Bypass the file's buffer: this handler may have interrupted a write to it.
        os.write(self._out.fileno(), SHOW_CURSOR.encode())
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)
        signal.signal(number, self._suspend)
        os.write(self._out.fileno(), HIDE_CURSOR.encode())
        self._drawn = 0

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        signal.signal(signal.SIGTSTP, self._suspending)
        if not isinstance(error, BrokenPipeError):
            self._out.write(SHOW_CURSOR)
            self._out.flush()

    def draw(self, lines: Sequence[Line]) -> None:
        """Replace the previous frame with these lines."""
        # Block Ctrl-Z until the frame is complete: its second half would overwrite what the shell printed meanwhile.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTSTP})
        try:
            self._draw(lines)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def _draw(self, lines: Sequence[Line]) -> None:
        size = self.size
        # Resizing rewraps our lines in unknown places, so start a new frame below them.
        up = self._drawn if size == self._size else 0
        self._size = size
        shown = lines[: max(size.lines - 1, 1)]
        text = "".join(self._line(line, size.columns - 1) + TO_LINE_END + "\n" for line in shown)
        self._out.write((f"\x1b[{up}A" if up else "") + "\r" + text + TO_SCREEN_END)
        self._out.flush()
        self._drawn = len(shown)

    def _line(self, line: Line, width: int) -> str:
        return render(line, width, colours=self._colours, plain=self.plain)
