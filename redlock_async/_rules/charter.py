"""What the nodes of a namespace remember about their clients' configuration: the quorum, and which nodes there are.

Two clients exclude each other only if every quorum of one has a node in common with every quorum of the other. So each
node records the configuration of the first client that takes locks: its charter. A node votes only for clients that
agree with its charter, and a client with which the nodes do not agree takes no locks.

The first client records its charter before any node votes, on all nodes if it can, and continues only if none of them
has recorded another one meanwhile. So of several configurations that have a node in common at most one is founded.

The same node may have several addresses (localhost, a proxy). So a charter also lists the ids of the data of its nodes,
and says which of them the node is that has recorded it. A client's node belongs to them if it has one of their labels,
says that it is one of them, or has one of the listed ids. A node that has lost its data keeps only its label.

If several clients begin at once, all of them record their charter first on the node with the smallest id. So one
charter is first. Every client that finds it there can record it on the other nodes, even if its author is gone.

While the nodes are being changed, a charter holds two sets, the current and the next one. Every quorum of one overlaps
with every quorum of the other, so clients with either of them may take locks. A charter with a higher epoch replaces an
older one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from urllib.parse import quote, unquote

from .quorum import majority, minority

LARGEST_EPOCH = 2**53
"""The limit of what the nodes' scripts can count."""

SETS = 2
"""How many sets of nodes a charter holds at most."""


@dataclass(frozen=True, slots=True)
class NodeSet:
    """One client's configuration, as far as all clients of a namespace must agree on it."""

    quorum: int
    labels: tuple[str, ...]
    """The nodes, as the client's messages name them. Another client may reach them at other addresses."""

    @property
    def size(self) -> int:
        """How many nodes there are."""
        return len(self.labels)

    @property
    def counts(self) -> str:
        """The quorum and the number of nodes, by which sets differ that may be used at the same time."""
        return f"{self.quorum}/{self.size}"

    def __str__(self) -> str:
        return f"quorum={self.quorum} of {self.size} nodes ({', '.join(self.labels)})"

    def overlaps(self, other: NodeSet) -> bool:
        """Whether every quorum of this set has a node in common with every quorum of the other one."""
        return self.quorum + other.quorum > len({*self.labels, *other.labels})


NAMED = "redlock:"
"""The beginning of the name of a client's connections. Then follow the owner, `#`, and the counts of its node set."""


def connection_name(owner: str, own: NodeSet) -> str:
    """Return the name that `CLIENT LIST` shows for a client's connections."""
    return NAMED + "".join(c if "!" <= c <= "~" else "_" for c in owner) + "#" + own.counts


@dataclass(frozen=True, slots=True)
class Charter:
    """What a node has recorded."""

    epoch: int
    sets: tuple[NodeSet, ...]
    """The sets with which clients may take locks: one, or while the nodes are being changed two."""
    place: str = field(default="", compare=False)
    """Which of these nodes the one is that has recorded it, by its label there; empty if that is not known."""
    ids: tuple[str, ...] = field(default=(), compare=False)
    """The ids of the data of the first set's nodes when it was written, in their order; `-` where that was unknown."""

    def __str__(self) -> str:
        return " or ".join(map(str, self.sets))

    def encode(self) -> str:
        """Return it as the text that nodes store."""
        sets = " | ".join(" ".join([str(each.quorum), *map(quote, each.labels)]) for each in self.sets)
        place = f"@ {quote(self.place)}" if self.place else ""
        ids = " ".join(("#", *map(quote, self.ids))) if self.ids else ""
        return " ".join(filter(None, (str(self.epoch), sets, ids, place)))

    @classmethod
    def decode(cls, text: str) -> Charter:
        """Parse such a text; raise ValueError if it is malformed."""
        text, _, place = text.partition(" @ ")
        text, _, ids = text.partition(" # ")
        epoch, _, rest = text.partition(" ")
        sets = []
        for each in rest.split(" | "):
            quorum, *labels = each.split(" ")
            sets.append(NodeSet(int(quorum), tuple(map(unquote, labels))))
        charter = cls(int(epoch), tuple(sets), unquote(place), tuple(map(unquote, ids.split())))
        if not 0 <= charter.epoch < LARGEST_EPOCH or len(sets) > SETS:
            raise ValueError("not a charter")
        if not all(majority(each.size) <= each.quorum <= each.size for each in sets):
            raise ValueError("not a quorum")
        return charter


@dataclass(frozen=True, slots=True)
class Agreement:
    """How a client's configuration compares with what its nodes have recorded."""

    nodes: tuple[bool, ...]
    """For each node, whether it has recorded nothing else."""
    conflict: Charter | None
    """The charter by which this client must take no locks."""
    proposal: Charter | None
    """What to record on nodes that have no charter, or an older one; None if that is not clear."""
    shared: bool
    """Whether more nodes than may be wrong have recorded the proposal, so that all other nodes should."""
    places: Mapping[int, str]
    """For each node that is known to be one of the recorded ones, its label there."""

    def lacking(self, index: int, stored: Charter | None) -> Charter | None:
        """Return the charter that a node should record; None if it has it, or if that is not clear."""
        proposal = self.proposal
        if proposal is None or (stored is not None and stored.epoch >= proposal.epoch):
            return None
        return replace(proposal, place=self.places.get(index, ""))


def compare(
    own: NodeSet,
    charters: Sequence[Charter | None],
    *,
    ids: Sequence[str | None],
    voted: int,
    places: Mapping[int, str] | None = None,
) -> Agreement:
    """Compare a client's configuration with the charters of its nodes; None stands for one that has none.

    - `ids`: the id of each node's data; None if its record is not known.
    - `voted`: the nodes that have voted, as a bit mask.
    - `places`: the labels that nodes had in the recorded set before. A node that then loses its data is still the same.
    """
    known = dict(places or {})
    listed = {
        each: label
        for charter in charters
        if charter is not None
        for each, label in zip(charter.ids, charter.sets[0].labels, strict=False)
    }
    agrees: dict[Charter, bool] = {}
    for charter in dict.fromkeys(charters):
        if charter is not None:
            found = [_places(own, each, charters, ids, listed, known) for each in charter.sets]
            agrees[charter] = any(each is not None for each in found)
            for each in found:
                known.update(each or {})
    ours = [charter for charter in charters if charter is not None and agrees[charter]]
    others = [charter for charter in charters if charter is not None and not agrees[charter]]
    # One node may be wrong, so most decide. In a tie, others came first: what this client records comes after.
    founded = sum(charter is not None and agrees[charter] and voted >> at & 1 for at, charter in enumerate(charters))
    conflict = Counter(others).most_common(1)[0][0] if others and len(others) >= founded else None
    shared = [charter for charter in set(ours) if ours.count(charter) > minority(own.size)]
    proposal = max(shared, key=lambda charter: charter.epoch, default=None)
    if not ours:
        proposal = Charter(0, (own,), ids=tuple(each or "-" for each in ids))
        known = dict(enumerate(own.labels))
    elif not shared and len({*ours}) == 1 and not ours[0].epoch:
        proposal = ours[0]  # somebody has begun to record it
    return Agreement(
        nodes=tuple(charter is None or agrees[charter] for charter in charters),
        conflict=conflict,
        proposal=None if conflict is not None else proposal,
        shared=bool(shared),
        places=known,
    )


def _places(
    own: NodeSet,
    other: NodeSet,
    charters: Sequence[Charter | None],
    ids: Sequence[str | None],
    listed: Mapping[str, str],
    known: Mapping[int, str],
) -> dict[int, str] | None:
    """Return the labels that a client's nodes have in another set; None if it is not the same set.

    - `ids`: the id of each node's data; `listed`: the labels that charters give to ids.
    - `known`: the labels that the client's nodes had before.
    """
    if own.quorum != other.quorum or own.size != other.size:
        return None
    labelled = {index: label for index, label in enumerate(own.labels) if label in other.labels}
    places = dict(labelled)
    for index, charter in enumerate(charters):
        says = (known.get(index), None if charter is None else charter.place, listed.get(ids[index] or ""))
        place = next((label for label in says if label in other.labels), None)
        if index not in places and place is not None and place not in places.values():
            places[index] = place
    strangers = [index for index in range(own.size) if ids[index] is not None and index not in places]
    # If no address is the same, nodes that have lost their data cannot be told from strangers.
    if len(strangers) > (0 if labelled else minority(own.size)):
        return None
    left = [label for label in other.labels if label not in places.values()]
    if len(strangers) == len(left) == 1:
        places[strangers[0]] = left[0]
    return places
