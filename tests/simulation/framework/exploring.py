"""Runs many simulations on all cores and adds up their results, for both programs."""

import logging
import multiprocessing
import os
import time
from dataclasses import dataclass, field, fields

from framework.schedules import Clients

CORES = os.cpu_count() or 1


@dataclass
class Findings:
    """Results that can be added up. Subclasses add their own counters."""

    seconds: float = 0.0
    """The elapsed time of the whole run."""
    failures: list = field(default_factory=list)

    def __iadd__(self, other):
        for counter in fields(self):
            setattr(self, counter.name, getattr(self, counter.name) + getattr(other, counter.name))
        return self


class Worker:
    """Runs one simulation after the other in this process, with the same clients."""

    def __init__(self):
        logging.getLogger("redlock_async").disabled = True  # every new cluster would log a warning
        self._clients = Clients()


def pool():
    """A process pool with one process per core."""
    return multiprocessing.get_context("spawn").Pool(CORES)


def on_all_cores(explore, shares, found, progress=None):
    """Call `explore` for each share on all cores and add the results to `found`. `progress` is called after each."""
    started = time.monotonic()
    with pool() as processes:
        for part in processes.imap_unordered(explore, shares):
            found += part
            if progress is not None:
                progress(found)
    found.seconds = time.monotonic() - started
    return found
