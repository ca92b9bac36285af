"""A client without connections, for tests of kinds, rounds and local queues; and commands as a server reads them."""

import asyncio
import math
import os
import random
from functools import cached_property
from types import SimpleNamespace

import hiredis

from redlock_async._rounds.context import RoundTimeouts, Wakeups, give_up
from redlock_async._rules.fencing import AHEAD
from redlock_async._rules.quorum import majority
from redlock_async._transport.broadcast import NodeGroup
from redlock_async._transport.commands import CompareAndDelete, script
from redlock_async._transport.connection import WriteBatcher
from redlock_async.events import Events

SILENT = object()
"""The reply of a node that does not reply."""


def parsed(packed):
    """The arguments of one packed command, as a server's parser returns them; nothing may be left over."""
    reader = hiredis.Reader()
    reader.feed(packed)
    command = reader.gets()
    assert reader.gets() is False
    return command


def sent(command, dialect=CompareAndDelete.PLAIN):
    """What a server of that dialect receives."""
    return parsed(command.pack(dialect))


def sha(name):
    """The hash by which a script is called."""
    return script(name).sha


class FakeNode:
    """A connected node that passes each command to `answer`, and delivers what that returns."""

    def __init__(self, index, answer):
        self.index, self.bit, self.label = index, 1 << index, f"node-{index}"
        self.live = self.connection = self
        self.compare_and_delete = CompareAndDelete.PLAIN
        self.ready = self.tracking = True
        self.abstains = None
        self.cause = ConnectionError("down")
        self.latency = 0.0
        self._answer = answer

    def send(self, packed, receiver):
        """Reply in the next iteration of the loop."""
        reply = self._answer(parsed(packed))
        if reply is not SILENT:
            asyncio.get_running_loop().call_soon(receiver.deliver, self.index, reply)

    def overdue(self):
        """A reply timed out."""

    def observe_latency(self, seconds):
        """A reply was slow."""


class FakeClocks:
    """The clocks of nodes that are all right, whatever they show."""

    fresh_until = math.inf

    def __init__(self, nodes):
        self.low, self.high = [-math.inf] * nodes, [math.inf] * nodes

    def reject(self):
        """Have all clocks be wrong; return what is deferred: round, node, reply, by how much the clock is ahead."""
        self.low = [math.inf] * len(self.low)
        self.deferred = []
        return self.deferred

    def accepts(self, node, *_):
        """Whether it is right."""
        return self.low[node] < 0

    def defer(self, *grant):
        """It waits."""
        self.deferred.append(grant)

    def refresh(self):
        """They need not be compared."""

    def sample(self):
        """The reading behind a SET, which comes at once."""
        return SimpleNamespace(hold=lambda round_, node: round_.deliver(node, -1))


class FakeContext:
    """The part of `Context` that the tests need. Its clock stands still unless a test sets `at`.

    `answer` is called with each command that a node receives, and returns the reply.
    """

    node_timeout = 0.25
    retry_delay = 0.2
    round_trip = 0.001
    closed = clustered = False

    def __init__(self, nodes=0, answer=lambda command: SILENT):  # noqa: ARG005 - by default, nodes do not reply
        self.at = 1000.0
        self.random = random.Random(1)
        self.events = Events()
        self.shared = {}
        self.quorum = majority(nodes) if nodes else 0
        self.spare = nodes - self.quorum
        self.clocks = FakeClocks(nodes)
        self._nodes = [FakeNode(index, answer) for index in range(nodes)]
        self.membership = SimpleNamespace(highest_credible=lambda: AHEAD, servers=self._nodes)

    def now(self):
        """Read the clock."""
        return self.at

    @property
    def loop(self):
        """The running loop, so that tests of plain functions need none."""
        return asyncio.get_running_loop()

    @cached_property
    def nodes(self):
        """The fake nodes."""
        return NodeGroup(self._nodes, WriteBatcher(self.loop))

    def group(self, command):  # noqa: ARG002 - no node is a cluster
        """The nodes that vote."""
        return self.nodes

    group_of = group

    @cached_property
    def timeouts(self):
        """Real ones, on a clock that stands still."""
        return RoundTimeouts(self.loop, self.now)

    @cached_property
    def wakeups(self):
        """Real ones."""
        return Wakeups(self.loop)

    def fresh_token(self):
        """Return a value that no other attempt has."""
        return os.urandom(16).hex().encode() + b":host:1"

    def call_later(self, delay, callback, *arguments):
        """Call back in real time."""
        return self.loop.call_later(delay, callback, *arguments)

    def resolve_later(self, future, deadline):
        """Set the result of `future` to False at the deadline."""
        return None if deadline is None else self.call_later(deadline - self.now(), give_up, future)
