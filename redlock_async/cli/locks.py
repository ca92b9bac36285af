"""`locks`: list the locks, with their holders and votes. It changes nothing."""

# ruff: noqa: T201 - a command prints

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence

import redlock_async

from . import add_nodes
from ._client import query
from ._lock_view import as_json, lock_table
from ._messages import say
from ._terminal import Printer, sanitize


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.description = (
        "List locks with holder, votes, time left, waiters and fence. Each node is read in portions with SCAN; a name "
        "without wildcards is looked up directly. A lock without a quorum is checked twice: an 'orphan' is a leftover "
        "without a holder, which expires, 'partial' may be an acquisition in progress."
    )
    parser.add_argument(
        "pattern",
        nargs="?",
        default="*",
        metavar="PATTERN",
        help="names to list; * ? [a-z] are wildcards, \\ escapes them (default: all)",
    )
    parser.add_argument(
        "--foreign",
        action="store_true",
        help="also list every other string with an expiry: locks of other Redlock clients, and keys that look alike",
    )
    parser.add_argument("--json", action="store_true", help="JSON instead of a table; durations are in seconds")
    add_nodes(parser)


def run(arguments: argparse.Namespace) -> int:
    """List the locks, and return the exit status."""
    records = query(arguments, lambda redlock: redlock.list_locks(arguments.pattern, include_foreign=arguments.foreign))
    if arguments.json:
        print(json.dumps([as_json(record) for record in records], indent=1))
        return 0
    if records:
        printer = Printer(sys.stdout)
        printer.write(lock_table(records, printer.width))
    say(_summary(records, arguments.pattern))
    return 0


def _summary(records: Sequence[redlock_async.LockRecord], pattern: str) -> str:
    if not records:
        if pattern == "*":
            return "nothing is locked"
        hint = "" if any(char in pattern for char in "*?[\\") else f". To list names that start with it: '{pattern}*'"
        return sanitize(f"no lock matches {pattern!r}{hint}")
    count = Counter(record.state for record in records)
    return ", ".join(f"{number} {state}" for state, number in count.items())
