"""Fenced writes to Redis data, on a server that is no node of the lock."""

import asyncio

import pytest
import pytest_asyncio
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from redlock_async import ConfigurationError, Redlock, StaleFence
from redlock_async.fenced import Fence
from redlock_async.fenced.redis import FencedRedis
from redlock_async.testing import zombie

pytestmark = pytest.mark.asyncio

LATE, NOW = Fence("orders:42", 10), Fence("orders:42", 11)


@pytest_asyncio.fixture
async def server(nodes):
    """A client of a server that holds data."""
    async with Redis.from_url(nodes[0], decode_responses=True) as client:
        yield client


async def test_each_write_is_applied_or_rejected_whole(server):
    """Strings, hashes, deletions, expiries, and a script with keys and arguments of its own."""
    data = FencedRedis(server, keep=60)
    await data.set(LATE, "order", "new")
    await data.set(NOW, "order", 7, ttl=100)
    await data.hset(NOW, "details", {"sku": "lamp", "n": 3})
    assert (await server.get("order"), 0 < await server.pttl("order") <= 100_000) == ("7", True)
    assert await server.hgetall("details") == {"sku": "lamp", "n": "3"}
    assert await data.expire(NOW, "details", 50)
    assert not await data.expire(NOW, "nothing", 50)
    assert await data.eval(NOW, "return {KEYS[1], KEYS[2], ARGV[1], #KEYS, #ARGV}", ["a", "b"], [5]) == [
        "a", "b", "5", 2, 1,
    ]  # fmt: skip
    before = sorted(await server.keys("*"))
    for write in (
        data.set(LATE, "order", "old"), data.hset(LATE, "details", {"n": 1}), data.delete(LATE, "order"),
        data.expire(LATE, "details", 1), data.eval(LATE, "redis.call('SET', 'x', 1)", []),
    ):  # fmt: skip
        with pytest.raises(StaleFence, match="its token is 10, and a holder with the later token 11 has been here"):
            await write
    assert (sorted(await server.keys("*")), await server.get("order")) == (before, "7")
    assert 0 < await server.pttl("redlock-fence:orders:42") <= 60_000
    assert await data.delete(NOW, "order", "details", "nothing") == 2
    with pytest.raises(ResponseError, match="WRONGTYPE"):
        await server.lpush("list", 1)
        await data.hset(NOW, "list", {"a": 1})
    with pytest.raises(ConfigurationError, match="cannot have a first line with #!"):
        await data.eval(NOW, "#!lua flags=no-writes\nreturn 1", [])


async def test_several_names_are_checked_before_anything_is_written(nodes, server):
    """One stale name rejects the write, and raises no other register."""
    data = FencedRedis(server)
    async with Redlock(nodes[1:]) as redlock, redlock("a", "b") as lease:
        await data.set(Fence("b", lease.fencing_token + 1), "x", 1)
        with pytest.raises(StaleFence, match="the fence of 'b' is stale"):
            await data.set(lease, "x", 2)
        assert await server.exists("redlock-fence:a") == 0
        assert await server.get("x") == "1"


async def test_large_tokens_are_exact(server):
    """Lua prints numbers of this size with an exponent, and they are compared as numbers."""
    data, most = FencedRedis(server), 2**53 - 1
    await data.set(Fence("n", most), "x", 1)
    assert await server.get("redlock-fence:n") == str(most)
    with pytest.raises(StaleFence):
        await data.set(Fence("n", most - 1), "x", 2)
    await data.set(Fence("n", most), "x", 3)


async def test_the_zombie_test(nodes, server):
    """Passes for fenced writes and fails for others."""
    data = FencedRedis(server)
    async with Redlock(nodes, ttl=5) as redlock:

        async def write(lease):
            await data.set(lease, "x", 1)

        async def unfenced(lease):  # noqa: ARG001 - that is the mistake
            await server.set("x", 1)

        await zombie(redlock, write)
        with pytest.raises(AssertionError, match=r"does not call fence\(\)"):
            await zombie(redlock, unfenced)


async def test_writers_that_compete_lose_nothing(server):
    """Of many writers with different tokens, the register and the value are those of the last that was let in."""
    data = FencedRedis(server)

    async def write(token):
        try:
            await data.set(Fence("n", token), "x", token)
        except StaleFence as late:
            assert late.latest > token

    await asyncio.gather(*(write(token) for token in (5, 1, 9, 3, 9, 2, 8, 7)))
    assert await server.get("x") == await server.get("redlock-fence:n") == "9"
