"""The fence of a lease, and what the register of a resource says about it. No I/O.

A resource has a register for each name: the largest token it has seen. A transaction first raises the register to its
own token, or reads a larger one: then a later holder has been there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol

from redlock_async._rules.fencing import LIMIT
from redlock_async._rules.keys import Keys
from redlock_async.errors import ConfigurationError, StaleFence, short_repr


@dataclass(frozen=True, slots=True, order=True)
class Fence:
    """A lock's name and the fencing token of one holder, to be sent to where the data is written.

    Raises ConfigurationError for a name that no lock can have, or unless 0 < token < 2^53.
    """

    name: str
    token: int

    def __post_init__(self) -> None:
        _KEYS.lock(self.name)
        if isinstance(self.token, bool) or not isinstance(self.token, int) or not 0 < self.token < LIMIT:
            raise ConfigurationError(
                f"the fencing token of {short_repr(self.name)} must be a whole number with 0 < token < 2^53, got "
                f"{short_repr(self.token)}"
            )

    def check(self, latest: int) -> None:
        """Raise StaleFence if that is the token of a later holder."""
        if latest > self.token:
            raise StaleFence(
                f"the fence of {short_repr(self.name)} is stale: its token is {self.token}, and a holder with the "
                f"later token {latest} has been here. Leave the transaction, so that it is rolled back, and acquire "
                "the lock again",
                names=(self.name,),
                token=self.token,
                latest=latest,
            )


_KEYS = Keys("")


class FencedLease(Protocol):
    """What `fence` reads of a lease, of either API."""

    @property
    def names(self) -> tuple[str, ...]: ...
    @property
    def fencing_token(self) -> int | None: ...
    @property
    def slots(self) -> tuple[int, ...]: ...


Holder = FencedLease | Fence
"""A name and a token, with which a write can be fenced."""


def fences_of(*holders: Holder) -> list[Fence]:
    """Return the fences of leases: one for each name, or for each slot of a semaphore, in the order of the names.

    Every transaction locks the registers in this order, so two transactions with several names cannot deadlock. Raises
    ConfigurationError for a lease without a fencing token.
    """
    return sorted({fence for holder in holders for fence in _fences(holder)})


def _fences(holder: Holder) -> Iterator[Fence]:
    if isinstance(holder, Fence):
        yield holder
        return
    try:
        token, names, slots = holder.fencing_token, holder.names, holder.slots
    except AttributeError:
        raise ConfigurationError(
            f"a write is fenced with a Lease, or with Fence(name, token), got {short_repr(holder)}"
        ) from None
    if token is None:
        raise ConfigurationError(
            f"the lease on {', '.join(map(short_repr, names))} has no fencing token, because its lock or client was "
            "created with fencing=False. Remove that option"
        )
    for name in names:
        # Each slot has a holder, and increasing tokens, of its own.
        yield from (Fence(f"{name}[{slot}]", token) for slot in slots) if slots else (Fence(name, token),)


@dataclass(slots=True)
class Rehearsal:
    """A test of code that fences: how often it did so, and whether its transactions are made read-only afterwards."""

    read_only: bool = False
    checks: int = 0
    transactions: int = 0
    """How many of the checks were made in a transaction of a database."""


rehearsal: ContextVar[Rehearsal | None] = ContextVar("redlock_fence_rehearsal", default=None)
"""Set by `redlock_async.testing.zombie` alone."""


def must_be_read_only(*, transaction: bool = True) -> bool:
    """Count a check that was passed; return whether the rest of its transaction must not write."""
    if (test := rehearsal.get()) is None:
        return False
    test.checks += 1
    test.transactions += transaction
    return test.read_only and transaction
