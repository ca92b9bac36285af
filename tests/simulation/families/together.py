"""Families with competing tasks of one process: readers, writers among them, small and large slot requests."""

from dataclasses import replace
from random import Random

from framework.kinds import OF_KINDS, SEMAPHORE_BOUND, SHARING_BOUND, Task, calm, strike
from framework.schedules import FAMILIES

from redlock_async._kinds.semaphore import WAITS_BEFORE_RESERVATION


def together(seed):
    """Schedule with all jobs in one or two processes."""
    rng = Random(seed)
    return rng.choice((_stream, _crowds, _crowds, _few_and_many))(seed, rng)


def _stream(seed, rng):
    """Overlapping readers of one process, and a writer of the same process."""
    gap, ttl = rng.uniform(0.2, 0.5), rng.choice((0.5, 2.0))
    number, processes = int(4 / gap), rng.choice((1, 2))
    work = rng.uniform(1.1, 2.0) * gap
    jobs = [
        [Task("read", "x", at * gap, ttl, 10.0, work) for at in range(which, number, processes)]
        for which in range(processes)
    ]
    for _ in range(rng.randint(1, 2)):
        cancel_after = rng.uniform(0.1, 2.0) if rng.random() < 0.3 else None
        writer = Task("write", "x", rng.uniform(0.3, 2.0), ttl, 8.0, rng.uniform(0, 0.2), cancel_after=cancel_after)
        jobs[0].append(writer)
    return calm(seed, rng, "readers and writers", map(tuple, jobs), bound=SHARING_BOUND)


def _crowds(seed, rng):
    """Many readers arrive while a writer holds the lock; some give up, including the one that asks for all."""
    ttl = rng.choice((0.5, 2.0))
    jobs = []
    for _ in range(rng.choice((1, 1, 2))):
        process = []
        for _ in range(rng.randint(1, 3)):
            at = rng.uniform(0, 1.5)
            process.append(Task("write", "x", at, ttl, 8.0, rng.choice((0.0, rng.uniform(0.05, 0.5)))))
            for _ in range(rng.randint(1, 6)):
                begins = at + rng.choice((0.0, 0.01, rng.uniform(0, 0.3)))
                cancel_after = (
                    rng.choice((0.0, rng.uniform(0, 0.01), rng.uniform(0, 0.4))) if rng.random() < 0.3 else None
                )
                wait = rng.choice((0.0, 0.1, 8.0, 8.0, 8.0))
                process.append(Task("read", "x", begins, ttl, wait, rng.uniform(0, 0.3), cancel_after=cancel_after))
        jobs.append(tuple(process))
    schedule = calm(seed, rng, "readers and writers", jobs, bound=SHARING_BOUND)
    return strike(rng, schedule, 1) if rng.random() < 0.2 else schedule


def _few_and_many(seed, rng):
    """An endless stream of requests for one slot, and one of the same process for nearly all, which must succeed."""
    permits, gap = rng.choice((2, 3)), rng.uniform(0.05, 0.15)
    number = int(5 / gap)
    work = rng.uniform(1, 1.5) * gap * permits
    small = tuple(Task("semaphore", "x", at * gap, 2.0, 20.0, work, permits=permits) for at in range(number))
    many = Task("semaphore", "x", rng.uniform(0.3, 1), 2.0, 30.0, 0.1, permits=permits, slots=rng.randint(2, permits))
    if rng.random() < 0.3:
        many = replace(many, cancel_after=rng.uniform(0.5, 3))
    jobs = [(*small[::2], many), small[1::2]] if rng.random() < 0.5 else [(*small, many)]
    # It retries in vain for each released slot, and then waits for the held ones.
    passed = (WAITS_BEFORE_RESERVATION + 4) * work / permits + work + 0.5
    return calm(seed, rng, "semaphore", jobs, bound=SEMAPHORE_BOUND, passed=passed)


OF_KINDS["together"] = FAMILIES["together"] = together
