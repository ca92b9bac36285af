"""The locks that a client makes: plain, fair, read, write and semaphore."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, TypeVar

from redlock_async._kinds.kind import LockKind
from redlock_async._kinds.rwlock import Read
from redlock_async._kinds.semaphore import Slots
from redlock_async._rounds.round import quoted
from redlock_async._rules.settings import DEFAULT, Default, Duration, Options
from redlock_async._runtime.acquisition import acquire
from redlock_async._runtime.downgrade import downgrade
from redlock_async._runtime.held_lease import HeldLease, caller
from redlock_async._runtime.self_deadlock import own_read_leases
from redlock_async._runtime.session import Session

from .errors import LockTimeout
from .lease import Acquirable, Lease

L = TypeVar("L", bound=Lease)


class BaseLock(Acquirable[L]):
    """One kind of lock on some names; its leases are of type L."""

    __slots__ = ("_kind", "_options", "_session")

    _lease: type[L]

    def __init__(self, session: Callable[[], Session], kind: LockKind, options: Options) -> None:
        self._entered = {}
        self._session = session
        self._kind = kind
        self._options = options

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {quoted(self._kind.names)}>"

    if not TYPE_CHECKING:  # type checkers report a missing `async` themselves

        def __enter__(self):
            raise TypeError(f"{self!r} needs async with, in an async def. In threads, use redlock_async.blocking")

        def __exit__(self, *_):  # Python looks for it before it calls __enter__
            raise NotImplementedError

    @property
    def names(self) -> tuple[str, ...]:
        """The names that it locks."""
        return self._kind.names

    async def acquire(self, *, wait: Duration | Default | None = DEFAULT) -> L:
        """Wait for the lock, and return a lease.

        Raise LockTimeout if another client holds it for longer than `wait` (0: try once, None: wait forever, not given:
        the lock's own), QuorumUnavailable if too few nodes can vote until then.
        """
        session = self._session()
        return self._lease(session, await self._hold(session, self._kind, wait))

    def _hold(
        self, session: Session, kind: LockKind, wait: Duration | Default | None
    ) -> Coroutine[object, object, HeldLease]:
        """Begin to acquire the lock, as that kind."""
        options = self._options if wait is DEFAULT else self._options.waiting(wait)
        who = caller(session.context.loop)
        if options.reentrant and (held := session.registry.entered_by(kind, who)) is not None:
            return _hold_again(held)
        return acquire(session, kind, options, who)

    async def try_acquire(self) -> L | None:
        """Return a lease, or None while another client holds the lock.

        Raise QuorumUnavailable if too few nodes can vote: an outage is never None.
        """
        try:
            return await self.acquire(wait=0)
        except LockTimeout:
            return None


async def _hold_again(held: HeldLease) -> HeldLease:
    held.enter_again()
    return held


class Lock(BaseLock[Lease]):
    """Mutual exclusion on one name, or on several that are taken all or none.

    Guarantee: while a lease is valid, no other client of the same nodes has one on any of its names.
    What can break it: see `Lease`.
    Cost: one round trip to acquire it (a second one if nodes disagree on the fence, which a restarted node causes
    once), one to release it; waiting costs the nodes next to nothing, however many tasks wait.
    Cancellation: cancelling `acquire` is prompt and leaves no key behind on any node.

    A lock object is cheap, holds no lease, and may be shared by tasks: what belongs to a holder lives on its `Lease`.
    """

    __slots__ = ()

    _lease = Lease


class FairLock(BaseLock[Lease]):
    """Mutual exclusion on one name, first come, first served among the tasks of all processes.

    Guarantee: as for `Lock`, with which it excludes itself on the same name; and a waiter that is in the queue on a
    majority of the nodes is served before all that begin to queue after that. Queueing takes two round trips.
    What can break it: see `Lease`. The order is kept among fair locks: a plain lock on the same name, of this library
    or another, does not queue and may get in between. A waiter whose event loop or network stops for longer than its
    queue entry is kept (1.5 s, or six node timeouts if that is more) is overtaken meanwhile, and one that dies at the
    head costs the others as much.
    Cost: one round trip if it is free and no task waits, as the plain lock. Otherwise a hand-over takes two, and costs
    a node five to eight commands, however long the queue is: only its head is notified of a release, and only the next
    of an entry. Waiting costs a node two to four commands a second for each process, and one or two more for each
    hundred waiters in one.
    Cancellation: cancelling `acquire` is prompt, and leaves neither a key nor a queue entry behind.
    """

    __slots__ = ()

    _lease = Lease


class Semaphore(BaseLock[Lease]):
    """At most `permits` slots of one name at the same time.

    Guarantee: while a lease is valid, no other client of the same nodes has a valid one on any of its slots, and never
    more than `permits` slots are held. All users of a name must pass the same number: another one raises
    ConfigurationError while any slot is held, and always once an operator has set the number with
    `Redlock.change_permits`. A lease's fencing token is larger than the tokens of all earlier holders of its slots.
    What can break it: see `Lease`.
    Cost: one round trip to acquire slots, or two if those that are tried first are taken; one to release them. Every
    attempt names all the slots to every node, and one that finds its slot taken makes the node read all of them: keep
    `permits` in the tens or low hundreds. Waiters are woken by the release of any slot, and by each renewal of one.
    There is no order. A waiter for many slots may be overtaken by those that want few, as each slot that is freed is
    enough for them. After sixteen failed waits, or three seconds, it holds back all waiters that want fewer until it
    succeeds or gives up: they wait meanwhile even if a slot is free, and up to three seconds behind one that died
    waiting. Of waiters for the same number only one does so at a time, and between two of them those that want few have
    a moment. While it holds them back, each process that waits asks each node some four times a second.
    Cancellation: cancelling `acquire` is prompt and leaves no slot taken on any node.
    """

    __slots__ = ()

    _lease = Lease
    _kind: Slots

    @property
    def permits(self) -> int:
        """How many slots there are."""
        return self._kind.permits

    async def acquire(self, *, wait: Duration | Default | None = DEFAULT, count: int | None = None) -> Lease:
        """Wait for `count` slots, or as many as the semaphore was made for, all or nothing; return one lease on them.

        Raise LockTimeout if they are not free within `wait`, QuorumUnavailable if too few nodes can vote until then.
        """
        session, kind = self._session(), self._kind
        held = await self._hold(session, kind if count is None else kind.with_count(count), wait)
        return self._lease(session, held)

    async def try_acquire(self, *, count: int | None = None) -> Lease | None:
        """Return one lease on that many slots, or None while too few are free. Raise QuorumUnavailable in an outage."""
        try:
            return await self.acquire(wait=0, count=count)
        except LockTimeout:
            return None


class ReadLock(BaseLock[Lease]):
    """A name shared with other readers.

    Guarantee: while a lease is valid, no writer of the name has a valid one: neither `write_lock(name)`, nor the plain
    lock `redlock(name)`, nor any other Redlock client of the same nodes. Its fencing token is larger than every
    earlier writer's and smaller than every later writer's; readers may share one.
    What can break it: see `Lease`. A reader freed with `force_release` learns of it at once, as any holder does; one
    whose keys are deleted by other means learns at its next renewal, a third of the ttl later at most.
    Cost: one round trip to acquire it (a second one if nodes disagree on the fence, as they do after several first
    readers at once), one to release it. New readers wait while a writer waits; waiting costs each node a few commands a
    second. A reader that died keeps plain locks out for up to half a ttl, and at most a second, longer than its ttl.
    Cancellation: cancelling `acquire` is prompt and leaves nothing behind on any node.
    """

    __slots__ = ()

    _lease = Lease
    _kind: Read

    async def acquire(self, *, wait: Duration | Default | None = DEFAULT) -> Lease:
        """Wait for the lock, and return a lease; raises as for any lock.

        A task that reads the name already does not wait behind a waiting writer, or both would wait forever.
        """
        session, kind = self._session(), self._kind
        own = own_read_leases(session.registry, kind)
        return self._lease(session, await self._hold(session, kind.nested_in(own[0].token) if own else kind, wait))


class WriteLease(Lease):
    """A writer's lease, which can become a reader's without a gap.

    Guarantee: as for `Lease`; and between it and the lease that `downgrade` returns no writer has a valid one.
    What can break it: see `Lease`.
    Cost: as for `Lease`; `downgrade` is one round trip.
    Cancellation: as for `Lease`; cancelling `downgrade` gives up both, and leaves nothing behind on any node.
    """

    __slots__ = ()

    async def downgrade(self) -> Lease:
        """Let readers in: return a read lease with the same fencing token, and end this lease.

        No writer comes in between. The read lease is yours to release, or to enter: `async with read:`. Leaving this
        lease's own block does not end it, and code that still runs in that block is no longer protected. Raise LockLost
        or QuorumUnavailable if no majority confirms it; then, and if it is cancelled, nothing is left on any node.
        """
        return Lease(self._session, await downgrade(self._session, self._held))


class WriteLock(BaseLock[WriteLease]):
    """A name held alone: it waits for the readers to leave, and lets no new ones in meanwhile.

    Guarantee: while a lease is valid, no other client of the same nodes has a valid one on the name: no reader, no
    writer, no holder of the plain lock `redlock(name)`, which is a writer too, but one that does not keep readers out
    while it waits. A writer that waits for readers waits for those that are in, and lets no others in; one that waits
    for another writer, or behind a plain lock of its own process, may be overtaken by readers when that has left.
    What can break it: see `Lease`.
    Cost: as a plain lock. Waiting for readers, it asks each node about once a second. New readers wait up to three
    seconds for a writer that died waiting.
    Cancellation: cancelling `acquire` is prompt, leaves nothing behind on any node, and lets the readers in again.
    """

    __slots__ = ()

    _lease = WriteLease
