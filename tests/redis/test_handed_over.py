"""Detached and attached leases: how far the text is trusted, and how such leases are released."""

import asyncio
import base64
import json
from contextlib import suppress
from zlib import crc32

import pytest
import redis

from redlock_async import ConfigurationError, LockLost, QuorumUnavailable, Redlock
from redlock_async._rules.detached import CHECKSUM, FORMAT

pytestmark = pytest.mark.asyncio


def altered(text, **changes):
    """The text of a detached lease that says something else, with a right checksum."""
    payload = json.loads(base64.urlsafe_b64decode(text[len(FORMAT) + CHECKSUM :])) | changes
    body = json.dumps(payload).encode()
    return f"{FORMAT}{crc32(body):08x}{base64.urlsafe_b64encode(body).decode()}"


def said_by(text):
    """What the text says."""
    return json.loads(base64.urlsafe_b64decode(text[len(FORMAT) + CHECKSUM :]))


async def test_a_text_cannot_make_a_lease_last_longer_than_its_ttl(cluster, eventually):
    """It claims an hour, the nodes are gone, and the lease is over after the ttl: another client may have the lock."""
    async with Redlock(cluster.urls, ttl=1) as one, Redlock(cluster.urls) as two:
        text = (await one("x").acquire()).detach()
        lease = two.attach(altered(text, until=said_by(text)["until"] + 3600))
        assert 0 < lease.remaining <= 1
        for index in range(5):
            cluster.pause(index)
        async with asyncio.timeout(5):
            await lease.wait_until_lost()
        await eventually(lambda: not lease.valid, 1)


@pytest.mark.parametrize("name", ["x", "xy", "xyz"])  # of each length modulo 3, so with each padding
async def test_a_text_that_was_cut_off_or_mistyped_is_refused_by_its_checksum(nodes, name):
    """And the message does not contain the text, which is a secret."""
    async with Redlock(nodes) as redlock:
        text = (await redlock(name).acquire()).detach()
        middle = len(text) // 2
        other = "A" if text[middle] != "A" else "B"
        for wrong in (text[:-1], text[:-4], text[: len(FORMAT) + 16], text[:middle] + other + text[middle + 1 :]):
            with pytest.raises(ConfigurationError, match="its checksum is wrong") as caught:
                redlock.attach(wrong)
            assert wrong[len(FORMAT) :] not in str(caught.value)
        await redlock.attach(text).release()


async def test_a_lease_can_be_released_as_the_first_use_of_a_client(nodes, eyes):
    """It waits for the connections, on this machine and on another one."""
    async with Redlock(nodes) as one:
        here = (await one("x").acquire()).detach()
        elsewhere = altered((await one("y").acquire()).detach(), clock="another machine's")
    for text, name in ((here, "x"), (elsewhere, "y")):
        two = Redlock(nodes)
        await two.attach(text).release()
        assert eyes.holding(name) == [None] * 5
        await two.aclose()


async def test_a_release_that_no_node_was_sent_does_not_say_that_it_was(cluster):
    """The nodes are down when a client is used for the first time."""
    async with Redlock(cluster.urls) as one:
        text = (await one("x").acquire()).detach()
    for index in range(5):
        cluster.kill(index)
    async with Redlock(cluster.urls, wait=0) as two:
        with pytest.raises(QuorumUnavailable, match=r"the release of 'x' is unconfirmed.*connecting to") as caught:
            await two.attach(text).release()
        assert "was sent" not in str(caught.value)


def kept(redlock):
    """What waits for the next connection to each node."""
    return [len(node._pending_releases) for node in redlock._running.context.nodes]


async def test_releases_of_attached_leases_do_not_pile_up_for_a_node_that_is_down(cluster):
    """They are kept only while the key can be there."""
    cluster.kill(4)
    async with Redlock(cluster.urls, ttl=0.2) as redlock:
        for number in range(3000):
            text = (await redlock(f"x{number}").acquire()).detach()
            with suppress(LockLost, QuorumUnavailable):  # on a busy machine a node can be slower than so short a ttl
                await redlock.attach(text).release()
        assert max(kept(redlock)) < 2000
        await asyncio.sleep(0.6)
        node = redlock._running.context.nodes[4]
        now = redlock._running.context.now()
        assert not [until for until, _ in node._pending_releases if until > now]


async def test_releases_of_downgraded_leases_do_not_pile_up_for_a_node_that_is_down(cluster):
    """A node that was never sent the lock needs no release."""
    cluster.kill(4)
    async with Redlock(cluster.urls) as redlock:
        for number in range(3000):
            await (await (await redlock.write_lock(f"x{number}").acquire()).downgrade()).release()
        assert max(kept(redlock)) == 0


async def test_a_release_of_an_attached_lease_reaches_a_node_that_is_soon_back(cluster, eventually):
    """Nothing is left there until the ttl."""
    seeing = redis.Redis.from_url(cluster.urls[4])
    async with Redlock(cluster.urls, ttl=20) as one:
        text = (await one("x").acquire()).detach()
        lease = one.attach(text)
        node = one._running.context.nodes[4]
        await eventually(lambda: node.live is not None)
        cluster.pause(4)
        await lease.release()
        cluster.resume(4)
        await eventually(lambda: seeing.get("x") is None, 5)
    seeing.close()


async def test_a_lease_that_was_set_again_by_us_keeps_its_release_for_any_time(cluster, eventually):
    """The command that set it may be carried out whenever the node goes on."""
    async with Redlock(cluster.urls, ttl=0.6) as one, Redlock(cluster.urls, ttl=0.6) as two:
        text = (await one("x").acquire()).detach()
        seeing = redis.Redis.from_url(cluster.urls[4])
        seeing.delete("x")
        seeing.close()
        lease = two.attach(text)
        await lease.extend()
        await eventually(lambda: lease._held.sent_mask & 1 << 4)  # a quorum confirms it without that node
        cluster.kill(4)
        await lease.release()
        node = two._running.context.nodes[4]
        # The release may have been on its way when the connection ended: it is kept as soon as that is known.
        await eventually(lambda: [until for until, _ in node._pending_releases][-1:] == [float("inf")])
