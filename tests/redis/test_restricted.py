"""Restricted servers: every kind of lock works without the commands that exclusion does not need.

The table in docs/permissions.md is checked against what is measured here.
"""

import asyncio
import contextlib
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
import redis
from restricted import ENVOY, ENVOY_LATER, KINDS, REDIS_5, Proxy, kinds_that_work, rights_without

from redlock_async import QuorumUnavailable, Redlock
from redlock_async.cli._doctor_checks import is_fit, run_checks
from redlock_async.cli._doctor_probe import examine
from redlock_async.cli.doctor import PREFIX
from redlock_async.errors import NodeDenied
from redlock_async.testing import LocalCluster

pytestmark = [pytest.mark.redis, pytest.mark.usefixtures("embedded")]

HOST = "127.0.0.1"
PASSWORD = "hush-hush"  # noqa: S105 - looked for in everything that can be seen
DURABLE = ("--appendonly", "yes", "--appendfsync", "always")
DOCS = Path(__file__).parents[2] / "docs" / "permissions.md"

ADMIN = (
    "config",
    "acl",
    "debug",
    "bgsave",
    "bgrewriteaof",
    "save",
    "shutdown",
    "replicaof",
    "slaveof",
    "migrate",
    "sync",
)
OPTIONAL = (
    "client|setname", "client|setinfo", "client|id", "client|kill", "client|tracking", "script|load", "info", "config",
)  # fmt: skip
FORBIDDEN = {name.upper().replace("|", " "): (name,) for name in OPTIONAL}
SERVICES = {
    "ElastiCache-like: `CONFIG` and the like": ADMIN,
    "Memorystore-like: all of `@admin`": ("@admin",),
    "all of `@admin` and `@dangerous`": ("@admin", "@dangerous"),
    "all of the above": (*OPTIONAL, "@admin", "@dangerous"),
}
RENAMED = ("HELLO", "CLIENT", "INFO", "CONFIG", "SCRIPT", "EVALSHA", "SCAN")
NOT_ABOUT_RIGHTS = {"number", "quorum", "age"}


@pytest.fixture(scope="module")
def shared():
    """One server for all tests with users of their own."""
    with LocalCluster(1, server_args=DURABLE) as cluster:
        yield cluster.ports[0]


@pytest.fixture
def serve():
    """A function that starts one server with those arguments and returns its port."""
    with contextlib.ExitStack() as stack:
        yield lambda *args: stack.enter_context(LocalCluster(1, server_args=(*DURABLE, *args))).ports[0]


def version_of(client):
    """The version of Redis that a server is compatible with."""
    return tuple(map(int, client.info("server")["redis_version"].split(".")[:2]))


@pytest.fixture
def user(shared):
    """A function that gives the URL of the shared server, emptied, for a user without those commands."""

    def make(*forbidden):
        with redis.Redis(host=HOST, port=shared) as client:
            client.flushall()
            rules = rights_without(*forbidden, version=version_of(client))
            client.execute_command("ACL", "SETUSER", "jo", "reset", "on", f">{PASSWORD}", "~*", "&*", "+@all", *rules)
        return f"redis://jo:{PASSWORD}@{HOST}:{shared}"

    return make


def renamed(*commands):
    """Server arguments that make commands unknown."""
    return [word for name in commands for word in ("--rename-command", name, "")]


async def until(condition, patience=10.0):
    """Poll until it holds."""
    async with asyncio.timeout(patience):
        while not condition():  # noqa: ASYNC110 - what it asks for has no event
            await asyncio.sleep(0.01)


async def told(url, *, tracking):
    """How soon a waiter and a holder are told, as the documentation says it; fails if it is later than that."""
    options = {"node_timeout": 0.5, "wait": 10, "ttl": 30 if tracking else 3, "retry_delay": 30 if tracking else 0.2}
    async with Redlock([url], **options) as one, Redlock([url], **options) as other:
        lease = await one("told").acquire()
        waiting = asyncio.ensure_future(other("told").acquire())
        await until(lambda: other.statistics().waiting)
        await lease.release()
        async with asyncio.timeout(5):  # a waiter that polls every 30 s would not make it
            await (await waiting).release()
        lease = await one("told").acquire()
        await lease.extend()  # a new lease is checked soon
        started = time.monotonic()
        assert await other.force_release("told")
        async with asyncio.timeout(5):  # a third of 30 s is longer
            assert await lease.wait_until_lost()
        if not tracking:
            assert time.monotonic() - started > 0.2, "the holder was told before its next renewal"
    return ("at once", "at once") if tracking else ("polls", "next renewal")


async def diagnosed(url):
    """What the doctor finds to say about rights: the checks that are not ok, and the commands it names."""
    findings = await examine({"REDLOCK_NODES": url, "REDLOCK_NODE_TIMEOUT": "1"}, PREFIX)
    checks = run_checks(findings)
    assert PASSWORD not in str(checks)
    if all(each.level != "failure" for each in checks):
        assert is_fit(findings, checks) is (None if any(each.eviction is None for each in findings.nodes) else True)
    return {each.check: each for each in checks if each.level != "ok" and each.check not in NOT_ABOUT_RIGHTS}


async def row(server, url):
    """The row of the table for that server."""
    works, failed, status = await kinds_that_work([url])
    waiter, holder = await told(url, tracking=status.tracking)
    checks = await diagnosed(url)
    assert ("commands" in checks) is bool(set(status.missing) - {"CLIENT SETINFO", "CONFIG GET"})
    assert ("waking" in checks) is not status.tracking
    for command in set(status.missing) - {"CLIENT SETINFO", "CONFIG GET"}:
        assert command in checks["commands"].found
    names = "all" if len(works) == len(KINDS) else "all but " + ", ".join(failed)
    return f"| {server} | {names} | {waiter} | {holder} | {', '.join(sorted(checks)) or 'nothing'} |", failed


def documented():
    """The rows of the table in the documentation."""
    return [re.sub(r" +", " ", line) for line in DOCS.read_text("utf-8").splitlines() if line.startswith("| ")]


@pytest.mark.asyncio
@pytest.mark.parametrize("name", [*FORBIDDEN, *SERVICES, "nothing"])
async def test_forbidden_commands(user, name):
    """Each alone, those that services forbid, and all together: every kind of lock works."""
    url = user(*{**FORBIDDEN, **SERVICES, "nothing": ()}[name])
    line, failed = await row(f"forbidden by an ACL: {f'`{name}`' if name in FORBIDDEN else name}", url)
    assert failed == {}
    assert line in documented()


@pytest.mark.asyncio
@pytest.mark.parametrize("names", [(each,) for each in RENAMED] + [RENAMED], ids=" ".join)
async def test_unknown_commands(serve, names):
    """As with `rename-command`: an unknown command is treated like one that is forbidden."""
    line, failed = await row(
        f"unknown: {'all of these' if names == RENAMED else f'`{names[0]}`'}",
        f"redis://{HOST}:{serve(*renamed(*names))}",
    )
    if "SCAN" in names:
        assert "SCAN" in str(failed.pop("listing"))
    assert failed == {}
    assert line in documented()


PROXIES = {
    "RESP2 proxy: `HELLO` unknown": {"error": REDIS_5, "allows": lambda name: name != "HELLO"},
    "RESP2 proxy: closes the connection on `HELLO`": {"allows": lambda name: name != "HELLO"},
    "Envoy-like: few commands": {"error": ENVOY},
    "Envoy-like: few commands, with echo": {"error": ENVOY_LATER},
    "twemproxy-like: closes the connection on most commands": {},
}


@pytest.mark.asyncio
@pytest.mark.parametrize("name", PROXIES)
async def test_proxies(serve, name):
    """Before a real server, which gets no HELLO."""
    async with Proxy(serve(), **PROXIES[name]) as proxy:
        line, failed = await row(name, proxy.url)
    assert failed == {}
    assert line in documented()


@pytest.mark.asyncio
async def test_a_proxy_that_closes_the_connection_is_asked_less(serve):
    """Nine connections until it is known what it can be asked: three rounds of everything, less, and nothing."""
    async with Proxy(serve()) as proxy, Redlock([proxy.url]) as redlock, redlock("x") as lease:
        assert lease.valid
        assert proxy.refused == ["HELLO", "CLIENT"] * 3
        assert proxy.connections == 9
        (status,) = await redlock.status()
        assert {"HELLO", "INFO", "CLIENT KILL", "CONFIG GET"} <= set(status.missing)
        assert status.up
        assert (status.role, status.eviction, status.persistence, status.replicas) == (None,) * 4
        assert proxy.refused == ["HELLO", "CLIENT"] * 3  # nor does status() ask it, or health()
        assert (await redlock.health()).ready
        assert proxy.connections == 9


@pytest.mark.asyncio
@pytest.mark.parametrize("resets", [1, 2, 3, 4])
async def test_a_fault_while_connecting_does_not_cost_the_notifications(shared, resets, redis_version):
    """The first connections are reset. Without client tracking, a flush of the node would not be noticed later."""
    left, passing = resets, []

    async def pass_on(reader, writer):
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65_536):
                writer.write(data)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    async def accept(reader, writer):
        nonlocal left
        passing.append(asyncio.current_task())
        first = await reader.read(65_536)
        if left:
            left -= 1
            writer.transport.abort()
            return
        to_server, from_server = (await asyncio.open_connection("127.0.0.1", shared))[::-1]
        to_server.write(first)
        await asyncio.gather(pass_on(reader, to_server), pass_on(from_server, writer))

    async with await asyncio.start_server(accept, "127.0.0.1", 0) as server:
        url = f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with Redlock([url], namespace=f"resets-{resets}:") as redlock, redlock("x"):
            (status,) = await redlock.status()
            assert status.tracking
            assert status.missing == (() if redis_version >= (7, 2) else ("CLIENT SETINFO",))
        await asyncio.gather(*passing)
    assert left == 0


@pytest.mark.asyncio
async def test_a_node_that_has_answered_is_always_asked_everything(shared):
    """Its connection ends: a fault, and no reason to do without notifications from then on."""
    async with (
        Proxy(shared, allows=lambda name: name != "HELLO", error=REDIS_5) as proxy,
        Redlock([proxy.url]) as redlock,
    ):
        async with redlock("x"):
            assert (await redlock.status())[0].run_id
        proxy.closes_on.add("CLIENT")
        await proxy.disconnect()
        await until(lambda: "CLIENT" in proxy.refused)
        with pytest.raises(QuorumUnavailable, match="closed the connection"):
            await redlock("x").acquire(wait=0.5)
        proxy.closes_on.clear()
        async with redlock("x"):
            assert (await redlock.status())[0].run_id


@pytest.mark.asyncio
@pytest.mark.parametrize("command", ["TIME", "GETSET", "PTTL"])
async def test_a_command_that_a_script_needs_is_named(serve, user, command):
    """Unknown, and forbidden: the error says which one it is, and no attempt is repeated."""
    for url in (f"redis://{HOST}:{serve(*renamed(command))}", user(command.lower())):
        async with Redlock([url], wait=30) as redlock:
            started = time.monotonic()
            with pytest.raises(QuorumUnavailable, match=f"(?i){command}") as caught:
                if command == "PTTL":  # only who is refused needs it
                    with redis.Redis.from_url(url) as client:
                        client.set("x", "somebody")
                await redlock("x").acquire()
            assert time.monotonic() - started < 5
        (cause,) = caught.value.nodes.values()
        assert isinstance(cause, NodeDenied)
        assert "docs/permissions.md" in str(cause)


# What doctor says of managed services, where CONFIG cannot be called


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("settings", "fit", "level", "said"),
    [
        (
            ("--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"),
            False,
            "failure",
            "allkeys-lru may evict locks",
        ),
        (("--maxmemory-policy", "volatile-ttl"), True, "warning", "safe only without a maxmemory"),
        ((), True, "ok", "locks are never evicted"),
    ],
)
async def test_eviction_is_read_from_info(serve, settings, fit, level, said):
    """`fit` is never said of a node that evicts locks."""
    port = serve(*settings, *renamed("CONFIG"))
    findings = await examine({"REDLOCK_NODES": f"redis://{HOST}:{port}"}, PREFIX)
    checks = {each.check: each for each in run_checks(findings)}
    assert checks["eviction"].level == level
    assert said in checks["eviction"].found
    assert is_fit(findings, checks.values()) is fit
    assert checks["persistence"].level == "unknown"
    assert "aof: whether each lock is on disk" in checks["persistence"].found


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("settings", "level", "found"),
    [
        ((), "warning", "{node}: has 1 replica, and never stops accepting writes without them (min-replicas-to-write)"),
        (
            ("--min-replicas-to-write", "1", "--min-replicas-max-lag", "60"),
            "warning",
            "{node}: has 1 replica, and accepts writes for 60 s without them (min-replicas-max-lag)",
        ),
        (("--min-replicas-to-write", "1"), "ok", ""),
        (
            renamed("CONFIG"),
            "warning",
            "{node}: has 1 replica, and never stops accepting writes without them (min-replicas-to-write)",
        ),
        (
            ("--min-replicas-to-write", "1", *renamed("CONFIG")),
            "unknown",
            "{node}: has 1 replica; whether it stops accepting writes without them is unknown",
        ),
    ],
)
async def test_a_primary_with_replicas_is_named(settings, level, found, serve):
    """If it goes on accepting writes without its replicas: after a failover, it could go on granting locks."""
    port = serve("--repl-diskless-sync-delay", "0", *settings)
    serve("--replicaof", HOST, str(port))
    with redis.Redis(host=HOST, port=port) as client:
        await until(lambda: client.info("replication")["connected_slaves"] == 1)
    checks = await diagnosed(f"redis://{HOST}:{port}")
    check = checks.get("replicas")
    shown = (check.level, check.found) if check is not None else ("ok", "")
    assert shown == (level, found.format(node=f"{HOST}:{port}"))
    status = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "redlock_async", "status",
        env=os.environ | {"REDLOCK_NODES": f"redis://{HOST}:{port}"}, stdout=subprocess.PIPE,
    )  # fmt: skip
    text = (await status.communicate())[0].decode()
    assert (": has 1 replica" in text) is (level == "warning")


@pytest.mark.asyncio
async def test_advice_follows_the_cause(serve):
    """A node without memory lacks no permission."""
    port = serve()
    async with Redlock([f"redis://{HOST}:{port}"]) as redlock, redlock("x"):
        pass
    with redis.Redis(host=HOST, port=port) as client:
        client.config_set("maxmemory", 1)
    checks = await diagnosed(f"redis://{HOST}:{port}")
    assert "OOM" in checks["kinds"].found
    assert "raise its maxmemory" in checks["kinds"].remedy
    assert "allow the commands" not in checks["kinds"].remedy


def the_documented_rules():
    """The words of the ACL in docs/operations.md."""
    (text,) = re.findall(r"^ACL SETUSER locks (.*?)^```", DOCS.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    return text.split()


@pytest.mark.asyncio
async def test_the_documented_acl_is_enough_and_hides_the_passwords(shared, user):
    """Every kind of lock works, the doctor has nothing to fix, and `requirepass` cannot be read."""
    url = user()
    rules = ["~*" if word.startswith("~") else word for word in the_documented_rules()]
    with redis.Redis(host=HOST, port=shared) as client:
        if version_of(client) < (7, 2):
            rules = [word for word in rules if word != "+client|setinfo"]
        client.execute_command("ACL", "SETUSER", "jo", "reset", f">{PASSWORD}", *rules)
    _, failed, status = await kinds_that_work([url])
    assert failed == {}
    assert status.tracking
    assert set(await diagnosed(url)) == {"persistence"}
    with redis.Redis.from_url(url) as client, pytest.raises(redis.exceptions.NoPermissionError):
        client.config_get("requirepass")
