"""A block whose lease is lost is cancelled once, has time for cleanup, and is never cancelled after it has ended."""

import asyncio
import contextlib
import sys
import time

import anyio
import pytest

from redlock_async import LockLost, Redlock

pytestmark = pytest.mark.asyncio


def lose(lease, *, at_once=False):
    """End the lease: its renewal failed and what is left of it stays valid, or (at once) its key was deleted."""
    lease._session.registry.lose(
        lease._held, "for the test", "missing_at_release" if at_once else "unconfirmed", at_once=at_once
    )


def later(lease, seconds=0.02, *, at_once=False):
    """End the lease after some time, from outside of any task, as a timer or a reply does."""
    asyncio.get_running_loop().call_later(seconds, lambda: lose(lease, at_once=at_once))


class Undo:
    """The cleanup of a block, in the ways users write it."""

    def __init__(self, lease, how, seconds=0.1):
        self.lease = lease
        self.how = how
        self.seconds = seconds
        self.left = []
        """What was left of the lease each time the cleanup finished."""

    async def work(self):
        """Work until it is cancelled, then clean up."""
        try:
            await asyncio.sleep(60)
        finally:
            await self.cleanup()

    async def cleanup(self):
        """Several awaits, each of which can be cancelled."""
        if self.how == "anyio shield":
            with anyio.move_on_after(self.lease.remaining, shield=True):
                await self._steps()
        elif self.how == "asyncio.timeout":
            async with asyncio.timeout(self.lease.remaining):
                await self._steps()
        else:
            await self._steps()

    async def _steps(self):
        for _ in range(5):
            await asyncio.sleep(self.seconds / 5)
        self.left.append(self.lease.remaining)


async def alone(work):
    """In the block itself."""
    await work()


async def gathered(work):
    """In tasks that gather runs."""
    await asyncio.gather(work(), asyncio.sleep(0))


async def gathered_with_exceptions(work):
    """In tasks that gather runs, whose exceptions it collects."""
    await asyncio.gather(work(), asyncio.sleep(60), return_exceptions=True)


async def in_a_task(work):
    """In a task that the block awaits."""
    await asyncio.create_task(work())


async def waited_for(work):
    """Under wait_for, which is a task of its own before Python 3.12."""
    await asyncio.wait_for(work(), 60)


async def timed(work):
    """Under a timeout of the block's own."""
    async with asyncio.timeout(60):
        await work()


async def grouped(work):
    """In a task of a TaskGroup."""
    async with asyncio.TaskGroup() as group:
        group.create_task(work())
        group.create_task(asyncio.sleep(60))


async def grouped_by_anyio(work):
    """In a task of anyio's task group."""
    async with anyio.create_task_group() as group:
        group.start_soon(work)


async def scoped(work):
    """Inside a scope of anyio's."""
    with anyio.fail_after(60):
        await work()


RUN = [alone, gathered, gathered_with_exceptions, in_a_task, waited_for, timed, grouped, scoped]


@pytest.mark.parametrize("how", ["anyio shield", "asyncio.timeout", "plain"])
@pytest.mark.parametrize("run", RUN)
async def test_cleanup_after_a_loss_finishes_wherever_it_runs(run, how, nodes):
    """In the block, and in each task that the block awaits; and the block ends only after it, inside validity."""
    async with Redlock(nodes, ttl=1) as redlock:
        with pytest.raises(LockLost, match="for the test"):
            async with redlock("x") as lease:
                undo = Undo(lease, how)
                later(lease)
                try:
                    await run(undo.work)
                finally:
                    assert len(undo.left) == 1
        assert undo.left[0] > 0
        assert asyncio.current_task().cancelling() == 0
        await asyncio.sleep(0)


async def test_cleanup_after_a_loss_finishes_in_a_task_group_of_anyio(nodes):
    """Its own scope cancels the tasks it runs again and again, so they need the shield."""
    async with Redlock(nodes, ttl=1) as redlock:
        with pytest.raises(LockLost):
            async with redlock("x") as lease:
                undo = Undo(lease, "anyio shield")
                later(lease)
                await grouped_by_anyio(undo.work)
        assert undo.left[0] > 0


@pytest.mark.parametrize("run", RUN)
async def test_cleanup_that_takes_too_long_ends_before_the_lease(run, nodes):
    """Unshielded or not, in the block or in what it awaits: only a task that nobody awaits any more goes on."""
    async with Redlock(nodes, ttl=0.5) as redlock:
        with pytest.raises(LockLost):
            async with redlock("x") as lease:
                until = time.monotonic() + lease.remaining
                undo = Undo(lease, "plain" if run is not grouped else "anyio shield", seconds=5)
                later(lease)
                await run(undo.work)
        assert time.monotonic() < until + 0.05
        assert not undo.left


async def test_cleanup_that_was_under_way_before_the_loss_finishes(nodes):
    """The block failed by itself; its shielded cleanup is not interrupted, and the block's exception wins."""
    async with Redlock(nodes, ttl=1) as redlock:
        with pytest.raises(ValueError, match="mine") as caught:
            async with redlock("x") as lease:
                undo = Undo(lease, "anyio shield")
                later(lease)
                try:
                    raise ValueError("mine")
                finally:
                    await undo.cleanup()
        assert undo.left[0] > 0
        assert "LockLost" in caught.value.__notes__[0]


async def test_a_block_is_cancelled_behind_a_shield_that_the_loss_found_it_in(nodes):
    """The shielded part finishes, and the next await is cancelled, long before the lease ends."""
    async with Redlock(nodes, ttl=5) as redlock:
        with pytest.raises(LockLost):
            async with redlock("x") as lease:
                later(lease)
                with anyio.CancelScope(shield=True):
                    await asyncio.sleep(0.1)
                finished = time.monotonic()
                await asyncio.sleep(60)
        assert time.monotonic() - finished < 0.2


async def test_a_shield_around_the_block_does_not_protect_it(nodes):
    """Only a shield that was entered within the block does."""
    async with Redlock(nodes) as redlock:
        with anyio.CancelScope(shield=True), pytest.raises(LockLost):
            async with redlock("x") as lease:
                later(lease)
                with anyio.CancelScope():
                    await asyncio.sleep(5)


# How often


class Counting(asyncio.Task):
    """A task that counts how often it is cancelled."""

    cancels = 0

    def cancel(self, msg=None):
        """Count it."""
        self.cancels += 1
        return super().cancel(msg)


def counting(coroutine):
    """Run that in a task that counts."""
    return Counting(coroutine, loop=asyncio.get_running_loop())


@contextlib.contextmanager
def turns():
    """Count the turns of the running loop."""
    loop, count, once = asyncio.get_running_loop(), [0], asyncio.BaseEventLoop._run_once

    def counted():
        count[0] += 1
        once(loop)

    loop._run_once = counted
    try:
        yield count
    finally:
        del loop._run_once


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("run", [gathered, grouped, waited_for])
async def test_a_block_that_takes_long_to_end_costs_next_to_nothing(run, at_once, nodes):
    """Few cancellations, few turns of the loop, and hardly any processor time, while its cleanup goes on."""
    ends = asyncio.Event()

    async def block():
        async with redlock("x", ttl=1) as lease:
            undo = Undo(lease, "plain", seconds=0.8)
            later(lease, at_once=at_once)
            await run(undo.work if run is not grouped else stubborn)

    async def stubborn():
        try:
            await asyncio.sleep(60)
        finally:
            await ends.wait()

    async with Redlock(nodes) as redlock:
        task = counting(block())
        await asyncio.sleep(0.05)
        used = time.process_time()
        with turns() as count:
            await asyncio.sleep(0.6)
        used = time.process_time() - used
        ends.set()
        with pytest.raises(LockLost):
            await task
    assert 1 <= task.cancels <= (20 if at_once else 1)
    assert count[0] < 150
    assert used < 0.1


@pytest.mark.parametrize("at_once", [False, True])
async def test_a_block_that_swallows_a_cancellation_is_cancelled_at_its_next_await(at_once, nodes):
    """Before the lease ends if it is still valid, else within some ms; as often as it takes."""
    async with Redlock(nodes, ttl=0.3) as redlock:
        swallowed = 0
        with pytest.raises(LockLost):
            async with redlock("x") as lease:
                until = time.monotonic() + (0.05 if at_once else lease.remaining)
                later(lease, at_once=at_once)
                while swallowed < 3:
                    try:
                        await asyncio.sleep(60)
                    except asyncio.CancelledError:
                        swallowed += 1
                    if swallowed == 2:
                        assert time.monotonic() < until + 0.02
        assert time.monotonic() < until + 0.1
        assert asyncio.current_task().cancelling() == 0
        await asyncio.sleep(0.1)


async def test_a_block_that_never_stops_swallowing_is_cancelled_with_pauses(nodes):
    """Each step it makes is cut short, but it does not keep the processor busy."""

    async def block():
        async with redlock("x") as lease:
            later(lease, at_once=True)
            for _ in range(10):
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(60)

    async with Redlock(nodes) as redlock:
        task, started = counting(block()), time.monotonic()
        with pytest.raises(LockLost):
            await task
    assert task.cancels == 10
    assert 0.3 < time.monotonic() - started < 3


# With cancellations of others


@pytest.mark.parametrize(
    ("expires", "at_once"), [("with the loss", False), ("with the loss", True), ("in the cleanup", False)]
)
async def test_a_timeout_around_the_block_ends_in_timeout_error(expires, at_once, nodes):
    """A cancellation from outside stays one."""
    loop = asyncio.get_running_loop()
    async with Redlock(nodes, ttl=1) as redlock:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(None) as outer, redlock("x") as lease:

                def both():
                    outer.reschedule(loop.time() + (0.05 if expires == "in the cleanup" else -1))
                    loop.call_soon(lambda: lose(lease, at_once=at_once))

                loop.call_later(0.02, both)
                try:
                    await asyncio.sleep(60)
                finally:
                    if expires == "in the cleanup":
                        await asyncio.sleep(0.1)
        assert asyncio.current_task().cancelling() == 0
        await asyncio.sleep(0.1)


@pytest.mark.parametrize("first", ["loss", "cancellation"])
@pytest.mark.parametrize("run", RUN)
async def test_a_cancellation_in_the_moment_of_the_loss_is_not_replaced(run, first, nodes):
    """In either order."""

    async def block():
        async with redlock("x") as lease:
            entered.set_result(lease)
            await run(lambda: asyncio.sleep(60))

    async with Redlock(nodes) as redlock:
        entered = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(block())
        lease = await entered
        await asyncio.sleep(0.01)
        actions = [lambda: lose(lease), task.cancel]
        for act in actions if first == "loss" else reversed(actions):
            asyncio.get_running_loop().call_soon(act)
        with pytest.raises(asyncio.CancelledError):
            await task


@pytest.mark.parametrize("run", [*RUN, grouped_by_anyio])
@pytest.mark.parametrize("order", ["scope first", "loss first", "loss only"])
@pytest.mark.parametrize("at_once", [False, True])
async def test_an_anyio_scope_around_the_block_ends_quietly(run, order, at_once, nodes):
    """Or in LockLost, if the scope is not cancelled. Its cancellation is found again beside ours."""
    loop = asyncio.get_running_loop()
    async with Redlock(nodes, ttl=1) as redlock:
        error = None
        try:
            with anyio.CancelScope() as scope:
                async with redlock("x") as lease:

                    def both():
                        if order == "scope first":
                            scope.cancel()
                        lose(lease, at_once=at_once)
                        if order == "loss first":
                            scope.cancel()

                    loop.call_later(0.02, both)
                    await run(lambda: asyncio.sleep(60))
        except LockLost as lost:
            error = lost
        assert (error is not None) is (order == "loss only")
        assert scope.cancelled_caught is (order != "loss only")
        assert asyncio.current_task().cancelling() == 0
        await asyncio.sleep(0.1)


@pytest.mark.parametrize("inner", ["asyncio.timeout", "anyio.move_on_after"])
@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("first", ["loss", "timeout"])
async def test_a_timeout_within_the_block_does_not_hide_the_loss(inner, at_once, first, nodes):
    """It expires in the moment of the loss: the block ends soon and in LockLost."""
    loop = asyncio.get_running_loop()
    async with Redlock(nodes, ttl=5) as redlock:
        started = time.monotonic()
        with pytest.raises(LockLost):
            async with redlock("x") as lease:
                while True:

                    def both(scope):
                        if first == "loss":
                            lose(lease, at_once=at_once)
                        if inner == "asyncio.timeout":
                            scope.reschedule(loop.time() - 1)
                        else:
                            scope.cancel()
                        if first == "timeout":
                            loop.call_soon(lambda: lose(lease, at_once=at_once))

                    if inner == "asyncio.timeout":
                        with contextlib.suppress(TimeoutError):
                            async with asyncio.timeout(None) as scope:
                                loop.call_later(0.02, both, scope)
                                await asyncio.sleep(60)
                    else:
                        with anyio.CancelScope() as scope:
                            loop.call_later(0.02, both, scope)
                            await asyncio.sleep(60)
        assert time.monotonic() - started < 1
        assert asyncio.current_task().cancelling() == 0


async def test_the_cleanup_of_an_inner_block_finishes_when_both_leases_are_lost(nodes):
    """The usual case in an outage: the outer block does not interrupt a block that is ending already."""
    for first, second in ((0, 1), (1, 0)):
        async with Redlock(nodes, ttl=1) as redlock:
            with pytest.raises(LockLost):
                async with redlock("a") as a, redlock("b") as b:
                    undo = Undo(b, "plain")
                    later((a, b)[first])
                    later((a, b)[second])
                    await undo.work()
            assert undo.left[0] > 0
            assert asyncio.current_task().cancelling() == 0


async def test_a_loss_of_the_outer_lease_is_not_missed_when_the_inner_one_is_handled(nodes):
    """Code between two blocks may catch the LockLost of the inner one."""
    async with Redlock(nodes, ttl=5) as redlock:
        started = time.monotonic()
        with pytest.raises(LockLost, match="'a'"):
            async with redlock("a") as a:
                with pytest.raises(LockLost, match="'b'"):
                    async with redlock("b") as b:
                        later(b)
                        later(a)
                        await asyncio.sleep(60)
                await asyncio.sleep(60)
        assert time.monotonic() - started < 1


async def test_blocks_may_be_left_in_any_order(nodes):
    """As in lock coupling; each loss is that of its own block."""

    async def coupled(lost):
        a, b = redlock("a"), redlock("b")
        leases = [await a.__aenter__(), await b.__aenter__()]
        later(leases[lost])
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError as error:
            told = []
            for lock in (a, b):
                try:
                    await lock.__aexit__(type(error), error, None)
                except LockLost as loss:
                    told.append(loss.names)
            return told

    async with Redlock(nodes) as redlock:
        assert await asyncio.create_task(coupled(0)) == [("a",)]
        assert await asyncio.create_task(coupled(1)) == [("b",)]
        lock, other = redlock("a"), redlock("b")
        await lock.__aenter__()
        lease = await other.__aenter__()
        await lock.__aexit__(None, None, None)
        assert lease.valid
        await other.__aexit__(None, None, None)
        assert asyncio.current_task().cancelling() == 0


@pytest.mark.parametrize("group", ["asyncio", "anyio"])
async def test_a_block_in_a_task_of_a_group_ends_in_lock_lost(group, nodes):
    """As the endpoints of web frameworks do; its cleanup finishes, and the group cancels the other tasks."""
    undone, cancelled = [], []

    async def block():
        async with redlock("x") as lease:
            undo = Undo(lease, "anyio shield")
            undone.append(undo)
            later(lease)
            await undo.work()

    async def other():
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    async with Redlock(nodes, ttl=1) as redlock:
        with pytest.raises(ExceptionGroup) as caught:
            if group == "asyncio":
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(block())
                    tasks.create_task(other())
            else:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(block)
                    tasks.start_soon(other)
        assert [type(error) for error in caught.value.exceptions] == [LockLost]
        assert undone[0].left[0] > 0
        assert cancelled
        await asyncio.sleep(0.05)


async def test_a_block_under_anyio_run(cluster):
    """Its event loop and its task are anyio's."""

    async def main():
        async with Redlock(cluster.urls, ttl=1) as redlock:
            with pytest.raises(LockLost):
                async with redlock("x") as lease:
                    undo = Undo(lease, "anyio shield")
                    later(lease)
                    await undo.work()
            with anyio.move_on_after(0.05) as scope:
                async with redlock("x"):
                    await anyio.sleep(60)
            assert scope.cancelled_caught
            return undo.left[0]

    assert await asyncio.to_thread(anyio.run, main) > 0


# Nothing is cancelled behind the block


@pytest.mark.parametrize("eager", [False, True])
@pytest.mark.parametrize("at_once", [False, True])
async def test_a_loss_that_the_block_causes_itself_cancels_nothing_behind_it(eager, at_once, nodes):
    """The lease is lost while a task is running, and the block ends before its next await."""
    if eager and sys.version_info < (3, 12):
        pytest.skip("eager tasks are new in Python 3.12")

    async def lose_it(lease):
        lose(lease, at_once=at_once)

    async def block():
        with pytest.raises(LockLost):
            async with redlock("x") as lease:
                if eager:
                    asyncio.create_task(lose_it(lease))  # noqa: RUF006 - it is done when this returns
                else:
                    lose(lease, at_once=at_once)
        assert asyncio.current_task().cancelling() == 0
        await asyncio.sleep(0.05)
        with pytest.raises(LockLost):
            async with redlock("y") as lease:
                asyncio.create_task(lose_it(lease))  # noqa: RUF006 - as above
                await asyncio.sleep(60)
        await asyncio.sleep(0.05)

    async with Redlock(nodes) as redlock:
        if eager:
            asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
        try:
            await asyncio.create_task(block())
        finally:
            asyncio.get_running_loop().set_task_factory(None)


async def test_the_consumer_of_a_generator_gets_lock_lost_with_aclosing(nodes):
    """The block is in an async generator, and the cancellation finds the code that iterates over it."""
    async with Redlock(nodes, ttl=1) as redlock:

        async def leases():
            async with redlock("x") as lease:
                yield lease

        for at_once in (False, True):
            with pytest.raises(LockLost, match="for the test"):
                async with contextlib.aclosing(leases()) as held:
                    async for lease in held:
                        later(lease, at_once=at_once)
                        await asyncio.sleep(60)
            assert asyncio.current_task().cancelling() == 0
            await asyncio.sleep(0.05)
        # Nothing was lost: the generator ends as usual.
        async with contextlib.aclosing(leases()) as held:
            async for _lease in held:
                break
        # Cancelled from outside as well.
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02), contextlib.aclosing(leases()) as held:
                async for lease in held:
                    later(lease)
                    await asyncio.sleep(60)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_without_aclosing_no_later_await_of_the_consumer_is_cancelled(nodes, caplog):
    """It sees a CancelledError that names the lock; the event loop closes the generator in another task."""
    async with Redlock(nodes, ttl=0.5) as redlock:

        async def leases():
            async with redlock("x") as lease:
                yield lease

        for at_once in (False, True):
            with pytest.raises(asyncio.CancelledError, match="the lock on 'x' was lost"):
                async for lease in leases():
                    later(lease, at_once=at_once)
                    await asyncio.sleep(60)
            for _ in range(6):
                await asyncio.sleep(0.1)
            assert asyncio.current_task().cancelling() == 0
        assert "aclosing" in caplog.text


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_a_consumer_that_blocks_the_loop_gives_its_generator_the_time_to_close(nodes):
    """The second cancellation is due by then, but the generator was dropped before."""
    async with Redlock(nodes) as redlock:

        async def leases():
            async with redlock("x") as lease:
                yield lease

        with pytest.raises(asyncio.CancelledError):
            async for lease in leases():
                later(lease, at_once=True)
                await asyncio.sleep(60)
        time.sleep(0.03)  # noqa: ASYNC251 - the fault under test
        await asyncio.sleep(0.05)
        assert asyncio.current_task().cancelling() == 0


# The block's own exception


async def test_the_blocks_exception_leaves_a_cancelled_anyio_scope(nodes, eyes):
    """Although every await in that scope is cancelled, that for the release included; the lock is free."""
    async with Redlock(nodes) as redlock:
        with pytest.raises(ValueError, match="mine"), anyio.CancelScope() as scope:
            async with redlock("x"):
                scope.cancel()
                raise ValueError("mine")
        assert asyncio.current_task().cancelling() == 0
        await asyncio.sleep(0.02)
        assert eyes.keys() == []


@pytest.fixture
def hung(cluster):
    """Call that to freeze a majority: then a release waits for its nodes."""
    yield lambda: [cluster.pause(index) for index in range(3)]
    for index in range(3):
        cluster.resume(index)


async def test_the_blocks_exception_wins_over_a_timeout_while_the_release_waits(cluster, hung):
    """The nodes hang; and no later await is cancelled by the timeout that is over."""
    async with Redlock(cluster.urls, node_timeout=0.3, ttl=3) as redlock:
        with pytest.raises(ValueError, match="mine"):
            async with asyncio.timeout(0.1), redlock("x"):
                hung()
                raise ValueError("mine")
        assert asyncio.current_task().cancelling() == 0
        await asyncio.sleep(0.05)


async def test_a_timeout_goes_on_after_the_blocks_exception_was_handled_within_it(cluster, hung):
    """It expired while the release waited: the next await within it is cancelled, and it ends in TimeoutError."""
    async with Redlock(cluster.urls, node_timeout=0.3, ttl=3) as redlock:
        started = time.monotonic()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                with pytest.raises(ValueError, match="mine"):
                    async with redlock("x"):
                        hung()
                        raise ValueError("mine")
                assert time.monotonic() - started < 0.25
                await asyncio.sleep(60)
        assert asyncio.current_task().cancelling() == 0


async def test_a_cancellation_while_the_release_waits_is_not_lost(cluster, hung):
    """The block's exception wins; a task that handles it is cancelled at its next await."""
    seen = []

    async def worker():
        try:
            async with redlock("x"):
                hung()
                raise ValueError("mine")  # noqa: TRY301 - where it is raised matters
        except ValueError as error:
            seen.append(error)
        await asyncio.sleep(60)

    async with Redlock(cluster.urls, node_timeout=0.3, ttl=3) as redlock:
        task = asyncio.create_task(worker())
        await asyncio.sleep(0.1)
        task.cancel("stop")
        with pytest.raises(asyncio.CancelledError, match="stop"):
            await task
        assert seen
