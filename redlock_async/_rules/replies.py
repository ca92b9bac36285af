"""What an error reply of a server means for a vote. No I/O."""

from __future__ import annotations

from ._errors import ConfigurationError, KeyConflict, NodeDenied, NodeRefused, line

DENIED = ("NOAUTH", "WRONGPASS", "NOPERM", "DENIED")

REMEDIES = {
    "NOAUTH": "the server wants a password: put it in the node's URL",
    "WRONGPASS": "wrong user or password in the node's URL",
    "NOPERM": "the user's ACL lacks a right the library needs (docs/operations.md, Permissions)",
    "DENIED": "the server runs in protected mode and takes no remote clients",
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

LONGEST = 400
"""Characters of an error reply that are shown; the longest of a real server are half that."""

PERMITS = "PERMITS "
"""What semaphore_acquire.lua answers with when it is asked for another number of permits than is in use."""


def missing_script(message: str) -> bool:
    """Whether the server has forgotten the script and wants its source."""
    return message.startswith("NOSCRIPT")


def said(message: str) -> str:
    """What a server said, as it may stand in a message of ours."""
    return line(message, LONGEST)


def failure(message: str) -> Exception:
    """An error reply as the exception shown for that node."""
    message = said(message)
    if message.startswith(PERMITS):
        return ConfigurationError(message.removeprefix(PERMITS))
    code = message.split(" ", 1)[0]
    # Servers before 7.0 wrap what a script hit in "ERR Error running script (...): ... WRONGTYPE ...".
    if code == "ERR" and "running script" in message:
        code = next((known for known in (CONFLICT, *REMEDIES) if f" {known} " in message.replace(" -", " ")), code)
    if code == "ERR" and "ACL failure in script" in message:
        code = "NOPERM"
    if code == CONFLICT:
        return KeyConflict("the key holds another type of value: use another name, or delete that key")
    if "max number of clients" in message:
        return NodeRefused(f"{message} (raise maxclients on the server)")
    kind = NodeDenied if code in DENIED else NodeRefused
    remedy = REMEDIES.get(code)
    return kind(f"{message} ({remedy})" if remedy else message)
