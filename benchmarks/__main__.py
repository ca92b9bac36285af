"""`python -m benchmarks`: this library, its peers, and the floor under all of them, side by side."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import sys
import time
from typing import Any

from .clusters import NoCluster, cluster
from .contenders import BY_NAME as CONTENDERS
from .report import Report
from .runner import Plan, Runner
from .scenarios import BY_NAME as SCENARIOS

WIDTH = 79


def arguments() -> argparse.ArgumentParser:
    """What can be chosen."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--cluster", default="embedded", help="embedded (default), compose, or URL,URL,...")
    parser.add_argument("--scenario", action="append", choices=SCENARIOS, help="only this one; may be repeated")
    parser.add_argument("--contender", action="append", choices=CONTENDERS, help="only this one; may be repeated")
    parser.add_argument("--seconds", type=float, default=0.15, help="of each round (default: 0.15)")
    parser.add_argument("--rounds", type=int, default=5, help="of each scenario (default: 5)")
    parser.add_argument("--json", action="store_true", help="JSON instead of the table")
    parser.add_argument("--no-install", action="store_true", help="a peer that is not installed yet counts as missing")
    return parser


def main() -> int:
    """Run what was asked for; figures on stdout, words on stderr."""
    parser = arguments()
    chosen = parser.parse_args()
    if chosen.rounds < 1 or not chosen.seconds > 0:
        parser.error("--rounds must be at least 1, and --seconds more than 0")
    plan = Plan(
        scenarios=[each for name, each in SCENARIOS.items() if name in (chosen.scenario or SCENARIOS)],
        entries=[each for name, each in CONTENDERS.items() if name in (chosen.contender or CONTENDERS)],
        seconds=chosen.seconds,
        rounds=chosen.rounds,
        install=not chosen.no_install,
    )
    started = time.monotonic()
    try:
        with cluster(chosen.cluster) as urls:
            report = Report(asyncio.run(Runner(plan, urls, progress).run()))
    except NoCluster as exc:
        print(f"benchmarks: {exc}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        progress("")
    about = {
        "cluster": chosen.cluster,
        "nodes": len(urls),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cpus": os.cpu_count(),
        "seconds": plan.seconds,
        "rounds": plan.rounds,
        "took": round(time.monotonic() - started, 1),
    }
    show(report, about, as_json=chosen.json)
    return 0


def show(report: Report, about: dict[str, Any], *, as_json: bool) -> None:
    """Print it."""
    if as_json:
        print(json.dumps({"about": about, "results": report.as_json()}, indent=1))
        return
    print(
        f"{about['nodes']} masters ({about['cluster']}), Python {about['python']}, {about['system']}, "
        f"{about['cpus']} CPUs; {about['rounds']} rounds of {about['seconds']:g} s; took {about['took']:g} s"
    )
    print(report.as_table())


def progress(what: str) -> None:
    """One line that is written over, or in a log a line each."""
    if sys.stderr.isatty():
        print(f"\r{what[:WIDTH]:<{WIDTH}}" + ("" if what else "\r"), end="", file=sys.stderr, flush=True)
    elif what:
        print(what, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
