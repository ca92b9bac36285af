"""The count-down latch: opens when so many different events have happened, for everybody and for good."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from datetime import date
from uuid import UUID

from ._engine import Engine
from ._errors import ConfigurationError, LockTimeout, QuorumUnavailable, shown
from ._keys import Keys
from ._latch import Count, Seen
from ._settings import DEFAULT, Default, Duration, Options

LONGEST_ID = 512
"""Bytes. Everybody who waits reads all ids."""

LARGEST_COUNT = 1_000_000
"""Far beyond what a latch is made for: more than that is a mistake."""

GENERATION = "#"
"""Between a latch's name and its generation."""

BITS = 64
"""Of a generation that is a number: more than any counter, time or fencing token has."""

TOGETHER = 0.002
"""Seconds from the first report of a change to the look at it: the other nodes' reports come meanwhile."""

LOOK_AGAIN = 5.0
"""Seconds after which those who wait look anyway, should a report have been lost."""


class Latch:
    """Opens when `count` different events have been counted down, for all processes, and stays open.

    Guarantee: `wait` returns only after `count` different ids were given to `count_down`, by whomever; an id counts
    once, however often it is given. Once `wait` has returned or `remaining` was 0 anywhere, it is so everywhere. An id
    is counted for good when its `count_down` has returned; one that raised or was cancelled may count or not, and
    giving it again is safe.
    What can break it: masters that lose their data may delay it, but never open it early; the ids are given again then.
    Each master forgets it by itself, from `retention` to half as much more after its last use, so a name that is used
    again at that time may still meet what was counted before. For another round there is another `generation`.
    Cost: `count_down` and `remaining` are one round trip; the first to see it complete writes that down in one more.
    However many tasks of a process wait for it, one look goes out when something changes, and one every few seconds.
    A look reads all ids: made for hundreds of events, not for hundreds of thousands.
    Cancellation: leaves nothing running. A `count_down` that is cancelled may count.

    All who use a name, or a generation of it, must give the same count; another one is a ConfigurationError.
    """

    __slots__ = ("_count", "_engine", "_options")

    def __init__(
        self,
        engine: Callable[[], Engine],
        keys: Keys,
        name: str,
        generation: int | str | None,
        count: int,
        retention: float,
        options: Options,
    ) -> None:
        if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= LARGEST_COUNT:
            raise ConfigurationError(f"count is a whole number from 1 to {LARGEST_COUNT}, not {shown(count)}")
        self._engine = engine
        self._options = options
        if generation is not None:
            keys.lock(name)  # whatever it is, with a generation behind it it would be a str
            name = f"{name}{GENERATION}{checked(generation)}"
        self._count = Count(name, keys.latch(name), count, math.ceil(retention * 1000))

    def __repr__(self) -> str:
        return f"<Latch {self.name!r} of {self.count}>"

    @property
    def name(self) -> str:
        """What it is called, its generation with it: `import#7`."""
        return self._count.name

    @property
    def count(self) -> int:
        """How many events open it."""
        return self._count.of

    async def count_down(self, event: str) -> None:
        """Count that event, once. QuorumUnavailable if too few masters could store it within the client's `wait`."""
        try:
            encoded = event.encode()
        except (AttributeError, UnicodeEncodeError):
            encoded = b""
        if not isinstance(event, str) or not 1 <= len(encoded) <= LONGEST_ID:
            raise ConfigurationError(
                f"an event's id is a str of 1 to {LONGEST_ID} bytes of valid text, not {shown(event)}"
            )
        engine, deadline = await self._begin(self._options.wait)
        try:
            await self._count.add(engine, encoded, deadline)
        finally:
            engine.own_change(self._count.keys[0])  # the nodes report our changes to everybody but us

    async def remaining(self) -> int:
        """How many events are missing; 0 once it is open."""
        engine, deadline = await self._begin(self._options.wait)
        return await self._count.look(engine, Seen(), deadline)

    async def wait(self, timeout: Duration | Default | None = DEFAULT) -> None:  # noqa: ASYNC109 - LockTimeout, not cancelled
        """Return when it is open; LockTimeout after `timeout` (None: never; 0: look once; not given: the client's)."""
        limit = self._options.waiting(timeout, "timeout").wait
        engine, deadline = await self._begin(limit)
        if limit == 0:
            if left := await self._count.look(engine, Seen(), deadline):
                raise timed_out(self._count, limit, left)
            return
        key = b"%s %d" % (self._count.keys[0], self.count)
        watch = engine.shared.get(key)
        if not isinstance(watch, Watch):
            watch = engine.shared[key] = Watch(engine, self._count, key)
        await watch.wait(limit, deadline)

    async def _begin(self, limit: float | None) -> tuple[Engine, float | None]:
        engine = self._engine()
        deadline = None if limit is None else engine.now() + limit
        if not engine.masters.usable:
            await engine.start(limit)
        return engine, deadline


class Watch:
    """All tasks of this process that wait for one latch, and the one task that looks for them."""

    def __init__(self, engine: Engine, count: Count, key: bytes) -> None:
        self._engine = engine
        self._count = count
        self._key = key
        self._seen = Seen()
        self._left = count.of
        self._trouble: Exception | None = None
        self._changed = asyncio.Event()
        self._waiting: set[asyncio.Future[bool]] = set()
        engine.board.watch(count.keys, self)
        self._task = engine.loop.create_task(self._run(), name=f"redlock latch {count.name}")

    async def wait(self, limit: float | None, deadline: float | None) -> None:
        """Return when it is open."""
        engine = self._engine
        opened: asyncio.Future[bool] = engine.loop.create_future()
        timer = None if deadline is None else engine.loop.call_later(deadline - engine.now(), _time_is_up, opened)
        self._waiting.add(opened)
        try:
            if not await opened:
                raise self._trouble or timed_out(self._count, limit, self._left)
        finally:
            if timer is not None:
                timer.cancel()
            self._waiting.discard(opened)
            if not self._waiting:
                self._task.cancel()
                self._end()

    @property
    def waiting(self) -> int:
        """How many tasks there are."""
        return len(self._waiting)

    def _end(self) -> None:
        """Whoever waits from now on begins anew."""
        if self._engine.shared.get(self._key) is self:
            del self._engine.shared[self._key]
            self._engine.board.unwatch(self._count.keys, self)

    async def _run(self) -> None:
        engine = self._engine
        try:
            while not await self._is_open():
                armed = self._trouble is None and all(node.tracking for node in engine.nodes if node.ready)
                pause = LOOK_AGAIN if armed else engine.retry_delay
                timer = engine.loop.call_later(pause * engine.random.uniform(0.25, 1.0), self._changed.set)
                try:
                    await self._changed.wait()
                finally:
                    timer.cancel()
                await asyncio.sleep(TOGETHER)
        except Exception as exc:  # noqa: BLE001 - whatever it is, those who wait must hear of it
            for opened in self._waiting:
                if not opened.done():
                    opened.set_exception(exc)
        else:
            for opened in self._waiting:
                if not opened.done():
                    opened.set_result(True)
        finally:
            self._end()

    async def _is_open(self) -> bool:
        engine, seen = self._engine, self._seen
        self._changed.clear()
        try:
            self._left = await self._count.look(engine, seen, engine.now())
        except QuorumUnavailable as exc:
            if engine.closed:
                raise
            self._trouble = exc
            return False
        self._trouble = None
        return self._left == 0

    # What the engine reports

    def freed(self, node: int, key: bytes | None) -> None:  # noqa: ARG002 - any change is worth a look
        """A node reports a change."""
        self._changed.set()

    def wake(self, key: bytes | None = None) -> None:  # noqa: ARG002 - a Waiting's signature
        """We changed it ourselves, or a node came back."""
        self._changed.set()

    def close(self) -> None:
        """The client is closed: the next look says so. Nothing on the nodes is ours."""
        self._changed.set()


def checked(generation: int | str) -> int | str:
    """A generation, or a ConfigurationError: no two generations, of whatever names, are called the same."""
    number = isinstance(generation, int) and not isinstance(generation, bool) and generation.bit_length() <= BITS
    if not number and not (isinstance(generation, str) and generation and GENERATION not in generation):
        remedy = ": give str(...) of it" if isinstance(generation, date | UUID) else ""
        raise ConfigurationError(
            f"generation is an int of {BITS} bits, or a str that is not empty and has no {GENERATION!r} in it, not "
            f"{shown(generation)}{remedy}"
        )
    return generation


def _time_is_up(opened: asyncio.Future[bool]) -> None:
    if not opened.done():
        opened.set_result(False)


def timed_out(count: Count, limit: float | None, left: int) -> LockTimeout:
    """The wait is over."""
    after = f" after waiting {limit:g} s" if limit else ""
    missing = f"{left} of {count.of} events are missing"
    return LockTimeout(f"the latch {count.name!r} is not open{after}: {missing}", names=(count.name,))
