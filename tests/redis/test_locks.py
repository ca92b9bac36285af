"""`Redlock.locks` on real servers: every kind, what is left over, what it asks of the servers, and what fails."""

import asyncio
import contextlib
import math

import pytest
import redis

from redlock_async import LockRecord, QuorumUnavailable, Redlock, WrongKeyType

pytestmark = pytest.mark.redis

ORPHAN = "f" * 32 + ":gone"


@pytest.fixture
def clients(nodes):
    """A plain connection to each master."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(redis.Redis.from_url(url, decode_responses=True)) for url in nodes]


def told(records):
    """The records by name and holder."""
    return {(each.name, each.owner): each for each in records}


@pytest.mark.asyncio
@pytest.mark.parametrize("namespace", ["", "app[1]*:"])
async def test_every_kind_is_listed_with_its_holder(nodes, namespace):
    """And what is told of each is what its holder has."""
    async with Redlock(nodes, owner="a", namespace=namespace) as a, Redlock(nodes, owner="b", namespace=namespace) as b:
        plain = await a("orders:42").acquire()
        kept = [await a("acct:1", "acct:2").acquire(), await a.fair_lock("queue").acquire()]
        waiting = asyncio.create_task(b.fair_lock("queue").acquire())
        reader = await a.read_lock("doc").acquire()
        kept.append(await b.read_lock("doc").acquire())
        writing = asyncio.create_task(b.write_lock("doc").acquire())
        slot = await a.semaphore("gpu", permits=3).acquire()
        latch = b.latch("batch", count=3)
        await latch.count_down("one")
        async with asyncio.timeout(5):
            while not all(each.waiting for each in await a.list_locks("[qd]*")):  # noqa: ASYNC110 - masters have no event
                await asyncio.sleep(0.01)
        found = told(await b.list_locks())
        assert len(found) == 8
        lock = found["orders:42", "a"]
        assert (lock.kind, lock.state, lock.votes, lock.node_count, lock.quorum) == ("lock", "held", 5, 5, 3)
        assert (lock.token, lock.fence) == (plain.token, plain.fencing_token)
        assert 0 < lock.remaining <= 10
        assert set(lock.node_labels) == {url.removeprefix("redis://") for url in nodes}
        assert found["acct:1", "a"].names == found["acct:2", "a"].names == ("acct:1", "acct:2")
        fair = found["queue", "a"]
        assert (fair.kind, fair.waiting) == ("fair", ("b",))
        for owner in "ab":
            assert (found["doc", owner].kind, found["doc", owner].waiting) == ("read", ("b",))
        assert found["doc", "a"].fence == reader.fencing_token
        semaphore = found["gpu", "a"]
        assert (semaphore.kind, semaphore.permits, semaphore.fence) == ("semaphore", 3, slot.fencing_token)
        closed = found["batch", None]
        assert (closed.kind, closed.state, closed.events_remaining) == ("latch", "closed", 2)
        assert {each.name for each in await a.list_locks("*c*")} == {"acct:1", "acct:2", "doc", "batch"}
        assert [(each.name, each.slot) for each in await a.list_locks("gpu")] == [("gpu", semaphore.slot)]
        for task in (waiting, writing):
            task.cancel()
        assert all(lease.valid for lease in kept)
        await asyncio.gather(waiting, writing, return_exceptions=True)


@pytest.mark.asyncio
async def test_list_locks_shows_several_slots_and_changed_permits(nodes, clients):
    """A record a slot, of one holder; whoever waits for many is named with each, and they are freed together."""
    async with Redlock(nodes, owner="a") as a, Redlock(nodes, owner="b") as b:
        lease = await a.semaphore("gpu", permits=2).acquire(count=2)
        await a.change_permits("gpu", 3)
        for client in clients:
            client.set("redlock-async:semaphore-hint:{gpu}", "3:" + ORPHAN, px=60_000)
        found = await b.list_locks("gpu")
        assert [(each.slot, each.permits, each.owner, each.votes) for each in found] == [(0, 3, "a", 5), (1, 3, "a", 5)]
        assert {each.fence for each in found} == {lease.fencing_token}
        assert {each.waiting for each in found} == {("gone",)}
        assert [(each.slot, each.token) for each in await b.list_locks()] == [(0, lease.token), (1, lease.token)]
        assert await b.force_release("gpu")
        await lease.wait_until_lost()


@pytest.mark.asyncio
async def test_what_is_left_on_a_minority_is_an_orphan(nodes, clients):
    """And what never expires is told as such."""
    for client in clients[:2]:
        client.set("left", ORPHAN, px=60_000)
    for client in clients[:4]:
        client.set("for ever", ORPHAN)
    async with Redlock(nodes) as redlock:
        found = {each.name: each for each in await redlock.list_locks()}
    assert (found["left"].state, found["left"].votes, found["left"].owner) == ("orphan", 2, "gone")
    assert (found["for ever"].state, found["for ever"].remaining) == ("held", math.inf)


@pytest.mark.asyncio
async def test_a_short_lived_key_is_no_orphan(nodes):
    """Twenty tasks of two clients contend while the masters are looked at."""
    async with Redlock(nodes) as one, Redlock(nodes) as two:

        async def contend(redlock):
            while True:
                async with redlock("hot"):
                    pass

        tasks = [asyncio.create_task(contend(redlock)) for redlock in (one, two) for _ in range(10)]
        for _ in range(3):
            assert {each.state for each in await one.list_locks("ho*")} <= {"held", "partial"}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.asyncio
async def test_keys_of_others_are_listed_only_when_they_are_asked_for(nodes, clients):
    """What expires could be a lock of another library; what does not is none."""
    for client in clients:
        client.set("theirs", "0f3c", px=60_000)
        client.set("data", "1")
        client.hset("table", "a", "b")
    async with Redlock(nodes) as redlock:
        assert await redlock.list_locks() == []
        (record,) = await redlock.list_locks(include_foreign=True)
        assert (record.name, record.owner, record.token, record.votes) == ("theirs", None, "0f3c", 5)
        assert [each.name for each in await redlock.list_locks("theirs")] == ["theirs"]
        with pytest.raises(WrongKeyType, match="'table' is not a lock"):
            await redlock.list_locks("table")


@pytest.mark.asyncio
async def test_masters_are_read_in_portions_and_nothing_of_it_is_tracked(nodes, clients):
    """SCAN, a thousand keys at a time, and never KEYS; a tracked key would cost the server memory."""
    for client in clients:
        client.mset({f"cache:{number}": "x" for number in range(3500)})
        client.config_resetstat()
    async with Redlock(nodes) as redlock:
        assert await redlock.list_locks() == []
        for client in clients:
            assert client.info("stats")["tracking_total_keys"] < 10
    for client in clients:
        calls = client.info("commandstats")
        assert "cmdstat_keys" not in calls
        assert 4 <= calls["cmdstat_scan"]["calls"] <= 8


@pytest.mark.asyncio
async def test_a_minority_that_is_down_is_left_out(cluster):
    """It may hold what the others do not name: that is partial, and no orphan."""
    async with Redlock(cluster.urls, node_timeout=0.2) as redlock:  # a busy machine is no silent master
        lease = await redlock("x").acquire()
        cluster.kill(0)
        cluster.pause(1)
        (record,) = await redlock.list_locks()
        assert (record.state, record.votes, record.node_count) == ("held", 3, 5)
        await lease.release()
        with redis.Redis.from_url(cluster.urls[2]) as client:
            client.set("part", ORPHAN, px=60_000)
        (record,) = await redlock.list_locks("part")
        assert (record.state, record.votes) == ("partial", 1)
        cluster.kill(2)
        with pytest.raises(QuorumUnavailable) as caught:
            await redlock.list_locks()
        assert len(caught.value.nodes) == 3
        cluster.resume(1)


@pytest.mark.asyncio
async def test_what_others_stored_under_the_librarys_own_names_is_malformed(nodes, clients):
    """A record says so, with the nodes that have it."""
    for client in clients[:3]:
        client.set("redlock-async:queue:{x}", "no queue")
    async with Redlock(nodes) as redlock:
        (record,) = await redlock.list_locks("x")
        assert (record.name, record.state, record.votes, record.token) == ("x", "malformed", 3, None)


def test_a_record_says_whether_it_is_held():
    """As Holder does."""
    record = LockRecord("x", "lock", "held", 3, 5, 3)
    assert record.held
