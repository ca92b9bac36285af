"""Who leads, according to the nodes' replies, and in which order an observer reports terms."""

from itertools import permutations

import pytest

from redlock_async import ConfigurationError, Leader, Redlock
from redlock_async._admin.leader import Reply, Term, Terms, term_of
from redlock_async._admin.records import StoredKey
from redlock_async._rules.token import token_label

URLS = [f"redis://10.0.0.{number}" for number in range(1, 4)]


def stored(who, left=9.0, fence=7, *, delay=0.0):
    """A key of that leader."""
    return StoredKey(who.encode() * 32 + token_label(f"at {who}", delay), left, fence)


def by_node(replies, quarantined=()):
    """What each node has stored; those with the given indexes do not vote."""
    return [Reply(1 << index, index not in quarantined, each) for index, each in enumerate(replies)]


def term(who, fence):
    """A reading."""
    return Term(who.encode() * 32, Leader(who, fence, 1.0))


def test_a_quorum_names_the_leader():
    """The time left and the number are those that a quorum of the nodes have reached."""
    replies = [stored("a", 3.0, 7), stored("a", 2.0, 9), stored("a", 1.0, 8), None, stored("b", 9, 90)]
    found = term_of(by_node(replies), 3)
    assert found.leader == Leader("at a", 7, 1.0)
    found = term_of(by_node(replies[:3]), 2)
    assert found.leader == Leader("at a", 8, 2.0)


@pytest.mark.parametrize(
    "replies",
    [
        [None, None, None],
        [stored("a"), None, None],
        [stored("a"), stored("b"), None],
        [stored("a", fence=None), stored("a"), None],
        [StoredKey(b"another library's", 9.0, 7)] * 3,
        [StoredKey(None, 0.0, None)] * 3,
        [stored("a", 5.0, delay=5)] * 3,
    ],
    ids=["free", "one vote", "split", "no fence", "foreign", "another type", "only the takeover delay is left"],
)
def test_otherwise_nobody_leads(replies):
    """Neither a leftover, nor a lock of another library, nor a leader whose term is over."""
    assert term_of(by_node(replies), 2) is None


def test_a_term_begins_with_votes_and_goes_on_without():
    """A quarantined node grants a lock to a candidate that may not count it. Later it stores the key of the leader."""
    replies = by_node([stored("a"), stored("a"), None], quarantined=[1])
    assert term_of(replies, 2) is None
    assert term_of(replies, 2, known=b"b" * 32 + token_label("at b", 0.0)) is None
    assert term_of(replies, 2, known=stored("a").value).leader.value == "at a"


def test_the_takeover_delay_is_no_part_of_the_term():
    """The time left is that of the lease."""
    assert term_of(by_node([stored("a", 6.5, delay=5)] * 3), 2).leader.expires_in == 1.5


@pytest.mark.parametrize("text", ["", "10.0.0.7:8000", "a:b:c", "two\nlines", "☃" * 66, '{"json": true}', "\x00"])
def test_a_value_is_any_text(text):
    """It is returned as it was passed."""
    key = StoredKey(b"a" * 32 + token_label(text, 0.0), 9.0, 7)
    assert term_of(by_node([key] * 3), 2).leader.value == text
    Redlock(URLS).election("x", value=text)


@pytest.mark.parametrize("value", [7, b"x", "x" * 201, "☃" * 67, "\ud800"])
def test_a_value_that_cannot_be_stored_is_refused(value):
    """When the election is made."""
    with pytest.raises(ConfigurationError, match="value must be text of at most 200 bytes"):
        Redlock(URLS).election("x", value=value)


@pytest.mark.parametrize("order", list(permutations([term("a", 1), term("b", 2), term("c", 3), None])))
def test_no_order_of_readings_goes_back_to_an_earlier_term(order):
    """Late readings are dropped."""
    terms = Terms()
    reported = [reading for reading in order if terms.is_new(reading)]
    fences = [reading.leader.fencing_token for reading in reported if reading is not None]
    assert fences == sorted(set(fences))
    assert reported[0] == order[0]


def test_a_term_is_reported_once():
    """Renewals are no change, nor is a register that another name has raised; nobody twice in a row is none either."""
    terms = Terms()
    readings = [None, None, term("a", 1), term("a", 1), term("a", 5), None, None, term("b", 6), term("a", 5)]
    assert [terms.is_new(reading) for reading in readings] == [1, 0, 1, 0, 0, 1, 0, 1, 0]


def test_a_term_whose_number_is_not_stored_yet_is_looked_at_again():
    """A quorum stores the number of a new term a moment after its key."""
    terms = Terms()
    assert terms.is_new(term("a", 5))
    assert terms.is_late(term("b", 4))
    assert not terms.is_new(term("b", 4))
    assert not terms.is_late(term("b", 6))
    assert terms.is_new(term("b", 6))
    assert not terms.is_late(term("b", 5))


def test_a_term_that_was_out_of_sight_continues():
    """Its lease was missing on too many nodes, and its holder has set it again there."""
    terms = Terms()
    readings = [term("a", 1), None, term("a", 1), term("b", 2), None, term("a", 1), term("b", 2)]
    assert [terms.is_new(reading) for reading in readings] == [1, 1, 1, 1, 1, 0, 1]
