"""Record the output that the pictures show: `python -m website.record` from the repository's folder.

It starts real servers, lets them fail where the picture shows that, and writes website/recordings. Then run
`python -m website.pictures`.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from pathlib import Path

from redlock_async import Redlock
from redlock_async.testing import LocalCluster
from website import terminal

RECORDINGS = Path(__file__).parent / "recordings"
PROGRAM = [sys.executable, "-m", "redlock_async"]
DURABLE = ("--appendonly", "yes", "--appendfsync", "always", "--maxmemory-policy", "noeviction")


def environment(cluster: LocalCluster | None = None) -> dict[str, str]:
    """Return what the recorded commands run with."""
    nodes = {} if cluster is None else {"REDLOCK_NODES": ",".join(cluster.urls)}
    return os.environ | {"TERM": "xterm-256color", "PYTHONUTF8": "1", "COLUMNS": "", "NO_COLOR": ""} | nodes


def demo() -> list[terminal.Frame]:
    """Record the whole demo, twice a second."""
    return terminal.record([*PROGRAM, "demo"], environment(), every=0.5)


def doctor() -> list[terminal.Frame]:
    """Record a healthy cluster."""
    with LocalCluster(5, server_args=DURABLE) as cluster:
        asyncio.run(_use(cluster))
        return terminal.record([*PROGRAM, "doctor"], environment(cluster))


async def _use(cluster: LocalCluster) -> None:
    """Use the nodes until they are older than the ttl."""
    async with Redlock(cluster.urls, ttl=1) as redlock, redlock("warm-up"):
        await asyncio.sleep(11)


def locks() -> list[terminal.Frame]:
    """Record the locks of several services."""

    async def held() -> list[terminal.Frame]:
        with LocalCluster(5) as cluster:
            web = Redlock(cluster.urls, owner="web-1:4711", ttl=30)
            batch = Redlock(cluster.urls, owner="batch-1:88", ttl=30)
            async with (
                web, batch, web("orders:42"), web("acct:1", "acct:2"), web.read_lock("doc:7"), batch.read_lock("doc:7"),
                web.semaphore("gpu", permits=2), batch.fair_lock("report"),
            ):  # fmt: skip
                await web.latch("import", count=3, generation=9).count_down("customers")
                waiting = asyncio.create_task(web.fair_lock("report").acquire(wait=60))
                await asyncio.sleep(1)
                frames = await asyncio.to_thread(terminal.record, [*PROGRAM, "locks"], environment(cluster))
                waiting.cancel()
                await asyncio.wait([waiting])
            return frames

    return asyncio.run(held())


def status() -> list[terminal.Frame]:
    """Record `status --watch` while a node is killed."""
    with LocalCluster(5) as cluster:
        asyncio.run(_use(cluster))
        killing = threading.Timer(9, cluster.kill, args=[0])
        killing.start()
        frames = terminal.record([*PROGRAM, "status", "--watch"], environment(cluster), every=14.5, until=15)
        return frames[1:2]


COMMANDS = {"demo": demo, "doctor": doctor, "locks": locks, "status": status}


def main(names: list[str]) -> None:
    """Record these, or all."""
    RECORDINGS.mkdir(exist_ok=True)
    for name in names or COMMANDS:
        terminal.save(RECORDINGS / f"{name}.json", COMMANDS[name]())


if __name__ == "__main__":
    main(sys.argv[1:])
