"""Fenced transactions with sqlite3 and aiosqlite. SQLite 3.35 or newer."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, overload

from redlock_async._rules.settings import Duration
from redlock_async.errors import ConfigurationError

from .check import Fence, Holder, fences_of, must_be_read_only
from .sql import NOT_IN_A_TRANSACTION, PRUNE, RAISE, explained, make_read_only, register, seconds_of

if TYPE_CHECKING:
    import aiosqlite

__all__ = ["fence", "prune"]

_RAISE = RAISE["sqlite"].format("?", "?")
_PRUNE = PRUNE["sqlite"].format("?")


@overload
def fence(connection: sqlite3.Connection, *leases: Holder) -> None: ...
@overload
def fence(connection: aiosqlite.Connection, *leases: Holder) -> Awaitable[None]: ...
def fence(connection: sqlite3.Connection | aiosqlite.Connection, *leases: Holder) -> Awaitable[None] | None:
    """Reject this transaction if a later holder has been here; call it first in the transaction.

    Takes a Lease, a Fence, or several. With aiosqlite, await it. Until the transaction ends, other writers of the
    database wait for it. Raises StaleFence, and ConfigurationError in autocommit mode without an explicit BEGIN.
    """
    fences = fences_of(*leases)
    if not isinstance(connection, sqlite3.Connection):
        return _fence(connection, fences)
    for each in fences:
        with explained(each.name):
            rows = connection.execute(_RAISE, (register(each.name), each.token)).fetchall()
        _check(each, rows, connection)
    if must_be_read_only():
        make_read_only(connection)
    return None


async def _fence(connection: aiosqlite.Connection, fences: list[Fence]) -> None:
    for each in fences:
        with explained(each.name):
            rows = await connection.execute_fetchall(_RAISE, (register(each.name), each.token))
        _check(each, [*rows], connection)
    if must_be_read_only():
        await make_read_only(connection)


def _check(fence: Fence, rows: list[Any], connection: sqlite3.Connection | aiosqlite.Connection) -> None:
    # The driver begins a transaction with the first statement that writes, unless it is in autocommit mode.
    if not connection.in_transaction:
        raise ConfigurationError(NOT_IN_A_TRANSACTION.format(begin='Begin one with execute("BEGIN IMMEDIATE")'))
    ((latest,),) = rows
    fence.check(latest)


@overload
def prune(connection: sqlite3.Connection, *, older_than: Duration) -> object: ...
@overload
def prune(connection: aiosqlite.Connection, *, older_than: Duration) -> Awaitable[object]: ...
def prune(connection: Any, *, older_than: Duration) -> Any:
    """Delete the rows of names that were not fenced for so long; more than any process may be paused."""
    return connection.execute(_PRUNE, (seconds_of(older_than),))
