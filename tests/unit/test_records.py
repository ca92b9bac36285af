"""Records from the nodes' replies about a name: every mix of votes, and the names that a pattern matches."""

import math
from itertools import product

import pytest

from redlock_async import ConfigurationError
from redlock_async._admin.listing import Pattern
from redlock_async._admin.records import LockRecord, NameState, QuorumView, StoredKey, confirmed, merge_names
from redlock_async._rules.keys import Keys

MINE, THEIRS = b"0" * 32 + b":me", b"1" * 32 + b":them"


def panel(nodes, answering=None):
    """Return the view of that many nodes, of which `answering` reply."""
    labels = [f"node-{number}" for number in range(nodes if answering is None else answering)]
    return QuorumView(labels, nodes, nodes // 2 + 1)


@pytest.mark.parametrize("nodes", range(1, 6))
def test_every_mix_of_replies_gives_each_holder_its_votes(nodes):
    """A holder on a majority of all nodes is held, and there are never two."""
    for values in product((None, MINE, THEIRS), repeat=nodes):
        answers = [None if value is None else StoredKey(value, 5.0, 7) for value in values]
        records = panel(nodes).of_name("x", answers, [NameState()] * nodes)
        assert {each.token: each.votes for each in records} == {
            token.decode(): values.count(token) for token in set(values) - {None}
        }
        for each in records:
            assert each.state == ("held" if each.votes > nodes // 2 else "partial")
            assert len(each.node_labels) == each.votes
            assert each.fence == (7 if each.held else None)
        assert sum(each.held for each in records) <= 1


def test_the_time_left_is_that_of_the_last_node_of_the_quorum():
    """Other nodes may expire it earlier or later."""
    answers = [StoredKey(MINE, left, None) for left in (1.0, 9.0, 5.0, math.inf, 3.0)]
    (record,) = panel(5).of_name("x", answers, [NameState()] * 5)
    assert record.remaining == 5.0


@pytest.mark.parametrize(("silent", "state"), [(0, "orphan"), (1, "orphan"), (2, "partial"), (3, "partial")])
def test_only_a_leftover_that_silent_nodes_cannot_complete_is_an_orphan(silent, state):
    """One vote of five, which must have been seen both times."""
    seen = panel(5, 5 - silent).of_name(
        "x", [StoredKey(MINE, 5.0, None)] + [None] * (4 - silent), [NameState()] * (5 - silent)
    )
    (record,) = confirmed(seen, seen, silent)
    assert record.state == state
    (other,) = confirmed([], seen, silent)
    assert other.state == "partial"


def test_a_reader_is_held_by_its_entry_among_the_readers():
    """Each reader separately, whatever the value of the lock key."""
    contexts = [
        NameState(readers={MINE: 4.0, THEIRS: 2.0}),
        NameState(readers={MINE: 4.0}),
        NameState(readers={MINE: 3.0}),
    ]
    answers = [StoredKey(b"0" * 32 + b":readers", 9.0, 3)] * 3
    records = {each.owner: each for each in panel(3).of_name("x", answers, contexts)}
    assert {owner: (each.kind, each.state, each.votes) for owner, each in records.items()} == {
        "me": ("read", "held", 3),
        "them": ("read", "partial", 1),
    }


def test_waiters_are_reported_even_without_a_holder():
    """A queue whose first waiter has died is an incident, too."""
    contexts = [NameState(queue=(MINE, THEIRS), fair=True), NameState(queue=(MINE,), fair=True), NameState()]
    (record,) = panel(3).of_name("x", [None] * 3, contexts)
    assert (record.kind, record.state, record.waiting) == ("fair", "waiting", ("me", "them"))


def test_a_latch_is_as_open_as_any_node_reports():
    """Events cannot be undone."""
    contexts = [NameState(latch=(3, 1, False, 9.0)), NameState(latch=(3, 2, False, 9.0)), NameState()]
    (record,) = panel(3).of_name("x", [None] * 3, contexts)
    assert (record.kind, record.state, record.events_remaining, record.votes) == ("latch", "closed", 1, 2)
    contexts[2] = NameState(latch=(3, 0, True, 9.0))
    (record,) = panel(3).of_name("x", [None] * 3, contexts)
    assert (record.state, record.events_remaining) == ("open", 0)


def test_names_of_one_token_belong_together():
    """They were acquired together."""
    records = [LockRecord(name, "lock", "held", 3, 3, 2, token=MINE.decode()) for name in ("a", "b")]
    assert [each.names for each in merge_names(records)] == [("a", "b"), ("a", "b")]


@pytest.mark.parametrize(
    ("pattern", "covered", "others"),
    [
        ("*", ["", "a", "a\nb", "ä"], []),
        ("orders:*", ["orders:", "orders:42"], ["order", "xorders:1"]),
        ("a?c", ["abc", "a.c"], ["ac", "abbc"]),
        ("[ab]x", ["ax", "bx"], ["cx", "abx"]),
        ("[a-c]", ["a", "b"], ["d", "-"]),
        ("[^a-c]", ["d"], ["a", ""]),
        (r"[\]x]*", ["]", "x"], ["a"]),
        (r"\**", ["*", "*a"], ["a"]),
        ("[&&~~||^--]*", ["&", "~", "^", "-"], ["a"]),
        ("[z-x]", ["y"], ["a"]),
        ("a.c*", ["a.c"], ["abc"]),
    ],
)
def test_patterns_match_as_on_the_servers(pattern, covered, others):
    """As in KEYS and SCAN."""
    meant = Pattern(Keys(""), pattern)
    assert meant.name is None
    assert all(meant.covers(name.encode()) for name in covered)
    assert not any(meant.covers(name.encode()) for name in others)


@pytest.mark.parametrize(("pattern", "name"), [("orders:42", "orders:42"), (r"a\*b\[\\", r"a*b[" + "\\"), ("ä", "ä")])
def test_a_pattern_without_a_wildcard_is_a_name(pattern, name):
    """It is looked up without a scan."""
    assert Pattern(Keys(""), pattern).name == name


@pytest.mark.parametrize("pattern", ["", "redlock-async:*", "[a", 5, None, "x" * 5000])
def test_an_invalid_pattern_is_rejected(pattern):
    """Instead of finding nothing."""
    with pytest.raises(ConfigurationError):
        Pattern(Keys(""), pattern)


def test_the_namespace_is_not_a_pattern():
    """Its characters match themselves."""
    assert Pattern(Keys("a*[b]:"), "x*").of_keys[0] == rb"a\*\[b\]:x*"
