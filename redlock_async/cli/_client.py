"""The client of a command that queries a cluster, and how a command ends on a signal; this module prints nothing."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

import redlock_async

from ._nodes import environment

T = TypeVar("T")


def client(arguments: argparse.Namespace) -> redlock_async.Redlock:
    """Return a client with the settings of the user's services; the command reports what the client would log."""
    silence_log()
    return redlock_async.Redlock.from_env(environment(arguments))


def silence_log() -> None:
    """Keep the library's log off stderr."""
    logging.getLogger("redlock_async").addHandler(logging.NullHandler())


def query(arguments: argparse.Namespace, question: Callable[[redlock_async.Redlock], Coroutine[Any, Any, T]]) -> T:
    """Run one coroutine with a client, and close the client."""

    async def run() -> T:
        async with client(arguments) as redlock:
            return await question(redlock)

    return asyncio.run(run())


async def cancel_all(tasks: Sequence[asyncio.Task[Any]]) -> None:
    """Cancel the tasks that are not done, and wait for all of them; ignore what they raise."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def run_until_signal(work: Coroutine[Any, Any, object], *, busy: Callable[[], bool] = lambda: False) -> int:
    """Run a coroutine, and cancel it at the first signal unless `busy()`; return the exit status."""
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(work)
    signals: list[int] = []

    def stop(number: int) -> None:
        if not signals and not busy():
            task.cancel()
        signals.append(number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup ignores SIGHUP
            loop.add_signal_handler(number, stop, number)
    try:
        await task
    except asyncio.CancelledError:
        if not signals:
            raise
    return 128 + signals[0] if signals else 0
