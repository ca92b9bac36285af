"""What makes a cluster unfit for locks, or worse than it could be, and what to do about it; it asks nobody."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal

import redlock_async

from ._doctor_probe import LOCK, Findings
from ._lock_view import span_of
from ._node_view import why_not
from ._terminal import harmless

Level = Literal["ok", "warning", "failure", "unknown"]

OFFSET = 1.0
"""Seconds between two masters' clocks: up to that all of them take the same fencing token at once."""

NEAR = 0.5
"""The part of node_timeout that a round trip may take: the rest is for the moments when all is slower."""

LONG_TTL = 3600.0
"""Seconds of a ttl from which on it is most likely a mistake; the library's log warns from there on, too."""

PERSISTENCE = {
    "aof everysec": "a power cut can lose the last second of grants, and the node comes back with an old mark, so that "
    "nothing holds it out of the vote",
    "aof no": "a power cut can lose many seconds of grants, and the node comes back with an old mark, so that nothing "
    "holds it out of the vote",
    "rdb": "a restart loses all grants since the last snapshot, and the node comes back with an old mark, so that "
    "nothing holds it out of the vote",
    "none": "a restart loses everything: the node is held out for the longest ttl, and if a majority restarts at once, "
    "leases may overlap",
}


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the report."""

    check: str
    level: Level
    found: str
    remedy: str | None = None
    nodes: Sequence[str] = ()
    """Labels of the masters it is about; none: all of them."""


def checked(found: Findings) -> list[Check]:
    """Every check, in the order in which things should be put right."""
    return [check(found) for check in CHECKS]


def fit(checks: Iterable[Check]) -> bool:
    """Whether services may lock there."""
    return all(each.level != "failure" for each in checks)


def _labels(nodes: Iterable[redlock_async.NodeStatus]) -> list[str]:
    return [node.label for node in nodes]


def _said(
    found: Findings, nodes: Iterable[redlock_async.NodeStatus], what: Callable[[redlock_async.NodeStatus], str]
) -> str:
    """Each thing once, with those it is said of."""
    by_text: dict[str, list[str]] = {}
    for node in nodes:
        by_text.setdefault(what(node), []).append(node.label)
    return _grouped(found, by_text)


def _grouped(found: Findings, by_text: Mapping[str, Sequence[str]]) -> str:
    everybody = len(found.nodes)
    return "; ".join(
        f"{'all masters' if 1 < len(labels) == everybody else ', '.join(labels)}: {text}"
        for text, labels in by_text.items()
    )


def _reached(found: Findings) -> Check:
    # A server that is unfit is there, and is the matter of another check.
    silent = [node for node in found.nodes if not node.up and not _is_unfit(node, found)]
    if not silent:
        return Check("reached", "ok", f"{len(found.nodes)} of {len(found.nodes)} masters can be used")
    votes, need = _voting(found)
    remedy = (
        "start it, or see to its address, firewall, password and ACL (docs/operations.md, Permissions); it counts as "
        "failed, and "
    )
    remedy += "locks go on without it as long as a quorum is there" if votes >= need else "no lock can be had meanwhile"
    return Check("reached", "warning", _said(found, silent, why_not), remedy, _labels(silent))


def _is_unfit(node: redlock_async.NodeStatus, found: Findings) -> bool:
    twin = any(node.label in labels for labels in found.twins)
    return twin or node.role not in {None, "master"} or node.mode not in {None, "standalone"}


def _independent(found: Findings) -> Check:
    remedy = "give each server once, by one address: two names of one server are one vote, not two"
    same = [f"{' and '.join(labels)} are one server" for labels in found.twins]
    if found.twice or same:
        return Check(
            "independent", "failure", "; ".join([*found.twice, *same]), remedy, list(chain.from_iterable(found.twins))
        )
    return _unless_hidden(found, "independent", lambda node: node.run_id, "each is a server of its own", "+info")


def _role(found: Findings) -> Check:
    wrong = [node for node in found.nodes if node.role not in {None, "master"}]
    if wrong:
        remedy = "give masters that replicate nobody; to make it one: REPLICAOF NO ONE, there and in its configuration"
        return Check(
            "role", "failure", _said(found, wrong, lambda node: f"is a {_role_of(node)}"), remedy, _labels(wrong)
        )
    return _unless_hidden(found, "role", lambda node: node.role, "all of them are masters", "+info")


def _role_of(node: redlock_async.NodeStatus) -> str:
    return "replica" if node.role == "slave" else harmless(node.role or "")


def _mode(found: Findings) -> Check:
    wrong = [node for node in found.nodes if node.mode not in {None, "standalone"}]
    if wrong:
        remedy = "give N standalone servers (cluster-enabled no): a cluster is one system, and its failover forgets"
        said = _said(found, wrong, lambda node: f"runs in {harmless(node.mode or '')} mode")
        return Check("mode", "failure", said, remedy, _labels(wrong))
    return _unless_hidden(found, "mode", lambda node: node.mode, "all of them are standalone", "+info")


def _unless_hidden(
    found: Findings, check: str, fact: Callable[[redlock_async.NodeStatus], object], good: str, right: str
) -> Check:
    """All is well with what can be seen; is there any that cannot?"""
    hidden = [node for node in found.nodes if node.up and fact(node) is None]
    if hidden:
        return Check(
            check, "unknown", f"{', '.join(_labels(hidden))}: may not be asked", f"allow {right}", _labels(hidden)
        )
    return _unless_silent(found, check, good)


def _unless_silent(found: Findings, check: str, good: str) -> Check:
    """All is well, if there is anybody of whom it can be said."""
    if not any(node.up for node in found.nodes):
        return Check(check, "unknown", "no master answers", "see above")
    return Check(check, "ok", good)


def _quorum(found: Findings) -> Check:
    votes, need = _voting(found)
    text = f"{votes} of {found.given} masters grant locks, {need} are needed"
    if votes < need:
        what = f"{text}: no lock can be had"
        return Check("quorum", "failure", what, "put right what is said of the masters above and below")
    if votes == need and found.given > 1:
        return Check("quorum", "warning", f"{text}: none of them may fail", "bring the others back")
    return Check("quorum", "ok", f"{text}: {votes - need} may fail")


def _voting(found: Findings) -> tuple[int, int]:
    """How many masters grant locks, and how many have to."""
    refused = found.refused or {}
    votes = sum(node.votes and LOCK not in refused.get(node.label, ()) for node in found.nodes)
    return votes, found.given // 2 + 1


def _number(found: Findings) -> Check:
    given = found.given
    if given == 1:
        return Check("number", "warning", "1 master: nothing is locked while it is down", "use 3, or 5")
    if given % 2 == 0:
        what = f"{given} masters tolerate no more failures than {given - 1} would"
        return Check("number", "warning", what, f"use {given - 1} or {given + 1}")
    return Check("number", "ok", f"{given} masters")


def _eviction(found: Findings) -> Check:
    evicting = [node for node in found.nodes if node.eviction not in {None, "noeviction"}]
    acute = [node for node in evicting if node.maxmemory != 0]
    remedy = "CONFIG SET maxmemory-policy noeviction, there and in its configuration"
    if acute:
        said = _said(found, acute, lambda node: f"{harmless(node.eviction or '')} may throw a lock away to make room")
        return Check("eviction", "failure", said, remedy, _labels(acute))
    if evicting:
        said = _said(found, evicting, lambda node: f"{harmless(node.eviction or '')}, harmless without maxmemory only")
        return Check("eviction", "warning", said, remedy, _labels(evicting))
    return _unless_hidden(found, "eviction", lambda node: node.eviction, "no lock is ever evicted", "+config|get")


def _persistence(found: Findings) -> Check:
    weak = [node for node in found.nodes if node.persistence in PERSISTENCE]
    if weak:
        said = _said(found, weak, lambda node: f"{node.persistence}: {PERSISTENCE[node.persistence or '']}")
        return Check("persistence", "warning", said, "appendonly yes, appendfsync always", _labels(weak))
    good = "a grant is on disk before it is answered"
    return _unless_hidden(found, "persistence", lambda node: node.persistence, good, "+config|get")


def _clocks(found: Findings) -> Check:
    offsets = {node.label: node.clock_offset for node in found.nodes if node.clock_offset is not None}
    if not offsets:
        return Check("clocks", "unknown", "no master answers", "see above")
    middle = sorted(offsets.values())[len(offsets) // 2]
    wrong = [label for label, offset in offsets.items() if abs(offset - middle) > OFFSET]
    if wrong:
        said = "; ".join(f"{label}: {offsets[label] - middle:+.1f} s from the others" for label in wrong)
        remedy = (
            "have chrony or ntpd set its clock: fencing takes a second round trip meanwhile, and after a loss of data "
            "its tokens might not increase"
        )
        return Check("clocks", "warning", said, remedy, wrong)
    if abs(middle) > OFFSET:
        said = f"this machine's clock is {-middle:+.1f} s from the masters'"
        return Check("clocks", "warning", said, "have chrony or ntpd set it: fencing takes a second round trip here")
    spread = max(offsets.values()) - min(offsets.values())
    return Check("clocks", "ok", f"within {spread * 1000:.0f} ms of each other")


def _latency(found: Findings) -> Check:
    if not found.latencies:
        return Check("latency", "unknown", "no master answers", "see above")
    limit = found.node_timeout
    slowest = {label: max(took) for label, took in found.latencies.items()}
    slow = [label for label, took in slowest.items() if took > NEAR * limit]
    if slow:
        said = "; ".join(f"{label}: took up to {slowest[label] * 1000:.0f} ms" for label in slow)
        remedy = "raise node_timeout (REDLOCK_NODE_TIMEOUT), and ttl with it, or move nearer: a late answer is none"
        return Check("latency", "warning", f"{said}, of a node_timeout of {limit * 1000:.0f} ms", remedy, slow)
    worst = max(slowest.values()) * 1000
    return Check("latency", "ok", f"answers within {worst:.1f} ms, of a node_timeout of {limit * 1000:.0f} ms")


def _rights(found: Findings) -> Check:
    if found.refused is None:
        return Check("rights", "unknown", "nothing was tried: no locks can be taken as it is", "see above")
    refused = {label: why for label, why in found.refused.items() if why}
    if not refused:
        return Check("rights", "ok", "every kind of lock can be taken")
    by_reason: dict[str, list[str]] = {}
    for label, why in refused.items():
        by_reason.setdefault(f"no {', no '.join(why)}: {harmless(next(iter(why.values())))}", []).append(label)
    said = _grouped(found, by_reason)
    remedy = (
        "allow what docs/operations.md lists under Permissions, as far as those kinds are used; if only the keys of "
        "this trial are denied, give --prefix with what they may begin with"
    )
    return Check("rights", "warning", said, remedy, list(refused))


def _waking(found: Findings) -> Check:
    deaf = [node for node in found.nodes if node.up and not node.tracking]
    if deaf:
        remedy = "use Redis 6 or newer, or any Valkey, without a proxy before it, and allow +client|tracking"
        said = _said(
            found, deaf, lambda _: "does not report changes of keys, so waiters poll, and a FLUSHALL is noticed late"
        )
        return Check("waking", "warning", said, remedy, _labels(deaf))
    return _unless_silent(found, "waking", "waiters are woken by the servers")


def _versions(found: Findings) -> Check:
    known = [node for node in found.nodes if node.version is not None]
    if len({_series(node) for node in known}) > 1:
        said = _said(found, known, lambda node: harmless(node.version or ""))
        return Check(
            "versions", "warning", said, "bring them to one version: fewer differences when a fault has to be found"
        )
    good = ", ".join(sorted({harmless(node.version or "") for node in known}))
    return _unless_hidden(found, "versions", lambda node: node.version, good, "+info")


def _series(node: redlock_async.NodeStatus) -> str:
    """Name and version without the last number."""
    return (node.version or "").rpartition(".")[0]


def _age(found: Findings) -> Check:
    young = [node for node in found.nodes if node.up and (not node.votes or (node.age or 0.0) < found.ttl)]
    if not young:
        return _unless_silent(found, "age", "all of them have kept their data for longer than the ttl")
    remedy = "wait; if it was restarted: let it keep its data (appendonly yes, appendfsync always)"
    said = _said(found, young, _youth)
    return Check("age", "warning", said, remedy, _labels(young))


def _youth(node: redlock_async.NodeStatus) -> str:
    if not node.votes:
        return why_not(node)
    return f"has its data for {span_of(node.age or 0.0)} only"


def _longest_ttl(found: Findings) -> Check:
    known = [node for node in found.nodes if node.longest_ttl is not None]
    longest = max((node.longest_ttl or 0.0 for node in known), default=0.0)
    if not known:
        return Check("ttl", "unknown", "no master has said", "see above")
    if longest < LONG_TTL:
        return _unless_silent(found, "ttl", f"the longest that anybody uses is {span_of(longest)}")
    says = [node for node in known if node.longest_ttl == longest]
    said = f"somebody uses {span_of(longest)}: for so long a master that restarts without its data cannot vote"
    remedy = (
        "if nobody means that (durations are seconds): correct it, wait until no such lease stands, and then redis-cli "
        "DEL redlock-async:longest-ttl, behind the namespace, on each master"
    )
    return Check("ttl", "warning", said, remedy, _labels(says))


def _cleaned(found: Findings) -> Check:
    if found.refused is None and found.left is None:
        return Check("cleaned up", "unknown", "nothing was tried, so there is nothing to remove", "see above")
    if found.left is None:
        return Check("cleaned up", "ok", "no key of the trial stays")
    return Check("cleaned up", "warning", f"keys of the trial may be left: {harmless(found.left)}", "delete them")


CHECKS = (
    _reached, _independent, _role, _mode, _quorum, _eviction, _persistence, _age, _longest_ttl, _number, _clocks,
    _latency, _rights, _waking, _versions, _cleaned,
)  # fmt: skip
