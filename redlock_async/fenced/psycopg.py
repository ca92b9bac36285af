"""Fenced transactions with psycopg 3, asynchronous and synchronous."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator
from typing import Any, overload

import psycopg
from psycopg.pq import TransactionStatus

from redlock_async._rules.settings import Duration
from redlock_async.errors import ConfigurationError

from .check import Fence, Holder, fences_of, must_be_read_only
from .sql import NOT_IN_A_TRANSACTION, PRUNE, RAISE, READ_ONLY, explained, register, seconds_of

__all__ = ["fence", "prune"]

_RAISE = RAISE["postgresql"].format("%s", "%s").encode()
_PRUNE = PRUNE["postgresql"].format("%s::bigint").encode()
_READ_ONLY = READ_ONLY["postgresql"].encode()


@overload
def fence(connection: psycopg.AsyncConnection[Any], *leases: Holder) -> Awaitable[None]: ...
@overload
def fence(connection: psycopg.Connection[Any], *leases: Holder) -> None: ...
def fence(
    connection: psycopg.AsyncConnection[Any] | psycopg.Connection[Any], *leases: Holder
) -> Awaitable[None] | None:
    """Reject this transaction if a later holder has been here; call it first in the transaction.

    Takes a Lease, a Fence, or several. With an AsyncConnection, await it. Until the transaction ends, other holders
    wait for it. Raises StaleFence, and ConfigurationError in autocommit mode outside `connection.transaction()`.
    """
    if connection.autocommit and connection.info.transaction_status is TransactionStatus.IDLE:
        raise ConfigurationError(NOT_IN_A_TRANSACTION.format(begin="Begin one with `connection.transaction()`"))
    fences = fences_of(*leases)
    if isinstance(connection, psycopg.AsyncConnection):
        return _fence(connection, fences)
    for each in fences:
        with explained(each.name):
            each.check(_latest(connection.execute(_RAISE, (register(each.name), each.token)).fetchone()))
    if must_be_read_only():
        connection.execute(_READ_ONLY)
    return None


async def _fence(connection: psycopg.AsyncConnection[Any], fences: list[Fence]) -> None:
    for each in fences:
        with explained(each.name):
            cursor = await connection.execute(_RAISE, (register(each.name), each.token))
            each.check(_latest(await cursor.fetchone()))
    if must_be_read_only():
        await connection.execute(_READ_ONLY)


def _latest(row: Any) -> int:
    """Return the token in a row, whatever the connection's row factory makes of it."""
    values: Iterator[Any] = iter(row.values() if isinstance(row, dict) else row)
    return int(next(values))


@overload
def prune(connection: psycopg.AsyncConnection[Any], *, older_than: Duration) -> Awaitable[object]: ...
@overload
def prune(connection: psycopg.Connection[Any], *, older_than: Duration) -> object: ...
def prune(connection: Any, *, older_than: Duration) -> Any:
    """Delete the rows of names that were not fenced for so long; more than any process may be paused."""
    return connection.execute(_PRUNE, (seconds_of(older_than),))
