"""One process, without faults."""

from __future__ import annotations

from ._base import P50, P99, RATE, Figure, Sample, Scenario, Stage, fresh


class OneTask(Scenario):
    """Latency: a single task acquires and releases. Its rate is the baseline for the throughput of many tasks."""

    name = "one"
    title = "one task: acquire + release"
    figures = (P50, P99, RATE)
    group = "tasks"
    at = 1

    async def measure(self, stage: Stage, seconds: float) -> Sample:
        return await stage.processes[0].ask(do="pairs", base=fresh(self.name), tasks=1, shared=False, seconds=seconds)


class Block(Scenario):
    """`async with` compared with plain pairs."""

    figures = (P50, P99, Figure("factor", "factor over acquire + release", "x"))
    needs = "block"

    def __init__(self, tasks: int = 1) -> None:
        self.name = "block" if tasks == 1 else f"block-{tasks}"
        self.title = "one task: async with" if tasks == 1 else f"{tasks} tasks on {tasks} names: async with"
        self._tasks = tasks

    async def measure(self, stage: Stage, seconds: float) -> Sample:
        return await stage.processes[0].ask(do="block", base=fresh(self.name), tasks=self._tasks, seconds=seconds)


class ManyTasks(Scenario):
    """Throughput: each task on its own name."""

    figures = (RATE, P50, P99)
    group = "tasks"

    def __init__(self, tasks: int) -> None:
        self.name = f"tasks-{tasks}"
        self.title = f"{tasks:,} tasks on {tasks:,} names"
        self.at = self._tasks = tasks

    async def measure(self, stage: Stage, seconds: float) -> Sample:
        return await stage.processes[0].ask(
            do="pairs", base=fresh(self.name), tasks=self._tasks, shared=False, seconds=seconds
        )


class HotName(Scenario):
    """Throughput: all tasks of one process contend for the same name."""

    name = "hot"
    tasks, each = 20, 5
    title = f"one contended name: {tasks} tasks, {each} pairs each"
    figures = (RATE, Figure("p50", "wait p50", "µs"), Figure("p99", "wait p99", "µs"))
    peer_rounds = 2

    async def measure(self, stage: Stage, seconds: float) -> Sample:
        return await stage.processes[0].ask(
            do="pairs", base=fresh(self.name), tasks=self.tasks, shared=True, seconds=seconds, each=self.each
        )
