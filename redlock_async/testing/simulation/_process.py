"""A process of the simulation: a coroutine function as `asyncio.run` would run it, on clocks of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from math import inf
from random import Random
from typing import Any

from ._machine import Machine
from ._network import Address, Network
from ._time import WALL, Clock, Loop, SimulationError, Surroundings

STEP = 2e-6
"""Seconds that a step of an event loop takes: whoever only spins lets time pass, too."""

AFTERLIFE = 10_000
"""Steps that the tasks of a process that was killed get to end, unseen by anybody."""


class Process:
    """What runs by itself, is stopped as a whole, and dies as a whole. To the library it is the world."""

    def __init__(
        self, network: Network, machines: Sequence[Machine], index: int, name: str, clock: Clock, skew: float
    ) -> None:
        self._network = network
        self._timeline = network.timeline
        self._addresses = {machine.label: Address(network, self, machine) for machine in machines}
        self._clock = clock
        self._skew = skew
        self._nonces = 0
        self._numbers = 0
        self._luck = Random(network.seed * 1_000_003 + index)  # noqa: S311 - to be repeated
        self._main: asyncio.Task[Any] | None = None
        self.index = index
        self.name = name
        self.now = clock
        self.loop = Loop(clock, self)
        self.loop.set_exception_handler(self._failed)
        self.dead = False
        self.paused_until = -inf
        self._rests_until = -inf
        self.wakes_at = inf
        """The true time at which it can run next."""
        self.failures: list[BaseException] = []
        """What went wrong where nobody could catch it."""

    def __repr__(self) -> str:
        state = "dead" if self.dead else "ended" if self.ended else "running"
        return f"<Process {self.name!r} {state}>"

    # The world around a client

    def wall_us(self) -> int:
        """Its wall clock, which may be wrong."""
        return int((WALL + self._skew + self._timeline.now) * 1e6)

    def clock(self) -> str:
        """Only within the process: machines do not share clocks."""
        return f"simulated process {self.index}"

    def nonces(self) -> Iterator[bytes]:
        """Never the same twice, and the same in every run."""
        while True:
            self._nonces += 1
            yield b"%08x%024x" % (self.index, self._nonces)

    def luck(self) -> Random:
        """Its jitter."""
        return self._luck

    def reach(self, target: Any) -> Address:
        """The simulated master behind a URL."""
        address = self._addresses.get(target.label)
        if address is None:
            known = ", ".join(self._addresses)
            raise SimulationError(f"there is no {target.label} in this simulation, only {known}: use simulation.urls")
        return address

    def next_number(self) -> int:
        """For its next connection."""
        self._numbers += 1
        return self.index * 1_000_000 + self._numbers

    # Running

    def start(self, main: Callable[..., Awaitable[Any]], arguments: Sequence[object]) -> None:
        """Begin."""
        self._main = self.loop.create_task(self._live(main, arguments), name=self.name)
        self.look()

    async def _live(self, main: Callable[..., Awaitable[Any]], arguments: Sequence[object]) -> Any:
        try:
            return await main(*arguments)
        finally:
            self._cancel_all(but=self._main)
            await asyncio.gather(*(asyncio.all_tasks() - {self._main}), return_exceptions=True)
            await self.loop.shutdown_asyncgens()

    def _cancel_all(self, but: asyncio.Task[Any] | None = None) -> None:
        """In an order that does not depend on where in memory they are: names are numbered."""
        for task in sorted(
            asyncio.all_tasks(self.loop) - {but}, key=lambda task: (len(task.get_name()), task.get_name())
        ):
            task.cancel()

    @property
    def ended(self) -> bool:
        """Whether it runs no more."""
        return self.dead or self._main is None or self._main.done()

    def result(self) -> Any:
        """What it returned, or the exception that ended it."""
        if self.dead:
            raise SimulationError(f"process {self.name!r} was killed")
        if self._main is None or not self._main.done():
            raise SimulationError(f"process {self.name!r} still runs: let simulation.run() go on")
        return self._main.result()

    def call(self, function: Callable[..., object], *arguments: object) -> None:
        """Have that run in it: something has arrived."""
        self.loop.call_soon(function, *arguments)
        self.wakes_at = max(self._timeline.now, self.paused_until, self._rests_until)

    def look(self) -> None:
        """Find out when it can run next."""
        at = self._timeline.now if self.loop.busy else self._clock.true(self.loop.next_timer)
        self.wakes_at = max(at, self.paused_until, self._rests_until)

    def step(self) -> None:
        """Let it run what it can run now."""
        self._rests_until = self._timeline.now + STEP
        self.loop.step()
        self.look()

    def _failed(self, _loop: object, context: dict[str, Any]) -> None:
        error = context.get("exception") or SimulationError(str(context.get("message")))
        error.add_note(f"in process {self.name!r}: {context.get('message')}")
        self.failures.append(error)

    # What can happen to it

    def pause(self, seconds: float = inf) -> None:
        """Stop it, as by SIGSTOP, a long collection or a starved machine: its clocks go on, its bytes wait."""
        self.paused_until = self._timeline.now + seconds
        self.look()

    def resume(self) -> None:
        """Let it go on."""
        self.paused_until = -inf
        self.look()

    def kill(self) -> None:
        """SIGKILL: none of its code runs again; its kernel ends its connections."""
        if self.ended:
            return
        self.dead = True
        for link in self._network.links:
            if link.process is self:
                link.abort()
        self._bury()

    def _bury(self) -> None:
        """End its tasks where nobody sees it: Python would complain of tasks that are dropped."""
        self._cancel_all()
        surroundings = Surroundings()
        self.loop.enter()
        for _ in range(AFTERLIFE):
            if self._main is None or self._main.done():
                break
            if not self.loop.busy:
                if self.loop.next_timer == inf:
                    self._cancel_all()
                else:
                    self._clock.shows += max(self.loop.next_timer - self._clock(), 0.0)  # nobody looks at it any more
            self.loop.step()
        else:
            raise SimulationError(f"the tasks of process {self.name!r} do not end when they are cancelled")
        surroundings.restore()
        if self._main is not None and not self._main.cancelled():
            self._main.exception()
        self.failures.clear()

    def close(self) -> None:
        """The end of the simulation."""
        self.kill()
        self.loop.close()
