"""Whose clock was stepped: all small cases of steps, of the nodes that answer, and of false notes."""

from itertools import combinations, product

import pytest

from redlock_async._rules.clock_steps import (
    LONGEST_INTERVAL,
    RESOLUTION,
    Comparison,
    Finding,
    Note,
    Reading,
    compare,
    interval,
    noted,
    notes_to_make,
)
from redlock_async._rules.quorum import majority, minority

DRIFT = 0.01
AGE = 5.0
MINUTE = 60.0
STEADY, STEPPED, IN_DOUBT = Finding.STEADY, Finding.STEPPED, Finding.IN_DOUBT


def subsets(nodes, sizes):
    """All sets of nodes of these sizes."""
    return [frozenset(each) for size in sizes for each in combinations(nodes, size)]


def reading(node, step=0.0, took=0.001):
    """A clock that is wrong by hours, as it was before, and by a step."""
    ahead = 1e9 + 3600.0 * node + step
    return Reading(1000.0 + ahead, ahead - took / 2, ahead + took / 2)


def notes(nodes, age=AGE, error=0.001):
    """What all nodes have noted of all others that long ago, by their own clocks before any step."""
    return {
        node: {
            other: Note(reading(node).time - age, 3600.0 * (other - node), error) for other in nodes if other != node
        }
        for node in nodes
    }


def findings(steps, hears, known, voting=None):
    """What a client finds that hears from some nodes; `steps` are the seconds by node."""
    readings = {node: reading(node, steps.get(node, 0.0)) for node in hears}
    nodes = len(known)
    return compare(readings, known, voting if voting is not None else set(range(nodes)), DRIFT, minority(nodes))


@pytest.mark.parametrize("nodes", [3, 4, 5, 7])
def test_no_quorum_counts_a_stepped_clock(nodes):
    """All sets of nodes that may be stepped, by equal or different amounts, and all sets that a client hears from."""
    everyone, quorum = range(nodes), majority(nodes)
    for stepped, hears in product(subsets(everyone, range(nodes - quorum + 1)), subsets(everyone, range(1, nodes + 1))):
        for by in (MINUTE, -MINUTE, 0.2):
            for alike in (True, False):
                steps = {node: by if alike else by * (1 + number) for number, node in enumerate(sorted(stepped))}
                found = findings(steps, hears, notes(everyone))
                steady = {node for node, finding in found.findings.items() if finding is STEADY}
                if len(steady) >= quorum:
                    assert not steady & stepped, (steps, hears)
                assert not {node for node in hears - stepped if found.findings[node] is STEPPED}, (steps, hears)
                if not hears & stepped:
                    assert steady == hears
                if len(hears - stepped) >= quorum:
                    assert {node for node, each in found.findings.items() if each is STEPPED} == hears & stepped
                    for node in hears & stepped:
                        assert found.steps[node] == pytest.approx(steps[node], abs=0.1)


@pytest.mark.parametrize("nodes", [3, 4, 5])
def test_false_notes_of_a_minority_put_no_other_node_out(nodes):
    """While a quorum of honest nodes answers. Each liar notes that others were stepped, or that they were not."""
    everyone, quorum = range(nodes), majority(nodes)
    for liars in subsets(everyone, range(1, nodes - quorum + 1)):
        honest = sorted(set(everyone) - liars)
        for hears in subsets(everyone, range(quorum, nodes + 1)):
            if len(hears - liars) < quorum:
                continue
            for about in subsets(honest, range(1, len(honest) + 1)):
                known = notes(everyone)
                for liar, other in product(liars, about):
                    known[liar][other] = Note(known[liar][other].time, 7e6, 0.0)
                found = findings({}, hears, known)
                assert all(found.findings[node] is STEADY for node in hears - liars), (liars, hears, about)


def test_too_few_nodes_cannot_tell_whose_clock_was_stepped():
    """Two of three contradict each other; two of five agree, and may both have been stepped."""
    assert findings({0: MINUTE}, {0, 1}, notes(range(3))).findings == {0: IN_DOUBT, 1: IN_DOUBT}
    found = findings({0: MINUTE}, {0, 1, 2}, notes(range(5)))
    assert found.findings == {0: IN_DOUBT, 1: IN_DOUBT, 2: IN_DOUBT}
    assert found.steps[0] == pytest.approx(MINUTE, abs=0.1)


def test_a_reply_that_is_outstanding_changes_nothing_about_confirmed_nodes():
    """M others agree, among which one is right."""
    assert findings({}, {0, 1}, notes(range(5))).confirmed == set()
    assert findings({}, {0, 1, 2}, notes(range(5))).confirmed == {0, 1, 2}
    assert findings({0: MINUTE}, range(5), notes(range(5))).confirmed == {1, 2, 3, 4}


def test_a_quarantined_node_says_nothing_about_others():
    """Its own clock is compared with theirs."""
    assert findings({0: MINUTE}, {0, 1}, notes(range(3)), voting={1}).findings == {0: IN_DOUBT, 1: STEADY}
    assert findings({}, {0, 1}, notes(range(3)), voting={1}).confirmed == {0}


def test_clocks_without_notes_contradict_nobody():
    """Neither of a new node nor of a new cluster."""
    none = {node: {} for node in range(3)}
    assert set(findings({0: MINUTE}, range(3), none).findings.values()) == {STEADY}
    assert findings({}, range(3), none).confirmed == set()


@pytest.mark.parametrize("wrong", [0, 1])
def test_one_or_two_nodes_cannot_be_compared(wrong):
    """No node may be stepped there."""
    found = findings({0: MINUTE}, range(wrong + 1), notes(range(wrong + 1)))
    assert set(found.findings.values()) == {STEADY}


def test_a_note_is_true_within_its_tolerance():
    """Its error, the drift since, the resolution of a clock, and the time that the readings took."""
    note, own = Note(reading(0).time - AGE, 3600.0, 0.02), reading(0, took=0.002)
    most = 0.02 + DRIFT * AGE + RESOLUTION + 0.002 + DRIFT * 0.002
    for sign in (1, -1):
        assert note.moved(own, reading(1, sign * (most - 0.0001), took=0.002), DRIFT) == 0.0
        moved = note.moved(own, reading(1, sign * (most + 0.0001), took=0.002), DRIFT)
        assert moved == pytest.approx(sign * most, abs=0.001)


def test_a_clock_that_was_set_back_does_not_make_notes_better_or_worse():
    """The note seems to be from the future."""
    note = Note(reading(0).time + 100.0, 3600.0, 0.0)
    assert note.tolerance(reading(0).time, DRIFT) == 0.0
    assert note.tolerance(reading(0).time + 200.0, DRIFT) == pytest.approx(1.0)


def test_what_is_noted_contains_the_truth():
    """Whenever within the time that they took both clocks were read, and as long as the two run."""
    for one, other in product((0.0, 0.5, 1.0), repeat=2):
        took = 0.1
        own = Reading(1000.0, 5.0 - took * (1 - one), 5.0 + took * one)
        their = Reading(1000.0, 7.0 - took * (1 - other), 7.0 + took * other)
        note = noted(own, their, DRIFT)
        assert note.time == own.time
        assert abs(note.ahead - 2.0) <= note.error + 1e-9
        assert note.error == pytest.approx(took + DRIFT * took)


def test_notes_are_made_of_steady_clocks_when_the_old_ones_are_old():
    """And by none but steady ones; a better note is kept."""
    everyone = range(3)
    readings = {node: reading(node, MINUTE if node == 0 else 0.0) for node in everyone}
    found = findings({0: MINUTE}, everyone, notes(everyone))
    made = notes_to_make(readings, notes(everyone), found, DRIFT, AGE - 0.1)
    assert {node: set(others) for node, others in made.items()} == {1: {2}, 2: {1}}
    assert made[1][2].time == readings[1].time
    assert made[1][2].ahead == pytest.approx(3600.0)
    assert notes_to_make(readings, notes(everyone), found, DRIFT, AGE + 0.1) == {}
    steady = Comparison(dict.fromkeys(everyone, STEADY), frozenset(), {})
    slow = {node: reading(node, took=1.0) for node in everyone}
    assert notes_to_make(slow, notes(everyone), steady, DRIFT, AGE - 0.1) == {}
    new = notes_to_make(slow, {}, steady, DRIFT, AGE)
    assert {node: set(others) for node, others in new.items()} == {0: {1, 2}, 1: {0, 2}, 2: {0, 1}}


def test_comparisons_are_relied_on_for_half_a_ttl():
    """And five seconds at most."""
    assert (interval(0.5), interval(4.0), interval(10.0), interval(3600.0)) == (0.25, 2.0, 5.0, LONGEST_INTERVAL)
