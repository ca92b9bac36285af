"""A server that shakes hands as a master would, and then answers what it is told to: never what was asked for.

It keeps no locks. Left alone it grants whatever it is asked for, so that one reply at a time can be spoilt.
"""

import asyncio
import contextlib
import itertools
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from hashlib import sha1

import hiredis
import redis

from redlock_async._transport.commands import script

SCRIPTS = (
    "fair_acquire", "fair_leave", "fair_ticket", "fair_wait", "latch_count", "latch_look", "mutex_acquire",
    "mutex_extend", "mutex_force", "mutex_inspect", "mutex_release", "mutex_reassert",
    "node_clock", "node_clocks", "node_record", "read_acquire", "read_extend", "read_release", "read_reassert",
    "semaphore_acquire", "semaphore_change",
    "semaphore_extend", "semaphore_force", "semaphore_forget", "semaphore_inspect", "semaphore_retain",
    "semaphore_reassert", "semaphore_restore", "write_acquire", "write_downgrade",
)  # fmt: skip
NAMES = {script(name).sha: name for name in SCRIPTS}
STUB_IDS = tuple(f"stub-{number}" for number in range(10))
"""The ids of their data, which the nodes of `grow_old` know."""

COUNTER = itertools.count()
EXTENDS = {"mutex_extend": 1, "read_extend": 3, "semaphore_extend": 2}
"""How many keys there are for each state in the reply."""

HANDSHAKE = (
    "HELLO", "CLIENT SETNAME", "CLIENT SETINFO", "CLIENT ID", "CLIENT KILL", "INFO server", "INFO replication",
    "INFO persistence", "EVALSHA", "DELIFEQ", "DELEX", "CLIENT TRACKING", "SCRIPT LOAD", "node_record",
)  # fmt: skip
"""What the library and redis-py ask before a server is a node."""


def bulk(value):
    """A string in RESP."""
    data = value if isinstance(value, bytes) else str(value).encode()
    return b"$%d\r\n%b\r\n" % (len(data), data)


def array(*items):
    """An array of encoded replies."""
    return b"*%d\r\n%b" % (len(items), b"".join(items))


def number(value):
    """An integer in RESP."""
    return b":%d\r\n" % value


OK = b"+OK\r\n"


@dataclass(frozen=True)
class Answer:
    """Bytes, and what becomes of the connection then."""

    data: bytes
    then: str = "on"
    """on: as if nothing had happened; close: the connection; silence: nothing is answered any more."""
    dripping: bool = False
    """Whether each byte comes by itself."""


Spoil = Callable[[bytes], Answer]
"""Makes a hostile answer out of the one that would have been right."""


@dataclass
class Stub:
    """One such server; `async with` starts and stops it."""

    spoil: Spoil | None = None
    at: Callable[[str], bool] = lambda _name: True
    """Which commands are answered so, by their names as in HANDSHAKE, or the script's."""
    seen: list[str] = field(default_factory=list)
    connections: int = 0
    spoilt: int = 0
    run_id: str = field(default_factory=lambda: os.urandom(20).hex())
    id: str = field(default_factory=lambda: STUB_IDS[next(COUNTER) % len(STUB_IDS)])
    """The id of its data."""
    longest_ttl: int = 10_000
    heard: dict[str, None] = field(default_factory=dict)
    """The ids of which it was told."""
    charter: bytes = b""
    """The configuration of which it was told first."""
    beside: tuple[str, ...] = ()
    """The other nodes of the set that `grow_old` has recorded, with `stubs` of it."""
    met: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the first reply was spoilt."""
    url: str = ""
    label: str = ""

    async def __aenter__(self):
        self._writers = set()
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        self.label = f"127.0.0.1:{port}"
        self.url = f"redis://{self.label}"
        return self

    async def __aexit__(self, *_):
        for _ in range(10):  # who connected just now: asyncio cannot close what it is accepting
            await asyncio.sleep(0)
        self._server.close()
        for writer in tuple(self._writers):
            writer.transport.abort()
        await self._server.wait_closed()
        while self._writers:  # noqa: ASYNC110 - until each connection's task has noticed
            await asyncio.sleep(0)

    def send_all(self, data):
        """Something unasked, to whoever is connected."""
        for writer in self._writers:
            writer.write(data)

    async def _serve(self, reader, writer):
        self.connections += 1
        self._writers.add(writer)
        parser, silent = hiredis.Reader(), False
        try:
            while data := await reader.read(65536):
                parser.feed(data)
                while words := parser.gets():
                    if not silent and (then := await self._answer(writer, words)) != "on":
                        silent = True
                        if then == "close":
                            writer.close()
                await writer.drain()
        except (ConnectionError, hiredis.ProtocolError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _answer(self, writer, words):
        name = called(words)
        self.seen.append(name)
        answer = Answer(self.plausible(name, words))
        if self.spoil is not None and self.at(name):
            self.spoilt += 1
            self.met.set()
            answer = self.spoil(answer.data)
        if answer.dripping:
            for position in range(len(answer.data)):
                writer.write(answer.data[position : position + 1])
                await asyncio.sleep(0)
        else:
            writer.write(answer.data)
        return answer.then

    def plausible(self, name, words):  # noqa: PLR0911 - a table
        """What a master with nothing locked would say."""
        now = time.time_ns() // 1000
        if name in REPLIES:
            return REPLIES[name]
        if name == "HELLO":
            return b"%3\r\n" + b"".join(map(bulk, ("server", "redis", "version", "8.0.0", "proto"))) + number(3)
        if name == "INFO server":
            return bulk(f"redis_version:8.0.0\r\nrun_id:{self.run_id}\r\nredis_mode:standalone\r\n")
        if name == "node_clock":
            return number(now)
        if name == "node_record":
            self.longest_ttl = max(self.longest_ttl, *map(int, words[10:11]), 0)
            self.heard |= dict.fromkeys(each.decode() for each in (self.id.encode(), *words[14::2]))
            known = charter(self.beside, "stub") if self.beside else b""
            self.charter = self.charter or known or b"".join(words[12:13])
            return record(now, self.id, ttl_ms=self.longest_ttl, heard=self.heard, charter=self.charter)
        if name == "fair_ticket":
            return number(now)
        if name == "mutex_release":
            return number(int(words[2]))
        if name in EXTENDS:
            return array(*[number(1)] * (int(words[2]) // EXTENDS[name]))
        return shown(name, now)


def shown(name, now):
    """A reply that says what the clock shows, such as a grant of the token that was proposed."""
    if name.endswith("_acquire"):
        return number(-now)
    if name == "node_clocks":
        return array(number(now), array())
    if name == "TIME":
        return array(bulk(str(now // 10**6)), bulk(str(now % 10**6)))
    return number(1)


def record(now, own, *, ttl_ms=10_000, origin="joined", grace_ms=0, heard=(), age=10**12, standing="a", charter=b""):
    """The record of a node: by default it has voted for long, and so have those of which it has heard."""
    own_part = (
        number(now),
        bulk(own),
        number(ttl_ms),
        bulk(origin),
        bulk(""),
        number(grace_ms),
        bulk(charter),
        *[bulk("")] * 4,
    )
    others = (part for each in heard for part in (bulk(each), number(now - age), bulk(standing)))
    return array(*own_part, *others)


REPLIES = {
    "INFO": bulk("maxmemory:0\r\nmaxmemory_policy:noeviction\r\naof_enabled:1\r\nconnected_slaves:0\r\n"),
    "INFO replication": bulk("role:master\r\n"),
    "INFO persistence": bulk("aof_enabled:1\r\n"),
    "DELEX": b"-ERR unknown command 'DELEX'\r\n",
    "SET": OK,
    "CLIENT ID": number(7),
    "CLIENT KILL": number(0),
    "CLIENT SETINFO": OK,
    "CLIENT SETNAME": OK,
    "CLIENT TRACKING": OK,
    "SCRIPT LOAD": bulk("f" * 40),
    "EVALSHA": b"-NOSCRIPT No matching script. Please use EVAL.\r\n",
    "CONFIG GET": b"%1\r\n" + bulk("save") + bulk(""),
    "mutex_inspect": array(bulk("0" * 32 + ":somebody"), number(1000)),
    "semaphore_inspect": array(bulk("2"), array(number(0), bulk("0" * 32 + ":somebody"), number(1000))),
    "semaphore_force": array(number(0)),
    "semaphore_change": array(number(1)),
    "latch_look": array(number(0)),
}


def called(words):
    """The name of a command: its script's, or its first words."""
    first = words[0].decode().upper()
    if first == "EVALSHA":
        return NAMES.get(words[1], "EVALSHA")
    if first == "EVAL":
        return NAMES[sha1(words[1], usedforsecurity=False).hexdigest().encode()]
    if first == "INFO":
        return " ".join(["INFO", *(word.decode() for word in words[1:])])
    return f"{first} {words[1].decode().upper()}" if first in {"CLIENT", "SCRIPT", "CONFIG"} else first


# What it can be told to answer

ERRORS = (
    "ERR something is wrong",
    "ERR unknown command 'EVALSHA', with args beginning with: 'x'",
    "ERR max number of clients reached",
    "ERR Error running script (call to f_0): @user_script:3: WRONGTYPE Operation against a key",
    "WRONGTYPE Operation against a key holding the wrong kind of value",
    "NOSCRIPT No matching script. Please use EVAL.",
    "LOADING Redis is loading the dataset in memory",
    "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
    "BUSYKEY Target key name already exists.",
    "BUSYGROUP Consumer Group name already exists",
    "TRYAGAIN Multiple keys request during rehashing of slot",
    "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
    "CLUSTERDOWN The cluster is down",
    "CROSSSLOT Keys in request don't hash to the same slot",
    "MOVED 3999 127.0.0.1:6381",
    "ASK 3999 127.0.0.1:6381",
    "REDIRECT 127.0.0.1:6381",
    "READONLY You can't write against a read only replica.",
    "MISCONF Errors writing to the AOF file: No space left on device",
    "OOM command not allowed when used memory > 'maxmemory'.",
    "NOAUTH Authentication required.",
    "WRONGPASS invalid username-password pair or user is disabled.",
    "NOPERM User default has no permissions to run the 'evalsha' command",
    "EXECABORT Transaction discarded because of previous errors.",
    "NOREPLICAS Not enough good replicas to write.",
    "NOPROTO unsupported protocol version",
    "UNKILLABLE Sorry the script already executed write commands against the dataset.",
    "UNBLOCKED client unblocked via CLIENT UNBLOCK",
    "NOTBUSY No scripts in execution right now.",
    "NOMASTERLINK Can't SYNC while not connected with my master",
    "NOQUORUM Not enough good sentinels",
    "NOGOODSLAVE No suitable replica to promote",
    "INPROG Failover already in progress",
    "INVALIDOBJ Object corrupted",
    "IOERR error or timeout reading to target instance",
    "NOTREADY Not ready",
    "STALE it was stale",
    "PERMITS it is already in use with permits=2, but permits=3 was requested",
    "DENIED Redis is running in protected mode because protected mode is enabled",
    "SURPRISE an error of a server that is not written yet",
    "lower case and without any code",
    "%s {0} {user_id} %(x)d \x1b[31m",
    " ",
    "",
)

GARBAGE = {
    "zeros": b"\0" * 64,
    "ones": b"\xff" * 64,
    "text": b"hello, who is there?\r\n",
    "http 200": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    "http 400": b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n",
    "tls alert": bytes.fromhex("15030100020246"),
    "ssh": b"SSH-2.0-OpenSSH_9.7\r\n",
    "memcached": b"ERROR\r\n",
    "empty line": b"\r\n",
    "resp3 blob error": b"!5\r\nERR x\r\n",
    "no number": b":one\r\n",
    "number beyond 64 bit": b":99999999999999999999\r\n",
    "no big number": b"(12x\r\n",
    "negative bulk": b"$-5\r\n",
    "negative array": b"*-7\r\n",
    "bulk of 99 digits": b"$" + b"9" * 99 + b"\r\n",
    "array that memory cannot hold": b"*4294967295\r\n",
    "array beyond any count": b"*99999999999\r\n",
    "map with a list for a key": b"%1\r\n*0\r\n:1\r\n",
    "map with a map for a key": b"%1\r\n%0\r\n:1\r\n",
    "streamed string": b"$?\r\n;4\r\nabcd\r\n;0\r\n",
    "verbatim without a type": b"=3\r\nabc\r\n",
    "bool that is neither": b"#x\r\n",
}

TOKEN = bulk("0" * 32 + ":somebody")
WRONG = {
    "null": b"_\r\n",
    "null bulk": b"$-1\r\n",
    "null array": b"*-1\r\n",
    "true": b"#t\r\n",
    "false": b"#f\r\n",
    "double": b",3.25\r\n",
    "nan": b",nan\r\n",
    "inf": b",inf\r\n",
    "big number": b"(" + b"9" * 400 + b"\r\n",
    "another string": b"+FINE\r\n",
    "OK": OK,
    "empty string": b"$0\r\n\r\n",
    "verbatim": b"=7\r\ntxt:abc\r\n",
    "bytes": bulk(b"\xff\xfe\0"),
    "10 MB": bulk(b"x" * 10_000_000),
    "empty array": array(),
    "array of nothing": array(b"_\r\n", b"_\r\n", b"_\r\n"),
    "array of strings": array(bulk("a"), bulk("b"), bulk("c")),
    "array of one string": array(bulk("a")),
    "array of errors": array(b"-ERR a\r\n", b"-ERR b\r\n", b"-ERR c\r\n"),
    "array of arrays": array(array(), array(), array()),
    "array of bools": array(b"#t\r\n", b"#t\r\n", b"#t\r\n"),
    "array of doubles": array(b",1.5\r\n", b",nan\r\n", b",inf\r\n"),
    "array of 4000": array(*[number(1)] * 4000),
    "refusal by a number": array(number(1), number(5), number(5)),
    "refusal by nobody": array(number(1), b"_\r\n", number(-1)),
    "refusal by text time": array(number(1), TOKEN, bulk("soon")),
    "refusal without a time": array(number(1), TOKEN, b"_\r\n"),
    "refusal by a list": array(number(1), array(TOKEN), number(5)),
    "refusal until the end of time": array(TOKEN, b"(" + b"9" * 400 + b"\r\n", number(0)),
    "refusal of two by a number": array(number(5), number(5)),
    "refusal by a map": array(b"%0\r\n", number(5)),
    "slot far away": array(TOKEN, number(-1), number(999_999)),
    "slot below": array(TOKEN, number(-1), number(-3)),
    "slot by name": array(TOKEN, number(-1), bulk("1")),
    "slot in a list": array(TOKEN, number(-1), array()),
    "a billion permits": array(number(1_000_000_000)),
    "no permits": array(number(0)),
    "less than no permits": array(number(-1)),
    "permits by name": array(bulk("5")),
    "open by null": array(b"_\r\n", bulk("a")),
    "open by name": array(bulk("1"), bulk("a")),
    "numbers counted": array(number(0), number(1), number(2)),
    "map": b"%1\r\n+a\r\n+b\r\n",
    "empty map": b"%0\r\n",
    "set": b"~2\r\n+a\r\n+b\r\n",
    "nine deep": b"*1\r\n" * 9 + number(1),
    "a thousand deep": b"*1\r\n" * 1000 + number(1),
    "attribute alone": b"|1\r\n+ttl\r\n:3600\r\n",
}

PUSHES = {
    "of an unknown kind": b">2\r\n+news\r\n+none\r\n",
    "of no kind": b">0\r\n",
    "null": b">-1\r\n",
    "of a list": b">1\r\n*0\r\n",
    "of a number": b">1\r\n:1\r\n",
    "message": b">3\r\n+message\r\n+channel\r\n+hello\r\n",
    "invalidate nothing": b">1\r\n+invalidate\r\n",
    "invalidate null": b">2\r\n+invalidate\r\n_\r\n",
    "invalidate a number": b">2\r\n+invalidate\r\n:5\r\n",
    "invalidate a string": b">2\r\n+invalidate\r\n+x\r\n",
    "invalidate a map": b">2\r\n+invalidate\r\n%1\r\n+x\r\n+y\r\n",
    "invalidate no keys": b">2\r\n+invalidate\r\n*0\r\n",
    "invalidate numbers": b">2\r\n+invalidate\r\n*2\r\n:5\r\n:6\r\n",
    "invalidate nulls": b">2\r\n+invalidate\r\n*1\r\n_\r\n",
    "invalidate lists": b">2\r\n+invalidate\r\n*1\r\n*1\r\n+x\r\n",
    "invalidate a true": b">2\r\n+invalidate\r\n#t\r\n",
    "in a push": b">1\r\n>1\r\n+x\r\n",
    "half": b">2\r\n+invalidate\r\n",
}


def always(data, then="on"):
    """That, whatever was asked."""
    answer = Answer(data, then)
    return lambda _right: answer


def cut(position, then):
    """Only the first bytes of the right reply."""
    return lambda right: Answer(right[:position], then)


def dripping(right):
    """The right reply, a byte at a time."""
    return Answer(right, dripping=True)


SPOILS = {
    **{f"error: {text[:24]}": always(f"-{text}\r\n".encode()) for text in ERRORS},
    "error in latin-1": always(b"-ERR \xe9\xff\r\n"),
    "error of 1 MB": always(b"-ERR " + b"x" * 1_000_000 + b"\r\n"),
    **{f"garbage: {name}": always(data) for name, data in GARBAGE.items()},
    **{f"wrong: {name}": always(data) for name, data in WRONG.items()},
    **{f"push {name}, and the reply": (lambda right, push=push: Answer(push + right)) for name, push in PUSHES.items()},
    "an attribute, and the reply": lambda right: Answer(b"|1\r\n+ttl\r\n:3600\r\n" + right),
    "a reply too many": lambda right: Answer(right + OK),
    "a number too many": lambda right: Answer(right + number(1)),
    "each reply twice": lambda right: Answer(right + right),
    "a bulk of 64 MB that never comes": always(b"$67108864\r\n"),
    "half a bulk": always(b"$10\r\nabc"),
    "half an array": always(b"*3\r\n:1\r\n"),
    "nothing": always(b"", "silence"),
    "the end": always(b"", "close"),
    "the reply and the end": lambda right: Answer(right, "close"),
    "the reply and silence": lambda right: Answer(right, "silence"),
}  # fmt: skip


def closing(spoil):
    """The same, and then the connection is closed."""
    return lambda right: replace(spoil(right), then="close")


def charter(urls, place):
    """The text by which a node knows that it is this one of a stub and these nodes: any stub is the same one."""
    labels = " ".join(("stub", *(url.removeprefix("redis://") for url in urls)))
    return f"0 {(len(urls) + 1) // 2 + 1} {labels} @ {place}".encode()


def grow_old(urls, *others, beside=()):
    """Make nodes look as if they had voted for an hour, and so had every stub and those others.

    Those `beside` a stub form a set with any stub that says so.
    """
    ids = [f"node-{number}" for number, _ in enumerate(urls)]
    heard = {f"node:{each}": f"{time.time_ns() // 1000 - 3600 * 10**6} a" for each in (*ids, *STUB_IDS, *others)}
    for own, url in zip(ids, urls, strict=True):
        with contextlib.closing(redis.Redis.from_url(url)) as client:
            server = client.info("server")["run_id"]
            client.delete("redlock-async:node")
            known = {"charter": charter(beside, url.removeprefix("redis://"))} if url in beside else {}
            record = {"id": own, "server": server, "origin": "joined", **known, **heard}
            client.hset("redlock-async:node", mapping=record)
