"""The counting semaphore."""

from __future__ import annotations

from ._errors import LockTimeout
from ._primitive import Primitive
from ._settings import DEFAULT, Default, Duration
from ._slots import Slots
from .lease import Lease


class Semaphore(Primitive[Lease]):
    """At most `permits` slots of one name at the same time: one for each holder, or several for who asks for them.

    Guarantee: while leases on `permits` slots are valid, no other client of the same masters has a valid one. All users
    of a name must give the same number: another one is a ConfigurationError while any slot is held, and for good once
    an operator has set the number with `Redlock.change_permits`. A lease's fencing token is larger than that of every
    earlier holder of each of its slots.
    What can break it: see `Lease`.
    Cost: one round trip to take slots, or two when those that are tried first are taken; one to release them. Every
    attempt names all the slots to every node, and one that finds its slot taken makes the node read them all: keep
    `permits` in the tens or low hundreds. Waiters are woken by the release of any slot, and by each renewal of one.
    There is no order. One who wants many may be passed by those who want few, as each slot that is freed is enough for
    them. After sixteen waits in vain, or three seconds, it holds back all who want fewer until it is in or gives up:
    they wait meanwhile even where a slot is free, and up to three seconds behind one that died waiting. Of those who
    want as many only one does so at a time, and between two of them those who want few have a moment. While it holds
    them back, each process that waits asks each node some four times a second.
    Cancellation: cancelling `acquire` is prompt and leaves no slot taken on any node.
    """

    __slots__ = ()

    _lease = Lease
    _claim: Slots

    @property
    def permits(self) -> int:
        """How many slots there are."""
        return self._claim.permits

    async def acquire(self, wait: Duration | Default | None = DEFAULT, *, count: int | None = None) -> Lease:
        """One lease on `count` slots, or as many as the semaphore was made for, all or nothing; else as any lock."""
        return await self._acquire(self._claim if count is None else self._claim.wanting(count), wait)

    async def try_acquire(self, *, count: int | None = None) -> Lease | None:
        """One lease on so many slots, or None while they are not to be had. An outage raises QuorumUnavailable."""
        try:
            return await self.acquire(0, count=count)
        except LockTimeout:
            return None
