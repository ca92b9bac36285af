"""aioredlock, redlock-py, node-redlock and pottery on the same names and servers: each keeps the others out."""

import os
import time
from itertools import pairwise

import pytest
from redis import Redis

from redlock_async.testing import HeldInterval, check_history

pytestmark = pytest.mark.thorough

FORMS = ("fenced", "plain", "several", "fair", "write", "read")
"""As in ours.py."""

INCREMENTS = int(os.environ.get("REDLOCK_INTEROP_INCREMENTS", "50"))
"""Of each worker. `make interop` makes it many."""

TTL = 20.0
NAME = "interop"
FOREIGN = ("aioredlock", "redlock-py", "node-redlock")

MARGIN = 0.5
"""Seconds that a busy machine may add to what is prompt."""


def contend(workers, counter, name, forms=FORMS):
    """Let all of them count at once; returns what each held, and how much was to be added to the counter."""
    counter.write_text("0", "ascii")
    for client, worker in workers:
        options = {"forms": forms} if client == "ours" else {}
        worker.tell("increment", name=name, counter=str(counter), count=INCREMENTS, ttl=TTL, **options)
    holds = [
        HeldInterval(NAME, f"{client} {number}", **hold)
        for number, (client, worker) in enumerate(workers)
        for hold in worker.answer(patience=100 + INCREMENTS / 5)["holds"]
    ]
    assert len(holds) == INCREMENTS * len(workers), "somebody gave up"
    return sorted(holds, key=lambda hold: hold.start), sum(hold.kind != "read" for hold in holds)


def hand_overs(holds):
    """How often one library followed another."""
    libraries = [hold.holder.split()[0] for hold in holds]
    return sum(one != other for one, other in pairwise(libraries))


def report(holds):
    """What happened, for the reader of a long run."""
    seconds = holds[-1].end - holds[0].start
    print(f"{len(holds)} holds in {seconds:.2f} s, {hand_overs(holds)} hand-overs between libraries")


@pytest.mark.parametrize("form", FORMS)
def test_no_increment_is_lost(client, form, hire, tmp_path):
    """Two of theirs and two of ours: nobody overlaps, nobody starves, and the counter is exact."""
    workers = [(name, hire(name)) for name in (client, "ours", client, "ours")]
    holds, expected = contend(workers, tmp_path / "counter", NAME, (form,))
    assert check_history(holds) == []
    assert int((tmp_path / "counter").read_text("ascii")) == expected
    assert hand_overs(holds) >= max(3, INCREMENTS // 10), "one library waited until the other was done"
    report(holds)


def test_no_increment_is_lost_among_all(hire, tmp_path):
    """Every library at once, and ours in every form in turn."""
    workers = [(name, hire(name)) for name in (*FOREIGN, "ours", "ours")]
    holds, expected = contend(workers, tmp_path / "counter", NAME)
    assert check_history(holds) == []
    assert int((tmp_path / "counter").read_text("ascii")) == expected
    report(holds)


def test_without_locks_increments_are_lost(client, hire, tmp_path):
    """The same workers unguarded: the counter and the judge both notice."""
    workers = [(name, hire(name)) for name in (client, "ours", client, "ours")]
    holds, expected = contend(workers, tmp_path / "counter", name=None)
    left = int((tmp_path / "counter").read_text("ascii"))
    assert left < expected
    assert check_history(holds) != []
    print(f"{expected - left} of {expected} increments lost, {len(check_history(holds))} overlaps")


def test_ours_is_refused_what_they_hold(theirs, ours):
    """Trying returns None, waiting ends in LockTimeout, in every form; afterwards it can be had."""
    assert theirs.ask("take", name=NAME, ttl=TTL)["held"]
    for form in FORMS:
        assert not ours.ask("take", name=NAME, ttl=TTL, form=form)["held"], form
        assert not ours.ask("wait", name=NAME, ttl=TTL, form=form, patience=0.02)["held"], form
    theirs.ask("release")
    for form in FORMS:
        assert ours.ask("take", name=NAME, ttl=TTL, form=form)["held"], form
        ours.ask("release")


def test_theirs_is_refused_what_we_hold(theirs, ours):
    """In every form; afterwards it can be had."""
    for form in FORMS:
        assert ours.ask("take", name=NAME, ttl=TTL, form=form)["held"], form
        assert not theirs.ask("take", name=NAME, ttl=TTL)["held"], form
        ours.ask("release")
        assert theirs.ask("take", name=NAME, ttl=TTL)["held"], form
        theirs.ask("release")


def test_one_of_several_names_is_theirs(theirs, ours, nodes):
    """Then none of them is ours; and each of ours is refused to them."""
    second = f"{NAME}:too"
    assert theirs.ask("take", name=second, ttl=TTL)["held"]
    assert not ours.ask("take", name=NAME, ttl=TTL, form="several")["held"]
    assert [value_of(url, NAME) for url in nodes] == [None] * len(nodes)
    theirs.ask("release")
    assert ours.ask("take", name=NAME, ttl=TTL, form="several")["held"]
    assert not theirs.ask("take", name=second, ttl=TTL)["held"]


def test_their_release_wakes_ours(theirs, ours):
    """The server tells it, in every form: neither a poll nor the end of the ttl is waited for."""
    delays = {}
    for form in FORMS:
        assert theirs.ask("take", name=NAME, ttl=TTL)["held"]
        ours.tell("wait", name=NAME, ttl=TTL, form=form)
        time.sleep(0.05)
        began = theirs.ask("release")["began"]
        woken = ours.answer()
        delays[form] = woken["at"] - began
        assert delays[form] < MARGIN, form
        assert woken["attempts"] <= 4, form  # the first, one that arms tracking, one that wins, one for good measure
        ours.ask("release")
    print("woken after " + ", ".join(f"{form} {delay * 1000:.1f} ms" for form, delay in delays.items()))


def test_our_renewal_keeps_theirs_out(hire, ours):
    """A lease outlives its ttl by far, and nobody gets in meanwhile."""
    others = [hire(name) for name in FOREIGN]
    ttl = 0.6
    assert ours.ask("take", name=NAME, ttl=ttl, form="fenced")["held"]
    until = time.monotonic() + 2 * ttl
    while time.monotonic() < until:
        assert [other.ask("take", name=NAME, ttl=ttl)["held"] for other in others] == [False] * len(others)
        time.sleep(0.01)
    assert ours.ask("check")["valid"]
    ours.ask("release")
    assert others[0].ask("take", name=NAME, ttl=ttl)["held"]


@pytest.mark.parametrize("client", ["aioredlock", "node-redlock"])
def test_their_extension_keeps_ours_out(theirs, ours):
    """Ours, waiting since before it, comes in when the longer time is over. redlock-py cannot extend."""
    first, longer = 0.4, 0.6
    assert theirs.ask("take", name=NAME, ttl=first)["held"]
    ours.tell("wait", name=NAME, ttl=TTL, form="fenced")
    time.sleep(first / 2)
    extended = time.monotonic()
    theirs.ask("extend", ttl=longer)
    after = ours.answer()["at"] - extended
    assert longer - 0.01 <= after <= longer + MARGIN


def test_their_expiry_lets_ours_in(theirs, ours):
    """Not released, it ends by itself: not before its time, and soon after it."""
    ttl = 0.4
    taken = theirs.ask("take", name=NAME, ttl=ttl)
    assert taken["held"]
    after = ours.ask("wait", name=NAME, ttl=TTL, form="fenced")["at"] - taken["began"]
    assert ttl <= after <= ttl + MARGIN


@pytest.mark.parametrize("form", ["fenced", "read"])
def test_our_death_lets_theirs_in(hire, ours, form):
    """What a killed process held ends by itself: not before its time, and soon after it."""
    others = [hire(name) for name in FOREIGN]
    ttl = 0.4
    longest = ttl * 1.5 if form == "read" else ttl  # as read_acquire.lua has it
    taken = ours.ask("take", name=NAME, ttl=ttl, form=form)
    ours.kill()
    assert taken["held"]
    while not any(other.ask("take", name=NAME, ttl=TTL)["held"] for other in others):
        time.sleep(0.005)
    assert ttl <= time.monotonic() - taken["began"] <= longest + MARGIN


def test_theirs_is_shown_without_an_owner(theirs, ours, nodes):
    """`inspect` knows what they hold by the same votes, and that it is none of this library's."""
    assert ours.ask("inspect", name=NAME) is None
    assert theirs.ask("take", name=NAME, ttl=TTL)["held"]
    shown = ours.ask("inspect", name=NAME)
    assert 0 < shown.pop("remaining") <= TTL
    (token,) = {value_of(url, NAME) for url in nodes}
    assert shown == {"owner": None, "token": token.decode(), "votes": len(nodes), "held": True}


def value_of(url, key):
    """What a node holds under it."""
    with Redis.from_url(url, socket_timeout=5) as client:
        return client.get(key)


def test_pottery_counts_with_ours_in_its_namespace(hire, tmp_path):
    """It puts `redlock:` before each name; a client with that namespace contends with it, and none is lost."""
    workers = [
        (name, hire(name, **options)) for name, options in (("pottery", {}), ("ours", {"namespace": "redlock:"})) * 2
    ]
    holds, expected = contend(workers, tmp_path / "counter", NAME, ("fenced",))
    assert check_history(holds) == []
    assert int((tmp_path / "counter").read_text("ascii")) == expected
    assert hand_overs(holds) >= max(3, INCREMENTS // 10), "one library waited until the other was done"
    report(holds)


def test_pottery_and_ours_refuse_what_the_other_holds_in_that_namespace_only(hire):
    """Both ways; without the namespace they do not see each other."""
    pottery, ours, elsewhere = hire("pottery"), hire("ours", namespace="redlock:"), hire("ours")
    assert pottery.ask("take", name=NAME, ttl=TTL)["held"]
    assert not ours.ask("take", name=NAME, ttl=TTL, form="fenced")["held"]
    assert elsewhere.ask("take", name=NAME, ttl=TTL, form="fenced")["held"]
    pottery.ask("release")
    assert ours.ask("take", name=NAME, ttl=TTL, form="fenced")["held"]
    assert not pottery.ask("take", name=NAME, ttl=TTL)["held"]
