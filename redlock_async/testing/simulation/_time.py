"""True time, which only the simulation knows; clocks with their own rates; and event loops that run on them."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from math import inf
from threading import get_ident
from typing import Any, NoReturn, cast

WALL = 1_700_000_000.0
"""The wall clock at the start of a simulation."""


class SimulationError(Exception):
    """Raised if the simulation does not support an operation, or if it is deadlocked."""


class Timeline:
    """The events outside the processes, in order."""

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = []
        self._number = count()

    def at(self, when: float, callback: Callable[..., object], *arguments: object) -> None:
        """Schedule a call at a true time. Calls at the same time run in the order they were scheduled."""
        heappush(self._events, (max(self.now, when), next(self._number), callback, arguments))

    @property
    def next_at(self) -> float:
        """The time of the next event."""
        return self._events[0][0] if self._events else inf

    def run_next(self) -> None:
        """Run the next event."""
        self.now, _, callback, arguments = heappop(self._events)
        callback(*arguments)


class Clock:
    """A clock that shows `shows` at true time 0 and advances `rate` seconds per second."""

    __slots__ = ("_timeline", "rate", "shows")

    def __init__(self, timeline: Timeline, *, shows: float, rate: float = 1.0) -> None:
        self._timeline = timeline
        self.shows = shows
        self.rate = rate

    def __call__(self) -> float:
        return self.shows + self._timeline.now * self.rate

    def true(self, reading: float) -> float:
        """The true time at which the clock shows `reading`; never if it is frozen."""
        return (reading - self.shows) / self.rate if self.rate else inf

    def run_at(self, rate: float) -> None:
        """Let it advance at another rate from now on; 0.0 stops it."""
        self.shows += self._timeline.now * (self.rate - rate)
        self.rate = rate


class _NoSelector:
    """A selector without sockets; waiting does not make time pass."""

    @staticmethod
    def select(_timeout: float | None) -> tuple[()]:
        return ()

    @staticmethod
    def close() -> None:
        """Nothing is open."""


class SavedLoopState:
    """The running event loop, its current task and the generator hooks: set aside while a simulated process runs."""

    def __init__(self) -> None:
        self._loop = asyncio._get_running_loop()  # noqa: SLF001 - get_running_loop would raise without one
        self._task = None if self._loop is None else asyncio.current_task(self._loop)
        self._hooks = sys.get_asyncgen_hooks()

    def set_aside(self) -> None:
        """Leave the current task. Since Python 3.14 a thread has one at a time, not one for each event loop."""
        if self._loop is not None and self._task is not None:
            asyncio.tasks._leave_task(self._loop, self._task)  # noqa: SLF001 - as asyncio does around each step

    def restore(self) -> None:
        """Restore them."""
        asyncio._set_running_loop(self._loop)  # noqa: SLF001 - as asyncio's run_forever does
        sys.set_asyncgen_hooks(*self._hooks)
        if self._loop is not None and self._task is not None:
            asyncio.tasks._enter_task(self._loop, self._task)  # noqa: SLF001 - as asyncio does around each step


class Loop(asyncio.BaseEventLoop):
    """The event loop of one simulated process: asyncio's, stepped by the simulation, on a simulated clock."""

    def __init__(self, clock: Callable[[], float], world: object) -> None:
        super().__init__()
        self.redlock_world = world
        self.time = clock  # type: ignore[method-assign] # a method that calls it would double the cost
        self._clock_resolution = 1e-9
        self._selector = _NoSelector()
        self._thread_id: int | None = get_ident()  # the loop counts as running as long as its process
        self._ready: Any
        self._scheduled: list[asyncio.TimerHandle]

    @property
    def busy(self) -> bool:
        """Whether a callback can run now."""
        return bool(self._ready)

    @property
    def next_timer(self) -> float:
        """When the next timer is due, on the loop's clock."""
        scheduled = self._scheduled
        while scheduled and scheduled[0].cancelled():
            heappop(scheduled)._scheduled = False  # type: ignore[attr-defined] # noqa: SLF001 - as asyncio does itself
            self._timer_cancelled_count -= 1  # type: ignore[attr-defined] # asyncio's count of cancelled timers
        return scheduled[0].when() if scheduled else inf

    def enter(self) -> None:
        """Make this the running loop."""
        loop = cast("Any", self)
        asyncio._set_running_loop(self)  # noqa: SLF001 - as asyncio's run_forever does
        sys.set_asyncgen_hooks(loop._asyncgen_firstiter_hook, loop._asyncgen_finalizer_hook)  # noqa: SLF001 - the same

    def step(self) -> None:
        """Run the callbacks that are ready: one iteration of `run_forever`."""
        cast("Any", self)._run_once()  # noqa: SLF001 - asyncio has no public method for one iteration

    def close(self) -> None:
        self._thread_id = None
        super().close()

    def run_in_executor(self, executor: object, func: Callable[..., object], *args: object) -> NoReturn:  # noqa: ARG002 - asyncio's signature
        """Raise SimulationError: a thread would not wait for simulated time."""
        raise SimulationError(
            "a simulated process has no threads and no sockets: only redlock_async can reach the nodes. "
            "Replace everything else in the test"
        )

    def _process_events(self, event_list: object) -> None:
        """Do nothing: there are no I/O events."""

    def _write_to_self(self) -> None:
        """Do nothing: the loop never sleeps in a select."""
