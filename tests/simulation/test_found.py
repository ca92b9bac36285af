"""What the simulation has found and no mutant stands for: it must not come back."""

import asyncio
from contextlib import suppress

import pytest
import schedules
from recorder import Recorder
from schedules import Fault, Job, Schedule

from redlock_async import QuorumUnavailable, Redlock, RedlockError, _contest
from redlock_async.testing.simulation import Simulation


def test_a_far_master_does_not_make_near_ones_look_young():
    """How old data is, is told from where one stands: in a cluster's first ttl that must hold nobody out."""
    far = Fault(0.0, "lag", 0, 0.05, process=1)
    jobs = (
        (Job("lock", "x", at=0.0, ttl=5.0, wait=1.0, work=0.0),),
        tuple(Job("lock", "y", at=at, ttl=5.0, wait=10.0, work=0.0) for at in (0.0, 1.0)),
    )
    run = schedules.Run(Schedule(1, 3, 0.001, 0.0, 0.0, jobs, (far,)), schedules.Clients())
    assert not run.outcome().violations
    first, second, *_ = [hold.start for hold in run.recorder.holds() if hold.name == "y"]
    assert first < 0.5
    assert 1.0 < second < 1.5, "it waited for a ttl"


def test_a_master_that_could_not_answer_for_its_mark_is_asked_again():
    """A longer ttl has it read again, just when the server is busy; nothing else would ask."""

    async def main():
        async with Redlock(simulation.urls, ttl=1) as redlock:
            async with redlock("x"):
                await asyncio.sleep(1)
            for machine in simulation.machines:
                machine.master.errors[b"*"] = b"BUSY Redis is busy running a script."
            with pytest.raises(QuorumUnavailable):
                await redlock("x", ttl=60, wait=0).acquire()
            await asyncio.sleep(0.1)
            for machine in simulation.machines:
                machine.master.errors.clear()
            await asyncio.sleep(5)
            async with redlock("x", wait=0):
                pass

    with Simulation(nodes=3, seed=1) as simulation:
        process = simulation.process(main)
        simulation.run()
        process.result()


@pytest.mark.parametrize("released", [False, True], ids=["by closing", "before closing"])
@pytest.mark.parametrize("kind", ["read", "several"])
def test_a_release_without_its_script_is_repeated_while_the_client_closes(kind, released):
    """A server that was told SCRIPT FLUSH answers NOSCRIPT, and no other connection will bring the release again."""

    async def main():
        redlock = Redlock(simulation.urls, ttl=20)
        lease = await (redlock.read("x") if kind == "read" else redlock("x", "y")).acquire()
        for machine in simulation.machines[: 1 if released else None]:
            machine.master.scripts.clear()
        if released:
            simulation.delay(0, 0.01)  # the two others confirm it first
            await lease.release()
        await redlock.aclose()

    with Simulation(nodes=3, seed=1) as simulation:
        recorder = Recorder(simulation)
        process = simulation.process(main)
        simulation.run(1.0)
        process.result()
        assert not recorder.strays()


def test_a_client_that_closes_while_it_asks_one_node_first_asks_no_others(monkeypatch):
    """That node is dropped, which had the others asked when the release was on its way already, and not to them."""
    monkeypatch.setattr(_contest, "RACES", 0)
    for closes_at in range(0, 300, 5):

        async def hold():
            async with Redlock(simulation.urls, ttl=60) as redlock:
                async with redlock("x"):
                    await asyncio.sleep(0.5)
                await asyncio.sleep(0.1)

        async def wait(closes_at=closes_at):
            redlock = Redlock(simulation.urls, ttl=60)
            await asyncio.sleep(0.1)
            waiting = asyncio.create_task(redlock("x", wait=20).acquire())
            await asyncio.sleep(0.4 + closes_at / 10_000)
            await redlock.aclose()
            with suppress(RedlockError):
                await waiting

        with Simulation(nodes=3, seed=1, latency=lambda _: 0.001) as simulation:
            recorder = Recorder(simulation)
            processes = [simulation.process(hold), simulation.process(wait)]
            simulation.run(1.0)
            for process in processes:
                process.result()
            assert not recorder.strays(), f"closed at {closes_at / 10} ms"
