"""The demo's masters: what the demo does to them, and how the library sees them; it draws nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

import redlock_async
from redlock_async.testing import LocalCluster

LOOK_EVERY = 0.1
PATIENCE = 5.0
"""Seconds the demo waits at its end for a master to be seen again."""


@dataclass(slots=True)
class Master:
    """One of them."""

    number: int
    address: str
    deed: str = ""
    """What the demo has done to it."""
    back: asyncio.Event = field(default_factory=asyncio.Event)
    """Whether the library has found it again since it was restarted."""
    status: redlock_async.NodeStatus | None = None
    """What the library says of it."""
    votes_at: float = 0.0
    """When its votes count again, once it came back without its data."""

    @property
    def state(self) -> str:
        """In a word or two, as the library sees it."""
        if self.status is None:
            return ""
        if self.status.votes:
            return "up"
        return "held out" if self.status.up else "down"

    @property
    def detail(self) -> str:
        """What there is to say about that."""
        if self.status is None:
            return ""
        if self.state == "held out":
            return f"{max(self.votes_at - time.monotonic(), 0.0):.1f} s left, for it lost its data"
        if self.state == "up" and self.status.latency is not None:
            return f"answers in {self.status.latency * 1000:.1f} ms"
        error = self.status.error or ""
        return "refuses connections" if "Connect call failed" in error else error  # asyncio's own words are longer


class Masters:
    """All of them, through a client of the demo's own."""

    def __init__(self, cluster: LocalCluster, redlock: redlock_async.Redlock) -> None:
        self._cluster = cluster
        self._redlock = redlock
        self.all = [Master(number, url.removeprefix("redis://")) for number, url in enumerate(cluster.urls, 1)]
        self._by_label = {master.address: master for master in self.all}

    @property
    def voting(self) -> int:
        """How many have a vote now."""
        return sum(master.state == "up" for master in self.all)

    async def watch(self, tell: Callable[[str], object]) -> None:
        """Ask the library again and again, and pass on what it reports by itself."""
        self._redlock.on_event(lambda event: self._happened(event, tell))
        while True:
            for status in await self._redlock.status():
                self._by_label[status.label].status = status
            await asyncio.sleep(LOOK_EVERY)

    async def seen_again(self, index: int) -> None:
        """Wait until the library has found the restarted master: the end of the story, however quick the rest."""
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                await self.all[index].back.wait()

    def kill(self, index: int) -> str:
        """SIGKILL it; returns what was done, as does each of these."""
        self._cluster.kill(index)
        return self._did(index, "KILLED", "killed master {} (SIGKILL): its data is gone")

    def freeze(self, index: int) -> str:
        """SIGSTOP it."""
        self._cluster.pause(index)
        return self._did(index, "FROZEN", "froze master {} (SIGSTOP): it connects but never answers")

    def thaw(self, index: int) -> str:
        """SIGCONT it."""
        self._cluster.resume(index)
        return self._did(index, "resumed", "resumed master {} (SIGCONT)")

    def restart(self, index: int) -> str:
        """Start it again."""
        self._cluster.restart(index)
        return self._did(index, "restarted", "restarted master {}, empty: it must not vote at once")

    def _did(self, index: int, deed: str, text: str) -> str:
        self.all[index].deed = deed
        return text.format(index + 1)

    def _happened(self, event: redlock_async.Event, tell: Callable[[str], object]) -> None:
        """What the library reports."""
        master = self._by_label.get(event.node or "")
        if master is None:
            return
        if event.kind == "node_held_out" and event.seconds is not None:
            master.votes_at = time.monotonic() + event.seconds
            tell(f"master {master.number} is held out of the vote for {event.seconds:.1f} s")
        elif event.kind == "node_down":
            tell(f"master {master.number} is down: {event.error}")
        elif event.kind == "node_up":
            if master.deed == "restarted":
                master.back.set()
            tell(f"master {master.number} is up")
