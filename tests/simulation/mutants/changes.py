"""Mutants of the rules by which operators change the set of nodes."""

import math
from dataclasses import replace
from unittest.mock import patch

from framework.breaking import mutant, rewritten

from redlock_async import _transport
from redlock_async._admin.node_sets import NodeSets, Records
from redlock_async._rules import charter
from redlock_async._rules.charter import Charter, NodeSet
from redlock_async._rules.quorum import minority


@mutant("node sets")
def operators_do_not_claim_a_change():
    """A change begins at once, also if another operator begins another one at the same time."""

    async def begin(self, found, current, following):
        both = Charter(found.latest + 1, (current, following))
        return await self.record(found, both, (current, following))

    with patch.object(Records, "begin", begin):
        yield


@mutant("node sets")
def operators_replace_what_they_have_not_read():
    """A node records what an operator sends, also if another one has changed it meanwhile."""
    with rewritten("node_charter", ("and epoch(before) == ARGV[2]", "")):
        yield


@mutant("node sets")
def the_next_change_does_not_wait():
    """A change begins while leases of clients with an earlier set are valid."""
    with patch.object(NodeSets, "wait", 0.0):
        yield


@mutant("node sets")
def the_wait_counts_from_the_first_nodes():
    """The wait counts from when a minority had recorded the last step; a quorum may have recorded it later."""

    real = NodeSets.wait.fget

    def wait(self):
        if not math.isfinite(right := real(self)) or not right:
            return right
        ages = sorted((node.age for node in self.nodes if node.charter == self.charter), reverse=True)
        longest = max(node.longest_ttl for node in self.nodes)
        return max(longest * 1.02 - ages[minority(self.charter.sets[0].size)], 0.0)

    with patch.object(NodeSets, "wait", property(wait)):
        yield


@mutant("node sets")
def the_step_with_both_sets_is_skipped():
    """The old set is refused as soon as a change begins."""

    real = Records.record

    async def record(self, found, recorded, sets, **options):
        return await real(self, found, replace(recorded, sets=recorded.sets[-1:]), sets, **options)

    with patch.object(Records, "record", record):
        yield


@mutant("node sets")
def sets_need_not_overlap():
    """A change to any set may begin."""
    with patch.object(NodeSet, "overlaps", lambda *_: True):
        yield


@mutant("node sets")
def finish_does_not_look_for_old_clients():
    """A change ends although clients use the old set."""
    with patch.object(NodeSets, "of_old_set", lambda _self: set()):
        yield


@mutant("node sets")
def one_node_is_enough_for_a_step():
    """A step succeeds when any node has recorded it."""
    real = Records.record

    async def record(self, found, recorded, _sets, **options):
        return await real(self, found, recorded, (), **options)

    with patch.object(Records, "record", record):
        yield


@mutant("node sets")
def clients_that_were_stopped_stay_connected():
    """A client that was stopped while a change ended, and has not read that, still gets votes."""

    async def expel(*_):
        return None

    with patch.object(Records, "_expel", expel):
        yield


@mutant("node sets")
def clients_know_the_current_set_only():
    """Clients with the next set are refused until the change is ended."""
    real = charter.compare

    def compare(own, charters, **known):
        return real(own, [each and replace(each, sets=each.sets[:1]) for each in charters], **known)

    with patch.object(_transport.electorate, "compare", compare):
        yield
