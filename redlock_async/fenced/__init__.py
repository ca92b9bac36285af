"""Checks of the fencing token at the resource: a write is rejected if a later holder of the lock has been there.

    from redlock_async.fenced.sqlalchemy import fence  # or .asyncpg .psycopg .sqlite .django .redis

    async with redlock("orders:42") as lease:
        async with engine.begin() as connection:
            await fence(connection, lease)  # the first statement of the transaction
            await connection.execute(...)

Each adapter imports its own driver. `redlock_async.fenced.sql` has the statements and the guard table, and
`redlock_async.fenced.http` takes a fence to another service. The rest of the library does not depend on this package.
"""

from redlock_async.errors import StaleFence as StaleFence

from .check import Fence as Fence

__all__ = ["Fence", "StaleFence"]
