"""Votes, verdicts, validity and the quarantine: every mix of replies, not a sample."""

from itertools import combinations, combinations_with_replacement, pairwise, permutations, product

import pytest

from redlock_async._rules.lease_timing import validity
from redlock_async._rules.quorum import Tally, Verdict, majority

SIZES = range(1, 8)
ANSWERS = ("granted", "refused", "failed")
LOST = {Verdict.REFUSED, Verdict.UNREACHABLE}
TTL = 10.0

every_size = pytest.mark.parametrize("nodes", SIZES)


def mixes(nodes):
    """Yield all numbers of grants, refusals and failures that this many nodes can have replied so far."""
    for granted, refused, failed in product(range(nodes + 1), repeat=3):
        if granted + refused + failed <= nodes:
            yield granted, refused, failed


def completions(nodes, mix):
    """Yield every mix that this one can become with the outstanding replies."""
    outstanding = nodes - sum(mix)
    for more in mixes(outstanding):
        if sum(more) == outstanding:
            yield tuple(map(sum, zip(mix, more, strict=True)))


def outcome(nodes, needed, mix):
    """Return the verdict of a complete vote, derived from the text of DESIGN.md alone."""
    granted, _, failed = mix
    assert sum(mix) == nodes
    if granted >= needed:
        return Verdict.WON
    return Verdict.UNREACHABLE if nodes - failed < needed else Verdict.REFUSED


# Tally


@every_size
def test_every_complete_vote_means_what_the_design_says(nodes):
    """A quorum of grants wins; failures that leave no quorum are an outage; anything else is contention."""
    for needed in range(1, nodes + 1):
        for mix in mixes(nodes):
            if sum(mix) == nodes:
                assert Tally(nodes, needed, *mix).verdict is outcome(nodes, needed, mix), (needed, mix)


@every_size
def test_a_vote_is_decided_exactly_when_no_outstanding_reply_can_change_it(nodes):
    """Pending while it can still go both ways, and not one reply longer."""
    for needed in range(1, nodes + 1):
        for mix in mixes(nodes):
            possible = {outcome(nodes, needed, complete) is Verdict.WON for complete in completions(nodes, mix)}
            verdict = Tally(nodes, needed, *mix).verdict
            assert (verdict is Verdict.PENDING) == (possible == {True, False}), (needed, mix)
            assert verdict is Verdict.PENDING or (verdict is Verdict.WON) in possible, (needed, mix)


@every_size
def test_an_outage_is_reported_only_when_failures_alone_rule_a_quorum_out(nodes):
    """UNREACHABLE blames the nodes: no outstanding reply could have prevented it."""
    for needed in range(1, nodes + 1):
        for mix in mixes(nodes):
            _, _, failed = mix
            assert (Tally(nodes, needed, *mix).verdict is Verdict.UNREACHABLE) == (nodes - failed < needed), mix


@pytest.mark.parametrize("nodes", range(1, 6))
def test_a_decided_verdict_never_changes_in_any_order_of_replies(nodes):
    """WON and UNREACHABLE stay, and so does a loss; only REFUSED may turn out to be an outage."""
    for order in product(ANSWERS, repeat=nodes):
        tally = Tally(nodes, majority(nodes))
        seen = [tally.verdict]
        for answer in order:
            setattr(tally, answer, getattr(tally, answer) + 1)
            seen.append(tally.verdict)
        assert seen[0] is Verdict.PENDING
        assert seen[-1] is not Verdict.PENDING
        for before, after in pairwise(seen):
            if before in (Verdict.WON, Verdict.UNREACHABLE):
                assert after is before, order
            if before is Verdict.REFUSED:
                assert after in LOST, order


@pytest.mark.parametrize("nodes", range(1, 6))
def test_the_order_of_the_replies_does_not_matter(nodes):
    """The verdict of a complete vote depends on how many of each there are."""
    for votes in combinations_with_replacement(ANSWERS, nodes):
        verdicts = set()
        for order in set(permutations(votes)):
            tally = Tally(nodes, majority(nodes))
            for answer in order:
                setattr(tally, answer, getattr(tally, answer) + 1)
            verdicts.add(tally.verdict)
        assert len(verdicts) == 1, votes


def test_an_even_split_of_four_is_decided_before_another_reply():
    """2 against 2 is lost, and so is 0 against 2 with two replies outstanding: 3 of 4 are needed."""
    assert Tally(4, majority(4), granted=2, refused=2).verdict is Verdict.REFUSED
    assert Tally(4, majority(4), refused=2).verdict is Verdict.REFUSED
    assert Tally(4, majority(4), refused=1, failed=1).verdict is Verdict.REFUSED
    assert Tally(4, majority(4), failed=2).verdict is Verdict.UNREACHABLE
    assert Tally(4, majority(4), granted=2, refused=1).verdict is Verdict.PENDING


# Majorities


@every_size
def test_any_two_majorities_share_a_node(nodes):
    """Two holders would have to be elected by one node, which has one key."""
    quorums = [set(quorum) for quorum in combinations(range(nodes), majority(nodes))]
    assert all(one & other for one, other in product(quorums, repeat=2))


@every_size
def test_a_majority_is_the_smallest_number_with_that_property(nodes):
    """With one fewer, two disjoint sets exist; an odd number leaves one node over."""
    fewer = majority(nodes) - 1
    assert 2 * fewer <= nodes < 2 * majority(nodes)


# Validity


@pytest.mark.parametrize("ttl", [0.01, 0.05, 0.1, 1.0, 10.0, 30.0, 3600.0, 86400.0])
@pytest.mark.parametrize("drift", [0.0, 0.001, 0.01, 0.1, 0.5])
def test_validity_ends_before_the_fastest_node_lets_the_key_expire(ttl, drift):
    """A node whose clock is fast by the drift factor, and rounds down to a millisecond, still holds the key."""
    expires_after = (ttl - 0.001) / (1 + drift)
    assert validity(ttl, drift) < expires_after


def test_validity_is_the_ttl_less_drift_and_two_milliseconds():
    """The published formula, in figures."""
    assert validity(10.0, 0.01) == pytest.approx(9.898)
    assert validity(10.0, 0.0) == pytest.approx(9.998)
    assert validity(0.01, 0.01) == pytest.approx(0.0079)
