"""When an observer looks again: at once for what may be a change, and rarely for what a minority of nodes reports."""

from types import SimpleNamespace

import pytest

from redlock_async._runtime.change_signal import ChangeSignal


class Timers:
    """A context with a clock and timers that a test moves."""

    minority = 2

    def __init__(self):
        self.loop = self
        self.at = 1000.0
        self.timers = []

    def time(self):
        """Read the clock."""
        return self.at

    def call_later(self, delay, callback):
        """Call back when the clock is set to that time."""
        self.timers.append((self.at + delay, callback))
        return SimpleNamespace(cancel=lambda: None)

    def forward(self, seconds):
        """Move the clock."""
        self.at += seconds
        due, self.timers = self.timers, []
        for at, callback in due:
            if at <= self.at:
                callback()
            else:
                self.timers.append((at, callback))


@pytest.fixture
def timers():
    """A context whose clock stands still."""
    return Timers()


def after_a_look(timers, others):
    """A signal of an observer that has just looked."""
    signal = ChangeSignal(timers)
    signal.looking()
    signal.looked(others)
    return signal


def wants_to_look(signal):
    """Whether it looks again without further delay."""
    return signal._changed.is_set()


def test_a_majority_is_believed_at_once(timers):
    """Three of five nodes report a change right after a look."""
    signal = after_a_look(timers, 0)
    for node in range(3):
        assert not wants_to_look(signal)
        signal.on_remote_change(node, b"x")
    assert wants_to_look(signal)


def test_a_change_that_a_look_has_seen_in_part_is_believed_at_once(timers):
    """Two of five nodes had the next leader's key already when the observer looked, so only one more reports it."""
    signal = after_a_look(timers, 0b00011)
    assert not wants_to_look(signal)
    signal.on_remote_change(2, b"x")
    assert wants_to_look(signal)


def test_a_change_during_a_look_is_believed_at_its_end(timers):
    """The reply of two nodes was older than their reports, and that of a third was newer."""
    signal = ChangeSignal(timers)
    signal.looking()
    signal.on_remote_change(0, b"x")
    signal.on_remote_change(1, b"x")
    assert not wants_to_look(signal)
    signal.looked(0b00100)
    assert wants_to_look(signal)


def test_a_minority_causes_few_looks(timers):
    """Whatever two nodes say and report, the observer looks once in 50 ms."""
    looks = 0
    signal = after_a_look(timers, 0b00011)
    for _ in range(1000):
        timers.forward(0.001)
        signal.on_remote_change(0, b"x")
        signal.on_remote_change(1, b"x")
        if wants_to_look(signal):
            looks += 1
            signal.looking()
            signal.looked(0b00011)
    assert 15 <= looks <= 21


def test_a_report_after_a_while_is_looked_at_immediately(timers):
    """Only the next look has to wait."""
    signal = after_a_look(timers, 0)
    timers.forward(0.06)
    signal.on_remote_change(4, b"x")
    assert wants_to_look(signal)
