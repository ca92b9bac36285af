"""Which servers may be nodes. Errors about a server that rejects the client name it, without a password."""

import asyncio
import contextlib
import logging
import tempfile
import time
import traceback
from pathlib import Path

import pytest
import redis

from redlock_async import ConfigurationError, LockTimeout, QuorumUnavailable, Redlock
from redlock_async.errors import NodeDenied, NodeRefused
from redlock_async.testing import LocalCluster, LocalServerError
from redlock_async.testing._raw import clear_nodes

pytestmark = [pytest.mark.redis, pytest.mark.usefixtures("embedded")]

HOST = "127.0.0.1"
AT_ONCE = 5  # far below every wait given here, and far above what it takes on a busy machine
HOUR_AGO = round((time.time() - 3600) * 1e6)
SECRET = "hush-hush"  # noqa: S105 - looked for in everything that can be seen


@pytest.fixture
def serve():
    """A function that starts that many servers with those arguments and returns their ports."""
    with contextlib.ExitStack() as stack:
        yield lambda nodes, *args: stack.enter_context(LocalCluster(nodes, server_args=args)).ports


def ask(port, *command):
    """One command by another client than ours."""
    with redis.Redis(host=HOST, port=port, socket_timeout=5, single_connection_client=True) as client:
        return client.execute_command(*command)


def url(port):
    """Where that server is."""
    return f"redis://{HOST}:{port}"


async def until(condition, patience=5.0):
    """Poll until it holds."""
    async with asyncio.timeout(patience):
        while not condition():  # noqa: ASYNC110 - a server's state has no event
            await asyncio.sleep(0.01)


async def locks(nodes, **options):
    """Whether those nodes give a lock, keep it, and take it back."""
    options = {"wait": 5, "node_timeout": 1} | options  # a busy machine must not look like a refusal
    async with Redlock(nodes, owner="here", **options) as redlock, Redlock(nodes, owner="there", **options) as other:
        async with redlock("x") as lease:
            await lease.extend()
            with pytest.raises(LockTimeout):
                await other("x").acquire(wait=0)
        async with other("x") as later:
            assert later.fencing_token > lease.fencing_token


async def refused(nodes, *, wait, at_once=False):
    """What acquiring there raises, within the wait, or at once."""
    async with Redlock(nodes, wait=wait, node_timeout=1) as redlock:
        started = time.monotonic()
        with pytest.raises(QuorumUnavailable) as caught:
            await redlock("x").acquire()
        assert time.monotonic() - started < (AT_ONCE if at_once else wait + AT_ONCE)
    return caught.value


# Servers that cannot be nodes


@pytest.mark.asyncio
@pytest.mark.parametrize("names", [("127.0.0.1", "localhost"), ("localhost", "127.0.0.1")])
@pytest.mark.parametrize("others", [0, 1, 3])
async def test_one_server_by_two_host_names_is_refused(serve, names, others):
    """Two names of one server would be two votes: the error names both, however many others there are."""
    port, *rest = serve(1 + others)
    twins = [f"{name}:{port}" for name in names]
    async with contextlib.AsyncExitStack() as stack:
        redlock = Redlock([*(f"redis://{twin}" for twin in twins), *map(url, rest)])
        stack.push_async_callback(redlock.aclose)
        for _ in range(2):  # and it stays so
            with pytest.raises(ConfigurationError, match="same server") as caught:
                await redlock("x").acquire()
            assert all(twin in str(caught.value) for twin in twins)
    assert ask(port, "EXISTS", "x") == 0


@pytest.mark.asyncio
async def test_one_server_by_socket_and_by_port_is_refused(serve):
    """However it is reached."""
    with tempfile.TemporaryDirectory(prefix="identity-") as folder:  # short: a socket's path may have 100 bytes
        path = Path(folder) / "s"
        (port,) = serve(1, "--unixsocket", str(path))
        with pytest.raises(ConfigurationError, match="same server") as caught:
            async with Redlock([f"unix://{path}", url(port)]):
                pass
    assert str(path) in str(caught.value)
    assert f"{HOST}:{port}" in str(caught.value)


@pytest.mark.asyncio
async def test_one_server_by_two_databases_is_refused(serve):
    """They fail together."""
    (port,) = serve(1)
    with pytest.raises(ConfigurationError, match="twice"):
        Redlock([f"{url(port)}/1", f"{url(port)}/2"])


@pytest.mark.asyncio
@pytest.mark.parametrize("use", ["acquire", "enter", "decorator"])
async def test_replicas_are_refused(serve, use):
    """They would vote as their primary does."""
    (primary,) = serve(1)
    replicas = serve(2, "--replicaof", HOST, str(primary))
    redlock = Redlock([url(primary), *map(url, replicas)])

    @redlock.locked("x")
    async def function():
        raise AssertionError

    try:
        uses = {"acquire": lambda: redlock("x").acquire(), "enter": redlock.__aenter__, "decorator": function}
        with pytest.raises(ConfigurationError, match="replica") as caught:
            await uses[use]()
        assert any(f"{HOST}:{replica}" in str(caught.value) for replica in replicas)
    finally:
        await redlock.aclose()


@pytest.mark.asyncio
async def test_cluster_mode_is_refused(serve):
    """A Redis Cluster is one system."""
    ports = serve(1)
    clustered = serve(2, "--cluster-enabled", "yes")
    async with contextlib.AsyncExitStack() as stack:
        redlock = Redlock([*map(url, ports), *map(url, clustered)])
        stack.push_async_callback(redlock.aclose)
        with pytest.raises(ConfigurationError, match="cluster mode") as caught:
            await redlock("x").acquire()
    assert any(f"{HOST}:{port}" in str(caught.value) for port in clustered)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("settings", "why"),
    [(("--replicaof", HOST, "1"), "it is a replica"), (("--cluster-enabled", "yes"), "cluster mode")],
)
async def test_one_server_that_cannot_be_a_node_is_outvoted(serve, settings, why):
    """By the nodes that were in use before, also for a client that comes later: its name and the reason are shown."""
    ports, (unfit,) = serve(2), serve(1, *settings)
    clear_nodes(ports, "", HOUR_AGO)
    async with Redlock([*map(url, ports), url(unfit)], wait=2) as redlock:
        async with redlock("x") as lease:
            assert lease.spare_votes == 0
        first, second, third = await redlock.status()
        assert (first.can_vote, second.can_vote, third.can_vote) == (True, True, False)
        assert why in third.error


@pytest.mark.asyncio
async def test_a_demoted_node_is_outvoted_and_returns(serve):
    """Later than at the first look it is a fault of one node, and the others go on."""
    ports = serve(3)
    async with Redlock(list(map(url, ports)), wait=2) as redlock:
        async with redlock("x"):
            pass
        ask(ports[0], "REPLICAOF", HOST, ports[1])
        async with redlock("x") as lease:
            assert lease.spare_votes == 0
        ask(ports[0], "REPLICAOF", "NO", "ONE")
        ask(ports[0], "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        await until(lambda: redlock.statistics().nodes_up == 3)


# Users with few rights


def has_delifeq(port):
    """Whether an ACL of that server may name the command."""
    try:
        ask(port, "DELIFEQ", "no such key", "no such value")
    except redis.ResponseError:
        return False
    return True


@pytest.fixture
def users(serve, redis_version, urls):
    """A function that gives three nodes' URLs for a user with those rights."""

    def make(*rights):
        if redis_version < (7, 0) and any(right.startswith("-") and "|" in right for right in rights):
            pytest.skip("before Redis 7, an ACL forbids whole commands only")
        if redis_version < (7, 2) and "-client|setinfo" in rights:
            pytest.skip("before Redis 7.2 there is no CLIENT SETINFO to forbid")
        if "-delifeq" in rights and not has_delifeq(urls[0].rpartition(":")[2]):
            pytest.skip("this server has no DELIFEQ")
        ports = serve(3, "--user", "jo", "on", f">{SECRET}", "~*", "&*", "+@all", *rights)
        return [f"redis://jo:{SECRET}@{HOST}:{port}" for port in ports]

    return make


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "right",
    [
        "-info", "-client", "-client|tracking", "-client|kill", "-client|setinfo", "-client|id",
        "-client|setname", "-delifeq", "-script", "-script|load", "-evalsha", "-config", "-@admin", "-@dangerous",
    ],
)  # fmt: skip
async def test_right_that_can_be_done_without(users, right):
    """The lock works: by polling, by scripts, without knowing who the server is."""
    await locks(users(*right.split()), retry_delay=0.05)


@pytest.mark.asyncio
async def test_waiter_without_tracking_gets_the_lock(users):
    """It polls."""
    nodes = users("-client|tracking")
    async with Redlock(nodes, retry_delay=0.05) as redlock, Redlock(nodes, retry_delay=0.05) as other:
        assert not any(status.tracking for status in await redlock.status())
        lease = await redlock("x").acquire()
        waiting = asyncio.ensure_future(other("x").acquire(wait=5))
        await until(lambda: other.statistics().attempts >= 2)
        await lease.release()
        await (await waiting).release()


@pytest.mark.asyncio
async def test_reconnecting_without_the_right_to_kill(users):
    """The old connection cannot be ended by us, and the node comes back all the same."""
    nodes = users("-client|kill")
    async with Redlock(nodes, wait=5) as redlock:
        async with redlock("x"):
            pass
        for node in nodes:
            ask(node.rpartition(":")[2], "CLIENT", "KILL", "USER", "jo")
        async with redlock("x"):
            await until(lambda: redlock.statistics().nodes_up == 3)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("rights", "named"),
    [
        ("-eval -evalsha", "eval"), ("-@scripting", "eval"), ("-@write", "set"), ("-set", "set"), ("-getset", "getset"),
        ("resetkeys", "key"), ("-time", "time"),
    ],
)  # fmt: skip
async def test_right_that_cannot_be_done_without_fails_at_once(users, rights, named):
    """Asking again cannot help: the error names the nodes and the right, long before the wait is over."""
    error = await refused(users(*rights.split()), wait=30, at_once=True)
    assert len(error.nodes) >= 2  # those that ruled a quorum out
    assert all(isinstance(cause, NodeDenied) for cause in error.nodes.values())
    assert named in str(error).lower()  # Redis before 7.2 writes [SET], later servers 'set'


@pytest.mark.asyncio
async def test_user_without_rights_on_a_minority_is_outvoted(serve):
    """One badly set up node of three."""
    denied = serve(1, "--user", "jo", "on", f">{SECRET}", "~*", "&*", "+@all", "-@scripting")
    allowed = serve(2, "--user", "jo", "on", f">{SECRET}", "~*", "&*", "+@all")
    clear_nodes(allowed, "", HOUR_AGO)
    await locks([f"redis://jo:{SECRET}@{HOST}:{port}" for port in [*denied, *allowed]])


# Servers that refuse for now


def oom(serve, nodes):
    """Servers at maxmemory."""
    return serve(nodes, "--maxmemory", "100kb", "--maxmemory-policy", "noeviction")


def locked_out(serve, nodes):
    """Servers that want a password we do not give."""
    return serve(nodes, "--requirepass", SECRET)


@contextlib.contextmanager
def full(serve, nodes):
    """Servers whose only connection is taken."""
    ports = serve(nodes, "--maxclients", "1")
    with contextlib.ExitStack() as stack:
        for port in ports:
            client = stack.enter_context(redis.Redis(host=HOST, port=port, single_connection_client=True))
            client.ping()
        yield ports


@contextlib.contextmanager
def loading(serve, nodes):
    """Servers that load their data for some seconds."""
    try:
        ports = serve(
            nodes, "--enable-debug-command", "yes", "--key-load-delay", "2000",
            "--loading-process-events-interval-bytes", "1024",
        )  # fmt: skip
    except LocalServerError as error:
        pytest.skip(f"before Redis 7, loading cannot be made slow enough: {str(error).splitlines()[-1].strip()}")
    with contextlib.ExitStack() as stack:
        for port in ports:
            ask(port, "DEBUG", "POPULATE", 2500, "key", 200)
            client = redis.Redis(host=HOST, port=port, single_connection_client=True)
            stack.enter_context(client)
            client.connection.send_command("DEBUG", "RELOAD")
        for port in ports:
            give_up_at = time.monotonic() + 5
            while ask(port, "INFO", "persistence")["loading"] != 1:
                assert time.monotonic() < give_up_at
        yield ports


REFUSING = {"OOM": oom, "NOAUTH": locked_out, "max number of clients": full, "LOADING": loading}


@contextlib.contextmanager
def refusing(cause, serve, nodes):
    """That many servers that refuse us because of that."""
    ports = REFUSING[cause](serve, nodes)
    with contextlib.nullcontext(ports) if isinstance(ports, list) else ports as ready:
        yield list(ready)


@pytest.mark.asyncio
@pytest.mark.parametrize("cause", REFUSING)
async def test_majority_that_refuses_is_named_with_its_cause(serve, cause):
    """Within the wait, by node; at once where waiting cannot help."""
    with refusing(cause, serve, 2) as bad:
        denied = cause == "NOAUTH"
        error = await refused([*map(url, bad), url(*serve(1))], wait=30 if denied else 1, at_once=denied)
    assert set(error.nodes) >= {f"{HOST}:{port}" for port in bad}
    for port in bad:
        assert cause in str(error.nodes[f"{HOST}:{port}"])
        assert isinstance(error.nodes[f"{HOST}:{port}"], (NodeRefused, ConnectionError))
    assert cause in str(error)


@pytest.mark.asyncio
@pytest.mark.parametrize("cause", REFUSING)
async def test_minority_that_refuses_is_outvoted(serve, cause):
    """One of three."""
    good = serve(2)
    clear_nodes(good, "", HOUR_AGO)
    with refusing(cause, serve, 1) as bad:
        await locks([*map(url, bad), *map(url, good)])


@pytest.mark.asyncio
@pytest.mark.parametrize("cause", ["OOM", "max number of clients", "LOADING"])
async def test_waiting_outlasts_a_refusal(serve, cause):
    """Whoever waits long enough gets the lock when the server has recovered."""
    with contextlib.ExitStack() as stack:
        (port,) = stack.enter_context(refusing(cause, serve, 1))
        async with Redlock([url(port)], wait=20, retry_delay=0.05) as redlock:
            waiting = asyncio.ensure_future(redlock("x").acquire())
            await until(lambda: redlock.statistics().attempts >= 2)
            assert not waiting.done()
            if cause == "OOM":
                ask(port, "CONFIG", "SET", "maxmemory", 0)
            elif cause == "LOADING":
                ask(port, "CONFIG", "SET", "key-load-delay", 0)
            stack.close()
            await (await waiting).release()


@pytest.mark.asyncio
async def test_what_is_held_can_be_released_at_maxmemory(serve):
    """Freeing needs no memory."""
    ports = serve(3)
    async with Redlock(list(map(url, ports))) as redlock:
        async with redlock("x"):
            for port in ports:
                ask(port, "CONFIG", "SET", "maxmemory", "100kb")
        assert [ask(port, "EXISTS", "x") for port in ports] == [0, 0, 0]


# Secrets


def denied(serve, _good):
    """The wrong user."""
    (port,) = serve(1, "--requirepass", "another")
    return [f"redis://:{SECRET}@{HOST}:{port}", f"redis://jo:{SECRET}@localhost:{port}"]


def twins(_serve, good):
    """One server twice."""
    return [f"redis://:{SECRET}@{HOST}:{good}", f"redis://:{SECRET}@localhost:{good}"]


def replica(serve, good):
    """Not a master."""
    (port,) = serve(1, "--replicaof", HOST, str(good), "--requirepass", SECRET)
    return [f"redis://:{SECRET}@{HOST}:{port}"]


def no_rights(serve, _good):
    """A user who may do nothing."""
    (port,) = serve(1, "--user", "jo", "on", f">{SECRET}", "~*", "&*", "+@all", "-eval")
    return [f"redis://jo:{SECRET}@{HOST}:{port}/2"]


def at_maxmemory(serve, _good):
    """A server that takes no writes."""
    (port,) = serve(1, "--requirepass", SECRET, "--maxmemory", "1mb")
    return [f"redis://:{SECRET}@{HOST}:{port}"]


SECRET_CASES = {
    "works": lambda _serve, good: [f"redis://:{SECRET}@{HOST}:{good}"],
    "denied": denied,
    "twins": twins,
    "replica": replica,
    "no rights": no_rights,
    "OOM": at_maxmemory,
    "nobody listens": lambda _serve, _good: [f"redis://jo:{SECRET}@{HOST}:1", f"rediss://jo:{SECRET}@{HOST}:2"],
    "no such host": lambda _serve, _good: [f"redis://jo:{SECRET}@nowhere.invalid"],
    "no such socket": lambda _serve, _good: [f"unix://jo:{SECRET}@/nowhere/redis.sock?db=3"],
    "no TLS": lambda _serve, good: [f"rediss://jo:{SECRET}@{HOST}:{good}"],
    "no such CA": lambda _serve, good: [f"rediss://jo:{SECRET}@{HOST}:{good}?ssl_ca_certs=/nowhere"],
    "no such database": lambda _serve, good: [f"redis://:{SECRET}@{HOST}:{good}/4000"],
    "bad port": lambda _serve, _good: [f"redis://jo:{SECRET}@{HOST}:port"],
    "port out of range": lambda _serve, _good: [f"redis://jo:{SECRET}@{HOST}:99999"],
    "bad scheme": lambda _serve, _good: [f"reddis://jo:{SECRET}@{HOST}"],
    "bad brackets": lambda _serve, _good: [f"redis://jo:{SECRET}@[::1"],
    "unescaped": lambda _serve, _good: [f"redis://jo:{SECRET}/{SECRET}@{HOST}:6379"],
    "unescaped question": lambda _serve, _good: [f"redis://jo:{SECRET}?{SECRET}@{HOST}:6379"],
    "unescaped hash": lambda _serve, _good: [f"redis://jo:{SECRET}#{SECRET}@{HOST}:6379"],
    "no host": lambda _serve, _good: [f"redis://jo:{SECRET}"],
    "no scheme": lambda _serve, _good: [f"jo:{SECRET}@{HOST}:6379"],
    "no slashes": lambda _serve, _good: [f"redis:jo:{SECRET}@{HOST}:6379"],
    "unescaped at": lambda _serve, _good: [f"redis://jo:{SECRET}@{SECRET}@nowhere.invalid"],
    "unknown option": lambda _serve, _good: [f"redis://jo:{SECRET}@{HOST}?no_such_option=1"],
    "bad option": lambda _serve, _good: [f"redis://jo:{SECRET}@{HOST}?socket_timeout=soon"],
    "in the query": lambda _serve, _good: [f"redis://{HOST}:1?password={SECRET}"],
    "in a bad query": lambda _serve, _good: [f"redis://{HOST}:1?password={SECRET}&socket_timeout=soon"],
    "twice": lambda _serve, _good: 2 * [f"redis://jo:{SECRET}@{HOST}:1"],
    "one string": lambda _serve, _good: f"redis://jo:{SECRET}@{HOST}:1",
    "client": lambda _serve, _good: [redis.asyncio.Redis(host=HOST, port=1, username="jo", password=SECRET)],
    "sync client": lambda _serve, _good: [redis.Redis(host=HOST, port=1, username="jo", password=SECRET)],
}


@pytest.mark.asyncio
@pytest.mark.parametrize("case", SECRET_CASES.values(), ids=SECRET_CASES)
async def test_password_is_shown_nowhere(serve, case, caplog):
    """In no repr, log record, event, exception, note, cause or traceback, whatever goes wrong."""
    caplog.set_level(logging.DEBUG)
    asyncio.get_running_loop().set_debug(True)  # asyncio shows more then
    (good,) = serve(1, "--requirepass", SECRET)
    seen, redlock = [], None
    try:
        redlock = Redlock(case(serve, good), wait=0.2)
        redlock.on_event(lambda event: seen.append(repr(event)))
        seen.append(repr(redlock))
        async with redlock("x") as lease:
            seen.append(repr(lease))
    except Exception as exc:  # noqa: BLE001 - whatever it is
        seen += everything_in(exc)
    if redlock is not None:
        session = redlock._running
        seen += map(repr, (redlock, redlock._targets, session.context.nodes if session else (), redlock.statistics()))
        with contextlib.suppress(ConfigurationError):
            seen.append(repr(await redlock.status()))
        seen += [repr(task) for task in asyncio.all_tasks()]
        await redlock.aclose()
    seen += [record.getMessage() + repr(record.__dict__) for record in caplog.records]
    assert [text for text in seen if SECRET in text] == []
    assert seen


def everything_in(exc):
    """What an exception shows, and all that hangs on it; not the test's own lines."""
    frames = traceback.TracebackException.from_exception(exc)
    yield "".join(frames.format())
    todo, done = [exc], set()
    while todo:
        error = todo.pop()
        if error is None or id(error) in done:
            continue
        done.add(id(error))
        yield from (str(error), repr(error), repr(error.args), repr(getattr(error, "__notes__", ())))
        todo += [error.__cause__, error.__context__, *getattr(error, "nodes", {}).values()]
        yield from getattr(error, "nodes", {})
