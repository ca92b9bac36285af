"""The waiters of one process for one fair lock: the first asks the nodes, and all keep their queue entries there.

The nodes decide who gets the lock; this only says which task of the process asks them.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from redlock_async._rounds.context import Context, resolve
from redlock_async._rounds.round import Round
from redlock_async._rules.quorum import Verdict
from redlock_async._transport.commands import Call, Command

from .kind import Refusal

HEARTBEATS_PER_ENTRY = 3
"""Heartbeats in the time for which an entry is kept."""

REGISTER_MS = 3_600_000
"""How long a ticket register outlives its last use. A new one starts at the node's time, ahead of the old one."""

BATCH = 100
"""Waiters of one process in one heartbeat."""


@dataclass(frozen=True, slots=True, eq=False)
class QueueEntry:
    """One waiter's entry in the queue."""

    ticket: int
    id: bytes

    @property
    def rank(self) -> tuple[int, bytes]:
        """Its position: the smallest is first."""
        return self.ticket, self.id


class FairWaiters:
    """The waiters of one process for one fair lock, in the order of their tickets."""

    def __init__(self, context: Context, keys: tuple[bytes, bytes, bytes], wake_prefix: bytes, entry_ms: int) -> None:
        self._context = context
        self._keys = keys
        self._wake_prefix = wake_prefix
        self._entry_ms = entry_ms
        self._waiting: list[QueueEntry] = []
        self._called: dict[bytes, asyncio.Future[bool]] = {}
        """Those that are not the first, until they are called."""
        self._timer: asyncio.TimerHandle | None = None
        self._refusal: Refusal | None = None
        """Why the first was refused."""
        self._refused_at = 0.0
        self.error: Exception | None = None
        """The error of the first one's last attempt, unless it was refused."""
        self._quorum_at = context.now()
        """When something was last sent that a majority has answered."""

    def join(self, entry: QueueEntry) -> None:
        """Take the position that the ticket gives."""
        insort(self._waiting, entry, key=_rank)
        if self._waiting[0] is not entry:
            self.send_entries([entry])  # the first sends its entry with its attempts
        if self._timer is None:
            self._schedule_heartbeat(self._entry_ms / 1000 / HEARTBEATS_PER_ENTRY)

    @property
    def has_quorum(self) -> bool:
        """Whether a majority has answered for as long as an entry is kept.

        If not, our entries have expired there, and we cannot get the lock. If the other nodes kept them, no other
        client could get it either, as soon as one more node is down.
        """
        return self._context.now() < self._quorum_at + self._entry_ms / 1000

    def on_quorum(self, asked_at: float) -> None:
        """A majority has answered what was sent at `asked_at`."""
        self._quorum_at = max(self._quorum_at, asked_at)
        self.error = None

    def on_refusal(self, refusal: Refusal) -> None:
        """Note what is in the way of the first."""
        self._refusal, self._refused_at = refusal, self._context.now()

    def on_failure(self, error: Exception | None) -> None:
        """Note the error of the first one's attempt; None if it was refused."""
        self.error = error

    def refusal_for(self, entry: QueueEntry) -> Refusal | None:
        """The refusal in the way now, for a waiter that is not the first, which itself knows better."""
        refusal = self._refusal
        if refusal is None or (entry in self and self._waiting[0] is entry):
            return None
        if refusal.expires_in is None:
            return refusal
        return replace(refusal, expires_in=max(refusal.expires_in - (self._context.now() - self._refused_at), 0.0))

    def leave(self, entry: QueueEntry) -> None:
        """Stop waiting here; the caller tells the nodes."""
        position = bisect_left(self._waiting, entry.rank, key=_rank)
        if position == len(self._waiting) or self._waiting[position] is not entry:
            return
        del self._waiting[position]
        self._call(entry)
        if self._waiting:
            self._call(self._waiting[0])
        else:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            self._context.shared.pop(self._keys[0], None)

    async def wait_to_be_first(self, entry: QueueEntry, deadline: float | None) -> bool:
        """Wait until this waiter is the first; return False at the deadline."""
        context = self._context
        while entry in self and self._waiting[0] is not entry:
            called: asyncio.Future[bool] = context.loop.create_future()
            timer = context.resolve_later(called, deadline)
            self._called[entry.id] = called
            try:
                if not await called:
                    return False
            finally:
                del self._called[entry.id]
                if timer is not None:
                    timer.cancel()
        return True

    def __contains__(self, entry: QueueEntry) -> bool:
        position = bisect_left(self._waiting, entry.rank, key=_rank)
        return position < len(self._waiting) and self._waiting[position] is entry

    def _call(self, entry: QueueEntry) -> None:
        if (called := self._called.get(entry.id)) is not None:
            resolve(called, result=True)

    # Heartbeats

    def _send_heartbeats(self) -> None:
        """Tell the nodes that all who wait here are alive."""
        self._schedule_heartbeat(self._entry_ms / 1000 / HEARTBEATS_PER_ENTRY)
        if not self.has_quorum:
            self._ask((), ticket_command(self._keys))
            return
        for start in range(0, len(self._waiting), BATCH):
            self.send_entries(self._waiting[start : start + BATCH])

    def _schedule_heartbeat(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._context.call_later(seconds, self._send_heartbeats)

    def on_first_entry(self, seconds: float) -> None:
        """The first entry on some node is kept for that long.

        If that ends before our next heartbeat, its waiter is dead, and a heartbeat then makes the next one the first.
        """
        if self._timer is not None and self._context.loop.time() + seconds < self._timer.when():
            self._schedule_heartbeat(seconds + self._context.random.uniform(0.01, 0.03))

    def send_entries(self, entries: Sequence[QueueEntry]) -> None:
        """Have the nodes keep these entries, and store those that they lack."""
        pairs = [part for entry in entries for part in (entry.ticket, entry.id)]
        arguments: tuple[bytes | int, ...] = (self._wake_prefix, self._entry_ms, REGISTER_MS, *pairs)
        self._ask(entries, Call("fair_wait", 3, *self._keys, *arguments))

    def _ask(self, entries: Sequence[QueueEntry], command: Command) -> None:
        round_ = HeartbeatRound(
            self._context,
            command,
            is_waiting=lambda: all(entry in self for entry in entries),
            on_first_entry=self.on_first_entry if entries else None,
            on_woken=self._on_woken,
            on_quorum=self.on_quorum,
        )
        round_.ask_all()

    def _on_woken(self, node: int, waiter_id: bytes) -> None:
        """A heartbeat has made that waiter the first on a node, which does not report to us what we did ourselves."""
        self._context.wakeups.remote_change(node, self._wake_prefix + waiter_id)


def ticket_command(keys: tuple[bytes, bytes, bytes]) -> Command:
    """Return the command for a ticket: larger than all that a node has issued or keeps an entry for."""
    queue, _, register = keys
    return Call("fair_ticket", 2, register, queue, REGISTER_MS)


class TicketRound(Round):
    """Draw a ticket from a majority."""

    elects = True
    operation = "queue"

    def __init__(self, context: Context, command: Command, timeout: float) -> None:
        super().__init__(context, command, timeout)
        self.ticket = 0

    def read(self, node: int, reply: object) -> bool:  # noqa: ARG002 - Round's signature
        if type(reply) is not int:
            raise TypeError("a ticket is an integer")
        self._require_credible(reply, "ticket")
        if not self._decided:
            self.ticket = max(self.ticket, reply)
        return True


class HeartbeatRound(Round):
    """Refresh the entries of some waiters; without waiters, only find out whether a majority answers."""

    operation = "queue"

    def __init__(
        self,
        context: Context,
        command: Command,
        *,
        is_waiting: Callable[[], bool],
        on_first_entry: Callable[[float], None] | None,
        on_woken: Callable[[int, bytes], None],
        on_quorum: Callable[[float], None],
    ) -> None:
        super().__init__(context, command, context.node_timeout)
        self._is_waiting = is_waiting
        self._on_first_entry = on_first_entry
        self._on_woken = on_woken
        self._on_quorum = on_quorum

    def read(self, node: int, reply: object) -> bool:
        if type(reply) is bytes:
            self._on_woken(node, reply)
            return True
        if type(reply) is not int:
            return False
        if self._on_first_entry is not None:
            self._on_first_entry(reply / 1000)
        return True

    def _decide(self, verdict: Verdict) -> None:
        super()._decide(verdict)
        if verdict is Verdict.WON:
            self._on_quorum(self.started_at)

    def may_send_again(self, bit: int) -> bool:
        # Not after one of the waiters has left: its entry would come back.
        return bool(self._open & bit) and self._is_waiting()


def _rank(entry: QueueEntry) -> tuple[int, bytes]:
    return entry.rank
