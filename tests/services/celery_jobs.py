"""The jobs of a Celery worker, as on docs/workers.md, and a journal of who was inside when."""

import os
import time
from pathlib import Path

from celery import Celery
from celery.exceptions import SoftTimeLimitExceeded
from celery.signals import worker_init

from redlock_async import LockLost
from redlock_async.blocking import redlock

JOURNAL = Path(os.environ["JOURNAL"])

app = Celery("jobs", broker=os.environ["BROKER"], backend=os.environ["BROKER"])
app.conf.worker_prefetch_multiplier = 1


def note(what):
    """One line, by this process."""
    with JOURNAL.open("a") as journal:
        journal.write(f"{what} {os.getpid()}\n")


@worker_init.connect
def use_it_before_the_fork(**_):
    """The pool's processes are forked after this: each must get a loop and connections of its own."""
    with redlock("warm"):
        note("warm")


@app.task
@redlock.locked("import:{user}", wait=30)
def import_user(user):
    """One at a time for each user."""
    note(f"begin {user}")
    time.sleep(0.02)
    note(f"end {user}")
    return os.getpid()


@app.task
def encode(video, ticket):
    """Work under a lease that whoever sent the job has acquired."""
    try:
        with redlock.attach(ticket) as lease:
            note(f"encode {video}")
            return lease.fencing_token
    except LockLost:
        return None


@app.task(soft_time_limit=1)
def waits_for_too_long():
    """The limit ends the waiting."""
    try:
        with redlock("held", wait=None):
            return "had it"
    except SoftTimeLimitExceeded:
        while redlock.statistics().waiting:
            time.sleep(0.01)
        return "nobody waits any more"
