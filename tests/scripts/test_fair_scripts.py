"""What the scripts of fair locks do on one node."""

SECOND = 1_000_000
LINE = ("queue", "kept", "register")
KEPT = 1_500
"""Ms a place is kept."""
HOUR = 3_600_000


def ticket(node):
    return node.run("fair_ticket", ("register", "queue"), HOUR)


def acquire(node, token, who="", number=0, *, ttl=10_000, candidate=None, fenced=True):
    keys = ["lock", *LINE, *(["fence"] if fenced else [])]
    return node.run("fair_acquire", keys, token, ttl, candidate or node.us, "wake:", who, number, KEPT, HOUR)


def stay(node, **places):
    """A sign of life of those with these tickets."""
    flat = [part for who, number in places.items() for part in (number, who)]
    return node.run("fair_wait", LINE, "wake:", KEPT, HOUR, *flat)


def leave(node, who):
    return node.run("fair_leave", LINE[:2], "wake:", who, KEPT)


def queued(node, **kept):
    """Have those wait, with tickets from 1 in this order, each for so many ms more."""
    for number, (who, ms) in enumerate(kept.items(), 1):
        node.do("ZADD", "queue", number, who)
        node.do("HSET", "kept", who, node.ms + ms)
    for key in LINE[:2]:
        node.do("PEXPIRE", key, 2_000)
    node.do("SET", "register", len(kept), "PX", HOUR)
    node.watch(*(f"wake:{who}" for who in kept))


def line(node):
    """Who waits, in order, and until when each is kept, in ms from now."""
    order = node.do("ZRANGE", "queue", 0, -1)
    assert set(node.holds["kept"][0]) == set(order)
    return [(who, int(node.do("HGET", "kept", who)) - node.ms) for who in order]


# Tickets


def test_the_first_ticket_is_the_time(node):
    """In µs: tickets are taken more slowly than that."""
    assert ticket(node) == node.us
    assert node.holds == {"register": (str(node.us), HOUR)}
    node.after(1_000)
    assert ticket(node) == node.us - SECOND + 1
    assert node.holds == {"register": (str(node.us - SECOND + 1), HOUR)}


def test_a_register_that_was_lost_begins_behind_all_who_wait(node):
    """Their tickets may be of a node whose clock is ahead."""
    node.do("ZADD", "queue", node.us + 40, "anna")
    node.do("ZADD", "queue", node.us + 41, "boris")
    assert ticket(node) == node.us + 42
    node.do("DEL", "register", "queue")
    node.do("ZADD", "queue", 7, "anna")
    assert ticket(node) == node.us


# Taking


def test_a_free_lock_is_taken(node):
    assert acquire(node, "token") == node.us
    assert node.holds == {"fence": (str(node.us), None), "lock": ("token", 10_000)}


def test_a_lock_without_a_fence(node):
    assert acquire(node, "token", fenced=False) == 1
    assert node.holds == {"lock": ("token", 10_000)}


def test_the_fence_is_the_candidate_within_a_second_of_the_nodes_clock(node):
    """And above whatever was stored."""
    assert acquire(node, "token", candidate=node.us + 5 * SECOND) == node.us + SECOND
    node.do("DEL", "lock")
    assert acquire(node, "token") == node.us + SECOND + 1
    node.do("DEL", "lock", "fence")
    assert acquire(node, "token", candidate=5) == node.us - SECOND
    assert node.holds["fence"] == (str(node.us - SECOND), None)


def test_a_lock_that_is_held(node):
    """Nothing changes for one that does not queue; it is told when that does."""
    node.do("SET", "lock", "holder", "PX", 7_000)
    before = node.holds
    assert acquire(node, "token") == ["holder", 7_000, 0]
    assert node.holds == before
    assert node.tells_the_client_of("lock") == ["lock"]


def test_who_queues_has_a_place_also_where_it_is_refused(node):
    """The first is told when the lock is freed."""
    node.do("SET", "lock", "holder", "PX", 7_000)
    assert acquire(node, "token", "anna", 7) == ["holder", 7_000, 0]
    assert node.holds == {
        "kept": ({"anna": str(node.ms + KEPT)}, KEPT),
        "lock": ("holder", 7_000),
        "queue": ({"anna": 7}, KEPT),
        "register": ("7", HOUR),
    }
    assert node.tells_the_client_of("lock") == ["lock"]


def test_the_first_gets_it_and_keeps_its_place(node):
    """Too few nodes may grant it; it leaves when it has the lock."""
    queued(node, anna=500, boris=500)
    assert acquire(node, "token", "anna", 1) == node.us
    assert line(node) == [("anna", KEPT), ("boris", 500)]
    assert node.holds["lock"] == ("token", 10_000)
    assert node.told() == []


def test_nobody_passes_who_is_first(node):
    """Neither one that queues, nor one that does not: it is told who that is, and for how long its place is kept."""
    queued(node, anna=500, boris=500)
    assert acquire(node, "token", "boris", 2) == ["anna", 500, 1]
    assert line(node) == [("anna", 500), ("boris", KEPT)]
    assert acquire(node, "another") == ["anna", 500, 1]
    assert line(node) == [("anna", 500), ("boris", KEPT)]
    assert "lock" not in node.holds
    assert node.told() == []


def test_only_who_queues_behind_is_told_by_a_key_of_its_own(node):
    """And not of the lock, which is nothing to it."""
    queued(node, anna=500, boris=500)
    acquire(node, "token", "boris", 2)
    assert node.tells_the_client_of("wake:boris", "wake:anna", "lock") == ["wake:boris"]


def test_who_does_not_queue_is_told_of_the_holder_rather_than_of_the_first(node):
    """That is what it waits for, if it comes again."""
    queued(node, anna=500)
    node.do("SET", "lock", "holder", "PX", 7_000)
    assert acquire(node, "token") == ["holder", 7_000, 0]
    assert node.tells_the_client_of("lock") == ["lock"]


def test_those_whose_time_is_over_are_gone(node):
    """Whoever asks finds out. The one that is the first by that is told, with a key that does not stay."""
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


def test_a_place_of_which_the_time_is_not_known_is_none(node):
    """The node lost one of its keys."""
    queued(node, anna=500)
    node.do("DEL", "kept")
    assert acquire(node, "token") == node.us


def test_one_whose_place_was_over_comes_back_where_it_was(node):
    """It was away for too long, and nobody has passed it yet."""
    queued(node, anna=500, boris=900)
    node.after(600)
    assert acquire(node, "token", "anna", 1) == node.us
    assert line(node) == [("anna", KEPT), ("boris", 300)]


def test_an_attempt_levels_the_register(node):
    """As high as the highest place here, never lower."""
    node.do("ZADD", "queue", 9, "zoe")
    acquire(node, "token", "anna", 7)
    assert node.holds["register"] == ("9", HOUR)
    node.do("SET", "register", 12)
    acquire(node, "token", "anna", 7)
    assert node.holds["register"] == ("12", HOUR)
    acquire(node, "token", "boris", 20)
    assert node.holds["register"] == ("20", HOUR)


def test_the_queue_is_kept_for_as_long_as_the_longest_place(node):
    """Another client's may be longer."""
    queued(node, anna=2_000)
    acquire(node, "token", "boris", 2)
    assert (node.holds["queue"][1], node.holds["kept"][1]) == (2_000, 2_000)
    node.after(600)
    acquire(node, "token", "boris", 2)
    assert (node.holds["queue"][1], node.holds["kept"][1]) == (KEPT, KEPT)


# Signs of life


def test_places_are_kept(node):
    """And it is told for how long that of the first is."""
    queued(node, anna=500, boris=500, clara=500)
    assert stay(node, boris=2, clara=3) == 500
    assert line(node) == [("anna", 500), ("boris", KEPT), ("clara", KEPT)]
    assert (node.holds["queue"][1], node.holds["kept"][1]) == (2_000, 2_000)
    assert node.told() == []


def test_places_that_were_lost_come_back(node):
    """Each where its ticket says, and nobody is told: they were never the first here."""
    node.watch("wake:anna")
    assert stay(node, boris=9, anna=7) == KEPT
    assert line(node) == [("anna", KEPT), ("boris", KEPT)]
    assert (node.holds["queue"][1], node.holds["kept"][1]) == (KEPT, KEPT)
    assert node.told() == []


def test_a_sign_of_life_levels_the_register(node):
    """As high as the highest place here, never lower."""
    for register in (None, 3, 20):
        node.do(*(("SET", "register", register) if register else ("DEL", "register")))
        node.do("ZADD", "queue", 20, "zoe")
        stay(node, anna=7, boris=9)
        assert node.holds["register"] == ("20", HOUR)
    node.do("SET", "register", 22)
    stay(node, anna=7)
    assert node.holds["register"] == ("22", HOUR)


def test_a_sign_of_life_ends_those_whose_time_is_over(node):
    """The one that is the first by that is told, or it is the caller's, who is answered."""
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


def test_places_of_which_the_time_is_not_known_are_none(node):
    queued(node, anna=500)
    node.do("DEL", "kept")
    assert stay(node, boris=2) == "boris"
    assert line(node) == [("boris", KEPT)]


def test_who_comes_back_before_the_first_is_told_so(node):
    """Its own place was lost, and this node did not know that it is ahead."""
    queued(node, anna=500)
    assert stay(node, zoe=0) == "zoe"
    assert line(node) == [("zoe", KEPT), ("anna", 500)]


# Leaving


def test_the_next_is_told_when_the_first_leaves(node):
    """Nobody else is; and nobody is when another leaves."""
    queued(node, anna=1_000, boris=1_000, clara=1_000)
    assert leave(node, "boris") == 1
    assert node.told() == ["wake:boris"]
    assert line(node) == [("anna", 1_000), ("clara", 1_000)]
    assert leave(node, "anna") == 1
    assert node.told() == ["wake:anna", "wake:clara"]
    assert line(node) == [("clara", 1_000)]
    assert leave(node, "clara") == 1
    assert [key for key in node.holds if key != "register"] == []


def test_one_behind_a_silent_one_is_told_as_well(node):
    """And so on, up to one that was heard of in the last half of the time that a place is kept."""
    queued(node, anna=1_000, boris=749, clara=750, dora=100)
    assert leave(node, "anna") == 1
    assert node.told() == ["wake:anna", "wake:boris", "wake:clara"]
    queued(node, anna=1_000, boris=749, clara=0, dora=100)
    node.do("HDEL", "kept", "boris")
    leave(node, "anna")
    assert node.told() == ["wake:anna", "wake:boris", "wake:clara", "wake:dora"]


def test_who_has_no_place_tells_nobody_but_itself(node):
    """The server is to forget that it wanted to be told."""
    queued(node, anna=100, boris=100)
    node.watch("wake:zoe")
    assert leave(node, "zoe") == 0
    assert node.told() == ["wake:zoe"]
    assert line(node) == [("anna", 100), ("boris", 100)]


def test_a_place_is_given_up_on_a_full_server(node):
    """Nobody can be told there."""
    queued(node, anna=1_000, boris=1_000)
    node.master.oom = True
    assert leave(node, "anna") == 1
    assert line(node) == [("boris", 1_000)]
