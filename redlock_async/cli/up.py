"""`up`: a local cluster to try things on, until Ctrl-C; it never talks to it."""

# ruff: noqa: T201 - printing is what it is for

from __future__ import annotations

import argparse
import signal
import sys
from types import FrameType

from redlock_async.testing import LocalCluster

from . import positive

ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class _Ended(BaseException):
    """Somebody wants us to end. No Exception, so that nothing on the way takes it for a failure."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add its arguments."""
    parser.add_argument(
        "--nodes", dest="number", type=positive, default=5, metavar="N", help="how many masters (default: %(default)s)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Start it, print where it is, and wait."""
    # Ours before the first server starts, so that every server is stopped whenever the signal comes.
    for number in ENDINGS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
            signal.signal(number, _end)
    try:
        with LocalCluster(arguments.number) as cluster:
            print(f"REDLOCK_NODES={','.join(cluster.urls)}", flush=True)
            print(_hint(arguments.number), file=sys.stderr, flush=True)
            while True:
                signal.pause()
    except _Ended:
        return 0


def _hint(nodes: int) -> str:
    masters = "1 empty master" if nodes == 1 else f"{nodes} independent, empty masters"
    return f"{masters}, until Ctrl-C. In another terminal: export the line above, then use `redlock_async.redlock`."


def _end(_number: int, _frame: FrameType | None) -> None:
    # Once is enough: a second Ctrl-C must not interrupt the stopping.
    for number in ENDINGS:
        signal.signal(number, signal.SIG_IGN)
    raise _Ended
