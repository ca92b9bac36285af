"""What the histories of a run amount to: leases for the judge, bodies, latches, gaps, growth. It starts nothing."""

import json
import statistics
from collections import Counter, defaultdict
from itertools import product

from faults_client import LONGEST_TTL, NAMES

from redlock_async.testing import HeldInterval, Violation, check_history

SETTLED = 1.0
"""Seconds after which a node that was healed counts as healthy: the longest pause between attempts to connect."""
KEPT_PLACE = 1.0
"""Seconds for which a place that a majority has told of is kept, without any sign of life."""
FORGETTING = 2.0
"""Seconds between the note that a master will lose its data, and its loss."""
FASTEST = 0.05
"""Goal of DESIGN.md, section 13: loss to cancelled body."""


class Life:
    """The history of one process."""

    def __init__(self, owner, path):
        self.owner = owner
        self.lines = []
        for line in path.read_text("ascii").splitlines() if path.exists() else ():
            try:
                self.lines.append(json.loads(line))
            except ValueError:  # killed within its last line
                break
        self.leases, self.stalls, self.asks, self.queued = {}, [], {}, {}
        for line in self.lines:
            getattr(self, f"_{line['what']}", lambda _: None)(line)

    def of(self, what):
        """The lines of that kind."""
        return [line for line in self.lines if line["what"] == what]

    def _held(self, line):
        self.leases[line["id"]] = {**line, "over": float("inf"), "end": None, "lost": None}

    def _until(self, line):
        self.leases[line["id"]]["until"] = line["until"]

    def _lost(self, line):
        lease = self.leases[line["id"]]
        lease["lost"] = line["at"]
        if line["over"]:
            lease["over"] = line["at"]

    def _end(self, line):
        self.leases[line["id"]]["end"] = line["at"]

    def _stall(self, line):
        self.stalls.append(line)

    def _ask(self, line):
        self.asks[line["id"]] = [line["at"], float("inf"), line["names"]]

    def _queued(self, line):
        self.queued[line["id"]] = line["at"]

    def _answer(self, line):
        self.asks[line["id"]][1] = line["at"]

    def holds(self):
        """Its leases, as far as anybody could rely on them."""
        for lease in self.leases.values():
            # Killed while it held: the last deadline that it wrote down is not later than the true one.
            ended = lease["end"] if lease["end"] is not None else float("inf")
            end = min(ended, lease["until"], lease["over"])
            if end > lease["at"]:
                for name, slot in product(lease["names"], lease.get("slots", (None,))):
                    kind, permits = "lock" if lease["kind"] == "several" else lease["kind"], lease.get("permits", 1)
                    yield HeldInterval(name, self.owner, lease["at"], end, lease["fence"], kind, slot, permits)

    def away(self, since, until):
        """Seconds within that time for which the process was ready to run and did not: stopped, or others ran."""
        return sum(
            min(stall["at"] - stall["since"] - stall["cpu"], until - since)
            for stall in self.stalls
            if stall["since"] < until and stall["at"] > since
        )

    def late_bodies(self):
        """Bodies that ran on after the deadline although the process could have ended them."""
        for lease in self.leases.values():
            if lease["end"] is None or lease["end"] <= lease["until"]:
                continue
            late = lease["end"] - lease["until"]
            if self.away(lease["until"] - 0.3, lease["end"] + 0.001) < late:
                yield Violation("body", f"{self.owner} ran for {late:.6f} s after the deadline: {lease}")

    def cancelled_after(self):
        """For each lease that was lost at once while the process ran: seconds until its body was told."""
        for lease in self.leases.values():
            if lease["end"] is not None and lease["lost"] is not None and lease["end"] > lease["lost"]:
                took = lease["end"] - lease["lost"]
                yield max(0.0, took - self.away(lease["lost"], lease["end"] + 0.001))


def early_latches(lives):
    """Latches that were seen open before so many events had been sent off."""
    lines = sorted((line for life in lives for line in life.lines if "latch" in line), key=lambda line: line["at"])
    events = defaultdict(set)
    for line in lines:
        if line["what"] == "down":
            events[line["latch"]].add(line["event"])
        elif line["what"] == "open" and len(events[line["latch"]]) < line["count"]:
            yield Violation("latch", f"{line['latch']} opened with {len(events[line['latch']])} of {line['count']}")


def closed_again(lives, log):
    """Latches that somebody saw open, and later somebody else did not, though every master kept what it had."""
    lines = [line for life in lives for line in life.lines if "latch" in line]
    begun, opened = {}, {}
    for line in sorted(lines, key=lambda line: line["at"]):
        begun.setdefault(line["latch"], line["at"])
        if line["what"] == "open":
            opened.setdefault(line["latch"], line["at"])
    for line in lines:
        name = line["latch"]
        shut = line["what"] == "left" and line["left"] != 0 and line["asked"] > opened.get(name, float("inf"))
        if shut and not forgot(log, begun[name], line["at"]):
            yield Violation(
                "latch", f"{name} was open at {opened[name]:.3f}, and at {line['at']:.3f} {line['left']} missing"
            )


def forgot(log, since, until):
    """Whether a master lost data then, or was just about to."""
    return any(entry.get("lost") and since - FORGETTING < entry["at"] < until for entry in log)


def fair_pairs(lives, log):
    """For every fair lease, who was in the queue on a majority before it asked: (lease, whose, who, which question)."""
    waiting = [(at, life, number) for life in lives for number, at in life.queued.items()]
    for life in lives:
        for lease in life.leases.values():
            if lease["kind"] == "fair" and not forgot(log, lease["at"] - KEPT_PLACE - 1, lease["at"]):
                asked, *_ = life.asks[lease["asked"]]
                for queued, other, number in waiting:
                    # As long as this its place is kept without another sign of life.
                    if lease["at"] - KEPT_PLACE < queued < asked and (other, number) != (life, lease["asked"]):
                        yield lease, life, other, number


def passed_over(lives, log):
    """Fair waiters that were in the queue on a majority when somebody asked who was served before them."""
    gone = [(entry["client"], entry["at"]) for entry in log if entry["what"] in {"client stopped", "client killed"}]
    for lease, life, other, number in fair_pairs(lives, log):
        _, answered, _ = other.asks[number]
        served = next((each["at"] for each in other.leases.values() if each.get("asked") == number), float("inf"))
        # One that has given up says so only when it has left; and one that is stopped does not say it at all.
        passed = served > lease["at"] if served < float("inf") else answered > lease["at"] + 0.5
        since, until = other.queued[number], lease["at"] + 0.5
        if (
            passed
            and other.away(since, until) < FASTEST
            and not any(owner == other.owner and since - 1 < at < until for owner, at in gone)
        ):
            ahead = f"{other.owner}, in the queue on a majority since {since:.3f}"
            yield Violation("order", f"{life.owner} was served at {lease['at']:.3f} before {ahead}")


def judged(lives, killed, log):
    """All that is wrong with these histories."""
    found = check_history(hold for life in lives for hold in life.holds())
    found += early_latches(lives)
    found += closed_again(lives, log)
    found += passed_over(lives, log)
    for life in lives:
        found += life.late_bodies()
        found += [Violation("surprise", f"{life.owner}: {line['text']}") for line in life.of("surprise")]
        if life.owner not in killed and not life.of("closed"):
            found.append(Violation("surprise", f"{life.owner} ended by itself"))
    return found


# The longest time that a name was free, wanted, and could have been had


def worst_gap(lives, log, nodes):
    """Seconds, and the name."""
    return max(((longest_gap(name, lives, log, nodes), name) for name in NAMES), default=(0.0, ""))


def longest_gap(name, lives, log, nodes):
    """Sweep over what keeps the name from being granted, and who waits for it."""
    spans = [(f"ill {node}", since, until) for since, until, node in troubles(log)]
    for life in lives:
        spans += [("held", hold.start, hold.end) for hold in life.holds() if hold.name == name]
        spans += waits(name, life, log)
    changes = [(since, what, 1) for what, since, _ in spans] + [(until, what, -1) for what, _, until in spans]
    now, longest, since = Counter(), 0.0, None
    for at, what, step in sorted(changes):
        now[what] += step
        healthy = sum(not now[f"ill {node}"] for node in range(nodes))
        if now["wanted"] and not now["held"] and healthy > nodes // 2:
            since = at if since is None else since
        elif since is not None:
            longest, since = max(longest, at - since), None
    return longest


def waits(name, life, log):
    """From when to when that process wanted the name, and when it may have had it and could not tell."""
    gone = [e["at"] for e in log if e.get("client") == life.owner and e["what"] in {"client stopped", "client killed"}]
    for since, answered, names in life.asks.values():
        until = min(answered, life.lines[-1]["at"])
        if name in names:
            gone_in_it = [at for at in gone if since <= at <= until]
            yield from (("held", at, at + LONGEST_TTL) for at in gone_in_it)
            if names == [name] and not gone_in_it:
                yield "wanted", since, until


def troubles(log):
    """From when to when which node was not healthy."""
    begun = {}
    for entry in log:
        if entry["what"] == "fault" and entry["lasts"]:
            begun.setdefault(entry["node"], entry["at"])
        elif entry["what"] == "fault":
            yield entry["at"], entry["at"] + (LONGEST_TTL if entry.get("lost") else 0) + SETTLED, entry["node"]
        elif entry["what"] in {"healed", "node healed"}:
            for node in [entry["node"]] if "node" in entry else list(begun):
                if node in begun:
                    yield begun.pop(node), entry["at"] + SETTLED, node


# Growth

GROWTH = {  # by which factor, and by how much beside, the last quarter's median may exceed the first's
    "rss": (1.10, 4e6),  # the allocator's own: arenas fill up for minutes after the start
    "tasks": (1.0, 4),  # one or two more turns under way at the moment of looking
    "fds": (1.0, 4),  # connections that are being replaced
    "timers": (1.0, 25),  # a task has a few each: waits, bodies, rounds
    "objects": (1.10, 150),  # leases and rounds under way; what leaks grows with every lease, by thousands
    "connected_clients": (1.0, 6),  # as fds, of all processes
    "keys": (1.05, 40),  # latches of the last seconds come and go
    "tracking_total_keys": (1.10, 60),  # keys that waiters have read
    "used_memory": (1.10, 1e6),  # buffers of the connections
}


def growth(series):
    """For each series of samples, first and last quarter's medians; and what grew beyond its threshold."""
    rows, found = [], []
    for owner, taken in series.items():
        if len(taken) < 8:
            continue
        quarter = max(len(taken) // 4, 2)
        for what, (factor, more) in GROWTH.items():
            values = [sample[what] for sample in taken if what in sample]
            if values:
                first, last = statistics.median(values[1 : quarter + 1]), statistics.median(values[-quarter:])
                rows.append((owner, what, first, last))
                if last > first * factor + more:
                    found.append(Violation("growth", f"{owner}: {what} grew from {first:g} to {last:g}"))
    return rows, found
