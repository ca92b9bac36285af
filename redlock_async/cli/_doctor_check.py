"""One line of the doctor's report, and how its text is put together; this module knows no check."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import redlock_async

from ._doctor_probe import Findings

Level = Literal["ok", "warning", "failure", "unknown"]

NO_ANSWER = "no node answers"
SEE_OTHERS = "see the other checks"


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the report."""

    check: str
    level: Level
    found: str
    remedy: str | None = None
    nodes: Sequence[str] = ()
    """Labels of the nodes it is about; empty: all nodes."""


def labels(nodes: Iterable[redlock_async.NodeStatus]) -> list[str]:
    return [node.label for node in nodes]


def describe(
    findings: Findings,
    nodes: Iterable[redlock_async.NodeStatus],
    describe: Callable[[redlock_async.NodeStatus], str],
) -> str:
    """Return the description of each node, with equal descriptions merged."""
    by_text: dict[str, list[str]] = {}
    for node in nodes:
        by_text.setdefault(describe(node), []).append(node.label)
    return merge(findings, by_text)


def merge(findings: Findings, by_text: Mapping[str, Sequence[str]]) -> str:
    total = len(findings.nodes)
    return "; ".join(
        f"{'all nodes' if 1 < len(labels) == total else ', '.join(labels)}: {text}" for text, labels in by_text.items()
    )


def unless_hidden(
    findings: Findings, check: str, fact: Callable[[redlock_async.NodeStatus], object], good: str, right: str
) -> Check:
    """Return ok, unless some nodes do not tell."""
    hidden = [node for node in findings.nodes if node.up and fact(node) is None]
    if hidden:
        found = f"{', '.join(labels(hidden))}: the server does not tell"
        return Check(check, "unknown", found, f"allow {right}", labels(hidden))
    return unless_silent(findings, check, good)


def unless_silent(findings: Findings, check: str, good: str) -> Check:
    """Return ok, unless no node answers."""
    if not any(node.up for node in findings.nodes):
        return Check(check, "unknown", NO_ANSWER, SEE_OTHERS)
    return Check(check, "ok", good)
