"""Decide what makes a cluster unfit or suboptimal for locks, and how to fix it; this module sends no commands."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

import redlock_async
from redlock_async._rules.settings import is_suspicious_ttl
from redlock_async._rules.voting import FAILOVER_GRACE

from ._doctor_abilities import check_commands, check_kinds, check_waking
from ._doctor_check import NO_ANSWER, SEE_OTHERS, Check, describe, labels, unless_hidden, unless_silent
from ._doctor_probe import LOCK, Findings, is_clustered, is_replica
from ._lock_view import format_seconds
from ._node_view import agreed_quorum, by_node, replica_problem, vote_problem
from ._terminal import sanitize

MAX_OFFSET = 1.0
"""Seconds between two clocks: up to this, with a ttl of 8 s or more, all nodes return equal fencing tokens at once."""

LATENCY_FRACTION = 0.5
"""The part of node_timeout that a round trip may take, so that slower moments still fit."""

PERSISTENCE = {
    "aof everysec": "a power failure can lose the locks of the last second, which nothing detects",
    "aof no": "a power failure can lose the locks of many seconds, which nothing detects",
    "rdb": "a restart loses all locks since the last snapshot: the node is quarantined for the longest ttl, and if all "
    "nodes restart at once, leases may overlap",
    "none": "a restart loses everything: the node is quarantined for the longest ttl, and if all nodes restart at "
    "once, leases may overlap",
}

UNSYNCED = {
    "aof": "whether each lock is on disk before the node confirms it depends on appendfsync, which INFO does not show",
    "no aof": "it keeps no append-only file: a restart loses all locks since the last snapshot, if there are any",
}
"""The persistence as INFO shows it, where CONFIG GET cannot be called."""


def run_checks(findings: Findings) -> list[Check]:
    """Run every check, in the order in which problems should be fixed."""
    return [check(findings) for check in CHECKS]


def is_fit(findings: Findings, checks: Iterable[Check]) -> bool | None:
    """Return whether services may use the cluster for locks; None if it is unknown whether it evicts them."""
    if any(check.level == "failure" for check in checks):
        return False
    return None if eviction_unknown(findings) else True


def _reached(findings: Findings) -> Check:
    # A server that is unfit as a node does answer; the checks "independent", "role" and "mode" report it.
    silent = [node for node in findings.nodes if not node.up and not _is_unfit(node, findings)]
    if not silent:
        return Check("reached", "ok", f"{len(findings.nodes)} of {len(findings.nodes)} nodes can be used")
    votes, quorum = _votes(findings)
    remedy = (
        "start the node, or check its address, firewall, password and ACL (docs/permissions.md); until "
        "then it counts as failed, and "
    )
    remedy += "locks work as long as a quorum of the others does" if votes >= quorum else "no lock can be acquired"
    return Check("reached", "warning", describe(findings, silent, vote_problem), remedy, labels(silent))


def _is_unfit(node: redlock_async.NodeStatus, findings: Findings) -> bool:
    duplicate = any(node.label in labels for labels in findings.same_server)
    return duplicate or is_replica(node) or is_clustered(node)


def _independent(findings: Findings) -> Check:
    remedy = "list each server once, by one address: two names of a server are one vote, not two"
    same = [f"{' and '.join(labels)} are the same server" for labels in findings.same_server]
    if findings.duplicates or same:
        labels = list(chain.from_iterable(findings.same_server))
        return Check("independent", "failure", "; ".join([*findings.duplicates, *same]), remedy, labels)
    if shared := _shared_hosts(findings):
        found = "; ".join(f"{host} carries shards of {' and '.join(names)}" for host, names in shared.items())
        remedy = (
            "give each cluster machines of its own: a machine that fails must not take shards of several nodes away"
        )
        return Check("independent", "warning", found, remedy, [name for names in shared.values() for name in names])
    return unless_hidden(findings, "independent", lambda node: node.run_id, "each node is a separate server", "+info")


def _shared_hosts(findings: Findings) -> dict[str, list[str]]:
    """Return the hosts that carry servers of several nodes, if some are clusters: as far as their addresses tell."""
    if not any(node.cluster for node in findings.nodes):
        return {}
    nodes_of: dict[str, set[str]] = {}
    for name, servers in by_node(findings.nodes).items():
        for node in servers:
            nodes_of.setdefault(node.label.rpartition(":")[0], set()).add(name)
    return {host: sorted(names) for host, names in nodes_of.items() if len(names) > 1}


def _role(findings: Findings) -> Check:
    wrong = [node for node in findings.nodes if is_replica(node)]
    if wrong:
        remedy = (
            "use servers that are not replicas; to promote a replica, run REPLICAOF NO ONE on it and remove replicaof "
            "from its configuration"
        )
        found = describe(findings, wrong, lambda node: f"is a {_role_of(node)}")
        return Check("role", "failure", found, remedy, labels(wrong))
    return unless_hidden(findings, "role", lambda node: node.role, "no node is a replica", "+info")


def _role_of(node: redlock_async.NodeStatus) -> str:
    return "replica" if node.role == "slave" else sanitize(node.role or "")


def _mode(findings: Findings) -> Check:
    wrong = [node for node in findings.nodes if is_clustered(node)]
    if wrong:
        remedy = "to use a whole cluster as one node, give a redis+cluster:// URL; else use standalone servers"
        found = describe(findings, wrong, lambda node: f"runs in {sanitize(node.mode or '')} mode")
        return Check("mode", "failure", found, remedy, labels(wrong))
    clustered = any(node.cluster for node in findings.nodes)
    good = "every node is standalone, or a whole cluster" if clustered else "every node is standalone"
    return unless_hidden(findings, "mode", lambda node: node.mode, good, "+info")


def _quorum(findings: Findings) -> Check:
    votes, quorum = _votes(findings)
    found = f"{votes} of {findings.node_count} nodes grant locks, {quorum} are needed"
    if votes < quorum:
        return Check(
            "quorum", "failure", f"{found}: no lock can be acquired", "fix the nodes named in the other checks"
        )
    if votes == quorum and findings.node_count > 1:
        return Check("quorum", "warning", f"{found}: no node may fail", "restore the other nodes")
    return Check("quorum", "ok", f"{found}: {votes - quorum} may fail")


def _votes(findings: Findings) -> tuple[int, int]:
    """Return how many nodes grant locks, and how many must."""
    refused = findings.refused or {}
    votes = sum(
        all(node.can_vote and LOCK not in refused.get(node.label, ()) for node in servers)
        for servers in by_node(findings.nodes).values()
    )
    return votes, agreed_quorum(findings.nodes, findings.quorum)


def _number(findings: Findings) -> Check:
    count = findings.node_count
    if count == 1:
        return Check("number", "warning", "1 node: no lock can be acquired while it is down", "use 3 or 5")
    if count % 2 == 0:
        found = f"{count} nodes tolerate no more failures than {count - 1} would"
        return Check("number", "warning", found, f"use {count - 1} or {count + 1}")
    return Check("number", "ok", f"{count} nodes")


def _eviction(findings: Findings) -> Check:
    evicting = [node for node in findings.nodes if node.eviction not in {None, "noeviction"}]
    limited = [node for node in evicting if node.maxmemory != 0]
    remedy = (
        "set maxmemory-policy to noeviction: with CONFIG SET and in the configuration file, or in the settings of the "
        "managed service"
    )
    if limited:
        found = describe(
            findings, limited, lambda node: f"{sanitize(node.eviction or '')} may evict locks when memory is full"
        )
        return Check("eviction", "failure", found, remedy, labels(limited))
    if evicting:
        found = describe(
            findings, evicting, lambda node: f"{sanitize(node.eviction or '')}, safe only without a maxmemory"
        )
        return Check("eviction", "warning", found, remedy, labels(evicting))
    if unknown := eviction_unknown(findings):
        found = f"{', '.join(labels(unknown))}: the policy is unknown, and all but noeviction may evict locks"
        return Check("eviction", "warning", found, "check maxmemory-policy yourself, or allow +info", labels(unknown))
    return unless_silent(findings, "eviction", "locks are never evicted")


def eviction_unknown(findings: Findings) -> list[redlock_async.NodeStatus]:
    """Return the nodes that do not tell whether they evict locks."""
    return [node for node in findings.nodes if node.up and node.eviction is None]


def _persistence(findings: Findings) -> Check:
    weak = [node for node in findings.nodes if node.persistence in PERSISTENCE]
    if weak:
        found = describe(findings, weak, lambda node: f"{node.persistence}: {PERSISTENCE[node.persistence or '']}")
        return Check("persistence", "warning", found, "set appendonly yes and appendfsync always", labels(weak))
    unsynced = [node for node in findings.nodes if node.persistence in UNSYNCED]
    if unsynced:
        found = describe(findings, unsynced, lambda node: f"{node.persistence}: {UNSYNCED[node.persistence or '']}")
        remedy = "set appendonly yes and appendfsync always; to have it checked, allow +config|get"
        return Check("persistence", "unknown", found, remedy, labels(unsynced))
    good = "each lock is on disk before the node confirms it"
    return unless_hidden(findings, "persistence", lambda node: node.persistence, good, "+info")


def _replicas(findings: Findings) -> Check:
    remedy = (
        f"set min-replicas-to-write 1 and min-replicas-max-lag {FAILOVER_GRACE:.0f}, so that the old primary grants no "
        "locks after a failover; or use nodes without replicas"
    )
    if unsafe := [node for node in findings.nodes if replica_problem(node) is not None]:
        found = describe(findings, unsafe, lambda node: replica_problem(node) or "")
        return Check("replicas", "warning", found, remedy, labels(unsafe))
    followed = [node for node in findings.nodes if node.replicas]
    if unknown := [node for node in followed if node.replica_timeout is None]:
        found = describe(
            findings, unknown,
            lambda node: f"has {node.replicas} {'replica' if node.replicas == 1 else 'replicas'}; whether it stops "
            "accepting writes without them is unknown",
        )  # fmt: skip
        return Check("replicas", "unknown", found, f"{remedy}; to have it checked, allow +config|get", labels(unknown))
    good = "each node that has replicas stops accepting writes without them" if followed else "no node has replicas"
    return unless_hidden(findings, "replicas", lambda node: node.replicas, good, "+info")


def _clocks(findings: Findings) -> Check:
    offsets = {node.label: node.clock_offset for node in findings.nodes if node.clock_offset is not None}
    if not offsets:
        return Check("clocks", "unknown", NO_ANSWER, SEE_OTHERS)
    median = sorted(offsets.values())[len(offsets) // 2]
    spread = max(offsets.values()) - min(offsets.values())
    # A node that lost its data is quarantined for the longest ttl. That protects the fencing tokens only if no clock is
    # behind by more.
    longest = max([findings.ttl, *(node.longest_ttl for node in findings.nodes if node.longest_ttl is not None)])
    unfit = spread > longest / 2
    wrong = [label for label, offset in offsets.items() if abs(offset - median) > MAX_OFFSET]
    if wrong:
        found = "; ".join(f"{label}: {offsets[label] - median:+.1f} s from the others" for label in wrong)
        remedy = "synchronize its clock with chrony or ntpd: until then, fencing needs a second round trip"
        if unfit:
            found += f". The clocks differ by more than half of the longest ttl ({format_seconds(longest)})"
            remedy = "synchronize its clock with chrony or ntpd: if a node loses its data, fencing tokens may decrease"
        return Check("clocks", "failure" if unfit else "warning", found, remedy, wrong)
    if unfit:
        found = f"they differ by {spread:.2f} s, more than half of the longest ttl ({format_seconds(longest)})"
        remedy = "synchronize the clocks with chrony or ntpd: if a node loses its data, fencing tokens may decrease"
        return Check("clocks", "failure", found, remedy, list(offsets))
    if abs(median) > MAX_OFFSET:
        found = f"the clock of this machine is {-median:+.1f} s from those of the nodes"
        remedy = "synchronize it with chrony or ntpd: until then, fencing needs a second round trip here"
        return Check("clocks", "warning", found, remedy)
    return Check("clocks", "ok", f"within {spread * 1000:.0f} ms of each other")


def _latency(findings: Findings) -> Check:
    if not findings.latencies:
        return Check("latency", "unknown", NO_ANSWER, SEE_OTHERS)
    limit = findings.node_timeout
    slowest = {label: max(latencies) for label, latencies in findings.latencies.items()}
    slow = [label for label, latency in slowest.items() if latency > LATENCY_FRACTION * limit]
    if slow:
        found = "; ".join(f"{label}: up to {slowest[label] * 1000:.0f} ms" for label in slow)
        remedy = (
            "increase node_timeout (REDLOCK_NODE_TIMEOUT) and ttl, or move closer to the node: an answer after "
            "node_timeout counts as a failure"
        )
        return Check("latency", "warning", f"{found}; node_timeout is {limit * 1000:.0f} ms", remedy, slow)
    worst = max(slowest.values()) * 1000
    return Check("latency", "ok", f"answers within {worst:.1f} ms; node_timeout is {limit * 1000:.0f} ms")


def _versions(findings: Findings) -> Check:
    known = [node for node in findings.nodes if node.version is not None]
    if len({_series(node) for node in known}) > 1:
        found = describe(findings, known, lambda node: sanitize(node.version or ""))
        remedy = "run the same version everywhere, so that faults are easier to find"
        return Check("versions", "warning", found, remedy)
    good = ", ".join(sorted({sanitize(node.version or "") for node in known}))
    return unless_hidden(findings, "versions", lambda node: node.version, good, "+info")


def _series(node: redlock_async.NodeStatus) -> str:
    """Return the name and version of a server without the last number."""
    return (node.version or "").rpartition(".")[0]


def _age(findings: Findings) -> Check:
    up = [node for node in findings.nodes if node.up]
    # A node has no record before a lock is acquired.
    young = [n for n in up if not n.can_vote or (n.data_age is not None and n.data_age < findings.ttl)]
    if not young:
        used = any(node.data_age is not None for node in up)
        good = "every node has kept its data for longer than the ttl" if used else NEVER_USED
        return unless_silent(findings, "age", good)
    remedy = "wait; if the node was restarted, configure it to keep its data (appendonly yes, appendfsync always)"
    return Check("age", "warning", describe(findings, young, _age_problem), remedy, labels(young))


def _age_problem(node: redlock_async.NodeStatus) -> str:
    if not node.can_vote:
        return vote_problem(node)
    return f"has had its data for only {format_seconds(node.data_age or 0.0)}"


NEVER_USED = "no lock has been acquired on these nodes yet"


def _longest_ttl(findings: Findings) -> Check:
    known = [node for node in findings.nodes if node.longest_ttl is not None]
    longest = max((node.longest_ttl or 0.0 for node in known), default=0.0)
    if not known:
        return Check("ttl", "unknown", NO_ANSWER, SEE_OTHERS)
    if not is_suspicious_ttl(longest):
        return unless_silent(findings, "ttl", f"the longest ttl in use is {format_seconds(longest)}")
    nodes = [node for node in known if node.longest_ttl == longest]
    found = (
        f"the longest ttl in use is {format_seconds(longest)}: a node that restarts without its data cannot vote for "
        "that long"
    )
    remedy = (
        "if this is a mistake (durations are seconds), correct the client, wait until its leases have expired, and run "
        "redis-cli HDEL redlock-async:node ttl, with your namespace before the key, on each node"
    )
    if any(node.cluster for node in nodes):
        remedy += f" (on a shard another key: {', '.join(sorted({node.record_key or '?' for node in nodes}))})"
    return Check("ttl", "warning", found, remedy, labels(nodes))


def _cleaned(findings: Findings) -> Check:
    if findings.refused is None and findings.leftovers is None:
        return Check("cleaned up", "unknown", "no test keys were written", SEE_OTHERS)
    if findings.leftovers is None:
        return Check("cleaned up", "ok", "all test keys are removed")
    return Check("cleaned up", "warning", f"test keys may be left: {sanitize(findings.leftovers)}", "delete them")


CHECKS = (
    _reached, _independent, _role, _mode, _replicas, _quorum, _eviction, _persistence, _age, _longest_ttl, _number,
    _clocks, _latency, check_kinds, check_commands, check_waking, _versions, _cleaned,
)  # fmt: skip
