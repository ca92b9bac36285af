"""Scripts that fail halfway, and rights that are missing inside them."""

import asyncio
import time

import pytest
import redis

from redlock_async import QuorumUnavailable, Redlock, WrongKeyType
from redlock_async._rules.keys import Keys


@pytest.mark.asyncio
async def test_an_acquire_that_fails_after_its_set_leaves_no_key(nodes, eyes, eventually):
    """A fence register of another type makes the script fail in the middle; the lock's key goes all the same."""
    for eye in eyes.clients[:3]:
        eye.lpush(Keys("").fence(b"x"), 1)
    async with Redlock(nodes) as redlock:
        with pytest.raises(WrongKeyType):
            await redlock("x").acquire()
        await eventually(lambda: eyes.keys() == [], within=0.1)


@pytest.mark.asyncio
async def test_a_right_that_is_missing_inside_a_script_is_refused_for_good(nodes, eyes, eventually):
    """Without GETSET acquire cannot work, says so at once, and leaves no key."""
    for eye in eyes.clients:
        eye.execute_command("ACL", "SETUSER", "short", "reset", "on", ">pw", "~*", "+@all", "-getset")
    urls = [url.replace("redis://", "redis://short:pw@") for url in nodes]
    try:
        async with Redlock(urls, wait=10) as redlock:
            started = time.monotonic()
            with pytest.raises(QuorumUnavailable, match="ACL lacks a permission"):
                await redlock("x").acquire()
            assert time.monotonic() - started < 1
            await eventually(lambda: eyes.keys() == [], within=0.1)
    finally:
        for eye in eyes.clients:
            eye.execute_command("ACL", "DELUSER", "short")


def test_client_ids_are_not_taken_for_the_same_after_a_restart(cluster):
    """Ids start again with a server, so a stranger's connection is never ended in place of our old one."""

    async def run():
        async with Redlock(cluster.urls, ttl=0.5) as redlock:
            await (await redlock("x").acquire()).release()
            ours = redlock._running.context.nodes[0].identity.client_id
            cluster.restart(0)
            stranger = redis.Redis.from_url(cluster.urls[0])
            while stranger.client_id() < ours:
                stranger.connection_pool.disconnect()
            mine = stranger.client_id()
            deadline = time.monotonic() + 3
            while redlock.statistics().nodes_up < 5:
                assert time.monotonic() < deadline
                await asyncio.sleep(0.01)
            assert stranger.client_id() == mine

    asyncio.run(run())
