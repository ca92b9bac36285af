"""Runs as they could have been measured, for what shows and compares them."""

from benchmarks.scenarios import Figure
from benchmarks.store import Record, Run
from benchmarks.timing import DISTRIBUTION

P50 = Figure("p50", "p50", "µs")
RATE = Figure("rate", "rate", "pairs/s", faster_is_more=True)

ABOUT = {
    "date": "2026-01-01T00:00:00+00:00",
    "commit": "0123456789ab",
    "cluster": "embedded",
    "nodes": 5,
    "server": "Valkey 9.1.2",
    "machine": "a processor",
    "cpus": 2,
    "load": 0.1,
    "system": "Linux 6 x86_64",
    "python": "CPython 3.11.7",
    "libraries": {"redis": "8.1.0", "hiredis": "3.5.0"},
    "seconds": 0.15,
    "rounds": 3,
    "took": 12.3,
    "interrupted": False,
}

FLOORS = {"ours-plain": "floor-plain", "floor-plain": "floor-plain", "aioredlock": "floor-plain"}


def record(scenario, contender, figure, values, **more):
    """One contender's rounds of one figure."""
    return Record(
        scenario=scenario,
        title=more.pop("title", f"the scenario {scenario}"),
        contender=contender,
        contender_title=more.pop("contender_title", f"what {contender} is"),
        floor=FLOORS.get(contender, "floor"),
        figures=(figure,),
        rounds=[{figure.key: value, "n": 10, **more.get("extra", {})} for value in values],
        missing=more.get("missing"),
        group=more.get("group"),
        at=more.get("at"),
    )


def run(*records, **about):
    """A run of those."""
    return Run(ABOUT | about, list(records))


def latencies(scale):
    """A distribution that rises evenly."""
    return {"latencies": [round(scale * (1 + part), 2) for part in DISTRIBUTION]}
