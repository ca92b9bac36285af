"""The services among the examples, run as a reader would run them."""

import asyncio
import os
import signal
import sqlite3
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from redlock_async import Redlock

pytestmark = pytest.mark.thorough

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def query(path, statement):
    """What is in a service's file."""
    with closing(sqlite3.connect(path)) as file:
        return file.execute(statement).fetchall()


async def renewed(redlock, name):
    """Return when somebody has held that name for long enough to renew it."""
    longest = 0.0
    while True:
        holder = await redlock.inspect(name)
        if holder is not None:
            if holder.remaining > longest + 0.1 and longest:
                return
            longest = holder.remaining


@pytest.mark.asyncio
async def test_the_inventory_does_not_oversell(embedded, run, free_port, tmp_path, monkeypatch):  # noqa: ARG001 - it skips where servers cannot be started
    """Two processes on masters of their own, two hundred customers, twenty lamps."""
    monkeypatch.delenv("REDLOCK_NODES", raising=False)
    port, file = free_port(), tmp_path / "inventory.sqlite"
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, EXAMPLES / "fastapi_inventory.py", "--port", port, "--workers", 2]
    run(command, url, INVENTORY=str(file))
    async with httpx.AsyncClient(base_url=url, limits=httpx.Limits(max_connections=None), timeout=60) as http:
        answers = await asyncio.gather(*(http.post("/articles/lamp/sales") for _ in range(200)))
    assert Counter(answer.status_code for answer in answers) == {201: 20, 410: 180}
    assert sorted(answer.json()["left"] for answer in answers if answer.status_code == 201) == list(range(20))
    assert query(file, "SELECT left FROM articles") == [(0,)]


@pytest.mark.asyncio
async def test_a_server_that_stood_still_sells_nothing_late(nodes, run, free_port, tmp_path):
    """Stopped in the middle of a sale for longer than its lease, it does not undo another's when it goes on."""
    file, names = tmp_path / "inventory.sqlite", {"REDLOCK_NODES": ",".join(nodes), "REDLOCK_TTL": "1"}
    names |= {"INVENTORY": str(file), "INVENTORY_CHARGING": "1.5"}
    command = [sys.executable, EXAMPLES / "fastapi_inventory.py"]
    ports = [free_port(), free_port()]
    urls = [f"http://127.0.0.1:{port}" for port in ports]
    stopped, _ = [run([*command, "--port", port], url, **names) for port, url in zip(ports, urls, strict=True)]
    async with httpx.AsyncClient(timeout=30) as http, Redlock(nodes) as redlock:
        late = asyncio.create_task(http.post(f"{urls[0]}/articles/lamp/sales"))
        await renewed(redlock, "articles:lamp")
        os.killpg(stopped.pid, signal.SIGSTOP)
        assert (await http.post(f"{urls[1]}/articles/lamp/sales")).json() == {"left": 19}
        os.killpg(stopped.pid, signal.SIGCONT)
        assert (await late).status_code == 503
        assert query(file, "SELECT left FROM articles") == [(19,)]
        assert (await http.post(f"{urls[0]}/articles/lamp/sales")).json() == {"left": 18}


@pytest.mark.asyncio
async def test_every_event_is_done_once(nodes, run, free_port, tmp_path):
    """Ten events, each delivered five times at once to each of two servers, and once more later."""
    file = tmp_path / "events.sqlite"
    ports = [free_port(), free_port()]
    urls = [f"http://127.0.0.1:{port}" for port in ports]
    for port, url in zip(ports, urls, strict=True):
        command = [sys.executable, EXAMPLES / "aiohttp_webhooks.py", "--port", port, "--events", file]
        run(command, url, REDLOCK_NODES=",".join(nodes))

    async def deliver(number, server):
        header, letter = {"webhook-id": f"{number}"}, f"letter {number}"
        answer = await http.post(f"{urls[server]}/webhooks", headers=header, content=letter)
        assert answer.status_code == 200, answer.text
        return answer.json()["done"]

    async with httpx.AsyncClient(limits=httpx.Limits(max_connections=None), timeout=60) as http:
        deliveries = (deliver(number % 10, number // 10 % 2) for number in range(100))
        assert Counter(await asyncio.gather(*deliveries)) == {"now": 10, "before": 90}
        assert Counter(await asyncio.gather(*(deliver(number, 0) for number in range(10)))) == {"before": 10}
        assert (await http.post(f"{urls[1]}/webhooks", content="no id")).status_code == 400
    assert sorted(query(file, "SELECT event, text FROM letters")) == [(f"{n}", f"letter {n}") for n in range(10)]


@pytest.mark.asyncio
async def test_the_webhooks_run_with_one_command(embedded, run, free_port, tmp_path, monkeypatch):  # noqa: ARG001 - it skips where servers cannot be started
    """On masters of their own."""
    monkeypatch.delenv("REDLOCK_NODES", raising=False)
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    run([sys.executable, EXAMPLES / "aiohttp_webhooks.py", "--port", port, "--events", tmp_path / "events"], url)
    async with httpx.AsyncClient(base_url=url) as http:
        answer = await http.post("/webhooks", headers={"webhook-id": "1"}, content="a letter")
    assert answer.json() == {"event": "1", "done": "now"}
