"""One process of faults.py: contends for locks of all kinds, and writes down at once what it holds and until when.

Each line is written with one system call, and *before* what it tells can have a consequence: the end of a lease before
its release is sent, its beginning when it is known. So whatever is stopped or killed, a lease in the history is never
longer than it was, and two that overlap there did overlap.
"""

import argparse
import asyncio
import contextlib
import contextvars
import gc
import itertools
import json
import math
import os
import random
import signal
import sys
import time
from pathlib import Path

import redis
from faults_register import Register

from redlock_async import LockLost, LockTimeout, QuorumUnavailable, Redlock
from redlock_async._runtime.acquisition import Acquisition
from redlock_async._transport.clock import now

LONGEST_TTL = 3.0
SHORTEST_TTL = 0.5
PERMITS = 3
NAMES = ("a", "b", "c")
LATCH_SECONDS, LATCH_IDS, LATCH_RETENTION = 5, 2, 20
PULSE = 0.005
SKEWS = (0.0, -2.0, 0.7, 5.0)
"""Seconds by which each process's wall clock is wrong: nothing may depend on it, and fences least of all."""
KINDS = {"lock": 52, "several": 12, "fair": 10, "read": 8, "write": 4, "semaphore": 10, "latch": 4}
GUARDED = {"lock", "several", "fair", "write"}
ASKING = contextvars.ContextVar("ASKING")
"""The number of the question that a task is asking, and its kind."""


class Witness:
    """Writes what happens to a file, one line each; `at` is when."""

    def __init__(self, path):
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._numbers = itertools.count()
        self.held = set()

    def note(self, what, **details):
        """One line, at once."""
        os.write(self._file, (json.dumps({"what": what, "at": now(), **details}) + "\n").encode())

    def number(self):
        """A fresh one, for things that are told of more than once."""
        return next(self._numbers)

    def listen(self, event):
        """What the library reports: in the same step of the loop, hence before it sends what follows from it."""
        if event.kind in {"extended", "lost"}:
            for held in [held for held in self.held if held.names == event.names]:
                held.look()
                if event.error is not None and held.holding.lost_by is event.error:
                    self.note("lost", id=held.id, over=held.holding.until == -math.inf)


class Held:
    """A lease, as the history shows it."""

    def __init__(self, witness, kind, lease, **more):
        self.witness, self.holding, self.names = witness, lease._held, lease.names
        self.id, self.until = witness.number(), self.holding.until
        claim = self.holding.kind
        slot = {"slots": claim.slots, "permits": claim.permits} if kind == "semaphore" else {}
        witness.held.add(self)
        told = {"id": self.id, "until": self.until, "kind": kind, "names": self.names, "fence": lease.fencing_token}
        witness.note("held", **{**told, **slot, **more})

    def look(self):
        """Note its deadline if it is another; a lease that was ended at once keeps the last one."""
        until = self.holding.until
        if until not in {self.until, -math.inf}:
            self.until = until
            self.witness.note("until", id=self.id, until=until)

    def end(self):
        """The body has ended; the release comes after this."""
        self.look()
        self.witness.held.discard(self)
        self.witness.note("end", id=self.id)


def note_who_queues(witness):
    """Note from when on a fair waiter is in the queue on a majority: as many have refused it, and keep its entry.

    Who was cut off from a majority for as long as entries are kept asks without its entry at first, and keeps nothing.
    """
    pause, noted = Acquisition._wait_for_retry, set()

    async def queued(self):
        asking, kind = ASKING.get()
        sent = kind == "fair" and self._attempt._id in self._round.command._arguments
        stored = sent and len(self._round.refusals) >= self._context.quorum
        if stored and asking not in noted:
            noted.add(asking)
            witness.note("queued", id=asking)
        return await pause(self)

    Acquisition._wait_for_retry = queued


class Contender:
    """What one process does."""

    def __init__(self, options, witness, redlock, register):
        self.options, self.witness, self.redlock, self.register = options, witness, redlock, register
        self.random = random.Random(options.seed)
        self.writes = set()
        self.stop_until = 0.0
        """Whoever is about to write before then is stopped first, by SIGSTOP."""

    async def run(self):
        """One task: again and again another kind of lock, at times cancelled at a random moment."""
        chance = self.random
        # Not for ever: on Python 3.11 redis-py loses a cancellation that comes together with the register's answer.
        while not asyncio.current_task().cancelling():
            (kind,) = chance.choices(list(KINDS), KINDS.values())
            turn = asyncio.create_task(self.latch() if kind == "latch" else self.turn(kind))
            timer = None
            if chance.random() < 0.1:
                timer = asyncio.get_running_loop().call_later(chance.expovariate(1 / 0.03), turn.cancel)
            try:
                await turn
            except asyncio.CancelledError:
                if asyncio.current_task().cancelling():
                    raise
            except (LockTimeout, QuorumUnavailable, LockLost, TimeoutError) as error:
                self.witness.note("error", kind=type(error).__name__)
            finally:
                if timer is not None:
                    timer.cancel()
                if not turn.done():
                    turn.cancel()
                    await asyncio.wait([turn])
            await asyncio.sleep(chance.uniform(0, 2 * self.options.pace))

    def lock(self, kind):
        """A lock of that kind, and how long its body is to take."""
        chance, redlock = self.random, self.redlock
        ttl = chance.choice((SHORTEST_TTL, 0.8, 1.5, LONGEST_TTL))
        options = {"ttl": ttl, "renew": chance.random() < 0.6, "wait": chance.choice((0, 0.5, 4.0))}
        length = chance.expovariate(1 / 0.02)
        if chance.random() < 0.03:
            length = ttl * chance.uniform(0.5, 1.7)
        if kind == "lock":
            return redlock(chance.choice(NAMES), **options), length
        if kind == "several":
            return redlock(*chance.sample(NAMES, 2), **options), length
        if kind == "semaphore":
            return redlock.semaphore("s", permits=PERMITS, **options), length
        return {"fair": redlock.fair_lock, "read": redlock.read_lock, "write": redlock.write_lock}[kind](
            "f" if kind == "fair" else "rw", **options
        ), length

    async def turn(self, kind):
        """One lease and its body."""
        lock, length = self.lock(kind)
        number = self.witness.number()
        names = lock.names
        self.witness.note("ask", id=number, names=names, kind=kind)
        ASKING.set((number, kind))
        slots = self.random.choice((1, 1, 2)) if kind == "semaphore" else 1
        answered = contextlib.ExitStack()
        answered.callback(self.witness.note, "answer", id=number)
        with answered:
            limit = length + 5 if self.random.random() < 0.95 else self.random.uniform(0, 0.1)
            async with asyncio.timeout(limit), lock if slots == 1 else await lock.acquire(count=slots) as lease:
                held = Held(self.witness, kind, lease, asked=number)
                answered.close()
                try:
                    await self.body(kind, lease, length)
                finally:
                    held.end()
                if kind == "write" and self.random.random() < 0.3:
                    await self.read_on(lease, length)

    async def read_on(self, writing, length):
        """The writer becomes a reader: nobody else writes in between, and it keeps its fence."""
        async with await writing.downgrade() as lease:
            held = Held(self.witness, "read", lease, fence=None)
            try:
                await asyncio.sleep(length)
            finally:
                held.end()

    async def body(self, kind, lease, length):
        """Read, take some time, write. As with a driver that runs in a thread, a write begun is not called back."""
        name, fence = lease.names[0], lease.fencing_token
        values = await self.register.read(name, fence) if kind in GUARDED else None
        await asyncio.sleep(length / 2)
        if values is None:
            await asyncio.sleep(length / 2)
        else:
            write = asyncio.create_task(self.write(name, fence, values, length / 2))
            self.writes.add(write)
            write.add_done_callback(self.writes.discard)
            await asyncio.shield(write)

    async def write(self, name, fence, values, length):
        """The second half of such a body."""
        if now() < self.stop_until:
            self.stop_until = 0.0
            os.kill(os.getpid(), signal.SIGSTOP)
        await asyncio.sleep(min(length, 0.02))
        try:
            await self.register.write(name, fence, values)
        except redis.ConnectionError as error:
            # Nobody may wait for it any more: the register's connection ends with this process.
            self.witness.note("error", kind=f"register: {error}")
        await asyncio.sleep(max(length - 0.02, 0))

    async def latch(self):
        """Count down one of this process's ids, or wait."""
        count = self.options.processes * LATCH_IDS
        name = f"latch-{int(now() / LATCH_SECONDS)}"
        latch = self.redlock.latch(name, count=count, retention=LATCH_RETENTION)
        for part in range(LATCH_IDS):
            event = f"{self.options.index}-{part}"
            self.witness.note("down", latch=name, count=count, event=event)
            await latch.count_down(event)
        asked = now()
        try:
            await latch.wait(timeout=self.random.choice((0.0, LATCH_SECONDS / 2)))
            self.witness.note("open", latch=name, count=count)
            asked = now()
            left = await latch.remaining()
        except LockTimeout:
            left = None
        self.witness.note("left", latch=name, asked=asked, left=left)


async def pulse(witness):
    """Note when the loop stood still, and how much of that the process had the processor."""
    before, worked = now(), time.process_time()
    while True:
        await asyncio.sleep(PULSE)
        at, cpu = now(), time.process_time()
        if at - before > 2 * PULSE:
            witness.note("stall", since=before, cpu=cpu - worked)
        before, worked = at, cpu


async def samples(witness, every):
    """Note what would grow if anything leaked."""
    loop, own = asyncio.get_running_loop(), Path("/proc/self")
    while True:
        await asyncio.sleep(every)
        gc.collect()
        resident = int((own / "statm").read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
        witness.note(
            "sample",
            rss=resident,
            tasks=len(asyncio.all_tasks()),
            fds=sum(1 for _ in (own / "fd").iterdir()),
            timers=sum(not timer.cancelled() for timer in loop._scheduled),
            objects=sum(type(thing).__module__.startswith("redlock_async") for thing in gc.get_objects()),
        )


async def main(options):
    """Contend until stdin ends."""
    witness = Witness(options.history)
    real, skew = time.time_ns, round(SKEWS[options.index % len(SKEWS)] * 1e9)
    time.time_ns = lambda: real() + skew
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: witness.note("surprise", text=repr(context)))
    sys.unraisablehook = lambda found: witness.note("surprise", text=repr(found))
    redlock = Redlock(options.nodes, ttl=LONGEST_TTL, owner=options.owner, wait=5.0)
    redlock.on_event(witness.listen)
    note_who_queues(witness)
    register = Register(options.register)
    ended = asyncio.Event()
    contender = Contender(options, witness, redlock, register)

    def told():
        if until := os.read(0, 100).split():
            contender.stop_until = float(until[-1])
        else:
            loop.remove_reader(0)
            ended.set()

    loop.add_reader(0, told)
    async with redlock:
        witness.note("ready")
        tasks = [asyncio.create_task(contender.run()) for _ in range(options.tasks)]
        tasks += [asyncio.create_task(pulse(witness)), asyncio.create_task(samples(witness, options.sample))]
        stop = asyncio.create_task(ended.wait())
        done, _ = await asyncio.wait([stop, *tasks], return_when=asyncio.FIRST_COMPLETED)
        for task in done - {stop}:
            witness.note("surprise", text=repr(task.exception()))
        for task in tasks:
            task.cancel()
        await asyncio.wait([*tasks, *contender.writes])
    await register.close()
    witness.note("closed", statistics=repr(redlock.statistics()))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--history")
    parser.add_argument("--owner")
    parser.add_argument("--register")
    parser.add_argument("--index", type=int)
    parser.add_argument("--processes", type=int)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--tasks", type=int)
    parser.add_argument("--pace", type=float)
    parser.add_argument("--sample", type=float)
    parser.add_argument("nodes", nargs="+")
    asyncio.run(main(parser.parse_args()))
