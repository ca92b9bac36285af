"""A share of the schedules with a fresh seed, and every rule of the protocol broken once."""

import json
import subprocess
import sys
from dataclasses import replace

import explore
import mutants
import pytest
import schedules

SECONDS = 12
"""For all the schedules together."""

AIM = 7
"""The seed that the hunt for mutants begins with here: a fixed one, so that it takes as long each time."""


def test_no_promise_is_broken_in_random_schedules(seed):
    """Exclusion, fences, orphans, bodies, liveness: processes, masters and network are hurt at random."""
    found = explore.explore(explore.MIX, seed, 10**9, seconds=SECONDS)
    print(
        f"{found.schedules} schedules from seed {seed}, {found.schedules / found.seconds:.0f}/s, {found.leases} leases"
    )
    assert not found.failures, "\n".join(
        f"python tests/simulation/explore.py --only --family {family!r} --seed {which}: {violations[0]}"
        for family, which, violations in found.failures
    )
    assert all(found.families[family] for family in schedules.FAMILIES)
    assert found.lost > 0, "no lease was ever lost: the faults do not bite"


@pytest.fixture(scope="module")
def hunted():
    """How each mutant fared: first against the schedule that is known to catch it."""
    known = json.loads(explore.CAUGHT.read_text())
    return {name: found for name, found, _ in explore.hunt(AIM, seconds=60, known=known)}


@pytest.mark.parametrize("name", sorted(mutants.MUTANTS))
def test_a_broken_rule_is_noticed(name, hunted):
    """The judge sees what comes of it."""
    found = hunted[name]
    print(f"{name}: after {found.schedules} schedules")
    assert found.failures, f"{name} survived {found.schedules} schedules"


def test_a_failing_schedule_is_made_smaller():
    """Until nothing can be left out that the failure needs."""
    explorer = explore.Explorer()
    with mutants.broken("quorum_one_too_small"):
        (family, seed, _), *_ = explorer.explore(["mixed"], range(1000), stop_at_first=True).failures
        whole = explore.schedule_of(family, seed)
        smaller = explorer.smallest_failure(family, seed)
        assert explorer.outcome(smaller).violations
    assert size(smaller) < size(whole)
    assert not explorer.outcome(smaller).violations, "unbroken, it holds"


def test_the_program_says_what_it_found_as_it_finds_it(tmp_path):
    """As words and as figures; it fails when there was a violation."""
    figures = tmp_path / "figures.json"
    program = [sys.executable, explore.__file__, "--family", "one", "--schedules", "700", "--seed", "3"]
    done = subprocess.run([*program, "--json", str(figures)], capture_output=True, text=True, check=True)
    found = json.loads(figures.read_text())["schedules"]
    assert (found["schedules"], found["families"], found["failures"]) == (700, {"one": 700}, [])
    assert f"700 schedules, {found['leases']} leases" in done.stdout
    assert done.stderr.endswith("  700 schedules, 0 with violations\n")


def test_a_failure_is_told_once(capsys):
    """When the portion is over in which it was found."""
    progress, found = explore.Progress(1000), explore.Found(schedules=500, failures=[("one", 7, ["two holders"])])
    progress(found)
    found.schedules = 1000
    progress(found)
    assert capsys.readouterr().out == "  --family 'one' --seed 7 --only: two holders\n"


def size(schedule):
    """Of how many parts it consists."""
    return sum(map(len, schedule.jobs)) + len(schedule.faults) + bool(schedule.tail) + bool(schedule.skew)


def test_a_schedule_runs_alike_every_time():
    """Also when another one ran before it."""
    explorer, schedule = explore.Explorer(), schedules.mixed(5)
    first = schedules.Run(schedule, explorer._clients)
    first.outcome()
    explorer.outcome(replace(schedule, seed=6))
    second = schedules.Run(schedule, explorer._clients)
    second.outcome()
    assert list(first.recorder.holds()) == list(second.recorder.holds())
    assert list(first.recorder.holds())
