"""The properties of a lease, which the asyncio API and the blocking one share. They read memory only."""

from __future__ import annotations

from .held_lease import HeldLease


class LeaseState:
    """Read-only properties of a lease."""

    __slots__ = ()

    _held: HeldLease

    @property
    def name(self) -> str:
        """The name that is locked; the first one if there are several."""
        return self._held.kind.names[0]

    @property
    def names(self) -> tuple[str, ...]:
        """All names that are locked."""
        return self._held.kind.names

    @property
    def token(self) -> str:
        """The random value that the nodes store."""
        return self._held.token.decode()

    @property
    def fencing_token(self) -> int | None:
        """A number larger than the token of every earlier holder of the name; None with `fencing=False`."""
        return self._held.fence

    @property
    def slots(self) -> tuple[int, ...]:
        """The slots of a semaphore that this lease holds exclusively, from 0; empty for other kinds of lock."""
        return tuple(sorted(self._held.kind.slots))

    @property
    def valid(self) -> bool:
        """Whether no other client can hold the lock now: compared with the clock, not a flag."""
        return self._held.valid

    @property
    def remaining(self) -> float:
        """Seconds for which the lease stays valid without renewal; never negative."""
        return max(self._held.until - self._held.context.now(), 0.0)

    @property
    def lost(self) -> bool:
        """Whether the lease ended, or is certain to end, without a release. Stays true."""
        return self._held.lost

    @property
    def spare_votes(self) -> int:
        """The number of nodes that can fail now without losing the lock: nodes held beyond the quorum."""
        return self._held.spare_votes
