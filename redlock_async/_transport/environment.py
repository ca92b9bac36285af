"""The environment of a client: its clocks, its random numbers and the addresses of its nodes.

A simulation (`redlock_async.testing`) runs the library unchanged on an event loop with an environment of its own.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Iterator
from random import Random
from struct import Struct
from typing import Any, Protocol, cast

from .clock import identity, now


class Environment(Protocol):
    """The clocks, random numbers and addresses that a client uses."""

    def now(self) -> float:
        """Return seconds on the clock that measures leases; it must never be a wall clock."""
        ...

    def wall_us(self) -> int:
        """Return the wall clock in µs: it proposes fencing tokens, and nothing else depends on it."""
        ...

    def clock(self) -> str | None:
        """Return a name for the clock behind `now`, equal in two processes only if their readings can be compared."""
        ...

    def token_bytes(self) -> Iterator[tuple[int, int]]:
        """Yield 128 random bits at a time, as two numbers, endlessly."""
        ...

    def stamps(self) -> tuple[int, int]:
        """Return the readings of two clocks, which differ in copies of a process that share random bits."""
        ...

    def rng(self) -> Random:
        """Return a generator for jitter, not for secrets."""
        ...

    def resolve(self, target: Any) -> Any:
        """Return the address to connect to for that target of the user's."""
        ...


_BLOCK = Struct("512Q")
"""Random bits for 256 tokens, read with one system call."""


class SystemEnvironment:
    """The environment of the operating system."""

    now = staticmethod(now)

    @staticmethod
    def clock() -> str | None:
        return identity()

    @staticmethod
    def wall_us() -> int:
        return time.time_ns() // 1000

    @staticmethod
    def token_bytes() -> Iterator[tuple[int, int]]:
        while True:
            numbers = iter(_BLOCK.unpack(os.urandom(_BLOCK.size)))
            yield from zip(numbers, numbers, strict=True)

    @staticmethod
    def stamps() -> tuple[int, int]:
        return time.monotonic_ns(), time.time_ns()

    @staticmethod
    def rng() -> Random:
        return Random()  # noqa: S311 - jitter, not secrets

    @staticmethod
    def resolve(target: Any) -> Any:
        return target


SYSTEM = SystemEnvironment()


def default_owner() -> str:
    """Return the label of this process, `host:pid`, for a client that was given no owner."""
    return f"{socket.gethostname()}:{os.getpid()}"


def for_loop(loop: asyncio.AbstractEventLoop) -> Environment:
    """Return the environment of that loop: the operating system's, unless the loop has one of its own."""
    return cast("Environment", getattr(loop, "redlock_world", SYSTEM))
