"""`status`: show the nodes, once or live. It changes nothing."""

# ruff: noqa: T201 - a command prints

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence

import redlock_async

from . import DURATION, add_nodes, as_seconds
from ._client import client, run_until_signal
from ._messages import short_cause
from ._node_view import as_json, count_votes, node_table, node_table_with_history, summary
from ._nodes import NO_QUORUM
from ._terminal import Line, Printer, Screen, Span, is_live, sanitize

MIN_INTERVAL, MAX_INTERVAL = 0.1, 3600.0
HISTORY = 400
"""Latencies kept for each node, which limits the width of the plot."""

EVENTS = 200
"""Events kept."""

CHANGES = {
    "node_up": ("is back", "green"),
    "node_down": ("went down", "red"),
    "node_quarantined": ("is quarantined", "warning"),
    "node_votes_again": ("votes again", "green"),
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.description = (
        "Show the nodes: whether they vote, their latency, the age of their data, the offset of their clocks from this "
        "machine's, persistence and eviction. The exit status is 69 if there is no quorum."
    )
    parser.add_argument(
        "--watch",
        action="store_true",
        help="refresh until Ctrl-C: in place on a terminal, appended otherwise; with --json one line per refresh",
    )
    parser.add_argument(
        "--interval", type=_interval, default=1.0, metavar="S", help="seconds between two refreshes (default: 1)"
    )
    parser.add_argument("--json", action="store_true", help="JSON instead of a table; durations are in seconds")
    add_nodes(parser)


def _interval(text: str) -> float:
    seconds = as_seconds(text)
    if not MIN_INTERVAL <= seconds <= MAX_INTERVAL:
        raise argparse.ArgumentTypeError(f"must be {DURATION}, from {MIN_INTERVAL:g} to {MAX_INTERVAL:g}, got {text!r}")
    return seconds


def run(arguments: argparse.Namespace) -> int:
    """Show the nodes, and return the exit status."""
    redlock = client(arguments)
    if not arguments.watch:
        return asyncio.run(_once(redlock, as_text=not arguments.json))
    watch = Watch(redlock, arguments.interval)
    text = watch.redrawn if is_live(sys.stdout) else watch.appended
    return asyncio.run(run_until_signal(watch.as_lines() if arguments.json else text()))


async def _once(redlock: redlock_async.Redlock, *, as_text: bool) -> int:
    quorum = redlock.statistics().quorum
    try:
        nodes = await redlock.status()
    finally:
        await redlock.aclose()
    if as_text:
        printer = Printer(sys.stdout)
        printer.write([*node_table(nodes, printer.width), [], summary(nodes, quorum)])
    else:
        print(json.dumps(as_json(nodes, quorum), indent=1))
    votes, needed = count_votes(nodes, quorum)
    return 0 if votes >= needed else NO_QUORUM


class Watch:
    """Polls the nodes, and records their latencies and events."""

    def __init__(self, redlock: redlock_async.Redlock, interval: float) -> None:
        self._redlock = redlock
        self._quorum = redlock.statistics().quorum
        self._interval = interval
        self._latencies: dict[str, deque[float | None]] = {}
        self._events: deque[Line] = deque(maxlen=EVENTS)

    async def redrawn(self) -> None:
        """Redraw the current state in place, on a terminal."""
        with Screen(sys.stdout) as screen:

            def draw(nodes: Sequence[redlock_async.NodeStatus]) -> None:
                rows, width = screen.size.lines - 1, screen.size.columns - 1
                screen.draw(list(self._frame(nodes, rows, width, plain=screen.plain)))

            await self._poll(draw)

    async def appended(self) -> None:
        """Append each refresh to a pipe or a file."""
        printer = Printer(sys.stdout)

        def write(nodes: Sequence[redlock_async.NodeStatus]) -> None:
            events = list(self._events)
            self._events.clear()
            printer.write(
                [[Span(_clock(date=True))], *events, *node_table(nodes, None), summary(nodes, self._quorum), []]
            )

        await self._poll(write)

    async def as_lines(self) -> None:
        """Print each refresh as a line of JSON."""

        def write(nodes: Sequence[redlock_async.NodeStatus]) -> None:
            print(json.dumps({"at": time.time(), **as_json(nodes, self._quorum)}), flush=True)

        await self._poll(write)

    async def _poll(self, show: Callable[[Sequence[redlock_async.NodeStatus]], object]) -> None:
        loop = asyncio.get_running_loop()
        try:
            await self._redlock.status()  # connect first, so that this does not count as an event
            self._redlock.on_event(self._on_event)
            while True:
                started = loop.time()
                nodes = await self._redlock.status()
                for node in nodes:
                    self._latencies.setdefault(node.label, deque(maxlen=HISTORY)).append(node.latency)
                show(nodes)
                await asyncio.sleep(max(self._interval - (loop.time() - started), 0.0))
        finally:
            await self._redlock.aclose()

    def _on_event(self, event: redlock_async.Event) -> None:
        if event.kind not in CHANGES or event.node is None:
            return
        change, style = CHANGES[event.kind]
        if event.kind == "node_quarantined" and event.seconds is not None:
            change += f" for {event.seconds:.1f} s: {sanitize(str(event.error).partition(': ')[0])}"
        elif event.error is not None:
            change += f": {sanitize(short_cause(str(event.error)))}"
        self._events.append([Span(f"{_clock()}  "), Span(f"{sanitize(event.node)} {change}", style)])

    def _frame(
        self, nodes: Sequence[redlock_async.NodeStatus], rows: int, width: int, *, plain: bool
    ) -> Iterator[Line]:
        history = {label: tuple(values) for label, values in self._latencies.items()}
        table = list(node_table_with_history(nodes, width, history, plain=plain))
        top = [[*summary(nodes, self._quorum), Span(f"   {_clock()}", "dim")], [], *table]
        room = rows - len(top) - 1
        yield from top
        if room > 0 and self._events:
            yield []
            yield from list(self._events)[-room:]


def _clock(*, date: bool = False) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S" if date else "%H:%M:%S")
