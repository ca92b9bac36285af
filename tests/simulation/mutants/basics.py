"""The rules of the protocol, each broken: the schedules must notice. Only here; the package has no switch for it."""

import math
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

from redlock_async import (
    _acquire,
    _anteroom,
    _contest,
    _engine,
    _extension,
    _fencing,
    _holding,
    _lease,
    _masters,
    _node,
    _quorum,
    _readwrite,
    _round,
    _scripts,
)

MUTANTS = {}
"""By name: a context in which the library is broken, and the families of schedules that are aimed at it."""


def mutant(*families):
    """Declare one; its docstring says which rule it breaks."""

    def declare(function):
        MUTANTS[function.__name__] = (contextmanager(function), families)
        return function

    return declare


@contextmanager
def rewritten(name, *changes):
    """A script with some of its words replaced."""
    original = _scripts.script(name)
    source = original.source.decode()
    for old, new in changes:
        assert old in source, f"{old!r} is not in {name}.lua any more"
        source = source.replace(old, new)
    changed = _scripts.Script.__new__(_scripts.Script)
    changed.name, changed.source = name, source.encode()
    changed.sha = _scripts.sha1(changed.source, usedforsecurity=False).hexdigest().encode()
    real = _scripts.script

    def script(wanted):
        return changed if wanted == name else real(wanted)

    with patch.object(_scripts, "script", script), patch.object(_node, "script", script):
        yield


# Votes and validity


@mutant("mixed", "smallest")
def quorum_one_too_small():
    """Q = N/2 of N instead of N/2 + 1."""
    with patch.object(_masters, "majority", lambda nodes: max(nodes // 2, 1)):
        yield


@mutant("mixed", "bare majority")
def quorum_of_those_that_answer():
    """A majority of the reachable nodes, not of the configured ones."""
    answered, all_answered = _round.Round._answered, _round.Round._all_answered

    def lower(self, left):
        if self.elects and not left and self.granted > (self.asked - self.failed) / 2:
            self.needed = self.granted

    def without_grant(self, bit):
        lower(self, self._open & ~bit)
        answered(self, bit)

    def at_last(self):
        lower(self, self._open)
        if not self._settled and self.granted >= self.needed:
            self._settle(_quorum.Verdict.WON)
        all_answered(self)

    with patch.object(_round.Round, "_answered", without_grant), patch.object(_round.Round, "_all_answered", at_last):
        yield


@mutant("at expiry")
def no_validity_check():
    """Grants count however long they took."""
    with (
        patch.object(_contest.Contest, "_in_time", lambda self, _round: not self._ground.closed),
        patch.object(_lease, "validity", lambda ttl, _drift: ttl),
        broken("validity_from_the_replies"),
    ):
        yield


@mutant("at expiry", "mixed")
def validity_from_the_replies():
    """The lease begins when the grants are read, not when they were asked for."""
    init = _holding.Holding.__init__

    def late(self, keeper, claim, token, fence, options, _granted_at, **votes):
        init(self, keeper, claim, token, fence, options, keeper.now(), **votes)

    with patch.object(_holding.Holding, "__init__", late):
        yield


@mutant("at expiry", "mixed")
def no_drift():
    """Validity is the whole ttl, whatever the clocks do."""
    with (
        patch.object(_lease, "validity", lambda ttl, _drift: ttl),
        patch.object(_quorum, "validity", lambda ttl, _: ttl),
    ):
        yield


# Tokens and releases


@mutant("mixed", "smallest")
def one_token_for_all():
    """Every attempt of every process has the same token."""
    with patch.object(_engine.Engine, "fresh_token", lambda _self: b"0" * 32 + b":all"):
        yield


@mutant("late")
def token_reused_across_attempts():
    """A process has one token."""
    with patch.object(_engine.Engine, "fresh_token", lambda self: b"%032d:p" % self.world.index):
        yield


@mutant("mixed", "late")
def release_only_to_granting_nodes():
    """What was not heard of is not released."""

    def give_back(self, round_):
        self._ground.give_back(self._claim, self._token, round_.holders)

    with patch.object(_contest.Contest, "_give_back", give_back):
        yield


@mutant("mixed", "late")
def release_without_comparing():
    """Whatever is there is deleted."""
    with rewritten("mutex_release", ("redis.call('GET', KEYS[i]) == ARGV[1]", "true")):
        fallback = _scripts.DeleteIfEqual._fallback
        with patch.object(_scripts.DeleteIfEqual, "pack", lambda self, dialect: fallback(self).pack(dialect)):
            yield


@mutant("late")
def old_connections_are_not_ended():
    """A new connection begins while the old one may still deliver."""

    def end_old(self, _wire, identity):
        old, self.wire, self._adopted = self.wire, None, identity
        if old is not None:
            old.close(ConnectionResetError("replaced by a new connection"))
            old.abort()

    with patch.object(_node.Node, "_end_old_connections", end_old):
        yield


@mutant("late")
def undelivered_releases_are_forgotten():
    """A release that could not be delivered is not sent again."""
    with patch.object(_node.Node, "clean_later", lambda _self, _command, _until=0: None):
        yield


@mutant("mixed", "late")
def no_release_after_a_cancellation():
    """A cancelled acquire leaves what it has got."""
    win = _contest.Contest.win

    async def careless(self):
        try:
            return await win(self)
        finally:
            pass

    def give_back(self, round_):
        if round_.outcome.cancelled() or not round_.outcome.done():
            return
        self._ground.give_back(self._claim, self._token, round_.reached)

    with patch.object(_contest.Contest, "_give_back", give_back), patch.object(_contest.Contest, "win", careless):
        yield


# Renewal and loss


@mutant("at expiry", "mixed")
def extension_after_the_deadline():
    """A confirmation counts although the lease had run out before."""

    def extended(self, sent_at, now, ttl):
        if self.phase is not _lease.Phase.HELD:
            return False
        self.ttl = ttl
        self.until = max(self.until, sent_at + _lease.validity(ttl, self.drift_factor))
        return self.seen(sent_at, now)

    # Nothing is lost because it is late, either.
    with (
        patch.object(_lease.Term, "extended", extended),
        patch.object(_lease.Term, "lose_at", property(lambda self: self.until + self.ttl)),
    ):
        yield


@mutant("at expiry", "mixed")
def extension_by_a_minority():
    """A renewal stands when any node confirms it."""

    def confirm(self, request, bit):
        holding = request.holding
        request.ours |= bit
        holding.votes |= bit
        now = self._clients.now()
        self._decide(request, held=holding.extended(request.sent_at, now, request.ttl))

    def count(self, request, bit, state):
        if request.holding.phase is _lease.Phase.HELD and state == 1:
            confirm(self, request, bit)

    with patch.object(_extension.Extension, "_count", count):
        yield


@mutant("forced")
def extension_of_a_strangers_key():
    """The nodes lengthen whatever is there, and say it is ours."""
    with rewritten("mutex_extend", ("if holder == ARGV[2 * i - 1] then", "if holder then")):
        yield


@mutant("smallest")
def own_lease_is_not_found():
    """A renewal finds none, though nothing has failed."""
    with rewritten("mutex_extend", ("if holder == ARGV[2 * i - 1] then", "if false then")):
        yield


@mutant("forced")
def repair_after_a_majority_has_lost_it():
    """A lease that was freed on most nodes is set again there: a renewal undoes a force-release."""

    def count(self, request, bit, state):
        if request.holding.phase is not _lease.Phase.HELD:
            return
        if state == 1:
            self.confirm(request, bit)
        elif state == 0:
            request.missing |= bit

    with patch.object(_extension.Extension, "_count", count):
        yield


@mutant("mixed", "at expiry")
def body_is_not_cancelled():
    """The lease is lost, and nobody tells the body."""
    with patch.object(_holding.Holding, "on_loss", lambda _self, _callback: None):
        yield


@mutant("mixed", "at expiry")
def body_is_cancelled_late():
    """At a moment past the deadline."""
    with patch.object(_lease.Term, "lose_at", property(lambda self: self.until + 0.05)):
        yield


@mutant("mixed", "late")
def renewal_after_release():
    """A lease that was released is renewed, and repaired where it is missing."""
    end = _engine.Engine.end

    def revived(self, holding, **options):
        released = end(self, holding, **options)
        command = holding.claim.secure(holding.token, holding.fence, round(holding.ttl * 1000))
        self.loop.call_later(0.001, lambda: self.closed or self.tell_all(command, holding.ttl))
        return released

    with patch.object(_engine.Engine, "end", revived):
        yield


# Fencing


@mutant("mixed")
def fence_without_write_back():
    """The largest reply is the token, though no quorum stores it."""
    with patch.object(_acquire, "choose", lambda replies, needed: (_fencing.choose(replies, needed)[0], True)):
        yield


@mutant("fences")
def fence_write_back_without_owning():
    """The token is stored on nodes where somebody else may hold the lock by now."""
    with rewritten("mutex_secure", ("if holder ~= token and (holder or ttl == 0) then return 0 end", "")):
        yield


@mutant("mixed")
def fence_from_the_smallest_reply():
    """Not the largest."""
    with patch.object(_acquire, "choose", lambda replies, _needed: (min(replies), True)):
        yield


@mutant("mixed")
def fence_from_the_clock_alone():
    """The registers are not looked at."""
    with rewritten("mutex_acquire", ("stored and tonumber(stored) + 1 or now - 1000000", "0")):
        yield


@mutant("mixed", "at expiry")
def unfenced_reader_leaves_the_register():
    """The first of some readers wants no fence, and does not raise the register for those who join it."""
    init = _readwrite.Read.__init__

    def elsewhere(self, keys, name, *, fenced):
        init(self, keys, name, fenced=fenced)
        if not fenced:
            self._fence = keys.fence(b"another")

    with patch.object(_readwrite.Read, "__init__", elsewhere):
        yield


# Restarts


@mutant("bare majority")
def no_restart_hold():
    """A node that lost its data votes at once."""
    with patch.object(_masters, "held_out", lambda ages, *_, **__: [0.0] * len(ages)):
        yield


@mutant("bare majority")
def flush_is_not_noticed():
    """A node that was emptied while it ran votes on."""

    def invalidated(self, node, keys):
        for key in (None,) if keys is None else keys:
            self._watcher.key_changed(node, key)

    with patch.object(_masters.Masters, "invalidated", invalidated):
        yield


@mutant("bare majority")
def restart_hold_is_too_short():
    """Half of the longest ttl."""
    real = _masters.held_out

    def half(ages, needed, longest, *rest, **named):
        return real(ages, needed, longest / 2, *rest, **named)

    with patch.object(_masters, "held_out", half):
        yield


@mutant("bare majority")
def founding_is_not_looked_at():
    """A node is only compared with what a majority has, and not with the first majority there was."""
    real = _masters.held_out

    def without(ages, needed, longest, late, _founded, **rest):
        return real(ages, needed, longest, [False] * len(late), 0.0, **rest)

    with patch.object(_masters, "held_out", without):
        yield


@mutant("reconnects")
def dead_connection_is_adopted():
    """Nobody looks whether a new connection has ended in the step that brought its last answer."""
    with patch.object(_node, "_check_alive", lambda _wire: None):
        yield


@mutant("late")
def undelivered_releases_are_given_up():
    """A release is kept for a time, though its acquire may be carried out later."""
    clean_later = _node.Node.clean_later

    def for_a_second(self, command, until=math.inf):
        clean_later(self, command, min(until, self._cluster.now() + 1))

    with patch.object(_node.Node, "clean_later", for_a_second):
        yield


# Waiting


@mutant("mixed", "smallest")
def wake_up_is_lost():
    """Nobody is told of a change, and nobody looks by himself."""

    def chance(_self, _round):
        return _contest.Chance(math.inf, armed=True)

    with (
        patch.object(_contest.Contest, "freed", lambda *_: None),
        patch.object(_contest.Contest, "wake", lambda *_: None),
        patch.object(_contest.Contest, "_chance", chance),
    ):
        yield


@mutant("mixed")
def turn_is_not_passed_on():
    """A cancelled waiter keeps its turn."""
    with patch.object(_anteroom.Anteroom, "leave", lambda self, claim, contest, *, pass_on, won=False: None):  # noqa: ARG005 - its signature
        yield


@contextmanager
def broken(name):
    """The library with that rule broken."""
    with ExitStack() as stack:
        stack.enter_context(MUTANTS[name][0]())
        yield
