"""Fair locks: first come, first served across processes, even if waiters or nodes die, freeze or give up."""

import asyncio
import json
import signal
import statistics
import subprocess
import sys
import time
from bisect import bisect_left
from itertools import pairwise
from pathlib import Path
from random import Random

import anyio
import pytest
from suspending import counting
from tickets import DRAWN, drawn

from redlock_async import ConfigurationError, LockTimeout, QuorumUnavailable, Redlock, RedlockError
from redlock_async._kinds.fair import SHORTEST_ENTRY_TTL, FairAttempt

pytestmark = pytest.mark.asyncio

QUEUED = b"redlock-async:queue:{queued}"
KEPT = b"redlock-async:queue-kept:{queued}"
CLEAN_WITHIN = 0.1


def queues(eyes):
    """Every key of a queue on every node; ticket registers stay."""
    return [(index, key) for index, eye in enumerate(eyes.clients) for key in eye.keys("*redlock-async:queue*")]


def places(eyes, key=QUEUED):
    """How many are in the queue, as the best-informed majority of nodes knows."""
    return sorted(eye.zcard(key) for eye in eyes.clients)[2]


BY_LOCKS = ("cmdstat_evalsha", "cmdstat_delifeq", "cmdstat_delex")


def commands(eyes, names=(*BY_LOCKS, "cmdstat_eval")):
    """Commands each node has carried out for clients of the library."""
    stats = [eye.info("commandstats") for eye in eyes.clients]
    return [sum(stat.get(name, {"calls": 0})["calls"] for name in names) for stat in stats]


async def settled(eyes):
    """Commands each node has carried out for locks, when none is under way: a release does not wait for all nodes.

    Without EVAL, by which clients read the nodes' records. Redis 6.2 reports to a client what that has written itself
    there, so it reads them once more.
    """
    counted, before = commands(eyes, BY_LOCKS), None
    while counted != before:
        await asyncio.sleep(0.1)
        counted, before = commands(eyes, BY_LOCKS), counted
    return counted


class Queuers:
    """Processes that queue: each starts the waiters it is told, and prints their leases."""

    def __init__(self, urls, number, hold=0.0, leases=1):
        command = [sys.executable, str(Path(__file__).with_name("queuer.py")), str(hold), str(leases), *urls]
        self.processes = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(number)
        ]
        for process in self.processes:
            assert process.stdout.readline() == "ready\n"

    def start(self, process, *waiters):
        """Have that process start waiters of those numbers."""
        self.processes[process].stdin.write(" ".join(map(str, waiters)) + "\n")
        self.processes[process].stdin.flush()

    async def leases(self):
        """All leases in the order they were entered: (waiter, ticket, asked, entered, left, fence)."""
        for process in self.processes:
            process.stdin.close()
        outputs = await asyncio.gather(*(asyncio.to_thread(process.stdout.read) for process in self.processes))
        return sorted((json.loads(line) for text in outputs for line in text.splitlines()), key=lambda lease: lease[3])

    def end(self):
        """Leave nothing running."""
        for process in self.processes:
            process.kill()
            process.wait()
            process.stdin.close()
            process.stdout.close()


@pytest.fixture
def queuers():
    """Starts processes that queue, and ends them."""
    started = []

    def start(*arguments, **options):
        started.append(Queuers(*arguments, **options))
        return started[-1]

    yield start
    for each in started:
        each.end()


@pytest.fixture(params=[True, False], ids=["fenced", "plain"])
def fencing(request):
    """Both forms of the lock."""
    return request.param


async def queue_up(redlocks, eyes, eventually, name="x", wait=10):
    """One waiter for each client, each in the queue before the next begins; returns their tasks."""
    tasks = []
    for number, redlock in enumerate(redlocks):
        tasks.append(asyncio.create_task(redlock.fair_lock(name).acquire(wait=wait)))
        key = f"redlock-async:queue:{{{name}}}".encode()
        await eventually(lambda number=number, key=key: places(eyes, key) == number + 1)
    return tasks


async def test_one_holder_at_a_time(nodes, eyes, fencing, eventually):
    """Two clients exclude each other, the key is the name, and nothing is left after the release."""
    async with Redlock(nodes, fencing=fencing) as redlock, Redlock(nodes, fencing=fencing) as other:
        async with redlock.fair_lock("x") as lease:
            await eventually(lambda: eyes.holding("x") == [lease.token.encode()] * 5)
            assert (lease.fencing_token is None) is (not fencing)
            assert await other.fair_lock("x").try_acquire() is None
        await eventually(lambda: not eyes.keys() and not queues(eyes), within=CLEAN_WITHIN)


async def test_fair_and_plain_exclude_each_other(nodes):
    """It is the same lock, so a plain user of the name keeps fair ones out, and the other way round."""
    async with Redlock(nodes) as redlock, Redlock(nodes) as other:
        async with redlock("x") as first:
            assert await other.fair_lock("x").try_acquire() is None
            assert await redlock.fair_lock("x").try_acquire() is None
        async with redlock.fair_lock("x") as second:
            assert await other("x").try_acquire() is None
            assert await redlock("x").try_acquire() is None
        assert first.fencing_token < second.fencing_token


@pytest.mark.parametrize("mine", [True, False], ids=["same client", "another client"])
@pytest.mark.parametrize(
    "kinds", [("lock", "fair_lock"), ("fair_lock", "lock"), ("fair_lock", "fair_lock")], ids="-".join
)
async def test_a_release_wakes_the_waiter_of_either_kind(mine, kinds, nodes):
    """The next is in at once, also when holder and waiter share connections, on which nodes do not report changes."""
    async with Redlock(nodes) as redlock, Redlock(nodes, retry_delay=5.0) as other:
        waiter = redlock if mine else other
        for _ in range(5):
            held = await getattr(redlock, kinds[0])("x").acquire()
            waiting = asyncio.create_task(getattr(waiter, kinds[1])("x").acquire())
            await asyncio.sleep(0.05)  # until it waits: nothing tells when it does
            released = time.monotonic()
            await held.release()
            lease = await waiting
            assert time.monotonic() - released < 0.1
            await lease.release()


async def test_uncontended_is_one_round_trip(nodes, eyes):
    """As long as nobody waits there is no ticket and no queue: one command to take it and one to release it."""
    async with Redlock(nodes) as redlock:
        await (await redlock.fair_lock("x").acquire()).release()
        clocks = redlock._running.context.clocks
        before, compared_at = await settled(eyes), clocks._began_at
        attempts = redlock.statistics().attempts
        for _ in range(20):
            await (await redlock.fair_lock("x").acquire()).release()
        assert redlock.statistics().attempts == attempts + 20
        sent = 40 + (clocks._began_at != compared_at)  # every few seconds, one more compares the nodes' clocks
        assert [after - earlier for earlier, after in zip(before, await settled(eyes), strict=True)] == [sent] * 5
        assert not [key for eye in eyes.clients for key in eye.keys("*ticket*")]


async def test_waiters_of_several_clients_are_served_in_order(nodes, eyes, eventually, monkeypatch):
    """In the order in which they came, whichever client they belong to, and each is notified at once."""
    monkeypatch.setattr(FairAttempt, "_draw_ticket", drawn)
    async with Redlock(nodes) as one, Redlock(nodes) as two, Redlock(nodes) as three:
        held = await two.fair_lock("x").acquire()
        tasks = await queue_up([one, one, two, three, two, one, three, three, one], eyes, eventually)
        tickets = []
        before = held
        for task in tasks:
            released = time.monotonic()
            await before.release()
            lease = await asyncio.wait_for(task, 1)
            assert time.monotonic() - released < 0.1
            assert lease.fencing_token > before.fencing_token
            tickets.append(DRAWN.pop(task))
            assert not any(later.done() for later in tasks[len(tickets) :])
            before = lease
        await before.release()
        assert tickets == sorted(set(tickets))
        await eventually(lambda: not eyes.keys() and not queues(eyes), within=CLEAN_WITHIN)


async def test_a_newcomer_does_not_overtake(nodes, eyes, eventually):
    """Who waits is served before one that comes when the lock is just free, even if that one tries only once."""
    async with Redlock(nodes) as redlock, Redlock(nodes) as other:
        held = await redlock.fair_lock("x").acquire()
        (waiting,) = await queue_up([other], eyes, eventually)
        release = asyncio.ensure_future(held.release())
        overtaking = await redlock.fair_lock("x").try_acquire()
        assert overtaking is None
        await release
        await (await waiting).release()


@pytest.mark.alone
async def test_thirty_waiters_of_three_processes_are_served_as_they_came(nodes, eyes, eventually, queuers):
    """Thirty who came one after the other get leases in that order, one at a time, with increasing fences."""
    async with Redlock(nodes) as redlock:
        held = await redlock.fair_lock("queued").acquire()
        started = queuers(nodes, 3, hold=0.002)
        for number in range(30):
            started.start(number % 3, number)
            await eventually(lambda number=number: places(eyes) == number + 1)
        before = commands(eyes)
        idle_from = time.monotonic()
        await asyncio.sleep(1.5)
        idle = max(after - earlier for earlier, after in zip(before, commands(eyes), strict=True))
        rate = idle / (time.monotonic() - idle_from)
        print(f"30 waiters in 3 processes: {rate:.1f} commands/s a node while they wait")
        assert rate < 40
        before = commands(eyes)
        await held.release()
        leases = await started.leases()
        await eventually(lambda: not eyes.keys() and not queues(eyes), within=CLEAN_WITHIN)
        busy = max(after - earlier for earlier, after in zip(before, commands(eyes), strict=True))
    assert [number for number, *_ in leases] == list(range(30))
    tickets = [ticket for _, ticket, *_ in leases]
    assert tickets == sorted(set(tickets))
    for earlier, later in pairwise(leases):
        assert earlier[4] <= later[3], "two holders at once"
        assert earlier[5] < later[5], "a later holder has a smaller fence"
    per_hand_over = busy / len(leases)
    print(f"{per_hand_over:.1f} commands a node and hand-over")
    # If a release is a script, it reads the lock. So a node also reports the next release to a client whose attempt
    # failed there, and that client asks once more; on Redis before 7.2, also after each command that reads the queue.
    native = any(name in eyes.clients[0].info("commandstats") for name in ("cmdstat_delifeq", "cmdstat_delex"))
    assert per_hand_over < (12 if native else 17)


@pytest.mark.alone
@pytest.mark.thorough
async def test_no_waiter_waits_much_longer_than_the_others(nodes, eyes, eventually, queuers):
    """With four processes of five tasks that come back again and again, waits are about equal.

    In leases that others had meanwhile, and in seconds.
    """
    started = queuers(nodes, 4, leases=120)  # so many that one pause of the machine is not the 99th percentile
    for process in range(4):
        started.start(process, *range(process * 5, process * 5 + 5))
    leases = await started.leases()
    assert len(leases) == 2400
    for earlier, later in pairwise(leases):
        assert earlier[4] <= later[3], "two holders at once"
        assert earlier[5] < later[5], "a later holder has a smaller fence"
    # In turns: between two leases of one waiter, no other waiter has more than a few.
    last = {}
    for position, (number, *_) in enumerate(leases[:-80]):
        if number in last:
            assert position - last[number] <= 60, "somebody was passed over"
        last[number] = position
    entries = [entered for _, _, _, entered, *_ in leases]
    queued = [(asked, entered) for _, ticket, asked, entered, *_ in leases[40:-40] if ticket]
    served = [bisect_left(entries, entered) - bisect_left(entries, asked) for asked, entered in queued]
    p50, p99 = median_and_p99(served)
    assert p99 <= 3 * p50, "in leases that others had meanwhile"
    waits = median_and_p99([entered - asked for asked, entered in queued])
    rate = len(leases) / (leases[-1][4] - leases[0][3])
    spread = " and ".join(f"{wait * 1e3:.1f} ms" for wait in waits)
    print(f"p50 and p99: {spread}, {p50:.0f} and {p99} leases; {rate:.0f} hand-overs/s")
    assert waits[1] <= 3 * waits[0], "in seconds"
    await eventually(lambda: not eyes.keys() and not queues(eyes), within=CLEAN_WITHIN)


def median_and_p99(waits):
    """Of those."""
    return statistics.median(waits), sorted(waits)[int(0.99 * len(waits))]


async def test_a_killed_head_costs_no_more_than_its_place(nodes, eyes, eventually, queuers):
    """The next gets in when the dead one's place has run out; until then everybody else stays where they are."""
    async with Redlock(nodes) as redlock, Redlock(nodes) as other:
        held = await redlock.fair_lock("queued").acquire()
        started = queuers(nodes, 1)
        started.start(0, 0)
        await eventually(lambda: places(eyes) == 1)
        waiting = [asyncio.create_task(client.fair_lock("queued").acquire()) for client in (redlock, other)]
        await eventually(lambda: places(eyes) == 3)
        started.processes[0].send_signal(signal.SIGKILL)
        died = time.monotonic()
        await held.release()
        done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED, timeout=5)
        cost = time.monotonic() - died
        print(f"a killed head cost {cost:.2f} s")
        assert len(done) == 1
        assert cost < SHORTEST_ENTRY_TTL + 0.2
        await done.pop().result().release()
        for task in waiting:
            if not task.done() or task.result().valid:
                await (await asyncio.wait_for(task, 1)).release()
        await eventually(lambda: not eyes.keys() and not queues(eyes), within=CLEAN_WITHIN)


async def test_one_that_is_killed_behind_another_costs_no_more(nodes, eyes, eventually, queuers):
    """Than its place, also where the next has no reason of its own to look when that is over.

    It came after the last sign of life of the one ahead, so it does not look sooner than that one's place would end;
    and it gives none itself between the time that one leaves and the time the dead one's place runs out.
    """

    def runs_out_at(position):
        who = eyes.clients[0].zrange(QUEUED, position, position)[0]
        return max(int(eye.hget(KEPT, who)) for eye in eyes.clients) / 1000

    async with Redlock(nodes) as redlock, Redlock(nodes) as other:
        held = await redlock.fair_lock("queued").acquire()
        started = queuers(nodes, 1)
        ahead = asyncio.create_task(redlock.fair_lock("queued").acquire())
        await eventually(lambda: places(eyes) == 1)
        first_kept = runs_out_at(0)
        await eventually(lambda: runs_out_at(0) > first_kept)
        first_kept = runs_out_at(0)
        await eventually(lambda: time.time() > first_kept - SHORTEST_ENTRY_TTL + 0.2)
        started.start(0, 0)
        await eventually(lambda: places(eyes) == 2)
        await eventually(lambda: runs_out_at(0) > first_kept)
        behind = asyncio.create_task(other.fair_lock("queued").acquire())
        await eventually(lambda: places(eyes) == 3)
        started.processes[0].send_signal(signal.SIGKILL)
        started.processes[0].wait()
        expected_at = runs_out_at(1)
        await held.extend()  # when it came it looked at the lock: of this it is told, and of no later change
        await eventually(lambda: time.time() > expected_at - 0.15)
        await held.release()
        await (await asyncio.wait_for(ahead, 1)).release()
        lease = await asyncio.wait_for(behind, 5)
        late = time.time() - expected_at
        print(f"the next got in {late * 1e3:.0f} ms after the dead one's place had run out")
        assert 0 <= late < 0.2
        await lease.release()
        await eventually(lambda: not eyes.keys() and not queues(eyes), within=CLEAN_WITHIN)


@pytest.mark.parametrize("way", ["cancelled", "timed out", "client closed"])
async def test_a_waiter_that_gives_up_is_gone_at_once(way, nodes, eyes, eventually):
    """Its place is gone from every node, and the next is not held up by it."""
    async with Redlock(nodes) as holder, Redlock(nodes) as redlock, Redlock(nodes) as other:
        held = await holder.fair_lock("queued").acquire()
        giving_up = asyncio.create_task(redlock.fair_lock("queued").acquire(wait=0.3))
        await eventually(lambda: places(eyes) == 1)
        waiting = asyncio.create_task(other.fair_lock("queued").acquire())
        await eventually(lambda: places(eyes) == 2)
        if way == "cancelled":
            giving_up.cancel()
        elif way == "client closed":
            await redlock.aclose()
        expected = {"cancelled": asyncio.CancelledError, "timed out": LockTimeout, "client closed": RedlockError}[way]
        with pytest.raises(expected):
            await giving_up
        await eventually(lambda: [eye.zcard(QUEUED) for eye in eyes.clients] == [1] * 5, within=CLEAN_WITHIN)
        released = time.monotonic()
        await held.release()
        lease = await asyncio.wait_for(waiting, 1)
        assert time.monotonic() - released < 0.1
        await lease.release()
        await eventually(lambda: not eyes.keys() and not queues(eyes), within=CLEAN_WITHIN)


async def test_a_head_that_gives_up_while_the_lock_is_free_hands_on(nodes, eyes, eventually):
    """A place that stands for nobody any more does not keep a free lock from the next."""
    async with Redlock(nodes) as one, Redlock(nodes) as two:
        held = await one.fair_lock("x").acquire()
        first, second = await queue_up([two, one], eyes, eventually)
        first.cancel()
        await held.release()
        lease = await asyncio.wait_for(second, 1)
        await lease.release()


async def test_timeout_names_who_is_in_the_way(nodes, eyes, eventually):
    """The first in the queue is told the holder, one behind it who is the first."""
    async with (
        Redlock(nodes, owner="the holder") as holder,
        Redlock(nodes, owner="the first") as one,
        Redlock(nodes, owner="the second") as two,
    ):
        held = await holder.fair_lock("x").acquire()
        with pytest.raises(LockTimeout, match="held by the holder") as caught:
            await one.fair_lock("x").acquire(wait=0)
        assert caught.value.holder == "the holder"
        with pytest.raises(LockTimeout, match=r"after waiting 0\.2 s: held by the holder"):
            await one.fair_lock("x").acquire(wait=0.2)
        await eventually(lambda: not queues(eyes), within=CLEAN_WITHIN)
        first, second = await queue_up([one, two], eyes, eventually, wait=0.5)
        for task, expected in ((first, "held by the holder"), (second, "behind the first|held by the holder")):
            with pytest.raises(LockTimeout, match=expected):
                await task
        (waiting,) = await queue_up([one], eyes, eventually)
        with pytest.raises(LockTimeout, match="held by the holder"):
            await two.fair_lock("x").acquire(wait=0)
        await held.release()
        await (await asyncio.wait_for(waiting, 1)).release()


async def test_wait_is_kept(nodes):
    """`wait` bounds the waiting, of the first in the process and of those behind it."""
    async with Redlock(nodes) as holder, Redlock(nodes) as redlock, holder.fair_lock("x"):
        started = time.monotonic()
        tried = await asyncio.gather(
            *(redlock.fair_lock("x").acquire(wait=0.3) for _ in range(20)), return_exceptions=True
        )
        assert 0.3 <= time.monotonic() - started < 0.45
        assert all(isinstance(error, LockTimeout) for error in tried)


async def test_three_waiters_on_five_nodes_always_agree(nodes, eyes, eventually):
    """The case in which order of arrival deadlocks: three who begin at the same instant, again and again."""
    clients = [Redlock(nodes) for _ in range(3)]
    try:
        for client in clients:
            await client.status()
        for number in range(60):
            name = f"x{number % 3}"
            started = time.monotonic()

            async def hold(client, name=name):
                async with client.fair_lock(name) as lease:
                    await asyncio.sleep(0)
                    return lease.fencing_token

            fences = await asyncio.gather(*(hold(client) for client in clients))
            assert len(set(fences)) == 3
            assert time.monotonic() - started < 0.5
        await eventually(lambda: not eyes.keys() and not queues(eyes), within=CLEAN_WITHIN)
    finally:
        for client in clients:
            await client.aclose()


async def test_nodes_that_disagree_on_tickets_are_levelled(nodes, eyes, eventually):
    """Registers far apart, as after a loss of data: the order is still that of coming, on every node the same."""
    for index, eye in enumerate(eyes.clients):
        eye.set("redlock-async:ticket:{x}", 10**15 + 10**9 * (index * 3 % 5))
    async with Redlock(nodes) as one, Redlock(nodes) as two:
        held = await one.fair_lock("x").acquire()
        tasks = await queue_up([two, one, two, one], eyes, eventually)
        key = "redlock-async:queue:{x}"
        await eventually(lambda: len({tuple(eye.zrange(key, 0, -1)) for eye in eyes.clients}) == 1)
        await held.release()
        for position, task in enumerate(tasks):
            lease = await asyncio.wait_for(task, 1)
            assert not any(later.done() for later in tasks[position + 1 :])
            await lease.release()


async def test_a_queue_entry_is_stored_at_once_and_expires(nodes, eyes, eventually):
    """Of every waiter of a process, not only of its first; and a process that dies leaves nothing behind."""
    key, kept = "redlock-async:queue:{x}", "redlock-async:queue-kept:{x}"
    async with Redlock(nodes) as redlock, Redlock(nodes) as other:
        held = await redlock.fair_lock("x").acquire()
        tasks = []
        for number in range(3):
            tasks.append(asyncio.create_task(other.fair_lock("x").acquire()))
            await eventually(lambda: [eye.zcard(key) for eye in eyes.clients] == [number + 1] * 5, within=0.2)  # noqa: B023 - awaited here
            lasts = [eye.pttl(each) for eye in eyes.clients for each in (key, kept)]
            assert min(lasts) > 0, "for ever"
        await held.release()
        for task in tasks:
            await (await asyncio.wait_for(task, 1)).release()


async def test_who_waited_is_not_overtaken_where_tickets_were_lost(nodes, eyes, eventually):
    """They begin anew at the time, not at one."""
    async with Redlock(nodes) as one, Redlock(nodes) as two:
        held = await one.fair_lock("x").acquire()
        (first,) = await queue_up([one], eyes, eventually)
        for eye in eyes.clients:
            eye.delete("redlock-async:ticket:{x}")
        second = asyncio.create_task(two.fair_lock("x").acquire())
        await eventually(lambda: places(eyes, "redlock-async:queue:{x}") == 2)
        await held.release()
        lease = await asyncio.wait_for(first, 1)
        assert not second.done()
        await lease.release()
        await (await asyncio.wait_for(second, 1)).release()


async def test_a_lost_place_is_put_back(nodes, eyes, eventually):
    """Nodes that were flushed learn who waits from the next sign of life, in the same order."""
    async with Redlock(nodes) as one, Redlock(nodes) as two:
        held = await one.fair_lock("x").acquire()
        tasks = await queue_up([two, one, two], eyes, eventually)
        key = "redlock-async:queue:{x}"
        order = eyes.clients[0].zrange(key, 0, -1)
        for eye in eyes.clients[:2]:
            eye.delete(key, "redlock-async:queue-kept:{x}")
        await eventually(lambda: all(eye.zrange(key, 0, -1) == order for eye in eyes.clients), within=1.5)
        await held.release()
        for task in tasks:
            await (await asyncio.wait_for(task, 1)).release()


async def test_without_tracking_waiting_is_polling(nodes):
    """On RESP2 connections nobody is told anything, and everybody still gets in, in turn."""
    urls = [url + ("&" if "?" in url else "?") + "protocol=2" for url in nodes]
    async with Redlock(urls) as one, Redlock(urls) as two:
        order = []

        async def hold(client, number):
            async with client.fair_lock("x"):
                order.append(number)

        held = await one.fair_lock("x").acquire()
        tasks = []
        for number in range(4):
            tasks.append(asyncio.create_task(hold((one, two)[number % 2], number)))
            await asyncio.sleep(0.05)  # until it has queued
        await held.release()
        await asyncio.wait_for(asyncio.gather(*tasks), 5)
        assert order == [0, 1, 2, 3]


async def test_one_node_killed_and_one_frozen(cluster):
    """The queue moves on with the three nodes that are left."""
    async with Redlock(cluster.urls) as one, Redlock(cluster.urls) as two:
        held = await one.fair_lock("x").acquire()
        order = []

        async def hold(client, number):
            async with client.fair_lock("x"):
                order.append(number)

        tasks = []
        for number in range(3):
            tasks.append(asyncio.create_task(hold((two, one)[number % 2], number)))
            await asyncio.sleep(0.05)  # until it has queued
        cluster.kill(0)
        cluster.pause(1)
        for number in range(3, 6):
            tasks.append(asyncio.create_task(hold((two, one)[number % 2], number)))
            await asyncio.sleep(0.4)  # until it has queued, with a node timeout on the way
        await held.release()
        await asyncio.wait_for(asyncio.gather(*tasks), 5)
        assert order == list(range(6))
        started = time.monotonic()
        for _ in range(10):
            await (await one.fair_lock("x").acquire()).release()
        assert time.monotonic() - started < 0.5
        cluster.resume(1)


async def test_too_few_nodes_are_an_outage_and_not_contention(cluster):
    """Who cannot queue for lack of masters is told so."""
    async with Redlock(cluster.urls) as holder, Redlock(cluster.urls) as redlock, holder.fair_lock("x", renew=False):
        waiting = asyncio.create_task(redlock.fair_lock("x").acquire(wait=1))
        await asyncio.sleep(0.05)  # until it has queued
        for index in range(3):
            cluster.kill(index)
        with pytest.raises(QuorumUnavailable):
            await redlock.fair_lock("x").acquire(wait=0.3)
        with pytest.raises(QuorumUnavailable):
            await waiting
        with pytest.raises(QuorumUnavailable):
            await redlock.fair_lock("x").try_acquire()
        for index in range(3):
            cluster.restart(index)


async def test_renewed_lost_and_handed_on_as_a_plain_lock(nodes, eyes):
    """A fair lease is renewed, noticed when it is taken away, extended, retained, and can be detached and attached."""
    async with Redlock(nodes, ttl=0.3) as redlock, Redlock(nodes) as other:
        async with redlock.fair_lock("x") as lease:
            await asyncio.sleep(0.5)  # longer than its ttl
            assert lease.valid
            await lease.extend(5)
            assert lease.remaining > 4
        lease = await redlock.fair_lock("x", ttl=5).acquire()
        attached = other.attach(lease.detach())
        assert attached.fencing_token == lease.fencing_token
        async with attached:
            assert await redlock.fair_lock("x").try_acquire() is None
        lease = await redlock.fair_lock("x").acquire()
        await other.force_release("x")
        await asyncio.wait_for(lease.wait_until_lost(), 1)
        await (await redlock.fair_lock("x", min_hold=0.3).acquire()).release()
        assert await redlock.fair_lock("x").try_acquire() is None
        async with redlock.fair_lock("x", wait=2):
            pass
    assert not eyes.keys()


async def by_task(coroutine, at):
    """task.cancel(), and again in the next tick; returns how often it suspended, None if it was cancelled."""
    loop = asyncio.get_running_loop()

    def act():
        loop.call_soon(task.cancel)
        loop.call_soon(loop.call_soon, task.cancel)

    async def run():
        _, steps = await counting(coroutine, at, act)
        return steps

    task = loop.create_task(run())
    try:
        return await task
    except asyncio.CancelledError:
        return None


async def by_scope(coroutine, at):
    """An anyio scope, which cancels again and again until the block has ended."""

    async def run():
        with anyio.CancelScope() as scope:
            _, steps = await counting(coroutine, at, scope.cancel)
            return steps

    return await asyncio.get_running_loop().create_task(run())


@pytest.mark.parametrize("way", [by_task, by_scope])
@pytest.mark.parametrize("waiters", [None, 0, 1, 2], ids=["free", "held", "behind a sibling", "behind two"])
async def test_cancelled_at_every_await(way, waiters, nodes, eyes, eventually):
    """Wherever it is cancelled, no key and no place is left, and those before and behind it are served."""
    async with Redlock(nodes) as holder, Redlock(nodes) as redlock:
        await holder.status()

        async def use():
            async with redlock.fair_lock("x"):
                pass

        for at in range(1, 40):
            others = []
            if waiters is not None:
                held = await holder.fair_lock("x").acquire()
                others = await queue_up([redlock] * waiters, eyes, eventually)
                asyncio.get_running_loop().call_later(
                    0.01, lambda held=held, others=others: others.append(asyncio.ensure_future(held.release()))
                )
            finished = asyncio.ensure_future(way(use(), at))
            for number in range(waiters or 0):
                await (await asyncio.wait_for(others[number], 1)).release()
            steps = await asyncio.wait_for(finished, 1)
            await eventually(lambda others=others: waiters is None or len(others) > waiters)
            await asyncio.gather(*others[waiters or 0 :])
            await eventually(lambda: not eyes.keys() and not queues(eyes), within=CLEAN_WITHIN)
            if steps is not None:
                assert steps < at
                assert at > 2
                return
        raise AssertionError("still not finished")


@pytest.mark.parametrize("kind", ["lock", "fair_lock"])
@pytest.mark.parametrize("ticks", range(1, 7))
async def test_closing_the_client_takes_back_what_is_under_way(kind, ticks, nodes, eyes, eventually):
    """An acquire that the end of its client interrupts leaves neither a key nor a place."""
    redlock = Redlock(nodes)
    await redlock.status()
    acquiring = asyncio.create_task(getattr(redlock, kind)("x").acquire())
    for _ in range(ticks):
        await asyncio.sleep(0)
    await redlock.aclose()
    await asyncio.wait([acquiring])
    await eventually(lambda: not eyes.keys() and not queues(eyes), within=CLEAN_WITHIN)
    assert acquiring.exception() is not None or not acquiring.result().valid


async def test_churn(nodes, eyes, eventually):
    """Waiters that come, give up and are cancelled at random, some of them plain, and scripts that are forgotten."""
    random = Random(7)
    inside, fences, gaps = 0, [], []
    free_since = time.monotonic()
    end = free_since + 2

    async def hold(redlock):
        nonlocal inside, free_since
        lock = redlock.fair_lock if random.random() < 0.9 else redlock
        async with lock("x", wait=random.choice([0.002, 0.01, 0.05, 5])) as lease:
            gaps.append(time.monotonic() - free_since)
            inside += 1
            assert inside == 1, "two holders at once"
            fences.append(lease.fencing_token)
            try:
                await asyncio.sleep(random.choice([0, 0, 0.002]))
            finally:
                inside -= 1
                free_since = time.monotonic()

    async def come_and_go(redlock):
        while time.monotonic() < end:
            task = asyncio.create_task(hold(redlock))
            if random.random() < 0.2:
                asyncio.get_running_loop().call_later(random.random() * 0.02, task.cancel)
            if random.random() < 0.01:
                random.choice(eyes.clients).script_flush()
            await asyncio.wait([task])
            if not task.cancelled():
                assert isinstance(task.exception(), LockTimeout | None)

    async with Redlock(nodes) as one, Redlock(nodes) as two, Redlock(nodes) as three:
        await asyncio.gather(*(come_and_go(redlock) for redlock in (one, two, three) * 5))
        await eventually(lambda: not eyes.keys() and not queues(eyes), within=CLEAN_WITHIN)
    assert fences == sorted(set(fences))
    print(f"{len(fences)} leases; free for at most {max(gaps) * 1e3:.0f} ms")
    assert max(gaps) < 0.5, "nobody took a free lock for which others waited"


async def test_bad_names(nodes):
    """A fair lock has one name, under the rules of all names."""
    async with Redlock(nodes) as redlock:
        for name in ("", "redlock-async:x", 5):
            with pytest.raises(ConfigurationError):
                redlock.fair_lock(name)
