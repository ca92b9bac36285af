"""Which nodes may vote: all small cases of what nodes have recorded, and what a client hears of it."""

import math
from dataclasses import replace
from itertools import combinations, product

import pytest

from redlock_async._rules.quorum import majority
from redlock_async._rules.settings import LONGEST_TTL
from redlock_async._rules.voting import Heard, Move, Origin, Record, Standing, Why, ballots, with_moved

SHORT, LONG = 10.0, 60.0
FOUNDED = 1000.0
"""Seconds since the founding."""


def subsets(nodes, sizes):
    """All sets of nodes of these sizes."""
    return [frozenset(each) for size in sizes for each in combinations(nodes, size)]


def founded(nodes, *, ttl=SHORT):
    """The records of a cluster that has lost nothing."""
    heard = {f"old {node}": Heard(FOUNDED, Standing.FOUNDER) for node in range(nodes)}
    ids = tuple(sorted(heard))
    return [Record(f"old {node}", ttl, Origin.FOUNDED, ids, heard) for node in range(nodes)]


def forget(records, forgetful, ago, *, told):
    """Let nodes lose their data `ago` seconds before now. Nodes in `told` heard of it then, the others just now."""
    for node in forgetful:
        records[node] = Record(f"new {node}", 0.0)
    for node, record in enumerate(records):
        heard = dict(record.heard)
        for other, each in enumerate(records):
            age = ago if node in told or node in forgetful else 0.0
            heard.setdefault(each.id, Heard(age if other in forgetful or node in forgetful else FOUNDED))
        records[node] = Record(record.id, record.longest_ttl, record.origin, record.founding, heard)
    return records


def heard_by(records, hears):
    """What a client knows that hears from some of the nodes."""
    return [record if node in hears else None for node, record in enumerate(records)]


@pytest.mark.parametrize("nodes", [1, 2, 3, 4, 5])
def test_no_node_votes_that_may_have_forgotten_a_valid_lease(nodes):
    """A lease with a long ttl, all quorums that granted it, all nodes that forget it, and all that a client hears from.

    At most as many nodes forget as may fail. Some of the others were told at once, the others only now.
    """
    everyone, quorum = range(nodes), majority(nodes)
    checked = 0
    for granted, forgetful, hears in product(
        subsets(everyone, [quorum]),
        subsets(everyone, range(1, nodes - quorum + 1)),
        subsets(everyone, range(nodes + 1)),
    ):
        for ago, trusts, told, strict in product(
            (0.0, 1.1 * SHORT, 0.9 * LONG), (False, True), subsets(everyone, (0, nodes)), (False, True)
        ):
            whole = founded(nodes)
            records = [replace(each, longest_ttl=LONG) if at in granted else each for at, each in enumerate(whole)]
            records = forget(records, forgetful, ago, told=told)
            trusted = {f"old {node}" for node in everyone} if trusts else set()
            decided = ballots(heard_by(records, hears), quorum, SHORT, trusted=trusted, strict=strict)
            voted = {node for node in forgetful & granted if decided[node].counts}
            assert not voted, (granted, forgetful, hears, ago, trusts, told, strict)
            checked += 1
    assert checked > 0 or nodes < 3


@pytest.mark.parametrize("nodes", [1, 2, 3, 4, 5, 7])
def test_as_many_nodes_may_be_down_as_before(nodes):
    """All that answer vote, for a client that has just started too."""
    quorum = majority(nodes)
    for hears in subsets(range(nodes), range(quorum, nodes + 1)):
        decided = ballots(heard_by(founded(nodes), hears), quorum, SHORT)
        assert all(decided[node].counts for node in hears)
        assert not any(decided[node].counts for node in range(nodes) if node not in hears)


@pytest.mark.parametrize("nodes", [3, 5])
def test_a_node_that_forgot_votes_again_after_the_longest_ttl(nodes):
    """Not sooner, and at once when it is over. Then a client tells the others, and any quorum of them is enough."""
    quorum = majority(nodes)
    for ago in (0.0, 0.5 * LONG, 0.999 * LONG):
        decided = ballots(forget(founded(nodes, ttl=LONG), {0}, ago, told=range(nodes)), quorum, SHORT)
        assert (decided[0].why, decided[0].longest_ttl) == (Why.YOUNG, LONG)
        assert decided[0].seconds == pytest.approx(LONG - ago)
    records = forget(founded(nodes, ttl=LONG), {0}, 1.001 * LONG, told=range(nodes))
    assert all(ballot.counts for ballot in ballots(records, quorum, SHORT))
    admitted = [
        Record(each.id, LONG, Origin.JOINED, (), {other.id: Heard(0.0, Standing.ADMITTED) for other in records})
        for each in records
    ]
    for hears in subsets(range(nodes), [quorum]):
        decided = ballots(heard_by(admitted, hears), quorum, SHORT, strict=True)
        assert all(decided[node].counts for node in hears), hears


def test_a_longer_ttl_puts_out_no_node_that_votes():
    """No lease with it can be older than the data of a node that votes."""
    assert all(ballot.counts for ballot in ballots(founded(3), 2, LONGEST_TTL))
    records = forget(founded(3), {0}, 1.1 * SHORT, told=range(3))
    assert all(ballot.counts for ballot in ballots(records, 2, LONG, trusted={"new 0"}))


def test_too_few_know_the_longest_ttl():
    """Three nodes: one has forgotten, one is not heard, and the third may not have granted the lease."""
    records = forget(founded(3), {0}, 2 * LONG, told=range(3))
    (first, second, _) = ballots(heard_by(records, {0, 1}), 2, SHORT, trusted={"old 1"})
    assert (first.why, first.seconds) == (Why.UNKNOWN_TTL, LONGEST_TTL - 2 * LONG)
    assert second.counts


def test_a_ttl_that_was_never_granted_does_not_count():
    """One of five nodes reports sixty years, by mistake or malice: no quorum of the others ever knew it."""
    records = forget(founded(5), {0}, 5.0, told=range(5))
    records[1] = Record(records[1].id, 60 * 366 * 86_400.0, Origin.FOUNDED, records[1].founding, records[1].heard)
    assert ballots(records, 3, SHORT)[0].seconds == pytest.approx(SHORT - 5.0)
    assert ballots(records, 3, LONGEST_TTL * 2)[0].longest_ttl == LONGEST_TTL


@pytest.mark.parametrize("what", ["claims to be old", "claims that another is admitted"])
def test_one_node_is_not_believed(what):
    """Its clock was set, or it lies: the word of one more node than may fail is needed."""
    records = forget(founded(5), {0}, 1.0, told=range(5))
    liar = 0 if what == "claims to be old" else 1
    claim = Heard(10 * LONG) if liar == 0 else Heard(1.0, Standing.ADMITTED)
    heard = {**records[liar].heard, "new 0": claim}
    records[liar] = Record(records[liar].id, SHORT, records[liar].origin, records[liar].founding, heard)
    assert ballots(records, 3, SHORT)[0].seconds == pytest.approx(SHORT - 1.0)


@pytest.mark.parametrize("nodes", [3, 5])
def test_a_new_cluster_with_dead_nodes_waits_for_one_ttl(nodes):
    """It cannot be told from a majority that has lost its data. Those that answer begin to vote together."""
    quorum = majority(nodes)
    hears = range(quorum)
    for age in (1.0, 9.0, 10.5):
        heard = {f"new {node}": Heard(age - 0.001 * node) for node in hears}
        records = [
            Record(f"new {node}", SHORT, Origin.NONE, (), heard) if node in hears else None for node in range(nodes)
        ]
        decided = ballots(records, quorum, SHORT)[:quorum]
        assert all(ballot.counts is (age > SHORT) for ballot in decided), age
        assert all(ballot.why is Why.NEW_CLUSTER or ballot.counts for ballot in decided)


def test_an_old_record_does_not_make_a_cluster_new():
    """One node has forgotten a long lease, and the one that knows it was last heard before it had ever voted."""
    heard = {f"old {node}": Heard(FOUNDED, Standing.ADMITTED) for node in range(3)}
    knows = Record("old 0", SHORT, Origin.NONE, (), {"old 0": Heard(FOUNDED), "old 2": Heard(FOUNDED)})
    voted = Record("old 1", SHORT, Origin.JOINED, (), {**heard, "new 2": Heard(2 * SHORT)})
    forgot = Record("new 2", SHORT, Origin.NONE, (), {**heard, "new 2": Heard(2 * SHORT)})
    decided = ballots([knows, voted, forgot], 2, SHORT)
    assert decided[1].counts
    assert (decided[2].why, decided[2].seconds) == (Why.UNKNOWN_TTL, LONGEST_TTL - 2 * SHORT)
    decided = ballots([replace(knows, heard={**knows.heard, "new 2": Heard(0.0)}), voted, forgot], 2, SHORT)
    assert decided[2].counts, "if it has never voted in fact, the other two are new"


def test_a_founder_is_not_enough_when_strict():
    """Then a new cluster waits as well."""
    young = [Heard(2.0, Standing.FOUNDER), Heard(11.0, Standing.FOUNDER)]
    for heard, counts in zip(young, (False, True), strict=True):
        records = [
            Record(f"old {node}", SHORT, Origin.FOUNDED, (), {f"old {each}": heard for each in range(3)})
            for node in range(3)
        ]
        assert [ballot.counts for ballot in ballots(records, 2, SHORT, strict=True)] == [counts] * 3
        assert all(ballot.counts for ballot in ballots(records, 2, SHORT))


def test_a_failover_adds_its_grace():
    """The old primary may have granted locks for that long after its data was copied."""
    records = forget(founded(3), {0}, 1.0, told=range(3))
    records[0] = Record("new 0", 0.0, Origin.NONE, (), records[0].heard, grace=15.0)
    assert ballots(records, 2, SHORT)[0].seconds == pytest.approx(SHORT + 15.0 - 1.0)


def test_a_node_without_a_record_does_not_vote():
    """And nothing is known about how long it will take."""
    assert ballots([None, None, None], 2, SHORT)[0].seconds == math.inf
    assert ballots([Record("", 0.0)], 1, SHORT)[0].why is Why.UNKNOWN_AGE


# Slots of a cluster that came from another shard


def test_a_shard_votes_for_slots_that_came_when_all_that_the_other_lost_has_expired():
    """As if its data had the age of the move, with the time that the old primary of the other shard may have had."""
    heard = {name: Heard(1000.0, Standing.ADMITTED) for name in ("a", "b", "c")}
    records = [Record(name, 10.0, Origin.JOINED, heard=heard) for name in ("a", "b", "c")]
    assert [ballot.counts for ballot in ballots(records, 2, 10.0)] == [True] * 3
    for age, left in ((0.0, 20.0), (19.0, 1.0), (20.0, 0.0)):
        told = with_moved(records, 2, Move(7, age, ((5, 5),)))
        ballot = ballots(told, 2, 10.0, trusted={"a", "b", "c"})
        assert [each.counts for each in ballot[:2]] == [True] * 2
        assert ballot[2].seconds == pytest.approx(left)
        assert ballot[2].counts is (left == 0)


def test_a_longer_ttl_keeps_slots_that_came_back_for_as_long():
    """It is known from the other nodes, as for a node that lost its data."""
    heard = {name: Heard(1000.0, Standing.ADMITTED) for name in ("a", "b", "c")}
    records = [Record(name, 10.0, Origin.JOINED, heard=heard) for name in ("a", "b", "c")]
    records[0] = replace(records[0], longest_ttl=60.0)
    assert ballots(with_moved(records, 2, Move(7, 0.0, ((5, 5),))), 2, 10.0)[2].seconds == pytest.approx(70.0)


def test_the_only_node_decides_by_itself_about_slots_that_came():
    """No other node can say how old they are."""
    (record,) = [Record("a", 10.0, Origin.JOINED, heard={"a": Heard(1000.0, Standing.ADMITTED)})]
    for age, left in ((0.0, 20.0), (20.0, 0.0)):
        (ballot,) = ballots(with_moved([record], 0, Move(7, age, ((5, 5),))), 1, 10.0, trusted={"a"})
        assert (ballot.seconds, ballot.counts) == (pytest.approx(left), left == 0)


def test_a_node_that_is_unknown_to_the_others_does_not_vote_for_slots_that_came():
    """Nothing is believed on its word alone."""
    own = Record("c", 10.0, Origin.JOINED, heard={"c": Heard(1000.0, Standing.ADMITTED)})
    others = [Record(name, 10.0, Origin.JOINED, heard={}) for name in ("a", "b")]
    assert not ballots(with_moved([*others, own], 2, Move(7, 1000.0, ((5, 5),))), 2, 10.0)[2].counts
