"""One contender in its own process: requests on stdin, replies on stdout, one line of JSON each.

Between requests a worker only keeps its locks, so that others can be measured. It runs under the contender's
interpreter, and imports nothing else. Every worker, in any language, understands these requests:

    open {urls}                                       connect, and warm up
    pairs {base, tasks, shared, seconds, each}        acquire and release: {rate, n, p50, p99, latencies}
    acquire {name}; release {}                        one lock: {at}, the time of the grant, or when the release starts

Other requests go only to entries whose `can` lists them; the protocols below show what they need of a contender.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import math
import os
import resource
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any, Protocol, TextIO, cast

from .contenders import BY_NAME, Contender
from .timing import Sample, latencies, now, quantile

LOOP = "REDLOCK_BENCHMARKS_LOOP"
"""Environment variable with the module whose `new_event_loop` creates the event loop, such as uvloop."""

WARM_UP = 0.05
TURN = 20
"""Number of pairs, then of blocks, in each turn of their comparison."""

AT_ONCE = 100
"""Number of leases acquired concurrently when many are held."""

PAUSE = 0.001
"""Seconds to wait after an expected error before the next attempt."""


class Blocks(Protocol):
    """Can "block"."""

    def block(self, name: str) -> AbstractAsyncContextManager[Any]:
        """Return the lock as a context manager."""
        ...


class Fair(Protocol):
    """Can "fair"."""

    def fair(self, name: str) -> Awaitable[Any]:
        """Acquire, first come, first served."""
        ...


class Keeps(Protocol):
    """Can "renew"."""

    def keep(self, name: str) -> Awaitable[Any]:
        """Acquire, and renew until the release."""
        ...


class Cancels(Blocks, Protocol):
    """Can "cancel": a block whose lock is lost is cancelled."""

    def left(self, held: Any) -> float:
        """Return the remaining validity of the block's lease, in seconds."""
        ...

    def force(self, name: str) -> Awaitable[object]:
        """Release the lock regardless of its holder."""
        ...


@dataclass(frozen=True, slots=True)
class Use:
    """Acquires and releases a lock repeatedly."""

    acquire: Callable[[str], Awaitable[Any]]
    release: Callable[[Any], Awaitable[object]]

    async def alone(self, name: str, end: float, most: int | None = None) -> list[float]:
        """Acquire and release until the time is up, at least once. Returns the duration of each pair."""
        acquire, release = self.acquire, self.release
        took: list[float] = []
        started = now()
        while True:
            await release(await acquire(name))
            ended = now()
            took.append(ended - started)
            if ended >= end or len(took) == most:
                return took
            started = ended

    async def in_turns(self, name: str, end: float, most: int | None = None) -> list[float]:
        """Do the same with contention, for exactly `most` pairs if given. Returns the wait of each acquire."""
        acquire, release = self.acquire, self.release
        waited: list[float] = []
        while True:
            started = now()
            held = await acquire(name)
            waited.append(now() - started)
            await release(held)
            if len(waited) == most or (most is None and now() >= end):
                return waited


class Worker:
    """Processes one request after the other."""

    def __init__(self, contender: Contender) -> None:
        self._contender = contender
        self._held: Any = None
        self._kept: list[Any] = []
        self._waiters: list[asyncio.Task[float]] = []
        self._body: asyncio.Task[Sample] | None = None

    async def answer(self, request: dict[str, Any]) -> Sample:
        """Execute a request and return its result."""
        arguments = dict(request)
        verb = VERBS.get(arguments.pop("do"))
        if verb is None:
            raise LookupError(f"this worker does not know how to {request['do']}; it knows {', '.join(VERBS)}")
        return await verb(self, **arguments) or {}

    async def open(self, urls: Sequence[str]) -> None:
        await self._contender.open(urls)
        use = Use(self._contender.acquire, self._contender.release)
        await use.alone(f"bench:warm:{os.getpid()}", now() + WARM_UP)

    async def acquire(self, name: str) -> Sample:
        self._held = await self._contender.acquire(name)
        return {"at": now()}

    async def release(self) -> Sample:
        started, held, self._held = now(), self._held, None
        await self._contender.release(held)
        return {"at": started}

    async def pairs(
        self,
        base: str,
        seconds: float,
        tasks: int = 1,
        each: int | None = None,
        *,
        shared: bool = False,
        fair: bool = False,
    ) -> Sample:
        """Measure the duration of pairs on separate names, or the wait of acquires on a shared name.

        With `each`, run whole batches of that many pairs per task until the time is up.
        """
        acquire = cast("Fair", self._contender).fair if fair else self._contender.acquire
        use = Use(acquire, self._contender.release)
        do = use.in_turns if shared else use.alone
        took: list[float] = []
        started = now()
        end = started + seconds
        for batch in count():
            base_now = base if each is None else f"{base}:{batch}"
            names = [base_now if shared else f"{base_now}:{i}" for i in range(tasks)]
            if tasks == 1:
                took += await do(names[0], end, each)
            else:
                for part in await asyncio.gather(*(do(name, end, each) for name in names)):
                    took += part
            if each is None or now() >= end:
                break
        return {"rate": len(took) / (now() - started), **latencies(took)}

    async def block(self, base: str, seconds: float, tasks: int = 1) -> Sample:
        """Measure `async with` and plain pairs in alternating turns, each of all tasks."""
        contender = self._contender
        use = Use(contender.acquire, contender.release)
        end = now() + seconds
        names = [f"{base}:{number}" for number in range(tasks)]
        blocks: list[float] = []
        bare: list[float] = []
        took = {"blocks": 0.0, "bare": 0.0}
        while not blocks or now() < end:
            started = now()
            for part in await asyncio.gather(*(use.alone(name, math.inf, TURN) for name in names)):
                bare += part
            between = now()
            for part in await asyncio.gather(*(self._blocks(name) for name in names)):
                blocks += part
            took["bare"] += between - started
            took["blocks"] += now() - between
        # With many tasks what counts is the time for all: a single one mostly waits for its turn.
        factor = took["blocks"] / took["bare"] if tasks > 1 else quantile(blocks, 0.5) / quantile(bare, 0.5)
        return {"factor": factor, **latencies(blocks)}

    async def _blocks(self, name: str) -> list[float]:
        block = cast("Blocks", self._contender).block
        took = []
        for _ in range(TURN):
            started = now()
            async with block(name):
                pass
            took.append(now() - started)
        return took

    async def trace(self, base: str, tasks: int, seconds: float) -> Sample:
        """Record each pair: its end in µs since `started`, and its duration in µs. Errors are counted."""
        started = now()
        pairs: list[tuple[float, float]] = []
        errors: dict[str, int] = {}
        traces = (self._traced(f"{base}:{i}", started + seconds, pairs, errors) for i in range(tasks))
        await asyncio.gather(*traces)
        ends = [round((ended - started) * 1e6) for ended, _ in pairs]
        return {"started": started, "ends": ends, "took": [round(took * 1e6) for _, took in pairs], "errors": errors}

    async def _traced(self, name: str, end: float, pairs: list[tuple[float, float]], errors: dict[str, int]) -> None:
        contender = self._contender
        while (started := now()) < end:
            try:
                await contender.release(await contender.acquire(name))
            except Exception as exc:  # noqa: BLE001 - counted by its name
                kind = type(exc).__name__
                errors[kind] = errors.get(kind, 0) + 1
                await asyncio.sleep(PAUSE)
            else:
                ended = now()
                pairs.append((ended, ended - started))

    async def wait(self, name: str, tasks: int) -> None:
        """Start that many tasks that wait for the name; `waited` returns their result."""
        self._waiters = [asyncio.create_task(self._turn(name)) for _ in range(tasks)]

    async def _turn(self, name: str) -> float:
        held = await self._contender.acquire(name)
        at = now()
        await self._contender.release(held)
        return at

    async def waited(self) -> Sample:
        """Return when the first and the last task acquired the lock."""
        at = await asyncio.gather(*self._waiters)
        self._waiters = []
        return {"first": min(at), "last": max(at)}

    async def hold(self, base: str, leases: int) -> Sample:
        """Acquire that many locks and keep them renewed until `drop`."""
        keep = cast("Keeps", self._contender).keep
        started = now()
        for first in range(0, leases, AT_ONCE):
            names = (f"{base}:{i}" for i in range(first, min(first + AT_ONCE, leases)))
            self._kept += await asyncio.gather(*map(keep, names))
        return {"took": now() - started}

    async def drop(self) -> None:
        kept, self._kept = self._kept, []
        for first in range(0, len(kept), AT_ONCE):
            await asyncio.gather(*map(self._contender.release, kept[first : first + AT_ONCE]))

    async def usage(self) -> Sample:
        """Return the CPU seconds used by this process, and its memory in bytes."""
        gc.collect()
        return {"cpu": time.process_time(), "rss": _resident(), "at": now()}

    async def enter(self, name: str) -> None:
        """Enter a block on that name until its lock is lost; `cancelled` returns when."""
        entered = asyncio.Event()
        self._body = asyncio.create_task(self._inside(name, entered))
        inside = asyncio.create_task(entered.wait())
        await asyncio.wait((self._body, inside), return_when=asyncio.FIRST_COMPLETED)
        if not inside.done():
            inside.cancel()
            await self._body  # raises the reason why it was not entered

    async def _inside(self, name: str, entered: asyncio.Event) -> Sample:
        contender = cast("Cancels", self._contender)
        at = until = None
        try:
            async with contender.block(name) as held:
                until = now() + contender.left(held)
                entered.set()
                try:
                    await asyncio.Event().wait()
                finally:
                    at = now()
        except Exception:
            if at is None or until is None:
                raise
        else:
            raise RuntimeError("the block ended without an error although its lock was lost")
        return {"at": at, "left": until - at}

    async def cancelled(self) -> Sample:
        """Return when the block was cancelled, and the remaining validity in seconds."""
        assert self._body is not None  # noqa: S101 - after `enter`
        return await self._body

    async def force(self, name: str) -> Sample:
        started = now()
        await cast("Cancels", self._contender).force(name)
        return {"at": started}


VERBS: dict[str, Callable[..., Coroutine[Any, Any, Sample | None]]] = {
    verb.__name__: verb
    for verb in (
        Worker.open, Worker.pairs, Worker.acquire, Worker.release, Worker.block, Worker.trace, Worker.wait,
        Worker.waited, Worker.hold, Worker.drop, Worker.usage, Worker.enter, Worker.cancelled, Worker.force,
    )
}  # fmt: skip


def _resident() -> int:
    """Return the memory in bytes, or the peak if the system does not report the current value."""
    if (statm := Path("/proc/self/statm")).exists():
        return int(statm.read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


async def main(name: str, out: TextIO) -> None:
    """Process requests until stdin ends."""
    requests = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(requests), sys.stdin)
    contender = BY_NAME[name].create()
    worker = Worker(contender)
    while line := await requests.readline():
        try:
            answer: Sample = await worker.answer(json.loads(line))
        except Exception as exc:  # noqa: BLE001 - any error of a library is a result
            answer = {"error": f"{type(exc).__name__}: {exc}"}
        print(json.dumps(answer), file=out, flush=True)
    await contender.close()


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Create the event loop of the requested kind."""
    module = os.environ.get(LOOP, "asyncio")
    return cast("asyncio.AbstractEventLoop", import_module(module).new_event_loop())


if __name__ == "__main__":
    # Output of a library must not be mistaken for a reply.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    # Warnings about frozen nodes are expected; the figures show their effect.
    logging.getLogger().addHandler(logging.NullHandler())
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(main(sys.argv[1], answers))
