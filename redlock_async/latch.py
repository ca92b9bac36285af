"""The count-down latch: opens when enough different events have happened, for all processes and permanently."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from datetime import date
from uuid import UUID

from redlock_async._kinds.latch import LatchCount, LatchState
from redlock_async._rounds.context import Context, resolve
from redlock_async._rules.keys import Keys
from redlock_async._rules.settings import DEFAULT, Default, Duration, Options
from redlock_async._runtime.change_signal import BATCH_WINDOW, POLL_INTERVAL, ChangeSignal
from redlock_async._runtime.session import Session

from .errors import ConfigurationError, LockTimeout, QuorumUnavailable, short_repr

LONGEST_ID = 512
"""Bytes. Every waiter reads all ids."""

LARGEST_COUNT = 1_000_000
"""Far beyond what a latch is made for: more than that is a mistake."""

GENERATION = "#"
"""Between a latch's name and its generation."""

BITS = 64
"""Of a generation that is a number: more than any counter, time or fencing token has."""


class Latch:
    """Opens when `count` different events have been counted down, for all processes, and stays open.

    Guarantee: `wait` returns only after `count` different ids were passed to `count_down`, by any client; an id counts
    once, however often it is passed. Once `wait` has returned or `remaining` was 0 anywhere, that is so everywhere. An
    id is counted permanently when its `count_down` has returned; one that raised or was cancelled may count or not, and
    passing it again is safe.
    What can break it: nodes that lose their data may delay it, but never open it early; pass the ids again then. Each
    node forgets it from `retention` to half as much more after its last use, so a name that is used again at that time
    may still find what was counted before. For another round there is another `generation`.
    Cost: `count_down` and `remaining` are one round trip; the first to see it complete stores that in one more. However
    many tasks of a process wait for it, one look goes out when something changes, and one every few seconds. A look
    reads all ids: made for hundreds of events, not for hundreds of thousands.
    Cancellation: leaves nothing running. A `count_down` that is cancelled may count.

    All clients must pass the same count for a name, or a generation of it; another one raises ConfigurationError.
    """

    __slots__ = ("_count", "_options", "_session")

    def __init__(
        self,
        session: Callable[[], Session],
        keys: Keys,
        name: str,
        generation: int | str | None,
        count: int,
        retention: float,
        options: Options,
    ) -> None:
        if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= LARGEST_COUNT:
            raise ConfigurationError(f"count must be a whole number from 1 to {LARGEST_COUNT}, got {short_repr(count)}")
        self._session = session
        self._options = options
        if generation is not None:
            keys.lock(name)  # with a generation after it, anything would be a str
            name = f"{name}{GENERATION}{checked(generation)}"
        self._count = LatchCount(name, keys.latch(name), count, math.ceil(retention * 1000))

    def __repr__(self) -> str:
        return f"<Latch {self.name!r} of {self.count}>"

    @property
    def name(self) -> str:
        """Its name, with the generation: `import#7`."""
        return self._count.name

    @property
    def count(self) -> int:
        """How many events open it."""
        return self._count.of

    async def count_down(self, event: str) -> None:
        """Count an event, once.

        Raise QuorumUnavailable if too few nodes could store it within the client's `wait`, ConfigurationError if the
        latch is in use with another count.
        """
        try:
            encoded = event.encode()
        except (AttributeError, UnicodeEncodeError):
            encoded = b""
        if not isinstance(event, str) or not 1 <= len(encoded) <= LONGEST_ID:
            raise ConfigurationError(
                f"an event's id must be a str of 1 to {LONGEST_ID} bytes of valid text, got {short_repr(event)}"
            )
        context, deadline = await self._begin(self._options.wait)
        try:
            await self._count.add(context, encoded, deadline)
        finally:
            context.wakeups.local_change(self._count.keys[0])  # the nodes report our changes to other clients only

    async def remaining(self) -> int:
        """Return how many events are missing; 0 once it is open. Raises as `count_down`."""
        context, deadline = await self._begin(self._options.wait)
        return await self._count.look(context, LatchState(context.minority), deadline)

    async def wait(self, timeout: Duration | Default | None = DEFAULT) -> None:  # noqa: ASYNC109 - LockTimeout, not cancelled
        """Wait until it is open.

        Raise LockTimeout after `timeout` (None: wait forever, 0: look once, not given: the client's `wait`), or
        QuorumUnavailable if too few nodes replied at the last look.
        """
        limit = self._options.waiting(timeout, "timeout").wait
        context, deadline = await self._begin(limit)
        if limit == 0:
            if missing := await self._count.look(context, LatchState(context.minority), deadline):
                raise timed_out(self._count, limit, missing)
            return
        key = b"%s %d" % (self._count.keys[0], self.count)
        waiters = context.shared.get(key)
        if not isinstance(waiters, LatchWaiters):
            waiters = context.shared[key] = LatchWaiters(context, self._count, key)
        await waiters.until_open(limit, deadline)

    async def _begin(self, limit: float | None) -> tuple[Context, float | None]:
        context = self._session().context
        deadline = None if limit is None else context.now() + limit
        if not context.membership.usable:
            await context.membership.start(limit)
        return context, deadline


class LatchWaiters(ChangeSignal):
    """All tasks of this process that wait for one latch, and the one task that looks for them."""

    def __init__(self, context: Context, count: LatchCount, key: bytes) -> None:
        super().__init__(context)
        self._count = count
        self._key = key
        self._state = LatchState(context.minority)
        self._missing = count.of
        self._error: Exception | None = None
        """Why the last look failed."""
        self._waiting: set[asyncio.Future[bool]] = set()
        context.wakeups.watch(count.keys, self)
        self._task = context.create_task(self._run(), f"redlock latch {count.name}")

    async def until_open(self, limit: float | None, deadline: float | None) -> None:
        """Wait until it is open, or raise."""
        opened: asyncio.Future[bool] = self._context.loop.create_future()
        timer = self._context.resolve_later(opened, deadline)
        self._waiting.add(opened)
        try:
            if not await opened:
                raise self._error or timed_out(self._count, limit, self._missing)
        finally:
            if timer is not None:
                timer.cancel()
            self._waiting.discard(opened)
            if not self._waiting:
                self._task.cancel()
                self._end()

    @property
    def waiting(self) -> int:
        """How many tasks wait."""
        return len(self._waiting)

    def _end(self) -> None:
        """Tasks that wait from now on start another one."""
        if self._context.shared.get(self._key) is self:
            del self._context.shared[self._key]
            self._context.wakeups.unwatch(self._count.keys, self)

    async def _run(self) -> None:
        context = self._context
        try:
            while not await self._is_open():
                pause = POLL_INTERVAL if self._error is None and self.armed else context.retry_delay
                await self.wait(pause * context.random.uniform(0.25, 1.0))
                await asyncio.sleep(BATCH_WINDOW)
        except Exception as exc:  # noqa: BLE001 - whatever it is, the waiters must learn of it
            for opened in self._waiting:
                if not opened.done():
                    opened.set_exception(exc)
        else:
            for opened in self._waiting:
                resolve(opened, result=True)
        finally:
            self._end()

    async def _is_open(self) -> bool:
        context = self._context
        self.looking()
        try:
            self._missing = await self._count.look(context, self._state, context.now())
        except QuorumUnavailable as exc:
            if context.closed:
                raise
            self._error = exc
            return False
        self._error = None
        return self._missing == 0


def checked(generation: int | str) -> int | str:
    """Return a generation, or raise ConfigurationError: no two generations, of any names, have the same full name."""
    number = isinstance(generation, int) and not isinstance(generation, bool) and generation.bit_length() <= BITS
    if not number and not (isinstance(generation, str) and generation and GENERATION not in generation):
        remedy = ". Pass str(...) of it" if isinstance(generation, date | UUID) else ""
        raise ConfigurationError(
            f"generation must be an int of {BITS} bits, or a non-empty str without {GENERATION!r}, got "
            f"{short_repr(generation)}{remedy}"
        )
    return generation


def timed_out(count: LatchCount, limit: float | None, missing: int) -> LockTimeout:
    """Return the error for a wait that is over."""
    after = f" after waiting {limit:g} s" if limit else ""
    message = f"the latch {count.name!r} is not open{after}: {missing} of {count.of} events are missing"
    return LockTimeout(message, names=(count.name,))
