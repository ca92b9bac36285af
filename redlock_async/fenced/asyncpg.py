"""Fenced transactions with asyncpg."""

from __future__ import annotations

from typing import Any, Protocol

from redlock_async._rules.settings import Duration
from redlock_async.errors import ConfigurationError

from .check import Holder, fences_of, must_be_read_only
from .sql import NOT_IN_A_TRANSACTION, PRUNE, RAISE, READ_ONLY, explained, register, seconds_of

__all__ = ["fence", "prune"]


class Connection(Protocol):
    """A connection of asyncpg, or one that its pool lends."""

    def is_in_transaction(self) -> bool: ...
    async def fetchval(self, query: str, *args: Any) -> Any: ...
    async def execute(self, query: str, *args: Any) -> str: ...


_RAISE = RAISE["postgresql"].format("$1", "$2")
_PRUNE = PRUNE["postgresql"].format("$1::bigint")


async def fence(connection: Connection, *leases: Holder) -> None:
    """Reject this transaction if a later holder has been here; call it first in `async with connection.transaction()`.

    Takes a Lease, a Fence, or several. Until the transaction ends, other holders wait for it. Raises StaleFence, and
    ConfigurationError outside a transaction.
    """
    if not connection.is_in_transaction():
        raise ConfigurationError(
            NOT_IN_A_TRANSACTION.format(begin="Begin one with `async with connection.transaction()`")
        )
    for each in fences_of(*leases):
        with explained(each.name):
            each.check(await connection.fetchval(_RAISE, register(each.name), each.token))
    if must_be_read_only():
        await connection.execute(READ_ONLY["postgresql"])


async def prune(connection: Connection, *, older_than: Duration) -> None:
    """Delete the rows of names that were not fenced for so long; more than any process may be paused."""
    await connection.execute(_PRUNE, seconds_of(older_than))
