"""Families in which a minority of nodes lies or has a wrong clock, or nodes lose data while client clocks are wrong.

A lying node executes each command and sends a false reply. Lies that no majority quorum can survive are left out: a
false grant creates two holders, and a token or ticket that is too small hides a stored one.
"""

from dataclasses import dataclass, fields, replace
from functools import partial
from random import Random

from framework.kinds import (
    FAIR_BOUND,
    LATCH_BOUND,
    OF_KINDS,
    RUNS,
    KindRun,
    KindSchedule,
    Latching,
    Queueing,
    Task,
    calm,
)
from framework.schedules import FAMILIES, LOSES_DATA, Fault, when

from redlock_async import _transport
from redlock_async._rules.fencing import AHEAD
from redlock_async._runtime.acquire_round import GRANT
from redlock_async._transport.node_record import FIELDS
from redlock_async.testing.simulation._time import WALL

YEARS = 274 * 31_557_600.0
"""Seconds by which a clock that shows the year 2300 is ahead."""

GIVES_FENCES = ("mutex_acquire", "read_acquire", "write_acquire", "fair_acquire", "semaphore_acquire")
NUMBERS = (
    2**63 - 1, 2**53, 2**53 - 1, 2**53 - 2, 7_258_118_400_000_000, 7_258_118_400_000_001,
    int(WALL * 1e6) + AHEAD + 10**12, int(WALL * 1e6) + AHEAD - 10**12, int(WALL * 1e6) + AHEAD // 2, -1, -(2**63),
)  # fmt: skip
"""False tokens and tickets: beyond their range, not credible, credible, and negative."""

LIAR = b"0" * 32 + b":liar"
REFUSALS = {
    "mutex_acquire": [1, LIAR, 60_000],
    "read_acquire": [LIAR, 60_000],
    "write_acquire": [LIAR, 60_000],
    "fair_acquire": [LIAR, 60_000, 0],
    "semaphore_acquire": [LIAR, 60_000],
    "mutex_extend": [0],
    "semaphore_extend": [-1],
    "read_extend": [0],
    "mutex_reassert": 0,
}
LONG_AGO = 10**15
"""A time in µs that is 25 years before the nodes' clocks."""

SIXTY_YEARS = 60 * 31_557_600_000
"""A ttl in ms."""

GARBAGE = (b"garbage", [], [[]], None, 1.5, [None, None, None], -7)


@dataclass(frozen=True)
class LiarSchedule(KindSchedule):
    """A schedule in which some nodes lie all the time."""

    lies: tuple[tuple[int, str, int], ...] = ()
    """For each lying node: its index, the subject, and the number of the lie about it."""
    late: tuple[int, ...] = ()
    """Nodes whose clocks show the year 2300."""

    @property
    def calm(self):
        # A first connection with a false reply fails.
        return False


def lie_about_numbers(number, reply):
    """Return a false token or ticket, but never a credible one below the true one, which would hide a holder."""
    if isinstance(reply, list) and len(reply) == GRANT and isinstance(reply[0], (int, float)):
        return [number, reply[1]] if not 0 < number < reply[0] else reply
    if isinstance(reply, (int, float)) and reply < 0:  # the token is at most a second ahead of the node's clock
        return [number, -reply] if not 0 < number < -reply + 10**6 else reply
    return number if isinstance(reply, (int, float)) and not 0 < number < reply else reply


def lie_about_latches(_number, reply):
    """Report the latch as open."""
    return [1, *reply[1:]] if isinstance(reply, list) else reply


def refuse(refusal, _number, _reply):
    """Report that the command had no effect."""
    return refusal


def garbage(number, _reply):
    """Return a malformed reply."""
    return GARBAGE[number % len(GARBAGE)]


def lie_about_records(number, reply):
    """Give a false account of what the node has recorded about itself and the others, always the same one.

    Never that it has another node's id: that id would belong to two nodes.
    """
    if not isinstance(reply, list) or len(reply) < FIELDS:
        return reply
    rng = Random(number)
    now, own, ttl, origin, founding, grace, charter, stepped, *moves = reply[:FIELDS]
    others = [reply[at : at + 3] for at in range(FIELDS, len(reply), 3)]
    about_others = rng.choice((None, b"a", b"f", b"-"))
    if about_others is not None:
        since = rng.choice((LONG_AGO, now))
        others = [[other, since, about_others] for other, _, _ in others]
    elif rng.random() < 0.5:
        others = rng.choice(([], others + [[b"%d-1" % each, LONG_AGO, b"a"] for each in range(150)]))
    own = rng.choice((own, own, b"%016x-1" % rng.getrandbits(64), b""))
    ttl = rng.choice((ttl, 0, SIXTY_YEARS))
    origin = rng.choice((origin, b"", b"founding", b"founded", b"joined"))
    grace = rng.choice((grace, 0, SIXTY_YEARS))
    return [
        now,
        own,
        ttl,
        origin,
        rng.choice((founding, b"", b"1 2 3")),
        grace,
        charter,  # with other nodes down, a liar can refuse a client for its configuration: unit/test_charter.py
        stepped,
        *moves,
        *(word for each in others for word in each),
    ]


LIES = {
    "records": {"node_record": lie_about_records},
    "fences": dict.fromkeys(GIVES_FENCES, lie_about_numbers),
    "tickets": {"fair_ticket": lie_about_numbers},
    "latches": {"latch_look": lie_about_latches},
    "grants": {name: partial(refuse, refusal) for name, refusal in REFUSALS.items()},
    "everything": dict.fromkeys((*GIVES_FENCES, "mutex_reassert", "fair_ticket", "fair_wait", "latch_look"), garbage),
}
"""By subject: the scripts whose replies are falsified, and the functions that falsify a reply."""


class Lied:
    """Makes nodes lie, and sets some of their clocks to the year 2300."""

    def __init__(self, schedule, clients):
        super().__init__(schedule, clients)
        machines = self._simulation.machines
        for node in self.schedule.late:
            machines[node].clock.shows += YEARS
        for node, about, number in self.schedule.lies:
            lies = {_transport.commands.script(name).sha: partial(lie, number) for name, lie in LIES[about].items()}
            machines[node].server.lies |= lies

    @property
    def _excused(self):
        # A malformed reply replaces the connection; a client that closes meanwhile cannot release there.
        return super()._excused or any(about == "everything" for _, about, _ in self.schedule.lies)


class LiedLocks(Lied, KindRun):
    """Checks that tokens increase and free locks can be acquired."""


class LiedQueues(Lied, Queueing):
    """Also checks the order of the queue."""


class LiedLatches(Lied, Latching):
    """Checks that a latch does not open too early."""


RUNS |= {"liars": LiedLocks, "lied to in a queue": LiedQueues, "lied to of a latch": LiedLatches}


def liars(seed):
    """One of them."""
    rng = Random(seed)
    return rng.choice(LYING)(seed, rng)


def _lied(seed, rng, kind, jobs, about, **more):
    """A minority of the nodes lies, or shows the year 2300."""
    schedule = calm(seed, rng, kind, jobs, **more)
    nodes = rng.choice((3, 3, 4, 5))
    wrong = rng.sample(range(nodes), rng.randint(1, nodes - nodes // 2 - 1))
    late = tuple(node for node in wrong if rng.random() < 0.2)
    numbers = (rng.choice(NUMBERS), rng.choice(NUMBERS))
    lies = tuple((node, rng.choice(about), rng.choice(numbers)) for node in wrong if node not in late)
    return LiarSchedule(**fields_of(replace(schedule, nodes=nodes)), lies=lies, late=late)


def _lied_locks(seed, rng):
    """Many short consecutive leases, some by clients with wrong clocks."""
    ttl, kinds = rng.choice((1.0, 4.0)), rng.choice((("lock",), ("read", "write"), ("semaphore",), ("lock", "fair")))

    def job():
        work = rng.choice((0.0, 0.0, rng.uniform(0, 0.3), 0.7 * ttl))
        return Task(rng.choice(kinds), "x", rng.uniform(0, 1.5), ttl, 20.0, work, renew=rng.random() < 0.7)

    jobs = [tuple(job() for _ in range(rng.randint(2, 4))) for _ in range(rng.randint(2, 3))]
    schedule = _lied(seed, rng, "liars", jobs, ("fences", "fences", "grants", "everything", "records"))
    return replace(schedule, clients_skew=rng.choice((0.0, 3600.0)))


def _lied_votes(seed, rng):
    """A holder, nodes that forget it, and nodes that lie about the records: together as many as may be wrong."""
    ttl, nodes = rng.choice((1.0, 4.0)), rng.choice((3, 5, 5, 5))
    order, spare = rng.sample(range(nodes), nodes), nodes // 2
    forget = [node for node in order[:spare] if rng.random() < 0.6]
    lie = [node for node in order[:spare] if node not in forget or rng.random() < 0.6]
    end = rng.uniform(0.5, 0.9)
    faults = [
        Fault(end, what, node, 0.0 if what == "wipe" else rng.uniform(0.02, 0.1))
        for node in forget
        for what in [rng.choice(sorted(LOSES_DATA))]
    ]
    away = [Fault(0.3, rng.choice(("kill", "black hole")), node, rng.uniform(0.1, 0.6)) for node in order[spare + 1 :]]
    faults += away if rng.random() < 0.5 else away[:1]
    holder = (
        Task("lock", "before", 0.0, 0.5, 1.0, 0.0),
        Task("lock", "x", 0.4, ttl, 0.2, ttl, renew=rng.random() < 0.5),
    )
    rivals = [
        (Task("lock", "x", end + rng.choice((rng.uniform(0, 0.6), 0.55 * ttl)), 0.5, 3 * ttl, 0.05),)
        for _ in range(rng.randint(1, 2))
    ]
    schedule = calm(seed, rng, "liars", [holder, *rivals], faults=tuple(sorted(faults, key=when)))
    schedule = replace(schedule, nodes=nodes, skew=0.0)
    lies = tuple((node, "records", rng.randrange(10**6)) for node in lie)
    return LiarSchedule(**fields_of(schedule), lies=lies)


def _lied_queue(seed, rng):
    """A queue in which no later waiter may overtake."""

    def job():
        return Task("fair", "x", rng.uniform(0, 2.0), 2.0, 30.0, rng.choice((0.02, rng.uniform(0.05, 0.3))))

    jobs = [tuple(job() for _ in range(rng.randint(2, 4))) for _ in range(rng.randint(2, 4))]
    more = {"ordered": True, "bound": FAIR_BOUND}
    return _lied(seed, rng, "lied to in a queue", jobs, ("tickets", "tickets", "fences"), **more)


def _lied_latch(seed, rng):
    """Events counted one by one, and processes that check whether the latch is open."""
    count = rng.choice((2, 3, 5))

    def job():
        kind = rng.choice(("count", "remaining", "wait"))
        event = f"event {rng.randrange(count)}" if kind == "count" else ""
        return Task(kind, "x", rng.uniform(0, 1.0), 1.0, 2.0, 0.0, event=event)

    jobs = [tuple(job() for _ in range(rng.randint(2, 5))) for _ in range(rng.randint(2, 4))]
    more = {"count": count, "bound": LATCH_BOUND}
    return _lied(seed, rng, "lied to of a latch", jobs, ("latches",), **more)


def _lost_registers(seed, rng):
    """A node loses its data and votes again after a ttl. The next holder, whose clock is behind, reaches no other node
    that granted the last lease."""
    nodes, ttl = rng.choice((3, 3, 5)), rng.choice((0.2, 1.0, 3.0))
    spare, order = nodes // 2, rng.sample(range(nodes), nodes)
    away, forgetful, cut_off = order[:spare], order[spare], order[spare + 1 :]
    quarantine = max(ttl, 1.0)  # the clients' own ttl
    wiped, end = rng.uniform(0.6, 1.0), 2 * quarantine + 4.0
    again = wiped + quarantine * 1.02 + 0.02
    at = again + rng.uniform(0.0, 0.1)
    faults = [Fault(0.2, "black hole", node, wiped - 0.2) for node in away]
    faults += [Fault(wiped, "wipe", forgetful)]
    faults += [Fault(again - 0.01, "black hole", node, end - again) for node in cut_off[:spare]]
    early = tuple(Task("lock", "x", 0.25 + rng.uniform(0, wiped - 0.3), ttl, ttl, 0.0) for _ in range(4))
    late = tuple(Task("lock", "x", at + rng.uniform(0, 0.3), ttl, 2.0, 0.0) for _ in range(3))
    first = Task("lock", "before", 0.0, ttl, 1.0, 0.0)
    jobs = [early, early, late, late] if rng.random() < 0.5 else [early + late, early + late]
    jobs = [(first, *own) for own in jobs]
    schedule = calm(seed, rng, "liars", jobs, faults=tuple(sorted(faults, key=when)))
    schedule = replace(schedule, nodes=nodes, tail=0.0, skew=rng.choice((0.0, ttl / 8)))
    return LiarSchedule(**fields_of(schedule) | {"clients_skew": rng.choice((1.5, 1.5, 3600.0))})


def fields_of(schedule):
    """The task arguments of each kind."""
    return {each.name: getattr(schedule, each.name) for each in fields(KindSchedule)}


LYING = (_lied_locks, _lied_locks, _lied_votes, _lied_votes, _lied_queue, _lied_latch, _lost_registers)


def lying_records(seed):
    """Only the family about what nodes have recorded."""
    return _lied_votes(seed, Random(seed))


OF_KINDS["liars"] = FAMILIES["liars"] = liars
OF_KINDS["lying records"] = FAMILIES["lying records"] = lying_records
