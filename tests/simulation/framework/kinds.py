"""Schedules aimed at each of the other kinds of lock, and what each of them promises beyond exclusion and fences."""

import asyncio
from collections import Counter
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, fields, replace
from random import Random

from schedules import (
    FAMILIES,
    OPERATOR,
    SETTLING,
    TO_PROCESSES,
    Fault,
    Job,
    Run,
    Schedule,
    asymmetric,
    at_expiry,
    bare_majority,
    late,
    mixed,
)
from schedules import faults as any_faults

from redlock_async import ConfigurationError, LockLost, LockTimeout, QuorumUnavailable
from redlock_async._claim import HINT_MS, REFRESH
from redlock_async._keys import RESERVED
from redlock_async._queue import SHORTEST_PLACE
from redlock_async._slots import LONGEST_PATIENCE
from redlock_async._wire import pack
from redlock_async.testing import Hold, Violation

AT_ONCE = 0.3
"""Seconds in which who tries once knows: some round trips, the first connections included, and `node_timeout`."""

SLOW = 0.02
"""Seconds a message may take where nothing fails for it."""

RUSH = 0.1
"""Seconds in which readers may still get in that were about to when a writer began to wait, or left."""

LONGEST_STOP = SHORTEST_PLACE - SHORTEST_PLACE / 3 - 0.1
"""Seconds a waiter may be stopped without losing its place: until then its last sign of life is good."""

BEYOND = 1.02
"""Of a ttl: what is left of a lease on the nodes is over by then, by whatever clock."""


@dataclass(frozen=True)
class Task(Job):
    """What one task wants of a kind of lock; of a latch: `count`, `remaining` or `wait`."""

    permits: int = 2
    slots: int = 1
    """How many of them, at once."""
    downgrade: bool = False
    """Whether the writer becomes a reader, halfway."""
    again: bool = False
    """Whether the reader reads once more, halfway, in the same task."""
    event: str = ""


@dataclass(frozen=True)
class KindSchedule(Schedule):
    """A schedule in which more is promised than usual."""

    kind: str = ""
    bound: float | None = None
    """Seconds that anybody waits at most for what nobody keeps from him; None: not judged, masters or network fail."""
    passed: float | None = None
    """Of semaphores: seconds that who wants many waits at most, though others take what they want before."""
    held_back: float | None = None
    """Of semaphores: seconds that who wants one slot waits at most, though others come who want more."""
    ordered: bool = False
    """Of fair locks: whether who came first must be served first."""
    prompt: float | None = None
    """Of fair locks: seconds after its call from which nobody who comes later may pass one that waits."""
    count: int = 0
    """Of a latch: how many events open it."""
    lossless: bool = True
    """Of a latch: whether every master keeps what it has stored."""
    hearsay: bool = False
    """Of a latch: whether what a single master has stored must be heard of, too, though its count was cut off."""
    aged: bool = False
    """Whether the masters have been there for long."""
    changes: tuple[tuple[float, int], ...] = ()
    """When an operator changes a semaphore's number of permits, and to what."""
    lags: tuple[float, ...] = ()
    """How long each message between that operator and each master takes; for a second one they are interchanged."""
    stays: bool = False
    """Whether that operator's client is there until all is healed: then nothing is left of what has failed."""
    foreign: tuple[float, ...] = ()
    """When another library takes the lock for `FOREIGN` seconds, if it can."""

    @property
    def calm(self):
        # In a fresh cluster slow replies can cost the first clients some votes.
        return super().calm or (self.aged and not self.faults and self.slowest <= SLOW)

    @property
    def reaches_masters(self):
        """Whether something happens to masters or network."""
        return any(fault.what not in {*TO_PROCESSES, "force"} for fault in self.faults)

    def carried_out(self, clients):
        """The run of it."""
        return RUNS[self.kind](self, clients)


FOREIGN = 0.3


@dataclass
class Change:
    """An operator's change of the number of permits."""

    permits: int
    start: float
    end: float | None = None
    made: bool = False
    process: object = None
    stopped_by: str = ""


@dataclass
class Attempt:
    """One acquire, from its call to its end."""

    number: int
    job: Task
    start: float
    end: float | None = None
    within: bool = False
    """Whether its task reads already."""
    refused: bool = False
    """Whether another number of permits was in use."""
    granted: bool = False
    ahead: set = field(default_factory=set)
    """(process, place) of all who were in the queue on a quorum when it was called."""


class KindRun(Run):
    """A schedule of one kind."""

    def __init__(self, schedule, clients):
        super().__init__(schedule, clients)
        self.attempts = []
        if schedule.aged:
            self._age()
        for at in schedule.foreign:
            self._simulation.at(at, self._take_foreign)

    def _age(self):
        """The masters are an hour old: in a fresh cluster slow replies cost the first clients some votes."""
        for machine in self._simulation.machines:
            session, born = machine.master.connect(lambda *_: None), int((machine._clock() - 3600) * 1e6)
            for key in ("born", "founded"):
                machine.master.receive(session, pack(("SET", RESERVED + key, born)))

    def outcome(self):
        outcome = super().outcome()
        outcome.violations += self.check()
        return outcome

    def check(self):
        """Every promise of this kind that was broken."""
        if self.schedule.bound is None:
            return
        holds = list(self.recorder.holds())
        for attempt in self.attempts:
            if self._struck(attempt):
                continue
            end = self._simulation.now if attempt.end is None else attempt.end
            if attempt.job.wait == 0 and end - attempt.start > AT_ONCE and not self.schedule.reaches_masters:
                yield Violation(
                    "liveness", f"who tries once took {end - attempt.start:.3f} s, from {attempt.start:.3f}"
                )
            reasons = [*self.blockers(attempt, holds), *self._disturbances(attempt)]
            since, idle = longest_gap(attempt.start, end, reasons, self.depth(attempt))
            if idle > self.schedule.bound:
                what = f"{attempt.job.kind} of process {attempt.number}, called at {attempt.start:.3f}"
                yield Violation("liveness", f"{what}, waited {idle:.3f} s from {since:.3f} for nobody")

    def depth(self, attempt):  # noqa: ARG002 - for those that share
        """How many it takes to keep it waiting."""
        return 1

    def blockers(self, attempt, holds):
        """When it is right that it waits: (from, to)."""
        return [(hold.start, hold.end) for hold in holds if hold.name == attempt.job.name]

    def _struck(self, attempt):
        """Whether its own process was stopped or killed."""
        return any(fault.what in TO_PROCESSES and fault.target == attempt.number for fault in self.schedule.faults)

    def _disturbances(self, attempt):
        """While what a struck process has left behind may be in the way."""
        for fault in self.schedule.faults:
            if fault.what in TO_PROCESSES:
                left = BEYOND * self.schedule.longest_ttl
                kinds = {job.kind for job in self.schedule.jobs[fault.target]}
                if "write" in kinds:
                    left = max(left, HINT_MS / 1000)
                if "fair" in kinds:
                    left = max(left, SHORTEST_PLACE)
                if any(job.slots > 1 for job in self.schedule.jobs[fault.target]):
                    left = max(left, HINT_MS / 1000)
                yield from [(fault.at, fault.at + fault.seconds + left + RUSH)] * self.depth(attempt)

    # What processes do

    async def _hold(self, process, redlock, job):
        attempt = Attempt(self._processes.index(process), job, self._simulation.now)
        self.attempts.append(attempt)
        self.called(attempt, redlock)
        try:
            async with self.held(redlock, job) as lease:
                attempt.end = self._simulation.now
                attempt.granted = True
                self.granted(attempt)
                with self.recorder.body(process, lease):
                    await asyncio.sleep(job.work)
                if job.again:
                    await self._read_again(process, redlock, job)
                if job.downgrade:
                    reading = await lease.downgrade()
                    async with reading:
                        with self.recorder.body(process, reading):
                            await asyncio.sleep(job.work)
        except ConfigurationError:
            if not self.may_be_refused:
                raise
            attempt.refused = True
        finally:
            if attempt.end is None and not process.dead:
                attempt.end = self._simulation.now

    async def _read_again(self, process, redlock, job):
        attempt = Attempt(self._processes.index(process), job, self._simulation.now, within=True)
        self.attempts.append(attempt)
        try:
            async with self.lock(redlock, job) as lease:
                attempt.end = self._simulation.now
                with self.recorder.body(process, lease):
                    await asyncio.sleep(job.work)
        finally:
            if attempt.end is None and not process.dead:
                attempt.end = self._simulation.now

    may_be_refused = False

    @asynccontextmanager
    async def held(self, redlock, job):
        """A block under what the job asks for."""
        lock = self.lock(redlock, job)
        async with lock if job.slots == 1 else await lock.acquire(count=job.slots) as lease:
            yield lease

    def lock(self, redlock, job):
        """The lock object a job asks for."""
        options = {"ttl": job.ttl, "wait": job.wait, "renew": job.renew, "fencing": job.fencing}
        match job.kind:
            case "semaphore":
                return redlock.semaphore(job.name, permits=job.permits, **options)
            case "lock":
                return redlock(job.name, **options)
        return getattr(redlock, job.kind)(job.name, **options)

    def called(self, attempt, redlock):
        """An acquire begins."""

    def granted(self, attempt):
        """It has its lease."""

    async def _check_liveness(self, redlock):
        patience = 6 * self.schedule.longest_ttl + SETTLING
        kinds = sorted({job.kind for jobs in self.schedule.jobs for job in jobs})
        for name in self.names:
            for kind in kinds:
                job = Task(kind, name, 0.0, 1.0, patience, 0.0, permits=self.usual_permits)
                try:
                    lease = await self.lock(redlock, job).acquire()
                    with suppress(LockLost, QuorumUnavailable):
                        await lease.release()
                except (LockTimeout, QuorumUnavailable, ConfigurationError) as error:
                    self.recorder.violations.append(Violation("liveness", f"{error} (after healing)"))

    @property
    def names(self):
        """Of all that is wanted."""
        return sorted({job.name for jobs in self.schedule.jobs for job in jobs})

    @property
    def usual_permits(self):
        """The number of permits most jobs give."""
        permits = Counter(job.permits for jobs in self.schedule.jobs for job in jobs)
        return permits.most_common(1)[0][0]

    # What others do

    def _take_foreign(self):
        """A client of another library: no script, no queue, no hint."""
        simulation, granted = self._simulation, []
        name = self.schedule.jobs[0][0].name if self.schedule.jobs[0] else "x"
        for machine in simulation.machines:
            if machine.up and not machine.paused:
                session = machine.master.connect(lambda *_: None)
                command = pack(("SET", name, "foreign", "NX", "PX", round(FOREIGN * 1000)))
                if machine.master.receive(session, command).startswith(b"+OK"):
                    granted.append((machine, session))
                    machine._await_expiry()
        if len(granted) > len(simulation.machines) // 2:
            now = simulation.now
            self.recorder.further.append(Hold(name, "foreign", now, now + FOREIGN / BEYOND - 0.002))
        else:
            for machine, session in granted:
                machine.master.receive(session, pack(("DEL", name)))


class Sharing(KindRun):
    """Readers and writers: nobody starves, and nobody is kept out by the dead."""

    def blockers(self, attempt, holds):
        holds = [hold for hold in holds if hold.name == attempt.job.name]
        alone = [(hold.start, hold.end) for hold in holds if hold.kind != "read"]
        if attempt.within:
            return alone  # no writer that waits: it waits for this very task
        if attempt.job.kind != "write":
            # New readers wait for writers that wait. A plain lock waits for everybody, for as long as they come.
            writers = [other for other in self.attempts if other.job.kind == "write" and other is not attempt]
            waiting = [(other.start, self._simulation.now if other.end is None else other.end) for other in writers]
            readers = [(hold.start, hold.end) for hold in holds if hold.kind == "read"]
            return [*alone, *waiting, *(readers if attempt.job.kind == "lock" else ())]
        # A writer waits for the readers that are in, for those that get in with it, and for those that get in when
        # another writer has left, whose hint was the only one until it asks again.
        rushes = [(attempt.start, RUSH), *((end, RUSH) for _, end in alone)]
        rushes += [(other.end, REFRESH + RUSH) for other in self.attempts if other.job.kind == "write" and other.end]
        return alone + [
            (hold.start, hold.end)
            for hold in holds
            if hold.kind == "read"
            and (hold.start < attempt.start or any(0 <= hold.start - at < rush for at, rush in rushes))
        ]

    def _struck(self, attempt):
        # Behind a plain lock of the same process, which holds no reader out, a writer cannot do so either.
        jobs = self.schedule.jobs[attempt.number]
        return super()._struck(attempt) or (attempt.job.kind == "write" and any(job.kind == "lock" for job in jobs))


class Permits(KindRun):
    """A semaphore: free slots are found, and everybody means the same number of permits."""

    may_be_refused = True

    def __init__(self, schedule, clients):
        super().__init__(schedule, clients)
        self.changes = []
        for at, permits in schedule.changes:
            self.changes.append(Change(permits, at))
            self._simulation.at(0.01, self._operate, len(self.changes))

    @property
    def usual_permits(self):
        stands = [change.permits for change in self.changes if change.made and self.schedule.stays]
        return stands[-1] if stands else super().usual_permits

    def _operate(self, number):
        lags, change = self.schedule.lags, self.changes[number - 1]
        operator = self._simulation.process(self._change, change, OPERATOR + number)
        change.process = operator
        for node in range(len(lags)):
            self._simulation.delay(node, lags[(node + number) % len(lags)], operator)

    async def _change(self, change, number):
        async with self._clients(self.schedule.nodes, number) as redlock:
            await self._sleep_until(change.process, change.start)
            change.start = self._simulation.now
            try:
                await redlock.change_permits("x", change.permits)
                change.made = True
                self._simulation.at(self._simulation.now + RUSH, self._look_at_numbers)
            except LockTimeout as error:
                change.stopped_by = str(error)
            except QuorumUnavailable:
                pass
            change.end = self._simulation.now
            if self.schedule.stays:
                await self._sleep_until(change.process, self.schedule.heals_at + SETTLING - 1)
                self._look_for_failed(change)

    def _look_for_failed(self, change):
        """What was said to have failed is nowhere, and comes into force nowhere later."""
        if change.made:
            return
        for machine, number in self._stored():
            if number == b"%d" % change.permits:
                what = f"permits={number.decode()} was not set, and stands on {machine.label}"
                self.recorder.violations.append(Violation("liveness", what))

    def _stored(self):
        """Each master, and its number of permits."""
        for machine in self._simulation.machines:
            stored = bytes(machine.master.keys().get(b"redlock-async:semaphore:{x}", b""))
            yield machine, stored.partition(b":")[0]

    def _look_at_numbers(self):
        """When one was set, and nothing is under way, some number stands: on a majority, by whomever it was set."""
        under_way = any(change.end is None and change.start <= self._simulation.now for change in self.changes)
        if under_way or self.schedule.faults:
            return
        stored = Counter(number for _, number in self._stored())
        number, nodes = stored.most_common(1)[0]
        if not number or nodes <= len(self._simulation.machines) // 2:
            set_ = ", ".join(f"{change.permits} at {change.end:.3f}" for change in self.changes if change.made)
            self.recorder.violations.append(
                Violation("liveness", f"of permits={set_} none stands on a majority: {stored}")
            )

    def _failed(self, error):
        # Where a minority is not connected yet, it may be that none of two numbers has a majority.
        if len({job.permits for jobs in self.schedule.jobs for job in jobs}) == 1 and not self.schedule.changes:
            super()._failed(error)

    async def _check_liveness(self, redlock):
        if self.schedule.changes and not self.schedule.stays:
            # One that was cut off has left its number on some masters: it is made again when all are back.
            for _ in range(int(6 * self.schedule.longest_ttl + SETTLING)):
                try:
                    await redlock.change_permits("x", self.usual_permits)
                    break
                except (LockTimeout, QuorumUnavailable):
                    await asyncio.sleep(1)
        await super()._check_liveness(redlock)

    def depth(self, attempt):
        return attempt.job.permits - attempt.job.slots + 1

    def blockers(self, attempt, holds):
        # Who wants more may hold back who wants fewer.
        more = [
            (other.start, self._simulation.now if other.end is None else other.end)
            for other in self.attempts
            if other.job.slots > attempt.job.slots
        ]
        return [*super().blockers(attempt, holds), *more * self.depth(attempt)]

    def check(self):
        yield from super().check()
        holds = sorted(self.recorder.holds(), key=lambda hold: hold.start)
        if self.schedule.passed is not None:
            for attempt in self.attempts:
                waited = (self._simulation.now if attempt.end is None else attempt.end) - attempt.start
                rivals = [other for other in self.attempts if other is not attempt and other.job.slots > 1]
                if attempt.job.slots > 1 and waited > self.schedule.passed * (1 + len(rivals)):
                    yield Violation("liveness", f"who wants {attempt.job.slots} slots was passed for {waited:.3f} s")
        if self.schedule.held_back is not None:
            for attempt in self.attempts:
                waited = (self._simulation.now if attempt.end is None else attempt.end) - attempt.start
                if attempt.job.slots == 1 and waited > self.schedule.held_back:
                    yield Violation("liveness", f"who wants 1 slot was held back for {waited:.3f} s")
        yield from self._changed(holds) if self.schedule.changes else self._one_number(holds)

    def _changed(self, holds):
        """What is promised to an operator who changes the number."""
        for change in self.changes:
            if self._alone(change):
                if change.made:
                    yield from self._in_force(change, holds)
                elif self._calm and change.permits == self._largest:
                    yield Violation("liveness", f"raising permits to {change.permits} failed: {change.stopped_by}")
        if self._calm and len({job.permits for jobs in self.schedule.jobs for job in jobs}) == 1:
            yield from self._unchanged()

    @property
    def _calm(self):
        return not self.schedule.faults and all(change.end is not None for change in self.changes)

    @property
    def _largest(self):
        """Of all numbers that anybody uses."""
        return max(
            *(job.permits for jobs in self.schedule.jobs for job in jobs), *(change.permits for change in self.changes)
        )

    def _span(self, change):
        return change.start, self._simulation.now if change.end is None else change.end

    def _alone(self, change):
        """Whether nobody else changed it at the same time."""
        start, end = self._span(change)
        others = [self._span(other) for other in self.changes if other is not change]
        return not any(since <= end and until >= start for since, until in others)

    def _in_force(self, change, holds):
        """From its end until somebody tries the next: no more slots than that, and no other number."""
        until = min((each.start for each in self.changes if each.start > change.end), default=self.schedule.heals_at)
        within = [hold for hold in holds if hold.start < until and hold.end > change.end]
        for at in (change.end, *(hold.start for hold in within if hold.start > change.end)):
            standing = [hold for hold in within if hold.start <= at < hold.end]
            if len(standing) > change.permits:
                found = "; ".join(map(str, standing))
                yield Violation("exclusion", f"at {at:.3f}, after permits={change.permits} was set: {found}")
        for attempt in self.attempts:
            if attempt.start > change.end and (attempt.end or self._simulation.now) < until:
                of, other = f"by process {attempt.number} at {attempt.end:.3f}", attempt.job.permits != change.permits
                if attempt.granted and other:
                    what = f"{attempt.job.permits} permits were used after {change.permits} were set"
                    yield Violation("exclusion", f"{what}, {of}")
                if self._calm and attempt.refused and not other:
                    yield Violation("liveness", f"{change.permits} permits were refused after they were set, {of}")

    def _unchanged(self):
        """Until the first change is made, those who use the old number are disturbed only while one is tried."""
        now = self._simulation.now
        first = min((change.end for change in self.changes if change.made), default=now)
        spans = [self._span(change) for change in self.changes]
        for attempt in self.attempts:
            disturbed = any(attempt.start < end + RUSH and (attempt.end or now) > start for start, end in spans)
            if attempt.refused and not disturbed and attempt.end < first:
                yield Violation("liveness", f"process {attempt.number} was refused though nothing was changed")

    @staticmethod
    def _one_number(holds):
        """Never two numbers at the same time."""
        for index, hold in enumerate(holds):
            for other in holds[index + 1 :]:
                if other.start >= hold.end:
                    break
                if other.name == hold.name and other.permits != hold.permits and other.end > other.start:
                    yield Violation("exclusion", f"of {hold.permits}: {hold}; of {other.permits}: {other}")


class Queueing(KindRun):
    """Fair locks: whoever is in the queue on a quorum is served before everybody who comes later."""

    def called(self, attempt, redlock):
        if self.schedule.ordered and attempt.job.kind == "fair":
            attempt.ahead = set(self._queued(redlock._keys.queue(attempt.job.name)))

    def granted(self, attempt):
        if attempt.job.kind != "fair":
            return
        if self.schedule.prompt is not None:
            for other in self.attempts:
                if other.end is None and other.start + self.schedule.prompt < attempt.start:
                    what = f"process {attempt.number}, called at {attempt.start:.3f}, was served before"
                    ahead = f"process {other.number}, called at {other.start:.3f}"
                    self.recorder.violations.append(Violation("order", f"{what} {ahead}"))
        for number, place in sorted(attempt.ahead):
            if self._waits(number, place) and not self._was_stopped(number):
                what = (
                    f"process {attempt.number}, called at {attempt.start:.3f}, was served at {self._simulation.now:.3f}"
                )
                ahead = f"process {number}, in the queue on a majority before that"
                self.recorder.violations.append(Violation("order", f"{what}, before {ahead}"))

    def _queued(self, keys):
        """Every place that is kept on a quorum now."""
        kept = Counter()
        for machine in self._simulation.machines:
            if machine.up and not machine.paused:
                stored, now = machine.master.keys(), machine._clock() * 1000
                until = stored.get(keys[1], {})
                kept.update(place for place in stored.get(keys[0], {}) if float(until.get(place, 0)) > now)
        needed = len(self._simulation.machines) // 2 + 1
        places = {keys[0] + b":" + place for place, times in kept.items() if times >= needed}
        for number in range(len(self._processes)):
            yield from ((number, place) for place in places if self._waits(number, place))

    def _waits(self, number, place):
        process = self._processes[number]
        engine = self._clients(self.schedule.nodes, number)._running
        return not process.dead and engine is not None and engine.loop is process.loop and place in engine.board

    def _struck(self, attempt):
        cut_off = any(fault.what == "black hole" and fault.process == attempt.number for fault in self.schedule.faults)
        return super()._struck(attempt) or cut_off

    def _was_stopped(self, number):
        """For so long that its place was lost."""
        stops = [fault for fault in self.schedule.faults if fault.what in TO_PROCESSES and fault.target == number]
        return sum(fault.seconds for fault in stops) > LONGEST_STOP


class Latching(KindRun):
    """A latch: opens when all has happened, not before, and for good; what was counted stays counted."""

    def __init__(self, schedule, clients):
        super().__init__(schedule, clients)
        self.called_ids, self.counted = {}, {}
        """When each event was first given, and when it was first counted for sure."""
        self.least = schedule.count
        """The fewest missing events that anybody was told of."""
        self._opens = []
        self._stored = {}
        """When each event was first seen on any master."""
        if schedule.hearsay:
            self._simulation.watchers.append(self._look_at_masters)

    def _look_at_masters(self, _process):
        for machine in self._simulation.machines:
            for key, ids in machine.master.keys().items():
                if key.startswith(b"redlock-async:latch:"):
                    for event in ids:
                        self._stored.setdefault(event, self._simulation.now)

    def check(self):
        if self.schedule.bound is None:
            return
        times = sorted((self._stored if self.schedule.hearsay else self.counted).values())
        complete = times[self.schedule.count - 1] if len(times) >= self.schedule.count else None
        for number, start, end in self._opens:
            if complete is not None and end - max(start, complete) > self.schedule.bound:
                late_by = end - max(start, complete)
                yield Violation("liveness", f"process {number} heard {late_by:.3f} s late that the latch is open")

    def latch(self, redlock, name):
        """The latch all of them use."""
        return redlock.latch(name, count=self.schedule.count)

    async def _hold(self, process, redlock, job):
        latch, number = self.latch(redlock, job.name), self._processes.index(process)
        match job.kind:
            case "count":
                await self._count(latch, job.event)
            case "remaining":
                await self._look(latch)
            case "wait" if job.wait == 0:
                await self._look(latch, by_waiting=True)
            case "wait":
                start = self._simulation.now
                await latch.wait(timeout=job.wait)
                self._opens.append((number, start, self._simulation.now))
                self._told(0, self.schedule.count)

    async def _count(self, latch, event):
        self.called_ids.setdefault(event, self._simulation.now)
        await latch.count_down(event)
        self.counted.setdefault(event, self._simulation.now)

    async def _look(self, latch, *, by_waiting=False):
        most = min(self.least, max(self.schedule.count - len(self.counted), 0))
        if by_waiting:
            try:
                await latch.wait(timeout=0)
                left = 0
            except LockTimeout:
                left = None
        else:
            left = await latch.remaining()
        self._told(left, most if self.schedule.lossless else self.schedule.count)

    def _told(self, left, most):
        """Somebody was told that so many events are missing, where it must be no more than that."""
        if left is not None and left < 0:
            self._violated(f"{left} are said to be missing")
        if left is None:
            if most == 0:
                self._violated("it is said to be closed, and it had been open, or complete, before")
            return
        if left < self.schedule.count - len(self.called_ids):
            self._violated(f"{left} are said to be missing when only {sorted(self.called_ids)} had been counted down")
        if left > most:
            self._violated(f"{left} are said to be missing, and at most {most} were")
        self.least = min(self.least, left)

    def _violated(self, what):
        self.recorder.violations.append(Violation("latch", f"{what}, at {self._simulation.now:.3f}"))

    async def _check_liveness(self, redlock):
        # A master that lost its data may delay it; but what all the others were told in the meantime is there.
        complete = self.least == 0 or len(self.counted) >= self.schedule.count
        for name in self.names:
            latch = self.latch(redlock, name)
            try:
                if complete:
                    await latch.wait(timeout=1)
                for number in range(self.schedule.count):
                    await self._count(latch, f"event {number}")
                await latch.wait(timeout=1)
                if await latch.remaining():
                    self._violated("remaining() says it is closed after wait() has said it is open")
            except (LockTimeout, QuorumUnavailable) as error:
                self._violated(f"after healing: {error}")


RUNS = {"readers and writers": Sharing, "semaphore": Permits, "fair": Queueing, "latch": Latching}


def longest_gap(start, end, reasons, depth=1):
    """The longest time, and since when, within those two in which fewer than so many of the reasons hold."""
    changes = sorted(
        [(max(since, start), 1) for since, until in reasons if until > start and since < end and until > since]
        + [(until, -1) for since, until in reasons if start < until < end and until > since]
    )
    best, at, idle, number = (start, 0.0), start, True, 0
    for when, change in [*changes, (end, depth)]:
        number += change
        if idle and number >= depth:
            best, idle = max(best, (at, when - at), key=lambda gap: gap[1]), False
        elif not idle and number < depth:
            at, idle = when, True
    return best


# Schedules


def of_kind(kind, schedule, turn=lambda _luck, job: job, **more):
    """That schedule as one of a kind, its jobs changed one by one."""
    luck = Random(~schedule.seed)
    given = {each.name: getattr(schedule, each.name) for each in fields(Schedule)}
    given["jobs"] = tuple(
        tuple(turn(luck, Task(**{each.name: getattr(job, each.name) for each in fields(Job)})) for job in jobs)
        for jobs in schedule.jobs
    )
    return KindSchedule(**given, kind=kind, **more)


def calm(seed, luck, kind, jobs, **more):
    """Masters and network do what they should."""
    nodes, tail, skew = luck.choice((1, 2, 3, 3, 4, 5, 5)), luck.choice((0.0, 0.02)), luck.choice((0.0, 3600.0))
    return KindSchedule(seed, nodes, 0.02, tail, skew, tuple(jobs), kind=kind, aged=True, **more)


def strike(luck, schedule, number, *, longest=None):
    """Processes of that schedule are stopped and killed."""
    last = max(job.at + job.work for jobs in schedule.jobs for job in jobs)
    found = []
    for _ in range(number):
        what, target = luck.choice(TO_PROCESSES), luck.randrange(len(schedule.jobs))
        seconds = luck.uniform(0.1, longest or 2 * schedule.longest_ttl) if what == "stop" else 0.0
        found.append(Fault(luck.uniform(0.05, last), what, target, seconds))
    return replace(schedule, faults=tuple(sorted(found, key=lambda fault: fault.at)))


def readers_and_writers(seed):
    """A stream of readers, dead readers, writers that become readers, and all the faults there are."""
    luck = Random(seed)
    return luck.choice(READING)(seed, luck)


def _stream(seed, luck):
    """Readers come and go, and never is there none; a writer wants to get in."""
    gap, ttl = luck.uniform(0.2, 0.5), luck.choice((0.5, 2.0))
    number = int(6 / gap)

    def reader(index):
        at, renew, again = index * gap + luck.uniform(0, gap / 2), luck.random() < 0.8, luck.random() < 0.2
        return Task("read", "x", at, ttl, 10.0, gap * luck.uniform(1.0, 2.0), renew=renew, again=again)

    jobs = [tuple(reader(index) for index in range(which, number, 3)) for which in range(3)]
    for _ in range(luck.randint(1, 2)):
        at, patient = luck.uniform(0.3, 4.0), luck.random() < 0.7
        wait = 8.0 if patient else luck.uniform(0.0, 0.4)
        cancel_after = luck.uniform(0.1, 4.5) if luck.random() < 0.2 else None
        jobs.append((Task("write", "x", at, ttl, wait, luck.uniform(0, 0.2), cancel_after=cancel_after),))
    return calm(seed, luck, "readers and writers", jobs, bound=SHARING_BOUND)


def _dead_reader(seed, luck):
    """One reader dies or stops while another goes on, and a writer waits for both."""
    ttl = luck.choice((2.0, 4.0))
    dying = Task("read", "x", luck.uniform(0, 0.5), ttl, 5.0, 3 * ttl)
    living = Task("read", "x", luck.uniform(0, 0.5), ttl, 5.0, luck.uniform(1.2, 3) * ttl, renew=luck.random() < 0.7)
    writer = Task("write", "x", luck.uniform(0.5, 2 * ttl), ttl, 8 * ttl, 0.1)
    short = luck.choice((ttl, ttl / 4))
    other = Task(luck.choice(("lock", "read")), "x", luck.uniform(0, 3 * ttl), short, 8 * ttl, 0.1)
    jobs = [(dying,), (living,), (writer,), (other,)]
    seconds = luck.choice((0.0, luck.uniform(0.5, 3) * ttl))
    fault = Fault(luck.uniform(0.6, 0.8 * ttl), "stop" if seconds else "murder", 0, seconds)
    return calm(seed, luck, "readers and writers", jobs, bound=SHARING_BOUND, faults=(fault,))


def _short_readers(seed, luck):
    """One reader has a long lease, others short ones, and a writer waits for all of them."""
    renew = luck.random() < 0.5
    jobs = [(Task("read", "x", luck.uniform(0, 0.5), 4.0, 5.0, luck.uniform(1, 3.5), renew=renew),)]
    for _ in range(luck.randint(1, 2)):
        work = luck.choice((0.0, luck.uniform(0, 0.3)))
        jobs.append((Task("read", "x", luck.uniform(0, 2), 0.3, 5.0, work, renew=luck.random() < 0.5),))
    jobs.append((Task("write", "x", luck.uniform(0.2, 3), 2.0, 20.0, 0.1),))
    schedule = calm(seed, luck, "readers and writers", jobs, bound=SHARING_BOUND)
    return strike(luck, schedule, 1) if luck.random() < 0.3 else schedule


def _downgrades(seed, luck):
    """Writers that become readers, and others who would like to get in between."""
    ttl = luck.choice((0.3, 2.0))

    def job():
        work = luck.choice((0.0, 0.0, luck.uniform(0, 0.05)))
        kind = luck.choice(("write", "write", "read", "lock"))
        downgrade = kind == "write" and luck.random() < 0.6
        return Task(kind, "x", luck.uniform(0, 0.1), ttl, 3.0, work, downgrade=downgrade, fencing=luck.random() < 0.9)

    jobs = [tuple(job() for _ in range(luck.randint(1, 3))) for _ in range(luck.randint(2, 4))]
    schedule = calm(seed, luck, "readers and writers", jobs)
    if luck.random() < 0.3:
        return replace(schedule, foreign=tuple(luck.uniform(0, 1) for _ in range(2)))
    if luck.random() < 0.5:
        return schedule
    return replace(schedule, skew=0.0, faults=any_faults(luck, schedule, luck.randint(1, 4)))


def _late_downgrades(seed, luck):
    """A writer becomes a reader just before its lease is over, and its words reach some masters only after that."""
    ttl, nodes = 0.3, luck.choice((3, 3, 4, 5))
    first = Task("write", "x", 0.0, ttl, 1.0, luck.uniform(0.85, 0.93) * ttl, renew=False, downgrade=True)
    rivals = [
        (Task(luck.choice(("write", "lock")), "x", luck.uniform(0.05, 0.3), ttl, 3.0, luck.uniform(0, 0.3)),)
        for _ in range(luck.randint(1, 2))
    ]
    lags = tuple(
        Fault(0.2, "lag", node, luck.uniform(0.01, 0.07), process=0)
        for node in luck.sample(range(nodes), luck.randint(1, nodes // 2 + 1))
    )
    schedule = calm(seed, luck, "readers and writers", [(first,), *rivals], faults=lags)
    return replace(schedule, nodes=nodes)


def _sharing_faults(seed, luck):
    """Every family of faults."""

    def turn(luck, job):
        downgrade, again = luck.random() < 0.3, luck.random() < 0.2
        return replace(job, downgrade=job.kind == "write" and downgrade, again=job.kind == "read" and again)

    family = luck.choice((mixed, at_expiry, bare_majority, bare_majority, late, asymmetric))
    return of_kind("readers and writers", family(seed, ("read", "read", "write", "lock")), turn)


READING = (
    _stream,
    _stream,
    _dead_reader,
    _short_readers,
    _downgrades,
    _late_downgrades,
    _sharing_faults,
    _sharing_faults,
)


def semaphore(seed):
    """More contenders than permits; some who mean another number; and all the faults there are."""
    luck = Random(seed)
    if luck.random() < 0.3:
        return _changing_permits(seed, luck)
    permits = luck.choice((2, 2, 3, 4))
    if luck.random() < 0.4:
        family = luck.choice((mixed, mixed, at_expiry, bare_majority, late))
        odd = luck.choice((0.0, 0.0, 0.2))

        def turn(luck, job):
            slots = luck.randint(1, permits) if job.kind == "semaphore" and luck.random() < 0.4 else 1
            return replace(job, permits=permits + 1 if luck.random() < odd else permits, slots=slots)

        return of_kind("semaphore", family(seed, ("semaphore",)), turn)
    which = luck.random()
    if which < 0.1:
        return _few_and_many(seed, luck, long=which >= 0.08)
    if which < 0.15:
        return _many_and_few(seed, luck)
    ttl, span, odd = luck.choice((0.5, 2.0)), luck.choice((0.0, 0.3, 2.0)), luck.choice((0.0, 0.0, 0.3))
    several = luck.choice((0.0, 0.3, 0.8))

    def job():
        slots = luck.randint(2, permits) if luck.random() < several else 1
        work, renew = luck.choice((0.0, luck.uniform(0.02, 0.3), luck.uniform(0.3, 1.5))), luck.random() < 0.8
        number = permits + luck.choice((-1, 1)) if luck.random() < odd else permits
        cancel_after = luck.uniform(0, 1) if luck.random() < 0.15 else None
        wait = luck.choice((0.0, 8.0, 8.0, 8.0))
        at = luck.uniform(0, span)
        slots = min(slots, number)
        return Task("semaphore", "x", at, ttl, wait, work, renew, cancel_after, permits=number, slots=slots)

    jobs = [tuple(job() for _ in range(luck.randint(1, 3))) for _ in range(luck.randint(3, 5))]
    schedule = calm(seed, luck, "semaphore", jobs, bound=None if odd else SEMAPHORE_BOUND)
    return strike(luck, schedule, luck.choice((0, 0, 1)))


def _few_and_many(seed, luck, *, long):
    """Those who want one slot come and go without end; one or two want nearly all, and get them."""
    permits, gap = luck.choice((2, 3, 4)), luck.uniform(0.1, 0.15) * (LONG if long else 1)
    number = int((20 if long else 6) / gap)

    def small(index):
        return Task("semaphore", "x", index * gap, 2.0, 20.0, gap * luck.uniform(1, 2) * permits, permits=permits)

    jobs = [tuple(small(index) for index in range(which, number, 4)) for which in range(4)]
    for _ in range(luck.randint(1, 2)):
        cancel_after = luck.uniform(0.5, 4) if luck.random() < 0.2 else None
        many = Task("semaphore", "x", luck.uniform(0.3, 1), 2.0, 30.0, 0.1, cancel_after=cancel_after, permits=permits)
        jobs.append((replace(many, slots=luck.randint(2, permits)),))
    return calm(seed, luck, "semaphore", jobs, bound=SEMAPHORE_BOUND, passed=PASSED_LONG if long else PASSED)


def _many_and_few(seed, luck):
    """Those who want nearly all come without end; one wants a slot that is always free, and too little for them."""
    permits, work = luck.choice((3, 4)), luck.uniform(0.5, 3)
    number = int(20 / work)
    many = Task("semaphore", "x", 0.0, 2.0, 60.0, work, permits=permits, slots=permits - 1)
    jobs = [
        tuple(replace(many, at=luck.uniform(0, 0.8) * work * index) for index in range(which, number, 3))
        for which in range(3)
    ]
    few = replace(many, work=luck.uniform(0, 0.5), slots=1)
    jobs.append(tuple(replace(few, at=at) for at in (luck.uniform(3, 9), luck.uniform(9, 16))))
    return calm(seed, luck, "semaphore", jobs, bound=SEMAPHORE_BOUND, held_back=work + HELD_BACK)


HELD_BACK = 2.0
"""Seconds for which who wants few is held back, beyond the time of those who are in: until all hear of it, and again
where another one was faster."""

PASSED = 5.0
"""Seconds for which those who want few may pass one who wants many, where they hold their slots for 1.2 at most."""

LONG = 6
"""How many times as long they hold them, and as seldom they come, where a hint does not last until there are enough."""

PASSED_LONG = LONGEST_PATIENCE + LONG * 1.2 + 1.5
"""The same then: its patience, those who are in by then, and a little."""

KEEPING = ("pause", "kill", "kill silently", "restart", "reset", "cut", "hold", "hold replies", "black hole", "delay")
"""What happens to a master that keeps its data."""


def _changing_permits(seed, luck):
    """Operators change the number while slots are held, also two at once; some use the old number, some the new."""
    ttl, span = luck.choice((0.5, 2.0)), luck.choice((0.3, 2.0))
    before = luck.choice((2, 3, 4))
    numbers = [max(1, before + luck.choice((-2, -1, -1, 1, 2))) for _ in range(luck.choice((1, 1, 2, 3)))]
    odd = luck.choice((0.0, 0.4, 0.7))

    def job():
        permits = luck.choice(numbers) if luck.random() < odd else before
        slots = luck.randint(1, min(permits, before)) if luck.random() < 0.2 else 1
        work, wait = luck.choice((0.0, luck.uniform(0.02, 0.3), luck.uniform(0.3, 1.5))), luck.choice((0.0, 8.0, 8.0))
        return Task(
            "semaphore",
            "x",
            luck.uniform(0, 2 * span + 1),
            ttl,
            wait,
            work,
            luck.random() < 0.8,
            permits=permits,
            slots=slots,
        )

    at = luck.uniform(0.1, 0.1 + span)
    changes = [(at, numbers[0])]
    for permits in numbers[1:]:
        at += luck.choice((0.0, luck.uniform(0, 0.002), luck.uniform(0, span)))
        changes.append((at, permits))
    jobs = [tuple(job() for _ in range(luck.randint(2, 5))) for _ in range(luck.randint(2, 5))]
    schedule = calm(seed, luck, "semaphore", jobs, bound=1000.0, changes=tuple(changes))
    if luck.random() < 0.5:  # far away, so that much can happen between its look and its change
        schedule = replace(schedule, lags=tuple(luck.uniform(0.001, 0.06) for _ in range(schedule.nodes)))
        if luck.random() < 0.5:  # and so many come just then
            begins, lag = changes[0][0], max(schedule.lags)
            rush = [luck.uniform(0, 3.5) * lag for _ in range(before)] + [4 * lag + luck.uniform(0.2, 1)]
            jobs = [(Task("semaphore", "x", begins + at, 2.0, 8.0, 0.8, permits=before),) for at in rush]
            schedule = replace(schedule, jobs=tuple(jobs))
    if luck.random() < 0.4:
        return schedule
    found = []
    if luck.random() < 0.5:  # only a minority may hear of it
        begins = changes[0][0] + luck.uniform(0, 0.002) + luck.uniform(0, 4) * max(schedule.lags, default=0.0)
        for node in luck.sample(range(schedule.nodes), schedule.nodes // 2 + 1):
            what = luck.choice(("pause", "hold", "hold replies", "black hole", "cut", "kill"))
            found.append(Fault(begins, what, node, luck.uniform(0.3, 1.5)))
    for _ in range(luck.randint(0 if found else 1, 6)):
        what, at = luck.choice(KEEPING), luck.uniform(0.05, 2 * span)
        seconds = 0.0 if what == "reset" else luck.uniform(0.02, 2.0)
        found.append(Fault(at, what, luck.randrange(schedule.nodes), seconds))
    found.sort(key=lambda fault: fault.at)
    return replace(schedule, tail=luck.choice((0.0, 0.1)), slowest=luck.choice((0.02, 0.3)), faults=tuple(found))


def fair(seed):
    """A queue; waiters that give up, stop or die; masters that are away, no more than a majority can do without."""
    luck = Random(seed)
    if luck.random() < 0.25:
        family = luck.choice((mixed, mixed, at_expiry, bare_majority, late))
        return of_kind("fair", family(seed, ("fair", "fair", "fair", "lock")))
    ttl, span = luck.choice((1.0, 4.0)), luck.choice((0.02, 0.5, 2.0))

    def job():
        work, wait = (
            luck.choice((0.0, 0.02, luck.uniform(0.05, 0.4))),
            luck.choice((0.0, luck.uniform(0.1, 1), 30.0, 30.0)),
        )
        cancel_after = luck.uniform(0, 2) if luck.random() < 0.2 else None
        return Task("fair", "x", luck.uniform(0, span), ttl, wait, work, cancel_after=cancel_after)

    jobs = [tuple(job() for _ in range(luck.randint(1, 4))) for _ in range(luck.randint(2, 4))]
    schedule = calm(seed, luck, "fair", jobs, ordered=True, bound=FAIR_BOUND)
    if luck.random() < 0.5:
        return strike(luck, schedule, luck.choice((0, 1, 1, 2)), longest=3.0)
    away = luck.sample(range(schedule.nodes), schedule.nodes - schedule.nodes // 2 - 1)
    found = []
    for node in away:
        for _ in range(luck.randint(0, 2)):
            what = luck.choice(
                ("pause", "kill", "kill silently", "restart", "reset", "cut", "black hole", "hold replies")
            )
            at, seconds = luck.uniform(0.05, 0.1 + span), luck.uniform(0.05, 3.0)
            found.append(Fault(at, what, node, 0.0 if what == "reset" else seconds))
    found.sort(key=lambda fault: fault.at)
    return replace(schedule, bound=None, tail=luck.choice((0.0, 0.05)), slowest=0.1, faults=tuple(found))


def latch(seed):
    """Events that are counted in several processes, some twice, some by halves; others who look and wait."""
    luck = Random(seed)
    if luck.random() < 0.25:
        return _seen_by_halves(seed, luck)
    count, span = luck.choice((1, 2, 3, 5)), luck.choice((0.02, 0.3, 3.0))

    def job():
        kind = luck.choice(("count", "count", "remaining", "remaining", "wait"))
        wait = luck.choice((0.0, 0.0, 20.0)) if kind == "wait" else 10.0
        event = f"event {luck.randrange(count + 1)}" if kind == "count" else ""
        cancel_after = luck.choice((luck.uniform(0, 0.003), luck.uniform(0, 0.5))) if luck.random() < 0.2 else None
        return Task(kind, "x", luck.uniform(0, span), 1.0, wait, 0.0, cancel_after=cancel_after, event=event)

    jobs = [tuple(job() for _ in range(luck.randint(2, 6))) for _ in range(luck.randint(2, 4))]
    schedule = calm(seed, luck, "latch", jobs, count=count, bound=LATCH_BOUND)
    what = luck.choice(("nothing", "delays", "faults", "losses"))
    if what == "nothing":
        return schedule
    schedule = replace(schedule, bound=None, tail=luck.choice((0.0, 0.1, 0.4)), slowest=luck.choice((0.02, 0.2, 1.0)))
    if what == "delays":
        return schedule
    if what == "faults":
        found = any_faults(luck, schedule, luck.randint(1, 6))
        return replace(schedule, faults=tuple(fault for fault in found if fault.what not in {"wipe", "restart empty"}))
    # Those that lose their data are the only ones that fail: all others have been told everything.
    losing = luck.sample(range(schedule.nodes), schedule.nodes - schedule.nodes // 2 - 1)
    found = [
        Fault(luck.uniform(0.05, 0.1 + span), what, node, 0.0 if what == "wipe" else luck.uniform(0.02, 1.0))
        for node in losing
        for what in luck.sample(("wipe", "restart empty"), luck.randint(1, 2))
    ]
    found.sort(key=lambda fault: fault.at)
    return replace(schedule, lossless=False, faults=tuple(found))


def _seen_by_halves(seed, luck):
    """What one process counts reaches one master long before the rest; one that looks is far from some, others near."""
    count, nodes, far = luck.choice((1, 2, 3)), luck.choice((3, 3, 4, 5)), luck.uniform(0.01, 0.1)
    near = luck.randrange(nodes)

    def looks(number):
        times = (0.0, *(luck.uniform(0.1, 0.6) for _ in range(number)))
        return tuple(Task("remaining", "x", at, 1.0, 10.0, 0.0) for at in times)

    counting = tuple(
        Task("count", "x", luck.uniform(0.1, 0.4), 1.0, 10.0, 0.0, cancel_after=0.01, event=f"event {number}")
        for number in range(count)
    )
    lags = [Fault(0.05, "lag", node, 1.0, process=0) for node in range(nodes) if node != near]
    lags += [Fault(0.05, "lag", node, far, process=1) for node in luck.sample(range(nodes), nodes // 2 + 1)]
    jobs = [(*looks(0), *counting), looks(4), looks(12)]
    schedule = calm(seed, luck, "latch", jobs, count=count, faults=tuple(lags))
    return replace(schedule, nodes=nodes)


SHARING_BOUND = 1.0
SEMAPHORE_BOUND = 1.0
FAIR_BOUND = 0.8
LATCH_BOUND = 0.5

OF_KINDS = {
    "readers and writers": readers_and_writers,
    "semaphore": semaphore,
    "fair": fair,
    "latch": latch,
}
FAMILIES.update(OF_KINDS)
