"""Readers share, a writer excludes all others, and neither starves the other, across clients and processes."""

import asyncio
import json
import statistics
import subprocess
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import redis
from suspending import counting

from redlock_async import ConfigurationError, LockLost, LockTimeout, NotHeld, QuorumUnavailable, Redlock

KEY, READERS, HINT = b"doc", b"redlock-async:readers:{doc}", b"redlock-async:writer:{doc}"
CLEAN_WITHIN = 0.1


@pytest.fixture(params=[True, False], ids=["fenced", "plain"])
def fencing(request):
    """Both forms of the lock."""
    return request.param


def left(eyes):
    """Which keys of the lock there are on any node."""
    return sorted({key for client in eyes.clients for key in client.keys("*doc*")})


def readers(eyes):
    """How many readers each node knows."""
    return [client.zcard(READERS) for client in eyes.clients]


async def clean(eyes, eventually):
    """Soon there is no key of any kind."""
    await eventually(lambda: not left(eyes), within=CLEAN_WITHIN)


async def in_another_task(awaitable):
    """As somebody else of the same process would do it."""

    async def run():
        return await awaitable

    return await asyncio.create_task(run())


# Who excludes whom


@pytest.mark.alone
@pytest.mark.thorough
@pytest.mark.asyncio
async def test_sharing_a_name_costs_little(nodes, fencing):
    """Readers of one name are at most half as fast as readers of a name each: medians of what is measured in turns."""
    async with Redlock(nodes, fencing=fencing) as one, Redlock(nodes, fencing=fencing) as two:

        async def reader(client, name):
            for _ in range(40):
                async with client.read_lock(name):
                    pass

        async def rate(name):
            begun = time.perf_counter()
            await asyncio.gather(*(reader((one, two)[number % 2], name(number)) for number in range(20)))
            return 20 * 40 / (time.perf_counter() - begun)

        await rate("warm {}".format)
        rates = [(await rate(lambda _: "doc"), await rate("doc {}".format)) for _ in range(5)]
        shared, apart = (statistics.median(each) for each in zip(*rates, strict=True))
        print(f"readers of one name {shared:.0f} pairs/s, of a name each {apart:.0f}: {apart / shared:.2f} x")
        assert apart <= 2 * shared


@pytest.mark.asyncio
async def test_readers_share(nodes, eyes, eventually, fencing):
    """Readers of one client and of others hold at once, and the last one out leaves nothing."""
    async with Redlock(nodes, fencing=fencing) as one, Redlock(nodes, fencing=fencing) as two:
        leases = await asyncio.gather(*((one, two)[number % 2].read_lock("doc").acquire() for number in range(20)))
        assert all(lease.valid for lease in leases)
        assert len({lease.token for lease in leases}) == 20
        await eventually(lambda: readers(eyes) == [20] * 5)
        assert all(client.pttl(key) > 0 for client in eyes.clients for key in (KEY, READERS))
        assert not one.statistics().lost
        for lease in leases:
            await lease.release()
        await clean(eyes, eventually)


@pytest.mark.asyncio
@pytest.mark.parametrize("same_client", [True, False])
async def test_a_writer_is_alone(nodes, eyes, eventually, fencing, same_client):
    """Neither a reader nor a writer nor a plain lock gets in beside it, nor it beside them."""
    async with AsyncExitStack() as stack:
        redlock = await stack.enter_async_context(Redlock(nodes, fencing=fencing))
        other = redlock if same_client else await stack.enter_async_context(Redlock(nodes, fencing=fencing))
        async with redlock.write_lock("doc"):
            for lock in (other.read_lock("doc"), other.write_lock("doc"), other("doc")):
                assert await in_another_task(lock.try_acquire()) is None
            assert left(eyes) == [KEY]
        async with redlock.read_lock("doc"):
            for lock in (other.write_lock("doc"), other("doc"), other("a", "doc")):
                assert await in_another_task(lock.try_acquire()) is None
        async with redlock("doc"):
            for lock in (other.read_lock("doc"), other.write_lock("doc")):
                assert await in_another_task(lock.try_acquire()) is None
        await clean(eyes, eventually)


@pytest.mark.asyncio
async def test_another_library_is_a_writer(nodes, eyes, eventually):
    """A plain SET NX excludes readers and writers, and is excluded by them."""
    async with Redlock(nodes) as redlock:
        for client in eyes.clients:
            assert client.set("doc", "a foreign token", nx=True, px=10_000)
        assert await redlock.read_lock("doc").try_acquire() is None
        assert await redlock.write_lock("doc").try_acquire() is None
        for client in eyes.clients:
            client.delete("doc")
        for lock in (redlock.read_lock("doc"), redlock.write_lock("doc")):
            async with lock as lease:
                await eventually(lambda lease=lease: lease.spare_votes == 2)
                assert not any(client.set("doc", "a foreign token", nx=True, px=10_000) for client in eyes.clients)
        await clean(eyes, eventually)


def run_processes(urls, processes, *arguments):
    """Run that many readers and writers at once; returns what they held, and how many attempts that took."""
    command = [sys.executable, str(Path(__file__).with_name("reader_writer.py")), *map(str, arguments), *urls]
    running = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(processes)
    ]
    try:
        for process in running:
            assert process.stdout.readline() == "ready\n"
        for process in running:
            process.stdin.write("go\n")
            process.stdin.flush()
        results = [json.loads(process.communicate(timeout=100)[0]) for process in running]
    finally:
        for process in running:
            process.kill()
            process.communicate()
    held = sorted(tuple(lease) for result in results for lease in result["held"])
    return held, sum(result["attempts"] for result in results)


def sweep(held):
    """No writer beside anybody, and fences in the order of holding; returns how many readers there were at once."""
    edges = sorted([(start, 1, kind) for start, _, kind, _ in held] + [(end, 0, kind) for _, end, kind, _ in held])
    reading = writing = most = 0
    for _, begins, kind in edges:
        change = 1 if begins else -1
        if kind == "write":
            writing += change
        else:
            reading += change
        assert writing <= 1, "two writers at once"
        assert not (writing and reading), "a writer beside a reader"
        most = max(most, reading)
    # In the order of time: what ended before this one began. A downgraded lease keeps the fence it had as a writer.
    events = sorted([(start, 1, kind, fence) for start, _, kind, fence in held] + [(e, 0, k, f) for _, e, k, f in held])
    anybody = writer = 0
    for _, begins, kind, fence in events:
        if not begins:
            anybody = max(anybody, fence)
            writer = max(writer, fence) if kind == "write" else writer
        elif kind == "write":
            assert fence > anybody, "a writer's fence is not above an earlier one's"
        elif kind == "read":
            assert fence > writer, "a reader's fence is not above an earlier writer's"
    return most


@pytest.mark.share(3)
@pytest.mark.parametrize(("tasks_reading", "tasks_writing", "leases"), [(6, 2, 30), (20, 1, 20), (2, 6, 20)])
def test_a_writer_excludes_every_other_process(tasks_reading, tasks_writing, leases, nodes, eyes):
    """Four processes of readers and writers: no overlap with a writer, fences in order, everybody gets in."""
    processes = 4
    held, attempts = run_processes(nodes, processes, tasks_reading, tasks_writing, leases)
    counted = [lease for lease in held if lease[2] != "downgraded"]
    assert len(counted) == processes * (tasks_reading + tasks_writing) * leases
    most = sweep(held)
    assert most > 1, "readers never shared"
    seconds = held[-1][1] - held[0][0]
    figures = f"{len(counted) / seconds:.0f} leases/s, {attempts / len(counted):.2f} attempts each"
    print(f"{figures}, {most} readers at once")
    assert left(eyes) == []


@pytest.mark.asyncio
async def test_fences_order_readers_against_writers(nodes):
    """Readers at once share a fence, above every earlier writer's; a later writer's is above theirs."""
    async with Redlock(nodes) as one, Redlock(nodes) as two:
        before = 0
        for _ in range(5):
            async with one.write_lock("doc") as writer:
                assert writer.fencing_token > before
            async with one.read_lock("doc") as first, two.read_lock("doc") as second, one.read_lock("doc") as third:
                assert writer.fencing_token < first.fencing_token
                assert first.fencing_token == second.fencing_token == third.fencing_token
            before = first.fencing_token
            async with two("doc") as plain:
                assert plain.fencing_token > before
            before = plain.fencing_token


@pytest.mark.asyncio
async def test_readers_level_a_fence_the_nodes_disagree_on(nodes, eyes):
    """With registers apart the readers' token is still above the last writer's, and below the next one's."""
    async with Redlock(nodes) as redlock:
        async with redlock.write_lock("doc") as before:
            pass
        register = eyes.clients[0].keys("redlock-async:fence:*")[0]
        for number, client in enumerate(eyes.clients):
            client.set(register, before.fencing_token + 10_000_000 * (number + 1))
        async with redlock.read_lock("doc") as first, redlock.read_lock("doc") as second:
            assert before.fencing_token < first.fencing_token
            assert sum(int(client.get(register)) >= first.fencing_token for client in eyes.clients) >= 3
        async with redlock.write_lock("doc") as after:
            assert after.fencing_token > max(first.fencing_token, second.fencing_token)


# Waiting


@pytest.mark.asyncio
@pytest.mark.parametrize("same_client", [True, False])
async def test_a_release_wakes_the_waiters(nodes, same_client):
    """Writer after reader and reader after writer, within the client too: long before any polling interval."""
    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(Redlock(nodes, retry_delay=5.0))
        two = one if same_client else await stack.enter_async_context(Redlock(nodes, retry_delay=5.0))
        kinds = [
            one.read_lock("doc"),
            two.write_lock("doc"),
            one.read_lock("doc"),
            two("doc"),
            one.read_lock("doc"),
            two.write_lock("doc"),
        ]
        held = await kinds[0].acquire()
        for following in kinds[1:]:
            waiting = asyncio.create_task(following.acquire())
            await asyncio.sleep(0.05)
            assert not waiting.done()
            released = time.monotonic()
            await held.release()
            held = await waiting
            assert time.monotonic() - released < CLEAN_WITHIN
        await held.release()


@pytest.mark.asyncio
async def test_a_writer_waits_for_the_last_reader_only(nodes):
    """Readers that leave one by one let it in when the last one does."""
    async with Redlock(nodes, retry_delay=5.0) as one, Redlock(nodes, retry_delay=5.0) as two:
        leases = [await (one, two)[number % 2].read_lock("doc").acquire() for number in range(6)]
        waiting = asyncio.create_task(two.write_lock("doc").acquire())
        for lease in leases:
            await asyncio.sleep(0.02)
            assert not waiting.done()
            await lease.release()
        async with asyncio.timeout(CLEAN_WITHIN):
            await (await waiting).release()


@pytest.mark.asyncio
@pytest.mark.parametrize("writer", ["a reader's client", "its own"])
async def test_a_stream_of_readers_does_not_starve_a_writer(nodes, writer):
    """There is always a reader, and the writer is in within about one reader's lease."""
    async with Redlock(nodes) as one, Redlock(nodes) as two, Redlock(nodes) as three:
        stop, gaps = asyncio.Event(), []

        async def read(client, length):
            while not stop.is_set():
                asked = time.monotonic()
                async with client.read_lock("doc"):
                    gaps.append(time.monotonic() - asked)
                    await asyncio.sleep(length)

        tasks = [asyncio.create_task(read(client, 0.06 + number / 100)) for number in range(4) for client in (one, two)]
        await asyncio.sleep(0.2)
        for _ in range(5):
            asked = time.monotonic()
            async with (one if writer == "a reader's client" else three).write_lock("doc"):
                assert time.monotonic() - asked < 0.4
                served = len(gaps)
            await asyncio.sleep(0.15)
            assert len(gaps) > served, "and the writers do not starve the readers"
        stop.set()
        await asyncio.gather(*tasks)


@pytest.mark.asyncio
async def test_writers_do_not_starve_a_reader(nodes):
    """A reader gets in between writers of its own and of another client that follow on each other at once."""
    async with Redlock(nodes) as one, Redlock(nodes) as two:
        stop = asyncio.Event()

        async def write(client):
            while not stop.is_set():
                async with client.write_lock("doc"):
                    await asyncio.sleep(0.002)

        tasks = [asyncio.create_task(write(client)) for _ in range(5) for client in (one, two)]
        for _ in range(5):
            async with asyncio.timeout(3):
                await (await one.read_lock("doc").acquire()).release()
        stop.set()
        await asyncio.gather(*tasks)


@pytest.mark.asyncio
async def test_a_failed_try_acquire_blocks_no_reader(nodes, eyes):
    """A writer that does not wait leaves no reservation, and its error mentions the readers."""
    async with Redlock(nodes) as one, Redlock(nodes) as two, one.read_lock("doc"):
        for _ in range(10):
            with pytest.raises(LockTimeout, match="held by readers"):
                await two.write_lock("doc").acquire(wait=0)
            assert not any(client.exists(HINT) for client in eyes.clients)
        with pytest.raises(LockTimeout, match="held by readers"):
            await two("doc").acquire(wait=0.05)


@pytest.mark.asyncio
async def test_a_reader_that_times_out_learns_which_writer_waits(nodes, eventually, eyes):
    """New readers wait, existing readers keep renewing, and the LockTimeout says why."""
    async with Redlock(nodes, ttl=0.5) as one, Redlock(nodes) as two:
        async with one.read_lock("doc") as old:
            waiting = asyncio.create_task(two.write_lock("doc").acquire(wait=None))
            await eventually(lambda: all(client.exists(HINT) for client in eyes.clients))
            for client in (one, two):
                with pytest.raises(LockTimeout, match="behind a waiting writer"):
                    await in_another_task(client.read_lock("doc").acquire(wait=0.02))
            await asyncio.sleep(1.0)
            assert old.valid
            assert one.statistics().extended
            assert not waiting.done()
        async with asyncio.timeout(1):
            await (await waiting).release()
        await clean(eyes, eventually)


@pytest.mark.asyncio
@pytest.mark.parametrize("others", [0, 3])
@pytest.mark.parametrize("same_client", [True, False])
async def test_a_reader_takes_a_second_read_lock_while_a_writer_waits(nodes, eyes, eventually, same_client, others):
    """Or the writer would wait for the first lease, and the second one for the writer; others wait behind it."""
    async with Redlock(nodes, wait=None) as one, Redlock(nodes, wait=None) as two:
        async with one.read_lock("doc"):
            writer = asyncio.create_task((one if same_client else two).write_lock("doc").acquire())
            await eventually(lambda: all(client.exists(HINT) for client in eyes.clients))
            outside = [asyncio.create_task(one.read_lock("doc").acquire()) for _ in range(others)]
            await asyncio.sleep(0.05)  # until they are quarantined
            async with asyncio.timeout(1):
                async with one.read_lock("doc") as inner, one.read_lock("doc"):
                    assert inner.valid
                await (await one.read_lock("doc").try_acquire()).release()
            assert not any(task.done() for task in (writer, *outside))
            with pytest.raises(LockTimeout, match="behind a waiting writer"):
                await in_another_task(one.read_lock("doc").acquire(wait=0.02))
        async with asyncio.timeout(2):
            await (await writer).release()
            for task in outside:
                await (await task).release()
        await clean(eyes, eventually)


@pytest.mark.asyncio
@pytest.mark.parametrize("same_client", [True, False])
@pytest.mark.parametrize("gives_up_by", ["cancel", "timeout"])
async def test_a_writer_that_gives_up_lets_readers_in_at_once(nodes, eyes, eventually, same_client, gives_up_by):
    """Its hint is gone, and whoever it held out is in, long before the hint would have run out."""
    async with Redlock(nodes, retry_delay=5.0) as one, Redlock(nodes, retry_delay=5.0) as two:
        async with one.read_lock("doc"):
            writer = asyncio.create_task(two.write_lock("doc").acquire(wait=0.3))
            await eventually(lambda: all(client.exists(HINT) for client in eyes.clients))
            reader = asyncio.create_task((two if same_client else one).read_lock("doc").acquire())
            await asyncio.sleep(0.05)
            assert not reader.done()
            if gives_up_by == "cancel":
                writer.cancel()
            await asyncio.wait([writer])
            gave_up = time.monotonic()
            await (await reader).release()
            assert time.monotonic() - gave_up < CLEAN_WITHIN
            await eventually(lambda: left(eyes) == [KEY, READERS], within=CLEAN_WITHIN)
            assert readers(eyes) == [1] * 5
            assert isinstance(writer.exception() if not writer.cancelled() else None, LockTimeout | None)
        await clean(eyes, eventually)


@pytest.mark.asyncio
async def test_a_writer_takes_only_its_own_hint_away(nodes, eyes, eventually):
    """Of two that wait, the one that gives up leaves the other's."""
    async with Redlock(nodes) as one, Redlock(nodes) as two, Redlock(nodes) as three:
        async with one.read_lock("doc"):
            first = asyncio.create_task(two.write_lock("doc").acquire())
            await eventually(lambda: all(client.exists(HINT) for client in eyes.clients))
            hints = [client.get(HINT) for client in eyes.clients]
            second = asyncio.create_task(three.write_lock("doc").acquire())
            await asyncio.sleep(0.1)
            second.cancel()
            await asyncio.wait([second])
            await asyncio.sleep(0.05)
            assert [client.get(HINT) for client in eyes.clients] == hints
        await (await first).release()
        await clean(eyes, eventually)


@pytest.mark.asyncio
async def test_a_writer_that_died_waiting_holds_readers_out_for_a_moment(nodes, eyes):
    """Its hint runs out by itself."""
    async with Redlock(nodes, retry_delay=5.0) as redlock:
        await redlock.status()
        for client in eyes.clients:
            client.set(HINT, "of somebody who died", px=300)
        started = time.monotonic()
        async with redlock.read_lock("doc"):
            assert 0.25 < time.monotonic() - started < 0.45


@pytest.mark.asyncio
async def test_a_dead_reader_is_gone_after_its_own_ttl(nodes, eyes, eventually):
    """Others that renew do not keep it alive, and when they leave a writer is in at once."""
    async with Redlock(nodes, ttl=0.4) as one, Redlock(nodes, retry_delay=5.0) as two:
        async with one.read_lock("doc"):
            for client in eyes.clients:
                seconds, micros = client.time()
                client.zadd(READERS, {"0123456789abcdef0123456789abcdef:dead": seconds * 1000 + micros // 1000 + 300})
            assert readers(eyes) == [2] * 5
            await eventually(lambda: readers(eyes) == [1] * 5, within=1.0)
            waiting = asyncio.create_task(two.write_lock("doc").acquire())
            await asyncio.sleep(0.1)
            released = time.monotonic()
        async with await waiting:
            assert time.monotonic() - released < CLEAN_WITHIN


@pytest.mark.asyncio
async def test_a_killed_reader_is_gone_after_its_own_ttl(nodes, eyes, eventually):
    """A process that dies reading: no later than its ttl, though others read and renew all the while."""
    ttl, code = (
        0.8,
        (
            "import asyncio, sys; from redlock_async import Redlock\n"
            "async def main():\n"
            "    async with Redlock(sys.argv[2:], ttl=float(sys.argv[1])) as redlock, redlock.read_lock('doc'):\n"
            "        print('in', flush=True); await asyncio.sleep(60)\n"
            "asyncio.run(main())"
        ),
    )
    async with Redlock(nodes, ttl=0.6) as one, one.read_lock("doc"):
        dying = await asyncio.create_subprocess_exec(
            sys.executable, "-c", code, str(ttl), *nodes, stdout=asyncio.subprocess.PIPE
        )
        assert await dying.stdout.readline() == b"in\n"
        await asyncio.sleep(2 * ttl)
        assert readers(eyes) == [2] * 5, "it is renewed"
        dying.kill()
        await dying.wait()
        took = await eventually(lambda: readers(eyes) == [1] * 5, within=2 * ttl)
        print(f"a killed reader was gone after {took:.2f} s; its ttl was {ttl} s")
        # Pruned by whatever a reader or a writer sends next: here the other's renewal, a third of its ttl later.
        assert took < ttl + 0.6 / 3 + CLEAN_WITHIN
    await clean(eyes, eventually)


@pytest.mark.asyncio
@pytest.mark.parametrize("kind", ["write_lock", "lock"])
async def test_when_all_readers_died_a_writer_gets_in(nodes, eyes, eventually, kind):
    """A writer after their ttl; a plain lock, which knows nothing of readers, at most half a ttl later."""
    async with Redlock(nodes, ttl=0.4) as dying, Redlock(nodes, retry_delay=5.0) as redlock:
        lease = await dying.read_lock("doc").acquire()
        lease._session.registry.abandon(lease._held)  # it is neither renewed nor released any more
        started = time.monotonic()
        async with getattr(redlock, kind)("doc"):
            assert 0.3 < time.monotonic() - started < (0.5 if kind == "write_lock" else 0.7)
        await clean(eyes, eventually)


@pytest.mark.asyncio
async def test_without_tracking_waiting_is_polling(nodes):
    """On RESP2 connections there is no push, and everybody still gets in within a pause."""
    urls = [f"{url}?protocol=2" for url in nodes]
    async with Redlock(nodes) as holder, Redlock(urls, retry_delay=0.05) as redlock:
        for first, then in (("read_lock", "write_lock"), ("write_lock", "read_lock")):
            held = await getattr(holder, first)("doc").acquire()
            waiting = asyncio.create_task(getattr(redlock, then)("doc").acquire())
            await asyncio.sleep(0.1)
            released = time.monotonic()
            await held.release()
            await (await waiting).release()
            assert time.monotonic() - released < CLEAN_WITHIN


@pytest.mark.alone
@pytest.mark.thorough
@pytest.mark.asyncio
async def test_a_writer_waiting_for_renewing_readers_costs_the_nodes_next_to_nothing(nodes, eyes, eventually):
    """Twenty readers that renew do not turn a waiting writer into a busy loop, nor the readers it holds out."""
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        clients = [await enter(Redlock(nodes, ttl=2.0)) for _ in range(20)]
        waiting, held_out = await enter(Redlock(nodes)), await enter(Redlock(nodes))
        leases = [await client.read_lock("doc").acquire() for client in clients]
        await asyncio.sleep(0.1)
        alone = await commands_a_second(eyes)
        writer = asyncio.create_task(waiting.write_lock("doc").acquire(wait=None))
        await eventually(lambda: all(client.exists(HINT) for client in eyes.clients))
        with_writer = await commands_a_second(eyes)
        reader = asyncio.create_task(held_out.read_lock("doc").acquire(wait=None))
        with_both = await commands_a_second(eyes)
        figures = f"{alone:.1f}, with a waiting writer {with_writer:.1f}, with a held out reader {with_both:.1f}"
        print(f"commands/s a node: readers alone {figures}")
        # An attempt is two commands a node: the question, and the release of whatever it was given.
        assert waiting.statistics().attempts <= 6 * 4
        assert held_out.statistics().attempts <= 3 * 4
        for lease in leases:
            await lease.release()
        await (await writer).release()
        await (await reader).release()


def commands(eyes):
    """What clients of ours have sent to each node."""
    ours = ("cmdstat_evalsha", "cmdstat_eval", "cmdstat_delifeq", "cmdstat_delex")
    stats = [eye.info("commandstats") for eye in eyes.clients]
    return [sum(stat.get(name, {"calls": 0})["calls"] for name in ours) for stat in stats]


async def commands_a_second(eyes, seconds=3):
    """What they send to the busiest node."""
    before = commands(eyes)
    await asyncio.sleep(seconds)
    return max(after - earlier for earlier, after in zip(before, commands(eyes), strict=True)) / seconds


# Renewal and loss


@pytest.mark.asyncio
async def test_a_lease_lasts_for_many_ttls(nodes, eyes, eventually):
    """Readers and writers are renewed, in a batch, and still exclude each other after it."""
    async with Redlock(nodes, ttl=0.2) as redlock, Redlock(nodes) as other:
        leases = [await redlock.read_lock("doc").acquire() for _ in range(30)]
        leases.append(await redlock.write_lock("doc2").acquire())
        await asyncio.sleep(1.0)
        assert all(lease.valid for lease in leases)
        assert readers(eyes) == [30] * 5
        assert await other.write_lock("doc").try_acquire() is None
        assert await other.read_lock("doc2").try_acquire() is None
        assert redlock.statistics().lost == 0
        for lease in leases:
            await lease.release()
        await clean(eyes, eventually)


@pytest.mark.asyncio
async def test_extend_of_a_reader(nodes, eyes, eventually):
    """A longer ttl holds out a plain lock for as long, and nothing is ever shortened."""
    async with Redlock(nodes, ttl=0.3) as redlock:
        lease = await redlock.read_lock("doc").acquire()
        await lease.extend(5)
        assert 4.5 < lease.remaining < 5
        await eventually(lambda: all(client.pttl(KEY) >= 4500 for client in eyes.clients))
        await lease.extend(1)
        assert lease.remaining > 4
        await lease.release()
        await clean(eyes, eventually)


@pytest.mark.asyncio
async def test_a_reader_that_stays_locked(nodes, eyes, eventually):
    """`min_hold` keeps writers out after a quick body, and then runs out."""
    async with Redlock(nodes) as redlock, Redlock(nodes, retry_delay=5.0) as other:
        started = time.monotonic()
        async with redlock.read_lock("doc", min_hold=0.3), redlock.read_lock("doc"):
            pass
        async with other.write_lock("doc"):
            assert 0.25 < time.monotonic() - started < 0.45
        await clean(eyes, eventually)


@pytest.mark.asyncio
@pytest.mark.parametrize("by", ["taken out of the readers", "lock key deleted", "force_release"])
async def test_a_reader_that_is_freed_by_force_is_lost(nodes, eyes, eventually, by):
    """At its next renewal at the latest: its body is cancelled, and it is not set again."""
    async with Redlock(nodes, ttl=0.6) as redlock, Redlock(nodes) as other:
        with pytest.raises(LockLost):
            async with redlock.read_lock("doc") as lease:
                await eventually(lambda: lease.spare_votes == 2)
                await asyncio.sleep(0.05)
                freed = time.monotonic()
                if by == "force_release":
                    assert await other.force_release("doc")
                for client in eyes.clients[:3]:
                    if by == "taken out of the readers":
                        client.zrem(READERS, lease.token)
                    elif by == "lock key deleted":
                        client.delete(KEY)
                await asyncio.sleep(5)
        assert time.monotonic() - freed < 0.35
        assert lease.lost
        await clean(eyes, eventually)


@pytest.mark.asyncio
@pytest.mark.parametrize("by", ["its own client", "another client"])
async def test_readers_that_are_freed_by_force_know_at_once(nodes, eyes, eventually, by):
    """All of them, long before they are renewed; and readers that come and go are told to nobody."""
    async with Redlock(nodes) as one, Redlock(nodes) as two, Redlock(nodes) as operator:
        leases = [await client.read_lock("doc").acquire() for client in (one, two) for _ in range(5)]
        async with operator.read_lock("another"):  # from now on the nodes know that it takes locks
            await asyncio.sleep(0.05)  # their first look
        before = commands(eyes)
        for _ in range(20):
            async with operator.read_lock("doc"):
                pass
        told = max(after - earlier for earlier, after in zip(before, commands(eyes), strict=True))
        assert told <= 2 * 20 + 3, "one to take, one to leave, and the first looks"
        begun = time.monotonic()
        assert await (one if by == "its own client" else operator).force_release("doc")
        await asyncio.gather(*(asyncio.wait_for(lease.wait_until_lost(), 1) for lease in leases))
        took = time.monotonic() - begun
        print(f"ten readers of two clients knew after {took * 1e3:.1f} ms")
        assert took < 0.05
        async with operator.write_lock("doc", wait=0):
            assert not any(lease.valid for lease in leases)
        await clean(eyes, eventually)


@pytest.mark.asyncio
async def test_a_downgraded_reader_learns_of_a_loss_too(nodes):
    """It is looked at no sooner than it is renewed, and must hear of it before that."""
    async with Redlock(nodes) as redlock, Redlock(nodes) as operator:
        writing = await redlock.write_lock("doc").acquire()
        reading = await writing.downgrade()
        await asyncio.sleep(0.05)
        begun = time.monotonic()
        assert await operator.force_release("doc")
        await asyncio.wait_for(reading.wait_until_lost(), 1)
        assert time.monotonic() - begun < 0.05


@pytest.mark.asyncio
async def test_a_reader_taken_out_of_a_minority_is_set_again(nodes, eyes, eventually):
    """One node's mishap is repaired at the next renewal, whichever of its keys it lost."""
    async with Redlock(nodes, ttl=0.3) as redlock:
        async with redlock.read_lock("doc") as lease, redlock.read_lock("doc"):
            await eventually(lambda: lease.spare_votes == 2)
            eyes.clients[0].zrem(READERS, lease.token)
            eyes.clients[1].delete(KEY, READERS)
            await eventually(lambda: readers(eyes) == [2] * 5)
            assert eyes.clients[1].exists(KEY)
            assert lease.valid
        await clean(eyes, eventually)


@pytest.mark.asyncio
async def test_readers_that_were_freed_do_not_come_back_with_the_next(nodes, eyes, eventually):
    """Whoever joins, or is set again, where the lock key is gone finds none, though the set is still there."""
    async with Redlock(nodes, ttl=0.9) as redlock, Redlock(nodes) as other:
        await redlock.read_lock("doc", renew=False).acquire()
        for client in eyes.clients:
            client.delete(KEY)
        async with other.read_lock("doc") as lease:
            await eventually(lambda: lease.spare_votes == 2)
            assert [client.zrange(READERS, 0, -1) for client in eyes.clients] == [[lease.token.encode()]] * 5
        stale = await redlock.read_lock("stale", renew=False, ttl=5).acquire()
        async with redlock.read_lock("stale") as lease:
            await eventually(lambda: lease.spare_votes == stale.spare_votes == 2)
            set_again = eyes.clients[0]
            set_again.delete("stale")
            await eventually(lambda: set_again.exists("stale"))
            assert set_again.zrange(READERS.replace(b"doc", b"stale"), 0, -1) == [lease.token.encode()]


@pytest.mark.asyncio
async def test_a_writer_that_is_overwritten_is_lost(nodes, eyes):
    """As with a plain lock."""
    async with Redlock(nodes) as redlock:
        with pytest.raises(LockLost):
            async with redlock.write_lock("doc"):
                await asyncio.sleep(0.05)
                for client in eyes.clients[:3]:
                    client.set(KEY, "somebody else")
                await asyncio.sleep(5)
        for client in eyes.clients:
            client.delete(KEY)


@pytest.mark.asyncio
async def test_detached_leases_of_both_kinds(nodes, eyes, eventually):
    """A lease is handed to another client, which renews and releases it as what it is."""
    async with Redlock(nodes, ttl=0.5) as one, Redlock(nodes) as two:
        for kind, excluded in (("read_lock", "write_lock"), ("write_lock", "read_lock")):
            lease = await getattr(one, kind)("doc").acquire()
            attached = two.attach(lease.detach())
            assert (attached.token, attached.fencing_token) == (lease.token, lease.fencing_token)
            await asyncio.sleep(0.7)
            assert attached.valid
            assert await getattr(one, excluded)("doc").try_acquire() is None
            await attached.release()
            await clean(eyes, eventually)
        attached = two.attach((await one.write_lock("doc").acquire()).detach())
        await (await attached.downgrade()).release()
        await clean(eyes, eventually)


# Downgrade, and no upgrade


@pytest.mark.asyncio
@pytest.mark.parametrize("same_client", [True, False])
async def test_downgrade_lets_readers_in_and_no_writer(nodes, eyes, eventually, fencing, same_client):
    """Readers that wait come in, a writer that waits does not, and the read lease is renewed until it is released."""
    async with Redlock(nodes, fencing=fencing, ttl=0.5) as one, Redlock(nodes, fencing=fencing) as two:
        other = one if same_client else two
        async with one.write_lock("doc") as lease:
            reader = asyncio.create_task(other.read_lock("doc").acquire())
            await asyncio.sleep(0.05)
            assert not reader.done()
            for client in eyes.clients:
                client.script_flush()  # the script must be sent, and works later than the waiting reader is told
            read = await lease.downgrade()
            async with asyncio.timeout(0.2):
                joined = await reader
            writer = asyncio.create_task(other.write_lock("doc").acquire())
            assert (read.fencing_token, read.name) == (lease.fencing_token, "doc")
            assert not fencing or joined.fencing_token > read.fencing_token
            for use in (lease.release, lease.extend, lease.downgrade):
                with pytest.raises(NotHeld, match="downgrade"):
                    await use()
            assert not lease.valid
            assert not lease.lost
        await asyncio.sleep(0.8)
        assert read.valid
        assert not writer.done()
        await joined.release()
        async with read:
            pass
        async with asyncio.timeout(CLEAN_WITHIN):
            after = await writer
        assert not fencing or after.fencing_token > joined.fencing_token
        await after.release()
        await clean(eyes, eventually)


@pytest.mark.asyncio
async def test_a_lease_is_not_valid_from_the_moment_it_is_downgraded(nodes):
    """Readers can be in before the answer is: nobody may rely on the writer's lease meanwhile."""
    async with Redlock(nodes) as redlock:
        lease = await redlock.write_lock("doc").acquire()
        downgrading = asyncio.create_task(lease.downgrade())
        await asyncio.sleep(0)
        assert not downgrading.done()
        assert not lease.valid
        await (await downgrading).release()


@pytest.mark.asyncio
async def test_downgrade_keeps_the_options(nodes, eyes, eventually):
    """`max_hold` still ends it, counted from when it began to write."""
    async with Redlock(nodes) as redlock:
        lease = await redlock.write_lock("doc", max_hold=0.8).acquire()
        began = time.monotonic()
        await asyncio.sleep(0.2)
        read = await lease.downgrade()
        assert read.remaining < 0.65
        with pytest.raises(LockLost, match="max_hold"):
            async with read:
                await asyncio.sleep(5)
        assert 0.5 < time.monotonic() - began < 0.9
        await clean(eyes, eventually)


@pytest.mark.asyncio
async def test_downgrade_of_a_lease_that_was_freed_by_force(nodes, eyes, eventually):
    """With no majority left to downgrade it is lost, and nothing remains of it."""
    async with Redlock(nodes) as redlock:
        lease = await redlock.write_lock("doc").acquire()
        await eventually(lambda: lease.spare_votes == 2)
        for client in eyes.clients[:3]:
            client.delete(KEY)
        with pytest.raises(LockLost):
            await lease.downgrade()
        assert lease.lost
        await clean(eyes, eventually)
        with pytest.raises(LockLost):
            await lease.release()


@pytest.mark.asyncio
async def test_downgrade_without_a_majority(cluster, eventually):
    """Too few nodes answer: an outage, the lease is over, and the others are clean."""
    async with Redlock(cluster.urls, node_timeout=0.1) as redlock:
        with pytest.raises(QuorumUnavailable, match="downgrade"):
            async with redlock.write_lock("doc") as lease:
                for index in (0, 1, 2):
                    cluster.kill(index)
                await lease.downgrade()
        assert lease.lost
        for index in (3, 4):
            with redis.Redis.from_url(cluster.urls[index]) as client:
                await eventually(lambda client=client: not client.keys("*doc*"), within=CLEAN_WITHIN)


@pytest.mark.asyncio
@pytest.mark.parametrize("wait", [0, 5, None])
async def test_upgrade_is_refused_at_once(nodes, wait):
    """A task that reads cannot write, which would wait for itself; another task of the client just waits."""
    async with Redlock(nodes) as redlock:
        async with redlock.read_lock("doc"), redlock.read_lock("other"):
            started = time.monotonic()
            for lock in (redlock.write_lock("doc"), redlock("doc"), redlock("a", "doc"), redlock.fair_lock("doc")):
                with pytest.raises(ConfigurationError, match="upgrade"):
                    await lock.acquire(wait=wait)
            with pytest.raises(ConfigurationError, match="upgrade"):
                async with redlock.write_lock("doc"):
                    pass
            assert time.monotonic() - started < 0.05
            for lock in (redlock.write_lock("doc"), redlock("doc"), redlock.fair_lock("doc")):
                assert await in_another_task(lock.try_acquire()) is None
            async with redlock.semaphore("doc", permits=1):
                pass
            async with redlock.write_lock("else"):
                pass
        async with redlock.write_lock("doc") as lease:
            read = await lease.downgrade()
        with pytest.raises(ConfigurationError, match="upgrade"):
            await redlock.write_lock("doc").acquire(wait=wait)
        await read.release()
        async with redlock.write_lock("doc"):
            pass


# Cancellation


async def cancelled_at(coroutine, at):
    """Cancel it at that suspension; whether it finished before."""
    loop, task = asyncio.get_running_loop(), None

    async def run():
        return await counting(coroutine, at, lambda: loop.call_soon(task.cancel))

    task = loop.create_task(run())
    try:
        _, steps = await task
    except asyncio.CancelledError:
        return False
    assert steps < at
    return True


async def at_every_await(prepare, most=40):
    """Cancel at the first suspension, the second, and so on, until it finishes; returns at how many."""
    for at in range(1, most):
        coroutine, after = await prepare()
        finished = await cancelled_at(coroutine, at)
        await after()
        if finished:
            return at - 1
    raise AssertionError(f"still not finished after {most} awaits")


@pytest.mark.asyncio
@pytest.mark.parametrize("same_client", [True, False])
@pytest.mark.parametrize(
    ("holds", "waits"),
    [
        ("read_lock", "write_lock"),
        ("write_lock", "read_lock"),
        ("write_lock", "write_lock"),
        ("lock", "read_lock"),
        ("read_lock", "lock"),
    ],
)
async def test_cancelling_a_waiter_leaves_no_keys(nodes, eyes, eventually, holds, waits, same_client):
    """At every await from the first question to the release: no reader, no hint, no lock."""
    async with Redlock(nodes) as one, Redlock(nodes) as two:
        waiter = one if same_client else two
        releases = []

        async def prepare():
            held = await getattr(one, holds)("doc").acquire()
            loop = asyncio.get_running_loop()
            loop.call_later(0.03, lambda: releases.append(loop.create_task(held.release())))

            async def use():
                await (await getattr(waiter, waits)("doc").acquire()).release()

            async def after():
                # Nothing of the waiter while the other still holds, and nothing at all afterwards.
                expected = [KEY, READERS] if holds == "read_lock" else [KEY]
                await eventually(lambda: left(eyes) in (expected, []) and max(readers(eyes)) <= 1, within=CLEAN_WITHIN)
                await eventually(lambda: bool(releases) and releases[-1].done())
                releases.clear()
                await clean(eyes, eventually)

            return use(), after

        assert await at_every_await(prepare) >= 3


@pytest.mark.asyncio
async def test_cancelling_a_reader_that_waits_behind_a_writer(nodes, eyes, eventually):
    """It leaves nothing, and does not touch the hint of the writer it waited for."""
    async with Redlock(nodes) as one, Redlock(nodes) as two:

        async def prepare():
            held = await one.read_lock("doc").acquire()
            writer = asyncio.create_task(one.write_lock("doc").acquire())
            await eventually(lambda: all(client.exists(HINT) for client in eyes.clients))

            async def use():
                with pytest.raises(LockTimeout):
                    await two.read_lock("doc").acquire(wait=0.03)

            async def after():
                await eventually(lambda: readers(eyes) == [1] * 5, within=CLEAN_WITHIN)
                assert all(client.exists(HINT) for client in eyes.clients)
                await held.release()
                await (await writer).release()
                await clean(eyes, eventually)

            return use(), after

        assert await at_every_await(prepare) >= 2


@pytest.mark.asyncio
async def test_cancelling_a_downgrade_leaves_nothing(nodes, eyes, eventually):
    """Cancelled anywhere, the lease is over and neither form of it is left; finished, the read lease is there."""
    async with Redlock(nodes) as redlock:
        read = []

        async def prepare():
            lease = await redlock.write_lock("doc").acquire()

            async def use():
                read.append(await lease.downgrade())

            async def after():
                for each in read:
                    await each.release()
                assert not lease.valid
                await clean(eyes, eventually)

            return use(), after

        assert await at_every_await(prepare) >= 1
        assert len(read) == 1


# Faults


@pytest.mark.asyncio
async def test_a_node_killed_and_another_restarted_empty(cluster):
    """Readers keep their leases, a writer stays out until they leave, and gets in afterwards."""
    async with Redlock(cluster.urls, ttl=1.0, node_timeout=0.1) as one, Redlock(cluster.urls, node_timeout=0.1) as two:
        leases = [await one.read_lock("doc").acquire() for _ in range(3)]
        cluster.kill(0)
        cluster.restart(1)
        waiting = asyncio.create_task(two.write_lock("doc").acquire())
        for _ in range(15):
            await asyncio.sleep(0.1)
            assert all(lease.valid for lease in leases)
            assert not waiting.done()
        for lease in leases:
            await lease.release()
        async with asyncio.timeout(1):
            writer = await waiting
        assert writer.fencing_token > leases[0].fencing_token
        assert await one.read_lock("doc").try_acquire() is None
        await writer.release()
        async with one.read_lock("doc") as after:
            assert after.fencing_token > writer.fencing_token


@pytest.mark.asyncio
async def test_readers_are_renewed_at_maxmemory(cluster, eventually):
    """A server that refuses new keys for want of memory still renews the readers there are."""
    clients = [redis.Redis.from_url(url) for url in cluster.urls]
    async with Redlock(cluster.urls, ttl=0.5) as redlock:
        lease = await redlock.read_lock("doc").acquire()
        for client in clients:
            client.config_set("maxmemory", 1)
        await asyncio.sleep(1.5)
        assert lease.valid
        with pytest.raises(QuorumUnavailable, match="OOM"):
            await redlock.read_lock("doc2").acquire(wait=0)
        await lease.release()
        await eventually(lambda: not any(client.keys("*doc*") for client in clients), within=CLEAN_WITHIN)
    for client in clients:
        client.close()
