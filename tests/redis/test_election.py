"""Elections on real servers: terms, observers, and what each of them learns."""

import asyncio
import time
from contextlib import aclosing

import pytest
from soon import SOON

from redlock_async import ConfigurationError, LockLost, LockTimeout, Redlock
from redlock_async.blocking import Redlock as BlockingRedlock

pytestmark = pytest.mark.redis


@pytest.mark.asyncio
async def test_one_leads_and_all_others_know_the_leader(nodes):
    """The value is what the leader has passed; the office is free as soon as the block has ended."""
    async with Redlock(nodes) as first, Redlock(nodes, owner="second") as second:
        election = first.election("scheduler", value="10.0.0.7:8000", ttl=5)
        other = second.election("scheduler")
        assert await other.leader() is None
        async with election.term() as term:
            leader = await other.leader()
            assert (leader.value, leader.fencing_token) == ("10.0.0.7:8000", term.fencing_token)
            assert 3 < leader.expires_in <= 5
            with pytest.raises(LockTimeout, match=r"held by 10\.0\.0\.7:8000"):
                await other.term(wait=0).acquire()
        assert await other.leader() is None
        async with other.term() as later:
            assert later.fencing_token > term.fencing_token
            assert (await election.leader()).value == "second"


@pytest.mark.asyncio
async def test_observers_see_changes_within_50_ms(nodes):
    """In another client, in the leader's own client, and in their order."""
    async with Redlock(nodes) as leading, Redlock(nodes) as watching:
        seen = {"other": [], "own": []}

        async def observe(client, where):
            async with aclosing(client.election("x").changes()) as changes:
                async for leader in changes:
                    seen[where].append((time.monotonic(), leader and leader.value))

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(observe(watching, "other")), group.create_task(observe(leading, "own"))]
            await asyncio.sleep(0.3)
            happened = [(time.monotonic(), None)]
            for number in range(5):
                async with leading.election("x", value=f"v{number}", ttl=0.5).term():
                    happened.append((time.monotonic(), f"v{number}"))
                    await asyncio.sleep(0.6)  # long enough for renewals, which are no changes
                happened.append((time.monotonic(), None))
                await asyncio.sleep(0.2)
            for task in tasks:
                task.cancel()
        for where in ("other", "own"):
            assert [value for _, value in seen[where]] == [value for _, value in happened], where
            delays = [saw - did for (saw, _), (did, _) in zip(seen[where][1:], happened[1:], strict=True)]
            print(where, "delays in ms:", [round(delay * 1000, 1) for delay in delays])
            assert sorted(delays)[len(delays) // 2] < 0.05


@pytest.mark.asyncio
async def test_a_hung_node_delays_no_observer(cluster):
    """It would for a node timeout, 0.25 s, if the observer waited for its reply."""
    async with Redlock(cluster.urls) as leading, Redlock(cluster.urls) as watching:
        async with aclosing(watching.election("x").changes()) as changes:
            assert await anext(changes) is None
            cluster.pause(4)
            began = time.monotonic()
            async with leading.election("x", value="v").term():
                elected = time.monotonic()
                assert (await anext(changes)).value == "v"
                assert time.monotonic() - elected < 0.15
                assert (await watching.election("x").leader()).value == "v"
            assert time.monotonic() - began < 0.25, "the node was noticed before, which makes this test worthless"
        cluster.resume(4)


@pytest.mark.asyncio
async def test_observers_learn_of_a_term_that_expires(nodes):
    """Nobody tells them that a leader has died: they look when its term is over, though its key is still there."""
    async with Redlock(nodes) as leading, Redlock(nodes) as watching:
        term = await leading.election("x", ttl=0.5, takeover_delay=30).term().acquire()
        async with aclosing(watching.election("x").changes()) as changes:
            assert (await anext(changes)).fencing_token == term.fencing_token
            term._session.registry.abandon(term._held)
            began = time.monotonic()
            assert await anext(changes) is None
            assert time.monotonic() - began < SOON
        assert await watching.election("x").leader() is None


@pytest.mark.asyncio
async def test_run_serves_until_serve_returns(nodes):
    """Each time the leader is deposed its work is cancelled, and begun again in the next term."""
    async with Redlock(nodes) as candidate, Redlock(nodes) as operator:
        terms = []

        async def serve(term):
            terms.append(term)
            if len(terms) < 3:
                await operator.force_release("x")
                await asyncio.sleep(10)
            return len(terms)

        assert await candidate.election("x", ttl=5).run(serve) == 3
        fences = [term.fencing_token for term in terms]
        assert fences == sorted(set(fences))
        assert [term.lost for term in terms] == [True, True, False]
        assert await operator.election("x").leader() is None


@pytest.mark.asyncio
async def test_run_ends_with_the_error_of_serve(nodes, eyes):
    """And the office is free. A LockLost of another lock is such an error."""
    async with Redlock(nodes) as redlock:

        async def fail(_):
            raise LockLost("another lock")

        with pytest.raises(LockLost, match="another lock"):
            await redlock.election("x").run(fail)
        assert eyes.keys() == []


@pytest.mark.asyncio
async def test_closing_the_client_ends_all(nodes):
    """It must not be opened again by those that use it."""
    redlock = Redlock(nodes)

    async def forever(_):
        await asyncio.sleep(60)

    async def observe():
        async for _ in redlock.election("x").changes():
            pass

    running = asyncio.create_task(redlock.election("x").run(forever))
    observing = asyncio.create_task(observe())
    await asyncio.sleep(0.5)
    await redlock.aclose()
    done = await asyncio.wait_for(asyncio.gather(running, observing, return_exceptions=True), 5)
    assert isinstance(done[0], LockLost), done
    assert "the client was closed" in str(done[1]), done
    assert redlock.loop is None


@pytest.mark.asyncio
async def test_cancelling_run_frees_the_office(nodes, eyes):
    """As a service does that gets SIGTERM."""
    async with Redlock(nodes) as redlock:
        began = asyncio.Event()

        async def serve(_):
            began.set()
            await asyncio.sleep(60)

        task = asyncio.create_task(redlock.election("x").run(serve))
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert eyes.keys() == []


@pytest.mark.asyncio
async def test_an_outage_is_no_change(cluster):
    """Nothing is known then; and when the nodes are back, the observer goes on."""
    async with (
        Redlock(cluster.urls) as leading,
        Redlock(cluster.urls) as watching,
        aclosing(watching.election("x").changes()) as changes,
    ):
        assert await anext(changes) is None
        following = asyncio.ensure_future(anext(changes))
        for index in range(3):
            cluster.pause(index)
        done, _ = await asyncio.wait({following}, timeout=1)
        assert not done
        for index in range(3):
            cluster.resume(index)
        async with leading.election("x", value="v").term():
            assert (await asyncio.wait_for(following, 10)).value == "v"


def test_elections_for_threads(nodes):
    """The same, without await."""
    with BlockingRedlock(nodes) as redlock:
        election = redlock.election("x", value="v", ttl=5)
        changes = election.changes()
        assert next(changes) is None
        with election.term(wait=2) as term:
            assert next(changes).value == "v"
            assert election.leader().fencing_token == term.fencing_token
        assert next(changes) is None
        changes.close()
        terms = []

        def serve(term):
            terms.append(term)
            if len(terms) < 2:
                redlock.force_release("x")
                assert term.wait_until_lost(5)
                term.raise_if_lost()
            return "done"

        assert election.run(serve) == "done"
        assert len(terms) == 2
        with pytest.raises(ConfigurationError, match="ttl"):
            redlock.election("x", ttl=0)
