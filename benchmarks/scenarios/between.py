"""Several processes contend for the same name."""

from __future__ import annotations

import asyncio
from typing import Any

from benchmarks.timing import latencies, now, together

from ._base import FLOOR_AND_OURS, OURS, P50, P99, Figure, Sample, Scenario, Setting, Stage, fresh


class HandOver(Scenario):
    """Time from a release to the acquire of a waiter in another process."""

    processes = 2
    peer_rounds = 2
    wanted = 3
    """Minimum number of hand-overs per round."""
    settled = 0.01
    """Minimum seconds until the other process waits."""
    attempts = 4
    """Number of acquires that fit into this time."""

    def __init__(self, round_trip_ms: float = 0.0) -> None:
        self._round_trip = round_trip_ms / 1000
        self.name, self.title = "handover", "hand-over to another process"
        self.figures: tuple[Figure, ...] = (P50, P99)
        if round_trip_ms:
            self.name += f"-{round_trip_ms:g}ms"
            self.title += f", nodes {round_trip_ms:g} ms away"
            self.figures += (Figure("trips", "round trips", "trips"),)
            self.setting = Setting(nodes=5, round_trip_ms=round_trip_ms)
            self.least = 20 * self._round_trip
            self.most_rounds = 3
            self.usual = FLOOR_AND_OURS

    async def measure(self, stage: Stage, seconds: float) -> Sample:
        holder, waiter = stage.processes
        name, started = fresh(self.name), now()
        await holder.ask(do="acquire", name=name)
        settle = max(self.settled, self.attempts * (now() - started))
        took: list[float] = []
        while len(took) < self.wanted or now() < started + seconds:
            waiting = asyncio.ensure_future(waiter.ask(do="acquire", name=name))
            await asyncio.sleep(settle)
            released = await holder.ask(do="release")
            took.append((await waiting)["at"] - released["at"])
            holder, waiter = waiter, holder
        await holder.ask(do="release")
        sample = latencies(took)
        return sample | {"trips": sample["p50"] / 1e6 / self._round_trip} if self._round_trip else sample


class HotProcesses(Scenario):
    """Throughput and wait: tasks of several processes contend for the same name."""

    name = "hot-processes"
    processes, tasks = 4, 5
    title = f"one contended name: {processes} processes, {tasks} tasks each"
    figures: tuple[Figure, ...] = (
        Figure("rate", "hand-overs", "/s", faster_is_more=True),
        Figure("p50", "wait p50", "µs"),
        Figure("p99", "wait p99", "µs"),
    )
    least = 1.0
    most_rounds = 3
    usual = FLOOR_AND_OURS
    """With a library that polls, it may take minutes until each task has had the lock once."""
    fair = False

    async def measure(self, stage: Stage, seconds: float) -> Sample:
        request: dict[str, Any] = {"base": fresh(self.name), "tasks": self.tasks, "shared": True, "seconds": seconds}
        if self.fair:
            request["fair"] = True
        parts = await asyncio.gather(*(process.ask(do="pairs", **request) for process in stage.processes))
        return {"rate": sum(part["rate"] for part in parts), **together(parts)}


class FairProcesses(HotProcesses):
    """The same with fair locks."""

    name = "fair-processes"
    title = f"the same with fair locks: {HotProcesses.processes} processes, {HotProcesses.tasks} tasks each"
    figures = (*HotProcesses.figures, Figure("spread", "wait p99 / p50", "x"))
    needs = "fair"
    usual = OURS
    fair = True

    async def measure(self, stage: Stage, seconds: float) -> Sample:
        sample = await super().measure(stage, seconds)
        return sample | {"spread": sample["p99"] / sample["p50"]}
