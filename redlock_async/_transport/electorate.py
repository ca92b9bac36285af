"""Which of a client's nodes may vote: it reads what they have recorded, decides, and has them record the outcome."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from contextvars import Context
from dataclasses import replace
from random import Random

from redlock_async._rules.charter import NodeSet, compare
from redlock_async._rules.fencing import highest_credible
from redlock_async._rules.keys import Keys
from redlock_async._rules.quorum import minority
from redlock_async._rules.settings import Settings, is_suspicious_ttl
from redlock_async._rules.voting import FAILOVER_GRACE, Ballot, Heard, Origin, Record, Standing, Why, ballots
from redlock_async.errors import ConfigurationError, NodeNeedsOthers, NodeRefused
from redlock_async.events import Events, logger

from .broadcast import NodeGroup
from .commands import Call
from .node import Node, State

READ = b"read"


class Electorate:
    """Decides which nodes may vote."""

    def __init__(
        self,
        nodes: NodeGroup,
        quorum: int,
        settings: Settings,
        keys: Keys,
        events: Events,
        now: Callable[[], float],
        random: Random,
        *,
        on_node_up: Callable[[], None],
    ) -> None:
        self._nodes = nodes
        self._quorum = quorum
        self._key = keys.record
        self.configured = NodeSet(quorum, tuple(node.label for node in nodes))
        self._agreement = compare(self.configured, [None] * len(nodes), ids=[None] * len(nodes), voted=0)
        self.conflict: ConfigurationError | None = None
        """Why this client must take no locks, if the nodes remember another configuration."""
        self._strict = settings.strict_restart
        self._drift = settings.drift_factor
        self._events = events
        self._now = now
        self._random = random
        self._on_node_up = on_node_up
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._quarantined = 0
        self._standings: dict[str, Standing] = {}
        """The ids that were fit to vote for this client, and what to tell the nodes about them."""
        self.longest_ttl = settings.options.ttl
        """The longest lease this client has asked for."""
        self.joined = False
        """Whether this client takes locks. Before that it only reads, and leaves no trace on the nodes."""
        self.founding = False
        """Whether the cluster is being founded, by this client or by others too."""
        self._reports = False
        """Whether startup is over, so that a node that may not vote is worth an event."""
        self._warn_of_long_ttl()

    # Commands

    def command(self, index: int) -> Call:
        """Return the command that reads a node's record, and creates it if the client takes locks."""
        return self._command(self._nodes[index], "" if self.joined else READ)

    def _command(
        self, node: Node, origin: str | bytes, founding: str = "", charter: str = "", others: Sequence[str] = (),
        stepped: str = "",
    ) -> Call:  # fmt: skip
        identity = node.identity
        run_id, replicated, durable = "", 0, 0
        if identity is not None:
            run_id, replicated, durable = identity.run_id or "", int(identity.replicated), int(identity.durable)
        grace, longest = round(FAILOVER_GRACE * 1000), round(self.longest_ttl * 1000)
        fresh = f"{self._random.getrandbits(64):016x}"
        arguments = (origin, run_id, replicated, durable, grace, fresh, longest, founding, charter, stepped)
        return Call("node_record", 1, self._key, *arguments, *others)

    def use_ttl(self, ttl: float) -> None:
        """Announce a ttl before its first lease: a node that loses its data must stay quarantined for as long."""
        self.longest_ttl = ttl
        self._warn_of_long_ttl()
        self.reassess()

    def _warn_of_long_ttl(self) -> None:
        if is_suspicious_ttl(self.longest_ttl):
            logger.warning(
                "redlock: a ttl of %g s is used: a node that restarts without its data cannot vote for that long. "
                "Durations are seconds. A held lease is renewed, so its ttl can be shorter than your block",
                self.longest_ttl,
            )

    def join(self) -> None:
        """Begin to take locks: from now on the nodes record what they need to know for that."""
        self.joined = True
        for node in self._nodes:
            node.record.join()
        self.reassess()

    def report(self) -> None:
        """Report from now on which nodes may not vote: startup is over."""
        self._reports = True
        self.reassess()

    def report_step(self, node: Node, record_id: str, seconds: float) -> None:
        """Have a node record that its clock was stepped, unless its data has got another id since.

        A clock that was stepped may have ended leases early, so the data gets a new id as if it were lost.
        """
        command = self._command(node, "", stepped=f"{record_id} {round(seconds * 1000)}")
        node.record.record((record_id,), command)

    # The decision

    def reassess(self) -> None:
        """Decide again which nodes may vote, and have them record what they lack."""
        now = self._now()
        records = [node.record.at(now) for node in self._nodes]
        decided = ballots(
            [None if self._taken_for(node) else record for node, record in zip(self._nodes, records, strict=True)],
            self._quorum, self.longest_ttl,
            trusted=self._standings.keys(), strict=self._strict, drift=self._drift,
        )  # fmt: skip
        self._compare_charters()
        if self._may_meet_others(records):
            decided = [Ballot(math.inf, Why.UNHEARD) if ballot.counts else ballot for ballot in decided]
        founding = self._founding(records)
        self.founding = all(record is not None and record.id for record in records) and (
            bool(founding) or any(record is not None and record.origin is Origin.FOUNDING for record in records)
        )
        known = [
            (node, record, ballot)
            for node, record, ballot in zip(self._nodes, records, decided, strict=True)
            if record is not None
        ]
        self._schedule(decided)
        if self.conflict is None:
            self._note_standings(records, decided)
        if self.joined and self.conflict is None:
            recorders = self._recorders(known)
            for node, record, ballot in known:
                self._update(node, record, ballot, records, founding, may_found=node in recorders)
        for node, record, ballot in known:
            self._apply(node, record, ballot, founding=bool(founding))

    def _taken_for(self, node: Node) -> Node | None:
        """Return the other node that this one says it is, because its data was copied from there.

        If they have exchanged their addresses, the other one has another id. Until that is known, this one cannot vote.
        """
        record = node.record.last
        place = record.charter.place if record is not None and record.charter is not None else ""
        other = next((each for each in self._nodes if each.label == place), node)
        if record is None or other is node:
            return None
        return None if other.record.last is not None and other.record.last.id != record.id else other

    def _compare_charters(self) -> None:
        """Compare this client's configuration with the one that the nodes remember."""
        own = self.configured
        records = [node.record.last for node in self._nodes]
        charters = [None if record is None else record.charter for record in records]
        self._agreement = compare(
            own,
            charters,
            ids=[None if record is None else record.id for record in records],
            voted=sum(
                node.bit
                for node, record in zip(self._nodes, records, strict=True)
                if record is not None and record.has_voted
            ),
            places=self._agreement.places,
        )
        self.conflict = None
        if (other := self._agreement.conflict) is not None:
            same_nodes = any({*own.labels} == {*each.labels} for each in other.sets)
            why = "all clients of a namespace need the same quorum" if same_nodes else "their quorums might not overlap"
            self.conflict = ConfigurationError(
                f"this client is configured with {own}, but its nodes are in use with {other}: {why}. "
                "Configure all clients alike; `redlock-async nodes` shows and changes what the nodes remember"
            )

    def _may_meet_others(self, records: Sequence[Record | None]) -> bool:
        """Whether nodes that have not answered yet may remember clients with another configuration.

        No other node does, so this client would be the first: it waits until it has tried to reach all nodes.
        """
        alone = not any(record is not None and (record.is_used or record.charter is not None) for record in records)
        return self.joined and alone and any(node.state is State.CONNECTING for node in self._nodes)

    def _founding(self, records: Sequence[Record | None]) -> str:
        """Return the ids to found the cluster with, or an empty text if it cannot be founded."""
        known = [record for record in records if record is not None and record.id]
        ids = tuple(sorted({record.id for record in known}))
        if not self.joined or len(known) < len(records) or len(ids) < len(records):
            return ""
        # Once all have agreed, a client may have told some of them so.
        joined = any(record.origin is Origin.JOINED for record in known)
        if any(record.is_used for record in known) and (joined or not all_agreed(records, ids)):
            return ""
        return "" if all(record.origin is Origin.FOUNDED for record in known) else " ".join(ids)

    def _apply(self, node: Node, record: Record, ballot: Ballot, *, founding: bool) -> None:
        """Count the node's votes, or do not; report a change."""
        if self.joined and not (self.conflict is None and self._agreement.nodes[node.index]):
            node.record.quarantine(NodeRefused("its other clients have other nodes or another quorum"))
        elif (
            not self.joined
            and not record.is_used
            and not any(other is not None and other.is_used for other in (each.record.last for each in self._nodes))
        ):
            node.record.quarantine(None)  # nothing has been locked yet: the first client that does founds the cluster
        elif founding and not (ballot.counts and record.has_voted):
            node.record.quarantine(NodeRefused("the cluster is being set up"))
        elif ballot.counts and (record.has_voted or not self.joined):
            node.record.quarantine(None)
            if self._quarantined & node.bit:
                self._quarantined &= ~node.bit
                if node.ready:  # otherwise `node_up` is reported when it reconnects
                    self._events.emit("node_votes_again", node=node.label)
        elif ballot.counts:
            node.record.quarantine(NodeRefused("it records that it votes"))
        else:
            error = self._refusal(node, record, ballot)
            node.record.quarantine(error)
            other = self._taken_for(node)
            is_final = not self.is_unsettled and (other is None or other.ready)
            if self._reports and is_final and not self._quarantined & node.bit:
                self._quarantined |= node.bit
                seconds = ballot.seconds if ballot.seconds < math.inf else None
                self._events.emit("node_quarantined", node=node.label, seconds=seconds, error=error)

    def _refusal(self, node: Node, record: Record, ballot: Ballot) -> NodeRefused:
        if (other := self._taken_for(node)) is not None:
            return NodeRefused(
                f"its data is that of {other.label}, or a copy; it does not vote until both have answered"
            )
        if not record.id:
            return NodeRefused("it has no data: it votes when clients that lock have known it for the longest ttl")
        if ballot.why is Why.UNHEARD:
            return NodeNeedsOthers("no client has taken a lock yet, and other nodes have not answered")
        if ballot.why is Why.UNKNOWN_AGE:
            return NodeNeedsOthers("too few nodes answer to tell how old its data is")
        what = "it restarted without its data"
        if record.stepped is not None:
            what = f"its clock was stepped by {record.stepped:+.3g} s"
        elif record.grace:
            what = "another server answers at its address (a replica was promoted?)"
        if ballot.why is Why.UNKNOWN_TTL:
            return NodeRefused(
                f"{what}, and too few other nodes that kept theirs can be asked for the longest ttl in use: "
                f"it votes again when they can, or in {ballot.seconds:.0f} s"
            )
        if record.stepped is None and not record.grace and ballot.why is Why.NEW_CLUSTER:
            what = "the cluster is new, or a majority of it lost its data"
        return NodeRefused(
            f"{what}: it votes again in {ballot.seconds:.1f} s, when every lease it may have forgotten has expired; "
            f"the longest ttl in use is {ballot.longest_ttl:g} s"
        )

    def _schedule(self, decided: Sequence[Ballot]) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if waiting := [ballot.seconds for ballot in decided if 0 < ballot.seconds < math.inf]:
            self._timer = self._loop.call_later(min(waiting) + 0.001, self._on_quarantine_over, context=Context())

    def _on_quarantine_over(self) -> None:
        self._timer = None
        self.reassess()
        self._on_node_up()

    # Records

    def _note_standings(self, records: Sequence[Record | None], decided: Sequence[Ballot]) -> None:
        """Note the ids that may vote, for this client and for what it tells the nodes."""
        wrong = minority(len(records))
        for record, ballot in zip(records, decided, strict=True):
            if record is None or not ballot.counts or self._standings.get(record.id) is Standing.ADMITTED:
                continue
            words = [heard.standing for each in records if each and (heard := each.heard.get(record.id)) is not None]
            admitted = words.count(Standing.ADMITTED) > wrong
            founder = len(words) - words.count(Standing.KNOWN) > wrong
            self._standings[record.id] = Standing.FOUNDER if founder and not admitted else Standing.ADMITTED

    def _recorders(self, known: Sequence[tuple[Node, Record, Ballot]]) -> list[Node]:
        """Return the nodes that may record this client's configuration: one, until that has recorded it.

        All clients of the same nodes choose the same one, even if they reach them at other addresses. So only one of
        them records its own addresses.
        """
        if any(record.charter is not None for _, record, _ in known):
            return [node for node, _, _ in known]
        if any(node.state is State.CONNECTING for node in self._nodes):
            return []
        first = min((record.id for _, record, _ in known if record.id), default=None)
        return [node for node, record, _ in known if record.id == first]

    def _update(
        self, node: Node, record: Record, ballot: Ballot, records: Sequence[Record | None], founding: str,
        *, may_found: bool,
    ) -> None:  # fmt: skip
        """Have the node record what it lacks; with `may_found`, also this client's configuration."""
        origin = self._origin(node, record, ballot, records, founding)
        if origin == "founding" and not may_found:
            origin = ""
        if origin == "copied":
            founding = record.id
        others: list[str] = []
        for each in records:
            if each is None or not each.id:
                continue
            standing = Standing.FOUNDER if origin == "founded" else self._standings.get(each.id, Standing.KNOWN)
            if _lacks(record.heard.get(each.id), standing):
                others += (each.id, standing.value)
        lacks_ttl = record.longest_ttl * 1000 < round(self.longest_ttl * 1000)
        records_it = origin != "" or self._agreement.shared or (ballot.counts and record.has_voted)
        lacking = self._agreement.lacking(node.index, record.charter) if records_it and may_found else None
        if origin == "moved" and record.charter is not None:
            lacking = replace(record.charter, place=node.label)
        charter = lacking.encode() if lacking is not None else ""
        if origin or others or lacks_ttl or charter or not record.id:
            what = (origin, founding, self.longest_ttl, charter, *others)
            node.record.record(what, self._command(node, origin, founding, charter, others))

    def _origin(
        self, node: Node, record: Record, ballot: Ballot, records: Sequence[Record | None], founding: str
    ) -> str:
        """Return what the node should record about how it came to vote; empty if nothing."""
        if (other := self._taken_for(node)) is not None:
            return "" if records[other.index] is None else "copied"
        if self._has_moved(record, node, records):
            return "moved"
        if not founding:
            return "joined" if ballot.counts and not record.has_voted else ""
        ids = tuple(founding.split())
        # It is founded when all nodes have agreed.
        if not record.has_voted and all_agreed(records, ids):
            return "founded"
        return "founding" if record.founding != ids else ""

    def _has_moved(self, record: Record, node: Node, records: Sequence[Record | None]) -> bool:
        """Whether it and another node say of themselves that they are each other."""
        labels = self.configured.labels
        said = [each.charter.place if each is not None and each.charter is not None else "" for each in records]
        return any(
            index != node.index and record.charter is not None and record.charter.place == labels[index]
            for index, place in enumerate(said)
            if place == node.label
        )

    # Other questions

    @property
    def is_unsettled(self) -> bool:
        """Whether the next replies of the nodes may change which of them vote."""
        return self.founding or any(
            node.state is State.CONNECTING or (node.ready and node.record.unread) for node in self._nodes
        )

    def highest_credible(self) -> int:
        """Return the largest fencing token or ticket that is accepted from a single node."""
        now = self._now()
        clocks = [
            clock + now - read_at for node in self._nodes if node.record.clock for clock, read_at in [node.record.clock]
        ]
        return highest_credible(clocks, minority(len(self._nodes)))

    def close(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()


def all_agreed(records: Sequence[Record | None], ids: tuple[str, ...]) -> bool:
    """Whether every node agrees to found the cluster with these ids."""
    return all(record is not None and record.founding == ids for record in records)


def _lacks(heard: Heard | None, standing: Standing) -> bool:
    """Whether a node must still record an id, or its standing."""
    order = (Standing.KNOWN, Standing.FOUNDER, Standing.ADMITTED)
    return heard is None or order.index(heard.standing) < order.index(standing)
