"""What `doctor` asks a cluster, and tries on it with keys of its own, which it removes again; it judges nothing."""

from __future__ import annotations

import asyncio
import inspect
import secrets
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import Any

import redlock_async

from ._node_view import needed, voting
from ._traces import RESERVED, traces

LOOKS = 10
"""Round trips that are measured."""

NAME = "trial"
TTL = 2.0
"""Seconds of each lease: what a killed doctor leaves locked is free that soon."""

RETENTION = 0.05
"""Seconds that a latch is kept: it is no string, which could be freed by force, and goes by itself."""

QUEUEING = 0.05
"""Seconds of waiting for a fair lock that is held."""

CLEANING = 5.0
"""Seconds that cleaning up may take."""


@dataclass(slots=True)
class Findings:
    """What a cluster is like."""

    given: int
    """URLs."""
    node_timeout: float
    ttl: float
    twice: list[str] = field(default_factory=list)
    """What is wrong with URLs that were given more than once."""
    nodes: Sequence[redlock_async.NodeStatus] = ()
    latencies: dict[str, list[float]] = field(default_factory=dict)
    """Of each master: seconds of each round trip."""
    refused: dict[str, dict[str, str]] | None = None
    """Of each master: what cannot be done there, and why; None: nothing was tried."""
    left: str | None = None
    """How to find what may be left of the trial."""

    @property
    def twins(self) -> list[list[str]]:
        """Masters that are one server, by its run id."""
        by_run: dict[str, list[str]] = {}
        for node in self.nodes:
            if node.run_id is not None:
                by_run.setdefault(node.run_id, []).append(node.label)
        return [labels for labels in by_run.values() if len(labels) > 1]

    @property
    def usable(self) -> bool:
        """Whether services can take locks there."""
        apart = not self.twice and not self.twins
        masters = all(node.role in {None, "master"} and node.mode in {None, "standalone"} for node in self.nodes)
        return apart and masters and voting(self.nodes) >= needed(self.nodes)


async def examine(environ: Mapping[str, str], prefix: str) -> Findings:
    """All of it."""
    urls = [url.strip() for url in environ["REDLOCK_NODES"].split(",") if url.strip()]
    once, twice = _once(environ, urls)
    redlock = redlock_async.Redlock.from_env(_over(environ, once))
    found = Findings(len(urls), _seconds(environ, "node_timeout"), _seconds(environ, "ttl"), twice)
    async with aclosing(redlock):
        for _ in range(LOOKS):
            found.nodes = await redlock.status()
            for node in found.nodes:
                if node.latency is not None:
                    found.latencies.setdefault(node.label, []).append(node.latency)
        if found.usable:
            await Trial(redlock, environ, once, prefix, found).hold()
    return found


def _over(environ: Mapping[str, str], urls: Sequence[str], **more: str) -> dict[str, str]:
    return {**environ, "REDLOCK_NODES": ",".join(urls), **more}


def _once(environ: Mapping[str, str], urls: Sequence[str]) -> tuple[list[str], list[str]]:
    """Those that can be one client's, and what it says of the others."""
    once: list[str] = []
    twice: list[str] = []
    for url in urls:
        redlock_async.Redlock.from_env(_over(environ, [url]))  # what is wrong with it alone is the caller's mistake
        try:
            redlock_async.Redlock.from_env(_over(environ, [*once, url]))
        except redlock_async.ConfigurationError as error:
            twice.append(str(error))
        else:
            once.append(url)
    return once, twice


def _seconds(environ: Mapping[str, str], option: str) -> float:
    """As the client has read it."""
    text = environ.get(f"REDLOCK_{option.upper()}", "").strip()
    return float(text or inspect.signature(redlock_async.Redlock).parameters[option].default)


class Trial:
    """Every kind of lock, on each master by itself: a quorum would hide what one of them refuses.

    With a namespace of its own, so that it neither meets the services' locks nor tells a master anything about the
    cluster that is not so.
    """

    def __init__(
        self,
        redlock: redlock_async.Redlock,
        environ: Mapping[str, str],
        urls: Sequence[str],
        prefix: str,
        found: Findings,
    ) -> None:
        self._redlock = redlock
        self._urls = urls
        self._found = found
        self._prefix = f"{prefix}{secrets.token_hex(4)}:"
        self._namespace = environ.get("REDLOCK_NAMESPACE", "").strip() + self._prefix
        self._environ = {
            **environ,
            "REDLOCK_NAMESPACE": self._namespace,
            "REDLOCK_OWNER": "redlock-async doctor",
            "REDLOCK_TTL": str(TTL),
            "REDLOCK_WAIT": "0",
            "REDLOCK_STRICT_RESTART": "false",  # the namespace is new: nobody lost anything
        }

    async def hold(self) -> None:
        """Try, and remove what it leaves."""
        try:
            there = [(node, url) for node, url in zip(self._found.nodes, self._urls, strict=True) if node.votes]
            refused = await asyncio.gather(*(self._on(url) for _, url in there))
            self._found.refused = {node.label: why for (node, _), why in zip(there, refused, strict=True)}
        finally:
            await self._clean()

    async def _on(self, url: str) -> dict[str, str]:
        """What that master refuses."""
        refused: dict[str, str] = {}
        async with aclosing(redlock_async.Redlock.from_env(_over(self._environ, [url]))) as redlock:
            for what, attempt in KINDS.items():
                try:
                    await attempt(redlock)
                except redlock_async.QuorumUnavailable as error:
                    refused[what] = str(next(iter(error.nodes.values()), error))
                except redlock_async.RedlockError as error:
                    refused[what] = str(error)
        return refused

    async def _clean(self) -> None:
        """Delete every key these clients have made, which is what releasing a lock by force does."""
        names = [NAME, f"{RESERVED}ticket:{{{NAME}}}", f"{RESERVED}semaphore:{{{NAME}}}"]
        try:
            async with asyncio.timeout(CLEANING):
                for key in traces(self._namespace, names):
                    await self._redlock.force_release(self._prefix + key)
        except (redlock_async.RedlockError, TimeoutError) as error:
            self._found.left = f"{error}; to see it: redis-cli --scan --pattern '{self._namespace}*'"


async def _lock(redlock: redlock_async.Redlock) -> None:
    async with redlock(NAME) as lease:
        await lease.extend()


async def _fair(redlock: redlock_async.Redlock) -> None:
    async with redlock.fair(NAME):
        with suppress(redlock_async.LockTimeout):  # as it must be; only who waits needs the rights for the queue
            await redlock.fair(NAME).acquire(wait=QUEUEING)


async def _shared(redlock: redlock_async.Redlock) -> None:
    async with redlock.read(NAME, fencing=False):
        pass
    async with redlock.write(NAME, fencing=False):
        pass


async def _semaphore(redlock: redlock_async.Redlock) -> None:
    async with redlock.semaphore(NAME, permits=1, fencing=False):
        pass


async def _latch(redlock: redlock_async.Redlock) -> None:
    latch = redlock.latch(NAME, count=1, retention=RETENTION)
    await latch.count_down("tried")
    await latch.remaining()


async def _listed(redlock: redlock_async.Redlock) -> None:
    await redlock.locks()


LOCK = "locks"
KINDS: dict[str, Callable[[redlock_async.Redlock], Coroutine[Any, Any, None]]] = {
    LOCK: _lock,
    "fair locks": _fair,
    "read-write locks": _shared,
    "semaphores": _semaphore,
    "latches": _latch,
    "listing locks": _listed,
}
"""What is tried, in the words for it."""
