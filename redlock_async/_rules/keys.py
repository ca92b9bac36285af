"""The name of every key the library touches. No I/O."""

from __future__ import annotations

from zlib import crc32

from ._errors import ConfigurationError, shown

RESERVED = "redlock-async:"
"""Prefix of the library's own keys, after the namespace. Lock names may not begin with it."""

FENCES = 16_384
"""Fence registers a node keeps at most. Sharing one by several names keeps each name's tokens increasing."""

LONGEST_NAME = 4_096
"""Bytes. Longer ones are almost always a whole document passed by mistake, and every node stores them."""

QUEUE = ("queue", "queue-kept", "ticket")
LATCH = ("latch", "latch-state")
SEMAPHORE = ("semaphore", "semaphore-hint")


class Keys:
    """The keys of one namespace."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self._fence = f"{namespace}{RESERVED}fence:".encode()
        self.born = f"{namespace}{RESERVED}born".encode()
        self.longest_ttl = f"{namespace}{RESERVED}longest-ttl".encode()
        self.founded = f"{namespace}{RESERVED}founded".encode()
        self.probe = f"{namespace}{RESERVED}probe".encode()

    def lock(self, name: str) -> bytes:
        """The key of a plain lock is exactly its name, so that any other Redlock client excludes and is excluded."""
        if not isinstance(name, str):
            msg = f"a lock's name is a str, not {type(name).__name__}: {shown(name)}"
            raise ConfigurationError(msg)
        if not name:
            msg = "a lock's name must not be empty"
            raise ConfigurationError(msg)
        if name.startswith(RESERVED):
            msg = f"lock names beginning with {RESERVED!r} are reserved for the library's own keys: {shown(name)}"
            raise ConfigurationError(msg)
        try:
            key = (self.namespace + name).encode()
        except UnicodeEncodeError:
            msg = f"a lock's name must be valid text, without lone surrogates: {shown(name)}"
            raise ConfigurationError(msg) from None
        if len(key) > LONGEST_NAME:
            msg = f"a lock's name is at most {LONGEST_NAME} bytes, not {len(key)}: {shown(name)}; use a hash of it"
            raise ConfigurationError(msg)
        return key

    def semaphore(self, name: str) -> tuple[bytes, bytes]:
        """A semaphore's number of permits, and the hint of one who waits for many.

        Its slots are called as the first, with a colon and a number.
        """
        self.lock(name)
        permits, hint = (f"{self.namespace}{RESERVED}{part}:{{{name}}}".encode() for part in SEMAPHORE)
        return permits, hint

    def queue(self, name: str) -> tuple[bytes, bytes, bytes]:
        """A fair lock's queue, until when each place in it is kept, and its ticket register."""
        self.lock(name)
        queue, kept, ticket = (f"{self.namespace}{RESERVED}{part}:{{{name}}}".encode() for part in QUEUE)
        return queue, kept, ticket

    def latch(self, name: str) -> tuple[bytes, bytes]:
        """The ids a latch has counted, and what it is: its count, and whether it is open."""
        self.lock(name)
        ids, state = (f"{self.namespace}{RESERVED}{part}:{{{name}}}".encode() for part in LATCH)
        return ids, state

    def around(self, name: str) -> tuple[bytes, ...]:
        """All that may be stored for a name besides its lock and a semaphore's slots, as locks_context.lua takes it."""
        writer = self.waiting_writer(name)
        return (self.readers(name), writer, *self.queue(name), *self.semaphore(name), *self.latch(name))

    def fence(self, key: bytes) -> bytes:
        """The register that orders the holders of a key. Bounded in number, so it needs no expiry."""
        return b"%b%d" % (self._fence, crc32(key) % FENCES)

    def readers(self, name: str) -> bytes:
        """The readers of that name, in the same slot as its lock."""
        return self._of(b"readers", name)

    def waiting_writer(self, name: str) -> bytes:
        """The hint of a writer that waits for those readers."""
        return self._of(b"writer", name)

    def freed_readers(self, name: str) -> bytes:
        """Never there: touched when those readers are freed by force, which tells all of them."""
        return self._of(b"readers-freed", name)

    def _of(self, what: bytes, name: str) -> bytes:
        return b"%s%s%s:{%s}" % (self.namespace.encode(), RESERVED.encode(), what, name.encode())
