"""Readiness: `health()` is right and prompt while nodes fail and return."""

import ast
import asyncio
import dataclasses
import json
import logging
import re
import time
from pathlib import Path

import pytest
import redis
from httpx import ASGITransport, AsyncClient

from redlock_async import ConfigurationError, QuorumUnavailable, Redlock
from redlock_async.client import DefaultRedlock

pytestmark = pytest.mark.asyncio

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "observability.md").read_text("utf-8")
BUSY = 1.0
"""Seconds that a loaded machine may add to anything."""


async def timed(redlock):
    """What it says, and how long that took."""
    started = time.monotonic()
    health = await redlock.health()
    return health, time.monotonic() - started


async def test_a_client_that_was_not_used_is_ready_at_once(nodes):
    """The probe connects it; what it says is JSON."""
    redlock = Redlock(nodes)
    health, took = await timed(redlock)
    # On a busy machine one may be connected so late that it is quarantined at first.
    assert (health.ready, health.quorum, health.nodes, health.nodes_up) == (True, 3, 5, 5 - len(health.reasons))
    assert took < 2 * 0.25 + BUSY
    assert json.loads(json.dumps(dataclasses.asdict(health)))["ready"] is True
    await redlock.aclose()


async def test_hung_nodes_are_noticed_by_an_idle_client(cluster):
    """Within a node timeout; ready while a quorum answers, and again when it does."""
    async with Redlock(cluster.urls, ttl=1, node_timeout=0.2) as redlock:
        await connected(redlock, 5)
        labels = list(redlock.statistics().node_states)
        cluster.pause(0)
        cluster.pause(1)
        health, took = await timed(redlock)
        assert (health.ready, health.nodes_up) == (True, 3)
        assert health.reasons.keys() == {*labels[:2]}
        assert took < 0.2 + BUSY
        cluster.pause(2)
        health, took = await timed(redlock)
        assert (health.ready, health.nodes_up) == (False, 2)
        assert took < 0.2 + BUSY
        with pytest.raises(QuorumUnavailable):
            await redlock("x").acquire(wait=0)
        for node in range(3):
            cluster.resume(node)
        await connected(redlock, 5)
        assert (await redlock.health()).ready


async def connected(redlock, number):
    """So many masters are up."""
    async with asyncio.timeout(10):
        while redlock.statistics().nodes_up < number:  # noqa: ASYNC110 - nobody announces it
            await asyncio.sleep(0.005)


async def test_all_down_from_the_start_is_no_error(cluster):
    """Not ready, with a reason for each."""
    for node in range(5):
        cluster.kill(node)
    redlock = Redlock(cluster.urls, ttl=1, node_timeout=0.2)
    health, took = await timed(redlock)
    assert (health.ready, health.nodes_up) == (False, 0)
    assert len(health.reasons) == 5
    assert all(health.reasons.values())
    assert took < 2 * 0.2 + BUSY
    await redlock.aclose()


async def test_frozen_from_the_start_it_answers_in_time(cluster):
    """Connecting to a master that hangs takes longer than a probe may."""
    for node in range(5):
        cluster.pause(node)
    redlock = Redlock(cluster.urls, ttl=1, node_timeout=0.2)
    health, took = await timed(redlock)
    assert (health.ready, health.nodes_up) == (False, 0)
    assert took < 2 * 0.2 + BUSY
    await redlock.aclose()


async def test_a_node_that_lost_its_data_does_not_count(cluster):
    """It answers, but may not vote; the reason says so, and for how long."""
    async with Redlock(cluster.urls, ttl=3) as redlock:
        async with redlock("x"):
            await connected(redlock, 5)
        cluster.restart(4)
        async with asyncio.timeout(10):
            while True:
                health = await redlock.health()
                assert (health.ready, health.nodes_up) == (True, 4)
                [why] = health.reasons.values()
                if re.search(r"it restarted without its data: it votes again in [123]\.\d s", why):
                    break
                await asyncio.sleep(0.005)


async def test_a_cluster_that_cannot_be_used_is_never_ready(cluster):
    """Too many replicas make every acquire an error, though all five answer."""
    for url in cluster.urls[1:4]:
        with redis.Redis.from_url(url) as client:
            client.execute_command("REPLICAOF", "127.0.0.1", cluster.ports[0])
    async with asyncio.timeout(10):
        redlock = Redlock(cluster.urls)
        health = await redlock.health()
    assert not health.ready
    assert any("replica" in why or "slave" in why for why in health.reasons.values())
    with pytest.raises(ConfigurationError):
        await redlock("x").acquire()
    await redlock.aclose()


async def test_many_probes_cost_one_small_command_each(nodes):
    """One TIME a master and probe, on the connections there are: no new ones."""
    async with Redlock(nodes) as redlock:
        await redlock.health()
        before = [calls(url) for url in nodes]
        for _ in range(20):
            assert (await redlock.health()).ready
        after = [calls(url) for url in nodes]
        for (times, logins), (later, more) in zip(before, after, strict=True):
            assert later - times == 20
            assert more - logins == 1  # the plain client of this very test


def calls(url):
    """How often TIME was called, and how many connections were made, as that server counts."""
    with redis.Redis.from_url(url) as client:
        times = client.info("commandstats").get("cmdstat_time", {"calls": 0})["calls"]
        return times, client.info("stats")["total_connections_received"]


async def test_the_client_from_the_environment_has_it(nodes, monkeypatch):
    """As every other method."""
    monkeypatch.setenv("REDLOCK_NODES", ",".join(nodes))
    redlock = DefaultRedlock()
    assert (await redlock.health()).ready
    await redlock.aclose()


async def test_a_probe_that_is_cancelled_leaves_nothing_behind(cluster, caplog):
    """The connections go on, and nobody complains of an exception that was not fetched."""
    caplog.set_level(logging.ERROR)
    async with Redlock(cluster.urls, ttl=1, node_timeout=1) as redlock:
        await connected(redlock, 5)
        cluster.pause(0)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await redlock.health()
        cluster.resume(0)
        await connected(redlock, 5)
        assert (await redlock.health()).nodes_up == 5
    assert not caplog.records


async def test_the_probe_of_the_page_is_served(cluster):
    """The FastAPI route in docs/observability.md answers 200 while a quorum is up, and 503 with reasons when not."""
    [source] = [each for each in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if '"/ready"' in each]
    async with Redlock(cluster.urls, ttl=1) as redlock:
        await connected(redlock, 5)
        names = {"redlock": redlock, "__name__": "page"}
        await eval(compile(source, "page", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)  # noqa: S307 - our own page
        async with AsyncClient(transport=ASGITransport(names["app"]), base_url="http://page") as client:
            assert (await client.get("/ready")).status_code == 200
            for node in range(3):
                cluster.kill(node)
            answer = await client.get("/ready")
            assert answer.status_code == 503
            assert len(answer.json()["reasons"]) == 3
