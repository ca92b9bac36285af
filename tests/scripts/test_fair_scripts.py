"""The scripts of fair locks on one node."""

from one_node import granted

SECOND = 1_000_000
LINE = ("queue", "kept", "register")
KEPT = 1_500
"""Ms a queue entry is valid."""
HOUR = 3_600_000


def ticket(node):
    return node.run("fair_ticket", ("register", "queue"), HOUR)


def acquire(node, token, who="", number=0, *, ttl=10_000, candidate=None, fenced=True):
    keys = ["lock", *LINE, *([f"wake:{who}"] if who else []), *(["fence"] if fenced else [])]
    reply = node.run("fair_acquire", keys, token, ttl, candidate or node.us, "wake:", who, number, KEPT, HOUR)
    return granted(node, reply, candidate or node.us if fenced else None)


def stay(node, **places):
    """Send a heartbeat for the waiters with these tickets."""
    flat = [part for who, number in places.items() for part in (number, who)]
    return node.run("fair_wait", LINE, "wake:", KEPT, HOUR, *flat)


def leave(node, who):
    return node.run("fair_leave", LINE[:2], "wake:", who, KEPT)


def queued(node, **kept):
    """Queue these waiters with tickets from 1 in this order, each valid for that many ms."""
    for number, (who, ms) in enumerate(kept.items(), 1):
        node.do("ZADD", "queue", number, who)
        node.do("HSET", "kept", who, node.ms + ms)
    for key in LINE[:2]:
        node.do("PEXPIRE", key, 2_000)
    node.do("SET", "register", len(kept), "PX", HOUR)
    node.watch(*(f"wake:{who}" for who in kept))


def line(node):
    """Return the waiters in order, and for how many ms each entry is valid."""
    order = node.do("ZRANGE", "queue", 0, -1)
    assert set(node.holds["kept"][0]) == set(order)
    return [(who, int(node.do("HGET", "kept", who)) - node.ms) for who in order]


# Tickets


def test_the_first_ticket_is_the_time(node):
    """In µs: tickets are drawn more slowly than one per µs."""
    assert ticket(node) == node.us
    assert node.holds == {"register": (str(node.us), HOUR)}
    node.after(1_000)
    assert ticket(node) == node.us - 1_000_000 + 1
    assert node.holds == {"register": (str(node.us - 1_000_000 + 1), HOUR)}


def test_a_lost_register_continues_after_all_waiters(node):
    """Their tickets may come from a node whose clock is ahead."""
    node.do("ZADD", "queue", node.us + 40, "anna")
    node.do("ZADD", "queue", node.us + 41, "boris")
    assert ticket(node) == node.us + 42
    node.do("DEL", "register", "queue")
    node.do("ZADD", "queue", 7, "anna")
    assert ticket(node) == node.us


# Acquiring


def test_a_free_lock_is_acquired(node):
    assert acquire(node, "token") == node.us
    assert node.holds == {"fence": (str(node.us), None), "lock": ("token", 10_000)}


def test_a_lock_without_a_fence(node):
    assert acquire(node, "token", fenced=False, candidate=2 * node.us) == 1
    assert node.holds == {"lock": ("token", 10_000)}


def test_the_fence_is_like_that_of_a_plain_lock(node):
    """The candidate within a second of the node's clock, and above the stored value."""
    assert acquire(node, "token", candidate=node.us + 5 * SECOND) == node.us + SECOND
    node.do("DEL", "lock")
    assert acquire(node, "token") == node.us + SECOND + 1
    node.do("DEL", "lock", "fence")
    assert acquire(node, "token", ttl=4_000, candidate=5) == node.us - SECOND / 2
    node.do("DEL", "lock", "fence")
    assert acquire(node, "token", candidate=5) == node.us - SECOND
    assert node.holds["fence"] == (str(node.us - SECOND), None)


def test_a_held_lock_is_refused(node):
    """Nothing changes for a client that does not queue; it is notified when the lock does."""
    node.do("SET", "lock", "holder", "PX", 7_000)
    before = node.holds
    assert acquire(node, "token") == ["holder", 7_000, 0]
    assert node.holds == before
    assert node.tells_the_client_of("lock") == ["lock"]


def test_a_refused_waiter_enters_the_queue(node):
    """The first in the queue is notified when the lock is freed."""
    node.do("SET", "lock", "holder", "PX", 7_000)
    assert acquire(node, "token", "anna", 7) == ["holder", 7_000, 0]
    assert node.holds == {
        "kept": ({"anna": str(node.ms + KEPT)}, KEPT),
        "lock": ("holder", 7_000),
        "queue": ({"anna": 7}, KEPT),
        "register": ("7", HOUR),
    }
    assert node.tells_the_client_of("lock") == ["lock"]


def test_the_first_waiter_gets_the_lock_and_keeps_its_entry(node):
    """Too few nodes may grant it; the waiter leaves the queue when it has the lock."""
    queued(node, anna=500, boris=500)
    assert acquire(node, "token", "anna", 1) == node.us
    assert line(node) == [("anna", KEPT), ("boris", 500)]
    assert node.holds["lock"] == ("token", 10_000)
    assert node.told() == []


def test_the_first_waiter_is_not_passed(node):
    """The reply, to a queued client or not, is the first waiter and how long its entry is valid."""
    queued(node, anna=500, boris=500)
    assert acquire(node, "token", "boris", 2) == ["anna", 500, 1]
    assert line(node) == [("anna", 500), ("boris", KEPT)]
    assert acquire(node, "another") == ["anna", 500, 1]
    assert line(node) == [("anna", 500), ("boris", KEPT)]
    assert "lock" not in node.holds
    assert node.told() == []


def test_a_queued_waiter_is_only_notified_by_its_own_key(node):
    """It need not know of changes of the lock."""
    queued(node, anna=500, boris=500)
    acquire(node, "token", "boris", 2)
    assert node.tells_the_client_of("wake:boris", "wake:anna", "lock") == ["wake:boris"]


def test_a_client_that_does_not_queue_learns_the_holder_first(node):
    """It waits for the holder if it comes again."""
    queued(node, anna=500)
    node.do("SET", "lock", "holder", "PX", 7_000)
    assert acquire(node, "token") == ["holder", 7_000, 0]
    assert node.tells_the_client_of("lock") == ["lock"]


def test_expired_entries_are_removed(node):
    """The next request removes them, and wakes the new first waiter with a key that does not stay."""
    queued(node, anna=500, boris=501, clara=900)
    node.after(500)
    assert acquire(node, "token") == ["boris", 1, 1]
    assert line(node) == [("boris", 1), ("clara", 400)]
    assert node.told() == ["wake:boris"]
    node.after(1)
    assert acquire(node, "token", "dora", 9) == ["clara", 399, 1]
    assert line(node) == [("clara", 399), ("dora", KEPT)]
    assert node.told() == ["wake:clara"]
    assert "wake:clara" not in node.holds


def test_an_entry_without_an_expiry_is_removed(node):
    """The node lost one of its keys."""
    queued(node, anna=500)
    node.do("DEL", "kept")
    assert acquire(node, "token") == node.us


def test_an_expired_waiter_returns_to_its_old_position(node):
    """It was away for too long, but no other waiter has passed it yet."""
    queued(node, anna=500, boris=900)
    node.after(600)
    assert acquire(node, "token", "anna", 1) == node.us
    assert line(node) == [("anna", KEPT), ("boris", 300)]


def test_an_attempt_raises_the_register(node):
    """To the highest entry here; it never lowers it."""
    node.do("ZADD", "queue", 9, "zoe")
    acquire(node, "token", "anna", 7)
    assert node.holds["register"] == ("9", HOUR)
    node.do("SET", "register", 12)
    acquire(node, "token", "anna", 7)
    assert node.holds["register"] == ("12", HOUR)
    acquire(node, "token", "boris", 20)
    assert node.holds["register"] == ("20", HOUR)


def test_the_queue_is_kept_as_long_as_its_longest_entry(node):
    """Another client's entry may be valid for longer."""
    queued(node, anna=2_000)
    acquire(node, "token", "boris", 2)
    assert (node.holds["queue"][1], node.holds["kept"][1]) == (2_000, 2_000)
    node.after(600)
    acquire(node, "token", "boris", 2)
    assert (node.holds["queue"][1], node.holds["kept"][1]) == (KEPT, KEPT)


# Heartbeats


def test_heartbeats_keep_entries_valid(node):
    """The reply is how long the entry of the first waiter is valid."""
    queued(node, anna=500, boris=500, clara=500)
    assert stay(node, boris=2, clara=3) == 500
    assert line(node) == [("anna", 500), ("boris", KEPT), ("clara", KEPT)]
    assert (node.holds["queue"][1], node.holds["kept"][1]) == (2_000, 2_000)
    assert node.told() == []


def test_lost_entries_are_restored(node):
    """By their tickets, and without waking a waiter: none of them was ever the first here."""
    node.watch("wake:anna")
    assert stay(node, boris=9, anna=7) == KEPT
    assert line(node) == [("anna", KEPT), ("boris", KEPT)]
    assert (node.holds["queue"][1], node.holds["kept"][1]) == (KEPT, KEPT)
    assert node.told() == []


def test_a_heartbeat_raises_the_register(node):
    """To the highest entry here; it never lowers it."""
    for register in (None, 3, 20):
        node.do(*(("SET", "register", register) if register else ("DEL", "register")))
        node.do("ZADD", "queue", 20, "zoe")
        stay(node, anna=7, boris=9)
        assert node.holds["register"] == ("20", HOUR)
    node.do("SET", "register", 22)
    stay(node, anna=7)
    assert node.holds["register"] == ("22", HOUR)


def test_a_heartbeat_removes_expired_entries(node):
    """It wakes the new first waiter, or returns it if it is the caller's own."""
    queued(node, anna=501, boris=501, clara=601)
    node.after(500)
    assert stay(node, dora=4) == 1
    node.after(1)
    assert stay(node, dora=4) == "clara"
    assert line(node) == [("clara", 100), ("dora", KEPT)]
    assert node.told() == ["wake:clara"]
    node.after(100)
    assert stay(node, dora=4) == "dora"
    assert line(node) == [("dora", KEPT)]
    assert not [key for key in node.holds if key.startswith("wake:")]


def test_a_heartbeat_removes_entries_without_an_expiry(node):
    queued(node, anna=500)
    node.do("DEL", "kept")
    assert stay(node, boris=2) == "boris"
    assert line(node) == [("boris", KEPT)]


def test_a_waiter_that_is_restored_as_the_first_learns_it(node):
    """Its own entry was lost, and this node did not know that it is ahead."""
    queued(node, anna=500)
    assert stay(node, zoe=0.5) == "zoe"
    assert line(node) == [("zoe", KEPT), ("anna", 500)]


# Leaving


def test_the_next_waiter_is_notified_when_the_first_leaves(node):
    """Only this one; and none when another waiter leaves."""
    queued(node, anna=1_000, boris=1_000, clara=1_000)
    assert leave(node, "boris") == 1
    assert node.told() == ["wake:boris"]
    assert line(node) == [("anna", 1_000), ("clara", 1_000)]
    assert leave(node, "anna") == 1
    assert node.told() == ["wake:anna", "wake:clara"]
    assert line(node) == [("clara", 1_000)]
    assert leave(node, "clara") == 1
    assert [key for key in node.holds if key != "register"] == []


def test_the_waiter_behind_a_silent_one_is_notified_too(node):
    """And so on, up to one whose last heartbeat is in the second half of its validity."""
    queued(node, anna=1_000, boris=749, clara=750, dora=100)
    assert leave(node, "anna") == 1
    assert node.told() == ["wake:anna", "wake:boris", "wake:clara"]
    queued(node, anna=1_000, boris=749, clara=0, dora=100)
    node.do("HDEL", "kept", "boris")
    leave(node, "anna")
    assert node.told() == ["wake:anna", "wake:boris", "wake:clara", "wake:dora"]


def test_a_client_without_an_entry_only_notifies_itself(node):
    """The server must stop tracking its key."""
    queued(node, anna=100, boris=100)
    node.watch("wake:zoe")
    assert leave(node, "zoe") == 0
    assert node.told() == ["wake:zoe"]
    assert line(node) == [("anna", 100), ("boris", 100)]


def test_a_waiter_can_leave_on_a_full_server(node):
    """No waiter can be notified there."""
    queued(node, anna=1_000, boris=1_000)
    node.master.oom = True
    assert leave(node, "anna") == 1
    assert line(node) == [("boris", 1_000)]


LONG = "0123456789" * 200


def test_at_most_300_bytes_of_a_holder_or_waiter_are_returned(node):
    """Any program can store a value of any length in the lock's key."""
    node.do("SET", "lock", LONG, "PX", 7_000)
    assert acquire(node, "token") == [LONG[:300], 7_000, 0]
    queued(node, **{LONG: 5_000})
    assert acquire(node, "token") == [LONG[:300], 7_000, 0]
    node.do("DEL", "lock")
    assert acquire(node, "token") == [LONG[:300], 5_000, 1]
