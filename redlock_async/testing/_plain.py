"""What the test fixtures ask of a server behind everybody's back: blocking, on a connection of its own."""

from __future__ import annotations

import re
import socket
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import hiredis

from redlock_async.testing._servers import HOST

_PATIENCE: Final = 5.0
_CHUNK: Final = 65_536

# All but the marks goes. They are put right where they are wrong, so that a client that lives longer than a test has
# nothing to notice.
_CLEAR: Final = """
for _, key in ipairs(redis.call('KEYS', '*')) do
  if key ~= KEYS[1] and key ~= KEYS[2] then redis.call('DEL', key) end
end
for _, mark in ipairs(KEYS) do
  if redis.call('GET', mark) ~= ARGV[1] then redis.call('SET', mark, ARGV[1]) end
end
"""

# A lock's key is its name. Of the library's own keys those of readers and of a semaphore's slots have holders.
_OWN: Final = re.compile(r".*redlock-async:(?:(?:readers:\{(.*)\}|semaphore:\{(.*)\}:\d+)$)?", re.DOTALL)


def ask(port: int, *command: str) -> Any:
    """One command's reply; an error of the server's is raised."""
    with socket.create_connection((HOST, port), _PATIENCE) as connection:
        connection.sendall(hiredis.pack_command(command))  # type: ignore[arg-type] # its stub wants a tuple of one
        reader = hiredis.Reader(encoding="utf-8", errors="replace")
        while (reply := reader.gets()) is False:
            if not (data := connection.recv(_CHUNK)):
                raise ConnectionError(f"the server on {HOST}:{port} closed the connection")
            reader.feed(data)
    if isinstance(reply, Exception):
        raise reply
    return reply


def clear(ports: Sequence[int], namespace: str, born_us: int) -> None:
    """Empty these masters, but for the marks of ones that began at that time, all together: no master is held out."""
    marks = [f"{namespace}redlock-async:{mark}" for mark in ("born", "founded")]
    for port in ports:
        ask(port, "EVAL", _CLEAR, "2", *marks, str(born_us))


def locked(ports: Sequence[int], namespace: str) -> dict[str, int]:
    """The names that are locked on any of these masters, and on how many."""
    names = Counter[str]()
    for port in ports:
        names.update({name for key in ask(port, "KEYS", "*") if (name := holder_of(key)) is not None})
    return {name.removeprefix(namespace): masters for name, masters in names.items()}


def holder_of(key: str) -> str | None:
    """The name whose lock that key is; None for what the library remembers of names and nodes."""
    own = _OWN.match(key)
    return key if own is None else own[1] or own[2]
