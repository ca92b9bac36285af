"""What makes a kind of lock: the commands that it sends and what the nodes' replies mean.

Attempts, quorum, validity, fencing, waiting, renewal, loss, cancellation and errors are the same for all kinds. They
know a kind only as a `LockKind`, which never changes, and an `Attempt`, which holds what one acquire learns.

To add a kind of lock, write both in a module of this package (`mutex.py` is the shortest example) and its scripts in
`lua/`. Then give it a class in `locks.py`, methods in `client.py` and `blocking/`, an entry in `client.KINDS` for
detached leases, one in `decorators.FACTORIES`, and one in `_admin.records` if operators should see more than a holder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from redlock_async._rounds.context import Context
from redlock_async._transport.commands import Command

RESERVATION_MS = 3000
"""How long a reservation lasts that is not refreshed. A waiter leaves one on the nodes to hold back clients that would
overtake it forever; if the waiter dies, they wait for that long."""

RESERVATION_REFRESH = 1.0
"""Seconds after which a waiter with a reservation asks again at the latest, to refresh it."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A node's refusal: who holds the lock there, and for how long at most (None if the node does not say)."""

    token: bytes | None
    expires_in: float | None
    ahead: ClassVar[bool] = False
    """Whether the token belongs to a waiter that comes first, not to a holder."""

    def __post_init__(self) -> None:
        if self.token is not None and type(self.token) is not bytes:
            raise TypeError("a holder's token is a string")

    @property
    def ends_in(self) -> float | None:
        """Seconds until the lock expires unless it is renewed; `expires_in` may only say when to ask again."""
        return self.expires_in


class QueuedAhead(Refusal):
    """The lock is free on that node, but another waiter comes first."""

    __slots__ = ()

    ahead: ClassVar[bool] = True


class LockKind:
    """One kind of lock on some names; immutable."""

    __slots__ = ()

    label: ClassVar[str]
    """The name of the kind in keys, events, detached leases and records."""

    stateful: ClassVar[bool] = True
    """Whether each acquire needs an attempt of its own; a kind without state is its own attempt."""

    keeps_local_turn: bool = True
    """Whether other tasks of the process wait for the end of a lease; otherwise only until its acquire is over."""

    shared: ClassVar[bool] = False
    """Whether any number of clients may hold it together, so that tasks of one process need not ask one by one."""

    joins_queue: bool = True
    """For a shared kind: whether it waits behind tasks of its process that were refused."""

    unordered: ClassVar[bool] = True
    """Whether contenders are all equal and must avoid splitting the votes; False if the nodes put them in order."""

    names: tuple[str, ...]
    local_queue_keys: tuple[bytes, ...]
    """Names of the queues within this process that a task must head before it asks the nodes, in the order in which to
    enter them. They are not sent to the nodes."""
    watched_keys: tuple[bytes, ...]
    """The keys whose change may mean that the lock is free."""
    revocation_keys: tuple[bytes, ...] = ()
    """For a shared kind: the keys whose change puts all holders in doubt."""
    fenced: bool
    slots: tuple[int, ...] = ()
    """For a semaphore: which of its slots."""
    probe_hash: int
    """Decides which node contenders for this lock ask first when they race."""

    def start(self, context: Context) -> Attempt:
        """Begin one acquire."""
        raise NotImplementedError

    def held_by(self, token: bytes) -> tuple[bytes, ...]:
        """The keys under which a lease is registered: when one of them changes, the lease is checked at once."""
        raise NotImplementedError

    @property
    def written_keys(self) -> tuple[bytes, ...]:
        """The keys that an attempt sets where it is granted; until it releases them, they may stop others."""
        return self.held_by(b"")

    @property
    def state_count(self) -> int:
        """How many states the reply to `extend` has for this lock; also the reply to `release` if all was ours."""
        return 1

    def release(self, token: bytes) -> Command:
        """Delete what is ours."""
        raise NotImplementedError

    def release_after(self, token: bytes, ms: int) -> Command:
        """Let what is ours expire after that many ms."""
        raise NotImplementedError

    def reassert(self, token: bytes, fence: int | None, ttl_ms: int) -> Command:
        """Raise the fence registers where the lock is ours; with a ttl, set the lock again on nodes that lost it."""
        raise NotImplementedError

    @classmethod
    def extend(cls, held: Sequence[tuple[LockKind, bytes, int]]) -> Command:
        """Extend many locks of this kind in one command: (kind, token, ms); 0 ms only checks.

        The reply lists `state_count` states for each: 1 ours, 0 missing, -1 held by another client.
        """
        raise NotImplementedError

    def details(self) -> dict[str, object]:
        """The fields that a detached lease must store (as JSON) besides names and label to become this kind again."""
        return {}


class Attempt:
    """The state of one acquire, over all its tries, and the commands that follow from it.

    The defaults suit a kind that learns nothing.
    """

    __slots__ = ()

    watched_keys: tuple[bytes, ...]
    """The keys whose change may mean that the lock is free."""

    lost_races: bool = False
    """Whether the last attempt lost slots to others although more were free."""

    needs_prepare: ClassVar[bool] = False
    """Whether `prepare` must be awaited before each attempt."""

    async def prepare(self, deadline: float | None) -> bool:  # noqa: ARG002 - for kinds that prepare
        """Find out or wait for what an attempt needs, perhaps from the nodes; return False at the deadline."""
        return True

    @property
    def may_probe(self) -> bool:
        """Whether one node may be asked before the rest when others contend as well."""
        return True

    def first_command(self, token: bytes, ttl_ms: int, candidate: int) -> Command:
        """Return the command of the first try: take the lock if it is free."""
        raise NotImplementedError

    def retry_command(self, token: bytes, ttl_ms: int, candidate: int) -> Command:
        """Return the command of later tries: also learn who holds the lock, and have the node report when that ends."""
        raise NotImplementedError

    def refusal(self, reply: object) -> Refusal:
        """Parse a reply that is no grant. Changes nothing."""
        raise NotImplementedError

    def on_refusal(self, refusal: Refusal) -> None:
        """Learn from one node's refusal."""

    def retry_now(self, refusals: Mapping[int, Refusal], spare: int) -> bool:  # noqa: ARG002 - for kinds that learn
        """Learn from a refused attempt; return whether another one, asked differently, is worth it at once.

        `spare` is how many nodes there are beyond a quorum.
        """
        return False

    def on_failure(self, error: Exception | None) -> None:
        """Note the error of an attempt, or None if it was refused, for tasks that wait behind this one."""

    def key_changed(self, key: bytes) -> None:
        """Note that a watched key changed: the lock or slot that it stands for may be free."""

    def blocking_refusal(self) -> Refusal | None:
        """The refusal that is in the way now, if another task of this process knows better than the last attempt."""
        return None

    def blocking_error(self) -> Exception | None:
        """The error of the last attempt of the task of this process that asks for this one as well."""
        return None

    def granted_kind(self) -> LockKind:
        """Return the kind that is held if the last try succeeds; for a semaphore, with the slots that it asked for."""
        raise NotImplementedError

    def cleanup(self) -> Command | None:
        """End the acquire, with the lock or without; return what every node must be sent, if anything."""
        return None
