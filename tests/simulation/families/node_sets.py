"""Families in which clients have a larger quorum, or other nodes than those that the nodes remember.

Of ABCDE, each client is configured with some nodes and a quorum. The first configuration is the one in use.
"""

from dataclasses import dataclass, replace
from random import Random

from framework.kinds import OF_KINDS, RUNS, KindRun, KindSchedule, Task
from framework.schedules import FAMILIES, LOSES_DATA, SETTLING, Fault, when

from redlock_async import ConfigurationError, LockLost, QuorumUnavailable, Redlock
from redlock_async._rules.charter import Charter, NodeSet
from redlock_async._rules.quorum import majority
from redlock_async._transport.connection import pack
from redlock_async.testing import Violation


@dataclass(frozen=True)
class ConfiguredSchedule(KindSchedule):
    """A schedule in which each client has its own configuration."""

    configured: tuple[tuple[str, int], ...] = ()
    """For each process, its nodes and its quorum."""
    first: bool = True
    """Whether clients with the first configuration are the first ones, and must not be refused."""
    recorded: bool = False
    """Whether the nodes of the first configuration have voted before; otherwise its first client founds the cluster."""
    aliases: bool = False
    """Whether each client reaches the nodes at addresses of its own."""

    @property
    def calm(self):
        # A client that begins while others found the cluster may be told that there is no quorum yet.
        return self.first and super().calm


def urls_of(nodes, alias=""):
    """The addresses of nodes that are named by letters."""
    return [f"redis://node-{'ABCDE'.index(node)}{alias}.simulated:6379" for node in nodes]


def node_set(nodes, quorum):
    """The configuration as it is recorded."""
    return NodeSet(quorum, tuple(url.removeprefix("redis://") for url in urls_of(nodes)))


CLIENTS = {}


def client(configured, number, alias):
    """A client with these nodes and this quorum, created once for many simulations."""
    if (configured, number, alias) not in CLIENTS:
        nodes, quorum = configured
        urls = urls_of(nodes, alias)
        CLIENTS[configured, number, alias] = Redlock(urls, ttl=1.0, owner=f"p{number}", quorum=quorum)
    return CLIENTS[configured, number, alias]


class Configured(KindRun):
    """Checks that clients which could both hold a lock never do, and that those in use go on."""

    may_be_refused = True

    def __init__(self, schedule, _clients):
        def configured(_nodes, number, **_options):
            return client(schedule.configured[number], number, f".p{number}" if schedule.aliases else "")

        super().__init__(schedule, configured)
        if schedule.recorded:
            self._found(*schedule.configured[0])

    def _found(self, nodes, quorum):
        """Have these nodes, and no others, record that they have voted for an hour for clients with that quorum.

        If the clients have other addresses, nothing is recorded of those, as on the nodes of a `LocalCluster`.
        """
        charter = Charter(0, (node_set(nodes, quorum),))
        for node, place in zip(nodes, charter.sets[0].labels, strict=True):
            machine = self._simulation.machines["ABCDE".index(node)]
            since = int((machine.clock() - 3600) * 1e6)
            known = [word for each in nodes for word in (f"node:{each}", f"{since} a")]
            own = ("id", node, "server", machine.server.run_id, "origin", "joined")
            session = machine.server.connect(lambda *_: None)
            told = () if self.schedule.aliases else ("charter", replace(charter, place=place).encode())
            machine.server.receive(session, pack(("HSET", "redlock-async:node", *own, *told, *known)))
            machine.server.disconnect(session)

    def _nodes(self):
        """The numbers of the first configuration's nodes."""
        return ["ABCDE".index(node) for node in self.schedule.configured[0][0]]

    def _remembers(self, node):
        """Whether a node has recorded how its clients are configured."""
        server = self._simulation.machines[node].server
        session = server.connect(lambda *_: None)
        stored = server.receive(session, pack(("HGET", "redlock-async:node", "charter")))
        server.disconnect(session)
        return b"simulated" in stored

    async def _check_liveness(self, redlock):
        number = next(at for at, process in enumerate(self._processes) if not process.dead)
        alike = len({*self.schedule.configured}) == 1
        if alike or (self.schedule.first and self.schedule.configured[number] == self.schedule.configured[0]):
            await super()._check_liveness(redlock)
            if self.schedule.aliases and (forgetful := [node for node in self._nodes() if not self._remembers(node)]):
                why = f"nodes {forgetful} do not remember their clients' configuration (after healing)"
                self.recorder.violations.append(Violation("liveness", why))
            return
        if not self.schedule.first:
            return
        patience = 6 * self.schedule.longest_ttl + SETTLING
        try:
            lease = await redlock("x", ttl=1.0, wait=patience).acquire()
            await lease.release()
        except (ConfigurationError, LockLost, QuorumUnavailable):
            return
        own, other = (node_set(*self.schedule.configured[at]) for at in (number, 0))
        if not own.overlaps(other):
            self.recorder.violations.append(Violation("exclusion", f"a client with {own} took a lock beside {other}"))

    def check(self):
        """Yield also clients of which one is refused although it came first, or is the only one."""
        yield from super().check()
        refused = {attempt.number for attempt in self.attempts if attempt.refused}
        for number in refused:
            same = self.schedule.configured[number] == self.schedule.configured[0]
            if same and (self.schedule.first or len(set(self.schedule.configured)) == 1):
                yield Violation("liveness", f"process {number} was refused, with the configuration that came first")


RUNS |= {"configured": Configured}


def quorums(seed):
    """All clients have a larger quorum, and as many nodes forget at once as it allows."""
    rng = Random(seed)
    nodes = rng.choice((3, 4, 5, 5))
    quorum = rng.randint(majority(nodes), nodes)
    ttl = rng.choice((1.0, 4.0))
    order = rng.sample(range(nodes), nodes)
    forgetful, end = 2 * quorum - nodes - 1, rng.uniform(0.3, 0.6)
    found = [Fault(0.05, rng.choice(("kill", "cut", "pause")), node, end - 0.1) for node in order[: nodes - quorum]]
    for node in order[nodes - quorum :][:forgetful]:
        what = rng.choice(sorted(LOSES_DATA))
        found.append(Fault(end, what, node, 0.0 if what == "wipe" else rng.uniform(0.02, 0.1)))
    first = Task("lock", "x", 0.1, ttl, 0.2, rng.uniform(0.5, 2) * ttl, renew=rng.random() < 0.5)
    rivals = [
        (Task("lock", "x", end + rng.choice((-0.3, 0.1, 0.5)), ttl, 2 * ttl, 0.05),) for _ in range(rng.randint(1, 2))
    ]
    jobs = ((first,), *rivals)
    if rng.random() < 0.5:
        jobs = tuple((Task("lock", "before", 0.0, ttl, 0.5, 0.0), *own) for own in jobs)
    configured = (("ABCDE"[:nodes], quorum),) * len(jobs)
    return ConfiguredSchedule(
        seed, nodes, 0.005, rng.choice((0.0, 0.05)), 0.0, jobs, tuple(sorted(found, key=when)),
        kind="configured", configured=configured, recorded=rng.random() < 0.7,
    )  # fmt: skip


def other_sets(seed):
    """Some clients have other nodes than the others, which were first. One node at a time fails for a moment."""
    rng = Random(seed)
    ttl = rng.choice((1.0, 2.0))
    (own, *others) = rng.choice(
        (("ABC", "ABCDE", "CDE", "ADE"), ("ABCDE", "ABC", "BCD", "AB"), ("ABC", "ABD", "BCD", "BDE", "CE"))
    )
    jobs, configured = [], []
    for number in range(rng.randint(2, 4)):
        nodes = own if number == 0 or rng.random() < 0.2 else rng.choice(others)
        start = 0.0 if nodes == own else 0.3
        jobs.append(
            tuple(
                Task("lock", "x", start + rng.uniform(0, 1.5), ttl, rng.choice((0.0, 1.0)), rng.uniform(0.1, 1.5))
                for _ in range(rng.randint(1, 3))
            )
        )
        configured.append((nodes, majority(len(nodes))))
    # The first client must have come first.
    jobs[0] = (Task("lock", "x", 0.0, ttl, 1.0, 0.3 * ttl), *jobs[0])
    found, at = [], 0.3
    while rng.random() < 0.7:
        at += rng.uniform(0.0, 0.4)
        seconds = rng.uniform(0.02, 0.3)
        what = rng.choice(("kill", "restart", "cut", "pause", "reset", "hold", "black hole"))
        found.append(Fault(at, what, rng.randrange(5), 0.0 if what == "reset" else seconds))
        at += seconds
    return ConfiguredSchedule(
        seed, 5, 0.005, rng.choice((0.0, 0.02)), 0.0, tuple(jobs), tuple(found),
        kind="configured", configured=tuple(configured), recorded=rng.random() < 0.5,
    )  # fmt: skip


def founding_together(seed):
    """Clients with several sets begin within milliseconds on nodes that nobody has used: at most one set is founded."""
    rng = Random(seed)
    ttl = rng.choice((1.0, 2.0))
    sets = rng.choice((("ABC", "CDE"), ("ABC", "BCD"), ("ABC", "ABCDE"), ("ABC", "CDE", "BCD"), ("AB", "BC", "BD")))
    jobs, configured = [], []
    for number in range(rng.randint(2, 4)):
        nodes = sets[number % len(sets)]
        start = rng.choice((0.0, rng.uniform(0, 0.003), rng.uniform(0, 0.05)))
        jobs.append((Task("lock", "x", start, ttl, rng.choice((0.0, 1.0)), rng.uniform(0.3, 1.5)),))
        configured.append((nodes, majority(len(nodes))))
    found = tuple(
        Fault(
            rng.uniform(0.0, 0.01),
            rng.choice(("reset", "hold", "lag")),
            node,
            rng.uniform(0.001, 0.02),
            rng.randrange(len(jobs)),
        )
        for node in rng.sample(range(5), rng.choice((0, 0, 1, 2)))
    )
    found = tuple(replace(each, process=None) if each.what == "reset" else each for each in found)
    return ConfiguredSchedule(
        seed, 5, 0.005, rng.choice((0.0, 0.02)), 0.0, tuple(jobs), tuple(sorted(found, key=when)),
        kind="configured", configured=tuple(configured), first=False,
    )  # fmt: skip


def other_addresses(seed):
    """Clients that reach the same nodes at addresses of their own begin within milliseconds, and nodes lose data.

    One of them may stop, or be killed, while it begins: the others then find what it has recorded on some nodes.
    """
    rng = Random(seed)
    nodes, ttl = rng.choice(("ABC", "ABCDE")), rng.choice((1.0, 2.0))
    jobs = tuple(
        (
            Task("lock", "x", rng.choice((0.0, rng.uniform(0, 0.003), rng.uniform(0, 0.05))), ttl, 6.0, 0.1),
            Task("lock", "x", rng.uniform(0.1, 2.0), ttl, 6.0, 0.1),
        )
        for _ in range(rng.randint(2, 4))
    )
    found = [
        Fault(
            rng.uniform(0.0, 0.01),
            rng.choice(("hold", "lag")),
            node,
            rng.uniform(0.001, 0.02),
            rng.randrange(len(jobs)),
        )
        for node in rng.sample(range(len(nodes)), rng.choice((0, 0, 1, 2)))
    ]
    if rng.random() < 0.5:
        at = rng.uniform(0.0, rng.choice((0.01, 0.05)))
        found.append(Fault(at, rng.choice(("stop", "murder")), 0, rng.uniform(0.1, 3.0)))
    at = 0.3
    while rng.random() < 0.4:
        found.append(Fault(at, rng.choice(("wipe", "kill", "cut", "reset")), rng.randrange(len(nodes)), 0.1))
        at += 1.5 * ttl
    return ConfiguredSchedule(
        seed, len(nodes), 0.005, rng.choice((0.0, 0.02)), 0.0, jobs, tuple(sorted(found, key=when)),
        kind="configured", configured=((nodes, majority(len(nodes))),) * len(jobs), first=False, aliases=True,
        recorded=rng.random() < 0.5,
    )  # fmt: skip


OF_KINDS["other addresses"] = FAMILIES["other addresses"] = other_addresses
OF_KINDS["founding together"] = FAMILIES["founding together"] = founding_together
OF_KINDS["quorums"] = FAMILIES["quorums"] = quorums
OF_KINDS["other sets"] = FAMILIES["other sets"] = other_sets
