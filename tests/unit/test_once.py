"""Work that is to run once in a period: what it refuses, and what lock it makes of what it is given."""

import inspect
from datetime import timedelta

import pytest

from redlock_async import ConfigurationError, Lease, Once, QuorumUnavailable, Redlock, blocking, redlock
from redlock_async._rules.settings import Options
from redlock_async.once import LONGEST_PERIOD, PeriodOptions

NODES = ["redis://127.0.0.1:1", "redis://127.0.0.1:2", "redis://127.0.0.1:3"]


def options(of=10.0, **given):
    """The options of the lock that a client with that ttl makes."""
    return PeriodOptions(**given).of(Options(ttl=of, wait=10.0, fencing=True), 0.01)


async def job(tenant):
    """What is to run."""
    return tenant


def test_nine_tenths_of_the_period_are_held():
    """And another part where that is said."""
    assert options(every=60).min_hold == pytest.approx(54)
    assert options(every=timedelta(days=1)).min_hold == pytest.approx(0.9 * 86_400)
    assert options(every=60, hold=timedelta(seconds=5)).min_hold == 5


def test_it_tries_once():
    """Whoever does not get it leaves it to the others."""
    assert options(every=60).wait == 0


def test_who_dies_does_not_swallow_the_next_tick():
    """The lease is the client's, but shorter than the period; unless a longer one is asked for."""
    assert options(every=60, of=30).ttl == 30
    assert options(every=3600).ttl == 10
    assert options(every=5).ttl == pytest.approx(4.5)
    assert options(every=5, hold=0.001).ttl == pytest.approx(4.5)
    assert options(every=5, ttl=5).ttl == 5


def test_every_option_arrives():
    """None is dropped on the way."""
    made = options(every=60, hold=30, retry_failed=True, ttl=20, fencing=False, max_hold=25)
    assert made == Options(
        ttl=20.0, wait=0.0, fencing=False, max_hold=25.0, min_hold=30.0, retry_failed=True, renew=True
    )
    assert not options(every=60).retry_failed


@pytest.mark.parametrize("every", [0, 0.999, -1, LONGEST_PERIOD + 1, float("inf"), "60", None, timedelta(0), True])
def test_a_period_is_from_a_second_to_a_year(every):
    """Shorter is a loop, and longer nothing that a lock's expiry should be trusted with."""
    with pytest.raises(ConfigurationError, match="every"):
        redlock.once("x", every=every)


@pytest.mark.parametrize("hold", [60, 61, timedelta(minutes=2), 0, -1, float("nan"), "1"])
def test_what_is_held_is_shorter_than_the_period(hold):
    """Else the next tick finds it locked: every other run would be left out."""
    with pytest.raises(ConfigurationError, match="hold") as caught:
        redlock.once("x", every=60, hold=hold)
    if hold in {60, 61, timedelta(minutes=2)}:
        assert "every=60" in str(caught.value)


def test_the_lock_s_own_options_are_checked_where_they_are_given():
    """Without a loop, an environment or a server."""
    for wrong in ({"ttl": 0}, {"max_hold": 0}, {"fencing": 1}, {"retry_failed": 1}):
        with pytest.raises(ConfigurationError, match=next(iter(wrong))):
            redlock.once("x", every=60, **wrong)


def test_decorating_with_the_global_client_reads_no_environment(monkeypatch):
    """A module that decorates must be importable where there are no nodes."""
    monkeypatch.delenv("REDLOCK_NODES", raising=False)
    decorated = redlock.once("report:{tenant}", every=60)(job)
    assert inspect.iscoroutinefunction(decorated)
    assert inspect.signature(decorated) == inspect.signature(job)


def test_a_template_is_checked_when_decorating():
    """As by `locked`."""
    with pytest.raises(ConfigurationError, match="no such argument"):
        redlock.once("report:{nobody}", every=60)(job)
    with pytest.raises(ConfigurationError, match="async def"):
        redlock.once("report", every=60)(print)


@pytest.mark.asyncio
async def test_by_hand_the_name_is_whole():
    """Nobody fills a template in, and a name with its fields in it would be one name for all tenants."""
    with pytest.raises(ConfigurationError, match=r"'report:\{tenant\}' needs tenant"):
        await Redlock(NODES).once("report:{tenant}", every=60).try_acquire()


@pytest.mark.parametrize("name", [b"x", None, 7, job])
@pytest.mark.parametrize("client", [redlock, blocking.redlock])
def test_a_name_that_is_no_text_is_told_how_to_write_once(client, name):
    """Not `locked`."""
    with pytest.raises(
        ConfigurationError, match=r'must be a str, got .*: write @redlock\.once\("report:\{tenant\}", every='
    ):
        client.once(name, every=60)


class Fake:
    """A lock whose `try_acquire` returns that lease or raises that error."""

    def __init__(self, lease=None, error=None):
        self.lease = lease
        self.error = error
        self.name = None

    def __call__(self, name):
        """Made for that name."""
        self.name = name
        return self

    async def try_acquire(self):
        """A lease or None."""
        if self.error is not None:
            raise self.error
        return self.lease


@pytest.mark.asyncio
async def test_names_are_filled_in_with_the_arguments():
    """A brace that is written twice is a brace, in both forms."""
    fake = Fake(None)
    assert await Once(fake, "report:{tenant}:{{x}}")(job)("acme") is None
    assert fake.name == "report:acme:{x}"
    lease = object.__new__(Lease)
    fake = Fake(lease)
    assert await Once(fake, "{{x}}").try_acquire() is lease
    assert fake.name == "{x}"
    assert repr(Once(fake, "{{x}}")) == "<Once '{{x}}'>"


@pytest.mark.asyncio
async def test_an_outage_is_never_skipped():
    """'It is another's turn' would be a lie, and nobody would run it."""
    with pytest.raises(QuorumUnavailable):
        await Once(Fake(error=QuorumUnavailable("down")), "x")(job)("acme")
