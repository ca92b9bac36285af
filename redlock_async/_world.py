"""What a client takes from outside: its clocks, its luck, and its way to the masters.

A simulation (`redlock_async.testing`) runs the library unchanged on an event loop that brings a world of its own.
"""

from __future__ import annotations

import asyncio
import os
import time
from binascii import hexlify
from collections.abc import Iterator
from random import Random
from typing import Any, Protocol, cast

from . import _clock


class World(Protocol):
    """What lies around a client."""

    def now(self) -> float:
        """Seconds on the clock that leases are measured with; it must never be a wall clock."""
        ...

    def wall_us(self) -> int:
        """The wall clock in µs: a proposal for fencing tokens, that nothing else depends on."""
        ...

    def clock(self) -> str | None:
        """Names the clock behind `now`: equal in two processes only if their readings can be compared."""
        ...

    def nonces(self) -> Iterator[bytes]:
        """Without end, 32 hexadecimal digits each, that nobody else ever gets; not to be shared with a forked child."""
        ...

    def luck(self) -> Random:
        """For jitter, not for secrets."""
        ...

    def reach(self, target: Any) -> Any:
        """The address that stands for that target of the user's."""
        ...


class Reality:
    """The world as it is."""

    now = staticmethod(_clock.now)

    @staticmethod
    def clock() -> str | None:
        return _clock.identity()

    @staticmethod
    def wall_us() -> int:
        return time.time_ns() // 1000

    @staticmethod
    def nonces() -> Iterator[bytes]:
        while True:
            block = hexlify(os.urandom(4096))  # a system call for 256 of them
            for at in range(0, len(block), 32):
                yield block[at : at + 32]

    @staticmethod
    def luck() -> Random:
        return Random()  # noqa: S311 - jitter, not secrets

    @staticmethod
    def reach(target: Any) -> Any:
        return target


REALITY = Reality()


def around(loop: asyncio.AbstractEventLoop) -> World:
    """The world of that loop: the real one, unless the loop brings another."""
    return cast("World", getattr(loop, "redlock_world", REALITY))
