"""redlock_async.blocking on real servers: what threads are promised, and what interrupts, forks and ends them."""

import asyncio
import inspect
import os
import signal
import statistics
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from random import Random

import pytest
import redis
from prometheus_client import CollectorRegistry

import redlock_async
from redlock_async import (
    ConfigurationError,
    LockLost,
    LockTimeout,
    NotHeld,
    QuorumUnavailable,
    RedlockError,
    blocking,
    prometheus,
)
from redlock_async.blocking import Redlock
from redlock_async.blocking.leases import now
from redlock_async.blocking.portal import Portal, run

pytestmark = pytest.mark.redis


@pytest.fixture
def redlock(nodes):
    """A client for threads, closed at the end."""
    with Redlock(nodes) as client:
        yield client


def keys(nodes):
    """Every key on every node that is not the library's own bookkeeping."""
    found = []
    for node in nodes:
        with redis.Redis.from_url(node) as client:
            found += [key for key in client.keys("*") if b"redlock-async:" not in key]
    return found


def eventually(condition, within=5.0):
    """Wait until the condition holds."""
    give_up_at = time.monotonic() + within
    while not condition():
        assert time.monotonic() < give_up_at, f"not within {within} s"
        time.sleep(0.002)


QUIET = "import logging; logging.getLogger('redlock_async').setLevel(logging.CRITICAL)\n"
"""What the library logs, of young masters and of leases that nobody released, is no warning of the interpreter's."""


def script(source, nodes):
    """Run that as a program of its own, which is told of the masters by the environment and shows every warning."""
    return subprocess.run(
        [sys.executable, "-W", "always", "-c", QUIET + textwrap.dedent(source)],
        env=os.environ | {"REDLOCK_NODES": ",".join(nodes)},
        capture_output=True, text=True, check=False, timeout=30,
    )  # fmt: skip


# The surface


def test_names_and_options_are_those_of_asyncio():
    """A reader who knows one side knows the other: nothing is missing, and no option has drifted apart."""
    there, here = (
        {name for name in dir(each) if not name.startswith("_")} for each in (redlock_async.Redlock, Redlock)
    )
    assert here - there == {"close"}
    assert there - here == {"aclose", "loop"}  # which is not the program's

    def options(function):
        parameters = inspect.signature(function).parameters.values()
        return {each.name for each in parameters if each.kind is each.KEYWORD_ONLY}

    client = redlock_async.Redlock
    assert set(blocking.ClientOptions.__annotations__) == options(client.__init__)
    for name in ("__call__", "lock", "fair_lock", "read_lock", "write_lock", "semaphore", "latch", "once", "locked"):
        mine, its = (inspect.signature(getattr(each, name)).parameters for each in (Redlock, client))
        assert mine == its, name
    for name in ("Lease", "WriteLease", "Semaphore", "Latch", "Once"):
        public = {
            each for each in dir(getattr(redlock_async, name)) if not each.startswith("_") and each != "template"
        } - {"lock"}
        assert public <= set(dir(getattr(blocking, name))), name


def test_everything_public_is_explained():
    """Each class, function, method and property has a docstring of its own."""
    for name in blocking.__all__:
        each = getattr(blocking, name)
        for attribute, member in vars(each).items() if inspect.isclass(each) else ():
            if not attribute.startswith("_") and (inspect.isfunction(member) or isinstance(member, property)):
                assert (member.__doc__ or "").strip().endswith((".", "`")), f"{name}.{attribute}"


def test_importing_starts_no_thread():
    """Nor does building a client, or a lock."""
    code = """
        import threading
        from redlock_async.blocking import Redlock
        Redlock(["redis://10.0.0.1:6379"])("x")
        assert threading.active_count() == 1
    """
    done = script(code, [])
    assert (done.returncode, done.stderr) == (0, "")


def test_a_lease_and_its_members(redlock, nodes):
    """Acquired, extended, released; what can be read costs no call; the second time is NotHeld."""
    lease = redlock("x", ttl=5).acquire(wait=1)
    assert (lease.name, lease.names, lease.lost) == ("x", ("x",), False)
    eventually(lambda: lease.spare_votes == 2)
    assert lease.valid
    assert 4 < lease.remaining < 5
    assert redlock.inspect("x").token == lease.token
    lease.extend(30)
    assert lease.remaining > 25
    assert redlock("x").try_acquire() is None
    with pytest.raises(LockTimeout):
        redlock("x").acquire(wait=0)
    lease.raise_if_lost()
    lease.release()
    for use in (lease.release, lease.extend, lease.raise_if_lost, lease.detach):
        with pytest.raises(NotHeld):
            use()
    with redlock("x") as later:
        assert later.fencing_token > lease.fencing_token
    assert keys(nodes) == []


def test_every_kind(redlock, nodes):
    """Fair, several, read and write with downgrade, semaphore, latch: each once, and nothing is left."""
    with redlock.fair_lock("a"), redlock("b", "c"), redlock.read_lock("d"), redlock.read_lock("d"):
        with ThreadPoolExecutor(1) as other:
            assert other.submit(redlock.write_lock("d").try_acquire).result() is None
        assert redlock.inspect("b").held
    with redlock.write_lock("d") as writing, writing.downgrade() as reading, redlock.read_lock("d"):
        assert reading.fencing_token == writing.fencing_token
    slots = redlock.semaphore("e", permits=3)
    with slots.acquire(count=2), slots:
        assert slots.try_acquire() is None
    latch = redlock.latch("f", count=2)
    opened = threading.Thread(target=latch.wait)
    opened.start()
    latch.count_down("one")
    with pytest.raises(LockTimeout):
        latch.wait(0)
    latch.count_down("two")
    opened.join(5)
    assert not opened.is_alive()
    assert latch.remaining() == 0
    assert len(redlock.status()) == 5
    assert redlock.list_locks("a") == []
    assert keys(nodes) == []


def test_decorated_functions(redlock):
    """They wait, are skipped or raise, under any kind of lock; once in a period, one."""

    @redlock.locked("import:{user.id}", on_conflict="skip")
    def skips(user):
        return user.id

    @redlock.locked("import:{number}", on_conflict="raise", factory=redlock.fair_lock)
    def raises(number):
        return number

    @redlock.locked("import:{number}", factory=partial(redlock.semaphore, permits=2))
    def waits(number):
        return number

    @redlock.once("report:{tenant}", every=60)
    def reports(tenant):
        return tenant

    class User:
        id = 7

    assert (skips(User), raises(7), waits(7)) == (7, 7, 7)
    with redlock("import:7"):
        assert skips(User) is None
        with pytest.raises(LockTimeout):
            raises(7)
    assert [reports("acme"), reports("acme"), reports("globex")] == ["acme", None, "globex"]
    with redlock.once("by hand", every=60).try_acquire() as lease:
        assert lease.valid


def test_what_does_its_work_later_is_not_decorated(redlock):
    """A coroutine function or a generator would be called under the lock, and run without it."""

    async def coroutine():
        pass

    def generator():
        yield

    for function in (coroutine, generator):
        with pytest.raises(ConfigurationError, match="do their work when they are called"):
            redlock.locked("x")(function)
    with pytest.raises(ConfigurationError, match="factory returned"):
        redlock.locked("x", factory=redlock_async.Redlock(["redis://h"]).fair_lock)(print)()


def test_the_same_thread_may_enter_again(redlock):
    """With `reentrant=True`; another thread waits, and one that asked for nothing of the kind is told what happened."""
    with redlock("x", reentrant=True) as outer:
        with redlock("x", reentrant=True) as inner:
            assert inner.fencing_token == outer.fencing_token
        assert outer.valid
        with ThreadPoolExecutor(1) as other:
            assert other.submit(redlock("x", reentrant=True).try_acquire).result() is None
    with (
        redlock("x"),
        pytest.raises(LockTimeout, match=r"which this thread already holds \(self-deadlock\)\. Pass reentrant=True"),
    ):
        redlock("x").acquire(wait=0.01)
    with redlock.read_lock("x"), pytest.raises(ConfigurationError, match="this thread already holds a read lease"):
        redlock.write_lock("x").acquire(wait=0.01)


def test_a_lease_goes_from_a_thread_to_asyncio_and_back(redlock, nodes):
    """The text of one side is attached by the other, under the same fence."""
    lease = redlock("x").acquire()

    async def hands_on(text):
        async with redlock_async.Redlock(nodes) as other, other.attach(text) as here:
            return here.fencing_token, here.detach()

    fence, text = asyncio.run(hands_on(lease.detach()))
    assert fence == lease.fencing_token
    with redlock.attach(text) as back:
        assert back.fencing_token == fence
    assert keys(nodes) == []


def test_entered_in_one_thread_and_left_in_another(redlock, nodes):
    """As the dependencies of some web frameworks are; with two inside, nobody could say which."""

    @contextmanager
    def dependency(lock):
        with lock as lease:
            yield lease

    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as other, ThreadPoolExecutor(1) as third:
        held = dependency(redlock("x"))
        assert one.submit(held.__enter__).result().valid
        other.submit(held.__exit__, None, None, None).result()
        assert keys(nodes) == []
        lock = redlock.semaphore("y", permits=2)
        one.submit(lock.__enter__).result()
        other.submit(lock.__enter__).result()
        with pytest.raises(RedlockError, match="left by a thread that did not enter it"):
            third.submit(lock.__exit__, None, None, None).result()
        error = KeyError(1)
        assert not third.submit(lock.__exit__, KeyError, error, None).result()
        assert "left by a thread that did not enter it" in "".join(error.__notes__)
        one.submit(lock.__exit__, None, None, None).result()
        other.submit(lock.__exit__, None, None, None).result()


# Many threads


def test_increments_of_many_threads_are_all_there(nodes, tmp_path):
    """Eight threads with two clients increment a number in a file that nothing else guards: none is lost."""
    counter = tmp_path / "counter"
    counter.write_text("0")
    with Redlock(nodes) as one, Redlock(nodes) as other:

        def increment(client):
            for _ in range(50):
                with client("counter", wait=60):
                    number = int(counter.read_text())
                    counter.write_text(str(number + 1))

        with ThreadPoolExecutor(8) as threads:
            for done in [threads.submit(increment, client) for client in (one, other) * 4]:
                done.result()
    assert counter.read_text() == "400"


def test_hundreds_of_threads_at_once(redlock):
    """Each with a name of its own, and all with one: everybody gets in, one at a time."""
    inside = highest = 0
    before = threading.active_count()
    together = threading.Barrier(300)

    def work(number):
        nonlocal inside, highest
        together.wait()
        with redlock(f"own:{number}", wait=60) as lease:
            assert lease.valid
        with redlock("all", wait=60):
            inside += 1
            highest = max(highest, inside)
            inside -= 1
        return number

    with ThreadPoolExecutor(300) as threads:
        assert sum(threads.map(work, range(300))) == 300 * 299 // 2
    assert highest == 1
    assert threading.active_count() <= before + 1  # that of the loop


def test_closing_ends_the_waiting_of_others(nodes):
    """They are told at once, what was held is lost and free, and the next use opens it anew."""
    redlock = Redlock(nodes)
    lease = redlock("x").acquire()
    with ThreadPoolExecutor(5) as threads:
        waiting = [threads.submit(redlock("x").acquire, wait=None) for _ in range(5)]
        watching = threads.submit(lease.wait_until_lost)
        eventually(lambda: redlock.statistics().waiting == 5)
        begun = time.monotonic()
        redlock.close()
        for each in waiting:
            with pytest.raises(RedlockError, match="closed"):
                each.result(5)
        assert watching.result(5)
        assert time.monotonic() - begun < 2
    with pytest.raises(LockLost):
        lease.raise_if_lost()
    with redlock("x", wait=1):
        pass
    redlock.close()


# Losing a lock


def test_a_loss_is_seen_before_validity_ends_and_raised_at_the_end(cluster):
    """With three masters stopped the body goes on; it can see the loss while the lease is still valid."""
    with Redlock(cluster.urls, ttl=2, node_timeout=0.1) as redlock:
        seen = None
        with pytest.raises(LockLost), redlock("x") as lease:
            for index in range(3):
                cluster.pause(index)
            eventually(lambda: lease.lost)
            seen = lease.remaining
            with pytest.raises(LockLost):
                lease.raise_if_lost()
        assert seen > 0
        for index in range(3):
            cluster.resume(index)
        with redlock("y", wait=10):
            pass


def test_the_exception_of_the_body_wins(redlock):
    """What went wrong with the lock stands beside it."""
    with pytest.raises(KeyError) as caught, redlock("x") as lease:
        assert redlock.force_release("x")
        eventually(lambda: lease.lost)
        raise KeyError(1)
    assert "LockLost" in "".join(caught.value.__notes__)


def test_a_watching_thread_can_stop_the_work_of_a_block(redlock):
    """`wait_until_lost` returns True when the lease is lost, and False after its timeout."""
    with pytest.raises(LockLost), redlock("y") as lease, subprocess.Popen(["/bin/sleep", "60"]) as work:
        assert lease.wait_until_lost(0.01) is False
        threading.Thread(target=lambda: lease.wait_until_lost() and work.kill()).start()
        redlock.force_release("y")
        assert work.wait(5) == -signal.SIGKILL
    assert lease.wait_until_lost()


@contextmanager
def waiting_for_the_end(lease, outcome):
    """Two threads wait for the lease to end; both must get `outcome`."""
    with ThreadPoolExecutor(2) as threads:
        waiters = [threads.submit(lease.wait_until_lost) for _ in range(2)]
        eventually(lambda: len(lease._held._watchers or ()) == 2)
        yield
        assert [waiter.result(5) for waiter in waiters] == [outcome, outcome]
    assert lease.wait_until_lost() is outcome
    assert lease.lost is outcome


def test_a_release_and_a_detach_wake_waiting_threads_with_false(redlock):
    """Also the release at the end of a block; afterwards raise_if_lost raises NotHeld."""
    lease = redlock("x").acquire()
    with waiting_for_the_end(lease, outcome=False):
        lease.release()
    ended = [lease]
    lease = redlock("x").acquire()
    with waiting_for_the_end(lease, outcome=False), lease:
        lease.raise_if_lost()
    ended.append(lease)
    lease = redlock("x").acquire()
    with waiting_for_the_end(lease, outcome=False):
        text = lease.detach()
    ended.append(lease)
    for lease in ended:
        with pytest.raises(NotHeld):
            lease.raise_if_lost()
    with redlock.attach(text) as attached:
        attached.raise_if_lost()


def test_a_downgrade_wakes_waiting_threads_with_false(redlock):
    """The read lease has waiters of its own."""
    writing = redlock.write_lock("x").acquire()
    with waiting_for_the_end(writing, outcome=False):
        reading = writing.downgrade()
    with pytest.raises(NotHeld):
        writing.raise_if_lost()
    reading.raise_if_lost()
    with waiting_for_the_end(reading, outcome=False):
        reading.release()


def test_a_loss_wakes_waiting_threads_with_true(redlock, nodes):
    """Whether it is noticed at once, at the end of the ttl, or only by the release."""
    forced = redlock("x").acquire()
    with waiting_for_the_end(forced, outcome=True):
        redlock.force_release("x")
    expired = redlock("y", ttl=0.3, renew=False).acquire()
    with waiting_for_the_end(expired, outcome=True):
        pass
    missing = redlock("z").acquire()
    with waiting_for_the_end(missing, outcome=True):
        deleted = threading.Event()
        run(now, asyncio.get_running_loop).call_soon_threadsafe(deleted.wait)  # the release must notice it first
        for node in nodes:
            with redis.Redis.from_url(node) as client:
                client.delete("z")
        threading.Timer(0.05, deleted.set).start()
        with pytest.raises(LockLost):
            missing.release()
    for lease in (forced, expired, missing):
        with pytest.raises(LockLost):
            lease.raise_if_lost()


def test_an_outage_is_an_outage(cluster):
    """Also to threads."""
    with Redlock(cluster.urls, wait=0.2, node_timeout=0.1) as redlock:
        for index in range(3):
            cluster.kill(index)
        with pytest.raises(QuorumUnavailable):
            redlock("x").acquire()


# Interrupted


@contextmanager
def interrupted_when(condition):
    """Have KeyboardInterrupt raised in this, the main, thread as soon as the condition holds."""

    def interrupt():
        eventually(condition)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        yield
    thread.join()


def test_ctrl_c_while_waiting_leaves_nothing(redlock, nodes):
    """Neither a key, nor a place in the queue, nor somebody who waits."""
    for lock in (redlock("x"), redlock.fair_lock("x"), redlock.write_lock("x"), redlock.semaphore("x", permits=1)):
        lease = lock.acquire()
        with interrupted_when(lambda: redlock.statistics().waiting == 1):
            lock.acquire(wait=None)
        eventually(lambda: redlock.statistics().waiting == 0)
        lease.release()
        assert keys(nodes) == []


def test_ctrl_c_while_masters_are_silent_leaves_nothing(cluster):
    """What was on its way to them is taken back when they answer again."""
    with Redlock(cluster.urls, node_timeout=20, ttl=100) as redlock:
        for index in range(3):
            cluster.pause(index)
        with interrupted_when(lambda: redlock.statistics().waiting == 1):
            redlock("x").acquire(wait=None)
        for index in range(3):
            cluster.resume(index)
        eventually(lambda: keys(cluster.urls) == [])


def test_a_lease_that_comes_in_the_moment_of_the_interruption_is_given_back(redlock, nodes):
    """The worst moment: it is granted on the loop, and the thread has not got it yet."""

    class Interrupting(blocking.Lock):
        async def _acquire(self, wait):
            lease = await super()._acquire(wait)
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            return lease

    for _ in range(100):
        with pytest.raises(KeyboardInterrupt):
            Interrupting(redlock("x", ttl=60)._lock, blocking.Lease).acquire()
        eventually(lambda: keys(nodes) == [])


class OutOfTimeError(Exception):
    """What a worker's time limit raises in its main thread, wherever that is."""


@pytest.fixture
def time_limit():
    """A function: after so many seconds OutOfTimeError is raised; 0 takes it back."""

    def over(*_):
        raise OutOfTimeError

    def limit(seconds):
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, over if seconds else of_the_test)
        signal.setitimer(signal.ITIMER_REAL, *((seconds,) if seconds else left))

    left, of_the_test = signal.getitimer(signal.ITIMER_REAL), signal.getsignal(signal.SIGALRM)
    yield limit
    limit(0)


# A handler that raises in a weak reference's callback is no concern of ours.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore:the lease on:ResourceWarning")
def test_interrupted_at_any_moment(redlock, time_limit, seed):
    """Nothing but what the handler raised gets out, the loop goes on for others, and the names are free at once."""
    random = Random(seed)
    interrupted = []
    for number in range(400):
        lease = None
        try:
            time_limit(random.uniform(0.00002, 0.0008))
            lease = redlock(f"job:{number}", ttl=300).acquire()
            time_limit(0)
        except OutOfTimeError:
            time_limit(0)
        if lease is not None:
            lease.release()
        else:
            interrupted.append(f"job:{number}")
    print(f"{len(interrupted)} of 400 were interrupted")
    assert interrupted
    kept = 0
    for name in interrupted:
        try:
            redlock(name, wait=1).acquire().release()
        except LockTimeout:
            kept += 1
    assert kept <= 1  # between `acquire` and the test's own variable, where it is the ttl that ends it


# Loops, forks, and the end


def test_inside_a_running_loop_it_is_refused(redlock, nodes):
    """With an error that says what to do; in a thread of that loop's it works."""

    def use():
        with redlock("x") as lease:
            return lease.valid

    async def main():
        for refused in (use, redlock.status, redlock.close, redlock("x").try_acquire):
            with pytest.raises(
                ConfigurationError, match=r"redlock_async\.Redlock and `async with` here, or .*to_thread"
            ):
                refused()
        async with redlock_async.Redlock(nodes) as here, here("y"):
            assert await asyncio.to_thread(use)

    asyncio.run(main())


def test_a_listener_that_takes_locks_is_refused_and_harms_nobody(redlock, caplog):
    """It runs on the loop, and would wait for itself."""
    end = redlock.on_event(lambda event: redlock("y").acquire() if event.kind == "acquired" else None)
    with redlock("x"):
        end()
    assert "an on_event callback failed" in caplog.text


@pytest.mark.parametrize("error", [asyncio.CancelledError, SystemExit])
def test_a_listener_cannot_leave_a_release_half_done(redlock, nodes, error):
    """Whatever it raises: the name is free, and so is the turn in this process."""

    def fails(event):
        if event.kind == "released":
            raise error

    redlock.on_event(fails)
    for _ in range(2):
        with redlock("x", wait=1):
            pass
    assert keys(nodes) == []


FORK = """
    import os, sys, threading, warnings
    warnings.filterwarnings("ignore", ".*multi-threaded.*", DeprecationWarning)  # Python 3.12: the loop has a thread
    from redlock_async import NotHeld
    from redlock_async.blocking import redlock

    def child(lease):
        inherited = redlock.statistics()
        assert (inherited.held, inherited.node_states) == (0, {}), "those are the parent's"
        assert redlock("x").try_acquire() is None, "the parent holds it"
        with redlock("y", wait=5) as own:
            assert own.valid
        try:
            lease.release()
        except NotHeld as error:
            assert "parent" in str(error)
        else:
            raise AssertionError("it is not ours")
        assert threading.active_count() == 2

    with redlock("x", ttl=1) as lease:
        children = []
        for _ in range(4):
            if not (pid := os.fork()):
                child(lease)
                sys.exit()  # through the block's end, and the interpreter's
            children.append(pid)
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
        lease.raise_if_lost()
        lease.extend()
    print(codes)
"""


def test_forked_children_have_a_loop_of_their_own(nodes):
    """They exclude their parent and each other, do not touch what it holds, and end quietly."""
    done = script(FORK, nodes)
    assert (done.stdout, done.stderr, done.returncode) == ("[0, 0, 0, 0]\n", "", 0)
    assert keys(nodes) == []


def test_the_end_of_a_program_that_closed_nothing(nodes):
    """It neither hangs nor warns; a thread that waits still does not hold it up, and its key is gone."""
    code = """
        import threading
        from redlock_async.blocking import redlock
        with redlock("x"):
            pass
        held = redlock("held", ttl=60).acquire()
        threading.Thread(target=redlock("held").acquire, kwargs={"wait": None}, daemon=True).start()
        while not redlock.statistics().waiting:
            pass
        threading.excepthook = lambda args: None
    """
    begun = time.monotonic()
    done = script(code, nodes)
    assert (done.returncode, done.stderr) == (0, "")
    assert time.monotonic() - begun < 10
    assert keys(nodes) == []


def test_what_a_program_does_at_its_end(nodes):
    """What it registered after the import has locks; what it registered before is told that there are none, always."""
    code = """
        import atexit

        def last():
            for use in (redlock("last").acquire, redlock.status, redlock.close, held.release):
                try:
                    use()
                except RedlockError as error:
                    print(error)

        atexit.register(last)
        from redlock_async import RedlockError
        from redlock_async.blocking import redlock

        def before_last():
            with redlock("x") as lease:
                print(lease.valid, held.valid)

        atexit.register(before_last)
        held = redlock("held", ttl=60).acquire()
    """
    done = script(code, nodes)
    ending = "the interpreter is exiting: all locks were released, and none can be acquired\n"
    assert (done.stdout, done.stderr, done.returncode) == ("True True\n" + 4 * ending, "", 0)
    assert keys(nodes) == []


def test_a_loop_that_cannot_be_started_is_tried_again(monkeypatch, nodes):
    """Without file descriptors, say: the first call is told, and a later one works."""
    portal = Portal()
    monkeypatch.setattr("redlock_async.blocking.portal._portals", {os.getpid(): portal})
    redlock = Redlock(nodes)
    with monkeypatch.context() as patch:
        patch.setattr(asyncio.Runner, "get_loop", _no_descriptors)
        with pytest.raises(RedlockError, match="could not start the event loop") as caught:
            redlock("x").acquire()
        assert isinstance(caught.value.__cause__, OSError)
    with redlock("x"):
        pass
    portal.close()


def _no_descriptors(_):
    raise OSError(24, "Too many open files")


# What it costs


def test_what_a_call_from_a_thread_costs(nodes):
    """Acquire and release, the middle of 300 pairs: in asyncio, and in a thread beside it."""

    async def pairs():
        async with redlock_async.Redlock(nodes) as redlock:
            seconds = []
            for _ in range(300):
                begun = time.perf_counter()
                await (await redlock("x").acquire()).release()
                seconds.append(time.perf_counter() - begun)
        return statistics.median(seconds)

    def pairs_of_a_thread():
        with Redlock(nodes) as redlock:
            seconds = []
            for _ in range(300):
                begun = time.perf_counter()
                redlock("x").acquire().release()
                seconds.append(time.perf_counter() - begun)
        return statistics.median(seconds)

    there, here = asyncio.run(pairs()), pairs_of_a_thread()
    print(f"acquire and release: asyncio {there * 1e6:.0f} µs, a thread {here * 1e6:.0f} µs")
    assert here < 10 * there


def test_it_is_exported_as_asyncio_is(nodes):
    """Its events come from another thread, and its gauges are read in the one that is asked."""
    registry = CollectorRegistry()
    with closing(prometheus.Exporter(registry)) as exporter, Redlock(nodes) as redlock:
        exporter.add(redlock, client="threads")
        threads = {"client": "threads"}
        with redlock("x"):
            assert registry.get_sample_value("redlock_leases_held", threads) == 1
        held = threads | {"lock": "lock", "outcome": "released"}
        assert registry.get_sample_value("redlock_hold_duration_seconds_count", held) == 1
        assert redlock.health().ready
