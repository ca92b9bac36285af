"""Mutants of the rules for locks that outlive a block: periods and detached leases."""

import math
from unittest.mock import patch

from framework.breaking import mutant

from redlock_async import _runtime
from redlock_async._rules.lease_timing import Phase


@mutant("periods")
def retain_only_where_reached():
    """A hold is stored only on the nodes that the acquire had reached."""
    start = _runtime.retention.Retention.start

    def of_those(self):
        self._open &= self._sent_mask
        start(self)

    with patch.object(_runtime.retention.Retention, "start", of_those):
        yield


@mutant("periods")
def retain_sets_nothing():
    """A hold extends the keys that exist, and does not set the missing ones."""
    ask = _runtime.retention.Retention._ask

    def only_lengthen(self, node, *, sets=False):
        if sets:
            self._missing &= ~node.bit
            self._stored(node)
        else:
            ask(self, node)

    with patch.object(_runtime.retention.Retention, "_ask", only_lengthen):
        yield


@mutant("periods")
def a_hold_that_no_quorum_stored_looks_like_success():
    """The end of the block ignores the failure, as for a lock without a hold."""

    class NoError(Exception):
        """Nothing is one."""

    with patch.object(_runtime.block, "HoldUnconfirmed", NoError):
        yield


@mutant("periods")
def a_hold_that_comes_late_lasts_as_long_as_one_in_time():
    """A late hold gets its full length: its remaining time is ignored."""
    ask = _runtime.retention.Retention._ask

    def in_full(self, node, *, sets=False):
        real, length = self.until, self.until - self.started_at
        self.until = max(real, self._context.now() + length)
        try:
            ask(self, node, sets=sets)
        finally:
            self.until = real

    with patch.object(_runtime.retention.Retention, "_ask", in_full):
        yield


@mutant("periods")
def a_hold_that_was_carried_out_late_is_not_corrected():
    """A node that was stopped counts the hold from when it resumed."""
    take = _runtime.retention.Retention.take

    def as_in_time(self, node, reply, command, receiver, *, sets):
        receiver.started_at = math.inf
        take(self, node, reply, command, receiver, sets=sets)

    with patch.object(_runtime.retention.Retention, "take", as_in_time):
        yield


@mutant("handed over")
def attach_believes_the_deadline():
    """The text decides how long its lease is valid."""
    attach = _runtime.lease_registry.LeaseRegistry.attach

    def believing(self, lease, until):
        attach(self, lease, until)
        if until is not None and lease.phase is Phase.HELD:
            lease.until = until

    with patch.object(_runtime.lease_registry.LeaseRegistry, "attach", believing):
        yield
