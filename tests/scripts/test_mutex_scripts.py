"""The scripts of the plain lock on one node."""

import pytest
from one_node import Refused, granted

SECOND = 1_000_000


def acquire(node, who, *locks, ttl=10_000, candidate=None, fenced=True):
    registers = [f"fence of {lock}" for lock in locks] if fenced else []
    reply = node.run("mutex_acquire", [*locks, *registers], len(locks), who, ttl, candidate or node.us)
    return granted(node, reply, candidate or node.us if fenced else None)


def secure(node, who, *locks, ttl=0, fence=0):
    registers = [f"fence of {lock}" for lock in locks] if fence else []
    return node.run("mutex_reassert", [*locks, *registers], len(locks), who, ttl, fence)


def release(node, who, *locks, stay=0):
    return node.run("mutex_release", locks, who, stay)


def extend(node, **leases):
    """Each lease is (token, ttl)."""
    return node.run("mutex_extend", list(leases), *(part for lease in leases.values() for part in lease))


# Acquiring


def test_a_free_lock_is_acquired(node):
    assert acquire(node, "anna", "x") == node.us
    assert node.holds == {"fence of x": (str(node.us), None), "x": ("anna", 10_000)}


def test_a_lock_without_a_fence(node):
    assert acquire(node, "anna", "x", fenced=False, candidate=2 * node.us) == 1
    assert node.holds == {"x": ("anna", 10_000)}


def test_a_held_lock_is_refused(node):
    """Nothing changes, and the caller is notified when the lock does."""
    node.do("SET", "x", "boris", "PX", 7_000)
    before = node.holds
    assert acquire(node, "anna", "x") == [1, "boris", 7_000]
    assert node.holds == before
    assert node.tells_the_client_of("x") == ["x"]


def test_several_locks(node):
    """All or none; their common fence is above the stored value of each."""
    node.do("SET", "fence of y", node.us + 41)
    assert acquire(node, "anna", "x", "y") == node.us + 42
    stored = (str(node.us + 42), None)
    assert node.holds == {
        "fence of x": stored,
        "fence of y": stored,
        "x": ("anna", 10_000),
        "y": ("anna", 10_000),
    }


def test_several_locks_with_one_of_them_held(node):
    """The reply is the first held lock."""
    node.do("SET", "y", "boris", "PX", 7_000)
    node.do("SET", "z", "clara", "PX", 7_000)
    before = node.holds
    assert acquire(node, "anna", "x", "y", "z") == [2, "boris", 7_000]
    assert acquire(node, "anna", "z", "x") == [1, "clara", 7_000]
    assert node.holds == before
    assert node.tells_the_client_of("y") == ["y"]


def test_several_locks_without_a_fence(node):
    assert acquire(node, "anna", "x", "y", fenced=False, candidate=2 * node.us) == 1
    assert node.holds == {"x": ("anna", 10_000), "y": ("anna", 10_000)}


def test_the_fence_is_the_candidate_within_a_second_of_the_nodes_clock(node):
    """And above the stored value, if that is larger."""
    assert acquire(node, "anna", "x", candidate=node.us + 5 * SECOND) == node.us + SECOND
    assert acquire(node, "anna", "y", candidate=node.us - 5 * SECOND) == node.us - SECOND
    node.do("DEL", "x", "y")
    assert acquire(node, "anna", "x", candidate=node.us) == node.us + SECOND + 1
    assert acquire(node, "anna", "y", candidate=node.us) == node.us
    node.do("DEL", "x")
    node.do("SET", "fence of x", 7)
    assert acquire(node, "anna", "x", candidate=5) == 8
    assert node.holds["fence of x"] == ("8", None)


# Extending


def test_a_lease_is_extended(node):
    """And the caller is notified of later changes."""
    node.do("SET", "x", "anna", "PX", 4_000)
    assert extend(node, x=("anna", 10_000)) == [1]
    assert node.holds == {"x": ("anna", 10_000)}
    assert node.tells_the_client_of("x") == ["x"]


def test_a_lease_is_never_shortened(node):
    """Nor written without need, which would wake all waiters."""
    node.do("SET", "x", "anna", "PX", 10_000)
    node.watch("x")
    assert extend(node, x=("anna", 10_000)) == [1]
    assert extend(node, x=("anna", 4_000)) == [1]
    assert extend(node, x=("anna", 0)) == [1]
    assert node.holds == {"x": ("anna", 10_000)}
    assert node.told() == []
    assert node.tells_the_client_of("x") == ["x"]


def test_a_check_extends_nothing(node):
    """Not even a key without ttl, whose PTTL is negative."""
    node.do("SET", "x", "anna")
    assert extend(node, x=("anna", 0)) == [1]
    assert node.holds == {"x": ("anna", None)}


def test_each_of_many_leases_has_its_own_state(node):
    """Ours, missing, or another holder's, such as a key of another type."""
    node.do("SET", "x", "boris", "PX", 4_000)
    node.do("HSET", "y", "another", "type")
    node.do("SET", "z", "anna", "PX", 4_000)
    before = node.holds
    assert extend(node, w=("anna", 9_000), x=("anna", 9_000), y=("anna", 9_000), z=("anna", 4_000)) == [0, -1, -1, 1]
    assert node.holds == before


# Releasing


def test_our_lock_is_deleted(node):
    node.do("SET", "x", "anna", "PX", 4_000)
    node.do("SET", "y", "boris", "PX", 4_000)
    assert release(node, "anna", "x", "y", "z") == 1
    assert node.holds == {"y": ("boris", 4_000)}


def test_our_lock_expires(node):
    """`min_hold`; the time may be longer or shorter than what is left."""
    for key in ("x", "y"):
        node.do("SET", key, "anna", "PX", 4_000)
    node.do("SET", "z", "boris", "PX", 4_000)
    assert release(node, "anna", "x", "y", "z", stay=60_000) == 2
    assert release(node, "anna", "x", stay=1_000) == 1
    assert node.holds == {"x": ("anna", 1_000), "y": ("anna", 60_000), "z": ("boris", 4_000)}


# Reasserting


def test_the_fence_is_stored_where_it_is_higher(node):
    node.do("SET", "x", "anna", "PX", 4_000)
    for stored, after in ((7, 9), (9, 9), (11, 11)):
        node.do("SET", "fence of x", stored)
        assert secure(node, "anna", "x", fence=9) == 1
        assert node.holds == {"fence of x": (str(after), None), "x": ("anna", 4_000)}
    node.do("DEL", "fence of x")
    assert secure(node, "anna", "x", fence=node.us + 9) == 1
    assert node.holds["fence of x"] == (str(node.us + 9), None)
    assert node.tells_the_client_of("x", "fence of x") == ["x"]


def test_no_fence_is_stored_where_the_lock_is_not_ours(node):
    """Missing, another holder's, or one of several."""
    node.do("SET", "fence of x", 7)
    node.do("SET", "y", "anna", "PX", 4_000)
    before = node.holds
    assert secure(node, "anna", "x", fence=9) == 0
    assert secure(node, "anna", "y", "x", fence=9) == 0
    assert node.holds == before
    node.do("SET", "x", "boris", "PX", 4_000)
    before = node.holds
    assert secure(node, "anna", "x", fence=9) == 0
    assert secure(node, "anna", "x", fence=9, ttl=10_000) == 0
    assert secure(node, "anna", "y", "x", fence=9, ttl=10_000) == 0
    assert node.holds == before


def test_a_lost_key_is_set_again(node):
    """Other keys stay as they are."""
    node.do("SET", "x", "anna", "PX", 4_000)
    assert secure(node, "anna", "w", "x", "y", ttl=10_000, fence=node.us + 9) == 1
    fence = (str(node.us + 9), None)
    assert node.holds == {
        "fence of w": fence,
        "fence of x": fence,
        "fence of y": fence,
        "w": ("anna", 10_000),
        "x": ("anna", 4_000),
        "y": ("anna", 10_000),
    }
    assert node.tells_the_client_of("w", "x", "y") == ["w", "x", "y"]


def test_without_a_fence_only_the_lock_is_set_again(node):
    assert secure(node, "anna", "x", ttl=10_000) == 1
    assert node.holds == {"x": ("anna", 10_000)}


# Operators


def test_a_lock_is_taken_regardless_of_its_holder(node):
    """Readers, who do not track the lock key, are notified too."""
    node.do("SET", "x", "anna", "PX", 4_000)
    node.watch("x", "alarm")
    assert node.run("mutex_force", ("x", "alarm"), "nobody", 1_500) == 1
    assert node.holds == {"x": ("nobody", 1_500)}
    assert node.told() == ["alarm", "x"]


def test_a_lock_is_taken_on_a_full_server(node):
    """That is when operators need it."""
    node.do("SET", "x", "anna", "PX", 4_000)
    node.master.oom = True
    assert node.run("mutex_force", ("x", "alarm"), "nobody", 1_500) == 1
    assert node.holds == {"x": ("nobody", 1_500)}


def test_readers_are_not_notified_when_nothing_is_freed(node):
    node.watch("alarm")
    assert node.run("mutex_force", ("x", "alarm"), "nobody", 1_500) == 0
    assert node.told() == []
    node.do("HSET", "x", "another", "type")
    with pytest.raises(Refused, match="WRONGTYPE"):
        node.run("mutex_force", ("x", "alarm"), "nobody", 1_500)
    assert list(node.holds) == ["x"]


def test_the_record_of_a_node_is_removed_by_force(node):
    """`bench` and `doctor` remove what they left in their own namespaces. Any other hash stays."""
    node.do("HSET", "app:redlock-async:node", "id", "one")
    node.do("HSET", "app:redlock-async:clocks", "two", "1 2 3")
    assert node.run("mutex_force", ("app:redlock-async:node", "alarm"), "nobody", 1_500) == 1
    assert node.run("mutex_force", ("app:redlock-async:node", "alarm"), "nobody", 1_500) == 0
    node.do("HSET", "app:redlock-async:node:{@ABC}", "id", "one")
    node.do("HSET", "app:redlock-async:clocks:{@ABC}", "two", "1 2 3")
    assert node.run("mutex_force", ("app:redlock-async:node:{@ABC}", "alarm"), "nobody", 1_500) == 1
    assert node.holds == {}
    assert node.holds == {}


def test_the_holder_of_a_lock_is_returned(node):
    assert node.run("mutex_inspect", ("x",)) is None
    node.do("SET", "x", "anna", "PX", 4_000)
    assert node.run("mutex_inspect", ("x",)) == ["anna", 4_000]
    node.do("SET", "x", "anna")
    assert node.run("mutex_inspect", ("x",)) == ["anna", -1]


# Values of any length from other programs

LONG = "0123456789" * 200


def test_at_most_300_bytes_of_a_holder_are_returned_with_a_refusal(node):
    node.do("SET", "x", LONG, "PX", 7_000)
    assert acquire(node, "anna", "x") == [1, LONG[:300], 7_000]
    assert acquire(node, "anna", "w", "x") == [2, LONG[:300], 7_000]
    assert node.tells_the_client_of("x") == ["x"]
    node.do("SET", "x", "")
    assert acquire(node, "anna", "x") == [1, "", -1]
    assert acquire(node, "anna", "w", "x") == [2, "", -1]


def test_at_most_1024_bytes_of_a_holder_are_returned_to_operators(node):
    node.do("SET", "x", LONG, "PX", 7_000)
    assert node.run("mutex_inspect", ("x",)) == [LONG[:1024], 7_000]
