"""A node that runs the library's scripts one at a time, to check their replies, the keys they leave and the clients
that they notify.

It is simulated, and its clock only moves on request, so that every ttl is known to the millisecond; test_fidelity.py
compares the simulated server with a real one.
"""

from importlib.resources import files
from unittest.mock import patch

import hiredis

from redlock_async.testing.simulation._server import SimulatedServer

LUA = files("redlock_async").joinpath("lua")

LISTING = "locks_"
"""Prefix of the scripts that list locks, which run in tests/redis/test_locks.py because SCAN is not simulated."""

SOURCES = {
    path.name.removesuffix(".lua"): path.read_text("utf-8")
    for path in LUA.iterdir()
    if path.name.endswith(".lua") and not path.name.startswith(LISTING)
}
INCLUDED = ("limits", "slots")
"""The files that scripts include."""

SOURCES.update({name: LUA.joinpath("include", f"{name}.lua").read_text("utf-8") for name in INCLUDED})

ENDLESS = 20_000
"""Maximum commands of one script; the longest deletes the fence registers of a shard."""

MARK = "0:readers"
"""The value of a lock key while there are readers."""


class Refused(Exception):  # noqa: N818 - it stands for an error reply
    """A script ended with this error reply."""


def granted(node, reply, wall, *, shared=False):
    """The token in a grant, which also says what the clock shows; 1 if not fenced (`wall` is None). Or the refusal."""
    if reply == -node.us:
        return wall or 1
    if isinstance(reply, list) and [type(each) for each in reply] == [int, int]:
        assert reply[1] == node.us
        assert shared or reply[0] != wall, "the usual grant has a shorter form"
        assert wall is not None
        return reply[0]
    assert not isinstance(reply, int), "a grant says what the clock shows"
    return reply


class Limited(SimulatedServer):
    """Fails on a script with an endless loop."""

    steps = 0

    def _run_from_script(self, words):
        self.steps += 1
        assert self.steps < ENDLESS, "the script does not end"
        return super()._run_from_script(words)


class Node:
    """A node with three clients: one runs scripts, one tracks keys, one acts as the other clients."""

    def __init__(self):
        self.us = 1_700_000_000_999_500
        """Its clock in µs, in the last millisecond of a second."""
        self.master = Limited(lambda: self.us / 1e6, run_id="0" * 40)
        self._readers = {}
        self._caller, self._watcher = self._connect("NOLOOP"), self._connect("NOLOOP")
        self._other = self._connect()

    def _connect(self, *modes):
        session = self.master.connect(lambda who, data: self._readers[who.id].feed(data), resp=3)
        self._readers[session.id] = hiredis.Reader(notEnoughData=Ellipsis)
        if modes:
            self._say(session, ("CLIENT", "TRACKING", "ON", *modes))
        return session

    def _say(self, session, words):
        reader = hiredis.Reader()
        reader.feed(self.master.receive(session, hiredis.pack_command(words)))
        reply = reader.gets()
        if isinstance(reply, hiredis.ReplyError):
            raise Refused(str(reply))
        return plain(reply)

    def _heard(self, session):
        pushes = iter(self._readers[session.id].gets, Ellipsis)
        return sorted(plain(key) for _, keys in pushes for key in keys)

    @property
    def ms(self):
        """Its clock in ms, as scripts read it."""
        return self.us // 1000

    def after(self, ms):
        """Let that many ms pass."""
        self.us += ms * 1000

    def do(self, *words):
        """Send a command as another client."""
        return self._say(self._other, words)

    def run(self, name, keys, *arguments):
        """Run a script and return its reply."""
        self.master.steps = 0
        source = SOURCES[name]
        for included in INCLUDED:
            source = source.replace(f"-- include: {included}.lua\n", SOURCES[included])
        return self._say(self._caller, ("EVAL", source, len(keys), *keys, *arguments))

    @property
    def holds(self):
        """All keys with their values and ttl in ms; None without expiry."""
        found = {}
        for key, value in sorted(self.master.keys().items()):
            left = self._say(self._other, ("PTTL", key))
            found[plain(key)] = (plain(value), None if left == -1 else left)
        return found

    def tells_the_client_of(self, *keys):
        """Return the keys whose changes the server reports to the client. Deletes all of them."""
        self._heard(self._caller)
        for key in keys:
            self.do("SET", key, "changed")
            self.do("DEL", key)
        return self._heard(self._caller)

    def watch(self, *keys):
        """Let a third client track the next change of each key."""
        for key in keys:
            self._say(self._watcher, ("EXISTS", key))
        self.told()

    def told(self):
        """Return the keys whose changes were reported to that client."""
        return self._heard(self._watcher)


def plain(value):
    """Return a reply with text instead of bytes, and whole numbers."""
    match value:
        case bytes():
            return value.decode()
        case float():
            return int(value)
        case list() | tuple():
            return [plain(part) for part in value]
        case dict():
            scores = {plain(key): plain(part) for key, part in value.items()}
            return set(scores) if set(scores.values()) == {None} else scores
    return value


def changed(name, source):
    """Return a context in which a script has another source."""
    return patch.dict(SOURCES, {name: source})
