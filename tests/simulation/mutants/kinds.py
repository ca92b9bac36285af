"""The rules of the other kinds of lock, each broken, as in mutants.py; only here, too."""

import asyncio
from contextlib import ExitStack
from unittest.mock import patch

from mutants import mutant, rewritten

from redlock_async import (
    _engine,
    _latch,
    _line,
    _permits,
    _queue,
    _readwrite,
    _scripts,
    _slots,
    latch,
    rwlock,
)

PRUNING = "redis.call('ZREMRANGEBYSCORE', readers, '-inf', now)"
WAKE = "redis.call('SET', ARGV[4] .. who, '', 'PX', 1000)"


# Readers and writers


@mutant("forced")
def readers_are_not_told_that_they_are_freed():
    """They learn of it at their next renewal."""
    with rewritten("read_extend", ("redis.call('EXISTS', KEYS[3 * i])", "")):
        yield


@mutant("readers and writers")
def the_writer_stays_where_it_is_no_reader_yet():
    """A node that was not heard of keeps it, and nobody takes it back there."""
    tell_all = _engine.Engine.tell_all

    def told(self, command, keep, but=0):
        if not but:
            tell_all(self, command, keep)

    with patch.object(_engine.Engine, "tell_all", told):
        yield


@mutant("readers and writers")
def writer_ignores_readers():
    """It takes the lock key whoever reads."""
    with rewritten("write_acquire", ("if last[1] then", "if false then")):
        yield


@mutant("readers and writers")
def reader_ignores_writers():
    """It joins whoever holds the lock key."""
    with rewritten("read_acquire", ("if holder and holder ~= ARGV[3] then", "if false then")):
        yield


@mutant("readers and writers")
def readers_are_not_pruned():
    """Who died stays a reader for as long as others come."""
    with ExitStack() as stack:
        for name in ("read_acquire", "read_secure", "write_acquire"):
            stack.enter_context(rewritten(name, (PRUNING, "")))
        stack.enter_context(rewritten("read_release", (PRUNING, ""), ("if last and", "if false and")))
        stack.enter_context(
            rewritten("read_extend", ("redis.pcall('ZREMRANGEBYSCORE', readers, '-inf', now)", "redis.pcall('TIME')"))
        )
        yield


@mutant("readers and writers")
def one_ttl_for_all_readers():
    """Whoever renews, renews them all."""
    ours = "redis.call('ZADD', readers, string.format('%.0f', now + ttl), token)"
    for_all = (
        "for _, reader in ipairs(redis.call('ZRANGE', readers, 0, -1)) do "
        "redis.call('ZADD', readers, string.format('%.0f', now + ttl), reader) end"
    )
    with rewritten("read_extend", (ours, for_all)):
        yield


@mutant("readers and writers")
def shortest_ttl_for_all_readers():
    """Whoever joins sets when all end."""
    ours = "redis.call('ZADD', readers, string.format('%.0f', now + ttl), ARGV[1])"
    for_all = f"{ours} redis.call('PEXPIRE', lock, ttl) redis.call('PEXPIRE', readers, ttl)"
    with rewritten("read_acquire", (ours, for_all)):
        yield


@mutant("readers and writers")
def last_reader_leaves_the_lock():
    """Nobody reads any more, and the lock key stays until it runs out."""
    with rewritten("read_release", ("redis.call('DEL', lock)", "redis.call('EXISTS', lock)")):
        yield


@mutant("readers and writers")
def any_reader_frees_the_lock():
    """Though others read."""
    with rewritten(
        "read_release", ("if redis.call('PEXPIRE', readers, redis.call('PTTL', lock)) == 0 then", "if ours == 1 then")
    ):
        yield


@mutant("readers and writers")
def waiting_writer_leaves_no_hint():
    """Readers come and go, and it waits for a moment without any."""
    with patch.object(_readwrite.Write, "contend", _readwrite.Write.acquire):
        yield


@mutant("readers and writers")
def hint_is_ignored():
    """Readers join though a writer waits."""
    with rewritten("read_acquire", ("local held_out = redis.call('EXISTS', KEYS[3]) == 1", "local held_out = false")):
        yield


@mutant("readers and writers")
def who_reads_is_held_out_of_reading_again():
    """Its second lease waits for a writer, which waits for its first."""
    with rewritten("read_acquire", ("if held_out and ARGV[5] ~= '' then", "if false then")):
        yield


@mutant("readers and writers")
def who_reads_queues_to_read_again():
    """Behind others of its process, who wait for a writer, which waits for its first lease."""
    with patch.object(_readwrite.Read, "queues", new=True):
        yield


@mutant("readers and writers")
def hint_is_never_withdrawn():
    """A writer that has given up, or is in, holds the readers out until its hint has run out."""
    with patch.object(_readwrite.Write, "withdraw", lambda _self: None):
        yield


@mutant("readers and writers")
def a_vote_takes_the_hint_away():
    """Also where the writer has to give it back: then readers get in once more."""
    freeing = "redis.call('DEL', readers)\n"
    with rewritten(
        "write_acquire", (freeing, f"{freeing}if redis.call('GET', hint) == ARGV[4] then redis.call('DEL', hint) end\n")
    ):
        yield


@mutant("readers and writers")
def downgrade_in_two_steps():
    """First release, then read where nobody else is."""
    downgrade = rwlock._downgrade

    async def torn(engine, writing):
        engine.tell_all(writing.claim.release(writing.token), writing.ttl)
        await asyncio.sleep(0.01)
        return await downgrade(engine, writing)

    def words(self, token, fence, ttl_ms):
        return self.reading().secure(token, fence, ttl_ms)

    with patch.object(rwlock, "_downgrade", torn), patch.object(_readwrite.Write, "downgrade", words):
        yield


@mutant("readers and writers")
def downgrade_where_it_is_not_held():
    """On every node, whoever has it there, and any of them will do."""
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
    """The first reader, too, takes what the register holds."""
    with rewritten("read_acquire", ("if joined then\n", "if true then\n")):
        yield


@mutant("readers and writers")
def reader_secures_without_reading():
    """It counts on nodes where it is no reader, whoever holds the lock there."""
    with rewritten(
        "read_secure",
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
    """Some mean two permits, and others three."""
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
    """Long after the slots."""
    with rewritten("semaphore_acquire", ("SET', KEYS[1], ARGV[1], 'PX', 2 * ARGV[4])", "SET', KEYS[1], ARGV[1])")):
        yield


@mutant("semaphore")
def only_one_slot_is_tried():
    """Who finds it taken waits for it, though others are free."""

    def choose(self, token):  # noqa: ARG001 - its signature
        self.slots = tuple(range(self.count))

    with patch.object(_slots.Slots, "_choose", choose):
        yield


@mutant("semaphore")
def a_slot_is_taken_over():
    """Whoever has it."""
    with rewritten("semaphore_acquire", ("if holder then break end", "holder = false")):
        yield


@mutant("semaphore")
def some_of_the_slots_will_do():
    """Who wants several takes those that are free on a node, and the node counts."""
    with rewritten(
        "semaphore_acquire",
        ("local holder\n", "local holder\nlocal lacking = 0\n"),
        ("if holder then break end", "if holder then lacking = lacking + 1 end"),
        ("if not holder then\n", "if lacking < wanted then\n"),
        (
            "do redis.call('SET', KEYS[ARGV[i] + 3], ARGV[3], 'PX', ARGV[4]) end",
            "do redis.call('SET', KEYS[ARGV[i] + 3], ARGV[3], 'NX', 'PX', ARGV[4]) end",
        ),
    ):
        yield


@mutant("semaphore")
def some_of_the_slots_are_released():
    """Who has several gives one back."""

    def release(self, token):
        return _scripts.DeleteIfEqual(self.held_by(token)[0], token)

    with patch.object(_slots.Slots, "release", release), patch.object(_slots.Slots, "width", 1):
        yield


@mutant("semaphore")
def one_register_for_several_slots():
    """The fence of who holds several is above the earlier holders' of the first of them only."""
    registers = _slots.Slots._registers
    with patch.object(_slots.Slots, "_registers", lambda self: registers(self)[:1]):
        yield


@mutant("semaphore")
def those_who_want_few_are_not_held_back():
    """They pass one who wants many for as long as they come."""
    with patch.object(_slots, "PATIENCE", 10**9), patch.object(_slots, "LONGEST_PATIENCE", 10**9):
        yield


@mutant("semaphore")
def they_are_held_back_only_for_a_moment():
    """The hint is not kept alive until there are enough."""
    with patch.object(_slots, "REFRESH", 10**9):
        yield


@mutant("semaphore")
def those_who_want_few_are_held_back_for_ever():
    """Though whoever wants more has got them, or has given up."""
    with patch.object(_slots.Slots, "withdraw", lambda _self: None), patch.object(_slots, "HINT_MS", 10**6):
        yield


@mutant("semaphore")
def who_wants_as_many_is_held_back():
    """Each by the hint of the other."""
    with rewritten(
        "semaphore_acquire",
        ("hint < ARGV[6]", "hint ~= ARGV[6]"),
    ):
        yield


@mutant("semaphore")
def who_wants_as_many_is_never_held_back():
    """They pass the one that holds back who wants fewer, for as long as they come."""
    with rewritten(
        "semaphore_acquire", ("if ahead > wanted or (ahead == wanted and", "if ahead > wanted or (false and")
    ):
        yield


@mutant("semaphore")
def those_who_want_many_follow_each_other_at_once():
    """When one is in, the next holds back who wants fewer in the same moment."""
    with patch.object(_slots, "PAUSE", 0):
        yield


# Change of permits


@mutant("semaphore")
def permits_are_changed_on_a_minority():
    """One node that has stored the new number is enough."""
    change = _permits.change_permits

    async def one(engine, *arguments):
        needed, engine.needed = engine.needed, 1
        try:
            await change(engine, *arguments)
        finally:
            engine.needed = needed

    with patch.object(_permits, "change_permits", one):
        yield


@mutant("semaphore")
def permits_are_lowered_below_what_is_held():
    """Nobody looks whether a slot beyond is held."""
    with (
        rewritten("semaphore_change", ("if holder then return", "if false then return")),
        rewritten("semaphore_inspect", ("if holder then answer", "if false then answer")),
    ):
        yield


@mutant("semaphore")
def permits_are_lowered_when_nobody_has_been_seen():
    """They are held by whoever comes between the look and the change."""
    with rewritten("semaphore_change", ("if holder then return", "if false then return")):
        yield


@mutant("semaphore")
def a_change_of_permits_is_forgotten():
    """When no slot is held, whoever comes may bring another number."""
    with rewritten(
        "semaphore_acquire",
        ("set = string.match(bound, '^(%d+):')", "bound = string.match(bound, '^%d+') or bound"),
    ):
        yield


@mutant("semaphore")
def a_renewal_brings_back_the_old_number():
    """The number of permits of who holds a slot replaces what an operator has set."""
    with rewritten("semaphore_extend", ("if left == -2 or (left >= 0 and left < ttl) then", "if left < ttl then")):
        yield


@mutant("semaphore")
def a_change_that_failed_is_not_taken_back():
    """Some nodes have the new number, others the old."""
    with rewritten("semaphore_unchange", ("if redis.call('GET', KEYS[1]) ~= ARGV[1] then", "if true then")):
        yield


@mutant("semaphore")
def what_is_taken_back_is_no_number_at_all():
    """A change that failed leaves none where there was one, also where slots are held."""
    with rewritten("semaphore_unchange", ("if ARGV[2] == '' then", "if true then")):
        yield


# Fair


@mutant("fair")
def order_of_arrival_on_each_node():
    """No tickets: each node has its own first."""
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
    """Not the largest of a majority's."""
    read = _line.Draw.read

    def smallest(self, node, reply):
        before = self.ticket
        granted = read(self, node, reply)
        self.ticket = min(before or reply, reply)
        return granted

    with patch.object(_line.Draw, "read", smallest):
        yield


@mutant("fair")
def ticket_from_one_node():
    """The first that answers."""
    init = _line.Draw.__init__

    def alone(self, *arguments):
        init(self, *arguments)
        self.needed = 1

    with patch.object(_line.Draw, "__init__", alone):
        yield


@mutant("fair")
def ticket_is_not_levelled():
    """The place is stored, and its ticket is not."""
    levelled = "if stored and tonumber(stored) > tonumber(highest) then"
    with rewritten("fair_acquire", (levelled, "if stored then")), rewritten("fair_wait", (levelled, "if stored then")):
        yield


@mutant("fair")
def nobody_is_ahead():
    """A node grants to whoever asks."""
    with rewritten("fair_acquire", ("if head and head ~= me then", "if false then")):
        yield


@mutant("fair")
def the_impatient_do_not_look_at_the_queue():
    """Who does not queue gets in before those who do."""
    with rewritten("fair_acquire", ("if head and head ~= me then", "if me and head and head ~= me then")):
        yield


@mutant("fair")
def dead_waiter_is_not_pruned():
    """It stays the first for as long as others wait."""
    pruned = ("if till > now then return head, till end", "if head then return head, till end")
    looks_no_sooner = ("return kept", "return tonumber(ARGV[2])")
    with (
        rewritten("fair_acquire", pruned),
        rewritten("fair_wait", ("while kept <= 0 do", "while false do"), looks_no_sooner),
    ):
        yield


@mutant("fair")
def cancelled_waiter_stays():
    """Nobody is told that it has left."""

    def withdraw(self):
        if self._line is not None:
            self._line.leave(self)
            self._line = None

    with patch.object(_queue.Fair, "withdraw", withdraw):
        yield


@mutant("fair")
def the_head_is_not_woken():
    """Who becomes the first is not told."""
    with (
        rewritten("fair_acquire", (WAKE, ""), ("redis.call('DEL', ARGV[4] .. who)", "")),
        rewritten("fair_leave", ("redis.pcall('SET', ARGV[1] .. who, '', 'PX', 1000)", "")),
    ):
        yield


@mutant("corners", "fair")
def who_becomes_the_first_by_its_own_sign_is_not_told():
    """No server reports to a client what that has changed itself."""
    with rewritten("fair_wait", ("return head", "return tonumber(ARGV[2])")):
        yield


@mutant("fair")
def places_are_not_kept():
    """No signs of life: who is not the first is forgotten after a while."""
    with patch.object(_line.Line, "_sign", lambda _self: None):
        yield


@mutant("fair")
def queues_are_kept_for_ever():
    """Also when all who waited there are dead."""
    with rewritten("fair_acquire", ("then redis.call('PEXPIRE', key, ARGV[7]) end", "then end")):
        yield


@mutant("fair")
def a_vote_costs_the_place():
    """A node that grants ends the place at once, though its vote may have to be given back."""
    ends = (
        "if me then redis.call('ZREM', queue, me) redis.call('HDEL', alive, me) "
        "local following = first() if following then wake(following) end end "
    )
    with rewritten("fair_acquire", ("if #KEYS == 4 then", ends + "if #KEYS == 4 then")):
        yield


@mutant("fair")
def the_first_wakes_nobody_here():
    """Those of its own process who wait behind it are not called."""
    with patch.object(_line.Line, "_call", lambda _self, _claim: None):
        yield


# Latch


@mutant("latch")
def latch_read_from_one_node():
    """What one node has counted is taken for what all have."""
    init = _latch.Look.__init__

    def alone(self, *arguments):
        init(self, *arguments)
        self.needed = 1

    with patch.object(_latch.Look, "__init__", alone):
        yield


@mutant("latch")
def latch_without_write_back():
    """What was seen on some nodes is told, and stored nowhere else."""
    with patch.object(_latch.Look, "lacking", property(lambda _self: False)):
        yield


@mutant("latch")
def latch_write_back_is_not_awaited():
    """It is on its way, and told before it is there."""

    async def look(self, engine, seen, deadline):
        round_ = await self._majority(engine, deadline, lambda: _latch.Look(engine, self, seen))
        if round_.lacking:
            _latch.Write(engine, self, seen.ids, opening=self.complete(seen)).ask_all()
        return 0 if self.complete(seen) else self.of - len(seen.ids)

    with patch.object(_latch.Count, "look", look):
        yield


@mutant("latch")
def count_down_on_one_node():
    """One that has stored it is enough."""
    init = _latch.Write.__init__

    def alone(self, *arguments, **options):
        init(self, *arguments, **options)
        self.needed = 1

    with patch.object(_latch.Write, "__init__", alone):
        yield


@mutant("latch")
def an_event_counts_twice():
    """Each time it is given."""
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
    with patch.object(_latch.Count, "complete", lambda self, seen: seen.open or len(seen.ids) >= self.of - 1):
        yield


@mutant("latch")
def latch_that_one_node_may_open():
    """The first node to count opens it."""
    with rewritten("latch_look", ("redis.call('HEXISTS', KEYS[2], 'open')", "redis.call('EXISTS', KEYS[1])")):
        yield


@mutant("latch")
def latch_wake_up_is_lost():
    """Whoever waits hears of nothing, and looks every few seconds."""
    with (
        patch.object(latch.Watch, "freed", lambda *_: None),
        patch.object(latch.Watch, "wake", lambda *_: None),
    ):
        yield


@mutant("latch")
def own_count_downs_wake_nobody():
    """The nodes do not report them to us, and nobody else does."""
    with patch.object(latch.Watch, "wake", lambda *_: None):
        yield
