"""What the script does that marks a node."""

MARKS = ("birth", "longest", "founding")


def mark(node, longest=10_000, since=-1, new=0):
    return node.run("node_mark", MARKS, longest, since, new)


def test_a_new_node(node):
    """It is born now, and knows of no founding."""
    assert mark(node) == [node.us, node.us, 10_000, -1]
    assert node.holds == {"birth": (str(node.us), None), "longest": ("10000", None)}
    assert node.tells_the_client_of(*MARKS) == sorted(MARKS)


def test_it_stays_as_old_as_it_is(node):
    """And with the longest ttl of all."""
    mark(node)
    node.after(5_000)
    assert mark(node, 7_000) == [node.us, node.us - 5_000_000, 10_000, -1]
    assert mark(node, 20_000) == [node.us, node.us - 5_000_000, 20_000, -1]
    assert node.holds["longest"] == ("20000", None)


def test_the_longest_ttl_is_written_only_when_it_becomes_longer(node):
    """Each change is reported to every client."""
    mark(node)
    node.watch(*MARKS)
    mark(node)
    assert node.told() == []


def test_a_founding_is_stored_once(node):
    """By this node's own clock; unless it is a new one."""
    assert mark(node, since=3_000_000) == [node.us, node.us, 10_000, node.us - 3_000_000]
    assert node.holds["founding"] == (str(node.us - 3_000_000), None)
    assert mark(node, since=9_000_000)[3] == node.us - 3_000_000
    assert mark(node, since=0, new=1)[3] == node.us
    assert mark(node, since=-1, new=1)[3] == node.us


def test_it_may_have_been_just_now(node):
    assert mark(node, since=0)[3] == node.us


def test_a_full_node_says_what_it_has(node):
    """Of what it cannot store the longest ttl is as good as stored."""
    node.master.oom = True
    assert mark(node, since=0) == [node.us, -1, 10_000, -1]
    assert node.holds == {}
