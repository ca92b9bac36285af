"""Families about which nodes may vote: nodes that forget, and clients that know only a part of the others."""

from math import inf
from random import Random

from framework.schedules import FAMILIES, LOSES_DATA, LOSES_WRITES, Fault, Job, Schedule, when


def votes(seed, kinds=("lock",)):
    """A lease with a long ttl, nodes that forget it, and clients with short ttls that may not hear from every node."""
    rng = Random(seed)
    if rng.random() < 0.6:
        return rng.choice(SPECIAL)(seed, rng)
    nodes = rng.choice((3, 3, 3, 5))
    ttl, short = rng.choice(((1.0, 0.3), (2.0, 0.5), (6.0, 1.0)))
    order, contenders = rng.sample(range(nodes), nodes), range(1, rng.randint(2, 4))
    end, fresh = rng.uniform(0.5, 1.5), rng.random() < 0.3  # fresh: nothing was ever locked before
    found = [*_forgetting(rng, order, end, short, fresh=fresh), *_deafness(rng, order, end, ttl, contenders)]
    holder = [Job(rng.choice(kinds), "x", 0.4, ttl, 0.2, rng.uniform(0.5, 1.5) * ttl, renew=rng.random() < 0.5)]
    if not fresh:
        holder.insert(0, Job("lock", "before", 0.0, rng.choice((short, ttl)), 1.0, 0.0))
    jobs = [tuple(holder)]
    for _ in contenders:
        starts = [
            end + rng.uniform(0, 0.3) + rng.choice((0.0, 1.1 * short, 0.3 * ttl)) for _ in range(rng.randint(1, 2))
        ]
        own = [Job(rng.choice(kinds), "x", at, short, 2 * ttl, 0.05) for at in starts]
        if rng.random() < 0.5:
            own.insert(0, Job("lock", "other", rng.uniform(0, 0.1), rng.choice((short, short, 2 * ttl)), 1.0, 0.0))
        jobs.append(tuple(own))
    return Schedule(seed, nodes, 0.005, rng.choice((0.0, 0.05)), 0.0, tuple(jobs), tuple(sorted(found, key=when)))


def _partition(seed, rng):
    """Some nodes never heard of the long ttl, as many forget it, and only the holder can reach the last one."""
    nodes, (ttl, short) = rng.choice((3, 3, 5)), rng.choice(((2.0, 0.4), (6.0, 1.0)))
    knows, *others = rng.sample(range(nodes), nodes)
    never, forgetful = others[: nodes // 2], others[nodes // 2 :]
    end = rng.uniform(0.6, 0.9)
    stale = rng.random() < 0.4  # the rival saw the last one only before the cluster was founded
    faults = [Fault(0.1 if stale else 0.35, "black hole", knows, 2 * ttl, 1)]
    for node in never:
        faults += [Fault(0.3, "kill", node, 0.2), Fault(0.55, "black hole", node, 2 * ttl, 0)]
    for node in forgetful:
        what = rng.choice(sorted(LOSES_DATA))
        faults.append(Fault(end, what, node, 0.0 if what == "wipe" or rng.random() < 0.3 else 0.03))
        faults.append(Fault(end + rng.choice((-0.005, -0.005, 0.05)), "black hole", node, 2 * ttl, 0))
    before = Job("lock", "before", 0.15 if stale else 0.0, short, 1.0, 0.0)
    holder = (before, Job("lock", "x", 0.4, ttl, 0.2, ttl, renew=False))
    rivals = [Job("lock", "x", end + rng.uniform(1.05, 2) * max(short, 1.0), short, ttl, 0.05)]
    if stale:
        rivals.insert(0, Job("look", "x", 0.0, short, 0.0, 0.0))
    elif rng.random() < 0.8:
        rivals.insert(0, Job("lock", "other", 0.1, short, 1.0, 0.0))
    return Schedule(seed, nodes, 0.005, 0.0, 0.0, (holder, tuple(rivals)), tuple(sorted(faults, key=when)))


def _halves(seed, rng):
    """A new cluster of which one node starts late; another one forgets, and a new client hears only from these two."""
    ttl = rng.choice((1.0, 3.0))
    late, knows, forgets = rng.sample(range(3), 3)
    end = 0.05 + 1.02 * ttl + rng.uniform(0.1, 0.4)  # the holder has waited for one ttl
    faults = [
        Fault(0.0, "kill", late, end - 0.1),
        Fault(0.0, "black hole", knows, 4 * ttl, 1),
        Fault(end, "restart empty", forgets, 0.03),
    ]
    if rng.random() < 0.7:  # the holder tells nobody else of its ttl
        faults += [Fault(end - 0.15, "black hole", node, 4 * ttl, 0) for node in (late, forgets)]
    first = (Job("lock", "x", 0.05, ttl, 2 * ttl, ttl, renew=rng.random() < 0.5),)
    second = (Job("lock", "x", end + rng.uniform(0.1, 0.5), ttl, 2 * ttl, 0.05),)
    return Schedule(seed, 3, 0.005, 0.0, 0.0, (first, second), tuple(sorted(faults, key=when)))


def _stale_look(seed, rng):
    """A client has looked at an unused cluster and is then cut off from a node that begins to vote; another forgets."""
    ttl = rng.choice((1.0, 2.0))
    unheard, knows, forgets = rng.sample(range(3), 3)
    end = 0.2 + 1.02 * ttl + rng.uniform(0.1, 0.3)  # the holder has waited for one ttl
    faults = (
        Fault(rng.choice((0.12, 0.5)), "black hole", knows, 4 * ttl, 1),
        Fault(0.12, "black hole", unheard, 4 * ttl, 0),
        Fault(end, rng.choice(sorted(LOSES_DATA)), forgets, 0.0 if rng.random() < 0.3 else 0.02),
    )
    first = (Job("look", "x", 0.0, ttl, 0.0, 0.0), Job("lock", "x", 0.15, ttl, 2 * ttl, ttl, renew=rng.random() < 0.5))
    second = (Job("look", "x", 0.0, ttl, 0.0, 0.0), Job("lock", "x", end + rng.uniform(0.02, 0.3), ttl, ttl, 0.05))
    return Schedule(seed, 3, 0.005, 0.0, 0.0, (first, second), faults)


def _stale_new(seed, rng):
    """A client last heard of a node before that voted for the first time. Then another node forgets a lease of both.

    The third node votes by then, but never heard of the lease. It was down at first: so the others waited for a ttl.
    """
    ttl = rng.choice((4.0, 6.0))
    late, knows, forgets = rng.sample(range(3), 3)
    end = 3.6 + rng.uniform(0.1, 0.3)
    faults = (
        Fault(0.0, "kill", late, rng.uniform(1.1, 1.3)),
        Fault(0.5, "black hole", knows, 4 * ttl, 1),
        Fault(3.2, "black hole", late, 4 * ttl, 0),
        Fault(end - 0.005, "black hole", forgets, 4 * ttl, 0),
        Fault(end, rng.choice(sorted(LOSES_DATA)), forgets, 0.02),
    )
    holder = (Job("lock", "before", 0.0, 1.0, 2.0, 0.0), Job("lock", "x", 3.3, ttl, 0.2, ttl, renew=False))
    rival = [Job("lock", "other", at, 1.0, 2.0, 0.0) for at in (0.1, 2.8)]
    rival.append(Job("lock", "x", end + rng.uniform(0.1, 1.3), 1.0, ttl, 0.05))
    return Schedule(seed, 3, 0.005, 0.0, 0.0, (holder, tuple(rival)), faults)


def _failover(seed, rng):
    """A replica is promoted, and the old primary goes on serving a client that is connected to it.

    Later that client takes a lease there and on one more node. Others hear only from the replica and the third node.
    """
    ttl, lasts = rng.choice((1.0, 2.0)), rng.uniform(6.0, 9.0)
    moved, first, second = rng.sample(range(3), 3)
    at = rng.uniform(2.5, lasts)
    faults = [
        Fault(0.8, "copy data", moved),
        Fault(1.0, "fail over", moved, lasts),
        Fault(at - 0.1, "black hole", second, 2 * ttl, 0),
        Fault(at + 0.1, "black hole", first, 2 * ttl, 1),
    ]
    holder = [Job("lock", "before", 0.0, ttl, 1.0, 0.0), Job("lock", "x", at, ttl, 0.2, 0.9 * ttl, renew=False)]
    rival = [Job("lock", "x", at + rng.uniform(0.15, 0.8) * ttl, ttl, ttl, 0.05)]
    if rng.random() < 0.5:  # it was connected to the old primary too
        rival.insert(0, Job("lock", "other", 0.1, ttl, 1.0, 0.0))
        faults.append(Fault(1.1, "sever", moved, process=1))
    else:
        rival.insert(0, Job("lock", "other", 1.2, ttl, 1.0, 0.0))
    jobs = (tuple(holder), tuple(rival))
    return Schedule(seed, 3, 0.005, 0.0, 0.0, jobs, tuple(sorted(faults, key=when)))


def _old_registers(seed, rng):
    """A node is replaced by an old copy of itself. It and a node that was away know only the tokens of before.

    Clients whose clocks are behind depend on the registers.
    """
    ttl, end = 1.0, rng.uniform(1.4, 1.6)
    again = end + rng.uniform(12.0, 13.0)
    returns, knows, away = rng.sample(range(3), 3)
    faults = (
        Fault(0.3, "copy data", returns),
        Fault(0.35, "cut", away, 0.9),
        Fault(end, rng.choice(sorted(LOSES_WRITES)), returns, 0.05),
        Fault(again - 0.2, "black hole", knows, 3.0),
    )
    jobs = [Job("lock", "x", at, ttl, 1.0, 0.0) for at in (0.0, 0.1, 0.5, 0.6, 0.7, again)]
    jobs.append(Job("lock", "another", end + 0.3, ttl, 1.0, 0.0))
    return Schedule(seed, 3, 0.005, 0.0, 0.0, (tuple(jobs),), faults, clients_skew=rng.choice((1.5, 3600.0)))


def _longer_ttl(seed, rng):
    """All nodes but one restart empty, one after the other, and all vote again when a client comes with a long ttl."""
    nodes = rng.choice((3, 5))
    order = rng.sample(range(nodes), nodes)[1:]
    ends = [0.5 + 3.0 * number for number in range(len(order))]
    faults = tuple(Fault(at, "restart empty", node, 0.05) for at, node in zip(ends, order, strict=True))
    settled = ends[-1] + 3.0
    first = (Job("lock", "before", 0.0, 1.0, 1.0, 0.0), Job("lock", "x", settled, 20.0, 0.0, 0.0))
    others = (Job("lock", "y", settled + rng.uniform(0.1, 0.5), rng.choice((1.0, 20.0)), 0.0, 0.0),)
    return Schedule(seed, nodes, 0.005, 0.0, 0.0, (first, others), faults, settled=settled)


def _majority_is_new(seed, rng):
    """More nodes are new than may fail: they have lost their data together, or one of a new cluster is down."""
    first = [Job("lock", "before", 0.0, 1.0, 3.0, 0.0)]
    if rng.random() < 0.5:
        faults, settled = [Fault(0.0, "kill", rng.randrange(3), 8.0)], 0.0
    else:
        faults, settled = [Fault(0.5, "restart empty", node, 0.05) for node in rng.sample(range(3), 2)], 3.0
    jobs = [Job("lock", "x", settled + rng.uniform(0, 0.5), 1.0, 3.0, 0.0) for _ in range(2)]
    return Schedule(seed, 3, 0.005, 0.0, 0.0, ((*first, jobs[0]), (jobs[1],)), tuple(faults), settled=settled)


def copied_data(seed, kinds=("lock",)):
    """The data of a node is replaced by a copy of another node's, or two nodes exchange their addresses."""
    rng = Random(seed)
    if rng.random() < 0.3:
        return _exchange(seed, rng, kinds)
    nodes, ttl = rng.choice((3, 3, 5)), rng.choice((1.0, 2.0))
    target = rng.randrange(nodes)
    original = (target + 1) % nodes
    end = rng.uniform(0.6, 0.9)
    spare = [node for node in range(nodes) if node not in {target, original}][: nodes // 2]
    faults = [Fault(0.3, "black hole", original, 2 * ttl, 0), Fault(end, "clone", target)]
    faults += [Fault(0.3, "black hole", node, 2 * ttl, 0) for node in spare[: nodes // 2 - 1]]
    # The rival hears from the copy, and from all that have not granted the lease or from the others.
    unheard = rng.choice((spare[nodes // 2 - 1 :], [original], []))
    at = end + rng.choice((-0.4, 0.01))
    faults += [Fault(at, "black hole", node, 2 * ttl, 1) for node in unheard]
    holder = (
        Job("lock", "before", 0.0, ttl, 1.0, 0.0),
        Job(rng.choice(kinds), "x", 0.4, ttl, 0.2, ttl, renew=rng.random() < 0.5),
    )
    rival = [Job(rng.choice(kinds), "x", end + rng.uniform(0.02, 0.3), ttl, 2 * ttl, 0.05)]
    if rng.random() < 0.5:
        rival.insert(0, Job("lock", "other", 0.05, ttl, 1.0, 0.0))
    settled = end + 3 * ttl + 1.0
    if rng.random() < 0.5:  # later, the vote of the copy is needed
        faults += [Fault(settled - 0.3, "kill", node, 3.0) for node in spare]
        rival.append(Job(rng.choice(kinds), "x", settled + rng.uniform(0, 0.5), ttl, 1.0, 0.0))
    else:
        settled = inf
    jobs = (holder, tuple(rival))
    return Schedule(seed, nodes, 0.005, 0.0, 0.0, jobs, tuple(sorted(faults, key=when)), settled=settled)


def _exchange(seed, rng, kinds):
    """Two nodes exchange their addresses. Later one of them is down, and new clients come."""
    nodes, ttl = rng.choice((3, 3, 5)), 1.0
    one, end = rng.randrange(nodes), rng.uniform(0.3, 0.8)
    other = (one + 1) % nodes
    settled = end + 3.0
    faults = [Fault(end, "exchange", one), Fault(settled - 0.3, "kill", rng.choice((one, other)), 3.0)]
    rest = [node for node in range(nodes) if node not in {one, other}]
    faults += [Fault(settled - 0.3, "kill", node, 3.0) for node in rest[: nodes // 2 - 1]]
    holder = (
        Job("lock", "before", 0.0, ttl, 1.0, 0.0),
        Job(rng.choice(kinds), "x", 0.2, ttl, 0.2, rng.choice((0.5, 2.0))),
        Job("lock", "y", settled, ttl, 1.0, 0.0),
    )
    late = (Job(rng.choice(kinds), "x", settled + rng.uniform(0, 0.5), ttl, 2.0, 0.0),)
    return Schedule(seed, nodes, 0.005, 0.0, 0.0, (holder, late), tuple(faults), settled=settled)


def _strict(seed, rng):
    """Most or all nodes lose their data at once, and the clients use `strict_restart=True`."""
    ttl, nodes = 1.0, rng.choice((1, 3, 5))
    order, end = rng.sample(range(nodes), nodes), rng.uniform(1.5, 1.8)
    faults = []
    for node in order[: rng.randint(nodes // 2 + 1, nodes)]:
        what = rng.choice(sorted(LOSES_DATA))
        faults.append(Fault(end, what, node, 0.0 if what == "wipe" else rng.uniform(0.02, 0.1)))
    holder = (Job("lock", "x", 1.3, ttl, 0.2, 2 * ttl, renew=rng.random() < 0.5),)
    if rng.random() < 0.5:  # it does not hear of the loss
        faults.append(Fault(end - 0.01, "stop", 0, ttl))
    rivals = [
        (Job("look", "x", 0.0, ttl, 0.0, 0.0), Job("lock", "x", end + rng.uniform(0, 0.5), ttl, 2 * ttl, 0.05))
        for _ in range(rng.randint(1, 2))
    ]
    jobs = ((Job("lock", "before", 0.0, ttl, 2.0, 0.0), *holder), *rivals)
    return Schedule(seed, nodes, 0.005, 0.0, 0.0, jobs, tuple(sorted(faults, key=when)), strict=True)


def _only_looks(seed, rng):
    """Nobody takes a lock."""
    nodes = rng.choice((1, 3, 5))
    faults = [Fault(rng.uniform(0, 1), rng.choice(("reset", "restart", "wipe")), rng.randrange(nodes), 0.0)]
    jobs = tuple(tuple(Job("look", "x", rng.uniform(0, 2), 1.0, 0.0, 0.0) for _ in range(2)) for _ in range(2))
    return Schedule(seed, nodes, 0.005, 0.0, 0.0, jobs, tuple(faults))


SPECIAL = (
    _partition, _halves, _stale_look, _stale_new, _failover, _old_registers, _longer_ttl, _majority_is_new, _strict,
    _only_looks,
)  # fmt: skip


def _forgetting(rng, order, end, short, *, fresh):
    """Some nodes are away when the holder acquires, and some of those that grant it forget it afterwards."""
    spare = (len(order) - 1) // 2
    for node in order[:spare]:
        if rng.random() < 0.8:
            lost = rng.choice(("kill", "restart", "cut", "pause", "black hole"))
            process = 0 if lost == "black hole" and rng.random() < 0.5 else None
            yield Fault(0.3, lost, node, rng.choice((rng.uniform(0.2, 0.6), 3 * short)), process)
    for node in order[spare:][: rng.randint(1, spare)]:
        what = rng.choice((*sorted(LOSES_DATA), *sorted(LOSES_WRITES)))
        if what in LOSES_WRITES and (not fresh or rng.random() < 0.5):
            yield Fault(rng.choice((0.05, 0.2, 0.38)), "copy data", node, 0.0)
        yield Fault(end, what, node, 0.0 if what == "wipe" else rng.uniform(0.02, 0.1))


def _deafness(rng, order, end, ttl, contenders):
    """Contenders do not hear from some of the nodes that know, or only later."""
    spare = (len(order) - 1) // 2
    for process in contenders:
        for node in order[spare:] if rng.random() < 0.6 else order:
            if rng.random() < 0.4:
                if rng.random() < 0.4:
                    yield Fault(rng.choice((0.0, end)), "lag", node, rng.uniform(0.01, 0.1), process)
                else:
                    yield Fault(rng.uniform(0.35, end), "black hole", node, rng.uniform(0.5, 1.5) * ttl, process)


FAMILIES["votes"] = votes
FAMILIES["copied data"] = copied_data
