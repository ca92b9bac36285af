"""A shop of single pieces, for test_sale.py: each is sold under its lock, once the file `open` is there.

`uvicorn sale:app`, or `python sale.py PORT` for the same with aiohttp.
"""

import asyncio
import os
import sys
from pathlib import Path
from typing import Annotated

from aiohttp import web
from fastapi import FastAPI, Response

from redlock_async import Lease
from redlock_async.aiohttp import client_ctx, locked, problem_middleware
from redlock_async.fastapi import Locked, add_problem_handlers, lifespan

SHOP = Path(os.environ["SHOP"])


async def sold(piece):
    """Sell it; returns the status: 201, or 410 if it was before. Selling one twice is an error."""
    receipt = SHOP / piece
    if receipt.exists():
        return 410
    while not (SHOP / "open").exists():  # noqa: ASYNC110 - another process makes it
        await asyncio.sleep(0.02)
    receipt.touch(exist_ok=False)
    return 201


app = FastAPI(lifespan=lifespan())
add_problem_handlers(app)


@app.get("/")
async def seller():
    """Which process answers."""
    return os.getpid()


@app.post("/pieces/{piece}")
async def sell(piece: str, lease: Annotated[Lease, Locked("pieces:{piece}")]):  # noqa: ARG001 - it is held
    """With FastAPI."""
    return Response(status_code=await sold(piece))


async def seller_too(request):  # noqa: ARG001 - a handler's signature
    """Which process answers."""
    return web.json_response(os.getpid())


@locked("pieces:{piece}")
async def sell_too(request, lease):  # noqa: ARG001 - it is held
    """With aiohttp."""
    return web.Response(status=await sold(request.match_info["piece"]))


if __name__ == "__main__":
    other = web.Application(middlewares=[problem_middleware()])
    other.cleanup_ctx.append(client_ctx())
    other.router.add_get("/", seller_too)
    other.router.add_post("/pieces/{piece}", sell_too)
    web.run_app(other, host="127.0.0.1", port=int(sys.argv[1]), reuse_port=True)
