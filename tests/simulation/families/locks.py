"""Families of schedules with plain locks or a mix of kinds, and all faults."""

from dataclasses import replace
from itertools import product
from random import Random

from framework.schedules import FAMILIES, LOSES_DATA, Fault, Job, Schedule, faults, when

from families.clocks import with_steps


def one(seed):
    """The smallest configuration: one node, two processes."""
    return replace(smallest(seed), nodes=1, faults=())


def smallest(seed):
    """Three nodes, two processes that compete for a lock, at most one fault."""
    rng = Random(seed)
    ttl = rng.choice((0.3, 1.0, 20.0))
    jobs = tuple(
        (
            Job(
                kind="lock",
                name="x",
                at=rng.choice((0.0, rng.uniform(0, 0.02))),
                ttl=ttl,
                wait=rng.choice((0.0, ttl)),
                work=rng.choice((0.0, rng.uniform(0, 0.1), 0.9 * ttl)),
                renew=rng.random() < 0.5,
            ),
        )
        for _ in range(2)
    )
    schedule = Schedule(seed, 3, 0.01, rng.choice((0.0, 0.05)), 0.0, jobs)
    return replace(schedule, faults=faults(rng, schedule, rng.choice((0, 0, 1))))


def mixed(seed, kinds=("lock",)):
    """Up to five nodes, four processes, several tasks and names, many faults, delays beyond the ttl."""
    rng = Random(seed)
    ttl = rng.choice((0.2, 0.5, 2.0, 20.0))
    names = ["x", "y", "z"][: rng.choice((1, 1, 2, 3))]
    span = rng.choice((0.05, 1.0, 3 * ttl))

    def job():
        return Job(
            kind=rng.choice(kinds),
            name=rng.choice(names),
            at=rng.uniform(0, span) if rng.random() < 0.8 else 0.0,
            ttl=rng.choice((ttl, ttl, 2 * ttl)),
            wait=rng.choice((0.0, ttl, 4 * ttl)),
            work=rng.choice((0.0, rng.uniform(0, 0.05), rng.uniform(0, 2 * ttl))),
            renew=rng.random() < 0.7,
            cancel_after=rng.uniform(0, span) if rng.random() < 0.2 else None,
            fencing=rng.random() < 0.9,
        )

    jobs = tuple(tuple(job() for _ in range(rng.randint(1, 3))) for _ in range(rng.randint(2, 4)))
    slowest = min(rng.choice((0.001, 0.02, 0.3, 1.5 * ttl)), 3.0)
    schedule = Schedule(seed, rng.choice((1, 2, 3, 3, 4, 5, 5)), slowest, rng.choice((0.0, 0.02, 0.2)), 0.0, jobs)
    schedule = replace(schedule, faults=faults(rng, schedule, rng.randint(0, 8)))
    loses = any(fault.what in LOSES_DATA for fault in schedule.faults)
    # After a loss of data the nodes' clocks bound the fencing tokens, so they may differ only by less than the
    # quarantine of a node. The clients' clocks must not matter.
    skew = rng.choice((0.0, ttl / 8 if loses else 3600.0))
    schedule = replace(schedule, skew=skew, clients_skew=rng.choice((0.0, 1.5, 3600.0)) if loses else 0.0)
    steps = () if loses else with_steps(schedule)
    return replace(schedule, faults=tuple(sorted((*schedule.faults, *steps), key=when)))


def at_expiry(seed, kinds=("lock",)):
    """Short leases without renewal, contenders that arrive when they expire, and stopped processes."""
    rng = Random(seed)
    ttl = rng.choice((0.1, 0.2, 0.5))

    def job(at):
        return Job(
            kind=rng.choice(kinds),
            name="x",
            at=max(at, 0.0),
            ttl=ttl,
            wait=rng.choice((0.0, ttl / 2, 2 * ttl)),
            work=rng.choice((ttl / 2, 2 * ttl, 2 * ttl)),
            renew=rng.random() < 0.3,
            fencing=rng.random() < 0.9,
        )

    jobs = tuple((job(number * ttl * rng.uniform(0.9, 1.1)), job(rng.uniform(0, 3) * ttl)) for number in range(3))
    schedule = Schedule(seed, rng.choice((2, 3, 3, 5)), rng.choice((0.001, ttl / 2, ttl)), 0.3, 0.0, jobs)
    # A process that is stopped between request and reply reads old grants.
    stops = tuple(
        Fault(rng.uniform(0, 3) * ttl * 0.9, "stop", number, rng.uniform(0.5, 2) * ttl)
        for number in range(3)
        if rng.random() < 0.7
    )
    return replace(schedule, faults=tuple(sorted(stops, key=when)))


def bare_majority(seed, kinds=("lock",)):
    """Leases granted by a bare majority, of which some nodes lose their data while the others come back."""
    rng = Random(seed)
    ttl, nodes = rng.choice((2.0, 20.0)), rng.choice((3, 3, 5))
    spare = nodes - (nodes // 2 + 1)
    order = rng.sample(range(nodes), nodes)
    away, forgetful = order[:spare], order[spare:][: rng.randint(1, spare)]
    back = rng.uniform(0.3, 0.6)
    found = [Fault(0.05, rng.choice(("kill", "black hole", "cut", "pause")), node, back - 0.05) for node in away]
    for node in forgetful:
        at = rng.uniform(0.2, back + 0.4)
        found.append(Fault(at, rng.choice(sorted(LOSES_DATA)), node, rng.uniform(0.02, 0.1)))
    if rng.random() < 0.4:  # a holder that cannot see that too many nodes have lost its lease
        found.append(Fault(rng.uniform(0.12, 0.2), "stop", 0, 0.9 * ttl))
    first = Job(rng.choice(kinds), "x", 0.1, ttl, 0.0, rng.uniform(0.5, 2) * ttl, renew=rng.random() < 0.5)
    rivals = tuple(
        (Job(rng.choice(kinds), "x", rng.choice((0.0, back)) + rng.uniform(0.05, 0.5), ttl, 2 * ttl, 0.05),)
        for _ in range(rng.randint(1, 3))
    )
    jobs = ((first,), *rivals)
    if rng.random() < 0.5:  # every process has connected to every node before
        jobs = tuple((Job("lock", "before", 0.0, ttl, 0.0, 0.0), *own) for own in jobs)
    faults_ = tuple(sorted(found, key=when))
    return Schedule(seed, nodes, 0.005, rng.choice((0.0, 0.05)), 0.0, jobs, faults_)


def late(seed, kinds=("lock",)):
    """Requests that arrive long after their sender gave up, on connections that were replaced since."""
    rng = Random(seed)
    ttl, nodes = rng.choice((5.0, 60.0)), rng.choice((1, 2, 3, 3, 5))

    def job():
        at = rng.uniform(0.05, 0.4)
        return Job(
            kind=rng.choice(kinds),
            name="x",
            at=at,
            ttl=ttl,
            wait=rng.choice((0.0, 0.3, 3.0)),
            work=rng.choice((0.0, 0.1)),
            cancel_after=rng.uniform(0, 0.5) if rng.random() < 0.5 else None,
        )

    jobs = tuple((job(), job()) for _ in range(rng.randint(1, 2)))
    found = []
    for node in range(nodes):
        if rng.random() < 0.6:
            at, seconds = rng.uniform(0.05, 0.5), rng.uniform(0.05, 2.0)
            what = rng.choice(("hold", "hold replies", "pause", "black hole", "delay"))
            found.append(Fault(at, what, node, seconds))
            if rng.random() < 0.6:  # its connection ends while requests are in transit
                found.append(Fault(at + rng.uniform(0, 1.2) * seconds, rng.choice(("reset", "cut")), node, 0.05))
    faults_ = tuple(sorted(found, key=when))
    slowest = rng.choice((0.01, 1.0, 3.0))
    return Schedule(seed, nodes, slowest, rng.choice((0.0, 0.1, 0.4)), 0.0, jobs, faults_, kills=rng.random() < 0.8)


def reconnects(seed, kinds=("lock",)):
    """Connections that end while they are opened, and processes that are stopped at that moment."""
    rng = Random(seed)
    nodes, ttl = rng.choice((1, 1, 2, 3)), rng.choice((0.5, 5.0))
    jobs = tuple(
        (Job(rng.choice(kinds), "x", 0.1, ttl, rng.choice((0.0, ttl)), rng.uniform(0, 0.5)),) for _ in range(2)
    )
    found = [Fault(0.1 + rng.uniform(0, 0.005), "stop", number, rng.uniform(0.1, 0.6)) for number in range(2)]
    for node in range(nodes):
        found += [
            Fault(0.1 + rng.uniform(0, 0.5), rng.choice(("reset", "reset", "cut", "kill", "restart")), node, 0.05)
            for _ in range(rng.randint(0, 2))
        ]
    return Schedule(seed, nodes, 0.005, rng.choice((0.0, 0.2)), 0.0, jobs, tuple(sorted(found, key=when)))


def first_contact(seed, kinds=("lock",)):
    """Connections that are reset while they are opened, at each step; then a node forgets, which all must notice.

    At most two in a row of each client's attempts are reset, and answered when it asks less: a third time would be a
    proxy that closes the connection on what it does not know.
    """
    rng = Random(seed)
    nodes, ttl = rng.choice((1, 3, 3, 3, 5)), rng.choice((2.0, 6.0))
    order, clients = rng.sample(range(nodes), nodes), rng.randint(2, 3)
    spare, found = nodes // 2, []
    for node, process in product(range(nodes), range(clients)):
        if rng.random() < 0.5:
            arrivals = tuple(rng.choice((0, 1, 1, 2, 3, None, None)) for _ in range(rng.randint(1, 4)))
            found.append(Fault(0.0, "reset connecting", node, 0.0, process, arrivals))
    away = 0.6 + rng.uniform(0, 0.2)
    for node in order[:spare]:
        found.append(Fault(away, rng.choice(("kill", "black hole", "cut")), node, rng.uniform(0.2, 0.5)))
        if rng.random() < 0.3:
            found.append(Fault(away, "reset connecting", node, 0.0, None, (rng.choice((0, 1, 2, 3)), 1)))
    for node in order[spare : 2 * spare]:
        what = rng.choice(("wipe", "wipe", *sorted(LOSES_DATA)))
        found.append(Fault(1.2 + rng.uniform(0, 0.3), what, node, 0.0 if what == "wipe" else 0.05))
    first = Job(rng.choice(kinds), "x", 1.0, ttl, 0.1, rng.uniform(0.5, 1) * ttl, renew=rng.random() < 0.5)
    before = tuple(Job("lock", f"before {number}", 0.0, ttl, 1.0, 0.0) for number in range(clients))
    jobs = [(before[0], first)]
    for own in before[1:]:
        at = 1.5 + rng.uniform(0, 0.5)
        jobs.append((own, Job(rng.choice(kinds), "x", at, ttl, rng.choice((0.0, 2 * ttl)), 0.05)))
    return Schedule(seed, nodes, 0.005, 0.0, 0.0, tuple(jobs), tuple(sorted(found, key=when)))


def asymmetric(seed, kinds=("lock",)):
    """Many short leases by processes that are far from some nodes and whose wall clocks differ widely."""
    rng = Random(seed)
    ttl = rng.choice((1.0, 5.0))

    def job():
        work = rng.choice((0.0, 0.0, 0.01))
        return Job(rng.choice(kinds), "x", rng.uniform(0, 0.3), ttl, 20.0, work, renew=rng.random() < 0.5)

    jobs = tuple(tuple(job() for _ in range(rng.randint(2, 4))) for _ in range(rng.randint(2, 4)))
    return Schedule(seed, rng.choice((3, 4, 5, 5)), rng.choice((0.1, 0.24)), rng.choice((0.3, 0.7)), 3600.0, jobs)


def forced(seed, kinds=("lock",)):
    """Locks that an operator force-releases while they are held and wanted, in a quiet network."""
    rng = Random(seed)
    ttl = rng.choice((1.0, 10.0))
    first = Job(rng.choice(kinds), "x", 0.05, ttl, 0.0, rng.uniform(0.5, 2) * ttl)
    rivals = tuple(
        (Job(rng.choice(kinds), "x", rng.uniform(0, ttl), ttl, 2 * ttl, rng.uniform(0, ttl)),)
        for _ in range(rng.randint(1, 2))
    )
    found = [Fault(rng.uniform(0.1, 1.5 * ttl), "force", 0) for _ in range(rng.randint(1, 3))]
    return Schedule(
        seed, rng.choice((1, 3, 3, 5)), 0.001, 0.0, 0.0, ((first,), *rivals), tuple(sorted(found, key=when))
    )


def forced_from_afar(seed, kinds=("lock", "fair", "write", "read")):
    """The same by an operator whose commands reach the nodes one after another: holders learn of it bit by bit."""
    rng = Random(seed)
    schedule = forced(seed, kinds)
    gap = rng.choice((0.001, 0.003, 0.01, 0.03))
    return replace(schedule, faults=tuple(replace(fault, seconds=gap) for fault in schedule.faults))


def fences(seed, kinds=("lock",)):  # noqa: ARG001 - plain locks only, on purpose
    """A holder whose token is being stored when a connection breaks, and another whose late grant follows immediately.

    Only this can store a token on too few nodes: otherwise requests arrive in order on their connection.
    """
    rng = Random(seed)
    near, far = rng.uniform(0.001, 0.003), rng.uniform(0.03, 0.06)
    found = [Fault(0.0, "lag", node, near, process=0) for node in range(3)]
    found += [
        Fault(0.0, "lag", 0, far, process=1),
        Fault(0.0, "lag", 1, rng.choice((near, 2 * near, far)), process=1),
        Fault(1.5 + rng.uniform(2, 6) * near, "sever", 0, process=0),
    ]
    jobs = tuple(
        (Job("lock", "before", 0.0, 5.0, 0.0, 0.0), Job("lock", "x", at, 5.0, 2.0, 0.0))
        for at in (1.5, 1.5 + rng.uniform(-1, 1) * near)
    )
    return Schedule(seed, 3, 0.001, 0.0, 3600.0, jobs, tuple(found))


FAMILIES.update(
    {
        "one": one,
        "smallest": smallest,
        "mixed": mixed,
        "at expiry": at_expiry,
        "bare majority": bare_majority,
        "late": late,
        "reconnects": reconnects,
        "first contact": first_contact,
        "asymmetric": asymmetric,
        "forced": forced,
        "forced from afar": forced_from_afar,
        "fences": fences,
    }
)
