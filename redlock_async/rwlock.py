"""The read-write lock: many readers, or one writer."""

from __future__ import annotations

from ._engine import Engine
from ._errors import LockLost
from ._holding import Holding, caller
from ._lease import Phase
from ._own import shares_of
from ._primitive import Primitive
from ._quorum import Verdict
from ._readwrite import Read, Write
from ._round import Round
from ._scripts import Command
from ._settings import DEFAULT, Default, Duration
from .lease import Lease


class ReadLock(Primitive[Lease]):
    """A name shared with other readers.

    Guarantee: while a lease is valid, no writer of the name has a valid one: neither `write(name)`, nor the plain lock
    `redlock(name)`, nor any other Redlock client of the same masters. Its fencing token is larger than that of every
    earlier writer and smaller than that of every later one; readers may share one.
    What can break it: see `Lease`. A reader freed with `force_release` learns of it at once, as any holder does; one
    whose keys somebody deletes by other means learns at its next renewal, a third of the ttl later at most.
    Cost: one round trip to take it (a second when nodes disagree on the fence, as they do after several first readers
    at once), one to release it. New readers wait while a writer waits; waiting costs each master a few commands a
    second. A reader that died holds out plain locks for up to half a ttl, and at most a second, longer than its ttl.
    Cancellation: cancelling `acquire` is prompt and leaves nothing behind on any node.
    """

    __slots__ = ()

    _lease = Lease
    _claim: Read

    async def acquire(self, wait: Duration | Default | None = DEFAULT) -> Lease:
        """As for any lock. Whoever reads the name already gets in beside a writer that waits, or both would wait."""
        own = next(shares_of(self._engine(), self._claim, caller()), None)
        return await self._acquire(self._claim if own is None else self._claim.beside(own.token), wait)


class WriteLease(Lease):
    """A writer's lease, which can become a reader's without a gap.

    Guarantee: as `Lease`'s; and between it and the lease that `downgrade` returns no writer has a valid one.
    What can break it: see `Lease`.
    Cost: as `Lease`'s; `downgrade` is one round trip.
    Cancellation: as `Lease`'s; cancelling `downgrade` gives up both, and leaves nothing behind on any node.
    """

    __slots__ = ()

    async def downgrade(self) -> Lease:
        """Let readers in: returns a read lease with the same fence, and this lease is over.

        No writer comes in between. The read lease is the caller's to release, or to enter: `async with read:`. Leaving
        this lease's own block leaves it alone, and what still runs in that block is protected no more. Raises LockLost
        or QuorumUnavailable when no majority could be had; then, and when it is cancelled, nothing is left on any node.
        """
        holding = self._holding
        holding.require_held("downgrade")
        engine = holding.keeper
        assert isinstance(engine, Engine)  # noqa: S101 - the only keeper there is
        return Lease(await _downgrade(engine, holding))


class WriteLock(Primitive[WriteLease]):
    """A name held alone: it waits for the readers to leave, and lets no new ones in meanwhile.

    Guarantee: while a lease is valid, no other client of the same masters has a valid one on the name: no reader, no
    writer, no holder of the plain lock `redlock(name)`, which is a writer too, but one that does not hold readers out
    while it waits. A writer that waits for readers waits for those that are in, and lets no others in; one that waits
    for another writer, or behind a plain lock of its own process, may be passed by readers when that has left.
    What can break it: see `Lease`.
    Cost: as a plain lock. Waiting for readers, it asks each master about once a second. New readers wait up to three
    seconds for a writer that died waiting.
    Cancellation: cancelling `acquire` is prompt, leaves nothing behind on any node, and lets the readers in again.
    """

    __slots__ = ()

    _lease = WriteLease


class Downgrade(Round):
    """Turn a writer into a reader on every node that has it. Until that is known, nobody else keeps either of them."""

    __slots__ = ("_engine", "_reading", "_writing")

    operation = "downgrade"
    waiting = 0

    def __init__(self, engine: Engine, command: Command, writing: Holding, reading: Holding) -> None:
        super().__init__(engine, command, min(engine.node_timeout, writing.ttl / 4))
        self._engine = engine
        self._writing = writing
        self._reading = reading

    def read(self, node: int, reply: object) -> bool:  # noqa: ARG002 - Round's signature
        return reply == 1

    # As one whom the engine tells of a key, and of its end

    def freed(self, node: int, key: bytes | None) -> None:
        """The answers tell."""

    def wake(self, key: bytes | None = None) -> None:
        """The answers tell."""

    def close(self) -> None:
        """The client is closed: both are given back, behind the command that turns one into the other."""
        for holding in (self._reading, self._writing):
            self._engine.give_back(holding.claim, holding.token, holding.reached)


async def _downgrade(engine: Engine, writing: Holding) -> Holding:
    if not engine.masters.usable:
        await engine.start(writing.ttl)
    claim = writing.claim
    assert isinstance(claim, Write)  # noqa: S101 - what WriteLock makes
    reading = writing.turned_into(claim.reading())
    # Nothing has run since it was forgotten here: whoever got its turn asks the nodes after this.
    command = claim.downgrade(writing.token, writing.fence, round(writing.ttl * 1000))
    round_ = Downgrade(engine, command, writing, reading)
    engine.board.watch(claim.watched, round_)
    round_.ask_all()
    try:
        verdict = await round_.outcome
    except BaseException:
        round_.abandon()
        engine.give_back(reading.claim, reading.token, reading.reached)
        writing.phase = Phase.RELEASED
        engine.end(writing)
        raise
    finally:
        engine.board.unwatch(claim.watched, round_)
    if verdict is Verdict.WON and not engine.closed and reading.confirm(round_.started_at, engine.now()):
        reading.votes = round_.holders
        engine.adopt(reading)
        # Those of this process who want to read were told when it was forgotten: a node that had to be sent the script
        # has let them in only now.
        engine.own_change(claim.keys[0])
        reading.taken_by(caller())
        # Where it still stands as a writer's, it would be in its own way, and nobody would release it.
        engine.tell_all(claim.release(writing.token), writing.ttl, but=round_.holders)
        return reading
    engine.give_back(reading.claim, reading.token, reading.reached)
    writing.phase, writing.until = Phase.HELD, engine.now()
    why = "the client was closed" if engine.closed else "too few masters still had it, in time,"
    writing.lose(f"{why} when it was downgraded", "downgrade", at_once=True)
    if verdict is Verdict.UNREACHABLE and not engine.closed:
        raise round_.unavailable(f"could not downgrade the lock on {writing.shown}", claim.names)
    assert writing.lost_by is not None  # noqa: S101 - just set
    raise LockLost(*writing.lost_by.args, names=claim.names)
