"""Turn-taking among the tasks of one process: first come, first served, and only the head of a queue asks the nodes."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Protocol

from redlock_async._kinds.kind import LockKind
from redlock_async._rounds.context import Context, give_up

MAX_CONSECUTIVE_LEASES = 32
"""Leases in a row that the tasks of one process may take of a name while others of them wait. A hand-over inside the
process takes a single write, so without a limit other processes would never get in between."""

ROUNDS_WAITED_FOR = 2
"""Node timeouts in which a task whose time is up learns the nodes' reply to the task in front of it."""


class Contender(Protocol):
    """Something that knows why a lock is not free: the acquisition that asks the nodes, or another name's queue."""

    @property
    def informed(self) -> bool:
        """Whether it knows who is in the way, or that there is no quorum."""
        ...

    def error_for(self, kind: LockKind, wait: float | None) -> Exception:
        """Return the error for a task that queued behind it for `wait` seconds."""
        ...


class NotServedError(Exception):
    """A task's time in a local queue is up. Turned into a public error by the acquisition, which knows the holder."""

    def __init__(self, key: bytes, queue: LocalQueue) -> None:
        super().__init__(key)
        self.key = key
        self.queue = queue


class LocalQueue:
    """The tasks of this process that want one name, of which one has the turn."""

    # Most names are wanted by one task at a time, which changes little of this.
    places: OrderedDict[asyncio.Future[bool], None] | None = None
    """Those that queue; ordered and keyed, so that one of thousands can give up without a search."""
    one_shot: dict[asyncio.Future[bool], None] | None = None
    """Those that try once: what the nodes reply to the task whose turn it is, is their reply too."""
    acquisition: Contender | None = None
    """The acquisition under way of the task whose turn it is, unless it holds the lock already."""
    last: Contender | None = None
    """The one that knows best while `acquisition` does not: the last acquisition, which gave up; or, if the task
    whose turn it is waits for another name before it asks, the queue on that name."""
    streak = 0
    """How many leases this process took in a row."""

    def reject_with(self, place: asyncio.Future[bool]) -> None:
        """End that wait when the task whose turn it is has been refused."""
        if self.one_shot is None:
            self.one_shot = {}
        self.one_shot[place] = None

    def forget(self, place: asyncio.Future[bool]) -> None:
        """Undo `reject_with`."""
        if self.one_shot is not None:
            self.one_shot.pop(place, None)

    @property
    def informed(self) -> bool:
        """Whether it is known why the lock is not free."""
        return self._best is not None

    def error_for(self, kind: LockKind, wait: float | None) -> Exception:
        """Return the error for a task that queued here for `wait` seconds."""
        assert self._best is not None  # noqa: S101 - the caller has checked
        return self._best.error_for(kind, wait)

    def chain(self) -> Iterator[LocalQueue]:
        """This queue, and those on the other names that the task whose turn it is queues for."""
        yield self
        if isinstance(self.last, LocalQueue):
            yield from self.last.chain()

    @property
    def asked_just_now(self) -> bool:
        """Whether a reply of the nodes is on its way that will tell why the lock is not free."""
        return not self.informed and any(queue.acquisition is not None for queue in self.chain())

    @property
    def _best(self) -> Contender | None:
        known = (self.acquisition, self.last)
        return next((contender for contender in known if contender is not None and contender.informed), None)


class LocalQueues:
    """The queues of all names that the tasks of this process want."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._queues: dict[bytes, LocalQueue] = {}
        self.waiting = 0
        """How many tasks queue."""

    def get(self, key: bytes) -> LocalQueue | None:
        """The queue of that name, if any task wants it."""
        return self._queues.get(key)

    # Getting the turn

    def take(self, key: bytes) -> bool:
        """Take the turn if no task has it."""
        if key in self._queues:
            return False
        self._queues[key] = LocalQueue()
        return True

    async def enter(self, kind: LockKind, deadline: float | None) -> int:
        """Get the turn on every name, in the order of the names; return how many leases this process took in a row."""
        entered, streak = 0, 0
        try:
            for key in kind.local_queue_keys:
                if not self.take(key):
                    self._waits_for(kind.local_queue_keys[:entered], key)
                    await self.wait(key, deadline, exclusive=kind.keeps_local_turn)
                    queue = self._queues.get(key)
                    streak = max(streak, queue.streak if queue is not None else 0)
                entered += 1
        except BaseException:
            for key in kind.local_queue_keys[:entered]:
                self.leave(key)
            raise
        return streak

    def _waits_for(self, keys: Sequence[bytes], other: bytes) -> None:
        """The task that has the turn on these names queues for another one: what is known of them gets out of date."""
        for key in keys:
            self._queues[key].last = self._queues[other]

    async def wait(self, key: bytes, deadline: float | None, *, exclusive: bool) -> None:
        """Queue for the turn on one name; raise NotServedError when the time is up."""
        queue = self._queues[key]
        left = None if deadline is None else deadline - self._context.now()
        if (left is None or left > 0) and await self._place(key, left):
            return
        # The time is up. If another task asks the nodes just now, their reply tells why.
        if self._queues.get(key) is queue and self._is_unknown(queue, exclusive=exclusive):
            limit = ROUNDS_WAITED_FOR * self._context.node_timeout
            if await self._place(key, limit, one_shot=True):
                return
        raise NotServedError(key, queue)

    @staticmethod
    def _is_unknown(queue: LocalQueue, *, exclusive: bool) -> bool:
        if queue.acquisition is not None:
            return not queue.acquisition.informed
        # No task asks for it: the one that has the turn is a holder, or queues for another name, or has just got the
        # turn. One holder's lease does not say that a semaphore has no slot left.
        return queue.asked_just_now or not exclusive

    async def _place(self, key: bytes, seconds: float | None, *, one_shot: bool = False) -> bool:
        """Wait for the turn; return False when the time is up. A task that is cancelled passes on a turn it just got.

        With `one_shot`, wait only until it is known whether the task that has the turn gets the lock, and not for the
        end of its lease.
        """
        queue = self._queues[key]
        if queue.places is None:
            queue.places = OrderedDict()
        places = queue.places
        place: asyncio.Future[bool] = self._context.loop.create_future()
        places[place] = None
        rejected_by = tuple(queue.chain()) if one_shot else ()
        for each in rejected_by:
            each.reject_with(place)
        timer = None if seconds is None else self._context.call_later(seconds, give_up, place)
        self.waiting += 1
        try:
            served = await place
        except asyncio.CancelledError:
            if place.cancelled() or not place.result():
                places.pop(place, None)
            elif self._queues.get(key) is queue:
                self.leave(key)
            raise
        finally:
            self.waiting -= 1
            for each in rejected_by:
                each.forget(place)
            if timer is not None:
                timer.cancel()
        if not served:
            places.pop(place, None)
        return served

    # Having the turn

    def begin(self, keys: Sequence[bytes], acquisition: Contender) -> None:
        """The task that has the turn on these names begins to ask the nodes."""
        for key in keys:
            self._queues[key].acquisition = acquisition

    def reset_streak(self, keys: Sequence[bytes]) -> None:
        """The task that has the turn on these names lets other processes in first."""
        for key in keys:
            self._queues[key].streak = 0

    def on_refused(self, keys: Sequence[bytes], acquisition: Contender) -> None:
        """That acquisition was refused, and so are the tasks that try once, if it has the turn they wait for."""
        for key in keys:
            queue = self._queues.get(key)
            if queue is not None and queue.acquisition is acquisition:
                self._reject_one_shot(queue)

    def on_failed(self, keys: Sequence[bytes]) -> None:
        """The acquisition that had the turn on these names failed: pass the turn on."""
        for key in keys:
            self.leave(key)

    def on_acquired(self, kind: LockKind) -> None:
        """The acquisition that had the turn got its lease. An exclusive lease keeps the turn until it ends."""
        for key in kind.local_queue_keys:
            if (queue := self._queues.get(key)) is not None:
                queue.acquisition = queue.last = None
                if queue.one_shot and kind.keeps_local_turn:
                    self._reject_one_shot(queue)
            if kind.keeps_local_turn:
                continue
            if kind.shared:
                self._release_all(key)
            else:
                self.leave(key)

    def leave(self, key: bytes) -> None:
        """Give the turn to the next in the queue."""
        queue = self._queues[key]
        if queue.acquisition is not None:
            # Some in the queue may have run out of time in this very iteration of the loop, and need a reason.
            if queue.acquisition.informed:
                queue.last = queue.acquisition
            queue.acquisition = None
        while queue.places:
            place, _ = queue.places.popitem(last=False)
            if not place.done():
                queue.streak += 1
                place.set_result(True)
                return
        del self._queues[key]

    @staticmethod
    def _reject_one_shot(queue: LocalQueue) -> None:
        for place in queue.one_shot or ():
            give_up(place)

    def _release_all(self, key: bytes) -> None:
        """End the queue: all that are in it may ask at once, and none has the turn."""
        places = self._queues.pop(key).places
        for place in places or ():
            if not place.done():
                place.set_result(True)
