"""A family about the nodes' wall clocks: stepped, set back and forth, frozen, slewed; for clients old and new."""

from random import Random

from framework.schedules import FAMILIES, Fault, Job, Schedule, when

NOT_STEPS = ("pause", "cut", "reset", "hold", "hold replies", "restart", "delay")
"""Faults of a node that must not be taken for a step of its clock."""


def clocks(seed, kinds=("lock",)):
    """One of them."""
    rng = Random(seed)
    return rng.choice(SPECIAL)(seed, rng, kinds)


def _size(rng):
    """Nodes in random order, how many of them may be stepped, and two ttls."""
    nodes = rng.choice((3, 3, 5))
    return rng.sample(range(nodes), nodes), nodes // 2, *rng.choice(((1.0, 0.3), (2.0, 0.5), (6.0, 1.0)))


def _step(rng, ttl):
    """By how many seconds a clock is stepped, forward or back."""
    return rng.choice((0.3 * ttl, rng.uniform(0.3, 1.2) * ttl, 60.0, 86_400.0)) * rng.choice((1, 1, -1))


def _away(rng, node, ttl, process=None):
    """A node is away when the lease is acquired, so that a bare majority grants it."""
    what = rng.choice(("black hole", "cut", "kill")) if process is None else "black hole"
    return Fault(0.3, what, node, rng.choice((rng.uniform(0.2, 0.4), 2 * ttl)), process)


def _rivals(rng, ttl, short, end, kinds):
    """Clients that were connected before the step, and clients that come later."""
    for _ in range(rng.randint(1, 2)):
        starts = [end + rng.uniform(0, 0.6) * ttl * rng.choice((0.1, 1.0)) for _ in range(rng.randint(1, 3))]
        fencing = rng.random() < 0.7
        own = [Job(rng.choice(kinds), "x", at, short, 2 * ttl, 0.05, fencing=fencing) for at in sorted(starts)]
        if rng.random() < 0.5:
            own.insert(0, Job("lock", "other", rng.uniform(0, 0.25), short, 1.0, 0.0))
        yield tuple(own)


def _schedule(seed, rng, order, jobs, found, **more):
    slow = rng.choice((0.0, 0.0, 0.05))
    return Schedule(
        seed, len(order), 0.005, slow, rng.choice((0.0, 3600.0)), tuple(jobs), tuple(sorted(found, key=when)), **more
    )


def _stepped(seed, rng, kinds):
    """Nodes that granted a lease are stepped, perhaps back again; clients that know the others only cannot tell."""
    order, spare, ttl, short = _size(rng)
    end = rng.uniform(0.45, 0.9)
    found = [_away(rng, node, ttl, rng.choice((None, 0))) for node in order[:spare] if rng.random() < 0.8]
    by = _step(rng, ttl)
    kind = rng.choice(kinds)
    for node in order[spare:][: rng.randint(1, spare)]:
        again = rng.choice((0.0, 0.0, rng.uniform(0.05, ttl)))
        if by > 0 and kind == "read":
            again = 0.0  # a reader is not told that its lease ended early
        found.append(Fault(end + rng.choice((0.0, rng.uniform(0, 0.1))), "step", node, again, by=by))
        by = rng.choice((by, _step(rng, ttl)))
    work = rng.uniform(0.5, 1.5) * ttl
    holder = [Job(kind, "x", 0.4, ttl, 0.2, work, renew=rng.random() < 0.5, fencing=rng.random() < 0.7)]
    if rng.random() < 0.7:
        holder.insert(0, Job("lock", "before", 0.0, short, 1.0, 0.0))
    return _schedule(seed, rng, order, (tuple(holder), *_rivals(rng, ttl, short, end, kinds)), found)


def _back_and_forth(seed, rng, kinds):
    """Clocks are set back before the lease is acquired or renewed, and right again after that.

    Rivals read them before and afterwards only.
    """
    order, spare, ttl, short = _size(rng)
    renews = rng.random() < 0.5
    back = 0.3 if not renews else 0.45
    right = back + (0.2 if not renews else rng.uniform(0.75, 1.5) * ttl)
    found = [_away(rng, node, ttl, 0) for node in order[:spare]]
    by = -rng.choice((1.2 * ttl, 60.0, 86_400.0))
    found += [Fault(back, "step", node, right - back, by=by) for node in order[spare:][: rng.randint(1, spare)]]
    holder = [Job("lock", "x", 0.4, ttl, 0.2, right + ttl, renew=renews)]
    if rng.random() < 0.5:
        holder.insert(0, Job("lock", "before", 0.0, short, 1.0, 0.0))
    rival = [Job("lock", "other", 0.15, short, 1.0, 0.0)]
    rival += [Job(rng.choice(kinds), "x", right + at, short, ttl, 0.05) for at in (0.02, rng.uniform(0, 0.5) * ttl)]
    return _schedule(seed, rng, order, (tuple(holder), tuple(rival)), found)


def _partition(seed, rng, kinds):
    """The rival reaches only nodes that do not know the lease, and one that was stepped."""
    order, spare, ttl, short = _size(rng)
    common, known, unknown = order[0], order[1 : spare + 1], order[spare + 1 :]
    end = rng.uniform(0.5, 0.8)
    found = [Fault(0.3, "black hole", node, 2 * ttl, 0) for node in unknown]
    found += [Fault(end, "black hole", node, 2 * ttl, 1) for node in known]
    found.append(Fault(end, "step", common, by=rng.choice((1.2 * ttl, 60.0, 86_400.0))))
    holder = (
        Job("lock", "before", 0.0, short, 1.0, 0.0),
        Job("lock", "x", 0.4, ttl, 0.2, ttl, renew=rng.random() < 0.5),
    )
    rival = [Job(rng.choice(kinds), "x", end + rng.uniform(0.01, 0.7) * ttl, short, ttl, 0.05)]
    if rng.random() < 0.5:
        rival.insert(0, Job("lock", "other", 0.1, short, 1.0, 0.0))
    return _schedule(seed, rng, order, (holder, tuple(rival)), found)


def _frozen(seed, rng, kinds):
    """Clocks stand still while a lease is acquired or renewed, and then show the right time again."""
    order, spare, ttl, short = _size(rng)
    begin, lasts = rng.choice((0.1, 0.35, 0.5)), rng.uniform(0.5, 2.0) * ttl
    found = [_away(rng, node, ttl, 0) for node in order[:spare] if rng.random() < 0.8]
    catches_up = rng.choice((0.0, 1.0, 1.0))
    found += [Fault(begin, "freeze", node, lasts, by=catches_up) for node in order[spare:][: rng.randint(1, spare)]]
    holder = (Job("lock", "before", 0.0, short, 1.0, 0.0), Job("lock", "x", 0.4, ttl, 0.2, begin + lasts + ttl))
    return _schedule(seed, rng, order, (holder, *_rivals(rng, ttl, short, begin + lasts, kinds)), found)


def _no_step(seed, rng, kinds):
    """Clocks are slewed in different directions, and nodes, network and processes fail in other ways."""
    order, _, ttl, _ = _size(rng)
    span = rng.choice((2 * ttl, 20.0, 300.0))
    found = [
        Fault(rng.uniform(0, 1), "slew", node, rng.uniform(0.5, 1.0) * span, by=rng.choice((-0.0049, 0.0049)))
        for node in order
    ]
    found += [
        Fault(rng.uniform(0, span), rng.choice(NOT_STEPS), rng.choice(order), rng.uniform(0.01, 2 * ttl))
        for _ in range(rng.choice((0, 0, 2, 5)))
    ]
    found += [
        Fault(rng.uniform(0, span), "stop", rng.randrange(2), rng.uniform(0.01, 5 * ttl))
        for _ in range(rng.choice((0, 0, 2)))
    ]
    jobs = [
        tuple(
            Job(
                rng.choice(kinds),
                rng.choice("xyz"),
                rng.uniform(0, span),
                ttl,
                2 * ttl,
                rng.choice((0.0, 0.5 * ttl)),
                fencing=rng.random() < 0.7,
            )
            for _ in range(rng.randint(1, 6))
        )
        for _ in range(2)
    ]
    settled = 0.0 if all(fault.what == "slew" for fault in found) else float("inf")
    return _schedule(seed, rng, order, jobs, found, settled=settled)


def _votes_again(seed, rng, kinds):
    """Stepped nodes vote again, and the others may fail then."""
    order, spare, ttl, short = _size(rng)
    by = _step(rng, ttl)
    found = [Fault(1.0, "step", node, by=by) for node in order[:spare]]
    over = 1.4 + 1.02 * max(ttl, 1.0)
    found += [Fault(over, "cut", node, 3 * ttl) for node in order[spare + 1 :]]
    busy = [Job("lock", "before", at, ttl, 1.0, 0.0) for at in (0.0, 0.5, 1.1, 1.2)]
    late = [Job(rng.choice(kinds), "x", over + rng.uniform(0.1, ttl), short, 1.0, 0.0) for _ in range(2)]
    jobs = ((*busy, late[0]), (late[1],) if rng.random() < 0.5 else (Job("lock", "y", 0.2, short, 1.0, 0.0), late[1]))
    return _schedule(seed, rng, order, jobs, found, settled=over)


def _all_are_set(seed, rng, kinds):
    """More clocks are set than may be, or one is set while another node is down: locks are available after a ttl."""
    order, spare, ttl, short = _size(rng)
    if rng.random() < 0.5:
        found = [Fault(1.0, "step", node, by=_step(rng, 4.0)) for node in order]
    else:
        found = [Fault(1.0, "step", node, by=_step(rng, 4.0)) for node in order[:spare]]
        found += [Fault(0.8, "kill", node, 20.0) for node in order[spare + 1 :]]
    jobs = [
        (Job("lock", "before", 0.0, ttl, 1.0, 0.0), Job(rng.choice(kinds), "x", 1.5 + ttl, short, 8.0 + 2 * ttl, 0.0))
    ]
    jobs.append((Job("lock", "x", 1.5 + ttl + rng.uniform(0, 1), short, 8.0 + 2 * ttl, 0.0),))
    return _schedule(seed, rng, order, jobs, found, settled=1.1)


SPECIAL = (
    _stepped, _stepped, _stepped, _back_and_forth, _partition, _frozen, _no_step, _votes_again, _all_are_set,
)  # fmt: skip

FAMILIES["clocks"] = clocks


def with_steps(schedule):
    """Add steps of clocks to a schedule without loss of data, in one of four cases."""
    rng = Random(schedule.seed ^ 0x5747)
    spare = schedule.nodes - (schedule.nodes // 2 + 1)
    if not spare or rng.random() > 0.25:
        return ()
    span = max(job.at + job.work for jobs in schedule.jobs for job in jobs) + 0.2
    return tuple(
        Fault(
            rng.uniform(0.02, span),
            "step",
            node,
            rng.choice((0.0, rng.uniform(0, span))),
            by=_step(rng, schedule.longest_ttl),
        )
        for node in rng.sample(range(schedule.nodes), rng.randint(1, spare))
    )
