"""One contender in a process of its own: requests on stdin, answers on stdout, a line of JSON each.

Between requests it does nothing but hold what it was told to hold, so that the others can be measured. It runs under
the contender's interpreter, and imports nothing else. What every worker understands, whatever it is written in:

    open {urls}                                       connect, and warm up
    pairs {base, tasks, shared, seconds, each}        acquire and release: {rate, n, p50, p99, latencies}
    acquire {name}; release {}                        one lock: {at}, when it was got, when it was begun to be released

The others are asked only of the entries whose `can` says so; what those need of a contender is in the protocols below.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
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
"""Environment variable: the module whose `new_event_loop` makes the event loop, such as uvloop."""

WARM_UP = 0.05
TURN = 20
"""Pairs and blocks that alternate, where the two are compared."""

AT_ONCE = 100
"""Leases that are taken at the same time, where many are to be held."""

PAUSE = 0.001
"""Seconds after an error before the next attempt, where errors are expected."""


class Blocks(Protocol):
    """Can "block"."""

    def block(self, name: str) -> AbstractAsyncContextManager[Any]:
        """The lock as a block."""
        ...


class Fair(Protocol):
    """Can "fair"."""

    def fair(self, name: str) -> Awaitable[Any]:
        """As `acquire`, first come, first served."""
        ...


class Keeps(Protocol):
    """Can "renew"."""

    def keep(self, name: str) -> Awaitable[Any]:
        """As `acquire`, and renewed until it is released."""
        ...


class Cancels(Blocks, Protocol):
    """Can "cancel": the body of a block whose lock is lost is cancelled."""

    def left(self, held: Any) -> float:
        """Seconds that what the block entered with is still valid."""
        ...

    def force(self, name: str) -> Awaitable[object]:
        """Release it, whoever holds it."""
        ...


@dataclass(frozen=True, slots=True)
class Use:
    """How a lock is taken and given back, again and again."""

    acquire: Callable[[str], Awaitable[Any]]
    release: Callable[[Any], Awaitable[object]]

    async def alone(self, name: str, end: float, most: int | None = None) -> list[float]:
        """Acquire and release until the time is up, at least once; how long each pair took."""
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
        """The same where others want that name too, and always `most` pairs if that is given; how long each waited."""
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
    """Answers one request after the other."""

    def __init__(self, contender: Contender) -> None:
        self._contender = contender
        self._held: Any = None
        self._kept: list[Any] = []
        self._waiters: list[asyncio.Task[float]] = []
        self._body: asyncio.Task[Sample] | None = None

    async def answer(self, request: dict[str, Any]) -> Sample:
        """Do it, and say what came of it."""
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
        """On names of their own the time of a pair, on one name that of its acquire: the wait.

        With `each`, whole batches of so many pairs a task, until the time is over.
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

    async def block(self, base: str, seconds: float) -> Sample:
        """`async with`, beside the same pairs without, in turns of a few."""
        contender = self._contender
        block = cast("Blocks", contender).block
        use = Use(contender.acquire, contender.release)
        end = now() + seconds
        blocks: list[float] = []
        bare: list[float] = []
        while not blocks or now() < end:
            bare += await use.alone(base, end, TURN)
            for _ in range(TURN):
                started = now()
                async with block(base):
                    pass
                blocks.append(now() - started)
        return {"factor": quantile(blocks, 0.5) / quantile(bare, 0.5), **latencies(blocks)}

    async def trace(self, base: str, tasks: int, seconds: float) -> Sample:
        """Every single pair: when it ended, in µs since `started`, and how many it took. Errors are counted."""
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
            except Exception as exc:  # noqa: BLE001 - it is counted, by its name
                kind = type(exc).__name__
                errors[kind] = errors.get(kind, 0) + 1
                await asyncio.sleep(PAUSE)
            else:
                ended = now()
                pairs.append((ended, ended - started))

    async def wait(self, name: str, tasks: int) -> None:
        """Have so many tasks wait for that name; `waited` says what became of them."""
        self._waiters = [asyncio.create_task(self._turn(name)) for _ in range(tasks)]

    async def _turn(self, name: str) -> float:
        held = await self._contender.acquire(name)
        at = now()
        await self._contender.release(held)
        return at

    async def waited(self) -> Sample:
        """When the first of them was in, and the last."""
        at = await asyncio.gather(*self._waiters)
        self._waiters = []
        return {"first": min(at), "last": max(at)}

    async def hold(self, base: str, leases: int) -> Sample:
        """Take so many locks and keep them renewed; `drop` ends that."""
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
        """CPU seconds this process has used so far, and its memory in bytes."""
        gc.collect()
        return {"cpu": time.process_time(), "rss": _resident(), "at": now()}

    async def enter(self, name: str) -> None:
        """Be in a block on that name until it is lost; `cancelled` says when that was."""
        entered = asyncio.Event()
        self._body = asyncio.create_task(self._inside(name, entered))
        inside = asyncio.create_task(entered.wait())
        await asyncio.wait((self._body, inside), return_when=asyncio.FIRST_COMPLETED)
        if not inside.done():
            inside.cancel()
            await self._body  # raises why it could not be entered

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
            raise RuntimeError("the block ended without an error, though its lock was lost")
        return {"at": at, "left": until - at}

    async def cancelled(self) -> Sample:
        """When the body was cancelled, and how many seconds before the end of its validity."""
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
    """Bytes of memory; where the system does not tell, the most there ever were."""
    if (statm := Path("/proc/self/statm")).exists():
        return int(statm.read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


async def main(name: str, out: TextIO) -> None:
    """Until stdin ends."""
    requests = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(requests), sys.stdin)
    contender = BY_NAME[name].create()
    worker = Worker(contender)
    while line := await requests.readline():
        try:
            answer: Sample = await worker.answer(json.loads(line))
        except Exception as exc:  # noqa: BLE001 - whatever a library does is an answer
            answer = {"error": f"{type(exc).__name__}: {exc}"}
        print(json.dumps(answer), file=out, flush=True)
    await contender.close()


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Of the kind that was asked for."""
    module = os.environ.get(LOOP, "asyncio")
    return cast("asyncio.AbstractEventLoop", import_module(module).new_event_loop())


if __name__ == "__main__":
    # What a library prints must not be taken for an answer.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    # Nor are warnings of frozen masters news: the figures say what came of them.
    logging.getLogger().addHandler(logging.NullHandler())
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(main(sys.argv[1], answers))
