"""Work that is to run once in a period, however many machines are told to start it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any, ParamSpec, Self, TypeVar

from ._errors import ConfigurationError, shown
from ._settings import LONGEST_TTL, Duration, Options, flag, positive, seconds
from .lease import Lease
from .lock import Lock
from .locked import constant, under

P = ParamSpec("P")
R = TypeVar("R")

SHORTEST_PERIOD = 1.0
"""Seconds. What is started more often is not scheduled: it is a loop, and a loop holds a lock."""

MOST = 0.9
"""Of a period, that the name is locked: the rest is for schedulers whose next tick is early."""


@dataclass(frozen=True, slots=True)
class Terms:
    """How a period is kept: what was given, checked."""

    longest_ttl: float
    hold: float
    retry_failed: bool
    ttl: Duration | None
    fencing: bool | None
    max_hold: Duration | None

    @classmethod
    def checked(
        cls,
        *,
        every: Duration,
        hold: Duration | None,
        retry_failed: bool,
        ttl: Duration | None,
        fencing: bool | None,
        max_hold: Duration | None,
    ) -> Self:
        """The terms, or a ConfigurationError that says what to change. Needs no client's settings yet."""
        period = seconds("every", every)
        if not SHORTEST_PERIOD <= period <= LONGEST_TTL:
            raise ConfigurationError(f"every must be from 1 second to 366 days, not {shown(every)}")
        held = MOST * period if hold is None else positive("hold", hold)
        if held >= period:
            raise ConfigurationError(
                f"hold={shown(hold)} must be shorter than every={shown(every)}, or the name is locked still at the "
                "next tick, and every other run is left out"
            )
        if ttl is not None and seconds("ttl", ttl) > period:
            raise ConfigurationError(
                f"ttl={shown(ttl)} must not be longer than every={shown(every)}, or a run whose process dies has the "
                "next one left out, too"
            )
        terms = cls(MOST * period, held, flag("retry_failed", retry_failed), ttl, fencing, max_hold)
        terms.of(Options(ttl=LONGEST_TTL, wait=None, fencing=True), 0.0)
        return terms

    def of(self, client: Options, drift_factor: float) -> Options:
        """The options of the lock that keeps the period."""
        options = client.with_overrides(
            drift_factor=drift_factor,
            # A process that dies must not swallow the next tick, unless that was asked for.
            ttl=min(client.ttl, self.longest_ttl) if self.ttl is None else self.ttl,
            wait=0,
            fencing=self.fencing,
            max_hold=self.max_hold,
            hold_at_least=self.hold,
        )
        return replace(options, retry_failed=self.retry_failed)


class Once:
    """Work that runs once in a period, on whichever of the machines comes first; the others leave it out.

    Guarantee: no two runs at the same time, as `Lock`'s, with which it excludes itself on the same name; and none
    begins within `hold` (nine tenths of `every`, unless given) of the beginning of another. Of those who try at the
    same moment exactly one runs. A body that raises, is cancelled or is ended by `max_hold` counts as a run, unless
    `retry_failed=True`: then the name is free at once. When a process dies in it, the name is free after the ttl, and
    whoever tries next runs it again: at least once, and with a `ttl` as long as `hold` at most once. No wall clock is
    used: the period begins when a run does, and a schedule's ticks may be early by what `hold` leaves of `every`, and
    later than one another by less than `hold`.
    What can break it: see `Lease`. Between runs nobody renews the lock, so masters that lose their data then may have
    it run again within the period: a majority of them, one after the other. Keep their data on disk, or give a `ttl`
    as long as `hold`, for which they are then held out of the vote. A body that takes longer than `every` is not run
    twice: the ticks meanwhile are left out.
    Cost: one round trip to run it and one to end it; one to leave it out, and a few, within `node_timeout`, for those
    that try at the same moment. Too few masters raise QuorumUnavailable: an outage is never taken for a turn of others.
    Cancellation: as `Lock`'s. A body that is cancelled has failed.
    """

    __slots__ = ("lock", "template")

    def __init__(self, make: Callable[[str], Lock], template: str) -> None:
        self.lock = make
        """What keeps the period of a name."""
        self.template = template
        """The name, or what makes it of a function's arguments."""

    def __repr__(self) -> str:
        return f"<Once {shown(self.template)}>"

    def __call__(self, function: Callable[P, Awaitable[R]], /) -> Callable[P, Coroutine[Any, Any, R | None]]:
        """Decorate a coroutine function: it returns its result, or None when it is not its turn."""
        return under(self.lock, self.template, function, "skip")

    async def try_acquire(self) -> Lease | None:
        """A lease to run under, or None when it is not our turn: `async with lease:` around the work, or release it."""
        return await self.lock(constant(self.template)).try_acquire()
