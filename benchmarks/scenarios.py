"""What is measured. `run` happens in a contender's own process, which may lack everything but the standard library."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Protocol

from .contenders import Contender, Entry

Sample = dict[str, float]
"""What one round of one contender yields: a value for each figure, and `n`, out of how many."""

now = time.perf_counter


class Process(Protocol):
    """A contender in a process of its own."""

    async def ask(self, **request: object) -> Sample:
        """Have it do something; returns what it measured."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A number that a scenario yields."""

    key: str
    label: str
    unit: str
    faster_is_more: bool = False


P50 = Figure("p50", "p50", "µs")
P99 = Figure("p99", "p99", "µs")
RATE = Figure("rate", "rate", "pairs/s", faster_is_more=True)


class Scenario(ABC):
    """One thing to do, the same for every contender."""

    name: str
    title: str
    figures: tuple[Figure, ...]

    def fits(self, entry: Entry) -> bool:  # noqa: ARG002 - most fit everybody
        """Whether that contender has what it takes."""
        return True

    async def measure(self, process: Process, partner: Process, seconds: float) -> Sample:  # noqa: ARG002
        """One round, seen from the parent: `partner` is a second process of the same contender."""
        return await process.ask(do="run", scenario=self.name, seconds=seconds)

    @abstractmethod
    async def run(self, contender: Contender, seconds: float) -> Sample:
        """One round, within the contender's process."""


class OneTask(Scenario):
    """Latency: a single task acquires and releases."""

    name = "one"
    title = "one task: acquire + release"
    figures = (P50, P99)

    async def run(self, contender: Contender, seconds: float) -> Sample:
        took = await pairs(contender, _fresh("one"), now() + seconds)
        return latencies(took)


class Block(Scenario):
    """`async with` beside the same pairs without, in turns of a few."""

    name = "block"
    title = "one task: async with"
    figures = (P50, P99, Figure("factor", "factor over acquire + release", "x"))
    turn = 20

    def fits(self, entry: Entry) -> bool:
        return entry.has_block

    async def run(self, contender: Contender, seconds: float) -> Sample:
        name, end = _fresh("block"), now() + seconds
        blocks: list[float] = []
        bare: list[float] = []
        while not blocks or now() < end:
            bare += await pairs(contender, name, end, most=self.turn)
            for _ in range(self.turn):
                started = now()
                block = contender.block(name)
                assert block is not None  # noqa: S101 - it fits
                async with block:
                    pass
                blocks.append(now() - started)
        return latencies(blocks) | {"factor": quantile(blocks, 0.5) / quantile(bare, 0.5)}


class ManyTasks(Scenario):
    """Throughput: each task on a name of its own."""

    figures = (RATE,)

    def __init__(self, name: str, tasks: int) -> None:
        self.name = name
        self.title = f"{tasks} tasks on {tasks} names"
        self._tasks = tasks

    async def run(self, contender: Contender, seconds: float) -> Sample:
        base = _fresh(self.name)
        started = now()
        tasks = [pairs(contender, f"{base}:{i}", started + seconds) for i in range(self._tasks)]
        done = sum(map(len, await asyncio.gather(*tasks)))
        return {"rate": done / (now() - started), "n": done}


class HotName(Scenario):
    """Throughput: all tasks of one process want the same name."""

    name = "hot"
    tasks, each = 20, 5
    title = f"one hot name: {tasks} tasks, {each} pairs each"
    figures = (RATE,)

    async def run(self, contender: Contender, seconds: float) -> Sample:
        done, started = 0, now()
        while not done or now() - started < seconds:
            name = _fresh("hot")
            await asyncio.gather(*(self._five(contender, name) for _ in range(self.tasks)))
            done += self.tasks * self.each
        return {"rate": done / (now() - started), "n": done}

    async def _five(self, contender: Contender, name: str) -> None:
        for _ in range(self.each):
            held = await contender.acquire(name)
            await contender.release(held)


class HandOver(Scenario):
    """From a release to the acquire of the one who waits for it in another process."""

    name = "handover"
    title = "hand-over to another process"
    figures = (P50, P99)
    settle = 0.01
    """Seconds for the other process to have begun to wait."""
    least = 3
    """Hand-overs a round, however slow they are."""

    async def measure(self, process: Process, partner: Process, seconds: float) -> Sample:
        holder, waiter = process, partner
        name, end = _fresh("handover"), now() + seconds
        took: list[float] = []
        await holder.ask(do="acquire", name=name)
        while len(took) < self.least or now() < end:
            waiting = asyncio.ensure_future(waiter.ask(do="acquire", name=name))
            await asyncio.sleep(self.settle)
            released = await holder.ask(do="release")
            # perf_counter is one clock for all processes of a machine.
            took.append((await waiting)["at"] - released["at"])
            holder, waiter = waiter, holder
        await holder.ask(do="release")
        return latencies(took)

    async def run(self, contender: Contender, seconds: float) -> Sample:
        raise NotImplementedError("it takes two processes")


SCENARIOS: tuple[Scenario, ...] = (
    OneTask(), Block(), ManyTasks("ten", 10), ManyTasks("hundred", 100), HotName(), HandOver(),
)  # fmt: skip

BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}


async def pairs(contender: Contender, name: str, end: float, *, most: int | None = None) -> list[float]:
    """Acquire and release until the time is up, at least once; returns how long each took."""
    acquire, release = contender.acquire, contender.release
    took: list[float] = []
    started = now()
    while True:
        await release(await acquire(name))
        ended = now()
        took.append(ended - started)
        if ended >= end or len(took) == most:
            return took
        started = ended


def latencies(took: Sequence[float]) -> Sample:
    """Seconds as the usual figures, in µs."""
    return {"p50": quantile(took, 0.5) * 1e6, "p99": quantile(took, 0.99) * 1e6, "n": len(took)}


def quantile(values: Sequence[float], part: float) -> float:
    """The value below which that part of them lies."""
    ranked = sorted(values)
    return ranked[min(int(len(ranked) * part), len(ranked) - 1)]


_numbers = count()


def _fresh(what: str) -> str:
    """A name nobody holds: no round inherits from another."""
    return f"bench:{what}:{time.time_ns():x}:{next(_numbers)}"
