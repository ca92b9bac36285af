"""Mutants of the rules about quorums and sets of nodes, on which all clients must agree."""

from dataclasses import replace
from unittest.mock import patch

from framework.breaking import mutant

from redlock_async import _transport
from redlock_async._rules import charter
from redlock_async._rules.quorum import majority
from redlock_async._rules.settings import Settings


@mutant("quorums")
def elections_ignore_a_larger_quorum():
    """A majority is enough, whatever the quorum."""
    with patch.object(Settings, "quorum_of", lambda _self, nodes: majority(nodes)):
        yield


def _comparing(change):
    """Replace the comparison with what the nodes remember; `change` gets the result of the real one."""
    real = _transport.electorate.compare
    return patch.object(
        _transport.electorate, "compare", lambda *arguments, **others: change(real(*arguments, **others))
    )


@mutant("other sets")
def other_configurations_are_let_in():
    """What the nodes remember of their clients is ignored."""
    with _comparing(lambda found: replace(found, conflict=None, nodes=(True,) * len(found.nodes))):
        yield


@mutant("other sets")
def only_the_number_of_nodes_is_compared():
    """As many nodes as before are taken for the same ones."""

    def places(own, other, *_):
        return dict(enumerate(own.labels)) if (own.quorum, own.size) == (other.quorum, other.size) else None

    with patch.object(charter, "_places", places):
        yield


@mutant("other sets")
def no_charter_is_recorded():
    """The nodes do not remember what their clients are configured with."""
    with patch.object(charter.Agreement, "lacking", lambda *_: None):
        yield


@mutant("other sets")
def the_first_client_does_not_ask_all_nodes():
    """It begins when a quorum of unused nodes has answered; another one may remember other clients."""
    with patch.object(_transport.electorate.Electorate, "_may_meet_others", lambda *_: False):
        yield


@mutant("founding together")
def a_charter_counts_before_the_node_votes():
    """A configuration is taken for the one in use as soon as some nodes have recorded it, while it is founded."""
    real = _transport.electorate.compare

    def counting(own, charters, *, ids, voted, **others):  # noqa: ARG001 - as in `compare`
        heard = sum(1 << index for index, each in enumerate(ids) if each is not None)
        return real(own, charters, ids=ids, voted=heard, **others)

    with patch.object(_transport.electorate, "compare", counting):
        yield


@mutant("other addresses")
def each_client_records_its_own_addresses():
    """Clients that begin at once record their charters on all nodes, each on those where it comes first."""
    electorate = _transport.electorate.Electorate
    with patch.object(electorate, "_recorders", lambda _self, known: [node for node, _, _ in known]):
        yield


@mutant("other addresses")
def a_charter_lists_no_ids():
    """Only a node that has recorded a charter says which of the nodes it is."""
    with _comparing(lambda found: replace(found, proposal=found.proposal and replace(found.proposal, ids=()))):
        yield


@mutant("other addresses")
def only_its_author_records_a_charter():
    """A client with other addresses waits until the one that wrote a charter has recorded it on most nodes."""
    real = _transport.electorate.compare

    def comparing(own, *arguments, **others):
        found = real(own, *arguments, **others)
        return found if found.shared or found.proposal == charter.Charter(0, (own,)) else replace(found, proposal=None)

    with patch.object(_transport.electorate, "compare", comparing):
        yield
