"""`release`: release the lease of a ticket, or force-release a name.

The latter requires --force, because only the holder knows whether its work is done.
"""

# ruff: noqa: T201 - a command prints

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from collections.abc import Set as AbstractSet

import redlock_async

from . import PROG, add_nodes
from ._client import query
from ._lock_view import lock_details, time_left
from ._messages import command_line, say
from ._terminal import Printer, sanitize
from ._ticket import add_ticket_file, forget, read_ticket
from .inspect import exactly

NOT_DONE = 1
"""The exit status when the name was not held, or the user answered no."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.usage = f"{PROG} release [--ticket-file FILE]\n       {PROG} release NAME --force [-y]"
    parser.description = (
        "Without NAME, release the lease of a ticket, and delete the ticket file. The exit status is 70 if the lease "
        "was lost before, and 69 if too few nodes confirm the release: then it expires. "
        "With NAME, release a name that another client holds. The holder's code is cancelled or its command is "
        "stopped, which may leave its work half done: look at it with `inspect` first. The exit status is 1 if the "
        "name was not held."
    )
    parser.add_argument("name", metavar="NAME", nargs="?", help="the name of a lock that another client holds")
    add_ticket_file(parser)
    parser.add_argument("--force", action="store_true", help="release it even though another client holds it")
    parser.add_argument(
        "-y", "--yes", action="store_true", help="do not ask for confirmation; required without a terminal"
    )
    add_nodes(parser)


def run(arguments: argparse.Namespace) -> int:
    """Release the ticket's lease or the name, and return the exit status."""
    if arguments.name is None:
        return _release_ticket(arguments)
    if arguments.ticket_file is not None:
        raise redlock_async.ConfigurationError(
            "--ticket-file and a name exclude each other: the ticket says what to release"
        )
    name = sanitize(arguments.name)
    if not arguments.force:
        raise redlock_async.ConfigurationError(
            f"only the holder of {name} should release it; to do it anyway: {command_line('release', name)} --force"
        )
    if not arguments.yes and not (sys.stdin is not None and sys.stdin.isatty()):
        raise redlock_async.ConfigurationError(
            f"cannot ask for confirmation to release {name}, because there is no terminal; add --yes to confirm"
        )
    known = query(arguments, lambda redlock: redlock.list_locks(exactly(arguments.name)))
    held = _with_holder(known)
    if not held:
        return _not_done(_not_held(name, known))
    printer = Printer(sys.stderr)
    printer.write(lock_details(held, printer.width))
    if not arguments.yes and not _confirmed(name):
        return _not_done("nothing was released")
    shown = {record.token for record in held}
    if not query(arguments, lambda redlock: _release(redlock, arguments.name, shown)):
        return _not_done(f"{name} has a new holder in the meantime: nothing was released")
    say(f"released {name}")
    return 0


def _release_ticket(arguments: argparse.Namespace) -> int:
    if arguments.force or arguments.yes:
        raise redlock_async.ConfigurationError("--force and --yes need the name of a lock that another client holds")
    ticket = read_ticket(arguments)
    try:
        query(arguments, lambda redlock: redlock.attach(ticket.write()).release())
    except redlock_async.LockLost:
        forget(arguments)
        raise
    forget(arguments)
    return 0


def _with_holder(known: Sequence[redlock_async.LockRecord]) -> list[redlock_async.LockRecord]:
    return [record for record in known if record.token is not None]


def _not_held(name: str, known: Sequence[redlock_async.LockRecord]) -> str:
    for record in known:
        if record.kind == "latch":
            return (
                f"{name} is a latch, which has no holder and cannot be released. If it is not used, it is deleted in "
                f"{time_left(record)}. For another round or another count, use another generation of the latch"
            )
    return f"{name} is not held"


async def _release(redlock: redlock_async.Redlock, name: str, shown: AbstractSet[str | None]) -> bool:
    # The user may have taken long to answer: release only a holder that was shown.
    held = _with_holder(await redlock.list_locks(exactly(name)))
    return shown >= {record.token for record in held} and await redlock.force_release(name)


def _confirmed(name: str) -> bool:
    print(f"Release {name}? Its holder is stopped. [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def _not_done(why: str) -> int:
    say(why)
    return NOT_DONE
