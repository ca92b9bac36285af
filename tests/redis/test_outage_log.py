"""The log reports each outage and quarantine once, even if the program configured no logging."""

import asyncio
import os
import subprocess
import sys
import textwrap
from contextlib import suppress

import pytest

from redlock_async import QuorumUnavailable, Redlock
from redlock_async.testing import LocalCluster

pytestmark = pytest.mark.asyncio


def warnings_in(caplog):
    """Those of the library."""
    return [
        each.getMessage() for each in caplog.records if each.name == "redlock_async" and each.levelname == "WARNING"
    ]


async def up_again(redlock):
    """Every node is there again."""
    async with asyncio.timeout(10):
        while redlock.statistics().nodes_up < 3:  # noqa: ASYNC110 - states of nodes and servers
            await asyncio.sleep(0.01)


async def test_three_hundred_requests_in_an_outage_are_one_warning_and_a_count(caplog):
    """Each node that goes or comes back is a line, the outage is one, and its end with the number of calls is one."""
    async with LocalCluster(3, server_args=["--appendonly", "yes"]) as cluster, Redlock(cluster.urls) as redlock:
        held = await redlock("held").acquire()
        caplog.clear()
        heard = []
        redlock.on_event(lambda event: heard.append(event.kind))
        for node in (0, 1):
            cluster.kill(node)

        async def request(number):
            with suppress(QuorumUnavailable):
                await redlock(f"order:{number}").acquire(wait=0)

        for _ in range(3):
            await asyncio.gather(*map(request, range(100)))
        with suppress(QuorumUnavailable):
            await held.release()
        assert heard.count("unavailable") == 300, "listeners and metrics get every event"
        for node in (0, 1):
            cluster.restart(node, keep_data=True)
        await up_again(redlock)
        async with redlock("x"):
            pass
    told = warnings_in(caplog)
    assert len(told) == 6, told
    assert [line.split()[1:3] for line in told if " node " in line] == [["node", "down"]] * 2 + [["node", "up"]] * 2
    [outage] = [line for line in told if "unavailable" in line]
    assert outage.startswith("redlock: unavailable 'order:")
    assert "there is a quorum again after" in told[-1]
    assert "in which 301 calls failed" in told[-1]
    assert sum(map(len, told)) < 2000


async def test_names_that_fail_among_others_do_not_fill_the_log(caplog):
    """Where calls that succeed come between those that fail, the log is not told of each change."""
    async with LocalCluster(3) as cluster, Redlock(cluster.urls) as redlock:
        await (await redlock("x").acquire()).release()
        caplog.clear()
        for _ in range(20):
            redlock._events.emit("unavailable", names=("y",))
            async with redlock("x"):
                pass
    assert len(warnings_in(caplog)) <= 2


async def test_the_log_says_why_a_node_is_quarantined_and_when_it_votes_again(caplog):
    """As events and as lines of the same level."""
    async with LocalCluster(3) as cluster, Redlock(cluster.urls, ttl=1) as redlock:
        async with redlock("x"):
            await asyncio.sleep(1.2)  # older than the longest ttl
        events, again = [], asyncio.Event()
        redlock.on_event(lambda event: events.append(event) if event.node else None)
        redlock.on_event(lambda event: again.set() if event.kind == "node_votes_again" else None)
        caplog.clear()
        cluster.restart(2)
        async with asyncio.timeout(10):
            await again.wait()
        assert redlock.statistics().nodes_up == 3
    quarantined, votes = [each for each in events if each.kind in {"node_quarantined", "node_votes_again"}]
    assert quarantined.node == votes.node
    assert "it restarted without its data: it votes again in" in str(quarantined.error)
    told = [line for line in warnings_in(caplog) if "quarantined" in line or "again" in line]
    assert len(told) == 2, told
    assert told[0].startswith(f"redlock: node quarantined {quarantined.node} ")
    assert "it restarted without its data" in told[0]
    assert told[1] == f"redlock: node votes again {quarantined.node}"


async def test_a_service_without_logging_knows_whose_lines_they_are():
    """Python's last resort prints the bare message of warnings: each names the library."""
    source = """
        import asyncio, os, sys
        from redlock_async import Redlock
        from redlock_async.testing import LocalCluster

        async def main():
            async with LocalCluster(3) as cluster, Redlock(cluster.urls) as redlock:
                async with redlock("x"):
                    cluster.kill(0)
                    while redlock.statistics().nodes_up == 3:
                        await asyncio.sleep(0.01)

        asyncio.run(main())
    """
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", textwrap.dedent(source)],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
        env=os.environ,
    )
    lines = done.stderr.splitlines()
    assert any("node down" in line for line in lines)
    assert all(line.startswith("redlock: ") for line in lines), lines
