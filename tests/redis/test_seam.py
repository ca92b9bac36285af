"""The seam to redis-py, on real servers: every way redis-py knows to reach one, up to the takeover of its transport.

Runs on the oldest and on the newest supported redis-py, so it needs nothing but pytest, pytest-asyncio and a server.
"""

import asyncio
import contextlib
import gc
import os
import re
import shutil
import socket
import ssl
import struct
import subprocess
import tempfile
import time
from pathlib import Path
from urllib.parse import quote

import pytest
import redis
from redis.asyncio import BlockingConnectionPool, ConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import ConstantBackoff
from redis.credentials import CredentialProvider, UsernamePasswordCredentialProvider

from redlock_async import ConfigurationError, LockTimeout, QuorumUnavailable, Redlock, RedlockError
from redlock_async._transport.connection import Connection, WriteBatcher
from redlock_async._transport.dial import Target
from redlock_async.errors import NodeDenied
from redlock_async.testing import LocalCluster
from redlock_async.testing._servers import HOST, Spawner, find_server, free_ports, make_executable

pytestmark = [pytest.mark.redis, pytest.mark.usefixtures("embedded", "nothing_left")]

AT_ONCE = 5  # far below every wait given here, and far above what it takes on a busy machine
PASSWORD = "p@ss:w/rd %?#é"  # noqa: S105 - all that a URL must escape


@pytest.fixture
def nothing_left(caplog):
    """Whatever a test dropped is collected at its end: warnings are errors, and no loop may complain."""
    yield
    gc.collect()
    records = [*caplog.get_records("call"), *caplog.get_records("teardown")]
    assert [record.getMessage() for record in records if record.name == "asyncio"] == []


@pytest.fixture
def serve():
    """A function that starts one server with those arguments and returns its port."""
    with contextlib.ExitStack() as stack:
        yield lambda *args: stack.enter_context(LocalCluster(1, server_args=args)).ports[0]


@pytest.fixture
def folder():
    """A folder whose name is short enough for a unix socket in it."""
    with tempfile.TemporaryDirectory(prefix="seam-") as name:
        yield Path(name)


def ask(port, *command, **options):
    """One command by another client than ours."""
    with redis.Redis(host=HOST, port=port, socket_timeout=5, **options) as client:
        return client.execute_command(*command)


def connections(port):
    """Every connection the server has, but the one that asks, as CLIENT LIST shows it."""
    with redis.Redis(host=HOST, port=port, client_name="who-asks") as client:
        return [each for each in client.client_list() if each["name"] != "who-asks"]


def names(port):
    """The name of every connection the server has, but the one that asks."""
    return [each["name"] for each in connections(port)]


def clients(port):
    """Name and protocol of every connection the server has, but the one that asks."""
    listed = connections(port)
    if any("resp" not in each for each in listed):
        pytest.skip("before Redis 7, CLIENT LIST does not show the protocol of a connection")
    return {each["name"]: each["resp"] for each in listed}


async def until(condition, patience=5.0):
    """Poll until it holds."""
    async with asyncio.timeout(patience):
        while not condition():  # noqa: ASYNC110 - a server's state has no event
            await asyncio.sleep(0.01)


async def locks(node, **options):
    """Whether a lock can be taken there, extended, contended and released; returns whether waiters are woken."""
    options = {"node_timeout": 1} | options  # a busy machine must not look like a fault
    async with Redlock([node], owner="seam", **options) as redlock:
        async with redlock("thing") as lease:
            await lease.extend()
            async with Redlock([node], owner="other", wait=0, node_timeout=1) as other:
                with pytest.raises(LockTimeout) as caught:
                    await other("thing").acquire()
                assert caught.value.holder == "seam"
        assert await redlock.inspect("thing") is None
        (status,) = await redlock.status()
        return status.tracking


# Takeover


async def opened(node, patience=2.0):
    """A connection of that node with nothing of the library above it."""
    wire = Connection(Unowned(), WriteBatcher(asyncio.get_running_loop()))
    await Target(node).open(wire, patience, hello=True)
    return wire


class Unowned:
    """An owner that only takes notes."""

    index = 0

    def __init__(self):
        self.ended = []

    def lost(self, _wire, cause):
        """Note it."""
        self.ended.append(cause)


class Reply:
    """A receiver of one reply."""

    started_at = 0.0

    def __init__(self):
        self.future = asyncio.get_running_loop().create_future()

    def deliver(self, _node, reply):
        """The reply is there."""
        self.future.set_result(reply)

    def dropped(self, _node, cause):
        """It will not come."""
        self.future.set_exception(cause)


@pytest.mark.asyncio
async def test_after_the_handshake_the_transport_is_ours_alone(serve):
    """redis-py's stream neither reads from it nor closes it, even when its objects are collected."""
    port = serve()
    wire = await opened(f"redis://{HOST}:{port}")
    gc.collect()
    assert wire._transport.get_protocol() is wire
    replies = [Reply() for _ in range(500)]
    for number, reply in enumerate(replies):
        wire.send(f"*2\r\n$4\r\nECHO\r\n$3\r\n{number:03}\r\n".encode(), reply)
    echoed = [await reply.future for reply in replies]
    assert echoed == [f"{number:03}".encode() for number in range(500)]
    wire.close(ConnectionError("done"))
    await wire.wait_closed()
    assert names(port) == []


@pytest.mark.asyncio
async def test_replies_larger_than_a_read_arrive_whole(serve):
    """Nothing of a long reply stays behind in a buffer of redis-py's."""
    port = serve()
    ask(port, "SET", "long", b"x" * 1_000_000)
    wire = await opened(f"redis://{HOST}:{port}")
    reply = Reply()
    wire.send(b"*2\r\n$3\r\nGET\r\n$4\r\nlong\r\n", reply)
    assert len(await reply.future) == 1_000_000
    wire.close(ConnectionError("done"))
    await wire.wait_closed()


@pytest.mark.asyncio
async def test_server_that_goes_away_is_reported_to_us(serve):
    """The end of a taken-over connection reaches our protocol, not redis-py's."""
    port = serve()
    wire = await opened(f"redis://{HOST}:{port}")
    ask(port, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    await until(lambda: wire._owner.ended)
    assert isinstance(wire._owner.ended[0], ConnectionResetError)


@pytest.mark.asyncio
async def test_handshake_is_what_it_must_be_and_no_more(serve):
    """HELLO and SELECT: no PING, no names, and no subscription to the vendor's notifications."""
    port = serve()
    with redis.Redis(host=HOST, port=port) as watching, watching.monitor() as monitor:
        wire = await opened(f"redis://{HOST}:{port}/2")
        reply = Reply()
        wire.send(b"*1\r\n$4\r\nTIME\r\n", reply)
        await reply.future
        wire.close(ConnectionError("done"))
        await wire.wait_closed()
        seen = []
        while not seen or seen[-1] != "TIME":
            seen.append(" ".join(monitor.next_command()["command"].split(" ")[:2]).upper())
    assert seen == ["SELECT 2", "HELLO 3", "TIME"]


# Ways to reach a server


@pytest.mark.asyncio
async def test_tcp(serve):
    """The plain case, woken by the server."""
    assert await locks(f"redis://{HOST}:{serve()}")


@pytest.mark.asyncio
async def test_host_name(serve):
    """A name that may also mean an address where nobody listens."""
    assert await locks(f"redis://localhost:{serve()}")


@pytest.mark.asyncio
@pytest.mark.parametrize("credentials", ["", "user"])
async def test_unix_socket(serve, folder, credentials):
    """A path, with and without a user."""
    path = folder / "redis.sock"
    serve("--unixsocket", str(path), "--user", "jo", "on", ">" + PASSWORD, "~*", "&*", "+@all")
    user = f"jo:{quote(PASSWORD, safe='')}@" if credentials else ""
    assert await locks(f"unix://{user}{path}")


@pytest.mark.asyncio
async def test_unix_socket_that_is_missing_is_named(folder):
    """The path stands in the error."""
    missing = folder / "none.sock"
    async with Redlock([f"unix://{missing}"], wait=0) as redlock:
        with pytest.raises(QuorumUnavailable, match=r"none\.sock"):
            await redlock("x").acquire()


# TLS


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """Our authority, certificates it issued, and an authority nobody asked for."""
    folder = tmp_path_factory.mktemp("certificates")
    issue(folder, "ca", "basicConstraints=critical,CA:TRUE", "keyUsage=critical,keyCertSign,cRLSign")
    issue(folder, "foreign", "basicConstraints=critical,CA:TRUE", "keyUsage=critical,keyCertSign,cRLSign")
    issue(folder, "here", "subjectAltName=DNS:localhost,IP:127.0.0.1", by="ca")
    issue(folder, "elsewhere", "subjectAltName=DNS:redis.example", by="ca")
    return folder


def issue(folder, name, *extensions, by=None):
    """A key and a certificate, signed by itself or by another."""

    def openssl(*command):
        subprocess.run([shutil.which("openssl"), *command], cwd=folder, check=True, capture_output=True)

    identifiers = ("subjectKeyIdentifier=hash", *(("authorityKeyIdentifier=keyid",) if by else ()))
    (folder / f"{name}.ext").write_text("\n".join((*extensions, *identifiers)), "utf-8")
    openssl(
        "req", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}"
    )
    signer = ("-CA", f"{by}.pem", "-CAkey", f"{by}.key", "-CAcreateserial") if by else ("-signkey", f"{name}.key")
    openssl(
        "x509", "-req", "-in", f"{name}.csr", "-days", "2", "-extfile", f"{name}.ext", "-out", f"{name}.pem", *signer
    )


@contextlib.asynccontextmanager
async def tls_before(port, certificates, name="here", *, demand=False):
    """TLS in front of a plain server, for the server program may be built without; yields its port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / f"{name}.pem", certificates / f"{name}.key")
    if demand:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(certificates / "ca.pem")
    running = set()

    async def carry(reader, writer):
        running.add(asyncio.current_task())
        up_reader, up_writer = await asyncio.open_connection(HOST, port)
        await asyncio.gather(pump(reader, up_writer), pump(up_reader, writer))

    async def pump(reader, writer):
        with contextlib.suppress(OSError):
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    server = await asyncio.start_server(carry, HOST, 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        if running:
            await asyncio.wait(running, timeout=5)


@pytest.mark.asyncio
@pytest.mark.parametrize("host", [HOST, "localhost"])
async def test_tls(serve, certificates, host):
    """The certificate and the host name are checked, and the transport under TLS is taken over like any other."""
    async with tls_before(serve(), certificates) as port:
        options = f"ssl_ca_certs={quote(str(certificates / 'ca.pem'))}&ssl_check_hostname=true"
        assert await locks(f"rediss://{host}:{port}?{options}")


@pytest.mark.asyncio
async def test_tls_by_a_client_object_with_user_and_database(serve, certificates):
    """All of it at once."""
    plain = serve("--user", "jo", "on", ">" + PASSWORD, "~*", "&*", "+@all")
    async with tls_before(plain, certificates) as port:
        node = Redis(
            host="localhost", port=port, username="jo", password=PASSWORD, db=4,
            ssl=True, ssl_ca_certs=str(certificates / "ca.pem"), ssl_check_hostname=True,
        )  # fmt: skip
        assert await locks(node)


@pytest.mark.asyncio
async def test_tls_with_a_certificate_of_the_client(serve, certificates):
    """A server that demands one gets it; without it the node is down."""
    async with tls_before(serve(), certificates, demand=True) as port:
        ca = f"rediss://localhost:{port}?ssl_ca_certs={certificates}/ca.pem"
        assert await locks(f"{ca}&ssl_certfile={certificates}/here.pem&ssl_keyfile={certificates}/here.key")
        async with Redlock([ca], wait=0) as redlock:
            with pytest.raises(QuorumUnavailable):
                await redlock("x").acquire()


@pytest.mark.asyncio
async def test_tls_by_an_unknown_authority_is_refused(serve, certificates):
    """The error says that it is the certificate, and names the node."""
    async with tls_before(serve(), certificates) as port:
        url = f"rediss://localhost:{port}?ssl_ca_certs={certificates}/foreign.pem"
        async with Redlock([url], wait=0) as redlock:
            with pytest.raises(QuorumUnavailable, match=r"(?i)certificate verify failed") as caught:
                await redlock("x").acquire()
        assert list(caught.value.nodes) == [f"localhost:{port}"]


@pytest.mark.asyncio
async def test_tls_for_another_host_is_refused(serve, certificates):
    """A certificate of the right authority for the wrong name."""
    async with tls_before(serve(), certificates, "elsewhere") as port:
        options = f"ssl_ca_certs={certificates}/ca.pem&ssl_check_hostname=true"
        async with Redlock([f"rediss://localhost:{port}?{options}"], wait=0) as redlock:
            with pytest.raises(QuorumUnavailable, match=r"(?i)hostname mismatch"):
                await redlock("x").acquire()


def unchecked(port, certificates, **options):
    """Every way to give a node that says nothing about host names."""
    authority = str(certificates / "ca.pem")
    url = f"rediss://localhost:{port}?ssl_ca_certs={quote(authority)}"
    yield url
    yield url + "&ssl_check_hostname="
    yield Redis.from_url(url)
    yield ConnectionPool.from_url(url)
    yield Redis(host="localhost", port=port, ssl=True, ssl_ca_certs=authority, **options)


@pytest.mark.asyncio
async def test_tls_for_another_host_is_refused_unless_asked_for(serve, certificates):
    """With every supported redis-py, although before version 6 its own default is not to check."""
    async with tls_before(serve(), certificates, "elsewhere") as port:
        for node in unchecked(port, certificates):
            async with Redlock([node], wait=0) as redlock:
                with pytest.raises(QuorumUnavailable, match=r"(?i)hostname mismatch"):
                    await redlock("x").acquire()
        url = f"rediss://localhost:{port}?ssl_ca_certs={certificates}/ca.pem&ssl_check_hostname=false"
        for node in (url, Redis.from_url(url), f"rediss://localhost:{port}?ssl_cert_reqs=none"):
            assert await locks(node)


@pytest.mark.asyncio
async def test_tls_with_a_missing_authority_file_is_said(serve, certificates):
    """A wrong path is no riddle."""
    url = f"rediss://localhost:{serve()}?ssl_ca_certs={certificates}/none.pem"
    async with Redlock([url], wait=0) as redlock:
        with pytest.raises(QuorumUnavailable, match=r"(?i)no such file"):
            await redlock("x").acquire()


@pytest.mark.asyncio
async def test_tls_to_a_server_without(serve):
    """A plain port answered by no TLS fails within the wait, and the error says what to change."""
    async with Redlock([f"rediss://localhost:{serve()}"], wait=0) as redlock:
        with pytest.raises(QuorumUnavailable):
            await redlock("x").acquire()
    async with Redlock([f"rediss://localhost:{serve()}"], wait=3, node_timeout=0.05) as redlock:
        with pytest.raises(QuorumUnavailable, match=r"If the server does not use TLS, use a redis:// URL"):
            await redlock("x").acquire()


@pytest.mark.asyncio
@pytest.mark.parametrize("answer", [b"-ERR unknown command\r\n", b""], ids=["an error", "the end"])
async def test_tls_to_a_server_that_answers_something_else(answer):
    """As a proxy does, or a plain server when there happens to be a line end in what it is sent."""

    async def plain(reader, writer):
        await reader.read(9)  # the rest is unread: the connection is reset
        writer.write(answer)
        writer.close()

    async with await asyncio.start_server(plain, HOST, 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with Redlock([f"rediss://{HOST}:{port}"], wait=0) as redlock:
            with pytest.raises(QuorumUnavailable, match=r"did not answer with TLS. .* use a redis:// URL"):
                await redlock("x").acquire()


# Credentials


@pytest.mark.asyncio
@pytest.mark.parametrize("user", ["", "jo", "jo%2Fann"])
async def test_password_in_the_url_is_unescaped(serve, user):
    """Of the default user and of others; all that must be escaped may be in it."""
    port = serve("--requirepass", PASSWORD, *account("jo"), *account("jo/ann"))
    assert await locks(f"redis://{user}:{quote(PASSWORD, safe='')}@{HOST}:{port}")


def account(user, password=PASSWORD, *rights):
    """Server arguments that make an ACL user."""
    return ("--user", user, "on", ">" + password, "~*", "&*", *(rights or ("+@all",)))


@pytest.mark.asyncio
@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("url", ["redis://jo:wrong@{}", "redis://:wrong@{}", "redis://nobody:x@{}", "redis://{}"])
async def test_wrong_password_fails_at_once(url, protocol):
    """Waiting cannot help: raised without using up the wait, and every node is named."""
    with LocalCluster(3, server_args=["--requirepass", PASSWORD, *account("jo")]) as cluster:
        addresses = [f"{HOST}:{port}" for port in cluster.ports]
        nodes = [url.format(address) + f"?protocol={protocol}" for address in addresses]
        async with Redlock(nodes, wait=30) as redlock:
            started = time.monotonic()
            with pytest.raises(QuorumUnavailable) as caught:
                await redlock("x").acquire()
            assert time.monotonic() - started < AT_ONCE
        assert set(caught.value.nodes) == set(addresses)
        assert all(isinstance(cause, NodeDenied) for cause in caught.value.nodes.values())
        assert all(address in str(caught.value) for address in addresses)


@pytest.mark.asyncio
async def test_one_wrong_password_is_a_node_that_is_down():
    """A minority that refuses us is outvoted."""
    with LocalCluster(3, server_args=["--requirepass", PASSWORD]) as cluster:
        right = quote(PASSWORD, safe="")
        good, nodes = (
            [f"redis://:{word}@{HOST}:{port}" for word, port in zip(passwords, cluster.ports, strict=True)]
            for passwords in (3 * [right], ["wrong", right, right])
        )
        async with Redlock(good) as founder, founder("x"):
            pass
        async with Redlock(nodes, wait=1) as redlock, redlock("x") as lease:
            assert lease.valid
            assert [status.up for status in await redlock.status()] == [False, True, True]


@pytest.mark.asyncio
@pytest.mark.parametrize("protocol", [2, 3])
async def test_credential_provider(serve, protocol):
    """A client's provider is asked for each connection."""
    port = serve(*account("jo"))
    asked = []

    class Provider(CredentialProvider):
        def get_credentials(self):
            asked.append(1)
            return ("jo", PASSWORD)

    node = Redis(host=HOST, port=port, credential_provider=Provider(), protocol=protocol)
    async with Redlock([node]) as redlock:
        async with redlock("x"):
            assert len(asked) == 1
        ask(port, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        async with redlock("x"):
            assert len(asked) == 2


@pytest.mark.asyncio
async def test_credential_provider_of_redis_py(serve):
    """Its own provider, through a pool."""
    pool = ConnectionPool(
        host=HOST,
        port=serve(*account("jo")),
        credential_provider=UsernamePasswordCredentialProvider("jo", PASSWORD),
    )
    assert await locks(pool)


@pytest.mark.asyncio
async def test_credential_provider_that_fails_is_a_node_that_is_down(serve):
    """Whatever it raises: the node is named with it, it is asked again, and then the node is up."""
    port = serve(*account("jo"))

    class Provider(CredentialProvider):
        broken = True

        def get_credentials(self):
            if self.broken:
                raise KeyError("no secret of that name")
            return ("jo", PASSWORD)

    provider = Provider()
    async with Redlock([Redis(host=HOST, port=port, credential_provider=provider)]) as redlock:
        with pytest.raises(QuorumUnavailable, match="no secret of that name"):
            await redlock("x").acquire(wait=0.3)
        provider.broken = False
        async with redlock("x", wait=5) as lease:
            assert lease.valid


# Settings


@pytest.mark.asyncio
@pytest.mark.parametrize("where", ["/3", "?db=3", "/5?db=3"])
async def test_database_is_selected(serve, where):
    """In the path or in the query; the label says which."""
    port = serve()
    url = f"redis://{HOST}:{port}{where}"
    async with Redlock([url]) as redlock, redlock("x") as lease:
        assert ask(port, "GET", "x", db=3).decode() == lease.token
        assert f"{HOST}:{port}/3" in repr(redlock)
    assert ask(port, "EXISTS", "x", db=3) == 0
    assert await locks(url)


@pytest.mark.asyncio
async def test_database_that_does_not_exist_is_said(serve):
    """The server's own words."""
    async with Redlock([f"redis://{HOST}:{serve()}/4000"], wait=0) as redlock:
        with pytest.raises(QuorumUnavailable, match="DB index is out of range"):
            await redlock("x").acquire()


@pytest.mark.asyncio
async def test_protocol_2_works_by_polling(serve):
    """Nothing is pushed on such a connection, and a waiter gets the lock all the same."""
    port = serve()
    url = f"redis://{HOST}:{port}?protocol=2"
    assert not await locks(url)
    async with (
        Redlock([url], owner="a", retry_delay=0.05) as first,
        Redlock([url], owner="b", retry_delay=0.05) as second,
    ):
        lease = await first("x").acquire()
        waiting = asyncio.ensure_future(second("x").acquire(wait=5))
        await until(lambda: second._running.context.counters.attempts >= 2)
        assert clients(port) == {"redlock:a#1/1": "2", "redlock:b#1/1": "2"}
        await lease.release()
        await (await waiting).release()


@pytest.mark.asyncio
async def test_protocol_2_is_a_choice_of_a_client_too(serve):
    """But not what redis-py before 8 says unasked."""
    port = serve()
    assert not await locks(Redis.from_url(f"redis://{HOST}:{port}?protocol=2"))
    assert not await locks(ConnectionPool(host=HOST, port=port, protocol=2))
    assert await locks(Redis(host=HOST, port=port))


@pytest.mark.asyncio
@pytest.mark.parametrize("url", ["redis://{}", "redis://jo:secret@{}"])
async def test_server_without_hello_is_spoken_to_in_its_own_protocol(serve, url):
    """As before Redis 6, and behind some proxies: with a password and without."""
    port = serve("--rename-command", "HELLO", "", *account("jo", "secret"))
    assert not await locks(url.format(f"{HOST}:{port}"))


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "make",
    [
        lambda port: Redis(host=HOST, port=port),
        lambda port: Redis(host=HOST, port=port, decode_responses=True),
        lambda port: Redis(host=HOST, port=port, single_connection_client=True),
        lambda port: Redis(host=HOST, port=port, socket_timeout=9, health_check_interval=1),
        lambda port: Redis(connection_pool=BlockingConnectionPool(host=HOST, port=port, max_connections=1, timeout=1)),
        lambda port: Redis.from_url(f"redis://{HOST}:{port}", decode_responses=True, encoding="latin-1"),
        lambda port: ConnectionPool(host=HOST, port=port, decode_responses=True),
        lambda port: ConnectionPool.from_url(f"redis://{HOST}:{port}"),
        lambda port: BlockingConnectionPool.from_url(f"redis://{HOST}:{port}?timeout=3"),
    ],
    ids=["plain", "decoding", "single", "health", "blocking client", "from_url", "pool", "url pool", "blocking pool"],
)
async def test_settings_of_clients_and_pools_are_used(serve, make):
    """Its settings only: the client has no connection in use, and decodes nothing of ours."""
    node = make(serve())
    assert await locks(node)
    pool = getattr(node, "connection_pool", node)
    assert not pool._in_use_connections


@pytest.mark.asyncio
async def test_client_stays_usable_beside_the_lock(serve):
    """The application's own commands go on over its own connections."""
    async with contextlib.AsyncExitStack() as stack:
        client = Redis(host=HOST, port=serve(), decode_responses=True)
        stack.push_async_callback(client.aclose)
        async with Redlock([client]) as redlock, redlock("x") as lease:
            await client.set("guarded", "1")
            assert await client.get("x") == lease.token
        assert await client.get("guarded") == "1"
        assert await client.get("x") is None


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("query", "owner", "name"),
    [("", "web 1", "redlock:web_1#1/1"), ("?client_name=billing", "web 1", "billing"), ("", "Zoë", "redlock:Zo_#1/1")],
)
async def test_client_name_is_shown(serve, query, owner, name):
    """CLIENT LIST tells whose connection it is, and the client's quorum and number of nodes."""
    port = serve()
    async with Redlock([f"redis://{HOST}:{port}{query}"], owner=owner):
        assert clients(port) == {name: "3"}


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "settings",
    [
        {"retry": Retry(ConstantBackoff(0.01), 10)},
        {"retry": Retry(ConstantBackoff(0.01), 10), "retry_on_error": [ConnectionError, redis.ConnectionError]},
        {},
    ],
)
async def test_retries_stay_off(settings):
    """One attempt to connect is one attempt, whatever the client says and redis-py's defaults are."""
    connects = []

    async def hang_up(_reader, writer):
        connects.append(1)
        writer.close()

    async with listening(hang_up) as port:
        with pytest.raises(ConnectionError):
            await opened(Redis(host=HOST, port=port, **settings))
        assert len(connects) == 1


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "query",
    [
        "socket_timeout=5", "socket_connect_timeout=5", "max_connections=10", "health_check_interval=30",
        "retry_on_timeout=true", "socket_keepalive=true", "decode_responses=true", "encoding=latin-1",
        "socket_timeout=5&max_connections=10&health_check_interval=30&client_name=a&protocol=3&db=1",
    ],
)  # fmt: skip
async def test_url_options_are_accepted(serve, query):
    """All that redis-py's from_url takes."""
    assert await locks(f"redis://{HOST}:{serve()}?{query}")


@pytest.mark.parametrize("scheme", ["redis://localhost", "rediss://localhost", "unix:///run/redis.sock"])
def test_unknown_url_option_is_named(scheme):
    """Without showing the password."""
    with pytest.raises(ConfigurationError, match="socket_timeuot") as caught:
        Redlock([scheme.replace("://", "://jo:hidden@") + "?socket_timeuot=5"])
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize("query", ["socket_timeout=soon", "db=first", "protocol=new", "protocol=4"])
def test_url_option_with_an_impossible_value_is_named(query):
    """Found when the client is made, not when it is used."""
    with pytest.raises(ConfigurationError, match=query.partition("=")[0]) as caught:
        Redlock([f"redis://jo:hidden@localhost?{query}"])
    assert "hidden" not in str(caught.value)


# Sentinel


@pytest.fixture
def sentinel(serve, folder):
    """A sentinel over a master and its replica; its port, and both."""
    master = serve("--repl-diskless-sync-delay", "0")
    replica = serve("--replicaof", HOST, str(master))
    (port,) = free_ports(1)
    (folder / "sentinel.conf").write_text(
        f"port {port}\nbind {HOST}\ndir {folder}\n"
        f"sentinel monitor main {HOST} {master} 1\n"
        "sentinel down-after-milliseconds main 200\nsentinel failover-timeout main 2000\n",
        "utf-8",
    )
    binary = make_executable(find_server(), folder)
    spawner = Spawner()
    process = spawner.spawn(
        [os.fspath(binary), os.fspath(folder / "sentinel.conf"), "--sentinel"], folder, folder / "sentinel.log"
    )
    try:
        yield port, master, replica
    finally:
        process.kill()
        process.wait()
        spawner.close()


@pytest.fixture
def at_once(redis_version):
    """The arguments of SHUTDOWN that keep it from waiting for replicas. Before Redis 7, it never waits."""
    return ("NOW", "FORCE") if redis_version >= (7, 0) else ()


def is_primary(port):
    """Whether that server is one now. A Sentinel disconnects the clients of a server that it promotes."""
    try:
        return ask(port, "ROLE")[0] == b"master"
    except redis.ConnectionError:
        return False


def sentinel_knows_a_replica(port):
    """Whether it answers, and a failover would find somebody."""
    try:
        with redis.Redis(host=HOST, port=port) as client:
            (master,) = client.sentinel_masters().values()
            return master["num-slaves"] == 1 and client.sentinel_slaves("main")[0]["master-link-status"] == "ok"
    except redis.RedisError:
        return False


@pytest.mark.asyncio
async def test_master_behind_a_sentinel_is_found_again_after_a_failover(sentinel, at_once):
    """One node of several may be managed: each connect asks the sentinel who the master is."""
    port, master, replica = sentinel
    await until(lambda: sentinel_knows_a_replica(port), 10)
    watch = Sentinel([(HOST, port)], socket_timeout=2)
    try:
        async with Redlock([watch.master_for("main")], owner="seam", ttl=2) as redlock:
            assert "sentinel:main" in repr(redlock)
            async with redlock("x") as lease:
                assert ask(master, "GET", "x").decode() == lease.token
            with contextlib.suppress(redis.ConnectionError):
                ask(master, "SHUTDOWN", "NOSAVE", *at_once)
            await until(lambda: is_primary(replica), 10)
            await until(lambda: "redlock:seam#1/1" in names(replica), 10)
            async with redlock("x") as lease:
                assert ask(replica, "GET", "x").decode() == lease.token
    finally:
        await watch.sentinels[0].aclose()


@pytest.mark.asyncio
async def test_sentinel_that_does_not_know_the_master_is_said(sentinel):
    """The node is named with its service."""
    port, _, _ = sentinel
    await until(lambda: sentinel_knows_a_replica(port), 10)
    watch = Sentinel([(HOST, port)], socket_timeout=2)
    try:
        async with Redlock([watch.master_for("mian")], wait=0) as redlock:
            with pytest.raises(QuorumUnavailable, match="mian") as caught:
                await redlock("x").acquire()
        assert list(caught.value.nodes) == [f"sentinel:mian@{HOST}:{port}"]
    finally:
        await watch.sentinels[0].aclose()


def service(first, *others, name="main", options=""):
    """The URL of a service whose Sentinels have these ports."""
    sentinels = "".join(f"&sentinel={HOST}:{port}" for port in others)
    return f"redis+sentinel://{HOST}:{first}/{name}?protocol=3{sentinels}{options}"


@pytest.mark.asyncio
async def test_url_of_a_service_follows_a_failover(sentinel, at_once):
    """The Sentinels are asked at each connect, and the next one if the first is away."""
    port, master, replica = sentinel
    away, *_ = free_ports(1)
    await until(lambda: sentinel_knows_a_replica(port), 10)
    async with Redlock([service(away, port)], owner="seam", ttl=2) as redlock:
        assert f"sentinel:main@{HOST}:{away}" in repr(redlock)
        async with redlock("x") as lease:
            assert ask(master, "GET", "x").decode() == lease.token
        with contextlib.suppress(redis.ConnectionError):
            ask(master, "SHUTDOWN", "NOSAVE", *at_once)
        await until(lambda: is_primary(replica), 10)
        await until(lambda: "redlock:seam#1/1" in names(replica), 10)
        async with redlock("x", wait=30) as lease:
            assert ask(replica, "GET", "x").decode() == lease.token


@pytest.mark.asyncio
async def test_sentinel_that_hangs_leaves_time_for_the_next(sentinel):
    """It accepts the connection and says nothing."""
    port, _, _ = sentinel
    await until(lambda: sentinel_knows_a_replica(port), 10)
    with socket.create_server((HOST, 0)) as silent:
        async with Redlock([service(silent.getsockname()[1], port)], wait=AT_ONCE) as redlock:
            await (await redlock("x").acquire()).release()


@pytest.mark.asyncio
async def test_why_no_sentinel_names_a_primary_is_said(sentinel):
    """For each of them."""
    port, _, _ = sentinel
    (away,) = free_ports(1)
    await until(lambda: sentinel_knows_a_replica(port), 10)
    async with Redlock([service(port, away, name="mian")], wait=0) as redlock:
        with pytest.raises(QuorumUnavailable) as caught:
            await redlock("x").acquire()
    (why,) = map(str, caught.value.nodes.values())
    assert f"no Sentinel names a primary for 'mian' ({HOST}:{port} does not know that service; {HOST}:{away}: " in why


@pytest.mark.asyncio
async def test_sentinels_have_a_password_of_their_own(sentinel):
    """The primary's is not sent to them, and no error quotes either."""
    port, _, _ = sentinel
    await until(lambda: sentinel_knows_a_replica(port), 10)
    ask(port, "ACL", "SETUSER", "default", "resetpass", f">{PASSWORD}")
    async with Redlock([service(port, options=f"&sentinel_password={quote(PASSWORD, safe='')}")]) as redlock:
        await (await redlock("x").acquire()).release()
    for options in ("", "&sentinel_password=wrong-secret"):
        async with Redlock([service(port, options=options)], wait=0) as redlock:
            with pytest.raises(QuorumUnavailable, match="no Sentinel names a primary") as caught:
                await redlock("x").acquire()
            assert "secret" not in str(caught.value)


@pytest.mark.asyncio
async def test_sentinels_behind_tls(sentinel, certificates):
    """`rediss+sentinel` uses the TLS options of the primary, and checks the host name."""
    port, master, _ = sentinel
    await until(lambda: sentinel_knows_a_replica(port), 10)
    for name, refused in (("here", False), ("elsewhere", True)):
        async with tls_before(port, certificates, name) as secured:
            url = f"rediss+sentinel://{HOST}:{secured}/main?ssl_ca_certs={quote(str(certificates / 'ca.pem'))}"
            target = Target(url)
            asked = target._service.primary(target._ask_sentinel, 2.0)
            if refused:
                with pytest.raises(ConnectionError, match="certificate verify failed"):
                    await asked
            else:
                assert await asked == (HOST, master)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("redis+sentinel://here", "the name of the service is missing"),
        ("redis+sentinel:///main", "no host"),
        ("redis+sentinel://here/main/first", "its database must be a number, got 'first'"),
        ("redis+sentinel://here/main?sentinel=there:x", "a Sentinel is given as host:port, got 'there:x'"),
        ("redis+sentinel://here/main?sentinel=", "a Sentinel is given as host:port, got ''"),
        ("redis+sentinel://here/main?sentinel=jo:hidden%40there", "use sentinel_username= and sentinel_password="),
        ("redis+sentinel://here/main?sentinels=there", "sentinels"),
    ],
)
def test_malformed_url_of_a_service_is_explained(url, why):
    """Without the secrets in it."""
    with pytest.raises(ConfigurationError, match=re.escape(why)) as caught:
        Redlock([url])
    assert "hidden" not in str(caught.value)


def test_url_of_a_service_in_full():
    """Its parts, and what is for the primary only."""
    options = "sentinel=b&sentinel=[::1]:3&sentinel_username=jo&sentinel_password=two&sentinel=a:26379"
    target = Target(f"redis+sentinel://user:o%40ne@a/my%20service/2?client_name=me&{options}")
    assert (target.label, target._service.name) == ("sentinel:my service@a:26379/2", "my service")
    assert target._service.sentinels == (("a", 26379), ("b", 26379), ("::1", 3))
    settings = target._pool.connection_kwargs
    assert (settings["username"], settings["password"], settings["db"]) == ("user", "o@ne", 2)
    assert (target._service.username, target._service.password) == ("jo", "two")
    assert target.redact("one two o@ne") == f"one {target.redact('two')} {target.redact('o@ne')}"


# What is left behind: `nothing_left` collects after each test, and warnings are errors


@contextlib.asynccontextmanager
async def listening(behave):
    """A server that behaves like that; yields its port."""
    handlers = set()

    async def handle(reader, writer):
        handlers.add(asyncio.current_task())
        try:
            await behave(reader, writer)
        except OSError:
            pass
        finally:
            writer.transport.abort()

    server = await asyncio.start_server(handle, HOST, 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        if handlers:
            await asyncio.wait(handlers, timeout=5)


def answering(*replies):
    """Answer each thing that is sent with the next of these, then hang up."""

    async def behave(reader, writer):
        for reply in replies:
            await reader.read(65_536)
            writer.write(reply)
            await writer.drain()

    return behave


async def never_answering(reader, _writer):
    """Read and say nothing."""
    while await reader.read(65_536):
        pass


HELLO = b"%1\r\n$5\r\nproto\r\n:3\r\n"
HALF_WAY = {
    "hangs up at once": answering(),
    "hangs up after HELLO": answering(HELLO),
    "half a reply": answering(HELLO[:-5]),
    "refuses HELLO": answering(b"-ERR go away\r\n"),
    "refuses the name": answering(HELLO, b"-ERR no names here\r\n"),
    "loading": answering(b"-LOADING still at it\r\n"),
    "refuses the user": answering(b"-NOAUTH who are you\r\n"),
    "full": answering(b"-ERR max number of clients reached\r\n"),
    "no HELLO and no name": answering(b"-ERR unknown command 'HELLO'\r\n", b"-ERR unknown command 'CLIENT'\r\n"),
    "speaks HTTP": answering(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
    "answers something else": answering(b"+OK\r\n", b":7\r\n"),
    "never answers": never_answering,
}


@pytest.mark.share(3)
@pytest.mark.asyncio
@pytest.mark.parametrize("node", ["redis://{}", "redis://jo:hidden@{}/2", "redis://jo:hidden@{}?protocol=2"])
@pytest.mark.parametrize("behave", HALF_WAY.values(), ids=HALF_WAY)
async def test_handshake_that_fails_half_way_leaves_nothing_open(behave, node):
    """Neither on their side nor on ours, and no error of redis-py's comes through."""
    async with listening(behave) as port:
        async with Redlock([node.format(f"{HOST}:{port}")], wait=0.2, node_timeout=0.1) as redlock:
            with pytest.raises(QuorumUnavailable) as caught:
                await redlock("x").acquire()
        (cause,) = caught.value.nodes.values()
        assert not type(cause).__module__.startswith(("redis", "hiredis"))
        assert str(cause)
        assert "hidden" not in str(caught.value)
        await until(lambda: not open_connections_to(port))


async def resetting(reader, writer):
    """Read what is sent, then reset the connection."""
    await reader.read(65_536)
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


@pytest.mark.asyncio
async def test_a_reset_during_the_handshake_is_not_reported_as_never_retrieved(monkeypatch):
    """`asyncio` retrieves the error when its protocol is collected before the future, which is not always so."""
    monkeypatch.delattr(asyncio.StreamReaderProtocol, "__del__")
    async with listening(resetting) as port:
        for _ in range(5):
            with pytest.raises(ConnectionResetError):
                await Target(f"redis://{HOST}:{port}").open(asyncio.Protocol(), 1.0, hello=True)
    gc.collect()  # `nothing_left` looks for what `asyncio` has logged


def open_connections_to(port):
    """How many sockets of this process are connected to that port."""
    count = 0
    for path in tuple(Path("/dev/fd").iterdir()):
        with contextlib.suppress(OSError):  # not a socket, or not connected
            one = socket.socket(fileno=int(path.name))
            try:
                count += one.getpeername()[1:2] == (port,)
            finally:
                one.detach()
    return count


@pytest.mark.asyncio
@pytest.mark.parametrize("replies", [0, 1, 2], ids=["AUTH", "SELECT", "HELLO"])
async def test_handshake_that_is_cancelled_leaves_nothing_open(replies):
    """At whichever await it is."""
    stuck = asyncio.Event()

    async def behave(reader, writer):
        await answering(*[b"+OK\r\n"] * replies)(reader, writer)
        stuck.set()
        await never_answering(reader, writer)

    async with listening(behave) as port:
        opening = asyncio.ensure_future(opened(f"redis://jo:hidden@{HOST}:{port}/1", patience=30))
        await stuck.wait()
        await until(lambda: open_connections_to(port))
        opening.cancel()
        with pytest.raises((asyncio.CancelledError, ConnectionError)):
            await opening
        await until(lambda: not open_connections_to(port))


@pytest.mark.asyncio
@pytest.mark.parametrize("query", ["", "?protocol=2"])
async def test_cancellation_is_never_lost(serve, query):
    """At any step of the loop: asyncio.wait_for, which redis-py uses, loses some before Python 3.12."""
    port = serve(*account("jo", "secret"))
    for steps in range(200):
        opening = asyncio.ensure_future(opened(f"redis://jo:secret@{HOST}:{port}/1{query}"))
        for _ in range(steps):
            await asyncio.sleep(0)
        if opening.done():
            break
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
    assert steps > 5
    wire = await opening
    wire.close(ConnectionError("done"))
    await wire.wait_closed()
    await until(lambda: not open_connections_to(port))
    await until(lambda: not names(port))


def test_loop_that_ends_closes_the_connections(serve):
    """A client that nobody closed ends its connections before its loop is closed."""
    port = serve()

    async def use():
        redlock = Redlock([f"redis://{HOST}:{port}"])
        async with redlock("x"):
            pass
        return redlock

    redlock = asyncio.run(use())
    assert open_connections_to(port) == 0
    gc.collect()
    del redlock


def test_loop_that_ends_while_connecting_closes_the_connections():
    """Also those of handshakes that were under way."""

    async def use(port):
        redlock = Redlock([f"redis://{HOST}:{port}"])
        entering = asyncio.ensure_future(redlock("x").acquire())
        await until(lambda: open_connections_to(port))
        entering.cancel()
        await asyncio.wait([entering])
        return redlock

    with socket.create_server((HOST, 0)) as quiet:  # connecting succeeds, nothing answers
        port = quiet.getsockname()[1]
        redlock = asyncio.run(use(port))
        assert open_connections_to(port) == 0
        del redlock


@pytest.mark.asyncio
async def test_closed_client_leaves_no_connection(serve):
    """Not even half closed: the server has seen the end of each."""
    port = serve()
    async with Redlock([f"redis://{HOST}:{port}"], owner="seam") as redlock, redlock("x"):
        assert names(port) == ["redlock:seam#1/1"]
    assert open_connections_to(port) == 0
    await until(lambda: not names(port))


@pytest.mark.asyncio
async def test_client_closed_while_connecting_leaves_no_connection():
    """And whoever waited for it is told."""
    async with listening(never_answering) as port:
        redlock = Redlock([f"redis://{HOST}:{port}"])
        entering = asyncio.ensure_future(redlock("x").acquire(wait=0.5))
        await until(lambda: open_connections_to(port))
        await redlock.aclose()
        await until(lambda: open_connections_to(port) == 0)
        with pytest.raises(RedlockError):
            await entering
