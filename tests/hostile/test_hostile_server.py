"""One node, or all of them, answer anything but what was asked: the others carry on, or a clear error comes in time."""

import asyncio
import contextlib
import gc
import time

import pytest
import redis
from stub import GARBAGE, HANDSHAKE, PUSHES, SPOILS, TOKEN, WRONG, Stub, always, array, cut, dripping, grow_old, number

from redlock_async import LockLost, LockTimeout, QuorumUnavailable, Redlock, RedlockError
from redlock_async.errors import NodeRefused

BOUND = 5.0
"""Seconds in which everything must be over, on a busy machine, whatever is answered: no wait here is above 0.1."""


@pytest.fixture(scope="module", autouse=True)
def cheap_collections():
    """Each test looks for what was dropped unread; the interpreter's own objects need no second look."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(name="nodes")
def grown_up_nodes(nodes):
    """Masters that have voted for an hour, with whichever stub is among them."""
    grow_old(nodes, beside=nodes[1:])
    return nodes


@contextlib.asynccontextmanager
async def nothing_unhandled():
    """Whatever reaches the loop's exception handler was nobody's, and fails the test."""
    loop, reports = asyncio.get_running_loop(), []
    loop.set_exception_handler(lambda _loop, context: reports.append(context))
    yield
    await asyncio.sleep(0)
    gc.collect()
    await asyncio.sleep(0)
    loop.set_exception_handler(None)
    assert not reports, reports


def at(*names):
    """These commands only."""
    return lambda name: name in names


def not_shaking_hands(name):
    """All commands of a node that is in use."""
    return name not in HANDSHAKE or name == "DELIFEQ"


def check(error, stubs):
    """An error of the library says what is wrong with which node, in one readable line each."""
    assert isinstance(error, RedlockError), repr(error)
    text = str(error)
    assert len(text) < 500 * (1 + len(stubs)), len(text)
    if isinstance(error, QuorumUnavailable):
        labels = {stub.label for stub in stubs}
        assert error.nodes, text
        assert set(error.nodes) <= labels
        for label, cause in error.nodes.items():
            assert label in text
            assert isinstance(cause, OSError | RedlockError), repr(cause)
            assert str(cause).strip() or type(cause) is NodeRefused, f"{label} without a cause: {cause!r}"
            assert type(cause).__module__.partition(".")[0] in {"builtins", "redlock_async"}, repr(cause)


async def together(runs):
    """All of them at once, so that they wait at the same time; every failure is shown."""
    results = await asyncio.gather(*runs, return_exceptions=True)
    if failures := [result for result in results if isinstance(result, Exception)]:
        raise ExceptionGroup(f"{len(failures)} of {len(results)}", failures)
    return results


# One of five


async def everything(redlock, name):
    """Each kind of lock, with and without somebody in the way, and what operators do."""
    lease = await redlock(name).acquire()
    with pytest.raises(LockTimeout):
        await redlock.read_lock(name).acquire(wait=0)
    with pytest.raises(LockTimeout):
        await redlock.fair_lock(name).acquire(wait=0.02)
    assert (await redlock.inspect(name)).held
    await lease.extend()
    await lease.release()
    async with redlock(name, f"{name} too") as both:
        assert both.fencing_token > lease.fencing_token
    several = await asyncio.gather(*(redlock(f"{name} {number}").acquire() for number in range(5)))
    await asyncio.gather(*(lease.release() for lease in several))
    async with redlock(name, fencing=False) as bare:
        await bare.extend()
    async with redlock.fair_lock(name) as first:
        await first.extend()
        with pytest.raises(LockTimeout):
            await redlock.fair_lock(name).acquire(wait=0.02)
    async with redlock.read_lock(name) as reader, redlock.read_lock(name):
        await reader.extend()
        with pytest.raises(LockTimeout):
            await asyncio.create_task(redlock.write_lock(name).acquire(wait=0.02))
    async with redlock.write_lock(name) as writer:
        await writer.extend()
        await (await writer.downgrade()).release()
    async with redlock.semaphore(name, permits=2) as one, redlock.semaphore(name, permits=2):
        await one.extend()
        with pytest.raises(LockTimeout):
            await redlock.semaphore(name, permits=2).acquire(wait=0)
    async with redlock.semaphore(name, permits=2, min_hold=0.01):
        pass
    latch = redlock.latch(f"{name} {redlock!r}", count=2)  # two stubs never have one address at a time
    await latch.count_down("a")
    assert await latch.remaining() == 1
    await latch.count_down("b")
    await latch.wait(timeout=1)
    assert sum(node.up for node in await redlock.status()) >= 4
    await redlock(name, renew=False).acquire()
    assert await redlock.force_release(name)
    held = await redlock.inspect(name)
    assert held is None or not held.held  # by the hostile one's word alone


async def one_of_five(nodes, name, **hostility):
    """All of it, with such a node among four that are well."""
    async with Stub(**hostility, beside=tuple(nodes[1:])) as stub, Redlock([stub.url, *nodes[1:]], wait=2) as redlock:
        started = time.monotonic()
        try:
            async with asyncio.timeout(BOUND):
                await everything(redlock, name)
        except Exception as error:
            error.add_note(f"in {name}")
            raise
        assert time.monotonic() - started < BOUND
        return stub


async def no_key_left(nodes):
    """On the nodes that are well; the last releases may still be on their way."""
    clients = [redis.Redis.from_url(url) for url in nodes[1:]]
    try:
        deadline = time.monotonic() + 2
        while keys := [key for client in clients for key in client.scan_iter() if b"redlock-async:" not in key]:
            assert time.monotonic() < deadline, keys
            await asyncio.sleep(0.01)
    finally:
        for client in clients:
            client.close()


def batches(items, size):
    """So many at a time."""
    items = list(items)
    return [items[start : start + size] for start in range(0, len(items), size)]


@pytest.mark.share(3)
@pytest.mark.asyncio
@pytest.mark.parametrize("spoils", batches(SPOILS, 18), ids=lambda names: names[0])
async def test_four_nodes_carry_on_beside_one_that_answers_anything(nodes, spoils):
    """Whatever it says to all it is asked once it is in use."""
    async with nothing_unhandled():
        stubs = await together(one_of_five(nodes, spoil, spoil=SPOILS[spoil], at=not_shaking_hands) for spoil in spoils)
        assert all(stub.spoilt for stub in stubs)
        await no_key_left(nodes)


@pytest.mark.share(4)
@pytest.mark.asyncio
@pytest.mark.parametrize("step", HANDSHAKE)
async def test_four_nodes_carry_on_beside_one_that_shakes_hands_badly(nodes, step):
    """At any step of it."""
    async with nothing_unhandled():
        stubs = await together(
            one_of_five(nodes, f"{spoil} {step}", spoil=SPOILS[spoil], at=at(step)) for spoil in SOME
        )
        assert all(stub.spoilt for stub in stubs)
        await no_key_left(nodes)


SOME = (
    "error: NOSCRIPT No matching scr",
    "error: ",
    "garbage: zeros",
    "wrong: big number",
    "wrong: a thousand deep",
    "push invalidate lists, and the reply",
    "a reply too many",
    "half an array",
    "the reply and the end",
)
"""One of each sort."""

UNASKED = {
    **{f"garbage: {name}": data for name, data in GARBAGE.items()},
    **{f"wrong: {name}": WRONG[name] for name in ("null", "OK", "10 MB", "empty array", "map", "a thousand deep")},
    **{f"push {name}": data for name, data in PUSHES.items()},
    "error": b"-ERR nobody asked\r\n",
}


@pytest.mark.asyncio
@pytest.mark.parametrize("names", batches(UNASKED, 16), ids=lambda names: names[0])
async def test_what_nobody_asked_for_ends_one_connection_at_most(nodes, names):
    """Said while nothing is under way: the next command goes to a new connection, and to the others."""

    async def run(name):
        async with Stub(beside=tuple(nodes[1:])) as stub, Redlock([stub.url, *nodes[1:]], wait=2) as redlock:
            stub.send_all(UNASKED[name])
            await everything(redlock, name)

    async with nothing_unhandled(), asyncio.timeout(BOUND):
        await together(map(run, names))
        await no_key_left(nodes)


@pytest.mark.asyncio
async def test_a_connection_that_ends_while_it_waits_for_the_others_holds_nobody_up(nodes):
    """Known at the next step, and not only when the time for connecting is over."""
    async with Stub(
        spoil=SPOILS["a reply too many"], at=at("node_record", "SCRIPT LOAD"), beside=tuple(nodes[1:])
    ) as stub:
        redlock = Redlock([stub.url, *nodes[1:]], node_timeout=1, wait=8)
        started = time.monotonic()
        async with redlock, redlock("x"):
            assert time.monotonic() - started < 3  # the time for connecting is 8


@pytest.mark.asyncio
async def test_a_node_that_ends_every_connection_is_not_asked_without_end(nodes):
    """However well it shakes hands: what is taken into use and lost at once counts as an attempt that failed."""
    async with Stub(
        spoil=lambda right: always(right, "close")(right), at=at("node_record"), beside=tuple(nodes[1:])
    ) as stub:
        async with Redlock([stub.url, *nodes[1:]]) as redlock:
            until = time.monotonic() + 0.5
            while time.monotonic() < until:
                await (await redlock("x").acquire()).release()
        assert 2 <= stub.connections < 10


@pytest.mark.asyncio
async def test_a_node_that_asks_for_its_scripts_for_ever_is_not_sent_them_for_ever(nodes):
    """Once with the source, and then it is an error like any other."""
    spoil = SPOILS["error: NOSCRIPT No matching scr"]
    async with (
        Stub(spoil=spoil, at=not_shaking_hands, beside=tuple(nodes[1:])) as stub,
        Redlock([stub.url, *nodes[1:]]) as redlock,
    ):
        await everything(redlock, "x")
        await asyncio.sleep(0.05)
        sent = len(stub.seen)
        await asyncio.sleep(0.05)
        assert len(stub.seen) == sent
        assert sent < 200


@pytest.mark.asyncio
async def test_a_record_of_another_type_is_the_fault_of_that_node(nodes):
    """Overwritten on a live connection, which its report of that makes us read again."""
    grow_old(nodes)
    shared = redis.Redis.from_url(nodes[0])
    async with nothing_unhandled(), Redlock(nodes) as redlock:
        await (await redlock("x").acquire()).release()
        shared.delete("redlock-async:node")
        shared.lpush("redlock-async:node", 1)
        async with asyncio.timeout(BOUND):
            while all(node.can_vote for node in await redlock.status()):  # noqa: ASYNC110 - a node's state has no event
                await asyncio.sleep(0.001)
        first, *others = await redlock.status()
        assert "another type" in first.error
        assert all(node.can_vote for node in others)
        await everything(redlock, "x")
    shared.close()


@pytest.mark.asyncio
async def test_a_key_of_another_type_on_one_node_hides_nothing_from_operators(nodes):
    """The others know, and are enough."""
    grow_old(nodes)
    with contextlib.closing(redis.Redis.from_url(nodes[0])) as client:
        client.lpush("x", 1)
    async with Redlock(nodes) as redlock:
        lease = await redlock("x").acquire()
        assert (await redlock.inspect("x")).votes == 4
        assert await redlock.force_release("x")
        with pytest.raises((LockLost, QuorumUnavailable)):  # two that had it no more, and one that says neither
            await lease.release()


# All nodes


@pytest.mark.asyncio
async def test_a_script_that_answers_null_does_not_keep_us_asking_for_ever():
    """As a plain SET does that finds the lock taken; asked in the form that tells by whom, it must be told."""
    async with contextlib.AsyncExitStack() as stack:
        spoil, where = SPOILS["wrong: null"], at("SET", "mutex_acquire")
        stubs = [await stack.enter_async_context(Stub(spoil=spoil, at=where)) for _ in range(3)]
        redlock = await stack.enter_async_context(Redlock([stub.url for stub in stubs]))
        async with asyncio.timeout(0.5):
            with pytest.raises(QuorumUnavailable, match="malformed reply"):
                await redlock("x", fencing=False).acquire(wait=0)


async def use(redlock, name, verbs):
    """Those calls, one after the other; returns what each of them raised, and how long it took."""
    outcomes = {}
    for verb, call in verbs.items():
        started = time.monotonic()
        try:
            async with asyncio.timeout(BOUND):
                await call(redlock, name)
        except Exception as error:  # noqa: BLE001 - which it is, is judged by the caller
            outcomes[verb] = error
        else:
            outcomes[verb] = None
        assert time.monotonic() - started < BOUND, verb
    return outcomes


async def hold(lock):
    """Take it, lengthen it, give it back."""
    lease = await lock.acquire(wait=0.03)
    try:
        await lease.extend()
    except RedlockError:
        with contextlib.suppress(RedlockError):
            await lease.release()
        raise
    await lease.release()


async def several(semaphore):
    """Two slots at once."""
    await (await semaphore.acquire(wait=0.03, count=2)).release()


async def under(lock):
    """The same as a block."""
    async with lock:
        pass


async def count(latch):
    """All of a latch."""
    await latch.count_down("a")
    await latch.remaining()
    await latch.wait(timeout=0.03)


async def turn_down(lock):
    """A writer becomes a reader."""
    lease = await lock.acquire(wait=0.03)
    await (await lease.downgrade()).release()


async def attempt(lock):
    """Once."""
    if (lease := await lock.try_acquire()) is not None:
        await lease.release()


SHORT = {"ttl": 0.5, "wait": 0.03}
VERBS = {
    "lock": lambda redlock, name: hold(redlock(name)),
    "unfenced": lambda redlock, name: hold(redlock(name, fencing=False, ttl=0.5)),
    "two names": lambda redlock, name: hold(redlock(name, f"{name}2", ttl=0.5)),
    "fair": lambda redlock, name: hold(redlock.fair_lock(name, **SHORT)),
    "read": lambda redlock, name: hold(redlock.read_lock(name, **SHORT)),
    "write": lambda redlock, name: hold(redlock.write_lock(name, **SHORT)),
    "downgrade": lambda redlock, name: turn_down(redlock.write_lock(name, **SHORT)),
    "semaphore": lambda redlock, name: hold(redlock.semaphore(name, permits=3, **SHORT)),
    "block": lambda redlock, name: under(redlock(name, **SHORT)),
    "kept": lambda redlock, name: under(redlock(name, min_hold=0.05, **SHORT)),
    "latch": lambda redlock, name: count(redlock.latch(name, count=1)),
    "open": lambda redlock, name: redlock.latch(name, count=1).wait(timeout=0),
    "try": lambda redlock, name: attempt(redlock.read_lock(name, ttl=0.5)),
    "inspect": lambda redlock, name: redlock.inspect(name),
    "force_release": lambda redlock, name: redlock.force_release(name),
    "several": lambda redlock, name: several(redlock.semaphore(name, permits=3, **SHORT)),
    "inspect_semaphore": lambda redlock, name: redlock.inspect_semaphore(name),
    "change_permits": lambda redlock, name: redlock.change_permits(name, 2),
    "status": lambda redlock, _name: redlock.status(),
}
TAKING = {"lock", "two names", "read", "write", "downgrade", "semaphore", "several", "block", "fair"}


async def all_of_them(nodes, name, verbs=VERBS, kind=Stub, **hostility):
    """Masters that are all like that: what each call came to."""
    async with contextlib.AsyncExitStack() as stack:
        stubs = [await stack.enter_async_context(kind(**hostility)) for _ in range(nodes)]
        redlock = Redlock([stub.url for stub in stubs], ttl=0.5, wait=0.03, node_timeout=0.03, retry_delay=0.01)
        stack.push_async_callback(redlock.aclose)
        looking = asyncio.create_task(redlock._session().look())
        spoilt = [asyncio.create_task(stub.met.wait()) for stub in stubs]
        # Until the first look is over, or something has been spoilt already.
        _, pending = await asyncio.wait([looking, *spoilt], timeout=BOUND, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        outcomes = await use(redlock, name, verbs)
        for verb, error in outcomes.items():
            try:
                if error is not None:
                    check(error, stubs)
            except Exception as wrong:
                wrong.add_note(f"{name}: {verb}: {error!r}")
                raise wrong from error
        return outcomes, stubs


@pytest.mark.share(3)
@pytest.mark.asyncio
@pytest.mark.parametrize("spoils", batches(SPOILS, 27), ids=lambda names: names[0])
async def test_when_all_answer_anything_every_call_ends_in_an_error_of_ours(spoils):
    """In time, and it says which node said what."""
    async with nothing_unhandled():
        runs = await together(all_of_them(3, spoil, spoil=SPOILS[spoil], at=not_shaking_hands) for spoil in spoils)
    for spoil, (outcomes, stubs) in zip(spoils, runs, strict=True):
        assert all(stub.spoilt for stub in stubs)
        assert outcomes["status"] is None  # operators see what is wrong
        if not spoil.startswith(("push ", "the reply", "an attribute", "each reply", "a reply", "a number")):
            assert all(outcomes[verb] for verb in TAKING), (spoil, outcomes)


@pytest.mark.share(4)
@pytest.mark.asyncio
@pytest.mark.parametrize("verb", VERBS)
async def test_the_first_wrong_reply_to_each_call(verb):
    """On a connection that is well until then; above, an earlier call may have ended it."""
    async with nothing_unhandled():
        for names in batches(WRONG, 50):
            runs = await together(
                all_of_them(1, name, {verb: VERBS[verb]}, spoil=always(WRONG[name]), at=not_shaking_hands)
                for name in names
            )
            assert all(stub.spoilt for _, (stub,) in runs)
            if verb in TAKING | {"latch", "open"}:  # nothing is granted, and nothing counted, by such a word
                worked = {name for name, (outcomes, _) in zip(names, runs, strict=True) if outcomes[verb] is None}
                assert worked <= (
                    {"refusal by text time"} if verb == "open" else set()
                )  # it says: open, and two events


class Taken(Stub):
    """One where somebody else has every lock."""

    def plausible(self, name, words):
        """Who waits in a queue may still wait."""
        return array(TOKEN, number(500), number(0)) if name == "fair_acquire" else super().plausible(name, words)


@pytest.mark.asyncio
@pytest.mark.parametrize("command", ["fair_acquire", "fair_ticket", "fair_leave"])
async def test_the_first_wrong_reply_to_those_who_queue(command):
    """The commands that only waiting needs."""
    async with nothing_unhandled():
        for names in batches(WRONG, 50):
            runs = await together(
                all_of_them(1, name, {"fair": VERBS["fair"]}, Taken, spoil=always(WRONG[name]), at=at(command))
                for name in names
            )
            assert not [name for name, (outcomes, _) in zip(names, runs, strict=True) if outcomes["fair"] is None]
            assert any(stub.spoilt for _, (stub,) in runs)


@pytest.mark.asyncio
async def test_the_first_wrong_reply_to_a_change_of_permits():
    """Its look was answered well."""
    async with nothing_unhandled():
        for names in batches(WRONG, 50):
            runs = await together(
                all_of_them(
                    1, name, {"change": VERBS["change_permits"]}, spoil=always(WRONG[name]), at=at("semaphore_change")
                )
                for name in names
            )
            assert all(stub.spoilt for _, (stub,) in runs)
            assert [name for name, (outcomes, _) in zip(names, runs, strict=True) if outcomes["change"] is None] == []


ONE = {verb: VERBS[verb] for verb in ("lock", "inspect", "status")}


@pytest.mark.share(4)
@pytest.mark.asyncio
@pytest.mark.parametrize("step", HANDSHAKE)
async def test_whatever_a_step_of_the_handshake_is_answered_with(step):
    """Every answer there is, on the only node there is."""
    async with nothing_unhandled():
        for spoils in batches(SPOILS, 60):
            runs = await together(all_of_them(1, spoil, ONE, spoil=SPOILS[spoil], at=at(step)) for spoil in spoils)
            assert all(stubs[0].spoilt for _, stubs in runs)


CUT = ("HELLO", "INFO server", "node_record", "mutex_acquire", "mutex_extend", "latch_look")


@pytest.mark.share(4)
@pytest.mark.asyncio
@pytest.mark.parametrize("then", ["close", "silence"])
@pytest.mark.parametrize("step", CUT)
async def test_a_reply_that_ends_at_any_byte(step, then):
    """And with it the connection, or all that is heard of it: an error of ours, in time."""
    verbs = {verb: VERBS[verb] for verb in ("lock", "inspect", "status", "latch")}
    whole = 0
    async with Stub() as stub, Redlock([stub.url], wait=0) as redlock:
        await use(redlock, "x", verbs)
        words = (b"EVALSHA", b"", b"3", b"x", b"1", b"t", b"1", b"1600000000000000")
        whole = len(stub.plausible(step, words))
    async with nothing_unhandled():
        for positions in batches(range(whole), 40):
            runs = await together(
                all_of_them(1, f"{step} {position}", verbs, spoil=cut(position, then), at=at(step))
                for position in positions
            )
            for outcomes, (stub,) in runs:
                assert stub.spoilt
                if step.startswith("mutex_"):
                    assert outcomes["lock"] is not None


@pytest.mark.asyncio
async def test_replies_that_come_a_byte_at_a_time_are_replies():
    """Handshake and all."""
    async with nothing_unhandled(), contextlib.AsyncExitStack() as stack:
        stubs = [await stack.enter_async_context(Stub(spoil=dripping)) for _ in range(3)]
        redlock = await stack.enter_async_context(Redlock([stub.url for stub in stubs], node_timeout=1))
        for verb, call in VERBS.items():
            async with asyncio.timeout(BOUND):
                with contextlib.suppress(LockTimeout):  # of the waits above: such a server is slow
                    await call(redlock, verb)
        assert [node.up for node in await redlock.status()] == [True] * 3
        assert redlock.statistics().acquired >= 10
        assert redlock.statistics().unavailable == 0


@pytest.mark.asyncio
async def test_beside_a_reply_that_never_ends_the_others_are_heard(nodes):
    """A header of a hundred million elements, and then one after the other."""
    spoil = always(b"*100000000\r\n")
    async with (
        Stub(spoil=spoil, at=at("mutex_acquire"), beside=tuple(nodes[1:])) as stub,
        Redlock([stub.url, *nodes[1:]], wait=2) as redlock,
    ):
        lease = await redlock("x").acquire()
        stub.send_all(b":1\r\n" * 10_000)
        await lease.extend()
        await lease.release()
    await no_key_left(nodes)
