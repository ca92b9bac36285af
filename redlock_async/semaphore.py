"""The counting semaphore."""

from __future__ import annotations

from ._primitive import Primitive
from .lease import Lease


class Semaphore(Primitive[Lease]):
    """At most `permits` holders of one name at the same time.

    Guarantee: while `permits` leases are valid, no other client of the same masters has a valid one. All users of a
    name must give the same number: another one is a ConfigurationError while any slot is held. A lease's fencing token
    orders it among the holders of its own slot.
    What can break it: see `Lease`.
    Cost: one round trip to take a slot, or two when the first that is tried is taken; one to release it. Every attempt
    names all the slots to every node, and one that finds its slot taken makes the node read them all: keep `permits` in
    the tens or low hundreds. Waiters are woken by the release of any slot, and by each renewal of one.
    Cancellation: cancelling `acquire` is prompt and leaves no slot taken on any node.
    """

    __slots__ = ()

    _lease = Lease
