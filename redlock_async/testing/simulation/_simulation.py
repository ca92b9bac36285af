"""Processes, masters and what lies between them, in simulated time: an hour passes as fast as what happens in it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from math import inf
from random import Random
from types import TracebackType
from typing import Any, Self

from ._machine import Machine
from ._network import DOWN, UP, Network
from ._process import Process
from ._time import WALL, Clock, SimulationError, Surroundings, Timeline


def lan(luck: float) -> float:
    """The delays of a quiet local network: 0.1 to 0.5 ms, and now and then 20."""
    return 0.0001 + 0.0004 * luck if luck < 0.999 else 0.02  # noqa: PLR2004 - once in a thousand


class Simulation:
    """N simulated masters that run the library's own Lua, and the processes of a test, in simulated time.

    ```python
    with Simulation(nodes=5, seed=1) as simulation:

        async def worker():
            async with Redlock(simulation.urls) as redlock, redlock("x"):
                await asyncio.sleep(3600)

        one, two = simulation.process(worker), simulation.process(worker)
        simulation.at(60, simulation.kill, 0)
        simulation.run()
        assert one.result() is None
    ```

    `latency` makes seconds on the way of a uniform number in [0, 1). Clocks run at rates within `drift` of the true
    one, and wall clocks are wrong by up to `skew` seconds. The same seed gives the same run, to the byte. Everything a
    process waits for must be simulated: sleeps, timeouts, tasks and what `redlock_async` does; threads and sockets are
    refused.
    """

    def __init__(
        self,
        nodes: int = 5,
        *,
        seed: int = 0,
        latency: Callable[[float], float] = lan,
        drift: float = 0.0,
        skew: float = 3600.0,
    ) -> None:
        if nodes < 1:
            raise ValueError(f"a simulation needs at least one master, not {nodes}")
        self.seed = seed
        self._luck = Random(seed)  # noqa: S311 - to be repeated
        self._drift = drift
        self._skew = skew
        self._timeline = timeline = Timeline()
        self._network = network = Network(timeline, seed, latency)
        self.machines = [Machine(network, index, self._clock(WALL), self._expiry_lag) for index in range(nodes)]
        self.processes: list[Process] = []
        self._running: list[Process] = []
        self._inside: Process | None = None
        self._surroundings = Surroundings()
        self.watchers: list[Callable[[Process], None]] = []
        """Called after each step of a process: whoever wants to see everything."""

    def _clock(self, shows: float) -> Clock:
        """A clock that is off by no more than the skew, at a rate within the drift."""
        rate = self._luck.uniform(1 - self._drift, 1 + self._drift) if self._drift else 1.0
        return Clock(self._timeline, shows=shows + self._luck.uniform(-self._skew, self._skew), rate=rate)

    def _expiry_lag(self) -> float:
        """Most keys are deleted within a tick of their expiry, some only when the server has time for them."""
        return self._luck.random() * (0.01 if self._luck.random() < 0.9 else 2.0)  # noqa: PLR2004 - nine of ten

    @property
    def now(self) -> float:
        """True time: seconds since the beginning."""
        return self._timeline.now

    @property
    def urls(self) -> list[str]:
        """What to give to `Redlock`."""
        return [f"redis://{machine.label}" for machine in self.machines]

    # Running

    def process(self, main: Callable[..., Awaitable[Any]], *arguments: object, name: str | None = None) -> Process:
        """Start a process that runs that coroutine function, as `asyncio.run` would."""
        index = len(self.processes)
        skew = self._luck.uniform(-self._skew, self._skew)
        clock = self._clock(1_000_000.0)
        process = Process(self._network, self.machines, index, name or f"process {index}", clock, skew)
        self.processes.append(process)
        self._running.append(process)
        process.start(main, arguments)
        return process

    def at(self, when: float, function: Callable[..., object], *arguments: object) -> None:
        """Call that at that time, between the steps of the processes: a fault, a look, another process."""
        self._timeline.at(when, self._call, function, *arguments)

    def run(self, seconds: float | None = None) -> None:
        """Let time pass: so many seconds, or until every process has ended."""
        self._surroundings = Surroundings()
        timeline, end = self._timeline, inf if seconds is None else self._timeline.now + seconds
        try:
            while self._running or seconds is not None:
                next_at, who = self._next()
                if next_at > end or (next_at == inf and seconds is not None):
                    timeline.now = end
                    break
                if next_at == inf:
                    raise SimulationError(f"nothing can happen any more, and these have not ended: {self._running}")
                if who is None:
                    timeline.happen()
                else:
                    timeline.now = max(timeline.now, next_at)
                    self._step(who)
        finally:
            self._enter(None)

    def _next(self) -> tuple[float, Process | None]:
        """When something happens next, and in which process, if in one."""
        next_at, who = self._timeline.next_at, None
        for process in self._running:
            if process.wakes_at <= next_at:
                next_at, who = process.wakes_at, process
        return next_at, who

    def _step(self, process: Process) -> None:
        self._enter(process)
        process.step()
        for watch in self.watchers:
            watch(process)
        if process.failures:
            raise process.failures[0]
        if process.ended:
            self._running.remove(process)

    def _call(self, function: Callable[..., object], *arguments: object) -> None:
        """Something of the user's: it may have killed, stopped or woken anybody."""
        self._enter(None)
        function(*arguments)
        self._running[:] = [process for process in self._running if not process.ended]
        for process in self._running:
            process.look()

    def _enter(self, process: Process | None) -> None:
        """Make that process the one whose code runs: asyncio asks for its loop, and who takes care of generators."""
        if process is self._inside:
            return
        self._inside = process
        if process is None:
            self._surroundings.restore()
        else:
            process.loop.enter()

    def close(self) -> None:
        """Kill what still runs, and close the event loops."""
        for process in self.processes:
            process.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # Faults of a master: named as those of LocalCluster

    def pause(self, i: int) -> None:
        """Freeze a master, as by SIGSTOP."""
        self.machines[i].pause()

    def resume(self, i: int) -> None:
        """Let it carry on with all it was sent."""
        self.machines[i].resume()

    def kill(self, i: int, *, silently: bool = False) -> None:
        """End a master; silently, as by a power cut, nobody is told that the connections are gone."""
        self.machines[i].kill(silently=silently)

    def restart(self, i: int, *, keep_data: bool = False) -> None:
        """Start a master again, empty or with its data."""
        self.machines[i].restart(keep_data=keep_data)

    # Faults of the network, between a master and one process, or all

    def hold(self, i: int, process: Process | None = None) -> None:
        """Requests do not arrive until `heal`."""
        self._block(i, process, UP)

    def hold_replies(self, i: int, process: Process | None = None) -> None:
        """Replies and reports do not arrive until `heal`."""
        self._block(i, process, DOWN)

    def black_hole(self, i: int, process: Process | None = None) -> None:
        """Nothing arrives, either way, until `heal`."""
        self._block(i, process, UP, DOWN)

    def _block(self, i: int, process: Process | None, *ways: int) -> None:
        for each in self.processes if process is None else [process]:
            self._network.block(each, self.machines[i], *ways)

    def delay(self, i: int, seconds: float, process: Process | None = None) -> None:
        """Everything to and from it takes that much longer, until `heal`."""
        self._network.slow[process, self.machines[i]] = seconds

    def stall(self, i: int, seconds: float) -> None:
        """Its present connections deliver what is asked on them no earlier than that; new ones are quick."""
        self._stall(i, UP, seconds)

    def stall_replies(self, i: int, seconds: float) -> None:
        """The same of what is answered on them."""
        self._stall(i, DOWN, seconds)

    def _stall(self, i: int, way: int, seconds: float) -> None:
        for link in self._network.to(self.machines[i]):
            link.stall(way, seconds)

    def sever(self, i: int, process: Process | None = None, *, both_ends: bool = True) -> None:
        """Break its connections: what is on its way is lost; or, if it does not see them break, it hears it still."""
        for link in self._network.to(self.machines[i]):
            if link.session is not None and process in {None, link.process}:
                link.sever(both_ends=both_ends)

    def reset(self, i: int) -> None:
        """End its connections, as `CLIENT KILL` would."""
        self.machines[i].reset()

    def cut(self, i: int) -> None:
        """End its connections, and refuse new ones until `heal`."""
        self.machines[i].reachable = False
        self.machines[i].reset()

    def heal(self, i: int) -> None:
        """The end of the faults of the network."""
        machine = self.machines[i]
        machine.reachable = True
        self._network.hurry(machine)
        self._network.unblock(machine)
