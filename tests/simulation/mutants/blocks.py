"""Mutants of the rules for cancelling a block."""

import math
from unittest.mock import patch

from framework.breaking import mutant

from redlock_async import _runtime


@mutant("suspends")
def leases_are_left_to_timers():
    """Timers stand still while the machine is suspended."""
    with patch.object(_runtime.renewal, "LONGEST_SLEEP", math.inf):
        yield


@mutant("blocks")
def a_block_is_cancelled_only_once():
    """A block that swallows the cancellation, or cleans up for long, outlives its lease."""
    with patch.object(_runtime.block, "FINAL_CANCEL_FRACTION", 1e9):
        yield


@mutant("blocks")
def a_block_is_cancelled_again_and_again_from_the_start():
    """A block is cancelled on every iteration of the loop, including its cleanup."""
    with patch.object(_runtime.block, "FINAL_CANCEL_FRACTION", 0.0):
        yield


@mutant("blocks")
def a_cancellation_of_ours_is_not_taken_back():
    """The task still looks cancelled after its block."""

    def take_back(self):
        if self._timer is not None:
            self._timer.cancel()
        return bool(self._cancels)

    with patch.object(_runtime.block.GuardedBlock, "_take_back_cancellations", take_back):
        yield


@mutant("blocks", "suspends")
def a_block_is_cancelled_behind_its_end():
    """The timer that cancels a block again continues after its end."""

    def take_back(self):
        for _ in range(self._cancels):
            self.task.uncancel()
        return bool(self._cancels) and self.task.cancelling() <= self._before

    with patch.object(_runtime.block.GuardedBlock, "_take_back_cancellations", take_back):
        yield
