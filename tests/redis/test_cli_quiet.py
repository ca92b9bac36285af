"""`run --quiet` and `run --retry-failed`: what cron mails, and whether a failed job can be run again."""

import os
import signal
import subprocess
import sys

import pytest

from redlock_async.cli import main

pytestmark = [pytest.mark.thorough, pytest.mark.redis]

PROGRAM = [sys.executable, "-m", "redlock_async", "run"]
NAME = "report"


def environment(urls):
    """The environment of these tests, with these nodes and no other settings."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("REDLOCK_")}
    return {**kept, "REDLOCK_NODES": ",".join(urls)}


def run(urls, *words):
    """Run the program to its end."""
    done = subprocess.run(
        [*PROGRAM, *words], capture_output=True, text=True, check=False, timeout=120, env=environment(urls)
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


@pytest.fixture
def start():
    """Start the program, and return it once its command has printed a line; it ends with the test at the latest."""
    started = []

    def start(urls, *words):
        process = subprocess.Popen(
            [*PROGRAM, *words],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(urls),
        )  # fmt: skip
        started.append(process)
        process.stdout.readline()
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.terminate()  # not killed: it must end its command and release the lock for the next test
        process.communicate(timeout=20)


def hold(eyes):
    """Another client has the lock."""
    for client in eyes.clients:
        client.set(NAME, "another", px=60_000)


# -- --quiet -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("quiet", ["-q", "--quiet"])
def test_a_quiet_run_prints_nothing_when_the_lock_is_held(nodes, eyes, quiet):
    """So cron sends no mail; without --quiet it does."""
    hold(eyes)
    done = run(nodes, NAME, "--wait", "0", "-E", "0", quiet, "--", "echo", "ran")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert run(nodes, NAME, "--wait", "0", "-E", "0", "--", "echo", "ran").stderr != ""


def test_a_quiet_run_still_exits_with_75_when_the_lock_is_held(nodes, eyes):
    """--quiet changes the output, -E the exit status."""
    hold(eyes)
    done = run(nodes, NAME, "--wait", "0", "--quiet", "--", "echo", "ran")
    assert (done.returncode, done.stdout, done.stderr) == (75, "", "")


def test_a_quiet_run_reports_a_missing_quorum():
    """An outage is not contention: -E does not hide it, and neither does --quiet."""
    nodes = [f"redis://127.0.0.1:{port}" for port in (1, 2, 3)]
    done = run(nodes, NAME, "--wait", "0", "-E", "0", "--quiet", "--", "echo", "ran")
    assert done.returncode == 69
    assert "0 of 3" in done.stderr


def test_a_quiet_run_reports_that_its_lock_was_lost(nodes, eyes, start):
    """The command was stopped midway, which the operator must know."""
    process = start(nodes, NAME, "--quiet", "--", "sh", "-c", "echo begun; sleep 60")
    hold(eyes)  # not deleted: keys that vanish one by one are set again while the other nodes still have theirs
    _, err = process.communicate(timeout=20)
    assert process.returncode == 70
    assert "was lost" in err
    assert "stopping the command" in err


def test_a_quiet_run_reports_a_command_that_cannot_be_started(nodes):
    """A wrong path in a crontab."""
    done = run(nodes, NAME, "--quiet", "--", "/nowhere/report.sh")
    assert done.returncode == 127
    assert "/nowhere/report.sh: No such file" in done.stderr


def test_a_quiet_run_reports_an_unconfirmed_release(cluster, start):
    """The command succeeded, but nodes fail: the name may not stay locked for --min-hold."""
    process = start(cluster.urls, NAME, "--quiet", "--", "sh", "-c", "echo begun; read end")
    for index in (0, 1, 2):
        cluster.pause(index)
    _, err = process.communicate("end\n", timeout=120)
    assert process.returncode == 0
    assert "expires within its ttl" in err


def test_a_quiet_run_passes_on_the_output_of_its_command(nodes):
    """--quiet is about messages of redlock-async only."""
    done = run(nodes, NAME, "--quiet", "--", "sh", "-c", "echo out; echo err >&2; exit 3")
    assert (done.returncode, done.stdout, done.stderr) == (3, "out\n", "err\n")


# -- --retry-failed ----------------------------------------------------------------------------------------------------

HOLD = [NAME, "--wait", "0", "--min-hold", "50"]
ONCE = [*HOLD, "--retry-failed", "--"]


@pytest.mark.parametrize(
    ("command", "status"), [(["false"], 1), (["sh", "-c", "kill -9 $$"], 137), (["/nowhere/report.sh"], 127)]
)
def test_a_job_that_failed_can_be_run_again_at_once(nodes, eyes, command, status):
    """With --retry-failed; without it the name stays locked for the rest of --min-hold."""
    assert run(nodes, *ONCE, *command).returncode == status
    assert eyes.keys() == []
    assert run(nodes, *HOLD, "--", *command).returncode == status
    assert run(nodes, *HOLD, "--", "echo", "ran").returncode == 75


@pytest.mark.parametrize("kind", [["--fair"], ["--write"], ["--read"], ["--semaphore", "1"]])
def test_a_job_of_any_kind_that_failed_can_be_run_again_at_once(nodes, eyes, kind):
    """With every kind of lock, and without disturbing other holders."""
    assert run(nodes, *kind, *ONCE, "false").returncode == 1
    assert not any(client.exists(NAME) for client in eyes.clients)
    assert run(nodes, *kind, *ONCE, "echo", "ran").stdout == "ran\n"


def test_a_job_that_succeeded_is_not_run_again_within_its_hold(nodes, eyes):
    """--retry-failed is about failures only."""
    assert run(nodes, *ONCE, "true").returncode == 0
    assert all(40_000 < client.pttl(NAME) <= 50_000 for client in eyes.clients)
    assert run(nodes, *ONCE, "echo", "ran").returncode == 75


def test_a_job_whose_runner_is_killed_can_be_run_again(nodes, start):
    """The process that was started dies: the other one stops the command, and releases the name."""
    process = start(nodes, *ONCE, "sh", "-c", "echo $$; sleep 60")
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=120)
    assert run(nodes, NAME, "--wait", "10", "--min-hold", "50", "--", "echo", "ran").stdout == "ran\n"


def test_retry_failed_without_a_hold_says_what_it_is_for(monkeypatch, capsys):
    """Alone it would do nothing."""
    monkeypatch.setenv("REDLOCK_NODES", "redis://127.0.0.1:1")
    assert main(["run", NAME, "--retry-failed", "--", "true"]) == 2
    assert "--retry-failed needs --min-hold" in capsys.readouterr().err
