"""Mutants of the rules that make lying nodes, wrong clocks and lost registers harmless."""

from contextlib import contextmanager
from unittest.mock import patch

from framework.breaking import mutant

from redlock_async import _kinds, _rounds, _transport
from redlock_async._rules.fencing import AHEAD
from redlock_async.testing.simulation._time import WALL


@contextmanager
def without_limits(*changes):
    """Every script with some words of limits.lua replaced."""
    before = _transport.commands.LUA.joinpath("include", "limits.lua").read_text("utf-8")
    after = before
    for old, new in changes:
        assert old in after, f"{old!r} is not in limits.lua any more"
        after = after.replace(old, new)
    real, changed = _transport.commands.script, {}

    def script(name):
        if name not in changed:
            original = real(name)
            changed[name] = each = _transport.commands.Script.__new__(_transport.commands.Script)
            each.name, each.source = name, original.source.replace(before.encode(), after.encode())
            each.sha = _transport.commands.sha1(each.source, usedforsecurity=False).hexdigest().encode()
        return changed[name]

    with patch.object(_transport.commands, "script", script), patch.object(_transport.node, "script", script):
        yield


@contextmanager
def believing(what):
    """Clients and scripts accept any number of that kind."""
    require = _rounds.round.Round._require_credible

    def careless(self, number, kind):
        if kind != what:
            require(self, number, kind)

    with (
        patch.object(_rounds.round.Round, "_require_credible", careless),
        without_limits(("if tonumber(number) > 0 and", "if true or")),
    ):
        yield


@mutant("liars")
def any_fence_is_believed():
    """The largest reply is the token, at any value, and all registers are raised to it."""
    with believing("fencing token"), patch.object(_transport.electorate, "highest_credible", lambda *_: 2**64):
        yield


@mutant("liars")
def any_ticket_is_believed():
    """The largest reply is the ticket at any value, and nodes continue from it."""
    with believing("ticket"):
        yield


SAID = int(WALL * 1e6) + AHEAD - 10**12
"""One of the numbers of a lying node."""


@mutant("liars")
def fences_are_believed_up_to_a_fixed_year():
    """A lying node raises all registers to a fixed year, and no honest reply is accepted after that."""
    with patch.object(_transport.electorate, "highest_credible", lambda *_: SAID):
        yield


@mutant("liars")
def missing_register_starts_in_the_past():
    """A missing register starts up to a second in the past, for any ttl."""
    with without_limits(
        ("local most = math.min(ttl * 125, 1000000)", "local most = 1000000"),
    ):
        yield


@mutant("liars")
def one_node_opens_a_latch():
    """One node that reports a latch as open is enough."""
    with patch.object(
        _kinds.latch.LatchCount, "complete", lambda self, seen: len(seen.ids) >= self.of or bool(seen.opened_on)
    ):
        yield
