"""Records the held leases after every step of every simulated process, as a history to check."""

import math
import re
from itertools import product

from redlock_async._rules.lease_timing import Phase
from redlock_async.testing import HeldInterval, Violation, check_history

NOTICE = 0.05
"""Seconds after which a holder must know that its lock was force-released."""

STALE = 0.002
"""Seconds of true time for which a block may outlive its lease: the steps that its cancellation takes."""

MAX_VAIN_ATTEMPTS = 200
"""Failed attempts that one process may make within a second: a waiter is notified, or pauses before it retries."""

KEPT = re.compile(
    rb"redlock-async:(node|clocks|fence:\{[@-O]{4}\}|semaphore:\{.*\}|ticket:\{.*\}|latch(-state)?:\{.*\})",
    re.DOTALL,
)
"""Keys that the library leaves on the nodes on purpose."""

LASTING = re.compile(rb"redlock-async:(node|clocks|fence:\{[@-O]{4}\})")
"""Keys without a ttl. A number of permits that an operator has set has none either."""


class Track:
    """One lease, from the first step after which it existed."""

    def __init__(self, process, holding, now, before=None):
        self.process = process
        self.holding = holding
        self.start = now
        self.before = before
        """The lease that was downgraded to this one. They share a fencing token."""
        if before is not None and before.end is not None:
            self.start = before.end
        self.until = -math.inf
        self.true_until = -math.inf
        self.end = None

    def holds(self, end):
        """The lease as intervals, one per name and slot."""
        claim = self.holding.kind
        slots = claim.slots or (None,)
        for name, slot in product(claim.names, slots):
            yield HeldInterval(
                name=name,
                holder=f"{self.process.name}/{self.holding.token[-40:].decode()}",
                start=self.start,
                end=end,
                fence=self.holding.fence if self.before is None else None,
                kind=claim.label,
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
        self._attempts = {}
        self.tracks = []
        self.foreign_holds = []
        """Leases of other libraries' clients."""
        self.violations = []
        simulation.watchers.append(self.look)

    def watch(self, process, redlock):
        """Record the leases of that client from now on."""
        self._clients.setdefault(process, []).append(redlock)

    def look(self, process):
        """Record the changes of the process's last step."""
        now = self._simulation.now
        self._find_new_leases(process, now)
        live = self._live.get(process)
        if live:
            local = process.now()
            for track in live[:]:
                until = track.holding.until
                if until not in {-math.inf, track.until}:
                    track.until, track.true_until = until, self.true(process, until)
                if until == -math.inf or local >= until:
                    # Not past its last deadline: a process that was stopped notices the end late.
                    track.end = min(now, track.true_until)
                    live.remove(track)
        for body in self._bodies.get(process, ()):
            body.look(self, process, now)
        self._check_attempt_rate(process, now)

    def _check_attempt_rate(self, process, now):
        for redlock in self._clients.get(process, ()):
            if redlock._running is None:
                continue
            counters, second = redlock._running.context.counters, int(now)
            in_vain = counters.attempts - counters.acquired
            last, before = self._attempts.get(redlock, (None, 0))
            if second != last:
                self._attempts[redlock] = second, in_vain
            elif in_vain - before > MAX_VAIN_ATTEMPTS:
                self._attempts[redlock] = second, math.inf
                message = f"{process.name} made more than {MAX_VAIN_ATTEMPTS} failed attempts in second {second}"
                self.violations.append(Violation("liveness", message))

    def _find_new_leases(self, process, now):
        for redlock in self._clients.get(process, ()):
            session = redlock._running
            if session is None or not len(session.registry):
                continue
            for holding in session.registry._by_key.values():
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
        """The true time at which that process's clock shows `reading`."""
        return process._clock.true(reading)

    def body(self, process, lease):
        """Wrap a block under that lease: it must end before the lease does."""
        return Body(self, process, lease)

    def freed(self, name):
        """Record a force-release of `name`, from the first call to the second."""
        self._freed.setdefault(name, []).append(self._simulation.now)

    def holds(self):
        """All intervals. A lease that is still held counts until its deadline."""
        for track in self.tracks:
            end = track.true_until if track.end is None else track.end
            yield from track.holds(min([end, *self._ends_by_force(track, end)]))
        yield from self.foreign_holds

    def _ends_by_force(self, track, end):
        """When the lease was force-released, which nothing can prevent. Its holder must notice soon."""
        for name in track.holding.kind.names:
            times = self._freed.get(name, [])
            for begun, done in zip(times[::2], times[1::2], strict=False):
                if track.start < done and end > begun:
                    if end > done + NOTICE and track.start < begun:
                        self.violations.append(
                            Violation("loss", f"noticed {end - done:.3f} s after {name!r} was force-released")
                        )
                    yield max(begun, track.start)

    def check(self):
        """All violations."""
        found = check_history(list(self.holds()))
        return [*self.violations, *found]

    def leftovers(self):
        """Keys that should not be left on the nodes."""
        return [
            f"{key!r} on {machine.label}"
            for machine in self._simulation.machines
            for key in machine.server.keys()  # noqa: SIM118 - a method, not a dict
            if not KEPT.fullmatch(key)
        ]

    def check_ttls(self):
        """Record a violation for each key that should have a ttl and has none."""
        for machine in self._simulation.machines:
            for key, value in machine.server.keys_without_ttl().items():
                by_operator = key.startswith(b"redlock-async:semaphore:") and type(value) is bytes and b":" in value
                if not LASTING.fullmatch(key) and not by_operator:
                    self.violations.append(Violation("orphan", f"{key!r} on {machine.label} has no ttl"))


class Body:
    """A block that must not outlive its lease, unless its whole process was stopped."""

    def __init__(self, recorder, process, lease):
        self._recorder = recorder
        self._process = process
        self._lease = lease
        self._checks = 0
        self._deadline = math.inf

    def __enter__(self):
        self._recorder._bodies.setdefault(self._process, []).append(self)

    def __exit__(self, *_):
        self._recorder._bodies[self._process].remove(self)

    def look(self, recorder, process, now):
        """Check the deadline; called after each step while the block runs."""
        until = self._lease._held.until
        if until != -math.inf:
            self._deadline = recorder.true(process, until)
        if now > self._deadline + STALE:
            # The first step after a stop may still find the block running: only then can it be cancelled.
            self._checks += 1
            if self._checks == 10:
                late = now - self._deadline
                recorder.violations.append(Violation("body", f"ran {late:.3f} s past its lease in {process.name}"))
