"""The words of readers and writers for the nodes, and what the nodes' replies to them mean."""

import pytest

from redlock_async._claim import Ahead, Held
from redlock_async._contest import owner_of
from redlock_async._errors import ConfigurationError
from redlock_async._keys import Keys
from redlock_async._readwrite import READERS, REFRESH, WAITING, Read, Reading, Write
from redlock_async._scripts import Dialect, script

TOKEN, LATER, LAST = (digit * 32 + b":owner" for digit in (b"a", b"b", b"c"))
LOCK, READING, HINT = b"app:doc", b"app:redlock-async:readers:{doc}", b"app:redlock-async:writer:{doc}"
FREED = b"app:redlock-async:readers-freed:{doc}"
REGISTER = Keys("app:").fence(LOCK)


def read(*, fenced=True):
    """A reader's claim on `doc`."""
    return Read(Keys("app:"), "doc", fenced=fenced)


def write(*, fenced=True):
    """A writer's claim on `doc`, of one acquire."""
    return Write(Keys("app:"), "doc", fenced=fenced).begin(None)


def words(command, dialect=Dialect.PLAIN):
    """The command as a server reads it, the hash of a script replaced by the script's name."""
    parts = command.pack(dialect).split(b"\r\n")[2::2]
    if parts[0] == b"EVALSHA":
        names = [name for name in SCRIPTS if script(name).sha == parts[1]]
        return [names[0].encode(), *parts[2:]]
    return parts


SCRIPTS = (
    "read_acquire", "read_extend", "read_release", "read_secure", "write_acquire", "write_downgrade", "mutex_extend",
    "mutex_release", "mutex_secure",
)  # fmt: skip


@pytest.mark.parametrize("name", [name for name in SCRIPTS if not name.startswith("mutex")])
def test_scripts_say_what_they_take_and_return(name):
    """Each has a header with its keys, arguments and reply."""
    header = [line for line in script(name).source.decode().splitlines() if line.startswith("--")]
    assert header[0].startswith(f"-- {name}.lua: ")
    text = "\n".join(header)
    assert "KEYS" in text
    assert "ARGV" in text
    assert "Returns" in text


def test_every_key_but_the_plain_one_is_reserved_and_of_the_names_slot():
    """The plain lock's key is the name itself; the others carry it in a hash tag."""
    keys = Keys("app:")
    assert read().key == write().keys[0] == keys.lock("doc") == LOCK
    assert (keys.readers("doc"), keys.waiting_writer("doc")) == (READING, HINT)


@pytest.mark.parametrize("kind", [Read, Write])
@pytest.mark.parametrize("name", ["", 7, "redlock-async:x", "x" * 5000])
def test_names_are_checked(kind, name):
    """As those of plain locks."""
    with pytest.raises(ConfigurationError):
        kind(Keys(""), name, fenced=True)


def test_a_reader_takes_its_turn_with_readers_and_passes_it_on():
    """Readers of a process queue by themselves, and only for as long as an attempt takes."""
    assert read().turns == (READING,)
    assert not Read.exclusive
    assert read().watched == (LOCK, HINT)


def test_a_writer_takes_its_turn_with_plain_locks():
    """It is one, to the others of its process."""
    assert write().turns == write().watched == write().held_by(TOKEN) == (LOCK,)
    assert Write.exclusive


def test_each_reader_is_found_by_itself():
    """Two leases of one process on one name are kept apart."""
    assert read().held_by(TOKEN) != read().held_by(LATER)
    assert LOCK not in read().held_by(TOKEN)


@pytest.mark.parametrize("fenced", [True, False])
def test_what_a_reader_asks(fenced):
    """Acquire, release, retain and secure: the first reader raises the register for those who join, fenced or not."""
    claim, keys = read(fenced=fenced), [LOCK, READING, HINT, REGISTER]
    number = str(len(keys)).encode()
    for ask in (claim.acquire, claim.contend):
        assert words(ask(TOKEN, 10_000, 7)) == [b"read_acquire", number, *keys, TOKEN, b"10000", READERS, b"7", b""]
    again = claim.beside(b"another")
    assert words(again.acquire(TOKEN, 1, 7))[-2:] == [b"7", b"another"]
    assert (claim.queues, again.queues) == (True, False)
    assert words(claim.release(TOKEN)) == [b"read_release", b"2", LOCK, READING, TOKEN, b"0", READERS]
    assert words(claim.retain(TOKEN, 5)) == [b"read_release", b"2", LOCK, READING, TOKEN, b"5", READERS]
    fence = 9 if fenced else None
    assert words(claim.secure(TOKEN, fence, 0)) == [
        b"read_secure", b"3", LOCK, READING, REGISTER, TOKEN, b"0", READERS, b"9" if fenced else b"0"
    ]  # fmt: skip


def test_many_readers_are_lengthened_in_one_command():
    """Each with its own keys, token and ttl."""
    other = Read(Keys(""), "x", fenced=True)
    assert words(Read.extend([(read(), TOKEN, 1000), (other, LATER, 0)])) == [
        b"read_extend", b"6", LOCK, READING, FREED, b"x", b"redlock-async:readers:{x}",
        b"redlock-async:readers-freed:{x}", READERS, TOKEN, b"1000", LATER, b"0",
    ]  # fmt: skip
    assert read().width == 1


@pytest.mark.parametrize(
    ("reply", "meaning"),
    [
        ([TOKEN, 1500], Held(TOKEN, 1.5)),
        ([TOKEN, -1], Held(TOKEN, None)),
        ([None, 2500], Ahead(WAITING, 2.5)),
    ],
)
def test_what_a_reader_is_told(reply, meaning):
    """A writer's token, or that a writer waits."""
    assert read().refusal(reply) == meaning


def test_what_stands_for_readers_reads_as_their_owner():
    """Errors and operators show it like any owner's label."""
    assert owner_of(READERS) == "readers"
    assert owner_of(WAITING) == "a waiting writer"


@pytest.mark.parametrize(("fenced", "register"), [(True, [REGISTER]), (False, [])])
def test_a_writer_leaves_no_hint_until_readers_made_it_wait(fenced, register):
    """Not at its first attempt, nor behind a writer; from the second on behind readers, always the same."""
    claim, keys = write(fenced=fenced), [LOCK, READING, HINT, *register]
    start = [b"write_acquire", str(len(keys)).encode(), *keys]
    assert words(claim.acquire(TOKEN, 10_000, 7)) == [*start, TOKEN, b"10000", READERS, b"", b"3000", b"7"]
    assert claim.refusal([LATER, 400]) == Held(LATER, 0.4)
    assert words(claim.contend(LATER, 10_000, 8)) == [*start, LATER, b"10000", READERS, b"", b"3000", b"8"]
    assert claim.withdraw() is None
    assert claim.probes
    assert claim.refusal([READERS, 9000]) == Reading(READERS, 0.0, leave_in=9.0), "worth another attempt at once"
    assert not claim.probes
    assert claim.withdraw() is None
    for token in (LAST, TOKEN):
        assert words(claim.contend(token, 10_000, 9)) == [*start, token, b"10000", READERS, LAST, b"3000", b"9"]
        assert claim.refusal([READERS, 9000]) == Reading(READERS, REFRESH, leave_in=9.0)
        assert claim.refusal([READERS, 300]) == Reading(READERS, 0.3, leave_in=0.3)


def test_a_writer_takes_its_own_hint_away():
    """When it gives up, and when it is in, for the grant may not have done it."""
    claim = write()
    claim.acquire(TOKEN, 10_000, 7)
    claim.refusal([READERS, 9000])
    claim.contend(LATER, 10_000, 8)
    assert words(claim.withdraw(), Dialect.DELIFEQ) == [b"DELIFEQ", HINT, LATER]


def test_every_acquire_of_a_lock_object_begins_anew():
    """What one has learnt, and its hint, are nothing to the next."""
    shared = Write(Keys("app:"), "doc", fenced=True)
    one = shared.begin(None)
    one.acquire(TOKEN, 10_000, 7)
    one.refusal([READERS, 9000])
    one.contend(LATER, 10_000, 8)
    assert one.withdraw() is not None
    assert shared.withdraw() is None
    assert shared.begin(None).withdraw() is None


def test_a_writer_is_kept_as_a_plain_lock():
    """Renewal, release and repair are the same words."""
    claim = write()
    assert words(claim.release(TOKEN), Dialect.DELIFEQ) == [b"DELIFEQ", LOCK, TOKEN]
    assert words(Write.extend([(claim, TOKEN, 1000)])) == [b"mutex_extend", b"1", LOCK, TOKEN, b"1000"]
    assert words(claim.retain(TOKEN, 5)) == [b"mutex_release", b"1", LOCK, TOKEN, b"5"]
    assert words(claim.secure(TOKEN, 9, 0)) == [b"mutex_secure", b"2", LOCK, REGISTER, b"1", TOKEN, b"0", b"9"]


def test_downgrade():
    """The same token, as a reader's, with the register if there is one."""
    asked = words(write().downgrade(TOKEN, 9, 1000))
    assert asked == [b"write_downgrade", b"4", LOCK, READING, REGISTER, FREED, TOKEN, b"1000", READERS, b"9"]
    plain = words(write(fenced=False).downgrade(TOKEN, None, 1000))
    assert plain == [b"write_downgrade", b"4", LOCK, READING, REGISTER, FREED, TOKEN, b"1000", READERS, b"0"]
    assert (write().reading().key, write().reading().fenced) == (LOCK, True)
    assert write(fenced=False).reading().fenced is False
