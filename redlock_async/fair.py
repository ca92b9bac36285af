"""The lock that is given in the order in which it was asked for."""

from __future__ import annotations

from ._primitive import Primitive
from .lease import Lease


class FairLock(Primitive[Lease]):
    """Mutual exclusion on one name, first come, first served among the tasks of all processes.

    Guarantee: as `Lock`'s, with which it excludes itself on the same name; and whoever is in the queue on a majority of
    the masters is served before everybody who begins to queue after that. Queueing takes two round trips.
    What can break it: see `Lease`. The order is kept among fair locks: a plain lock on the same name, of this library
    or another, does not queue and may get in between. A waiter whose event loop or network stands still for longer than
    its place is kept (1.5 s, or six node timeouts if that is more) is overtaken meanwhile, and one that dies at the
    head costs the others as much.
    Cost: one round trip when it is free and nobody waits, as the plain lock. Otherwise a hand-over takes two, and costs
    a node some five to eight commands, however long the queue is: only its head is told of a release, and only the next
    of an entry. Waiting costs a node two to four commands a second for each process, and one or two more for each
    hundred waiters in one.
    Cancellation: cancelling `acquire` is prompt, and leaves neither a key nor a place in the queue behind.
    """

    __slots__ = ()

    _lease = Lease
