"""A shop that sells no more than it has, however many servers there are.

    python examples/fastapi_inventory.py --workers 2
    curl -X POST http://127.0.0.1:8000/articles/lamp/sales

It needs `pip install 'redlock-async[fastapi,testing]' uvicorn`. The masters are those in REDLOCK_NODES; where that is
not set, it starts some of its own. There are twenty lamps, in inventory.sqlite: remove it for twenty more. To see how
many are left, to charge a card and to write one less is three steps: without the lock, all who read the same number
sell the same lamp.
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

FILE = os.environ.get("INVENTORY", "inventory.sqlite")
CHARGING = float(os.environ.get("INVENTORY_CHARGING", "0.02"))


class SupersededError(Exception):
    """A later holder of the lock has written already."""


class Inventory:
    """What is left of each article: here a table, in earnest your database, with the same statement.

    It compares fences. The lease alone cannot keep a server from writing late that was stopped in the middle of a sale.
    """

    def __init__(self, path: str) -> None:
        self._table = sqlite3.connect(path, timeout=5, isolation_level=None)
        self._table.execute("CREATE TABLE IF NOT EXISTS articles (name TEXT PRIMARY KEY, left INTEGER, fence INTEGER)")
        self._table.execute("INSERT OR IGNORE INTO articles VALUES ('lamp', 20, 0)")

    def left(self, article: str) -> int:
        """How many there are."""
        row = self._table.execute("SELECT left FROM articles WHERE name = ?", (article,)).fetchone()
        return int(row[0]) if row is not None else 0

    def write(self, article: str, left: int, fence: int) -> None:
        """Store how many there are, unless a later holder has."""
        written = self._table.execute(
            "UPDATE articles SET left = ?, fence = ? WHERE name = ? AND fence <= ?", (left, fence, article, fence)
        )
        if not written.rowcount:
            raise SupersededError

    def close(self) -> None:
        """Close the file."""
        self._table.close()


@asynccontextmanager
async def inventory(app: FastAPI) -> AsyncIterator[None]:
    """The shop's own part of the application's life."""
    with closing(Inventory(FILE)) as app.state.inventory:
        yield


app = FastAPI(lifespan=lifespan(inner=inventory))
add_problem_handlers(app)  # 409 to who has waited in vain, 503 when locks cannot be had, or one was lost


@app.post("/articles/{article}/sales", status_code=201)
async def sell(article: str, lease: Annotated[Lease, Locked("articles:{article}", wait=10)]) -> dict[str, int]:
    """Sell one of them."""
    stock: Inventory = app.state.inventory
    assert lease.fencing_token is not None  # there is one unless the client has fencing=False
    if not (left := stock.left(article)):
        raise HTTPException(410, "sold out")
    await asyncio.sleep(CHARGING)  # the card is charged
    try:
        stock.write(article, left - 1, lease.fencing_token)
    except SupersededError:
        raise HTTPException(503, "this server was stopped in the middle of it, and others went on") from None
    return {"left": left - 1}


def main(port: int, workers: int) -> None:
    """Serve until Ctrl-C."""
    with ExitStack() as stack:
        if not os.environ.get("REDLOCK_NODES"):
            from redlock_async.testing import LocalCluster  # noqa: PLC0415 - only where there are no masters

            os.environ["REDLOCK_NODES"] = ",".join(stack.enter_context(LocalCluster(nodes=5)).urls)
        here = Path(__file__)
        uvicorn.run(f"{here.stem}:app", app_dir=str(here.parent), port=port, workers=workers)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--workers", type=int, default=1, help="processes that serve")
    options = parser.parse_args()
    main(options.port, options.workers)
