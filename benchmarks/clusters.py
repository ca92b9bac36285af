"""Where the masters are: started here, in the compose file, or given by URL."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from urllib.parse import urlsplit

COMPOSE = tuple(f"redis://127.0.0.1:{port}" for port in range(6391, 6396))
PATIENCE = 2.0


class NoCluster(Exception):  # noqa: N818 - reads as what it says
    """There are no servers to measure on; says what to do."""


@contextmanager
def cluster(choice: str) -> Iterator[list[str]]:
    """The URLs of the masters."""
    if choice == "embedded":
        from redlock_async.testing import LocalCluster  # noqa: PLC0415 - compose needs no server binary

        with LocalCluster(nodes=5) as local:
            yield local.urls
    elif choice == "compose":
        _check(COMPOSE, "start them with `docker compose up -d --wait`, or use --cluster embedded")
        yield list(COMPOSE)
    else:
        urls = [url.strip() for url in choice.split(",") if url.strip()]
        _check(urls, "--cluster is embedded, compose, or URLs like redis://host:6379, separated by commas")
        yield urls


def _check(urls: Sequence[str], advice: str) -> None:
    silent = [url for url in urls if not _answers(url)]
    if silent or not urls:
        raise NoCluster(f"no Redis or Valkey answers at {', '.join(silent) or 'no URL at all'}: {advice}")


def _answers(url: str) -> bool:
    try:
        parts = urlsplit(url)
        with socket.create_connection((parts.hostname, parts.port or 6379), PATIENCE) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(64)[:1] in {b"+", b"-"}
    except (OSError, ValueError):
        return False
