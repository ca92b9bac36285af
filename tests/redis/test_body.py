"""The block under a lease: which cancellation reaches the caller, and was already entered."""

import asyncio
import contextlib

import anyio
import pytest

from redlock_async import LockLost, NotHeld, Redlock, RedlockError, blocking

pytestmark = pytest.mark.asyncio


def lose(lease):
    """The lease ends now, as when its key was deleted."""
    lease._session.registry.lose(lease._held, "for the test", "missing_at_release", at_once=True)


async def done():
    """At once."""


async def another_in_its_place():
    """A cancellation that does not say whose it is, as some libraries raise them."""
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        raise asyncio.CancelledError from None


async def another_some_time_later():
    """The same, after some cleanup."""
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        with anyio.CancelScope(shield=True):
            await asyncio.sleep(0.01)
    raise asyncio.CancelledError("something went wrong")


BODIES = {
    "sleep": lambda: asyncio.sleep(60),
    "gather": lambda: asyncio.gather(asyncio.sleep(60), done()),
    # The last of what is gathered is done: the cancellation that comes out of this does not say whose it is.
    "gather with return_exceptions": lambda: asyncio.gather(asyncio.sleep(60), done(), return_exceptions=True),
    "wait_for": lambda: asyncio.wait_for(asyncio.sleep(60), 60),
    "shield": lambda: asyncio.shield(asyncio.sleep(0.05)),
    "another": another_in_its_place,
    "another, later": another_some_time_later,
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
async def test_a_body_that_we_cancel_ends_with_lock_lost(body, nodes):
    """Whatever it makes of the cancellation on its way; and its task goes on afterwards."""
    async with Redlock(nodes) as redlock:
        with pytest.raises(LockLost, match="for the test"):
            async with redlock("x") as lease:
                asyncio.get_running_loop().call_later(0.01, lose, lease)
                await body()
        assert asyncio.current_task().cancelling() == 0
        await asyncio.sleep(0)


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
@pytest.mark.parametrize("lost", ["before", "in the same moment", "never"])
async def test_a_body_that_others_cancel_stays_cancelled(body, lost, nodes):
    """Also when the lease is lost just then."""
    async with Redlock(nodes) as redlock:
        leases = []

        async def block():
            async with redlock("x") as lease:
                leases.append(lease)
                await body()

        task = asyncio.ensure_future(block())
        while not leases:  # noqa: ASYNC110 - until it is in
            await asyncio.sleep(0)
        await asyncio.sleep(0)  # it waits now
        if lost == "before":
            lose(leases[0])
        task.cancel()
        if lost == "in the same moment":
            lose(leases[0])
        with pytest.raises(asyncio.CancelledError):
            await task


@pytest.mark.parametrize("body", ["sleep", "gather", "wait_for", "shield", "another"])
async def test_a_scope_around_it_gets_its_own_cancellation(body, nodes):
    """The scope ends in peace, with the lease lost or not. The other bodies end no scope of anyio's in peace."""
    async with Redlock(nodes) as redlock:
        for lost in (True, False):
            with anyio.CancelScope() as scope:
                async with redlock("x") as lease:
                    asyncio.get_running_loop().call_later(0.01, scope.cancel)
                    if lost:
                        asyncio.get_running_loop().call_later(0.01, lose, lease)
                    await BODIES[body]()
            assert scope.cancel_called
            await asyncio.sleep(0)


async def test_of_two_blocks_the_one_is_left_whose_lease_was_lost(nodes):
    """The inner one is left by a cancellation, and the outer one says whose."""
    async with Redlock(nodes) as redlock:
        for which in (0, 1):
            with pytest.raises(LockLost, match=["'a'", "'b'"][which]):
                async with redlock("a") as outer, redlock("b") as inner:
                    asyncio.get_running_loop().call_later(0.01, lose, (outer, inner)[which])
                    await BODIES["gather with return_exceptions"]()


# Left in another task

LEFT_ELSEWHERE = "the block under the lock on 'x' was entered in one task and left in another"


def raised(error=None):
    """What `with` tells of the end of a block."""
    return (None, None, None) if error is None else (type(error), error, None)


async def test_the_exception_of_a_body_that_another_task_leaves_wins(nodes):
    """What was wrong with the block stands beside it; without one it is raised. The lock is free either way."""
    async with Redlock(nodes) as redlock:
        for error in (KeyError(1), asyncio.CancelledError(), None):
            lock = redlock("x")
            lease = await asyncio.create_task(lock.__aenter__())
            if error is None:
                with pytest.raises(RedlockError, match=LEFT_ELSEWHERE):
                    await lock.__aexit__(*raised())
            else:
                assert not await lock.__aexit__(*raised(error))
                assert LEFT_ELSEWHERE in "".join(error.__notes__)
            assert not lease.valid
            assert not lease.lost
        lock = redlock.semaphore("y", permits=2)
        leases = [await asyncio.create_task(lock.__aenter__()) for _ in range(2)]
        error = KeyError(1)
        assert not await lock.__aexit__(*raised(error))  # nobody can say which of the two
        assert "left by a task that did not enter it" in "".join(error.__notes__)
        for lease in leases:
            await lease.release()


async def test_what_fails_at_the_release_does_not_hide_that_another_task_left(nodes):
    """It stands beside what was wrong with the block, as it does beside the body's own exception."""
    async with Redlock(nodes) as redlock:
        for error in (None, KeyError(1)):
            lock = redlock("x")
            lease = await asyncio.create_task(lock.__aenter__())
            lose(lease)
            if error is None:
                with pytest.raises(RedlockError, match=LEFT_ELSEWHERE) as caught:
                    await lock.__aexit__(*raised())
                told = caught.value.__notes__
            else:
                assert not await lock.__aexit__(*raised(error))
                told = error.__notes__
                assert LEFT_ELSEWHERE in "".join(told)
            assert "and the lock: LockLost: the lock on 'x' was lost: for the test" in told


async def test_a_generator_that_another_task_closes_says_so(nodes):
    """What closes it is no exception of the body's, and nobody would see what stood beside it."""
    async with Redlock(nodes) as redlock:

        async def generator():
            async with redlock("x") as lease:
                yield lease

        held = generator()
        lease = await asyncio.create_task(anext(held))
        with pytest.raises(RedlockError, match=LEFT_ELSEWHERE):
            await held.aclose()
        assert not lease.valid


# One block for each lease


async def test_a_lease_has_one_block(nodes):
    """The end of either would give the lock back, and leave the other without it."""
    async with Redlock(nodes) as redlock:
        with pytest.raises(RedlockError, match=r"'x' was already entered. Acquire a new one for each `async with`"):
            async with redlock("x") as lease:
                with pytest.raises(RedlockError, match="was already entered"):
                    async with lease:
                        pytest.fail("it was entered")
                assert lease.valid
                await lease.__aenter__()
        assert not lease.valid
        lease = await redlock("x").acquire()
        async with lease:
            with pytest.raises(RedlockError, match="was already entered"):
                await lease.__aenter__()
            assert lease.valid
        with pytest.raises(NotHeld, match="already released"):
            await lease.__aenter__()


async def test_of_two_tasks_one_has_the_block(nodes):
    """The other is told at once, and the first is not disturbed."""
    async with Redlock(nodes) as redlock:
        lease = await redlock("x").acquire()
        entered = asyncio.Event()

        async def first():
            async with lease:
                entered.set()
                await asyncio.sleep(0.05)
                assert lease.valid

        async def second():
            await entered.wait()
            async with lease:
                pytest.fail("it was entered")

        one, other = await asyncio.gather(first(), second(), return_exceptions=True)
        assert one is None
        assert isinstance(other, RedlockError)


async def test_each_entry_of_a_reentrant_lock_has_its_block(nodes):
    """As each has a lease of its own."""
    async with Redlock(nodes) as redlock:
        lock = redlock("x", reentrant=True)
        async with lock as outer:
            async with await lock.acquire() as inner:
                with pytest.raises(RedlockError, match="already entered"):
                    await inner.__aenter__()
            assert outer.valid


async def test_threads_have_one_block_for_each_lease(nodes):
    """As tasks have."""

    def thread():
        redlock = blocking.Redlock(nodes)
        with contextlib.closing(redlock):
            with redlock("x") as lease:
                with pytest.raises(RedlockError, match="was already entered"), lease:
                    pytest.fail("it was entered")
                assert lease.valid
            with redlock("x").acquire() as lease:
                with pytest.raises(RedlockError, match="was already entered"), lease:
                    pytest.fail("it was entered")
                assert lease.valid
            with pytest.raises(NotHeld), lease:
                pytest.fail("it was entered")

    await asyncio.to_thread(thread)
