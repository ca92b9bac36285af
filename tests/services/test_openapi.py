"""The OpenAPI schema of a FastAPI application lists the answers that locks add to its routes."""

import asyncio
import json
from typing import Annotated

import httpx
import pytest
from fastapi import APIRouter, Depends, FastAPI, WebSocket

from redlock_async import Lease, Redlock
from redlock_async.fastapi import Locked, add_problem_handlers, lifespan, lock

NODES = ["redis://127.0.0.1:1"]
"""Nobody is asked: a schema needs no servers."""
Order = Annotated[Lease, Locked("orders:{order_id}")]
PROBLEM = "#/components/schemas/RedlockProblem"


def application(nodes=NODES, **statuses):
    """Routes with and without a lock: its own, of a dependency, of a router; and a mounted application."""
    app = FastAPI(lifespan=lifespan(Redlock(nodes, wait=0)))
    add_problem_handlers(app, **statuses)

    @app.post("/orders/{order_id}")
    async def order(order_id: int, lease: Order):  # noqa: ARG001 - FastAPI looks at them
        return lease.name

    @app.get("/plain")
    async def plain():
        return "plain"

    @app.put("/declared/{order_id}", responses={409: {"description": "sold out, or locked"}})
    async def declared(order_id: int, lease: Order):  # noqa: ARG001 - FastAPI looks at them
        return lease.name

    async def inner(order_id: int, lease: Order):  # noqa: ARG001 - FastAPI looks at them
        return lease.name

    @app.get("/nested/{order_id}")
    async def nested(name: Annotated[str, Depends(inner, scope="function")]):
        return name

    router = APIRouter(dependencies=[Depends(lock("shops:{shop}"))])

    @router.delete("/desks/{desk:int}")
    async def desk(shop: str, desk: int):
        return shop, desk

    app.include_router(router, prefix="/shops/{shop}")

    @app.get("/hidden/{order_id}", include_in_schema=False)
    async def hidden(order_id: int, lease: Order):  # noqa: ARG001 - FastAPI looks at them
        return lease.name

    @app.websocket("/sockets/{order_id}")
    async def socket(socket: WebSocket, order_id: int, lease: Order): ...

    return app


def responses(app):
    """The statuses by route."""
    return {
        f"{method} {path}": set(operation["responses"])
        for path, operations in app.openapi()["paths"].items()
        for method, operation in operations.items()
    }


def test_routes_with_a_lock_list_409_and_503():
    """Wherever the lock comes from; no other route does."""
    assert responses(application()) == {
        "post /orders/{order_id}": {"200", "409", "422", "503"},
        "get /plain": {"200"},
        "put /declared/{order_id}": {"200", "409", "422", "503"},
        "get /nested/{order_id}": {"200", "409", "422", "503"},
        "delete /shops/{shop}/desks/{desk}": {"200", "409", "422", "503"},
    }


def test_the_answers_are_described_as_problems():
    """With a media type, a schema that is defined, and Retry-After where there is one."""
    schema = application().openapi()
    listed = schema["paths"]["/orders/{order_id}"]["post"]["responses"]
    for status in ("409", "503"):
        assert listed[status]["content"] == {"application/problem+json": {"schema": {"$ref": PROBLEM}}}
    assert listed["409"]["headers"]["Retry-After"]["schema"] == {"type": "integer", "minimum": 1}
    assert "headers" not in listed["503"]
    assert set(schema["components"]["schemas"]["RedlockProblem"]["required"]) == {
        "type", "title", "status", "detail", "reason",
    }  # fmt: skip
    json.dumps(schema)


def test_a_response_that_the_route_declares_is_kept():
    """The service knows better what else its 409 means."""
    listed = application().openapi()["paths"]["/declared/{order_id}"]["put"]["responses"]
    assert listed["409"] == {"description": "sold out, or locked"}


def test_other_statuses_are_listed_as_they_are_answered():
    """Those that add_problem_handlers was given; two reasons may have one status."""
    app = application(held=423, unavailable=503, lost=500, stale=423)
    assert responses(app)["post /orders/{order_id}"] == {"200", "422", "423", "500", "503"}
    listed = application(held=503).openapi()["paths"]["/orders/{order_id}"]["post"]["responses"]
    assert listed["503"]["description"].count(" Or: ") == 2
    assert "headers" in listed["503"]


def test_a_schema_without_locks_is_unchanged():
    """The handlers alone add nothing."""
    app = FastAPI()
    add_problem_handlers(app)
    app.get("/")(lambda: None)
    assert app.openapi() == FastAPI.openapi(app)
    assert "components" not in app.openapi()


def test_a_schema_of_ones_own_is_extended():
    """As FastAPI's documentation makes one, before the handlers are added."""
    app = FastAPI()
    app.openapi = lambda: FastAPI.openapi(app) | {"x-team": "orders"}
    add_problem_handlers(app)

    @app.post("/orders/{order_id}")
    async def order(order_id: int, lease: Order):  # noqa: ARG001 - FastAPI looks at them
        return lease.name

    assert app.openapi()["x-team"] == "orders"
    assert responses(app) == {"post /orders/{order_id}": {"200", "409", "422", "503"}}


@pytest.mark.redis
@pytest.mark.asyncio
async def test_the_served_schema_describes_the_served_answer(nodes):
    """/openapi.json of a running service, and what it answers while the lock is held."""
    app = application(nodes)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://app") as http,
        Redlock(nodes) as redlock,
        redlock("orders:7"),
    ):
        schema = (await http.get("/openapi.json")).json()
        answer = await asyncio.wait_for(http.post("/orders/7"), 5)
    listed = schema["paths"]["/orders/{order_id}"]["post"]["responses"][str(answer.status_code)]
    assert list(listed["content"]) == [answer.headers["content-type"]]
    described = schema["components"]["schemas"]["RedlockProblem"]
    assert set(answer.json()) == set(described["properties"])
    assert answer.json()["reason"] in described["properties"]["reason"]["enum"]
    assert set(listed["headers"]) <= {name.title() for name in answer.headers}
