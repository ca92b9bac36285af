"""Run the contenders in turns (scenario, round, contender), so that changes on the machine affect all of them alike."""

from __future__ import annotations

import asyncio
import json
import os
import selectors
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, cast

from .clusters import own
from .contenders import Entry, Missing, Start
from .scenarios import Sample, Scenario, Setting, Stage, Unmeasured
from .timing import now

ROOT = Path(__file__).resolve().parents[1]
PATIENCE = 20.0
"""Extra seconds that a contender may take for a reply."""

SLACK = 2.0
"""Extra seconds that a contender may take in a scenario before it gets no more rounds."""

LONGEST_ANSWER = 64 * 1024 * 1024


class Failed(Exception):  # noqa: N818 - as Missing
    """A request to a contender failed. The message says why."""


class Gone(Failed):
    """A contender's process no longer replies."""


@dataclass
class Result:
    """The results of one contender in one scenario."""

    scenario: Scenario
    entry: Entry
    rounds: list[Sample] = field(default_factory=list)
    missing: str | None = None
    """Why figures are missing."""
    spent: float = 0.0
    """Seconds spent."""


class WorkerProcess:
    """The other end of `worker.py`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def ask(self, **request: object) -> Sample:
        """Send a request and wait for its reply."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None  # noqa: S101, PT018 - both are pipes
        seconds = cast("float", request.get("seconds", 0.0))
        try:
            stdin.write(json.dumps(request).encode() + b"\n")
            async with asyncio.timeout(seconds + PATIENCE):
                line = await stdout.readline()
        except TimeoutError:
            raise Gone(f"no answer within {seconds + PATIENCE:g} s") from None
        except ConnectionError as exc:
            raise Gone(f"its process has ended: {exc}") from None
        if not line:
            raise Gone("its process has ended")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise Failed(answer["error"])
        return answer


@asynccontextmanager
async def worker(start: Start, urls: Sequence[str]) -> AsyncIterator[WorkerProcess]:
    """Start that contender in its own process and connect it."""
    process = await asyncio.create_subprocess_exec(
        *start.argv,
        cwd=ROOT,
        env=os.environ | start.environment,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=LONGEST_ANSWER,
        start_new_session=True,  # only this process handles Ctrl-C; it ends the workers
    )
    try:
        started = WorkerProcess(process)
        await started.ask(do="open", urls=list(urls))
        yield started
    finally:
        # A worker only measures, so it need not close its connections.
        if process.returncode is None:
            process.kill()
        await process.wait()


class Team:
    """The processes of one contender on one set of nodes, as many as its scenarios have needed so far."""

    def __init__(self, start: Start, urls: Sequence[str]) -> None:
        self._start = start
        self._urls = urls
        self._stack = AsyncExitStack()
        self._processes: list[WorkerProcess] = []

    async def of(self, size: int) -> Sequence[WorkerProcess]:
        """Return that many processes, starting missing ones."""
        while len(self._processes) < size:
            self._processes.append(await self._stack.enter_async_context(worker(self._start, self._urls)))
        return self._processes[:size]

    async def end(self) -> None:
        """End all processes; later requests start new ones."""
        self._processes.clear()
        await self._stack.aclose()


@dataclass(frozen=True)
class Plan:
    """The scenarios and contenders to measure, and for how long."""

    scenarios: Sequence[Scenario]
    entries: Sequence[Entry]
    seconds: float
    rounds: int
    install: bool
    local: bool = False
    """Whether nodes may be started here, for scenarios that need their own."""
    named: bool = False
    """Whether the contenders were chosen by name."""


class Runner:
    """One run of a plan on one cluster."""

    def __init__(self, plan: Plan, urls: Sequence[str], progress: Callable[[str], None]) -> None:
        self._plan = plan
        self._urls = urls
        self._progress = progress
        self._starts: dict[str, Start] = {}
        self._missing: dict[str, str] = {}
        self.results: list[Result] = []
        """The results so far."""

    def measure(self) -> list[Result]:
        """`run`, on an event loop whose timers are exact."""
        with asyncio.Runner(loop_factory=punctual_loop) as runner:
            return runner.run(self.run())

    async def run(self) -> list[Result]:
        """Run every scenario with every contender, and record those that cannot be measured."""
        for entry in self._plan.entries:
            self._progress(f"preparing {entry.name}")
            try:
                self._starts[entry.name] = entry.command(install=self._plan.install)
            except Missing as exc:
                self._missing[entry.name] = str(exc)
        try:
            for setting, scenarios in groupby(self._plan.scenarios, lambda scenario: scenario.setting):
                await self._in_setting(setting, list(scenarios))
        finally:
            for result in self.results:
                if not result.rounds and result.missing is None:
                    result.missing = "the run was ended before"
        return self.results

    async def _in_setting(self, setting: Setting, scenarios: Sequence[Scenario]) -> None:
        results = [
            Result(scenario, entry)
            for scenario in scenarios
            for entry in self._plan.entries
            if self._plan.named or scenario.usual is None or entry.name in scenario.usual
        ]
        self.results += results
        if setting.own and not self._plan.local:
            for result in results:
                result.missing = "it needs its own nodes, which --cluster embedded starts"
            return
        able = {result.entry.name: result.entry for result in results if self._why_not(result) is None}
        groups = [[entry] for entry in able] if setting.alone else [list(able)]
        async with AsyncExitStack() as stack:
            urls, cluster = self._urls, None
            if setting.own:
                self._progress("starting nodes")
                cluster = await stack.enter_async_context(own(setting))
                urls = cluster.urls
            for names in groups:
                teams = {name: Team(self._starts[name], urls) for name in names}
                for team in teams.values():
                    stack.push_async_callback(team.end)
                for scenario in scenarios:
                    theirs = [r for r in results if r.scenario is scenario and r.entry.name in teams]
                    await self._scenario(theirs, teams, Stage((), urls, cluster if setting.faults else None))
                for team in teams.values():
                    await team.end()
        for result in results:
            if not result.rounds and result.missing is None:
                result.missing = self._why_not(result)

    async def _scenario(self, results: Sequence[Result], teams: dict[str, Team], stage: Stage) -> None:
        plan = self._plan
        for number in range(plan.rounds):
            # Reverse the order every other time, so that no contender always follows the same one.
            for result in results if number % 2 == 0 else reversed(results):
                rounds = result.scenario.rounds(result.entry, plan.rounds, named=plan.named)
                seconds = max(plan.seconds, result.scenario.least)
                result.missing = result.missing or self._why_not(result)
                if result.missing is None and number < rounds and result.spent < rounds * seconds + SLACK:
                    self._progress(f"{result.scenario.title}: round {number + 1} of {rounds}: {result.entry.name}")
                    await self._round(result, teams[result.entry.name], stage, seconds)

    async def _round(self, result: Result, team: Team, stage: Stage, seconds: float) -> None:
        scenario = result.scenario
        started = now()
        try:
            processes = await team.of(scenario.processes)
            # The scenario's time does not include starting the processes.
            started = now()
            sample = await scenario.measure(Stage(processes, stage.urls, stage.cluster), seconds)
            result.rounds.append(sample)
        except Unmeasured as exc:
            result.missing = str(exc)
        except Failed as exc:
            result.missing = str(exc)
            # Its state is unknown: its replies could belong to earlier requests.
            await team.end()
            if isinstance(exc, Gone):
                # Wait for it only once.
                self._missing[result.entry.name] = f"failed before, at {scenario.title}: {exc}"
        result.spent += now() - started

    def _why_not(self, result: Result) -> str | None:
        if not result.scenario.fits(result.entry):
            return "it has no such thing"
        return self._missing.get(result.entry.name)


def punctual_loop() -> asyncio.AbstractEventLoop:
    """Use select(), which is exact to microseconds: epoll()'s milliseconds are too coarse for a delaying proxy."""
    return asyncio.SelectorEventLoop(selectors.SelectSelector())
