"""What one test stands on: masters that are sound and empty, an environment that names them, no client of before."""

from __future__ import annotations

import asyncio
import inspect
import os
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from fnmatch import fnmatchcase
from functools import cache
from typing import Any, Final

from redlock_async import Event, Redlock, redlock
from redlock_async.testing._cluster import LocalCluster
from redlock_async.testing._faults import Faults
from redlock_async.testing._outside import Outside
from redlock_async.testing._plain import clear, locked

PATIENCE: Final = 5.0
"""Seconds in which a client must have closed."""

STRAGGLERS: Final = 0.25
"""Seconds in which the last releases must have reached every master."""

AGE_US: Final = 86_400_000_000
"""A day: for so long the masters pretend to have had their data. Young ones are worth a warning of every client."""

SOMEWHERE: Final = "redis://127.0.0.1:6379"
"""Stands for the masters where options are only checked."""

OPTIONS: Final = tuple(
    name for name, each in inspect.signature(Redlock).parameters.items() if each.kind is each.KEYWORD_ONLY
)


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the marks on a test ask for, the closest first."""

    nodes: int | None = None
    proxied: bool = False
    leaves: str | Sequence[str] = ()
    options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, marks: Collection[tuple[tuple[Any, ...], Mapping[str, Any]]]) -> Wishes:
        """From the arguments of each mark; ValueError says which is none."""
        given: dict[str, Any] = {}
        for positional, named in marks:
            if positional:
                raise ValueError(
                    f"@pytest.mark.redlock takes named arguments only, as in nodes=3, not {positional[0]!r}"
                )
            given = {**named, **given}
        own = {name: given.pop(name) for name in ("nodes", "proxied", "leaves") if name in given}
        if unknown := given.keys() - set(OPTIONS):
            raise ValueError(
                f"@pytest.mark.redlock does not take {', '.join(sorted(unknown))}: it takes nodes, proxied, leaves and "
                f"the options of Redlock: {', '.join(OPTIONS)}"
            )
        nodes = own.get("nodes", 1)
        if not isinstance(nodes, int) or nodes < 1:
            raise ValueError(f"@pytest.mark.redlock: nodes is the number of masters, 1 or more, not {nodes!r}")
        wishes = cls(**own, options=given)
        if given:
            Redlock.from_env(os.environ | wishes.environment([SOMEWHERE]))
        return wishes

    def environment(self, urls: Sequence[str]) -> dict[str, str]:
        """The variables that configure every client of the test, also the service's."""
        given = {f"REDLOCK_{option.upper()}": _text(value) for option, value in self.options.items()}
        return given | {"REDLOCK_NODES": ",".join(urls)}

    def allows(self, name: str) -> bool:
        """Whether that name may stay locked."""
        patterns = [self.leaves] if isinstance(self.leaves, str) else self.leaves
        return any(fnmatchcase(name, pattern) for pattern in patterns)


def _text(value: object) -> str:
    if isinstance(value, timedelta):
        return str(value.total_seconds())
    return str(value)


class Stage:
    """The masters of one test; they are those of the session, or the test's own where it wants proxies."""

    def __init__(self, wishes: Wishes, cluster: LocalCluster | None, masters: int) -> None:
        self.wishes = wishes
        self._outside: Outside | None = None
        self._faults: Faults | None = None
        self._own = cluster is None
        if cluster is None:
            self.cluster = LocalCluster(masters if wishes.nodes is None else wishes.nodes, proxied=True)
            try:
                self.outside.call(self.cluster.start)
            except BaseException:
                self.outside.close()
                raise
        elif wishes.nodes is None or wishes.nodes <= masters:
            self.cluster = cluster
        else:
            raise ValueError(
                f"nodes={wishes.nodes}: there are {masters} masters; more are started by redlock_masters = "
                f"{wishes.nodes} in pytest's configuration"
            )
        self.urls = self.cluster.urls[: wishes.nodes]
        self._pids = self.cluster.pids
        self._forgotten: list[str] = []

    @property
    def outside(self) -> Outside:
        """Where the proxies live, and somebody else's client."""
        if self._outside is None:
            self._outside = Outside()
        return self._outside

    @property
    def faults(self) -> Faults:
        """What this test does to its masters."""
        if self._faults is None:
            self._faults = Faults(self.cluster, self.urls, self.outside)
        return self._faults

    def prepare(self) -> None:
        """Sound and empty masters, whatever was done to them before; and the default client as if it were not used."""
        sound(self.cluster)
        clear(self.cluster.ports, _namespace(), born_us())
        retire_default()
        self._pids = self.cluster.pids

    def client(self) -> Redlock:
        """A client that remembers the leases it was closed with."""
        client = Redlock.from_env()
        client.on_event(self._watch)
        return client

    def _watch(self, event: Event) -> None:
        if event.kind == "lost" and event.reason == "closed":
            self._forgotten.extend(event.names)

    def left(self) -> str | None:
        """What the test should have released, as a sentence; None if that is nothing."""
        names = dict.fromkeys(self._forgotten, "until its client was closed")
        if not (self._faults is not None and self._faults.hurt) and self.cluster.pids == self._pids:
            names |= {name: f"on {count} of {len(self.urls)} masters" for name, count in self._still_locked().items()}
        what = ", ".join(f"{name!r} ({where})" for name, where in names.items() if not self.wishes.allows(name))
        if not what:
            return None
        return (
            f"this test left locked: {what}. Release what was acquired, best with `async with`; or, if it is to stay "
            'locked, mark the test with @pytest.mark.redlock(leaves="NAME")'
        )

    def _still_locked(self) -> dict[str, int]:
        sound(self.cluster)
        ports, namespace = self.cluster.ports[: self.wishes.nodes], _namespace()
        give_up_at = time.monotonic() + STRAGGLERS
        # A release is over when a majority has confirmed it: the others may still be at it.
        while (names := locked(ports, namespace)) and time.monotonic() < give_up_at:
            if all(map(self.wishes.allows, names)):
                break
            time.sleep(0.005)
        return names

    def close(self) -> None:
        """End what is the test's own, and thaw and restart the rest: somebody of the session may still use it."""
        with ExitStack() as ends:  # each is done although one before it failed: a thread that stays hangs the exit
            if self._outside is not None:
                ends.callback(self._outside.close)
            ends.callback(self._restore)
            retire_default()

    def _restore(self) -> None:
        if self._own:
            self.outside.call(self.cluster.stop)
        elif sound(self.cluster):
            clear(self.cluster.ports, _namespace(), born_us())


def _namespace() -> str:
    return os.environ.get("REDLOCK_NAMESPACE", "")


@cache
def born_us() -> int:
    """Since when the masters of this process pretend to have their data: the same whenever it is asked for."""
    return time.time_ns() // 1000 - AGE_US


def sound(cluster: LocalCluster) -> bool:
    """Thaw and restart what was frozen and killed; returns whether any has lost its data by that."""
    dead = [i for i, pid in enumerate(cluster.pids) if pid is None]
    for i in range(len(cluster)):
        if i in dead:
            cluster.restart(i)
        else:
            cluster.resume(i)
    return bool(dead)


def close(client: Redlock) -> None:
    """Close a client from outside of its loop, wherever that is: closed, idle, or running in another thread."""
    loop = client.loop
    if loop is None:
        return
    if not loop.is_running():
        loop.run_until_complete(client.aclose())
        return
    try:
        asyncio.run_coroutine_threadsafe(client.aclose(), loop).result(PATIENCE)
    except TimeoutError:
        raise RuntimeError(
            f"{client!r} could not be closed within {PATIENCE:g} s: the event loop that it is in use on is blocked"
        ) from None


DEFAULT: Final[Any] = redlock
"""The client that is made from the environment; its class, with `forget`, is not a public name."""


def retire_default() -> None:
    """The default clients as before their first use: they may have been on another loop, or with other masters."""
    close(DEFAULT)
    DEFAULT.forget()
    if (blocking := sys.modules.get("redlock_async.blocking")) is not None:
        blocking.redlock.forget()
