"""What a process of faults.py writes down."""

import asyncio
import sys
from pathlib import Path

import pytest

from redlock_async import Redlock
from redlock_async._kinds.fair_queue import FairWaiters
from redlock_async._runtime.acquisition import Acquisition

sys.path.insert(0, str(Path(__file__).parent))

import faults_client


class Notes:
    """A witness that only keeps what it notes."""

    def __init__(self):
        self.of_who_queues = []

    def note(self, what, **details):
        self.of_who_queues.append((what, details))


@pytest.mark.asyncio
@pytest.mark.parametrize("has_quorum", [True, False])
async def test_only_who_has_sent_its_entry_is_noted_as_queued(nodes, monkeypatch, has_quorum):
    """After a long cut a waiter asks without its entry until a heartbeat has reached a majority: it has no place."""
    monkeypatch.setattr(Acquisition, "_wait_for_retry", Acquisition._wait_for_retry)  # put back afterwards
    monkeypatch.setattr(FairWaiters, "has_quorum", has_quorum)
    notes, refused = Notes(), asyncio.Event()
    faults_client.note_who_queues(notes)
    noted = Acquisition._wait_for_retry

    async def refused_in_the_queue(self):
        if self._attempt._entry is not None:
            refused.set()
        return await noted(self)

    monkeypatch.setattr(Acquisition, "_wait_for_retry", refused_in_the_queue)

    async def wait(client):
        faults_client.ASKING.set((7, "fair"))
        async with client.fair_lock("x"):
            pass

    async with Redlock(nodes) as holder, Redlock(nodes) as waiter:
        async with holder.fair_lock("x"):
            waiting = asyncio.create_task(wait(waiter))
            told = asyncio.create_task(refused.wait())
            await asyncio.wait([waiting, told], return_when=asyncio.FIRST_COMPLETED)
            told.cancel()
        await waiting
    assert notes.of_who_queues == ([("queued", {"id": 7})] if has_quorum else [])
