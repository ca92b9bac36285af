"""What the scripts of readers and writers do on one node."""

import pytest
from one_node import MARK, Refused

SECOND = 1_000_000
KEYS = ("lock", "readers", "hint", "fence")
STAY = 11_000
"""Ms that the lock key of a reader with a ttl of 10,000 is kept: longer, so as not to change at each renewal."""


def read(node, who, ttl=10_000, *, candidate=None, beside=""):
    return node.run("read_acquire", KEYS, who, ttl, MARK, candidate or node.us, beside)


def write(node, who, ttl=10_000, *, hint="", candidate=None, fenced=True):
    keys = KEYS if fenced else KEYS[:3]
    return node.run("write_acquire", keys, who, ttl, MARK, hint, 3_000, candidate or node.us)


def leave(node, who, stay=0):
    return node.run("read_release", KEYS[:2], who, stay, MARK)


def secure(node, who, fence, ttl=0):
    return node.run("read_secure", ("lock", "readers", "fence"), who, ttl, MARK, fence)


def extend(node, *leases):
    keys = [key for _ in leases for key in ("lock", "readers", "alarm")]
    return node.run("read_extend", keys, MARK, *(part for lease in leases for part in lease))


def downgrade(node, who, ttl=10_000, fence=0):
    return node.run("write_downgrade", ("lock", "readers", "fence", "alarm"), who, ttl, MARK, fence)


def held(node, **readers):
    """Have those be readers until so many ms from now, under a lock key that is kept for STAY."""
    node.do("SET", "lock", MARK, "PX", STAY)
    for who, ms in readers.items():
        node.do("ZADD", "readers", node.ms + ms, who)
    node.do("PEXPIRE", "readers", STAY)


# Reading


def test_the_first_reader(node):
    """Raises the register, as a writer would, and sets the lock key for all who are no readers."""
    assert read(node, "anna") == node.us
    assert node.holds == {
        "fence": (str(node.us), None),
        "lock": (MARK, STAY),
        "readers": ({"anna": node.ms + 10_000}, STAY),
    }
    assert node.tells_the_client_of(*KEYS) == ["hint", "lock"]


def test_one_who_joins_shares_the_fence(node):
    """And changes neither the lock key, which would wake all who wait for it, nor the register."""
    read(node, "anna")
    node.after(500)
    node.watch("lock", "readers", "fence")
    assert read(node, "boris", candidate=node.us + 7) == node.us - 500_000
    assert node.holds == {
        "fence": (str(node.us - 500_000), None),
        "lock": (MARK, STAY - 500),
        "readers": ({"anna": node.ms + 9_500, "boris": node.ms + 10_000}, STAY - 500),
    }
    assert node.told() == ["fence", "readers"]
    assert node.tells_the_client_of(*KEYS) == ["hint", "lock"]


def test_one_who_stays_longer_lengthens_the_lock_key(node):
    """By the second that it is kept longer; of a short ttl by half of that."""
    read(node, "anna", 1_000)
    assert node.holds["lock"] == (MARK, 1_500)
    assert node.holds["readers"] == ({"anna": node.ms + 1_000}, 1_500)
    read(node, "boris")
    assert node.holds["lock"] == (MARK, STAY)
    assert node.holds["readers"] == ({"anna": node.ms + 1_000, "boris": node.ms + 10_000}, STAY)


def test_the_lock_key_is_lengthened_only_where_it_is_too_short(node):
    """To the millisecond."""
    held(node, anna=STAY)
    node.after(1_000)
    read(node, "boris")
    assert node.holds["lock"] == (MARK, 10_000)
    node.after(1)
    read(node, "clara")
    assert node.holds["lock"] == (MARK, STAY)


def test_one_who_joins_ends_those_whose_time_is_over(node):
    """Nobody else does."""
    held(node, anna=1_000, boris=5_000)
    node.do("SET", "fence", 7)
    node.after(1_000)
    assert read(node, "clara") == 7
    assert node.holds["readers"][0] == {"boris": node.ms + 4_000, "clara": node.ms + 10_000}


def test_whoever_was_a_reader_before_the_lock_was_freed_is_none_any_more(node):
    """By force, or by hand."""
    held(node, anna=10_000)
    node.do("DEL", "lock")
    node.do("SET", "fence", 7)
    assert read(node, "boris") == node.us
    assert node.holds["readers"] == ({"boris": node.ms + 10_000}, STAY)


def test_a_reader_after_others_that_have_all_run_out_is_a_first_one(node):
    """Though the lock key is still there: a writer may have come and gone on other nodes."""
    held(node, anna=1_000)
    node.do("SET", "fence", 7)
    node.after(1_000)
    assert read(node, "boris", candidate=node.us) == node.us
    assert node.holds["readers"] == ({"boris": node.ms + 10_000}, 10_000)
    assert node.holds["fence"] == (str(node.us), None)


def test_readers_of_a_node_that_has_lost_the_register(node):
    """It begins anew at the time, and no key stays that says zero."""
    held(node, anna=10_000)
    assert read(node, "boris", candidate=5) == node.us - SECOND
    assert node.holds["fence"] == (str(node.us - SECOND), None)


def test_the_fence_is_the_candidate_within_a_second_of_the_nodes_clock(node):
    """And above whatever was stored."""
    assert read(node, "anna", candidate=node.us + 5 * SECOND) == node.us + SECOND
    node.do("DEL", "lock")
    assert read(node, "anna", candidate=node.us) == node.us + SECOND + 1
    node.do("DEL", "lock", "fence")
    assert read(node, "anna", candidate=node.us - 5 * SECOND) == node.us - SECOND
    node.do("DEL", "lock")
    node.do("SET", "fence", 7)
    assert read(node, "anna", candidate=5) == 8
    assert node.holds["fence"] == ("8", None)


def test_a_reader_is_refused_by_a_writer(node):
    """It is told of the writer's end, and of the hint."""
    node.do("SET", "lock", "walter", "PX", 7_000)
    before = node.holds
    assert read(node, "anna") == ["walter", 7_000]
    assert node.holds == before
    assert node.tells_the_client_of(*KEYS) == ["hint", "lock"]


def test_a_reader_is_held_out_by_a_writer_that_waits(node):
    """Then the lock key changes only as readers stay or leave, and that is nothing to it."""
    held(node, anna=10_000)
    node.do("SET", "hint", "walter", "PX", 3_000)
    before = node.holds
    assert read(node, "boris") == [None, 3_000]
    assert node.holds == before
    assert node.tells_the_client_of(*KEYS) == ["hint"]


def test_who_reads_already_is_not_held_out(node):
    """The writer waits for it, so it must not wait for the writer."""
    held(node, anna=10_000)
    node.do("SET", "fence", 7)
    node.do("SET", "hint", "walter", "PX", 3_000)
    assert read(node, "anna's second", beside="nobody's") == [None, 3_000]
    assert read(node, "anna's second", beside="anna") == 7
    assert node.holds["readers"][0] == {"anna": node.ms + 10_000, "anna's second": node.ms + 10_000}


def test_who_read_elsewhere_is_not_held_out_here(node):
    """Where no writer waits it does not matter."""
    assert read(node, "anna's second", beside="anna") == node.us


def test_who_is_held_out_by_a_full_server_is_told_so(node):
    """It is no failure of that server."""
    held(node, anna=10_000)
    node.do("SET", "hint", "walter", "PX", 3_000)
    node.master.oom = True
    assert read(node, "boris") == [None, 3_000]


# Leaving


def test_the_last_reader_frees_the_lock(node):
    held(node, anna=10_000)
    assert leave(node, "anna") == 1
    assert node.holds == {}


def test_the_others_stay(node):
    """And the caller, who may be another task that waits for them, is told when the lock key changes."""
    held(node, anna=10_000, boris=10_000)
    node.watch("lock")
    assert leave(node, "anna") == 1
    assert node.holds == {"lock": (MARK, STAY), "readers": ({"boris": node.ms + 10_000}, STAY)}
    assert node.told() == []
    assert node.tells_the_client_of("lock", "readers") == ["lock"]


def test_who_is_no_reader_leaves_nothing_changed(node):
    """And is not told of the lock key while others read: it may have been held out, and is told of the hint."""
    held(node, anna=10_000)
    before = node.holds
    assert leave(node, "boris") == 0
    assert leave(node, "boris", stay=2_000) == 0
    assert node.holds == before
    assert "lock" not in node.tells_the_client_of("lock", "readers")


def test_who_is_no_reader_frees_a_lock_that_nobody_has(node):
    """Those who had it have run out."""
    held(node, anna=1_000)
    node.after(1_000)
    assert leave(node, "boris") == 0
    assert node.holds == {}


def test_a_writers_lock_is_not_freed_by_readers_of_before(node):
    """They were freed by force."""
    held(node, anna=10_000)
    node.do("SET", "lock", "walter", "PX", 7_000)
    assert leave(node, "anna") == 0
    assert node.holds["lock"] == ("walter", 7_000)
    assert leave(node, "anna", stay=60_000) == 0
    assert node.holds["lock"] == ("walter", 7_000)


def test_those_left_who_run_out_sooner_shorten_the_lock_key(node):
    """They may have died, and the lock key would keep everybody out: for half their time, and a second, at most."""
    held(node, anna=10_000, boris=1_000)
    assert leave(node, "anna") == 1
    assert node.holds == {"lock": (MARK, 1_000), "readers": ({"boris": node.ms + 1_000}, 1_000)}
    assert node.tells_the_client_of("lock") == ["lock"]


def test_the_lock_key_is_shortened_only_where_it_is_too_long(node):
    """Each change wakes who waits for it."""
    for ms, kept in ((10_000, STAY), (9_999, 9_999), (1_000, 1_000)):
        node.do("DEL", "readers")
        held(node, anna=10_000, boris=ms)
        leave(node, "anna")
        assert node.holds["lock"] == (MARK, kept)
    held(node, anna=10_000, boris=1_000)
    node.do("PEXPIRE", "lock", 1_500)
    leave(node, "anna")
    assert node.holds["lock"] == (MARK, 1_500)


def test_a_reader_that_leaves_later_stays_until_then(node):
    """`hold_at_least`: the lock key stays as long, and is no longer in the way than that."""
    held(node, anna=10_000)
    assert leave(node, "anna", stay=4_000) == 1
    assert node.holds == {"lock": (MARK, 4_000), "readers": ({"anna": node.ms + 4_000}, 4_000)}
    node.watch("lock")
    assert leave(node, "anna", stay=4_000) == 1
    assert node.told() == []
    assert leave(node, "anna", stay=60_000) == 1
    assert node.holds == {"lock": (MARK, 60_000), "readers": ({"anna": node.ms + 60_000}, 60_000)}
    assert node.tells_the_client_of("lock") == ["lock"]


def test_who_stays_for_a_shorter_time_than_others_leaves_the_lock_key(node):
    held(node, anna=10_000, boris=10_000)
    assert leave(node, "anna", stay=4_000) == 1
    assert node.holds == {
        "lock": (MARK, STAY),
        "readers": ({"anna": node.ms + 4_000, "boris": node.ms + 10_000}, STAY),
    }


def test_who_leaves_ends_those_whose_time_is_over(node):
    """Or the last of them would not free the lock."""
    held(node, anna=10_000, boris=1_000)
    node.after(1_000)
    assert leave(node, "anna") == 1
    assert node.holds == {}


# Staying


def test_a_reader_is_lengthened(node):
    """And the lock key when it is too short: seldom, as each change wakes who waits for it."""
    held(node, anna=10_000, boris=10_000)
    node.after(1_000)
    node.watch("lock")
    assert extend(node, ("anna", 10_000)) == [1]
    assert node.told() == []
    assert node.holds == {
        "lock": (MARK, 10_000),
        "readers": ({"anna": node.ms + 10_000, "boris": node.ms + 9_000}, 10_000),
    }
    node.after(1)
    assert extend(node, ("anna", 10_000)) == [1]
    assert node.told() == ["lock"]
    assert node.holds == {
        "lock": (MARK, STAY),
        "readers": ({"anna": node.ms + 10_000, "boris": node.ms + 8_999}, STAY),
    }
    assert node.tells_the_client_of("lock", "readers", "alarm") == ["alarm", "lock"]


def test_a_reader_is_never_shortened(node):
    held(node, anna=10_000)
    assert extend(node, ("anna", 2_000), ("anna", 0)) == [1, 1]
    assert node.holds["readers"] == ({"anna": node.ms + 10_000}, STAY)


def test_what_each_of_many_leases_is_told(node):
    """Ours, missing, or somebody else's; and all of them are looked at."""
    held(node, anna=10_000, boris=1_000)
    node.after(1_000)
    assert extend(node, ("boris", 5_000), ("anna", 0), ("clara", 5_000)) == [0, 1, 0]
    assert node.holds["readers"] == ({"anna": node.ms + 9_000}, STAY - 1_000)
    node.do("SET", "lock", "walter")
    assert extend(node, ("anna", 5_000)) == [-1]
    node.do("DEL", "lock")
    assert extend(node, ("anna", 5_000)) == [0]
    node.do("HSET", "lock", "another", "type")
    assert extend(node, ("anna", 5_000)) == [-1]
    node.do("SET", "lock", MARK)
    node.do("SET", "readers", "of another type")
    assert extend(node, ("anna", 5_000)) == [-1]


def test_a_reader_of_short_leases_lengthens_the_lock_key_by_half(node):
    held(node, anna=10_000)
    node.do("PEXPIRE", "lock", 500)
    node.do("ZADD", "readers", node.ms + 500, "anna")
    assert extend(node, ("anna", 600)) == [1]
    assert node.holds == {"lock": (MARK, 900), "readers": ({"anna": node.ms + 600}, 900)}


def test_a_full_server_still_lengthens(node):
    """Behind a write that needs no memory it lets a script go on."""
    held(node, anna=10_000)
    node.after(5_000)
    node.master.oom = True
    assert extend(node, ("anna", 10_000)) == [1]
    assert node.holds["readers"][0] == {"anna": node.ms + 10_000}


# Securing a fence, and repairing


def test_the_fence_is_stored_where_it_is_higher(node):
    held(node, anna=10_000)
    node.do("SET", "fence", 7)
    assert secure(node, "anna", 9) == 1
    assert node.holds["fence"] == ("9", None)
    assert secure(node, "anna", 8) == 1
    assert node.holds["fence"] == ("9", None)
    assert node.tells_the_client_of("lock", "readers", "fence") == ["lock"]


def test_nothing_is_secured_where_we_are_no_reader(node):
    """Whoever holds the lock there, or nobody."""
    node.do("SET", "fence", 7)
    before = node.holds
    assert secure(node, "anna", 9) == 0
    assert node.holds == before
    held(node, boris=10_000, anna=1_000)
    node.after(1_000)
    assert secure(node, "anna", 9) == 0
    assert node.holds == {
        "fence": ("7", None),
        "lock": (MARK, STAY - 1_000),
        "readers": ({"boris": node.ms + 9_000}, STAY - 1_000),
    }
    # Its place among the readers is from before the writer.
    node.do("ZADD", "readers", node.ms + 10_000, "anna")
    node.do("SET", "lock", "walter", "PX", 7_000)
    before = node.holds
    assert secure(node, "anna", 9) == 0
    assert secure(node, "anna", 9, ttl=10_000) == 0
    assert node.holds == before


def test_who_was_freed_is_no_reader_any_more(node):
    """Though its place among the readers is still there."""
    node.do("ZADD", "readers", node.ms + 10_000, "anna")
    node.do("SET", "fence", 7)
    before = node.holds
    assert secure(node, "anna", 9) == 0
    assert node.holds == before
    assert secure(node, "anna", 9, ttl=10_000) == 1
    assert node.holds["lock"] == (MARK, STAY)


def test_a_lost_reader_is_set_again(node):
    """With the lock key, and above whatever writer there may have been before."""
    node.do("SET", "fence", 7)
    assert secure(node, "anna", 5, ttl=10_000) == 1
    assert node.holds == {"fence": ("8", None), "lock": (MARK, STAY), "readers": ({"anna": node.ms + 10_000}, STAY)}
    assert node.tells_the_client_of("lock", "readers", "fence") == ["lock"]


def test_a_full_server_takes_no_lost_reader_back(node):
    """As it takes no other lost lock back."""
    node.master.oom = True
    with pytest.raises(Refused, match="OOM"):
        secure(node, "anna", 5, ttl=10_000)
    assert node.holds == {}


def test_it_comes_back_without_those_who_were_freed(node):
    node.do("ZADD", "readers", node.ms + 10_000, "boris")
    assert secure(node, "anna", 0, ttl=1_000) == 1
    assert node.holds["readers"] == ({"anna": node.ms + 1_000}, 1_500)
    assert node.holds["lock"] == (MARK, 1_500)


def test_it_comes_back_beside_others(node):
    """Whose first has raised the register already; the lock key is lengthened only where it is too short."""
    node.do("SET", "fence", 7)
    held(node, boris=STAY)
    node.after(1_000)
    assert secure(node, "anna", 5, ttl=10_000) == 1
    assert node.holds == {
        "fence": ("7", None),
        "lock": (MARK, 10_000),
        "readers": ({"anna": node.ms + 10_000, "boris": node.ms + 10_000}, 10_000),
    }
    node.do("ZREM", "readers", "anna")
    node.after(1)
    assert secure(node, "anna", 5, ttl=10_000) == 1
    assert node.holds["lock"] == (MARK, STAY)
    assert node.holds["readers"][1] == STAY
    assert node.tells_the_client_of("lock") == ["lock"]


def test_it_comes_back_where_all_others_have_run_out(node):
    """And is the first one then."""
    node.do("SET", "fence", 7)
    held(node, boris=1_000)
    node.after(1_000)
    assert secure(node, "anna", 5, ttl=10_000) == 1
    assert node.holds == {"fence": ("8", None), "lock": (MARK, 10_000), "readers": ({"anna": node.ms + 10_000}, 10_000)}


def test_who_is_a_reader_is_not_changed_by_a_repair(node):
    """That is what a renewal is for."""
    node.do("SET", "fence", 7)
    held(node, anna=5_000)
    before = node.holds
    assert secure(node, "anna", 7, ttl=20_000) == 1
    assert node.holds == before


def test_a_register_that_was_lost_does_not_start_in_the_past(node):
    held(node, anna=10_000)
    assert secure(node, "anna", 5) == 1
    assert node.holds["fence"] == (str(node.us - SECOND), None)
    node.do("DEL", "fence")
    assert secure(node, "anna", node.us) == 1
    assert node.holds["fence"] == (str(node.us), None)


# Writing


def test_a_writer_takes_a_free_lock(node):
    """As a plain lock does; whoever was a reader before it was freed is none any more."""
    node.do("ZADD", "readers", node.ms + 10_000, "anna")
    assert write(node, "walter", hint="walter") == node.us
    assert node.holds == {"fence": (str(node.us), None), "lock": ("walter", 10_000)}


def test_a_writer_without_a_fence(node):
    assert write(node, "walter", fenced=False) == 1
    assert node.holds == {"lock": ("walter", 10_000)}


def test_a_writers_fence(node):
    """The candidate within a second of the node's clock, and above whatever was stored."""
    assert write(node, "walter", candidate=node.us + 5 * SECOND) == node.us + SECOND
    node.do("DEL", "lock")
    assert write(node, "walter", candidate=5) == node.us + SECOND + 1
    assert node.holds["fence"] == (str(node.us + SECOND + 1), None)
    node.do("DEL", "lock", "fence")
    assert write(node, "walter", candidate=5) == node.us - SECOND


def test_a_writer_is_refused_by_another(node):
    """Readers are not in its way, so it leaves no hint."""
    node.do("SET", "lock", "wanda", "PX", 7_000)
    before = node.holds
    assert write(node, "walter", hint="walter") == ["wanda", 7_000]
    assert node.holds == before
    assert node.tells_the_client_of(*KEYS) == ["lock"]


def test_a_writer_is_refused_by_readers(node):
    """It is told when the last of them runs out; trying once, it holds nobody out."""
    held(node, anna=1_000, boris=9_000)
    before = node.holds
    assert write(node, "walter") == [MARK, 9_000]
    assert node.holds == before
    assert "lock" in node.tells_the_client_of(*KEYS)


def test_a_writer_that_waits_holds_readers_out(node):
    """Its hint is renewed when half its time is over: each change tells the readers that are held out."""
    held(node, anna=10_000)
    assert write(node, "walter", hint="walter") == [MARK, 10_000]
    assert node.holds["hint"] == ("walter", 3_000)
    node.after(1_500)
    node.watch("hint")
    assert write(node, "walter", hint="walter") == [MARK, 8_500]
    assert node.holds["hint"] == ("walter", 1_500)
    assert node.told() == []
    node.after(1)
    assert write(node, "walter", hint="walter") == [MARK, 8_499]
    assert node.holds["hint"] == ("walter", 3_000)
    assert node.told() == ["hint"]
    # For readers of the same process.
    assert "hint" in node.tells_the_client_of(*KEYS)


def test_a_writers_hint_is_not_anothers(node):
    """One is enough, and two would take turns in changing it."""
    held(node, anna=10_000)
    node.do("SET", "hint", "wanda", "PX", 100)
    assert write(node, "walter", hint="walter") == [MARK, 10_000]
    assert node.holds["hint"] == ("wanda", 100)


def test_a_writer_gets_in_when_all_readers_have_run_out(node):
    """Though the lock key is kept a little longer. Its hint stays until it says that it has the lock."""
    held(node, anna=1_000)
    node.do("SET", "hint", "walter", "PX", 3_000)
    node.after(1_000)
    assert write(node, "walter", hint="walter") == node.us
    assert node.holds == {
        "fence": (str(node.us), None),
        "hint": ("walter", 2_000),
        "lock": ("walter", 10_000),
    }


# From a writer to a reader


def test_a_writer_becomes_a_reader(node):
    """The register ends above every writer before: those who join share it."""
    node.do("SET", "lock", "walter", "PX", 500)
    node.do("SET", "fence", 7)
    node.do("ZADD", "readers", node.ms + 10_000, "somebody from before")
    assert downgrade(node, "walter", fence=7) == 1
    assert node.holds == {"fence": ("8", None), "lock": (MARK, STAY), "readers": ({"walter": node.ms + 10_000}, STAY)}
    assert node.tells_the_client_of("lock", "readers", "fence", "alarm") == ["alarm", "lock"]


def test_its_fence_may_be_above_or_below_what_is_stored(node):
    for fence, stored, after in ((20, 7, 21), (7, 20, 21), (7, 7, 8), (0, 7, 8)):
        node.do("SET", "lock", "walter")
        node.do("SET", "fence", stored)
        assert downgrade(node, "walter", fence=fence) == 1
        assert node.holds["fence"] == (str(after), None)


def test_a_register_that_was_lost_begins_at_the_time(node):
    node.do("SET", "lock", "walter")
    assert downgrade(node, "walter", ttl=1_000, fence=7) == 1
    assert node.holds["fence"] == (str(node.us - SECOND), None)
    assert node.holds["lock"] == (MARK, 1_500)
    node.do("SET", "lock", "walter")
    node.do("DEL", "fence")
    assert downgrade(node, "walter", fence=node.us) == 1
    assert node.holds["fence"] == (str(node.us + 1), None)


def test_nothing_becomes_a_reader_that_was_no_writer(node):
    for lock in ((), ("SET", "lock", "wanda", "PX", 7_000), ("SET", "lock", MARK, "PX", 7_000)):
        if lock:
            node.do(*lock)
        before = node.holds
        assert downgrade(node, "walter") == 0
        assert node.holds == before
