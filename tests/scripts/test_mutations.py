"""Every small change of a script is noticed by the tests of this folder, or makes no difference, and it is said why.

What a whole cluster makes of a rule that is broken is for the schedules: tests/simulation.
"""

import pytest
import test_fair_scripts
import test_latch_scripts
import test_mutex_scripts
import test_node_scripts
import test_readers_scripts
import test_semaphore_scripts
from mutations import mutations
from one_node import SOURCES, Node, Refused, changed

ABOUT = {
    "fair": test_fair_scripts,
    "latch": test_latch_scripts,
    "mutex": test_mutex_scripts,
    "node": test_node_scripts,
    "read": test_readers_scripts,
    "semaphore": test_semaphore_scripts,
    "write": test_readers_scripts,
}
"""Which tests a script has, by what its name begins with."""

SAME = {
    "mutex_acquire": {
        "if false then": "one lock is taken as several are, in a command more",
    },
    "mutex_extend": {
        "ttl > 1 ": "no ttl is so short",
    },
    "mutex_force": {
        "'PX', 1001)": "it is deleted at once",
    },
    "mutex_secure": {
        "ttl > 1 ": "no ttl is so short",
        ">= tonumber(ARGV[4])": "what is there is stored again",
    },
    "node_mark": {
        "or 1)": "no ttl is so short",
    },
    "fair_acquire": {
        ", 0, 1)[1]": "the first of two is the first",
        "or 1)": "over since 1970, too",
        "'PX', 1001)": "it is deleted at once",
        ">= tonumber(highest)": "both are the same",
        "<= tonumber(ARGV[7])": "it has that ttl",
    },
    "fair_leave": {
        ", 0, 1)[1]": "the first of two is the first",
        "[1], 1": "still less than any half",
        "or 1)": "over since 1970, too",
        "#touched - 2, ": "who is told twice is told",
        "'PX', 1001)": "it is deleted at once",
    },
    "fair_ticket": {
        "'GETSET', KEYS[1], '1'": "it is overwritten",
        "or 1)": "the time is more",
    },
    "fair_wait": {
        ", 0, 1)[1]": "the first of two is the first",
        "or 1)": "over since 1970, too",
        "'PX', 1001)": "it is deleted at once",
        ">= tonumber(highest)": "both are the same",
        "<= tonumber(ARGV[2])": "it has that ttl",
    },
    "read_acquire": {
        "if true then redis.call('PEXPIRE', readers, left)": "it has that ttl",
        "shared > 1 ": "no fence is so small",
    },
    "read_extend": {
        "<= now + ttl": "it has that ttl",
    },
    "read_release": {
        "'INCR', 1,": "it is overwritten",
    },
    "read_secure": {
        "if true then redis.call('PEXPIRE', readers, left)": "it has that ttl",
        "fence >= stored": "what is there is stored again",
    },
    "semaphore_acquire": {
        "or 1, 1000)": "there is a slot to look at in any case",
        "{holder, -2}": "it is overwritten",
    },
    "semaphore_change": {
        "':', 2, true)": "a digit comes before the colon",
    },
    "semaphore_extend": {
        "ttl > 1 ": "no ttl is so short",
    },
    "semaphore_secure": {
        "ttl > 1 ": "no ttl is so short",
        ">= tonumber(ARGV[5])": "what is there is stored again",
    },
    "semaphore_unchange": {
        "':', 2, true)": "a digit comes before the colon",
    },
    "write_acquire": {
        "if last[2] then": "a reader has both",
    },
    "write_downgrade": {
        "stored <= above": "what is there is stored again",
    },
}
"""Changes that make no difference: a part of the changed line, and the reason."""


FAILURES = (AssertionError, LookupError, TypeError, Refused, pytest.fail.Exception)
"""What a test ends with that finds another reply, other keys or an error of the script."""


def noticed(name, source):
    """Whether a test fails when the script is that one."""
    tests = [test for called, test in vars(ABOUT[name.partition("_")[0]]).items() if called.startswith("test_")]
    with changed(name, source):
        return any(fails(test) for test in tests)


def fails(test):
    try:
        test(Node())
    except FAILURES:
        return True
    return False


@pytest.mark.parametrize("name", sorted(SOURCES))
def test_every_change_is_noticed(name):
    """But for those of which it is known that they make no difference."""
    changes = dict(mutations(SOURCES[name]))
    assert changes
    assert not noticed(name, SOURCES[name])
    unnoticed = [what for what, source in changes.items() if not noticed(name, source)]
    same = SAME.get(name, {})
    unexplained = [what for what in unnoticed if not any(part in what.partition(" -- ")[0] for part in same)]
    print(f"{name}: {len(changes)} changes, {len(unnoticed)} that make no difference")
    assert not unexplained, "\n".join(["nobody notices", *unexplained])
    assert not [part for part in same if not any(part in what for what in unnoticed)]
