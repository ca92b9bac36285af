"""Wall clocks of nodes that are stepped, on real servers whose time libfaketime sets; and what is no step."""

import asyncio
import os
import re
import signal
import time

import pytest
import pytest_asyncio
from own_nodes import DURABLE, RECORD, Nodes, Watch, again, all_vote, needs_faketime, use, without

from redlock_async import LockTimeout, QuorumUnavailable, Redlock

pytestmark = [pytest.mark.asyncio, pytest.mark.redis, pytest.mark.usefixtures("embedded")]

MINUTE = 60


@pytest_asyncio.fixture
async def nodes(tmp_path):
    """A place for servers of this test's own."""
    started = Nodes(tmp_path)
    yield started
    started.close()


def steps(nodes):
    """By how many ms the nodes' clocks were stepped, as they have recorded."""
    return [nodes.ask(server, "HGET", RECORD, "stepped") for server in nodes.servers]


def step_in(error):
    """By how many seconds a clock was stepped, according to the reason why the node does not vote."""
    return float(re.search(r"its clock was stepped by ([-+.\d]+) s", str(error))[1])


async def shows(nodes, index, seconds):
    """Wait until the clock of that server is off by so much: libfaketime reads its file when the clock is read."""
    async with asyncio.timeout(5):
        right = nodes.ask(nodes.servers[-1], "TIME")[0]
        while abs(nodes.ask(nodes.servers[index], "TIME")[0] - right - seconds) > 2:  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(0)


async def set_clocks(nodes, indexes, seconds):
    """Step the clocks of those servers."""
    for index in indexes:
        nodes.clocks[index].set(f"{seconds:+d}")
        await shows(nodes, index, seconds)


@again
@needs_faketime
@pytest.mark.parametrize("stepped", [1, 2])
@pytest.mark.parametrize("seconds", [MINUTE, -MINUTE], ids=["forward", "back"])
@pytest.mark.parametrize("fencing", [True, False], ids=["fenced", "plain"])
@pytest.mark.parametrize("connected", [True, False], ids=["connected before", "connected after"])
async def test_a_stepped_clock_makes_no_second_holder(connected, fencing, seconds, stepped, nodes):
    """The lease is held by three of five nodes, of which as many are stepped as may be. They vote again later."""
    urls = nodes.add(5)
    reached = without(without(urls, 3), 4)
    async with Redlock(urls, ttl=2, fencing=fencing) as other, Redlock(reached, ttl=2, fencing=fencing) as redlock:
        await use(other)
        await all_vote(other)
        lease = await redlock("x", renew=False).acquire()
        assert lease.spare_votes == 0
        if not connected:
            await other.aclose()
        watch = Watch(other)
        await set_clocks(nodes, range(stepped), seconds)
        with pytest.raises((LockTimeout, QuorumUnavailable)):
            await other("x").acquire(wait=0.3)
        assert lease.valid
        event = await watch.first()
        assert step_in(event.error) == pytest.approx(seconds, abs=1)
        for status in (await other.status())[:stepped]:
            assert not status.can_vote
            assert step_in(status.error) == pytest.approx(seconds, abs=1)
        async with other("x", wait=10):
            assert not lease.valid
        await watch.over()
        await all_vote(other)
        nodes.addresses[3].cut()
        nodes.addresses[4].cut()
        async with other("y"):  # with the votes of the stepped nodes
            pass


@again
@needs_faketime
async def test_a_clock_that_is_set_back_and_right_again_makes_no_second_holder(nodes):
    """The lease is acquired in between. Another client reads the clocks before and afterwards only."""
    urls = nodes.add(3)
    async with Redlock(urls, ttl=2) as other, Redlock(without(urls, 2), ttl=2) as redlock:
        await use(other)
        await set_clocks(nodes, [0], -MINUTE)
        with pytest.raises(QuorumUnavailable):  # its clock or the other's
            await redlock("x", wait=0).acquire()
        await set_clocks(nodes, [0], 0)
        await use(other)


@needs_faketime
async def test_a_renewed_lease_goes_on_when_clocks_are_stepped(nodes):
    """The holder reports it, and its leases are renewed also where they expired."""
    urls = nodes.add(5)
    async with Redlock(urls, ttl=1) as redlock:
        watch = Watch(redlock)
        async with redlock("x") as lease:
            await set_clocks(nodes, [0, 1], MINUTE)
            await watch.first()
            await watch.over()
            assert lease.valid
        await all_vote(redlock)
        assert [step is not None for step in steps(nodes)] == [True, True, False, False, False]


@needs_faketime
async def test_clocks_that_were_always_wrong_are_no_step(nodes):
    """By hours, each in its own way."""
    urls = nodes.add(3)
    await set_clocks(nodes, [0], 5 * 3600)
    await set_clocks(nodes, [1], -7 * 3600)
    async with Redlock(urls, ttl=1) as redlock:
        watch = Watch(redlock)
        for _ in range(3):
            async with redlock("x"):
                await asyncio.sleep(0.4)
        async with Redlock(urls, ttl=1) as late:
            await use(late)
        assert watch.quarantined == []
    assert steps(nodes) == [None] * 3


@needs_faketime
async def test_the_clocks_of_all_nodes_may_be_set_while_no_lease_is_held(nodes):
    """By different amounts. Then locks are available after a ttl, as if a majority had lost its data: not at once."""
    urls = nodes.add(3)
    async with Redlock(urls, ttl=2) as redlock:
        await use(redlock)
        started = time.monotonic()
        for index, seconds in enumerate((30, 60, 90)):
            nodes.clocks[index].set(f"{seconds:+d}")
        async with redlock("x", wait=20):
            assert time.monotonic() - started > 2
        await all_vote(redlock)


@pytest.mark.parametrize("what", ["paused", "stopped", "restarted", "cut off", "delayed", "client stopped"])
async def test_what_is_no_step(what, nodes, eventually):
    """Neither for a client that was connected before nor for one that comes later."""
    urls = nodes.add(3, *DURABLE)
    async with Redlock(urls, ttl=2, wait=20) as redlock:
        watch = Watch(redlock)
        await use(redlock)
        async with redlock("x"):
            if what == "paused":
                nodes.ask(nodes.servers[0], "CLIENT", "PAUSE", 600)
                await asyncio.sleep(0.7)
            elif what == "stopped":
                os.kill(nodes.servers[0].pid, signal.SIGSTOP)
                await asyncio.sleep(0.7)
                os.kill(nodes.servers[0].pid, signal.SIGCONT)
            elif what == "restarted":
                nodes.restart(0)
            elif what == "cut off":
                nodes.addresses[0].cut()
                await asyncio.sleep(0.3)
                nodes.addresses[0].heal()
            elif what == "delayed":
                nodes.addresses[0].delay(0.15)
            else:
                command = "kill -STOP $PPID; sleep 0.5; kill -CONT $PPID"
                stopping = await asyncio.create_subprocess_exec("sh", "-c", command)
                assert await stopping.wait() == 0
            await eventually(lambda: redlock.statistics().nodes_up == 3, within=10)
        async with Redlock(urls, ttl=2, wait=20) as late, late("x"):
            pass
        await use(redlock)
        assert watch.quarantined == []
    assert steps(nodes) == [None] * 3
