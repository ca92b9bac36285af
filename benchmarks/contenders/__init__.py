"""The libraries that are compared: one file each, imported only by the process that runs it."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol, cast

TTL = 10.0
"""Seconds of every lease, whoever takes it."""


class Missing(Exception):  # noqa: N818 - a state of affairs, not a fault
    """This contender cannot be had here; says why."""


class Contender(Protocol):
    """What a library can do in a scenario."""

    async def open(self, urls: Sequence[str]) -> None:
        """Connect to the masters."""

    async def close(self) -> None:
        """End the connections."""

    def acquire(self, name: str) -> Awaitable[Any]:
        """What is held then, to be given to `release`; waits as long as it takes."""

    def release(self, held: Any) -> Awaitable[object]:
        """Give it back."""

    def block(self, name: str) -> AbstractAsyncContextManager[object] | None:
        """`async with` on that name, where the library has it."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A contender in the list: what can be said of it without importing it."""

    name: str
    module: str
    factory: str
    title: str
    floor: str
    """Whose figures its own are divided by."""
    has_block: bool = True
    environment: str | None = None
    """The class in its module that makes an interpreter with what it needs; None: this one has it."""

    def create(self) -> Contender:
        """The contender itself."""
        return cast("Contender", self._load(self.factory))

    def python(self, *, install: bool) -> str | None:
        """The interpreter to run it with, if not this one; raises Missing when there is none."""
        if self.environment is None:
            return None
        return cast("str", self._load(self.environment).python(install=install))

    def _load(self, factory: str) -> Any:
        return getattr(import_module(f"benchmarks.contenders.{self.module}"), factory)()


ENTRIES = (
    Entry("floor", "floor", "FencedFloor", "bare protocol, fenced commands", "floor", has_block=False),
    Entry("ours", "ours", "Fenced", "redlock_async", "floor"),
    Entry("floor-plain", "floor", "PlainFloor", "bare protocol, plain commands", "floor-plain", has_block=False),
    Entry("ours-plain", "ours", "Plain", "redlock_async, fencing=False", "floor-plain"),
    Entry("redis-py", "redis_py", "Gathered", "five redis-py clients, gathered", "floor-plain", has_block=False),
    Entry("aioredlock", "aioredlock", "Peer", "aioredlock 0.7.3", "floor-plain", environment="Environment"),
)

BY_NAME = {entry.name: entry for entry in ENTRIES}
