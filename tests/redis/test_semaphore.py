"""The semaphore on real servers: never more holders than permits, and never fewer where there are takers."""

import asyncio
import contextlib
import json
import subprocess
import sys
import time
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path

import pytest
import redis
from suspending import counting

from redlock_async import (
    ConfigurationError,
    LockLost,
    LockTimeout,
    NotHeld,
    QuorumUnavailable,
    Redlock,
    WrongKeyType,
    _kinds,
)
from redlock_async._admin import permits as permits_module
from redlock_async._transport.commands import script

CONTENDER = str(Path(__file__).with_name("semaphore_contender.py"))


def taken(eyes, name="x"):
    """Every slot that is taken on any node."""
    return [
        (index, key)
        for index, eye in enumerate(eyes.clients)
        for key in eye.keys("*")
        if f"semaphore:{{{name}}}:".encode() in key
    ]


def numbers(eyes, name="x"):
    """Milliseconds for which each node still remembers the number of permits; -2: it does not."""
    return [eye.pttl(f"redlock-async:semaphore:{{{name}}}") for eye in eyes.clients]


# Many processes


class Crowd:
    """Processes that contend for one name."""

    def __init__(self, urls, permits, counts, *, seconds, hold):
        """`counts` is for each process how many slots each of its tasks wants."""
        self.permits, self.seconds = permits, seconds
        self.running = [
            subprocess.Popen(
                [sys.executable, CONTENDER, *map(str, (permits, list(own), seconds, hold)), *urls],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            )
            for own in counts
        ]  # fmt: skip

    def __enter__(self):
        try:
            for process in self.running:
                assert process.stdout.readline() == "ready\n"
            for process in self.running:
                process.stdin.write("go\n")
                process.stdin.flush()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for process in self.running:
            process.kill()
            process.communicate()

    def results(self):
        """(entered, left, slots, fence) of every lease, by process, and attempts made for each of them."""
        results = [json.loads(process.communicate(timeout=60)[0]) for process in self.running]
        self.held = [result["held"] for result in results]
        self.waits = [{int(count): wait for count, wait in result["waits"].items()} for result in results]
        leases = sum(map(len, self.held))
        self.rate = leases / self.seconds
        self.attempts = sum(result["attempts"] for result in results) / leases
        return self


def depth(held):
    """The largest number of slots that were held at the same moment."""
    # A lease that ends when another begins does not overlap it: ends come first.
    moments = sorted(moment for begin, end, slots, _ in held for moment in ((begin, len(slots)), (end, -len(slots))))
    deepest = now = 0
    for _, change in moments:
        now += change
        deepest = max(deepest, now)
    return deepest


def by_slot(held):
    """The leases of each slot, in order of time."""
    slots = defaultdict(list)
    for begin, end, its, fence in sorted(map(tuple, held)):
        for slot in its:
            slots[slot].append((begin, end, fence))
    return slots


def exclude(held):
    """Each slot has one holder at a time, and each of them a larger fence than the one before."""
    for leases in by_slot(held).values():
        for (_, end, fence), (begin, _, following) in pairwise(leases):
            assert end <= begin, "two holders of one slot"
            assert fence < following, "a later holder has a smaller fence"


def held_while_nodes_fail(cluster, permits, counts):
    """Every lease of a crowd that goes on although one node is killed, and another comes back empty; no two overlap."""
    with Crowd(cluster.urls, permits, counts, seconds=2.4, hold=0.005) as crowd:
        time.sleep(0.8)  # the crowd is at work
        cluster.kill(0)
        time.sleep(0.8)
        cluster.restart(1)
        crowd.results()
    held = [lease for leases in crowd.held for lease in leases]
    assert depth(held) == permits
    assert max(begin for begin, *_ in held) - min(begin for begin, *_ in held) > 2, "it came to a halt"
    exclude(held)
    return held


@pytest.mark.alone
@pytest.mark.share(2)
@pytest.mark.parametrize("permits", [1, 2, 4, 10])
def test_as_many_holders_as_permits_and_never_more(permits, nodes, eyes):
    """40 tasks in 4 processes: the depth reaches the number and does not pass it; each slot is a lock with a fence."""
    with Crowd(nodes, permits, [[1] * 10] * 4, seconds=1.5, hold=0.005) as crowd:
        crowd.results()
    held = [lease for leases in crowd.held for lease in leases]
    assert depth(held) == permits
    assert len(by_slot(held)) == permits
    exclude(held)
    shares = [len(leases) for leases in crowd.held]
    print(f"permits={permits}: {crowd.rate:.0f} leases/s, {crowd.attempts:.2f} attempts each, by process {shares}")
    assert min(shares) > 0
    assert taken(eyes, "contended") == []


@pytest.mark.alone
@pytest.mark.share(4)
@pytest.mark.parametrize("permits", [1, 2, 4, 10])
def test_no_overlap_while_nodes_fail(permits, cluster):
    """One node killed, another come back empty, in the middle of it: still never more than `permits`."""
    held_while_nodes_fail(cluster, permits, [[1] * 10] * 4)


@pytest.mark.alone
def test_some_want_nearly_all_and_others_one(nodes, eyes):
    """4 processes, two wanting 3 of 4 slots and two wanting one: nobody starves, and all or nothing holds."""
    with Crowd(nodes, 4, [[3], [3], [1], [1]], seconds=2.0, hold=0.005) as crowd:
        crowd.results()
    held = [lease for leases in crowd.held for lease in leases]
    assert depth(held) == 4
    exclude(held)
    for own, wanted, waits in zip(crowd.held, (3, 3, 1, 1), crowd.waits, strict=True):
        assert {len(slots) for _, _, slots, _ in own} == {wanted}
        print(f"{wanted} of 4: {len(own)} leases, longest wait {waits[wanted]:.2f} s")
        assert waits[wanted] < 2
    assert taken(eyes, "contended") == []


@pytest.mark.alone
@pytest.mark.thorough
def test_who_wants_many_gets_in_among_a_crowd_that_wants_few(nodes):
    """Six tasks that want one slot each would pass it for ever: there are never three free by themselves."""
    with Crowd(nodes, 4, [[3], [1, 1], [1, 1], [1, 1]], seconds=2.0, hold=0.02) as crowd:
        crowd.results()
    print(f"longest waits: {crowd.waits}")
    assert len(crowd.held[0]) > 2
    assert all(wait < 2 for waits in crowd.waits for wait in waits.values())
    exclude([lease for leases in crowd.held for lease in leases])


@pytest.mark.share(3)
@pytest.mark.parametrize("permits", [2, 4, 10])
def test_no_overlap_of_several_slots_while_nodes_fail(permits, cluster):
    """As above, with half of the tasks wanting half of the slots."""
    counts = [[1] * 5 + [permits // 2] * 5] * 4
    held = held_while_nodes_fail(cluster, permits, counts)
    assert {len(slots) for _, _, slots, _ in held} == {1, permits // 2}


@pytest.mark.alone
@pytest.mark.thorough
def test_throughput_beside_the_mutex(nodes):
    """In one run, and in turns: leases a second with one permit, and with more, over those of the lock."""
    rates = Counter()
    for permits in (0, 1, 2, 4, 10) * 3:  # 0 is the lock
        with Crowd(nodes, permits, [[1] * 5] * 4, seconds=0.6, hold=0.0) as crowd:
            rates[permits] += crowd.results().rate / 3
            print(f"permits={permits or 'lock'}: {crowd.rate:.0f} leases/s, {crowd.attempts:.2f} attempts each")
    lock = rates.pop(0)
    for permits, rate in rates.items():
        print(f"semaphore, permits={permits}: {rate / lock:.2f} of the lock's {lock:.0f} leases/s")
        assert rate > lock / 2


# One process


@pytest.mark.asyncio
@pytest.mark.parametrize("fencing", [True, False], ids=["fenced", "plain"])
@pytest.mark.parametrize("permits", [1, 2, 4, 10])
async def test_all_permits_can_be_used(permits, fencing, nodes, eyes):
    """Exactly so many leases at once, over two clients; the next attempt is None, and a release makes room for one."""
    async with Redlock(nodes, fencing=fencing) as one, Redlock(nodes, fencing=fencing) as two:
        leases = [
            await (one, two)[number % 2].semaphore("x", permits=permits).try_acquire() for number in range(permits)
        ]
        assert None not in leases
        assert len({lease._held.kind.slots for lease in leases}) == permits
        assert all((lease.fencing_token is None) is (not fencing) for lease in leases)
        for client in (one, two):
            assert await client.semaphore("x", permits=permits).try_acquire() is None
        for number in range(permits):
            await leases[number].release()
            leases[number] = await two.semaphore("x", permits=permits).try_acquire()
            assert leases[number] is not None
            assert await one.semaphore("x", permits=permits).try_acquire() is None
        for lease in leases:
            await lease.release()
        assert taken(eyes) == []


@pytest.mark.asyncio
async def test_all_permits_can_be_used_at_once(nodes, eyes):
    """Of many attempts of one process in the same moment, exactly `permits` succeed."""
    async with Redlock(nodes) as redlock:
        for _ in range(20):
            semaphore = redlock.semaphore("x", permits=4)
            leases = await asyncio.gather(*(semaphore.try_acquire() for _ in range(10)))
            assert sum(lease is not None for lease in leases) == 4
            await asyncio.gather(*(lease.release() for lease in leases if lease is not None))
        assert taken(eyes) == []


@pytest.mark.asyncio
async def test_an_attempt_while_others_pass_the_turn_on(nodes):
    """At no moment is a process that has slots left told that there are none."""
    async with Redlock(nodes) as redlock:
        semaphore = redlock.semaphore("x", permits=4)
        for ticks in range(200):
            others = [asyncio.create_task(semaphore.acquire()) for _ in range(3)]
            for _ in range(ticks):
                await asyncio.sleep(0)
            last = await semaphore.try_acquire()
            assert last is not None, f"after {ticks} ticks"
            for lease in (last, *[await other for other in others]):
                await lease.release()


@pytest.mark.asyncio
async def test_one_round_or_two(nodes):
    """With a slot free, whichever it is, the second attempt has it."""
    async with Redlock(nodes) as redlock, Redlock(nodes) as other:
        held = [await other.semaphore("x", permits=10).acquire() for _ in range(9)]
        for _ in range(20):
            before = redlock.statistics().attempts
            async with redlock.semaphore("x", permits=10):
                assert redlock.statistics().attempts - before <= 2
        for lease in held:
            await lease.release()


@pytest.mark.asyncio
@pytest.mark.parametrize("permits", [1, 4])
async def test_a_waiter_of_another_client_is_woken_by_a_release(permits, nodes):
    """Whichever slot it is that is freed."""
    async with Redlock(nodes) as holder, Redlock(nodes, retry_delay=5.0) as redlock:
        held = [await holder.semaphore("x", permits=permits).acquire() for _ in range(permits)]
        for number in range(permits):
            waiting = asyncio.create_task(redlock.semaphore("x", permits=permits).acquire())
            await asyncio.sleep(0.05)
            released = time.monotonic()
            await held[number].release()
            lease = await waiting
            assert time.monotonic() - released < 0.1
            await lease.release()
            held[number] = await holder.semaphore("x", permits=permits).acquire()
        for lease in held:
            await lease.release()


@pytest.mark.asyncio
async def test_a_waiter_of_the_same_client_is_woken_by_a_release(nodes):
    """Also when the release comes while the waiter's attempt is under way, which the nodes do not report."""
    async with Redlock(nodes, retry_delay=5.0) as redlock:
        semaphore = redlock.semaphore("x", permits=2)
        for ticks in range(30):
            held = [await semaphore.acquire() for _ in range(2)]
            waiting = asyncio.create_task(semaphore.acquire())
            for _ in range(ticks):
                await asyncio.sleep(0)
            released = time.monotonic()
            await held[ticks % 2].release()
            lease = await waiting
            assert time.monotonic() - released < 0.1
            await lease.release()
            await held[1 - ticks % 2].release()


@pytest.mark.asyncio
async def test_a_waiter_gets_in_when_a_holder_dies(nodes, eyes):
    """At the expiry of the slot that ends first."""
    async with Redlock(nodes, retry_delay=5.0) as redlock:
        await redlock.status()
        for number, ms in enumerate((5000, 300, 5000)):
            for eye in eyes.clients:
                eye.set(f"redlock-async:semaphore:{{x}}:{number}", "somebody who died", px=ms)
        started = time.monotonic()
        async with redlock.semaphore("x", permits=3):
            assert 0.25 < time.monotonic() - started < 0.45


@pytest.mark.asyncio
@pytest.mark.parametrize("permits", [1, 2])
async def test_neither_of_two_clients_keeps_the_other_out(permits, nodes):
    """One that has all the slots, and whose tasks hand them to one another, lets others have a turn."""
    async with Redlock(nodes) as one, Redlock(nodes) as two:
        entered = {one: 0, two: 0}
        until = time.monotonic() + 3
        held = [await one.semaphore("x", permits=permits).acquire() for _ in range(permits)]

        async def worker(client):
            while time.monotonic() < until:
                async with client.semaphore("x", permits=permits, wait=None):
                    entered[client] += 1
                    await asyncio.sleep(0.02)

        async with asyncio.timeout(10):
            running = [asyncio.create_task(worker(client)) for client in (one, two) for _ in range(5)]
            await asyncio.sleep(0.05)
            for lease in held:
                await lease.release()
            await asyncio.gather(*running)
        print(f"leases of each client: {list(entered.values())}")
        assert min(entered.values()) > 5


@pytest.mark.asyncio
async def test_wait_is_kept(nodes):
    """`wait` bounds the waiting, and the error names a holder."""
    redlock = Redlock(nodes)
    async with redlock, Redlock(nodes, owner="the holder") as holder, holder.semaphore("x", permits=1):
        for wait in (0, 0.2):
            started = time.monotonic()
            with pytest.raises(LockTimeout, match="held by the holder"):
                await redlock.semaphore("x", permits=1).acquire(wait=wait)
            assert wait <= time.monotonic() - started < wait + 0.1


@pytest.mark.asyncio
async def test_waiters_cost_the_nodes_next_to_nothing(nodes, eyes):
    """300 waiters in one process are one contender."""
    async with Redlock(nodes) as holder, Redlock(nodes) as redlock:
        held = [await holder.semaphore("x", permits=4).acquire() for _ in range(4)]
        tasks = [asyncio.create_task(redlock.semaphore("x", permits=4).acquire(wait=None)) for _ in range(300)]
        await asyncio.sleep(0.3)
        before = [eye.info("stats")["total_commands_processed"] for eye in eyes.clients]
        await asyncio.sleep(1)
        after = [eye.info("stats")["total_commands_processed"] for eye in eyes.clients]
        assert max(b - a for a, b in zip(before, after, strict=True)) <= 10
        for lease in held:
            await lease.release()
        async with asyncio.timeout(1):
            leases = [await task for task in tasks[:4]]
        for task in tasks[4:]:
            task.cancel()
        await asyncio.gather(*tasks[4:], return_exceptions=True)
        for lease in leases:
            await lease.release()
        assert taken(eyes) == []


# Several slots


@pytest.mark.asyncio
@pytest.mark.parametrize("fencing", [True, False], ids=["fenced", "plain"])
async def test_several_slots_are_one_lease(fencing, nodes, eyes):
    """All or none of them; extended, renewed and released together; one fence above those of all their holders."""
    async with Redlock(nodes, fencing=fencing) as one, Redlock(nodes, fencing=fencing) as two:
        semaphore, other = one.semaphore("x", permits=5, ttl=0.6), two.semaphore("x", permits=5)
        before = [await other.acquire() for _ in range(5)]
        for lease in before:
            await lease.release()
        lease = await semaphore.acquire(count=3)
        assert len(taken(eyes)) == 3 * 5
        if fencing:
            assert lease.fencing_token > max(each.fencing_token for each in before)
        assert await other.try_acquire(count=3) is None
        two_more = await other.try_acquire(count=2)
        assert two_more is not None
        assert not {*two_more._held.kind.slots} & {*lease._held.kind.slots}
        assert await other.try_acquire() is None
        await asyncio.sleep(0.9)
        assert lease.valid, "not renewed"
        await lease.extend(30)
        assert min(eye.pttl(key) for eye in eyes.clients for key in lease._held.kind.held_by(b"")) > 29_000
        await two_more.release()
        await lease.release()
        assert taken(eyes) == []
        with pytest.raises(NotHeld):
            await lease.release()
        async with await other.acquire(count=5) as every:
            assert await semaphore.try_acquire() is None
            assert not fencing or every.fencing_token > lease.fencing_token
        async with semaphore:
            pass
        assert taken(eyes) == []


@pytest.mark.asyncio
async def test_a_count_that_cannot_be(nodes):
    """Refused before anything is asked."""
    semaphore = Redlock(nodes).semaphore("x", permits=3)
    for count in (0, -1, 4, True, 1.0, "2"):
        with pytest.raises(ConfigurationError, match="count"):
            Redlock(nodes).semaphore("x", permits=3, count=count)
        for attempt in (semaphore.acquire, semaphore.try_acquire):
            with pytest.raises(ConfigurationError, match="count"):
                await attempt(count=count)


@pytest.mark.asyncio
async def test_who_waits_for_several_slots_is_woken_when_there_are_enough(nodes):
    """By the last of the releases that it needs, in another client or its own; or when so many have expired."""
    async with Redlock(nodes) as redlock, Redlock(nodes, retry_delay=5.0) as waiter:
        for client in (redlock, waiter):
            held = [await client.semaphore("x", permits=4).acquire() for _ in range(4)]
            waiting = asyncio.create_task(waiter.semaphore("x", permits=4).acquire(count=3))
            for lease in held[:3]:
                await asyncio.sleep(0.05)
                assert not waiting.done()
                released = time.monotonic()
                await lease.release()
            lease = await waiting
            assert time.monotonic() - released < 0.1
            await lease.release()
            await held[3].release()
        short = redlock.semaphore("x", permits=4, ttl=0.4, renew=False)
        held = [await short.acquire(count=2), await redlock.semaphore("x", permits=4).acquire()]
        started = time.monotonic()
        async with await waiter.semaphore("x", permits=4).acquire(count=3):
            assert 0.3 < time.monotonic() - started < 0.6
        await held[1].release()


def hints(eyes):
    """What those who hold others back have left on the nodes."""
    return [key for eye in eyes.clients for key in eye.keys("*semaphore-hint*")]


@pytest.mark.asyncio
async def test_who_is_held_back_is_told_and_let_in_afterwards(nodes, eyes, eventually):
    """By one of its own client or of another, which then gets in, gives up, or dies."""
    async with Redlock(nodes, owner="patient") as one, Redlock(nodes, retry_delay=5.0) as two:
        before = [0]
        for cancelled in (False, True):
            for client in (one, two):
                held = await two.semaphore("x", permits=4).acquire(count=2)
                waiting = asyncio.create_task(one.semaphore("x", permits=4).acquire(count=3))
                await eventually(lambda: one.statistics().refused > before[0])
                (acquisition,) = set(one._running.context.wakeups.watching(None))
                acquisition._attempt._reserve_at = acquisition._attempt._not_before = 0.0
                acquisition.wake()
                await eventually(lambda: len(hints(eyes)) == 5)
                with pytest.raises(LockTimeout, match="behind patient"):
                    await client.semaphore("x", permits=4).acquire(wait=0)
                small = asyncio.create_task(client.semaphore("x", permits=4).acquire())
                await asyncio.sleep(0.05)
                assert not small.done()
                started = time.monotonic()
                if cancelled:
                    waiting.cancel()
                else:
                    await held.release()
                    many = await waiting
                lease = await small
                assert time.monotonic() - started < 0.1
                for each in (lease, held if cancelled else many):
                    await each.release()
                assert hints(eyes) == []
                before[0] = one.statistics().refused
        for eye in eyes.clients:
            eye.set("redlock-async:semaphore-hint:{x}", "3:of one that died waiting", px=300)
        started = time.monotonic()
        async with two.semaphore("x", permits=4):
            assert 0.25 < time.monotonic() - started < 0.45


@pytest.mark.asyncio
async def test_who_wants_many_is_not_passed_behind_one_who_keeps_its_slot_for_long(
    nodes, eyes, eventually, monkeypatch
):
    """Its hint is kept alive: those who want fewer wait with a slot free, and come behind it."""
    monkeypatch.setattr(_kinds.semaphore, "LONGEST_WAIT_BEFORE_RESERVATION", 0.05)
    monkeypatch.setattr(_kinds.semaphore, "RESERVATION_MS", 300)
    monkeypatch.setattr(_kinds.semaphore, "RESERVATION_REFRESH", 0.1)
    got = []

    async def take(client, name, count):
        lease = await client.semaphore("x", permits=2).acquire(count=count)
        got.append(name)
        await lease.release()

    async with Redlock(nodes) as one, Redlock(nodes) as two:
        held = await two.semaphore("x", permits=2).acquire()
        async with asyncio.TaskGroup() as group:
            group.create_task(take(one, "many", 2))
            await eventually(lambda: len(hints(eyes)) == 5)
            for client in (one, two):
                group.create_task(take(client, "few", 1))
            await asyncio.sleep(1)
            assert got == []
            released = time.monotonic()
            await held.release()
        assert time.monotonic() - released < 0.1
    assert got == ["many", "few", "few"]


@pytest.mark.asyncio
async def test_several_slots_are_lost_retained_repaired_and_handed_on_as_one(nodes, eyes, eventually):
    """What happens to one of them happens to all."""
    async with Redlock(nodes, ttl=0.6) as redlock, Redlock(nodes) as other:
        semaphore = redlock.semaphore("x", permits=4)
        async with await semaphore.acquire(count=3) as lease:
            await eventually(lambda: lease.spare_votes == 2)
            eyes.clients[0].delete(lease._held.kind.held_by(b"")[1])
            await eventually(lambda: len(taken(eyes)) == 15 and lease.spare_votes == 2)
        with pytest.raises(LockLost):
            async with await semaphore.acquire(count=3) as lease:
                await asyncio.sleep(0.05)
                deleted = time.monotonic()
                for eye in eyes.clients[:3]:
                    eye.delete(lease._held.kind.held_by(b"")[2])
                await asyncio.sleep(10)
        assert time.monotonic() - deleted < 0.05
        await eventually(lambda: taken(eyes) == [], within=0.2)
        lease = await redlock.semaphore("x", permits=4, ttl=5).acquire(count=3)
        text, fence = lease.detach(), lease.fencing_token
        assert await other.semaphore("x", permits=4).try_acquire(count=2) is None
        attached = other.attach(text)
        assert attached.fencing_token == fence
        async with attached:
            await attached.extend()
        assert taken(eyes) == []
        async with await redlock.semaphore("x", permits=4, min_hold=0.4).acquire(count=3):
            pass
        assert len(taken(eyes)) == 15
        async with other.semaphore("x", permits=4), await other.semaphore("x", permits=4).acquire(count=2):
            pass


# The number of permits


@pytest.mark.asyncio
@pytest.mark.parametrize(("bound", "other"), [(4, 3), (1, 10), (10, 1)])
async def test_another_number_is_an_error_that_names_both(bound, other, nodes, eyes):
    """At once, and whichever slot is held; when nobody holds one any more, the number is free to change."""
    async with Redlock(nodes) as one, Redlock(nodes) as two:
        for _ in range(bound):
            async with one.semaphore("x", permits=bound):
                started = time.monotonic()
                semaphore = two.semaphore("x", permits=other)
                for attempt in (semaphore.acquire, semaphore.try_acquire):
                    with pytest.raises(ConfigurationError, match=rf"'x'.*permits={bound}\b.*permits={other}\b"):
                        await attempt()
                assert time.monotonic() - started < 0.2
                assert len(taken(eyes)) == 5
        async with two.semaphore("x", permits=other):
            with pytest.raises(ConfigurationError, match=f"permits={other}.*permits={bound}"):
                await one.semaphore("x", permits=bound).acquire()
        async with one.semaphore("x", permits=bound), two.semaphore("y", permits=other):
            pass
        assert taken(eyes) == []


@pytest.mark.asyncio
@pytest.mark.parametrize("killed", [1, 2])
async def test_another_number_while_nodes_are_down(killed, cluster):
    """It is no outage: the nodes that answer have said what is wrong."""
    async with Redlock(cluster.urls) as one, Redlock(cluster.urls, retry_delay=0.1) as two:
        await two.status()
        async with one.semaphore("x", permits=2):
            for index in range(killed):
                cluster.kill(index)
            started = time.monotonic()
            with pytest.raises(ConfigurationError, match=r"permits=2.*permits=3"):
                await two.semaphore("x", permits=3).acquire()
            assert time.monotonic() - started < 0.5


@pytest.mark.asyncio
async def test_the_number_is_remembered_as_long_as_a_slot_is_held_and_not_for_ever(nodes, eyes):
    """Each lease, its renewals and min_hold keep it; a shorter lease does not cut it short."""
    async with Redlock(nodes) as redlock:
        lease = await redlock.semaphore("x", permits=3, ttl=0.3).acquire()
        assert all(0 < left <= 600 for left in numbers(eyes))
        async with redlock.semaphore("x", permits=3, ttl=60):
            assert min(numbers(eyes)) > 59_000
        async with redlock.semaphore("x", permits=3, ttl=1):
            assert min(numbers(eyes)) > 59_000
        for eye in eyes.clients:
            eye.delete("redlock-async:semaphore:{x}")
        await asyncio.sleep(1)
        assert lease.valid
        assert all(250 < left <= 600 for left in numbers(eyes))
        await lease.release()
        async with redlock.semaphore("x", permits=3, ttl=0.3, min_hold=30):
            pass
        assert min(numbers(eyes)) > 28_000
        assert len(taken(eyes)) == 5


@pytest.mark.asyncio
@pytest.mark.parametrize("number", ["3", "7", "1000", "99999", "-5", "1e300", "nonsense", ""])
async def test_a_number_that_was_left_behind_does_not_matter(number, nodes, eyes):
    """Nobody holds a slot under it: it is replaced, whatever it is."""
    async with Redlock(nodes) as redlock:
        for eye in eyes.clients:
            eye.set("redlock-async:semaphore:{x}", number)
        for permits in (4, 1):
            async with redlock.semaphore("x", permits=permits, wait=1):
                assert sum(eye.get("redlock-async:semaphore:{x}") == b"%d" % permits for eye in eyes.clients) >= 3
        assert all(0 < left <= 20_000 for left in numbers(eyes))


@pytest.mark.asyncio
async def test_permits_that_cannot_be(nodes):
    """Refused where they are given."""
    redlock = Redlock(nodes)
    for permits in (0, -1, 1001, True, 2.0, "4", None):
        with pytest.raises(ConfigurationError, match="permits"):
            redlock.semaphore("x", permits=permits)
    for name in ("", "redlock-async:x", 5):
        with pytest.raises(ConfigurationError, match="name"):
            redlock.semaphore(name, permits=1)
    async with redlock, redlock.semaphore("x", permits=1000), redlock.semaphore("x", permits=1000):
        pass


# Operators


@pytest.mark.asyncio
async def test_inspect_semaphore(nodes, eyes, eventually):
    """The number, and who holds which slot on how many nodes and for how long."""
    async with Redlock(nodes, owner="anna") as one, Redlock(nodes, owner="boris") as two:
        assert await one.inspect_semaphore("x") is None
        held = [
            await one.semaphore("x", permits=4, ttl=30).acquire(count=2),
            await two.semaphore("x", permits=4).acquire(),
        ]
        eyes.clients[0].delete(held[1]._held.kind.held_by(b"")[0])
        found = await two.inspect_semaphore("x")
        assert (found.name, found.permits, found.changed, found.votes) == ("x", 4, False, 5)
        assert [each.slot for each in found.slots] == sorted({*held[0]._held.kind.slots, *held[1]._held.kind.slots})
        for each in found.slots:
            mine = each.slot in held[0]._held.kind.slots
            assert (each.owner, each.votes, each.quorum, each.nodes) == (*(("anna", 5) if mine else ("boris", 4)), 3, 5)
            assert (29 if mine else 9) < each.remaining <= (30 if mine else 10)
            assert each.held
            assert each.token == held[not mine].token
        for lease in held:
            await lease.release()
        await eventually(lambda: not taken(eyes))  # a release does not wait for all nodes
        assert (await one.inspect_semaphore("x")).slots == ()


@pytest.mark.alone
@pytest.mark.asyncio
async def test_force_release_frees_every_slot(nodes, eyes, eventually):
    """The bodies of all holders are cancelled within 50 ms, also those of the operator's own client."""
    cancelled = []

    async def body(client, count):
        try:
            async with await client.semaphore("x", permits=4).acquire(count=count):
                await asyncio.sleep(10)
        except LockLost:
            cancelled.append(time.monotonic())

    async with Redlock(nodes) as one, Redlock(nodes) as operator:
        bodies = [asyncio.create_task(body(client, count)) for client, count in ((one, 1), (one, 2), (operator, 1))]
        await eventually(lambda: len(taken(eyes)) == 20 and one.statistics().held == 2)
        started = time.monotonic()
        assert await operator.force_release("x")
        await asyncio.gather(*bodies)
        assert max(cancelled) - started < 0.05
        assert len(cancelled) == 3
        assert taken(eyes) == []
        assert not await operator.force_release("x")
        async with one("x"), one.semaphore("y", permits=1):
            assert not (await operator.inspect_semaphore("x")).slots


@pytest.mark.asyncio
async def test_the_number_is_raised_while_slots_are_held(nodes, eyes):
    """The old number is refused from then on, held or not; the holders go on, and the number stays."""
    async with Redlock(nodes) as redlock, Redlock(nodes) as operator:
        old = redlock.semaphore("x", permits=2, ttl=0.6)
        held = [await old.acquire() for _ in range(2)]
        waiting = asyncio.create_task(redlock.semaphore("x", permits=2, wait=5).acquire())
        await asyncio.sleep(0.05)
        await operator.change_permits("x", 4)
        new = [await redlock.semaphore("x", permits=4).try_acquire() for _ in range(3)]
        assert [lease is None for lease in new] == [False, False, True]
        await held.pop().release()
        with pytest.raises(ConfigurationError, match=r"'x'.*set to permits=4.*permits=2"):
            await waiting
        await asyncio.sleep(0.9)
        assert held[0].valid, "not renewed"
        await held.pop().release()
        for lease in new[:2]:
            await lease.release()
        assert taken(eyes) == []
        assert numbers(eyes) == [-1] * 5
        for attempt in (old.acquire, old.try_acquire):
            with pytest.raises(ConfigurationError, match="set to permits=4"):
                await attempt()
        async with await redlock.semaphore("x", permits=4, ttl=0.3, min_hold=0.4).acquire(count=4):
            pass
        found = await operator.inspect_semaphore("x")
        assert (found.permits, found.changed, found.votes) == (4, True, 5)
        assert numbers(eyes) == [-1] * 5
        await asyncio.sleep(0.5)
        await operator.change_permits("x", 1)
        async with redlock.semaphore("x", permits=1):
            pass


@pytest.mark.asyncio
async def test_the_number_is_lowered_only_when_no_slot_beyond_is_held(nodes, eyes):
    """Who is in the way is named, and nothing is changed; a slot on a minority is in nobody's way."""
    async with Redlock(nodes, owner="anna") as redlock, Redlock(nodes) as operator:
        semaphore = redlock.semaphore("x", permits=3)
        held = {lease._held.kind.slots[0]: lease for lease in [await semaphore.acquire() for _ in range(3)]}
        for permits in (2, 1):
            with pytest.raises(LockTimeout, match=rf"permits={permits}: slot [12] is held by anna, for \d") as caught:
                await operator.change_permits("x", permits)
            assert caught.value.holder == "anna"
        assert not (await operator.inspect_semaphore("x")).changed
        await held.pop(0).release()
        async with semaphore:
            pass
        await held.pop(2).release()
        for eye in eyes.clients[:2]:
            eye.set("redlock-async:semaphore:{x}:2", "left behind", px=60_000)
        await operator.change_permits("x", 2)
        assert (await operator.inspect_semaphore("x")).permits == 2
        assert held[1].valid
        async with redlock.semaphore("x", permits=2):
            assert await redlock.semaphore("x", permits=2).try_acquire() is None
        with pytest.raises(ConfigurationError, match="permits=2"):
            await semaphore.acquire()
        await held[1].release()


@pytest.mark.asyncio
async def test_two_changes_at_once_leave_one_number(nodes):
    """One of those that were made, or the one from before; and that one can be used."""
    async with Redlock(nodes) as one, Redlock(nodes) as two:
        made_at_all = 0
        for turn in range(30):
            before = await one.inspect_semaphore("x")
            tried = (2 + turn % 3, 6 + turn % 3)
            outcomes = await asyncio.gather(
                *(client.change_permits("x", permits) for client, permits in zip((one, two), tried, strict=True)),
                return_exceptions=True,
            )
            assert all(outcome is None or isinstance(outcome, LockTimeout) for outcome in outcomes), outcomes
            made = [permits for permits, outcome in zip(tried, outcomes, strict=True) if outcome is None]
            made_at_all += len(made)
            after = await one.inspect_semaphore("x")
            if made:
                assert after.permits in made
                assert after.votes >= 3
                async with one.semaphore("x", permits=after.permits):
                    pass
            elif before is not None:
                assert after.permits == before.permits
        assert made_at_all > 0


@pytest.mark.asyncio
async def test_the_number_is_changed_while_nodes_are_down(cluster):
    """With a majority it is; with less nothing is. Who comes back with the old number is outvoted, until it is told."""
    async with Redlock(cluster.urls) as redlock, Redlock(cluster.urls) as operator:
        held = await redlock.semaphore("x", permits=2).acquire()
        cluster.pause(0)
        cluster.pause(1)
        await operator.change_permits("x", 3)
        cluster.pause(2)
        with pytest.raises(QuorumUnavailable):
            await operator.change_permits("x", 4)
        for index in range(3):
            cluster.resume(index)
        await held.release()
        with pytest.raises(ConfigurationError, match="permits=3"):
            await redlock.semaphore("x", permits=2).acquire()
        async with await redlock.semaphore("x", permits=3).acquire(count=3):
            pass

        async def told():
            with contextlib.suppress(LockTimeout, QuorumUnavailable):
                await operator.change_permits("x", 3)
                found = await operator.inspect_semaphore("x")
                return (found.permits, found.changed, found.votes) == (3, True, 5)
            return False

        async with asyncio.timeout(10):
            while not await told():
                pass


@pytest.mark.asyncio
async def test_a_change_does_not_count_masters_that_may_have_forgotten_a_slot(cluster):
    """They know of none beyond the new number, because they know of nothing."""
    async with Redlock(cluster.urls) as redlock, Redlock(cluster.urls, node_timeout=0.1) as operator:
        held = await redlock.semaphore("x", permits=2).acquire(count=2)
        await operator.status()
        await asyncio.sleep(0.05)  # until what is new is younger than what is not
        for index in (0, 1):
            cluster.kill(index)
        for index in (2, 3):
            cluster.restart(index)
        async with asyncio.timeout(5):
            while [node.up for node in await operator.status()] != [False, False, True, True, True]:
                pass
        with pytest.raises(QuorumUnavailable, match="too few nodes could vote"):
            await operator.change_permits("x", 3)
        with contextlib.suppress(LockLost, QuorumUnavailable):
            await held.release()


@pytest.mark.asyncio
async def test_a_change_that_lacked_votes_names_the_nodes_that_vote_again(nodes, monkeypatch):
    """The error says which nodes did not vote for the change, even if they can by the time the old number is back."""
    restore = permits_module._restore

    async def vote_again(context, *arguments):
        for node in context.nodes:
            node.record.quarantine(None)
        await restore(context, *arguments)

    monkeypatch.setattr(permits_module, "_restore", vote_again)
    async with Redlock(nodes) as redlock:
        await redlock.change_permits("x", 2)
        abstaining = redlock._running.context.nodes[1:4]
        for node in abstaining:
            node.record.quarantine(ConnectionError("for the test"))
        with pytest.raises(QuorumUnavailable, match="for the test") as caught:
            await redlock.change_permits("x", 3)
        assert set(caught.value.nodes) == {node.label for node in abstaining}
        assert (await redlock.inspect_semaphore("x")).permits == 2


@pytest.mark.asyncio
async def test_a_number_that_cannot_be_set(nodes):
    """Refused before anything is asked."""
    redlock = Redlock(nodes)
    for permits in (0, 1001, True, 2.0, "4"):
        with pytest.raises(ConfigurationError, match="permits"):
            await redlock.change_permits("x", permits)
    for name in ("", "redlock-async:x", 5):
        for ask in (
            redlock.inspect_semaphore,
            lambda name: redlock.change_permits(name, 1),
            lambda name: redlock.change_permits(name, None),
        ):
            with pytest.raises(ConfigurationError, match="name"):
                await ask(name)


@pytest.mark.asyncio
async def test_a_number_that_was_forgotten_lets_another_in_once_no_slot_is_held(nodes, eyes):
    """Not before, and whoever holds a slot goes on; with none held it is gone after two of the longest ttl."""
    async with Redlock(nodes, ttl=0.3) as redlock, Redlock(nodes, ttl=0.3) as operator:
        await operator.change_permits("x", None)  # nothing was set
        assert numbers(eyes) == [-2] * 5
        await operator.change_permits("x", 4)
        held = await redlock.semaphore("x", permits=4).acquire()
        other = redlock.semaphore("x", permits=2)
        with pytest.raises(ConfigurationError, match="set to permits=4"):
            await other.try_acquire()
        await operator.change_permits("x", None)
        assert not (await operator.inspect_semaphore("x")).changed
        await asyncio.sleep(0.9)
        assert held.valid, "not renewed"
        with pytest.raises(ConfigurationError, match="in use with permits=4"):
            await other.try_acquire()
        async with redlock.semaphore("x", permits=4):
            pass
        await held.release()
        async with other:
            assert (await operator.inspect_semaphore("x")).permits == 2
        await operator.change_permits("x", 4)
        await operator.change_permits("x", None)
        assert all(0 < left <= 600 for left in numbers(eyes))
        await asyncio.sleep(0.65)
        assert await operator.inspect_semaphore("x") is None


@pytest.mark.asyncio
async def test_a_forgotten_number_is_kept_as_long_as_slots_that_nobody_renews(nodes, eyes):
    """min_hold may be longer than any ttl."""
    async with Redlock(nodes, ttl=0.2) as redlock:
        await redlock.change_permits("x", 2)
        async with await redlock.semaphore("x", permits=2, min_hold=1.2).acquire():
            pass
        await redlock.change_permits("x", None)
        await asyncio.sleep(0.6)
        with pytest.raises(ConfigurationError, match="in use with permits=2"):
            await redlock.semaphore("x", permits=3).try_acquire()
        assert all(left > 0 for left in numbers(eyes))


def test_what_was_set_since_is_not_forgotten(eyes):
    """A node may be told late."""
    eye = eyes.clients[0]
    key = "redlock-async:semaphore:{x}"
    eye.set(key, "4:since")
    for values, forgotten in ((["3:before"], 0), (["3:before", "4:since"], 1), (["4:since"], 0)):
        assert eye.eval(script("semaphore_forget").source, 1, key, 5000, *values) == forgotten
    assert (eye.get(key), 0 < eye.pttl(key) <= 5000) == (b"4", True)


@pytest.mark.asyncio
async def test_a_number_is_forgotten_while_nodes_are_down(cluster, eventually):
    """By a majority, or it is an error; who was down is told when it is back."""
    eyes = [redis.Redis.from_url(url) for url in cluster.urls]
    number = "redlock-async:semaphore:{x}"
    async with Redlock(cluster.urls) as redlock:
        await redlock.change_permits("x", 3)
        cluster.pause(0)
        cluster.pause(1)
        async with Redlock(cluster.urls) as operator:  # it has no connection to those on which it could be sent
            await operator.change_permits("x", None)
            async with redlock.semaphore("x", permits=2):
                pass
            cluster.resume(0)
            await eventually(lambda: eyes[0].get(number) == b"3" and eyes[0].pttl(number) > 0)
            cluster.pause(2)
            cluster.pause(3)
            with pytest.raises(QuorumUnavailable):
                await operator.change_permits("x", None)
            for index in (1, 2, 3):
                cluster.resume(index)
            await eventually(lambda: eyes[1].get(number) == b"3")
        async with redlock.semaphore("x", permits=2):
            pass
    for eye in eyes:
        eye.close()


# Leases


@pytest.mark.asyncio
async def test_the_number_may_be_given_by_position(nodes):
    """As of the semaphores of asyncio and of threads; so may a latch's count."""
    async with Redlock(nodes) as redlock:
        async with redlock.semaphore("x", 2) as one, redlock.semaphore("x", permits=2) as other:
            assert {*one.slots, *other.slots} == {0, 1}
        assert redlock.latch("x", 2).count == 2


@pytest.mark.asyncio
async def test_a_semaphore_and_a_lock_of_one_name_are_two_things(nodes):
    """They share no key, also not in a namespace."""
    one, two = Redlock(nodes, namespace="n:"), Redlock(nodes)
    async with one, two, one("x"), one.semaphore("x", permits=1), two("x"), two.semaphore("x", permits=1):
        pass


@pytest.mark.asyncio
async def test_each_slot_has_its_fence(nodes):
    """Larger with every holder of the slot, whoever took it, also when a node is ahead of the others."""
    async with Redlock(nodes) as one, Redlock(nodes) as two:
        fences = defaultdict(list)
        for number in range(60):
            async with (one, two)[number % 2].semaphore("x", permits=3) as lease:
                fences[lease._held.kind.slots].append(lease.fencing_token)
        assert len(fences) == 3
        for slot in fences.values():
            assert slot == sorted(set(slot))


@pytest.mark.asyncio
async def test_a_fence_is_levelled_on_the_slot(nodes, eyes):
    """Where registers differ, the token is beyond all of them and a quorum stores it."""
    async with Redlock(nodes) as redlock:
        async with redlock.semaphore("x", permits=1) as lease:
            before = lease.fencing_token
        (register,) = eyes.clients[0].keys("redlock-async:fence:*")
        for number in range(3):
            eyes.clients[number].set(register, before + 10_000_000 * (number + 1))
        async with redlock.semaphore("x", permits=1) as lease:
            assert lease.fencing_token > before
            assert sum(int(eye.get(register)) >= lease.fencing_token for eye in eyes.clients) >= 3


@pytest.mark.asyncio
async def test_renewal_and_its_end(nodes, eyes, eventually):
    """A slot is held beyond its ttl, is cancelled at max_hold or without renewal, and stays taken for min_hold."""
    async with Redlock(nodes) as redlock:
        async with redlock.semaphore("x", permits=2, ttl=0.3) as lease:
            await asyncio.sleep(0.7)
            assert lease.valid
        for options in ({"renew": False}, {"max_hold": 0.3}):
            with pytest.raises(LockLost):
                async with redlock.semaphore("x", permits=2, ttl=0.3, **options):
                    await asyncio.sleep(10)
            await eventually(lambda: taken(eyes) == [], within=0.1)
        async with redlock.semaphore("x", permits=1, min_hold=0.4):
            started = time.monotonic()
        assert await redlock.semaphore("x", permits=1).try_acquire() is None
        async with redlock.semaphore("x", permits=1):
            assert 0.3 < time.monotonic() - started < 0.6


@pytest.mark.asyncio
async def test_slots_are_renewed_at_maxmemory(cluster):
    """As all other leases are, though the number of permits is to be written where nothing more can be stored."""
    async with Redlock(cluster.urls, ttl=0.9) as redlock:
        leases = [await redlock.semaphore(f"x{number}", permits=4).acquire() for number in range(3)]
        leases.append(await redlock.semaphore("many", permits=4, count=3).acquire())
        for url in cluster.urls[:3]:
            with contextlib.closing(redis.Redis.from_url(url)) as eye:
                eye.config_set("maxmemory", "1")
        await asyncio.sleep(2.5)
        assert all(lease.valid for lease in leases)
        for lease in leases:
            await lease.release()


@pytest.mark.asyncio
async def test_a_master_that_cannot_store_the_number_does_not_count(cluster, eventually):
    """There another number could come in beside the slot, which it has."""
    async with Redlock(cluster.urls) as redlock:
        lease = await redlock.semaphore("x", permits=4).acquire()
        await lease.extend()
        await eventually(lambda: lease.spare_votes == 2)  # when all have answered
        for url in cluster.urls[:2]:
            with contextlib.closing(redis.Redis.from_url(url)) as eye:
                eye.delete("redlock-async:semaphore:{x}")
                eye.config_set("maxmemory", "1")
        await lease.extend(1)  # less than the slot has left: nothing else is written
        await eventually(lambda: lease.spare_votes == 0)  # when those two have answered as well
        await lease.release()


@pytest.mark.asyncio
async def test_extend_and_release(nodes):
    """As for the lock."""
    async with Redlock(nodes) as redlock:
        lease = await redlock.semaphore("x", permits=2, ttl=1, renew=False).acquire()
        await lease.extend(30)
        assert 29 < lease.remaining < 30
        await lease.release()
        with pytest.raises(NotHeld):
            await lease.release()


@pytest.mark.asyncio
async def test_a_slot_deleted_on_a_majority_is_lost_at_once(nodes, eyes):
    """The body is cancelled within 50 ms; the holders of the other slots go on."""
    deleted = 0.0

    async def body(redlock):
        nonlocal deleted
        async with redlock.semaphore("x", permits=2) as lease:
            await asyncio.sleep(0.05)
            (key,) = lease._held.kind.held_by(b"")
            for eye in eyes.clients[:3]:
                eye.delete(key)
            deleted = time.monotonic()
            await asyncio.sleep(10)

    async with Redlock(nodes) as redlock:
        other = await redlock.semaphore("x", permits=2).acquire()
        await asyncio.sleep(0.01)
        with pytest.raises(LockLost):
            await body(redlock)
        assert time.monotonic() - deleted < 0.05
        assert other.valid
        await other.release()
        assert taken(eyes) == []


@pytest.mark.asyncio
async def test_a_slot_lost_on_one_node_is_set_again(nodes, eyes, eventually):
    """And the number of permits with it."""
    async with Redlock(nodes, ttl=0.6) as redlock, redlock.semaphore("x", permits=2) as lease:
        await eventually(lambda: lease.spare_votes == 2)
        eyes.clients[0].flushdb()
        await eventually(lambda: len(taken(eyes)) == 5 and min(numbers(eyes)) > 0)
        assert lease.valid


@pytest.mark.asyncio
async def test_a_slot_is_not_set_again_where_others_mean_another_number(nodes, eyes, eventually):
    """A node that has lost it, and has been told of another number since: there it might be one too many."""
    async with Redlock(nodes, ttl=0.6) as redlock, redlock.semaphore("x", permits=2) as lease:
        await eventually(lambda: lease.spare_votes == 2)
        others, lost = eyes.clients[0], eyes.clients[1]
        for eye in (others, lost):
            eye.flushdb()
        others.set("redlock-async:semaphore:{x}", "1", px=5000)
        await eventually(lambda: {index for index, _ in taken(eyes)} == {1, 2, 3, 4})
        await asyncio.sleep(0.5)  # a renewal, and another
        assert {index for index, _ in taken(eyes)} == {1, 2, 3, 4}
        assert others.get("redlock-async:semaphore:{x}") == b"1"
        assert lease.valid


@pytest.mark.asyncio
async def test_detach_and_attach(nodes, eyes):
    """The slot goes to another client with its fence, and is released there."""
    async with Redlock(nodes) as one, Redlock(nodes) as two:
        others = [await one.semaphore("x", permits=4, ttl=1).acquire() for _ in range(3)]
        lease = await one.semaphore("x", permits=4, ttl=1).acquire()
        fence, text = lease.fencing_token, lease.detach()
        taken_over = two.attach(text)
        assert taken_over.valid
        assert taken_over.fencing_token == fence
        assert await one.semaphore("x", permits=4).try_acquire() is None
        await asyncio.sleep(1.2)
        assert taken_over.valid, "not renewed"
        await taken_over.extend()
        async with taken_over:
            pass
        async with one.semaphore("x", permits=4):
            pass
        for other in others:
            await other.release()
        assert taken(eyes) == []


@pytest.mark.asyncio
async def test_a_key_of_another_type_is_never_a_free_slot(nodes, eyes):
    """And is left alone."""
    async with Redlock(nodes) as redlock:
        for eye in eyes.clients:
            eye.rpush("redlock-async:semaphore:{x}:0", "an element")
        with pytest.raises(WrongKeyType):
            await redlock.semaphore("x", permits=1).acquire()
        assert [eye.type("redlock-async:semaphore:{x}:0") for eye in eyes.clients] == [b"list"] * 5


# Cancellation


async def at_every_await(make, check):
    """Cancel at the first suspension, the second, and so on, until it finishes; returns at how many."""
    loop = asyncio.get_running_loop()
    for at in range(1, 60):
        running = []

        async def run(coroutine, at=at, running=running):
            _, steps = await counting(coroutine, at, lambda: loop.call_soon(running[0].cancel))
            return steps

        running.append(loop.create_task(run(await make())))
        try:
            steps = await running[0]
        except asyncio.CancelledError:
            steps = None
        await check()
        if steps is not None:
            assert steps < at, "finished although it was cancelled"
            return steps
    raise AssertionError("still not finished")


@pytest.mark.asyncio
@pytest.mark.parametrize("others", [0, 1, 3], ids=["free", "one_taken", "one_left"])
async def test_cancelled_anywhere_a_block_leaves_no_slot(others, nodes, eyes, eventually):
    """Acquire in one round or two, the body, and the release."""
    async with Redlock(nodes) as redlock, Redlock(nodes) as other:
        held = [await other.semaphore("x", permits=4).acquire() for _ in range(others)]

        async def block():
            async with redlock.semaphore("x", permits=4):
                await asyncio.sleep(0)

        async def make():
            return block()

        async def check():
            await eventually(lambda: len(taken(eyes)) == 5 * others, within=0.1)
            assert redlock.statistics().waiting == 0

        assert await at_every_await(make, check) >= 3
        for lease in held:
            await lease.release()
        assert taken(eyes) == []


@pytest.mark.asyncio
async def test_cancelled_anywhere_a_waiter_leaves_no_slot(nodes, eyes, eventually):
    """Behind the holders of another client, and with one of its own behind it."""
    async with Redlock(nodes) as redlock, Redlock(nodes) as other:
        behind, releases = [], []

        async def use():
            async with redlock.semaphore("x", permits=1):
                pass

        async def make():
            held = await other.semaphore("x", permits=1).acquire()
            asyncio.get_running_loop().call_later(0.02, lambda: releases.append(asyncio.ensure_future(held.release())))

            async def first():
                behind.append(asyncio.create_task(use()))
                await use()

            return first()

        async def check():
            async with asyncio.timeout(1):
                await asyncio.gather(*behind)
            behind.clear()
            await eventually(lambda: taken(eyes) == [], within=0.1)
            await eventually(lambda: all(task.done() for task in releases))

        assert await at_every_await(make, check) >= 3
