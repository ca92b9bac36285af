"""Every scenario runs on real masters, and its figures mean what they say."""

import asyncio
import math
import os
import random
import sys

import pytest

from benchmarks.clusters import cluster
from benchmarks.contenders import BY_NAME as CONTENDERS
from benchmarks.contenders import Start
from benchmarks.runner import Failed, Plan, Runner, worker
from benchmarks.scenarios import BY_NAME, SCENARIOS, Stage, Unmeasured
from benchmarks.scenarios.faults import Course, Dying, Frozen
from benchmarks.scenarios.holding import Renewals, Waiters
from benchmarks.timing import DISTRIBUTION, latencies, quantile, together
from benchmarks.worker import LOOP

pytestmark = pytest.mark.thorough

BOTH = ("floor", "ours")
SECONDS = 0.03
MAY_BE_NOTHING = {"errors", "commands", "memory", "cpu"}

# The same with another number, and each would need masters of its own.
DOUBLES = {"nodes-3", "nodes-5", "rtt-1ms"}
HERE = [scenario for scenario in SCENARIOS if scenario.name not in DOUBLES]

every_scenario = pytest.mark.parametrize("name", [scenario.name for scenario in HERE])


# -- on real masters ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def results(request):
    """The scenarios with ours and the floor, for as short as will do, by scenario and contender."""
    if request.config.getoption("--redlock-backend") not in {"auto", "embedded"}:
        pytest.skip("the scenarios start masters of their own: needs the embedded backend")
    with pytest.MonkeyPatch.context() as patch:
        for scenario in SCENARIOS:
            # A server that starts again takes its time, on a busy machine a tenth of a second.
            short = 0.6 if isinstance(scenario, Dying) else 0.15
            patch.setattr(scenario, "least", min(scenario.least, short), raising=False)
        patch.setattr(Waiters, "tasks", 50)
        patch.setattr(Waiters, "settle", 0.1)
        patch.setattr(Renewals, "leases", 300)
        with cluster("embedded") as urls:
            entries = [CONTENDERS[name] for name in BOTH]
            plan = Plan(HERE, entries, SECONDS, rounds=1, install=False, local=True)
            measured = Runner(plan, urls, lambda _: None).measure()
    return {(result.scenario.name, result.entry.name): result for result in measured}


@every_scenario
@pytest.mark.parametrize("contender", BOTH)
def test_every_figure_is_there(results, name, contender):
    """And is a number that can be reckoned with."""
    scenario, entry = BY_NAME[name], CONTENDERS[contender]
    if scenario.usual is not None and contender not in scenario.usual:
        assert (name, contender) not in results
        return
    result = results[name, contender]
    if not scenario.fits(entry):
        assert (result.rounds, result.missing) == ([], "it has no such thing")
        return
    assert result.missing is None
    (sample,) = result.rounds
    for figure in scenario.figures:
        value = sample[figure.key]
        assert math.isfinite(value)
        assert value > 0 or figure.key in MAY_BE_NOTHING, figure
    assert sample["n"] > 0
    if "latencies" in sample:
        assert len(sample["latencies"]) == len(DISTRIBUTION)
        assert sample["latencies"] == sorted(sample["latencies"])


def test_the_names_are_unique_and_the_sweeps_ordered():
    """A name is what a figure is found by, years later."""
    assert len(BY_NAME) == len(SCENARIOS)
    sweeps = {}
    for scenario in SCENARIOS:
        if scenario.group is not None:
            sweeps.setdefault(scenario.group, []).append(scenario.at)
    assert sweeps == {"tasks": [1, 10, 100, 1000], "nodes": [1, 3, 5, 7], "round trip": [1, 20]}


@pytest.mark.alone
@pytest.mark.parametrize(("name", "least"), [("rtt-20ms", 2.0), ("handover-20ms", 1.9)])
def test_distance_is_real(results, name, least):
    """Nobody can acquire and release in less than two round trips, nor be told and acquire; and it is not three."""
    for contender in BOTH:
        (sample,) = results[name, contender].rounds
        assert least <= sample["trips"] < 3


def test_a_round_has_its_course(results):
    """From its beginning to its end, with what happened marked in it."""
    for name, words in (("frozen-1", ["frozen", "healed"]), ("frozen-2", ["frozen", "healed"])):
        check_course(results[name, "ours"].rounds[0], words)
    check_course(results["dying", "ours"].rounds[0], ["killed", "restarted"])


def check_course(sample, words):
    """In order, within the round."""
    times = [at for at, _ in sample["series"]]
    assert times == sorted(times)
    assert len(times) > 10
    marks = [at for at, _ in sample["marks"]]
    assert [word for _, word in sample["marks"]] == words
    assert times[0] < marks[0] < marks[1] < times[-1]
    assert all(value >= 0 for _, value in sample["series"])


def test_a_lost_body_is_cancelled_while_its_lease_is_valid(results):
    """Always before the end of its validity."""
    (sample,) = results["loss", "ours"].rounds
    assert 0 < sample["left"] < 10


def test_waiters_cost_the_masters_little(results):
    """Fifty tasks that polled ten times a second would be 500."""
    for contender in BOTH:
        assert results["waiters", contender].rounds[0]["commands"] < 50


# -- faults ------------------------------------------------------------------------------------------------------------


class Masters:
    """Notes what is done to them."""

    def __init__(self):
        self.done = []

    def __getattr__(self, what):
        return lambda i: self.done.append((what, i))


class Broken:
    """A contender that fails."""

    async def ask(self, **_):
        """Say so."""
        raise Failed("no luck")


@pytest.mark.parametrize(
    ("scenario", "done"),
    [
        (Frozen(1), [("pause", 0), ("resume", 0)]),
        (Frozen(2), [("pause", 0), ("pause", 1), ("resume", 0), ("resume", 1)]),
        (Dying(), [("kill", 0), ("restart", 0)]),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_masters_are_healed_whatever_happens(scenario, done):
    """The next contender has them after that."""
    masters = Masters()
    with pytest.raises(Failed):
        asyncio.run(scenario.measure(Stage([Broken()], [], masters), 0.05))
    assert masters.done == done


def course(*pairs, errors=()):
    """Of pairs that ended then and took so long, in seconds."""
    ends = [round(end * 1e6) for end, _ in pairs]
    return Course({"started": 0.0, "ends": ends, "took": [took * 1e6 for _, took in pairs], "errors": dict(errors)})


def test_a_pair_that_hangs_through_the_whole_freeze_counts():
    """It ended after it, but began before."""
    told = course((0.5, 0.5), (0.9, 0.1), (2.5, 1.6), (3.0, 0.2)).during(1.0, 2.0)
    assert told["n"] == 1
    assert told["latencies"][-1] == 1.6e6


def test_what_hangs_does_not_count_as_healthy():
    """It ended too late for that."""
    told = course((0.5, 0.5), (2.5, 2.4)).before(1.0)
    assert told["n"] == 1
    assert told["latencies"][-1] == 0.5e6


def test_no_pair_at_all_is_no_latency():
    """A contender that only raised is missing, with the number of its errors."""
    with pytest.raises(Unmeasured, match="7 errors"):
        course((0.5, 0.1), errors=[("TimeoutError", 4), ("OSError", 3)]).during(1.0, 2.0)


@pytest.mark.parametrize(
    ("pairs", "gap"),
    [
        ([(0.25, 0.1), (0.5, 0.1), (1.5, 0.1), (2.0, 0.1)], 1.0),
        ([(1.25, 0.1), (2.0, 0.1)], 1.25),  # before the first
        ([(0.25, 0.1), (0.5, 0.1)], 1.5),  # after the last
        ([], 2.0),
        ([(2.5, 2.5)], 2.5),  # the last task ended after the round
    ],
)
def test_the_longest_gap(pairs, gap):
    """Wherever in the round it is."""
    assert course(*pairs).gap(2.0) == pytest.approx(gap)


def test_rate_and_latency_over_time():
    """A bin without a pair has a rate of nothing, and no latency."""
    told = course((0.1, 0.01), (0.2, 0.03), (0.3, 0.05), (1.2, 0.2))
    assert told.rate(0.5, 1.5) == [[0.25, 6.0], [0.75, 0.0], [1.25, 2.0]]
    assert told.latency(0.5) == [[0.25, 30000.0], [1.25, 200000.0]]


# -- figures -----------------------------------------------------------------------------------------------------------


def test_distributions_of_processes_add_up():
    """As if all the latencies had been in one process, but for what lies between the steps."""
    luck = random.Random(1)
    parts = [[luck.lognormvariate(mean, 0.5) for _ in range(size)] for mean, size in ((0, 4000), (1, 1000), (2, 200))]
    told = together([latencies(part) for part in parts])
    exact = latencies([value for part in parts for value in part])
    assert told["n"] == exact["n"] == 5200
    assert told["latencies"] == sorted(told["latencies"])
    assert told["latencies"][0] == exact["latencies"][0]
    assert told["latencies"][-1] == exact["latencies"][-1]
    for part, merged, right in zip(DISTRIBUTION[1:], told["latencies"][1:], exact["latencies"][1:], strict=True):
        assert merged == pytest.approx(right, rel=0.1), part


def test_quantiles_are_values_that_were_measured():
    """Also of very few."""
    assert [quantile([3.0, 1.0, 2.0], part) for part in (0, 0.5, 0.99, 1)] == [1.0, 2.0, 3.0, 3.0]
    assert latencies([0.001])["latencies"] == [1000.0] * len(DISTRIBUTION)


# -- the worker --------------------------------------------------------------------------------------------------------


def told_by_worker(nodes, name, *requests):
    """The answers of one process."""

    async def ask():
        async with worker(CONTENDERS[name].command(install=False), nodes) as process:
            return [await process.ask(**request) for request in requests]

    return asyncio.run(ask())


def test_a_block_is_compared_with_the_same_pairs_without(nodes):
    """Both in the same round."""
    (sample,) = told_by_worker(nodes, "ours", {"do": "block", "base": "x", "seconds": 0.1})
    assert 0.5 < sample["factor"] < 5
    assert sample["n"] >= 20


def test_batches_are_whole(nodes):
    """Twenty tasks of five pairs are a hundred, or two hundred."""
    request = {"do": "pairs", "base": "x", "tasks": 20, "shared": True, "each": 5}
    once, more = told_by_worker(nodes, "ours", {**request, "seconds": 0.0}, {**request, "seconds": 0.1})
    assert once["n"] == 100
    assert more["n"] % 100 == 0


@pytest.mark.parametrize("contender", BOTH)
def test_leases_that_are_kept_are_given_back(nodes, contender):
    """None stays behind for the next round."""
    redis = pytest.importorskip("redis", reason="it comes with the library")
    held, dropped = told_by_worker(nodes, contender, {"do": "hold", "base": "kept", "leases": 250}, {"do": "drop"})
    assert held["took"] > 0
    assert dropped == {}
    for url in nodes:
        with redis.Redis.from_url(url) as client:
            assert client.keys("*kept*") == []


def test_a_body_that_cannot_be_entered_says_why(nodes):
    """Instead of waiting for ever."""
    with pytest.raises(Failed, match="ConfigurationError"):
        told_by_worker(nodes, "ours", {"do": "enter", "name": ""})


def test_what_waits_is_in_after_the_release(nodes):
    """All of them, one after the other."""

    async def ask():
        start = CONTENDERS["ours"].command(install=False)
        async with worker(start, nodes) as holder, worker(start, nodes) as waiter:
            await holder.ask(do="acquire", name="x")
            await waiter.ask(do="wait", name="x", tasks=30)
            released = await holder.ask(do="release")
            return released["at"], await waiter.ask(do="waited")

    released, waited = asyncio.run(ask())
    assert released < waited["first"] < waited["last"]


LOOPS = """
import asyncio, sys
def new_event_loop():
    print("made", file=sys.stderr, flush=True)
    return asyncio.new_event_loop()
"""


def test_the_event_loop_can_be_chosen(nodes, tmp_path, capfd):
    """By the name of a module that makes one."""
    (tmp_path / "loops.py").write_text(LOOPS, "utf-8")
    argv = (sys.executable, "-W", "ignore", "-m", "benchmarks.worker", "ours")
    paths = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])

    async def ask():
        async with worker(Start(argv, {LOOP: "loops", "PYTHONPATH": paths}), nodes) as process:
            await process.ask(do="pairs", base="x", seconds=0.0)

    asyncio.run(ask())
    assert capfd.readouterr().err == "made\n"
