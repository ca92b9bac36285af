"""The commands that the test fixtures send to the nodes: blocking, each on its own connection, without a client."""

from __future__ import annotations

import re
import socket
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

import hiredis

from redlock_async.testing._servers import HOST

_TIMEOUT: Final = 5.0
_CHUNK: Final = 65_536

# Deletes everything but the node's record. That is only written if it differs, so that a client that outlives the test
# sees no change.
_CLEAR: Final = """
for _, key in ipairs(redis.call('KEYS', '*')) do
  if key ~= KEYS[1] then redis.call('DEL', key) end
end
local wanted = {}
for i = 1, #ARGV, 2 do wanted[ARGV[i]] = ARGV[i + 1] end
local fields = redis.call('HGETALL', KEYS[1])
for i = 1, #fields, 2 do
  if not wanted[fields[i]] then redis.call('HDEL', KEYS[1], fields[i]) end
  if wanted[fields[i]] == fields[i + 1] then wanted[fields[i]] = nil end
end
for field, value in pairs(wanted) do redis.call('HSET', KEYS[1], field, value) end
"""

# A lock's key is its name. Of the library's own keys, those of readers and of semaphore slots have holders.
_TAG: Final = r"(?:\{[@-O]{4}\}:)?"
_OWN: Final = re.compile(
    rf".*redlock-async:(?:(?:readers:{_TAG}\{{(.*)\}}|semaphore:{_TAG}\{{(.*)\}}:\d+)$)?", re.DOTALL
)


def send_command(port: int, *command: str) -> Any:
    """Send one command and return the reply. Raises an error reply as an exception."""
    with socket.create_connection((HOST, port), _TIMEOUT) as connection:
        connection.sendall(hiredis.pack_command(command))  # type: ignore[arg-type] # the stub wants a tuple of one
        reader = hiredis.Reader(encoding="utf-8", errors="replace")
        while (reply := reader.gets()) is False:
            if not (data := connection.recv(_CHUNK)):
                raise ConnectionError(f"the server on {HOST}:{port} closed the connection")
            reader.feed(data)
    if isinstance(reply, Exception):
        raise reply
    return reply


def clear_nodes(ports: Sequence[int], namespace: str, data_created_us: int) -> None:
    """Empty these nodes and have them record that they have voted since that time, so that none is quarantined."""
    for port, record in _records(ports, data_created_us):
        send_command(port, "EVAL", _CLEAR, "1", f"{namespace}redlock-async:node", *record)


def record_votes(ports: Sequence[int]) -> None:
    """Have these empty nodes record that they vote, for locks without a namespace."""
    with suppress(hiredis.ReplyError, OSError):  # the servers want a password or TLS
        for port, record in _records(ports, time.time_ns() // 1000):
            send_command(port, "HSET", "redlock-async:node", *record)


def _records(ports: Sequence[int], since_us: int) -> Iterator[tuple[int, list[str]]]:
    """Yield each node's port and its record."""
    ids = {port: f"test-{port}" for port in ports}
    heard = [word for each in ids.values() for word in (f"node:{each}", f"{since_us} a")]
    for port in ports:
        run_id = re.search(r"run_id:(\w+)", send_command(port, "INFO", "server"))
        yield port, ["id", ids[port], "server", run_id[1] if run_id else "", "origin", "joined", *heard]


def locked_names(ports: Sequence[int], namespace: str) -> dict[str, int]:
    """The names that are locked on any of these nodes, and on how many."""
    names = Counter[str]()
    for port in ports:
        names.update({name for key in send_command(port, "KEYS", "*") if (name := locked_name(key)) is not None})
    return {name.removeprefix(namespace): nodes for name, nodes in names.items()}


def locked_name(key: str) -> str | None:
    """The name that this key locks; None for the library's own records of names and nodes."""
    own = _OWN.match(key)
    return key if own is None else own[1] or own[2]
