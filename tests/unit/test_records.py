"""What nodes' answers about a name amount to: every mix of votes, and which names a pattern means."""

import math
from itertools import product

import pytest

from redlock_async import ConfigurationError
from redlock_async._keys import Keys
from redlock_async._listing import Pattern
from redlock_async._records import Context, LockRecord, Panel, Seen, confirmed, joined

MINE, THEIRS = b"0" * 32 + b":me", b"1" * 32 + b":them"


def panel(nodes, answering=None):
    """That many nodes, of which so many answer."""
    labels = [f"node-{number}" for number in range(nodes if answering is None else answering)]
    return Panel(labels, nodes, nodes // 2 + 1)


@pytest.mark.parametrize("nodes", range(1, 6))
def test_every_mix_of_answers_names_each_holder_with_its_votes(nodes):
    """Held is who a majority of all names, and never two at once."""
    for values in product((None, MINE, THEIRS), repeat=nodes):
        answers = [None if value is None else Seen(value, 5.0, 7) for value in values]
        records = panel(nodes).of_name("x", answers, [Context()] * nodes)
        assert {each.token: each.votes for each in records} == {
            token.decode(): values.count(token) for token in set(values) - {None}
        }
        for each in records:
            assert each.state == ("held" if each.votes > nodes // 2 else "partial")
            assert len(each.on) == each.votes
            assert each.fence == (7 if each.held else None)
        assert sum(each.held for each in records) <= 1


def test_what_is_left_is_told_by_the_last_node_that_is_needed():
    """The others may run out earlier, or be there longer."""
    answers = [Seen(MINE, left, None) for left in (1.0, 9.0, 5.0, math.inf, 3.0)]
    (record,) = panel(5).of_name("x", answers, [Context()] * 5)
    assert record.remaining == 5.0


@pytest.mark.parametrize(("silent", "state"), [(0, "orphan"), (1, "orphan"), (2, "partial"), (3, "partial")])
def test_only_what_silent_nodes_cannot_make_up_for_is_an_orphan(silent, state):
    """One vote of five; and it must have been there both times."""
    seen = panel(5, 5 - silent).of_name(
        "x", [Seen(MINE, 5.0, None)] + [None] * (4 - silent), [Context()] * (5 - silent)
    )
    (record,) = confirmed(seen, seen, silent)
    assert record.state == state
    (other,) = confirmed([], seen, silent)
    assert other.state == "partial"


def test_a_reader_is_held_where_it_is_among_the_readers():
    """Each by itself, whatever the lock key says of all of them."""
    contexts = [Context(readers={MINE: 4.0, THEIRS: 2.0}), Context(readers={MINE: 4.0}), Context(readers={MINE: 3.0})]
    answers = [Seen(b"0" * 32 + b":readers", 9.0, 3)] * 3
    records = {each.owner: each for each in panel(3).of_name("x", answers, contexts)}
    assert {owner: (each.kind, each.state, each.votes) for owner, each in records.items()} == {
        "me": ("read", "held", 3),
        "them": ("read", "partial", 1),
    }


def test_who_waits_is_told_even_where_nobody_holds():
    """A queue whose head has died is an incident, too."""
    contexts = [Context(queue=(MINE, THEIRS), fair=True), Context(queue=(MINE,), fair=True), Context()]
    (record,) = panel(3).of_name("x", [None] * 3, contexts)
    assert (record.kind, record.state, record.waiting) == ("fair", "waiting", ("me", "them"))


def test_a_latch_is_as_open_as_any_node_says():
    """Events do not become unhappened."""
    contexts = [Context(latch=(3, 1, False, 9.0)), Context(latch=(3, 2, False, 9.0)), Context()]
    (record,) = panel(3).of_name("x", [None] * 3, contexts)
    assert (record.kind, record.state, record.missing, record.votes) == ("latch", "closed", 1, 2)
    contexts[2] = Context(latch=(3, 0, True, 9.0))
    (record,) = panel(3).of_name("x", [None] * 3, contexts)
    assert (record.state, record.missing) == ("open", 0)


def test_names_of_one_token_belong_together():
    """They were taken at once."""
    records = [LockRecord(name, "lock", "held", 3, 3, 2, token=MINE.decode()) for name in ("a", "b")]
    assert [each.names for each in joined(records)] == [("a", "b"), ("a", "b")]


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
def test_patterns_mean_what_they_mean_to_the_servers(pattern, covered, others):
    """As in KEYS and SCAN."""
    meant = Pattern(Keys(""), pattern)
    assert meant.name is None
    assert all(meant.covers(name.encode()) for name in covered)
    assert not any(meant.covers(name.encode()) for name in others)


@pytest.mark.parametrize(("pattern", "name"), [("orders:42", "orders:42"), (r"a\*b\[\\", r"a*b[" + "\\"), ("ä", "ä")])
def test_a_pattern_without_a_wildcard_is_a_name(pattern, name):
    """It is looked up, and nothing is searched through."""
    assert Pattern(Keys(""), pattern).name == name


@pytest.mark.parametrize("pattern", ["", "redlock-async:*", "[a", 5, None, "x" * 5000])
def test_what_cannot_be_a_pattern_is_refused(pattern):
    """Instead of finding nothing."""
    with pytest.raises(ConfigurationError):
        Pattern(Keys(""), pattern)


def test_the_namespace_is_no_pattern():
    """Its signs stand for themselves."""
    assert Pattern(Keys("a*[b]:"), "x*").of_keys[0] == rb"a\*\[b\]:x*"
