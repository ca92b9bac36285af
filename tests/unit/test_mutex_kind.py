"""The plain lock: its commands as the bytes that nodes receive, and what their replies mean."""

from itertools import permutations
from zlib import crc32

import pytest
from fakes import FakeContext, parsed, sent, sha

from redlock_async import ConfigurationError
from redlock_async._kinds.kind import Refusal
from redlock_async._kinds.mutex import Mutex
from redlock_async._rules.keys import Keys
from redlock_async._transport.commands import CompareAndDelete, script

TOKEN = b"0123456789abcdef0123456789abcdef:host:1"
KEYS = Keys("n:")
ONE, TWO = (b"n:x",), (b"n:a", b"n:b")


def mutex(*names, fenced=True):
    """A plain lock on those names."""
    return Mutex(KEYS, names, fenced=fenced)


def fences(*keys):
    """The fence registers of those keys."""
    return [KEYS.fence(key) for key in keys]


# Names


def test_names_are_sorted_and_unique():
    """In every order of the arguments: all clients ask for names in the same order, so they cannot deadlock."""
    for names in permutations(("b", "a", "c", "a")):
        assert mutex(*names).names == ("a", "b", "c")
        assert mutex(*names).keys == (b"n:a", b"n:b", b"n:c")
    assert sent(mutex("b", "a").first_command(TOKEN, 1, 1)) == sent(mutex("a", "b").first_command(TOKEN, 1, 1))


def test_an_invalid_name_among_valid_ones_is_rejected():
    """Each name is checked."""
    with pytest.raises(ConfigurationError, match="must not be empty"):
        mutex("x", "")


def test_every_client_probes_the_same_node_first():
    """The hash depends on the key alone, and not on the process."""
    assert mutex("x").probe_hash == crc32(b"n:x")
    assert mutex("a", "b").probe_hash == mutex("b", "a").probe_hash


# Acquiring


def test_a_fenced_acquire_is_one_script():
    """One round trip: lock key and register, then count, token, ttl and candidate."""
    command = mutex("x").first_command(TOKEN, 10_000, 1_700_000_000_000_000)
    assert sent(command) == [
        b"EVALSHA", sha("mutex_acquire"), b"2", *ONE, *fences(*ONE), b"1", TOKEN, b"10000", b"1700000000000000"
    ]  # fmt: skip


def test_a_fenced_acquire_of_several_names_has_all_locks_before_all_registers():
    """The script tells them apart by the count."""
    command = mutex("a", "b").first_command(TOKEN, 10_000, 7)
    assert sent(command) == [
        b"EVALSHA", sha("mutex_acquire"), b"4", *TWO, *fences(*TWO), b"2", TOKEN, b"10000", b"7"
    ]  # fmt: skip


def test_an_unfenced_acquire_is_redlock_s_own_command():
    """Every other Redlock client sends the same SET NX PX."""
    command = mutex("x", fenced=False).first_command(TOKEN, 10_000, 7)
    assert sent(command) == [b"SET", b"n:x", TOKEN, b"NX", b"PX", b"10000"]
    assert parsed(command.pack_with_source()) == sent(command)


def test_an_unfenced_acquire_of_several_names_is_a_script_without_registers():
    """No plain command takes all names or none."""
    command = mutex("a", "b", fenced=False).first_command(TOKEN, 10_000, 7)
    assert sent(command) == [b"EVALSHA", sha("mutex_acquire"), b"2", *TWO, b"2", TOKEN, b"10000"]


@pytest.mark.parametrize("names", [("x",), ("a", "b")])
def test_an_attempt_that_waits_always_learns_who_holds_it(names):
    """A script reads the key: the reply names the holder, and the node tracks the key. A fenced acquire always does."""
    fenced = mutex(*names)
    assert sent(fenced.retry_command(TOKEN, 5, 7)) == sent(fenced.first_command(TOKEN, 5, 7))
    plain = mutex(*names, fenced=False)
    count = str(len(names)).encode()
    assert sent(plain.retry_command(TOKEN, 5, 7)) == [
        b"EVALSHA", sha("mutex_acquire"), count, *plain.keys, count, TOKEN, b"5"
    ]  # fmt: skip


@pytest.mark.parametrize("fenced", [True, False])
@pytest.mark.parametrize("names", [("x",), ("a", "b"), ("a", "b", "c")])
def test_the_number_of_keys_is_right_in_every_script_call(names, fenced):
    """The server takes that many arguments as keys; a wrong number would lock the token."""
    lock = mutex(*names, fenced=fenced)
    registers = len(names) if fenced else 0
    expected = [
        (lock.retry_command(TOKEN, 10, 7), len(names) + registers),
        (lock.release_after(TOKEN, 500), len(names)),
        (lock.reassert(TOKEN, 9 if fenced else None, 10), len(names) + registers),
        (Mutex.extend([(lock, TOKEN, 10)]), len(names)),
    ]
    for command, number in expected:
        got = sent(command)
        assert int(got[2]) == number
        assert all(key.startswith(b"n:") for key in got[3 : 3 + number])
        assert not any(argument.startswith(b"n:") for argument in got[3 + number :])


def test_a_server_that_forgot_the_script_receives_its_source():
    """In place of the hash, with the same arguments."""
    command = mutex("a", "b").first_command(TOKEN, 10_000, 7)
    by_source = parsed(command.pack_with_source())
    assert by_source[:2] == [b"EVAL", script("mutex_acquire").source]
    assert by_source[2:] == sent(command)[2:]


# Refusals


@pytest.mark.parametrize("fenced", [True, False])
def test_a_refusal_names_the_holder_and_the_expiry(fenced):
    """Milliseconds become seconds; a key without expiry has none."""
    lock = mutex("x", fenced=fenced)
    assert lock.refusal([1, b"other", 1500]) == Refusal(b"other", 1.5)
    assert lock.refusal([2, b"other", 0]) == Refusal(b"other", 0.0)
    assert lock.refusal([1, b"other", -1]) == Refusal(b"other", None)
    assert lock.refusal([1, None, -2]) == Refusal(None, None)


@pytest.mark.parametrize("reply", [None, b"", b"no", True, False, 1.0, {}])
def test_any_other_reply_is_a_refusal_without_a_holder(reply):
    """A plain SET that was refused returns nil; a reply that is not understood must not elect a client."""
    for fenced in (True, False):
        assert mutex("x", fenced=fenced).refusal(reply) == Refusal(None, None)


# Releasing


def test_a_release_is_the_server_s_own_command_where_it_has_one():
    """Valkey's, Redis's, or a script: each deletes the key only if it holds the token."""
    command = mutex("x").release(TOKEN)
    plain = [b"EVALSHA", sha("mutex_release"), b"1", b"n:x", TOKEN, b"0"]
    assert sent(command, CompareAndDelete.DELIFEQ) == [b"DELIFEQ", b"n:x", TOKEN]
    assert sent(command, CompareAndDelete.DELEX) == [b"DELEX", b"n:x", b"IFEQ", TOKEN]
    assert sent(command, CompareAndDelete.PLAIN) == plain
    assert parsed(command.pack_with_source()) == [b"EVAL", script("mutex_release").source, *plain[2:]]


def test_a_release_can_be_sent_to_nodes_of_different_dialects():
    """One command object is packed for all of them, so the last dialect must not stick."""
    command = mutex("x").release(TOKEN)
    verbs = {CompareAndDelete.DELIFEQ: b"DELIFEQ", CompareAndDelete.DELEX: b"DELEX", CompareAndDelete.PLAIN: b"EVALSHA"}
    for order in permutations(verbs):
        for dialect in (*order, *order[::-1]):
            assert sent(command, dialect)[0] == verbs[dialect]


@pytest.mark.parametrize("dialect", [CompareAndDelete.PLAIN, CompareAndDelete.DELIFEQ, CompareAndDelete.DELEX])
def test_several_names_are_released_by_one_script(dialect):
    """The servers' own commands take one key."""
    assert sent(mutex("a", "b").release(TOKEN), dialect) == [
        b"EVALSHA", sha("mutex_release"), b"2", *TWO, TOKEN, b"0"
    ]  # fmt: skip


def test_a_retained_lock_is_not_deleted():
    """min_hold: it expires after that many ms, on every server by the script."""
    for dialect in (CompareAndDelete.PLAIN, CompareAndDelete.DELIFEQ, CompareAndDelete.DELEX):
        assert sent(mutex("x").release_after(TOKEN, 1500), dialect) == [
            b"EVALSHA", sha("mutex_release"), b"1", b"n:x", TOKEN, b"1500"
        ]  # fmt: skip


# Storing the fencing token, repairing, extending


def test_storing_the_fencing_token_does_not_set_the_lock_again():
    """With ttl 0, a node that has lost the lock must reply 0."""
    assert sent(mutex("x").reassert(TOKEN, 99, 0)) == [
        b"EVALSHA", sha("mutex_reassert"), b"2", *ONE, *fences(*ONE), b"1", TOKEN, b"0", b"99"
    ]  # fmt: skip


def test_a_repair_sets_the_lock_again_where_a_node_lost_it():
    """With the ttl; it raises the registers too, and without fencing it touches none."""
    assert sent(mutex("a", "b").reassert(TOKEN, 99, 10_000)) == [
        b"EVALSHA", sha("mutex_reassert"), b"4", *TWO, *fences(*TWO), b"2", TOKEN, b"10000", b"99"
    ]  # fmt: skip
    assert sent(mutex("a", "b", fenced=False).reassert(TOKEN, None, 10_000)) == [
        b"EVALSHA", sha("mutex_reassert"), b"2", *TWO, b"2", TOKEN, b"10000"
    ]  # fmt: skip


def test_many_leases_are_extended_in_one_command():
    """Each key with its own token and ttl, in order; a ttl of 0 only checks."""
    command = Mutex.extend([(mutex("x"), b"t1", 10_000), (mutex("b", "a"), b"t2", 0), (mutex("y"), b"t3", 5)])
    assert sent(command) == [
        b"EVALSHA", sha("mutex_extend"), b"4", b"n:x", b"n:a", b"n:b", b"n:y",
        b"t1", b"10000", b"t2", b"0", b"t2", b"0", b"t3", b"5",
    ]  # fmt: skip


def test_the_reply_to_an_extension_has_a_state_for_each_name():
    """As many as the command has tokens for it."""
    for names in (("x",), ("a", "b"), ("a", "b", "c")):
        lock = mutex(*names)
        assert lock.state_count == len(names) == sent(Mutex.extend([(lock, TOKEN, 1)])).count(TOKEN)


def test_a_lock_queues_for_and_watches_its_own_keys():
    """In the order that all clients use; every lease is registered under the same keys."""
    lock = mutex("b", "a")
    assert lock.local_queue_keys == lock.watched_keys == lock.held_by(TOKEN) == TWO
    assert lock.keeps_local_turn


def test_a_plain_lock_is_its_own_attempt():
    """It learns nothing, so it needs no object for each acquire."""
    lock = mutex("b", "a")
    assert not lock.stateful
    assert lock.start(FakeContext()) is lock.granted_kind() is lock
    assert lock.cleanup() is None
    assert not lock.retry_now({0: Refusal(b"other", 1.0)}, 3)
    assert not lock.lost_races


def test_bytes_and_numbers_survive_packing():
    """A name with any characters, the largest candidate, an empty owner label."""
    lock = Mutex(Keys(""), ["naïve \r\n$5\x00 鍵"], fenced=True)
    got = sent(lock.first_command(b"t:", 1, 2**53))
    assert got[3] == "naïve \r\n$5\x00 鍵".encode()
    assert got[-3:] == [b"t:", b"1", str(2**53).encode()]
