"""A webhook receiver that handles each event once, however often and to however many servers it is delivered.

    python examples/aiohttp_webhooks.py
    curl -H 'webhook-id: 1' -d 'a letter to anna' http://127.0.0.1:8080/webhooks

It needs `pip install 'redlock-async[aiohttp,testing]'`. It uses the nodes in REDLOCK_NODES, or starts its own if that
is not set. It stores handled events in events.sqlite; remove that file to start over. You can start it several times
with the same REDLOCK_NODES: the servers share the port.

A sender that gets no reply delivers again, often while the first delivery is still in progress. Checking whether an
event was handled and then handling it are two steps. Without the lock, both deliveries check before either is done.
"""

import argparse
import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator
from contextlib import ExitStack, closing

from aiohttp import web

from redlock_async import Lease
from redlock_async.aiohttp import client_ctx, locked, problem_middleware
from redlock_async.fenced import sql
from redlock_async.fenced.sqlite import fence


class Events:
    """The handled events and their results: two tables that are written together.

    If the work is not in the same database (such as posting a letter) and a server dies right after it, the work is
    done again. In that case, pass the event's id to the other system as well.
    """

    def __init__(self, path: str) -> None:
        self._tables = sqlite3.connect(path, timeout=5)
        self._tables.execute(sql.CREATE["sqlite"])
        self._tables.execute("CREATE TABLE IF NOT EXISTS events (id TEXT PRIMARY KEY)")
        self._tables.execute("CREATE TABLE IF NOT EXISTS letters (event TEXT, text TEXT)")

    def done(self, event: str) -> bool:
        """Return whether the event was handled."""
        return self._tables.execute("SELECT 1 FROM events WHERE id = ?", (event,)).fetchone() is not None

    def write(self, event: str, lease: Lease, letter: str) -> None:
        """Write both rows or none."""
        with self._tables:  # a transaction
            fence(self._tables, lease)  # rejects a server that was paused while another one handled the event
            self._tables.execute("INSERT INTO events VALUES (?)", (event,))
            self._tables.execute("INSERT INTO letters VALUES (?, ?)", (event, letter))

    def close(self) -> None:
        """Close the file."""
        self._tables.close()


EVENTS = web.AppKey("events", Events)


@locked("webhooks:{headers[webhook-id]}", wait=10)
async def receive(request: web.Request, lease: Lease) -> web.Response:
    """Handle one delivery."""
    events, event = request.app[EVENTS], request.headers["webhook-id"]
    if events.done(event):
        return web.json_response({"event": event, "done": "before"})
    letter = await request.text()
    await asyncio.sleep(0.05)  # the work
    events.write(event, lease, letter)
    return web.json_response({"event": event, "done": "now"})


def application(path: str) -> web.Application:
    """Build the application."""

    async def events(app: web.Application) -> AsyncIterator[None]:
        with closing(Events(path)) as app[EVENTS]:
            yield

    app = web.Application(middlewares=[problem_middleware()])  # 409, 503: the sender delivers again
    app.cleanup_ctx.extend([client_ctx(), events])
    app.router.add_post("/webhooks", receive)
    return app


def main(port: int, path: str) -> None:
    """Serve until Ctrl-C."""
    with ExitStack() as stack:
        if not os.environ.get("REDLOCK_NODES"):
            from redlock_async.testing import LocalCluster  # noqa: PLC0415 - only needed without REDLOCK_NODES

            os.environ["REDLOCK_NODES"] = ",".join(stack.enter_context(LocalCluster(nodes=5)).urls)
        # A sender that hangs up will deliver again, so its request can be cancelled.
        web.run_app(application(path), host="127.0.0.1", port=port, reuse_port=True, handler_cancellation=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--events", default="events.sqlite", help="the file with the handled events")
    options = parser.parse_args()
    main(options.port, options.events)
