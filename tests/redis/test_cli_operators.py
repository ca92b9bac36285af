"""`locks`, `inspect`, `release`, `status` and `completion`, run as a user runs them."""

import asyncio
import contextlib
import errno
import fcntl
import json
import os
import pty
import re
import select
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time

import pytest
import redis

from redlock_async import LockLost, Redlock
from redlock_async.cli import COMMANDS, completion, parser
from redlock_async.cli._messages import short_cause
from redlock_async.cli._node_view import sparkline
from redlock_async.cli._table import Column, table
from redlock_async.cli._terminal import HIDE_CURSOR, SHOW_CURSOR, Span, display_width, render, truncate

pytestmark = pytest.mark.redis

PROGRAM = [sys.executable, "-m", "redlock_async"]
ORPHAN = "f" * 32 + ":gone"
ESCAPE = "\x1b"
PATIENCE = 120


def environment(urls, **more):
    """The caller's, without settings of its own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("REDLOCK_", "COLUMNS", "LINES"))}
    return {**kept, "REDLOCK_NODES": ",".join(urls), "PYTHONUTF8": "1", **more}


def tool(urls, *arguments, stdin="", **more):
    """Run it to its end."""
    return subprocess.run(
        [*PROGRAM, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
        env=environment(urls, **more),
    )


async def meanwhile(urls, *arguments, **more):
    """The same while this loop holds a lock."""
    return await asyncio.to_thread(tool, urls, *arguments, **more)


class Terminal:
    """A program on a terminal of some size, of which it is the foreground."""

    def __init__(self, urls, arguments, columns=80, rows=24, program=PROGRAM, **more):
        self.primary, secondary = pty.openpty()
        self.text = ""
        self.resize(columns, rows)
        self.process = subprocess.Popen(
            [*program, *arguments],
            stdin=secondary,
            stdout=secondary,
            stderr=secondary,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - one system call
            env=environment(urls, TERM="xterm-256color", **more),
        )
        os.close(secondary)

    def resize(self, columns, rows):
        """As a user does who drags the window's corner."""
        fcntl.ioctl(self.primary, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read_until(self, pattern):
        """Read on until that is there."""
        give_up_at = time.monotonic() + PATIENCE
        while not (found := re.search(pattern, self.text)):
            left = max(give_up_at - time.monotonic(), 0)
            assert select.select([self.primary], [], [], left)[0], f"{pattern!r} is not in\n{self.text}"
            try:
                data = os.read(self.primary, 65_536)
            except OSError:  # how Linux reports that the other end is closed
                data = b""
            assert data, f"{pattern!r} is not in\n{self.text}"
            self.text += data.decode()
        return found

    def type(self, text):
        """Keys."""
        os.write(self.primary, text.encode())

    def ended(self):
        """Its exit status, with all that it has said."""
        with contextlib.suppress(OSError):
            while data := os.read(self.primary, 65_536):
                self.text += data.decode()
        os.close(self.primary)
        return self.process.wait(PATIENCE)


def lines_of(text):
    """The visible text of each line."""
    return [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line).strip("\r") for line in text.split("\n")]


# -- locks, inspect ----------------------------------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_locks_are_listed_and_inspected(nodes):
    """A row each; all of one by its name; JSON for programs."""
    with redis.Redis.from_url(nodes[1]) as client:
        client.set("left", ORPHAN, px=60_000)
    async with Redlock(nodes, owner="web-1") as redlock, redlock("orders:42") as lease, redlock("a*") as other:
        done = await meanwhile(nodes, "locks")
        assert (done.returncode, done.stderr) == (0, "2 held, 1 orphan\n")
        title, *rows = done.stdout.splitlines()
        assert title.split() == ["name", "kind", "state", "holder", "votes", "left", "fence"]
        assert [row.split()[:5] for row in rows] == [
            ["a*", "lock", "held", "web-1", "5/5"],
            ["left", "lock", "orphan", "gone", "1/5"],
            ["orders:42", "lock", "held", "web-1", "5/5"],
        ]
        assert ESCAPE not in done.stdout
        done = await meanwhile(nodes, "inspect", "a*", "--json")
        (found,) = json.loads(done.stdout)
        assert (found["name"], found["token"], found["expires"]) == ("a*", other.token, True)
        done = await meanwhile(nodes, "inspect", "orders:42")
        assert done.returncode == 0
        assert f"token     {lease.token}" in done.stdout
        assert f"fence     {lease.fencing_token}" in done.stdout
        assert "votes     5/5, 3 are needed: " in done.stdout


def test_nothing_locked_is_said_and_is_no_json_of_words(nodes):
    """On stderr; `inspect` has an exit status for it, for scripts."""
    done = tool(nodes, "locks")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "nothing is locked\n")
    done = tool(nodes, "inspect", "x")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "x is free\n")
    done = tool(nodes, "inspect", "x", "--json")
    assert (done.returncode, json.loads(done.stdout), done.stderr) == (1, [], "")


def test_what_others_wrote_does_nothing_to_a_terminal(nodes):
    """A name or a label may hold anything."""
    for url in nodes:
        with redis.Redis.from_url(url) as client:
            client.set("\x1b[2Jx", "f" * 32 + ":\x1b]0;owned\x07", px=60_000)
    done = tool(nodes, "locks")
    assert "?[2Jx" in done.stdout
    assert ESCAPE not in done.stdout


def test_names_are_cut_to_the_terminal(nodes):
    """With colours there; a pipe gets all of it."""
    name = "name:" + "x" * 100
    for url in nodes:
        with redis.Redis.from_url(url) as client:
            client.set(name, ORPHAN, px=60_000)
    assert name in tool(nodes, "locks").stdout
    for columns, no_color in ((80, ""), (200, "1")):
        terminal = Terminal(nodes, ["locks"], columns, NO_COLOR=no_color)
        assert terminal.ended() == 0
        assert max(map(len, lines_of(terminal.text))) < columns
        assert ("\x1b[32mheld" in terminal.text) is not no_color
        assert (name in terminal.text) is (columns == 200)


DOWN = [f"redis://jo:hush-hush@127.0.0.1:{port}" for port in (1, 2, 3)]
"""Nodes that are down."""


@pytest.mark.parametrize(
    "command",
    [
        *(["locks"], ["inspect", "x"], ["release", "x", "--force", "--yes"], ["status"]),
        *(["permits", "x"], ["run", "x", "--wait", "0", "--", "true"], ["bench", "--seconds", "0.2"]),
    ],
    ids=" ".join,
)
def test_without_a_quorum_each_ends_with_69(command):
    """The message names the nodes, not the passwords, with the same short causes."""
    done = tool(DOWN, *command)
    assert done.returncode == 69
    said = done.stdout if command == ["status"] else done.stderr
    assert all(f"127.0.0.1:{port}: cannot be reached" in said for port in (1, 2, 3))
    assert "Connect call" not in said
    assert "hush" not in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_json_has_all_that_is_known_of_a_node_that_is_down():
    """Also what words for people leave out."""
    done = tool(DOWN, "status", "--json")
    assert all("Connect call failed" in node["error"] for node in json.loads(done.stdout)["nodes"])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"Error {errno.ECONNREFUSED} connecting to h:1. Connect call failed ('10.0.0.1', 1).", "cannot be reached"),
        (
            f"Error {errno.EHOSTUNREACH} connecting to h:1. Connect call failed ('10.0.0.1', 1).",
            "cannot be reached (no route to host)",
        ),
        (
            (
                f"Error Multiple exceptions: [Errno {errno.ECONNREFUSED}] Connect call failed ('::1', 1, 0, 0), "
                f"[Errno {errno.ENETUNREACH}] Connect call failed ('10.0.0.1', 1) connecting to h:1."
            ),
            "cannot be reached (network is unreachable)",
        ),
        (
            "Error -2 connecting to no.host:1. Name or service not known.",
            "cannot be reached (name or service not known)",
        ),
        (
            "Error 2 connecting to unix socket: /tmp/x. No such file or directory.",
            "cannot be reached (no such file or directory)",
        ),
        *[
            (text, text)
            for text in (
                "",
                "no connection within 0.25 s",
                "Error 1 connecting to h:1. [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed (_ssl.c:1006).",
                "NOAUTH: the server requires a password. Add it to the node's URL",
            )
        ],
    ],
)
def test_the_trouble_of_a_node_in_short(text, words):
    """Without the address, which the message already has, but with everything that distinguishes causes."""
    assert short_cause(text) == words


@pytest.mark.parametrize("columns", [50, 80])
@pytest.mark.parametrize(
    "command",
    [["locks"], ["permits", "x"], ["run", "x", "--wait", "0", "--", "true"]],
    ids=" ".join,
)
def test_words_are_broken_between_words_on_a_terminal(command, columns):
    """In a pipe a message is one line, which can be searched."""
    piped = tool(DOWN, *command)
    terminal = Terminal(DOWN, command, columns)
    assert terminal.ended() == piped.returncode
    *lines, _ = lines_of(terminal.text)
    assert max(map(len, lines)) < columns
    assert len(lines) > 1
    assert " ".join(lines) == piped.stderr.removesuffix("\n")


@pytest.mark.parametrize(
    "command", [["locks"], ["inspect", "x"], ["release", "x", "--force", "--yes"], ["status"], ["doctor"]]
)
def test_without_nodes_each_ends_with_2(command):
    """And says where to get some."""
    done = tool([], *command)
    assert (done.returncode, done.stdout) == (2, "")
    assert "REDLOCK_NODES" in done.stderr


@pytest.mark.asyncio
async def test_what_is_known_of_a_name_is_broken_between_words(nodes):
    """Continuation lines are indented below the value."""
    async with Redlock(nodes, owner="web-1") as redlock, redlock("x", ttl=30) as lease:
        terminal = Terminal(nodes, ["inspect", "x"], 80)
        assert await asyncio.to_thread(terminal.ended) == 0
        lines = lines_of(terminal.text)
    assert max(map(len, lines)) < 80
    assert f"  token     {lease.token}" in lines
    (first,) = (number for number, line in enumerate(lines) if line.startswith("  votes "))
    assert lines[first + 1].startswith(" " * 12 + "127.0.0.1:")
    labels = [url.removeprefix("redis://") for url in nodes]
    assert lines[first][12:] + " " + lines[first + 1][12:] == f"5/5, 3 are needed: {', '.join(labels)}"


@pytest.mark.share(5)
@pytest.mark.parametrize(
    "command",
    [
        *(
            ["locks"],
            ["locks", "--json"],
            ["inspect", "x"],
            ["inspect", "x", "--json"],
            ["doctor"],
            ["doctor", "--json"],
        ),
        *(["status"], ["status", "--json"], ["status", "--watch"], ["status", "--watch", "--json"]),
        *(["bench", "--seconds", "0.2"], ["bench", "--seconds", "0.2", "--json"]),
        *(["completion", "bash"], ["--help"], ["--version"], ["run", "--help"]),
    ],
    ids=" ".join,
)
def test_a_closed_stdout_is_no_traceback(nodes, command):
    """Stdout is closed from the start (`>&-`), or later (`| head -0`)."""
    for url in nodes:
        with redis.Redis.from_url(url) as client:
            client.set("x", ORPHAN, px=60_000)
    if "--watch" not in command:
        closed = subprocess.run(
            ["/bin/sh", "-c", 'exec "$@" >&-', "sh", *PROGRAM, *command],
            stderr=subprocess.PIPE, check=False, timeout=PATIENCE, env=environment(nodes),
        )  # fmt: skip
        assert b"Traceback" not in closed.stderr
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [*PROGRAM, *command], stdout=writer, stderr=subprocess.PIPE, check=False, timeout=PATIENCE,
        env=environment(nodes),
    )  # fmt: skip
    os.close(writer)
    # argparse ignores a closed pipe when it prints its help unbuffered (PYTHONUNBUFFERED).
    assert done.returncode in {128 + signal.SIGPIPE, 0 if "--help" in command else None}
    assert b"Traceback" not in done.stderr


def test_a_command_that_is_misspelt_is_guessed():
    """The one that is nearest, or all there are."""
    for word, said in (("stauts", "did you mean 'status'?"), ("zzz", "the commands are run, acquire, renew")):
        done = tool([], word, "--json")
        assert (done.returncode, done.stdout) == (2, "")
        assert f"unknown command {word!r}: {said}" in done.stderr


def test_a_missing_double_dash_is_explained():
    """`run NAME CMD` is what one tries first."""
    done = tool([], "run", "name", "true")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("usage: redlock-async run [options] NAME -- CMD")
    assert done.stderr.endswith("unrecognized arguments: true; write `--` before the command to run\n")


def test_nodes_may_be_given_in_front_of_the_command(nodes):
    """The command's option overrides the one before the command, and both override the environment."""
    down = ["redis://127.0.0.1:1"]
    given = ",".join(nodes)
    for words in (["--nodes", given, "status"], [f"--nodes={given}", "status"], ["--no", given, "status", "--json"]):
        done = tool(down, *words)
        assert (done.returncode, done.stderr) == (0, "")
    assert tool(down, "--nodes", given, "run", "x", "--", "echo", "ran", "--").stdout == "ran --\n"
    assert tool(down, "--nodes", *down, "status", "--nodes", given).returncode == 0
    assert tool(nodes, "--nodes", *down, "status").returncode == 69
    for words, said in (
        ([given, "up"], "redlock-async up: error: --nodes before the command gives the URLs of nodes"),
        ([given, "completion", "bash"], "redlock-async completion: error: --nodes before the command"),
        ([given, "stauts"], "did you mean 'status'?"),
        ([given], "required: COMMAND"),
        (["status"], "required: COMMAND"),
    ):
        done = tool(nodes, "--nodes", *words)
        assert (done.returncode, done.stdout) == (2, "")
        assert said in done.stderr
    assert "--nodes URL,..." in tool([], "--help").stdout


def test_without_a_command_there_is_help():
    """On stderr, for it is wrong usage."""
    done = tool([])
    assert (done.returncode, done.stdout) == (2, "")
    assert all(f"\n    {name}" in done.stderr for name in COMMANDS)


# -- permits -----------------------------------------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_permits_are_shown_and_changed(nodes):
    """Also while slots are held; a lower number is rejected while slots beyond it are held."""
    done = await meanwhile(nodes, "permits", "gpu")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "no semaphore named gpu is in use\n")
    async with Redlock(nodes, owner="web-1") as redlock, redlock.semaphore("gpu", permits=3, count=3) as lease:
        assert lease.slots == (0, 1, 2)
        done = await meanwhile(nodes, "permits", "gpu")
        assert (done.returncode, done.stdout) == (0, "3 permits, 3 in use\n")
        done = await meanwhile(nodes, "permits", "gpu", "4", "--json")
        assert (done.returncode, json.loads(done.stdout)) == (0, {"permits": 4, "in_use": 3, "set": True})
        assert done.stderr == ""
        async with redlock.semaphore("gpu", permits=4):
            done = await meanwhile(nodes, "permits", "gpu", "2")
            assert (done.returncode, done.stdout) == (75, "")
            assert "web-1" in done.stderr
            assert "`redlock-async release gpu --force`, which frees all its slots" in done.stderr
            assert "force_release" not in done.stderr
    for number, status in (("0", 2), ("many", 2), ("2", 0)):
        done = await meanwhile(nodes, "permits", "gpu", number)
        assert (done.returncode, done.stdout) == (status, "" if status else "2 permits, 0 in use\n")


def test_nodes_that_did_not_hear_of_a_number_are_named(cluster):
    """The library would tell them on reconnect, but the command has ended by then."""
    cluster.pause(4)
    for change in (("4",), ("--reset",)):
        done = tool(cluster.urls, "permits", "gpu", *change)
        assert done.returncode == 0
        label = cluster.urls[4].removeprefix("redis://")
        assert (
            f"{label} did not answer and may have another number for gpu; repeat the command when all nodes are up"
            in done.stderr
        )


def test_a_number_set_for_a_name_that_is_unused_is_reported_and_can_be_reset(nodes):
    """The name may be misspelt."""
    stands = "The number stays set for all future clients; to remove it: redlock-async permits gpi --reset\n"
    done = tool(nodes, "permits", "gpi", "4")
    assert (done.returncode, done.stdout) == (0, "4 permits, 0 in use\n")
    assert done.stderr == f"gpi: no client uses it at the moment. {stands}"
    done = tool(nodes, "permits", "gpi")
    assert (done.returncode, done.stdout) == (0, "4 permits, 0 in use\n")
    assert done.stderr == f"gpi: no slot of it is held. {stands}"
    done = tool(nodes, "permits", "gpi", "--json")
    assert json.loads(done.stdout) == {"permits": 4, "in_use": 0, "set": True}
    done = tool(nodes, "permits", "gpi", "4", "--reset")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--reset: not allowed with argument NUMBER" in done.stderr
    done = tool(nodes, "permits", "gpi", "--reset", "--json")
    assert (done.returncode, json.loads(done.stdout)["set"]) == (0, False)
    assert done.stderr == "gpi is no longer set to 4 permits: clients may pass another number\n"
    assert tool(nodes, "run", "gpi", "--semaphore", "2", "--", "true").returncode == 0
    done = tool(nodes, "permits", "gpi", "--reset")
    assert (done.returncode, done.stdout) == (1, "2 permits, 0 in use\n")
    assert done.stderr == "no number is set for gpi: there is nothing to reset\n"


@pytest.mark.asyncio
async def test_a_number_is_reset_while_slots_are_held(nodes):
    """The message says that another number must wait until no slot is held."""
    async with Redlock(nodes) as redlock:
        await redlock.change_permits("gpu", 3)
        async with redlock.semaphore("gpu", permits=3):
            done = await meanwhile(nodes, "permits", "gpu", "--reset")
            assert (done.returncode, done.stdout) == (0, "3 permits, 1 in use\n")
            assert done.stderr.endswith("clients may pass another number as soon as no slot of it is held\n")
            done = await meanwhile(nodes, "run", "gpu", "--semaphore", "2", "--", "true")
            assert done.returncode == 2
        done = await meanwhile(nodes, "run", "gpu", "--semaphore", "2", "--", "true")
        assert done.returncode == 0


# -- release -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("arguments", "said"), [([], "--force"), (["--force"], "--yes")])
def test_release_refuses_without_force_and_does_not_ask_a_pipe(nodes, arguments, said):
    """Exit status 2, and the option to add."""
    done = tool(nodes, "release", "x", *arguments, stdin="y\n")
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


@pytest.mark.asyncio
async def test_release_by_force_cancels_the_holders_body(nodes):
    """It shows the holder; the second time the name is not held."""
    async with Redlock(nodes, owner="web-1") as redlock:
        inside = asyncio.Event()

        async def body():
            async with redlock("x"):
                inside.set()
                await asyncio.Event().wait()

        holding = asyncio.create_task(body())
        await inside.wait()
        done = await meanwhile(nodes, "release", "x", "--force", "--yes")
        assert (done.returncode, done.stdout) == (0, "")
        assert "web-1" in done.stderr
        assert done.stderr.endswith("released x\n")
        with pytest.raises(LockLost):
            await asyncio.wait_for(holding, 5)
    done = tool(nodes, "release", "x", "--force", "--yes")
    assert (done.returncode, done.stderr) == (1, "x is not held\n")


@pytest.mark.asyncio
async def test_a_latch_is_not_released(nodes):
    """The message explains latches; a lock of the same name is released anyway."""
    async with Redlock(nodes) as redlock:
        await redlock.latch("lat", count=2).count_down("one")
        done = await meanwhile(nodes, "release", "lat", "--force", "--yes")
        assert (done.returncode, done.stdout) == (1, "")
        assert re.fullmatch(
            r"lat is a latch, which has no holder .* deleted in \d+ h\. .* another generation of the latch\n",
            done.stderr,
        )
        await redlock("lat", renew=False).acquire()
        done = await meanwhile(nodes, "release", "lat", "--force", "--yes")
        assert done.stderr.endswith("released lat\n")
        done = await meanwhile(nodes, "release", "nothing", "--force", "--yes")
        assert (done.returncode, done.stderr) == (1, "nothing is not held\n")
        assert await redlock.latch("lat", count=2).remaining() == 1


@pytest.mark.asyncio
async def test_release_asks_on_a_terminal(nodes):
    """Nothing is released without a yes, or if the name has a new holder by then."""
    async with Redlock(nodes, owner="web-1") as redlock:
        lease = await redlock("x").acquire()
        question = r"Release x\? .* \[y/N\] "

        def answered(answer, then=lambda: None):
            terminal = Terminal(nodes, ["release", "x", "--force"])
            terminal.read_until(question)
            then()
            terminal.type(answer)
            return terminal.ended(), terminal.text

        status, text = await asyncio.to_thread(answered, "\n")
        assert (status, "nothing was released" in text) == (1, True)

        loop = asyncio.get_running_loop()

        async def another():
            await lease.release()
            return await redlock("x").acquire()

        passed = []

        def hand_over():
            passed.append(asyncio.run_coroutine_threadsafe(another(), loop).result(5))

        status, text = await asyncio.to_thread(answered, "y\n", hand_over)
        assert (status, "has a new holder" in text) == (1, True)
        status, text = await asyncio.to_thread(answered, "y\n")
        assert (status, "released x" in text) == (0, True)
        await asyncio.wait_for(passed[0].wait_until_lost(), 5)


# -- status ------------------------------------------------------------------------------------------------------------


def test_status_shows_every_node(cluster):
    """Problems are below the table; JSON has all fields."""
    cluster.kill(1)
    done = tool(cluster.urls, "status")
    assert (done.returncode, done.stderr) == (0, "")
    labels = [url.removeprefix("redis://") for url in cluster.urls]
    rows = {row.split()[0]: row.split() for row in done.stdout.splitlines()[1:6]}
    assert list(rows) == labels
    assert [rows[label][1] for label in labels] == ["votes", "down", "votes", "votes", "votes"]
    assert f"  {labels[1]}: cannot be reached" in done.stdout.splitlines()
    assert done.stdout.splitlines()[-1] == "4 of 5 nodes vote, 3 are needed: 1 more may fail"
    found = json.loads(tool(cluster.urls, "status", "--json").stdout)
    assert (found["voting"], found["quorum"], found["has_quorum"]) == (4, 3, True)
    assert [node["up"] for node in found["nodes"]] == [True, False, True, True, True]


@pytest.mark.parametrize("columns", [80, 200])
def test_watch_redraws_in_place_and_leaves_the_terminal_clean(cluster, columns):
    """It lists events, follows the window's size, and ends on any signal."""
    terminal = Terminal(cluster.urls, ["status", "--watch", "--interval", "0.1"], columns)
    terminal.read_until(r"5 of 5 nodes vote, 3 are needed: 2 more may fail")
    cluster.kill(0)
    terminal.read_until(r"4 of 5 nodes vote")
    terminal.read_until(r"\d\d:\d\d:\d\d  (\x1b\[\d+m)+127\.0\.0\.1:\d+ went down")
    cluster.restart(0)
    terminal.read_until(r"is quarantined for 9\.\d s: it restarted without its data|127\.0\.0\.1:\d+ is back")
    assert max(map(len, lines_of(terminal.text))) < columns
    assert ("eviction" in terminal.text) is (columns == 200)
    assert "latency history" in terminal.text
    terminal.resize(60, 10)
    terminal.text, before = "", terminal.text
    terminal.read_until(r"\x1b\[9A")  # of ten rows the last is the cursor's
    terminal.text = before + terminal.text
    terminal.process.send_signal(signal.SIGTERM)
    assert terminal.ended() == 143
    assert terminal.text.count("\x1b[?25l") == terminal.text.count("\x1b[?25h") == 1
    assert terminal.text.endswith("\x1b[?25h")


def test_suspended_it_leaves_the_shell_its_cursor(cluster):
    """Ctrl-Z shows the cursor, and `fg` draws a new frame below the shell's output."""
    terminal = Terminal([], [], 120, 40, program=["bash", "--norc", "--noprofile", "-i"])
    command = shlex.join([*PROGRAM, "status", "--watch", "--interval", "0.1"])
    terminal.type(f"PS1='$ '; export REDLOCK_NODES={','.join(cluster.urls)}; {command}\n")
    terminal.read_until("5 of 5 nodes vote")
    terminal.type("\x1a")
    terminal.read_until(r"Stopped")
    assert terminal.text.rindex(SHOW_CURSOR) > terminal.text.rindex(HIDE_CURSOR)
    terminal.text = ""
    terminal.type("fg\n")
    terminal.read_until("5 of 5 nodes vote")
    hidden = terminal.text.index(HIDE_CURSOR)
    assert not re.search(r"\x1b\[\d+A", terminal.text[hidden : terminal.text.index("5 of 5 nodes vote")])
    terminal.type("\x03")
    terminal.read_until(re.escape(SHOW_CURSOR))
    terminal.type("exit $?\n")
    assert terminal.ended() == 130


def test_watch_on_no_terminal_appends(nodes):
    """A time, the table and the verdict for each look, without escapes; with --json a line each; Ctrl-C is 130."""
    for arguments, pattern in (([], r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d$"), (["--json"], r'^\{"at": \d+')):
        process = subprocess.Popen(
            [*PROGRAM, "status", "--watch", "--interval", "0.1", *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(nodes),
        )  # fmt: skip
        with process:
            looks, text = 0, ""
            while looks < 2:
                line = process.stdout.readline()
                assert line, process.stderr.read()
                text += line
                looks += bool(re.match(pattern, line))
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=PATIENCE)
        assert (process.returncode, err) == (130, "")
        assert ESCAPE not in text


@pytest.mark.parametrize("interval", ["0", "x", "nan", "4000"])
def test_an_interval_has_bounds(interval):
    """A usage error says which."""
    done = tool(["redis://127.0.0.1:1"], "status", "--watch", "--interval", interval)
    assert done.returncode == 2
    assert "from 0.1 to 3600" in done.stderr


# -- completion --------------------------------------------------------------------------------------------------------

LINES = {
    "": set(COMMANDS),
    "--": {"--help", "--version", "--nodes"},
    "--nodes redis://10.0.0.1 ": set(COMMANDS),
    "--nodes redis://10.0.0.1 status --": {"--help", "--watch", "--interval", "--json", "--nodes"},
    "run name --w": {"--wait", "--write"},
    "sta": {"status"},
    "status --": {"--help", "--watch", "--interval", "--json", "--nodes"},
    "completion ": {"bash", "zsh", "fish"},
    "completion f": {"fish"},
}


@pytest.fixture(scope="session")
def scripts(tmp_path_factory):
    """The completions of each shell, in a file."""
    folder = tmp_path_factory.mktemp("completions")
    for shell in ("bash", "zsh", "fish"):
        (folder / shell).write_text(tool([], "completion", shell).stdout)
    return folder


def run_shell(shell, *arguments):
    """The output of that shell; skipped if it is not installed."""
    if shutil.which(shell) is None:
        pytest.skip(f"needs {shell}")
    done = subprocess.run(
        [shell, *arguments], capture_output=True, text=True, check=True, timeout=PATIENCE, stdin=subprocess.DEVNULL
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


@pytest.mark.parametrize("line", LINES)
def test_bash_completes(scripts, line):
    """As it would when TAB is pressed at the end of that line."""
    words = ["redlock-async", *line.split(" ")]
    quoted = " ".join(f"'{word}'" for word in words)
    code = (
        f"source '{scripts / 'bash'}'; COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _redlock_async; "
        "printf '%s\\n' \"${COMPREPLY[@]}\""
    )
    assert set(run_shell("bash", "--norc", "-c", code)) >= LINES[line]


@pytest.mark.parametrize("line", LINES)
def test_fish_completes(scripts, line):
    """By its own way to be asked."""
    code = f"source '{scripts / 'fish'}'; complete -C 'redlock-async {line}'"
    assert {each.split("\t")[0] for each in run_shell("fish", "--no-config", "-c", code)} >= LINES[line]


@pytest.mark.parametrize("line", LINES)
def test_zsh_completes(scripts, line):
    """On a terminal, as nothing else can ask it; twice TAB lists what there is."""
    if shutil.which("zsh") is None:
        pytest.skip("needs zsh")
    terminal = Terminal([], [], 200, 60, program=["zsh", "-f", "-i"])
    terminal.type(f"PS1='' ; autoload -Uz compinit && compinit -u -D && . {scripts / 'zsh'}; echo rea''dy\r")
    terminal.read_until(r"\Wready\r\n")
    terminal.type(f"redlock-async {line}\t\t")
    for word in LINES[line]:
        terminal.read_until(rf"(?:\s|\x1b\[J){re.escape(word)}\b")
    terminal.process.kill()
    terminal.ended()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_command_and_option_is_in_the_completions(scripts, shell):
    """In the part of each command, all that its parser takes and nothing of another's; no shell is needed for it."""
    parts = {
        "bash": r"^    {}\)\n.*?^        ;;$",
        "zsh": r"^    {}\)\n.*?^        ;;$",
        "fish": r"(?:^complete -c redlock-async -n '__fish_seen_subcommand_from {}'[^\n]*\n)+",
    }
    text = (scripts / shell).read_text()
    commands = completion.parsers(parser(COMMANDS))
    assert list(commands) == list(COMMANDS)
    for name, each in commands.items():
        assert len(re.findall(rf"\b{name}\b", text)) >= 2
        (part,) = re.findall(parts[shell].format(name), text, re.DOTALL | re.MULTILINE)
        found = set(re.findall(r"(?<= -l )[\w-]+" if shell == "fish" else r"(?<=--)\w[\w-]+", part))
        taken = {option[2:] for action in each._actions for option in action.option_strings if option[:2] == "--"}
        assert found == taken, name
    for option in ("--help", "--version", "--nodes"):
        assert (f"-l {option[2:]} " if shell == "fish" else option) in text.partition("inspect)")[0]


# -- tables ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [10, 20, 30, 60, None])
def test_a_table_fits_by_leaving_out_and_cutting_what_may_be(width):
    """The first column stays to the last."""
    columns = (Column("name", min_width=6), Column("spare", drop=2), Column("more", right=True, drop=1))
    rows = [(Span("n" * 20), Span("s" * 10), Span("1"))]
    lines = ["".join(span.text for span in line) for line in table(columns, rows, width)]
    assert lines[0].startswith("name")
    if width is not None:
        assert max(map(len, lines)) <= width
    assert ("spare" in lines[0]) is (width in {30, 60, None})


@pytest.mark.parametrize("name", ["注文:42", "🔒 lock", "e\u0301te\u0301", "한글 이름이 깁니다"])
@pytest.mark.parametrize("width", [17, 40])
def test_columns_stand_below_each_other_whatever_is_in_them(name, width):
    """Characters of two columns, of one, and of none; cut between two characters."""
    columns = (Column("name", min_width=6), Column("kind"), Column("n", right=True))
    rows = [(Span(each), Span("lock"), Span(each[:1])) for each in (name, "plain", name * 3)]
    drawn = ["".join(span.text for span in line) for line in table(columns, rows, width)]
    starts = {display_width(line[: line.rindex("lock")]) for line in drawn[1:]}
    assert starts == {display_width(drawn[0].partition("kind")[0])}
    assert {display_width(line) for line in drawn} == {display_width(drawn[0])}
    assert display_width(drawn[0]) <= width
    assert render([Span(name * 30, "red")], width, colours=False, plain=False) == truncate(name * 30, width)
    assert width - 1 <= display_width(truncate(name * 30, width)) <= width


def test_the_columns_of_a_character():
    """As wcwidth(3) has them."""
    assert [display_width(text) for text in ("abc", "注文", "🔒", "e\u0301", "\uff46", "é", "")] == [
        3,
        4,
        2,
        1,
        2,
        1,
        0,
    ]


def test_a_sparkline_shows_what_did_not_answer():
    """And is never empty where something did."""
    assert sparkline([0.0001, None, 1.0], 1.0, plain=False) == "▁x█"
    assert sparkline([0.0001, None, 1.0], 1.0, plain=True) == ".x@"
