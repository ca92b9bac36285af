"""The plain lock's commands as the bytes that servers get, and what their replies mean."""

from itertools import permutations
from zlib import crc32

import hiredis
import pytest

from redlock_async import ConfigurationError
from redlock_async._acquire import Acquire, Released
from redlock_async._claim import Held
from redlock_async._keys import Keys
from redlock_async._mutex import Mutex
from redlock_async._scripts import Dialect, script

TOKEN = b"0123456789abcdef0123456789abcdef:host:1"
KEYS = Keys("n:")
ONE, TWO = (b"n:x",), (b"n:a", b"n:b")


def words(packed):
    """The command as a server's parser sees it; nothing may be left over."""
    reader = hiredis.Reader()
    reader.feed(packed)
    command = reader.gets()
    assert reader.gets() is False
    return command


def sent(command, dialect=Dialect.PLAIN):
    """What a server of that dialect is sent."""
    return words(command.pack(dialect))


def sha(name):
    """How a script is called."""
    return script(name).sha


def mutex(*names, fenced=True):
    """A lock on those names."""
    return Mutex(KEYS, names, fenced=fenced)


def fences(*keys):
    """The registers of those keys."""
    return [KEYS.fence(key) for key in keys]


# Names


def test_names_are_sorted_and_unique_in_whatever_order_they_come():
    """Everybody asks for them in the same order: that is what rules a deadlock out."""
    for names in permutations(("b", "a", "c", "a")):
        assert mutex(*names).names == ("a", "b", "c")
        assert mutex(*names).keys == (b"n:a", b"n:b", b"n:c")
    assert sent(mutex("b", "a").acquire(TOKEN, 1, 1)) == sent(mutex("a", "b").acquire(TOKEN, 1, 1))


def test_a_bad_name_among_good_ones_is_refused():
    """Each is checked."""
    with pytest.raises(ConfigurationError, match="must not be empty"):
        mutex("x", "")


def test_every_client_tries_the_same_node_first():
    """The preference depends on the key alone, and not on the process."""
    assert mutex("x").preference == crc32(b"n:x")
    assert mutex("a", "b").preference == mutex("b", "a").preference


# Acquiring


def test_a_fenced_acquire_is_one_script_with_its_register():
    """One round trip: lock key, register, then count, token, ttl and candidate."""
    command = mutex("x").acquire(TOKEN, 10_000, 1_700_000_000_000_000)
    assert sent(command) == [
        b"EVALSHA", sha("mutex_acquire"), b"2", *ONE, *fences(*ONE), b"1", TOKEN, b"10000", b"1700000000000000"
    ]  # fmt: skip


def test_a_fenced_acquire_of_several_names_has_all_locks_before_all_registers():
    """The script tells them apart by the count."""
    command = mutex("a", "b").acquire(TOKEN, 10_000, 7)
    assert sent(command) == [
        b"EVALSHA", sha("mutex_acquire"), b"4", *TWO, *fences(*TWO), b"2", TOKEN, b"10000", b"7"
    ]  # fmt: skip


def test_an_unfenced_acquire_is_redlock_s_own_command():
    """SET NX PX: what every other Redlock client sends."""
    command = mutex("x", fenced=False).acquire(TOKEN, 10_000, 7)
    assert sent(command) == [b"SET", b"n:x", TOKEN, b"NX", b"PX", b"10000"]
    assert words(command.pack_with_source()) == sent(command)


def test_an_unfenced_acquire_of_several_names_is_a_script_without_registers():
    """All or none cannot be said in one plain command."""
    command = mutex("a", "b", fenced=False).acquire(TOKEN, 10_000, 7)
    assert sent(command) == [b"EVALSHA", sha("mutex_acquire"), b"2", *TWO, b"2", TOKEN, b"10000"]


@pytest.mark.parametrize("names", [("x",), ("a", "b")])
def test_contending_always_asks_who_holds_it(names):
    """A script that reads the key: the answer names the holder, and client tracking is armed. Fenced it is no other."""
    fenced = mutex(*names)
    assert sent(fenced.contend(TOKEN, 5, 7)) == sent(fenced.acquire(TOKEN, 5, 7))
    plain = mutex(*names, fenced=False)
    count = str(len(names)).encode()
    assert sent(plain.contend(TOKEN, 5, 7)) == [
        b"EVALSHA", sha("mutex_acquire"), count, *plain.keys, count, TOKEN, b"5"
    ]  # fmt: skip


@pytest.mark.parametrize("fenced", [True, False])
@pytest.mark.parametrize("names", [("x",), ("a", "b"), ("a", "b", "c")])
def test_the_number_of_keys_is_right_in_every_script_call(names, fenced):
    """A server takes as many arguments for keys as it is told; one off would lock the token."""
    lock = mutex(*names, fenced=fenced)
    registers = len(names) if fenced else 0
    expected = [
        (lock.contend(TOKEN, 10, 7), len(names) + registers),
        (lock.retain(TOKEN, 500), len(names)),
        (lock.secure(TOKEN, 9 if fenced else None, 10), len(names) + registers),
        (Mutex.extend([(lock, TOKEN, 10)]), len(names)),
    ]
    for command, number in expected:
        got = sent(command)
        assert int(got[2]) == number
        assert all(key.startswith(b"n:") for key in got[3 : 3 + number])
        assert not any(argument.startswith(b"n:") for argument in got[3 + number :])


def test_the_source_takes_the_place_of_the_hash():
    """A server that forgot the script gets the same call with its text."""
    command = mutex("a", "b").acquire(TOKEN, 10_000, 7)
    by_source = words(command.pack_with_source())
    assert by_source[:2] == [b"EVAL", script("mutex_acquire").source]
    assert by_source[2:] == sent(command)[2:]


# Replies to acquire


def round_of(claim, command):
    """An acquire that has been sent."""
    round_ = Acquire.__new__(Acquire)
    round_._claim, round_._command, round_._manner = claim, command, None
    round_._hedge, round_.fences, round_.holding, round_.granted_late = object(), {}, {}, None
    return round_


@pytest.mark.parametrize("claim", [mutex("x"), mutex("a", "b", fenced=False)])
def test_a_number_is_a_grant(claim):
    """With fencing it is the register's value."""
    round_ = round_of(claim, claim.acquire(TOKEN, 9, 1))
    assert round_.read(2, 1_700_000_000_000_000)
    assert round_.fences == {2: 1_700_000_000_000_000}


def test_ok_is_a_grant_of_a_plain_set_alone():
    """A script that answers it is not one of ours."""
    claim = mutex("x", fenced=False)
    assert round_of(claim, claim.acquire(TOKEN, 9, 1)).read(2, b"OK")
    assert not round_of(claim, claim.acquire(TOKEN, 9, 1)).read(2, b"no")
    with pytest.raises(TypeError):
        round_of(claim, claim.contend(TOKEN, 9, 1)).read(2, b"OK")


@pytest.mark.parametrize("fenced", [True, False])
def test_a_refusal_tells_who_and_how_long(fenced):
    """Milliseconds become seconds; a key without expiry tells no time."""
    lock = mutex("x", fenced=fenced)
    assert lock.refusal([1, b"other", 1500]) == Held(b"other", 1.5)
    assert lock.refusal([2, b"other", 0]) == Held(b"other", 0.0)
    assert lock.refusal([1, b"other", -1]) == Held(b"other", None)
    assert lock.refusal([1, None, -2]) == Held(None, None)


@pytest.mark.parametrize("reply", [None, b"", b"no", True, False, 1.0, {}])
def test_whatever_else_a_node_says_is_no_grant(reply):
    """A plain SET that was refused answers nil; what is not understood must not elect anybody."""
    for fenced in (True, False):
        assert mutex("x", fenced=fenced).refusal(reply) == Held(None, None)


# Releasing


def test_a_release_is_the_server_s_own_command_where_it_has_one():
    """Valkey's, Redis's, or a script: each deletes only what is ours."""
    command = mutex("x").release(TOKEN)
    plain = [b"EVALSHA", sha("mutex_release"), b"1", b"n:x", TOKEN, b"0"]
    assert sent(command, Dialect.DELIFEQ) == [b"DELIFEQ", b"n:x", TOKEN]
    assert sent(command, Dialect.DELEX) == [b"DELEX", b"n:x", b"IFEQ", TOKEN]
    assert sent(command, Dialect.PLAIN) == plain
    assert words(command.pack_with_source()) == [b"EVAL", script("mutex_release").source, *plain[2:]]


def test_a_release_may_go_to_nodes_of_different_dialects():
    """One command object is packed for all: the last dialect must not stick."""
    command = mutex("x").release(TOKEN)
    verbs = {Dialect.DELIFEQ: b"DELIFEQ", Dialect.DELEX: b"DELEX", Dialect.PLAIN: b"EVALSHA"}
    for order in permutations(verbs):
        for dialect in (*order, *order[::-1]):
            assert sent(command, dialect)[0] == verbs[dialect]


@pytest.mark.parametrize("dialect", [Dialect.PLAIN, Dialect.DELIFEQ, Dialect.DELEX])
def test_several_names_are_released_by_one_script(dialect):
    """The servers' own commands take one key."""
    assert sent(mutex("a", "b").release(TOKEN), dialect) == [
        b"EVALSHA", sha("mutex_release"), b"2", *TWO, TOKEN, b"0"
    ]  # fmt: skip


def test_a_lock_that_is_retained_is_not_deleted():
    """hold_at_least: it runs out after that many ms, on every server by the script."""
    for dialect in (Dialect.PLAIN, Dialect.DELIFEQ, Dialect.DELEX):
        assert sent(mutex("x").retain(TOKEN, 1500), dialect) == [
            b"EVALSHA", sha("mutex_release"), b"1", b"n:x", TOKEN, b"1500"
        ]  # fmt: skip


def test_released_means_that_all_of_it_was_ours():
    """One name of two that somebody else had taken is a loss."""

    def released(claim, reply):
        round_ = Released.__new__(Released)
        round_._whole = claim.width
        return round_.read(0, reply)

    assert released(mutex("x"), 1)
    assert released(mutex("a", "b"), 2)
    for reply in (0, 2, None, -1, b"1"):
        assert not released(mutex("x"), reply)
    for reply in (0, 1, 3, None):
        assert not released(mutex("a", "b"), reply)


# Levelling, repairing, extending


def test_levelling_raises_the_registers_and_sets_no_lock_again():
    """ttl 0: a node where the lock is gone must answer 0."""
    assert sent(mutex("x").secure(TOKEN, 99, 0)) == [
        b"EVALSHA", sha("mutex_secure"), b"2", *ONE, *fences(*ONE), b"1", TOKEN, b"0", b"99"
    ]  # fmt: skip


def test_repairing_sets_again_what_a_node_lost():
    """With the ttl, and with the token raised there too; without fencing no register is touched."""
    assert sent(mutex("a", "b").secure(TOKEN, 99, 10_000)) == [
        b"EVALSHA", sha("mutex_secure"), b"4", *TWO, *fences(*TWO), b"2", TOKEN, b"10000", b"99"
    ]  # fmt: skip
    assert sent(mutex("a", "b", fenced=False).secure(TOKEN, None, 10_000)) == [
        b"EVALSHA", sha("mutex_secure"), b"2", *TWO, b"2", TOKEN, b"10000"
    ]  # fmt: skip


def test_many_leases_are_extended_in_one_command():
    """Each key with its own token and time, in order; 0 only looks."""
    command = Mutex.extend([(mutex("x"), b"t1", 10_000), (mutex("b", "a"), b"t2", 0), (mutex("y"), b"t3", 5)])
    assert sent(command) == [
        b"EVALSHA", sha("mutex_extend"), b"4", b"n:x", b"n:a", b"n:b", b"n:y",
        b"t1", b"10000", b"t2", b"0", b"t2", b"0", b"t3", b"5",
    ]  # fmt: skip


def test_the_reply_to_an_extension_has_a_state_for_each_name():
    """As many as there are tokens for it in the command."""
    for names in (("x",), ("a", "b"), ("a", "b", "c")):
        lock = mutex(*names)
        assert lock.width == len(names) == sent(Mutex.extend([(lock, TOKEN, 1)])).count(TOKEN)


def test_a_lock_queues_for_and_watches_its_own_keys():
    """In the order that everybody takes them in; a lease is found under the same keys whatever its token."""
    lock = mutex("b", "a")
    assert lock.turns == lock.watched == lock.held_by(TOKEN) == TWO
    assert lock.exclusive
    assert lock.begin(None) is lock
    assert lock.withdraw() is None
    assert not lock.again({0: Held(b"other", 1.0)}, 3)


def test_bytes_and_numbers_survive_packing():
    """Names of any text, the largest candidate, an empty owner label."""
    lock = Mutex(Keys(""), ["naïve \r\n$5\x00 鍵"], fenced=True)
    got = sent(lock.acquire(b"t:", 1, 2**53))
    assert got[3] == "naïve \r\n$5\x00 鍵".encode()
    assert got[-3:] == [b"t:", b"1", str(2**53).encode()]
