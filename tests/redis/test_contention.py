"""Many tasks and processes contend for one name: never two holders at once, and tokens increase with each holder."""

import json
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest


def contend(urls, processes, tasks, leases):
    """Run that many contenders at once; returns their leases, and how long it took."""
    command = [sys.executable, str(Path(__file__).with_name("contender.py")), str(tasks), str(leases), *urls]
    running = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(processes)
    ]
    try:
        for process in running:
            assert process.stdout.readline() == "ready\n"
        started = time.monotonic()
        for process in running:
            process.stdin.write("go\n")
            process.stdin.flush()
        results = [json.loads(process.communicate(timeout=100)[0]) for process in running]
        return results, time.monotonic() - started
    finally:
        for process in running:
            process.kill()
            process.communicate()


@pytest.mark.parametrize(("processes", "tasks", "leases"), [(5, 100, 4), (8, 1, 50), (2, 5, 200)])
def test_no_two_holders_and_increasing_fences(processes, tasks, leases, nodes, eyes):
    """Every lease ends before the next begins, and has a smaller fence."""
    results, seconds = contend(nodes, processes, tasks, leases)
    held = sorted(tuple(lease) for result in results for lease in result["held"])
    assert len(held) == processes * tasks * leases
    for (_, end, fence), (start, _, following) in pairwise(held):
        assert end <= start, "two holders at once"
        assert fence < following, "a later holder has a smaller fence"
    attempts = sum(result["attempts"] for result in results)
    rate = f"{len(held) / seconds:.0f} hand-overs/s, {attempts / len(held):.2f} attempts each"
    print(f"{processes} processes x {tasks} tasks: {rate}")
    assert eyes.keys() == []
