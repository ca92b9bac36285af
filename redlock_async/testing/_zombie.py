"""A test that a write is fenced: a holder that was paused beyond its lease must not write after a later holder.

The zombie is an attached lease: it was force-released since, and nobody has told it.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from typing import Any, Final, overload

from redlock_async import ConfigurationError, Lease, Redlock, StaleFence, blocking
from redlock_async.fenced.check import Rehearsal, rehearsal

NAME: Final = "redlock-zombie"

TTL: Final = 60.0
"""Seconds; the earlier lease still seems to be valid when the later one is acquired."""

Rejected = type[Exception] | tuple[type[Exception], ...]


@dataclass(frozen=True, slots=True)
class _Run:
    """Run the write for the later holder or for the earlier one."""

    late: bool
    observed: Rehearsal


def _judged(rejected: Rejected) -> Generator[_Run, Exception | None, None]:
    """Ask for runs of the write, receive the error of each, and raise AssertionError if it is not fenced."""
    first = Rehearsal()
    if (error := (yield _Run(late=False, observed=first))) is not None:
        raise error
    second = Rehearsal()
    error = yield _Run(late=True, observed=second)
    if error is None and not first.checks:
        raise AssertionError(
            "a write was not rejected for an earlier holder of the lock, after a later holder had written: it does not "
            "call fence(). Call it first in the transaction that writes: `await fence(connection, lease)`, with fence "
            "from redlock_async.fenced.sqlalchemy, .asyncpg, .psycopg, .sqlite or .django"
        )
    if error is None:
        raise AssertionError(
            "a write was not rejected for an earlier holder of the lock, after a later holder had written, although it "
            "is fenced. Pass the lease of this holder to fence(), and let StaleFence leave the write"
        )
    if not isinstance(error, rejected):
        error.add_note(
            "redlock_async: the late write of a zombie failed with this error instead of StaleFence. If your code "
            "translates StaleFence, pass the other type as rejected="
        )
        raise error
    if not first.transactions:
        return  # fenced in another process, or by a script of Redis, which is atomic
    if (yield _Run(late=False, observed=Rehearsal(read_only=True))) is None:
        raise AssertionError(
            "data was written outside the transaction that called fence(): that transaction was made read-only, and "
            "the write succeeded. A process that is paused between the two would write late. Call fence() on the same "
            "connection, as the first statement of the transaction that writes"
        )


@overload
def zombie(
    redlock: Redlock,
    write: Callable[[Lease], Awaitable[object]],
    *,
    name: str = NAME,
    rejected: Rejected = StaleFence,
) -> Awaitable[None]: ...
@overload
def zombie(
    redlock: blocking.Redlock,
    write: Callable[[blocking.Lease], object],
    *,
    name: str = NAME,
    rejected: Rejected = StaleFence,
) -> None: ...
def zombie(
    redlock: Redlock | blocking.Redlock,
    write: Callable[[Any], Any],
    *,
    name: str = NAME,
    rejected: Rejected = StaleFence,
) -> Awaitable[None] | None:
    """Run `write(lease)` for a later holder of the lock and then for an earlier one, which must be rejected.

    Then run it with a transaction that is made read-only by fence(), so it must fail. With a blocking client, `write`
    is a plain function. `rejected` is the error with which your code rejects a late write. Raises AssertionError if the
    write is not fenced, or not in the transaction that writes.
    """
    test = _test(redlock, write, name, rejected)
    if not isinstance(redlock, blocking.Redlock):
        return test
    try:
        test.send(None)  # a blocking client and a plain function never suspend it
    except StopIteration:
        return None
    test.close()
    raise ConfigurationError("with a blocking client, write must be a plain function. Pass a redlock_async.Redlock")


async def _test(redlock: Any, write: Callable[[Any], Any], name: str, rejected: Rejected) -> None:
    """Run the write as the judge asks for it, with a client of either API."""
    text = (await _result(redlock(name, ttl=TTL, renew=False).acquire())).detach()
    await _result(redlock.force_release(name))
    later = await _result(redlock(name).acquire())
    try:
        earlier = redlock.attach(text)
        judge = _judged(rejected)
        run = next(judge)
        while True:
            before = rehearsal.set(run.observed)
            error: Exception | None = None
            try:
                await _result(write(earlier if run.late else later))
            except Exception as exc:  # noqa: BLE001 - the judge raises it, or wants it
                error = exc
            finally:
                rehearsal.reset(before)
            try:
                run = judge.send(error)
            except StopIteration:
                return
    finally:
        await _result(later.release())


async def _result(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


def zombie_of_environment(write: Callable[[Any], Any], **options: Any) -> Any:
    """Do what `zombie` does, with a client configured from the environment, of the kind that `write` needs."""
    if inspect.iscoroutinefunction(write) or inspect.iscoroutinefunction(type(write).__call__):

        async def test() -> None:
            async with Redlock.from_env() as redlock:
                await zombie(redlock, write, **options)

        return test()
    with blocking.Redlock.from_env() as redlock:
        return zombie(redlock, write, **options)
