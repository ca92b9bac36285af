"""What a holder has in hand."""

from __future__ import annotations

import base64
import json
import math
import warnings
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Self

from ._body import Body
from ._errors import ConfigurationError, NotHeld, RedlockError, shown
from ._holding import Holding, caller
from ._lease import Phase
from ._settings import Duration, checked_ttl
from ._world import World

FORMAT = "redlock1."


class Lease:
    """A lock that is held, until it is released or lost.

    Guarantee: while `valid`, no other client of the same masters has a valid lease on the name.
    What can break it: clocks whose *rates* differ by more than `drift_factor`; a majority of nodes that lose their data
    at once. A process that is paused at the wrong moment may still write late: hand `fencing_token` to the resource.
    Cost: `extend` and `release` are one round trip; renewal is one command a node every third of the ttl, shared by
    all leases that are due.
    Cancellation: cancelling `extend` leaves the lease as it was; cancelling `release` does not stop the release.
    """

    __slots__ = ("__weakref__", "_body", "_entered", "_given_back", "_hearsay", "_holding")

    def __init__(self, holding: Holding, *, hearsay: bool = False) -> None:
        self._holding = holding
        self._hearsay = hearsay
        """Whether only the text that it came by says that it is held: that may have been used before."""
        self._given_back = False
        """Whether it was released where others of the same holding go on: the task had entered it again."""
        self._entered = False
        self._body: Body | None = None

    def __repr__(self) -> str:
        state = f"{self.remaining:.3f} s left" if self.valid else self._holding.phase.value
        return f"<Lease on {self._holding.shown}: {state}>"

    def __del__(self) -> None:
        holding = getattr(self, "_holding", None)
        if holding is None or holding.phase is not Phase.HELD or self._given_back:
            return
        loop = holding.keeper.loop
        if loop.is_closed() or holding.keeper.inherited or not holding.confirmed:
            return
        if holding.renews:
            warnings.warn(
                f"the lease on {holding.shown} was dropped without release(): it is not renewed any more and runs out "
                "by itself"
                if holding.depth == 1
                else f"a lease on {holding.shown}, entered {holding.depth} times, was dropped without release()",
                ResourceWarning,
                source=self,
                stacklevel=2,
            )
        # The collector may run in any thread.
        loop.call_soon_threadsafe(holding.abandon)

    @property
    def name(self) -> str:
        """What is held; the first, where several are."""
        return self._holding.claim.names[0]

    @property
    def names(self) -> tuple[str, ...]:
        """All that is held."""
        return self._holding.claim.names

    @property
    def token(self) -> str:
        """The random value stored on the nodes."""
        return self._holding.token.decode()

    @property
    def fencing_token(self) -> int | None:
        """Larger than that of every earlier holder of the name; None with `fencing=False`."""
        return self._holding.fence

    @property
    def slots(self) -> tuple[int, ...]:
        """Of a semaphore: which of its slots these are, from 0; nobody else has them. Empty for all other kinds."""
        return tuple(sorted(self._holding.claim.slots))

    @property
    def valid(self) -> bool:
        """Whether nobody else can hold it now: compares clocks, not a flag."""
        return self._holding.valid

    @property
    def remaining(self) -> float:
        """Seconds it stays valid if it is not renewed; never negative."""
        return max(self._holding.until - self._holding.keeper.now(), 0.0)

    @property
    def lost(self) -> bool:
        """Whether it ended, or is about to, without a release; never false again once it was true."""
        return self._holding.lost

    @property
    def margin(self) -> int:
        """Nodes held beyond the quorum: how many may fail now without the lease being in danger."""
        return self._holding.margin

    async def extend(self, ttl: Duration | None = None) -> None:
        """Set a new deadline, now plus `ttl`; raises LockLost if that fails until the old one. Never shortens."""
        holding = self._holding
        self._require_mine("extend")
        await self._ask(holding.ttl if ttl is None else checked_ttl(ttl, holding.drift_factor))

    async def _ask(self, ttl: float) -> None:
        await self._holding.extend(ttl)
        if self._hearsay:
            self._hearsay = False
            self._holding.taken_by(caller())

    async def release(self) -> None:
        """Give it back. Raises NotHeld the second time, LockLost if it was lost before."""
        self._require_mine("release")
        # Of the last one the holding itself knows, and a lost one stays LockLost.
        self._given_back = self._holding.depth > 1 and self._holding.valid
        await self._holding.release()

    async def _leave(self) -> None:
        """At the end of its block, unless it was released within."""
        if not self._given_back:
            await self.release()

    def _require_mine(self, verb: str) -> None:
        if self._given_back:
            raise NotHeld(
                f"cannot {verb} the lock on {self._holding.shown}: this lease was released before", names=self.names
            )

    async def wait_lost(self) -> None:
        """Return when it is lost."""
        await self._holding.wait_lost()

    def detach(self) -> str:
        """Stop seeing to it here, and return a text that `Redlock.attach` turns into a lease, here or elsewhere.

        It is not renewed until somebody attaches it, and runs out after what `remaining` was. What is left of
        `max_hold` and `hold_at_least` goes with it, as of now.
        """
        holding = self._holding
        self._require_mine("detach")
        holding.require_held("detach")
        if holding.depth > 1:
            raise RedlockError(
                f"cannot detach the lock on {holding.shown}: it was entered {holding.depth} times, and the blocks "
                "around this one would go on without it; detach the lease of the outermost"
            )
        now = holding.keeper.now()
        detached = Detached(
            namespace=holding.keeper.settings.namespace,
            kind=holding.claim.kind,
            details=holding.claim.details(),
            names=list(holding.claim.names),
            token=holding.token.decode(),
            fence=holding.fence,
            ttl=holding.ttl,
            renew=holding.renews,
            max_hold=holding.cap_left(now),
            hold_at_least=holding.kept_for(now),
            retry_failed=holding.retry_failed,
            # One that came from elsewhere and was never confirmed here has no deadline that could be read.
            until=holding.until if holding.confirmed else 0.0,
            clock=holding.keeper.world.clock() if holding.confirmed else None,
        )
        holding.hand_on()
        return detached.write()

    def _begin(self) -> None:
        """The one block under it begins."""
        self._require_mine("enter")
        self._holding.require_held("enter")
        if self._entered:
            # The end of either block would give the lock back, and leave the other without it.
            raise RedlockError(
                f"a block under this lease on {self._holding.shown} was entered before: one block for each lease"
            )
        self._entered = True

    async def __aenter__(self) -> Self:
        await self._confirm()
        self._enter()
        return self

    async def _confirm(self) -> None:
        """Before a block under a lease that came from elsewhere: whether it is held still, only the masters know."""
        if self._hearsay:
            holding = self._holding
            # One that is not renewed ends when it would have ended: it is only looked at, where its end is known here.
            await self._ask(0.0 if holding.confirmed and not holding.renews else holding.ttl)

    def _enter(self) -> None:
        self._begin()
        self._body = Body(self._holding, self._leave)
        self._body.enter()

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._body is not None  # noqa: S101 - it was entered
        await self._body.leave(exc_type, exc, traceback)


@dataclass(frozen=True, slots=True)
class Detached:
    """What `Lease.detach` writes."""

    kind: str
    names: list[str]
    details: dict[str, object]
    token: str
    fence: int | None
    ttl: float
    renew: bool
    max_hold: float | None
    hold_at_least: float
    retry_failed: bool
    """What is left of the options, at most; what was over when it was written is 0."""
    namespace: str
    until: float
    """The deadline, on the clock that is named."""
    clock: str | None

    def __post_init__(self) -> None:
        if not (
            isinstance(self.kind, str)
            and isinstance(self.details, dict)
            and isinstance(self.names, list)
            and self.names
            and all(isinstance(name, str) for name in self.names)
            and isinstance(self.token, str)
            and (self.fence is None or (type(self.fence) is int and 0 < self.fence < 2**63))
            and isinstance(self.ttl, float | int)
            and isinstance(self.renew, bool)
            and (self.max_hold is None or isinstance(self.max_hold, float | int))
            and isinstance(self.hold_at_least, float | int)
            and isinstance(self.retry_failed, bool)
            and isinstance(self.namespace, str)
            and isinstance(self.until, float | int)
            and math.isfinite(self.until)
        ):
            raise TypeError
        self.token.encode()

    def readable(self, world: World) -> bool:
        """Whether the deadline can be read on our clock."""
        return self.clock is not None and self.clock == world.clock()

    def write(self) -> str:
        """As one word."""
        return FORMAT + base64.urlsafe_b64encode(json.dumps(asdict(self)).encode()).decode()


def read_detached(text: str) -> Detached:
    """What `Lease.detach` wrote, or a ConfigurationError."""
    try:
        head, dot, body = text.partition(".")
        return Detached(**json.loads(base64.urlsafe_b64decode(body if head + dot == FORMAT else "")))
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
        raise ConfigurationError(f"not a text that Lease.detach() returned: {shown(text)}") from None
