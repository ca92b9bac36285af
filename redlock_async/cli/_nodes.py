"""Which nodes a command uses: the ones in --nodes, else in REDLOCK_NODES. This module never connects to them."""

from __future__ import annotations

import argparse
import os
import re

import redlock_async

from . import PROG

NO_QUORUM = 69
"""The exit status when too few nodes can vote: EX_UNAVAILABLE of sysexits.h."""

NO_NODES = (
    "no nodes given: set REDLOCK_NODES to the URLs of the nodes, separated by commas, or pass them with --nodes; "
    f"to try it without nodes of your own, `{PROG} up` starts a local cluster"
)


def environment(arguments: argparse.Namespace) -> dict[str, str]:
    """Return the variables for `Redlock.from_env`; raise ConfigurationError if no nodes are given."""
    environ = {**os.environ, **({"REDLOCK_NODES": ",".join(arguments.nodes)} if "nodes" in arguments else {})}
    if not environ.get("REDLOCK_NODES", "").strip(" ,"):
        raise redlock_async.ConfigurationError(NO_NODES)
    return environ


def read_urls(text: str) -> str:
    """Return the URLs of an argument, or of the file that it names with @."""
    if not text.startswith("@"):
        return text
    path = text[1:]
    try:
        lines = _read(path).splitlines()
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{path}: {error.strerror}") from None
    found = ",".join(line.strip(" \t,") for line in lines if line.strip(" \t,") and not line.lstrip().startswith("#"))
    if not found:
        raise argparse.ArgumentTypeError(f"{path}: the file contains no URL")
    return found


def _read(path: str) -> str:
    """Return the content of that file."""
    # Close a file that our caller opened for us, as with `--nodes @<(...)`: `run` would pass it to its command.
    number = re.fullmatch(r"/dev/fd/([1-9]\d*)", path)
    with open(int(number[1]) if number else path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - or a number
        return file.read()
