"""The exceptions that a server's error replies stand for. No I/O."""

from __future__ import annotations

import re

from redlock_async.errors import ConfigurationError, NodeDenied, NodeRefused, WrongKeyType, one_line

DENIED = ("NOAUTH", "WRONGPASS", "NOPERM", "UNKNOWN", "DENIED")

REMEDIES = {
    "NOAUTH": "the server requires a password. Add it to the node's URL",
    "WRONGPASS": "wrong user or password in the node's URL",
    "NOPERM": "the user's ACL lacks a permission that the library needs: see docs/permissions.md",
    "UNKNOWN": "the server or a proxy in front of it lacks a command that the library needs: see docs/permissions.md",
    "DENIED": "the server runs in protected mode and rejects remote clients",
    "LOADING": "the server is still loading its data",
    "BUSY": "a script blocks the server",
    "TRYAGAIN": "the server asks to try again",
    "MASTERDOWN": "the server is a replica whose master is down",
    "MISCONF": "the server cannot persist and refuses writes",
    "OOM": "the server is at maxmemory and refuses writes",
    "READONLY": "the server is a replica now",
    "NOREPLICAS": "the server lacks the replicas that min-replicas-to-write demands",
}

CONFLICT = "WRONGTYPE"

FORBIDDEN_IN_SCRIPT = re.compile("ACL failure in script|The user executing the script can't run this command")
"""The error of a script that calls a forbidden command, as Valkey and Redis from 6.2 on word it."""

UNKNOWN_IN_SCRIPT = re.compile("Unknown (?:Redis )?command called from (?:Lua )?script")
"""The error of a script that calls a command which the server does not have."""

UNKNOWN = re.compile("(?:ERR )?(?:unknown|unsupported) (?:sub)?command", re.IGNORECASE)
"""The beginning of the error for a command that a server or proxy does not have."""

LONGEST = 400
"""Maximum characters shown of an error reply; the longest of a real server have half as many."""

MOST_CLIENTS = "max number of clients"

PERMITS = "PERMITS "
"""Prefix of the error of semaphore_acquire.lua when another number of permits is in use than was requested."""


def missing_script(message: str) -> bool:
    """Return whether the server needs the script's source: it has forgotten the script, or lacks EVALSHA."""
    if message.startswith("NOSCRIPT"):
        return True
    return "'evalsha'" in message.lower().replace("`", "'") and is_missing(message)


def is_missing(message: str) -> bool:
    """Return whether a command failed because the server forbids it or does not have it."""
    return message.startswith("NOPERM") or UNKNOWN.match(message) is not None


def may_be_missing(message: str) -> bool:
    """Return whether a command that locks can do without failed for good.

    Proxies have a text of their own for that, so it is every error that does not say that the server cannot answer any
    command, or not now.
    """
    if is_missing(message):
        return True
    return message.split(" ", 1)[0] not in REMEDIES and MOST_CLIENTS not in message


def sanitize(message: str) -> str:
    """Return a server's message in a form that is safe to quote: on one line, without control characters, and cut."""
    return one_line(message, LONGEST)


def failure(message: str) -> Exception:
    """Return the exception for a node's error reply."""
    message = sanitize(message)
    if message.startswith(PERMITS):
        return ConfigurationError(message.removeprefix(PERMITS))
    code = message.split(" ", 1)[0]
    # Servers before 7.0 wrap an error inside a script in "ERR Error running script (...): ... WRONGTYPE ...".
    if code == "ERR" and "running script" in message:
        code = next((known for known in (CONFLICT, *REMEDIES) if f" {known} " in message.replace(" -", " ")), code)
    if FORBIDDEN_IN_SCRIPT.search(message):
        code = "NOPERM"
    elif UNKNOWN.match(message) or UNKNOWN_IN_SCRIPT.search(message):
        code = "UNKNOWN"
    if code == CONFLICT:
        return WrongKeyType("the key holds another type of value. Use another name, or delete the key")
    if MOST_CLIENTS in message:
        return NodeRefused(f"{message} (raise maxclients on the server)")
    kind = NodeDenied if code in DENIED else NodeRefused
    remedy = REMEDIES.get(code)
    return kind(f"{message} ({remedy})" if remedy else message)
