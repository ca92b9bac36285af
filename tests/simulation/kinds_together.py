"""Schedules of one process's tasks that want the same: readers side by side, writers among them, few slots and many."""

from dataclasses import replace
from random import Random

from kinds import OF_KINDS, SEMAPHORE_BOUND, SHARING_BOUND, Task, calm, strike
from schedules import FAMILIES

from redlock_async._slots import PATIENCE


def together(seed):
    """All that is wanted is wanted in one or two processes."""
    luck = Random(seed)
    return luck.choice((_stream, _crowds, _crowds, _few_and_many))(seed, luck)


def _stream(seed, luck):
    """There is always a reader of this process, and a writer of this process wants to get in."""
    gap, ttl = luck.uniform(0.2, 0.5), luck.choice((0.5, 2.0))
    number, processes = int(4 / gap), luck.choice((1, 2))
    work = luck.uniform(1.1, 2.0) * gap
    jobs = [
        [Task("read", "x", at * gap, ttl, 10.0, work) for at in range(which, number, processes)]
        for which in range(processes)
    ]
    for _ in range(luck.randint(1, 2)):
        cancel_after = luck.uniform(0.1, 2.0) if luck.random() < 0.3 else None
        writer = Task("write", "x", luck.uniform(0.3, 2.0), ttl, 8.0, luck.uniform(0, 0.2), cancel_after=cancel_after)
        jobs[0].append(writer)
    return calm(seed, luck, "readers and writers", map(tuple, jobs), bound=SHARING_BOUND)


def _crowds(seed, luck):
    """Many readers come at once while somebody writes; some of them give up, also the one that asks for all."""
    ttl = luck.choice((0.5, 2.0))
    jobs = []
    for _ in range(luck.choice((1, 1, 2))):
        process = []
        for _ in range(luck.randint(1, 3)):
            at = luck.uniform(0, 1.5)
            process.append(Task("write", "x", at, ttl, 8.0, luck.choice((0.0, luck.uniform(0.05, 0.5)))))
            for _ in range(luck.randint(1, 6)):
                begins = at + luck.choice((0.0, 0.01, luck.uniform(0, 0.3)))
                cancel_after = (
                    luck.choice((0.0, luck.uniform(0, 0.01), luck.uniform(0, 0.4))) if luck.random() < 0.3 else None
                )
                wait = luck.choice((0.0, 0.1, 8.0, 8.0, 8.0))
                process.append(Task("read", "x", begins, ttl, wait, luck.uniform(0, 0.3), cancel_after=cancel_after))
        jobs.append(tuple(process))
    schedule = calm(seed, luck, "readers and writers", jobs, bound=SHARING_BOUND)
    return strike(luck, schedule, 1) if luck.random() < 0.2 else schedule


def _few_and_many(seed, luck):
    """Those who want one slot come and go without end; one of the same process wants nearly all, and gets them."""
    permits, gap = luck.choice((2, 3)), luck.uniform(0.05, 0.15)
    number = int(5 / gap)
    work = luck.uniform(1, 1.5) * gap * permits
    small = tuple(Task("semaphore", "x", at * gap, 2.0, 20.0, work, permits=permits) for at in range(number))
    many = Task("semaphore", "x", luck.uniform(0.3, 1), 2.0, 30.0, 0.1, permits=permits, slots=luck.randint(2, permits))
    if luck.random() < 0.3:
        many = replace(many, cancel_after=luck.uniform(0.5, 3))
    jobs = [(*small[::2], many), small[1::2]] if luck.random() < 0.5 else [(*small, many)]
    # It waits in vain so many times, one for each slot that is given back, and then for those that are held.
    passed = (PATIENCE + 4) * work / permits + work + 0.5
    return calm(seed, luck, "semaphore", jobs, bound=SEMAPHORE_BOUND, passed=passed)


OF_KINDS["together"] = FAMILIES["together"] = together
