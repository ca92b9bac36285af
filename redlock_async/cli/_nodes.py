"""Which masters a command is about: those of --nodes, else of REDLOCK_NODES; it never talks to them."""

from __future__ import annotations

import argparse
import os
import re

import redlock_async

from . import PROG

NO_QUORUM = 69
"""The exit status when too few masters can vote: EX_UNAVAILABLE of sysexits.h."""

NO_NODES = (
    "no nodes given: set REDLOCK_NODES to the masters' URLs, separated by commas, or give them with --nodes; "
    f"`{PROG} up` starts a local cluster to try it on"
)


def environment(arguments: argparse.Namespace) -> dict[str, str]:
    """What `Redlock.from_env` is to read; without any nodes it says where to get some."""
    environ = {**os.environ, **({"REDLOCK_NODES": ",".join(arguments.nodes)} if "nodes" in arguments else {})}
    if not environ.get("REDLOCK_NODES", "").strip(" ,"):
        raise redlock_async.ConfigurationError(NO_NODES)
    return environ


def urls(text: str) -> str:
    """Those that are given, or that are in the file that is given."""
    if not text.startswith("@"):
        return text
    try:
        lines = _read(text[1:]).splitlines()
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{text[1:]}: {error.strerror}") from None
    found = ",".join(line.strip(" \t,") for line in lines if line.strip(" \t,") and not line.lstrip().startswith("#"))
    if not found:
        raise argparse.ArgumentTypeError(f"{text[1:]}: there is no URL in it")
    return found


def _read(path: str) -> str:
    """All of that file."""
    # One that was opened for us, as by `--nodes @<(...)`, is closed: `run` would hand it on to its command.
    number = re.fullmatch(r"/dev/fd/([1-9]\d*)", path)
    with open(int(number[1]) if number else path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - or a number
        return file.read()
