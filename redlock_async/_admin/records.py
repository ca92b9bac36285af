"""Records of locks from the nodes' replies: which holders have a quorum, and which are leftovers. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from redlock_async._kinds.rwlock import READERS
from redlock_async._rules.keys import LONGEST_TOKEN
from redlock_async._rules.token import is_expired, owner_of
from redlock_async.errors import label_of

Kind = Literal["lock", "fair", "read", "semaphore", "latch"]
State = Literal["held", "expired", "partial", "orphan", "waiting", "open", "closed", "malformed"]


@dataclass(frozen=True, slots=True)
class LockRecord:
    """One holder of a name, or one latch, as reported by the nodes."""

    name: str
    kind: Kind
    """'lock' also for a writer and for a lock on several names, whose keys look like a plain lock's."""
    state: State
    """'held': a quorum reports the holder. 'expired': a quorum reports a holder that crashed or lost its lease, and the
    name stays locked for the rest of its `takeover_delay`. 'partial': fewer nodes report it, for example during an
    acquire, or while nodes do not reply. 'orphan': a leftover on too few nodes to be a lock, checked twice; it expires.
    'waiting': not held, but a client waits for it. 'open', 'closed': a latch. 'malformed': a key of that name has a
    type or content that the library does not store; delete it."""
    votes: int
    """How many nodes report this holder or latch."""
    node_count: int
    quorum: int
    owner: str | None = None
    """The holder's owner label; None for a client of another library."""
    token: str | None = None
    remaining: float | None = None
    """Seconds until too few nodes for a quorum report it, if it is not renewed; infinite for a key without expiry."""
    fence: int | None = None
    """The value that a quorum's fence registers have reached: the holder's fencing token, unless it has none or another
    name with the same register was locked later."""
    waiting: tuple[str | None, ...] = ()
    """Owner labels of known waiters: in a fair lock's queue, in order, or a writer that waits for readers. Waiters for
    other kinds of lock leave no trace on the nodes."""
    names: tuple[str, ...] = ()
    """All listed names that this holder acquired together."""
    slot: int | None = None
    """The slot of a semaphore."""
    permits: int | None = None
    """The number of permits of a semaphore; None if no node has stored it."""
    events_remaining: int | None = None
    """How many events a latch still needs, according to the nodes."""
    node_labels: tuple[str, ...] = ()
    """Labels of the nodes that report this holder."""

    @property
    def held(self) -> bool:
        """Whether a quorum reports this holder."""
        return self.state == "held"


@dataclass(frozen=True, slots=True)
class StoredKey:
    """The key of a lock on one node."""

    value: bytes | None
    """None if the key is of another type."""
    left: float
    """Seconds until it expires; infinite without expiry."""
    fence: int | None
    """The value of its fence register."""


@dataclass(frozen=True, slots=True)
class NameState:
    """The state of a name on one node, apart from the lock's key."""

    readers: Mapping[bytes, float] = field(default_factory=dict)
    writer: bytes | None = None
    wants_many: bytes | None = None
    """The reservation of a waiter for several slots of a semaphore: how many, a colon, its token."""
    queue: Sequence[bytes] = ()
    fair: bool = False
    permits: int | None = None
    latch: tuple[int, int, bool, float] | None = None
    """Its count, the events counted so far, whether it is open, and the seconds until it expires."""
    malformed: bool = False
    """Whether a key of that name has a type or content that the library does not store; then all else is unknown."""


@dataclass(frozen=True, slots=True)
class QuorumView:
    """Combines the replies of several nodes into records."""

    node_labels: Sequence[str]
    """The nodes that replied; replies are passed in this order."""
    nodes: int
    """How many nodes are configured."""
    quorum: int

    def record(self, name: str, kind: Kind, seen: Mapping[int, float]) -> LockRecord:
        """Return the record of a holder or latch, given the seconds it has left on each node that reports it."""
        times = sorted(seen.values(), reverse=True)
        return LockRecord(
            name=name,
            kind=kind,
            state="held" if len(seen) >= self.quorum else "partial",
            votes=len(seen),
            node_count=self.nodes,
            quorum=self.quorum,
            remaining=times[min(len(times), self.quorum) - 1],
            names=(name,),
            node_labels=tuple(self.node_labels[node] for node in sorted(seen)),
        )

    def holders(self, name: str, kind: Kind, stored: Sequence[StoredKey | None]) -> list[LockRecord]:
        """Return a record for each value that any node has stored in the lock's key, except the readers' value."""
        found = []
        values = _distinct(key.value for key in stored if key is not None and key.value is not None)
        for value in values:
            if value == READERS:
                continue
            seen = {node: key for node, key in enumerate(stored) if key is not None and key.value == value}
            record = self.record(name, kind, {node: key.left for node, key in seen.items()})
            found.append(self._signed(record, value, [key.fence for key in seen.values()]))
        return found

    def readers(self, name: str, states: Sequence[NameState], stored: Sequence[StoredKey | None]) -> list[LockRecord]:
        """Return a record for each reader that any node reports."""
        found = []
        for token in _distinct(token for state in states for token in state.readers):
            seen = {node: state.readers[token] for node, state in enumerate(states) if token in state.readers}
            fences = [key.fence if (key := stored[node]) else None for node in seen]
            found.append(self._signed(self.record(name, "read", seen), token, fences))
        return found

    def _signed(self, record: LockRecord, token: bytes, fences: Sequence[int | None]) -> LockRecord:
        # A quorum of the nodes that report a holder stores its fencing token. A larger value on one of them is another
        # name's, or the straggler's own.
        known = sorted((fence for fence in fences if fence is not None), reverse=True)
        fence = known[self.quorum - 1] if len(known) >= self.quorum else None
        state: State = record.state
        if state == "held" and is_expired(token, record.remaining):
            state = "expired"
        return replace(record, state=state, owner=owner_of(token), token=label_of(token, LONGEST_TOKEN), fence=fence)

    def latch(self, name: str, states: Sequence[NameState]) -> list[LockRecord]:
        """Return a record of the latch of that name, if there is one."""
        seen = {node: state.latch for node, state in enumerate(states) if state.latch is not None}
        if not seen:
            return []
        count = max(expected for expected, *_ in seen.values())
        opened = any(is_open or counted >= count for _, counted, is_open, _ in seen.values())
        remaining = 0 if opened else count - max(counted for _, counted, *_ in seen.values())
        record = self.record(name, "latch", {node: left for node, (*_, left) in seen.items()})
        return [replace(record, state="open" if opened else "closed", events_remaining=remaining)]

    def malformed(self, name: str, nodes: Iterable[int]) -> LockRecord:
        """Return a record of a name with a malformed key on those nodes."""
        labels = tuple(self.node_labels[node] for node in nodes)
        return LockRecord(
            name, "lock", "malformed", len(labels), self.nodes, self.quorum, names=(name,), node_labels=labels
        )

    def of_name(self, name: str, stored: Sequence[StoredKey | None], states: Sequence[NameState]) -> list[LockRecord]:
        """Return the records of a name: its holders (without semaphore slots) and its latch."""
        fair = any(state.fair for state in states)
        queue = _distinct(waiter for state in states for waiter in state.queue)
        writers = _distinct(state.writer for state in states if state.writer is not None)
        waiting = tuple(map(owner_of, (*queue, *writers)))
        found = self.holders(name, "fair" if fair else "lock", stored) + self.readers(name, states, stored)
        if not found and waiting:
            empty = LockRecord(name, "fair" if queue else "lock", "waiting", 0, self.nodes, self.quorum, names=(name,))
            found = [empty]
        malformed = [node for node, state in enumerate(states) if state.malformed]
        found = [replace(record, waiting=waiting) for record in found] + self.latch(name, states)
        return [*found, self.malformed(name, malformed)] if malformed else found


def merge_names(records: Sequence[LockRecord]) -> list[LockRecord]:
    """Return the records with `names` set to all names that are held with the same token."""
    names: dict[str | None, list[str]] = {}
    for record in records:
        if record.token is not None and record.kind == "lock":
            names.setdefault(record.token, []).append(record.name)
    return [
        replace(record, names=tuple(names[record.token])) if record.kind == "lock" and record.token in names else record
        for record in records
    ]


def confirmed(first: Sequence[LockRecord], again: Sequence[LockRecord], silent: int) -> list[LockRecord]:
    """Return the second records; a holder on a minority in both of them is an orphan.

    It is not if the `silent` nodes, which did not reply, could complete its quorum.
    """
    before = {_identity(record) for record in first if record.state == "partial"}
    return [
        replace(record, state="orphan")
        if record.state == "partial" and _identity(record) in before and record.votes + silent < record.quorum
        else record
        for record in again
    ]


def _identity(record: LockRecord) -> tuple[object, ...]:
    """Return what distinguishes a holder from others."""
    return record.name, record.kind, record.slot, record.token


def _distinct(values: Iterable[bytes]) -> list[bytes]:
    """Return the values without repetitions, in order of appearance."""
    return list(dict.fromkeys(values))
