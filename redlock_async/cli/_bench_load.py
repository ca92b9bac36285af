"""The load of `bench`, its limits, and how its keys are removed afterwards; this module prints no results."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import redlock_async
from redlock_async._rules.keys import Keys

from ._cleanup_keys import cleanup_keys
from ._client import cancel_all
from ._node_view import count_votes, vote_problem

MAX_TASKS = 100
HOT_TASKS = 20
TTL = 2.0
"""Seconds of each lease: a killed bench leaves names locked for at most this long."""

WAIT = 5.0
MIN_SETTLE = 0.01
"""Seconds that a waiter needs at least until it waits."""

CLEANUP_TIMEOUT = 5.0
"""Seconds that removing the keys may take."""

MAX_ROUND_TRIPS = 200
"""Round trips that are measured, at most."""

now = time.perf_counter


@dataclass(frozen=True, slots=True)
class Latencies:
    """At least one duration in seconds, in ascending order."""

    ranked: Sequence[float]

    @classmethod
    def of(cls, durations: Sequence[float]) -> Latencies:
        """Return latencies from durations in any order."""
        return cls(sorted(durations))

    def at(self, part: float) -> float:
        """Return the quantile: the value below which that part of the durations lies."""
        return self.ranked[min(int(len(self.ranked) * part), len(self.ranked) - 1)]


@dataclass(frozen=True, slots=True)
class Rate:
    """How many pairs of acquire and release several tasks completed together."""

    tasks: int
    pairs: int
    seconds: float

    @property
    def per_second(self) -> float:
        """Pairs per second."""
        return self.pairs / self.seconds


@dataclass(slots=True)
class NodeTrips:
    """One node, and the durations of its round trips."""

    status: redlock_async.NodeStatus
    durations: list[float] = field(default_factory=list)


class Load:
    """Three clients: one with the user's settings, to read the status and remove keys, and two that take locks.

    The two have a namespace of their own, so they touch neither the user's locks nor the fence registers that the
    user's names share: deleting those would be unsafe, while ours are deleted at the end.
    """

    def __init__(self, environ: Mapping[str, str], max_tasks: int) -> None:
        self.prefix = f"redlock-bench:{secrets.token_hex(4)}:"
        self.namespace = environ.get("REDLOCK_NAMESPACE", "").strip() + self.prefix
        self.names = [f"name-{number}" for number in range(max_tasks)]
        own = {
            "REDLOCK_NAMESPACE": self.namespace,
            "REDLOCK_OWNER": "redlock-async bench",
            "REDLOCK_TTL": str(TTL),
            "REDLOCK_WAIT": str(WAIT),
            "REDLOCK_STRICT_RESTART": "false",  # the namespace is new on every node, so no node lost data
        }
        self._user = redlock_async.Redlock.from_env(environ)
        self._first, self._second = (redlock_async.Redlock.from_env({**environ, **own}) for _ in range(2))
        self._settle = MIN_SETTLE
        self.cleaning = False
        """Whether keys are being removed, which a signal must not interrupt; it ends soon anyway."""

    @asynccontextmanager
    async def opened(self, report: Callable[[str], object]) -> AsyncIterator[list[redlock_async.NodeStatus]]:
        """Connect to a quorum, and yield the nodes; at the end remove all keys, or report what may be left."""
        async with self._user:
            nodes = await self._user.status()
            check_quorum(nodes, self._user.statistics().quorum)
            try:
                async with self._first, self._second:
                    yield nodes
            finally:
                await self._clean({node.label for node in nodes if node.up}, report)

    async def round_trips(self, seconds: float) -> list[NodeTrips]:
        """Measure round trips of one small command, sent to all nodes at once."""
        end = now() + seconds
        found: dict[str, NodeTrips] = {}
        for _ in range(MAX_ROUND_TRIPS):
            for status in await self._user.status():
                node = found.setdefault(status.label, NodeTrips(status))
                node.status = status
                if status.latency is not None:
                    node.durations.append(status.latency)
            if now() >= end:
                break
        slowest = max((Latencies.of(node.durations).at(0.5) for node in found.values() if node.durations), default=0.0)
        self._settle = max(MIN_SETTLE, 3 * slowest)
        return list(found.values())

    async def one_task(self, seconds: float) -> Latencies:
        """Measure pairs of acquire and release, one after the other."""
        await self._pairs(self.names[0], now())  # warm up
        return Latencies.of(await self._pairs(self.names[0], now() + seconds))

    async def many_tasks(self, tasks: int, seconds: float) -> Rate:
        """Measure several tasks, each on a name of its own."""
        return await self._together(self.names[:tasks], seconds)

    async def hot_name(self, seconds: float) -> Rate:
        """Measure several tasks that contend for one name."""
        return await self._together(self.names[:1] * HOT_TASKS, seconds)

    async def hand_over(self, seconds: float) -> Latencies:
        """Measure the time from a release until the waiting client has acquired the lock."""
        holder, waiter = self._first, self._second
        name, end = self.names[0], now() + seconds
        durations: list[float] = []
        lease = await holder(name).acquire()
        while not durations or now() < end:
            waiting = asyncio.ensure_future(_acquired(waiter(name).acquire()))
            try:
                await asyncio.sleep(self._settle)
                released = now()
                await lease.release()
                lease, at = await waiting
            finally:
                waiting.cancel()
                await asyncio.gather(waiting, return_exceptions=True)
            durations.append(at - released)
            holder, waiter = waiter, holder
        await lease.release()
        return Latencies.of(durations)

    async def _together(self, names: Sequence[str], seconds: float) -> Rate:
        started = now()
        end = started + seconds
        tasks = [asyncio.ensure_future(self._pairs(name, end)) for name in names]
        try:
            done = await asyncio.gather(*tasks)
        finally:
            await cancel_all(tasks)
        return Rate(len(names), sum(map(len, done)), now() - started)

    async def _pairs(self, name: str, end: float) -> list[float]:
        """Acquire and release until the time is up, at least once; return the durations."""
        durations: list[float] = []
        started = now()
        while True:
            lease = await self._first(name).acquire()
            await lease.release()
            ended = now()
            durations.append(ended - started)
            if ended >= end:
                return durations
            started = ended

    async def _clean(self, used: AbstractSet[str], report: Callable[[str], object]) -> None:
        """Delete every key that the two clients wrote; `force_release` deletes a key on all nodes."""
        self.cleaning = True
        errors: list[Exception] = []
        try:
            async with asyncio.timeout(CLEANUP_TIMEOUT):
                keys = cleanup_keys(Keys(self.namespace), self.names, nodes=await self._user.status())
                releases = (self._user.force_release(self.prefix + key) for key in keys)
                outcomes = await asyncio.gather(*releases, return_exceptions=True)
                errors = [outcome for outcome in outcomes if isinstance(outcome, Exception)]
                down = [node.label for node in await self._user.status() if not node.up and node.label in used]
        except TimeoutError:
            down = ["no answer in time"]
        if not errors and not down:
            report(f"Cleaned up: no key that starts with {self.namespace} is left.")
            return
        where = ", ".join(down) or str(errors[0])
        pattern = f"redis-cli --scan --pattern '{self.namespace}*'"
        report(f"Could not remove all keys ({where}). To see the keys that are left: {pattern}")


def check_quorum(nodes: Sequence[redlock_async.NodeStatus], configured: int) -> None:
    """Raise QuorumUnavailable, with a line for each node that cannot vote, if there is no quorum."""
    votes, quorum = count_votes(nodes, configured)
    if votes < quorum:
        problems = "".join(f"\n  {node.label}: {vote_problem(node)}" for node in nodes if not node.can_vote)
        raise redlock_async.QuorumUnavailable(
            f"only {votes} of {len(nodes)} nodes can vote, and {quorum} are needed:{problems}"
        )


async def _acquired(acquiring: Awaitable[redlock_async.Lease]) -> tuple[redlock_async.Lease, float]:
    return await acquiring, now()
