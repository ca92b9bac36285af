"""docker/entrypoint.sh with a real server: a node that lost its data starts late, all others at once."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from redlock_async.testing._servers import HOST, find_server, free_ports, make_executable

pytestmark = pytest.mark.redis

SCRIPT = Path(__file__).parents[2] / "docker/entrypoint.sh"
DELAY = 2
SOON = DELAY / 2


class Node:
    """A stand-in for the container: its data, its mark, and a PATH with one server on it."""

    def __init__(self, folder, server_name="valkey-server"):
        self.data = folder / "data"
        self.mark = folder / "marks/node-1"
        self.tools = folder / "bin"
        self.tools.mkdir()
        (self.tools / server_name).symlink_to(make_executable(find_server(), folder))
        for tool in ("basename", "dirname", "mkdir", "sleep"):  # this machine's own servers must not be found
            (self.tools / tool).symlink_to(shutil.which(tool))
        self.data.mkdir()
        (self.port,) = free_ports(1)

    @contextlib.contextmanager
    def process(self, delay=DELAY, arguments=("--appendonly", "yes", "--appendfsync", "always")):
        """The script while it runs; killed at the end, as by a crash."""
        command = ["/bin/sh", str(SCRIPT), *("--port", str(self.port), "--bind", HOST, "--dir", str(self.data))]
        environment = {
            "PATH": str(self.tools),
            "REDLOCK_DATA_DIR": str(self.data),
            "REDLOCK_MARK": str(self.mark),
            "REDLOCK_RESTART_DELAY": str(delay),
        }
        process = subprocess.Popen(
            [*command, *arguments],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()

    def seconds_to_start(self, command=b"PING\r\n", **options):
        """Run it until it answers, then let it crash."""
        began = time.monotonic()
        with self.process(**options) as process:
            self.ask(command, process)
            return time.monotonic() - began

    def ask(self, command, process):
        """The reply to one command, once the server is there."""
        give_up_at = time.monotonic() + 20
        while time.monotonic() < give_up_at:
            assert process.poll() is None, process.stderr.read()
            with contextlib.suppress(OSError), socket.create_connection((HOST, self.port), 1) as client:
                client.sendall(command)
                if (reply := client.recv(1_000)).startswith((b"+", b"$")):
                    return reply
            time.sleep(0.01)
        raise AssertionError("the server does not answer")


@pytest.fixture
def node(tmp_path):
    """A node that never ran."""
    return Node(tmp_path)


def test_first_start_is_immediate(node):
    """An empty volume is no loss when the node never ran."""
    assert node.seconds_to_start() < SOON
    assert node.mark.exists()


def test_restart_with_data_is_immediate_and_keeps_the_locks(node):
    """What was granted before a crash is still there, so there is nothing to wait for."""
    node.seconds_to_start(b"SET orders:42 token\r\n")
    began = time.monotonic()
    with node.process() as process:
        assert node.ask(b"GET orders:42\r\n", process) == b"$5\r\ntoken\r\n"
    assert time.monotonic() - began < SOON


def test_restart_of_a_node_that_never_held_a_lock_is_immediate(node):
    """Its data is empty, not lost."""
    node.seconds_to_start()
    assert node.seconds_to_start() < SOON


def test_restart_after_the_data_was_removed_is_delayed(node):
    """It stays away for the whole delay, says so, and the start after that is quick again."""
    node.seconds_to_start(b"SET orders:42 token\r\n")
    node.data.rename(node.data.with_name("lost"))
    node.data.mkdir()
    began = time.monotonic()
    with node.process() as process:
        assert b"its data is gone; it starts in 2 s" in process.stderr.readline()
        assert node.ask(b"GET orders:42\r\n", process) == b"$-1\r\n"
        assert time.monotonic() - began >= DELAY
    assert node.seconds_to_start() < SOON


def test_data_lost_again_during_the_delay_is_still_delayed(node):
    """A crash while it waits does not shorten the wait."""
    node.mark.parent.mkdir()
    node.mark.touch()
    with node.process() as process:
        process.stderr.readline()
    assert node.seconds_to_start() >= DELAY


def test_node_without_persistence_is_delayed_at_each_restart(node):
    """It loses its data each time, and the first start is still immediate."""
    volatile = ("--appendonly", "no", "--save", "")
    assert node.seconds_to_start(arguments=volatile) < SOON
    assert node.seconds_to_start(arguments=volatile) >= DELAY


def test_stopping_during_the_delay_is_prompt(node):
    """`docker stop` sends SIGTERM, which a waiting script obeys at once."""
    node.mark.parent.mkdir()
    node.mark.touch()
    with node.process(delay=60) as process:
        process.stderr.readline()
        process.terminate()
        assert process.wait(timeout=5) == 143


def test_server_takes_the_place_of_the_script(node):
    """SIGTERM reaches the server, which ends in order."""
    with node.process() as process:
        node.ask(b"PING\r\n", process)
        process.terminate()
        assert process.wait(timeout=10) == 0


def test_redis_server_is_used_where_there_is_no_valkey_server(tmp_path):
    """The same script serves both images."""
    assert Node(tmp_path, server_name="redis-server").seconds_to_start() < SOON


def test_image_script_starts_the_server_where_there_is_one(node):
    """It is given the server's bare name and the options, as the images expect."""
    said = node.data / "said"
    script = node.tools / "docker-entrypoint.sh"
    script.write_text(f'#!/bin/sh\necho "$1" >"{said}"\nexec "$@"\n', "utf-8")
    script.chmod(0o755)
    node.seconds_to_start()
    assert said.read_text("utf-8") == "valkey-server\n"


def test_image_without_a_server_is_a_clear_error(node):
    """The log says what is missing."""
    (node.tools / "valkey-server").unlink()
    with node.process() as process:
        _, words = process.communicate(timeout=5)
    assert process.returncode == 127
    assert b"neither valkey-server nor redis-server" in words
