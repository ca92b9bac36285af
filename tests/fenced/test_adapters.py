"""Every adapter on every database: late writes are rejected, whatever the interleaving, and mistakes are refused."""

import asyncio
from dataclasses import dataclass

import pytest
from stores import dialect_of, verdict

from redlock_async import ConfigurationError, Redlock, StaleFence
from redlock_async.testing import zombie

pytestmark = pytest.mark.asyncio


@dataclass
class Holder:
    """A lease of which only the token matters."""

    fencing_token: int | None
    names: tuple[str, ...] = ("orders:42",)
    slots: tuple[int, ...] = ()


async def test_an_earlier_holder_is_rejected_and_changes_nothing(adapter, database, open_store):
    """Equal tokens pass: the same holder, or readers that share one."""
    async with open_store() as store:
        for token in (10, 10, 12):
            await store.add(Holder(token))
        with pytest.raises(StaleFence, match="the fence of 'orders:42' is stale: its token is 11") as late:
            await store.add(Holder(11))
        assert (late.value.names, late.value.token, late.value.latest) == (("orders:42",), 11, 12)
        await store.add(Holder(12))
    assert verdict(dialect_of(adapter), database) == (4, 0, 0)


async def test_a_later_holder_waits_for_a_transaction_that_is_paused(adapter, database, open_store):
    """The transaction that has passed the check keeps the row until its end, and the later one reads what it wrote."""
    passed, resume = asyncio.Event(), asyncio.Event()

    async def pause():
        passed.set()
        await resume.wait()

    async with open_store() as early, open_store() as later:
        first = asyncio.create_task(early.add(Holder(10), pause=pause))
        await passed.wait()
        second = asyncio.create_task(later.add(Holder(11)))
        await asyncio.sleep(0.1)  # it has sent its statement long before
        assert not second.done()
        resume.set()
        await first
        await second
        with pytest.raises(StaleFence):
            await early.add(Holder(10))
    assert verdict(dialect_of(adapter), database) == (2, 0, 0)


async def test_autocommit_is_refused(open_store):
    """The guard row would be unlocked before the first write."""
    async with open_store() as store:
        with pytest.raises(ConfigurationError, match="outside a transaction: the connection is in autocommit mode"):
            await store.add(Holder(10), autocommit=True)


async def test_leases_without_tokens_and_other_things_are_refused(open_store):
    """Silence would be taken for protection."""
    async with open_store() as store:
        with pytest.raises(ConfigurationError, match=r"'orders:42' has no fencing token.*fencing=False"):
            await store.add(Holder(None))


async def test_the_zombie_test_tells_the_three_ways_apart(open_store, nodes):
    """In the transaction: passes. Not at all, or in a transaction of its own: fails, with what to do."""
    async with open_store() as store, Redlock(nodes, ttl=5) as redlock:

        async def write(lease):
            await store.add(lease)

        async def unfenced(lease):
            await store.add(lease, fenced=False)

        async def apart(lease):
            await store.add(lease, apart=True)

        await zombie(redlock, write)
        await zombie(redlock, write)  # nothing of the first one is left
        with pytest.raises(AssertionError, match=r"does not call fence\(\). Call it first in the transaction"):
            await zombie(redlock, unfenced)
        with pytest.raises(AssertionError, match=r"outside the transaction that called fence\(\)"):
            await zombie(redlock, apart)
        await store.add(Holder(1), fenced=False)  # the connection is as it was
