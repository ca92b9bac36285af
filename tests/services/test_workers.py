"""taskiq, Celery and APScheduler as docs/workers.md uses them: real workers, a real broker, five real masters."""

import asyncio
import importlib
import json
import os
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest
from redis.asyncio import Connection

from redlock_async import Redlock
from redlock_async.testing import LocalCluster

HERE = Path(__file__).parent
pytestmark = [
    pytest.mark.redis,
    # What the brokers' own clients leave to the collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


class Crew:
    """Workers under way, and what they have written."""

    def __init__(self, nodes, broker, folder):
        self.journal = folder / "journal"
        self.journal.touch()
        self.environment = {"REDLOCK_NODES": ",".join(nodes), "BROKER": broker, "JOURNAL": str(self.journal)}
        self.log = (folder / "log").open("w+")
        self.processes = []

    def start(self, *arguments):
        """One more."""
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=HERE, env=os.environ | self.environment, stdout=self.log, stderr=subprocess.STDOUT,
        )  # fmt: skip
        self.processes.append(process)
        return process

    def lines(self):
        """What has been written so far."""
        return self.journal.read_text().splitlines()

    def until(self, condition, within=20.0):
        """Wait until the condition holds of the lines."""
        give_up_at = time.monotonic() + within
        while not condition(self.lines()):
            assert time.monotonic() < give_up_at, Path(self.log.name).read_text()[-3000:]
            time.sleep(0.01)

    def stop(self):
        """All are asked to end, and do."""
        for process in self.processes:
            process.terminate()
        try:
            return [process.wait(10) for process in self.processes]
        finally:
            for process in self.processes:
                process.kill()
                process.wait()
            self.log.close()


@pytest.fixture(scope="module")
def broker():
    """A Valkey for the jobs, beside the masters."""
    with LocalCluster(1) as server:
        yield server.urls[0]


@pytest.fixture
def crew(nodes, broker, tmp_path, monkeypatch):
    """Nobody yet; this process sends the jobs, and has their environment as well."""
    made = Crew(nodes, broker, tmp_path)
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.syspath_prepend(HERE)
    yield made
    made.stop()


def jobs(module):
    """That module, read again in the environment of this test."""
    sys.modules.pop(module, None)
    return importlib.import_module(module)


def one_at_a_time(lines):
    """Whether nobody began before the one before had ended; returns who was inside."""
    inside = [(line.split()[0], line.split()[-1]) for line in lines if line.startswith(("begin", "end"))]
    for (first, who), (second, same) in zip(inside[::2], inside[1::2], strict=True):
        assert (first, second, who) == ("begin", "end", same), inside
    return {who for _, who in inside}


@pytest.mark.asyncio
async def test_taskiq(crew, nodes):
    """Two worker processes: `locked` waits, skips and raises; a lease that the sender acquired is worked under.

    And the workers outlive a time without jobs, longer than the timeout that redis-py has by default.
    """
    module = jobs("taskiq_jobs")
    await module.broker.startup()
    try:
        crew.start("-m", "taskiq", "worker", "taskiq_jobs:broker", "--workers", "2", "--shutdown-timeout", "1")
        crew.until(lambda lines: len(lines) == 2)
        await asyncio.sleep(1.2 * (Connection().socket_timeout or 0.0))
        sent = [await module.import_user.kiq(7) for _ in range(12)]
        ran_in = {(await each.wait_result(timeout=30)).return_value for each in sent}
        assert len(one_at_a_time(crew.lines())) == len(ran_in)

        rebuilds = [await module.rebuild.kiq() for _ in range(4)]
        results = [asyncio.ensure_future(each.wait_result(timeout=30)) for each in rebuilds]
        for done, result in enumerate(asyncio.as_completed(results), 1):
            outcome = await result
            assert outcome.return_value == (None if done < 4 else "rebuilt")
            if done == 3:
                refused = await (await module.must_rebuild.kiq()).wait_result(timeout=30)
                assert refused.is_err
                assert "LockTimeout" in repr(refused.error)
                module.DOOR.touch()

        async with Redlock(nodes) as redlock:
            lease = await redlock("video:7", ttl=30).acquire()
            encoded = await module.encode.kiq("7", lease.detach())
            assert (await encoded.wait_result(timeout=30)).return_value == lease.fencing_token
            ticket = (await redlock("video:7", ttl=0.3).acquire(wait=5)).detach()  # the worker has released it
            async with redlock("video:7", wait=5):  # and when this is granted, the ticket is void
                pass
            late = await module.encode.kiq("late", ticket)
            assert (await late.wait_result(timeout=30)).return_value is None
        assert not any(line.startswith("encode late") for line in crew.lines())
        assert sum(line.startswith("started") for line in crew.lines()) == 2  # neither died and was restarted
    finally:
        await module.broker.shutdown()


def test_celery(crew):
    """Two workers with two processes each, forked after the client was used: one name, one at a time."""
    for name in ("one", "two"):
        crew.start(
            "-m", "celery", "-A", "celery_jobs", "worker", "-n", name, "-P", "prefork", "-c", "2",
            "--without-gossip", "--without-mingle", "--without-heartbeat",
        )  # fmt: skip
    sends = subprocess.run(
        [sys.executable, "celery_sends.py"],
        cwd=HERE, env=os.environ | crew.environment, capture_output=True, text=True, check=False, timeout=90,
    )  # fmt: skip
    assert sends.returncode == 0, sends.stderr
    said = json.loads(sends.stdout)
    assert one_at_a_time(crew.lines()) == set(map(str, said["ran_in"]))
    parents = {line.split()[1] for line in crew.lines() if line.startswith("warm")}
    assert len(parents) == 2
    assert parents.isdisjoint(map(str, said["ran_in"]))
    assert said["fences"][0] == said["fences"][1]
    assert said["waiting"] == "nobody waits any more"
    assert crew.stop() == [0, 0]


def test_apscheduler_on_the_leader(crew):
    """Three processes, of which one schedules; when it stands still another does, and it stops when it goes on."""
    schedulers = {me: crew.start("apscheduler_jobs.py", "leader", me) for me in ("anna", "bert", "cleo")}
    crew.until(lambda lines: len(lines) >= 6)
    first = crew.lines()[-1].split()[1]
    assert one_at_a_time(crew.lines()[: len(crew.lines()) // 2 * 2]) == {first}
    schedulers[first].send_signal(signal.SIGSTOP)
    crew.until(lambda lines: lines[-1].split()[1] != first)
    second = crew.lines()[-1].split()[1]
    schedulers[first].send_signal(signal.SIGCONT)
    crew.until(lambda lines: f"lost {first}" in lines)
    before = len(crew.lines())
    crew.until(lambda lines: len(lines) > before + 6)
    assert {line.split()[1] for line in crew.lines()[before:]} == {second}
    assert crew.stop() == [0, 0, 0]


def test_apscheduler_everywhere_with_once(crew):
    """Three processes schedule the report, at moments of their own, and each period has one."""
    for me in ("anna", "bert", "cleo"):
        crew.start("apscheduler_jobs.py", "once", me)
    crew.until(lambda lines: sum(line.startswith("report") for line in lines) == 3)
    assert crew.stop() == [0, 0, 0]
    assert sum(line.startswith("ready") for line in crew.lines()) == 3
    at = [float(line.split()[2]) for line in crew.lines() if line.startswith("report")]
    assert all(later - earlier > 0.85 for earlier, later in pairwise(at))  # `once` holds for nine tenths of a second
