"""An outage raises QuorumUnavailable in every task of a process, including those queued behind another task."""

import asyncio
from collections import Counter
from contextlib import suppress

import pytest
import pytest_asyncio

from redlock_async import LockLost, LockTimeout, QuorumUnavailable, Redlock
from redlock_async.testing import LocalCluster

KINDS = {
    "lock": lambda redlock: redlock("x"),
    "several names": lambda redlock: redlock("x", "y"),
    "fair": lambda redlock: redlock.fair_lock("x"),
    "read": lambda redlock: redlock.read_lock("x"),
    "write": lambda redlock: redlock.write_lock("x"),
    "semaphore": lambda redlock: redlock.semaphore("x", permits=2),
}


@pytest_asyncio.fixture
async def three(eventually):
    """Three nodes of this test's own, and a client that has used them."""
    # On a busy machine a healthy node can take longer than the default of 0.25 s.
    async with LocalCluster(nodes=3) as cluster, Redlock(cluster.urls, node_timeout=1) as redlock:
        await (await redlock("warm up").acquire()).release()
        await eventually(lambda: redlock.statistics().nodes_up == 3, within=10)
        yield cluster, redlock
        for node in range(3):
            if cluster.pids[node] is not None:
                cluster.resume(node)


async def error_of(lock, wait):
    """What an acquire raises."""
    with pytest.raises((LockTimeout, QuorumUnavailable)) as caught:
        await lock.acquire(wait=wait)
    return caught.value


async def errors_of(redlock, make, tasks, wait):
    """The errors of that many tasks that want the same at once, counted, and all of them."""
    errors = await asyncio.gather(*(error_of(make(redlock), wait) for _ in range(tasks)))
    return Counter(map(type, errors)), errors


@pytest.mark.share(3)
@pytest.mark.asyncio
@pytest.mark.parametrize("wait", [0, 0.1, 0.5])
@pytest.mark.parametrize("fault", ["kill", "pause"])
@pytest.mark.parametrize("kind", KINDS)
async def test_every_task_of_a_process_gets_the_outage_error(three, kind, fault, wait):
    """Nobody holds it: none of fifty tasks is told that somebody does, and each error names the nodes."""
    cluster, redlock = three
    for node in (0, 1):
        getattr(cluster, fault)(node)
    counts, errors = await errors_of(redlock, KINDS[kind], 50, wait)
    assert counts == {QuorumUnavailable: 50}, Counter(map(str, errors))
    down = {redlock_label(cluster, node) for node in (0, 1)}
    assert [error for error in errors if set(error.nodes) != down] == []
    assert all(set(error.names) <= {"x", "y"} for error in errors)


@pytest.mark.asyncio
@pytest.mark.parametrize("kind", KINDS)
async def test_outage_error_names_a_node_that_did_not_reply(three, kind):
    """Two nodes refuse connections, which is an outage at once. The third one hangs, and is named as well."""
    cluster, redlock = three
    cluster.pause(2)
    for node in (0, 1):
        cluster.kill(node)
    _, errors = await errors_of(redlock, KINDS[kind], 5, 0)
    for error in errors:
        assert set(error.nodes) == {redlock_label(cluster, node) for node in range(3)}, error
        assert "only 0 of 3 nodes could vote" in str(error)


@pytest.mark.asyncio
async def test_a_task_gets_the_outage_error_when_the_task_ahead_is_cancelled(three):
    """Before and after the one in front has had its answer."""
    cluster, redlock = three
    for node in (0, 1):
        cluster.pause(node)
    for cancelled_after in (0.05, 0.3):
        front = asyncio.create_task(redlock("x").acquire(wait=None))
        await asyncio.sleep(0)
        behind = [asyncio.create_task(error_of(redlock("x"), 0.4)) for _ in range(5)]
        await asyncio.sleep(cancelled_after)
        front.cancel()
        errors = await asyncio.gather(*behind)
        assert {type(error) for error in errors} == {QuorumUnavailable}, errors


@pytest.mark.asyncio
async def test_a_task_that_shares_a_name_gets_the_outage_error(three):
    """Its error carries its own name, even if the task ahead of it waits for two names."""
    cluster, redlock = three
    for node in (0, 1):
        cluster.kill(node)
    both = asyncio.create_task(error_of(redlock("x", "y"), 5))
    await asyncio.sleep(0)
    error = await error_of(redlock("y"), 0.2)
    both.cancel()
    assert type(error) is QuorumUnavailable
    assert error.names == ("y",)
    assert error.nodes


@pytest.mark.asyncio
@pytest.mark.parametrize("kind", ["lock", "fair", "write", "semaphore"])
async def test_waiters_of_a_vanished_holder_get_the_outage_error(three, kind):
    """They queue behind the lease of another process when the nodes are lost; the first of them asks again at once."""
    cluster, redlock = three
    make = KINDS[kind]
    async with Redlock(cluster.urls) as other:
        held = [await make(other).acquire() for _ in range(2 if kind == "semaphore" else 1)]
        refused = asyncio.Event()
        redlock.on_event(lambda event: event.kind == "contended" and refused.set())
        waiting = [asyncio.create_task(error_of(make(redlock), 1.0)) for _ in range(10)]
        async with asyncio.timeout(5):
            await refused.wait()  # the first one knows of the holder
        for node in (0, 1):
            cluster.kill(node)
        errors = await asyncio.gather(*waiting)
        for lease in held:
            with suppress(LockLost, QuorumUnavailable):
                await lease.release()
    assert {type(error) for error in errors} == {QuorumUnavailable}, Counter(map(str, errors))


@pytest.mark.asyncio
async def test_contention_is_not_reported_as_an_outage(three):
    """A minority is down, and a task of the same process, or another client, holds it."""
    cluster, redlock = three
    cluster.kill(0)
    async with Redlock(cluster.urls) as other:
        for holder in (redlock, other):
            for make in map(KINDS.get, ("lock", "several names", "fair", "write")):
                lease = await make(holder).acquire()
                for wait in (0, 0.1):
                    counts, errors = await errors_of(redlock, make, 10, wait)
                    assert counts == {LockTimeout: 10}, Counter(map(str, errors))
                await lease.release()


@pytest.mark.asyncio
async def test_trying_once_is_quick_though_the_name_is_wanted_by_many(three):
    """Who tries once learns it with the answer to the one in front, long before `node_timeout` is over."""
    cluster, redlock = three
    async with Redlock(cluster.urls, node_timeout=2) as patient, redlock("x"):
        start = asyncio.get_running_loop().time()
        results = await asyncio.gather(*(patient("x").try_acquire() for _ in range(20)))
        assert results == [None] * 20
        assert asyncio.get_running_loop().time() - start < 1


def redlock_label(cluster, node):
    """How errors call that node."""
    return cluster.urls[node].removeprefix("redis://")
