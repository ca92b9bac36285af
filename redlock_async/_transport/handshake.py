"""The handshake: the commands that ask a server for its identity and abilities, and what the replies mean. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from redlock_async._rules.replies import failure, may_be_missing
from redlock_async.errors import label_of

from .commands import CompareAndDelete
from .connection import ErrorReply

LONGEST_VALUE = 100
"""Maximum characters kept of a line of INFO: a run id, the longest value in use, has 40."""

PRODUCTS = ("valkey", "redict", "redis")
"""Whose `..._version` counts: forks also report a version of Redis, for compatibility."""

MODES = ("redis_mode", "server_mode", "redict_mode")
"""The line of INFO that names the mode; Valkey and Redict have their own."""


NOBODY = 2**63 - 1
"""A client id that no server reaches: with it, CLIENT KILL only tells whether it is allowed."""


class Manners(Enum):
    """The questions that a server is asked when we connect: some proxies cannot be asked all of them."""

    ALL = "everything"
    NO_HELLO = "everything but HELLO"
    SILENT = "nothing"


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity and abilities that a server reported when we connected."""

    client_id: int | None
    run_id: str | None
    role: str | None
    mode: str | None
    version: str | None
    server: str | None
    dialect: CompareAndDelete
    tracking: bool
    replicated: bool = False
    """Whether it has or had replicas, or was one."""
    durable: bool = False
    """Whether it loads every write after a restart."""
    missing: tuple[str, ...] = ()
    """The commands that the server forbids or does not have; locks can do without them."""
    asked: bool = True
    """Whether the server can be asked for such commands: some proxies close the connection instead of an answer."""


OPTIONAL = (
    "HELLO", "CLIENT TRACKING", "CLIENT SETNAME", "CLIENT SETINFO", "CLIENT ID", "CLIENT KILL", "INFO", "SCRIPT LOAD",
    "EVALSHA",
)  # fmt: skip
"""The commands of the handshake that locks can do without, for `Identity.missing`."""

UNASKED = Identity(
    None, None, None, None, None, None, CompareAndDelete.PLAIN, tracking=False, missing=OPTIONAL, asked=False
)
"""The identity of a proxy that closes the connection on every question."""

Question = tuple[str, tuple[bytes | str | int, ...]]
"""The name of a command, and its words."""


def questions(probe: bytes, name: str, *, pushes: bool) -> list[Question]:
    """Return the commands of the handshake, for one write. `probe` is a key that never exists.

    All of them are optional: see `Identity.missing`.
    """
    asked: list[Question] = [
        ("CLIENT SETNAME", ("CLIENT", "SETNAME", name)),
        ("CLIENT SETINFO", ("CLIENT", "SETINFO", "LIB-NAME", "redlock_async")),
        ("CLIENT ID", ("CLIENT", "ID")),
        ("CLIENT KILL", ("CLIENT", "KILL", "ID", NOBODY)),
        ("INFO", ("INFO", "server")),
        ("INFO", ("INFO", "replication")),
        ("INFO", ("INFO", "persistence")),
        ("EVALSHA", ("EVALSHA", "0" * 40, 1, probe)),
        ("DELIFEQ", ("DELIFEQ", probe, "-")),
        ("DELEX", ("DELEX", probe, "IFEQ", "-")),
    ]
    if pushes:
        asked.append(("CLIENT TRACKING", ("CLIENT", "TRACKING", "ON", "NOLOOP")))
    return asked


def identify(asked: Sequence[str], replies: Sequence[object], *, pushes: bool | None) -> Identity:
    """Return the identity in the replies to those questions.

    `pushes`: whether the server switched to RESP3; None if the user wants RESP2.
    Raises the exception for an error reply to INFO that says that the server cannot answer now.
    """
    refused: dict[str, str] = {}
    info: dict[str, str] = {}
    client_id = None
    for question, reply in zip(asked, replies, strict=True):
        if isinstance(reply, ErrorReply):
            if question != "EVALSHA" or not str(reply).startswith("NOSCRIPT"):  # there is no such script
                refused[question] = str(reply)
        elif question == "INFO":
            info |= parse_info(reply)
        elif question == "CLIENT ID":
            client_id = reply
    if not may_be_missing(refused.get("INFO", "")):
        raise failure(refused["INFO"])
    # The commands are probed, because a version does not tell what an ACL or a fork allows.
    dialect = CompareAndDelete.PLAIN
    if "DELIFEQ" not in refused:
        dialect = CompareAndDelete.DELIFEQ
    elif "DELEX" not in refused:
        dialect = CompareAndDelete.DELEX
    if pushes is False:
        refused["HELLO"] = ""
    product = next((name for name in PRODUCTS if f"{name}_version" in info), None)
    return Identity(
        client_id=client_id if type(client_id) is int else None,
        run_id=info.get("run_id"),
        role=info.get("role"),
        mode=next((mode for name in MODES if (mode := info.get(name))), None),
        version=info.get(f"{product}_version"),
        server=product,
        dialect=dialect,
        tracking=pushes is True and "CLIENT TRACKING" not in refused,
        replicated=_replicated(info),
        durable=info.get("aof_enabled") == "1",
        missing=tuple(name for name in OPTIONAL if name in refused),
    )


def _replicated(info: Mapping[str, str]) -> bool:
    # A primary keeps a backlog while it has replicas, and a replica keeps one too. After a promotion it also knows the
    # replication id of the old primary; otherwise that consists of zeros.
    former = info.get("master_replid2", "").strip("0")
    return bool(former) or info.get("repl_backlog_active", "0") != "0" or info.get("connected_slaves", "0") != "0"


def parse_info(reply: object) -> dict[str, str]:
    """Return the lines of INFO as a mapping."""
    if not isinstance(reply, bytes):
        return {}
    pairs = (line.partition(b":") for line in reply.splitlines() if not line.startswith(b"#"))
    return {label_of(name, LONGEST_VALUE): label_of(value, LONGEST_VALUE) for name, colon, value in pairs if colon}


def unfit(identity: Identity, *, shard: bool = False) -> str | None:
    """Return why that server cannot be an independent node, or a shard of a cluster; None if it can."""
    if identity.mode not in {None, "cluster" if shard else "standalone"}:
        needed = "Redlock needs independent standalone servers"
        if shard:
            needed = "a redis+cluster:// URL needs a cluster"
        elif identity.mode == "cluster":
            needed = "To use the whole cluster as one node, give a redis+cluster:// URL"
        return f"it runs in {identity.mode} mode. {needed}"
    if identity.role not in {None, "master"}:
        if shard:
            return "it is a replica now: another server has its slots"
        return "it is a replica. Use independent servers that do not replicate one another"
    return None
