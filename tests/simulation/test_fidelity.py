"""The simulated master against a real server: the same random programs, every reply and every push compared.

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

from redlock_async.testing.simulation._master import Master

PROGRAMS = int(os.environ.get("REDLOCK_FIDELITY_PROGRAMS", "120"))
FIRST_SEED = int(os.environ.get("REDLOCK_FIDELITY_SEED", "0"))
STEPS = 150

LUA = files("redlock_async").joinpath("lua")
LISTING = "locks_"
"""Scripts that list what is held: SCAN is not simulated. They run on real servers in tests/redis/test_locks.py."""

SOURCES = {
    path.name.removesuffix(".lua"): path.read_bytes()
    for path in LUA.iterdir()
    if path.name.endswith(".lua") and not path.name.startswith(LISTING)
}

NOLOOP, ALSO_NOLOOP, LOOP, POLLING = range(4)
"""The sessions: the last speaks RESP2, where there are no pushes."""

INCOMPLETE = object()

SHORT = 3
"""Milliseconds of a ttl that runs out within a step."""


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
        """The server's time in seconds, the reply, and the pushes of each session."""
        (time, reply, _), pushes = self.say(session, ("TIME",), words, ("PING",))
        seen = [self.say(other, ("PING",))[1] if other != session else pushes for other in range(4)]
        return seconds(time), reply, seen


class Simulated:
    """The same sessions on a simulated master."""

    def __init__(self, **options):
        self.time = 0.0
        self.master = Master(lambda: self.time, run_id="0" * 40, **options)
        self._readers = [hiredis.Reader(notEnoughData=INCOMPLETE) for _ in range(4)]
        self.sessions = [
            self.master.connect(lambda session, data: self._readers[session.id - 1].feed(data)) for _ in range(4)
        ]

    def step(self, session, words, time):
        """The reply and the pushes of each session."""
        self.time = time
        own = self._readers[session]
        own.feed(self.master.receive(self.sessions[session], hiredis.pack_command(words)))
        reply = own.gets()
        return reply, self.pushed()

    def pushed(self):
        """What has been pushed to each session."""
        return [list(iter(reader.gets, INCOMPLETE)) for reader in self._readers]


class Both:
    """A real and a simulated server, side by side: every step is compared."""

    def __init__(self, url, stack):
        self.real = Real(url, stack)
        self.real.ask("FLUSHALL")
        self.valkey = b"server_name:valkey" in self.real.ask("INFO", "server")
        dialect = {
            name for name in ("DELIFEQ", "DELEX") if not isinstance(self.real.ask(name, "k", "v"), hiredis.ReplyError)
        }
        self.simulated = Simulated(dialect=dialect)
        self.dialect = dialect
        self.trace = []
        for session in (NOLOOP, ALSO_NOLOOP, LOOP):
            self.step(session, ("HELLO", "3"), compare=False)
            self.step(session, ("CLIENT", "TRACKING", "ON", *(("NOLOOP",) if session != LOOP else ())))
        self.step(POLLING, ("HELLO", "2"), compare=False)

    def step(self, session, words, *, compare=True):
        """One command on both; returns the reply."""
        self.trace.append((session, *(named(word) for word in words)))
        time, reply, pushes = self.real.step(session, words)
        simulated, simulated_pushes = self.simulated.step(session, words, time)
        if words == ("TIME",):
            reply, simulated = seconds(reply) * 1e6, seconds(simulated) * 1e6
        if compare:
            self.check("replies", reply, simulated)
        self.check("pushes", *([sorted(map(repr, each)) for each in side] for side in (pushes, simulated_pushes)))
        return reply

    def check(self, what, real, simulated):
        """Fail if they differ, and say after which commands."""
        assert alike(real, simulated, exact=self.valkey), "\n".join(
            [f"{what} differ", *map(str, self.trace[-12:]), f"real:      {real!r}", f"simulated: {simulated!r}"]
        )

    def run_out(self, key):
        """Wait until a key that was given a SHORT ttl is over; what happens at its next access is compared there."""
        expired = self._expired
        until = seconds(self.real.ask("TIME")) + (SHORT + 1) / 1000
        while (now := seconds(self.real.ask("TIME"))) < until:
            pass
        if self._expired != expired:  # the server's own cycle came first
            self.simulated.time = now
            self.simulated.master.expire_now()
            live = self.simulated.master.keys()
            assert key not in live
            pushes = [self.real.say(session, ("PING",))[1] for session in range(4)]
            self.check(
                "pushes", *([sorted(map(repr, each)) for each in side] for side in (pushes, self.simulated.pushed()))
            )

    @property
    def _expired(self):
        return next(line for line in self.real.ask("INFO", "stats").split() if line.startswith(b"expired_keys:"))

    def out_of_memory(self, *, now):
        """Reach maxmemory, or have room again."""
        self.trace.append(("out of memory", now))
        assert self.real.ask("CONFIG", "SET", "maxmemory", "1" if now else "0") == b"OK"
        self.simulated.master.oom = now

    def compare_keys(self):
        """All keys with their values."""
        real = {key: self._value(key) for key in self.real.ask("KEYS", "*")}
        self.check("keys", dict(sorted(real.items())), dict(sorted(self.simulated.master.keys().items())))

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


def named(word):
    """A script by its name."""
    return word.partition(b":")[0] if isinstance(word, bytes) and word.startswith(b"--") else word


def pairs(reply):
    """A flat array as a dict."""
    return dict(zip(reply[::2], reply[1::2], strict=True))


def seconds(time):
    """A reply to TIME."""
    return int(time[0]) + int(time[1]) / 1e6


def alike(real, simulated, *, exact):
    """Whether two replies are the same, but for the moment at which a time or a ttl was read."""
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
    a, b = number(real), number(simulated)
    return a is not None and b is not None and abs(a - b) <= slack(a)


def complaint(error, exact):
    """An error without the times in it; on other servers than Valkey only its code, for the texts vary."""
    return re.sub(r"\d{13,}", "...", str(error)) if exact else str(error).split()[0]


def is_set(reply):
    """What latch_look.lua, SMEMBERS and KEYS answer."""
    return all(isinstance(part, bytes) and part.startswith((b"event", b"lock:")) for part in reply[1:])


def by_kind(part):
    return isinstance(part, bytes), part if isinstance(part, bytes) else b""


def number(reply):
    """What may be a time."""
    try:
        return float(reply)
    except (TypeError, ValueError):
        return None


def slack(value):
    """A quarter of a second in µs, in ms and in s since 1970; nothing for small numbers, which are no times."""
    if value > 1e14:
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
    MARKS = (b"born", b"longest", b"founded")
    WAKE = b"wake:"
    STRINGS = (*LOCKS, *FENCES, b"hint:1", b"ticket", *SLOTS, b"permits", *MARKS, b"wake:anna", b"wake:boris")
    KEYS = (*STRINGS, b"readers:1", b"queue", b"alive", *LATCH)

    def __init__(self, seed, started, dialect):
        self.random = Random(seed)
        self.started = round(started * 1e6)
        self.dialect = dialect

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

    def mutex_secure(self):
        keys, (locks, token, _, _) = self.mutex_acquire()
        return keys, (locks, token, self.ttl_or_none(), self.fence())

    def mutex_release(self):
        return self.random.sample(self.LOCKS, self.any(1, 2)), (self.token(), self.any(0, 0, self.ttl()))

    def mutex_force(self):
        return (self.any(*self.LOCKS), b"freed"), ()

    def mutex_inspect(self):
        return (self.any(*self.LOCKS),), ()

    def node_mark(self):
        return self.MARKS, (self.ttl(), self.any(-1, 0, 1_000), self.any(0, 1))

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

    def semaphore_secure(self):
        slots = self.random.sample(self.SLOTS, self.any(1, 2))
        registers = self.FENCES[: len(slots)] if self.random.random() < 0.6 else ()
        words = (len(slots), self.token(), self.ttl_or_none(), self.any(1, 2, 3), self.fence())
        return (b"permits", *slots, *registers), words

    def semaphore_retain(self):
        slots = self.random.sample(self.SLOTS, self.any(1, 2))
        return (b"permits", *slots), (self.token(), self.ttl(), self.any(1, 2, 3))

    def semaphore_inspect(self):
        return (b"permits",), ()

    semaphore_force = semaphore_inspect

    def set_by_an_operator(self):
        return b"%d:%b" % (self.any(1, 2, 3), self.token())

    def semaphore_change(self):
        return (b"permits",), (self.set_by_an_operator(), self.any(b"", b"", self.set_by_an_operator()))

    def semaphore_forget(self):
        return (b"permits",), (self.ttl(), *(self.set_by_an_operator() for _ in range(self.any(1, 2))))

    def semaphore_unchange(self):
        before = self.any(b"", b"2", self.set_by_an_operator())
        return (b"permits",), (self.set_by_an_operator(), before, self.ttl())

    def read_acquire(self):
        return self.fenced(*self.RW), (self.token(), self.ttl(), self.MARK, self.fence(), self.any(b"", self.token()))

    def read_extend(self):
        return (*self.RW[:2], b"freed"), (self.MARK, self.token(), self.ttl_or_none())

    def read_release(self):
        return self.RW[:2], (self.token(), self.any(0, self.ttl()), self.MARK)

    def read_secure(self):
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
        """Mostly with the keys it is meant for."""
        name = self.random.choice(sorted(SOURCES))
        keys, arguments = getattr(self, name)()
        keys = [self.any(*self.KEYS) if self.random.random() < 0.03 else key for key in keys]
        return ("EVAL", SOURCES[name], len(keys), *keys, *arguments)

    # Commands by themselves

    def command(self):
        key = self.any(*self.KEYS)
        number = self.random.randrange(10)
        event = b"event%d" % number
        choices = [
            ("GET", key), ("PTTL", key), ("TYPE", key), ("EXISTS", key, self.any(*self.KEYS)),
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
        if "DELIFEQ" in self.dialect:
            choices += [("DELIFEQ", key, self.token())] * 2
        if "DELEX" in self.dialect:
            choices += [("DELEX", key, "IFEQ", self.token()), ("DELEX", key)]
        if number == 0:
            choices += [("CLIENT", "TRACKING", "OFF"), ("CLIENT", "TRACKING", "ON"), ("FLUSHALL",), ("SCRIPT", "FLUSH")]
        return self.random.choice(choices)

    def options(self):
        """Of SET."""
        expiry = self.any(
            (), ("PX", self.ttl()), ("px", self.ttl()), ("EX", 50), ("KEEPTTL",), ("PX", self.any(0, "x", 2**63 - 1))
        )
        return (*self.any((), ("NX",), ("nx",), ("XX",)), *self.any((), ("GET",)), *expiry)

    def step(self):
        """What to say next."""
        return self.script() if self.random.random() < 0.6 else self.command()


@pytest.fixture
def both(nodes):
    """A real and a simulated master."""
    with ExitStack() as stack:
        compared = Both(nodes[0], stack)
        yield compared
        compared.out_of_memory(now=False)


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + PROGRAMS))
def test_random_programs_read_the_same_on_both(both, seed):
    """Replies, invalidations and what is left in the end, over random commands and the library's own scripts."""
    program = Program(seed, seconds(both.real.ask("TIME")), both.dialect)
    for _ in range(STEPS):
        session, chance = program.random.randrange(4), program.random.random()
        if chance < 0.01:
            both.out_of_memory(now=not both.simulated.master.oom)
        elif chance < 0.04 and both.step(session, ("PEXPIRE", key := program.any(*program.KEYS), SHORT)):
            both.run_out(key)
            both.step(program.random.randrange(4), (program.any("GET", "EXISTS", "ZCARD", "DEL", "TYPE"), key))
        else:
            both.step(session, program.step())
    both.compare_keys()


def test_every_script_of_the_library_takes_part():
    """A new one does not go untested."""
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


def test_values_cross_between_lua_and_the_server_alike(both):
    """Results, arguments and errors of small scripts."""
    for session in (NOLOOP, POLLING):
        for source in CONVERSIONS:
            both.step(session, ("EVAL", source, 0))


def test_odd_words_are_answered_alike(both):
    """Errors of syntax and arity, and what the commands on sessions say."""
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


@pytest.mark.parametrize("reader", [NOLOOP, LOOP])
@pytest.mark.parametrize("access", ["GET", "PTTL", "DEL"])
def test_a_key_that_runs_out_is_reported_alike(both, reader, access):
    """At its next access, to all who have read it, and to the one whose access it is unless it said NOLOOP."""
    both.step(ALSO_NOLOOP, ("SET", "k", "v", "PX", SHORT))
    both.step(reader, ("GET", "k"))
    both.run_out(b"k")
    both.step(reader, (access, "k"))
    both.step(ALSO_NOLOOP, ("SET", "k", "v"))
