"""Which clients may take locks with which: all small cases of configurations, and what the nodes remember of them."""

from dataclasses import replace
from itertools import combinations, product

import pytest

from redlock_async._rules.charter import Charter, NodeSet, compare
from redlock_async._rules.quorum import majority, minority

LABELS = "ABCDEF"


def node_set(labels, quorum=None):
    """A configuration with these nodes, each named by a letter."""
    return NodeSet(majority(len(labels)) if quorum is None else quorum, tuple(labels))


def charter(*sets, epoch=0):
    """A charter with these sets."""
    return Charter(epoch, tuple(node_set(each) if isinstance(each, str) else each for each in sets))


def quorums(each):
    """All smallest quorums of a set."""
    return [frozenset(nodes) for nodes in combinations(each.labels, each.quorum)]


def all_sets(labels, sizes):
    """All configurations with some of these nodes."""
    return [
        NodeSet(quorum, nodes)
        for size in sizes
        for nodes in combinations(labels, size)
        for quorum in range(majority(size), size + 1)
    ]


@pytest.mark.parametrize(
    "stored",
    [
        charter("ABC"),
        charter("ABC", "ABCD", epoch=12),
        charter(NodeSet(5, ("h:1", "h:2", "h:3", "h:4", "h:5"))),
        charter(NodeSet(2, ("a b", "c|d", "%20"))),
        charter(NodeSet(1, ("redis über ☃",))),
        replace(charter("ABC"), place="B"),
        replace(charter(NodeSet(1, ("a @ b",))), place="a @ b"),
        replace(charter("ABC", "BCD"), ids=("1-a", "-", "2-b")),
        replace(charter("ABC"), place="A", ids=("what a node # calls @ itself | 0", "-", "2-b")),
        replace(charter(NodeSet(1, ("a # b @ c",))), place="a # b @ c", ids=("1-a",)),
    ],
)
def test_a_charter_survives_being_stored(stored):
    """Labels can hold spaces and separators; the text is ASCII, as the nodes' scripts need it."""
    text = stored.encode()
    assert text.isascii()
    assert Charter.decode(text) == stored
    assert (Charter.decode(text).place, Charter.decode(text).ids) == (stored.place, stored.ids)


@pytest.mark.parametrize(
    "text",
    ["", "x", "0", "3 @ a", "-1 2 a b c", "0 1 a b c", "0 4 a b c", "0 2", "0 two a b c", "0 2 a b c | 2",
     "9007199254740992 2 a b c", "0 2 a b c | 2 a b | 1 a"],
)  # fmt: skip
def test_what_is_no_charter_is_rejected(text):
    """A node that says so is broken."""
    with pytest.raises(ValueError, match=r"not a|invalid literal|unpack"):
        Charter.decode(text)


def test_the_overlap_of_two_sets():
    """Compared with all quorums of both, for every pair of sets of up to five of six nodes."""
    sets = all_sets(LABELS[:4], range(1, 5))
    for one, other in product(sets, sets):
        overlap = all(first & second for first in quorums(one) for second in quorums(other))
        assert one.overlaps(other) == overlap, (one, other)


@pytest.mark.parametrize("number", range(1, 8))
def test_sets_that_differ_by_one_node_overlap_at_any_quorum(number):
    """Each quorum is at least a majority, and two majorities of N and N + 1 nodes are N + 2 votes."""
    labels = tuple("ABCDEFGHI"[: number + 1])
    for few, many in product(range(majority(number), number + 1), range(majority(number + 1), number + 2)):
        assert NodeSet(few, labels[:-1]).overlaps(NodeSet(many, labels))


def compared(own, recorded, *, hears=None, places=None, nodes=None, voted=-1):
    """What a client knows whose nodes have these charters by their letters, and are the ones they say they are."""
    nodes = own.labels if nodes is None else nodes
    hears = nodes if hears is None else hears
    stored = [recorded.get(each) if each in hears else None for each in nodes]
    charters = [None if each is None else replace(each, place=node) for each, node in zip(stored, nodes, strict=True)]
    ids = [f"id of {each}" if each in hears else None for each in nodes]
    heard = sum(1 << index for index, each in enumerate(nodes) if each in hears)
    return compare(own, charters, ids=ids, voted=heard & voted, places=places)


@pytest.mark.parametrize("addresses", ["the same", "others", "one other"])
def test_no_two_clients_that_could_both_hold_a_lock_are_let_in(addresses):
    """All pairs of configurations with up to five nodes, and all nodes that the second client may hear from.

    The nodes of the first client's set remember it. Nodes that know nothing vote at once, which they never do.
    """
    checked = 0
    firsts = [node_set("ABC"), node_set("ABC", 3), node_set("ABCD"), node_set("ABCDE")]
    for first, reached in product(firsts, all_sets("ABCDEF", (2, 3, 4, 5))):
        nodes = reached.labels
        wrong = minority(len(nodes))
        renamed = {"the same": (), "others": nodes, "one other": nodes[:1]}[addresses]
        second = NodeSet(reached.quorum, tuple(each.lower() if each in renamed else each for each in nodes))
        for size in range(len(nodes) + 1):
            for hears in combinations(nodes, size):
                found = compared(second, dict.fromkeys(first.labels, charter(first)), hears=hears, nodes=nodes)
                voting = {each for each, agrees in zip(nodes, found.nodes, strict=True) if agrees and each in hears}
                unknown = {*hears} - {*first.labels}
                both = [
                    (one, other)
                    for one in quorums(first)
                    for other in combinations(sorted(voting), second.quorum)
                    if not one & {*other}
                ]
                if found.conflict is None and both and {*hears} & {*first.labels}:
                    # Without an address in common, a minority of nodes that know nothing may have lost their data.
                    assert not {*first.labels} & {*second.labels}, (first, second, hears)
                    assert len(unknown) <= wrong
                    assert (second.quorum, len(nodes)) == (first.quorum, len(first.labels))
                checked += 1
    assert checked > 2000


@pytest.mark.parametrize("nodes", ["ABC", "ABCDE"])
def test_clients_with_the_same_configuration_agree(nodes):
    """In any order, with any quorum, whatever they hear from, and with a minority that lost its data."""
    for quorum in range(majority(len(nodes)), len(nodes) + 1):
        own = node_set(nodes, quorum)
        stored = charter(node_set(nodes[::-1], quorum))
        for size in range(len(nodes) + 1):
            for hears in combinations(nodes, size):
                for lost in range(len(nodes) - majority(len(nodes)) + 1):
                    kept = dict.fromkeys(nodes[lost:], stored)
                    found = compared(own, kept, hears=hears)
                    assert found.conflict is None
                    assert all(found.nodes)


def test_the_first_client_decides():
    """Nothing is recorded: it proposes its own configuration, but nobody shares it yet."""
    own = node_set("ABC")
    found = compared(own, {})
    assert (found.conflict, found.proposal, found.shared) == (None, charter(own), False)
    assert compare(own, [None] * 3, ids=[None] * 3, voted=0).proposal == charter(own)
    assert found.lacking(1, None).place == "B"


def test_clients_that_begin_together_take_no_locks_before_all_nodes_agree():
    """Nodes that have not voted do not count: of two charters on their way, at most one is on all its nodes."""
    mine, others = charter("ABC"), charter("CDE")
    assert compared(node_set("ABC"), dict.fromkeys("ABC", mine), voted=0).conflict is None
    assert compared(node_set("ABC"), {**dict.fromkeys("AB", mine), "C": others}, voted=0).conflict == others
    assert compared(node_set("ABC"), {**dict.fromkeys("AB", mine), "C": others}, voted=0b001).conflict == others
    assert compared(node_set("ABC"), {**dict.fromkeys("AB", mine), "C": others}, voted=0b011).conflict is None


def test_another_number_of_nodes_or_quorum_is_refused():
    """Both ways, with one node in common; the message names both."""
    three, five, four = node_set("ABC"), node_set("ABCDE"), node_set("ABCDE", 4)
    for one, other in ((three, five), (five, three), (five, four), (four, five)):
        found = compared(one, dict.fromkeys(other.labels, charter(other)))
        assert found.conflict == charter(other)
        assert found.proposal is None
    assert compared(five, {"C": charter(three)}).conflict == charter(three)
    assert str(charter(three)) == "quorum=2 of 3 nodes (A, B, C)"


@pytest.mark.parametrize("own", ["ABD", "ADE", "BCF"])
def test_other_nodes_are_refused(own):
    """As many as before, but not the same ones: the nodes that both have give it away."""
    found = compared(node_set(own), dict.fromkeys("ABC", charter("ABC")))
    assert found.conflict == charter("ABC")


def test_a_node_that_lost_its_data_is_no_stranger():
    """It has the address of before."""
    found = compared(node_set("ABC"), dict.fromkeys("AB", charter("ABC")))
    assert (found.conflict, found.proposal, found.shared) == (None, charter("ABC"), True)
    assert found.lacking(2, None).place == "C"
    assert found.lacking(0, charter("ABC")) is None


def aliased(letters, recorded, labels="xyz", places=None):
    """What a client of three knows that reaches these nodes at other addresses."""
    return compared(node_set(labels), recorded, nodes=letters, places=places)


def test_nodes_at_other_addresses_say_which_ones_they_are():
    """Behind proxies, or as localhost: all of them, or only some."""
    stored = dict.fromkeys("ABC", charter("ABC"))
    for labels in ("xyz", "Ayz", "xBC"):
        assert aliased("ABC", stored, labels).conflict is None
    lost = dict.fromkeys("AB", charter("ABC"))
    found = aliased("ABC", lost)
    assert found.conflict is None  # C may have lost its data
    assert found.lacking(2, None) == charter("ABC")
    assert found.lacking(2, None).place == "C"  # the only one that is left
    assert aliased("ADE", lost).conflict is not None  # two of three cannot have lost it
    assert aliased("ABD", lost, "Ayz").conflict is not None
    assert aliased("ABD", {**lost, "D": charter("DEF")}).conflict is None  # one wrong node of three
    assert aliased("ABD", {**lost, "D": charter("DEF")}).nodes == (True, True, False)


def ids_of(nodes):
    """What the data of nodes is called that are named by these letters; a dot stands for one that is not known."""
    return tuple("-" if each == "." else f"id of {each}" for each in nodes)


@pytest.mark.parametrize("listed", ["ABCDE", "ABCD.", "ABC.."])
@pytest.mark.parametrize("lost", ["", "B"])
def test_the_first_nodes_charter_says_which_nodes_the_others_are(listed, lost):
    """A client with other addresses finds one node with a charter, and goes on where its author may have stopped."""
    written = replace(charter("ABCDE"), ids=ids_of(listed))
    nodes = ["Z" if each == lost else each for each in "ECABD"]
    places = dict(zip(range(5), "ECABD", strict=True))
    found = compared(node_set("vwxyz"), {"A": written}, nodes=nodes)
    unknown = {index for index, each in enumerate(nodes) if each not in listed}
    assert found.conflict is None or len(unknown) > 2
    if len(unknown) <= 1:
        assert found.places == places  # the only one that is left, too
    if found.conflict is None:
        assert found.proposal == written
        assert {index: place for index, place in places.items() if index not in unknown}.items() <= found.places.items()


def test_a_charter_that_one_node_has_of_other_nodes_is_refused():
    """Though it lists ids: they are those of other nodes."""
    written = replace(charter("ABCDE"), ids=ids_of("ABCDE"))
    assert compared(node_set("vwxyz"), {"A": written}, nodes="AFGHI").conflict == written
    assert compared(node_set("vwxyz"), {"A": written}, nodes="ABFGH").conflict == written


def test_a_client_writes_the_ids_that_it_knows():
    """Of the nodes that have answered."""
    assert compared(node_set("ABC"), {}, hears="AC").lacking(0, None).ids == ids_of("A.C")


def test_a_node_at_another_address_stays_known_when_it_loses_its_data():
    """To a client that has known it before: such an outage of one node must not end the others' work."""
    before = aliased("ABC", dict.fromkeys("ABC", charter("ABC")), "Ayz")
    assert before.places == {0: "A", 1: "B", 2: "C"}
    lost = dict.fromkeys("AB", charter("ABC"))
    assert aliased("ABC", lost, "Ayz").conflict is not None
    after = aliased("ABC", lost, "Ayz", before.places)
    assert (after.conflict, after.lacking(2, None).place) == (None, "C")


def test_one_wrong_node_among_five_is_ignored():
    """It remembers something else, by mistake or malice; it does not vote for this client."""
    own = node_set("ABCDE")
    found = compared(own, {**dict.fromkeys("ABCD", charter(own)), "E": charter("ABC", epoch=99)})
    assert found.conflict is None
    assert found.nodes == (True, True, True, True, False)
    assert (found.proposal, found.shared) == (charter(own), True)
    # Two against two: this client came second.
    found = compared(own, {**dict.fromkeys("AB", charter(own)), **dict.fromkeys("CD", charter("BCD"))})
    assert found.conflict == charter("BCD")


def test_while_the_nodes_are_changed_clients_with_both_sets_agree():
    """And nobody else."""
    stored = charter("ABC", "ABCD", epoch=1)
    for own, agrees in (("ABC", True), ("ABCD", True), ("ABCDE", False), ("BCD", False), ("AB", False)):
        found = compared(node_set(own), dict.fromkeys("ABCD", stored))
        assert (found.conflict is None) == agrees, own
        if agrees:
            assert (found.proposal, found.shared) == (stored, True)
    assert compared(node_set("ABCD", 4), dict.fromkeys("ABCD", stored)).conflict == stored


def test_a_newer_charter_replaces_an_older_one():
    """On a node that was down meanwhile, which does not vote until then for clients of the new set."""
    newer = charter("ABCD", epoch=2)
    found = compared(node_set("ABCD"), {**dict.fromkeys("ABD", newer), "C": charter("ABC")})
    assert found.conflict is None
    assert found.nodes == (True, True, False, True)
    assert (found.proposal, found.shared) == (newer, True)
    # One node alone is not believed.
    found = compared(node_set("ABCD"), {"A": newer, **dict.fromkeys("BCD", charter("ABC", "ABCD", epoch=1))})
    assert found.proposal == charter("ABC", "ABCD", epoch=1)
