"""A machine that is suspended while it holds a lock: the lease clock continues, and the event loop's timers stop."""

import asyncio

import pytest

from redlock_async import LockLost, Redlock, _runtime
from redlock_async.testing.simulation import Simulation

NOTICED = 0.51
"""Seconds after a resume until an expired lease must have been noticed."""


@pytest.mark.parametrize("ttl", [1.0, 10.0, 60.0, 3600.0])
@pytest.mark.parametrize("renew", [True, False])
def test_a_block_ends_within_half_a_second_after_its_machine_was_resumed(ttl, renew):
    """Another process may have the lock by then. Timers alone would notice up to two thirds of a ttl later."""
    ended = []

    async def sleeper():
        async with Redlock(simulation.urls) as redlock:
            with pytest.raises(LockLost, match=r"paused|its ttl of"):
                async with redlock("x", ttl=ttl, renew=renew):
                    try:
                        await asyncio.sleep(10 * ttl)
                    finally:
                        ended.append(simulation.now)

    async def other():
        async with Redlock(simulation.urls) as redlock, redlock("x", wait=None):
            ended.append("the other one has it")

    with Simulation(seed=1) as simulation:
        process = simulation.process(sleeper)
        simulation.run(0.3 * ttl)
        process.suspend(1.1 * ttl)
        for node in range(5):  # its network takes a while to come back, so no node reports that the key has changed
            simulation.black_hole(node, process)
            simulation.at(4 * ttl, simulation.heal, node)
        resumed = simulation.now + 1.1 * ttl
        simulation.process(other)
        simulation.run()
        process.result()
    assert ended[0] == "the other one has it"
    assert ended[1] - resumed < NOTICED


def test_a_lease_that_outlasts_the_suspend_is_renewed_after_it():
    """No lease is lost, and the block continues."""

    async def sleeper():
        async with Redlock(simulation.urls) as redlock, redlock("x", ttl=60) as lease:
            await asyncio.sleep(40)
            assert lease.remaining > 35
        return "done"

    with Simulation(seed=1) as simulation:
        process = simulation.process(sleeper)
        simulation.run(10)
        process.suspend(45)
        simulation.run()
        assert process.result() == "done"


def test_the_clock_is_read_twice_a_second_while_a_lease_is_held_and_then_not(monkeypatch):
    """Noticing a suspend costs no more, and a released lease of a day leaves no timer."""
    read, run = [], _runtime.renewal.Renewals._run
    monkeypatch.setattr(
        _runtime.renewal.Renewals, "_run", lambda renewals: (read.append(simulation.now), run(renewals))
    )

    async def holder():
        async with Redlock(simulation.urls) as redlock:
            async with redlock("x", ttl=86400):
                await asyncio.sleep(100)
            await asyncio.sleep(1000)

    with Simulation(seed=1) as simulation:
        simulation.process(holder)
        simulation.run()
    assert 195 < len(read) < 210
    assert max(read) < 102
