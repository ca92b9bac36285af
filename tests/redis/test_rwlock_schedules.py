"""Random schedules of the scripts, with delayed and lost commands: no overlapping holders, no wrong token.

Each client of a schedule does what the library does, one command at a time; which client goes on is drawn, so commands
of different clients reach a node in any order. Each rule has a mutant that breaks it, and the checks must notice.
"""

import itertools
import random
import time

import pytest

from redlock_async._kinds.mutex import Mutex
from redlock_async._kinds.rwlock import Read, Write
from redlock_async._rules.fencing import choose
from redlock_async._rules.keys import Keys
from redlock_async._transport.commands import DeleteIfEqual, script

CLIENTS, STEPS, SCHEDULES = 5, 500, 150
LOST = 0.1  # of all commands

MUTANTS = {
    "a first reader shares the last writer's fence": [
        ("read_acquire", "stored and stored + 1 or now - most", "stored and tonumber(stored) or fence")
    ],
    "readers after a downgrade share the writer's fence": [
        ("write_downgrade", "tonumber(ARGV[4]) + 1", "tonumber(ARGV[4])"),
        ("write_downgrade", "redis.call('INCRBY', KEYS[3], 1)", "redis.call('INCRBY', KEYS[3], 0)"),
    ],
    "a writer takes no heed of readers": [("write_acquire", "if last[1] then", "if false then")],
    "a reader takes no heed of a writer": [("read_acquire", "holder and holder ~= ARGV[3]", "false")],
    "the first reader out frees the lock": [
        ("read_release", "redis.call('PEXPIRE', readers, redis.call('PTTL', lock)) == 0", "true")
    ],
}


class Violation(Exception):  # noqa: N818 - what it is
    """Something that must never be."""


class Schedule:
    """One run of all clients, from one seed."""

    def __init__(self, nodes, seed, mutations):
        self.nodes = nodes
        self.needed = len(nodes) // 2 + 1
        self.chance = random.Random(seed)
        self.mutations = mutations
        self.tokens = itertools.count()
        self.clock = time.time_ns() // 1000
        self.active = {}
        self.writer = self.anybody = 0
        self.leases = 0

    def run(self):
        """Let them go on, one at a time."""
        for node in self.nodes:
            node.flushdb()
        clients = [self.client(number) for number in range(CLIENTS)]
        waiting = [next(client) for client in clients]
        for _ in range(STEPS):
            number = self.chance.randrange(CLIENTS)
            waiting[number] = clients[number].send(waiting[number] and self.carry_out(*waiting[number]))

    def carry_out(self, node, command):
        """What that node answers."""
        call = command._fallback() if isinstance(command, DeleteIfEqual) else command
        source = call.script.source.decode()
        for name, before, after in self.mutations:
            if name == call.script.name:
                assert before in source
                source = source.replace(before, after)
        return node.eval(source, *call._arguments)

    def ask(self, command):
        """Send it to all nodes, in any order, some in vain; returns the replies."""
        replies = {}
        for node in self.chance.sample(self.nodes, len(self.nodes)):
            if self.chance.random() >= LOST:
                replies[node] = yield node, command
        return replies

    def tell(self, *commands):
        """Send them to all nodes: what must arrive, arrives."""
        for node in self.chance.sample(self.nodes, len(self.nodes)):
            for command in commands:
                yield node, command

    def hold(self):
        """Hold it for a while."""
        for _ in range(self.chance.randint(0, 3)):
            yield None

    def client(self, number):
        """One lease after the other, of any kind."""
        keys = Keys("")
        while True:
            kind = self.chance.choice(["read", "read", "read", "write", "lock"])
            claim = {
                "read": Read(keys, "doc", fenced=True),
                "write": Write(keys, "doc", fenced=True),
                "lock": Mutex(keys, ["doc"], fenced=True),
            }[kind]
            token = b"%032d:client" % next(self.tokens)
            self.clock += self.chance.choice([0, 1, 5])
            candidate = self.clock + self.chance.choice([-100_000, -20, 0, 20])
            earliest = self.writer if kind == "read" else self.anybody
            fence = yield from self.acquire(claim, token, candidate)
            if fence is None:
                yield from self.tell(claim.release(token))
                continue
            self.enter(number, kind, fence, earliest)
            yield from self.hold()
            if kind == "write" and self.chance.random() < 0.5:
                self.ended(kind, fence)
                self.active[number] = "read"
                replies = yield from self.ask(claim.downgrade(token, fence, 60_000))
                if sum(replies.values()) >= self.needed:
                    yield from self.hold()
                del self.active[number]
                yield from self.tell(claim.release(token), claim.as_reader().release(token))
            else:
                del self.active[number]
                self.ended(kind, fence)
                yield from self.tell(claim.release(token))

    def acquire(self, claim, token, candidate):
        """The fence, stored by a quorum, or None."""
        replies = yield from self.ask(claim.start(None).first_command(token, 60_000, candidate))
        fences = [fence for got in replies.values() if (fence := granted(got, candidate)) is not None]
        if len(fences) < self.needed:
            return None
        fence, stored = choose(fences[: self.needed] if self.chance.random() < 0.5 else fences, self.needed)
        if not stored:
            acks = yield from self.ask(claim.reassert(token, fence, 0))
            if sum(acks.values()) < self.needed:
                return None
        return fence

    def enter(self, number, kind, fence, earliest):
        """A lease begins."""
        self.leases += 1
        if beside := [other for other in self.active.values() if {kind, other} != {"read"}]:
            raise Violation(f"{kind} beside {beside}")
        if fence <= earliest:
            raise Violation(f"{kind} has the fence {fence}, and {earliest} was before")
        self.active[number] = kind

    def ended(self, kind, fence):
        """A lease, or the writing part of one, has ended."""
        self.anybody = max(self.anybody, fence)
        if kind != "read":
            self.writer = max(self.writer, fence)


def explore(eyes, mutations):
    """Run many schedules over three, four and five nodes; returns how many leases there were."""
    leases = 0
    for seed in range(SCHEDULES):
        schedule = Schedule(eyes.clients[: 3 + seed % 3], seed, mutations)
        try:
            schedule.run()
        except Violation as violation:
            raise Violation(f"seed {seed}: {violation}") from None
        leases += schedule.leases
    return leases


def granted(reply, candidate):
    """The fence in a grant: what was proposed if the reply is the node's time, or what comes with the time."""
    if isinstance(reply, int):
        return candidate
    is_grant = isinstance(reply, list) and len(reply) == 2 and all(isinstance(part, int) for part in reply)
    return reply[0] if is_grant else None


def test_no_schedule_breaks_exclusion_or_the_order_of_fences(eyes):
    """No writer beside anybody; readers' fences above every earlier writer's, writers' above everybody's."""
    assert explore(eyes, []) > 10 * SCHEDULES


@pytest.mark.parametrize("mutant", MUTANTS)
def test_every_mutant_is_noticed(mutant, eyes):
    """Without the rule a schedule goes wrong."""
    for name, before, _ in MUTANTS[mutant]:
        assert before in script(name).source.decode()
    with pytest.raises(Violation):
        explore(eyes, MUTANTS[mutant])
