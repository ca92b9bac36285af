"""One operation of a small cluster in every situation: an even share here, all of it by exhaustive.py."""

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

STRIDE = 101
"""Every how many-th situation is looked at here. A prime: in step with no dimension of them."""


@pytest.fixture(scope="module")
def explorer():
    return Explorer()


def some(action, outcomes, nodes=2, **options):
    """Situations of one fenced lock, in one order of the replies each."""
    return situations(
        (action,), ("uneven" if action == "level" else "fenced",), outcomes, nodes, every_order=False, **options
    )


def test_nothing_that_may_happen_breaks_a_promise(explorer, seed):
    """A share that differs from run to run: every situation has its turn."""
    share = everything()[seed % STRIDE :: STRIDE]
    found = explorer.explore(share)
    print(f"{found.situations} situations, {found.cases} cases, from {seed % STRIDE}")
    assert len(found.by_action) >= 10
    assert found.cases > 2 * found.situations
    assert not found.failures


def test_every_vote_of_three_masters_comes_to_what_it_must(explorer):
    """Without a cancellation, with the commonest outcomes, in every order of the replies."""
    found = explorer.explore(situations(("try",), ("fenced",), ("granted", "held", "lost"), 3, ways=()))
    assert found.situations == 3**3 * (6 + 1)
    assert not found.failures


def test_two_at_once_exclude_each_other_and_both_get_it(explorer):
    """Whichever of them each node hears first."""
    found = explorer.explore(duels(3, kinds=("uneven",), waits=(2.0,), behind=(0.0,)))
    assert found.situations == 2**3 * (6 + 1)
    assert not found.failures


def test_a_cancellation_comes_after_every_step(explorer):
    """At as many steps as there are, in four ways; each of them ends the operation."""
    healthy = Situation("enter", "fenced", ("granted",) * 3, (0, 1, 2))
    steps, violations = explorer.once(healthy)
    assert steps > 6
    assert not violations
    cases = list(healthy.cancellations(steps))
    assert len(cases) == 4 * steps
    assert not any(explorer.once(healthy, way, at)[1] for way, at in cases)


def test_the_enumeration_is_the_same_each_time():
    """And has all sizes, and both kinds."""
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
"""Rules of the protocol, the situations that show each of them, and which promise is broken without it."""


@pytest.mark.parametrize("name", CAUGHT)
def test_it_notices_when_a_rule_is_broken(explorer, name):
    """With the library as it is the same situations are among those above."""
    those, promise = CAUGHT[name]
    with broken(name):
        found = explorer.explore(those, stop_at_first=True)
    assert found.failures, f"not in {found.cases} cases"
    told = [violation for *_, violations in found.failures for violation in violations]
    assert any(violation.startswith(promise) for violation in told), told
