"""What `bench` does to a cluster, within bounds, and how it leaves nothing behind; it shows nothing."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import redlock_async

from ._node_view import needed, voting, why_not
from ._traces import traces

MOST_TASKS = 100
HOT_TASKS = 20
TTL = 2.0
"""Seconds of each lease: what a killed bench leaves locked is free that soon."""

WAIT = 5.0
LEAST_SETTLE = 0.01
"""Seconds for a waiter to have begun to wait, where the nodes are near."""

CLEANING = 5.0
"""Seconds that cleaning up may take."""

LOOKS = 200
"""Round trips that are measured, at most."""

now = time.perf_counter


@dataclass(frozen=True, slots=True)
class Latencies:
    """Some durations in seconds, in ascending order; at least one."""

    ranked: Sequence[float]

    @classmethod
    def of(cls, took: Sequence[float]) -> Latencies:
        """Those."""
        return cls(sorted(took))

    def at(self, part: float) -> float:
        """The value below which that part of them lies."""
        return self.ranked[min(int(len(self.ranked) * part), len(self.ranked) - 1)]


@dataclass(frozen=True, slots=True)
class Rate:
    """How many pairs some tasks did together."""

    tasks: int
    pairs: int
    seconds: float

    @property
    def per_second(self) -> float:
        """Pairs in a second."""
        return self.pairs / self.seconds


@dataclass(slots=True)
class NodeTrips:
    """One master, and how long it took to answer."""

    status: redlock_async.NodeStatus
    took: list[float] = field(default_factory=list)


class Load:
    """The clients: one as the user's services have it, for looking and cleaning up, and two that take locks.

    These two have a namespace of their own, so that they touch neither the user's locks nor the fence registers that
    the user's names share: those may never be deleted, ours are.
    """

    def __init__(self, environ: Mapping[str, str], most_tasks: int) -> None:
        self.prefix = f"redlock-bench:{secrets.token_hex(4)}:"
        self.namespace = environ.get("REDLOCK_NAMESPACE", "").strip() + self.prefix
        self.names = [f"name-{number}" for number in range(most_tasks)]
        own = {
            "REDLOCK_NAMESPACE": self.namespace,
            "REDLOCK_OWNER": "redlock-async bench",
            "REDLOCK_TTL": str(TTL),
            "REDLOCK_WAIT": str(WAIT),
            "REDLOCK_STRICT_RESTART": "false",  # the namespace is new on every node: nobody lost anything
        }
        self._user = redlock_async.Redlock.from_env(environ)
        self._first, self._second = (redlock_async.Redlock.from_env({**environ, **own}) for _ in range(2))
        self._settle = LEAST_SETTLE
        self.cleaning = False
        """Whether nothing may stop it any more: it is over soon anyway."""

    @asynccontextmanager
    async def opened(self, tell: Callable[[str], object]) -> AsyncIterator[list[redlock_async.NodeStatus]]:
        """Connected to a quorum, in whatever state that is; however it ends, nothing is left behind, or it is told."""
        async with self._user:
            nodes = await self._user.status()
            check_quorum(nodes)
            try:
                async with self._first, self._second:
                    yield nodes
            finally:
                await self._clean({node.label for node in nodes if node.up}, tell)

    async def round_trips(self, seconds: float) -> list[NodeTrips]:
        """Of one small command, sent to all nodes at once."""
        end = now() + seconds
        found: dict[str, NodeTrips] = {}
        for _ in range(LOOKS):
            for status in await self._user.status():
                node = found.setdefault(status.label, NodeTrips(status))
                node.status = status
                if status.latency is not None:
                    node.took.append(status.latency)
            if now() >= end:
                break
        slowest = max((Latencies.of(node.took).at(0.5) for node in found.values() if node.took), default=0.0)
        self._settle = max(LEAST_SETTLE, 3 * slowest)
        return list(found.values())

    async def one_task(self, seconds: float) -> Latencies:
        """Acquire and release, one after the other."""
        await self._pairs(self.names[0], now())  # the first one finds everything cold
        return Latencies.of(await self._pairs(self.names[0], now() + seconds))

    async def many_tasks(self, tasks: int, seconds: float) -> Rate:
        """The same by many, each on a name of its own."""
        return await self._together(self.names[:tasks], seconds)

    async def hot_name(self, seconds: float) -> Rate:
        """The same by some on one name, which goes from task to task."""
        return await self._together(self.names[:1] * HOT_TASKS, seconds)

    async def hand_over(self, seconds: float) -> Latencies:
        """From a release to the acquire of the client that waits for it."""
        holder, waiter = self._first, self._second
        name, end = self.names[0], now() + seconds
        took: list[float] = []
        lease = await holder(name).acquire()
        while not took or now() < end:
            waiting = asyncio.ensure_future(_acquired(waiter(name).acquire()))
            try:
                await asyncio.sleep(self._settle)
                released = now()
                await lease.release()
                lease, at = await waiting
            finally:
                waiting.cancel()
                await asyncio.gather(waiting, return_exceptions=True)
            took.append(at - released)
            holder, waiter = waiter, holder
        await lease.release()
        return Latencies.of(took)

    async def _together(self, names: Sequence[str], seconds: float) -> Rate:
        started = now()
        end = started + seconds
        tasks = [asyncio.ensure_future(self._pairs(name, end)) for name in names]
        try:
            done = await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return Rate(len(names), sum(map(len, done)), now() - started)

    async def _pairs(self, name: str, end: float) -> list[float]:
        """Until the time is up, at least once; returns how long each took."""
        took: list[float] = []
        started = now()
        while True:
            lease = await self._first(name).acquire()
            await lease.release()
            ended = now()
            took.append(ended - started)
            if ended >= end:
                return took
            started = ended

    async def _clean(self, used: AbstractSet[str], tell: Callable[[str], object]) -> None:
        """Delete every key these clients have made, which is what releasing a lock by force does."""
        self.cleaning = True
        keys = traces(self.namespace, self.names)
        errors: list[Exception] = []
        try:
            async with asyncio.timeout(CLEANING):
                freed = (self._user.force_release(self.prefix + key) for key in keys)
                ends = await asyncio.gather(*freed, return_exceptions=True)
                errors = [end for end in ends if isinstance(end, Exception)]
                down = [node.label for node in await self._user.status() if not node.up and node.label in used]
        except TimeoutError:
            down = ["no answer in time"]
        if not errors and not down:
            tell(f"Cleaned up: no key that begins with {self.namespace} is left.")
            return
        where = ", ".join(down) or str(errors[0])
        pattern = f"redis-cli --scan --pattern '{self.namespace}*'"
        tell(f"Could not clean up everywhere ({where}). To see what is left there: {pattern}")


def check_quorum(nodes: Sequence[redlock_async.NodeStatus]) -> None:
    """Raise QuorumUnavailable with a line for each master that cannot vote, if they are too many."""
    votes, need = voting(nodes), needed(nodes)
    if votes < need:
        silent = "".join(f"\n  {node.label}: {why_not(node)}" for node in nodes if not node.votes)
        raise redlock_async.QuorumUnavailable(
            f"only {votes} of {len(nodes)} masters can vote, and {need} are needed:{silent}"
        )


async def _acquired(acquiring: Awaitable[redlock_async.Lease]) -> tuple[redlock_async.Lease, float]:
    return await acquiring, now()
