"""The read-write lock: the commands of readers and writers, and what the nodes' replies mean."""

import pytest
from fakes import FakeContext, sent, sha

from redlock_async._kinds.kind import QueuedAhead, Refusal
from redlock_async._kinds.rwlock import READERS, RESERVATION_REFRESH, WAITING_WRITER, Read, ReadersPresent, Write
from redlock_async._rules.keys import Keys
from redlock_async._rules.token import owner_of
from redlock_async._transport.commands import CompareAndDelete, script
from redlock_async.errors import ConfigurationError

TOKEN, LATER, LAST = (digit * 32 + b":owner" for digit in (b"a", b"b", b"c"))
LOCK, READERS_KEY = b"app:doc", b"app:redlock-async:readers:{app:doc}"
RESERVATION = b"app:redlock-async:writer:{app:doc}"
FREED = b"app:redlock-async:readers-freed:{app:doc}"
REGISTER = Keys("app:").fence(LOCK)

SCRIPTS = (
    "read_acquire", "read_extend", "read_release", "read_reassert", "write_acquire", "write_downgrade", "mutex_extend",
    "mutex_release", "mutex_reassert",
)  # fmt: skip


def read(*, fenced=True):
    """A read lock on `doc`."""
    return Read(Keys("app:"), "doc", fenced=fenced)


def write(*, fenced=True):
    """A write lock on `doc`."""
    return Write(Keys("app:"), "doc", fenced=fenced)


def writer(*, fenced=True):
    """One acquire of a write lock on `doc`."""
    return write(fenced=fenced).start(FakeContext())


def named(command, dialect=CompareAndDelete.PLAIN):
    """What a server receives, with the name of a script in place of its hash."""
    parts = sent(command, dialect)
    if parts[0] == b"EVALSHA":
        (name,) = (name for name in SCRIPTS if sha(name) == parts[1])
        return [name.encode(), *parts[2:]]
    return parts


def refuse(attempt, reply):
    """Parse a node's reply, and have the attempt learn from it."""
    refusal = attempt.refusal(reply)
    attempt.on_refusal(refusal)
    return refusal


@pytest.mark.parametrize("name", [name for name in SCRIPTS if not name.startswith("mutex")])
def test_scripts_document_their_arguments_and_their_reply(name):
    """Each has a header with its keys, arguments and reply."""
    header = [line for line in script(name).source.decode().splitlines() if line.startswith("--")]
    assert header[0].startswith(f"-- {name}.lua: ")
    text = "\n".join(header)
    assert "KEYS" in text
    assert "ARGV" in text
    assert "Returns" in text


def test_the_lock_key_is_the_plain_lock_s_and_the_others_are_reserved():
    """The plain lock's key is the name itself; the others contain it in a hash tag, so that all have one slot."""
    keys = Keys("app:")
    assert read().key == write().keys[0] == keys.lock("doc") == LOCK
    assert (keys.readers("doc"), keys.waiting_writer("doc")) == (READERS_KEY, RESERVATION)


@pytest.mark.parametrize("kind", [Read, Write])
@pytest.mark.parametrize("name", ["", 7, "redlock-async:x", "x" * 5000])
def test_names_are_checked_as_those_of_plain_locks(kind, name):
    """The same rules apply."""
    with pytest.raises(ConfigurationError):
        kind(Keys(""), name, fenced=True)


# Readers


def test_readers_of_a_process_have_a_local_queue_of_their_own():
    """They only queue for as long as an attempt takes, and watch the lock key and a writer's reservation."""
    assert read().local_queue_keys == (READERS_KEY,)
    assert not Read.keeps_local_turn
    assert Read.shared
    assert read().watched_keys == (LOCK, RESERVATION)
    assert read().written_keys == (LOCK,)
    assert read().revocation_keys == (FREED,)


def test_each_read_lease_is_registered_under_a_key_of_its_own():
    """Two leases of one process on one name are kept apart."""
    assert read().held_by(TOKEN) != read().held_by(LATER)
    assert LOCK not in read().held_by(TOKEN)


@pytest.mark.parametrize("fenced", [True, False])
def test_a_reader_s_commands(fenced):
    """Fenced or not, the first reader raises the register for those that join it."""
    kind, keys = read(fenced=fenced), [LOCK, READERS_KEY, RESERVATION, REGISTER]
    number = str(len(keys)).encode()
    attempt = kind.start(FakeContext())
    for build in (attempt.first_command, attempt.retry_command):
        assert named(build(TOKEN, 10_000, 7)) == [b"read_acquire", number, *keys, TOKEN, b"10000", READERS, b"7", b""]
    nested = kind.nested_in(b"another")
    assert named(nested.first_command(TOKEN, 1, 7))[-2:] == [b"7", b"another"]
    assert (kind.joins_queue, nested.joins_queue) == (True, False)
    assert named(kind.release(TOKEN)) == [b"read_release", b"2", LOCK, READERS_KEY, TOKEN, b"0", READERS]
    assert named(kind.release_after(TOKEN, 5)) == [b"read_release", b"2", LOCK, READERS_KEY, TOKEN, b"5", READERS]
    fence = 9 if fenced else None
    assert named(kind.reassert(TOKEN, fence, 0)) == [
        b"read_reassert", b"3", LOCK, READERS_KEY, REGISTER, TOKEN, b"0", READERS, b"9" if fenced else b"0"
    ]  # fmt: skip


def test_many_read_leases_are_extended_in_one_command():
    """Each with its own keys, token and ttl."""
    other = Read(Keys(""), "x", fenced=True)
    assert named(Read.extend([(read(), TOKEN, 1000), (other, LATER, 0)])) == [
        b"read_extend", b"6", LOCK, READERS_KEY, FREED, b"x", b"redlock-async:readers:{x}",
        b"redlock-async:readers-freed:{x}", READERS, TOKEN, b"1000", LATER, b"0",
    ]  # fmt: skip
    assert read().state_count == 1


@pytest.mark.parametrize(
    ("reply", "refusal"),
    [
        ([TOKEN, 1500], Refusal(TOKEN, 1.5)),
        ([TOKEN, -1], Refusal(TOKEN, None)),
        ([None, 2500], QueuedAhead(WAITING_WRITER, 2.5)),
    ],
)
def test_a_reader_s_refusal(reply, refusal):
    """The reply has a writer's token, or says that a writer waits."""
    got = read().start(FakeContext()).refusal(reply)
    assert (type(got), got) == (type(refusal), refusal)
    assert got.ahead is (reply[0] is None)


def test_placeholders_for_readers_and_waiting_writers_have_an_owner_label():
    """Errors and listings show it as they show any holder's."""
    assert owner_of(READERS) == "readers"
    assert owner_of(WAITING_WRITER) == "a waiting writer"


# Writers


def test_writers_share_the_local_queue_of_plain_locks():
    """To the other tasks of its process, a writer is a plain lock."""
    assert write().local_queue_keys == write().watched_keys == write().held_by(TOKEN) == (LOCK,)
    assert writer().watched_keys == (LOCK,)
    assert Write.keeps_local_turn


@pytest.mark.parametrize(("fenced", "register"), [(True, [REGISTER]), (False, [])])
def test_a_writer_leaves_no_reservation_until_readers_made_it_wait(fenced, register):
    """Neither at its first attempt nor behind a writer; from its second attempt behind readers on, always the same."""
    attempt, keys = writer(fenced=fenced), [LOCK, READERS_KEY, RESERVATION, *register]
    start = [b"write_acquire", str(len(keys)).encode(), *keys]
    end = [READERS, b"", b"3000"]
    assert named(attempt.first_command(TOKEN, 10_000, 7)) == [*start, TOKEN, b"10000", *end, b"7"]
    assert refuse(attempt, [LATER, 400]) == Refusal(LATER, 0.4)
    assert named(attempt.retry_command(LATER, 10_000, 8)) == [*start, LATER, b"10000", *end, b"8"]
    assert attempt.cleanup() is None
    assert attempt.may_probe
    assert refuse(attempt, [READERS, 9000]) == ReadersPresent(READERS, 0.0, leave_in=9.0), "worth another one at once"
    assert not attempt.may_probe
    assert attempt.cleanup() is None
    end = [READERS, LAST, b"3000"]
    for token in (LAST, TOKEN):
        assert named(attempt.retry_command(token, 10_000, 9)) == [*start, token, b"10000", *end, b"9"]
        refusal = refuse(attempt, [READERS, 9000])
        assert refusal == ReadersPresent(READERS, RESERVATION_REFRESH, leave_in=9.0)
        assert refusal.ends_in == 9.0
        assert refuse(attempt, [READERS, 300]) == ReadersPresent(READERS, 0.3, leave_in=0.3)


def test_readers_on_one_node_are_enough_for_a_reservation():
    """Whatever the other nodes say after it, and only in the same attempt."""
    attempt = writer()
    attempt.first_command(TOKEN, 10_000, 7)
    refuse(attempt, [READERS, 9000])
    refuse(attempt, [LATER, 400])
    assert not attempt.may_probe
    assert attempt.cleanup() is None, "one that tries once must not hold back readers"
    attempt.first_command(LATER, 10_000, 7)
    assert attempt.may_probe
    refuse(attempt, [LATER, 400])
    attempt.retry_command(LAST, 10_000, 7)
    assert attempt.cleanup() is None


def test_a_writer_removes_its_own_reservation():
    """When it gives up, and also with the lock, because the grant does not remove it everywhere."""
    attempt = writer()
    attempt.first_command(TOKEN, 10_000, 7)
    refuse(attempt, [READERS, 9000])
    attempt.retry_command(LATER, 10_000, 8)
    assert named(attempt.cleanup(), CompareAndDelete.DELIFEQ) == [b"DELIFEQ", RESERVATION, LATER]


def test_what_one_acquire_has_learned_is_unknown_to_the_next():
    """Its reservation is its own as well."""
    kind = write()
    one = kind.start(FakeContext())
    one.first_command(TOKEN, 10_000, 7)
    refuse(one, [READERS, 9000])
    one.retry_command(LATER, 10_000, 8)
    assert one.cleanup() is not None
    two = kind.start(FakeContext())
    assert two.may_probe
    two.retry_command(TOKEN, 10_000, 9)
    assert two.cleanup() is None


def test_a_held_write_lock_is_a_plain_lock():
    """Renewal, release and repair are the same commands."""
    kind = write()
    assert writer().granted_kind().names == kind.names
    assert named(kind.release(TOKEN), CompareAndDelete.DELIFEQ) == [b"DELIFEQ", LOCK, TOKEN]
    assert named(Write.extend([(kind, TOKEN, 1000)])) == [b"mutex_extend", b"1", LOCK, TOKEN, b"1000"]
    assert named(kind.release_after(TOKEN, 5)) == [b"mutex_release", b"1", LOCK, TOKEN, b"5"]
    assert named(kind.reassert(TOKEN, 9, 0)) == [b"mutex_reassert", b"2", LOCK, REGISTER, b"1", TOKEN, b"0", b"9"]


def test_downgrade():
    """The same token becomes a reader's; the register is raised if there is a fencing token."""
    fenced = named(write().downgrade(TOKEN, 9, 1000))
    assert fenced == [b"write_downgrade", b"4", LOCK, READERS_KEY, REGISTER, FREED, TOKEN, b"1000", READERS, b"9"]
    plain = named(write(fenced=False).downgrade(TOKEN, None, 1000))
    assert plain == [b"write_downgrade", b"4", LOCK, READERS_KEY, REGISTER, FREED, TOKEN, b"1000", READERS, b"0"]
    assert (write().as_reader().key, write().as_reader().fenced) == (LOCK, True)
    assert write(fenced=False).as_reader().fenced is False
