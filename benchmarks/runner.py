"""Runs the contenders in turns: each scenario, each round, each contender, so that whatever changes on the machine
meanwhile changes for all of them alike."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from .contenders import Entry, Missing
from .scenarios import Sample, Scenario

ROOT = Path(__file__).resolve().parents[1]
PATIENCE = 20.0
"""Seconds beyond its own time that a contender may take for an answer."""


class Failed(Exception):  # noqa: N818 - as Missing
    """A contender did not do what it was asked to; says why."""


@dataclass
class Result:
    """What one contender did in one scenario."""

    scenario: Scenario
    entry: Entry
    rounds: list[Sample] = field(default_factory=list)
    missing: str | None = None
    """Why there is no figure, or not all."""


class WorkerProcess:
    """The other end of `worker.py`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def ask(self, **request: object) -> Sample:
        """Send a request and wait for its answer."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None  # noqa: S101, PT018 - both are pipes
        seconds = cast("float", request.get("seconds", 0.0))
        try:
            stdin.write(json.dumps(request).encode() + b"\n")
            async with asyncio.timeout(seconds + PATIENCE):
                line = await stdout.readline()
        except TimeoutError:
            raise Failed(f"no answer within {seconds + PATIENCE:g} s") from None
        except ConnectionError as exc:
            raise Failed(f"its process has ended: {exc}") from None
        if not line:
            raise Failed("its process has ended")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise Failed(answer["error"])
        return answer


@asynccontextmanager
async def worker(entry: Entry, python: str, urls: Sequence[str]) -> AsyncIterator[WorkerProcess]:
    """That contender in a process of its own, connected."""
    process = await asyncio.create_subprocess_exec(
        python, "-W", "ignore", "-m", "benchmarks.worker", entry.name,
        cwd=ROOT, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        started = WorkerProcess(process)
        await started.ask(do="open", urls=list(urls))
        yield started
    finally:
        # It only measures: nothing is lost if it does not get to close its connections.
        if process.returncode is None:
            process.kill()
        await process.wait()


@dataclass(frozen=True)
class Plan:
    """What to measure, and for how long."""

    scenarios: Sequence[Scenario]
    entries: Sequence[Entry]
    seconds: float
    rounds: int
    install: bool


class Runner:
    """One run of a plan on one cluster."""

    def __init__(self, plan: Plan, urls: Sequence[str], progress: Callable[[str], None]) -> None:
        self._plan = plan
        self._urls = urls
        self._progress = progress
        self._processes: dict[str, tuple[WorkerProcess, WorkerProcess]] = {}
        self._missing: dict[str, str] = {}

    async def run(self) -> list[Result]:
        """Every scenario with every contender, whether or not it could be measured."""
        async with AsyncExitStack() as stack:
            for entry in self._plan.entries:
                self._progress(f"starting {entry.name}")
                try:
                    python = entry.python(install=self._plan.install) or sys.executable
                    two = [await stack.enter_async_context(worker(entry, python, self._urls)) for _ in range(2)]
                    self._processes[entry.name] = (two[0], two[1])
                except (Missing, Failed) as exc:
                    self._missing[entry.name] = str(exc)
            return [result for scenario in self._plan.scenarios for result in await self._scenario(scenario)]

    async def _scenario(self, scenario: Scenario) -> list[Result]:
        results = [Result(scenario, entry, missing=self._why_not(scenario, entry)) for entry in self._plan.entries]
        able = [result for result in results if result.missing is None]
        for number in range(self._plan.rounds):
            # Backwards every other time: nobody always runs behind the same neighbour.
            for result in able if number % 2 == 0 else reversed(able):
                if result.missing is None:
                    self._progress(f"{scenario.title}: round {number + 1} of {self._plan.rounds}: {result.entry.name}")
                    await self._round(result)
        return results

    async def _round(self, result: Result) -> None:
        process, partner = self._processes[result.entry.name]
        try:
            result.rounds.append(await result.scenario.measure(process, partner, self._plan.seconds))
        except Failed as exc:
            result.missing = str(exc)
            # What it was in the middle of is unknown: its answers could be those to earlier requests.
            self._missing[result.entry.name] = f"failed before, at {result.scenario.title}: {exc}"

    def _why_not(self, scenario: Scenario, entry: Entry) -> str | None:
        if not scenario.fits(entry):
            return "it has no such thing"
        return self._missing.get(entry.name)
