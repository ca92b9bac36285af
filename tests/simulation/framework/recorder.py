"""Sees, after every step of every simulated process, which leases stand and until when, and makes a history of it."""

import math
import re
from itertools import product

from redlock_async._lease import Phase
from redlock_async.testing import Hold, Violation, judge

NOTICE = 0.05
"""Seconds after which a holder knows that somebody freed its lock."""

STALE = 0.002
"""Seconds of true time past its deadline that a body is allowed: the steps its cancellation takes."""

ASKED_AT_MOST = 200
"""Attempts in vain of one process within a second: who waits is told, or waits for a while before it asks again."""

KEPT = re.compile(
    rb"redlock-async:(born|longest-ttl|founded|fence:\d+|semaphore:\{.*\}|ticket:\{.*\}|latch(-state)?:\{.*\})",
    re.DOTALL,
)
"""What the library leaves on the nodes on purpose."""

LASTING = re.compile(rb"redlock-async:(born|longest-ttl|founded|fence:\d+)")
"""What of it lasts for ever; so does a number of permits that an operator has set."""


class Track:
    """One lease, from the first look that saw it."""

    def __init__(self, process, holding, now, before=None):
        self.process = process
        self.holding = holding
        self.start = now
        self.before = before
        """The lease that was turned into this one: nobody was in between, and they share a fence."""
        if before is not None and before.end is not None:
            self.start = before.end
        self.until = -math.inf
        self.true_until = -math.inf
        self.end = None

    def holds(self, end):
        """It as holds, one for each name."""
        claim = self.holding.claim
        slots = claim.slots or (None,)
        for name, slot in product(claim.names, slots):
            yield Hold(
                name=name,
                holder=f"{self.process.name}/{self.holding.token[-40:].decode()}",
                start=self.start,
                end=end,
                fence=self.holding.fence if self.before is None else None,
                kind=claim.kind,
                slot=slot,
                permits=getattr(claim, "permits", 1),
            )


class Recorder:
    """The history of one simulation."""

    def __init__(self, simulation):
        self._simulation = simulation
        self._clients = {}
        self._live = {}
        self._known = {}
        self._bodies = {}
        self._by_token = {}
        self._freed = {}
        self._asked = {}
        self.tracks = []
        self.further = []
        """Holds of others than our clients."""
        self.violations = []
        simulation.watchers.append(self.look)

    def watch(self, process, redlock):
        """From now on see what that client holds."""
        self._clients.setdefault(process, []).append(redlock)

    def look(self, process):
        """What has changed by its last step."""
        now = self._simulation.now
        self._find_new(process, now)
        live = self._live.get(process)
        if live:
            local = process.now()
            for track in live[:]:
                until = track.holding.until
                if until not in {-math.inf, track.until}:
                    track.until, track.true_until = until, self.true(process, until)
                if until == -math.inf or local >= until:
                    # Never past the deadline that stood: a process that was stopped notices late.
                    track.end = min(now, track.true_until)
                    live.remove(track)
        for body in self._bodies.get(process, ()):
            body.look(self, process, now)
        self._look_for_haste(process, now)

    def _look_for_haste(self, process, now):
        for redlock in self._clients.get(process, ()):
            if redlock._running is None:
                continue
            counters, second = redlock._running.counters, int(now)
            in_vain = counters.attempts - counters.acquired
            last, before = self._asked.get(redlock, (None, 0))
            if second != last:
                self._asked[redlock] = second, in_vain
            elif in_vain - before > ASKED_AT_MOST:
                self._asked[redlock] = second, math.inf
                told = f"{process.name} asked in vain more than {ASKED_AT_MOST} times in second {second}"
                self.violations.append(Violation("liveness", told))

    def _find_new(self, process, now):
        for redlock in self._clients.get(process, ()):
            engine = redlock._running
            if engine is None or not engine.held:
                continue
            for holding in engine.held.values():
                if id(holding) not in self._known and holding.until != -math.inf:
                    before = self._by_token.get(holding.token)
                    turned = before is not None and before.holding.phase is Phase.DOWNGRADED
                    track = Track(process, holding, now, before if turned else None)
                    self._by_token[holding.token] = track
                    self._known[id(holding)] = track
                    self._live.setdefault(process, []).append(track)
                    self.tracks.append(track)

    @staticmethod
    def true(process, reading):
        """The true time at which that process's clock shows that."""
        return process._clock.true(reading)

    def body(self, process, lease):
        """A block under that lease, as a context: it must end before the lease does."""
        return Body(self, process, lease)

    def freed(self, name):
        """That name is being freed by force, from the first call to the second."""
        self._freed.setdefault(name, []).append(self._simulation.now)

    def holds(self):
        """Everything that was held; what still is counts until its deadline."""
        for track in self.tracks:
            end = track.true_until if track.end is None else track.end
            yield from track.holds(min([end, *self._ends_by_force(track, end)]))
        yield from self.further

    def _ends_by_force(self, track, end):
        """When somebody freed what was held, which nothing can prevent; its holder must know soon."""
        for name in track.holding.claim.names:
            times = self._freed.get(name, [])
            for begun, done in zip(times[::2], times[1::2], strict=False):
                if track.start < done and end > begun:
                    if end > done + NOTICE and track.start < begun:
                        self.violations.append(
                            Violation("loss", f"noticed {end - done:.3f} s after {name!r} was freed")
                        )
                    yield max(begun, track.start)

    def judge(self):
        """Every promise that was broken."""
        found = judge(list(self.holds()))
        return [*self.violations, *found]

    def strays(self):
        """Keys on the nodes that nobody should have left there."""
        return [
            f"{key!r} on {machine.label}"
            for machine in self._simulation.machines
            for key in machine.master.keys()  # noqa: SIM118 - a method, not a dict
            if not KEPT.fullmatch(key)
        ]

    def look_for_lasting(self):
        """Keys on the nodes that would be there for ever, if nobody came to delete them."""
        for machine in self._simulation.machines:
            for key, value in machine.master.lasting().items():
                by_operator = key.startswith(b"redlock-async:semaphore:") and type(value) is bytes and b":" in value
                if not LASTING.fullmatch(key) and not by_operator:
                    self.violations.append(Violation("orphan", f"{key!r} on {machine.label} has no ttl"))


class Body:
    """A block of code that must not run past its lease, unless its whole process was stopped."""

    def __init__(self, recorder, process, lease):
        self._recorder = recorder
        self._process = process
        self._lease = lease
        self._looks = 0
        self._deadline = math.inf

    def __enter__(self):
        self._recorder._bodies.setdefault(self._process, []).append(self)

    def __exit__(self, *_):
        self._recorder._bodies[self._process].remove(self)

    def look(self, recorder, process, now):
        """Called while it runs."""
        until = self._lease._holding.until
        if until != -math.inf:
            self._deadline = recorder.true(process, until)
        if now > self._deadline + STALE:
            # The step after a stop may still find it: only then its cancellation can begin.
            self._looks += 1
            if self._looks == 10:
                late = now - self._deadline
                recorder.violations.append(Violation("body", f"ran {late:.3f} s past its lease in {process.name}"))
