"""Mutants of rules that the other kinds of lock need only in corner cases."""

from unittest.mock import patch

from framework.breaking import mutant, rewritten

from redlock_async import _admin, _kinds, _rounds, _runtime, _transport

# Readers and writers


@mutant("corners")
def readers_that_were_freed_come_back():
    """Freed readers come back with the next reader that joins where the lock key is missing."""
    with (
        rewritten("read_acquire", ("  redis.call('DEL', readers)\n", "")),
        rewritten("read_reassert", ("    redis.call('DEL', readers)\n", "")),
        rewritten("write_acquire", ("redis.call('DEL', readers)\n", "")),
    ):
        yield


@mutant("corners")
def what_was_granted_unheard_and_given_back_is_told_nobody():
    """A vote is released before its grant was known, and the other tasks of the process are not notified; they check
    about once a second.
    """
    with patch.object(_rounds.context.Wakeups, "late_votes_returned", lambda *_: None):
        yield


@mutant("corners")
def a_change_where_it_was_not_refused_is_a_chance():
    """Changes on nodes that did not refuse (such as a quarantined node) trigger retries, so attempts of one process
    wake each other without end.
    """
    with patch.object(_runtime.acquire_round.AcquireRound, "any_freed", property(lambda self: bool(self._freed))):
        yield


# Semaphores


@mutant("corners")
def a_slot_is_set_again_under_another_number():
    """A slot is stored again on a node that has lost it, although other clients now use another number of permits."""
    with rewritten("semaphore_reassert", ("if bound and (set or bound) ~= ARGV[4] then return 0 end", "")):
        yield


@mutant("corners")
def a_change_of_permits_counts_nodes_that_have_forgotten():
    """Nodes that lost their data count as having no slot beyond the new number."""
    with patch.object(_admin.permits, "_votes", lambda _engine, taken: len(taken)):
        yield


@mutant("corners")
def who_is_not_heard_of_keeps_a_number_that_was_taken_back():
    """Only nodes that reply get the undo of a change."""
    take_back = _admin.permits._take_back

    def of_those_that_answer(*arguments):
        with patch.object(_transport.node.Node, "send_durably", lambda *_: None):
            return take_back(*arguments)

    with patch.object(_admin.permits, "_take_back", of_those_that_answer):
        yield


# Fair


@mutant("corners")
def tickets_begin_anew():
    """On nodes that have lost them, tickets restart ahead of all waiters."""
    with rewritten("fair_ticket", ("math.max(now, last and last + 1 or 0)", "1")):
        yield


@mutant("corners")
def tickets_begin_anew_behind_those_of_one_process():
    """A lost ticket register restarts from the first waiter to come, although others wait with higher tickets."""
    of_all = "redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')[2]"
    of_its_own = "ARGV[4]\nfor i = 6, #ARGV, 2 do if ARGV[i] > highest then highest = ARGV[i] end end"
    with rewritten("fair_acquire", (of_all, "ARGV[6]")), rewritten("fair_wait", (of_all, of_its_own)):
        yield


@mutant("corners")
def a_place_is_kept_for_one_who_has_left():
    """A heartbeat is sent again after the waiter has left."""
    with patch.object(_kinds.fair_queue.HeartbeatRound, "may_send_again", lambda self, bit: bool(self._open & bit)):
        yield


@mutant("corners")
def a_place_is_sent_with_the_next_sign_of_life_only():
    """The queue entry is sent with the next heartbeat, not as soon as there is a ticket."""
    join = _kinds.fair_queue.FairWaiters.join

    def joined(self, claim):
        self.send_entries = lambda _claims: None
        join(self, claim)
        del self.send_entries

    with patch.object(_kinds.fair_queue.FairWaiters, "join", joined):
        yield


@mutant("corners")
def who_becomes_the_first_by_an_attempt_is_not_told():
    """A waiter is not notified when another waiter's attempt finds those before it dead."""
    with rewritten("fair_acquire", ("if head ~= was then wake(head) end", "")):
        yield


@mutant("corners")
def who_becomes_the_first_by_anothers_sign_is_not_told():
    """A waiter is not notified when another waiter's heartbeat finds those before it dead."""
    with rewritten("fair_wait", ("redis.call('SET', ARGV[1] .. head, '', 'PX', 1000)", "")):
        yield


@mutant("corners")
def an_attempt_does_not_prune_the_dead():
    """Only heartbeats remove dead waiters, later."""
    with rewritten("fair_acquire", ("if till > now then return head, till end", "if head then return head, till end")):
        yield


@mutant("corners")
def who_is_behind_a_silent_one_is_not_told():
    """A waiter behind a silent one does not learn when that queue entry expires."""
    with rewritten("fair_leave", ("kept < ARGV[3] / 2 do", "#touched == 1 do")):
        yield


@mutant("corners")
def signs_of_life_come_at_their_time_only():
    """No heartbeat is sent when a dead waiter's queue entry has expired."""
    with patch.object(_kinds.fair_queue.FairWaiters, "on_first_entry", lambda _self, _seconds: None):
        yield


@mutant("corners")
def who_is_cut_off_keeps_its_place():
    """A waiter keeps its entry on a minority; with one more node down, no other client has a majority."""
    with patch.object(_kinds.fair_queue.FairWaiters, "has_quorum", property(lambda _self: True)):
        yield


# Latches


@mutant("corners")
def what_was_written_back_ends_the_watch():
    """After a write-back, the node no longer reports changes to us."""
    with rewritten("latch_count", ("redis.call('EXISTS', key)", "")):
        yield


@mutant("corners")
def news_in_a_late_answer_are_told_nobody():
    """News in a late reply reaches no waiter; they check every few seconds."""
    with patch.object(_kinds.latch.LatchRead, "concluded", lambda _self: None):
        yield
