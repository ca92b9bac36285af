"""The scripts of semaphores on one node."""

import pytest
from one_node import Refused, granted

SECOND = 1_000_000
MOST = 1_000
"""The maximum number of permits."""


def slots(number):
    return [f"sem:{slot}" for slot in range(number)]


def acquire(node, who, *wanted, permits=3, shown=None, ttl=10_000, hint="", hint_ms=0, candidate=None, fenced=True):
    """`shown` is how many slots the caller passes as keys: all that it knows of."""
    shown = permits if shown is None else shown
    registers = [f"fence:{slot}" for slot in wanted] if fenced else []
    keys = ["sem", "many", *slots(shown), *registers]
    arguments = (permits, shown, who, ttl, candidate or node.us, hint, hint_ms, *wanted)
    reply = node.run("semaphore_acquire", keys, *arguments)
    return granted(node, reply, candidate or node.us if fenced else None)


def extend(node, *leases):
    """Each lease is (slot, token, ttl, permits)."""
    keys = [key for slot, *_ in leases for key in (f"sem:{slot}", "sem")]
    return node.run("semaphore_extend", keys, *(part for _, *lease in leases for part in lease))


def secure(node, who, *mine, ttl=0, permits=3, fence=0):
    registers = [f"fence:{slot}" for slot in mine] if fence else []
    keys = ["sem", *(f"sem:{slot}" for slot in mine), *registers]
    return node.run("semaphore_reassert", keys, len(mine), who, ttl, permits, fence)


def retain(node, who, *mine, stay=5_000, permits=3):
    return node.run("semaphore_retain", ["sem", *(f"sem:{slot}" for slot in mine)], who, stay, permits)


def taken(node, *who, permits="3", kept=20_000):
    """Let these holders hold the slots from 0, None for a free one, under that number of permits."""
    words = ("PX", kept) if kept else ()
    node.do("SET", "sem", permits, *words)
    for slot, holder in enumerate(who):
        if holder:
            node.do("SET", f"sem:{slot}", holder, "PX", 7_000 + 100 * slot)


# Acquiring


def test_a_free_slot_is_acquired(node):
    """The number of permits is kept for twice the ttl, so that it is rarely written."""
    assert acquire(node, "anna", 1) == node.us
    assert node.holds == {
        "fence:1": (str(node.us), None),
        "sem": ("3", 20_000),
        "sem:1": ("anna", 10_000),
    }


def test_slots_without_a_fence(node):
    assert acquire(node, "anna", 1, 2, fenced=False, candidate=2 * node.us) == 1
    assert node.holds == {"sem": ("3", 20_000), "sem:1": ("anna", 10_000), "sem:2": ("anna", 10_000)}


def test_several_slots_have_one_fence(node):
    """Above the stored value of each."""
    node.do("SET", "fence:2", node.us + 41)
    assert acquire(node, "anna", 0, 2) == node.us + 42
    assert node.holds["fence:0"] == node.holds["fence:2"] == (str(node.us + 42), None)


def test_the_fence_is_like_that_of_a_plain_lock(node):
    """The candidate within a second of the node's clock, and above the stored value."""
    assert acquire(node, "anna", 0, candidate=node.us + 5 * SECOND) == node.us + SECOND
    assert acquire(node, "boris", 1, candidate=5) == node.us - SECOND
    node.do("DEL", "sem:1", "fence:1")
    assert acquire(node, "boris", 1, ttl=4_000, candidate=5) == node.us - SECOND / 2
    node.do("SET", "fence:2", 7)
    assert acquire(node, "clara", 2, candidate=5) == 8


def test_the_number_is_written_once_per_ttl(node):
    """And not by every holder."""
    taken(node, kept=10_000)
    acquire(node, "anna", 0)
    assert node.holds["sem"] == ("3", 10_000)
    node.after(1)
    acquire(node, "boris", 1)
    assert node.holds["sem"] == ("3", 20_000)


def test_a_held_slot_is_refused(node):
    """The reply has its holder, when the next slot expires, and the free ones; the caller tracks the slot."""
    taken(node, "boris", "clara", None, "dora", permits="4")
    before = node.holds
    assert acquire(node, "anna", 1, permits=4) == ["clara", 7_000, 2]
    assert node.holds == before
    assert node.tells_the_client_of("sem:1") == ["sem:1"]


def test_several_slots_with_one_of_them_held(node):
    """All or none. The time is when enough of them have expired."""
    taken(node, "boris", "clara", None, "dora", permits="4")
    before = node.holds
    assert acquire(node, "anna", 2, 0, permits=4) == ["boris", 7_000, 2]
    assert acquire(node, "anna", 0, 1, 2, permits=4) == ["boris", 7_100, 2]
    assert acquire(node, "anna", 0, 1, 2, 3, permits=4) == ["boris", 7_300, 2]
    assert node.holds == before


def test_a_slot_in_its_last_millisecond_is_held(node):
    taken(node, "boris", "clara", permits="2")
    node.after(7_000)
    assert acquire(node, "anna", 0, permits=2) == ["boris", 0]


def test_a_slot_without_an_expiry(node):
    """It was set by hand, so it never expires. The others count."""
    taken(node, "boris", None, permits="2")
    node.do("SET", "sem:0", "boris")
    assert acquire(node, "anna", 0, permits=2) == ["boris", -1, 1]
    taken(node, None, "clara", permits="2")
    assert acquire(node, "anna", 0, permits=2) == ["boris", 7_100]


def test_enough_slots_may_be_free_though_not_the_wanted_ones(node):
    """The caller chooses again among them immediately."""
    taken(node, "boris", None, None)
    assert acquire(node, "anna", 0) == ["boris", 7_000, 1, 2]


def test_slots_beyond_the_number_are_not_returned(node):
    """The caller passes them because they may be held under another number."""
    taken(node, "boris", None, permits="2")
    assert acquire(node, "anna", 0, permits=2, shown=4) == ["boris", 7_000, 1]


# Permits


def test_another_number_is_refused_while_a_slot_is_held(node):
    """The last of them, or the first."""
    taken(node, None, None, "boris")
    with pytest.raises(Refused, match="permits=3"):
        acquire(node, "anna", 0, permits=4)
    node.do("DEL", "sem:2")
    taken(node, "boris")
    before = node.holds
    with pytest.raises(Refused, match=r"^PERMITS it is already in use with permits=3, but permits=2 was requested"):
        acquire(node, "anna", 0, permits=2)
    with pytest.raises(Refused, match=r"^PERMITS it is already in use with permits=3, but permits=4 was requested"):
        acquire(node, "anna", 0, permits=4)
    assert node.holds == before


def test_another_number_is_accepted_when_no_slot_is_held(node):
    """Though one was."""
    taken(node)
    node.do("SET", "fence:1", 7)
    acquire(node, "anna", 1, permits=4)
    assert node.holds["sem"] == ("4", 20_000)


def test_a_larger_number_asks_for_its_slots(node):
    """One of them may be held."""
    taken(node, None, None, "boris")
    assert acquire(node, "anna", 0, permits=2) == [3]
    with pytest.raises(Refused, match="permits=3"):
        acquire(node, "anna", 0, permits=2, shown=3)
    node.do("DEL", "sem:2")
    assert acquire(node, "anna", 0, permits=2, shown=3) == node.us
    assert node.holds["sem"] == ("2", 20_000)


def test_a_number_of_another_program(node):
    """It asks for no more slots than the maximum, or for none."""
    taken(node, permits="1000000")
    assert acquire(node, "anna", 0) == [MOST]
    taken(node, permits="nonsense")
    assert acquire(node, "anna", 0) == node.us
    assert node.holds["sem"] == ("3", 20_000)


def test_an_operators_number_stays(node):
    """Another number is refused; this one is neither replaced nor extended."""
    taken(node, None, "boris", permits="3:operator", kept=None)
    with pytest.raises(Refused, match=r"^PERMITS it was set to permits=3, but permits=4 was requested"):
        acquire(node, "anna", 0, permits=4)
    assert acquire(node, "anna", 0, shown=4) == node.us
    assert node.holds["sem"] == ("3:operator", None)


# Waiters for many slots


def test_a_refused_waiter_for_many_slots_leaves_a_reservation(node):
    """If it asks for one. Waiters for fewer must then wait, and learn how long."""
    taken(node, "boris")
    assert acquire(node, "anna", 0, 1) == ["boris", 7_000, 1, 2]
    assert "many" not in node.holds
    assert acquire(node, "anna", 0, 1, hint="2:anna", hint_ms=3_000) == ["boris", 7_000, 1, 2]
    assert node.holds["many"] == ("2:anna", 3_000)
    assert node.tells_the_client_of("many") == ["many"]
    assert acquire(node, "anna", 0, 1, hint="2:anna", hint_ms=3_000)
    before = node.holds
    assert acquire(node, "clara", 1) == [2, 3_000, "2:anna"]
    assert node.holds == before


def test_no_reservation_is_left_without_a_refusal(node):
    assert acquire(node, "anna", 0, 1, hint="2:anna", hint_ms=3_000) == node.us
    assert "many" not in node.holds


def test_its_reservation_is_only_renewed_on_request(node):
    """Each change wakes the waiters behind it."""
    taken(node, "boris")
    node.do("SET", "many", "2:anna", "PX", 1_000)
    assert acquire(node, "anna", 0, 1, hint="2:anna") == ["boris", 7_000, 1, 2]
    assert node.holds["many"] == ("2:anna", 1_000)
    assert acquire(node, "anna", 0, 1, hint="2:anna", hint_ms=3_000) == ["boris", 7_000, 1, 2]
    assert node.holds["many"] == ("2:anna", 3_000)


def test_a_waiter_for_more_slots_goes_first(node):
    """Its reservation replaces that of a waiter for fewer, and not the other way round."""
    taken(node, "boris")
    node.do("SET", "many", "2:anna", "PX", 1_000)
    acquire(node, "clara", 0, 1, 2, hint="3:clara", hint_ms=3_000)
    assert node.holds["many"] == ("3:clara", 3_000)
    assert acquire(node, "anna", 1, 2, hint="2:anna", hint_ms=3_000) == [3, 3_000, "3:clara"]
    assert node.holds["many"] == ("3:clara", 3_000)


def test_among_waiters_for_as_many_slots_one_goes_first(node):
    """The same one on all nodes: the one with the smaller reservation. One without goes behind."""
    taken(node, "boris")
    node.do("SET", "many", "2:anna", "PX", 1_000)
    assert acquire(node, "boris", 1, 2) == [2, 1_000, "2:anna"]
    assert acquire(node, "clara", 1, 2, hint="2:clara", hint_ms=3_000) == [2, 1_000, "2:anna"]
    node.do("SET", "many", "2:clara", "PX", 1_000)
    assert acquire(node, "anna", 1, 2, hint="2:anna", hint_ms=3_000) == node.us


def test_the_first_one_does_not_replace_the_others_reservation(node):
    """If it finds no free slots, the reply has the reservation and a holder."""
    taken(node, "boris")
    node.do("SET", "many", "2:clara", "PX", 1_000)
    assert acquire(node, "anna", 0, 1, hint="2:anna", hint_ms=3_000) == [2, 1_000, "2:clara"]
    assert node.holds["many"] == ("2:clara", 1_000)


def test_its_own_reservation_does_not_block_it(node):
    node.do("SET", "many", "2:anna", "PX", 1_000)
    assert acquire(node, "anna", 0, 1, hint="2:anna", hint_ms=3_000) == node.us


def test_a_waiter_for_one_slot_blocks_no_other(node):
    """Though it has left a reservation before."""
    node.do("SET", "many", "1:anna", "PX", 1_000)
    assert acquire(node, "boris", 0, 1) == node.us


# Extending


def test_a_slot_is_extended_with_its_number(node):
    """Each only where it is too short; the caller is notified of later changes."""
    taken(node, "anna", kept=8_000)
    assert extend(node, (0, "anna", 9_000, 3)) == [1]
    assert node.holds == {"sem": ("3", 18_000), "sem:0": ("anna", 9_000)}
    assert node.tells_the_client_of("sem:0") == ["sem:0"]


def test_nothing_is_written_where_it_is_long_enough(node):
    taken(node, "anna", kept=7_000)
    before = node.holds
    node.watch("sem", "sem:0")
    for ttl in (7_000, 1_000, 0):
        assert extend(node, (0, "anna", ttl, 3)) == [1]
    assert node.told() == []
    assert node.holds == before


def test_a_check_extends_nothing(node):
    """Nor does it set a number."""
    node.do("SET", "sem:0", "anna", "PX", 7_000)
    assert extend(node, (0, "anna", 0, 3)) == [1]
    assert node.holds == {"sem:0": ("anna", 7_000)}


def test_a_lost_number_is_set_again(node):
    node.do("SET", "sem:0", "anna", "PX", 7_000)
    assert extend(node, (0, "anna", 9_000, 3)) == [1]
    assert node.holds["sem"] == ("3", 18_000)


def test_a_number_is_kept_to_its_last_millisecond(node):
    taken(node, "anna", kept=1_000)
    node.after(1_000)
    assert extend(node, (0, "anna", 9_000, 3)) == [1]
    assert node.holds["sem"] == ("3", 18_000)


def test_an_operators_number_is_not_replaced(node):
    taken(node, "anna", permits="4:operator", kept=None)
    assert extend(node, (0, "anna", 9_000, 3)) == [1]
    assert node.holds["sem"] == ("4:operator", None)


def test_a_node_that_cannot_store_the_number_does_not_count(node):
    """Another client could use another number there. After a write that extends the lease, it can."""
    node.do("SET", "sem:0", "anna", "PX", 9_000)
    node.master.oom = True
    assert extend(node, (0, "anna", 9_000, 3)) == [0]
    assert extend(node, (0, "anna", 9_001, 3)) == [1]


def test_each_of_many_slots_has_its_own_state(node):
    """Ours, missing, or another holder's, such as a key of another type."""
    taken(node, "boris", None, None, "anna")
    node.do("HSET", "sem:1", "another", "type")
    leases = [(0, "anna", 9_000, 3), (1, "anna", 9_000, 3), (2, "anna", 9_000, 3), (3, "anna", 9_000, 3)]
    assert extend(node, *leases) == [-1, -1, 0, 1]
    assert node.holds["sem:0"] == ("boris", 7_000)
    assert node.holds["sem:3"] == ("anna", 9_000)


# Reasserting


def test_the_fence_is_stored_where_it_is_higher(node):
    taken(node, "anna")
    for stored, after in ((7, 9), (9, 9), (11, 11)):
        node.do("SET", "fence:0", stored)
        assert secure(node, "anna", 0, fence=9) == 1
        assert node.holds == {"fence:0": (str(after), None), "sem": ("3", 20_000), "sem:0": ("anna", 7_000)}
    node.do("DEL", "fence:0")
    assert secure(node, "anna", 0, fence=node.us + 9) == 1
    assert node.holds["fence:0"] == (str(node.us + 9), None)
    assert node.tells_the_client_of("sem:0", "fence:0") == ["sem:0"]


def test_nothing_is_stored_where_not_all_slots_are_ours(node):
    taken(node, "anna", None, "boris")
    before = node.holds
    assert secure(node, "anna", 0, 1, fence=9) == 0
    assert secure(node, "anna", 1, 0, fence=9) == 0
    assert secure(node, "anna", 0, 2, fence=9) == 0
    assert secure(node, "anna", 0, 2, fence=9, ttl=10_000) == 0
    assert node.holds == before


def test_a_lost_slot_is_set_again(node):
    """With the number of permits; other slots stay as they are."""
    node.do("SET", "sem:1", "anna", "PX", 7_000)
    assert secure(node, "anna", 0, 1, 2, ttl=10_000, fence=node.us + 9) == 1
    fence = (str(node.us + 9), None)
    assert node.holds == {
        "fence:0": fence,
        "fence:1": fence,
        "fence:2": fence,
        "sem": ("3", 20_000),
        "sem:0": ("anna", 10_000),
        "sem:1": ("anna", 7_000),
        "sem:2": ("anna", 10_000),
    }
    assert node.tells_the_client_of(*slots(3)) == slots(3)


def test_nothing_is_set_again_under_another_number(node):
    """Other clients may hold slots under that."""
    for permits, kept in (("4", 20_000), ("4:operator", None)):
        taken(node, permits=permits, kept=kept)
        before = node.holds
        assert secure(node, "anna", 0, ttl=10_000) == 0
        assert node.holds == before


def test_its_number_is_kept_as_long_as_the_slot(node):
    """A number that is kept for longer, or was set by an operator, stays as it is."""
    for permits, kept, after in (
        ("3", 9_999, ("3", 20_000)),
        ("3", 10_000, ("3", 10_000)),
        ("3:operator", None, ("3:operator", None)),
    ):
        taken(node, permits=permits, kept=kept)
        node.do("DEL", "sem:0")
        assert secure(node, "anna", 0, ttl=10_000) == 1
        assert node.holds == {"sem": after, "sem:0": ("anna", 10_000)}


# Expiring


def test_our_slot_expires(node):
    """And the number of permits stays for as long."""
    taken(node, "anna", "boris", "anna", kept=4_000)
    assert retain(node, "anna", 0, 1, 2) == 2
    assert node.holds == {
        "sem": ("3", 5_000),
        "sem:0": ("anna", 5_000),
        "sem:1": ("boris", 7_100),
        "sem:2": ("anna", 5_000),
    }


def test_a_number_that_is_kept_for_longer_stays(node):
    for permits, kept in (("3", 5_000), ("3:operator", None)):
        taken(node, "anna", permits=permits, kept=kept)
        node.watch("sem")
        assert retain(node, "anna", 0) == 1
        assert node.told() == []


def test_a_lost_number_is_set_again_for_a_while(node):
    node.do("SET", "sem:0", "anna", "PX", 7_000)
    assert retain(node, "anna", 0) == 1
    assert node.holds["sem"] == ("3", 5_000)
    node.after(5_000)
    assert retain(node, "anna", 0) == 1
    assert node.holds["sem"] == ("3", 5_000)


def test_without_a_slot_no_number_is_left(node):
    assert retain(node, "anna", 0) == 0
    assert node.holds == {}


# Operators: the number


def change(node, new, before=""):
    return node.run("semaphore_change", ("sem",), new, before)


def test_a_number_is_set(node):
    """Permanently, in place of one from clients, or of none; the reply has the old one."""
    assert change(node, "4:one") == [1, None]
    assert node.holds == {"sem": ("4:one", None)}
    taken(node, "anna", permits="3")
    assert change(node, "1:two") == [1, "3"]
    assert node.holds["sem"] == ("1:two", None)
    assert change(node, "5:three", before="1:two") == [1, "1:two"]


def test_another_operators_number_is_not_replaced(node):
    """It may have been set since the caller looked."""
    taken(node, permits="4:one", kept=None)
    assert change(node, "5:two") == [0]
    assert change(node, "5:two", before="4:another") == [0]
    taken(node, permits="3")
    assert change(node, "5:two", before="4:one") == [0]
    assert node.holds == {"sem": ("3", 20_000)}


def test_no_held_slot_is_cut_off(node):
    taken(node, "anna", "boris", "clara")
    assert change(node, "1:one") == [-1, 1, "boris", 7_100]
    assert change(node, "2:one") == [-1, 2, "clara", 7_200]
    assert node.holds["sem"] == ("3", 20_000)
    assert change(node, "3:one") == [1, "3"]


def test_at_most_the_maximum_of_slots_is_checked(node):
    """A larger number was not written by this library, and would keep the server busy for long."""
    node.do("SET", f"sem:{MOST}", "anna")
    taken(node, permits="100000000")
    assert node.run("semaphore_inspect", ("sem",)) == ["100000000"]
    assert node.run("semaphore_force", ("sem",), "nobody", 1_500) == []
    assert change(node, "999:one") == [1, "100000000"]
    taken(node, permits="100000000:one")
    node.do("PEXPIRE", f"sem:{MOST}", 9_000)
    assert forget(node, "100000000:one") == 1
    assert node.holds["sem"] == ("100000000", 6_000)


def test_without_a_number_there_are_no_slots(node):
    """Even if keys have the names of slots."""
    node.do("SET", "sem:0", "anna")
    assert node.run("semaphore_inspect", ("sem",)) == [None]
    assert node.run("semaphore_force", ("sem",), "nobody", 1_500) == []
    assert change(node, "0:one") == [1, None]


def unchange(node, stored, before=""):
    return node.run("semaphore_restore", ("sem",), stored, before, 6_000)


def test_a_change_is_undone(node):
    """The old value returns: none, an operator's, which stays, or the clients', which expires."""
    for before, after in (("", {}), ("3:one", {"sem": ("3:one", None)}), ("3", {"sem": ("3", 6_000)})):
        node.do("SET", "sem", "4:two")
        assert unchange(node, "4:two", before) == 1
        assert node.holds == after


def test_a_number_that_was_set_since_is_not_undone(node):
    for stored in (None, "5:three"):
        if stored:
            node.do("SET", "sem", stored)
        before = node.holds
        assert unchange(node, "4:two", "3") == 0
        assert node.holds == before


def forget(node, *stored):
    return node.run("semaphore_forget", ("sem",), 6_000, *stored)


def test_a_number_is_reset(node):
    """It then expires when it is not used, but not before the last slot that is held under it."""
    taken(node, permits="3:one", kept=None)
    assert forget(node, "3:two", "3:one") == 1
    assert node.holds == {"sem": ("3", 6_000)}
    taken(node, None, "anna", "boris", permits="3:one", kept=None)
    assert forget(node, "3:one") == 1
    assert node.holds["sem"] == ("3", 7_200)
    taken(node, permits="3:one", kept=None)
    node.do("SET", "sem:0", "anna", "PX", 9_000)
    assert forget(node, "3:one") == 1
    assert node.holds["sem"] == ("3", 9_000)


def test_no_other_number_is_reset(node):
    assert forget(node, "3:one") == 0
    taken(node, permits="4:two", kept=None)
    assert forget(node, "3:one") == 0
    assert node.holds == {"sem": ("4:two", None)}


# Operators: the slots


def test_the_held_slots_are_returned(node):
    assert node.run("semaphore_inspect", ("sem",)) == [None]
    taken(node, "anna", None, "boris", permits="3:one")
    assert node.run("semaphore_inspect", ("sem",)) == ["3:one", [0, "anna", 7_000], [2, "boris", 7_200]]
    taken(node, permits="2")
    assert node.run("semaphore_inspect", ("sem",)) == ["2", [0, "anna", 7_000]]


def test_all_slots_are_freed(node):
    """The number stays."""
    assert node.run("semaphore_force", ("sem",), "nobody", 1_500) == []
    taken(node, "anna", None, "boris")
    assert node.run("semaphore_force", ("sem",), "nobody", 1_500) == [0, 2]
    assert node.holds == {"sem": ("3", 20_000), "sem:0": ("nobody", 1_500), "sem:2": ("nobody", 1_500)}


def test_all_slots_are_freed_on_a_full_server(node):
    """That is when operators need it."""
    taken(node, "anna", None, "boris")
    node.master.oom = True
    assert node.run("semaphore_force", ("sem",), "nobody", 1_500) == [0, 2]
    assert node.holds == {"sem": ("3", 20_000), "sem:0": ("nobody", 1_500), "sem:2": ("nobody", 1_500)}


# Values of any length from other programs

LONG = "0123456789" * 200


def test_at_most_300_bytes_of_a_holder_or_a_reservation_are_returned_with_a_refusal(node):
    taken(node, LONG)
    assert acquire(node, "anna", 0)[0] == LONG[:300]
    assert node.tells_the_client_of("sem:0") == ["sem:0"]
    hint = f"2:{LONG}"
    node.do("SET", "many", hint, "PX", 3_000)
    assert acquire(node, "anna", 1) == [2, 3_000, hint[:300]]
    taken(node, "boris")
    assert acquire(node, "anna", 0, 1, hint="2:0") == [2, 3_000, hint[:300]]


def test_at_most_20_bytes_of_another_number_are_returned(node):
    taken(node, "boris", permits=LONG)
    with pytest.raises(Refused, match=rf"^PERMITS it is already in use with permits={LONG[:20]}, but "):
        acquire(node, "anna", 1)
    taken(node, permits=f"{LONG[:19]}:one")
    with pytest.raises(Refused, match=rf"^PERMITS it was set to permits={LONG[:19]}, but "):
        acquire(node, "anna", 1)
    # 20 digits and more cannot be an operator's number.
    taken(node, permits=f"{LONG[:20]}:one")
    node.do("DEL", "sem:0")
    assert acquire(node, "anna", 1) == node.us


def test_at_most_1024_bytes_of_each_value_are_returned_to_operators(node):
    taken(node, LONG, permits=f"1:{LONG}")
    bound = f"1:{LONG}"[:1024]
    assert node.run("semaphore_inspect", ("sem",)) == [bound, [0, LONG[:1024], 7_000]]
    assert change(node, "0:one", f"1:{LONG}") == [-1, 0, LONG[:1024], 7_000]
    assert change(node, "1:one", f"1:{LONG}") == [1, bound]
