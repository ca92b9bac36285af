"""What a caller has itself that is in its own way: a wait for oneself has no end, and the error says so.

It decides nothing about locks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol
from weakref import WeakKeyDictionary

from ._claim import Claim
from ._errors import ConfigurationError
from ._holding import Caller, Holding, caller, kind_of
from .events import logger


class Kept(Protocol):
    """What a client keeps."""

    held: dict[bytes, Holding]
    reading: WeakKeyDictionary[Caller, dict[Holding, None]]
    """The leases that others may share, by who has them."""


def shares_of(kept: Kept, claim: Claim, who: Caller | None) -> Iterator[Holding]:
    """The caller's own leases that others may share, on names that are claimed."""
    for holding in kept.reading.get(who, ()) if who is not None else ():
        if holding.claim.watched[0] in claim.watched and holding.valid:
            yield holding


def refuse_to_wait_for_oneself(kept: Kept, claim: Claim) -> None:
    """A ConfigurationError for one who reads a name and wants to have it alone."""
    who = caller()
    holding = next(shares_of(kept, claim, who), None)
    if holding is not None:
        raise ConfigurationError(
            f"this {kind_of(who)} holds a read lease on {holding.shown}, and would wait for itself: a read lease "
            "cannot be upgraded, and whoever does not read() is a writer. Release it first, or take write() from the "
            "start and downgrade()",
            names=claim.names,
        )


def warn_of_waiting_for_oneself(kept: Kept, claim: Claim) -> None:
    """Log it for one who waits without an end, and will be told by no error.

    It is none in itself: somebody else may be about to release that lease.
    """
    others_may_leave = claim.kind == "semaphore" and not claim.exclusive
    if not others_may_leave and (why := advice(kept, claim)):
        logger.warning("waiting without an end for %s, which is held%s", ", ".join(map(repr, claim.names)), why)


def advice(kept: Kept, claim: Claim) -> str:
    """What to add to the error of a wait that is over, when it was for the caller itself."""
    who = caller()
    taken = {key: kept.held[key] for key in claim.watched if key in kept.held}
    own = [holding for holding in taken.values() if holding.belongs_to(who)]
    if not own:
        return ""
    kind, holding = kind_of(who), own[0]
    if claim.kind == "semaphore":
        return f"; this very {kind} holds {len(own)} of its slots"
    where = f", in this very {kind}"
    if claim.kind == holding.claim.kind == "lock":
        if claim.names == holding.claim.names:
            return f"{where}: reentrant=True, given to both locks, lets a {kind} enter again"
        return f"{where}: only a lock on the same names is entered again"
    if claim.kind == "read" and holding.claim.kind == "write":
        return f"{where}: downgrade() turns a write lease into a read lease"
    return where
