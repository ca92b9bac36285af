"""What differs between databases: isolation levels, errors that are no stale fences, tables, pruning."""

import asyncio
import sqlite3
import sys

import pytest
import sqlalchemy
from stores import connect, create, opened, verdict
from test_adapters import Holder

from redlock_async import ConfigurationError, StaleFence
from redlock_async.fenced import Fence, sql

POSTGRES = ["asyncpg", "psycopg", "sqlalchemy-asyncpg"]
LEVELS = ["read_committed", "repeatable_read", "serializable"]


def notes(error):
    """What we have added to a database's error."""
    return "".join(getattr(error, "__notes__", ()))


@pytest.mark.asyncio
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("adapter", POSTGRES)
async def test_a_paused_transaction_is_never_overwritten(postgres_url, adapter, level):
    """The later holder waits for it; then it goes on, or fails with what to do, and its retry goes on."""
    create("postgresql", postgres_url)
    passed, resume = asyncio.Event(), asyncio.Event()

    async def pause():
        passed.set()
        await resume.wait()

    async with opened(adapter, postgres_url, level) as early, opened(adapter, postgres_url, level) as later:
        first = asyncio.create_task(early.add(Holder(10), pause=pause))
        await passed.wait()
        second = asyncio.create_task(later.add(Holder(11)))
        with connect("postgresql", postgres_url) as eyes:
            waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted"
            while eyes.execute(waiting).fetchone() != (1,):
                assert not second.done()
                await asyncio.sleep(0.01)
        resume.set()
        await first
        if level == "read_committed":
            await second
        else:
            with pytest.raises(Exception, match="could not serialize access") as conflict:
                await second
            assert not isinstance(conflict.value, StaleFence)
            assert "this is not a stale fence" in notes(conflict.value)
            assert "run the whole transaction again while the lease is valid" in notes(conflict.value)
            await later.add(Holder(11))
        with pytest.raises(StaleFence):
            await early.add(Holder(10))
    assert verdict("postgresql", postgres_url) == (2, 0, 0)


@pytest.mark.asyncio
async def test_two_transactions_with_several_names_do_not_deadlock(postgres_url):
    """They lock the rows in the order of the names, however the leases name them."""
    from sqlalchemy.ext.asyncio import create_async_engine  # noqa: PLC0415 - only here

    from redlock_async.fenced.sqlalchemy import fence  # noqa: PLC0415 - as above

    create("postgresql", postgres_url)
    engine = create_async_engine(postgres_url.replace("postgresql://postgres:@", "postgresql+asyncpg://postgres@"))

    async def work(*names):
        for _ in range(50):
            async with engine.begin() as connection:
                await fence(connection, *(Fence(name, 5) for name in names))

    await asyncio.gather(work("a", "b", "c"), work("c", "b", "a"), work("b", "c", "a"))
    await engine.dispose()


def test_sqlite_tells_a_busy_database_from_a_stale_fence(tmp_path):
    """A transaction that has read first cannot be upgraded after another one has written."""
    from redlock_async.fenced.sqlite import fence  # noqa: PLC0415 - only here

    path = str(tmp_path / "data.sqlite")
    create("sqlite", path)
    one = sqlite3.connect(path, timeout=0.05, isolation_level=None)
    other = sqlite3.connect(path, timeout=0.05)
    fence(other, Fence("a", 6))
    one.execute("BEGIN")
    with pytest.raises(sqlite3.OperationalError, match="locked") as busy:
        fence(one, Fence("a", 5))
    assert "Another transaction holds the guard row of 'a' (in SQLite: the database)" in notes(busy.value)
    other.rollback()
    one.execute("SELECT * FROM counter").fetchall()
    fence(other, Fence("a", 6))
    other.commit()
    with pytest.raises(sqlite3.OperationalError, match="locked") as late:
        fence(one, Fence("a", 5))
    assert "with fence() as its first statement" in notes(late.value)
    one.execute("ROLLBACK")
    one.execute("BEGIN IMMEDIATE")
    with pytest.raises(StaleFence):
        fence(one, Fence("a", 5))
    one.close()
    other.close()


@pytest.mark.parametrize("place", ["sqlite", "postgresql", "mysql"])
def test_a_missing_table_says_how_to_create_it_and_sqlalchemy_creates_it(place, request, tmp_path):
    """`table(metadata)` has what the plain statement has, for each dialect; pruning spares what is in use."""
    from redlock_async.fenced.sqlalchemy import fence, prune  # noqa: PLC0415 - only here

    if place == "sqlite":
        database, url = tmp_path / "data.sqlite", f"sqlite:///{tmp_path / 'data.sqlite'}"
    elif place == "postgresql":
        database = request.getfixturevalue("postgres_url")
        url = database.replace("postgresql://postgres:@", "postgresql+psycopg://postgres@")
    else:
        database = request.getfixturevalue("mariadb_socket")
        url = f"mysql+pymysql://root@/redlock?unix_socket={database}"
    create(place, database)
    plain = connect(place, database)
    plain.cursor().execute("DROP TABLE redlock_fences")
    engine = sqlalchemy.create_engine(url)
    with pytest.raises(sqlalchemy.exc.DBAPIError) as missing, engine.begin() as connection:
        fence(connection, Fence("a", 5))
    assert "the guard table redlock_fences does not exist. Create it with" in notes(missing.value)
    metadata = sqlalchemy.MetaData()
    guard = sql.table(metadata)
    metadata.create_all(engine)
    names = ("a", "A", "a ", "\N{SNOWMAN}", "x" * 3000, "a\0")
    for token in (5, 6):
        with engine.begin() as connection:
            fence(connection, *(Fence(name, token) for name in names))
    with engine.begin() as connection:
        assert connection.scalar(sqlalchemy.select(sqlalchemy.func.count()).select_from(guard)) == len(names)
        old = {"sqlite": "datetime('now', '-3 hours')", "postgresql": "now() - interval '3 hours'"}.get(
            place, "now() - interval 3 hour"
        )
        connection.execute(sqlalchemy.text(f"UPDATE redlock_fences SET updated_at = {old} WHERE token = 6"))  # noqa: S608 - our own
        fence(connection, Fence("a", 7))
        prune(connection, older_than=7200)
        assert connection.scalars(sqlalchemy.select(guard.c.token)).all() == [7]
    engine.dispose()
    plain.close()


def test_an_unknown_database_is_refused():
    """Before anything is sent."""
    with pytest.raises(ConfigurationError, match="knows PostgreSQL, SQLite, MySQL and MariaDB, got"):
        sql.dialect_of("oracle")


def test_require_fence_rejects_forgotten_fences(tmp_path):
    """Of the Core, the ORM and text; other tables are free, and so is the next transaction of a fenced one not."""
    from redlock_async.fenced.sqlalchemy import fence, require_fence  # noqa: PLC0415 - only here

    create("sqlite", str(tmp_path / "data.sqlite"))
    engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path / 'data.sqlite'}")
    with pytest.raises(ConfigurationError, match="needs the names of tables"):
        require_fence(engine)
    require_fence(engine, "public.counter")
    counter = sqlalchemy.table("counter", sqlalchemy.column("n"))
    forgotten = [
        sqlalchemy.update(counter).values(n=1), sqlalchemy.insert(counter).values(n=1), sqlalchemy.delete(counter),
        sqlalchemy.text('  UPDATE main."counter" SET n = 1'),
        sqlalchemy.text("insert or ignore into counter(n) values (1)"),
    ]  # fmt: skip
    for statement in forgotten:
        refused = pytest.raises(ConfigurationError, match="'counter' is changed in a transaction without fence")
        with refused, engine.begin() as connection:
            connection.execute(statement)
        with engine.begin() as connection:
            connection.execute(sqlalchemy.text("INSERT INTO written (n) VALUES (1)"))
        with engine.begin() as connection:
            fence(connection, Fence("a", 5))
            connection.execute(statement)
    engine.dispose()


def test_the_migration_of_django_creates_the_table_and_removes_it(tmp_path):
    """Its operation runs for the database that is migrated; `prune` has its statement."""
    from django.db import connections, migrations  # noqa: PLC0415 - only here
    from django.db.migrations.state import ProjectState  # noqa: PLC0415 - as above
    from stores import configure_django  # noqa: PLC0415 - as above

    from redlock_async.fenced.django import create_table, fence, prune  # noqa: PLC0415 - as above

    configure_django()
    connections.databases["migrated"] = {
        "ENGINE": "django.db.backends.sqlite3", "NAME": str(tmp_path / "data.sqlite"),
    }  # fmt: skip
    connections.configure_settings(connections.databases)
    connection = connections["migrated"]
    migration = type("Migration", (migrations.Migration,), {"operations": [create_table()]})("0001", "shop")
    with connection.schema_editor() as editor:
        migration.apply(ProjectState(), editor)
    from django.db import transaction  # noqa: PLC0415 - as above

    with transaction.atomic(using="migrated"):
        fence(connection, Fence("a", 5))
    prune(connection, older_than=3600)
    assert connection.introspection.table_names() == ["redlock_fences"]
    with connection.schema_editor() as editor:
        migration.unapply(ProjectState(), editor)
    assert connection.introspection.table_names() == []
    connection.close()


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sqlite3 has the attribute autocommit since Python 3.12")
@pytest.mark.parametrize("autocommit", [True, False])
def test_the_autocommit_attribute_of_sqlite3(tmp_path, autocommit):
    """PEP 249's way of transaction control: always in a transaction, or only after BEGIN."""
    from redlock_async.fenced.sqlite import fence  # noqa: PLC0415 - only here

    create("sqlite", str(tmp_path / "data.sqlite"))
    connection = sqlite3.connect(tmp_path / "data.sqlite", autocommit=autocommit)
    if autocommit:
        with pytest.raises(ConfigurationError, match="autocommit mode"):
            fence(connection, Fence("a", 5))
        connection.execute("BEGIN IMMEDIATE")
    fence(connection, Fence("a", 6))
    with pytest.raises(StaleFence):
        fence(connection, Fence("a", 4))
    connection.execute("COMMIT") if autocommit else connection.commit()
    connection.close()


def test_a_fence_is_one_statement(tmp_path):
    """One for each name, and nothing else but the BEGIN that any first write has."""
    from redlock_async.fenced.sqlite import fence  # noqa: PLC0415 - only here

    create("sqlite", str(tmp_path / "data.sqlite"))
    connection, sent = sqlite3.connect(tmp_path / "data.sqlite"), []
    connection.set_trace_callback(sent.append)
    fence(connection, Fence("a", 5))
    assert [statement.split()[0] for statement in sent] == ["BEGIN", "INSERT"]
    fence(connection, Fence("b", 5), Fence("a", 5))
    assert [statement.split()[0] for statement in sent[2:]] == ["INSERT", "INSERT"]
    connection.close()


@pytest.mark.parametrize("place", ["postgresql", "mysql"])
def test_names_do_not_wait_for_each_other(place, request):
    """Open transactions of neighbouring names, new ones and known ones: no lock of a gap comes between them."""
    from redlock_async.fenced.sqlalchemy import fence  # noqa: PLC0415 - only here

    if place == "postgresql":
        database = request.getfixturevalue("postgres_url")
        url, timeout = (
            database.replace("postgresql://postgres:@", "postgresql+psycopg://postgres@"),
            "lock_timeout = 1000",
        )
    else:
        database = request.getfixturevalue("mariadb_socket")
        url, timeout = f"mysql+pymysql://root@/redlock?unix_socket={database}", "innodb_lock_wait_timeout = 1"
    create(place, database)
    engine = sqlalchemy.create_engine(url)
    for _ in ("new", "known"):
        with engine.begin() as one, engine.begin() as two:
            for connection in (one, two):
                connection.execute(sqlalchemy.text(f"SET {timeout}"))
            fence(one, Fence("b", 5))
            fence(two, Fence("a", 5), Fence("c", 5))
            fence(one, Fence("bb", 5))
            with pytest.raises(sqlalchemy.exc.OperationalError) as waited:
                fence(two, Fence("b", 5))
            assert "Another transaction holds the guard row of 'b'" in notes(waited.value)
            if place == "postgresql":
                two.rollback()
    engine.dispose()
