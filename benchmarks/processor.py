"""Processor time of a pair, in the client and on five embedded servers: `python -m benchmarks.processor [TASKS]`.

Unlike a rate, it hardly depends on what else the machine does. Also says how long a command for many locks keeps a
server busy.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from statistics import median
from typing import Any, cast

import redis

from redlock_async.testing import LocalCluster

from .contenders import BY_NAME
from .timing import now
from .worker import Use

ROUNDS, SECONDS, WARM_UP = 5, 0.5, 0.2
CONTENDERS = ("floor", "ours")
MANY = 32
"""Locks in the largest group."""


async def pairs(name: str, urls: Sequence[str], tasks: int, servers: Sequence[Any]) -> tuple[float, float]:
    """Return the µs of processor time that a pair takes in the client, and on all servers."""
    contender = BY_NAME[name].create()
    await contender.open(urls)
    use = Use(contender.acquire, contender.release)
    names = [f"bench:processor:{os.getpid()}:{number}" for number in range(tasks)]
    await asyncio.gather(*(use.alone(each, now() + WARM_UP) for each in names))
    before, on_servers = os.times(), used(servers)
    took = await asyncio.gather(*(use.alone(each, now() + SECONDS) for each in names))
    number, after = sum(map(len, took)), os.times()
    own = after.user + after.system - before.user - before.system
    on_servers = used(servers) - on_servers
    await contender.close()
    return own / number * 1e6, on_servers / number * 1e6


def used(servers: Sequence[Any]) -> float:
    """The processor time of all servers so far, in seconds."""
    figures = (server.info("cpu") for server in servers)
    return float(sum(each["used_cpu_user"] + each["used_cpu_sys"] for each in figures))


def busy(server: Any, keys: int) -> list[int]:
    """The durations of the scripts with that many keys, in µs, in order."""
    entries = cast("list[dict[str, Any]]", server.slowlog_get(100_000))
    words = [(entry["command"].split(), entry["duration"]) for entry in entries]
    return sorted(took for command, took in words if command[0] == b"EVALSHA" and int(command[2]) == keys)


def main(tasks: int) -> None:
    """Measure the contenders in turns, and print the medians."""
    figures: dict[str, list[tuple[float, float]]] = {name: [] for name in CONTENDERS}
    with LocalCluster(5) as cluster:
        servers = [redis.Redis.from_url(url) for url in cluster.urls]
        for _ in range(ROUNDS):
            for name in CONTENDERS:
                figures[name].append(asyncio.run(pairs(name, cluster.urls, tasks, servers)))
        for name, rounds in figures.items():
            own, others = (median(part) for part in zip(*rounds, strict=True))
            both = own + others
            print(f"{name:6} {tasks} tasks: client {own:5.1f} µs, servers {others:5.1f} µs, together {both:5.1f} µs")
        servers[0].config_set("slowlog-max-len", 100_000)
        servers[0].config_set("slowlog-log-slower-than", 0)
        asyncio.run(pairs("ours", cluster.urls, max(tasks, 2 * MANY), servers))
        for what, keys in (("acquires", 2 * MANY), ("releases", MANY)):
            took = busy(servers[0], keys)
            print(f"a server with {MANY} {what}: p50 {took[len(took) // 2]} µs, p99 {took[len(took) * 99 // 100]} µs")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
