"""The library for threads: the same names as in asyncio, `with` instead of `async with`, nothing to await.

    from redlock_async.blocking import redlock  # the masters: REDLOCK_NODES

    with redlock("orders:42", wait=3) as lease:
        charge("orders:42", fence=lease.fencing_token)

Each call is carried out by the asyncio library, on one event loop in one thread, which all other threads of the process
share. So what is promised there is promised here, but for one thing: **a thread cannot be cancelled.** When a lease is
lost, the body goes on without the lock until it looks, with `lease.raise_if_lost()`, or ends; then LockLost is raised.
What it writes meanwhile only a resource that compares fencing tokens can refuse. On the other hand the body may block:
the lease is renewed in the loop's thread.

A thread in which an event loop runs is refused: it has `redlock_async` itself. A forked child gets a loop and
connections of its own. Not for gevent and eventlet, where the thread of the loop would be none.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, Protocol, Self, TypedDict, TypeVar, Unpack, overload

from ._errors import ConfigurationError, LockTimeout, shown
from ._health import Health
from ._operators import Holder, NodeStatus
from ._permits import SemaphoreStatus
from ._portal import finish, run
from ._records import LockRecord
from ._settings import Duration, HoldOptions, LockOptions, from_environment
from ._threaded import Latch, Lease, Lock, Semaphore, WriteLease, now
from .client import DefaultRedlock as AsyncDefaultRedlock
from .client import Redlock as AsyncRedlock
from .events import Listener, Statistics
from .locked import Conflict, check_template, constant, maker, naming
from .once import Once as AsyncOnce
from .rwlock import WriteLease as AsyncWriteLease

if TYPE_CHECKING:
    from ._dial import Source

__all__ = ["Latch", "Lease", "Lock", "Once", "Redlock", "Semaphore", "WriteLease", "redlock"]

P = ParamSpec("P")
R = TypeVar("R")


class Locked(Protocol):
    """A decorator whose function always has a result."""

    def __call__(self, function: Callable[P, R], /) -> Callable[P, R]:
        """The function under a lock."""
        ...


class LockedOrSkipped(Protocol):
    """A decorator whose function may be left out."""

    def __call__(self, function: Callable[P, R], /) -> Callable[P, R | None]:
        """The function under a lock, or None."""
        ...


Using = Callable[[str], Lock[Any]]
"""What makes a lock of a name: `redlock.fair`, or `functools.partial(redlock.semaphore, permits=4)`."""


def _under(make: Using, template: str, function: Callable[P, R], on_conflict: Conflict) -> Callable[P, R | None]:
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise ConfigurationError(
            f"what locked() and once() of redlock_async.blocking decorate does its work when it is called, and "
            f"{shown(getattr(function, '__qualname__', function))} does it later: for coroutine functions there are "
            "those of redlock_async"
        )
    name = naming(template, function)

    @functools.wraps(function)
    def locked(*args: P.args, **kwargs: P.kwargs) -> R | None:
        lock = make(name(*args, **kwargs))
        try:
            lease = lock.acquire() if on_conflict == "wait" else lock.acquire(0)
        except LockTimeout:
            if on_conflict != "skip":
                raise
            return None
        with lease:
            return function(*args, **kwargs)

    return locked


class Once:
    """Work that runs once in a period, on whichever of the machines comes first: asyncio's `Once`, for threads."""

    __slots__ = ("_once",)

    def __init__(self, once: AsyncOnce) -> None:
        self._once = once

    def __repr__(self) -> str:
        return repr(self._once)

    def __call__(self, function: Callable[P, R], /) -> Callable[P, R | None]:
        """Decorate a function: it returns its result, or None when it is not its turn."""
        return _under(self._lock, self._once.template, function, "skip")

    def try_acquire(self) -> Lease | None:
        """A lease to run under, or None when it is not our turn: `with lease:` around the work, or release it."""
        return self._lock(constant(self._once.template)).try_acquire()

    def _lock(self, name: str) -> Lock[Lease]:
        return Lock(self._once.lock(name), Lease)


class ClientOptions(TypedDict, total=False):
    """The options of a client, which are those of `redlock_async.Redlock`, with the same defaults."""

    ttl: Duration
    wait: Duration | None
    node_timeout: Duration
    retry_delay: Duration
    drift_factor: float
    fencing: bool
    namespace: str
    owner: str | None
    strict_restart: bool


class Redlock:
    """Locks over N independent Redis or Valkey masters, for threads: takes what `redlock_async.Redlock` takes.

    Building one connects nothing and starts nothing; its first use starts the loop's thread, and connects. It may be
    used by all threads of the process, and in forked children. `close()` need not be called at the end of the process.
    """

    def __init__(self, nodes: Iterable[Source], **options: Unpack[ClientOptions]) -> None:
        self._client = AsyncRedlock(nodes, **options)

    @classmethod
    def from_env(cls, environ: Mapping[str, str] = os.environ) -> Self:
        """A client from REDLOCK_NODES (comma-separated), REDLOCK_TTL, REDLOCK_WAIT and so on."""
        nodes, options = from_environment(environ)
        return cls(nodes, **options)

    def __repr__(self) -> str:
        return repr(self._client)

    # Locks

    def __call__(self, name: str, /, *names: str, **options: Unpack[LockOptions]) -> Lock[Lease]:
        """A lock on that name, or on all of them at once."""
        return Lock(self._client(name, *names, **options), Lease)

    lock = __call__

    def fair(self, name: str, /, **options: Unpack[HoldOptions]) -> Lock[Lease]:
        """The lock on that name, given in the order in which it was asked for, across processes."""
        return Lock(self._client.fair(name, **options), Lease)

    def read(self, name: str, /, **options: Unpack[HoldOptions]) -> Lock[Lease]:
        """That name, shared with other readers."""
        return Lock(self._client.read(name, **options), Lease)

    def write(self, name: str, /, **options: Unpack[HoldOptions]) -> Lock[WriteLease]:
        """That name, alone; `lease.downgrade()` lets readers in. The plain lock on it counts as a writer, too."""
        return Lock(self._client.write(name, **options), WriteLease)

    def semaphore(self, name: str, /, permits: int, *, count: int = 1, **options: Unpack[HoldOptions]) -> Semaphore:
        """At most `permits` slots of that name at a time; all who use the name give the same number. Takes `count`."""
        return Semaphore(self._client.semaphore(name, permits=permits, count=count, **options), Lease)

    def latch(
        self, name: str, /, count: int, *, generation: int | str | None = None, retention: Duration = 86_400.0
    ) -> Latch:
        """What opens when `count` different events have been counted down; another round is another generation."""
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
        """Work that runs once in a period, whoever starts it: a decorator, as `locked`; or `try_acquire`, by hand.

        `max_hold` ends the renewal, and not the body: who runs longer ends with LockLost.
        """
        terms = self._client.once(
            name, every=every, hold=hold, retry_failed=retry_failed, ttl=ttl, fencing=fencing, max_hold=max_hold
        )
        return Once(terms)

    @overload
    def locked(
        self,
        template: str,
        *,
        on_conflict: Literal["wait", "raise"] = "wait",
        using: Using | None = None,
        **options: Unpack[LockOptions],
    ) -> Locked: ...

    @overload
    def locked(
        self,
        template: str,
        *,
        on_conflict: Literal["skip"],
        using: Using | None = None,
        **options: Unpack[LockOptions],
    ) -> LockedOrSkipped: ...

    def locked(
        self, template: str, *, on_conflict: Conflict = "wait", using: Using | None = None, **options: Any
    ) -> Any:
        """Decorate a function to run under the lock that its arguments name: `@locked("import:{user_id}")`.

        When somebody else holds it: "wait" waits, "skip" returns None at once, "raise" raises LockTimeout at once.
        `using` makes another kind of lock of the name: `redlock.fair`, or `partial(redlock.semaphore, permits=4)`.
        """
        check_template(template)
        make = maker(self, Lock, on_conflict, using, options)
        return lambda function: _under(make, template, function, on_conflict)

    def _stand_in(self) -> Redlock:
        """What can make locks now, for a decorator to see whether they can be made."""
        client = self._client._stand_in()  # noqa: SLF001 - the two halves of one thing
        if client is self._client:
            return self
        made = Redlock.__new__(Redlock)
        made._client = client  # noqa: SLF001 - as above
        return made

    def attach(self, text: str) -> Lease:
        """The lease that `Lease.detach` turned into a text, here or in another process, which may be an asyncio one.

        It is renewed again from now on. On the machine that detached it, it is valid at once for what was left of it,
        as far as the text knows; elsewhere from its first `extend()`. Entering it with `with` asks the masters first,
        and raises LockLost where the text was used before, or lay for too long.
        """
        lease = run(now, self._client.attach, text)
        return WriteLease(lease) if isinstance(lease, AsyncWriteLease) else Lease(lease)

    # Operators

    def status(self) -> list[NodeStatus]:
        """One record a node, asked just now."""
        return run(self._client.status)

    def inspect(self, name: str) -> Holder | None:
        """Who holds that name, with how many votes and for how long; None if nobody does."""
        return run(self._client.inspect, name)

    def inspect_semaphore(self, name: str) -> SemaphoreStatus | None:
        """How many permits a semaphore has, and who holds which slot; None if it is not in use."""
        return run(self._client.inspect_semaphore, name)

    def locks(self, pattern: str = "*", *, foreign: bool = False) -> list[LockRecord]:
        """What is locked, of every kind, and what attempts have left behind; names by the servers' glob patterns."""
        return run(self._client.locks, pattern, foreign=foreign)

    def force_release(self, name: str) -> bool:
        """Free that name whoever holds it; returns whether anybody did. Asyncio bodies are cancelled, threads go on."""
        return run(self._client.force_release, name)

    def change_permits(self, name: str, permits: int | None) -> None:
        """Set a semaphore's number of permits, for good, also while slots are held; None forgets it; as asyncio's."""
        run(self._client.change_permits, name, permits)

    def statistics(self) -> Statistics:
        """Counters since this client was made, and gauges of this moment."""
        return self._client.statistics()

    def health(self) -> Health:
        """Whether locks can be had: for a readiness probe. No outage makes it raise."""
        return run(self._client.health)

    def on_event(self, callback: Listener, *, answers: bool = False) -> Callable[[], None]:
        """Call that with every `Event`; returns a function that ends it.

        It runs in the loop's thread, where it keeps every lock of the process waiting: hand on what takes time. With
        `answers` also with what each master said to each command, and how long that took.
        """
        return self._client.on_event(callback, answers=answers)

    # Opening and closing

    def __enter__(self) -> Self:
        run(self._client.__aenter__)
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release what is held, end the connections; threads that wait raise. The next use opens new ones."""
        finish(self._client.aclose)


class DefaultRedlock(Redlock):
    """`redlock_async.blocking.redlock`: a client made from the environment at its first use."""

    def __init__(self) -> None:
        # Another than asyncio's, which belongs to the loop that the program runs.
        self._client: AsyncDefaultRedlock = AsyncDefaultRedlock()

    def forget(self) -> None:
        """Be as before the first use: the next one reads the environment again."""
        if self._client.loop is not None:
            self.close()
        self._client.forget()


redlock: Redlock = DefaultRedlock()
"""A client from REDLOCK_NODES and the other REDLOCK_... variables, made at its first use."""
