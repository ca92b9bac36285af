"""The compared libraries: one file each, imported only by the process that runs it."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol, cast

from .environments import Environment, Missing, Node, Start, Uvloop, Venv, python_worker

__all__ = ["BY_NAME", "ENTRIES", "TTL", "Contender", "Entry", "Missing", "Start"]

TTL = 10.0
"""The ttl of every lease, in seconds, for all contenders."""


class Contender(Protocol):
    """The operations of a library in a scenario."""

    async def open(self, urls: Sequence[str]) -> None:
        """Connect to the nodes."""

    async def close(self) -> None:
        """Close the connections."""

    def acquire(self, name: str) -> Awaitable[Any]:
        """Acquire without a time limit, and return the argument for `release`."""
        ...

    def release(self, held: Any) -> Awaitable[object]:
        """Release the lock."""
        ...


@dataclass(frozen=True, slots=True)
class Entry:
    """A contender in the list, described without importing it."""

    name: str
    module: str
    factory: str
    title: str
    floor: str
    """The contender whose figures are the divisor."""
    can: frozenset[str] = frozenset()
    """Abilities beyond the requests that every worker understands."""
    environment: Environment | None = None
    """The environment to run in, if this interpreter lacks something."""

    def create(self) -> Contender:
        """Import the contender, in its own process."""
        module = import_module(f"benchmarks.contenders.{self.module}")
        return cast("Contender", getattr(module, self.factory)())

    def command(self, *, install: bool) -> Start:
        """Return how to start its worker. Raises Missing if that is impossible, or needs a forbidden installation."""
        if self.environment is None:
            return python_worker(sys.executable, self.name)
        return self.environment.start(self.name, self.module, install=install)


# Requests that the Python worker builds from acquire and release; abilities beyond these.
PYTHON = frozenset({"trace", "waiters"})
FLOOR = PYTHON | {"renew"}
BLOCK = PYTHON | {"block"}
OURS = BLOCK | {"fair", "renew", "cancel"}
UVLOOP = Uvloop()

# All contenders use the same redis-py, so that only their own code differs.
AIOREDLOCK = Venv(
    "aioredlock-0.7.3",
    "aioredlock==0.7.3",
    "aioredis==1.3.1",
    "hiredis==3.5.0",
    "setuptools<81",  # provides distutils, which Python 3.12 removed
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
    # Its worker is the .cjs file in this directory.
    Entry("node-redlock", "node_redlock", "", "node-redlock 5.0.0-beta.2", "floor-plain", environment=NODE_REDLOCK),
)

BY_NAME = {entry.name: entry for entry in ENTRIES}
