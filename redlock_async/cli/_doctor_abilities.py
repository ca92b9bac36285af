"""The checks about what nodes can do: the kinds of lock, the commands that they lack, and waking waiters."""

from __future__ import annotations

import re

import redlock_async

from ._doctor_check import SEE_OTHERS, Check, describe, labels, merge, unless_silent
from ._doctor_probe import Findings
from ._terminal import sanitize

TRACKED = "waiters poll, and a deleted lock or a FLUSHALL is noticed late"
ORDERED = "a command that was stuck when its connection was replaced may lock a name for one ttl"
COSTS = {
    "HELLO": TRACKED,
    "CLIENT TRACKING": TRACKED,
    "CLIENT SETNAME": "CLIENT LIST does not show whose connection it is",
    "CLIENT ID": ORDERED,
    "CLIENT KILL": ORDERED,
    "INFO": "a replica, cluster mode and a server that is listed twice are not noticed",
    "EVALSHA": "each command takes two round trips",
    "SCRIPT LOAD": "the first use of each script takes one more round trip",
}
"""The cost of each command that a server lacks. Without CLIENT SETINFO nothing is lost; instead of CONFIG GET there is
INFO."""

PERMISSIONS = "docs/permissions.md"

ADVICE = {
    "OOM": "free memory on the node, or raise its maxmemory: at the limit it grants no locks",
    "MISCONF": "make the node's disk writable again: its log says what is wrong",
    "READONLY": "use a server that is not a replica",
    "NOREPLICAS": "restore the node's replicas, or set min-replicas-to-write 0 on it",
    "BUSY": "end the script that blocks the node (SCRIPT KILL)",
}
"""The remedy for a node that refuses locks for a reason other than permissions."""


def check_kinds(findings: Findings) -> Check:
    """Check that each node takes every kind of lock."""
    if findings.refused is None:
        found = "not tried, because no lock can be acquired on this cluster"
        return Check("kinds", "unknown", found, SEE_OTHERS)
    refused = {label: reasons for label, reasons in findings.refused.items() if reasons}
    if not refused:
        return Check("kinds", "ok", "every kind of lock can be acquired")
    by_reason: dict[str, list[str]] = {}
    remedies: dict[str, None] = {}
    for label, reasons in refused.items():
        why = sanitize(next(iter(reasons.values())))
        by_reason.setdefault(f"no {', no '.join(reasons)}: {why}", []).append(label)
        remedies |= dict.fromkeys(map(_advice, reasons.values()))
    return Check("kinds", "warning", merge(findings, by_reason), "; ".join(remedies), list(refused))


def _advice(reason: str) -> str:
    """Return what to do about a node that refuses a lock for that reason."""
    for code, advice in ADVICE.items():
        if re.search(rf"\b{code}\b", reason):
            return advice
    if PERMISSIONS in reason:
        return (
            f"if you use these kinds, allow the commands listed in {PERMISSIONS}; if the ACL denies only the test "
            "keys, pass an allowed --prefix"
        )
    return "see the log of the node"


def check_commands(findings: Findings) -> Check:
    """Check that no node lacks a command that locks can do without, at a cost."""

    def cost(node: redlock_async.NodeStatus) -> str:
        by_cost: dict[str, list[str]] = {}
        for command in node.missing:
            if command in COSTS:
                by_cost.setdefault(COSTS[command], []).append(command)
        return ", ".join(f"no {' and '.join(commands)} ({text})" for text, commands in by_cost.items())

    lacking = [node for node in findings.nodes if node.up and cost(node)]
    if lacking:
        remedy = f"allow these commands, see {PERMISSIONS}, or accept what their lack costs: locks work without them"
        return Check("commands", "warning", describe(findings, lacking, cost), remedy, labels(lacking))
    return unless_silent(findings, "commands", "no node lacks a command that is of use")


def check_waking(findings: Findings) -> Check:
    """Check that the nodes notify waiters."""
    without = [node for node in findings.nodes if node.up and not node.tracking]
    if without:
        remedy = "use Redis 6 or later, or any Valkey, without a proxy in front, and allow +client|tracking"
        found = describe(
            findings, without, lambda _: "does not report changed keys: waiters poll, and a FLUSHALL is noticed late"
        )
        return Check("waking", "warning", found, remedy, labels(without))
    return unless_silent(findings, "waking", "the nodes wake waiters")
