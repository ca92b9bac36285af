"""Fenced transactions with Django, on PostgreSQL, SQLite, MySQL or MariaDB."""

from __future__ import annotations

from typing import Any

from django.db import migrations  # type: ignore[import-untyped] # Django has no annotations

from redlock_async._rules.settings import Duration
from redlock_async.errors import ConfigurationError

from . import sql
from .check import Holder, fences_of, must_be_read_only

__all__ = ["create_table", "fence", "prune"]

# Each parameter of the statement for MySQL occurs twice.
_RAISE = {dialect: statement.format("%(name)s", "%(token)s") for dialect, statement in sql.RAISE.items()}


def fence(connection: Any, *leases: Holder) -> None:
    """Reject this transaction if a later holder has been here; call it first in `with transaction.atomic()`.

    Takes `django.db.connection` or one of `connections`, and a Lease, a Fence, or several. Until the outermost
    transaction ends, other holders wait for it. Raises StaleFence, and ConfigurationError outside a transaction.
    """
    if connection.get_autocommit():
        raise ConfigurationError(sql.NOT_IN_A_TRANSACTION.format(begin="Begin one with `with transaction.atomic()`"))
    dialect = sql.dialect_of(connection.vendor)
    with connection.cursor() as cursor:
        for each in fences_of(*leases):
            with sql.explained(each.name):
                cursor.execute(_RAISE[dialect], {"name": sql.register(each.name), "token": each.token})
                latest = cursor.lastrowid if dialect == "mysql" else cursor.fetchone()[0]
            each.check(latest)
        if must_be_read_only():
            if dialect in sql.READ_ONLY:
                cursor.execute(sql.READ_ONLY[dialect])
            else:
                sql.make_read_only(connection.connection)


def prune(connection: Any, *, older_than: Duration) -> None:
    """Delete the rows of names that were not fenced for so long; more than any process may be paused."""
    with connection.cursor() as cursor:
        cursor.execute(sql.PRUNE[sql.dialect_of(connection.vendor)].format("%s"), [sql.seconds_of(older_than)])


def create_table() -> Any:
    """Return the operation of a migration that creates the guard table: `operations = [create_table()]`."""
    return migrations.RunPython(
        lambda _, editor: editor.execute(sql.CREATE[sql.dialect_of(editor.connection.vendor)]),
        lambda _, editor: editor.execute("DROP TABLE redlock_fences"),
    )
