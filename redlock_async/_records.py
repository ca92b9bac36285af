"""What the nodes' answers about a name amount to: who holds it, and what is only left over. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from ._contest import owner_of
from ._readwrite import READERS

Kind = Literal["lock", "fair", "read", "semaphore", "latch"]
State = Literal["held", "partial", "orphan", "waiting", "open", "closed"]


@dataclass(frozen=True, slots=True)
class LockRecord:
    """One holder of a name, or one latch, as the nodes tell it."""

    name: str
    kind: Kind
    """A writer's key is a plain lock's, and so is that of a lock on several names."""
    state: State
    """'held': a quorum names that holder. 'partial': fewer do, as while it is being acquired, or where masters are
    silent. 'orphan': fewer did, twice, and the silent ones cannot make up for it: it is nobody's, and runs out.
    'waiting': nobody holds it, and somebody waits. A latch is 'open' or 'closed'."""
    votes: int
    """Nodes that name this holder; of a latch, those that know it."""
    nodes: int
    needed: int
    owner: str | None = None
    """The holder's owner label; None for a client of another library."""
    token: str | None = None
    remaining: float | None = None
    """Seconds until it runs out on the last node it needs, if it is not renewed; infinite for a key without expiry."""
    fence: int | None = None
    """What a quorum's fence registers hold: the holder's fencing token, unless it has none, or another name that
    shares the register was locked since."""
    waiting: tuple[str | None, ...] = ()
    """Owner labels of those the nodes know to wait: in a fair lock's queue, in order, or a writer for readers. Who
    waits for another kind leaves no trace there."""
    names: tuple[str, ...] = ()
    """Of those that were listed, all the names that this holder took at once."""
    slot: int | None = None
    """Of a semaphore."""
    permits: int | None = None
    """Of a semaphore; None if no node remembers it."""
    missing: int | None = None
    """Events until a latch opens, as the nodes have counted them."""
    on: tuple[str, ...] = ()
    """Labels of the nodes that name this holder."""

    @property
    def held(self) -> bool:
        """Whether a quorum names that holder."""
        return self.state == "held"


@dataclass(frozen=True, slots=True)
class Seen:
    """What one node says of a lock's key."""

    value: bytes | None
    """None: the key is of another type."""
    left: float
    """Seconds until it expires; infinite: never."""
    fence: int | None


@dataclass(frozen=True, slots=True)
class Context:
    """What one node knows of a name besides who holds the lock."""

    readers: Mapping[bytes, float] = field(default_factory=dict)
    writer: bytes | None = None
    wants_many: bytes | None = None
    """Who waits for several slots of a semaphore, behind how many and a colon."""
    queue: Sequence[bytes] = ()
    fair: bool = False
    permits: int | None = None
    latch: tuple[int, int, bool, float] | None = None
    """Its count, how many events were counted, whether it is open, and for how long it is kept."""


@dataclass(frozen=True, slots=True)
class Panel:
    """The nodes that answered, by label, and how many there are."""

    labels: Sequence[str]
    nodes: int
    needed: int

    def record(self, name: str, kind: Kind, seen: Mapping[int, float]) -> LockRecord:
        """One holder, whom those of the nodes name for so long."""
        times = sorted(seen.values(), reverse=True)
        return LockRecord(
            name=name,
            kind=kind,
            state="held" if len(seen) >= self.needed else "partial",
            votes=len(seen),
            nodes=self.nodes,
            needed=self.needed,
            remaining=times[min(len(times), self.needed) - 1],
            names=(name,),
            on=tuple(self.labels[node] for node in sorted(seen)),
        )

    def holders(self, name: str, kind: Kind, answers: Sequence[Seen | None]) -> list[LockRecord]:
        """Each value that any node has for that key, readers aside."""
        found = []
        for value in _distinct(each.value for each in answers if each is not None and each.value is not None):
            if value == READERS:
                continue
            seen = {node: each for node, each in enumerate(answers) if each is not None and each.value == value}
            record = self.record(name, kind, {node: each.left for node, each in seen.items()})
            found.append(self._signed(record, value, [each.fence for each in seen.values()]))
        return found

    def readers(self, name: str, contexts: Sequence[Context], answers: Sequence[Seen | None]) -> list[LockRecord]:
        """Each reader that any node knows."""
        found = []
        for token in _distinct(token for each in contexts for token in each.readers):
            seen = {node: each.readers[token] for node, each in enumerate(contexts) if token in each.readers}
            fences = [answer.fence if (answer := answers[node]) else None for node in seen]
            found.append(self._signed(self.record(name, "read", seen), token, fences))
        return found

    def _signed(self, record: LockRecord, token: bytes, fences: Sequence[int | None]) -> LockRecord:
        # A token is stored by a quorum of those that name its holder, and where one of them has more, another name has
        # raised it there, or it is a straggler's own.
        known = sorted((fence for fence in fences if fence is not None), reverse=True)
        fence = known[self.needed - 1] if len(known) >= self.needed else None
        return replace(record, owner=owner_of(token), token=token.decode("utf-8", "replace"), fence=fence)

    def latch(self, name: str, contexts: Sequence[Context]) -> list[LockRecord]:
        """The latch of that name, if there is one."""
        seen = {node: each.latch for node, each in enumerate(contexts) if each.latch is not None}
        if not seen:
            return []
        count = max(of for of, *_ in seen.values())
        opened = any(is_open or counted >= count for _, counted, is_open, _ in seen.values())
        missing = 0 if opened else count - max(counted for _, counted, *_ in seen.values())
        record = self.record(name, "latch", {node: left for node, (*_, left) in seen.items()})
        return [replace(record, state="open" if opened else "closed", missing=missing)]

    def of_name(self, name: str, answers: Sequence[Seen | None], contexts: Sequence[Context]) -> list[LockRecord]:
        """All holders of a name but those of a semaphore's slots, and its latch."""
        fair = any(each.fair for each in contexts)
        queue = _distinct(waiter for each in contexts for waiter in each.queue)
        writers = _distinct(each.writer for each in contexts if each.writer is not None)
        waiting = tuple(map(owner_of, (*queue, *writers)))
        found = self.holders(name, "fair" if fair else "lock", answers) + self.readers(name, contexts, answers)
        if not found and waiting:
            empty = LockRecord(name, "fair" if queue else "lock", "waiting", 0, self.nodes, self.needed, names=(name,))
            found = [empty]
        return [replace(each, waiting=waiting) for each in found] + self.latch(name, contexts)


def joined(records: Sequence[LockRecord]) -> list[LockRecord]:
    """The same, with all the names that one token holds in each of its records."""
    names: dict[str, list[str]] = {}
    for each in records:
        if each.token is not None and each.kind == "lock":
            names.setdefault(each.token, []).append(each.name)
    return [
        replace(each, names=tuple(names[each.token])) if each.token is not None and each.kind == "lock" else each
        for each in records
    ]


def confirmed(first: Sequence[LockRecord], again: Sequence[LockRecord], silent: int) -> list[LockRecord]:
    """What was seen again, and of the holders on a minority those called orphans that were there both times."""
    before = {key(each) for each in first if each.state == "partial"}
    return [
        replace(each, state="orphan")
        if each.state == "partial" and key(each) in before and each.votes + silent < each.needed
        else each
        for each in again
    ]


def key(record: LockRecord) -> tuple[object, ...]:
    """Tells two holders apart."""
    return record.name, record.kind, record.slot, record.token


def _distinct(values: Iterable[bytes]) -> list[bytes]:
    """Each once, in the order of their first appearance."""
    return list(dict.fromkeys(values))
