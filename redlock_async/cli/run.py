"""`run`: run a command under a lock, and stop it before the lease ends. This module parses options and forks."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import socket
import sys
import traceback
from typing import NoReturn

import redlock_async

from . import PROG, add_nodes
from ._client import client
from ._lock_options import ABSENT, add_conflict, add_kinds, add_takeover_delay, add_wait, duration, lock_of
from ._run_holder import Holder
from ._run_job import Job, detach_standard_files
from ._run_link import Link
from ._run_signals import Signals

MIN_TTL = 1.0
"""Seconds of the shortest lease: SIGTERM and SIGKILL both need time before the lease ends."""

USAGE = f"{PROG} run [options] NAME -- CMD [ARG ...]"
EPILOG = (
    "CMD runs in a process group of its own, with REDLOCK_NAME, REDLOCK_TOKEN and REDLOCK_FENCING_TOKEN in its "
    "environment. If the lock cannot be renewed, the group gets SIGTERM when a quarter of the lease is left, and "
    "SIGKILL when a tenth is left, or 1 s of a long lease. If the lock is force-released or deleted, the group gets "
    "SIGTERM immediately and SIGKILL 0.25 s later. Exit status: that of CMD, or 128+N if signal N ended it; 75 (-E) if "
    "another client held the lock, 69 if too few nodes answered, 70 if the lock was lost while CMD ran, 126 if CMD "
    "cannot be executed, 127 if it was not found, 2 for wrong usage, 130 after Ctrl-C while waiting. Durations (S) are "
    "seconds, or have a unit: 500ms, 30s, 30m, 2h."
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command. The words after `--` are not parsed here."""
    parser.usage, parser.epilog = USAGE, EPILOG
    parser.add_argument("name", metavar="NAME", help="the name to lock")
    add_nodes(parser)
    parser.add_argument(
        "--ttl",
        type=_ttl,
        default=ABSENT,
        metavar="S",
        help="length of the lease, which is renewed while CMD runs (default: REDLOCK_TTL, or 10)",
    )
    add_wait(parser)
    parser.add_argument(
        "--min-hold",
        type=duration,
        default=ABSENT,
        metavar="S",
        help="keep the name locked for at least this long, even if CMD ends earlier: for jobs that several machines "
        "start at the same minute",
    )
    add_takeover_delay(parser)
    parser.add_argument(
        "--retry-failed",
        action="store_true",
        help="with --min-hold: if CMD fails, release the name immediately, so that another machine can try again",
    )
    add_kinds(parser)
    add_conflict(parser)


def _ttl(text: str) -> float:
    ttl = duration(text)
    if ttl < MIN_TTL:
        raise argparse.ArgumentTypeError(
            f"must be at least {MIN_TTL:g} second, got {text!r}: stopping a command takes time"
        )
    return ttl


def run(arguments: argparse.Namespace) -> int:
    """Run the command under the lock, and return the exit status."""
    if not arguments.command:
        raise redlock_async.ConfigurationError(f"no command given: {USAGE}")
    redlock = client(arguments)
    ttl = os.environ.get("REDLOCK_TTL", "").strip()
    if "ttl" not in arguments and ttl and float(ttl) < MIN_TTL:
        raise redlock_async.ConfigurationError(
            f"REDLOCK_TTL={ttl} is too short to stop a command before its lease ends: pass --ttl, at least {MIN_TTL:g}"
        )
    if arguments.retry_failed and not getattr(arguments, "min_hold", 0):
        raise redlock_async.ConfigurationError(
            "--retry-failed needs --min-hold: without it, the name is free as soon as the command has ended"
        )
    lock = lock_of(redlock, arguments)
    holder = Holder(
        redlock,
        lock,
        arguments.conflict_exit_code,
        quiet=arguments.quiet,
        retry_failed=arguments.retry_failed,
    )
    _occupy_standard_files()
    signals = Signals()
    near, far = socket.socketpair()
    with signals.blocked():
        holder_pid = os.fork()
        if not holder_pid:
            near.close()
            _run_holder(holder, far, signals)
        signals.catch()
    far.close()
    link = Link(near)
    status = Job(arguments.name, arguments.command, os.environ, signals, link).run()
    if link.closed:
        os.waitpid(holder_pid, 0)
    return status


def _run_holder(holder: Holder, link: socket.socket, signals: Signals) -> NoReturn:
    """Be the forked process that holds the lock; it must never return into the code of its parent."""
    try:
        signals.ignore()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signals.caught)
        os.setpgid(0, 0)  # so that Ctrl-C and Ctrl-Z do not reach this process
        detach_standard_files()
        asyncio.run(holder.hold(link))
    except BaseException:  # noqa: BLE001 - it must not reach the code of the parent
        if sys.stderr is not None:
            traceback.print_exc()
        os._exit(1)
    os._exit(0)


def _occupy_standard_files() -> None:
    """Open /dev/null for each standard file that our caller closed, so that no file of ours takes its number."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:  # noqa: PLR2004 - stderr
        pass
    os.close(number)
