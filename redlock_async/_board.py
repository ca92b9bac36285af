"""Who waits for which key to change, and how they are told: of what the nodes report, and of what this process does.

The nodes report to a client what others change, and not what it has changed itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from ._scripts import Command


class Waiting(Protocol):
    """Who waits for a key to change."""

    @property
    def waiting(self) -> int:
        """For how many tasks."""
        ...

    def freed(self, node: int, key: bytes | None) -> None:
        """A node reports a change: of that key, or of any."""

    def wake(self, key: bytes | None = None) -> None:
        """We changed it ourselves, or a node came back."""

    def close(self) -> Command | None:
        """The client is closed; returns what every node is still to be told."""


class Board:
    """All of one client."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._by_key: dict[bytes, list[Waiting]] = {}
        self._given_up: dict[bytes, int] = {}
        """On which nodes attempts that failed have given something back in this step of the loop, by its key."""

    def watch(self, keys: Sequence[bytes], who: Waiting) -> None:
        """Tell that one when one of those keys changes."""
        by_key = self._by_key
        for key in keys:
            if key in by_key:
                by_key[key].append(who)
            else:
                by_key[key] = [who]

    def unwatch(self, keys: Sequence[bytes], who: Waiting) -> None:
        """The end of `watch`."""
        for key in keys:
            watching = self._by_key[key]
            if len(watching) == 1:
                del self._by_key[key]
            else:
                watching.remove(who)

    def __contains__(self, key: bytes) -> bool:
        return key in self._by_key

    def __len__(self) -> int:
        return len(self._by_key)

    def watching(self, key: bytes | None) -> list[Waiting]:
        """Those who wait for that key, or for any."""
        if key is None:
            # A copy: the statistics may be read in another thread, by an exporter that serves a scrape there.
            return [each for watching in tuple(self._by_key.values()) for each in watching]
        return list(self._by_key.get(key, ()))

    @property
    def waiting(self) -> int:
        """For how many tasks they wait, all together."""
        return sum(each.waiting for each in set(self.watching(None)))

    def reported(self, node: int, key: bytes | None) -> None:
        """A node reports that somebody else has changed that key; None: all keys."""
        for each in self.watching(key):
            each.freed(node, key)

    def changed(self, key: bytes | None) -> None:
        """We have changed that key; None: a node came back, and what it had to report is lost."""
        for each in self.watching(key):
            each.wake(key)

    def look_again(self, keys: Sequence[bytes], freed: Sequence[bytes]) -> None:
        """Something here makes another attempt for those keys worthwhile; we have freed some of them."""
        for key in keys:
            for each in self._by_key.get(key, ()):
                each.wake(key if key in freed else None)

    def gave_up(self, keys: Sequence[bytes], nodes: int) -> None:
        """One that waits for those keys has given back what it had on those nodes: tell the others of this process."""
        for key in keys:
            if nodes and len(self._by_key.get(key, ())) > 1:
                self._tell_soon(key, nodes)

    def gave_up_late(self, keys: Sequence[bytes], nodes: int) -> None:
        """The same when that one may wait no longer: it takes no notice itself of what it was granted."""
        for key in keys:
            if key in self._by_key:
                self._tell_soon(key, nodes)

    def _tell_soon(self, key: bytes, nodes: int) -> None:
        if not self._given_up:
            self._loop.call_soon(self._tell_what_was_given_up)
        self._given_up[key] = self._given_up.get(key, 0) | nodes

    def _tell_what_was_given_up(self) -> None:
        # Once for all of a step of the loop: thousands may begin to wait in one.
        given_up, self._given_up = self._given_up, {}
        for key, nodes in given_up.items():
            indexes = [index for index in range(nodes.bit_length()) if nodes >> index & 1]
            for each in self.watching(key):
                for index in indexes:
                    each.freed(index, key)
