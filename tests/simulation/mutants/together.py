"""Rules of trying once, of periods, and of tasks that want the same side by side, each broken, as in mutants.py."""

import asyncio
import math
from unittest.mock import patch

from mutants import mutant, rewritten

from redlock_async import _acquire, _anteroom, _board, _contest, _holding, _slots, _waiting

OWNER = "string.match({}, ':[^:]*$')"
"""The label in a token: whoever takes it for the token takes its own process's other tasks for itself."""


def same_owner(one, other):
    """In Lua: whether two tokens are of one process."""
    return f"{OWNER.format(one)} == {OWNER.format(other)}"


# Trying once


@mutant("once")
def who_tries_once_takes_the_others_for_a_holder():
    """Votes that are split end every one of them: nobody asks again."""

    async def give_up(self, _round, _left):
        raise self._over()

    with patch.object(_contest.Contest, "_second_thought", give_up):
        yield


@mutant("once")
def a_second_try_keeps_the_votes_of_the_first():
    """It asks again with another token, and is in its own way and everybody else's."""
    give_back = _contest.Contest._give_back

    def keep(self, round_):
        if self._options.wait != 0 or not round_.outcome.done() or round_.outcome.cancelled():
            give_back(self, round_)

    with patch.object(_contest.Contest, "_give_back", keep):
        yield


@mutant("once")
def who_tries_once_asks_on_though_somebody_has_it():
    """A majority has named one holder, and it goes on until `node_timeout` is over."""
    with patch.object(_acquire.Acquire, "named", property(lambda _self: False)):
        yield


@mutant("fair", "semaphore")
def who_tries_once_takes_its_time():
    """It sleeps before it says that somebody has it."""
    second_thought = _contest.Contest._second_thought

    async def slow(self, *arguments):
        await asyncio.sleep(0.5)
        await second_thought(self, *arguments)

    with patch.object(_contest.Contest, "_second_thought", slow):
        yield


# Periods


@mutant("once")
def hold_at_least_is_not_kept():
    """The name is free when the body has ended."""
    with patch.object(_holding.Holding, "_kept_ms", lambda _self: 0):
        yield


@mutant("once")
def hold_at_least_counts_from_the_end():
    """Not from the beginning: the body's length comes on top."""
    with patch.object(_holding.Holding, "_kept_ms", lambda self: math.ceil(self.hold_at_least * 1000)):
        yield


@mutant("once")
def a_run_that_failed_is_kept_though_it_is_to_be_tried_again():
    """`retry_failed` is not looked at."""
    with patch.object(_holding.Holding, "failed", lambda _self: None):
        yield


@mutant("once")
def a_run_that_failed_never_counts():
    """Also where nobody has asked for another try."""

    def failed(self):
        self.hold_at_least = 0.0

    with patch.object(_holding.Holding, "failed", failed):
        yield


# Readers and writers of one process


@mutant("together")
def a_reader_passes_the_waiting_writer_of_its_process():
    """The hint holds out the other processes' readers only."""
    with rewritten(
        "read_acquire",
        (
            "local held_out = redis.call('EXISTS', KEYS[3]) == 1",
            f"local hint = redis.call('GET', KEYS[3]) local held_out = hint and not ({same_owner('hint', 'ARGV[1]')})",
        ),
    ):
        yield


@mutant("together")
def a_reader_joins_the_writer_of_its_process():
    """Side by side with the readers there, too."""
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
    """It waits for the last of the others."""
    with rewritten(
        "write_acquire", ("if last[1] then", f"if last[1] and not ({same_owner('last[1]', 'ARGV[1]')}) then")
    ):
        yield


@mutant("together")
def who_asks_for_all_readers_keeps_the_turn():
    """It is in, and those who wait behind it are not told."""
    with patch.object(_waiting.Turns, "open", lambda *_: None):
        yield


@mutant("together")
def who_asked_for_all_readers_and_gave_up_keeps_the_turn():
    """Those who wait behind it are not told, and nobody asks for them any more."""
    leave = _anteroom.Anteroom.leave

    def kept(self, claim, contest, *, pass_on, won=False):
        leave(self, claim, contest, pass_on=pass_on and not claim.shared, won=won)

    with patch.object(_anteroom.Anteroom, "leave", kept):
        yield


@mutant("together")
def what_a_process_frees_itself_wakes_nobody_there():
    """No server reports to a client what that has changed itself."""
    with patch.object(_board.Board, "look_again", lambda *_: None):
        yield


# Several slots


@mutant("together")
def those_of_its_process_pass_who_wants_many():
    """The hint holds back the other processes' only."""
    with rewritten(
        "semaphore_acquire",
        ("if ahead > wanted or", f"if ahead > wanted and not ({same_owner('hint', 'ARGV[3]')}) or"),
    ):
        yield


@mutant("semaphore")
def hint_of_who_wants_many_is_ignored():
    """It is left, and those who want few pass."""
    with rewritten("semaphore_acquire", ("if ahead > wanted or (ahead == wanted and", "if false and (true and")):
        yield


@mutant("semaphore")
def slots_of_a_failed_attempt_are_kept():
    """Who wants several and has got them on a minority of nodes leaves them there, and asks again."""
    give_back = _contest.Contest._give_back

    def keep(self, round_):
        failed = round_.outcome.done() and not round_.outcome.cancelled()
        if not (failed and isinstance(self._claim, _slots.Slots) and self._claim.count > 1):
            give_back(self, round_)

    with patch.object(_contest.Contest, "_give_back", keep):
        yield


@mutant("semaphore")
def fewer_slots_than_wanted_are_taken():
    """One less is asked for, and all that were wanted are said to be held."""
    choose = _slots.Slots._choose

    def fewer(self, token):
        choose(self, token)
        self.slots = self.slots[: max(self.count - 1, 1)]

    with patch.object(_slots.Slots, "_choose", fewer):
        yield


# Operators


@mutant("semaphore")
def permits_are_raised_only_when_no_slot_is_held():
    """As if it were lowered to none."""
    held = "for slot = tonumber(string.match(ARGV[1], '^%d+')), "
    with rewritten("semaphore_change", (held, "for slot = 0, ")):
        yield


@mutant("semaphore")
def two_changes_of_permits_do_not_see_each_other():
    """A node takes whatever comes last, whatever it was told before: on some it is one number, on some the other."""
    with rewritten("semaphore_change", ("if set ~= ARGV[2] then return {0} end", "")):
        yield
