"""The floor: the commands of a lock on a bare multiplexed protocol, without any lock logic.

It is a lower bound for any lock on these servers from asyncio. A command is packed once for all nodes, pending data
leaves in one write per event-loop iteration, and a future is resolved at the Q-th reply. It never times out or
reconnects, and its leases do not expire. It supports only `redis://host:port`.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple, cast
from urllib.parse import urlsplit

import hiredis

from redlock_async._rules.keys import slot_of, tag_of
from redlock_async._transport.commands import Script

from . import TTL

PX = round(TTL * 1000)
READ_SIZE = 64 * 1024
BATCH = 100
RENEWALS = 3
HOST, PORT = "127.0.0.1", 6379
GRANT = 2
"""How many numbers are in a grant of a token that was not proposed."""

pack = cast("Callable[[tuple[bytes | str | int, ...]], bytes]", hiredis.pack_command)


class Operation:
    """One command on all nodes: resolved at the Q-th grant, or when every node has answered."""

    __slots__ = ("answers", "future", "grants", "needed", "nodes")

    def __init__(self, future: asyncio.Future[bool], nodes: int, needed: int) -> None:
        self.future = future
        self.nodes = nodes
        self.needed = needed
        self.grants = self.answers = 0

    def check_refused(self) -> None:
        """Count a reply that is not a grant."""
        if self.answers == self.nodes and self.grants < self.needed:
            self.future.set_result(False)


class Link(asyncio.BufferedProtocol):
    """The connection to one node."""

    def __init__(self, floor: Floor) -> None:
        self._floor = floor
        self._reader = hiredis.Reader(notEnoughData=...)
        self._bytes = bytearray(READ_SIZE)
        self._buffer = memoryview(self._bytes)
        self._answer: asyncio.Future[object] | None = None
        self.pending: deque[Operation] = deque()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.write = cast("asyncio.Transport", transport).write
        self.close = transport.close

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        """Continue without this node."""
        self._floor.links.remove(self)
        for operation in self.pending:
            operation.answers += 1
            operation.check_refused()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._reader.feed(cast("bytes", self._bytes), 0, nbytes)
        gets, pending = self._reader.gets, self.pending
        while (reply := gets()) is not ...:
            if type(reply) is hiredis.PushNotification:
                self._floor.pushed(reply)
                continue
            if self._answer is not None:
                self._answer.set_result(reply)
                continue
            operation = pending.popleft()
            # Granted: the node's time, a fence and the time, a count of 1, or the OK of a SET. Refused: None, 0, or a
            # list with the position, the holder and its ttl.
            operation.answers += 1
            if reply == b"OK" or (type(reply) is int and reply) or (type(reply) is list and len(reply) == GRANT):
                operation.grants += 1
                if operation.grants == operation.needed:
                    operation.future.set_result(True)
                    continue
            operation.check_refused()

    async def ask(self, *command: bytes | str | int) -> object:
        """Send one command to this node only, before any others."""
        self._answer = asyncio.get_running_loop().create_future()
        self.write(pack(command))
        try:
            return await self._answer
        finally:
            self._answer = None


class Wait:
    """One key, with the tasks that wait for its end."""

    def __init__(self, freed: asyncio.Future[None]) -> None:
        self.freed = freed
        self.reports = 0


class Held(NamedTuple):
    """The argument for `release`."""

    name: str
    key: bytes
    token: bytes


class Floor:
    """Five connections, and the commands on them."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.links: list[Link] = []
        self._needed = 0
        self._out: list[bytes] = []
        self._prefix = os.urandom(8).hex().encode()
        self._owner = f"{os.uname().nodename}:{os.getpid()}".encode()
        self._count = 0
        self._turns: dict[str, deque[asyncio.Future[None]]] = {}
        self._waits: dict[bytes, Wait] = {}
        self._kept: dict[bytes, bytes] = {}
        self._extend = Script("mutex_extend")
        self._release_as: tuple[bytes | str | int, ...] = ("DELIFEQ",)
        self._release_with: tuple[bytes | str | int, ...] = ()

    async def open(self, urls: Sequence[str]) -> None:
        for url in urls:
            parts = urlsplit(url)
            _, link = await self._loop.create_connection(lambda: Link(self), parts.hostname or HOST, parts.port or PORT)
            self.links.append(link)
            await link.ask("HELLO", 3)
            await link.ask("CLIENT", "TRACKING", "ON", "NOLOOP")
            for script in (Script("mutex_acquire"), Script("mutex_release"), self._extend):
                await link.ask("SCRIPT", "LOAD", script.source)
        self._needed = len(urls) // 2 + 1
        await self._choose_release(self.links[0])

    async def _choose_release(self, link: Link) -> None:
        """Release like the library: with the server's native command if it has one."""
        if not isinstance(await link.ask("DELIFEQ", "floor:probe", "-"), Exception):
            return
        if not isinstance(await link.ask("DELEX", "floor:probe", "IFEQ", "-"), Exception):
            self._release_as, self._release_with = ("DELEX",), ("IFEQ",)
        else:
            self._release_as = ("EVALSHA", Script("mutex_release").sha, 1)

    async def close(self) -> None:
        for link in self.links:
            link.close()

    async def acquire(self, name: str) -> Held:
        """Take turns among the tasks of the process, then run rounds until the lock is granted."""
        if name in self._turns:
            turn = self._loop.create_future()
            self._turns[name].append(turn)
            await turn
        else:
            self._turns[name] = deque()
        key = name.encode()
        self._count += 1
        token = b"%s%016x:%s" % (self._prefix, self._count, self._owner)
        command = self.take(key, token)
        if not await self._send(command):
            await self._contend(key, token, command)
        return Held(name, key, token)

    def release(self, held: Held) -> Awaitable[bool]:
        if self._kept:
            self._kept.pop(held.key, None)
        sent = self._give_back(held.key, held.token)
        turns = self._turns[held.name]
        if turns:
            turns.popleft().set_result(None)
        else:
            del self._turns[held.name]
        return sent

    async def keep(self, name: str) -> Held:
        """Acquire, and renew as often as the library, with as many leases per command."""
        held = await self.acquire(name)
        if not self._kept:
            self._loop.call_later(TTL / RENEWALS, self._renew)
        self._kept[held.key] = held.token
        return held

    def _renew(self) -> None:
        kept = list(self._kept.items())
        for start in range(0, len(kept), BATCH):
            batch = kept[start : start + BATCH]
            arguments = [word for _, token in batch for word in (token, PX)]
            self._send(pack(("EVALSHA", self._extend.sha, len(batch), *(key for key, _ in batch), *arguments)))
        if kept:
            self._loop.call_later(TTL / RENEWALS, self._renew)

    def take(self, key: bytes, token: bytes) -> bytes:
        """Return the command that acquires the lock."""
        raise NotImplementedError

    def pushed(self, message: list[Any]) -> None:
        """Handle a node's report about keys that another client changed."""
        for key in message[1] or ():
            if (wait := self._waits.get(key)) is not None:
                wait.reports += 1
                if wait.reports >= self._needed and not wait.freed.done():
                    wait.freed.set_result(None)

    async def _contend(self, key: bytes, token: bytes, command: bytes) -> None:
        """Wait for another process's lock until Q nodes have reported that it is gone."""
        while True:
            wait = self._waits[key] = Wait(self._loop.create_future())
            self._give_back(key, token)  # a minority may have granted
            # The server reports the end of the key only after it was read.
            if await self._send(pack(("EXISTS", key))):
                await wait.freed
            del self._waits[key]
            if await self._send(command):
                return

    def _give_back(self, key: bytes, token: bytes) -> asyncio.Future[bool]:
        return self._send(pack((*self._release_as, key, *self._release_with, token)))

    def _send(self, packed: bytes) -> asyncio.Future[bool]:
        future = self._loop.create_future()
        operation = Operation(future, len(self.links), self._needed)
        for link in self.links:
            link.pending.append(operation)
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(packed)
        return future

    def _flush(self) -> None:
        # All nodes get the same data, so it is joined once.
        out, self._out = self._out, []
        packed = b"".join(out)
        for link in self.links:
            link.write(packed)


class FencedFloor(Floor):
    """The floor with the library's acquire script."""

    def __init__(self) -> None:
        super().__init__()
        self._sha = Script("mutex_acquire").sha

    def take(self, key: bytes, token: bytes) -> bytes:
        register = b"redlock-async:fence:{%b}" % tag_of(slot_of(key))
        return pack(("EVALSHA", self._sha, 2, key, register, 1, token, PX, time.time_ns() // 1000))


class PlainFloor(Floor):
    """The floor with a bare SET NX PX."""

    def take(self, key: bytes, token: bytes) -> bytes:
        return pack(("SET", key, token, "NX", "PX", PX))
