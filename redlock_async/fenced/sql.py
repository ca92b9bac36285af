"""The guard table and its statements for each dialect: PostgreSQL, SQLite, and MySQL or MariaDB.

The statement locks the row of a name until the end of the transaction and returns its token. A later transaction waits
for that row, and then sees everything that this one has written. The statement raises the token but never lowers it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from redlock_async._rules.settings import Duration, positive
from redlock_async.errors import ConfigurationError, short_repr

if TYPE_CHECKING:
    import sqlalchemy

LONGEST_NAME = 200
"""Bytes: every database can index as many. A register of a longer name is named by its hash."""

_ON_CONFLICT = (
    "INSERT INTO redlock_fences (name, token) VALUES ({0}, {1}) ON CONFLICT (name) DO UPDATE SET updated_at = "
    "CURRENT_TIMESTAMP, token = CASE WHEN redlock_fences.token > excluded.token THEN redlock_fences.token ELSE "
    "excluded.token END RETURNING token"
)

RAISE = {
    "postgresql": _ON_CONFLICT,
    "sqlite": _ON_CONFLICT,
    # MySQL has no RETURNING: LAST_INSERT_ID(n) makes n the cursor's lastrowid.
    "mysql": (
        "INSERT INTO redlock_fences (name, token) VALUES ({0}, LAST_INSERT_ID({1})) ON DUPLICATE KEY UPDATE updated_at "
        "= CURRENT_TIMESTAMP, token = LAST_INSERT_ID(GREATEST(token, {1}))"
    ),
}
"""Raise the token of a name, lock its row, and return the token. {0} and {1} stand for the parameters."""

CREATE = {
    "postgresql": (
        "CREATE TABLE IF NOT EXISTS redlock_fences (name varchar(200) NOT NULL PRIMARY KEY, token bigint NOT NULL, "
        "updated_at timestamptz NOT NULL DEFAULT CURRENT_TIMESTAMP)"
    ),
    "sqlite": (
        "CREATE TABLE IF NOT EXISTS redlock_fences (name varchar(200) NOT NULL PRIMARY KEY, token bigint NOT NULL, "
        "updated_at timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP)"
    ),
    # Binary, because a collation takes different names for the same one.
    "mysql": (
        "CREATE TABLE IF NOT EXISTS redlock_fences (name varbinary(200) NOT NULL PRIMARY KEY, token bigint NOT NULL, "
        "updated_at timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP) ENGINE=InnoDB"
    ),
}
"""Create the guard table, for plain drivers."""

PRUNE = {
    "postgresql": "DELETE FROM redlock_fences WHERE updated_at < CURRENT_TIMESTAMP - {0} * INTERVAL '1 second'",
    "sqlite": "DELETE FROM redlock_fences WHERE updated_at < datetime('now', '-' || {0} || ' seconds')",
    "mysql": "DELETE FROM redlock_fences WHERE updated_at < CURRENT_TIMESTAMP - INTERVAL {0} SECOND",
}
"""Delete the rows that no transaction has used for that many seconds, a parameter."""

READ_ONLY = {"postgresql": "SET TRANSACTION READ ONLY", "mysql": "START TRANSACTION READ ONLY"}
"""Reject all further writes of the transaction. SQLite has no such statement: `make_read_only`."""

NOT_IN_A_TRANSACTION = (
    "fence() was called outside a transaction: the connection is in autocommit mode, so the guard row would be "
    "unlocked before your own statements run. {begin}, and call fence() first in it"
)


def dialect_of(database: str) -> str:
    """Return which statements a database takes; raise ConfigurationError if there are none."""
    dialect = "mysql" if database == "mariadb" else database
    if dialect not in RAISE:
        raise ConfigurationError(
            f"fence() knows PostgreSQL, SQLite, MySQL and MariaDB, got a connection to {short_repr(database)}"
        )
    return dialect


def register(name: str) -> str:
    """Return the name of a lock as the guard table stores it: itself, or a hash of a name that is long or odd."""
    encoded = name.encode()
    if len(encoded) <= LONGEST_NAME and min(encoded) >= ord(" "):
        return name
    return f"sha256:{sha256(encoded).hexdigest()}"


def table(metadata: sqlalchemy.MetaData) -> sqlalchemy.Table:
    """Return the guard table in this metadata of SQLAlchemy, for `create_all` and for Alembic's autogenerate."""
    from sqlalchemy import TIMESTAMP, BigInteger, Column, String, Table, func  # noqa: PLC0415 - other drivers need no SQLAlchemy
    from sqlalchemy.dialects.mysql import VARBINARY  # noqa: PLC0415 - as above

    name = String(LONGEST_NAME).with_variant(VARBINARY(LONGEST_NAME), "mysql", "mariadb")
    updated_at = TIMESTAMP(timezone=True)
    return Table(
        "redlock_fences",
        metadata,
        Column("name", name, primary_key=True),
        Column("token", BigInteger, nullable=False),
        Column("updated_at", updated_at, nullable=False, server_default=func.current_timestamp()),
        mysql_engine="InnoDB",
    )


def seconds_of(older_than: Duration) -> int:
    """Return how long ago a row must have been used last to be deleted; raise ConfigurationError if that is unsafe."""
    seconds = positive("older_than", older_than)
    if seconds < timedelta(hours=1).total_seconds():
        raise ConfigurationError(
            f"older_than must be at least an hour, got {short_repr(older_than)}: a process that was paused for longer "
            "could write over a later holder's data. Use days"
        )
    return int(seconds)


CONFLICTS = {"40001", "40P01", "1213", "1020", "SQLITE_BUSY_SNAPSHOT"}
"""Serialization failures and deadlocks: PostgreSQL's, MySQL's and MariaDB's, SQLite's."""

TIMEOUTS = {"55P03", "1205", "SQLITE_BUSY"}
"""Another transaction did not end in time."""

NO_TABLE = {"42P01", "1146"}


@contextmanager
def explained(name: str) -> Iterator[None]:
    """Add a note to a database's error: what it means for the fence of this name, and what to do."""
    try:
        yield
    except Exception as exc:
        codes = {*_codes(exc)}
        if codes & CONFLICTS:
            exc.add_note(
                f"redlock_async: this is not a stale fence. Another transaction that fenced {name!r} has committed "
                "since this one began. Roll back and run the whole transaction again while the lease is valid, with "
                "fence() as its first statement. If a later holder has written, that raises StaleFence"
            )
        elif codes & TIMEOUTS:
            exc.add_note(
                f"redlock_async: this is not a stale fence. Another transaction holds the guard row of {name!r} (in "
                "SQLite: the database): perhaps an earlier holder was paused. Roll back and run the whole transaction "
                "again while the lease is valid"
            )
        elif codes & NO_TABLE:
            exc.add_note(
                "redlock_async: the guard table redlock_fences does not exist. Create it with "
                "redlock_async.fenced.sql.table(metadata) and Alembic, or execute redlock_async.fenced.sql.CREATE"
            )
        raise


def _codes(exc: BaseException) -> Iterator[str]:
    """Iterate over the error codes of an exception, of its causes, and of the exceptions that it wraps."""
    found: BaseException | None = exc
    while found is not None:
        yield from (str(getattr(found, name, "")) for name in ("sqlstate", "pgcode", "sqlite_errorname"))
        yield from map(str, found.args[:1])
        if isinstance(found, sqlite3.OperationalError) and "no such table: redlock_fences" in str(found):
            yield "42P01"
        wrapped = getattr(found, "orig", None)
        found = wrapped if isinstance(wrapped, BaseException) else found.__cause__


def make_read_only(connection: Any) -> Any:
    """Reject all further writes of this transaction of SQLite, and none of the next one. Await it with aiosqlite."""
    if not isinstance(connection, sqlite3.Connection):
        return connection._execute(make_read_only, connection._conn)  # noqa: SLF001 - in its thread; for tests only
    over = False

    def authorize(action: int, first: str | None, *_others: str | None) -> int:
        nonlocal over
        over = over or (action == sqlite3.SQLITE_TRANSACTION and first in {"COMMIT", "ROLLBACK"})
        writes = action in {sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_DELETE}
        return sqlite3.SQLITE_DENY if writes and not over else sqlite3.SQLITE_OK

    connection.set_authorizer(authorize)
    return None
