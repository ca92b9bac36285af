"""Mutants of the rules of the other kinds of lock."""

import asyncio
from contextlib import ExitStack
from unittest.mock import patch

from framework.breaking import mutant, rewritten

from redlock_async import _admin, _kinds, _rounds, _transport, client, latch, locks

PRUNING = "redis.call('ZREMRANGEBYSCORE', readers, '-inf', now)"
WAKE = "redis.call('SET', ARGV[4] .. who, '', 'PX', 1000)"


# Readers and writers


@mutant("forced")
def readers_are_not_told_that_they_are_freed():
    """Readers learn of a force-release at their next renewal."""
    with rewritten("read_extend", ("redis.call('EXISTS', KEYS[3 * i])", "")):
        yield


@mutant("readers and writers")
def the_writer_stays_where_it_is_no_reader_yet():
    """A node without a reply keeps the writer, and it is never removed there."""
    send_to_all = _rounds.context.Context.send_to_all

    def sent(self, command, keep, *, but=0):
        if not but:
            send_to_all(self, command, keep)

    with patch.object(_rounds.context.Context, "send_to_all", sent):
        yield


@mutant("readers and writers")
def writer_ignores_readers():
    """A writer takes the lock key although there are readers."""
    with rewritten("write_acquire", ("if last[1] then", "if false then")):
        yield


@mutant("readers and writers")
def reader_ignores_writers():
    """A reader joins any holder of the lock key."""
    with rewritten("read_acquire", ("if holder and holder ~= ARGV[3] then", "if false then")):
        yield


@mutant("readers and writers")
def readers_are_not_pruned():
    """A dead reader stays as long as other readers come."""
    with ExitStack() as stack:
        for name in ("read_acquire", "read_reassert", "write_acquire"):
            stack.enter_context(rewritten(name, (PRUNING, "")))
        stack.enter_context(rewritten("read_release", (PRUNING, ""), ("if last and", "if false and")))
        stack.enter_context(
            rewritten("read_extend", ("redis.pcall('ZREMRANGEBYSCORE', readers, '-inf', now)", "redis.pcall('TIME')"))
        )
        yield


@mutant("readers and writers")
def one_ttl_for_all_readers():
    """Each renewal renews all readers."""
    ours = "redis.call('ZADD', readers, string.format('%.0f', now + ttl), token)"
    for_all = (
        "for _, reader in ipairs(redis.call('ZRANGE', readers, 0, -1)) do "
        "redis.call('ZADD', readers, string.format('%.0f', now + ttl), reader) end"
    )
    with rewritten("read_extend", (ours, for_all)):
        yield


@mutant("readers and writers")
def shortest_ttl_for_all_readers():
    """Each reader that joins sets the expiry of all."""
    ours = "redis.call('ZADD', readers, string.format('%.0f', now + ttl), ARGV[1])"
    for_all = f"{ours} redis.call('PEXPIRE', lock, ttl) redis.call('PEXPIRE', readers, ttl)"
    with rewritten("read_acquire", (ours, for_all)):
        yield


@mutant("readers and writers")
def last_reader_leaves_the_lock():
    """After the last reader, the lock key stays until it expires."""
    with rewritten("read_release", ("redis.call('DEL', lock)", "redis.call('EXISTS', lock)")):
        yield


@mutant("readers and writers")
def any_reader_frees_the_lock():
    """A reader frees the lock key although others still read."""
    with rewritten(
        "read_release", ("if redis.call('PEXPIRE', readers, redis.call('PTTL', lock)) == 0 then", "if ours == 1 then")
    ):
        yield


@mutant("readers and writers")
def waiting_writer_leaves_no_hint():
    """A waiting writer makes no reservation, and waits for a moment without readers."""
    with patch.object(_kinds.rwlock.WriteAttempt, "retry_command", _kinds.rwlock.WriteAttempt.first_command):
        yield


@mutant("readers and writers")
def hint_is_ignored():
    """Readers join although a writer waits."""
    with rewritten("read_acquire", ("local must_wait = redis.call('EXISTS', KEYS[3]) == 1", "local must_wait = false")):
        yield


@mutant("readers and writers")
def who_reads_is_held_out_of_reading_again():
    """A reader's second lease waits for a writer, which waits for the first lease."""
    with rewritten("read_acquire", ("if must_wait and ARGV[5] ~= '' then", "if false then")):
        yield


@mutant("readers and writers")
def who_reads_queues_to_read_again():
    """A second read lock queues behind tasks of its process that wait for a writer, which waits for the first lease."""
    nested_in = _kinds.rwlock.Read.nested_in

    def joins(self, token):
        nested = nested_in(self, token)
        nested.joins_queue = True
        return nested

    with patch.object(_kinds.rwlock.Read, "nested_in", joins):
        yield


@mutant("readers and writers")
def hint_is_never_withdrawn():
    """After a writer has given up or succeeded, its reservation keeps readers out until it expires."""
    with patch.object(_kinds.rwlock.WriteAttempt, "cleanup", lambda _self: None):
        yield


@mutant("two writers")
def a_vote_takes_the_hint_away():
    """A vote ends the reservation even if the writer has to release that vote, so readers get in again."""
    freeing = "redis.call('DEL', readers)\n"
    with rewritten(
        "write_acquire",
        (freeing, f"{freeing}if redis.call('GET', reservation) == ARGV[4] then redis.call('DEL', reservation) end\n"),
    ):
        yield


@mutant("readers and writers")
def downgrade_in_two_steps():
    """The writer is released first, and becomes a reader where the lock is then free."""
    downgrade = locks.downgrade

    async def torn(session, writing):
        session.context.send_to_all(writing.kind.release(writing.token), writing.ttl)
        await asyncio.sleep(0.01)
        return await downgrade(session, writing)

    def words(self, token, fence, ttl_ms):
        return self.as_reader().reassert(token, fence, ttl_ms)

    with patch.object(locks, "downgrade", torn), patch.object(_kinds.rwlock.Write, "downgrade", words):
        yield


@mutant("readers and writers")
def downgrade_where_it_is_not_held():
    """The downgrade runs on every node, even where another client holds the lock, and any of them counts."""
    with rewritten("write_downgrade", ("if redis.call('GET', lock) ~= ARGV[1] then return 0 end", "")):
        yield


@mutant("readers and writers")
def downgrade_leaves_the_register():
    """Readers that join share the fence of the writer before them, or less."""
    with rewritten(
        "write_downgrade",
        ("local stored = redis.call('INCRBY', KEYS[3], 1)", ""),
        ("if stored < above then redis.call('SET', KEYS[3], string.format('%.0f', above)) end", ""),
    ):
        yield


@mutant("readers and writers")
def readers_fence_is_not_above_the_writers():
    """The first reader also takes the token that is in the register."""
    with rewritten("read_acquire", ("if joined then\n", "if true then\n")):
        yield


@mutant("readers and writers")
def reader_secures_without_reading():
    """Nodes count although the reader has no entry there and another client holds the lock."""
    with rewritten(
        "read_reassert",
        ("if holder and holder ~= ARGV[3] then return 0 end", "if holder and holder ~= ARGV[3] then return 1 end"),
        ("if ttl == 0 then return 0 end", "if ttl == 0 then return 1 end"),
    ):
        yield


# Semaphore


@mutant("semaphore")
def slots_are_added_up():
    """A majority of nodes with any slot free is enough."""
    taking = (
        "if not holder then\n  for i = 8, #ARGV do redis.call('SET', KEYS[ARGV[i] + 3], ARGV[3], 'PX', ARGV[4]) end"
    )
    any_slot = (
        "local any = false for i = 3, permits + 2 do "
        "any = any or redis.call('SET', KEYS[i], ARGV[3], 'NX', 'PX', ARGV[4]) end if any then"
    )
    with rewritten("semaphore_acquire", (taking, any_slot)):
        yield


@mutant("semaphore")
def permits_are_not_compared():
    """Clients use two and three permits at once."""
    with rewritten("semaphore_acquire", ("if bound and bound ~= ARGV[1] then", "if false then")):
        yield


@mutant("semaphore")
def permits_are_forgotten_before_the_slots():
    """The number of permits is not kept alive with the slots."""
    with (
        rewritten("semaphore_acquire", ("'PX', 2 * ARGV[4]", "'PX', ARGV[4]")),
        rewritten("semaphore_extend", ("if left == -2 or (left >= 0 and left < ttl) then", "if false then")),
    ):
        yield


@mutant("semaphore")
def permits_are_kept_for_ever():
    """The number of permits is kept long after the slots."""
    with rewritten("semaphore_acquire", ("SET', KEYS[1], ARGV[1], 'PX', 2 * ARGV[4])", "SET', KEYS[1], ARGV[1])")):
        yield


@mutant("semaphore")
def only_one_slot_is_tried():
    """A request whose slot is taken waits for it, although others are free."""

    def choose(self, token):  # noqa: ARG001 - its signature
        return tuple(range(self._kind.count))

    with patch.object(_kinds.semaphore.SlotsAttempt, "_choose", choose):
        yield


@mutant("semaphore")
def a_slot_is_taken_over():
    """A slot is taken regardless of its holder."""
    with rewritten("semaphore_acquire", ("    break\n", "    holder = false\n")):
        yield


@mutant("semaphore")
def some_of_the_slots_will_do():
    """A request for several slots takes the free ones on a node, and the node counts."""
    with rewritten(
        "semaphore_acquire",
        ("local holder\n", "local holder\nlocal lacking = 0\n"),
        ("    break\n", "    lacking = lacking + 1\n"),
        ("if not holder then\n", "if lacking < wanted then\n"),
        (
            "do redis.call('SET', KEYS[ARGV[i] + 3], ARGV[3], 'PX', ARGV[4]) end",
            "do redis.call('SET', KEYS[ARGV[i] + 3], ARGV[3], 'NX', 'PX', ARGV[4]) end",
        ),
    ):
        yield


@mutant("semaphore")
def some_of_the_slots_are_released():
    """A lease on several slots releases only one."""

    def release(self, token):
        return _transport.commands.DeleteIfEqual(self.held_by(token)[0], token)

    with (
        patch.object(_kinds.semaphore.Slots, "release", release),
        patch.object(_kinds.semaphore.Slots, "state_count", 1),
    ):
        yield


@mutant("semaphore")
def one_register_for_several_slots():
    """The fence of a lease on several slots is above the earlier holders' of the first slot only."""
    fence_keys = _kinds.semaphore.Slots.fence_keys
    with patch.object(_kinds.semaphore.Slots, "fence_keys", lambda self, slots: fence_keys(self, slots)[:1]):
        yield


@mutant("semaphore")
def those_who_want_few_are_not_held_back():
    """Smaller requests overtake a larger one as long as they come."""
    with (
        patch.object(_kinds.semaphore, "WAITS_BEFORE_RESERVATION", 10**9),
        patch.object(_kinds.semaphore, "LONGEST_WAIT_BEFORE_RESERVATION", 10**9),
    ):
        yield


@mutant("semaphore")
def they_are_held_back_only_for_a_moment():
    """The reservation is not renewed until there are enough slots."""
    with patch.object(_kinds.semaphore, "RESERVATION_REFRESH", 10**9):
        yield


@mutant("semaphore")
def those_who_want_few_are_held_back_for_ever():
    """The reservation remains after the larger request has succeeded or given up."""
    with (
        patch.object(_kinds.semaphore.SlotsAttempt, "cleanup", lambda _self: None),
        patch.object(_kinds.semaphore, "RESERVATION_MS", 10**6),
    ):
        yield


@mutant("semaphore")
def who_wants_as_many_is_held_back():
    """Two requests for equally many slots block each other by their reservations."""
    with rewritten(
        "semaphore_acquire",
        ("reservation < ARGV[6]", "reservation ~= ARGV[6]"),
    ):
        yield


@mutant("semaphore")
def who_wants_as_many_is_never_held_back():
    """Requests for equally many slots overtake the one with the reservation as long as they come."""
    with rewritten(
        "semaphore_acquire", ("if ahead > wanted or (ahead == wanted and", "if ahead > wanted or (false and")
    ):
        yield


@mutant("semaphore")
def those_who_want_many_follow_each_other_at_once():
    """When one request succeeds, the next one blocks smaller requests immediately."""
    with patch.object(_kinds.semaphore, "RESERVATION_PAUSE", 0):
        yield


# Change of permits


@mutant("semaphore")
def permits_are_changed_on_a_minority():
    """One node that has stored the new number is enough."""
    change = _admin.permits.change_permits

    async def one(context, *arguments):
        quorum, context.quorum = context.quorum, 1
        try:
            await change(context, *arguments)
        finally:
            context.quorum = quorum

    with patch.object(client, "change_permits", one):
        yield


@mutant("semaphore")
def permits_are_lowered_below_what_is_held():
    """Slots beyond the new number are not checked."""
    with (
        rewritten("semaphore_change", ("if redis.call('EXISTS', key) == 1", "if false")),
        rewritten("semaphore_inspect", ("if redis.call('EXISTS', key) == 1", "if false")),
    ):
        yield


@mutant("semaphore")
def permits_are_lowered_when_nobody_has_been_seen():
    """Slots are taken between the check and the change."""
    with rewritten("semaphore_change", ("if redis.call('EXISTS', key) == 1", "if false")):
        yield


@mutant("semaphore")
def a_change_of_permits_is_forgotten():
    """When no slot is held, any client may bring another number."""
    with rewritten(
        "semaphore_acquire",
        ("set = string.match(string.sub(bound, 1, 20), '^(%d+):')", "bound = string.match(bound, '^%d+') or bound"),
    ):
        yield


@mutant("semaphore")
def a_renewal_brings_back_the_old_number():
    """A holder's number of permits replaces the one that an operator has set."""
    with rewritten("semaphore_extend", ("if left == -2 or (left >= 0 and left < ttl) then", "if left < ttl then")):
        yield


@mutant("semaphore")
def a_change_that_failed_is_not_taken_back():
    """After a failed change, some nodes have the new number, others the old."""
    with rewritten("semaphore_restore", ("if redis.call('GET', KEYS[1]) ~= ARGV[1] then", "if true then")):
        yield


@mutant("semaphore")
def what_is_taken_back_is_no_number_at_all():
    """A failed change removes the number, even while slots are held."""
    with rewritten("semaphore_restore", ("if ARGV[2] == '' then", "if true then")):
        yield


# Fair


@mutant("fair")
def order_of_arrival_on_each_node():
    """There are no tickets: each node has its own order."""
    arrival = "'NX', string.format('%.0f', time[1] * 1000000 + time[2] - 1700000000000000)"
    with (
        rewritten(
            "fair_acquire", ("redis.call('ZADD', queue, ARGV[6], me)", f"redis.call('ZADD', queue, {arrival}, me)")
        ),
        rewritten(
            "fair_wait",
            ("redis.call('ZADD', queue, ARGV[i], ARGV[i + 1])", f"redis.call('ZADD', queue, {arrival}, ARGV[i + 1])"),
        ),
    ):
        yield


@mutant("fair")
def ticket_from_the_smallest_reply():
    """The ticket is the smallest of a majority's, not the largest."""
    read = _kinds.fair_queue.TicketRound.read

    def smallest(self, node, reply):
        before = self.ticket
        granted = read(self, node, reply)
        self.ticket = min(before or reply, reply)
        return granted

    with patch.object(_kinds.fair_queue.TicketRound, "read", smallest):
        yield


@mutant("fair")
def ticket_from_one_node():
    """The first node that replies determines the ticket."""
    init = _kinds.fair_queue.TicketRound.__init__

    def alone(self, *arguments):
        init(self, *arguments)
        self.quorum = 1

    with patch.object(_kinds.fair_queue.TicketRound, "__init__", alone):
        yield


@mutant("fair")
def ticket_is_not_levelled():
    """The queue entry is stored, but its ticket is not."""
    levelled = "if stored and tonumber(stored) > tonumber(highest) then"
    with rewritten("fair_acquire", (levelled, "if stored then")), rewritten("fair_wait", (levelled, "if stored then")):
        yield


@mutant("fair")
def nobody_is_ahead():
    """A node grants to any waiter, not only the first."""
    with rewritten("fair_acquire", ("if head and head ~= me then", "if false then")):
        yield


@mutant("fair")
def the_impatient_do_not_look_at_the_queue():
    """Requests that do not queue get in before those that do."""
    with rewritten("fair_acquire", ("if head and head ~= me then", "if me and head and head ~= me then")):
        yield


@mutant("fair")
def dead_waiter_is_not_pruned():
    """A dead waiter stays the first as long as others wait."""
    pruned = ("if till > now then return head, till end", "if head then return head, till end")
    looks_no_sooner = ("return kept", "return tonumber(ARGV[2])")
    with (
        rewritten("fair_acquire", pruned),
        rewritten("fair_wait", ("while kept <= 0 do", "while false do"), looks_no_sooner),
    ):
        yield


@mutant("fair")
def cancelled_waiter_stays():
    """A cancelled waiter's entry stays in the queue."""

    def withdraw(self):
        if self._waiters is not None:
            self._waiters.leave(self._entry)
            self._waiters = None

    with patch.object(_kinds.fair.FairAttempt, "cleanup", withdraw):
        yield


@mutant("fair")
def the_head_is_not_woken():
    """The waiter that becomes the first is not notified."""
    with (
        rewritten("fair_acquire", (WAKE, ""), ("redis.call('DEL', ARGV[4] .. who)", "")),
        rewritten("fair_leave", ("redis.pcall('SET', ARGV[1] .. who, '', 'PX', 1000)", "")),
    ):
        yield


@mutant("corners", "fair")
def who_becomes_the_first_by_its_own_sign_is_not_told():
    """A waiter whose own heartbeat makes it the first is not notified: servers do not report a client's own changes."""
    with rewritten("fair_wait", ("return head", "return tonumber(ARGV[2])")):
        yield


@mutant("fair")
def places_are_not_kept():
    """There are no heartbeats: waiters behind the first are removed after a while."""
    with patch.object(_kinds.fair_queue.FairWaiters, "_send_heartbeats", lambda _self: None):
        yield


@mutant("fair")
def queues_are_kept_for_ever():
    """Queues remain after all their waiters are dead."""
    with rewritten("fair_acquire", ("then redis.call('PEXPIRE', key, ARGV[7]) end", "then end")):
        yield


@mutant("fair")
def a_vote_costs_the_place():
    """A node that grants ends the queue entry immediately, although the vote may have to be released."""
    ends = (
        "if me then redis.call('ZREM', queue, me) redis.call('HDEL', alive, me) "
        "local following = first() if following then wake(following) end end "
    )
    with rewritten("fair_acquire", ("if #KEYS < fence then", ends + "if #KEYS < fence then")):
        yield


@mutant("fair")
def the_first_wakes_nobody_here():
    """Waiters of the same process behind the first are not woken."""
    with patch.object(_kinds.fair_queue.FairWaiters, "_call", lambda _self, _claim: None):
        yield


# Latch


@mutant("latch")
def latch_read_from_one_node():
    """The events on one node are taken for the events on all."""
    init = _kinds.latch.LatchRead.__init__

    def alone(self, *arguments):
        init(self, *arguments)
        self.quorum = 1

    with patch.object(_kinds.latch.LatchRead, "__init__", alone):
        yield


@mutant("latch")
def latch_without_write_back():
    """Events seen on some nodes are reported, but not stored elsewhere."""
    with patch.object(_kinds.latch.LatchRead, "lacking", property(lambda _self: False)):
        yield


@mutant("latch")
def latch_write_back_is_not_awaited():
    """The write-back is sent, and the result reported before it arrives."""

    async def look(self, context, state, deadline):
        round_ = await self._majority(context, deadline, lambda: _kinds.latch.LatchRead(context, self, state))
        if round_.lacking:
            _kinds.latch.LatchWrite(context, self, state.ids, opening=self.complete(state)).ask_all()
        return 0 if self.complete(state) else self.of - len(state.ids)

    with patch.object(_kinds.latch.LatchCount, "look", look):
        yield


@mutant("latch")
def count_down_on_one_node():
    """One node that stored the event is enough."""
    init = _kinds.latch.LatchWrite.__init__

    def alone(self, *arguments, **options):
        init(self, *arguments, **options)
        self.quorum = 1

    with patch.object(_kinds.latch.LatchWrite, "__init__", alone):
        yield


@mutant("latch")
def an_event_counts_twice():
    """An event counts each time it is sent."""
    with rewritten(
        "latch_count",
        (
            "redis.call('SADD', KEYS[1], ARGV[i])",
            "redis.call('SADD', KEYS[1], redis.call('SADD', KEYS[1], ARGV[i]) == 0 and ARGV[i] .. '+' or ARGV[i])",
        ),
    ):
        yield


@mutant("latch")
def latch_opens_one_too_early():
    """One event is missing."""
    with patch.object(
        _kinds.latch.LatchCount, "complete", lambda self, seen: bool(seen.opened_on) or len(seen.ids) >= self.of - 1
    ):
        yield


@mutant("latch")
def latch_that_one_node_may_open():
    """The first node to count opens it."""
    with rewritten("latch_look", ("redis.call('HEXISTS', KEYS[2], 'open')", "redis.call('EXISTS', KEYS[1])")):
        yield


@mutant("latch")
def latch_wake_up_is_lost():
    """Waiters are not notified and check every few seconds."""
    with (
        patch.object(latch.LatchWaiters, "on_remote_change", lambda *_: None),
        patch.object(latch.LatchWaiters, "wake", lambda *_: None),
    ):
        yield


@mutant("latch")
def own_count_downs_wake_nobody():
    """A client's own count-downs do not wake its waiters; the nodes do not report them."""
    with patch.object(latch.LatchWaiters, "wake", lambda *_: None):
        yield
