"""The header Fencing-Token: what it carries, who reads it, and what is refused."""

import time
from typing import Annotated

import httpx
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from fastapi import FastAPI

from redlock_async import ConfigurationError, StaleFence
from redlock_async import aiohttp as ours
from redlock_async.fastapi import add_problem_handlers
from redlock_async.fenced import Fence
from redlock_async.fenced.http import HEADER, Fenced, fence_from, fence_of, headers

NOW = int(time.time() * 1e6)


@pytest.mark.parametrize("name", ["orders:42", "a, b=c", "\N{SNOWMAN} %2C", "x" * 300])
def test_what_is_sent_arrives(name):
    """Any name, and several at once; in whatever case the header's name is."""
    fence, other = Fence(name, NOW), Fence("other", NOW + 5)
    sent = headers(fence, other)
    assert list(sent) == ["Fencing-Token"]
    assert sent["Fencing-Token"].isascii()
    assert fence_from(sent, name) == fence
    assert fence_from({"fencing-token": sent[HEADER]}, "other") == other


@pytest.mark.parametrize(
    "value",
    ["", "7", "orders:42", "orders:42=", "orders:42=-7", "orders:42=7.5", "orders:42=\u0667", "orders:43=7",
     "orders:42=" + "9" * 17, "orders:42=0", f"orders:42={2**53}",
     pytest.param(f"orders:42={NOW + 2 * 86_400_000_000}", id="in two days"), "=,=,,"],
)  # fmt: skip
def test_other_values_are_refused(value):
    """A wrong name, no number, beyond the range, and so far ahead that it would lock out all later holders."""
    with pytest.raises(ConfigurationError, match=r"the request needs the header Fencing-Token|token"):
        fence_from({HEADER: value}, "orders:42")


def test_how_far_ahead_is_a_choice():
    """For nodes whose clocks are known to be wrong."""
    ahead = f"orders:42={NOW + 2 * 86_400_000_000}"
    with pytest.raises(ConfigurationError, match="is ahead of this service's clock"):
        fence_from({HEADER: ahead}, "orders:42")
    assert fence_from({HEADER: ahead}, "orders:42", ahead=3 * 86_400).token == NOW + 2 * 86_400_000_000


@pytest.mark.asyncio
async def test_fastapi_gives_the_fence_of_the_route():
    """And answers 400 without one, and 409 when a later holder has been there."""
    app = FastAPI()
    add_problem_handlers(app)
    latest = 0

    @app.put("/orders/{order_id}")
    async def put(order_id: int, fence: Annotated[Fence, Fenced("orders:{order_id}")]):
        nonlocal latest
        assert fence.name == f"orders:{order_id}"
        fence.check(latest)
        latest = fence.token
        return fence.token

    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://app") as http:
        assert (await http.put("/orders/42", headers=headers(Fence("orders:42", NOW)))).json() == NOW
        late = await http.put("/orders/42", headers=headers(Fence("orders:42", NOW - 1)))
        assert (late.status_code, late.json()["reason"]) == (409, "stale")
        assert str(NOW) not in late.text
        for sent in ({}, headers(Fence("orders:43", NOW))):
            refused = await http.put("/orders/42", headers=sent)
            assert (refused.status_code, refused.json()["detail"]) == (
                400, "the request needs the header Fencing-Token with a token of 'orders:42'",
            )  # fmt: skip


@pytest.mark.asyncio
async def test_aiohttp_gives_the_fence_of_the_route():
    """The same with its helper."""

    async def put(request):
        fence = fence_of(request, "orders:{order_id}")
        if fence.token < NOW:
            raise StaleFence("late")
        return web.json_response(fence.token)

    app = web.Application(middlewares=[ours.problem_middleware(stale=412)])
    app.router.add_put("/orders/{order_id}", put)
    async with TestClient(TestServer(app)) as client:
        answer = await client.put("/orders/42", headers=headers(Fence("orders:42", NOW)))
        assert await answer.json() == NOW
        assert (await client.put("/orders/42", headers=headers(Fence("orders:42", NOW - 1)))).status == 412
        assert (await client.put("/orders/42")).status == 400
        assert (await client.put("/orders/42", headers={HEADER: "orders%3A42=x"})).status == 400
