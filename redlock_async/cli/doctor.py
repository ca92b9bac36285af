"""`doctor`: check whether a cluster is fit for locks, and print a line for each check, with a suggested fix."""

# ruff: noqa: T201 - a command prints

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from . import add_nodes
from ._client import silence_log
from ._doctor_check import Check
from ._doctor_checks import is_fit, run_checks
from ._doctor_probe import examine
from ._nodes import environment
from ._table import paragraph
from ._terminal import Line, Printer, Span

UNFIT = 1
PREFIX = "redlock-doctor:"
MARKS = {
    "ok": ("ok", "green"),
    "warning": ("warning", "warning"),
    "failure": ("FAILURE", "alarm"),
    "unknown": ("unknown", "cyan"),
}
TITLE_WIDTH = 22
"""Columns before the finding."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.description = (
        "Check whether this cluster is fit for locks, and suggest a fix for each problem. The doctor reads a few "
        "settings of each node, and tries every kind of lock on it with test keys, which it then removes. The exit "
        "status is 1 if the cluster is unfit: one server given twice, a replica, cluster mode, no quorum, an eviction "
        "policy that can delete locks, clocks too far apart."
    )
    parser.add_argument(
        "--prefix",
        default=PREFIX,
        metavar="TEXT",
        help="prefix of the test keys, after the namespace, for an ACL that restricts key names (default: %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="JSON instead of text, for monitoring")
    add_nodes(parser)


def run(arguments: argparse.Namespace) -> int:
    """Check the cluster, and return the exit status."""
    silence_log()
    findings = asyncio.run(examine(environment(arguments), arguments.prefix))
    checks = run_checks(findings)
    fit = is_fit(findings, checks)
    if arguments.json:
        nodes = [asdict(node) for node in findings.nodes]
        print(json.dumps({"fit": fit, "checks": [asdict(check) for check in checks], "nodes": nodes}, indent=1))
    else:
        printer = Printer(sys.stdout)
        printer.write(_report(checks, printer.width, fit=fit))
    return UNFIT if fit is False else 0


def _report(checks: Sequence[Check], width: int | None, *, fit: bool | None) -> Iterator[Line]:
    for check in checks:
        mark, style = MARKS[check.level]
        text = check.found if check.remedy is None else f"{check.found} -> {check.remedy}"
        (_, start), *others = paragraph(text, "", TITLE_WIDTH, width)
        yield [Span(f"{mark:<9}", style), Span(f"{check.check:<{TITLE_WIDTH - 9}}"), start]
        yield from others
    yield []
    yield _verdict(checks, fit=fit)


def _verdict(checks: Sequence[Check], *, fit: bool | None) -> Line:
    count = Counter(check.level for check in checks)
    more = "" if not count["warning"] else ", 1 warning" if count["warning"] == 1 else f", {count['warning']} warnings"
    if fit is None:
        return [Span(f"fitness for locks unknown (eviction){more}", "warning")]
    if fit:
        return [Span(f"fit for locks{more}", "warning" if more else "green")]
    names = ", ".join(check.check for check in checks if check.level == "failure")
    return [Span(f"unfit for locks ({names}){more}", "alarm")]
