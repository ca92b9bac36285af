"""The servers that tests run against, chosen with --redlock-backend, and a report of every skip."""

import asyncio
import os
import random
import subprocess
import sys
import sysconfig
import time
import zipfile
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
NODES = 5
SEED = int(os.environ.get("REDLOCK_SEED") or random.SystemRandom().randrange(10**9))
"""What this run's random schedules begin with; each run has a fresh one, and a failing one can be had again."""

DOCKER_IMAGE = os.environ.get("REDLOCK_IMAGE", "redis:8-alpine")
SERVER_FIXTURES = {"nodes", "cluster", "embedded"}


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


def pytest_configure(config):
    """Refuse an external backend that has too few servers before the first test does."""
    if backend_of(config) == "external" and len(external_urls()) != NODES:
        raise pytest.UsageError(f"REDLOCK_TEST_NODES has {len(external_urls())} URLs; the tests need {NODES}")


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


def pytest_collection_modifyitems(items):
    """`-m "not redis"` leaves out every test that asks for servers."""
    for item in items:
        if not SERVER_FIXTURES.isdisjoint(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.redis)


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


def local_cluster(nodes):
    """A cluster of this machine, not yet started."""
    from redlock_async.testing import LocalCluster  # noqa: PLC0415 - the same

    return LocalCluster(nodes=nodes)


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
    """Five servers of this test's own, free to be killed, paused and cut."""
    started = local_cluster(NODES)
    started.start()
    yield started
    started.stop()


def run(*command):
    """What a command prints; its whole output if it fails."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
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
