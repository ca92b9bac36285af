"""`acquire`, `renew`, `holds` and `release` with a ticket: a lease that outlives the process that took it."""

import asyncio
import contextlib
import json
import os
import re
import shlex
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from redlock_async import Redlock

pytestmark = pytest.mark.redis

PROGRAM = [sys.executable, "-m", "redlock_async"]
PATIENCE = 120


def environment(urls, **more):
    """The caller's, without settings of its own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("REDLOCK_")}
    return {**kept, "REDLOCK_NODES": ",".join(urls), **more}


def tool(urls, *arguments, stdin="", **more):
    """Run it to its end, in which there is no traceback."""
    done = subprocess.run(
        [*PROGRAM, *arguments], input=stdin, capture_output=True, text=True, check=False, timeout=PATIENCE,
        env=environment(urls, **more),
    )  # fmt: skip
    assert "Traceback" not in done.stderr, done.stderr
    return done


def shell(urls, script, cwd, **more):
    """Run a script in a shell in which `redlock-async` is this program."""
    program = " ".join(map(shlex.quote, PROGRAM))
    return subprocess.run(
        ["/bin/bash", "-c", f'redlock-async() {{ {program} "$@"; }}\n{script}'],
        capture_output=True, text=True, check=False, timeout=PATIENCE, cwd=cwd,
        env=environment(urls, PYTHONPATH=str(Path(__file__).parents[2]), **more),
    )  # fmt: skip


@pytest.fixture
def ticket(tmp_path):
    """The path of a ticket file that does not exist yet."""
    return tmp_path / "ticket"


def remaining_ms(eyes, name):
    """The time to live of the key on each node, in ms."""
    return [client.pttl(name) for client in eyes.clients]


# -- a lease over several processes ------------------------------------------------------------------------------------


def test_a_lease_goes_from_process_to_process(nodes, eyes, ticket):
    """Every command is a process of its own, and the lease is held between them."""
    taken = tool(nodes, "acquire", "deploy", "--ttl", "30s", "--ticket-file", ticket)
    assert (taken.returncode, taken.stdout, taken.stderr) == (0, "", "")
    assert max(remaining_ms(eyes, "deploy")) <= 30_000
    holds = tool(nodes, "holds", "--ticket-file", ticket)
    assert holds.returncode == 0
    assert 5 < int(holds.stdout) < 30
    assert tool(nodes, "renew", "--ticket-file", ticket, "--ttl", "10m").returncode == 0
    assert 300_000 < min(remaining_ms(eyes, "deploy")) <= 600_000
    assert 300 < int(tool(nodes, "holds", "--ticket-file", ticket).stdout) < 600
    released = tool(nodes, "release", "--ticket-file", ticket)
    assert (released.returncode, released.stdout, released.stderr) == (0, "", "")
    assert eyes.keys() == []
    assert not ticket.exists()


KINDS = {
    "plain": (),
    "fair": ("--fair",),
    "read": ("--read",),
    "write": ("--write",),
    "semaphore": ("--semaphore", "3", "--count", "2"),
}


@pytest.mark.share(5)
@pytest.mark.parametrize("options", KINDS.values(), ids=KINDS)
def test_every_kind_of_lock_has_tickets(nodes, ticket, options):
    """A ticket says which kind it is of, so that the later commands need no options."""
    assert tool(nodes, "acquire", "deploy", "--ttl", "30s", "--ticket-file", ticket, *options).returncode == 0
    assert tool(nodes, "renew", "--ticket-file", ticket, "--ttl", "300").returncode == 0
    assert 100 < int(tool(nodes, "holds", "--ticket-file", ticket).stdout) < 300
    assert tool(nodes, "release", "--ticket-file", ticket).returncode == 0
    assert tool(nodes, "inspect", "deploy").returncode == 1


def test_renewing_never_shortens(nodes, eyes, ticket):
    """Nor does it forget for how long the lease is held: `holds` reads that from the nodes."""
    tool(nodes, "acquire", "deploy", "--ttl", "10m", "--ticket-file", ticket)
    assert tool(nodes, "renew", "--ticket-file", ticket, "--ttl", "5s").returncode == 0
    assert min(remaining_ms(eyes, "deploy")) > 300_000


@pytest.mark.thorough
def test_renewing_without_a_ttl_takes_that_of_the_ticket(nodes, eyes, ticket):
    """What the lease was acquired with."""
    tool(nodes, "acquire", "deploy", "--ttl", "100s", "--ticket-file", ticket)
    for client in eyes.clients:
        client.pexpire("deploy", 50_000)
    assert tool(nodes, "renew", "--ticket-file", ticket).returncode == 0
    assert min(remaining_ms(eyes, "deploy")) > 60_000


def test_a_renewed_lease_has_the_requested_ttl_in_the_library_too(nodes):
    """A ticket is what `attach` reads: its first `extend` sets the deadline, also one that is shorter."""
    text = tool(nodes, "acquire", "deploy", "--ttl", "10m").stdout.strip()

    async def extended():
        async with Redlock(nodes) as redlock:
            lease = redlock.attach(text)
            assert not lease.valid
            await lease.extend(20)
            left = lease.remaining
            await lease.release()
            return left

    assert asyncio.run(extended()) <= 20


def test_a_copy_of_the_ticket_stays_valid_when_another_is_used(nodes):
    """The ticket has no deadline that could be out of date, so a job can keep it in a variable."""
    text = tool(nodes, "acquire", "deploy", "--ttl", "20s").stdout.strip()
    assert tool(nodes, "renew", "--ttl", "5m", REDLOCK_TICKET=text).returncode == 0
    assert int(tool(nodes, "holds", stdin=text).stdout) > 100
    assert tool(nodes, "release", stdin=text + "\n").returncode == 0


# -- the exit statuses -------------------------------------------------------------------------------------------------


def test_a_busy_lock_is_75_or_what_was_asked_for(nodes, ticket):
    """Nothing is written then."""
    tool(nodes, "acquire", "deploy", "--ttl", "1m")
    busy = tool(nodes, "acquire", "deploy", "--ttl", "1m", "--wait", "0", "--ticket-file", ticket)
    assert busy.returncode == 75
    assert "held by" in busy.stderr
    quiet = tool(nodes, "acquire", "deploy", "--wait", "0", "-q", "-E", "3")
    assert (quiet.returncode, quiet.stdout, quiet.stderr) == (3, "", "")
    assert list(ticket.parent.iterdir()) == []


def test_a_lost_lease_is_70(nodes, eyes, ticket):
    """Whatever is asked about it; and the ticket of a lost lease is deleted by `release`."""
    tool(nodes, "acquire", "deploy", "--ttl", "1m", "--ticket-file", ticket)
    for client in eyes.clients[:3]:
        client.delete("deploy")
    holds = tool(nodes, "holds", "--ticket-file", ticket)
    assert (holds.returncode, holds.stdout) == (70, "")
    told = json.loads(tool(nodes, "holds", "--ticket-file", ticket, "--json").stdout)
    assert (told["held"], told["remaining"]) == (False, 0.0)
    assert tool(nodes, "renew", "--ticket-file", ticket).returncode == 70
    assert tool(nodes, "release", "--ticket-file", ticket).returncode == 70
    assert not ticket.exists()
    assert eyes.keys() == []


@pytest.mark.thorough
def test_the_lease_of_a_later_holder_is_not_ours(nodes, ticket):
    """The ticket is worth nothing once another client has the lock, and does no harm to that."""
    tool(nodes, "acquire", "deploy", "--ttl", "1m", "--ticket-file", ticket)
    tool(nodes, "release", "deploy", "--force", "--yes")
    later = tool(nodes, "acquire", "deploy", "--ttl", "1m").stdout
    for command in ("holds", "renew", "release"):
        assert tool(nodes, command, "--ticket-file", ticket).returncode == 70
    assert tool(nodes, "holds", stdin=later).returncode == 0


@pytest.mark.thorough
def test_without_a_quorum_it_is_69(cluster, ticket):
    """No command says that a lease is lost which it cannot know of, and none waits without end."""
    quick = {"REDLOCK_WAIT": "1"}
    tool(cluster.urls, "acquire", "deploy", "--ttl", "5m", "--ticket-file", ticket)
    for index in range(3):
        cluster.pause(index)
    for command in (["holds"], ["renew"], ["release"]):
        done = tool(cluster.urls, *command, "--ticket-file", ticket, **quick)
        assert done.returncode == 69, (command, done)
    assert tool(cluster.urls, "acquire", "other", "--ttl", "5m", **quick).returncode == 69
    assert ticket.exists()
    for index in range(3):
        cluster.resume(index)


@pytest.mark.thorough
def test_two_silent_nodes_do_not_matter(cluster, ticket):
    """A majority is enough for all of them."""
    for index in range(2):
        cluster.pause(index)
    for command in (["acquire", "deploy", "--ttl", "5m"], ["holds"], ["renew"], ["release"]):
        done = tool(cluster.urls, *command, "--ticket-file", ticket)
        assert done.returncode == 0, (command, done)
    for index in range(2):
        cluster.resume(index)


WRONG = [
    (["holds"], "", "no ticket given: stdin is empty"),
    (["holds"], "deploy", "does not contain a ticket"),
    (["renew", "--ticket-file", "/nowhere/ticket"], "", "cannot read the ticket file /nowhere/ticket: No such file"),
    (["acquire", "deploy", "--ticket-file", "/nowhere/ticket"], "", "cannot write the ticket file /nowhere/ticket"),
    (["acquire", "deploy", "--json"], "", "--json needs --ticket-file"),
    (["acquire", "deploy", "--count", "2"], "", "--count needs --semaphore"),
    (["acquire", "deploy", "--ttl", "3d"], "", "must be a duration such as 30, 500ms, 30s, 30m or 2h"),
    (["acquire", "deploy", "--ttl", "0"], "", "ttl must be from 0.01 seconds"),
    (["release", "--force"], "", "need the name of a lock"),
    (["release", "deploy", "--ticket-file", "t"], "", "exclude each other"),
]


@pytest.mark.share(4)
@pytest.mark.parametrize(("arguments", "stdin", "why"), WRONG)
def test_wrong_usage_is_2(nodes, eyes, arguments, stdin, why):
    """With a message that says what to do, and nothing held."""
    done = tool(nodes, *arguments, stdin=stdin)
    assert done.returncode == 2
    assert why in " ".join(done.stderr.split())
    assert eyes.keys() == []


@pytest.mark.thorough
def test_a_ticket_of_another_namespace_is_2(nodes):
    """It would otherwise look like a lost lease."""
    text = tool(nodes, "acquire", "deploy", "--ttl", "1m").stdout
    for command in ("holds", "renew", "release"):
        done = tool(nodes, command, stdin=text, REDLOCK_NAMESPACE="other:")
        assert done.returncode == 2
        assert "namespace" in done.stderr


# -- the ticket file ---------------------------------------------------------------------------------------------------


def test_the_file_is_readable_by_its_owner_only(nodes, ticket):
    """Whatever the umask, and also if an empty file was there with another mode."""
    ticket.touch(mode=0o666)
    script = f"umask 0; redlock-async acquire deploy --ttl 1m --ticket-file {shlex.quote(str(ticket))}"
    assert shell(nodes, script, ticket.parent).returncode == 0
    assert stat.S_IMODE(ticket.stat().st_mode) == 0o600
    assert [path.name for path in ticket.parent.iterdir()] == ["ticket"]


@pytest.mark.thorough
def test_a_ticket_that_may_be_needed_is_not_overwritten(nodes, eyes, ticket):
    """The old ticket of the same lock may be: its lease is over when the lock is acquired again."""
    tool(nodes, "acquire", "deploy", "--ttl", "1m", "--ticket-file", ticket)
    before = ticket.read_text()
    other = tool(nodes, "acquire", "migrate", "--ttl", "1m", "--ticket-file", ticket)
    assert other.returncode == 2
    assert "is not empty" in other.stderr
    assert tool(nodes, "acquire", "deploy", "--wait", "0", "--ticket-file", ticket).returncode == 75
    assert ticket.read_text() == before
    tool(nodes, "release", "deploy", "--force", "--yes")
    assert tool(nodes, "acquire", "deploy", "--ttl", "1m", "--ticket-file", ticket).returncode == 0
    assert ticket.read_text() != before
    assert tool(nodes, "release", "--ticket-file", ticket).returncode == 0
    assert eyes.keys() == []


def test_a_lock_whose_ticket_cannot_be_written_is_not_held(nodes, eyes):
    """/dev/full accepts no byte, and stdout may be closed."""
    for redirection in ("> /dev/full", ">&-"):
        done = shell(nodes, f"redlock-async acquire deploy --ttl 1m {redirection}", "/")
        assert done.returncode not in {0, 75}, done
        assert eyes.keys() == []
    assert shell(nodes, "redlock-async acquire deploy --ttl 1m --ticket-file /dev/full", "/").returncode == 2
    assert eyes.keys() == []


# -- shells ------------------------------------------------------------------------------------------------------------


def test_export_sets_the_variables_of_a_shell(nodes, tmp_path):
    """The fencing token too, which a script passes to the resource."""
    script = """
        eval "$(redlock-async acquire deploy --ttl 1m --export)" || exit 9
        echo "fence $REDLOCK_FENCING_TOKEN"
        redlock-async holds && redlock-async release && redlock-async holds
    """
    done = shell(nodes, script, tmp_path)
    assert done.returncode == 70, done
    assert re.match(r"fence \d{16}\n\d+\n$", done.stdout)


@pytest.mark.share(3)
@pytest.mark.parametrize(("options", "status"), [("--wait 0", 75), ("--wiat 0", 2), ("--wait 0 -E 4", 4)])
def test_eval_fails_if_the_lock_was_not_acquired(nodes, tmp_path, options, status):
    """`eval ""` would succeed, and the script would go on without the lock."""
    tool(nodes, "acquire", "deploy", "--ttl", "1m")
    script = f'set -e; eval "$(redlock-async acquire deploy --ttl 1m {options} --export)"; echo went on'
    done = shell(nodes, script, tmp_path)
    assert (done.returncode, done.stdout) == (status, "")


# -- secrecy -----------------------------------------------------------------------------------------------------------


def seen_by_others(secret):
    """Whether every user of the machine can read the text in the list of processes."""
    listed = ""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has ended since
            listed += path.read_text(errors="replace")
    return secret in listed


@pytest.mark.share(5)
@pytest.mark.parametrize("command", [["holds"], ["renew"], ["release"], ["inspect"], ["run", "x"]])
def test_a_ticket_is_no_argument(nodes, command):
    """It is not even used, so that nobody gets used to it; and no message repeats it."""
    text = tool(nodes, "acquire", "deploy", "--ttl", "1m").stdout.strip()
    for words in ([text], [f"--ticket={text}"], ["--ticket-file", text]):
        done = tool(nodes, *command, *words)
        assert done.returncode == 2
        assert "a ticket must not be an argument" in done.stderr
        assert text[-40:] not in done.stderr + done.stdout


def test_no_command_shows_the_ticket(nodes, ticket):
    """Neither in the list of processes while it runs, nor in what it prints, nor in JSON."""
    taken = tool(nodes, "acquire", "deploy", "--ttl", "1m", "--ticket-file", ticket, "--json")
    assert set(json.loads(taken.stdout)) == {"name", "fencing_token", "remaining"}
    secret = ticket.read_text().strip()
    assert secret.startswith("redlock1.")
    shown = taken.stdout + taken.stderr
    for command in (["holds", "--json"], ["holds"], ["renew"], ["release"], ["holds"]):
        with subprocess.Popen(
            [*PROGRAM, *command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=environment(nodes, REDLOCK_TICKET=secret, PYTHONASYNCIODEBUG="1"),
        ) as running:  # fmt: skip
            while running.poll() is None:
                assert not seen_by_others(secret[20:60])
                time.sleep(0.02)
            shown += "".join(running.communicate())
    assert "redlock1." not in shown
    token = re.compile(r"[0-9a-f]{32}")
    assert not token.search(shown), "the token of the lock is the secret part of the ticket"


# -- kills -------------------------------------------------------------------------------------------------------------


def test_a_signal_while_waiting_leaves_nothing(nodes, eyes, ticket):
    """SIGTERM and Ctrl-C end the wait; the file of another ticket stays."""
    tool(nodes, "acquire", "deploy", "--ttl", "1m", "--ticket-file", ticket)
    before = eyes.holding("deploy")
    for number in (signal.SIGTERM, signal.SIGINT):
        with subprocess.Popen(
            [*PROGRAM, "acquire", "deploy", "--wait", "forever", "--ticket-file", str(ticket) + "2"],
            env=environment(nodes), stderr=subprocess.PIPE, text=True,
        ) as waiting:  # fmt: skip
            give_up_at = time.monotonic() + PATIENCE
            while not any(path.name.startswith(".ticket2") for path in ticket.parent.iterdir()):
                assert time.monotonic() < give_up_at
                time.sleep(0.01)
            time.sleep(0.2)  # it is in the middle of something, whatever that is
            waiting.send_signal(number)
            assert waiting.wait(PATIENCE) == 128 + number
            assert "Traceback" not in waiting.stderr.read()
    assert [path.name for path in ticket.parent.iterdir()] == ["ticket"]
    assert eyes.holding("deploy") == before


@pytest.mark.thorough
@pytest.mark.parametrize("delay", [0.0, 1.0])
def test_kill_9_at_any_time_leaves_no_key_after_the_ttl(nodes, eyes, tmp_path, delay):
    """Whichever command is killed, and however far it has come, all its keys expire within ttl and takeover delay."""
    ttl, longest, begun = 2.0, 0, time.monotonic()
    assert tool(nodes, "release", stdin=tool(nodes, "acquire", "deploy", "--ttl", "9").stdout).returncode == 0
    whole = (time.monotonic() - begun) / 2
    for number, pause in enumerate(whole * share for share in (0.7, 0.85, 0.95, 1.05, 2.0)):
        name, ticket = f"deploy{number}", ["--ticket-file", str(tmp_path / f"ticket{number}")]
        acquire = ["acquire", name, "--ttl", str(ttl), "--takeover-delay", str(delay), *ticket]
        for command in (acquire, ["renew", *ticket], ["release", *ticket]):
            with subprocess.Popen(
                [*PROGRAM, *command], env=environment(nodes), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            ) as killed:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    killed.wait(pause)
                killed.kill()
            longest = max(longest, *remaining_ms(eyes, name))
    assert ttl * 500 < longest <= (ttl + delay) * 1000, "some command came so far that keys were stored"
    last = time.monotonic()
    while eyes.keys():
        assert time.monotonic() < last + ttl + delay + 0.5, eyes.keys()
        time.sleep(0.02)


def test_kill_9_of_the_shell_frees_the_name_after_ttl_and_delay(nodes, eyes, tmp_path):
    """Between `acquire` and the next command nothing runs that could renew or release."""
    ttl, delay = 1.0, 1.0
    acquire = shlex.join([*PROGRAM, "acquire", "deploy", "--ttl", "1s", "--takeover-delay", "1s", "--ticket-file", "t"])
    with subprocess.Popen(
        ["/bin/bash", "-c", f"{acquire} || exit; echo acquired; sleep 60"], cwd=tmp_path, stdout=subprocess.PIPE,
        env=environment(nodes, PYTHONPATH=str(Path(__file__).parents[2])), start_new_session=True,
    ) as running:  # fmt: skip
        assert running.stdout.readline() == b"acquired\n"
        os.killpg(running.pid, signal.SIGKILL)
        assert running.wait(PATIENCE) == -signal.SIGKILL
    killed, left = time.monotonic(), max(remaining_ms(eyes, "deploy")) / 1000
    assert 0 < left <= ttl + delay
    next_ = tool(nodes, "acquire", "deploy", "--wait", "30s", "--ttl", "1m")
    assert next_.returncode == 0
    assert time.monotonic() - killed > left - 0.2, "the takeover delay was over too early"
    for command in ("holds", "renew", "release"):
        assert tool(nodes, command, "--ticket-file", tmp_path / "t").returncode == 70
    assert tool(nodes, "release", stdin=next_.stdout).returncode == 0
    assert eyes.keys() == []
