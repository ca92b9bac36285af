"""Which nodes may vote, on real servers: restarts, failovers, new clusters, and looks that leave no trace."""

import asyncio
import os
import subprocess
import sys
import time

import pytest
import pytest_asyncio
from own_nodes import DURABLE, RECORD, Nodes, Watch, again, all_vote, use, without

from redlock_async import LockTimeout, QuorumUnavailable, Redlock
from redlock_async.testing._servers import HOST

pytestmark = [pytest.mark.asyncio, pytest.mark.redis, pytest.mark.usefixtures("embedded")]

GRACE = 0.5
"""Seconds that these tests allow for a failover, instead of ten."""


@pytest_asyncio.fixture
async def nodes(tmp_path):
    """A place for servers of this test's own."""
    started = Nodes(tmp_path)
    yield started
    started.close()


# Failovers


@again
@pytest.mark.parametrize(
    ("connected", "looks"),
    [(True, False), (False, False), (False, True)],
    ids=["connected before", "connected after", "looked after, without taking a lock"],
)
async def test_a_promoted_replica_makes_no_second_holder(connected, looks, nodes, monkeypatch, eventually):
    """It lacks a lease that the old primary granted, and is quarantined although it loads every write."""
    monkeypatch.setattr("redlock_async._transport.electorate.FAILOVER_GRACE", GRACE)
    urls = nodes.add(3, *DURABLE, "--repl-diskless-sync-delay", "0")
    replica = nodes.start(*DURABLE, "--replicaof", HOST, str(nodes.servers[0].port))
    await eventually(lambda: nodes.ask(replica, "INFO", "replication").get("master_link_status") == "up", within=10)
    async with Redlock(urls, ttl=3) as other, Redlock(without(urls, 2), ttl=3) as redlock:
        await use(other)
        await all_vote(other)
        await eventually(lambda: nodes.ask(replica, "HGET", RECORD, "origin") is not None, within=5)
        if not connected:
            await other.aclose()
        nodes.ask(replica, "REPLICAOF", "NO", "ONE")
        watch = Watch(other)
        lease = await redlock("x", renew=False).acquire()
        assert lease.spare_votes == 0
        nodes.move(0, replica)
        if looks:
            await other.status()
        if connected:
            event = await watch.first()
            assert "another server answers at its address (a replica was promoted?)" in str(event.error)
            assert 2.5 < event.seconds < 3.1 + GRACE * 1.1
        with pytest.raises((LockTimeout, QuorumUnavailable)):
            await other("x").acquire(wait=0.3)
        assert [each.can_vote for each in await other.status()] == [False, True, True]
        assert lease.valid
        # Until that lease is over, and longer.
        await watch.over() if connected else await all_vote(other)
        assert not lease.valid
        nodes.addresses[1].cut()
        async with other("x"):  # with the vote of the promoted replica
            pass


@again
async def test_two_nodes_that_exchange_addresses_go_on(nodes):
    """Neither has lost anything: a node is known by the id of its data."""
    urls = nodes.add(3, *DURABLE)
    async with Redlock(urls, ttl=5) as redlock, Redlock(urls, ttl=5) as other:
        watch = Watch(redlock)
        await use(other)
        async with redlock("x") as lease:
            await all_vote(redlock)
            nodes.move(0, nodes.servers[1])
            nodes.move(1, nodes.servers[0])
            await lease.extend()
            for _ in range(2):
                with pytest.raises(LockTimeout):
                    await other("x").acquire(wait=0.1)
                await all_vote(redlock)
        async with Redlock(urls, ttl=5) as late:
            await use(late)
            await all_vote(late)
        assert watch.quarantined == []
        # They know their new addresses: the next client needs not hear from both.
        nodes.addresses[0].cut()
        async with Redlock(urls, ttl=5) as late:
            await use(late)


async def test_a_copy_of_another_node_does_not_vote_until_it_has_waited(nodes):
    """It says that it is the other node, has an id of its own soon, and has forgotten what its former data knew."""
    urls = nodes.add(3, *DURABLE)
    async with Redlock(urls, ttl=1) as redlock:
        await use(redlock)
        await all_vote(redlock)
        before = nodes.ask(nodes.servers[1], "HGET", RECORD, "id")
        copied = nodes.ask(nodes.servers[0], "HGETALL", RECORD)
        words = [word for pair in copied.items() for word in pair] if isinstance(copied, dict) else copied
        nodes.ask(nodes.servers[1], "FLUSHALL")
        nodes.ask(nodes.servers[1], "HSET", RECORD, *words)
        async with Redlock(urls, ttl=1) as late:
            await use(late)
            assert [each.can_vote for each in await late.status()] == [True, False, True]
            own = nodes.ask(nodes.servers[1], "HGET", RECORD, "id")
            assert own not in {before, nodes.ask(nodes.servers[0], "HGET", RECORD, "id")}
            await all_vote(late)


# Restarts


@pytest.mark.parametrize("how", ["kill -9", ""], ids=["killed", "shut down"])
async def test_a_node_with_an_append_only_file_votes_as_soon_as_it_is_back(how, nodes, eventually):
    """It has all its data: for the client that was connected, and for a new one."""
    urls = nodes.add(3, *DURABLE)
    async with Redlock(urls, ttl=30) as redlock, Redlock(without(urls, 2), ttl=30) as holder:
        watch = Watch(redlock)
        await use(redlock)
        await all_vote(redlock)
        lease = await holder("x", renew=False).acquire()
        record = nodes.ask(nodes.servers[0], "HGETALL", RECORD)
        nodes.restart(0, how)
        await eventually(lambda: redlock.statistics().nodes_up == 3, within=10)
        with pytest.raises(LockTimeout):
            await redlock("x").acquire(wait=0.2)
        async with Redlock(urls, ttl=30) as late:
            with pytest.raises(LockTimeout):
                await late("x").acquire(wait=0.2)
            await all_vote(late)
        assert watch.quarantined == []
        again = nodes.ask(nodes.servers[0], "HGETALL", RECORD)
        assert again["id"] == record["id"]
        assert again["server"] != record["server"]
        assert lease.valid


async def test_a_whole_cluster_with_append_only_files_may_restart(nodes):
    """It excludes the next holder at once."""
    urls = nodes.add(3, *DURABLE)
    async with Redlock(urls, ttl=30) as redlock:
        await use(redlock)
        await all_vote(redlock)
        lease = await redlock("x", renew=False).acquire()
        for index in range(3):
            nodes.restart(index)
        async with Redlock(urls, ttl=30) as late:
            with pytest.raises(LockTimeout):
                await late("x").acquire(wait=0.2)
            await use(late, "y")
            await all_vote(late)
        await lease.release()


@again
@pytest.mark.parametrize("how", ["kill -9", "SAVE"], ids=["killed", "shut down"])
async def test_a_node_with_snapshots_only_is_quarantined_after_a_restart(how, nodes):
    """Its snapshot may be old: it has the record, but another process answers."""
    urls = nodes.add(3, "--save", "3600 1")
    async with Redlock(urls, ttl=1) as redlock:
        watch = Watch(redlock)
        await use(redlock)
        await all_vote(redlock)
        nodes.ask(nodes.servers[0], "SAVE")
        before = nodes.ask(nodes.servers[0], "HGETALL", RECORD)
        nodes.restart(0, how)
        event = await watch.first()
        assert "it restarted without its data: it votes again in" in str(event.error)
        assert 0 < event.seconds < 1.1
        again = nodes.ask(nodes.servers[0], "HGETALL", RECORD)
        assert again["id"] != before["id"]
        assert {name for name in before if name.startswith("node:")} < set(again)
        await watch.over()
        await all_vote(redlock)


async def test_a_majority_that_lost_its_data_waits_for_the_longest_ttl(nodes):
    """The third node is the only one that may know a lease."""
    urls = nodes.add(3)
    async with Redlock(urls, ttl=1) as redlock:
        await use(redlock)
        await all_vote(redlock)
    for index in (0, 1):
        nodes.restart(index)
    started = time.monotonic()
    async with Redlock(urls, ttl=1) as redlock:
        with pytest.raises(QuorumUnavailable, match="the cluster is new, or a majority of it lost its data"):
            await redlock("x").acquire(wait=0)
        async with redlock("x", wait=5):
            assert 0.9 < time.monotonic() - started < 3
        await all_vote(redlock)


@again
async def test_the_longest_ttl_is_not_forgotten_with_the_node_that_granted_it(nodes):
    """One node was down and never knew of it, the other one that did forgets it, and the third cannot be reached."""
    urls = nodes.add(3, *DURABLE)
    async with Redlock(urls, ttl=0.5) as redlock:
        await use(redlock)
        await all_vote(redlock)
    nodes.addresses[2].cut()
    async with Redlock(urls, ttl=2) as longer:
        lease = await longer("x").acquire()
        valid_until = time.monotonic() + lease.remaining
        lease.detach()  # the holder cannot reach the nodes that the others reach, and they cannot reach it
    nodes.ask(nodes.servers[1], "FLUSHALL")
    nodes.restart(2)
    nodes.addresses[2].heal()
    async with Redlock(without(urls, 0), ttl=0.5) as late:
        with pytest.raises(QuorumUnavailable, match="too few other nodes that kept theirs can be asked"):
            await late("x").acquire(wait=1)
    async with Redlock(urls, ttl=0.5) as late:
        async with late("x", wait=10):  # the first node knows the ttl
            assert time.monotonic() > valid_until
        await all_vote(late)


@again
@pytest.mark.parametrize("delay", [0.0, 0.02, 0.1])
async def test_a_majority_without_data_does_not_outvote_the_node_that_answers_later(delay, nodes):
    """A new client waits for it, however far it is: it is the only one that knows the lease."""
    urls = nodes.add(3)
    async with Redlock(urls, ttl=2) as redlock:
        await use(redlock)
        await all_vote(redlock)
        lease = await redlock("x").acquire()
        valid_until = time.monotonic() + lease.remaining
        lease.detach()  # no client that knows the nodes tells them anything
    nodes.addresses[0].delay(delay)
    nodes.restart(1)
    nodes.restart(2)
    async with Redlock(urls, ttl=1) as late:
        async with late("x", wait=10):
            assert time.monotonic() > valid_until
        await all_vote(late)


@again
async def test_a_longer_ttl_puts_no_voting_node_out(nodes):
    """None of their data is older than the first lease with it."""
    urls = nodes.add(3)
    async with Redlock(urls, ttl=1) as redlock:
        watch = Watch(redlock)
        await use(redlock)
        await all_vote(redlock)
        async with Redlock(urls, ttl=3600) as longer:
            await use(longer)
            await all_vote(longer)
            await use(redlock)
            await all_vote(redlock)
        async with Redlock(urls, ttl=7200) as late, late("x"):
            await all_vote(late)
    assert watch.quarantined == []
    assert [nodes.ask(each, "HGET", RECORD, "ttl") for each in nodes.servers] == ["7200000"] * 3


# New clusters


async def test_a_new_cluster_works_at_once(nodes):
    """Its first client hears from all nodes, and each of them records that it was there."""
    urls = nodes.add(3)
    started = time.monotonic()
    async with Redlock(urls, ttl=60, wait=10) as redlock, redlock("x"):
        assert time.monotonic() - started < 5
    records = [nodes.ask(each, "HGETALL", RECORD) for each in nodes.servers]
    assert [each["origin"] for each in records] == ["founded"] * 3
    ids = {each["id"] for each in records}
    assert len(ids) == 3
    for each in records:
        assert {name.removeprefix("node:") for name in each if name.startswith("node:")} == ids


async def test_many_clients_that_come_together_found_one_cluster(nodes):
    """At once, and they exclude each other."""
    urls = nodes.add(3)
    held = []

    async def work():
        async with Redlock(urls, ttl=60, wait=20) as redlock, redlock("x"):
            held.append(1)
            assert len(held) == 1
            await asyncio.sleep(0)
            held.clear()

    started = time.monotonic()
    await asyncio.gather(*(work() for _ in range(10)))
    assert time.monotonic() - started < 15
    records = [nodes.ask(each, "HGETALL", RECORD) for each in nodes.servers]
    assert [each["origin"] for each in records] == ["founded"] * 3
    assert len({each["founding"] for each in records}) == 1


async def test_a_new_cluster_of_which_one_node_is_down_works_after_a_ttl(nodes):
    """That node could be one that has granted a lease."""
    urls = nodes.add(2)
    started = time.monotonic()
    async with Redlock(without([*urls, urls[0]], 2), ttl=1) as redlock:
        with pytest.raises(QuorumUnavailable, match="the cluster is new, or a majority of it lost its data"):
            await redlock("x").acquire(wait=0)
        async with redlock("x", wait=5):
            assert 0.9 < time.monotonic() - started < 3
    records = [nodes.ask(each, "HGETALL", RECORD) for each in nodes.servers]
    assert [each["origin"] for each in records] == ["joined"] * 2


# Looks


@again
async def test_a_client_that_takes_no_lock_leaves_no_trace(nodes):
    """Whatever it asks, of a cluster that is new; the nodes count as fit to vote."""
    urls = nodes.add(3)
    async with Redlock(urls, node_timeout=2) as redlock:
        assert all(each.can_vote for each in await redlock.status())
        assert (await redlock.health()).ready
        assert await redlock.inspect("x") is None
        assert await redlock.inspect_semaphore("x") is None
        assert await redlock.list_locks() == []
        assert not await redlock.force_release("x")
    program = [sys.executable, "-m", "redlock_async", "status"]
    status = await asyncio.create_subprocess_exec(
        *program,
        env={**os.environ, "REDLOCK_NODES": ",".join(urls), "REDLOCK_NODE_TIMEOUT": "2"},
        stdout=subprocess.DEVNULL,
    )
    assert await status.wait() == 0
    assert [nodes.ask(each, "KEYS", "*") for each in nodes.servers] == [[]] * 3


async def test_a_look_at_a_cluster_in_use_says_which_nodes_vote(nodes):
    """A node that is back without its data has no record until a client takes a lock."""
    urls = nodes.add(3)
    async with Redlock(urls, ttl=1) as redlock:
        await use(redlock)
        await all_vote(redlock)
    nodes.restart(1)
    async with Redlock(urls, ttl=1) as redlock:
        assert [each.can_vote for each in await redlock.status()] == [True, False, True]
        assert "it has no data" in (await redlock.status())[1].error
        assert (await redlock.health()).ready
    assert nodes.ask(nodes.servers[1], "KEYS", "*") == []


async def test_a_client_that_only_looks_reports_a_quarantine_and_its_end(nodes):
    """As `status --watch` and a monitor do; another client takes the locks."""
    urls = nodes.add(3)
    async with Redlock(urls, ttl=1) as redlock, Redlock(urls, ttl=1) as onlooker:
        await use(redlock)
        await all_vote(redlock)
        watch = Watch(onlooker)
        await all_vote(onlooker)
        nodes.restart(1)
        assert (await watch.first()).node in urls[1]
        await watch.over()
        await all_vote(onlooker)


async def test_a_client_that_only_looks_knows_which_nodes_vote_while_the_others_are_down(nodes):
    """It has seen that they may; too few are left to say so again."""
    urls = nodes.add(3)
    async with Redlock(urls) as redlock:
        await use(redlock)
        await all_vote(redlock)
    async with Redlock(urls) as onlooker:
        await all_vote(onlooker)
        for index in (0, 1):
            nodes.addresses[index].cut()
        async with asyncio.timeout(10):
            while onlooker.statistics().nodes_up > 1:  # noqa: ASYNC110 - the statistics have no event
                await asyncio.sleep(0.005)
        assert [each.can_vote for each in await onlooker.status()] == [False, False, True]
