"""Key names: the plain lock's is its name, and no lock can have a name of the library's own."""

import re
import string
from itertools import product

import pytest

from redlock_async import ConfigurationError
from redlock_async._rules.keys import LONGEST_NAME, RESERVED, SLOTS, Keys, slot_of, tag_of


@pytest.mark.parametrize("namespace", ["", "app:", "é/"])
@pytest.mark.parametrize("name", ["x", "orders:42", "a b", "{tag}x", "naïve", "鍵", "\x00", "x" * 1000])
def test_the_key_of_a_lock_is_the_namespace_and_the_name(namespace, name):
    """Any other Redlock client that locks the same name locks the same key."""
    assert Keys(namespace).lock(name) == (namespace + name).encode("utf-8")


@pytest.mark.parametrize("name", [b"x", 5, None, 1.5, ["x"], ("x",), object, True])
def test_a_name_that_is_not_text_is_rejected(name):
    """The message names the expected type and the actual one."""
    with pytest.raises(ConfigurationError, match=f"must be a str, got {type(name).__name__}"):
        Keys("").lock(name)


def test_an_empty_name_is_rejected_in_any_namespace():
    """It usually comes from a variable that was not set, and would lock the namespace itself."""
    for namespace in ("", "app:"):
        with pytest.raises(ConfigurationError, match="must not be empty"):
            Keys(namespace).lock("")


def test_the_longest_name_is_counted_in_bytes_with_the_namespace():
    """4,096 bytes are valid, one more is a mistake; the message has a remedy."""
    assert len(Keys("").lock("x" * LONGEST_NAME)) == LONGEST_NAME
    for namespace, name in (("", "x" * (LONGEST_NAME + 1)), ("n", "x" * LONGEST_NAME), ("", "é" * 2049)):
        with pytest.raises(ConfigurationError, match=r"at most 4096 bytes .*, got 409[78].*Use a hash") as caught:
            Keys(namespace).lock(name)
        assert len(str(caught.value)) < 300, "a whole document must not end up in a log"


@pytest.mark.parametrize("name", ["\ud800", "a\udfffb", "x" * 10 + "\udc80"])
def test_lone_surrogates_are_rejected(name):
    """They are not text and have no bytes; the message itself must be printable."""
    with pytest.raises(ConfigurationError, match="surrogate") as caught:
        Keys("").lock(name)
    assert str(caught.value).encode()


@pytest.mark.parametrize("namespace", ["", "app:", RESERVED])
def test_no_lock_has_a_key_of_the_library(namespace):
    """Names with the prefix are rejected, and all valid names differ from every key of the library."""
    keys = Keys(namespace)
    own = {keys.node.record, keys.node.probe} | {keys.fence(b"%d" % number) for number in range(1000)}
    for key in own:
        name = key.decode().removeprefix(namespace)
        assert name.startswith(RESERVED)
        with pytest.raises(ConfigurationError, match="reserved"):
            keys.lock(name)
    with pytest.raises(ConfigurationError, match="reserved"):
        keys.lock(RESERVED)
    for name in ("redlock-async", RESERVED.upper(), f" {RESERVED}node", f"x{RESERVED}node"):
        assert keys.lock(name) not in own


def test_own_keys_of_one_namespace_are_all_different():
    """A node's record must not be overwritten by a fence register."""
    keys = Keys("n:")
    fences = {keys.fence(b"%d" % number) for number in range(1000)}
    assert len({keys.node.record, keys.node.probe} | fences) == 2 + len(fences)


def test_namespaces_share_no_key():
    """Two applications on the same nodes do not see each other."""
    one, other = Keys("one:"), Keys("other:")
    for key in ("record", "probe"):
        assert getattr(one.node, key) != getattr(other.node, key)
    assert one.lock("x") != other.lock("x")
    assert one.fence(b"x") != other.fence(b"x")


def test_fence_registers_are_bounded_and_spread():
    """With any number of names a node keeps at most one register for each slot, and uses most of them."""
    keys = Keys("n:")
    registers = {keys.fence(f"name:{number}".encode()) for number in range(8 * SLOTS)}
    assert 0.99 * SLOTS < len(registers) <= SLOTS
    prefix = re.escape(f"n:{RESERVED}fence:".encode())
    assert all(re.fullmatch(prefix + rb"\{[@-C][@-O]{3}\}", register) for register in registers)


def test_a_key_has_the_same_register_in_every_process():
    """Not Python's salted hash, which differs between processes. The value is part of the protocol."""
    assert Keys("").fence(b"orders:42") == b"redlock-async:fence:{CABA}"
    assert Keys("app:").fence(b"app:orders:42") == b"app:redlock-async:fence:{ABMD}"


def test_short_names_differ_in_their_keys():
    """No two names share a lock."""
    names = ["".join(letters) for letters in product(string.ascii_letters + ":{}", repeat=2)]
    assert len({Keys("").lock(name) for name in names}) == len(names)


# Slots of a cluster


@pytest.mark.parametrize(
    ("key", "slot"),
    [
        (b"123456789", 12739),
        (b"foo", 12182),
        (b"{foo}bar", 12182),
        (b"bar{foo}{zap}", 12182),
        (b"foo{}{bar}", 8363),
        (b"foo{{bar}}zap", 4015),
        (b"foo{bar", 15278),
        (b"{}", 15257),
    ],
)
def test_the_slot_of_a_key_is_that_of_the_servers(key, slot):
    """As `CLUSTER KEYSLOT` says, with every form of hash tag."""
    assert slot_of(key) == slot


def test_each_slot_has_a_tag():
    """Four letters that hash to it, and no other slot has them."""
    tags = [tag_of(slot) for slot in range(SLOTS)]
    assert [slot_of(b"x{%b}y" % tag) for tag in tags] == [*range(SLOTS)]
    assert all(re.fullmatch(rb"[@-C][@-O]{3}", tag) for tag in tags)


@pytest.mark.parametrize("namespace", ["", "app:", "{app}:", "{app}{b}"])
@pytest.mark.parametrize("name", ["x", "{a}b", "a{b}", "a}b", "a{b", "{}x", "}{", "{", "}", "{{a}}", "a{b}{c}", "é{}"])
def test_all_keys_of_a_name_are_in_the_slot_of_its_lock(namespace, name):
    """A script may use only keys of one slot, whatever braces the name has."""
    keys = Keys(namespace)
    lock = keys.lock(name)
    permits, _ = keys.semaphore(name)
    others = (*keys.auxiliary(name), keys.freed_readers(name), keys.fence(lock), keys.fence(permits), permits + b":7")
    assert {slot_of(key) for key in others} == {slot_of(lock)}
    assert len({*others, lock}) == len(others)
