"""Locks around handlers of aiohttp: which name is locked, for how long, and what a client is told."""

import asyncio
import contextlib
import subprocess
import sys
from functools import partial

import pytest
from aiohttp import ClientPayloadError, ServerDisconnectedError, web
from aiohttp.test_utils import TestClient, TestServer

import redlock_async
from redlock_async import ConfigurationError, LockLost, Redlock
from redlock_async.aiohttp import REDLOCK, client_ctx, locked, problem_middleware
from redlock_async.client import DefaultRedlock

pytestmark = pytest.mark.redis

ENTERED = web.AppKey("entered", asyncio.Event)
LEAVE = web.AppKey("leave", asyncio.Event)


def application(nodes, **options):
    """An application over those masters, which tries once unless told otherwise."""
    app = web.Application(middlewares=[problem_middleware()])
    app.cleanup_ctx.append(client_ctx(Redlock(nodes, **{"wait": 0} | options)))
    app[ENTERED], app[LEAVE] = asyncio.Event(), asyncio.Event()
    return app


async def problem(response):
    """Status and reason of a problem, after a look at its form."""
    assert response.content_type == "application/problem+json"
    said = await response.json(content_type=None)
    assert set(said) == {"type", "title", "status", "detail", "reason"}
    assert said["status"] == response.status
    return response.status, said["reason"]


async def name(request, lease):  # noqa: ARG001 - a handler's signature
    """Says what is locked."""
    return web.Response(text=lease.name)


@locked("orders:{order}")
async def slow(request, lease):
    """Holds its lock until it is told to leave."""
    request.app[ENTERED].set()
    await request.app[LEAVE].wait()
    return web.json_response({"fence": lease.fencing_token})


async def _without_lease(request):
    raise NotImplementedError


class Desk(web.View):
    """A view of one's own."""

    @locked("desks:{desk}")
    async def get(self, lease):
        """By the view's own request."""
        return web.Response(text=f"{self.request.method} {lease.name}")


class Shop:
    """Handlers as methods."""

    @locked("{shop}:{query[sku]}", factory=partial(Redlock.semaphore, permits=2))
    async def sell(self, request, lease):
        """By the request."""
        return web.Response(text=f"{request.method} {lease.name}")


@pytest.mark.asyncio
async def test_the_name_has_the_values_of_the_request(nodes, eyes):
    """Of the path, the query and headers; in functions, methods, views and sub-applications."""
    app, sub = application(nodes), web.Application()
    app.router.add_get(r"/orders/{order:[1-9]\d*}", locked("orders:{order}", ttl=3)(name))
    app.router.add_get("/hooks", locked("hooks:{headers[webhook-id]}")(name))
    app.router.add_view("/desks/{desk}", Desk)
    sub.router.add_get("/{shop}", Shop().sell)
    app.add_subapp("/shops", sub)
    async with TestClient(TestServer(app)) as client:
        for path, headers, status, text in [
            ("/orders/7", {}, 200, "orders:7"), ("/orders/007", {}, 404, None),
            ("/desks/a%3Ab", {}, 200, "GET desks:a:b"),
            ("/hooks", {"webhook-id": "{a}:b"}, 200, "hooks:{a}:b"), ("/hooks", {}, 400, None),
            ("/shops/a?sku=b:c", {}, 200, "GET a:b:c"), ("/shops/a%3Ab?sku=c", {}, 400, None),
            ("/shops/a", {}, 400, None),
            ("/desks/" + "x" * 5000, {}, 400, None),
        ]:  # fmt: skip
            async with client.get(path, headers=headers) as response:
                assert response.status == status, path
                if text is not None:
                    assert await response.text() == text
                elif status == 400:
                    assert await problem(response) == (400, "name")
    assert eyes.keys() == []


def test_a_decorator_is_not_an_answer():
    """As those of a client."""
    with pytest.raises(TypeError, match=r"<Locked 'x'> is a decorator .*try_acquire\(\) or inspect\(\)"):
        bool(locked("x"))


@pytest.mark.asyncio
@pytest.mark.parametrize("where", ["function", "view", "sub-application"])
async def test_a_name_that_the_route_cannot_fill_keeps_the_application_from_starting(where, nodes):
    """Rather than fail at the first request."""
    app, sub = application(nodes), web.Application()
    if where == "function":
        app.router.add_get("/a/{other}", locked("desks:{desk}")(name))
    elif where == "view":
        app.router.add_view("/a/{other}", Desk)
    else:
        sub.router.add_get("/{other}", locked("desks:{desk}")(name))
        app.add_subapp("/a", sub)
    with pytest.raises(ConfigurationError, match=r"needs desk, but /a/\{other\} has no such parameter. For the query"):
        async with TestServer(app):
            raise NotImplementedError


@pytest.mark.asyncio
@pytest.mark.parametrize("template", ["items:{query.sku}", "items:{query}", "{headers[webhook-id]}:{headers!r}"])
async def test_a_name_with_the_query_as_a_whole_keeps_the_application_from_starting(template, nodes):
    """It would be another one for each order of the parameters, or every request would be refused."""
    app = application(nodes)
    app.router.add_get("/items", locked(template)(name))
    with pytest.raises(ConfigurationError, match=r"does not say which parameter: .*\{query\[name\]\}"):
        async with TestServer(app):
            raise NotImplementedError


@pytest.mark.asyncio
async def test_a_parameter_of_the_path_may_be_called_query(nodes):
    """Then it is that one."""
    app = application(nodes)
    app.router.add_get("/{query}", locked("searches:{query}")(name))
    async with TestClient(TestServer(app)) as client:
        assert await (await client.get("/a")).text() == "searches:a"


def test_a_mistake_is_an_error_where_it_is_written():
    """As the module is imported."""
    for arguments, options, says in [
        (("orders:{}",), {}, "by name"), (("x",), {"ttl": -1}, "ttl"),
        (("x",), {"factory": Redlock.fair_lock, "ttl": 3}, "cannot be combined"),
    ]:  # fmt: skip
        with pytest.raises(ConfigurationError, match=says):
            locked(*arguments, **options)
    with pytest.raises(ConfigurationError, match="async def"):
        locked("x")(lambda request, lease: None)  # noqa: ARG005 - not called
    with pytest.raises(ConfigurationError, match=r"^_without_lease\(request\) does not take the lease"):
        locked("x")(_without_lease)
    with pytest.raises(ConfigurationError, match=r"append\(client_ctx\(\)\)"):
        client_ctx(web.Application())
    with pytest.raises(ConfigurationError, match="a Redlock"):
        client_ctx("redis://127.0.0.1")
    with pytest.raises(ConfigurationError, match="held must be an HTTP status"):
        problem_middleware(held=200)


@pytest.mark.asyncio
async def test_one_at_a_time_and_then_it_is_free(nodes, eyes):
    """The second is told 409 and when to come again; other names are not concerned; no key is left."""
    app = application(nodes, ttl=4, owner="secret-host:1")
    app.router.add_post("/orders/{order}", slow)
    async with TestClient(TestServer(app)) as client:
        await app[REDLOCK].status()  # all masters are connected
        first = asyncio.ensure_future(client.post("/orders/7"))
        await app[ENTERED].wait()
        async with client.post("/orders/7") as response:
            assert await problem(response) == (409, "held")
            assert 3 <= int(response.headers["retry-after"]) <= 5
            assert "secret" not in await response.text()
        assert len(eyes.keys()) == len(nodes)
        app[LEAVE].set()
        async with client.post("/orders/8") as response:
            assert response.status == 200
        async with await first as response:
            fence = (await response.json())["fence"]
        async with client.post("/orders/7") as response:
            assert (await response.json())["fence"] > fence
        redlock = app[REDLOCK]
    assert redlock.statistics().nodes_up == 0
    assert eyes.keys() == []


@pytest.mark.asyncio
async def test_a_lost_lock_and_an_outage_are_answered(cluster):
    """With 503 both, and not with the same reason."""
    app = application(cluster.urls, wait=0.2)
    app.router.add_post("/orders/{order}", slow)
    async with TestClient(TestServer(app)) as client:
        request = asyncio.ensure_future(client.post("/orders/7"))
        await app[ENTERED].wait()
        assert await app[REDLOCK].force_release("orders:7")
        async with await request as response:
            assert await problem(response) == (503, "lost")
        for index in range(3):
            cluster.kill(index)
        async with client.post("/orders/7") as response:
            assert await problem(response) == (503, "unavailable")


@pytest.mark.asyncio
async def test_a_stream_whose_lock_is_lost_breaks_off(nodes, eyes, eventually):
    """A client never takes a part for the whole, nor an answer for a part."""
    app = application(nodes)

    @locked("x")
    async def stream(request, lease):  # noqa: ARG001 - FastAPI and aiohttp look at them
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"a part")
        await asyncio.Event().wait()
        return response

    app.router.add_get("/", stream)
    async with TestClient(TestServer(app)) as client, client.get("/") as response:
        assert await response.content.readany() == b"a part"
        assert await app[REDLOCK].force_release("x")
        with pytest.raises((ClientPayloadError, ServerDisconnectedError)):
            await response.content.read()
    await eventually(lambda: eyes.keys() == [])


@pytest.mark.asyncio
async def test_a_client_that_hangs_up_leaves_no_key(nodes, eyes, eventually):
    """With `handler_cancellation` the handler is cancelled, and its lock given back at once."""
    app = application(nodes)
    app.router.add_post("/orders/{order}", slow)
    runner = web.AppRunner(app, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = site._server.sockets[0].getsockname()
    try:
        await app[REDLOCK].status()  # all masters are connected
        _, writer = await asyncio.open_connection(host, port)
        writer.write(b"POST /orders/7 HTTP/1.1\r\nhost: app\r\n\r\n")
        await app[ENTERED].wait()
        assert len(eyes.keys()) == len(nodes)
        writer.transport.abort()
        await eventually(lambda: eyes.keys() == [])
    finally:
        await runner.cleanup()


@pytest.mark.asyncio
async def test_an_application_that_stops_takes_the_lock_from_a_handler(nodes, eyes):
    """From one that is still running, not from the nodes' memory."""
    app = application(nodes)
    app.router.add_post("/orders/{order}", slow)
    async with TestClient(TestServer(app, shutdown_timeout=0.01)) as client:
        await app[REDLOCK].status()  # all masters are connected
        request = asyncio.ensure_future(client.post("/orders/7"))
        await app[ENTERED].wait()
        assert len(eyes.keys()) == len(nodes)
    await asyncio.wait([request])
    assert request.exception() is not None
    assert eyes.keys() == []


@pytest.mark.asyncio
async def test_the_client_from_the_environment_serves_several_applications(nodes, monkeypatch):
    """Until the last of them ends."""
    default = DefaultRedlock()
    monkeypatch.setattr(redlock_async, "redlock", default)
    monkeypatch.setenv("REDLOCK_NODES", ",".join(nodes))
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(2):
            app = web.Application()
            app.cleanup_ctx.append(client_ctx())
            app.router.add_get("/", locked("x")(name))
            client = await stack.enter_async_context(TestClient(TestServer(app)))
            async with client.get("/") as response:
                assert await response.text() == "x"
            assert app[REDLOCK] is default
        await client.close()
        assert default.statistics().nodes_up == len(nodes)
    assert default.statistics().nodes_up == 0


@pytest.mark.asyncio
async def test_errors_pass_where_nobody_answers_them(nodes):
    """Without the middleware they are the application's."""
    app, seen = web.Application(), []
    app.cleanup_ctx.append(client_ctx(Redlock(nodes)))

    @web.middleware
    async def seeing(request, handler):
        try:
            return await handler(request)
        except LockLost as lost:
            seen.append(lost.names)
            raise web.HTTPServiceUnavailable from lost

    async def lose(request, lease):
        await request.app[REDLOCK].force_release(lease.name)
        await asyncio.Event().wait()

    app.middlewares.append(seeing)
    app.router.add_get("/", locked("x")(lose))
    async with TestClient(TestServer(app)) as client, client.get("/") as response:
        assert response.status == 503
    assert seen == [("x",)]


def test_without_aiohttp_it_says_what_to_install():
    """Rather than that some module is missing."""
    code = """
import sys
sys.modules["aiohttp"] = None
try:
    import redlock_async.aiohttp
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'redlock-async[aiohttp]'" in done.stdout
