"""Families with blocks whose lease is lost, how they handle the cancellation, and suspended machines."""

import asyncio
from dataclasses import dataclass, replace
from random import Random

from framework.kinds import OF_KINDS, RUNS, KindRun, Task, calm
from framework.recorder import STALE
from framework.schedules import DRIFT, FAMILIES, Fault, when

from redlock_async import LockLost
from redlock_async._rules.lease_timing import Phase
from redlock_async.testing import Violation

RESUMED = 0.55
"""Seconds after a suspend until a block whose lease has expired must have ended."""

AGAIN = 0.02
"""Additional seconds for each cancellation that a block needs after the last one in time."""

ENOUGH = 0.8
"""The fraction of the remaining validity that cleanup may take."""

BEHIND = 0.4
"""Seconds for which a task continues after its block and must not be cancelled."""


@dataclass(frozen=True)
class BlockJob(Task):
    """One block under one lease."""

    way: str = "alone"
    """How the block runs its work."""
    cleanup: float = 0.0
    """Seconds that the cleanup awaits."""
    swallows: int = 0
    """How many cancellations the work swallows."""


@dataclass
class Block:
    """The result of one block."""

    number: int
    job: BlockJob
    lease: object
    process: object
    left: float | None = None
    """The remaining validity when the cleanup began."""
    cleaned: bool = False
    ended: float | None = None
    in_lock_lost: bool = False
    went_on: bool = False
    """Whether the task could continue after the block."""


class Blocks(KindRun):
    """Checks that no block outlives its lease, short cleanup finishes, and no task is cancelled after its block."""

    def __init__(self, schedule, clients):
        super().__init__(schedule, clients)
        self._blocks = []

    def _inject(self, fault):
        if fault.what == "suspend":
            self._processes[fault.target].suspend(fault.seconds)
        else:
            super()._inject(fault)

    async def _hold(self, process, redlock, job):
        lock = redlock(job.name, ttl=job.ttl, wait=job.wait, renew=job.renew, fencing=job.fencing)
        lease = await lock.acquire()
        block = Block(self._processes.index(process), job, lease, process)
        self._blocks.append(block)
        try:
            async with lease:
                try:
                    await self._run(block)
                finally:
                    block.ended = self._simulation.now
        except LockLost:
            block.in_lock_lost = True
            await self._go_on(block)
            raise
        await self._go_on(block)

    @staticmethod
    async def _go_on(block):
        await asyncio.sleep(BEHIND)
        block.went_on = asyncio.current_task().cancelling() == 0

    async def _run(self, block):
        match block.job.way:
            case "gather":
                await asyncio.gather(self._step(block), asyncio.sleep(0))
            case "task":
                await asyncio.create_task(self._step(block))
            case "wait_for":
                await asyncio.wait_for(self._step(block), 1000)
            case _:
                await self._step(block)

    @staticmethod
    async def _step(block):
        swallowed = 0
        while True:
            try:
                await asyncio.sleep(block.job.work)
            except asyncio.CancelledError:
                swallowed += 1
                if swallowed <= block.job.swallows:
                    continue
                block.left = block.lease.remaining
                await asyncio.sleep(block.job.cleanup)
                block.cleaned = True
                raise
            return

    def check(self):
        for block in self._blocks:
            if not block.process.dead:
                yield from self._broken(block)

    def _broken(self, block):
        job, what = block.job, f"the block of process {block.number}"
        pauses = [
            (fault.at, fault.at + fault.seconds, RESUMED if fault.what == "suspend" else 0.0)
            for fault in self.schedule.faults
            if fault.what in {"suspend", "stop"} and fault.target == block.number
        ]
        if block.ended is None:
            yield Violation("body", f"{what} never ended")
            return
        track = self.recorder._known.get(id(block.lease._held))
        until = block.ended if track is None else track.true_until
        over = [
            end + late * (1 + 2 * DRIFT)
            for begin, end, late in pauses
            if begin <= until + 4 * AGAIN and end + late >= until
        ]
        # Two cancellations are in time: at the loss and before the end. None is if the loss is noticed late.
        needed = job.swallows + 1 + (job.cleanup > 0)
        latest = max([until, *over]) + STALE + AGAIN * max(needed - (1 if over else 2), 0)
        if block.ended > latest:
            yield Violation("body", f"{what} ended {block.ended - until:.3f} s after its lease")
        if job.cancel_after is None and block.lease._held.phase is Phase.LOST and not block.in_lock_lost:
            yield Violation("body", f"{what} was lost, and did not end in LockLost")
        if job.cancel_after is None and not block.went_on:
            yield Violation("body", f"the task of {what} was cancelled behind it")
        fits = block.left is not None and job.cleanup <= ENOUGH * block.left
        if fits and not pauses and job.cancel_after is None and not job.swallows and not block.cleaned:
            yield Violation("body", f"the cleanup of {what} was cancelled, with {block.left:.3f} s left when it began")


RUNS["blocks"] = Blocks


def suspends(seed):
    """A machine is suspended while it holds the lock, for about its lease time, and other processes want it."""
    rng = Random(seed)
    ttl = rng.choice((0.5, 2.0, 10.0, 60.0))
    jobs = [(_job(rng, 0.05, ttl, 3 * ttl),)]
    jobs += [(_job(rng, rng.uniform(0, 2) * ttl, ttl, 0.1),) for _ in range(rng.randint(0, 2))]
    schedule = calm(seed, rng, "blocks", jobs)
    found = [
        Fault(rng.uniform(0.06, 0.1 + ttl), "suspend", number, rng.uniform(0.2, 2.0) * ttl)
        for number in range(len(jobs))
        if number == 0 or rng.random() < 0.3
    ]
    return replace(schedule, faults=tuple(sorted(found, key=when)))


def blocks(seed):
    """Leases without renewal, with failing renewals or force-released; blocks that clean up or swallow."""
    rng = Random(seed)
    ttl = rng.choice((0.5, 2.0, 10.0))
    jobs = [
        tuple(_job(rng, rng.uniform(0, ttl), ttl, rng.uniform(0.5, 2) * ttl) for _ in range(rng.randint(1, 2)))
        for _ in range(rng.randint(1, 2))
    ]
    schedule = calm(seed, rng, "blocks", jobs)
    found = []
    what = rng.choice(("nothing", "outage", "outage", "force", "stop"))
    if what == "outage":
        at = rng.uniform(0.1, ttl)
        found = [Fault(at, "kill", node, 2 * ttl) for node in range(schedule.nodes // 2 + 1)]
    elif what == "force":
        found = [Fault(rng.uniform(0.1, ttl), "force", 0)]
    elif what == "stop":
        found = [Fault(rng.uniform(0.1, ttl), "stop", 0, rng.uniform(0.2, 2.0) * ttl)]
    return replace(schedule, faults=tuple(found))


def _job(rng, at, ttl, work):
    grace = min(0.25, ttl / 20)
    return BlockJob(
        "lock",
        "x",
        at,
        ttl,
        4 * ttl,
        work,
        renew=rng.random() < 0.6,
        cancel_after=rng.uniform(0, 2) * ttl if rng.random() < 0.15 else None,
        way=rng.choice(("alone", "gather", "task", "wait_for")),
        cleanup=rng.choice((0.0, 0.0, rng.uniform(0, 0.8) * grace, 2 * ttl)),
        swallows=rng.choice((0, 0, 0, 1, 2)),
    )


OF_KINDS["suspends"] = FAMILIES["suspends"] = suspends
OF_KINDS["blocks"] = FAMILIES["blocks"] = blocks
