"""The keyspace of one simulated master: typed values, and expiry by the node's own clock.

It knows nothing of commands, sessions or scripts; whoever wants to hear of a change gives it a callback.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush

from ._resp import WRONG_TYPE, Refused

FEW = 64
"""Outdated entries of the agenda that are not worth sweeping out."""


class Hash(dict[bytes, bytes]):
    """Fields and their values."""

    __slots__ = ()


class SortedSet(dict[bytes, float]):
    """Members and their scores; put in order when they are read, for they are few."""

    __slots__ = ()

    def ranked(self) -> list[tuple[bytes, float]]:
        """By score, then by member."""
        return sorted(self.items(), key=lambda item: (item[1], item[0]))


class Set(dict[bytes, None]):
    """Members in the order they came: a Python set would order them differently in every run."""

    __slots__ = ()


Value = bytes | Hash | SortedSet | Set

NAMES: dict[type, bytes] = {bytes: b"string", Hash: b"hash", SortedSet: b"zset", Set: b"set"}


class Store:
    """Keys, values and deadlines.

    `now` stands still while a command or a script runs, as on the server: a key cannot expire between two commands of
    one script.
    """

    __slots__ = ("_agenda", "_lag", "changed", "deadlines", "flushed", "micros", "now", "values")

    def __init__(
        self, changed: Callable[[bytes], None], flushed: Callable[[], None], lag: Callable[[], float] | None
    ) -> None:
        self.values: dict[bytes, Value] = {}
        self.deadlines: dict[bytes, int] = {}
        """The last millisecond of each key that has one."""
        self.changed = changed
        """To be called for each key that was modified."""
        self.flushed = flushed
        self.now = 0
        """Milliseconds."""
        self.micros = 0
        self._agenda: list[tuple[int, bytes, int]] = []
        """For active expiry: when a key is to be found, which, and the deadline it had then."""
        self._lag = lag

    def tick(self, seconds: float) -> None:
        """Set the time for what is carried out next."""
        # To the nearest: a clock that stands at a whole millisecond must not be read as the one before.
        self.micros = micros = int(seconds * 1e6 + 0.5)
        self.now = micros // 1000

    def find(self, key: bytes) -> Value | None:
        """The value of a key; one whose time is over is deleted by this very access."""
        deadlines = self.deadlines
        if key in deadlines and self.now > deadlines[key]:
            self.delete(key)
            return None
        return self.values.get(key)

    def string(self, key: bytes) -> bytes | None:
        """The same for a key that must hold a string, if it exists."""
        value = self.find(key)
        if value is None or type(value) is bytes:
            return value
        raise Refused(WRONG_TYPE)

    def put(self, key: bytes, value: Value, deadline: int | None = None) -> None:
        """Set a key anew."""
        self.values[key] = value
        if deadline is not None:
            self.expire_at(key, deadline)
        elif key in self.deadlines:
            del self.deadlines[key]
        self.changed(key)

    def expire_at(self, key: bytes, deadline: int) -> None:
        """Let a key run out after that millisecond."""
        self.deadlines[key] = deadline
        agenda = self._agenda
        lag = 0 if self._lag is None else round(self._lag() * 1000)
        heappush(agenda, (deadline + lag, key, deadline))
        if len(agenda) > 2 * len(self.deadlines) + FEW:
            # Of every lease that was renewed, and of every lock that was released, an entry stays behind.
            agenda[:] = {entry[1]: entry for entry in agenda if self.deadlines.get(entry[1]) == entry[2]}.values()
            heapify(agenda)

    def delete(self, key: bytes) -> None:
        """Remove a key that exists."""
        del self.values[key]
        self.deadlines.pop(key, None)
        self.changed(key)

    def flush(self) -> None:
        """Remove all keys."""
        self.values.clear()
        self.deadlines.clear()
        self._agenda.clear()
        self.flushed()

    def expire_due(self) -> None:
        """Active expiry: remove what nobody has asked for since its time was over."""
        while (first := self._first()) is not None and self.now > first[0]:
            self.delete(first[1])

    def next_expiry(self) -> int | None:
        """The millisecond at which `expire_due` has something to do."""
        first = self._first()
        return None if first is None else first[0] + 1

    def _first(self) -> tuple[int, bytes, int] | None:
        agenda = self._agenda
        while agenda:
            first = agenda[0]
            if self.deadlines.get(first[1]) == first[2]:
                return first
            heappop(agenda)
        return None

    def live(self, now: int) -> dict[bytes, Value]:
        """What is there at that millisecond, disturbing nothing."""
        return {key: value for key, value in self.values.items() if now <= self.deadlines.get(key, now)}
