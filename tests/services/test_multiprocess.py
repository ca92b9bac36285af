"""Several workers of one service: a scrape of any of them returns the sum over all."""

import asyncio
import os
import socket
import sys
import urllib.error
import urllib.request
from collections import Counter
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

HERE = Path(__file__).parent


def free_port():
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def get(url):
    """The body of an answer, or None while nobody answers."""
    try:
        with urllib.request.urlopen(url, timeout=10) as response:  # noqa: S310 - our own
            return response.read().decode()
    except urllib.error.URLError:
        return None


@pytest.mark.asyncio
async def test_two_workers_of_uvicorn_are_scraped_as_one(nodes, tmp_path):
    """Counters and histograms add up; gauges, which are read in the process that is asked, are left out."""
    port = free_port()
    environment = os.environ | {
        "REDLOCK_NODES": ",".join(nodes),
        "PROMETHEUS_MULTIPROC_DIR": str(tmp_path),
        "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parents[1])]),
    }
    command = ("-m", "uvicorn", "metrics_app:app", "--workers", "2", "--port", str(port), "--log-level", "warning")
    service = await asyncio.create_subprocess_exec(sys.executable, *command, env=environment)
    try:
        workers, url = Counter(), f"http://127.0.0.1:{port}"
        async with asyncio.timeout(60):
            while len(workers) < 2:
                if body := await asyncio.to_thread(get, f"{url}/pair"):
                    workers[body] += 1
                else:
                    await asyncio.sleep(0.05)
            text = await asyncio.to_thread(get, f"{url}/metrics")
    finally:
        service.terminate()
        await service.wait()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    acquired = [s.value for s in samples if s.name == "redlock_acquire_duration_seconds_count"]
    assert acquired == [workers.total()]
    nodes_heard = {s.labels["node"] for s in samples if s.name == "redlock_node_replies_total"}
    assert len(nodes_heard) == 5
    assert not any(s.name == "redlock_nodes_up" for s in samples)
