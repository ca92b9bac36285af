"""`locks`: what is locked, by whom, and on how many nodes; it changes nothing."""

# ruff: noqa: T201 - printing is what it is for

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence

import redlock_async

from . import add_nodes
from ._client import ask
from ._lock_view import as_json, listed
from ._terminal import Paper
from ._words import say


def configure(parser: argparse.ArgumentParser) -> None:
    """Add its arguments."""
    parser.description = (
        "List what is locked: holder, votes, time left, waiters, fence. Each master is read with SCAN, in portions; a "
        "name without wildcards is looked up directly. What less than a quorum names is looked at twice: an 'orphan' "
        "can be nobody's lease and runs out by itself, 'partial' may be an attempt under way."
    )
    parser.add_argument(
        "pattern",
        nargs="?",
        default="*",
        metavar="PATTERN",
        help="names, with * ? [a-z] as wildcards and \\ before a sign that is none (default: all)",
    )
    parser.add_argument(
        "--foreign",
        action="store_true",
        help="also every other string that expires: locks of other Redlock clients, and whatever looks the same",
    )
    parser.add_argument("--json", action="store_true", help="JSON instead of a table; durations are in seconds")
    add_nodes(parser)


def run(arguments: argparse.Namespace) -> int:
    """List them."""
    records = ask(arguments, lambda redlock: redlock.locks(arguments.pattern, foreign=arguments.foreign))
    if arguments.json:
        print(json.dumps([as_json(each) for each in records], indent=1))
        return 0
    if records:
        paper = Paper(sys.stdout)
        paper.write(listed(records, paper.width))
    say(_summary(records))
    return 0


def _summary(records: Sequence[redlock_async.LockRecord]) -> str:
    if not records:
        return "nothing is locked"
    count = Counter(each.state for each in records)
    return ", ".join(f"{number} {state}" for state, number in count.items())
