"""Every command the library sends, packed once for all nodes. No I/O beyond reading the package's own files."""

from __future__ import annotations

from enum import Enum
from functools import cache
from hashlib import sha1
from importlib.resources import files
from typing import ClassVar

from ._wire import pack


class Dialect(Enum):
    """How one server deletes a key natively if it holds a value; probed on each connection, never told by a version."""

    PLAIN = "by script"
    DELIFEQ = "DELIFEQ key value"  # Valkey 9
    DELEX = "DELEX key IFEQ value"  # Redis 8.4


class Script:
    """One file of lua/, called by its hash."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.source = files("redlock_async").joinpath(f"lua/{name}.lua").read_bytes()
        self.sha = sha1(self.source, usedforsecurity=False).hexdigest().encode()


@cache
def script(name: str) -> Script:
    """The script of that name; each file is read once."""
    return Script(name)


class Call:
    """A script with its arguments; the same bytes for every node."""

    grant: ClassVar[bytes | None] = None
    """What an acquire answers, instead of a fence, where it has none to give."""

    __slots__ = ("_arguments", "_packed", "_script")

    def __init__(self, name: str, *arguments: bytes | str | int) -> None:
        self._script = script(name)
        self._arguments = arguments
        self._packed: bytes | None = None

    def pack(self, dialect: Dialect) -> bytes:  # noqa: ARG002 - scripts read the same on every server
        """The bytes to send."""
        packed = self._packed
        if packed is None:
            packed = self._packed = pack(("EVALSHA", self._script.sha, *self._arguments))
        return packed

    def pack_with_source(self) -> bytes:
        """The same for a server that has forgotten the script."""
        return pack(("EVAL", self._script.source, *self._arguments))


class SetIfAbsent:
    """SET key token NX PX ttl: Redlock's own acquire."""

    grant: ClassVar[bytes | None] = b"OK"

    __slots__ = ("_packed",)

    def __init__(self, key: bytes, token: bytes, ttl_ms: int) -> None:
        self._packed = pack(("SET", key, token, "NX", "PX", ttl_ms))

    def pack(self, dialect: Dialect) -> bytes:  # noqa: ARG002 - the same on every server
        """The bytes to send."""
        return self._packed

    def pack_with_source(self) -> bytes:
        """Never asked for: not a script."""
        return self._packed


class DeleteIfEqual:
    """Delete a key if it holds the token, by the server's own command where it has one."""

    grant: ClassVar[bytes | None] = None

    __slots__ = ("_dialect", "_packed", "_script", "key", "token")

    def __init__(self, key: bytes, token: bytes) -> None:
        self.key = key
        self.token = token
        self._dialect: Dialect | None = None
        self._packed = b""

    def pack(self, dialect: Dialect) -> bytes:
        """The bytes to send to a server of that dialect."""
        if dialect is not self._dialect:  # nodes are mostly of one kind: remember the last
            self._dialect = dialect
            if dialect is Dialect.DELIFEQ:
                self._packed = pack(("DELIFEQ", self.key, self.token))
            elif dialect is Dialect.DELEX:
                self._packed = pack(("DELEX", self.key, "IFEQ", self.token))
            else:
                self._packed = self._fallback().pack(dialect)
        return self._packed

    def _fallback(self) -> Call:
        return Call("mutex_release", 1, self.key, self.token, 0)

    def pack_with_source(self) -> bytes:
        """For a server that has forgotten the script."""
        return self._fallback().pack_with_source()


Command = Call | SetIfAbsent | DeleteIfEqual
