"""A family of schedules with `takeover_delay`: nobody takes over too early, and nobody waits after a release."""

from dataclasses import dataclass, fields, replace
from random import Random

from framework.kinds import OF_KINDS, RUNS, KindRun, KindSchedule, Task, calm
from framework.schedules import DRIFT, FAMILIES, Fault, when

from redlock_async._rules.lease_timing import Phase
from redlock_async.testing import Violation

BOUND = 1.0
"""Seconds within which a released lock is acquired by one that waits: less than any delay."""


@dataclass(frozen=True)
class TakeoverSchedule(KindSchedule):
    """Leases with a delay after their end, unless they are released."""

    delay: float = 0.0

    @property
    def longest_ttl(self):
        """How long a key can stay."""
        return super().longest_ttl + self.delay


class TakingOver(KindRun):
    """Checks that there is no successor before the delay is over.

    A lease that was missing on too many nodes when it was released has no delay, just as one that was force-released.
    """

    def lock(self, redlock, job):
        options = {"ttl": job.ttl, "wait": job.wait, "renew": job.renew, "takeover_delay": self.schedule.delay}
        match job.kind:
            case "semaphore":
                return redlock.semaphore(job.name, permits=job.permits, **options)
            case "lock":
                return redlock(job.name, **options)
        return getattr(redlock, f"{job.kind}_lock")(job.name, **options)

    @property
    def _excused(self):
        return True  # a lease that was lost stays for its delay; the last check comes after that

    def check(self):
        yield from super().check()
        for track in self.recorder.tracks:
            lost = track.holding.phase is Phase.LOST and not track.holding.freed
            if not lost and not self._died(track):
                continue
            for own in track.holds(track.true_until):
                yield from self._too_soon(track, own)

    def _died(self, track):
        return track.process.dead and track.holding.phase is Phase.HELD

    def _too_soon(self, track, own):
        free_at = track.true_until + self.schedule.delay * (1 - 2 * DRIFT)
        for other in self.recorder.tracks:
            if other is track or not track.start < other.start < free_at:
                continue
            for theirs in other.holds(other.true_until):
                shared = own.kind == theirs.kind == "read"
                if (own.name, own.slot) == (theirs.name, theirs.slot) and not shared:
                    early = f"{other.start - track.true_until:.3f} s after the end of a lease that was not released"
                    delay = f"takeover_delay={self.schedule.delay:.3f}"
                    yield Violation("takeover", f"{theirs.kind} {own.name!r} was acquired {early}, with {delay}")


RUNS["takeover"] = TakingOver


def takeover(seed):
    """A holder that crashes, is stopped, is cut off or releases; nodes that miss its lease, or forget it."""
    rng = Random(seed)
    ttl, delay = rng.choice((0.5, 1.0, 2.0)), rng.choice((2.0, 3.0, 6.0))
    kinds = rng.choice((("lock",), ("lock",), ("fair",), ("write", "read"), ("semaphore",)))
    work = rng.choice((rng.uniform(0.1, 1) * ttl, rng.uniform(1, 5) * ttl))
    patience = 4 * (ttl + delay) + 4

    def job(at, work, *, renew=True):
        return Task(rng.choice(kinds), "x", at, ttl, patience, work, renew=renew, permits=1)

    end = rng.choice(("crash", "crash", "stop", "cut off", "expiry", "release"))
    jobs = [(job(0.5, work, renew=end != "expiry"),)]
    jobs += [(job(rng.uniform(0.55, 0.6 + work + delay), rng.uniform(0.01, 0.3)),) for _ in range(rng.randint(1, 3))]
    if end == "release":
        schedule = calm(seed, rng, "takeover", [tuple(replace(own, kind=kinds[0]) for own in each) for each in jobs])
        schedule = replace(schedule, bound=BOUND if kinds[0] in {"lock", "fair"} else None)
    else:
        schedule = replace(calm(seed, rng, "takeover", jobs, bound=None), nodes=rng.choice((3, 3, 5)))
    at, found = 0.5 + rng.uniform(0.1, 1) * work, []
    if end == "crash":
        found.append(Fault(at, "murder", 0))
    elif end == "stop":
        found.append(Fault(at, "stop", 0, rng.uniform(1, 2) * (ttl + delay)))
    elif end == "cut off":
        seconds = rng.uniform(1, 3) * ttl
        found += [
            Fault(at, rng.choice(("hold", "black hole")), node, seconds, process=0) for node in range(schedule.nodes)
        ]
    if end == "crash" and rng.random() < 0.6:
        # It is held on a bare majority, of which as many nodes as may be lose their data before or after the crash.
        spare = schedule.nodes - (schedule.nodes // 2 + 1)
        order = rng.sample(range(schedule.nodes), schedule.nodes)
        away, forgetful = order[:spare], order[spare : 2 * spare]
        found += [
            Fault(0.05, rng.choice(("kill", "cut", "pause")), node, at - 0.05 + rng.uniform(0, 0.3)) for node in away
        ]
        lost_at = at + rng.uniform(-0.1, 0.5 * delay)
        found += [Fault(lost_at, rng.choice(("wipe", "restart empty")), node, 0.05) for node in forgetful]
    elif end != "release" and rng.random() < 0.4:
        found.append(Fault(rng.uniform(0.6, at + 0.1), "wipe", rng.randrange(schedule.nodes)))
    given = {each.name: getattr(schedule, each.name) for each in fields(KindSchedule)}
    return TakeoverSchedule(**given | {"faults": tuple(sorted(found, key=when))}, delay=delay)


OF_KINDS["takeover"] = FAMILIES["takeover"] = takeover
