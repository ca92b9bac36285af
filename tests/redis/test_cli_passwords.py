"""Passwords appear neither in the list of processes nor in messages, however the nodes are given."""

import contextlib
import os
import re
import secrets
import subprocess
import sys
from pathlib import Path

import pytest
import redis

pytestmark = pytest.mark.redis

PROGRAM = [sys.executable, "-m", "redlock_async"]
SCRIPT = [str(Path(sys.executable).parent / "redlock-async")]
PATIENCE = 120


@pytest.fixture
def secret():
    """One that is nowhere else on this machine."""
    return secrets.token_hex(12)


@pytest.fixture
def guarded(cluster, secret):
    """The URLs of five nodes that require the password, which is not among the servers' own arguments."""
    for url in cluster.urls:
        with redis.Redis.from_url(url) as client:
            client.config_set("requirepass", secret)
    return ",".join(url.replace("redis://", f"redis://:{secret}@") for url in cluster.urls)


def environment(**more):
    """The caller's, without settings of its own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("REDLOCK_")}
    return {**kept, **more}


def is_seen(text):
    """Whether every user can read the text from `ps`, or from /proc if there is one."""
    # Returns a boolean, so that a failing test does not print the arguments of other processes.
    listed = subprocess.run(["/bin/ps", "-A", "-ww", "-o", "args="], capture_output=True, text=True, check=True).stdout
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has ended since
            listed += path.read_text(errors="replace")
    return text in listed


@contextlib.contextmanager
def running(*words, program=PROGRAM, **more):
    """A process that has been begun."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([*program, *words], text=True, env=environment(**more), **pipes) as process:
        try:
            yield process
        finally:
            process.kill()


def tool(*words, program=PROGRAM, **more):
    """Run it to its end, in which there is no traceback."""
    done = subprocess.run(
        [*program, *words], capture_output=True, text=True, check=False, timeout=PATIENCE, env=environment(**more)
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


FORMS = {
    "two words": lambda urls: ["--nodes", urls],
    "one word": lambda urls: [f"--nodes={urls}"],
    "abbreviated": lambda urls: ["--node", urls],
    "in parts": lambda urls: [word for url in urls.split(",") for word in ("--nodes", url)],
}


@pytest.mark.share(5)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("program", [PROGRAM, SCRIPT], ids=["module", "script"])
@pytest.mark.parametrize("in_front", [False, True], ids=["behind", "in front"])
def test_the_list_of_processes_has_no_password_while_a_command_runs(guarded, secret, program, form, in_front):
    """Of none of the three: the one that was started, the one that holds the lock, and the command."""
    given = FORMS[form](guarded)
    words = [*given, "run", "job"] if in_front else ["run", "job", *given]
    with running(*words, "--", "sh", "-c", "echo begun; read end", program=program) as process:
        assert process.stdout.readline() == "begun\n", process.stderr.read()
        concealed, seen = is_seen("@/dev/fd/"), is_seen(secret)
        out, err = process.communicate("end\n", timeout=PATIENCE)
    assert concealed
    assert not seen
    assert (process.returncode, out, err) == (0, "", "")


@pytest.mark.parametrize(
    ("words", "begun"),
    [
        (["status", "--watch", "--interval", "0.1"], r"5 of 5 nodes vote"),
        (["bench", "--seconds", "2"], r"round trip"),
    ],
)
def test_nor_while_others_do(guarded, secret, words, begun):
    """They stay for a while, too."""
    with running(*words, "--nodes", guarded) as process:
        while not re.search(begun, line := process.stdout.readline()):
            assert line, process.stderr.read()
        assert not is_seen(secret)


def test_nor_of_the_processes_of_the_demo(secret, tmp_path):
    """They do not get the nodes of the caller's own environment."""
    urls = f"redis://:{secret}@127.0.0.1:1"
    words = ["demo", "--processes", "2", "--increments", "40"]
    with running(*words, REDLOCK_NODES=urls, TMPDIR=str(tmp_path)) as process:  # it is killed, and leaves its files
        while "now with the lock" not in (line := process.stdout.readline()):
            assert line, process.stderr.read()
        below = {process.pid}
        for _ in range(2):
            below |= {pid for pid, parent in parents().items() if parent in below}
        assert sum("_demo_worker" in Path(f"/proc/{pid}/cmdline").read_text() for pid in below) == 2
        for pid in below - {process.pid}:
            assert secret not in Path(f"/proc/{pid}/environ").read_text(errors="replace")
        assert not is_seen(secret)


def parents():
    """The parent of every process."""
    listed = subprocess.run(["/bin/ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    return dict(tuple(map(int, line.split())) for line in listed.splitlines())


def test_what_is_given_as_an_argument_is_for_this_process_alone(guarded, secret):
    """The command finds neither the URLs nor a file they came through; what its caller has set it does find."""
    look = "env; ls -l /dev/fd/"
    given = tool("run", "job", "--nodes", guarded, "--", "sh", "-c", look)
    without = tool("run", "job", "--", "sh", "-c", look, REDLOCK_NODES=guarded)
    assert (given.returncode, without.returncode) == (0, 0), given.stderr + without.stderr
    assert secret not in given.stdout
    assert "REDLOCK_NODES" not in given.stdout
    assert f"REDLOCK_NODES={guarded}\n" in without.stdout
    assert given.stdout.count("pipe:") == without.stdout.count("pipe:")


def test_a_run_inside_a_run_finds_the_nodes_of_its_caller(guarded):
    """A script under a lock may take another one."""
    done = tool("run", "outer", "--", *PROGRAM, "run", "inner", "--", "echo", "ran", REDLOCK_NODES=guarded)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ran\n", "")


def test_signals_files_and_the_process_id_survive_the_restart(guarded):
    """Process id, ignored signals and open files survive the restart."""
    line = "trap '' HUP; exec \"$@\" 3<<'END'\nthree\nEND\n"
    look = "kill -HUP $$; cat <&3; echo $PPID"
    words = ["run", "job", "--nodes", guarded, "--", "sh", "-c", look]
    with running(line, "sh", *PROGRAM, *words, program=["/bin/sh", "-c"]) as process:
        out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out, err) == (0, f"three\n{process.pid}\n", "")


# -- files -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("separator", ["\n", ",", ",\n", " , "])
def test_nodes_are_read_from_a_file(guarded, tmp_path, separator):
    """One a line or with commas, with comments and empty lines; the argument goes before the environment."""
    file = tmp_path / "nodes"
    file.write_text(f"# ours\n\n{separator.join(guarded.split(','))}\n")
    done = tool("status", "--nodes", f"@{file}", REDLOCK_NODES="redis://127.0.0.1:1")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("5 of 5 nodes vote, 3 are needed: 2 more may fail\n")


def test_nodes_are_read_from_another_program(guarded, secret):
    """From a keeper of passwords, for instance, by `@<(...)` of bash; the command does not have that file."""
    words = " ".join([*PROGRAM, "run", "job", "--nodes", "@<(printenv GIVEN)", "--", "sh", "-c", "'ls /dev/fd/; cat'"])
    with running(words, program=["bash", "-c"], GIVEN=guarded) as process:
        out, err = process.communicate("data", timeout=PATIENCE)
    assert (process.returncode, err) == (0, "")
    assert "63" not in out.split()
    assert out.endswith("data")
    assert secret not in out


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "No such file or directory"),
        ("", "the file contains no URL"),
        ("# redis://127.0.0.1:1\n", "the file contains no URL"),
    ],
)
def test_a_file_without_nodes_is_wrong_usage(tmp_path, content, said):
    """It is named."""
    file = tmp_path / "nodes"
    if content is not None:
        file.write_text(content)
    done = tool("status", "--nodes", f"@{file}")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"--nodes: {file}: {said}" in done.stderr


# -- words -------------------------------------------------------------------------------------------------------------


@pytest.mark.share(3)
@pytest.mark.parametrize(
    "words",
    [
        ["redis://jo:{}@127.0.0.1:1"],
        ["status", "redis://:{}@127.0.0.1:1"],
        ["status", "redis://127.0.0.1:1?password={}"],
        ["status", "--nodes", "redis://:{}@127.0.0.1:port"],
        ["status", "--nodes", "127.0.0.1:1?password={}"],
        ["status", "--nodes", "jo:{}@127.0.0.1:1"],
        ["--nodes", "redis://:{}@127.0.0.1:port", "status"],
        ["--nodes", "redis://:{}@127.0.0.1:1", "up"],
        ["status", "--nodes", "redis://jo:a@{}@127.0.0.1:1,unix:///x@{}"],
        ["run", "job", "--ttl", "redis://:{}@127.0.0.1:1", "--", "true"],
    ],
)
def test_messages_about_wrong_usage_quote_no_password(secret, words):
    """Wherever it was put by mistake."""
    done = tool(*(word.format(*[secret] * 2) for word in words))
    assert (done.returncode, done.stdout) == (2, "")
    assert secret not in done.stderr


def test_more_nodes_than_a_pipe_holds_are_wrong_usage(secret):
    """With what to do; no cluster has as many."""
    done = tool("status", "--nodes", ",".join(f"redis://:{secret}@10.0.{n // 250}.{n % 250}" for n in range(2_000)))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "redlock-async: the URLs given with --nodes are too long for an argument; "
        "write them to a file and pass --nodes @FILE\n"
    )
