"""The scripts of latches on one node."""

KEYS = ("ids", "latch")
WEEK = 604_800_000
KEPT = 907_200_000
"""1.5 times the retention."""


def count(node, *events, of=2, opens=0):
    return node.run("latch_count", KEYS, of, WEEK, opens, *events)


def look(node, of=2):
    return node.run("latch_look", KEYS, of, WEEK)


def test_a_latch_starts_with_its_first_event(node):
    """Waiters in the caller's process are notified of later events."""
    assert count(node, "one") == 1
    assert node.holds == {"ids": ({"one"}, KEPT), "latch": ({"count": "2"}, KEPT)}
    assert node.tells_the_client_of(*KEYS) == ["ids", "latch"]


def test_events_are_added(node):
    """Each id once."""
    count(node, "one")
    assert count(node, "two", "three", of=2) == 1
    assert count(node, "two", of=2) == 1
    assert node.holds["ids"] == ({"one", "two", "three"}, KEPT)


def test_a_repeated_event_wakes_no_waiter(node):
    count(node, "one", opens=1)
    node.after(1_000)
    node.watch(*KEYS)
    assert count(node, "one", opens=1) == 1
    assert node.told() == []
    assert node.holds["ids"] == ({"one"}, KEPT - 1_000)


def test_a_client_that_knows_it_is_complete_opens_it(node):
    """Permanently."""
    assert count(node, "one", "two", opens=1) == 1
    assert node.holds == {"ids": ({"one", "two"}, KEPT), "latch": ({"count": "2", "open": "1"}, KEPT)}
    assert count(node, "three") == 1
    assert node.holds["latch"][0] == {"count": "2", "open": "1"}


def test_another_count_is_returned_and_nothing_is_changed(node):
    count(node, "one")
    before = node.holds
    assert count(node, "two", of=3, opens=1) == "2"
    assert look(node, of=3) == "2"
    assert node.holds == before


def test_a_latch_is_kept_while_it_is_used(node):
    """Its expiry is moved when less than the retention is left: rarely, because that wakes waiters."""
    count(node, "one")
    node.after(KEPT - WEEK)
    node.watch(*KEYS)
    look(node)
    count(node, "one")
    assert node.told() == []
    node.after(1)
    count(node, "one")
    assert node.told() == ["ids", "latch"]
    assert [left for _, left in node.holds.values()] == [KEPT, KEPT]
    for ms in (KEPT - WEEK + 1, KEPT):  # exact to a millisecond
        node.after(ms)
        look(node)
        assert [left for _, left in node.holds.values()] == [KEPT, KEPT]


def test_reading_a_missing_latch(node):
    """It leaves nothing, and the caller is notified of the first event."""
    assert look(node) == [0]
    assert node.holds == {}
    assert node.tells_the_client_of(*KEYS) == ["ids", "latch"]


def test_reading_a_latch(node):
    """It returns all events and whether the latch is open; the caller is notified of changes."""
    count(node, "one", "two")
    assert look(node)[0] == 0
    assert set(look(node)[1:]) == {"one", "two"}
    count(node, opens=1)
    assert look(node)[0] == 1
    node.after(KEPT - 1)
    look(node)
    assert node.tells_the_client_of(*KEYS) == ["ids", "latch"]


def test_a_latch_without_an_expiry_keeps_none(node):
    """Reading does not set one."""
    node.do("SADD", "ids", "one")
    node.do("HSET", "latch", "count", 2)
    assert look(node) == [0, "one"]
    assert node.holds == {"ids": ({"one"}, None), "latch": ({"count": "2"}, None)}
