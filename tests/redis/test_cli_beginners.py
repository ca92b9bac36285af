"""Messages for people who use the command line for the first time."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.redis


def tool(urls, *words):
    """Run the program to its end."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("REDLOCK_")}
    return subprocess.run(
        [sys.executable, "-m", "redlock_async", *words],
        capture_output=True, text=True, check=False, timeout=120, env={**kept, "REDLOCK_NODES": ",".join(urls)},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("orders", "no lock matches 'orders'. To list names that start with it: 'orders*'\n"),
        ("order?", "no lock matches 'order?'\n"),
        ("*", "nothing is locked\n"),
    ],
)
def test_a_pattern_that_matches_nothing_does_not_claim_that_nothing_is_locked(nodes, eyes, pattern, said):
    """A name without wildcards is that name, not the beginning of others."""
    if pattern != "*":
        for client in eyes.clients:
            client.set("orders:42", "0123456789abcdef0123456789abcdef:web", px=60_000)
    done = tool(nodes, "locks", pattern)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", said)


@pytest.mark.parametrize(
    ("command", "hinted"),
    [(["echo it ran"], True), (["echo it ran", "again"], False), (["nosuchcommand"], False)],
)
def test_a_command_in_one_word_gets_a_hint(nodes, command, hinted):
    """As one quotes it for `sh -c` or `ssh`."""
    done = tool(nodes, "run", "x", "--", *command)
    assert (done.returncode, done.stdout) == (127, "")
    assert f"redlock-async: {command[0]}: No such file or directory" in done.stderr
    assert ("give the command and its arguments as separate words" in done.stderr) is hinted
