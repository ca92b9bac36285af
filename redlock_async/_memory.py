"""Whether a node still has its data, as it says itself, and why its votes do not count while that is in doubt."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Protocol, cast

from ._errors import KeyConflict, NodeRefused
from ._quorum import SAME_BIRTH
from ._receivers import Ask
from ._replies import failure
from ._scripts import Command
from ._wire import MISREAD, ErrorReply, Receiver, Wire, unreadable

ASK_AGAIN = 1.0
"""Seconds after which a node that did not tell is asked again, at the latest."""


@dataclass(frozen=True, slots=True)
class Mark:
    """How old a node's data is, how long leases may have stood, and the longest ttl in use."""

    read_at: float
    born: int | None
    """When its data began, by its own clock in µs; None if it refuses to remember (OOM, say)."""
    age: float
    """For how many seconds it had kept its data at `read_at`."""
    longest_ttl: float
    founded: float | None
    """For how many seconds a majority had been there, as far as that node knows."""
    answered_at: float
    """When we knew: a far node read its clock anywhere between `read_at` and this."""
    clock: float
    """The node's wall clock at `read_at`."""

    @property
    def witness(self) -> bool:
        """Whether it has kept its data since the founding: both are told by its own clock, which may be wrong."""
        return self.founded is not None and self.age >= self.founded - SAME_BIRTH

    @property
    def late(self) -> bool:
        """Whether it only knows of the founding by hearsay: its data began later."""
        return self.founded is not None and not self.witness


class Client(Protocol):
    """What a memory needs of the client it belongs to."""

    loop: asyncio.AbstractEventLoop
    now: Callable[[], float]
    random: Random

    def mark_command(self) -> Command:
        """The command that reads a node's mark."""
        ...

    def reconsidered(self) -> None:
        """Whether a node abstains may be another now."""


class Owner(Protocol):
    """The node whose memory it is."""

    wire: Wire | None
    closed: bool

    def remembered(self) -> None:
        """Its mark is another now, or why there is none."""


class Memory:
    """What one node has kept, as far as we were told."""

    def __init__(self, owner: Owner, client: Client) -> None:
        self._owner = owner
        self._client = client
        self.mark: Mark | None = None
        self.abstains: Exception | None = None
        """Why the node's votes do not count although it answers, if so."""
        self._held_out: Exception | None = None
        self._in_doubt: Exception | None = None
        self.told_at = -math.inf
        """When it was last told of the founding."""
        self.forgot = False
        """Whether we have seen it with older data than it has now."""

    def hold_out(self, why: Exception | None) -> None:
        """Its votes do not count, because it may have forgotten a lease; or they do again."""
        self._held_out = why
        self._reconsider()

    def _doubt(self, why: Exception | None) -> None:
        """The same while it is being asked whether it has its data."""
        self._in_doubt = why
        self._reconsider()

    def _reconsider(self) -> None:
        self.abstains = self._in_doubt or self._held_out
        self._client.reconsidered()

    def ask(self) -> Ask:
        """Ask how old the node's data is, on a new connection; it does not vote until `learn` is told."""
        self._doubt_while_asked()
        ask = Ask(self._client.loop, self._client.now())
        self._send(self._client.mark_command(), ask)
        return ask

    def learn(self, read_at: float, reply: object) -> None:
        """Its answer."""
        try:
            self._learn(read_at, reply)
        except MISREAD as exc:
            raise unreadable(reply, exc) from exc

    def _learn(self, read_at: float, reply: object) -> None:
        if isinstance(reply, ErrorReply):
            raise failure(str(reply))
        node_time, born, longest, founding = cast("list[int]", reply)  # node_mark.lua
        if not type(node_time) is type(born) is type(longest) is type(founding) is int:
            raise TypeError
        stored = born if born >= 0 else None
        if self.mark is not None and self.mark.born is not None and stored != self.mark.born:
            self.forgot = True
        age = (node_time - born) / 1e6 if stored is not None else 0.0
        founded = (node_time - founding) / 1e6 if founding >= 0 else None
        self.mark = Mark(read_at, stored, age, longest / 1e3, founded, self._client.now(), node_time / 1e6)
        self._doubt(None)

    def tell(self, command: Command) -> None:
        """Read the mark, and tell the node what it is to remember, on a connection that is in use."""
        self._send(command, Remark(self, self._client.now()))

    def ask_again(self, *, doubt: bool) -> None:
        """Read the mark once more: it was changed, or the node was flushed.

        The server's report comes before the reply to anything it was asked afterwards, so from here on no grant of a
        flushed node is counted.
        """
        if doubt:
            self._doubt_while_asked()
        self.tell(self._client.mark_command())

    def _doubt_while_asked(self) -> None:
        self._doubt(NodeRefused("it is being asked whether it still has its data"))

    def learn_again(self, read_at: float, reply: object) -> None:
        """The answer to `ask_again`."""
        if self._owner.closed:
            return  # what `refused_at_last` passes on is for releases
        try:
            self._learn(read_at, reply)
        except (ConnectionError, KeyConflict) as exc:
            self._doubt(exc)
            # It may be busy for now: on a connection that lasts nothing else would ask again.
            pause = ASK_AGAIN * self._client.random.uniform(0.5, 1.0)
            self._client.loop.call_later(pause, self._ask_if_in_doubt, self._owner.wire)
        self._owner.remembered()

    def _ask_if_in_doubt(self, wire: Wire | None) -> None:
        if wire is not None and wire is self._owner.wire and self._in_doubt is not None:
            self.ask_again(doubt=True)

    def _send(self, command: Command, receiver: Receiver) -> None:
        wire = self._owner.wire
        if wire is not None:
            wire.send(command.pack_with_source(), receiver)


class Remark:
    """A node's mark being read once more."""

    __slots__ = ("_memory", "started_at")

    def __init__(self, memory: Memory, now: float) -> None:
        self._memory = memory
        self.started_at = now

    def deliver(self, node: int, reply: object) -> None:  # noqa: ARG002 - one node only
        self._memory.learn_again(self.started_at, reply)

    def dropped(self, node: int, cause: Exception) -> None:
        """The next connection reads the mark anyway."""
