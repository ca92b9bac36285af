"""Samples of user code for mypy --strict and pyright: they must infer each asserted type, and reject each marked line.

Nothing here runs. `# type: ignore[...]` marks a line that both must reject: an unused ignore is an error for either.
"""

# pyright: reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from datetime import timedelta
from functools import partial
from typing import Annotated, Any, Literal, Unpack, assert_type

from aiohttp import web
from fastapi import Depends, FastAPI
from redis.asyncio import ConnectionPool, Redis
from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import AsyncSession

from redlock_async import (
    ConfigurationError,
    Event,
    FairLock,
    Health,
    Holder,
    HoldOptions,
    Lease,
    Lock,
    LockLost,
    LockOptions,
    LockRecord,
    LockTimeout,
    NodeReply,
    NodeStatus,
    NotHeld,
    Once,
    QuorumUnavailable,
    Redlock,
    RedlockError,
    SemaphoreStatus,
    Statistics,
    WriteLease,
    WrongKeyType,
    blocking,
    redlock,
)
from redlock_async.aiohttp import REDLOCK, client_ctx, locked, problem_middleware
from redlock_async.fastapi import Locked, add_problem_handlers, client, lifespan, lock
from redlock_async.fenced import Fence
from redlock_async.fenced.redis import FencedRedis
from redlock_async.fenced.sqlalchemy import fence


class Report:
    """What a job returns."""

    def __init__(self, *about: object) -> None:
        self.about = about


# Clients

made = Redlock(
    ["redis://10.0.0.1:6379", "rediss://user:secret@10.0.0.2:6380/0", "unix:///run/redis.sock"],
    ttl=10,
    wait=None,
    node_timeout=0.25,
    retry_delay=timedelta(milliseconds=200),
    drift_factor=0.01,
    fencing=True,
    namespace="app:",
    owner="worker",
    strict_restart=False,
    quorum=3,
)
of_clients = Redlock([Redis(host="h"), ConnectionPool.from_url("redis://h"), "redis://h"])
of_urls: list[str] = ["redis://h"]
assert_type(Redlock(of_urls), Redlock)
assert_type(Redlock.from_env(), Redlock)
assert_type(Redlock.from_env({"REDLOCK_NODES": "redis://h"}), Redlock)
assert_type(redlock, Redlock)


class Mine(Redlock):
    """A client of one's own."""


assert_type(Mine.from_env(), Mine)


# Locks


async def a_block_may_return() -> int:
    """No return statement is needed behind the block: it swallows no exception."""
    async with redlock("x") as lease:
        assert_type(lease, Lease)
        return len(lease.names)


async def a_block_of_a_lease_may_return(lease: Lease) -> int:
    """Nor behind that of a lease."""
    async with lease as same:
        assert_type(same, Lease)
        return 1


async def a_block_of_a_client_may_return() -> int:
    """Nor behind that of a client."""
    async with Redlock(of_urls) as client, Mine(of_urls) as mine:
        assert_type(client, Redlock)
        assert_type(mine, Mine)
        return 1


async def several_blocks_may_return() -> Report:
    """Nor behind several at once."""
    async with redlock("a", "b", ttl=30, wait=2), redlock.lock("c", ttl=timedelta(seconds=1), wait=None):
        return Report()


async def options() -> None:
    """Every option, on both spellings."""
    lock = redlock(
        "x",
        ttl=30,
        wait=2,
        fencing=False,
        renew=False,
        max_hold=60,
        min_hold=timedelta(seconds=5),
        takeover_delay=9,
        reentrant=True,
    )
    assert_type(lock, Lock)
    assert_type(redlock.lock("x", "y", ttl=None), Lock)
    assert_type(lock.names, tuple[str, ...])


def handed_on(name: str, **options: Unpack[HoldOptions]) -> FairLock:
    """A function of one's own takes what a lock takes."""
    return redlock.fair_lock(name, **options)


def handed_on_with_defaults(name: str, **options: Unpack[LockOptions]) -> Lock:
    """And may have other defaults."""
    return redlock(name, **LockOptions(ttl=30, max_hold=600) | options)


async def by_hand(lock: Lock) -> None:
    """A lease, or None only where somebody else may hold it."""
    assert_type(await lock.acquire(), Lease)
    assert_type(await lock.acquire(wait=0), Lease)
    assert_type(await lock.acquire(wait=None), Lease)
    assert_type(await lock.acquire(wait=timedelta(seconds=3)), Lease)
    maybe = await lock.try_acquire()
    assert_type(maybe, Lease | None)
    if maybe is not None:
        assert_type(maybe, Lease)
        await maybe.release()


async def of_a_lease(lease: Lease) -> None:
    """Its members."""
    assert_type(lease.name, str)
    assert_type(lease.names, tuple[str, ...])
    assert_type(lease.token, str)
    assert_type(lease.fencing_token, int | None)
    assert_type(lease.valid, bool)
    assert_type(lease.remaining, float)
    assert_type(lease.lost, bool)
    assert_type(lease.spare_votes, int)
    await lease.extend()
    await lease.extend(30)
    await lease.extend(ttl=timedelta(minutes=1))
    assert_type(await lease.wait_until_lost(), bool)
    lease.raise_if_lost()
    text = lease.detach()
    assert_type(text, str)
    assert_type(redlock.attach(text), Lease)
    await lease.release()


# Decorated functions


@redlock.locked("import:{user_id}")
async def waits(user_id: int, *, kind: str = "full") -> Report:
    """On conflict it waits, so there is always a result."""
    return Report(user_id, kind)


@redlock.locked("import:{user_id}", on_conflict="raise", ttl=30, max_hold=60, fencing=False)
async def raises(user_id: int) -> list[Report]:
    """It raises, so there is always a result."""
    return [Report(user_id)]


@redlock.locked("import:{user_id}", on_conflict="skip", wait=None, renew=True, min_hold=1, reentrant=True)
async def skips(user_id: int) -> Report:
    """It may have been skipped."""
    return Report(user_id)


@redlock.locked("nightly", on_conflict="skip")
async def returns_nothing() -> None:
    """None either way."""


@redlock.locked("import:{user_id}", factory=redlock.fair_lock)
async def in_order(user_id: int) -> Report:
    """Any kind of lock, and there is always a result."""
    return Report(user_id)


@redlock.locked("import:{user_id}", on_conflict="skip", factory=partial(redlock.semaphore, permits=4, count=2, ttl=30))
async def a_few_at_a_time(user_id: int) -> Report:
    """It may have been skipped."""
    return Report(user_id)


@redlock.locked("prices", on_conflict="raise", factory=lambda name: redlock.read_lock(name, wait=None))
async def reads() -> int:
    """What makes the lock may be a function of one's own."""
    return 1


@redlock.locked("prices", factory=redlock.write_lock)
async def writes() -> int:
    """Its lease is another type; the function's result is not."""
    return 1


@redlock.once("report:{tenant}", every=timedelta(days=1), hold=3600, retry_failed=True, ttl=30, max_hold=600)
async def nightly(tenant: str, *, full: bool = False) -> Report:
    """It may be another's turn."""
    return Report(tenant, full)


class Service:
    """Methods are decorated as functions are."""

    def __init__(self) -> None:
        self.region = "eu"

    @redlock.locked("{self.region}:{number}")
    async def method(self, number: int) -> str:
        """`self` is bound."""
        return f"{self.region}{number}"

    @classmethod
    @redlock.locked("class:{number}")
    async def of_class(cls, number: int) -> bytes:
        """`cls` is bound."""
        return bytes(number)

    @staticmethod
    @redlock.locked("static:{number}", on_conflict="skip")
    async def static(number: int) -> int:
        """Nothing is bound."""
        return number


async def calls(service: Service) -> None:
    """Parameters and return types are kept."""
    assert_type(await waits(42), Report)
    assert_type(await waits(user_id=42, kind="delta"), Report)
    assert_type(await raises(42), list[Report])
    assert_type(await skips(42), Report | None)
    await returns_nothing()
    assert_type(await service.method(5), str)
    assert_type(await service.method(number=5), str)
    assert_type(await Service.of_class(5), bytes)
    assert_type(await Service.static(5), int | None)
    assert_type(await in_order(42), Report)
    assert_type(await a_few_at_a_time(user_id=42), Report | None)
    assert_type(await reads(), int)
    assert_type(await writes(), int)
    assert_type(await nightly("acme", full=True), Report | None)
    once = redlock.once("report", every=60)
    assert_type(once, Once)
    assert_type(await once.try_acquire(), Lease | None)
    later = waits(42)
    await assert_type(later, Coroutine[Any, Any, Report])


async def wrong_calls(service: Service) -> None:
    """Each of these lines must be refused."""
    await waits("42")  # type: ignore[arg-type] # a text for a number
    await waits(42, 43)  # type: ignore[call-arg, arg-type] # `kind` is given by name
    await waits()  # type: ignore[call-arg] # one too few
    await service.method("5")  # type: ignore[arg-type] # of a method, too
    redlock.locked("x", on_conflict="ignore")  # type: ignore[call-overload] # an unknown value
    redlock.locked("x", tll=5)  # type: ignore[call-overload] # no such option
    redlock.locked("x", factory=redlock.latch)  # type: ignore[arg-type] # a latch is no lock
    redlock.locked("x", factory=redlock.semaphore)  # type: ignore[arg-type] # of how many permits?
    redlock.locked("x", factory=redlock.fair_lock("x"))  # type: ignore[call-overload] # a lock, not how to make one
    redlock.once("x")  # type: ignore[call-arg] # how often?
    redlock.once("x", every="1 day")  # type: ignore[arg-type] # a text for a duration
    await nightly(42)  # type: ignore[arg-type] # as it was before it was decorated
    redlock()  # type: ignore[call-arg] # a lock has a name
    redlock("x", tll=5)  # type: ignore[call-arg] # no such option
    redlock.fair_lock("x", reentrant=True)  # type: ignore[call-arg] # of the plain lock alone
    redlock.semaphore("x", permits=4, tll=5)  # type: ignore[call-arg] # no such option
    redlock.read_lock("x", max_hold="5")  # type: ignore[arg-type] # a text for a duration
    redlock(b"x")  # type: ignore[arg-type] # a name is text
    redlock("x", ttl="5")  # type: ignore[arg-type] # a text for a duration
    await redlock("x").acquire(3)  # type: ignore[call-arg] # `wait` is given by name


def questions() -> None:
    """A decorator has no truth value; mypy cannot say so."""
    if redlock.locked("x"):  # pyright: ignore[reportGeneralTypeIssues] # it looks like a question
        print("held?")
    if redlock.once("x", every=60):  # pyright: ignore[reportGeneralTypeIssues] # as above
        print("done?")
    if blocking.redlock.locked("x"):  # pyright: ignore[reportGeneralTypeIssues] # of threads, too
        print("held?")


def old_names() -> None:
    """The names before the first release are gone, without aliases."""
    redlock.fair("x")  # type: ignore[attr-defined] # fair_lock
    redlock.read("x")  # type: ignore[attr-defined] # read_lock
    redlock.write("x")  # type: ignore[attr-defined] # write_lock
    redlock.locks()  # type: ignore[attr-defined] # list_locks
    redlock("x", hold_at_least=5)  # type: ignore[call-arg] # min_hold
    redlock.locked("x", using=redlock.fair_lock)  # type: ignore[call-overload] # factory
    redlock.on_event(print, answers=True)  # type: ignore[call-arg] # node_replies


def handed_around() -> None:
    """A decorated function is a coroutine function to whoever takes one."""
    job: Callable[[int], Coroutine[Any, Any, Report | None]] = skips
    other: Callable[[int], Coroutine[Any, Any, Report]] = waits
    assert job is not other


# Errors


async def errors() -> None:
    """Each is what it says, and has its fields."""
    try:
        await waits(42)
    except LockTimeout as error:
        timeout: TimeoutError = error
        assert_type(error.holder, str | None)
        assert_type(error.retry_after, float | None)
        assert_type(error.names, tuple[str, ...])
        raise timeout from None
    except QuorumUnavailable as error:
        outage: ConnectionError = error
        assert_type(error.nodes, dict[str, Exception])
        raise outage from None
    except ConfigurationError as error:
        bad: ValueError = error
        raise bad from None
    except (LockLost, NotHeld, WrongKeyType) as error:
        base: RedlockError = error
        raise base from None


# Operators


def hear(event: Event) -> None:
    """A listener with an annotation."""
    assert_type(event.names, tuple[str, ...])
    assert_type(event.node, str | None)
    assert_type(event.seconds, float | None)
    assert_type(event.error, BaseException | None)
    assert_type(event.lock_kind, str | None)
    assert_type(event.remaining, float | None)
    assert_type(event.node_replies, tuple[NodeReply, ...])
    for node, outcome, seconds in event.node_replies:
        assert_type(node, str)
        assert_type(outcome, Literal["granted", "refused", "failed", "timed_out"])
        assert_type(seconds, float | None)


async def operators() -> None:
    """What they ask."""
    assert_type(await redlock.status(), list[NodeStatus])
    holder = await redlock.inspect("x")
    assert_type(holder, Holder | None)
    if holder is not None:
        assert_type(holder.owner, str | None)
        assert_type(holder.remaining, float)
        assert_type(holder.held, bool)
    assert_type(await redlock.list_locks(), list[LockRecord])
    for record in await redlock.list_locks("orders:*", include_foreign=True):
        assert_type(record.owner, str | None)
        assert_type(record.remaining, float | None)
        assert_type(record.waiting, tuple[str | None, ...])
        assert_type(record.held, bool)
    assert_type(await redlock.force_release("x"), bool)
    semaphore = await redlock.inspect_semaphore("x")
    assert_type(semaphore, SemaphoreStatus | None)
    if semaphore is not None:
        assert_type(semaphore.permits, int)
        assert_type(semaphore.slots, tuple[Holder, ...])
    await redlock.change_permits("x", 3)
    await redlock.change_permits("x", None)
    async with redlock.semaphore("x", permits=3, count=2, ttl=30) as both:
        assert_type(both.slots, tuple[int, ...])
    assert_type(redlock.semaphore("x", permits=3).permits, int)
    redlock.semaphore("x", permits=3, count="2")  # type: ignore[arg-type] # a number
    for generation in (7, "2026-11-19", None):
        assert_type(await redlock.latch("x", count=2, generation=generation).remaining(), int)
    redlock.latch("x", count=2, generation=1.5)  # type: ignore[arg-type] # nobody else would give the same
    slots = redlock.semaphore("x", permits=3)
    assert_type(await slots.acquire(count=2), Lease)
    assert_type(await slots.acquire(wait=1.5, count=2), Lease)
    assert_type(await slots.try_acquire(count=2), Lease | None)
    assert_type(redlock.statistics(), Statistics)
    assert_type(redlock.statistics().held, int)
    assert_type(redlock.statistics().node_states, Mapping[str, Literal["up", "quarantined", "down"]])
    health = await redlock.health()
    assert_type(health, Health)
    assert_type(health.ready, bool)
    assert_type(health.reasons, dict[str, str])
    assert_type(redlock.on_event(hear), Callable[[], None])
    assert_type(redlock.on_event(hear, node_replies=True), Callable[[], None])
    redlock.on_event(print)
    await redlock.aclose()


# Threads

for_threads = blocking.Redlock(of_urls, ttl=10, wait=None, retry_delay=timedelta(milliseconds=200), owner="worker")
assert_type(blocking.redlock, blocking.Redlock)
assert_type(blocking.Redlock.from_env(), blocking.Redlock)


class MineForThreads(blocking.Redlock):
    """A client of one's own."""


assert_type(MineForThreads.from_env(), MineForThreads)


def a_block_of_a_thread_may_return() -> int:
    """No block swallows an exception, so no return statement is needed behind it."""
    with for_threads as client, client("x", "y", ttl=30, wait=2, reentrant=True) as lease, lease as same:
        assert_type(client, blocking.Redlock)
        assert_type(lease, blocking.Lease)
        assert_type(same, blocking.Lease)
        return len(lease.names)


def of_a_lease_of_a_thread(lease: blocking.Lease) -> None:
    """Its members are asyncio's, with nothing to await."""
    assert_type(lease.fencing_token, int | None)
    assert_type(lease.lost, bool)
    assert_type(lease.wait_until_lost(5), bool)
    assert_type(for_threads.attach(lease.detach()), blocking.Lease)
    lease.raise_if_lost()
    lease.extend(timedelta(minutes=1))
    lease.release()


def kinds_for_threads() -> None:
    """Every kind, and what it yields."""
    assert_type(for_threads("x").acquire(wait=0), blocking.Lease)
    assert_type(for_threads.lock("x").try_acquire(), blocking.Lease | None)
    assert_type(for_threads.fair_lock("x", max_hold=60), blocking.Lock[blocking.Lease])
    assert_type(for_threads.read_lock("x", min_hold=1), blocking.Lock[blocking.Lease])
    with for_threads.write_lock("x", wait=None) as writing:
        assert_type(writing, blocking.WriteLease)
        assert_type(writing.downgrade(), blocking.Lease)
    assert_type(for_threads.semaphore("x", permits=3).try_acquire(count=2), blocking.Lease | None)
    assert_type(for_threads.latch("x", count=2, generation="a").remaining(), int)
    assert_type(for_threads.once("x", every=60).try_acquire(), blocking.Lease | None)
    assert_type(for_threads.status(), list[NodeStatus])
    assert_type(for_threads.inspect("x"), Holder | None)


@for_threads.locked("import:{user_id}", factory=partial(for_threads.semaphore, permits=4))
def waits_in_a_thread(user_id: int, *, kind: str = "full") -> Report:
    """There is always a result."""
    return Report(user_id, kind)


@for_threads.locked("import:{user_id}", on_conflict="skip", ttl=30)
def skips_in_a_thread(user_id: int) -> Report:
    """It may have been skipped."""
    return Report(user_id)


@for_threads.once("report:{tenant}", every=timedelta(days=1))
def nightly_in_a_thread(tenant: str) -> Report:
    """It may be another's turn."""
    return Report(tenant)


def calls_of_threads() -> None:
    """Parameters and results are kept, and each of the last lines must be refused."""
    assert_type(waits_in_a_thread(42, kind="delta"), Report)
    assert_type(skips_in_a_thread(42), Report | None)
    assert_type(nightly_in_a_thread("acme"), Report | None)
    waits_in_a_thread("42")  # type: ignore[arg-type] # a text for a number
    for_threads("x", tll=5)  # type: ignore[call-arg] # misspelt
    for_threads.fair_lock("x", reentrant=True)  # type: ignore[call-arg] # not of a fair lock
    for_threads.locked("x", on_conflict="ignore")  # type: ignore[call-overload] # no such answer to a conflict
    for_threads.locked("x", factory=redlock.fair_lock)  # type: ignore[arg-type] # asyncio's lock
    blocking.Redlock(of_urls, tll=5)  # type: ignore[call-arg] # misspelt


# Web services

service = FastAPI(lifespan=lifespan())
of_ones_own = FastAPI(lifespan=lifespan(made, inner=lifespan()))
add_problem_handlers(service, held=423, unavailable=502, lost=500)
four_at_a_time = lock("mailer", factory=partial(Redlock.semaphore, permits=4))


@service.post("/orders/{order_id}")
async def charge(
    order_id: int,
    lease: Annotated[Lease, Locked("orders:{order_id}", ttl=30, wait=0, max_hold=60)],
    mailer: Annotated[Lease, Depends(four_at_a_time, scope="function")],
    own: Annotated[Redlock, Depends(client)],
) -> int:
    """What is annotated is what the function has."""
    assert_type(lease, Lease)
    assert_type(own, Redlock)
    return order_id + len(mailer.names)


@locked("orders:{order_id}", ttl=30)
async def handler(request: web.Request, lease: Lease) -> web.Response:
    """The lease is the last argument, and what is left is a handler."""
    assert_type(request.app[REDLOCK], Redlock)
    return web.Response(text=lease.name)


class View(web.View):
    """A view's methods have no request."""

    @locked("orders:{order_id}", factory=Redlock.read_lock)
    async def get(self, lease: Lease) -> web.StreamResponse:
        """But the view has."""
        return web.Response(text=f"{self.request.method} {lease.name}")


@locked("orders:{order_id}", factory=Redlock.write_lock)
async def writer(request: web.Request, lease: WriteLease) -> web.Response:
    """The lease is of the kind that the factory makes."""
    return web.Response(text=(await lease.downgrade()).name + request.path)


@locked("orders:{order_id}")  # type: ignore[arg-type] # the plain lock has no downgrade
async def no_writer(request: web.Request, lease: WriteLease) -> web.Response:
    """And of no other."""
    return web.Response(text=lease.name + request.path)


async def handlers(request: web.Request, view: View) -> None:
    """They are called without the lease."""
    assert_type(await handler(request), web.Response)
    assert_type(await writer(request), web.Response)
    assert_type(await view.get(), web.StreamResponse)
    application = web.Application(middlewares=[problem_middleware(held=423)])
    application.cleanup_ctx.append(client_ctx(made))
    application.router.add_get("/orders/{order_id}", handler)
    application.router.add_view("/views/{order_id}", View)


def wrong_services() -> None:
    """Each of these lines must be refused."""
    lifespan("redis://h")  # type: ignore[arg-type] # a client, not a URL
    Locked("x", tll=5)  # type: ignore[call-arg] # a typing error
    lock("x", factory=redlock.fair_lock)  # type: ignore[arg-type] # the client is told later
    locked("x", factory=Redlock.latch)  # type: ignore[arg-type] # no lock
    locked("x")(wrong_calls)  # type: ignore[arg-type, type-var] # no handler


async def fences(session: AsyncSession, connection: Connection, lease: Lease, other: blocking.Lease) -> None:
    """Leases of both APIs and fences, one or several; an asynchronous connection is awaited."""
    await fence(session, lease, Fence("orders:42", 7))
    assert_type(fence(connection, other), None)
    await FencedRedis(Redis()).set(lease, "x", 1, ttl=timedelta(days=1))
    fence("postgresql://", lease)  # type: ignore[call-overload] # a connection, not its URL
    fence(connection, "orders:42")  # type: ignore[call-overload] # a lease, not its name
    await fence(session, lease.fencing_token)  # type: ignore[call-overload] # the token has no name
