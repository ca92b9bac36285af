"""A Redlock where services keep one: a fixture, an aiohttp cleanup context, a FastAPI lifespan and dependency."""

import asyncio
import contextlib
from typing import Annotated

import fastapi
import httpx
import pytest
import pytest_asyncio
import redis
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from redlock_async import LockLost, LockTimeout, Redlock

pytestmark = pytest.mark.redis


def keys(nodes, name):
    """On how many nodes that lock's key is."""
    count = 0
    for node in nodes:
        with redis.Redis.from_url(node) as client:
            count += client.exists(name)
    return count


# A fixture


@pytest_asyncio.fixture
async def redlock(nodes):
    """As any test suite would write it: entered in one task, left in another."""
    async with Redlock(nodes, wait=2) as client:
        yield client


@pytest_asyncio.fixture
async def lease(redlock):
    """A lock that is held by a fixture."""
    held = await redlock("by-fixture").acquire()
    yield held
    await held.release()


@pytest.mark.asyncio
@pytest.mark.parametrize("_time", range(2))  # the second sees what the first left
async def test_client_is_an_async_generator_fixture(redlock, nodes, _time):
    """Function scope, pytest-asyncio."""
    assert redlock.statistics().nodes_up == len(nodes)
    async with redlock("x") as held:
        assert held.valid
        assert keys(nodes, "x") == len(nodes)
    assert keys(nodes, "x") == 0


@pytest.mark.asyncio
@pytest.mark.parametrize("_time", range(2))
async def test_lease_is_an_async_generator_fixture(lease, redlock, _time):
    """Acquired before the test, released after it: the second run gets it again."""
    assert lease.valid
    assert await redlock("by-fixture").try_acquire() is None


@pytest.mark.asyncio
async def test_error_in_a_body_stays_itself_beside_a_fixture(redlock):
    """No exception group of a task group that the client keeps."""
    with pytest.raises(ZeroDivisionError):
        async with redlock("x"):
            raise ZeroDivisionError
    assert await redlock.inspect("x") is None


# aiohttp

REDLOCK = web.AppKey("redlock", Redlock)
ENTERED = web.AppKey("entered", asyncio.Event)
LEAVE = web.AppKey("leave", asyncio.Event)


def aiohttp_app(nodes):
    """An application that takes a lock for each order it charges."""

    async def locks(app):
        async with Redlock(nodes, wait=0) as app[REDLOCK]:
            yield

    async def charge(request):
        app, order = request.app, request.match_info["order"]
        try:
            async with app[REDLOCK](f"order:{order}") as held:
                app[ENTERED].set()
                if "slowly" in request.query:
                    await app[LEAVE].wait()
                return web.json_response({"fence": held.fencing_token})
        except LockTimeout:
            raise web.HTTPConflict(text="somebody charges it already") from None

    app = web.Application()
    app[ENTERED], app[LEAVE] = asyncio.Event(), asyncio.Event()
    app.cleanup_ctx.append(locks)
    app.router.add_post("/orders/{order}", charge)
    return app


@pytest.mark.asyncio
async def test_aiohttp_cleanup_context(nodes):
    """A client for the life of the application: contention is the handler's to answer, and no key is left."""
    app = aiohttp_app(nodes)
    async with TestClient(TestServer(app)) as client:
        slow = asyncio.ensure_future(client.post("/orders/7?slowly"))
        await app[ENTERED].wait()
        async with client.post("/orders/7") as response:
            assert (response.status, await response.text()) == (409, "somebody charges it already")
        async with client.post("/orders/8") as response:
            assert response.status == 200
        assert keys(nodes, "order:7") == len(nodes)
        app[LEAVE].set()
        async with await slow as response:
            first = (await response.json())["fence"]
        async with client.post("/orders/7") as response:
            assert (await response.json())["fence"] > first
        redlock = app[REDLOCK]
    assert redlock.statistics().nodes_up == 0
    assert keys(nodes, "order:7") == keys(nodes, "order:8") == 0


@pytest.mark.asyncio
async def test_aiohttp_stops_while_a_handler_holds_a_lock(nodes):
    """The application's end takes the lock away from a handler that is still running, not from the nodes' memory."""
    app = aiohttp_app(nodes)
    async with TestClient(TestServer(app, shutdown_timeout=0.01)) as client:
        slow = asyncio.ensure_future(client.post("/orders/7?slowly"))
        await app[ENTERED].wait()
        assert keys(nodes, "order:7") == len(nodes)
    await asyncio.wait([slow])
    assert slow.exception() is not None
    assert keys(nodes, "order:7") == 0


# FastAPI


def fastapi_app(nodes, seen):
    """An application with a client in its lifespan, and a lock that is held for the time of a request."""

    @contextlib.asynccontextmanager
    async def lifespan(app):
        async with Redlock(nodes, wait=0) as app.state.redlock:
            yield

    async def locked(order: int, request: fastapi.Request):
        try:
            held = await request.app.state.redlock(f"order:{order}").acquire()
        except LockTimeout:
            raise fastapi.HTTPException(409, "somebody charges it already") from None
        async with held:
            yield held
        seen.append("released")

    app = fastapi.FastAPI(lifespan=lifespan)
    app.state.entered, app.state.leave = asyncio.Event(), asyncio.Event()

    @app.post("/orders/{order}")
    async def charge(held: Annotated[object, fastapi.Depends(locked)], *, slowly: bool = False):
        app.state.entered.set()
        if slowly:
            await app.state.leave.wait()
        return {"fence": held.fencing_token}

    @app.post("/orders/{order}/fail")
    async def fail(_held: Annotated[object, fastapi.Depends(locked)]):
        raise fastapi.HTTPException(418)

    return app


@contextlib.asynccontextmanager
async def client_of(app):
    """A client inside the application's lifespan, which httpx leaves to us."""
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://app") as client,
    ):
        yield client


@pytest.mark.asyncio
async def test_fastapi_lifespan_and_dependency(nodes):
    """The dependency holds the lock during the request: another gets 409, and afterwards it is free."""
    seen = []
    app = fastapi_app(nodes, seen)
    async with client_of(app) as client:
        slow = asyncio.ensure_future(client.post("/orders/7?slowly=1"))
        await app.state.entered.wait()
        refused = await client.post("/orders/7")
        assert (refused.status_code, refused.json()["detail"]) == (409, "somebody charges it already")
        assert (await client.post("/orders/8")).status_code == 200
        assert keys(nodes, "order:7") == len(nodes)
        app.state.leave.set()
        first = (await slow).json()["fence"]
        assert keys(nodes, "order:7") == 0
        assert (await client.post("/orders/7")).json()["fence"] > first
    assert seen == ["released"] * 3
    assert keys(nodes, "order:7") == keys(nodes, "order:8") == 0


@pytest.mark.asyncio
async def test_fastapi_handler_that_fails_gives_the_lock_back(nodes):
    """The handler's own error is the answer."""
    app = fastapi_app(nodes, [])
    async with client_of(app) as client:
        assert (await client.post("/orders/7/fail")).status_code == 418
        assert keys(nodes, "order:7") == 0


@pytest.mark.asyncio
async def test_fastapi_request_that_is_cancelled_gives_the_lock_back(nodes):
    """A client that hangs up leaves no key behind."""
    app = fastapi_app(nodes, [])
    async with client_of(app) as client:
        slow = asyncio.ensure_future(client.post("/orders/7?slowly=1"))
        await app.state.entered.wait()
        slow.cancel()
        with pytest.raises(asyncio.CancelledError):
            await slow
        assert (await client.post("/orders/7")).status_code == 200
    assert keys(nodes, "order:7") == 0


@pytest.mark.asyncio
async def test_fastapi_lock_that_is_lost_during_a_request_ends_it(nodes):
    """A request does not go on without its lock."""
    app = fastapi_app(nodes, [])
    async with client_of(app) as client:
        slow = asyncio.ensure_future(client.post("/orders/7?slowly=1"))
        await app.state.entered.wait()
        assert await app.state.redlock.force_release("order:7")
        with pytest.raises(LockLost):
            await slow
    assert keys(nodes, "order:7") == 0
