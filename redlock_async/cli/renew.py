"""`renew`: extend the lease of a ticket."""

from __future__ import annotations

import argparse
import asyncio

import redlock_async
from redlock_async._rules.detached import Detached

from . import add_nodes
from ._client import query
from ._lock_options import duration
from ._ticket import add_ticket_file, read_ticket


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.description = (
        "Extend the lease of a ticket, so that it ends --ttl from now. It is never shortened. The exit status is 70 if "
        "the lease was lost, and 69 if too few nodes confirm it: then it still ends when it would have ended."
    )
    add_ticket_file(parser)
    parser.add_argument(
        "--ttl",
        type=duration,
        metavar="S",
        help="length of the lease from now on: seconds, or with a unit: 30s, 30m (default: as when it was acquired)",
    )
    add_nodes(parser)


def run(arguments: argparse.Namespace) -> int:
    """Extend the lease, and return the exit status."""
    ticket = read_ticket(arguments)
    query(arguments, lambda redlock: _renew(redlock, ticket, arguments.ttl))
    return 0


async def _renew(redlock: redlock_async.Redlock, ticket: Detached, ttl: float | None) -> None:
    wait = redlock._settings.options.wait  # noqa: SLF001 - the commands have the settings of the user's services
    lease = redlock.attach(ticket.write())
    try:
        async with asyncio.timeout(wait):
            await lease.extend(ttl)
    except TimeoutError:
        failed = {
            node.label: ConnectionError(node.error or "no reply") for node in await redlock.status() if node.error
        }
        causes = "".join(f"; {label}: {cause}" for label, cause in failed.items())
        raise redlock_async.QuorumUnavailable(
            f"could not renew the lock on {lease.name!r}: too few nodes confirmed it within {wait:g} s{causes}",
            names=lease.names,
            nodes=failed,
        ) from None
    finally:
        if not lease.lost:
            lease.detach()  # closing the client would release it
