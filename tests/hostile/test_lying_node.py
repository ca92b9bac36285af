"""One of three nodes answers in the right form, and lies: what it cannot do to the others."""

import asyncio
import contextlib
import time

import pytest
import redis
from stub import Stub, always, array, grow_old, number, record

from redlock_async import ConfigurationError, LockTimeout, QuorumUnavailable, Redlock
from redlock_async._rules.detached import read_detached
from redlock_async._rules.fencing import AHEAD

YEAR_2300 = 10_413_792_000_000_000


@pytest.fixture(name="nodes")
def grown_up_nodes(nodes):
    """Nodes that have voted for an hour, as the lying one says of itself."""
    grow_old(nodes)
    return nodes


def now():
    """The time in µs."""
    return time.time_ns() // 1000


def lying(at, data):
    """A node that gives that reply to commands of which the name ends so."""
    return Stub(spoil=always(data), at=lambda name: name.endswith(at))


def granting(token):
    """A node that grants every lock with that token, and says rightly what its clock shows."""

    def spoil(right):
        return always(array(number(token), number(now())))(right)

    return Stub(spoil=spoil, at=lambda name: name.endswith("_acquire"))


async def tokens(redlock, slow, times):
    """Of so many leases on `x`, of all kinds; that node answers last, so that what the lying one says comes first."""
    found = []
    with contextlib.closing(redis.Redis.from_url(slow)) as client:
        for lock in [redlock.lock, redlock.fair_lock, redlock.write_lock, redlock.read_lock] * times:
            client.client_pause(30)
            async with lock("x", wait=2) as lease:
                found.append(lease.fencing_token)
    return found


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "said",
    [2**63 - 1, 2**53, 2**53 - 2, YEAR_2300, 0, -1, lambda: now() + AHEAD + 10**9],
    ids=["2^63-1", "2^53", "2^53-2", "2300", "0", "-1", "in 142 years"],
)
async def test_one_node_cannot_use_up_the_range_of_the_fencing_tokens(nodes, said):
    """Its reply is not a grant, and no other node hears of that number."""
    said = said() if callable(said) else said
    async with granting(said) as stub, Redlock([stub.url, *nodes[:2]]) as redlock:
        found = await tokens(redlock, nodes[1], 2)
        assert stub.spoilt
        async with Redlock([stub.url, nodes[0], "redis://127.0.0.1:1"]) as without_another:
            with pytest.raises(QuorumUnavailable, match=f"its fencing token {said} is out of range"):
                await without_another("y", wait=0).acquire()
    assert found == sorted(set(found))
    assert found[-1] < now() + 10**7


@pytest.mark.asyncio
async def test_tokens_go_on_after_one_node_has_raised_them_as_far_as_it_can(nodes):
    """To 142 years ahead: from there they count on, and clients without that node get larger ones."""
    async with granting(now() + AHEAD - 10**6) as stub, Redlock([stub.url, *nodes[:2]]) as redlock:
        await (await redlock("warm").acquire()).release()  # the first one awaits all nodes
        found = await tokens(redlock, nodes[1], 3)
    grow_old(nodes)  # they do not remember that set
    async with Redlock(nodes[:3]) as redlock:
        found += await tokens(redlock, nodes[0], 3)
    assert found == sorted(set(found))
    assert now() + AHEAD - 10**8 < found[0] < found[-1] < now() + AHEAD


@pytest.mark.asyncio
@pytest.mark.parametrize("said", [2**63 - 1, 2**53, 2**53 - 1, 0, -1])
async def test_one_node_cannot_destroy_the_order_of_a_fair_lock(nodes, said, eventually):
    """Each one that waits is served before those that come later."""
    async with lying("fair_ticket", number(said)) as stub, Redlock([stub.url, *nodes[:2]], wait=5) as redlock:
        served = []

        async def wait(which):
            async with redlock.fair_lock("x"):
                served.append(which)

        first = await redlock.fair_lock("x").acquire()
        waiting = []
        for which in range(6):
            waiting.append(asyncio.create_task(wait(which)))
            # Each has its ticket before the next one comes.
            await eventually(
                lambda already=which: any(
                    len(line._waiting) > already for line in redlock._running.context.shared.values()
                )
            )
        await first.release()
        await asyncio.gather(*waiting)
        assert stub.spoilt
    assert served == list(range(6))


@pytest.mark.asyncio
async def test_one_node_cannot_open_a_latch(nodes):
    """It takes the events, or more nodes than a quorum can do without."""
    async with lying("latch_look", array(number(1))) as stub, Redlock([stub.url, *nodes[:2]]) as redlock:
        latch = redlock.latch("x", count=2)
        assert await latch.remaining() == 2
        await latch.count_down("a")
        with pytest.raises(LockTimeout, match="1 of 2 events are missing"):
            await latch.wait(timeout=0.3)
        await latch.count_down("b")
        await latch.wait(timeout=1)
        assert stub.spoilt


SIXTY_YEARS = 60 * 365 * 24 * 3600 * 1000


async def quarantines(redlock):
    """An event for the end of the first quarantine, and the events of quarantines so far."""
    events, over = [], asyncio.Event()
    redlock.on_event(lambda event: events.append(event) if event.kind == "node_quarantined" else None)
    redlock.on_event(lambda event: over.set() if event.kind == "node_votes_again" else None)
    await (await redlock("x").acquire()).release()
    assert all(node.can_vote for node in await redlock.status())
    return events, over


def flush(url):
    """Let a node forget everything."""
    with contextlib.closing(redis.Redis.from_url(url)) as client:
        client.flushall()


@pytest.mark.asyncio
async def test_one_node_that_admits_everything_admits_nobody(nodes):
    """Neither does the ttl of 60 years that it reports change anything: four others know better."""
    async with Stub(longest_ttl=SIXTY_YEARS) as stub, Redlock([stub.url, *nodes[1:]], ttl=1) as redlock:
        events, over = await quarantines(redlock)
        flush(nodes[1])
        async with asyncio.timeout(5):
            await over.wait()
        assert all(node.can_vote for node in await redlock.status())
        (event,) = events
        assert event.node in nodes[1]
        assert 0.5 < event.seconds < 1.2
        assert "the longest ttl in use is 1 s" in str(event.error)
        assert len(stub.heard) == 5 + 1  # the new id of that node, too


@pytest.mark.asyncio
async def test_one_of_three_nodes_can_prolong_a_quarantine_to_a_day_at_most(nodes):
    """It may have granted a lease with such a ttl together with the node that forgot. The voting nodes still vote."""
    async with Stub(longest_ttl=SIXTY_YEARS) as stub, Redlock([stub.url, *nodes[:2]], ttl=1) as redlock:
        events, _ = await quarantines(redlock)
        flush(nodes[0])
        async with asyncio.timeout(5):
            while not events:  # noqa: ASYNC110 - the list of events has no event
                await asyncio.sleep(0.001)
        assert 86_000 < events[0].seconds < 88_000
        await (await redlock("x").acquire()).release()
        async with Redlock(nodes[:2], ttl=1) as others:
            first, second = await others.status()
            assert (first.can_vote, second.can_vote) == (False, True)


@pytest.mark.asyncio
async def test_a_node_whose_clock_shows_the_year_2300_is_not_used(nodes):
    """And it is said why, in the status and where too few nodes are left."""
    said = record(YEAR_2300, "stub-0", heard=("stub-0",))
    async with lying("node_record", said) as stub, Redlock([stub.url, *nodes[:2]]) as redlock:
        assert (await tokens(redlock, nodes[1], 1))[-1] < now() + 10**7
        first, *others = await redlock.status()
        assert all(node.can_vote for node in others)
        assert not first.up
        assert "beyond the year 2200: set it" in first.error
        assert first.clock_offset == pytest.approx((YEAR_2300 - now()) / 1e6, abs=10)


@pytest.mark.asyncio
async def test_a_detached_lease_cannot_use_up_the_range_of_the_fencing_tokens(nodes):
    """Neither by a number that is no token nor by one that is too far ahead."""
    async with Redlock(nodes[:3]) as redlock:
        lease = await redlock("x").acquire()
        token, text = lease.fencing_token, lease.detach()
        for fence in (0, -1, 2**53, 2**63 - 1):
            with pytest.raises(ConfigurationError):
                redlock.attach(spoilt(text, fence))
        # One node has lost it: an attached lease is set again there, with its token.
        with contextlib.closing(redis.Redis.from_url(nodes[0])) as client:
            client.delete("x")
        attached = redlock.attach(spoilt(text, 2**53 - 1))
        await attached.extend()
        await attached.release()
        async with redlock("x") as lease:
            assert token < lease.fencing_token < now() + 10**7


def spoilt(text, fence):
    """That text with another token, as somebody may write one who means harm."""
    detached = read_detached(text)
    object.__setattr__(detached, "fence", fence)
    return detached.write()
