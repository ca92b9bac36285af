"""Servers of a test's own, whose data, address and clock it controls; and what a client says of their votes."""

import asyncio
import contextlib
import os
import signal
import subprocess
from pathlib import Path

import pytest
import redis

from redlock_async.testing._proxy import FaultProxy
from redlock_async.testing._servers import (
    HOST,
    LocalServerError,
    Server,
    Spawner,
    find_server,
    free_ports,
    make_executable,
    start_together,
)

again = pytest.mark.usefixtures("repetition")
"""Marks the cases in which an earlier rule failed: two holders, or no quorum. REDLOCK_REPEAT=100 repeats them."""

RECORD = "redlock-async:node"
DURABLE = ("--appendonly", "yes", "--appendfsync", "always")


def starts_with(library):
    """Whether the server starts with that library. A server that uses jemalloc 5.3.1 as a library hangs."""
    with contextlib.suppress(LocalServerError, subprocess.TimeoutExpired):
        command, environment = [find_server(), "--version"], {**os.environ, "LD_PRELOAD": str(library)}
        return not subprocess.run(command, env=environment, capture_output=True, timeout=10, check=False).returncode
    return False


INSTALLED = next((each for each in Path("/usr/lib").glob("*/faketime/libfaketime.so.1")), None)
FAKETIME = INSTALLED if INSTALLED is not None and starts_with(INSTALLED) else None
"""The library that shows a server another time, if it is installed and works."""

needs_faketime = pytest.mark.skipif(
    FAKETIME is None, reason="this server hangs with libfaketime" if INSTALLED else "no libfaketime: install faketime"
)


class Clock:
    """The wall clock of a server. Its monotonic clock stays right."""

    def __init__(self, file, binary):
        self._file = file
        self.set("+0")
        self.binary = file.with_suffix(".sh")
        self.binary.write_text(
            f"#!/bin/sh\nexport LD_PRELOAD={FAKETIME} FAKETIME_TIMESTAMP_FILE={file} FAKETIME_NO_CACHE=1\n"
            f'export FAKETIME_DONT_FAKE_MONOTONIC=1 FAKETIME_DONT_RESET=1\nexec {binary} "$@"\n'
        )
        self.binary.chmod(0o755)

    def set(self, offset):
        """Set it: by that many seconds from the right time, as text with a sign."""
        new = self._file.with_suffix(".new")
        new.write_text(f"{offset}\n")
        new.replace(self._file)  # a server reads it at any time


class Nodes:
    """Real servers, whose data survives a restart if they keep it, each behind an address that can be moved."""

    def __init__(self, folder):
        self.clocks = []
        self._folder = folder
        self._binary = make_executable(find_server(), folder)
        self._spawner = Spawner()
        self._started = []
        self.servers = []
        self.addresses = []

    def start(self, *arguments):
        """Start a server without an address."""
        label, binary = f"server-{len(self._started)}", self._binary
        if FAKETIME is not None:
            self.clocks.append(Clock(self._folder / f"{label}.clock", binary))
            binary = self.clocks[-1].binary
        server = Server(label, binary, self._folder / label, arguments, self._spawner)
        self._started.append(server)
        start_together([server])
        return server

    def add(self, number, *arguments):
        """Start servers, and return their addresses."""
        for _ in range(number):
            self.servers.append(self.start(*arguments))
            (port,) = free_ports(1)
            self.addresses.append(FaultProxy(asyncio.get_running_loop(), port, self.servers[-1].port))
        return self.urls

    @property
    def urls(self):
        return [f"redis://{HOST}:{each.port}" for each in self.addresses]

    def move(self, index, server):
        """Let that server answer at that address."""
        self.addresses[index].cut()
        self.addresses[index].server_port = server.port
        self.addresses[index].heal()

    def restart(self, index, how="kill -9"):
        """End a server and start it with the data that it has kept."""
        server = self.servers[index]
        if how == "kill -9":
            os.kill(server.pid, signal.SIGKILL)
        else:
            with contextlib.suppress(redis.ConnectionError):
                self.ask(server, "SHUTDOWN", *([how] if how else []))
        server.kill()
        start_together([server], port=server.port)

    def ask(self, server, *words):
        """Send a command, not as a client of the library."""
        with redis.Redis(host=HOST, port=server.port, socket_timeout=5, decode_responses=True) as client:
            return client.execute_command(*words)

    def close(self):
        """End all of it."""
        for address in self.addresses:
            address.close()
        for server in self._started:
            server.close()
        self._spawner.close()


class Watch:
    """What a client reports of quarantines."""

    def __init__(self, redlock):
        self.quarantined, self._again = [], asyncio.Event()
        self._changed = asyncio.Event()
        redlock.on_event(self._on_event)

    def _on_event(self, event):
        if event.kind == "node_quarantined":
            self.quarantined.append(event)
        if event.kind == "node_votes_again":
            self._again.set()
        self._changed.set()

    async def first(self):
        """The first quarantine."""
        async with asyncio.timeout(10):
            while not self.quarantined:
                self._changed.clear()
                await self._changed.wait()
        return self.quarantined[0]

    async def over(self):
        """Wait until a node votes again."""
        async with asyncio.timeout(10):
            await self._again.wait()


async def use(redlock, name="warm"):
    """Take a lock and free it."""
    await (await redlock(name).acquire()).release()


async def all_vote(redlock):
    """Wait until all nodes vote."""
    async with asyncio.timeout(10):
        while not all(each.can_vote for each in await redlock.status()):  # noqa: ASYNC110 - the status has no event
            await asyncio.sleep(0.005)


def without(urls, index):
    """The same cluster, of which that node cannot be reached."""
    (port,) = free_ports(1)
    return [*urls[:index], f"redis://{HOST}:{port}", *urls[index + 1 :]]
