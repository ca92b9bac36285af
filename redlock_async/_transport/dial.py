"""Opening a connection through redis-py: the only module that imports it.

redis-py parses URLs and handles TLS, unix sockets, credential providers, Sentinel discovery, AUTH and SELECT. The
password is sent with AUTH and never with HELLO, which many proxies lack, and echo. Commands that a server can do
without follow later: `handshake`. Then our own protocol takes over the transport. redis-py's retries stay off: a SET NX
that is sent twice would be refused by its own first copy.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from inspect import signature
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from redlock_async._rules.redaction import Redactor, scrub
from redlock_async._rules.replies import REMEDIES, may_be_missing, sanitize
from redlock_async.errors import ConfigurationError, NodeDenied, NodeRefused, one_line, short_repr

from .sentinel import SCHEMES, MalformedServiceError, Service, parse

if TYPE_CHECKING:  # importing redis takes longer than importing all the rest, so it is deferred to the first Redlock
    from typing import TypeAlias

    from redis.asyncio import ConnectionPool, Redis
    from redis.asyncio.connection import AbstractConnection

    Source: TypeAlias = str | Redis | ConnectionPool
    """The types that users may pass as a node."""

KEEPALIVE = 30
"""Seconds of silence after which the kernel probes the peer."""

LONGEST_HANDSHAKE = 256 * 1024
"""Maximum bytes that a server may send during redis-py's handshake. The reply to HELLO is the longest, with a few
hundred bytes and about 150 for each module. After the handshake `connection.LARGEST_REPLY` applies."""

_NO_TLS = {"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG", "UNEXPECTED_EOF_WHILE_READING"}
"""OpenSSL's reasons when the peer replies to a TLS handshake with something else."""

# Settings that a pool adds for its own bookkeeping, and settings that would change the bytes we read.
_NOT_OURS = (
    "decode_responses", "encoding", "encoding_errors", "encoder_class", "parser_class", "health_check_interval",
    "retry", "retry_on_error", "retry_on_timeout", "redis_connect_func", "event_dispatcher", "himport_registry",
    "legacy_responses", "maintenance_state", "maintenance_notification_hash", "maint_notifications_config",
    "maint_notifications_pool_handler", "oss_cluster_maint_notifications_handler", "orig_host_address",
    "orig_socket_timeout", "orig_socket_connect_timeout", "single_connection_client", "auto_close_connection_pool",
)  # fmt: skip


RESP3 = 3

_HOST = re.compile(r"[a-zA-Z0-9.-]+:\d{1,5}")
"""host:port, the most common mistake in place of a URL."""

NO_PASSWORD = re.compile("without any password configured|no (?:username-)?password(?: pair)? is set")
"""The error for AUTH of servers and proxies that need no password."""

_SEVERAL = re.compile(r"[\s,;]+(rediss?|rediss?\+sentinel|unix)://")
"""The start of a second URL in a text that should be one URL."""

_MALFORMED = "(a malformed URL)"


def hide_password(url: str) -> str:
    """Return a URL that is safe to show: without user, password, and text that may be part of an unescaped password."""
    scheme, colon, rest = url.partition("://")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return f"{scheme}://..." if colon else _MALFORMED
    if not colon and _HOST.fullmatch(url):
        return url
    behind = rest.removeprefix(parts.netloc)
    if not colon or "@" in behind:
        return f"{scheme}://..." if colon else _MALFORMED
    user = "***@" if "@" in parts.netloc else ""
    return f"{scheme}://{user}{parts.hostname or ''}{'' if port is None else f':{port}'}{parts.path}"


class Target:
    """The address of one node, and how to connect to it."""

    def __init__(self, node: str | Redis | ConnectionPool) -> None:
        from redis import exceptions  # noqa: PLC0415 - see TYPE_CHECKING above

        self._pool, self._service = _pool_of(node)
        settings = self._pool.connection_kwargs
        if "path" in settings:
            self.address = str(settings["path"])
        elif self._service is not None:
            self.address = self._service.address
        else:
            self.address = f"{settings.get('host', 'localhost')}:{settings.get('port', 6379)}"
        database = settings.get("db") or 0
        self.label = one_line(f"{self.address}/{database}" if database else self.address, 200)
        """The node's name in errors, logs and operator output. It never contains a user or a password."""
        self.redact = Redactor(_secrets_of(self._pool, self._service))
        """Removes the secrets of this node from a text."""
        self.client_name: str | None = settings.get("client_name") or None
        """The user's name for the connections, as CLIENT LIST shows it; None for the library's own."""
        self._tls = _tls_of(node, self._pool)
        try:
            self._resp3 = _wants_resp3(node, settings.get("protocol"))
            self._connection(1.0)
        except (TypeError, ValueError, exceptions.RedisError) as exc:
            why = str(exc).replace("AbstractConnection.__init__() got an ", "")
            if "@" in why:  # it may contain the end of a password
                why = "its user or password contains a character that must be percent-encoded"
            msg = f"node {self.label} cannot be used with these settings: {one_line(why, 200)}"
            raise ConfigurationError(msg) from None

    def __repr__(self) -> str:
        return f"<Target {self.label}>"

    async def open(self, protocol: Any, within: float, *, hello: bool) -> bool | None:
        """Connect, log in and pass the transport to `protocol`; with `hello`, try to switch to RESP3 before.

        Return whether the server switched; None if it was not asked, because the user or the caller wants RESP2.
        Raise ConnectionResetError if the server closes the connection on HELLO, else NodeDenied, NodeRefused,
        TimeoutError or ConnectionError. No message contains a secret.
        """
        from redis import exceptions  # noqa: PLC0415 - see TYPE_CHECKING above

        try:
            # A little less than the caller's own timeout, whose error could not say what took too long.
            async with asyncio.timeout(0.95 * within):
                return await self._hand_over(protocol, within, hello=hello and self._resp3)
        except (TimeoutError, exceptions.RedisError) as exc:
            fault = self._fault(exc, within)
        raise fault  # here, and not above: redis-py's error would become the context, and it quotes the server

    def _fault(self, exc: Exception, within: float) -> Exception:
        """Return this library's exception for one of redis-py's."""
        from redis import exceptions  # noqa: PLC0415 - see TYPE_CHECKING above

        if isinstance(exc, exceptions.NoPermissionError):
            return NodeDenied(f"{self._said(exc)} ({REMEDIES['NOPERM']})")
        if isinstance(exc, (exceptions.AuthenticationError, exceptions.AuthorizationError)):
            given = self._pool.connection_kwargs
            if given.get("password") or given.get("credential_provider"):
                return NodeDenied(f"{self._said(exc)} (check the user and the password of {self.label})")
            return NodeDenied(f"NOAUTH: {REMEDIES['NOAUTH']}")  # redis-py's own text only explains HELLO
        if isinstance(exc, (TimeoutError, exceptions.TimeoutError)):
            hint = "" if self._tls is None else ". If the server does not use TLS, use a redis:// URL"
            return TimeoutError(f"no connection within {within:g} s{hint}")
        if isinstance(exc, exceptions.ConnectionError):
            return ConnectionError(self._failed(exc))
        return NodeRefused(self._said(exc))

    def _said(self, exc: BaseException) -> str:
        """Return the text of an exception, which may quote the server, in a form that is safe to show."""
        return sanitize(self.redact(str(exc)))

    def _failed(self, exc: Exception) -> str:
        """Return the message for a connection that could not be opened."""
        message, why = self._said(exc), exc.__context__
        if isinstance(why, OSError) and str(why.strerror) not in message:  # redis-py 5 only shows a TLS error's number
            message = f"{message} ({self._said(why)})"
        if self._tls is not None and (isinstance(why, ConnectionResetError) or getattr(why, "reason", None) in _NO_TLS):
            return f"the server did not answer with TLS. If it does not use TLS, use a redis:// URL ({message})"
        return message

    async def _hand_over(self, protocol: Any, within: float, *, hello: bool) -> bool | None:
        from redis import exceptions  # noqa: PLC0415 - see TYPE_CHECKING above

        primary = None
        if self._service is not None and "connection_pool" not in self._pool.connection_kwargs:
            primary = await self._service.primary(self._ask_sentinel, within)
        connection = self._connection(within, primary)
        opened: asyncio.StreamWriter | None = None
        pushes: bool | None = None

        async def shake_hands() -> None:
            nonlocal opened, pushes
            opened = connection._writer  # noqa: SLF001 - the seam
            _limit_bytes(connection)
            await _log_in(connection)
            if hello:
                pushes = await _say_hello(connection)

        _replace_handshake(connection, shake_hands)
        task = cast("asyncio.Task[object]", asyncio.current_task())
        cancels = task.cancelling()
        try:
            await connection.connect()  # type: ignore[no-untyped-call] # untyped in redis-py 8
            _check_cancelled(task, cancels)
        except BaseException as exc:
            _abandon(connection)
            if opened is not None:
                _retrieve_error(opened)
            _check_cancelled(task, cancels)
            if isinstance(exc, Exception) and not isinstance(exc, (OSError, exceptions.RedisError)):
                # An error of a credential provider, or of redis-py itself on an unexpected reply.
                scrub(exc, self.redact)
                msg = f"{type(exc).__name__}: {self._said(exc)}"
                raise ConnectionError(msg) from exc
            raise
        # From now on redis-py's connection object must neither read from the transport nor close it.
        writer = cast("asyncio.StreamWriter", connection._writer)  # noqa: SLF001 - the seam; tests/redis/test_seam.py
        connection._reader = connection._writer = None  # noqa: SLF001 - the seam
        protocol.keep(writer)  # a StreamWriter closes its transport when it is collected
        writer.transport.set_protocol(protocol)
        protocol.connection_made(writer.transport)
        return pushes

    async def _ask_sentinel(self, service: Service, host: str, port: int) -> tuple[str, int] | None:
        """Ask one Sentinel for the primary, on a connection of its own, because a client may change its loop."""
        from redis import exceptions  # noqa: PLC0415 - see TYPE_CHECKING above
        from redis.asyncio import Redis  # noqa: PLC0415 - see TYPE_CHECKING above
        from redis.asyncio.retry import Retry  # noqa: PLC0415 - see TYPE_CHECKING above
        from redis.backoff import NoBackoff  # noqa: PLC0415 - see TYPE_CHECKING above

        settings: dict[str, Any] = {"username": service.username, "password": service.password}
        if self._tls is not None:
            given = self._pool.connection_kwargs
            settings |= {"ssl": True, **{name: given[name] for name in given if name.startswith("ssl_")}, **self._tls}
        # No socket_timeout, as below.
        settings |= {"decode_responses": True, "socket_timeout": None, "retry": Retry(NoBackoff(), 0)}
        client = Redis(host=host, port=port, **settings)
        try:
            found = await client.sentinel_get_master_addr_by_name(service.name)
        except exceptions.RedisError as exc:
            raise ConnectionError(self._failed(exc)) from None
        finally:
            await client.aclose()
        return (str(found[0]), int(found[1])) if isinstance(found, tuple) else None

    def _connection(self, within: float, primary: tuple[str, int] | None = None) -> AbstractConnection:
        settings = {k: v for k, v in self._pool.connection_kwargs.items() if k not in _NOT_OURS}
        # No socket_timeout: redis-py would send with asyncio.wait_for, which loses cancellations before Python 3.12.
        settings |= self._tls or {}
        settings |= {"protocol": 2, "socket_timeout": None, "socket_connect_timeout": within}
        if provider := settings.get("credential_provider"):
            settings["credential_provider"] = _Remembering(provider, self.redact)
        if primary is not None:
            settings["host"], settings["port"] = primary
        if "path" not in settings:
            settings["socket_keepalive"] = True
            settings.setdefault("socket_keepalive_options", _keepalive_options())
        connection = self._pool.connection_class(**settings)
        # redis-py would send these in its handshake, and a server that forbids the first would be lost.
        for name in ("client_name", "lib_name", "lib_version", "driver_info"):
            setattr(connection, name, None)
        return connection


class _Remembering:
    """The user's credential provider; what it returns is remembered as secret."""

    def __init__(self, provider: Any, redact: Redactor) -> None:
        self._provider = provider
        self._redact = redact

    def get_credentials(self) -> Any:
        return self._remember(self._provider.get_credentials())

    async def get_credentials_async(self) -> Any:
        return self._remember(await self._provider.get_credentials_async())

    def _remember(self, credentials: Any) -> Any:
        self._redact.add(credentials[-1])  # a user and a password, or a password alone
        return credentials


def _secrets_of(pool: ConnectionPool, service: Service | None) -> Iterator[object]:
    """Yield every secret in the settings, of the server's and of its Sentinels' connections."""
    if service is not None:
        yield service.password
    sentinels = getattr(getattr(pool, "sentinel_manager", None), "sentinels", ())
    for each in (pool, *(sentinel.connection_pool for sentinel in sentinels)):
        yield from (each.connection_kwargs.get(name) for name in ("password", "ssl_password"))


async def _log_in(connection: AbstractConnection) -> None:
    """Do redis-py's own handshake: AUTH and SELECT."""
    from redis import exceptions  # noqa: PLC0415 - see TYPE_CHECKING above

    try:
        await connection.on_connect()
    except exceptions.AuthenticationError as exc:
        if NO_PASSWORD.search(str(exc)) is None:
            raise
        connection.username = connection.password = connection.credential_provider = None
        await connection.on_connect()


async def _say_hello(connection: AbstractConnection) -> bool:
    """Ask the server to switch to RESP3; return whether it did. Raise ConnectionResetError if it hangs up instead."""
    from redis import exceptions  # noqa: PLC0415 - see TYPE_CHECKING above

    reader = cast("asyncio.StreamReader", connection._reader)  # noqa: SLF001 - the seam
    try:
        await connection.send_command("HELLO", RESP3, check_health=False)
        reply = await connection.read_response()
    except exceptions.ConnectionError as exc:
        closed = reader.at_eof() or isinstance(reader.exception(), ConnectionResetError)
        if closed and type(exc) is exceptions.ConnectionError:  # a subclass is something that the server has said
            raise ConnectionResetError("the server closed the connection on HELLO") from None
        raise
    except exceptions.ResponseError as exc:
        if isinstance(exc, exceptions.NoPermissionError) or may_be_missing(str(exc)):
            return False  # servers before 6.0, and many proxies
        raise
    return isinstance(reply, dict) and reply.get(b"proto") == RESP3


def _limit_bytes(connection: AbstractConnection) -> None:
    """Limit the bytes that the server may send until our own protocol takes over."""
    reader, writer = cast("Any", connection)._reader, cast("Any", connection)._writer  # noqa: SLF001 - the seam
    feed, left = reader.feed_data, LONGEST_HANDSHAKE

    def feed_data(data: bytes) -> None:
        nonlocal left
        left -= len(data)
        if left >= 0:
            feed(data)
        else:
            reader.set_exception(ConnectionError(f"the server sent over {LONGEST_HANDSHAKE} bytes while connecting"))
            writer.transport.abort()

    reader.feed_data = feed_data


def _replace_handshake(connection: AbstractConnection, shake_hands: Callable[[], Awaitable[None]]) -> None:
    """Have redis-py call that instead of its own handshake, once.

    Not by `redis_connect_func`: since Python 3.14 redis-py's test of what that is gives a DeprecationWarning.
    """
    method = "on_connect_check_health" if hasattr(connection, "on_connect_check_health") else "on_connect"

    async def once(**_options: object) -> None:
        delattr(connection, method)
        await shake_hands()

    setattr(connection, method, once)


def _pool_of(node: object) -> tuple[ConnectionPool, Service | None]:
    from redis.asyncio import ConnectionPool, Redis, RedisCluster  # noqa: PLC0415 - see TYPE_CHECKING above

    if isinstance(node, str):
        why = broken = _broken(node)
        try:
            if not broken:
                url, service = parse(node)
                return ConnectionPool.from_url(url), service
        except MalformedServiceError as exc:
            broken = str(exc)
        except (ValueError, TypeError) as exc:
            why = str(exc)
        # Raised outside the handler: redis-py's error may quote the password, so it must not become the context either.
        if why.startswith("Invalid value for"):  # this message only names the option
            msg = f"node {short_repr(hide_password(node))} cannot be used: {one_line(why, 200)}"
        else:
            msg = (
                f"not a Redis URL: {short_repr(hide_password(node))}{f' ({broken})' if broken else ''}; "
                "one looks like redis://host:6379/0, rediss://user:secret@host:6380 or unix:///run/redis.sock"
            )
        raise ConfigurationError(msg)
    if isinstance(node, RedisCluster):
        msg = "a RedisCluster cannot be a node: use independent standalone servers"
        raise ConfigurationError(msg)
    if isinstance(node, Redis):
        node = node.connection_pool
    if isinstance(node, ConnectionPool):
        return node, _managed(node)
    kind = type(node)
    msg = f"a node must be a URL, a redis.asyncio.Redis or its ConnectionPool, got {kind.__module__}.{kind.__name__}"
    raise ConfigurationError(msg)


def _managed(pool: ConnectionPool) -> Service | None:
    """Return the service of a pool that redis-py's Sentinel has made; None for any other."""
    manager = getattr(pool, "sentinel_manager", None)
    if manager is None:
        return None
    given = [sentinel.connection_pool.connection_kwargs for sentinel in manager.sentinels]
    return Service(str(getattr(pool, "service_name", "?")), tuple((each["host"], each["port"]) for each in given))


def _broken(url: str) -> str:
    """Return what is wrong with a URL that redis-py would accept but misread, or an empty text."""
    if _SEVERAL.search(url):
        return "it contains several URLs: pass a list with one URL per node; Redlock.from_env() reads REDLOCK_NODES"
    scheme, found, rest = url.partition("://")
    authority = rest.partition("/")[0].partition("?")[0].partition("#")[0]
    if not found or (scheme in {"redis", "rediss", *SCHEMES} and rest.startswith("/")):
        return "no host"  # redis-py would connect to localhost
    if scheme == "unix" and "/" not in rest.partition("?")[0]:
        return "no path"
    if "@" in rest.removeprefix(authority):
        # redis-py would read the text before it as a port, or as a socket's path, which is shown.
        return "/ ? or # in a user or password must be percent-encoded"
    port = authority.rpartition("@")[2].rpartition("]")[2].partition(":")[2]
    if scheme != "unix" and port and not (port.isdecimal() and int(port) <= 65_535):  # noqa: PLR2004 - the largest there is
        return "its port must be a number up to 65535"
    return ""


def _tls_of(node: object, pool: ConnectionPool) -> dict[str, Any] | None:
    """Return the settings to add to a TLS connection so that host names are checked; None without TLS.

    Before redis-py 6 they are only checked with `ssl_check_hostname=True`. A `Redis` object of these versions has False
    there whether the user passed it or not, so False counts as not passed.
    """
    from redis.asyncio import Redis, SSLConnection  # noqa: PLC0415 - see TYPE_CHECKING above

    if not (isinstance(pool.connection_class, type) and issubclass(pool.connection_class, SSLConnection)):
        return None
    settings = pool.connection_kwargs
    check, certificates = settings.get("ssl_check_hostname"), settings.get("ssl_cert_reqs", "required")
    # Only the constructor sets all options; an object made from a URL has only those in the URL.
    unasked = (
        isinstance(node, Redis)
        and "ssl_ca_data" in settings
        and signature(Redis.__init__).parameters["ssl_check_hostname"].default is False
    )
    if certificates in {None, "none", 0} or not (check is None or unasked):
        return {}
    return {"ssl_check_hostname": True}


def _wants_resp3(node: object, wanted: object) -> bool:
    from redis.asyncio import Redis  # noqa: PLC0415 - see TYPE_CHECKING above

    if wanted not in {None, "", "2", "3", 2, 3}:
        msg = f"protocol must be 2 or 3, got {short_repr(wanted)}"
        raise ValueError(msg)
    # Before redis-py 8 every client has protocol 2 by default, for its own decoding: no reason to do without RESP3.
    unasked = signature(Redis.__init__).parameters["protocol"].default
    return not wanted or (isinstance(node, Redis) and wanted == unasked) or int(str(wanted)) == RESP3


def _keepalive_options() -> dict[int, int]:
    import socket  # noqa: PLC0415 - rarely needed

    wanted = {"TCP_KEEPIDLE": KEEPALIVE, "TCP_KEEPINTVL": KEEPALIVE // 3, "TCP_KEEPCNT": 3}
    return {getattr(socket, name): value for name, value in wanted.items() if hasattr(socket, name)}


def _check_cancelled(task: asyncio.Task[object], before: int) -> None:
    # The client of a Sentinel and a credential provider may swallow a cancellation.
    if task.cancelling() > before:
        raise asyncio.CancelledError


def _abandon(connection: AbstractConnection) -> None:
    # Its own disconnect() is a coroutine, and this runs during a cancellation.
    writer = connection._writer  # noqa: SLF001 - the seam
    connection._reader = connection._writer = None  # noqa: SLF001 - the seam
    if writer is not None:
        writer.transport.abort()


def _retrieve_error(writer: asyncio.StreamWriter) -> None:
    """Retrieve the error of a connection that was reset, which asyncio otherwise may report when it is collected."""
    closed = writer.wait_closed()
    with suppress(OSError, StopIteration):
        closed.send(None)
    closed.close()
