"""Defects that the simulation found and that no mutant represents."""

import asyncio
from contextlib import suppress

import pytest
from framework import schedules
from framework.recorder import Recorder
from framework.schedules import Fault, Job, Schedule

from redlock_async import HoldUnconfirmed, LockLost, LockTimeout, QuorumUnavailable, Redlock, RedlockError, _runtime
from redlock_async._kinds.fair import SHORTEST_ENTRY_TTL
from redlock_async._kinds.fair_queue import HEARTBEATS_PER_ENTRY
from redlock_async._rules.keys import Keys
from redlock_async._runtime.lease_registry import LeaseRegistry
from redlock_async._transport.connection import pack
from redlock_async.testing.simulation import Simulation


def test_a_far_node_does_not_make_near_ones_look_young():
    """Distance changes how old data looks. In a cluster's first ttl that must not quarantine any node."""
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


def test_a_node_that_could_not_answer_for_its_mark_is_asked_again():
    """A longer ttl makes the client read it again just when the server is busy. Nothing else would retry."""

    async def main():
        async with Redlock(simulation.urls, ttl=1) as redlock:
            async with redlock("x"):
                await asyncio.sleep(1)
            for machine in simulation.machines:
                machine.server.errors[b"*"] = b"BUSY Redis is busy running a script."
            with pytest.raises(QuorumUnavailable):
                await redlock("x", ttl=60, wait=0).acquire()
            await asyncio.sleep(0.1)
            for machine in simulation.machines:
                machine.server.errors.clear()
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
    """After SCRIPT FLUSH the server replies NOSCRIPT, and no later connection would repeat the release."""

    async def main():
        redlock = Redlock(simulation.urls, ttl=20)
        lease = await (redlock.read_lock("x") if kind == "read" else redlock("x", "y")).acquire()
        for machine in simulation.machines[: 1 if released else None]:
            machine.server.scripts.clear()
        if released:
            simulation.delay(0, 0.01)  # the two others confirm it first
            await lease.release()
        await redlock.aclose()

    with Simulation(nodes=3, seed=1) as simulation:
        recorder = Recorder(simulation)
        process = simulation.process(main)
        simulation.run(1.0)
        process.result()
        assert not recorder.leftovers()


def test_a_client_that_closes_while_it_asks_one_node_first_asks_no_others(monkeypatch):
    """When that node was dropped, the others got requests although the release was already sent, and not to them."""
    monkeypatch.setattr(_runtime.retry, "PROBE_AFTER_LOST_RACES", 0)
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
            assert not recorder.leftovers(), f"closed at {closes_at / 10} ms"


def test_a_fair_waiter_is_not_passed_while_it_lacks_votes():
    """Releasing a vote must not remove its queue entry there, or the next waiter could collect votes one by one."""
    served = []

    async def holder():
        async with Redlock(simulation.urls) as redlock, redlock.fair_lock("x"):
            await asyncio.sleep(1)

    async def waiter(number):
        async with Redlock(simulation.urls) as redlock:
            await asyncio.sleep(0.2 * number)
            async with redlock.fair_lock("x"):
                served.append(number)

    with Simulation(nodes=2, seed=1) as simulation:
        first = simulation.process(holder)
        processes = [first, *(simulation.process(waiter, number) for number in (1, 2))]
        # Its release reaches one node before the other, and the second waiter's request arrives there even later.
        simulation.at(0.9, simulation.delay, 1, 0.02, first)
        simulation.at(0.9, simulation.delay, 1, 0.07, processes[-1])
        simulation.run()
        for process in processes:
            process.result()
    assert served == [1, 2]


def test_a_fair_waiter_hears_from_its_own_sign_of_life_that_it_is_the_first():
    """Its heartbeat removed a dead waiter ahead, and servers do not report a client's own changes."""
    served = []

    async def waiter(number, works):
        async with Redlock(simulation.urls) as redlock:
            await asyncio.sleep(0.2 * number)
            async with redlock.fair_lock("x"):
                served.append((number, simulation.now))
                await asyncio.sleep(works)

    with Simulation(nodes=3, seed=1) as simulation:
        holder, next_, dead, last = [simulation.process(waiter, number, 1.5 * (number == 0)) for number in range(4)]
        simulation.at(0.5, dead.kill)
        # At 1.5 s the last is refused once more, because of the next, whose place is good for as long again. But that
        # one leaves soon after, and only the dead one is notified.
        for node in range(3):
            simulation.at(1, simulation.delay, node, 0.005, next_)
        simulation.run()
        for process in (holder, next_, last):
            process.result()
    assert [number for number, _ in served] == [0, 1, 3]
    assert served[-1][1] < 0.5 + SHORTEST_ENTRY_TTL + SHORTEST_ENTRY_TTL / HEARTBEATS_PER_ENTRY + 0.1


def test_a_dead_reader_holds_a_plain_lock_out_no_longer_because_another_has_left():
    """The key that plain locks check was kept as long as the lease of the reader that had renewed last."""

    async def read(works):
        async with Redlock(simulation.urls, ttl=4) as redlock, redlock.read_lock("x"):
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
        # Last renewed at 1.3 s, valid for 4 s, plus up to a second of grace.
        assert waits.result() < 2 + 4 + 1


def test_a_straggler_does_not_bring_back_votes_that_a_renewal_has_missed():
    """One node grants late, after another has failed. spare_votes still counted the failed one."""

    async def main():
        async with Redlock(simulation.urls, ttl=10) as redlock:
            simulation.stall_requests(4)
            lease = await redlock("x").acquire()
            await asyncio.sleep(0.005)
            margins = [lease.spare_votes]
            simulation.kill(0, silently=True)
            await asyncio.sleep(0.5)
            margins.append(lease.spare_votes)
            simulation.heal(4)
            await asyncio.sleep(0.1)
            return [*margins, lease.spare_votes]

    with Simulation(nodes=5, seed=1) as simulation:
        process = simulation.process(main)
        simulation.run()
        assert process.result() == [1, 0, 1]


@pytest.mark.parametrize("seen_by", ["acquire", "extend", "downgrade"])
def test_nobody_polls_for_a_lease_that_needs_no_first_look(monkeypatch, seen_by):
    """A lease that is confirmed before its initial check is next due after a third of its ttl, not every 10 ms."""
    looks = []
    look = LeaseRegistry._check_new
    monkeypatch.setattr(LeaseRegistry, "_check_new", lambda registry: (looks.append(simulation.now), look(registry)))

    async def main():
        async with Redlock(simulation.urls, ttl=30) as redlock:
            lease = await redlock.write_lock("x").acquire()
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
    """At that time the client keeps it neither as a writer nor as a reader, and requests after the close are lost."""
    for closes_at in range(0, 30, 3):

        async def main(closes_at=closes_at):
            redlock = Redlock(simulation.urls, ttl=60)
            lease = await redlock.write_lock("x").acquire()
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
            assert not recorder.leftovers(), f"closed at {closes_at / 10} ms"


def test_a_lease_that_is_released_by_who_hears_of_its_renewal_is_not_set_again():
    """An eager task (Python 3.12) starts within the callback, so its release is sent before the renewal's repairs."""

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
            assert not recorder.leftovers()

    with Simulation(nodes=3, seed=1) as simulation:
        recorder = Recorder(simulation)
        process = simulation.process(main)
        simulation.run(3)
        process.result()


def test_a_client_that_is_closed_by_who_hears_of_a_full_queue_releases_behind_what_it_acquires():
    """A transport reports it during the write that fills it, before the other connections are written."""

    async def main():
        redlock = Redlock(simulation.urls, ttl=60)
        async with redlock("warm"):
            pass
        connection = redlock._running.context.nodes[0].connection
        write = connection.write

        def write_to_the_brim(packed):
            write(packed)
            connection.pause_writing()

        def close(event):  # as an eager task does (Python 3.12)
            if event.kind == "node_down":
                closing = redlock.aclose()
                closing.send(None)
                closing.close()

        redlock.on_event(close)
        connection.write = write_to_the_brim
        with pytest.raises(RedlockError, match="closed"):
            await redlock("x").acquire()

    with Simulation(nodes=3, seed=1) as simulation:
        recorder = Recorder(simulation)
        process = simulation.process(main)
        simulation.run(1)
        process.result()
        assert not recorder.leftovers()


@pytest.mark.parametrize("away", [0.01, 0.02, 0.03, 0.05])
def test_a_change_of_permits_that_failed_is_taken_back_when_it_says_so(away):
    """Two distant operators each reach two of four nodes, and both fail. The next change must succeed."""
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
    """The nodes do not report it: one was read before, and the waiter updates the others itself."""
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
            await asyncio.sleep(1.015 - simulation.now)  # two nodes have been read, the third has not
            await redlock.latch("x", count=1).count_down("a")

    with Simulation(nodes=3, seed=1) as simulation:
        waiter, counter = simulation.process(wait), simulation.process(count)
        simulation.delay(2, 0.03, waiter)
        simulation.at(1.012, simulation.stall_requests, 0, counter)
        simulation.at(1.012, simulation.stall_replies, 1, waiter)
        simulation.run(20)
        waiter.result()
    assert opened
    assert opened[0] < 1.5


@pytest.mark.parametrize("seed", range(10))
def test_a_failed_attempt_tells_the_others_of_its_process_what_it_gives_back(seed, monkeypatch):
    """The nodes do not report a client's own deletions, so a task that was blocked by it would wait too long."""
    monkeypatch.setattr(_runtime.retry, "PROBE_AFTER_LOST_RACES", 0)
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
                # Two nodes hold it back; the node that both ask first grants it a slot, which blocks the other request.
                fewer = group.create_task(semaphore.acquire(wait=5))
                await asyncio.sleep(0)
                await (await semaphore.acquire(count=3)).release()
                got.append(simulation.now)
                await (await fewer).release()

    with Simulation(nodes=3, seed=seed) as simulation:
        for machine in simulation.machines[1:]:
            _, hint = Keys("").semaphore("x")
            session = machine.server.connect(lambda *_: None)
            machine.server.receive(session, pack(("SET", hint, "2:of one who died waiting", "PX", 3000)))
        holder, waiter = simulation.process(hold), simulation.process(wait)
        simulation.run(20)
        holder.result()
        waiter.result()
    assert got
    assert got[0] < 1.2


@pytest.mark.parametrize("left", [0.5, 1.8, 4.0])
@pytest.mark.parametrize("client", ["same", "fresh"])
def test_an_attached_lease_with_little_time_left_is_renewed_at_once(client, left):
    """Without a block and without extend(): its initial check must not take the place of the renewal that is due."""

    async def main():
        async with Redlock(simulation.urls, ttl=10) as one, Redlock(simulation.urls, ttl=10) as two:
            text = (await one("x").acquire()).detach()
            await asyncio.sleep(9.898 - left)
            lease = (one if client == "same" else two).attach(text)
            assert lease.remaining == pytest.approx(left, abs=0.05)
            await asyncio.sleep(0.4)
            assert lease.remaining > 9
            await asyncio.sleep(20)
            assert lease.valid
            await lease.release()

    with Simulation(nodes=3, seed=1, skew=0.0) as simulation:
        process = simulation.process(main)
        simulation.run(60)
        process.result()


def test_a_node_that_hangs_on_a_further_command_of_a_hold_is_named():
    """It replied that the key is missing, was sent the key, and stopped: the error must not be silent about it."""
    told = []

    async def main():
        async with Redlock(simulation.urls, ttl=10, node_timeout=0.2) as redlock:
            await redlock.status()
            missing, down, _ = simulation.machines
            lease = await redlock("x", min_hold=60).acquire()
            server = missing.server
            server.receive(server.connect(lambda *_: None), pack(("DEL", "x")))
            simulation.kill(1)
            await asyncio.sleep(0.0005)  # the lease has not been set again yet
            simulation.at(simulation.now + 0.0025, simulation.pause, 0)  # between its first reply and the next command
            with pytest.raises(HoldUnconfirmed) as caught:
                await lease.release()
            told.append((caught.value.nodes, missing.label, down.label))

    with Simulation(nodes=3, seed=1, skew=0.0, latency=lambda _: 0.001) as simulation:
        process = simulation.process(main)
        simulation.run(60)
        process.result()
    ((nodes, missing, down),) = told
    assert set(nodes) == {missing, down}
    assert "no answer in time" in str(nodes[missing])
