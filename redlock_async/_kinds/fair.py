"""The fair lock: a ticket from a majority, an entry in the queue on every node, and its commands and replies.

The order is by (ticket, id). A ticket is the largest of a majority's next ones, and a majority stores it together with
the entry, so any waiter that comes after that gets a larger one; and two waiters have the same order on every node that
knows both. An entry stays until its waiter has the lock or leaves, even if nodes grant it votes meanwhile. Where it is
known, no waiter behind it ever gets a vote. Every entry is sent to every node again and again, so the first of all is
the first on a majority, even if messages were lost: no deadlock, unlike with each node's own order of arrival.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from typing import ClassVar, cast

from redlock_async._rounds.context import Context
from redlock_async._rounds.round import until_decided
from redlock_async._rules.keys import Keys
from redlock_async._transport.commands import Call, Command

from .fair_queue import REGISTER_MS, FairWaiters, QueueEntry, TicketRound, ticket_command
from .kind import Attempt, LockKind, QueuedAhead, Refusal
from .mutex import Exclusive, seconds

SHORTEST_ENTRY_TTL = 1.5
"""Seconds an entry in the queue is kept without a heartbeat: what a waiter that dies at its head costs the others."""

TIMEOUTS = 6
"""The same in node timeouts, if those are long: a slow network must not cost a waiter its entry."""


def entry_ttl(node_timeout: float) -> float:
    """Return the seconds for which an entry is kept without a heartbeat."""
    return max(SHORTEST_ENTRY_TTL, TIMEOUTS * node_timeout)


class Fair(Exclusive):
    """One name, first come, first served."""

    __slots__ = ("entry_keys", "entry_ms", "wake_prefix")

    label: ClassVar[str] = "fair"
    unordered: ClassVar[bool] = False

    def __init__(self, keys: Keys, names: Iterable[str], *, fenced: bool, entry: float = SHORTEST_ENTRY_TTL) -> None:
        super().__init__(keys, names, fenced=fenced)
        self.entry_keys = keys.queue(self.names[0])
        self.entry_ms = round(entry * 1000)
        self.wake_prefix = self.entry_keys[0] + b":"
        """The beginning of the key that each waiter reads, to be notified when it is the first."""
        self.local_queue_keys = ()  # the tickets decide which task of this process asks the nodes

    def start(self, context: Context) -> Attempt:
        return FairAttempt(self, context)


class FairAttempt(Attempt):
    """One acquire, with its entry in the queue."""

    __slots__ = ("_context", "_entry", "_id", "_kind", "_may_queue", "_waiters", "watched_keys")

    needs_prepare: ClassVar[bool] = True

    def __init__(self, kind: Fair, context: Context) -> None:
        self._kind = kind
        self._context = context
        self._id = context.fresh_token()
        self._entry: QueueEntry | None = None
        """Its entry in the queue, once it has a ticket."""
        self._waiters: FairWaiters | None = None
        self._may_queue: bool | None = None
        """Whether there is time to queue; None until the first attempt."""
        self.watched_keys = (*kind.keys, kind.wake_prefix + self._id)

    def granted_kind(self) -> LockKind:
        return self._kind

    # Waiting

    async def prepare(self, deadline: float | None) -> bool:
        context, kind = self._context, self._kind
        if self._may_queue is None:
            self._may_queue = deadline is None or deadline > context.now()
            if kind.entry_keys[0] not in context.shared:
                return True  # it may be free, with no waiters: one round trip tells
        if not self._may_queue:
            return True
        if self._waiters is None or self._entry is None:
            self._entry = QueueEntry(await self._draw_ticket(deadline), self._id)
            waiters = FairWaiters(context, kind.entry_keys, kind.wake_prefix, kind.entry_ms)
            self._waiters = cast("FairWaiters", context.shared.setdefault(kind.entry_keys[0], waiters))
            self._waiters.join(self._entry)
        return await self._waiters.wait_to_be_first(self._entry, deadline)

    async def _draw_ticket(self, deadline: float | None) -> int:
        """Return a ticket that is larger than all that a majority stores."""
        context, command = self._context, ticket_command(self._kind.entry_keys)
        round_ = await until_decided(
            context,
            lambda: TicketRound(context, command, context.node_timeout),
            deadline,
            "could not queue for",
            self._kind.names[0],
        )
        return round_.ticket

    def retry_now(self, refusals: Mapping[int, Refusal], spare: int) -> bool:  # noqa: ARG002 - any refusal is enough
        return self._waiters is None and self._may_queue is True

    def on_failure(self, error: Exception | None) -> None:
        if self._waiters is not None:
            self._waiters.on_failure(error)

    def blocking_error(self) -> Exception | None:
        return copy(self._waiters.error) if self._waiters is not None else None

    def blocking_refusal(self) -> Refusal | None:
        if self._waiters is None or self._entry is None:
            return None
        return self._waiters.refusal_for(self._entry)

    def cleanup(self) -> Command | None:
        if self._waiters is None or self._entry is None:
            return None
        self._waiters.leave(self._entry)
        self._waiters = None
        # Also with the lock: a grant alone does not remove the entry, because it may have to be released.
        kind = self._kind
        return Call("fair_leave", 2, *kind.entry_keys[:2], kind.wake_prefix, self._id, kind.entry_ms)

    # Commands and replies

    def first_command(self, token: bytes, ttl_ms: int, candidate: int) -> Command:
        return self.retry_command(token, ttl_ms, candidate)

    def retry_command(self, token: bytes, ttl_ms: int, candidate: int) -> Command:
        kind = self._kind
        # Without its entry if too few nodes reply for it to get the lock: there the entry would only be in the way.
        queued = self._entry is not None and self._waiters is not None and self._waiters.has_quorum
        entry = (self._id, self._entry.ticket) if queued and self._entry is not None else (b"", 0)
        wake_key = (kind.wake_prefix + self._id,) if queued else ()
        keys = (*kind.keys, *kind.entry_keys, *wake_key, *kind.fence_keys)
        arguments = (token, ttl_ms, candidate, kind.wake_prefix, *entry, kind.entry_ms, REGISTER_MS)
        return Call("fair_acquire", len(keys), *keys, *arguments)

    def refusal(self, reply: object) -> Refusal:
        token, ms, ahead = cast("tuple[bytes, int, int]", reply)
        return (QueuedAhead if ahead else Refusal)(token, seconds(ms))

    def on_refusal(self, refusal: Refusal) -> None:
        if self._waiters is not None:
            self._waiters.on_refusal(refusal)
