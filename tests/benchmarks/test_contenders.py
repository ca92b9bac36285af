"""Every contender's worker keeps the contract of the verbs, and one that cannot be had is missing with a reason."""

import asyncio
import os
import stat
import subprocess
import time

import pytest

from benchmarks.contenders import ENTRIES, Missing, environments
from benchmarks.contenders.environments import Environment, Node, Uvloop
from benchmarks.runner import Failed, worker
from benchmarks.timing import DISTRIBUTION

pytestmark = pytest.mark.thorough

SOON = 0.05
"""Seconds in which a worker that does not exclude would have got the lock."""

every_entry = pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)


# -- workers -----------------------------------------------------------------------------------------------------------


def start_of(entry):
    """How its worker starts; what this machine has not got, such as node, is skipped with the reason."""
    try:
        return entry.command(install=True)
    except Missing as why:
        pytest.skip(f"{entry.name}: {why}")


@every_entry
def test_worker_keeps_the_contract(entry, nodes):
    """In processes of its own, on five masters."""
    asyncio.run(check_verbs(start_of(entry), nodes))


async def check_verbs(start, urls):
    """Those that every worker has, and the answer to one that it has not."""
    async with worker(start, urls) as one, worker(start, urls) as other:
        for request, least in (
            ({"base": "alone", "tasks": 1, "seconds": 0.02}, 1),
            ({"base": "apart", "tasks": 3, "seconds": 0.02}, 3),
            ({"base": "once", "tasks": 2, "seconds": 0.0, "each": 2, "shared": True}, 4),
        ):
            check_sample(await one.ask(do="pairs", **request), least)
        exactly = await one.ask(do="pairs", base="exactly", tasks=2, seconds=0.0, each=2, shared=True)
        assert exactly["n"] == 4
        await check_exclusion(one, other)
        with pytest.raises(Failed, match="does not know"):
            await one.ask(do="nonsense")
        check_sample(await one.ask(do="pairs", base="after", tasks=1, seconds=0.0), 1)


def check_sample(sample, least):
    """The figures belong together."""
    assert sample["n"] >= least
    assert sample["rate"] > 0
    latencies = sample["latencies"]
    assert len(latencies) == len(DISTRIBUTION)
    assert latencies == sorted(latencies)
    assert 0 <= latencies[0] <= sample["p50"] <= sample["p99"] <= latencies[-1]
    assert sample["p50"] == pytest.approx(latencies[50], abs=0.1)


async def check_exclusion(one, other):
    """Another process has it only after the release; both tell the time by the same clock."""
    asked = time.monotonic()
    first = await one.ask(do="acquire", name="excluded")
    assert asked < first["at"] < time.monotonic()
    waiting = asyncio.ensure_future(other.ask(do="acquire", name="excluded"))
    await asyncio.wait([waiting], timeout=SOON)
    assert not waiting.done()
    released = await one.ask(do="release")
    second = await waiting
    assert first["at"] < released["at"] < second["at"]
    await other.ask(do="release")


def test_uvloop_is_the_loop_of_its_entry():
    """And the library that is measured on it is this one."""
    entry = next(entry for entry in ENTRIES if entry.name == "ours-uvloop")
    start = start_of(entry)
    code = "import benchmarks.worker as w, redlock_async as r; print(type(w.new_event_loop()).__module__, r.__file__)"
    command = [start.argv[0], "-W", "ignore", "-c", code]
    done = subprocess.run(
        command,
        env=os.environ | start.environment,
        cwd=environments.ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=20,
    )
    loop, library = done.stdout.split()
    assert loop.startswith("uvloop")
    assert library == str(environments.ROOT / "redlock_async" / "__init__.py")


# -- environments ------------------------------------------------------------------------------------------------------


class Counted(Environment):
    """One whose making is a file, or a failure."""

    def __init__(self, name="counted", *, wants="1", fails=None):
        super().__init__(name)
        self.wants = wants
        self.fails = fails
        self.made = 0

    def start(self, entry, module, *, install):
        """Not needed here."""
        raise NotImplementedError

    def wanted(self):
        """What the test says."""
        return self.wants

    def make(self, steps):  # noqa: ARG002 - no command is run
        """Write what is wanted."""
        self.made += 1
        if self.fails is not None:
            raise self.fails
        (self.folder / "is").write_text(self.wants, "utf-8")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where environments are made, instead of under build/."""
    monkeypatch.setattr(environments, "FOLDER", tmp_path / "peers")
    return tmp_path / "peers"


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """A PATH with nothing on it but what the test puts there."""
    path = tmp_path / "bin"
    path.mkdir()
    monkeypatch.setenv("PATH", str(path))

    def add(name, script):
        program = path / name
        program.write_text(f"#!/bin/sh\n{script}\n", "utf-8")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)

    return add


def test_an_environment_is_made_once_and_again_when_it_should_differ(folder):
    """By this process and the next one."""
    environment = Counted()
    assert environment.ready(install=True) == environment.ready(install=False) == folder / "counted"
    assert Counted().ready(install=False) == folder / "counted"
    assert environment.made == 1
    later = Counted(wants="2")
    with pytest.raises(Missing, match="out of date, and --no-install was given"):
        later.ready(install=False)
    assert (later.ready(install=True) / "is").read_text("utf-8") == "2"


def test_nothing_is_installed_against_the_callers_will(folder):
    """Not even a folder is made."""
    with pytest.raises(Missing, match="not installed, and --no-install was given"):
        Counted().ready(install=False)
    assert not folder.exists()


@pytest.mark.usefixtures("folder")
def test_a_failure_is_told_once_made_and_not_tried_again():
    """Until the next run, which makes it."""
    failure = subprocess.CalledProcessError(1, "pip", stderr="collecting\nERROR: no such package\nnotice: a new pip")
    environment = Counted(fails=failure)
    for _ in range(2):
        with pytest.raises(Missing, match=r"cannot be installed: ERROR: no such package$"):
            environment.ready(install=True)
    assert environment.made == 1
    assert Counted().ready(install=True)


@pytest.mark.usefixtures("folder")
def test_what_was_interrupted_is_made_again():
    """Half an environment does not pass for one."""
    with pytest.raises(KeyboardInterrupt):
        Counted(fails=KeyboardInterrupt()).ready(install=True)
    with pytest.raises(Missing, match="not installed"):
        Counted().ready(install=False)
    assert Counted().ready(install=True)


def test_a_folder_that_cannot_be_written_is_a_reason(tmp_path, monkeypatch):
    """As in a read-only checkout."""
    (tmp_path / "file").touch()
    monkeypatch.setattr(environments, "FOLDER", tmp_path / "file" / "peers")
    with pytest.raises(Missing, match=r"cannot be installed: .*Not a directory"):
        Counted().ready(install=True)


@pytest.mark.usefixtures("folder")
def test_a_package_that_pip_cannot_find_is_a_reason(monkeypatch):
    """Named by pip's own words."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(Missing, match="cannot be installed: ERROR: No matching distribution found for uvloop"):
        Uvloop().ready(install=True)


@pytest.mark.usefixtures("folder", "programs")
def test_without_node_node_redlock_is_missing():
    """And nothing is tried."""
    with pytest.raises(Missing, match=r"^node is not installed$"):
        Node("peer", "redlock").start("node-redlock", "node_redlock", install=True)


@pytest.mark.usefixtures("folder")
def test_without_npm_node_redlock_is_missing(programs):
    """There are machines with node alone."""
    programs("node", "exit 0")
    with pytest.raises(Missing, match=r"^npm is not installed$"):
        Node("peer", "redlock").start("node-redlock", "node_redlock", install=True)


@pytest.mark.usefixtures("folder")
def test_npm_without_its_registry_is_a_reason_asked_for_once(programs, tmp_path):
    """Each attempt would cost its patience again."""
    programs("node", "exit 0")
    programs("npm", f"echo x >>{tmp_path}/calls; echo 'npm error network is unreachable' >&2; exit 1")
    peer = Node("peer", "redlock")
    for _ in range(2):
        with pytest.raises(Missing, match="cannot be installed: npm error network is unreachable"):
            peer.start("node-redlock", "node_redlock", install=True)
    assert (tmp_path / "calls").read_text("ascii") == "x\n"


@pytest.mark.usefixtures("folder")
def test_what_does_not_end_is_given_up(programs, monkeypatch):
    """A registry that swallows packets."""
    monkeypatch.setattr(environments, "PATIENCE", 0.2)
    programs("node", "exit 0")
    programs("npm", "while :; do :; done")
    started = time.monotonic()
    with pytest.raises(Missing, match=r"npm did not end within 0\.2 s"):
        Node("peer", "redlock").start("node-redlock", "node_redlock", install=True)
    assert time.monotonic() - started < 5


def test_a_node_worker_is_given_its_packages(folder, programs):
    """And is the file beside the others."""
    programs("node", "exit 0")
    programs("npm", "exit 0")
    start = Node("peer", "redlock").start("node-redlock", "node_redlock", install=True)
    assert start.argv[1].endswith("contenders/node_redlock.cjs")
    assert start.environment == {"NODE_PATH": str(folder / "peer" / "node_modules")}
