"""The decorators on real servers: every kind of lock, and work that runs once in a period."""

import asyncio
from functools import partial

import pytest

from redlock_async import LockTimeout, Redlock


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("factory", "most"),
    [
        (None, 1),
        (lambda redlock: redlock.fair_lock, 1),
        (lambda redlock: redlock.write_lock, 1),
        (lambda redlock: redlock.read_lock, 6),
        (lambda redlock: partial(redlock.semaphore, permits=3), 3),
    ],
    ids=["plain", "fair", "write", "read", "semaphore"],
)
async def test_every_kind_of_lock(factory, most, nodes, eyes):
    """As many run at once as that kind lets in, all come through, and nothing is left."""
    inside = highest = 0
    async with Redlock(nodes) as one, Redlock(nodes) as other:
        jobs = []
        for redlock in (one, other):

            @redlock.locked("job:{kind}", factory=factory and factory(redlock))
            async def job(kind):
                nonlocal inside, highest
                inside += 1
                highest = max(highest, inside)
                await asyncio.sleep(0.05)
                inside -= 1
                return kind

            jobs += [job("x") for _ in range(3)]
        assert await asyncio.gather(*jobs) == ["x"] * 6
    assert highest == most
    stored = {key for eye in eyes.clients for key in eye.keys("*job:x*")}
    assert stored <= {b"redlock-async:semaphore:{job:x}", b"redlock-async:ticket:{job:x}"}


@pytest.mark.asyncio
async def test_conflicts_of_another_kind(nodes):
    """Skipped or raised as with the plain lock: a reader in the way of a writer."""
    async with Redlock(nodes) as redlock, redlock.read_lock("prices"):

        @redlock.locked("prices", factory=redlock.write_lock, on_conflict="skip")
        async def skips():
            return 1

        @redlock.locked("prices", factory=redlock.write_lock, on_conflict="raise")
        async def raises():
            return 1

        assert await asyncio.create_task(skips()) is None
        with pytest.raises(LockTimeout):
            await asyncio.create_task(raises())


@pytest.mark.asyncio
async def test_once_a_period_among_clients_that_tick_together(nodes, eyes):
    """Eight clients, three periods of a second: three runs, whoever has them; the other seven are told each time."""
    runs, outcomes, all_connected = [], [], asyncio.Barrier(8)

    async def machine(number):
        async with Redlock(nodes) as redlock:
            async with redlock("warm"):
                pass

            @redlock.once("report:{tenant}", every=1)
            async def report(tenant):
                runs.append((tenant, number))
                return number

            await all_connected.wait()
            begun = asyncio.get_running_loop().time()
            for period in range(3):
                await asyncio.sleep(begun + period - asyncio.get_running_loop().time())
                outcomes.append(await report("acme"))

    await asyncio.gather(*(machine(number) for number in range(8)))
    assert len(runs) == 3
    assert {tenant for tenant, _ in runs} == {"acme"}
    assert outcomes.count(None) == 3 * 7
    left = eyes.keys()
    assert {key for _, key in left} == {b"report:acme"}, "the name stays locked after the last run"
