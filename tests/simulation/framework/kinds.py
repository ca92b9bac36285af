"""Runs for the other kinds of lock, with checks of their guarantees beyond exclusion and fencing."""

import asyncio
from collections import Counter
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, fields, replace
from random import Random

from framework.schedules import (
    OPERATOR,
    PROCESS_FAULTS,
    SETTLING,
    Fault,
    Job,
    Run,
    Schedule,
)
from redlock_async import ConfigurationError, LockLost, LockTimeout, QuorumUnavailable
from redlock_async._kinds.fair import SHORTEST_ENTRY_TTL
from redlock_async._kinds.kind import RESERVATION_MS, RESERVATION_REFRESH
from redlock_async._transport.connection import pack
from redlock_async.testing import HeldInterval, Violation

TRY_BOUND = 0.3
"""Seconds that a single try may take: some round trips, including the first connections, and `node_timeout`."""

SLOW = 0.02
"""Seconds that a message may take in a schedule without faults."""

RUSH = 0.1
"""Seconds in which a reader that had already started may still acquire after a writer began to wait or left."""

LONGEST_STOP = SHORTEST_ENTRY_TTL - SHORTEST_ENTRY_TTL / 3 - 0.1
"""Seconds that a waiter may be stopped without losing its queue entry: its last heartbeat lasts that long."""

BEYOND = 1.02
"""After this multiple of the ttl a lease has expired on all nodes, by every clock."""


@dataclass(frozen=True)
class Task(Job):
    """One lease that a task acquires, or one operation on a latch: `count`, `remaining` or `wait`."""

    permits: int = 2
    slots: int = 1
    """The number of slots requested at once."""
    downgrade: bool = False
    """Whether the writer downgrades halfway."""
    again: bool = False
    """Whether the reader takes a second read lock halfway, in the same task."""
    event: str = ""


@dataclass(frozen=True)
class KindSchedule(Schedule):
    """A schedule with additional checks for its kind of lock."""

    kind: str = ""
    bound: float | None = None
    """The longest wait in seconds for a lock that is free; None if nodes or the network fail, so it is not checked."""
    passed: float | None = None
    """Semaphore: the longest wait in seconds for several slots while smaller requests overtake."""
    held_back: float | None = None
    """Semaphore: the longest wait in seconds for one slot while larger requests keep coming."""
    ordered: bool = False
    """Fair lock: whether waiters must be served in order."""
    prompt: float | None = None
    """Fair lock: seconds after its call from which no later waiter may overtake a waiter."""
    count: int = 0
    """Latch: the number of events that open it."""
    lossless: bool = True
    """Latch: whether every node keeps its data."""
    hearsay: bool = False
    """Latch: whether an event stored on one node counts, even if its `count_down` was cut off."""
    aged: bool = False
    """Whether the nodes' data is old."""
    changes: tuple[tuple[float, int], ...] = ()
    """When an operator changes a semaphore's number of permits, and to what."""
    lags: tuple[float, ...] = ()
    """The delay of messages between that operator and each node. A second operator has them in another order."""
    stays: bool = False
    """Whether that operator's client lives until all is healed. Then a failed change leaves nothing behind."""
    foreign: tuple[float, ...] = ()
    """When another library takes the lock for `FOREIGN` seconds, if it can."""

    @property
    def calm(self):
        # In a new cluster slow replies can cost the first clients some votes.
        return super().calm or (self.aged and not self.faults and self.slowest <= SLOW)

    @property
    def has_node_faults(self):
        """Whether a node or the network fails."""
        return any(fault.what not in {*PROCESS_FAULTS, "force"} for fault in self.faults)

    def run(self, clients):
        """Create the run of this schedule."""
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
    """Whether its task already holds a read lock."""
    refused: bool = False
    """Whether it failed because another number of permits was in use."""
    granted: bool = False
    ahead: set = field(default_factory=set)
    """(process, queue entry) of all waiters that a quorum had stored at the call."""


class KindRun(Run):
    """Executes a KindSchedule. Subclasses check one kind of lock."""

    def __init__(self, schedule, clients):
        super().__init__(schedule, clients)
        self.attempts = []
        for at in schedule.foreign:
            self._simulation.at(at, self._take_foreign)

    def outcome(self):
        outcome = super().outcome()
        outcome.violations += self.check()
        return outcome

    def check(self):
        """Yield the violations of this kind's guarantees."""
        if self.schedule.bound is None:
            return
        holds = list(self.recorder.holds())
        for attempt in self.attempts:
            if self._was_hit(attempt):
                continue
            end = self._simulation.now if attempt.end is None else attempt.end
            if attempt.job.wait == 0 and end - attempt.start > TRY_BOUND and not self.schedule.has_node_faults:
                yield Violation("liveness", f"a single try took {end - attempt.start:.3f} s, from {attempt.start:.3f}")
            reasons = [*self.blockers(attempt, holds), *self._disturbances(attempt)]
            since, idle = longest_gap(attempt.start, end, reasons, self.depth(attempt))
            if idle > self.schedule.bound:
                what = f"{attempt.job.kind} of process {attempt.number}, called at {attempt.start:.3f}"
                yield Violation("liveness", f"{what}, waited {idle:.3f} s from {since:.3f} for a free lock")

    def depth(self, attempt):  # noqa: ARG002 - locks with several holders use it
        """How many blockers it takes to keep the attempt waiting."""
        return 1

    def blockers(self, attempt, holds):
        """Intervals (from, to) in which something blocks the attempt."""
        return [(hold.start, hold.end) for hold in holds if hold.name == attempt.job.name]

    def _was_hit(self, attempt):
        """Whether its own process was stopped or killed."""
        return any(fault.what in PROCESS_FAULTS and fault.target == attempt.number for fault in self.schedule.faults)

    def _disturbances(self, attempt):
        """Intervals in which leftovers of a stopped or killed process may block the attempt."""
        for fault in self.schedule.faults:
            if fault.what in PROCESS_FAULTS:
                left = BEYOND * self.schedule.longest_ttl
                kinds = {job.kind for job in self.schedule.jobs[fault.target]}
                if "write" in kinds:
                    left = max(left, RESERVATION_MS / 1000)
                if "fair" in kinds:
                    left = max(left, SHORTEST_ENTRY_TTL)
                if any(job.slots > 1 for job in self.schedule.jobs[fault.target]):
                    left = max(left, RESERVATION_MS / 1000)
                yield from [(fault.at, fault.at + fault.seconds + left + RUSH)] * self.depth(attempt)

    # Processes

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
        """A block under the job's lock."""
        lock = self.lock(redlock, job)
        async with lock if job.slots == 1 else await lock.acquire(count=job.slots) as lease:
            yield lease

    def lock(self, redlock, job):
        """The lock of a job."""
        options = {"ttl": job.ttl, "wait": job.wait, "renew": job.renew, "fencing": job.fencing}
        match job.kind:
            case "semaphore":
                return redlock.semaphore(job.name, permits=job.permits, **options)
            case "lock":
                return redlock(job.name, **options)
        return getattr(redlock, f"{job.kind}_lock")(job.name, **options)

    def called(self, attempt, redlock):
        """Called when an acquire begins."""

    def granted(self, attempt):
        """Called when an acquire succeeds."""

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
        """All names in the schedule."""
        return sorted({job.name for jobs in self.schedule.jobs for job in jobs})

    @property
    def usual_permits(self):
        """The number of permits that most jobs use."""
        permits = Counter(job.permits for jobs in self.schedule.jobs for job in jobs)
        return permits.most_common(1)[0][0]

    # Other clients

    def _take_foreign(self):
        """Take the lock as another library would: without scripts, queue or reservation."""
        simulation, granted = self._simulation, []
        name = self.schedule.jobs[0][0].name if self.schedule.jobs[0] else "x"
        for machine in simulation.machines:
            if machine.up and not machine.paused:
                session = machine.server.connect(lambda *_: None)
                command = pack(("SET", name, "foreign", "NX", "PX", round(FOREIGN * 1000)))
                if machine.server.receive(session, command).startswith(b"+OK"):
                    granted.append((machine, session))
                    machine._schedule_expiry()
        if len(granted) > len(simulation.machines) // 2:
            now = simulation.now
            self.recorder.foreign_holds.append(HeldInterval(name, "foreign", now, now + FOREIGN / BEYOND - 0.002))
        else:
            for machine, session in granted:
                machine.server.receive(session, pack(("DEL", name)))


class Sharing(KindRun):
    """Readers and writers: no task starves, and dead processes block nothing for longer than their leases."""

    def blockers(self, attempt, holds):
        holds = [hold for hold in holds if hold.name == attempt.job.name]
        alone = [(hold.start, hold.end) for hold in holds if hold.kind != "read"]
        if attempt.within:
            return alone  # not for a waiting writer, which waits for this task
        if attempt.job.kind != "write":
            # New readers wait for waiting writers. A plain lock waits for all others.
            writers = [other for other in self.attempts if other.job.kind == "write" and other is not attempt]
            waiting = [(other.start, self._simulation.now if other.end is None else other.end) for other in writers]
            readers = [(hold.start, hold.end) for hold in holds if hold.kind == "read"]
            return [*alone, *waiting, *(readers if attempt.job.kind == "lock" else ())]
        # A writer waits for current readers, for readers that acquire at the same time, and for readers that acquire
        # after another writer left, whose reservation was the only one until this writer retries.
        rushes = [(attempt.start, RUSH), *((end, RUSH) for _, end in alone)]
        rushes += [
            (other.end, RESERVATION_REFRESH + RUSH)
            for other in self.attempts
            if other.job.kind == "write" and other.end
        ]
        return alone + [
            (hold.start, hold.end)
            for hold in holds
            if hold.kind == "read"
            and (hold.start < attempt.start or any(0 <= hold.start - at < rush for at, rush in rushes))
        ]

    def _was_hit(self, attempt):
        # A writer behind a plain lock of its own process cannot reserve, and a plain lock does not hold readers back.
        jobs = self.schedule.jobs[attempt.number]
        return super()._was_hit(attempt) or (attempt.job.kind == "write" and any(job.kind == "lock" for job in jobs))


class Permits(KindRun):
    """A semaphore: free slots are found, and all holders use the same number of permits."""

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
                self._simulation.at(self._simulation.now + RUSH, self._check_stored_permits)
            except LockTimeout as error:
                change.stopped_by = str(error)
            except QuorumUnavailable:
                pass
            change.end = self._simulation.now
            if self.schedule.stays:
                await self._sleep_until(change.process, self.schedule.heals_at + SETTLING - 1)
                self._check_failed_change(change)

    def _check_failed_change(self, change):
        """A change that was reported as failed must not be stored on any node."""
        if change.made:
            return
        for machine, number in self._stored():
            if number == b"%d" % change.permits:
                what = f"permits={number.decode()} was reported as failed but is stored on {machine.label}"
                self.recorder.violations.append(Violation("liveness", what))

    def _stored(self):
        """Each node and its number of permits."""
        for machine in self._simulation.machines:
            stored = bytes(machine.server.keys().get(b"redlock-async:semaphore:{x}", b""))
            yield machine, stored.partition(b":")[0]

    def _check_stored_permits(self):
        """After a change, when no other is in progress, a majority must store the same number."""
        under_way = any(change.end is None and change.start <= self._simulation.now for change in self.changes)
        if under_way or self.schedule.faults:
            return
        stored = Counter(number for _, number in self._stored())
        number, nodes = stored.most_common(1)[0]
        if not number or nodes <= len(self._simulation.machines) // 2:
            set_ = ", ".join(f"{change.permits} at {change.end:.3f}" for change in self.changes if change.made)
            self.recorder.violations.append(
                Violation("liveness", f"no majority stores one of permits={set_}: {stored}")
            )

    def _failed(self, error, job):
        # While a minority is not connected yet, possibly neither of two numbers has a majority.
        if len({job.permits for jobs in self.schedule.jobs for job in jobs}) == 1 and not self.schedule.changes:
            super()._failed(error, job)

    async def _check_liveness(self, redlock):
        if self.schedule.changes and not self.schedule.stays:
            # A change that was cut off has left its number on some nodes: repeat it when all are back.
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
        # A request for more slots may hold back smaller ones.
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
                    yield Violation(
                        "liveness", f"a request for {attempt.job.slots} slots was overtaken for {waited:.3f} s"
                    )
        if self.schedule.held_back is not None:
            for attempt in self.attempts:
                waited = (self._simulation.now if attempt.end is None else attempt.end) - attempt.start
                if attempt.job.slots == 1 and waited > self.schedule.held_back:
                    yield Violation("liveness", f"a request for 1 slot was held back for {waited:.3f} s")
        yield from self._changed(holds) if self.schedule.changes else self._one_number(holds)

    def _changed(self, holds):
        """Check the guarantees for an operator who changes the number of permits."""
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
        """The largest number of permits in the schedule."""
        return max(
            *(job.permits for jobs in self.schedule.jobs for job in jobs), *(change.permits for change in self.changes)
        )

    def _span(self, change):
        return change.start, self._simulation.now if change.end is None else change.end

    def _alone(self, change):
        """Whether no other operator changed it at the same time."""
        start, end = self._span(change)
        others = [self._span(other) for other in self.changes if other is not change]
        return not any(since <= end and until >= start for since, until in others)

    def _in_force(self, change, holds):
        """From its end to the start of the next change, only that number of permits and slots may be used."""
        until = min((later.start for later in self.changes if later.start > change.end), default=self.schedule.heals_at)
        within = [hold for hold in holds if hold.start < until and hold.end > change.end]
        for at in (change.end, *(hold.start for hold in within if hold.start > change.end)):
            active = [hold for hold in within if hold.start <= at < hold.end]
            if len(active) > change.permits:
                found = "; ".join(map(str, active))
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
        """Until the first change succeeds, users of the old number may be rejected only during an attempted change."""
        now = self._simulation.now
        first = min((change.end for change in self.changes if change.made), default=now)
        spans = [self._span(change) for change in self.changes]
        for attempt in self.attempts:
            disturbed = any(attempt.start < end + RUSH and (attempt.end or now) > start for start, end in spans)
            if attempt.refused and not disturbed and attempt.end < first:
                yield Violation("liveness", f"process {attempt.number} was rejected although nothing was changed")

    @staticmethod
    def _one_number(holds):
        """No two numbers of permits are used at the same time."""
        for index, hold in enumerate(holds):
            for other in holds[index + 1 :]:
                if other.start >= hold.end:
                    break
                if other.name == hold.name and other.permits != hold.permits and other.end > other.start:
                    yield Violation("exclusion", f"of {hold.permits}: {hold}; of {other.permits}: {other}")


class Queueing(KindRun):
    """Fair locks: a waiter whose queue entry a quorum has stored is served before all later waiters."""

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
        """All queue entries that a quorum stores now."""
        kept = Counter()
        for machine in self._simulation.machines:
            if machine.up and not machine.paused:
                stored, now = machine.server.keys(), machine.clock() * 1000
                until = stored.get(keys[1], {})
                kept.update(place for place in stored.get(keys[0], {}) if float(until.get(place, 0)) > now)
        needed = len(self._simulation.machines) // 2 + 1
        places = {keys[0] + b":" + place for place, times in kept.items() if times >= needed}
        for number in range(len(self._processes)):
            yield from ((number, place) for place in places if self._waits(number, place))

    def _waits(self, number, place):
        process = self._processes[number]
        session = self._clients(self.schedule.nodes, number)._running
        if process.dead or session is None:
            return False
        return session.context.loop is process.loop and place in session.context.wakeups

    def _was_hit(self, attempt):
        cut_off = any(fault.what == "black hole" and fault.process == attempt.number for fault in self.schedule.faults)
        return super()._was_hit(attempt) or cut_off

    def _was_stopped(self, number):
        """Whether the process was stopped for so long that it lost its queue entry."""
        stops = [fault for fault in self.schedule.faults if fault.what in PROCESS_FAULTS and fault.target == number]
        return sum(fault.seconds for fault in stops) > LONGEST_STOP


class Latching(KindRun):
    """A latch: opens when all events are counted, not earlier, and stays open. A counted event stays counted."""

    def __init__(self, schedule, clients):
        super().__init__(schedule, clients)
        self.called_ids, self.counted = {}, {}
        """When `count_down` was first called for each event, and when it first returned."""
        self.least = schedule.count
        """The smallest number of missing events reported so far."""
        self._opens = []
        self._stored = {}
        """When each event was first stored on any node."""
        if schedule.hearsay:
            self._simulation.watchers.append(self._record_counts)

    def _record_counts(self, _process):
        for machine in self._simulation.machines:
            for key, ids in machine.server.keys().items():
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
                yield Violation("liveness", f"process {number} learned {late_by:.3f} s late that the latch is open")

    def latch(self, redlock, name):
        """The latch of all processes."""
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
                self._check_remaining(0, self.schedule.count)

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
        self._check_remaining(left, most if self.schedule.lossless else self.schedule.count)

    def _check_remaining(self, left, most):
        """Check a reported number of missing events, which must be at most `most`."""
        if left is not None and left < 0:
            self._violated(f"{left} events are reported missing")
        if left is None:
            if most == 0:
                self._violated("it is reported closed after it was open or complete")
            return
        if left < self.schedule.count - len(self.called_ids):
            self._violated(
                f"{left} events are reported missing when only {sorted(self.called_ids)} had been counted down"
            )
        if left > most:
            self._violated(f"{left} events are reported missing, but at most {most} were")
        self.least = min(self.least, left)

    def _violated(self, what):
        self.recorder.violations.append(Violation("latch", f"{what}, at {self._simulation.now:.3f}"))

    async def _check_liveness(self, redlock):
        # A node that lost its data may delay this, but the other nodes have all events.
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
                    self._violated("remaining() reports it closed after wait() reported it open")
            except (LockTimeout, QuorumUnavailable) as error:
                self._violated(f"after healing: {error}")


RUNS = {"readers and writers": Sharing, "semaphore": Permits, "fair": Queueing, "latch": Latching}


def longest_gap(start, end, reasons, depth=1):
    """The longest gap (start, duration) within start and end in which fewer than `depth` of the reasons apply."""
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


def of_kind(kind, schedule, turn=lambda _rng, job: job, **more):
    """Convert a schedule to a KindSchedule, with `turn` applied to each job."""
    rng = Random(~schedule.seed)
    given = {column.name: getattr(schedule, column.name) for column in fields(Schedule)}
    given["jobs"] = tuple(
        tuple(turn(rng, Task(**{column.name: getattr(job, column.name) for column in fields(Job)})) for job in jobs)
        for jobs in schedule.jobs
    )
    return KindSchedule(**given, kind=kind, **more)


def calm(seed, rng, kind, jobs, **more):
    """Return a schedule in which nodes and network do not fail."""
    nodes, tail, skew = rng.choice((1, 2, 3, 3, 4, 5, 5)), rng.choice((0.0, 0.02)), rng.choice((0.0, 3600.0))
    return KindSchedule(seed, nodes, 0.02, tail, skew, tuple(jobs), kind=kind, aged=True, **more)


def strike(rng, schedule, number, *, longest=None):
    """Add `number` stops and kills of processes to the schedule."""
    last = max(job.at + job.work for jobs in schedule.jobs for job in jobs)
    found = []
    for _ in range(number):
        what, target = rng.choice(PROCESS_FAULTS), rng.randrange(len(schedule.jobs))
        seconds = rng.uniform(0.1, longest or 2 * schedule.longest_ttl) if what == "stop" else 0.0
        found.append(Fault(rng.uniform(0.05, last), what, target, seconds))
    return replace(schedule, faults=tuple(sorted(found, key=lambda fault: fault.at)))


SHARING_BOUND = 1.0
SEMAPHORE_BOUND = 1.0
FAIR_BOUND = 0.8
LATCH_BOUND = 0.5

OF_KINDS = {}
"""The families whose schedules are KindSchedules. The modules of `families` add theirs, here and to FAMILIES."""
