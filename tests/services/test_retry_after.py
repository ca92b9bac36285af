"""`LockTimeout.retry_after` predicts when the obstacle expires, for every kind, within and across processes."""

import asyncio
import pickle
import time
from functools import partial

import pytest
import redis

from redlock_async import LockTimeout, Redlock

pytestmark = [pytest.mark.redis, pytest.mark.asyncio]

TTL = 1.0
KINDS = {
    "plain": (Redlock.lock, Redlock.lock),
    "unfenced": (partial(Redlock.lock, fencing=False), partial(Redlock.lock, fencing=False)),
    "fair": (Redlock.fair_lock, Redlock.fair_lock),
    "semaphore": (partial(Redlock.semaphore, permits=1), partial(Redlock.semaphore, permits=1)),
    "reader behind a writer": (Redlock.write_lock, Redlock.read_lock),
    "writer behind readers": (Redlock.read_lock, Redlock.write_lock),
}


async def refusal(lock, wait=0):
    """What somebody is told who wants it now."""
    with pytest.raises(LockTimeout) as caught:
        await lock.acquire(wait=wait)
    return caught.value


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("wait", [0, 0.3])
async def test_by_then_it_has_run_out(kind, wait, nodes):
    """Whoever waits for so long gets the lock of a holder that is gone; and nobody does much earlier."""
    held, wanted = KINDS[kind]
    async with Redlock(nodes, ttl=TTL) as first, Redlock(nodes, ttl=TTL) as second:
        lease = await held(first, "x").acquire()
        until = time.monotonic() + TTL
        lease.detach()  # nobody renews it from here on
        error = await refusal(wanted(second, "x"), wait)
        told = error.retry_after
        assert told == pytest.approx(until - time.monotonic(), abs=0.4)
        assert pickle.loads(pickle.dumps(error)).retry_after == told  # noqa: S301 - our own
        if not wait:
            await asyncio.sleep(told + 0.002)  # as told; a server's clock counts whole milliseconds
            slack = 1.5 if kind == "writer behind readers" else 0  # a crashed reader's, see README
            await (await wanted(second, "x").acquire(wait=slack)).release()


async def test_of_a_holder_in_the_same_process(nodes):
    """Without asking the masters; of one that is renewed it is the time without the renewals to come."""
    async with Redlock(nodes, ttl=TTL) as redlock, redlock("x"):
        error = await asyncio.create_task(refusal(redlock("x")))
        assert TTL / 2 < error.retry_after <= TTL + 0.1


@pytest.mark.parametrize("kind", ["plain", "semaphore", "reader behind a writer", "writer behind readers"])
@pytest.mark.parametrize("wait", [0, 0.1])
async def test_every_waiter_that_times_out_gets_retry_after(kind, wait, nodes):
    """Not only the task that sent the commands to the nodes."""
    held, wanted = KINDS[kind]
    async with Redlock(nodes, owner="anna") as first, Redlock(nodes) as second, held(first, "x"):
        errors = await asyncio.gather(*(refusal(wanted(second, "x"), wait) for _ in range(5)))
        holder = "readers" if kind == "writer behind readers" else "anna"
        assert [error.holder for error in errors] == [holder] * 5
        assert all(9 < error.retry_after <= 10 for error in errors)


async def test_a_key_without_end_has_none(nodes):
    """Somebody else's, that never runs out."""
    for node in nodes:
        with redis.Redis.from_url(node) as server:
            server.set("x", "for ever")
    async with Redlock(nodes) as redlock:
        assert (await refusal(redlock("x"))).retry_after is None


async def test_it_counts_what_a_quorum_needs(nodes):
    """Not the first of the keys to run out: nobody can have the lock before a majority is free."""
    for node, milliseconds in zip(nodes, (500, 700, 900, 900, 900), strict=True):
        with redis.Redis.from_url(node) as server:
            server.set("x", "1:another library's", px=milliseconds)
    async with Redlock(nodes) as redlock:
        assert 0.75 < (await refusal(redlock("x"))).retry_after <= 0.9
