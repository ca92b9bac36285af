"""The event loop behind `blocking`: one thread of the process runs it, and carries out the calls of the other threads.

It must not depend on locks. anyio's portal is no alternative: it cannot undo an acquire whose thread is interrupted as
the lease arrives, a forked child would inherit it, and with some versions of anyio the interpreter waits at exit for
every portal that is still open.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from typing import Any, Generic, ParamSpec, TypeVar

from redlock_async._runtime.held_lease import acting_for
from redlock_async.errors import ConfigurationError, RedlockError

P = ParamSpec("P")
T = TypeVar("T")

Work = Callable[[], Coroutine[Any, Any, T]]
Undo = Callable[[T], Coroutine[Any, Any, object]]

EXIT_GRACE = 2.0
"""The longest time, in seconds, that the exit of the interpreter waits for pending releases."""


class Call(Generic[T]):
    """One call of a thread, which waits until it can acquire `done`. Everything else happens on the loop.

    `done` is a bare lock, because an exception from a signal handler breaks the classes of `threading` and
    `concurrent.futures` that contain a condition: they raise another error or stay locked, and the loop would hang.
    """

    __slots__ = ("_abandoned", "_context", "_for", "_task", "_undo", "_work", "done", "error", "result")

    result: T

    def __init__(self, work: Work[T], undo: Undo[T] | None) -> None:
        self.done = acquired_lock()
        self.error: BaseException | None = None
        self._work = work
        self._undo = undo
        self._for = threading.current_thread()
        self._context = copy_context()  # so that traces and log records belong to the caller
        self._task: asyncio.Task[None] | None = None
        self._abandoned = False

    def begin(self) -> None:
        """Start the task of the call; runs on the loop."""
        self._task = asyncio.get_running_loop().create_task(self._run(), context=self._context)

    async def _run(self) -> None:
        acting_for.set(self._for)
        try:
            self.result = await self._work()
        except asyncio.CancelledError:
            self.error = RedlockError("the call was cancelled: the interpreter is exiting")
        except BaseException as error:  # noqa: BLE001 - the waiting thread raises it
            self.error = error
        else:
            if self._abandoned and self._undo is not None:
                await self._undo(self.result)
        self.done.release()

    def abandon(self) -> None:
        """Cancel the call of a thread that was interrupted, or undo its result."""
        self._abandoned = True
        if self._task is None:
            return  # interrupted before it began
        if not self._task.cancel() and self.error is None and self._undo is not None:
            self._task = asyncio.get_running_loop().create_task(self._discard(self._undo))

    async def _discard(self, undo: Undo[T]) -> None:
        await undo(self.result)


def acquired_lock() -> threading.Lock:
    """Return a lock that another thread will release."""
    lock = threading.Lock()
    lock.acquire()
    return lock


class Portal:
    """The thread and its loop, which the first call starts."""

    def __init__(self) -> None:
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._failure: BaseException | None = None
        self._ended = asyncio.Event()
        self._closed = False

    def run(self, call: Call[T], *, cancelling: bool) -> T:
        """Carry out a call, and return its result or raise its error."""
        loop = self._loop or self._started()
        try:
            loop.call_soon_threadsafe(call.begin)
            call.done.acquire()
            if call.error is None:
                return call.result
        except BaseException:  # from a signal handler: KeyboardInterrupt, or the time limit of a worker
            if cancelling:
                loop.call_soon_threadsafe(call.abandon)
            raise
        raise call.error

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._starting:
            if self._closed:
                raise RedlockError("the interpreter is exiting: all locks were released, and none can be acquired")
            if self._loop is None:
                ready = acquired_lock()
                # A daemon, because the interpreter joins other threads before it runs exit handlers.
                self._thread = threading.Thread(target=self._serve, args=(ready,), name="redlock", daemon=True)
                self._thread.start()
                ready.acquire()
            if self._loop is None:
                raise RedlockError("could not start the event loop of redlock_async.blocking") from self._failure
            return self._loop

    def _serve(self, ready: threading.Lock) -> None:
        try:
            # It ends as `asyncio.run` does: open clients notice that, and send their pending releases.
            with asyncio.Runner() as runner:
                self._loop = runner.get_loop()
                ready.release()
                runner.run(self._until_closed())
        except OSError as error:
            if self._loop is not None:
                raise
            self._failure = error  # for example no file descriptors left; the next call tries again
            ready.release()

    async def _until_closed(self) -> None:
        await self._ended.wait()

    def close(self) -> None:
        """End the loop and its thread at the exit of the interpreter; clients release their leases."""
        # A loop that is ending may drop a new call, whose thread would then wait without an end.
        self._closed, loop, self._loop = True, self._loop, None
        if loop is not None and self._thread is not None:
            loop.call_soon_threadsafe(self._ended.set)
            self._thread.join(EXIT_GRACE)


_portals: dict[int, Portal] = {}
"""By process id. The threads of a parent do not run in a forked child, so its portal is never used, closed or collected
there. C code that forks does not run Python's hooks, and a lock held then would stay locked: no lock is used."""


def _mine() -> Portal:
    """Return the portal of this process."""
    pid = os.getpid()
    portal = _portals.get(pid)
    return portal if portal is not None else _portals.setdefault(pid, Portal())


def _at_exit() -> None:
    _mine().close()


# Registered on import: exit handlers that a program registers later run earlier, and may use locks.
atexit.register(_at_exit)


def run(work: Callable[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a coroutine function on the loop while this thread waits. An interruption of the thread cancels it."""
    return _run(lambda: work(*args, **kwargs), None, cancelling=True)


def run_or_undo(undo: Undo[T], work: Callable[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Like `run`, but undo a result that arrives after the thread was interrupted."""
    return _run(lambda: work(*args, **kwargs), undo, cancelling=True)


def run_uninterrupted(work: Callable[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Like `run`, but complete the work even if the thread is interrupted."""
    return _run(lambda: work(*args, **kwargs), None, cancelling=False)


def _run(work: Work[T], undo: Undo[T] | None, *, cancelling: bool) -> T:
    if _in_a_loop():
        raise ConfigurationError(
            "redlock_async.blocking would block the event loop that runs in this thread: use redlock_async.Redlock and "
            "`async with` here, or call this in a thread, with asyncio.to_thread"
        )
    return _mine().run(Call(work, undo), cancelling=cancelling)


def _in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
