"""The programs that prove the fences run, small, with every run of the tests."""

import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def run(program, *arguments):
    """What it prints; its whole output if it fails."""
    command = [sys.executable, "-W", "ignore", HERE / program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=110)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_no_fenced_write_is_lost_or_late():
    """With processes that are paused, killed and force-released meanwhile."""
    said = run("fences.py", "--adapter", "asyncpg", "--adapter", "sqlite3", "--writes", "500", "--calm", "0.4")
    print(said)
    assert len(re.findall(r"\d{3,} writes fenced, 0 lost, 0 after a later holder's; \d+ paused", said)) == 2


def test_writes_without_fences_are_lost():
    """The proof is able to fail: at the latest after so many faults."""
    said = run("fences.py", "--adapter", "sqlite3", "--faults", "20", "--calm", "0.2", "--unfenced")
    print(said)
    assert re.search(r"[1-9]\d* lost or late in all", said)


def test_the_shop_sells_what_it_has():
    """In every way of combining a lock and a session, with fence()."""
    said = run("shop.py", "--requests", "8", "--pieces", "3", "--only", "fenced")
    print(said)
    assert said.count("sold    3 of 3\n") == 11, said
