"""The fixture redlock_zombie and `zombie`: what they accept, what they reject, and what they say."""

import asyncio
import sqlite3
from contextlib import closing

import httpx
import pytest
from fastapi import FastAPI, Request
from stores import create

from redlock_async import ConfigurationError, Redlock, StaleFence, blocking
from redlock_async.fastapi import add_problem_handlers
from redlock_async.fenced.http import fence_from, headers
from redlock_async.fenced.sqlite import fence
from redlock_async.testing import zombie


@pytest.fixture
def table(tmp_path):
    """A database, opened by a plain connection."""
    create("sqlite", str(tmp_path / "data.sqlite"))
    with closing(sqlite3.connect(tmp_path / "data.sqlite", timeout=1)) as connection:
        yield connection


def test_plain_functions_need_no_loop(table, redlock_zombie):
    """It runs at once, with a blocking lease."""
    kinds = set()

    def write(lease):
        kinds.add(type(lease))
        assert lease.name == "orders:42"
        with table:
            fence(table, lease)
            table.execute("UPDATE counter SET n = n + 1")

    assert redlock_zombie(write, name="orders:42") is None
    assert kinds == {blocking.Lease}
    assert table.execute("SELECT n FROM counter").fetchone() == (1,)

    def apart(lease):
        with table:
            fence(table, lease)
        with table:
            table.execute("UPDATE counter SET n = n + 1")

    with pytest.raises(AssertionError, match="outside the transaction that called fence") as error:
        redlock_zombie(apart)
    assert "Call fence() on the same connection, as the first statement of the transaction that writes" in str(error)


def test_a_blocking_client_needs_a_plain_function(nodes):
    """A coroutine that has to wait cannot run without a loop."""

    async def write(lease):  # noqa: ARG001 - it only waits
        await asyncio.sleep(0)

    with blocking.Redlock(nodes, ttl=5) as redlock:
        with pytest.raises(ConfigurationError, match="with a blocking client, write must be a plain function"):
            zombie(redlock, write)
        assert redlock.inspect("redlock-zombie") is None


@pytest.mark.asyncio
async def test_coroutine_functions_are_awaited_and_swallowing_is_noticed(table, redlock_zombie):
    """The earlier lease seems to be valid, as that of a paused process does."""
    valid = []

    async def write(lease):
        valid.append(lease.valid)
        try:
            with table:
                fence(table, lease)
                table.execute("UPDATE counter SET n = n + 1")
        except StaleFence:
            return

    with pytest.raises(AssertionError, match="although it is fenced"):
        await redlock_zombie(write)
    assert valid == [True, True]


@pytest.mark.asyncio
async def test_errors_of_the_write_itself_pass(nodes):
    """A write that fails for the later holder, and a late one that fails for another reason."""
    async with Redlock(nodes, ttl=5) as redlock:

        async def broken(lease):
            raise ValueError(lease.name)

        with pytest.raises(ValueError, match="redlock-zombie"):
            await zombie(redlock, broken)

        latest = 0

        async def translated(lease):
            nonlocal latest
            if lease.fencing_token < latest:
                raise LookupError("gone")
            latest = lease.fencing_token

        with pytest.raises(LookupError) as error:
            await zombie(redlock, translated)
        assert "pass the other type as rejected=" in error.value.__notes__[0]
        await zombie(redlock, translated, rejected=LookupError)
        assert await redlock.inspect("redlock-zombie") is None

        async def autocommit(lease):
            with closing(sqlite3.connect(":memory:", isolation_level=None)) as other:
                create_in(other)
                fence(other, lease)

        with pytest.raises(ConfigurationError, match="outside a transaction"):
            await zombie(redlock, autocommit)


def create_in(connection):
    """The guard table in a database of its own."""
    from redlock_async.fenced import sql  # noqa: PLC0415 - only here

    connection.execute(sql.CREATE["sqlite"])


@pytest.mark.asyncio
async def test_a_service_that_checks_the_header(nodes, table):
    """The service raises StaleFence, its client an error of its own."""
    app = FastAPI()
    add_problem_handlers(app)

    @app.put("/counter")
    async def put(request: Request):
        with table:
            fence(table, fence_from(request.headers, "redlock-zombie"))
            table.execute("UPDATE counter SET n = n + 1")

    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with Redlock(nodes, ttl=5) as redlock, httpx.AsyncClient(transport=transport, base_url="http://app") as http:

        async def write(lease):
            (await http.put("/counter", headers=headers(lease))).raise_for_status()

        # In the third run the transaction is read-only, and the service answers with 500.
        await zombie(redlock, write, rejected=httpx.HTTPStatusError)
    assert table.execute("SELECT n FROM counter").fetchone() == (1,)
