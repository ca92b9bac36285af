"""The nodes of one client as a group: a command for all that are up is packed, queued and written once."""

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
        """The dialect of all nodes that are up, while it is the same one."""
        self.all = (1 << len(self)) - 1
        """Bit mask of all nodes."""
        self.up = 0
        """Bit mask of the nodes that are up, while they have the same dialect."""
        self.abstaining = 0
        """Bit mask of the nodes whose votes do not count although they answer."""

    def update_broadcast(self) -> None:
        """Decide again which nodes a command can be sent to at once, because a node's connection has changed."""
        up = [node for node in self if node.live is not None]
        dialects = {node.compare_and_delete for node in up}
        self.dialect = dialects.pop() if len(dialects) == 1 else None
        if self.dialect is None:
            up = []
        self.up = sum(node.bit for node in up)
        self.batcher.connect([node.live for node in up if node.live is not None])

    def update_abstaining(self) -> None:
        """Update `abstaining`, because a node may have started or stopped abstaining."""
        self.abstaining = sum(node.bit for node in self if node.abstains is not None)
