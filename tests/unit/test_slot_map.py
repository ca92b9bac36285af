"""Which shard of a cluster owns which slots, as its servers say."""

import random

import pytest

from redlock_async._rules.slot_map import Redirection, Shard, parse_slots, redirection, shared, slots_in

ONE, OTHER = b"1" * 40, b"2" * 40


def said(first, last, host=b"10.0.0.1", port=7000, name=ONE, *replicas):
    """One range in the reply to CLUSTER SLOTS."""
    return [first, last, [host, port, name, []], *replicas]


def test_the_shards_are_in_the_order_of_their_slots():
    """Ranges of one primary come together; replicas do not matter."""
    replica = [b"10.0.0.9", 7009, b"9" * 40]
    reply = [
        said(9000, 16383, b"h2", 7001, OTHER),
        said(5, 9, b"10.0.0.1", 7000, ONE, replica),
        said(0, 3),
        said(20, 30),
    ]
    assert parse_slots(reply, "seed") == (
        Shard("1" * 40, "10.0.0.1", 7000, ((0, 3), (5, 9), (20, 30))),
        Shard("2" * 40, "h2", 7001, ((9000, 16383),)),
    )


@pytest.mark.parametrize("host", [b"", b"?", None])
def test_a_server_that_does_not_know_its_address_is_at_the_one_that_was_asked(host):
    """A cluster that was never told its addresses says nothing."""
    (shard,) = parse_slots([said(0, 16383, host)], "seed")
    assert shard.host == "seed"


@pytest.mark.parametrize(
    "reply",
    [
        None,
        7,
        b"OK",
        [7],
        [[0, 1]],
        [said(b"0", 1)],
        [said(0, True)],  # noqa: FBT003 - a server's reply
        [said(0, 16384)],
        [said(-1, 3)],
        [said(5, 3)],
        [said(0, 1, port=0)],
        [said(0, 1, port=65536)],
        [said(0, 1, name=7)],
        [said(0, 1, name="é".encode())],
        [said(0, 1, host="é".encode())],
        [said(0, 1, host=b"x" * 300)],
        [said(0, 1, host=b"a\nb")],
        [said(0, 5), said(5, 9, name=OTHER)],
    ],
)
def test_a_reply_that_makes_no_sense_is_refused(reply):
    """A server can say anything."""
    with pytest.raises((TypeError, ValueError)):
        parse_slots(reply, "seed")


def test_the_home_of_a_shard_seldom_moves():
    """Single slots come and go, and the record stays where it is; every client finds the same slot."""
    rng = random.Random(1)
    moved = 0
    for number in range(300):
        owned = {*range(5461)}
        shard = Shard(f"{number:040x}", "h", 1, ((0, 5460),))
        home = shard.home
        assert home in owned
        assert Shard(f"{number:040x}", "elsewhere", 2, ((0, 5460),)).home == home
        gone, come = rng.randrange(5461), rng.randrange(5461, 16384)
        ranges = [each for each in ((0, gone - 1), (gone + 1, 5460), (come, come)) if each[0] <= each[1]]
        moved += Shard(f"{number:040x}", "h", 1, tuple(ranges)).home != home
    assert moved <= 3
    assert len({Shard(f"{number:040x}", "h", 1, ((0, 5460),)).home for number in range(300)}) > 250


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("MOVED 3999 127.0.0.1:6381", Redirection("127.0.0.1", 6381, asking=False)),
        ("ASK 3999 host.example:6381", Redirection("host.example", 6381, asking=True)),
        ("MOVED 3999 :6381", Redirection("", 6381, asking=False)),
        ("MOVED 3999 ::1:6381", Redirection("::1", 6381, asking=False)),
        ("MOVED 3999 [::1]:6381", Redirection("::1", 6381, asking=False)),
        ("TRYAGAIN Multiple keys request during rehashing of slot", None),
        ("CLUSTERDOWN Hash slot not served", None),
        ("MOVED somewhere", None),
        ("MOVED 1 host:port", None),
        ("ERR MOVED 3999 127.0.0.1:6381", None),
    ],
)
def test_where_a_server_sends_a_client(message, expected):
    """For good, or for one command."""
    assert redirection(message) == expected


def test_slots_that_two_sets_have_in_common():
    """As a node stores them."""
    assert shared([((0, 10), (20, 30))], [((5, 22),), ((30, 40),)]) == "5-10,20-22,30-30"
    assert shared([((0, 10),)], [((11, 12),)]) == shared([], [((0, 1),)]) == ""
    assert slots_in("0-5460,5462-5462") == ((0, 5460), (5462, 5462))
    assert slots_in("") == ()
