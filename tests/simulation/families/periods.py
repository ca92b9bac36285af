"""Families with locks that outlive a block: periods while nodes fail one after the other, and detached leases."""

import asyncio
import base64
import json
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from random import Random
from zlib import crc32

from framework.kinds import OF_KINDS, RUNS, KindRun, KindSchedule, Task, calm
from framework.schedules import DRIFT, FAMILIES, Fault, when

from families.once import OnceSchedule, Tick, Ticking, Try
from redlock_async import HoldUnconfirmed, LockLost, QuorumUnavailable
from redlock_async._rules.detached import CHECKSUM, FORMAT
from redlock_async.testing import Violation

AWAY = ("pause", "kill", "kill silently", "restart", "cut", "hold", "hold replies", "black hole")
"""Faults that make a node unavailable and keep its data."""

CONNECTED = 2.0
"""Seconds after a node is back until all clients are connected, even if they had just begun a pause."""

SETTLED = 4.0
"""Seconds after a node is back until all delayed requests have arrived and been corrected."""


@dataclass(frozen=True)
class PeriodSchedule(OnceSchedule):
    """Ticks of several machines, while one node after the other is unavailable."""


class Keeping(Ticking):
    """Checks that a run without an error keeps its period, and no run keeps the name for longer."""

    async def _hold(self, process, redlock, job):
        schedule = self.schedule
        tried = Try(self._processes.index(process), job, self._simulation.now)
        self.attempts.append(tried)
        once = redlock.once(job.name, every=schedule.every, hold=schedule.hold, ttl=job.ttl)
        lease = await once.try_acquire()
        tried.end = self._simulation.now
        if lease is None:
            return
        tried.begun = self.recorder.true(process, lease._held.acquired_at)
        self._simulation.at(self._over(tried), self._look, tried, lease._held.token)
        try:
            async with lease:
                with self.recorder.body(process, lease):
                    await asyncio.sleep(job.work)
                    done_at = self._simulation.now
        except (LockLost, HoldUnconfirmed) as error:
            tried.lost = True  # it raised LockLost: another run may follow
            if isinstance(error, HoldUnconfirmed):
                self._judge_failure(error, done_at - CONNECTED)
            raise
        finally:
            tried.ended = self._simulation.now

    def _judge_failure(self, error, since):
        """A period is stored if a quorum of the nodes is available."""
        now, faults = self._simulation.now, self.schedule.faults
        away = {fault.target for fault in faults if fault.at < now and fault.at + fault.seconds > since}
        if len(away) <= (self.schedule.nodes - 1) // 2:
            self.recorder.violations.append(Violation("period", f"{error}, and only {away} were away"))

    def _over(self, tried):
        """When no node can have its key any more."""
        return max(tried.begun + self.schedule.hold, tried.end + tried.job.work + 1) * (1 + 2 * DRIFT) + 1

    def _look(self, tried, token):
        now = self._simulation.now
        if any(fault.at - 0.5 <= now <= fault.at + fault.seconds + SETTLED for fault in self.schedule.faults):
            return  # requests sent to a node before it failed are corrected when it is back
        for machine in self._simulation.machines:
            session = machine.server.connect(lambda *_: None)
            held = machine.server.receive(session, b"*2\r\n$3\r\nGET\r\n$1\r\nx\r\n")
            if token in held:
                late = f"{now - tried.begun:.3f} s after a run began, its hold of {self.schedule.hold:.3f} s stands"
                self.recorder.violations.append(Violation("period", f"{late} on {machine.label}"))

    def check(self):
        runs = sorted((tried for tried in self.attempts if tried.begun is not None), key=lambda tried: tried.end)
        yield from self._too_soon(runs)


RUNS["periods"] = Keeping


def periods(seed):
    """A run that starts while one node is unavailable and ends while another is, and ticks within its period."""
    rng = Random(seed)
    every = rng.choice((6.0, 20.0))
    hold = every * rng.uniform(0.5, 0.9)
    begin, work = rng.uniform(0.5, 1.5), rng.choice((0.02, rng.uniform(0.05, 1.5)))
    ttls = (0.3, 0.6, 1.0, 1.0, 0.3 * hold, 1.5 * hold)
    first = rng.choice(ttls)
    until = begin + rng.uniform(0.1, 1) * work
    gaps = (0.001, rng.uniform(0, 0.1), rng.uniform(0, 2))
    lengths = (rng.uniform(0.1, 1), rng.uniform(0.5, 5))
    soon = (rng.uniform(0, 4), rng.uniform(0, hold))
    away, choice = AWAY, rng.random()
    if choice < 0.2:
        # The next node fails for a ttl before the holder is connected to the previous one; then other ticks follow.
        first, until, gaps, lengths = 0.3, begin + work, (0.001,), (rng.uniform(0.3, 0.7),)
        soon, away = (lengths[0] + rng.uniform(0, 0.3),), ("cut", "kill", "restart")
    elif choice < 0.5:
        # The node that failed is connected again, but not renewed yet, when the next one fails for long.
        every, hold, first, work = 20.0, 18.0, rng.uniform(12, 16), rng.uniform(2.6, 3.5)
        until, lengths = begin + rng.uniform(0.05, 0.5), (rng.uniform(6, 9),)
        gaps = (begin + work - rng.uniform(0.01, 0.05) - until,)

    def tick(at, ttl):
        return Tick("once", "x", at, min(ttl, every), 0.0, rng.choice((work, 0.0, 0.2)))

    def rival():
        return tick(begin + work + rng.choice(soon), rng.choice(ttls))

    jobs = [(replace(tick(begin, first), work=work),)]
    jobs += [tuple(rival() for _ in range(rng.randint(1, 3))) for _ in range(rng.randint(1, 3))]
    schedule = calm(seed, rng, "periods", jobs, bound=0.0)
    nodes = rng.choice((3, 3, 3, 5))
    found, at, before = [], rng.uniform(0.1, begin), None
    for number in range(rng.randint(1, 4)):
        node = rng.choice([each for each in range(nodes) if each != before])
        seconds = rng.choice(lengths) if number else until - at
        found.append(Fault(at, rng.choice(away), node, seconds))
        at, before = at + seconds + rng.choice(gaps), node
    given = {each.name: getattr(schedule, each.name) for each in fields(KindSchedule)}
    given |= {"nodes": nodes, "faults": tuple(found)}
    return PeriodSchedule(**given, every=every, hold=hold)


OF_KINDS["periods"] = FAMILIES["periods"] = periods


@dataclass(frozen=True)
class Handed(Task):
    """A lease that is detached and attached again."""

    claims: float = 0.0
    """Seconds by which the text's validity is falsified."""
    rests: float = 0.0
    """Seconds between detach and attach."""


def claiming(text, seconds):
    """The text with a longer validity and a correct checksum."""
    said = json.loads(base64.urlsafe_b64decode(text[len(FORMAT) + CHECKSUM :]))
    payload = json.dumps(said | {"until": said["until"] + seconds}).encode()
    return f"{FORMAT}{crc32(payload):08x}{base64.urlsafe_b64encode(payload).decode()}"


class Handing(KindRun):
    """Checks that the name has no other holder while an attached lease is valid."""

    async def _hold(self, process, redlock, job):  # noqa: ARG002 - the signature of Run
        lease = await redlock(job.name, ttl=job.ttl, wait=job.wait).acquire()
        if not job.claims and not job.rests:
            async with lease:
                await asyncio.sleep(job.work)
            return
        text = claiming(lease.detach(), job.claims)
        await asyncio.sleep(job.rests)
        attached = redlock.attach(text)
        if job.claims:
            # For up to its ttl its claim may be false. After that the nodes must have confirmed it.
            believed = self._simulation.now + job.ttl * (1 + 2 * DRIFT)
            self._simulation.at(believed, self._count_from, attached._held, believed)
        await asyncio.sleep(job.work)
        with suppress(LockLost, QuorumUnavailable):
            await attached.release()

    def _count_from(self, holding, believed):
        """Check that lease only from now on."""
        for track in [each for each in self.recorder.tracks if each.holding is holding]:
            track.start = believed
            if track.end is not None:
                self.recorder.tracks.remove(track)

    def check(self):
        """Check only exclusion, fencing and orphans."""
        return ()


RUNS["handed over"] = Handing


def handed_over(seed):
    """Detached leases with falsified texts, a process that is cut off from all nodes meanwhile, and contenders."""
    rng = Random(seed)
    ttl = rng.choice((0.5, 1.0, 3.0))

    def first():
        return Handed(
            "lock", "x", rng.uniform(0.5, 0.6), ttl, ttl, rng.uniform(0.5, 3) * ttl,
            claims=rng.choice((0.0, 0.5 * ttl, 3600.0)), rests=rng.uniform(0.01, 0.9) * ttl,
        )  # fmt: skip

    def rival():
        return Handed("lock", "x", rng.uniform(0.5, 1 + 2 * ttl), rng.choice((0.5, 2.0)), 4 * ttl, rng.uniform(0, ttl))

    jobs = [(first(),), *((rival(),) for _ in range(rng.randint(1, 3)))]
    schedule = calm(seed, rng, "handed over", jobs, bound=None)
    found = []
    if rng.random() < 0.7:
        at, seconds = rng.uniform(0.55, 1 + ttl), rng.uniform(0.5, 3) * ttl
        what = rng.choice(("black hole", "hold", "hold replies"))
        found = [Fault(at, what, node, seconds, process=0) for node in range(schedule.nodes)]
    if rng.random() < 0.3:
        node = rng.randrange(schedule.nodes)
        found.append(Fault(rng.uniform(0.5, 2), rng.choice(AWAY), node, rng.uniform(0.1, 2)))
    return replace(schedule, faults=tuple(sorted(found, key=when)))


OF_KINDS["handed over"] = FAMILIES["handed over"] = handed_over
