"""The public behaviour of a simulation: time, processes, faults, and repeatable runs."""

import asyncio
import subprocess
import sys
import threading

import pytest

from redlock_async import LockLost, LockTimeout, QuorumUnavailable, Redlock
from redlock_async.testing.simulation import Simulation, SimulationError

HOUR = 3600


def test_an_hour_passes_in_no_time():
    """A lease is renewed all the time, and the second process acquires right after the first."""
    order = []

    async def work(name):
        async with Redlock(simulation.urls) as redlock, redlock("report", wait=None):
            order.append((name, "in", simulation.now))
            await asyncio.sleep(HOUR)
            order.append((name, "out", simulation.now))
        return name

    with Simulation(nodes=5, seed=1) as simulation:
        one, two = simulation.process(work, "one"), simulation.process(work, "two")
        simulation.run()
        assert {one.result(), two.result()} == {"one", "two"}
    (first, _, _), (same, what, out), (second, _, entered), _ = order
    assert (first, what) == (same, "out")
    assert second != first
    assert 0 < entered - out < 0.01
    assert 2 * HOUR < simulation.now < 2 * HOUR + 1


def test_unmodified_services_run_in_it(monkeypatch):
    """The client from the environment connects to simulated nodes as to any others."""
    from redlock_async.client import DefaultRedlock  # noqa: PLC0415 - one of its own: the package's is used once

    with Simulation(nodes=3) as simulation:
        monkeypatch.setenv("REDLOCK_NODES", ",".join(simulation.urls))
        service = DefaultRedlock()

        async def handler():
            async with service("orders:42") as lease:
                return lease.fencing_token

        process = simulation.process(handler)
        simulation.run()
        assert process.result() > 0


def held_by_nobody_else(simulation, until):
    """Hold the lock. Return how the block ended, and when."""

    async def holder():
        redlock = Redlock(simulation.urls, ttl=2, node_timeout=0.1)
        try:
            async with redlock("x"):
                await asyncio.sleep(until)
        except LockLost:
            return "lost", simulation.now
        return "done", simulation.now

    return holder


@pytest.mark.parametrize("fault", ["pause", "kill", "black_hole", "stall_requests", "stall_replies", "cut"])
def test_a_fault_of_a_minority_is_ridden_out_and_one_of_a_majority_is_not(fault):
    """With any fault of the nodes, the block is cancelled before its lease ends."""
    for failed, expected in ((2, "done"), (3, "lost")):
        with Simulation(nodes=5, seed=failed) as simulation:
            process = simulation.process(held_by_nobody_else(simulation, 60))
            for i in range(failed):
                simulation.at(10, getattr(simulation, fault), i)
            simulation.run()
            ended, at = process.result()
        assert ended == expected
        if ended == "lost":
            assert 10 < at < 12


@pytest.mark.parametrize(
    ("fault", "cure"),
    [("pause", "resume"), ("kill", "restart"), ("black_hole", "heal"), ("stall_requests", "heal"), ("cut", "heal")],
)
def test_what_fails_comes_back(fault, cure):
    """Without a majority no process acquires, and each gets an error; afterwards all do."""

    async def tries():
        async with Redlock(simulation.urls, node_timeout=0.1) as redlock:
            async with redlock("x"):
                await asyncio.sleep(5)
            await asyncio.sleep(10)
            with pytest.raises(QuorumUnavailable):
                await redlock("x").acquire(wait=1)
            await asyncio.sleep(60)
            await (await redlock("x").acquire(wait=0)).release()

    with Simulation(nodes=3) as simulation:
        process = simulation.process(tries)
        for i in (0, 2):
            simulation.at(7, getattr(simulation, fault), i)
            simulation.at(40, getattr(simulation, cure), i)
        simulation.run()
        assert process.result() is None


def test_a_process_that_is_stopped_notices_when_it_goes_on():
    """Its block has outlived the lease, so it gets LockLost; another process acquired meanwhile."""

    async def rival():
        async with Redlock(simulation.urls, ttl=2) as redlock:
            await asyncio.sleep(1)
            async with redlock("x", wait=60):
                return simulation.now

    with Simulation(nodes=3) as simulation:
        stopped = simulation.process(held_by_nobody_else(simulation, 20))
        second = simulation.process(rival)
        simulation.at(1.5, stopped.pause, 10.0)
        simulation.run()
        assert stopped.result()[0] == "lost"
        assert stopped.result()[1] == pytest.approx(11.5, abs=0.01)
        assert second.result() < 4


def test_a_process_that_is_killed_leaves_its_lease_to_expire():
    """As after a SIGKILL: none of its code runs again."""

    async def holder():
        try:
            async with Redlock(simulation.urls) as redlock, redlock("x", ttl=10):
                await asyncio.sleep(HOUR)
        finally:
            seen.append(simulation.now)

    async def rival():
        async with Redlock(simulation.urls) as redlock:
            await asyncio.sleep(1)
            with pytest.raises(LockTimeout):
                await redlock("x").acquire(wait=1)
            async with redlock("x", wait=60):
                return simulation.now

    seen = []
    with Simulation(nodes=3) as simulation:
        killed, second = simulation.process(holder), simulation.process(rival)
        simulation.at(5, killed.kill)
        simulation.run()
        assert 10 < second.result() < 16
        with pytest.raises(SimulationError, match="was killed"):
            killed.result()
    assert seen == [pytest.approx(5)], "it was buried, at the moment it died"


def test_what_a_process_returns_and_raises():
    """As from asyncio.run."""

    async def fails():
        raise LookupError("of its own")

    async def sleeps():
        await asyncio.sleep(5)

    with Simulation(nodes=1) as simulation:
        failing, sleeping = simulation.process(fails), simulation.process(sleeps, name="sleeper")
        simulation.run(1)
        with pytest.raises(LookupError, match="of its own"):
            failing.result()
        with pytest.raises(SimulationError, match="'sleeper' is still running"):
            sleeping.result()
        assert simulation.now == 1


def test_what_goes_wrong_in_a_callback_is_raised_by_run():
    """Errors that asyncio would only log are raised."""

    async def careless():
        asyncio.get_running_loop().call_soon(lambda: 1 / 0)
        await asyncio.sleep(1)

    with Simulation(nodes=1) as simulation:
        simulation.process(careless)
        with pytest.raises(ZeroDivisionError):
            simulation.run()


def test_mistakes_are_named():
    """Waiting for something that is not simulated or never happens; unknown nodes; no nodes."""

    async def threads():
        await asyncio.to_thread(threading.Event().wait)

    async def waits_for_ever():
        await asyncio.Event().wait()

    async def elsewhere():
        async with Redlock(["redis://10.0.0.1:6379"]) as redlock, redlock("x"):
            pass

    for main, message in [
        (threads, "no threads and no sockets"),
        (waits_for_ever, "deadlock: nothing can happen any more"),
        (elsewhere, r"no node 10\.0\.0\.1:6379 in this simulation"),
    ]:
        with Simulation(nodes=1) as simulation, pytest.raises(SimulationError, match=message):
            process = simulation.process(main)
            simulation.run()
            process.result()
    with pytest.raises(ValueError, match="nodes must be 1 or more, got 0"):
        Simulation(nodes=0)


@pytest.mark.asyncio
async def test_it_runs_inside_of_a_coroutine_too():
    """The outer loop and its hooks for async generators are restored."""
    around, hooks = asyncio.get_running_loop(), sys.get_asyncgen_hooks()

    async def sleeps():
        await asyncio.sleep(HOUR)
        return asyncio.get_running_loop()

    with Simulation(nodes=1) as simulation:
        process = simulation.process(sleeps)
        simulation.at(5, lambda: seen.append(asyncio.get_running_loop()))
        seen = []
        simulation.run()
        assert process.result() is process.loop
    assert seen == [around]
    assert asyncio.get_running_loop() is around
    assert sys.get_asyncgen_hooks() == hooks
    await asyncio.sleep(0)


def test_a_loop_that_only_spins_lets_time_pass():
    """Every step takes some time, so polling for a deadline ends."""

    async def spins():
        until = asyncio.get_running_loop().time() + 0.01
        while asyncio.get_running_loop().time() < until:  # noqa: ASYNC110 - spinning is the point
            await asyncio.sleep(0)

    with Simulation(nodes=1) as simulation:
        simulation.process(spins)
        simulation.run()
        assert simulation.now == pytest.approx(0.01, rel=0.1)


def test_clocks_differ_between_processes_and_rates_within_the_drift():
    """Clocks of two processes cannot be compared, and no clock is exact."""

    async def look():
        loop = asyncio.get_running_loop()
        began = loop.time()
        await asyncio.sleep(1000)
        return began, loop.time() - began, simulation.now

    with Simulation(nodes=1, seed=3, drift=0.004) as simulation:
        processes = [simulation.process(look) for _ in range(5)]
        simulation.run()
        seen = [process.result() for process in processes]
    assert len({began for began, _, _ in seen}) == 5
    for _, took, true in seen:
        assert took == pytest.approx(1000)
        assert true != pytest.approx(1000, rel=1e-6)
        assert abs(true - 1000) < 4.1


TRACE = """
import asyncio, hashlib, sys
from redlock_async import Redlock
from redlock_async.testing.simulation import Simulation

def trace(seed):
    seen = []
    async def work(number):
        async with Redlock(simulation.urls, ttl=1) as redlock:
            for _ in range(5):
                async with redlock.fair_lock("a"), redlock("b", "c"), redlock.read_lock("d"):
                    seen.append((number, repr(simulation.now)))
                    await asyncio.sleep(0.2)
    with Simulation(nodes=5, seed=seed) as simulation:
        for number in range(4):
            simulation.process(work, number)
        simulation.at(0.5, simulation.kill, 1)
        simulation.at(2.5, simulation.restart, 1)
        simulation.at(3.0, simulation.processes[2].pause, 1.5)
        simulation.run(30)
    return hashlib.sha256(repr(seen).encode()).hexdigest()

print(trace(int(sys.argv[1])))
"""


def test_a_seed_means_the_same_run_in_every_process():
    """To the last bit of every time, with any hash seed and memory addresses."""

    def run(seed, hashes):
        command = [sys.executable, "-c", TRACE, str(seed)]
        return subprocess.run(
            command, env={"PYTHONHASHSEED": hashes}, capture_output=True, text=True, check=True
        ).stdout.strip()

    assert run(5, "1") == run(5, "2")
    assert run(5, "1") != run(6, "1")
