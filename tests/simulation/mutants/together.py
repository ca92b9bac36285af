"""Mutants of the rules for single tries, periods, and competing tasks of one process."""

import asyncio
import math
from unittest.mock import patch

from framework.breaking import mutant, rewritten

from redlock_async import _kinds, _rounds, _runtime

OWNER = "string.match({}, ':[^:]*$')"
"""The label in a token: whoever takes it for the token takes its own process's other tasks for itself."""


def same_owner(one, other):
    """In Lua: whether two tokens are of one process."""
    return f"{OWNER.format(one)} == {OWNER.format(other)}"


# Trying once


@mutant("once")
def who_tries_once_takes_the_others_for_a_holder():
    """A split vote ends all attempts, and none retries."""

    async def give_up(self, _round, _left):
        raise await self._give_up()

    with patch.object(_runtime.acquisition.Acquisition, "_retry_split_vote", give_up):
        yield


@mutant("once")
def a_second_try_keeps_the_votes_of_the_first():
    """A retry uses another token and does not release the first attempt's votes, so it blocks itself and all others."""
    give_back = _runtime.acquisition.Acquisition._release_votes

    def keep(self, round_):
        if self._options.wait != 0 or not round_.outcome.done() or round_.outcome.cancelled():
            give_back(self, round_)

    with patch.object(_runtime.acquisition.Acquisition, "_release_votes", keep):
        yield


@mutant("once")
def who_tries_once_asks_on_though_somebody_has_it():
    """The attempt continues until `node_timeout`, although a majority has named one holder."""
    with patch.object(_runtime.acquire_round.AcquireRound, "has_known_holder", property(lambda _self: False)):
        yield


@mutant("fair", "semaphore")
def who_tries_once_takes_its_time():
    """The attempt sleeps before it reports that the lock is held."""
    second_thought = _runtime.acquisition.Acquisition._retry_split_vote

    async def slow(self, *arguments):
        await asyncio.sleep(0.5)
        await second_thought(self, *arguments)

    with patch.object(_runtime.acquisition.Acquisition, "_retry_split_vote", slow):
        yield


# Periods


@mutant("once")
def min_hold_is_not_kept():
    """The name is free when the block has ended."""
    with patch.object(_runtime.held_lease.HeldLease, "min_hold_ms", lambda _self: 0):
        yield


@mutant("once")
def min_hold_counts_from_the_end():
    """The hold counts from the end of the block, not from its start."""
    with patch.object(_runtime.held_lease.HeldLease, "min_hold_ms", lambda self: math.ceil(self.min_hold * 1000)):
        yield


@mutant("once")
def a_run_that_failed_is_kept_though_it_is_to_be_tried_again():
    """`retry_failed` is ignored."""
    with patch.object(_runtime.held_lease.HeldLease, "on_block_failure", lambda _self: None):
        yield


@mutant("once")
def a_run_that_failed_never_counts():
    """A failed run never counts, even without `retry_failed`."""

    def failed(self):
        self.min_hold = 0.0

    with patch.object(_runtime.held_lease.HeldLease, "on_block_failure", failed):
        yield


# Readers and writers of one process


@mutant("together")
def a_reader_passes_the_waiting_writer_of_its_process():
    """The reservation keeps out other processes' readers only."""
    with rewritten(
        "read_acquire",
        (
            "local must_wait = redis.call('EXISTS', KEYS[3]) == 1",
            f"local hint = redis.call('GET', KEYS[3]) local must_wait = hint and not ({same_owner('hint', 'ARGV[1]')})",
        ),
    ):
        yield


@mutant("together")
def a_reader_joins_the_writer_of_its_process():
    """Within a process, readers and a writer ask side by side."""
    with rewritten(
        "read_acquire",
        (
            "if holder and holder ~= ARGV[3] then",
            f"if holder and holder ~= ARGV[3] and not ({same_owner('holder', 'ARGV[1]')}) then",
        ),
    ):
        yield


@mutant("together")
def a_writer_joins_the_readers_of_its_process():
    """A writer of the process does not wait for all of its readers."""
    with rewritten(
        "write_acquire", ("if last[1] then", f"if last[1] and not ({same_owner('last[1]', 'ARGV[1]')}) then")
    ):
        yield


@mutant("together")
def who_asks_for_all_readers_keeps_the_turn():
    """The task that asks on behalf of all readers succeeds, and the tasks behind it are not notified."""
    with patch.object(_runtime.local_queues.LocalQueues, "_release_all", lambda *_: None):
        yield


@mutant("together")
def who_asked_for_all_readers_and_gave_up_keeps_the_turn():
    """The task that asked on behalf of all readers gives up, and no task continues for those behind it."""
    on_failed = _runtime.local_queues.LocalQueues.on_failed

    def kept(self, keys):
        if not any(b"readers" in key for key in keys):
            on_failed(self, keys)

    with patch.object(_runtime.local_queues.LocalQueues, "on_failed", kept):
        yield


@mutant("together")
def what_a_process_frees_itself_wakes_nobody_there():
    """A process's own releases do not wake its waiters; servers do not report a client's own changes."""
    with patch.object(_rounds.context.Wakeups, "retry_local", lambda *_: None):
        yield


# Several slots


@mutant("together")
def those_of_its_process_pass_who_wants_many():
    """The reservation blocks other processes' requests only."""
    with rewritten(
        "semaphore_acquire",
        ("if ahead > wanted or", f"if ahead > wanted and not ({same_owner('reservation', 'ARGV[3]')}) or"),
    ):
        yield


@mutant("semaphore")
def hint_of_who_wants_many_is_ignored():
    """The reservation is made, but smaller requests overtake."""
    with rewritten("semaphore_acquire", ("if ahead > wanted or (ahead == wanted and", "if false and (true and")):
        yield


@mutant("semaphore")
def slots_of_a_failed_attempt_are_kept():
    """A request that got its slots on a minority of nodes keeps them there and retries."""
    give_back = _runtime.acquisition.Acquisition._release_votes

    def keep(self, round_):
        failed = round_.outcome.done() and not round_.outcome.cancelled()
        if not (failed and isinstance(self._kind, _kinds.semaphore.Slots) and self._kind.count > 1):
            give_back(self, round_)

    with patch.object(_runtime.acquisition.Acquisition, "_release_votes", keep):
        yield


@mutant("semaphore")
def fewer_slots_than_wanted_are_taken():
    """One slot less is requested, and all are reported as held."""
    choose = _kinds.semaphore.SlotsAttempt._choose

    def fewer(self, token):
        return choose(self, token)[: max(self._kind.count - 1, 1)]

    with patch.object(_kinds.semaphore.SlotsAttempt, "_choose", fewer):
        yield


# Operators


@mutant("semaphore")
def permits_are_raised_only_when_no_slot_is_held():
    """Raising the permits needs the same checks as lowering them to none."""
    held = "for slot = tonumber(string.match(ARGV[1], '^%d+')), "
    with rewritten("semaphore_change", (held, "for slot = 0, ")):
        yield


@mutant("semaphore")
def two_changes_of_permits_do_not_see_each_other():
    """A node accepts the last change regardless of earlier ones, so nodes end up with different numbers."""
    with rewritten("semaphore_change", ("if set ~= ARGV[2] then return {0} end", "")):
        yield
