"""Mutants of the rules for elections and their observers."""

from dataclasses import replace
from unittest.mock import patch

from framework.breaking import mutant

from redlock_async import _admin, _runtime, election
from redlock_async._rules.settings import DEFAULT


@mutant("terms")
def observers_believe_a_single_node():
    """One node that names a leader is enough."""
    real = _admin.leader.term_of
    with patch.object(_admin.leader, "term_of", lambda replies, _quorum, known=None: real(replies, 1, known)):
        yield


@mutant("terms")
def observers_report_late_readings():
    """Every other reading is reported, also that of an earlier term from a single node."""
    real = _admin.leader.term_of

    def is_new(self, term):
        token = None if term is None else term.token
        changed, self._reported = token != self._reported, token
        return changed

    with (
        patch.object(_admin.leader.Terms, "is_new", is_new),
        patch.object(_admin.leader, "term_of", lambda replies, _quorum, known=None: real(replies, 1, known)),
    ):
        yield


@mutant("terms")
def observers_look_only_now_and_then():
    """The nodes' reports of changes are ignored."""
    with (
        patch.object(_runtime.change_signal.ChangeSignal, "on_remote_change", lambda *_: None),
        patch.object(_runtime.change_signal.ChangeSignal, "wake", lambda *_: None),
    ):
        yield


@mutant("terms")
def a_client_does_not_observe_itself():
    """Nobody tells the observers of a client that it has been elected: the nodes report that to other clients only."""

    async def silent(self, *, wait=DEFAULT):
        return await super(election.TermLock, self).acquire(wait=wait)

    with patch.object(election.TermLock, "acquire", silent):
        yield


@mutant("terms")
def observers_count_nodes_that_do_not_vote():
    """A key on a node that has lost its data is as good as any, so a candidate that was refused seems to lead."""
    real = _admin.leader.term_of

    def counting_all(replies, quorum, known=None):
        return real([replace(reply, votes=True) for reply in replies], quorum, known)

    with patch.object(_admin.leader, "term_of", counting_all):
        yield
