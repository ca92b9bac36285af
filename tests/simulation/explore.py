"""Many schedules, on all cores: how many a second, how many violations; and after how many each mutant is caught.

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

import corner_mutants  # noqa: F401 - adds to MUTANTS
import kinds_corners  # noqa: F401 - adds to FAMILIES
import kinds_mutants  # noqa: F401 - adds to MUTANTS
import kinds_once  # noqa: F401 - adds to FAMILIES
import kinds_together  # noqa: F401 - adds to FAMILIES
import together_mutants  # noqa: F401 - adds to MUTANTS
from exploring import CORES, Findings, Worker, on_all_cores, pool
from kinds import OF_KINDS, KindSchedule
from mutants import MUTANTS, broken
from schedules import FAMILIES, Run, shrink

KINDS = ("lock", "lock", "several", "fair", "read", "write", "semaphore")
MIX = ["one", "smallest"] * 6 + [family for family in FAMILIES if family not in {"one", "smallest"}]
"""Half of the schedules are the smallest there are: what a few steps can show needs no more."""

MOST = 100_000
"""Schedules a mutant may survive before it counts as not caught."""

PORTION = 500
"""Schedules after which it is heard what came of them: a run of an hour shows its first failure when it finds it."""

CAUGHT = Path(__file__).with_name("caught.json")
"""For each mutant a schedule that catches it; `--remember` writes them."""


@dataclass
class Found(Findings):
    """What came of some schedules; a failure is (family, seed, the violations as text)."""

    schedules: int = 0
    leases: int = 0
    lost: int = 0
    simulated: float = 0.0
    families: Counter = field(default_factory=Counter)


class Explorer(Worker):
    """Carries out schedules."""

    def outcome(self, schedule):
        """Of one schedule."""
        if isinstance(schedule, KindSchedule):
            return schedule.carried_out(self._clients).outcome()
        return Run(schedule, self._clients).outcome()

    def explore(self, families, seeds, *, until=inf, stop_at_first=False):
        """Those families in turn, with those seeds, until the time is up."""
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
        """That schedule without all that its failure does not need."""
        promises = {violation.promise for violation in self.outcome(schedule_of(family, seed)).violations}

        def fails(schedule):
            return any(violation.promise in promises for violation in self.outcome(schedule).violations)

        return shrink(schedule_of(family, seed), fails)


def schedule_of(family, seed):
    """The schedule of that family with that seed: every other one with plain locks only."""
    if family in {"one", "smallest"} or family in OF_KINDS:
        return FAMILIES[family](seed)
    return FAMILIES[family](seed, KINDS if seed % 2 else ("lock",))


def _explore(arguments):
    families, seeds, seconds = arguments
    return Explorer().explore(families, seeds, until=inf if seconds is None else time.monotonic() + seconds)


def explore(families, first, number, *, seconds=None, told=None):
    """So many schedules on all cores, or as many as fit in the time; `told` hears after each portion what was found."""
    last = first + number
    if seconds is None:
        shares = [(families, range(at, min(at + PORTION, last)), None) for at in range(first, last, PORTION)]
    else:
        shares = [(families, range(first + core, last, CORES), seconds) for core in range(CORES)]
    return on_all_cores(_explore, shares, Found(), told)


class Progress:
    """Prints the failures as they are found, and each tenth of the way."""

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
            found += explorer.explore(MUTANTS[name][1], range(first, first + MOST), until=until, stop_at_first=True)
    return name, found, time.monotonic() - started


def hunt(first, names=tuple(MUTANTS), *, seconds=None, known=None):
    """Break each rule, and explore until it is noticed; yields (name, what was found, seconds).

    `known` is for each name the family and seed of a schedule to try first.
    """
    orders = [(name, first, seconds, (known or {}).get(name)) for name in names]
    with pool() as processes:
        yield from processes.imap_unordered(_hunt, orders)


def main():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--schedules", type=int, default=2_000, help="how many of all families together")
    parser.add_argument("--family", choices=sorted(FAMILIES), action="append", help="only this one; may be repeated")
    parser.add_argument("--seed", type=int, default=None, help="the first seed; drawn and printed if not given")
    parser.add_argument("--only", action="store_true", help="that seed alone, told in full and made smaller")
    parser.add_argument("--mutants", action="store_true", help="hunt the mutants as well")
    parser.add_argument("--mutant", choices=sorted(MUTANTS), action="append", help="hunt only this one")
    parser.add_argument("--remember", action="store_true", help=f"keep in {CAUGHT.name} which schedules caught them")
    parser.add_argument("--json", type=Path, help="write the figures there")
    options = parser.parse_args()
    families = options.family or MIX
    first = random.SystemRandom().randrange(10**9) if options.seed is None else options.seed
    if options.only:
        return tell(families[0], first)
    print(f"first seed {first}", flush=True)
    report = {"seed": first}
    failed = False
    if not options.mutant:
        found = explore(families, first, options.schedules, told=Progress(options.schedules))
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
            told = f"{caught[0]} {caught[1]}: {caught[2][0][:90]}" if caught else "NOT CAUGHT"
            print(f"{name:40} {found.schedules:6d} schedules {seconds:6.1f} s  {told}", flush=True)
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


def tell(family, seed):
    """One schedule in full, and the smallest that fails alike."""
    explorer = Explorer()
    schedule = schedule_of(family, seed)
    print(schedule)
    outcome = explorer.outcome(schedule)
    for violation in outcome.violations:
        print(violation)
    if outcome.violations:
        print("\nThe same, smaller:")
        smaller = explorer.smallest_failure(family, seed)
        print(smaller)
        for violation in explorer.outcome(smaller).violations:
            print(violation)
    return 1 if outcome.violations else 0


if __name__ == "__main__":
    sys.exit(main())
