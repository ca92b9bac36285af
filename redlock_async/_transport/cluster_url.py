"""`redis+cluster://` URLs: a whole Redis or Valkey Cluster is one node.

    redis+cluster://user:password@host1:6379?startup=host2:6379&startup=host3:6379

Any server of the cluster can be named; the others are the `startup` servers, which are asked for the shards when the
first one does not answer. User, password and options are those of all servers. `rediss+cluster` uses TLS.
"""

from __future__ import annotations

from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from .sentinel import MalformedServiceError

SCHEMES = {"redis+cluster": "redis", "rediss+cluster": "rediss"}
"""The URL schemes, and the scheme of one server's own URL."""

PORT = 6379
"""The servers' usual port."""

_OWN = "startup"

Seeds = tuple[tuple[str, int], ...]
"""Servers of a cluster, by host and port."""


def parse_cluster(url: str) -> tuple[str, Seeds]:
    """Return the URL of the first server, and the servers that the URL names.

    For any other URL, return it as it is, and none. Raise MalformedServiceError, or urllib's ValueError.
    """
    parts = urlsplit(url)
    if parts.scheme not in SCHEMES:
        return url, ()
    if parts.path.strip("/") not in {"", "0"}:
        raise MalformedServiceError("a cluster has only database 0, so the URL has none")
    options = parse_qsl(parts.query, keep_blank_values=True)
    seeds = [_server(parts.netloc.rpartition("@")[2]), *(_server(value) for name, value in options if name == _OWN)]
    query = urlencode([(name, value) for name, value in options if name != _OWN], quote_via=quote)
    return urlunsplit((SCHEMES[parts.scheme], parts.netloc, "", query, "")), tuple(dict.fromkeys(seeds))


def show(host: str, port: int) -> str:
    """Return a server's address as it appears in messages."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _server(text: str) -> tuple[str, int]:
    if "@" in text:
        raise MalformedServiceError("startup= takes no user: all servers of a cluster have the same")
    try:
        parts = urlsplit(f"//{text}")
        if parts.hostname and not parts.path:
            return parts.hostname, parts.port or PORT
    except ValueError:
        pass  # a port that is no number
    raise MalformedServiceError(f"a server is given as host:port, got {text!r}")
