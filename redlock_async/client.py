"""The client, which makes locks and answers operators."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack, overload

from redlock_async._admin.health import Health, check
from redlock_async._admin.listing import list_locks
from redlock_async._admin.permits import SemaphoreStatus, change_permits, forget_permits, inspect_semaphore
from redlock_async._admin.records import LockRecord
from redlock_async._admin.status import Holder, NodeStatus, force_release, inspect, status
from redlock_async._kinds.fair import Fair, entry_ttl
from redlock_async._kinds.kind import LockKind
from redlock_async._kinds.mutex import Mutex
from redlock_async._kinds.rwlock import Read, Write
from redlock_async._kinds.semaphore import Slots, check_permits, from_details
from redlock_async._rules.detached import Detached, read_detached
from redlock_async._rules.keys import Keys, require_one_slot
from redlock_async._rules.settings import (
    Duration,
    HoldOptions,
    LockOptions,
    Options,
    Settings,
    check_names,
    checked_value,
    flag,
    from_environment,
    positive,
)
from redlock_async._runtime.held_lease import HeldLease
from redlock_async._runtime.session import Session
from redlock_async._transport.cluster_url import show
from redlock_async._transport.dial import Target
from redlock_async._transport.environment import default_owner

from .decorators import Conflict, Locked, LockedOrSkipped, LockFactory, check_template, lock_builder
from .election import Election
from .errors import ConfigurationError, RedlockError, one_line, short_repr
from .events import Events, Listener, Statistics, logger, statistics
from .latch import Latch
from .lease import Lease
from .locks import BaseLock, FairLock, Lock, ReadLock, Semaphore, WriteLease, WriteLock
from .once import Once, PeriodOptions

if TYPE_CHECKING:
    from redlock_async._transport.dial import Source


class Redlock:
    """A client that makes locks over N independent Redis or Valkey nodes.

    Creating one connects nothing and needs no event loop; the first use connects. A client is bound to the first event
    loop that uses it, until you call `aclose()` or that loop closes. Raises ConfigurationError for invalid options.
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
        quorum: int | None = None,
    ) -> None:
        self._settings = Settings.checked(
            ttl=ttl,
            wait=wait,
            node_timeout=node_timeout,
            retry_delay=retry_delay,
            drift_factor=drift_factor,
            fencing=fencing,
            namespace=namespace,
            owner=default_owner() if owner is None else owner,
            strict_restart=strict_restart,
            quorum=quorum,
        )
        self._keys = Keys(namespace)
        self._targets = _targets(nodes)
        self._quorum = self._settings.quorum_of(len(self._targets))
        self._clustered = any(target.seeds for target in self._targets)
        if self._clustered and not self._keys.fits_clusters:
            raise ConfigurationError(
                f"namespace must have a }} behind its {{ where a node is a cluster, got {short_repr(namespace)}: what "
                "is in braces decides on which shard a key is"
            )
        self._events = Events()
        self._running: Session | None = None
        self._inherited: list[Session] = []
        self._usual = _usual(self._keys, fenced=self._settings.options.fencing)

    @classmethod
    def from_env(cls, environ: Mapping[str, str] = os.environ) -> Self:
        """Create a client from REDLOCK_NODES (comma-separated), REDLOCK_TTL, REDLOCK_WAIT and so on.

        Raises ConfigurationError if a variable is invalid, or REDLOCK_NODES is not set.
        """
        nodes, options = from_environment(environ)
        return cls(nodes, **options)

    def __repr__(self) -> str:
        return f"<Redlock over {', '.join(target.label for target in self._targets)}>"

    # Locks

    def __call__(self, name: str, /, *names: str, **options: Unpack[LockOptions]) -> Lock:
        """Return a lock on one name, or on several names at once, all or nothing.

        The options are `ttl`, `wait`, `fencing`, `renew`, `max_hold`, `min_hold`, `takeover_delay` and `reentrant`;
        `LockOptions` describes them with their defaults. The other kinds of lock take `HoldOptions`, which is all of
        them except `reentrant`.
        """
        if not options and not names and type(name) is str:
            usual = self._settings.options  # checked already
            return Lock(self._session, self._usual(name), usual)
        checked = self._checked("a lock", options, LockOptions.__annotations__)
        return Lock(self._session, self._mutex((name, *names), checked), checked)

    lock = __call__

    def _mutex(self, names: tuple[str, ...], options: Options) -> Mutex:
        kind = Mutex(self._keys, names, fenced=options.fencing)
        if self._clustered and len(kind.keys) > 1:
            require_one_slot(kind.names, kind.keys)
        return kind

    def _checked(
        self, who: str, given: HoldOptions, known: Mapping[str, object] = HoldOptions.__annotations__
    ) -> Options:
        """Merge the client's options with this call's."""
        settings = self._settings
        if not given:
            return settings.options
        check_names(who, given, known)
        return settings.options.with_overrides(drift_factor=settings.drift_factor, **given)

    def fair_lock(self, name: str, /, **options: Unpack[HoldOptions]) -> FairLock:
        """Return a lock on `name` that is granted first come, first served, across processes."""
        checked = self._checked("a fair lock", options)
        return FairLock(
            self._session,
            Fair(self._keys, (name,), fenced=checked.fencing, entry=entry_ttl(self._settings.node_timeout)),
            checked,
        )

    def latch(
        self, name: str, /, count: int, *, generation: int | str | None = None, retention: Duration = 86_400.0
    ) -> Latch:
        """Return a latch that opens once `count` different events were counted down, and stays open.

        The nodes keep it for `retention` after its last use. For another round, pass another `generation` that all
        participants know, such as a number, a date, or the fencing token of a leader. Each generation is a separate
        latch, named `name#generation`.
        """
        kept = positive("retention", retention)
        return Latch(self._session, self._keys, name, generation, count, kept, self._settings.options)

    def semaphore(self, name: str, /, permits: int, *, count: int = 1, **options: Unpack[HoldOptions]) -> Semaphore:
        """Return a semaphore of `permits` slots, of which each lease takes `count`.

        All users of the name must pass the same `permits`.
        """
        checked = self._checked("a semaphore, beside permits and count,", options)
        kind = Slots(self._keys, name, permits, fenced=checked.fencing).with_count(count)
        return Semaphore(self._session, kind, checked)

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
        """Return an election, in which this client is a candidate or an observer.

        `value` is what observers learn of this candidate when it leads, such as its address: text of at most 200 bytes;
        by default the owner label. A term is the plain lock on `name`, so use the name for the election only.
        """
        options = self._checked("an election", {"ttl": ttl, "max_hold": max_hold, "takeover_delay": takeover_delay})
        label = None if value is None else checked_value(value)
        return Election(self._session, self._keys, name, replace(options, fencing=True, label=label))

    def read_lock(self, name: str, /, **options: Unpack[HoldOptions]) -> ReadLock:
        """Return a shared (reader) lock on `name`."""
        checked = self._checked("a read lock", options)
        return ReadLock(self._session, Read(self._keys, name, fenced=checked.fencing), checked)

    def write_lock(self, name: str, /, **options: Unpack[HoldOptions]) -> WriteLock:
        """Return an exclusive (writer) lock on `name`; `lease.downgrade()` turns its lease into a reader's.

        The plain lock on the same name counts as a writer, too.
        """
        checked = self._checked("a write lock", options)
        return WriteLock(self._session, Write(self._keys, name, fenced=checked.fencing), checked)

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

        Without a function to decorate, call `try_acquire` on it. Raises ConfigurationError for invalid options.
        """
        check_template(name, '@redlock.once("report:{tenant}", every=86_400)')
        period = PeriodOptions(
            every=every, hold=hold, retry_failed=retry_failed, ttl=ttl, fencing=fencing, max_hold=max_hold
        )

        def lock(name: str) -> Lock:
            options = period.of(self._settings.options, self._settings.drift_factor)
            return Lock(self._session, self._mutex((name,), options), options)

        return Once(lock, name)

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
        """Decorate a coroutine function to run under the lock that its arguments name: `@locked("import:{user_id}")`.

        If another client holds the lock, "wait" waits, "skip" returns None at once, and "raise" raises LockTimeout at
        once. For another kind of lock pass `factory=redlock.fair_lock`, or `factory=partial(redlock.semaphore,
        permits=4)`. Raises ConfigurationError for invalid arguments.
        """
        make = lock_builder(self, BaseLock, template, on_conflict, factory, options)
        return (LockedOrSkipped if on_conflict == "skip" else Locked)(make, template, on_conflict)

    def _checkable(self) -> Redlock:
        """Return a client that can make locks now, for a decorator that checks its arguments."""
        return self

    def attach(self, text: str) -> Lease:
        """Return the lease that `Lease.detach` serialized, in this process or another one, and renew it from now on.

        On the machine that detached it, the lease is valid at once for its remaining time as recorded in the text, but
        never for longer than its ttl; on other machines it is valid after the first `extend()`. Entering it with
        `async with` asks the nodes first, and raises LockLost if the text was used before, or is too old. Raises
        ConfigurationError if the text was changed by accident; `Lease.detach` says what its checksum proves.
        """
        detached = read_detached(text)
        session, settings = self._session(), self._settings
        if detached.namespace != settings.namespace:
            raise ConfigurationError(
                f"cannot attach a lease of namespace {short_repr(detached.namespace)}: this client's namespace is "
                f"{short_repr(settings.namespace)}. Attach it with a client of the same namespace"
            )
        options = settings.options.with_overrides(
            drift_factor=settings.drift_factor,
            ttl=detached.ttl,
            renew=detached.renew,
            max_hold=detached.max_hold,
            min_hold=detached.min_hold,
            takeover_delay=detached.takeover_delay,
        )
        options = replace(options, retry_failed=detached.retry_failed)
        if detached.kind not in KINDS:
            raise ConfigurationError(
                f"cannot attach a lease of kind {short_repr(detached.kind)}: unknown to this version of the library"
            )
        kind, context = KINDS[detached.kind](self._keys, detached), session.context
        if self._clustered and isinstance(kind, Mutex):
            require_one_slot(kind.names, kind.keys)
        held = HeldLease(context, kind, detached.token.encode(), detached.fence, options, context.now())
        readable = detached.readable(context.environment.clock())
        session.registry.attach(held, detached.until if readable else None)
        return (WriteLease if isinstance(kind, Write) else Lease)(session, held, unverified=True)

    # Operators

    async def status(self) -> list[NodeStatus]:
        """Query every node and return one `NodeStatus` per node."""
        session = self._session()
        await session.look()
        return await status(session.context)

    async def inspect(self, name: str) -> Holder | None:
        """Return the holder of a lock, with its votes and remaining time; None if the lock is free."""
        key = self._keys.lock(name)
        return await inspect(self._session().context, name, key)

    async def inspect_semaphore(self, name: str) -> SemaphoreStatus | None:
        """Return the number of permits of a semaphore, and the holder of each slot; None if it is not in use."""
        key, _ = self._keys.semaphore(name)
        return await inspect_semaphore(self._session().context, name, key)

    async def list_locks(self, pattern: str = "*", *, include_foreign: bool = False) -> list[LockRecord]:
        """List locks of every kind, and the leftovers of failed attempts, by the servers' glob pattern for names.

        Reads each node with SCAN, in portions and on a separate connection, and then asks all nodes at once about the
        names that any of them has. A pattern without a wildcard is a name, and needs no SCAN. `include_foreign` also
        lists every other string key that expires, as the locks of another library do. If less than a quorum names a
        holder, it looks a second time, which takes two node timeouts more.
        """
        return await list_locks(self._session().context, self._keys, pattern, include_foreign=include_foreign)

    async def force_release(self, name: str) -> bool:
        """Free a name although it is held: the lock, all its readers, and all slots of a semaphore of that name.

        The holders' blocks are cancelled. Returns whether there were any holders.
        """
        return await force_release(self._session(), self._keys, name)

    async def change_permits(self, name: str, permits: int | None) -> None:
        """Set a semaphore's number of permits permanently, even while slots are held; None removes the setting.

        Clients that pass another number get a ConfigurationError from then on, whether slots are held or not; existing
        leases are unaffected. Increasing the number always works. Decreasing it raises LockTimeout, which names the
        holder, while too many nodes have a slot beyond the new number held, and QuorumUnavailable if too few nodes
        answered; nothing has changed then. If two changes run at the same time, one of them or both may fail.

        During the call no more slots are held than the larger number allows. After it returns, and until the next
        change, no more are held than the new number allows, as long as a majority of the nodes keep their data. A node
        that was down meanwhile still has the old number: repeat the call when all nodes are back.

        With None, the users of the semaphore decide the number again. While slots are held under the old number, no
        client that passes another one gets in. The old number is gone once no slot has been held for two ttls, or
        the next client passes another number. Raises QuorumUnavailable if too few nodes answered; unreachable nodes
        follow when they are back, within two of the longest ttl.
        """
        key, _ = self._keys.semaphore(name)
        if permits is None:
            await forget_permits(self._session().context, name, key)
            return
        check_permits(permits)
        await change_permits(self._session().context, name, key, permits)

    def statistics(self) -> Statistics:
        """Return the counters since this client was created, and the current gauges."""
        # After fork(), a session that was inherited belongs to the parent, and so do its leases.
        session = self._running if self.loop is not None else None
        membership = None if session is None else session.context.membership
        return statistics(
            self._events.counters,
            held=0 if session is None else session.registry.count,
            waiting=0 if session is None else session.waiting,
            nodes_up=0 if membership is None else membership.voters_up,
            nodes=len(self._targets),
            quorum=self._quorum,
            node_states={} if membership is None else membership.node_states(),
        )

    async def health(self) -> Health:
        """Check whether a quorum of nodes can vote. Never raises because of an outage.

        Sends each node one TIME on its open connection and waits up to `node_timeout`, which is cheap enough for a
        readiness probe every second.
        """
        return await check(self._session().context)

    def on_event(self, callback: Listener, *, node_replies: bool = False) -> Callable[[], None]:
        """Call `callback` with every `Event`; return a function that unsubscribes it.

        The callback runs on the event loop, so keep it short. With `node_replies=True` it also gets events of kind
        "node_replies", which hold each node's reply to a command and how long it took. Raises ConfigurationError if
        `callback` cannot be called.
        """
        if not callable(callback):
            raise ConfigurationError(f"the callback of on_event must be a callable, got {short_repr(callback)}")
        return self._events.listen(callback, node_replies=flag("node_replies", node_replies))

    # Opening and closing

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop that uses this client; None before the first use, and after the client or loop is closed."""
        if self._running is None:
            return None
        context = self._running.context
        return None if context.closed or context.inherited or context.loop.is_closed() else context.loop

    async def __aenter__(self) -> Self:
        await self._session().context.membership.look(self._settings.options.wait)
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Release all leases and close the connections; the next use opens new ones.

        Raises ConfigurationError, and changes nothing, if another event loop that is still open uses this client.
        """
        session = self._retire(asyncio.get_running_loop())
        if session is not None:
            session.close()
            await session.closed_connections()

    def _session(self) -> Session:
        """Return the session of the running event loop; create it on first use."""
        session = self._running
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            raise ConfigurationError(
                "no running event loop: call this from a coroutine, or use redlock_async.blocking"
            ) from None
        if session is not None:
            context = session.context
            if context.loop is loop and not context.closed and not context.inherited:
                return session
        self._retire(loop)
        self._running = session = Session(self._targets, self._settings, self._keys, self._events)
        return session

    def _retire(self, loop: asyncio.AbstractEventLoop) -> Session | None:
        """Detach the session; return it if it belongs to this loop and may be closed here.

        Raises ConfigurationError if another event loop uses it.
        """
        session = self._running
        if session is None:
            return None
        context = session.context
        if context.inherited:
            # Inherited through fork(): its sockets and its loop are the parent's, so it is kept, and never used or
            # closed.
            self._inherited.append(session)
        elif context.loop is not loop and not context.loop.is_closed() and not context.closed:
            raise ConfigurationError(
                "this Redlock is in use on another event loop that is still open: create one Redlock for each loop, "
                "or aclose() it there first"
            )
        self._running = None
        return session if context.loop is loop and not context.inherited else None


KINDS: dict[str, Callable[[Keys, Detached], LockKind]] = {
    Mutex.label: lambda keys, lease: Mutex(keys, lease.names, fenced=lease.fence is not None),
    Read.label: lambda keys, lease: Read(keys, lease.names[0], fenced=lease.fence is not None),
    Write.label: lambda keys, lease: Write(keys, lease.names[0], fenced=lease.fence is not None),
    Fair.label: lambda keys, lease: Fair(keys, lease.names, fenced=lease.fence is not None),
    Slots.label: lambda keys, lease: from_details(keys, lease.names, lease.details, fenced=lease.fence is not None),
}
"""How to rebuild the kind of a detached lease."""


def _usual(keys: Keys, *, fenced: bool) -> Callable[[str], Mutex]:
    """Return a cached factory of mutexes, because most names are locked repeatedly."""
    return lru_cache(1024)(lambda name: Mutex(keys, (name,), fenced=fenced))


def _targets(nodes: Iterable[Source]) -> list[Target]:
    if isinstance(nodes, str | bytes):
        raise ConfigurationError("nodes must be a list of URLs or clients, one for each node, got one string")
    if not isinstance(nodes, Iterable):
        raise ConfigurationError(
            f"nodes must be a list of URLs or clients, one for each node, got {type(nodes).__name__}"
        )
    targets = [Target(node) for node in nodes]
    if not targets:
        raise ConfigurationError("nodes is empty: give the URLs of N independent nodes, preferably 3 or 5")
    seen: set[str] = set()
    for target in targets:
        addresses = {target.address, *(f"cluster:{show(*seed)}" for seed in target.seeds)}
        if addresses & seen:
            raise ConfigurationError(
                f"node {one_line(target.address, 200)} is listed twice. Each server has one vote, so list it once"
            )
        seen |= addresses
    if len(targets) % 2 == 0:
        logger.warning(
            "redlock: %d nodes tolerate no more failures than %d: use an odd number",
            len(targets),
            len(targets) - 1,
        )
    return targets


def placeholder() -> Redlock:
    """Return a client for checking whether a lock can be made, before the settings are known; it never connects."""
    return Redlock(["redis://placeholder"], drift_factor=0.0)


CONFIGURED = frozenset(
    {"_clustered", "_events", "_inherited", "_keys", "_quorum", "_running", "_settings", "_targets", "_usual"}
)
"""The attributes of a client, which the default client gets on first use."""


class DefaultRedlock(Redlock):
    """The client `redlock_async.redlock`, which reads its settings from the environment on first use."""

    def __init__(self) -> None:
        # Importing a package must neither fail nor read the environment.
        self._configuring = threading.Lock()

    def __getattr__(self, name: str) -> Any:
        if name not in CONFIGURED:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        with self._configuring:
            if name not in self.__dict__:
                nodes, options = from_environment(os.environ)
                self.__dict__.update(Redlock(nodes, **options).__dict__)
        return self.__dict__[name]

    def _checkable(self) -> Redlock:
        return self if "_settings" in self.__dict__ else placeholder()

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop that uses this client; reading it does not read the environment."""
        return super().loop if "_running" in self.__dict__ else None

    def reset(self) -> None:
        """Forget the settings, so that the next use reads the environment again. Call `aclose()` first.

        Raises RedlockError if the client is still in use.
        """
        with self._configuring:
            if self.loop is not None:
                raise RedlockError("cannot reset a client that is in use: call aclose() first")
            for name in CONFIGURED:
                self.__dict__.pop(name, None)

    def __repr__(self) -> str:
        return super().__repr__() if "_settings" in self.__dict__ else "<Redlock from the environment, not used yet>"
