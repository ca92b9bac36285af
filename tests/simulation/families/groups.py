"""A family in which many tasks of a process acquire and release in the same moment, so that commands are shared."""

from dataclasses import dataclass, fields, replace
from random import Random

from framework.kinds import OF_KINDS, RUNS, KindRun, KindSchedule, Task
from framework.schedules import FAMILIES, SETTLING, Fault, when

from redlock_async import LockTimeout, QuorumUnavailable, RedlockError, WrongKeyType
from redlock_async._rules.keys import Keys
from redlock_async.testing import Violation

BAD = "bad"
"""The name that cannot be locked in some of the schedules."""

BOUND = 1.0
"""Seconds within which a free lock is acquired, whatever happens to others of its group."""

MEANWHILE = (
    "forget scripts", "forget scripts", "reset", "cut", "hold", "hold replies", "pause", "kill", "restart",
    "out of memory", "delay",
)  # fmt: skip
"""What happens to nodes while a group is under way."""


@dataclass(frozen=True)
class GroupSchedule(KindSchedule):
    """Jobs that begin together, and a name that no node grants."""

    spoilt: str = ""
    """What is wrong with the bad name: its `lock` or `register` has another type, the register is no number (`text`),
    or no client may use it (`denied`)."""


class Grouped(KindRun):
    """Checks that what is wrong with one name is no other's error."""

    def __init__(self, schedule, clients):
        super().__init__(schedule, clients)
        if schedule.spoilt:
            self._simulation.at(0.0, self._spoil, schedule.spoilt)
            self._simulation.at(schedule.heals_at, self._spoil, "")

    def _spoil(self, what):
        lock, another = BAD.encode(), {b"another": b"type"}
        register = Keys("").fence(lock)
        spoilt = {"lock": (lock, another), "register": (register, another), "text": (register, b"text")}
        for machine in self._simulation.machines:
            machine.server.denied = {lock} if what == "denied" else set()
            if what in spoilt:
                machine.server.put(*spoilt[what])
            elif self.schedule.spoilt in spoilt:
                key, _ = spoilt[self.schedule.spoilt]
                machine.server.put(key, None)

    async def _hold(self, process, redlock, job):
        if job.kind == "close":  # in the moment in which others begin or end
            await redlock.aclose()
            return
        try:
            await self._hold_one(process, redlock, job)
        except RedlockError as error:
            if self.schedule.bound is not None or "the client was closed" not in str(error):
                raise

    async def _hold_one(self, process, redlock, job):
        if job.name != BAD or not self.schedule.spoilt:
            try:
                await super()._hold(process, redlock, job)
            except WrongKeyType as error:
                self.recorder.violations.append(Violation("error", f"{error}, but nothing is wrong with it"))
            return
        try:
            lease = await self.lock(redlock, job).acquire()
        except (WrongKeyType, QuorumUnavailable, LockTimeout):
            return
        self.recorder.violations.append(Violation("error", f"{BAD!r} was granted"))
        await lease.release()

    async def _check_liveness(self, redlock):
        for name in sorted({job.name for jobs in self.schedule.jobs for job in jobs} - {""}):
            lease = await redlock(name, ttl=1, wait=6 * self.schedule.longest_ttl + SETTLING).acquire()
            await lease.release()


RUNS["groups"] = Grouped


def groups(seed):
    """Tasks of one to three processes that begin in a few common moments, on own and on common names."""
    rng = Random(seed)
    ttl = rng.choice((0.5, 2.0, 10.0))
    moments = [0.05 + rng.uniform(0, 0.3) * number for number in range(rng.randint(1, 3))]
    names = [f"name {number}" for number in range(rng.choice((2, 6, 40)))]
    spoilt = rng.choice(("", "", "", "lock", "register", "text", "denied"))

    def job():
        cancelled = rng.choice((0.0, rng.uniform(0, 0.0015), rng.uniform(0, 0.05)))
        name = BAD if rng.random() < 0.15 else rng.choice(names)
        return Task(
            kind=rng.choice(("lock",) * 12 + ("fair", "write")),
            name=name,
            at=rng.choice(moments),
            ttl=rng.choice((ttl, ttl, ttl, 2 * ttl)),
            wait=rng.choice((0.0, 4.0, 4.0)),
            work=rng.choice((0.0, 0.0, 0.01, rng.uniform(0, 0.1))),
            renew=rng.random() < 0.8,
            cancel_after=cancelled if rng.random() < 0.25 else None,
            fencing=name == BAD or rng.random() < 0.95,
        )

    jobs = tuple(tuple(job() for _ in range(rng.choice((2, 5, 12, 40)))) for _ in range(rng.randint(1, 3)))
    schedule = GroupSchedule(
        seed, rng.choice((1, 3, 3, 4, 5)), 0.02, rng.choice((0.0, 0.02)), 0.0, jobs,
        kind="groups", aged=True, spoilt=spoilt, settled=0.0 if spoilt else float("inf"),
    )  # fmt: skip
    if spoilt or rng.random() < 0.2:
        return replace(schedule, bound=None if rng.random() < 0.5 else BOUND)
    meanwhile = MEANWHILE
    if rng.random() < 0.2:
        closing = Task("close", "", rng.choice(moments), ttl, 0.0, 0.0)
        schedule = replace(schedule, jobs=(tuple(rng.sample((*jobs[0], closing), len(jobs[0]) + 1)), *jobs[1:]))
        meanwhile = ("forget scripts",)  # a closed client sends no release to a node that comes back
    found = [
        Fault(
            rng.choice(moments) + rng.choice((rng.uniform(-0.001, 0.002), rng.uniform(0, 0.3))),
            rng.choice(meanwhile),
            rng.randrange(schedule.nodes),
            rng.choice((rng.uniform(0, 0.002), rng.uniform(0, 0.5))),
        )
        for _ in range(rng.randint(1, 4))
    ]
    given = {each.name: getattr(schedule, each.name) for each in fields(GroupSchedule)}
    return GroupSchedule(**given | {"faults": tuple(sorted(found, key=when))})


OF_KINDS["groups"] = FAMILIES["groups"] = groups
