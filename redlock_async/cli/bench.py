"""`bench`: measure the cost of locks on this cluster for a few seconds, with keys of its own that it then removes."""

# ruff: noqa: T201 - a command prints

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import TypeVar

import redlock_async

from . import DURATION, add_nodes, as_seconds, positive
from ._bench_load import HOT_TASKS, MAX_TASKS, TTL, Load
from ._bench_view import Text, as_json
from ._client import run_until_signal, silence_log
from ._nodes import environment
from ._table import MIN_WIDTH, wrap
from ._terminal import TO_LINE_END, is_live, is_plain, wants_colours

T = TypeVar("T")

MAX_SECONDS = 300.0
MAX_COUNTS = 10
ERASE = f"\r{TO_LINE_END}"
SHARES = {"nodes": 1, "one_task": 2, "tasks": 4, "hot_name": 1.5, "hand_over": 1.5}
"""The share of the time for each measurement."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.description = (
        "Measure the cost of locks on this cluster: round trips, latency, throughput, hand-over. It generates as much "
        "load as possible for the given time, with keys of its own that it removes at the end."
    )
    add_nodes(parser)
    parser.add_argument(
        "--seconds", type=_seconds, default=10.0, metavar="N", help="total duration of the measurements (default: 10)"
    )
    parser.add_argument(
        "--tasks",
        type=_counts,
        default=[1, 10, 100],
        metavar="N,...",
        help=f"numbers of concurrent tasks to measure, each up to {MAX_TASKS} (default: 1,10,100)",
    )
    parser.add_argument("--json", action="store_true", help="JSON instead of text; durations are in seconds")


def _seconds(text: str) -> float:
    seconds = as_seconds(text)
    if not 0 < seconds <= MAX_SECONDS:
        raise argparse.ArgumentTypeError(f"must be {DURATION}, more than 0 and at most {MAX_SECONDS:g}, got {text!r}")
    return seconds


def _counts(text: str) -> list[int]:
    counts = sorted({positive(part.strip()) for part in text.split(",")})
    if counts[-1] > MAX_TASKS:
        raise argparse.ArgumentTypeError(
            f"must be at most {MAX_TASKS} tasks, got {counts[-1]}: more could disturb other users of this cluster"
        )
    if len(counts) > MAX_COUNTS:
        raise argparse.ArgumentTypeError(f"must be at most {MAX_COUNTS} different numbers, got {len(counts)}")
    return counts


def run(arguments: argparse.Namespace) -> int:
    """Run the measurements, and return the exit status."""
    silence_log()
    environ = environment(arguments)
    load = Load(environ, arguments.tasks[-1])
    bench = Bench(load, arguments.seconds, arguments.tasks, as_json=arguments.json)
    return asyncio.run(run_until_signal(bench.measure(), busy=lambda: load.cleaning))


class Bench:
    """One run: measures, shows progress and prints the results."""

    def __init__(self, load: Load, seconds: float, counts: Sequence[int], *, as_json: bool) -> None:
        self.load = load
        self._seconds = seconds
        self._counts = counts
        self._as_json = as_json
        self._live = is_live(sys.stderr)
        self._steps = 0

    async def measure(self) -> None:
        """Run all measurements; print text after each of them, JSON at the end."""
        load, text = self.load, _text()
        async with load.opened(self._report) as nodes:
            self._announce(nodes)
            trips = await self._measure("the round trip", "nodes", load.round_trips)
            self._show(text.nodes(trips))
            one = await self._measure("one task", "one_task", load.one_task)
            self._show(text.latencies("one task, acquire + release", "pairs", one))
            rates = [await self._measure(f"{n} tasks", "tasks", partial(load.many_tasks, n)) for n in self._counts]
            self._show(text.tasks(rates))
            hot = await self._measure("one name", "hot_name", load.hot_name)
            self._show(text.hot(hot))
            handed = await self._measure("one name, two clients", "hand_over", load.hand_over)
            self._show(text.latencies("one name, to another client", "hand-overs", handed))
        if self._as_json:
            found = {"nodes": trips, "one_task": one, "tasks": rates, "hot_name": hot, "hand_over": handed}
            print(json.dumps({"seconds": self._seconds, **as_json(found)}, indent=1))

    async def _measure(self, title: str, share: str, measure: Callable[[float], Awaitable[T]]) -> T:
        self._steps += 1
        parts = len(self._counts) if share == "tasks" else 1
        seconds = self._seconds * SHARES[share] / sum(SHARES.values()) / parts
        if self._live:
            step = f"{self._steps} of {len(SHARES) - 1 + len(self._counts)}"
            print(f"{ERASE}{step}: {title}, {seconds:.1f} s ...", end="", file=sys.stderr, flush=True)
        try:
            return await measure(seconds)
        finally:
            if self._live:
                print(ERASE, end="", file=sys.stderr, flush=True)

    def _announce(self, nodes: Sequence[redlock_async.NodeStatus]) -> None:
        tasks = self._counts[-1]
        load = "1 task acquires and releases" if tasks == 1 else f"up to {tasks} tasks acquire and release"
        self._report(
            f"{len(nodes)} nodes, about {self._seconds:g} s of load: {load} locks as fast as the nodes answer, with "
            f"two commands per node and lock; then {HOT_TASKS} tasks contend for one name. Expect a high CPU load."
        )
        self._report(
            f"All keys start with {self.load.namespace} and are removed at the end; leases last {TTL:g} s. "
            "Press Ctrl-C to stop early."
        )

    def _show(self, lines: Iterable[str]) -> None:
        if not self._as_json:
            print("\n".join(lines), flush=True)

    def _report(self, message: str) -> None:
        if self._live:  # wrap on a terminal only: people search a file for whole messages
            message = "\n".join(wrap(message, max(shutil.get_terminal_size().columns - 1, MIN_WIDTH)))
        print(message, file=sys.stderr, flush=True)


def _text() -> Text:
    """Return a formatter for stdout."""
    out = sys.stdout
    colours = is_live(out) and wants_colours()
    return Text(shutil.get_terminal_size().columns, plain=is_plain(out), colours=colours)
