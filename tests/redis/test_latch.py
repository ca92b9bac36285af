"""A count-down latch opens when it should, not before, for every waiter, and stays open."""

import asyncio
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from uuid import UUID

import pytest

from redlock_async import ConfigurationError, LockTimeout, QuorumUnavailable, Redlock, RedlockError, WrongKeyType

pytestmark = pytest.mark.asyncio

IDS = "redlock-async:latch:{x}"
STATE = "redlock-async:latch-state:{x}"


def looks(eyes, *, by=("evalsha", "eval")):
    """Scripts that each node has run. What a node records about the others is always sent with its source, by EVAL."""
    stats = [eye.info("commandstats") for eye in eyes.clients]
    return [sum(stat.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in by) for stat in stats]


def running():
    """The library's tasks that look for those who wait."""
    return [task for task in asyncio.all_tasks() if task.get_name().startswith("redlock latch") and not task.done()]


async def until_all_are_up(redlock):
    """A node that was restarted is connected again."""
    async with asyncio.timeout(5):
        while not all([status.up for status in await redlock.status()]):  # noqa: C419, ASYNC110 - asked anew each time
            await asyncio.sleep(0.01)


async def test_opens_when_the_last_event_arrives_and_not_before(nodes, eyes):
    """Two of three keep it shut; the third opens it for waiters of all clients, at once."""
    async with Redlock(nodes) as redlock, Redlock(nodes) as other:
        latch, same = redlock.latch("x", count=3), other.latch("x", count=3)
        waiting = [asyncio.create_task(each.wait(timeout=5)) for each in (latch, same)]
        left = []
        for event in ("a", "b"):
            await latch.count_down(event)
            left.append(await same.remaining())
            with pytest.raises(LockTimeout, match=f"{left[-1]} of 3 events are missing"):
                await same.wait(timeout=0.02)
        assert left == [2, 1]
        assert not any(task.done() for task in waiting)
        started = time.monotonic()
        await same.count_down("c")
        await asyncio.gather(*waiting)
        assert time.monotonic() - started < 0.1
        assert await latch.remaining() == 0
        assert sum(eye.hexists(STATE, "open") for eye in eyes.clients) >= 3


async def test_an_event_counts_once(nodes):
    """However often and by whomever it is given; more events than needed do no harm."""
    async with Redlock(nodes) as redlock, Redlock(nodes) as other:
        for _ in range(3):
            await asyncio.gather(*(client.latch("x", count=2).count_down("a") for client in (redlock, other)))
        assert await redlock.latch("x", count=2).remaining() == 1
        for event in ("b", "c", "d"):
            await other.latch("x", count=2).count_down(event)
        assert await redlock.latch("x", count=2).remaining() == 0
        await redlock.latch("x", count=2).wait(timeout=0)


async def test_open_already(nodes):
    """One that comes late does not wait, whatever its timeout."""
    async with Redlock(nodes) as redlock:
        await redlock.latch("x", count=1).count_down("a")
    async with Redlock(nodes) as late:
        for timeout in (0, 1, timedelta(seconds=1), None):
            await asyncio.wait_for(late.latch("x", count=1).wait(timeout=timeout), 1)
        await asyncio.wait_for(late.latch("x", count=1).wait(), 1)


async def test_a_hundred_waiters_share_one_look(nodes, eyes):
    """They cost the nodes what one costs, and are all in promptly."""
    async with Redlock(nodes) as redlock, Redlock(nodes) as other:
        await redlock.status()
        await (await other("warm").acquire()).release()  # its first lock costs more
        waiting = [asyncio.create_task(redlock.latch("x", count=2).wait(timeout=10)) for _ in range(100)]
        await asyncio.sleep(0.1)  # until they wait
        assert len(running()) == 1
        before = looks(eyes)
        await asyncio.sleep(1)
        assert max(after - earlier for earlier, after in zip(before, looks(eyes), strict=True)) <= 1
        before = looks(eyes)
        await other.latch("x", count=2).count_down("a")
        await other.latch("x", count=2).count_down("b")
        opened = time.monotonic()
        await asyncio.gather(*waiting)
        took = time.monotonic() - opened
        cost = max(after - earlier for earlier, after in zip(before, looks(eyes), strict=True))
        woken = f"woken {took * 1e3:.1f} ms after the last event"
        print(f"100 waiters: {woken}, {cost} commands a node in all")
        assert took < 0.1
        assert cost <= 8
        await asyncio.sleep(0)
        assert not running()


async def test_timeout_and_cancellation_leave_nothing_running(nodes):
    """The last waiter that goes ends the look; one of many does not."""
    async with Redlock(nodes) as redlock:
        latch = redlock.latch("x", count=1)
        started = time.monotonic()
        with pytest.raises(LockTimeout, match=r"after waiting 0\.2 s: 1 of 1") as caught:
            await latch.wait(timeout=0.2)
        assert 0.2 <= time.monotonic() - started < 0.3
        assert caught.value.names == ("x",)
        first, second = (asyncio.create_task(latch.wait(timeout=5)) for _ in range(2))
        await asyncio.sleep(0.02)  # until they wait
        first.cancel()
        await asyncio.wait([first])
        assert len(running()) == 1
        second.cancel()
        await asyncio.wait([second])
        await asyncio.sleep(0)
        assert not running()
        assert not redlock._running.context.wakeups
        assert not redlock._running.context.shared
        await latch.count_down("a")
        await latch.wait(timeout=1)


@pytest.mark.parametrize(("method", "arguments"), [("count_down", ("a",)), ("remaining", ()), ("wait", ())])
async def test_cancelled_anywhere(method, arguments, nodes):
    """Every method can be cancelled at once, and used again afterwards."""
    async with Redlock(nodes) as redlock:
        latch = redlock.latch("x", count=2)
        for ticks in range(8):
            task = asyncio.create_task(getattr(latch, method)(*arguments))
            for _ in range(ticks):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait_for(asyncio.wait([task]), 0.1)
        await asyncio.sleep(0.01)  # the looks that were cancelled end in the next ticks
        assert not running()
        await latch.count_down("a")
        assert await latch.remaining() == 1


async def test_another_count_is_an_error(nodes):
    """The first count holds for all, in every method, also for those who waited before."""
    async with Redlock(nodes) as redlock, Redlock(nodes) as other:
        waiting = asyncio.create_task(other.latch("x", count=3).wait(timeout=5))
        await asyncio.sleep(0.05)  # until it waits
        await redlock.latch("x", count=2).count_down("a")
        for call in (
            waiting,
            other.latch("x", count=3).count_down("b"),
            other.latch("x", count=3).remaining(),
            other.latch("x", count=3).wait(timeout=0),
        ):
            with pytest.raises(ConfigurationError, match=r"in use with count=2, and count=3 .* another generation"):
                await call
        assert await redlock.latch("x", count=2).remaining() == 1
        right = asyncio.create_task(other.latch("x", count=2).wait(timeout=5))
        await asyncio.sleep(0.05)  # until it waits
        with pytest.raises(ConfigurationError, match=r"in use with count=2"):
            await other.latch("x", count=3).wait(timeout=1)  # beside one of its process that is right
        right.cancel()
        assert await other.latch("x", count=3, generation=2).remaining() == 3


async def test_each_generation_is_a_latch_of_its_own(nodes):
    """Who is late for one disturbs no other, and one that was open stays so."""
    async with Redlock(nodes) as redlock, Redlock(nodes) as other:
        first, second = (redlock.latch("x", count=2, generation=number) for number in (1, 2))
        assert (first.name, second.name, repr(second)) == ("x#1", "x#2", "<Latch 'x#2' of 2>")
        for event in ("a", "b"):
            await first.count_down(event)
        waiting = asyncio.create_task(second.wait(timeout=5))
        await other.latch("x", count=2, generation="1").count_down("c")  # a straggler of the first round
        await second.count_down("a")
        assert await second.remaining() == 1
        assert not waiting.done()
        assert await other.latch("x", count=2, generation=1).remaining() == 0
        await other.latch("x", count=2, generation=2).count_down("b")
        await asyncio.wait_for(waiting, 1)
        assert await redlock.latch("x", count=3).remaining() == 3
        assert [each.name for each in await redlock.list_locks("x#*")] == ["x#1", "x#2"]


async def test_bad_arguments(nodes):
    """Counts, ids, names, retentions and timeouts are checked before anything is sent."""
    async with Redlock(nodes) as redlock:
        for count in (0, -1, True, 1.0, "3", None):
            with pytest.raises(ConfigurationError, match="count"):
                redlock.latch("x", count=count)
        for name in ("", "redlock-async:x", 3):
            with pytest.raises(ConfigurationError):
                redlock.latch(name, count=1)
        for retention in (0, -1, True, "1"):
            with pytest.raises(ConfigurationError, match="retention"):
                redlock.latch("x", count=1, retention=retention)
        for generation in (True, 1.0, 1 << 64, "", "a#b", b"a", ()):
            with pytest.raises(ConfigurationError, match="generation must be an int of 64 bits, or a"):
                redlock.latch("x", count=1, generation=generation)
        for generation in (datetime.now(UTC), datetime.now(UTC).date(), UUID(int=7)):
            with pytest.raises(ConfigurationError, match=r"generation must be .*, got .*\. Pass str\(\.\.\.\) of it$"):
                redlock.latch("x", count=1, generation=generation)
        for name in (3, ""):
            with pytest.raises(ConfigurationError, match="name"):
                redlock.latch(name, count=1, generation=1)
        for event in ("", 1, None, b"a", "a" * 513, "\ud800"):
            with pytest.raises(ConfigurationError, match="id"):
                await redlock.latch("x", count=1).count_down(event)
        for timeout in (-1, True, float("inf"), "1"):
            with pytest.raises(ConfigurationError):
                await redlock.latch("x", count=1).wait(timeout=timeout)
        assert await redlock.latch("x", count=1).remaining() == 1


async def test_a_latch_expires_after_its_retention(nodes, eyes, eventually):
    """Each use begins its time anew; half as long again after it, it is forgotten, and nothing is left."""
    async with Redlock(nodes) as redlock:
        latch = redlock.latch("x", count=2, retention=0.4)
        await latch.count_down("a")
        for _ in range(4):
            await asyncio.sleep(0.3)
            assert await latch.remaining() == 1
        await eventually(lambda: not any(eye.exists(IDS, STATE) for eye in eyes.clients), within=1)
        assert await latch.remaining() == 2


async def test_no_use_is_too_early_to_begin_its_time_anew(nodes, eyes):
    """After each of them every master keeps it for all of that time; nobody who gives less cuts that short."""
    async with Redlock(nodes) as redlock:
        latch = redlock.latch("x", count=3, retention=20)

        async def left_after(use):
            await use
            return min(eye.pttl(key) for eye in eyes.clients for key in (IDS, STATE))

        assert 29_000 < await left_after(latch.count_down("a")) <= 30_000
        for stored, use in ((22_000, latch.remaining), (18_000, latch.remaining), (18_000, partial(latch.wait, 0))):
            for eye in eyes.clients:
                eye.pexpire(IDS, stored)
                eye.pexpire(STATE, stored)
            with suppress(LockTimeout):
                await use()
            assert await left_after(asyncio.sleep(0.05)) > 19_900
        assert await left_after(redlock.latch("x", count=3, retention=0.1).count_down("b")) > 19_800


async def test_waiters_keep_a_latch_without_waking_each_other(nodes, eyes):
    """Renewing the retention tells the other watchers, who must not answer in kind."""
    async with Redlock(nodes) as one, Redlock(nodes) as two:
        await one.latch("x", count=2, retention=20).count_down("a")
        await two.latch("x", count=2, retention=20).remaining()
        for eye in eyes.clients:
            eye.pexpire(IDS, 5_000)
            eye.pexpire(STATE, 5_000)
        before = looks(eyes, by=("evalsha",))
        waiting = [asyncio.create_task(c.latch("x", count=2, retention=20).wait(timeout=1)) for c in (one, two)]
        await asyncio.wait(waiting)
        assert max(after - earlier for earlier, after in zip(before, looks(eyes, by=("evalsha",)), strict=True)) <= 6
        assert all(eye.pttl(IDS) > 15_000 for eye in eyes.clients)
        for task in waiting:
            assert isinstance(task.exception(), LockTimeout)


async def test_without_tracking_waiting_is_polling(nodes):
    """On RESP2 connections there is no report of a change, and the waiter is in within a pause."""
    urls = [url + ("&" if "?" in url else "?") + "protocol=2" for url in nodes]
    async with Redlock(urls) as redlock, Redlock(urls) as other:
        waiting = asyncio.create_task(redlock.latch("x", count=1).wait(timeout=5))
        await asyncio.sleep(0.1)  # until it waits
        await other.latch("x", count=1).count_down("a")
        await asyncio.wait_for(waiting, 0.5)


async def test_a_key_of_another_type_is_never_taken_for_a_latch(nodes, eyes):
    """It is a conflict, not an empty latch."""
    for eye in eyes.clients:
        eye.set(IDS, "something else")
    async with Redlock(nodes) as redlock:
        for call in (redlock.latch("x", count=1).remaining(), redlock.latch("x", count=1).count_down("a")):
            with pytest.raises(WrongKeyType):
                await call


async def test_the_client_is_closed_meanwhile(nodes):
    """Who waits is told."""
    redlock = Redlock(nodes)
    waiting = asyncio.create_task(redlock.latch("x", count=1).wait(timeout=5))
    await asyncio.sleep(0.1)  # until it waits
    await redlock.aclose()
    with pytest.raises(RedlockError):
        await asyncio.wait_for(waiting, 1)
    await asyncio.sleep(0)
    assert not running()


async def test_one_node_down_and_one_frozen(cluster):
    """Three of five do: it opens when the last event comes and not before, and is open for one that comes later."""
    async with Redlock(cluster.urls) as redlock, Redlock(cluster.urls) as other:
        waiting = asyncio.create_task(other.latch("x", count=2).wait(timeout=5))
        await redlock.latch("x", count=2).count_down("a")
        cluster.kill(0)
        cluster.pause(1)
        assert await other.latch("x", count=2).remaining() == 1
        assert not waiting.done()
        await redlock.latch("x", count=2).count_down("b")
        await asyncio.wait_for(waiting, 0.5)
        async with Redlock(cluster.urls) as late:
            await late.latch("x", count=2).wait(timeout=0)
        cluster.resume(1)
        cluster.restart(0)


async def test_too_few_nodes_are_an_outage(cluster):
    """Nothing is counted or reported without a majority, and a waiter hears why; it goes on when they are back."""
    async with Redlock(cluster.urls, wait=0.3) as redlock:
        latch = redlock.latch("x", count=1)
        assert await latch.remaining() == 1
        patient = asyncio.create_task(latch.wait(timeout=10))
        for index in range(3):
            cluster.kill(index)
        for call in (latch.count_down("a"), latch.remaining(), latch.wait(timeout=0), latch.wait(timeout=0.5)):
            with pytest.raises(QuorumUnavailable):
                await call
        for index in range(3):
            cluster.restart(index)
        async with asyncio.timeout(5):
            while True:
                try:
                    await latch.count_down("b")
                    break
                except QuorumUnavailable:
                    continue
        await asyncio.wait_for(patient, 2)


async def test_a_node_that_lost_its_data_neither_opens_nor_shuts_it(cluster):
    """Restarted empty, one after the other: nothing is forgotten that others are asked for in between."""
    async with Redlock(cluster.urls) as redlock, Redlock(cluster.urls) as other:
        latch, same = redlock.latch("x", count=3), other.latch("x", count=3)
        waiting = asyncio.create_task(same.wait(timeout=20))
        await latch.count_down("a")
        await latch.count_down("b")
        for index in range(5):
            cluster.kill(index)
            cluster.restart(index)
            await until_all_are_up(redlock)
            assert await latch.remaining() == 1
            assert not waiting.done()
        await latch.count_down("c")
        await asyncio.wait_for(waiting, 2)
        for index in range(5):
            cluster.kill(index)
            cluster.restart(index)
            await until_all_are_up(redlock)
            assert await latch.remaining() == 0
            await same.wait(timeout=0)


async def test_a_master_that_can_store_nothing_is_not_told_again_and_again(nodes, eyes, monkeypatch):
    """It lacks an event each time that it is looked at: waiting costs the others no more than without it."""
    monkeypatch.setattr("redlock_async.latch.POLL_INTERVAL", 60.0)  # who waits looks now and then, without a reason
    async with Redlock(nodes) as redlock:
        async with redlock("warm"):
            pass
        full = eyes.clients[0]
        full.config_set("maxmemory", 1)
        try:
            latch = redlock.latch("x", count=2)
            await latch.count_down("a")
            waiting = asyncio.create_task(latch.wait(timeout=10))
            await asyncio.sleep(0.3)  # until it waits
            before = looks(eyes)
            await asyncio.sleep(1)
            assert looks(eyes) == before
        finally:
            full.config_set("maxmemory", 0)
        await latch.count_down("b")
        await asyncio.wait_for(waiting, 1)
