"""`inspect`: show who holds a name, on which nodes, and who waits for it. It changes nothing."""

# ruff: noqa: T201 - a command prints

from __future__ import annotations

import argparse
import json
import re
import sys

from . import add_nodes
from ._client import query
from ._lock_view import as_json, lock_details
from ._messages import say
from ._terminal import Printer, sanitize

FREE = 1
"""The exit status when the nodes know nothing about the name."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.description = (
        "Show all that the nodes store about a name: lock, readers, semaphore slots, latch and waiters. "
        "The exit status is 1 if they store nothing."
    )
    parser.add_argument("name", metavar="NAME", help="the name of the lock")
    parser.add_argument("--json", action="store_true", help="JSON instead of text; durations are in seconds")
    add_nodes(parser)


def run(arguments: argparse.Namespace) -> int:
    """Show the records of the name, and return the exit status."""
    records = query(arguments, lambda redlock: redlock.list_locks(exactly(arguments.name)))
    if arguments.json:
        print(json.dumps([as_json(record) for record in records], indent=1))
    elif records:
        printer = Printer(sys.stdout)
        printer.write(lock_details(records, printer.width))
    else:
        say(f"{sanitize(arguments.name)} is free")
    return 0 if records else FREE


def exactly(name: str) -> str:
    """Return the pattern that matches only this name."""
    return re.sub(r"([*?\[\]\\])", r"\\\1", name)
