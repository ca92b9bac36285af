"""Locks and leases while nothing fails."""

import asyncio
import contextlib
import gc
import time
import warnings

import anyio
import pytest

from redlock_async import (
    ConfigurationError,
    LockLost,
    LockTimeout,
    NotHeld,
    QuorumUnavailable,
    Redlock,
    RedlockError,
    WrongKeyType,
)
from redlock_async._transport import environment

pytestmark = pytest.mark.asyncio


@pytest.fixture(params=[True, False], ids=["fenced", "plain"])
def fencing(request):
    """Both forms of the lock."""
    return request.param


async def test_one_holder_at_a_time(nodes, eyes, fencing, eventually):
    """Two clients exclude each other, and the key is gone after the release."""
    async with Redlock(nodes, fencing=fencing) as redlock, Redlock(nodes, fencing=fencing) as other:
        async with redlock("x") as lease:
            await eventually(lambda: eyes.holding("x") == [lease.token.encode()] * 5)
            assert (lease.fencing_token is None) is (not fencing)
            assert await other("x").try_acquire() is None
            assert lease.valid
            assert 9 < lease.remaining < 10
            await eventually(lambda: lease.spare_votes == 2)  # the last two nodes may still be answering
            assert (lease.name, lease.names) == ("x", ("x",))
        assert eyes.keys() == []
        assert not lease.valid
        assert not lease.lost
        assert lease.remaining == 0


async def test_fenced_and_plain_exclude_each_other(nodes):
    """It is one lock, whichever way it is taken."""
    async with Redlock(nodes) as redlock, Redlock(nodes, fencing=False) as other:
        async with redlock("x"):
            assert await other("x").try_acquire() is None
        async with other("x"):
            assert await redlock("x").try_acquire() is None


async def test_fences_increase_over_clients(nodes):
    """Each lease's fence is larger than the one before, whoever took it."""
    async with Redlock(nodes) as one, Redlock(nodes) as two:
        fences = []
        for number in range(50):
            lease = await (one, two)[number % 2]("x").acquire()
            fences.append(lease.fencing_token)
            await lease.release()
        assert fences == sorted(set(fences))


async def test_a_clock_far_ahead_or_behind_does_not_turn_the_fence_back(nodes):
    """Clients whose wall clocks are wrong by years still get increasing fences."""
    async with Redlock(nodes) as one, Redlock(nodes) as two:
        fences = []
        for number in range(10):
            client = (one, two)[number % 2]
            await client.status()
            client._running.context.wall_us = lambda number=number: int(
                (time.time() + (1e8, -1e8, 0)[number % 3]) * 1e6
            )
            lease = await client("x").acquire()
            fences.append(lease.fencing_token)
            await lease.release()
        assert fences == sorted(set(fences))
        assert fences[-1] < (time.time() + 5) * 1e6


async def test_wait_is_kept(nodes):
    """`wait` bounds the waiting, and the error names the holder."""
    async with Redlock(nodes, owner="the holder") as holder, Redlock(nodes) as redlock, holder("x"):
        for wait in (0, 0.2):
            started = time.monotonic()
            with pytest.raises(LockTimeout, match="held by the holder") as caught:
                await redlock("x").acquire(wait=wait)
            assert wait <= time.monotonic() - started < wait + 0.1
            assert caught.value.holder == "the holder"
            assert caught.value.names == ("x",)


async def test_a_waiter_of_another_client_is_woken_by_the_release(nodes):
    """The next holder is in long before any polling interval."""
    async with Redlock(nodes) as holder, Redlock(nodes, retry_delay=5.0) as redlock:
        for _ in range(5):
            held = await holder("x").acquire()
            waiting = asyncio.create_task(redlock("x").acquire())
            await asyncio.sleep(0.05)
            released = time.monotonic()
            await held.release()
            lease = await waiting
            assert time.monotonic() - released < 0.1
            await lease.release()


async def test_a_waiter_gets_in_when_a_dead_holder_expires(nodes, eyes):
    """A key that nobody releases or renews is taken over soon after it expired."""
    async with Redlock(nodes, retry_delay=5.0) as redlock:
        await redlock.status()
        for eye in eyes.clients:
            eye.set("x", "somebody who died", px=300)
        started = time.monotonic()
        async with redlock("x"):
            assert 0.25 < time.monotonic() - started < 0.45


async def test_without_tracking_waiting_is_polling(nodes):
    """On a RESP2 connection there is no push, and the waiter still gets in within a pause."""
    async with Redlock(nodes) as holder, Redlock([f"{url}?protocol=2" for url in nodes], retry_delay=0.05) as redlock:
        assert not any(status.tracking for status in await redlock.status())
        held = await holder("x").acquire()
        waiting = asyncio.create_task(redlock("x").acquire())
        await asyncio.sleep(0.1)
        released = time.monotonic()
        await held.release()
        await (await waiting).release()
        assert time.monotonic() - released < 0.1


async def test_tasks_of_one_process_are_served_in_order(nodes):
    """First come, first served."""
    async with Redlock(nodes) as redlock:
        order = []

        async def worker(number):
            async with redlock("x"):
                order.append(number)

        async with redlock("x"):
            tasks = []
            for number in range(50):
                tasks.append(asyncio.create_task(worker(number)))
                await asyncio.sleep(0)
        await asyncio.gather(*tasks)
        assert order == list(range(50))


async def test_a_thousand_waiters_cost_the_nodes_next_to_nothing(nodes, eyes):
    """A held name with 1,000 waiters in one process is one armed key, not a thousand polls."""
    async with Redlock(nodes) as holder, Redlock(nodes) as redlock:
        held = await holder("x").acquire()
        tasks = [asyncio.create_task(redlock("x").acquire(wait=None)) for _ in range(1000)]
        await asyncio.sleep(0.3)
        before = [eye.info("stats")["total_commands_processed"] for eye in eyes.clients]
        await asyncio.sleep(1)
        after = [eye.info("stats")["total_commands_processed"] for eye in eyes.clients]
        assert max(b - a for a, b in zip(before, after, strict=True)) <= 10
        released = time.monotonic()
        await held.release()
        lease = await tasks[0]
        assert time.monotonic() - released < 0.1
        for task in tasks[1:]:
            task.cancel()
        await lease.release()
        await asyncio.gather(*tasks[1:], return_exceptions=True)
        assert redlock.statistics().waiting == 0
        assert eyes.keys() == []


async def test_several_names_are_taken_all_or_none(nodes, eyes):
    """A conflict on one name leaves the others free, and the order of the names makes no deadlock."""
    async with Redlock(nodes) as redlock, Redlock(nodes) as other:
        async with redlock("b", "a", "b") as lease:
            assert lease.names == ("a", "b")
            assert len(eyes.keys()) == 10
            assert await other("b").try_acquire() is None
            assert await other("c", "a").try_acquire() is None
            assert len(eyes.keys()) == 10
        assert eyes.keys() == []

        async def both(client, *names):
            for _ in range(20):
                async with client(*names):
                    pass

        await asyncio.gather(
            both(redlock, "a", "b"), both(other, "b", "a"), both(redlock, "b", "c"), both(other, "c", "a")
        )


async def test_the_fence_of_several_names_is_beyond_each_ones(nodes):
    """One token, larger than every earlier holder's of each name."""
    async with Redlock(nodes) as redlock:
        fences = {}
        for names in (("a",), ("b",), ("a", "b"), ("b",), ("a",), ("a", "b", "c"), ("c",)):
            async with redlock(*names) as lease:
                for name in names:
                    assert lease.fencing_token > fences.get(name, 0)
                    fences[name] = lease.fencing_token


async def test_reentrant(nodes, eyes):
    """The same task enters again without asking anybody; another task, a child too, waits."""
    async with Redlock(nodes) as redlock:
        lock = redlock("x", reentrant=True)
        async with lock as outer:
            attempts = redlock.statistics().attempts
            async with redlock("x", reentrant=True) as inner:
                assert inner.fencing_token == outer.fencing_token
                assert redlock.statistics().attempts == attempts
                assert await asyncio.create_task(lock.try_acquire()) is None
            assert outer.valid
            assert inner.valid
        assert eyes.keys() == []
        with pytest.raises(LockTimeout, match="reentrant=True"):
            async with redlock("x"), redlock("x", wait=0.05):
                pass


async def test_min_hold(nodes, eyes):
    """The name stays locked for its time though the body was quick."""
    async with Redlock(nodes) as redlock, Redlock(nodes) as other:
        started = time.monotonic()
        async with redlock("x", min_hold=0.4):
            pass
        assert time.monotonic() - started < 0.2
        assert await other("x").try_acquire() is None
        assert await redlock("x").try_acquire() is None
        async with other("x"):
            assert 0.35 < time.monotonic() - started < 0.6
        assert eyes.keys() == []


async def test_renew_false_ends_with_the_ttl(nodes, eyes, eventually):
    """The body is cancelled when the ttl runs out, not before half of it and not after it."""
    async with Redlock(nodes) as redlock:
        await (await redlock("x").acquire()).release()  # so that the time to connect is not counted
        started = time.monotonic()
        with pytest.raises(LockLost, match="renew=False"):
            async with redlock("x", ttl=0.6, renew=False) as lease:
                try:
                    await asyncio.sleep(10)
                finally:
                    cancelled = time.monotonic()
                    assert lease.valid
        assert 0.5 < cancelled - started < 0.6
        await eventually(lambda: eyes.keys() == [], within=0.1)


async def test_a_short_lease_beside_a_long_one_is_renewed(nodes):
    """Seeing to one lease does not put off another that is due before its next time."""
    async with Redlock(nodes) as redlock:
        long = await redlock("x", ttl=60).acquire()
        await asyncio.sleep(0.01)
        async with redlock("y", ttl=0.4) as short:
            await asyncio.sleep(1)
            assert short.valid
        await long.release()


async def test_max_hold_cancels_a_runaway_body(nodes):
    """Renewal stops at max_hold."""
    async with Redlock(nodes, ttl=0.3) as redlock:
        async with redlock("warm"):
            pass
        started = time.monotonic()
        with pytest.raises(LockLost, match="max_hold"):
            async with redlock("x", max_hold=0.8):
                await asyncio.sleep(10)
        assert 0.7 < time.monotonic() - started <= 0.8


async def test_extend(nodes, eyes):
    """A new deadline, never an earlier one."""
    async with Redlock(nodes) as redlock:
        lease = await redlock("x", ttl=1, renew=False).acquire()
        await lease.extend(30)
        assert 29 < lease.remaining < 30
        await lease.extend(1)
        assert lease.remaining > 28
        assert min(eye.pttl("x") for eye in eyes.clients) > 28_000
        await lease.release()
        with pytest.raises(NotHeld, match="already released"):
            await lease.extend()
        with pytest.raises(NotHeld, match="cannot release"):
            await lease.release()


async def test_force_release(nodes):
    """An operator frees the lock, and the holder's body is cancelled at once."""
    async with Redlock(nodes, owner="me") as redlock, Redlock(nodes) as operator:
        with pytest.raises(LockLost):
            async with redlock("x"):
                await asyncio.sleep(0.03)
                holder = await operator.inspect("x")
                assert (holder.owner, holder.votes, holder.held) == ("me", 5, True)
                assert 9 < holder.remaining <= 10
                forced = time.monotonic()
                freeing = asyncio.create_task(operator.force_release("x"))  # the loss may be here before it returns
                await asyncio.sleep(10)
        assert time.monotonic() - forced < 0.05
        assert await freeing
        assert await operator.inspect("x") is None
        assert not await operator.force_release("x")


async def test_force_release_by_the_holders_own_client(nodes):
    """It works on one's own lease too."""
    async with Redlock(nodes) as redlock:
        with pytest.raises(LockLost):
            async with redlock("x"):
                await redlock.force_release("x")
                await asyncio.sleep(10)


async def test_lost_leases_say_so(nodes, eyes):
    """wait_until_lost returns, `lost` is sticky, release and extend raise LockLost."""
    async with Redlock(nodes) as redlock:
        lease = await redlock("x").acquire()
        waiting = asyncio.create_task(lease.wait_until_lost())
        await asyncio.sleep(0.03)
        for eye in eyes.clients:
            eye.set("x", "overwritten")
        async with asyncio.timeout(0.5):
            await waiting
            await lease.wait_until_lost()
        assert lease.lost
        assert not lease.valid
        for refused in (lease.release, lease.extend, lease.__aenter__):
            with pytest.raises(LockLost):
                await refused()


async def test_a_lease_from_acquire_protects_a_body_too(nodes, eyes):
    """`async with lease:` cancels and releases like `async with redlock(...)`."""
    async with Redlock(nodes) as redlock:
        async with await redlock("x").acquire() as lease:
            assert lease.valid
        assert eyes.keys() == []
        lease = await redlock("x").acquire()
        with pytest.raises(LockLost):
            async with lease:
                await redlock.force_release("x")
                await asyncio.sleep(10)


async def test_a_body_that_raises_keeps_its_own_exception(nodes):
    """Never an ExceptionGroup, and never another error."""
    async with Redlock(nodes) as redlock:
        with pytest.raises(ValueError, match="mine") as caught:
            async with redlock("x"):
                raise ValueError("mine")
        assert not hasattr(caught.value, "__notes__")


async def test_what_goes_wrong_with_the_lock_becomes_a_note(cluster):
    """A body's own exception wins over a lost lock and over a release that failed."""
    async with Redlock(cluster.urls, node_timeout=0.1) as redlock:
        with pytest.raises(ValueError, match="mine") as caught:
            async with redlock("x"):
                try:
                    await redlock.force_release("x")
                    await asyncio.sleep(10)
                finally:
                    raise ValueError("mine")
        assert "LockLost" in caught.value.__notes__[0]
        with pytest.raises(ValueError, match="mine") as caught:
            async with redlock("y"):
                for index in range(3):
                    cluster.pause(index)
                raise ValueError("mine")
        assert "QuorumUnavailable" in caught.value.__notes__[0]


async def test_a_release_that_is_not_confirmed(cluster):
    """By hand it raises; at the end of a body that has done its work it does not."""
    async with Redlock(cluster.urls, node_timeout=0.1) as redlock:
        events = []
        redlock.on_event(events.append)
        lease = await redlock("x").acquire()
        async with redlock("y"):
            for index in range(3):
                cluster.pause(index)
        assert [event.names for event in events if event.kind == "release_unconfirmed"] == [("y",)]
        with pytest.raises(QuorumUnavailable, match="expires within its ttl"):
            await lease.release()


async def test_a_body_that_blocks_the_loop_past_its_deadline(nodes):
    """LockLost at exit, though nothing could cancel it."""
    async with Redlock(nodes, ttl=0.2) as redlock:
        with pytest.raises(LockLost, match="blocked"):
            async with redlock("x"):
                time.sleep(0.3)  # noqa: ASYNC251 - the fault under test


async def test_a_new_lease_that_ran_out_while_the_loop_was_blocked_is_noticed_in_the_next_step(nodes):
    """Its first look has a timer of its own, which must not only arm the other one."""
    async with Redlock(nodes, ttl=0.5) as redlock:
        steps = 0
        with pytest.raises(LockLost):
            async with redlock("x"):
                time.sleep(0.6)  # noqa: ASYNC251 - that is what blocks it
                for _ in range(10):
                    await asyncio.sleep(0)
                    steps += 1
        assert steps <= 1  # uvloop runs its timers before this block goes on


async def test_a_body_that_swallows_the_cancellation(nodes):
    """LockLost at exit."""
    async with Redlock(nodes) as redlock:
        with pytest.raises(LockLost):
            async with redlock("x"):
                await redlock.force_release("x")
                try:
                    await asyncio.sleep(10)
                except asyncio.CancelledError:
                    with anyio.CancelScope(shield=True):
                        await asyncio.sleep(0.01)


async def test_cleanup_in_the_body_runs_inside_validity(nodes):
    """A shielded cleanup has the grace before the deadline to finish in."""
    async with Redlock(nodes) as redlock:
        cleaned = False
        with pytest.raises(LockLost):
            async with redlock("x", ttl=2, renew=False) as lease:
                try:
                    await asyncio.sleep(10)
                finally:
                    with anyio.move_on_after(lease.remaining, shield=True):
                        await asyncio.sleep(0.03)
                        cleaned = lease.valid
        assert cleaned


async def test_a_lease_lost_while_the_body_runs_in_a_task_group(nodes):
    """The body's own task group is cancelled as a whole, and LockLost is not wrapped."""
    async with Redlock(nodes) as redlock:
        with pytest.raises(LockLost):
            async with redlock("x"), asyncio.TaskGroup() as group:
                group.create_task(asyncio.sleep(10))
                await redlock.force_release("x")
                await asyncio.sleep(10)


async def test_detach_and_attach(nodes, eyes):
    """A lease goes from one client to another with its fence, and each side knows its part is over."""
    async with Redlock(nodes) as one, Redlock(nodes) as two:
        lease = await one("x", ttl=1).acquire()
        fence = lease.fencing_token
        text = lease.detach()
        with pytest.raises(NotHeld, match="cannot detach"):
            lease.detach()
        with pytest.raises(NotHeld, match="detach"):
            await lease.release()
        taken = two.attach(text)
        assert taken.valid
        assert taken.fencing_token == fence
        assert await one("x").try_acquire() is None
        await asyncio.sleep(1.2)
        assert taken.valid, "not renewed"
        async with taken:
            pass
        assert eyes.keys() == []


async def test_a_text_that_was_used_before_begins_no_block(nodes, eyes):
    """Its deadline may be to come, and somebody else has the lock: only the masters know."""
    async with Redlock(nodes) as one, Redlock(nodes) as two:
        text = (await one("x", ttl=5).acquire()).detach()
        async with two.attach(text):
            pass
        async with one("x") as held:
            with pytest.raises(LockLost, match="deleted or replaced"):
                async with two.attach(text):
                    pytest.fail("it began")
            assert held.valid
        late = (await one("x", ttl=0.2).acquire()).detach()
        await asyncio.sleep(0.25)
        with pytest.raises(LockLost, match="over before it was attached"):
            await two.attach(late).__aenter__()
        async with Redlock(nodes, namespace="other:") as other:
            with pytest.raises(ConfigurationError, match="namespace '': this client's namespace is 'other:'"):
                other.attach(text)
        assert eyes.keys() == []


async def test_options_go_with_a_lease_that_is_handed_on(nodes, eyes, eventually):
    """What is left of them, as of then."""
    async with Redlock(nodes) as one, Redlock(nodes) as two:
        text = (await one("capped", ttl=2, max_hold=0.5).acquire()).detach()
        started = time.monotonic()
        with pytest.raises(LockLost, match="max_hold"):
            async with two.attach(text):
                await asyncio.sleep(5)
        assert time.monotonic() - started < 0.6
        text = (await one("short", ttl=0.5, renew=False).acquire()).detach()
        started = time.monotonic()
        with pytest.raises(LockLost, match="renew=False"):
            async with two.attach(text):
                await asyncio.sleep(5)
        assert time.monotonic() - started < 0.55, "it was to end after its ttl"
        started = time.monotonic()
        text = (await one("kept", ttl=2, min_hold=1).acquire()).detach()
        async with two.attach(text):
            pass
        assert await one("kept").try_acquire() is None
        async with one("kept", wait=2):
            assert 0.8 < time.monotonic() - started < 1.8
        await eventually(lambda: not eyes.keys())


async def test_an_inner_lease_is_not_handed_on(nodes):
    """The outer block would go on without it."""
    async with Redlock(nodes) as redlock:
        lock = redlock("tree", reentrant=True)
        async with lock as outer:
            async with lock as inner:
                with pytest.raises(RedlockError, match="entered 2 times"):
                    inner.detach()
                with pytest.raises(RedlockError, match="entered 2 times"):
                    outer.detach()
            text = outer.detach()
        await redlock.attach(text).release()


async def test_attach_on_another_machine(nodes, eyes, monkeypatch):
    """Where the deadline cannot be read, the lease is valid only once the masters have confirmed it."""
    async with Redlock(nodes) as one, Redlock(nodes) as two:
        texts = [(await one(name, ttl=5).acquire()).detach() for name in ("x", "y", "z")]
        monkeypatch.setattr(environment, "identity", lambda: "another machine")
        taken = two.attach(texts[0])
        assert not taken.valid
        assert not taken.lost
        await taken.extend()
        assert taken.remaining > 4
        await taken.release()
        async with two.attach(texts[1]) as lease:
            assert lease.valid
        for eye in eyes.clients:
            eye.delete("z")
        with pytest.raises(LockLost):
            await two.attach(texts[2]).extend()
        assert eyes.keys() == []
        with pytest.raises(ConfigurationError, match="detach"):
            two.attach("something else")


async def test_key_of_another_type(nodes, eyes):
    """A key that is not a string is never free, and is left alone."""
    async with Redlock(nodes) as redlock:
        for eye in eyes.clients:
            eye.rpush("x", "an element")
        for refused in (redlock("x").acquire, redlock("x").try_acquire, redlock("x", "y").acquire):
            with pytest.raises(WrongKeyType, match="another type"):
                await refused()
        with pytest.raises(WrongKeyType):
            await redlock.inspect("x")
        with pytest.raises(WrongKeyType):
            await redlock.force_release("x")
        assert [eye.lrange("x", 0, -1) for eye in eyes.clients] == [[b"an element"]] * 5
        for eye in eyes.clients[:2]:
            eye.delete("x")
        for eye in eyes.clients[2:3]:
            eye.delete("x")
        async with redlock("x"):
            pass  # a minority of them does not matter


async def test_a_dropped_lease_runs_out(nodes):
    """A lease that nobody can release any more is reported, not renewed, and does not block its own process."""
    async with Redlock(nodes, ttl=0.4) as redlock:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            await redlock("x").acquire()
            gc.collect()
        assert any("garbage-collected without release" in str(warning.message) for warning in caught)
        started = time.monotonic()
        async with redlock("x"):
            assert time.monotonic() - started < 0.6


async def test_namespace_prefixes_every_key(nodes, eyes):
    """Two namespaces are two sets of locks."""
    async with Redlock(nodes, namespace="a:") as one, Redlock(nodes, namespace="b:") as two:
        async with one("x"), two("x"):
            assert eyes.holding("a:x") != eyes.holding("b:x")
        assert all(key.startswith((b"a:", b"b:")) for eye in eyes.clients for key in eye.keys("*"))


async def test_even_numbers_of_nodes(nodes, eventually):
    """Four nodes need three; a split of two and two settles."""
    async with Redlock(nodes[:4]) as redlock, Redlock(nodes[:4]) as other, redlock("x") as lease:
        await eventually(lambda: lease.spare_votes == 1)
        assert await other("x").try_acquire() is None


async def test_split_votes_settle(nodes, eyes):
    """Keys of two others, two each, are contention, and the lock is free when they are."""
    async with Redlock(nodes[:4], retry_delay=0.02) as redlock:
        await redlock.status()
        for index, eye in enumerate(eyes.clients[:4]):
            eye.set("x", f"other {index % 2}", px=600)
        assert await redlock("x").try_acquire() is None
        started = time.monotonic()
        await (await redlock("x").acquire()).release()
        assert time.monotonic() - started < 0.55


async def test_decorator(nodes):
    """It names the lock after the arguments, and waits, skips or raises."""
    async with Redlock(nodes) as redlock:
        running = asyncio.Event()
        go_on = asyncio.Event()

        @redlock.locked("job:{user_id}", on_conflict="skip")
        async def skipped(user_id: int, *, note: str = "") -> str:
            """Its own docstring."""
            running.set()
            await go_on.wait()
            return f"done {user_id}{note}"

        @redlock.locked("job:{user_id}", on_conflict="raise")
        async def raised(user_id: int) -> str:
            return f"done {user_id}"

        @redlock.locked("job:{user_id}", wait=5)
        async def waited(user_id: int) -> str:
            return f"done {user_id}"

        first = asyncio.create_task(skipped(1, note="!"))
        await running.wait()
        assert await skipped(1) is None
        with pytest.raises(LockTimeout):
            await raised(1)
        assert await raised(2) == "done 2"
        last = asyncio.create_task(waited(1))
        await asyncio.sleep(0.02)
        go_on.set()
        assert await first == "done 1!"
        assert await last == "done 1"
        assert skipped.__doc__ == "Its own docstring."


async def test_closing_the_client_ends_everything(nodes, eyes):
    """Held leases are released and their bodies cancelled; waiters get an error; the client can be used again."""
    async with Redlock(nodes) as other, Redlock(nodes) as redlock:
        entered = asyncio.Event()

        async def body():
            async with redlock("x"):
                entered.set()
                await asyncio.sleep(60)

        async with other("y"):
            tasks = [asyncio.create_task(body()), asyncio.create_task(redlock("y").acquire(wait=None))]
            tasks += [asyncio.create_task(redlock("x").acquire(wait=None)) for _ in range(3)]
            await entered.wait()
            await asyncio.sleep(0.02)
            await redlock.aclose()
            async with asyncio.timeout(1):
                results = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(results[0], LockLost)
        assert all("closed" in str(result) for result in results)
        assert eyes.keys() == []
        async with redlock("x"):
            pass


async def test_events_and_statistics(nodes):
    """One hook sees what happens; a callback that fails harms nobody."""
    async with Redlock(nodes) as redlock:
        seen = []
        end = redlock.on_event(seen.append)
        redlock.on_event(lambda _: 1 / 0)
        async with redlock("x"):
            assert redlock.statistics().held == 1
        with pytest.raises(LockLost):
            async with redlock("x"):
                await redlock.force_release("x")
                await asyncio.sleep(10)
        kinds = [event.kind for event in seen]
        assert kinds == ["acquired", "released", "acquired", "lost"]
        end()
        async with redlock("x"):
            pass
        assert len(seen) == 4
        numbers = redlock.statistics()
        assert (numbers.acquired, numbers.released, numbers.lost, numbers.held, numbers.nodes_up) == (3, 2, 1, 0, 5)


async def test_a_lease_is_renewed_three_times_a_ttl(nodes):
    """Not more often: what is renewed early to go out with others is not renewed again when it would have been due."""
    async with Redlock(nodes, ttl=0.6) as redlock:
        async with redlock("x"):
            await asyncio.sleep(2.0)
        assert 8 <= redlock.statistics().extended <= 12


async def test_the_inner_of_two_leases_cannot_free_the_outer(nodes):
    """Released twice it is NotHeld, and the outer one goes on."""
    async with Redlock(nodes) as redlock:
        lock = redlock("x", reentrant=True)
        outer, inner = await lock.acquire(), await lock.acquire()
        await inner.release()
        with pytest.raises(NotHeld):
            await inner.release()
        assert outer.valid
        await outer.release()


@pytest.mark.alone
async def test_whichever_of_two_leases_ends_last_frees_the_lock(nodes, eyes):
    """The outer one is over, twice or dropped, and the inner one is renewed and protected as before."""
    async with Redlock(nodes, ttl=0.5) as redlock, Redlock(nodes) as other:
        lock = redlock("x", reentrant=True)
        async with lock as outer:
            inner = await lock.acquire()
        for use in (outer.release, outer.extend):
            with pytest.raises(NotHeld, match="already released"):
                await use()
        with pytest.raises(NotHeld, match="already released"):
            outer.detach()
        del outer
        gc.collect()
        async with inner:
            await asyncio.sleep(0.7)
            assert inner.valid
            assert await other("x").try_acquire() is None
        assert eyes.keys() == []
        async with lock:
            inner = await lock.acquire()
        with pytest.raises(LockLost):
            async with inner:
                await other.force_release("x")
                await asyncio.sleep(5)
                pytest.fail("it went on without the lock")


async def test_an_inner_lease_that_is_released_in_its_block_leaves_the_outer_alone(nodes):
    """The end of the block does not release once more."""
    async with Redlock(nodes) as redlock:
        lock = redlock("x", reentrant=True)
        async with lock as outer:
            async with lock as inner:
                await inner.release()
            assert outer.valid
            await outer.extend()


async def test_an_inner_lease_that_is_dropped_does_not_keep_the_lock(nodes, eyes):
    """Whoever enters and forgets it is warned, and the outer one frees the lock."""
    async with Redlock(nodes) as redlock:
        lock = redlock("x", reentrant=True)
        async with lock as outer:
            with pytest.warns(ResourceWarning, match="garbage-collected without release"):  # noqa: PT031 - dropped within
                await lock.acquire()
                gc.collect()
            await asyncio.sleep(0)
            assert outer.valid
        assert eyes.keys() == []


@pytest.mark.parametrize("options", [{"max_hold": 0.4}, {"renew": False, "ttl": 0.4}], ids=["max_hold", "ttl"])
async def test_a_body_that_was_ended_keeps_the_name_for_min_hold(options, nodes):
    """It was long enough, and began when it did, whatever ended it."""
    async with Redlock(nodes) as redlock:
        started = time.monotonic()
        with pytest.raises(LockLost):
            async with redlock("x", min_hold=1, **options):
                await asyncio.sleep(5)
        assert time.monotonic() - started < 0.5
        async with redlock("x", wait=3):
            assert 0.95 < time.monotonic() - started < 1.3


async def test_trying_once_ends_though_no_majority_names_one_holder(nodes, eyes):
    """Leftovers of three attempts, of which nobody has it: it is asked again for `node_timeout`, and no longer."""
    for token, some in (("one", eyes.clients[:2]), ("two", eyes.clients[2:4]), ("three", eyes.clients[4:])):
        for eye in some:
            eye.set("x", token, px=5000)
    async with Redlock(nodes, node_timeout=0.2) as redlock:
        await redlock.status()
        started = time.monotonic()
        assert await redlock("x").try_acquire() is None
        assert time.monotonic() - started < 0.5
        assert redlock.statistics().attempts > 1


async def test_a_ttl_in_milliseconds_is_warned_of_and_can_be_forgotten(nodes, eyes, eventually, caplog):
    """The masters remember it; deleted there, the clients tell theirs again."""
    async with Redlock(nodes) as redlock:
        await (await redlock("x").acquire()).release()
        assert "Durations are seconds" not in caplog.text
        async with Redlock(nodes) as other, other("x", ttl=30_000):
            pass
        assert "a ttl of 30000 s is used" in caplog.text

        async def becomes(longest):
            async with asyncio.timeout(5):
                while {each.longest_ttl for each in await redlock.status()} != {longest}:  # noqa: ASYNC110 - asked anew each time
                    await asyncio.sleep(0.01)

        await becomes(30_000.0)
        for eye in eyes.clients:
            eye.hdel("redlock-async:node", "ttl")
        await becomes(10.0)
        await eventually(lambda: [eye.hget("redlock-async:node", "ttl") for eye in eyes.clients] == [b"10000"] * 5)


async def test_who_waits_for_itself_without_an_end_is_warned(nodes, caplog):
    """No error will ever say so. Nothing is logged where somebody else has it, or where there is an end."""
    async with Redlock(nodes) as redlock:

        async def wait(make):
            caplog.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.05), make("x", wait=None):
                    pass
            return [record.getMessage() for record in caplog.records]

        def full(name, **options):
            return redlock.semaphore(name, permits=2, count=2, **options)

        def one(name, **options):
            return redlock.semaphore(name, permits=2, **options)

        for first, then, why in (
            (redlock, redlock, "'x', which this task already holds (self-deadlock). Pass reentrant=True"),
            (redlock.fair_lock, redlock.fair_lock, "'x', which this task already holds (self-deadlock)"),
            (redlock.write_lock, redlock.read_lock, "'x', which this task already holds (self-deadlock). downgrade()"),
            (full, full, "'x'; this task holds 2 of its slots itself"),
        ):
            async with first("x"):
                (told,) = await wait(then)
                assert f"waiting forever (wait=None) for {why}" in told
                assert await asyncio.create_task(wait(then)) == []
        async with one("x"):
            assert await wait(one) == []


async def test_an_old_text_takes_nothing_from_who_attached_it_in_time(nodes, eyes):
    """Who has it has renewed it since; it is no business of a second worker, who comes late."""
    async with Redlock(nodes) as one, Redlock(nodes) as two:
        text = (await one("x", ttl=0.5).acquire()).detach()
        async with one.attach(text) as lease:
            await asyncio.sleep(0.6)
            with pytest.raises(LockLost, match="over before it was attached"):
                await two.attach(text).__aenter__()
            await asyncio.sleep(0.1)
            assert lease.valid
            assert all(eye.get("x") == lease.token.encode() for eye in eyes.clients)


async def test_a_text_that_is_attached_twice_leaves_nothing_behind(nodes):
    """In the program that has it: what is told of leases, and kept of them."""
    async with Redlock(nodes) as redlock:
        for lock in (redlock("x"), redlock.read_lock("x"), redlock.semaphore("x", permits=3, count=2)):
            text = (await lock.acquire()).detach()
            first, second = redlock.attach(text), redlock.attach(text)
            await first.release()
            with contextlib.suppress(LockLost, NotHeld):
                await second.release()
            assert redlock.statistics().held == 0
        assert not redlock._running.registry._by_key
        assert not redlock._running.registry.sharing


async def test_a_released_lease_cannot_be_entered(nodes):
    """Though another of the same holding goes on."""
    async with Redlock(nodes) as redlock:
        lock = redlock("x", reentrant=True)
        async with lock:
            inner = await lock.acquire()
            await inner.release()
            with pytest.raises(NotHeld, match="cannot enter"):
                async with inner:
                    pytest.fail("it began")


async def test_many_that_try_once_are_not_remembered(nodes):
    """However long their queue is never empty."""
    async with Redlock(nodes) as redlock:
        semaphore = redlock.semaphore("x", permits=40)

        async def use():
            for _ in range(50):
                if (lease := await semaphore.try_acquire()) is not None:
                    await lease.release()

        longest = 0

        async def look():
            nonlocal longest
            while True:
                longest = max([longest, *(len(turn.one_shot) for turn in redlock._running.queues._queues.values())])
                await asyncio.sleep(0)

        looking = asyncio.create_task(look())
        await asyncio.gather(*(use() for _ in range(10)))
        looking.cancel()
    assert 0 < longest <= 10
