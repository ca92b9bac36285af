"""Operations on a semaphore: inspect its permits and slots, and change its number of permits."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import cast

from redlock_async._rounds.context import Context
from redlock_async._transport.commands import Call
from redlock_async._transport.node import Node
from redlock_async.errors import LockTimeout, QuorumUnavailable, by_node

from .status import Holder, ask_all, most_named, read_freed, read_holder


@dataclass(frozen=True, slots=True)
class SemaphoreStatus:
    """The state of a semaphore, as reported by the nodes."""

    name: str
    permits: int
    """The number of permits that most nodes report."""
    changed: bool
    """Whether `change_permits` has set it: then it also applies while no slot is held."""
    votes: int
    """How many nodes report it."""
    slots: tuple[Holder, ...]
    """The held slots with their holders, ordered by slot. One holder may hold several."""


@dataclass(frozen=True, slots=True)
class _Slots:
    """The state of a semaphore on one node."""

    stored: bytes
    """Its number of permits as stored on the node: with a colon if an operator has set it, or empty."""
    held: tuple[tuple[int, bytes, float], ...]
    """The held slots: number, holder token, seconds left."""

    @property
    def set(self) -> bytes:
        """The stored value if an operator has set it, or empty."""
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


async def inspect_semaphore(context: Context, name: str, key: bytes) -> SemaphoreStatus | None:
    """Return the permits of a semaphore and their holders; None if no node has stored a number for it.

    Raise QuorumUnavailable if too few nodes reply.
    """
    command = Call("semaphore_inspect", 1, key).pack_with_source()
    answers = await ask_all(context, name, key, lambda node: node.ask(command, _slots))
    numbers = Counter((each.permits, bool(each.set)) for each in answers if each.permits)
    if not numbers:
        return None
    (permits, changed), votes = max(numbers.items(), key=lambda vote: (vote[1], vote[0]))
    return SemaphoreStatus(name, permits, changed, votes, _by_slot(context, name, [each.held for each in answers]))


def _by_slot(context: Context, name: str, answers: Iterable[Iterable[tuple[int, bytes, float]]]) -> tuple[Holder, ...]:
    """Return for each slot the holder that most nodes report."""
    held: dict[int, list[tuple[bytes, float]]] = {}
    for slot, token, left in chain.from_iterable(answers):
        held.setdefault(slot, []).append((token, left))
    named = (most_named(context, name, each, slot) for slot, each in sorted(held.items()))
    return tuple(holder for holder in named if holder is not None)


@dataclass(frozen=True, slots=True)
class _Change:
    """The reply of one node to a change."""

    before: bytes | None = None
    """The value that the new number has replaced; None if the node has not stored the new number."""
    held: tuple[tuple[int, bytes, float], ...] = ()
    """A held slot beyond the new number, if that prevents the change."""


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


async def change_permits(context: Context, name: str, key: bytes, permits: int) -> None:
    """Set the number of permits on a majority, or raise and restore the old number.

    Each call stores a unique value, and a node only takes it in place of the operator's number that the call has seen
    there. Two majorities share a node, so of two changes that both succeed one has seen the other and wins.

    A node only takes a lower number while no slot beyond it is held there; from then on it grants none beyond it. So
    once a majority has taken the number, no client holds or gets such a slot on a majority. A node that may have
    forgotten a valid lease is not counted, just as when a lock is acquired.

    Raise LockTimeout if a slot beyond the number is held or another client changes the number at the same time, and
    QuorumUnavailable if too few nodes reply or can vote.
    """
    stored = await _stored_slots(context, name, key)
    # Checked before the change: clients that use the old number notice a change, even one that is restored.
    beyond = [[slot for slot in slots.held if slot[0] >= permits] for slots in stored.values()]
    if sum(map(bool, beyond)) > len(context.nodes) - context.quorum:
        raise _held_beyond(context, name, permits, beyond)
    ours = b"%d:%b" % (permits, context.fresh_token())
    before = _values_to_restore(context, key, stored)
    try:
        answers = await _send_change(context, name, key, ours, stored)
    except BaseException:
        _take_back(context, key, ours, before)
        raise
    context.wakeups.local_change(key)
    replaced = {node.index: answer.before for node, answer in answers if answer.before is not None}
    if _votes(context, key, replaced) >= context.quorum:
        return
    await _restore(context, key, ours, before | replaced)
    raise _why_unchanged(context, name, key, permits, [answer for _, answer in answers])


async def _stored_slots(context: Context, name: str, key: bytes) -> dict[int, _Slots]:
    """Return the slots on each node that replies, by the node's index."""
    command = Call("semaphore_inspect", 1, key).pack_with_source()

    async def read(node: Node) -> tuple[int, _Slots]:
        return node.index, await node.ask(command, _slots)

    return dict(await ask_all(context, name, key, read))


def _values_to_restore(context: Context, key: bytes, stored: Mapping[int, _Slots]) -> dict[int, bytes]:
    """Return the value that each node stored before the change.

    A node that did not reply gets the largest number in use elsewhere: a superfluous number does no harm, but a missing
    one does while slots are held.
    """
    usual = max((slots.stored for slots in stored.values() if not slots.set), default=b"")
    return {node.index: stored[node.index].stored if node.index in stored else usual for node in context.group_of(key)}


async def _send_change(
    context: Context, name: str, key: bytes, ours: bytes, stored: Mapping[int, _Slots]
) -> list[tuple[Node, _Change]]:
    async def change(node: Node) -> tuple[Node, _Change]:
        set_before = stored[node.index].set if node.index in stored else b""
        command = Call("semaphore_change", 1, key, ours, set_before).pack_with_source()
        return node, await node.ask(command, _changed)

    return await ask_all(context, name, key, change)


def _why_unchanged(
    context: Context, name: str, key: bytes, permits: int, answers: Sequence[_Change]
) -> LockTimeout | QuorumUnavailable:
    beyond = [answer.held for answer in answers]
    if any(beyond):
        return _held_beyond(context, name, permits, beyond)
    if sum(answer.before is not None for answer in answers) >= context.quorum:
        group = context.group_of(key)
        causes = {node.label: why for node in group if (why := group.objection(node)) is not None}
        message = f"could not change {name!r} to permits={permits}: too few nodes could vote ({by_node(causes)})"
        return QuorumUnavailable(message, names=(name,), nodes=causes)
    return LockTimeout(
        f"could not change {name!r} to permits={permits}: another client changed it at the same time. Try again",
        names=(name,),
    )


def _votes(context: Context, key: bytes, nodes: Iterable[int]) -> int:
    """Return how many of those nodes may vote."""
    group = context.group_of(key)
    return sum(group.objection(group[index]) is None for index in nodes)


async def forget_permits(context: Context, name: str, key: bytes) -> None:
    """Turn a number that an operator has set into one that expires when it is not used, on at least a majority.

    Only the values that were seen are reset: a node that is reached late may have a newer number, which stays.

    While slots are held, each of these nodes still rejects another number, as if none had been set. A holder has its
    slots on a majority, and another number also needs a majority, so the two cannot be in use at the same time.

    Raise QuorumUnavailable if too few nodes reply.
    """
    values = {slots.set for slots in (await _stored_slots(context, name, key)).values() if slots.set}
    if not values:
        return
    keep = 2 * context.membership.longest_ttl
    command = Call("semaphore_forget", 1, key, round(keep * 1000), *sorted(values))
    answered: set[int] = set()

    async def forget(node: Node) -> None:
        await node.ask(command.pack_with_source(), read_freed)
        answered.add(node.index)

    try:
        await ask_all(context, name, key, forget)
    finally:
        for node in context.group(command):
            if node.index not in answered:
                node.send_durably(command, context.now() + keep)


def _take_back(context: Context, key: bytes, ours: bytes, before: Mapping[int, bytes]) -> list[Call]:
    """Send every node the command that restores its old value; a node that is down gets it on its next connection."""
    keep = 2 * context.membership.longest_ttl
    commands = []
    for node in context.group_of(key):
        command = Call("semaphore_restore", 1, key, ours, before[node.index], round(keep * 1000))
        node.send_durably(command, context.now() + keep)
        commands.append(command)
    return commands


async def _restore(context: Context, key: bytes, ours: bytes, before: Mapping[int, bytes]) -> None:
    """Restore the old values and wait for it, so that a second attempt does not collide with the first one.

    The commands are sent once more with their source, because the reply to the first one cannot be awaited.
    """
    commands = _take_back(context, key, ours, before)
    asks = (
        node.ask(each.pack_with_source(), read_freed)
        for node, each in zip(context.group_of(key), commands, strict=True)
    )
    await asyncio.gather(*asks, return_exceptions=True)


def _held_beyond(
    context: Context, name: str, permits: int, beyond: Iterable[Iterable[tuple[int, bytes, float]]]
) -> LockTimeout:
    holder = max(_by_slot(context, name, beyond), key=lambda each: each.votes)
    return LockTimeout(
        f"could not change {name!r} to permits={permits}: slot {holder.slot} is held by "
        f"{holder.owner or 'another client'}, for {holder.remaining:.1f} s unless it is renewed. Wait until the slots "
        f"from {permits} on are free, or use force_release",
        names=(name,),
        holder=holder.owner,
        retry_after=holder.remaining,
    )
