"""Schedules of `once`, and of tries in the same moment: who may run, who must, and who is told that others do."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import cached_property
from random import Random

from kinds import BEYOND, KEEPING, OF_KINDS, RUNS, RUSH, KindRun, KindSchedule, Task, calm, strike
from schedules import DRIFT, FAMILIES, SETTLING, Fault, when

from redlock_async import LockLost, LockTimeout, QuorumUnavailable
from redlock_async.testing import Violation

PROMPT = 0.15
"""Seconds in which who tries in vain knows it: a few round trips, and less than `node_timeout`."""


@dataclass(frozen=True)
class Tick(Task):
    """One machine is told to run it now."""

    fails: bool = False
    """Whether its body raises."""


@dataclass(frozen=True)
class OnceSchedule(KindSchedule):
    """Ticks of several machines, period by period."""

    every: float = 1.0
    hold: float = 0.9
    retry_failed: bool = False

    @cached_property
    def heals_at(self):
        """Only then is the name free again, though a last word on it came late."""
        return super().heals_at + self.hold + SETTLING


@dataclass
class Try:
    """One tick, and what came of it."""

    number: int
    job: Tick
    start: float
    end: float | None = None
    begun: float | None = None
    """Of a run: since when its period counts, in true time."""
    ended: float | None = None
    """When its body had ended."""
    failed: bool = False
    lost: bool = False


class BodyError(Exception):
    """A body's own."""


class Ticking(KindRun):
    """`once`: a run in every period in which somebody tries, and never two."""

    async def _hold(self, process, redlock, job):
        schedule = self.schedule
        tried = Try(self._processes.index(process), job, self._simulation.now)
        self.attempts.append(tried)
        once = redlock.once(
            job.name, every=schedule.every, hold=schedule.hold, retry_failed=schedule.retry_failed, ttl=job.ttl
        )
        lease = await once.try_acquire()
        tried.end = self._simulation.now
        if lease is None:
            return
        tried.begun = self.recorder.true(process, lease._holding.acquired_at)
        try:
            with suppress(BodyError):
                async with lease:
                    with self.recorder.body(process, lease):
                        await self._run(tried)
        except LockLost:
            tried.lost = True
            raise
        finally:
            if not process.dead:
                tried.ended = self._simulation.now

    @staticmethod
    async def _run(tried):
        tried.failed = True  # unless it comes to its end
        await asyncio.sleep(tried.job.work)
        if tried.job.fails:
            raise BodyError
        tried.failed = False

    def check(self):
        """Every promise about periods that was broken."""
        if self.schedule.bound is None:
            return
        runs = sorted((tried for tried in self.attempts if tried.begun is not None), key=lambda tried: tried.end)
        yield from self._too_soon(runs)
        for tried in self.attempts:
            if tried.begun is None and tried.end is not None and not self._struck(tried):
                yield from self._left_out(tried, runs)

    def _too_soon(self, runs):
        """None begins within `hold` of the beginning of another that counts."""
        hold = self.schedule.hold
        for index, run in enumerate(runs):
            died = run.ended is None and run.job.ttl < hold
            free = died or run.lost or (run.failed and self.schedule.retry_failed)
            soonest = run.begun + hold / (1 + 2 * DRIFT)
            for other in () if free else runs[index + 1 :]:
                if other.end < soonest:
                    after = f"{other.end - run.begun:.3f} s after one that counts for {hold:.3f} s"
                    yield Violation("period", f"a run of process {other.number} began {after}")

    def _left_out(self, tried, runs):
        """Whoever is left out is so for somebody who has it, and is told at once."""
        spans = [self._span(run) for run in runs]
        reasons = [(since - RUSH, until + RUSH) for since, until in spans]
        reasons += [(since, until) for since, until in self._disturbances(tried)]
        of = f"process {tried.number}, which tried from {tried.start:.3f} to {tried.end:.3f}"
        if not any(since <= tried.end and until >= tried.start for since, until in reasons):
            yield Violation("liveness", f"nobody had it, and it was left out by {of}")
        held = any(since + RUSH < tried.start and until - RUSH > tried.end for since, until in spans)
        if held and tried.end - tried.start > PROMPT:
            yield Violation("liveness", f"that it was held all the time took long to find out for {of}")

    def _span(self, run):
        """From when to when a run keeps the others out."""
        schedule = self.schedule
        if run.ended is None or run.lost:  # its process died, or its lease could not be renewed
            return run.begun, (run.ended or run.end + run.job.work) + BEYOND * max(run.job.ttl, schedule.hold)
        if run.failed and schedule.retry_failed:
            return run.begun, run.ended
        return run.begun, max(run.ended, run.begun + schedule.hold * (1 + 2 * DRIFT))

    async def _check_liveness(self, redlock):
        patience = 6 * self.schedule.longest_ttl + SETTLING + self.schedule.hold
        for name in self.names:
            try:
                lease = await redlock(name, ttl=1, wait=patience).acquire()
                with suppress(LockLost, QuorumUnavailable):
                    await lease.release()
            except (LockTimeout, QuorumUnavailable) as error:
                self.recorder.violations.append(Violation("liveness", f"{error} (after healing)"))


RUNS["once"] = Ticking


def once(seed):
    """Machines that tick together or nearly so; bodies that are long, raise or are cancelled; and some faults."""
    luck = Random(seed)
    every = luck.choice((1.0, 3.0, 10.0))
    hold = every * luck.choice((0.9, luck.uniform(0.3, 0.95)))
    early = luck.choice((0.0, 0.0, 0.9 * (every - hold)))
    """Before or after the others a machine may tick so that each period still has its run."""
    lengths = (0.0, luck.uniform(0, 0.1), luck.uniform(0, 1) * hold, luck.choice((0.1, 1.2)) * hold)
    ttl = luck.choice((0.5, 0.5 * hold, hold))
    failing = luck.choice((0.0, 0.0, 0.4))

    def tick(period):
        at = period * every + luck.uniform(0, early)
        cancel_after = luck.uniform(0, hold) if luck.random() < failing / 4 else None
        return Tick(
            "once", "x", at, ttl, 0.0, luck.choice(lengths), cancel_after=cancel_after, fails=luck.random() < failing
        )

    periods = range(1, luck.randint(2, 4))
    jobs = [tuple(tick(period) for period in periods) for _ in range(luck.randint(2, 6))]
    retry_failed = luck.random() < 0.5
    schedule = calm(seed, luck, "once", jobs, bound=0.0)
    given = {each.name: getattr(schedule, each.name) for each in fields(KindSchedule)}
    schedule = OnceSchedule(**given, every=every, hold=hold, retry_failed=retry_failed)
    what = luck.choice(("nothing", "nothing", "nothing", "processes", "masters"))
    if what == "processes":
        return strike(luck, schedule, 1)
    if what == "masters":
        found = [
            Fault(luck.uniform(0.5, 3.0) * every, fault, luck.randrange(schedule.nodes), luck.uniform(0.02, 2.0))
            for fault in luck.choices([fault for fault in KEEPING if fault != "reset"], k=luck.randint(1, 5))
        ]
        found.sort(key=when)
        return replace(schedule, bound=None, tail=0.05, slowest=luck.choice((0.02, 0.3)), faults=tuple(found))
    return schedule


OF_KINDS["once"] = FAMILIES["once"] = once
