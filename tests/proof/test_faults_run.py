"""A short share of faults.py with a fresh seed: no violation, and a register without fencing loses updates."""

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.thorough

PROGRAM = Path(__file__).with_name("faults.py")


@pytest.mark.redis
@pytest.mark.usefixtures("embedded")
def test_nothing_is_broken_by_real_faults(tmp_path):
    """Servers, network and processes are hurt at random for some seconds; the seed is in the output."""
    seed = random.SystemRandom().randrange(10**6)
    found = tmp_path / "figures.json"
    command = [sys.executable, str(PROGRAM), "--minutes", "0.2", "--seed", str(seed), "--json", str(found)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    print(ran.stdout, ran.stderr)
    assert ran.returncode == 0, f"seed {seed}"
    figures = json.loads(found.read_text("utf-8"))
    assert figures["violations"] == []
    assert sum(figures["leases"].values()) > 100
    assert sum(figures["faults"].values()) > 0
