"""`status`: the masters, once or live; it changes nothing."""

# ruff: noqa: T201 - printing is what it is for

from __future__ import annotations

import argparse
import asyncio
import json
import math
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence

import redlock_async

from . import add_nodes
from ._client import client, until_a_signal
from ._node_view import as_json, masters, needed, summary, voting, with_history
from ._nodes import NO_QUORUM
from ._terminal import Line, Paper, Screen, Span, harmless, is_live
from ._words import trouble

SHORTEST, LONGEST = 0.1, 3600.0
KEPT = 400
"""Latencies kept of each master, and the widest history that is drawn."""

EVENTS = 200
"""Lines kept of what has happened."""

CHANGES = {"node_up": ("is back", "green"), "node_down": ("went down", "red"), "node_held_out": ("held out", "yellow")}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add its arguments."""
    parser.description = (
        "Show the masters: which of them vote, how long they take to answer, since when they have their data, their "
        "clock against ours, persistence and eviction. The exit status is 69 if there is no quorum."
    )
    parser.add_argument(
        "--watch",
        action="store_true",
        help="again and again, until Ctrl-C: in place on a terminal, appended elsewhere, a line each with --json",
    )
    parser.add_argument(
        "--interval", type=_interval, default=1.0, metavar="S", help="seconds between two looks (default: 1)"
    )
    parser.add_argument("--json", action="store_true", help="JSON instead of a table; durations are in seconds")
    add_nodes(parser)


def _interval(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not SHORTEST <= seconds <= LONGEST:
        raise argparse.ArgumentTypeError(f"must be a number of seconds from {SHORTEST:g} to {LONGEST:g}, not {text!r}")
    return seconds


def run(arguments: argparse.Namespace) -> int:
    """Show them."""
    redlock = client(arguments)
    if not arguments.watch:
        return asyncio.run(_once(redlock, as_text=not arguments.json))
    watch = Watch(redlock, arguments.interval)
    text = watch.redrawn if is_live(sys.stdout) else watch.appended
    return asyncio.run(until_a_signal(watch.as_lines() if arguments.json else text()))


async def _once(redlock: redlock_async.Redlock, *, as_text: bool) -> int:
    try:
        nodes = await redlock.status()
    finally:
        await redlock.aclose()
    if as_text:
        paper = Paper(sys.stdout)
        paper.write([*masters(nodes, paper.width), [], summary(nodes)])
    else:
        print(json.dumps(as_json(nodes), indent=1))
    return 0 if voting(nodes) >= needed(nodes) else NO_QUORUM


class Watch:
    """The masters, looked at again and again, and what has happened to them meanwhile."""

    def __init__(self, redlock: redlock_async.Redlock, interval: float) -> None:
        self._redlock = redlock
        self._interval = interval
        self._latencies: dict[str, deque[float | None]] = {}
        self._events: deque[Line] = deque(maxlen=EVENTS)

    async def redrawn(self) -> None:
        """On a terminal: the last look, in place."""
        with Screen(sys.stdout) as screen:

            def draw(nodes: Sequence[redlock_async.NodeStatus]) -> None:
                rows, width = screen.size.lines - 1, screen.size.columns - 1
                screen.draw(list(self._frame(nodes, rows, width, plain=screen.plain)))

            await self._look(draw)

    async def appended(self) -> None:
        """Into a pipe or a file: each look below the one before."""
        paper = Paper(sys.stdout)

        def write(nodes: Sequence[redlock_async.NodeStatus]) -> None:
            happened = list(self._events)
            self._events.clear()
            paper.write([[Span(_clock(date=True))], *happened, *masters(nodes, None), summary(nodes), []])

        await self._look(write)

    async def as_lines(self) -> None:
        """For programs: each look in a line."""

        def write(nodes: Sequence[redlock_async.NodeStatus]) -> None:
            print(json.dumps({"at": time.time(), **as_json(nodes)}), flush=True)

        await self._look(write)

    async def _look(self, show: Callable[[Sequence[redlock_async.NodeStatus]], object]) -> None:
        loop = asyncio.get_running_loop()
        try:
            await self._redlock.status()  # that all of them come up is no news yet
            self._redlock.on_event(self._heard)
            while True:
                began = loop.time()
                nodes = await self._redlock.status()
                for node in nodes:
                    self._latencies.setdefault(node.label, deque(maxlen=KEPT)).append(node.latency)
                show(nodes)
                await asyncio.sleep(max(self._interval - (loop.time() - began), 0.0))
        finally:
            await self._redlock.aclose()

    def _heard(self, event: redlock_async.Event) -> None:
        if event.kind not in CHANGES or event.node is None:
            return
        what, style = CHANGES[event.kind]
        if event.kind == "node_held_out" and event.seconds is not None:
            what += f" for {event.seconds:.1f} s: it came back without its data"
        elif event.error is not None:
            what += f": {harmless(trouble(str(event.error)))}"
        self._events.append([Span(f"{_clock()}  "), Span(f"{harmless(event.node)} {what}", style)])

    def _frame(
        self, nodes: Sequence[redlock_async.NodeStatus], rows: int, width: int, *, plain: bool
    ) -> Iterator[Line]:
        history = {label: tuple(values) for label, values in self._latencies.items()}
        table = list(with_history(nodes, width, history, plain=plain))
        top = [[*summary(nodes), Span(f"   {_clock()}", "dim")], [], *table]
        room = rows - len(top) - 1
        yield from top
        if room > 0 and self._events:
            yield []
            yield from list(self._events)[-room:]


def _clock(*, date: bool = False) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S" if date else "%H:%M:%S")
