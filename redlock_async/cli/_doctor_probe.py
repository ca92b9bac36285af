"""Collect what `doctor` needs to know about a cluster, and try every kind of lock with test keys, which are removed."""

from __future__ import annotations

import asyncio
import inspect
import secrets
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import Any

import redlock_async
from redlock_async._rules.keys import Keys
from redlock_async._rules.settings import from_environment

from ._cleanup_keys import cleanup_keys
from ._node_view import by_node, count_votes

ROUND_TRIPS = 10
"""Round trips that are measured."""

NAME = "trial"
TTL = 2.0
"""Seconds of each lease: a killed doctor leaves names locked for at most this long."""

RETENTION = 0.05
"""Seconds for which the latch is kept: it is no string, so it cannot be force-released, but it expires."""

QUEUEING = 0.05
"""Seconds of waiting for a fair lock that is held."""

CLEANUP_TIMEOUT = 5.0
"""Seconds that removing the test keys may take."""


@dataclass(slots=True)
class Findings:
    """The facts about a cluster."""

    node_count: int
    """The number of URLs that were given."""
    node_timeout: float
    ttl: float
    quorum: int
    """How many nodes must grant a lock, as this command is configured."""
    duplicates: list[str] = field(default_factory=list)
    """Error messages about URLs that were given more than once."""
    nodes: Sequence[redlock_async.NodeStatus] = ()
    latencies: dict[str, list[float]] = field(default_factory=dict)
    """For each node, the seconds of each round trip."""
    refused: dict[str, dict[str, str]] | None = None
    """For each node, what cannot be done there, and why; None: nothing was tried."""
    leftovers: str | None = None
    """Why test keys may be left, and how to find them."""

    @property
    def same_server(self) -> list[list[str]]:
        """Groups of nodes that are the same server, by its run id."""
        by_run: dict[str, list[str]] = {}
        for node in self.nodes:
            if node.run_id is not None:
                by_run.setdefault(node.run_id, []).append(node.label)
        return [labels for labels in by_run.values() if len(labels) > 1]

    @property
    def usable(self) -> bool:
        """Whether services can acquire locks there."""
        independent = not self.duplicates and not self.same_server
        fit = not any(is_replica(node) or is_clustered(node) for node in self.nodes)
        votes, quorum = count_votes(self.nodes, self.quorum)
        return independent and fit and votes >= quorum


def is_replica(node: redlock_async.NodeStatus) -> bool:
    """Return whether the server says that it is a replica; False if it does not say."""
    return node.role not in {None, "master"}


def is_clustered(node: redlock_async.NodeStatus) -> bool:
    """Return whether the server says that it is a Sentinel, or part of a cluster that is no node; False otherwise."""
    return node.mode not in {None, "standalone"} and node.cluster is None


async def examine(environ: Mapping[str, str], prefix: str) -> Findings:
    """Query the nodes, try every kind of lock on them, and return the findings."""
    given, options = from_environment(environ)
    urls, duplicates = _without_duplicates(environ, given)
    if duplicates:
        environ = {**environ, "REDLOCK_QUORUM": ""}  # there may be too few nodes for it
    redlock = redlock_async.Redlock.from_env(_with_nodes(environ, urls))
    defaults = inspect.signature(redlock_async.Redlock).parameters
    node_timeout, ttl = (options.get(option, defaults[option].default) for option in ("node_timeout", "ttl"))
    findings = Findings(len(given), node_timeout, ttl, redlock.statistics().quorum, duplicates)
    async with aclosing(redlock):
        for _ in range(ROUND_TRIPS):
            findings.nodes = await redlock.status()
            for node in findings.nodes:
                if node.latency is not None:
                    findings.latencies.setdefault(node.label, []).append(node.latency)
        if findings.usable:
            await Trial(redlock, environ, urls, prefix, findings).run()
    return findings


def _with_nodes(environ: Mapping[str, str], urls: Sequence[str]) -> dict[str, str]:
    return {**environ, "REDLOCK_NODES": ",".join(urls)}


def _without_duplicates(environ: Mapping[str, str], given: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the URLs that a client accepts together, and its messages about the others."""
    urls: list[str] = []
    messages: list[str] = []
    environ = {**environ, "REDLOCK_QUORUM": ""}  # which is not for so few nodes
    for url in given:
        redlock_async.Redlock.from_env(_with_nodes(environ, [url]))  # raises if the URL itself is wrong
        try:
            redlock_async.Redlock.from_env(_with_nodes(environ, [*urls, url]))
        except redlock_async.ConfigurationError as error:
            messages.append(str(error))
        else:
            urls.append(url)
    return urls, messages


class Trial:
    """Tries every kind of lock on each node separately: a quorum would hide what a single node refuses.

    It uses a namespace of its own, so it does not meet the services' locks and writes nothing false about the cluster.
    """

    def __init__(
        self,
        redlock: redlock_async.Redlock,
        environ: Mapping[str, str],
        urls: Sequence[str],
        prefix: str,
        findings: Findings,
    ) -> None:
        self._redlock = redlock
        self._urls = urls
        self._findings = findings
        self._prefix = f"{prefix}{secrets.token_hex(4)}:"
        self._keys = Keys(environ.get("REDLOCK_NAMESPACE", "").strip() + self._prefix)
        self._environ = {
            **environ,
            "REDLOCK_NAMESPACE": self._keys.namespace,
            "REDLOCK_OWNER": "redlock-async doctor",
            "REDLOCK_TTL": str(TTL),
            "REDLOCK_WAIT": "0",
            "REDLOCK_QUORUM": "",  # each node is tried separately
            "REDLOCK_STRICT_RESTART": "false",  # the namespace is new, so no node lost data
        }

    async def run(self) -> None:
        """Try the locks, and remove the test keys."""
        try:
            found = zip(by_node(self._findings.nodes).values(), self._urls, strict=True)
            voting = [(servers, url) for servers, url in found if all(node.can_vote for node in servers)]
            refused = await asyncio.gather(*(self._try_node(url) for _, url in voting))
            self._findings.refused = {
                node.label: reasons for (servers, _), reasons in zip(voting, refused, strict=True) for node in servers
            }
        finally:
            await self._clean()

    async def _try_node(self, url: str) -> dict[str, str]:
        """Return what that node refuses, and why."""
        refused: dict[str, str] = {}
        async with aclosing(redlock_async.Redlock.from_env(_with_nodes(self._environ, [url]))) as redlock:
            for operation, attempt in OPERATIONS.items():
                try:
                    await attempt(redlock)
                except redlock_async.QuorumUnavailable as error:
                    refused[operation] = str(next(iter(error.nodes.values()), error))
                except redlock_async.RedlockError as error:
                    refused[operation] = str(error)
        return refused

    async def _clean(self) -> None:
        """Delete every key that the trial wrote; `force_release` deletes a key on all nodes."""
        *_, ticket = self._keys.queue(NAME)
        permits, _ = self._keys.semaphore(NAME)
        try:
            async with asyncio.timeout(CLEANUP_TIMEOUT):
                for key in cleanup_keys(self._keys, [NAME], ticket, permits, nodes=self._findings.nodes):
                    await self._redlock.force_release(self._prefix + key)
        except (redlock_async.RedlockError, TimeoutError) as error:
            reason = str(error) or f"no answer within {CLEANUP_TIMEOUT:g} s"
            self._findings.leftovers = f"{reason}; to list them: redis-cli --scan --pattern '{self._keys.namespace}*'"


async def _lock(redlock: redlock_async.Redlock) -> None:
    async with redlock(NAME) as lease:
        await lease.extend()


async def _fair(redlock: redlock_async.Redlock) -> None:
    async with redlock.fair_lock(NAME):
        with suppress(redlock_async.LockTimeout):  # expected: the wait only tests the rights that the queue needs
            await redlock.fair_lock(NAME).acquire(wait=QUEUEING)


async def _shared(redlock: redlock_async.Redlock) -> None:
    async with redlock.read_lock(NAME, fencing=False):
        pass
    async with redlock.write_lock(NAME, fencing=False):
        pass


async def _semaphore(redlock: redlock_async.Redlock) -> None:
    async with redlock.semaphore(NAME, permits=1, fencing=False):
        pass


async def _latch(redlock: redlock_async.Redlock) -> None:
    latch = redlock.latch(NAME, count=1, retention=RETENTION)
    await latch.count_down("tried")
    await latch.remaining()


async def _list(redlock: redlock_async.Redlock) -> None:
    await redlock.list_locks()


LOCK = "locks"
OPERATIONS: dict[str, Callable[[redlock_async.Redlock], Coroutine[Any, Any, None]]] = {
    LOCK: _lock,
    "fair locks": _fair,
    "read-write locks": _shared,
    "semaphores": _semaphore,
    "latches": _latch,
    "listing locks": _list,
}
"""The operations that are tried, by the words for them in the report."""
