"""Families with `once` and simultaneous tries: which of them may run, must run, or must be rejected."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import cached_property
from random import Random

from framework.kinds import BEYOND, OF_KINDS, RUNS, RUSH, KindRun, KindSchedule, Task, calm, strike
from framework.schedules import DRIFT, FAMILIES, SETTLING, Fault, when

from families.kinds import KEEPING
from redlock_async import LockLost, LockTimeout, QuorumUnavailable
from redlock_async.testing import Violation

PROMPT = 0.15
"""Seconds that a failed try may take: a few round trips, and less than `node_timeout`."""


@dataclass(frozen=True)
class Tick(Task):
    """One call of the function on one machine."""

    fails: bool = False
    """Whether the function raises."""


@dataclass(frozen=True)
class OnceSchedule(KindSchedule):
    """Ticks of several machines, period by period."""

    every: float = 1.0
    hold: float = 0.9
    retry_failed: bool = False

    @cached_property
    def heals_at(self):
        """When the name is free again, even if the last request arrived late."""
        return super().heals_at + self.hold + SETTLING


@dataclass
class Try:
    """One tick and its result."""

    number: int
    job: Tick
    start: float
    end: float | None = None
    begun: float | None = None
    """For a run: the start of its period in true time."""
    ended: float | None = None
    """When the function ended."""
    failed: bool = False
    lost: bool = False


class BodyError(Exception):
    """The exception that the function raises."""


class Ticking(KindRun):
    """Checks that there is one run in every period with a tick, and never two."""

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
        tried.begun = self.recorder.true(process, lease._held.acquired_at)
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
        tried.failed = True  # unless it completes
        await asyncio.sleep(tried.job.work)
        if tried.job.fails:
            raise BodyError
        tried.failed = False

    def check(self):
        """Yield the violations of the guarantees about periods."""
        if self.schedule.bound is None:
            return
        runs = sorted((tried for tried in self.attempts if tried.begun is not None), key=lambda tried: tried.end)
        yield from self._too_soon(runs)
        for tried in self.attempts:
            if tried.begun is None and tried.end is not None and not self._was_hit(tried):
                yield from self._left_out(tried, runs)

    def _too_soon(self, runs):
        """No run may start within `hold` of the start of another one that counts."""
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
        """A tick is skipped only because another run counts, and returns immediately."""
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
        """The interval in which a run keeps other runs out."""
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
    """Machines that tick at about the same time; functions that are long, raise or are cancelled; and some faults."""
    rng = Random(seed)
    every = rng.choice((1.0, 3.0, 10.0))
    hold = every * rng.choice((0.9, rng.uniform(0.3, 0.95)))
    early = rng.choice((0.0, 0.0, 0.9 * (every - hold)))
    """How far a machine's ticks may be from the others', such that each period still has a run."""
    lengths = (0.0, rng.uniform(0, 0.1), rng.uniform(0, 1) * hold, rng.choice((0.1, 1.2)) * hold)
    ttl = rng.choice((0.5, 0.5 * hold, hold))
    failing = rng.choice((0.0, 0.0, 0.4))

    def tick(period):
        at = period * every + rng.uniform(0, early)
        cancel_after = rng.uniform(0, hold) if rng.random() < failing / 4 else None
        return Tick(
            "once", "x", at, ttl, 0.0, rng.choice(lengths), cancel_after=cancel_after, fails=rng.random() < failing
        )

    periods = range(1, rng.randint(2, 4))
    jobs = [tuple(tick(period) for period in periods) for _ in range(rng.randint(2, 6))]
    retry_failed = rng.random() < 0.5
    schedule = calm(seed, rng, "once", jobs, bound=0.0)
    given = {each.name: getattr(schedule, each.name) for each in fields(KindSchedule)}
    schedule = OnceSchedule(**given, every=every, hold=hold, retry_failed=retry_failed)
    what = rng.choice(("nothing", "nothing", "nothing", "processes", "masters"))
    if what == "processes":
        return strike(rng, schedule, 1)
    if what == "masters":
        found = [
            Fault(rng.uniform(0.5, 3.0) * every, fault, rng.randrange(schedule.nodes), rng.uniform(0.02, 2.0))
            for fault in rng.choices([fault for fault in KEEPING if fault != "reset"], k=rng.randint(1, 5))
        ]
        found.sort(key=when)
        return replace(schedule, bound=None, tail=0.05, slowest=rng.choice((0.02, 0.3)), faults=tuple(found))
    return schedule


OF_KINDS["once"] = FAMILIES["once"] = once
