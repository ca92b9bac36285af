"""The nodes of one client as a group: a command for all of them is packed, queued and written once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from redlock_async._rules.voting import Move

from .commands import CompareAndDelete
from .connection import WriteBatcher
from .node import Node

NOTHING_MOVED: Mapping[int, Move] = {}

UNNOTED = Move(-1, 0.0, ())
"""The move of slots that a shard owns, but has not noted yet."""


class NodeGroup(list[Node]):
    """The nodes, in the order the user gave them: for each cluster, the shard that owns the slots of this group."""

    def __init__(self, nodes: Iterable[Node], batcher: WriteBatcher, moves: Mapping[int, Move] = NOTHING_MOVED) -> None:
        super().__init__(nodes)
        self.batcher = batcher
        self.moves = moves
        """The nodes of which the slots of this group came from another shard, by index."""
        self.held_back: dict[int, Exception] = {}
        """Why nodes do not vote for these slots, although they vote for others, by index."""
        self.dialect: CompareAndDelete | None = None
        """The dialect of all nodes, while all are connected and have the same one."""
        self.all = (1 << len(self)) - 1
        """Bit mask of all nodes."""
        self.abstaining = 0
        """Bit mask of the nodes whose votes do not count although they answer."""

    def objection(self, node: Node) -> Exception | None:
        """Return why a node's votes do not count although it answers; None if they count."""
        return node.abstains or self.held_back.get(node.index)

    def hold_back(self, reasons: dict[int, Exception]) -> None:
        """Count the votes of those nodes no more for these slots, and those of all others again."""
        if reasons.keys() != self.held_back.keys():
            self.held_back = reasons
            self.update_abstaining()
        self.held_back = reasons

    @property
    def voters_up(self) -> int:
        """How many nodes may vote now."""
        return sum(node.ready and self.objection(node) is None for node in self)

    def update_broadcast(self) -> None:
        """Decide again whether a command can be sent to all nodes at once, because a node's connection has changed."""
        connections = [node.live for node in self if node.live is not None]
        alike = len(connections) == len(self) and len({node.compare_and_delete for node in self}) == 1
        self.dialect = self[0].compare_and_delete if alike else None
        self.batcher.connect(connections if alike else ())

    def update_abstaining(self) -> None:
        """Update `abstaining`, because a node may have started or stopped abstaining."""
        self.abstaining = sum(node.bit for node in self if self.objection(node) is not None)
