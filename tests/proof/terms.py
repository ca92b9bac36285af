"""Three processes compete for an office while they are killed, stopped and deposed; then a judge reads their notes.

python tests/proof/terms.py --terms 200

Delays have limits. The time for which the processes concerned waited for a CPU meanwhile is subtracted, as the kernel
has counted it: so the run judges the library also on a busy machine.
"""

import argparse
import json
import random
import signal
import subprocess
import sys
import threading
import time
from itertools import pairwise
from pathlib import Path

from redlock_async.blocking import Redlock
from redlock_async.testing import LocalCluster

CANDIDATE = Path(__file__).with_name("terms_candidate.py")
TTL = 0.5
CANDIDATES = ("anna", "bert", "carl")

NOTICED = 0.025
"""Seconds after a force-release in which the deposed leader is cancelled. Nothing can prevent that it leads for that
long beside its successor: an operator has decided so."""

SEEN = 0.05
"""Seconds from the beginning of a term until every observer has reported it."""


class CpuDelays:
    """For how long each process waited for a CPU, as the kernel counts it: the delay that is the machine's own.

    Processes that are stopped, or wait for anything else, do not count as waiting for a CPU.
    """

    def __init__(self):
        self._samples = {}
        """By process id, when it was read, and the seconds until then."""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def watch(self, pid):
        """Read the kernel's count of that process from now on."""
        self._samples = {**self._samples, pid: [(time.monotonic(), self._read(pid) or 0.0)]}

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()

    def _run(self):
        while not self._over.wait(0.005):
            for pid, samples in self._samples.items():
                waited = self._read(pid)
                if waited is not None:
                    samples.append((time.monotonic(), waited))

    @staticmethod
    def _read(pid):
        try:
            return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
        except (OSError, IndexError):  # it has ended
            return None

    def between(self, begin, end, *pids):
        """Return for how long the process that waited longest did, from the last reading before to the first after."""
        longest = 0.0
        for pid in pids:
            samples = self._samples.get(pid, ())
            before = [waited for at, waited in samples if at <= begin][-1:] or [waited for _, waited in samples[:1]]
            after = [waited for at, waited in samples if at >= end][:1] or [waited for _, waited in samples[-1:]]
            longest = max(longest, *(last - first for first, last in zip(before, after, strict=True)), 0.0)
        return longest


class Candidate:
    """A process, and all its notes."""

    def __init__(self, name, urls, cpu):
        self.name = name
        self.notes = []
        command = [sys.executable, str(CANDIDATE), name, str(TTL), *urls]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        cpu.watch(self.process.pid)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self.process.stdout:
            if line.endswith(b"\n"):  # otherwise it was killed while it wrote
                self.notes.append({"who": self.name, "pid": self.process.pid, **json.loads(line)})

    def kill(self):
        """As kill -9 does."""
        self.process.kill()
        self.process.wait()
        self._reader.join()
        self.process.stdout.close()


def run(terms, seed):
    """Run until so many terms have begun.

    Returns all notes by process, what was done when and to whom, and a function for the machine's own delay: from when
    to when, for which process beside the nodes.
    """
    rng, ended, done = random.Random(seed), [], {"kill": [], "stop": [], "force-release": []}
    with LocalCluster(5) as cluster, Redlock(cluster.urls) as operator, CpuDelays() as cpu:
        servers = cluster.pids
        for pid in servers:
            cpu.watch(pid)
        running = {name: Candidate(name, cluster.urls, cpu) for name in CANDIDATES}
        while sum(note["what"] == "begin" for each in (*ended, *running.values()) for note in each.notes) < terms:
            time.sleep(rng.uniform(0.3, 1.0))
            what, name = rng.choice(list(done)), rng.choice(CANDIDATES)
            at = time.monotonic()
            if what == "kill":
                running[name].kill()
                ended.append(running[name])
                running[name] = Candidate(name, cluster.urls, cpu)
            elif what == "stop":
                running[name].process.send_signal(signal.SIGSTOP)
                time.sleep(rng.uniform(0.1, 2 * TTL))
                running[name].process.send_signal(signal.SIGCONT)
            else:
                operator.force_release("office")
            done[what].append((at, time.monotonic(), name))
        for each in running.values():
            each.kill()

    def waited(begin, end, pid):
        return cpu.between(begin, end, pid) + cpu.between(begin, end, *servers)

    return [each.notes for each in (*ended, *running.values())], done, waited


def violations(histories, forced=(), waited=lambda *_: 0.0):
    """Two leaders at a time, fences that do not rise, observers that go back, and leaders that stay when deposed."""
    found = []
    leads = sorted(
        (note for notes in histories for note in notes if note["what"] == "lead"), key=lambda note: note["at"]
    )
    begun = {note["fence"]: note["at"] for notes in histories for note in notes if note["what"] == "begin"}

    def is_late(note, released):
        after = note["at"] - released
        return after > NOTICED and after > NOTICED + waited(released, note["at"], note["pid"])

    for before, after in pairwise(leads):
        if after["fence"] < before["fence"] and after["until"] > after["at"]:
            deposed = any(
                begin <= begun.get(before["fence"], 0.0) and begin <= after["at"] and not is_late(after, end)
                for begin, end, _ in forced
            )
            if not deposed:
                found.append(f"{after['who']} led with {after['fence']} after {before['who']} with {before['fence']}")
    for note in leads:
        found += [
            f"{note['who']} still led with {note['fence']} {note['at'] - end:.3f} s after it was deposed"
            for begin, end, _ in forced
            if begun.get(note["fence"], begin) < begin and is_late(note, end)
        ]
    for notes in histories:
        seen = [note["fence"] for note in notes if note["what"] == "saw" and note["fence"] is not None]
        found += [f"{later} was seen after {earlier}" for earlier, later in pairwise(seen) if later < earlier]
    return found


def delays(histories, stopped, waited=lambda *_: 0.0):
    """For each report of a term by a process that was there, and not stopped: seconds from its beginning, and how many
    of them the machine took itself, because the processes waited for a CPU.
    """
    begun = {note["fence"]: note for notes in histories for note in notes if note["what"] == "begin"}
    found = []
    for notes in histories:
        for note in [note for note in notes if note["what"] == "saw"][1:]:  # the first one is of a term that had begun
            term = begun.get(note["fence"])
            if term is None or term["who"] == note["who"]:
                continue
            asleep = any(
                who in {note["who"], term["who"]} and begin <= note["at"] and term["at"] <= end + 0.05
                for begin, end, who in stopped
            )
            if not asleep:
                found.append((note["at"] - term["at"], waited(term["at"], note["at"], note["pid"])))
    return sorted(found)


def main():
    """Run, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--terms", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    options = parser.parse_args()
    histories, done, waited = run(options.terms, options.seed)
    terms = sum(note["what"] == "begin" for notes in histories for note in notes)
    late = delays(histories, done["stop"], waited)
    found = violations(histories, done["force-release"], waited)
    found += [
        f"a term was reported after {seconds:.3f} s, of which processes waited {machine:.3f} s for a CPU"
        for seconds, machine in late
        if seconds > SEEN + machine
    ]
    print(f"seed {options.seed}: {terms} terms; {', '.join(f'{len(times)} x {what}' for what, times in done.items())}")
    if late:
        p50, p95, p99 = (late[min(int(len(late) * share), len(late) - 1)][0] * 1000 for share in (0.5, 0.95, 0.99))
        within = sum(seconds <= SEEN for seconds, _ in late)
        print(
            f"{len(late)} reports: p50 {p50:.1f} ms, p95 {p95:.1f} ms, p99 {p99:.1f} ms, "
            f"longest {late[-1][0] * 1000:.1f} ms, of which the machine took {late[-1][1] * 1000:.1f} ms; "
            f"{within} within 50 ms"
        )
    print("\n".join(found) or "never two leaders, fences rise, no observer went back, none was late")
    return 1 if found or terms < options.terms else 0


if __name__ == "__main__":
    sys.exit(main())
