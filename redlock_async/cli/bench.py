"""`bench`: what a lock costs on this cluster, measured for a few seconds on keys of its own, which it removes again."""

# ruff: noqa: T201 - printing is what it is for

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import shutil
import sys
import textwrap
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import TypeVar

import redlock_async

from . import add_nodes, positive
from ._bench_load import HOT_TASKS, MOST_TASKS, TTL, Load
from ._bench_view import NARROWEST, Text, as_json
from ._client import quiet, until_a_signal
from ._nodes import environment
from ._terminal import TO_LINE_END, is_live

T = TypeVar("T")

MOST_SECONDS = 300.0
MOST_COUNTS = 10
ERASE = f"\r{TO_LINE_END}"
SHARES = {"nodes": 1, "one_task": 2, "tasks": 4, "hot_name": 1.5, "hand_over": 1.5}
"""Of the time, for each thing that is measured."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add its arguments."""
    parser.description = (
        "Measure what locks cost on this cluster: round trips, latency, throughput, hand-over. It makes as much load "
        "as it can for the time given, on keys of its own, which it removes at the end."
    )
    add_nodes(parser)
    parser.add_argument(
        "--seconds", type=_seconds, default=10.0, metavar="N", help="how long to measure in all (default: 10)"
    )
    parser.add_argument(
        "--tasks",
        type=_counts,
        default=[1, 10, 100],
        metavar="N,...",
        help=f"numbers of tasks that lock at the same time, each up to {MOST_TASKS} (default: 1,10,100)",
    )
    parser.add_argument("--json", action="store_true", help="JSON instead of text; durations are in seconds")


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds <= MOST_SECONDS:
        raise argparse.ArgumentTypeError(
            f"must be a number of seconds, more than 0 and at most {MOST_SECONDS:g}, not {text!r}"
        )
    return seconds


def _counts(text: str) -> list[int]:
    counts = sorted({positive(part.strip()) for part in text.split(",")})
    if counts[-1] > MOST_TASKS:
        raise argparse.ArgumentTypeError(
            f"at most {MOST_TASKS} tasks at a time, for others use this cluster, too: not {counts[-1]}"
        )
    if len(counts) > MOST_COUNTS:
        raise argparse.ArgumentTypeError(f"at most {MOST_COUNTS} different numbers, not {len(counts)}")
    return counts


def run(arguments: argparse.Namespace) -> int:
    """Measure, and return the exit status."""
    quiet()
    environ = environment(arguments)
    load = Load(environ, arguments.tasks[-1])
    bench = Bench(load, arguments.seconds, arguments.tasks, as_json=arguments.json)
    return asyncio.run(until_a_signal(bench.measure(), busy=lambda: load.cleaning))


class Bench:
    """One run: what is measured, for how long, and where it is told."""

    def __init__(self, load: Load, seconds: float, counts: Sequence[int], *, as_json: bool) -> None:
        self.load = load
        self._seconds = seconds
        self._counts = counts
        self._as_json = as_json
        self._live = is_live(sys.stderr)
        self._steps = 0

    async def measure(self) -> None:
        """All of it; text is shown as soon as there is any, JSON at the end."""
        load, text = self.load, _text()
        async with load.opened(self._tell) as nodes:
            self._announce(nodes)
            trips = await self._do("the round trip", "nodes", load.round_trips)
            self._show(text.nodes(trips))
            one = await self._do("one task", "one_task", load.one_task)
            self._show(text.latencies("one task, acquire + release", "pairs", one))
            rates = [await self._do(f"{n} tasks", "tasks", partial(load.many_tasks, n)) for n in self._counts]
            self._show(text.tasks(rates))
            hot = await self._do("one name", "hot_name", load.hot_name)
            self._show(text.hot(hot))
            handed = await self._do("one name, two clients", "hand_over", load.hand_over)
            self._show(text.latencies("one name, to another client", "hand-overs", handed))
        if self._as_json:
            found = {"nodes": trips, "one_task": one, "tasks": rates, "hot_name": hot, "hand_over": handed}
            print(json.dumps({"seconds": self._seconds, **as_json(found)}, indent=1))

    async def _do(self, what: str, share: str, measure: Callable[[float], Awaitable[T]]) -> T:
        self._steps += 1
        parts = len(self._counts) if share == "tasks" else 1
        seconds = self._seconds * SHARES[share] / sum(SHARES.values()) / parts
        if self._live:
            step = f"{self._steps} of {len(SHARES) - 1 + len(self._counts)}"
            print(f"{ERASE}{step}: {what}, {seconds:.1f} s ...", end="", file=sys.stderr, flush=True)
        try:
            return await measure(seconds)
        finally:
            if self._live:
                print(ERASE, end="", file=sys.stderr, flush=True)

    def _announce(self, nodes: Sequence[redlock_async.NodeStatus]) -> None:
        most = self._counts[-1]
        busy = "1 task locks and unlocks" if most == 1 else f"up to {most} tasks lock and unlock"
        self._tell(
            f"{len(nodes)} masters, about {self._seconds:g} s of load: {busy} as fast as they answer, with two "
            f"commands to each of them a time; and {HOT_TASKS} tasks do so on one name. Expect busy processors."
        )
        self._tell(
            f"All keys begin with {self.load.namespace} and are removed at the end; leases last {TTL:g} s. "
            "Ctrl-C ends it early."
        )

    def _show(self, lines: Iterable[str]) -> None:
        if not self._as_json:
            print("\n".join(lines), flush=True)

    def _tell(self, words: str) -> None:
        if self._live:  # a file can be searched, a terminal is read
            words = textwrap.fill(words, max(shutil.get_terminal_size().columns - 1, NARROWEST))
        print(words, file=sys.stderr, flush=True)


def _text() -> Text:
    """Made for stdout."""
    out = sys.stdout
    plain = out is None or not (out.encoding or "").lower().startswith("utf")
    colours = is_live(out) and not os.environ.get("NO_COLOR")
    return Text(shutil.get_terminal_size().columns, plain=plain, colours=colours)
