"""Processes, nodes and the network between them in simulated time, where idle hours take no time."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from math import inf
from random import Random
from types import TracebackType
from typing import Any, Self

import hiredis

from ._machine import Machine
from ._network import DOWN, UP, Network
from ._process import Process
from ._time import WALL, Clock, SavedLoopState, SimulationError, Timeline


def lan(uniform: float) -> float:
    """Return the delay in a quiet local network: 0.1 to 0.5 ms, and 20 ms for one message in a thousand."""
    return 0.0001 + 0.0004 * uniform if uniform < 0.999 else 0.02  # noqa: PLR2004 - once in a thousand


class Simulation:
    """N simulated nodes that run the library's own Lua scripts, and the processes of a test, in simulated time.

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

    `latency` maps a uniform number in [0, 1) to the seconds that a message takes. Clock rates differ from the true rate
    by up to `drift`, and wall clocks are wrong by up to `skew` seconds. The nodes have served locks without a namespace
    before; with `new_cluster`, the first client founds the cluster. The same seed gives the same run, byte for byte.
    Everything that a process waits for must be simulated: sleeps, timeouts, tasks and the operations of
    `redlock_async`. Threads and sockets raise SimulationError.
    """

    def __init__(
        self,
        nodes: int = 5,
        *,
        seed: int = 0,
        latency: Callable[[float], float] = lan,
        drift: float = 0.0,
        skew: float = 3600.0,
        new_cluster: bool = False,
    ) -> None:
        if nodes < 1:
            raise ValueError(f"nodes must be 1 or more, got {nodes}")
        self.seed = seed
        self._rng = Random(seed)  # noqa: S311 - must be repeatable
        self._drift = drift
        self._skew = skew
        self._timeline = timeline = Timeline()
        self._network = network = Network(timeline, seed, latency)
        self.machines = [Machine(network, index, self._clock(WALL), self._expiry_lag) for index in range(nodes)]
        if not new_cluster:
            self._found()
        self.processes: list[Process] = []
        self._running: list[Process] = []
        self._inside: Process | None = None
        self._saved = SavedLoopState()
        self.watchers: list[Callable[[Process], None]] = []
        """Called after each step of a process."""

    def _found(self) -> None:
        """Have every node record that all nodes have voted for an hour, and what their clocks show."""
        ids = [f"node-{machine.index}" for machine in self.machines]
        for machine, own in zip(self.machines, ids, strict=True):
            since = int((machine.clock() - 3600) * 1e6)
            known = [word for each in ids for word in (f"node:{each}", f"{since} a")]
            record = ("id", own, "server", machine.server.run_id, "origin", "joined", *known)
            session = machine.server.connect(lambda _session, _data: None)
            now = machine.clock()
            others = [
                (each, other.clock() - now) for each, other in zip(ids, self.machines, strict=True) if each != own
            ]
            notes = [word for each, by in others for word in (each, f"{int(now * 1e6)} {int(by * 1e6)} 1")]
            for words in (("redlock-async:node", *record), ("redlock-async:clocks", *notes)):
                if words[1:]:
                    packed = hiredis.pack_command(("HSET", *words))  # type: ignore[arg-type] # the stub wants one word
                    machine.server.receive(session, packed)
            machine.server.disconnect(session)

    def _clock(self, shows: float) -> Clock:
        """Return a clock whose error is within the skew and whose rate is within the drift."""
        rate = self._rng.uniform(1 - self._drift, 1 + self._drift) if self._drift else 1.0
        return Clock(self._timeline, shows=shows + self._rng.uniform(-self._skew, self._skew), rate=rate)

    def _expiry_lag(self) -> float:
        """Seconds from a key's expiry to its deletion: usually one tick, sometimes up to 2 s."""
        return self._rng.random() * (0.01 if self._rng.random() < 0.9 else 2.0)  # noqa: PLR2004 - nine of ten keys

    @property
    def now(self) -> float:
        """True time: seconds since the start."""
        return self._timeline.now

    @property
    def urls(self) -> list[str]:
        """The URLs of the nodes, for `Redlock`."""
        return [f"redis://{machine.label}" for machine in self.machines]

    # Running

    def process(self, main: Callable[..., Awaitable[Any]], *arguments: object, name: str | None = None) -> Process:
        """Start a process that runs a coroutine function as `asyncio.run` would."""
        index = len(self.processes)
        skew = self._rng.uniform(-self._skew, self._skew)
        clock = self._clock(1_000_000.0)
        process = Process(self._network, self.machines, index, name or f"process {index}", clock, skew)
        self.processes.append(process)
        self._running.append(process)
        process.start(main, arguments)
        return process

    def at(self, when: float, function: Callable[..., object], *arguments: object) -> None:
        """Call a function at that time, between steps of the processes, to inject a fault, check or start a process."""
        self._timeline.at(when, self._call, function, *arguments)

    def run(self, seconds: float | None = None) -> None:
        """Let time pass, for `seconds` or until every process has ended.

        Raises SimulationError if processes are still waiting but nothing can happen any more.
        """
        self._saved = SavedLoopState()
        timeline, end = self._timeline, inf if seconds is None else self._timeline.now + seconds
        try:
            while self._running or seconds is not None:
                next_at, process = self._next()
                if next_at > end or (next_at == inf and seconds is not None):
                    timeline.now = end
                    break
                if next_at == inf:
                    raise SimulationError(
                        f"deadlock: nothing can happen any more, but these have not ended: {self._running}"
                    )
                if process is None:
                    timeline.run_next()
                else:
                    timeline.now = max(timeline.now, next_at)
                    self._step(process)
        finally:
            self._enter(None)

    def _next(self) -> tuple[float, Process | None]:
        """The time of the next event, and its process if it belongs to one."""
        next_at, next_process = self._timeline.next_at, None
        for process in self._running:
            if process.wakes_at <= next_at:
                next_at, next_process = process.wakes_at, process
        return next_at, next_process

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
        """Call a function of the user, which may kill, stop or wake any process."""
        self._enter(None)
        function(*arguments)
        self._running[:] = [process for process in self._running if not process.ended]
        for process in self._running:
            process.schedule_wakeup()

    def _enter(self, process: Process | None) -> None:
        """Make this the current process: set the running loop and the generator hooks."""
        if process is self._inside:
            return
        if process is None:
            self._saved.restore()
        else:
            if self._inside is None:
                self._saved.set_aside()
            process.loop.enter()
        self._inside = process

    def close(self) -> None:
        """Kill all running processes and close the event loops."""
        for process in self.processes:
            process.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # Faults of a server process, named as in LocalCluster

    def pause(self, i: int) -> None:
        """Freeze node `i`, as by SIGSTOP."""
        self.machines[i].pause()

    def resume(self, i: int) -> None:
        """Continue node `i`. It handles everything that arrived in the meantime."""
        self.machines[i].resume()

    def kill(self, i: int, *, silently: bool = False) -> None:
        """Kill node `i`; or `silently`, as by a power cut, so that clients do not see their connections end."""
        self.machines[i].kill(silently=silently)

    def restart(self, i: int, *, keep_data: bool = False) -> None:
        """Restart node `i`, empty or with its data."""
        self.machines[i].restart(keep_data=keep_data)

    def copy_data(self, i: int) -> None:
        """Copy the data of node `i`: what a replica has that stops replicating now, or a file that is saved now."""
        self.machines[i].copy_data()

    def promote(self, i: int) -> None:
        """Replace the server of node `i` by a replica with the data of the last `copy_data`."""
        self.machines[i].promote()

    def fail_over(self, i: int) -> None:
        """Put such a replica behind the address of node `i`; the old server continues to serve its open connections."""
        self.machines[i].fail_over()

    def end_old_server(self, i: int) -> None:
        """End the server of node `i` that was replaced by `fail_over`."""
        self.machines[i].end_old_server()

    def roll_back(self, i: int) -> None:
        """Kill node `i` and restart it with the data of the last `copy_data`, without an append-only file."""
        self.machines[i].roll_back()

    # Faults of the network between a node and one process, or all

    def stall_requests(self, i: int, process: Process | None = None) -> None:
        """Hold back requests to node `i` until `heal`."""
        self._block(i, process, UP)

    def stall_replies(self, i: int, process: Process | None = None) -> None:
        """Hold back replies and push messages from node `i` until `heal`."""
        self._block(i, process, DOWN)

    def black_hole(self, i: int, process: Process | None = None) -> None:
        """Hold back everything, in both directions, until `heal`."""
        self._block(i, process, UP, DOWN)

    def _block(self, i: int, process: Process | None, *ways: int) -> None:
        for affected in self.processes if process is None else [process]:
            self._network.block(affected, self.machines[i], *ways)

    def delay(self, i: int, seconds: float, process: Process | None = None) -> None:
        """Delay everything to and from node `i` by `seconds` until `heal`."""
        self._network.extra_delays[process, self.machines[i]] = seconds

    def slow_requests(self, i: int, seconds: float) -> None:
        """Deliver requests on the connections open now no earlier than in `seconds`, unlike those on new ones."""
        self._slow(i, UP, seconds)

    def slow_replies(self, i: int, seconds: float) -> None:
        """Deliver replies on the connections open now no earlier than in `seconds`, unlike those on new ones."""
        self._slow(i, DOWN, seconds)

    def _slow(self, i: int, way: int, seconds: float) -> None:
        for link in self._network.to(self.machines[i]):
            link.stall(way, seconds)

    def sever(self, i: int, process: Process | None = None, *, both_ends: bool = True) -> None:
        """Break the connections to node `i`. Messages in transit are lost.

        With `both_ends=False` only the processes see the end, and requests in transit still arrive.
        """
        for link in self._network.to(self.machines[i]):
            if link.session is not None and process in {None, link.process}:
                link.sever(both_ends=both_ends)

    def step_clock(self, i: int, seconds: float) -> None:
        """Set the wall clock of node `i` forward by that many seconds, or back if they are negative."""
        self.machines[i].clock.shows += seconds
        self.machines[i].clock_changed()

    def set_clock_rate(self, i: int, rate: float) -> None:
        """Let the wall clock of node `i` advance by `rate` seconds per second: 1.005 slews it, 0.0 freezes it."""
        self.machines[i].clock.run_at(rate)
        self.machines[i].clock_changed()

    def reset(self, i: int) -> None:
        """End the connections to node `i`, as `CLIENT KILL` would."""
        self.machines[i].reset()

    def reset_connecting(self, i: int, *arrivals: int | None, process: Process | None = None) -> None:
        """Reset each of the next connections to node `i` at that arrival; None lets a connection pass.

        0 is its acceptance. The first messages after that belong to the handshake: they are executed, and the reply to
        the last one is lost.
        """
        self.machines[i].resets[process] = deque(arrivals)

    def cut(self, i: int) -> None:
        """End the connections to node `i` and refuse new ones until `heal`."""
        self.machines[i].reachable = False
        self.machines[i].reset()

    def heal(self, i: int) -> None:
        """End all network faults of node `i`."""
        machine = self.machines[i]
        machine.reachable = True
        machine.resets.clear()
        self._network.clear_delays(machine)
        self._network.unblock(machine)
