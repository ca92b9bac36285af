"""The nodes of one client as a group: a command for all of them is packed, queued and written once."""

from __future__ import annotations

from collections.abc import Iterable

from .commands import CompareAndDelete
from .connection import WriteBatcher
from .node import Node


class NodeGroup(list[Node]):
    """The nodes, in the order the user gave them."""

    def __init__(self, nodes: Iterable[Node], batcher: WriteBatcher) -> None:
        super().__init__(nodes)
        self.batcher = batcher
        self.dialect: CompareAndDelete | None = None
        """The dialect of all nodes, while all are connected and have the same one."""
        self.all = (1 << len(self)) - 1
        """Bit mask of all nodes."""
        self.abstaining = 0
        """Bit mask of the nodes whose votes do not count although they answer."""

    def update_broadcast(self) -> None:
        """Decide again whether a command can be sent to all nodes at once, because a node's connection has changed."""
        connections = [node.live for node in self if node.live is not None]
        alike = len(connections) == len(self) and len({node.compare_and_delete for node in self}) == 1
        self.dialect = self[0].compare_and_delete if alike else None
        self.batcher.connect(connections if alike else ())

    def update_abstaining(self) -> None:
        """Update `abstaining`, because a node may have started or stopped abstaining."""
        self.abstaining = sum(node.bit for node in self if node.abstains is not None)
