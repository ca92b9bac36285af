"""docs/tutorial.md does what it says: its program and its shell lines are run, against `redlock-async up`.

Two things are other than on the page. `python` and `redlock-async` are those of the tests; and `sleep 1`, which gives
the first process time to take the lock, waits until it has it.
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
PATIENCE = 60.0
"""Seconds that a block may take."""

HELD = "until redlock-async inspect account:1 >/dev/null 2>&1; do sleep 0.05; done"


def fenced(kind):
    """The blocks of that kind, in their order."""
    return re.findall(rf"^```{kind}\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)


def shell(word):
    """The one block of shell lines with that word in it."""
    (block,) = [block for block in fenced("sh") if word in block]
    return block.replace("sleep 1\n", f"{HELD}\n")


class Desk:
    """A folder with the program in it, and a shell there that knows the masters."""

    def __init__(self, folder, up):
        self.folder = folder
        self.environment = os.environ | {
            "PATH": f"{folder}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "REDLOCK_NODES": up.removeprefix("REDLOCK_NODES=").strip(),
        }
        (self.folder / "ledger.py").write_text(self.program(), "utf-8")
        for name, command in (("python", ""), ("redlock-async", "-m redlock_async")):
            link = self.folder / name
            link.write_text(f'#!/bin/sh\nexec "{sys.executable}" {command} "$@"\n', "utf-8")
            link.chmod(0o755)

    @staticmethod
    def program():
        """As on the page."""
        (program,) = fenced("python")
        return program

    def run(self, block):
        """What those lines print on stdout, by line."""
        done = subprocess.run(
            ["bash", "-c", block],  # noqa: S607 - whichever there is
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        return done.stdout.splitlines() + ([] if done.returncode == 0 else [done.stderr])


@pytest.fixture
def desk(embedded, tmp_path):  # noqa: ARG001 - `up` starts servers
    """After the first step of the page."""
    assert "redlock-async up" in shell("pip install")
    masters = subprocess.Popen(
        [sys.executable, "-m", "redlock_async", "up"],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        yield Desk(tmp_path, masters.stdout.readline())
    finally:
        masters.send_signal(signal.SIGINT)
        masters.communicate(timeout=PATIENCE)


def test_no_deposit_is_missing(desk):
    """Step 2: two processes, fifty deposits each."""
    last = desk.run(shell("ledger.py 50"))
    assert last[-1] == "balance: 100"
    assert len(last) == 2


def test_without_the_lock_deposits_are_lost(desk):
    """As the page proposes: the lock's line and the fencing token replaced."""
    program = desk.program()
    for part, instead in (
        ('async with redlock("account:1", ttl=3) as lease:', "if True:"),
        ("lease.fencing_token", "0"),
    ):
        assert program.count(part) == 1
        program = program.replace(part, instead)
    (desk.folder / "ledger.py").write_text(program, "utf-8")
    *_, last = desk.run(shell("ledger.py 50").replace("50", "150"))
    assert int(last.removeprefix("balance: ")) < 300


def test_a_lock_that_is_taken_away_stops_the_deposit(desk):
    """Step 3: inspected, released by force, not written."""
    said = desk.run(f"{shell('--slow 60')}wait")
    assert said[0] == "account:1  lock  held"
    assert said[-2].startswith("stopped: the lock on 'account:1' was lost: ")
    assert said[-1] == "balance: 0"


def test_a_late_write_is_refused(desk):
    """Step 4: the second process writes while the first is stopped, which is then refused."""
    first, second, third = desk.run(shell("--stall"))
    assert first == third == "balance: 1"
    assert re.fullmatch(r"refused: fence \d+: a later holder has written", second)
