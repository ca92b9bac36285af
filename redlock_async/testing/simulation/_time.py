"""True time, which only the simulation knows; clocks that run at their own rates; and event loops that live by them."""

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
"""The wall clock when a simulation begins."""


class SimulationError(Exception):
    """The simulation cannot do that, or nothing can happen in it any more."""


class Timeline:
    """What happens outside of the processes, in order."""

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = []
        self._number = count()

    def at(self, when: float, happen: Callable[..., object], *arguments: object) -> None:
        """Have that happen at that time; what is asked for at the same time happens in the order it was asked for."""
        heappush(self._events, (max(self.now, when), next(self._number), happen, arguments))

    @property
    def next_at(self) -> float:
        """When the next of them happens."""
        return self._events[0][0] if self._events else inf

    def happen(self) -> None:
        """The next of them."""
        self.now, _, happen, arguments = heappop(self._events)
        happen(*arguments)


class Clock:
    """Shows `shows` at true time 0, and runs `rate` seconds a second."""

    __slots__ = ("_timeline", "rate", "shows")

    def __init__(self, timeline: Timeline, *, shows: float, rate: float = 1.0) -> None:
        self._timeline = timeline
        self.shows = shows
        self.rate = rate

    def __call__(self) -> float:
        return self.shows + self._timeline.now * self.rate

    def true(self, reading: float) -> float:
        """The true time at which it shows that."""
        return (reading - self.shows) / self.rate


class _NoSelector:
    """There are no sockets, and time does not pass by waiting."""

    @staticmethod
    def select(_timeout: float | None) -> tuple[()]:
        return ()

    @staticmethod
    def close() -> None:
        """Nothing is open."""


class Surroundings:
    """What ran before a simulation did, perhaps an event loop, and runs on after it."""

    def __init__(self) -> None:
        self._loop = asyncio._get_running_loop()  # noqa: SLF001 - get_running_loop would raise without one
        self._hooks = sys.get_asyncgen_hooks()

    def restore(self) -> None:
        """What is to be as before."""
        asyncio._set_running_loop(self._loop)  # noqa: SLF001 - as asyncio's run_forever does
        sys.set_asyncgen_hooks(*self._hooks)


class Loop(asyncio.BaseEventLoop):
    """The event loop of one simulated process: asyncio's own, stepped from outside, on a simulated clock."""

    def __init__(self, clock: Callable[[], float], world: object) -> None:
        super().__init__()
        self.redlock_world = world
        self.time = clock  # type: ignore[method-assign] # a method that only calls it would double the cost
        self._clock_resolution = 1e-9
        self._selector = _NoSelector()
        self._thread_id: int | None = get_ident()  # it is "running" as long as its process is
        self._ready: Any
        self._scheduled: list[asyncio.TimerHandle]

    @property
    def busy(self) -> bool:
        """Whether something can run now."""
        return bool(self._ready)

    @property
    def next_timer(self) -> float:
        """When, on its clock, the next timer is due."""
        scheduled = self._scheduled
        while scheduled and scheduled[0].cancelled():
            heappop(scheduled)._scheduled = False  # type: ignore[attr-defined] # noqa: SLF001 - as asyncio does itself
            self._timer_cancelled_count -= 1  # type: ignore[attr-defined] # asyncio's count of them
        return scheduled[0].when() if scheduled else inf

    def enter(self) -> None:
        """What runs from now on runs in it."""
        loop = cast("Any", self)
        asyncio._set_running_loop(self)  # noqa: SLF001 - as asyncio's run_forever does
        sys.set_asyncgen_hooks(loop._asyncgen_firstiter_hook, loop._asyncgen_finalizer_hook)  # noqa: SLF001 - the same

    def step(self) -> None:
        """Run what can run now, once: a turn of `run_forever`."""
        cast("Any", self)._run_once()  # noqa: SLF001 - asyncio's

    def close(self) -> None:
        self._thread_id = None
        super().close()

    def run_in_executor(self, executor: object, func: Callable[..., object], *args: object) -> NoReturn:  # noqa: ARG002 - asyncio's signature
        """Refused: a thread would not wait for simulated time."""
        raise SimulationError(
            "a simulated process has neither threads nor sockets: it reaches the masters through redlock_async, and "
            "everything else must be replaced in the test"
        )

    def _process_events(self, event_list: object) -> None:
        """There are none."""

    def _write_to_self(self) -> None:
        """It is never asleep in a select."""
