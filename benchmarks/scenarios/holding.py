"""Locks that are held for long: the cost of waiting and of renewal, and the time until a loss is noticed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from redis.asyncio import Redis

from benchmarks.contenders import TTL
from benchmarks.timing import now, quantile

from ._base import FLOOR_AND_OURS, OURS, Figure, Process, Sample, Scenario, Setting, Stage, fresh

COMMANDS = Figure("commands", "commands of the busiest node, those in scripts too", "/s")
CPU = Figure("cpu", "CPU of the client", "%")


class _Steady(Scenario):
    """A steady state whose cost for the nodes and the client is counted."""

    setting = Setting(alone=True)
    least = TTL / 3
    """All leases are renewed once in this time."""
    most_rounds = 1
    usual = FLOOR_AND_OURS


class Waiters(_Steady):
    """Many tasks wait for a name that stays held and is then released.

    The count includes a renewal, because the waiters see that the key was written.
    """

    name = "waiters"
    tasks = 1_000
    title = f"{tasks:,} tasks wait for one held name"
    figures = (
        COMMANDS, CPU,
        Figure("first", "release to the first acquire", "ms"),
        Figure("last", "release to the last acquire", "ms"),
    )  # fmt: skip
    processes = 2
    needs = "waiters"
    settle = 0.3
    """Seconds until all tasks wait."""

    async def measure(self, stage: Stage, seconds: float) -> Sample:
        holder, waiter = stage.processes
        name = fresh(self.name)
        await holder.ask(do="acquire", name=name)
        await waiter.ask(do="wait", name=name, tasks=self.tasks)
        await asyncio.sleep(self.settle)
        async with _Watch.of(stage.urls, waiter) as watch:
            await asyncio.sleep(seconds)
        released = await holder.ask(do="release")
        waited = await waiter.ask(do="waited")
        return {
            "commands": max(watch.commands) / watch.seconds,
            "cpu": watch.cpu,
            "first": (waited["first"] - released["at"]) * 1000,
            "last": (waited["last"] - released["at"]) * 1000,
            "n": self.tasks,
        }


class Renewals(_Steady):
    """Hold and renew many leases."""

    name = "renewals"
    leases = 10_000
    title = f"{leases:,} leases held and renewed, ttl {TTL:g} s"
    figures = (
        CPU, COMMANDS,
        Figure("memory", "memory of the client, a lease", "KB"),
        Figure("took", "to take them all", "s"),
    )  # fmt: skip
    needs = "renew"

    async def measure(self, stage: Stage, seconds: float) -> Sample:
        (process,) = stage.processes
        before = await process.ask(do="usage")
        held = await process.ask(do="hold", base=fresh(self.name), leases=self.leases)
        async with _Watch.of(stage.urls, process) as watch:
            await asyncio.sleep(seconds)
        await process.ask(do="drop")
        return {
            "cpu": watch.cpu,
            "commands": max(watch.commands) / watch.seconds,
            "memory": (watch.rss - before["rss"]) / 1024 / self.leases,
            "took": held["took"],
            "n": self.leases,
        }


class Loss(Scenario):
    """Time from a force-release by another client to the cancellation of the holder's block."""

    name = "loss"
    title = "force-release to cancelled block"
    figures = (
        Figure("p50", "p50", "ms"),
        Figure("worst", "slowest", "ms"),
        Figure("left", "least left of its validity", "s", faster_is_more=True),
    )
    processes = 2
    needs = "cancel"
    most_rounds = 3
    usual = OURS
    wanted = 3
    held = 0.05
    """Seconds that the block has been running by then."""

    async def measure(self, stage: Stage, seconds: float) -> Sample:
        holder, other = stage.processes
        took: list[float] = []
        left: list[float] = []
        end = now() + seconds
        while len(took) < self.wanted or now() < end:
            name = fresh(self.name)
            await holder.ask(do="enter", name=name)
            await asyncio.sleep(self.held)
            forced = await other.ask(do="force", name=name)
            cancelled = await holder.ask(do="cancelled")
            took.append((cancelled["at"] - forced["at"]) * 1000)
            left.append(cancelled["left"])
        return {"p50": quantile(took, 0.5), "worst": max(took), "left": min(left), "n": len(took)}


class _Watch:
    """The activity of a process and the nodes during an interval."""

    def __init__(self) -> None:
        self.commands: list[int] = []
        """Commands on each node, except those for counting."""
        self.seconds = self.cpu = self.rss = 0.0

    @classmethod
    @asynccontextmanager
    async def of(cls, urls: Sequence[str], process: Process) -> AsyncIterator[_Watch]:
        """Filled when the block ends."""
        watch = cls()
        async with AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(Redis.from_url(url)) for url in urls]
            used, counts = await process.ask(do="usage"), await _processed(clients)
            started = now()
            yield watch
            watch.seconds = now() - started
            after, usage = await _processed(clients), await process.ask(do="usage")
        # The second reply already counts the first request.
        watch.commands = [end - start - 1 for start, end in zip(counts, after, strict=True)]
        watch.cpu = (usage["cpu"] - used["cpu"]) / (usage["at"] - used["at"]) * 100
        watch.rss = usage["rss"]


async def _processed(clients: Sequence[Redis]) -> list[int]:
    """Open the connections: the first request to each node does so."""
    infos = [await client.info("stats") for client in clients]
    return [info["total_commands_processed"] for info in infos]
