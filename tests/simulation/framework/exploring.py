"""What all programs share that carry out very many simulations: on all cores, and what came of them added up."""

import logging
import multiprocessing
import os
import time
from dataclasses import dataclass, field, fields

from schedules import Clients

CORES = os.cpu_count() or 1


@dataclass
class Findings:
    """What came of some; a kind of its own adds what it counts."""

    seconds: float = 0.0
    """On the clock, for all of them together."""
    failures: list = field(default_factory=list)

    def __iadd__(self, other):
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))
        return self


class Worker:
    """Carries out one after the other in this process."""

    def __init__(self):
        logging.getLogger("redlock_async").disabled = True  # every fresh cluster would be warned of
        self._clients = Clients()


def pool():
    """A process for each core."""
    return multiprocessing.get_context("spawn").Pool(CORES)


def on_all_cores(explore, shares, found, told=None):
    """What `explore` finds in each of those shares, added to `found`; `told` hears of it after each of them."""
    started = time.monotonic()
    with pool() as processes:
        for part in processes.imap_unordered(explore, shares):
            found += part
            if told is not None:
                told(found)
    found.seconds = time.monotonic() - started
    return found
