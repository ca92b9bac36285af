"""`demo`: processes contend for one lock while nodes fail, and the final count shows whether the lock held.

The demo hides no failure: a lost update, a failed process or a fence out of order makes it fail.
"""

# ruff: noqa: T201 - a command prints

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import redlock_async
from redlock_async.testing import LocalCluster

from . import PROG, positive
from ._client import cancel_all, silence_log
from ._demo_nodes import DemoNodes
from ._demo_record import Record
from ._demo_view import DemoState, LiveView, PlainView, View
from ._demo_workers import WorkerError, Workers
from ._terminal import Screen, is_live

NODES = 5
TTL = 2.0
SHORTEST, LONGEST = 4.0, 8.5
"""Seconds of the guarded part, with few increments and with many."""
SECONDS_PER_INCREMENT = 0.0085
"""Seconds for each increment, between these two bounds."""
FRAME_INTERVAL = 0.1
TRIES = 10


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "--processes",
        type=_at_least_two,
        default=4,
        metavar="N",
        help="processes that contend for the lock (default: %(default)s)",
    )
    parser.add_argument(
        "--increments",
        type=positive,
        default=250,
        metavar="N",
        help="increments of each process (default: %(default)s)",
    )


def _at_least_two(text: str) -> int:
    number = positive(text)
    if number == 1:
        raise argparse.ArgumentTypeError(f"must be at least 2, got {text!r}: a single process has no competitor")
    return number


def run(arguments: argparse.Namespace) -> int:
    """Run the demo; return 0 only if the guarded count is right and every fence is greater than the previous one."""
    silence_log()  # the view shows what the library reports
    try:
        return asyncio.run(_run_demo(arguments.processes, arguments.increments))
    except asyncio.CancelledError:
        return 128 + signal.SIGTERM


async def _run_demo(processes: int, increments: int) -> int:
    if (task := asyncio.current_task()) is not None:
        for number in (signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    problem = None
    with tempfile.TemporaryDirectory(prefix="redlock-demo-") as folder, Record(Path(folder)) as record:
        async with (
            LocalCluster(NODES, new_cluster=True) as cluster,
            redlock_async.Redlock(cluster.urls, ttl=TTL, owner="demo") as redlock,
        ):
            state = DemoState(processes, increments, DemoNodes(cluster, redlock), record)
            pause = 0.8 * _span(state) / state.total  # the remaining time is for locking
            workers = Workers(
                processes, increments=increments, pause=pause, folder=Path(folder), urls=cluster.urls, ttl=TTL
            )
            with _view(state) as view:
                try:
                    await _run_with(
                        _scenario(workers, state, view), state.nodes.watch(view.report), _draw_frames(state, view)
                    )
                except WorkerError as error:
                    problem = str(error)
                record.read()
                state.done = True
                view.show()
        return _verdict(state, problem)


def _span(state: DemoState) -> float:
    """Return about how many seconds the guarded part takes."""
    return min(max(state.total * SECONDS_PER_INCREMENT, SHORTEST), LONGEST)


@contextmanager
def _view(state: DemoState) -> Iterator[View]:
    if is_live(sys.stdout):
        with Screen(sys.stdout) as screen:
            yield LiveView(screen, state)
    else:
        yield PlainView(sys.stdout, state)


async def _run_with(work: Coroutine[Any, Any, None], *others: Coroutine[Any, Any, None]) -> None:
    """Run `work` together with the others until it is done, or until one of them fails."""
    tasks = [asyncio.ensure_future(coroutine) for coroutine in (work, *others)]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        await cancel_all(tasks)


async def _draw_frames(state: DemoState, view: View) -> None:
    while True:
        state.record.read()
        view.show()
        await asyncio.sleep(FRAME_INTERVAL)


async def _scenario(workers: Workers, state: DemoState, view: View) -> None:
    """Count first without the lock, then with it while nodes fail."""
    view.action(f"started {NODES} nodes, starting {state.processes} processes")
    async with workers:
        view.action("without the lock: each process reads the counter and writes it back plus 1")
        await _unguarded(workers, state, view)
        view.action("now with the lock")
        await asyncio.gather(workers.execute("guarded"), _cause_faults(state, view))
        view.action("the processes are done")


async def _unguarded(workers: Workers, state: DemoState, view: View) -> None:
    """Count without the lock, and repeat it if by chance the processes did not overlap and lost nothing."""
    for _ in range(TRIES):
        state.record.reset_unguarded()
        await workers.execute("unguarded")
        state.record.read()
        if state.unguarded_lost:
            break
    state.unguarded_done = True
    view.action(f"{state.unguarded_lost} of {state.total} updates were lost")


async def _cause_faults(state: DemoState, view: View) -> None:
    """Kill one node, freeze another, and bring both back, while the processes take turns with the lock."""
    nodes, span = state.nodes, _span(state)
    killed, frozen = 1, 3
    steps: list[tuple[float, Callable[[int], str], int]] = [
        (0.08, nodes.kill, killed),
        (0.17, nodes.freeze, frozen),
        (0.27, nodes.thaw, frozen),
        (0.10, nodes.restart, killed),
    ]
    for share, fault, node in steps:
        await asyncio.sleep(share * span)
        view.action(fault(node))
    await nodes.wait_until_quarantined(killed)


def _verdict(state: DemoState, problem: str | None) -> int:
    """Print the outcome, and return the exit status. Other programs parse the last two lines."""
    record, total = state.record, state.total
    if problem is None:
        problem = _wrong(state)
    print()
    if problem is None:
        print(f"fencing tokens: {record.intervals}, each greater than the previous one")
        print(f"longest gap between two holders: {record.longest_gap * 1000:.0f} ms")
    else:
        print(f"{PROG}: {problem}", file=sys.stderr)
    print(f"guarded counter: {record.guarded} of {total}")
    print(f"unguarded counter: {record.unguarded} of {total} ({state.unguarded_lost} updates lost)")
    return 0 if problem is None else 1


def _wrong(state: DemoState) -> str | None:
    """Return which guarantee the lock broke, or None."""
    record, total = state.record, state.total
    if record.guarded != total:
        return f"the lock failed: {total - record.guarded} of {total} guarded updates were lost"
    if record.inversion is not None:
        before, after = record.inversion
        return (
            f"fencing failed: process {after.process} got fence {after.fence}, which is not greater than the previous "
            f"fence {before.fence} of process {before.process}"
        )
    if record.intervals != total:
        return f"fencing failed: {record.intervals} of {total} holders recorded their fence"
    return None
