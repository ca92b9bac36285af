"""Lease.wait_until_lost tells how a lease ended, and Lease.raise_if_lost refuses to go on without it.

Every way in which a lease can end wakes the tasks that wait for its end: True for a loss, False for anything else.
tests/services/test_blocking.py has the same for threads.
"""

import asyncio
import time
from contextlib import asynccontextmanager

import pytest

from redlock_async import LockLost, NotHeld, Redlock
from redlock_async._transport.node import Node

pytestmark = pytest.mark.asyncio


@asynccontextmanager
async def waiting_for_the_end(lease, outcome):
    """Two tasks wait for the lease to end; both must return `outcome` within a second of the block's end."""
    waiters = [asyncio.create_task(lease.wait_until_lost()) for _ in range(2)]
    await asyncio.sleep(0.02)
    assert not any(waiter.done() for waiter in waiters)
    yield
    async with asyncio.timeout(1):
        assert await asyncio.gather(*waiters) == [outcome, outcome]
    # The answer stays the same for those who ask later, and no waiter is left behind.
    assert await lease.wait_until_lost() is outcome
    assert lease.lost is outcome
    assert not lease._held._watchers


async def test_a_release_wakes_waiters_with_false(nodes):
    """Also the release at the end of a block."""
    async with Redlock(nodes) as redlock:
        lease = await redlock("x").acquire()
        async with waiting_for_the_end(lease, outcome=False):
            await lease.release()
        with pytest.raises(NotHeld):
            lease.raise_if_lost()
        lease = await redlock("x").acquire()
        async with waiting_for_the_end(lease, outcome=False), lease:
            lease.raise_if_lost()


async def test_a_loss_wakes_waiters_with_true(nodes):
    """A forced release is noticed by the holder's client at once."""
    async with Redlock(nodes) as redlock, Redlock(nodes) as operator:
        lease = await redlock("x").acquire()
        lease.raise_if_lost()
        async with waiting_for_the_end(lease, outcome=True):
            await operator.force_release("x")
        with pytest.raises(LockLost, match="the lock on 'x' was lost"):
            lease.raise_if_lost()


async def test_the_end_of_an_unrenewed_lease_wakes_waiters_with_true(nodes):
    """The ttl is over, and nothing else happens that could wake them."""
    async with Redlock(nodes) as redlock:
        lease = await redlock("x", ttl=0.3, renew=False).acquire()
        async with waiting_for_the_end(lease, outcome=True):
            await asyncio.sleep(0.1)
        with pytest.raises(LockLost):
            lease.raise_if_lost()


async def test_a_detach_wakes_waiters_with_false(nodes):
    """The lease goes on elsewhere, so nothing was lost."""
    async with Redlock(nodes) as redlock, Redlock(nodes) as other:
        lease = await redlock("x").acquire()
        async with waiting_for_the_end(lease, outcome=False):
            text = lease.detach()
        with pytest.raises(NotHeld, match="detach"):
            lease.raise_if_lost()
        async with other.attach(text) as attached:
            attached.raise_if_lost()


async def test_a_downgrade_wakes_the_writers_waiters_with_false(nodes):
    """The read lease is a lease of its own, with its own waiters."""
    async with Redlock(nodes) as redlock:
        writing = await redlock.write_lock("x").acquire()
        async with waiting_for_the_end(writing, outcome=False):
            reading = await writing.downgrade()
        with pytest.raises(NotHeld):
            writing.raise_if_lost()
        reading.raise_if_lost()
        async with waiting_for_the_end(reading, outcome=False):
            await reading.release()


async def test_a_release_that_finds_the_lock_missing_wakes_waiters_with_true(nodes, eyes):
    """The keys are deleted while the event loop is blocked, so the release is the first to notice."""
    async with Redlock(nodes) as redlock:
        lease = await redlock("x").acquire()
        async with waiting_for_the_end(lease, outcome=True):
            for eye in eyes.clients:
                eye.delete("x")
            with pytest.raises(LockLost, match="was lost before its release"):
                await lease.release()
        with pytest.raises(LockLost):
            lease.raise_if_lost()


async def test_closing_the_client_wakes_waiters_with_true(nodes):
    """A closed client renews nothing, so its leases are lost."""
    redlock = Redlock(nodes)
    lease = await redlock("x").acquire()
    async with waiting_for_the_end(lease, outcome=True):
        await redlock.aclose()


async def test_a_cancelled_waiter_leaves_nothing_behind(nodes):
    """The others go on waiting."""
    async with Redlock(nodes) as redlock:
        lease = await redlock("x").acquire()
        async with waiting_for_the_end(lease, outcome=False):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(lease.wait_until_lost(), 0.02)
            assert len(lease._held._watchers) == 2
            await lease.release()


async def test_a_deadline_that_passed_while_the_loop_was_blocked_is_a_loss(nodes):
    """raise_if_lost and wait_until_lost look at the clock, not at a flag that nothing has set yet."""
    async with Redlock(nodes) as redlock:
        lease = await redlock("x", ttl=0.2).acquire()
        time.sleep(0.3)  # noqa: ASYNC251 - it blocks the event loop on purpose
        with pytest.raises(LockLost, match="its deadline passed"):
            lease.raise_if_lost()
        assert await lease.wait_until_lost() is True


async def test_the_inner_lease_of_a_reentrant_lock_is_released_by_itself(nodes):
    """raise_if_lost is about that lease, and not about the one around it."""
    async with Redlock(nodes) as redlock, redlock("x", reentrant=True) as outer:
        inner = await redlock("x", reentrant=True).acquire()
        await inner.release()
        with pytest.raises(NotHeld):
            inner.raise_if_lost()
        assert await inner.wait_until_lost() is False
        outer.raise_if_lost()


async def test_a_loss_that_a_release_finds_reaches_all_waiters(nodes, eyes):
    """The lock was deleted before the release arrived: it was lost, and both tasks that wait learn that."""
    async with Redlock(nodes) as redlock:
        lease = await redlock("x", renew=False).acquire()
        for eye in eyes.clients:
            eye.delete("x")
        releasing = asyncio.create_task(lease.release())
        await asyncio.sleep(0)  # it has been sent
        assert not lease.valid
        assert await lease.wait_until_lost()
        with pytest.raises(LockLost):
            await releasing


async def test_a_forked_child_does_not_continue_under_the_lease_of_its_parent(nodes):
    """As for extend, release and detach."""
    async with Redlock(nodes) as redlock:
        lease = await redlock("x").acquire()
        context = redlock._running.context
        context.pid += 1  # as the child sees it
        with pytest.raises(NotHeld, match="forked child"):
            lease.raise_if_lost()
        context.pid -= 1
        await lease.release()


# -- a force-release that reaches the nodes one after another ----------------------------------------------------------

KINDS = {
    "plain": lambda redlock: redlock("x"),
    "two names": lambda redlock: redlock("x", "y"),
    "fair": lambda redlock: redlock.fair_lock("x"),
    "read": lambda redlock: redlock.read_lock("x"),
    "write": lambda redlock: redlock.write_lock("x"),
    "semaphore": lambda redlock: redlock.semaphore("x", permits=2),
}


async def test_a_cancelled_force_release_leaves_nothing(nodes, eyes, eventually, monkeypatch):
    """The caller is cancelled when the nodes have taken the lock, and have not freed it yet."""
    real = Node.ask

    async def ask(self, packed, read):
        if b"mutex_release.lua: " in packed:
            await asyncio.sleep(60)
        return await real(self, packed, read)

    monkeypatch.setattr(Node, "ask", ask)
    async with Redlock(nodes) as holder, Redlock(nodes) as operator:
        lease = await holder("x").acquire()
        releasing = asyncio.create_task(operator.force_release("x"))
        assert await lease.wait_until_lost()
        await eventually(lambda: len(eyes.keys()) == 5)
        releasing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await releasing
        await eventually(lambda: eyes.keys() == [], within=0.5)


@pytest.mark.share(2)
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
async def test_a_holder_does_not_undo_a_force_release(nodes, eyes, monkeypatch, kind):
    """The operator's commands arrive 5 ms apart. Meanwhile the holder learns that its key is missing on one node."""
    real = Node.ask

    async def ask(self, *command):
        await asyncio.sleep(0.005 * self.index)
        return await real(self, *command)

    async with Redlock(nodes) as holder, Redlock(nodes) as operator:
        lease = await kind(holder).acquire()
        await lease.extend()  # so that it is tracked on all nodes
        monkeypatch.setattr(Node, "ask", ask)
        assert await operator.force_release("x")
        async with asyncio.timeout(2):
            assert await lease.wait_until_lost()
        monkeypatch.undo()
        next_ = await kind(operator).try_acquire()
        assert next_ is not None
        await next_.release()
    left = eyes.keys()
    assert [key for _, key in left if b"semaphore" not in key] == []
