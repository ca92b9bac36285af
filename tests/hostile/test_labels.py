"""Labels stored by other clients or nodes are shown on one line, without terminal control characters."""

import asyncio
import logging
import os
import subprocess
import sys

import pytest
import redis
from stub import Stub, always, array, bulk

from redlock_async import ConfigurationError, LockTimeout, Redlock

EVIL = "\x1b[2J\x1b]0;owned\x07web\r\nERROR all is lost\u202e\u2028\x9b31m\x00\x7f"
SEEN = "?[2J?]0;owned?web??ERROR all is lost???31m??"
TOKEN = f"{'0' * 32}:{EVIL}{'x' * 400}".encode()


def harmless(text):
    """Whether a terminal shows it as it is, on one line."""
    assert text.isprintable(), ascii(text)
    assert len(text) < 3000, len(text)
    return text


@pytest.fixture
def held(nodes):
    """Somebody else has stored such a token under a lock, a slot, a hint and a queue, on each node."""
    clients = [redis.Redis.from_url(url) for url in nodes]
    for client in clients:
        client.set("x", TOKEN, px=60_000)
        client.set("redlock-async:semaphore:{s}", 1, px=60_000)
        client.set("redlock-async:semaphore:{s}:0", TOKEN, px=60_000)
        client.set("redlock-async:semaphore-hint:{h}", b"9:" + TOKEN, px=60_000)
        client.zadd("redlock-async:queue:{q}", {TOKEN: 1})
        client.hset("redlock-async:queue-kept:{q}", TOKEN, 10**15)
    yield nodes
    for client in clients:
        client.flushall()
        client.close()


@pytest.mark.asyncio
async def test_a_holders_label_in_errors_events_and_logs(held, caplog):
    """Of every kind of lock."""
    events = []
    caplog.set_level(logging.DEBUG, "redlock_async")
    async with Redlock(held, wait=0) as redlock:
        redlock.on_event(events.append)
        for lock in (
            redlock("x"), redlock("w", "x"), redlock.fair_lock("x"), redlock.read_lock("x"), redlock.write_lock("x"),
            redlock.semaphore("s", permits=1), redlock.semaphore("h", permits=1), redlock.fair_lock("q"),
        ):  # fmt: skip
            with pytest.raises(LockTimeout) as caught:
                await lock.acquire()
            assert SEEN in harmless(str(caught.value))
            assert len(harmless(caught.value.holder)) <= 200
    assert sum(event.holder is not None and SEEN in harmless(event.holder) for event in events) >= 8
    for record in caplog.records:
        harmless(record.getMessage())


@pytest.mark.asyncio
async def test_a_holders_label_is_sanitized_for_operators(held):
    """The rest of the token as well."""
    async with Redlock(held) as redlock:
        holder = await redlock.inspect("x")
        slots = (await redlock.inspect_semaphore("s")).slots
        records = await redlock.list_locks()
    for each in (holder, *slots, *(record for record in records if record.token)):
        assert SEEN in harmless(each.owner)
        assert SEEN in harmless(each.token)
    assert {record.name for record in records} >= {"x", "s", "q"}
    for record in records:
        assert all(SEEN in harmless(owner) for owner in record.waiting)


@pytest.mark.asyncio
async def test_a_holders_label_on_the_command_line(held):
    """`run` writes it to stderr."""
    command = [sys.executable, "-m", "redlock_async", "run", "--wait", "0", "x", "--", "true"]
    done = await asyncio.to_thread(
        subprocess.run, command, env={**os.environ, "REDLOCK_NODES": ",".join(held)}, capture_output=True, check=False
    )
    assert done.returncode == 75
    assert b"held by ?[2J" in done.stderr
    for line in done.stderr.decode().splitlines():
        harmless(line)


@pytest.mark.asyncio
async def test_what_a_server_says_of_itself(nodes):
    """Its mode, version, run id and settings, and what an error reply says."""
    about = {name: EVIL.replace("\n", "").replace("\r", "") + "y" * 5000 for name in ("redis_version", "run_id")}
    info = bulk("".join(f"{name}:{value}\r\n" for name, value in about.items()))
    error = f"-ERR {EVIL.translate({10: 11, 13: 12})}\r\n".encode()
    setting = array(bulk("maxmemory-policy"), bulk(EVIL + "z" * 5000))
    async with (
        Stub(spoil=always(info), at=lambda name: name == "INFO server") as versions,
        Stub(spoil=always(setting), at=lambda name: name == "CONFIG GET") as settings,
        Stub(spoil=always(error), at=lambda name: name == "node_clock") as errs,
        Redlock([versions.url, settings.url, errs.url, *nodes[:2]]) as redlock,
    ):
        for status in await redlock.status():
            for text in (status.error, status.mode, status.version, status.run_id, status.eviction, status.persistence):
                if text is not None:
                    assert len(harmless(text)) < 500


@pytest.mark.asyncio
async def test_the_mode_of_a_server_that_cannot_be_a_node():
    """It is in the error."""
    info = bulk(b"redis_mode:" + EVIL.replace("\r\n", "").encode() + b"q" * 1000 + b"\r\n")
    async with Stub(spoil=always(info), at=lambda name: name == "INFO server") as stub:
        with pytest.raises(ConfigurationError) as caught:
            async with Redlock([stub.url]):
                pass
    assert "it runs in ?[2J?]0;owned?web" in harmless(str(caught.value))
