"""The client: where locks come from."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack, overload

from . import _listing, _operators, _permits
from ._claim import Claim
from ._dial import Target
from ._engine import Engine
from ._errors import ConfigurationError, RedlockError, line, shown
from ._health import Health, check
from ._holding import Holding
from ._keys import Keys
from ._mutex import Mutex
from ._operators import Holder, NodeStatus
from ._permits import SemaphoreStatus
from ._queue import Fair, place_kept
from ._quorum import majority
from ._readwrite import Read, Write
from ._records import LockRecord
from ._settings import (
    Duration,
    HoldOptions,
    LockOptions,
    Options,
    Settings,
    check_names,
    flag,
    from_environment,
    positive,
)
from ._slots import Slots, check_permits, detached
from .events import Events, Listener, Statistics, logger, statistics
from .fair import FairLock
from .latch import Latch
from .lease import Detached, Lease, read_detached
from .lock import Lock
from .locked import Conflict, Locked, LockedOrSkipped, Using, check_template, decorator
from .once import Once, Terms
from .rwlock import ReadLock, WriteLease, WriteLock
from .semaphore import Semaphore

if TYPE_CHECKING:
    from ._dial import Source


class Redlock:
    """Locks over N independent Redis or Valkey masters.

    Building one connects nothing and needs no running loop; its first use connects. It belongs to the loop that first
    used it until that loop is closed.
    """

    def __init__(
        self,
        nodes: Iterable[Source],
        *,
        ttl: Duration = 10.0,
        wait: Duration | None = 10.0,
        node_timeout: Duration = 0.25,
        retry_delay: Duration = 0.2,
        drift_factor: float = 0.01,
        fencing: bool = True,
        namespace: str = "",
        owner: str | None = None,
        strict_restart: bool = False,
    ) -> None:
        self._settings = Settings.checked(
            ttl=ttl,
            wait=wait,
            node_timeout=node_timeout,
            retry_delay=retry_delay,
            drift_factor=drift_factor,
            fencing=fencing,
            namespace=namespace,
            owner=owner,
            strict_restart=strict_restart,
        )
        self._keys = Keys(namespace)
        self._targets = _targets(nodes)
        self._events = Events()
        self._running: Engine | None = None
        self._inherited: list[Engine] = []
        self._usual = _usual(self._keys, fenced=self._settings.options.fencing)

    @classmethod
    def from_env(cls, environ: Mapping[str, str] = os.environ) -> Self:
        """A client from REDLOCK_NODES (comma-separated), REDLOCK_TTL, REDLOCK_WAIT and so on."""
        nodes, options = from_environment(environ)
        return cls(nodes, **options)

    def __repr__(self) -> str:
        return f"<Redlock over {', '.join(target.label for target in self._targets)}>"

    # Locks

    def __call__(self, name: str, /, *names: str, **options: Unpack[LockOptions]) -> Lock:
        """A lock on that name, or on all of them at once.

        It takes `ttl`, `wait`, `fencing`, `renew`, `max_hold`, `hold_at_least` and `reentrant`, which `LockOptions` has
        with their meaning and what holds without them; the other kinds take `HoldOptions`, all of these but the last.
        """
        if not options and not names and type(name) is str:
            usual = self._settings.options  # nothing to check
            return Lock(self._engine, self._usual(name), usual)
        checked = self._checked("a lock", options, LockOptions.__annotations__)
        return Lock(self._engine, self._mutex((name, *names), checked), checked)

    lock = __call__

    def _mutex(self, names: tuple[str, ...], options: Options) -> Mutex:
        return Mutex(self._keys, names, fenced=options.fencing)

    def _checked(
        self, who: str, given: HoldOptions, known: Mapping[str, object] = HoldOptions.__annotations__
    ) -> Options:
        """The client's options with the call's own."""
        settings = self._settings
        if not given:
            return settings.options
        check_names(who, given, known)
        return settings.options.with_overrides(drift_factor=settings.drift_factor, **given)

    def fair(self, name: str, /, **options: Unpack[HoldOptions]) -> FairLock:
        """The lock on that name, given in the order in which it was asked for, across processes."""
        checked = self._checked("a fair lock", options)
        place = place_kept(self._settings.node_timeout)
        return FairLock(self._engine, Fair(self._keys, (name,), fenced=checked.fencing, place=place), checked)

    def latch(
        self, name: str, /, count: int, *, generation: int | str | None = None, retention: Duration = 86_400.0
    ) -> Latch:
        """What opens when `count` different events have been counted down; kept for `retention` after its last use.

        A latch opens once. For another round give another `generation`, which all who take part know, such as a number,
        a date, or the fencing token of who leads: each is a latch of its own, called `name#generation`.
        """
        kept = positive("retention", retention)
        return Latch(self._engine, self._keys, name, generation, count, kept, self._settings.options)

    def semaphore(self, name: str, /, permits: int, *, count: int = 1, **options: Unpack[HoldOptions]) -> Semaphore:
        """At most `permits` slots of that name at a time; all who use the name give the same number. Takes `count`."""
        checked = self._checked("a semaphore, beside permits and count,", options)
        claim = Slots(self._keys, name, permits, fenced=checked.fencing).wanting(count)
        return Semaphore(self._engine, claim, checked)

    def read(self, name: str, /, **options: Unpack[HoldOptions]) -> ReadLock:
        """That name, shared with other readers."""
        checked = self._checked("a read lock", options)
        return ReadLock(self._engine, Read(self._keys, name, fenced=checked.fencing), checked)

    def write(self, name: str, /, **options: Unpack[HoldOptions]) -> WriteLock:
        """That name, alone; `lease.downgrade()` lets readers in. The plain lock on it counts as a writer, too."""
        checked = self._checked("a write lock", options)
        return WriteLock(self._engine, Write(self._keys, name, fenced=checked.fencing), checked)

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
        """Work that runs once in a period, whoever starts it: a decorator, as `locked`; or `try_acquire`, by hand."""
        check_template(name, '@redlock.once("report:{tenant}", every=86_400)')
        terms = Terms.checked(
            every=every, hold=hold, retry_failed=retry_failed, ttl=ttl, fencing=fencing, max_hold=max_hold
        )

        def make(name: str) -> Lock:
            options = terms.of(self._settings.options, self._settings.drift_factor)
            return Lock(self._engine, self._mutex((name,), options), options)

        return Once(make, name)

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
        """Decorate a coroutine function to run under the lock that its arguments name: `@locked("import:{user_id}")`.

        When somebody else holds it: "wait" waits, "skip" returns None at once, "raise" raises LockTimeout at once.
        `using` makes another kind of lock of the name: `redlock.fair`, or `partial(redlock.semaphore, permits=4)`.
        """
        return decorator(self, template, on_conflict, using, options)

    def _stand_in(self) -> Redlock:
        """What can make locks now, for a decorator to see whether they can be made."""
        return self

    def attach(self, text: str) -> Lease:
        """The lease that `Lease.detach` turned into a text, here or in another process.

        It is renewed again from now on. On the machine that detached it, it is valid at once for what was left of it,
        as far as the text knows; elsewhere from its first `extend()`. Entering it with `async with` asks the masters
        first, and raises LockLost where the text was used before, or lay for too long.
        """
        detached = read_detached(text)
        engine, settings = self._engine(), self._settings
        if detached.namespace != settings.namespace:
            raise ConfigurationError(
                f"a lease of namespace {shown(detached.namespace)}, and this client's is {shown(settings.namespace)}: "
                "attach it with a client of the same namespace"
            )
        options = settings.options.with_overrides(
            drift_factor=settings.drift_factor,
            ttl=detached.ttl,
            renew=detached.renew,
            max_hold=detached.max_hold,
            hold_at_least=detached.hold_at_least,
        )
        options = replace(options, retry_failed=detached.retry_failed)
        if detached.kind not in KINDS:
            raise ConfigurationError(
                f"a lease of kind {shown(detached.kind)} is not known to this version of the library"
            )
        claim = KINDS[detached.kind](self._keys, detached)
        holding = Holding(engine, claim, detached.token.encode(), detached.fence, options, engine.now())
        engine.attach(holding, detached.until if detached.readable(engine.world) else None)
        return (WriteLease if isinstance(claim, Write) else Lease)(holding, hearsay=True)

    # Operators

    async def status(self) -> list[NodeStatus]:
        """One record a node, asked just now."""
        engine = self._engine()
        await engine.look()
        return await _operators.status(engine)

    async def inspect(self, name: str) -> Holder | None:
        """Who holds that name, with how many votes and for how long; None if nobody does."""
        return await _operators.inspect(self._engine(), name, self._keys.lock(name))

    async def inspect_semaphore(self, name: str) -> SemaphoreStatus | None:
        """How many permits a semaphore has, and who holds which slot; None if it is not in use."""
        return await _permits.inspect_semaphore(self._engine(), name, self._keys.semaphore(name)[0])

    async def locks(self, pattern: str = "*", *, foreign: bool = False) -> list[LockRecord]:
        """What is locked, of every kind, and what attempts have left behind: names by the servers' own glob patterns.

        Each node is read with SCAN, in portions and on a connection of its own, and then all are asked at once about
        the names that any of them has. A pattern without a wildcard is a name, and is looked up without SCAN. With
        `foreign` every string that expires is taken for a lock, as another library's would be. Takes two node timeouts
        longer where less than a quorum names a holder, to look again.
        """
        return await _listing.locks(self._engine(), self._keys, pattern, foreign=foreign)

    async def force_release(self, name: str) -> bool:
        """Free that name whoever holds it: the lock, all its readers, and all slots of a semaphore of that name.

        The holders' bodies are cancelled. Returns whether there were any.
        """
        return await _operators.force_release(self._engine(), self._keys, name)

    async def change_permits(self, name: str, permits: int | None) -> None:
        """Set a semaphore's number of permits, for good, also while slots are held; None forgets what was set.

        Those who give another number get a ConfigurationError from then on, whether slots are held or not; leases that
        stand go on. Raising it always works. Lowering it raises LockTimeout, which names the holder, while too many
        masters have a slot beyond the new number held, and QuorumUnavailable if too few could be asked; then all is as
        before. Of two changes at the same time one may fail, or both.

        While it runs never more slots are held than the larger number allows, and from its return on never more than
        the new one, until the next change, as long as a majority of the masters keep what they have stored. One that
        was down meanwhile still has the old number: call it again when all are back, to be as safe as before.

        With None the number is again one that its users decide: while slots are held under it no other gets in, and it
        is gone once none has been held for two ttls, or who comes next gives another. QuorumUnavailable if too few
        masters could be asked; those that could not are told when they are back, within two of the longest ttl.
        """
        if permits is None:
            await _permits.forget_permits(self._engine(), name, self._keys.semaphore(name)[0])
            return
        check_permits(permits)
        await _permits.change_permits(self._engine(), name, self._keys.semaphore(name)[0], permits)

    def statistics(self) -> Statistics:
        """Counters since this client was made, and gauges of this moment."""
        # What was inherited through fork() is the parent's, and so is what that holds.
        engine = self._running if self.loop is not None else None
        return statistics(
            self._events.counters,
            held=engine.renewals.live if engine is not None else 0,
            waiting=engine.waiting if engine is not None else 0,
            nodes_up=engine.masters.voters_up if engine is not None else 0,
            nodes=len(self._targets),
            needed=majority(len(self._targets)),
            states=engine.masters.states() if engine is not None else {},
        )

    async def health(self) -> Health:
        """Whether locks can be had: each master is sent one TIME on the connection there is, and given `node_timeout`.

        No outage makes it raise. Cheap enough for a readiness probe each second.
        """
        return await check(self._engine())

    def on_event(self, callback: Listener, *, answers: bool = False) -> Callable[[], None]:
        """Call that with every `Event`; returns a function that ends it. It runs on the loop: keep it short.

        With `answers` also with what each master said to each command, and how long that took: "answered".
        """
        if not callable(callback):
            raise ConfigurationError(f"on_event takes a callable, not {shown(callback)}")
        return self._events.listen(callback, answers=flag("answers", answers))

    # Opening and closing

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop it is in use on; None before its first use, after `aclose()`, and when that loop is closed."""
        engine = self._running
        if engine is None or engine.closed or engine.inherited or engine.loop.is_closed():
            return None
        return engine.loop

    async def __aenter__(self) -> Self:
        await self._engine().start(self._settings.options.wait)
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Release what is held, end the connections; the next use opens new ones.

        Raises ConfigurationError, and changes nothing, on another event loop than the one it is in use on.
        """
        engine = self._retire(asyncio.get_running_loop())
        if engine is not None:
            engine.close()
            await engine.closed_connections()

    def _engine(self) -> Engine:
        """What runs on this loop, begun if need be."""
        engine = self._running
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            raise ConfigurationError(
                "locks are taken inside a running event loop: call this from a coroutine"
            ) from None
        if engine is not None and engine.loop is loop and not engine.closed and not engine.inherited:
            return engine
        self._retire(loop)
        self._running = engine = Engine(self._targets, self._settings, self._keys, self._events)
        return engine

    def _retire(self, loop: asyncio.AbstractEventLoop) -> Engine | None:
        """Nothing runs any more; returns what did on this loop, and may be closed there. Raises if another uses it."""
        engine = self._running
        if engine is None:
            return None
        if engine.inherited:
            # Inherited through fork(): its sockets and its loop are the parent's. Neither used, closed, nor collected.
            self._inherited.append(engine)
        elif engine.loop is not loop and not engine.loop.is_closed() and not engine.closed:
            raise ConfigurationError(
                "this Redlock is in use on another event loop that is still open: make one Redlock for each loop, "
                "or aclose() it there first"
            )
        self._running = None
        return engine if engine.loop is loop and not engine.inherited else None


KINDS: dict[str, Callable[[Keys, Detached], Claim]] = {
    Mutex.kind: lambda keys, lease: Mutex(keys, lease.names, fenced=lease.fence is not None),
    Read.kind: lambda keys, lease: Read(keys, lease.names[0], fenced=lease.fence is not None),
    Write.kind: lambda keys, lease: Write(keys, lease.names[0], fenced=lease.fence is not None),
    Fair.kind: lambda keys, lease: Fair(keys, lease.names, fenced=lease.fence is not None),
    Slots.kind: lambda keys, lease: detached(keys, lease.names, lease.details, fenced=lease.fence is not None),
}
"""How a detached lease is claimed again."""


def _usual(keys: Keys, *, fenced: bool) -> Callable[[str], Mutex]:
    """What to claim for one name; names are mostly locked again and again."""
    return lru_cache(1024)(lambda name: Mutex(keys, (name,), fenced=fenced))


def _targets(nodes: Iterable[Source]) -> list[Target]:
    if isinstance(nodes, str | bytes):
        raise ConfigurationError("nodes is a list of URLs or clients, one for each master, not one string")
    if not isinstance(nodes, Iterable):
        raise ConfigurationError(f"nodes is a list of URLs or clients, one for each master, not {type(nodes).__name__}")
    targets = [Target(node) for node in nodes]
    if not targets:
        raise ConfigurationError("no nodes: give the URLs of N independent masters, best 3 or 5")
    seen: set[str] = set()
    for target in targets:
        if target.address in seen:
            raise ConfigurationError(
                f"node {line(target.address, 200)} is given twice: two names of one server are one vote, not two"
            )
        seen.add(target.address)
    if len(targets) % 2 == 0:
        logger.warning(
            "%d nodes tolerate no more failures than %d would: an odd number is better", len(targets), len(targets) - 1
        )
    return targets


def stand_in() -> Redlock:
    """A client to see with whether a lock can be made, whatever the settings will be; its locks are never taken."""
    return Redlock(["redis://stand-in"], drift_factor=0.0)


CONFIGURED = frozenset({"_events", "_inherited", "_keys", "_running", "_settings", "_targets", "_usual"})
"""What a client is made of, and the one from the environment has from its first use on."""


class DefaultRedlock(Redlock):
    """`redlock_async.redlock`: a client made from the environment at its first use."""

    def __init__(self) -> None:
        # Configured on first use, because importing a package must neither fail nor read the environment.
        self._configuring = threading.Lock()

    def __getattr__(self, name: str) -> Any:
        if name not in CONFIGURED:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        with self._configuring:
            if name not in self.__dict__:
                nodes, options = from_environment(os.environ)
                self.__dict__.update(Redlock(nodes, **options).__dict__)
        return self.__dict__[name]

    def _stand_in(self) -> Redlock:
        return self if "_settings" in self.__dict__ else stand_in()

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop it is in use on; asking does not configure it."""
        return super().loop if "_running" in self.__dict__ else None

    def forget(self) -> None:
        """Be as before the first use: the next one reads the environment again. `aclose()` it before."""
        with self._configuring:
            if self.loop is not None:
                raise RedlockError("this client is still in use: aclose() it before it forgets its configuration")
            for name in CONFIGURED:
                self.__dict__.pop(name, None)

    def __repr__(self) -> str:
        return super().__repr__() if "_settings" in self.__dict__ else "<Redlock from the environment, not used yet>"
