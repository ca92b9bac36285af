"""A terminal, and text made to fit it; it does not know what the text is about."""

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
    "yellow": "\x1b[33m",
    "cyan": "\x1b[36m",
    "alarm": "\x1b[1;31m",
}
HIDE_CURSOR, SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"
TO_LINE_END, TO_SCREEN_END = "\x1b[K", "\x1b[J"


class Span(NamedTuple):
    """Text in one style."""

    text: str
    style: str = ""


Line = Sequence[Span]


def columns_of(text: str) -> int:
    """How many columns of a terminal that takes: characters of East Asia and emoji two, what joins another one none."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def _columns(character: str) -> int:
    if unicodedata.category(character) in {"Mn", "Me"}:
        return 0
    return 2 if unicodedata.east_asian_width(character) in {"W", "F"} else 1


def cut(text: str, width: int) -> str:
    """As much of its beginning as that many columns hold."""
    if text.isascii():
        return text[:width]
    ends = accumulate(map(_columns, text))
    return text[: sum(end <= width for end in ends)]


def is_live(out: TextIO | None, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether a frame can be redrawn there; None is an output that was closed before we began."""
    return out is not None and out.isatty() and environ.get("TERM", "dumb") != "dumb"


def bar(part: float, width: int, *, plain: bool = False) -> str:
    """So much of that width."""
    full = round(min(max(part, 0.0), 1.0) * width)
    return ("#" * full).ljust(width, ".") if plain else ("━" * full).ljust(width, "╌")


def rendered(line: Line, width: int | None, *, colours: bool, plain: bool) -> str:
    """A line as it is written, cut to that width."""
    parts: list[str] = []
    for span in line:
        text = span.text if width is None else cut(span.text, width)
        if width is not None:
            width -= columns_of(text)
        if plain:
            text = text.encode("ascii", "replace").decode()
        code = STYLES[span.style] if colours else ""
        parts.append(f"{code}{text}{RESET}" if code and text else text)
    return "".join(parts)


def harmless(text: str) -> str:
    """What others wrote, without anything that a terminal would obey."""
    return "".join(c if c.isprintable() else "?" for c in text)


class Paper:
    """Lines that stay, on a terminal of some width or in a pipe; None is an output that was closed before we began."""

    def __init__(self, out: TextIO | None, environ: Mapping[str, str] = os.environ) -> None:
        self._out = out
        self.live = is_live(out, environ)
        """Whether somebody reads along on a terminal."""
        self.width = shutil.get_terminal_size().columns - 1 if self.live else None
        """Columns there are; None: as many as are wanted."""
        self._colours = self.live and not environ.get("NO_COLOR")
        self.plain = out is None or not (out.encoding or "").lower().startswith("utf")
        """Whether it cannot show more than ASCII."""

    def write(self, lines: Iterable[Line]) -> None:
        """Add those."""
        shown = (rendered(line, None, colours=self._colours, plain=self.plain).rstrip() for line in lines)
        text = "".join(line + "\n" for line in shown)
        if self._out is not None:
            self._out.write(text)
            self._out.flush()


class Screen:
    """A frame that is redrawn in place, with the cursor out of the way meanwhile."""

    def __init__(self, out: TextIO, environ: Mapping[str, str] = os.environ) -> None:
        self._out = out
        self._colours = not environ.get("NO_COLOR")
        self._drawn = 0
        self._size = shutil.get_terminal_size()
        self.plain = not (out.encoding or "").lower().startswith("utf")
        """Whether it cannot show more than ASCII."""

    @property
    def size(self) -> os.terminal_size:
        """Columns and rows, as they are now."""
        return shutil.get_terminal_size()

    def __enter__(self) -> Self:
        self._out.write(HIDE_CURSOR)
        self._out.flush()
        self._suspending = signal.getsignal(signal.SIGTSTP)
        if self._suspending is signal.SIG_DFL:
            signal.signal(signal.SIGTSTP, self._suspend)
        return self

    def _suspend(self, number: int, _frame: FrameType | None) -> None:
        """Ctrl-Z: the shell has its cursor back meanwhile, and what it showed is not drawn over."""
        # Not through the file's buffer: we may have interrupted a write to it.
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
        """Show this instead of what was shown last."""
        # Ctrl-Z waits until the frame is whole: half of it would be drawn over what the shell shows meanwhile.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTSTP})
        try:
            self._draw(lines)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def _draw(self, lines: Sequence[Line]) -> None:
        size = self.size
        # A terminal that was resized has broken our lines in places we do not know: begin anew below them.
        up = self._drawn if size == self._size else 0
        self._size = size
        shown = lines[: max(size.lines - 1, 1)]
        text = "".join(self._line(line, size.columns - 1) + TO_LINE_END + "\n" for line in shown)
        self._out.write((f"\x1b[{up}A" if up else "") + "\r" + text + TO_SCREEN_END)
        self._out.flush()
        self._drawn = len(shown)

    def _line(self, line: Line, width: int) -> str:
        return rendered(line, width, colours=self._colours, plain=self.plain)
