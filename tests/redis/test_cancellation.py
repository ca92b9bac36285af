"""A cancellation at any await is prompt, stays a cancellation, and leaves no key on any node."""

import asyncio
import time

import anyio
import pytest
from suspending import counting

from redlock_async import LockTimeout, Redlock

PROMPT = 0.05
CLEAN_WITHIN = 0.1


async def by_task(coroutine, at):
    """task.cancel()."""
    loop, task = asyncio.get_running_loop(), None

    def act():
        loop.call_soon(task.cancel)

    task = loop.create_task(as_coroutine(counting(coroutine, at, act)))
    return await outcome(task)


async def by_task_twice(coroutine, at):
    """task.cancel(), and again in the next two ticks."""
    loop, task = asyncio.get_running_loop(), None

    def again(times):
        task.cancel()
        if times:
            loop.call_soon(again, times - 1)

    task = loop.create_task(as_coroutine(counting(coroutine, at, lambda: loop.call_soon(again, 2))))
    return await outcome(task)


async def by_timeout(coroutine, at):
    """asyncio.timeout() running out at that very moment."""
    loop = asyncio.get_running_loop()

    async def run():
        async with asyncio.timeout(None) as limit:
            return await as_coroutine(counting(coroutine, at, lambda: limit.reschedule(loop.time())))

    return await outcome(loop.create_task(run()))


async def by_scope(coroutine, at):
    """An anyio scope, which cancels again and again until the block has ended."""

    async def run():
        with anyio.CancelScope() as scope:
            return await as_coroutine(counting(coroutine, at, scope.cancel))
        raise asyncio.CancelledError

    return await outcome(asyncio.get_running_loop().create_task(run()))


async def as_coroutine(awaitable):
    return await awaitable


async def outcome(task):
    """(`finished`, suspensions) or (`cancelled`, how long it took from the start)."""
    started = time.monotonic()
    try:
        _, steps = await task
    except (asyncio.CancelledError, TimeoutError) as exc:
        assert not isinstance(exc, LockTimeout)
        return "cancelled", time.monotonic() - started
    return "finished", steps


WAYS = [by_task, by_task_twice, by_timeout, by_scope]
each_way = pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)


async def at_every_await(way, prepare, eyes, eventually, *, most=40):
    """Cancel at the first suspension, the second, and so on, until it finishes; returns at how many."""
    for at in range(1, most):
        coroutine, after = await prepare()
        what, number = await way(coroutine, at)
        if what == "cancelled":
            assert number < PROMPT + (0.3 if at == 1 else 0), f"cancelled at await {at} after {number:.3f} s"
        await after()
        await eventually(lambda: not eyes.keys(), within=CLEAN_WITHIN)
        if what == "finished":
            assert at > number, "finished although it was cancelled"
            return at - 1
    raise AssertionError(f"still not finished after {most} awaits")


async def nothing():
    return None


@pytest.mark.asyncio
@each_way
@pytest.mark.parametrize("fencing", [True, False], ids=["fenced", "plain"])
async def test_acquire_on_a_connected_client(way, fencing, nodes, eyes, eventually):
    """A cancelled acquire leaves no key."""
    async with Redlock(nodes, fencing=fencing) as redlock:
        lease = None

        async def acquire():
            nonlocal lease
            lease = await redlock("x").acquire()

        async def after():
            nonlocal lease
            if lease is not None:
                await lease.release()
                lease = None

        async def prepare():
            return acquire(), after

        assert await at_every_await(way, prepare, eyes, eventually) >= 1


@pytest.mark.alone
@pytest.mark.asyncio
@each_way
async def test_first_acquire_of_a_client(way, nodes, eyes, eventually):
    """A cancelled first use leaves no key, and the client can be used afterwards."""

    async def prepare():
        redlock = Redlock(nodes)

        async def use():
            lease = await redlock("x").acquire()
            await lease.release()

        async def after():
            lease = await redlock("x").acquire()
            await lease.release()
            await redlock.aclose()

        return use(), after

    assert await at_every_await(way, prepare, eyes, eventually) >= 2


@pytest.mark.asyncio
@each_way
@pytest.mark.parametrize("names", [("x",), ("x", "y", "z")], ids=["one", "three"])
async def test_async_with(way, names, nodes, eyes, eventually):
    """A block that is cancelled anywhere, body and both ends included, leaves no key."""
    async with Redlock(nodes) as redlock:

        async def block():
            async with redlock(*names):
                await asyncio.sleep(0)
                await asyncio.sleep(0.001)

        async def prepare():
            return block(), nothing

        assert await at_every_await(way, prepare, eyes, eventually) >= 4


@pytest.mark.asyncio
@each_way
async def test_fence_that_must_be_levelled(way, nodes, eyes, eventually):
    """The second round of an acquire, when the nodes disagree on the fence, can be cancelled as well."""
    async with Redlock(nodes) as redlock:
        lease = None
        await (await redlock("x").acquire()).release()
        register = eyes.clients[0].keys("redlock-async:fence:*")[0]

        async def acquire():
            nonlocal lease
            lease = await redlock("x").acquire()

        async def after():
            nonlocal lease
            if lease is not None:
                assert lease.fencing_token > ahead[0]
                await lease.release()
                lease = None

        ahead = [0]

        async def prepare():
            # Two nodes ahead by different amounts: no three replies are equal.
            base = int(eyes.clients[0].get(register))
            for number in range(3):
                eyes.clients[number].set(register, base + 10_000_000 * (number + 1))
            ahead[0] = base
            return acquire(), after

        assert await at_every_await(way, prepare, eyes, eventually) >= 2


@pytest.mark.asyncio
@each_way
async def test_release(way, nodes, eyes, eventually):
    """Cancelling a release does not stop it."""
    async with Redlock(nodes) as redlock:

        async def prepare():
            lease = await redlock("x").acquire()
            return lease.release(), nothing

        assert await at_every_await(way, prepare, eyes, eventually) >= 1


@pytest.mark.asyncio
@each_way
async def test_extend(way, nodes, eyes, eventually):
    """Cancelling an extension leaves the lease held, and as releasable as before."""
    async with Redlock(nodes) as redlock:

        async def prepare():
            lease = await redlock("x").acquire()

            async def after():
                assert lease.valid
                assert not lease.lost
                await lease.release()

            return lease.extend(), after

        assert await at_every_await(way, prepare, eyes, eventually) >= 1


@pytest.mark.asyncio
@each_way
async def test_waiting_behind_another_client(way, nodes, eyes, eventually):
    """A waiter that contends with another process's lock leaves nothing behind it."""
    async with Redlock(nodes) as holder, Redlock(nodes) as redlock:

        async def prepare():
            held = await holder("x").acquire()
            asyncio.get_running_loop().call_later(0.03, lambda: tasks.append(asyncio.ensure_future(held.release())))

            async def use():
                lease = await redlock("x").acquire()
                await lease.release()

            async def after():
                await eventually(lambda: bool(tasks) and tasks[-1].done())
                tasks.clear()

            return use(), after

        tasks = []
        assert await at_every_await(way, prepare, eyes, eventually) >= 3


@pytest.mark.asyncio
@each_way
async def test_waiting_in_the_local_queue(way, nodes, eyes, eventually):
    """A waiter in the process's own queue that is cancelled passes the turn on."""
    async with Redlock(nodes) as redlock:

        async def prepare():
            held = await redlock("x").acquire()

            async def use():
                lease = await redlock("x").acquire()
                await lease.release()

            behind = asyncio.ensure_future(as_coroutine(use()))

            async def first():
                asyncio.get_running_loop().call_later(
                    0.005, lambda: tasks.append(asyncio.ensure_future(held.release()))
                )
                await use()

            async def after():
                await eventually(lambda: bool(tasks) and tasks[-1].done())
                async with asyncio.timeout(1):
                    await behind
                tasks.clear()

            return first(), after

        tasks = []
        assert await at_every_await(way, prepare, eyes, eventually) >= 2


@pytest.mark.asyncio
async def test_cancelled_from_outside_stays_a_cancellation(nodes, eyes, eventually):
    """A body that is cancelled from outside ends with CancelledError, also when the lock is lost in the same moment."""
    async with Redlock(nodes) as redlock:
        entered = asyncio.Event()

        async def block():
            async with redlock("x"):
                entered.set()
                await asyncio.sleep(60)

        task = asyncio.ensure_future(block())
        await entered.wait()
        task.cancel("by me")
        with pytest.raises(asyncio.CancelledError):
            await task
        await eventually(lambda: not eyes.keys(), within=CLEAN_WITHIN)
