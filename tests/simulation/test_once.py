"""`once` in simulated time: schedulers that tick early, late or simultaneously, and faults during a run."""

import asyncio
import random

import pytest

from redlock_async import LockLost, LockTimeout, QuorumUnavailable, Redlock
from redlock_async.testing.simulation import Simulation

MINUTE = 60.0


class Runs:
    """When each run started and ended in true time, and which ticks were skipped."""

    def __init__(self, simulation):
        self.simulation = simulation
        self.begun = []
        self.ended = []
        self.skipped = 0
        self.now = 0

    async def body(self, seconds=0.0):
        """A run that takes so long."""
        self.now += 1
        assert self.now == 1, "two at the same time"
        self.begun.append(self.simulation.now)
        try:
            await asyncio.sleep(seconds)
        finally:
            self.now -= 1
            self.ended.append(self.simulation.now)
        return "done"


def ticks(simulation, runs, seconds=0.0, **options):
    """A process that calls it at those true times. An error is the result of that tick."""

    async def main(times):
        async with Redlock(simulation.urls) as redlock:
            await redlock.status()  # connected before the first tick, as a service is

            @redlock.once("report", **options)
            async def report():
                return await runs.body(seconds)

            async def tick(at):
                await asyncio.sleep(at - simulation.now)
                try:
                    outcome = await report()
                except Exception as error:  # noqa: BLE001 - looked at by the test
                    return error
                runs.skipped += outcome is None
                return outcome

            return await asyncio.gather(*map(tick, times))

    return lambda times: simulation.process(main, times)


@pytest.mark.parametrize("seed", range(12))
def test_once_a_period_whoever_ticks_early_or_late(seed):
    """Each period has its run on five machines whose ticks are early or late by up to 5 % of the period."""
    rng = random.Random(seed)
    with Simulation(nodes=5, seed=seed, drift=0.001) as simulation:
        runs = Runs(simulation)
        machine = ticks(simulation, runs, every=MINUTE)
        for _ in range(5):
            machine([MINUTE * period + rng.uniform(-3, 3) for period in range(1, 21)])
        simulation.run()
        assert [round(at / MINUTE) for at in runs.begun] == list(range(1, 21))
        assert runs.skipped == 4 * 20


@pytest.mark.share(3)
@pytest.mark.parametrize("machines", [2, 3, 8])
def test_who_ticks_at_the_same_moment_does_not_leave_it_to_each_other(machines):
    """Split votes do not count as a holder: of several simultaneous ticks exactly one runs."""
    for seed in range(40):
        with Simulation(nodes=5, seed=seed) as simulation:
            runs = Runs(simulation)
            machine = ticks(simulation, runs, every=MINUTE)
            for _ in range(machines):
                machine([10.0])
            simulation.run()
            assert len(runs.begun) == 1, f"seed {seed}"
            assert runs.skipped == machines - 1


def test_try_acquire_of_a_plain_lock_is_not_fooled_by_split_votes_either():
    """None means that the lock is held."""
    for seed in range(40):
        with Simulation(nodes=4, seed=seed) as simulation:
            got = []

            async def main(got=got, simulation=simulation):
                async with Redlock(simulation.urls) as redlock:
                    await redlock.status()
                    await asyncio.sleep(10.0 - simulation.now)
                    if (lease := await redlock("x").try_acquire()) is not None:
                        got.append(lease)
                        await asyncio.sleep(1)
                        await lease.release()

            for _ in range(5):
                simulation.process(main)
            simulation.run()
            assert len(got) == 1, f"seed {seed}"


def test_who_leaves_it_out_knows_after_one_round_trip():
    """Even if the number of nodes is even, so that less than a majority refuses before the result is decided."""
    for nodes in (1, 2, 3, 4, 5):
        with Simulation(nodes=nodes, seed=nodes, latency=lambda _: 0.01) as simulation:
            took = []

            async def main(index, took=took, simulation=simulation):
                async with Redlock(simulation.urls) as redlock:
                    await redlock.status()
                    once = redlock.once("report", every=MINUTE)
                    await asyncio.sleep(1.0 + index - simulation.now)
                    begun = simulation.now
                    lease = await once.try_acquire()
                    took.append(simulation.now - begun)
                    assert (lease is None) == bool(index)
                    await asyncio.sleep(10)
                    if lease is not None:
                        await lease.release()

            for index in range(3):
                simulation.process(main, index)
            simulation.run()
            assert max(took[1:]) < (0.025 if nodes % 2 else 0.075), (nodes, took)


def test_phases_that_differ_still_leave_nine_tenths_between_runs():
    """Schedulers that count from their start never tick together, and no run starts too early."""
    with Simulation(nodes=5, seed=1) as simulation:
        runs = Runs(simulation)
        machine = ticks(simulation, runs, every=MINUTE)
        for phase in (5.0, 25.0, 58.0):
            machine([phase + MINUTE * period for period in range(30)])
        simulation.run()
        between = [later - earlier for earlier, later in zip(runs.begun, runs.begun[1:], strict=False)]
        assert len(runs.begun) >= 27
        assert min(between) >= 0.9 * MINUTE - 0.01


def test_hold_says_how_late_another_s_tick_may_be():
    """A tick after the hold runs again; a tick that is early by less than the rest of the period is not lost."""
    with Simulation(nodes=5, seed=1) as simulation:
        runs = Runs(simulation)
        machine = ticks(simulation, runs, every=MINUTE, hold=10)
        machine([5.0, 65.0])
        machine([14.0, 76.0])
        simulation.run()
        assert [round(at) for at in runs.begun] == [5, 65, 76]


def failing(runs, **options):
    """One process whose run fails, and another that ticks a second later and in the next period."""

    async def first():
        async with Redlock(runs.simulation.urls) as redlock:
            await asyncio.sleep(5)

            @redlock.once("report", every=MINUTE, **options)
            async def report():
                await runs.body(0.1)
                raise ValueError

            with pytest.raises(ValueError):  # noqa: PT011 - ours
                await report()

    return first


@pytest.mark.parametrize("retry_failed", [False, True])
def test_a_run_that_fails_counts_unless_it_is_to_be_tried_again(retry_failed):
    """By default it counts, so the next machine does not send a half-sent mail again."""
    with Simulation(nodes=5, seed=1) as simulation:
        runs = Runs(simulation)
        simulation.process(failing(runs, retry_failed=retry_failed))
        ticks(simulation, runs, every=MINUTE, retry_failed=retry_failed)([6.0, 66.0])
        simulation.run()
        assert [round(at) for at in runs.begun] == ([5, 6, 66] if retry_failed else [5, 66])


@pytest.mark.parametrize("retry_failed", [False, True])
@pytest.mark.parametrize("by", ["cancellation", "max_hold"])
def test_a_run_that_is_cancelled_has_failed(by, retry_failed):
    """Cancelled from outside, as in a deployment, or by max_hold; in a block as with the decorator."""

    async def first():
        async with Redlock(simulation.urls) as redlock:
            await asyncio.sleep(5)
            lease = await redlock.once(
                "report", every=MINUTE, retry_failed=retry_failed, max_hold=2 if by == "max_hold" else None
            ).try_acquire()

            async def body():
                async with lease:
                    await runs.body(100)

            task = asyncio.create_task(body())
            await asyncio.sleep(2.5)
            if by == "max_hold":
                with pytest.raises(LockLost, match="max_hold"):
                    await task
            else:
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task

    with Simulation(nodes=5, seed=1) as simulation:
        runs = Runs(simulation)
        process = simulation.process(first)
        ticks(simulation, runs, every=MINUTE, retry_failed=retry_failed)([9.0, 66.0])
        simulation.run()
        process.result()
        assert [round(at) for at in runs.begun] == ([5, 9, 66] if retry_failed else [5, 66])


@pytest.mark.parametrize(("ttl", "begun"), [(None, [5, 26, 87]), (54, [5, 87])])
def test_a_process_that_dies_in_it(ttl, begun):
    """It runs at least once, again after the ttl; with a ttl as long as the hold, at most once."""
    with Simulation(nodes=5, seed=1) as simulation:
        runs = Runs(simulation)
        victim = ticks(simulation, runs, seconds=30, every=MINUTE, ttl=ttl)([5.0])

        def killed():
            victim.kill()
            runs.now = 0

        simulation.at(10, killed)
        ticks(simulation, runs, every=MINUTE, ttl=ttl)([14.0, 26.0, 87.0])
        simulation.run()
        assert [round(at) for at in runs.begun] == begun


def test_a_run_that_takes_longer_than_the_period():
    """The ticks during it are skipped and never run concurrently; the first tick after it runs."""
    with Simulation(nodes=5, seed=1) as simulation:
        runs = Runs(simulation)
        ticks(simulation, runs, seconds=2.5 * MINUTE, every=MINUTE)([MINUTE * period for period in range(1, 5)])
        ticks(simulation, runs, every=MINUTE)([MINUTE * period + 1 for period in range(1, 6)])
        simulation.run()
        assert [round(at / MINUTE, 1) for at in runs.begun] == [1.0, 4.0]
        assert runs.skipped == 7


@pytest.mark.parametrize("down", [1, 2])
def test_nodes_that_are_down_or_frozen(down):
    """A failing minority changes nothing, before, during or after the run."""
    for when in (4.0, 5.05, 20.0):
        for fault in ("kill", "pause"):
            with Simulation(nodes=5, seed=down) as simulation:
                runs = Runs(simulation)
                machine = ticks(simulation, runs, seconds=0.1, every=MINUTE)
                machine([5.0, 65.0])
                machine([30.0, 66.0])
                for index in range(down):
                    simulation.at(when, getattr(simulation, fault), index)
                simulation.run()
                assert [round(at) for at in runs.begun] == [5, 65], (when, fault)


def test_an_outage_is_an_error_and_not_another_s_turn():
    """No process runs it, so none may report that another one does."""
    with Simulation(nodes=5, seed=1) as simulation:
        runs = Runs(simulation)
        process = ticks(simulation, runs, every=MINUTE)([5.0, 65.0, 125.0])
        for index in range(3):
            simulation.at(30, simulation.kill, index)
            simulation.at(100, simulation.restart, index)
        simulation.run()
        first, second, third = process.result()
        assert (first, third) == ("done", "done")
        assert isinstance(second, QuorumUnavailable)
        assert runs.skipped == 0


def test_the_name_is_a_plain_lock_s():
    """So operators see which process ran it, and can release it to allow another run in the period."""

    async def main():
        async with Redlock(simulation.urls, owner="first") as redlock:
            once = redlock.once("report", every=MINUTE)
            async with await once.try_acquire():
                pass
            assert await once.try_acquire() is None
            holder = await redlock.inspect("report")
            assert holder.owner == "first"
            assert 50 < holder.remaining <= 54
            with pytest.raises(LockTimeout):
                await redlock("report").acquire(wait=0)
            assert await redlock.force_release("report")
            async with await once.try_acquire() as lease:
                assert lease.fencing_token

    with Simulation(nodes=5, seed=1) as simulation:
        process = simulation.process(main)
        simulation.run()
        process.result()
