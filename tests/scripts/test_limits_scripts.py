"""The limits that all scripts share: the numbers they return and accept, and the start of a missing register."""

import pytest
from one_node import Refused
from test_fair_scripts import acquire as acquire_fairly
from test_fair_scripts import ticket
from test_mutex_scripts import SECOND, acquire, acquire_many, secure
from test_readers_scripts import downgrade, held, read
from test_readers_scripts import secure as secure_reader
from test_semaphore_scripts import secure as secure_slots

LARGEST = 2**53 - 1
AHEAD = 2**52 + 31_557_600 * SECOND
"""How far a number may be ahead of the node's clock: 143 years."""
YEAR_2200 = 7_258_118_400 * SECOND


def stored(node, register="fence of x"):
    return node.holds[register][0]


# Missing registers


def test_a_first_token_is_within_an_eighth_of_the_ttl_of_the_nodes_clock(node):
    """And a second at most: one ttl after a loss of data it is above all earlier tokens."""
    for ttl, most in ((10_000, SECOND), (8_000, SECOND), (800, SECOND / 10), (8, 1_000)):
        assert acquire(node, "anna", "x", ttl=ttl, candidate=node.us + 60 * SECOND) == node.us + most
        assert acquire(node, "anna", "y", ttl=ttl, candidate=node.us) == node.us
        assert acquire(node, "anna", "z", ttl=ttl, candidate=node.us - 60 * SECOND) == node.us - most
        node.do("DEL", *node.holds)


def test_a_repaired_register_does_not_start_with_the_old_token(node):
    """Other names share it: their later tokens must be larger than those before the loss."""
    assert secure(node, "anna", "x", ttl=10_000, fence=7) == 1
    assert stored(node) == str(node.us)
    node.do("DEL", "fence of x")
    assert secure(node, "anna", "x", fence=node.us + 5) == 1
    assert stored(node) == str(node.us + 5)


# Returned numbers


def test_the_largest_token_is_below_2_to_the_53(node):
    """Beyond it every attempt fails, and the register stays as it is."""
    node.us = YEAR_2200 - SECOND  # from 2112 on, the range ends before the limit that depends on the clock
    node.do("SET", "fence of x", LARGEST - 2)
    assert acquire(node, "anna", "x") == LARGEST - 1
    node.do("DEL", "x")
    assert acquire(node, "anna", "x") == LARGEST
    for _ in range(2):
        node.do("DEL", "x")
        with pytest.raises(Refused, match="LIMIT"):
            acquire(node, "anna", "x")
        assert stored(node) == str(LARGEST)


def test_a_spoilt_register_grants_nothing_and_spoils_no_other(node):
    """Whichever of several registers it is; those before it are not lowered."""
    for spoilt in (2**53, 2**63 - 1, -5):
        node.do("SET", "fence of y", spoilt)
        node.do("SET", "fence of x", node.us + 10 * SECOND)
        with pytest.raises(Refused, match=r"LIMIT .* in fence of y is out of range"):
            acquire(node, "anna", "w", "x", "y", "z")
        assert stored(node, "fence of y") == str(spoilt)
        assert stored(node, "fence of x") == stored(node, "fence of w") == str(node.us + 10 * SECOND + 1)
        assert "fence of z" not in node.holds
        node.do("DEL", *node.holds)


def test_a_register_that_is_no_number_grants_nothing(node):
    """It stays as it is, and so do other locks that are acquired in the same command."""
    node.do("SET", "fence of x", "text")
    node.do("HSET", "fence of y", "another", "type")
    for lock, error in (("x", "LIMIT"), ("y", "WRONGTYPE")):
        with pytest.raises(Refused, match=error):
            acquire(node, "anna", lock)
    node.do("DEL", "x", "y")
    before = node.holds
    replies = acquire_many(node, ("w", "anna"), ("x", "anna"), ("y", "anna"), ("z", "anna"))
    assert [replies[0], replies[3]] == [-node.us, -node.us]
    assert ["LIMIT" in str(replies[1]), "WRONGTYPE" in str(replies[2])] == [True, True]
    assert {key: node.holds[key] for key in before} == before


def test_a_token_is_at_most_143_years_ahead_of_the_nodes_clock(node):
    """A register that is further ahead is spoilt."""
    node.do("SET", "fence of x", node.us + AHEAD - 1)
    assert acquire(node, "anna", "x") == node.us + AHEAD
    node.do("DEL", "x")
    with pytest.raises(Refused, match="LIMIT"):
        acquire(node, "anna", "x")


def test_a_node_with_a_clock_beyond_the_year_2200_grants_no_tokens(node):
    """The error says why. Its registers stay as they are."""
    node.us = YEAR_2200
    for missing in (True, False):
        with pytest.raises(Refused, match="CLOCK the clock of this node is beyond the year 2200"):
            acquire(node, "anna", "x")
        assert ("fence of x" not in node.holds) == missing
        node.do("DEL", "x")
        node.do("SET", "fence of x", 7)
    assert stored(node) == "7"
    assert acquire(node, "anna", "x", fenced=False) == 1


def test_readers_do_not_share_a_spoilt_register(node):
    """An INCRBY of 2^53 and more is not exact in Lua."""
    held(node, anna=10_000)
    node.do("SET", "fence", LARGEST + 1)
    with pytest.raises(Refused, match="LIMIT"):
        read(node, "boris")


# Accepted numbers


OUT_OF_RANGE = (-1, 2**53, 2**63 - 1, 2**64)


def test_no_register_is_raised_to_an_invalid_token(node):
    """And nothing else is changed."""
    node.do("SET", "x", "anna", "PX", 4_000)
    before = node.holds
    for fence in OUT_OF_RANGE:
        for ttl in (0, 10_000):
            with pytest.raises(Refused, match="LIMIT"):
                secure(node, "anna", "x", ttl=ttl, fence=fence)
    assert node.holds == before


def test_no_register_of_a_slot_is_raised_to_an_invalid_token(node):
    node.do("SET", "sem:0", "anna", "PX", 4_000)
    before = node.holds
    for fence in OUT_OF_RANGE:
        with pytest.raises(Refused, match="LIMIT"):
            secure_slots(node, "anna", 0, fence=fence, ttl=10_000)
    assert node.holds == before
    assert secure_slots(node, "anna", 0, ttl=10_000) == 1


def test_no_register_of_readers_is_raised_to_an_invalid_token(node):
    held(node, anna=10_000)
    before = node.holds
    for fence in OUT_OF_RANGE:
        with pytest.raises(Refused, match="LIMIT"):
            secure_reader(node, "boris", fence, ttl=10_000)
    assert node.holds == before


def test_no_writer_becomes_a_reader_with_an_invalid_token(node):
    node.do("SET", "lock", "walter", "PX", 4_000)
    before = node.holds
    for fence in OUT_OF_RANGE:
        with pytest.raises(Refused, match="LIMIT"):
            downgrade(node, "walter", fence=fence)
    assert node.holds == before


def test_a_register_is_raised_to_at_most_143_years_ahead(node):
    node.do("SET", "x", "anna", "PX", 4_000)
    assert secure(node, "anna", "x", fence=node.us + AHEAD) == 1
    with pytest.raises(Refused, match="LIMIT"):
        secure(node, "anna", "x", fence=node.us + AHEAD + 1)
    assert stored(node) == str(node.us + AHEAD)
    node.us = YEAR_2200
    node.do("SET", "x", "anna", "PX", 4_000)
    assert secure(node, "anna", "x", fence=LARGEST) == 1
    with pytest.raises(Refused, match="LIMIT"):
        secure(node, "anna", "x", fence=LARGEST + 1)


# Tickets


def test_no_ticket_out_of_range_is_returned(node):
    """A spoilt register is deleted: the next ticket follows those of all waiters."""
    node.do("SET", "register", 2**53)
    node.do("ZADD", "queue", node.us + 41, "anna")
    with pytest.raises(Refused, match="LIMIT"):
        ticket(node)
    assert "register" not in node.holds
    assert ticket(node) == node.us + 42


def test_no_entry_is_kept_with_a_ticket_out_of_range(node):
    """Neither by an attempt nor by a heartbeat; of several entries none."""
    for number in (0, -1, node.us + AHEAD + 1):
        with pytest.raises(Refused, match="LIMIT"):
            acquire_fairly(node, "token", "anna", number)
        for numbers in ((number, 5), (5, number)):
            places = [part for waiter, each in zip(("anna", "boris"), numbers, strict=True) for part in (each, waiter)]
            with pytest.raises(Refused, match="LIMIT"):
                node.run("fair_wait", ("queue", "kept", "register"), "wake:", 1_500, 3_600_000, *places)
    assert node.holds == {}
    assert acquire_fairly(node, "token", "anna", node.us + AHEAD) == node.us
    # A client that does not queue has no ticket.
    node.do("DEL", "lock", "queue", "kept", "register")
    assert acquire_fairly(node, "token") == node.us + 1
