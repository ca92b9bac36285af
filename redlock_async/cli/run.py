"""`run`: a command under a lock, and stopped before its lease ends; this file reads what is wanted, and sets it up."""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import signal
import socket
import sys
import traceback
from typing import Any, NoReturn

import redlock_async

from . import PROG, add_nodes, positive
from ._client import client
from ._run_holder import AnyLock, Holder
from ._run_job import Job, let_go_of_standard_files
from ._run_link import Link
from ._run_signals import Signals

BUSY = 75
"""The exit status when somebody else held the lock: EX_TEMPFAIL of sysexits.h."""

SHORTEST = 1.0
"""Seconds of the shortest lease: stopping processes takes a moment, and two moments are kept for it."""

USAGE = f"{PROG} run [options] NAME -- CMD [ARG ...]"
EPILOG = (
    "CMD runs in a process group of its own, with REDLOCK_NAME, REDLOCK_TOKEN and REDLOCK_FENCING_TOKEN in its "
    "environment. When the lock cannot be renewed, the group gets SIGTERM while a quarter of the lease is left, and "
    "SIGKILL while a tenth is left, or 1 s of a long one; when it was taken away, SIGTERM at once and SIGKILL 0.25 s "
    "later. Exit status: that of CMD, or 128+N if signal N ended it; 75 (-E) if somebody else held the lock, 69 if too "
    "few masters answered, 70 if the lock was lost while CMD ran, 126 if CMD cannot be executed, 127 if it was not "
    "found, 2 for wrong usage, 130 after Ctrl-C while waiting."
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add its arguments. What comes after `--` never gets here."""
    parser.usage, parser.epilog = USAGE, EPILOG
    parser.add_argument("name", metavar="NAME", help="what to lock")
    add_nodes(parser)
    # Without a default here the client's own holds, which REDLOCK_TTL and REDLOCK_WAIT may have set.
    absent = argparse.SUPPRESS
    parser.add_argument(
        "--ttl",
        type=_ttl,
        default=absent,
        metavar="S",
        help="length of the lease, which is renewed while CMD runs (default: REDLOCK_TTL, or 10)",
    )
    parser.add_argument(
        "--wait",
        type=_wait,
        default=absent,
        metavar="S",
        help="how long to wait for the lock; 0 tries once, `forever` does not give up (default: REDLOCK_WAIT, or 10)",
    )
    parser.add_argument(
        "--hold-at-least",
        type=_seconds,
        default=absent,
        metavar="S",
        help="keep the name locked for so long, however quick CMD was: for jobs that several machines start at the "
        "same minute",
    )
    kinds = parser.add_mutually_exclusive_group()
    for kind, purpose in (
        ("fair", "first come, first served"),
        ("read", "beside other readers, never beside a writer"),
        ("write", "alone, among readers and writers"),
    ):
        kinds.add_argument(f"--{kind}", dest="kind", action="store_const", const=kind, help=purpose)
    kinds.add_argument(
        "--semaphore", type=positive, metavar="N", help="beside at most N - 1 others; all give the same N"
    )
    parser.add_argument(
        "--count",
        type=positive,
        metavar="K",
        help="with --semaphore: take K of the N at once, all or none (default: 1)",
    )
    parser.add_argument(
        "-E",
        "--conflict-exit-code",
        type=_status,
        default=BUSY,
        metavar="CODE",
        help="exit with that, not %(default)s, if somebody else held the lock",
    )


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise argparse.ArgumentTypeError(f"must be a number of seconds, 0 or more, not {text!r}")
    return seconds


def _ttl(text: str) -> float:
    ttl = _seconds(text)
    if ttl < SHORTEST:
        raise argparse.ArgumentTypeError(
            f"must be {SHORTEST:g} second or more, not {text!r}: a command needs a moment to end"
        )
    return ttl


def _wait(text: str) -> float | None:
    return None if text in {"forever", "none"} else _seconds(text)


def _status(text: str) -> int:
    if not text.isdecimal() or int(text) > 255:  # noqa: PLR2004 - what a parent is told has eight bits
        raise argparse.ArgumentTypeError(f"must be an exit status from 0 to 255, not {text!r}")
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    """Run the command under the lock, and return the exit status."""
    if not arguments.command:
        raise redlock_async.ConfigurationError(f"no command given: {USAGE}")
    redlock = client(arguments)
    ttl = os.environ.get("REDLOCK_TTL", "").strip()
    if "ttl" not in arguments and ttl and float(ttl) < SHORTEST:
        raise redlock_async.ConfigurationError(
            f"REDLOCK_TTL={ttl} is too short for a command to end in: give --ttl, from {SHORTEST:g} on"
        )
    lock = _lock(redlock, arguments)
    _occupy_standard_files()
    signals = Signals()
    near, far = socket.socketpair()
    with signals.held_back():
        holder = os.fork()
        if not holder:
            near.close()
            _be_holder(Holder(redlock, lock, arguments.conflict_exit_code), far, signals)
        signals.catch()
    far.close()
    link = Link(near)
    status = Job(arguments.name, arguments.command, os.environ, signals, link).run()
    if link.over:
        os.waitpid(holder, 0)
    return status


def _be_holder(holder: Holder, link: socket.socket, signals: Signals) -> NoReturn:
    """The other process, from its beginning to its end: what stands on the stack above is not its own."""
    try:
        signals.ignore()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signals.caught)
        os.setpgid(0, 0)  # Ctrl-C and Ctrl-Z are for the others
        let_go_of_standard_files()
        asyncio.run(holder.hold(link))
    except BaseException:  # noqa: BLE001 - nobody above is to see it
        if sys.stderr is not None:
            traceback.print_exc()
        os._exit(1)
    os._exit(0)


def _occupy_standard_files() -> None:
    """Where our caller closed one of the first three files, none of ours may take its place."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:  # noqa: PLR2004 - stderr
        pass
    os.close(number)


def _lock(redlock: redlock_async.Redlock, arguments: argparse.Namespace) -> AnyLock:
    given: dict[str, Any] = {
        option: getattr(arguments, option) for option in ("ttl", "wait", "hold_at_least") if option in arguments
    }
    if arguments.semaphore is not None:
        return redlock.semaphore(arguments.name, permits=arguments.semaphore, count=arguments.count or 1, **given)
    if arguments.count is not None:
        raise redlock_async.ConfigurationError("--count goes with --semaphore: so many of its N")
    if arguments.kind == "fair":
        return redlock.fair(arguments.name, **given)
    if arguments.kind == "read":
        return redlock.read(arguments.name, **given)
    if arguments.kind == "write":
        return redlock.write(arguments.name, **given)
    return redlock.lock(arguments.name, **given)
