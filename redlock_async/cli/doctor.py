"""`doctor`: whether a cluster is fit for locks, one line a check, with what to do about it."""

# ruff: noqa: T201 - printing is what it is for

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from . import add_nodes
from ._client import quiet
from ._doctor_checks import Check, checked, fit
from ._doctor_probe import examine
from ._nodes import environment
from ._table import wrapped
from ._terminal import Line, Paper, Span

UNFIT = 1
PREFIX = "redlock-doctor:"
MARKS = {
    "ok": ("ok", "green"),
    "warning": ("warning", "yellow"),
    "failure": ("FAILURE", "alarm"),
    "unknown": ("unknown", "cyan"),
}
TITLE = 22
"""Columns before what was found."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add its arguments."""
    parser.description = (
        "Check whether this cluster is fit for locks, and say what to do. Each master is asked a few small questions, "
        "and every kind of lock is tried on it, with keys of its own, which are removed. The exit status is 1 if the "
        "cluster is unfit: one server twice, a replica, cluster mode, no quorum, a policy that evicts locks."
    )
    parser.add_argument(
        "--prefix",
        default=PREFIX,
        metavar="TEXT",
        help="what its keys begin with, behind the namespace; for an ACL that allows no others (default: %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="JSON instead of text, for monitoring")
    add_nodes(parser)


def run(arguments: argparse.Namespace) -> int:
    """Check it."""
    quiet()
    found = asyncio.run(examine(environment(arguments), arguments.prefix))
    checks = checked(found)
    if arguments.json:
        nodes = [asdict(node) for node in found.nodes]
        print(json.dumps({"fit": fit(checks), "checks": [asdict(each) for each in checks], "nodes": nodes}, indent=1))
    else:
        paper = Paper(sys.stdout)
        paper.write(_report(checks, paper.width))
    return 0 if fit(checks) else UNFIT


def _report(checks: Sequence[Check], width: int | None) -> Iterator[Line]:
    for each in checks:
        mark, style = MARKS[each.level]
        text = each.found if each.remedy is None else f"{each.found} -> {each.remedy}"
        (_, start), *others = wrapped(text, "", TITLE, width)
        yield [Span(f"{mark:<9}", style), Span(f"{each.check:<{TITLE - 9}}"), start]
        yield from others
    yield []
    yield _verdict(checks)


def _verdict(checks: Sequence[Check]) -> Line:
    count = Counter(each.level for each in checks)
    more = "" if not count["warning"] else ", 1 warning" if count["warning"] == 1 else f", {count['warning']} warnings"
    if fit(checks):
        return [Span(f"fit for locks{more}", "yellow" if more else "green")]
    names = ", ".join(each.check for each in checks if each.level == "failure")
    return [Span(f"unfit for locks ({names}){more}", "alarm")]
