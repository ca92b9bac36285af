"""What the scripts of the plain lock do on one node."""

import pytest
from one_node import Refused

SECOND = 1_000_000


def acquire(node, who, *locks, ttl=10_000, candidate=None, fenced=True):
    registers = [f"fence of {lock}" for lock in locks] if fenced else []
    return node.run("mutex_acquire", [*locks, *registers], len(locks), who, ttl, candidate or node.us)


def secure(node, who, *locks, ttl=0, fence=0):
    registers = [f"fence of {lock}" for lock in locks] if fence else []
    return node.run("mutex_secure", [*locks, *registers], len(locks), who, ttl, fence)


def release(node, who, *locks, stay=0):
    return node.run("mutex_release", locks, who, stay)


def extend(node, **leases):
    """Each is (who, ttl)."""
    return node.run("mutex_extend", list(leases), *(part for lease in leases.values() for part in lease))


# Taking


def test_a_free_lock_is_taken(node):
    assert acquire(node, "anna", "x") == node.us
    assert node.holds == {"fence of x": (str(node.us), None), "x": ("anna", 10_000)}


def test_a_lock_without_a_fence(node):
    assert acquire(node, "anna", "x", fenced=False) == 1
    assert node.holds == {"x": ("anna", 10_000)}


def test_a_lock_that_is_held(node):
    """Nothing changes, and the caller is told when that does."""
    node.do("SET", "x", "boris", "PX", 7_000)
    before = node.holds
    assert acquire(node, "anna", "x") == [1, "boris", 7_000]
    assert node.holds == before
    assert node.tells_the_client_of("x") == ["x"]


def test_several_locks(node):
    """All or none; their common fence is above what was stored for each."""
    node.do("SET", "fence of y", node.us + 41)
    assert acquire(node, "anna", "x", "y") == node.us + 42
    stored = (str(node.us + 42), None)
    assert node.holds == {
        "fence of x": stored,
        "fence of y": stored,
        "x": ("anna", 10_000),
        "y": ("anna", 10_000),
    }


def test_several_locks_of_which_one_is_held(node):
    """The first of them is told of."""
    node.do("SET", "y", "boris", "PX", 7_000)
    node.do("SET", "z", "clara", "PX", 7_000)
    before = node.holds
    assert acquire(node, "anna", "x", "y", "z") == [2, "boris", 7_000]
    assert acquire(node, "anna", "z", "x") == [1, "clara", 7_000]
    assert node.holds == before
    assert node.tells_the_client_of("y") == ["y"]


def test_several_locks_without_a_fence(node):
    assert acquire(node, "anna", "x", "y", fenced=False) == 1
    assert node.holds == {"x": ("anna", 10_000), "y": ("anna", 10_000)}


def test_the_fence_is_the_candidate_within_a_second_of_the_nodes_clock(node):
    """And above whatever was stored, where that is more."""
    assert acquire(node, "anna", "x", candidate=node.us + 5 * SECOND) == node.us + SECOND
    assert acquire(node, "anna", "y", candidate=node.us - 5 * SECOND) == node.us - SECOND
    node.do("DEL", "x", "y")
    assert acquire(node, "anna", "x", candidate=node.us) == node.us + SECOND + 1
    assert acquire(node, "anna", "y", candidate=node.us) == node.us
    node.do("DEL", "x")
    node.do("SET", "fence of x", 7)
    assert acquire(node, "anna", "x", candidate=5) == 8
    assert node.holds["fence of x"] == ("8", None)


# Keeping


def test_a_lease_is_lengthened(node):
    """And the caller is told of later changes."""
    node.do("SET", "x", "anna", "PX", 4_000)
    assert extend(node, x=("anna", 10_000)) == [1]
    assert node.holds == {"x": ("anna", 10_000)}
    assert node.tells_the_client_of("x") == ["x"]


def test_a_lease_is_never_shortened(node):
    """Nor written where it need not be: that would wake all who wait for it."""
    node.do("SET", "x", "anna", "PX", 10_000)
    node.watch("x")
    assert extend(node, x=("anna", 10_000)) == [1]
    assert extend(node, x=("anna", 4_000)) == [1]
    assert extend(node, x=("anna", 0)) == [1]
    assert node.holds == {"x": ("anna", 10_000)}
    assert node.told() == []
    assert node.tells_the_client_of("x") == ["x"]


def test_looking_lengthens_nothing(node):
    """Also where a key has no ttl, which is less than any."""
    node.do("SET", "x", "anna")
    assert extend(node, x=("anna", 0)) == [1]
    assert node.holds == {"x": ("anna", None)}


def test_what_each_of_many_leases_is_told(node):
    """Ours, missing, or somebody else's, of another type for instance."""
    node.do("SET", "x", "boris", "PX", 4_000)
    node.do("HSET", "y", "another", "type")
    node.do("SET", "z", "anna", "PX", 4_000)
    before = node.holds
    assert extend(node, w=("anna", 9_000), x=("anna", 9_000), y=("anna", 9_000), z=("anna", 4_000)) == [0, -1, -1, 1]
    assert node.holds == before


# Giving back


def test_what_is_ours_is_deleted(node):
    node.do("SET", "x", "anna", "PX", 4_000)
    node.do("SET", "y", "boris", "PX", 4_000)
    assert release(node, "anna", "x", "y", "z") == 1
    assert node.holds == {"y": ("boris", 4_000)}


def test_what_is_ours_runs_out(node):
    """`hold_at_least`; the time may be longer or shorter than what is left."""
    for key in ("x", "y"):
        node.do("SET", key, "anna", "PX", 4_000)
    node.do("SET", "z", "boris", "PX", 4_000)
    assert release(node, "anna", "x", "y", "z", stay=60_000) == 2
    assert release(node, "anna", "x", stay=1_000) == 1
    assert node.holds == {"x": ("anna", 1_000), "y": ("anna", 60_000), "z": ("boris", 4_000)}


# Storing a fence, and repairing


def test_the_fence_is_stored_where_it_is_higher(node):
    node.do("SET", "x", "anna", "PX", 4_000)
    for stored, after in ((7, 9), (9, 9), (11, 11)):
        node.do("SET", "fence of x", stored)
        assert secure(node, "anna", "x", fence=9) == 1
        assert node.holds == {"fence of x": (str(after), None), "x": ("anna", 4_000)}
    node.do("DEL", "fence of x")
    assert secure(node, "anna", "x", fence=9) == 1
    assert node.holds["fence of x"] == ("9", None)
    assert node.tells_the_client_of("x", "fence of x") == ["x"]


def test_no_fence_is_stored_where_the_lock_is_not_ours(node):
    """Missing, somebody else's, or one of several."""
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


def test_what_was_lost_is_set_again(node):
    """What was not is left as it is."""
    node.do("SET", "x", "anna", "PX", 4_000)
    assert secure(node, "anna", "w", "x", "y", ttl=10_000, fence=9) == 1
    assert node.holds == {
        "fence of w": ("9", None),
        "fence of x": ("9", None),
        "fence of y": ("9", None),
        "w": ("anna", 10_000),
        "x": ("anna", 4_000),
        "y": ("anna", 10_000),
    }
    assert node.tells_the_client_of("w", "x", "y") == ["w", "x", "y"]


def test_without_a_fence_only_the_lock_is_set_again(node):
    assert secure(node, "anna", "x", ttl=10_000) == 1
    assert node.holds == {"x": ("anna", 10_000)}


# Operators


def test_a_lock_is_freed_whoever_holds_it(node):
    """Readers, to whom the lock key says nothing, are told as well."""
    node.do("SET", "x", "anna", "PX", 4_000)
    node.watch("x", "alarm")
    assert node.run("mutex_force", ("x", "alarm")) == 1
    assert node.holds == {}
    assert node.told() == ["alarm", "x"]


def test_a_lock_is_freed_on_a_full_server(node):
    """That is when it is wanted."""
    node.do("SET", "x", "anna", "PX", 4_000)
    node.master.oom = True
    assert node.run("mutex_force", ("x", "alarm")) == 1
    assert node.holds == {}


def test_nobody_is_alarmed_when_nothing_is_freed(node):
    node.watch("alarm")
    assert node.run("mutex_force", ("x", "alarm")) == 0
    assert node.told() == []
    node.do("HSET", "x", "another", "type")
    with pytest.raises(Refused, match="WRONGTYPE"):
        node.run("mutex_force", ("x", "alarm"))
    assert list(node.holds) == ["x"]


def test_who_holds_a_lock(node):
    assert node.run("mutex_inspect", ("x",)) is None
    node.do("SET", "x", "anna", "PX", 4_000)
    assert node.run("mutex_inspect", ("x",)) == ["anna", 4_000]
    node.do("SET", "x", "anna")
    assert node.run("mutex_inspect", ("x",)) == ["anna", -1]
