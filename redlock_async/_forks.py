"""Tells those who live on sockets and an event loop that they are in a forked child, where both are the parent's."""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet


class Inheritable(Protocol):
    """Whoever must know."""

    inherited: bool


_alive: WeakSet[Inheritable] = WeakSet()


def watch(who: Inheritable) -> None:
    """In every child that this process forks from here on, its `inherited` becomes true."""
    _alive.add(who)


def _forked() -> None:
    for who in _alive:
        who.inherited = True


os.register_at_fork(after_in_child=_forked)
