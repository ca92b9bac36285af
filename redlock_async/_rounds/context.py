"""The state that the parts of a client share on its event loop: clocks, nodes, quorum, timeouts, wake-ups, events."""

from __future__ import annotations

import asyncio
import contextvars
import os
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from logging import DEBUG
from typing import Any, Protocol, TypeVarTuple, final

from redlock_async._rules.keys import Keys
from redlock_async._rules.settings import Settings
from redlock_async._transport.commands import Command
from redlock_async._transport.environment import Environment, for_loop
from redlock_async._transport.membership import Membership
from redlock_async._transport.node import Address, Node
from redlock_async.errors import RedlockError
from redlock_async.events import Events, Kind, logger

Arguments = TypeVarTuple("Arguments")


class Timed(Protocol):
    """A round, as far as its timeout is concerned."""

    started_at: float
    over: bool
    """Whether every node has answered or failed, so that no timeout is needed any more."""

    def expire(self) -> None:
        """Count the nodes that have not answered as failed."""


class RoundTimeouts:
    """Expires rounds: one timer for all rounds that have the same timeout.

    Rounds with equal timeouts expire in the order in which they began, so a queue is enough. Nearly all of them are
    over long before.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, now: Callable[[], float]) -> None:
        self._loop = loop
        self._now = now
        self._queues: dict[float, deque[Timed]] = {}

    def add(self, round_: Timed, timeout: float) -> None:
        """Expire `round_` when `timeout` seconds have passed since it began, unless it is over by then."""
        queue = self._queues.get(timeout)
        if queue is None:
            queue = self._queues[timeout] = deque()
            self._loop.call_later(timeout, self._run, timeout, self._now() + timeout, context=contextvars.Context())
        while queue and queue[0].over:
            queue.popleft()
        queue.append(round_)

    def _run(self, timeout: float, planned: float) -> None:
        queue, now = self._queues[timeout], self._now()
        if now - planned > timeout / 2:
            # The loop was blocked, perhaps before anything was sent: the nodes are not to blame for the delay.
            self._call_later(timeout / 2, timeout, now + timeout / 2)
            return
        while queue and (queue[0].over or queue[0].started_at + timeout <= now):
            first = queue.popleft()
            if not first.over:
                first.expire()
        if queue:
            due = queue[0].started_at + timeout
            self._call_later(due - now, timeout, due)
        else:
            del self._queues[timeout]

    def _call_later(self, delay: float, timeout: float, planned: float) -> None:
        self._loop.call_later(delay, self._run, timeout, planned, context=contextvars.Context())


class Waiter(Protocol):
    """Something that waits for keys to change, on behalf of one or more tasks."""

    @property
    def waiting(self) -> int:
        """How many tasks wait."""
        ...

    def on_remote_change(self, node: int, key: bytes | None) -> None:
        """Handle a node's report that another client changed `key`; None stands for all keys."""

    def wake(self, key: bytes | None = None) -> None:
        """Look again: this client changed `key`, or a node came back."""

    def close(self) -> Command | None:
        """Stop, because the client is closed; return the command that every node must still receive, if any."""


class Wakeups:
    """The waiters for changes of keys.

    The nodes report to a client what other clients change, and not what it changes itself.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._by_key: dict[bytes, list[Waiter]] = {}
        self._returned: dict[bytes, int] = {}
        """By key, the nodes on which failed attempts have returned votes in this iteration of the loop."""

    def watch(self, keys: Sequence[bytes], waiter: Waiter) -> None:
        """Notify `waiter` of changes of these keys."""
        by_key = self._by_key
        for key in keys:
            if key in by_key:
                by_key[key].append(waiter)
            else:
                by_key[key] = [waiter]

    def unwatch(self, keys: Sequence[bytes], waiter: Waiter) -> None:
        """Undo `watch`."""
        for key in keys:
            watching = self._by_key[key]
            if len(watching) == 1:
                del self._by_key[key]
            else:
                watching.remove(waiter)

    def __contains__(self, key: bytes) -> bool:
        return key in self._by_key

    def __len__(self) -> int:
        return len(self._by_key)

    def watching(self, key: bytes | None) -> list[Waiter]:
        """The waiters for that key, or for any key if it is None."""
        if key is None:
            # A copy: statistics may be read in another thread, by an exporter that serves a scrape there.
            return [waiter for watching in tuple(self._by_key.values()) for waiter in watching]
        return list(self._by_key.get(key, ()))

    @property
    def waiting(self) -> int:
        """How many tasks wait."""
        return sum(waiter.waiting for waiter in set(self.watching(None)))

    def remote_change(self, node: int, key: bytes | None) -> None:
        """Handle a node's report that another client changed that key; None stands for all keys."""
        for waiter in self.watching(key):
            waiter.on_remote_change(node, key)

    def local_change(self, key: bytes | None) -> None:
        """Wake the waiters of a key that this client changed; all of them if it is None, because a node came back."""
        for waiter in self.watching(key):
            waiter.wake(key)

    def retry_local(self, keys: Sequence[bytes], freed: Sequence[bytes]) -> None:
        """Wake the waiters of these keys, because another attempt is worthwhile; this client has deleted `freed`."""
        for key in keys:
            for waiter in self._by_key.get(key, ()):
                waiter.wake(key if key in freed else None)

    def votes_returned(self, keys: Sequence[bytes], nodes: int) -> None:
        """Tell the other waiters of this process that one waiter returned its votes on some nodes (a bit mask)."""
        for key in keys:
            if nodes and len(self._by_key.get(key, ())) > 1:
                self._notify_soon(key, nodes)

    def late_votes_returned(self, keys: Sequence[bytes], nodes: int) -> None:
        """Do the same for votes that arrived late, when the waiter that got them may have stopped waiting."""
        for key in keys:
            if key in self._by_key:
                self._notify_soon(key, nodes)

    def _notify_soon(self, key: bytes, nodes: int) -> None:
        if not self._returned:
            self._loop.call_soon(self._notify_returned, context=contextvars.Context())
        self._returned[key] = self._returned.get(key, 0) | nodes

    def _notify_returned(self) -> None:
        # Once for each iteration of the loop, because thousands of tasks may begin to wait in one.
        returned, self._returned = self._returned, {}
        for key, nodes in returned.items():
            indexes = [index for index in range(nodes.bit_length()) if nodes >> index & 1]
            for waiter in self.watching(key):
                for index in indexes:
                    waiter.on_remote_change(index, key)


@final
class Context:
    """One client on one event loop, as its rounds, lock kinds, leases and waiters see it."""

    def __init__(
        self,
        addresses: Sequence[Address],
        settings: Settings,
        keys: Keys,
        events: Events,
        *,
        on_key_changed: Callable[[Node, bytes | None], None],
        on_node_up: Callable[[], None],
        on_quorum_lost: Callable[[], None],
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.pid = os.getpid()
        self.environment = environment = for_loop(self.loop)
        self.now = environment.now
        self.wall_us = environment.wall_us
        self.random = environment.rng()
        self.events = events
        self.counters = events.counters
        self.timeouts = RoundTimeouts(self.loop, self.now)
        self.wakeups = Wakeups(self.loop)
        self.settings = settings
        self.drift_factor = settings.drift_factor
        self.node_timeout = settings.node_timeout
        self.retry_delay = settings.retry_delay
        self.round_trip = 0.001
        """Smoothed duration of a round, in seconds."""
        self.shared: dict[bytes, object] = {}
        """Work that tasks which wait for the same thing share, by a key that identifies it."""
        self.closed = False
        self._token_values = token_values(environment)
        self._label = f":{settings.owner}".encode()
        self.membership = Membership(
            [environment.resolve(address) for address in addresses],
            settings,
            keys,
            events,
            self.now,
            self.random,
            on_key_changed=on_key_changed,
            on_node_up=on_node_up,
            on_quorum_lost=on_quorum_lost,
        )
        self.nodes = self.membership.nodes
        """The nodes."""
        self.clocks = self.membership.clocks_of(self.nodes)
        self.clustered = bool(self.membership.clusters)
        """Whether some node is a cluster. Then `group` says which of its shards votes for a name, and `nodes` is only
        good for counting; the comparison of the clocks differs, too."""
        self.group = self.membership.group
        self.group_of = self.membership.group_of
        self.clocks_of = self.membership.clocks_of
        self.quorum = self.membership.quorum

    @property
    def inherited(self) -> bool:
        """Whether this process was forked since, so that the sockets and the loop are its parent's.

        Python's own hooks do not run where C code forks, as uWSGI does.
        """
        return os.getpid() != self.pid

    @property
    def spare(self) -> int:
        """How many nodes may fail."""
        return len(self.nodes) - self.quorum

    @property
    def minority(self) -> int:
        """How many nodes may be wrong."""
        return self.membership.minority

    def fresh_token(self, label: bytes = b"") -> bytes:
        """Return a value for the nodes that no lease had before: 128 random bits and a label, or else the owner's."""
        if os.getpid() != self.pid:
            raise RedlockError("this client was created before fork(): create one in the child process")
        return next(self._token_values) + (label or self._label)

    def observe_round_trip(self, seconds: float) -> None:
        """Take one more measurement into the estimate."""
        self.round_trip += (seconds - self.round_trip) / 8

    def send_to_all(self, command: Command, keep: float, *, but: int = 0) -> None:
        """Send a command that must arrive, on the next connection at the latest, within `keep` seconds.

        Nodes in the bit mask `but` do not need it.
        """
        until = self.now() + keep
        for node in self.group(command):
            if not but & node.bit:
                node.send_durably(command, until)

    def close(self) -> None:
        """Note that the client is closed."""
        self.closed = True

    # Observing

    @property
    def observed(self) -> bool:
        """Whether anything listens to events of the common path, which are not built otherwise."""
        return len(self.events.listeners) > 0 or logger.isEnabledFor(DEBUG)

    def report(self, kind: Kind, names: tuple[str, ...], lock_kind: str, **details: Any) -> None:
        """Emit an event about a lock."""
        self.events.emit(kind, names=names, lock_kind=lock_kind, **details)

    # Timers and tasks run in an empty `contextvars` context: otherwise they would keep the request alive that happened
    # to start them, and log in its name.

    def call_later(
        self, delay: float, callback: Callable[[*Arguments], object], *arguments: *Arguments
    ) -> asyncio.TimerHandle:
        """Call back after `delay` seconds."""
        return self.loop.call_later(delay, callback, *arguments, context=contextvars.Context())

    def create_task(self, coroutine: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Start a background task."""
        return self.loop.create_task(coroutine, name=name, context=contextvars.Context())

    def resolve_later(self, future: asyncio.Future[bool], deadline: float | None) -> asyncio.TimerHandle | None:
        """Set the result of `future` to False at the deadline, unless it is done by then."""
        return None if deadline is None else self.call_later(deadline - self.now(), give_up, future)


def resolve(future: asyncio.Future[bool], *, result: bool) -> None:
    """Set the result of a future, unless it is done."""
    if not future.done():
        future.set_result(result)


def give_up(future: asyncio.Future[bool]) -> None:
    """Set the result of a future to False, unless it is done."""
    resolve(future, result=False)


def token_values(environment: Environment) -> Iterator[bytes]:
    """Without end, 32 hexadecimal digits that no other client ever gets.

    The random bits were drawn in advance. Copies of a process (a restored snapshot of a virtual machine or container)
    have the same ones, but read other times. XOR with a time leaves random bits as random as they were.
    """
    for high, low in environment.token_bytes():
        ticks, wall = environment.stamps()
        yield b"%016x%016x" % (high ^ ticks, low ^ wall)
