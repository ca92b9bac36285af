"""An engine of SQLAlchemy that rejects unfenced writes, so forgetting fence() fails at the first one."""

from __future__ import annotations

import re
from typing import Any

from sqlalchemy import Connection, Engine, event
from sqlalchemy.ext.asyncio import AsyncEngine

from redlock_async.errors import ConfigurationError, short_repr

_WRITE = re.compile(
    r"\s*(?:INSERT|UPDATE|DELETE|MERGE|REPLACE)\s+(?:(?:OR\s+\w+|INTO|FROM|ONLY)\s+)*([^\s(]+)", re.IGNORECASE
)

_FENCED = "redlock_fenced"
"""Where a connection notes that its transaction is fenced."""


def require_fence(engine: Engine | AsyncEngine, *tables: str) -> None:
    """Reject statements that change these tables in a transaction without fence().

    Call it once for each engine. Such a statement then raises ConfigurationError. It sees statements that begin with
    INSERT, UPDATE, DELETE, MERGE or REPLACE, of the ORM, the Core and `text()`; not those of triggers and functions.
    """
    if not tables:
        raise ConfigurationError("require_fence needs the names of tables: require_fence(engine, 'articles')")
    guarded = {_plain(table) for table in tables}

    def begin(connection: Connection) -> None:
        connection.info.pop(_FENCED, None)

    def check(connection: Connection, _cursor: object, statement: str, *_others: Any) -> None:
        table = _plain(found[1]) if (found := _WRITE.match(statement)) else ""
        if table == "redlock_fences":
            connection.info[_FENCED] = True
        elif table in guarded and _FENCED not in connection.info:
            raise ConfigurationError(
                f"the table {short_repr(table)} is changed in a transaction without fence(). Call `await "
                "fence(session, lease)` first in this transaction, with fence from redlock_async.fenced.sqlalchemy"
            )

    synchronous = engine.sync_engine if isinstance(engine, AsyncEngine) else engine
    event.listen(synchronous, "begin", begin)
    event.listen(synchronous, "before_cursor_execute", check)


def _plain(table: str) -> str:
    """Return the name of a table without its schema and quotes."""
    return table.rpartition(".")[2].strip('"`[]').lower()
