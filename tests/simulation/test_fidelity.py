"""The simulated server against a real one: every reply and push of the same random programs is compared.

REDLOCK_FIDELITY_PROGRAMS sets how many programs are run (each of 150 steps), REDLOCK_FIDELITY_SEED where their seeds
begin.
"""

import os
import re
import socket
from contextlib import ExitStack
from importlib.resources import files
from random import Random
from urllib.parse import urlsplit

import hiredis
import pytest

from redlock_async._transport.commands import included
from redlock_async.testing.simulation._server import SimulatedServer

PROGRAMS = int(os.environ.get("REDLOCK_FIDELITY_PROGRAMS", "120"))
FIRST_SEED = int(os.environ.get("REDLOCK_FIDELITY_SEED", "0"))
STEPS = 150

LUA = files("redlock_async").joinpath("lua")
LISTING = "locks_"
"""Scripts that list locks with SCAN, which is not simulated. tests/redis/test_locks.py runs them on real servers."""

SOURCES = {
    path.name.removesuffix(".lua"): included(path.read_bytes())
    for path in LUA.iterdir()
    if path.name.endswith(".lua") and not path.name.startswith(LISTING)
}

NOLOOP, ALSO_NOLOOP, LOOP, POLLING = range(4)
"""The sessions. The last uses RESP2, which has no push messages."""

INCOMPLETE = object()

SHORT = 3
"""A ttl in milliseconds that expires within one step."""


class Real:
    """Sessions on a real server."""

    def __init__(self, url, stack):
        address = urlsplit(url)
        self._sockets = [
            stack.enter_context(socket.create_connection((address.hostname, address.port), 5)) for _ in range(5)
        ]
        self._readers = [hiredis.Reader(notEnoughData=INCOMPLETE) for _ in self._sockets]
        self.observer = 4

    def say(self, session, *commands):
        """Send them all in one write; returns as many replies, and what was pushed before the last of them."""
        self._sockets[session].sendall(b"".join(hiredis.pack_command(words) for words in commands))
        replies, pushes = [], []
        while len(replies) < len(commands):
            frame = self._read(session)
            (pushes if isinstance(frame, hiredis.PushNotification) else replies).append(frame)
        return replies, pushes

    def _read(self, session):
        reader = self._readers[session]
        while (frame := reader.gets()) is INCOMPLETE:
            data = self._sockets[session].recv(65536)
            assert data, "the server has closed the connection"
            reader.feed(data)
        return frame

    def ask(self, *words):
        """One command of an observer, who tracks nothing."""
        return self.say(self.observer, words)[0][0]

    def step(self, session, words):
        """The server's time in seconds, the reply, the pushes of each session, and how many keys had expired before."""
        (expired, time, reply, _), pushes = self.say(session, ("INFO", "stats"), ("TIME",), words, ("PING",))
        seen = [self.say(other, ("PING",))[1] if other != session else pushes for other in range(4)]
        return seconds(time), reply, seen, value_of(expired, b"expired_keys")

    @property
    def expired(self):
        """How many keys have expired."""
        return value_of(self.ask("INFO", "stats"), b"expired_keys")


class Simulated:
    """The same sessions on a simulated server."""

    def __init__(self, **options):
        self.time = 0.0
        self.server = SimulatedServer(lambda: self.time, run_id="0" * 40, **options)
        self._readers = [hiredis.Reader(notEnoughData=INCOMPLETE) for _ in range(4)]
        self.sessions = [
            self.server.connect(lambda session, data: self._readers[session.id - 1].feed(data)) for _ in range(4)
        ]

    def step(self, session, words, time):
        """The reply and the pushes of each session."""
        self.time = time
        own = self._readers[session]
        own.feed(self.server.receive(self.sessions[session], hiredis.pack_command(words)))
        reply = own.gets()
        return reply, self.pushed()

    def expire_now(self, time):
        """Remove what has expired, as the server's own cycle does."""
        self.time = time
        self.server.expire_now()

    def pushed(self):
        """The pushes to each session."""
        return [list(iter(reader.gets, INCOMPLETE)) for reader in self._readers]


class Both:
    """A real and a simulated server, side by side: every step is compared."""

    def __init__(self, url, stack):
        self.real = Real(url, stack)
        self.real.ask("FLUSHALL")
        server = self.real.ask("INFO", "server")
        self.valkey = b"server_name:valkey" in server
        product, version = ("valkey", "9.0.0") if self.valkey else ("redis", value_of(server, b"redis_version"))
        self.old = version.startswith("6.")
        """Before Redis 7: other errors, and NX and GET exclude each other."""
        dialect = {
            name for name in ("DELIFEQ", "DELEX") if not isinstance(self.real.ask(name, "k", "v"), hiredis.ReplyError)
        }
        self.simulated = Simulated(dialect=dialect, product=product, version=version)
        self.compare_and_delete = dialect
        self.trace = []
        for session in (NOLOOP, ALSO_NOLOOP, LOOP):
            self.step(session, ("HELLO", "3"), compare=False)
            self.step(session, ("CLIENT", "TRACKING", "ON", *(("NOLOOP",) if session != LOOP else ())))
        self.step(POLLING, ("HELLO", "2"), compare=False)

    def step(self, session, words, *, compare=True, expired=None):
        """One command on both; returns the reply. `expired`: how many keys had expired when that was last compared."""
        self.trace.append((session, *(named(word) for word in words)))
        time, reply, pushes, before = self.real.step(session, words)
        if expired not in {None, before}:
            self.simulated.expire_now(time)
        simulated, simulated_pushes = self.simulated.step(session, words, time)
        if words == ("TIME",):
            reply, simulated = seconds(reply) * 1e6, seconds(simulated) * 1e6
        if compare:
            self.check("replies", reply, simulated)
        self.check_pushes(pushes, simulated_pushes)
        return reply

    def check(self, what, real, simulated):
        """Fail if they differ, and say after which commands."""
        assert alike(real, simulated, exact=self.valkey), "\n".join(
            [f"{what} differ", *map(str, self.trace[-12:]), f"real:      {real!r}", f"simulated: {simulated!r}"]
        )

    def check_pushes(self, *sides):
        """Fail if a session was told something else, in any order."""
        self.check("pushes", *([sorted(map(repr, each)) for each in side] for side in sides))

    def expire(self, session, words):
        """Run a command that gives a key a SHORT ttl, wait until that is over, and return how many keys have expired.

        The key expires at its next access or before, by the server's own cycle. That number tells which.
        """
        self.trace.append((session, *(named(word) for word in words)))
        expired = self.real.expired
        time, reply, pushes, _ = self.real.step(session, words)
        simulated, simulated_pushes = self.simulated.step(session, words, time)
        self.check("replies", reply, simulated)
        until = seconds(self.real.ask("TIME")) + (SHORT + 1) / 1000
        while (now := seconds(self.real.ask("TIME"))) < until:
            pass
        while (count := self.real.expired) != expired:
            expired = count
            self.simulated.expire_now(now)
            pushes = added(pushes, [self.real.say(each, ("PING",))[1] for each in range(4)])
        self.check_pushes(pushes, added(simulated_pushes, self.simulated.pushed()))
        return expired

    def out_of_memory(self, *, now):
        """Reach maxmemory, or have room again."""
        self.trace.append(("out of memory", now))
        assert self.real.ask("CONFIG", "SET", "maxmemory", "1" if now else "0") == b"OK"
        self.simulated.server.oom = now

    def compare_keys(self):
        """All keys with their values."""
        real = {key: self._value(key) for key in self.real.ask("KEYS", "*")}
        self.check("keys", dict(sorted(real.items())), dict(sorted(self.simulated.server.keys().items())))

    def _value(self, key):
        match self.real.ask("TYPE", key):
            case b"string":
                return self.real.ask("GET", key)
            case b"hash":
                return pairs(self.real.ask("HGETALL", key))
            case b"set":
                return dict.fromkeys(self.real.ask("SMEMBERS", key))
            case b"zset":
                return {
                    member: float(score)
                    for member, score in pairs(self.real.ask("ZRANGE", key, 0, -1, "WITHSCORES")).items()
                }


def added(pushes, more):
    """The pushes of each session, with later ones."""
    return [before + after for before, after in zip(pushes, more, strict=True)]


def value_of(info, name):
    """One value of INFO."""
    return re.search(rb"^%b:(\S*)" % name, info, re.MULTILINE)[1].decode()


def named(word):
    """The source of a script."""
    return word.partition(b":")[0] if isinstance(word, bytes) and word.startswith(b"--") else word


def pairs(reply):
    """A flat array as a dict."""
    return dict(zip(reply[::2], reply[1::2], strict=True))


def seconds(time):
    """A reply to TIME."""
    return int(time[0]) + int(time[1]) / 1e6


def alike(real, simulated, *, exact):
    """Whether two replies are equal, except for the moment at which a time or ttl was read."""
    if isinstance(real, hiredis.ReplyError):
        return isinstance(simulated, hiredis.ReplyError) and complaint(real, exact) == complaint(simulated, exact)
    if isinstance(real, dict):
        return real.keys() == simulated.keys() and all(alike(real[key], simulated[key], exact=exact) for key in real)
    if isinstance(real, list):
        # Members of a set come in any order.
        left, right = (sorted(side, key=by_kind) if is_set(real) else side for side in (real, simulated))
        return len(left) == len(right) and all(alike(*both, exact=exact) for both in zip(left, right, strict=True))
    if real == simulated:
        return True
    parts = [TIME_IN_TEXT.fullmatch(each) if isinstance(each, bytes) else None for each in (real, simulated)]
    if None not in parts:
        (before, real, after), (*others, simulated) = parts[0].groups(), parts[1].group(1, 3, 2)
        if (before, after) != tuple(others):
            return False
    a, b = number(real), number(simulated)
    return a is not None and b is not None and abs(a - b) <= slack(a)


TIME_IN_TEXT = re.compile(rb"(.*?)(\d{15,})(.*)", re.DOTALL)
"""A time in µs and the text around it, as in the record of a node."""


def complaint(error, exact):
    """An error without times in it. On servers other than Valkey only its code, because the texts differ.

    Before Redis 7, the error of a script's command comes inside another, and Lua's own errors have no code.
    """
    if exact:
        return re.sub(r"\d{13,}", "...", str(error))
    text = re.sub(r"^ERR Error running script .*?: @user_script:\s?\d+: (@user_script: \d+: -?)?", "", str(error))
    code = text.split()[0]
    return code if code.isupper() else "ERR"


def is_set(reply):
    """The replies of latch_look.lua, SMEMBERS and KEYS, whose order is not defined."""
    return all(isinstance(part, bytes) and part.startswith((b"event", b"lock:")) for part in reply[1:])


def by_kind(part):
    return isinstance(part, bytes), part if isinstance(part, bytes) else b""


def number(reply):
    """A number that may be a time."""
    try:
        return float(reply)
    except (TypeError, ValueError):
        return None


def slack(value):
    """The tolerance: 250 ms for times in µs, ms and s since 1970, and none for small numbers."""
    if abs(value) > 1e14:
        return 250_000
    return 250 if value >= 4000 else 0


class Program:
    """Random commands over a few keys."""

    TOKENS = (b"anna", b"boris", b"clara")
    MARK = b"readers"
    LOCKS = (b"lock:1", b"lock:2")
    FENCES = (b"fence:1", b"fence:2")
    RW = (b"lock:1", b"readers:1", b"hint:1")
    LINE = (b"queue", b"alive", b"ticket")
    SLOTS = (b"permits:0", b"permits:1", b"permits:2", b"permits:3")
    LATCH = (b"ids", b"latch")
    IDS = ("one", "two", "three")
    WAKE = b"wake:"
    STRINGS = (*LOCKS, *FENCES, b"hint:1", b"ticket", *SLOTS, b"permits", b"wake:anna", b"wake:boris")
    KEYS = (*STRINGS, b"a node", b"clocks", b"readers:1", b"queue", b"alive", *LATCH)

    def __init__(self, seed, started, dialect, *, old):
        self.random = Random(seed)
        self.old = old
        self.started = round(started * 1e6)
        self.compare_and_delete = dialect

    # Ingredients

    def any(self, *choices):
        return self.random.choice(choices)

    def token(self):
        return self.any(*self.TOKENS)

    def ttl(self):
        # Of all lengths: a script that compares two equal ones would depend on which millisecond it is.
        return self.random.randrange(10_000, 90_000)

    def ttl_or_none(self):
        return self.any(0, self.ttl())

    def fence(self):
        """A candidate that stands as it is, one that is clamped from above, one from below."""
        return self.started + self.random.choice((self.random.randrange(300_000), 10**9, -(10**9)))

    def range_start(self, key):
        """Not counted from the end of a time, whose last digits differ between the servers."""
        start = self.any(0, 2, -2, -9)
        return max(start, 0) if key in {*self.FENCES, b"ticket"} else start

    def fenced(self, *keys):
        """With a register, or without."""
        return (*keys, self.FENCES[0]) if self.random.random() < 0.6 else keys

    # The library's scripts: keys and arguments as their headers say

    def mutex_acquire(self):
        locks = self.random.sample(self.LOCKS, self.any(1, 1, 2))
        keys = [*locks, *self.FENCES[: len(locks)]] if self.random.random() < 0.6 else locks
        return keys, (len(locks), self.token(), self.ttl(), self.fence())

    def mutex_extend(self):
        keys = self.random.sample(self.LOCKS, self.any(1, 2))
        return keys, [word for _ in keys for word in (self.token(), self.ttl_or_none())]

    def mutex_reassert(self):
        keys, (locks, token, _, _) = self.mutex_acquire()
        return keys, (locks, token, self.ttl_or_none(), self.fence())

    def mutex_release(self):
        return self.random.sample(self.LOCKS, self.any(1, 2)), (self.token(), self.any(0, 0, self.ttl()))

    def mutex_force(self):
        return (self.any(*self.LOCKS), b"freed"), (self.token(), self.ttl())

    def mutex_inspect(self):
        return (self.any(*self.LOCKS),), ()

    def node_clock(self):
        return (self.any(*self.FENCES),), ()

    def node_record(self):
        ids = [word for each in self.random.sample(self.IDS, self.any(0, 1, 3)) for word in (each, self.any(*"-fa"))]
        origin, server = (
            self.any("read", "", "", "founding", "founded", "joined", "copied", "moved"),
            self.any("", "run1", "run1", "run2"),
        )
        flags = (self.any(0, 0, 1), self.any(0, 1), 10_000)
        return (b"a node",), (
            origin,
            server,
            *flags,
            "fresh",
            self.ttl(),
            self.any("", "one two"),
            self.charter(),
            self.any("", "", "another 60000"),
            *ids,
        )

    def node_clocks(self):
        noted = self.random.sample(self.IDS, self.any(0, 1, 3))
        return (b"clocks",), [word for each in noted for word in (each, self.any("1 -7 9", "2 3 4"))]

    def charter(self):
        return self.any("", "", "0 2 a b c @ a", "0 3 a b c d", "9 2 a b c", "10 2 a b c | 3 a b c d @ b")

    def node_charter(self):
        return (b"a node",), (self.charter(), self.any(-1, 0, 9))

    def semaphore_acquire(self):
        permits = self.any(1, 2, 3)
        slots = self.any(permits, permits, len(self.SLOTS))
        wanted = self.random.sample(range(permits), self.any(1, self.random.randint(1, permits)))
        keys = [b"permits", b"hint:1", *self.SLOTS[:slots]]
        if self.random.random() < 0.6:
            keys += [self.any(*self.FENCES) for _ in wanted]
        hint = self.any(b"", b"%d:%b" % (len(wanted), self.token()))
        return keys, (permits, slots, self.token(), self.ttl(), self.fence(), hint, self.ttl(), *wanted)

    def semaphore_extend(self):
        slots = self.random.sample(self.SLOTS, self.any(1, 2))
        arguments = [word for _ in slots for word in (self.token(), self.ttl_or_none(), self.any(1, 2, 3))]
        return [key for slot in slots for key in (slot, b"permits")], arguments

    def semaphore_reassert(self):
        slots = self.random.sample(self.SLOTS, self.any(1, 2))
        registers = self.FENCES[: len(slots)] if self.random.random() < 0.6 else ()
        words = (len(slots), self.token(), self.ttl_or_none(), self.any(1, 2, 3), self.fence())
        return (b"permits", *slots, *registers), words

    def semaphore_retain(self):
        slots = self.random.sample(self.SLOTS, self.any(1, 2))
        return (b"permits", *slots), (self.token(), self.ttl(), self.any(1, 2, 3))

    def semaphore_inspect(self):
        return (b"permits",), ()

    def semaphore_force(self):
        return (b"permits",), (self.token(), self.ttl())

    def set_by_an_operator(self):
        return b"%d:%b" % (self.any(1, 2, 3), self.token())

    def semaphore_change(self):
        return (b"permits",), (self.set_by_an_operator(), self.any(b"", b"", self.set_by_an_operator()))

    def semaphore_forget(self):
        return (b"permits",), (self.ttl(), *(self.set_by_an_operator() for _ in range(self.any(1, 2))))

    def semaphore_restore(self):
        before = self.any(b"", b"2", self.set_by_an_operator())
        return (b"permits",), (self.set_by_an_operator(), before, self.ttl())

    def read_acquire(self):
        return self.fenced(*self.RW), (self.token(), self.ttl(), self.MARK, self.fence(), self.any(b"", self.token()))

    def read_extend(self):
        return (*self.RW[:2], b"freed"), (self.MARK, self.token(), self.ttl_or_none())

    def read_release(self):
        return self.RW[:2], (self.token(), self.any(0, self.ttl()), self.MARK)

    def read_reassert(self):
        return self.fenced(*self.RW[:2]), (self.token(), self.ttl_or_none(), self.MARK, self.fence())

    def write_acquire(self):
        arguments = self.token(), self.ttl(), self.MARK, self.any(b"", self.token()), self.ttl(), self.fence()
        return self.fenced(*self.RW), arguments

    def write_downgrade(self):
        return (*self.RW[:2], self.FENCES[0], b"freed"), (self.token(), self.ttl(), self.MARK, self.fence())

    def fair_acquire(self):
        me = self.any(b"", self.token())
        arguments = (
            self.token(),
            self.ttl(),
            self.WAKE,
            me,
            self.random.randrange(1, 99),
            self.ttl(),
            self.ttl(),
            self.fence(),
        )
        return self.fenced(b"lock:1", *self.LINE), arguments

    def fair_leave(self):
        return self.LINE[:2], (self.WAKE, self.token(), self.ttl())

    def fair_ticket(self):
        return (b"ticket", self.LINE[0]), (self.ttl(),)

    def fair_wait(self):
        waiters = self.random.sample(self.TOKENS, self.any(1, 2, 3))
        places = [word for waiter in waiters for word in (self.random.randrange(1, 99), waiter)]
        return self.LINE, (self.WAKE, self.ttl(), self.ttl(), *places)

    def latch_count(self):
        events = [b"event%d" % self.random.randrange(6) for _ in range(self.any(0, 1, 3))]
        return self.LATCH, (self.any(5, 5, 5, 7), self.ttl(), self.any(0, 0, 1), *events)

    def latch_look(self):
        return self.LATCH, (self.any(5, 5, 5, 7), self.ttl())

    def script(self):
        """A random call, mostly with matching keys."""
        name = self.random.choice(sorted(SOURCES))
        keys, arguments = getattr(self, name)()
        keys = [self.any(*self.KEYS) if self.random.random() < 0.03 else key for key in keys]
        return ("EVAL", SOURCES[name], len(keys), *keys, *arguments)

    # Single commands

    def command(self):
        key = self.any(*self.KEYS)
        number = self.random.randrange(10)
        event = b"event%d" % number
        choices = [
            ("GET", key), ("PTTL", key), ("TYPE", key), ("EXISTS", key, self.any(*self.KEYS)),
            ("GETRANGE", key, self.range_start(key), self.any(1, 299, -1, -3, "x")),
            ("DEL", key, self.any(*self.KEYS)), ("UNLINK", key), ("KEYS", "lock*"), ("DBSIZE",), ("TIME",),
            ("ping", "x"), ("PEXPIRE", key, self.ttl()), ("PEXPIRE", key, self.any(-1, 0, "x", 2**63 - 1)),
            ("GETSET", key, self.token()), ("INCRBY", key, self.any(number, "x")), ("SET", key, self.token()),
            ("SET", key, self.token(), *self.options()), ("SET", key, self.token(), *self.options()),
            ("HSET", b"alive", self.token(), number), ("HSET", key, self.token(), number),
            ("HSET", key, self.token()), ("HSETNX", b"latch", "open", number), ("HSETNX", key, self.token(), number),
            ("HGET", b"alive", self.token()), ("HGET", key, "f"), ("HEXISTS", b"latch", "open"),
            ("HEXISTS", key, "f"), ("HDEL", b"alive", self.token(), self.token()), ("HDEL", key, "f"),
            ("SADD", b"ids", event, b"event0"), ("SADD", key, event), ("SMEMBERS", b"ids"), ("SMEMBERS", key),
            ("ZADD", b"readers:1", number, self.token()),
            ("ZADD", b"queue", *self.any((), ("NX",), ("XX",)), number, self.token(), 7, self.token()),
            ("ZADD", b"queue", "INCR", *self.any((), ("NX",), ("XX",), ("XX", "NX")), self.any(0, 2.5, "nan"), "anna"),
            ("ZADD", key, number, self.token()), ("ZREM", b"queue", self.token(), self.token()),
            ("ZREM", key, self.token()), ("ZCARD", b"queue"), ("ZCARD", key),
            ("ZRANGE", b"queue", self.any(0, -2, 1), self.any(-1, 0, 1, -9), *self.any((), ("withscores",))),
            ("ZRANGE", key, 0, -1),
            ("ZREMRANGEBYSCORE", b"queue", self.any("-inf", "(3", 2), self.any("+inf", "(6", 4, "x")),
            ("ZREMRANGEBYSCORE", key, "-inf", 5), ("SCRIPT", "EXISTS", "0" * 40), ("EVALSHA", "0" * 40, 0),
            ("NOSUCH", key, "x"), ("CLIENT", "TRACKING", "ON", "NOLOOP"), ("GET",), ("SELECT", 0), ("SELECT", "x"),
        ]  # fmt: skip
        if "DELIFEQ" in self.compare_and_delete:
            choices += [("DELIFEQ", key, self.token())] * 2
        if "DELEX" in self.compare_and_delete:
            choices += [("DELEX", key, "IFEQ", self.token()), ("DELEX", key)]
        if number == 0:
            choices += [("CLIENT", "TRACKING", "OFF"), ("CLIENT", "TRACKING", "ON"), ("FLUSHALL",), ("SCRIPT", "FLUSH")]
        return self.random.choice(choices)

    def options(self):
        """Random options of SET."""
        expiry = self.any(
            (), ("PX", self.ttl()), ("px", self.ttl()), ("EX", 50), ("KEEPTTL",), ("PX", self.any(0, "x", 2**63 - 1))
        )
        condition = self.any((), ("NX",), ("nx",), ("XX",))
        get = self.any((), ("GET",))
        if self.old and condition in {("NX",), ("nx",)}:
            get = ()  # a syntax error before Redis 7
        return (*condition, *get, *expiry)

    def step(self):
        """The next random command."""
        return self.script() if self.random.random() < 0.6 else self.command()


@pytest.fixture
def both(nodes):
    """A real and a simulated server."""
    with ExitStack() as stack:
        compared = Both(nodes[0], stack)
        yield compared
        compared.out_of_memory(now=False)


@pytest.mark.share(3)
@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + PROGRAMS))
def test_random_programs_read_the_same_on_both(both, seed):
    """Replies, invalidations and the final keys are equal for random commands and the library's scripts."""
    program = Program(seed, seconds(both.real.ask("TIME")), both.compare_and_delete, old=both.old)
    for _ in range(STEPS):
        session, chance = program.random.randrange(4), program.random.random()
        if chance < 0.01:
            both.out_of_memory(now=not both.simulated.server.oom)
        elif chance < 0.04:
            key = program.any(*program.KEYS)
            expired = both.expire(session, ("PEXPIRE", key, SHORT))
            access = program.any("GET", "EXISTS", "ZCARD", "DEL", "TYPE"), key
            both.step(program.random.randrange(4), access, expired=expired)
        else:
            both.step(session, program.step())
    both.compare_keys()


def test_every_script_of_the_library_takes_part():
    """A new script cannot be forgotten here."""
    assert [name for name in SOURCES if not hasattr(Program, name)] == []


CONVERSIONS = (
    "return {1, 2.9, 'x', {3}, true, false, nil, 4}", "return {1, false, {}}", "return 3.99", "return -3.99",
    "return true", "return false", "return", "return 1, 2", "return {err = 'My thing'}", "return {ok = 'fine'}",
    "return {err = 'a\\r\\nb'}", "return 1e19", "return -1e19", "return 0/0", "return math.huge",
    "return tostring(1e15) .. ' ' .. 123456789012345 .. ' ' .. 5", "return redis.error_reply('foo')",
    "return redis.error_reply('-foo')", "return redis.error_reply('-FOO bar')",
    "return redis.error_reply('PERMITS x')", "return redis.status_reply('x')", "return KEYS[1]", "return #ARGV",
    "return type(redis.call)", "return redis.call('SET', 'k', 1e17)", "return redis.call('GET', 'k')",
    "return redis.call('SET', 'k', 123456789012345678)", "return redis.call('GET', 'k')",
    "return redis.call('SET', 'k', 0.1)", "return redis.call('GET', 'k')", "return redis.call('SET', 'k', 1e20)",
    "return redis.call('GET', 'k')", "return redis.call('SET', 'k', 5 / 2)['ok']",
    "return redis.call('GET', 'none') == false", "return redis.call('get', 'k')",
    "return redis.call('SET', 'k', true)", "return redis.call('SET', 'k', {})", "return redis.call()",
    "return redis.call('GET')", "\n\nreturn redis.call('GET')", "return redis.pcall('GET')",
    "return redis.pcall('GET').err", "return redis.call('NOSUCH')", "return redis.call('EVAL', 'return 1', 0)",
    "return redis.call('CLIENT', 'ID')", "redis.call('SET', 'k', 'before') return redis.call('INCRBY', 'k', 1)",
    "return redis.call('GET', 'k')", "return redis.call('PING')", "return redis.call('ZADD', 'z', 3, 'm')",
    "return redis.call('ZADD', 'z', 'INCR', 0.5, 'm')", "return redis.call('ZRANGE', 'z', 0, -1, 'WITHSCORES')",
    "return redis.call('GET', 'z')", "return redis.pcall('GET', 'z')", "return redis.call('SMEMBERS', 'none')",
    "return redis.call('TYPE', 'z')", "return redis.call('set', 'k', 'v', 'px', '5.5')", "error({err = 'a'})",
    "error('x', 0)", "error('x')", "error()", "error(true)", "error({})", "x = 1", "KEYS = 1", "return pairs, next",
    "return x", "local t = nil\nreturn t.x", "return nil + 1",
    "redis.call('SET', 'k', 'v') redis.call('PEXPIRE', 'k', 0) return redis.call('EXISTS', 'k')",
    "foo bar", "return redis.call('FLUSHALL')",
)  # fmt: skip


TEXTS = "the simulation has Valkey's texts and its newest commands, which this test compares"


def test_values_cross_between_lua_and_the_server_alike(both):
    """Results, arguments and errors of small scripts are equal."""
    if not both.valkey:
        pytest.skip(TEXTS)
    for session in (NOLOOP, POLLING):
        for source in CONVERSIONS:
            both.step(session, ("EVAL", source, 0))


def test_odd_words_are_answered_alike(both):
    """Errors of syntax and arity, and replies of the session commands, are equal."""
    if not both.valkey:
        pytest.skip(TEXTS)
    for words in (
        ("EVAL", "return 1", -1), ("EVAL", "return 1", 1), ("EVAL", "return 1", "x"), ("EVAL", "return 1"),
        ("EVALSHA", "x" * 40, 9), ("EVALSHA", "x"), ("SCRIPT", "LOAD", "return 7"),
        ("EVALSHA", "4CA238F611C9D0AE4E9A75A5DBAC22AEDC1E51EA", 0), ("SCRIPT", "LOAD", "foo bar"), ("SCRIPT", "LOAD"),
        ("SCRIPT", "FLUSH", "now"), ("SCRIPT", "nosuch"), ("SCRIPT",), ("ZADD", "z", 1, "a", 2),
        ("ZADD", "z", "INCR", 1, "a", 2, "b"), ("ZADD", "z", "inf", "a"), ("ZADD", "z", "INCR", "-inf", "a"),
        ("ZADD", "z", "1e21", "b", "0.1", "c", "1700000000000123", "e", "1e-7", "f", "12345678.125", "h"),
        ("ZRANGE", "z", 0, -1, "WITHSCORES"), ("ZRANGE", "z", "a", "b"), ("ZRANGE", "z", 0, 1, "foo"),
        ("SET", "k", "", "NX"), ("INCRBY", "k", 1), ("SET", "k", " 1"), ("INCRBY", "k", 1), ("SET", "k", 2**63 - 1),
        ("INCRBY", "k", 1), ("SET", "k", "v", "PX", 5000, "EX", 5), ("SET", "k", "v", "PX"), ("SET", "k", "v", "foo"),
        ("SET", "k", "v", "KEEPTTL", "PX", 5000), ("SET", "k", "v", "NX", "XX"), ("SET", "k", "v", "EX", 2**63 - 1),
        ("FLUSHALL", "now"), ("PING", "a", "b"), ("HELLO", 9), ("AUTH", "x"), ("AUTH", "default", "x"),
        ("AUTH", "nobody", "x"), ("AUTH",), ("SELECT", 99), ("CLIENT", "nosuch"), ("CLIENT",), ("CLIENT", "ID", "x"),
        ("CLIENT", "SETNAME", "a b"), ("CLIENT", "SETNAME", "ab"), ("CLIENT", "SETINFO", "lib-name", "x"),
        ("CLIENT", "SETINFO", "foo", "x"), ("CLIENT", "TRACKING", "MAYBE"), ("CLIENT", "TRACKING", "ON", "foo"),
        ("CLIENT", "KILL", "ID", "abc"), ("CLIENT", "KILL", "ID", 0), ("CLIENT", "KILL", "ID", 10**9),
        ("CONFIG", "GET", "maxmemory-policy"), ("CONFIG", "GET", "nosuch"), ("CONFIG", "nosuch"),
        ("nosuch", "x" * 100, "y" * 100, "z"),
    ):  # fmt: skip
        for session in (NOLOOP, POLLING):
            both.step(session, words)


SET_AND_READ = "redis.call('SET', KEYS[1], 'v', 'PX', ARGV[1]) return redis.call('GET', KEYS[1])"
"""Both in one step: between two steps, a server on a busy machine can find that the key has expired already."""


@pytest.mark.parametrize("reader", [NOLOOP, LOOP])
@pytest.mark.parametrize("access", ["GET", "PTTL", "DEL"])
def test_a_key_that_runs_out_is_reported_alike(both, reader, access):
    """Its next access notifies all sessions that have read it, and the accessing one unless it uses NOLOOP."""
    if not both.valkey and reader == NOLOOP:
        pytest.skip("Redis, unlike Valkey and the simulation, ignores NOLOOP when a key expires during an access")
    expired = both.expire(reader, ("EVAL", SET_AND_READ, 1, "k", SHORT))
    both.step(reader, (access, "k"), expired=expired)
    both.step(ALSO_NOLOOP, ("SET", "k", "v"))
