"""`acquire`: take a lock for as long as its lease, and print or write the ticket with which later commands use it."""

# ruff: noqa: T201 - a command prints

from __future__ import annotations

import argparse
import asyncio
import json
import shlex

import redlock_async

from . import PROG, add_nodes
from ._client import client, run_until_signal
from ._lock_options import ABSENT, add_conflict, add_kinds, add_takeover_delay, add_wait, duration, lock_of
from ._messages import say, summarize
from ._ticket import VARIABLE, Output, portable


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.description = (
        "Acquire a lock that stays held when this command has ended: until `release`, or until its ttl is over. "
        f"`{PROG} renew` extends it. Prefer `{PROG} run` where the work is a single command: it renews by itself."
    )
    parser.epilog = (
        "The ticket is a secret: with it, any client can release the lock. Exit status: 0 if the lock is held; 75 (-E) "
        "if another client holds it, 69 if too few nodes answered, 2 for wrong usage, 130 after Ctrl-C while waiting. "
        "Unless it is 0, nothing is held. Durations (S) are seconds, or have a unit: 500ms, 30s, 30m, 2h."
    )
    parser.add_argument("name", metavar="NAME", help="the name to lock")
    add_nodes(parser)
    parser.add_argument(
        "--ttl",
        type=duration,
        default=ABSENT,
        metavar="S",
        help="length of the lease: nothing renews it but `renew`, so it must be long enough for the work until then "
        "(default: REDLOCK_TTL, or 10)",
    )
    add_wait(parser)
    add_takeover_delay(parser)
    outputs = parser.add_mutually_exclusive_group()
    outputs.add_argument(
        "--ticket-file", metavar="FILE", help="write the ticket to this file, with mode 0600, instead of to stdout"
    )
    outputs.add_argument(
        "--export",
        action="store_true",
        help=f"print shell commands that set {VARIABLE} and REDLOCK_FENCING_TOKEN, or that fail: for eval",
    )
    parser.add_argument(
        "--json", action="store_true", help="with --ticket-file: print name, fencing token and seconds left as JSON"
    )
    add_kinds(parser)
    add_conflict(parser)


def run(arguments: argparse.Namespace) -> int:
    """Acquire the lock, and return the exit status."""
    if arguments.json and arguments.ticket_file is None:
        raise redlock_async.ConfigurationError("--json needs --ticket-file: the ticket itself is not part of the JSON")
    with Output(arguments.ticket_file, arguments.name) as output:
        acquisition = Acquisition(arguments, output)
        try:
            status = asyncio.run(run_until_signal(acquisition.run(), busy=lambda: acquisition.done))
        except redlock_async.LockTimeout as error:
            if not arguments.quiet:
                say(f"{PROG}: {summarize(error)}")
            return int(arguments.conflict_exit_code)
    return 0 if acquisition.done else status


class Acquisition:
    """Acquires the lock, and writes its ticket. If that fails or is interrupted, the lock is not held."""

    def __init__(self, arguments: argparse.Namespace, output: Output) -> None:
        self._arguments = arguments
        self._output = output
        self.done = False
        """Whether the ticket is written. Then it is too late for a signal."""

    async def run(self) -> None:
        """Acquire, and write the ticket."""
        async with client(self._arguments) as redlock:
            lease = await lock_of(redlock, self._arguments).acquire()
            # From here to the end nothing awaits, so a signal comes before the lock is acquired or after this.
            fence, remaining = lease.fencing_token, lease.remaining
            ticket = portable(lease.detach())
            try:
                self._output.write(ticket, self._printed(ticket, fence))
                if self._arguments.json:
                    print(json.dumps({"name": lease.name, "fencing_token": fence, "remaining": remaining}), flush=True)
            except BaseException:
                await redlock.attach(ticket).release()
                raise
            self.done = True

    def _printed(self, ticket: str, fence: int | None) -> str:
        if not self._arguments.export:
            return ticket
        fencing = "unset REDLOCK_FENCING_TOKEN" if fence is None else f"export REDLOCK_FENCING_TOKEN={fence}"
        return f"export {VARIABLE}={shlex.quote(ticket)}\n{fencing}"
