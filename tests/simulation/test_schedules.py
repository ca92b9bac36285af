"""A share of the random schedules with a new seed, and all mutants."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import explore
import mutants
import pytest
from families.locks import mixed
from framework import schedules
from table import table

ROUNDS = 12
"""Schedules of each family; half as many without --thorough."""

AIM = 7
"""The first seed of the search for mutants, fixed so that it always takes equally long."""


def test_no_promise_is_broken_in_random_schedules(seed, thorough):
    """Exclusion, fencing, orphans, blocks and liveness hold while processes, nodes and network fail at random."""
    found = explore.explore(explore.MIX, seed, (ROUNDS if thorough else ROUNDS // 2) * len(explore.MIX))
    print(
        f"{found.schedules} schedules from seed {seed}, {found.schedules / found.seconds:.0f}/s, {found.leases} leases"
    )
    assert not found.failures, "\n".join(
        f"python tests/simulation/explore.py --only --family {family!r} --seed {which}: {violations[0]}"
        for family, which, violations in found.failures
    )
    assert all(found.families[family] for family in schedules.FAMILIES)
    assert found.lost > 0, "no lease was ever lost: the faults do not bite"


@pytest.mark.parametrize(
    ("family", "seed"),
    [
        ("semaphore", 30076266),  # holders of two slots, each missing on another node
        ("together", 30010954),  # the same while one's repairs were limited too soon
        ("together", 30019314),  # a forgotten script counted as a failure after the verdict
        ("copies", 30094026),  # the same with two nodes
        ("liars", 30003773),
    ],
)
def test_a_schedule_that_found_a_defect_stays_clean(family, seed):
    """These defects are rare, so a short run would not find them again."""
    outcome = explore.Explorer().outcome(explore.schedule_of(family, seed))
    assert not outcome.violations, "\n".join(map(str, outcome.violations))


@pytest.fixture(scope="module")
def hunted(request):
    """The findings for each mutant of this run, starting with the schedule that is known to catch it."""
    tests = [each for each in request.session.items if each.originalname == "test_a_broken_rule_is_noticed"]
    known = json.loads(explore.CAUGHT.read_text())
    names = [test.callspec.params["name"] for test in tests]
    return {name: found for name, found, _ in explore.hunt(AIM, names, seconds=60, known=known)}


@pytest.mark.time_limit(1200)  # the first of them waits for all, about 100 s on two idle cores
@pytest.mark.share(6)
@pytest.mark.parametrize("name", sorted(mutants.MUTANTS))
def test_a_broken_rule_is_noticed(name, hunted):
    """The check finds a violation."""
    found = hunted[name]
    print(f"{name}: after {found.schedules} schedules")
    assert found.failures, f"{name} survived {found.schedules} schedules"


def test_a_failing_schedule_is_made_smaller():
    """Shrinking stops when the failure needs everything that is left."""
    explorer = explore.Explorer()
    with mutants.broken("quorum_one_too_small"):
        (family, seed, _), *_ = explorer.explore(["mixed"], range(1000), stop_at_first=True).failures
        whole = explore.schedule_of(family, seed)
        smaller = explorer.smallest_failure(family, seed)
        assert explorer.outcome(smaller).violations
    assert size(smaller) < size(whole)
    assert not explorer.outcome(smaller).violations, "unbroken, it holds"


@pytest.mark.thorough
def test_the_program_says_what_it_found_as_it_finds_it(tmp_path):
    """It prints text and writes JSON, and fails if there was a violation."""
    figures = tmp_path / "figures.json"
    program = [sys.executable, explore.__file__, "--family", "one", "--schedules", "700", "--seed", "3"]
    done = subprocess.run([*program, "--json", str(figures)], capture_output=True, text=True, check=True)
    found = json.loads(figures.read_text())["schedules"]
    assert (found["schedules"], found["families"], found["failures"]) == (700, {"one": 700}, [])
    assert f"700 schedules, {found['leases']} leases" in done.stdout
    assert done.stderr.endswith("  700 schedules, 0 with violations\n")


def test_a_failure_is_told_once(capsys):
    """It is reported after the portion that found it."""
    progress, found = explore.Progress(1000), explore.Found(schedules=500, failures=[("one", 7, ["two holders"])])
    progress(found)
    found.schedules = 1000
    progress(found)
    assert capsys.readouterr().out == "  --family 'one' --seed 7 --only: two holders\n"


def size(schedule):
    """The number of parts of a schedule."""
    return sum(map(len, schedule.jobs)) + len(schedule.faults) + bool(schedule.tail) + bool(schedule.skew)


def test_a_schedule_runs_alike_every_time():
    """Even if another schedule ran before it."""
    explorer, schedule = explore.Explorer(), mixed(5)
    first = schedules.Run(schedule, explorer._clients)
    first.outcome()
    explorer.outcome(replace(schedule, seed=6))
    second = schedules.Run(schedule, explorer._clients)
    second.outcome()
    assert list(first.recorder.holds()) == list(second.recorder.holds())
    assert list(first.recorder.holds())


def test_the_table_of_mutants_is_up_to_date():
    """Otherwise run table.py."""
    assert (Path(__file__).parent / "MUTANTS.md").read_text("utf-8") == table()
