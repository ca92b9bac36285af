"""Families of schedules for each of the other kinds of lock."""

from dataclasses import replace
from random import Random

from framework.kinds import (
    FAIR_BOUND,
    LATCH_BOUND,
    OF_KINDS,
    SEMAPHORE_BOUND,
    SHARING_BOUND,
    Task,
    calm,
    of_kind,
    strike,
)
from framework.schedules import FAMILIES, Fault
from framework.schedules import faults as any_faults

from families.locks import asymmetric, at_expiry, bare_majority, late, mixed
from redlock_async._kinds.semaphore import LONGEST_WAIT_BEFORE_RESERVATION


def readers_and_writers(seed):
    """A stream of readers, dead readers, downgrades, and all faults."""
    rng = Random(seed)
    return rng.choice(READING)(seed, rng)


def _stream(seed, rng):
    """Overlapping readers without a gap, and a writer that must still get its lock."""
    gap, ttl = rng.uniform(0.2, 0.5), rng.choice((0.5, 2.0))
    number = int(6 / gap)

    def reader(index):
        at, renew, again = index * gap + rng.uniform(0, gap / 2), rng.random() < 0.8, rng.random() < 0.2
        return Task("read", "x", at, ttl, 10.0, gap * rng.uniform(1.0, 2.0), renew=renew, again=again)

    jobs = [tuple(reader(index) for index in range(which, number, 3)) for which in range(3)]
    for _ in range(rng.randint(1, 2)):
        at, patient = rng.uniform(0.3, 4.0), rng.random() < 0.7
        wait = 8.0 if patient else rng.uniform(0.0, 0.4)
        cancel_after = rng.uniform(0.1, 4.5) if rng.random() < 0.2 else None
        jobs.append((Task("write", "x", at, ttl, wait, rng.uniform(0, 0.2), cancel_after=cancel_after),))
    return calm(seed, rng, "readers and writers", jobs, bound=SHARING_BOUND)


def _dead_reader(seed, rng):
    """One reader dies or stops while another continues, and a writer waits for both."""
    ttl = rng.choice((2.0, 4.0))
    dying = Task("read", "x", rng.uniform(0, 0.5), ttl, 5.0, 3 * ttl)
    living = Task("read", "x", rng.uniform(0, 0.5), ttl, 5.0, rng.uniform(1.2, 3) * ttl, renew=rng.random() < 0.7)
    writer = Task("write", "x", rng.uniform(0.5, 2 * ttl), ttl, 8 * ttl, 0.1)
    short = rng.choice((ttl, ttl / 4))
    other = Task(rng.choice(("lock", "read")), "x", rng.uniform(0, 3 * ttl), short, 8 * ttl, 0.1)
    jobs = [(dying,), (living,), (writer,), (other,)]
    seconds = rng.choice((0.0, rng.uniform(0.5, 3) * ttl))
    fault = Fault(rng.uniform(0.6, 0.8 * ttl), "stop" if seconds else "murder", 0, seconds)
    return calm(seed, rng, "readers and writers", jobs, bound=SHARING_BOUND, faults=(fault,))


def _short_readers(seed, rng):
    """One reader with a long lease, others with short ones, and a writer that waits for all."""
    renew = rng.random() < 0.5
    jobs = [(Task("read", "x", rng.uniform(0, 0.5), 4.0, 5.0, rng.uniform(1, 3.5), renew=renew),)]
    for _ in range(rng.randint(1, 2)):
        work = rng.choice((0.0, rng.uniform(0, 0.3)))
        jobs.append((Task("read", "x", rng.uniform(0, 2), 0.3, 5.0, work, renew=rng.random() < 0.5),))
    jobs.append((Task("write", "x", rng.uniform(0.2, 3), 2.0, 20.0, 0.1),))
    schedule = calm(seed, rng, "readers and writers", jobs, bound=SHARING_BOUND)
    return strike(rng, schedule, 1) if rng.random() < 0.3 else schedule


def _downgrades(seed, rng):
    """Writers that downgrade, and contenders that must not get the lock in between."""
    ttl = rng.choice((0.3, 2.0))

    def job():
        work = rng.choice((0.0, 0.0, rng.uniform(0, 0.05)))
        kind = rng.choice(("write", "write", "read", "lock"))
        downgrade = kind == "write" and rng.random() < 0.6
        return Task(kind, "x", rng.uniform(0, 0.1), ttl, 3.0, work, downgrade=downgrade, fencing=rng.random() < 0.9)

    jobs = [tuple(job() for _ in range(rng.randint(1, 3))) for _ in range(rng.randint(2, 4))]
    schedule = calm(seed, rng, "readers and writers", jobs)
    if rng.random() < 0.3:
        return replace(schedule, foreign=tuple(rng.uniform(0, 1) for _ in range(2)))
    if rng.random() < 0.5:
        return schedule
    return replace(schedule, skew=0.0, faults=any_faults(rng, schedule, rng.randint(1, 4)))


def _late_downgrades(seed, rng):
    """A writer downgrades just before its lease expires, and some nodes receive the request only after that."""
    ttl, nodes = 0.3, rng.choice((3, 3, 4, 5))
    first = Task("write", "x", 0.0, ttl, 1.0, rng.uniform(0.85, 0.93) * ttl, renew=False, downgrade=True)
    rivals = [
        (Task(rng.choice(("write", "lock")), "x", rng.uniform(0.05, 0.3), ttl, 3.0, rng.uniform(0, 0.3)),)
        for _ in range(rng.randint(1, 2))
    ]
    lags = tuple(
        Fault(0.2, "lag", node, rng.uniform(0.01, 0.07), process=0)
        for node in rng.sample(range(nodes), rng.randint(1, nodes // 2 + 1))
    )
    schedule = calm(seed, rng, "readers and writers", [(first,), *rivals], faults=lags)
    return replace(schedule, nodes=nodes)


def _sharing_faults(seed, rng):
    """Readers and writers in the schedules of plain locks."""

    def turn(rng, job):
        downgrade, again = rng.random() < 0.3, rng.random() < 0.2
        return replace(job, downgrade=job.kind == "write" and downgrade, again=job.kind == "read" and again)

    family = rng.choice((mixed, at_expiry, bare_majority, bare_majority, late, asymmetric))
    return of_kind("readers and writers", family(seed, ("read", "read", "write", "lock")), turn)


READING = (
    _stream,
    _stream,
    _dead_reader,
    _short_readers,
    _downgrades,
    _late_downgrades,
    _sharing_faults,
    _sharing_faults,
)


def semaphore(seed):
    """More contenders than permits, some with another number of permits, and all faults."""
    rng = Random(seed)
    if rng.random() < 0.3:
        return _changing_permits(seed, rng)
    permits = rng.choice((2, 2, 3, 4))
    if rng.random() < 0.4:
        family = rng.choice((mixed, mixed, at_expiry, bare_majority, late))
        odd = rng.choice((0.0, 0.0, 0.2))

        def turn(rng, job):
            slots = rng.randint(1, permits) if job.kind == "semaphore" and rng.random() < 0.4 else 1
            return replace(job, permits=permits + 1 if rng.random() < odd else permits, slots=slots)

        return of_kind("semaphore", family(seed, ("semaphore",)), turn)
    which = rng.random()
    if which < 0.1:
        return _few_and_many(seed, rng, long=which >= 0.08)
    if which < 0.15:
        return _many_and_few(seed, rng)
    ttl, span, odd = rng.choice((0.5, 2.0)), rng.choice((0.0, 0.3, 2.0)), rng.choice((0.0, 0.0, 0.3))
    several = rng.choice((0.0, 0.3, 0.8))

    def job():
        slots = rng.randint(2, permits) if rng.random() < several else 1
        work, renew = rng.choice((0.0, rng.uniform(0.02, 0.3), rng.uniform(0.3, 1.5))), rng.random() < 0.8
        number = permits + rng.choice((-1, 1)) if rng.random() < odd else permits
        cancel_after = rng.uniform(0, 1) if rng.random() < 0.15 else None
        wait = rng.choice((0.0, 8.0, 8.0, 8.0))
        at = rng.uniform(0, span)
        slots = min(slots, number)
        return Task("semaphore", "x", at, ttl, wait, work, renew, cancel_after, permits=number, slots=slots)

    jobs = [tuple(job() for _ in range(rng.randint(1, 3))) for _ in range(rng.randint(3, 5))]
    schedule = calm(seed, rng, "semaphore", jobs, bound=None if odd else SEMAPHORE_BOUND)
    return strike(rng, schedule, rng.choice((0, 0, 1)))


def _few_and_many(seed, rng, *, long):
    """An endless stream of requests for one slot, and one or two for nearly all slots, which must succeed."""
    permits, gap = rng.choice((2, 3, 4)), rng.uniform(0.1, 0.15) * (LONG if long else 1)
    number = int((20 if long else 6) / gap)

    def small(index):
        return Task("semaphore", "x", index * gap, 2.0, 20.0, gap * rng.uniform(1, 2) * permits, permits=permits)

    jobs = [tuple(small(index) for index in range(which, number, 4)) for which in range(4)]
    for _ in range(rng.randint(1, 2)):
        cancel_after = rng.uniform(0.5, 4) if rng.random() < 0.2 else None
        many = Task("semaphore", "x", rng.uniform(0.3, 1), 2.0, 30.0, 0.1, cancel_after=cancel_after, permits=permits)
        jobs.append((replace(many, slots=rng.randint(2, permits)),))
    return calm(seed, rng, "semaphore", jobs, bound=SEMAPHORE_BOUND, passed=PASSED_LONG if long else PASSED)


def _many_and_few(seed, rng):
    """An endless stream of requests for nearly all slots, and one for the slot that they always leave free."""
    permits, work = rng.choice((3, 4)), rng.uniform(0.5, 3)
    number = int(20 / work)
    many = Task("semaphore", "x", 0.0, 2.0, 60.0, work, permits=permits, slots=permits - 1)
    jobs = [
        tuple(replace(many, at=rng.uniform(0, 0.8) * work * index) for index in range(which, number, 3))
        for which in range(3)
    ]
    few = replace(many, work=rng.uniform(0, 0.5), slots=1)
    jobs.append(tuple(replace(few, at=at) for at in (rng.uniform(3, 9), rng.uniform(9, 16))))
    return calm(seed, rng, "semaphore", jobs, bound=SEMAPHORE_BOUND, held_back=work + HELD_BACK)


HELD_BACK = 2.0
"""Seconds for which a small request may be held back after the holders have released: until all are notified, and again
if another request was faster."""

PASSED = 5.0
"""Seconds for which small requests may overtake a large one, if they hold their slots for at most 1.2 s."""

LONG = 6
"""Factor on the hold times and intervals of small requests: a reservation expires before enough slots are free."""

PASSED_LONG = LONGEST_WAIT_BEFORE_RESERVATION + LONG * 1.2 + 1.5
"""The bound with that factor: the time to the reservation, the holders at that time, and a margin."""

KEEPING = ("pause", "kill", "kill silently", "restart", "reset", "cut", "hold", "hold replies", "black hole", "delay")
"""Faults of a node that keeps its data."""


def _changing_permits(seed, rng):
    """Operators, possibly two at once, change the number while clients with old and new numbers hold slots."""
    ttl, span = rng.choice((0.5, 2.0)), rng.choice((0.3, 2.0))
    before = rng.choice((2, 3, 4))
    numbers = [max(1, before + rng.choice((-2, -1, -1, 1, 2))) for _ in range(rng.choice((1, 1, 2, 3)))]
    odd = rng.choice((0.0, 0.4, 0.7))

    def job():
        permits = rng.choice(numbers) if rng.random() < odd else before
        slots = rng.randint(1, min(permits, before)) if rng.random() < 0.2 else 1
        work, wait = rng.choice((0.0, rng.uniform(0.02, 0.3), rng.uniform(0.3, 1.5))), rng.choice((0.0, 8.0, 8.0))
        return Task(
            "semaphore",
            "x",
            rng.uniform(0, 2 * span + 1),
            ttl,
            wait,
            work,
            rng.random() < 0.8,
            permits=permits,
            slots=slots,
        )

    at = rng.uniform(0.1, 0.1 + span)
    changes = [(at, numbers[0])]
    for permits in numbers[1:]:
        at += rng.choice((0.0, rng.uniform(0, 0.002), rng.uniform(0, span)))
        changes.append((at, permits))
    jobs = [tuple(job() for _ in range(rng.randint(2, 5))) for _ in range(rng.randint(2, 5))]
    schedule = calm(seed, rng, "semaphore", jobs, bound=1000.0, changes=tuple(changes))
    if rng.random() < 0.5:  # an operator far away, so that much can happen between its read and its change
        schedule = replace(schedule, lags=tuple(rng.uniform(0.001, 0.06) for _ in range(schedule.nodes)))
        if rng.random() < 0.5:  # and many requests arrive in between
            begins, lag = changes[0][0], max(schedule.lags)
            rush = [rng.uniform(0, 3.5) * lag for _ in range(before)] + [4 * lag + rng.uniform(0.2, 1)]
            jobs = [(Task("semaphore", "x", begins + at, 2.0, 8.0, 0.8, permits=before),) for at in rush]
            schedule = replace(schedule, jobs=tuple(jobs))
    if rng.random() < 0.4:
        return schedule
    found = []
    if rng.random() < 0.5:  # possibly only a minority receives the change
        begins = changes[0][0] + rng.uniform(0, 0.002) + rng.uniform(0, 4) * max(schedule.lags, default=0.0)
        for node in rng.sample(range(schedule.nodes), schedule.nodes // 2 + 1):
            what = rng.choice(("pause", "hold", "hold replies", "black hole", "cut", "kill"))
            found.append(Fault(begins, what, node, rng.uniform(0.3, 1.5)))
    for _ in range(rng.randint(0 if found else 1, 6)):
        what, at = rng.choice(KEEPING), rng.uniform(0.05, 2 * span)
        seconds = 0.0 if what == "reset" else rng.uniform(0.02, 2.0)
        found.append(Fault(at, what, rng.randrange(schedule.nodes), seconds))
    found.sort(key=lambda fault: fault.at)
    return replace(schedule, tail=rng.choice((0.0, 0.1)), slowest=rng.choice((0.02, 0.3)), faults=tuple(found))


def fair(seed):
    """A queue; waiters that give up, stop or die; and a minority of nodes that is unavailable."""
    rng = Random(seed)
    if rng.random() < 0.25:
        family = rng.choice((mixed, mixed, at_expiry, bare_majority, late))
        return of_kind("fair", family(seed, ("fair", "fair", "fair", "lock")))
    ttl, span = rng.choice((1.0, 4.0)), rng.choice((0.02, 0.5, 2.0))

    def job():
        work, wait = (
            rng.choice((0.0, 0.02, rng.uniform(0.05, 0.4))),
            rng.choice((0.0, rng.uniform(0.1, 1), 30.0, 30.0)),
        )
        cancel_after = rng.uniform(0, 2) if rng.random() < 0.2 else None
        return Task("fair", "x", rng.uniform(0, span), ttl, wait, work, cancel_after=cancel_after)

    jobs = [tuple(job() for _ in range(rng.randint(1, 4))) for _ in range(rng.randint(2, 4))]
    schedule = calm(seed, rng, "fair", jobs, ordered=True, bound=FAIR_BOUND)
    if rng.random() < 0.5:
        return strike(rng, schedule, rng.choice((0, 1, 1, 2)), longest=3.0)
    away = rng.sample(range(schedule.nodes), schedule.nodes - schedule.nodes // 2 - 1)
    found = []
    for node in away:
        for _ in range(rng.randint(0, 2)):
            what = rng.choice(
                ("pause", "kill", "kill silently", "restart", "reset", "cut", "black hole", "hold replies")
            )
            at, seconds = rng.uniform(0.05, 0.1 + span), rng.uniform(0.05, 3.0)
            found.append(Fault(at, what, node, 0.0 if what == "reset" else seconds))
    found.sort(key=lambda fault: fault.at)
    return replace(schedule, bound=None, tail=rng.choice((0.0, 0.05)), slowest=0.1, faults=tuple(found))


def latch(seed):
    """Events counted by several processes, some twice, some only partly; and processes that read and wait."""
    rng = Random(seed)
    if rng.random() < 0.25:
        return _seen_by_halves(seed, rng)
    count, span = rng.choice((1, 2, 3, 5)), rng.choice((0.02, 0.3, 3.0))

    def job():
        kind = rng.choice(("count", "count", "remaining", "remaining", "wait"))
        wait = rng.choice((0.0, 0.0, 20.0)) if kind == "wait" else 10.0
        event = f"event {rng.randrange(count + 1)}" if kind == "count" else ""
        cancel_after = rng.choice((rng.uniform(0, 0.003), rng.uniform(0, 0.5))) if rng.random() < 0.2 else None
        return Task(kind, "x", rng.uniform(0, span), 1.0, wait, 0.0, cancel_after=cancel_after, event=event)

    jobs = [tuple(job() for _ in range(rng.randint(2, 6))) for _ in range(rng.randint(2, 4))]
    schedule = calm(seed, rng, "latch", jobs, count=count, bound=LATCH_BOUND)
    what = rng.choice(("nothing", "delays", "faults", "losses"))
    if what == "nothing":
        return schedule
    schedule = replace(schedule, bound=None, tail=rng.choice((0.0, 0.1, 0.4)), slowest=rng.choice((0.02, 0.2, 1.0)))
    if what == "delays":
        return schedule
    if what == "faults":
        found = any_faults(rng, schedule, rng.randint(1, 6))
        return replace(schedule, faults=tuple(fault for fault in found if fault.what not in {"wipe", "restart empty"}))
    # The nodes that lose their data are the only ones that fail, so all others have all events.
    losing = rng.sample(range(schedule.nodes), schedule.nodes - schedule.nodes // 2 - 1)
    found = [
        Fault(rng.uniform(0.05, 0.1 + span), what, node, 0.0 if what == "wipe" else rng.uniform(0.02, 1.0))
        for node in losing
        for what in rng.sample(("wipe", "restart empty"), rng.randint(1, 2))
    ]
    found.sort(key=lambda fault: fault.at)
    return replace(schedule, lossless=False, faults=tuple(found))


def _seen_by_halves(seed, rng):
    """A count reaches one node long before the others; some readers are near, some far away."""
    count, nodes, far = rng.choice((1, 2, 3)), rng.choice((3, 3, 4, 5)), rng.uniform(0.01, 0.1)
    near = rng.randrange(nodes)

    def looks(number):
        times = (0.0, *(rng.uniform(0.1, 0.6) for _ in range(number)))
        return tuple(Task("remaining", "x", at, 1.0, 10.0, 0.0) for at in times)

    counting = tuple(
        Task("count", "x", rng.uniform(0.1, 0.4), 1.0, 10.0, 0.0, cancel_after=0.01, event=f"event {number}")
        for number in range(count)
    )
    lags = [Fault(0.05, "lag", node, 1.0, process=0) for node in range(nodes) if node != near]
    lags += [Fault(0.05, "lag", node, far, process=1) for node in rng.sample(range(nodes), nodes // 2 + 1)]
    jobs = [(*looks(0), *counting), looks(4), looks(12)]
    schedule = calm(seed, rng, "latch", jobs, count=count, faults=tuple(lags))
    return replace(schedule, nodes=nodes)


def two_writers(seed):
    """A reader ends, and two writers that wait for it split the votes, while more readers wait."""
    rng = Random(seed)
    end = rng.uniform(0.4, 0.7)
    jobs = [(Task("read", "x", 0.1, 2.0, 1.0, end),)]
    jobs += [(Task("write", "x", rng.uniform(0.2, end), 2.0, 8.0, rng.uniform(0, 0.1)),) for _ in range(2)]
    for _ in range(rng.randint(2, 4)):
        starts = [end + rng.uniform(0, 0.12) for _ in range(2)]
        jobs.append(tuple(Task("read", "x", at, 2.0, 10.0, rng.uniform(1.1, 1.6)) for at in starts))
    schedule = calm(seed, rng, "readers and writers", jobs, bound=SHARING_BOUND)
    return replace(schedule, nodes=rng.choice((2, 2, 4)))


OF_KINDS.update(
    {
        "readers and writers": readers_and_writers,
        "two writers": two_writers,
        "semaphore": semaphore,
        "fair": fair,
        "latch": latch,
    }
)
FAMILIES.update(OF_KINDS)
