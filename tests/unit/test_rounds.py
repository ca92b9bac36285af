"""Rounds of one acquire or release: which replies are grants, and which failures end the wait at once."""

import pytest
from fakes import FakeContext

from redlock_async import ConfigurationError
from redlock_async._kinds.kind import Refusal
from redlock_async._kinds.mutex import Mutex
from redlock_async._rules.keys import Keys
from redlock_async._rules.quorum import Verdict
from redlock_async._runtime.acquire_round import AcquireRound
from redlock_async._runtime.lease_registry import ReleaseRound
from redlock_async._transport.connection import ErrorReply
from redlock_async.errors import NodeNeedsOthers, WrongKeyType

TOKEN = b"0123456789abcdef0123456789abcdef:host:1"
FENCE = 1_700_000_000_000_000
NOW = 1_700_000_000_000_123

ERRORS = {ConfigurationError: "PERMITS another number", WrongKeyType: "WRONGTYPE Operation against a key"}


def mutex(*names, fenced=True):
    """A plain lock on those names."""
    return Mutex(Keys("n:"), names, fenced=fenced)


def acquire_round(kind, *, nodes=3, track=False):
    """The round of an acquire that all nodes have received."""
    build = kind.retry_command if track else kind.first_command
    round_ = AcquireRound(FakeContext(nodes), kind, build(TOKEN, 9, FENCE), 0.25, FENCE)
    round_.ask_all()
    return round_


# Replies to an acquire


@pytest.mark.asyncio
@pytest.mark.parametrize("kind", [mutex("x"), mutex("a", "b", fenced=False)])
async def test_a_negative_number_is_a_grant(kind):
    """Of the token that was proposed; it says what the node's clock shows."""
    round_ = acquire_round(kind)
    round_.deliver(2, -NOW)
    assert (round_.granted, round_.fences) == (1, {2: FENCE})
    assert acquire_round(kind).read(2, -NOW), "the rare path reads it in the same way"


@pytest.mark.asyncio
async def test_two_numbers_are_a_grant_of_another_token():
    """The value of the register; and what the node's clock shows."""
    round_ = acquire_round(mutex("x"))
    round_.deliver(2, [FENCE + 7, NOW])
    assert (round_.granted, round_.fences) == (1, {2: FENCE + 7})


@pytest.mark.asyncio
@pytest.mark.parametrize("reply", [FENCE, 1, 0])
async def test_a_grant_that_does_not_tell_the_time_is_none(reply):
    """No script of this library returns it."""
    with pytest.raises(TypeError):
        acquire_round(mutex("x")).read(2, reply)


@pytest.mark.asyncio
@pytest.mark.parametrize("reply", [-NOW, [FENCE + 7, NOW]])
async def test_a_grant_waits_when_the_clock_shows_another_time(reply):
    """Until the clocks have been compared: then it counts, or it does not."""
    for objection in (None, ConnectionError("its clock was stepped")):
        round_ = acquire_round(mutex("x"))
        deferred = round_.clocks.reject()
        round_.deliver(2, reply)
        assert (round_.granted, round_.failed, deferred) == (0, 0, [(round_, 2, reply, NOW - 10**9)])
        round_.compared(2, reply, objection)
        assert (round_.granted, round_.failed) == ((1, 0) if objection is None else (0, 1))
        assert round_.causes == ({} if objection is None else {2: objection})


@pytest.mark.asyncio
async def test_a_refusal_does_not_wait_for_the_clocks():
    """It gives no lock away."""
    round_ = acquire_round(mutex("x"))
    deferred = round_.clocks.reject()
    round_.deliver(0, [1, b"other", 1500])
    assert (round_.refused, deferred) == (1, [])


@pytest.mark.asyncio
async def test_ok_is_a_grant_of_a_plain_set_alone():
    """No script of this library returns it."""
    kind = mutex("x", fenced=False)
    round_ = acquire_round(kind)
    round_.deliver(2, b"OK")
    assert (round_.granted, round_.refused) == (1, 0)
    round_.deliver(1, b"no")
    round_.deliver(0, None)
    assert (round_.granted, round_.refused) == (1, 2)
    assert round_.refusals == {0: Refusal(None, None), 1: Refusal(None, None)}
    for reply in (b"OK", b"no", None):
        with pytest.raises(TypeError):
            acquire_round(kind, track=True).read(2, reply)


@pytest.mark.asyncio
async def test_a_refusal_is_kept_by_node():
    """The round knows who is in the way where."""
    round_ = acquire_round(mutex("x"))
    round_.deliver(0, [1, b"other", 1500])
    round_.deliver(1, [1, b"third", -1])
    assert round_.refusals == {0: Refusal(b"other", 1.5), 1: Refusal(b"third", None)}
    assert round_.outcome.result() is Verdict.REFUSED


@pytest.mark.asyncio
async def test_a_node_that_has_not_replied_yet_is_named():
    """An outage can be certain before all nodes have replied: those that are silent have not voted either."""
    round_ = acquire_round(mutex("x"), nodes=5)
    round_.deliver(0, FENCE)
    for node in (1, 2, 3):
        round_.deliver(node, ErrorReply("ERR no"))
    assert round_.outcome.result() is Verdict.UNREACHABLE
    error = round_.unavailable("no lock", ("x",))
    labels = [node.label for node in round_._context.nodes]
    assert {label: str(cause) for label, cause in error.nodes.items()} == {
        **dict.fromkeys(labels[1:4], "ERR no"), labels[4]: "no reply yet",
    }  # fmt: skip
    assert "only 1 of 5 nodes could vote" in str(error)
    round_.deliver(4, [1, b"other", 1500])
    assert list(round_.unavailable("no lock", ("x",)).nodes) == labels[1:4]


@pytest.mark.asyncio
async def test_a_node_that_only_waits_for_the_others_is_named_when_there_is_no_other_cause():
    """If enough others are down to explain the outage, it could vote but for them."""
    waits = NodeNeedsOthers("too few nodes answer")
    for failed, named in ((2, 2), (1, 3)):
        round_ = acquire_round(mutex("x"))
        for node in range(failed):
            round_.deliver(node, ErrorReply("ERR no"))
        for node in range(failed, 3):
            round_._fail(node, waits)
        assert len(round_.unavailable("no lock", ("x",)).nodes) == named


@pytest.mark.asyncio
@pytest.mark.parametrize("error_type", [ConfigurationError, WrongKeyType])
@pytest.mark.parametrize(("replies", "hopeless"), [
    ("CCC", True), ("DCC", "last"), ("DDC", False), ("DDCCC", True), ("GCCC", True), ("GDC", False),
    ("GCC", False), ("DDD", False), ("RCD", False), ("CCR", False), ("DCCGG", False),
])  # fmt: skip
@pytest.mark.parametrize("last", [False, True])
async def test_when_another_attempt_cannot_help(replies, hopeless, error_type, last):
    """Of five nodes, in this order: conflict, down, grant, refusal; the others have not replied yet.

    Only an attempt with no time for another one raises the error on which the nodes that replied agree.
    """
    round_ = acquire_round(mutex("x"), nodes=5)
    for node, reply in enumerate(replies):
        if reply == "D":
            round_.dropped(node, ConnectionError())
        else:
            round_.deliver(node, {"C": ErrorReply(ERRORS[error_type]), "G": FENCE, "R": [1, b"other", 5]}[reply])
    error = round_.fatal_error(["x"], last=last)
    assert (type(error) is error_type) if hopeless is True or (hopeless == "last" and last) else error is None


# Replies to a release


@pytest.mark.asyncio
async def test_a_release_is_confirmed_if_every_name_was_ours():
    """If another client had taken one of two names, the lock was lost."""

    def confirmed(kind, reply):
        round_ = ReleaseRound(FakeContext(3), kind, kind.release(TOKEN), 0.25)
        round_.send(0b111)
        round_.deliver(0, reply)
        assert round_.granted + round_.refused == 1
        assert round_.read(1, reply) is (round_.granted == 1), "the rare path reads it in the same way"
        return round_.granted == 1

    assert confirmed(mutex("x"), 1)
    assert confirmed(mutex("a", "b"), 2)
    for reply in (0, 2, None, -1, b"1"):
        assert not confirmed(mutex("x"), reply)
    for reply in (0, 1, 3, None):
        assert not confirmed(mutex("a", "b"), reply)
