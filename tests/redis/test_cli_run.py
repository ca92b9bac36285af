"""`run`, as a user runs it: what the command sees of it, how it is stopped in time, and every exit status."""

import asyncio
import contextlib
import json
import os
import pty
import re
import select
import shlex
import signal
import socket
import subprocess
import sys
import time

import pytest
import redis

from redlock_async import Redlock
from redlock_async.cli import _run_holder, _run_job, main
from redlock_async.cli._run_job import Job
from redlock_async.cli._run_link import Link
from redlock_async.cli._run_signals import Signals

pytestmark = pytest.mark.redis

PROGRAM = [sys.executable, "-m", "redlock_async", "run"]
STUBBORN = "trap '' TERM; sleep 60 & echo $$ $!; wait; wait"
"""A command that does not end when it is asked to, and neither does the one it starts."""


def environment(urls, **more):
    """The caller's, without settings of its own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("REDLOCK_")}
    return {**kept, "REDLOCK_NODES": ",".join(urls), **more}


def run(urls, *words, around="", **more):
    """Run it to its end. `around` is a line for a shell, with {} for the program."""
    program = [*PROGRAM, *words]
    if around:
        program = ["/bin/sh", "-c", around.format(shlex.join(program))]
    done = subprocess.run(
        program, capture_output=True, text=True, check=False, timeout=120, env=environment(urls, **more)
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


@contextlib.contextmanager
def running(urls, *words, **more):
    """One whose command has begun, and said so with its first line, and that line."""
    process = subprocess.Popen(
        [*PROGRAM, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(urls, **more),
        process_group=0,
    )
    with process:
        try:
            process.begun = line_of(process)
            assert process.begun, process.stderr.read()
            yield process
        finally:
            process.kill()  # its command then ends without further help, which the tests check


def line_of(process):
    """Its next line, and not a byte more: `communicate` does not know of what was read ahead."""
    line = b""
    while not line.endswith(b"\n") and (byte := os.read(process.stdout.fileno(), 1)):
        line += byte
    return line.decode().strip()


def ended(process, within=10):
    """Its exit status, and what else it and its command said."""
    out, err = process.communicate(timeout=within)
    assert "Traceback" not in err, err
    return process.returncode, out, err


def processes():
    """Parent, group and state of all processes, by their ids."""
    command = ["/bin/ps", "-A", "-o", "pid=,ppid=,pgid=,stat="]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return {int(pid): (int(ppid), int(pgid), stat) for pid, ppid, pgid, stat in map(str.split, listed.splitlines())}


def members(group):
    """The processes of that group that have not ended."""
    return [pid for pid, (_, pgid, stat) in processes().items() if pgid == group and not stat.startswith("Z")]


def holder_of(process):
    """The process that holds the lock: it has a group of its own, and is not the command."""
    child = int(process.begun.split()[0])
    below = [pid for pid, (ppid, _, _) in processes().items() if ppid == process.pid]
    (found,) = set(below) - {child}
    return found


def wait_until(condition, patience=10.0):
    """Poll until it holds; returns when that was seen."""
    give_up_at = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < give_up_at, "it did not happen in time"
        time.sleep(0.005)
    return time.monotonic()


def hold(eyes, name):
    """Let another client hold it."""
    for client in eyes.clients:
        client.set(name, "another", px=60_000)


def await_renewal(client, name, ttl):
    """Wait until its lease is renewed."""
    wait_until(lambda: client.pttl(name) < 0.8 * ttl * 1000)
    wait_until(lambda: client.pttl(name) > 0.9 * ttl * 1000)


def end_of_lease(client, name, ttl):
    """When it ends if it is not renewed; a renewal, after a third of it, is not due just now."""
    wait_until(lambda: client.pttl(name) > 0.8 * ttl * 1000)
    return time.monotonic() + client.pttl(name) / 1000 - (0.01 * ttl + 0.002)


def force_release(urls, name):
    """As an operator does."""

    async def force():
        async with Redlock(urls) as redlock:
            assert await redlock.force_release(name)

    asyncio.run(force())


# -- the command -------------------------------------------------------------------------------------------------------


def test_the_command_holds_the_lock_and_knows_what_it_holds(nodes, eyes):
    """Name, token and fence are in its environment, the fence greater each time; afterwards nothing is left."""
    fences = []
    for _ in range(2):
        with running(nodes, "job", "--", "sh", "-c", "echo begun; env; read end") as process:
            held = eyes.holding("job")
            process.stdin.write("end\n")
            status, out, err = ended(process)
        found = dict(re.findall(r"^(REDLOCK_\w+)=(.*)$", out, re.MULTILINE))
        assert (status, err) == (0, "")
        assert found["REDLOCK_NAME"] == "job"
        assert held.count(found["REDLOCK_TOKEN"].encode()) >= 3
        fences.append(int(found["REDLOCK_FENCING_TOKEN"]))
    assert fences[0] < fences[1]
    assert eyes.keys() == []


def test_the_command_knows_which_slots_it_has(nodes):
    """The slots of a semaphore, from 0; an inner `run` with another kind of lock sees none."""
    inner = [*PROGRAM, "inner", "--", "env"]
    done = run(nodes, "gpu", "--semaphore", "3", "--count", "2", "--", "sh", "-c", f"env; echo; {shlex.join(inner)}")
    assert done.returncode == 0, done.stderr
    outer, _, within = done.stdout.partition("\n\n")
    (slots,) = re.findall(r"^REDLOCK_SLOTS=(\d),(\d)$", outer, re.MULTILINE)
    assert {*map(int, slots)} < {0, 1, 2}
    assert len({*slots}) == 2
    assert "REDLOCK_NAME=inner" in within
    assert "REDLOCK_SLOTS" not in within


def test_without_fencing_there_is_no_fence(nodes):
    """An inner `run` without fencing does not inherit the fence of the outer one."""
    inner = [*PROGRAM, "inner", "--", "env"]
    done = run(nodes, "outer", "--", "env", "REDLOCK_FENCING=false", *inner)
    assert done.returncode == 0, done.stderr
    assert "REDLOCK_NAME=inner" in done.stdout
    assert "REDLOCK_FENCING_TOKEN" not in done.stdout


@pytest.mark.parametrize(
    ("command", "status"),
    [
        (["sh", "-c", "exit 3"], 3),
        (["sh", "-c", "kill -KILL $$"], 137),
        (["printf", "%s,", "a", "--", "-b"], 0),
        (["no-such-program"], 127),
        (["/etc/passwd"], 126),
    ],
)
def test_the_exit_status_is_that_of_the_command(nodes, eyes, command, status):
    """128 and the number for a signal; 126 and 127 as in a shell; the lock is released in each case."""
    done = run(nodes, "job", "--", *command)
    assert done.returncode == status
    assert done.stdout == ("a,--,-b," if status == 0 else "")
    assert (f"redlock-async: {command[0]}: " in done.stderr) is (status in {126, 127})
    assert eyes.keys() == []


@pytest.mark.parametrize(("given", "status"), [([], 75), (["-E", "9"], 9)])
def test_75_if_another_client_holds_the_lock(nodes, eyes, given, status):
    """Or what the caller prefers; the command does not run."""
    hold(eyes, "job")
    done = run(nodes, "job", "--wait", "0", *given, "--", "echo", "ran")
    assert (done.returncode, done.stdout) == (status, "")
    assert done.stderr == "redlock-async: could not lock 'job': held by another client\n"


def test_1_if_the_nodes_refuse(nodes, eyes):
    """A key of another type is never taken for free."""
    for client in eyes.clients:
        client.rpush("job", "another")
    done = run(nodes, "job", "--wait", "0", "--", "echo", "ran")
    assert (done.returncode, done.stdout) == (1, "")
    assert "'job'" in done.stderr


def test_69_without_a_quorum():
    """The command does not run."""
    done = run([f"redis://:sesame@127.0.0.1:{port}" for port in (1, 2, 3)], "job", "--wait", "0", "--", "echo", "ran")
    assert (done.returncode, done.stdout) == (69, "")
    assert "127.0.0.1:2" in done.stderr
    assert "sesame" not in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "required: NAME"),
        (["job"], "no command given"),
        (["job", "--"], "no command given"),
        (["job", "true"], "unrecognized arguments: true"),
        (["", "--", "true"], "must not be empty"),
        (["job", "--ttl", "0.9", "--", "true"], "must be at least 1 second, got '0.9'"),
        (["job", "--wait", "-1", "--", "true"], "must be a duration such as 30, 500ms, 30s, 30m or 2h, and 0 or more"),
        (["job", "--wait", "-1", "--", "true"], "got '-1'"),
        (["job", "--ttl", "900ms", "--", "true"], "must be at least 1 second, got '900ms'"),
        (["job", "--wait", "3d", "--", "true"], "got '3d'"),
        (["job", "--count", "2", "--", "true"], "--count needs --semaphore"),
        (["job", "--semaphore", "2", "--count", "3", "--", "true"], "count must be from 1 to"),
        (["job", "--read", "--semaphore", "2", "--", "true"], "not allowed with"),
        (["job", "--semaphore", "1001", "--", "true"], "permits"),
        (["job", "-E", "256", "--", "true"], "from 0 to 255, got '256'"),
    ],
)
def test_2_for_wrong_usage(monkeypatch, capsys, words, said):
    """And what is wrong."""
    monkeypatch.setenv("REDLOCK_NODES", "redis://127.0.0.1:1")
    try:
        status = main(["run", *words])
    except SystemExit as end:
        status = end.code
    assert status == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err


def test_2_for_settings_that_cannot_work():
    """No nodes; a lease for services, in which no process can be stopped."""
    for urls, more, said in (
        ([], {}, "REDLOCK_NODES"),
        (["redis://127.0.0.1:1"], {"REDLOCK_TTL": "0.5"}, "REDLOCK_TTL=0.5 is too short"),
    ):
        done = run(urls, "job", "--", "echo", "ran", **more)
        assert (done.returncode, done.stdout) == (2, "")
        assert said in done.stderr


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_interrupted_while_it_waits_it_ends_and_leaves_nothing(nodes, eyes, number, status):
    """The lock is not taken afterwards, either."""
    hold(eyes, "job")
    process = subprocess.Popen(
        [*PROGRAM, "job", "--", "echo", "ran"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(nodes, REDLOCK_OWNER="the-waiter"),
    )
    with process:
        wait_until(lambda: any("the-waiter" in each["name"] for each in eyes.clients[0].client_list()))
        process.send_signal(number)
        assert ended(process) == (status, "", "")
    assert eyes.holding("job") == [b"another"] * len(nodes)


# -- kinds and options -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "free"),
    [
        ([], set()),
        (["--fair"], set()),
        (["--write"], set()),
        (["--read"], {"read"}),
        (["--semaphore", "2"], {"lock", "read", "semaphore"}),
    ],
)
def test_each_kind_excludes_what_it_should(nodes, kind, free):
    """Seen from others while it is held."""

    async def others():
        async with Redlock(nodes, wait=0) as redlock:
            kinds = {
                "lock": redlock.lock("job"),
                "read": redlock.read_lock("job"),
                "semaphore": redlock.semaphore("job", permits=2),
            }
            return {name for name, lock in kinds.items() if await free_now(lock)}

    async def free_now(lock):
        if (lease := await lock.try_acquire()) is not None:
            await lease.release()
        return lease is not None

    with running(nodes, "job", *kind, "--", "sh", "-c", "echo begun; read end") as process:
        # A semaphore's name and a lock's have nothing to do with each other.
        assert asyncio.run(others()) == (free if "--semaphore" in kind else free | {"semaphore"})
        process.stdin.write("end\n")
        assert ended(process)[0] == 0


def test_a_name_may_stay_locked_for_longer_than_the_command_runs(nodes, eyes):
    """For jobs that several machines start at the same minute."""
    assert run(nodes, "job", "--min-hold", "50", "--", "true").returncode == 0
    assert all(40_000 < client.pttl("job") <= 50_000 for client in eyes.clients)
    assert run(nodes, "job", "--wait", "0", "--min-hold", "50", "--", "echo", "ran").returncode == 75


def test_a_counter_is_exact(nodes, tmp_path):
    """Processes that read, pause and write: without the lock updates are lost, with it none.

    REDLOCK_RUN_COUNTER=8x50 has eight of them do it fifty times each.
    """
    several, each = map(int, os.environ.get("REDLOCK_RUN_COUNTER", "2x4").split("x"))

    def count(each, *prefix):
        counter = tmp_path / "counter"
        counter.write_text("0\n")
        add = shlex.join([*prefix, "sh", "-c", f"n=$(cat {counter}); sleep 0.02; echo $((n + 1)) > {counter}"])
        loop = f"i=0; while [ $i -lt {each} ]; do {add} || exit; i=$((i + 1)); done"
        loops = [subprocess.Popen(["/bin/sh", "-c", loop], env=environment(nodes)) for _ in range(several)]
        assert [process.wait(300) for process in loops] == [0] * several
        return int(counter.read_text())

    tries = max(each, 40)  # far quicker, so that they do overlap
    assert count(tries) < several * tries
    assert count(each, *PROGRAM, "counter", "--wait", "forever", "--") == several * each


# -- loss --------------------------------------------------------------------------------------------------------------


def test_70_when_it_is_taken_away_and_nothing_of_the_command_is_left(nodes, eyes):
    """Neither what it started, though both ignore SIGTERM; the next holder is not waited for."""
    with running(nodes, "job", "--", "sh", "-c", STUBBORN) as process:
        group = int(process.begun.split()[0])
        assert len(members(group)) == 2
        began = time.monotonic()
        force_release(nodes, "job")
        gone = wait_until(lambda: not members(group))
        status, _, err = ended(process)
    assert status == 70
    assert gone - began < 1.5  # a lease of 10 s has at least 6 left at any moment
    assert re.fullmatch(r"redlock-async: the lock on 'job' was lost: .*; stopping the command\n", err)
    assert eyes.keys() == []


def test_70_although_the_command_ended_well_when_it_was_asked_to(nodes):
    """It gets SIGTERM first, and may clean up."""
    polite = "trap 'echo cleaned up; exit 0' TERM; echo begun; sleep 60 & wait"
    with running(nodes, "job", "--", "sh", "-c", polite) as process:
        force_release(nodes, "job")
        status, out, _ = ended(process)
    assert (status, out) == (70, "cleaned up\n")


def test_the_group_is_gone_before_its_lease_ends_when_three_nodes_freeze(cluster):
    """Asked with a quarter of the lease left, killed with a tenth."""
    ttl = 2.0
    command = ["job", "--ttl", str(ttl), "--", "sh", "-c", STUBBORN]
    with redis.Redis.from_url(cluster.urls[4]) as client, running(cluster.urls, *command) as process:
        group = int(process.begun.split()[0])
        ends = end_of_lease(client, "job", ttl)
        for index in (0, 1, 2):
            cluster.pause(index)
        gone = wait_until(lambda: not members(group))
        assert ends - ttl / 4 < gone < ends
        status, _, err = ended(process)
    assert status == 70
    assert err == "redlock-async: the lock on 'job' could not be renewed and is about to expire; stopping the command\n"


def test_a_run_that_is_killed_takes_the_command_with_it(nodes, eyes):
    """The process that holds the lock stops the command, and then releases the lock before its ttl is over."""
    with running(nodes, "job", "--", "sh", "-c", "sleep 60 & echo $$ $!; wait") as process:
        group = int(process.begun.split()[0])
        os.killpg(process.pid, signal.SIGKILL)  # as `timeout` does
        wait_until(lambda: not members(group), 1.5)
        wait_until(lambda: eyes.keys() == [], 4.0)  # later only where init is slow to reap


@pytest.mark.alone
def test_without_its_holder_the_command_ends_before_the_lease_does(nodes, eyes):
    """Whether that died or hangs."""
    with contextlib.ExitStack() as stack:
        ends, groups, runs, gone = {}, {}, {}, {}
        for fault in (signal.SIGKILL, signal.SIGSTOP):
            process = runs[fault] = stack.enter_context(
                running(nodes, fault.name, "--ttl", "2", "--", "sh", "-c", STUBBORN)
            )
            groups[fault], holder = int(process.begun.split()[0]), holder_of(process)
            ends[fault] = end_of_lease(eyes.clients[0], fault.name, 2.0)
            os.kill(holder, fault)
            stack.callback(end_stopped, holder)
        while len(gone) < len(runs):
            for fault in set(runs) - set(gone):
                if not members(groups[fault]):
                    gone[fault] = time.monotonic()
        for fault, process in runs.items():
            assert gone[fault] < ends[fault]
            status, _, err = ended(process)
            assert status == 70
            assert ("the process that held the lock on 'SIGKILL' has ended" in err) is (fault == signal.SIGKILL)


def end_stopped(pid):
    """It hangs for good otherwise."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def test_work_that_was_done_under_the_lock_is_done(cluster):
    """Even if too few nodes confirm the release: a failure would not undo the work."""
    with running(cluster.urls, "job", "--", "sh", "-c", "echo begun; read end") as process:
        for index in (0, 1, 2):
            cluster.pause(index)
        process.stdin.write("end\n")
        status, _, err = ended(process)
    assert status == 0
    assert "expires within its ttl" in err


def test_a_lock_without_a_command_is_released(nodes, eyes, monkeypatch):
    """The process that should start the command is stopped, and exits with 70 when it continues."""
    monkeypatch.setattr(_run_holder, "START_TIMEOUT", 0.05)
    redlock = Redlock(nodes)
    near, far = socket.socketpair()
    with near, far:
        asyncio.run(_run_holder.Holder(redlock, redlock.lock("job"), 75).hold(far))
        assert eyes.keys() == []
        assert Job("job", ["echo", "ran"], {}, Signals(), Link(near)).run() == 70


def test_a_command_does_not_start_unless_the_holder_knows_its_group(monkeypatch, capfd):
    """The holder could not stop it if the process that starts it were killed."""
    monkeypatch.setattr(_run_job, "RELEASE_TIMEOUT", 0.1)
    near, far = socket.socketpair()
    with near, far:
        granted = {"granted": "token", "fence": 1, "slots": (), "until": _run_holder.now() + 60}
        far.sendall(json.dumps(granted).encode() + b"\n")
        far.shutdown(socket.SHUT_RD)
        assert Job("job", ["echo", "ran"], {}, Signals(), Link(near)).run() == 70
    assert capfd.readouterr() == ("", "redlock-async: the process that held the lock on 'job' has ended\n")


# -- signals and files -------------------------------------------------------------------------------------------------


def test_signals_are_passed_on_and_its_answer_counts(nodes):
    """To all of its group, and the command decides."""
    names = ["INT", "TERM", "HUP", "USR1"]
    traps = "; ".join(f"trap 'echo {name}' {name}" for name in names)
    with running(nodes, "job", "--", "sh", "-c", f"{traps}; echo begun; while :; do sleep 0.05; done") as process:
        for name in names:
            process.send_signal(getattr(signal, f"SIG{name}"))
            assert line_of(process) == name
        process.send_signal(signal.SIGQUIT)
        assert ended(process)[0] == 128 + signal.SIGQUIT


def test_what_its_caller_ignores_is_ignored(nodes):
    """As under nohup."""
    done = run(
        nodes, "job", "--", "sh", "-c", "kill -HUP $$; kill -HUP $PPID; echo still there", around="trap '' HUP; {}"
    )
    assert (done.returncode, done.stdout) == (0, "still there\n")


def test_data_passes_through_untouched(nodes):
    """Also what the shell gave it beside the first three files."""
    done = run(
        nodes, "job", "--", "sh", "-c", "cat; cat <&3; echo words >&2", around="seq 100000 | {} 3<<'END'\nthree\nEND"
    )
    assert done.returncode == 0
    assert done.stdout == "".join(f"{number}\n" for number in range(1, 100_001)) + "three\n"
    assert done.stderr == "words\n"


def test_a_closed_pipe_ends_the_command(nodes):
    """`| head`: the command ends as it would have without us."""
    done = run(nodes, "job", "--", "yes", around="{{ {}; echo $? >&2; }} | head -1")
    assert (done.stdout, done.stderr) == ("y\n", "141\n")


def test_closed_files_stay_closed(nodes):
    """For the command; and none of ours takes their place."""
    look = "for n in 0 1 2; do test -e /dev/fd/$n && exit 4; done; trap 'exit 3' TERM; kill $PPID; sleep 5 & wait"
    assert run(nodes, "job", "--", "sh", "-c", look, around="{} <&- >&- 2>&-").returncode == 3


# -- a terminal --------------------------------------------------------------------------------------------------------


class Shell:
    """A shell on a terminal, with a person before it."""

    def __init__(self, urls, *program):
        self.pid, self._terminal = pty.fork()
        if not self.pid:
            os.execvpe(program[0], program, environment(urls, PS1="$ ", TERM="dumb", HISTFILE="/dev/null"))  # noqa: S606 - it takes our place
        self._seen = ""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self._terminal)  # hangs up
        os.waitpid(self.pid, 0)

    def types(self, text):
        """Type that."""
        os.write(self._terminal, text.encode())

    def sees(self, pattern, patience=10.0):
        """Wait for it to be shown, and look only at what comes after from then on."""
        give_up_at = time.monotonic() + patience
        while not (found := re.search(pattern, self._seen)):
            left = give_up_at - time.monotonic()
            assert left > 0, self._seen
            if select.select([self._terminal], [], [], left)[0]:
                self._seen += os.read(self._terminal, 65_536).decode()
        self._seen = self._seen[found.end() :]
        return found


@pytest.fixture
def shell(nodes):
    """One with job control, which has not done anything yet."""
    with Shell(nodes, "bash", "--norc", "--noprofile", "-i") as shell:
        shell.sees(r"\$ ")
        yield shell


def typed(*words):
    """A line that runs it, and then shows the exit status."""
    return f"{shlex.join([*PROGRAM, 'job', *words])}; echo status-$?-\n"


def test_the_command_reads_the_terminal_and_gets_its_keys(shell):
    """It is in the foreground, Ctrl-C reaches it, and it decides."""
    shows = "echo state-$(ps -o stat= -p $$)-; trap 'echo caught-it; exit 9' INT; read l; echo got-$l; read l"
    shell.types(typed("--", "sh", "-c", shows))
    assert "+" in shell.sees(r"state-(\w\S*)-")[1]
    shell.types("hello\n")
    shell.sees("got-hello")
    shell.types("\x03")
    shell.sees("caught-it")
    shell.sees("status-9-")
    shell.types("echo the-shell-$((40 + 2))\n")
    shell.sees("the-shell-42")


def test_a_suspended_job_keeps_its_lock_and_continues(shell, eyes):
    """Ctrl-Z, longer than its lease, and `fg`."""
    shell.types(typed("--ttl", "1", "--", "sh", "-c", "echo be''gun; read l; echo got-$l"))
    shell.sees("begun")
    shell.types("\x1a")
    shell.sees("Stopped")
    for _ in range(4):
        await_renewal(eyes.clients[0], "job", 1)
    shell.types("fg; echo status-$?-\n")
    shell.types("hello\n")
    shell.sees("got-hello")
    shell.sees("status-0-")


def test_a_suspended_job_that_loses_its_lock_never_continues(shell, nodes):
    """It is killed while it is suspended; `fg` shows status 70."""
    shell.types(typed("--", "sh", "-c", "echo group-$$-; read l; echo went-''on"))
    group = int(shell.sees(r"group-(\d+)-")[1])
    shell.types("\x1a")
    shell.sees("Stopped")
    force_release(nodes, "job")
    wait_until(lambda: not members(group))
    shell.types("fg; echo status-$?-\n")
    assert "went-on" not in shell.sees("(?s).*status-70-")[0]


def test_in_a_pipeline_the_command_gets_the_terminal_when_it_asks(shell):
    """Others of the pipeline may need it, too."""
    shell.types(f"{shlex.join([*PROGRAM, 'job', '--', 'sh', '-c', 'read l; echo got-$l'])} | cat\n")
    shell.types("hello\n")
    shell.sees("got-hello")
    shell.types("echo the-shell-$((40 + 2))\n")
    shell.sees("the-shell-42")


def test_a_script_has_the_terminal_back(nodes):
    """There is no shell between that would take it."""
    script = f"{shlex.join([*PROGRAM, 'job', '--', 'echo', 'ran'])}; read l; echo got-$l"
    with Shell(nodes, "sh", "-c", script) as terminal:
        terminal.sees("ran")
        terminal.types("hello\n")
        terminal.sees("got-hello")


def test_without_a_shell_a_job_is_not_suspended(nodes):
    """The first process of a container with a terminal ignores Ctrl-Z, because no shell could continue it."""
    with Shell(nodes, *PROGRAM, "job", "--", "sh", "-c", "echo begun; read l; echo got-$l") as terminal:
        terminal.sees("begun")
        terminal.types("\x1a")
        terminal.types("hello\n")
        terminal.sees("got-hello")
