"""`redis+sentinel://` URLs: the node is the primary of a service, which Sentinels name at each connect.

    redis+sentinel://user:password@sentinel1:26379/service/0?sentinel=sentinel2:26379&sentinel=sentinel3:26379

User, password, database and options are the primary's. The Sentinels have their own in `sentinel_username` and
`sentinel_password`. `rediss+sentinel` uses TLS for both.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

SCHEMES = {"redis+sentinel": "redis", "rediss+sentinel": "rediss"}
"""The URL schemes, and the scheme of the primary's own URL."""

PORT = 26379
"""The Sentinels' usual port."""

NO_SERVICE = "the name of the service is missing: redis+sentinel://host:26379/service"

_OWN = ("sentinel", "sentinel_username", "sentinel_password")


@dataclass(frozen=True, slots=True)
class Service:
    """The name of a service, and the Sentinels that know its primary."""

    name: str
    sentinels: tuple[tuple[str, int], ...]
    username: str | None = None
    password: str | None = None

    @property
    def address(self) -> str:
        """The node's name in messages."""
        return f"sentinel:{self.name}@{_show(*self.sentinels[0])}"

    async def primary(self, ask: Ask, within: float) -> tuple[str, int]:
        """Ask one Sentinel after another where the primary is; raise ConnectionError if none of them knows."""
        answers = []
        for host, port in self.sentinels:
            try:
                # A Sentinel that hangs must leave time for the next.
                async with asyncio.timeout(within / (len(self.sentinels) + 1)):
                    found = await ask(self, host, port)
            except TimeoutError:
                answers.append(f"{_show(host, port)} does not answer")
                continue
            except ConnectionError as exc:
                answers.append(f"{_show(host, port)}: {exc}")
                continue
            if found is not None:
                return found
            answers.append(f"{_show(host, port)} does not know that service")
        raise ConnectionError(f"no Sentinel names a primary for {self.name!r} ({'; '.join(answers)})")


class MalformedServiceError(ValueError):
    """A URL of a service cannot be used; the text contains no secret."""


def parse(url: str) -> tuple[str, Service | None]:
    """Return the URL of the service's primary, with the first Sentinel as its host, and the service.

    For any other URL, return it as it is, and None. Raise MalformedServiceError, or urllib's ValueError.
    """
    parts = urlsplit(url)
    if parts.scheme not in SCHEMES:
        return url, None
    service, _, database = parts.path.lstrip("/").partition("/")
    if not service:
        raise MalformedServiceError(NO_SERVICE)
    if database and not database.isdecimal():
        raise MalformedServiceError(f"its database must be a number, got {database!r}")
    options = parse_qsl(parts.query, keep_blank_values=True)
    own = {name: value for name, value in options if name in _OWN}
    sentinels = [_host(parts.netloc.rpartition("@")[2])] + [_host(value) for name, value in options if name == _OWN[0]]
    query = urlencode([(name, value) for name, value in options if name not in _OWN], quote_via=quote)
    plain = urlunsplit((SCHEMES[parts.scheme], parts.netloc, f"/{database}" if database else "", query, ""))
    username, password = own.get("sentinel_username"), own.get("sentinel_password")
    return plain, Service(unquote(service), tuple(dict.fromkeys(sentinels)), username, password)


def _show(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _host(text: str) -> tuple[str, int]:
    if "@" in text:
        raise MalformedServiceError("sentinel= takes no user: use sentinel_username= and sentinel_password=")
    try:
        parts = urlsplit(f"//{text}")
        if parts.hostname and not parts.path:
            return parts.hostname, parts.port or PORT
    except ValueError:
        pass  # a port that is no number
    raise MalformedServiceError(f"a Sentinel is given as host:port, got {text!r}")


Ask: TypeAlias = Callable[[Service, str, int], Awaitable[tuple[str, int] | None]]
"""Asks the Sentinel at that host and port; raises ConnectionError."""
