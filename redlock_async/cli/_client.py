"""The client of a command that looks at a cluster, and how a command ends on a signal; it shows nothing."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import redlock_async

from ._nodes import environment

T = TypeVar("T")


def client(arguments: argparse.Namespace) -> redlock_async.Redlock:
    """As the user's services have it; what it would log is said by the command, as far as it matters."""
    quiet()
    return redlock_async.Redlock.from_env(environment(arguments))


def quiet() -> None:
    """Have nothing of the library's log on stderr."""
    logging.getLogger("redlock_async").addHandler(logging.NullHandler())


def ask(arguments: argparse.Namespace, question: Callable[[redlock_async.Redlock], Coroutine[Any, Any, T]]) -> T:
    """One question to the cluster."""

    async def asked() -> T:
        async with client(arguments) as redlock:
            return await question(redlock)

    return asyncio.run(asked())


async def until_a_signal(work: Coroutine[Any, Any, object], *, busy: Callable[[], bool] = lambda: False) -> int:
    """Do it; the first signal ends it, unless it is busy with what must not be disturbed. Returns the exit status."""
    loop = asyncio.get_running_loop()
    working = asyncio.ensure_future(work)
    signals: list[int] = []

    def end(number: int) -> None:
        if not signals and not busy():
            working.cancel()
        signals.append(number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
            loop.add_signal_handler(number, end, number)
    try:
        await working
    except asyncio.CancelledError:
        if not signals:
            raise
    return 128 + signals[0] if signals else 0
