"""The event loop behind `blocking`: one thread of the process runs it, and does there what the other threads ask for.

It knows no locks. anyio's own portal is not used: it has nobody to take back a lease that arrives in the moment in
which its caller is interrupted, it is not replaced in a forked child, and with some versions of anyio the interpreter
waits at its end for a portal that nobody closed.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from typing import Any, Generic, ParamSpec, TypeVar

from ._errors import ConfigurationError, RedlockError
from ._holding import acting_for

P = ParamSpec("P")
T = TypeVar("T")

Work = Callable[[], Coroutine[Any, Any, T]]
Undo = Callable[[T], Coroutine[Any, Any, object]]

LAST_WORDS = 2.0
"""Seconds the end of the interpreter waits, at most, for what is still to be sent."""


class Call(Generic[T]):
    """What one thread waits for: that `done` can be acquired. All else happens on the loop.

    A bare lock, because whatever of `threading` and `concurrent.futures` has a condition inside breaks when a signal's
    handler raises in it: it raises something else, or stays locked, and then the loop would wait for it for ever.
    """

    __slots__ = ("_abandoned", "_context", "_for", "_task", "_undo", "_work", "done", "error", "result")

    result: T

    def __init__(self, work: Work[T], undo: Undo[T] | None) -> None:
        self.done = closed_lock()
        self.error: BaseException | None = None
        self._work = work
        self._undo = undo
        self._for = threading.current_thread()
        self._context = copy_context()  # so that traces and loggers know whom it is for
        self._task: asyncio.Task[None] | None = None
        self._abandoned = False

    def begin(self) -> None:
        """Start it."""
        self._task = asyncio.get_running_loop().create_task(self._run(), context=self._context)

    async def _run(self) -> None:
        acting_for.set(self._for)
        try:
            self.result = await self._work()
        except asyncio.CancelledError:
            self.error = RedlockError("the interpreter ended meanwhile")
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is raised in the thread that waits
            self.error = error
        else:
            if self._abandoned and self._undo is not None:
                await self._undo(self.result)
        self.done.release()

    def abandon(self) -> None:
        """Its thread was interrupted and does not wait any more: end it, or take back what has come of it."""
        self._abandoned = True
        if self._task is None:
            return  # interrupted before it was begun
        if not self._task.cancel() and self.error is None and self._undo is not None:
            self._task = asyncio.get_running_loop().create_task(self._discard(self._undo))

    async def _discard(self, undo: Undo[T]) -> None:
        await undo(self.result)


def closed_lock() -> threading.Lock:
    """One that somebody else will open."""
    lock = threading.Lock()
    lock.acquire()
    return lock


class Portal:
    """The thread and its loop, started by the first call."""

    def __init__(self) -> None:
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._failure: BaseException | None = None
        self._ended = asyncio.Event()
        self._closed = False

    def run(self, call: Call[T], *, cancelling: bool) -> T:
        """Have it done, and return or raise what comes of it."""
        loop = self._loop or self._started()
        try:
            loop.call_soon_threadsafe(call.begin)
            call.done.acquire()
            if call.error is None:
                return call.result
        except BaseException:  # raised by a signal's handler: KeyboardInterrupt, or a worker's time limit
            if cancelling:
                loop.call_soon_threadsafe(call.abandon)
            raise
        raise call.error

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._starting:
            if self._closed:
                raise RedlockError(
                    "the interpreter is ending: locks cannot be had any more, and those held were released"
                )
            if self._loop is None:
                ready = closed_lock()
                # A daemon, because the interpreter waits for others before it lets anybody close anything.
                self._thread = threading.Thread(target=self._serve, args=(ready,), name="redlock", daemon=True)
                self._thread.start()
                ready.acquire()
            if self._loop is None:
                raise RedlockError("the event loop for threads could not be started") from self._failure
            return self._loop

    def _serve(self, ready: threading.Lock) -> None:
        try:
            # Its end is that of `asyncio.run`: clients that nobody closed see it, and send what is to be sent.
            with asyncio.Runner() as runner:
                self._loop = runner.get_loop()
                ready.release()
                runner.run(self._until_closed())
        except OSError as error:
            if self._loop is not None:
                raise
            self._failure = error  # no file descriptors left, say; the next call tries again
            ready.release()

    async def _until_closed(self) -> None:
        await self._ended.wait()

    def close(self) -> None:
        """The end of the interpreter: clients release what they hold; then the thread ends."""
        # A loop that is ending may forget what it is asked for, and whoever waited for that would never end.
        self._closed, loop, self._loop = True, self._loop, None
        if loop is not None and self._thread is not None:
            loop.call_soon_threadsafe(self._ended.set)
            self._thread.join(LAST_WORDS)


_portal = Portal()
_inherited: list[Portal] = []
"""Those of the parents of a forked process, whose threads are not here. Neither used nor closed, nor collected."""


def _forked() -> None:
    global _portal  # noqa: PLW0603 - there is one a process
    _inherited.append(_portal)
    _portal = Portal()


def _at_exit() -> None:
    _portal.close()


os.register_at_fork(after_in_child=_forked)
# As soon as this is imported: what a program registers after that is called before, and may use locks.
atexit.register(_at_exit)


def run(work: Callable[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Do that on the loop while this thread waits; when the thread is interrupted, it is cancelled."""
    return _run(lambda: work(*args, **kwargs), None, cancelling=True)


def obtain(undo: Undo[T], work: Callable[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """As `run`; what arrives although the thread was interrupted is undone."""
    return _run(lambda: work(*args, **kwargs), undo, cancelling=True)


def finish(work: Callable[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """As `run`; it is carried out although the thread was interrupted."""
    return _run(lambda: work(*args, **kwargs), None, cancelling=False)


def _run(work: Work[T], undo: Undo[T] | None, *, cancelling: bool) -> T:
    if _in_a_loop():
        raise ConfigurationError(
            "redlock_async.blocking would stop the event loop that runs in this thread: use redlock_async.Redlock and "
            "`async with` here, or call this in a thread, with asyncio.to_thread"
        )
    return _portal.run(Call(work, undo), cancelling=cancelling)


def _in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
