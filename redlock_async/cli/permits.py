"""`permits`: show how many permits a semaphore has and how many are in use, set another number, or reset it."""

# ruff: noqa: T201 - a command prints

from __future__ import annotations

import argparse
import json
import re

import redlock_async

from . import add_nodes
from ._client import query
from ._messages import command_line, say
from ._terminal import sanitize

NOT_IN_USE = 1
"""The exit status when no semaphore of that name is in use, or there is no number to reset."""

HELD = 75
"""The exit status when slots beyond the new number are held: try again later."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.description = (
        "Show how many permits a semaphore has, or change the number, even while slots are held. Clients that still "
        "pass the old number then get an error, so change the services at the same time. A lower number is rejected "
        "(exit status 75) while slots beyond it are held. The exit status is 1 if the semaphore is not in use and no "
        "number is set."
    )
    parser.add_argument("name", metavar="NAME", help="the name of the semaphore")
    number = parser.add_mutually_exclusive_group()
    number.add_argument(
        "number", metavar="NUMBER", nargs="?", type=int, help="the new number of permits, from 1 to 1,000"
    )
    number.add_argument(
        "--reset",
        action="store_true",
        help="remove the number that was set here: clients may pass another one as soon as no slot is held",
    )
    parser.add_argument("--json", action="store_true", help="JSON instead of text")
    add_nodes(parser)


def run(arguments: argparse.Namespace) -> int:
    """Show, change or reset the number, and return the exit status."""
    name, number = sanitize(arguments.name), arguments.number
    try:
        before, found, missed = query(arguments, lambda redlock: _apply(redlock, arguments))
    except redlock_async.LockTimeout as error:
        say(_with_command(str(error), name))
        return HELD
    if arguments.json:
        print(json.dumps(None if found is None else _as_json(found)))
    elif found is not None:
        print(f"{found.permits} permits, {len(found.slots)} in use")
    if missed:
        say(
            f"{sanitize(', '.join(missed))} did not answer and may have another number for {name}; "
            "repeat the command when all nodes are up"
        )
    if arguments.reset:
        return _report_reset(name, before, found)
    if found is None:
        say(f"no semaphore named {name} is in use")
        return NOT_IN_USE
    if found.changed and not found.slots:
        unused = "no client uses it at the moment" if number is not None and before is None else "no slot of it is held"
        say(
            f"{name}: {unused}. The number stays set for all future clients; to remove it: "
            f"{command_line('permits', name)} --reset"
        )
    return 0


async def _apply(
    redlock: redlock_async.Redlock, arguments: argparse.Namespace
) -> tuple[redlock_async.SemaphoreStatus | None, redlock_async.SemaphoreStatus | None, list[str]]:
    """Return the semaphore before and after the change, and which nodes were down and missed it."""
    before = found = await redlock.inspect_semaphore(arguments.name)
    missed: list[str] = []
    if arguments.number is not None or arguments.reset:
        await redlock.change_permits(arguments.name, arguments.number)
        found = await redlock.inspect_semaphore(arguments.name)
        missed = [node.label for node in await redlock.status() if not node.up]
    return before, found, missed


def _report_reset(
    name: str, before: redlock_async.SemaphoreStatus | None, found: redlock_async.SemaphoreStatus | None
) -> int:
    """Report that the number was reset, and whether another one must wait for held slots."""
    if before is None or not before.changed:
        say(f"no number is set for {name}: there is nothing to reset")
        return NOT_IN_USE
    when = " as soon as no slot of it is held" if found is not None and found.slots else ""
    say(f"{name} is no longer set to {before.permits} permits: clients may pass another number{when}")
    return 0


def _as_json(found: redlock_async.SemaphoreStatus) -> dict[str, object]:
    return {"permits": found.permits, "in_use": len(found.slots), "set": found.changed}


def _with_command(error: str, name: str) -> str:
    """Return the library's message with our command in place of the function that it recommends."""
    command = f"`{command_line('release', name)} --force`, which frees all its slots"
    return re.sub(r"`?\bforce_release\b(?:\([^()]*\))?`?", lambda _: command, error)
