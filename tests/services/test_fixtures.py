"""A client and a lease as async fixtures, which are entered in one task and left in another."""

import pytest
import pytest_asyncio
import redis

from redlock_async import Redlock

pytestmark = pytest.mark.redis


def keys(nodes, name):
    """The number of nodes with that lock's key."""
    count = 0
    for node in nodes:
        with redis.Redis.from_url(node) as client:
            count += client.exists(name)
    return count


@pytest_asyncio.fixture
async def redlock(nodes):
    """A client, as any test suite would write it."""
    async with Redlock(nodes, wait=2) as client:
        yield client


@pytest_asyncio.fixture
async def lease(redlock):
    """A lease that the fixture holds."""
    held = await redlock("by-fixture").acquire()
    yield held
    await held.release()


@pytest.mark.asyncio
@pytest.mark.parametrize("_time", range(2))  # the second sees the leftovers of the first
async def test_client_is_an_async_generator_fixture(redlock, nodes, _time):
    """Function scope, pytest-asyncio."""
    assert redlock.statistics().nodes_up == len(nodes)
    async with redlock("x") as held:
        assert held.valid
        assert keys(nodes, "x") == len(nodes)
    assert keys(nodes, "x") == 0


@pytest.mark.asyncio
@pytest.mark.parametrize("_time", range(2))
async def test_lease_is_an_async_generator_fixture(lease, redlock, _time):
    """The lease is acquired before the test and released after it, so the second run acquires it again."""
    assert lease.valid
    assert await redlock("by-fixture").try_acquire() is None


@pytest.mark.asyncio
async def test_error_in_a_body_stays_itself_beside_a_fixture(redlock):
    """An exception leaves the client's block unchanged, not in an exception group."""
    with pytest.raises(ZeroDivisionError):
        async with redlock("x"):
            raise ZeroDivisionError
    assert await redlock.inspect("x") is None
