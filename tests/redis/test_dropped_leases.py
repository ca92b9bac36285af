"""A lease that is garbage-collected while its job continues: the lock expires, and a warning says so."""

import asyncio
import gc
import logging
import warnings

import pytest

from redlock_async import Redlock, blocking, lease

pytestmark = [pytest.mark.asyncio, pytest.mark.filterwarnings("ignore:the lease on:ResourceWarning")]


def lines(caplog):
    """What was logged of dropped leases."""
    return [
        record.getMessage() for record in caplog.records if "garbage-collected without release()" in record.getMessage()
    ]


async def test_a_lease_that_is_only_tested_for_truth_is_logged(nodes, caplog):
    """`if await lock.try_acquire():` looks right, and the lock is soon free."""
    async with Redlock(nodes) as redlock:
        lock = redlock("report")
        if await lock.try_acquire():
            gc.collect()
            await asyncio.sleep(0)
            (line,) = lines(caplog)
    assert line.startswith("redlock: the lease on 'report' was garbage-collected without release(): renewal stopped")
    assert "`lease = await lock.try_acquire()`" in line
    assert [record.levelno for record in caplog.records if record.getMessage() == line] == [logging.WARNING]
    assert {record.name for record in caplog.records if record.getMessage() == line} == {"redlock_async"}


async def test_a_lease_that_a_thread_only_tests_for_truth_is_logged(nodes, caplog):
    """The same with the blocking API, where the lease belongs to the loop that all threads share."""

    def work():
        with blocking.Redlock(nodes) as redlock:
            if redlock("report").try_acquire():
                gc.collect()
            redlock.status()  # the loop of all threads has run meanwhile

    await asyncio.to_thread(work)
    (line,) = lines(caplog)
    assert line.startswith("redlock: the lease on 'report' was garbage-collected without release(): renewal stopped")


async def test_a_service_that_drops_many_leases_logs_one_line_a_minute(nodes, caplog, monkeypatch):
    """With the number of those that were not logged."""
    async with Redlock(nodes) as redlock:
        for number in range(20):
            await redlock(f"job:{number}").acquire()
            gc.collect()
        await asyncio.sleep(0)
        assert len(lines(caplog)) == 1
        monkeypatch.setattr(lease, "LOG_PAUSE", 0.0)
        await redlock("another").acquire()
        gc.collect()
        await asyncio.sleep(0)
        assert len(lines(caplog)) == 2
        assert "'another'" in lines(caplog)[1]
        assert "(19 more since the last such line)" in lines(caplog)[1]


async def test_leases_that_end_as_they_should_are_not_logged(nodes, caplog):
    """Released ones, those that are kept for the ttl on purpose, and those handed on."""
    async with Redlock(nodes) as redlock:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            async with redlock("a"):
                pass
            await (await redlock("b").acquire()).release()
            await redlock("c", ttl=0.1, renew=False).acquire()
            (await redlock("d", ttl=0.1).acquire()).detach()
            gc.collect()
            await asyncio.sleep(0)
    assert lines(caplog) == []
