"""Record what a command shows on a terminal, and draw it.

A recording is a list of frames. A frame is a time in seconds, and lines of spans: a text and the style in which the
terminal showed it. This module understands the escape sequences that redlock_async.cli writes, and no others.
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

from website.drawing import MONO, Drawing, Theme

COLUMNS, ROWS = 100, 40
CHARACTER, LINE_HEIGHT, FONT_SIZE, MARGIN = 7.83, 18, 13, 16
BAR = 36
"""Height of the window's title bar."""

SEQUENCE = re.compile(r"\x1b\[(?P<given>[?0-9;]*)(?P<kind>[A-Za-z])|(?P<plain>[\r\n])|(?P<text>[^\x1b\r\n]+)")
STYLES = {
    "": "",
    "0": "",
    "1": "bold",
    "2": "dim",
    "31": "red",
    "32": "green",
    "35": "purple",
    "36": "blue",
    "1;31": "alarm",
}
HOLD = 0.2
"""Part of an animation for which its last frame stays."""

Span = tuple[str, str]
Lines = list[list[Span]]


class Frame(NamedTuple):
    """What the terminal showed from that time on."""

    at: float
    lines: Lines


class Terminal:
    """The characters on a terminal, and their styles."""

    def __init__(self) -> None:
        self._rows: list[list[tuple[str, str]]] = [[]]
        self._row = self._column = 0
        self._style = ""

    def write(self, text: str) -> None:
        """Interpret the output of a program."""
        for found in SEQUENCE.finditer(text):
            if found["text"]:
                for character in found["text"]:
                    self._put(character)
            elif found["plain"] == "\n":
                self._row += 1
                self._column = 0
                self._rows += [[]] * 0 if self._row < len(self._rows) else [[]]
            elif found["plain"] == "\r":
                self._column = 0
            else:
                self._control(found["kind"], found["given"])

    def _put(self, character: str) -> None:
        row = self._rows[self._row]
        row += [(" ", "")] * (self._column + 1 - len(row))
        row[self._column] = (character, self._style)
        self._column += 1

    def _control(self, kind: str, given: str) -> None:
        match kind:
            case "m":
                self._style = STYLES[given]
            case "A":
                self._row = max(self._row - int(given or 1), 0)
            case "K":
                del self._rows[self._row][self._column :]
            case "J":
                del self._rows[self._row][self._column :]
                del self._rows[self._row + 1 :]
            case "h" | "l":
                pass  # shows or hides the cursor
            case _:
                raise ValueError(f"unknown escape sequence: {given}{kind}")

    def lines(self) -> Lines:
        """Return what is shown now, in spans of one style."""
        return [list(_spans(row)) for row in self._rows]


def _spans(row: Sequence[tuple[str, str]]) -> Iterator[Span]:
    start = 0
    for index in range(1, len(row) + 1):
        if index == len(row) or row[index][1] != row[start][1]:
            yield "".join(character for character, _ in row[start:index]), row[start][1]
            start = index


def record(
    command: Sequence[str], environment: Mapping[str, str], *, every: float = 0.0, until: float = 60.0
) -> list[Frame]:
    """Run a command on a terminal; return its last frame, or a frame for each `every` seconds."""
    child, terminal = pty.fork()
    if child == 0:
        try:
            os.execvpe(command[0], list(command), dict(environment))  # noqa: S606 - our own program
        finally:
            os._exit(127)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    shown, frames, began, pending = Terminal(), list[Frame](), time.monotonic(), b""
    while (elapsed := time.monotonic() - began) < until:
        if every and elapsed >= len(frames) * every:
            frames.append(Frame(round(len(frames) * every, 2), shown.lines()))
        if select.select([terminal], [], [], 0.05)[0]:
            try:
                pending += os.read(terminal, 65536)
            except OSError:  # the command has ended
                break
            complete, _, pending = pending.rpartition(b"\n") if b"\n" in pending else (b"", b"", pending)
            shown.write(complete.decode() + ("\n" if complete else ""))
    else:
        os.kill(child, signal.SIGINT)
    shown.write(pending.decode())
    os.close(terminal)
    os.waitpid(child, 0)
    return [*frames, Frame(round(time.monotonic() - began, 2), shown.lines())]


def load(path: Path) -> list[Frame]:
    """Read a recording."""
    read = json.loads(path.read_text("utf-8"))
    return [Frame(frame["at"], [[(text, style) for text, style in line] for line in frame["lines"]]) for frame in read]


def save(path: Path, frames: Sequence[Frame]) -> None:
    """Write a recording, a line for each frame."""
    dumped = (json.dumps({"at": at, "lines": lines}, ensure_ascii=False) for at, lines in frames)
    path.write_text("[\n" + ",\n".join(dumped) + "\n]\n", "utf-8")


def text_of(frame: Frame) -> list[str]:
    """Return the lines of a frame without their styles."""
    return ["".join(text for text, _ in line).rstrip() for line in frame.lines]


def draw(frames: Sequence[Frame], theme: Theme, *, title: str, prompt: str) -> str:
    """Draw the last frame as a terminal's window; several frames become an animation that ends with the last."""
    rows = max(len(frame.lines) for frame in frames)
    columns = max(len(line) for frame in frames for line in text_of(frame))
    width = round(columns * CHARACTER + 2 * MARGIN)
    height = BAR + rows * LINE_HEIGHT + MARGIN
    drawing = Drawing(width, height, theme, title)
    drawing.rect(0.75, 0.75, width - 1.5, height - 1.5, stroke=theme.border, radius=8)
    for number, colour in enumerate((theme.red, theme.muted, theme.green)):
        drawing.add(f'<circle cx="{20 + number * 18}" cy="18" r="5" fill="{colour}"/>')
    drawing.text(width / 2, 22, prompt, mono=True, size=12, anchor="middle", colour=theme.muted)
    if len(frames) > 1:
        drawing.add(_animation(frames, width))
    drawing.add('<g class="film">')
    for number, frame in enumerate(frames):
        drawing.add("\n".join(_frame(frame, theme, MARGIN + number * width)))
    drawing.add("</g>")
    return drawing.svg()


def _animation(frames: Sequence[Frame], width: int) -> str:
    """Move the frames past the window. Without animations, or if the reader wants none, the last frame stays."""
    last = (len(frames) - 1) * width
    end = 100 * (1 - HOLD)
    seconds = (frames[-1].at - frames[0].at) / (1 - HOLD)
    return (
        f"<style>.film {{ transform: translateX(-{last}px); }} "
        f"@media (prefers-reduced-motion: no-preference) {{ .film {{ animation: film {seconds:.1f}s infinite; }} }} "
        f"@keyframes film {{ 0% {{ transform: translateX(0); "
        f"animation-timing-function: steps({len(frames) - 1}, end); }} "
        f"{end:g}%, 100% {{ transform: translateX(-{last}px); }} }}</style>"
    )


def _frame(frame: Frame, theme: Theme, left: float) -> Iterator[str]:
    colours = {
        "": theme.text, "bold": theme.text, "dim": theme.muted, "red": theme.red, "green": theme.green,
        "purple": theme.purple, "blue": theme.blue, "alarm": theme.red,
    }  # fmt: skip
    for number, line in enumerate(frame.lines):
        column, parts = 0, []
        for text, style in line:
            if text.strip():
                weight = ' font-weight="600"' if style in {"bold", "alarm"} else ""
                # textLength keeps the columns of a table straight, whichever font the reader has.
                parts.append(
                    f'<tspan x="{left + column * CHARACTER:.1f}" fill="{colours[style]}"{weight} '
                    f'textLength="{len(text) * CHARACTER:.1f}" lengthAdjust="spacingAndGlyphs">{escape(text)}</tspan>'
                )
            column += len(text)
        if parts:
            y = BAR + 15 + number * LINE_HEIGHT
            font = f'font-family="{MONO}" font-size="{FONT_SIZE}"'
            yield f'<text y="{y}" {font} xml:space="preserve">{"".join(parts)}</text>'
