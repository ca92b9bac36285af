"""What operators ask: the state of the masters, who holds a lock, and freeing a name by force."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

from ._contest import owner_of
from ._engine import Engine
from ._errors import KeyConflict, QuorumUnavailable, RedlockError, by_node
from ._keys import Keys
from ._node import Node
from ._scripts import Call
from ._wire import pack

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """One master, as it answered just now."""

    label: str
    up: bool
    votes: bool
    """Whether its votes count now."""
    error: str | None
    """Why it is not up, or does not vote."""
    role: str | None = None
    mode: str | None = None
    """'standalone', as it has to be; 'cluster' or 'sentinel' otherwise."""
    version: str | None = None
    run_id: str | None = None
    latency: float | None = None
    """Seconds of one round trip."""
    age: float | None = None
    """Seconds for which it has kept its data."""
    longest_ttl: float | None = None
    """The longest ttl that anybody uses, in seconds, as far as it knows: for as long it cannot vote if it loses its
    data."""
    clock_offset: float | None = None
    """Its wall clock minus ours, in seconds."""
    persistence: str | None = None
    """'aof always', 'aof everysec', 'aof no', 'rdb' or 'none'; None if it may not be asked."""
    eviction: str | None = None
    """maxmemory-policy: anything but noeviction may evict locks."""
    maxmemory: int | None = None
    """Bytes beyond which that policy applies; 0: without limit."""
    tracking: bool = False
    """Whether it wakes waiters by itself."""
    circuit_open: bool = False
    """Whether it is left alone after a fault, while another connection is tried."""


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a lock, by the nodes' word."""

    name: str
    owner: str | None
    """The holder's owner label; None for a client of another library."""
    token: str
    votes: int
    """Nodes that name this holder."""
    nodes: int
    needed: int
    remaining: float
    """Seconds until it runs out on the last node it needs, if it is not renewed."""
    slot: int | None = None
    """Of a semaphore: which of its slots it is, from 0."""

    @property
    def held(self) -> bool:
        """Whether it is a lock, or only what an attempt left on a minority."""
        return self.votes >= self.needed


async def status(engine: Engine) -> list[NodeStatus]:
    """One record a node."""
    return list(await asyncio.gather(*(_status(engine, node) for node in engine.nodes)))


async def _status(engine: Engine, node: Node) -> NodeStatus:
    identity, mark = node.seen, node.memory.mark
    base = NodeStatus(
        label=node.label,
        up=node.ready,
        votes=node.ready and node.abstains is None,
        error=str(node.abstains or "") or None,
        role=identity.role if identity else None,
        mode=identity.mode if identity else None,
        version=f"{identity.server} {identity.version}" if identity and identity.server else None,
        run_id=identity.run_id if identity else None,
        tracking=node.tracking,
        circuit_open=not node.ready,
    )
    try:
        sent = engine.now()
        clock = await node.ask(pack(("TIME",)), _clock)
        latency = engine.now() - sent
        offset = clock - (engine.wall_us() / 1e6 - latency / 2)
        eviction, memory, persistence = await asyncio.gather(
            _config(node, "maxmemory-policy"), _config(node, "maxmemory"), _persistence(node)
        )
    except (OSError, RedlockError) as exc:
        return replace(base, up=False, votes=False, error=str(exc), circuit_open=True)
    return replace(
        base,
        latency=latency,
        age=None if mark is None else mark.age + (engine.now() - mark.read_at),
        longest_ttl=None if mark is None else mark.longest_ttl,
        clock_offset=offset,
        eviction=eviction,
        maxmemory=int(memory) if memory is not None and memory.isdecimal() else None,
        persistence=persistence,
    )


def _clock(reply: object) -> float:
    seconds, micros = cast("list[bytes]", reply)
    return int(seconds) + int(micros) / 1e6


async def _config(node: Node, setting: str) -> str | None:
    try:
        return await node.ask(pack(("CONFIG", "GET", setting)), _setting)
    except (ConnectionError, RedlockError):
        return None  # CONFIG is often denied, and then this is simply not known


def _setting(reply: object) -> str | None:
    items = (
        list(reply.items())
        if isinstance(reply, dict)
        else list(zip(*[iter(cast("list[bytes]", reply))] * 2, strict=True))
    )
    return items[0][1].decode() if items else None


async def _persistence(node: Node) -> str | None:
    aof, fsync, save = await asyncio.gather(*(_config(node, name) for name in ("appendonly", "appendfsync", "save")))
    if aof is None:
        return None
    if aof == "yes":
        return f"aof {fsync}"
    return "rdb" if save else "none"


async def inspect(engine: Engine, name: str, key: bytes) -> Holder | None:
    """Who holds that name; None when no node knows of a holder."""
    command = Call("mutex_inspect", 1, key).pack_with_source()
    answers = await ask_all(engine, name, lambda node: node.ask(command, read_holder))
    return most_named(engine, name, [held for held in answers if held is not None])


def most_named(
    engine: Engine, name: str, held: Iterable[tuple[bytes, float]], slot: int | None = None
) -> Holder | None:
    """The one that most nodes name."""
    votes: dict[bytes, list[float]] = {}
    for token, left in held:
        votes.setdefault(token, []).append(left)
    if not votes:
        return None
    token, times = max(votes.items(), key=lambda vote: len(vote[1]))
    times.sort(reverse=True)
    return Holder(
        name=name,
        owner=owner_of(token),
        token=token.decode("utf-8", "replace"),
        votes=len(times),
        nodes=len(engine.nodes),
        needed=engine.needed,
        remaining=times[min(len(times), engine.needed) - 1],
        slot=slot,
    )


def read_holder(reply: object) -> tuple[bytes, float] | None:
    """A token and the seconds it has left, as a script tells them; None: nobody."""
    if reply is None:
        return None
    token, ttl_ms = cast("list[object]", reply)
    if type(token) is not bytes or type(ttl_ms) is not int:
        raise TypeError
    return token, ttl_ms / 1000 if ttl_ms >= 0 else float("inf")


async def force_release(engine: Engine, keys: Keys, name: str) -> bool:
    """Free that name, and the slots of the semaphore of that name, whoever holds them; returns whether anybody did."""
    key, readers, (semaphore, _) = keys.lock(name), keys.freed_readers(name), keys.semaphore(name)
    lock = Call("mutex_force", 2, key, readers).pack_with_source()
    slots = Call("semaphore_force", 1, semaphore).pack_with_source()

    async def free(node: Node) -> tuple[bool, list[int]]:
        return await node.ask(lock, read_freed), await node.ask(slots, _freed_slots)

    answers = await ask_all(engine, name, free)
    engine.own_change(key)
    engine.own_change(readers)
    for slot in {slot for _, slots in answers for slot in slots}:
        engine.own_change(b"%s:%d" % (semaphore, slot))
    return any(locked or slots for locked, slots in answers)


def read_freed(reply: object) -> bool:
    """Whether there was something to free, as a script tells it."""
    if type(reply) is not int:
        raise TypeError
    return reply == 1


def _freed_slots(reply: object) -> list[int]:
    if not isinstance(reply, list) or not {*map(type, reply)} <= {int}:
        raise TypeError
    return reply


async def ask_all(engine: Engine, name: str, ask: Callable[[Node], Coroutine[Any, Any, T]]) -> list[T]:
    """The replies of all nodes, of which there must be a quorum."""
    if not engine.masters.usable:
        await engine.start(engine.settings.options.wait)
    await engine.masters.settled()
    answers = await asyncio.gather(*(ask(node) for node in engine.nodes), return_exceptions=True)
    causes: dict[str, Exception] = {}
    for node, answer in zip(engine.nodes, answers, strict=True):
        if isinstance(answer, Exception):
            causes[node.label] = answer
        elif isinstance(answer, BaseException):
            raise answer
    if len(engine.nodes) - len(causes) < engine.needed:
        for label, cause in causes.items():
            if isinstance(cause, KeyConflict):
                raise KeyConflict(f"{name!r} on {label}: {cause}", names=(name,))
        message = f"{name!r}: too few masters answer ({by_node(causes)})"
        raise QuorumUnavailable(message, names=(name,), nodes=causes)
    return [answer for answer in answers if not isinstance(answer, BaseException)]
