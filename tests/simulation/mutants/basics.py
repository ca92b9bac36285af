"""Mutants of the rules of plain locks: votes, validity, releases, renewals and fencing tokens."""

import math
from unittest.mock import patch

from framework.breaking import broken, mutant, rewritten

from redlock_async import _kinds, _rounds, _rules, _runtime, _transport

# Votes and validity


@mutant("mixed", "smallest")
def quorum_one_too_small():
    """Q = N/2 of N instead of N/2 + 1."""

    def too_small(_self, nodes):
        return max(nodes // 2, 1)

    with (
        patch.object(_rules.settings.Settings, "quorum_of", too_small),
        patch.object(_rules.charter, "majority", lambda nodes: max(nodes // 2, 1)),
    ):
        yield


@mutant("mixed", "bare majority")
def quorum_of_those_that_answer():
    """A majority of the reachable nodes, not of the configured ones."""
    answered, all_answered = _rounds.round.Round._answered, _rounds.round.Round._all_answered

    def lower(self, left):
        if self.elects and not left and self.granted > (self.asked - self.failed) / 2:
            self.quorum = self.granted

    def without_grant(self, bit):
        lower(self, self._open & ~bit)
        answered(self, bit)

    def at_last(self):
        lower(self, self._open)
        if not self._decided and self.granted >= self.quorum:
            self._decide(_rules.quorum.Verdict.WON)
        all_answered(self)

    with (
        patch.object(_rounds.round.Round, "_answered", without_grant),
        patch.object(_rounds.round.Round, "_all_answered", at_last),
    ):
        yield


@mutant("at expiry")
def no_validity_check():
    """Grants count regardless of how long they took."""
    with (
        patch.object(_runtime.acquisition.Acquisition, "_in_time", lambda self, _round, _now: not self._context.closed),
        patch.object(_rules.lease_timing, "validity", lambda ttl, _drift: ttl),
        broken("validity_from_the_replies"),
    ):
        yield


@mutant("at expiry", "mixed")
def validity_from_the_replies():
    """The lease begins when the grants are read, not when they were asked for."""
    init = _runtime.held_lease.HeldLease.__init__

    def late(self, keeper, claim, token, fence, options, _granted_at, **votes):
        init(self, keeper, claim, token, fence, options, keeper.now(), **votes)

    with patch.object(_runtime.held_lease.HeldLease, "__init__", late):
        yield


@mutant("at expiry", "mixed")
def no_drift():
    """Validity is the whole ttl, without an allowance for clock drift."""
    with patch.object(_rules.lease_timing, "validity", lambda ttl, _drift: ttl):
        yield


# Tokens and releases


@mutant("mixed", "smallest")
def one_token_for_all():
    """Every attempt of every process has the same token."""
    with patch.object(_rounds.context.Context, "fresh_token", lambda _self, _label=b"": b"0" * 32 + b":all"):
        yield


@mutant("late")
def token_reused_across_attempts():
    """A process has one token."""
    with patch.object(
        _rounds.context.Context, "fresh_token", lambda self, _label=b"": b"%032d:p" % self.environment.index
    ):
        yield


@mutant("mixed", "late")
def release_only_to_granting_nodes():
    """Nodes whose reply is missing get no release."""

    def release_votes(self, round_):
        _runtime.lease_registry.give_back(self._context, self._asked_for, self._token, round_.granted_mask)

    with patch.object(_runtime.acquisition.Acquisition, "_release_votes", release_votes):
        yield


@mutant("mixed", "late")
def release_without_comparing():
    """A release deletes any value."""
    with rewritten("mutex_release", ("redis.call('GET', KEYS[i]) == ARGV[1]", "true")):
        fallback = _transport.commands.DeleteIfEqual._fallback
        with patch.object(
            _transport.commands.DeleteIfEqual, "pack", lambda self, dialect: fallback(self).pack(dialect)
        ):
            yield


@mutant("late")
def old_connections_are_not_ended():
    """A new connection begins while the old one may still deliver."""

    def end_old(self, _wire, identity):
        old, self.connection, self._adopted = self.connection, None, identity
        if old is not None:
            old.close(ConnectionResetError("replaced by a new connection"))
            old.abort()

    with patch.object(_transport.node.Node, "_end_old_connections", end_old):
        yield


@mutant("late")
def undelivered_releases_are_forgotten():
    """A release that could not be delivered is not sent again."""
    with patch.object(_transport.node.Node, "queue_release", lambda _self, _command, _until=0: None):
        yield


@mutant("mixed", "late")
def no_release_after_a_cancellation():
    """A cancelled acquire leaves its grants behind."""

    def release_votes(self, round_):
        if round_.outcome.cancelled() or not round_.outcome.done():
            return
        _runtime.lease_registry.give_back(self._context, self._asked_for, self._token, round_.sent_mask)

    with patch.object(_runtime.acquisition.Acquisition, "_release_votes", release_votes):
        yield


# Renewal and loss


@mutant("at expiry", "mixed")
def extension_after_the_deadline():
    """A confirmation counts although the lease has already expired."""

    def extended(self, sent_at, now, ttl):
        if self.phase is not _rules.lease_timing.Phase.HELD:
            return False
        self.ttl = ttl
        self.until = max(self.until, sent_at + _rules.lease_timing.validity(ttl, self.drift_factor))
        return self.seen(sent_at, now)

    # Nothing is lost because it is late, either.
    with (
        patch.object(_rules.lease_timing.LeaseTiming, "extended", extended),
        patch.object(_rules.lease_timing.LeaseTiming, "lose_at", property(lambda self: self.until + self.ttl)),
    ):
        yield


@mutant("at expiry", "mixed")
def extension_by_a_minority():
    """A renewal counts when any node confirms it."""

    def confirm(self, request, bit):
        lease = request.lease
        request.ours |= bit
        lease.on_vote(bit)
        request.decide(held=lease.extended(self.started_at, self._context.now(), request.ttl))

    def count(self, request, bit, state):
        if request.lease.phase is _rules.lease_timing.Phase.HELD and state == 1:
            confirm(self, request, bit)

    with patch.object(_runtime.extension.Extension, "_count", count):
        yield


@mutant("forced")
def extension_of_a_strangers_key():
    """Nodes extend any key and report it as ours."""
    with rewritten("mutex_extend", ("if holder == ARGV[2 * i - 1] then", "if holder then")):
        yield


@mutant("smallest")
def own_lease_is_not_found():
    """A renewal does not find its lease, although nothing has failed."""
    with rewritten("mutex_extend", ("if holder == ARGV[2 * i - 1] then", "if false then")):
        yield


@mutant("forced")
def repair_after_a_majority_has_lost_it():
    """A lease that was force-released on most nodes is stored there again: a renewal undoes a force-release."""

    def count(self, request, bit, state):
        if request.lease.phase is not _rules.lease_timing.Phase.HELD:
            return
        if state == 1:
            self._confirm(request, bit)
        elif state == 0:
            request.missing |= bit

    with patch.object(_runtime.extension.Extension, "_count", count):
        yield


@mutant("mixed", "at expiry")
def body_is_not_cancelled():
    """The lease is lost, but the block is not cancelled."""
    with patch.object(_runtime.held_lease.HeldLease, "add_loss_callback", lambda _self, _callback: None):
        yield


@mutant("mixed", "at expiry")
def body_is_cancelled_late():
    """The block is cancelled after the deadline."""
    with patch.object(_rules.lease_timing.LeaseTiming, "lose_at", property(lambda self: self.until + 0.05)):
        yield


@mutant("mixed", "late")
def renewal_after_release():
    """A lease that was released is renewed, and repaired where it is missing."""
    end = _runtime.lease_registry.LeaseRegistry._end

    def revived(self, lease, **options):
        released, context = end(self, lease, **options), lease.context
        command = lease.kind.reassert(lease.token, lease.fence, round(lease.ttl * 1000))
        context.loop.call_later(0.001, lambda: context.closed or context.send_to_all(command, lease.ttl))
        return released

    with patch.object(_runtime.lease_registry.LeaseRegistry, "_end", revived):
        yield


@mutant("forced from afar")
def force_release_deletes_at_once():
    """The key is missing on the first nodes while the last ones still have it, so the holder sets it again."""
    with rewritten("mutex_force", ("redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])", "")):
        yield


# Fencing


@mutant("mixed")
def fence_without_write_back():
    """The largest reply is the token, but no quorum stores it."""
    with patch.object(
        _runtime.acquire_round, "choose", lambda replies, needed: (_rules.fencing.choose(replies, needed)[0], True)
    ):
        yield


@mutant("fences")
def fence_write_back_without_owning():
    """The token is stored on nodes where another client may hold the lock by now."""
    with rewritten("mutex_reassert", ("if holder ~= token and (holder or ttl == 0) then return 0 end", "")):
        yield


@mutant("mixed")
def fence_from_the_smallest_reply():
    """The smallest reply is the token, not the largest."""
    with patch.object(_runtime.acquire_round, "choose", lambda replies, _needed: (min(replies), True)):
        yield


@mutant("mixed")
def fence_from_the_clock_alone():
    """The registers are ignored."""
    with rewritten("mutex_acquire", ("above or now - most", "0")):
        yield


@mutant("mixed", "at expiry")
def unfenced_reader_leaves_the_register():
    """The first of several readers wants no fence, and does not raise the register for the readers that join it."""
    init = _kinds.rwlock.Read.__init__

    def elsewhere(self, keys, name, *, fenced):
        init(self, keys, name, fenced=fenced)
        if not fenced:
            self._fence_key = keys.fence(b"another")

    with patch.object(_kinds.rwlock.Read, "__init__", elsewhere):
        yield


# Connections


@mutant("first contact")
def a_fault_is_taken_for_a_proxy():
    """One reset at the first connection is enough to ask the server less, and to go without client tracking."""
    with patch.object(_transport.node, "CONFIRMATIONS", 1):
        yield


@mutant("reconnects")
def dead_connection_is_adopted():
    """A new connection is used although it ended in the same step as its last reply."""
    with patch.object(_transport.node, "_check_alive", lambda _wire: None):
        yield


@mutant("late")
def undelivered_releases_are_given_up():
    """A release is kept for a limited time, although its acquire may be executed later."""
    clean_later = _transport.node.Node.queue_release

    def for_a_second(self, command, until=math.inf):
        clean_later(self, command, min(until, self._cluster.now() + 1))

    with patch.object(_transport.node.Node, "queue_release", for_a_second):
        yield


# Waiting


@mutant("mixed", "smallest")
def wake_up_is_lost():
    """Waiters are not notified of changes and do not check on their own."""

    def plan(_self, _round, *, failed):  # noqa: ARG001 - its signature
        return _runtime.retry.RetryPlan(math.inf, armed=True)

    with (
        patch.object(_runtime.acquisition.Acquisition, "on_remote_change", lambda *_: None),
        patch.object(_runtime.acquisition.Acquisition, "wake", lambda *_: None),
        patch.object(_runtime.retry.Retries, "plan", plan),
    ):
        yield


@mutant("mixed")
def turn_is_not_passed_on():
    """A cancelled waiter keeps its turn."""
    with patch.object(_runtime.local_queues.LocalQueues, "on_failed", lambda _self, _keys: None):
        yield
