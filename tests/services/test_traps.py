"""The traps that the documentation warns about are real, and what it advises instead avoids them."""

import asyncio
import contextlib
import json
import logging
import os
import subprocess
import sys
from typing import Annotated

import httpx
import pytest
from fastapi import APIRouter, BackgroundTasks, Depends, FastAPI, HTTPException
from fastapi.responses import StreamingResponse

from redlock_async import Lease, LockLost, Redlock
from redlock_async.fastapi import Locked, add_problem_handlers, lifespan, lock

pytestmark = [pytest.mark.thorough, pytest.mark.redis]

# -- tasks that outlive the block: docs/reference.md, docs/faq.md ------------------------------------------------------


@pytest.mark.asyncio
async def test_a_task_that_is_not_awaited_continues_after_the_release(nodes):
    """And works at the same time as the next holder."""
    go_on, overlapped = asyncio.Event(), []

    async def work():
        await go_on.wait()
        overlapped.append(inside)

    async with Redlock(nodes) as redlock:
        async with redlock("x"):
            task = asyncio.create_task(work())
        async with redlock("x") as inside:
            go_on.set()
            await task
            assert overlapped == [inside]
            assert inside.valid


@pytest.mark.asyncio
async def test_a_task_that_is_not_awaited_continues_after_a_loss(nodes):
    """The block is cancelled, and the task is not."""
    async with Redlock(nodes) as redlock:
        with pytest.raises(LockLost):
            async with redlock("x"):
                task = asyncio.create_task(asyncio.Event().wait())
                await redlock.force_release("x")
                await asyncio.Event().wait()
        assert not task.done()
        task.cancel()


@pytest.mark.asyncio
async def test_a_task_group_in_the_block_ends_before_the_release(nodes, eyes):
    """As docs/reference.md has it: its tasks are waited for."""
    ended = []

    async def work():
        await asyncio.sleep(0)
        ended.append(sum(value is not None for value in eyes.holding("x")))

    async with Redlock(nodes) as redlock:
        await redlock.status()  # all nodes are connected
        async with redlock("x"), asyncio.TaskGroup() as group:
            group.create_task(work())
            group.create_task(work())
    assert len(ended) == 2
    assert min(ended) >= 3


@pytest.mark.asyncio
async def test_a_task_group_in_the_block_is_cancelled_by_a_loss(nodes):
    """Its tasks end with the block."""
    async with Redlock(nodes) as redlock:
        with pytest.raises(LockLost):
            async with redlock("x"), asyncio.TaskGroup() as group:
                task = group.create_task(asyncio.Event().wait())
                await redlock.force_release("x")
        assert task.cancelled()


# -- ttl=3000: docs/reference.md, docs/migration.md, docs/cli.md -------------------------------------------------------


def doctor(nodes):
    """The check of the ttl."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("REDLOCK_")}
    done = subprocess.run(
        [sys.executable, "-m", "redlock_async", "doctor", "--json"],
        capture_output=True, text=True, check=False, env={**kept, "REDLOCK_NODES": ",".join(nodes)},
    )  # fmt: skip
    (check,) = [each for each in json.loads(done.stdout)["checks"] if each["check"] == "ttl"]
    return check


@pytest.mark.asyncio
@pytest.mark.parametrize("ttl", [1000, 2000, 3000, 30_000])
async def test_a_ttl_in_milliseconds_is_reported(nodes, caplog, eyes, ttl):
    """It blocks the name for that many seconds after a crash; the log and `doctor` say so."""
    async with Redlock(nodes) as redlock:
        (await redlock("x", ttl=ttl).acquire()).detach()
    assert max(client.pttl("x") for client in eyes.clients) > 0.9 * ttl * 1000
    assert f"a ttl of {ttl} s is used" in caplog.text
    assert "Durations are seconds" in caplog.text
    check = await asyncio.to_thread(doctor, nodes)
    assert check["level"] == "warning"
    assert "durations are seconds" in check["remedy"]


@pytest.mark.asyncio
@pytest.mark.parametrize("ttl", [0.5, 10, 60, 900, 1500, 1800])
async def test_a_plausible_ttl_is_not_reported(nodes, caplog, ttl):
    """Half an hour for a lease that a shell holds, say."""
    with caplog.at_level(logging.WARNING):
        async with Redlock(nodes) as redlock, redlock("x", ttl=ttl):
            pass
    assert "Durations are seconds" not in caplog.text
    assert (await asyncio.to_thread(doctor, nodes))["level"] == "ok"


# -- FastAPI: docs/fastapi.md ------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def calling(app):
    """A client inside the application's lifespan."""
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://app") as http,
    ):
        yield http


def application(nodes):
    """One that tries once."""
    app = FastAPI(lifespan=lifespan(Redlock(nodes, wait=0)))
    add_problem_handlers(app)
    return app


class Gate:
    """Authentication that takes its time, and lets nobody in."""

    def __init__(self):
        self.asked, self.answer = asyncio.Event(), asyncio.Event()

    async def __call__(self):
        self.asked.set()
        await self.answer.wait()
        raise HTTPException(401)


def guarded(app, gate):
    """The same route four times: with the lock in front of the authentication, and behind it."""
    order = Annotated[Lease, Locked("orders:{order_id}")]
    user = Annotated[str, Depends(gate)]
    router = APIRouter(dependencies=[Depends(gate)])

    @app.post("/lock-first/{order_id}")
    async def lock_first(order_id: int, lease: order, user: user): ...

    @app.post("/lock-last/{order_id}")
    async def lock_last(order_id: int, user: user, lease: order): ...

    @app.post("/route/{order_id}", dependencies=[Depends(gate)])
    async def of_route(order_id: int, lease: order): ...

    @router.post("/router/{order_id}")
    async def of_router(order_id: int, lease: order): ...

    app.include_router(router)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("path", "locked"), [("lock-first", True), ("lock-last", False), ("route", False), ("router", False)]
)
async def test_a_lock_before_authentication_can_be_taken_by_strangers(nodes, eyes, path, locked):
    """Without credentials, for as long as they are checked; behind the authentication it is not."""
    app, gate = application(nodes), Gate()
    guarded(app, gate)
    async with calling(app) as http:
        await app.state.redlock.status()  # all nodes are connected
        anonymous = asyncio.ensure_future(http.post(f"/{path}/7"))
        await asyncio.wait_for(gate.asked.wait(), 5)
        assert (eyes.keys() != []) is locked
        gate.answer.set()
        assert (await anonymous).status_code == 401


@pytest.mark.asyncio
@pytest.mark.parametrize(("path", "status"), [("lock-first", 409), ("lock-last", 401), ("route", 401), ("router", 401)])
async def test_a_lock_in_front_of_the_authentication_answers_strangers(nodes, path, status):
    """Whether a name is locked is told to whoever asks."""
    app, gate = application(nodes), Gate()
    gate.answer.set()
    guarded(app, gate)
    async with calling(app) as http, app.state.redlock("orders:7"):
        assert (await http.post(f"/{path}/7")).status_code == status


@pytest.mark.asyncio
@pytest.mark.parametrize(("path", "locked"), [("locked", False), ("lock", True)])
async def test_background_tasks_and_streams_run_after_the_release_of_locked(nodes, eyes, path, locked):
    """With `Locked`; with a plain `Depends(lock(...))` they run under the lock."""
    app, seen = application(nodes), {}

    def look(what):
        seen[what] = len(eyes.keys()) > len(nodes) // 2  # a straggler may be on its way still

    @app.get("/locked", dependencies=[Locked("x")])
    @app.get("/lock", dependencies=[Depends(lock("x"))])
    async def order(tasks: BackgroundTasks):
        look("function")
        tasks.add_task(look, "task")

        async def lines():
            look("stream")
            yield "line"

        return StreamingResponse(lines(), background=tasks)

    async with calling(app) as http:
        await app.state.redlock.status()  # all nodes are connected
        assert (await http.get(f"/{path}")).text == "line"
    assert seen == {"function": True, "task": locked, "stream": locked}
