"""What listeners hear of real servers: every end of an acquire, why leases are lost, and what each node answered."""

import asyncio
import time

import pytest
import redis

from redlock_async import LockLost, LockTimeout, QuorumUnavailable, Redlock
from redlock_async._runtime.acquire_round import AcquireRound
from redlock_async.testing import LocalCluster

pytestmark = pytest.mark.asyncio


class Heard(list):
    """What a listener heard."""

    def of(self, kind):
        """The events of that kind."""
        return [event for event in self if event.kind == kind]

    def answers(self, operation):
        """Of each command of that operation: the outcome on each node, by its label."""
        return [
            {answer.node: answer.outcome for answer in event.node_replies}
            for event in self.of("node_replies")
            if event.operation == operation
        ]

    async def until(self, kind, number=1):
        """Wait until so many events of that kind were heard."""
        async with asyncio.timeout(10):
            while len(self.of(kind)) < number:  # noqa: ASYNC110 - the list is filled by a callback, as a user's is
                await asyncio.sleep(0.005)


async def listened(redlock):
    """A client with all its nodes up, and what is heard of it from then on.

    On a busy machine one may be connected so late that it is quarantined at first, for a ttl: those here are short.
    """
    async with asyncio.timeout(10):
        while redlock.statistics().nodes_up < 5:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.005)
    heard = Heard()
    redlock.on_event(heard.append, node_replies=True)
    return heard


async def test_a_pair_is_heard_with_every_answer(nodes):
    """One event for each command, with five grants in the nodes' order, and times that fit into the pair's."""
    async with Redlock(nodes, ttl=2) as redlock:
        heard = await listened(redlock)
        started = time.monotonic()
        lease = await redlock("x").acquire()
        await heard.until("node_replies")
        await lease.release()
        await heard.until("node_replies", 2)
        took = time.monotonic() - started
        granted = dict.fromkeys(redlock.statistics().node_states, "granted")
        assert heard.answers("acquire") == heard.answers("release") == [granted]
        assert all(0 < answer.seconds < took for event in heard.of("node_replies") for answer in event.node_replies)
        [acquired], [released] = heard.of("acquired"), heard.of("released")
        assert (acquired.names, acquired.lock_kind) == (("x",), "lock")
        assert 0 < acquired.seconds < took
        assert 0 < released.remaining < released.ttl == 2


async def test_contention_names_the_holder(nodes):
    """A refused attempt names the holder, and so does the end of a call that does not wait."""
    async with Redlock(nodes, ttl=2) as redlock, Redlock(nodes, ttl=2, owner="somebody") as other, other("x"):
        heard = await listened(redlock)
        assert await redlock("x").try_acquire() is None
        await heard.until("node_replies", 2)
        [refused], [busy] = heard.of("contended"), heard.of("busy")
        assert refused.holder == busy.holder == "somebody"
        assert heard.answers("acquire") == [dict.fromkeys(redlock.statistics().node_states, "refused")]
        assert redlock.statistics().refused == 1


async def test_a_node_that_is_down_or_hangs_answers_so(cluster):
    """Down it has failed without being asked; frozen it is given up after the node timeout."""
    async with Redlock(cluster.urls, ttl=2, node_timeout=0.2) as redlock:
        heard = await listened(redlock)
        down, frozen, *well = redlock.statistics().node_states
        cluster.kill(0)
        await heard.until("node_down")
        cluster.pause(1)
        lease = await redlock("x").acquire()
        await heard.until("node_replies")
        assert heard.answers("acquire") == [{down: "failed", frozen: "timed_out"} | dict.fromkeys(well, "granted")]
        seconds = {answer.node: answer.seconds for answer in heard.of("node_replies")[0].node_replies}
        assert seconds[down] is None
        assert seconds[frozen] >= 0.2
        assert [event.node for event in heard.of("node_down")] == [down, frozen]
        await lease.release()


async def test_a_connection_that_breaks_has_failed_when_it_broke(cluster):
    """It was asked, so there is a time, shorter than the timeout."""
    async with Redlock(cluster.urls, ttl=2, node_timeout=2) as redlock:
        heard = await listened(redlock)
        label = next(iter(redlock.statistics().node_states))
        cluster.pause(0)
        lease = await redlock("x").acquire()
        cluster.kill(0)
        await heard.until("node_replies")
        [answer] = [answer for answer in heard.of("node_replies")[0].node_replies if answer.node == label]
        assert answer.outcome == "failed"
        assert 0 < answer.seconds < 2
        await lease.release()


async def test_renewals_are_heard_when_made_and_when_not(cluster):
    """With what was left of the old deadline; and with three frozen as failed, then lost, as the counters have it."""
    async with Redlock(cluster.urls, ttl=0.9, node_timeout=0.1) as redlock:
        heard = await listened(redlock)
        with pytest.raises(LockLost):
            async with redlock("x"):
                await heard.until("extended", 2)
                for node in range(3):
                    cluster.pause(node)
                await asyncio.Event().wait()
        assert all(0 < event.remaining <= event.ttl == 0.9 for event in heard.of("extended"))
        failed = heard.of("extend_failed")
        assert failed
        assert isinstance(failed[0].error, QuorumUnavailable)
        assert len(failed[0].error.nodes) == 3
        [lost] = heard.of("lost")
        assert lost.reason == "unconfirmed"
        numbers = redlock.statistics()
        assert (numbers.failed_renewals, numbers.extended) == (len(failed), len(heard.of("extended")))


async def lost_for(heard, lock, then):
    """The reason that is heard when a body ends so."""
    with pytest.raises(LockLost):
        async with lock:
            await then()
            await asyncio.Event().wait()
    await heard.until("lost")
    reason = heard.of("lost")[0].reason
    heard.clear()
    return reason


async def nothing():
    """Wait only."""


async def test_why_a_lease_was_lost_is_one_word(nodes):
    """Each way in which it can happen."""
    redlock = Redlock(nodes, ttl=0.4)
    async with redlock:
        heard = await listened(redlock)

        async def freed():
            await redlock.force_release("x")

        async def blocked():
            time.sleep(0.6)  # noqa: ASYNC251 - the very thing that must not be done

        assert await lost_for(heard, redlock("x"), freed) == "taken"
        assert await lost_for(heard, redlock("x", renew=False), nothing) == "expired"
        assert await lost_for(heard, redlock("x", max_hold=0.2), nothing) == "max_hold"
        assert await lost_for(heard, redlock("x"), blocked) in {"blocked", "unconfirmed"}
        lease = await redlock("x", ttl=2).acquire()
        await redlock.aclose()
    await heard.until("lost")
    assert heard.of("lost")[-1].reason == "closed"
    assert lease.lost


async def test_a_loss_that_is_found_at_the_release_is_gone(nodes):
    """It had been reported as released before the masters said otherwise."""
    async with Redlock(nodes, ttl=2) as redlock:
        heard = await listened(redlock)
        lease = await redlock("x").acquire()
        for url in nodes:
            with redis.Redis.from_url(url) as client:  # blocks the loop: nothing is noticed before the release
                client.delete("x")
        with pytest.raises(LockLost):
            await lease.release()
        assert [event.kind for event in heard if event.kind != "node_replies"] == ["acquired", "released", "lost"]
        assert heard.of("lost")[0].reason == "missing_at_release"


async def test_an_acquire_that_is_cancelled_is_heard(nodes):
    """With how long it had waited: else those who lose patience would be missing from every statistic."""
    async with Redlock(nodes, ttl=2) as redlock, Redlock(nodes, ttl=2) as other, other("x"):
        heard = await listened(redlock)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await redlock("x").acquire(wait=None)
        [cancelled] = heard.of("cancelled")
        assert cancelled.seconds >= 0.04
        assert redlock.statistics().cancelled == 1


async def test_every_kind_of_lock_says_which_it_is(nodes):
    """On every event about it; the other commands have operations of their own."""
    async with Redlock(nodes, ttl=2) as redlock, Redlock(nodes, ttl=2) as other:
        heard = await listened(redlock)
        for lock in (redlock("a"), redlock.fair_lock("a"), redlock.read_lock("a"), redlock.semaphore("b", permits=2)):
            async with lock:
                pass
        async with redlock.write_lock("a") as lease:
            await (await lease.downgrade()).release()
        async with other.fair_lock("a"):
            with pytest.raises(LockTimeout):
                await redlock.fair_lock("a").acquire(wait=0.05)
        await redlock.latch("c", count=1).count_down("once")
        assert [event.lock_kind for event in heard.of("acquired")] == ["lock", "fair", "read", "semaphore", "write"]
        for operation in ("acquire", "release", "downgrade", "queue", "latch"):
            async with asyncio.timeout(10):
                while not heard.answers(operation):  # noqa: ASYNC110 - as above
                    await asyncio.sleep(0.005)


async def test_who_is_asked_later_is_timed_from_then():
    """Where one node is asked before the others, their time begins when they are."""
    async with LocalCluster(proxied=True) as cluster, Redlock(cluster.urls, ttl=2, node_timeout=2) as redlock:
        heard = await listened(redlock)
        cluster.delay(3, 0.15)
        context = redlock._running.context
        context.nodes[3].latency = 0.2  # it is known to be far: it is waited for
        round_ = _acquire(context, redlock("x"))
        round_.probe(context.nodes[3])
        await round_.outcome
        await heard.until("node_replies")
        far = heard.of("node_replies")[0].node_replies[3]
        near = [answer for answer in heard.of("node_replies")[0].node_replies if answer is not far]
        assert far.seconds >= 0.3
        assert len(near) == 4
        assert all(answer.seconds < 0.3 for answer in near), near


def _acquire(context, lock):
    """The round that an acquisition would start, without the acquisition."""
    attempt = lock._kind.start(context)
    command = attempt.retry_command(context.fresh_token(), 10_000, context.wall_us())
    return AcquireRound(context, attempt, command, 2, 1)


async def test_nobody_listens_and_nothing_is_watched(nodes):
    """A round of a client that nobody watches stands in the wires itself."""
    async with Redlock(nodes, ttl=2) as redlock:
        redlock.on_event(lambda _: None)
        async with redlock("x"):
            pending = [each for node in redlock._running.context.nodes for each in node.connection.pending]
            assert all(type(each).__name__ != "ReplyTimer" for each in pending)
        end = redlock.on_event(lambda _: None, node_replies=True)
        task = asyncio.create_task(redlock("x").acquire())
        await asyncio.sleep(0)
        assert {type(node.connection.pending[-1]).__name__ for node in redlock._running.context.nodes} == {"ReplyTimer"}
        await (await task).release()
        end()
        assert not redlock._events.reply_listeners


async def test_a_listener_that_fails_on_answers_changes_nothing(nodes, caplog):
    """As on any other event: it is logged."""
    async with Redlock(nodes, ttl=2) as redlock:
        redlock.on_event(lambda event: 1 / 0 if event.kind == "node_replies" else None, node_replies=True)
        async with redlock("x") as lease:
            assert lease.spare_votes >= 0
    assert "an on_event callback failed on node replies" in caplog.text
