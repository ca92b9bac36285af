"""Nodes that are killed, frozen, cut off, restarted empty, or lose keys: on five real servers."""

import asyncio
import os
import socket
import statistics
import time
from contextlib import contextmanager

import pytest
import redis

from redlock_async import LockLost, LockTimeout, QuorumUnavailable, Redlock
from redlock_async.testing import LocalCluster

pytestmark = pytest.mark.asyncio


def seeing(cluster):
    """Plain connections to a cluster's nodes."""
    return [redis.Redis.from_url(url, socket_timeout=2) for url in cluster.urls]


async def pair(lock):
    """The time of one acquire and release."""
    started = time.perf_counter()
    await (await lock.acquire()).release()
    return time.perf_counter() - started


async def settled(*clients):
    """Wait until the last answers of what was measured before are in: they must not be counted twice."""
    nodes = [node for client in clients for node in client._running.context.nodes]
    while any(node.live is not None and node.live.pending for node in nodes):  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0)


async def alternating(first, second, rounds=200):
    """The median times of both, measured in turns and each first as often: the machine's moods hit them alike."""
    locks, times = (first("x"), second("x")), ([], [])
    for number in range(rounds):
        for which in (0, 1) if number % 2 else (1, 0):
            await settled(first, second)
            times[which].append(await pair(locks[which]))
    return statistics.median(times[0]), statistics.median(times[1])


@contextmanager
def cpus_of_their_own(*clusters):
    """Keep this process on one CPU and all servers on another.

    Otherwise the median depends more on which servers share a CPU with this process than on what is compared.
    """
    before = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if len(before) < 2:
        yield
        return
    for pid in filter(None, (pid for cluster in clusters for pid in cluster.pids)):
        os.sched_setaffinity(pid, before[1:])
    os.sched_setaffinity(0, before[:1])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def unresolvable(cluster, number):
    return [*cluster.urls[number:], *(f"redis://no-such-host-{i}.invalid:6379" for i in range(number))]


def refusing(cluster, number):
    ports = []
    for _ in range(number):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            ports.append(probe.getsockname()[1])
    return [*cluster.urls[number:], *(f"redis://127.0.0.1:{port}" for port in ports)]


def killed(cluster, number):
    for index in range(number):
        cluster.kill(index)
    return cluster.urls


def frozen(cluster, number):
    for index in range(number):
        cluster.pause(index)
    return cluster.urls


FAULTS = [killed, frozen, unresolvable, refusing]


@pytest.mark.alone
@pytest.mark.share(4)
@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
async def test_a_minority_that_fails_makes_nothing_slower(fault, number, cluster):
    """With one and two of five masters failing from the start, acquire succeeds and its median hardly moves."""
    async with LocalCluster(5) as healthy, Redlock(healthy.urls) as control, Redlock(fault(cluster, number)) as redlock:
        with cpus_of_their_own(healthy, cluster):
            await alternating(control, redlock, rounds=100)
            good, faulty = await alternating(control, redlock, rounds=500)
        print(f"median {good * 1e6:.0f} µs healthy, {faulty * 1e6:.0f} µs with {number} {fault.__name__}")
        assert faulty <= 1.2 * good


@pytest.mark.parametrize("fault", [killed, frozen], ids=lambda fault: fault.__name__)
async def test_a_minority_that_fails_under_way_is_noticed_once(fault, cluster):
    """When two masters fail while in use, no acquire fails, and none takes longer than one node timeout."""
    async with Redlock(cluster.urls, node_timeout=0.1) as redlock:
        lock = redlock("x")
        await pair(lock)
        fault(cluster, 2)
        slowest = max([await pair(lock) for _ in range(300)])
        assert slowest < 0.1 + 0.05


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
async def test_without_a_quorum_each_node_and_its_cause_is_named(fault, cluster):
    """With three of five failing, QuorumUnavailable comes within `wait` and names what each of them did."""
    async with Redlock(fault(cluster, 3), node_timeout=0.1, wait=1.0) as redlock:
        started = time.monotonic()
        with pytest.raises(QuorumUnavailable, match=r"only 2 of 5 nodes could vote and 3 are needed") as caught:
            await redlock("x").acquire()
        assert time.monotonic() - started < 1.0 + 0.15
        assert len(caught.value.nodes) == 3
        assert all(str(cause) and label in str(caught.value) for label, cause in caught.value.nodes.items())
        assert caught.value.names == ("x",)


async def test_try_acquire_tells_an_outage_from_contention(cluster):
    """Without a quorum try_acquire raises; only somebody else's lock makes it None."""
    async with Redlock(cluster.urls, node_timeout=0.1) as redlock, Redlock(cluster.urls, node_timeout=0.1) as other:
        async with other("x"):
            assert await redlock("x").try_acquire() is None
            assert await other("x").try_acquire() is None
        killed(cluster, 3)
        with pytest.raises(QuorumUnavailable):
            await redlock("x").try_acquire()


async def test_a_quorum_that_comes_back_ends_the_wait(cluster, eventually):
    """A waiter gets its lock soon after the third master is back."""
    async with Redlock(cluster.urls, node_timeout=0.1, wait=10) as redlock:
        await pair(redlock("x"))
        frozen(cluster, 3)
        waiting = asyncio.create_task(pair(redlock("x")))
        await eventually(lambda: redlock.statistics().nodes_up == 2)
        cluster.resume(0)
        resumed = time.monotonic()
        await waiting
        print(f"recovered {time.monotonic() - resumed:.3f} s after the third master resumed")
        assert time.monotonic() - resumed < 1


@pytest.mark.alone
@pytest.mark.parametrize("how", ["release", "cancel"])
async def test_a_frozen_node_that_resumes_holds_no_orphan(how, cluster, eventually):
    """What a frozen node was sent before it was given up is undone as soon as it resumes."""
    eyes = seeing(cluster)
    async with Redlock(cluster.urls, node_timeout=0.1) as redlock:
        await pair(redlock("warm"))
        frozen(cluster, 1)
        if how == "release":
            for number in range(20):
                await pair(redlock(f"x{number}"))
        else:
            frozen(cluster, 3)
            with pytest.raises(QuorumUnavailable):
                await redlock("x").acquire(wait=0.5)
        await asyncio.sleep(0.3)  # long enough for the node to be given up and others to be tried
        for index in range(3):
            cluster.resume(index)
        took = await eventually(lambda: not any(k for eye in eyes for k in eye.keys("*") if b"redlock-async:" not in k))
        print(f"clean {took:.3f} s after resuming")
        assert took < 0.1


async def test_keys_deleted_on_a_majority_cancel_the_body_at_once(nodes, eyes):
    """The body ends with LockLost within 50 ms, long before its deadline."""
    async with Redlock(nodes, ttl=10) as redlock:
        deleted = None
        left = None
        with pytest.raises(LockLost, match="majority"):
            async with redlock("x") as lease:
                await asyncio.sleep(0.05)
                for eye in eyes.clients[:3]:
                    eye.delete("x")
                deleted = time.monotonic()
                try:
                    await asyncio.sleep(60)
                finally:
                    took, left = time.monotonic() - deleted, lease.lost
        print(f"cancelled {took * 1000:.1f} ms after the last deletion")
        assert took < 0.05
        assert left
        assert lease.lost
        assert not lease.valid


async def test_keys_deleted_in_the_first_moment_are_noticed_too(nodes, eyes):
    """A lease that is deleted before anything was armed is lost within 50 ms all the same."""
    async with Redlock(nodes, ttl=10) as redlock:
        with pytest.raises(LockLost):
            async with redlock("x"):
                for eye in eyes.clients:
                    eye.delete("x")
                deleted = time.monotonic()
                await asyncio.sleep(60)
        assert time.monotonic() - deleted < 0.05


async def test_keys_deleted_on_a_minority_are_repaired(nodes, eyes, eventually):
    """Two of five keys that vanish are set again, and the lease goes on."""
    async with Redlock(nodes, ttl=3) as redlock:
        async with redlock("x") as lease:
            await asyncio.sleep(0.05)
            for eye in eyes.clients[:2]:
                eye.delete("x")
            await eventually(lambda: None not in eyes.holding("x"), within=1.5)
            assert lease.valid
            assert set(eyes.holding("x")) == {lease.token.encode()}
            await eventually(lambda: lease.spare_votes == 2)
            assert redlock.statistics().repaired == 2
        assert eyes.keys() == []


async def test_a_lease_is_renewed_for_as_long_as_the_body_runs(nodes):
    """A body of several ttls keeps its lock."""
    async with Redlock(nodes, ttl=0.3) as redlock, Redlock(nodes) as other:
        async with redlock("x") as lease:
            token = lease.fencing_token
            for _ in range(20):
                await asyncio.sleep(0.05)
                assert lease.valid
                assert await other("x").try_acquire() is None
            assert lease.fencing_token == token
        assert redlock.statistics().extended >= 8


async def test_the_body_ends_before_the_lease_when_renewal_fails(cluster):
    """With three masters frozen the body is cancelled while the lease is still valid, and ends in LockLost."""
    async with Redlock(cluster.urls, ttl=1, node_timeout=0.1) as redlock:
        with pytest.raises(LockLost, match="no majority"):
            async with redlock("x") as lease:
                await asyncio.sleep(0.1)
                frozen(cluster, 3)
                try:
                    await asyncio.sleep(60)
                finally:
                    at_the_end = lease.valid, lease.remaining, lease.lost
        assert at_the_end[0]
        assert at_the_end[1] > 0
        assert at_the_end[2]
        for index in range(3):
            cluster.resume(index)


async def test_a_short_outage_is_ridden_out(cluster):
    """Three masters that freeze for less than a ttl cost no lease."""
    async with Redlock(cluster.urls, ttl=2, node_timeout=0.1) as redlock, redlock("x") as lease:
        await asyncio.sleep(0.05)
        frozen(cluster, 3)
        await asyncio.sleep(1.2)
        for index in range(3):
            cluster.resume(index)
        await asyncio.sleep(1.5)
        assert lease.valid


@pytest.mark.parametrize("connected", [True, False], ids=["connected before", "connected after"])
async def test_a_node_restarted_empty_does_not_make_a_second_holder(connected, cluster, eventually):
    """A lease stands on exactly a majority and one of those restarts empty: the three that are free elect nobody."""
    with socket.socket() as one, socket.socket() as two:
        ports = [sock.bind(("127.0.0.1", 0)) or sock.getsockname()[1] for sock in (one, two)]
    cut_off = [*cluster.urls[:3], *(f"redis://127.0.0.1:{port}" for port in ports)]
    async with Redlock(cluster.urls, ttl=5) as other, Redlock(cut_off, ttl=5) as redlock:
        await pair(other("warm"))
        if not connected:
            await other.aclose()
        # Not renewed, so that nothing repairs the node.
        lease = await redlock("x", renew=False).acquire()
        assert lease.spare_votes == 0
        cluster.restart(0)
        if connected:
            await eventually(lambda: other.statistics().nodes_up == 4)
        with pytest.raises(LockTimeout):
            await other("x").acquire(wait=0.3)
        (quarantined,) = [status for status in await other.status() if not status.can_vote]
        assert quarantined.label in cluster.urls[0]
        assert "restarted without its data" in quarantined.error
        assert lease.valid


async def test_a_restarted_node_votes_again_after_the_longest_ttl(cluster, eventually):
    """The node that lost its data is quarantined for one ttl, by its age, and then counts."""
    async with Redlock(cluster.urls, ttl=1.0) as redlock:
        await pair(redlock("x"))
        await asyncio.sleep(0.2)
        cluster.restart(0)
        await eventually(lambda: redlock.statistics().nodes_up == 4, within=1)
        started = time.monotonic()
        await eventually(lambda: redlock.statistics().nodes_up == 5, within=3)
        assert 0.5 < time.monotonic() - started < 2


async def test_a_longer_ttl_of_another_client_counts_for_the_hold(cluster):
    """A node is quarantined for the longest ttl that any client uses, not for that of the client that connects."""
    async with Redlock(cluster.urls, ttl=1.0) as redlock, Redlock(cluster.urls, ttl=1.0) as long:
        await pair(redlock("x"))
        await pair(long("y", ttl=30))
        cluster.restart(0)
        async with Redlock(cluster.urls, ttl=1.0) as late:
            await pair(late("z"))
            async with asyncio.timeout(5):
                while not (told := [each.error for each in await late.status() if "again in" in (each.error or "")]):  # noqa: ASYNC110 - asked anew each time
                    await asyncio.sleep(0.01)
            (reason,) = told
            assert float(reason.split("votes again in ")[1].split(" ")[0]) > 25


async def test_a_flush_is_noticed_on_a_live_connection(cluster, eventually):
    """FLUSHALL on one node takes its vote, and a lease that stood there is repaired."""
    eyes = seeing(cluster)
    async with Redlock(cluster.urls, ttl=2) as redlock, redlock("x") as lease:
        await asyncio.sleep(0.1)
        eyes[1].flushall()
        await eventually(lambda: redlock.statistics().nodes_up == 4, within=0.2)
        await eventually(lambda: eyes[1].get("x") == lease.token.encode(), within=0.2)
        assert lease.valid


async def test_a_fresh_cluster_works_at_once(new_cluster):
    """The first client that takes a lock hears from all nodes, and founds it."""
    async with Redlock(new_cluster.urls) as redlock:
        await pair(redlock("x"))
        assert redlock.statistics().nodes_up == 5


async def test_strict_restart_waits_out_even_a_fresh_cluster(new_cluster):
    """With strict_restart nobody votes before the longest ttl is over."""
    async with Redlock(new_cluster.urls, ttl=0.6, strict_restart=True) as redlock:
        started = time.monotonic()
        with pytest.raises(QuorumUnavailable, match="votes again"):
            await redlock("x").try_acquire()
        await (await redlock("x").acquire(wait=3)).release()
        assert 0.5 < time.monotonic() - started < 1.5


@pytest.mark.parametrize("fencing", [True, False], ids=["fenced", "plain"])
@pytest.mark.parametrize("broken", [True, False], ids=["broken", "silent"])
@pytest.mark.usefixtures("embedded")
async def test_a_set_that_arrives_after_its_own_release_is_no_orphan(broken, fencing, eventually):
    """Bytes that a network held back until their connection was replaced do nothing on the server."""
    async with LocalCluster(5, proxied=True) as cluster:
        eyes = [redis.Redis(port=port) for port in server_ports(cluster)]
        async with Redlock(cluster.urls, node_timeout=0.1, fencing=fencing) as redlock:
            await pair(redlock("warm"))
            for index in range(3):
                cluster.stall_requests(index)
            attempt = asyncio.create_task(redlock("x").try_acquire())
            if broken:
                # Our end of the connection breaks with the SET on its way and its release not sent yet.
                await eventually(lambda: eyes[3].exists("x"))
                for node in redlock._running.context.nodes[:3]:
                    node.connection.abort()
            with pytest.raises(QuorumUnavailable):
                await attempt
            await eventually(lambda: redlock.statistics().nodes_up == 5, within=3)
            for index in range(3):
                cluster.heal(index)
            # Whatever was held back has arrived when a pair that was sent later is through.
            await pair(redlock("y"))
            for _ in range(20):
                assert not any(eye.exists("x") for eye in eyes)
                await asyncio.sleep(0.005)


def server_ports(cluster):
    """The ports of the servers themselves, behind their proxies."""
    return [server.port for server in cluster._servers]


async def test_scripts_that_a_server_forgot_are_sent_again(nodes, eyes, eventually):
    """SCRIPT FLUSH on every node costs nobody a lock, and no key stays."""
    async with Redlock(nodes, ttl=0.5) as redlock:
        await pair(redlock("x"))
        for eye in eyes.clients:
            eye.script_flush()
        lease = await redlock("x", "y").acquire()
        for eye in eyes.clients:
            eye.script_flush()
        await lease.extend()
        for eye in eyes.clients:
            eye.script_flush()
        await lease.release()
        await eventually(lambda: not eyes.keys())  # a majority has confirmed it; the others are being sent the source


async def test_connections_that_are_killed_come_back(nodes, eyes, eventually):
    """CLIENT KILL of everything loses no lease."""
    async with Redlock(nodes, ttl=2) as redlock:
        async with redlock("x") as lease:
            for eye in eyes.clients:
                eye.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            await eventually(lambda: redlock.statistics().nodes_up == 5)
            await lease.extend()
            assert lease.valid
        assert eyes.keys() == []
