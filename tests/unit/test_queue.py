"""The fair lock's commands as the bytes that servers get, and who of a process is next, whoever leaves when."""

import asyncio
import os
from itertools import permutations
from types import SimpleNamespace
from zlib import crc32

import hiredis
import pytest

from redlock_async import ConfigurationError
from redlock_async._claim import Held
from redlock_async._deadlines import Deadlines
from redlock_async._fleet import Fleet
from redlock_async._keys import Keys
from redlock_async._line import BATCH, REGISTER_MS, SIGNS, Line
from redlock_async._mutex import Mutex
from redlock_async._queue import SHORTEST_PLACE, Ahead, Fair, place_kept
from redlock_async._scripts import Dialect, script
from redlock_async._wire import Outbox
from redlock_async.events import Events

TOKEN = b"0123456789abcdef0123456789abcdef:host:1"
KEYS = Keys("n:")
QUEUE, KEPT, TICKET = b"n:redlock-async:queue:{x}", b"n:redlock-async:queue-kept:{x}", b"n:redlock-async:ticket:{x}"


def sent(command):
    """What a server is sent, as its parser sees it."""
    reader = hiredis.Reader()
    reader.feed(command.pack(Dialect.PLAIN))
    return reader.gets()


GROUND = SimpleNamespace(fresh_token=lambda: os.urandom(16).hex().encode() + b":host:1")


def fair(*, fenced=True):
    """The claim of one acquire."""
    return Fair(KEYS, ("x",), fenced=fenced).begin(GROUND)


def hall():
    """A client without nodes, which remembers what everybody is to be told."""
    loop, told = asyncio.get_running_loop(), []
    return SimpleNamespace(
        loop=loop,
        nodes=Fleet([], Outbox(loop)),
        needed=0,
        now=loop.time,
        deadlines=Deadlines(loop, loop.time),
        events=Events(),
        node_timeout=0.25,
        shared={},
        closed=False,
        told=told,
        tell_all=lambda command, keep: told.append((sent(command), keep)),
    )


def line_of(hall):
    """An empty line."""
    return Line(hall, (QUEUE, KEPT, TICKET), QUEUE + b":", 1500)


def waiters(line, *tickets):
    """Claims with those tickets, which have joined the line in that order."""
    claims = [fair() for _ in tickets]
    for claim, ticket in zip(claims, tickets, strict=True):
        claim.ticket, claim._line = ticket, line
        line.join(claim)
    return claims


@pytest.mark.parametrize("fenced", [True, False])
def test_without_a_ticket_it_asks_only_whether_it_is_free(fenced):
    """The name itself is the key; queue and register are named, but no place is asked for."""
    claim = fair(fenced=fenced)
    fence = [b"n:redlock-async:fence:%d" % (crc32(b"n:x") % 16384)] if fenced else []
    expected = [b"n:x", QUEUE, KEPT, TICKET, *fence, TOKEN, b"100", b"7", QUEUE + b":", b"", b"0", b"1500", b"3600000"]
    for words in (claim.acquire, claim.contend):
        assert sent(words(TOKEN, 100, 7)) == [b"EVALSHA", script("fair_acquire").sha, b"%d" % (4 + fenced), *expected]


def test_with_a_ticket_every_attempt_brings_the_place():
    """Ticket, id and how long the place is kept are in it; the key that wakes is the id's."""
    claim = fair()
    claim.ticket = 42
    words = sent(claim.contend(TOKEN, 100, 7))
    assert words[-4:] == [claim.id, b"42", b"1500", b"3600000"]
    assert claim.watched == (b"n:x", QUEUE + b":" + claim.id)
    assert claim.id.endswith(b":host:1")
    assert len(claim.id) == 32 + len(b":host:1")


def test_each_acquire_has_a_place_of_its_own():
    """The lock object is shared by tasks; what belongs to one acquire is not."""
    lock = Fair(KEYS, ("x",), fenced=True)
    one, two = lock.begin(GROUND), lock.begin(GROUND)
    assert one.id != two.id
    assert lock.id == b""
    one.ticket = 1
    assert two.ticket is None
    assert lock.ticket is None


def test_once_held_it_is_the_plain_lock():
    """Release, retention, levelling, extension and the keys a lease is found under are the same bytes."""
    claim, plain = fair(), Mutex(KEYS, ("x",), fenced=True)
    for words in (
        lambda c: c.release(TOKEN),
        lambda c: c.retain(TOKEN, 5),
        lambda c: c.secure(TOKEN, 9, 0),
        lambda c: c.secure(TOKEN, 9, 100),
        lambda c: type(c).extend([(c, TOKEN, 100)]),
    ):
        assert sent(words(claim)) == sent(words(plain))
    assert claim.held_by(TOKEN) == plain.held_by(TOKEN) == (b"n:x",)
    assert claim.width == plain.width
    assert claim.turns == ()


def test_replies():
    """The holder, or who is ahead; a key without expiry has no end."""
    held = fair().refusal([TOKEN, 1500, 0])
    assert held == Held(TOKEN, 1.5)
    assert not held.ahead
    ahead = fair().refusal([TOKEN, 200, 1])
    assert isinstance(ahead, Ahead)
    assert (ahead.token, ahead.expires_in, ahead.ahead) == (TOKEN, 0.2, True)
    assert fair().refusal([TOKEN, -1, 0]).expires_in is None


def test_places_outlast_several_node_timeouts():
    """A sign of life that takes as long as it may does not cost the place."""
    assert place_kept(0.25) == SHORTEST_PLACE
    assert place_kept(2.0) > 2.0 * SIGNS
    for timeout in (0.01, 0.25, 1.0, 5.0):
        assert place_kept(timeout) * (SIGNS - 1) / SIGNS >= timeout
    assert 1000 * place_kept(5.0) < REGISTER_MS


@pytest.mark.parametrize("name", ["", "redlock-async:x", 5, "\ud800"])
def test_names_are_those_of_locks(name):
    """The same rules, and the same error."""
    with pytest.raises(ConfigurationError):
        Fair(KEYS, (name,), fenced=True)


@pytest.mark.asyncio
@pytest.mark.parametrize("order", list(permutations(range(4))))
async def test_the_smallest_ticket_is_called_whatever_the_order_of_joining_and_leaving(order):
    """Exactly one is called at a time, in ticket order."""
    served, line = [], line_of(hall())
    claims = waiters(line, *(10 + number for number in order))

    async def wait(claim):
        assert await line.turn(claim, None)
        served.append(claim.ticket)
        line.leave(claim)

    await asyncio.wait_for(asyncio.gather(*(wait(claim) for claim in claims)), 1)
    assert served == [10, 11, 12, 13]


@pytest.mark.asyncio
async def test_equal_tickets_are_ordered_by_id():
    """Two who drew at the same instant stand in the order the servers would put them in."""
    line = line_of(hall())
    claims = sorted(waiters(line, 5, 5, 5), key=lambda claim: claim.id)
    assert await line.turn(claims[0], None)
    for claim in claims[1:]:
        assert not await line.turn(claim, 0.0)


@pytest.mark.asyncio
@pytest.mark.parametrize("leaver", [0, 1, 2])
async def test_one_that_leaves_does_not_hold_up_the_others(leaver):
    """Head, middle or last: the rest are called in order, and an empty line is forgotten, timer and all."""
    place = hall()
    line = place.shared[QUEUE] = line_of(place)
    claims = waiters(line, 1, 2, 3)
    waiting = [asyncio.ensure_future(line.turn(claim, None)) for claim in claims]
    await asyncio.sleep(0)
    assert sent(claims[leaver].withdraw()) == [
        b"EVALSHA", script("fair_leave").sha, b"2", QUEUE, KEPT, QUEUE + b":", claims[leaver].id, b"1500",
    ]  # fmt: skip
    assert claims[leaver].withdraw() is None
    for number, claim in enumerate(claims):
        assert await asyncio.wait_for(waiting[number], 1)
        if number != leaver:
            assert claim.withdraw() is not None
    assert QUEUE not in place.shared
    assert line._timer is None


@pytest.mark.asyncio
async def test_the_winner_gives_its_place_up():
    """A grant does not end it; one without a place has nothing to end."""
    (winner,) = waiters(line_of(hall()), 1)
    winner.contend(TOKEN, 100, 7)
    words = sent(winner.withdraw())
    assert words[0] == b"EVALSHA"
    assert words[-2:] == [winner.id, b"1500"]
    assert winner.withdraw() is None
    assert fair().withdraw() is None


@pytest.mark.asyncio
async def test_signs_of_life_are_shared():
    """All waiters of a process go out in few commands, and only those who are there."""
    sent_for = []
    line = line_of(hall())
    line.keep = lambda claims: sent_for.append([claim.ticket for claim in claims])
    claims = waiters(line, *range(1, 2 * BATCH + 51))
    sent_for.clear()
    claims[0].withdraw()
    line._sign()
    assert [len(batch) for batch in sent_for] == [BATCH, BATCH, 49]
    assert [ticket for batch in sent_for for ticket in batch] == list(range(2, 2 * BATCH + 51))
    line._timer.cancel()
