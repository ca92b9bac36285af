"""A node's record of itself and the others, as last read, and whether its votes count."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any, Protocol, cast

from redlock_async._rules.charter import Charter
from redlock_async._rules.fencing import LATEST_CLOCK
from redlock_async._rules.slot_map import slots_in
from redlock_async._rules.voting import Heard, Move, Origin, Record, Standing
from redlock_async.errors import NodeRefused, WrongClock, WrongKeyType

from .calm import RateLimited
from .commands import Call, failure_of
from .connection import DECODE_ERRORS, Connection, ErrorReply, Receiver, Redact, malformed_reply
from .receivers import SingleReply

ASK_AGAIN = 1.0
"""Maximum seconds until a node that failed to report its record is asked again."""

FIELDS = 11
"""How many values of the reply describe the node itself; then three follow for each id that it has heard of."""


class Client(Protocol):
    """The client that a `NodeRecord` belongs to."""

    loop: asyncio.AbstractEventLoop
    now: Callable[[], float]
    random: Random

    def record_command(self, node: Any) -> Call:
        """Return the command that reads that node's record, and creates it if the client takes locks."""
        ...

    def abstention_changed(self) -> None:
        """A node may have started or stopped abstaining."""


class Owner(Protocol):
    """The node that a `NodeRecord` belongs to."""

    index: int
    connection: Connection | None
    closed: bool
    redact: Redact

    def on_record(self) -> None:
        """The record has changed, or the reason why there is none."""


class NodeRecord:
    """The record of one node, and whether its votes count."""

    def __init__(self, owner: Owner, client: Client) -> None:
        self._owner = owner
        self._client = client
        self._record: Record | None = None
        self._read_at = 0.0
        self.clock: tuple[float, float] | None = None
        """The node's wall clock, and our time when it was asked."""
        self.abstains: Exception | None = None
        """Why the node's votes do not count although it answers; None if they count."""
        self._quarantine: Exception | None = None
        self._in_doubt: Exception | None = None
        self._refresh = RateLimited(client.loop, self._read_again)
        self._retry: asyncio.TimerHandle | None = None
        self._sent: tuple[tuple[object, ...], float] | None = None
        """The last update, and when it was sent."""
        self.updating = 0
        """How many updates have no reply yet."""
        self.outdated = False
        """Whether the node has reported a change that has not been read yet."""
        self._only_read = False
        """Whether the node has not yet been told that the client takes locks."""

    def at(self, now: float) -> Record | None:
        """Return the record as it is at that time; None while it is not known whether the last one is still true."""
        record = self._record
        if record is None or self._in_doubt is not None or self._owner.connection is None:
            return None
        later = now - self._read_at
        heard = {node: Heard(each.age + later, each.standing) for node, each in record.heard.items()}
        arrived = tuple(replace(move, age=move.age + later) for move in record.arrived)
        return replace(record, heard=heard, arrived=arrived)

    @property
    def last(self) -> Record | None:
        """The record as last read."""
        return self._record

    def data_age(self, now: float) -> float | None:
        """Return for how long the node has had its data, by its own clock."""
        record = self._record
        own = None if record is None else record.heard.get(record.id)
        return None if own is None else own.age + now - self._read_at

    def quarantine(self, why: Exception | None) -> None:
        """Ignore the node's votes, because it may have forgotten a lease; with None, count them again."""
        self._quarantine = why
        self._reconsider()

    def _doubt(self, why: Exception | None) -> None:
        """Ignore the node's votes while it is being asked for its record; with None, count them again."""
        self._in_doubt = why
        self._reconsider()

    def _reconsider(self) -> None:
        self.abstains = self._in_doubt or self._quarantine
        self._client.abstention_changed()

    def ask(self) -> SingleReply:
        """Ask for the record on a new connection; the node does not vote until `update` has its reply."""
        self._doubt_while_asked()
        self._sent = None
        self.updating = 0
        self.outdated = self._only_read = False
        ask = SingleReply(self._client.loop, self._client.now())
        self._send(self._client.record_command(self._owner), ask)
        return ask

    def update(self, read_at: float, reply: object) -> None:
        """Take the reply to `ask`; raise if it is an error, shows a wrong clock or is malformed."""
        try:
            self._update(read_at, reply)
        except DECODE_ERRORS as exc:
            raise malformed_reply(reply, exc, self._owner.redact) from exc

    def _update(self, read_at: float, reply: object) -> None:
        if isinstance(reply, ErrorReply):
            raise failure_of(str(reply), self._client.record_command(self._owner))
        node_time, record = decode_record(reply)
        if node_time >= LATEST_CLOCK:
            clock = node_time / 1e6
            raise WrongClock(f"its clock shows {clock:.0f} s since 1970, beyond the year 2200: set it", clock)
        self._record = record
        self.outdated = False
        self._read_at = self._client.now()
        self.clock = node_time / 1e6, read_at
        if not self._only_read:
            self._doubt(None)

    def record(self, what: tuple[object, ...], command: Call) -> None:
        """Have the node record that, unless it was sent the same just now."""
        now = self._client.now()
        if self._sent is not None and self._sent[0] == what:
            if self.updating:
                return
            if now < self._sent[1] + ASK_AGAIN:
                # It could not record it (OOM, for example).
                self._later(ASK_AGAIN, self._owner.on_record)
                return
        self._sent = what, now
        self.send(command)

    def send(self, command: Call) -> None:
        """Send a command that reads the record, on the connection in use."""
        if self._owner.connection is not None:
            self.updating += 1
            self._send(command, RecordRefresh(self, self._client.now()))

    def join(self) -> None:
        """Ask once more, now for a client that takes locks. Until the reply its votes do not count.

        A client that takes none changes nothing. So the node has not compared yet which server it is with which server
        it was: it may be a replica that was promoted.
        """
        if self._owner.connection is not None:
            self._only_read = True
            self._doubt_while_asked()
            self.updating += 1
            self._send(self._client.record_command(self._owner), RecordRefresh(self, self._client.now(), joins=True))

    def joined(self) -> None:
        """The reply to `join` is there."""
        self._only_read = False

    def reported(self, *, doubt: bool) -> None:
        """Read the record once more, because the node reports that it was changed or, with `doubt`, flushed.

        A node that reports this repeatedly is asked at most once in `RATE_LIMIT` seconds, and its votes do not count
        until then. A server reports a flush before it replies to any later command, so no grant after the flush is
        counted.
        """
        if doubt and self._in_doubt is None:
            self._doubt_while_asked()
        self.outdated = True
        self._refresh()

    def _read_again(self) -> None:
        self.send(self._client.record_command(self._owner))

    def _doubt_while_asked(self) -> None:
        self._doubt(NodeRefused("it is being asked whether it still has its data"))

    def refresh(self, read_at: float, reply: object) -> None:
        """Take the reply to `send`."""
        if self._owner.closed:
            return  # only releases need the errors that `error_while_draining` passes on
        self.updating = max(self.updating - 1, 0)
        try:
            self._update(read_at, reply)
        except (ConnectionError, WrongKeyType) as exc:
            self._doubt(exc)
            # It may only be busy, and while the connection lasts nothing else would ask again.
            pause = ASK_AGAIN * self._client.random.uniform(0.5, 1.0)
            self._later(pause, partial(self._ask_if_in_doubt, self._owner.connection))
        self._owner.on_record()

    def _later(self, pause: float, callback: Callable[[], None]) -> None:
        if self._retry is not None:
            self._retry.cancel()
        self._retry = self._client.loop.call_later(pause, callback, context=Context())

    def _ask_if_in_doubt(self, connection: Connection | None) -> None:
        if connection is not None and connection is self._owner.connection and self._in_doubt is not None:
            self._doubt_while_asked()
            self._read_again()

    def _send(self, command: Call, receiver: Receiver) -> None:
        if self._owner.connection is not None:
            self._owner.connection.send(command.pack_with_source(), receiver)


def decode_record(reply: object) -> tuple[int, Record]:
    """Return the node's time in µs and its record, from the reply of node_record.lua."""
    values = cast("list[object]", reply)
    now, node_id, ttl_ms, origin, founding, grace_ms, charter, stepped, slots, arrived, left = values[:FIELDS]
    node_time, heard = _number(now), {}
    for start in range(FIELDS, len(values), 3):
        other, since, standing = values[start : start + 3]
        heard[_text(other)] = Heard(max(node_time - _number(since), 0) / 1e6, Standing(_text(standing)))
    record = Record(
        id=_text(node_id),
        longest_ttl=_number(ttl_ms) / 1e3,
        origin=Origin(_text(origin)),
        founding=tuple(_text(founding).split()),
        heard=heard,
        grace=_number(grace_ms) / 1e3,
        charter=Charter.decode(text) if (text := _text(charter)) else None,
        stepped=int(text) / 1e3 if (text := _text(stepped)) else None,
        slots=slots_in(_text(slots)),
        arrived=_moves(_text(arrived), node_time),
        left=_moves(_text(left), node_time),
    )
    return node_time, record


def _moves(text: str, node_time: int) -> tuple[Move, ...]:
    pairs = [each.partition(":") for each in text.split()]
    return tuple(Move(int(since), max(node_time - int(since), 0) / 1e6, slots_in(slots)) for since, _, slots in pairs)


def _text(value: object) -> str:
    if type(value) is not bytes:
        raise TypeError("a string is needed")
    return value.decode("ascii")


def _number(value: object) -> int:
    if type(value) is not int:
        raise TypeError("a number is needed")
    return value


class RecordRefresh:
    """Takes the reply when a node's record is read once more."""

    __slots__ = ("_joins", "_record", "started_at")

    def __init__(self, record: NodeRecord, now: float, *, joins: bool = False) -> None:
        self._record = record
        self._joins = joins
        self.started_at = now

    def deliver(self, node: int, reply: object) -> None:  # noqa: ARG002 - one node only
        if self._joins:
            self._record.joined()
        self._record.refresh(self.started_at, reply)

    def dropped(self, node: int, cause: Exception) -> None:
        """The next connection reads the record anyway."""
