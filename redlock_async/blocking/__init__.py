"""The library for threads: the names of the asyncio API, with `with` instead of `async with`, and nothing to await.

    from redlock_async.blocking import redlock  # nodes: REDLOCK_NODES

    with redlock("orders:42", wait=3) as lease:
        charge("orders:42", fence=lease.fencing_token)

The asyncio library carries out each call, on one event loop in one thread that all other threads of the process share.
Its guarantees hold here, too, with one exception: **a thread cannot be cancelled.** If a lease is lost, the block
continues without the lock until it calls `lease.raise_if_lost()` or ends, and then LockLost is raised. Only a resource
that compares fencing tokens can reject its writes in the meantime. In return the block may do blocking work, because
the lease is renewed in the loop's thread.

Calls from a thread that runs an event loop raise ConfigurationError: use `redlock_async` there. A forked child gets its
own loop and connections. gevent and eventlet are not supported, because they replace the thread of the loop.
"""

from __future__ import annotations

import copy
import functools
import inspect
import os
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, Self, TypedDict, TypeVar, Unpack, overload

from redlock_async._admin.health import Health
from redlock_async._admin.permits import SemaphoreStatus
from redlock_async._admin.records import LockRecord
from redlock_async._admin.status import Holder, NodeStatus
from redlock_async._rules.settings import Duration, HoldOptions, LockOptions, from_environment
from redlock_async.client import DefaultRedlock as AsyncDefaultRedlock
from redlock_async.client import Redlock as AsyncRedlock
from redlock_async.decorators import ACQUIRE, Conflict, Decorator, lock_builder, name_builder, name_without_fields
from redlock_async.errors import ConfigurationError, short_repr
from redlock_async.events import Listener, Statistics
from redlock_async.locks import WriteLease as AsyncWriteLease

from .election import Election
from .leases import Latch, Lease, Lock, Semaphore, WriteLease, now
from .portal import run, run_uninterrupted

if TYPE_CHECKING:
    from redlock_async._transport.dial import Source

__all__ = ["Election", "Latch", "Lease", "Lock", "Once", "Redlock", "Semaphore", "WriteLease", "redlock"]

P = ParamSpec("P")
R = TypeVar("R")

LockFactory = Callable[[str], Lock[Any]]
"""A function from a name to a lock: `redlock.fair_lock`, or `functools.partial(redlock.semaphore, permits=4)`."""


class Locked(Decorator):
    """A decorator for functions that always run, and so always have a result."""

    __slots__ = ()

    def __call__(self, function: Callable[P, R], /) -> Callable[P, R]:
        """Run a function under the lock that its arguments name."""
        return _run_under_lock(self, function)


class LockedOrSkipped(Decorator):
    """A decorator for functions whose calls may be skipped."""

    __slots__ = ()

    def __call__(self, function: Callable[P, R], /) -> Callable[P, R | None]:
        """Run a function under the lock that its arguments name, or return None without running it."""
        return _run_under_lock(self, function)


def _run_under_lock(decorator: Decorator, function: Callable[P, Any]) -> Callable[P, Any]:
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise ConfigurationError(
            "locked() and once() of redlock_async.blocking decorate functions that do their work when they are called, "
            f"got {short_repr(getattr(function, '__qualname__', function))}. For coroutine functions use redlock_async"
        )
    name, acquire, lock = name_builder(decorator.template, function), ACQUIRE[decorator.on_conflict], decorator.lock

    @functools.wraps(function)
    def locked(*args: P.args, **kwargs: P.kwargs) -> Any:
        lease = acquire(lock(name(*args, **kwargs)))
        if lease is None:
            return None
        with lease:
            return function(*args, **kwargs)

    return locked


class Once(LockedOrSkipped):
    """A job that runs once in a period, on the machine that starts it first: the asyncio `Once`, for threads."""

    __slots__ = ()

    def __init__(self, lock: Callable[[str], Lock[Lease]], template: str) -> None:
        super().__init__(lock, template, "skip")

    def try_acquire(self) -> Lease | None:
        """Return a lease to run the job under, or None if it is not this caller's turn.

        Run the job in `with lease:`, or release the lease after it. Raises QuorumUnavailable without a quorum.
        """
        lock: Lock[Lease] = self.lock(name_without_fields(self.template))
        return lock.try_acquire()


class ClientOptions(TypedDict, total=False):
    """The options of `redlock_async.Redlock`, with the same defaults."""

    ttl: Duration
    wait: Duration | None
    node_timeout: Duration
    retry_delay: Duration
    drift_factor: float
    fencing: bool
    namespace: str
    owner: str | None
    strict_restart: bool
    quorum: int | None


class Redlock:
    """A client for threads that makes locks over N independent Redis or Valkey nodes.

    It takes the arguments of `redlock_async.Redlock`. Creating one neither connects nor starts a thread; the first use
    does both. All threads of the process may use it, and so may forked children. You need not call `close()` when the
    process ends. Raises ConfigurationError for invalid options.
    """

    def __init__(self, nodes: Iterable[Source], **options: Unpack[ClientOptions]) -> None:
        self._client = AsyncRedlock(nodes, **options)

    @classmethod
    def from_env(cls, environ: Mapping[str, str] = os.environ) -> Self:
        """Create a client from REDLOCK_NODES (comma-separated), REDLOCK_TTL, REDLOCK_WAIT and so on.

        Raises ConfigurationError if a variable is invalid, or REDLOCK_NODES is not set.
        """
        nodes, options = from_environment(environ)
        return cls(nodes, **options)

    def __repr__(self) -> str:
        return repr(self._client)

    # Locks

    def __call__(self, name: str, /, *names: str, **options: Unpack[LockOptions]) -> Lock[Lease]:
        """Return a lock on one name, or on several names at once, all or nothing."""
        return Lock(self._client(name, *names, **options), Lease)

    lock = __call__

    def fair_lock(self, name: str, /, **options: Unpack[HoldOptions]) -> Lock[Lease]:
        """Return a lock on `name` that is granted first come, first served, across processes."""
        return Lock(self._client.fair_lock(name, **options), Lease)

    def election(
        self,
        name: str,
        /,
        *,
        value: str | None = None,
        ttl: Duration | None = None,
        max_hold: Duration | None = None,
        takeover_delay: Duration = 0.0,
    ) -> Election:
        """Return an election. `value` is what observers learn of this candidate, by default the owner label."""
        return Election(
            self._client.election(name, value=value, ttl=ttl, max_hold=max_hold, takeover_delay=takeover_delay)
        )

    def read_lock(self, name: str, /, **options: Unpack[HoldOptions]) -> Lock[Lease]:
        """Return a shared (reader) lock on `name`."""
        return Lock(self._client.read_lock(name, **options), Lease)

    def write_lock(self, name: str, /, **options: Unpack[HoldOptions]) -> Lock[WriteLease]:
        """Return an exclusive (writer) lock on `name`; `lease.downgrade()` turns its lease into a reader's.

        The plain lock on the same name counts as a writer, too.
        """
        return Lock(self._client.write_lock(name, **options), WriteLease)

    def semaphore(self, name: str, /, permits: int, *, count: int = 1, **options: Unpack[HoldOptions]) -> Semaphore:
        """Return a semaphore of `permits` slots, of which each lease takes `count`.

        All users of the name must pass the same `permits`.
        """
        return Semaphore(self._client.semaphore(name, permits=permits, count=count, **options), Lease)

    def latch(
        self, name: str, /, count: int, *, generation: int | str | None = None, retention: Duration = 86_400.0
    ) -> Latch:
        """Return a latch that opens once `count` different events were counted down; pass a `generation` per round."""
        return Latch(self._client.latch(name, count=count, generation=generation, retention=retention))

    def once(
        self,
        name: str,
        /,
        *,
        every: Duration,
        hold: Duration | None = None,
        retry_failed: bool = False,
        ttl: Duration | None = None,
        fencing: bool | None = None,
        max_hold: Duration | None = None,
    ) -> Once:
        """Return a job that runs once per period on whichever machine starts it first: a decorator, like `locked`.

        Without a function to decorate, call `try_acquire` on it. `max_hold` ends the renewal but not the run: a longer
        run ends with LockLost. Raises ConfigurationError for invalid options.
        """
        once = self._client.once(
            name, every=every, hold=hold, retry_failed=retry_failed, ttl=ttl, fencing=fencing, max_hold=max_hold
        )
        return Once(lambda name: Lock(once.lock(name), Lease), once.template)

    @overload
    def locked(
        self,
        template: str,
        *,
        on_conflict: Literal["wait", "raise"] = "wait",
        factory: LockFactory | None = None,
        **options: Unpack[LockOptions],
    ) -> Locked: ...

    @overload
    def locked(
        self,
        template: str,
        *,
        on_conflict: Literal["skip"],
        factory: LockFactory | None = None,
        **options: Unpack[LockOptions],
    ) -> LockedOrSkipped: ...

    def locked(
        self, template: str, *, on_conflict: Conflict = "wait", factory: LockFactory | None = None, **options: Any
    ) -> Any:
        """Decorate a function to run under the lock that its arguments name: `@locked("import:{user_id}")`.

        If another client holds the lock, "wait" waits, "skip" returns None at once, and "raise" raises LockTimeout at
        once. For another kind of lock pass `factory=redlock.fair_lock`, or `factory=partial(redlock.semaphore,
        permits=4)`. Raises ConfigurationError for invalid arguments.
        """
        make = lock_builder(self, Lock, template, on_conflict, factory, options)
        return (LockedOrSkipped if on_conflict == "skip" else Locked)(make, template, on_conflict)

    def _checkable(self) -> Self:
        """Return a client that can make locks now, for a decorator that checks its arguments."""
        checkable = copy.copy(self)
        checkable._client = self._client._checkable()  # noqa: SLF001 - the asyncio half of this client
        return checkable

    def attach(self, text: str) -> Lease:
        """Return the lease that `Lease.detach` serialized, in this process or another, and renew it from now on.

        The other process may use asyncio. On the machine that detached it, the lease is valid at once for its remaining
        time as recorded in the text; on other machines it is valid after the first `extend()`. Entering it with `with`
        asks the nodes first, and raises LockLost if the text was used before, or is too old. Raises ConfigurationError
        if the text was changed by accident.
        """
        lease = run(now, self._client.attach, text)
        return WriteLease(lease) if isinstance(lease, AsyncWriteLease) else Lease(lease)

    # Operators

    def status(self) -> list[NodeStatus]:
        """Query every node and return one `NodeStatus` per node."""
        return run(self._client.status)

    def inspect(self, name: str) -> Holder | None:
        """Return the holder of a lock, with its votes and remaining time; None if the lock is free."""
        return run(self._client.inspect, name)

    def inspect_semaphore(self, name: str) -> SemaphoreStatus | None:
        """Return the number of permits of a semaphore, and the holder of each slot; None if it is not in use."""
        return run(self._client.inspect_semaphore, name)

    def list_locks(self, pattern: str = "*", *, include_foreign: bool = False) -> list[LockRecord]:
        """List locks of every kind, and the leftovers of failed attempts, by the servers' glob pattern for names."""
        return run(self._client.list_locks, pattern, include_foreign=include_foreign)

    def force_release(self, name: str) -> bool:
        """Free a name although it is held; return whether it was.

        Holders that use asyncio are cancelled; threads learn of it from `lost`, `raise_if_lost` or `wait_until_lost`.
        """
        return run(self._client.force_release, name)

    def change_permits(self, name: str, permits: int | None) -> None:
        """Set a semaphore's number of permits permanently, as the asyncio client does; None removes the setting.

        Raises LockTimeout while a slot beyond the new number is held, and QuorumUnavailable if too few nodes answered.
        """
        run(self._client.change_permits, name, permits)

    def statistics(self) -> Statistics:
        """Return the counters since this client was created, and the current gauges."""
        return self._client.statistics()

    def health(self) -> Health:
        """Check whether a quorum of nodes can vote, for a readiness probe. Never raises because of an outage."""
        return run(self._client.health)

    def on_event(self, callback: Listener, *, node_replies: bool = False) -> Callable[[], None]:
        """Call `callback` with every `Event`; return a function that unsubscribes it.

        The callback runs in the loop's thread and delays every lock of the process, so keep it short. With
        `node_replies=True` it also gets events of kind "node_replies", which hold each node's reply to a command and
        how long it took. Raises ConfigurationError if `callback` cannot be called.
        """
        return self._client.on_event(callback, node_replies=node_replies)

    # Opening and closing

    def __enter__(self) -> Self:
        run(self._client.__aenter__)
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release all leases and close the connections; threads that wait raise. The next use opens new connections."""
        run_uninterrupted(self._client.aclose)


class DefaultRedlock(Redlock):
    """The client `redlock_async.blocking.redlock`, which reads its settings from the environment on first use."""

    def __init__(self) -> None:
        # The asyncio API's default client is bound to the program's own event loop.
        self._client: AsyncDefaultRedlock = AsyncDefaultRedlock()

    def reset(self) -> None:
        """Close the client and forget its settings, so that the next use reads the environment again."""
        if self._client.loop is not None:
            self.close()
        self._client.reset()


redlock: Redlock = DefaultRedlock()
"""A client that reads REDLOCK_NODES and the other REDLOCK_... variables on first use."""
