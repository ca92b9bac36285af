"""The marker's effect on waiting: `wait` sets a default, `longest_wait` a limit."""

import pytest

pytestmark = pytest.mark.redis

SOURCE = """
    import asyncio
    import time
    from datetime import timedelta

    import pytest
    from redlock_async import LockTimeout, Redlock, redlock as default
    from redlock_async.blocking import redlock as for_threads

    @default.locked("decorated", wait=60)  # when this file is imported
    async def decorated(): ...

    async def refused(locking):
        begun = time.monotonic()
        with pytest.raises(LockTimeout):
            await locking
        return time.monotonic() - begun

    @pytest.mark.asyncio
    @pytest.mark.redlock(wait=0)
    async def test_a_lock_keeps_the_wait_of_its_own(redlock, redlock_nodes):
        async with Redlock(redlock_nodes) as other:
            lease = await other("x").acquire()
            assert await refused(redlock("x").acquire()) < 1
            waiting = asyncio.ensure_future(redlock("x", wait=60).acquire())
            assert await refused(redlock("x", wait=1).acquire()) >= 1
            assert not waiting.done()
            await lease.release()
            await (await waiting).release()

    @pytest.mark.asyncio
    @pytest.mark.parametrize("kind", ["lock", "fair_lock", "read_lock", "write_lock", "semaphore"])
    @pytest.mark.redlock(longest_wait=0.1)
    async def test_no_lock_waits_longer(redlock, redlock_nodes, kind):
        given = {"permits": 1} if kind == "semaphore" else {}
        async with Redlock(redlock_nodes) as other, other.semaphore("x", permits=1), other("x"), other("decorated"):
            for wait in (60, None, timedelta(minutes=1)):
                assert await refused(getattr(redlock, kind)("x", wait=wait, **given).acquire()) < 10
                assert await refused(getattr(redlock, kind)("x", **given).acquire(wait=wait)) < 10
            assert await refused(decorated()) < 10
            assert await refused(Redlock(redlock_nodes, wait=60)("x").acquire()) < 10
            assert await redlock("x").try_acquire() is None

    @pytest.mark.redlock(longest_wait=timedelta(milliseconds=100))
    def test_no_thread_waits_longer(redlock_faults):
        with redlock_faults.held_elsewhere("x"), pytest.raises(LockTimeout, match="after waiting 0.1 s"):
            for_threads("x", wait=60).acquire()

    def test_the_limit_ends_with_its_test(redlock):
        assert redlock("x", wait=60)._options.wait == 60

    @pytest.mark.redlock(longest_wait=-1)
    def test_negative(redlock): ...

    @pytest.mark.redlock(longest_wait="1 s")
    def test_text(redlock): ...
"""


def test_longest_wait_limits_all_waits_and_wait_does_not(run_tests):
    """`wait=0` leaves a lock its own `wait`; `longest_wait` shortens it, for one test, in this process."""
    done = run_tests({"test_it.py": SOURCE}, ini=["redlock_nodes = 3"])
    assert done.passed == 8, done.output
    for name, given in (("test_negative", "-1"), ("test_text", "'1 s'")):
        assert f"longest_wait must be seconds, 0 or more, got {given}" in done.tests[name], done.output
