"""What operators ask: the state of the masters, who holds a lock or a slot, and freeing them by force."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, TypeVar, cast

from ._contest import owner_of
from ._engine import Engine
from ._errors import KeyConflict, LockTimeout, QuorumUnavailable, RedlockError
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


@dataclass(frozen=True, slots=True)
class SemaphoreStatus:
    """A semaphore, by the nodes' word."""

    name: str
    permits: int
    """The number most nodes name."""
    changed: bool
    """Whether `change_permits` has set it: then it stands also while no slot is held."""
    votes: int
    """Nodes that name it."""
    slots: tuple[Holder, ...]
    """Who holds which slot, by slot: several of them by one holder where it has asked for several."""


async def status(engine: Engine) -> list[NodeStatus]:
    """One record a node."""
    return list(await asyncio.gather(*(_status(engine, node) for node in engine.nodes)))


async def _status(engine: Engine, node: Node) -> NodeStatus:
    identity, mark = node.seen, node.mark
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
    answers = await _ask_all(engine, name, lambda node: node.ask(command, _holder))
    return _most_named(engine, name, [held for held in answers if held is not None])


def _most_named(
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


def _holder(reply: object) -> tuple[bytes, float] | None:
    if reply is None:
        return None
    token, ttl_ms = cast("list[object]", reply)
    if type(token) is not bytes or type(ttl_ms) is not int:
        raise TypeError
    return token, ttl_ms / 1000 if ttl_ms >= 0 else float("inf")


async def force_release(engine: Engine, name: str, key: bytes, semaphore: bytes) -> bool:
    """Free that name, and the slots of the semaphore of that name, whoever holds them; returns whether anybody did."""
    lock = Call("mutex_force", 1, key).pack_with_source()
    slots = Call("semaphore_force", 1, semaphore).pack_with_source()

    async def free(node: Node) -> tuple[bool, list[int]]:
        return await node.ask(lock, _freed), await node.ask(slots, _freed_slots)

    answers = await _ask_all(engine, name, free)
    engine.own_change(key)
    for slot in {slot for _, slots in answers for slot in slots}:
        engine.own_change(b"%s:%d" % (semaphore, slot))
    return any(locked or slots for locked, slots in answers)


def _freed(reply: object) -> bool:
    if type(reply) is not int:
        raise TypeError
    return reply == 1


def _freed_slots(reply: object) -> list[int]:
    if not isinstance(reply, list) or not {*map(type, reply)} <= {int}:
        raise TypeError
    return reply


# Semaphores


@dataclass(frozen=True, slots=True)
class _Slots:
    """What one node has of a semaphore."""

    stored: bytes
    """Its number of permits as it is stored there: with a colon if an operator has set it, or empty."""
    held: tuple[tuple[int, bytes, float], ...]

    @property
    def set(self) -> bytes:
        """What an operator has set."""
        return self.stored if b":" in self.stored else b""

    @property
    def permits(self) -> int:
        """The number, or 0."""
        number = self.stored.partition(b":")[0]
        return int(number) if number.isdigit() else 0


def _slots(reply: object) -> _Slots:
    stored, *held = cast("list[object]", reply)
    if stored is not None and type(stored) is not bytes:
        raise TypeError
    return _Slots(stored or b"", tuple(_slot(each) for each in held))


def _slot(reply: object) -> tuple[int, bytes, float]:
    slot, *holder = cast("list[object]", reply)
    held = _holder(holder)
    if type(slot) is not int or held is None:
        raise TypeError
    return slot, *held


async def inspect_semaphore(engine: Engine, name: str, key: bytes) -> SemaphoreStatus | None:
    """How many permits there are, and who holds them; None when no node knows of a number or a holder."""
    command = Call("semaphore_inspect", 1, key).pack_with_source()
    answers = await _ask_all(engine, name, lambda node: node.ask(command, _slots))
    numbers = Counter((each.permits, bool(each.set)) for each in answers if each.permits)
    if not numbers:
        return None
    (permits, changed), votes = max(numbers.items(), key=lambda vote: (vote[1], vote[0]))
    return SemaphoreStatus(name, permits, changed, votes, _by_slot(engine, name, [each.held for each in answers]))


def _by_slot(engine: Engine, name: str, answers: Iterable[Iterable[tuple[int, bytes, float]]]) -> tuple[Holder, ...]:
    """For each slot the holder that most nodes name."""
    held: dict[int, list[tuple[bytes, float]]] = {}
    for slot, token, left in chain.from_iterable(answers):
        held.setdefault(slot, []).append((token, left))
    named = (_most_named(engine, name, each, slot) for slot, each in sorted(held.items()))
    return tuple(holder for holder in named if holder is not None)


@dataclass(frozen=True, slots=True)
class _Change:
    """How one node has answered a change."""

    before: bytes | None = None
    """What it had before it stored the new number; None: it did not."""
    held: tuple[tuple[int, bytes, float], ...] = ()
    """The slot beyond the new number that is in the way there."""


def _changed(reply: object) -> _Change:
    outcome, *rest = cast("list[object]", reply)
    if type(outcome) is not int or outcome not in {-1, 0, 1}:
        raise TypeError
    if outcome == 1:
        (before,) = rest or (None,)
        if before is not None and type(before) is not bytes:
            raise TypeError
        return _Change(before or b"")
    return _Change(held=(_slot(rest),)) if outcome == -1 else _Change()


async def change_permits(engine: Engine, name: str, key: bytes, permits: int) -> None:
    """Set the number of permits on a majority, or raise and leave it as it was.

    What is stored differs for each call, and a node takes it only in place of what an operator had set when it was
    asked before. Two majorities share a node, so of two changes that both succeed one has seen the other, and stands.

    A node takes a lower number only when no slot beyond it is held there; from then on it grants none beyond. So once a
    majority has taken it, nobody holds a majority for one, nor will. What a node cannot vouch for, because it may have
    forgotten a lease that still stands, does not count, as when a lock is taken.
    """
    look = Call("semaphore_inspect", 1, key).pack_with_source()
    spare = len(engine.nodes) - engine.needed

    async def seen(node: Node) -> tuple[Node, _Slots]:
        return node, await node.ask(look, _slots)

    found = await _ask_all(engine, name, seen)
    # Before anything is touched: a change that is taken back is felt by those who use the old number.
    beyond = [[each for each in slots.held if each[0] >= permits] for _, slots in found]
    if sum(map(bool, beyond)) > spare:
        raise _in_the_way(engine, name, permits, beyond)
    ours = b"%d:%b" % (permits, engine.fresh_token())
    known = {node.index: slots for node, slots in found}
    # A number that nobody needs any more does no harm; one that is missing where slots are held does.
    usual = max((slots.stored for slots in known.values() if not slots.set), default=b"")
    before = {node.index: known[node.index].stored if node.index in known else usual for node in engine.nodes}

    async def change(node: Node) -> tuple[Node, _Change]:
        set_before = known[node.index].set if node.index in known else b""
        command = Call("semaphore_change", 1, key, ours, set_before).pack_with_source()
        return node, await node.ask(command, _changed)

    try:
        answers = await _ask_all(engine, name, change)
    except BaseException:
        _take_back(engine, key, ours, before)
        raise
    taken = {node.index: answer.before for node, answer in answers if answer.before is not None}
    if sum(engine.nodes[index].abstains is None for index in taken) >= engine.needed:
        return
    await _taken_back(engine, key, ours, before | taken)
    beyond = [list(answer.held) for _, answer in answers]
    if any(beyond):
        raise _in_the_way(engine, name, permits, beyond)
    if len(taken) >= engine.needed:
        causes = {node.label: node.abstains for node in engine.nodes if node.abstains is not None}
        each = "; ".join(f"{label}: {cause}" for label, cause in causes.items())
        raise QuorumUnavailable(f"{name!r}: too few masters could vote ({each})", names=(name,), nodes=causes)
    raise LockTimeout(
        f"could not change {name!r} to permits={permits}: somebody else changed it at the same time", names=(name,)
    )


def _take_back(engine: Engine, key: bytes, ours: bytes, before: Mapping[int, bytes]) -> list[Call]:
    """Have every node store again what it had, also one that is heard of no more, on its next connection."""
    keep = 2 * engine.masters.longest_ttl
    commands = []
    for node in engine.nodes:
        command = Call("semaphore_unchange", 1, key, ours, before[node.index], round(keep * 1000))
        node.tell(command, engine.now() + keep)
        commands.append(command)
    return commands


async def _taken_back(engine: Engine, key: bytes, ours: bytes, before: Mapping[int, bytes]) -> None:
    """The same, and wait for it: who is told that a change has failed, and tries again, must not be in his own way.

    They are asked once more, for what they were told is not answered, and may have to be told again with its source.
    """
    commands = _take_back(engine, key, ours, before)
    asks = (node.ask(each.pack_with_source(), _freed) for node, each in zip(engine.nodes, commands, strict=True))
    await asyncio.gather(*asks, return_exceptions=True)


def _in_the_way(
    engine: Engine, name: str, permits: int, beyond: Iterable[Iterable[tuple[int, bytes, float]]]
) -> LockTimeout:
    holder = max(_by_slot(engine, name, beyond), key=lambda each: each.votes)
    return LockTimeout(
        f"could not change {name!r} to permits={permits}: slot {holder.slot} is held by "
        f"{holder.owner or 'another client'}, for {holder.remaining:.1f} s unless it is renewed; slots from {permits} "
        "on must be free, by themselves or by force_release",
        names=(name,),
        holder=holder.owner,
    )


async def _ask_all(engine: Engine, name: str, ask: Callable[[Node], Coroutine[Any, Any, T]]) -> list[T]:
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
        each = "; ".join(f"{label}: {cause}" for label, cause in causes.items())
        raise QuorumUnavailable(f"{name!r}: too few masters answer ({each})", names=(name,), nodes=causes)
    return [answer for answer in answers if not isinstance(answer, BaseException)]
