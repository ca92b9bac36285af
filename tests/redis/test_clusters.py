"""Whole Redis or Valkey Clusters as nodes, on real servers: all kinds of locks, migrated slots, failovers, outages."""

import asyncio
import json
import subprocess
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
import redis

from redlock_async import ConfigurationError, LockTimeout, QuorumUnavailable, Redlock, RedlockError
from redlock_async._rules.keys import slot_of, tag_of
from redlock_async.testing import LocalCluster
from redlock_async.testing._raw import send_command

pytestmark = pytest.mark.redis

TTL = 2
"""Seconds. A shard that may have forgotten a lease is quarantined for this and `GRACE`."""

GRACE = 1
"""Seconds that the tests of failovers give the old primary, instead of ten."""


@pytest.fixture(scope="module")
def one():
    """One cluster of three shards, the only node."""
    with LocalCluster(1, shards=3) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def three():
    """Three clusters of two shards each, three nodes."""
    with LocalCluster(3, shards=2) as cluster:
        yield cluster


@pytest.fixture(params=["one", "three"])
def clusters(request):
    """Both, one after the other."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def short_grace(monkeypatch):
    """The old primary of a failover gets less time."""
    for module in ("_transport.electorate", "_rules.voting"):
        monkeypatch.setattr(f"redlock_async.{module}.FAILOVER_GRACE", GRACE)


def names_by_shard(cluster, prefix="name"):
    """Return a name for each shard of the first node, in the order of the shards."""
    node = cluster.sharded[0]
    return [
        next(
            name
            for name in (f"{prefix}{number}" for number in range(1000))
            if node.owner_of(slot_of(name.encode())) is server
        )
        for server in node.primaries
    ]


async def eventually(condition, within=10.0):
    """Wait until a condition is true."""
    async with asyncio.timeout(within):
        while not condition():  # noqa: ASYNC110 - it is about servers, which notify nobody
            await asyncio.sleep(0.02)


async def free(lock):
    """Take a lock and free it; return its fencing token."""
    async with lock as lease:
        return lease.fencing_token


# All kinds of locks


@pytest.mark.asyncio
async def test_every_kind_of_lock_works_on_names_of_all_shards(clusters):
    """Exclusion, waiting, fencing and the operations of operators, each between two clients."""
    async with Redlock(clusters.urls, ttl=TTL, wait=5) as one, Redlock(clusters.urls, ttl=TTL, wait=5) as other:
        for name in names_by_shard(clusters):
            async with one(name) as lease:
                assert lease.spare_votes in {0, len(clusters) - lease._held.context.quorum}
                assert await other(name).try_acquire() is None
                with pytest.raises(LockTimeout) as caught:
                    await other(name).acquire(wait=0.05)
                assert caught.value.holder is not None
                waiting = asyncio.create_task(other(name).acquire())
                await asyncio.sleep(0.05)
                token = lease.fencing_token
            later = await waiting
            assert later.fencing_token > token
            await later.release()
            async with one.fair_lock(f"{name}:fair"):
                waiting = asyncio.create_task(free(other.fair_lock(f"{name}:fair")))
                await asyncio.sleep(0.05)
                assert not waiting.done()
            await waiting
            async with one.read_lock(f"{name}:doc"):
                assert await other.write_lock(f"{name}:doc").try_acquire() is None
                assert await free(other.read_lock(f"{name}:doc")) is not None
            async with one.write_lock(f"{name}:doc") as writing:
                assert await other.read_lock(f"{name}:doc").try_acquire() is None
                reading = await writing.downgrade()
                assert await free(other.read_lock(f"{name}:doc")) is not None
                await reading.release()
            async with one.semaphore(f"{name}:pool", 3, count=2), other.semaphore(f"{name}:pool", 3):
                assert await one.semaphore(f"{name}:pool", 3).try_acquire() is None
                state = await other.inspect_semaphore(f"{name}:pool")
                assert (state.permits, len(state.slots)) == (3, 3)
            await one.change_permits(f"{name}:pool", 4)
            await free(other.semaphore(f"{name}:pool", 4))
            latch, opened = one.latch(f"{name}:latch", 2), other.latch(f"{name}:latch", 2)
            await latch.count_down("first")
            waiting = asyncio.create_task(opened.wait(timeout=5))
            await asyncio.sleep(0.05)
            await latch.count_down("second")
            await waiting
            assert await opened.remaining() == 0
            job = await one.once(f"{name}:job", every=60).try_acquire()
            await job.release()
            assert await other.once(f"{name}:job", every=60).try_acquire() is None
            async with one.election(f"{name}:office", value="me").term():
                assert (await other.election(f"{name}:office").leader()).value == "me"
            async with one(f"{{{name}}}:a", f"{{{name}}}:b"):
                assert await other(f"{{{name}}}:b").try_acquire() is None


@pytest.mark.asyncio
async def test_operators_see_and_free_locks_of_all_shards(clusters):
    """They are listed, inspected, and freed by force; the status has a line for each shard."""
    names = names_by_shard(clusters, "seen")
    async with (
        Redlock(clusters.urls, ttl=TTL, namespace="app:") as one,
        Redlock(clusters.urls, namespace="app:") as other,
    ):
        leases = [await one(name).acquire() for name in names]
        leases += [await one.semaphore("{gpu}", 2).acquire(), await one.read_lock("{doc}s").acquire()]
        listed = {record.name: record for record in await other.list_locks() if record.held}
        assert {*names, "{gpu}", "{doc}s"} == listed.keys()
        assert {record.votes for record in listed.values()} <= {len(clusters), 2}
        assert {record.name for record in await other.list_locks("seen*")} == {*names}
        assert [record.kind for record in await other.list_locks("{gpu}")] == ["semaphore"]
        for name, lease in zip(names, leases, strict=False):
            assert (await other.inspect(name)).held
            assert await other.force_release(name)
            async with asyncio.timeout(1):
                assert await lease.wait_until_lost()
        for lease in leases[-2:]:
            await lease.release()
        status = await other.status()
        shards = len(clusters.sharded[0].primaries)
        assert len(status) == len(clusters) * shards
        assert all(each.up and each.can_vote and each.mode == "cluster" for each in status)
        assert Counter(each.cluster for each in status) == dict.fromkeys(
            [f"cluster:{url.removeprefix('redis+cluster://').partition('?')[0]}" for url in clusters.urls], shards
        )
        assert sum(each.slots for each in status) == 16_384 * len(clusters)
        health = await other.health()
        assert (health.ready, health.nodes_up, health.nodes) == (True, len(clusters), len(clusters))


@pytest.mark.asyncio
async def test_a_client_of_redis_py_stands_for_its_cluster(one):
    """It gives the servers to begin with and the settings of the connections."""
    client = redis.asyncio.RedisCluster(host="127.0.0.1", port=one.ports[0])
    async with Redlock([client], ttl=TTL) as redlock, Redlock(one.urls, ttl=TTL) as other:
        for name in names_by_shard(one, "client"):
            async with redlock(name):
                assert await other(name).try_acquire() is None
    await client.aclose()


@pytest.mark.asyncio
async def test_names_that_are_locked_together_need_a_common_hash_tag(one):
    """Otherwise no script could lock them at once."""
    async with Redlock(one.urls) as redlock:
        with pytest.raises(ConfigurationError, match="common hash tag"):
            redlock("order:7", "stock:9")


@pytest.mark.asyncio
async def test_a_shard_that_has_forgotten_the_scripts_is_sent_them(one):
    """Each shard by itself."""
    async with Redlock(one.urls, ttl=TTL) as redlock:
        for name, server in zip(names_by_shard(one, "scripts"), one.sharded[0].primaries, strict=True):
            async with redlock(name):
                send_command(server.port, "SCRIPT", "FLUSH")
            await free(redlock(name))


@pytest.mark.asyncio
async def test_one_server_of_a_cluster_is_no_node(one):
    """The message says how to use the whole cluster."""
    url = f"redis://127.0.0.1:{one.ports[0]}"
    with pytest.raises(ConfigurationError, match=r"cluster mode.*redis\+cluster://"):
        async with Redlock([url]):
            pass


@pytest.mark.asyncio
async def test_a_server_that_is_no_cluster_is_refused_as_one():
    """It does not know its slots."""
    with LocalCluster(1) as single:
        async with Redlock([single.urls[0].replace("redis://", "redis+cluster://")], wait=0.3) as redlock:
            with pytest.raises(QuorumUnavailable, match="cluster support disabled"):
                await redlock("x").acquire()


def contend(clusters, leases, names):
    """Run four processes that contend for these names; return what each held."""
    command = [sys.executable, str(Path(__file__).with_name("cluster_contender.py")), str(leases), ",".join(names)]
    processes = [
        subprocess.Popen([*command, *clusters.urls], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    try:
        for process in processes:
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            process.stdin.write("go\n")
            process.stdin.flush()
        return [json.loads(process.communicate(timeout=120)[0]) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def check_exclusion(held):
    """No two leases of a name overlap, and the tokens of each name increase."""
    by_name = {}
    for name, *lease in held:
        by_name.setdefault(name, []).append(lease)
    for leases in by_name.values():
        leases.sort()
        for (_, left, token), (entered, _, next_token) in pairwise(leases):
            assert left <= entered
            assert token < next_token
    return by_name


def test_four_processes_contend_for_names_of_all_shards(clusters):
    """No overlap, and the fencing tokens of each name increase."""
    names = names_by_shard(clusters, "contended")
    held = [lease for process in contend(clusters, 25, names) for lease in process]
    assert {name: len(leases) for name, leases in check_exclusion(held).items()} == dict.fromkeys(names, 100)


# Outages


@pytest.mark.asyncio
async def test_a_whole_cluster_that_is_down_counts_as_one_node():
    """With three clusters locks are still held and taken; with two down they are not, and it is an outage."""
    with LocalCluster(3, shards=2) as clusters:
        names = names_by_shard(clusters, "down")
        async with Redlock(clusters.urls, ttl=TTL, wait=5) as redlock:
            leases = [await redlock(name).acquire() for name in names]
            clusters.kill(2)
            await asyncio.sleep(TTL)
            for lease in leases:
                assert lease.valid
                await lease.extend()
                await lease.release()
            for name in names:
                await free(redlock(name))
            async with Redlock(clusters.urls, ttl=TTL, wait=2) as later:
                for name in names:
                    await free(later(name))
            clusters.kill(1)
            with pytest.raises(QuorumUnavailable):
                await redlock(names[0]).acquire(wait=0.2)
            health = await redlock.health()
            assert (health.ready, health.nodes_up) == (False, 1)


@pytest.mark.asyncio
async def test_a_cluster_that_comes_later_joins_in():
    """A client that finds no server of a cluster goes on without it, and uses it once it is there."""
    with LocalCluster(3, shards=1) as clusters:
        async with Redlock(clusters.urls, ttl=1) as first:
            await free(first("x"))
        clusters.pause(0)
        async with Redlock(clusters.urls, ttl=1, wait=10) as redlock:
            async with redlock("x") as lease:
                assert lease.spare_votes == 0
            clusters.resume(0)
            await eventually(lambda: redlock.statistics().nodes_up == 3)
            await free(redlock("x"))


# Slots that are migrated


class Contenders:
    """Tasks of another client that try to get what is held, until the block ends; what they got."""

    def __init__(self, redlock, *locks):
        self._redlock, self._locks = redlock, locks
        self.got, self.errors = [], Counter()

    async def __aenter__(self):
        self._tasks = [asyncio.create_task(self._contend(lock)) for lock in self._locks]
        return self

    async def __aexit__(self, *_):
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _contend(self, lock):
        while True:
            try:
                lease = await lock.acquire(wait=0.2)
            except RedlockError as error:
                self.errors[type(error).__name__] += 1
                await asyncio.sleep(0.01)
            else:
                self.got.append(lease)
                await lease.release()


@pytest.mark.asyncio
async def test_leases_survive_ten_migrations_of_their_slot(clusters):
    """Held, renewed and contended for meanwhile: never lost, never a second holder; then the next one gets it."""
    slot = slot_of(b"moved")
    async with Redlock(clusters.urls, ttl=TTL, wait=20) as redlock, Redlock(clusters.urls, ttl=TTL, wait=20) as other:
        locks = [
            (redlock("{moved}"), other("{moved}")),
            (redlock.fair_lock("{moved}:fair"), other.fair_lock("{moved}:fair")),
            (redlock.read_lock("{moved}:doc"), other.write_lock("{moved}:doc")),
            (redlock.semaphore("{moved}:pool", 2, count=2), other.semaphore("{moved}:pool", 2)),
            (redlock("{moved}:a", "{moved}:b"), other("{moved}:b")),
        ]
        leases = [await lock.acquire() for lock, _ in locks]
        async with Contenders(other, *(lock for _, lock in locks)) as contenders:
            for _ in range(10):
                for node in clusters.sharded:
                    owner = await asyncio.to_thread(node.owner_of, slot)
                    following = node.primaries[(node.primaries.index(owner) + 1) % len(node.primaries)]
                    await asyncio.to_thread(node.move_slot, slot, following)
                await asyncio.sleep(0.2)
                assert [lease.valid for lease in leases] == [True] * len(leases)
            assert contenders.got == []
        tokens = [lease.fencing_token for lease in leases]
        for lease in leases:
            await lease.release()
        for (_, lock), token in zip(locks, tokens, strict=True):
            assert await free(lock) > token
        # What the attempts of the contenders may have left in any shard is gone as well.
        assert [record for record in await other.list_locks("{moved}*") if record.held] == []


@pytest.mark.asyncio
async def test_a_lease_is_renewed_and_released_while_its_slot_is_half_migrated(one):
    """Its key is already at the new owner, or still at the old one: both take the commands."""
    name, node = "half", one.sharded[0]
    slot = slot_of(name.encode())
    async with Redlock(one.urls, ttl=TTL, wait=10) as redlock:
        for moves_first in (True, False):
            lease = await redlock(name).acquire()
            source = node.owner_of(slot)
            to = next(server for server in node.primaries if server is not source)
            node.begin_move(slot, source, to)
            if moves_first:
                node.move_keys(slot, source, to)
            await asyncio.sleep(1.5 * TTL)
            assert lease.valid
            await lease.extend()
            await lease.release()
            node.finish_move(slot, source, to)
            assert await redlock.inspect(name) is None
            await free(redlock(name))


@pytest.mark.asyncio
async def test_processes_contend_while_slots_are_migrated(clusters):
    """No overlap, although each slot goes back and forth all the time."""
    names = names_by_shard(clusters, "wandering")
    running = asyncio.create_task(asyncio.to_thread(contend, clusters, 25, names))
    await asyncio.sleep(1)
    moves = 0
    while not running.done():
        for node in clusters.sharded:
            slot = slot_of(names[moves % len(names)].encode())
            owner = await asyncio.to_thread(node.owner_of, slot)
            following = node.primaries[(node.primaries.index(owner) + 1) % len(node.primaries)]
            await asyncio.to_thread(node.move_slot, slot, following)
        moves += 1
        await asyncio.sleep(0.2)
    held = [lease for process in await running for lease in process]
    assert {name: len(leases) for name, leases in check_exclusion(held).items()} == dict.fromkeys(names, 100)


# Failovers


def promote_without(node, name):
    """Kill the first primary and promote its replica, which has not received the latest lease of that name."""
    replica = node.replica_of(0)
    node.primaries[0].kill()
    node.promote(0, how="TAKEOVER")
    assert send_command(replica.port, "DEL", name, f"redlock-async:fence:{{{tag_of(slot_of(name.encode())).decode()}}}")


@pytest.mark.asyncio
@pytest.mark.usefixtures("short_grace")
async def test_a_promoted_replica_that_lacks_a_lease_makes_no_second_holder():
    """Not for clients that know the old primary, nor for later ones; names of other shards do not notice."""
    with LocalCluster(1, shards=3, replicas=1) as cluster:
        node = cluster.sharded[0]
        replica = node.replica_of(0)
        hit, *others = names_by_shard(cluster, "failed")
        async with Redlock(cluster.urls, ttl=TTL, wait=30) as redlock:
            await asyncio.gather(*(free(redlock(name)) for name in (hit, *others)))
            kept = [await redlock(name).acquire() for name in others]
            lease = await redlock(hit, ttl=6, renew=False).acquire()
            await asyncio.to_thread(promote_without, node, hit)
            assert lease.valid
            async with Redlock(cluster.urls, ttl=TTL, wait=30) as later:
                waiting = [asyncio.create_task(client(hit).acquire()) for client in (redlock, later)]
                for mine in kept:
                    await mine.extend()
                    await mine.release()
                for name in others:
                    await free(later(name))
                assert lease.valid
                states = {each.label: each for each in await later.status()}
                promoted = states[f"127.0.0.1:{replica.port}"]
                assert not promoted.can_vote
                assert "promoted" in promoted.error
                assert sum(each.can_vote for each in states.values()) == 2
                first = await next(iter(asyncio.as_completed(waiting)))
                assert not lease.valid
                assert first.fencing_token > lease.fencing_token
                await first.release()
                for task in waiting:
                    await task
                await next(task.result() for task in waiting if task.result() is not first).release()


@pytest.mark.asyncio
@pytest.mark.usefixtures("short_grace")
async def test_a_promotion_in_one_of_three_clusters_costs_no_quorum():
    """Leases go on, and locks are taken with the other two clusters."""
    with LocalCluster(3, shards=2, replicas=1) as clusters:
        node = clusters.sharded[0]
        hit, other = names_by_shard(clusters, "failed")
        async with (
            Redlock(clusters.urls, ttl=TTL, wait=10) as redlock,
            Redlock(clusters.urls, ttl=TTL, wait=10) as later,
        ):
            leases = [await redlock(name).acquire() for name in (hit, other)]
            node.primaries[0].kill()
            await asyncio.to_thread(node.promote, 0, how="TAKEOVER")
            for lease in leases:
                assert lease.valid
                assert await later(lease.name).try_acquire() is None
                await lease.release()
                await free(later(lease.name))
            await eventually(lambda: redlock.statistics().nodes_up == 3)


@pytest.mark.asyncio
@pytest.mark.usefixtures("short_grace")
@pytest.mark.parametrize("noticed", [False, True])
async def test_a_slot_that_leaves_a_quarantined_shard_is_not_believed_elsewhere(noticed):
    """The shard that gets it has kept all its own data, but not what the promoted replica lacked.

    Even if that one has noted that it gave the slot away, because a client noticed the promotion before.
    """
    with LocalCluster(1, shards=2, replicas=1) as cluster:
        node = cluster.sharded[0]
        sound = node.primaries[1]
        hit, other = names_by_shard(cluster, "laundered")
        async with Redlock(cluster.urls, ttl=TTL, wait=30) as redlock:
            await asyncio.gather(*(free(redlock(name)) for name in (hit, other)))
            lease = await redlock(hit, ttl=8, renew=False).acquire()
            await asyncio.to_thread(promote_without, node, hit)
            if noticed:
                await eventually(lambda: "quarantined" in redlock.statistics().node_states.values(), within=4)
            await asyncio.to_thread(node.move_slot, slot_of(hit.encode()), sound)
            assert lease.valid
            async with Redlock(cluster.urls, ttl=TTL, wait=30) as later:
                await free(later(other))
                with pytest.raises(QuorumUnavailable, match="came from another shard"):
                    await later(hit).acquire(wait=0.5)
                token = await free(later(hit))
                assert not lease.valid
                assert token > lease.fencing_token


# The command line


def run(cluster, *arguments, status=0):
    """Run a command on these nodes; return what it prints as JSON, or its text."""
    command = [sys.executable, "-m", "redlock_async", arguments[0], "--nodes", ",".join(cluster.urls), *arguments[1:]]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == status, ended.stdout + ended.stderr
    return json.loads(ended.stdout) if "--json" in arguments else ended.stdout


def test_commands_show_shards(three):
    """A row for each shard; they count as nodes together. What `doctor` and `bench` write is removed."""
    run(three, "run", "job", "--", "true")
    status = run(three, "status", "--json")
    assert (status["voting"], status["quorum"], len(status["nodes"])) == (3, 2, 6)
    assert "3 of 3 nodes vote, 2 are needed: 1 more may fail" in (text := run(three, "status"))
    assert "shard of" in text
    checks = {check["check"]: check for check in run(three, "doctor", "--json")["checks"]}
    assert checks["independent"]["level"] == "warning"
    assert "127.0.0.1 carries shards of cluster:" in checks["independent"]["found"]
    assert {name for name, check in checks.items() if check["level"] != "ok"} <= {"independent", "persistence", "age"}
    run(three, "bench", "--seconds", "0.2")
    assert "quorum=2 of 3 nodes" in run(three, "nodes", "show")
    for node in three.sharded:
        for server in node.servers:
            keys = send_command(server.port, "KEYS", "*")
            assert not [key for key in keys if key.startswith(("redlock-doctor", "redlock-bench"))]
