"""The tests of this folder notice every small change of a script, except for the listed ones that make no difference.

The consequences of a broken rule for a whole cluster are tested in tests/simulation.
"""

import pytest
import test_fair_scripts
import test_latch_scripts
import test_limits_scripts
import test_mutex_scripts
import test_node_scripts
import test_readers_scripts
import test_semaphore_scripts
from mutations import mutations
from one_node import SOURCES, Node, Refused, changed

ABOUT = {
    "slots": test_node_scripts,
    "fair": test_fair_scripts,
    "latch": test_latch_scripts,
    "limits": test_limits_scripts,
    "mutex": test_mutex_scripts,
    "node": test_node_scripts,
    "read": test_readers_scripts,
    "semaphore": test_semaphore_scripts,
    "write": test_readers_scripts,
}
"""The tests of a script, by the first word of its name."""

SAME = {
    "node_clocks": {
        "#ARGV > 1 ": "a note has two words",
        "#notes > 201 ": "a note has a name and a text",
    },
    "node_record": {
        "or -2": "every epoch is larger",
        "if true then redis.pcall('DEL', unpack(registers))": "a shard replies that they are in several slots",
        "#registers or 1 do": "one register is deleted twice",
    },
    "slots": {
        "for slot = 0, 16385 do": "there is no such slot",
        "or -2 do": "slots are counted from 0",
    },
    "mutex_acquire": {
        "if false then": "one lock is acquired like several, with one more command",
    },
    "limits": {
        "number) > 1 ": "no token is so small",
        ">= tonumber(fence)": "the same value is stored again",
        "if true then": "the same token is stored again, which costs a command",
    },
    "mutex_extend": {
        "ttl > 1 ": "no ttl is so short",
    },
    "mutex_force": {
        "'PX', 1001)": "it is deleted at once",
        "redis.call('DEL', KEYS[2])": "SET replaces the key, and any DEL in front of it makes it work at OOM",
    },
    "mutex_reassert": {
        "ttl > 1 ": "no ttl is so short",
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
        "#touched - 2, ": "a waiter that is notified twice is notified",
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
    "read_reassert": {
        "if true then redis.call('PEXPIRE', readers, left)": "it has that ttl",
        "fence >= stored": "the same value is stored again",
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
    "semaphore_reassert": {
        "ttl > 1 ": "no ttl is so short",
    },
    "semaphore_restore": {
        "':', 2, true)": "a digit comes before the colon",
    },
    "write_acquire": {
        "if last[2] then": "a reader has both",
    },
    "write_downgrade": {
        "stored <= above": "the same value is stored again",
    },
}
"""Changes that make no difference: a part of the changed line, and the reason."""


FAILURES = (AssertionError, LookupError, TypeError, Refused, pytest.fail.Exception)
"""The exceptions of a test that finds another reply, other keys or an error of the script."""


def noticed(name, source):
    """Return whether a test fails with this source of the script."""
    about = (ABOUT[name.partition("_")[0]], test_limits_scripts)
    tests = [test for module in about for called, test in vars(module).items() if called.startswith("test_")]
    with changed(name, source):
        return any(fails(test) for test in tests)


def fails(test):
    try:
        test(Node())
    except FAILURES:
        return True
    return False


@pytest.mark.share(4)
@pytest.mark.parametrize("name", sorted(SOURCES))
def test_every_change_is_noticed(name):
    """Except for those that are known to make no difference."""
    changes = dict(mutations(SOURCES[name]))
    assert changes
    assert not noticed(name, SOURCES[name])
    unnoticed = [what for what, source in changes.items() if not noticed(name, source)]
    same = SAME.get(name, {})
    unexplained = [what for what in unnoticed if not any(part in what.partition(" -- ")[0] for part in same)]
    print(f"{name}: {len(changes)} changes, {len(unnoticed)} that make no difference")
    assert not unexplained, "\n".join(["no test notices", *unexplained])
    assert not [part for part in same if not any(part in what for what in unnoticed)]
