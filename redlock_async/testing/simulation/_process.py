"""A simulated process: a coroutine function, run as `asyncio.run` would, on its own clocks."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from math import inf
from random import Random
from typing import Any

from ._machine import Machine
from ._network import Address, Network
from ._time import WALL, Clock, Loop, SavedLoopState, SimulationError

ALIAS = re.compile(r"(?<=^node-\d)\.[\w-]+(?=\.simulated:)")
"""What other addresses of a node contain in addition."""

STEP = 2e-6
"""Seconds that one step of an event loop takes, so that time also passes in a busy loop."""

MAX_CLEANUP_STEPS = 10_000
"""Steps that the tasks of a killed process get to end, without effect on the simulation."""


class Process:
    """A process with its own event loop, clocks and random numbers. For the library it is the environment."""

    def __init__(
        self, network: Network, machines: Sequence[Machine], index: int, name: str, clock: Clock, skew: float
    ) -> None:
        self._network = network
        self._timeline = network.timeline
        self._machines = {machine.label: machine for machine in machines}
        self._clock = clock
        self._skew = skew
        self._stream = index
        self._copied = False
        self._nonces = 0
        self._numbers = 0
        self._rng = Random(network.seed * 1_000_003 + index)  # noqa: S311 - to be repeated
        self._main: asyncio.Task[Any] | None = None
        self.index = index
        self.name = name
        self.now = clock
        self._timers = Clock(network.timeline, shows=clock.shows, rate=clock.rate)
        """The event loop's clock. It stops while the machine is suspended, as CLOCK_MONOTONIC does on Linux."""
        self.loop = Loop(self._timers, self)
        self.loop.set_exception_handler(self._failed)
        self.dead = False
        self.paused_until = -inf
        self._busy_until = -inf
        self._unread: list[tuple[Callable[..., object], tuple[object, ...]]] | None = None
        """What has arrived while it was blocked."""
        self.wakes_at = inf
        """The true time of its next step."""
        self.failures: list[BaseException] = []
        """Exceptions that no code could catch, such as those of callbacks."""

    def __repr__(self) -> str:
        state = "dead" if self.dead else "ended" if self.ended else "running"
        return f"<Process {self.name!r} {state}>"

    # The environment of a client

    def wall_us(self) -> int:
        """The process's wall clock, which may be wrong."""
        return int((WALL + self._skew + self._timeline.now) * 1e6)

    def clock(self) -> str:
        """The name of the clock. Each process has its own."""
        return f"simulated process {self.index}"

    def token_bytes(self) -> Iterator[tuple[int, int]]:
        """Yield unique values, unless another process is a copy of this one. They are the same in every run."""
        while True:
            self._nonces += 1
            yield self._stream << 32, self._nonces

    def stamps(self) -> tuple[int, int]:
        """The clocks if another process has the same random numbers, otherwise constants."""
        return (round(self.now() * 1e9), self.wall_us() * 1000) if self._copied else (0, 0)

    def become_copy(self, of: Process) -> None:
        """Draw the same random numbers as `of` from now on, as after restoring a snapshot."""
        self._stream, self._nonces = of._stream, of._nonces
        self._copied = of._copied = True

    def rng(self) -> Random:
        """The random numbers of the client, for jitter."""
        return self._rng

    def resolve(self, target: Any) -> Address:
        """Return the simulated node of a URL. A node also has the addresses node-0.<anything>.simulated:6379."""
        machine = self._machines.get(ALIAS.sub("", target.label))
        if machine is None:
            known = ", ".join(self._machines)
            raise SimulationError(f"no node {target.label} in this simulation, only {known}. Use simulation.urls")
        return Address(self._network, self, machine, target.label)

    def next_number(self) -> int:
        """Return the number of the next connection."""
        self._numbers += 1
        return self.index * 1_000_000 + self._numbers

    # Running

    def start(self, main: Callable[..., Awaitable[Any]], arguments: Sequence[object]) -> None:
        """Start the process."""
        self._main = self.loop.create_task(self._run(main, arguments), name=self.name)
        self.schedule_wakeup()

    async def _run(self, main: Callable[..., Awaitable[Any]], arguments: Sequence[object]) -> Any:
        try:
            return await main(*arguments)
        finally:
            self._cancel_all(but=self._main)
            await asyncio.gather(*(asyncio.all_tasks() - {self._main}), return_exceptions=True)
            await self.loop.shutdown_asyncgens()

    def _cancel_all(self, but: asyncio.Task[Any] | None = None) -> None:
        """Cancel all tasks in the order of their names, which does not depend on memory addresses."""
        for task in sorted(
            asyncio.all_tasks(self.loop) - {but}, key=lambda task: (len(task.get_name()), task.get_name())
        ):
            task.cancel()

    @property
    def ended(self) -> bool:
        """Whether the process has returned or was killed."""
        return self.dead or self._main is None or self._main.done()

    def result(self) -> Any:
        """Return the result, or raise the exception, of the process's main function."""
        if self.dead:
            raise SimulationError(f"process {self.name!r} was killed")
        if self._main is None or not self._main.done():
            raise SimulationError(f"process {self.name!r} is still running: call simulation.run()")
        return self._main.result()

    def call(self, function: Callable[..., object], *arguments: object) -> None:
        """Run a callback in the process."""
        if self._unread is not None:
            self._unread.append((function, arguments))
        else:
            self.loop.call_soon(function, *arguments)
        self.wakes_at = max(self._timeline.now, self.paused_until, self._busy_until)

    def schedule_wakeup(self) -> None:
        """Update `wakes_at`."""
        at = self._timeline.now if self.loop.busy else self._timers.true(self.loop.next_timer)
        self.wakes_at = max(at, self.paused_until, self._busy_until)

    def step(self) -> None:
        """Run one iteration of the event loop."""
        self._busy_until = self._timeline.now + STEP
        self.loop.step()
        if self._unread is not None:
            unread, self._unread = self._unread, None
            for function, arguments in unread:
                self.loop.call_soon(function, *arguments)
        self.schedule_wakeup()

    def _failed(self, _loop: object, context: dict[str, Any]) -> None:
        error = context.get("exception") or SimulationError(str(context.get("message")))
        error.add_note(f"in process {self.name!r}: {context.get('message')}")
        self.failures.append(error)

    # Faults

    def pause(self, seconds: float = inf) -> None:
        """Stop it, as by SIGSTOP or a long garbage collection. Its clocks continue and arriving bytes wait."""
        self.paused_until = self._timeline.now + seconds
        self.schedule_wakeup()

    def block(self, seconds: float) -> None:
        """Stop it in the middle of a step, as code does that does not return to the event loop.

        What arrives meanwhile is read after the first step that follows.
        """
        self._unread = []
        self.pause(seconds)

    def suspend(self, seconds: float) -> None:
        """Suspend its machine, as closing a laptop does. The lease clock continues, the event loop's clock stops."""
        self._timers.shows -= seconds * self._timers.rate
        self.pause(seconds)

    def resume(self) -> None:
        """Continue after `pause`."""
        self.paused_until = -inf
        self.schedule_wakeup()

    def kill(self) -> None:
        """SIGKILL: none of its code runs again, and its kernel closes its connections."""
        if self.ended:
            return
        self.dead = True
        for link in self._network.links:
            if link.process is self:
                link.abort()
        self._end_tasks()

    def _end_tasks(self) -> None:
        """End its tasks without effect on the simulation. Python would warn about tasks that never finish."""
        self._cancel_all()
        saved = SavedLoopState()
        saved.set_aside()
        self.loop.enter()
        for _ in range(MAX_CLEANUP_STEPS):
            if self._main is None or self._main.done():
                break
            if not self.loop.busy:
                if self.loop.next_timer == inf:
                    self._cancel_all()
                else:
                    ahead = max(self.loop.next_timer - self._timers(), 0.0)
                    self._timers.shows += ahead  # these clocks are no longer used
                    self._clock.shows += ahead
            self.loop.step()
        else:
            raise SimulationError(f"tasks of process {self.name!r} do not end when cancelled")
        saved.restore()
        if self._main is not None and not self._main.cancelled():
            self._main.exception()
        self.failures.clear()

    def close(self) -> None:
        """Kill the process and close its loop."""
        self.kill()
        self.loop.close()
