"""Rules of the other kinds of lock that are needed in corners only, each broken, as in mutants.py."""

from unittest.mock import patch

from mutants import mutant, rewritten

from redlock_async import _acquire, _board, _latch, _line, _node, _permits

# Readers and writers


@mutant("corners")
def readers_that_were_freed_come_back():
    """With the next one that joins where the lock key is gone."""
    with (
        rewritten("read_acquire", ("  redis.call('DEL', readers)\n", "")),
        rewritten("read_secure", ("    redis.call('DEL', readers)\n", "")),
        rewritten("write_acquire", ("redis.call('DEL', readers)\n", "")),
    ):
        yield


@mutant("corners")
def what_was_granted_unheard_and_given_back_is_told_nobody():
    """The others of its process, whom it has stopped there, look by themselves, about once a second."""
    with patch.object(_board.Board, "gave_up_late", lambda *_: None):
        yield


@mutant("corners")
def a_change_where_it_was_not_refused_is_a_chance():
    """Of a master that may not vote, for instance: attempts of one process wake the next ones without end."""
    with patch.object(_acquire.Acquire, "any_freed", property(lambda self: bool(self._freed))):
        yield


# Semaphores


@mutant("corners")
def a_slot_is_set_again_under_another_number():
    """Where a node has lost it, and others have come since with another number of permits."""
    with rewritten("semaphore_secure", ("if bound and (set or bound) ~= ARGV[4] then return 0 end", "")):
        yield


@mutant("corners")
def a_change_of_permits_counts_nodes_that_have_forgotten():
    """They have no slot beyond the new number, as far as they know."""
    with patch.object(_permits, "_votes", lambda _engine, taken: len(taken)):
        yield


@mutant("corners")
def who_is_not_heard_of_keeps_a_number_that_was_taken_back():
    """Only those that answer are told."""
    take_back = _permits._take_back

    def of_those_that_answer(*arguments):
        with patch.object(_node.Node, "tell", lambda *_: None):
            return take_back(*arguments)

    with patch.object(_permits, "_take_back", of_those_that_answer):
        yield


# Fair


@mutant("corners")
def tickets_begin_anew():
    """On nodes that have lost them, and so ahead of all who wait."""
    with rewritten("fair_ticket", ("math.max(time[1] * 1000000 + time[2], last and last + 1 or 0)", "1")):
        yield


@mutant("corners")
def tickets_begin_anew_behind_those_of_one_process():
    """A register that was lost is as high as the tickets of whoever comes first, and others wait with higher ones."""
    of_all = "redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')[2]"
    of_its_own = "ARGV[4]\nfor i = 6, #ARGV, 2 do if ARGV[i] > highest then highest = ARGV[i] end end"
    with rewritten("fair_acquire", (of_all, "ARGV[6]")), rewritten("fair_wait", (of_all, of_its_own)):
        yield


@mutant("corners")
def a_place_is_kept_for_one_who_has_left():
    """A sign of life is sent again behind its leaving."""
    with patch.object(_line.Keep, "may_send_again", lambda self, bit: bool(self._open & bit)):
        yield


@mutant("corners")
def a_place_is_sent_with_the_next_sign_of_life_only():
    """Not as soon as there is a ticket."""
    join = _line.Line.join

    def joined(self, claim):
        self.keep = lambda _claims: None
        join(self, claim)
        del self.keep

    with patch.object(_line.Line, "join", joined):
        yield


@mutant("corners")
def who_becomes_the_first_by_an_attempt_is_not_told():
    """Of another one, which has found those before it dead."""
    with rewritten("fair_acquire", ("if head ~= was then wake(head) end", "")):
        yield


@mutant("corners")
def who_becomes_the_first_by_anothers_sign_is_not_told():
    """Of life, which has found those before it dead."""
    with rewritten("fair_wait", ("redis.call('SET', ARGV[1] .. head, '', 'PX', 1000)", "")):
        yield


@mutant("corners")
def an_attempt_does_not_prune_the_dead():
    """Signs of life do, later."""
    with rewritten("fair_acquire", ("if till > now then return head, till end", "if head then return head, till end")):
        yield


@mutant("corners")
def who_is_behind_a_silent_one_is_not_told():
    """And does not know until when its place is kept."""
    with rewritten("fair_leave", ("kept < ARGV[3] / 2 do", "#touched == 1 do")):
        yield


@mutant("corners")
def signs_of_life_come_at_their_time_only():
    """Not when the place of a dead one has run out."""
    with patch.object(_line.Line, "first_is_kept", lambda _self, _seconds: None):
        yield


@mutant("corners")
def who_is_cut_off_keeps_its_place():
    """On a minority, and with one node more down nobody else has a majority."""
    with patch.object(_line.Line, "heard", property(lambda _self: True)):
        yield


# Latches


@mutant("corners")
def what_was_written_back_ends_the_watch():
    """No node reports to us what comes after that."""
    with rewritten("latch_count", ("redis.call('EXISTS', key)", "")):
        yield


@mutant("corners")
def news_in_a_late_answer_are_told_nobody():
    """Those who wait look by themselves, every few seconds."""
    with patch.object(_latch.Look, "concluded", lambda _self: None):
        yield
