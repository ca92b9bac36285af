"""Random schedules: what processes do, what happens to them, and one judgement. The same seed gives the same run."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from random import Random

from recorder import Recorder

from redlock_async import LockLost, LockTimeout, NotHeld, QuorumUnavailable, Redlock
from redlock_async._wire import pack
from redlock_async.testing import Violation
from redlock_async.testing.simulation import Simulation, SimulationError

DRIFT = 0.0049
"""Of each clock: two differ by less than the library's drift_factor of 0.01."""

OPERATOR = 99
"""The number of the client that frees locks by force."""

LOOKS = 8
"""How often in a run it is looked for keys without an end."""

SETTLING = 6.0
"""Seconds after healing for every connection to be back: the longest delay, and the longest pause before a connect."""


@dataclass(frozen=True)
class Job:
    """One lease that one task wants."""

    kind: str
    name: str
    at: float
    ttl: float
    wait: float
    work: float
    renew: bool = True
    cancel_after: float | None = None
    fencing: bool = True


@dataclass(frozen=True)
class Fault:
    """Something that happens to a master, to the network, or to a process."""

    at: float
    what: str
    target: int
    seconds: float = 0.0
    process: int | None = None
    """The only one it is about."""

    def __str__(self):
        about = "" if self.process is None else f" to process {self.process}"
        return f"{self.at:.4f} s: {self.what} {self.target}{about}" + (
            f", {self.seconds:.3f} s" if self.seconds else ""
        )


@dataclass(frozen=True)
class Schedule:
    """All of it."""

    seed: int
    nodes: int
    slowest: float
    """The longest delay of a message, of which few take long."""
    tail: float
    """The share of messages that may take that long."""
    skew: float
    jobs: tuple[tuple[Job, ...], ...] = ()
    """For each process."""
    faults: tuple[Fault, ...] = ()
    kills: bool = True
    """Whether the masters allow CLIENT KILL: without it a request may arrive after its own release, and stay a ttl."""

    def __str__(self):
        lines = [f"seed {self.seed}: {self.nodes} masters, {self.tail:.0%} of delays up to {self.slowest:g} s"]
        for number, jobs in enumerate(self.jobs):
            lines += [f"  process {number}: {job}" for job in jobs]
        lines += [f"  {fault}" for fault in self.faults]
        return "\n".join(lines)

    @property
    def calm(self):
        """Whether masters, network and processes do what they should."""
        return not self.faults and self.tail == 0

    @property
    def longest_ttl(self):
        """Of all leases."""
        return max((job.ttl for jobs in self.jobs for job in jobs), default=1.0)

    @cached_property
    def heals_at(self):
        """When every fault is over, and every job has begun and most have ended."""
        last = max((fault.at + fault.seconds for fault in self.faults), default=0.0)
        return max([last, *(job.at + job.wait + job.work for jobs in self.jobs for job in jobs)]) + self.slowest


@dataclass
class Outcome:
    """What came of one schedule."""

    schedule: Schedule
    violations: list
    leases: int
    lost: int
    seconds: float


def one(seed):
    """The smallest configuration there is: one master, two processes."""
    return replace(smallest(seed), nodes=1, faults=())


def smallest(seed):
    """Three masters, two processes that want the same lease, at most one fault."""
    luck = Random(seed)
    ttl = luck.choice((0.3, 1.0, 20.0))
    jobs = tuple(
        (
            Job(
                kind="lock",
                name="x",
                at=luck.choice((0.0, luck.uniform(0, 0.02))),
                ttl=ttl,
                wait=luck.choice((0.0, ttl)),
                work=luck.choice((0.0, luck.uniform(0, 0.1), 0.9 * ttl)),
                renew=luck.random() < 0.5,
            ),
        )
        for _ in range(2)
    )
    schedule = Schedule(seed, 3, 0.01, luck.choice((0.0, 0.05)), 0.0, jobs)
    return replace(schedule, faults=faults(luck, schedule, luck.choice((0, 0, 1))))


def mixed(seed, kinds=("lock",)):
    """Up to five masters, four processes, several tasks and names, many faults, delays beyond the ttl."""
    luck = Random(seed)
    ttl = luck.choice((0.2, 0.5, 2.0, 20.0))
    names = ["x", "y", "z"][: luck.choice((1, 1, 2, 3))]
    span = luck.choice((0.05, 1.0, 3 * ttl))

    def job():
        return Job(
            kind=luck.choice(kinds),
            name=luck.choice(names),
            at=luck.uniform(0, span) if luck.random() < 0.8 else 0.0,
            ttl=luck.choice((ttl, ttl, 2 * ttl)),
            wait=luck.choice((0.0, ttl, 4 * ttl)),
            work=luck.choice((0.0, luck.uniform(0, 0.05), luck.uniform(0, 2 * ttl))),
            renew=luck.random() < 0.7,
            cancel_after=luck.uniform(0, span) if luck.random() < 0.2 else None,
            fencing=luck.random() < 0.9,
        )

    jobs = tuple(tuple(job() for _ in range(luck.randint(1, 3))) for _ in range(luck.randint(2, 4)))
    slowest = min(luck.choice((0.001, 0.02, 0.3, 1.5 * ttl)), 3.0)
    schedule = Schedule(seed, luck.choice((1, 2, 3, 3, 4, 5, 5)), slowest, luck.choice((0.0, 0.02, 0.2)), 0.0, jobs)
    schedule = replace(schedule, faults=faults(luck, schedule, luck.randint(0, 8)))
    loses = any(fault.what in LOSES_DATA for fault in schedule.faults)
    # After a loss of data fences are bounded by the clocks: they may differ by less than a node is held out for.
    return replace(schedule, skew=luck.choice((0.0, ttl / 8 if loses else 3600.0)))


def at_expiry(seed, kinds=("lock",)):
    """Leases that are not renewed, short ones, and others who come just when they run out; stops in between."""
    luck = Random(seed)
    ttl = luck.choice((0.1, 0.2, 0.5))

    def job(at):
        return Job(
            kind=luck.choice(kinds),
            name="x",
            at=max(at, 0.0),
            ttl=ttl,
            wait=luck.choice((0.0, ttl / 2, 2 * ttl)),
            work=luck.choice((ttl / 2, 2 * ttl, 2 * ttl)),
            renew=luck.random() < 0.3,
            fencing=luck.random() < 0.9,
        )

    jobs = tuple((job(number * ttl * luck.uniform(0.9, 1.1)), job(luck.uniform(0, 3) * ttl)) for number in range(3))
    schedule = Schedule(seed, luck.choice((2, 3, 3, 5)), luck.choice((0.001, ttl / 2, ttl)), 0.3, 0.0, jobs)
    # A process that is stopped between asking and hearing: the grants are old when it reads them.
    stops = tuple(
        Fault(luck.uniform(0, 3) * ttl * 0.9, "stop", number, luck.uniform(0.5, 2) * ttl)
        for number in range(3)
        if luck.random() < 0.7
    )
    return replace(schedule, faults=tuple(sorted(stops, key=when)))


def bare_majority(seed, kinds=("lock",)):
    """Leases granted by a bare majority, of which some forget while the others come back."""
    luck = Random(seed)
    ttl, nodes = luck.choice((2.0, 20.0)), luck.choice((3, 3, 5))
    spare = nodes - (nodes // 2 + 1)
    order = luck.sample(range(nodes), nodes)
    away, forgetful = order[:spare], order[spare:][: luck.randint(1, spare)]
    back = luck.uniform(0.3, 0.6)
    found = [Fault(0.05, luck.choice(("kill", "black hole", "cut", "pause")), node, back - 0.05) for node in away]
    for node in forgetful:
        at = luck.uniform(0.2, back + 0.4)
        found.append(Fault(at, luck.choice(sorted(LOSES_DATA)), node, luck.uniform(0.02, 0.1)))
    if luck.random() < 0.4:  # a holder that cannot see that too many have forgotten it
        found.append(Fault(luck.uniform(0.12, 0.2), "stop", 0, 0.9 * ttl))
    first = Job(luck.choice(kinds), "x", 0.1, ttl, 0.0, luck.uniform(0.5, 2) * ttl, renew=luck.random() < 0.5)
    rivals = tuple(
        (Job(luck.choice(kinds), "x", luck.choice((0.0, back)) + luck.uniform(0.05, 0.5), ttl, 2 * ttl, 0.05),)
        for _ in range(luck.randint(1, 3))
    )
    jobs = ((first,), *rivals)
    if luck.random() < 0.5:  # everybody has seen every node before
        jobs = tuple((Job("lock", "before", 0.0, ttl, 0.0, 0.0), *own) for own in jobs)
    faults_ = tuple(sorted(found, key=when))
    return Schedule(seed, nodes, 0.005, luck.choice((0.0, 0.05)), 0.0, jobs, faults_)


def late(seed, kinds=("lock",)):
    """Requests that arrive long after whoever sent them gave up, on connections that were replaced meanwhile."""
    luck = Random(seed)
    ttl, nodes = luck.choice((5.0, 60.0)), luck.choice((1, 2, 3, 3, 5))

    def job():
        at = luck.uniform(0.05, 0.4)
        return Job(
            kind=luck.choice(kinds),
            name="x",
            at=at,
            ttl=ttl,
            wait=luck.choice((0.0, 0.3, 3.0)),
            work=luck.choice((0.0, 0.1)),
            cancel_after=luck.uniform(0, 0.5) if luck.random() < 0.5 else None,
        )

    jobs = tuple((job(), job()) for _ in range(luck.randint(1, 2)))
    found = []
    for node in range(nodes):
        if luck.random() < 0.6:
            at, seconds = luck.uniform(0.05, 0.5), luck.uniform(0.05, 2.0)
            what = luck.choice(("hold", "hold replies", "pause", "black hole", "delay"))
            found.append(Fault(at, what, node, seconds))
            if luck.random() < 0.6:  # its connection ends while requests are under way
                found.append(Fault(at + luck.uniform(0, 1.2) * seconds, luck.choice(("reset", "cut")), node, 0.05))
    faults_ = tuple(sorted(found, key=when))
    slowest = luck.choice((0.01, 1.0, 3.0))
    return Schedule(seed, nodes, slowest, luck.choice((0.0, 0.1, 0.4)), 0.0, jobs, faults_, kills=luck.random() < 0.8)


def reconnects(seed, kinds=("lock",)):
    """Connections that end while they are made, and processes that are stopped just then and see it all at once."""
    luck = Random(seed)
    nodes, ttl = luck.choice((1, 1, 2, 3)), luck.choice((0.5, 5.0))
    jobs = tuple(
        (Job(luck.choice(kinds), "x", 0.1, ttl, luck.choice((0.0, ttl)), luck.uniform(0, 0.5)),) for _ in range(2)
    )
    found = [Fault(0.1 + luck.uniform(0, 0.005), "stop", number, luck.uniform(0.1, 0.6)) for number in range(2)]
    for node in range(nodes):
        found += [
            Fault(0.1 + luck.uniform(0, 0.5), luck.choice(("reset", "reset", "cut", "kill", "restart")), node, 0.05)
            for _ in range(luck.randint(0, 2))
        ]
    return Schedule(seed, nodes, 0.005, luck.choice((0.0, 0.2)), 0.0, jobs, tuple(sorted(found, key=when)))


def asymmetric(seed, kinds=("lock",)):
    """Many short leases by processes whose messages to some masters take long, and whose wall clocks are far apart."""
    luck = Random(seed)
    ttl = luck.choice((1.0, 5.0))

    def job():
        work = luck.choice((0.0, 0.0, 0.01))
        return Job(luck.choice(kinds), "x", luck.uniform(0, 0.3), ttl, 20.0, work, renew=luck.random() < 0.5)

    jobs = tuple(tuple(job() for _ in range(luck.randint(2, 4))) for _ in range(luck.randint(2, 4)))
    return Schedule(seed, luck.choice((3, 4, 5, 5)), luck.choice((0.1, 0.24)), luck.choice((0.3, 0.7)), 3600.0, jobs)


def forced(seed, kinds=("lock",)):
    """Locks freed by an operator while they are held, and others who want them; a quiet network."""
    luck = Random(seed)
    ttl = luck.choice((1.0, 10.0))
    first = Job(luck.choice(kinds), "x", 0.05, ttl, 0.0, luck.uniform(0.5, 2) * ttl)
    rivals = tuple(
        (Job(luck.choice(kinds), "x", luck.uniform(0, ttl), ttl, 2 * ttl, luck.uniform(0, ttl)),)
        for _ in range(luck.randint(1, 2))
    )
    found = [Fault(luck.uniform(0.1, 1.5 * ttl), "force", 0) for _ in range(luck.randint(1, 3))]
    return Schedule(
        seed, luck.choice((1, 3, 3, 5)), 0.001, 0.0, 0.0, ((first,), *rivals), tuple(sorted(found, key=when))
    )


def fences(seed, kinds=("lock",)):  # noqa: ARG001 - one kind, on purpose
    """A holder whose token is being stored while a connection breaks, and one whose late grant comes right after it.

    The one way for a token to be stored too sparsely: everything else stands in order on its connection.
    """
    luck = Random(seed)
    near, far = luck.uniform(0.001, 0.003), luck.uniform(0.03, 0.06)
    found = [Fault(0.0, "lag", node, near, process=0) for node in range(3)]
    found += [
        Fault(0.0, "lag", 0, far, process=1),
        Fault(0.0, "lag", 1, luck.choice((near, 2 * near, far)), process=1),
        Fault(1.5 + luck.uniform(2, 6) * near, "sever", 0, process=0),
    ]
    jobs = tuple(
        (Job("lock", "before", 0.0, 5.0, 0.0, 0.0), Job("lock", "x", at, 5.0, 2.0, 0.0))
        for at in (1.5, 1.5 + luck.uniform(-1, 1) * near)
    )
    return Schedule(seed, 3, 0.001, 0.0, 3600.0, jobs, tuple(found))


def when(fault):
    """The order of faults."""
    return fault.at


FAMILIES = {
    "one": one,
    "smallest": smallest,
    "mixed": mixed,
    "at expiry": at_expiry,
    "bare majority": bare_majority,
    "late": late,
    "reconnects": reconnects,
    "asymmetric": asymmetric,
    "forced": forced,
    "fences": fences,
}
"""Schedules by what they are aimed at."""


LOSES_DATA = {"restart empty", "wipe"}
TO_MASTERS = (
    "pause", "kill", "kill silently", "restart", "restart empty", "wipe", "reset", "cut", "hold", "hold replies",
    "black hole", "delay", "forget scripts", "out of memory",
)  # fmt: skip
TO_PROCESSES = ("stop", "murder")


def faults(luck, schedule, number):
    """So many faults; no more masters lose their data within a ttl than the guarantee allows for."""
    found, lossy = [], []
    span = max(job.at + job.work for jobs in schedule.jobs for job in jobs) + 0.2
    spare = schedule.nodes - (schedule.nodes // 2 + 1)
    for _ in range(number):
        if luck.random() < 0.2:
            what, target = luck.choice(TO_PROCESSES), luck.randrange(len(schedule.jobs))
        else:
            what, target = luck.choice(TO_MASTERS), luck.randrange(schedule.nodes)
        at = luck.uniform(0.05, 0.05 + span)
        seconds = luck.choice((luck.uniform(0.01, 0.3), luck.uniform(0.1, 2 * schedule.longest_ttl)))
        if what in LOSES_DATA:
            over = 4 * schedule.longest_ttl + seconds + SETTLING
            others = {other for other, when, end in lossy if when < at + over and end > at} - {target}
            if len(others) >= spare:
                continue
            lossy.append((target, at, at + over))
        found.append(Fault(at, what, target, 0.0 if what in {"reset", "wipe", "forget scripts", "murder"} else seconds))
    return tuple(sorted(found, key=when))


class Run:
    """One schedule, carried out."""

    def __init__(self, schedule, clients):
        self.schedule = schedule
        self._clients = clients
        self._simulation = simulation = Simulation(
            schedule.nodes, seed=schedule.seed, latency=self._latency, drift=DRIFT, skew=schedule.skew
        )
        self.recorder = Recorder(simulation)
        if not schedule.kills:
            for machine in simulation.machines:
                machine.master.errors[b"CLIENT KILL"] = b"NOPERM this user has no permissions to run it"
        self.lost = 0
        self._effects = self._what_can_happen()
        self._at_work = 0
        self._processes = []

    def _latency(self, luck):
        tail = self.schedule.tail if self._simulation.now < self.schedule.heals_at else 0.0
        if luck < tail:
            return 0.0002 + (luck / tail) ** 3 * self.schedule.slowest
        return 0.0001 + 0.0003 * (luck - tail) / (1 - tail)

    def outcome(self):
        """Carry it out, and judge it."""
        simulation, schedule = self._simulation, self.schedule
        with simulation:
            for number, jobs in enumerate(schedule.jobs):
                self._processes.append(simulation.process(self._work, number, jobs))
            for fault in schedule.faults:
                simulation.at(fault.at, self._strike, fault)
            simulation.at(schedule.heals_at, self._heal)
            simulation.at(schedule.heals_at + SETTLING - 0.5, self._look_for_strays)
            for look in range(1, LOOKS):
                simulation.at(schedule.heals_at * look / LOOKS, self.recorder.look_for_lasting)
            try:
                simulation.run()
                for process in self._processes:
                    if not process.dead:
                        process.result()
                simulation.run(2 * schedule.slowest + 0.1)  # what is still on its way arrives
                strays = self.recorder.strays()
                if strays and self._excused:
                    simulation.run(4 * schedule.longest_ttl + SETTLING)  # a dead writer's hint may outlive its lease
                    strays = self.recorder.strays()
                self.recorder.violations += [Violation("orphan", stray) for stray in strays]
                self.recorder.look_for_lasting()
            except SimulationError as error:
                self.recorder.violations.append(Violation("liveness", str(error)))
        return Outcome(schedule, self.recorder.judge(), len(self.recorder.tracks), self.lost, simulation.now)

    @property
    def _excused(self):
        """Whether a key may stay until it expires: nobody can release what a dead process held."""
        return not self.schedule.kills or any(process.dead for process in self._processes)

    def _look_for_strays(self):
        """Every job has ended, every node is back, every message has arrived: nothing may be left at all."""
        if not self._at_work and not self._excused:
            self.recorder.violations += [Violation("orphan", stray) for stray in self.recorder.strays()]

    # What processes do

    async def _work(self, number, jobs):
        process, heals_at = self._processes[number], self.schedule.heals_at
        redlock = self._clients(self.schedule.nodes, number)
        self.recorder.watch(process, redlock)
        async with asyncio.TaskGroup() as group:
            for job in jobs:
                group.create_task(self._job(process, redlock, job))
        await self._sleep_until(process, heals_at + SETTLING)
        if process is next((each for each in self._processes if not each.dead), None):
            await self._check_liveness(redlock)
        await redlock.aclose()

    async def _force(self):
        """An operator frees the lock, whoever holds it: whoever does must notice."""
        redlock = self._clients(self.schedule.nodes, OPERATOR)
        async with redlock:
            self.recorder.freed("x")
            await redlock.force_release("x")
            self.recorder.freed("x")

    @staticmethod
    async def _sleep_until(process, true_time):
        await asyncio.sleep(max(process._clock.shows + true_time * process._clock.rate - process.now(), 0))

    async def _job(self, process, redlock, job):
        self._at_work += 1
        await self._sleep_until(process, job.at)
        try:
            async with asyncio.timeout(job.cancel_after):
                await self._hold(process, redlock, job)
        except TimeoutError as error:
            if isinstance(error, LockTimeout):
                return
        except NotHeld:
            return
        except QuorumUnavailable as error:
            self._failed(error)
        except LockLost as error:
            self.lost += 1
            if job.renew:
                self._failed(error)
        finally:
            self._at_work -= 1

    def _failed(self, error):
        """A job has ended so, which it must have a reason for."""
        if self.schedule.calm:
            self.recorder.violations.append(Violation("liveness", f"{error!r}, and nothing was wrong"))

    async def _hold(self, process, redlock, job):
        async with lock_of(redlock, job) as lease:
            with self.recorder.body(process, lease):
                await asyncio.sleep(job.work)

    async def _check_liveness(self, redlock):
        """Everything is healed: whoever waits gets it, at the latest when all that was ever held has run out."""
        patience = 6 * self.schedule.longest_ttl + SETTLING
        for name in sorted({job.name for jobs in self.schedule.jobs for job in jobs}):
            try:
                lease = await redlock(name, ttl=1, wait=patience).acquire()
                with suppress(LockLost, QuorumUnavailable):
                    await lease.release()
            except (LockTimeout, QuorumUnavailable) as error:
                self.recorder.violations.append(Violation("liveness", f"{error} (after healing)"))

    # What happens to them

    def _strike(self, fault):
        if fault.what == "stop":
            self._processes[fault.target].pause(fault.seconds)
        elif fault.what == "murder":
            self._processes[fault.target].kill()
        elif fault.what == "lag":
            self._simulation.delay(fault.target, fault.seconds, self._processes[fault.process])
        elif fault.what == "sever":
            self._simulation.sever(fault.target, self._processes[fault.process])
        elif fault.what == "force":
            self._simulation.process(self._force, name=f"operator at {fault.at:.3f}")
        elif fault.what == "delay":
            self._simulation.delay(fault.target, min(fault.seconds / 4, 1.0))
            self._simulation.at(fault.at + fault.seconds, self._simulation.heal, fault.target)
        else:
            begin, end = self._effects[fault.what]
            begin(fault.target, *(() if fault.process is None else (self._processes[fault.process],)))
            if end is not None:
                self._simulation.at(fault.at + fault.seconds, end, fault.target)

    def _what_can_happen(self):
        """For each fault of a master or its network: how it begins and how it ends."""
        simulation = self._simulation
        masters = [machine.master for machine in simulation.machines]
        return {
            "pause": (simulation.pause, simulation.resume),
            "kill": (simulation.kill, self._start),
            "kill silently": (lambda i: simulation.kill(i, silently=True), self._start),
            # Never in no time: a real server takes longer, and two births within 10 ms are taken for one.
            "restart": (simulation.kill, self._start),
            "restart empty": (simulation.kill, self._start_empty),
            "wipe": (lambda i: masters[i].wipe(), None),
            "reset": (simulation.reset, None),
            "cut": (simulation.cut, simulation.heal),
            "hold": (simulation.hold, simulation.heal),
            "hold replies": (simulation.hold_replies, simulation.heal),
            "black hole": (simulation.black_hole, simulation.heal),
            "forget scripts": (lambda i: masters[i].scripts.clear(), None),
            "forget tickets": (self._forget_tickets, None),
            "out of memory": (lambda i: setattr(masters[i], "oom", True), lambda i: setattr(masters[i], "oom", False)),
        }

    def _start(self, i):
        if not self._simulation.machines[i].up:
            self._simulation.restart(i, keep_data=True)

    def _start_empty(self, i):
        if not self._simulation.machines[i].up:
            self._simulation.restart(i)

    def _forget_tickets(self, i):
        """As when that key alone is evicted, or deleted by hand."""
        master = self._simulation.machines[i].master
        master.receive(master.connect(lambda *_: None), pack(("DEL", "redlock-async:ticket:{x}")))

    def _heal(self):
        for i, machine in enumerate(self._simulation.machines):
            self._simulation.heal(i)
            self._simulation.resume(i)
            machine.master.oom = False
            self._start(i)
        for process in self._processes:
            process.resume()


def lock_of(redlock, job):
    """The lock object a job asks for."""
    options = {"ttl": job.ttl, "wait": job.wait, "renew": job.renew, "fencing": job.fencing}
    if job.kind == "several":
        return redlock("x", "y", **options)
    if job.kind == "semaphore":
        return redlock.semaphore(job.name, permits=2, **options)
    return getattr(redlock, job.kind)(job.name, **options)


class Clients:
    """Redlock objects, made once and used in many simulations: each has its own loop, so each begins anew."""

    def __init__(self):
        self._made = {}

    def __call__(self, nodes, number):
        if (nodes, number) not in self._made:
            urls = [f"redis://master-{index}.simulated:6379" for index in range(nodes)]
            self._made[nodes, number] = Redlock(urls, ttl=1.0, owner=f"p{number}")
        return self._made[nodes, number]


def shrink(schedule, fails):
    """The same with everything left out that the failure does not need."""
    smaller = True
    while smaller:
        smaller = False
        for candidate in _smaller(schedule):
            if fails(candidate):
                schedule, smaller = candidate, True
                break
    return schedule


def _smaller(schedule):
    for index in range(len(schedule.faults)):
        yield replace(schedule, faults=schedule.faults[:index] + schedule.faults[index + 1 :])
    for number, jobs in enumerate(schedule.jobs):
        for index in range(len(jobs)):
            left = (*schedule.jobs[:number], jobs[:index] + jobs[index + 1 :], *schedule.jobs[number + 1 :])
            if any(left):
                yield replace(schedule, jobs=left)
    if schedule.tail:
        yield replace(schedule, tail=0.0)
    if schedule.skew:
        yield replace(schedule, skew=0.0)
