"""Opening a connection the way redis-py would: the seam to redis-py, and the only module that imports it.

redis-py parses URLs, does TLS, unix sockets, credential providers, Sentinel discovery and HELLO/AUTH/SELECT. After its
handshake our own protocol takes the transport over. Its retries stay off: a re-sent SET NX denies its own success.
"""

from __future__ import annotations

import asyncio
import re
from inspect import signature
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from ._errors import ConfigurationError, NodeDenied, NodeRefused, line, shown
from ._replies import said

if TYPE_CHECKING:  # importing redis takes longer than all the rest together, so it waits for the first Redlock
    from typing import TypeAlias

    from redis.asyncio import ConnectionPool, Redis
    from redis.asyncio.connection import AbstractConnection

    Source: TypeAlias = str | Redis | ConnectionPool
    """What a user may give as a node."""

KEEPALIVE = 30
"""Seconds of silence after which the kernel probes whether the peer is still there."""

# What a pool adds for its own bookkeeping, and what would change the bytes we read.
_NOT_OURS = (
    "decode_responses", "encoding", "encoding_errors", "encoder_class", "parser_class", "health_check_interval",
    "retry", "retry_on_error", "retry_on_timeout", "redis_connect_func", "event_dispatcher", "himport_registry",
    "legacy_responses", "maintenance_state", "maintenance_notification_hash", "maint_notifications_config",
    "maint_notifications_pool_handler", "oss_cluster_maint_notifications_handler", "orig_host_address",
    "orig_socket_timeout", "orig_socket_connect_timeout", "single_connection_client", "auto_close_connection_pool",
)  # fmt: skip


_HOST = re.compile(r"[a-zA-Z0-9.-]+:\d{1,5}")
"""What is given most often in place of a URL."""

_SEVERAL = re.compile(r"[\s,;]+(rediss?|unix)://")
"""Where a second URL begins, in what is to be one."""

_MALFORMED = "(a malformed URL)"


def hide_password(url: str) -> str:
    """A URL as it may be shown: what might be part of a password that should have been escaped is left out."""
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
    """One master's address and how to reach it."""

    def __init__(self, node: str | Redis | ConnectionPool) -> None:
        from redis import exceptions  # noqa: PLC0415 - see TYPE_CHECKING above

        self._pool = _pool_of(node)
        settings = self._pool.connection_kwargs
        if "path" in settings:
            self.address = str(settings["path"])
        elif "connection_pool" in settings:
            self.address = f"sentinel:{getattr(self._pool, 'service_name', '?')}"
        else:
            self.address = f"{settings.get('host', 'localhost')}:{settings.get('port', 6379)}"
        database = settings.get("db") or 0
        self.label = line(f"{self.address}/{database}" if database else self.address, 200)
        """What errors, logs and operators call it. Never holds a user or a password."""
        try:
            self._protocol = _protocol_for(node, settings.get("protocol"))
            self._connection("probe", 1.0)
        except (TypeError, ValueError, exceptions.RedisError) as exc:
            why = str(exc).replace("AbstractConnection.__init__() got an ", "")
            if "@" in why:  # perhaps the end of a password
                why = "there is something in its user or password that is not percent-encoded"
            msg = f"node {self.label} cannot be used with these settings: {line(why, 200)}"
            raise ConfigurationError(msg) from None

    def __repr__(self) -> str:
        return f"<Target {self.label}>"

    async def open(self, protocol: Any, client_name: str, within: float) -> bool:
        """Connect, shake hands and hand the transport to `protocol`; returns whether the server pushes (RESP3)."""
        from redis import exceptions  # noqa: PLC0415 - see TYPE_CHECKING above

        try:
            async with asyncio.timeout(within):
                try:
                    await self._hand_over(protocol, client_name, within)
                except exceptions.ResponseError as exc:
                    # Servers before 6.0 and some proxies have no HELLO.
                    if self._protocol == 2 or not str(exc).lower().startswith(("unknown command", "noproto")):  # noqa: PLR2004 - RESP2
                        raise
                    self._protocol = 2
                    await self._hand_over(protocol, client_name, within)
        except exceptions.NoPermissionError as exc:
            raise NodeDenied(
                f"{said(str(exc))} (the user's ACL lacks a right the library needs: docs/operations.md, Permissions)"
            ) from exc
        except (exceptions.AuthenticationError, exceptions.AuthorizationError) as exc:
            given = self._pool.connection_kwargs
            if given.get("password") or given.get("credential_provider"):
                msg = f"{said(str(exc))} (check the user and the password of {self.label})"
            else:  # redis-py drops the code and shows how HELLO is to be called
                msg = "NOAUTH: the server wants a password: put it in the node's URL"
            raise NodeDenied(msg) from exc
        except (TimeoutError, exceptions.TimeoutError) as exc:
            msg = f"no connection within {within:g} s"
            raise TimeoutError(msg) from exc
        except exceptions.ConnectionError as exc:
            msg, why = said(str(exc)), exc.__context__
            if isinstance(why, OSError) and str(why.strerror) not in msg:  # redis-py 5 shows a TLS error's number only
                msg = f"{msg} ({why})"
            raise ConnectionError(msg) from exc
        except exceptions.RedisError as exc:
            raise NodeRefused(said(str(exc))) from exc
        return self._protocol == 3  # noqa: PLR2004 - RESP3

    async def _hand_over(self, protocol: Any, client_name: str, within: float) -> None:
        from redis import exceptions  # noqa: PLC0415 - see TYPE_CHECKING above

        connection = self._connection(client_name, within)
        task = cast("asyncio.Task[object]", asyncio.current_task())
        cancels = task.cancelling()
        try:
            await connection.connect()  # type: ignore[no-untyped-call] # untyped in redis-py 8
            _check_cancelled(task, cancels)
        except BaseException as exc:
            _abandon(connection)
            _check_cancelled(task, cancels)
            if isinstance(exc, Exception) and not isinstance(exc, (OSError, exceptions.RedisError)):
                # A credential provider's own error, or redis-py stumbling over an answer it did not expect.
                msg = said(f"{type(exc).__name__}: {exc}")
                raise ConnectionError(msg) from exc
            raise
        # From here on redis-py's object must neither read from the transport nor close it.
        writer = cast("asyncio.StreamWriter", connection._writer)  # noqa: SLF001 - the seam; tests/redis/test_seam.py
        connection._reader = connection._writer = None  # noqa: SLF001 - the seam
        protocol.keep_alive = writer  # a StreamWriter closes its transport when it is collected
        writer.transport.set_protocol(protocol)
        protocol.connection_made(writer.transport)

    def _connection(self, client_name: str, within: float) -> AbstractConnection:
        settings = {k: v for k, v in self._pool.connection_kwargs.items() if k not in _NOT_OURS}
        # No socket_timeout: redis-py would send with asyncio.wait_for, which loses cancellations before Python 3.12.
        settings |= {"protocol": self._protocol, "socket_timeout": None, "socket_connect_timeout": within}
        if not settings.get("client_name"):
            settings["client_name"] = client_name
        if "path" not in settings:
            settings["socket_keepalive"] = True
            settings.setdefault("socket_keepalive_options", _keepalive_options())
        return self._pool.connection_class(**settings)


def _pool_of(node: object) -> ConnectionPool:
    from redis.asyncio import ConnectionPool, Redis, RedisCluster  # noqa: PLC0415 - see TYPE_CHECKING above

    if isinstance(node, str):
        why = broken = _broken(node)
        try:
            if not broken:
                return ConnectionPool.from_url(node)
        except (ValueError, TypeError) as exc:
            why = str(exc)
        # Raised out here, for redis-py's own error may quote the password: not even as a hidden context is it kept.
        if why.startswith("Invalid value for"):  # this one names the option only
            msg = f"node {shown(hide_password(node))} cannot be used: {line(why, 200)}"
        else:
            msg = (
                f"not a Redis URL: {shown(hide_password(node))}{f' ({broken})' if broken else ''}; "
                "one looks like redis://host:6379/0, rediss://user:secret@host:6380 or unix:///run/redis.sock"
            )
        raise ConfigurationError(msg)
    if isinstance(node, RedisCluster):
        msg = "a RedisCluster is one system, not an independent master: give N standalone masters"
        raise ConfigurationError(msg)
    if isinstance(node, Redis):
        return node.connection_pool
    if isinstance(node, ConnectionPool):
        return node
    msg = f"a node is a URL, a redis.asyncio.Redis or its pool, not {type(node).__module__}.{type(node).__name__}"
    raise ConfigurationError(msg)


def _broken(url: str) -> str:
    """What redis-py would read as something else than was meant."""
    if _SEVERAL.search(url):
        return "it is several: give separate URLs, one each; Redlock.from_env() reads those of REDLOCK_NODES"
    scheme, found, rest = url.partition("://")
    authority = rest.partition("/")[0].partition("?")[0].partition("#")[0]
    if not found or (scheme in {"redis", "rediss"} and rest.startswith("/")):
        return "no host"  # it would take the one on this machine
    if scheme == "unix" and "/" not in rest.partition("?")[0]:
        return "no path"
    if "@" in rest.removeprefix(authority):
        # It would take what stands before for a port, or for a socket's path, which is shown.
        return "a user or password with / ? # in it that is not percent-encoded"
    port = authority.rpartition("@")[2].rpartition("]")[2].partition(":")[2]
    if scheme != "unix" and port and not (port.isdecimal() and int(port) <= 65_535):  # noqa: PLR2004 - the largest there is
        return "its port is no number up to 65535"
    return ""


def _protocol_for(node: object, wanted: object) -> int:
    from redis.asyncio import Redis  # noqa: PLC0415 - see TYPE_CHECKING above

    if wanted not in {None, "", "2", "3", 2, 3}:
        msg = f"protocol is 2 or 3, not {shown(wanted)}"
        raise ValueError(msg)
    # Before redis-py 8 every client says 2, unasked: that is how it decodes replies, and no reason for us to poll.
    unasked = signature(Redis.__init__).parameters["protocol"].default
    if not wanted or (isinstance(node, Redis) and wanted == unasked):
        return 3
    return int(str(wanted))


def _keepalive_options() -> dict[int, int]:
    import socket  # noqa: PLC0415 - rarely needed

    wanted = {"TCP_KEEPIDLE": KEEPALIVE, "TCP_KEEPINTVL": KEEPALIVE // 3, "TCP_KEEPCNT": 3}
    return {getattr(socket, name): value for name, value in wanted.items() if hasattr(socket, name)}


def _check_cancelled(task: asyncio.Task[object], before: int) -> None:
    # Discovery through a Sentinel's own client, and a credential provider, may still lose one.
    if task.cancelling() > before:
        raise asyncio.CancelledError


def _abandon(connection: AbstractConnection) -> None:
    # Its own disconnect() is a coroutine, and this runs while one is being cancelled.
    writer = connection._writer  # noqa: SLF001 - the seam
    connection._reader = connection._writer = None  # noqa: SLF001 - the seam
    if writer is not None:
        writer.transport.abort()
