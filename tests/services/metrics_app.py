"""A service of several workers as uvicorn runs it: each has its client, and any of them answers a scrape for all."""

import os

from prometheus_client import CollectorRegistry, make_asgi_app, multiprocess

from redlock_async import Redlock
from redlock_async.prometheus import Exporter


def scraped():
    """The metrics of all workers, from the files they share."""
    registry = CollectorRegistry()
    multiprocess.MultiProcessCollector(registry)
    return registry


metrics = make_asgi_app(scraped())
running = {}


async def app(scope, receive, send):
    """/pair takes a lock and gives it back, and says which worker did; /metrics is scraped."""
    if scope["type"] == "lifespan":
        await lifespan(receive, send)
    elif scope["path"] == "/metrics":
        await metrics(scope, receive, send)
    else:
        async with running["redlock"]("shared"):
            pass
        await send({"type": "http.response.start", "status": 200, "headers": [(b"connection", b"close")]})
        await send({"type": "http.response.body", "body": str(os.getpid()).encode()})


async def lifespan(receive, send):
    """The client and its exporter live as long as the worker."""
    await receive()
    async with Redlock.from_env() as redlock:
        running["redlock"] = redlock
        Exporter().add(redlock)
        await send({"type": "lifespan.startup.complete"})
        await receive()
    await send({"type": "lifespan.shutdown.complete"})
