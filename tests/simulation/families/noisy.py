"""Families with one node that sends endless change reports or replies: it must not keep clients busy or count as up."""

from collections import Counter
from dataclasses import dataclass
from random import Random

from framework.kinds import OF_KINDS, RUNS, KindRun, KindSchedule, Task
from framework.schedules import FAMILIES, Fault

from redlock_async import LockTimeout
from redlock_async._transport.commands import script
from redlock_async._transport.connection import pack
from redlock_async.testing import Violation
from redlock_async.testing.simulation._resp import FLUSHED, invalidation

MAX_CHECKS = 100
"""Checks that one process may send one node per second: five per lease, then one per 50 ms, and some of its record.

Attempts of waiting tasks are not counted: a minority's reports may cause hundreds of them per second."""

CHECKS = (*(script(name).sha for name in ("mutex_extend", "read_extend", "semaphore_extend")), b"node_record.lua")
"""Words by which a check is known."""

LONGEST_REPLY = 24 * 1024 * 1024
"""The bytes of one reply that a client reads, including those in transit."""

ANSWERS_WITHIN = 1.0
"""Seconds for which a node that does not answer may count as up: a few times `node_timeout`."""

EVIL = b"0" * 32 + b":\x1b[2Jweb\r\nERROR " + b"x" * 2000
KEYS = (b"x", b"redlock-async:semaphore:{x}:0", b"redlock-async:semaphore:{x}", b"redlock-async:node")


class NoisyRun(KindRun):
    """One node reports a flush or changed keys every millisecond, or sends an endless reply."""

    def __init__(self, schedule, clients):
        super().__init__(schedule, clients)
        self._checks = Counter()
        self._poured = Counter()
        self._endless = None
        for machine in self._simulation.machines:
            machine.receive = self._counting(machine, machine.receive)

    def _counting(self, machine, hear):
        def counted(link, data):
            second = int(self._simulation.now)
            checks = any(word in data for word in CHECKS)
            self._checks[link.process, machine.index, second] += checks
            if checks and self._checks[link.process, machine.index, second] == MAX_CHECKS:
                told = f"{link.process.name} sent {machine.label} {MAX_CHECKS} checks in second {second}"
                self.recorder.violations.append(Violation("liveness", told))
            if machine.index == self._endless:
                self._pour(link)
            else:
                hear(link, data)

        return counted

    async def _hold(self, process, redlock, job):
        try:
            await super()._hold(process, redlock, job)
        except LockTimeout as error:
            if not str(error).isprintable() or len(str(error)) > 500:
                self.recorder.violations.append(Violation("label", ascii(str(error))[:300]))
            raise

    # Faults

    def _fault_effects(self):
        return super()._fault_effects() | dict.fromkeys(("flushes", "reports", "endless", "label"), (None, None))

    def _inject(self, fault):
        until = fault.at + fault.seconds
        match fault.what:
            case "flushes":
                self._push(fault.target, until, FLUSHED)
            case "reports":
                self._push(fault.target, until, b"".join(map(invalidation, KEYS[:3])))
            case "endless":
                self._endless = fault.target
                self._simulation.at(until, self._end, fault.target)
                self._check_noticed(until)
            case "label":
                master = self._simulation.machines[fault.target].server
                session = master.connect(lambda *_: None)
                for key in KEYS[:2]:
                    master.receive(session, pack(("SET", key, EVIL, "NX", "PX", round(fault.seconds * 1000))))
            case _:
                super()._inject(fault)

    def _push(self, index, until, data):
        machine = self._simulation.machines[index]
        for session in tuple(machine._links):
            if session.tracking:
                machine._push(session, data)
        if self._simulation.now + 0.001 < until:
            self._simulation.at(self._simulation.now + 0.001, self._push, index, until, data)

    def _pour(self, link):
        """Send the next part of an endless reply on that connection."""
        first = link not in self._poured
        self._poured[link] += 1024 * 1024 if self.schedule.flood else 64
        if self._endless is None or link.closed:
            return
        if self._poured[link] > LONGEST_REPLY:
            self.recorder.violations.append(Violation("memory", f"{link.process.name} reads a reply without end"))
            return
        link.deliver((b"$1000000000\r\n" if first else b"") + b"x" * (1024 * 1024 if self.schedule.flood else 64))
        self._simulation.at(self._simulation.now + 0.01, self._pour, link)

    def _check_noticed(self, until):
        """During an endless reply, clients that wait for the node must notice that it does not answer."""
        if self._endless is None:
            return
        for process, clients in self.recorder._clients.items():
            for redlock in clients:
                if process.dead or redlock._running is None:
                    continue
                wire = redlock._running.context.nodes[self._endless].live
                if wire is not None and wire.pending:
                    silent = process.now() - wire.pending[0].started_at
                    if silent > ANSWERS_WITHIN:
                        told = f"for {process.name} a node is up that has not answered for {silent:.3f} s"
                        self.recorder.violations.append(Violation("liveness", told))
                        return
        if self._simulation.now + 0.01 < until:
            self._simulation.at(self._simulation.now + 0.01, self._check_noticed, until)

    def _end(self, index):
        self._endless = None
        self._simulation.reset(index)


@dataclass(frozen=True)
class NoisySchedule(KindSchedule):
    """A schedule with one noisy node."""

    flood: bool = False
    """Whether the endless reply comes fast."""


def noisy(seed):
    """Leases despite one noisy node, and single tries: a minority's reports may still wake waiting tasks."""
    rng = Random(seed)
    nodes, ttl = rng.choice((3, 3, 5)), rng.choice((1.0, 5.0, 20.0))

    def task():
        kind = rng.choice(("lock", "lock", "read", "write", "semaphore"))
        work = rng.choice((0.1, 1.0, rng.uniform(0.5, 4.0)))
        return Task(kind, "x", rng.uniform(0.0, 1.0), ttl, 0.0, work, permits=1)

    jobs = tuple(tuple(task() for _ in range(rng.randint(1, 2))) for _ in range(rng.randint(1, 3)))
    liar = rng.randrange(nodes)
    what = rng.choice(("flushes", "reports", "endless"))
    found = [Fault(rng.uniform(0.0, 1.5), what, liar, rng.uniform(1.2, 3.0))]
    if rng.random() < 0.6:
        found.append(Fault(rng.uniform(0.0, 1.0), "label", liar, 3.0))
    faults = tuple(sorted(found, key=lambda fault: fault.at))
    tail, flood = rng.choice((0.0, 0.02)), rng.random() < 0.3
    return NoisySchedule(seed, nodes, 0.005, tail, 0.0, jobs, faults, kind="noisy", aged=True, flood=flood)


RUNS["noisy"] = NoisyRun
OF_KINDS["noisy"] = FAMILIES["noisy"] = noisy
