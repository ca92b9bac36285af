"""`permits`: how many permits a semaphore has, and how many are in use; changes the number, or forgets that it did."""

# ruff: noqa: T201 - printing is what it is for

from __future__ import annotations

import argparse
import json
import shlex

import redlock_async

from . import PROG, add_nodes
from ._client import ask
from ._terminal import harmless
from ._words import say

NOT_IN_USE = 1
"""The exit status when there is no semaphore of that name, or nothing to forget of it."""

HELD = 75
"""The exit status when slots beyond the new number are held: try again later."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add its arguments."""
    parser.description = (
        "Tell how many permits a semaphore has, or change it, while slots are held. Whoever still gives the old number "
        "is refused from then on, held or not: change it together with the services that use it. Lowering it is "
        "refused (exit status 75) while slots beyond the new number are held. The exit status is 1 if it is not in use "
        "and no number was set."
    )
    parser.add_argument("name", metavar="NAME", help="the semaphore")
    number = parser.add_mutually_exclusive_group()
    number.add_argument("number", metavar="NUMBER", nargs="?", type=int, help="from now on, from 1 to 1,000")
    number.add_argument(
        "--forget",
        action="store_true",
        help="no longer insist on the number that was set: another can be used as soon as no slot is held",
    )
    parser.add_argument("--json", action="store_true", help="JSON instead of text")
    add_nodes(parser)


def run(arguments: argparse.Namespace) -> int:
    """Tell, change or forget it."""
    name, number = harmless(arguments.name), arguments.number
    try:
        before, found, away = ask(arguments, lambda redlock: _changed(redlock, arguments))
    except redlock_async.LockTimeout as error:
        say(_told_of_release(str(error), name))
        return HELD
    if arguments.json:
        print(json.dumps(None if found is None else _as_json(found)))
    elif found is not None:
        print(f"{found.permits} permits, {len(found.slots)} in use")
    if away:
        say(f"{harmless(', '.join(away))} did not answer, and may have another number: say it again when all are back")
    if arguments.forget:
        return _forgotten(name, before, found)
    if found is None:
        say(f"{name} is no semaphore that is in use")
        return NOT_IN_USE
    if found.changed and not found.slots:
        nobody = "nobody uses it at the moment" if number is not None and before is None else "no slot of it is held"
        say(
            f"{name}: {nobody}. The number was set, and stands for whoever will use that name, until it is forgotten: "
            f"{_command('permits', name)} --forget"
        )
    return 0


async def _changed(
    redlock: redlock_async.Redlock, arguments: argparse.Namespace
) -> tuple[redlock_async.SemaphoreStatus | None, redlock_async.SemaphoreStatus | None, list[str]]:
    """What it was like, and what it is like; and which masters were not there when it was changed."""
    before = found = await redlock.inspect_semaphore(arguments.name)
    away: list[str] = []
    if arguments.number is not None or arguments.forget:
        await redlock.change_permits(arguments.name, arguments.number)
        found = await redlock.inspect_semaphore(arguments.name)
        away = [node.label for node in await redlock.status() if not node.up]
    return before, found, away


def _forgotten(
    name: str, before: redlock_async.SemaphoreStatus | None, found: redlock_async.SemaphoreStatus | None
) -> int:
    """That it is, and what is in the way of another number yet."""
    if before is None or not before.changed:
        say(f"no number was set for {name}: there is nothing to forget")
        return NOT_IN_USE
    then = " once no slot of it is held" if found is not None and found.slots else ""
    say(f"forgot that {name} was set to {before.permits} permits: it has the number that its users give{then}")
    return 0


def _as_json(found: redlock_async.SemaphoreStatus) -> dict[str, object]:
    return {"permits": found.permits, "in_use": len(found.slots), "set": found.changed}


def _told_of_release(error: str, name: str) -> str:
    """The library names a function where there is a command."""
    before = error.removesuffix("force_release")
    return error if before == error else f"{before}`{_command('release', name)} --force`, which frees all its slots"


def _command(command: str, name: str) -> str:
    return f"{PROG} {command} {shlex.quote(name)}"
