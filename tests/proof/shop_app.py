"""A shop with a hundred pieces of one article, sold in many ways of combining a lock and a session: shop.py runs it.

Every way reads the stock, waits as if a card was charged, and writes the new stock with the session.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from itertools import product
from typing import Annotated

from fastapi import Depends, FastAPI, HTTPException, Request
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine

from redlock_async import Lease, Redlock
from redlock_async.fastapi import add_problem_handlers, client, lifespan, lock
from redlock_async.fenced.sqlalchemy import fence, require_fence

SCOPES = ("function", "request")
engine = create_async_engine(os.environ["SHOP_DATABASE"], pool_size=20, max_overflow=20)
Session = async_sessionmaker(engine)
if os.environ.get("SHOP_STRICT"):
    require_fence(engine, "articles")

app = FastAPI(lifespan=lifespan(Redlock.from_env()))
add_problem_handlers(app)


async def sell(session: AsyncSession, lease: Lease, *, fenced: bool) -> None:
    """Sell one piece; 410 if none is left."""
    if fenced:
        await fence(session, lease)
    left = await session.scalar(text("SELECT n FROM articles"))
    if not left:
        raise HTTPException(410)
    await asyncio.sleep(0.002)
    await session.execute(text("UPDATE articles SET n = :n"), {"n": left - 1})


async def session() -> AsyncIterator[AsyncSession]:
    """A session that commits after the function, as the documentation of FastAPI shows it."""
    async with Session() as opened:
        yield opened
        await opened.commit()


def add(path, lock_scope, session_scope, lock_first, fenced):
    """One way."""
    locking = Annotated[Lease, Depends(lock("article", wait=60), scope=lock_scope)]
    opening = Annotated[AsyncSession, Depends(session, scope=session_scope)]
    if lock_first:

        async def sale(lease: locking, opened: opening):
            await sell(opened, lease, fenced=fenced)
    else:

        async def sale(opened: opening, lease: locking):
            await sell(opened, lease, fenced=fenced)

    app.post(path, status_code=201)(sale)


for fenced in (True, False):
    end = "fenced" if fenced else "unfenced"
    for lock_scope, session_scope, lock_first in product(
        ("function", "request"), ("function", "request"), (True, False)
    ):
        order = "lock-first" if lock_first else "session-first"
        add(f"/{lock_scope}/{session_scope}/{order}/{end}", lock_scope, session_scope, lock_first, fenced)

    @app.post(f"/block-around-transaction/{end}", status_code=201)
    async def around(redlock: Annotated[Redlock, Depends(client)], fenced: bool = fenced):  # noqa: FBT001 - bound here
        """The block of the lock is around that of the transaction."""
        async with redlock("article", wait=60) as lease, Session.begin() as opened:
            await sell(opened, lease, fenced=fenced)

    @app.post(f"/block-then-commit/{end}", status_code=201)
    async def inside(
        opened: Annotated[AsyncSession, Depends(session)],
        redlock: Annotated[Redlock, Depends(client)],
        fenced: bool = fenced,  # noqa: FBT001 - bound here
    ):
        """The lock is released in the function, and the session's dependency commits after it."""
        async with redlock("article", wait=60) as lease:
            await sell(opened, lease, fenced=fenced)

    @app.post(f"/middleware/{end}", status_code=201)
    async def late(
        request: Request,
        lease: Annotated[Lease, Depends(lock("article", wait=60), scope="function")],
        fenced: bool = fenced,  # noqa: FBT001 - bound here
    ):
        """A middleware commits, after everything that belongs to the route."""
        await sell(request.state.session, lease, fenced=fenced)


@app.middleware("http")
async def commit(request: Request, call_next):
    """Open a session for each request and commit it at the end."""
    if not request.url.path.startswith("/middleware"):
        return await call_next(request)
    async with Session() as request.state.session:
        response = await call_next(request)
        if response.status_code < 300:
            await request.state.session.commit()
        return response
