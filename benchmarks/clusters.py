"""The nodes to measure: started here, from the compose file, or given by URL."""

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
    # Not imported at run time: compose and URLs need no server binary.
    from redlock_async.testing import LocalCluster

COMPOSE = tuple(f"redis://127.0.0.1:{port}" for port in range(6391, 6396))
COMPOSE_FILE = Path(__file__).resolve().parents[1] / "docker-compose.yml"
PATIENCE = 2.0
ENGINE_PATIENCE = 15.0
START_PATIENCE = 300.0
"""Seconds; images may have to be downloaded first."""

INSTEAD = "or use --cluster embedded, which needs no engine"


class NoCluster(Exception):  # noqa: N818 - the name is a statement
    """No servers to measure on. The message says what to do."""


@contextmanager
def cluster(choice: str) -> Iterator[list[str]]:
    """Provide the URLs of the nodes."""
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
    """Start nodes for one setting, with its network delay."""
    from redlock_async.testing import LocalCluster  # noqa: PLC0415 - as above

    assert setting.nodes is not None  # noqa: S101 - only called for settings with their own nodes
    async with LocalCluster(setting.nodes, proxied=setting.round_trip_ms > 0) as local:
        if setting.round_trip_ms > 0:
            for node in range(setting.nodes):
                local.delay(node, setting.round_trip_ms / 2000)
        yield local


@contextmanager
def compose() -> Iterator[None]:
    """Use the running nodes of the compose file, or start them and stop them afterwards."""
    silent = [url for url in COMPOSE if not _answers(url)]
    if not silent:
        yield
        return
    _check_engine(silent)
    ran_before = bool(_compose("ps", "--quiet", patience=ENGINE_PATIENCE).strip())
    print(f"starting the nodes of {COMPOSE_FILE.name} ...", file=sys.stderr)
    try:
        _compose("up", "--detach", "--wait", patience=START_PATIENCE)
        still_silent = [url for url in COMPOSE if not _answers(url)]
        if still_silent:
            raise NoCluster(f"the containers run, but nothing answers at {', '.join(still_silent)}, {INSTEAD}")
        yield
    finally:
        if ran_before:
            print("the nodes are left running: some of them ran before", file=sys.stderr)
        else:
            print("stopping the nodes: none of them ran before", file=sys.stderr)
            _compose("down", patience=START_PATIENCE)


def _check_engine(silent: Sequence[str]) -> None:
    """Check that docker compose can start the nodes."""
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
        raise NoCluster(f"`{shown}` failed: {_last_line(exc)}; fix that, {INSTEAD}") from exc


def _run(*command: str, patience: float) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=patience).stdout


def _last_line(exc: Exception) -> str:
    if isinstance(exc, subprocess.TimeoutExpired):
        return f"nothing within {exc.timeout:g} s"
    lines = str(getattr(exc, "stderr", None) or exc).strip().splitlines()
    return lines[-1] if lines else type(exc).__name__


def _answers(url: str) -> bool:
    try:
        parts = urlsplit(url)
        with socket.create_connection((parts.hostname, parts.port or 6379), PATIENCE) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(64)[:1] in {b"+", b"-"}
    except (OSError, ValueError):
        return False
