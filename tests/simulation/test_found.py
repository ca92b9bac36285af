"""What the simulation has found and no mutant stands for: it must not come back."""

import asyncio
from contextlib import suppress

import pytest
import schedules
from recorder import Recorder
from schedules import Fault, Job, Schedule

from redlock_async import LockLost, LockTimeout, QuorumUnavailable, Redlock, RedlockError, _contest
from redlock_async._keys import Keys
from redlock_async._line import SIGNS
from redlock_async._queue import SHORTEST_PLACE
from redlock_async._renewal import Renewals
from redlock_async._wire import pack
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


def test_a_fair_waiter_is_not_passed_while_it_lacks_votes():
    """A vote that it had to give back must not have cost its place there: the next could get one now, one later."""
    served = []

    async def holder():
        async with Redlock(simulation.urls) as redlock, redlock.fair("x"):
            await asyncio.sleep(1)

    async def waiter(number):
        async with Redlock(simulation.urls) as redlock:
            await asyncio.sleep(0.2 * number)
            async with redlock.fair("x"):
                served.append(number)

    with Simulation(nodes=2, seed=1) as simulation:
        first = simulation.process(holder)
        processes = [first, *(simulation.process(waiter, number) for number in (1, 2))]
        # Its release reaches one master before the other, and what the second waiter asks of that one comes later yet.
        simulation.at(0.9, simulation.delay, 1, 0.02, first)
        simulation.at(0.9, simulation.delay, 1, 0.07, processes[-1])
        simulation.run()
        for process in processes:
            process.result()
    assert served == [1, 2]


def test_a_fair_waiter_hears_from_its_own_sign_of_life_that_it_is_the_first():
    """That one ended the place of a dead waiter before it, and no server reports to a client what that has done."""
    served = []

    async def waiter(number, works):
        async with Redlock(simulation.urls) as redlock:
            await asyncio.sleep(0.2 * number)
            async with redlock.fair("x"):
                served.append((number, simulation.now))
                await asyncio.sleep(works)

    with Simulation(nodes=3, seed=1) as simulation:
        holder, next_, dead, last = [simulation.process(waiter, number, 1.5 * (number == 0)) for number in range(4)]
        simulation.at(0.5, dead.kill)
        # At 1.5 s the last is refused once more, because of the next, whose place is good for as long again. But that
        # one leaves soon after, and only the dead one is told.
        for node in range(3):
            simulation.at(1, simulation.delay, node, 0.005, next_)
        simulation.run()
        for process in (holder, next_, last):
            process.result()
    assert [number for number, _ in served] == [0, 1, 3]
    assert served[-1][1] < 0.5 + SHORTEST_PLACE + SHORTEST_PLACE / SIGNS + 0.1


def test_a_dead_reader_holds_a_plain_lock_out_no_longer_because_another_has_left():
    """The key that plain locks look at was kept for as long as the one that had been renewed last would have stayed."""

    async def read(works):
        async with Redlock(simulation.urls, ttl=4) as redlock, redlock.read("x"):
            await asyncio.sleep(works)

    async def lock():
        async with Redlock(simulation.urls, ttl=4) as redlock:
            await asyncio.sleep(1)
            async with redlock("x", wait=60):
                return simulation.now

    with Simulation(nodes=3, seed=1) as simulation:
        dies, leaves, waits = simulation.process(read, 60), simulation.process(read, 5), simulation.process(lock)
        simulation.at(2, dies.kill)
        simulation.run()
        leaves.result()
        # Renewed at 1.3 s for the last time, good for 4 s, and up to a second of grace.
        assert waits.result() < 2 + 4 + 1


def test_a_straggler_does_not_bring_back_votes_that_a_renewal_has_missed():
    """One master is slow to grant, and another is gone before it does: the margin was that of the first moment."""

    async def main():
        async with Redlock(simulation.urls, ttl=10) as redlock:
            simulation.hold(4)
            lease = await redlock("x").acquire()
            await asyncio.sleep(0.005)
            margins = [lease.margin]
            simulation.kill(0, silently=True)
            await asyncio.sleep(0.5)
            margins.append(lease.margin)
            simulation.heal(4)
            await asyncio.sleep(0.1)
            return [*margins, lease.margin]

    with Simulation(nodes=5, seed=1) as simulation:
        process = simulation.process(main)
        simulation.run()
        assert process.result() == [1, 0, 1]


@pytest.mark.parametrize("seen_by", ["acquire", "extend", "downgrade"])
def test_nobody_polls_for_a_lease_that_needs_no_first_look(monkeypatch, seen_by):
    """Confirmed before that, it is due a third of its ttl later: until then all were gone through each 10 ms."""
    looks = []
    look = Renewals._look_at_new
    monkeypatch.setattr(Renewals, "_look_at_new", lambda renewals: (looks.append(simulation.now), look(renewals)))

    async def main():
        async with Redlock(simulation.urls, ttl=30) as redlock:
            lease = await redlock.write("x").acquire()
            if seen_by == "extend":
                await lease.extend()
            elif seen_by == "downgrade":
                lease = await lease.downgrade()
            await asyncio.sleep(40)
            assert lease.valid
            await lease.release()

    with Simulation(nodes=3, seed=1) as simulation:
        process = simulation.process(main)
        simulation.run()
        process.result()
    assert len(looks) <= 4


def test_a_client_that_closes_while_it_downgrades_leaves_neither_writer_nor_reader():
    """It is kept neither as a writer any more nor as a reader yet, and what is sent after the close goes nowhere."""
    for closes_at in range(0, 30, 3):

        async def main(closes_at=closes_at):
            redlock = Redlock(simulation.urls, ttl=60)
            lease = await redlock.write("x").acquire()
            downgrading = asyncio.create_task(lease.downgrade())
            await asyncio.sleep(closes_at / 10_000)
            await redlock.aclose()
            with pytest.raises(LockLost, match="closed"):
                await downgrading

        with Simulation(nodes=3, seed=1, latency=lambda _: 0.001) as simulation:
            recorder = Recorder(simulation)
            process = simulation.process(main)
            simulation.run(1.0)
            process.result()
            assert not recorder.strays(), f"closed at {closes_at / 10} ms"


def test_a_lease_that_is_released_by_who_hears_of_its_renewal_is_not_set_again():
    """An eager task (Python 3.12) begins within the callback: its release is sent before the renewal's repairs are."""

    async def main():
        async with Redlock(simulation.urls, ttl=3) as redlock:
            lease = await redlock("x").acquire()
            await asyncio.sleep(0.9)

            def release(event):
                if event.kind == "extended":
                    releasing = lease.release()
                    releasing.send(None)
                    releasing.close()

            redlock.on_event(release)
            simulation.restart(0)
            await asyncio.sleep(1)
            assert not lease.valid
            assert not recorder.strays()

    with Simulation(nodes=3, seed=1) as simulation:
        recorder = Recorder(simulation)
        process = simulation.process(main)
        simulation.run(3)
        process.result()


def test_a_client_that_is_closed_by_who_hears_of_a_full_queue_releases_behind_what_it_acquires():
    """A transport tells of it from within the write that filled it, when the other connections had not been written."""

    async def main():
        redlock = Redlock(simulation.urls, ttl=60)
        async with redlock("warm"):
            pass
        wire = redlock._running.nodes[0].wire
        write = wire.write

        def write_to_the_brim(packed):
            write(packed)
            wire.pause_writing()

        def close(event):  # as an eager task does (Python 3.12)
            if event.kind == "node_down":
                closing = redlock.aclose()
                closing.send(None)
                closing.close()

        redlock.on_event(close)
        wire.write = write_to_the_brim
        with pytest.raises(RedlockError, match="closed"):
            await redlock("x").acquire()

    with Simulation(nodes=3, seed=1) as simulation:
        recorder = Recorder(simulation)
        process = simulation.process(main)
        simulation.run(1)
        process.result()
        assert not recorder.strays()


@pytest.mark.parametrize("away", [0.01, 0.02, 0.03, 0.05])
def test_a_change_of_permits_that_failed_is_taken_back_when_it_says_so(away):
    """Two operators far away split four masters between them, and both fail; who tries next is in nobody's way."""
    lags, failed = (0.01, 0.01, 0.05, 0.05), []

    async def far(permits):
        async with Redlock(simulation.urls) as redlock:
            await redlock.status()
            with pytest.raises(LockTimeout, match="at the same time"):
                await redlock.change_permits("x", permits)
            failed.append(permits)

    async def next_one():
        async with Redlock(simulation.urls) as redlock:
            while len(failed) < 2:  # noqa: ASYNC110 - an event of one simulated process wakes nobody in another
                await asyncio.sleep(0.001)
            await redlock.change_permits("x", 4)

    with Simulation(nodes=4, seed=1) as simulation:
        operators = [simulation.process(far, permits) for permits in (2, 3)]
        for operator, way in zip(operators, (lags, lags[::-1]), strict=True):
            for node, lag in enumerate(way):
                simulation.delay(node, lag, operator)
        last = simulation.process(next_one)
        for node in range(4):
            simulation.delay(node, away, last)
        simulation.run()
        for process in (*operators, last):
            process.result()


def test_who_waits_for_a_latch_hears_of_news_in_a_late_answer():
    """The nodes report nothing more of it: there it was read already, and the others are told by the waiter itself."""
    opened = []

    async def wait():
        async with Redlock(simulation.urls) as redlock:
            await redlock.status()
            await asyncio.sleep(1 - simulation.now)
            await redlock.latch("x", count=1).wait()
            opened.append(simulation.now)

    async def count():
        async with Redlock(simulation.urls) as redlock:
            await redlock.status()
            await asyncio.sleep(1.015 - simulation.now)  # two masters have been looked at, and the third not yet
            await redlock.latch("x", count=1).count_down("a")

    with Simulation(nodes=3, seed=1) as simulation:
        waiter, counter = simulation.process(wait), simulation.process(count)
        simulation.delay(2, 0.03, waiter)
        simulation.at(1.012, simulation.hold, 0, counter)
        simulation.at(1.012, simulation.hold_replies, 1, waiter)
        simulation.run(20)
        waiter.result()
    assert opened
    assert opened[0] < 1.5


@pytest.mark.parametrize("seed", range(10))
def test_a_failed_attempt_tells_the_others_of_its_process_what_it_gives_back(seed, monkeypatch):
    """The nodes do not: it was our own connection that deleted it. Who was stopped by it would wait for long."""
    monkeypatch.setattr(_contest, "RACES", 0)
    got = []

    async def hold():
        async with Redlock(simulation.urls) as redlock:
            lease = await redlock.semaphore("x", permits=3).acquire(count=3)
            await asyncio.sleep(1 - simulation.now)
            await lease.release()

    async def wait():
        async with Redlock(simulation.urls) as redlock:
            await redlock.status()
            await asyncio.sleep(0.5 - simulation.now)
            semaphore = redlock.semaphore("x", permits=3)
            async with asyncio.TaskGroup() as group:
                # By two masters it is held back; the one that both ask first it is granted a slot, and stops the other.
                fewer = group.create_task(semaphore.acquire(wait=5))
                await asyncio.sleep(0)
                await (await semaphore.acquire(count=3)).release()
                got.append(simulation.now)
                await (await fewer).release()

    with Simulation(nodes=3, seed=seed) as simulation:
        for machine in simulation.machines[1:]:
            _, hint = Keys("").semaphore("x")
            session = machine.master.connect(lambda *_: None)
            machine.master.receive(session, pack(("SET", hint, "2:of one who died waiting", "PX", 3000)))
        holder, waiter = simulation.process(hold), simulation.process(wait)
        simulation.run(20)
        holder.result()
        waiter.result()
    assert got
    assert got[0] < 1.2
