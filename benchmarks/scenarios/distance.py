"""More nodes, or distant nodes."""

from __future__ import annotations

from ._base import FLOOR_AND_OURS, P50, RATE, Figure, Sample, Scenario, Setting, Stage, fresh


class Nodes(Scenario):
    """The cost of a lock by the number of nodes."""

    figures = (P50, RATE)
    group = "nodes"
    tasks = 100
    most_rounds = 3
    usual = FLOOR_AND_OURS

    def __init__(self, nodes: int) -> None:
        self.name = f"nodes-{nodes}"
        self.title = f"{nodes} node{'s' * (nodes > 1)}: one task, and {self.tasks} tasks"
        self.at = nodes
        self.setting = Setting(nodes=nodes)

    async def measure(self, stage: Stage, seconds: float) -> Sample:
        (process,) = stage.processes
        one = await process.ask(do="pairs", base=fresh(self.name), tasks=1, shared=False, seconds=seconds)
        many = await process.ask(do="pairs", base=fresh(self.name), tasks=self.tasks, shared=False, seconds=seconds)
        return one | {"rate": many["rate"], "n": one["n"] + many["n"]}


class Distant(Scenario):
    """The number of round trips of a lock: at least one to acquire and one to release."""

    figures = (P50, Figure("trips", "round trips", "trips"))
    group = "round trip"
    most_rounds = 3
    usual = FLOOR_AND_OURS

    def __init__(self, round_trip_ms: float) -> None:
        self.name = f"rtt-{round_trip_ms:g}ms"
        self.title = f"one task, nodes {round_trip_ms:g} ms away"
        self.at = round_trip_ms
        self.least = 20 * round_trip_ms / 1000
        self.setting = Setting(nodes=5, round_trip_ms=round_trip_ms)

    async def measure(self, stage: Stage, seconds: float) -> Sample:
        (process,) = stage.processes
        sample = await process.ask(do="pairs", base=fresh(self.name), tasks=1, shared=False, seconds=seconds)
        return sample | {"trips": sample["p50"] / 1000 / self.setting.round_trip_ms}
