"""Which of a client's nodes may vote: it reads what they have recorded, decides, and has them record the outcome."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextvars import Context
from dataclasses import replace
from random import Random

from redlock_async._rules.charter import Charter, NodeSet, compare
from redlock_async._rules.fencing import highest_credible
from redlock_async._rules.quorum import minority
from redlock_async._rules.settings import Settings, is_suspicious_ttl
from redlock_async._rules.slot_map import shared
from redlock_async._rules.voting import (
    FAILOVER_GRACE,
    Ballot,
    Heard,
    Origin,
    Record,
    Standing,
    Why,
    ballots,
    with_moved,
)
from redlock_async.errors import ConfigurationError, NodeNeedsOthers, NodeRefused
from redlock_async.events import Events, logger

from .broadcast import UNNOTED, NodeGroup
from .commands import Call
from .node import Node, State

READ = b"read"


class Electorate:
    """Decides which nodes may vote."""

    def __init__(
        self,
        places: Sequence[str],
        quorum: int,
        settings: Settings,
        events: Events,
        now: Callable[[], float],
        random: Random,
        *,
        on_node_up: Callable[[], None],
    ) -> None:
        self._groups: Sequence[NodeGroup] = ()
        """The nodes that vote together; several if nodes are clusters, for different slots."""
        self._nodes: Sequence[Node] = ()
        """All nodes, of clusters all shards."""
        self._complete = True
        """Whether all shards are known."""
        self._quorum = quorum
        self.configured = NodeSet(quorum, tuple(places))
        self._agreement = compare(self.configured, [None] * len(places), heard=0, voted=0)
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
        self._quarantined: set[Node] = set()
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

    def regroup(self, groups: Sequence[NodeGroup], nodes: Sequence[Node], *, complete: bool) -> None:
        """Note which nodes vote together, and all nodes; `complete` if the shards of all clusters are known."""
        self._groups, self._nodes, self._complete = groups, nodes, complete

    # Commands

    def command(self, node: Node) -> Call:
        """Return the command that reads a node's record, and creates it if the client takes locks."""
        return self._command(node, "" if self.joined else READ)

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
        return Call("node_record", 1, node.keys.record, *arguments, *others)

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
        records = {node: node.record.at(now) for node in self._nodes}
        self._compare_charters()
        decided = self._ballots(records)
        if self._may_meet_others(records.values()):
            decided = {
                node: Ballot(math.inf, Why.UNHEARD) if ballot.counts else ballot for node, ballot in decided.items()
            }
        founding = self._founding(records.values())
        self.founding = all(record is not None and record.id for record in records.values()) and (
            bool(founding)
            or any(record is not None and record.origin is Origin.FOUNDING for record in records.values())
        )
        known = [(node, record, decided[node]) for node, record in records.items() if record is not None]
        moved = self._judge_moves(records, decided)
        if self.joined and self.conflict is None:
            self._vouch_for_moves(records, decided)
        self._schedule([*decided.values(), *moved])
        if self.conflict is None:
            self._note_standings(records, decided)
        if self.joined and self.conflict is None:
            for node, record, ballot in known:
                self._update(node, record, ballot, records, founding)
        for node, record, ballot in known:
            self._apply(node, record, ballot, founding=bool(founding))

    def _ballots(self, records: Mapping[Node, Record | None]) -> dict[Node, Ballot]:
        """Return for each node whether it may vote: a shard, if it may in all groups that it belongs to."""
        decided: dict[Node, Ballot] = {}
        of_moved: dict[Node, Ballot] = {}
        for group in self._groups:
            votes = self._decide([None if self._taken_for(node) else records.get(node) for node in group])
            for node, ballot in zip(group, votes, strict=True):
                if node.index in group.moves:
                    of_moved[node] = ballot
                elif node not in decided or (not ballot.counts and ballot.seconds >= decided[node].seconds):
                    decided[node] = ballot
        return {node: decided.get(node) or of_moved.get(node) or Ballot(math.inf, Why.UNKNOWN_AGE) for node in records}

    def _decide(self, records: Sequence[Record | None]) -> list[Ballot]:
        return ballots(
            records, self._quorum, self.longest_ttl,
            trusted=self._standings.keys(), strict=self._strict, drift=self._drift,
        )  # fmt: skip

    def _judge_moves(self, records: Mapping[Node, Record | None], decided: Mapping[Node, Ballot]) -> list[Ballot]:
        """Decide which nodes vote for slots that came from another shard; return the ballots that hold them back."""
        against: list[Ballot] = []
        for group in self._groups:
            held_back: dict[int, Exception] = {}
            for index, move in group.moves.items():
                record = records.get(group[index])
                if record is None or not decided[group[index]].counts:
                    continue  # it does not vote for any slot
                if move is UNNOTED:
                    held_back[index] = NodeRefused("it is being asked since when it has the slot")
                    continue
                others = [records.get(node) for node in group]
                now = next((each for each in record.arrived if each.since == move.since), move)
                ballot = self._decide(with_moved(others, index, now))[index]
                if not ballot.counts:
                    against.append(ballot)
                    wait = f"in {ballot.seconds:.1f} s" if ballot.seconds < math.inf else "when other nodes answer"
                    held_back[index] = NodeRefused(
                        "the slot came from another shard, which may have lost some of its data before: "
                        f"this shard votes for it {wait}"
                    )
            group.hold_back(held_back)
        return against

    def _vouch_for_moves(self, records: Mapping[Node, Record | None], decided: Mapping[Node, Ballot]) -> None:
        """Have shards record of which slots that came to them no data was lost.

        So it is if all shards of the cluster vote, and one of them says that it had the slots.
        """
        for node, record in records.items():
            if record is None or not record.arrived:
                continue
            shards = [each for each in records if each.index == node.index]
            if not all(decided[each].counts and records[each] is not None for each in shards):
                continue
            left = [move for each in shards if (other := records[each]) is not None for move in other.left]
            common = {move.since: shared([move.slots], [each.slots for each in left]) for move in record.arrived}
            if kept := " ".join(f"{since}:{slots}" for since, slots in common.items() if slots):
                node.record.record(("kept", kept), self._command(node, "kept", kept))

    def _taken_for(self, node: Node) -> Node | None:
        """Return the other node that this one says it is, because its data was copied from there.

        If they have exchanged their addresses, the other one has another id. Until that is known, this one cannot vote.
        """
        record = node.record.last
        place = record.charter.place if record is not None and record.charter is not None else ""
        if record is None or place == node.place:
            return None
        others = (each for each in self._nodes if each.place == place)
        return next((each for each in others if each.record.last is None or each.record.last.id == record.id), None)

    def _compare_charters(self) -> None:
        """Compare this client's configuration with the one that the nodes remember."""
        own = self.configured
        records: list[list[Record]] = [[] for _ in own.labels]
        for node in self._nodes:
            if node.record.last is not None:
                records[node.index].append(node.record.last)
        self._agreement = compare(
            own,
            [_charter(each) for each in records],
            heard=sum(1 << index for index, each in enumerate(records) if each),
            voted=sum(1 << index for index, each in enumerate(records) if any(record.has_voted for record in each)),
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

    def _may_meet_others(self, records: Collection[Record | None]) -> bool:
        """Whether nodes that have not answered yet may remember clients with another configuration.

        No other node does, so this client would be the first: it waits until it has tried to reach all nodes.
        """
        alone = not any(record is not None and (record.is_used or record.charter is not None) for record in records)
        connecting = not self._complete or any(node.state is State.CONNECTING for node in self._nodes)
        return self.joined and alone and connecting

    def _founding(self, records: Collection[Record | None]) -> str:
        """Return the ids to found the cluster with, or an empty text if it cannot be founded."""
        known = [record for record in records if record is not None and record.id]
        ids = tuple(sorted({record.id for record in known}))
        if not self.joined or not self._complete or len(known) < len(records) or len(ids) < len(records):
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
            if node in self._quarantined:
                self._quarantined.discard(node)
                if node.ready:  # otherwise `node_up` is reported when it reconnects
                    self._events.emit("node_votes_again", node=node.label)
        elif ballot.counts:
            node.record.quarantine(NodeRefused("it records that it votes"))
        else:
            error = self._refusal(node, record, ballot)
            node.record.quarantine(error)
            # Replies that are still under way can change the reason and the time.
            is_read = not any(each.ready and (each.record.updating or each.record.outdated) for each in self._nodes)
            other = self._taken_for(node)
            is_final = is_read and not self.founding and (other is None or other.ready)
            if self._reports and is_final and node not in self._quarantined:
                self._quarantined.add(node)
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

    def _note_standings(self, records: Mapping[Node, Record | None], decided: Mapping[Node, Ballot]) -> None:
        """Note the ids that may vote, for this client and for what it tells the nodes."""
        wrong = minority(self.configured.size)
        for node, record in records.items():
            if record is None or not decided[node].counts or self._standings.get(record.id) is Standing.ADMITTED:
                continue
            group = next(group for group in self._groups if node in group)
            others = [records.get(each) for each in group]
            words = [heard.standing for each in others if each and (heard := each.heard.get(record.id)) is not None]
            admitted = words.count(Standing.ADMITTED) > wrong
            founder = len(words) - words.count(Standing.KNOWN) > wrong
            self._standings[record.id] = Standing.FOUNDER if founder and not admitted else Standing.ADMITTED

    def _update(
        self, node: Node, record: Record, ballot: Ballot, records: Mapping[Node, Record | None], founding: str
    ) -> None:
        """Have the node record what it lacks."""
        origin = self._origin(node, record, ballot, records, founding)
        if origin == "copied":
            founding = record.id
        others: list[str] = []
        for each in map(records.get, self._mates(node)):
            if each is None or not each.id:
                continue
            standing = Standing.FOUNDER if origin == "founded" else self._standings.get(each.id, Standing.KNOWN)
            if _lacks(record.heard.get(each.id), standing):
                others += (each.id, standing.value)
        lacks_ttl = record.longest_ttl * 1000 < round(self.longest_ttl * 1000)
        records_it = origin != "" or self._agreement.shared or (ballot.counts and record.has_voted)
        lacking = self._agreement.lacking(node.index, record.charter) if records_it else None
        if origin == "moved" and record.charter is not None:
            lacking = replace(record.charter, place=node.place)
        charter = lacking.encode() if lacking is not None else ""
        if origin or others or lacks_ttl or charter or not record.id:
            what = (origin, founding, self.longest_ttl, charter, *others)
            node.record.record(what, self._command(node, origin, founding, charter, others))

    def _origin(
        self, node: Node, record: Record, ballot: Ballot, records: Mapping[Node, Record | None], founding: str
    ) -> str:
        """Return what the node should record about how it came to vote; empty if nothing."""
        if (other := self._taken_for(node)) is not None:
            return "" if records[other] is None else "copied"
        if self._has_moved(record, node):
            return "moved"
        if not founding:
            return "joined" if ballot.counts and not record.has_voted else ""
        ids = tuple(founding.split())
        # It is founded when all nodes have agreed.
        if not record.has_voted and all_agreed(records.values(), ids):
            return "founded"
        return "founding" if record.founding != ids else ""

    def _has_moved(self, record: Record, node: Node) -> bool:
        """Whether it and another node say of themselves that they are each other."""
        if record.charter is None or record.charter.place == node.place:
            return False
        others = (each.record.last for each in self._nodes if each.place == record.charter.place)
        return any(
            other is not None and other.charter is not None and other.charter.place == node.place for other in others
        )

    def _mates(self, node: Node) -> Iterable[Node]:
        """Return the nodes that vote together with this one, itself among them."""
        return dict.fromkeys(each for group in self._groups if node in group for each in group)

    # Other questions

    def highest_credible(self) -> int:
        """Return the largest fencing token or ticket that is accepted from a single node."""
        now = self._now()
        clocks = [
            clock + now - read_at for node in self._nodes if node.record.clock for clock, read_at in [node.record.clock]
        ]
        return highest_credible(clocks, minority(self.configured.size))

    def close(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()


def _charter(records: Sequence[Record]) -> Charter | None:
    """Return the latest charter that the shards of one node have recorded."""
    charters = (record.charter for record in records if record.charter is not None)
    return max(charters, key=lambda charter: charter.epoch, default=None)


def all_agreed(records: Iterable[Record | None], ids: tuple[str, ...]) -> bool:
    """Whether every node agrees to found the cluster with these ids."""
    return all(record is not None and record.founding == ids for record in records)


def _lacks(heard: Heard | None, standing: Standing) -> bool:
    """Whether a node must still record an id, or its standing."""
    order = (Standing.KNOWN, Standing.FOUNDER, Standing.ADMITTED)
    return heard is None or order.index(heard.standing) < order.index(standing)
