"""Schedules that lead into corners: each is aimed at one rule which others of its kind need once in a million."""

from dataclasses import replace
from random import Random

from kinds import FAIR_BOUND, LATCH_BOUND, OF_KINDS, SHARING_BOUND, Task, calm
from schedules import FAMILIES, Fault, when

from redlock_async._line import SIGNS
from redlock_async._queue import SHORTEST_PLACE

PROMPT = 0.15
"""Seconds after which who waits for a fair lock has its place, also where it is far away: a dozen messages."""

NEXT = 0.15
"""Seconds until the next one has a fair lock, once what kept it is over: three messages, and the slack of a timer."""


def corners(seed):
    """One of them."""
    luck = Random(seed)
    return luck.choice(CORNERS)(seed, luck)


def _corner(seed, luck, kind, jobs, faults, *, nodes=(3, 5), **more):
    """So many masters; nothing fails but what is given."""
    schedule = calm(seed, luck, kind, jobs, faults=tuple(sorted(faults, key=when)), **more)
    return replace(schedule, nodes=luck.choice(nodes), tail=0.0)


# Readers


def _freed_readers(seed, luck):
    """Readers are freed by force, and the next joins before the one that is far away has heard of it."""
    ttl, at, gap = luck.choice((1.0, 4.0)), luck.uniform(0.3, 0.6), luck.uniform(0.0005, 0.002)
    first = Task("read", "x", 0.05, ttl, 0.0, 1.5 * ttl)
    times = [[at + (2 * number + which) * gap for number in range(10)] for which in range(2)]
    following = [tuple(Task("read", "x", at, ttl, 1.0, luck.uniform(0, 4) * gap) for at in own) for own in times]
    nodes, far = luck.choice((3, 5)), luck.uniform(0.002, 0.01)
    faults = [Fault(0.2, "lag", node, far, process=0) for node in range(nodes)]
    faults.append(Fault(at + luck.uniform(-2, 15) * gap, "force", 0))
    return _corner(seed, luck, "readers and writers", [(first,), *following], faults, nodes=(nodes,))


def _crossed(seed, luck):
    """A reader and a writer of one process ask at about the same time, and each has one of two masters for a while."""
    leaves = luck.uniform(0.4, 0.6)
    others = (Task("read", "x", 0.05, 2.0, 0.0, leaves - 0.05), Task("write", "x", 0.1, 2.0, 8.0, 0.0))
    both = tuple(Task(kind, "x", luck.uniform(0.2, 0.3), 2.0, 8.0, 0.05) for kind in ("read", "write"))
    return _corner(seed, luck, "readers and writers", [others, both], (), nodes=(2,), bound=SHARING_BOUND)


def _held_out(seed, luck):
    """One of three masters is down, and one may not vote, but grants, and reports what changes there: nobody gets it,
    and each attempt of a process may look like a chance to the others, or to itself."""
    forgetful, down = luck.sample(range(3), 2)
    faults = [
        Fault(0.3, "wipe", forgetful),
        Fault(luck.uniform(0.35, 0.5), luck.choice(("kill", "black hole", "pause")), down, 4.0),
    ]

    def wants():
        return Task(luck.choice(("read", "write")), "x", luck.uniform(0.6, 0.7), 6.0, 8.0, 0.01)

    jobs = [(Task("read", "before", 0.0, 6.0, 0.0, 0.0), wants(), wants()) for _ in range(3)]
    return _corner(seed, luck, "readers and writers", jobs, faults, nodes=(3,), bound=8.0)


# Semaphores


def _two_numbers(seed, luck):
    """Masters forget a slot one after the other; somebody who means another number is there before it is set again."""
    nodes, ttl = luck.choice((3, 3, 5)), luck.uniform(0.6, 1.0)
    held, other = luck.sample((1, 2, 3), 2)
    faults, at = [], luck.uniform(0.3, 0.6)
    for node in luck.sample(range(nodes), nodes // 2 + 1):
        faults.append(Fault(at, "wipe", node))
        at += luck.uniform(1.1, 2.0)  # one at a time: each is held out for a second

    def tries():
        gap = luck.uniform(0.05, 0.1)
        rush = [fault.at + luck.uniform(-0.001, 0.003) for fault in faults for _ in range(3)]
        for at in sorted([*rush, *(0.3 + number * gap for number in range(int(6.5 / gap)))]):
            yield Task("semaphore", "x", at, ttl, 0.0, luck.uniform(0, gap), permits=other)

    jobs = [(Task("semaphore", "x", 0.05, ttl, 0.0, 7.0, permits=held),), tuple(tries()), tuple(tries())]
    return _corner(seed, luck, "semaphore", jobs, faults, nodes=(nodes,))


def _forgotten_slots(seed, luck):
    """An operator lowers the number when no master that answers knows of the slots beyond it: some never heard of them,
    some have forgotten them, and the rest do not answer."""
    nodes, before = luck.choice((3, 5)), luck.choice((2, 3, 4))
    spare, order = nodes // 2, luck.sample(range(nodes), nodes)
    holder = Task("semaphore", "x", 0.1, 4.0, 0.0, 3.0, luck.random() < 0.5, permits=before, slots=before)
    faults = [Fault(0.05, luck.choice(("cut", "kill")), node, 0.2) for node in order[:spare]]
    faults += [
        Fault(luck.uniform(0.3, 0.4), luck.choice(("wipe", "restart empty")), node, 0.05)
        for node in order[spare : 2 * spare]
    ]
    faults += [
        Fault(luck.uniform(0.45, 0.55), luck.choice(("pause", "black hole", "kill")), node, 2.0)
        for node in order[2 * spare :]
    ]
    change = (luck.uniform(0.6, 1.2), luck.randint(1, before - 1))
    return _corner(seed, luck, "semaphore", [(holder,)], faults, nodes=(nodes,), changes=(change,))


def _half_heard(seed, luck):
    """Half of the masters store an operator's number, and he does not hear of it: it has to be taken back there."""
    nodes, before, lag = luck.choice((2, 4)), luck.choice((2, 3)), 0.02
    permits = luck.choice([number for number in (1, 2, 3, 4) if number != before])
    order, asks = luck.sample(range(nodes), nodes), 1.0 + 2 * lag
    faults = [Fault(asks + luck.uniform(1.1, 1.9) * lag, "reset", node) for node in order[: nodes // 2]]
    for node in order[nodes // 2 :]:
        what = luck.choice(("cut", "kill", "black hole", "hold"))
        faults.append(Fault(asks + luck.uniform(-0.9, 0.9) * lag, what, node, luck.uniform(0.5, 2.0)))
    jobs = [tuple(Task("semaphore", "x", at, 1.0, 1.0, 0.1, permits=before) for at in (0.2, 2.0, 4.0))]
    more = {"changes": ((1.0, permits),), "lags": (lag,) * nodes, "stays": True}
    return _corner(seed, luck, "semaphore", jobs, faults, nodes=(nodes,), **more)


# Fair


def _waiting(at, **more):
    """One who queues for a fair lock."""
    return Task("fair", "x", at, 1.0, 30.0, 0.02, **more)


def _forgotten_tickets(seed, luck):
    """No master knows any more which ticket was the last, and somebody comes before they are told of it again."""
    waiting = [tuple(_waiting(luck.uniform(0.05, 0.3)) for _ in range(luck.randint(1, 2))) for _ in range(2)]
    at = luck.uniform(0.35, 0.8)
    late = (_waiting(at + luck.uniform(0.0, 0.1)),)
    jobs = [(Task("fair", "x", 0.0, 2.0, 1.0, luck.uniform(0.9, 1.5)),), *waiting, late]
    nodes = luck.choice((3, 5))
    faults = [Fault(at, "forget tickets", node) for node in range(nodes)]
    return _corner(seed, luck, "fair", jobs, faults, nodes=(nodes,), ordered=True, bound=FAIR_BOUND)


def _left_in_between(seed, luck):
    """Some give up while the connections on which their places were sent are replaced."""
    nodes, lag = luck.choice((3, 5)), luck.uniform(0.001, 0.005)
    at = luck.uniform(0.5, 0.9)
    leaving = [
        _waiting(at + luck.uniform(0, 2) * lag, cancel_after=luck.uniform(3, 10) * lag)
        for _ in range(luck.randint(1, 4))
    ]
    jobs = [
        (Task("fair", "x", 0.0, 2.0, 1.0, at + 0.1),),
        (_waiting(luck.uniform(0.05, 0.3)), *leaving),
        (_waiting(at + 0.06),),
    ]
    faults = [Fault(0.02, "lag", node, lag, process=1) for node in range(nodes)]
    reset = at + luck.uniform(3, 9) * lag
    faults += [Fault(reset, "reset", node) for node in range(nodes)]
    return _corner(seed, luck, "fair", jobs, faults, nodes=(nodes,), bound=FAIR_BOUND)


def _second_in_line(seed, luck):
    """The first of a process that is far away gives up when the lock is about to be free. Its next one must ask twice;
    one of another process, which is near and came later, is the first meanwhile if the masters know no better."""
    far, gives_up = luck.uniform(0.003, 0.008), luck.uniform(0.4, 0.48)
    frees = gives_up + luck.uniform(-0.9, 2.5) * far
    second = luck.uniform(0.06, 0.12)
    jobs = [
        (Task("fair", "x", 0.0, 2.0, 1.0, frees),),
        (_waiting(0.05, cancel_after=gives_up - 0.05), _waiting(second)),
        (_waiting(second + PROMPT + 0.01),),
        (_waiting(0.1, cancel_after=0.28),),  # whose leaving has the masters learn that script again
    ]
    nodes = luck.choice((1, 3, 5))
    faults = [Fault(0.01, "lag", node, far, process=1) for node in range(nodes)]
    faults += [Fault(0.37, "forget scripts", node) for node in range(nodes)]
    return _corner(seed, luck, "fair", jobs, faults, nodes=(nodes,), prompt=PROMPT)


def _passing_by(seed, luck):
    """Who waits behind a dead one has asked when another one was the first. When that place has run out, others look in
    and are gone, or tell the masters that they wait as well."""
    joins = luck.uniform(0.15, 0.3)
    dies = joins + luck.uniform(0.1, 0.6)
    runs_out = joins + SHORTEST_PLACE * (1 + (dies - joins) // (SHORTEST_PLACE / SIGNS) / SIGNS)
    comes = luck.uniform(dies, runs_out - 0.1)
    looks = [
        Task("fair", "x", runs_out + luck.uniform(-0.01, 0.03), 1.0, 0.0, 0.0) for _ in range(luck.choice((0, 0, 4, 8)))
    ]
    others = looks or [_waiting(comes + luck.uniform(0.002, 0.05)) for _ in range(2)]
    frees = luck.uniform(comes + 0.02, runs_out) if luck.random() < 0.5 else comes + 0.02
    looks_early = Task("fair", "x", luck.uniform(frees + 0.03, max(frees + 0.03, runs_out - 0.3)), 1.0, 0.0, 0.0)
    jobs = [
        (Task("fair", "x", 0.0, 1.0, 1.0, frees),),
        (_waiting(luck.uniform(0.05, 0.1)),),
        (_waiting(joins),),
        (_waiting(comes),),
        *((other,) for other in [looks_early, *others]),
    ]
    return _corner(seed, luck, "fair", jobs, [Fault(dies, "murder", 2)], ordered=True, bound=NEXT)


def _dead_in_line(seed, luck):
    """Some of a process that wait die, as the first or behind another; the lock is free before their places run out, or
    after that."""
    dies = luck.uniform(0.4, 0.8)
    frees = dies + luck.uniform(0.0, 2.5)
    alive = [(_waiting(luck.uniform(0.05, 0.1)),)] if luck.random() < 0.5 else []
    dead = tuple(_waiting(luck.uniform(0.15, 0.3)) for _ in range(luck.choice((1, 1, 3))))
    jobs = [(Task("fair", "x", 0.0, 1.0, 1.0, frees),), dead, *alive, (_waiting(luck.uniform(0.32, frees - 0.05)),)]
    return _corner(seed, luck, "fair", jobs, [Fault(dies, "murder", 1)], ordered=True, bound=NEXT)


def _cut_off(seed, luck):
    """One that waits reaches too few masters to get the lock; with one more down, nobody gets it without those."""
    nodes = luck.choice((3, 4, 5))
    needed = nodes // 2 + 1
    order, at = luck.sample(range(nodes), nodes), luck.uniform(0.5, 1.5)
    frees = at + 2 * SHORTEST_PLACE + luck.uniform(1.0, 3.0)
    jobs = [
        (_waiting(luck.uniform(0.1, 0.4)),),
        (Task("fair", "x", 0.0, 1.0, 1.0, frees),),
        (_waiting(luck.uniform(0.5, frees + 0.5)),),
        (_waiting(luck.uniform(0.5, frees + 0.5)),),
    ]
    faults = [Fault(at, "black hole", node, 12.0, process=0) for node in order[:needed]]
    faults.append(Fault(at + luck.uniform(0.1, 2.5), luck.choice(("kill", "cut", "pause")), order[0], 10.0))
    return _corner(seed, luck, "fair", jobs, faults, nodes=(nodes,), bound=FAIR_BOUND)


# Latches


CONNECTS = Task("remaining", "x", 0.0, 1.0, 10.0, 0.0)
"""Of a process whose messages take long from then on."""


def _one_master_knows(luck, nodes, near, events):
    """Events that are cut off when one master has stored them; the others hear of them a second later."""
    lags = [Fault(0.05, "lag", node, 1.0, process=0) for node in range(nodes) if node != near]
    counting = (
        Task("count", "x", luck.uniform(0.1, 0.2), 1.0, 10.0, 0.0, cancel_after=0.01, event=event) for event in events
    )
    return (CONNECTS, *counting), lags


def _late_news(seed, luck):
    """Who waits is far from the one master that has stored what opens the latch."""
    nodes, count = luck.choice((3, 4, 5)), luck.choice((1, 2))
    near, far = luck.randrange(nodes), luck.uniform(0.02, 0.08)
    counting, lags = _one_master_knows(luck, nodes, near, [f"event {number}" for number in range(count)])
    lags.append(Fault(0.05, "lag", near, far, process=1))
    waits = tuple(Task("wait", "x", luck.uniform(0.1, 0.3), 1.0, 20.0, 0.0) for _ in range(luck.randint(1, 2)))
    more = {"count": count, "bound": LATCH_BOUND, "hearsay": True}
    return _corner(seed, luck, "latch", [counting, (CONNECTS, *waits)], lags, nodes=(nodes,), **more)


def _mended(seed, luck):
    """Who waits has told the others what one master had stored; that one is not heard of when the latch opens, and
    another one is not heard of at all."""
    nodes = 5
    near, silent = luck.sample(range(nodes), 2)
    counting, faults = _one_master_knows(luck, nodes, near, ["event 0"])
    faults += [Fault(at, "hold replies", node, 2.0, process=1) for node, at in ((silent, 0.24), (near, 0.3))]
    waits = tuple(Task("wait", "x", luck.uniform(0.25, 0.29), 1.0, 20.0, 0.0) for _ in range(luck.randint(1, 2)))
    last = Task("count", "x", luck.uniform(0.31, 0.34), 1.0, 10.0, 0.0, event="event 1")
    jobs = [counting, (CONNECTS, *waits), (CONNECTS, last)]
    more = {"count": 2, "bound": LATCH_BOUND, "hearsay": True}
    return _corner(seed, luck, "latch", jobs, faults, nodes=(nodes,), **more)


CORNERS = (
    _freed_readers, _crossed, _held_out, _two_numbers, _forgotten_slots, _half_heard, _forgotten_tickets,
    _left_in_between, _second_in_line, _passing_by, _dead_in_line, _cut_off, _late_news, _mended,
)  # fmt: skip

OF_KINDS["corners"] = FAMILIES["corners"] = corners
