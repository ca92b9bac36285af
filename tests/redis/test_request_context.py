"""A client outlives the requests that use it: it keeps none of their objects and logs under no other's id."""

import asyncio
import gc
import logging
import weakref
from contextvars import Context, ContextVar

import pytest

from redlock_async import LockTimeout, QuorumUnavailable, Redlock
from redlock_async.testing import LocalCluster

pytestmark = [pytest.mark.redis, pytest.mark.asyncio]

current = ContextVar("current", default=None)


class Request:
    """What a framework keeps in a context variable while it serves a request."""

    def __init__(self, number):
        self.number = number


async def serve(number, work):
    """As a server does: a task of its own, with the request in its context. Returns a weak reference to the request."""

    async def handle():
        request = Request(number)
        current.set(request)
        await work()
        return weakref.ref(request)

    return await asyncio.get_running_loop().create_task(handle(), context=Context())


async def several(*works):
    """Requests that are served at the same time."""
    return await asyncio.gather(*(serve(number, work) for number, work in enumerate(works)))


async def test_no_request_is_kept_by_a_client_that_it_used(nodes):
    """Neither by the connections that the first one made, nor by timers, renewals, queues or waits cut short."""
    async with Redlock(nodes, ttl=1, wait=30) as redlock:

        async def uses(make, seconds=0.01):
            async with make("x"):
                await asyncio.sleep(seconds)

        async def gives_up():
            with pytest.raises(LockTimeout):
                await redlock("x").acquire(wait=0.05)

        async def opens():
            latch = redlock.latch("batch", count=1)
            waiting = asyncio.create_task(latch.wait(timeout=30))
            await latch.count_down("part")
            await waiting

        def semaphore(name):
            return redlock.semaphore(name, permits=1)

        references = [await serve(0, lambda: uses(redlock))]
        references += await several(*[lambda make=make: uses(make) for make in [redlock] * 3])
        for make in (redlock.fair_lock, redlock.read_lock, redlock.write_lock, semaphore):
            references += await several(*[lambda make=make: uses(make)] * 3)
        references += await several(lambda: uses(redlock, 0.8), gives_up)  # renewed meanwhile
        references.append(await serve(9, opens))
        for _ in range(5):
            await asyncio.sleep(0)  # the steps of the loop that ended the last one are over
        gc.collect()
        kept = [reference().number for reference in references if reference() is not None]
        assert kept == [], [gc.get_referrers(ref()) for ref in references if ref() is not None]


async def test_what_concerns_no_request_is_logged_under_none(caplog):
    """Timers and connections notice the loss of a lease or a node; an outage belongs to the request that fails."""

    def add_number(record):
        request = current.get()
        record.request = request.number if request is not None else "-"
        return True

    logger = logging.getLogger("redlock_async")
    logger.addFilter(add_number)
    caplog.set_level(logging.DEBUG, "redlock_async")
    try:
        async with LocalCluster(3) as cluster, Redlock(cluster.urls, ttl=0.6) as redlock:
            leases = []

            async def connects():
                await (await redlock("first").acquire()).release()

            async def acquires():
                leases.append(await redlock("held").acquire())

            async def fails():
                with pytest.raises(QuorumUnavailable):
                    await redlock("other").acquire(wait=0)

            await serve("first", connects)
            await serve("holder", acquires)
            for node in range(3):
                cluster.kill(node)
            async with asyncio.timeout(5):
                await leases[0].wait_until_lost()
            await serve("last", fails)
    finally:
        logger.removeFilter(add_number)
    by_kind = {}
    for record in caplog.records:
        by_kind.setdefault(getattr(record, "redlock_kind", None), set()).add(record.request)
    assert by_kind["lost"] == {"-"}
    assert by_kind["node_up"] == by_kind["node_down"] == {"-"}
    assert by_kind["unavailable"] == {"last"}
    assert by_kind["acquired"] == {"first", "holder"}
