"""Changing the set of masters, as docs/operations.md says: clients with different sets at the same time."""

import asyncio
import random
import time
from contextlib import suppress
from itertools import combinations

import pytest
import pytest_asyncio
import redis.asyncio

from redlock_async import LockLost, Redlock
from redlock_async._keys import Keys
from redlock_async._quorum import majority
from redlock_async.testing import Hold, LocalCluster, judge

TTL = 60.0
"""Longer than any of these tests: what keeps two apart is the masters, not the end of a lease."""

PATIENCE = 20.0
"""Seconds a busy machine may take for what is there already."""

SAFE = {
    "three to four": ("ABC", "ABCD"),
    "four to five": ("ABCD", "ABCDE"),
    "four to three": ("ABCD", "BCD"),
    "five to four": ("ABCDE", "BCDE"),
}
UNSAFE = {
    "three to five": ("ABC", "ABCDE"),
    "one of three replaced": ("ABC", "ABD"),
    "two steps at once": ("ABC", "BCD"),
}


def majorities(masters):
    """Every smallest majority of them."""
    return [frozenset(each) for each in combinations(masters, majority(len(masters)))]


def disjoint(before, after):
    """Pairs of majorities, one of each set, that have no master in common."""
    return [(one, other) for one in majorities(before) for other in majorities(after) if not one & other]


@pytest.mark.parametrize("number", range(1, 10))
def test_sets_that_differ_by_one_master_share_one_in_every_majority(number):
    """Q(N) + Q(N + 1) = N + 2, and there are N + 1 masters."""
    masters = "ABCDEFGHIJ"[: number + 1]
    assert majority(number) + majority(number + 1) == number + 2
    for left_out in masters:
        assert disjoint(masters.replace(left_out, ""), masters) == []


@pytest.mark.parametrize("number", range(2, 10))
def test_a_master_that_is_replaced_in_one_step_can_part_them(number):
    """N + 1 masters between the old and the new set: two majorities fit in side by side if N is odd."""
    masters = "ABCDEFGHIJ"[:number]
    assert bool(disjoint(masters, masters[:-1] + "Z")) == (number % 2 == 1)


class Masters:
    """Five real masters behind proxies, and clients of any of them."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.url = dict(zip("ABCDE", cluster.urls, strict=True))

    def client(self, names):
        """One of the generation that knows these masters."""
        return Redlock([self.url[name] for name in names], ttl=TTL, wait=PATIENCE, node_timeout=0.5)

    def only(self, names):
        """Whoever connects from now on reaches these, and no other."""
        for number, name in enumerate("ABCDE"):
            self.cluster.heal(number)
            if name not in names:
                self.cluster.cut(number)


@pytest_asyncio.fixture
async def masters(embedded):  # noqa: ARG001 - they are cut
    """As if they had run for an hour: none of them is held out of the vote, so that only the majorities count."""
    keys = Keys("")
    async with LocalCluster(5, proxied=True) as cluster:
        for url in cluster.urls:
            async with redis.asyncio.Redis.from_url(url) as server:
                seconds, microseconds = await server.time()
                an_hour_ago = (seconds - 3600) * 1_000_000 + microseconds
                await server.mset({keys.born: an_hour_ago, keys.founded: an_hour_ago})
        yield Masters(cluster)


@pytest.mark.asyncio
@pytest.mark.parametrize("step", SAFE)
async def test_two_generations_that_differ_by_one_master_exclude_each_other(step, masters, seed):
    """A majority of one set holds it, and one of the other is asked: here some of those that share one master only."""
    before, after = SAFE[step]
    pairs = [(one, other) for one in majorities(before) for other in majorities(after) if len(one & other) == 1]
    for number, (one, other) in enumerate(random.Random(seed).sample(pairs, 3)):
        masters.only(one)
        async with masters.client(before) as old, old(f"name {number}", renew=False) as lease:
            masters.only(other)
            async with masters.client(after) as new:
                async with new(f"free {number}"):  # it has its majority
                    pass
                assert await new(f"name {number}").try_acquire() is None, (one, other)
            assert lease.valid
            masters.only("ABCDE")


@pytest.mark.asyncio
@pytest.mark.parametrize("step", UNSAFE)
async def test_two_generations_further_apart_can_both_hold_it(step, masters):
    """What the procedure is there to prevent does happen without it."""
    before, after = UNSAFE[step]
    one, other = disjoint(before, after)[0]
    masters.only(one)
    async with masters.client(before) as old:
        first = await old("name").acquire()
        masters.only(other)
        async with masters.client(after) as new:
            second = await new("name").acquire()
            assert first.valid
            assert second.valid


async def service(label, urls, holds, ended):
    """Work under a lock, again and again, until it is told to end."""
    async with Redlock(urls, ttl=1.0, wait=PATIENCE) as redlock:
        while not ended.is_set():
            with suppress(LockLost):  # by a machine too busy to renew in time: it does not count as held
                async with redlock("the work") as lease:
                    start = time.monotonic()
                    await asyncio.sleep(0.002)
                    end = time.monotonic()
                holds.append(Hold("the work", label, start, end, lease.fencing_token))


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "generations", [("ABC", "ABCD", "ABCDE"), ("ABC", "ABCD", "BCD")], ids=["three to five", "one of three replaced"]
)
async def test_services_are_moved_one_after_the_other_without_a_double(generations, embedded, eventually):  # noqa: ARG001 - it starts servers
    """Three of them work all the while, each restarted with the next set; masters that join begin empty."""
    holds, running = [], {}
    with LocalCluster(5) as cluster:
        url = dict(zip("ABCDE", cluster.urls, strict=True))
        for masters in generations:
            for number in range(3):
                if number in running:
                    task, ended = running[number]
                    ended.set()
                    await task
                label, ended = f"{number} of {masters}", asyncio.Event()
                task = asyncio.create_task(service(label, [url[name] for name in masters], holds, ended))
                running[number] = task, ended
                await eventually(lambda label=label: sum(hold.holder == label for hold in holds) >= 2, PATIENCE)
            async with Redlock([url[name] for name in masters], ttl=1.0) as redlock:
                while not all(node.votes for node in await redlock.status()):  # noqa: ASYNC110 - they are asked
                    await asyncio.sleep(0.05)  # those that joined are held out at first
        for task, ended in running.values():
            ended.set()
            await task
    assert judge(holds) == []
    assert {hold.holder.split()[-1] for hold in holds} == set(generations)
