"""All masters of one client as one: what each of them is sent is packed, queued and written once for all."""

from __future__ import annotations

from collections.abc import Iterable

from ._node import Node
from ._scripts import Command, Dialect
from ._wire import Outbox, Receiver


class Fleet(list[Node]):
    """The nodes, in the order the user gave them."""

    def __init__(self, nodes: Iterable[Node], outbox: Outbox) -> None:
        super().__init__(nodes)
        self._outbox = outbox
        self._dialect: Dialect | None = None
        """What all of them speak, while all of them are there."""
        self._all = (1 << len(self)) - 1
        self.abstaining = 0
        """Bit mask of the nodes whose votes do not count although they answer."""

    def regroup(self) -> None:
        """The connection of a node is another now, or none."""
        wires = [node.live for node in self if node.live is not None]
        alike = len(wires) == len(self) and len({node.dialect for node in self}) == 1
        self._dialect = self[0].dialect if alike else None
        self._outbox.connect(wires if alike else ())

    def recount(self) -> None:
        """Whether a node abstains may be another now."""
        self.abstaining = sum(node.bit for node in self if node.abstains is not None)

    def send_all(self, command: Command, receiver: Receiver) -> int:
        """Send it to every node, if all are there and of one kind; returns the bit mask of the nodes it goes to."""
        if self._dialect is None:
            return 0
        self._outbox.send_all(command.pack(self._dialect), receiver)
        return self._all
