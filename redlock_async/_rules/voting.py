"""Which nodes may vote: one rule for restarts, failovers and new clusters. No clock, no I/O, no randomness.

A node that has forgotten a lease could elect a second holder. So a node votes only if no lease that it may have
forgotten can still be valid. A node's word about itself does not prove that: its data may come from an old snapshot
or from a replica, and its clock may have been set. So the nodes remember one another. Each has an id that belongs to
its data (new data has a new id), and notes when it first learned of the id of every other node.

Let S = N - Q: as many nodes may be down at a time. Let M be the largest minority: as many may be wrong. The two differ
only if the quorum is larger than a majority. A node votes if one of these holds:

- **It has voted before.** A client that lets a node vote tells all others that its id was admitted. The word of M + 1
  nodes is enough, because at least one of them is right.
- **It was there at the beginning.** M + 1 nodes say that its id belonged to the cluster when it was founded.
- **Its data is old enough.** M + 1 nodes first learned of its id longer ago than the longest ttl. Every lease that its
  data may lack has expired since then.

A node that votes stays admitted until its id changes. A longer ttl that is used later does not matter: no lease with it
can be older than the node's data.

**Founding.** A client founds a cluster when it has heard from all N nodes and none has ever voted. It has every node
record the ids of all, and they count as founders once all N have done so. A node that is about to vote for another
reason records that first, and then takes part in no founding, even if it gets a new id because its clock was stepped.
So of a cluster in use at most S nodes look unused, and it is not founded again.

**The longest ttl** must be known from S + 1 other nodes that kept their data: Q nodes granted each lease, so at least
one of any S + 1 nodes knows its ttl. If too few can be asked, the node waits for them, or for `LONGEST_TTL`. The
exception: if more than S nodes have never voted (and have heard of one another, so that this is not old news), the
cluster has just been set up, or a majority has lost its data. Then the ttl that is known from the nodes that answer
must do, and S + 1 of the new nodes are admitted together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import cast

from .charter import Charter
from .quorum import minority
from .settings import LONGEST_TTL

FAILOVER_GRACE = 10.0
"""Seconds for which the old primary may continue to grant locks after a failover: servers accept writes
that long without their replicas, if `min-replicas-to-write` is set and `min-replicas-max-lag` has its default."""


class Origin(Enum):
    """Whether a node has voted since it has its data, according to its own record."""

    NONE = ""
    FOUNDING = "founding"  # not yet: it agrees that the cluster is being founded with certain nodes
    FOUNDED = "founded"  # it was there at the founding
    JOINED = "joined"  # it was admitted later


class Standing(Enum):
    """The standing of an id on another node, besides that it exists."""

    KNOWN = "-"
    FOUNDER = "f"
    ADMITTED = "a"


@dataclass(frozen=True, slots=True)
class Heard:
    """A node's record of an id: since when it knows it, and its standing."""

    age: float
    """Seconds, by its own clock."""
    standing: Standing = Standing.KNOWN

    def vouched(self, founder_age: float) -> float:
        """Return for how long the id has existed at least; without end if it may vote, as a founder of that age can."""
        founder = self.standing is Standing.FOUNDER and self.age >= founder_age
        return math.inf if founder or self.standing is Standing.ADMITTED else self.age


@dataclass(frozen=True, slots=True)
class Move:
    """Slots of a cluster that a shard has got from another one, or has given to another one."""

    since: int
    """When that was noticed, in µs by the shard's clock: it identifies the move."""
    age: float
    """Seconds since."""
    slots: tuple[tuple[int, int], ...]
    """The first and the last of each range."""


@dataclass(frozen=True, slots=True)
class Record:
    """A node's record of itself and the others."""

    id: str
    """The id of its data; empty if it has none yet."""
    longest_ttl: float
    """The longest ttl of which it knows, in seconds."""
    origin: Origin = Origin.NONE
    founding: tuple[str, ...] = ()
    """The ids of the nodes with which it agrees to found the cluster."""
    heard: Mapping[str, Heard] = field(default_factory=dict)
    grace: float = 0.0
    """Seconds for which another server may have granted locks in this node's place after its data was copied."""
    charter: Charter | None = None
    """The configuration on which the clients of the namespace agree, if it has been told."""
    stepped: float | None = None
    """By how many seconds its clock was stepped, if it has a new id because of that."""
    slots: tuple[tuple[int, int], ...] = ()
    """The slots that it has noted as its own, if it is a shard of a cluster."""
    arrived: tuple[Move, ...] = ()
    """The slots that came from other shards, which may have lost some of their data before."""
    left: tuple[Move, ...] = ()
    """The slots that other shards own now, and of which it had all data."""

    @property
    def has_voted(self) -> bool:
        """Whether it has voted since it has its data, by its own word."""
        return self.origin in {Origin.FOUNDED, Origin.JOINED}

    @property
    def is_used(self) -> bool:
        """Whether it has voted, by its own word, perhaps with another id before its clock was stepped."""
        return self.has_voted or self.stepped is not None


class Why(Enum):
    """Why a node may not vote."""

    YOUNG = "young"  # it may have forgotten a lease
    NEW_CLUSTER = "new cluster"  # so may have more nodes than may fail
    UNKNOWN_TTL = "unknown ttl"  # too few other nodes can say for how long
    UNHEARD = "unheard"  # nodes that have not answered yet may know other clients
    UNKNOWN_AGE = "unknown age"  # too few nodes know how old its data is


@dataclass(frozen=True, slots=True)
class Ballot:
    """Whether a node may vote; if not, the seconds until it may (without end if unknown), and why."""

    seconds: float = 0.0
    why: Why | None = None
    longest_ttl: float = 0.0

    @property
    def counts(self) -> bool:
        """Whether the node may vote."""
        return self.why is None


MAY_VOTE = Ballot()


def ballots(
    records: Sequence[Record | None],
    quorum: int,
    own_ttl: float,
    *,
    trusted: AbstractSet[str] = frozenset(),
    strict: bool = False,
    drift: float = 0.0,
) -> list[Ballot]:
    """Return for each node whether it may vote; None stands for a node whose record is not known.

    - `own_ttl`: the longest ttl that this client uses.
    - `trusted`: the ids that have voted for this client before.
    - `strict`: having been there at the founding is enough only when the longest ttl has passed since.
    - `drift`: by which part clocks may be fast or slow.
    """
    spare, wrong = len(records) - quorum, minority(len(records))
    heard_ttl = max([own_ttl, *(record.longest_ttl for record in records if record is not None)])
    founder_age = min(heard_ttl, LONGEST_TTL) * (1 + drift) if strict else 0.0
    words = [_words(record, records) for record in records]
    ages = [_age(each, wrong, founder_age) for each in words]
    founders = [sum(word.standing is not Standing.KNOWN for word in each) > wrong for each in words]
    result = [
        MAY_VOTE
        if age == math.inf or (record is not None and record.id in trusted)
        else Ballot(math.inf, Why.UNKNOWN_AGE)
        for record, age in zip(records, ages, strict=True)
    ]
    while True:
        before = sum(ballot.counts for ballot in result)
        for index, (record, age) in enumerate(zip(records, ages, strict=True)):
            if result[index].counts or record is None or age is None:
                continue
            longest = _longest_ttl(index, records, result, quorum)
            together = _new_together(record, records, ages, spare)
            why = Why.YOUNG
            if founders[index]:  # with `strict`, they wait too
                why, longest = Why.NEW_CLUSTER, heard_ttl
            elif longest is None and together is not None and not record.has_voted:
                why, longest = Why.NEW_CLUSTER, heard_ttl
                age = min(age, together)  # noqa: PLW2901 - the group's age instead of its own
            elif longest is None:
                why, longest = Why.UNKNOWN_TTL, LONGEST_TTL
            longest = min(max(longest, own_ttl), LONGEST_TTL)
            left = (longest + record.grace) * (1 + drift) - age
            result[index] = MAY_VOTE if left <= 0 else Ballot(left, why, longest)
        if sum(ballot.counts for ballot in result) == before:
            return result


def with_moved(records: Sequence[Record | None], index: int, move: Move) -> list[Record | None]:
    """Return the records by which it is decided whether a shard votes for slots that came from another one.

    That one may have lost leases shortly before, and may still be quarantined for it. So the data of these slots counts
    as if it were as old as the move is.
    """
    record = cast("Record", records[index])
    name = f"{record.id} {move.since}"
    heard = [
        None
        if each is None or (known := each.heard.get(record.id)) is None
        else {**each.heard, name: Heard(min(known.age, move.age))}
        for each in records
    ]
    told = [
        each if each is None or known is None else replace(each, heard=known)
        for each, known in zip(records, heard, strict=True)
    ]
    own = cast("Record", told[index])
    told[index] = replace(own, id=name, origin=Origin.NONE, grace=FAILOVER_GRACE, stepped=None)
    return told


def _words(record: Record | None, records: Sequence[Record | None]) -> list[Heard]:
    """Return what all nodes say about a node's id."""
    if record is None or not record.id:
        return []
    return [each.heard[record.id] for each in records if each is not None and record.id in each.heard]


def _age(words: Sequence[Heard], wrong: int, founder_age: float) -> float | None:
    """Return for how long so many nodes have known an id that one of them is right; None if fewer know it."""
    ages = sorted((word.vouched(founder_age) for word in words), reverse=True)
    return ages[wrong] if len(ages) > wrong else None


def _new_together(
    record: Record, records: Sequence[Record | None], ages: Sequence[float | None], spare: int
) -> float | None:
    """Return for how long S + 1 nodes have been known, this one among them, that have never voted; None if fewer.

    Then the cluster is new, or a majority has lost its data: so many are admitted together that others can rely on
    them. Each must have heard of the node's id, or what it says may be from before the loss of the node's data.
    """
    new = [
        age or 0.0
        for each, age in zip(records, ages, strict=True)
        if each is not None and not each.has_voted and record.id in each.heard
    ]
    return sorted(new, reverse=True)[spare] if len(new) > spare else None


def _longest_ttl(index: int, records: Sequence[Record | None], result: Sequence[Ballot], quorum: int) -> float | None:
    """Return the longest ttl of the leases that this node may have forgotten; None if too few others know it.

    The others must know the node's id, so their replies are from after the loss of its data.
    """
    own = cast("Record", records[index]).id
    kept = [
        record.longest_ttl
        for other, record in enumerate(records)
        if record is not None and other != index and result[other].counts and own in record.heard
    ]
    # At least this many of the Q nodes that granted a lease are among `kept` and know its ttl. A
    # larger ttl that fewer of them report was not granted to anyone.
    sure = quorum - (len(records) - len(kept))
    return sorted(kept, reverse=True)[sure - 1] if sure > 0 else None
