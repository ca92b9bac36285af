"""Changing the set of nodes as in docs/node-sets.md: clients with different sets run at the same time."""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from itertools import combinations, pairwise
from pathlib import Path

import pytest
import pytest_asyncio

from redlock_async import ConfigurationError, Redlock
from redlock_async._rules.charter import Charter, NodeSet
from redlock_async._rules.quorum import majority
from redlock_async.testing import HeldInterval, LocalCluster, check_history
from redlock_async.testing._raw import clear_nodes, send_command

TTL = 60.0
"""Longer than any of these tests: what keeps two apart is the masters, not the end of a lease."""

PATIENCE = 20.0
"""Seconds a busy machine may take for what is there already."""

SAFE = {
    "three to four": ("ABC", "ABCD"),
    "four to five": ("ABCD", "ABCDE"),
    "four to three": ("ABCD", "BCD"),
    "five to four": ("ABCDE", "BCDE"),
}
UNSAFE = {
    "three to five": ("ABC", "ABCDE"),
    "one of three replaced": ("ABC", "ABD"),
    "two steps at once": ("ABC", "BCD"),
}


def majorities(masters):
    """Every smallest majority of them."""
    return [frozenset(each) for each in combinations(masters, majority(len(masters)))]


def disjoint(before, after):
    """Pairs of majorities, one of each set, that have no master in common."""
    return [(one, other) for one in majorities(before) for other in majorities(after) if not one & other]


@pytest.mark.parametrize("number", range(1, 10))
def test_majorities_of_sets_that_differ_by_one_node_overlap(number):
    """Q(N) + Q(N + 1) = N + 2, and there are N + 1 masters."""
    masters = "ABCDEFGHIJ"[: number + 1]
    assert majority(number) + majority(number + 1) == number + 2
    for left_out in masters:
        assert disjoint(masters.replace(left_out, ""), masters) == []


@pytest.mark.parametrize("number", range(2, 10))
def test_replacing_a_node_in_one_step_can_separate_majorities(number):
    """N + 1 masters between the old and the new set: two majorities fit in side by side if N is odd."""
    masters = "ABCDEFGHIJ"[:number]
    assert bool(disjoint(masters, masters[:-1] + "Z")) == (number % 2 == 1)


class Masters:
    """Five real masters behind proxies, and clients of any of them."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.url = dict(zip("ABCDE", cluster.urls, strict=True))

    def client(self, names):
        """One of the generation that knows these masters."""
        return Redlock([self.url[name] for name in names], ttl=TTL, wait=PATIENCE, node_timeout=0.5)

    async def agree_on(self, *sets):
        """Have all of them record these sets."""
        labels = {name: url.removeprefix("redis://") for name, url in self.url.items()}
        recorded = tuple(NodeSet(majority(len(each)), tuple(labels[name] for name in each)) for each in sets)
        for name, url in self.url.items():
            text = replace(Charter(1, recorded), place=labels[name]).encode()
            port = int(url.rpartition(":")[2])
            await asyncio.to_thread(send_command, port, "HSET", "redlock-async:node", "charter", text)

    def only(self, names):
        """Whoever connects from now on reaches these, and no other."""
        for number, name in enumerate("ABCDE"):
            self.cluster.heal(number)
            if name not in names:
                self.cluster.cut(number)


@pytest_asyncio.fixture
async def masters(embedded):  # noqa: ARG001 - they are cut
    """As if they had voted for an hour: none of them is quarantined, so that only the majorities count."""
    async with LocalCluster(5, proxied=True) as cluster:
        ports = [int(url.rpartition(":")[2]) for url in cluster.urls]
        await asyncio.to_thread(clear_nodes, ports, "", round((time.time() - 3600) * 1e6))
        yield Masters(cluster)


@pytest.mark.share(2)
@pytest.mark.asyncio
@pytest.mark.parametrize("step", SAFE)
async def test_two_generations_that_differ_by_one_node_exclude_each_other(step, masters, seed):
    """A majority of one set holds it, and one of the other is asked: here some of those that share one master only."""
    before, after = SAFE[step]
    await masters.agree_on(before, after)
    pairs = [(one, other) for one in majorities(before) for other in majorities(after) if len(one & other) == 1]
    for number, (one, other) in enumerate(random.Random(seed).sample(pairs, 3)):
        masters.only(one)
        async with masters.client(before) as old, old(f"name {number}", renew=False) as lease:
            masters.only(other)
            async with masters.client(after) as new:
                async with new(f"free {number}"):  # it has its majority
                    pass
                assert await new(f"name {number}").try_acquire() is None, (one, other)
            assert lease.valid
            masters.only("ABCDE")


@pytest.mark.asyncio
@pytest.mark.parametrize("step", UNSAFE)
async def test_two_generations_further_apart_are_kept_apart(step, masters):
    """Their majorities have no node in common, and both would hold it."""
    before, after = UNSAFE[step]
    await masters.agree_on(before)
    one, other = disjoint(before, after)[0]
    masters.only(one)
    async with masters.client(before) as old:
        first = await old("name").acquire()
        masters.only(other)
        async with masters.client(after) as new:
            with pytest.raises(ConfigurationError, match="their quorums might not overlap"):
                await new("name").acquire(wait=1)
            assert first.valid


PROGRAM = [sys.executable, "-m", "redlock_async", "nodes"]
WORKER = Path(__file__).with_name("node_set_worker.py")
WORKERS_TTL = 1.0


class Operator:
    """Changes the nodes of five, and starts services that use some of them."""

    def __init__(self, cluster, folder):
        self.cluster = cluster
        self.url = dict(zip("ABCDE", cluster.urls, strict=True))
        self._folder = folder
        self._running = {}
        self.started = 0

    def urls(self, names):
        return [self.url[name] for name in names]

    def nodes(self, names, *arguments, status=0):
        """Run `redlock-async nodes` with these nodes; letters stand for URLs."""
        words = [self.url.get(word, word) for word in arguments]
        kept = {name: value for name, value in os.environ.items() if not name.startswith("REDLOCK_")}
        environ = {**kept, "REDLOCK_NODES": ",".join(self.urls(names)), "PYTHONUTF8": "1"}
        done = subprocess.run(
            [*PROGRAM, *words], capture_output=True, text=True, check=False, timeout=PATIENCE, env=environ
        )
        assert done.returncode == status, done
        return done.stdout + done.stderr

    def start(self, number, names):
        """Start a service, or restart it with other nodes."""
        self.stop(number)
        self.started += 1
        label = f"service-{number}-with-{names}"
        path = self._folder / f"{self.started:02}-{label}"
        with path.open("w") as file:
            process = subprocess.Popen(
                [sys.executable, WORKER, label, str(WORKERS_TTL), *self.urls(names)], stdout=file
            )
        self._running[number] = process, path
        return path

    def stop(self, number):
        """End a service, if it runs."""
        if number in self._running:
            process, _ = self._running.pop(number)
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE) == 0

    def close(self):
        """End all services."""
        for process, _ in self._running.values():
            process.kill()
            process.wait()

    def lines(self):
        """What the services have printed: the label, the kind of line, and the rest."""
        for path in sorted(self._folder.glob("*-service-*")):
            for line in path.read_text().splitlines():
                kind, _, rest = line.partition(" ")
                yield path.name[3:], kind, rest


@pytest.fixture
def operator(embedded, tmp_path):  # noqa: ARG001 - it starts servers
    """Five servers, of which nobody has used any."""
    with LocalCluster(5, new_cluster=True) as cluster:
        working = Operator(cluster, tmp_path)
        yield working
        working.close()


async def use(urls, **options):
    """Take a lock and free it."""
    async with Redlock(urls, ttl=WORKERS_TTL, **options) as redlock, redlock("name"):
        pass


@pytest.mark.share(3)
@pytest.mark.asyncio
async def test_three_nodes_become_five_and_five_become_three(operator, eventually):
    """Four processes contend for a lock all the while, and are restarted one after the other."""
    steps = [("ABC", "add", "D"), ("ABCD", "add", "E"), ("ABCDE", "remove", "A"), ("BCDE", "remove", "B")]
    paths = [operator.start(number, "ABC") for number in range(4)]
    await eventually(lambda: all("hold" in path.read_text() for path in paths), within=PATIENCE)
    for before, action, node in steps:
        after = before + node if action == "add" else before.replace(node, "")

        async def retried(*arguments):
            """Until leases of clients with an earlier set have expired."""
            until = time.monotonic() + PATIENCE
            while True:
                try:
                    return await asyncio.to_thread(operator.nodes, *arguments)
                except AssertionError as error:
                    if "try again then" not in str(error) or time.monotonic() > until:
                        raise
                    await asyncio.sleep(0.2)

        await retried(before, action, node)
        for number in range(3):
            path = operator.start(number, after)
            await eventually(lambda path=path: "hold" in path.read_text(), within=PATIENCE)
        # The last one still uses the old set, and is named.
        late = f"service-3-with-{before}"
        extra = [node] if action == "remove" else []
        said = await asyncio.to_thread(operator.nodes, after, "finish", *extra, status=75)
        assert f"clients still use the old nodes: {late}." in said
        shown = json.loads(await asyncio.to_thread(operator.nodes, after, "show", "--json", *extra))
        assert shown["old_set_clients"] == [late]
        assert len(shown["clients"]) == 4
        path = operator.start(3, after)
        await eventually(lambda path=path: "hold" in path.read_text(), within=PATIENCE)
        await asyncio.to_thread(operator.nodes, after, "finish", *extra)
        with pytest.raises(ConfigurationError, match="might not overlap"):
            await use(operator.urls(before))
    for number in range(4):
        operator.stop(number)
    lines = list(operator.lines())
    assert not [line for line in lines if line[1] == "refused"]
    holds = []
    for label, kind, rest in lines:
        if kind == "hold":
            start, end, fence = rest.split()
            holds.append(HeldInterval("the work", label, float(start), float(end), int(fence)))
    assert check_history(holds) == []
    assert {hold.holder.rpartition("-")[2] for hold in holds} == {"ABC", "ABCD", "ABCDE", "BCDE", "CDE"}
    ordered = sorted(hold.start for hold in holds)
    longest = max(later - earlier for earlier, later in pairwise(ordered))
    failed = [line for line in lines if line[1] == "failed"]
    print(f"{len(holds)} holds, the longest pause {longest:.3f} s, {len(failed)} failed attempts")
    assert longest < WORKERS_TTL


@pytest.mark.asyncio
async def test_a_change_that_is_not_safe_is_refused(operator):
    """Two at once, one before the leases of another have expired, and nodes that are not the services' own."""
    nodes = operator.nodes
    assert "no client has taken a lock on these nodes yet" in nodes("ABC", "show")
    assert "no client has taken a lock on these nodes yet" in nodes("ABC", "add", "D", status=2)
    await use(operator.urls("ABC"))
    assert "clients use quorum=2 of 3 nodes" in nodes("ABC", "show")
    assert "no change is under way" in nodes("ABC", "finish", status=2)
    assert "is none of the nodes that clients use" in nodes("ABCD", "remove", "D", status=2)
    assert "give the nodes as they do" in nodes("AB", "add", "D", status=2)
    nodes("ABC", "add", "D")
    assert "another change is under way" in nodes("ABCD", "add", "E", status=75)
    nodes("ABC", "add", "D")  # repeated, it does no harm
    await use(operator.urls("ABC"))
    await use(operator.urls("ABCD"))
    assert "give also the URLs of" in nodes("ABC", "finish", status=2)
    nodes("ABCD", "finish")
    assert "try again then" in nodes("ABCD", "add", "E", status=75)


@pytest.mark.asyncio
async def test_a_node_of_other_clients_is_not_added(operator):
    """Even if they have recorded more changes than these."""
    await use(operator.urls("DE"))
    await use(operator.urls("ABC"))
    assert "is in use with quorum=2 of 2 nodes" in operator.nodes("ABC", "add", "D", status=2)
    operator.nodes("DE", "reset")
    operator.nodes("DE", "reset")
    assert "is in use with quorum=2 of 2 nodes" in operator.nodes("ABC", "add", "D", status=2)
    await use(operator.urls("DE"))


@pytest.mark.asyncio
async def test_the_removal_of_a_dead_node_is_finished_without_force(operator):
    """Its connections cannot be listed, but every client of the old set is connected to other nodes as well."""
    await use(operator.urls("ABCD"))
    operator.cluster.kill(0)
    async with Redlock(operator.urls("ABCD"), ttl=WORKERS_TTL, owner="late") as redlock, redlock("name"):
        await asyncio.to_thread(operator.nodes, "ABCD", "remove", "A")
        said = await asyncio.to_thread(operator.nodes, "BCD", "finish", "A", status=75)
        assert "clients still use the old nodes: late." in said
    await use(operator.urls("BCD"))
    assert "clients use quorum=2 of 3 nodes" in await asyncio.to_thread(operator.nodes, "BCD", "finish", "A")
    with pytest.raises(ConfigurationError, match="might not overlap"):
        await use(operator.urls("ABCD"))


@pytest.mark.asyncio
async def test_a_change_that_was_interrupted_is_continued_and_not_replaced(operator):
    """One node has recorded a change that no quorum has: clients with that set may already take locks."""
    await use(operator.urls("ABC"))
    label = {name: url.removeprefix("redis://") for name, url in operator.url.items()}
    sets = [NodeSet(majority(len(each)), tuple(label[name] for name in each)) for each in ("ABC", "ABCD")]
    text = replace(Charter(5, tuple(sets)), place=label["A"]).encode()
    port = int(operator.url["A"].rpartition(":")[2])
    await asyncio.to_thread(send_command, port, "HSET", "redlock-async:node", "charter", text)
    assert "another change is under way, to quorum=3 of 4 nodes" in operator.nodes("ABC", "add", "E", status=75)
    operator.nodes("ABC", "add", "D")
    await use(operator.urls("ABCD"))


@pytest.mark.asyncio
async def test_a_reset_while_all_services_are_stopped(operator):
    """Any other set and quorum can be recorded, once no client is connected."""
    await use(operator.urls("ABC"))
    async with Redlock(operator.urls("ABC"), ttl=WORKERS_TTL, owner="forgotten") as redlock, redlock("name"):
        said = await asyncio.to_thread(operator.nodes, "CDE", "reset", "A", "B", status=75)
        assert "clients are connected: forgotten. Stop all of them" in said
    await asyncio.to_thread(operator.nodes, "CDE", "reset", "A", "B")
    with pytest.raises(ConfigurationError, match="in use with quorum=2 of 3 nodes"):
        await use(operator.urls("ABC"))
    await use(operator.urls("CDE"))
