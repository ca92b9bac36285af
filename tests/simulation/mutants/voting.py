"""Mutants of the rule for which node may vote."""

from dataclasses import replace
from unittest.mock import patch

from framework.breaking import mutant, rewritten

from redlock_async import _transport
from redlock_async._rules import voting
from redlock_async._rules.voting import MAY_VOTE, Heard, Standing
from redlock_async._transport.electorate import Electorate


def _deciding(change):
    """Replace the decision of which nodes may vote; `change` gets the real one."""
    return patch.object(_transport.electorate, "ballots", change(_transport.electorate.ballots))


def _deciding_with(**changed):
    """Decide with other options."""
    return _deciding(lambda real: lambda *records, **options: real(*records, **{**options, **changed}))


@mutant("bare majority", "votes")
def no_restart_hold():
    """A node that lost its data votes immediately."""
    with _deciding(lambda _real: lambda records, *_, **__: [MAY_VOTE for _ in records]):
        yield


@mutant("bare majority")
def flush_is_not_noticed():
    """A node that was emptied while it ran keeps its vote."""

    def invalidated(self, node, keys):
        for key in (None,) if keys is None else keys:
            self._on_key_changed(node, key)

    with patch.object(_transport.membership.Membership, "invalidated", invalidated):
        yield


@mutant("bare majority", "votes")
def restart_hold_is_too_short():
    """A node is quarantined for half of the longest ttl."""

    def half(real):
        return lambda records, quorum, longest, **rest: real(
            [each and replace(each, longest_ttl=each.longest_ttl / 2) for each in records], quorum, longest / 2, **rest
        )

    with _deciding(half):
        yield


@mutant("votes")
def the_longest_ttl_is_known_from_one_node():
    """A node that lost its data waits for the longest ttl that any single other node knows."""

    def one(index, records, result, _quorum):
        kept = [each.longest_ttl for at, each in enumerate(records) if each and at != index and result[at].counts]
        return max(kept, default=None)

    with patch.object(voting, "_longest_ttl", one):
        yield


@mutant("votes")
def some_nodes_can_found_a_cluster():
    """A cluster is founded as soon as a majority looks unused, without the others."""
    real = _transport.electorate.Electorate._founding

    def founding(self, records):
        known = [each for each in records if each is not None]
        return real(self, known) if len(known) >= self._quorum else ""

    with patch.object(_transport.electorate.Electorate, "_founding", founding), _agreeing():
        yield


def _agreeing():
    """Let the nodes that are known decide whether the cluster can be founded."""
    return patch.object(
        _transport.electorate, "all_agreed",
        lambda records, ids: all(each.founding == ids for each in records if each is not None),
    )  # fmt: skip


@mutant("votes")
def a_promotion_is_not_noticed():
    """A promoted replica keeps the id of the data that it copied."""
    with rewritten("node_record", ("replicated or ARGV[4] ~= '1'", "ARGV[4] ~= '1'")):
        yield


@mutant("votes")
def an_old_file_counts_as_all_data():
    """A restart without an append-only file keeps the id of the data, although the last writes may be missing."""
    with rewritten("node_record", ("replicated or ARGV[4] ~= '1'", "replicated")):
        yield


# Whose word counts


@mutant("lying records")
def the_word_of_one_node_is_enough():
    """A node votes if one node says that it may, or that its data is old enough."""

    def age(words, _spare, founder_age):
        return max((word.vouched(founder_age) for word in words), default=None)

    with patch.object(voting, "_age", age):
        yield


@mutant("lying records")
def a_node_tells_its_own_age():
    """A node's data is as old as the node itself says."""
    ages = voting._words

    def own(record, records):
        if record is not None and record.id in record.heard:
            return [record.heard[record.id]] * len(records)
        return ages(record, records)

    with patch.object(voting, "_words", own):
        yield


@mutant("smallest")
def founders_wait_too():
    """Nodes do not vote at once when a cluster is founded."""
    with _without(Standing.FOUNDER):
        yield


@mutant("votes")
def who_was_admitted_is_not_remembered():
    """A node that has voted is put out again when a client comes with a longer ttl."""
    with _without(Standing.ADMITTED), _deciding_with(trusted=frozenset()):
        yield


def _without(standing):
    """Let that standing count for nothing."""
    real = Heard.vouched

    def vouched(self, founder_age):
        return real(replace(self, standing=Standing.KNOWN) if self.standing is standing else self, founder_age)

    return patch.object(Heard, "vouched", vouched)


@mutant("votes")
def founders_do_not_wait_for_the_strict():
    """With `strict_restart`, a cluster of which all nodes have lost their data is founded again at once."""
    with _deciding_with(strict=False):
        yield


# The longest ttl


@mutant("votes")
def a_ttl_from_before_the_loss_counts():
    """What a node said before it heard of the loss counts as its word on the longest ttl."""

    def longest(index, records, result, quorum):
        own = records[index].id
        every = [each and replace(each, heard={**each.heard, own: Heard(0.0)}) for each in records]
        return real(index, every, result, quorum)

    real = voting._longest_ttl
    with patch.object(voting, "_longest_ttl", longest):
        yield


@mutant("votes")
def who_forgot_it_tells_the_longest_ttl():
    """Nodes that have lost their data count as knowing the longest ttl."""
    real = voting._longest_ttl
    with patch.object(
        voting,
        "_longest_ttl",
        lambda index, records, result, quorum: real(index, records, [MAY_VOTE] * len(result), quorum),
    ):
        yield


@mutant("votes")
def a_new_majority_waits_for_the_others():
    """Nodes of a new cluster are not admitted together, but wait for nodes that kept their data."""
    with _deciding(
        lambda real: (
            lambda records, *rest, **named: real(
                [each and replace(each, origin=voting.Origin.JOINED) for each in records], *rest, **named
            )
        )
    ):
        yield


@mutant("votes")
def who_voted_long_ago_counts_as_new():
    """A node whose record was last heard before it voted for the first time counts as one that has never voted."""
    real = voting._new_together

    def together(record, records, *rest):
        heard = [each and replace(each, heard={**each.heard, record.id: Heard(0.0)}) for each in records]
        return real(record, heard, *rest)

    with patch.object(voting, "_new_together", together):
        yield


@mutant("votes")
def a_client_admits_nodes_before_it_announces_its_ttl():
    """A client decides which nodes of a new cluster may vote by its default ttl, and then takes a longer lease."""
    start, own = _transport.membership.Membership.start, Electorate.__init__

    def created(self, nodes, quorum, settings, *rest, **more):
        own(self, nodes, quorum, settings, *rest, **more)
        self.default_ttl = settings.options.ttl

    async def started(self, wait):
        announced, self.electorate.longest_ttl = self.electorate.longest_ttl, self.electorate.default_ttl
        await start(self, wait)
        self.electorate.use_ttl(announced)

    with (
        patch.object(_transport.membership.Membership, "start", started),
        patch.object(Electorate, "__init__", created),
    ):
        yield


# Promotions and founding


@mutant("votes")
def the_old_primary_gets_no_grace():
    """A promoted replica waits for the longest ttl only, although the old primary may have granted locks meanwhile."""
    with rewritten("node_record", ("'grace', (replicated or elsewhere) and ARGV[5] or 0", "'grace', 0")):
        yield


@mutant("votes")
def old_registers_are_kept():
    """A promoted replica goes on from the fence registers that it copied."""
    with rewritten("node_record", ("if tag == '' then redis.pcall('DEL', unpack(registers)) end", "")):
        yield


@mutant("votes")
def some_agree_to_found_a_cluster():
    """A node counts as a founder, and votes, before all nodes have agreed."""
    apply = Electorate._apply
    with (
        patch.object(_transport.electorate, "all_agreed", lambda *_: True),
        patch.object(Electorate, "_apply", lambda self, *known, **_: apply(self, *known, founding=False)),
        rewritten(
            "node_record",
            ("origin == 'founding' and get('founding') == ARGV[8] then", "true then set('founding', ARGV[8])"),
        ),
    ):
        yield


@mutant("copied data")
def a_copy_of_another_node_votes():
    """A node with the data of another one counts as that one."""
    with patch.object(Electorate, "_taken_for", lambda *_: None):
        yield


@mutant("copied data")
def a_copy_of_another_node_waits_for_ever():
    """It does not get an id of its own, and so it never votes."""
    origin = Electorate._origin

    def kept(self, *known):
        found = origin(self, *known)
        return "" if found == "copied" else found

    with patch.object(Electorate, "_origin", kept):
        yield


@mutant("copied data")
def a_node_that_has_moved_keeps_its_place():
    """A node that has exchanged its address with another one depends on hearing from that one for ever."""
    with patch.object(Electorate, "_has_moved", lambda *_: False):
        yield


@mutant("votes")
def a_look_leaves_a_trace():
    """A command that takes no lock creates the records of the nodes."""
    with patch.object(Electorate, "command", lambda self, index: self._command(self._nodes[index], "")):
        yield
