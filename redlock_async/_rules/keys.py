"""The names of all keys that the library uses. No I/O."""

from __future__ import annotations

from zlib import crc32

from redlock_async.errors import ConfigurationError, short_repr

RESERVED = "redlock-async:"
"""Prefix of the library's own keys, after the namespace. Lock names must not begin with it."""

FENCES = 16_384
"""Maximum number of fence registers on a node. Names that share one still have increasing tokens."""

LONGEST_NAME = 4_096
"""Maximum bytes of a lock's key. A longer one is usually a document passed by mistake, and every node stores it."""

LONGEST_TOKEN = 1_024
"""Maximum characters of a token in operator output. The scripts read as many bytes; our own tokens are shorter."""

QUEUE = ("queue", "queue-kept", "ticket")
LATCH = ("latch", "latch-state")
SEMAPHORE = ("semaphore", "semaphore-hint")


class Keys:
    """The keys of one namespace."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self._fence = f"{namespace}{RESERVED}fence:".encode()
        self.record = f"{namespace}{RESERVED}node".encode()
        self.clocks = f"{namespace}{RESERVED}clocks".encode()
        self.probe = f"{namespace}{RESERVED}probe".encode()

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
        self.lock(name)
        permits, reservation = (f"{self.namespace}{RESERVED}{part}:{{{name}}}".encode() for part in SEMAPHORE)
        return permits, reservation

    def queue(self, name: str) -> tuple[bytes, bytes, bytes]:
        """Return the keys of a fair lock's queue, of the expiry of its entries, and of its ticket register."""
        self.lock(name)
        queue, kept, ticket = (f"{self.namespace}{RESERVED}{part}:{{{name}}}".encode() for part in QUEUE)
        return queue, kept, ticket

    def latch(self, name: str) -> tuple[bytes, bytes]:
        """Return the keys of the event ids that a latch has counted, and of its state: count and whether it is open."""
        self.lock(name)
        ids, state = (f"{self.namespace}{RESERVED}{part}:{{{name}}}".encode() for part in LATCH)
        return ids, state

    def auxiliary(self, name: str) -> tuple[bytes, ...]:
        """Return all keys of a name except its lock and a semaphore's slots, in the order of locks_context.lua."""
        writer = self.waiting_writer(name)
        return (self.readers(name), writer, *self.queue(name), *self.semaphore(name), *self.latch(name))

    def fence(self, key: bytes) -> bytes:
        """Return the fence register of a key. The number of registers is bounded, so they need no expiry."""
        return b"%b%d" % (self._fence, crc32(key) % FENCES)

    def readers(self, name: str) -> bytes:
        """Return the key of the readers of a name, in the same cluster slot as its lock."""
        return self._of(b"readers", name)

    def waiting_writer(self, name: str) -> bytes:
        """Return the key of the reservation of a writer that waits for the readers."""
        return self._of(b"writer", name)

    def freed_readers(self, name: str) -> bytes:
        """Return a key that never stays: writing it on a force-release notifies all readers."""
        return self._of(b"readers-freed", name)

    def _of(self, part: bytes, name: str) -> bytes:
        return b"%s%s%s:{%s}" % (self.namespace.encode(), RESERVED.encode(), part, name.encode())
