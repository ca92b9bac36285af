"""What a fence is, and the register that one makes: without a database."""

import pickle

import pytest

from redlock_async import ConfigurationError, Redlock, StaleFence
from redlock_async.fenced import Fence, sql
from redlock_async.fenced.check import fences_of


@pytest.mark.parametrize("token", [0, -1, 2**53, 1.5, True, "7", None])
def test_a_token_is_within_its_range(token):
    """What no lock can have given out is a mistake, or an attack."""
    with pytest.raises(ConfigurationError, match=r"must be a whole number with 0 < token < 2\^53"):
        Fence("orders:42", token)


@pytest.mark.parametrize("name", ["", None, b"x", "redlock-async:x", "\ud800", "x" * 4097])
def test_a_name_is_one_that_a_lock_can_have(name):
    """The checks are those of a lock."""
    with pytest.raises(ConfigurationError, match="a lock's name must"):
        Fence(name, 7)


def test_a_fence_says_who_was_first():
    """An equal token passes, a larger one that was seen does not; the error survives a process pool."""
    fence = Fence("orders:42", 7)
    fence.check(7)
    fence.check(1)
    with pytest.raises(StaleFence) as late:
        fence.check(8)
    error = pickle.loads(pickle.dumps(late.value))  # noqa: S301 - our own
    assert (error.names, error.token, error.latest, str(error)) == (("orders:42",), 7, 8, str(late.value))


def test_several_holders_are_sorted_and_said_once():
    """Two transactions that take several rows take them in the same order."""
    a, b, c = Fence("a", 9), Fence("b", 1), Fence("c", 5)
    assert fences_of(c, b, a, b) == [a, b, c]
    with pytest.raises(ConfigurationError, match=r"is fenced with a Lease, or with Fence\(name, token\), got 7"):
        fences_of(7)


@pytest.mark.asyncio
async def test_what_is_recorded_of_each_kind_of_lock(nodes):
    """A row for each name; of a semaphore a row for each slot; readers have the name's own row."""
    async with Redlock(nodes) as redlock:
        async with redlock("b", "a") as lease:
            assert fences_of(lease) == [Fence("a", lease.fencing_token), Fence("b", lease.fencing_token)]
        async with redlock.read_lock("doc") as one, redlock.read_lock("doc") as two:
            assert fences_of(one) == fences_of(two) == [Fence("doc", one.fencing_token)]
        async with redlock.write_lock("doc") as writer:
            assert fences_of(writer)[0].token > one.fencing_token
        async with redlock.semaphore("gpu", permits=3, count=2) as slots:
            first, second = slots.slots
            assert [each.name for each in fences_of(slots)] == [f"gpu[{first}]", f"gpu[{second}]"]
        async with redlock("x", fencing=False) as bare:
            with pytest.raises(ConfigurationError, match="has no fencing token"):
                fences_of(bare)


def test_a_register_fits_into_every_database():
    """Long names and control characters are replaced by a hash; all others are legible."""
    assert sql.register("orders:42 \N{SNOWMAN}") == "orders:42 \N{SNOWMAN}"
    assert sql.register("x" * 200) == "x" * 200
    odd = [sql.register(name) for name in ("x" * 201, "\N{SNOWMAN}" * 67, "a\0b", "a\nb")]
    assert all(each.startswith("sha256:") and len(each) == 71 for each in odd)
    assert len({*odd}) == 4


@pytest.mark.parametrize("older_than", [0, -5, 59 * 60, None, float("nan"), "1 day"])
def test_pruning_needs_more_than_an_hour(older_than):
    """A process that was paused for longer could write over a later holder's data."""
    with pytest.raises(ConfigurationError, match="older_than must"):
        sql.seconds_of(older_than)
