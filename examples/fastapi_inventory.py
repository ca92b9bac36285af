"""An inventory service that never oversells, on any number of servers.

    python examples/fastapi_inventory.py --workers 2
    curl -X POST http://127.0.0.1:8000/articles/lamp/sales

It needs `pip install 'redlock-async[fastapi,testing]' uvicorn`. It uses the nodes in REDLOCK_NODES, or starts its own
if that is not set. inventory.sqlite starts with twenty lamps; remove it for twenty more.

A sale reads the stock, charges a card and writes the new stock. Without the lock, all requests that read the same
number sell the same lamp. The fence rejects a server that was paused during a sale.
"""

import argparse
import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, closing
from pathlib import Path
from typing import Annotated

import uvicorn
from fastapi import FastAPI, HTTPException

from redlock_async import Lease
from redlock_async.fastapi import Locked, add_problem_handlers, lifespan
from redlock_async.fenced import sql
from redlock_async.fenced.sqlite import fence

FILE = os.environ.get("INVENTORY", "inventory.sqlite")
CHARGING = float(os.environ.get("INVENTORY_CHARGING", "0.02"))


class Inventory:
    """The stock of each article: a table here, your database in production.

    Every transaction is fenced, because the lease alone cannot prevent a late write by a server that was paused.
    """

    def __init__(self, path: str) -> None:
        self._table = sqlite3.connect(path, timeout=5)
        with self._table:
            self._table.execute(sql.CREATE["sqlite"])
            self._table.execute("CREATE TABLE IF NOT EXISTS articles (name TEXT PRIMARY KEY, left INTEGER)")
            self._table.execute("INSERT OR IGNORE INTO articles VALUES ('lamp', 20)")

    def left(self, article: str, lease: Lease) -> int:
        """Return the stock of an article; raise StaleFence if a later holder has been here."""
        with self._table:  # a transaction
            fence(self._table, lease)
            row = self._table.execute("SELECT left FROM articles WHERE name = ?", (article,)).fetchone()
        return int(row[0]) if row is not None else 0

    def write(self, article: str, left: int, lease: Lease) -> None:
        """Store the stock; raise StaleFence if a later holder has been here."""
        with self._table:
            fence(self._table, lease)
            self._table.execute("UPDATE articles SET left = ? WHERE name = ?", (left, article))

    def close(self) -> None:
        """Close the file."""
        self._table.close()


@asynccontextmanager
async def inventory(app: FastAPI) -> AsyncIterator[None]:
    """Open and close the inventory with the application."""
    with closing(Inventory(FILE)) as app.state.inventory:
        yield


app = FastAPI(lifespan=lifespan(inner=inventory))
add_problem_handlers(app)  # 409 after waiting in vain or a stale fence; 503 without a quorum or after a lost lock


@app.post("/articles/{article}/sales", status_code=201)
async def sell(article: str, lease: Annotated[Lease, Locked("articles:{article}", wait=10)]) -> dict[str, int]:
    """Sell one article."""
    stock: Inventory = app.state.inventory
    if not (left := stock.left(article, lease)):
        raise HTTPException(410, "sold out")
    await asyncio.sleep(CHARGING)  # the card is charged
    stock.write(article, left - 1, lease)
    return {"left": left - 1}


def main(port: int, workers: int) -> None:
    """Serve until Ctrl-C."""
    with ExitStack() as stack:
        if not os.environ.get("REDLOCK_NODES"):
            from redlock_async.testing import LocalCluster  # noqa: PLC0415 - only needed without REDLOCK_NODES

            os.environ["REDLOCK_NODES"] = ",".join(stack.enter_context(LocalCluster(nodes=5)).urls)
        here = Path(__file__)
        uvicorn.run(f"{here.stem}:app", app_dir=str(here.parent), port=port, workers=workers)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--workers", type=int, default=1, help="number of server processes")
    options = parser.parse_args()
    main(options.port, options.workers)
