"""Families for corner cases: each tests one rule that random schedules of its kind need once in a million."""

from dataclasses import replace
from random import Random

from framework.kinds import FAIR_BOUND, LATCH_BOUND, OF_KINDS, SHARING_BOUND, Task, calm
from framework.schedules import FAMILIES, Fault, when

from redlock_async._kinds.fair import SHORTEST_ENTRY_TTL
from redlock_async._kinds.fair_queue import HEARTBEATS_PER_ENTRY

PROMPT = 0.15
"""Seconds until a waiter for a fair lock is queued, even if it is far away: a dozen messages."""

NEXT = 0.15
"""Seconds until the next waiter has a fair lock that is free: three messages and a late timer."""


def corners(seed):
    """One of them."""
    rng = Random(seed)
    return rng.choice(CORNERS)(seed, rng)


def _corner(seed, rng, kind, jobs, faults, *, nodes=(3, 5), **more):
    """Schedule on that number of nodes, with the given faults only."""
    schedule = calm(seed, rng, kind, jobs, faults=tuple(sorted(faults, key=when)), **more)
    return replace(schedule, nodes=rng.choice(nodes), tail=0.0)


# Readers


def _freed_readers(seed, rng):
    """Readers are force-released, and the next one joins before a distant one is notified."""
    ttl, at, gap = rng.choice((1.0, 4.0)), rng.uniform(0.3, 0.6), rng.uniform(0.0005, 0.002)
    first = Task("read", "x", 0.05, ttl, 0.0, 1.5 * ttl)
    times = [[at + (2 * number + which) * gap for number in range(10)] for which in range(2)]
    following = [tuple(Task("read", "x", at, ttl, 1.0, rng.uniform(0, 4) * gap) for at in own) for own in times]
    nodes, far = rng.choice((3, 5)), rng.uniform(0.002, 0.01)
    faults = [Fault(0.2, "lag", node, far, process=0) for node in range(nodes)]
    faults.append(Fault(at + rng.uniform(-2, 15) * gap, "force", 0))
    return _corner(seed, rng, "readers and writers", [(first,), *following], faults, nodes=(nodes,))


def _crossed(seed, rng):
    """A reader and a writer of one process ask at about the same time, and each gets one of two nodes for a while."""
    leaves = rng.uniform(0.4, 0.6)
    others = (Task("read", "x", 0.05, 2.0, 0.0, leaves - 0.05), Task("write", "x", 0.1, 2.0, 8.0, 0.0))
    both = tuple(Task(kind, "x", rng.uniform(0.2, 0.3), 2.0, 8.0, 0.05) for kind in ("read", "write"))
    return _corner(seed, rng, "readers and writers", [others, both], (), nodes=(2,), bound=SHARING_BOUND)


def _held_out(seed, rng):
    """One of three nodes is down; another is quarantined, but grants and reports changes. No process gets the lock,
    and each attempt may look like an opportunity to the other processes, or to itself."""
    forgetful, down = rng.sample(range(3), 2)
    faults = [
        Fault(0.3, "wipe", forgetful),
        Fault(rng.uniform(0.35, 0.5), rng.choice(("kill", "black hole", "pause")), down, 4.0),
    ]

    def wants():
        return Task(rng.choice(("read", "write")), "x", rng.uniform(0.6, 0.7), 6.0, 8.0, 0.01)

    jobs = [(Task("read", "before", 0.0, 6.0, 0.0, 0.0), wants(), wants()) for _ in range(3)]
    return _corner(seed, rng, "readers and writers", jobs, faults, nodes=(3,), bound=8.0)


# Semaphores


def _two_numbers(seed, rng):
    """Nodes lose a slot one after the other, and a client with another number of permits is faster than its renewal."""
    nodes, ttl = rng.choice((3, 3, 5)), rng.uniform(0.6, 1.0)
    held, other = rng.sample((1, 2, 3), 2)
    faults, at = [], rng.uniform(0.3, 0.6)
    for node in rng.sample(range(nodes), nodes // 2 + 1):
        faults.append(Fault(at, "wipe", node))
        at += rng.uniform(1.1, 2.0)  # one at a time: each is quarantined for a second

    def tries():
        gap = rng.uniform(0.05, 0.1)
        rush = [fault.at + rng.uniform(-0.001, 0.003) for fault in faults for _ in range(3)]
        for at in sorted([*rush, *(0.3 + number * gap for number in range(int(6.5 / gap)))]):
            yield Task("semaphore", "x", at, ttl, 0.0, rng.uniform(0, gap), permits=other)

    jobs = [(Task("semaphore", "x", 0.05, ttl, 0.0, 7.0, permits=held),), tuple(tries()), tuple(tries())]
    return _corner(seed, rng, "semaphore", jobs, faults, nodes=(nodes,))


def _forgotten_slots(seed, rng):
    """An operator lowers the number while no reachable node knows the slots beyond it: some never stored them, some
    have lost them, and the others do not answer."""
    nodes, before = rng.choice((3, 5)), rng.choice((2, 3, 4))
    spare, order = nodes // 2, rng.sample(range(nodes), nodes)
    holder = Task("semaphore", "x", 0.1, 4.0, 0.0, 3.0, rng.random() < 0.5, permits=before, slots=before)
    faults = [Fault(0.05, rng.choice(("cut", "kill")), node, 0.2) for node in order[:spare]]
    faults += [
        Fault(rng.uniform(0.3, 0.4), rng.choice(("wipe", "restart empty")), node, 0.05)
        for node in order[spare : 2 * spare]
    ]
    faults += [
        Fault(rng.uniform(0.45, 0.55), rng.choice(("pause", "black hole", "kill")), node, 2.0)
        for node in order[2 * spare :]
    ]
    change = (rng.uniform(0.6, 1.2), rng.randint(1, before - 1))
    return _corner(seed, rng, "semaphore", [(holder,)], faults, nodes=(nodes,), changes=(change,))


def _half_heard(seed, rng):
    """Half of the nodes store an operator's number without a reply arriving: it must be taken back there."""
    nodes, before, lag = rng.choice((2, 4)), rng.choice((2, 3)), 0.02
    permits = rng.choice([number for number in (1, 2, 3, 4) if number != before])
    order, asks = rng.sample(range(nodes), nodes), 1.0 + 2 * lag
    faults = [Fault(asks + rng.uniform(1.1, 1.9) * lag, "reset", node) for node in order[: nodes // 2]]
    for node in order[nodes // 2 :]:
        what = rng.choice(("cut", "kill", "black hole", "hold"))
        faults.append(Fault(asks + rng.uniform(-0.9, 0.9) * lag, what, node, rng.uniform(0.5, 2.0)))
    jobs = [tuple(Task("semaphore", "x", at, 1.0, 1.0, 0.1, permits=before) for at in (0.2, 2.0, 4.0))]
    more = {"changes": ((1.0, permits),), "lags": (lag,) * nodes, "stays": True}
    return _corner(seed, rng, "semaphore", jobs, faults, nodes=(nodes,), **more)


# Fair


def _waiting(at, **more):
    """A task that queues for a fair lock."""
    return Task("fair", "x", at, 1.0, 30.0, 0.02, **more)


def _forgotten_tickets(seed, rng):
    """No node knows the last ticket any more, and a new waiter arrives before the heartbeats restore it."""
    waiting = [tuple(_waiting(rng.uniform(0.05, 0.3)) for _ in range(rng.randint(1, 2))) for _ in range(2)]
    at = rng.uniform(0.35, 0.8)
    late = (_waiting(at + rng.uniform(0.0, 0.1)),)
    jobs = [(Task("fair", "x", 0.0, 2.0, 1.0, rng.uniform(0.9, 1.5)),), *waiting, late]
    nodes = rng.choice((3, 5))
    faults = [Fault(at, "forget tickets", node) for node in range(nodes)]
    return _corner(seed, rng, "fair", jobs, faults, nodes=(nodes,), ordered=True, bound=FAIR_BOUND)


def _left_in_between(seed, rng):
    """Waiters give up while the connections that carried their queue entries are replaced."""
    nodes, lag = rng.choice((3, 5)), rng.uniform(0.001, 0.005)
    at = rng.uniform(0.5, 0.9)
    leaving = [
        _waiting(at + rng.uniform(0, 2) * lag, cancel_after=rng.uniform(3, 10) * lag) for _ in range(rng.randint(1, 4))
    ]
    jobs = [
        (Task("fair", "x", 0.0, 2.0, 1.0, at + 0.1),),
        (_waiting(rng.uniform(0.05, 0.3)), *leaving),
        (_waiting(at + 0.06),),
    ]
    faults = [Fault(0.02, "lag", node, lag, process=1) for node in range(nodes)]
    reset = at + rng.uniform(3, 9) * lag
    faults += [Fault(reset, "reset", node) for node in range(nodes)]
    return _corner(seed, rng, "fair", jobs, faults, nodes=(nodes,), bound=FAIR_BOUND)


def _second_in_line(seed, rng):
    """The first waiter of a distant process gives up when the lock is about to be free. Its next waiter must ask twice;
    a later one of a near process is first meanwhile, unless the nodes know the order."""
    far, gives_up = rng.uniform(0.003, 0.008), rng.uniform(0.4, 0.48)
    frees = gives_up + rng.uniform(-0.9, 2.5) * far
    second = rng.uniform(0.06, 0.12)
    jobs = [
        (Task("fair", "x", 0.0, 2.0, 1.0, frees),),
        (_waiting(0.05, cancel_after=gives_up - 0.05), _waiting(second)),
        (_waiting(second + PROMPT + 0.01),),
        (_waiting(0.1, cancel_after=0.28),),  # its leaving loads that script on the nodes again
    ]
    nodes = rng.choice((1, 3, 5))
    faults = [Fault(0.01, "lag", node, far, process=1) for node in range(nodes)]
    faults += [Fault(0.37, "forget scripts", node) for node in range(nodes)]
    return _corner(seed, rng, "fair", jobs, faults, nodes=(nodes,), prompt=PROMPT)


def _passing_by(seed, rng):
    """A task waits behind a dead waiter, and asked when another one was first. When that entry has expired, other tasks
    try once, or queue as well."""
    joins = rng.uniform(0.15, 0.3)
    dies = joins + rng.uniform(0.1, 0.6)
    runs_out = joins + SHORTEST_ENTRY_TTL * (
        1 + (dies - joins) // (SHORTEST_ENTRY_TTL / HEARTBEATS_PER_ENTRY) / HEARTBEATS_PER_ENTRY
    )
    comes = rng.uniform(dies, runs_out - 0.1)
    looks = [
        Task("fair", "x", runs_out + rng.uniform(-0.01, 0.03), 1.0, 0.0, 0.0) for _ in range(rng.choice((0, 0, 4, 8)))
    ]
    others = looks or [_waiting(comes + rng.uniform(0.002, 0.05)) for _ in range(2)]
    frees = rng.uniform(comes + 0.02, runs_out) if rng.random() < 0.5 else comes + 0.02
    looks_early = Task("fair", "x", rng.uniform(frees + 0.03, max(frees + 0.03, runs_out - 0.3)), 1.0, 0.0, 0.0)
    jobs = [
        (Task("fair", "x", 0.0, 1.0, 1.0, frees),),
        (_waiting(rng.uniform(0.05, 0.1)),),
        (_waiting(joins),),
        (_waiting(comes),),
        *((other,) for other in [looks_early, *others]),
    ]
    return _corner(seed, rng, "fair", jobs, [Fault(dies, "murder", 2)], ordered=True, bound=NEXT)


def _dead_in_line(seed, rng):
    """Waiters of one process die, as the first or behind another; the lock is released before or after their queue
    entries expire."""
    dies = rng.uniform(0.4, 0.8)
    frees = dies + rng.uniform(0.0, 2.5)
    alive = [(_waiting(rng.uniform(0.05, 0.1)),)] if rng.random() < 0.5 else []
    dead = tuple(_waiting(rng.uniform(0.15, 0.3)) for _ in range(rng.choice((1, 1, 3))))
    jobs = [(Task("fair", "x", 0.0, 1.0, 1.0, frees),), dead, *alive, (_waiting(rng.uniform(0.32, frees - 0.05)),)]
    return _corner(seed, rng, "fair", jobs, [Fault(dies, "murder", 1)], ordered=True, bound=NEXT)


def _cut_off(seed, rng):
    """A waiter reaches too few nodes to get the lock; with one more down, no other can get it without those."""
    nodes = rng.choice((3, 4, 5))
    needed = nodes // 2 + 1
    order, at = rng.sample(range(nodes), nodes), rng.uniform(0.5, 1.5)
    frees = at + 2 * SHORTEST_ENTRY_TTL + rng.uniform(1.0, 3.0)
    jobs = [
        (_waiting(rng.uniform(0.1, 0.4)),),
        (Task("fair", "x", 0.0, 1.0, 1.0, frees),),
        (_waiting(rng.uniform(0.5, frees + 0.5)),),
        (_waiting(rng.uniform(0.5, frees + 0.5)),),
    ]
    faults = [Fault(at, "black hole", node, 12.0, process=0) for node in order[:needed]]
    faults.append(Fault(at + rng.uniform(0.1, 2.5), rng.choice(("kill", "cut", "pause")), order[0], 10.0))
    return _corner(seed, rng, "fair", jobs, faults, nodes=(nodes,), bound=FAIR_BOUND)


# Latches


CONNECTS = Task("remaining", "x", 0.0, 1.0, 10.0, 0.0)
"""A slow connection of one process from that time on."""


def _one_master_knows(rng, nodes, near, events):
    """Counts that are cut off when one node has stored them; the others receive them a second later."""
    lags = [Fault(0.05, "lag", node, 1.0, process=0) for node in range(nodes) if node != near]
    counting = (
        Task("count", "x", rng.uniform(0.1, 0.2), 1.0, 10.0, 0.0, cancel_after=0.01, event=event) for event in events
    )
    return (CONNECTS, *counting), lags


def _late_news(seed, rng):
    """The waiter is far from the only node that has stored the last event."""
    nodes, count = rng.choice((3, 4, 5)), rng.choice((1, 2))
    near, far = rng.randrange(nodes), rng.uniform(0.02, 0.08)
    counting, lags = _one_master_knows(rng, nodes, near, [f"event {number}" for number in range(count)])
    lags.append(Fault(0.05, "lag", near, far, process=1))
    waits = tuple(Task("wait", "x", rng.uniform(0.1, 0.3), 1.0, 20.0, 0.0) for _ in range(rng.randint(1, 2)))
    more = {"count": count, "bound": LATCH_BOUND, "hearsay": True}
    return _corner(seed, rng, "latch", [counting, (CONNECTS, *waits)], lags, nodes=(nodes,), **more)


def _mended(seed, rng):
    """A waiter has copied to the other nodes what one node had stored. That node is unreachable when the latch opens,
    and another one is unreachable all the time."""
    nodes = 5
    near, silent = rng.sample(range(nodes), 2)
    counting, faults = _one_master_knows(rng, nodes, near, ["event 0"])
    faults += [Fault(at, "hold replies", node, 2.0, process=1) for node, at in ((silent, 0.24), (near, 0.3))]
    waits = tuple(Task("wait", "x", rng.uniform(0.25, 0.29), 1.0, 20.0, 0.0) for _ in range(rng.randint(1, 2)))
    last = Task("count", "x", rng.uniform(0.31, 0.34), 1.0, 10.0, 0.0, event="event 1")
    jobs = [counting, (CONNECTS, *waits), (CONNECTS, last)]
    more = {"count": 2, "bound": LATCH_BOUND, "hearsay": True}
    return _corner(seed, rng, "latch", jobs, faults, nodes=(nodes,), **more)


CORNERS = (
    _freed_readers, _crossed, _held_out, _two_numbers, _forgotten_slots, _half_heard, _forgotten_tickets,
    _left_in_between, _second_in_line, _passing_by, _dead_in_line, _cut_off, _late_news, _mended,
)  # fmt: skip

OF_KINDS["corners"] = FAMILIES["corners"] = corners
