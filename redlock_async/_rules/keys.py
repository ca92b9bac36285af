"""The names of all keys that the library uses. No I/O.

A Redis or Valkey Cluster hashes each key to one of 16,384 slots, and a script may only use keys of one slot. So all
keys that belong to a lock are in the slot of the lock's own key, which is its name. They contain that key in braces,
and the servers hash only what is in braces. Braces within the lock's key would change that, so these keys begin with
the *tag* of the slot: four letters in braces that hash to it. Each slot has one fence register, named by its tag.

The layout is the same on servers that are no cluster.
"""

from __future__ import annotations

from binascii import crc_hqx
from collections.abc import Sequence
from functools import lru_cache, reduce
from operator import xor
from typing import NamedTuple

from redlock_async.errors import ConfigurationError, short_repr

RESERVED = "redlock-async:"
"""Prefix of the library's own keys, after the namespace. Lock names must not begin with it."""

SLOTS = 16_384
"""How many slots a cluster has, and maximum number of fence registers on a node. Names that share one still have
increasing tokens."""

FLIPS = (
    0x1AFA, 0x06ED, 0x277B, 0x110C, 0x2A91, 0x39C0, 0x1F63, 0x277F, 0x1104, 0x2208, 0x1BEA, 0x04CD, 0x233B, 0x198C,
)  # fmt: skip
"""For each bit of a slot, the bits of a tag that change it, and nothing else. A CRC is linear, so they combine."""

SLOT_OF_ZERO = 0x3639
"""The slot of the tag with no bit set."""


def _bits(slot: int) -> int:
    """Return the bits of the tag of a slot."""
    return reduce(xor, (flips for position, flips in enumerate(FLIPS) if (slot ^ SLOT_OF_ZERO) >> position & 1), 0)


LOW_BITS = 128
LOW, HIGH = ([_bits(part * step) for part in range(LOW_BITS)] for step in (1, LOW_BITS))
"""The bits of the tags whose slots have only lower bits, and only upper bits. Both contain those of slot 0."""
ZERO = _bits(0)

LONGEST_NAME = 4_096
"""Maximum bytes of a lock's key. A longer one is usually a document passed by mistake, and every node stores it."""

LONGEST_TOKEN = 1_024
"""Maximum characters of a token in operator output. The scripts read as many bytes; our own tokens are shorter."""

NODE = (b"node", b"clocks", b"probe")
QUEUE = (b"queue", b"queue-kept", b"ticket")
LATCH = (b"latch", b"latch-state")
SEMAPHORE = (b"semaphore", b"semaphore-hint")


def slot_of(key: bytes) -> int:
    """Return the slot of a key in a cluster, as the servers compute it."""
    start = key.find(b"{") + 1
    if start and (end := key.find(b"}", start)) > start:
        key = key[start:end]
    return crc_hqx(key, 0) % SLOTS


@lru_cache(maxsize=SLOTS)
def tag_of(slot: int) -> bytes:
    """Return the tag of a slot: four letters that hash to it, from @ to O, each of which stands for four bits."""
    bits = LOW[slot % LOW_BITS] ^ HIGH[slot // LOW_BITS] ^ ZERO
    return bytes((64 | bits >> 12, 64 | bits >> 8 & 15, 64 | bits >> 4 & 15, 64 | bits & 15))


def require_one_slot(names: Sequence[str], keys: Sequence[bytes]) -> None:
    """Raise ConfigurationError unless the keys of these names are in one slot of a cluster."""
    if len({slot_of(key) for key in keys}) > 1:
        shown = ", ".join(map(short_repr, names))
        raise ConfigurationError(
            f"names that are locked together need a common hash tag where a node is a cluster, got {shown}. Put "
            'the same text in braces in each, such as "{order:7}:stock" and "{order:7}:payment", for one shard'
        )


class NodeKeys(NamedTuple):
    """The keys of one node, or of one shard of a cluster."""

    record: bytes
    clocks: bytes
    probe: bytes


class Keys:
    """The keys of one namespace."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self._own = f"{namespace}{RESERVED}".encode()
        self.node = NodeKeys(*(self._own + part for part in NODE))

    def shard(self, home: int) -> NodeKeys:
        """Return the keys of a shard that keeps its records in that slot."""
        return NodeKeys(*(b"%b%b:{%b}" % (self._own, part, tag_of(home)) for part in NODE))

    @property
    def fits_clusters(self) -> bool:
        """Whether all keys of a name are in one slot: braces in the namespace must be a hash tag of their own."""
        start = self.namespace.find("{") + 1
        return not start or self.namespace.find("}", start) > start

    def lock(self, name: str) -> bytes:
        """Return the key of a plain lock; raise ConfigurationError for an invalid name.

        The key is exactly the name, so that locks of other Redlock clients exclude ours and vice versa.
        """
        if not isinstance(name, str):
            msg = f"a lock's name must be a str, got {type(name).__name__}: {short_repr(name)}"
            raise ConfigurationError(msg)
        if not name:
            msg = "a lock's name must not be empty"
            raise ConfigurationError(msg)
        if name.startswith(RESERVED):
            msg = f"a lock's name must not begin with {RESERVED!r}, which is reserved, got {short_repr(name)}"
            raise ConfigurationError(msg)
        try:
            key = (self.namespace + name).encode()
        except UnicodeEncodeError:
            msg = f"a lock's name must be text without lone surrogates, got {short_repr(name)}"
            raise ConfigurationError(msg) from None
        if len(key) > LONGEST_NAME:
            msg = (
                f"a lock's name must be at most {LONGEST_NAME} bytes with its namespace, got {len(key)}: "
                f"{short_repr(name)}. Use a hash of it"
            )
            raise ConfigurationError(msg)
        return key

    def semaphore(self, name: str) -> tuple[bytes, bytes]:
        """Return the keys of a semaphore's number of permits and of its reservation for a waiter for several slots.

        The key of a slot is the first key with a colon and a number.
        """
        permits, reservation = (self._of(part, name) for part in SEMAPHORE)
        return permits, reservation

    def queue(self, name: str) -> tuple[bytes, bytes, bytes]:
        """Return the keys of a fair lock's queue, of the expiry of its entries, and of its ticket register."""
        queue, kept, ticket = (self._of(part, name) for part in QUEUE)
        return queue, kept, ticket

    def latch(self, name: str) -> tuple[bytes, bytes]:
        """Return the keys of the event ids that a latch has counted, and of its state: count and whether it is open."""
        ids, state = (self._of(part, name) for part in LATCH)
        return ids, state

    def auxiliary(self, name: str) -> tuple[bytes, ...]:
        """Return all keys of a name except its lock and a semaphore's slots, in the order of locks_context.lua."""
        writer = self.waiting_writer(name)
        return (self.readers(name), writer, *self.queue(name), *self.semaphore(name), *self.latch(name))

    def fence(self, key: bytes) -> bytes:
        """Return the fence register of a key. The number of registers is bounded, so they need no expiry."""
        return self._own + b"fence:{%b}" % tag_of(slot_of(key))

    def readers(self, name: str) -> bytes:
        """Return the key of the readers of a name."""
        return self._of(b"readers", name)

    def waiting_writer(self, name: str) -> bytes:
        """Return the key of the reservation of a writer that waits for the readers."""
        return self._of(b"writer", name)

    def freed_readers(self, name: str) -> bytes:
        """Return a key that never stays: writing it on a force-release notifies all readers."""
        return self._of(b"readers-freed", name)

    def _of(self, part: bytes, name: str) -> bytes:
        key = self.lock(name)
        tag = b"{%b}:" % tag_of(slot_of(key)) if b"{" in key or b"}" in key else b""
        return b"%b%b:%b{%b}" % (self._own, part, tag, key)
