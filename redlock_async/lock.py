"""The lock on one or several names."""

from __future__ import annotations

from ._primitive import Primitive
from .lease import Lease


class Lock(Primitive[Lease]):
    """Mutual exclusion on one name, or on several taken all or none.

    Guarantee: while a lease is valid, no other client of the same masters has one on any of its names.
    What can break it: see `Lease`.
    Cost: one round trip to take it (a second when nodes disagree on the fence, which a restarted one causes once), one
    to release it; waiting costs the nodes next to nothing, however many tasks wait.
    Cancellation: cancelling `acquire` is prompt and leaves no key behind on any node.

    A lock object is cheap, holds no lease, and may be shared by tasks: what belongs to a holder lives on its `Lease`.
    """

    __slots__ = ()

    _lease = Lease
