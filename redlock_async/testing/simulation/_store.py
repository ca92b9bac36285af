"""The keyspace of one simulated server: typed values, and expiry by the node's clock.

It does not depend on commands, sessions or scripts, and reports changes to callbacks.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from heapq import heapify, heappop, heappush

from ._resp import WRONG_TYPE, ErrorReply

STALE_ENTRIES_ALLOWED = 64
"""Outdated entries that the expiry queue may keep before it is swept."""


class Hash(dict[bytes, bytes]):
    """Fields and their values."""

    __slots__ = ()


class SortedSet(dict[bytes, float]):
    """Members and their scores. They are few, so they are sorted only when they are read."""

    __slots__ = ()

    def ranked(self) -> list[tuple[bytes, float]]:
        """The members ordered by score, then by name."""
        return sorted(self.items(), key=lambda item: (item[1], item[0]))


class Set(dict[bytes, None]):
    """Members in insertion order: the order of a Python set would differ from run to run."""

    __slots__ = ()


Value = bytes | Hash | SortedSet | Set

Snapshot = tuple[dict[bytes, Value], dict[bytes, int]]
"""The keys at some time, and their deadlines."""

NAMES: dict[type, bytes] = {bytes: b"string", Hash: b"hash", SortedSet: b"zset", Set: b"set"}


class Store:
    """Keys, values and deadlines.

    `now` does not change while a command or a script runs, as on a real server: a key cannot expire between two
    commands of one script.
    """

    __slots__ = ("_expiry_queue", "_lag", "changed", "deadlines", "flushed", "micros", "now", "values")

    def __init__(
        self, changed: Callable[[bytes], None], flushed: Callable[[], None], lag: Callable[[], float] | None
    ) -> None:
        self.values: dict[bytes, Value] = {}
        self.deadlines: dict[bytes, int] = {}
        """The last millisecond of each key that has one."""
        self.changed = changed
        """Called for each modified key."""
        self.flushed = flushed
        self.now = 0
        """Milliseconds."""
        self.micros = 0
        self._expiry_queue: list[tuple[int, bytes, int]] = []
        """For active expiry: when to delete a key, the key, and its deadline at that time."""
        self._lag = lag

    def set_time(self, seconds: float) -> None:
        """Set the time for the next command."""
        # Rounded to the nearest: a clock at a whole millisecond must not read as the previous one.
        self.micros = micros = int(seconds * 1e6 + 0.5)
        self.now = micros // 1000

    def find(self, key: bytes) -> Value | None:
        """The value of a key. This access deletes an expired key."""
        deadlines = self.deadlines
        if key in deadlines and self.now > deadlines[key]:
            self.delete(key)
            return None
        return self.values.get(key)

    def string(self, key: bytes) -> bytes | None:
        """The value of a key that must be a string if it exists."""
        value = self.find(key)
        if value is None or type(value) is bytes:
            return value
        raise ErrorReply(WRONG_TYPE)

    def put(self, key: bytes, value: Value, deadline: int | None = None) -> None:
        """Set a key."""
        self.values[key] = value
        if deadline is not None:
            self.expire_at(key, deadline)
        elif key in self.deadlines:
            del self.deadlines[key]
        self.changed(key)

    def expire_at(self, key: bytes, deadline: int) -> None:
        """Let a key expire after that millisecond."""
        self.deadlines[key] = deadline
        queue = self._expiry_queue
        lag = 0 if self._lag is None else round(self._lag() * 1000)
        heappush(queue, (deadline + lag, key, deadline))
        if len(queue) > 2 * len(self.deadlines) + STALE_ENTRIES_ALLOWED:
            # Every renewal and every release leaves an outdated entry.
            queue[:] = {entry[1]: entry for entry in queue if self.deadlines.get(entry[1]) == entry[2]}.values()
            heapify(queue)

    def delete(self, key: bytes) -> None:
        """Remove a key that exists."""
        del self.values[key]
        self.deadlines.pop(key, None)
        self.changed(key)

    def flush(self) -> None:
        """Remove all keys."""
        self.values.clear()
        self.deadlines.clear()
        self._expiry_queue.clear()
        self.flushed()

    def snapshot(self) -> Snapshot:
        """Return a copy of all keys and deadlines."""
        return {key: copy(value) for key, value in self.values.items()}, dict(self.deadlines)

    def load(self, snapshot: Snapshot) -> None:
        """Replace all keys by a snapshot."""
        values, deadlines = snapshot
        self.flush()
        self.values.update((key, copy(value)) for key, value in values.items())
        for key, deadline in deadlines.items():
            self.expire_at(key, deadline)

    def expire_due(self) -> None:
        """Active expiry: delete expired keys that no access has deleted yet."""
        while (first := self._first()) is not None and self.now > first[0]:
            self.delete(first[1])

    def next_expiry(self) -> int | None:
        """The millisecond at which `expire_due` will next delete a key."""
        first = self._first()
        return None if first is None else first[0] + 1

    def _first(self) -> tuple[int, bytes, int] | None:
        queue = self._expiry_queue
        while queue:
            first = queue[0]
            if self.deadlines.get(first[1]) == first[2]:
                return first
            heappop(queue)
        return None

    def live(self, now: int) -> dict[bytes, Value]:
        """The keys that are live at that millisecond, without deleting any."""
        return {key: value for key, value in self.values.items() if now <= self.deadlines.get(key, now)}
