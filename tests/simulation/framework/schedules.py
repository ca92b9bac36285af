"""Schedules: the jobs of several processes, and faults. `Run` executes one and checks it."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from random import Random

from framework.recorder import Recorder
from redlock_async import LockLost, LockTimeout, NotHeld, QuorumUnavailable, Redlock
from redlock_async._transport.connection import pack
from redlock_async.testing import Violation
from redlock_async.testing.simulation import Simulation, SimulationError

DRIFT = 0.0049
"""The drift of each clock: two clocks differ by less than the library's drift_factor of 0.01."""

OPERATOR = 99
"""The number of the client that force-releases locks."""

TTL_CHECKS = 8
"""How often a run checks for keys without a ttl."""

SETTLING = 6.0
"""Seconds after healing until all connections are back: the longest delay plus the longest pause before a connect."""


@dataclass(frozen=True)
class Job:
    """One lease that a task acquires."""

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
    """A fault of a node, the network or a process."""

    at: float
    what: str
    target: int
    seconds: float = 0.0
    process: int | None = None
    """The only affected process."""
    arrivals: tuple[int | None, ...] = ()
    """"reset connecting": see `Simulation.reset_connecting`."""
    by: float = 0.0
    """By how many seconds a clock is stepped ("step", and back again after `seconds`); the rate of a "slew"."""

    def __str__(self):
        about = "" if self.process is None else f" to process {self.process}"
        return f"{self.at:.4f} s: {self.what} {self.target}{about}" + (
            (f", {self.seconds:.3f} s" if self.seconds else "")
            + (f", {self.arrivals}" if self.arrivals else "")
            + (f", by {self.by:+.3f}" if self.by else "")
        )


@dataclass(frozen=True)
class Schedule:
    """The jobs and faults of one run."""

    seed: int
    nodes: int
    slowest: float
    """The longest delay of a message."""
    tail: float
    """The share of messages with a long delay."""
    skew: float
    jobs: tuple[tuple[Job, ...], ...] = ()
    """The jobs of each process, each in its own task."""
    faults: tuple[Fault, ...] = ()
    clients_skew: float = 0.0
    """The additional error of the clients' wall clocks in seconds."""
    kills: bool = True
    """Whether the nodes allow CLIENT KILL. Without it a request may arrive after its own release and stay for a ttl."""
    settled: float = inf
    """From when on a majority must be able to vote for every job."""
    strict: bool = False
    """Whether the clients use `strict_restart=True`."""

    def __str__(self):
        lines = [f"seed {self.seed}: {self.nodes} nodes, {self.tail:.0%} of delays up to {self.slowest:g} s"]
        for number, jobs in enumerate(self.jobs):
            lines += [f"  process {number}: {job}" for job in jobs]
        lines += [f"  {fault}" for fault in self.faults]
        return "\n".join(lines)

    @property
    def calm(self):
        """Whether no node, network or process fails."""
        return not self.faults and self.tail == 0

    @property
    def only_looks(self):
        """Whether no job takes a lock."""
        return all(job.kind == "look" for jobs in self.jobs for job in jobs)

    @property
    def longest_ttl(self):
        """The longest ttl of all jobs."""
        return max((job.ttl for jobs in self.jobs for job in jobs), default=1.0)

    @cached_property
    def heals_at(self):
        """When all faults are over, all jobs have started and most have ended."""
        last = max((fault.at + fault.seconds for fault in self.faults), default=0.0)
        return max([last, *(job.at + job.wait + job.work for jobs in self.jobs for job in jobs)]) + self.slowest


@dataclass
class Outcome:
    """The result of one schedule."""

    schedule: Schedule
    violations: list
    leases: int
    lost: int
    seconds: float


def when(fault):
    """The sort key of faults."""
    return fault.at


FAMILIES = {}
"""The families of schedules by name: functions that turn a seed into a schedule. The modules of `families` fill it."""

LOSES_DATA = {"restart empty", "wipe"}
LOSES_WRITES = {"promote", "roll back"}
"""Faults after which a node lacks what was written since the last "copy data"."""
NODE_FAULTS = (
    "pause", "kill", "kill silently", "restart", "restart empty", "wipe", "reset", "cut", "hold", "hold replies",
    "black hole", "delay", "forget scripts", "out of memory",
)  # fmt: skip
STEPS = {"step", "freeze"}
"""Faults of a node's wall clock that count as a loss of data."""
PROCESS_FAULTS = ("stop", "murder")


def faults(rng, schedule, number):
    """Draw `number` faults. No more nodes lose their data within a ttl than the guarantee allows."""
    found, lossy = [], []
    span = max(job.at + job.work for jobs in schedule.jobs for job in jobs) + 0.2
    spare = schedule.nodes - (schedule.nodes // 2 + 1)
    for _ in range(number):
        if rng.random() < 0.2:
            what, target = rng.choice(PROCESS_FAULTS), rng.randrange(len(schedule.jobs))
        else:
            what, target = rng.choice(NODE_FAULTS), rng.randrange(schedule.nodes)
        at = rng.uniform(0.05, 0.05 + span)
        seconds = rng.choice((rng.uniform(0.01, 0.3), rng.uniform(0.1, 2 * schedule.longest_ttl)))
        if what in LOSES_DATA:
            over = 4 * schedule.longest_ttl + seconds + SETTLING
            others = {other for other, when, end in lossy if when < at + over and end > at} - {target}
            if len(others) >= spare:
                continue
            lossy.append((target, at, at + over))
        found.append(Fault(at, what, target, 0.0 if what in {"reset", "wipe", "forget scripts", "murder"} else seconds))
    return tuple(sorted(found, key=when))


class Run:
    """Executes one schedule."""

    def __init__(self, schedule, clients):
        self.schedule = schedule
        self._clients = clients
        self._simulation = simulation = Simulation(
            schedule.nodes,
            seed=schedule.seed,
            latency=self._latency,
            drift=DRIFT,
            skew=schedule.skew,
            new_cluster=not getattr(schedule, "aged", False),
        )
        self.recorder = Recorder(simulation)
        if not schedule.kills:
            for machine in simulation.machines:
                machine.server.errors[b"CLIENT KILL"] = b"NOPERM this user has no permissions to run it"
        self.lost = 0
        self._effects = self._fault_effects()
        self._running_jobs = 0
        self._processes = []

    def _latency(self, uniform):
        tail = self.schedule.tail if self._simulation.now < self.schedule.heals_at else 0.0
        if uniform < tail:
            return 0.0002 + (uniform / tail) ** 3 * self.schedule.slowest
        return 0.0001 + 0.0003 * (uniform - tail) / (1 - tail)

    def outcome(self):
        """Run the schedule and check it."""
        simulation, schedule = self._simulation, self.schedule
        with simulation:
            for number, jobs in enumerate(schedule.jobs):
                self._processes.append(process := simulation.process(self._work, number, jobs))
                process._skew += Random(schedule.seed * 31 + number).choice((-1, 1)) * schedule.clients_skew
            for fault in schedule.faults:
                simulation.at(fault.at, self._inject, fault)
            simulation.at(schedule.heals_at, self._heal)
            simulation.at(schedule.heals_at + SETTLING - 0.5, self._check_leftovers)
            if schedule.only_looks:
                simulation.at(schedule.heals_at + SETTLING - 0.5, self._check_traces)
            for number in range(1, TTL_CHECKS):
                simulation.at(schedule.heals_at * number / TTL_CHECKS, self.recorder.check_ttls)
            try:
                simulation.run()
                for process in self._processes:
                    if not process.dead:
                        process.result()
                simulation.run(2 * schedule.slowest + 0.1)  # messages in transit arrive
                leftovers = self.recorder.leftovers()
                if leftovers and self._excused:
                    # A dead writer's reservation may outlive its lease, and all keys a clock that is stepped back.
                    simulation.run(4 * schedule.longest_ttl + SETTLING + self._stepped)
                    leftovers = self.recorder.leftovers()
                self.recorder.violations += [Violation("orphan", leftover) for leftover in leftovers]
                self.recorder.check_ttls()
                self._check_steps()
            except SimulationError as error:
                self.recorder.violations.append(Violation("liveness", str(error)))
        return Outcome(schedule, self.recorder.check(), len(self.recorder.tracks), self.lost, simulation.now)

    @property
    def _excused(self):
        """Whether a key may stay until it expires: the lease of a dead process cannot be released."""
        return not self.schedule.kills or any(process.dead for process in self._processes)

    @property
    def _stepped(self):
        """By how many seconds at most the clock of a node is stepped back, or stands still."""
        return sum(max(abs(fault.by), fault.seconds) for fault in self.schedule.faults if fault.what in STEPS)

    def _check_leftovers(self):
        """Check for leftovers when all jobs have ended, all nodes are back and all messages have arrived."""
        if not self._running_jobs and not self._excused:
            self.recorder.violations += [Violation("orphan", leftover) for leftover in self.recorder.leftovers()]

    def _check_traces(self):
        """Check that clients that took no lock have left nothing at all."""
        for machine in self._simulation.machines:
            for key in sorted(machine.server.keys()):
                self.recorder.violations.append(Violation("trace", f"a look left {key!r} on {machine.label}"))

    def _check_steps(self):
        """Check that no clock was taken for a stepped one that was not.

        While too few nodes answer to tell whose clock was stepped, others may be taken for stepped as well.
        """
        if any(fault.what in STEPS for fault in self.schedule.faults):
            return
        for machine in self._simulation.machines:
            record = machine.server.keys().get(b"redlock-async:node")
            if record is not None and record.get(b"stepped"):
                step = f"{machine.label} counts as stepped by {record[b'stepped']!r} ms"
                self.recorder.violations.append(Violation("false step", step))

    # Processes

    async def _work(self, number, jobs):
        process, heals_at = self._processes[number], self.schedule.heals_at
        redlock = self._clients(self.schedule.nodes, number, strict=self.schedule.strict)
        self.recorder.watch(process, redlock)
        async with asyncio.TaskGroup() as group:
            for job in jobs:
                group.create_task(self._job(process, redlock, job))
        await self._sleep_until(process, heals_at + SETTLING)
        if process is next((alive for alive in self._processes if not alive.dead), None):
            await self._check_liveness(redlock)
        await redlock.aclose()

    async def _force(self):
        """An operator force-releases the lock. Its holder must notice."""
        redlock = self._clients(self.schedule.nodes, OPERATOR)
        async with redlock:
            self.recorder.freed("x")
            await redlock.force_release("x")
            self.recorder.freed("x")

    @staticmethod
    async def _sleep_until(process, true_time):
        await asyncio.sleep(max(process._clock.shows + true_time * process._clock.rate - process.now(), 0))

    async def _job(self, process, redlock, job):
        self._running_jobs += 1
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
            self._failed(error, job)
        except LockLost as error:
            self.lost += 1
            if job.renew:
                self._failed(error, job)
        finally:
            self._running_jobs -= 1

    def _failed(self, error, job):
        """A job failed. In a calm schedule, or when all is settled, that is a violation."""
        if self.schedule.calm or job.at >= self.schedule.settled:
            self.recorder.violations.append(Violation("liveness", f"{error!r} without a fault"))

    async def _hold(self, process, redlock, job):
        if job.kind == "look":  # as an operator does, who takes no lock
            await redlock.status()
            return
        async with lock_of(redlock, job) as lease:
            with self.recorder.body(process, lease):
                await asyncio.sleep(job.work)

    async def _check_liveness(self, redlock):
        """After healing every lock must be free, at the latest when all leases have expired."""
        patience = 6 * self.schedule.longest_ttl + SETTLING
        for name in sorted({job.name for jobs in self.schedule.jobs for job in jobs}):
            try:
                lease = await redlock(name, ttl=1, wait=patience).acquire()
                with suppress(LockLost, QuorumUnavailable):
                    await lease.release()
            except (LockTimeout, QuorumUnavailable) as error:
                self.recorder.violations.append(Violation("liveness", f"{error} (after healing)"))

    # Faults

    def _inject(self, fault):
        if fault.what == "stop":
            self._processes[fault.target].pause(fault.seconds)
        elif fault.what == "murder":
            self._processes[fault.target].kill()
        elif fault.what == "lag":
            self._simulation.delay(fault.target, fault.seconds, self._processes[fault.process])
        elif fault.what == "sever":
            self._simulation.sever(fault.target, self._processes[fault.process])
        elif fault.what == "reset connecting":
            process = None if fault.process is None else self._processes[fault.process]
            self._simulation.reset_connecting(fault.target, *fault.arrivals, process=process)
        elif fault.what == "force":
            self._start_operator(fault)
        elif fault.what in {"step", "freeze", "slew"}:
            self._change_clock(fault)
        elif fault.what == "delay":
            self._simulation.delay(fault.target, min(fault.seconds / 4, 1.0))
            self._simulation.at(fault.at + fault.seconds, self._simulation.heal, fault.target)
        else:
            begin, end = self._effects[fault.what]
            begin(fault.target, *(() if fault.process is None else (self._processes[fault.process],)))
            if end is not None:
                self._simulation.at(fault.at + fault.seconds, end, fault.target)

    def _start_operator(self, fault):
        operator = self._simulation.process(self._force, name=f"operator at {fault.at:.3f}")
        if fault.seconds:
            order = Random(self.schedule.seed).sample(range(self.schedule.nodes), self.schedule.nodes)
            for distance, node in enumerate(order):
                self._simulation.delay(node, distance * fault.seconds, operator)

    def _change_clock(self, fault):
        """Step a node's clock, perhaps back again; slew it; or freeze it, and perhaps set it right afterwards."""
        simulation, node, end = self._simulation, fault.target, fault.at + fault.seconds
        rate = simulation.machines[node].clock.rate
        if fault.what == "step":
            simulation.step_clock(node, fault.by)
            if fault.seconds:
                simulation.at(end, simulation.step_clock, node, -fault.by)
            return
        simulation.set_clock_rate(node, 1 + fault.by if fault.what == "slew" else 0.0)
        simulation.at(end, simulation.set_clock_rate, node, rate)
        if fault.what == "freeze" and fault.by:
            simulation.at(end, simulation.step_clock, node, fault.seconds * rate)

    def _fault_effects(self):
        """For each fault of a node or its network, the functions that begin and end it."""
        simulation = self._simulation
        servers = [machine.server for machine in simulation.machines]
        return {
            "pause": (simulation.pause, simulation.resume),
            "kill": (simulation.kill, self._start),
            "kill silently": (lambda i: simulation.kill(i, silently=True), self._start),
            "restart": (simulation.kill, self._start),
            "restart empty": (simulation.kill, self._start_empty),
            "copy data": (simulation.copy_data, None),
            "promote": (simulation.kill, self._when_down(simulation.promote)),
            "fail over": (simulation.fail_over, simulation.end_old_server),
            "roll back": (simulation.kill, self._when_down(simulation.roll_back)),
            "clone": (self._clone, None),
            "exchange": (self._exchange, None),
            "wipe": (lambda i: servers[i].wipe(), None),
            "reset": (simulation.reset, None),
            "cut": (simulation.cut, simulation.heal),
            "hold": (simulation.stall_requests, simulation.heal),
            "hold replies": (simulation.stall_replies, simulation.heal),
            "black hole": (simulation.black_hole, simulation.heal),
            "forget scripts": (lambda i: servers[i].scripts.clear(), None),
            "forget tickets": (self._forget_tickets, None),
            "out of memory": (lambda i: setattr(servers[i], "oom", True), lambda i: setattr(servers[i], "oom", False)),
        }

    def _start(self, i):
        if not self._simulation.machines[i].up:
            self._simulation.restart(i, keep_data=True)

    def _start_empty(self, i):
        if not self._simulation.machines[i].up:
            self._simulation.restart(i)

    def _when_down(self, start):
        return lambda i: None if self._simulation.machines[i].up else start(i)

    def _clone(self, i):
        """Replace the data of a node by a copy of the next node's."""
        machines = self._simulation.machines
        snapshot = machines[(i + 1) % len(machines)].server.snapshot()
        machines[i].kill()
        machines[i].restart()
        machines[i].server.load(snapshot)

    def _exchange(self, i):
        """Exchange the data of a node and the next one, as if they had exchanged their addresses."""
        machines = self._simulation.machines
        pair = machines[i], machines[(i + 1) % len(machines)]
        for machine, snapshot in zip(pair, [each.server.snapshot() for each in pair[::-1]], strict=True):
            machine.kill()
            machine.restart()
            machine.server.load(snapshot)

    def _forget_tickets(self, i):
        """Delete that key only, as an eviction or an operator could."""
        server = self._simulation.machines[i].server
        server.receive(server.connect(lambda *_: None), pack(("DEL", "redlock-async:ticket:{x}")))

    def _heal(self):
        for i, machine in enumerate(self._simulation.machines):
            self._simulation.heal(i)
            self._simulation.resume(i)
            machine.server.oom = False
            self._start(i)
        for process in self._processes:
            process.resume()


def lock_of(redlock, job):
    """The lock of a job."""
    options = {"ttl": job.ttl, "wait": job.wait, "renew": job.renew, "fencing": job.fencing}
    if job.kind == "several":
        return redlock("x", "y", **options)
    if job.kind == "semaphore":
        return redlock.semaphore(job.name, permits=2, **options)
    if job.kind == "lock":
        return redlock(job.name, **options)
    return getattr(redlock, f"{job.kind}_lock")(job.name, **options)


class Clients:
    """Redlock clients, created once for many simulations. Each simulation has new loops, so the clients start fresh."""

    def __init__(self):
        self._made = {}

    def __call__(self, nodes, number, *, strict=False):
        key = nodes, number, strict
        if key not in self._made:
            urls = [f"redis://node-{index}.simulated:6379" for index in range(nodes)]
            self._made[key] = Redlock(urls, ttl=1.0, owner=f"p{number}", strict_restart=strict)
        return self._made[key]


def shrink(schedule, fails):
    """Remove everything from the schedule that the failure does not need."""
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
    if schedule.clients_skew:
        yield replace(schedule, clients_skew=0.0)
