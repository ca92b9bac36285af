"""A lock outlives the commit of the session that works under it, in whatever order a route declares the two."""

import asyncio
from contextlib import asynccontextmanager
from inspect import Parameter, Signature
from itertools import product
from typing import Annotated

import httpx
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from fastapi import Depends, FastAPI

from redlock_async import Lease, Redlock
from redlock_async import aiohttp as ours
from redlock_async.fastapi import add_problem_handlers, lifespan, lock

SCOPES = ("function", "request")


@asynccontextmanager
async def calling(app):
    """A client of an application."""
    transport = httpx.ASGITransport(app)
    async with app.router.lifespan_context(app), httpx.AsyncClient(transport=transport, base_url="http://app") as http:
        yield http


@pytest.mark.asyncio
@pytest.mark.parametrize("asynchronous", [True, False])
@pytest.mark.parametrize(("lock_scope", "session_scope", "lock_first"), [*product(SCOPES, SCOPES, (True, False))])
async def test_a_session_commits_under_the_lock(
    nodes, eyes, eventually, asynchronous, lock_scope, session_scope, lock_first
):
    """All eight combinations, for sessions of both kinds."""
    events = []

    def look(what):
        events.append((what, len(eyes.keys()) > len(nodes) // 2))

    async def session():
        yield "session"
        look("commit")

    def session_of_a_thread():
        yield "session"
        look("commit")

    own = session if asynchronous else session_of_a_thread
    locking = Parameter(
        "lease", Parameter.KEYWORD_ONLY, annotation=Annotated[Lease, Depends(lock("x"), scope=lock_scope)]
    )
    opening = Parameter("session", Parameter.KEYWORD_ONLY, annotation=Annotated[str, Depends(own, scope=session_scope)])

    async def sell(lease, session):  # noqa: ARG001 - both are open
        look("function")

    sell.__signature__ = Signature([locking, opening] if lock_first else [opening, locking])
    app = FastAPI(lifespan=lifespan(Redlock(nodes)))
    app.post("/")(sell)
    async with calling(app) as http:
        await app.state.redlock.status()
        assert (await http.post("/")).status_code == 200
        assert events == [("function", True), ("commit", True)]
        await eventually(lambda: not eyes.keys())


@pytest.mark.asyncio
async def test_a_lock_that_is_lost_before_the_commit_rolls_back(nodes):
    """The session sees the cancellation, and the caller gets 503."""
    ended = []

    async def session():
        try:
            yield "session"
        except BaseException as error:
            ended.append(type(error))
            raise
        ended.append("committed")

    app = FastAPI(lifespan=lifespan(Redlock(nodes)))
    add_problem_handlers(app)

    @app.post("/")
    async def sell(
        own: Annotated[str, Depends(session)],  # noqa: ARG001 - open
        lease: Annotated[Lease, Depends(lock("x"), scope="function")],  # noqa: ARG001 - held
    ):
        await app.state.redlock.force_release("x")
        await asyncio.sleep(5)

    async with calling(app) as http:
        response = await http.post("/")
    assert (response.status_code, response.json()["reason"]) == (503, "lost")
    assert ended == [asyncio.CancelledError]


@pytest.mark.asyncio
async def test_two_locks_and_a_failing_function(nodes, eyes, eventually):
    """Both end after the session, whose error is the answer."""
    held = []

    async def session():
        try:
            yield "session"
        finally:
            held.append(len(eyes.keys()))

    app = FastAPI(lifespan=lifespan(Redlock(nodes)))

    @app.post("/")
    async def sell(
        one: Annotated[Lease, Depends(lock("a"), scope="function")],  # noqa: ARG001 - held
        own: Annotated[str, Depends(session)],  # noqa: ARG001 - open
        two: Annotated[Lease, Depends(lock("b"))],  # noqa: ARG001 - held
    ):
        raise ValueError("sold out")

    async with calling(app) as http:
        await app.state.redlock.status()
        with pytest.raises(ValueError, match="sold out"):
            await http.post("/")
    assert [number > len(nodes) for number in held] == [True]  # both have a majority
    await eventually(lambda: not eyes.keys())


@pytest.mark.asyncio
@pytest.mark.parametrize("first", [True, False])
async def test_a_middleware_of_aiohttp_commits_under_the_lock(nodes, eyes, eventually, first):
    """If the problem middleware is listed first; without it, the lock ends with its handler."""
    held = []

    @web.middleware
    async def session(request, handler):
        response = await handler(request)
        held.append(len(eyes.keys()) > len(nodes) // 2)
        return response

    @ours.locked("x")
    async def sell(request, lease):  # noqa: ARG001 - it is held
        await request.app[ours.REDLOCK].status()
        return web.Response()

    async def twice(request):
        await asyncio.gather(*(asyncio.create_task(sell(request)) for _ in range(2)))
        return await sell(request)

    problems = ours.problem_middleware()
    app = web.Application(middlewares=[problems, session] if first else [session, problems])
    sub = web.Application(middlewares=[ours.problem_middleware()])
    for each in (app, sub):
        each.router.add_post("/", sell)
        each.router.add_post("/twice", twice)
    app.cleanup_ctx.append(ours.client_ctx(Redlock(nodes)))
    sub.cleanup_ctx.append(ours.client_ctx(Redlock(nodes)))
    app.add_subapp("/sub", sub)
    async with TestClient(TestServer(app)) as client:
        for path in ("/", "/twice", "/sub/"):
            assert (await client.post(path)).status == 200
            await eventually(lambda: not eyes.keys())
    assert held == [first] * 3
