"""Run many random schedules on all cores and count violations; with --mutants, also check that each mutant is caught.

python tests/simulation/explore.py --schedules 100000 --mutants
"""

import argparse
import json
import random
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from math import inf
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from families import FAMILIES, OF_KINDS
from framework.exploring import Findings, Worker, on_all_cores, pool
from framework.kinds import KindSchedule
from framework.schedules import Run, shrink
from mutants import MUTANTS, broken

KINDS = ("lock", "lock", "several", "fair", "read", "write", "semaphore")
MIX = ["one", "smallest"] * 6 + [family for family in FAMILIES if family not in {"one", "smallest"}]
"""Half of the schedules are of the smallest families, which find most defects in few steps."""

MAX_SCHEDULES = 100_000
"""Schedules that a mutant may survive before it counts as not caught."""

PORTION = 500
"""Schedules per progress report, so that a long run shows its first failure early."""

CAUGHT = Path(__file__).with_name("caught.json")
"""For each mutant, a schedule that catches it. `--remember` writes this file."""


@dataclass
class Found(Findings):
    """The results of some schedules. A failure is (family, seed, violations as text)."""

    schedules: int = 0
    leases: int = 0
    lost: int = 0
    simulated: float = 0.0
    families: Counter = field(default_factory=Counter)


class Explorer(Worker):
    """Runs schedules."""

    def outcome(self, schedule):
        """Run one schedule and return its outcome."""
        if isinstance(schedule, KindSchedule):
            return schedule.run(self._clients).outcome()
        return Run(schedule, self._clients).outcome()

    def explore(self, families, seeds, *, until=inf, stop_at_first=False):
        """Run the families in turn with those seeds, until the time is up."""
        found = Found()
        for number, seed in enumerate(seeds):
            if time.monotonic() > until:
                break
            family = families[number % len(families)]
            outcome = self.outcome(schedule_of(family, seed))
            found.schedules += 1
            found.leases += outcome.leases
            found.lost += outcome.lost
            found.simulated += outcome.seconds
            found.families[family] += 1
            if outcome.violations:
                found.failures.append((family, seed, [str(violation) for violation in outcome.violations]))
                if stop_at_first:
                    break
        return found

    def smallest_failure(self, family, seed):
        """Return the smallest version of that schedule that still breaks the same invariant."""
        invariants = {violation.invariant for violation in self.outcome(schedule_of(family, seed)).violations}

        def fails(schedule):
            return any(violation.invariant in invariants for violation in self.outcome(schedule).violations)

        return shrink(schedule_of(family, seed), fails)


def schedule_of(family, seed):
    """Return the schedule of that family and seed. Even seeds use plain locks only."""
    if family in {"one", "smallest"} or family in OF_KINDS:
        return FAMILIES[family](seed)
    return FAMILIES[family](seed, KINDS if seed % 2 else ("lock",))


def _explore(arguments):
    families, seeds = arguments
    return Explorer().explore(families, seeds)


def explore(families, first, number, *, progress=None):
    """Run `number` schedules on all cores. `progress` is called after each portion."""
    last = first + number
    shares = [(families, range(at, min(at + PORTION, last))) for at in range(first, last, PORTION)]
    return on_all_cores(_explore, shares, Found(), progress)


class Progress:
    """Prints each failure when it is found, and a line after each tenth of the schedules."""

    def __init__(self, schedules):
        self._tenth = self._next = schedules / 10
        self._failures = 0

    def __call__(self, found):
        for family, seed, violations in found.failures[self._failures :]:
            print(f"  --family {family!r} --seed {seed} --only: {violations[0]}", flush=True)
        self._failures = len(found.failures)
        if found.schedules >= self._next:
            self._next = found.schedules + self._tenth
            print(f"  {found.schedules} schedules, {self._failures} with violations", file=sys.stderr, flush=True)


def _hunt(arguments):
    name, first, seconds, known = arguments
    started = time.monotonic()
    explorer, found = Explorer(), Found()
    with broken(name):
        if known:
            found += explorer.explore(known[:1], known[1:], stop_at_first=True)
        if not found.failures:
            until = started + seconds if seconds else inf
            found += explorer.explore(
                MUTANTS[name][1], range(first, first + MAX_SCHEDULES), until=until, stop_at_first=True
            )
    return name, found, time.monotonic() - started


def hunt(first, names=tuple(MUTANTS), *, seconds=None, known=None):
    """Activate each mutant and explore until it is caught. Yields (name, findings, seconds).

    `known` gives the family and seed of a schedule to try first, by mutant name.
    """
    orders = [(name, first, seconds, (known or {}).get(name)) for name in names]
    with pool() as processes:
        yield from processes.imap_unordered(_hunt, orders)


def main():
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--schedules", type=int, default=2_000, help="the number of schedules")
    parser.add_argument("--family", choices=sorted(FAMILIES), action="append", help="run only this family; repeatable")
    parser.add_argument("--seed", type=int, default=None, help="the first seed (default: random, printed)")
    parser.add_argument(
        "--only", action="store_true", help="run only that seed, print it in full, and reduce a failure"
    )
    parser.add_argument("--mutants", action="store_true", help="also check that each mutant is caught")
    parser.add_argument("--mutant", choices=sorted(MUTANTS), action="append", help="check only this mutant; repeatable")
    parser.add_argument(
        "--remember", action="store_true", help=f"write the schedules that catch the mutants to {CAUGHT.name}"
    )
    parser.add_argument("--json", type=Path, help="write the results to this file")
    options = parser.parse_args()
    families = options.family or MIX
    first = random.SystemRandom().randrange(10**9) if options.seed is None else options.seed
    if options.only:
        return show(families[0], first)
    print(f"first seed {first}", flush=True)
    report = {"seed": first}
    failed = False
    if not options.mutant:
        found = explore(families, first, options.schedules, progress=Progress(options.schedules))
        rate = found.schedules / found.seconds
        hours = found.simulated / 3600
        print(f"{found.schedules} schedules, {found.leases} leases ({found.lost} lost), {hours:.1f} h simulated")
        print(f"in {found.seconds:.1f} s: {rate:.0f} schedules/s; {len(found.failures)} with violations")
        failed = bool(found.failures)
        report["schedules"] = vars(found)
    if options.mutants or options.mutant:
        report["mutants"] = {}
        for name, found, seconds in hunt(first, tuple(options.mutant or MUTANTS)):
            caught = found.failures[0] if found.failures else None
            summary = f"{caught[0]} {caught[1]}: {caught[2][0][:90]}" if caught else "NOT CAUGHT"
            print(f"{name:40} {found.schedules:6d} schedules {seconds:6.1f} s  {summary}", flush=True)
            failed = failed or caught is None
            report["mutants"][name] = {
                "schedules": found.schedules,
                "by": caught and caught[:2],
                "caught": caught and caught[2][0],
            }
    if options.remember:
        known = json.loads(CAUGHT.read_text()) if CAUGHT.exists() else {}
        known |= {name: entry["by"] for name, entry in report["mutants"].items() if entry["by"]}
        CAUGHT.write_text(json.dumps(dict(sorted(known.items())), indent=1) + "\n")
    if options.json:
        options.json.write_text(json.dumps(report, indent=1))
    return 1 if failed else 0


def show(family, seed):
    """Print one schedule in full, and the smallest version that fails in the same way."""
    explorer = Explorer()
    schedule = schedule_of(family, seed)
    print(schedule)
    outcome = explorer.outcome(schedule)
    for violation in outcome.violations:
        print(violation)
    if outcome.violations:
        print("\nThe smallest schedule that fails in the same way:")
        smaller = explorer.smallest_failure(family, seed)
        print(smaller)
        for violation in explorer.outcome(smaller).violations:
            print(violation)
    return 1 if outcome.violations else 0


if __name__ == "__main__":
    sys.exit(main())
