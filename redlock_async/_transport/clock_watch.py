"""The nodes' wall clocks, as this client compares them: a node whose clock was stepped does not vote.

The comparison takes one command per node (`node_clocks.lua`), sent with an acquire or a renewal when the last one is
too old. It yields a window for each node: what its clock must show, measured from this client's. Every grant says what
the node's clock shows, and counts if that is within the window. Otherwise it waits for the next comparison.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass, replace
from typing import Protocol, cast

from redlock_async._rules.clock_steps import Comparison, Finding, Note, Reading, compare, interval, notes_to_make
from redlock_async._rules.quorum import minority
from redlock_async._rules.replies import missing_script
from redlock_async._rules.settings import Settings
from redlock_async.errors import NodeRefused

from .broadcast import NodeGroup
from .calm import RATE_LIMIT
from .commands import Call, clock_command, failure_of
from .connection import ErrorReply, pack
from .node import Node

IN_DOUBT_FOR = 1.0
"""Seconds for which it may be unclear whose clock was stepped; then all clocks in doubt count as stepped."""

TIME = pack(("TIME",))

NO_REPLY = NodeRefused("its clock was not compared with the others': it did not answer in time")


class Deferred(Protocol):
    """A round that waits for the nodes' clocks to be compared before it counts a grant."""

    started_at: float

    def deliver(self, node: int, reply: object) -> None:
        """Take a reply: of a grant, minus what the node's clock shows, in µs."""

    def compared(self, node: int, reply: object, objection: Exception | None) -> None:
        """Count the grant, or not if there is an objection."""


class ClockWatch:
    """What this client knows of the nodes' clocks."""

    def __init__(
        self,
        nodes: NodeGroup,
        quorum: int,
        settings: Settings,
        key: bytes,
        now: Callable[[], float],
        report_step: Callable[[Node, str, float], None],
    ) -> None:
        self._nodes = nodes
        self._quorum = quorum
        self._wrong = minority(len(nodes))
        self._key = key
        self._drift = settings.drift_factor
        self._interval = interval(settings.options.ttl)
        self._timeout = min(settings.node_timeout, settings.options.ttl / 4)
        self._now = now
        self._report_step = report_step
        self._loop = asyncio.get_running_loop()
        self.low, self.high = [math.inf] * len(nodes), [-math.inf] * len(nodes)
        """For each node, by how many µs its clock is ahead of ours at least, and at most."""
        self.fresh_until = -math.inf
        """Until when the windows are relied on."""
        self._objections: list[Exception] = [NO_REPLY] * len(nodes)
        """For each node without a window, why its votes do not count."""
        self._current: Comparing | None = None
        self._began_at = -math.inf
        """When the last comparison began."""
        self._sample: Sample | None = None
        """The reading that will be sent in this iteration of the loop."""
        self._deferred: list[Grant] = []
        self._suspects: frozenset[int] = frozenset()
        """The nodes whose clocks were not steady at the last comparison."""
        self._in_doubt_since = math.inf

    # Grants

    def accepts(self, node: int, ahead: float, sent_at: float) -> bool:
        """Whether a node's clock is right that is that many µs ahead of what ours was when the command was sent."""
        took = (self._now() - sent_at) * 1e6  # it may have been read at any time since
        return self.low[node] <= ahead <= self.high[node] + took

    def defer(self, round_: Deferred, node: int, reply: object, ahead: float) -> None:
        """Have a grant counted, or not, when the clocks have been compared."""
        current = self._current
        if current is None:
            if self._now() < self._began_at + RATE_LIMIT:
                round_.compared(node, reply, self._objection(node))
                return
            current = self._begin()
        self._deferred.append(Grant(round_, node, reply, ahead, current, by_window=node in current.readings))
        self._settle()

    def _objection(self, node: int) -> Exception:
        if self.low[node] == math.inf:
            return self._objections[node]
        return NodeRefused("its clock is not what it was: it is being compared with the others'")

    def _settle(self) -> None:
        """Count the grants that waited for a comparison, or do not."""
        deferred, self._deferred = self._deferred, []
        for grant in deferred:
            node, awaited = grant.node, grant.awaited
            if node in awaited.steady:
                if not grant.by_window or self.accepts(node, grant.ahead, grant.round.started_at):
                    grant.round.compared(node, grant.reply, None)
                else:
                    # The clock was stepped right after it was read, or ours was. The next time it is read, that is
                    # after the grant; then it is enough that it is steady.
                    again = self._begin() if self._current in {None, awaited} else self._current
                    self._deferred.append(replace(grant, awaited=again, by_window=False))
            elif awaited.over:
                grant.round.compared(node, grant.reply, self._objection(node))
            else:
                self._deferred.append(grant)

    # Commands whose replies do not say what the clock shows

    def sample(self) -> Sample:
        """Return the reading of the clocks behind all commands that are sent in this iteration of the loop."""
        if self._sample is None:
            self._sample = Sample(self._now(), self._read_by_script)
            self._nodes.batcher.before_write(self._send_sample)
        return self._sample

    def _send_sample(self) -> None:
        sample, self._sample = self._sample, None
        assert sample is not None  # noqa: S101 - this is called once for each
        up = [node.identity for node in self._nodes if node.live is not None]
        if self._nodes.dialect is not None and all(identity and identity.asked for identity in up):
            self._nodes.batcher.send_all(TIME, sample)
            return
        for node in self._nodes:
            if node.live is not None:
                asked = node.identity is not None and node.identity.asked
                node.live.send(TIME if asked else clock_command(self._key), sample)

    def _read_by_script(self, node: int, sample: Sample) -> bool:
        """Read the clock of a server that does not serve TIME; return whether the command was sent."""
        connection = self._nodes[node].connection
        if connection is not None:
            connection.send(clock_command(self._key), sample)
        return connection is not None

    # Comparing

    def refresh_if_older(self, part: float, *, holding: bool = False) -> None:
        """Compare the clocks unless that was done within this part of the time for which it is relied on."""
        if self._now() >= self._began_at + part * self._interval:
            self.refresh(holding=holding)

    def refresh(self, *, holding: bool = False) -> None:
        """Compare the nodes' clocks, unless that is under way. Grants to commands sent later can be judged by it.

        `holding`: for a lease that is held, which may end early on nodes that are stepped.
        """
        current = self._current or self._begin()
        current.holding |= holding

    def _begin(self) -> Comparing:
        self._began_at = now = self._now()
        if now >= self.fresh_until:
            for node in self._nodes:
                self._close_window(node.index)
        asked = {node.index: node.live for node in self._nodes if node.live is not None}
        self._current = current = Comparing(self, Call("node_clocks", 1, self._key), now, set(asked))
        for index, connection in asked.items():
            connection.send(current.command.pack(self._nodes[index].compare_and_delete), current)
        self._loop.call_later(self._timeout / 2, current.hurry, context=Context())
        self._expire_in(self._timeout if asked else 0.0, current)
        return current

    def _expire_in(self, seconds: float, current: Comparing) -> None:
        planned = self._now() + seconds
        self._loop.call_later(seconds, self._expire, current, planned, context=Context())

    def _expire(self, current: Comparing, planned: float) -> None:
        if not current.over and self._now() - planned > self._timeout / 2:
            self._expire_in(self._timeout / 2, current)  # the loop was blocked: the nodes are not to blame
        else:
            current.expire()

    def _close_window(self, node: int) -> None:
        self.low[node], self.high[node] = math.inf, -math.inf

    def send_source(self, node: int, current: Comparing) -> bool:
        """Send the script to a server that has forgotten it; return whether it was sent."""
        return self._nodes[node].send_source(current.command, current)

    def decode(self, sent_at: float, reply: object) -> tuple[Reading, dict[int, Note]]:
        """Return a node's clock and its notes, by node."""
        time, texts = cast("tuple[int, list[bytes]]", reply)
        if type(time) is not int:
            raise TypeError("a number is needed")
        ids, notes = self._ids(), {}
        for name, text in zip(texts[::2], texts[1::2], strict=True):
            if (other := ids.get(name)) is not None and (note := decode_note(text)) is not None:
                notes[other] = note
        return Reading(time / 1e6, time / 1e6 - self._now(), time / 1e6 - sent_at), notes

    def _ids(self) -> dict[bytes, int]:
        """Return the nodes by the id of their data."""
        records = [(node.index, node.record.last) for node in self._nodes]
        return {record.id.encode(): index for index, record in records if record is not None and record.id}

    def progress(self, current: Comparing) -> None:
        """React to one more reply; conclude with the last one."""
        if current is not self._current:
            return
        voting = {node.index for node in self._nodes if node.abstains is None}
        outcome = compare(current.readings, current.notes, voting, self._drift, self._wrong)
        tolerated = self._drift * self._interval
        # Only nodes that have been compared with one another may make up a quorum.
        enough = current.hurried and len(current.readings) >= self._quorum
        for node, reading in current.readings.items():
            if node in outcome.confirmed or (enough and outcome.findings[node] is Finding.STEADY):
                self.low[node] = (reading.low - tolerated) * 1e6
                self.high[node] = (reading.high + tolerated) * 1e6
                current.steady.add(node)
        if current.over:
            self._current = None
            self.fresh_until = current.started_at + self._interval
            self._conclude(current, outcome)
        self._settle()

    def _conclude(self, current: Comparing, outcome: Comparison) -> None:
        for node in self._nodes:
            if node.index not in current.steady:
                self._close_window(node.index)
                self._objections[node.index] = _why(outcome, node.index) or current.failures.get(node.index, NO_REPLY)
        self._report(current, outcome)
        self._make_notes(current, outcome)
        before, self._suspects = self._suspects, frozenset(outcome.steps)
        if self._suspects - before:
            # To confirm it: a machine that was suspended between two replies sees the same, but once.
            self._begin().holding = current.holding

    def _report(self, current: Comparing, outcome: Comparison) -> None:
        """Have nodes record that their clock was stepped, if two comparisons in a row say so."""
        in_doubt = {node for node, finding in outcome.findings.items() if finding is Finding.IN_DOUBT}
        self._in_doubt_since = min(self._in_doubt_since, current.started_at) if in_doubt else math.inf
        for_long = current.started_at >= self._in_doubt_since + IN_DOUBT_FOR
        # A lease that is held may end early on any of them, so its holder does not wait.
        all_count = (for_long or current.holding) and len(current.readings) >= self._quorum
        for index in self._suspects & outcome.steps.keys():
            node = self._nodes[index]
            record = node.record.last
            # A node that is quarantined is looked at again when it would vote.
            if (index not in in_doubt or all_count) and node.abstains is None and record is not None:
                self._report_step(node, record.id, outcome.steps[index])

    def _make_notes(self, current: Comparing, outcome: Comparison) -> None:
        names = {index: name for name, index in self._ids().items()}
        age = self._interval / 2
        for index, others in notes_to_make(current.readings, current.notes, outcome, self._drift, age).items():
            words: list[bytes | str] = []
            for other, note in others.items():
                if other in names:
                    words += (names[other], encode_note(note))
            node = self._nodes[index]
            if words and node.live is not None:
                command = Call("node_clocks", 1, self._key, *words)
                node.live.send(command.pack(node.compare_and_delete), NotesSent(current.started_at))


def _why(outcome: Comparison, node: int) -> NodeRefused | None:
    if node not in outcome.steps:
        return None
    if outcome.findings[node] is Finding.STEPPED:
        return NodeRefused(f"its clock was stepped by {outcome.steps[node]:+.3g} s")
    return NodeRefused("its clock or another node's was stepped, and too few nodes answer to tell whose")


def encode_note(note: Note) -> str:
    """Return a note as a node keeps it."""
    return f"{round(note.time * 1e6)} {round(note.ahead * 1e6)} {math.ceil(note.error * 1e6)}"


def decode_note(text: bytes) -> Note | None:
    """Return a node's note, or None if it is not one of ours."""
    try:
        time, ahead, error = (int(word) / 1e6 for word in text.split())
    except (ValueError, OverflowError):
        return None
    return Note(time, ahead, error)


@dataclass(frozen=True, slots=True)
class Grant:
    """A grant that waits for the clocks to be compared."""

    round: Deferred
    node: int
    reply: object
    ahead: float
    """By how many µs the node's clock was ahead of what ours was when the command was sent."""
    awaited: Comparing
    by_window: bool
    """Whether the clock was read before the grant, so that it must also be within the window."""


class Comparing:
    """A comparison under way: takes the replies."""

    def __init__(self, watch: ClockWatch, command: Call, started_at: float, asked: set[int]) -> None:
        self._watch = watch
        self.command = command
        self.started_at = started_at
        self._open = asked
        self._hurried = False
        self._resent: set[int] = set()
        self.holding = False
        """Whether it was begun for a lease that is held."""
        self.readings: dict[int, Reading] = {}
        self.notes: dict[int, dict[int, Note]] = {}
        self.failures: dict[int, Exception] = {}
        self.steady: set[int] = set()
        """The nodes whose clocks are known to be steady."""

    @property
    def over(self) -> bool:
        """Whether every node has replied or failed."""
        return not self._open

    def deliver(self, node: int, reply: object) -> None:
        """Take a node's clock and its notes."""
        if not isinstance(reply, ErrorReply):
            reading, self.notes[node] = self._watch.decode(self.started_at, reply)
            self.readings[node] = reading
        elif missing_script(str(reply)) and node not in self._resent and self._watch.send_source(node, self):
            self._resent.add(node)
            return
        else:
            self.failures[node] = failure_of(str(reply), self.command)
        self._progress(node)

    def dropped(self, node: int, cause: Exception) -> None:
        """The connection has ended."""
        self.failures[node] = cause
        self._progress(node)

    def _progress(self, node: int) -> None:
        self._open.discard(node)
        self._watch.progress(self)

    @property
    def hurried(self) -> bool:
        """Whether the replies so far must do, because grants would time out if they waited for silent nodes."""
        return self._hurried or self.over

    def hurry(self) -> None:
        """Let grants wait no longer for silent nodes."""
        self._hurried = True
        self._watch.progress(self)

    def expire(self) -> None:
        """Wait no longer."""
        self._open.clear()
        self._watch.progress(self)


class Sample:
    """What the nodes' clocks show behind commands whose replies do not say so, such as SET."""

    __slots__ = ("_again", "_by_script", "_held", "started_at")

    def __init__(self, now: float, by_script: Callable[[int, Sample], bool]) -> None:
        self.started_at = now
        self._by_script = by_script
        self._again = 0
        self._held: dict[int, list[Deferred]] = {}

    def hold(self, round_: Deferred, node: int) -> None:
        """Hold a grant back until it is known what the node's clock showed then."""
        if node in self._held:
            self._held[node].append(round_)
        else:
            self._held[node] = [round_]

    def deliver(self, node: int, reply: object) -> None:
        """Pass the grants on."""
        if isinstance(reply, ErrorReply):
            bit = 1 << node
            if not self._again & bit and self._by_script(node, self):
                self._again |= bit
            else:
                self.dropped(node, failure_of(str(reply), TIME))
            return
        time = reply if type(reply) is int else _time(cast("list[bytes]", reply))
        for round_ in self._held.pop(node, ()):
            round_.deliver(node, -time)

    def dropped(self, node: int, cause: Exception) -> None:
        """The grants do not count: the connection has ended, or the clock cannot be read."""
        for round_ in self._held.pop(node, ()):
            round_.compared(node, None, cause)


def _time(reply: list[bytes]) -> int:
    seconds, microseconds = reply
    return int(seconds) * 1_000_000 + int(microseconds)


class NotesSent:
    """Takes the reply to notes. After an error they are made again later."""

    __slots__ = ("started_at",)

    def __init__(self, now: float) -> None:
        self.started_at = now

    def deliver(self, node: int, reply: object) -> None:
        """Nothing waits for it."""

    def dropped(self, node: int, cause: Exception) -> None:
        """Nothing waits for it."""
