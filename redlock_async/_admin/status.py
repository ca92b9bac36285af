"""Operations on nodes and locks: the status of the nodes, the holder of a lock, and force-release."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

from redlock_async._rounds.context import Context
from redlock_async._rules.keys import LONGEST_TOKEN, Keys
from redlock_async._rules.token import is_expired, owner_of, token_label
from redlock_async._runtime.session import Session
from redlock_async._transport.commands import Call, clock_command, read_clock
from redlock_async._transport.connection import pack
from redlock_async._transport.handshake import LONGEST_VALUE, parse_info
from redlock_async._transport.node import Node
from redlock_async.errors import QuorumUnavailable, RedlockError, WrongClock, WrongKeyType, by_node, label_of

T = TypeVar("T")

GRACE = 0.02
"""Seconds for which to wait for the other nodes, when those that have replied are enough."""


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """The status of one node, as it replied just now."""

    label: str
    up: bool
    can_vote: bool
    """Whether its votes count now."""
    error: str | None
    """Why it is down, or why its votes do not count."""
    role: str | None = None
    mode: str | None = None
    """'standalone' for a usable server; 'cluster' or 'sentinel' otherwise."""
    version: str | None = None
    run_id: str | None = None
    latency: float | None = None
    """Seconds of one round trip."""
    data_age: float | None = None
    """For how many seconds it has kept its data."""
    longest_ttl: float | None = None
    """The longest ttl in use, in seconds, as recorded on the node: how long it is quarantined if it loses its data."""
    clock_offset: float | None = None
    """Its wall clock minus ours, in seconds."""
    persistence: str | None = None
    """'aof always', 'aof everysec', 'aof no', 'rdb' or 'none'; without CONFIG 'aof' or 'no aof', from INFO; None if the
    server does not tell."""
    eviction: str | None = None
    """maxmemory-policy: any policy but noeviction may evict locks. None if the server does not tell."""
    maxmemory: int | None = None
    """Bytes beyond which that policy applies; 0 for no limit."""
    tracking: bool = False
    """Whether the server notifies waiters of changes (client tracking)."""
    replicas: int | None = None
    """How many replicas it has: one that is promoted may lack the latest locks. None if the server does not tell."""
    replica_timeout: int | None = None
    """After how many seconds without enough replicas it stops accepting writes (`min-replicas-to-write` and
    `min-replicas-max-lag`); 0 if it never stops. None if the server does not tell."""
    missing: tuple[str, ...] = ()
    """Commands that the server forbids or does not have, and that locks can do without: see Permissions."""
    quorum: int | None = None
    """The quorum on which its clients agree, as it remembers; None if no client has taken a lock yet."""
    node_sets: tuple[tuple[str, ...], ...] = ()
    """The labels of the nodes on which its clients agree, as it remembers: two sets while they are being changed."""
    cluster: str | None = None
    """The label of the cluster of which it is a shard; None for a node that is one server."""
    slots: int | None = None
    """How many of the 16,384 slots the shard owns."""
    record_key: str | None = None
    """The key of the node's record; of each shard it is another one."""


@dataclass(frozen=True, slots=True)
class Holder:
    """The holder of a lock, as reported by the nodes."""

    name: str
    owner: str | None
    """The holder's owner label; None for a client of another library."""
    token: str
    votes: int
    """How many nodes report this holder."""
    nodes: int
    quorum: int
    remaining: float
    """Seconds until too few nodes for a quorum report it, if it is not renewed."""
    slot: int | None = None
    """The slot of a semaphore, from 0; None for other locks."""
    expired: bool = False
    """Whether its lease is over. The name can be taken when the rest of its `takeover_delay` is over, in `remaining`
    seconds."""

    @property
    def held(self) -> bool:
        """Whether a quorum reports this holder and its lease is not over.

        If not, it has `expired`, or it is a leftover of an attempt on a minority.
        """
        return self.votes >= self.quorum and not self.expired


async def status(context: Context) -> list[NodeStatus]:
    """Query every node and return one record per node."""
    return list(await asyncio.gather(*(_status(context, node) for node in context.membership.shown)))


async def _status(context: Context, node: Node) -> NodeStatus:
    identity, record = node.seen, node.record.last
    sets = record.charter.sets if record is not None and record.charter is not None else ()
    base = NodeStatus(
        label=node.label,
        up=node.ready,
        can_vote=node.ready and node.abstains is None,
        error=str(node.abstains or "") or None,
        role=identity.role if identity else None,
        mode=identity.mode if identity else None,
        version=f"{identity.server} {identity.version}" if identity and identity.server else None,
        run_id=identity.run_id if identity else None,
        tracking=node.tracking,
        missing=identity.missing if identity else (),
        quorum=sets[0].quorum if sets else None,
        node_sets=tuple(each.labels for each in sets),
        cluster=node.place if node.place != node.label else None,
        record_key=node.keys.record.decode() if node.ready else None,
        slots=None if node.shard is None else sum(last - first + 1 for first, last in node.shard.ranges),
    )
    try:
        sent = context.now()
        clock = await node.ask(clock_command(node.keys.probe), read_clock)
        latency = context.now() - sent
        offset = clock - (context.wall_us() / 1e6 - latency / 2)
        settings = await _settings(node) if identity is not None and identity.asked else Settings(("CONFIG GET",))
    except (OSError, RedlockError) as exc:
        wrong = exc.clock - context.wall_us() / 1e6 if isinstance(exc, WrongClock) else None
        return replace(base, up=False, can_vote=False, error=str(exc), clock_offset=wrong)
    return replace(
        base,
        latency=latency,
        data_age=node.record.data_age(context.now()),
        longest_ttl=None if record is None else record.longest_ttl,
        clock_offset=offset,
        eviction=settings.eviction,
        maxmemory=settings.maxmemory,
        persistence=settings.persistence,
        replicas=settings.replicas,
        replica_timeout=settings.replica_timeout,
        missing=(*base.missing, *settings.missing),
    )


@dataclass(frozen=True, slots=True)
class Settings:
    """What a node says about its settings; None for what it does not tell."""

    missing: tuple[str, ...] = ()
    eviction: str | None = None
    maxmemory: int | None = None
    persistence: str | None = None
    replicas: int | None = None
    replica_timeout: int | None = None


async def _settings(node: Node) -> Settings:
    """Read the settings with CONFIG GET and, where that is not available, from INFO, as on managed services."""
    names = (
        "maxmemory-policy", "maxmemory", "appendonly", "appendfsync", "save", "min-replicas-to-write",
        "min-replicas-max-lag",
    )  # fmt: skip
    values, info = await asyncio.gather(
        asyncio.gather(*(_config(node, name) for name in names)), _ask(node, ("INFO",), parse_info)
    )
    policy, memory, aof, fsync, save, min_replicas, max_lag = values
    found = info or {}
    persistence = {"0": "no aof", "1": "aof"}.get(found.get("aof_enabled", ""))
    if aof is not None:
        persistence = f"aof {fsync}" if aof == "yes" else "rdb" if save else "none"
    return Settings(
        missing=("CONFIG GET",) if not any(values) else (),
        eviction=policy if policy is not None else found.get("maxmemory_policy"),
        maxmemory=_number(memory if memory is not None else found.get("maxmemory")),
        persistence=persistence,
        replicas=_number(found.get("connected_slaves")),
        replica_timeout=_replica_timeout(_number(min_replicas), _number(max_lag), found),
    )


def _replica_timeout(min_replicas: int | None, max_lag: int | None, info: Mapping[str, str]) -> int | None:
    if min_replicas is not None and max_lag is not None:
        return max_lag if min_replicas else 0
    # INFO shows this line only if both are set, but not their values.
    return 0 if "connected_slaves" in info and "min_slaves_good_slaves" not in info else None


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None


async def _config(node: Node, setting: str) -> str | None:
    return await _ask(node, ("CONFIG", "GET", setting), _setting)


async def _ask(node: Node, words: tuple[str, ...], read: Callable[[object], T]) -> T | None:
    """Return the reply to a command that locks can do without; None if the server does not answer it."""
    try:
        return await node.ask(pack(words), read)
    except (ConnectionError, RedlockError):
        return None


def _setting(reply: object) -> str | None:
    items = (
        list(reply.items())
        if isinstance(reply, dict)
        else list(zip(*[iter(cast("list[bytes]", reply))] * 2, strict=True))
    )
    return label_of(items[0][1], LONGEST_VALUE) if items else None


async def inspect(context: Context, name: str, key: bytes) -> Holder | None:
    """Return the holder of a name; None if no node reports one. Raise QuorumUnavailable if too few nodes reply."""
    command = Call("mutex_inspect", 1, key).pack_with_source()
    answers = await ask_all(context, name, key, lambda node: node.ask(command, read_holder))
    return most_named(context, name, [held for held in answers if held is not None])


def most_named(
    context: Context, name: str, held: Iterable[tuple[bytes, float]], slot: int | None = None
) -> Holder | None:
    """Return the holder that most nodes report; None if none is reported."""
    votes: dict[bytes, list[float]] = {}
    for token, left in held:
        votes.setdefault(token, []).append(left)
    if not votes:
        return None
    token, times = max(votes.items(), key=lambda vote: len(vote[1]))
    times.sort(reverse=True)
    remaining = times[min(len(times), context.quorum) - 1]
    return Holder(
        name=name,
        owner=owner_of(token),
        token=label_of(token, LONGEST_TOKEN),
        votes=len(times),
        nodes=len(context.nodes),
        quorum=context.quorum,
        remaining=remaining,
        slot=slot,
        expired=is_expired(token, remaining),
    )


def read_holder(reply: object) -> tuple[bytes, float] | None:
    """Parse a script's reply: a holder's token and the seconds it has left, or None."""
    if reply is None:
        return None
    token, ttl_ms = cast("list[object]", reply)
    if type(token) is not bytes or type(ttl_ms) is not int:
        raise TypeError
    return token, ttl_ms / 1000 if ttl_ms >= 0 else float("inf")


async def force_release(session: Session, keys: Keys, name: str) -> bool:
    """Free the lock and the semaphore slots of a name regardless of their holders; return whether any was held.

    The nodes receive this at different times, and a holder sets its key again on nodes that have lost it. So the key
    first gets another value on all nodes, as if a client that is gone had it, and is deleted after that.
    Raise QuorumUnavailable if too few nodes reply, and WrongKeyType if the key holds another type.
    """
    key, readers, (semaphore, _) = keys.lock(name), keys.freed_readers(name), keys.semaphore(name)
    seconds = max(1.0, 4 * session.context.node_timeout)
    taken = (session.context.fresh_token(token_label(session.context.settings.owner, seconds)), round(seconds * 1000))
    lock = Call("mutex_force", 2, key, readers, *taken).pack_with_source()
    slots = Call("semaphore_force", 1, semaphore, *taken).pack_with_source()

    async def free(node: Node) -> tuple[bool, list[int]]:
        return await node.ask(lock, read_freed), await node.ask(slots, _freed_slots)

    freed, held = [key], False
    try:
        answers = await ask_all(session.context, name, key, free)
        freed += [b"%s:%d" % (semaphore, slot) for slot in {slot for _, slots in answers for slot in slots}]
        held = any(locked or slots for locked, slots in answers)
        if held:
            release = Call("mutex_release", len(freed), *freed, taken[0], 0).pack_with_source()
            await ask_all(session.context, name, key, lambda node: node.ask(release, read_freed))
    except BaseException:  # such as a cancellation: the nodes must not keep the name locked until the value expires
        session.context.send_to_all(Call("mutex_release", len(freed), *freed, taken[0], 0), seconds)
        raise
    finally:
        for changed in (*freed, readers):
            session.own_change(changed)
    return held


def read_freed(reply: object) -> bool:
    """Parse a script's reply: whether it has freed or changed something."""
    if type(reply) is not int:
        raise TypeError
    return reply == 1


def _freed_slots(reply: object) -> list[int]:
    if not isinstance(reply, list) or not {*map(type, reply)} <= {int}:
        raise TypeError
    return reply


async def ask_all(
    context: Context,
    name: str,
    key: bytes,
    ask: Callable[[Node], Coroutine[Any, Any, T]],
    *,
    enough: Callable[[Sequence[T]], bool] = lambda _: False,
) -> list[T]:
    """Return the replies about a name of all nodes that reply; raise QuorumUnavailable if they are no quorum.

    `key` is a key of the name, which tells the shard of a cluster. If the replies of some nodes are enough, the others
    have `GRACE` seconds to reply, and are left out after that.
    Raise WrongKeyType instead if that is why a node failed.
    """
    await context.membership.look(context.settings.options.wait)
    await context.membership.settled()
    nodes = context.group_of(key)
    asked = [asyncio.ensure_future(ask(node)) for node in nodes]
    await _until_enough(asked, enough)
    answers: list[T] = []
    causes: dict[str, Exception] = {}
    for node, task in zip(nodes, asked, strict=True):
        error = task.exception() if task.done() else None
        if isinstance(error, Exception):
            causes[node.label] = error
        elif task.done():
            answers.append(task.result())
    if len(answers) < context.quorum:
        for label, cause in causes.items():
            if isinstance(cause, WrongKeyType):
                raise WrongKeyType(f"{name!r} on {label}: {cause}", names=(name,))
        message = f"could not query {name!r}: too few nodes replied ({by_node(causes)})"
        raise QuorumUnavailable(message, names=(name,), nodes=causes)
    return answers


async def _until_enough(asked: Sequence[asyncio.Task[T]], enough: Callable[[Sequence[T]], bool]) -> None:
    """Wait until all tasks are done; once the results are `enough`, wait for `GRACE` seconds at most."""
    waiting = {*asked}
    try:
        while waiting and not enough([task.result() for task in asked if task.done() and task.exception() is None]):
            _, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if waiting:
            _, waiting = await asyncio.wait(waiting, timeout=GRACE)
    except asyncio.CancelledError:
        for task in waiting:
            task.cancel()
        raise
    for task in waiting:  # it ends within the node timeout, and a node that hangs is noticed by that
        task.add_done_callback(lambda task: task.cancelled() or task.exception())
