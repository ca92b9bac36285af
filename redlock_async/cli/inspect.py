"""`inspect`: who holds a name, on which nodes, and who waits for it; it changes nothing."""

# ruff: noqa: T201 - printing is what it is for

from __future__ import annotations

import argparse
import json
import re
import sys

from . import add_nodes
from ._client import ask
from ._lock_view import as_json, explained
from ._terminal import Paper, harmless
from ._words import say

FREE = 1
"""The exit status when nothing of that name is there."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add its arguments."""
    parser.description = (
        "Tell all that the masters know of a name: lock, readers, slots of a semaphore, latch, and who waits. "
        "The exit status is 1 if they know nothing."
    )
    parser.add_argument("name", metavar="NAME", help="what is locked")
    parser.add_argument("--json", action="store_true", help="JSON instead of text; durations are in seconds")
    add_nodes(parser)


def run(arguments: argparse.Namespace) -> int:
    """Tell it."""
    records = ask(arguments, lambda redlock: redlock.locks(exactly(arguments.name)))
    if arguments.json:
        print(json.dumps([as_json(each) for each in records], indent=1))
    elif records:
        paper = Paper(sys.stdout)
        paper.write(explained(records, paper.width))
    else:
        say(f"{harmless(arguments.name)} is free")
    return 0 if records else FREE


def exactly(name: str) -> str:
    """The pattern of that name and no other."""
    return re.sub(r"([*?\[\]\\])", r"\\\1", name)
