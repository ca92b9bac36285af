"""Enumerate everything that can happen to one operation of a small cluster: the reaction of each node, the order of
the replies, and a cancellation after each step of the process.

python tests/simulation/exhaustive.py --size full
"""

import argparse
import asyncio
import random
import sys
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import permutations, product
from math import inf
from pathlib import Path
from zlib import crc32

import anyio
import hiredis

sys.path.insert(0, str(Path(__file__).parent))

from framework.exploring import CORES, Findings, Worker, on_all_cores
from framework.recorder import KEPT, Recorder

from redlock_async import LockLost, LockTimeout, QuorumUnavailable, WrongKeyType
from redlock_async.testing import Violation
from redlock_async.testing.simulation import Simulation, SimulationError

TTL = 60.0
"""So long that no key expires, and all leftovers are found."""
LATENCY = 0.002
APART = 0.001
"""Seconds between the replies of two nodes."""
PROMPT = 0.001
"""Seconds that a cancellation may take: less than a node needs to answer."""
NODE_TIMEOUT = 0.25
STALL = 0.4
"""Longer than the node timeout."""
BEFORE = 0.05
"""Seconds for the preceding operations to finish."""
HEAL = 0.6
SETTLING = 3.0
"""Seconds after healing until all connections are back and all late messages have arrived."""

STRANGER = "a stranger's"
ERRORS = {"no permission": b"NOPERM this user has no permissions to run it", "loading": b"LOADING it is loading"}
OUTCOMES = (
    "granted", "held", "out of memory", "wrong type", "no permission", "loading", "lost", "reply lost", "late request",
    "late reply", "blocked", "torn",
)  # fmt: skip
"""The possible reactions of one node to a request."""
OF_A_HOLDER = (*OUTCOMES, "missing")
"""The reactions for an existing lease: in `held` its key was overwritten, in `missing` deleted."""
WITHOUT_HOLDER = tuple(outcome for outcome in OUTCOMES if outcome != "held")
AT_FIRST = ("granted", "held", "out of memory", "no permission", "loading", "refused", "blocked")
"""The reactions when there is no connection yet."""
ON_A_LEASE = {"extend", "release", "exit", "level"}
"""Actions for which the lock is already held."""
ON_KEYS = {
    "held": [("SET", STRANGER, "PX", 30_000)],
    "wrong type": [("DEL",), ("HSET", STRANGER, "s")],
    "missing": [("DEL",)],
}
FEW_WITHOUT_HOLDER = ("granted", "out of memory", "reply lost", "late request")
FEW = ("granted", "held", "wrong type", "reply lost", "late request")
PASSING = ("reply lost", "late request")
"""Reactions that are over when a fair lock is requested after its ticket."""

ENDLESS = 20_000
"""Steps of all processes after which a case counts as endless. Usual are some hundreds."""
OTHERS = 4
"""One of this many cases, by the step of the cancellation, ends with another client acquiring the lock."""
MOST = 24
"""The number of steps of one operation at which it is cancelled."""

LOCKS = ("plain", "fenced", "uneven", "several", "several fenced", "semaphore", "read", "write", "fair")
SHARED = ("read", "fair")
"""Kinds for which a refusal by a minority is a valid answer: several holders, or an order on the nodes."""
WAYS = ("task", "twice", "timeout", "scope")


@dataclass(frozen=True)
class Situation:
    """One operation, and the reactions of the nodes."""

    action: str
    """`try`, `acquire`, `extend`, `release`, `enter`, `exit`, `first` (with nothing connected yet), `level` (its second
    round), `count down`, `wait`."""
    kind: str
    outcomes: tuple[str, ...]
    order: tuple[int, ...]
    """The position of each node's reply; equal positions arrive together."""
    ways: tuple[str, ...] = WAYS
    """The ways of cancellation; with `turns`, the next one at each step."""
    turns: bool = False

    def __str__(self):
        return f"{self.action} {self.kind}: {', '.join(self.outcomes)}; replies {self.order}"

    @property
    def nodes(self):
        return len(self.outcomes)

    @property
    def needed(self):
        return self.nodes // 2 + 1

    @property
    def spare(self):
        return self.nodes - self.needed

    def count(self, *outcomes):
        """The number of nodes with one of those reactions."""
        return sum(outcome in outcomes for outcome in self.outcomes)

    @cached_property
    def allowed(self):
        """The possible results without a cancellation."""
        return frozenset(RULES[self.action](self))

    def cancellations(self, steps):
        """Every way at every step of the process, or at some steps of a long wait."""
        stride = -(-steps // MOST)
        for step in range(1 + crc32(str(self).encode()) % stride, steps + 1, stride) if steps else ():
            for way in [self.ways[step % len(self.ways)]] if self.turns else self.ways:
                yield way, step


def _of_trying(s):
    if s.count("granted") >= s.needed:
        return {"done"}
    held, conflicts = s.count("held"), s.count("wrong type")
    failed = s.nodes - held - s.count("granted")
    if conflicts > s.spare and conflicts == failed and not held:
        return {"conflict"}
    # If enough nodes fail to rule out a quorum and there is a holder, the result depends on the order of replies.
    found = {"held"} if held else set()
    if 0 < held < s.needed and s.kind not in SHARED:
        found.add("done")  # a holder on a minority does not block a retry, and the faults of other nodes may be over
    if s.kind == "fair" and held and s.count("granted", *PASSING) >= s.needed:
        found.add("done")  # it sends two requests to every node: for a ticket, and then for the lock
    found |= {"unavailable"} if failed > s.spare else set()
    # Without time for another try, the result assumes that missing nodes react like most of the others.
    guessed = 2 * conflicts > s.spare + 1 and failed > s.spare
    return found | ({"conflict"} if conflicts > s.spare or guessed else set())


def _of_waiting(s):
    if s.count("granted") >= s.needed:
        return {"done"}
    failed = s.nodes - s.count("granted", "held")
    if s.count("wrong type") > s.spare and s.count("wrong type") == failed and not s.count("held"):
        return {"conflict"}
    found = {"conflict"} if s.count("wrong type") > s.spare else set()
    found |= {"unavailable"} if s.count("no permission") > s.spare else set()
    return {"done"} | found


def _of_levelling(s):
    return {"done"} if s.count("granted") >= s.needed else {"unavailable", "held"}


def _of_extending(s):
    gone = s.count("held", "missing")
    if gone > s.spare:
        return {"lost"}
    # A key that was overwritten with another type is missing after that is deleted.
    return {"done", "lost"} if gone + s.count("wrong type") > s.spare else {"done"}


def _of_releasing(s):
    if s.count("granted", "out of memory") >= s.needed:
        return {"done"}
    return {"unavailable"} | ({"lost"} if s.count("held", "missing") > s.spare else set())


def _of_leaving(s):
    return {"done"} | (_of_releasing(s) - {"unavailable"})


def _of_looking(s):
    if s.kind == "open":
        return _of_waiting(s)
    # An event is missing, and the wait ends before the faults do.
    found = set() if s.count("granted") >= s.needed else _of_waiting(s) - {"done"} | {"unavailable"}
    return found | {"held"}


RULES = {
    "try": _of_trying,
    "first": _of_trying,
    "enter": _of_trying,
    "acquire": _of_waiting,
    "level": _of_levelling,
    "extend": _of_extending,
    "release": _of_releasing,
    "exit": _of_leaving,
    "count down": _of_waiting,
    "wait": _of_looking,
}


@dataclass(frozen=True)
class Duel:
    """Two processes that compete for a lock at about the same time."""

    kind: str
    first: tuple[int, ...]
    """Which of the two requests each node receives first, if both start at once."""
    order: tuple[int, ...]
    behind: float
    """Seconds by which the second process starts later."""
    wait: float
    restart: int | None = None
    """A node that loses its data while the lock is held."""
    ways: tuple[str, ...] = ()
    turns: bool = True

    def __str__(self):
        restart = "" if self.restart is None else f", {self.restart} restarts empty"
        return (
            f"duel {self.kind}: first {self.first}, replies {self.order}, {self.behind:g} s behind, "
            f"wait {self.wait:g}{restart}"
        )

    @property
    def nodes(self):
        return len(self.first)

    cancellations = Situation.cancellations


class Canceller:
    """Cancels a task after a step of its process, in one of several ways, and measures how long that takes."""

    def __init__(self, simulation, way, at):
        self._simulation = simulation
        self._way = way
        self._at = at
        self._limit = self._scope = self._process = self._task = None
        self.steps = 0
        self._within = PROMPT
        self.cancelled_at = inf
        self.ended_at = inf
        simulation.watchers.append(self._look)

    def run(self, process, operation):
        """Run a coroutine function as the task to cancel."""
        self._process = process
        self._task = process.loop.create_task(self._guarded(operation), name="operation")
        self._task.add_done_callback(self._ended)
        return self._task

    async def _guarded(self, operation):
        match self._way:
            case "timeout":
                async with asyncio.timeout(None) as self._limit:
                    return await operation()
            case "scope":
                with anyio.CancelScope() as self._scope:
                    return await operation()
                raise asyncio.CancelledError
        return await operation()

    @contextmanager
    def in_body(self, number=0):
        """A block under a lease. Its end waits for the release, unless that is cancelled too."""
        try:
            yield
        except asyncio.CancelledError:
            if number == 0 and self._way in {"task", "timeout"}:
                self._within = NODE_TIMEOUT + PROMPT
            raise

    def _ended(self, _task):
        self.ended_at = self._simulation.now

    def _look(self, process):
        if process is not self._process or self._task.done():
            return
        self.steps += 1
        if self.steps == self._at or (self._way == "twice" and self._at < self.steps <= self._at + 2):
            if self.cancelled_at == inf:
                self.cancelled_at = self._simulation.now
            if self._limit is not None:
                self._limit.reschedule(process.loop.time())
            elif self._scope is not None:
                self._scope.cancel()
            else:
                self._task.cancel()
            process.schedule_wakeup()

    def violations(self):
        """Yield the violations of how the task ended."""
        if self.cancelled_at == inf:
            return
        if (took := self.ended_at - self.cancelled_at) > self._within:
            yield Violation("cancellation", f"took {took:.4f} s")
        # A timeout and a scope let the task return a result that has just arrived.
        if result_of(self._task) != "cancelled" and self._limit is None and self._scope is None:
            yield Violation("cancellation", f"became {self._task!r}")


def result_of(task):
    """The result of a task in one word."""
    if task.cancelled():
        return "cancelled"
    error = task.exception()
    if error is None:
        return "held" if task.result() is None else "done"
    for kind, word in WORDS.items():
        if isinstance(error, kind):
            return word
    return "cancelled" if isinstance(error, TimeoutError) else repr(error)


WORDS = {LockTimeout: "held", QuorumUnavailable: "unavailable", LockLost: "lost", WrongKeyType: "conflict"}


def clean(session):
    """The state that an idle client should not have."""
    context, renewals = session.context, session.registry._renewals
    nodes, loop = context.nodes, context.loop
    left = {
        "leases": session.registry._by_key,
        "contests": context.wakeups,
        "queues": session.queues._queues,
        "waiters": session.queues.waiting,
        "shared": context.shared,
        "kept": session.registry.count,
        "to renew": [entry for entry in renewals._heap if entry[2].until != -inf],
        "suspects": renewals._scheduled,
        "deadlines": context.timeouts._queues,
        "releases to send": [node._pending_releases for node in nodes if node._pending_releases],
        "connections to end": [node._stale_client_ids for node in nodes if node._stale_client_ids],
        "owed replies": [
            node for node in nodes if node.connection is None or node.connection.pending or node.connection.hung
        ],
        "nodes down": [node for node in nodes if not node.ready],
        "to write": context.membership.batcher._waiting,
        "tasks": [task for task in asyncio.all_tasks(loop) if task is not asyncio.current_task()],
        "timers": [
            timer
            for timer in loop._scheduled
            if not timer.cancelled() and timer not in {renewals._timer, context.membership.electorate._timer}
        ],
    }
    return [f"{what} {those!r}" for what, those in left.items() if those]


def lock_of(redlock, kind, wait, number=0):
    """The lock of a client. In a duel the two clients may use different kinds."""
    make, options = {
        "plain": (redlock, {"fencing": False}),
        "several": (redlock, {"fencing": False}),
        "semaphore": (redlock.semaphore, {"permits": 2}),
        "one permit": (redlock.semaphore, {"permits": 1}),
        "read": (redlock.read_lock, {}),
        "write": (redlock.write_lock, {}),
        "read write": ((redlock.write_lock, redlock.read_lock)[number], {}),
        "fair": (redlock.fair_lock, {}),
    }.get(kind, (redlock, {}))
    names = (("x", "y"), ("y", "x"))[number] if kind.startswith("several") else ("x",)
    return make(*names, ttl=TTL, wait=wait, **options)


class Trial:
    """Runs a situation once, with or without a cancellation."""

    def __init__(self, clients, way=None, at=0, *, nodes, seed=1):
        self._clients = clients
        self._simulation = Simulation(nodes, seed=seed, latency=lambda _rng: LATENCY, skew=0.0)
        self._simulation.watchers.append(self._count)
        self._steps = 0
        self._recorder = Recorder(self._simulation)
        self._canceller = Canceller(self._simulation, way, at)
        self._violations = self._recorder.violations
        self._begun_at = 0.0
        self._at = at
        self._task = None
        self._lease = self._released = None

    def outcome(self):
        """Run it. Return the number of steps at which it can be cancelled, and all violations."""
        with self._simulation:
            try:
                self._start()
                self._simulation.run()
                for process in self._simulation.processes:
                    process.result()
                self._violations += [Violation("orphan", leftover) for leftover in self._recorder.leftovers()]
            except (SimulationError, AssertionError) as error:
                self._violations.append(Violation("liveness", str(error)))
            except Exception as error:  # noqa: BLE001 - any exception that leaves a process is a violation
                self._violations.append(Violation("liveness", repr(error)))
        return self._canceller.steps, [*self._recorder.check(), *self._canceller.violations()]

    def _count(self, _process):
        self._steps += 1
        if self._steps > ENDLESS:
            raise SimulationError("it does not come to rest")

    def _wrong(self, what):
        self._violations.append(Violation("outcome", what))

    def _client(self, number):
        redlock = self._clients(len(self._simulation.machines), number)
        self._recorder.watch(self._simulation.processes[number], redlock)
        session = redlock._session()
        session.context.membership.use_ttl(TTL)
        return redlock, session

    def _say(self, i, *words):
        """Execute a command of another client on a node."""
        master = self._simulation.machines[i].server
        session = master.connect(lambda *_: None)
        master.receive(session, hiredis.pack_command(words))
        master.disconnect(session)

    def _uneven(self, key):
        """Make the nodes' registers differ, so that the token must be written back."""
        from redlock_async._rules.keys import Keys  # noqa: PLC0415 - used only here

        register = Keys("").fence(key.encode())
        for i in range(len(self._simulation.machines)):
            self._say(i, "SET", register, 1_800_000_000_000_000 + 10_000_000 * i)


class Alone(Trial):
    """One client, and nodes with the situation's reactions."""

    def __init__(self, clients, situation, way=None, at=0):
        super().__init__(clients, way, at, nodes=situation.nodes)
        self._situation = situation
        self._struck = False
        self._uses_latch = situation.action in {"count down", "wait"}

    def _start(self):
        self._process = self._simulation.process(self._main)

    async def _main(self):
        s, simulation = self._situation, self._simulation
        self._redlock, session = self._client(0)
        if s.action != "first":
            await session.context.membership.start(None)
        if s.kind == "uneven":
            self._uneven("x")
        for i, place in enumerate(s.order):
            simulation.delay(i, place * APART)
        operation = await self._prepared()
        self._begun_at = simulation.now
        simulation.at(self._begun_at + HEAL, self._heal)
        if s.action == "level":
            # Just before the reply that completes a quorum, because the second round starts with it.
            simulation.at(
                self._begun_at + 2 * LATENCY + 2 * sorted(s.order)[s.needed - 1] * APART - 0.0001, self._inject
            )
        elif s.action != "exit":
            self._inject()
        self._task = self._canceller.run(self._process, operation)
        await asyncio.wait({self._task})
        what = result_of(self._task)
        if what not in (s.allowed if self._canceller.cancelled_at == inf else s.allowed | {"cancelled"}):
            self._wrong(f"was {what}, not {' or '.join(sorted(s.allowed))}: {self._task!r}")
        await self._afterwards()
        if s.action == "first":
            await session.context.membership.start(None)
        await asyncio.sleep(max(self._begun_at + HEAL + SETTLING - simulation.now, 0.1))
        self._violations += [Violation("orphan", leftover) for leftover in self._recorder.leftovers()]
        self._violations += [Violation("left", what) for what in clean(session)]
        await self._works_again()
        await self._redlock.aclose()

    # The operation

    async def _prepared(self):
        """Run the operation after its preparations."""
        s = self._situation
        match s.action:
            case "extend":
                self._lease = await self._lock().acquire()
            case "release":
                self._released = await self._lock().acquire()
            case "wait":
                await self._latch().count_down("a")
        await asyncio.sleep(BEFORE)
        return self._operation

    async def _operation(self):
        match self._situation.action:
            case "try" | "first" | "level":
                self._lease = await self._lock(wait=0).try_acquire()
                return self._lease
            case "acquire":
                self._lease = await self._lock(wait=HEAL + SETTLING).acquire()
            case "extend":
                await self._lease.extend()
            case "release":
                await self._released.release()
            case "enter" | "exit":
                await self._block()
            case "count down":
                await self._latch().count_down("b")
            case "wait":
                closed = self._situation.kind == "closed"
                await self._latch().wait(timeout=0.3 if closed else HEAL + SETTLING)
        return True

    async def _block(self):
        exits = self._situation.action == "exit"
        async with self._lock(wait=0) as lease:
            with self._recorder.body(self._process, lease), self._canceller.in_body():
                await asyncio.sleep(0)
                await asyncio.sleep(0.0005)
            if exits:
                self._inject()

    def _lock(self, wait=2.0):
        return lock_of(self._redlock, self._situation.kind, wait)

    def _latch(self):
        return self._redlock.latch("x", count=2 if self._situation.kind == "closed" else 1)

    @property
    def _keys(self):
        """The names that another client must hold to block it."""
        match self._situation.kind:
            case "several" | "several fenced":
                return ["y"]
            case "semaphore":
                return [f"redlock-async:semaphore:{{x}}:{slot}" for slot in range(2)]
            case "open" | "closed" | "latch":
                return ["redlock-async:latch:{x}"]
        return ["x"]

    # Reactions of the nodes

    def _inject(self):
        self._struck = True
        for i, outcome in enumerate(self._situation.outcomes):
            if outcome in ON_KEYS:
                for key in self._keys:
                    for words in ON_KEYS[outcome]:
                        self._say(i, words[0], key, *words[1:])
            elif outcome in ERRORS:
                self._simulation.machines[i].server.errors[b"*"] = ERRORS[outcome]
            elif outcome == "out of memory":
                self._simulation.machines[i].server.oom = True
            else:
                self._interfere(i, outcome)

    def _interfere(self, i, outcome):
        """Apply the faults of the network."""
        simulation, arrives_at = self._simulation, self._simulation.now + LATENCY + self._situation.order[i] * APART
        match outcome:
            case "lost":
                simulation.at(arrives_at - LATENCY / 2, simulation.sever, i)
            case "reply lost":
                simulation.at(arrives_at + LATENCY / 2, simulation.sever, i)
            case "late request":
                simulation.slow_requests(i, STALL)
            case "late reply":
                simulation.slow_replies(i, STALL)
            case "torn":  # the process sees the connection end, but its request still arrives
                simulation.slow_requests(i, STALL)
                simulation.at(arrives_at - LATENCY / 2, partial(simulation.sever, i, both_ends=False))
            case "blocked":
                simulation.stall_requests(i)
            case "refused":
                simulation.cut(i)

    def _heal(self):
        for i, outcome in enumerate(self._situation.outcomes):
            master = self._simulation.machines[i].server
            master.oom = False
            master.errors.clear()
            self._simulation.heal(i)
            if outcome in {"held", "wrong type"} and self._struck:
                for key in self._keys:
                    if STRANGER.encode() not in master.keys().get(key.encode(), b""):
                        self._wrong(f"{STRANGER} {key} is gone from node {i}")
                    self._say(i, "DEL", key)

    # Afterwards

    async def _afterwards(self):
        """Release the lease while the faults last, or after them in the case of an extension."""
        s, lease, simulation = self._situation, self._lease, self._simulation
        if s.action in ON_A_LEASE:
            await asyncio.sleep(max(self._begun_at + HEAL + SETTLING / 2 - simulation.now, 0))
        if self._released is not None and self._released.valid:
            await self._release(self._released)  # it was cancelled before it had started
        if s.action == "extend" and lease.lost:
            if "lost" not in s.allowed:
                self._wrong("the lease was lost")
        elif lease is not None:
            await self._release(lease)
        if s.action in ON_A_LEASE:
            self._expire()

    async def _release(self, lease):
        try:
            await lease.release()
        except LockLost:
            if self._situation.count("held", "missing", "wrong type") <= self._situation.spare:
                raise

    def _expire(self):
        """Let keys expire on nodes that rejected a release."""
        for i, outcome in enumerate(self._situation.outcomes):
            if outcome in ERRORS:
                left = self._simulation.machines[i].server.keys()
                for key in left:
                    if not KEPT.fullmatch(key):
                        self._say(i, "DEL", key)

    async def _works_again(self):
        """Check that the next client can acquire immediately."""
        simulation = self._simulation
        if self._uses_latch:
            latch = self._latch()
            for event in ("a", "b"):
                await latch.count_down(event)
            await latch.wait(timeout=0)
            return
        if self._at % OTHERS == 0:
            simulation.at(simulation.now, simulation.process, self._other)
            await asyncio.sleep(0.1)
        await self._at_once(self._redlock)
        await self._at_once(self._redlock)

    async def _other(self):
        redlock, session = self._client(1)
        await session.context.membership.start(None)
        await self._at_once(redlock)
        await redlock.aclose()

    async def _at_once(self, redlock):
        s, nodes = self._situation, redlock._session().context.nodes
        if s.action == "first" and sum(node.abstains is not None for node in nodes) > s.spare:
            return  # nodes that could not store the age of their data are quarantined for a ttl
        begun = self._simulation.now
        lease = await lock_of(redlock, s.kind, 0).try_acquire()
        if lease is None:
            self._wrong("not free again")
            return
        if (took := self._simulation.now - begun) > 4 * LATENCY + 0.001:
            self._wrong(f"free again only after {took:.4f} s")
        await lease.release()


class Pair(Trial):
    """Two clients; the first may be cancelled."""

    BEGIN = 1.0
    BODY = 0.01
    END = 5.0

    def __init__(self, clients, duel, way=None, at=0):
        super().__init__(clients, way, at, nodes=duel.nodes)
        self._duel = duel
        self._results = {}

    def _start(self):
        duel, simulation = self._duel, self._simulation
        for number in range(2):
            process = simulation.process(self._main, number)
            for i, place in enumerate(duel.order):
                simulation.delay(i, (place + (0.5 if duel.first[i] != number else 0.0)) * APART, process)
        if duel.kind == "uneven":
            simulation.at(0.9, self._uneven, "x")
        if duel.restart is not None:
            simulation.at(self.BEGIN + 0.008, simulation.kill, duel.restart)
            simulation.at(self.BEGIN + 0.012, simulation.restart, duel.restart)

    async def _main(self, number):
        duel, simulation = self._duel, self._simulation
        process = simulation.processes[number]
        redlock, session = self._client(number)
        await session.context.membership.start(None)
        await asyncio.sleep(self.BEGIN + number * duel.behind - simulation.now)
        block = partial(self._block, process, number, lock_of(redlock, duel.kind, duel.wait, number))
        task = self._canceller.run(process, block) if number == 0 else process.loop.create_task(block())
        await asyncio.wait({task})
        self._results[number] = result_of(task)
        await asyncio.sleep(self.END - 0.5 - simulation.now)
        if number == 0:
            self._check_both()
        self._violations += [Violation("left", what) for what in clean(session)]
        await asyncio.sleep(self.END + number * 0.1 - simulation.now)
        if (lease := await lock_of(redlock, duel.kind, 0, number).try_acquire()) is None:
            self._wrong(f"not free again for {number}")
        else:
            await lease.release()
        await redlock.aclose()

    async def _block(self, process, number, lock):
        async with lock as lease:
            with self._recorder.body(process, lease), self._canceller.in_body(number):
                await asyncio.sleep(self.BODY)
        return True

    def _check_both(self):
        duel = self._duel
        self._violations += [Violation("orphan", leftover) for leftover in self._recorder.leftovers()]
        allowed = {"done"} if duel.wait else {"done", "held"}
        if duel.restart is not None:
            allowed.add("lost")  # a bare majority, of which one node lost its data
            if duel.kind == "uneven" and not duel.wait:
                allowed.add("unavailable")  # or of which one node cannot store the token
        for number, what in self._results.items():
            if what not in (allowed if number or self._canceller.cancelled_at == inf else allowed | {"cancelled"}):
                self._wrong(f"{number} was {what}, not {' or '.join(sorted(allowed))}")


DUELS = ("plain", "fenced", "uneven", "several", "one permit", "read write", "write", "fair")


def orders(nodes):
    """All orders of the replies, and all replies at once."""
    return [*permutations(range(nodes)), *([(0,) * nodes] if nodes > 1 else [])]


def situations(actions, kinds, outcomes, nodes, *, every_order=True, ways=WAYS):
    """The situations of these options, in every order of replies or in alternating ones."""
    in_order = orders(nodes)
    each = product(actions, kinds, product(outcomes, repeat=nodes))
    for number, (action, kind, happens) in enumerate(each):
        for order in in_order if every_order else [in_order[number % len(in_order)]]:
            yield Situation(action, kind, happens, order, ways, turns=nodes > 1)


def duels(nodes, *, kinds=DUELS, waits=(2.0, 0.0), behind=(0.0, 0.003, 0.0045), restarts=(None,), ways=()):
    """Both processes at about the same time, in every order at every node."""
    for kind, wait, restart, later, order, first in product(
        kinds, waits, restarts, behind, orders(nodes), product((0, 1), repeat=nodes)
    ):
        yield Duel(kind, first, order, later, wait, restart, ways)


def everything():
    """All situations, in a fixed order."""
    return list(dict.fromkeys(_everything()))


def _everything():
    few = {"every_order": False}
    basic, of_one = ("plain", "fenced"), ("plain", "fenced", "several fenced", "semaphore", "read", "write", "fair")
    for nodes in (1, 2):
        yield from situations(("try",), LOCKS, OUTCOMES, nodes, **few)
        yield from situations(("enter",), basic, OUTCOMES, nodes, **few)
        yield from situations(("release",), of_one, OF_A_HOLDER, nodes, **few)
        yield from situations(("extend", "exit"), basic, OF_A_HOLDER, nodes, **few)
        yield from situations(("first",), basic, AT_FIRST, nodes, **few)
        yield from situations(("acquire",), ("plain", "fenced", "fair"), OUTCOMES, nodes, **few)
        yield from situations(("count down",), ("latch",), WITHOUT_HOLDER, nodes, **few)
        yield from situations(("wait",), ("open", "closed"), WITHOUT_HOLDER, nodes, **few)
    yield from situations(("try",), basic, OUTCOMES, 2, ways=())
    yield from situations(("acquire", "extend"), LOCKS, FEW, 2, **few)
    yield from situations(("level",), ("uneven",), OUTCOMES, 2, **few)
    yield from situations(("try",), ("fenced",), OUTCOMES, 3, ways=())
    yield from situations(("try",), ("fenced",), OUTCOMES, 3, **few)
    yield from situations(("try",), LOCKS, FEW, 3, **few)
    yield from situations(("level",), ("uneven",), FEW, 3, **few)
    yield from situations(("extend", "release"), ("fenced",), OF_A_HOLDER, 3, ways=(), **few)
    yield from situations(("enter", "release"), basic, FEW, 3, **few)
    yield from situations(("acquire", "extend", "exit"), ("fenced",), FEW, 3, **few)
    yield from situations(("first",), ("fenced",), AT_FIRST, 3, ways=(), **few)
    yield from situations(("count down",), ("latch",), WITHOUT_HOLDER, 3, ways=(), **few)
    yield from situations(("wait",), ("open", "closed"), FEW_WITHOUT_HOLDER, 3, **few)
    yield from situations(("try",), ("fenced",), FEW, 5, ways=(), **few)
    yield from situations(("acquire",), ("fenced",), ("granted", "wrong type", "reply lost"), 5, ways=(), **few)
    yield from situations(("try",), ("fenced",), ("granted", "reply lost"), 5, **few)
    yield from duels(2, waits=(2.0,), ways=WAYS)
    yield from duels(2, waits=(0.0,))
    yield from duels(3)
    yield from duels(3, kinds=("plain", "uneven"), restarts=range(3))


@dataclass
class Found(Findings):
    """The results of some situations. A failure is (situation, way, step, violations)."""

    situations: int = 0
    cases: int = 0
    by_action: Counter = field(default_factory=Counter)


class Explorer(Worker):
    """Runs situations."""

    def once(self, situation, way=None, at=0):
        """Run one case. Return (steps, violations)."""
        trial = Pair if isinstance(situation, Duel) else Alone
        return trial(self._clients, situation, way, at).outcome()

    def explore(self, those, *, stop_at_first=False):
        """Run each situation, uncancelled and cancelled at every step."""
        found = Found()
        for situation in those:
            found.situations += 1
            steps = self._case(found, situation)
            for way, at in situation.cancellations(steps) if situation.ways else ():
                self._case(found, situation, way, at)
            if found.failures and stop_at_first:
                break
        return found

    def _case(self, found, situation, way=None, at=0):
        steps, violations = self.once(situation, way, at)
        found.by_action[getattr(situation, "action", "duel")] += 1
        found.cases += 1
        if violations:
            found.failures.append((str(situation), way, at, [str(violation) for violation in violations]))
        return steps


def _explore(arguments):
    first, stride = arguments
    return Explorer().explore(everything()[first::stride])


def explore(stride=1, offset=0):
    """Run every `stride`-th situation on all cores."""
    # Small portions, because some situations take much longer than others.
    portions = 8 * CORES
    shares = [(offset + stride * number, stride * portions) for number in range(portions)]
    return on_all_cores(_explore, shares, Found())


def main():
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", choices=("small", "full"), default="small", help="small: every 20th situation")
    parser.add_argument(
        "--offset", type=int, default=None, help="the first situation of the small share (default: random, printed)"
    )
    options = parser.parse_args()
    total, stride = len(everything()), 1 if options.size == "full" else 20
    offset = random.SystemRandom().randrange(stride) if options.offset is None else options.offset % stride
    print(f"{total} situations; every {stride}th from {offset}", flush=True)
    found = explore(stride, offset)
    print(f"{found.situations} situations, {found.cases} cases in {found.seconds:.1f} s")
    print(", ".join(f"{action} {count}" for action, count in sorted(found.by_action.items())))
    print(f"{len(found.failures)} with violations")
    for situation, way, at, violations in found.failures[:20]:
        print(f"  {situation}{f'; cancelled by {way} after step {at}' if way else ''}: {violations[0]}")
    return 1 if found.failures else 0


if __name__ == "__main__":
    sys.exit(main())
