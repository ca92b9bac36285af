"""`demo`: processes contend for one lock while masters fail, and the count at the end is right, or it says so.

It shows what the library does and works around nothing: a lost update, a failed process or a fence out of order is its
failure.
"""

# ruff: noqa: T201 - printing is what it is for

from __future__ import annotations

import argparse
import asyncio
import logging
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
from ._demo_crew import Crew, WorkerError
from ._demo_masters import Masters
from ._demo_record import Record
from ._demo_view import LiveView, PlainView, Stage, View
from ._terminal import Screen, is_live

MASTERS = 5
TTL = 2.0
SHORTEST, LONGEST = 4.0, 8.5
"""Seconds for the guarded part, with few increments and with many."""
EACH = 0.0085
"""Seconds for an increment, between those two."""
FRAME = 0.1
TRIES = 10


def configure(parser: argparse.ArgumentParser) -> None:
    """Add its arguments."""
    parser.add_argument("--processes", type=_several, default=4, metavar="N", help="contenders (default: %(default)s)")
    parser.add_argument(
        "--increments", type=positive, default=250, metavar="N", help="of each process (default: %(default)s)"
    )


def _several(text: str) -> int:
    number = positive(text)
    if number == 1:
        raise argparse.ArgumentTypeError("one process has nobody to contend with: at least 2")
    return number


def run(arguments: argparse.Namespace) -> int:
    """Play it; returns 0 only if the guarded count is right and every fence is greater than the one before."""
    logging.getLogger("redlock_async").addHandler(logging.NullHandler())  # we show what it reports
    try:
        return asyncio.run(_play(arguments.processes, arguments.increments))
    except asyncio.CancelledError:
        return 128 + signal.SIGTERM


async def _play(processes: int, increments: int) -> int:
    if (task := asyncio.current_task()) is not None:
        for number in (signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    problem = None
    with tempfile.TemporaryDirectory(prefix="redlock-demo-") as folder, Record(Path(folder)) as record:
        async with (
            LocalCluster(MASTERS) as cluster,
            redlock_async.Redlock(cluster.urls, ttl=TTL, owner="demo") as redlock,
        ):
            stage = Stage(processes, increments, Masters(cluster, redlock), record)
            pause = 0.8 * _span(stage) / stage.total  # what is left is for the locking
            crew = Crew(processes, increments=increments, pause=pause, folder=Path(folder), urls=cluster.urls, ttl=TTL)
            with _view(stage) as view:
                try:
                    await _beside(_act(crew, stage, view), stage.masters.watch(view.news), _every_frame(stage, view))
                except WorkerError as error:
                    problem = str(error)
                record.read()
                stage.over = True
                view.show()
        return _verdict(stage, problem)


def _span(stage: Stage) -> float:
    """Seconds that the guarded part takes about."""
    return min(max(stage.total * EACH, SHORTEST), LONGEST)


@contextmanager
def _view(stage: Stage) -> Iterator[View]:
    if is_live(sys.stdout):
        with Screen(sys.stdout) as screen:
            yield LiveView(screen, stage)
    else:
        yield PlainView(sys.stdout, stage)


async def _beside(work: Coroutine[Any, Any, None], *others: Coroutine[Any, Any, None]) -> None:
    """Do the work; the others go on until it is done, or end it if they fail."""
    tasks = [asyncio.ensure_future(each) for each in (work, *others)]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _every_frame(stage: Stage, view: View) -> None:
    while True:
        stage.record.read()
        view.show()
        await asyncio.sleep(FRAME)


async def _act(crew: Crew, stage: Stage, view: View) -> None:
    """First without the lock; then with it, while masters fail."""
    view.deed(f"started {MASTERS} masters, starting {stage.processes} processes")
    async with crew:
        view.deed("without the lock: each reads, pauses, writes back plus 1")
        await _unguarded(crew, stage, view)
        view.deed("now they do the same under the lock")
        await asyncio.gather(crew.do("guarded"), _fail(stage, view))
        view.deed("the processes are done")


async def _unguarded(crew: Crew, stage: Stage, view: View) -> None:
    """Nobody can promise that processes overlap; where they did not, there was nothing to see."""
    for _ in range(TRIES):
        stage.record.forget_unguarded()
        await crew.do("unguarded")
        stage.record.read()
        if stage.unguarded_lost:
            break
    stage.unguarded_over = True
    view.deed(f"{stage.unguarded_lost} of {stage.total} updates were lost")


async def _fail(stage: Stage, view: View) -> None:
    """Kill one master, freeze another, and bring both back, while the lock is handed on."""
    masters, span = stage.masters, _span(stage)
    killed, frozen = 1, 3
    steps: list[tuple[float, Callable[[int], str], int]] = [
        (0.08, masters.kill, killed),
        (0.17, masters.freeze, frozen),
        (0.27, masters.thaw, frozen),
        (0.10, masters.restart, killed),
    ]
    for share, fault, master in steps:
        await asyncio.sleep(share * span)
        view.deed(fault(master))
    await masters.seen_again(killed)


def _verdict(stage: Stage, problem: str | None) -> int:
    """Say how it ended. Other programs read the last two lines."""
    record, total = stage.record, stage.total
    if problem is None:
        problem = _wrong(stage)
    print()
    if problem is None:
        print(f"fencing tokens: {record.holds}, each greater than the one before")
        print(f"longest gap between two holders: {record.longest_gap * 1000:.0f} ms")
    else:
        print(f"{PROG}: {problem}", file=sys.stderr)
    print(f"guarded counter: {record.guarded} of {total}")
    print(f"unguarded counter: {record.unguarded} of {total} ({stage.unguarded_lost} updates lost)")
    return 0 if problem is None else 1


def _wrong(stage: Stage) -> str | None:
    """What the lock did not keep of its promises."""
    record, total = stage.record, stage.total
    if record.guarded != total:
        return f"the lock failed: {total - record.guarded} of {total} guarded updates were lost"
    if record.inversion is not None:
        before, after = record.inversion
        return (
            f"fencing failed: process {after.process} had fence {after.fence}, no greater than {before.fence} of "
            f"process {before.process} before it"
        )
    if record.holds != total:
        return f"{record.holds} holders left their fence, not {total}"
    return None
