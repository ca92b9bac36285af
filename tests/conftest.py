"""The servers that tests run against, chosen with --redlock-backend; a time limit for each test; a report of skips."""

import asyncio
import faulthandler
import fcntl
import os
import random
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
import warnings
import zipfile
from collections import Counter
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
NODES = 5
_FRESH = os.environ.setdefault("REDLOCK_FRESH_SEED", str(random.SystemRandom().randrange(10**9)))  # for xdist's workers
SEED = int(os.environ.get("REDLOCK_SEED") or _FRESH)
"""What this run's random schedules begin with; each run has a fresh one, and a failing one can be had again."""

DOCKER_IMAGE = os.environ.get("REDLOCK_IMAGE", "redis:8-alpine")
TIME_LIMIT = 600
"""Seconds for each of a test's setup, call and teardown: a hang must end, and a busy machine may take long.

`@pytest.mark.time_limit(1200)` sets another limit."""

LONGEST_FIRST = (
    "simulation/test_schedules.py", "interop/test_interop.py", "redis/test_cli_leases.py", "redis/test_node_sets.py",
    "redis/test_semaphore.py",
    "redis/test_seam.py", "redis/test_cli_operators.py", "hostile/test_hostile_server.py", "redis/test_rwlock.py",
    "redis/test_demo.py", "redis/test_faults.py", "proof/test_faults_run.py", "proof/test_fences_run.py",
    "proof/test_terms_run.py", "simulation/test_waiters.py", "redis/test_cli_run.py", "redis/test_outage_errors.py",
    "test_readme.py", "redis/test_restricted.py", "simulation/test_once.py", "redis/test_cli_passwords.py",
    "simulation/test_fidelity.py", "redis/test_cli_bench.py", "redis/test_lock.py", "test_tutorial.py", "test_docs.py",
    "redis/test_wheel.py", "fenced/test_adapters.py",
)  # fmt: skip
"""Files that take long, in the order in which they start, so that no process is left with a long one at the end."""

SERVER_FIXTURES = {"nodes", "cluster", "new_cluster", "embedded"}


def pytest_addoption(parser):
    """Let the caller choose the servers."""
    parser.addoption(
        "--redlock-backend",
        choices=("auto", "embedded", "docker", "external"),
        default="auto",
        help="embedded: LocalCluster starts them; docker: testcontainers, with the image $REDLOCK_IMAGE; external: "
        f"the {NODES} comma-separated URLs in $REDLOCK_TEST_NODES, emptied before each test; auto: "
        "external if that is set, else embedded",
    )
    parser.addoption(
        "--thorough",
        action="store_true",
        help="run what is marked `thorough`, all cases of what is marked `share`, and the searches for longer",
    )
    parser.addoption(
        "--event-loop", choices=("asyncio", "uvloop"), default="asyncio", help="the event loop of this process"
    )


def pytest_configure(config):
    """Refuse an external backend that has too few servers before the first test does."""
    if config.getoption("--event-loop") == "uvloop":
        import uvloop  # noqa: PLC0415 - installed only for this

        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):  # Python 3.14 has factories instead
            asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    if backend_of(config) == "external" and len(external_urls()) != NODES:
        raise pytest.UsageError(f"REDLOCK_TEST_NODES has {len(external_urls())} URLs; the tests need {NODES}")
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        if signal.getsignal(number) is signal.SIG_IGN:
            # Under nohup, or as a background job of a script. Children would inherit that, and those to which a test
            # sends the signal would never end. A handler, unlike SIG_IGN, is reset to the default on exec.
            signal.signal(number, lambda *_: None)


def pytest_report_header(config):
    """Say which servers these results are about, and which seed."""
    backend = backend_of(config)
    try:
        server = DOCKER_IMAGE if backend == "docker" else server_of(backend)
    except Exception as error:  # noqa: BLE001 - the header must not hide the tests; those that need servers fail by name
        server = f"no server: {type(error).__name__}: {error}"
    return [f"redlock backend: {backend}, {server}", f"redlock seed: {SEED} (again with REDLOCK_SEED={SEED})"]


@pytest.fixture(scope="session")
def seed():
    """This run's seed."""
    return SEED


@pytest.fixture(scope="session")
def thorough(request):
    """Whether to spend the time on the whole of a search, and not only on a share."""
    return request.config.getoption("--thorough")


def pytest_collection_modifyitems(config, items):
    """`-m "not redis"` leaves out every test that asks for servers, without --thorough those marked so stay out.

    The longest files come first.
    """
    for item in items:
        if not SERVER_FIXTURES.isdisjoint(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.redis)
    if not config.getoption("--thorough") and not any("::" in each for each in config.args):
        out = set(left_out(items))
        items[:] = [item for item in items if item not in out]
        config.hook.pytest_deselected(items=list(out))
    ranks = {ROOT / "tests" / name: rank for rank, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: ranks.get(item.path, len(ranks)))


def left_out(items):
    """Tests marked `thorough`; and of the cases of one marked `share(n)`, all but every n-th."""
    seen = Counter()
    for item in items:
        share, name = item.get_closest_marker("share"), (item.path, item.originalname)
        if item.get_closest_marker("thorough") or (share and seen[name] % share.args[0]):
            yield item
        seen[name] += 1


# A test marked `alone` measures: while it runs, no other worker of pytest-xdist runs a test.

TURNS = [Path(tempfile.gettempdir(), f"redlock-tests-{_FRESH}-{name}") for name in ("gate", "turn")]


@contextmanager
def turn(*, alone):
    """Run beside other tests, or alone. Who waits to be alone holds the gate, so that the others let it pass."""
    with TURNS[0].open("w") as gate, TURNS[1].open("w") as turns:
        fcntl.flock(gate, fcntl.LOCK_EX)
        fcntl.flock(turns, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        fcntl.flock(gate, fcntl.LOCK_UN)
        yield


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item):
    """Take turns with the other workers, if there are any."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return (yield)
    with turn(alone=item.get_closest_marker("alone") is not None):
        return (yield)


def pytest_unconfigure():
    """Remove the files when all workers have ended."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        for path in TURNS:
            path.unlink(missing_ok=True)


# A test that hangs fails and is named. The kernel's timer is used instead of a thread, because forking a process with
# threads is deprecated; and instead of a plugin, because the timer of tests/services/test_blocking.py has to fit in.


@contextmanager
def limited(item, phase):
    """Fail the test if its phase takes too long. Tells again and again, in case a task swallows the failure."""
    marker = item.get_closest_marker("time_limit")
    seconds = marker.args[0] if marker else TIME_LIMIT

    def fail(*_):
        faulthandler.dump_traceback(sys.__stderr__)
        pytest.fail(f"{item.nodeid}: {phase} did not end within {seconds} s")

    before = signal.signal(signal.SIGALRM, fail)
    signal.setitimer(signal.ITIMER_REAL, seconds, 10)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item):
    """Limit the fixtures."""
    with limited(item, "setup"):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """Limit the test."""
    with limited(item, "the test"):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item):
    """Limit the end of the fixtures."""
    with limited(item, "teardown"):
        return (yield)


def pytest_terminal_summary(terminalreporter):
    """Nothing is skipped silently: every reason, and how many tests it kept from running."""
    reasons = Counter(reason_of(report) for report in terminalreporter.getreports("skipped"))
    terminalreporter.section("skipped")
    for reason, number in reasons.most_common():
        terminalreporter.line(f"{number:5d} x {reason}")
    if not reasons:
        terminalreporter.line("nothing")


def reason_of(report):
    """Why a test was skipped."""
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return reason.removeprefix("Skipped: ")


def backend_of(config):
    """The chosen backend, `auto` resolved."""
    chosen = config.getoption("--redlock-backend")
    if chosen == "auto":
        return "external" if external_urls() else "embedded"
    return chosen


def external_urls():
    """The URLs in REDLOCK_TEST_NODES."""
    return [url.strip() for url in os.environ.get("REDLOCK_TEST_NODES", "").split(",") if url.strip()]


# Servers and clients are imported where they are used: the tests without servers run without them.


def connect(url):
    """A plain client, for what the tests do to a server behind the library's back."""
    import redis  # noqa: PLC0415 - only tests with servers need it

    return redis.Redis.from_url(url, socket_timeout=5)


def local_cluster(nodes, **options):
    """A cluster of this machine, not yet started."""
    from redlock_async.testing import LocalCluster  # noqa: PLC0415 - the same

    return LocalCluster(nodes=nodes, **options)


def server_of(backend):
    """Name, version and binary of the servers."""
    with ExitStack() as stack:
        if backend == "external":
            url = external_urls()[0]
        else:
            probe = local_cluster(nodes=1)
            probe.start()
            stack.callback(probe.stop)
            url = probe.urls[0]
        info = stack.enter_context(connect(url)).info("server")
    # Valkey reports the Redis version it is compatible with beside its own.
    name, version = "valkey", info.get("valkey_version")
    if version is None:
        name, version = "redis", info["redis_version"]
    return f"{name} {version} {info.get('executable', '')}".rstrip()


@pytest.fixture(scope="session")
def urls(request):
    """The servers of the chosen backend, started once."""
    backend = backend_of(request.config)
    if backend == "external":
        yield external_urls()
    elif backend == "docker":
        yield from docker_urls()
    else:
        started = local_cluster(NODES)
        started.start()
        yield list(started.urls)
        started.stop()


@pytest.fixture(scope="session")
def redis_version(urls):
    """The version of Redis that the servers are, or are compatible with, as (7, 2)."""
    with connect(urls[0]) as client:
        major, minor, *_ = client.info("server")["redis_version"].split(".")
    return int(major), int(minor)


def docker_urls():
    """Independent masters in containers, removed at the end."""
    from testcontainers.core.container import DockerContainer  # noqa: PLC0415 - installed only for this

    with ExitStack() as stack:
        containers = [stack.enter_context(DockerContainer(DOCKER_IMAGE).with_exposed_ports(6379)) for _ in range(NODES)]
        urls = [f"redis://{each.get_container_host_ip()}:{each.get_exposed_port(6379)}" for each in containers]
        for url in urls:
            wait_until_it_answers(url)
        yield urls


def wait_until_it_answers(url, patience=30.0):
    """A container that runs is not yet a server that answers."""
    import redis  # noqa: PLC0415 - only tests with servers need it

    give_up_at = time.monotonic() + patience
    while True:
        try:
            with connect(url) as client:
                client.ping()
        except redis.ConnectionError:
            if time.monotonic() > give_up_at:
                raise
            time.sleep(0.05)
        else:
            return


@pytest.fixture
def nodes(urls):
    """The URLs of five empty masters, whichever backend they come from."""
    for url in urls:
        with connect(url) as client:
            client.flushdb()
    return list(urls)


@pytest.fixture
def embedded(request):
    """For a test that kills, freezes or starts servers of its own: skipped on any other backend."""
    backend = backend_of(request.config)
    if backend != "embedded":
        pytest.skip(f"needs the embedded backend, whose servers can be made to fail; this is {backend}")


@pytest.fixture
def cluster(embedded):  # noqa: ARG001 - it decides whether there is a cluster at all
    """Five servers of this test's own that have voted before, free to be killed, paused and cut."""
    with local_cluster(NODES) as started:
        yield started


@pytest.fixture
def new_cluster(embedded):  # noqa: ARG001 - as above
    """Five servers of this test's own, on which no lock was ever taken."""
    with local_cluster(NODES, new_cluster=True) as started:
        yield started


def run(*command):
    """What a command prints; its whole output if it fails."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, f"{command} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout.strip()


@pytest.fixture(scope="session")
def wheel(tmp_path_factory):
    """The wheel of this tree."""
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder))
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="session")
def wheel_python(wheel, tmp_path_factory):
    """The interpreter of an environment where the wheel is installed; with -I, this tree is out of its reach."""
    venv = tmp_path_factory.mktemp("installed") / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", str(venv))
    python = venv / "bin" / "python"
    site = Path(run(str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    # The dependencies are those of this environment, to need no network. A .pth adds them behind the wheel, and their
    # own .pth files, an editable install among them, stay unread.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + os.linesep, "utf-8")
    found = run(str(python), "-I", "-c", "import redlock_async; print(redlock_async.__path__[0])")
    assert Path(found).is_relative_to(site)
    return python


# Looking at servers behind the library's back, and waiting for a condition


class Eyes:
    """Plain connections to every node, for what the library must not be asked about itself."""

    def __init__(self, urls):
        self.clients = [connect(url) for url in urls]

    def holding(self, name):
        """The value of the key on each node."""
        return [client.get(name) for client in self.clients]

    def keys(self):
        """Every key on every node that is not the library's own bookkeeping."""
        return [
            (index, key)
            for index, client in enumerate(self.clients)
            for key in client.keys("*")
            if b"redlock-async:" not in key
        ]

    def close(self):
        """End the connections."""
        for client in self.clients:
            client.close()


@pytest.fixture
def eyes(nodes):
    """Plain connections to the five shared masters."""
    seeing = Eyes(nodes)
    yield seeing
    seeing.close()


async def eventually(condition, within=2.0):
    """Wait until the condition holds, and return how long that took; fail when the time is up."""
    started = time.monotonic()
    while not condition():
        assert time.monotonic() - started < within, f"not within {within} s"
        await asyncio.sleep(0.001)
    return time.monotonic() - started


@pytest.fixture(name="eventually")
def eventually_fixture():
    """The function `eventually`."""
    return eventually
