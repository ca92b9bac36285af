"""`permits`: how many permits a semaphore has, and how many are in use; with a number it changes it, for good."""

# ruff: noqa: T201 - printing is what it is for

from __future__ import annotations

import argparse
import json

import redlock_async

from ._client import ask
from ._nodes import add_nodes
from ._terminal import harmless
from ._words import say

NOT_IN_USE = 1
"""The exit status when there is no semaphore of that name."""

HELD = 75
"""The exit status when slots beyond the new number are held: try again later."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add its arguments."""
    parser.description = (
        "Tell how many permits a semaphore has, or change it, while slots are held. Whoever still gives the old number "
        "is refused from then on, held or not: change it together with the services that use it. Lowering it is "
        "refused (exit status 75) while slots beyond the new number are held. The exit status is 1 if it is not in use."
    )
    parser.add_argument("name", metavar="NAME", help="the semaphore")
    parser.add_argument("number", metavar="NUMBER", nargs="?", type=int, help="from now on, from 1 to 1,000")
    parser.add_argument("--json", action="store_true", help="JSON instead of text")
    add_nodes(parser)


def run(arguments: argparse.Namespace) -> int:
    """Tell or change it."""
    name = harmless(arguments.name)
    try:
        found = ask(arguments, lambda redlock: _changed(redlock, arguments.name, arguments.number))
    except redlock_async.LockTimeout as error:
        say(str(error))
        return HELD
    if arguments.json:
        print(json.dumps(None if found is None else {"permits": found.permits, "in_use": len(found.slots)}))
    elif found is None:
        say(f"{name} is no semaphore that is in use")
    else:
        print(f"{found.permits} permits, {len(found.slots)} in use")
    return NOT_IN_USE if found is None else 0


async def _changed(
    redlock: redlock_async.Redlock, name: str, number: int | None
) -> redlock_async.SemaphoreStatus | None:
    if number is not None:
        await redlock.change_permits(name, number)
    return await redlock.inspect_semaphore(name)
