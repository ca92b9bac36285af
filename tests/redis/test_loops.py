"""Event loops, threads, forks and processes: where a client may be used, and that all exclude each other."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import threading

import pytest
import redis

from redlock_async import ConfigurationError, LockTimeout, QuorumUnavailable, Redlock, RedlockError
from redlock_async.client import DefaultRedlock
from redlock_async.testing import LocalCluster

pytestmark = pytest.mark.redis


def connections(node, name):
    """The ids of the connections a node has under that name."""
    with redis.Redis.from_url(node) as client:
        return {each["id"] for each in client.client_list() if each["name"].partition("#")[0] == name}


def token_on(node, name):
    """What a node stores under that name."""
    with redis.Redis.from_url(node, decode_responses=True) as client:
        return client.get(name)


async def until(condition, patience=5.0):
    """Poll until it holds."""
    async with asyncio.timeout(patience):
        while not condition():  # noqa: ASYNC110 - a server's state has no event
            await asyncio.sleep(0.01)


# Loops and threads


def test_second_loop_after_the_first_was_closed(nodes):
    """The client works there, over new connections; those of the first loop are gone."""
    redlock = Redlock(nodes, owner="loops")

    async def use():
        async with redlock("x") as lease:
            return lease.fencing_token, connections(nodes[0], "redlock:loops")

    first, before = asyncio.run(use())
    second, after = asyncio.run(use())
    assert second > first
    assert len(before) == len(after) == 1
    assert before.isdisjoint(after)


def test_lease_of_a_closed_loop_does_not_come_along(nodes):
    """It was lost with its loop: its name is free, and the lease itself says so."""
    redlock = Redlock(nodes, ttl=60, wait=5)

    async def take():
        return await redlock("x").acquire()

    async def again():
        async with redlock("x") as lease:
            assert lease.valid
            assert not old.valid

    old = asyncio.run(take())
    assert old.lost
    asyncio.run(again())


def test_loop_is_the_one_in_use(nodes):
    """It is told while it can be used: neither before the first use, nor after aclose, nor when it is closed."""
    redlock = Redlock(nodes)
    assert redlock.loop is None

    async def use(*, close):
        async with redlock("x"):
            assert redlock.loop is asyncio.get_running_loop()
        if close:
            await redlock.aclose()
            assert redlock.loop is None

    asyncio.run(use(close=True))
    asyncio.run(use(close=False))
    assert redlock.loop is None


def test_default_client_forgets_its_configuration(nodes, monkeypatch):
    """It reads the environment again; while it is in use it refuses, and asking for its loop configures nothing."""
    monkeypatch.delenv("REDLOCK_NODES", raising=False)
    redlock = DefaultRedlock()
    assert redlock.loop is None

    async def use():
        async with redlock("x"):
            with pytest.raises(RedlockError, match="aclose"):
                redlock.reset()
        await redlock.aclose()

    for size in (3, 5):
        monkeypatch.setenv("REDLOCK_NODES", ",".join(nodes[:size]))
        monkeypatch.setenv("REDLOCK_NAMESPACE", f"{size}:")  # all clients of a namespace have the same nodes
        asyncio.run(use())
        assert redlock.statistics().nodes == size
        redlock.reset()
    assert "not used yet" in repr(redlock)


@pytest.mark.asyncio
async def test_another_live_loop_is_refused(nodes):
    """A thread with a loop of its own is told what to do; the first loop goes on undisturbed."""
    async with Redlock(nodes) as redlock, redlock("x") as lease:

        async def use():
            async with redlock("y"):
                raise AssertionError

        def in_a_thread():
            with pytest.raises(ConfigurationError, match="another event loop"):
                asyncio.run(use())

        await asyncio.to_thread(in_a_thread)
        await lease.extend()
        assert lease.valid


@pytest.mark.asyncio
async def test_it_is_not_closed_from_another_live_loop(nodes):
    """What holds and renews the lease would go on, and nobody would know of it any more."""
    redlock = Redlock(nodes)
    lease = await redlock("x").acquire()

    def in_a_thread():
        with pytest.raises(ConfigurationError, match=r"another event loop .* aclose\(\) it there first"):
            asyncio.run(redlock.aclose())

    await asyncio.to_thread(in_a_thread)
    assert redlock.loop is asyncio.get_running_loop()
    assert redlock.statistics().held == 1
    async with redlock("y") as other:
        assert other._held.context is lease._held.context
    await redlock.aclose()
    assert lease.lost
    assert redlock.loop is None
    assert token_on(nodes[0], "x") is None


@pytest.mark.asyncio
async def test_what_ran_on_a_closed_loop_is_closed_anywhere(nodes):
    """There is nothing left to close, and the next use is on the loop that runs."""
    redlock = Redlock(nodes)

    async def use():
        async with redlock("x") as lease:
            return lease.fencing_token

    first = await asyncio.to_thread(asyncio.run, use())
    await redlock.aclose()
    assert await use() > first
    await redlock.aclose()


@pytest.mark.asyncio
async def test_closed_client_may_go_to_another_live_loop(nodes):
    """As that error advises."""
    redlock = Redlock(nodes)
    async with redlock("x"):
        pass
    await redlock.aclose()

    async def use():
        async with redlock, redlock("x") as lease:
            return lease.fencing_token

    assert await asyncio.to_thread(asyncio.run, use()) > 0
    async with redlock, redlock("x") as lease:
        assert lease.valid


def test_without_a_loop_the_error_says_so(nodes):
    """Building needs none, using does."""
    redlock = Redlock(nodes)
    lock = redlock("x")
    with pytest.raises(ConfigurationError, match="running event loop"):
        lock.acquire().send(None)


@pytest.mark.asyncio
async def test_reuse_after_aclose(nodes):
    """The next use opens new connections; closing twice, or unused, is allowed."""
    redlock = Redlock(nodes, owner="loops")
    await redlock.aclose()
    seen = set()
    for _ in range(3):
        async with redlock("x"):
            seen |= connections(nodes[0], "redlock:loops")
        await redlock.aclose()
        await redlock.aclose()
        await until(lambda: not connections(nodes[0], "redlock:loops"))
    assert len(seen) == 3


@pytest.mark.asyncio
async def test_two_threads_with_a_client_each_exclude_each_other(nodes):
    """One client a loop, as many as you like."""
    at_once, most = 0, 0

    async def work():
        nonlocal at_once, most
        async with Redlock(nodes, wait=20) as redlock:
            for _ in range(10):
                async with redlock("x"):
                    at_once += 1
                    most = max(most, at_once)
                    await asyncio.sleep(0)
                    at_once -= 1

    threads = [threading.Thread(target=asyncio.run, args=(work(),)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join)
    assert most == 1


# The end of a process


def python(source, *arguments, **options):
    """A process of its own, in development mode, where every warning is an error."""
    return subprocess.Popen(
        [sys.executable, "-X", "dev", "-W", "error", "-c", textwrap.dedent(source), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def outcome(process):
    """Exit code, output and complaints."""
    with process:
        try:
            out, err = process.communicate(timeout=90)
        finally:
            process.kill()  # else it would be reported in a later test
    return process.returncode, out, err


PROGRAM = """
import asyncio, gc, logging, sys
from redlock_async import Redlock

logging.getLogger("redlock_async").setLevel(logging.CRITICAL)  # what it has to say is no noise
redlock = Redlock(sys.argv[1].split(","), wait=float(sys.argv[2]), node_timeout=2)
kept = []

async def hold():
    async with redlock("x"):
        await asyncio.sleep(60)

async def main():
    asyncio.get_running_loop().slow_callback_duration = 60  # a busy machine is no noise either
    {}
    print("done")

asyncio.run(main())
gc.collect()
"""
TRY = """
    try:
        async with redlock("x"):
            pass
    except ConnectionError:
        pass
"""
WAIT = """
    kept.append(await redlock("x").acquire())
    kept.append(asyncio.ensure_future(redlock("x").acquire(wait=60)))
    while not redlock.statistics().waiting:
        await asyncio.sleep(0.01)
"""
BLOCK = """
    kept.append(asyncio.ensure_future(hold()))
    while not redlock.statistics().held:
        await asyncio.sleep(0.01)
"""
BEGIN = """
    kept.append(asyncio.ensure_future(hold()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
"""
LEASE = """
    kept.append(await redlock("x").acquire())
"""


@pytest.mark.share(3)
@pytest.mark.parametrize(
    ("body", "reachable"),
    [(TRY, True), (WAIT, True), (BLOCK, True), (BEGIN, True), (LEASE, True), (TRY, False), (BEGIN, False)],
    ids=[
        "after a block",
        "while waiting",
        "in a block",
        "connecting",
        "with a lease",
        "all down",
        "connecting, all down",
    ],
)
def test_run_that_ends_without_aclose_is_quiet(nodes, body, reachable):
    """No ResourceWarning, no pending task, no error in a destructor: nothing on stderr."""
    urls = nodes if reachable else ["redis://127.0.0.1:1", "redis://127.0.0.1:2"]
    wait = "60" if reachable else "0.2"
    assert outcome(python(PROGRAM.format(body.strip()), ",".join(urls), wait)) == (0, "done\n", "")


# Forks


@pytest.mark.asyncio
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")  # Python 3.12 on fork; pytest has threads
async def test_forked_child_leaves_its_parents_lock_alone(nodes):
    """The child can use the very same client, on connections of its own; the parent's lease stays as it was."""
    redlock = Redlock(nodes, owner="loops", ttl=2, wait=0)

    async def in_the_child(lease):
        with contextlib.suppress(LockTimeout):
            await redlock("held").acquire()
            return "took its parent's lock"
        async with redlock("own") as own:
            if own.fencing_token is None or connections(nodes[0], "redlock:loops") == parents:
                return "has no connection of its own"
        await redlock.aclose()
        return "fine" if token_on(nodes[0], "held") == lease.token else "released its parent's lock"

    async with redlock, redlock("held") as lease, redlock("other") as other:
        parents = connections(nodes[0], "redlock:loops")
        readable, writable = os.pipe()
        child = os.fork()
        if child == 0:  # pragma: no cover - another process
            try:
                signal.alarm(20)
                asyncio._set_running_loop(None)  # a child that was forked inside a loop is not inside it
                asyncio.set_event_loop(None)
                said = asyncio.run(in_the_child(lease))
                del lease
                os.write(writable, said.encode())
            except BaseException as exc:  # noqa: BLE001 - it must not go back into pytest
                os.write(writable, repr(exc).encode())
            finally:
                os._exit(0)
        os.close(writable)
        said = await asyncio.to_thread(read_all, readable)
        await asyncio.to_thread(os.waitpid, child, 0)
        assert said == "fine"
        assert connections(nodes[0], "redlock:loops") == parents
        for held in (lease, other):
            before = held.remaining
            await held.extend()
            assert held.valid
            assert held.remaining > before
        assert token_on(nodes[0], "held") == lease.token
    assert token_on(nodes[0], "held") is None


def read_all(descriptor):
    """All that is written to a pipe until its end."""
    with open(descriptor, encoding="utf-8") as pipe:  # noqa: PTH123 - a descriptor, not a path
        return pipe.read()


def test_forked_child_that_drops_its_parents_lease_is_quiet(nodes):
    """Collecting it there is nobody's mistake: it is still held, and renewed, in the parent."""
    source = """
        import asyncio, gc, logging, os, sys, warnings
        from redlock_async import Redlock
        warnings.filterwarnings("ignore", ".*multi-threaded.*")
        logging.getLogger("redlock_async").setLevel(logging.CRITICAL)

        async def main():
            asyncio.get_running_loop().slow_callback_duration = 60
            redlock = Redlock(sys.argv[1].split(","), wait=0)
            lease = await redlock("x").acquire()
            child = os.fork()
            if child == 0:
                del lease, redlock
                gc.collect()
                os._exit(0)
            os.waitpid(child, 0)
            await lease.extend()
            await lease.release()
            await redlock.aclose()
            print("done")

        asyncio.run(main())
    """
    assert outcome(python(source, ",".join(nodes))) == (0, "done\n", "")


# Processes

COUNTER = """
    import asyncio, pathlib, sys
    from redlock_async import Redlock

    async def main(nodes, path, times):
        counter = pathlib.Path(path)
        async with Redlock(nodes.split(","), wait=50) as redlock:
            print("ready", flush=True)
            sys.stdin.readline()
            for _ in range(int(times)):
                async with redlock("counter"):
                    value = int(counter.read_text())
                    await asyncio.sleep(0)
                    counter.write_text(str(value + 1))

    asyncio.run(main(*sys.argv[1:]))
"""


def test_eight_processes_count_exactly(nodes, tmp_path):
    """Reading, adding one and writing back: without the lock, they lose most of it."""
    counter = tmp_path / "counter"
    counter.write_text("0", "utf-8")
    processes = [python(COUNTER, ",".join(nodes), str(counter), "25", stdin=subprocess.PIPE) for _ in range(8)]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    assert [outcome(process)[0] for process in processes] == [0] * 8
    assert counter.read_text("utf-8") == "200"


@pytest.mark.asyncio
async def test_two_clients_in_one_process_exclude_each_other(nodes):
    """They know nothing of one another but what the nodes say."""
    at_once, most, order = 0, 0, []

    async def work(redlock, who):
        nonlocal at_once, most
        for _ in range(20):
            async with redlock("x") as lease:
                at_once += 1
                most = max(most, at_once)
                order.append((lease.fencing_token, who))
                await asyncio.sleep(0)
                at_once -= 1

    async with Redlock(nodes, wait=20) as one, Redlock(nodes, wait=20) as two:
        await asyncio.gather(work(one, 1), work(two, 2), work(one, 3), work(two, 4))
    assert most == 1
    assert order == sorted(order)
    assert len(order) == 80


# How many nodes


@pytest.mark.asyncio
@pytest.mark.parametrize(("size", "spare"), [(1, 0), (2, 0), (3, 1), (4, 1), (5, 2), (7, 3)])
@pytest.mark.usefixtures("embedded")
async def test_any_number_of_nodes(size, spare):
    """As many may fail as are beyond the majority of those configured, and not one more."""
    with LocalCluster(size) as cluster:
        async with Redlock(cluster.urls, wait=2) as redlock, Redlock(cluster.urls, wait=0) as other:
            async with redlock("x") as lease:
                await until(lambda: lease.spare_votes == spare)
                assert await other("x").try_acquire() is None
            for i in range(spare):
                cluster.kill(i)
            async with redlock("x") as lease:
                assert lease.valid
                assert lease.spare_votes == 0
            cluster.kill(spare)
            with pytest.raises(QuorumUnavailable) as caught:
                await redlock("x").acquire(wait=0.1)
            assert len(caught.value.nodes) >= spare + 1


def test_even_number_of_nodes_is_worth_a_warning(caplog):
    """Four tolerate no more failures than three."""
    Redlock([f"redis://127.0.0.1:{port}" for port in range(1, 5)])
    assert "4 nodes tolerate no more failures than 3" in caplog.text
