"""`takeover_delay`: a name stays locked after a holder that crashed or lost its lease, and only then."""

import asyncio
import time

import pytest

from redlock_async import ConfigurationError, LockLost, LockTimeout, Redlock

pytestmark = pytest.mark.redis

KINDS = {
    "lock": lambda client, **options: client("x", **options),
    "several": lambda client, **options: client("x", "y", **options),
    "fair": lambda client, **options: client.fair_lock("x", **options),
    "read": lambda client, **options: client.read_lock("x", **options),
    "write": lambda client, **options: client.write_lock("x", **options),
    "semaphore": lambda client, **options: client.semaphore("x", permits=1, **options),
}
every_kind = pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)


def rival_of(make, client, **options):
    """A lock that excludes that one: for readers, a writer."""
    return client.write_lock("x", **options) if make is KINDS["read"] else make(client, **options)


@every_kind
@pytest.mark.asyncio
async def test_after_a_crash_the_name_stays_locked_for_ttl_and_delay(nodes, make):
    """A client that is dropped renews nothing and releases nothing, as a process that was killed."""
    async with Redlock(nodes, owner="first") as first, Redlock(nodes, owner="second") as second:
        lease = await make(first, ttl=0.4, takeover_delay=1.0).acquire()
        began = time.monotonic()
        assert lease.remaining < 0.4
        lease._session.registry.abandon(lease._held)
        successor = await rival_of(make, second, wait=5).acquire()
        assert 1.35 < time.monotonic() - began < 3
        await successor.release()


@every_kind
@pytest.mark.asyncio
async def test_after_a_loss_the_name_stays_locked_for_the_delay(nodes, make):
    """The block is cancelled at the end of the ttl; the client lives, and frees nothing."""
    async with Redlock(nodes) as first, Redlock(nodes) as second:
        with pytest.raises(LockLost):
            async with make(first, ttl=0.4, renew=False, takeover_delay=1.0):
                await asyncio.sleep(5)
        lost = time.monotonic()
        with pytest.raises(LockTimeout):
            await rival_of(make, second, wait=0.5).acquire()
        successor = await rival_of(make, second, wait=5).acquire()
        assert 0.9 < time.monotonic() - lost < 2.5
        await successor.release()


@every_kind
@pytest.mark.asyncio
async def test_a_release_frees_the_name_at_once(nodes, eyes, make):
    """Also at the end of a block that raised: it has ended in order."""
    async with Redlock(nodes) as first, Redlock(nodes) as second:
        with pytest.raises(ZeroDivisionError):
            async with make(first, ttl=5, takeover_delay=60):
                raise ZeroDivisionError
        assert eyes.keys() == []
        lease = await rival_of(make, second, wait=0).acquire()
        await lease.release()


@pytest.mark.asyncio
async def test_max_hold_counts_as_a_loss(nodes):
    """The delay begins when the block is cancelled, not when the ttl would have ended."""
    async with Redlock(nodes) as first, Redlock(nodes) as second:
        with pytest.raises(LockLost):
            async with first("x", ttl=30, max_hold=0.3, takeover_delay=1.0):
                await asyncio.sleep(5)
        lost = time.monotonic()
        lease = await second("x", wait=5).acquire()
        assert 0.9 < time.monotonic() - lost < 3
        await lease.release()


@pytest.mark.asyncio
async def test_closing_the_client_counts_as_a_loss(nodes):
    """Its blocks are cancelled after that, so they may still write."""
    async with Redlock(nodes) as second:
        async with Redlock(nodes) as first:
            lease = await first("x", ttl=0.3, takeover_delay=1.0).acquire()
        assert lease.lost
        assert await second("x").try_acquire() is None
        await (await second("x", wait=5).acquire()).release()


@pytest.mark.asyncio
async def test_a_force_release_ends_the_delay(nodes, eyes):
    """An operator who knows better need not wait, neither before nor after the end of the lease."""
    async with Redlock(nodes) as first, Redlock(nodes) as operator:
        with pytest.raises(LockLost):
            async with first("x", ttl=5, takeover_delay=60):
                await operator.force_release("x")
                await asyncio.sleep(5)
        assert eyes.keys() == []
        with pytest.raises(LockLost):
            async with first("x", ttl=0.3, renew=False, takeover_delay=60):
                await asyncio.sleep(5)
        assert await operator.force_release("x")
        assert eyes.keys() == []


@pytest.mark.asyncio
async def test_renewals_keep_the_delay(nodes, eyes):
    """The nodes keep the key for at least the delay longer than the lease is valid, at any time."""
    async with Redlock(nodes) as redlock, redlock("x", ttl=0.5, takeover_delay=20) as lease:
        for _ in range(20):
            await asyncio.sleep(0.1)
            left = sorted(client.pttl("x") / 1000 for client in eyes.clients)
            assert left[2] >= lease.remaining + 20 - 0.01
            assert lease.remaining <= 0.5
        await lease.extend(2)
        assert min(client.pttl("x") for client in eyes.clients) > 21_500


@pytest.mark.asyncio
async def test_it_is_announced_with_the_ttl(nodes):
    """A node that loses its data is quarantined for as long as a lease that it has forgotten may keep a name."""

    async def announced():
        async with Redlock(nodes, ttl=1) as operator:
            return sorted(node.longest_ttl for node in await operator.status())[2]

    async with Redlock(nodes, ttl=1) as redlock, redlock("x", ttl=2, takeover_delay=7) as lease:
        assert await announced() >= 9
        await lease.extend(5)
        assert await announced() >= 12


@pytest.mark.asyncio
async def test_errors_and_records_say_that_nobody_holds_it(nodes):
    """LockTimeout, inspect and list_locks: with the time at which the name can be taken."""
    async with Redlock(nodes, owner="first") as first, Redlock(nodes, owner="second") as second:
        lease = await first("x", ttl=0.3, takeover_delay=30).acquire()
        with pytest.raises(LockTimeout, match=r"could not lock 'x': held by first") as held:
            await second("x", wait=0).acquire()
        assert (held.value.holder, held.value.retry_after > 29) == ("first", True)
        holder = await second.inspect("x")
        assert (holder.held, holder.expired, holder.owner) == (True, False, "first")
        lease._session.registry.abandon(lease._held)
        await asyncio.sleep(0.4)
        told = (
            r"could not lock 'x': nobody holds it any more, but it stays locked for another \d\d\.\d s after its last"
        )
        with pytest.raises(LockTimeout, match=told) as free:
            await second("x", wait=0).acquire()
        assert free.value.holder is None
        assert 28 < free.value.retry_after < 30
        holder = await second.inspect("x")
        assert (holder.held, holder.expired, holder.owner) == (False, True, "first")
        assert 28 < holder.remaining < 30
        (record,) = await second.list_locks("x")
        assert (record.state, record.held, record.owner) == ("expired", False, "first")


@pytest.mark.asyncio
async def test_a_lease_that_is_handed_over_keeps_its_delay(nodes, eyes):
    """The text says so, and a release of the attached lease frees the name at once."""
    async with Redlock(nodes) as first, Redlock(nodes) as second:
        text = (await first("x", ttl=1, takeover_delay=20).acquire()).detach()
        lease = second.attach(text)
        await lease.extend(2)
        assert min(client.pttl("x") for client in eyes.clients) > 20_000
        await lease.release()
        assert eyes.keys() == []


@pytest.mark.asyncio
async def test_a_downgraded_writer_keeps_its_delay(nodes):
    """The reader that it becomes may crash as well."""
    async with Redlock(nodes) as first, Redlock(nodes) as second:
        writing = await first.write_lock("x", ttl=0.4, takeover_delay=1.0).acquire()
        reading = await writing.downgrade()
        began = time.monotonic()
        reading._session.registry.abandon(reading._held)
        lease = await second.write_lock("x", wait=6).acquire()
        assert time.monotonic() - began > 1.2
        await lease.release()


@pytest.mark.parametrize("delay", [-1, float("nan"), float("inf"), "5", True, 367 * 86_400])
def test_a_delay_that_cannot_be_is_refused(nodes, delay):
    """With the name of the option."""
    with pytest.raises(ConfigurationError, match="takeover_delay"):
        Redlock(nodes)("x", takeover_delay=delay)
