"""Contenders take turns, and one that fails costs the others nothing."""

import asyncio
import json
import os
import sys
import textwrap
import time
from dataclasses import dataclass, field

import pytest

from benchmarks import runner
from benchmarks.contenders import Missing, Start
from benchmarks.runner import Failed, Gone, Plan, Runner, punctual_loop, worker
from benchmarks.scenarios import Figure, Scenario, Setting, Unmeasured

# A contender that notes every request. `fails at X` is an error in answer to X, `ends at X` the end of its process.
WORKER = """
import json, os, sys
name, log, mood = sys.argv[1:]
verb, _, what = mood.partition(" at ")
for line in sys.stdin:
    request = json.loads(line)
    with open(log, "a") as file:
        print(json.dumps([name, os.getpid(), request]), file=file)
    if what == request.get("base", request["do"]):
        if verb == "ends":
            sys.exit()
        if verb == "sleeps":
            continue
        if verb == "fails":
            print(json.dumps({"error": "no luck"}), flush=True)
            continue
    print(json.dumps({"rate": 1.0}), flush=True)
"""


@dataclass
class Contender:
    """An entry whose worker is the one above."""

    name: str
    log: object
    mood: str = ""
    missing: str | None = None
    can: frozenset = frozenset()
    title: str = ""
    floor: str = "a"
    asked_for: list = field(default_factory=list)

    def command(self, *, install):
        """As an Entry's."""
        self.asked_for.append(install)
        if self.missing is not None:
            raise Missing(self.missing)
        return Start((sys.executable, "-c", WORKER, self.name, str(self.log), self.mood), {})


class Told(Scenario):
    """One request a process."""

    figures = (Figure("rate", "rate", "/s"),)
    peer_rounds = 99

    def __init__(self, name="told", **attributes):
        self.name = self.title = name
        for key, value in attributes.items():
            setattr(self, key, value)

    async def measure(self, stage, seconds):
        samples = [await process.ask(do="pairs", base=self.name, seconds=seconds) for process in stage.processes]
        return samples[0] | {"seconds": seconds}


class Nothing(Told):
    """There is nothing to tell of it."""

    async def measure(self, stage, seconds):
        await super().measure(stage, seconds)
        raise Unmeasured("all of it failed")


@pytest.fixture
def log(tmp_path):
    """Where the workers note what they are asked."""
    return tmp_path / "log"


def notes(log):
    """Contender, process and request, in order."""
    return [json.loads(line) for line in log.read_text("utf-8").splitlines()]


def order(log, base="told"):
    """Who was asked for that scenario, in order."""
    return [name for name, _, request in notes(log) if request.get("base") == base]


def measured(entries, scenarios, *, rounds=1, **options):
    """The results, by scenario and contender."""
    plan = Plan(scenarios, entries, seconds=0.01, rounds=rounds, install=False, **options)
    results = Runner(plan, ["redis://given"], lambda _: None).measure()
    return {(result.scenario.name, result.entry.name): result for result in results}


def test_contenders_alternate(log):
    """Each round all of them, and backwards every other time."""
    results = measured([Contender(name, log) for name in "abc"], [Told()], rounds=3)
    assert order(log) == [*"abc", *"cba", *"abc"]
    assert all(len(result.rounds) == 3 and result.missing is None for result in results.values())


def test_every_worker_is_given_the_masters(log):
    """Before anything else, and once a process."""
    measured([Contender("a", log)], [Told(processes=3)], rounds=2)
    opened = [pid for _, pid, request in notes(log) if request == {"do": "open", "urls": ["redis://given"]}]
    assert len(set(opened)) == len(opened) == 3
    assert [pid for _, pid, _ in notes(log)][:3] == opened


def test_a_missing_contender_is_asked_for_once(log):
    """An installation that fails is not tried again, and the others run."""
    gone = Contender("b", log, missing="nowhere to be had")
    results = measured([Contender("a", log), gone], [Told("one"), Told("two")])
    assert gone.asked_for == [False]
    assert results["one", "b"].missing == results["two", "b"].missing == "nowhere to be had"
    assert results["two", "a"].rounds


def test_an_error_costs_its_scenario_only(log):
    """With new processes afterwards: what the old one was in the middle of is unknown."""
    results = measured([Contender("a", log), Contender("b", log, "fails at one")], [Told("one"), Told("two")], rounds=2)
    assert results["one", "b"].missing == "no luck"
    assert results["two", "b"].missing is None
    assert len(results["two", "b"].rounds) == len(results["one", "a"].rounds) == 2
    by = {request["base"]: pid for name, pid, request in notes(log) if name == "b" and "base" in request}
    assert by["one"] != by["two"]
    assert order(log, "one").count("b") == 1  # no second try


def test_a_process_that_ends_is_not_asked_again(log):
    """It would fail in every scenario, and each time somebody would have to wait for it."""
    results = measured([Contender("a", log), Contender("b", log, "ends at one")], [Told("one"), Told("two")])
    assert results["one", "b"].missing == "its process has ended"
    assert results["two", "b"].missing == "failed before, at one: its process has ended"
    assert results["two", "a"].rounds


def test_a_worker_that_cannot_connect_is_missing(log):
    """Its own words."""
    results = measured([Contender("a", log), Contender("b", log, "fails at open")], [Told()])
    assert results["told", "b"].missing == "no luck"
    assert results["told", "a"].rounds


def test_silence_is_not_waited_for(log, monkeypatch):
    """No longer than the time of the round and some patience."""
    monkeypatch.setattr(runner, "PATIENCE", 0.3)
    results = measured([Contender("a", log, "sleeps at one")], [Told("one"), Told("two")])
    assert results["one", "a"].missing == "no answer within 0.31 s"
    assert "failed before" in results["two", "a"].missing


def test_nothing_measured_is_no_reason_to_start_anew(log):
    """It did what it was asked."""
    results = measured([Contender("a", log)], [Nothing("one"), Told("two")])
    assert results["one", "a"].missing == "all of it failed"
    assert results["two", "a"].rounds
    assert len({pid for _, pid, _ in notes(log)}) == 1


def test_slow_contenders_get_fewer_rounds(log, monkeypatch):
    """One that takes much longer than its rounds should does not hold up all the others."""

    class Slow(Told):
        async def measure(self, stage, seconds):
            await asyncio.sleep(0.1)
            return await super().measure(stage, seconds)

    monkeypatch.setattr(runner, "SLACK", 0.05)
    results = measured([Contender("a", log)], [Slow(), Told("quick")], rounds=3)
    assert len(results["told", "a"].rounds) == 1
    assert results["told", "a"].missing is None
    assert len(results["quick", "a"].rounds) == 3


def test_rounds_are_long_enough_and_not_too_many(log):
    """As the scenario wants it."""
    results = measured([Contender("a", log)], [Told(least=0.25, most_rounds=2)], rounds=5)
    assert [sample["seconds"] for sample in results["told", "a"].rounds] == [0.25, 0.25]


def test_peers_get_fewer_rounds_unless_they_are_named(log):
    """Ours and the floor get all of them."""
    entries = [Contender("ours", log), Contender("peer", log)]
    by_default = measured(entries, [Told(peer_rounds=2)], rounds=3)
    assert [len(by_default["told", name].rounds) for name in ("ours", "peer")] == [3, 2]
    named = measured(entries, [Told(peer_rounds=2)], rounds=3, named=True)
    assert [len(named["told", name].rounds) for name in ("ours", "peer")] == [3, 3]


def test_a_scenario_is_for_its_usual_contenders_unless_others_are_named(log):
    """Those it is not for are not even called missing."""
    entries, scenario = [Contender("a", log), Contender("b", log)], Told(usual=frozenset("a"))
    assert set(measured(entries, [scenario])) == {("told", "a")}
    assert set(measured(entries, [scenario], named=True)) == {("told", "a"), ("told", "b")}


def test_who_cannot_is_missing(log):
    """By the entry's own word; its worker is not asked."""
    able, unable = Contender("a", log, can=frozenset({"fair"})), Contender("b", log)
    results = measured([able, unable], [Told(needs="fair")])
    assert results["told", "a"].rounds
    assert results["told", "b"].missing == "it has no such thing"
    assert order(log) == ["a"]


def test_given_masters_are_never_hurt(log):
    """A scenario that needs its own is missing with the reason, unless they can be started here."""
    results = measured([Contender("a", log)], [Told(setting=Setting(nodes=5, faults=True)), Told("plain")])
    assert "--cluster embedded" in results["told", "a"].missing
    assert results["plain", "a"].rounds


@pytest.mark.usefixtures("embedded")
def test_own_masters_are_started_and_ended(log):
    """As many as wanted, and what can be done to them only where it is to be done."""
    seen = []

    class Looks(Told):
        async def measure(self, stage, seconds):
            seen.append((len(stage.urls), stage.cluster is not None))
            return await super().measure(stage, seconds)

    scenarios = [
        Looks("three", setting=Setting(nodes=3)),
        Looks("hurt", setting=Setting(nodes=1, faults=True)),
        Looks("given"),
    ]
    measured([Contender("a", log)], scenarios, local=True)
    assert seen == [(3, False), (1, True), (1, False)]
    opened = [request["urls"] for _, _, request in notes(log) if request["do"] == "open"]
    assert [len(urls) for urls in opened] == [3, 1, 1]
    assert opened[0][0] != opened[1][0] != "redis://given" == opened[2][0]


def test_alone_means_that_no_other_contender_runs(log):
    """Else what the others do would be counted, too."""
    measured([Contender("a", log), Contender("b", log)], [Told(setting=Setting(alone=True))], rounds=2)
    assert order(log) == ["a", "a", "b", "b"]


def test_the_processes_have_ended_afterwards(log):
    """None is left behind."""
    measured([Contender("a", log)], [Told(processes=2)])
    for pid in {pid for _, pid, _ in notes(log)}:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_an_interrupted_run_keeps_what_it_has(log):
    """And says of the rest that there is nothing."""

    class Interrupts(Told):
        async def measure(self, stage, seconds):  # noqa: ARG002 - it gets no further
            raise KeyboardInterrupt

    plan = Plan([Told(), Interrupts("broken")], [Contender("a", log)], 0.01, 1, install=False)
    interrupted = Runner(plan, ["redis://given"], lambda _: None)
    with pytest.raises(KeyboardInterrupt):
        interrupted.measure()
    first, second = interrupted.results
    assert first.rounds
    assert first.missing is None
    assert second.missing == "the run was ended before"


def test_errors_are_told_apart(log):
    """A worker that says no is there; one that says nothing is not."""

    async def ask(mood):
        async with worker(Contender("a", log, mood).command(install=False), []) as process:
            await process.ask(do="pairs", base="x", seconds=0.0)

    with pytest.raises(Failed, match="no luck") as failed:
        asyncio.run(ask("fails at x"))
    assert not isinstance(failed.value, Gone)
    with pytest.raises(Gone, match="ended"):
        asyncio.run(ask("ends at x"))


def test_answers_may_be_long():
    """A course is a line of megabytes."""
    long = textwrap.dedent("""
        import sys
        for line in sys.stdin:
            print('{"ends": [' + ", ".join(["123456"] * 300_000) + ']}', flush=True)
    """)

    async def ask():
        async with worker(Start((sys.executable, "-c", long), {}), []) as process:
            return await process.ask(do="trace")

    assert len(asyncio.run(ask())["ends"]) == 300_000


def test_the_loop_is_punctual():
    """Within a fraction of the millisecond that epoll would round up to; the best of many, for others run here, too."""

    async def late():
        started = time.monotonic()
        await asyncio.sleep(0.0003)
        return time.monotonic() - started - 0.0003

    with asyncio.Runner(loop_factory=punctual_loop) as loop:
        assert min(loop.run(late()) for _ in range(30)) < 0.0005
