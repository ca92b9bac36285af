"""A family in which operators change the set of nodes while clients with any set take locks, on and off.

Operators run the real command, `redlock-async nodes`. They may be interrupted, run it together, repeat it, use
`--force`, or reach some nodes only. Of ABCDE, each set has some nodes; each client has one set for all its life.
"""

import argparse
import asyncio
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from random import Random
from unittest.mock import patch

from framework.kinds import OF_KINDS, RUNS, KindRun, Task
from framework.schedules import FAMILIES, SETTLING, Fault, when

from families.node_sets import Configured, ConfiguredSchedule, node_set, urls_of
from redlock_async import ConfigurationError, Redlock, RedlockError
from redlock_async._admin.node_sets import Records
from redlock_async._rules.quorum import majority
from redlock_async.cli import nodes as command
from redlock_async.testing import Violation

TTL = 0.5
NODE_TIMEOUT = 0.1
NEWS = 0.1
"""Seconds after which a client that was refused has learned that it may take locks: it reads the records at most once
in 50 ms."""

LAG = 0.02
PAUSE = 0.2
"""Seconds after which an operator repeats a command that had to wait, or had failed."""


BOUND = TTL
"""The longest wait in seconds for a lock that is free, if nothing fails."""


@dataclass(frozen=True)
class Order:
    """One command of an operator, repeated until it succeeds."""

    nodes: str
    """REDLOCK_NODES, as letters."""
    words: tuple[str, ...]
    """The arguments: an action, and letters for URLs. `become` begins a change to any set."""
    quorum: int | None = None
    force: bool = False
    tries: int = 15
    at: float = 0.0
    waits: bool = True
    """Whether `add` returns only when the new node votes."""
    dies: int = 0
    """The step at which the operator's process is killed before its messages reach far nodes: 1 is the first."""

    def __str__(self):
        more = ("" if self.quorum is None else f" --quorum {self.quorum}") + (" --force" if self.force else "")
        return (
            f"{self.at:.3f} s: with {self.nodes}: {' '.join(self.words)}{more}, {self.tries} times, dies at {self.dies}"
        )


@dataclass(frozen=True)
class Operator:
    """One operator's commands, one after the other."""

    orders: tuple[Order, ...]
    deaf: str = ""
    """The nodes that this operator cannot reach."""
    slow: str = ""
    """The nodes to and from which this operator's messages take `LAG` longer."""
    dies: float | None = None
    """When the operator's process is killed."""


@dataclass(frozen=True)
class ChangeSchedule(ConfiguredSchedule):
    """A schedule with operators."""

    operators: tuple[Operator, ...] = ()
    lasts: float = 0.0
    """For how long operators may work."""

    def __str__(self):
        lines = [super().__str__(), f"  configured: {self.configured}, recorded: {self.recorded}"]
        for each in self.operators:
            lines += [
                f"  operator, deaf to {each.deaf or 'none'}, far from {each.slow or 'none'}, dies {each.dies}:",
                *(f"    {o}" for o in each.orders),
            ]
        return "\n".join(lines)

    @property
    def calm(self):
        """Whether nothing fails, and operators do as they are told: then no client that is let in may be disturbed."""
        careless = any(
            each.deaf
            or each.dies is not None
            or any(order.force or order.words[0] == "become" for order in each.orders)
            for each in self.operators
        )
        return self.recorded and not self.faults and self.tail == 0 and not careless and len(self.operators) == 1

    @cached_property
    def heals_at(self):
        last = max((fault.at + fault.seconds for fault in self.faults), default=0.0)
        return max([last, self.lasts, *(job.at + job.wait + job.work for jobs in self.jobs for job in jobs)])


CLIENTS = {}


def client(configured, number):
    """A client with these nodes and this quorum, created once for many simulations."""
    if (configured, number) not in CLIENTS:
        nodes, quorum = configured
        options = {"ttl": TTL, "node_timeout": NODE_TIMEOUT, "quorum": quorum}
        CLIENTS[configured, number] = Redlock(urls_of(nodes), owner=f"p{number}", **options)
    return CLIENTS[configured, number]


class Changing(Configured):
    """Checks that no two clients hold a lock, that others are refused with a reason, and that a change can be ended."""

    def __init__(self, schedule, _clients):
        KindRun.__init__(self, schedule, lambda _nodes, number, **_options: client(schedule.configured[number], number))
        if schedule.recorded:
            self._found(*schedule.configured[0])
        self.allowed = {schedule.configured[0]: 0.0}
        """Since when each configuration may be used."""
        self._working = {}
        self._dying = None, 0, ""
        """The operator's process that dies in this many steps, and the nodes that do not hear of the last one."""
        self.ended = {}
        """When the command was called by which a configuration may no longer be used."""
        for number, operator in enumerate(schedule.operators):
            self._simulation.at(operator.orders[0].at, self._begin_work, number, operator)
        self._simulation.at(schedule.heals_at + SETTLING, self._begin_work, len(schedule.operators), None)

    def outcome(self):
        record, run = Records.record, self

        async def recorded(self, *arguments):
            run._at_a_step(self._context.loop)
            return await record(self, *arguments)

        with ExitStack() as stack:
            for name in ("say", "print"):
                stack.enter_context(patch.object(command, name, lambda *_, **__: None, create=True))
            stack.enter_context(patch.object(Records, "record", recorded))
            return super().outcome()

    @property
    def _excused(self):
        # These clients are closed as soon as their jobs have ended. What they release then does not reach a node
        # that is down.
        return super()._excused or bool(self.schedule.faults)

    def _inject(self, fault):
        if fault.what == "block":
            self._processes[fault.target].block(fault.seconds)
        else:
            super()._inject(fault)

    def _at_a_step(self, loop):
        """Kill the operator's process before its messages reach the far nodes, if it dies at this step."""
        process, left, far = self._dying
        if process is not None and process.loop is loop and left:
            self._dying = process, left - 1, far
            if left == 1:
                for node in far:
                    self._simulation.black_hole("ABCDE".index(node), process)
                self._simulation.at(self._simulation.now + LAG / 2, process.kill)

    # Operators

    def _begin_work(self, number, operator):
        simulation = self._simulation
        work = self._operate(number, operator) if operator is not None else self._finish_all(number)
        process = self._working[number] = simulation.process(lambda: work, name=f"operator {number}")
        for node in operator.deaf if operator else ():
            simulation.black_hole("ABCDE".index(node), process)
        for node in operator.slow if operator else ():
            simulation.delay("ABCDE".index(node), LAG, process)
        if operator is not None:
            simulation.at(self.schedule.heals_at if operator.dies is None else operator.dies, process.kill)

    async def _operate(self, number, operator):
        for order in operator.orders:
            await asyncio.sleep(max(order.at - self._simulation.now, 0))
            if order.dies:
                self._dying = self._working[number], order.dies, operator.slow
            for _ in range(order.tries):
                if await self._carry_out(number, order):
                    break
                await asyncio.sleep(PAUSE)

    async def _carry_out(self, number, order):
        """Run one command; return whether it succeeded."""
        start = self._simulation.now
        arguments = argparse.Namespace(
            action=order.words[0], urls=[] if order.words[0] == "become" else urls_of("".join(order.words[1:])),
            nodes=urls_of(order.nodes), quorum=order.quorum, no_wait=not order.waits, force=order.force, json=False,
        )  # fmt: skip
        try:
            working = command.Command(arguments)
            working.environ |= {
                "REDLOCK_TTL": str(TTL), "REDLOCK_NODE_TIMEOUT": str(NODE_TIMEOUT), "REDLOCK_WAIT": "0.5",
                "REDLOCK_OWNER": f"operator-{number}",
            }  # fmt: skip
            if order.words[0] == "become":
                await become(working, order.words[1], order.quorum)
            else:
                await command.RUN[order.words[0]](working)
        except (command.NotNow, RedlockError):
            return False
        self._succeeded(order, start)
        return True

    def _succeeded(self, order, start):
        action, *letters = order.words
        before = (order.nodes, majority(len(order.nodes)))
        if action in {"add", "remove"}:
            after = order.nodes + letters[0] if action == "add" else order.nodes.replace(letters[0], "")
            self.allowed.setdefault((after, order.quorum or majority(len(after))), self._simulation.now)
        elif action == "finish":
            for configured in self.allowed:
                if configured != before:
                    self.ended.setdefault(configured, start)

    async def _finish_all(self, number):
        """After healing: end the change that is under way, if any, and take a lock with what the clients agree on."""
        everything = urls_of("ABCDE")
        environ = {
            "REDLOCK_TTL": str(TTL),
            "REDLOCK_OWNER": f"operator-{number}",
            "REDLOCK_NODES": ",".join(everything),
        }
        patience = self._simulation.now + 30 * self.schedule.longest_ttl
        why = None
        while self._simulation.now < patience:
            redlock = Redlock.from_env(environ)
            try:
                found = await command.records_of(redlock).read()
            finally:
                await redlock.aclose()
            if found.charter is None:
                return
            *_, last = found.charter.sets
            letters = "".join("ABCDE"[int(label[5])] for label in last.labels)
            rest = tuple(node for node in "ABCDE" if node not in letters)
            if len(found.charter.sets) > 1:
                await self._carry_out(number, Order(letters, ("finish", *rest), force=True))
                await asyncio.sleep(PAUSE)
                continue
            redlock = Redlock(urls_of(letters), ttl=TTL, quorum=last.quorum, node_timeout=NODE_TIMEOUT)
            try:
                lease = await redlock("x", wait=12 * self.schedule.longest_ttl).acquire()
                await lease.release()
            except RedlockError as error:
                why = error
            else:
                return
            finally:
                await redlock.aclose()
        self.recorder.violations.append(Violation("liveness", f"{why or found.charter} (after healing)"))

    # Clients

    async def _work(self, number, jobs):
        process, redlock = self._processes[number], self._clients(self.schedule.nodes, number)
        self.recorder.watch(process, redlock)
        async with asyncio.TaskGroup() as group:
            for job in jobs:
                group.create_task(self._job(process, redlock, job))
        await redlock.aclose()

    async def _hold(self, process, redlock, job):
        if job.event:  # computes, so that it goes on with this before anything that arrived while it was stopped
            while self._simulation.now < float(job.event):  # noqa: ASYNC110 - it computes
                await asyncio.sleep(0)
        await super()._hold(process, redlock, job)

    @asynccontextmanager
    async def held(self, redlock, job):
        """A block under the job's lock; an error about its configuration must name two sets."""
        try:
            lease = await self.lock(redlock, job).acquire()
        except ConfigurationError as error:
            own = node_set(*self.schedule.configured[int(redlock._settings.owner[1:])])
            if f"configured with {own}, but its nodes are in use with quorum=" not in str(error):
                self.recorder.violations.append(Violation("message", str(error)))
            raise
        async with lease:
            yield lease

    def check(self):
        """Yield also clients that are refused although their configuration may be used."""
        yield from KindRun.check(self)
        if not self.schedule.calm:
            return
        for attempt in self.attempts:
            if not attempt.refused:
                continue
            configured = self.schedule.configured[attempt.number]
            since, until = self.allowed.get(configured), self.ended.get(configured)
            granted = [other.end for other in self.attempts if other.number == attempt.number and other.granted]
            if since is None or since + NEWS > attempt.start:
                continue
            if until is None or attempt.end < until or (granted and min(granted) < until):
                own = node_set(*configured)
                yield Violation("liveness", f"process {attempt.number} with {own} was refused at {attempt.end:.3f}")


RUNS |= {"changing": Changing}


async def become(working, nodes, quorum):
    """Begin a change to any set, as `add` and `remove` do for one node."""
    following = node_set(nodes, quorum or majority(len(nodes)))

    async def begin(records, found):
        return await command._begin(working, records, found, following)

    await working.ask(sorted({*working.given, *urls_of(nodes)}), begin)


# Schedules


def changed(rng, before):
    """A set that differs by one node, and the words of the command that begins the change."""
    others = [node for node in "ABCDE" if node not in before]
    if others and (len(before) <= 3 or rng.random() < 0.5):
        node = rng.choice(others)
        return before + node, ("add", node)
    node = rng.choice(before)
    return before.replace(node, ""), ("remove", node)


def chain(rng, first, length):
    """So many changes, one after the other: the sets, and the words for each change."""
    sets, words = [first], []
    for _ in range(length):
        following, order = changed(rng, sets[-1])
        sets.append(following)
        words.append(order)
    return sets, words


def orders_for(sets, words, *, begin=0.1, force=False, tries=15, finish=True, waits=True):
    """An operator's orders for a chain of changes."""
    orders = []
    for before, after, (action, node) in zip(sets, sets[1:], words, strict=False):
        orders.append(Order(before, (action, node), at=begin if not orders else 0.0, tries=tries, waits=waits))
        if finish:
            gone = (node,) if action == "remove" else ()
            orders.append(Order(after, ("finish", *gone), force=force, tries=tries))
    return tuple(orders)


def apart(rng, one, other):
    """A quorum of each set; if there are any, two without a node in common."""
    pairs = [
        (first, second)
        for first in combinations(one, majority(len(one)))
        for second in combinations(other, majority(len(other)))
    ]
    least = min(len({*first} & {*second}) for first, second in pairs)
    return rng.choice([pair for pair in pairs if len({*pair[0]} & {*pair[1]}) == least])


def far(rng):
    """A chain of two changes, of which the first and the last set have quorums without a node in common."""
    while True:
        sets, words = chain(rng, rng.choice(("ABC", "ABCD", "ABCDE")), 2)
        first, second = apart(rng, sets[0], sets[2])
        if not {*first} & {*second}:
            return sets, words, first, second


def leases(rng, start, number, *, ttl=TTL, wait=0.5, every=0.4):
    """Leases one after the other."""
    return tuple(
        Task(
            "lock",
            "x",
            start + every * turn,
            ttl,
            wait,
            rng.choice((0.02, 0.6 * ttl, 0.9 * ttl)),
            renew=rng.random() < 0.4,
        )
        for turn in range(number)
    )


def node_sets(seed):
    """One of them."""
    rng = Random(seed)
    return rng.choice(CHANGES)(seed, rng)


def _schedule(seed, jobs, sets, operators, found=(), *, lasts, recorded=True, bound=None):
    """The schedule: each process has the jobs and the set at its position."""
    configured = tuple(each if isinstance(each, tuple) else (each, majority(len(each))) for each in sets)
    return ChangeSchedule(
        seed, 5, 0.005, 0.0, 0.0, tuple(jobs), tuple(sorted(found, key=when)), kind="changing",
        configured=configured, recorded=recorded, operators=tuple(operators), lasts=lasts,
        bound=bound,
    )  # fmt: skip


def _by_the_book(seed, rng):
    """One operator changes the set once or twice, and each set has clients that come and go."""
    sets, words = chain(rng, rng.choice(("ABC", "ABCD", "ABCDE")), rng.choice((1, 1, 2)))
    lasts = 2.5 * len(words)
    jobs, configured = [leases(rng, 0.0, 2)], [sets[0]]
    for _ in range(rng.randint(2, 4)):
        jobs.append(leases(rng, rng.uniform(0, lasts), rng.randint(1, 4), every=rng.uniform(0.2, 0.6)))
        configured.append(rng.choice(sets))
    found = ()
    if rng.random() < 0.4:
        found = _some_faults(rng, lasts)
    more = {"recorded": rng.random() < 0.8, "bound": None if found else BOUND}
    return _schedule(seed, jobs, configured, [Operator(orders_for(sets, words))], found, lasts=lasts, **more)


def _some_faults(rng, lasts):
    """One node at a time fails; at most one node loses its data."""
    at, found, lost = 0.2, [], rng.random() < 0.5
    while at < lasts and rng.random() < 0.8:
        at += rng.uniform(0.0, 0.8)
        seconds = rng.choice((0.05, rng.uniform(0.1, 1.0)))
        what = rng.choice(
            ("kill", "restart", "cut", "pause", "reset", "black hole", *(["restart empty"] if lost else []))
        )
        lost = lost and what != "restart empty"
        found.append(Fault(at, what, rng.randrange(5), 0.0 if what == "reset" else seconds))
        at += seconds
    return found


def _old_leases(seed, rng):
    """A client with the first set holds a lease, and does not hear of those with the last set, two changes later."""
    sets, words, first, second = far(rng)
    old, new = rng.choice((1.0, 2.0)), rng.uniform(0.5, 1.5)
    force = rng.random() < 0.7
    found = [Fault(0.05, "black hole", "ABCDE".index(node), 8.0, 0) for node in sets[0] if node not in first]
    found += [Fault(new, "black hole", "ABCDE".index(node), 8.0, 1) for node in sets[2] if node not in second]
    jobs = [
        leases(rng, 0.1, rng.randint(3, 10), ttl=old, every=rng.uniform(0.2, 0.8)),
        leases(rng, new, 8, every=0.5, wait=1.0),
    ]
    operators = [Operator(orders_for(sets, words, force=force, begin=rng.uniform(0.1, 0.5)))]
    return _schedule(seed, jobs, [sets[0], sets[2]], operators, found, lasts=6.0)


def _interrupted(seed, rng):
    """An operator reaches some nodes only, or dies; another one goes on, who may want something else."""
    first = rng.choice(("ABC", "ABCD", "ABCDE"))
    sets, words = chain(rng, first, 2)
    others, other_words = chain(rng, rng.choice((first, first, sets[1])), rng.choice((1, 2)))
    force = rng.random() < 0.6
    end = rng.uniform(0.3, 2.5)
    deaf = "".join(node for node in "ABCDE" if rng.random() < 0.35)
    tries = rng.choice((1, 1, 3, 15))
    orders = orders_for(sets, words, force=force, tries=tries, waits=rng.random() < 0.5)
    if rng.random() < 0.6:
        at, step = rng.choice(((0, 1), (0, 2), (1, 1), (1, 1), (2, 1), (2, 2)))
        orders = (*orders[:at], replace(orders[at], dies=step))
    slow = "".join(node for node in "ABCDE" if rng.random() < 0.5)
    one = Operator(orders, deaf if rng.random() < 0.4 else "", slow, dies=rng.choice((None, end)))
    again = rng.random() < 0.3
    orders = orders_for(sets if again else others, words if again else other_words, force=force, begin=end)
    if rng.random() < 0.5:
        orders = (
            Order(sets[1], ("finish", *(words[0][1:] if words[0][0] == "remove" else ())), force=True, at=end, tries=5),
            *orders,
        )
    deaf = "".join(node for node in "ABCDE" if rng.random() < 0.2)
    two = Operator(orders, deaf)
    candidates = [sets[0], sets[1], sets[2], *others[1:]]
    jobs, configured = _rivals(rng, candidates, end)
    found = _rival_faults(rng, len(jobs), end)
    return _schedule(seed, jobs, configured, [one, two], found, lasts=end + 4.0)


def _rivals(rng, candidates, end):
    jobs, configured = [leases(rng, 0.0, 2, every=0.3)], [candidates[0]]
    for _ in range(rng.randint(2, 4)):
        start = rng.choice((0.1, end, rng.uniform(0.1, end + 2)))
        jobs.append(leases(rng, start, rng.randint(2, 7), ttl=rng.choice((TTL, TTL, 1.5)), every=0.4))
        configured.append(rng.choice(candidates))
    return jobs, configured


def _rival_faults(rng, number, end):
    if rng.random() < 0.3:
        return _some_faults(rng, end + 2)
    return [
        Fault(rng.uniform(0.05, end + 1), "black hole", node, rng.uniform(1.0, 6.0), process)
        for process in range(1, number)
        for node in range(5)
        if rng.random() < 0.25
    ]


def _duel(seed, rng):
    """Two operators begin different changes at once, and reach different nodes. Clients come with both of the sets."""
    first = rng.choice(("ABC", "ABCD", "ABCD", "ABCD", "ABCD", "ABCDE"))
    while True:
        (_, one), words = chain(rng, first, 1)
        (_, two), other_words = chain(rng, first, 1)
        held, wanted = apart(rng, one, two)
        if first != "ABCD" or not {*held} & {*wanted}:
            break
    start = rng.uniform(0.1, 0.4)
    near = ["".join({*held}), "".join({*wanted} - {*held})]
    near = ["".join(node for node in "ABCDE" if node in each) for each in near][:: rng.choice((1, -1))]
    finishes, tries = rng.random() < 0.3, rng.choice((1, 1, 3, 15))
    operators = []
    for number, (after, order) in enumerate(((one, words), (two, other_words))):
        begin = start + rng.choice((0.0, 0.0, rng.uniform(0, 0.01)))
        orders = orders_for((first, after), order, begin=begin, tries=tries, finish=finishes, force=True)
        if rng.random() < 0.3:
            orders = (*orders, *orders_for((first, after), order, begin=2.0))
        deaf = "" if rng.random() < 0.9 else rng.choice("ABCDE")
        operators.append(Operator(orders, deaf, near[1 - number]))
    at = start + rng.uniform(0.05, 2.0)
    jobs = [leases(rng, 0.0, 1), leases(rng, at, 4), leases(rng, at + rng.uniform(0, 0.3), 4)]
    found = [Fault(at, "black hole", "ABCDE".index(node), 5.0, 1) for node in one if node not in held]
    found += [Fault(at, "black hole", "ABCDE".index(node), 5.0, 2) for node in two if node not in wanted]
    return _schedule(seed, jobs, [first, one, two], operators, found if rng.random() < 0.8 else (), lasts=4.0)


def _half_finished(seed, rng):
    """A change is ended on some nodes only, and later on the others. The next change follows at once."""
    sets, words, first, second = far(rng)
    begin, again = rng.uniform(0.1, 0.3), rng.uniform(1.2, 2.0)
    found = [Fault(0.05, "black hole", "ABCDE".index(node), 8.0, 0) for node in sets[0] if node not in first]
    found += [Fault(0.05, "black hole", "ABCDE".index(node), 8.0, 1) for node in sets[2] if node not in second]
    start, finish, *rest = orders_for(sets, words, force=True, begin=begin, waits=False)
    slow = "".join(node for node in "ABCDE" if node not in second or rng.random() < 0.2)
    one = Operator((start, replace(finish, dies=1, at=0.6)), slow=slow)
    two = Operator((replace(finish, at=again), *rest))
    jobs = [leases(rng, 0.1, 12, ttl=1.0, every=0.2), leases(rng, again - 0.3, 12, every=0.15, wait=1.0)]
    return _schedule(seed, jobs, [sets[0], sets[2]], [one, two], found, lasts=again + 3)


def _stopped(seed, rng):
    """A client with the first set is stopped for long, and goes on when clients use the last one, two changes later."""
    sets, words, first, second = far(rng)
    begin = rng.uniform(0.5, 1.0)
    found = [Fault(0.05, "black hole", "ABCDE".index(node), 12.0, 0) for node in sets[0] if node not in first]
    found += [Fault(0.05, "black hole", "ABCDE".index(node), 12.0, 1) for node in sets[2] if node not in second]
    stop = rng.uniform(0.3, begin + 0.5)
    goes_on = rng.uniform(3.5, 6.0)
    found.append(Fault(stop, "block", 0, goes_on - stop))
    jobs = [
        (
            Task("lock", "before", 0.1, 1.0, 0.5, 0.02),
            Task("lock", "x", stop - 0.0005, 1.0, 0.0, 0.9, event=str(stop + 0.001)),
        ),
        (*leases(rng, 2.0, 20, every=0.3, wait=2.0),),
    ]
    operators = [Operator(orders_for(sets, words, force=rng.random() < 0.8, begin=begin))]
    return _schedule(seed, jobs, [sets[0], sets[2]], operators, found, lasts=goes_on + 1)


def _jump(seed, rng):
    """An operator wants any other set at once, of any quorum.

    Its client reaches a node of the first set: without one, it cannot find out that there are other clients.
    """
    first = rng.choice(("ABC", "ABCD", "ABCDE"))
    last = "".join(node for node in "ABCDE" if rng.random() < 0.7)
    if not {*first} & {*last}:
        last = first
    quorum = rng.randint(majority(len(last)), len(last)) if rng.random() < 0.3 else majority(len(last))
    held, wanted = apart(rng, first, last)
    if not {*wanted} & {*first}:
        wanted = (*wanted, next(node for node in last if node in first))
    at = rng.uniform(0.2, 0.8)
    found = [Fault(at, "black hole", "ABCDE".index(node), 4.0, 0) for node in first if node not in held]
    found += [Fault(at, "black hole", "ABCDE".index(node), 4.0, 1) for node in last if node not in wanted]
    jobs = [leases(rng, 0.1, 6), leases(rng, at, 6)]
    gone = tuple(node for node in first if node not in last)
    orders = [Order(first, ("become", last), quorum, at=0.15, tries=2)]
    if rng.random() < 0.5:
        orders.append(Order(last, ("finish", *gone), force=rng.random() < 0.5))
    return _schedule(
        seed,
        jobs,
        [first, (last, quorum)],
        [Operator(tuple(orders))],
        found if rng.random() < 0.8 else (),
        lasts=3.0,
    )


CHANGES = (_by_the_book, _by_the_book, _old_leases, _interrupted, _interrupted, _duel, _half_finished, _stopped, _jump)
OF_KINDS["node sets"] = FAMILIES["node sets"] = node_sets
