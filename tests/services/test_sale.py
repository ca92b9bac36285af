"""Services with more customers than pieces: each piece is sold once; late customers get Retry-After."""

import asyncio
import os
import signal
import sys
from collections import Counter
from pathlib import Path

import httpx
import pytest

from redlock_async import Redlock

HERE = Path(__file__).parent
PIECES, CUSTOMERS, TTL = 20, 200, 2.0


@pytest.fixture(params=["fastapi", "aiohttp"])
def shop(request, nodes, run, free_port, tmp_path):
    """A service of two processes that share a port; returns its URL and its folder."""
    settings = {
        "REDLOCK_NODES": ",".join(nodes), "REDLOCK_TTL": str(TTL), "REDLOCK_WAIT": "0", "SHOP": str(tmp_path),
    }  # fmt: skip
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    if request.param == "fastapi":
        workers = [sys.executable, "-m", "uvicorn", "sale:app", "--app-dir", HERE, "--workers", 2, "--port", port]
        run([*workers, "--log-level", "critical"], url, **settings)
    else:
        for _ in range(2):
            run([sys.executable, HERE / "sale.py", port], url, **settings)
    sellers = set()
    while len(sellers) < 2:
        sellers.add(httpx.get(url).json())
    return url, tmp_path


def customers(url):
    """A client of the service that makes a connection for each request, so that both processes have some."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    return httpx.AsyncClient(base_url=url, limits=limits, timeout=30)


async def persistently(request):
    """The answer; again while the kernel still gives connections to a process that dies."""
    while True:
        try:
            return await request()
        except httpx.TransportError:
            await asyncio.sleep(0.02)


@pytest.mark.redis
@pytest.mark.asyncio
async def test_each_piece_is_sold_once_and_late_customers_get_retry_after(shop, nodes):
    """Ten customers for each of twenty pieces at the same time; and then one whose seller is killed.

    What `Retry-After` promises: when whoever held the lock is gone, a customer who waits for as long as told does not
    find that lock held any more, and was not told to wait for a second longer than it lasted.
    """
    url, folder = shop
    async with customers(url) as http, Redlock(nodes) as redlock:
        requests = [asyncio.create_task(http.post(f"/pieces/{number % PIECES}")) for number in range(CUSTOMERS)]
        late = []
        for answer in asyncio.as_completed(requests):
            late.append(await answer)
            if len(late) == CUSTOMERS - PIECES:
                break
        told = [int(answer.headers["retry-after"]) for answer in late]
        assert Counter((answer.status_code, answer.json()["reason"]) for answer in late) == {(409, "held"): len(late)}
        assert sum(request.done() for request in requests) == len(late)
        holders = [await redlock.inspect(f"pieces:{number}") for number in range(PIECES)]
        print(f"sold by {Counter(each.owner for each in holders)}; told to come again after {Counter(told)}")
        assert 1 <= min(told) <= max(told) <= TTL + 1
        (folder / "open").touch()
        assert Counter(request.status_code for request in await asyncio.gather(*requests)) == {201: 20, 409: 180}
        assert len(list(folder.iterdir())) == PIECES + 1
        again = await asyncio.gather(*(http.post(f"/pieces/{number}") for number in range(PIECES)))
        assert {answer.status_code for answer in again} == {410}

        (folder / "open").unlink()
        first = asyncio.create_task(http.post("/pieces/last"))
        while (holder := await redlock.inspect("pieces:last")) is None or not holder.held:
            assert not first.done()
        os.kill(int(holder.owner.rpartition(":")[2]), signal.SIGKILL)
        with pytest.raises(httpx.TransportError):
            await first
        refused = await persistently(lambda: http.post("/pieces/last"))
        left = (await redlock.inspect("pieces:last")).remaining
        assert (refused.status_code, refused.json()["reason"]) == (409, "held")
        seconds = int(refused.headers["retry-after"])
        assert seconds - 1.2 < left <= seconds
        (folder / "open").touch()
        await asyncio.sleep(seconds)  # as told
        assert (await persistently(lambda: http.post("/pieces/last"))).status_code == 201
