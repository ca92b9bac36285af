"""Mutants of the rules for outages and copies of processes."""

from unittest.mock import patch

from framework.breaking import mutant

from redlock_async import _kinds, _rounds, _runtime


@mutant("outages")
def the_last_contender_is_forgotten():
    """A task that times out at the moment it gets the turn has no reason, and reports the lock as held."""
    leave = _runtime.local_queues.LocalQueues.leave

    def forgetful(self, key):
        self.get(key).acquisition = None
        leave(self, key)

    with (
        patch.object(_runtime.local_queues.LocalQueues, "leave", forgetful),
        patch.object(_runtime.acquisition, "queued_in_vain", _held_by_somebody),
    ):
        yield


@mutant("outages")
def a_silent_majority_is_not_waited_for():
    """Other clients' votes count as a holder while most nodes are silent."""
    with patch.object(_runtime.acquisition.Acquisition, "_is_certain", lambda _self, _round: True):
        yield


@mutant("outages")
def late_failures_do_not_count():
    """Failures of nodes after the attempt was given up do not count."""
    with patch.object(
        _runtime.acquisition.Acquisition, "_error", lambda self: self._last_error or self._attempt.blocking_error()
    ):
        yield


@mutant("outages")
def the_turn_on_another_name_tells_nothing():
    """Tasks behind one that queues for a second name do not learn the reason."""
    with patch.object(_runtime.local_queues.LocalQueues, "_waits_for", lambda *_: None):
        yield


@mutant("outages")
def the_first_in_a_fair_queue_tells_nobody():
    """Tasks of the same process behind the first do not learn that its attempts fail, and name a holder."""
    with patch.object(_kinds.fair.FairAttempt, "blocking_error", lambda _self: None):
        yield


@mutant("outages")
def a_lost_quorum_wakes_nobody():
    """A task that waits for a holder keeps waiting for a report that cannot arrive."""
    with patch.object(_runtime.session.Session, "quorum_lost", lambda _self: None):
        yield


def _held_by_somebody(_ground, claim, wait):
    return _runtime.acquisition.timed_out(claim.names, wait, None, "", retry_after=None)


# Copies of a process


@mutant("copies")
def random_bits_are_all_that_a_token_is_made_of():
    """A token consists of random bits only: copies of a process draw the same ones, and release each other's locks."""

    def without_clocks(world):
        return (b"%016x%016x" % pair for pair in world.token_bytes())

    with patch.object(_rounds.context, "token_values", without_clocks):
        yield
