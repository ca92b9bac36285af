"""Periods (`once`, `min_hold`) while one node at a time is unavailable: they hold, or the job gets an error."""

import asyncio
import os
import subprocess
import sys

import pytest
import pytest_asyncio
import redis

from redlock_async import HoldUnconfirmed, LockLost, Redlock
from redlock_async.testing import LocalCluster

pytestmark = [pytest.mark.asyncio, pytest.mark.usefixtures("embedded")]

EVERY = 3600.0
TTL = 1.0


@pytest_asyncio.fixture
async def trio():
    """Three servers whose network can fail while they keep their data."""
    async with LocalCluster(nodes=3, proxied=True) as cluster:
        yield cluster


@pytest.fixture
def stored(trio):
    """What each server holds under a name: (token, seconds left)."""
    seeing = [redis.Redis(port=server.port, socket_timeout=2) for server in trio._servers]

    def look(name):
        return [(node.get(name), node.pttl(name) / 1000) for node in seeing]

    yield look
    for node in seeing:
        node.close()


def machine(cluster, **options):
    """One of the machines that a schedule starts the job on."""
    return Redlock(cluster.urls, ttl=TTL, node_timeout=0.1, **options)


def up(redlock):
    """How many nodes the client is connected to."""
    return redlock.statistics().nodes_up


async def test_a_job_runs_once_though_another_node_is_away_at_each_end(trio, stored, eventually):
    """C is down during the acquire and back before the end; B hangs at the release, for longer than the ttl."""
    runs = []
    async with machine(trio) as one, machine(trio) as two:
        trio.cut(2)
        await eventually(lambda: up(one) == up(two) == 2)

        @one.once("report", every=EVERY)
        async def report():
            runs.append("one")
            trio.heal(2)
            await eventually(lambda: up(one) == 3, 5)
            trio.pause(1)
            return "done"

        @two.once("report", every=EVERY)
        async def again():
            runs.append("two")

        assert await report() == "done"
        await asyncio.sleep(1.5 * TTL)
        trio.resume(1)
        await eventually(lambda: up(two) == 3, 5)
        await again()
        assert runs == ["one"]
        await eventually(lambda: all(EVERY * 0.8 < left <= EVERY * 0.9 for _, left in stored("report")), 5)


@pytest.mark.parametrize(("leave", "come_back"), [("cut", "heal"), ("pause", "resume")])
async def test_a_period_that_could_not_be_kept_is_no_success(trio, stored, eventually, leave, come_back):
    """Two nodes are away when the job ends: it raises, says that the work is done, and reports it. The period is kept
    from when they are back, though the keys of the lease have expired there by then."""
    events = []
    async with machine(trio) as redlock:
        redlock.on_event(events.append)

        @redlock.once("report", every=EVERY)
        async def report():
            getattr(trio, leave)(1)
            getattr(trio, leave)(2)
            return "done"

        with pytest.raises(
            HoldUnconfirmed, match=r"'report' is done, .* 1 of 3 .* 2 are needed .* Do not retry"
        ) as caught:
            await report()
        assert set(caught.value.nodes) == {url.removeprefix("redis://") for url in trio.urls[1:]}
        assert [event.names for event in events if event.kind == "hold_unconfirmed"] == [("report",)]
        assert redlock.statistics().unconfirmed_releases == 1
        await asyncio.sleep(TTL)
        getattr(trio, come_back)(1)
        getattr(trio, come_back)(2)
        await eventually(lambda: all(EVERY * 0.8 < left <= EVERY * 0.9 for _, left in stored("report")), 5)


async def test_a_quorum_that_is_back_in_time_is_waited_for(trio, eventually):
    """The job's end waits for as long as the lease would have stood."""
    async with machine(trio) as redlock:
        lease = await redlock("x", ttl=5, min_hold=60).acquire()
        trio.cut(1)
        trio.cut(2)
        await eventually(lambda: up(redlock) == 1)
        releasing = asyncio.create_task(lease.release())
        await asyncio.sleep(0)
        trio.heal(2)
        await releasing


async def test_a_ttl_as_long_as_the_hold_needs_no_confirmation(trio):
    """The lease itself stays on a quorum for that long."""
    async with machine(trio) as redlock, redlock("x", ttl=60, min_hold=30):
        trio.cut(1)
        trio.cut(2)


async def test_a_hold_that_is_delivered_late_ends_in_its_time(trio, stored, eventually):
    """A node that stopped with the command in its buffer carries it out when it goes on, and is corrected then."""
    async with machine(trio) as redlock:
        async with redlock("x", ttl=20, min_hold=20):
            await eventually(lambda: up(redlock) == 3)
            trio.pause(1)
        await asyncio.sleep(1.5)
        trio.resume(1)
        await eventually(lambda: 0 < stored("x")[1][1] <= stored("x")[0][1] + 0.3, 5)


async def test_a_hold_does_not_take_the_name_from_another_holder(trio, stored, eventually):
    """It comes late to a node where another client has the name by then."""
    async with machine(trio) as one:
        async with one("x", min_hold=60):
            trio.cut(2)
        stranger = redis.Redis(port=trio._servers[2].port)
        stranger.set("x", "somebody", px=60_000)
        stranger.close()
        trio.heal(2)
        await eventually(lambda: not one._running.registry._retentions, 5)
        assert stored("x")[2][0] == b"somebody"


async def test_a_lock_that_was_freed_by_force_is_not_brought_back_by_its_hold(trio, stored):
    """The holder is told of neither: its connections are cut off from the server's reports, and the job then ends."""
    async with machine(trio) as redlock:
        lease = await redlock("x", ttl=20, min_hold=60).acquire()
        for server in trio._servers[1:]:
            operator = redis.Redis(port=server.port)
            operator.delete("x")
            operator.close()
        with pytest.raises(LockLost):
            await lease.release()
        await asyncio.sleep(0.2)
        assert [token for token, _ in stored("x")] == [None] * 3


async def test_force_release_ends_a_period_for_good(trio, stored, eventually):
    """A node that is away when the job ends and during `force_release` is one node: the name is free."""
    async with machine(trio) as one, machine(trio) as two:
        async with one("x", min_hold=60):
            trio.cut(2)
            await eventually(lambda: up(one) == up(two) == 2)
        assert await two.force_release("x")
        trio.heal(2)
        await eventually(lambda: up(one) == up(two) == 3, 5)
        await eventually(lambda: not one._running.registry._retentions, 5)
        assert [token is None for token, _ in stored("x")] == [True, True, False]
        await (await two("x", wait=0).acquire()).release()


@pytest.mark.parametrize("kind", ["fair_lock", "read_lock", "write_lock", "semaphore", "several"])
async def test_every_kind_keeps_its_hold_where_the_acquire_did_not_reach(kind, trio, stored, eventually):
    """C is down during the acquire and back before the end."""
    async with machine(trio) as redlock:
        trio.cut(2)
        await eventually(lambda: up(redlock) == 2)
        names = ("x", "y") if kind == "several" else ("x",)
        made = {"several": redlock, "semaphore": lambda *n, **o: redlock.semaphore(*n, permits=1, **o)}
        make = made.get(kind) or getattr(redlock, kind)
        async with make(*names, min_hold=60):
            trio.heal(2)
            await eventually(lambda: up(redlock) == 3, 5)
        key = "redlock-async:semaphore:{x}:0" if kind == "semaphore" else "x"
        await eventually(lambda: all(55 < left <= 61.1 for _, left in stored(key)), 5)


async def test_a_command_whose_hold_is_not_stored_ends_with_69_and_says_why(cluster):
    """It was run, and may be run again too soon: whoever watches the machine must hear of it."""
    words = ["-m", "redlock_async", "run", "job", "--ttl", "2", "--min-hold", "600", "--", "sh", "-c"]
    program = await asyncio.create_subprocess_exec(
        sys.executable, *words, "echo begun; read end",
        env={**os.environ, "REDLOCK_NODES": ",".join(cluster.urls)},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert await program.stdout.readline() == b"begun\n"
    for index in (0, 1, 2):
        cluster.pause(index)
    _, said = await program.communicate(b"\n")
    assert program.returncode == 69
    assert b"the work under the lock on 'job' is done, but too few nodes stored" in said
