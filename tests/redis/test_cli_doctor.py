"""`doctor` finds each of its faults on servers that have it, says what to do, and leaves nothing behind."""

import asyncio
import contextlib
import json
import os
import re
import subprocess
import sys
import time

import pytest
import redis

from redlock_async import Redlock
from redlock_async.cli._doctor_checks import run_checks
from redlock_async.cli._doctor_probe import examine
from redlock_async.cli.doctor import PREFIX
from redlock_async.testing import LocalCluster
from redlock_async.testing._raw import clear_nodes

pytestmark = [pytest.mark.redis, pytest.mark.usefixtures("embedded")]

HOST = "127.0.0.1"
SECRET = "hush-hush"  # noqa: S105 - looked for in everything that can be seen
PROGRAM = [sys.executable, "-m", "redlock_async", "doctor"]
UNFIT = {"independent", "role", "mode", "quorum", "eviction", "clocks"}
"""The checks whose failure makes a cluster unfit."""

CLOCK = rb"\A:(\d{16})\r\n"
"""The reply to node_clock.lua."""

RECORD = rb"\A(\*\d+\r\n:)\d{16}(\r\n\$)"
"""The node's clock in the reply to node_record.lua, and what is around it."""

IDENTITY = ("independent", "role", "mode", "replicas", "versions")
"""The checks that only INFO answers."""

DURABLE = ("--appendonly", "yes", "--appendfsync", "always")


@pytest.fixture
def serve():
    """A function that starts that many servers with those arguments and returns their URLs."""
    with contextlib.ExitStack() as stack:
        yield lambda nodes, *args: stack.enter_context(LocalCluster(nodes, server_args=args, new_cluster=True)).urls


@pytest.fixture
def connect():
    """A function that connects another client than ours."""
    with contextlib.ExitStack() as stack:
        yield lambda url: stack.enter_context(redis.Redis.from_url(url, socket_timeout=5, decode_responses=True))


@pytest.fixture
def aged(serve):
    """A function that starts durable servers, which have voted for an hour with those that it started before."""
    ports = []

    def start(nodes, *args):
        urls = serve(nodes, *DURABLE, *args)
        ports.extend(int(url.rpartition(":")[2]) for url in urls)
        clear_nodes(ports, "", round((time.time() - 3600) * 1e6))
        return urls

    return start


async def examined(urls, **environ):
    """The checks by their names."""
    given = {f"REDLOCK_{name}": value for name, value in environ.items()}
    checks = run_checks(await examine({"REDLOCK_NODES": ",".join(urls), **given}, PREFIX))
    found = {each.check: each for each in checks}
    assert len(found) == len(checks)
    assert {each.check for each in checks if each.level == "failure"} <= UNFIT
    assert all(each.remedy for each in checks if each.level != "ok")
    return found


def wrong(checks):
    """Which are not ok."""
    return {each.check: each.level for each in checks.values() if each.level != "ok"}


def label(url):
    """The label of a node."""
    return re.sub(r"^redis://(.*@)?", "", url)


# -- a cluster as it should be -----------------------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_nothing_is_wrong_with_a_cluster_as_it_should_be(aged, connect, eventually):
    """And it is left as it was."""
    urls = aged(3)
    before = [connect(url).hgetall("redlock-async:node") for url in urls]
    checks = await examined(urls)
    assert wrong(checks) == {}
    assert checks["age"].found == "every node has kept its data for longer than the ttl"
    await eventually(lambda: [connect(url).keys() for url in urls] == [["redlock-async:node"]] * 3)
    assert [connect(url).hgetall("redlock-async:node") for url in urls] == before


@pytest.mark.asyncio
async def test_nothing_is_wrong_with_a_cluster_that_was_never_used(serve, connect, eventually):
    """Nor does the look at it leave a trace."""
    urls = serve(3, *DURABLE)
    checks = await examined(urls)
    assert wrong(checks) == {}
    assert checks["age"].found == "no lock has been acquired on these nodes yet"
    await eventually(lambda: [connect(url).keys() for url in urls] == [[]] * 3)


@pytest.mark.asyncio
async def test_a_namespace_is_kept_to(aged, connect, eventually):
    """An ACL may allow no other key; and the record of another namespace is not touched."""
    urls = aged(3)
    checks = await examined(urls, NAMESPACE="app:")
    assert wrong(checks) == {}
    await eventually(lambda: [connect(url).keys() for url in urls] == [["redlock-async:node"]] * 3)


@pytest.mark.asyncio
async def test_a_ttl_of_hours_is_found(aged, connect):
    """A client once passed milliseconds as seconds; the nodes remember it until the key is deleted."""
    urls = aged(3)
    async with Redlock(urls) as redlock, redlock("x", ttl=30_000):
        pass
    checks = await examined(urls)
    assert checks["ttl"].level == "warning"
    assert "the longest ttl in use is 8 h" in checks["ttl"].found
    assert "HDEL redlock-async:node ttl" in checks["ttl"].remedy
    for url in urls:
        connect(url).hdel("redlock-async:node", "ttl")
    async with Redlock(urls) as redlock, redlock("x"):
        pass
    assert "the longest ttl in use is 10.0 s" in (await examined(urls))["ttl"].found


# -- what makes it unfit -----------------------------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_one_server_by_two_names_is_found(aged):
    """By its run id: both names are said."""
    urls = aged(3)
    again = urls[0].replace(HOST, "localhost")
    checks = await examined([*urls, again])
    assert checks["independent"].level == "failure"
    assert set(checks["independent"].nodes) == {label(urls[0]), label(again)}
    assert checks["role"].level == checks["mode"].level == checks["reached"].level == "ok"


@pytest.mark.asyncio
async def test_one_address_given_twice_is_found(aged):
    """Although no client can be made of it."""
    urls = aged(3)
    checks = await examined([*urls, urls[1] + "/1"])
    assert checks["independent"].level == "failure"
    assert label(urls[1]) in checks["independent"].found
    assert checks["number"].level == "warning"


@pytest.mark.asyncio
async def test_a_replica_is_found(aged, serve):
    """The label of the replica, and how to promote it."""
    urls = aged(2)
    (replica,) = serve(1, "--replicaof", *urls[0].removeprefix("redis://").split(":"))
    checks = await examined([*urls, replica])
    assert checks["role"].level == "failure"
    assert checks["role"].nodes == [label(replica)]
    assert "REPLICAOF NO ONE" in checks["role"].remedy
    assert checks["reached"].level == "ok"


@pytest.mark.asyncio
async def test_cluster_mode_is_found(aged, serve):
    """By what the server says of itself."""
    (clustered,) = serve(1, "--cluster-enabled", "yes")
    checks = await examined([*aged(2), clustered])
    assert checks["mode"].level == "failure"
    assert checks["mode"].nodes == [label(clustered)]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("memory", "policy", "level"),
    [("100mb", "allkeys-lru", "failure"), ("100mb", "volatile-ttl", "failure"), ("0", "allkeys-lru", "warning")],
)
async def test_a_policy_that_evicts_is_found(aged, memory, policy, level):
    """It does harm as soon as there is a limit."""
    urls = [*aged(2), *aged(1, "--maxmemory", memory, "--maxmemory-policy", policy)]
    checks = await examined(urls)
    assert wrong(checks) == {"eviction": level}
    assert checks["eviction"].nodes == [label(urls[2])]
    assert policy in checks["eviction"].found


@pytest.mark.asyncio
async def test_nodes_that_are_down_are_named_and_too_many_of_them_are_no_quorum(aged):
    """One of three is a warning."""
    urls, dead = aged(2), "redis://127.0.0.1:1"
    checks = await examined([*urls, dead])
    assert wrong(checks) == {"reached": "warning", "quorum": "warning"}
    assert checks["reached"].nodes == [label(dead)]
    assert "cannot be reached" in checks["reached"].found
    assert checks["reached"].remedy.endswith("locks work as long as a quorum of the others does")
    checks = await examined([urls[0], dead, "redis://127.0.0.1:2"])
    assert checks["quorum"].level == "failure"
    assert checks["quorum"].found.endswith("no lock can be acquired")
    assert checks["reached"].remedy.endswith("it counts as failed, and no lock can be acquired")
    assert checks["kinds"].level == checks["cleaned up"].level == "unknown"
    assert "no test keys were written" in checks["cleaned up"].found


@pytest.mark.asyncio
async def test_nothing_is_said_of_nodes_that_all_are_down():
    """A fact that could not be read is unknown, not ok."""
    checks = await examined([f"redis://127.0.0.1:{port}" for port in (1, 2, 3)])
    assert {name for name, each in checks.items() if each.level == "ok"} == {"number"}
    assert not any("locks work" in (each.remedy or "") for each in checks.values())


@pytest.mark.asyncio
async def test_a_wrong_password_is_named_and_not_shown(aged, serve):
    """As the reason why a node cannot be used."""
    (locked,) = serve(1, "--requirepass", "another")
    checks = await examined([*aged(2), locked.replace("redis://", f"redis://:{SECRET}@")])
    assert "invalid username-password pair" in checks["reached"].found
    assert SECRET not in str(checks)


# -- what is worth a warning -------------------------------------------------------------------------------------------


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--appendfsync", "everysec"), "aof everysec"),
        (("--appendfsync", "no"), "aof no"),
        (("--appendonly", "no", "--save", "3600 1"), "rdb"),
        (("--appendonly", "no"), "none"),
    ],
)
async def test_weak_persistence_is_found(aged, arguments, said):
    """Each with what it costs."""
    urls = [*aged(2), *aged(1, *arguments)]
    checks = await examined(urls)
    assert wrong(checks) == {"persistence": "warning"}
    assert checks["persistence"].nodes == [label(urls[2])]
    assert f"{said}: a " in checks["persistence"].found


@pytest.mark.asyncio
async def test_a_node_without_its_data_is_found(aged, serve):
    """The node is quarantined, and the report says why."""
    urls = [*aged(2), *serve(1, *DURABLE)]
    checks = await examined(urls)
    assert wrong(checks) == {"age": "warning", "quorum": "warning"}
    assert checks["age"].nodes == [label(urls[2])]
    assert "it has no data: it votes when" in checks["age"].found


@pytest.mark.asyncio
@pytest.mark.parametrize("nodes", [1, 2, 4])
async def test_a_number_of_nodes_that_wastes_some_is_found(aged, nodes):
    """And one is no redundancy."""
    checks = await examined(aged(nodes))
    assert checks["number"].level == "warning"
    assert wrong(checks).keys() <= {"number", "quorum"}


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("rights", "levels", "said"),
    [
        ("-client|tracking", {"waking": "warning", "commands": "warning"}, "poll"),
        ("-zadd", {"kinds": "warning"}, "no fair locks, no read-write locks"),
        ("-scan", {"kinds": "warning"}, "no listing locks"),
        ("-getset", {"kinds": "warning", "quorum": "warning"}, "no locks"),
        ("-eval -evalsha", {"reached": "warning", "quorum": "warning"}, "ACL lacks a permission"),
        ("-config", {"persistence": "unknown"}, "aof: whether each lock is on disk"),
        ("-info", {"commands": "warning", **dict.fromkeys(IDENTITY, "unknown")}, ""),
        (
            "-info -config",
            {"commands": "warning", "eviction": "warning", **dict.fromkeys((*IDENTITY, "persistence"), "unknown")},
            "",
        ),
        ("-hset", {"kinds": "warning", "quorum": "warning"}, "no locks"),
        ("-client|kill", {"commands": "warning"}, "no CLIENT KILL (a command that was stuck"),
        ("-client|setinfo", {}, ""),
    ],
)
async def test_rights_that_are_missing_are_found(aged, connect, rights, levels, said):
    """The doctor tries each operation on each node; only one node lacks the right."""
    urls = aged(3)
    connect(urls[2]).execute_command("ACL", "SETUSER", "jo", "on", f">{SECRET}", "~*", "&*", "+@all", *rights.split())
    checks = await examined([*urls[:2], urls[2].replace("redis://", f"redis://jo:{SECRET}@")])
    assert wrong(checks) == levels
    for name in levels.keys() - {"quorum"}:
        assert checks[name].nodes == [label(urls[2])]
        assert said in checks[name].found
    assert SECRET not in str(checks)


@pytest.mark.asyncio
async def test_a_node_that_is_far_is_found():
    """Its round trip is a large part of node_timeout."""
    async with LocalCluster(3, proxied=True, server_args=DURABLE) as cluster:
        cluster.delay(1, 0.025)
        far = label(cluster.urls[1])
        checks = await examined(cluster.urls, NODE_TIMEOUT="0.08")
    assert checks["latency"].level == "warning"
    assert checks["latency"].nodes == [far]


@contextlib.asynccontextmanager
async def rewriting(url, pattern, replace):
    """A proxy before that server that changes what it answers, byte for byte of the same length."""
    writers, serving = [], []

    async def pump(source, sink, change):
        with contextlib.suppress(OSError):
            while data := await source.read(65_536):
                sink.write(change(data))
        sink.close()

    async def serve(reader, writer):
        serving.append(asyncio.current_task())
        up_reader, up_writer = await asyncio.open_connection(HOST, int(url.rpartition(":")[2]))
        writers.extend((writer, up_writer))
        await asyncio.gather(
            pump(reader, up_writer, bytes), pump(up_reader, writer, lambda data: re.sub(pattern, replace, data))
        )

    async with await asyncio.start_server(serve, HOST, 0) as server:
        yield f"redis://{HOST}:{server.sockets[0].getsockname()[1]}"
        await asyncio.gather(*serving)
        await asyncio.gather(*(writer.wait_closed() for writer in writers), return_exceptions=True)


@pytest.mark.asyncio
async def test_a_clock_that_is_off_is_found(aged):
    """The one that is off, not those that are right."""
    urls = aged(3)

    def later(found):
        return b":%d\r\n" % (int(found[1]) + 3 * 10**6)

    async with rewriting(urls[0], CLOCK, later) as off:
        checks = await examined([off, *urls[1:]])
    assert wrong(checks) == {"clocks": "warning"}
    assert checks["clocks"].nodes == [label(off)]
    assert "+3.0 s" in checks["clocks"].found


@pytest.mark.asyncio
@pytest.mark.parametrize(("seconds", "ttl"), [(90, "10"), (1, "1")])
async def test_clocks_that_differ_by_more_than_half_the_ttl_make_a_cluster_unfit(aged, seconds, ttl):
    """After a node has lost its data, fencing tokens could decrease."""
    urls = aged(3)

    def later(found):
        return b":%d\r\n" % (int(found[1]) + seconds * 10**6)

    async with rewriting(urls[0], CLOCK, later) as off:
        checks = await examined([off, *urls[1:]], TTL=ttl)
    assert checks["clocks"].level == "failure"
    assert label(off) in checks["clocks"].nodes
    assert "more than half of the longest ttl" in checks["clocks"].found


@pytest.mark.asyncio
async def test_a_clock_in_the_year_2300_makes_a_cluster_unfit(aged):
    """The node is not used, and it is said why."""
    urls = aged(3)
    async with rewriting(urls[0], RECORD, rb"\g<1>10413792000000000\2") as off:
        checks = await examined([off, *urls[1:]])
    assert wrong(checks) == {"reached": "warning", "quorum": "warning", "clocks": "failure"}
    assert "beyond the year 2200" in checks["reached"].found
    assert checks["clocks"].nodes == [label(off)]


@pytest.mark.asyncio
async def test_different_versions_are_found(aged):
    """Each version with its nodes."""
    urls = aged(3)

    def older(found):
        return found[1] + b"7" + found[2]

    async with rewriting(urls[2], rb"((?:valkey|redis)_version:)\d(\.)", older) as other:
        checks = await examined([*urls[:2], other])
    assert wrong(checks) == {"versions": "warning"}
    assert re.search(rf"{re.escape(label(other))}: \w+ 7\.", checks["versions"].found)


@pytest.mark.asyncio
async def test_keys_that_cannot_be_removed_are_reported(aged, connect):
    """With how to find them."""
    urls = aged(3)
    for url in urls:
        rules = ("on", f">{SECRET}", "~*", "&*", "+@all", "-del")
        connect(url).execute_command("ACL", "SETUSER", "jo", *rules)
    checks = await examined([url.replace("redis://", f"redis://jo:{SECRET}@") for url in urls])
    assert checks["cleaned up"].level == "warning"
    assert f"redis-cli --scan --pattern '{PREFIX}" in checks["cleaned up"].found


# -- the program -------------------------------------------------------------------------------------------------------


def doctor(urls, *arguments, **more):
    """Run it to its end."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("REDLOCK_", "COLUMNS"))}
    return subprocess.run(
        [*PROGRAM, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**kept, "REDLOCK_NODES": ",".join(urls), **more},
    )


def test_the_report_has_a_line_for_each_check_and_a_verdict(aged):
    """In a pipe, each on one line, with what to do behind an arrow; 0 in spite of warnings."""
    urls = [*aged(2), *aged(1, "--appendfsync", "no")]
    done = doctor(urls)
    assert (done.returncode, done.stderr) == (0, "")
    *checks, empty, verdict = done.stdout.splitlines()
    assert (empty, verdict) == ("", "fit for locks, 1 warning")
    assert len(checks) == 18
    assert [line for line in checks if not line.startswith("ok ")] == [
        line for line in checks if line.startswith("warning  persistence") and line.endswith("appendfsync always")
    ]
    assert "\x1b" not in done.stdout


def test_nodes_may_be_given_on_lines_of_their_own(aged):
    """REDLOCK_NODES from a file, with a comment, as every other client reads it."""
    urls = aged(3)
    done = doctor([], REDLOCK_NODES="\n".join(["# ours", *urls]))
    assert (done.returncode, done.stderr) == (0, "")
    assert "3 of 3 nodes can be used" in done.stdout


@pytest.mark.parametrize("as_json", [True, False])
def test_an_unfit_cluster_ends_with_1(aged, as_json):
    """For monitoring as well."""
    urls = aged(2)
    twin = urls[0].replace(HOST, "localhost").replace("redis://", f"redis://:{SECRET}@")
    done = doctor([*urls, twin], *(["--json"] if as_json else []))
    assert done.returncode == 1
    assert SECRET not in done.stdout + done.stderr
    if not as_json:
        assert done.stdout.splitlines()[-1].startswith("unfit for locks (")
        return
    found = json.loads(done.stdout)
    assert found["fit"] is False
    assert {node["label"] for node in found["nodes"]} >= {label(urls[0]), label(urls[1])}


@pytest.mark.parametrize(
    ("urls", "said"),
    [([], "no nodes given"), (["localhost:6379"], "not a Redis URL"), (["redis://h:port"], "not a Redis URL")],
)
def test_usage_errors_end_with_2(urls, said):
    """There is nothing to examine."""
    done = doctor(urls)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr
