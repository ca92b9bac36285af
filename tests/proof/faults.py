"""Real faults on real servers: processes contend for locks while servers, network and processes are hurt at random.

    .venv/bin/python tests/proof/faults.py --minutes 30 --seed 7 [--nodes 5] [--processes 4] [--json FILE] [--soak]

Ends with a table, and with exit code 1 on any violation, or when the register without fencing lost nothing although
processes were stopped: then the faults did not bite. `--soak` hurts seldom, and looks for growth instead.
"""

import argparse
import asyncio
import json
import random
import shutil
import statistics
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path

import faults_verdict as verdict
from faults_client import LONGEST_TTL
from faults_register import Register
from faults_schedule import Schedule
from faults_stage import Stage
from redis.exceptions import RedisError

from redlock_async._transport.clock import now
from redlock_async.testing import Violation


async def look_at_servers(stage, series, every):
    """Sample what would grow on the servers."""
    while True:
        await asyncio.sleep(every)
        for node, admin in enumerate(stage.admins):
            if node in stage.ailing:
                continue
            try:
                info = await admin.info()
                keys = await admin.dbsize()
            except (RedisError, OSError):
                continue
            wanted = ("connected_clients", "tracking_total_keys", "used_memory")
            series[f"node {node}"].append({"keys": keys, **{name: info[name] for name in wanted}})


async def run(options, folder):
    """The run and its findings."""
    began = now()
    series = defaultdict(list)
    async with Stage(options, folder) as stage:
        schedule = Schedule(stage)
        watching = asyncio.create_task(look_at_servers(stage, series, options.sample))
        await schedule.run(began + 60 * options.minutes)
        watching.cancel()
        left = await schedule.close_all(patient=True)
        killed = {entry["client"] for entry in stage.log if entry["what"] == "client killed"}
        lives = [verdict.Life(path.stem, path) for path in sorted(folder.glob("c*.jsonl"), key=lambda path: path.stem)]
        register = Register(stage.register.urls[0])
        counts = await register.counts()
        await register.close()
        log = stage.log
    found = verdict.judged(lives, killed, stage.log) + schedule.failures + left
    gap, gap_of = verdict.worst_gap(lives, log, options.nodes)
    if gap > schedule_limit():
        found.append(Violation("liveness", f"{gap_of!r} was free, wanted and could be had for {gap:.3f} s"))
    for life in lives:
        series[life.owner] = life.of("sample")
    grown, beyond = verdict.growth(series) if options.soak else ([], [])
    found += beyond
    stops = sum(entry["what"] == "client stopped" for entry in log)
    if counts["fenced"]["lost"]:
        found.append(Violation("fence", f"the fenced register lost {counts['fenced']['lost']} updates"))
    if not counts["unfenced"]["lost"] and stops and not options.soak:
        found.append(Violation("bite", f"{stops} processes were stopped, and the unfenced register lost nothing"))
    return findings(options, lives, log, schedule, counts, (gap, gap_of), grown, found, now() - began)


def schedule_limit():
    """Seconds that a free name may stay free while it is wanted."""
    return 2 * LONGEST_TTL


def findings(options, lives, log, schedule, counts, gap, grown, found, took):
    """All figures, by name."""
    by_promise = Counter(violation.invariant for violation in found)
    leases = [lease for life in lives for lease in life.leases.values()]
    cancelled = [seconds for life in lives for seconds in life.cancelled_after()]
    faults = Counter(entry["kind"] for entry in log if entry["what"] == "fault")
    faults += Counter(entry["what"] for entry in log if entry["what"] in {"client stopped", "client killed"})
    return {
        "seed": options.seed,
        "seconds": round(took, 1),
        "nodes, processes, tasks each": [options.nodes, options.processes, options.tasks],
        "faults": dict(faults.most_common()),
        "leases": dict(Counter(lease["kind"] for lease in leases).most_common()),
        "of them on two slots": sum(len(lease.get("slots", ())) > 1 for lease in leases),
        "latches seen open": sum(len(life.of("open")) for life in lives),
        "looks at latches that had been open": sum(line["left"] == 0 for life in lives for line in life.of("left")),
        "fair waiters that came before who was served": sum(1 for _ in verdict.fair_pairs(lives, log)),
        "errors": dict(Counter(line["kind"] for life in lives for line in life.of("error")).most_common()),
        "leases lost": sum(lease["lost"] is not None for lease in leases),
        "overlaps": by_promise["exclusion"],
        "waiters passed, latches early or shut again": [by_promise["order"], by_promise["latch"]],
        "fence inversions": by_promise["fence"],
        "bodies after their deadline": by_promise["body"],
        "orphans": by_promise["orphan"],
        "lost updates, unfenced": counts["unfenced"]["lost"],
        "lost updates, fenced": counts["fenced"]["lost"],
        "accepted and refused, fenced": [counts["fenced"]["accepted"], counts["fenced"]["refused"]],
        "worst gap, s": [round(gap[0], 3), gap[1]],
        **{
            f"recovery of a {what}, s: median, p99, max, times": summary(times)
            for what, times in schedule.recoveries.items()
        },
        "loss to cancelled body, s: median, p99, max, times": summary(cancelled),
        "growth": grown,
        "violations": [str(violation) for violation in found],
    }


def summary(times):
    """Median, p99, maximum and number."""
    if not times:
        return [None, None, None, 0]
    ordered = sorted(times)
    p99 = ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]
    return [*(round(value, 4) for value in (statistics.median(ordered), p99, ordered[-1])), len(ordered)]


def table(figures):
    """The figures as text."""
    for name, value in figures.items():
        if name in {"violations", "growth"}:
            continue
        shown = ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else value
        shown = ", ".join(map(str, value)) if isinstance(value, list) else shown
        print(f"{name:52} {shown}")
    for owner, what, first, last in figures["growth"]:
        print(f"{owner:8} {what:43} {first:14g} {last:14g}")
    print(f"{'violations':52} {len(figures['violations'])}")
    for violation in figures["violations"][:50]:
        print(f"  {violation:.600}")


def main():
    """Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--nodes", type=int, default=5)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--tasks", type=int, default=8)
    parser.add_argument("--soak", action="store_true", help="few faults, and nothing may grow")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--keep", action="store_true", help="keep the histories whatever they show")
    options = parser.parse_args()
    options.pace = 0.05 if options.soak else 0.02
    options.sample = min(30.0, options.minutes * 60 / 20)
    folder = Path(tempfile.mkdtemp(prefix="redlock-faults-"))
    print(f"seed {options.seed}, {options.minutes:g} minutes, histories in {folder}", flush=True)
    figures = asyncio.run(run(options, folder))
    table(figures)
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1), "utf-8")
    if figures["violations"] or options.keep:
        print(f"the histories are in {folder}")
    else:
        shutil.rmtree(folder)
    return 1 if figures["violations"] else 0


if __name__ == "__main__":
    sys.exit(main())
