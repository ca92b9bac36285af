"""Where the masters are: started here, in the compose file, or given by URL."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from .scenarios import Setting

if TYPE_CHECKING:
    # Not at run time: compose and URLs need no server binary.
    from redlock_async.testing import LocalCluster

COMPOSE = tuple(f"redis://127.0.0.1:{port}" for port in range(6391, 6396))
COMPOSE_FILE = Path(__file__).resolve().parents[1] / "docker-compose.yml"
PATIENCE = 2.0
ENGINE_PATIENCE = 15.0
START_PATIENCE = 300.0
"""Seconds, for images may have to be fetched first."""

INSTEAD = "or use --cluster embedded, which needs no engine"


class NoCluster(Exception):  # noqa: N818 - reads as what it says
    """There are no servers to measure on; says what to do."""


@contextmanager
def cluster(choice: str) -> Iterator[list[str]]:
    """The URLs of the masters."""
    if choice == "embedded":
        from redlock_async.testing import LocalCluster, LocalServerError  # noqa: PLC0415 - as above

        local = LocalCluster(nodes=5)
        try:
            local.start()
        except LocalServerError as exc:
            raise NoCluster(str(exc)) from exc
        try:
            yield local.urls
        finally:
            local.stop()
    elif choice == "compose":
        with compose():
            yield list(COMPOSE)
    else:
        urls = [url.strip() for url in choice.split(",") if url.strip()]
        silent = [url for url in urls if not _answers(url)]
        if silent or not urls:
            raise NoCluster(
                f"no Redis or Valkey answers at {', '.join(silent) or 'no URL at all'}: --cluster is embedded, "
                "compose, or URLs like redis://host:6379, separated by commas"
            )
        yield urls


@asynccontextmanager
async def own(setting: Setting) -> AsyncIterator[LocalCluster]:
    """Masters for one setting, as far away as it wants them."""
    from redlock_async.testing import LocalCluster  # noqa: PLC0415 - as above

    assert setting.nodes is not None  # noqa: S101 - it has its own
    async with LocalCluster(setting.nodes, proxied=setting.round_trip_ms > 0) as local:
        if setting.round_trip_ms > 0:
            for node in range(setting.nodes):
                local.delay(node, setting.round_trip_ms / 2000)
        yield local


@contextmanager
def compose() -> Iterator[None]:
    """The masters of the compose file: as they run, or started and afterwards ended."""
    silent = [url for url in COMPOSE if not _answers(url)]
    if not silent:
        yield
        return
    _check_engine(silent)
    ran_before = bool(_compose("ps", "--quiet", patience=ENGINE_PATIENCE).strip())
    print(f"starting the masters of {COMPOSE_FILE.name} ...", file=sys.stderr)
    try:
        _compose("up", "--detach", "--wait", patience=START_PATIENCE)
        still_silent = [url for url in COMPOSE if not _answers(url)]
        if still_silent:
            raise NoCluster(f"the containers run, but nothing answers at {', '.join(still_silent)}, {INSTEAD}")
        yield
    finally:
        if ran_before:
            print("the masters are left running: some of them ran before", file=sys.stderr)
        else:
            print("ending the masters: none of them ran before", file=sys.stderr)
            _compose("down", patience=START_PATIENCE)


def _check_engine(silent: Sequence[str]) -> None:
    """There must be something that can start them."""
    problem = f"nothing answers at {', '.join(silent)}, and"
    if shutil.which("docker") is None:
        raise NoCluster(f"{problem} there is no docker to start the compose file with: install it, {INSTEAD}")
    for command, what in (
        (("info",), "docker has no engine that answers: start it (systemctl start docker, or Docker Desktop)"),
        (("compose", "version"), "docker has no compose: install its compose plugin"),
    ):
        try:
            _run("docker", *command, patience=ENGINE_PATIENCE)
        except (OSError, subprocess.SubprocessError) as exc:
            raise NoCluster(f"{problem} {what}, {INSTEAD} (docker says: {_last_line(exc)})") from exc


def _compose(*arguments: str, patience: float) -> str:
    try:
        return _run("docker", "compose", "--file", str(COMPOSE_FILE), *arguments, patience=patience)
    except (OSError, subprocess.SubprocessError) as exc:
        shown = " ".join(("docker compose", *arguments))
        raise NoCluster(f"`{shown}` failed: {_last_line(exc)}; repair that, {INSTEAD}") from exc


def _run(*command: str, patience: float) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=patience).stdout


def _last_line(exc: Exception) -> str:
    if isinstance(exc, subprocess.TimeoutExpired):
        return f"nothing within {exc.timeout:g} s"
    said = str(getattr(exc, "stderr", None) or exc).strip().splitlines()
    return said[-1] if said else type(exc).__name__


def _answers(url: str) -> bool:
    try:
        parts = urlsplit(url)
        with socket.create_connection((parts.hostname, parts.port or 6379), PATIENCE) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(64)[:1] in {b"+", b"-"}
    except (OSError, ValueError):
        return False
