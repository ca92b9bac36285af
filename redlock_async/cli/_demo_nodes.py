"""The demo's nodes: the faults that the demo causes, and how the library sees each node; this module draws nothing."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace

import redlock_async
from redlock_async.testing import LocalCluster

POLL_INTERVAL = 0.1
RECOVERY_TIMEOUT = 10.0
"""Seconds the demo waits at its end until the library has quarantined a restarted node."""


@dataclass(slots=True)
class DemoNode:
    """One node."""

    number: int
    address: str
    action: str = ""
    """The last thing that the demo did to the node."""
    quarantined: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the library has found that the node lost its data."""
    status: redlock_async.NodeStatus | None = None
    """The node as the library reports it."""
    votes_at: float = 0.0
    """When its votes count again after it came back without its data."""

    @property
    def state(self) -> str:
        """The state in a word, as the library sees it."""
        if self.status is None:
            return ""
        if self.status.can_vote:
            return "up"
        return "quarantined" if self.status.up else "down"

    def update(self, status: redlock_async.NodeStatus) -> None:
        """Store a result of `Redlock.status`, unless it says that the node came or went: only an event changes that."""
        if self.status is None or self.status.up == status.up:
            self.status = status

    def set_up(self, *, up: bool, error: str | None = None) -> None:
        """Apply an event immediately, so that the table does not contradict it until the next `Redlock.status`."""
        if self.status is not None:
            can_vote = up and time.monotonic() >= self.votes_at
            self.status = replace(self.status, up=up, can_vote=can_vote, latency=None, error=error)

    @property
    def detail(self) -> str:
        """An explanation of the state."""
        if self.status is None:
            return ""
        if self.state == "quarantined":
            left = max(self.votes_at - time.monotonic(), 0.0)
            return "it lost its data" if left == math.inf else f"{left:.1f} s left: it lost its data"
        if self.state == "up" and self.status.latency is not None:
            return f"answers in {self.status.latency * 1000:.1f} ms"
        error = self.status.error or ""
        return "refuses connections" if "Connect call failed" in error else error  # asyncio's own text is too long


class DemoNodes:
    """All nodes, observed through a client of the demo's own."""

    def __init__(self, cluster: LocalCluster, redlock: redlock_async.Redlock) -> None:
        self._cluster = cluster
        self._redlock = redlock
        self.all = [DemoNode(number, url.removeprefix("redis://")) for number, url in enumerate(cluster.urls, 1)]
        self._by_label = {node.address: node for node in self.all}

    @property
    def voting(self) -> int:
        """How many nodes can vote now."""
        return sum(node.state == "up" for node in self.all)

    async def watch(self, report: Callable[[str], object]) -> None:
        """Poll the library for the state of the nodes, and report its events."""
        self._redlock.on_event(lambda event: self._on_event(event, report))
        while True:
            for status in await self._redlock.status():
                self._by_label[status.label].update(status)
            await asyncio.sleep(POLL_INTERVAL)

    async def wait_until_quarantined(self, index: int) -> None:
        """Wait until the library has quarantined the restarted node: the demo shows that even if it ends early."""
        with suppress(TimeoutError):
            async with asyncio.timeout(RECOVERY_TIMEOUT):
                await self.all[index].quarantined.wait()

    def kill(self, index: int) -> str:
        """Send SIGKILL to the node; like the next three methods, return a description of the fault."""
        self._cluster.kill(index)
        return self._did(index, "KILLED", "killed node {} (SIGKILL): its data is gone")

    def freeze(self, index: int) -> str:
        """Send SIGSTOP to the node."""
        self._cluster.pause(index)
        return self._did(index, "FROZEN", "froze node {} (SIGSTOP): it accepts connections but never answers")

    def thaw(self, index: int) -> str:
        """Send SIGCONT to the node."""
        self._cluster.resume(index)
        return self._did(index, "resumed", "resumed node {} (SIGCONT)")

    def restart(self, index: int) -> str:
        """Start the node again, without its data."""
        self._cluster.restart(index)
        return self._did(index, "restarted", "restarted node {} without its data: it must not vote yet")

    def _did(self, index: int, action: str, text: str) -> str:
        self.all[index].action = action
        return text.format(index + 1)

    def _on_event(self, event: redlock_async.Event, report: Callable[[str], object]) -> None:
        node = self._by_label.get(event.node or "")
        if node is None:
            return
        if event.kind == "node_quarantined":
            # For how long is unknown until a process that locks has written to the node.
            seconds = math.inf if event.seconds is None else event.seconds
            node.votes_at = time.monotonic() + seconds
            node.set_up(up=True)
            node.quarantined.set()
            duration = "" if seconds == math.inf else f" for {seconds:.1f} s"
            report(f"node {node.number} is quarantined{duration}: its vote does not count")
        elif event.kind == "node_down":
            node.set_up(up=False, error=str(event.error))
            report(f"node {node.number} is down: {event.error}")
        elif event.kind == "node_up":
            node.set_up(up=True)
            report(f"node {node.number} is up")
