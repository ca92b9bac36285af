"""From `acquire` to the lease: a turn among the tasks of this process, then attempts, and the waits between them."""

from __future__ import annotations

import asyncio
import math
from copy import copy
from functools import partial

from redlock_async._kinds.kind import LockKind, Refusal
from redlock_async._rounds.context import Context, give_up, resolve
from redlock_async._rounds.round import Round
from redlock_async._rules.lease_timing import validity
from redlock_async._rules.quorum import WON, Verdict
from redlock_async._rules.settings import Options
from redlock_async._rules.token import owner_of, token_label
from redlock_async._transport.commands import Command
from redlock_async._transport.node import Node
from redlock_async.errors import LockTimeout, QuorumUnavailable, RedlockError
from redlock_async.events import Kind

from .acquire_round import MIN_HEDGE_DELAY, AcquireRound, FenceRound
from .held_lease import Caller, HeldLease
from .lease_registry import give_back
from .local_queues import MAX_CONSECUTIVE_LEASES, NotServedError
from .lock_errors import could_not_lock, held_here, queued_behind, queued_in_vain, timed_out
from .retry import Retries
from .self_deadlock import advice, reject_self_deadlock, warn_self_deadlock
from .session import Session


async def acquire(session: Session, kind: LockKind, options: Options, owner: Caller | None) -> HeldLease:
    """Return a lease, registered and renewed, or raise the error that says why not."""
    context, registry, membership = session.context, session.registry, session.context.membership
    if registry.sharing and not kind.shared:
        reject_self_deadlock(registry, kind)
    started = context.now()
    deadline = None if options.wait is None else started + options.wait
    if deadline is None and len(registry):
        warn_self_deadlock(registry, kind)
    try:
        if options.ttl + options.takeover_delay > membership.longest_ttl:
            # Before any node is admitted: in a new cluster it may be all that is known.
            membership.use_ttl(options.ttl + options.takeover_delay)
        if not membership.usable:
            await membership.start(options.wait)
        # Nearly always the turn on the only name is free. Shared kinds queue once they are refused.
        keys = kind.local_queue_keys
        served = kind.shared or (len(keys) == 1 and session.queues.take(keys[0]))
        streak = 0 if served else await _queue(session, kind, options, deadline)
        lease = await Acquisition(session, kind, options, deadline).run(streak, owner)
    except LockTimeout as exc:
        _report(context, kind, context.counters.in_vain(options.wait), started, holder=exc.holder)
        raise
    except QuorumUnavailable as exc:
        context.counters.unavailable += 1
        _report(context, kind, "unavailable", started, error=exc)
        raise
    except asyncio.CancelledError:
        context.counters.cancelled += 1
        _report(context, kind, "cancelled", started)
        raise
    except Exception as exc:
        context.counters.failed += 1
        _report(context, kind, "failed", started, error=exc)
        raise
    context.counters.acquired += 1
    if context.events.failing or context.observed:
        context.report("acquired", kind.names, kind.label, seconds=context.now() - started)
    return lease


def _report(context: Context, kind: LockKind, event: Kind, since: float, **details: object) -> None:
    context.report(event, kind.names, kind.label, seconds=context.now() - since, **details)


async def _queue(session: Session, kind: LockKind, options: Options, deadline: float | None) -> int:
    """Wait for the turn among the tasks of this process; return how many leases it took in a row."""
    try:
        return await session.queues.enter(kind, deadline)
    except NotServedError as exc:
        error = _not_served(session, kind, options, exc)
    raise error  # outside the `except`: its context would keep the queue alive


def _not_served(session: Session, kind: LockKind, options: Options, exc: NotServedError) -> Exception:
    if exc.queue.informed:
        return exc.queue.error_for(kind, options.wait)
    # All the slots of a semaphore queue under no key of their own.
    leases = (session.registry.get(key) for key in (exc.key, *kind.watched_keys))
    lease = next((lease for lease in leases if lease is not None), None)
    if lease is None:
        return queued_in_vain(session.context, kind, options.wait)
    return held_here(session.context, kind, options.wait, lease, advice(session.registry, kind))


class Acquisition:
    """Attempts until one succeeds or the wait is over."""

    # Most succeed at the first attempt, and change nothing of this.
    _round: AcquireRound | None = None
    _refused_at = 0.0
    _wake: asyncio.Future[bool] | None = None
    _backup: asyncio.TimerHandle | None = None
    _missed = False
    """Whether it was woken while an attempt was under way."""
    _last_error: Exception | None = None
    """The error of the last attempt, unless it was refused."""
    _no_quorum: tuple[Round, str] | None = None
    """The round that failed in the last attempt, if too few nodes could vote, and the beginning of the message."""
    _has_asked = False
    _label = b""
    """What the token says of the lease besides its owner."""
    _known_retries: Retries | None = None
    waiting = 1

    def __init__(self, session: Session, kind: LockKind, options: Options, deadline: float | None) -> None:
        self._context = context = session.context
        self._session = session
        self._kind = self._asked_for = kind
        """The kind, and the same with the slots that the last attempt asked for."""
        self._attempt = kind.start(context)
        self._options = options
        if options.takeover_delay or options.label is not None:
            owner = context.settings.owner if options.label is None else options.label
            self._label = token_label(owner, options.takeover_delay)
        self._deadline = deadline
        self._timeout = context.node_timeout if 4 * context.node_timeout < options.ttl else options.ttl / 4
        """Of each round."""
        self._token = b""
        """The last attempt's."""
        self._has_turn = not kind.shared
        """Whether it has the turn among the tasks of this process; a shared kind only queues once it is refused."""

    async def run(self, streak: int, owner: Caller | None) -> HeldLease:
        """Return the lease, or raise the error that ended the wait; the process took `streak` leases in a row."""
        context, kind, queues, attempt = self._context, self._kind, self._session.queues, self._attempt
        if self._has_turn:
            queues.begin(kind.local_queue_keys, self)
        context.wakeups.watch(attempt.watched_keys, self)
        try:
            if not self._has_turn and queues.get(kind.local_queue_keys[0]) is not None:
                await self._queue_up()
            if streak >= MAX_CONSECUTIVE_LEASES:
                queues.reset_streak(kind.local_queue_keys)
                # Other processes have been notified that it is free, and are two trips behind us.
                await asyncio.sleep(context.random.uniform(2, 3) * context.round_trip)
            probe, first = None, True
            while True:
                if attempt.needs_prepare:
                    await self._prepare()
                round_ = self._ask(probe, first=first)
                try:
                    if self._is_granted(round_, await round_.outcome):
                        fence, stored = round_.fence() if kind.fenced else (None, True)
                        if stored or await self._store(round_, fence):
                            break
                except BaseException:
                    # Sent before anything else can run: on each connection it stands right behind its acquire.
                    round_.abandon()
                    self._release_votes(round_)
                    raise
                self._release_votes(round_)
                first = False
                probe = await self._wait_for_retry()
        except BaseException:
            self._leave()
            raise
        return self._take(round_, fence, owner)

    def _leave(self) -> None:
        """End without the lock."""
        keys, wakeups = self._attempt.watched_keys, self._context.wakeups
        wakeups.unwatch(keys, self)
        if self._has_turn:
            self._session.queues.on_failed(self._kind.local_queue_keys)
        self._clean_up()
        wakeups.retry_local(keys, ())

    def _take(self, round_: AcquireRound, fence: int | None, owner: Caller | None) -> HeldLease:
        """Return the lease that was granted, registered."""
        context, kind, watched_keys = self._context, self._kind, self._attempt.watched_keys
        cleaned_up = kind.stateful and self._clean_up()
        lease = HeldLease(context, self._asked_for, self._token, fence, self._options, round_.started_at)
        lease.on_acquired(owner, round_.sent_mask, round_.granted_mask, owns_local_turn=kind.keeps_local_turn)
        round_.when_granted_late(lease.on_vote)
        context.wakeups.unwatch(watched_keys, self)
        if self._has_turn:
            self._session.queues.on_acquired(kind)
        if cleaned_up and not kind.keeps_local_turn:
            context.wakeups.retry_local(watched_keys, ())  # the nodes report it to others, not to us
        self._session.registry.add(lease)
        return lease

    def _clean_up(self) -> bool:
        command = self._attempt.cleanup()
        if command is not None:
            self._context.send_to_all(command, self._options.ttl)
        return command is not None

    def close(self) -> Command | None:
        """Release what the attempt under way may get: the client is closed. Return what every node must be sent."""
        if self._round is not None:
            self._round.call_off()
            # Behind its acquire on every connection; soon there is none. After an attempt that is over it does no harm.
            self._release_votes(self._round)
        self.wake()
        return self._attempt.cleanup()

    @property
    def _retries(self) -> Retries:
        # Most acquisitions succeed at the first attempt, and need none.
        if self._known_retries is None:
            self._known_retries = Retries(self._context, self._kind)
        return self._known_retries

    # One attempt

    async def _prepare(self) -> None:
        """Let the attempt find out or wait for what it needs, or raise the error that ended the wait."""
        if not await self._attempt.prepare(self._deadline):
            raise await self._give_up()

    def _ask(self, probe: Node | None, *, first: bool) -> AcquireRound:
        """Send the commands of an attempt."""
        context, attempt, ttl = self._context, self._attempt, self._options.ttl
        context.counters.attempts += 1
        self._missed = False
        # Fresh for each attempt: with a reused one, the late release of this attempt would delete the next one's key.
        self._token = token = context.fresh_token(self._label)
        build = attempt.first_command if first else attempt.retry_command
        candidate = context.wall_us()
        command = build(token, round((ttl + self._options.takeover_delay) * 1000), candidate)
        self._asked_for = attempt.granted_kind()
        self._round = round_ = AcquireRound(context, attempt, command, self._timeout, candidate)
        if round_.started_at >= round_.clocks.fresh_until:
            round_.clocks.refresh()  # in front of the command, so that it need not wait
        if probe is None:
            round_.ask_all()
        else:
            round_.probe(probe)
        return round_

    def _is_granted(self, round_: AcquireRound, verdict: Verdict) -> bool:
        """Whether a quorum granted the lock, in time; otherwise, note the error if there is one."""
        self._last_error = None
        if verdict is WON and self._in_time(round_):
            self._context.observe_round_trip(self._context.now() - round_.started_at)
            return True
        self._no_quorum = None
        if verdict is Verdict.UNREACHABLE:
            self._on_no_quorum(round_, could_not_lock(self._kind.names))
        return False

    def _on_no_quorum(self, round_: Round, what: str) -> None:
        self._no_quorum = round_, what
        self._last_error = round_.unavailable(what, self._kind.names)

    def _in_time(self, round_: AcquireRound) -> bool:
        """Whether a lease granted by that round is still valid."""
        context, ttl = self._context, self._options.ttl
        if context.now() < round_.started_at + validity(ttl, context.drift_factor):
            return not context.closed
        names = self._kind.names
        why = f"nodes answered too slowly for ttl={ttl:g} s. Increase ttl, or check latency with `redlock-async status`"
        self._last_error = QuorumUnavailable(f"{could_not_lock(names)}: {why}", names=names)
        return False

    async def _store(self, granted: AcquireRound, fence: int | None) -> bool:
        """Have a quorum store the fencing token; return whether the lease is still valid then."""
        context, kind = self._context, self._asked_for
        command = kind.reassert(self._token, fence, 0)
        round_ = FenceRound(context, command, self._timeout)
        round_.ask_all()
        if await round_.outcome is WON:
            return self._in_time(granted)
        self._on_no_quorum(round_, f"{could_not_lock(kind.names)}: its fencing token was not stored")
        return False

    def _release_votes(self, round_: AcquireRound) -> None:
        context, kind = self._context, self._asked_for
        give_back(context, kind, self._token, round_.sent_mask)
        context.wakeups.votes_returned(kind.written_keys, round_.granted_mask)
        # Votes that we do not know of yet may have stopped others of this process as well.
        round_.when_granted_late(partial(context.wakeups.late_votes_returned, kind.written_keys))

    # Between attempts

    async def _wait_for_retry(self) -> Node | None:
        """Wait until another attempt is worthwhile; return the node to ask first, if one is to be."""
        context, attempt, round_ = self._context, self._attempt, self._round
        assert round_ is not None  # noqa: S101 - an attempt came before
        if context.closed:
            raise RedlockError(f"{could_not_lock(self._kind.names)}: the client was closed")
        self._refused_at = context.now()
        left = math.inf if self._deadline is None else self._deadline - self._refused_at
        await self._raise_if_fatal(round_, last=left <= 0)
        if self._last_error is None and self._has_other_question(round_):
            return None  # even with no time left: one try takes as many questions as it needs
        self._has_asked = True
        attempt.on_failure(self._last_error)
        if self._last_error is None:
            self._report_refusal(round_, left)
        elif round_.failed > round_.spare:
            self._reject_one_shot_when_sure(round_)  # the others need not find out for themselves
        if left <= 0:
            await self._retry_split_vote(round_, left)
            return None
        if await self._queue_up():
            return None  # the last replies are out of date
        plan = self._retries.plan(round_, failed=self._last_error is not None)
        woken = plan.seconds > 0 and await self._sleep(round_, min(plan.seconds, left), armed=plan.armed)
        last = plan.seconds >= left and not woken
        if self._last_error is not None:
            await self._raise_if_fatal(round_, last=last)  # only now that the others have replied as well
        if last and not round_.only_first_asked:  # one node alone cannot say why: then all of them are asked once more
            raise await self._give_up()
        if spread := self._retries.slot_spread(round_, woken=woken):
            await asyncio.sleep(min(context.random.uniform(0, spread), left))
        return self._retries.first_choice(raced=woken or plan.race, may_probe=attempt.may_probe)

    def _has_other_question(self, round_: AcquireRound) -> bool:
        """Whether the next attempt asks for something else, or in a form that says more, and need not wait."""
        if self._attempt.retry_now(round_.refusals, self._context.spare):
            self._retries.on_other_question()
            return True
        return round_.holder()[0] is None  # a plain SET says neither who holds it nor whether it is a lock

    async def _queue_up(self) -> bool:
        """Wait behind the tasks of this process that were refused; return whether there were any.

        For those that share a lock, which ask together until they are refused. Then one of them asks for all.
        """
        kind, queues, wakeups = self._kind, self._session.queues, self._context.wakeups
        if self._has_turn or not kind.joins_queue:
            return False
        (key,) = kind.local_queue_keys
        queue = queues.get(key)
        if queue is None:
            self._has_turn = queues.take(key)
        else:
            wakeups.unwatch(kind.watched_keys, self)  # it asks no node meanwhile
            try:
                await queues.wait(key, self._deadline, exclusive=kind.keeps_local_turn)
            except NotServedError as exc:
                raise _not_served(self._session, kind, self._options, exc) from None
            finally:
                wakeups.watch(kind.watched_keys, self)
            self._has_turn = queues.get(key) is queue
        if self._has_turn:
            queues.begin(kind.local_queue_keys, self)
        return queue is not None

    async def _raise_if_fatal(self, round_: AcquireRound, *, last: bool) -> None:
        if error := round_.fatal_error(self._kind.names, last=last):
            if isinstance(error, QuorumUnavailable):
                await round_.hear_all()
                error = round_.fatal_error(self._kind.names, last=last) or error
            self._has_asked, self._last_error, self._no_quorum = True, error, None
            raise error

    def _report_refusal(self, round_: AcquireRound, left: float) -> None:
        context, kind = self._context, self._kind
        # A task that gives up, and wanted several names, does not know about each of them.
        if left > 0 or (len(kind.local_queue_keys) == 1 and self._is_held(round_)):
            self._reject_one_shot_when_sure(round_)
        context.counters.refused += 1
        if context.observed:
            took, holder = context.now() - round_.started_at, owner_of(round_.holder()[0])
            context.report("contended", kind.names, kind.label, seconds=took, holder=holder)

    def _reject_one_shot_when_sure(self, round_: AcquireRound) -> None:
        """Reject the tasks of this process that try once as soon as it is certain why they do not get the lock."""
        if self._round is not round_:
            return  # the next attempt does it
        if self._is_certain(round_):
            self._session.queues.on_refused(self._kind.local_queue_keys, self)
        else:
            self._context.call_later(MIN_HEDGE_DELAY, self._reject_one_shot_when_sure, round_)

    async def _retry_split_vote(self, round_: AcquireRound, left: float) -> None:
        """With no time to wait: give up if another client has the lock; return if it may be that none does.

        Contenders that try once, at the same moment, can split the votes. If each took the others for a holder, none
        would get the lock: a job that all machines start by the same cron would be skipped by all of them.
        """
        context = self._context
        once = self._options.wait == 0 and not self._kind.shared
        if not once or self._last_error is not None or self._is_held(round_) or left + context.node_timeout <= 0:
            raise await self._give_up()
        await asyncio.sleep(self._retries.split_vote_pause())
        if self._is_held(round_):
            raise await self._give_up()
        self._retries.on_lost_race()

    def _is_held(self, round_: AcquireRound) -> bool:
        """Whether another client has the lock, or comes first."""
        ahead = any(refusal.ahead for refusal in round_.refusals.values())
        return ahead or (round_.has_known_holder and not self._attempt.lost_races)

    async def _sleep(self, round_: AcquireRound, seconds: float, *, armed: bool) -> bool:
        """Wait; return whether a report ended the wait."""
        context = self._context
        if self._missed or (armed and round_.could_win):
            return True
        self._wake = context.loop.create_future()
        timer = context.call_later(seconds, give_up, self._wake)
        if armed and round_.any_freed:
            self._arm_backup()
        try:
            return await self._wake
        finally:
            timer.cancel()
            if self._backup is not None:
                self._backup.cancel()
                self._backup = None
            self._wake = None

    # Waking up

    def on_remote_change(self, node: int, key: bytes | None) -> None:
        """The lock changed on that node. A quorum of such reports, or a moment without more, ends the wait."""
        if key is not None:
            self._attempt.key_changed(key)
        if self._round is None or node in self._round.fences:
            return  # it was granted there: nothing was in the way
        round_ = self._round
        round_.on_freed(node)
        if self._wake is not None and round_.any_freed:
            if round_.could_win:
                resolve(self._wake, result=True)
            elif self._backup is None:
                self._arm_backup()

    def _arm_backup(self) -> None:
        context, round_ = self._context, self._round
        assert round_ is not None  # noqa: S101 - a node reports what an attempt has read
        if self._kind.keeps_local_turn and round_.has_known_holder:
            return  # held on a majority, which has not changed: no other node can help
        if self._wake is not None:
            self._backup = context.call_later(0.001 + 3 * context.round_trip, self._end_sleep)

    def _end_sleep(self) -> None:
        if self._wake is not None:
            resolve(self._wake, result=True)

    def wake(self, key: bytes | None = None) -> None:
        """End the wait: something changed, perhaps that key, that makes another attempt worthwhile."""
        if key is not None:
            self._attempt.key_changed(key)
        self._missed = True
        self._end_sleep()

    # Giving up

    async def _give_up(self) -> Exception:
        """Return the error that says why: whether few votes and silence mean contention or an outage."""
        for _ in range(round(2 * self._context.node_timeout / MIN_HEDGE_DELAY)):
            if self._is_certain(self._round):
                break
            await asyncio.sleep(MIN_HEDGE_DELAY)
        return self._error() or self._timed_out(self._kind, self._options.wait)

    @property
    def informed(self) -> bool:
        """Whether it knows why it does not have the lock: who is in the way, or why each node did not vote."""
        return self._has_asked and self._is_certain(self._round)

    def _is_certain(self, round_: AcquireRound | None) -> bool:
        """Whether no node that is still silent can make an outage of it, or belongs into the error about one."""
        if round_ is None or round_.has_known_holder:
            return True
        if self._error() is None:
            return not round_.may_be_unreachable
        return self._no_quorum is None or self._no_quorum[0].has_heard_all

    def _error(self) -> Exception | None:
        """Why the lock was not acquired, unless another client was in the way."""
        round_ = self._round
        if self._last_error is None and round_ is not None and round_.is_outage and not round_.has_known_holder:
            # The attempt was given up before these failures were known.
            self._on_no_quorum(round_, could_not_lock(self._kind.names))
        elif self._no_quorum is not None:
            self._on_no_quorum(*self._no_quorum)  # again, with the nodes that have replied since
        return self._last_error or self._attempt.blocking_error()

    def error_for(self, kind: LockKind, wait: float | None) -> Exception:
        """Return the error for a task of this process that has waited behind this one for `wait` seconds."""
        error, names = self._error(), self._kind.names
        if error is None:
            return self._timed_out(kind, wait)
        if kind.names == names:
            return copy(error)
        behind = queued_behind(kind, wait, names)
        if isinstance(error, QuorumUnavailable):
            return QuorumUnavailable(f"{behind}: {error}", names=kind.names, nodes=error.nodes)
        return LockTimeout(behind, names=kind.names)

    def _timed_out(self, kind: LockKind, wait: float | None) -> LockTimeout:
        if kind.names != self._kind.names:
            return LockTimeout(queued_behind(kind, wait, self._kind.names), names=kind.names)
        refusal = self._blocking_refusal()
        return timed_out(
            kind.names,
            wait,
            None if refusal is None else refusal.token,
            advice(self._session.registry, kind),
            ahead=refusal is not None and refusal.ahead,
            retry_after=self._ends_in(),
        )

    def _blocking_refusal(self) -> Refusal | None:
        refusal = self._attempt.blocking_refusal()
        return refusal if refusal is not None or self._round is None else self._round.blocking_refusal()

    def _ends_in(self) -> float | None:
        """Seconds until what is in the way expires without a renewal; 0.0 if no client holds it, None if unknown."""
        round_, refusal = self._round, self._attempt.blocking_refusal()
        if round_ is None or refusal is not None:
            return refusal.ends_in if refusal is not None else None
        if self._kind.keeps_local_turn and self._retries.is_split(round_, round_.holder()[1]):
            return 0.0
        ends = round_.ends_in()
        return None if ends is None else max(ends - (self._context.now() - self._refused_at), 0.0)
