"""A node that sends an endless reply, or only pushes, neither fills the memory nor counts as up."""

import asyncio
import contextlib
import re
import time

import pytest
import redis
from stub import Answer, Stub, grow_old

from redlock_async import LockTimeout, Redlock, RedlockError

STARTS = {
    "bulk": (b"$1000000000\r\n", b"x" * 65536),
    "array": (b"*1000000\r\n", b":1\r\n" * 16384),
    "error": (b"-", b"x" * 65536),
    "push": (b">1000000\r\n", b":1\r\n" * 16384),
}


@pytest.fixture(name="nodes")
def grown_up_nodes(nodes):
    """Nodes that have voted for an hour."""
    grow_old(nodes)
    return nodes


class Pouring(Stub):
    """Sends the rest of a reply without end, once it has begun one."""

    poured = 0
    """Bytes of it that a client took."""

    async def _serve(self, reader, writer):
        self.pour = asyncio.Event()
        flow = asyncio.create_task(self._pour(writer, self.pour))
        try:
            await super()._serve(reader, writer)
        finally:
            flow.cancel()

    async def _pour(self, writer, begun):
        await begun.wait()
        sent = 0
        with contextlib.suppress(ConnectionError):
            while not writer.transport.is_closing():
                writer.write(self.more)
                sent += len(self.more)
                await writer.drain()
                self.poured = max(self.poured, sent)


def pouring(kind, at):
    """A node that answers that command with a reply of that kind without end."""
    start, more = STARTS[kind]
    stub = Pouring(at=lambda name: name == at)
    stub.more = more

    def begin(_right):
        stub.pour.set()
        return Answer(start, "silence")

    stub.spoil = begin
    return stub


MOST = 16 * 1024 * 1024
"""Bytes of a reply that the client reads at most."""

IN_FLIGHT = 24 * 1024 * 1024
"""Bytes that both sockets and the stub's own buffer may hold beyond what the client has read."""


@pytest.mark.asyncio
@pytest.mark.parametrize("kind", STARTS)
async def test_a_reply_without_end_is_ended_after_a_bounded_number_of_bytes(nodes, kind):
    """And the node is down, and says why; the others carry on."""
    async with (
        pouring(kind, "mutex_acquire") as stub,
        Redlock([stub.url, *nodes[1:]], wait=5, node_timeout=2) as redlock,
    ):
        reasons = []
        redlock.on_event(lambda event: event.kind == "node_down" and reasons.append(str(event.error)))
        async with redlock("x"):
            pass
        deadline = time.monotonic() + 10
        while not (reasons and stub.connections > 1):
            assert time.monotonic() < deadline, (reasons, stub.poured)
            await asyncio.sleep(0.02)
        assert re.search(f"reply is longer than {MOST} bytes|malformed reply|unexpected reply", reasons[0])
        assert stub.poured < MOST + IN_FLIGHT


@pytest.mark.asyncio
@pytest.mark.parametrize("kind", ["bulk", "array"])
async def test_a_handshake_without_end_is_ended_after_a_bounded_number_of_bytes(nodes, kind):
    """Redis-py would read it for as long as connecting may take."""
    async with pouring(kind, "HELLO") as stub, Redlock([stub.url, *nodes[1:]], wait=2) as redlock:
        async with redlock("x"):
            mine = next(each for each in await redlock.status() if each.label == stub.label)
            assert not mine.up
            assert "bytes while connecting" in mine.error
        assert stub.poured < IN_FLIGHT


UNASKED = {"part of a reply": b"x" * 100, "push": b">2\r\n+invalidate\r\n*1\r\n+y\r\n"}


@pytest.mark.asyncio
@pytest.mark.parametrize("sent", UNASKED)
async def test_a_node_that_does_not_answer_is_not_up_because_it_sends_bytes(nodes, sent):
    """Only a whole reply shows that it answers again."""
    events, told = [], asyncio.Event()

    def heard(event):
        events.append(event.kind)
        if event.kind == "node_down":
            told.set()

    silent = Stub(spoil=lambda _right: Answer(b"$1000\r\n" if sent == "part of a reply" else b"", "silence"))
    silent.at = lambda name: name in {"mutex_acquire", "HELLO"} and "in use" in events
    async with silent, Redlock([silent.url, *nodes[1:]], node_timeout=1) as redlock:
        async with redlock("first"):
            pass
        events.append("in use")
        redlock.on_event(heard)
        async with redlock("second"):
            await told.wait()
            for _ in range(9):
                silent.send_all(UNASKED[sent])
                await asyncio.sleep(0.01)
            assert "node_up" not in events


@pytest.mark.asyncio
async def test_a_holder_of_thirty_megabytes_is_not_read_by_those_who_wait(nodes):
    """Another program has stored it under the lock's name; the error that names it is short."""
    value = b"0" * 32 + b":" + b"x" * 30_000_000
    servers = [redis.Redis.from_url(url) for url in nodes]
    for server in servers:
        server.set("x", value, px=60_000)
        server.set("redlock-async:semaphore:{x}:0", value, px=60_000)
        server.set("redlock-async:semaphore:{x}", 1, px=60_000)
        server.set("redlock-async:semaphore-hint:{y}", b"9:" + value, px=60_000)
        server.set("redlock-async:semaphore:{z}", b"7" * 30_000_000, px=60_000)
        server.set("redlock-async:semaphore:{z}:0", value, px=60_000)
    before = [server.info("stats")["total_net_output_bytes"] for server in servers]
    # Storing it keeps the servers busy for a moment.
    async with Redlock(nodes, wait=0, ttl=20, node_timeout=4) as redlock:
        locks = {
            "lock": redlock("x"),
            "bare": redlock("x", fencing=False),
            "several": redlock("w", "x"),
            "fair": redlock.fair_lock("x"),
            "read": redlock.read_lock("x"),
            "write": redlock.write_lock("x"),
            "semaphore": redlock.semaphore("x", permits=1),
            "behind a hint": redlock.semaphore("y", permits=1),
        }
        for kind, lock in locks.items():
            with pytest.raises(LockTimeout) as caught:
                await lock.acquire()
            assert len(str(caught.value)) < 500, kind
            assert caught.value.holder == "x" * 200 or kind == "behind a hint", kind
        with pytest.raises(RedlockError) as refused:
            await redlock.semaphore("z", permits=1).acquire()
        assert len(str(refused.value)) < 500 * len(nodes)
        assert len((await redlock.inspect("x")).token) <= 1024
        assert len((await redlock.inspect_semaphore("x")).slots[0].token) <= 1024
    for server, sent in zip(servers, before, strict=True):
        assert server.info("stats")["total_net_output_bytes"] - sent < 1_000_000
        server.flushall()
        server.close()
