"""Votes, verdicts, validity and the restart hold: every mix of answers, not a sample."""

from itertools import combinations, combinations_with_replacement, pairwise, permutations, product

import pytest

from redlock_async._quorum import SAME_BIRTH, Tally, Verdict, held_out, majority, validity

SIZES = range(1, 8)
ANSWERS = ("granted", "refused", "failed")
LOST = {Verdict.REFUSED, Verdict.UNREACHABLE}
TTL = 10.0

every_size = pytest.mark.parametrize("nodes", SIZES)


def mixes(nodes):
    """Every number of grants, refusals and failures that so many nodes can have given so far."""
    for granted, refused, failed in product(range(nodes + 1), repeat=3):
        if granted + refused + failed <= nodes:
            yield granted, refused, failed


def completions(nodes, mix):
    """Every mix that the outstanding answers can still make of this one."""
    outstanding = nodes - sum(mix)
    for more in mixes(outstanding):
        if sum(more) == outstanding:
            yield tuple(map(sum, zip(mix, more, strict=True)))


def outcome(nodes, needed, mix):
    """What a complete vote means, by the words of DESIGN.md alone."""
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
def test_a_vote_is_decided_exactly_when_no_outstanding_answer_can_change_it(nodes):
    """Undecided while it can still go both ways, and not an answer longer."""
    for needed in range(1, nodes + 1):
        for mix in mixes(nodes):
            possible = {outcome(nodes, needed, complete) is Verdict.WON for complete in completions(nodes, mix)}
            verdict = Tally(nodes, needed, *mix).verdict
            assert (verdict is Verdict.PENDING) == (possible == {True, False}), (needed, mix)
            assert verdict is Verdict.PENDING or (verdict is Verdict.WON) in possible, (needed, mix)


@every_size
def test_an_outage_is_said_only_when_failures_alone_rule_a_quorum_out(nodes):
    """Whoever reads UNREACHABLE can blame the nodes: no way to answer by those still open would have helped."""
    for needed in range(1, nodes + 1):
        for mix in mixes(nodes):
            _, _, failed = mix
            assert (Tally(nodes, needed, *mix).verdict is Verdict.UNREACHABLE) == (nodes - failed < needed), mix


@pytest.mark.parametrize("nodes", range(1, 6))
def test_a_decided_verdict_never_changes_in_any_order_of_answers(nodes):
    """WON and UNREACHABLE stand, and a loss stays one; only REFUSED may yet turn out to be an outage."""
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
def test_the_order_of_the_answers_decides_nothing(nodes):
    """The verdict of a complete vote depends on how many of each there are."""
    for votes in combinations_with_replacement(ANSWERS, nodes):
        verdicts = set()
        for order in set(permutations(votes)):
            tally = Tally(nodes, majority(nodes))
            for answer in order:
                setattr(tally, answer, getattr(tally, answer) + 1)
            verdicts.add(tally.verdict)
        assert len(verdicts) == 1, votes


def test_an_even_split_of_four_settles_before_anybody_else_answers():
    """2 against 2 is lost, and so is 0 against 2 with two answers open: 3 of 4 are needed."""
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
    """One fewer and two disjoint sets exist (of an odd number, they leave one node over)."""
    fewer = majority(nodes) - 1
    assert 2 * fewer <= nodes < 2 * majority(nodes)


# Validity


@pytest.mark.parametrize("ttl", [0.01, 0.05, 0.1, 1.0, 10.0, 30.0, 3600.0, 86400.0])
@pytest.mark.parametrize("drift", [0.0, 0.001, 0.01, 0.1, 0.5])
def test_validity_ends_before_the_fastest_node_lets_the_key_expire(ttl, drift):
    """A node whose clock runs fast by the drift factor, and rounds down to the millisecond, still holds the key."""
    expires_after = (ttl - 0.001) / (1 + drift)
    assert validity(ttl, drift) < expires_after


def test_validity_is_the_ttl_less_drift_and_two_milliseconds():
    """The published formula, in figures."""
    assert validity(10.0, 0.01) == pytest.approx(9.898)
    assert validity(10.0, 0.0) == pytest.approx(9.998)
    assert validity(0.01, 0.01) == pytest.approx(0.0079)


# Held out


def hold(ages, *, longest=TTL, late=None, strict=False, forgot=()):
    """The seconds each of these nodes is held out for."""
    return held_out(ages, majority(len(ages)), longest, late or [False] * len(ages), strict=strict, forgot=forgot)


def test_a_node_that_began_after_the_founding_is_held_out():
    """Two of three are equally young, one of them because it was down at first: the third has seen a majority."""
    assert hold([3.0, 1.0, 1.0]) == [0.0, 0.0, 0.0]
    assert hold([3.0, 1.0, 1.0], late=[False, True, True]) == [0.0, TTL - 1.0, TTL - 1.0]
    assert hold([TTL + 1, TTL, TTL], late=[False, True, True]) == [0.0, 0.0, 0.0]


@every_size
@pytest.mark.parametrize("age", [0.0, 0.5, 9.99, 10.0, 1e6])
def test_a_fresh_cluster_votes_at_once(nodes, age):
    """Where all the data is equally young nothing was lost, though the marks were made one after the other."""
    for spread in (0.0, SAME_BIRTH / 2, SAME_BIRTH * 0.99):
        ages = [age + spread * index / max(nodes - 1, 1) for index in range(nodes)]
        assert hold(ages) == [0.0] * nodes


@pytest.mark.parametrize("nodes", range(3, 8))
def test_a_node_restarted_among_old_ones_is_held_until_it_is_older_than_the_longest_ttl(nodes):
    """Exactly as long as a lease may stand that it has forgotten, wherever it is in the list."""
    for place in range(nodes):
        for tenths in range(200):
            age = tenths / 10
            ages = [1000.0 + age] * nodes
            ages[place] = age
            expected = [0.0] * nodes
            expected[place] = max(TTL - age, 0.0)
            assert hold(ages) == expected, (place, age)


@pytest.mark.parametrize("nodes", range(3, 8))
def test_a_node_restarted_within_a_young_cluster_is_held_as_well(nodes):
    """Leases were granted since the cluster began, though nobody is as old as the ttl yet."""
    for others in (0.2, 1.0, 5.0, 9.9):
        for age in (0.0, others / 2, others - SAME_BIRTH * 1.01):
            ages = [others] * (nodes - 1) + [age]
            assert hold(ages) == [0.0] * (nodes - 1) + [TTL - age], ages


def test_a_young_cluster_growing_old_does_not_let_the_restarted_node_in_early():
    """The hold ends with the node's own age, whatever the others' ages pass meanwhile."""
    for tenths in range(100):
        assert hold([5 + tenths / 10] * 4 + [tenths / 10])[4] == pytest.approx(TTL - tenths / 10)
    assert hold([15.0] * 4 + [10.0])[4] == 0.0


@pytest.mark.parametrize("nodes", range(3, 8))
def test_a_node_that_is_not_known_is_taken_for_old(nodes):
    """While others are still connecting, one that came up empty does not vote on the guess that they are new too."""
    for unknown in range(1, majority(nodes)):
        old = majority(nodes) - unknown
        rest = nodes - unknown - old
        if rest > 0:
            ages = [None] * unknown + [50.0] * old + [1.0] * rest
            assert hold(ages) == [0.0] * (unknown + old) + [TTL - 1.0] * rest, ages


def test_where_a_majority_is_not_known_the_oldest_known_is_the_measure():
    """No quorum can vote then, but the ages that are known must not all look equally new."""
    assert hold([None, None, None, 50.0, 1.0]) == [0.0, 0.0, 0.0, 0.0, 9.0]
    assert hold([None, None, None, None, 1.0]) == [0.0] * 5
    assert hold([None] * 5) == [0.0] * 5


@pytest.mark.parametrize("nodes", range(3, 8))
def test_a_majority_that_lost_its_data_together_counts_as_a_fresh_cluster(nodes):
    """Nothing tells the two apart from here; strict_restart is for those who would rather wait."""
    young = majority(nodes)
    ages = [1000.0] * (nodes - young) + [1.0] * young
    assert hold(ages) == [0.0] * nodes
    assert hold(ages, strict=True) == [0.0] * (nodes - young) + [9.0] * young


@every_size
def test_strict_holds_every_young_node_and_no_other(nodes):
    """Even a wholly fresh cluster waits one ttl out; a node we know nothing of cannot be measured."""
    for ages in combinations_with_replacement((0.0, 3.0, 9.9, 10.0, 11.0, None), nodes):
        expected = [0.0 if age is None or age >= TTL else TTL - age for age in ages]
        assert hold(ages, strict=True) == expected


# Around each limit: born together and not, older and younger than the ttl; no two exactly SAME_BIRTH apart.
SLACK = SAME_BIRTH
AGES = (0.0, SLACK * 0.8, SLACK * 1.3, 1.0, 5.0, TTL - SLACK * 1.5, TTL - SLACK * 0.6, TTL, 50.0, None)


@pytest.mark.parametrize("nodes", range(1, 6))
def test_no_node_is_trusted_that_may_have_forgotten_a_lease(nodes):
    """Held exactly when younger than the longest ttl, and a majority is older by more than marking takes."""
    for ages in combinations_with_replacement(AGES, nodes):
        if sum(age is None for age in ages) >= majority(nodes):
            continue
        for age, held in zip(ages, hold(ages), strict=True):
            older = 0 if age is None else sum(other is None or other - age > SAME_BIRTH for other in ages)
            forgotten = age is not None and age < TTL and older >= majority(nodes)
            assert held == (TTL - age if forgotten else 0.0), ages


@pytest.mark.parametrize("nodes", range(1, 6))
def test_a_quorum_can_always_vote_in_a_cluster_that_is_known(nodes):
    """At most N - Q are held out, so the hold costs fault tolerance and never all of the service."""
    for ages in combinations_with_replacement([age for age in AGES if age is not None], nodes):
        assert sum(seconds > 0 for seconds in hold(ages)) <= nodes - majority(nodes), ages


def test_the_order_of_the_nodes_decides_nothing():
    """Each node's hold moves with it."""
    for ages in product(AGES, repeat=3):
        expected = hold(ages)
        for order in permutations(range(3)):
            assert hold([ages[index] for index in order]) == [expected[index] for index in order], ages


@pytest.mark.parametrize("longest", [0.01, 1.0, 10.0, 3600.0])
def test_the_hold_is_as_long_as_the_longest_ttl_and_no_longer(longest):
    """Raising the longest ttl lengthens the hold by as much."""
    assert hold([1e6, 1e6, 0.0], longest=longest) == [0.0, 0.0, longest]
    assert hold([1e6, 1e6, longest], longest=longest) == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("nodes", range(1, 6))
def test_a_node_that_was_seen_to_forget_is_held_however_young_the_cluster(nodes):
    """Every set of them: a minority is held besides all that would be held anyway, a majority changes nothing."""
    for ages in combinations_with_replacement((0.0, 0.5, 9.0, 11.0, None), nodes):
        usual = hold(ages)
        for forgot in product((False, True), repeat=nodes):
            expected = list(usual)
            if sum(forgot) < majority(nodes):
                for index, age in enumerate(ages):
                    if forgot[index] and age is not None and age < TTL:
                        expected[index] = TTL - age
            assert hold(ages, forgot=forgot) == expected, (ages, forgot)


def test_two_of_four_that_were_seen_to_forget_do_not_elect_a_second_holder():
    """Half is no majority: with the other two they would be a quorum that shares too little with the old one."""
    assert hold([50.0, 50.0, 1.0, 1.0], forgot=[False, False, True, True]) == [0.0, 0.0, 9.0, 9.0]
