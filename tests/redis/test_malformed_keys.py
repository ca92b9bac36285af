"""Keys that look like the library's but are malformed: they are reported and hide no other lock."""

import json

import pytest
import redis

from redlock_async import Redlock
from redlock_async.cli import main

A_PLACE = ("ZADD", "redlock-async:queue:{x}", 1, "a")
A_LATCH = ("HSET", "redlock-async:latch-state:{x}", "count", 3)
MALFORMED = {
    "a queue of another type": [("SET", "redlock-async:queue:{x}", "v")],
    "places of another type": [A_PLACE, ("SET", "redlock-async:queue-kept:{x}", "v")],
    "a place kept until no time": [A_PLACE, ("HSET", "redlock-async:queue-kept:{x}", "a", "soon")],
    "permits of another type": [("LPUSH", "redlock-async:semaphore:{x}", "v")],
    "a hint of another type": [("LPUSH", "redlock-async:semaphore-hint:{x}", "v")],
    "a writer of another type": [("LPUSH", "redlock-async:writer:{x}", "v")],
    "a latch of another type": [("SET", "redlock-async:latch-state:{x}", "v")],
    "a latch without a number": [("HSET", "redlock-async:latch-state:{x}", "count", "many")],
    "ids of another type": [A_LATCH, ("SET", "redlock-async:latch:{x}", "v")],
}  # fmt: skip
ODD_NAME = "redlock-async:queue:{redlock-async:x}"


@pytest.fixture
def store(nodes):
    """Carries out a command on every node."""
    clients = [redis.Redis.from_url(url) for url in nodes]

    def everywhere(*commands, only=None):
        for client in clients[:only]:
            for command in commands:
                client.execute_command(*command)

    yield everywhere
    for client in clients:
        client.close()


@pytest.mark.parametrize("kind", MALFORMED)
def test_a_malformed_key_is_listed_as_such_and_hides_nothing(nodes, store, kind, capsys, monkeypatch):
    """`locks` exits with 0, and says which name it is about."""
    monkeypatch.setenv("REDLOCK_NODES", ",".join(nodes))
    store(("SET", "good", "0" * 32 + ":me", "PX", 60_000), *MALFORMED[kind])
    assert main(["locks", "--json"]) == 0
    records = {each["name"]: each for each in json.loads(capsys.readouterr().out)}
    assert records["good"]["state"] == "held"
    assert (records["x"]["state"], len(records["x"]["node_labels"])) == ("malformed", len(nodes))
    assert main(["locks"]) == 0
    assert "1 held, 1 malformed" in capsys.readouterr().err
    assert main(["inspect", "x"]) == 0


def test_a_key_for_a_name_that_no_lock_can_have_is_listed_as_malformed(nodes, store, capsys, monkeypatch):
    """By itself."""
    monkeypatch.setenv("REDLOCK_NODES", ",".join(nodes))
    store(("SET", "good", "0" * 32 + ":me", "PX", 60_000), ("ZADD", ODD_NAME, 1, "a"))
    assert main(["locks", "--json"]) == 0
    records = {each["name"]: each["state"] for each in json.loads(capsys.readouterr().out)}
    assert records == {"good": "held", ODD_NAME: "malformed"}


@pytest.mark.asyncio
async def test_a_malformed_key_on_one_node_does_not_hide_who_holds_the_lock(nodes, store):
    """The others tell it."""
    store(*MALFORMED["a latch of another type"], only=1)
    async with Redlock(nodes, owner="me") as redlock, redlock("x"):
        records = {each.state: each for each in await redlock.list_locks()}
    assert (records["held"].owner, records["held"].votes) == ("me", len(nodes))
    assert len(records["malformed"].node_labels) == 1
