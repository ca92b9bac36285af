"""`holds`: say whether the lease of a ticket is still held, and for how long. It changes nothing."""

# ruff: noqa: T201 - a command prints

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

import redlock_async
from redlock_async._rules.detached import Detached
from redlock_async._rules.lease_timing import validity

from . import add_nodes
from ._client import query
from ._lock_options import LOST
from ._messages import say
from ._terminal import sanitize
from ._ticket import add_ticket_file, read_ticket
from .inspect import exactly


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.description = (
        "Print for how many seconds the lease of a ticket is still held, rounded down. The exit status is 70 if it is "
        "not held, and 69 if too few nodes answer to say. This is a look at one moment: for a write that must not come "
        "late, pass the fencing token to the resource."
    )
    add_ticket_file(parser)
    parser.add_argument("--json", action="store_true", help="JSON instead of text; durations are in seconds")
    add_nodes(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the seconds left, and return the exit status."""
    ticket = read_ticket(arguments)
    remaining = query(arguments, lambda redlock: _remaining(redlock, ticket))
    name = ticket.names[0]
    if arguments.json:
        held = remaining > 0
        print(json.dumps({"name": name, "held": held, "fencing_token": ticket.fence, "remaining": max(remaining, 0.0)}))
    elif remaining > 0:
        print(int(remaining))
    else:
        say(f"{sanitize(name)} is not held with this ticket any more")
    return 0 if remaining > 0 else LOST


async def _remaining(redlock: redlock_async.Redlock, ticket: Detached) -> float:
    """Return for how many seconds the lease is valid; 0 if it is not held."""
    lease = redlock.attach(ticket.write())  # raises if the ticket is of another namespace
    records = [record for name in ticket.names for record in await redlock.list_locks(exactly(name))]
    ours = [record for record in records if record.token == lease.token]
    expected = {(name, slot) for name in ticket.names for slot in lease.slots or (None,)}
    gone = any(record.state in {"orphan", "expired"} for record in ours)
    if gone or {(record.name, record.slot) for record in ours} != expected:
        return 0.0
    _raise_if_unknown(ours)
    drift_factor = redlock._settings.drift_factor  # noqa: SLF001 - the commands have the settings of the user's services
    return validity(min(record.remaining or 0.0 for record in ours) - ticket.takeover_delay, drift_factor)


def _raise_if_unknown(records: Sequence[redlock_async.LockRecord]) -> None:
    """Raise QuorumUnavailable if nodes that do not answer could complete a quorum."""
    for record in records:
        if record.state == "partial":
            raise redlock_async.QuorumUnavailable(
                f"cannot say whether {record.name!r} is held: {record.votes} of {record.node_count} nodes report it, "
                f"{record.quorum} are needed, and not all nodes answered",
                names=(record.name,),
            )
