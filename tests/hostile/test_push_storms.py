"""A node that reports changes without end: it keeps neither the client nor the other nodes busy."""

import asyncio
import time

import pytest
import redis
from stub import Stub, array, bulk, grow_old

from redlock_async import LockTimeout, Redlock

SECONDS = 1.0
FLUSHED = b">2\r\n+invalidate\r\n_\r\n"


def changed(*keys):
    """A push that says that others have changed these keys."""
    return b">2\r\n+invalidate\r\n" + array(*map(bulk, keys))


@pytest.fixture(name="nodes")
def grown_up_nodes(nodes):
    """Nodes that have voted for an hour."""
    grow_old(nodes)
    return nodes


async def storm(stub, push):
    """The same push every millisecond, for a second at least; returns how many there were, and in how many seconds."""
    number, started = 0, time.monotonic()
    while (took := time.monotonic() - started) < SECONDS or number < 150:
        stub.send_all(push)
        number += 1
        await asyncio.sleep(0.001)
    return number, took


def calls(url):
    """Scripts that a server has run."""
    with redis.Redis.from_url(url) as client:
        stats = client.info("commandstats")
    return sum(stats.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("eval", "evalsha"))


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("kind", "quorum"), [("flushed", None), ("every lease", None), ("every lease", 5), ("record", None)]
)
async def test_a_lease_is_checked_at_most_once_in_fifty_ms_however_often_one_node_reports_it(nodes, kind, quorum):
    """And that node is asked for its record no more often. It was 2,485 scripts a second, with 1,000 leases.

    Also where every node is needed: one node alone can free a lock then, and may still be wrong.
    """
    async with Stub() as stub, Redlock([stub.url, *nodes[1:]], wait=5, ttl=60, quorum=quorum) as redlock:
        names = [f"job {number}" for number in range(1000)]
        leases = await asyncio.gather(*(redlock(name).acquire() for name in names))
        await asyncio.sleep(1.1)  # the first look at each of them is over
        before, asked = [calls(url) for url in nodes[1:]], stub.seen.count("node_record")
        used = time.process_time()
        pushes = {
            "flushed": FLUSHED,
            "every lease": changed(*names),
            "record": changed("redlock-async:node"),
        }
        pushed, took = await storm(stub, pushes[kind])
        used = time.process_time() - used
        each = [calls(url) - was for url, was in zip(nodes[1:], before, strict=True)]
        print(
            f"{pushed} pushes, scripts: {each}, {stub.seen.count('node_record') - asked} records, {used:.2f} s of CPU"
        )
        most = 1.3 * took / 0.05 + 2
        assert max(each) <= most * len(names) / 100
        assert stub.seen.count("node_record") - asked <= most
        await asyncio.gather(*(lease.release() for lease in leases))


@pytest.mark.share(4)
@pytest.mark.asyncio
@pytest.mark.parametrize("kind", ["lock", "semaphore", "read", "write", "fair", "latch"])
@pytest.mark.parametrize("flush", [True, False], ids=["flushed", "key"])
async def test_those_who_wait_ask_no_more_often_because_one_node_reports_changes_without_end(nodes, kind, flush):
    async with (
        Stub() as stub,
        Redlock([stub.url, *nodes[1:]], wait=5) as holder,
        Redlock([stub.url, *nodes[1:]], wait=SECONDS, retry_delay=5) as redlock,
    ):
        make = {
            "semaphore": lambda: redlock.semaphore("x", permits=1),
            "read": lambda: redlock.read_lock("x"),
            "write": lambda: redlock.write_lock("x"),
            "fair": lambda: redlock.fair_lock("x"),
        }.get(kind, lambda: redlock("x"))
        keys = {
            "semaphore": ["redlock-async:semaphore:{x}:0", "redlock-async:semaphore:{x}"],
            "latch": ["redlock-async:latch:{x}", "redlock-async:latch-state:{x}"],
        }.get(kind, ["x"])
        held = await (holder.semaphore("x", permits=1) if kind == "semaphore" else holder("x")).acquire()
        before = [calls(url) for url in nodes[1:]]
        waiting = redlock.latch("x", count=2).wait(timeout=SECONDS) if kind == "latch" else make().acquire()
        task = asyncio.ensure_future(waiting)
        await asyncio.sleep(0.05)
        pushed, _ = await storm(stub, FLUSHED if flush else changed(*keys))
        with pytest.raises(LockTimeout):
            await task
        each = [calls(url) - was for url, was in zip(nodes[1:], before, strict=True)]
        print(f"{pushed} pushes, scripts: {each}")
        # One look every 50 ms; and each of the two clients compares the clocks up to three times, and makes notes.
        assert max(each) <= 60 + 2 * 3 * 2, each
        await held.release()
