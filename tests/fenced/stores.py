"""One counter in a database, written through each adapter: for the tests of fences and the programs that prove them.

A transaction reads the counter, writes it back increased by one, and logs that. If it overwrites another one, the log
has more entries than the counter counts.
"""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from redlock_async.fenced import sql

TABLES = {
    "postgresql": "id bigserial PRIMARY KEY",
    "sqlite": "id integer PRIMARY KEY AUTOINCREMENT",
    "mysql": "id bigint AUTO_INCREMENT PRIMARY KEY",
}
READ = "SELECT n FROM counter"
WRITE = "UPDATE counter SET n = {0}"
LOG = "INSERT INTO written (n, token) VALUES ({0}, {1})"
VERDICT = "SELECT n, token FROM written ORDER BY id"


def tables(dialect):
    """The statements that create the tables."""
    yield sql.CREATE[dialect]
    yield "CREATE TABLE counter (n bigint)" + (" ENGINE=InnoDB" if dialect == "mysql" else "")
    yield f"CREATE TABLE written ({TABLES[dialect]}, n bigint, token bigint)"
    yield "INSERT INTO counter VALUES (0)"


async def nothing():
    """Go on at once."""


class Store:
    """What all of them can do: `add` in a transaction, with a pause between the read and the write."""

    dialect = "postgresql"
    isolation = None

    def __init__(self, url, isolation=None):
        self.url = url
        if isolation is not None:
            self.isolation = isolation

    async def open(self):
        """Connect."""

    async def close(self):
        """Disconnect."""

    async def add(
        self, lease, *, pause: Callable[[], Awaitable[None]] = nothing, fenced=True, apart=False, autocommit=False
    ):
        """Add one. `fenced` in the same transaction, or `apart` from it, or not at all."""
        raise NotImplementedError


class Asyncpg(Store):
    """asyncpg."""

    async def open(self):
        import asyncpg  # noqa: PLC0415 - each store imports its own driver

        self.connection = await asyncpg.connect(self.url)

    async def close(self):
        await self.connection.close()

    async def add(self, lease, *, pause=nothing, fenced=True, apart=False, autocommit=False):
        from redlock_async.fenced.asyncpg import fence  # noqa: PLC0415 - as above

        connection = self.connection
        if apart:
            async with connection.transaction():
                await fence(connection, lease)
        if autocommit:
            await fence(connection, lease)
        async with connection.transaction(isolation=self.isolation):
            if fenced and not apart:
                await fence(connection, lease)
            n = await connection.fetchval(READ)
            await pause()
            await connection.execute(WRITE.format("$1::bigint"), n + 1)
            await connection.execute(LOG.format("$1::bigint", "$2::bigint"), n + 1, lease.fencing_token)


class Psycopg(Store):
    """psycopg, asynchronous."""

    async def open(self):
        import psycopg  # noqa: PLC0415 - as above

        self.connection = await psycopg.AsyncConnection.connect(self.url)
        if self.isolation:
            await self.connection.set_isolation_level(psycopg.IsolationLevel[self.isolation.upper()])

    async def close(self):
        await self.connection.close()

    async def add(self, lease, *, pause=nothing, fenced=True, apart=False, autocommit=False):
        from redlock_async.fenced.psycopg import fence  # noqa: PLC0415 - as above

        connection = self.connection
        if apart:
            async with connection.transaction():
                await fence(connection, lease)
        if autocommit:
            await connection.set_autocommit(True)
            await fence(connection, lease)
        async with connection.transaction():
            if fenced and not apart:
                await fence(connection, lease)
            (n,) = await (await connection.execute(READ)).fetchone()
            await pause()
            await connection.execute(WRITE.format("%s"), (n + 1,))
            await connection.execute(LOG.format("%s", "%s"), (n + 1, lease.fencing_token))


class Aiosqlite(Store):
    """aiosqlite, with the driver's own transaction control."""

    dialect = "sqlite"

    async def open(self):
        import aiosqlite  # noqa: PLC0415 - as above

        self.connection = await aiosqlite.connect(self.url, timeout=self.isolation or 30)
        await self.connection.execute("PRAGMA synchronous = OFF")

    async def close(self):
        await self.connection.close()

    async def add(self, lease, *, pause=nothing, fenced=True, apart=False, autocommit=False):
        from redlock_async.fenced.sqlite import fence  # noqa: PLC0415 - as above

        connection = self.connection
        if apart:
            await fence(connection, lease)
            await connection.commit()
        if autocommit:
            import aiosqlite  # noqa: PLC0415 - as above

            async with aiosqlite.connect(self.url, isolation_level=None) as other:
                await fence(other, lease)
        try:
            if fenced and not apart:
                await fence(connection, lease)
            ((n,),) = await connection.execute_fetchall(READ)
            await pause()
            await connection.execute(WRITE.format("?"), (n + 1,))
            await connection.execute(LOG.format("?", "?"), (n + 1, lease.fencing_token))
            await connection.commit()
        finally:
            await connection.rollback()


class SqlalchemyAsync(Store):
    """SQLAlchemy, asynchronous, on any driver; a session of the ORM."""

    async def open(self):
        from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine  # noqa: PLC0415 - as above

        options = {"isolation_level": self.isolation.upper().replace("_", " ")} if self.isolation else {}
        if self.dialect == "sqlite":
            options = {"connect_args": {"timeout": 30}}
        self.engine = create_async_engine(self.url, **options)
        self.dialect = "mysql" if self.engine.dialect.name == "mariadb" else self.engine.dialect.name
        self.session = AsyncSession

    async def close(self):
        await self.engine.dispose()

    async def add(self, lease, *, pause=nothing, fenced=True, apart=False, autocommit=False):
        from sqlalchemy import text  # noqa: PLC0415 - as above

        from redlock_async.fenced.sqlalchemy import fence  # noqa: PLC0415 - as above

        engine = self.engine.execution_options(isolation_level="AUTOCOMMIT") if autocommit else self.engine
        if apart:
            async with engine.begin() as connection:
                await fence(connection, lease)
        async with self.session(engine) as session, session.begin():
            if fenced and not apart:
                await fence(session, lease)
            n = await session.scalar(text(READ))
            await pause()
            await session.execute(text(WRITE.format(":n")), {"n": n + 1})
            await session.execute(text(LOG.format(":n", ":t")), {"n": n + 1, "t": lease.fencing_token})


class SqlalchemyAiosqlite(SqlalchemyAsync):
    """The same on SQLite."""

    dialect = "sqlite"


class InThread(Store):
    """A synchronous driver: all its work is done in one thread."""

    async def open(self):
        self.thread = ThreadPoolExecutor(1)
        await self._run(self._open)

    async def close(self):
        await self._run(self._close)
        self.thread.shutdown()

    async def _run(self, function, *arguments):
        return await asyncio.get_running_loop().run_in_executor(self.thread, function, *arguments)

    async def add(self, lease, *, pause=nothing, fenced=True, apart=False, autocommit=False):
        loop = asyncio.get_running_loop()

        def wait():
            if pause is not nothing:
                asyncio.run_coroutine_threadsafe(pause(), loop).result()

        import contextvars  # noqa: PLC0415 - only here

        context = contextvars.copy_context()
        await self._run(lambda: context.run(self.add_sync, lease, wait, fenced, apart, autocommit))

    def _open(self):
        raise NotImplementedError

    def _close(self):
        self.connection.close()

    def add_sync(self, lease, wait=lambda: None, fenced=True, apart=False, autocommit=False):  # noqa: FBT002 - as in `add`
        """Add one, in the thread that has opened it."""
        raise NotImplementedError


class Sqlite3(InThread):
    """sqlite3, with the driver's own transaction control."""

    dialect = "sqlite"

    def _open(self):
        self.connection = sqlite3.connect(self.url, timeout=self.isolation or 30)
        self.connection.execute("PRAGMA synchronous = OFF")

    def add_sync(self, lease, wait=lambda: None, fenced=True, apart=False, autocommit=False):  # noqa: FBT002 - as in `add`
        from redlock_async.fenced.sqlite import fence  # noqa: PLC0415 - as above

        connection = self.connection
        if apart:
            with connection:
                fence(connection, lease)
        if autocommit:
            connection.isolation_level = None
            fence(connection, lease)
        with connection:
            if fenced and not apart:
                fence(connection, lease)
            ((n,),) = connection.execute(READ)
            wait()
            connection.execute(WRITE.format("?"), (n + 1,))
            connection.execute(LOG.format("?", "?"), (n + 1, lease.fencing_token))


class PsycopgSync(InThread):
    """psycopg, synchronous, in autocommit mode with explicit transactions; rows as mappings."""

    def _open(self):
        import psycopg  # noqa: PLC0415 - as above
        from psycopg.rows import dict_row  # noqa: PLC0415 - as above

        self.connection = psycopg.connect(self.url, autocommit=True, row_factory=dict_row)

    def add_sync(self, lease, wait=lambda: None, fenced=True, apart=False, autocommit=False):  # noqa: FBT002 - as in `add`
        from redlock_async.fenced.psycopg import fence  # noqa: PLC0415 - as above

        connection = self.connection
        if apart:
            with connection.transaction():
                fence(connection, lease)
        if autocommit:
            fence(connection, lease)
        with connection.transaction():
            if fenced and not apart:
                fence(connection, lease)
            n = connection.execute(READ).fetchone()["n"]
            wait()
            connection.execute(WRITE.format("%s"), (n + 1,))
            connection.execute(LOG.format("%s", "%s"), (n + 1, lease.fencing_token))


class SqlalchemySync(InThread):
    """SQLAlchemy, synchronous, on any driver; a connection of the Core."""

    def _open(self):
        from sqlalchemy import create_engine  # noqa: PLC0415 - as above

        sqlite = self.url.startswith("sqlite")
        self.engine = create_engine(self.url, **({"connect_args": {"timeout": 30}} if sqlite else {}))
        self.dialect = "mysql" if self.engine.dialect.name == "mariadb" else self.engine.dialect.name

    def _close(self):
        self.engine.dispose()

    def add_sync(self, lease, wait=lambda: None, fenced=True, apart=False, autocommit=False):  # noqa: FBT002 - as in `add`
        from sqlalchemy import text  # noqa: PLC0415 - as above

        from redlock_async.fenced.sqlalchemy import fence  # noqa: PLC0415 - as above

        engine = self.engine.execution_options(isolation_level="AUTOCOMMIT") if autocommit else self.engine
        if apart:
            with engine.begin() as connection:
                fence(connection, lease)
        with engine.begin() as connection:
            if fenced and not apart:
                fence(connection, lease)
            n = connection.scalar(text(READ))
            wait()
            connection.execute(text(WRITE.format(":n")), {"n": n + 1})
            connection.execute(text(LOG.format(":n", ":t")), {"n": n + 1, "t": lease.fencing_token})


class SqlalchemySqlite(SqlalchemySync):
    """The same on SQLite."""

    dialect = "sqlite"


class Django(InThread):
    """Django, without an application: only its connections."""

    alias = "default"

    def _open(self):
        from django.db import connections  # noqa: PLC0415 - as above

        configure_django()
        connections.databases[self.alias] = self.settings()
        connections.configure_settings(connections.databases)
        self.connection = connections[self.alias]

    def settings(self):
        """This database, as Django names it."""
        folder = dict(pair.split("=") for pair in urlsplit(self.url).query.split("&"))["host"]
        return {"ENGINE": "django.db.backends.postgresql", "NAME": "postgres", "USER": "postgres", "HOST": folder}

    def add_sync(self, lease, wait=lambda: None, fenced=True, apart=False, autocommit=False):  # noqa: FBT002 - as in `add`
        from django.db import transaction  # noqa: PLC0415 - as above

        from redlock_async.fenced.django import fence  # noqa: PLC0415 - as above

        connection = self.connection
        if apart:
            with transaction.atomic(using=self.alias):
                fence(connection, lease)
        if autocommit:
            fence(connection, lease)
        with transaction.atomic(using=self.alias), connection.cursor() as cursor:
            if fenced and not apart:
                fence(connection, lease)
            cursor.execute(READ)
            ((n,),) = cursor.fetchall()
            wait()
            cursor.execute(WRITE.format("%s"), (n + 1,))
            cursor.execute(LOG.format("%s", "%s"), (n + 1, lease.fencing_token))


class DjangoSqlite(Django):
    """The same on SQLite."""

    dialect = "sqlite"
    alias = "sqlite"

    def settings(self):
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": self.url, "OPTIONS": {"timeout": 30}}


def configure_django():
    """Prepare Django, once in a process."""
    from django.conf import settings  # noqa: PLC0415 - as above

    if not settings.configured:
        settings.configure(DATABASES={}, INSTALLED_APPS=[], USE_TZ=True)
        import django  # noqa: PLC0415 - as above

        django.setup()


STORES = {
    "asyncpg": Asyncpg,
    "psycopg": Psycopg,
    "psycopg-sync": PsycopgSync,
    "sqlalchemy-asyncpg": SqlalchemyAsync,
    "sqlalchemy-psycopg": SqlalchemyAsync,
    "sqlalchemy-psycopg-sync": SqlalchemySync,
    "sqlalchemy-aiomysql": SqlalchemyAsync,
    "sqlalchemy-pymysql": SqlalchemySync,
    "sqlalchemy-aiosqlite": SqlalchemyAiosqlite,
    "sqlalchemy-sqlite-sync": SqlalchemySqlite,
    "django": Django,
    "django-sqlite": DjangoSqlite,
    "sqlite3": Sqlite3,
    "aiosqlite": Aiosqlite,
}


def dialect_of(name):
    """The database of a store."""
    return "mysql" if "mysql" in name else "sqlite" if "sqlite" in name else "postgresql"


def url_of(name, database):
    """The URL for a store; `database` is PostgreSQL's URL, the path of a file, or MariaDB's socket."""
    if name == "sqlalchemy-aiomysql" or name == "sqlalchemy-pymysql":  # noqa: PLR1714 - two lines would hide it
        return f"mysql+{name.partition('-')[2]}://root@/redlock?unix_socket={database}"
    if name.startswith("sqlalchemy") and "sqlite" in name:
        return f"sqlite+aiosqlite:///{database}" if "aiosqlite" in name else f"sqlite:///{database}"
    if name.startswith("sqlalchemy"):
        driver = name.split("-")[1]
        return database.replace("postgresql://postgres:@", f"postgresql+{driver}://postgres@")
    return database


@asynccontextmanager
async def opened(name, database, isolation=None):
    """A store that is open."""
    store = STORES[name](url_of(name, database), isolation)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def connect(dialect, database):
    """A plain synchronous connection in autocommit mode."""
    if dialect == "sqlite":
        return sqlite3.connect(database, isolation_level=None, timeout=30)
    if dialect == "mysql":
        import pymysql  # noqa: PLC0415 - as above

        connection = pymysql.connect(unix_socket=database, user="root", autocommit=True)
        connection.cursor().execute("CREATE DATABASE IF NOT EXISTS redlock")
        connection.select_db("redlock")
        return connection
    import psycopg  # noqa: PLC0415 - as above

    return psycopg.connect(database, autocommit=True)


def create(dialect, database):
    """Create all tables anew."""
    connection = connect(dialect, database)
    cursor = connection.cursor()
    for table in ("redlock_fences", "counter", "written"):
        cursor.execute(f"DROP TABLE IF EXISTS {table}")
    if dialect == "sqlite":
        cursor.execute("PRAGMA journal_mode = WAL")
    for statement in tables(dialect):
        cursor.execute(statement)
    connection.close()


def verdict(dialect, database):
    """How many writes there were, how many of them were lost, and how many came after a later holder's."""
    connection = connect(dialect, database)
    cursor = connection.cursor()
    cursor.execute(READ)
    ((counted,),) = cursor.fetchall()
    cursor.execute(VERDICT)
    rows = cursor.fetchall()
    connection.close()
    latest, late = 0, 0
    for _, token in rows:
        late += token < latest
        latest = max(latest, token)
    return len(rows), len(rows) - counted, late
