"""What is claimed, and in which words the nodes are asked for it: all that makes a kind of lock.

Attempts, quorum, validity, fencing, waiting, renewal, loss, cancellation and errors are the same for all kinds, which
they know only through this. No I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, Self

from ._round import Voters
from ._scripts import Command

HINT_MS = 3000
"""How long a hint lasts that is not kept alive. One who waits leaves it on the nodes to hold back others who would pass
it for ever; so long do they wait behind one that died waiting."""

REFRESH = 1.0
"""Seconds after which whoever has left a hint asks again, at the latest, to keep it alive."""


@dataclass(frozen=True, slots=True)
class Held:
    """A refusal: who holds the lock on that node, and for how long at most (None where that was not said)."""

    token: bytes | None
    expires_in: float | None
    ahead: ClassVar[bool] = False
    """Whether that is not a holder, but one who waits and comes first."""

    def __post_init__(self) -> None:
        if self.token is not None and type(self.token) is not bytes:
            raise TypeError

    @property
    def ends_in(self) -> float | None:
        """Seconds until it has run out, unless it is renewed, where `expires_in` only says when to ask again."""
        return self.expires_in


class Ahead(Held):
    """A refusal: nobody holds it there, but somebody waits and comes first."""

    __slots__ = ()

    ahead: ClassVar[bool] = True


class Ground(Voters, Protocol):
    """What a claim may use of the client that asks."""

    wall_us: Callable[[], int]
    node_timeout: float

    def fresh_token(self) -> bytes:
        """A value for the nodes that nobody had before."""
        ...


class Claim:
    """One kind of lock on some names."""

    __slots__ = ()

    kind: ClassVar[str]
    """How the nodes' keys, detached leases and operators call it."""

    exclusive: bool = True
    """Whether the holder keeps the others of its process waiting, or passes its turn on once it has its lease."""

    shared: ClassVar[bool] = False
    """Whether any number may hold it together: then those of one process need not ask one after the other."""

    @property
    def queues(self) -> bool:
        """Of one that is shared: whether it waits behind those of its process who were refused."""
        return True

    lost_races: bool = False
    """Whether what was asked for last was lost to others, though there is more of it: other slots."""

    names: tuple[str, ...]
    turns: tuple[bytes, ...]
    """The queues of this process that a task must head before it asks the nodes, in the order to enter them."""
    watched: tuple[bytes, ...]
    """The keys whose change may mean that the lock is free."""

    alarms: tuple[bytes, ...] = ()
    """Of one that is shared: the keys whose change puts all its holders in doubt."""
    fenced: bool
    slots: tuple[int, ...] = ()
    """Of a semaphore: which of its slots."""
    preference: int
    """Decides which node contenders for this lock try first when they race."""

    @property
    def probes(self) -> bool:
        """Whether, when others contend as well, one node may be asked before the rest."""
        return True

    def begin(self, ground: Ground) -> Self:  # noqa: ARG002 - most need nothing
        """The claim of one acquire; one that learns from refusals returns a copy that may."""
        return self

    prepares: ClassVar[bool] = False
    """Whether `prepare` is to be awaited before each attempt."""

    async def prepare(self, ground: Ground, deadline: float | None) -> bool:  # noqa: ARG002 - for those that prepare
        """Whatever must be known or waited for before an attempt; may talk to the nodes. False: the time was up."""
        return True

    def in_front(self) -> Held | None:
        """Who is in the way, as of now, where others of this process have been told since it asked itself."""
        return None

    races: ClassVar[bool] = True
    """Whether contenders may all win alike, and must avoid one another; False where the nodes put them in order."""

    def held_by(self, token: bytes) -> tuple[bytes, ...]:
        """Under which keys a lease is found: when a node reports one changed, the lease is looked at at once."""
        raise NotImplementedError

    @property
    def written(self) -> tuple[bytes, ...]:
        """The keys that an attempt sets where it is granted: until it gives that back, they may stop others."""
        return self.held_by(b"")

    # Words for the nodes

    def acquire(self, token: bytes, ttl_ms: int, candidate: int) -> Command:
        """Take it if it is free."""
        raise NotImplementedError

    def contend(self, token: bytes, ttl_ms: int, candidate: int) -> Command:
        """Take it if it is free, or else learn who holds it and be told when that ends."""
        raise NotImplementedError

    def release(self, token: bytes) -> Command:
        """Delete what is ours."""
        raise NotImplementedError

    def retain(self, token: bytes, ms: int) -> Command:
        """Let what is ours run out after that many ms."""
        raise NotImplementedError

    def secure(self, token: bytes, fence: int | None, ttl_ms: int) -> Command:
        """Raise the fence registers where the lock is ours; with a ttl, set again what a node has lost."""
        raise NotImplementedError

    @classmethod
    def extend(cls, held: Sequence[tuple[Claim, bytes, int]]) -> Command:
        """Lengthen many locks of this kind in one command: (what, token, ms; 0 ms only looks).

        The reply is a list with `width` states for each: 1 ours, 0 missing, -1 somebody else's.
        """
        raise NotImplementedError

    def details(self) -> dict[str, object]:
        """What besides names and kind must be known to claim the same elsewhere (JSON), for detached leases."""
        return {}

    def withdraw(self) -> Command | None:
        """What to send to every node when an acquire ends, with the lock or without."""
        return None

    def changed(self, key: bytes) -> None:
        """One of the watched keys was changed, by whomever: perhaps what it stands for is free now."""

    # What they answer

    def refusal(self, reply: object) -> Held:
        """Who holds the lock there, by a reply that is no grant."""
        raise NotImplementedError

    @property
    def width(self) -> int:
        """How many states the reply of `extend` has for this one, and what that of `release` is if all was ours."""
        return 1

    def again(self, refusals: Mapping[int, Held], spare: int) -> bool:  # noqa: ARG002 - for those that learn
        """Learn from an attempt that was refused; True when another, differently put, is worth it at once.

        `spare` is how many nodes more than a quorum there are.
        """
        return False
