"""Mutants of the rules for `takeover_delay`."""

from unittest.mock import patch

from framework.breaking import mutant

from redlock_async import _rules, _runtime, _transport
from redlock_async._rules.lease_timing import Phase


@mutant("takeover")
def a_lost_lease_is_released():
    """A client that has lost a lease frees what is left of it, as without a delay."""
    invalidate = _runtime.lease_registry.LeaseRegistry.invalidate

    def freeing(self, lease):
        lease.takeover_delay = 0.0
        invalidate(self, lease)

    with patch.object(_runtime.lease_registry.LeaseRegistry, "invalidate", freeing):
        yield


@mutant("takeover")
def a_renewal_is_for_the_ttl_only():
    """Only the acquire asks the nodes to keep the key for the delay as well."""
    with patch.object(_rules.lease_timing.LeaseTiming, "key_ms", lambda _self, ttl: round(ttl * 1000)):
        yield


@mutant("takeover")
def an_acquire_is_for_the_ttl_only():
    """Only renewals ask the nodes to keep the key for the delay as well."""
    ask = _runtime.acquisition.Acquisition._ask

    def shorter(self, probe, *, first):
        options, self._options = self._options, self._options.without_delay
        try:
            return ask(self, probe, first=first)
        finally:
            self._options = options

    without = property(lambda self: _rules.settings.replace(self, takeover_delay=0.0))
    with (
        patch.object(_runtime.acquisition.Acquisition, "_ask", shorter),
        patch.object(_rules.settings.Options, "without_delay", without, create=True),
    ):
        yield


@mutant("takeover")
def a_node_is_quarantined_for_the_ttl_only():
    """The delay is not announced to the nodes, so one that forgot a lease votes again before it is over."""
    use_ttl = _transport.membership.Membership.use_ttl

    def short(self, ttl):
        use_ttl(self, min(ttl, 2.0))  # the longest ttl in the schedules

    with patch.object(_transport.membership.Membership, "use_ttl", short):
        yield


@mutant("takeover")
def a_release_waits_for_the_delay():
    """The delay follows every lease, also one that was released."""
    end = _runtime.lease_registry.LeaseRegistry._end

    def waiting(self, lease, *, until, hold_ms):
        if lease.phase is Phase.RELEASED:
            hold_ms = max(hold_ms, round(lease.takeover_delay * 1000))
        return end(self, lease, until=until, hold_ms=hold_ms)

    with patch.object(_runtime.lease_registry.LeaseRegistry, "_end", waiting):
        yield
