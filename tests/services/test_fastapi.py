"""Locks as dependencies of FastAPI: which name is locked, for how long, and what a client is told."""

import asyncio
import contextlib
import json
import random
import subprocess
import sys
import threading
from collections import Counter
from functools import partial
from typing import Annotated

import httpx
import pytest
from fastapi import APIRouter, BackgroundTasks, Depends, FastAPI, Header, HTTPException, WebSocket
from fastapi.exceptions import FastAPIError
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

import redlock_async
from redlock_async import ConfigurationError, Lease, LockTimeout, QuorumUnavailable, Redlock, RedlockError
from redlock_async.client import DefaultRedlock
from redlock_async.fastapi import Locked, add_problem_handlers, client, lifespan, lock

pytestmark = pytest.mark.redis


def application(nodes, **options):
    """An application over those masters, which tries once unless told otherwise."""
    app = FastAPI(lifespan=lifespan(Redlock(nodes, **{"wait": 0} | options)))
    add_problem_handlers(app)
    return app


@contextlib.asynccontextmanager
async def calling(app):
    """A client inside the application's lifespan, which httpx leaves to us."""
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://app") as http,
    ):
        yield http


def problem(response):
    """Status and reason of a problem, after a look at its form."""
    assert response.headers["content-type"] == "application/problem+json"
    said = response.json()
    assert set(said) == {"type", "title", "status", "detail", "reason"}
    assert said["status"] == response.status_code
    return response.status_code, said["reason"]


class Item(BaseModel):
    """What is sold."""

    sku: str


class User:
    """Who buys."""

    def __init__(self, name):
        self.name = name


async def user(x_user: Annotated[str, Header()]):
    """Whoever the header names."""
    return User(x_user)


def locked_names(nodes):
    """An application whose routes say what they have locked."""
    app = application(nodes)

    @app.post("/orders/{order_id}")
    async def order(order_id: int, lease: Annotated[Lease, Locked("orders:{order_id}")]):  # noqa: ARG001 - FastAPI and aiohttp look at them
        return lease.name

    @app.post("/items")
    async def item(item: Item, lease: Annotated[Lease, Locked("{item.sku}/{shelf}")], shelf: int = 5):  # noqa: ARG001 - FastAPI and aiohttp look at them
        return lease.name

    @app.post("/gifts")
    async def gift(
        lease: Annotated[Lease, Locked("{buyer.name}:{item.sku}:{note.sku}")],
        buyer: Annotated[User, Depends(user)],  # noqa: ARG001 - FastAPI and aiohttp look at them
        item: Item,  # noqa: ARG001 - FastAPI and aiohttp look at them
        note: Item,  # noqa: ARG001 - FastAPI and aiohttp look at them
    ):
        return lease.name

    async def shelf(shelf: int, lease: Annotated[Lease, Locked("shelf:{shelf}")]):  # noqa: ARG001 - FastAPI and aiohttp look at them
        return lease.name

    @app.get("/nested")
    async def nested(name: Annotated[str, Depends(shelf, scope="function")]):
        return name

    router = APIRouter()

    @router.get("/desks/{desk:int}", dependencies=[Locked("undeclared:{desk}")])  # noqa: FAST003 - on purpose
    async def desk(lease: Annotated[Lease, Locked("{shop}:{desk}")]):
        return lease.name

    app.include_router(router, prefix="/shops/{shop}")
    mounted = FastAPI()

    @mounted.get("/{number}")
    async def inside(number: int, lease: Annotated[Lease, Locked("mounted:{number}")]):  # noqa: ARG001 - FastAPI and aiohttp look at them
        return lease.name

    app.mount("/mounted", mounted)
    return app


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("method", "path", "more", "name"),
    [
        ("POST", "/orders/7", {}, "orders:7"),
        ("POST", "/orders/007", {}, "orders:7"),
        ("POST", "/items", {"json": {"sku": "a:b"}}, "a:b/5"),
        ("POST", "/items?shelf=06", {"json": {"sku": "{item}"}}, "{item}/6"),
        (
            "POST", "/gifts",
            {"json": {"item": {"sku": "a"}, "note": {"sku": "b:c"}}, "headers": {"x-user": "anna"}}, "anna:a:b:c",
        ),
        ("GET", "/nested?shelf=3", {}, "shelf:3"),
        ("GET", "/shops/n%3Aord/desks/7", {}, None),
        ("GET", "/shops/nord/desks/7", {}, "nord:7"),
        ("GET", "/mounted/08", {}, "mounted:8"),
        ("POST", "/orders/seven", {}, None),
        ("POST", "/orders/7", {"headers": {"x-more": "header"}}, "orders:7"),
    ],
)  # fmt: skip
async def test_the_name_has_what_the_function_is_told(method, path, more, name, nodes, eyes):
    """Converted as for the function; of the path, the query, headers, the body, or another dependency's value."""
    async with calling(locked_names(nodes)) as http:
        response = await http.request(method, path, **more)
    assert (response.status_code, response.json()) == (200, name) if name else response.status_code == 422
    assert eyes.keys() == []


@pytest.mark.asyncio
async def test_no_values_make_the_name_of_others(nodes):
    """What would be the same name is refused, also where it is too long or the library's own; the rest is as given."""
    app = application(nodes)

    @app.get("/two")
    async def two(one: str, other: str, lease: Annotated[Lease, Locked("{one}:{other}")]):  # noqa: ARG001 - FastAPI and aiohttp look at them
        return lease.name

    async with calling(app) as http:
        for one, other, name in [
            ("a", "b:c", "a:b:c"), ("a:b", "c", None), ("{other}", "b", "{other}:b"), ("", "", ":"),
            ("x" * 5000, "", None),
            ("redlock-async", "fence:1", None),
        ]:  # fmt: skip
            response = await http.get("/two", params={"one": one, "other": other})
            assert (response.status_code, response.json()) == (200, name) if name else response.status_code == 422
            if not name:
                (said,) = response.json()["detail"]
                assert said["loc"] == ["lock"]


@pytest.mark.asyncio
async def test_an_optional_value_that_is_not_sent_is_no_part_of_a_name(nodes):
    """It would be the name of whoever sends "None"."""
    app = application(nodes)

    @app.get("/")
    async def tenant(lease: Annotated[Lease, Locked("tenant:{name}")], name: str | None = None):  # noqa: ARG001 - FastAPI and aiohttp look at them
        return lease.name

    async with calling(app) as http:
        assert (await http.get("/?name=None")).json() == "tenant:None"
        response = await http.get("/")
        assert response.status_code == 422
        assert response.json()["detail"][0]["msg"].endswith("{name} of the lock's name is not given")


@pytest.mark.asyncio
async def test_a_mistake_in_the_service_s_own_code_is_not_the_client_s(nodes):
    """What makes the lock is tried with one name when the application starts: with another it may still fail."""

    def factory(client, name):
        return client.semaphore(name, permits=0 if name == "b" else 1)

    app = application(nodes)
    app.get("/{name}", dependencies=[Locked("{name}", factory=factory)])(lambda: None)
    async with calling(app) as http:
        assert (await http.get("/a")).status_code == 200
        assert (await http.get("/" + "a" * 5000)).status_code == 422
        with pytest.raises(ConfigurationError, match="permits"):
            await http.get("/b")


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("template", "says"),
    [
        (
            "orders:{id}",
            r"'orders:\{id\}' needs id, but /orders/\{order_id\} has no such parameter; it has drawn, item, order_id",
        ),
        ("orders:{lease.name}", r"needs lease, but .* it has drawn, item, order_id"),
        ("orders:{item.name}", r"needs item.name, but Item lacks it"),
        ("orders:{drawn}", r"needs drawn, a dependency with use_cache=False: .* another value"),
    ],
)
async def test_a_name_that_the_route_cannot_fill_keeps_the_application_from_starting(template, says, nodes):
    """Rather than fail at the first request."""
    app = application(nodes)

    @app.post("/orders/{order_id}")
    async def order(
        order_id: int,
        item: Item,
        lease: Annotated[Lease, Locked(template)],
        drawn: Annotated[float, Depends(random.random, use_cache=False)],
    ):
        raise NotImplementedError

    with pytest.raises(ConfigurationError, match=says):
        async with calling(app):
            raise NotImplementedError
    assert not hasattr(app.state, "redlock"), "it is closed"


@pytest.mark.parametrize(
    ("arguments", "options", "says"),
    [
        (("orders:{}",), {}, "by name"),
        (("{a}{b}",), {}, "adjacent"),
        (("{a:{b}}",), {}, "depends on another value"),
        ((7,), {}, "not a template"),
        (("x",), {"ttl": -1}, "ttl"),
        (("x",), {"factory": "fair"}, "factory must make a lock"),
        (("x",), {"factory": Redlock.fair_lock, "ttl": 3}, "ttl cannot be combined with factory"),
        (("x",), {"factory": redlock_async.redlock.fair_lock}, "method of the class: Redlock.fair_lock"),
        (("x",), {"factory": partial(redlock_async.redlock.semaphore, permits=4)}, "method of the class"),
        (("x",), {"factory": redlock_async.redlock}, "method of the class"),
        (
            ("x",),
            {"factory": Redlock.fair_lock, "reentrant": True},
            "leave out reentrant, which only the plain lock takes",
        ),
        (("x",), {"factory": Redlock.latch}, r"called with a client and a name alone, and Redlock\.latch cannot be"),
        (("x",), {"factory": lambda _: None}, "called with a client and a name alone"),
        (("x",), {"factory": partial(Redlock.latch, count=2)}, r"returned .*must return a lock, as Redlock\.fair_lock"),
        (("x",), {"factory": partial(Redlock.semaphore, permits=0)}, "permits must be"),
        (("x",), {"factory": partial(Redlock.semaphore, permit=2)}, r"passes permit to Redlock\.semap.* but permits"),
        (("x",), {"factory": partial(Redlock.read_lock, ttl=-1)}, "ttl must be"),
    ],
)
def test_a_mistake_is_an_error_where_it_is_written(arguments, options, says):
    """As the module is imported."""
    with pytest.raises(ConfigurationError, match=says):
        Locked(*arguments, **options)


def test_an_option_that_there_is_not_is_a_type_error():
    """As for any function, and as for the client's own decorator."""
    with pytest.raises(TypeError, match=r"has no option 'timeout' .*: ttl, .*partial\(Redlock.semaphore, permits=4\)"):
        Locked("x", timeout=3)


@pytest.mark.asyncio
async def test_a_lifespan_that_was_not_called_says_so():
    """FastAPI(lifespan=lifespan) gives it the application for a client."""
    app = FastAPI(lifespan=lifespan)
    with pytest.raises(ConfigurationError, match=r"FastAPI\(lifespan=lifespan\(\)\)"):
        async with calling(app):
            raise NotImplementedError


@pytest.mark.parametrize("given", [["redis://user:secret@host:6379"], "redis://user:secret@host:6379"])
def test_what_is_given_for_a_client_is_not_shown(given):
    """It may be URLs, and those may have passwords."""
    with pytest.raises(ConfigurationError, match=f"got a {type(given).__name__}$") as raised:
        lifespan(given)
    assert "secret" not in str(raised.value)


def test_a_lock_without_depends_is_named_by_fastapi():
    """As is a Locked in a Depends: what FastAPI shows of it is how it was written."""

    async def route(lease: Annotated[Lease, lock("orders:{order}")]):
        raise NotImplementedError

    with pytest.raises(FastAPIError, match=r"lock\('orders:\{order\}'\)"):
        FastAPI().get("/{order}")(route)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("factory", "says"),
    [
        (lambda *_: None, "factory returned None"),
        (lambda client, name: client.latch(name, count=1), "factory returned <Latch"),
        (lambda client, name: client.semaphore(name, permits=0), "permits must be"),
    ],
)
async def test_what_makes_no_lock_keeps_the_application_from_starting(factory, says, nodes):
    """What is a function of one's own is tried when the client is there."""
    app = application(nodes)
    app.get("/", dependencies=[Locked("x", factory=factory)])(lambda: None)
    with pytest.raises(ConfigurationError, match=says):
        async with calling(app):
            raise NotImplementedError


@pytest.mark.asyncio
async def test_every_kind_with_its_options(nodes):
    """Readers beside readers, so many at a time, in order, each with options of its own."""
    app = application(nodes)
    kinds = {
        "read": partial(Redlock.read_lock, wait=0), "write": Redlock.write_lock,
        "fair": partial(Redlock.fair_lock, ttl=3),
        "semaphore": partial(Redlock.semaphore, permits=2, min_hold=0),
    }  # fmt: skip
    for kind, factory in kinds.items():

        @app.get(f"/{kind}/{{doc}}")
        async def use(doc: str, lease: Annotated[Lease, Locked("{doc}", factory=factory)]):  # noqa: ARG001 - FastAPI and aiohttp look at them
            return [type(lease).__name__, lease.fencing_token]

    @app.get("/plain")
    async def plain(lease: Annotated[Lease, Locked("doc", ttl=3, fencing=False, wait=0, renew=False)]):
        return [type(lease).__name__, lease.fencing_token]

    async def told(path):
        response = await asyncio.create_task(http.get(path))  # a request is a task of its own, on a server
        return problem(response) if response.is_error else response.json()[0]

    async with calling(app) as http:
        redlock = app.state.redlock
        async with redlock.read_lock("doc"):
            assert await told("/read/doc") == "Lease"
            assert await told("/write/doc") == await told("/plain") == await told("/fair/doc") == (409, "held")
        assert await told("/write/doc") == "WriteLease"
        assert (await http.get("/plain")).json() == ["Lease", None]
        async with await redlock.semaphore("doc", permits=2).acquire(count=1):
            assert await told("/semaphore/doc") == "Lease"
        async with await redlock.semaphore("doc", permits=2).acquire(count=2):
            assert await told("/semaphore/doc") == (409, "held")


# The client's life


@pytest.mark.asyncio
async def test_a_lifespan_of_ones_own_is_inside(nodes):
    """It has the client, and what it yields is the requests' state."""
    seen = []

    @contextlib.asynccontextmanager
    async def own(app):
        async with app.state.redlock("starting"):
            seen.append("began")
            yield {"colour": "blue"}
        seen.append("ended")

    app = FastAPI(lifespan=lifespan(Redlock(nodes), inner=own))
    async with app.router.lifespan_context(app) as state:
        assert (state, seen) == ({"colour": "blue"}, ["began"])
    assert seen == ["began", "ended"]


@pytest.mark.asyncio
async def test_the_client_from_the_environment_serves_several_applications(nodes, monkeypatch):
    """Until the last of them ends; in a function's body it is `redlock`, as anywhere."""
    default = DefaultRedlock()
    monkeypatch.setattr(redlock_async, "redlock", default)
    monkeypatch.setenv("REDLOCK_NODES", ",".join(nodes))
    apps = [FastAPI(lifespan=lifespan()) for _ in range(2)]
    for app in apps:

        @app.get("/")
        async def name(redlock: Annotated[Redlock, Depends(client)]):
            async with redlock("x"):
                return redlock is default

    async with calling(apps[0]) as first:
        async with calling(apps[1]) as second:
            assert (await first.get("/")).json() is (await second.get("/")).json() is True
        assert (await first.get("/")).json() is True
        assert default.statistics().nodes_up == len(nodes)
        assert not hasattr(apps[1].state, "redlock")
    assert default.statistics().nodes_up == 0


@pytest.mark.asyncio
async def test_an_application_without_lifespan_says_so(nodes):
    """And one that is given something else as its client."""
    app = application(nodes)
    app.get("/", dependencies=[Locked("x")])(lambda: None)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://app") as http:
        with pytest.raises(ConfigurationError, match=r"lifespan=lifespan\(\)"):
            await http.get("/")
    with pytest.raises(ConfigurationError, match="a Redlock"):
        lifespan("redis://127.0.0.1")


@pytest.mark.asyncio
async def test_a_route_that_comes_later_says_so(nodes):
    """It is not locked by a text that nobody has converted."""
    app = application(nodes)
    async with calling(app) as http:
        app.get("/{number}", dependencies=[Locked("x:{number}")])(lambda: None)
        with pytest.raises(ConfigurationError, match="lacks number: its route was added after"):
            await http.get("/7")


@pytest.mark.asyncio
async def test_an_application_starts_without_a_majority_of_the_masters(new_cluster):
    """What needs no lock works, what does is answered with 503, and all is well when they are back."""
    cluster = new_cluster
    for index in range(3):
        cluster.kill(index)
    app = application(cluster.urls, wait=0.1)
    app.get("/", dependencies=[Locked("x", wait=5)])(lambda: "done")
    app.get("/now", dependencies=[Locked("x", wait=0)])(lambda: "done")
    async with calling(app) as http:
        assert problem(await http.get("/now")) == (503, "unavailable")
        for index in range(3):
            cluster.restart(index)
        assert (await http.get("/")).json() == "done"


@pytest.mark.asyncio
async def test_a_lock_can_be_replaced_in_tests(nodes):
    """As any dependency, without servers."""
    app = FastAPI()
    order_lock = lock("orders:{order_id}")

    @app.get("/{order_id}")
    async def order(order_id: int, lease: Annotated[object, Depends(order_lock, scope="function")]):  # noqa: ARG001 - FastAPI and aiohttp look at them
        return lease

    app.dependency_overrides[order_lock] = lambda: "a lease"
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://app") as http:
        assert (await http.get("/7")).json() == "a lease"
    assert nodes


# What a client is told


@pytest.mark.asyncio
async def test_contention_and_outage_are_told_apart(cluster):
    """And nothing of masters, passwords, holders or names is in either."""
    app = application(cluster.urls, wait=0.5, owner="secret-host:1")
    app.get("/", dependencies=[Locked("secret-name")])(lambda: "done")
    async with calling(app) as http:
        assert (await http.get("/")).json() == "done"
        async with app.state.redlock("secret-name", ttl=4):
            refused = await http.get("/")
        for index in range(3):
            cluster.kill(index)
        outage = await http.get("/")
    assert problem(refused) == (409, "held")
    assert 3 <= int(refused.headers["retry-after"]) <= 5
    assert problem(outage) == (503, "unavailable")
    assert "retry-after" not in outage.headers
    ports = [url.rpartition(":")[2] for url in cluster.urls]
    for response in (refused, outage):
        assert not [word for word in ["secret", "127.0.0.1", "redis", *ports] if word in response.text]


@pytest.mark.asyncio
async def test_no_request_of_three_hundred_takes_an_outage_for_contention(cluster):
    """They want three names, so most of them queue behind another request; some of those got 409."""
    app = application(cluster.urls, wait=0.3)
    app.get("/{name}", dependencies=[Locked("{name}")])(lambda name: name)
    async with calling(app) as http:
        assert (await http.get("/a")).json() == "a"
        for index in range(3):
            cluster.kill(index)
        answers = await asyncio.gather(*(http.get(f"/{'abc'[number % 3]}") for number in range(300)))
    assert Counter(map(problem, answers)) == {(503, "unavailable"): 300}


@pytest.mark.asyncio
async def test_statuses_can_be_others(nodes):
    """Also for locks that are taken in a function's body; what is no error's status is refused."""
    app = FastAPI(lifespan=lifespan(Redlock(nodes, wait=0)))
    add_problem_handlers(app, held=423, lost=500)

    @app.get("/{kind}")
    async def order(kind: str, redlock: Annotated[Redlock, Depends(client)]):
        async with redlock("x"):
            if kind == "lost":
                await redlock.force_release("x")
                await asyncio.Event().wait()
            await redlock("x").acquire()

    async with calling(app) as http:
        assert problem(await http.get("/held")) == (423, "held")
        assert problem(await http.get("/lost")) == (500, "lost")
    for options in ({"held": 200}, {"unavailable": "503"}, {"lost": True}):
        with pytest.raises(ConfigurationError, match=f"{next(iter(options))} must be an HTTP status"):
            add_problem_handlers(app, **options)


@pytest.mark.asyncio
async def test_a_function_that_fails_gives_the_lock_back(nodes, eyes):
    """Its own error is the answer."""
    app = application(nodes)

    @app.get("/", dependencies=[Locked("x")])
    async def fail():
        raise HTTPException(418)

    async with calling(app) as http:
        assert (await http.get("/")).status_code == 418
        assert eyes.keys() == []


# How long it is held


@pytest.mark.asyncio
async def test_a_lock_ends_before_the_response_or_after_it(nodes, eyes):
    """Before, with `Locked`: a background task runs without it. After, with a plain Depends."""
    app, held = application(nodes), {}

    def look(path):
        held[path] = len(eyes.keys())

    @app.get("/before", dependencies=[Locked("x")])
    @app.get("/after", dependencies=[Depends(lock("x"))])
    async def order(tasks: BackgroundTasks, path: str):
        assert len(eyes.keys()) == len(nodes)
        tasks.add_task(look, path)

    async with calling(app) as http:
        await app.state.redlock.status()  # all masters are connected
        for path in ("before", "after"):
            assert (await http.get(f"/{path}?path={path}")).status_code == 200
    assert held == {"before": 0, "after": len(nodes)}
    assert eyes.keys() == []


@pytest.mark.asyncio
async def test_a_lost_lock_cancels_the_function(nodes, eyes):
    """The client is told, and what was to run afterwards does not."""
    app, entered, ended, later = application(nodes), asyncio.Event(), [], []

    @app.get("/")
    async def order(tasks: BackgroundTasks, lease: Annotated[Lease, Locked("x")]):
        tasks.add_task(later.append, "ran")
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(lease.lost)

    async with calling(app) as http:
        request = asyncio.ensure_future(http.get("/"))
        await entered.wait()
        assert await app.state.redlock.force_release("x")
        assert problem(await request) == (503, "lost")
    assert (ended, later) == ([True], [])
    assert eyes.keys() == []


@pytest.mark.asyncio
async def test_a_thread_goes_on_to_its_end_and_then_the_client_is_told(nodes):
    """Nothing can cancel it; it sees `lease.lost`, and the answer is never its own."""
    app, entered, lost = application(nodes), threading.Event(), threading.Event()
    seen = []

    @app.get("/")
    def order(lease: Annotated[Lease, Locked("x")]):
        entered.set()
        assert lost.wait(10)
        seen.append(lease.lost)
        return "done"

    async with calling(app) as http:
        request = asyncio.ensure_future(http.get("/"))
        await asyncio.to_thread(entered.wait, 10)
        holding = asyncio.ensure_future(app.state.redlock("x", wait=5).acquire())
        assert await app.state.redlock.force_release("x")
        later = await holding  # the next is in while the thread still runs: that is what fencing tokens are for
        assert not request.done()
        lost.set()
        assert problem(await request) == (503, "lost")
        await later.release()
    assert seen == [True]


@pytest.mark.asyncio
async def test_a_stream_whose_lock_is_lost_breaks_off(nodes, eyes, eventually, serve):
    """Held until all is sent, with a plain Depends: a client never takes a part for the whole."""
    app = application(nodes)

    @app.get("/", dependencies=[Depends(lock("x"))])
    async def stream():
        async def parts():
            yield "a part"
            await asyncio.Event().wait()

        return StreamingResponse(parts())

    host, port = await serve(app)
    await app.state.redlock.status()  # all masters are connected
    async with httpx.AsyncClient(base_url=f"http://{host}:{port}") as http, http.stream("GET", "/") as response:
        parts = response.aiter_text()
        assert await anext(parts) == "a part"
        assert len(eyes.keys()) == len(nodes)
        assert await app.state.redlock.force_release("x")
        with pytest.raises(httpx.RemoteProtocolError):
            await anext(parts)
    await eventually(lambda: eyes.keys() == [])


@pytest.mark.asyncio
async def test_a_client_that_hangs_up_leaves_no_key(nodes, eyes, eventually, serve):
    """While a stream is sent under the lock, and while a function runs, which FastAPI lets finish."""
    app, leave = application(nodes), asyncio.Event()

    @app.get("/stream", dependencies=[Depends(lock("x"))])
    async def stream():
        async def parts():
            while True:
                yield "a part"
                await asyncio.sleep(0.01)

        return StreamingResponse(parts())

    @app.get("/function", dependencies=[Locked("x")])
    async def function():
        await leave.wait()

    host, port = await serve(app)
    for path in ("stream", "function"):
        _, writer = await asyncio.open_connection(host, port)
        writer.write(f"GET /{path} HTTP/1.1\r\nhost: app\r\n\r\n".encode())
        await eventually(lambda: len(eyes.keys()) == len(nodes))
        writer.transport.abort()
        if path == "function":
            leave.set()
        await eventually(lambda: eyes.keys() == [])


# WebSockets


class Socket:
    """A WebSocket's two ends as ASGI has them."""

    def __init__(self, app, path, *, denies):
        self.sent, self.received = asyncio.Queue(), asyncio.Queue()
        self.received.put_nowait({"type": "websocket.connect"})
        scope = {
            "type": "websocket", "asgi": {"version": "3.0"}, "http_version": "1.1", "scheme": "ws", "path": path,
            "raw_path": path.encode(), "query_string": b"", "root_path": "", "headers": [], "subprotocols": [],
            "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 2), "state": {},
            "extensions": {"websocket.http.response": {}} if denies else {},
        }  # fmt: skip
        self.running = asyncio.ensure_future(app(scope, self.received.get, self.sent.put))

    async def told(self):
        """The next message."""
        async with asyncio.timeout(5):
            return await self.sent.get()


@pytest.mark.asyncio
async def test_a_socket_is_refused_while_the_lock_is_held_and_closed_when_it_is_lost(nodes, eyes):
    """The same answer where the server can give it, else, and once it was accepted, code 1013: try again later."""
    app = application(nodes)

    @app.websocket("/rooms/{room}")
    async def talk(socket: WebSocket, room: int, lease: Annotated[Lease, Locked("rooms:{room}")]):
        await socket.accept()
        await socket.send_text(f"{room} {lease.name}")
        await socket.receive_text()

    async with app.router.lifespan_context(app):
        socket = Socket(app, "/rooms/07", denies=True)
        assert (await socket.told())["type"] == "websocket.accept"
        assert (await socket.told())["text"] == "7 rooms:7"
        denied = Socket(app, "/rooms/7", denies=True)
        begin, body = await denied.told(), await denied.told()
        assert (begin["type"], begin["status"]) == ("websocket.http.response.start", 409)
        assert b"retry-after" in dict(begin["headers"])
        assert json.loads(body["body"])["reason"] == "held"
        closed = Socket(app, "/rooms/7", denies=False)
        assert await closed.told() == {"type": "websocket.close", "code": 1013, "reason": ""}
        assert await app.state.redlock.force_release("rooms:7")
        assert await socket.told() == {"type": "websocket.close", "code": 1013, "reason": ""}
        await asyncio.gather(socket.running, denied.running, closed.running)
    assert eyes.keys() == []


def test_without_fastapi_it_says_what_to_install():
    """Whether it is not there or too old."""
    code = """
import sys
sys.modules["fastapi"] = None
try:
    import redlock_async.fastapi
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "FastAPI 0.121.1 or newer" in done.stdout
    assert "pip install 'redlock-async[fastapi]'" in done.stdout


def test_the_problems_are_about_errors_of_the_library():
    """A mistake in the service stays an error of the service."""
    app = FastAPI()
    add_problem_handlers(app)
    ours = {each for each in app.exception_handlers if isinstance(each, type) and issubclass(each, RedlockError)}
    assert ours == {LockTimeout, QuorumUnavailable, redlock_async.LockLost, redlock_async.StaleFence}
