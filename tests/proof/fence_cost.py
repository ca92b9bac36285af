"""What fence() costs: the same transaction with it and without it, in turns, on one connection.

python tests/proof/fence_cost.py --transactions 2000
"""

import argparse
import asyncio
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "fenced"))

from fences import databases
from stores import STORES, create, dialect_of, opened


@dataclass
class Holder:
    """A lease of which only the token matters."""

    fencing_token: int = 7
    names: tuple[str, ...] = ("counter",)
    slots: tuple[int, ...] = ()


async def measure(adapter, database, transactions):
    """The median of each, in ms."""
    create(dialect_of(adapter), database)
    times = {True: [], False: []}
    async with opened(adapter, database) as store:
        for number in range(2 * transactions):
            begun = time.perf_counter()
            await store.add(Holder(), fenced=bool(number % 2))
            times[bool(number % 2)].append(time.perf_counter() - begun)
    return {fenced: statistics.median(each) * 1000 for fenced, each in times.items()}


def main():
    """Print a line for each adapter."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--transactions", type=int, default=1000)
    options = parser.parse_args()
    adapters = [name for name in STORES if dialect_of(name) != "mysql"]
    with databases(adapters) as places:
        for adapter in adapters:
            found = asyncio.run(measure(adapter, places[dialect_of(adapter)], options.transactions))
            more = found[True] - found[False]
            print(f"{adapter:25} {found[False]:.2f} ms, fenced {found[True]:.2f} ms: {more:+.2f} ms", flush=True)


if __name__ == "__main__":
    main()
