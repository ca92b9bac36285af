"""Fenced transactions with SQLAlchemy 2: connections and sessions, asynchronous and synchronous."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, cast, overload

from sqlalchemy import Connection, text
from sqlalchemy.engine.default import DefaultDialect
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from sqlalchemy.orm import Session, scoped_session

from redlock_async._rules.settings import Duration
from redlock_async.errors import ConfigurationError

from . import sql
from .check import Fence, Holder, fences_of, must_be_read_only
from .required import require_fence

if not hasattr(DefaultDialect, "detect_autocommit_setting"):
    raise ImportError("redlock_async.fenced.sqlalchemy needs SQLAlchemy 2.0.43 or newer: pip install -U sqlalchemy")

__all__ = ["fence", "prune", "require_fence"]

Async = AsyncConnection | AsyncSession
Sync = Connection | Session | scoped_session[Any]
_AUTOCOMMIT = sql.NOT_IN_A_TRANSACTION.format(begin="Remove isolation_level='AUTOCOMMIT'")
_RAISE = {dialect: text(statement.format(":name", ":token")) for dialect, statement in sql.RAISE.items()}
_PRUNE = {dialect: text(statement.format(":seconds")) for dialect, statement in sql.PRUNE.items()}


@overload
def fence(connection: Async, *leases: Holder) -> Awaitable[None]: ...
@overload
def fence(connection: Sync, *leases: Holder) -> None: ...
def fence(connection: Async | Sync, *leases: Holder) -> Any:
    """Reject this transaction if a later holder has been here; call it first in the transaction.

    Takes a Lease, a Fence, or several. Await it with an AsyncConnection or AsyncSession. Until the transaction ends,
    other holders wait for it. Raises StaleFence, and ConfigurationError with `isolation_level="AUTOCOMMIT"`.
    """
    return _run(connection, _fence, fences_of(*leases))


def _run(connection: Async | Sync, function: Callable[[Sync, Any], None], argument: object) -> Any:
    if isinstance(connection, Async):
        return connection.run_sync(function, argument)
    return function(connection, argument)


def _fence(given: Sync, fences: list[Fence]) -> None:
    connection = given if isinstance(given, Connection) else given.connection()
    dialect, raw = sql.dialect_of(connection.dialect.name), cast(Any, connection.connection)
    if dialect != "sqlite" and connection.dialect.detect_autocommit_setting(raw.dbapi_connection):
        raise ConfigurationError(_AUTOCOMMIT)
    for each in fences:
        with sql.explained(each.name):
            result = connection.execute(_RAISE[dialect], {"name": sql.register(each.name), "token": each.token})
            latest = result.lastrowid if dialect == "mysql" else result.scalar_one()
        if dialect == "sqlite" and not raw.driver_connection.in_transaction:  # autocommit mode with a BEGIN is in one
            raise ConfigurationError(_AUTOCOMMIT)
        each.check(latest)
    if must_be_read_only():
        if dialect in sql.READ_ONLY:
            connection.execute(text(sql.READ_ONLY[dialect]))
        else:
            raw.run_async(sql.make_read_only) if connection.dialect.is_async else sql.make_read_only(
                raw.driver_connection
            )


def prune(connection: Async | Sync, *, older_than: Duration) -> Any:
    """Delete the rows of names that were not fenced for so long. Await it as `fence`."""
    return _run(connection, _prune, sql.seconds_of(older_than))


def _prune(given: Sync, seconds: int) -> None:
    connection = given if isinstance(given, Connection) else given.connection()
    connection.execute(_PRUNE[sql.dialect_of(connection.dialect.name)], {"seconds": seconds})
