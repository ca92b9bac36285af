"""Every command the library sends, packed once for all nodes. No I/O beyond reading the package's own files."""

from __future__ import annotations

import re
from enum import Enum
from functools import cache
from hashlib import sha1
from importlib.resources import files
from typing import ClassVar

from redlock_async._rules.replies import FORBIDDEN_IN_SCRIPT, UNKNOWN_IN_SCRIPT, failure

from .connection import pack


class CompareAndDelete(Enum):
    """How a server deletes a key if it holds a given value; probed on each connection, never derived from a version."""

    PLAIN = "by script"
    DELIFEQ = "DELIFEQ key value"  # Valkey 9
    DELEX = "DELEX key IFEQ value"  # Redis 8.4


DELIFEQ, DELEX = CompareAndDelete.DELIFEQ, CompareAndDelete.DELEX
"""As attributes of the enum they take ten times as long to look up in Python 3.11, for each lock."""


LUA = files("redlock_async").joinpath("lua")

INCLUDE = re.compile(rb"^-- include: (\w+\.lua)$", re.MULTILINE)
"""A line of a script that is replaced by a file of lua/include/."""


def included(source: bytes) -> bytes:
    """Return the script as it is sent to servers, with its includes."""
    return INCLUDE.sub(lambda line: LUA.joinpath("include", line[1].decode()).read_bytes(), source)


CALLED = re.compile(rb"redis\.p?call\('(\w+)'")
"""A call of a server's command in a script."""

LINE = re.compile(r"user_script: ?(\d+)")
"""The line of a script, in a server's error."""


class Script:
    """One file of lua/, called by its hash."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.source = included(LUA.joinpath(f"{name}.lua").read_bytes())
        self.sha = sha1(self.source, usedforsecurity=False).hexdigest().encode()

    def commands_at(self, line: int) -> str:
        """Return the server commands that the script calls at that line, or right before it."""
        for called in reversed(self.source.splitlines()[:line]):
            if names := CALLED.findall(called):
                return " or ".join(dict.fromkeys(name.decode() for name in names))
        return ""


@cache
def script(name: str) -> Script:
    """Return the script of that name; each file is read once."""
    return Script(name)


def command_format(*words: str | None) -> bytes:
    """Return a format for the bytes of a command; each None stands for the length of an argument, and the argument.

    Filling in the format takes a third of the time that `pack` takes.
    """
    fixed = (b"$%d\r\n%b\r\n" if word is None else b"$%d\r\n%b\r\n" % (len(word), word.encode()) for word in words)
    return b"*%d\r\n" % len(words) + b"".join(fixed)


SET_NX_PX = command_format("SET", None, None, "NX", "PX", None)
DELIFEQ_FORMAT = command_format("DELIFEQ", None, None)
DELEX_FORMAT = command_format("DELEX", None, "IFEQ", None)


class Call:
    """A script with its arguments; the same bytes for every node."""

    grant: ClassVar[bytes | None] = None
    """The reply of an acquire command that returns no fencing token."""

    __slots__ = ("_arguments", "_packed", "script")

    def __init__(self, name: str, *arguments: bytes | str | int) -> None:
        self.script = script(name)
        self._arguments = arguments
        self._packed: bytes | None = None

    @property
    def key(self) -> bytes:
        """The first key, which tells the slot."""
        key = self._arguments[1]
        assert isinstance(key, bytes)  # noqa: S101 - the number of keys comes first, then the keys
        return key

    def pack(self, dialect: CompareAndDelete) -> bytes:  # noqa: ARG002 - scripts read the same on every server
        """Return the bytes to send."""
        packed = self._packed
        if packed is None:
            packed = self._packed = pack(("EVALSHA", self.script.sha, *self._arguments))
        return packed

    def pack_with_source(self) -> bytes:
        """Return the bytes to send to a server that has forgotten the script."""
        return pack(("EVAL", self.script.source, *self._arguments))


class SetIfAbsent:
    """SET key token NX PX ttl: Redlock's own acquire."""

    grant: ClassVar[bytes | None] = b"OK"

    __slots__ = ("_packed", "key")

    def __init__(self, key: bytes, token: bytes, ttl_ms: int) -> None:
        self.key = key
        ttl = b"%d" % ttl_ms
        self._packed = SET_NX_PX % (len(key), key, len(token), token, len(ttl), ttl)

    def pack(self, dialect: CompareAndDelete) -> bytes:  # noqa: ARG002 - the same on every server
        """Return the bytes to send."""
        return self._packed

    def pack_with_source(self) -> bytes:
        """Return the same bytes: it is not a script."""
        return self._packed


class DeleteIfEqual:
    """Deletes a key if it holds the token, with the server's own command where it has one."""

    grant: ClassVar[bytes | None] = None

    __slots__ = ("_dialect", "_packed", "key", "token")

    def __init__(self, key: bytes, token: bytes) -> None:
        self.key = key
        self.token = token
        self._dialect: CompareAndDelete | None = None
        self._packed = b""

    def pack(self, dialect: CompareAndDelete) -> bytes:
        """Return the bytes to send to a server of that dialect."""
        if dialect is not self._dialect:  # nodes mostly have the same dialect, so the last one is cached
            self._dialect, key, token = dialect, self.key, self.token
            if dialect is DELIFEQ:
                self._packed = DELIFEQ_FORMAT % (len(key), key, len(token), token)
            elif dialect is DELEX:
                self._packed = DELEX_FORMAT % (len(key), key, len(token), token)
            else:
                self._packed = self._fallback().pack(dialect)
        return self._packed

    def _fallback(self) -> Call:
        return Call("mutex_release", 1, self.key, self.token, 0)

    def pack_with_source(self) -> bytes:
        """Return the bytes to send to a server that has forgotten the script."""
        return self._fallback().pack_with_source()


Command = Call | SetIfAbsent | DeleteIfEqual


def _script_in(sent: Command | bytes) -> Script | None:
    if not isinstance(sent, bytes):
        sent = sent.pack_with_source()
    names = [file.name.removesuffix(".lua") for file in LUA.iterdir() if file.name.endswith(".lua")]
    return next((each for each in map(script, names) if each.source in sent), None)


def clock_command(key: bytes) -> bytes:
    """Return the command that reads a node's clock, packed. Every node that serves locks can execute it."""
    return Call("node_clock", 1, key).pack_with_source()


def read_clock(reply: object) -> float:
    """Parse the reply to `clock_command`: seconds since 1970."""
    if type(reply) is not int:
        raise TypeError
    return reply / 1e6


def failure_of(message: str, sent: Command | bytes) -> Exception:
    """Return the exception for a node's error reply to what was sent, a command or its bytes.

    Some servers say that a script calls an unknown or forbidden command, and at which line, but not which command.
    """
    line = LINE.search(message)
    lacks_command = UNKNOWN_IN_SCRIPT.search(message) or FORBIDDEN_IN_SCRIPT.search(message)
    if line and lacks_command and (called := _script_in(sent)):
        message = f"{message} [{called.commands_at(int(line[1]))}]"
    return failure(message)
