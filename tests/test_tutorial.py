"""Run the program and the shell lines of docs/tutorial.md against `redlock-async up`.

Two things differ from the page. `python` and `redlock-async` come from the tests' environment, and `sleep 1`, which
gives the first process time to take the lock, is replaced by waiting for that lock.
"""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "docs" / "tutorial.md").read_text("utf-8")
TIMEOUT = 300
"""Seconds that a block may take."""

HELD = r"""
node=${REDLOCK_NODES%%,*} node=${node#redis://}
exec 3<>"/dev/tcp/${node%:*}/${node#*:}"
until printf 'EXISTS account:1\r\n' >&3 && read -r reply <&3 && [ "${reply%?}" = ":1" ]; do sleep 0.05; done
"""
"""Wait until the lock is held. A node is asked directly: on a busy machine, a lease ends before a command starts."""

STALLED = """
query='import sqlite3; exit(not sqlite3.connect("ledger.db").execute("SELECT 1 FROM redlock_fences").fetchone())'
until python -c "$query" 2>/dev/null; do sleep 0.05; done
sleep 0.3
"""
"""Wait until the first process has committed its fence and is in its blocking call, which begins 10 ms later."""


def fenced(kind):
    """Return the fenced blocks of that kind, in order."""
    return re.findall(rf"^```{kind}\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)


def shell(word):
    """Return the one shell block that contains that word."""
    (block,) = [block for block in fenced("sh") if word in block]
    return block.replace("sleep 1\n", STALLED if "--stall" in block else f"{HELD}\n")


class Desk:
    """A folder with the program, and a shell with REDLOCK_NODES set."""

    def __init__(self, folder, up):
        self.folder = folder
        self.environment = os.environ | {
            "PATH": f"{folder}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "REDLOCK_NODES": up.removeprefix("export REDLOCK_NODES=").strip(),
        }
        (self.folder / "ledger.py").write_text(self.program(), "utf-8")
        for name, command in (("python", ""), ("redlock-async", "-m redlock_async")):
            link = self.folder / name
            link.write_text(f'#!/bin/sh\nexec "{sys.executable}" {command} "$@"\n', "utf-8")
            link.chmod(0o755)

    @staticmethod
    def program():
        """Return the program from the page."""
        (program,) = fenced("python")
        return program

    def run(self, block):
        """Run those shell lines and return the lines of their stdout."""
        done = subprocess.run(
            ["bash", "-c", block],  # noqa: S607 - any bash on the PATH
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )
        return done.stdout.splitlines() + ([] if done.returncode == 0 else [done.stderr])


@pytest.fixture
def desk(embedded, tmp_path):  # noqa: ARG001 - `up` starts servers
    """The state after the first step of the page."""
    assert "redlock-async up" in shell("pip install")
    up = subprocess.Popen(
        [sys.executable, "-m", "redlock_async", "up"],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        yield Desk(tmp_path, up.stdout.readline())
    finally:
        up.send_signal(signal.SIGINT)
        up.communicate(timeout=TIMEOUT)


def test_no_deposit_is_missing(desk):
    """Step 2: two processes, fifty deposits each."""
    last = desk.run(shell("ledger.py 50"))
    assert last[-1] == "balance: 100"
    assert len(last) == 2


def test_without_the_lock_deposits_are_lost(desk):
    """The page's suggestion: replace the lock's line, and remove those of the fence."""
    program = desk.program()
    for part, count, replacement in (
        ('async with redlock("account:1", ttl=3) as lease:', 1, "if True:"),
        ("            fence(ledger, lease)\n", 2, ""),
    ):
        assert program.count(part) == count
        program = program.replace(part, replacement)
    (desk.folder / "ledger.py").write_text(program, "utf-8")
    *_, last = desk.run(shell("ledger.py 50").replace("50", "150"))
    assert int(last.removeprefix("balance: ")) < 300


def test_a_force_release_stops_the_deposit(desk):
    """Step 3: inspect the lock, release it by force; nothing is written."""
    output = desk.run(f"{shell('--slow 60')}wait")
    assert output[0] == "account:1  lock  held"
    assert output[-2].startswith("stopped: the lock on 'account:1' was lost: ")
    assert output[-1] == "balance: 0"


def test_a_late_write_is_rejected(desk):
    """Step 4: the second process writes while the first is paused; then the first write is rejected."""
    first, second, third = desk.run(shell("--stall"))
    assert first == third == "balance: 1"
    assert re.match(
        r"refused: the fence of 'account:1' is stale: its token is \d+, and a holder with the later", second
    )
