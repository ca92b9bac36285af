"""The quorum and the set of nodes, on which all clients of a namespace must agree, on real servers."""

import asyncio
import json
import os
import subprocess
import sys
import time
from contextlib import AsyncExitStack

import pytest
import pytest_asyncio

from redlock_async import ConfigurationError, LockLost, QuorumUnavailable, Redlock
from redlock_async.testing import LocalCluster
from redlock_async.testing._raw import clear_nodes, send_command

pytestmark = [pytest.mark.asyncio, pytest.mark.redis, pytest.mark.usefixtures("embedded")]

TTL = 2.0


@pytest_asyncio.fixture
async def nodes():
    """Five servers that nobody has used."""
    async with LocalCluster(5, new_cluster=True) as cluster:
        yield cluster


def client(nodes, names="ABCDE", **options):
    """A client of these nodes."""
    return Redlock(urls(nodes, names), ttl=TTL, **options)


def urls(nodes, names="ABCDE"):
    """The addresses of nodes that are named by letters."""
    return [nodes.urls["ABCDE".index(name)] for name in names]


def labels(nodes, names):
    """The nodes as messages name them."""
    return ", ".join(url.removeprefix("redis://") for url in urls(nodes, names))


async def use(redlock, name="warm"):
    """Take a lock and free it."""
    await (await redlock(name).acquire()).release()


async def refusal(redlock):
    """The message of the error."""
    with pytest.raises(ConfigurationError) as caught:
        await redlock("x").acquire(wait=0.5)
    return str(caught.value)


CONFIGURATIONS = {
    "more nodes": (("ABC", None), ("ABCDE", None)),
    "fewer nodes": (("ABCDE", None), ("ABC", None)),
    "other nodes": (("ABC", None), ("ABD", None)),
    "hardly the same nodes": (("ABC", None), ("CDE", None)),
    "one node": (("ABC", None), ("B", None)),
    "a larger quorum": (("ABCDE", None), ("ABCDE", 4)),
    "a smaller quorum": (("ABCDE", 5), ("ABCDE", None)),
}


@pytest.mark.parametrize("which", CONFIGURATIONS)
async def test_a_client_with_another_configuration_takes_no_lock(which, nodes):
    """The first one decides. The error names both, and the first one goes on."""
    (first, k), (second, other_k) = CONFIGURATIONS[which]
    async with client(nodes, first, quorum=k) as redlock, client(nodes, second, quorum=other_k) as other:
        async with redlock("x") as lease:
            message = await refusal(other)
            quorum, needed = redlock.statistics().quorum, other.statistics().quorum
            assert f"configured with quorum={needed} of {len(second)} nodes ({labels(nodes, second)})" in message
            assert f"in use with quorum={quorum} of {len(first)} nodes ({labels(nodes, first)})" in message
            why = "need the same quorum" if {*first} == {*second} else "their quorums might not overlap"
            assert why in message
            await lease.extend()
        await use(redlock)
        assert message == await refusal(other)  # also when nothing is locked
        async with client(nodes, second, quorum=other_k) as late:
            assert message == await refusal(late)


async def test_a_client_that_only_looked_before_is_refused_too(nodes):
    """Nothing was recorded when it connected. What takes no lock goes on."""
    async with client(nodes) as looked, client(nodes, "ABC") as redlock:
        assert all(node.can_vote for node in await looked.status())
        assert (await looked.health()).ready
        async with redlock("x"):
            assert "might not overlap" in await refusal(looked)
            assert len(await looked.status()) == 5
            await looked.list_locks()
            health = await looked.health()
            assert not health.ready
            assert all("might not overlap" in why for why in health.reasons.values())


async def test_a_client_that_never_locked_is_not_ready(nodes):
    """Its readiness probe says so before its first lock would fail."""
    async with client(nodes, "ABC") as redlock:
        await use(redlock)
        async with client(nodes) as other:
            assert not (await other.health()).ready


async def test_other_namespaces_and_emptied_nodes_may_have_other_configurations(nodes):
    """Tests use three of five nodes, for example."""
    async with client(nodes) as redlock:
        await use(redlock)
    async with client(nodes, "ABC", namespace="other:") as redlock:
        await use(redlock)
    for url in nodes.urls:
        send_command(int(url.rpartition(":")[2]), "FLUSHALL")
    async with client(nodes, "CDE") as redlock:
        await use(redlock)


async def test_a_node_that_lost_its_data_still_belongs_to_the_set(nodes, eventually):
    """To clients that are connected, and to new ones; it is told what it has forgotten."""
    async with client(nodes, "ABC") as redlock:
        await use(redlock)
        send_command(int(nodes.urls[2].rpartition(":")[2]), "FLUSHALL")
        await use(redlock)
        port = int(nodes.urls[2].rpartition(":")[2])
        await eventually(lambda: send_command(port, "HGET", "redlock-async:node", "charter") is not None, within=5)
        async with client(nodes, "ABC") as other:
            await use(other)
        async with client(nodes, "CDE") as other:
            await refusal(other)


async def test_the_same_nodes_at_other_addresses_are_known(nodes):
    """As localhost, all of them or one; another set is not, even if all addresses are new."""
    local = [url.replace("127.0.0.1", "localhost") for url in nodes.urls]
    async with client(nodes, "ABC") as redlock:
        await use(redlock)
    for some in (local[:3], [local[0], *nodes.urls[1:3]], [*nodes.urls[:2], local[2]]):
        async with Redlock(some, ttl=TTL) as redlock:
            await use(redlock)
    for some in (local[2:5], [local[0], *nodes.urls[2:4]], [*nodes.urls[1:3], local[4]], local):
        async with Redlock(some, ttl=TTL) as redlock:
            await refusal(redlock)


@pytest.mark.parametrize("used", [False, True], ids=["new nodes", "nodes that have voted"])
async def test_clients_with_different_addresses_can_start_together(nodes, used):
    """Only one of them records its addresses, and the others wait until the nodes say which of them they are."""
    hosts, ports = ("127.0.0.1", "127.1", "127.0.1"), [int(url.rpartition(":")[2]) for url in nodes.urls]
    for _ in range(10):
        for port in ports:
            send_command(port, "FLUSHALL")
        if used:
            clear_nodes(ports, "", time.time_ns() // 1000)
        async with AsyncExitStack() as stack:
            clients = [Redlock([f"redis://{host}:{port}" for port in ports], ttl=TTL) for host in hosts]
            for each in clients:
                stack.push_async_callback(each.aclose)
            await asyncio.gather(*(use(each, host) for each, host in zip(clients, hosts, strict=True)))
            await asyncio.gather(*(use(each) for each in clients))


async def test_a_client_that_stops_while_it_is_the_first_keeps_nobody_out(nodes):
    """It has recorded its addresses on one node. A client with other addresses goes on from there."""
    ports = [int(url.rpartition(":")[2]) for url in nodes.urls]
    async with client(nodes) as first:
        await use(first)
    for port in ports[1:]:
        send_command(port, "HDEL", "redlock-async:node", "charter")
    async with Redlock([f"redis://127.1:{port}" for port in ports], ttl=TTL) as second:
        await use(second)
        assert "127.0.0.1" in await refusal(client(nodes, "ABC"))
    for port in ports:
        assert "127.0.0.1" in send_command(port, "HGET", "redlock-async:node", "charter")


async def test_clients_that_start_together_agree_on_one_configuration(nodes):
    """On nodes that nobody has used: those of one configuration take locks, and all others are refused."""
    configurations = ["ABC", "CDE", "ABCDE", "BCD"] * 2
    clients = [client(nodes, each) for each in configurations]
    done = await asyncio.gather(*(use(each, f"name {at}") for at, each in enumerate(clients)), return_exceptions=True)
    took = {each for each, error in zip(configurations, done, strict=True) if error is None}
    assert len(took) <= 1, done
    assert all(error is None or isinstance(error, ConfigurationError | QuorumUnavailable) for error in done), done
    await asyncio.gather(*(each.aclose() for each in clients))


# A larger quorum


@pytest_asyncio.fixture
async def four():
    """Five servers, and a client that needs the votes of four of them."""
    async with LocalCluster(5) as cluster, client(cluster, quorum=4, node_timeout=0.5) as redlock:
        await use(redlock)
        yield cluster, redlock


async def test_a_lease_needs_so_many_votes(four, eventually):
    """One node may be down, and not two; a majority would still be up."""
    cluster, redlock = four
    async with redlock("x") as lease:
        await eventually(lambda: lease.spare_votes == 1, within=5)
        await asyncio.to_thread(cluster.pause, 0)
        await lease.extend()
        await eventually(lambda: lease.spare_votes == 0, within=5)
        assert lease.valid
    assert redlock.statistics().quorum == 4
    await asyncio.to_thread(cluster.pause, 1)
    with pytest.raises(QuorumUnavailable, match="4 are needed"):
        await redlock("y").acquire(wait=0.5)
    health = await redlock.health()
    assert (health.ready, health.nodes_up, health.quorum) == (False, 3, 4)
    await asyncio.to_thread(cluster.resume, 0)
    await use(redlock)


async def test_every_kind_needs_so_many_votes(four, eventually):
    """And works with them; the votes of three are not enough for any."""
    cluster, redlock = four

    def attempts(wait):
        """Coroutine functions, so that each is awaited where it is called."""
        latch = redlock.latch("latch", count=1)
        return {
            "fair": lambda: redlock.fair_lock("fair").acquire(wait=wait),
            "read": lambda: redlock.read_lock("shared").acquire(wait=wait),
            "write": lambda: redlock.write_lock("alone").acquire(wait=wait),
            "semaphore": lambda: redlock.semaphore("slots", permits=2).acquire(wait=wait),
            "several": lambda: redlock("one", "two").acquire(wait=wait),
            "latch": lambda: latch.count_down("event"),
            "remaining": latch.remaining,
        }

    for kind, attempt in attempts(5.0).items():
        lease = await attempt()
        if kind not in {"latch", "remaining"}:
            await eventually(lambda lease=lease: lease.spare_votes == 1, within=5)
            await lease.extend()
            await lease.release()
    await redlock.change_permits("others", 1)
    for index in (0, 1):
        await asyncio.to_thread(cluster.kill, index)
    for kind, attempt in attempts(0.3).items():
        with pytest.raises(QuorumUnavailable):
            raise AssertionError(f"{kind}: {await attempt()}")
    with pytest.raises(QuorumUnavailable):
        await redlock.change_permits("others", 2)


async def test_a_lease_that_keeps_only_a_majority_is_lost(four):
    """Its key is deleted on two nodes: three of five are no quorum here."""
    cluster, redlock = four
    lease = await redlock("x", renew=False).acquire()
    for url in cluster.urls[:2]:
        send_command(int(url.rpartition(":")[2]), "SET", "x", "another")
    with pytest.raises(LockLost):
        await lease.extend()
    assert lease.lost


def tool(urls, *arguments, **more):
    """Run the command line."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("REDLOCK_")}
    environ = {**kept, "REDLOCK_NODES": ",".join(urls), "PYTHONUTF8": "1", **more}
    command = [sys.executable, "-m", "redlock_async", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=30, env=environ)


@pytest.mark.parametrize("configured", [{"REDLOCK_QUORUM": "4"}, {}], ids=["told", "not told"])
async def test_operators_see_the_quorum_in_use(configured, four):
    """Even without the setting, because the nodes remember it."""
    cluster, _ = four
    found = await asyncio.to_thread(tool, cluster.urls, "status", **configured)
    assert (found.returncode, "5 of 5 nodes vote, 4 are needed: 1 more may fail" in found.stdout) == (0, True), found
    found = json.loads((await asyncio.to_thread(tool, cluster.urls, "status", "--json", **configured)).stdout)
    assert (found["quorum"], found["has_quorum"], found["nodes"][0]["quorum"]) == (4, True, 4)
    assert found["nodes"][0]["node_sets"] == [[url.removeprefix("redis://") for url in cluster.urls]]
    found = await asyncio.to_thread(tool, cluster.urls, "doctor", **configured)
    assert "5 of 5 nodes grant locks, 4 are needed: 1 may fail" in found.stdout, found
    for index in (0, 1):
        await asyncio.to_thread(cluster.kill, index)
    found = await asyncio.to_thread(tool, cluster.urls, "status", **configured)
    assert (found.returncode, "3 of 5 nodes vote, 4 are needed" in found.stdout) == (69, True), found
    found = await asyncio.to_thread(tool, cluster.urls, "doctor", **configured)
    assert found.returncode == 1
    assert "3 of 5 nodes grant locks, 4 are needed: no lock can be acquired" in found.stdout
