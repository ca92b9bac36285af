"""Servers that forbid or lack commands, proxies that know few, and a trial of every kind of lock on them."""

import asyncio
import contextlib

import hiredis

from redlock_async import LockTimeout, Redlock
from redlock_async.testing._servers import HOST

# Proxies


ENVOY = "-unsupported command '{}'\r\n"
ENVOY_LATER = "-ERR unknown command '{}', with args beginning with: {}\r\n"
REDIS_5 = "-ERR unknown command `{}`, with args beginning with: {}\r\n"

PROXIED = {
    "AUTH", "DEL", "EVAL", "EVALSHA", "EXISTS", "GET", "GETRANGE", "GETSET", "HDEL", "HEXISTS", "HGET", "HSET",
    "PEXPIRE", "PING", "PTTL", "SADD", "SCARD", "SET", "ZADD", "ZRANGE", "ZREM",
}  # fmt: skip
"""What Envoy and twemproxy pass on, as far as the library sends it. Neither has HELLO, CLIENT, INFO, CONFIG, SCRIPT,
SELECT or SCAN; Envoy answers TIME itself."""


class Proxy:
    """A proxy before one server that passes some commands on. It speaks RESP2, as no HELLO reaches the server."""

    def __init__(self, port, *, allows=lambda name: name in PROXIED, error=None):
        self.connections = 0
        self.refused = []
        self._port = port
        self._allows = allows
        self._error = error
        """What is answered to other commands; None: the connection is closed."""
        self.closes_on = set()
        """Commands on which the connection is closed in any case."""
        self._serving = set()

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._serve, HOST, 0)
        self.url = f"redis://{HOST}:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_):
        self._server.close()
        await self.disconnect()
        await self._server.wait_closed()

    async def disconnect(self):
        """End all connections."""
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    async def _serve(self, reader, writer):
        self.connections += 1
        task = asyncio.current_task()
        self._serving.add(task)
        up_reader, up_writer = await asyncio.open_connection(HOST, self._port)
        try:
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await self._pass_on(reader, writer, up_reader, up_writer)
        finally:
            self._serving.discard(task)
            writer.close()
            up_writer.close()

    async def _pass_on(self, reader, writer, up_reader, up_writer):
        commands = hiredis.Reader()
        while data := await reader.read(65_536):
            commands.feed(data)
            while words := commands.gets():
                name = words[0].decode().upper()
                if self._allows(name) and name not in self.closes_on:
                    up_writer.write(hiredis.pack_command(tuple(words)))
                    writer.write(await one_reply(up_reader))
                    continue
                self.refused.append(name)
                if self._error is None or name in self.closes_on:
                    return
                echo = " ".join(f"'{word.decode(errors='replace')}'" for word in words[1:])[:128]
                writer.write(self._error.format(words[0].decode(), echo.replace("\r", " ").replace("\n", " ")).encode())


async def one_reply(reader):
    """The bytes of the reply to the only command that was sent."""
    replies, raw = hiredis.Reader(notEnoughData=...), b""
    while True:
        data = await reader.read(65_536)
        if not data:
            raise ConnectionResetError
        raw += data
        replies.feed(data)
        if replies.gets() is not ...:
            return raw


# Users


CLIENT = ("setname", "id", "kill", "tracking")
"""The subcommands of CLIENT that Redis 6.2 has, as far as the library sends them."""


def rights_without(*commands, version):
    """ACL rules that forbid these commands to a user who may call all others, for a server of that Redis version."""
    if version >= (7, 0):
        return [f"-{name}" for name in commands if name != "client|setinfo" or version >= (7, 2)]
    # Redis 6.2 can only allow single subcommands, and counts all of CLIENT as @admin.
    forbidden = {name.partition("|")[2] for name in commands if name.startswith("client|")}
    if "@admin" in commands:
        forbidden.add("kill")
    rules = ["-script" if name == "script|load" else f"-{name}" for name in commands if not name.startswith("client|")]
    return [*rules, "-client", *(f"+client|{name}" for name in CLIENT if name not in forbidden)] if forbidden else rules


# Trials


async def locks(one, other):
    """Plain, unfenced, of several names, re-entrant, extended, force-released."""
    async with one("a") as lease:
        await lease.extend()
        assert await other("a").try_acquire() is None
        assert (await other.inspect("a")).owner == "one"
    async with other("a") as later:
        assert later.fencing_token > lease.fencing_token
    async with one("b", fencing=False):
        assert await other("b", fencing=False).try_acquire() is None
    async with one("c", "d"):
        assert await other("d").try_acquire() is None
    async with one("e", reentrant=True), one("e", reentrant=True):
        pass
    lease = await one("f").acquire()
    assert await other.force_release("f")
    async with other("f"):
        pass
    assert await lease.wait_until_lost()


async def fair_locks(one, other):
    """One waits in the queue and gets the lock."""
    lease = await one.fair_lock("fair").acquire()
    with contextlib.suppress(LockTimeout):
        await other.fair_lock("fair").acquire(wait=0.05)
    waiting = asyncio.ensure_future(other.fair_lock("fair").acquire(wait=10))
    await asyncio.sleep(0)
    await lease.release()
    await (await waiting).release()


async def read_write_locks(one, other):
    """Readers share, a writer does not, and may become a reader."""
    async with one.read_lock("rw"):
        async with other.read_lock("rw"):
            pass
        assert await other.write_lock("rw").try_acquire() is None
    async with one.write_lock("rw") as lease:
        assert await other.read_lock("rw").try_acquire() is None
        reader = await lease.downgrade()
        async with other.read_lock("rw"):
            pass
        await reader.release()


async def semaphores(one, other):
    """Two slots, and the number of permits changed."""
    async with one.semaphore("s", permits=2), other.semaphore("s", permits=2):
        assert await other.semaphore("s", permits=2).try_acquire() is None
    async with one.semaphore("s", permits=2, count=2):
        pass
    await one.change_permits("s", 3)


async def latches(one, other):
    """Counted down by one client, seen by the other."""
    await one.latch("l", count=2).count_down("x")
    assert await other.latch("l", count=2).remaining() == 1
    await other.latch("l", count=2).count_down("y")
    await one.latch("l", count=2).wait(timeout=10)


async def periods(one, other):
    """A job runs once, whoever calls it."""
    ran = []
    for client in (one, other):

        @client.once("job", every=60)
        async def job():
            ran.append(1)

        await job()
    assert ran == [1]


async def listing(one, other):
    """By a pattern, and by name."""
    async with one("listed"):
        assert [record.name for record in await other.list_locks("list*")] == ["listed"]


KINDS = {
    "locks": locks, "fair locks": fair_locks, "read-write locks": read_write_locks, "semaphores": semaphores,
    "latches": latches, "once": periods, "listing": listing,
}  # fmt: skip


async def kinds_that_work(nodes, **options):
    """The names of the trials that succeed, and the errors of the others."""
    failed = {}
    options = {"node_timeout": 1, "ttl": 6, "retry_delay": 0.05, "wait": 5} | options
    async with Redlock(nodes, owner="one", **options) as one, Redlock(nodes, owner="other", **options) as other:
        for name, trial in KINDS.items():
            try:
                async with asyncio.timeout(20):
                    await trial(one, other)
            except Exception as exc:  # noqa: BLE001 - each trial reports its own failure
                failed[name] = exc
        (status, *_) = await one.status()
    return [name for name in KINDS if name not in failed], failed, status
