"""Families in which a majority of the nodes fails: outage and contention must not be confused."""

import asyncio
from contextlib import contextmanager
from dataclasses import dataclass, replace
from random import Random

from framework.kinds import BEYOND, OF_KINDS, RUNS, RUSH, Attempt, KindRun, Task, calm
from framework.schedules import FAMILIES, SETTLING, Fault, when

from redlock_async import LockTimeout, QuorumUnavailable
from redlock_async.testing import Violation

FAILING = ("kill", "kill silently", "pause", "cut", "black hole", "hold", "hold replies", "out of memory")
"""Faults that take away a node's vote while they last, but not its data."""

NOTICED = 0.3
"""Seconds until the client treats a silent node as failed: `node_timeout` plus a late timer."""


@dataclass
class Outcome(Attempt):
    """One acquire and its error."""

    error: Exception | None = None


class Outages(KindRun):
    """Checks that each error gives the true reason."""

    async def _hold(self, process, redlock, job):
        attempt = Outcome(self._processes.index(process), job, self._simulation.now)
        self.attempts.append(attempt)
        with self._ending(attempt, process):
            lease = await self._acquire(redlock, job)
        async with lease:
            with self.recorder.body(process, lease):
                await asyncio.sleep(job.work)

    async def _acquire(self, redlock, job):
        if job.kind == "several":
            names = job.name.split()
            return await redlock(*names, ttl=job.ttl, wait=job.wait, renew=job.renew).acquire()
        return await self.lock(redlock, job).acquire()

    @contextmanager
    def _ending(self, attempt, process):
        try:
            yield
        except (LockTimeout, QuorumUnavailable) as error:
            attempt.error = error
            raise
        finally:
            if not process.dead:
                attempt.end = self._simulation.now

    @property
    def names(self):
        return ["x", "y"]

    async def _check_liveness(self, redlock):
        """All kinds exclude each other on one name, so a plain lock is enough."""
        patience = 6 * self.schedule.longest_ttl + SETTLING
        for name in self.names:
            lease = await redlock(name, ttl=1, wait=patience).acquire()
            await lease.release()

    def check(self):
        """Yield a violation for each error with a wrong reason."""
        holds = list(self.recorder.holds())
        faults = self.schedule.faults
        first = min((fault.at for fault in faults), default=0.0)
        for attempt in self.attempts:
            who = f"{attempt.job.kind} {attempt.job.name!r} of process {attempt.number}, called at {attempt.start:.3f}"
            # For a task that requests both names, a holder of either is in the way.
            names = {"x", "y"} if attempt.job.kind == "several" else {attempt.job.name}
            if isinstance(attempt.error, LockTimeout):
                held = any(hold.name in names and self._in_the_way(hold, attempt) for hold in holds)
                if self._is_plain(attempt, holds):
                    yield Violation("error", f"its client knew that too few could vote, and {attempt.error} ({who})")
                elif not held and self._out(attempt.start, attempt.end, self._failing(attempt)):
                    yield Violation("error", f"nobody held it, too few could vote, and {attempt.error} ({who})")
            elif isinstance(attempt.error, QuorumUnavailable):
                if not attempt.error.nodes:
                    yield Violation("error", f"no node is named by {attempt.error} ({who})")
                if attempt.end < first:
                    yield Violation("error", f"before any node failed: {attempt.error} ({who})")

    def _in_the_way(self, hold, attempt):
        """Whether that holder may be named: it holds, or no quorum has confirmed its release within the ttl."""
        first = min(fault.at for fault in self.schedule.faults)
        left = BEYOND * self.schedule.longest_ttl if hold.end > first - RUSH else 0.0
        return hold.start <= attempt.end and hold.end + left >= attempt.start

    @staticmethod
    def _failing(attempt):
        """The faults that take away its vote. A node without memory still reports the waiters of a fair queue."""
        return set(FAILING) - ({"out of memory"} if attempt.job.kind == "fair" else set())

    def _is_plain(self, attempt, holds):
        """Whether its client saw the connections end a while ago, and none of its own tasks holds the lock."""
        since = attempt.end - NOTICED
        name = self._processes[attempt.number].name
        mine = any(
            hold.holder.startswith(f"{name}/") and hold.start <= attempt.end and hold.end >= since for hold in holds
        )
        return not mine and attempt.start < attempt.end - NOTICED and self._out(since, attempt.end, ("kill", "cut"))

    def _out(self, start, end, whats=FAILING):
        """Whether too few nodes could vote throughout that time."""
        nodes = self.schedule.nodes
        failed = {
            fault.target
            for fault in self.schedule.faults
            if fault.what in whats and fault.at < start and fault.at + fault.seconds > end
        }
        return nodes - len(failed) < nodes // 2 + 1


RUNS["outage"] = Outages


def outages(seed):
    """Tasks of one or two processes compete for a lock while a majority fails, at the start or while they wait."""
    rng = Random(seed)
    nodes = rng.choice((3, 3, 5))
    number = rng.randint(nodes // 2 + 1, nodes)
    begins, lasts = rng.choice((0.3, rng.uniform(0.3, 1.0))), rng.uniform(1.0, 3.0)
    what = rng.choice(FAILING)
    faults = [
        Fault(begins + rng.choice((0.0, rng.uniform(0, 0.2))), rng.choice((what, what, *FAILING)), node, lasts)
        for node in rng.sample(range(nodes), number)
    ]
    kind = rng.choice(("lock", "lock", "several", "fair", "read", "write", "semaphore"))
    ttl = rng.choice((0.5, 1.0, 4.0))
    together = rng.uniform(begins, begins + 0.5 * lasts)

    def task():
        at = rng.choice((together, together, rng.uniform(begins, begins + lasts), rng.uniform(0, begins)))
        wait = rng.choice((0.0, 0.1, 0.3, 0.3, 1.0))
        name = rng.choice(("x", "y", "x y")) if kind == "several" else "x"
        cancel_after = rng.uniform(0.0, wait + NOTICED) if rng.random() < 0.15 else None
        return Task(kind, name, at, ttl, wait, rng.choice((0.0, 0.01, 0.2, 1.0)), cancel_after=cancel_after)

    jobs = [tuple(task() for _ in range(rng.choice((2, 5, 12)))) for _ in range(rng.choice((1, 1, 2)))]
    schedule = calm(seed, rng, "outage", jobs, faults=tuple(sorted(faults, key=when)), bound=None)
    return replace(schedule, nodes=nodes, aged=True, tail=0.0)


OF_KINDS["outages"] = FAMILIES["outages"] = outages
