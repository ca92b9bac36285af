"""A master on which the library's scripts are run one at a time: what they answer, what they leave, whom they tell.

It is a simulated one, where time stands still, so that every ttl is known to the millisecond; test_fidelity.py compares
it with a real server.
"""

from importlib.resources import files
from unittest.mock import patch

import hiredis

from redlock_async.testing.simulation._master import Master

LISTING = "locks_"
"""Scripts that list what is held: SCAN is not simulated. They run on real servers in tests/redis/test_locks.py."""

SOURCES = {
    path.name.removesuffix(".lua"): path.read_text("utf-8")
    for path in files("redlock_async").joinpath("lua").iterdir()
    if path.name.endswith(".lua") and not path.name.startswith(LISTING)
}

ENDLESS = 5_000
"""Commands of one script: the longest look at a thousand slots."""

MARK = "0:readers"
"""What a lock key holds while there are readers."""


class Refused(Exception):  # noqa: N818 - as the server refuses
    """The error that a script ended with."""


class Limited(Master):
    """Ends a script that does not end."""

    steps = 0

    def _of_script(self, words):
        self.steps += 1
        assert self.steps < ENDLESS, "the script does not end"
        return super()._of_script(words)


class Node:
    """A master; a client of it that runs scripts, one that watches keys, and somebody who does what others do."""

    def __init__(self):
        self.us = 1_700_000_000_999_500
        """Its clock, in the last millisecond of a second."""
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
        """Its clock, as the scripts that count in milliseconds read it."""
        return self.us // 1000

    def after(self, ms):
        """So much later."""
        self.us += ms * 1000

    def do(self, *words):
        """What somebody else does."""
        return self._say(self._other, words)

    def run(self, name, keys, *arguments):
        """What that script answers to the client."""
        self.master.steps = 0
        return self._say(self._caller, ("EVAL", SOURCES[name], len(keys), *keys, *arguments))

    @property
    def holds(self):
        """All keys, with their values and how many ms they are kept; None: for ever."""
        found = {}
        for key, value in sorted(self.master.keys().items()):
            left = self._say(self._other, ("PTTL", key))
            found[plain(key)] = (plain(value), None if left == -1 else left)
        return found

    def tells_the_client_of(self, *keys):
        """Which of them: of a change that somebody makes now. They are gone afterwards."""
        self._heard(self._caller)
        for key in keys:
            self.do("SET", key, "changed")
            self.do("DEL", key)
        return self._heard(self._caller)

    def watch(self, *keys):
        """Have another client told of the next change of each, from now on."""
        for key in keys:
            self._say(self._watcher, ("EXISTS", key))
        self.told()

    def told(self):
        """What that one has been told of."""
        return self._heard(self._watcher)


def plain(value):
    """Text instead of bytes, and whole numbers."""
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
    """While it is entered that script is another one."""
    return patch.dict(SOURCES, {name: source})
