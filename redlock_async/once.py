"""Jobs that run once in a period, however many machines start them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from redlock_async._rules.settings import LONGEST_TTL, Duration, Options, flag, positive, seconds

from .decorators import LockedOrSkipped, name_without_fields
from .errors import ConfigurationError, short_repr
from .lease import Lease
from .locks import Lock

SHORTEST_PERIOD = 1.0
"""Seconds. A job that starts more often is a loop, and a loop should hold a lock."""

LONGEST_PERIOD = 366 * 24 * 3600.0
"""Seconds. Longer than that, an expiry is nothing to rely on."""

DEFAULT_HOLD_FRACTION = 0.9
"""The part of a period for which the name stays locked. The rest tolerates schedulers whose next tick is early."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodOptions:
    """The options of `once`, checked without the settings of a client; raises ConfigurationError."""

    every: Duration
    hold: Duration | None = None
    retry_failed: bool = False
    ttl: Duration | None = None
    fencing: bool | None = None
    max_hold: Duration | None = None

    def __post_init__(self) -> None:
        period = seconds("every", self.every)
        if not SHORTEST_PERIOD <= period <= LONGEST_PERIOD:
            raise ConfigurationError(f"every must be from 1 second to 366 days, got {short_repr(self.every)}")
        if self.hold is not None and positive("hold", self.hold) >= period:
            raise ConfigurationError(
                f"hold={short_repr(self.hold)} must be shorter than every={short_repr(self.every)}, or the name is "
                "still locked at the next tick, and every other run is skipped"
            )
        if self.ttl is not None and seconds("ttl", self.ttl) > period:
            raise ConfigurationError(
                f"ttl={short_repr(self.ttl)} must not be longer than every={short_repr(self.every)}, or the next run "
                "is skipped, too, if a process dies in its run"
            )
        flag("retry_failed", self.retry_failed)
        self.of(Options(ttl=LONGEST_TTL, wait=None, fencing=True), 0.0)

    def of(self, client: Options, drift_factor: float) -> Options:
        """Derive the lock's options from the client's."""
        hold = DEFAULT_HOLD_FRACTION * seconds("every", self.every)
        options = client.with_overrides(
            drift_factor=drift_factor,
            # A run whose process dies must not block the next tick, unless the caller asked for that.
            ttl=min(client.ttl, hold) if self.ttl is None else self.ttl,
            wait=0,
            fencing=self.fencing,
            max_hold=self.max_hold,
            min_hold=hold if self.hold is None else self.hold,
        )
        return replace(options, retry_failed=self.retry_failed)


class Once(LockedOrSkipped):
    """A job that runs once in a period, on the machine that starts it first; the others skip it.

    Guarantee: no two runs overlap, and none begins within `hold` (nine tenths of `every`, unless given) of the start of
    another. If several processes try at the same moment, exactly one runs. The plain lock on the same name excludes the
    job, too. A run that raises, is cancelled or reaches `max_hold` counts as a run, unless `retry_failed=True`: then
    the name is free at once. If a process dies during its run, the name is free after the ttl, and the next process
    that tries repeats the job. So a job runs at least once, or at most once with a `ttl` as long as `hold`. No wall
    clock is used: the period begins when a run does. The ticks of a schedule may come early by up to `every - hold`,
    and those on different machines may be less than `hold` apart.
    When a run ends, the rest of its period is stored on all nodes, and later, while this client is open, on nodes that
    are unreachable now. If no quorum stores it within 5 seconds, the call raises HoldUnconfirmed instead of returning.
    The work is done then and must not be retried, but another machine may repeat it within the period.
    What can break it: see `Lease`. The lock is not renewed between runs. If a majority of the nodes lose their data
    within that time, even one after the other, the job may run again within the period. Keep the nodes' data on disk,
    or give a `ttl` as long as `hold`, for which such nodes are then quarantined. A run that takes longer than `every`
    is not started twice: the ticks meanwhile are skipped.
    Cost: one round trip to start a run and one to end it; one to skip it, and a few more, within `node_timeout`, when
    several try at the same moment. Without a quorum it raises QuorumUnavailable, which is never taken for a conflict.
    Cancellation: as for `Lock`. A run that is cancelled has failed.
    """

    __slots__ = ()

    def __init__(self, lock: Callable[[str], Lock], template: str) -> None:
        super().__init__(lock, template, "skip")

    async def try_acquire(self) -> Lease | None:
        """Return a lease to run the job under, or None if it is not this caller's turn.

        Run the job in `async with lease:`, or release the lease after it. Raises QuorumUnavailable without a quorum.
        """
        lock: Lock = self.lock(name_without_fields(self.template))
        return await lock.try_acquire()
