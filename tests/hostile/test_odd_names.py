"""Names that look like something else work as any other name, and none interferes with another."""

import asyncio
import contextlib

import pytest
import redis

from redlock_async import ConfigurationError, LockLost, LockTimeout, Redlock
from redlock_async._rules.keys import LONGEST_NAME, RESERVED

ODD = {
    "blank": " ",
    "NUL": "\0",
    "NUL inside": "a\0b",
    "newline": "a\r\nb",
    "a command": "x\r\n*1\r\n$8\r\nFLUSHALL\r\n",
    "tabs": "\t\v\f\x1b[31m",
    "braces": "{}",
    "open brace": "{",
    "closed brace": "}",
    "hash tag": "{a}b{c}",
    "empty hash tag": "{}{a}",
    "lua": "\"] redis.call('FLUSHALL') --",
    "lua long string": "]] redis.call('FLUSHALL') --[[",
    "quote": "'",
    "backslash": "\\",
    "percent": "%s%d%n%%",
    "format": "{0}{user_id}{!r}",
    "glob": "*",
    "glob set": "[a-z]?",
    "number": "0",
    "big number": "9" * 40,
    "not a number": "nan",
    "right to left": "\u202e\u05d0\u05d1\u05d2",
    "emoji": "👩‍👩‍👧‍👦🔒",
    "combining": "e\u0301",
    "composed": "\u00e9",
    "private use": "\U0010ffff",
    "not characters": "\uffff\ufffe",
    "zero width": "\u200b",
    "byte order mark": "\ufeff",
    "slash": "../../etc/passwd",
    "url": "redis://user:secret@host:6379/0",
    "None": "None",
    "longest": "x" * LONGEST_NAME,
    "longest of emoji": "🔒" * (LONGEST_NAME // 4),
    "nearly reserved": RESERVED[:-1],
    "reserved in capitals": RESERVED.upper(),
    "reserved behind": "x" + RESERVED,
    "readers of x": "x:readers",
    "fence of x": "{x}:fence",
    "register": f"{{{RESERVED}fence:{{@@@@}}}}",
    "slot of x": "x:0",
    "wake of x": "{x}:",
    "end of a queue": "x}:",
    "token": "0" * 32 + ":readers",
}

REFUSED = {
    "empty": "",
    "reserved": RESERVED,
    "register": f"{RESERVED}fence:{{@@@@}}",
    "record": f"{RESERVED}node",
    "readers": f"{RESERVED}readers:{{x}}",
    "queue": f"{RESERVED}queue:{{x}}",
    "surrogate": "\ud800",
    "surrogates": "a\udcffb",
    "too long": "x" * (LONGEST_NAME + 1),
    "too long in bytes": "🔒" * (LONGEST_NAME // 4 + 1),
    "a megabyte": "x" * 1_000_000,
}


def kinds(redlock, name):
    """A lock of each kind on that name."""
    return {
        "lock": lambda **options: redlock(name, **options),
        "fair": lambda **options: redlock.fair_lock(name, **options),
        "read": lambda **options: redlock.read_lock(name, **options),
        "write": lambda **options: redlock.write_lock(name, **options),
        "semaphore": lambda **options: redlock.semaphore(name, permits=2, **options),
    }


SHARED = {"read", "semaphore"}


async def use(redlock, other, name):
    """All that can be done with a name, by two clients."""
    for kind, lock in kinds(redlock, name).items():
        theirs = kinds(other, name)[kind]
        async with lock() as lease:
            assert lease.names == (name,)
            if kind not in SHARED:
                with pytest.raises(LockTimeout) as caught:
                    await theirs().acquire(wait=0)
                assert caught.value.names == (name,)
            await lease.extend()
            if kind != "semaphore":
                assert (await other.inspect(name)).name == name
        async with lock(fencing=False, min_hold=0.001) as lease:
            await lease.extend()
        async with theirs() as lease:
            await redlock.attach(lease.detach()).release()
    async with redlock(name, "beside") as both:
        assert set(both.names) == {name, "beside"}
    await (await (await redlock.write_lock(name).acquire()).downgrade()).release()
    latch = redlock.latch(name, count=2)
    await latch.count_down(name[:100] or "x")
    await latch.count_down("the other")
    await other.latch(name, count=2).wait(1)

    @redlock.locked(name.replace("{", "{{").replace("}", "}}"))
    async def job():
        return (await other.inspect(name)).held

    assert await job()
    lease = await redlock(name).acquire()
    assert await other.force_release(name)
    with pytest.raises(LockLost):
        await lease.release()


@pytest.fixture
def flat(nodes):
    """Three masters are enough here."""
    return nodes[:3]


def left(urls):
    """What is still stored but for the library's own registers."""
    found = []
    for url in urls:
        with contextlib.closing(redis.Redis.from_url(url)) as client:
            found += [key for key in client.scan_iter() if RESERVED.encode() not in key]
    return found


async def none_left(urls):
    """What is released may take a moment to be gone everywhere."""
    async with asyncio.timeout(2):
        while left(urls):  # noqa: ASYNC110 - a server's state has no event
            await asyncio.sleep(0.01)


@pytest.mark.asyncio
async def test_odd_names_work_as_any_other(flat):
    """For every kind, and one beside the other at the same time."""
    async with Redlock(flat) as redlock, Redlock(flat) as other:
        for name in ODD.values():
            await use(redlock, other, name)
        await none_left(flat)


@pytest.mark.asyncio
async def test_no_name_is_in_the_way_of_another(flat):
    """All of them held at once, by each kind in turn."""
    every = [*ODD.values(), "x", "a", "b"]
    async with Redlock(flat) as redlock, Redlock(flat) as other:
        for kind in kinds(redlock, "x"):
            leases = [await kinds(redlock, name)[kind]().acquire(wait=0) for name in every]
            # And with all of those held, the others' bookkeeping is as it should be.
            if kind not in SHARED:
                for name in every:
                    with pytest.raises(LockTimeout):
                        await other(name).acquire(wait=0)
            for lease in leases:
                await lease.extend()
                await lease.release()
        async with redlock(*every) as lease:
            assert set(lease.names) == set(every)
        await none_left(flat)


@pytest.mark.asyncio
async def test_kinds_that_share_a_name_share_nothing_else(flat):
    """A semaphore and a latch of a name leave its lock alone; read, write, fair and plain exclude each other."""
    async with Redlock(flat) as redlock, Redlock(flat) as other:
        async with redlock.semaphore("x", permits=1), redlock("x"), redlock.semaphore("x:0", permits=1):
            await redlock.latch("x", count=1).count_down("x")
            for lock in (
                other("x"),
                other.fair_lock("x"),
                other.read_lock("x"),
                other.write_lock("x"),
                other.semaphore("x", permits=1),
            ):
                with pytest.raises(LockTimeout):
                    await lock.acquire(wait=0)
        await none_left(flat)


@pytest.mark.asyncio
@pytest.mark.parametrize(("one", "another"), [
    (("", "a:b"), ("a:", "b")),
    (("", "redlock-async"), ("redlock-async", "x")),
])  # fmt: skip
async def test_namespaces_that_touch(flat, one, another):
    """A namespace is a prefix and nothing more: the same key by two ways is the same lock."""
    same = one[0] + one[1] == another[0] + another[1]
    async with Redlock(flat, namespace=one[0]) as redlock, Redlock(flat, namespace=another[0]) as other:
        first = await redlock(one[1]).acquire()
        second = await other(another[1]).try_acquire()
        assert (second is None) is same
        for lease in filter(None, (first, second)):
            await lease.release()


@pytest.mark.parametrize("name", REFUSED.values(), ids=REFUSED)
def test_names_that_cannot_be_are_refused_by_every_kind(name):
    """With a line that says which."""
    redlock = Redlock(["redis://127.0.0.1:1"])
    for make in (
        *kinds(redlock, name).values(), lambda: redlock.latch(name, count=1), lambda: redlock("x", name),
        lambda: asyncio.run(redlock.inspect(name)), lambda: asyncio.run(redlock.force_release(name)),
    ):  # fmt: skip
        with pytest.raises(ConfigurationError, match="name") as caught:
            make()
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 300


def test_a_namespace_that_cannot_be():
    """Nor one that leaves no room for a name."""
    with pytest.raises(ConfigurationError, match="namespace"):
        Redlock(["redis://127.0.0.1:1"], namespace="\ud800")
    redlock = Redlock(["redis://127.0.0.1:1"], namespace="n" * LONGEST_NAME)
    with pytest.raises(ConfigurationError, match="name"):
        redlock("x")


NAMESPACES = (
    "\0",
    "a\r\nb",
    "{",
    "}",
    "{}",
    "%s",
    "*",
    "👩‍👩‍👧‍👦",
    "\u202e",
    "\"] redis.call('FLUSHALL') --",
    RESERVED,
    " ",
)


@pytest.mark.thorough
@pytest.mark.asyncio
async def test_odd_namespaces_work_as_any_other(flat):
    """Their own bookkeeping included."""
    for namespace in NAMESPACES:
        async with Redlock(flat, namespace=namespace) as redlock, Redlock(flat, namespace=namespace) as other:
            await use(redlock, other, "x")
            await use(redlock, other, "{a}b{c}")
        with contextlib.closing(redis.Redis.from_url(flat[0])) as client:
            assert client.exists(f"{namespace}{RESERVED}node")


OWNERS = (
    " ",
    ":",
    "a:b:c",
    "{}",
    "%s {0}",
    "👩",
    "é",
    "\"] redis.call('FLUSHALL') --",
    "x" * 200,
    "🔒" * 50,
    "readers",
)
NO_OWNERS = ("", "a\nb", "\0", "x" * 201, "🔒" * 51, "\u202e", "\ud800", "\x1b[31m")


@pytest.mark.asyncio
@pytest.mark.parametrize("owner", OWNERS)
async def test_odd_owners_are_shown_as_they_are(flat, owner):
    """To those who wait, and to operators."""
    async with Redlock(flat, owner=owner) as redlock, Redlock(flat) as other:
        for kind, lock in kinds(redlock, "x").items():
            if kind in SHARED:
                continue
            async with lock():
                with pytest.raises(LockTimeout) as caught:
                    await other("x").acquire(wait=0)
                assert caught.value.holder == owner
                assert (await other.inspect("x")).owner == owner


@pytest.mark.parametrize("owner", NO_OWNERS, ids=ascii)
def test_owners_that_cannot_be_shown_are_refused(owner):
    """At once."""
    with pytest.raises(ConfigurationError, match="owner") as caught:
        Redlock(["redis://127.0.0.1:1"], owner=owner)
    assert "\n" not in str(caught.value)


@pytest.mark.asyncio
async def test_no_two_names_have_a_key_in_common(flat):
    """Watched at the servers: what each name's locks, of all kinds, write, but for the shared fence registers."""
    written = {}
    async with Redlock(flat) as redlock, Redlock(flat) as other:
        for name in ("x", "x}", "{x", "{x}", "x:0", "x}:0", "x:readers", "readers:{x}", "x}:{x", "0"):
            with contextlib.closing(redis.Redis.from_url(flat[0])) as client, client.monitor() as monitor:
                await use(redlock, other, name)
                client.echo("done")
                keys = set()
                for command in monitor.listen():
                    words = command["command"].split(" ")
                    if words[0] == "ECHO":
                        break
                    if words[0].upper() in WRITES and command["client_type"] == "lua":
                        keys.add(words[1])
            assert keys, name
            for before, theirs in written.items():
                shared = {key for key in keys & theirs if not key.startswith(f"{RESERVED}fence:") and key != "beside"}
                assert not shared, (before, name, shared)
            written[name] = keys


WRITES = {"SET", "ZADD", "HSET", "SADD", "HSETNX", "GETSET", "ZREM", "HDEL", "DEL"}
