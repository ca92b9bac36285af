"""`python -m benchmarks`: compare this library with other libraries and with the floor."""

from __future__ import annotations

import argparse
import math
import os
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from io import TextIOWrapper
from pathlib import Path
from typing import NoReturn

from . import compare, goals, page, store
from .clusters import NoCluster, cluster
from .contenders import BY_NAME as CONTENDERS
from .report import Report
from .runner import Plan, Runner
from .scenarios import BY_NAME as SCENARIOS
from .store import Run, Unwritable

WIDTH = 79
STDOUT = "-"
INTERRUPTED = 130


class Parser(argparse.ArgumentParser):
    """A parser that prints errors on one line."""

    def error(self, message: str) -> NoReturn:
        """Print the message and exit with status 2."""
        print(f"benchmarks: {message}", file=sys.stderr)
        sys.exit(2)


def arguments() -> Parser:
    """Build the parser."""
    parser = Parser(
        prog="python -m benchmarks",
        description="Compare this library with other libraries and with the floor (the protocol without lock logic).",
        epilog=listed("scenarios", {name: each.title for name, each in SCENARIOS.items()})
        + "\n\n"
        + listed("contenders", {name: each.title for name, each in CONTENDERS.items()})
        + "\n\nTo compare two runs: python -m benchmarks compare --help",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--cluster", default="embedded", help="embedded (default), compose, or URL,URL,...")
    parser.add_argument(
        "--scenario", action="append", type=one_of(SCENARIOS, "scenario"), metavar="NAME",
        help="only this one; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--contender", action="append", type=one_of(CONTENDERS, "contender"), metavar="NAME",
        help="only this one; may be repeated",
    )  # fmt: skip
    parser.add_argument("--seconds", type=float, default=0.15, help="length of each round (default: 0.15)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each scenario (default: 5)")
    parser.add_argument(
        "--json", nargs="?", const=STDOUT, metavar="FILE", help="write the run to FILE; without FILE, print it as JSON"
    )
    parser.add_argument(
        "--report", type=Path, metavar="DIR", help=f"write a page, {page.NAME}, and {store.RESULTS} to this directory"
    )
    parser.add_argument(
        "--no-install",
        action="store_true",
        help="do not install other libraries; those not installed yet count as missing",
    )
    return parser


def one_of(known: Iterable[str], what: str) -> Callable[[str], str]:
    """Return a check that accepts only those names, and suggests the nearest one."""
    names = list(known)

    def check(name: str) -> str:
        if name in names:
            return name
        near = get_close_matches(name, names, 1)
        raise argparse.ArgumentTypeError(
            f"no {what} {name!r}: " + (f"did you mean {near[0]}?" if near else f"one of {', '.join(names)}")
        )

    return check


def listed(what: str, titles: dict[str, str]) -> str:
    """List the names with their titles."""
    return "\n".join([f"{what}:", *(f"  {name:<15} {title}"[:WIDTH] for name, title in titles.items())])


def choices(given: Sequence[str]) -> argparse.Namespace:
    """Parse the arguments, and check that the results can be written before measuring for minutes."""
    parser = arguments()
    chosen = parser.parse_args(given)
    if chosen.rounds < 1 or not 0 < chosen.seconds < math.inf:
        parser.error("--rounds must be at least 1, and --seconds more than 0")
    chosen.print_json = chosen.json == STDOUT
    chosen.file = None if chosen.json is None or chosen.print_json else Path(chosen.json)
    try:
        if chosen.report is not None:
            store.check_folder(chosen.report)
        if chosen.file is not None:
            store.check_file(chosen.file)
    except Unwritable as exc:
        parser.error(str(exc))
    return chosen


def main(given: Sequence[str] | None = None) -> int:
    """Run the benchmarks; results go to stdout, messages to stderr."""
    given = sys.argv[1:] if given is None else given
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # for terminals that cannot show µ
    if given[:1] == ["compare"]:
        return compare.main(given[1:])
    chosen = choices(given)
    try:
        run = measure(chosen)
    except NoCluster as exc:
        print(f"benchmarks: {exc}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED  # nothing has been measured yet
    finally:
        progress("")
    try:
        keep(run, chosen.file, chosen.report)
    except Unwritable as exc:
        # The check before the run succeeded. Still show the figures.
        print(f"benchmarks: {exc}", file=sys.stderr)
        kept = False
    else:
        kept = True
    show(run, as_json=chosen.print_json)
    if run.about["interrupted"]:
        return INTERRUPTED
    return 0 if kept else 1


def measure(chosen: argparse.Namespace) -> Run:
    """Measure and return the run; after Ctrl-C, the part measured so far."""
    plan = Plan(
        scenarios=[each for name, each in SCENARIOS.items() if name in (chosen.scenario or SCENARIOS)],
        entries=[each for name, each in CONTENDERS.items() if name in (chosen.contender or CONTENDERS)],
        seconds=chosen.seconds,
        rounds=chosen.rounds,
        install=not chosen.no_install,
        local=chosen.cluster == "embedded",
        named=chosen.contender is not None,
    )
    with cluster(chosen.cluster) as urls:
        about = store.about(cluster=chosen.cluster, urls=urls, seconds=plan.seconds, rounds=plan.rounds)
        runner = Runner(plan, urls, progress)
        started, interrupted = time.monotonic(), False
        try:
            runner.measure()
        except KeyboardInterrupt:
            interrupted = True
        took = round(time.monotonic() - started, 1)
    about |= {"took": took, "interrupted": interrupted}
    return Run(about, [store.as_record(result) for result in runner.results])


def keep(run: Run, file: Path | None, folder: Path | None) -> None:
    """Write the run to the chosen files, and print their paths."""
    text = Report(run).as_json()
    if file is not None:
        store.write(file, text)
        print(f"written to {file}", file=sys.stderr)
    if folder is not None:
        store.write(folder / store.RESULTS, text)
        store.write(folder / page.NAME, page.render(run))
        print(f"report: {folder / page.NAME}, and {store.RESULTS} in the same directory", file=sys.stderr)


def show(run: Run, *, as_json: bool) -> None:
    """Print the run."""
    report, about = Report(run), run.about
    if as_json:
        print(report.as_json(), end="")
        return
    header = (
        f"{about['nodes']} nodes ({about['cluster']}), {about['server']}, {about['python']}, {about['system']}, "
        f"{about['cpus']} CPUs; {about['rounds']} rounds of {about['seconds']:g} s; took {about['took']:g} s"
    )
    print(textwrap.fill(header, WIDTH))
    if about["interrupted"]:
        print("Interrupted. These are the results so far.")
    print(report.as_table())
    print(goals.as_table(goals.judge(report)))


def progress(what: str) -> None:
    """Show progress on one line that is overwritten, or in a log on a new line each time."""
    if sys.stderr.isatty():
        print(f"\r{what[:WIDTH]:<{WIDTH}}" + ("" if what else "\r"), end="", file=sys.stderr, flush=True)
    elif what:
        print(what, file=sys.stderr, flush=True)


def program() -> int:
    """Run `main`, and handle a reader of the output that stops reading."""
    try:
        status = main()
        sys.stdout.flush()
    except BrokenPipeError:
        # Without this, the interpreter would report the broken pipe when it flushes stdout at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return status


if __name__ == "__main__":
    sys.exit(program())
