"""Which shard of a Redis or Valkey Cluster owns which slots, as its servers say. No I/O."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import cast
from zlib import crc32

from .keys import SLOTS

LONGEST_HOST = 253
"""Maximum characters of a host name."""

MOVED = re.compile(r"(?P<kind>MOVED|ASK) \d+ (?P<host>\S*):(?P<port>\d{1,5})")
"""A server's reply for a slot of another shard: for good, or only for this command, while the slot is migrated."""

ELSEWHERE = ("MOVED ", "ASK ", "TRYAGAIN", "CLUSTERDOWN", "CROSSSLOT")
"""The beginnings of the replies for a slot that the server does not serve, or not now."""

Range = tuple[int, int]
"""The first slot and the last one."""


@dataclass(frozen=True, slots=True)
class Shard:
    """One shard of a cluster: its primary and its slots."""

    id: str
    """The primary's id in the cluster. A promoted replica has another one."""
    host: str
    port: int
    ranges: tuple[Range, ...]
    """The slots it owns, in order."""

    @property
    def home(self) -> int:
        """The slot in which the shard keeps its own records."""
        return _home(self.id, self.ranges)


@lru_cache(maxsize=1024)
def _home(shard_id: str, ranges: tuple[Range, ...]) -> int:
    """Return the same slot to every client, and after most migrations: the first in an order of the shard's own.

    It only changes if that slot is migrated, or if the shard gets one that comes before it.
    """
    owned = (slot for first, last in ranges for slot in range(first, last + 1))
    return min(owned, key=lambda slot: (crc32(f"{shard_id} {slot}".encode()), slot))


@dataclass(frozen=True, slots=True)
class Redirection:
    """Another server to which a command is to be sent."""

    host: str
    """Empty if it is the host that said so."""
    port: int
    asking: bool
    """Whether this is only about this command, which must follow `ASKING`."""


def redirection(message: str) -> Redirection | None:
    """Parse a server's reply MOVED or ASK; return None for any other."""
    found = MOVED.match(message)
    if found is None:
        return None
    return Redirection(found["host"].strip("[]"), int(found["port"]), found["kind"] == "ASK")


def parse_slots(reply: object, host: str) -> tuple[Shard, ...]:
    """Return the shards in the reply to CLUSTER SLOTS of a server at that host; raise TypeError or ValueError."""
    ranges: dict[tuple[str, str, int], list[Range]] = {}
    for first, last, primary, *_ in cast("Sequence[tuple[int, int, tuple[bytes | None, int, bytes]]]", reply):
        address, port, name = primary[:3]
        if not (type(first) is type(last) is type(port) is int and type(name) is bytes):
            raise TypeError("numbers and an id are needed")
        if not (0 <= first <= last < SLOTS and 0 < port < 2**16):
            raise ValueError("a slot or a port is out of range")
        # Servers that do not know their own address, or only their name, say nothing, or a question mark.
        known = address.decode("ascii") if type(address) is bytes and address not in {b"", b"?"} else host
        if not (0 < len(known) <= LONGEST_HOST and known.isprintable()):
            raise ValueError("not a host")
        ranges.setdefault((name.decode("ascii"), known, port), []).append((first, last))
    shards = [Shard(name, known, port, tuple(sorted(owned))) for (name, known, port), owned in ranges.items()]
    taken = sorted(each for shard in shards for each in shard.ranges)
    if any(one[1] >= other[0] for one, other in pairwise(taken)):
        raise ValueError("a slot has two owners")
    return tuple(sorted(shards, key=lambda shard: shard.ranges))


def slots_in(text: str) -> tuple[Range, ...]:
    """Parse ranges as a node stores them: `0-5460,5462-5462`."""
    pairs = [each.partition("-") for each in text.split(",") if each]
    return tuple((int(first), int(last)) for first, _, last in pairs)


def contains(ranges: Iterable[Range], slot: int) -> bool:
    """Whether the slot is in one of the ranges."""
    return any(first <= slot <= last for first, last in ranges)


def shared(some: Iterable[Sequence[Range]], others: Iterable[Sequence[Range]]) -> str:
    """Return the slots that are in some of the first ranges and in some of the others, as a node stores them."""
    one, other = (sorted(each for ranges in given for each in ranges) for given in (some, others))
    common = [(max(a, c), min(b, d)) for a, b in one for c, d in other if max(a, c) <= min(b, d)]
    return ",".join(f"{first}-{last}" for first, last in common)
