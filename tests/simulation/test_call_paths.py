"""How many modules a reader has to open to follow an acquire or a release, counted on three simulated nodes."""

import asyncio
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

import redlock_async
from redlock_async import Redlock
from redlock_async.testing.simulation import Simulation

ROOT = Path(redlock_async.__file__).parent

MODULES = {"acquire": 15, "release": 10}


class Calls:
    """Records the calls of the package's functions; the simulated servers are no part of it."""

    def __init__(self):
        self.modules = []
        self.functions = Counter()

    def __call__(self, frame, event, _argument):
        """As a profile function."""
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(ROOT) and "testing" not in path.parts:
            module = path.relative_to(ROOT).as_posix()
            self.modules.append(module)
            self.functions[module, frame.f_code.co_name] += 1

    def __str__(self):
        switches = sum(one != other for one, other in pairwise(self.modules))
        lines = [f"{len(set(self.modules))} modules, {len(self.modules)} calls, {switches} switches between modules"]
        for module in dict.fromkeys(self.modules):
            functions = ", ".join(name for file, name in self.functions if file == module)
            lines.append(f"  {module}: {functions}")
        return "\n".join(lines)


@pytest.mark.parametrize("held", [0.01, 0.5], ids=["before its initial check", "renewed"])
def test_a_plain_lock_touches_few_modules(held):
    """From `async with` to the first line of the block, and from its last line to the line after it.

    It is held until the last node has replied.
    """
    calls = {"acquire": Calls(), "release": Calls()}

    async def main():
        async with Redlock(simulation.urls) as redlock:
            async with redlock("x"):
                pass
            await asyncio.sleep(1)
            sys.setprofile(calls["acquire"])
            async with redlock("x"):
                sys.setprofile(None)
                await asyncio.sleep(held)
                sys.setprofile(calls["release"])
            sys.setprofile(None)

    with Simulation(nodes=3, seed=1, skew=0.0) as simulation:
        process = simulation.process(main)
        try:
            simulation.run()
        finally:
            sys.setprofile(None)
        process.result()
    for what, counted in calls.items():
        print(f"{what}: {counted}")
        assert counted.functions, what
        assert len(set(counted.modules)) <= MODULES[what], f"{what}: {counted}"
