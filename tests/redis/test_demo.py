"""The command line's front door, run as a user runs it: `demo` and `up`."""

import contextlib
import fcntl
import io
import os
import pty
import re
import select
import signal
import socket
import statistics
import struct
import subprocess
import sys
import termios
import time
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest

from redlock_async.cli import COMMANDS, demo
from redlock_async.cli._demo_record import GUARDED, JOURNAL, FileCounter, HeldInterval, Journal, Record
from redlock_async.cli._terminal import Screen, Span, bar
from redlock_async.testing._servers import free_ports

pytestmark = [pytest.mark.thorough, pytest.mark.redis, pytest.mark.usefixtures("embedded")]

PROGRAM = [sys.executable, "-m", "redlock_async"]
SMALL = ["demo", "--processes", "2", "--increments", "10"]
GUARDED_LINE = re.compile(r"guarded counter: 20 of 20")
UNGUARDED_LINE = re.compile(r"unguarded counter: (\d+) of 20 \((\d+) updates lost\)")
ESCAPE = "\x1b"


def check_last_lines(lines):
    """The contract of the last two."""
    assert GUARDED_LINE.fullmatch(lines[-2]), lines
    found = UNGUARDED_LINE.fullmatch(lines[-1])
    assert found, lines
    count, lost = map(int, found.groups())
    assert lost > 0
    assert count + lost == 20


def descendants(pid):
    """The command lines of all descendants of a process, by process id."""
    command = ["/bin/ps", "-A", "-ww", "-o", "pid=,ppid=,args="]  # -ww: else $COLUMNS cuts the command lines
    listed = subprocess.run(command, capture_output=True, text=True, check=True)
    rows = [line.split(None, 2) for line in listed.stdout.splitlines()]
    found, parents = {}, {pid}
    while parents:
        below = {int(row[0]): row[2] for row in rows if int(row[1]) in parents and len(row) > 2}
        found |= below
        parents = set(below)
    return found


def runs(pid):
    """Whether the process is there and no zombie."""
    listed = subprocess.run(["/bin/ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return listed.stdout.strip()[:1] not in {"", "Z"}


def wait_until(condition, patience=10.0):
    """Poll until it holds."""
    give_up_at = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < give_up_at, "it did not happen in time"
        time.sleep(0.02)


@contextlib.contextmanager
def started(*arguments, folder):
    """The program with its output in pipes, and its temporary files in that folder."""
    process = subprocess.Popen(
        [*PROGRAM, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(folder)},
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


@contextlib.contextmanager
def playing(folder):
    """A demo whose processes are at work, with what runs below it."""
    with started("demo", folder=folder) as process:
        for line in process.stdout:
            if "without the lock" in line:
                break
        below = descendants(process.pid)
        assert sum("_demo_worker" in command for command in below.values()) == 4, below
        assert len(below) == 4 + 5, below
        yield process, below


def check_all_gone(below, folder):
    """Neither processes nor files are left."""
    wait_until(lambda: not any(map(runs, below)))
    assert list(folder.iterdir()) == []


# -- demo --------------------------------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_demo_in_a_pipe_counts_right(tmp_path):
    """Plain lines, the story in them, the right count, and updates lost without the lock."""
    with started(*SMALL, folder=tmp_path) as process:
        out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, ""), (out, err)
    assert ESCAPE not in out
    lines = out.splitlines()
    check_last_lines(lines)
    assert "fencing tokens: 20, each greater than the previous one" in lines
    for event in ("killed node 2", "froze node 4", "resumed node 4", "restarted node 2", "is quarantined"):
        assert event in out, f"{event!r} is not in\n{out}"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.share(2)
@pytest.mark.parametrize("columns", [80, 200])
def test_demo_on_a_terminal_draws_in_place_and_restores_the_cursor(columns):
    """A frame is redrawn, no line is broken by the edge, and the terminal is as before."""
    primary, secondary = pty.openpty()
    fcntl.ioctl(secondary, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "LINES", "NO_COLOR"}}
    process = subprocess.Popen(
        [*PROGRAM, *SMALL],
        stdin=secondary,
        stdout=secondary,
        stderr=secondary,
        env={**environment, "TERM": "xterm-256color", "PYTHONUTF8": "1"},
    )
    os.close(secondary)
    out = read_all(primary)
    assert process.wait(10) == 0, out
    assert out.count("\x1b[?25l") == out.count("\x1b[?25h") == 1
    assert out.index("\x1b[?25h") > out.rindex("\x1b[J")
    assert re.search(r"\x1b\[\d+A", out), "it was never redrawn in place"
    lines = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line).strip("\r") for line in out.split("\n")]
    assert max(map(len, lines)) < columns
    for word in ("KILLED", "FROZEN", "quarantined", "holds the lock", "hand-overs/s", "longest gap"):
        assert word in out, f"{word!r} was never shown"
    check_last_lines([line for line in lines if line])


def read_all(primary, patience=60):
    """All that is written to a terminal until its other end is closed."""
    data = b""
    give_up_at = time.monotonic() + patience
    while select.select([primary], [], [], give_up_at - time.monotonic())[0]:
        try:
            chunk = os.read(primary, 65_536)
        except OSError:  # how Linux reports that the other end is closed
            break
        if not chunk:
            break
        data += chunk
    os.close(primary)
    return data.decode()


def test_demo_ends_silently_when_its_output_is_closed(tmp_path):
    """`demo | head -1`."""
    with started("demo", folder=tmp_path) as process:
        assert "started 5 nodes" in process.stdout.readline()
        process.stdout.close()
        assert process.wait(20) == 128 + signal.SIGPIPE
        assert process.stderr.read() == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_demo_that_is_interrupted_leaves_nothing(number, status, tmp_path):
    """Its processes, its servers and its files are gone, and no traceback is left instead."""
    with playing(tmp_path) as (process, below):
        process.send_signal(number)
        _, err = process.communicate(timeout=20)
        assert (process.returncode, err) == (status, "")
    check_all_gone(below, tmp_path)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the servers outlive a SIGKILL of their parent")
def test_processes_and_servers_end_with_a_demo_that_is_killed(tmp_path):
    """It has no time to end them itself."""
    with playing(tmp_path) as (process, below):
        process.kill()
        process.wait(10)
    wait_until(lambda: not any(map(runs, below)))


def test_demo_says_so_when_a_process_dies(tmp_path):
    """Exit status 1, the process and its end, and still the two last lines."""
    with playing(tmp_path) as (process, below):
        os.kill(next(pid for pid, command in below.items() if "_demo_worker 3" in command), signal.SIGKILL)
        out, err = process.communicate(timeout=20)
        assert (process.returncode, err) == (1, "redlock-async: process 3 was ended by signal 9\n")
        last = out.splitlines()[-2:]
        assert last[0].startswith("guarded counter: ")
        assert last[1].startswith("unguarded counter: ")
    check_all_gone(below, tmp_path)


def test_demo_does_not_depend_on_the_callers_settings(tmp_path, monkeypatch):
    """REDLOCK_... variables are for the caller's own locks."""
    for name, value in {"NODES": "redis://127.0.0.1:1", "FENCING": "false", "TTL": "nonsense"}.items():
        monkeypatch.setenv(f"REDLOCK_{name}", value)
    with started(*SMALL, folder=tmp_path) as process:
        out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, ""), out


# -- what the demo makes of what it finds ------------------------------------------------------------------------------


def problem_with(folder, *, count, fences):
    """Return the problem that the demo reports for this counter and these fences."""
    with (
        contextlib.closing(FileCounter(folder / GUARDED)) as counter,
        contextlib.closing(Journal(folder / JOURNAL)) as journal,
    ):
        counter.write(count)
        for at, fence in enumerate(fences):
            journal.add(HeldInterval(fence, at % 2, at, at + 0.75))
    with Record(folder) as record:
        record.read()
        assert record.intervals == len(fences)
        assert record.longest_gap == pytest.approx(0.25)
        assert record.hand_overs == len(fences) - 1
        return demo._wrong(SimpleNamespace(record=record, total=3))


@pytest.mark.parametrize(
    ("count", "fences", "message"),
    [
        (3, [5, 6, 9], None),
        (2, [5, 6, 9], "1 of 3 guarded updates were lost"),
        (3, [5, 9, 6], "process 0 got fence 6, which is not greater than the previous fence 9 of process 1"),
        (3, [5, 6, 6], "process 0 got fence 6, which is not greater than the previous fence 6 of process 1"),
        (3, [0, 0, 0], "process 1 got fence 0, which is not greater than the previous fence 0 of process 0"),
        (3, [5, 6], "2 of 3 holders recorded their fence"),
    ],
)
def test_demo_fails_when_the_lock_did(count, fences, message, tmp_path):
    """A wrong count, or a fence out of order, does not pass for a success."""
    problem = problem_with(tmp_path, count=count, fences=fences)
    assert problem is None if message is None else message in problem


# -- the screen --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("environ", "coloured"), [({}, True), ({"NO_COLOR": ""}, True), ({"NO_COLOR": "1"}, False)])
def test_no_color_is_respected(environ, coloured):
    """As on no-color.org: set and not empty."""
    out = io.StringIO()
    with Screen(out, environ) as screen:
        screen.draw([[Span("up", "green")]])
    assert ("\x1b[32mup\x1b[0m" in out.getvalue()) is coloured
    assert "up" in out.getvalue()


def test_lines_are_cut_to_the_terminal_not_counting_colours(monkeypatch):
    """Otherwise the next frame would be drawn in the wrong place."""
    monkeypatch.setenv("COLUMNS", "10")
    monkeypatch.setenv("LINES", "3")
    out = io.StringIO()
    with Screen(out, {}) as screen:
        screen.draw([[Span("12345", "red"), Span("67890")]] * 5)
    assert out.getvalue().count("\x1b[31m12345\x1b[0m6789\x1b[K\n") == 2


def test_output_that_is_not_unicode_gets_ascii():
    """Nothing fails for want of a character."""
    text = io.TextIOWrapper(io.BytesIO(), "latin-1")
    with Screen(text, {}) as screen:
        assert screen.plain
        screen.draw([[Span("╌")]])
    assert bar(0.5, 4, plain=True) == "##.."


# -- up ----------------------------------------------------------------------------------------------------------------


def answers(port):
    """Whether a server replies to PING there."""
    try:
        with socket.create_connection(("127.0.0.1", port), 2) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(10) == b"+PONG\r\n"
    except OSError:
        return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_up_runs_a_cluster_until_a_signal(number, tmp_path):
    """One line on stdout, which a shell can evaluate; the servers go with it."""
    with started("up", "--nodes", "3", folder=tmp_path) as process:
        line = process.stdout.readline()
        assert re.fullmatch(r"export REDLOCK_NODES=redis://127\.0\.0\.1:\d+(,redis://127\.0\.0\.1:\d+){2}\n", line)
        ports = [int(port) for port in re.findall(r":(\d+)", line)]
        assert all(map(answers, ports))
        assert "Ctrl-C" in process.stderr.readline()
        below = descendants(process.pid)
        process.send_signal(number)
        out, err = process.communicate(timeout=10)
        assert (process.returncode, out, err) == (0, "", "")
    assert len(below) == 3
    check_all_gone(below, tmp_path)
    assert not any(map(answers, ports))


def test_up_starts_on_the_ports_that_it_is_given(tmp_path):
    """The URLs are the same at the next start; a port that is taken is named."""
    (first,) = free_ports(1)
    line = "export REDLOCK_NODES=" + ",".join(f"redis://127.0.0.1:{first + i}" for i in range(2)) + "\n"
    for _ in range(2):
        with started("up", "--nodes", "2", "--port", str(first), folder=tmp_path) as process:
            assert process.stdout.readline() == line
            assert answers(first + 1)
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=10)
    with socket.create_server(("127.0.0.1", first + 1)):
        command = [*PROGRAM, "up", "--nodes", "2", "--port", str(first)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 1
    assert f"port {first + 1}" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("port", "reason"), [("0", "--port"), ("x", "--port"), ("65532", "room for 5 ports")])
def test_up_rejects_ports_that_do_not_exist(port, reason):
    """Before it starts a server."""
    done = subprocess.run([*PROGRAM, "up", "--port", port], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 2
    assert reason in done.stderr
    assert "Traceback" not in done.stderr


def test_up_runs_a_cluster_for_a_command(tmp_path):
    """With REDLOCK_NODES for it. Its output and exit status are the command's own, and the servers go with it."""
    code = (
        "import sys; from redlock_async.blocking import redlock\n"
        "with redlock('x') as lease: print(lease.valid, *sys.argv[1:]); sys.exit(3)"
    )
    with started("up", "--nodes", "3", "--", sys.executable, "-c", code, "--", "-x", folder=tmp_path) as process:
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (3, "True -- -x\n"), err
    check_all_gone(set(), tmp_path)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_up_passes_a_signal_on_to_its_command(number, tmp_path):
    """And waits for it, so that it can clean up while the servers still run."""
    code = "trap 'echo cleaned; exit 4' TERM HUP; echo started; while :; do sleep 0.05; done"
    with started("up", "--nodes", "1", "--", "sh", "-c", code, folder=tmp_path) as process:
        assert process.stdout.readline() == "started\n"
        below = descendants(process.pid)
        process.send_signal(number)
        out, _ = process.communicate(timeout=20)
        assert (process.returncode, out) == (4, "cleaned\n")
    check_all_gone(below, tmp_path)


@pytest.mark.parametrize(("command", "status"), [("no-such-command", 127), ("/etc/passwd", 126)])
def test_up_says_why_a_command_cannot_be_run(command, status, tmp_path):
    """And stops the cluster."""
    with started("up", "--nodes", "1", "--", command, folder=tmp_path) as process:
        out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (status, "")
    assert f"cannot run {command!r}" in err
    check_all_gone(set(), tmp_path)


def test_up_without_a_server_says_what_to_do(tmp_path, monkeypatch):
    """A message, not a traceback."""
    monkeypatch.setenv("REDLOCK_SERVER", str(tmp_path / "missing"))
    done = subprocess.run([*PROGRAM, "up"], capture_output=True, text=True, check=False, timeout=20)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("redlock-async: REDLOCK_SERVER=")
    assert done.stderr.count("\n") == 1


# -- the program -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_its_file(name):
    """The line in COMMANDS and the file beside it."""
    command = import_module(f"redlock_async.cli.{name}")
    assert callable(command.configure)
    assert callable(command.run)


@pytest.mark.parametrize(
    "arguments",
    [[], ["nonsense"], ["up", "--nodes", "0"], ["up", "--nodes", "x"], ["demo", "--processes", "1"], ["demo", "more"]],
)
def test_usage_errors_end_with_2(arguments):
    """And say how it is used, on stderr."""
    done = subprocess.run([*PROGRAM, *arguments], capture_output=True, text=True, check=False, timeout=20)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("usage: redlock-async")


def test_help_is_quick():
    """Processor time of the whole program; generous, for a busy machine."""
    took = []
    for _ in range(3):
        before = os.times()
        done = subprocess.run([*PROGRAM, "--help"], capture_output=True, text=True, check=True, timeout=20)
        after = os.times()
        took.append(after.children_user + after.children_system - before.children_user - before.children_system)
        assert all(name in done.stdout for name in COMMANDS)
    assert statistics.median(took) < 0.3, took


def modules_after(arguments):
    """Those that are there when a command line has been dealt with."""
    code = (
        "import sys\nfrom redlock_async.cli import main\n"
        f"try: main({arguments!r})\nexcept SystemExit: pass\n"
        "print('loaded', *sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=20)
    return set(done.stderr.rpartition("loaded")[2].split())


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["nonsense"], []])
def test_what_needs_no_library_imports_none(arguments):
    """Neither this one nor another, nor a command, nor an event loop: so it is quick on any machine."""
    loaded = modules_after(arguments)
    ours = {"redlock_async", "redlock_async.cli", "redlock_async.cli._passwords"}
    assert {name for name in loaded if name.startswith("redlock_async")} == ours
    assert {"asyncio", "ssl", "anyio", "hiredis", "redis", "logging", "multiprocessing", "subprocess"}.isdisjoint(
        loaded
    )


@pytest.mark.share(4)
@pytest.mark.parametrize("arguments", [*([name, "--help"] for name in COMMANDS), ["completion", "bash"]], ids=" ".join)
def test_the_help_of_a_command_imports_only_the_command(arguments):
    """The libraries that do the work are imported only when there is work."""
    loaded = modules_after(arguments)
    assert f"redlock_async.cli.{arguments[0]}" in loaded
    assert {"anyio", "hiredis", "redis", "redlock_async.client"}.isdisjoint(loaded)


def test_program_in_the_environment_is_the_same():
    """The entry point that pip installs."""
    program = Path(sys.executable).parent / "redlock-async"
    done = subprocess.run([program, "--help"], capture_output=True, text=True, check=True, timeout=20)
    assert done.stdout.startswith("usage: redlock-async")
