"""What the verdict on real faults sees: histories with one thing wrong each, and the same without it."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import faults_verdict as verdict


@pytest.fixture
def life(tmp_path):
    """Makes the history of one process of (what, at, details)."""

    def make(owner, *lines):
        path = tmp_path / f"{owner}.jsonl"
        path.write_text(
            "".join(json.dumps({"what": what, "at": at, **more}) + "\n" for what, at, more in lines), "ascii"
        )
        return verdict.Life(owner, path)

    return make


def lease(number, begin, end, kind, name, **more):
    """Its beginning and its end."""
    told = {"id": number, "until": end + 1, "kind": kind, "names": [name], "fence": None, **more}
    return [("held", begin, told), ("end", end, {"id": number})]


def promises(lives, log=()):
    """Which are broken."""
    return {found.invariant for found in verdict.judged(lives, {life.owner for life in lives}, list(log))}


@pytest.mark.parametrize(("slots", "broken"), [([0], set()), ([0, 1], {"exclusion"})])
def test_slots_are_counted_and_not_leases(life, slots, broken):
    """Of three permits two leases may hold three slots, and not four."""
    one = life("c0", *lease(1, 1.0, 2.0, "semaphore", "s", slots=[2, 3], permits=3))
    other = life("c1", *lease(1, 1.5, 2.5, "semaphore", "s", slots=slots, permits=3))
    assert promises([one, other]) == broken


@pytest.mark.parametrize(("kind", "broken"), [("read", set()), ("write", {"exclusion"})])
def test_a_writer_is_alone(life, kind, broken):
    """And readers are not."""
    lives = [life("c0", *lease(1, 1.0, 2.0, "read", "rw")), life("c1", *lease(1, 1.5, 2.5, kind, "rw"))]
    assert promises(lives) == broken


FLUSHED = {"what": "fault", "kind": "FLUSHALL", "node": 0, "lasts": False, "lost": True, "at": 1.1}
STOPPED = {"what": "client stopped", "client": "c0", "at": 1.25}


@pytest.mark.parametrize(
    ("asked", "log", "broken"),
    [
        (1.2, [], {"order"}),  # after the other was in the queue
        (1.05, [], set()),  # before
        (1.2, [FLUSHED], set()),  # a master forgot the place
        (1.2, [STOPPED], set()),  # it could not take its turn
    ],
)
def test_a_fair_waiter_that_is_passed(life, asked, log, broken):
    """In the queue on a majority at 1.1, and served after one that asked for it later."""
    ask = {"names": ["f"], "kind": "fair"}
    first = life(
        "c0", ("ask", 1.0, {"id": 1, **ask}), ("queued", 1.1, {"id": 1}), *lease(2, 1.6, 1.7, "fair", "f", asked=1)
    )
    other = life("c1", ("ask", asked, {"id": 5, **ask}), *lease(6, 1.4, 1.5, "fair", "f", asked=5))
    assert promises([first, other], log) == broken


@pytest.mark.parametrize(
    ("asked", "left", "log", "broken"),
    [
        (2.1, 1, [], {"latch"}),  # it was open
        (2.1, None, [], {"latch"}),  # the same, by waiting
        (2.1, 0, [], set()),
        (1.9, 1, [], set()),  # a look that began before it was seen open
        (2.1, 1, [FLUSHED], set()),  # a master forgot
    ],
)
def test_a_latch_is_not_closed_again(life, asked, left, log, broken):
    """Seen open at 2.0 by one process; then another looks."""
    downs = [("down", 1.0 + number / 10, {"latch": "l", "count": 2, "event": f"e{number}"}) for number in range(2)]
    one = life("c0", *downs, ("open", 2.0, {"latch": "l", "count": 2}))
    other = life("c1", ("left", 2.2, {"latch": "l", "asked": asked, "left": left}))
    assert promises([one, other], log) == broken


def test_a_latch_does_not_open_early(life):
    """One of two events had been sent off when it was seen open."""
    down = ("down", 1.0, {"latch": "l", "count": 2, "event": "e"})
    assert promises([life("c0", down, ("open", 2.0, {"latch": "l", "count": 2}))]) == {"latch"}
