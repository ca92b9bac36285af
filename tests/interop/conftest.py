"""Workers of each client, each in a process of its own, which take orders from the tests."""

import json
import os
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest

HERE = Path(__file__).parent
CLIENTS = {
    "aioredlock": ("python", "aioredlock_worker.py"),
    "redlock-py": ("python", "redlock_py_worker.py"),
    "node-redlock": ("node", "node_redlock_worker.cjs"),
}
OTHERS = CLIENTS | {"pottery": ("python", "pottery_worker.py")}
"""With those whose key is not exactly the name."""

PATIENCE = 100.0
"""Seconds an order may take, unless it is a long one."""

MISSING = 3
"""Exit status of environment.py, as there."""


class Process:
    """One worker. Its program stays up from test to test; its connections do not."""

    def __init__(self, command, environment, errors):
        self._errors = errors.open("w+", encoding="utf-8")
        self._running = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=os.environ | environment,
        )
        self._waiting = 0

    @property
    def idle(self):
        """Whether it can take an order of another test."""
        return self._running.poll() is None and not self._waiting

    def tell(self, what, **order):
        """Give an order; `answer` is what comes of it."""
        self._waiting += 1
        self._running.stdin.write(json.dumps({"do": what, **order}) + "\n")
        self._running.stdin.flush()

    def answer(self, patience=PATIENCE):
        """What came of the oldest order; too late, the worker is killed."""
        watchdog = threading.Timer(patience, self._running.kill)
        watchdog.start()
        line = self._running.stdout.readline()
        watchdog.cancel()
        watchdog.join()
        if not line:
            self._running.wait()
            self._errors.seek(0)
            pytest.fail(f"{Path(self._running.args[-1]).name} ended, its last words: {self._errors.read()[-2000:]}")
        self._waiting -= 1
        return json.loads(line)

    def ask(self, what, **order):
        """Give an order and wait for what comes of it."""
        self.tell(what, **order)
        return self.answer()

    def kill(self):
        """SIGKILL: what it holds stays on the nodes."""
        self._running.kill()
        with suppress(BrokenPipeError):
            self._running.stdin.close()
        self._running.stdout.close()
        self._running.wait()
        self._errors.close()


class Pool:
    """The workers that are up."""

    def __init__(self, folder):
        self._folder = folder
        self._starts = {"ours": {"command": [sys.executable], "environment": {}}}
        self._idle = {}
        self._started = 0

    def borrow(self, client):
        """One that nobody has; started if there is none."""
        idle = self._idle.setdefault(client, [])
        return idle.pop() if idle else self._start(client)

    def give_back(self, client, worker):
        """For the next test, unless this one left it dead or busy."""
        if worker.idle:
            self._idle[client].append(worker)
        else:
            worker.kill()

    def close(self):
        """End them all."""
        for idle in self._idle.values():
            for worker in idle:
                worker.kill()

    def _start(self, client):
        part, program = OTHERS.get(client, ("ours", "ours.py"))
        if part not in self._starts:
            self._starts[part] = start_of(part)  # once, also if it cannot be had: asking again would take as long
        start = self._starts[part]
        if isinstance(start, Unavailable):
            (pytest.fail if start.failed and os.environ.get("CI") else pytest.skip)(start.reason)
        self._started += 1
        errors = self._folder / f"{client}-{self._started}"
        return Process([*start["command"], str(HERE / program)], start["environment"], errors)


class Unavailable(NamedTuple):
    """Why workers cannot be had here: a program is missing or, a failure on CI, an installation did not succeed."""

    failed: bool
    reason: str


def start_of(part):
    """How workers of that part start; their environment is made if need be."""
    command = [sys.executable, str(HERE / "environment.py"), part]
    made = subprocess.run(command, check=False, capture_output=True, text=True)
    if made.returncode != 0:
        return Unavailable(made.returncode != MISSING, f"interop with {part}: {made.stderr.strip()}")
    return json.loads(made.stdout)


@pytest.fixture(scope="session")
def pool(tmp_path_factory):
    """The workers of all tests."""
    workers = Pool(tmp_path_factory.mktemp("workers"))
    yield workers
    workers.close()


@pytest.fixture
def hire(pool, nodes):
    """A function that returns a worker of that client, connected to the nodes."""
    hired = []

    def borrow(client, **options):
        worker = pool.borrow(client)
        hired.append((client, worker))
        worker.ask("open", urls=nodes, **options)
        return worker

    yield borrow
    for client, worker in hired:
        if worker.idle:
            worker.ask("close")
        pool.give_back(client, worker)


@pytest.fixture
def ours(hire):
    """A worker of this library."""
    return hire("ours", retry_delay=5.0)  # if it polled, that would be seen


@pytest.fixture(params=CLIENTS)
def client(request):
    """Each of the other libraries."""
    return request.param


@pytest.fixture
def theirs(hire, client):
    """A worker of one of the other libraries."""
    return hire(client)
