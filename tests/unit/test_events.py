"""Events: every listener hears them, the log says them, and neither can change what happens."""

import asyncio
import dataclasses
import json
import logging
from typing import get_args

import pytest

from redlock_async.events import _LEVELS, Counters, Event, Events, Kind, NodeReply, Statistics, statistics

KINDS = get_args(Kind)


@pytest.fixture
def log(caplog):
    """All that the library logs."""
    caplog.set_level(logging.DEBUG, logger="redlock_async")
    return caplog


def test_every_listener_hears_every_event_in_order():
    """With all its details."""
    events, heard = Events(), []
    events.listeners += [lambda event: heard.append((1, event)), lambda event: heard.append((2, event))]
    problem = ValueError("why")
    events.emit("lost", names=("a", "b"), error=problem)
    events.emit("node_down", node="h:1", error=problem)
    lost = Event("lost", ("a", "b"), None, None, problem)
    down = Event("node_down", (), "h:1", None, problem)
    assert heard == [(1, lost), (2, lost), (1, down), (2, down)]


def test_ending_twice_what_was_begun_twice():
    """A function ends what it was returned for, and that once."""
    events = Events()
    end, end_other = (events.listen(print, node_replies=True) for _ in range(2))
    end()
    end()
    assert (events.listeners, events.reply_listeners) == ([print], [print])
    end_other()
    assert (events.listeners, events.reply_listeners) == ([], [])


@pytest.mark.parametrize("error", [RuntimeError, asyncio.CancelledError, SystemExit])
def test_a_listener_that_fails_keeps_nobody_from_hearing(log, error):
    """Its error is logged with a traceback; the next listener and the library go on."""
    events, heard = Events(), []

    def fails(event):
        raise error(f"bad listener of {event.kind}")

    events.listeners += [fails, heard.append]
    events.emit("acquired", names=("x",))
    assert [event.kind for event in heard] == ["acquired"]
    record = log.records[-1]
    assert record.levelno == logging.ERROR
    assert "on_event callback failed on acquired 'x'" in record.getMessage()
    assert "bad listener of acquired" in log.text


def test_a_listener_may_end_itself_while_it_is_called():
    """The others of that event are called nevertheless."""
    events, heard = Events(), []

    def once(_):
        heard.append("once")
        events.listeners.remove(once)

    events.listeners += [once, lambda _: heard.append("always")]
    events.emit("released")
    events.emit("released")
    assert heard == ["once", "always", "always"]


def test_an_interrupt_in_a_listener_is_not_swallowed():
    """Ctrl-C ends the program, wherever it comes."""
    events = Events()

    def interrupted(_):
        raise KeyboardInterrupt

    events.listeners.append(interrupted)
    with pytest.raises(KeyboardInterrupt):
        events.emit("released")


def test_nothing_is_made_that_nobody_reads(caplog, monkeypatch):
    """With no listener and the log off an event costs nothing."""
    caplog.set_level(logging.CRITICAL, logger="redlock_async")
    monkeypatch.setattr("redlock_async.events.Event", None)
    Events().emit("acquired", names=("x",))
    assert not caplog.records


@pytest.mark.parametrize("kind", KINDS)
def test_the_log_has_every_event_at_its_level(kind, log):
    """Losses and outages are warnings; the daily business is for debugging. The record carries the event itself."""
    Events().emit(kind)
    [record] = log.records
    assert record.name == "redlock_async"
    assert record.levelno == _LEVELS.get(kind, logging.DEBUG)
    assert record.redlock == Event(kind)
    assert record.getMessage() == "redlock: " + kind.replace("_", " ")


def test_what_an_operator_must_see_is_a_warning():
    """Loss, outage, a release that may linger, a node that is gone or quarantined."""
    warnings = {kind for kind, level in _LEVELS.items() if level == logging.WARNING}
    assert warnings == {
        "lost",
        "release_unconfirmed",
        "hold_unconfirmed",
        "unavailable",
        "node_down",
        "node_quarantined",
    }
    assert set(_LEVELS) <= set(KINDS)


def test_a_line_of_log_has_names_node_seconds_and_error(log):
    """Only those that there are; names are quoted, so that a line break in one stays in its line."""
    events = Events()
    events.emit("acquired", names=("a", "b\nc"), seconds=0.0)
    events.emit("node_quarantined", node="h:1", seconds=1.23456)
    events.emit("lost", names=("x",), error=ValueError("its key is gone"))
    assert log.messages == [
        "redlock: acquired 'a' 'b\\nc' 0.000 s",
        "redlock: node quarantined h:1 1.235 s",
        "redlock: lost 'x': its key is gone",
    ]


def test_answers_are_for_those_who_ask_for_them(log):
    """Others hear nothing of them, and the log neither; ending ends both."""
    events, heard, all_of_it = Events(), [], []
    events.listen(heard.append, node_replies=False)
    end = events.listen(all_of_it.append, node_replies=True)
    said = (NodeReply("h:1", "granted", 0.001), NodeReply("h:2", "timed_out", 0.25))
    events.emit_node_replies("acquire", said)
    events.emit("acquired", names=("x",))
    assert [event.kind for event in heard] == ["acquired"]
    assert all_of_it == [Event("node_replies", operation="acquire", node_replies=said), *heard]
    assert log.messages == ["redlock: acquired 'x'"]
    end()
    end()
    assert (len(events.listeners), events.reply_listeners) == (1, [])


def test_the_log_has_what_is_known_in_flat_fields(log):
    """Only that, as what JSON has; none of them is a name that a record has by itself."""
    events = Events()
    gone = ValueError("its key is gone")
    events.emit("lost", names=("a", "b"), lock_kind="fair", seconds=1.5, reason="taken", error=gone)
    events.emit("node_up", node="h:1")
    lost, up = [
        {name: value for name, value in vars(record).items() if name.startswith("redlock_")} for record in log.records
    ]
    assert json.loads(json.dumps(lost)) == {
        "redlock_kind": "lost", "redlock_names": ["a", "b"], "redlock_lock_kind": "fair", "redlock_seconds": 1.5,
        "redlock_reason": "taken", "redlock_error": "its key is gone",
    }  # fmt: skip
    assert up == {"redlock_kind": "node_up", "redlock_node": "h:1"}


def test_no_level_is_asked_of_the_log_without_a_record_for_it(caplog):
    """With the log at warnings, a listener hears the daily business and the log does not."""
    caplog.set_level(logging.WARNING, logger="redlock_async")
    events, heard = Events(), []
    events.listen(heard.append, node_replies=False)
    events.emit("contended", names=("x",), holder="somebody")
    assert [event.holder for event in heard] == ["somebody"]
    assert not caplog.records


def test_an_event_cannot_be_changed():
    """One listener cannot mislead the next."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        Event("lost").kind = "acquired"


def test_clients_have_listeners_and_counters_of_their_own():
    """Nothing is shared by two of them."""
    one, other = Events(), Events()
    one.listeners.append(print)
    one.counters.lost += 1
    assert not other.listeners
    assert other.counters == Counters()


def test_statistics_are_the_counters_with_the_gauges():
    """Every counter arrives under its name, and later counting does not change what was given out."""
    names = [field.name for field in dataclasses.fields(Counters)]
    counters = Counters(*range(1, len(names) + 1))
    gauges = {"held": 20, "waiting": 21, "nodes_up": 22, "nodes": 23, "quorum": 24, "node_states": {"h:1": "up"}}
    got = statistics(counters, **gauges)
    expected = dict(zip(names, range(1, len(names) + 1), strict=True))
    assert dataclasses.asdict(got) == expected | gauges
    counters.acquired += 100
    assert got.acquired == 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        got.acquired = 2


def test_no_counter_is_without_a_place_in_the_statistics():
    """One that is added to the one and not to the other is noticed here."""
    counters = {field.name for field in dataclasses.fields(Counters)}
    assert counters < {field.name for field in dataclasses.fields(Statistics)}
