"""What operators ask of a semaphore: its number of permits and who holds which slot; and another number."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import cast

from ._engine import Engine
from ._errors import LockTimeout, QuorumUnavailable, by_node
from ._node import Node
from ._operators import Holder, ask_all, most_named, read_freed, read_holder
from ._scripts import Call


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
    held = read_holder(holder)
    if type(slot) is not int or held is None:
        raise TypeError
    return slot, *held


async def inspect_semaphore(engine: Engine, name: str, key: bytes) -> SemaphoreStatus | None:
    """How many permits there are, and who holds them; None when no node knows of a number or a holder."""
    command = Call("semaphore_inspect", 1, key).pack_with_source()
    answers = await ask_all(engine, name, lambda node: node.ask(command, _slots))
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
    named = (most_named(engine, name, each, slot) for slot, each in sorted(held.items()))
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

    found = await ask_all(engine, name, seen)
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
        answers = await ask_all(engine, name, change)
    except BaseException:
        _take_back(engine, key, ours, before)
        raise
    engine.own_change(key)
    taken = {node.index: answer.before for node, answer in answers if answer.before is not None}
    if _votes(engine, taken) >= engine.needed:
        return
    await _taken_back(engine, key, ours, before | taken)
    beyond = [list(answer.held) for _, answer in answers]
    if any(beyond):
        raise _in_the_way(engine, name, permits, beyond)
    if len(taken) >= engine.needed:
        causes = {node.label: node.abstains for node in engine.nodes if node.abstains is not None}
        message = f"{name!r}: too few masters could vote ({by_node(causes)})"
        raise QuorumUnavailable(message, names=(name,), nodes=causes)
    raise LockTimeout(
        f"could not change {name!r} to permits={permits}: somebody else changed it at the same time", names=(name,)
    )


def _votes(engine: Engine, taken: Iterable[int]) -> int:
    """How many of those nodes can vouch for what they say."""
    return sum(engine.nodes[index].abstains is None for index in taken)


async def forget_permits(engine: Engine, name: str, key: bytes) -> None:
    """Have a number that was set be like one that was only used, on a majority at least.

    Only what was seen to be set is forgotten: a node that is told late has perhaps another by then, which stands.

    Where slots are held, each of these nodes still refuses another number, as it does when none was set. A holder has
    its slots on a majority, and another number needs one, too: so none gets in beside it.
    """
    look = Call("semaphore_inspect", 1, key).pack_with_source()
    values = {slots.set for slots in await ask_all(engine, name, lambda node: node.ask(look, _slots)) if slots.set}
    if not values:
        return
    keep = 2 * engine.masters.longest_ttl
    command = Call("semaphore_forget", 1, key, round(keep * 1000), *sorted(values))
    answered: set[int] = set()

    async def forget(node: Node) -> None:
        await node.ask(command.pack_with_source(), read_freed)
        answered.add(node.index)

    try:
        await ask_all(engine, name, forget)
    finally:
        for node in engine.nodes:
            if node.index not in answered:
                node.tell(command, engine.now() + keep)


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
    asks = (node.ask(each.pack_with_source(), read_freed) for node, each in zip(engine.nodes, commands, strict=True))
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
        retry_after=holder.remaining,
    )
