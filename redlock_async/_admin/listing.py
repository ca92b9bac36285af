"""Listing locks: scan the keys of all nodes in bounded portions, and combine the replies about each name."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar, cast

from redlock_async._kinds.rwlock import READERS
from redlock_async._kinds.semaphore import MOST_PERMITS
from redlock_async._rounds.context import Context
from redlock_async._rules.keys import LONGEST_NAME, RESERVED, Keys, slot_of
from redlock_async._rules.slot_map import contains
from redlock_async._rules.token import owner_of
from redlock_async._transport.commands import Call
from redlock_async._transport.membership import Membership
from redlock_async._transport.side_connection import SideConnection
from redlock_async.errors import ConfigurationError, QuorumUnavailable, WrongKeyType, by_node, label_of, short_repr

from .records import LockRecord, NameState, QuorumView, StoredKey, confirmed, merge_names

T = TypeVar("T")

PORTION = 1000
"""Keys per SCAN, which take a server about a millisecond."""

LOCKS, NAMES = 200, 32
"""Locks, and names with all their keys, per command."""

MOST_REPORTED = 1000
"""Maximum readers, and maximum waiters, that are reported of a name."""

PAUSE = 2
"""Node timeouts between the two checks of a holder on a minority: an attempt to acquire has ended by then."""

FREE, OTHER_TYPE = -2, -3
"""The values of locks_inspect.lua, in place of a ttl, for a missing key and for a key of another type."""

OWN = re.compile(rb"(?P<what>[a-z-]+):(?:\{[@-O]{4}\}:)?\{(?P<lock>.*)\}(?::(?P<slot>\d{1,4}))?", re.DOTALL)
GLOB = re.compile(
    rb"\\(?P<escaped>.)|(?P<many>\*)|(?P<one>\?)|\[(?P<set>(?:\\.|[^\]\\])*)\]|(?P<open>\[)|(?P<other>.)", re.DOTALL
)
MEMBER = re.compile(rb"\\(?P<escaped>.)|(?P<low>.)-(?P<high>.)|(?P<same>.)", re.DOTALL)


class Pattern:
    """A glob pattern of names with the syntax of KEYS and SCAN; without a wildcard it is a single name.

    Raises ConfigurationError for a pattern that no name can match.
    """

    def __init__(self, keys: Keys, text: str) -> None:
        keys.lock(text)  # raises for a text that cannot be a name, which cannot be a pattern either
        self._keys = keys
        self._glob = text.encode()
        self.name: str | None = None
        """The name, if the pattern has no wildcard."""
        parts: list[bytes] = []
        literal: list[bytes] = []
        wild = False
        for found in GLOB.finditer(self._glob):
            if found["open"] is not None:
                raise ConfigurationError(
                    f"the pattern {short_repr(text)} has a [ without a ]. To match the character itself, write \\["
                )
            same = found["escaped"] or found["other"]
            wild |= same is None
            literal.append(same or b"")
            parts.append(_regex(found, same))
        self._regex = re.compile(b"".join(parts), re.DOTALL)
        if not wild:
            self.name = b"".join(literal).decode()

    def covers(self, name: bytes) -> bool:
        """Return whether the pattern matches that name."""
        return self._regex.fullmatch(name) is not None

    @property
    def of_keys(self) -> list[bytes]:
        """The patterns of the keys: of the locks themselves, and of the other keys of a name."""
        namespace = re.sub(rb"([*?\[\]\\])", rb"\\\1", self._keys.namespace.encode())
        if not self._glob.strip(b"*"):
            return [namespace + b"*"]
        return [namespace + self._glob, b"%b%b*{%b%b}*" % (namespace, RESERVED.encode(), namespace, self._glob)]


def _regex(found: re.Match[bytes], same: bytes | None) -> bytes:
    if same is not None:
        return re.escape(same)
    if found["set"] is None:
        return b".*" if found["many"] else b"."
    negated = found["set"].startswith(b"^")
    members = b"".join(map(_member, MEMBER.finditer(found["set"], int(negated))))
    # As in the servers: an empty set matches nothing, and a negated empty set matches every character.
    return b"[%b%b]" % (b"^" if negated else b"", members) if members else (b"." if negated else b"(?!)")


def _member(found: re.Match[bytes]) -> bytes:
    if found["low"] is None:
        return re.escape(found["escaped"] or found["same"])
    return b"-".join(map(re.escape, sorted((found["low"], found["high"]))))


async def list_locks(context: Context, keys: Keys, pattern: str, *, include_foreign: bool) -> list[LockRecord]:
    """Return a record for each holder, leftover and latch whose name matches the pattern.

    Raise QuorumUnavailable if too few nodes reply, and WrongKeyType if the pattern is a single name of another type.
    """
    wanted = Pattern(keys, pattern)
    await context.membership.look(context.settings.options.wait)
    await context.membership.settled()
    async with _connected(context, keys) as snapshot:
        single = wanted.name is not None
        found = (
            {wanted.name: 0}
            if wanted.name is not None
            else await snapshot.scan(wanted, include_foreign=include_foreign)
        )
        records = await snapshot.records(found, single=single)
        doubtful = {record.name: found[record.name] for record in records if record.state == "partial"}
        if doubtful:
            await asyncio.sleep(PAUSE * context.node_timeout)
            again = confirmed(records, await snapshot.records(doubtful, single=single), snapshot.silent)
            records = [record for record in records if record.name not in doubtful] + again
        records += [snapshot.view.malformed(key, ()) for key in snapshot.malformed_names]
    return merge_names(sorted(records, key=lambda record: (record.name, record.kind, record.slot or 0, -record.votes)))


@asynccontextmanager
async def _connected(context: Context, keys: Keys) -> AsyncGenerator[Snapshot]:
    readers = [Reader(context.membership, index) for index in range(len(context.nodes))]
    snapshot = Snapshot(context, keys, readers)
    try:
        await snapshot.ask(Reader.open)
        yield snapshot
    finally:
        for reader in readers:
            reader.close()
        await asyncio.gather(*(reader.closed() for reader in readers))


class Reader:
    """Reads the keys of one node, on connections of its own: of a cluster, one to each shard."""

    def __init__(self, membership: Membership, index: int) -> None:
        self._servers = membership.servers_of(index)
        self.label = self._servers[0].place
        self._connections = [SideConnection(membership, index, node.address) for node in self._servers]

    async def open(self) -> None:
        """Connect; raise the node's fault if it is down."""
        for node in self._servers:
            if node.live is None:
                raise node.cause.with_traceback(None)
        await asyncio.gather(*(connection.open() for connection in self._connections))

    async def ask_all(self, question: Callable[[SideConnection], Coroutine[Any, Any, set[bytes]]]) -> set[bytes]:
        """Return the answers of all servers together."""
        return set().union(*await asyncio.gather(*map(question, self._connections)))

    async def ask_about(
        self,
        sets: Sequence[Sequence[bytes]],
        command: Callable[[Sequence[bytes]], Call],
        read: Callable[[object], list[T]],
    ) -> list[T]:
        """Send a command about sets of keys, each of one slot, and return the answers in their order.

        A server that is no cluster is asked about all of them in one command.
        """
        if self._servers[0].shard is None:
            keys = [key for each in sets for key in each]
            return await self._connections[0].ask(command(keys).pack_with_source(), read)
        asks = [self._connection(each[0]).ask(command(each).pack_with_source(), read) for each in sets]
        return [answer for each in await asyncio.gather(*asks) for answer in each]

    def _connection(self, key: bytes) -> SideConnection:
        slot = slot_of(key)
        for node, connection in zip(self._servers, self._connections, strict=True):
            if node.shard is not None and contains(node.shard.ranges, slot):
                return connection
        raise ConnectionError("no shard of the cluster owns the slot")

    def close(self) -> None:
        """Start closing the connections, without waiting for outstanding replies."""
        for connection in self._connections:
            connection.close()

    async def closed(self) -> None:
        """Wait, after `close`, until the connections have ended."""
        await asyncio.gather(*(connection.closed() for connection in self._connections))


class Snapshot:
    """Queries all nodes at the same time, so that their replies about a name are from the same moment."""

    def __init__(self, context: Context, keys: Keys, readers: Sequence[Reader]) -> None:
        self._context = context
        self._keys = keys
        self._readers = readers
        self._own = (keys.namespace + RESERVED).encode()
        self._causes: dict[str, Exception] = {}
        self.malformed_names: set[str] = set()
        """Keys that look like the library's own, for a name that no lock can have."""

    @property
    def silent(self) -> int:
        """How many nodes have failed to reply."""
        return len(self._causes)

    async def ask(self, question: Callable[[Reader], Coroutine[Any, Any, T]]) -> list[T]:
        """Return the replies of the nodes; a node that fails is not asked again.

        Raise QuorumUnavailable if too few nodes are left.
        """
        answers = await asyncio.gather(*map(question, self._readers), return_exceptions=True)
        good: list[tuple[Reader, T]] = []
        for reader, answer in zip(self._readers, answers, strict=True):
            if isinstance(answer, Exception):
                self._causes[reader.label] = answer
            elif isinstance(answer, BaseException):
                raise answer
            else:
                good.append((reader, answer))
        self._readers = [reader for reader, _ in good]
        if len(good) < self._context.quorum:
            raise QuorumUnavailable(
                f"could not list the locks: too few nodes replied ({by_node(self._causes)})", nodes=self._causes
            )
        return [answer for _, answer in good]

    # Finding names

    async def scan(self, wanted: Pattern, *, include_foreign: bool) -> dict[str, int]:
        """Return the names of all keys on any node, each with the number of its highest semaphore slot plus one."""
        found: dict[str, int] = {}
        for pattern in wanted.of_keys:
            for keys in await self.ask(partial(self._scan, pattern, include_foreign)):
                for key in keys:
                    self._name(key, wanted, found)
        return found

    async def _scan(self, pattern: bytes, include_foreign: bool, reader: Reader) -> set[bytes]:  # noqa: FBT001 - for `partial`
        return await reader.ask_all(partial(self._scan_server, pattern, include_foreign))

    async def _scan_server(self, pattern: bytes, include_foreign: bool, connection: SideConnection) -> set[bytes]:  # noqa: FBT001 - for `partial`
        found: set[bytes] = set()
        cursor = b"0"
        while True:
            words = (cursor, pattern, PORTION, self._own, int(include_foreign))
            cursor, keys = await connection.ask(Call("locks_scan", 0, *words).pack_with_source(), _portion)
            found.update(keys)
            if cursor == b"0":
                return found

    def _name(self, key: bytes, wanted: Pattern, found: dict[str, int]) -> None:
        lock, slots = key, 0
        if key.startswith(self._own):
            own = OWN.fullmatch(key.removeprefix(self._own))
            if own is None or (own["slot"] and own["what"] != b"semaphore"):
                return
            lock, slots = own["lock"], int(own["slot"] or -1) + 1
        name = lock.removeprefix(self._keys.namespace.encode())
        if not name or len(key) > LONGEST_NAME or not wanted.covers(name):
            return
        try:
            text = name.decode()
        except UnicodeDecodeError:
            return  # names are text, so it is not a lock
        if text.startswith(RESERVED):
            self.malformed_names.add(label_of(key, LONGEST_NAME))
            return
        found[text] = min(max(found.get(text, 0), slots), MOST_PERMITS)

    # Finding holders

    async def records(self, names: Mapping[str, int], *, single: bool) -> list[LockRecord]:
        """Return the records of these names; raise WrongKeyType if the key of a `single` name has another type."""
        records: list[LockRecord] = []
        for portion in _portions(list(names), NAMES):
            records += await self._records({name: names[name] for name in portion}, single=single)
        return records

    async def _records(self, names: Mapping[str, int], *, single: bool) -> list[LockRecord]:
        keys, records = self._keys, []
        locks = [keys.lock(name) for name in names]
        all_keys = [(keys.lock(name), *keys.auxiliary(name)) for name in names]
        answers = await self.ask(partial(self._read_names, locks, all_keys))
        if single and sum(_has_other_type(stored[0]) for stored, _ in answers) >= self._context.quorum:
            (name,) = names
            raise WrongKeyType(f"{name!r} is not a lock: its key holds another type of value", names=(name,))
        view = self.view
        permits: dict[str, int | None] = {}
        waiting: dict[str, tuple[str | None, ...]] = {}
        for index, name in enumerate(names):
            states = [of_names[index] for _, of_names in answers]
            records += view.of_name(name, [stored[index] for stored, _ in answers], states)
            reservations = dict.fromkeys(state.wants_many for state in states if state.wants_many is not None)
            waiting[name] = tuple(owner_of(reservation.partition(b":")[2]) for reservation in reservations)
            permits[name] = max((state.permits for state in states if state.permits is not None), default=None)
        slots = [(name, slot) for name, seen in names.items() for slot in range(max(seen, permits[name] or 0))]
        for portion in _portions(slots, LOCKS):
            records += await self._slots(portion, permits, waiting)
        return records

    async def _read_names(
        self, locks: Sequence[bytes], all_keys: Sequence[Sequence[bytes]], reader: Reader
    ) -> tuple[list[StoredKey | None], list[NameState]]:
        states = reader.ask_about(
            all_keys, lambda keys: Call("locks_context", len(keys), *keys, READERS, MOST_REPORTED), _states
        )
        return await asyncio.gather(self._read_locks(locks, reader), states)

    async def _read_locks(self, locks: Sequence[bytes], reader: Reader) -> list[StoredKey | None]:
        keys = [(lock, self._keys.fence(lock)) for lock in locks]
        return await reader.ask_about(keys, lambda keys: Call("locks_inspect", len(keys), *keys), read_locks)

    async def _slots(
        self,
        slots: Sequence[tuple[str, int]],
        permits: Mapping[str, int | None],
        waiting: Mapping[str, tuple[str | None, ...]],
    ) -> list[LockRecord]:
        locks = [b"%b:%d" % (self._keys.semaphore(name)[0], slot) for name, slot in slots]
        answers = await self.ask(partial(self._read_locks, locks))
        view = self.view
        return [
            replace(record, slot=slot, permits=permits[name], waiting=waiting[name])
            for index, (name, slot) in enumerate(slots)
            for record in view.holders(name, "semaphore", [stored[index] for stored in answers])
        ]

    @property
    def view(self) -> QuorumView:
        """The nodes that have replied to every question so far."""
        labels = [reader.label for reader in self._readers]
        return QuorumView(labels, len(self._context.nodes), self._context.quorum)


def _portions(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (items[start : start + size] for start in range(0, len(items), size))


def _has_other_type(stored: StoredKey | None) -> bool:
    return stored is not None and stored.value is None


# Parsing the scripts' replies


def _portion(reply: object) -> tuple[bytes, list[bytes]]:
    cursor, *keys = cast("list[bytes]", reply)
    if {*map(type, (cursor, *keys))} != {bytes}:
        raise TypeError
    return cursor, keys


def read_locks(reply: object) -> list[StoredKey | None]:
    """Parse the reply of locks_inspect.lua: the keys, or None for those that are missing."""
    return [_lock(*fields) for fields in cast("list[list[object]]", reply)]


def _lock(value: object, ms: object, fence: object) -> StoredKey | None:
    if type(value) is not bytes or type(ms) is not int or not isinstance(fence, int | None):
        raise TypeError
    if ms == FREE:
        return None
    if ms == OTHER_TYPE:
        return StoredKey(None, 0.0, None)
    return StoredKey(value, _seconds(ms), fence)


def _seconds(ms: int) -> float:
    return ms / 1000 if ms >= 0 else float("inf")


def _states(reply: object) -> list[NameState]:
    names = cast("list[list[Any] | None]", reply)
    return [NameState(malformed=True) if fields is None else _state(*fields) for fields in names]


def _state(
    readers: list[Any], reservations: list[Any], queue: list[Any], fair: int, permits: Any, latch: Any
) -> NameState:
    tokens, left, (writer, many) = readers[::2], readers[1::2], reservations
    numbers = [*left, fair, *(() if permits is None else (permits,)), *(latch or ())]
    words = [*tokens, *queue, *(reservation for reservation in reservations if reservation is not None)]
    if {*map(type, numbers)} != {int} or not {*map(type, words)} <= {bytes}:
        raise TypeError
    known = None
    if latch is not None:
        count, counted, opened, ms = latch
        known = (count, counted, bool(opened), _seconds(ms))
    shares = {token: ms / 1000 for token, ms in zip(tokens, left, strict=True)}
    return NameState(shares, writer, many, tuple(queue), bool(fair), permits, known)
