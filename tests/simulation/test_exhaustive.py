"""A share of the situations of exhaustive.py: one operation of a small cluster with all reactions of the nodes."""

from itertools import chain

import pytest
from exhaustive import (
    FEW,
    OF_A_HOLDER,
    Duel,
    Explorer,
    Situation,
    duels,
    everything,
    orders,
    situations,
)
from mutants import broken

STRIDE, SHORT_STRIDE = 101, 503
"""Every STRIDE-th situation is run here. They are prime, so that they are in step with no dimension."""


@pytest.fixture(scope="module")
def explorer():
    return Explorer()


def some(action, outcomes, nodes=2, **options):
    """Situations of one fenced lock, each with one order of replies."""
    return situations(
        (action,), ("uneven" if action == "level" else "fenced",), outcomes, nodes, every_order=False, **options
    )


def test_nothing_that_may_happen_breaks_a_promise(explorer, seed, thorough):
    """The share differs from run to run, so that every situation is run sometimes."""
    stride = STRIDE if thorough else SHORT_STRIDE
    found = explorer.explore(everything()[seed % stride :: stride])
    print(f"{found.situations} situations, {found.cases} cases, from {seed % stride}")
    assert len(found.by_action) >= (11 if thorough else 8)
    assert found.cases > 2 * found.situations
    assert not found.failures


def test_every_vote_of_three_nodes_comes_to_what_it_must(explorer):
    """Without cancellations, with the most common outcomes, in every order of replies."""
    found = explorer.explore(situations(("try",), ("fenced",), ("granted", "held", "lost"), 3, ways=()))
    assert found.situations == 3**3 * (6 + 1)
    assert not found.failures


def test_two_at_once_exclude_each_other_and_both_get_it(explorer):
    """In every order of the two requests at each node."""
    found = explorer.explore(duels(3, kinds=("uneven",), waits=(2.0,), behind=(0.0,)))
    assert found.situations == 2**3 * (6 + 1)
    assert not found.failures


def test_a_cancellation_comes_after_every_step(explorer):
    """Each of four ways of cancellation ends the operation at every step."""
    healthy = Situation("enter", "fenced", ("granted",) * 3, (0, 1, 2))
    steps, violations = explorer.once(healthy)
    assert steps > 6
    assert not violations
    cases = list(healthy.cancellations(steps))
    assert len(cases) == 4 * steps
    assert not any(explorer.once(healthy, way, at)[1] for way, at in cases)


def test_the_enumeration_is_the_same_each_time():
    """It contains all cluster sizes and both kinds of situation."""
    every = everything()
    assert every == everything()
    assert {len(situation.order) for situation in every} == {1, 2, 3, 5}
    assert {type(situation) for situation in every} == {Situation, Duel}
    assert orders(2) == [(0, 1), (1, 0), (0, 0)]


CAUGHT = {
    "no_release_after_a_cancellation": (some("try", ("granted",)), "orphan"),
    "release_only_to_granting_nodes": (some("try", ("granted", "reply lost"), ways=()), "orphan"),
    "undelivered_releases_are_forgotten": (some("try", ("granted", "reply lost"), ways=()), "orphan"),
    "old_connections_are_not_ended": (some("try", ("granted", "torn"), ways=()), "orphan"),
    "release_without_comparing": (some("try", ("granted", "held"), ways=()), "outcome"),
    "renewal_after_release": (some("release", ("granted",), ways=()), "orphan"),
    "quorum_one_too_small": (duels(2, kinds=("fenced",), waits=(0.0,)), "exclusion"),
    "quorum_of_those_that_answer": (some("try", FEW, 3, ways=()), "outcome"),
    "one_token_for_all": (duels(2, kinds=("fenced",)), "outcome"),
    "extension_by_a_minority": (some("extend", OF_A_HOLDER, ways=()), "outcome"),
    "extension_of_a_strangers_key": (some("extend", OF_A_HOLDER, ways=()), "outcome"),
    "fence_without_write_back": (some("level", FEW, 3, ways=()), "outcome"),
    "fence_write_back_without_owning": (some("level", FEW, 3), "outcome"),
    "turn_is_not_passed_on": (chain(some("try", ("granted", "held")), duels(2, ways=("task",))), "left"),
}
"""By mutant: the situations that catch it, and the invariant that it breaks."""


@pytest.mark.parametrize("name", CAUGHT)
def test_it_notices_when_a_rule_is_broken(explorer, name):
    """Without the mutant the same situations pass the tests above."""
    those, promise = CAUGHT[name]
    with broken(name):
        found = explorer.explore(those, stop_at_first=True)
    assert found.failures, f"not in {found.cases} cases"
    told = [violation for *_, violations in found.failures for violation in violations]
    assert any(violation.startswith(promise) for violation in told), told
