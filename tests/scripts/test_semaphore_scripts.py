"""What the scripts of semaphores do on one node."""

import pytest
from one_node import Refused

SECOND = 1_000_000
MOST = 1_000
"""Permits that there can be."""


def slots(number):
    return [f"sem:{slot}" for slot in range(number)]


def acquire(node, who, *wanted, permits=3, shown=None, ttl=10_000, hint="", hint_ms=0, candidate=None, fenced=True):
    """`shown` is how many slots the caller gives as keys: all that it knows of."""
    shown = permits if shown is None else shown
    registers = [f"fence:{slot}" for slot in wanted] if fenced else []
    keys = ["sem", "many", *slots(shown), *registers]
    arguments = (permits, shown, who, ttl, candidate or node.us, hint, hint_ms, *wanted)
    return node.run("semaphore_acquire", keys, *arguments)


def extend(node, *leases):
    """Each is (slot, who, ttl, permits)."""
    keys = [key for slot, *_ in leases for key in (f"sem:{slot}", "sem")]
    return node.run("semaphore_extend", keys, *(part for _, *lease in leases for part in lease))


def secure(node, who, *mine, ttl=0, permits=3, fence=0):
    registers = [f"fence:{slot}" for slot in mine] if fence else []
    keys = ["sem", *(f"sem:{slot}" for slot in mine), *registers]
    return node.run("semaphore_secure", keys, len(mine), who, ttl, permits, fence)


def retain(node, who, *mine, stay=5_000, permits=3):
    return node.run("semaphore_retain", ["sem", *(f"sem:{slot}" for slot in mine)], who, stay, permits)


def taken(node, *who, permits="3", kept=20_000):
    """Have those hold slots from 0, None a free one, under that number of permits."""
    words = ("PX", kept) if kept else ()
    node.do("SET", "sem", permits, *words)
    for slot, holder in enumerate(who):
        if holder:
            node.do("SET", f"sem:{slot}", holder, "PX", 7_000 + 100 * slot)


# Taking


def test_a_free_slot_is_taken(node):
    """With it the number of permits is kept, for twice as long, so that it is seldom written."""
    assert acquire(node, "anna", 1) == node.us
    assert node.holds == {
        "fence:1": (str(node.us), None),
        "sem": ("3", 20_000),
        "sem:1": ("anna", 10_000),
    }


def test_slots_without_a_fence(node):
    assert acquire(node, "anna", 1, 2, fenced=False) == 1
    assert node.holds == {"sem": ("3", 20_000), "sem:1": ("anna", 10_000), "sem:2": ("anna", 10_000)}


def test_several_slots_have_one_fence(node):
    """Above what was stored for any of them."""
    node.do("SET", "fence:2", node.us + 41)
    assert acquire(node, "anna", 0, 2) == node.us + 42
    assert node.holds["fence:0"] == node.holds["fence:2"] == (str(node.us + 42), None)


def test_the_fence_is_the_candidate_within_a_second_of_the_nodes_clock(node):
    assert acquire(node, "anna", 0, candidate=node.us + 5 * SECOND) == node.us + SECOND
    assert acquire(node, "boris", 1, candidate=5) == node.us - SECOND
    node.do("SET", "fence:2", 7)
    assert acquire(node, "clara", 2, candidate=5) == 8


def test_the_number_is_written_once_a_ttl(node):
    """And not by every holder."""
    taken(node, kept=10_000)
    acquire(node, "anna", 0)
    assert node.holds["sem"] == ("3", 10_000)
    node.after(1)
    acquire(node, "boris", 1)
    assert node.holds["sem"] == ("3", 20_000)


def test_a_slot_that_is_held(node):
    """The caller is told who has it, when the next one ends, which are free; and, later, of the change."""
    taken(node, "boris", "clara", None, "dora", permits="4")
    before = node.holds
    assert acquire(node, "anna", 1, permits=4) == ["clara", 7_000, 2]
    assert node.holds == before
    assert node.tells_the_client_of("sem:1") == ["sem:1"]


def test_several_slots_of_which_one_is_held(node):
    """All or none. So many must end that there are enough."""
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


def test_a_slot_that_is_held_for_ever(node):
    """By hand: nobody knows when it ends. Those that end count."""
    taken(node, "boris", None, permits="2")
    node.do("SET", "sem:0", "boris")
    assert acquire(node, "anna", 0, permits=2) == ["boris", -1, 1]
    taken(node, None, "clara", permits="2")
    assert acquire(node, "anna", 0, permits=2) == ["boris", 7_100]


def test_enough_may_be_free_though_not_those_that_are_wanted(node):
    """The caller chooses again among them, at once."""
    taken(node, "boris", None, None)
    assert acquire(node, "anna", 0) == ["boris", 7_000, 1, 2]


def test_slots_beyond_the_number_are_not_told_of(node):
    """Though they were shown, for what may be held there."""
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
    with pytest.raises(Refused, match=r"^PERMITS it is in use with permits=3, and this was to be permits=2$"):
        acquire(node, "anna", 0, permits=2)
    with pytest.raises(Refused, match=r"^PERMITS it is in use with permits=3, and this was to be permits=4$"):
        acquire(node, "anna", 0, permits=4)
    assert node.holds == before


def test_another_number_is_taken_when_no_slot_is_held(node):
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


def test_a_number_that_nobody_here_wrote(node):
    """It asks for no more slots than there can be, or for none."""
    taken(node, permits="1000000")
    assert acquire(node, "anna", 0) == [MOST]
    taken(node, permits="nonsense")
    assert acquire(node, "anna", 0) == node.us
    assert node.holds["sem"] == ("3", 20_000)


def test_what_an_operator_has_set_stays(node):
    """It is refused to whoever brings another; and neither replaced nor kept alive."""
    taken(node, None, "boris", permits="3:operator", kept=None)
    with pytest.raises(Refused, match=r"^PERMITS it was set to permits=3, and this was to be permits=4$"):
        acquire(node, "anna", 0, permits=4)
    assert acquire(node, "anna", 0, shown=4) == node.us
    assert node.holds["sem"] == ("3:operator", None)


# Those who want many


def test_who_wants_many_leaves_a_hint_when_it_is_refused(node):
    """If it asks for that. Those who want fewer are then told to wait, and for how long."""
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


def test_it_leaves_none_when_it_is_not_refused(node):
    assert acquire(node, "anna", 0, 1, hint="2:anna", hint_ms=3_000) == node.us
    assert "many" not in node.holds


def test_its_hint_is_renewed_only_when_it_is_asked_to(node):
    """Each change tells those that it holds back."""
    taken(node, "boris")
    node.do("SET", "many", "2:anna", "PX", 1_000)
    assert acquire(node, "anna", 0, 1, hint="2:anna") == ["boris", 7_000, 1, 2]
    assert node.holds["many"] == ("2:anna", 1_000)
    assert acquire(node, "anna", 0, 1, hint="2:anna", hint_ms=3_000) == ["boris", 7_000, 1, 2]
    assert node.holds["many"] == ("2:anna", 3_000)


def test_who_wants_more_goes_before_who_wants_fewer(node):
    """Its hint takes that one's place; a smaller one takes nobody's."""
    taken(node, "boris")
    node.do("SET", "many", "2:anna", "PX", 1_000)
    acquire(node, "clara", 0, 1, 2, hint="3:clara", hint_ms=3_000)
    assert node.holds["many"] == ("3:clara", 3_000)
    assert acquire(node, "anna", 1, 2, hint="2:anna", hint_ms=3_000) == [3, 3_000, "3:clara"]
    assert node.holds["many"] == ("3:clara", 3_000)


def test_of_those_who_want_as_many_one_goes_first(node):
    """The same one on all nodes: the one with the smaller hint. Who has none goes behind."""
    taken(node, "boris")
    node.do("SET", "many", "2:anna", "PX", 1_000)
    assert acquire(node, "boris", 1, 2) == [2, 1_000, "2:anna"]
    assert acquire(node, "clara", 1, 2, hint="2:clara", hint_ms=3_000) == [2, 1_000, "2:anna"]
    node.do("SET", "many", "2:clara", "PX", 1_000)
    assert acquire(node, "anna", 1, 2, hint="2:anna", hint_ms=3_000) == node.us


def test_one_that_goes_first_does_not_take_the_others_hint(node):
    """It is told of it when it finds no slots, and of who has it."""
    taken(node, "boris")
    node.do("SET", "many", "2:clara", "PX", 1_000)
    assert acquire(node, "anna", 0, 1, hint="2:anna", hint_ms=3_000) == [2, 1_000, "2:clara"]
    assert node.holds["many"] == ("2:clara", 1_000)


def test_its_own_hint_is_not_in_its_way(node):
    node.do("SET", "many", "2:anna", "PX", 1_000)
    assert acquire(node, "anna", 0, 1, hint="2:anna", hint_ms=3_000) == node.us


def test_who_wants_one_is_in_nobodys_way(node):
    """Though it has left a hint once."""
    node.do("SET", "many", "1:anna", "PX", 1_000)
    assert acquire(node, "boris", 0, 1) == node.us


# Keeping


def test_a_slot_is_lengthened_with_its_number(node):
    """Each only where it is too short; the caller is told of later changes."""
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


def test_looking_lengthens_nothing(node):
    """Nor does it set a number."""
    node.do("SET", "sem:0", "anna", "PX", 7_000)
    assert extend(node, (0, "anna", 0, 3)) == [1]
    assert node.holds == {"sem:0": ("anna", 7_000)}


def test_a_number_that_was_lost_is_set_again(node):
    node.do("SET", "sem:0", "anna", "PX", 7_000)
    assert extend(node, (0, "anna", 9_000, 3)) == [1]
    assert node.holds["sem"] == ("3", 18_000)


def test_a_number_is_kept_to_its_last_millisecond(node):
    taken(node, "anna", kept=1_000)
    node.after(1_000)
    assert extend(node, (0, "anna", 9_000, 3)) == [1]
    assert node.holds["sem"] == ("3", 18_000)


def test_a_number_that_an_operator_has_set_is_not_replaced(node):
    taken(node, "anna", permits="4:operator", kept=None)
    assert extend(node, (0, "anna", 9_000, 3)) == [1]
    assert node.holds["sem"] == ("4:operator", None)


def test_a_node_that_cannot_store_the_number_does_not_count(node):
    """Nobody is kept from bringing another one there. Where a lease was lengthened just before, it can."""
    node.do("SET", "sem:0", "anna", "PX", 9_000)
    node.master.oom = True
    assert extend(node, (0, "anna", 9_000, 3)) == [0]
    assert extend(node, (0, "anna", 9_001, 3)) == [1]


def test_what_each_of_many_slots_is_told(node):
    """Ours, missing, or somebody else's, of another type for instance."""
    taken(node, "boris", None, None, "anna")
    node.do("HSET", "sem:1", "another", "type")
    leases = [(0, "anna", 9_000, 3), (1, "anna", 9_000, 3), (2, "anna", 9_000, 3), (3, "anna", 9_000, 3)]
    assert extend(node, *leases) == [-1, -1, 0, 1]
    assert node.holds["sem:0"] == ("boris", 7_000)
    assert node.holds["sem:3"] == ("anna", 9_000)


# Storing a fence, and repairing


def test_the_fence_is_stored_where_it_is_higher(node):
    taken(node, "anna")
    for stored, after in ((7, 9), (9, 9), (11, 11)):
        node.do("SET", "fence:0", stored)
        assert secure(node, "anna", 0, fence=9) == 1
        assert node.holds == {"fence:0": (str(after), None), "sem": ("3", 20_000), "sem:0": ("anna", 7_000)}
    node.do("DEL", "fence:0")
    assert secure(node, "anna", 0, fence=9) == 1
    assert node.holds["fence:0"] == ("9", None)
    assert node.tells_the_client_of("sem:0", "fence:0") == ["sem:0"]


def test_nothing_is_stored_where_not_all_slots_are_ours(node):
    taken(node, "anna", None, "boris")
    before = node.holds
    assert secure(node, "anna", 0, 1, fence=9) == 0
    assert secure(node, "anna", 1, 0, fence=9) == 0
    assert secure(node, "anna", 0, 2, fence=9) == 0
    assert secure(node, "anna", 0, 2, fence=9, ttl=10_000) == 0
    assert node.holds == before


def test_what_was_lost_is_set_again(node):
    """With the number of permits; what was not is left as it is."""
    node.do("SET", "sem:1", "anna", "PX", 7_000)
    assert secure(node, "anna", 0, 1, 2, ttl=10_000, fence=9) == 1
    assert node.holds == {
        "fence:0": ("9", None),
        "fence:1": ("9", None),
        "fence:2": ("9", None),
        "sem": ("3", 20_000),
        "sem:0": ("anna", 10_000),
        "sem:1": ("anna", 7_000),
        "sem:2": ("anna", 10_000),
    }
    assert node.tells_the_client_of(*slots(3)) == slots(3)


def test_nothing_is_set_again_under_another_number(node):
    """Others may hold slots under that."""
    for permits, kept in (("4", 20_000), ("4:operator", None)):
        taken(node, permits=permits, kept=kept)
        before = node.holds
        assert secure(node, "anna", 0, ttl=10_000) == 0
        assert node.holds == before


def test_the_number_it_is_under_is_kept_for_as_long(node):
    """One that is kept for longer, or was set by an operator, is left as it is."""
    for permits, kept, after in (
        ("3", 9_999, ("3", 20_000)),
        ("3", 10_000, ("3", 10_000)),
        ("3:operator", None, ("3:operator", None)),
    ):
        taken(node, permits=permits, kept=kept)
        node.do("DEL", "sem:0")
        assert secure(node, "anna", 0, ttl=10_000) == 1
        assert node.holds == {"sem": after, "sem:0": ("anna", 10_000)}


# Staying for a while


def test_what_is_ours_runs_out(node):
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


def test_a_number_that_was_lost_comes_back_for_a_while(node):
    node.do("SET", "sem:0", "anna", "PX", 7_000)
    assert retain(node, "anna", 0) == 1
    assert node.holds["sem"] == ("3", 5_000)
    node.after(5_000)
    assert retain(node, "anna", 0) == 1
    assert node.holds["sem"] == ("3", 5_000)


def test_who_has_no_slot_leaves_no_number(node):
    assert retain(node, "anna", 0) == 0
    assert node.holds == {}


# Operators: the number


def change(node, new, before=""):
    return node.run("semaphore_change", ("sem",), new, before)


def test_a_number_is_set(node):
    """For good, in place of one that its users brought, or of none; it is told, to be put back if need be."""
    assert change(node, "4:one") == [1, None]
    assert node.holds == {"sem": ("4:one", None)}
    taken(node, "anna", permits="3")
    assert change(node, "1:two") == [1, "3"]
    assert node.holds["sem"] == ("1:two", None)
    assert change(node, "5:three", before="1:two") == [1, "1:two"]


def test_nobody_elses_number_is_replaced(node):
    """It may have been set since the caller looked."""
    taken(node, permits="4:one", kept=None)
    assert change(node, "5:two") == [0]
    assert change(node, "5:two", before="4:another") == [0]
    taken(node, permits="3")
    assert change(node, "5:two", before="4:one") == [0]
    assert node.holds == {"sem": ("3", 20_000)}


def test_no_slot_is_cut_off(node):
    taken(node, "anna", "boris", "clara")
    assert change(node, "1:one") == [-1, 1, "boris", 7_100]
    assert change(node, "2:one") == [-1, 2, "clara", 7_200]
    assert node.holds["sem"] == ("3", 20_000)
    assert change(node, "3:one") == [1, "3"]


def test_no_more_slots_are_looked_at_than_there_can_be(node):
    """A number that is larger was not written by us, and the server would be busy for long."""
    node.do("SET", f"sem:{MOST}", "anna")
    taken(node, permits="100000000")
    assert node.run("semaphore_inspect", ("sem",)) == ["100000000"]
    assert node.run("semaphore_force", ("sem",)) == []
    assert change(node, "999:one") == [1, "100000000"]
    taken(node, permits="100000000:one")
    node.do("PEXPIRE", f"sem:{MOST}", 9_000)
    assert forget(node, "100000000:one") == 1
    assert node.holds["sem"] == ("100000000", 6_000)


def test_without_a_number_there_are_no_slots(node):
    """Whatever is called like one."""
    node.do("SET", "sem:0", "anna")
    assert node.run("semaphore_inspect", ("sem",)) == [None]
    assert node.run("semaphore_force", ("sem",)) == []
    assert change(node, "0:one") == [1, None]


def unchange(node, stored, before=""):
    return node.run("semaphore_unchange", ("sem",), stored, before, 6_000)


def test_a_number_is_taken_back(node):
    """What was there comes back: nothing, an operator's, which stays, or its users', which runs out."""
    for before, after in (("", {}), ("3:one", {"sem": ("3:one", None)}), ("3", {"sem": ("3", 6_000)})):
        node.do("SET", "sem", "4:two")
        assert unchange(node, "4:two", before) == 1
        assert node.holds == after


def test_a_number_that_was_set_since_is_not_taken_back(node):
    for stored in (None, "5:three"):
        if stored:
            node.do("SET", "sem", stored)
        before = node.holds
        assert unchange(node, "4:two", "3") == 0
        assert node.holds == before


def forget(node, *stored):
    return node.run("semaphore_forget", ("sem",), 6_000, *stored)


def test_a_number_is_forgotten(node):
    """It goes when it is not used; not before the last slot that is held under it, whoever has it."""
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


def test_nothing_else_is_forgotten(node):
    assert forget(node, "3:one") == 0
    taken(node, permits="4:two", kept=None)
    assert forget(node, "3:one") == 0
    assert node.holds == {"sem": ("4:two", None)}


# Operators: the slots


def test_which_slots_are_held(node):
    assert node.run("semaphore_inspect", ("sem",)) == [None]
    taken(node, "anna", None, "boris", permits="3:one")
    assert node.run("semaphore_inspect", ("sem",)) == ["3:one", [0, "anna", 7_000], [2, "boris", 7_200]]
    taken(node, permits="2")
    assert node.run("semaphore_inspect", ("sem",)) == ["2", [0, "anna", 7_000]]


def test_all_slots_are_freed(node):
    """The number stays."""
    assert node.run("semaphore_force", ("sem",)) == []
    taken(node, "anna", None, "boris")
    assert node.run("semaphore_force", ("sem",)) == [0, 2]
    assert node.holds == {"sem": ("3", 20_000)}
