"""Who a server is and what it can do: the questions on connecting, and what the answers mean. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ._replies import failure
from ._scripts import Dialect
from ._wire import ErrorReply


@dataclass(frozen=True, slots=True)
class Identity:
    """What a server said of itself when we connected."""

    client_id: int | None
    run_id: str | None
    role: str | None
    mode: str | None
    version: str | None
    server: str | None
    dialect: Dialect
    tracking: bool


def questions(probe: bytes, *, pushes: bool) -> list[tuple[bytes | str | int, ...]]:
    """What to ask, all in one write. `probe` is a key that never exists."""
    return [
        ("CLIENT", "ID"),
        ("INFO", "server"),
        ("INFO", "replication"),
        ("DELIFEQ", probe, "-"),
        ("DELEX", probe, "IFEQ", "-"),
        ("CLIENT", "TRACKING", "ON" if pushes else "OFF", "NOLOOP"),
    ]


def identify(answers: Sequence[object], *, pushes: bool) -> Identity:
    """What the answers to `questions` say; more answers may follow."""
    client_id, server, replication, delifeq, delex, tracking = answers[:6]
    for reply in (server, replication):
        # INFO may be denied by an ACL, and we can do without it; but not without any rights at all.
        if isinstance(reply, ErrorReply) and not str(reply).startswith("NOPERM"):
            raise failure(str(reply))
    about = _parse(server) | _parse(replication)
    # Commands are tried, because a version says nothing about what an ACL or a fork allows.
    dialect = Dialect.PLAIN
    if not isinstance(delifeq, ErrorReply):
        dialect = Dialect.DELIFEQ
    elif not isinstance(delex, ErrorReply):
        dialect = Dialect.DELEX
    return Identity(
        client_id=client_id if type(client_id) is int else None,
        run_id=about.get("run_id"),
        role=about.get("role"),
        mode=about.get("redis_mode") or about.get("server_mode"),
        version=about.get("valkey_version") or about.get("redis_version"),
        server="valkey" if "valkey_version" in about else "redis" if "redis_version" in about else None,
        dialect=dialect,
        tracking=pushes and not isinstance(tracking, ErrorReply),
    )


def _parse(reply: object) -> dict[str, str]:
    if not isinstance(reply, bytes):
        return {}
    lines = reply.decode("utf-8", "replace").splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line and not line.startswith("#"))


def unfit(identity: Identity) -> str | None:
    """Why that server cannot be an independent master, if so."""
    if identity.mode not in {None, "standalone"}:
        return f"it runs in {identity.mode:.40} mode: Redlock needs N standalone masters, each one on its own"
    if identity.role not in {None, "master"}:
        return "it is a replica: give the masters themselves, which must not replicate one another"
    return None
