"""The semaphore: its commands as the bytes that nodes receive, what their replies mean, and which slots it asks for."""

from itertools import combinations, product

import pytest
from fakes import FakeContext, sent, sha

from redlock_async import ConfigurationError
from redlock_async._kinds.kind import RESERVATION_MS, RESERVATION_REFRESH, Refusal
from redlock_async._kinds.semaphore import (
    LONGEST_WAIT_BEFORE_RESERVATION,
    MAX_LOST_RACES,
    MOST_PERMITS,
    RESERVATION_PAUSE,
    WAITS_BEFORE_RESERVATION,
    ReservedAhead,
    Slots,
    SlotsTaken,
    from_details,
)
from redlock_async._rules.keys import Keys
from redlock_async._rules.replies import failure
from redlock_async._transport.commands import CompareAndDelete
from redlock_async._transport.connection import DECODE_ERRORS
from redlock_async.errors import NodeRefused

TOKEN = b"0123456789abcdef0123456789abcdef:host:1"
KEYS = Keys("n:")
PERMITS = b"n:redlock-async:semaphore:{n:x}"
RESERVATION = b"n:redlock-async:semaphore-hint:{n:x}"
SLOTS = [PERMITS + b":%d" % number for number in range(1000)]
TOKENS = [b"token %d" % number for number in range(200)]

SPARE = 2
"""How many of five nodes a quorum does not need."""


def semaphore(permits=3, *, count=1, fenced=True):
    """A semaphore on `x`, of which `count` slots are wanted."""
    return Slots(KEYS, "x", permits, fenced=fenced).with_count(count)


def started(permits=3, *, count=1, fenced=True, context=None):
    """One acquire of `count` slots."""
    return semaphore(permits, count=count, fenced=fenced).start(context or FakeContext())


def held(*slots, permits=3, fenced=True):
    """The kind of a lease on those slots."""
    return from_details(KEYS, ["x"], {"permits": permits, "slots": list(slots)}, fenced=fenced)


def asked_for(attempt, token=TOKEN):
    """The slots that the next attempt asks for; the same in the command as in the kind that it would be granted."""
    command = sent(attempt.retry_command(token, 1, 1))
    slots = attempt.granted_kind().slots
    assert tuple(map(int, command[-len(slots) :])) == slots
    return slots


def slot_asked_for(attempt, token=TOKEN):
    """The slot that the next attempt asks for."""
    (slot,) = asked_for(attempt, token)
    return slot


def refuse(attempt, reply):
    """Parse a node's reply, and have the attempt learn from it."""
    refusal = attempt.refusal(reply)
    attempt.on_refusal(refusal)
    return refusal


# Arguments


@pytest.mark.parametrize("permits", [0, -1, MOST_PERMITS + 1, True, False, 1.0, "4", None, [4]])
def test_invalid_permits(permits):
    """Permits are a whole number from 1 to MOST_PERMITS; True is not a number."""
    with pytest.raises(ConfigurationError, match="permits"):
        Slots(KEYS, "x", permits, fenced=True)


@pytest.mark.parametrize("permits", [1, 2, MOST_PERMITS])
def test_each_slot_has_a_key(permits):
    """All keys are reserved, with the name in a hash tag; the process has one local queue."""
    kind = semaphore(permits)
    assert list(kind.watched_keys) == [*SLOTS[:permits], RESERVATION, PERMITS]
    assert kind.start(FakeContext()).watched_keys == kind.watched_keys
    assert kind.local_queue_keys == (PERMITS + b" 1 of %d" % permits,)


@pytest.mark.parametrize("permits", [1, 2, 10])
def test_only_a_lease_on_the_only_permit_keeps_the_process_waiting(permits):
    """With more permits, the next task asks for another slot as soon as one task has its own."""
    kind = semaphore(permits)
    assert kind.keeps_local_turn is kind.start(FakeContext()).granted_kind().keeps_local_turn is (permits == 1)
    assert from_details(KEYS, ["x"], kind.details(), fenced=True).keeps_local_turn is (permits == 1)


@pytest.mark.parametrize("name", ["", "redlock-async:x", "\ud800", 5, "x" * 5000])
def test_names_are_checked_as_those_of_plain_locks(name):
    """The same rules apply."""
    with pytest.raises(ConfigurationError, match="name"):
        Slots(KEYS, name, 1, fenced=True)


def test_names_that_look_like_keys_do_not_collide():
    """No key of a semaphore is a key of another one."""
    names = ["x", "x}", "x}:1", "x:1", "{x}", "}", "{"]
    keys = [key for name in names for key in Slots(KEYS, name, 3, fenced=True).watched_keys]
    assert len(set(keys)) == len(keys)


# Commands


@pytest.mark.parametrize("slot", range(3))
@pytest.mark.parametrize("fenced", [True, False])
def test_every_command_is_about_the_slot(slot, fenced):
    """It is acquired, released, retained, reasserted and extended; no other slot is ever touched."""
    attempt, key = started(fenced=fenced), SLOTS[slot]
    register = [KEYS.fence(PERMITS)] if fenced else []
    number = str(slot).encode()
    attempt.key_changed(key)
    acquire = [b"EVALSHA", sha("semaphore_acquire"), b"%d" % (5 + fenced), PERMITS, RESERVATION, *SLOTS[:3], *register]
    arguments = [b"3", b"3", TOKEN, b"10000", b"7", b"", b"0", number]
    assert sent(attempt.first_command(TOKEN, 10_000, 7)) == [*acquire, *arguments]
    for kind in (attempt.granted_kind(), held(slot, fenced=fenced)):
        assert kind.held_by(TOKEN) == (key,)
        assert sent(kind.release(TOKEN)) == [b"EVALSHA", sha("mutex_release"), b"1", key, TOKEN, b"0"]
        assert sent(kind.release(TOKEN), CompareAndDelete.DELIFEQ) == [b"DELIFEQ", key, TOKEN]
        retain = [b"EVALSHA", sha("semaphore_retain"), b"2", PERMITS, key, TOKEN, b"500", b"3"]
        assert sent(kind.release_after(TOKEN, 500)) == retain
        arguments = [b"1", TOKEN, b"9", b"3", *([b"7"] if fenced else [])]
        reassert = [b"EVALSHA", sha("semaphore_reassert"), b"%d" % (2 + fenced), PERMITS, key, *register, *arguments]
        assert sent(kind.reassert(TOKEN, 7 if fenced else None, 9)) == reassert


def test_many_leases_are_extended_in_one_command():
    """Each slot with its own token, ttl and number of permits; the reply has one state for each slot."""
    leases = [(held(0), b"a", 1), (held(2), b"b", 0), (held(1, 4, permits=9), b"c", 3)]
    keys = [SLOTS[0], PERMITS, SLOTS[2], PERMITS, SLOTS[1], PERMITS, SLOTS[4], PERMITS]
    arguments = [b"a", b"1", b"3", b"b", b"0", b"3", b"c", b"3", b"9", b"c", b"3", b"9"]
    assert sent(Slots.extend(leases)) == [b"EVALSHA", sha("semaphore_extend"), b"8", *keys, *arguments]
    assert [kind.state_count for kind, *_ in leases] == [1, 1, 2]


@pytest.mark.parametrize("fenced", [True, False])
def test_every_command_about_several_slots_is_about_all_of_them(fenced):
    """In one command, with one register for all."""
    attempt = started(count=2, fenced=fenced)
    for slot in (2, 0):
        attempt.key_changed(SLOTS[slot])
    acquire = sent(attempt.first_command(TOKEN, 10_000, 7))
    granted = attempt.granted_kind()
    keys = [SLOTS[slot] for slot in granted.slots]
    registers = [KEYS.fence(PERMITS)] if fenced else []
    assert sorted(granted.slots) == [0, 2]
    assert acquire == [
        b"EVALSHA", sha("semaphore_acquire"), b"%d" % (5 + len(registers)), PERMITS, RESERVATION, *SLOTS[:3],
        *registers, b"3", b"3", TOKEN, b"10000", b"7", b"", b"0", *(b"%d" % slot for slot in granted.slots),
    ]  # fmt: skip
    for kind in (granted, held(*granted.slots, fenced=fenced)):
        assert kind.held_by(TOKEN) == tuple(keys)
        assert kind.local_queue_keys != held(0).local_queue_keys
        assert sent(kind.release(TOKEN)) == [b"EVALSHA", sha("mutex_release"), b"2", *keys, TOKEN, b"0"]
        retain = [b"EVALSHA", sha("semaphore_retain"), b"3", PERMITS, *keys, TOKEN, b"500", b"3"]
        assert sent(kind.release_after(TOKEN, 500)) == retain
        number, arguments = b"%d" % (3 + len(registers)), [b"2", TOKEN, b"9", b"3", *([b"7"] if fenced else [])]
        reassert = [b"EVALSHA", sha("semaphore_reassert"), number, PERMITS, *keys, *registers, *arguments]
        assert sent(kind.reassert(TOKEN, 7 if fenced else None, 9)) == reassert


def test_the_details_of_a_detached_lease():
    """The slots and the number of permits come back; invalid ones are rejected."""
    for wanted in ((2,), (4, 1)):
        kind = held(*wanted, permits=5)
        again = from_details(KEYS, ["x"], kind.details(), fenced=True)
        assert (again.slots, again.permits, again.state_count) == (wanted, 5, len(wanted))
    for permits, slots in [(3, [3]), (3, [-1]), ("3", [1]), (3, 1), (3, None), (None, None), (0, [0]), (10_000, [1]),
                           (3, []), (3, [1, 1]), (3, [True]), (3, ["1"]), (True, [0])]:  # fmt: skip
        with pytest.raises(ConfigurationError):
            from_details(KEYS, ["x"], {"permits": permits, "slots": slots}, fenced=True)


# Replies


def test_a_refusal_names_a_holder_the_expiry_and_the_free_slots():
    """`expires_in` is when enough slots have expired at the earliest; without an expiry it is unknown."""
    attempt = started()
    assert attempt.refusal([b"t", 1500]) == SlotsTaken(b"t", 1.5, enough_in=1.5)
    assert attempt.refusal([b"t", -1, 0, 2]) == SlotsTaken(b"t", None, free=(0, 2))
    assert isinstance(attempt.refusal([b"t", 0]), Refusal)


@pytest.mark.parametrize("reply", [
    [b"t", 1, 3], [b"t", 1, -1], [b"t", 1, b"0"], [b"t", 1, True], [None, 1], [0], [MOST_PERMITS + 1], [b"5"], [True],
    [], [b"t"], [2, 1], [2, 1, b"2:t", 0], [b"t", b"1"], [b"t", None], [2, 1, 5], [1.5, 1],
])  # fmt: skip
def test_malformed_replies(reply):
    """It raises one of the errors that count as a failure of the node."""
    with pytest.raises(DECODE_ERRORS):
        started().refusal(reply)


def test_a_larger_number_of_permits_makes_it_show_the_node_all_those_slots():
    """Once: then the node knows whether any of them is held."""
    attempt = started(2, fenced=False)
    assert attempt.retry_now({0: refuse(attempt, [5]), 1: refuse(attempt, [3])}, 3)
    command = sent(attempt.retry_command(TOKEN, 9, 1))
    assert command[2:12] == [b"7", PERMITS, RESERVATION, *SLOTS[:5], b"2", b"5"]
    assert int(command[-1]) < 2
    assert not attempt.retry_now({0: refuse(attempt, [5])}, 3)


def test_another_number_of_permits_is_the_caller_s_mistake():
    """It is not a failure of the node."""
    error = failure("PERMITS it is already in use with permits=4, but permits=3 was requested")
    assert type(error) is ConfigurationError
    assert str(error) == "it is already in use with permits=4, but permits=3 was requested"
    assert type(failure("PERMITTED")) is NodeRefused


# Which slot


def test_contenders_spread():
    """While nothing is known, each slot is the first choice of some token."""
    kind = semaphore(4)
    assert {slot_asked_for(kind.start(FakeContext()), token) for token in TOKENS} == {0, 1, 2, 3}


def test_what_one_acquire_learns_is_unknown_to_others():
    """Neither another attempt nor the kind changes."""
    kind, context = semaphore(100), FakeContext()
    one, two = kind.start(context), kind.start(context)
    one.key_changed(SLOTS[7])
    assert slot_asked_for(one) == 7
    assert {slot_asked_for(two, token) for token in TOKENS} != {7}
    assert kind.slots == (0,)
    one.retry_now({0: SlotsTaken(b"t", 1, free=(3,))}, 1)
    assert two._free == {}


def test_a_slot_that_changed_is_tried_next():
    """Or one of them, if several have."""
    attempt = started(10)
    attempt.key_changed(SLOTS[7])
    assert slot_asked_for(attempt) == 7
    seen = set()
    for token in TOKENS:
        for slot in (3, 5, 3):
            attempt.key_changed(SLOTS[slot])
        seen.add(slot_asked_for(attempt, token))
    assert seen == {3, 5}


@pytest.mark.parametrize("node_replies", range(1, 6))
def test_every_view_of_three_slots(node_replies):
    """Whichever slots are said to be free: it retries, at the likeliest one, iff a quorum may have that one free."""
    subsets = [free for size in range(3) for free in combinations(range(3), size)]
    kind, context = semaphore(3), FakeContext()
    for views in product(subsets, repeat=node_replies):
        attempt = kind.start(context)
        votes = [sum(slot in free for free in views) for slot in range(3)]
        refusals = {node: SlotsTaken(b"t", 1.0, free=free) for node, free in enumerate(views)}
        possible = max(votes) > 0 and node_replies - max(votes) <= SPARE
        assert attempt.retry_now(refusals, SPARE) is possible
        if possible:
            assert votes[slot_asked_for(attempt)] == max(votes)


def test_what_was_learned_adds_up_until_a_wait():
    """Nodes that did not refuse the second attempt still count as they were."""
    attempt = started()
    assert attempt.retry_now({node: SlotsTaken(b"t", 1.0, free=(1,)) for node in range(3)}, SPARE)
    assert slot_asked_for(attempt) == 1
    assert not attempt.retry_now({node: SlotsTaken(b"u", 1.0) for node in (2, 3, 4)}, SPARE)
    assert attempt._free == {}


def test_lost_races_end_in_a_wait():
    """Slots that seem free and never are do not make it ask forever."""
    attempt = started(2)
    refusals = {node: SlotsTaken(b"t", 1.0, free=(1,)) for node in range(3)}
    retries = []
    for _ in range(2 * MAX_LOST_RACES + 2):
        retries.append(attempt.retry_now(refusals, SPARE))
        assert attempt.lost_races is (False in retries)
    assert retries == [*[True] * MAX_LOST_RACES, False] * 2


# Several slots


@pytest.mark.parametrize("count", [0, -1, 4, True, 1.0, "2", None])
def test_invalid_counts(count):
    """A count is a whole number from 1 to the permits."""
    with pytest.raises(ConfigurationError, match="count"):
        semaphore().with_count(count)


@pytest.mark.parametrize("known", [(), (7,), (7, 3), (7, 3, 5), (0, 9, 8, 7)])
def test_it_asks_for_count_slots_and_for_those_that_seem_free_first(known):
    """All are different, and it asks for others only where those do not suffice."""
    seen, kind, context = set(), semaphore(10, count=3), FakeContext()
    for token in TOKENS:
        attempt = kind.start(context)
        for slot in known:
            attempt.key_changed(SLOTS[slot])
        slots = asked_for(attempt, token)
        assert len(slots) == len({*slots} & {*range(10)}) == kind.count == 3
        assert len({*slots} & {*known}) == min(len(known), 3)
        seen.add(frozenset(slots))
    assert len(seen) > 1 or len(known) == 3


@pytest.mark.parametrize("node_replies", range(1, 4))
def test_every_view_of_four_slots_by_one_that_wants_two(node_replies):
    """It retries, at slots that a quorum of three nodes may have free, iff there are two of them."""
    subsets = [free for size in range(4) for free in combinations(range(4), size)]
    kind, context = semaphore(4, count=2), FakeContext()
    for views in product(subsets, repeat=node_replies):
        attempt = kind.start(context)
        votes = [sum(slot in view for view in views) for slot in range(4)]
        free = {slot for slot in range(4) if votes[slot] and node_replies - votes[slot] <= 1}
        refusals = {node: SlotsTaken(b"t", 1.0, free=view) for node, view in enumerate(views)}
        retries = attempt.retry_now(refusals, 1)
        assert retries is (len(free) >= 2)
        slots = {*asked_for(attempt)}
        assert slots <= free if retries else free <= slots


def test_a_lease_on_all_slots_keeps_the_process_waiting():
    """As a plain lock does."""
    assert [semaphore(4, count=count).keeps_local_turn for count in range(1, 5)] == [False, False, False, True]


# Reservations


OWN = b"2:" + TOKEN
"""The mark in the reservation of an attempt for two slots, of which this was the token."""


def reservation(attempt, token=TOKEN, *, count=2):
    """The mark in the next attempt's command, and for how many ms a node keeps the reservation if it refuses."""
    command = sent(attempt.retry_command(token, 9, 1))
    return command[-2 - count], int(command[-1 - count])


def test_a_waiter_for_several_slots_leaves_a_reservation_after_enough_failed_waits():
    """A waiter for one slot never does. All nodes are asked for the reservation, and it is removed in the end."""
    for count in (1, 2):
        attempt = started(4, count=count)
        for _ in range(WAITS_BEFORE_RESERVATION):
            assert attempt.may_probe
            assert reservation(attempt, count=count) == (b"", 0)
            assert attempt.cleanup() is None
            assert not attempt.retry_now({0: SlotsTaken(b"t", 1.0)}, 0)
        assert attempt.may_probe is (count == 1)
        assert reservation(attempt, count=count) == ((b"", 0) if count == 1 else (OWN, RESERVATION_MS))
    assert sent(attempt.cleanup(), CompareAndDelete.DELIFEQ) == [b"DELIFEQ", RESERVATION, OWN]


def test_a_waiter_for_several_slots_leaves_a_reservation_after_a_long_wait_and_refreshes_it():
    """`expires_in` is no later than the refresh; `ends_in`, which errors report, is when there are enough slots."""
    context = FakeContext()
    attempt = started(4, count=2, context=context)
    before = b""
    for wait in (LONGEST_WAIT_BEFORE_RESERVATION, RESERVATION_REFRESH, RESERVATION_REFRESH):
        assert attempt.may_probe
        assert reservation(attempt, b"another") == (before, 0)
        refusal = refuse(attempt, [b"t", 60_000, 3])
        assert (refusal.expires_in, refusal.ends_in) == (wait, 60.0)
        assert refuse(attempt, [b"t", 400]).expires_in == 0.4
        context.at += wait
        assert refuse(attempt, [b"t", 60_000]).expires_in == 0.0
        assert not attempt.may_probe
        before = OWN
        assert reservation(attempt) == (OWN, RESERVATION_MS)
        assert not attempt.retry_now({0: SlotsTaken(b"t", 1.0)}, 0)


def test_a_waiter_that_was_held_back_pauses_before_it_holds_back_others():
    """From the last time that it was; also after enough failed waits, or with a reservation of its own."""
    context = FakeContext()
    attempt = started(4, count=2, context=context)
    context.at += LONGEST_WAIT_BEFORE_RESERVATION
    assert reservation(attempt) == (OWN, RESERVATION_MS)
    context.at += RESERVATION_REFRESH
    for _ in range(3):
        refusal = refuse(attempt, [2, 60_000, b"2:0"])
        assert refusal == ReservedAhead(b"0", RESERVATION_PAUSE, enough_in=60.0)
        assert (refusal.ahead, refusal.ends_in) == (True, 60.0)
        assert attempt.may_probe
        for _ in range(WAITS_BEFORE_RESERVATION):
            attempt.retry_now({0: refusal}, 0)
        context.at += RESERVATION_PAUSE - 0.1
        assert reservation(attempt) == (OWN, 0)
    context.at += 0.1
    assert reservation(attempt) == (OWN, RESERVATION_MS)


def test_a_refusal_because_of_a_reservation_names_the_waiter():
    """The reservation's owner comes first, and is no holder."""
    attempt = started()
    refusal = refuse(attempt, [3, 2500, b"3:" + TOKEN])
    assert refusal == ReservedAhead(TOKEN, 2.5, enough_in=2.5)
    assert (refusal.ahead, refusal.free) == (True, ())


@pytest.mark.parametrize("key", [RESERVATION, PERMITS])
def test_a_change_that_is_no_slot_s_says_nothing_about_which_slot_is_free(key):
    """A removed reservation or another number of permits may make any of them free."""
    kind, seen = semaphore(), set()
    for token in TOKENS:
        attempt = kind.start(FakeContext())
        attempt.key_changed(key)
        seen.add(slot_asked_for(attempt, token))
    assert seen == {0, 1, 2}
