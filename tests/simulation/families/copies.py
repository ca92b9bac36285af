"""Families in which processes are copies of each other: restored snapshots with the same random state."""

from dataclasses import replace
from random import Random

from framework.kinds import OF_KINDS, RUNS, KindRun, Task, calm
from framework.schedules import FAMILIES

from redlock_async import Redlock


class Copies(KindRun):
    """All processes draw the same random numbers and have the same owner label."""

    def __init__(self, schedule, clients):
        super().__init__(schedule, clients)
        self._clients = self._copied
        self._made = {}

    def _copied(self, nodes, number, *, strict=False):
        if number not in self._made:
            urls = [f"redis://node-{index}.simulated:6379" for index in range(nodes)]
            self._made[number] = Redlock(urls, ttl=1.0, owner="copy", strict_restart=strict)
        return self._made[number]

    async def _work(self, number, jobs):
        if number:
            self._processes[number].become_copy(self._processes[0])
        await super()._work(number, jobs)


RUNS["copies"] = Copies


def copies(seed):
    """A few copies compete for a lock: some wait, some try once, some hold it for long."""
    rng = Random(seed)
    kind = rng.choice(("lock", "lock", "fair", "write", "semaphore"))

    def task():
        ttl = rng.choice((0.5, 2.0))
        work = rng.choice((0.0, 0.05, rng.uniform(0, 1.0)))
        return Task(kind, "x", rng.choice((0.1, rng.uniform(0.1, 1.0))), ttl, rng.choice((0.0, 0.5, 4.0)), work)

    jobs = [tuple(task() for _ in range(rng.randint(1, 3))) for _ in range(rng.randint(2, 4))]
    return replace(calm(seed, rng, "copies", jobs, bound=None), skew=0.0)


OF_KINDS["copies"] = FAMILIES["copies"] = copies
