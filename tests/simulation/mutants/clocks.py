"""Mutants of the rules about the nodes' wall clocks."""

import math
from dataclasses import replace
from unittest.mock import patch

from framework.breaking import mutant

from redlock_async._rules import clock_steps
from redlock_async._rules.clock_steps import Comparison, Finding
from redlock_async._transport import clock_watch
from redlock_async._transport.clock_watch import ClockWatch
from redlock_async._transport.electorate import Electorate


def _comparing(change):
    """Compare the clocks in another way; `change` gets the real function."""
    return patch.object(clock_watch, "compare", change(clock_steps.compare))


@mutant("clocks")
def a_grant_counts_whatever_the_clock_shows():
    """A grant counts although the node's clock was stepped."""

    def always(*_):
        return True

    real = ClockWatch.__init__

    def init(self, nodes, *rest):
        real(self, nodes, *rest)
        self.low, self.high = [-math.inf] * len(nodes), [math.inf] * len(nodes)

    nothing = patch.object(ClockWatch, "_close_window", lambda *_: None)
    with patch.object(ClockWatch, "__init__", init), patch.object(ClockWatch, "accepts", always), nothing:
        yield


@mutant("clocks")
def a_new_client_compares_no_notes():
    """A client knows only the clocks that it has read itself."""
    with _comparing(lambda real: lambda readings, _notes, *rest: real(readings, {}, *rest)):
        yield


@mutant("clocks")
def a_step_back_is_no_step():
    """Only clocks that are set forward count as stepped."""

    def compare(real):
        def forward(*arguments):
            found = real(*arguments)
            back = {node for node, step in found.steps.items() if step < 0}
            steady = found.findings | dict.fromkeys(back, Finding.STEADY)
            return Comparison(steady, found.confirmed, {node: by for node, by in found.steps.items() if by > 0})

        return forward

    with _comparing(compare):
        yield


@mutant("clocks")
def a_step_is_not_recorded():
    """The client that sees a step does not count the node's votes, and tells nobody."""
    with patch.object(Electorate, "report_step", lambda *_: None):
        yield


@mutant("clocks")
def holders_wait_until_it_is_clear_whose_clock_was_stepped():
    """While too few nodes answer to tell whose clock was stepped, a holder relies on all of them."""
    real = ClockWatch.refresh

    def refresh(self, *, holding=False):  # noqa: ARG001 - the real signature
        real(self)

    with patch.object(ClockWatch, "refresh", refresh):
        yield


@mutant("clocks")
def clocks_in_doubt_stay_in_doubt():
    """While too few nodes answer to tell whose clock was stepped, no lock can be taken."""
    with patch.object(clock_watch, "IN_DOUBT_FOR", math.inf):
        yield


@mutant("clocks")
def a_plain_set_tells_no_time():
    """Without fencing, a grant counts before the node's clock is known."""
    with patch.object(ClockWatch, "sample", lambda _: None):
        yield


@mutant("clocks")
def renewals_read_no_clock():
    """Only those who acquire compare the clocks."""
    with patch.object(ClockWatch, "refresh_if_older", lambda *_, **__: None):
        yield


@mutant("clocks")
def a_comparison_is_relied_on_for_ever():
    """The clocks are compared once."""

    def interval(_ttl):
        return 10_000.0

    with patch.object(clock_watch, "interval", interval):
        yield


@mutant("clocks")
def notes_follow_a_clock_that_is_stepped():
    """A client notes what it reads, although an earlier note contradicts it."""
    real = clock_steps.notes_to_make

    def notes(readings, known, comparison, *rest):
        return real(readings, known, replace(comparison, findings=dict.fromkeys(readings, Finding.STEADY)), *rest)

    with patch.object(clock_watch, "notes_to_make", notes):
        yield


@mutant("clocks")
def drift_is_a_step():
    """Clocks must run at exactly the same rate."""

    def exact(real):
        return lambda readings, notes, voting, _drift, wrong: real(readings, notes, voting, 0.0, wrong)

    with _comparing(exact):
        yield


@mutant("clocks")
def a_note_is_exact():
    """The time from the command to the reply is not taken into account."""
    real = clock_steps.noted

    def noted(*arguments):
        return replace(real(*arguments), error=0.0)

    with patch.object(clock_steps, "noted", noted):
        yield
