"""How many pieces a service with two workers sells, of a hundred, in each way of combining a lock and a session.

python tests/proof/shop.py                      # 300 requests, 100 pieces, PostgreSQL
python tests/proof/shop.py --strict             # the same with require_fence()
python tests/proof/shop.py --requests 60 --pieces 20 --only fenced
"""

import argparse
import asyncio
import os
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "fenced"))

import httpx
from databases import postgresql
from stores import connect

from redlock_async.fenced import sql
from redlock_async.testing import LocalCluster

SCOPES = ("function", "request")
WAYS = [f"/{lock}/{own}/{order}" for lock in SCOPES for own in SCOPES for order in ("lock-first", "session-first")]
WAYS += ["/block-around-transaction", "/block-then-commit", "/middleware"]


def stock(database, pieces):
    """Fill the shop."""
    with connect("postgresql", database) as connection:
        connection.execute("DROP TABLE IF EXISTS articles")
        connection.execute("CREATE TABLE articles (n bigint)")
        connection.execute("INSERT INTO articles VALUES (%s)", (pieces,))
        connection.execute(sql.CREATE["postgresql"])


async def sales(url, requests):
    """Send all requests at once; return the statuses."""
    limits = httpx.Limits(max_connections=100, max_keepalive_connections=0)
    async with httpx.AsyncClient(limits=limits, timeout=120) as http:
        answers = await asyncio.gather(*(http.post(url) for _ in range(requests)))
    return Counter(answer.status_code for answer in answers)


def free_port():
    """A port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def run(ways, requests, pieces, *, strict):
    """Return how many pieces each way has sold, and all statuses."""
    found = {}
    with postgresql() as database, LocalCluster(nodes=3) as cluster:
        port = free_port()
        environment = {
            "SHOP_DATABASE": database.replace("postgresql://postgres:@", "postgresql+asyncpg://postgres@"),
            "SHOP_STRICT": "1" if strict else "", "REDLOCK_NODES": ",".join(cluster.urls),
        }  # fmt: skip
        stock(database, pieces)
        command = ["uvicorn", "shop_app:app", "--app-dir", str(Path(__file__).parent), "--workers", "2"]
        command += ["--timeout-worker-healthcheck", "60", "--timeout-keep-alive", "60"]
        server = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", *command, "--port", str(port), "--log-level", "critical"],
            env=os.environ | environment,
        )
        try:
            wait_for(port, server)
            for way in ways:
                stock(database, pieces)
                found[way] = asyncio.run(sales(f"http://127.0.0.1:{port}{way}", requests))
        finally:
            server.terminate()
            server.wait(20)
    return found


def wait_for(port, server):
    """Wait until both workers listen: each answers a request of a new connection."""
    import time  # noqa: PLC0415 - only here

    give_up_at = time.monotonic() + 30
    while server.poll() is None and time.monotonic() < give_up_at:
        try:
            httpx.get(f"http://127.0.0.1:{port}/openapi.json")
        except httpx.TransportError:
            time.sleep(0.1)
        else:
            return
    raise RuntimeError("the service did not start")


def main():
    """Print a line for each way."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--pieces", type=int, default=100)
    parser.add_argument("--strict", action="store_true", help="with require_fence() on the table")
    parser.add_argument("--only", choices=("fenced", "unfenced"))
    options = parser.parse_args()
    ends = [options.only] if options.only else ["fenced", "unfenced"]
    ways = [f"{way}/{end}" for end in ends for way in WAYS]
    oversold = 0
    for way, statuses in run(ways, options.requests, options.pieces, strict=options.strict).items():
        sold = statuses[201]
        others = {status: number for status, number in statuses.items() if status not in {201, 410}}
        remarks = ["OVERSOLD"] * (sold > options.pieces) + [str(others)] * bool(others)
        print(f"{way:45} sold {sold:4} of {options.pieces}", *remarks, flush=True)
        oversold += sold > options.pieces
    return oversold


if __name__ == "__main__":
    sys.exit(bool(main()))
