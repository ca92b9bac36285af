"""The libraries that are compared: one file each, imported only by the process that runs it."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol, cast

from .environments import Environment, Missing, Node, Start, Uvloop, Venv, python_worker

__all__ = ["BY_NAME", "ENTRIES", "TTL", "Contender", "Entry", "Missing", "Start"]

TTL = 10.0
"""Seconds of every lease, whoever takes it."""


class Contender(Protocol):
    """What a library can do in a scenario."""

    async def open(self, urls: Sequence[str]) -> None:
        """Connect to the masters."""

    async def close(self) -> None:
        """End the connections."""

    def acquire(self, name: str) -> Awaitable[Any]:
        """What is held then, to be given to `release`; waits as long as it takes."""
        ...

    def release(self, held: Any) -> Awaitable[object]:
        """Give it back."""
        ...


@dataclass(frozen=True, slots=True)
class Entry:
    """A contender in the list: what can be said of it without importing it."""

    name: str
    module: str
    factory: str
    title: str
    floor: str
    """Whose figures its own are divided by."""
    can: frozenset[str] = frozenset()
    """What a scenario may need beyond the verbs that every worker knows."""
    environment: Environment | None = None
    """What it runs in, if this interpreter has not all that it takes."""

    def create(self) -> Contender:
        """The contender itself, in its own process."""
        module = import_module(f"benchmarks.contenders.{self.module}")
        return cast("Contender", getattr(module, self.factory)())

    def command(self, *, install: bool) -> Start:
        """How its worker is started; raises Missing when that cannot be, or only after an installation not wanted."""
        if self.environment is None:
            return python_worker(sys.executable, self.name)
        return self.environment.start(self.name, self.module, install=install)


# What the worker in Python makes of acquire and release alone; what a contender has beyond these.
PYTHON = frozenset({"trace", "waiters"})
FLOOR = PYTHON | {"renew"}
BLOCK = PYTHON | {"block"}
OURS = BLOCK | {"fair", "renew", "cancel"}
UVLOOP = Uvloop()

# The same redis-py for all who use it: what is compared is what they make of it.
AIOREDLOCK = Venv(
    "aioredlock-0.7.3",
    "aioredlock==0.7.3",
    "aioredis==1.3.1",
    "hiredis==3.5.0",
    "setuptools<81",  # for distutils, which Python 3.12 no longer has
    imports="aioredlock",
)
POTTERY = Venv("pottery-3.0.1", "pottery==3.0.1", "redis==8.1.0", "hiredis==3.5.0", imports="pottery, hiredis")
NODE_REDLOCK = Node("node-redlock-5.0.0-beta.2", "redlock", "ioredis")

ENTRIES = (
    Entry("floor", "floor", "FencedFloor", "bare protocol, fenced commands", "floor", FLOOR),
    Entry("ours", "ours", "Fenced", "redlock_async", "floor", OURS),
    Entry("floor-plain", "floor", "PlainFloor", "bare protocol, plain commands", "floor-plain", FLOOR),
    Entry("ours-plain", "ours", "Plain", "redlock_async, fencing=False", "floor-plain", OURS),
    Entry("ours-uvloop", "ours", "Fenced", "redlock_async on uvloop", "floor", OURS, UVLOOP),
    Entry("redis-py", "redis_py", "Gathered", "a redis-py client a node, gathered", "floor-plain", PYTHON),
    Entry("aioredlock", "aioredlock", "Peer", "aioredlock 0.7.3", "floor-plain", BLOCK, AIOREDLOCK),
    Entry("pottery", "pottery", "Peer", "pottery 3.0.1", "floor-plain", BLOCK, POTTERY),
    Entry("redis-lock", "redis_lock", "OneNode", "redis-py's Lock, on one node only", "floor-plain", BLOCK),
    # Its worker is the .cjs file beside this one.
    Entry("node-redlock", "node_redlock", "", "node-redlock 5.0.0-beta.2", "floor-plain", environment=NODE_REDLOCK),
)

BY_NAME = {entry.name: entry for entry in ENTRIES}
