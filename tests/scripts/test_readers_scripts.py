"""The scripts of readers and writers on one node."""

import pytest
from one_node import MARK, Refused, granted

SECOND = 1_000_000
KEYS = ("lock", "readers", "hint", "fence")
STAY = 11_000
"""Ms that the lock key of a reader with a ttl of 10,000 is kept: longer, so that not every renewal changes it."""


def read(node, who, ttl=10_000, *, candidate=None, beside=""):
    reply = node.run("read_acquire", KEYS, who, ttl, MARK, candidate or node.us, beside)
    return granted(node, reply, candidate or node.us, shared=True)


def write(node, who, ttl=10_000, *, hint="", candidate=None, fenced=True):
    keys = KEYS if fenced else KEYS[:3]
    reply = node.run("write_acquire", keys, who, ttl, MARK, hint, 3_000, candidate or node.us)
    return granted(node, reply, candidate or node.us if fenced else None)


def leave(node, who, stay=0):
    return node.run("read_release", KEYS[:2], who, stay, MARK)


def secure(node, who, fence, ttl=0):
    return node.run("read_reassert", ("lock", "readers", "fence"), who, ttl, MARK, fence)


def extend(node, *leases):
    keys = [key for _ in leases for key in ("lock", "readers", "alarm")]
    return node.run("read_extend", keys, MARK, *(part for lease in leases for part in lease))


def downgrade(node, who, ttl=10_000, fence=0):
    return node.run("write_downgrade", ("lock", "readers", "fence", "alarm"), who, ttl, MARK, fence)


def held(node, **readers):
    """Add readers that expire in that many ms, with a lock key that expires in STAY."""
    node.do("SET", "lock", MARK, "PX", STAY)
    for who, ms in readers.items():
        node.do("ZADD", "readers", node.ms + ms, who)
    node.do("PEXPIRE", "readers", STAY)


# Reading


def test_the_first_reader(node):
    """It raises the register, as a writer does, and sets the lock key, which excludes all but readers."""
    assert read(node, "anna") == node.us
    assert node.holds == {
        "fence": (str(node.us), None),
        "lock": (MARK, STAY),
        "readers": ({"anna": node.ms + 10_000}, STAY),
    }
    assert node.tells_the_client_of(*KEYS) == ["hint", "lock"]


def test_a_joining_reader_shares_the_fence(node):
    """It changes neither the lock key, which would wake all waiters, nor the register."""
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


def test_a_longer_reader_extends_the_lock_key(node):
    """By the second that it is kept longer; of a short ttl by half of that."""
    read(node, "anna", 1_000)
    assert node.holds["lock"] == (MARK, 1_500)
    assert node.holds["readers"] == ({"anna": node.ms + 1_000}, 1_500)
    read(node, "boris")
    assert node.holds["lock"] == (MARK, STAY)
    assert node.holds["readers"] == ({"anna": node.ms + 1_000, "boris": node.ms + 10_000}, STAY)


def test_the_lock_key_is_only_extended_where_it_is_too_short(node):
    """Exact to a millisecond."""
    held(node, anna=STAY)
    node.after(1_000)
    read(node, "boris")
    assert node.holds["lock"] == (MARK, 10_000)
    node.after(1)
    read(node, "clara")
    assert node.holds["lock"] == (MARK, STAY)


def test_a_joining_reader_removes_expired_ones(node):
    """And no others."""
    held(node, anna=1_000, boris=5_000)
    node.do("SET", "fence", 7)
    node.after(1_000)
    assert read(node, "clara") == 7
    assert node.holds["readers"][0] == {"boris": node.ms + 4_000, "clara": node.ms + 10_000}


def test_readers_from_before_a_force_release_are_removed(node):
    """Also if the lock key was deleted by hand."""
    held(node, anna=10_000)
    node.do("DEL", "lock")
    node.do("SET", "fence", 7)
    assert read(node, "boris") == node.us
    assert node.holds["readers"] == ({"boris": node.ms + 10_000}, STAY)


def test_a_reader_after_expired_ones_is_a_first_reader(node):
    """Though the lock key still exists: a writer may have come and gone on other nodes."""
    held(node, anna=1_000)
    node.do("SET", "fence", 7)
    node.after(1_000)
    assert read(node, "boris", candidate=node.us) == node.us
    assert node.holds["readers"] == ({"boris": node.ms + 10_000}, 10_000)
    assert node.holds["fence"] == (str(node.us), None)


def test_readers_of_a_node_that_has_lost_the_register(node):
    """It starts again at the time, and no key with the value zero stays."""
    held(node, anna=10_000)
    assert read(node, "boris", candidate=5) == node.us - SECOND
    assert node.holds["fence"] == (str(node.us - SECOND), None)


def test_the_first_readers_fence_is_like_that_of_a_plain_lock(node):
    """The candidate within a second of the node's clock, and above the stored value."""
    assert read(node, "anna", candidate=node.us + 5 * SECOND) == node.us + SECOND
    node.do("DEL", "lock")
    assert read(node, "anna", candidate=node.us) == node.us + SECOND + 1
    node.do("DEL", "lock", "fence")
    assert read(node, "anna", 4_000, candidate=5) == node.us - SECOND / 2
    node.do("DEL", "lock", "fence")
    assert read(node, "anna", candidate=node.us - 5 * SECOND) == node.us - SECOND
    node.do("DEL", "lock")
    node.do("SET", "fence", 7)
    assert read(node, "anna", candidate=5) == 8
    assert node.holds["fence"] == ("8", None)


def test_a_reader_is_refused_by_a_writer(node):
    """It is notified of the writer's end, and of a reservation."""
    node.do("SET", "lock", "walter", "PX", 7_000)
    before = node.holds
    assert read(node, "anna") == ["walter", 7_000]
    assert node.holds == before
    assert node.tells_the_client_of(*KEYS) == ["hint", "lock"]


def test_a_reader_waits_for_a_waiting_writer(node):
    """The lock key then only changes as readers renew or leave, which does not concern it."""
    held(node, anna=10_000)
    node.do("SET", "hint", "walter", "PX", 3_000)
    before = node.holds
    assert read(node, "boris") == [None, 3_000]
    assert node.holds == before
    assert node.tells_the_client_of(*KEYS) == ["hint"]


def test_a_task_that_reads_already_does_not_wait(node):
    """The writer waits for it, so it must not wait for the writer."""
    held(node, anna=10_000)
    node.do("SET", "fence", 7)
    node.do("SET", "hint", "walter", "PX", 3_000)
    assert read(node, "anna's second", beside="nobody's") == [None, 3_000]
    assert read(node, "anna's second", beside="anna") == 7
    assert node.holds["readers"][0] == {"anna": node.ms + 10_000, "anna's second": node.ms + 10_000}


def test_a_task_that_reads_elsewhere_joins_where_no_writer_waits(node):
    """Its other lease need not be on this node."""
    assert read(node, "anna's second", beside="anna") == node.us


def test_a_full_server_still_makes_readers_wait(node):
    """The refusal is not a failure of that server."""
    held(node, anna=10_000)
    node.do("SET", "hint", "walter", "PX", 3_000)
    node.master.oom = True
    assert read(node, "boris") == [None, 3_000]


# Leaving


def test_the_last_reader_frees_the_lock(node):
    held(node, anna=10_000)
    assert leave(node, "anna") == 1
    assert node.holds == {}


def test_other_readers_stay(node):
    """The caller, perhaps another task that waits for them, is notified when the lock key changes."""
    held(node, anna=10_000, boris=10_000)
    node.watch("lock")
    assert leave(node, "anna") == 1
    assert node.holds == {"lock": (MARK, STAY), "readers": ({"boris": node.ms + 10_000}, STAY)}
    assert node.told() == []
    assert node.tells_the_client_of("lock", "readers") == ["lock"]


def test_a_release_without_a_lease_changes_nothing(node):
    """Nor does it track the lock key: a reader that had to wait tracks the reservation."""
    held(node, anna=10_000)
    before = node.holds
    assert leave(node, "boris") == 0
    assert leave(node, "boris", stay=2_000) == 0
    assert node.holds == before
    assert "lock" not in node.tells_the_client_of("lock", "readers")


def test_a_release_without_a_lease_frees_an_expired_lock(node):
    """The former readers have expired."""
    held(node, anna=1_000)
    node.after(1_000)
    assert leave(node, "boris") == 0
    assert node.holds == {}


def test_a_writers_lock_is_not_freed_by_former_readers(node):
    """They lost the lock by a force-release."""
    held(node, anna=10_000)
    node.do("SET", "lock", "walter", "PX", 7_000)
    assert leave(node, "anna") == 0
    assert node.holds["lock"] == ("walter", 7_000)
    assert leave(node, "anna", stay=60_000) == 0
    assert node.holds["lock"] == ("walter", 7_000)


def test_readers_left_with_less_time_shorten_the_lock_key(node):
    """If they died, the lock key would block all others for up to a second longer."""
    held(node, anna=10_000, boris=1_000)
    assert leave(node, "anna") == 1
    assert node.holds == {"lock": (MARK, 1_000), "readers": ({"boris": node.ms + 1_000}, 1_000)}
    assert node.tells_the_client_of("lock") == ["lock"]


def test_the_lock_key_is_only_shortened_where_it_is_too_long(node):
    """Each change wakes the waiters."""
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
    """`min_hold`: the lock key stays as long and no longer."""
    held(node, anna=10_000)
    assert leave(node, "anna", stay=4_000) == 1
    assert node.holds == {"lock": (MARK, 4_000), "readers": ({"anna": node.ms + 4_000}, 4_000)}
    node.watch("lock")
    assert leave(node, "anna", stay=4_000) == 1
    assert node.told() == []
    assert leave(node, "anna", stay=60_000) == 1
    assert node.holds == {"lock": (MARK, 60_000), "readers": ({"anna": node.ms + 60_000}, 60_000)}
    assert node.tells_the_client_of("lock") == ["lock"]


def test_a_shorter_stay_than_others_keeps_the_lock_key(node):
    held(node, anna=10_000, boris=10_000)
    assert leave(node, "anna", stay=4_000) == 1
    assert node.holds == {
        "lock": (MARK, STAY),
        "readers": ({"anna": node.ms + 4_000, "boris": node.ms + 10_000}, STAY),
    }


def test_a_leaving_reader_removes_expired_ones(node):
    """Otherwise the last reader would not free the lock."""
    held(node, anna=10_000, boris=1_000)
    node.after(1_000)
    assert leave(node, "anna") == 1
    assert node.holds == {}


# Extending


def test_a_reader_is_extended(node):
    """So is the lock key where it is too short: rarely, because each change wakes the waiters."""
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


def test_each_of_many_leases_has_its_own_state(node):
    """Ours, missing, or another holder's; all of them are checked."""
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


def test_a_reader_of_short_leases_extends_the_lock_key_by_half(node):
    held(node, anna=10_000)
    node.do("PEXPIRE", "lock", 500)
    node.do("ZADD", "readers", node.ms + 500, "anna")
    assert extend(node, ("anna", 600)) == [1]
    assert node.holds == {"lock": (MARK, 900), "readers": ({"anna": node.ms + 600}, 900)}


def test_a_full_server_still_extends(node):
    """After a write that needs no memory it lets a script continue."""
    held(node, anna=10_000)
    node.after(5_000)
    node.master.oom = True
    assert extend(node, ("anna", 10_000)) == [1]
    assert node.holds["readers"][0] == {"anna": node.ms + 10_000}


# Reasserting


def test_the_fence_is_stored_where_it_is_higher(node):
    held(node, anna=10_000)
    node.do("SET", "fence", 7)
    assert secure(node, "anna", 9) == 1
    assert node.holds["fence"] == ("9", None)
    assert secure(node, "anna", 8) == 1
    assert node.holds["fence"] == ("9", None)
    assert node.tells_the_client_of("lock", "readers", "fence") == ["lock"]


def test_nothing_is_stored_where_we_are_not_a_reader(node):
    """Whether another client holds the lock there or not."""
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
    # Its entry among the readers is older than the writer.
    node.do("ZADD", "readers", node.ms + 10_000, "anna")
    node.do("SET", "lock", "walter", "PX", 7_000)
    before = node.holds
    assert secure(node, "anna", 9) == 0
    assert secure(node, "anna", 9, ttl=10_000) == 0
    assert node.holds == before


def test_a_reader_from_before_a_force_release_is_not_reasserted(node):
    """Though it is still among the readers."""
    node.do("ZADD", "readers", node.ms + 10_000, "anna")
    node.do("SET", "fence", 7)
    before = node.holds
    assert secure(node, "anna", 9) == 0
    assert node.holds == before
    assert secure(node, "anna", 9, ttl=10_000) == 1
    assert node.holds["lock"] == (MARK, STAY)


def test_a_lost_reader_is_set_again(node):
    """With the lock key, and above any writer before it."""
    node.do("SET", "fence", 7)
    assert secure(node, "anna", 5, ttl=10_000) == 1
    assert node.holds == {"fence": ("8", None), "lock": (MARK, STAY), "readers": ({"anna": node.ms + 10_000}, STAY)}
    assert node.tells_the_client_of("lock", "readers", "fence") == ["lock"]


def test_a_full_server_accepts_no_lost_reader(node):
    """Just as it accepts no other lost lock."""
    node.master.oom = True
    with pytest.raises(Refused, match="OOM"):
        secure(node, "anna", 5, ttl=10_000)
    assert node.holds == {}


def test_it_is_set_again_without_readers_from_before_a_force_release(node):
    node.do("ZADD", "readers", node.ms + 10_000, "boris")
    assert secure(node, "anna", 0, ttl=1_000) == 1
    assert node.holds["readers"] == ({"anna": node.ms + 1_000}, 1_500)
    assert node.holds["lock"] == (MARK, 1_500)


def test_it_is_set_again_beside_others(node):
    """Their first one has raised the register; the lock key is only extended where it is too short."""
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


def test_it_is_set_again_where_all_others_have_expired(node):
    """It is the first reader then."""
    node.do("SET", "fence", 7)
    held(node, boris=1_000)
    node.after(1_000)
    assert secure(node, "anna", 5, ttl=10_000) == 1
    assert node.holds == {"fence": ("8", None), "lock": (MARK, 10_000), "readers": ({"anna": node.ms + 10_000}, 10_000)}


def test_a_reader_is_not_changed_by_a_repair(node):
    """Only a renewal changes it."""
    node.do("SET", "fence", 7)
    held(node, anna=5_000)
    before = node.holds
    assert secure(node, "anna", 7, ttl=20_000) == 1
    assert node.holds == before


def test_a_lost_register_does_not_start_in_the_past(node):
    held(node, anna=10_000)
    assert secure(node, "anna", 5) == 1
    assert node.holds["fence"] == (str(node.us), None)
    node.do("DEL", "fence")
    assert secure(node, "anna", node.us + 3) == 1
    assert node.holds["fence"] == (str(node.us + 3), None)


# Writing


def test_a_writer_acquires_a_free_lock(node):
    """Like a plain lock; readers from before a force-release are removed."""
    node.do("ZADD", "readers", node.ms + 10_000, "anna")
    assert write(node, "walter", hint="walter") == node.us
    assert node.holds == {"fence": (str(node.us), None), "lock": ("walter", 10_000)}


def test_a_writer_without_a_fence(node):
    assert write(node, "walter", fenced=False, candidate=2 * node.us) == 1
    assert node.holds == {"lock": ("walter", 10_000)}


def test_a_writers_fence(node):
    """The candidate within a second of the node's clock, and above the stored value."""
    assert write(node, "walter", candidate=node.us + 5 * SECOND) == node.us + SECOND
    node.do("DEL", "lock")
    assert write(node, "walter", candidate=5) == node.us + SECOND + 1
    assert node.holds["fence"] == (str(node.us + SECOND + 1), None)
    node.do("DEL", "lock", "fence")
    assert write(node, "walter", ttl=4_000, candidate=5) == node.us - SECOND / 2
    node.do("DEL", "lock", "fence")
    assert write(node, "walter", candidate=5) == node.us - SECOND


def test_a_writer_is_refused_by_another(node):
    """Readers do not block it, so it leaves no reservation."""
    node.do("SET", "lock", "wanda", "PX", 7_000)
    before = node.holds
    assert write(node, "walter", hint="walter") == ["wanda", 7_000]
    assert node.holds == before
    assert node.tells_the_client_of(*KEYS) == ["lock"]


def test_a_writer_is_refused_by_readers(node):
    """It learns when the last of them expires; if it tries once, it leaves no reservation."""
    held(node, anna=1_000, boris=9_000)
    before = node.holds
    assert write(node, "walter") == [MARK, 9_000]
    assert node.holds == before
    assert "lock" in node.tells_the_client_of(*KEYS)


def test_a_waiting_writer_keeps_new_readers_waiting(node):
    """It renews its reservation at half of its time: each change wakes the waiting readers."""
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
    # Readers of the same process track it.
    assert "hint" in node.tells_the_client_of(*KEYS)


def test_a_writer_keeps_anothers_reservation(node):
    """One is enough, and two would take turns in changing it."""
    held(node, anna=10_000)
    node.do("SET", "hint", "wanda", "PX", 100)
    assert write(node, "walter", hint="walter") == [MARK, 10_000]
    assert node.holds["hint"] == ("wanda", 100)


def test_a_writer_acquires_when_all_readers_have_expired(node):
    """The lock key may still exist. The reservation stays until the writer confirms the lock."""
    held(node, anna=1_000)
    node.do("SET", "hint", "walter", "PX", 3_000)
    node.after(1_000)
    assert write(node, "walter", hint="walter") == node.us
    assert node.holds == {
        "fence": (str(node.us), None),
        "hint": ("walter", 2_000),
        "lock": ("walter", 10_000),
    }


# Downgrading


def test_a_writer_becomes_a_reader(node):
    """The register ends above every earlier writer: later readers share it."""
    node.do("SET", "lock", "walter", "PX", 500)
    node.do("SET", "fence", 7)
    node.do("ZADD", "readers", node.ms + 10_000, "somebody from before")
    assert downgrade(node, "walter", fence=7) == 1
    assert node.holds == {"fence": ("8", None), "lock": (MARK, STAY), "readers": ({"walter": node.ms + 10_000}, STAY)}
    assert node.tells_the_client_of("lock", "readers", "fence", "alarm") == ["alarm", "lock"]


def test_its_fence_may_be_above_or_below_the_stored_value(node):
    for fence, stored, after in ((20, 7, 21), (7, 20, 21), (7, 7, 8), (0, 7, 8)):
        node.do("SET", "lock", "walter")
        node.do("SET", "fence", stored)
        assert downgrade(node, "walter", fence=fence) == 1
        assert node.holds["fence"] == (str(after), None)


def test_a_lost_register_starts_at_the_time(node):
    node.do("SET", "lock", "walter")
    assert downgrade(node, "walter", ttl=1_000, fence=7) == 1
    assert node.holds["fence"] == (str(node.us), None)
    assert node.holds["lock"] == (MARK, 1_500)
    node.do("SET", "lock", "walter")
    node.do("DEL", "fence")
    assert downgrade(node, "walter", fence=node.us) == 1
    assert node.holds["fence"] == (str(node.us + 1), None)


def test_only_a_writer_becomes_a_reader(node):
    for lock in ((), ("SET", "lock", "wanda", "PX", 7_000), ("SET", "lock", MARK, "PX", 7_000)):
        if lock:
            node.do(*lock)
        before = node.holds
        assert downgrade(node, "walter") == 0
        assert node.holds == before


LONG = "0123456789" * 200


def test_at_most_300_bytes_of_a_writer_are_returned_with_a_refusal(node):
    """Any program can store a value of any length in the lock's key, or an empty one."""
    for each in (read, write):
        node.do("SET", "lock", LONG, "PX", 7_000)
        assert each(node, "anna") == [LONG[:300], 7_000]
        node.do("SET", "lock", "", "PX", 7_000)
        assert each(node, "anna") == ["", 7_000]
