"""Mutants of the rules for nodes that send endless change reports or replies."""

import math
from unittest.mock import patch

from framework.breaking import mutant

from redlock_async import _rules, _runtime, _transport


@mutant("noisy")
def no_pause_between_checks():
    """Every report about a lease is followed up, without a limit."""
    with patch.object(_runtime.renewal, "RATE_LIMIT", 0.0):
        yield


@mutant("noisy")
def a_node_is_asked_for_its_age_each_time_it_reports_a_flush():
    """Each report of a flush makes the client ask for the age of the node's data."""
    with patch.object(_transport.calm, "RATE_LIMIT", 0.0):
        yield


@mutant("noisy")
def any_bytes_revive():
    """A part of a reply counts as an answer."""
    updated = _transport.connection.Connection.buffer_updated

    def revived(self, nbytes):
        if self.hung and self.ended is None:
            self.hung = False
            self._gets = self._reader.gets
            self._owner.revived(self)
        updated(self, nbytes)

    with patch.object(_transport.connection.Connection, "buffer_updated", revived):
        yield


@mutant("noisy")
def a_reply_without_end_is_read():
    """A reply is read at any length."""
    with patch.object(_transport.connection, "LARGEST_REPLY", math.inf):
        yield


@mutant("noisy")
def labels_are_shown_as_they_are():
    """Labels are shown with all their control characters."""
    with patch.object(_rules.token, "label_of", lambda label, _most: label.decode("utf-8", "replace")):
        yield
