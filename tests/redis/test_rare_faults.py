"""Regression tests for faults that need unlikely timing."""

import asyncio
import time

import pytest
import redis

from redlock_async import LockLost, QuorumUnavailable, Redlock, RedlockError, WrongKeyType
from redlock_async._transport import environment
from redlock_async.testing import LocalCluster

pytestmark = pytest.mark.asyncio


async def test_extend_ends_when_every_node_is_down(cluster):
    """It raises LockLost by the deadline, though no node could even be asked."""
    async with Redlock(cluster.urls, ttl=1, node_timeout=0.1) as redlock:
        lease = await redlock("x").acquire()
        for index in range(5):
            cluster.kill(index)
        async with asyncio.timeout(3):
            with pytest.raises(LockLost):
                while True:
                    await lease.extend()
                    await asyncio.sleep(0.05)


async def test_closing_a_busy_client_leaves_no_keys(nodes, eyes, eventually):
    """Hundreds of releases, with as many acquires under way: all of them arrive before the connections end."""
    for _ in range(5):
        redlock = Redlock(nodes)
        held = await asyncio.gather(*(redlock(f"held{number}").acquire() for number in range(300)))
        under_way = [asyncio.ensure_future(redlock(f"new{number}").acquire()) for number in range(300)]
        await asyncio.sleep(0)
        await redlock.aclose()
        await asyncio.gather(*under_way, return_exceptions=True)
        assert all(lease.lost for lease in held)
        await eventually(lambda: not eyes.keys(), within=1)


@pytest.mark.usefixtures("embedded")
async def test_a_stray_key_on_the_nearest_node_does_not_outvote_the_far_ones():
    """Four nodes that are 20 ms away are waited for, although the near one refuses at once."""
    async with LocalCluster(5, proxied=True) as cluster, Redlock(cluster.urls, wait=2) as near:
        redis.Redis(port=cluster._servers[0].port).set("x", "stray")  # past the proxy, which is on this loop
        await near.status()
        for index in range(1, 5):
            cluster.delay(index, 0.02)
        async with Redlock(cluster.urls) as far:
            lease = await far("x").try_acquire()
            assert lease is not None
            await lease.release()
        async with near("x"):
            pass  # it learns that they are farther away than they were


async def test_closing_ends_a_wait_for_the_first_connections(cluster):
    """Whoever waits for masters that hang learns that the client is closed."""
    for index in range(5):
        cluster.pause(index)
    redlock = Redlock(cluster.urls)
    waiting = asyncio.ensure_future(redlock("x").acquire(wait=None))
    await asyncio.sleep(0.05)
    await redlock.aclose()
    async with asyncio.timeout(3):
        with pytest.raises(RedlockError, match="closed"):
            await waiting


async def test_margin_tells_of_nodes_that_died(cluster, eventually):
    """After a renewal that two nodes did not answer nothing is left beyond the quorum."""
    async with Redlock(cluster.urls, ttl=0.6, node_timeout=0.1) as redlock, redlock("x") as lease:
        await eventually(lambda: lease.spare_votes == 2)
        cluster.kill(0)
        cluster.kill(1)
        await eventually(lambda: lease.spare_votes == 0)
        assert lease.valid


async def test_a_loop_that_was_blocked_is_not_taken_for_an_outage(nodes):
    """A block that begins in the very step of the acquire makes no node look dead."""
    async with Redlock(nodes) as redlock:
        await redlock.status()
        attempt = asyncio.ensure_future(redlock("x").try_acquire())
        asyncio.get_running_loop().call_soon(time.sleep, 0.4)
        lease = await attempt
        assert lease is not None
        assert redlock.statistics().nodes_up == 5
        await lease.release()


async def test_a_release_that_finds_the_lock_gone_is_a_loss(nodes, eyes):
    """LockLost, and again; `lost` says so, and so do the statistics."""
    async with Redlock(nodes) as redlock:
        lease = await redlock("x").acquire()
        for eye in eyes.clients:
            eye.delete("x")
        for _ in range(2):
            with pytest.raises(LockLost):
                await lease.release()
        assert lease.lost
        assert redlock.statistics().lost == 1


async def test_a_lease_from_another_machine_during_an_outage(cluster, monkeypatch):
    """Entering it ends in QuorumUnavailable after its ttl, and does not spin."""
    async with Redlock(cluster.urls, ttl=0.5, node_timeout=0.1) as redlock:
        text = (await redlock("x").acquire()).detach()
        monkeypatch.setattr(environment, "identity", lambda: "another machine")
        for index in range(3):
            cluster.kill(index)
        lease = redlock.attach(text)
        spent = time.process_time()
        with pytest.raises(QuorumUnavailable):
            await lease.extend()
        assert time.process_time() - spent < 0.3


async def test_grants_that_come_too_late_are_no_contention(nodes):
    """With a ttl shorter than the trip nobody holds the lock, so it is not None that says so."""
    async with Redlock(nodes) as redlock:
        async with redlock("warm"):
            pass
        attempt = asyncio.ensure_future(redlock("x", ttl=0.1).try_acquire())
        await asyncio.sleep(0)
        time.sleep(0.15)  # noqa: ASYNC251 - the fault under test
        with pytest.raises(QuorumUnavailable, match="Increase ttl"):
            await attempt


async def test_a_plain_lock_on_a_key_of_another_type(nodes, eyes):
    """`fencing=False` sees it too, when it tries once."""
    for eye in eyes.clients:
        eye.rpush("x", "an element")
    async with Redlock(nodes, fencing=False) as redlock:
        with pytest.raises(WrongKeyType):
            await redlock("x").try_acquire()


@pytest.mark.usefixtures("embedded")
async def test_a_node_that_stalls_while_it_is_taken_into_use_again(eventually):
    """A release that finds it silent in that very moment does not end the attempt to connect."""
    async with LocalCluster(3, proxied=True) as cluster, Redlock(cluster.urls, ttl=5) as redlock:
        lease = await redlock("x").acquire()
        node = redlock._running.context.nodes[0]
        cluster.cut(0)
        await eventually(lambda: node.connection is None)
        cluster.heal(0)
        while node.connection is None or node.live is not None:  # noqa: ASYNC110 - the moment is between two steps
            await asyncio.sleep(0)
        cluster.pause(0)
        await lease.release()
        await asyncio.sleep(0.5)  # twice the node timeout: the release to that node is overdue
        cluster.resume(0)
        await eventually(lambda: node.ready, within=5)
