"""The semaphore's commands as the bytes that servers get, what their replies mean, and which slot is tried next."""

from itertools import combinations, product

import hiredis
import pytest

from redlock_async import ConfigurationError
from redlock_async._claim import HINT_MS, REFRESH, Held
from redlock_async._errors import KeyConflict, NodeRefused
from redlock_async._keys import Keys
from redlock_async._replies import failure
from redlock_async._round import Round
from redlock_async._scripts import Dialect, script
from redlock_async._slots import LONGEST_PATIENCE, MOST_PERMITS, PATIENCE, PAUSE, RACES, Slots, Taken, detached

TOKEN = b"0123456789abcdef0123456789abcdef:host:1"
KEYS = Keys("n:")
BOUND = b"n:redlock-async:semaphore:{x}"
HINT = b"n:redlock-async:semaphore-hint:{x}"
SLOTS = [BOUND + b":%d" % number for number in range(1000)]


class Clock:
    """What a claim may use of its client: a clock that stands still unless it is set."""

    def __init__(self):
        self.at = 1000.0

    def now(self):
        """Read it."""
        return self.at


GROUND = Clock()

SPARE = 2
"""Of five nodes, those that a quorum can do without."""


def sent(command, dialect=Dialect.PLAIN):
    """The command as a server's parser sees it; nothing may be left over."""
    reader = hiredis.Reader()
    reader.feed(command.pack(dialect))
    words = reader.gets()
    assert reader.gets() is False
    return words


def sha(name):
    """How a script is called."""
    return script(name).sha


def at(slot, permits=3, *, fenced=True):
    """The claim of a lease that has that slot."""
    return detached(KEYS, ["x"], {"permits": permits, "slots": [slot]}, fenced=fenced)


def tried(claim, token=TOKEN):
    """The slot that the next attempt asks for."""
    claim.contend(token, 1, 1)
    (slot,) = claim.slots
    return slot


def of(*slots_, permits=3, fenced=True):
    """The claim of a lease that has those slots."""
    return detached(KEYS, ["x"], {"permits": permits, "slots": list(slots_)}, fenced=fenced)


TOKENS = [b"token %d" % number for number in range(200)]


# What is given


@pytest.mark.parametrize("permits", [0, -1, MOST_PERMITS + 1, True, False, 1.0, "4", None, [4]])
def test_permits_that_cannot_be(permits):
    """A whole number from 1 to the most; True is no number."""
    with pytest.raises(ConfigurationError, match="permits"):
        Slots(KEYS, "x", permits, fenced=True)


@pytest.mark.parametrize("permits", [1, 2, MOST_PERMITS])
def test_permits_are_as_many_keys(permits):
    """One a slot, all with the name in a hash tag and under the reserved prefix; the process has one queue."""
    claim = Slots(KEYS, "x", permits, fenced=True)
    assert list(claim.watched) == [*SLOTS[:permits], HINT, BOUND]
    assert claim.turns == (BOUND + b" 1 of %d" % permits,)


@pytest.mark.parametrize("permits", [1, 2, 10])
def test_only_a_single_permit_keeps_the_process_waiting(permits):
    """With more, the next task asks for another slot as soon as one has its own."""
    claim = Slots(KEYS, "x", permits, fenced=True)
    assert claim.exclusive is claim.begin(GROUND).exclusive is (permits == 1)
    assert detached(KEYS, ["x"], claim.details(), fenced=True).exclusive is (permits == 1)


@pytest.mark.parametrize("name", ["", "redlock-async:x", "\ud800", 5, "x" * 5000])
def test_a_bad_name(name):
    """The same names are refused as for the lock."""
    with pytest.raises(ConfigurationError, match="name"):
        Slots(KEYS, name, 1, fenced=True)


def test_names_that_look_like_keys_do_not_meet():
    """No name's slot is another name's slot or number."""
    names = ["x", "x}", "x}:1", "x:1", "{x}", "}", "{"]
    keys = [key for name in names for key in Slots(KEYS, name, 3, fenced=True).watched]
    assert len(set(keys)) == len(keys)


# Words


@pytest.mark.parametrize("slot", range(3))
@pytest.mark.parametrize("fenced", [True, False])
def test_every_word_is_about_the_slot(slot, fenced):
    """Acquired, it is released, retained, secured and extended; no other slot is ever touched."""
    claim = at(slot, fenced=fenced)
    key = SLOTS[slot]
    register = [KEYS.fence(key)] if fenced else []
    number = str(slot).encode()
    assert claim.held_by(TOKEN) == (key,)
    claim._candidates = [slot]
    ask = [b"EVALSHA", sha("semaphore_acquire"), b"%d" % (5 + fenced), BOUND, HINT, *SLOTS[:3], *register, b"3", b"3"]
    assert sent(claim.acquire(TOKEN, 10_000, 7)) == [*ask, TOKEN, b"10000", b"7", b"", b"0", number]
    assert sent(claim.release(TOKEN)) == [b"EVALSHA", sha("mutex_release"), b"1", key, TOKEN, b"0"]
    assert sent(claim.release(TOKEN), Dialect.DELIFEQ) == [b"DELIFEQ", key, TOKEN]
    retain = [b"EVALSHA", sha("semaphore_retain"), b"2", BOUND, key, TOKEN, b"500", b"3"]
    assert sent(claim.retain(TOKEN, 500)) == retain
    secure = [b"EVALSHA", sha("semaphore_secure"), b"%d" % (2 + fenced), BOUND, key, *register, b"1", TOKEN, b"9", b"3"]
    assert sent(claim.secure(TOKEN, 7 if fenced else None, 9)) == [*secure, *([b"7"] if fenced else [])]


def test_many_are_extended_in_one_command():
    """Each with its own token, ttl and number; one state is read for each slot."""
    held = [(at(0), b"a", 1), (at(2), b"b", 0), (of(1, 4, permits=9), b"c", 3)]
    keys = [SLOTS[0], BOUND, SLOTS[2], BOUND, SLOTS[1], BOUND, SLOTS[4], BOUND]
    words = [b"a", b"1", b"3", b"b", b"0", b"3", b"c", b"3", b"9", b"c", b"3", b"9"]
    assert sent(Slots.extend(held)) == [b"EVALSHA", sha("semaphore_extend"), b"8", *keys, *words]
    assert [claim.width for claim, *_ in held] == [1, 1, 2]


@pytest.mark.parametrize("fenced", [True, False])
def test_every_word_about_several_slots_is_about_all_of_them(fenced):
    """In one command, with a register for each."""
    claim = of(2, 0, fenced=fenced)
    keys = [SLOTS[2], SLOTS[0]]
    registers = [KEYS.fence(key) for key in keys] if fenced else []
    assert claim.held_by(TOKEN) == tuple(keys)
    assert claim.turns != at(0).turns
    claim._candidates = [2, 0]
    number, slots_, words = b"%d" % (5 + len(registers)), sent(claim.acquire(TOKEN, 10_000, 7)), [b"2", b"0"]
    assert slots_[2] == number
    assert slots_[3:8] == [BOUND, HINT, *SLOTS[:3]]
    assert slots_[8 : -7 - 2] == registers
    assert sorted(slots_[-2:]) == sorted(words)
    claim = of(2, 0, fenced=fenced)
    assert sent(claim.release(TOKEN)) == [b"EVALSHA", sha("mutex_release"), b"2", *keys, TOKEN, b"0"]
    retain = [b"EVALSHA", sha("semaphore_retain"), b"3", BOUND, *keys, TOKEN, b"500", b"3"]
    assert sent(claim.retain(TOKEN, 500)) == retain
    number, words = b"%d" % (3 + len(registers)), [b"2", TOKEN, b"9", b"3", *([b"7"] if fenced else [])]
    secure = [b"EVALSHA", sha("semaphore_secure"), number, BOUND, *keys, *registers, *words]
    assert sent(claim.secure(TOKEN, 7 if fenced else None, 9)) == secure


def test_what_is_handed_on():
    """The slots and the number come back; nonsense is refused."""
    for wanted in ((2,), (4, 1)):
        claim = of(*wanted, permits=5)
        again = detached(KEYS, ["x"], claim.details(), fenced=True)
        assert (again.slots, again.permits, again.width) == (wanted, 5, len(wanted))
    for permits, slot in [(3, [3]), (3, [-1]), ("3", [1]), (3, 1), (3, None), (None, None), (0, [0]), (10_000, [1]),
                          (3, []), (3, [1, 1]), (3, [True]), (3, ["1"]), (True, [0])]:  # fmt: skip
        with pytest.raises(ConfigurationError):
            detached(KEYS, ["x"], {"permits": permits, "slots": slot}, fenced=True)


# Replies


def test_replies():
    """A list says who is in the way, until when at the earliest, and what is free."""
    claim = at(0).begin(GROUND)
    assert claim.refusal([b"t", 1500]) == Taken(b"t", 1.5, enough_in=1.5)
    assert claim.refusal([b"t", -1, 0, 2]) == Taken(b"t", None, free=(0, 2))
    assert isinstance(claim.refusal([b"t", 0]), Held)


def test_a_larger_number_left_behind_makes_it_show_all_those_slots():
    """Once; then the node knows whether any of them is held."""
    claim = Slots(KEYS, "x", 2, fenced=False).begin(GROUND)
    assert claim.again({0: claim.refusal([5]), 1: claim.refusal([3])}, 3)
    asked = sent(claim.contend(TOKEN, 9, 1))
    assert asked[2:12] == [b"7", BOUND, HINT, *SLOTS[:5], b"2", b"5"]
    assert claim.slots[0] < 2
    assert not claim.again({0: claim.refusal([5])}, 3)


def test_another_number_is_the_callers_mistake():
    """Not a node's."""
    error = failure("PERMITS it is in use with permits=4, and this was to be permits=3")
    assert type(error) is ConfigurationError
    assert str(error) == "it is in use with permits=4, and this was to be permits=3"
    assert type(failure("PERMITTED")) is NodeRefused


@pytest.mark.parametrize("kind", [ConfigurationError, KeyConflict])
@pytest.mark.parametrize(("answers", "hopeless"), [
    ("CCC", True), ("DCC", "last"), ("DDC", False), ("DDCCC", True), ("GCCC", True), ("GDC", False),
    ("GCC", False), ("DDD", False), ("RCD", False), ("CCR", False), ("DCCGG", False),
])  # fmt: skip
@pytest.mark.parametrize("last", [False, True])
def test_when_it_is_hopeless(answers, hopeless, kind, last):
    """Of five nodes, in this order: conflict, down, grant, refusal; those not there have yet to answer.

    Only who has no time to hear them is told what the others agree on.
    """
    round_ = Round.__new__(Round)
    round_.asked, round_.needed = 5, 3
    round_.granted, round_.refused = answers.count("G"), answers.count("R")
    round_.failed = answers.count("C") + answers.count("D")
    round_.causes = {n: kind("no") if a == "C" else ConnectionError() for n, a in enumerate(answers) if a in "CD"}
    round_._open = 0b11111 & ~((1 << len(answers)) - 1)
    error = round_.hopeless(["x"], last=last)
    assert (type(error) is kind) if hopeless is True or (hopeless == "last" and last) else error is None


# Which slot


def test_contenders_spread():
    """With nothing known, every slot is somebody's first."""
    claim = Slots(KEYS, "x", 4, fenced=True)
    assert {tried(claim.begin(GROUND), token) for token in TOKENS} == {0, 1, 2, 3}


def test_each_acquire_has_its_own_claim():
    """What one learns or wins does not change another's."""
    parent = Slots(KEYS, "x", 100, fenced=True)
    one, two = parent.begin(GROUND), parent.begin(GROUND)
    one.changed(SLOTS[7])
    assert tried(one) == 7
    assert {tried(two, token) for token in TOKENS} != {7}
    assert parent.slots == (0,)
    one.again({0: Taken(b"t", 1, free=(3,))}, 1)
    assert two._free == {}


def test_a_slot_that_changed_is_tried_next():
    """One of them, where several have."""
    claim = Slots(KEYS, "x", 10, fenced=True).begin(GROUND)
    claim.changed(SLOTS[7])
    assert tried(claim) == 7
    seen = set()
    for token in TOKENS:
        for slot in (3, 5, 3):
            claim.changed(SLOTS[slot])
        seen.add(tried(claim, token))
    assert seen == {3, 5}


@pytest.mark.parametrize("answered", range(1, 6))
def test_every_view_of_three_slots(answered):
    """Whatever the nodes that refused say is free: again, at the likeliest slot, iff a quorum of five may have it."""
    subsets = [free for size in range(3) for free in combinations(range(3), size)]
    for views in product(subsets, repeat=answered):
        claim = Slots(KEYS, "x", 3, fenced=True).begin(GROUND)
        votes = [sum(slot in free for free in views) for slot in range(3)]
        refusals = {node: Taken(b"t", 1.0, free=free) for node, free in enumerate(views)}
        possible = max(votes) > 0 and answered - max(votes) <= SPARE
        assert claim.again(refusals, SPARE) is possible
        if possible:
            assert votes[tried(claim)] == max(votes)


def test_what_was_learnt_adds_up_until_a_wait():
    """Nodes that did not refuse the second attempt still count as they were."""
    claim = Slots(KEYS, "x", 3, fenced=True).begin(GROUND)
    assert claim.again({node: Taken(b"t", 1.0, free=(1,)) for node in range(3)}, SPARE)
    assert tried(claim) == 1
    assert not claim.again({node: Taken(b"u", 1.0) for node in (2, 3, 4)}, SPARE)
    assert claim._free == {}


def test_lost_races_end_in_a_wait():
    """Slots that always seem free and never are do not make it ask for ever."""
    claim = Slots(KEYS, "x", 2, fenced=True).begin(GROUND)
    refusals = {node: Taken(b"t", 1.0, free=(1,)) for node in range(3)}
    answers = [claim.again(refusals, SPARE) for _ in range(2 * RACES + 2)]
    assert answers == [*[True] * RACES, False] * 2


# Several slots


@pytest.mark.parametrize("count", [0, -1, 4, True, 1.0, "2", None])
def test_a_count_that_cannot_be(count):
    """A whole number, of slots that there are."""
    with pytest.raises(ConfigurationError, match="count"):
        Slots(KEYS, "x", 3, fenced=True).wanting(count)


@pytest.mark.parametrize("known", [(), (7,), (7, 3), (7, 3, 5), (0, 9, 8, 7)])
def test_so_many_are_asked_for_and_those_that_seem_free_first(known):
    """All different, and others only where those do not suffice."""
    seen = set()
    for token in TOKENS:
        claim = Slots(KEYS, "x", 10, fenced=True).wanting(3).begin(GROUND)
        for slot in known:
            claim.changed(SLOTS[slot])
        claim.contend(token, 1, 1)
        assert len({*claim.slots} & {*range(10)}) == claim.count == 3
        assert len({*claim.slots} & {*known}) == min(len(known), 3)
        seen.add(frozenset(claim.slots))
    assert len(seen) > 1 or len(known) == 3


@pytest.mark.parametrize("answered", range(1, 4))
def test_every_view_of_four_slots_by_one_who_wants_two(answered):
    """Again, and at slots that a quorum of three may have free, iff there are two."""
    subsets = [free for size in range(4) for free in combinations(range(4), size)]
    for views in product(subsets, repeat=answered):
        claim = Slots(KEYS, "x", 4, fenced=True).wanting(2).begin(GROUND)
        votes = [sum(slot in view for view in views) for slot in range(4)]
        free = {slot for slot in range(4) if votes[slot] and answered - votes[slot] <= 1}
        again = claim.again({node: Taken(b"t", 1.0, free=view) for node, view in enumerate(views)}, 1)
        assert again is (len(free) >= 2)
        claim.contend(TOKEN, 1, 1)
        assert {*claim.slots} <= free if again else free <= {*claim.slots}


def test_all_the_slots_there_are_keep_the_process_waiting():
    """As a lock does."""
    claim = Slots(KEYS, "x", 4, fenced=True)
    assert [claim.wanting(count).exclusive for count in range(1, 5)] == [False, False, False, True]


def mark(claim, token=TOKEN):
    """Its hint, and for how long the next attempt leaves it if it is refused."""
    words = sent(claim.contend(token, 9, 1))
    return words[-2 - claim.count], int(words[-1 - claim.count])


OWN = b"2:" + TOKEN


def test_one_who_waits_in_vain_for_many_leaves_a_hint():
    """Who wants one slot never does; the hint is its own, withdrawn in the end, and left on all nodes."""
    for count in (1, 2):
        claim = Slots(KEYS, "x", 4, fenced=True).wanting(count).begin(GROUND)
        for _ in range(PATIENCE):
            assert claim.probes
            assert mark(claim) == (b"", 0)
            assert claim.withdraw() is None
            assert not claim.again({0: Taken(b"t", 1.0)}, 0)
        assert claim.probes is (count == 1)
        assert mark(claim) == ((b"", 0) if count == 1 else (OWN, HINT_MS))
    assert sent(claim.withdraw(), Dialect.DELIFEQ) == [b"DELIFEQ", HINT, OWN]


def test_one_who_waits_for_long_leaves_a_hint_and_keeps_it_alive():
    """It asks again in time for that, whenever there will be enough: that is told to whoever asks for how long."""
    clock = Clock()
    claim = Slots(KEYS, "x", 4, fenced=True).wanting(2).begin(clock)
    before = b""
    for wait in (LONGEST_PATIENCE, REFRESH, REFRESH):
        assert claim.probes
        assert mark(claim, b"another") == (before, 0)
        held = claim.refusal([b"t", 60_000, 3])
        assert (held.expires_in, held.ends_in) == (wait, 60.0)
        assert claim.refusal([b"t", 400]).expires_in == 0.4
        clock.at += wait
        assert claim.refusal([b"t", 60_000]).expires_in == 0.0
        assert not claim.probes
        before = OWN
        assert mark(claim) == (OWN, HINT_MS)
        assert not claim.again({0: Taken(b"t", 1.0)}, 0)


def test_one_that_was_held_back_leaves_others_a_moment_before_it_holds_them_back():
    """From the last time that it was, also when it has waited in vain for often enough, or has a hint already."""
    clock = Clock()
    claim = Slots(KEYS, "x", 4, fenced=True).wanting(2).begin(clock)
    clock.at += LONGEST_PATIENCE
    assert mark(claim) == (OWN, HINT_MS)
    clock.at += REFRESH
    for _ in range(3):
        held = claim.refusal([2, 60_000, b"2:0"])
        assert held.ahead
        assert (held.token, held.expires_in, held.ends_in) == (b"0", PAUSE, 60.0)
        assert claim.probes
        for _ in range(PATIENCE):
            claim.again({0: held}, 0)
        clock.at += PAUSE - 0.1
        assert mark(claim) == (OWN, 0)
    clock.at += 0.1
    assert mark(claim) == (OWN, HINT_MS)


def test_who_is_held_back_is_told_by_whom():
    """Not by a holder."""
    held = at(0).begin(GROUND).refusal([3, 2500, b"3:" + TOKEN])
    assert (held.token, held.expires_in, held.ahead, held.free) == (TOKEN, 2.5, True, ())
    claim = at(0).begin(GROUND)
    claim.changed(HINT)
    assert {tried(claim.begin(GROUND), token) for token in TOKENS} == {0, 1, 2}
