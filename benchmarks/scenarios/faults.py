"""Nodes freeze and die while locks are acquired."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import pairwise

from redis.asyncio import Redis

from benchmarks.timing import latencies, now, quantile

from ._base import FLOOR_AND_OURS, P50, P99, Figure, Process, Sample, Scenario, Setting, Stage, Unmeasured, fresh

BINS = 60
"""Number of points over a round."""


class Frozen(Scenario):
    """Latency before, during and after a freeze of some nodes, in one round."""

    figures = (
        P50, P99,
        Figure("factor50", "p50, times healthy", "x"),
        Figure("factor99", "p99, times healthy", "x"),
        Figure("worst", "slowest while frozen", "ms"),
    )  # fmt: skip
    setting = Setting(nodes=5, faults=True)
    needs = "trace"
    tasks = 10
    least = 1.5
    most_rounds = 2
    usual = FLOOR_AND_OURS
    frozen_from, frozen_to = 0.3, 0.75
    """Fractions of the round."""

    def __init__(self, frozen: int) -> None:
        self._frozen = range(frozen)
        self.name = f"frozen-{frozen}"
        self.title = f"{('one node', 'two nodes')[frozen - 1]} frozen: {self.tasks} tasks"

    async def measure(self, stage: Stage, seconds: float) -> Sample:
        cluster = stage.faults
        tracing = asyncio.ensure_future(_trace(stage.processes[0], fresh(self.name), self.tasks, seconds))
        begun = now()
        try:
            await asyncio.sleep(seconds * self.frozen_from)
            for node in self._frozen:
                cluster.pause(node)
            frozen_at = now()
            await asyncio.sleep(seconds * self.frozen_to - (now() - begun))
        finally:
            healed_at = now()
            for node in self._frozen:
                cluster.resume(node)
        course = await tracing
        # Wait until the nodes have caught up, so that their backlog does not affect the next contender.
        await _settled([stage.urls[node] for node in self._frozen])
        healthy = course.before(frozen_at - course.started)
        frozen = course.during(frozen_at - course.started, healed_at - course.started)
        return frozen | {
            "factor50": frozen["p50"] / healthy["p50"],
            "factor99": frozen["p99"] / healthy["p99"],
            "worst": frozen["latencies"][-1] / 1000,
            "series": course.latency(seconds / BINS),
            "marks": [[frozen_at - course.started, "frozen"], [healed_at - course.started, "healed"]],
        }


class Dying(Scenario):
    """Throughput while a node is killed, and while it comes back empty."""

    name = "dying"
    tasks = 10
    title = f"a node dies and comes back empty: {tasks} tasks"
    figures = (
        Figure("rate", "rate", "pairs/s", faster_is_more=True),
        Figure("gap", "longest without any pair", "ms"),
        Figure("errors", "errors", ""),
    )
    setting = Setting(nodes=5, faults=True)
    needs = "trace"
    least = 1.6
    most_rounds = 2
    usual = FLOOR_AND_OURS
    dead_from, dead_to = 0.25, 0.5
    """Fractions of the round."""

    async def measure(self, stage: Stage, seconds: float) -> Sample:
        cluster = stage.faults
        tracing = asyncio.ensure_future(_trace(stage.processes[0], fresh(self.name), self.tasks, seconds))
        begun = now()
        try:
            await asyncio.sleep(seconds * self.dead_from)
            cluster.kill(0)
            died_at = now()
            await asyncio.sleep(seconds * self.dead_to - (now() - begun))
        finally:
            cluster.restart(0)
            back_at = now()
        course = await tracing
        return {
            "rate": len(course.ends) / seconds,
            "gap": course.gap(seconds) * 1000,
            "errors": course.errors,
            "n": len(course.ends),
            "series": course.rate(seconds / BINS, seconds),
            "marks": [[died_at - course.started, "killed"], [back_at - course.started, "restarted"]],
        }


class Course:
    """Every pair of a round in the order of its end, in seconds since the start of the round."""

    def __init__(self, sample: Sample) -> None:
        self.started: float = sample["started"]
        pairs = sorted((end / 1e6, took / 1e6) for end, took in zip(sample["ends"], sample["took"], strict=True))
        self.ends: list[float] = [end for end, _ in pairs]
        self.took: list[float] = [took for _, took in pairs]
        self.errors: int = sum(sample["errors"].values())

    def before(self, end: float) -> Sample:
        """Return the latencies of the pairs that had ended by then."""
        return self._latencies([took for ended, took in zip(self.ends, self.took, strict=True) if ended < end])

    def during(self, start: float, end: float) -> Sample:
        """Return the latencies of the pairs that overlap with that time."""
        pairs = zip(self.ends, self.took, strict=True)
        return self._latencies([took for ended, took in pairs if ended >= start and ended - took < end])

    def _latencies(self, took: Sequence[float]) -> Sample:
        if not took:
            raise Unmeasured(f"no pair succeeded for a part of the round; {self.errors} errors")
        return latencies(took)

    def gap(self, seconds: float) -> float:
        """Return the longest time of the round in which no pair ended."""
        ends: list[float] = [0.0, *self.ends]
        return max(after - before for before, after in pairwise([*ends, max(seconds, ends[-1])]))

    def latency(self, width: float) -> list[list[float]]:
        """Return the median of each bin with pairs, in µs."""
        bins: dict[int, list[float]] = {}
        for end, took in zip(self.ends, self.took, strict=True):
            bins.setdefault(int(end / width), []).append(took)
        return [[round((i + 0.5) * width, 4), round(quantile(bins[i], 0.5) * 1e6, 1)] for i in sorted(bins)]

    def rate(self, width: float, seconds: float) -> list[list[float]]:
        """Return the pairs/s of each bin."""
        counts = [0] * round(seconds / width)
        for end in self.ends:
            if (i := int(end / width)) < len(counts):
                counts[i] += 1
        return [[round((i + 0.5) * width, 4), round(n / width, 1)] for i, n in enumerate(counts)]


async def _trace(process: Process, base: str, tasks: int, seconds: float) -> Course:
    return Course(await process.ask(do="trace", base=base, tasks=tasks, seconds=seconds))


async def _settled(urls: Sequence[str]) -> None:
    for url in urls:
        async with Redis.from_url(url) as client:
            await client.ping()
