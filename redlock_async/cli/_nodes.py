"""Which masters a command is about: those of --nodes, else of REDLOCK_NODES; it never talks to them."""

from __future__ import annotations

import argparse
import os

from redlock_async import ConfigurationError

from . import PROG

NO_QUORUM = 69
"""The exit status when too few masters can vote: EX_UNAVAILABLE of sysexits.h."""

NO_NODES = (
    "no nodes given: set REDLOCK_NODES to the masters' URLs, separated by commas, or give them with --nodes; "
    f"`{PROG} up` starts a local cluster to try it on"
)


def add_nodes(parser: argparse.ArgumentParser) -> None:
    """Let them be given as an argument."""
    parser.add_argument(
        "--nodes",
        metavar="URL,...",
        help="the masters (default: REDLOCK_NODES, which also keeps passwords out of the list of processes)",
    )


def environment(arguments: argparse.Namespace) -> dict[str, str]:
    """What `Redlock.from_env` is to read; without any nodes it says where to get some."""
    environ = {**os.environ, **({} if arguments.nodes is None else {"REDLOCK_NODES": arguments.nodes})}
    if not environ.get("REDLOCK_NODES", "").strip(" ,"):
        raise ConfigurationError(NO_NODES)
    return environ
