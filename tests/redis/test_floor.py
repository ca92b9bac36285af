"""The library's distance from the theoretical minimum, and the benchmarks that measure it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.redis

ROOT = Path(__file__).parents[2]
LEAST = 0.5


def benchmarks(nodes, *options):
    """The JSON of `python -m benchmarks` on those nodes."""
    command = [sys.executable, "-m", "benchmarks", "--json", "--no-install", "--cluster", ",".join(nodes), *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_hundred_tasks_reach_half_the_floor(nodes):
    """Fenced, on a hundred names: alternating within one run, so that a slow machine is slow for both."""
    told = benchmarks(
        nodes, "--scenario=tasks-100", "--contender=floor", "--contender=ours", "--seconds=0.25", "--rounds=7"
    )
    rates = {result["contender"]: result["figures"]["rate"] for result in told["results"]}
    ratio = rates["ours"]["times_floor"]
    shown = f"{rates['ours']['median']:,.0f} of {rates['floor']['median']:,.0f} pairs/s: {ratio:.2f} x the floor"
    print(shown)
    assert ratio >= LEAST, shown


def test_every_contender_is_in_every_scenario_or_named_as_missing(nodes):
    """On masters that are given: those that need their own are missing, with the way to have them."""
    scenarios = ("one", "block", "tasks-10", "hot", "handover", "nodes-3")
    told = benchmarks(nodes, "--seconds=0.05", "--rounds=1", *(f"--scenario={name}" for name in scenarios))
    results = {(result["scenario"], result["contender"]): result for result in told["results"]}
    everywhere = {result["contender"] for result in told["results"]}
    assert {"floor", "ours", "floor-plain", "ours-plain", "redis-py", "aioredlock"} <= everywhere
    assert {name for name, _ in results} == set(scenarios)
    for (scenario, contender), result in results.items():
        if contender in HERE and scenario != "nodes-3" and (scenario, contender) not in NO_BLOCK:
            assert result["missing"] is None, result
        if scenario == "nodes-3":
            assert "--cluster embedded" in result["missing"]
        assert bool(result["rounds"]) is (result["missing"] is None), result


HERE = {"floor", "ours", "floor-plain", "ours-plain", "redis-py"}
NO_BLOCK = {("block", "floor"), ("block", "floor-plain"), ("block", "redis-py")}


def test_a_cluster_that_does_not_answer_is_named():
    """Rather than a traceback, or a run without end."""
    command = [sys.executable, "-m", "benchmarks", "--cluster=redis://127.0.0.1:1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 1
    assert "redis://127.0.0.1:1" in done.stderr
    assert "Traceback" not in done.stderr
