"""Draw the pictures of the documentation: `python -m website.pictures` writes docs/pictures.

Each picture exists in a light and a dark theme. Those of terminals show recordings, which website/record.py makes, and
the bars show the figures of docs/performance.md. tests/test_pictures.py tells when a picture is out of date.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import dropwhile
from pathlib import Path

from website import terminal
from website.drawing import THEMES, Drawing, Theme
from website.record import RECORDINGS

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "pictures"

NODES = "ABCDE"


# -- time lines

TTL, RENEWED, CUT, MARGIN = 10.0, 10 / 3, 5.0, 0.25
"""Seconds: the ttl, the last renewal, when the client is cut off, and how long before validity ends it is cancelled."""
EXPIRY = RENEWED + TTL
CANCELLED = EXPIRY - (TTL * 0.01 + 0.002) - MARGIN


def unconfirmed() -> Iterator[float]:
    """Yield when the renewals are sent that no quorum confirms: ever sooner after each other."""
    second = RENEWED + TTL / 3
    while second < CANCELLED - MARGIN:
        yield second
        second += min(TTL / 3, max((CANCELLED - second) / 3, TTL / 50))


def quorum(theme: Theme) -> str:
    """Draw a lease from the acquire to the loss."""
    left, right, end = 128, 742, 17.0
    drawing = Drawing(760, 402, theme, "A lease from acquire to expiry")

    def at(seconds: float) -> float:
        return left + (right - left) * seconds / end

    for second in range(0, 17, 2):
        drawing.line(at(second), 52, at(second), 352, colour=theme.grey_fill)
        drawing.text(at(second), 372, f"{second} s", colour=theme.muted, size=12, anchor="middle")
    drawing.text(14, 80, "your code", bold=True)
    drawing.rect(at(0), 62, at(CANCELLED) - at(0), 28, fill=theme.green_fill, stroke=theme.green)
    drawing.text(at(0) + 12, 81, 'async with redlock("x", ttl=10): runs, renewed every third of the ttl', size=13)
    for number, node in enumerate(NODES):
        y = 110 + number * 34
        drawing.text(14, y + 18, f"node {node}", mono=True, size=13)
        lost = node in "CDE"
        drawing.rect(at(0), y, at(EXPIRY if lost else CANCELLED) - at(0), 24, fill=theme.blue_fill, stroke=theme.blue)
        for second in (0.0, RENEWED, *(unconfirmed() if not lost else ())):
            drawing.add(f'<circle cx="{at(second) + 8:.1f}" cy="{y + 12}" r="4" fill="{theme.blue}"/>')
        if lost:
            drawing.text(at(CUT) + 12, y + 17, "cut off: holds the lock until its ttl ends", size=12)
            drawing.line(at(CUT), y, at(CUT), y + 24, colour=theme.red)
            drawing.rect(at(EXPIRY) + 4, y, at(end) - at(EXPIRY) - 4, 24, fill=theme.purple_fill, stroke=theme.purple)
        else:
            drawing.text(at(RENEWED) + 18, y + 17, "renewed", size=12)
    drawing.text(14, 308, "another client", bold=True)
    drawing.rect(at(EXPIRY) + 4, 290, at(end) - at(EXPIRY) - 4, 28, fill=theme.purple_fill, stroke=theme.purple)
    drawing.text(at(EXPIRY) + 12, 309, "has the lock", size=13)
    drawing.text(at(CANCELLED) - 8, 309, "waits", size=13, anchor="end", colour=theme.muted)
    for x, colour in ((at(CANCELLED), theme.red), (at(EXPIRY), theme.purple)):
        drawing.line(x, 24, x, 352, colour=colour, dashed=True)
    drawing.text(at(CANCELLED) - 6, 34, "cancelled, LockLost", colour=theme.red, bold=True, anchor="end")
    drawing.text(at(EXPIRY) + 6, 34, "the lease expires", colour=theme.purple, bold=True)
    drawing.line(at(CUT), 40, at(CUT), 61, colour=theme.red, dashed=True)
    drawing.text(at(CUT), 34, "3 of 5 nodes cut off", colour=theme.red, anchor="middle", size=13)
    drawing.text(
        14,
        394,
        "A dot is a node that confirmed. 2 of 5 confirm from 6.7 s on, and 3 are needed.",
        size=12,
        colour=theme.muted,
    )
    return drawing.svg()


def fence(theme: Theme) -> str:
    """Draw a paused holder whose late write is rejected."""
    drawing = Drawing(760, 330, theme, "A paused holder is rejected by its fence")
    drawing.text(14, 62, "ann", bold=True)
    drawing.text(14, 142, "bob", bold=True)
    drawing.text(14, 248, "database", bold=True)
    drawing.rect(100, 42, 150, 30, fill=theme.green_fill, stroke=theme.green)
    drawing.text(110, 62, "holds, fence 7", size=13)
    drawing.rect(250, 42, 300, 30, stroke=theme.border, dashed=True)
    drawing.text(455, 62, "paused: no code runs", size=13, anchor="middle", colour=theme.muted)
    drawing.rect(550, 42, 120, 30, fill=theme.red_fill, stroke=theme.red)
    drawing.text(560, 62, "resumes, late", size=13)
    drawing.line(360, 24, 360, 182, colour=theme.purple, dashed=True)
    drawing.text(366, 28, "ann's lease expires", size=13, colour=theme.purple)
    drawing.rect(380, 122, 150, 30, fill=theme.green_fill, stroke=theme.green)
    drawing.text(390, 142, "holds, fence 8", size=13)
    drawing.rect(100, 222, 646, 44, fill=theme.grey_fill, stroke=theme.border)
    for x, value in ((185, "7"), (455, "8"), (640, "8")):
        drawing.text(x, 249, f"fence = {value}", mono=True, size=14, anchor="middle")
    for x, y, label in ((185, 72, "7: accepted"), (455, 152, "8: accepted")):
        drawing.line(x, y, x, 220, colour=theme.green, arrow=True)
        drawing.text(x - 8, 206, label, size=13, colour=theme.green, anchor="end", bold=True)
    drawing.line(640, 72, 640, 220, colour=theme.red, arrow=True)
    drawing.text(632, 206, "7 < 8: rejected", size=13, colour=theme.red, anchor="end", bold=True)
    drawing.text(
        100,
        296,
        "The token of each holder is larger than the token of every earlier holder.",
        size=13,
        colour=theme.muted,
    )
    drawing.text(
        100,
        316,
        "The database keeps the largest token it has seen, and rejects smaller ones.",
        size=13,
        colour=theme.muted,
    )
    return drawing.svg()


# -- decisions, states and sets

QUESTIONS = (
    (("Does all the code that", "may collide run in", "one process?"), ("asyncio.Lock",), "blue"),
    (
        ("Is all the data", "in one database?"),
        ("that database", "unique constraint, row lock,", "advisory lock"),
        "blue",
    ),
    (("Does a duplicate", "only waste work?"), ("redlock_async", "one node is enough to start"), "green"),
    (
        ("Can the data carry a", "number that every write", "is compared with?"),
        ("redlock_async", "with the fencing token,", "three or five nodes"),
        "green",
    ),
    (
        ("Is a rare duplicate", "acceptable?"),
        ("redlock_async", "five nodes; the lock", "makes duplicates rare"),
        "green",
    ),
)
OTHERWISE = ("a consensus service (etcd, ZooKeeper)", "even there, a paused client can write late")


def choose(theme: Theme) -> str:
    """Draw the flowchart of the page `Do I need a distributed lock?`, narrow enough for a phone."""
    fills = {"blue": (theme.blue_fill, theme.blue), "green": (theme.green_fill, theme.green)}
    step, height = 108, 72
    drawing = Drawing(480, 24 + len(QUESTIONS) * step + 64, theme, "Do I need a distributed lock?")
    for number, (question, answer, colour) in enumerate(QUESTIONS):
        y = 16 + number * step
        drawing.box(12, y, 190, question, fill=theme.grey_fill, stroke=theme.border, bold=False, height=height)
        fill, stroke = fills[colour]
        drawing.line(202, y + height / 2, 258, y + height / 2, colour=theme.muted, arrow=True)
        drawing.text(228, y + height / 2 - 7, "yes", size=13, anchor="middle", colour=theme.green, bold=True)
        drawing.box(260, y, 208, answer, fill=fill, stroke=stroke, height=height)
        drawing.line(107, y + height, 107, y + step - 2, colour=theme.muted, arrow=True)
        drawing.text(117, y + height + 22, "no", size=13, colour=theme.red, bold=True)
    drawing.box(12, 16 + len(QUESTIONS) * step, 330, OTHERWISE, fill=theme.purple_fill, stroke=theme.purple)
    return drawing.svg()


def node_states(theme: Theme) -> str:
    """Draw the states of a node and what leads from one to another."""
    drawing = Drawing(760, 330, theme, "The states of a node: up, down, quarantined")
    drawing.box(40, 30, 210, ("up", "its vote counts"), fill=theme.green_fill, stroke=theme.green)
    drawing.box(510, 30, 210, ("down", "no connection or no reply"), fill=theme.red_fill, stroke=theme.red)
    drawing.box(
        275, 240, 230, ("quarantined", "connected; its vote is ignored"), fill=theme.purple_fill, stroke=theme.purple
    )
    drawing.line(250, 46, 508, 46, colour=theme.muted, arrow=True)
    drawing.text(379, 38, "no reply for node_timeout, or closed", size=12, anchor="middle")
    drawing.line(510, 70, 252, 70, colour=theme.muted, arrow=True)
    drawing.text(379, 88, "is back with its data", size=12, anchor="middle")
    drawing.line(650, 83, 480, 238, colour=theme.muted, arrow=True)
    drawing.text(586, 168, "is back without its data", size=12)
    drawing.line(300, 240, 110, 85, colour=theme.muted, arrow=True)
    drawing.text(20, 190, "the longest ttl in use", size=12)
    drawing.text(20, 206, "has passed", size=12)
    drawing.line(170, 83, 350, 238, colour=theme.muted, arrow=True)
    drawing.text(286, 168, "is emptied (FLUSHALL)", size=12)
    drawing.text(
        380,
        316,
        "A quarantined node receives all commands and may extend leases.",
        size=12,
        anchor="middle",
        colour=theme.muted,
    )
    return drawing.svg()


def node_sets(theme: Theme) -> str:
    """Draw which majorities overlap when the set of nodes changes."""
    drawing = Drawing(760, 346, theme, "3 to 4 to 5 nodes: majorities that overlap")
    rows = (
        ("3 to 4", "one more node: safe", "ABC", "ABCD", "BC", "ABD", True),
        ("4 to 5", "one more node: safe", "ABCD", "ABCDE", "BCD", "ADE", True),
        ("3 to 5", "two at once: unsafe", "ABC", "ABCDE", "AB", "CDE", False),
    )
    for number, (change, verdict, old, new, old_votes, new_votes, safe) in enumerate(rows):
        y = 30 + number * 98
        drawing.text(20, y + 28, change, bold=True, size=18)
        drawing.text(20, y + 52, verdict, size=13, colour=theme.green if safe else theme.red, bold=True)
        for line, (label, nodes, votes, colour, fill) in enumerate((
            ("old client", old, old_votes, theme.blue, theme.blue_fill),
            ("new client", new, new_votes, theme.purple, theme.purple_fill),
        )):  # fmt: skip
            top = y + line * 38
            drawing.text(210, top + 20, label, size=13)
            for place, node in enumerate(NODES):
                if node in nodes:
                    votes_for = node in votes
                    x = 300 + place * 62
                    drawing.rect(
                        x,
                        top,
                        50,
                        30,
                        fill=fill if votes_for else "none",
                        stroke=colour if votes_for else theme.border,
                        dashed=not votes_for,
                    )
                    drawing.text(x + 25, top + 20, node, anchor="middle", mono=True, bold=votes_for)
        shared = set(old_votes) & set(new_votes)
        told = f"{', '.join(sorted(shared))} is in both" if shared else "no node in both"
        drawing.text(622, y + 38, told, size=13, colour=theme.green if safe else theme.red)
    drawing.text(
        20,
        332,
        "Filled: the nodes that voted. Where both majorities share a node, that node refuses the second holder.",
        size=12,
        colour=theme.muted,
    )
    return drawing.svg()


# -- figures ---------------------------------------------------------------------------------------------------------

LIBRARIES = {
    "redlock_async": "redlock_async",
    "node-redlock": "node-redlock",
    "redis-py's `Lock`, one node": "redis-py Lock, one node",
    "aioredlock": "aioredlock",
    "pottery": "pottery",
}
"""For each library in the picture, the beginning of its row in docs/performance.md."""

NUMBER = re.compile(r"([\d,.]+) ?(µs|ms)?")


def figures() -> dict[str, tuple[float, float]]:
    """Return pairs per second with 100 tasks, and the hand-over in ms, from the table of docs/performance.md."""
    found: dict[str, tuple[float, float]] = {}
    for line in (ROOT / "docs" / "performance.md").read_text("utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        name = cells[0].replace("**", "")
        for beginning, label in LIBRARIES.items():
            if line.startswith("| ") and len(cells) == 6 and name.startswith(beginning) and label not in found:  # noqa: PLR2004 - the columns
                found[label] = _number(cells[2]), _number(cells[4])
    assert len(found) == len(LIBRARIES), found  # noqa: S101 - a row was renamed
    return found


def _number(cell: str) -> float:
    number = NUMBER.match(cell)
    assert number is not None, cell  # noqa: S101 - a cell was changed
    return float(number[1].replace(",", "")) / (1000 if number[2] == "µs" else 1)


def performance(theme: Theme) -> str:
    """Draw throughput and hand-over of each library."""
    drawing = Drawing(760, 416, theme, "Throughput and hand-over by library")
    found = figures()
    panels: Sequence[tuple[int, str, int, Callable[[float], str], tuple[float, float]]] = (
        (34, "locks per second, 100 tasks (more is better)", 0, lambda value: f"{value:,.0f}", (1000, 40000)),
        (226, "hand-over to another process, median (less is better)", 1, lambda value: f"{value:.3g} ms", (0.2, 400)),
    )
    for top, title, index, shown, (least, most) in panels:
        drawing.text(20, top, title, bold=True)
        for row, (label, values) in enumerate(found.items()):
            y = top + 14 + row * 30
            ours = label == "redlock_async"
            length = 390 * math.log(values[index] / least) / math.log(most / least)
            drawing.text(20, y + 16, label, size=13, bold=ours)
            drawing.rect(
                210,
                y,
                length,
                22,
                fill=theme.green_fill if ours else theme.grey_fill,
                stroke=theme.green if ours else theme.border,
            )
            drawing.text(218 + length, y + 16, shown(values[index]), size=13, bold=ours)
    drawing.text(
        20,
        404,
        "Logarithmic. Five nodes and the client on two cores; the figures are those of the table below.",
        size=12,
        colour=theme.muted,
    )
    return drawing.svg()


# -- terminals -------------------------------------------------------------------------------------------------------

TERMINALS = {
    "demo": "redlock-async demo",
    "doctor": "redlock-async doctor",
    "locks": "redlock-async locks",
    "status": "redlock-async status --watch",
}
"""For each recording, the command."""


START = "without the lock:"
"""The demo's animation begins when its processes are started: with the frame that has these words."""


def terminal_picture(name: str, theme: Theme) -> str:
    """Draw a recording."""
    frames = [frame._replace(lines=_trimmed(frame.lines)) for frame in terminal.load(RECORDINGS / f"{name}.json")]
    frames = list(dropwhile(lambda frame: START not in "\n".join(terminal.text_of(frame)), frames[:-1])) + frames[-1:]
    frames = [*frames[:-1:2], frames[-1]]  # enough for the eye
    title = f"The output of {TERMINALS[name]}"
    return terminal.draw(frames, theme, title=title, prompt=f"$ {TERMINALS[name]}")


def _trimmed(lines: terminal.Lines) -> terminal.Lines:
    """Leave out empty lines at the end."""
    while lines and not any(text.strip() for text, _ in lines[-1]):
        lines = lines[:-1]
    return lines


# --------------------------------------------------------------------------------------------------------------------

DRAWN: dict[str, Callable[[Theme], str]] = {
    "choose": choose,
    "fence": fence,
    "node-sets": node_sets,
    "node-states": node_states,
    "performance": performance,
    "quorum": quorum,
}


def pictures() -> Iterator[tuple[str, str]]:
    """Return the file name and the content of every picture."""
    for theme in THEMES:
        for name, draw in DRAWN.items():
            yield f"{name}-{theme.name}.svg", draw(theme)
        for name in TERMINALS:
            yield f"{name}-{theme.name}.svg", terminal_picture(name, theme)


def main() -> None:
    """Write all pictures."""
    FOLDER.mkdir(exist_ok=True)
    for name, content in pictures():
        (FOLDER / name).write_text(content, "utf-8")


if __name__ == "__main__":
    main()
