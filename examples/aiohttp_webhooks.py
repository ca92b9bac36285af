"""A receiver of webhooks that does what an event asks for once, however often and to how many servers it is delivered.

    python examples/aiohttp_webhooks.py
    curl -H 'webhook-id: 1' -d 'a letter to anna' http://127.0.0.1:8080/webhooks

It needs `pip install 'redlock-async[aiohttp,testing]'`. The masters are those in REDLOCK_NODES; where that is not
set, it starts some of its own. What was done is in events.sqlite: remove it to begin anew. With the same
REDLOCK_NODES it can be started several times: the servers share the port. A sender that hears nothing delivers again,
often while the first delivery is still at work. To ask whether an event was seen and then to do it is two steps:
without the lock, both deliveries ask before either has done it.
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


class Events:
    """Which events were done, and what was done for them: here two tables, which are written together.

    Where the work is not in the same database (a letter that was posted), a server that dies right behind it has it
    done again. Give whoever does it the event's id as well.
    """

    def __init__(self, path: str) -> None:
        self._tables = sqlite3.connect(path, timeout=5, isolation_level=None)
        self._tables.execute("CREATE TABLE IF NOT EXISTS events (id TEXT PRIMARY KEY, fence INTEGER)")
        self._tables.execute("CREATE TABLE IF NOT EXISTS letters (event TEXT, text TEXT)")

    def done(self, event: str) -> bool:
        """Whether that one was."""
        return self._tables.execute("SELECT 1 FROM events WHERE id = ?", (event,)).fetchone() is not None

    def write(self, event: str, fence: int, letter: str) -> None:
        """Both, or neither."""
        self._tables.execute("BEGIN IMMEDIATE")
        with self._tables:
            # It is the key that refuses a server which was stopped in the middle of it while another has done it.
            self._tables.execute("INSERT INTO events VALUES (?, ?)", (event, fence))
            self._tables.execute("INSERT INTO letters VALUES (?, ?)", (event, letter))

    def close(self) -> None:
        """Close the file."""
        self._tables.close()


EVENTS = web.AppKey("events", Events)


@locked("webhooks:{headers[webhook-id]}", wait=10)
async def receive(request: web.Request, lease: Lease) -> web.Response:
    """One delivery."""
    events, event = request.app[EVENTS], request.headers["webhook-id"]
    assert lease.fencing_token is not None  # there is one unless the client has fencing=False
    if events.done(event):
        return web.json_response({"event": event, "done": "before"})
    letter = await request.text()
    await asyncio.sleep(0.05)  # the work
    events.write(event, lease.fencing_token, letter)
    return web.json_response({"event": event, "done": "now"})


def application(path: str) -> web.Application:
    """All of it."""

    async def events(app: web.Application) -> AsyncIterator[None]:
        with closing(Events(path)) as app[EVENTS]:
            yield

    app = web.Application(middlewares=[problem_middleware()])  # 409, 503: whoever sends delivers again
    app.cleanup_ctx.extend([client_ctx(), events])
    app.router.add_post("/webhooks", receive)
    return app


def main(port: int, path: str) -> None:
    """Serve until Ctrl-C."""
    with ExitStack() as stack:
        if not os.environ.get("REDLOCK_NODES"):
            from redlock_async.testing import LocalCluster  # noqa: PLC0415 - only where there are no masters

            os.environ["REDLOCK_NODES"] = ",".join(stack.enter_context(LocalCluster(nodes=5)).urls)
        # A sender that hangs up will deliver again: what it has begun need not go on.
        web.run_app(application(path), host="127.0.0.1", port=port, reuse_port=True, handler_cancellation=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--events", default="events.sqlite", help="the file with what was done")
    options = parser.parse_args()
    main(options.port, options.events)
