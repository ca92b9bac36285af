"""Fenced writes by processes that are paused beyond their lease, force-released and killed: none may be lost or late.

    python tests/proof/fences.py --writes 100000                 # every adapter on PostgreSQL and SQLite
    python tests/proof/fences.py --writes 20000 --unfenced       # what is lost without fence()
    python tests/proof/fences.py --adapter asyncpg --isolation "repeatable read"

Each write is a transaction that reads a counter, adds one and logs it. The workers do not use the block of a lock,
which would be cancelled at the loss: they carry on as if they held it, like any code that cannot be cancelled.
"""

import argparse
import asyncio
import logging
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "fenced"))

from databases import mariadb, postgresql
from stores import STORES, create, dialect_of, opened, verdict

from redlock_async import LockLost, LockTimeout, NotHeld, QuorumUnavailable, Redlock, StaleFence
from redlock_async.testing import LocalCluster

NAME, TTL, WORKERS, BURST = "counter", 0.6, 4, 50


def is_conflict(error):
    """Whether the transaction is to be run again: it says so itself."""
    return any("not a stale fence" in note for note in getattr(error, "__notes__", ()))


async def work(adapter, database, isolation, urls, *, fenced, seed):
    """Acquire, write a few times, release; until the parent kills this process."""
    chance, parent = random.Random(seed), os.getppid()
    counts = {"stale": 0, "conflicts": 0}
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)

    async def pause():
        await asyncio.sleep(chance.choice([0, 0, 0, 0, 0, 0, 0.001, 0.004]))

    async with opened(adapter, database, isolation) as store, Redlock(urls, ttl=TTL, wait=None) as redlock:
        while not stop.is_set() and os.getppid() == parent:
            with suppress(LockLost, LockTimeout, NotHeld, QuorumUnavailable):
                lease = await redlock(NAME).acquire()
                try:
                    for _ in range(BURST):
                        while True:
                            try:
                                await store.add(lease, pause=pause, fenced=fenced)
                                break
                            except StaleFence:
                                counts["stale"] += 1
                                raise
                            except Exception as error:
                                if not (is_conflict(error) or (not fenced and "locked" in str(error))):
                                    raise
                                counts["conflicts"] += 1
                except StaleFence:
                    pass
                finally:
                    await lease.release()
    print(counts["stale"], counts["conflicts"], flush=True)


def start(options, adapter, database, urls, number):
    """A worker process."""
    command = [sys.executable, __file__, "--work", adapter, "--database", database, "--seed", str(number)]
    command += ["--unfenced"] if options.unfenced else []
    command += ["--isolation", options.isolation] if options.isolation else []
    return subprocess.Popen(
        command, env=os.environ | {"REDLOCK_NODES": ",".join(urls)}, stdout=subprocess.PIPE, text=True
    )


def counted(dialect, database):
    """How far it is."""
    from stores import connect  # noqa: PLC0415 - not for the workers

    connection = connect(dialect, database)
    cursor = connection.cursor()
    cursor.execute("SELECT count(*) FROM written")
    ((number,),) = cursor.fetchall()
    connection.close()
    return number


async def prove(options, adapter, database, urls):
    """Run one adapter to its number of writes and faults; return the verdict and what was done to the workers."""
    dialect = dialect_of(adapter)
    create(dialect, database)
    chance = random.Random(options.seed)
    done = {"paused": 0, "killed": 0, "forced": 0}
    workers = [start(options, adapter, database, urls, number) for number in range(WORKERS)]
    started, next_fault = time.monotonic(), time.monotonic() + 1
    try:
        async with Redlock(urls, ttl=TTL) as redlock:
            while counted(dialect, database) < options.writes or sum(done.values()) < options.faults:
                await asyncio.sleep(0.2)
                if any(worker.poll() for worker in workers):
                    raise RuntimeError("a worker ended with an error")
                if time.monotonic() < next_fault:
                    continue
                next_fault = time.monotonic() + chance.uniform(0.1, options.calm)
                fault = chance.choice(["paused", "paused", "killed", "forced", "forced"])
                victim = chance.randrange(WORKERS)
                if fault == "paused":
                    workers[victim].send_signal(signal.SIGSTOP)
                    await asyncio.sleep(TTL * chance.uniform(1.2, 1.8))
                    workers[victim].send_signal(signal.SIGCONT)
                elif fault == "killed":
                    workers[victim].kill()
                    workers[victim].wait()
                    workers[victim] = start(options, adapter, database, urls, chance.randrange(10**9))
                elif not await redlock.force_release(NAME):
                    continue
                done[fault] += 1
        for worker in workers:
            worker.terminate()
        said = [worker.communicate(timeout=30)[0].split() for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    done["stale"], done["conflicts"] = (sum(int(each[place]) for each in said if each) for place in (0, 1))
    return (*verdict(dialect, database), done, time.monotonic() - started)


@contextmanager
def databases(adapters):
    """The databases that these adapters need."""
    with ExitStack() as stack:
        dialects = {dialect_of(adapter) for adapter in adapters}
        found = {}
        if "postgresql" in dialects:
            found["postgresql"] = stack.enter_context(postgresql())
        if "mysql" in dialects:
            found["mysql"] = stack.enter_context(mariadb())
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="redlock-sqlite-"))
        found["sqlite"] = str(Path(folder) / "data.sqlite")
        yield found


def main():
    """Prove each adapter, or be a worker."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--adapter", action="append", choices=STORES)
    parser.add_argument("--writes", type=int, default=2000)
    parser.add_argument("--faults", type=int, default=0, help="continue until there were so many faults")
    parser.add_argument("--calm", type=float, default=1.0, help="longest time between two faults")
    parser.add_argument("--unfenced", action="store_true")
    parser.add_argument("--isolation", help="of PostgreSQL: read_committed, repeatable_read, serializable")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--work", help=argparse.SUPPRESS)
    parser.add_argument("--database", help=argparse.SUPPRESS)
    options = parser.parse_args()
    logging.getLogger("redlock_async").setLevel(logging.ERROR)  # losses are the point here
    if options.work:
        urls = os.environ["REDLOCK_NODES"].split(",")
        work_now = work(
            options.work, options.database, options.isolation, urls, fenced=not options.unfenced, seed=options.seed
        )
        asyncio.run(work_now)
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))  # and the databases are stopped
    adapters = options.adapter or [name for name in STORES if dialect_of(name) != "mysql"]
    bad = 0
    with databases(adapters) as places, LocalCluster(nodes=3) as cluster:
        for adapter in adapters:
            result = asyncio.run(prove(options, adapter, places[dialect_of(adapter)], list(cluster.urls)))
            written, lost, late, done, seconds = result
            what = "without fence()" if options.unfenced else f"fenced {options.isolation or ''}".strip()
            faults = ", ".join(f"{number} {fault}" for fault, number in done.items())
            print(
                f"{adapter}: {written} writes {what}, {lost} lost, {late} after a later holder's; {faults}; "
                f"{seconds:.0f} s",
                flush=True,
            )
            bad += lost + late
    if options.unfenced:
        print(f"{bad} lost or late in all" if bad else "nothing was lost: run more writes")
        return not bad
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
