"""A family of schedules with elections: candidates that serve terms, and observers of them."""

import asyncio
from contextlib import aclosing
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from random import Random
from unittest.mock import patch

from framework.kinds import OF_KINDS, RUNS, KindRun, KindSchedule, Task, calm
from framework.schedules import FAMILIES, Fault, faults, when

from redlock_async import RedlockError
from redlock_async._runtime.acquire_round import AcquireRound
from redlock_async.testing import Violation

LATE = 0.05
"""Seconds after which an observer has seen a change, in a calm schedule."""


@dataclass(frozen=True)
class ElectionSchedule(KindSchedule):
    """Candidates, each with several terms, and observers."""

    delay: float = 0.0

    @property
    def longest_ttl(self):
        """How long a key can stay."""
        return super().longest_ttl + self.delay


class Electing(KindRun):
    """Checks what the observers report: the true leaders, in their order, and soon."""

    def __init__(self, schedule, clients):
        super().__init__(schedule, clients)
        self.reports = []
        """For each observer: (when, leader or None)."""
        self.gave_up = []
        """The attempts that gave up while a majority may have voted for them: (when, the command)."""

    def outcome(self):
        give_up = AcquireRound._on_hedge_delay

        def noted(attempt):
            possible = attempt.granted + attempt._open.bit_count()
            undecided = not attempt._decided
            give_up(attempt)
            if undecided and attempt._decided and possible >= attempt.quorum:
                self.gave_up.append((self._simulation.now, attempt._command.pack_with_source()))

        with patch.object(AcquireRound, "_on_hedge_delay", noted):
            return super().outcome()

    @property
    def _excused(self):
        return super()._excused or bool(self.schedule.delay)

    def _election(self, redlock, job, value=None):
        return redlock.election(job.name, value=value, ttl=job.ttl, takeover_delay=self.schedule.delay)

    async def _hold(self, process, redlock, job):
        if job.kind == "observe":
            await self._observe(redlock, job)
            return
        election = self._election(redlock, job, process.name)

        async def serve(term):
            with self.recorder.body(process, term):
                await asyncio.sleep(job.work)

        await election.run(serve)

    async def _observe(self, redlock, job):
        reports = []
        self.reports.append(reports)
        try:
            async with asyncio.timeout(job.work), aclosing(self._election(redlock, job).changes()) as changes:
                async for leader in changes:
                    self._note(reports, leader)
        except (TimeoutError, RedlockError):
            pass

    def _note(self, reports, leader):
        reports.append((self._simulation.now, leader))

    def lock(self, redlock, job):
        """For the check that the office is free in the end."""
        return redlock(job.name, ttl=job.ttl, wait=job.wait)

    def check(self):
        tracks = sorted(self.recorder.tracks, key=lambda track: track.start)
        for reports in self.reports:
            yield from self._in_order(reports)
            for at, leader in reports:
                if leader is not None:
                    yield from self._true(at, leader, tracks)
            if self.schedule.calm:
                yield from self._soon(reports, tracks)

    @staticmethod
    def _in_order(reports):
        fences = [leader.fencing_token for _, leader in reports if leader is not None]
        if any(later < earlier for earlier, later in pairwise(fences)):
            yield Violation("observer", f"an earlier term was reported after a later one: {fences}")
        for (_, first), (at, second) in pairwise(reports):
            if first is None is second:
                yield Violation("observer", f"nobody leads was reported twice, at {at:.3f}")

    def _true(self, at, leader, tracks):
        """It was or is a leader, or a majority voted for it, and it gave up before it heard of the last vote."""
        named = [track for track in tracks if track.process.name == leader.value and track.start <= at + 0.5]
        voted = [
            when for when, sent in self.gave_up if leader.value.encode() in sent and when - 0.5 <= at <= when + 0.5
        ]
        if not named and not voted:
            yield Violation("observer", f"{leader.value} was reported at {at:.3f}, before it led")

    def _soon(self, reports, tracks):
        """Each term that was long enough to be seen is reported."""
        if not reports:
            return
        for track in tracks:
            end = track.true_until if track.end is None else track.end
            seen_until = reports[-1][0]
            if end - track.start < LATE or track.start < reports[0][0] or end > seen_until:
                continue
            if not any(
                leader is not None
                and leader.value == track.process.name
                and track.start - LATE <= at <= track.start + LATE
                for at, leader in reports
            ):
                yield Violation("observer", f"the term of {track.process.name} from {track.start:.3f} was not reported")


RUNS["terms"] = Electing


def terms(seed):
    """Candidates that serve, crash, are stopped or cut off; an operator who deposes them; and observers."""
    rng = Random(seed)
    ttl = rng.choice((0.3, 0.5, 1.0))
    patience = 20 * ttl

    def serving():
        return Task("serve", "x", rng.uniform(0.1, 2), ttl, patience, rng.choice((0.02, rng.uniform(0.4, 3) * ttl)))

    span = rng.uniform(4, 8)
    jobs = [tuple(serving() for _ in range(rng.randint(1, 4))) for _ in range(rng.randint(2, 3))]
    jobs += [(Task("observe", "x", rng.uniform(0, 1), ttl, 0.0, span),) for _ in range(rng.randint(1, 2))]
    if rng.random() < 0.5:  # an observer in a process of candidates
        jobs[0] = (*jobs[0], Task("observe", "x", rng.uniform(0, 1), ttl, 0.0, span))
    schedule = calm(seed, rng, "terms", jobs, bound=None)
    found, choice = (), rng.random()
    if choice < 0.4:
        schedule = replace(schedule, nodes=rng.choice((3, 3, 5)))
        found = faults(rng, schedule, rng.randint(1, 5))
    elif choice < 0.7:  # a holder notices a force-release at once only if it is connected to the nodes
        found = [Fault(rng.uniform(0.2, 5), "force", 0) for _ in range(rng.randint(1, 3))]
    given = {each.name: getattr(schedule, each.name) for each in fields(KindSchedule)}
    given |= {"faults": tuple(sorted(found, key=when))}
    return ElectionSchedule(**given, delay=rng.choice((0.0, 0.0, 1.0)))


OF_KINDS["terms"] = FAMILIES["terms"] = terms
