"""What the tests on real servers share: looking at servers behind the library's back, and waiting for a condition."""

import asyncio
import sys
import time
from pathlib import Path

import pytest
import redis

# With import-mode importlib no test's folder is on the path.
sys.path.insert(0, str(Path(__file__).parent))


class Eyes:
    """Plain connections to every node, for what the library must not be asked about itself."""

    def __init__(self, urls):
        self.clients = [redis.Redis.from_url(url, socket_timeout=5) for url in urls]

    def holding(self, name):
        """The value of the key on each node."""
        return [client.get(name) for client in self.clients]

    def keys(self):
        """Every key on every node that is not the library's own bookkeeping."""
        return [
            (index, key)
            for index, client in enumerate(self.clients)
            for key in client.keys("*")
            if b"redlock-async:" not in key
        ]

    def close(self):
        """End the connections."""
        for client in self.clients:
            client.close()


@pytest.fixture
def eyes(nodes):
    """Plain connections to the five shared masters."""
    seeing = Eyes(nodes)
    yield seeing
    seeing.close()


async def eventually(condition, within=2.0):
    """Wait until the condition holds, and return how long that took; fail when the time is up."""
    started = time.monotonic()
    while not condition():
        assert time.monotonic() - started < within, f"not within {within} s"
        await asyncio.sleep(0.001)
    return time.monotonic() - started


@pytest.fixture(name="eventually")
def eventually_fixture():
    """The function `eventually`."""
    return eventually
