"""Run the examples as a reader would, against local nodes."""

import asyncio
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

pytestmark = pytest.mark.thorough

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
TTL = 1.5


STARTED = []


@pytest.fixture(autouse=True)
def _kill_processes():
    """Kill the processes that a test left running."""
    yield
    while STARTED:
        process = STARTED.pop()
        process.kill()
        process.communicate(timeout=10)


def started(cluster, name, *arguments):
    """Start that example as a process, with the nodes in REDLOCK_NODES."""
    process = subprocess.Popen(
        [sys.executable, EXAMPLES / f"{name}.py", *arguments],
        env=os.environ | {"REDLOCK_NODES": ",".join(cluster.urls)},
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    STARTED.append(process)
    return process


class Election:
    """Three processes of the example, and the journal that their leaders write."""

    def __init__(self, cluster, path):
        self.path = path
        self.candidates = {
            name: started(cluster, "leader_election", name, f"--journal={path}", f"--ttl={TTL}")
            for name in ("anna", "bert", "cleo")
        }

    def entries(self):
        """Return (fence, leader) pairs in the order of writing."""
        if not self.path.exists():
            return []
        with closing(sqlite3.connect(self.path, timeout=5)) as journal:
            try:
                return journal.execute("SELECT fence, leader FROM journal ORDER BY rowid").fetchall()
            except sqlite3.OperationalError:
                return []  # not created yet

    def leader(self):
        """Return the last leader that wrote."""
        return self.entries()[-1][1]

    def end(self):
        """Stop all processes and return their output."""
        said = {}
        for name, process in self.candidates.items():
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.terminate()
            said[name] = process.communicate(timeout=10)[0]
        return said


@pytest.fixture
def election(cluster, tmp_path):
    """A running election."""
    running = Election(cluster, tmp_path / "journal.sqlite")
    yield running
    running.end()


def one_at_a_time(entries):
    """Return the leaders in order. Each has its own fence, and no entry follows a later leader's."""
    fences = [fence for fence, _ in entries]
    assert fences == sorted(fences)
    terms = list(dict.fromkeys(entries))
    assert len({fence for fence, _ in terms}) == len(terms), "two leaders with one fence"
    return [leader for _, leader in terms]


@pytest.mark.asyncio
@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGINT])
async def test_another_leads_when_the_leader_is_gone(by, election, eventually):
    """Another process leads within the ttl after a kill, and immediately after Ctrl-C."""
    await eventually(election.entries, within=10)
    first = election.leader()
    await eventually(lambda: len(election.entries()) > 5)
    election.candidates[first].send_signal(by)
    election.candidates[first].wait(timeout=5)
    before = len(election.entries())
    took = await eventually(lambda: len(election.entries()) > before, within=10)
    print(f"{by.name}: the next leader has written after {took:.2f} s; the ttl is {TTL} s")
    assert took < (TTL + 0.5 if by is signal.SIGKILL else 0.5)
    assert one_at_a_time(election.entries()) == [first, election.leader()]
    said = election.end()
    assert (f"{first} stops" in said[first]) == (by is signal.SIGINT)


@pytest.mark.asyncio
async def test_a_paused_leader_writes_nothing_late(election, eventually):
    """A leader that was paused for longer than its lease steps down when it resumes, and its late write is rejected."""
    await eventually(election.entries, within=10)
    first, written = election.leader(), len(election.entries())
    await eventually(lambda: len(election.entries()) > written)  # it sleeps now, and does not hold SQLite's own lock
    election.candidates[first].send_signal(signal.SIGSTOP)
    await eventually(lambda: election.leader() != first, within=10)
    second = election.leader()
    election.candidates[first].send_signal(signal.SIGCONT)
    await asyncio.sleep(0.5)  # time for a late write
    assert one_at_a_time(election.entries()) == [first, second]
    assert f"{first} steps down" in election.end()[first]


def test_one_machine_writes_the_report(cluster):
    """Of six simultaneous processes, one writes the report."""
    machines = [started(cluster, "nightly_report", "acme") for _ in range(6)]
    said = [machine.communicate(timeout=20)[0] for machine in machines]
    assert all(machine.returncode == 0 for machine in machines)
    assert sorted(said) == ["another machine is writing it, or has written it\n"] * 5 + ["written: /reports/acme.pdf\n"]
    other = started(cluster, "nightly_report", "globex")
    assert other.communicate(timeout=20)[0] == "written: /reports/globex.pdf\n"


def test_an_outage_of_the_locks_is_an_error_of_the_program(cluster):
    """The program fails, so that cron reports it."""
    for index in range(3):
        cluster.kill(index)
    started_at = time.monotonic()
    report = subprocess.run(
        [sys.executable, EXAMPLES / "nightly_report.py", "acme"],
        env=os.environ | {"REDLOCK_NODES": ",".join(cluster.urls)},
        capture_output=True, text=True, check=False, timeout=20,
    )  # fmt: skip
    assert report.returncode == 1
    assert "QuorumUnavailable" in report.stderr
    assert report.stdout == ""
    print(f"failed after {time.monotonic() - started_at:.2f} s")


def rows(path, query):
    """Return the rows of an example's table, or none if it does not exist yet."""
    if not path.exists():
        return []
    with closing(sqlite3.connect(path, timeout=5)) as table:
        try:
            return table.execute(query).fetchall()
        except sqlite3.OperationalError:
            return []


@pytest.mark.asyncio
async def test_a_lease_is_handed_over_with_its_job(cluster, tmp_path, eventually):
    """After a worker and the dispatcher die, each job is done once, under its last fence."""
    path = tmp_path / "queue.sqlite"
    arguments = (f"--queue={path}", "--seconds=0.2")
    dispatcher = started(cluster, "handover_worker", "dispatch", *arguments, "--jobs=6")
    await eventually(lambda: rows(path, "SELECT 1 FROM jobs WHERE fence > 0"), within=10)
    unlucky = started(cluster, "handover_worker", "work", "--me=unlucky", *arguments, "--seconds=60")
    assert "unlucky: works on" in unlucky.stdout.readline()
    unlucky.kill()
    dispatcher.kill()
    workers = [started(cluster, "handover_worker", "work", f"--me={me}", *arguments) for me in ("anna", "bert")]
    dispatcher_again = started(cluster, "handover_worker", "dispatch", *arguments, "--jobs=6")
    said = dispatcher_again.communicate(timeout=30)[0]
    for process in workers:
        process.kill()
    work = "".join(process.communicate(timeout=10)[0] for process in workers)
    assert said.endswith("all jobs are done\n")
    done = rows(path, "SELECT video, fence, done FROM jobs")
    assert len(done) == 6
    for video, fence, by in done:
        assert f"{by.removeprefix('by ')}: works on {video} with fence {fence}" in work
        assert work.count(f": {video} is done") == 1


@pytest.mark.asyncio
async def test_the_leader_schedules_and_another_takes_over(cluster, tmp_path, eventually):
    """No job runs twice for one moment, and none is run by an earlier leader after a later one."""
    path = tmp_path / "runs.sqlite"
    schedulers = {
        me: started(cluster, "scheduler", me, f"--runs={path}", f"--ttl={TTL}") for me in ("anna", "bert", "cleo")
    }

    def runs():
        return rows(path, "SELECT job, due, fence, leader FROM runs ORDER BY rowid")

    for _ in range(2):
        before = len(runs())
        await eventually(lambda before=before: len(runs()) > before + 3, within=10)
        leader = runs()[-1][3]
        schedulers[leader].kill()
        await eventually(lambda leader=leader: runs()[-1][3] != leader, within=10)
    found = runs()
    assert len({(job, due) for job, due, _, _ in found}) == len(found)
    assert {job for job, _, _, _ in found} == {"collect", "report"}
    assert len(one_at_a_time([(fence, leader) for _, _, fence, leader in found])) == 3


@pytest.mark.parametrize(
    ("example", "arguments", "says"),
    [
        ("nightly_report", ["acme"], "written: "),
        ("handover_worker", ["--jobs=2", "--seconds=0.01"], "all jobs are done"),
        ("scheduler", ["anna"], "anna schedules with fence "),
        ("leader_election", ["anna"], "anna leads with fence "),
    ],
)
@pytest.mark.usefixtures("embedded")
def test_one_command_is_enough(example, arguments, says, tmp_path):
    """Without REDLOCK_NODES an example starts its own nodes, prints their URLs, and stops them at its end."""
    environment = {name: value for name, value in os.environ.items() if name != "REDLOCK_NODES"}
    program = subprocess.Popen(
        [sys.executable, EXAMPLES / f"{example}.py", *arguments],
        env=environment, cwd=tmp_path, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    STARTED.append(program)
    first = program.stdout.readline()
    assert first.startswith("export REDLOCK_NODES=redis://127.0.0.1:")
    while says not in (line := program.stdout.readline()):
        assert line, "it ended without printing that"
    if program.poll() is None:
        program.send_signal(signal.SIGINT)
    program.communicate(timeout=10)
    port = int(first.strip().rpartition(":")[2])
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0, "a node was left running"
