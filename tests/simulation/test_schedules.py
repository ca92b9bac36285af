"""A share of the schedules with a fresh seed, and every rule of the protocol broken once."""

import json
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
