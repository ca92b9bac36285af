"""The setup of one test: running, empty nodes, environment variables that name them, and unused default clients."""

from __future__ import annotations

import asyncio
import inspect
import os
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from fnmatch import fnmatchcase
from functools import cache
from pkgutil import resolve_name
from typing import Any, Final

from redlock_async import Event, Redlock, redlock
from redlock_async.testing._background import BackgroundLoop
from redlock_async.testing._cluster import LocalCluster
from redlock_async.testing._faults import Faults
from redlock_async.testing._raw import clear_nodes, locked_names

CLOSE_TIMEOUT: Final = 5.0
"""Seconds that closing a client may take."""

RELEASE_GRACE: Final = 0.25
"""Seconds that the last releases may take to reach every node."""

DATA_AGE_US: Final = 86_400_000_000
"""The age of the nodes' data, as their marks give it: one day. Clients log a warning about younger data."""

PLACEHOLDER_URL: Final = "redis://127.0.0.1:6379"
"""Stands for the nodes when options are only validated."""

CLIENT_OPTIONS: Final = tuple(
    name
    for name, parameter in inspect.signature(Redlock).parameters.items()
    if parameter.kind is parameter.KEYWORD_ONLY
)


@dataclass(frozen=True, slots=True)
class MarkerOptions:
    """The arguments of the `redlock` marks on a test. The closest mark wins, argument by argument."""

    nodes: int | None = None
    proxied: bool = False
    allow_locked: str | Sequence[str] = ()
    longest_wait: float | None = None
    """The longest wait for any lock in seconds, even if the lock has its own `wait`."""
    options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, marks: Collection[tuple[tuple[Any, ...], Mapping[str, Any]]]) -> MarkerOptions:
        """Combine the arguments of all marks, the closest first. Raises ValueError for a wrong argument."""
        given: dict[str, Any] = {}
        for positional, named in marks:
            if positional:
                raise ValueError(
                    f"@pytest.mark.redlock takes keyword arguments only, such as nodes=3, got {positional[0]!r}"
                )
            given = {**named, **given}
        own = {name: given.pop(name) for name in ("nodes", "proxied", "allow_locked", "longest_wait") if name in given}
        if unknown := given.keys() - set(CLIENT_OPTIONS):
            raise ValueError(
                f"@pytest.mark.redlock got unknown arguments: {', '.join(sorted(unknown))}. It takes nodes, proxied, "
                f"allow_locked, longest_wait and the options of Redlock: {', '.join(CLIENT_OPTIONS)}"
            )
        nodes = own.get("nodes", 1)
        if not isinstance(nodes, int) or nodes < 1:
            raise ValueError(f"@pytest.mark.redlock: nodes must be a number, 1 or more, got {nodes!r}")
        longest = own.get("longest_wait")
        if isinstance(longest, timedelta):
            longest = own["longest_wait"] = longest.total_seconds()
        if longest is not None and (isinstance(longest, bool) or not isinstance(longest, int | float) or longest < 0):
            raise ValueError(f"@pytest.mark.redlock: longest_wait must be seconds, 0 or more, got {longest!r}")
        options = cls(**own, options=given)
        if given:
            Redlock.from_env(os.environ | options.environment([PLACEHOLDER_URL]))
        return options

    def environment(self, urls: Sequence[str]) -> dict[str, str]:
        """The environment variables that configure every client of the test, including the service's."""
        given = {f"REDLOCK_{option.upper()}": _text(value) for option, value in self.options.items()}
        return given | {"REDLOCK_NODES": ",".join(urls)}

    def allows(self, name: str) -> bool:
        """Whether `name` may stay locked after the test."""
        patterns = [self.allow_locked] if isinstance(self.allow_locked, str) else self.allow_locked
        return any(fnmatchcase(name, pattern) for pattern in patterns)


def shorten_waits(patch: Callable[[str, object], None], longest: float) -> None:
    """Limit every wait for a lock in this process to `longest` seconds, even if the lock has its own `wait`."""
    constructor = "redlock_async._rules.settings.Options.__init__"
    original: Callable[..., None] = resolve_name(constructor.replace(".Options", ":Options"))

    def construct(options: object, *given: object, wait: float | None, **others: object) -> None:
        original(options, *given, wait=longest if wait is None else min(wait, longest), **others)

    patch(constructor, construct)


def _text(value: object) -> str:
    if isinstance(value, timedelta):
        return str(value.total_seconds())
    return str(value)


class NodeSetup:
    """The nodes of one test: the session's, or its own if it needs proxies."""

    def __init__(self, options: MarkerOptions, cluster: LocalCluster | None, session_nodes: int) -> None:
        self.options = options
        self._background: BackgroundLoop | None = None
        self._faults: Faults | None = None
        self._owns_cluster = cluster is None
        if cluster is None:
            self.cluster = LocalCluster(session_nodes if options.nodes is None else options.nodes, proxied=True)
            try:
                self.background.call(self.cluster.start)
            except BaseException:
                self.background.close()
                raise
        elif options.nodes is None or options.nodes <= session_nodes:
            self.cluster = cluster
        else:
            raise ValueError(
                f"@pytest.mark.redlock: nodes must be at most {session_nodes}, got {options.nodes}. Set "
                f"redlock_nodes = {options.nodes} in pytest's configuration to start more"
            )
        self.urls = self.cluster.urls[: options.nodes]
        self._pids = self.cluster.pids
        self._unreleased: list[str] = []

    @property
    def background(self) -> BackgroundLoop:
        """The loop of the proxies and of the second client."""
        if self._background is None:
            self._background = BackgroundLoop()
        return self._background

    @property
    def faults(self) -> Faults:
        """The fault injection of this test."""
        if self._faults is None:
            self._faults = Faults(self.cluster, self.urls, self.background)
        return self._faults

    def prepare(self) -> None:
        """Bring all nodes up and empty them, and reset the default clients."""
        bring_up(self.cluster)
        clear_nodes(self.cluster.ports, _namespace(), data_created_us())
        reset_default_clients()
        self._pids = self.cluster.pids

    def client(self) -> Redlock:
        """Return a client; leases that it still holds when it is closed are reported by `leftovers`."""
        client = Redlock.from_env()
        client.on_event(self._on_event)
        return client

    def _on_event(self, event: Event) -> None:
        if event.kind == "lost" and event.reason == "closed":
            self._unreleased.extend(event.names)

    def leftovers(self) -> str | None:
        """Return a message about the locks that the test did not release, or None."""
        names = dict.fromkeys(self._unreleased, "until its client was closed")
        if not (self._faults is not None and self._faults.faulted) and self.cluster.pids == self._pids:
            names |= {name: f"on {count} of {len(self.urls)} nodes" for name, count in self._still_locked().items()}
        left = ", ".join(f"{name!r} ({where})" for name, where in names.items() if not self.options.allows(name))
        if not left:
            return None
        return (
            f"this test left locked: {left}. Release every lock, best with `async with`. If a lock must stay "
            'locked, mark the test with @pytest.mark.redlock(allow_locked="NAME")'
        )

    def _still_locked(self) -> dict[str, int]:
        bring_up(self.cluster)
        ports, namespace = self.cluster.ports[: self.options.nodes], _namespace()
        give_up_at = time.monotonic() + RELEASE_GRACE
        # A release is complete when a majority has confirmed it; the other nodes may still be executing it.
        while (names := locked_names(ports, namespace)) and time.monotonic() < give_up_at:
            if all(map(self.options.allows, names)):
                break
            time.sleep(0.005)
        return names

    def close(self) -> None:
        """Stop the test's own nodes, or bring up the session's, which other fixtures may still use."""
        with ExitStack() as ends:  # runs all steps even if one fails: a thread that stays would block the exit
            if self._background is not None:
                ends.callback(self._background.close)
            ends.callback(self._restore)
            reset_default_clients()

    def _restore(self) -> None:
        if self._owns_cluster:
            self.background.call(self.cluster.stop)
        elif bring_up(self.cluster):
            clear_nodes(self.cluster.ports, _namespace(), data_created_us())


def _namespace() -> str:
    return os.environ.get("REDLOCK_NAMESPACE", "")


@cache
def data_created_us() -> int:
    """The creation time of the nodes' data that their marks give, the same for all tests of this process."""
    return time.time_ns() // 1000 - DATA_AGE_US


def bring_up(cluster: LocalCluster) -> bool:
    """Resume all paused nodes and restart all killed ones. Return whether a node lost its data."""
    dead = [i for i, pid in enumerate(cluster.pids) if pid is None]
    for i in range(len(cluster)):
        if i in dead:
            cluster.restart(i)
        else:
            cluster.resume(i)
    return bool(dead)


def close(client: Redlock) -> None:
    """Close a client from outside its loop, whether that is closed, idle, or running in another thread."""
    loop = client.loop
    if loop is None:
        return
    if not loop.is_running():
        loop.run_until_complete(client.aclose())
        return
    try:
        asyncio.run_coroutine_threadsafe(client.aclose(), loop).result(CLOSE_TIMEOUT)
    except TimeoutError:
        raise RuntimeError(
            f"{client!r} could not be closed within {CLOSE_TIMEOUT:g} s: its event loop is blocked"
        ) from None


DEFAULT: Final[Any] = redlock
"""The module-level client. Its class is not public."""


def reset_default_clients() -> None:
    """Reset the module-level clients: another test may have used them on another loop or with other nodes."""
    close(DEFAULT)
    DEFAULT.reset()
    if (blocking := sys.modules.get("redlock_async.blocking")) is not None:
        blocking.redlock.reset()
