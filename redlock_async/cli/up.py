"""`up`: run a local cluster for experiments, until Ctrl-C or for one command. It never connects to the cluster."""

# ruff: noqa: T201 - a command prints

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from types import FrameType
from typing import Any

from redlock_async.testing import LocalCluster

from . import PROG, positive
from ._messages import say

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

LAST_PORT = 65_535

GRACE = 5.0
"""Seconds that the command has to end after a signal, until it is killed."""


class _Stopped(BaseException):
    """A signal asked us to stop. Not an Exception, so that no handler takes it for a failure."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command. The words after `--` are not parsed here."""
    parser.usage = f"{PROG} up [--nodes N] [--port PORT] [-- CMD [ARG ...]]"
    parser.epilog = (
        "Without CMD, it prints a line to paste, export REDLOCK_NODES=..., and runs until Ctrl-C. With CMD, it sets "
        "REDLOCK_NODES for CMD, and stops the cluster when CMD ends. Exit status: that of CMD, or 128+N if signal N "
        "ended it; 126 if CMD cannot be executed, 127 if it was not found."
    )
    parser.add_argument(
        "--nodes", dest="number", type=positive, default=5, metavar="N", help="number of nodes (default: %(default)s)"
    )
    parser.add_argument(
        "--port",
        type=positive,
        metavar="PORT",
        help="port of the first node; the others take the ports after it, so that the URLs are the same at each start "
        "(default: free ports)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Start the cluster; run the command, or print REDLOCK_NODES and wait for a signal."""
    if arguments.port is not None and arguments.port + arguments.number - 1 > LAST_PORT:
        say(f"{PROG} up: --port must leave room for {arguments.number} ports up to {LAST_PORT}, got {arguments.port}")
        return 2
    # Installed before the first server starts, so that a signal at any time stops every server.
    for number in STOP_SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup ignores SIGHUP
            signal.signal(number, _stop)
    try:
        with LocalCluster(arguments.number, port=arguments.port, new_cluster=True) as cluster:
            nodes = ",".join(cluster.urls)
            if arguments.command:
                return _run_command(arguments.command, os.environ | {"REDLOCK_NODES": nodes})
            print(f"export REDLOCK_NODES={nodes}", flush=True)
            print(_hint(arguments.number), file=sys.stderr, flush=True)
            while True:
                signal.pause()
    except _Stopped:
        return 0


def _run_command(command: Sequence[str], environment: dict[str, str]) -> int:
    """Run a command in this environment, and return its exit status as a shell would."""
    try:
        process = subprocess.Popen(command, env=environment)  # noqa: S603 - the user's own command
    except OSError as error:
        say(f"{PROG} up: cannot run {command[0]!r}: {error.strerror}")
        return 127 if isinstance(error, FileNotFoundError) else 126
    try:
        status = process.wait()
    except _Stopped as stopped:
        status = _stop_command(process, *stopped.args)
    return status if status >= 0 else 128 - status


def _stop_command(process: subprocess.Popen[Any], number: int) -> int:
    """Pass the signal on, and kill the command if it does not end."""
    process.send_signal(number)
    try:
        return process.wait(GRACE)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def _hint(nodes: int) -> str:
    running = "1 empty node" if nodes == 1 else f"{nodes} independent, empty nodes"
    return f"Running {running} until Ctrl-C. Paste the line above into another terminal, and run your program there."


def _stop(number: int, _frame: FrameType | None) -> None:
    # Ignore further signals: a second Ctrl-C must not interrupt the shutdown.
    for each in STOP_SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    raise _Stopped(number)
